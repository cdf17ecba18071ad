"""Intervals hold what they promise, and quantiles are where the loss is smallest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog, minimize
from sklearn.base import clone

from kernelsieve import (
    AdaptiveFeatures,
    AutoFeatures,
    ConformalRegressor,
    FourierFeatures,
    KernelQuantileRegressor,
    KernelRidge,
    RowNormFeatures,
    datasets,
)
from kernelsieve.models.intervals import conformal_width
from kernelsieve.models.quantile_regression import pinball_loss

COVERAGES = (0.5, 0.8, 0.9, 0.95)


def noisy(n: int, seed: int) -> tuple[Any, Any]:
    """A function of two columns, with noise that depends on the first."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, size=(n, 2))
    return X, np.sin(3.0 * X[:, 0]) * X[:, 1] + (0.1 + 0.5 * (X[:, 0] > 0)) * rng.normal(size=n)


def test_the_width_is_an_order_statistic() -> None:
    errors = np.arange(1.0, 20.0)  # 19 of them
    assert conformal_width(errors, 0.5) == 10.0
    assert conformal_width(errors, 0.95) == 19.0
    assert conformal_width(errors, 0.96) == np.inf
    with pytest.raises(ValueError, match="coverage=1 must be between 0 and 1"):
        conformal_width(errors, 1)


@pytest.mark.parametrize("scaled", [False, True])
def test_coverage_is_what_was_promised(scaled: bool) -> None:
    """Over splits, the mean coverage is within three standard errors of what theory gives.

    Given n calibration rows, the coverage of one fit has a beta distribution with mean
    ceil(c (n + 1)) / (n + 1).
    """
    model = ConformalRegressor(KernelRidge(RowNormFeatures(15, random_state=0)), scaled=scaled)
    found = {coverage: [] for coverage in COVERAGES}
    for seed in range(12):
        X, y = noisy(900, seed)
        fitted = model.set_params(random_state=seed).fit(X[:500], y[:500])
        for coverage in COVERAGES:
            low, high = fitted.predict_interval(X[500:], coverage)
            found[coverage].append(np.mean((low <= y[500:]) & (y[500:] <= high)))
    for coverage, shares in found.items():
        rank = np.ceil(coverage * 101)
        variance = rank * (101 - rank) / (101**2 * 102) + coverage * (1 - coverage) / 400
        assert abs(np.mean(shares) - rank / 101) < 3.5 * np.sqrt(variance / len(shares))


def test_scaled_intervals_are_wider_far_away() -> None:
    X, y = noisy(400, 0)
    model = ConformalRegressor(
        KernelRidge(AdaptiveFeatures(40, random_state=0)), scaled=True, random_state=0
    ).fit(X, y)
    low, high = model.predict_interval(np.array([[0.0, 0.0], [9.0, 9.0]]), 0.9)
    assert high[1] - low[1] > 1.2 * (high[0] - low[0])
    np.testing.assert_allclose(0.5 * (low + high), model.predict([[0.0, 0.0], [9.0, 9.0]]))


def test_intervals_on_real_data() -> None:
    data = datasets.load("diabetes")
    features = AdaptiveFeatures(50, gamma=0.02, random_state=0)
    inside = []
    for seed in range(8):
        order = np.random.default_rng(seed).permutation(len(data.y))
        train, test = order[:300], order[300:]
        X = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
        model = ConformalRegressor(KernelRidge(features, alpha=5.0), random_state=seed)
        low, high = model.fit(X[train], data.y[train]).predict_interval(X[test], 0.8)
        inside.append(np.mean((low <= data.y[test]) & (data.y[test] <= high)))
    assert abs(np.mean(inside) - 0.8) < 0.06


def test_what_intervals_need() -> None:
    X, y = noisy(60, 0)
    with pytest.raises(ValueError, match="single target"):
        ConformalRegressor().fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match=r"calibration_share=1\.5"):
        ConformalRegressor(calibration_share=1.5).fit(X, y)


def blind_ridge(n_components: int = 12, **options: Any) -> KernelRidge:
    """A ridge on features that see neither the target nor, with a given gamma, the rows."""
    return KernelRidge(FourierFeatures(n_components, gamma=0.5, random_state=0), **options)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_jackknife_is_a_fit_without_each_row(fit_intercept: bool) -> None:
    """The closed form against n fits of n - 1 rows, and the interval against its definition."""
    X, y = noisy(40, 0)
    new = noisy(7, 1)[0]
    ridge = blind_ridge(alpha=0.3, fit_intercept=fit_intercept)
    model = ConformalRegressor(ridge, method="jackknife+").fit(X, y)
    residuals, predictions = [], []
    for i in range(40):
        others = np.arange(40) != i
        without = clone(ridge).fit(X[others], y[others])
        residuals.append(y[i] - without.predict(X[i : i + 1])[0])
        predictions.append(without.predict(new))
    np.testing.assert_allclose(model.jackknife_.residuals, residuals, rtol=1e-8)
    widths = np.abs(residuals)[:, None]
    for coverage, rank in ((0.5, 21), (0.8, 33), (0.97, 40)):
        low, high = model.predict_interval(new, coverage)
        np.testing.assert_allclose(high, np.sort(predictions + widths, axis=0)[rank - 1], rtol=1e-8)
        np.testing.assert_allclose(low, np.sort(predictions - widths, axis=0)[40 - rank], rtol=1e-8)
    low, high = model.predict_interval(new, 0.98)  # 41 * 0.98 is more than 40
    assert (low == -np.inf).all()
    assert (high == np.inf).all()
    np.testing.assert_allclose(model.predict(new), clone(ridge).fit(X, y).predict(new))


def test_jackknife_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = noisy(60, 0)
    new = noisy(50, 1)[0]
    model = ConformalRegressor(blind_ridge(), method="jackknife+").fit(X, y)
    expected = model.predict_interval(new, 0.8)
    monkeypatch.setattr("kernelsieve.models.jackknife.BLOCK_NUMBERS", 180)  # three rows at a time
    np.testing.assert_allclose(model.predict_interval(new, 0.8), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "features",
    [
        FourierFeatures(30, gamma=0.5, random_state=0),
        AdaptiveFeatures(30, target_share=0.0, random_state=0),
    ],
    ids=["of no row", "of the rows"],
)
def test_jackknife_covers_what_it_promises(features: Any) -> None:
    """The mean over 80 fits of 60 rows is within 3.5 deviations of the promise.

    Coverage of one fit varies as that of an order statistic of independent errors, of which there
    are at least as many as the features leave, 60 - 30: its variance is c (1 - c) / 30. That of
    the share among 100 new rows is added. (Proven is only 1 - 2 (1 - c).)
    """
    model = ConformalRegressor(KernelRidge(features), method="jackknife+")
    inside: dict[float, list[float]] = {coverage: [] for coverage in COVERAGES}
    for seed in range(80):
        X, y = noisy(160, seed)
        model.fit(X[:60], y[:60])
        for coverage, shares in inside.items():
            low, high = model.predict_interval(X[60:], coverage)
            shares.append(float(np.mean((low <= y[60:]) & (y[60:] <= high))))
    for coverage, shares in inside.items():
        spread = coverage * (1.0 - coverage) * (1 / 30 + 1 / 100) / 80
        assert abs(np.mean(shares) - coverage) < 3.5 * np.sqrt(spread), coverage


def test_jackknife_is_tighter_than_a_split_of_few_rows() -> None:
    wide = {"split": 0.0, "jackknife+": 0.0}
    for seed in range(20):
        X, y = noisy(60, seed)
        for method in wide:
            model = ConformalRegressor(blind_ridge(), method=method, random_state=seed).fit(X, y)
            low, high = model.predict_interval(X, 0.8)
            wide[method] += float(np.mean(high - low))
    assert wide["jackknife+"] < 0.95 * wide["split"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (None, "KernelRidgeCV chooses its kernel and alpha by the target"),
        (KernelRidge(AdaptiveFeatures(10)), r"target_share=0\.333.*set target_share=0"),
        (KernelRidge(AdaptiveFeatures(10, target_share="auto")), "target_share='auto'"),
        (KernelRidge(AdaptiveFeatures(10, kernel="learned", target_share=0)), "the target chooses"),
        (KernelRidge(AutoFeatures(10)), "the target chooses the kernel"),
        (KernelRidge(FourierFeatures(10), refine=True), "refine=True is not a ridge on features"),
        (KernelRidge(FourierFeatures(10), solver="cg"), "solver='cg' does not form"),
    ],
)
def test_what_jackknife_refuses(model: Any, message: str) -> None:
    X, y = noisy(60, 0)
    with pytest.raises(ValueError, match=message):
        ConformalRegressor(model, method="jackknife+").fit(X, y)


def test_more_that_jackknife_refuses() -> None:
    X, y = noisy(60, 0)
    with pytest.raises(ValueError, match="scaled=True is for method='split'"):
        ConformalRegressor(blind_ridge(), method="jackknife+", scaled=True).fit(X, y)
    with pytest.raises(ValueError, match="method='bootstrap'"):
        ConformalRegressor(method="bootstrap").fit(X, y)


def test_groups_are_set_aside_together() -> None:
    """Rows of 40 groups that differ by far more than the noise inside of them."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 20)
    X = np.eye(40)[groups]
    y = 3.0 * rng.normal(size=40)[groups] + 0.1 * rng.normal(size=800)
    ridge = KernelRidge(FourierFeatures(400, gamma=1.0, random_state=0), alpha=0.01)
    model = ConformalRegressor(ridge, random_state=0)
    alone = conformal_width(model.fit(X, y).errors_, 0.8)
    together = conformal_width(model.fit(X, y, groups=groups).errors_, 0.8)
    assert len(model.errors_) == 160  # of eight groups
    assert together > 2.0 * alone
    for wrong, message in ((groups[:9], "one for each of 800 rows"), (0 * groups, "one group")):
        with pytest.raises(ValueError, match=message):
            model.fit(X, y, groups=wrong)
    with pytest.raises(ValueError, match="leaves out rows one by one"):
        ConformalRegressor(blind_ridge(), method="jackknife+").fit(X, y, groups=groups)


def test_a_split_after_a_jackknife_forgets_it() -> None:
    X, y = noisy(80, 0)
    model = ConformalRegressor(blind_ridge(), method="jackknife+", random_state=0).fit(X, y)
    split = model.set_params(method="split").fit(X, y)
    assert len(split.errors_) == 16
    low, high = split.predict_interval(X[:3], 0.8)
    np.testing.assert_allclose(high - low, 2.0 * conformal_width(split.errors_, 0.8))


def dense_truth(Z: Any, y: Any, quantile: float, alpha: float) -> float:
    """The smallest loss, by scipy on the dual: maximise y a - |Z^T a|^2 / (2 alpha)."""
    bounds = [(quantile - 1.0, quantile)] * len(y)
    centred = Z - Z.mean(axis=0)
    gram = centred @ centred.T / alpha

    def negative(a: Any) -> tuple[float, Any]:
        return 0.5 * a @ gram @ a - y @ a, gram @ a - y

    constraint = {"type": "eq", "fun": lambda a: a.sum(), "jac": lambda a: np.ones(len(a))}
    found = minimize(
        negative, np.zeros(len(y)), jac=True, bounds=bounds, constraints=[constraint],
        method="SLSQP", options={"maxiter": 500, "ftol": 1e-12},
    )  # fmt: skip
    return -float(found.fun)


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.8])
def test_quantiles_minimise_the_pinball_loss(quantile: float) -> None:
    X, y = noisy(80, 0)
    y = (y - np.median(y)) / y.std()
    model = KernelQuantileRegressor(
        quantile, RowNormFeatures(10, random_state=0), alpha=0.5, tol=1e-6, max_iter=20_000
    ).fit(X, y)
    Z = model.features_.transform(X)
    loss = len(y) * pinball_loss(y, model.predict(X), quantile)
    reached = loss + 0.25 * float(np.square(model.coef_).sum())
    assert reached == pytest.approx(dense_truth(Z, y, quantile, 0.5), rel=1e-4)


def test_without_penalty_it_is_a_linear_programme() -> None:
    X, y = noisy(60, 1)
    y = (y - np.median(y)) / y.std()
    model = KernelQuantileRegressor(
        [0.3], RowNormFeatures(4, random_state=0), alpha=1e-6, tol=1e-6, max_iter=20_000
    ).fit(X, y)
    Z = np.column_stack([model.features_.transform(X), np.ones(60)])
    costs = np.concatenate([np.zeros(2 * Z.shape[1]), np.full(60, 0.3), np.full(60, 0.7)])
    matrix = np.hstack([Z, -Z, np.eye(60), -np.eye(60)])
    best = linprog(costs, A_eq=matrix, b_eq=y).fun / 60
    assert pinball_loss(y, model.predict(X)[:, 0], 0.3) == pytest.approx(best, rel=1e-3)


def test_quantiles_see_where_the_noise_is() -> None:
    X, y = noisy(1500, 0)
    features = AdaptiveFeatures(40, random_state=0)
    model = KernelQuantileRegressor((0.1, 0.5, 0.9), features, random_state=0).fit(X, y)
    new, truth = noisy(3000, 1)
    low, middle, high = model.predict(new).T
    assert ((low <= middle) & (middle <= high)).all()
    for quantile, predicted in ((0.1, low), (0.5, middle), (0.9, high)):
        assert abs(np.mean(truth <= predicted) - quantile) < 0.05
    loud = new[:, 0] > 0.1
    quiet = new[:, 0] < -0.1
    assert (high - low)[loud].mean() > 2.5 * (high - low)[quiet].mean()
    assert 0.1 < model.score(new, truth) < 1.0


def test_what_quantiles_need() -> None:
    X, y = noisy(50, 0)
    for quantiles in ((0.5, 0.1), (0.0,), ()):
        with pytest.raises(ValueError, match="quantiles="):
            KernelQuantileRegressor(quantiles).fit(X, y)
    with pytest.raises(ValueError, match="one column"):
        KernelQuantileRegressor().fit(X, np.column_stack([y, y]))
    with pytest.warns(UserWarning, match="quantiles stopped after 2 iterations"):
        KernelQuantileRegressor([0.5], RowNormFeatures(5), alpha=0.01, max_iter=2).fit(X, y)


def test_intervals_of_a_frame_are_those_of_its_rows() -> None:
    X, y = noisy(200, 0)
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    model = ConformalRegressor(KernelRidge(FourierFeatures(20, random_state=0)), random_state=0)
    expected = model.fit(X, y).predict_interval(X)
    found = model.fit(frame, y).predict_interval(frame)
    np.testing.assert_array_equal(found, expected)


def test_quantiles_choose_their_own_features() -> None:
    X, y = noisy(150, 0)
    model = KernelQuantileRegressor((0.1, 0.9), random_state=0).fit(X, y)
    assert isinstance(model.features_, AutoFeatures)
    low, high = model.predict(X).T
    assert 0.6 < np.mean((low <= y) & (y <= high)) < 0.98
