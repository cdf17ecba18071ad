"""Intervals of skewed targets: they hold what they promise for small predictions and large ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import kernelsieve
from kernelsieve import ConformalRegressor, KernelRidgeCV, TableModel
from kernelsieve.learning.target_transform import TargetTransform
from kernelsieve.models.intervals import Intervals, coverage_by_quartile

Array = NDArray[np.float64]


def prices(n: int, seed: int) -> tuple[Array, Array]:
    """Prices whose noise is a share of them."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, size=(n, 2))
    return X, np.exp(3.0 + 1.2 * X[:, 0] + 0.5 * np.sin(3.0 * X[:, 1]) + 0.3 * rng.normal(size=n))


@pytest.mark.parametrize("name", ["log", "sqrt"])
@pytest.mark.parametrize("low", [0.0, 2.0])
def test_the_way_to_the_learned_scale_and_back(name: str, low: float) -> None:
    """Means, deviations and bounds are turned back exactly."""
    targets = np.array([low, 3.0, 10.0, 500.0])
    transform = TargetTransform.of(name, targets).corrected(targets, 0.9 * np.log(targets + 1.0))
    learned = transform(np.array([3.0, 8.0, 60.0]))
    np.testing.assert_allclose(transform.target(learned), [3.0, 8.0, 60.0])
    mean, deviation = transform.mean(learned), np.array([0.1, 0.3, 0.2])
    inside = mean < 499.0
    np.testing.assert_allclose(transform.before(mean)[inside], learned[inside])
    bent = transform.deviation(learned, deviation)
    inside &= bent < 490.0
    found = transform.deviation_before(mean, bent)
    np.testing.assert_allclose(found[inside], deviation[inside])
    assert inside.any()


def test_coverage_holds_in_every_quartile() -> None:
    """Errors that grow with the prediction, over seeds, with bounds from the variance."""
    found, widths = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        predicted = rng.uniform(1.0, 20.0, size=6000)
        y = predicted * (1.0 + 0.2 * rng.normal(size=6000))
        intervals = Intervals.of(y[:1000], predicted[:1000])
        low, high = intervals.bounds(predicted[1000:], 0.9)
        found.append(coverage_by_quartile(y[1000:], low, high, predicted[1000:]))
        widths.append(np.mean(high - low))
    # One width for all holds 99 % in the first quartile and less than 75 % in the last.
    np.testing.assert_allclose(np.mean(found, axis=0), 0.9, atol=0.02)
    assert abs(np.mean(found) - 0.9) < 4.0 * np.sqrt(0.09 / 750 / 20)


@pytest.mark.parametrize("n", [60, 1200])
def test_the_promise_holds_on_average(n: int) -> None:
    """The rows that tell where errors are large have no part in the width."""
    shares = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        predicted = rng.normal(size=n + 200)
        y = predicted + np.exp(predicted) * rng.standard_t(3, size=n + 200)
        low, high = Intervals.of(y[:n], predicted[:n]).bounds(predicted[n:], 0.8)
        shares.append(np.mean((low <= y[n:]) & (y[n:] <= high)))
    errors = n if n < 400 else n - n // 4
    expected = np.ceil(0.8 * (errors + 1)) / (errors + 1)
    spread = np.sqrt((0.16 / (errors + 2) + 0.16 / 200) / len(shares))
    assert abs(np.mean(shares) - expected) < 4.0 * spread


def test_equal_predictions_and_no_errors() -> None:
    flat = Intervals.of(np.arange(1000.0), np.full(1000, 5.0))
    low, high = flat.bounds(np.array([5.0, 9.0]), 0.5)
    np.testing.assert_allclose(high - low, 2.0 * 494.0, atol=12.0)
    exact = Intervals.of(np.arange(1000.0), np.arange(1000.0))
    low, high = exact.bounds(np.array([3.0]), 0.9)
    assert low[0] == high[0] == 3.0
    few = Intervals.of(np.arange(5.0), np.zeros(5))
    assert few.bounds(np.zeros(1), 0.9)[1][0] == np.inf


@pytest.mark.parametrize("scaled", [False, True])
def test_conformal_bounds_of_prices(scaled: bool) -> None:
    """Never negative, and what was promised holds for cheap and for expensive things."""
    X, y = prices(5000, 0)
    ridge = KernelRidgeCV(target_transform="log", random_state=0)
    model = ConformalRegressor(ridge, scaled=scaled, calibration_share=0.8, random_state=0)
    model.fit(X[:1000], y[:1000])
    for coverage in (0.5, 0.9, 0.99):
        low, high = model.predict_interval(X[1000:], coverage)
        assert low.min() >= 0.0
        shares = coverage_by_quartile(y[1000:], low, high, model.predict(X[1000:]))
        # 600 errors give the width, and four groups of 50 the spread, to about a tenth each.
        spread = np.sqrt(coverage * (1.0 - coverage) * (1 / 600 + 1 / 1000))
        assert (np.abs(shares - coverage) < 4.0 * spread + 0.04).all()
    middle = model.predict(X[1000:])
    low, high = model.predict_interval(X[1000:], 0.5)
    assert np.mean((low < middle) & (middle < high)) > 0.95


@pytest.mark.slow
def test_table_intervals_of_prices(tmp_path: Path) -> None:
    X, y = prices(1100, 1)
    rows: dict[str, Any] = {"size": X[:, 0], "age": X[:, 1], "price": y}
    train = {name: values[:600] for name, values in rows.items()}
    test = {name: values[600:] for name, values in rows.items()}
    model = TableModel("price", target_transform="log").fit(train)
    low, high = model.predict_interval(test, 0.95)
    assert low.min() > 0.0
    shares = coverage_by_quartile(test["price"], low, high, model.predict(test))
    assert (np.abs(shares - 0.95) < 4.0 * np.sqrt(0.0475 * (1 / 125 + 1 / 120))).all()
    columns = model.predict_table(test, interval=0.95).columns
    np.testing.assert_array_equal(columns["price low"], low)
    np.testing.assert_array_equal(columns["price high"], high)
    kernelsieve.save(model, tmp_path / "m.ks")
    np.testing.assert_array_equal(
        kernelsieve.load(tmp_path / "m.ks").predict_interval(test, 0.95)[1], high
    )
