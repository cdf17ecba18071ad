"""Closed forms of ridges against brute force: weights, intercepts, leave-one-out, deviations."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracles
import pytest

from kernelsieve import KernelRidge, KernelRidgeCV, NystromFeatures
from kernelsieve.kernels import Gaussian
from kernelsieve.learning.errors import LeftOut, OnLandmarks, SetApart
from kernelsieve.linalg.normal_equations import NormalEquations, solve_dual_ridge, solve_ridge
from kernelsieve.linalg.ridge_path import RidgePath
from kernelsieve.sources.base import Block

Array = Any
ALPHAS = np.array([0.03, 1.0, 40.0])
KERNEL = Gaussian(0.4)
SWITCH = pytest.mark.parametrize("fit_intercept", [True, False])


def problem(n: int = 14, d: int = 3, outputs: int = 2) -> tuple[Array, Array, Array]:
    """Rows, targets far from 0, and weights that span a factor of ten."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, d)) + 0.5
    y = np.stack([np.sin(X[:, 0]) + 3.0, X[:, 1] ** 2 - 7.0], axis=1)[:, :outputs]
    return X, y, rng.uniform(0.2, 2.0, size=n)


# --- features ------------------------------------------------------------------------------------


@SWITCH
@pytest.mark.parametrize("alpha", ALPHAS)
def test_ridges_with_weights_minimise_what_they_say(alpha: float, fit_intercept: bool) -> None:
    Z, y, weights = problem()
    expected, intercept = oracles.weighted_ridge(Z, y, weights, alpha, fit_intercept)
    equations = NormalEquations.of_block(Z[:5], y[:5], weights[:5])
    equations += NormalEquations.of_block(Z[5:], y[5:], weights[5:])
    solution = solve_ridge(equations, alpha, fit_intercept)
    path = RidgePath(equations.centred(fit_intercept), ALPHAS)
    place = int(np.flatnonzero(alpha == ALPHAS)[0])
    found = [
        (solution.coefficients, solution.intercepts),
        solve_dual_ridge(Z, y, weights, alpha, fit_intercept),
    ]
    for coefficients, intercepts in found:
        np.testing.assert_allclose(coefficients, expected, rtol=1e-8)
        np.testing.assert_allclose(intercepts, intercept, rtol=1e-8, atol=1e-12)
    predicted = path.predict(path.coordinates(Z))[:, place]
    np.testing.assert_allclose(predicted, Z @ expected + intercept, rtol=1e-8)
    residuals = y - Z @ expected - intercept
    np.testing.assert_allclose(
        solution.posterior.residual_squares, weights @ residuals**2, rtol=1e-8
    )


@SWITCH
@pytest.mark.parametrize("alpha", ALPHAS)
def test_variances_are_those_of_the_whole_posterior(alpha: float, fit_intercept: bool) -> None:
    """The intercept is a coefficient without a penalty; weights of mean above 1 are counts."""
    Z, y, weights = problem()
    weights = 2.0 * weights
    equations = NormalEquations.of_block(Z, y, weights)
    posterior = solve_ridge(equations, alpha, fit_intercept).posterior
    design = np.column_stack([Z, np.ones(len(Z))]) if fit_intercept else Z
    penalty = alpha * np.eye(design.shape[1])
    penalty[3:] = 0.0
    inverse = np.linalg.inv(design.T @ (design * weights[:, None]) + penalty)
    leverages = np.diag(design @ inverse @ design.T)
    np.testing.assert_allclose(posterior.leverages(Z), leverages, rtol=1e-9)
    path = RidgePath(equations.centred(fit_intercept), ALPHAS)
    place = int(np.flatnonzero(alpha == ALPHAS)[0])
    found = path.leverages(path.coordinates(Z), fit_intercept)[:, place]
    np.testing.assert_allclose(found, leverages, rtol=1e-9)
    hat = design @ inverse @ (design * weights[:, None]).T
    assert posterior.degrees_of_freedom == pytest.approx(np.trace(hat))
    squares = weights @ (y - hat @ y) ** 2
    noise = squares / (weights.sum() - np.trace(hat))
    np.testing.assert_allclose(posterior.noise_variance, noise, rtol=1e-9)
    np.testing.assert_allclose(posterior.relative_variances(Z), 1.0 + leverages, rtol=1e-9)
    np.testing.assert_allclose(
        posterior.relative_variances(Z, np.full(len(Z), 0.3)),
        1.0 + leverages + 0.3 / alpha,
        rtol=1e-9,
    )


@SWITCH
def test_all_landmarks_have_the_deviations_of_the_gaussian_process(fit_intercept: bool) -> None:
    """On all rows and beyond: the variance that the process keeps, in units of the noise."""
    X, y, _ = problem(outputs=1)
    new, alpha = X[:5] + 0.7, 0.5
    features = NystromFeatures(len(X), kernel=KERNEL, random_state=0)
    model = KernelRidge(features, alpha=alpha, fit_intercept=fit_intercept).fit(X, y[:, 0])
    mean, deviation = model.predict(new, return_std=True)
    A = np.linalg.inv(oracles.gram(oracles.gaussian, X, gamma=0.4) + alpha * np.eye(len(X)))
    across = oracles.gram(oracles.gaussian, new, X, gamma=0.4)
    ones = np.ones(len(X))
    rest = 1.0 - np.einsum("ij,jk,ik->i", across, A, across)
    beta = 0.0
    if fit_intercept:  # with a flat prior
        beta = ones @ A @ y[:, 0] / (ones @ A @ ones)
        rest += (1.0 - across @ A @ ones) ** 2 / (ones @ A @ ones)
    np.testing.assert_allclose(mean, beta + across @ A @ (y[:, 0] - beta), rtol=1e-6)
    expected = np.sqrt(model.noise_variance_ * (1.0 + rest / alpha))
    np.testing.assert_allclose(deviation, expected, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:the best alpha")
@SWITCH
@pytest.mark.parametrize("n", [14, 40])  # fewer and more rows than features
def test_left_out_rows_with_weights_are_refits(n: int, fit_intercept: bool) -> None:
    """The weighted root mean square of the residuals of rows that a refit did not see."""
    X, y, weights = problem(n, outputs=1)
    centres = np.random.default_rng(1).normal(size=(20, 3))
    features = NystromFeatures(20, kernel=KERNEL, landmarks=centres)
    found = KernelRidgeCV(features, alphas=ALPHAS, fit_intercept=fit_intercept).fit(
        X, y[:, 0], sample_weight=weights
    )
    Z = features.fit(X).transform(X)
    for alpha, rmse in zip(found.cv_results_["alpha"], found.cv_results_["rmse"], strict=True):
        residuals = oracles.left_out(Z, y, weights, alpha, fit_intercept)
        expected = np.sqrt(np.average(residuals[:, 0] ** 2, weights=weights))
        assert rmse == pytest.approx(expected, rel=1e-6)


# --- kernels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", ["none", "mean", "free"])
def test_exact_ridges_leave_out_what_they_say(intercept: str) -> None:
    """Refits of the kernel ridge without a row; its mean is that of the rows that are left."""
    X, y, weights = problem()
    judges = np.arange(len(X)) % 3 == 0
    errors = LeftOut(Block(X, y, weights), judges, intercept != "none", 1, intercept == "free")
    K = oracles.gram(oracles.gaussian, X, gamma=0.4)
    for alpha, residuals in zip(ALPHAS, errors.ridges(KERNEL)(ALPHAS), strict=True):
        expected = [
            y[i] - oracles.kernel_ridge(K, y, weights, alpha, np.arange(len(X)) != i, intercept)[i]
            for i in np.flatnonzero(judges)
        ]
        np.testing.assert_allclose(residuals, expected, rtol=1e-7)


@pytest.mark.parametrize("intercept", ["none", "mean", "free"])
def test_rows_set_apart_are_predicted_by_the_others(intercept: str) -> None:
    X, y, weights = problem()
    judges = np.arange(len(X)) % 3 == 0
    errors = SetApart(Block(X, y, weights), judges, intercept != "none", 1, intercept == "free")
    K = oracles.gram(oracles.gaussian, X, gamma=0.4)
    for alpha, residuals in zip(ALPHAS, errors.ridges(KERNEL)(ALPHAS), strict=True):
        predicted = oracles.kernel_ridge(K, y, weights, alpha, ~judges, intercept)
        np.testing.assert_allclose(residuals, (y - predicted)[judges], rtol=1e-7, atol=1e-10)


@SWITCH
def test_ridges_on_landmarks_leave_out_rows(fit_intercept: bool) -> None:
    X, y, weights = problem()
    judges, centres = np.arange(len(X)) % 3 == 0, X[:4] + 0.2
    errors = OnLandmarks(Block(X, y, weights), judges, fit_intercept, centres, 1)
    square = oracles.gram(oracles.gaussian, centres, gamma=0.4)
    Z = oracles.gram(oracles.gaussian, X, centres, gamma=0.4) @ np.linalg.inv(
        np.linalg.cholesky(square).T
    )
    for alpha, residuals in zip(ALPHAS, errors.ridges(KERNEL)(ALPHAS), strict=True):
        expected = oracles.left_out(Z, y, weights, alpha, fit_intercept)[judges]
        np.testing.assert_allclose(residuals, expected, rtol=1e-6)
