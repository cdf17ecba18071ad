"""Errors of ridges on rows that they have not seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.learning import source

from kernelsieve.kernels import Product
from kernelsieve.learning.errors import LandmarksApart, LeftOut, SetApart

N, KERNEL = 40, Product(0.7)


def judge(kind: Any, weighted: bool = True, fit_intercept: bool = True) -> Any:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, 3)), rng.normal(size=(N, 2)) + 7.0
    weights = rng.uniform(0.3, 2.0, N) if weighted else None
    block = source(X, y, weights).take(np.arange(N))
    return kind(block, np.arange(N) % 4 == 1, fit_intercept), X, y


def landmark_ridge(one: LandmarksApart, rows: Any, at: Any, alpha: float) -> Any:
    """Residuals at a row of the ridge on landmarks that some rows are fitted to: f = C B^+ C^T."""
    square, cross = KERNEL(one.landmarks), KERNEL(one.X, one.landmarks)
    Z, W = cross[rows], np.diag(one.weights[rows])
    solved = np.linalg.solve(Z.T @ W @ Z + alpha * square, Z.T @ W @ one.y[rows])
    return one.y[at] - cross[at] @ solved


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_residuals_of_all_leave_known_rows_out(weighted: bool, fit_intercept: bool) -> None:
    exact, _, _ = judge(SetApart, weighted, fit_intercept)
    one = LandmarksApart.among(exact, 8, 0)
    known = np.flatnonzero(~one.outside)
    found = one.residuals_of_all(KERNEL, 0.2)
    for row in range(N):
        others = known[known != row]
        np.testing.assert_allclose(found[row], landmark_ridge(one, others, row, 0.2), rtol=1e-5)
    np.testing.assert_allclose(one.ridges(KERNEL)(np.array([0.2]))[0], found[one.outside])


def test_landmarks_are_among_the_rows_that_are_known() -> None:
    exact, X, _ = judge(SetApart)
    one = LandmarksApart.among(exact, 8, 0)
    assert len(one.landmarks) == 8
    apart = {tuple(row) for row in X[one.outside]}
    assert not apart & {tuple(row) for row in one.landmarks}


def test_all_known_rows_as_landmarks_are_the_exact_kernel() -> None:
    exact, _, _ = judge(SetApart)
    one = LandmarksApart.among(exact, N, 0)
    (expected,) = exact.ridges(KERNEL)(np.array([0.2]))
    np.testing.assert_allclose(one.ridges(KERNEL)(np.array([0.2]))[0], expected, rtol=1e-5)


@pytest.mark.parametrize("kind", [LeftOut, SetApart])
def test_rows_that_happen_to_have_no_weight_are_as_good_as_others(kind: Any) -> None:
    X, y = np.random.default_rng(0).normal(size=(N, 3)), np.arange(N, dtype=float)
    outside = np.arange(N) % 4 == 1
    none, equal = (
        kind(source(X, y, weights).take(np.arange(N)), outside, True)
        for weights in (np.zeros(N), np.ones(N))
    )
    alphas = np.array([0.1, 1.0])
    np.testing.assert_array_equal(
        none.errors(none.ridges(KERNEL), alphas), equal.errors(equal.ridges(KERNEL), alphas)
    )
