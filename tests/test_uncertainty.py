"""Intervals hold what they promise, and quantiles are where the loss is smallest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from kernelsieve import (
    AdaptiveFeatures,
    ConformalRegressor,
    KernelQuantileRegressor,
    KernelRidge,
    RowNormFeatures,
    datasets,
)
from kernelsieve.models.conformal import conformal_width
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
