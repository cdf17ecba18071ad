"""One Cholesky factor: the ridge, and what is left at rows that it leaves out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernelsieve.linalg.left_out import solve_judged

ALPHA = 0.3


def problem(n: int, weighted: bool) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 3))
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2))
    return K, rng.normal(size=(n, 2)) + 3.0, rng.uniform(0.2, 3.0, n) if weighted else None


def ridge(K: Any, y: Any, weights: Any, fit_intercept: bool) -> tuple[Any, Any]:
    """Dual coefficients and intercepts from the bordered system."""
    n = len(y)
    noise = np.ones(n) if weights is None else 1.0 / weights
    A, right = K + ALPHA * np.diag(noise), y
    if fit_intercept:
        A = np.block([[A, np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
        right = np.vstack([y, np.zeros((1, y.shape[1]))])
    solved = np.linalg.solve(A, right)
    return (solved[:-1], solved[-1]) if fit_intercept else (solved, np.zeros(y.shape[1]))


def without(K: Any, y: Any, weights: Any, fit_intercept: bool, rows: Any, at: Any) -> Any:
    """Residuals at some rows of the ridge without others."""
    kept = np.setdiff1d(np.arange(len(y)), rows)
    some = None if weights is None else weights[kept]
    dual, intercepts = ridge(K[np.ix_(kept, kept)], y[kept], some, fit_intercept)
    return y[at] - K[np.ix_(at, kept)] @ dual - intercepts


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("judges", [[3, 10, 11, 40, 59], [7], [], range(60)], ids=len)
def test_it_is_the_ridge_and_the_ridges_without_its_judges(
    judges: Any, weighted: bool, fit_intercept: bool
) -> None:
    K, y, weights = problem(60, weighted)
    judges = np.array(list(judges), dtype=np.int64)
    before = K.copy()
    found = solve_judged(K, y, weights, ALPHA, fit_intercept, judges)
    np.testing.assert_array_equal(K, before)
    dual, intercepts = ridge(K, y, weights, fit_intercept)
    np.testing.assert_allclose(found.dual, dual, atol=1e-10)
    np.testing.assert_allclose(found.intercepts, intercepts, atol=1e-10)
    assert found.left_out.shape == found.apart.shape == (len(judges), 2)
    for residual, judge in zip(found.left_out, judges, strict=True):
        one = np.array([judge])
        expected = without(K, y, weights, fit_intercept, one, one)[0]
        np.testing.assert_allclose(residual, expected, atol=1e-9)
    if len(judges) == 60:  # there are no other rows
        np.testing.assert_array_equal(found.apart, found.left_out)
    elif len(judges):
        expected = without(K, y, weights, fit_intercept, judges, judges)
        np.testing.assert_allclose(found.apart, expected, atol=1e-9)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_rows_without_weight_are_predicted_from_the_others(fit_intercept: bool) -> None:
    K, y, weights = problem(40, True)
    nothing = np.arange(40) % 4 == 1
    weights[nothing] = 0.0
    y[nothing] = 1e3
    found = solve_judged(K, y, weights, ALPHA, fit_intercept, np.arange(40))
    rows = np.flatnonzero(nothing)
    expected = without(K, y, weights, fit_intercept, rows, rows)
    np.testing.assert_allclose(found.left_out[nothing], expected, rtol=1e-6)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_its_only_row_nothing_is_known(fit_intercept: bool) -> None:
    found = solve_judged(
        np.ones((1, 1)), np.full((1, 1), 5.0), None, ALPHA, fit_intercept, np.array([0])
    )
    assert found.left_out.tolist() == found.apart.tolist() == [[5.0]]
