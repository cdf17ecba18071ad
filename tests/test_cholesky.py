"""Factors and inverses through LAPACK, for any memory order and float type, against numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.linalg import LinAlgError

from kernelsieve.linalg.cholesky import (
    first_factor,
    inverse_of,
    inverse_of_lower,
    lower_factor,
    solve_triangle,
)


def positive_definite(n: int) -> Any:
    A = np.random.default_rng(n).standard_normal((n, n + 3))
    return A @ A.T + 0.1 * np.eye(n)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [1, 2, 7, 130])
def test_factor_and_its_inverse(n: int, dtype: Any, order: Any) -> None:
    matrix = np.array(positive_definite(n), dtype=dtype, order=order)
    before = matrix.copy()
    factor = lower_factor(matrix)
    np.testing.assert_array_equal(matrix, before)
    expected = np.linalg.cholesky(matrix.astype(np.float64))
    np.testing.assert_allclose(factor, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    inverse = inverse_of_lower(np.array(factor, order=order))
    assert factor.dtype == inverse.dtype == np.float64
    assert not np.triu(factor, 1).any()
    assert not np.triu(inverse, 1).any()
    np.testing.assert_allclose(inverse @ factor, np.eye(n), rtol=0, atol=1e-10)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("m", [1, 2, 9])
@pytest.mark.parametrize("n", [1, 7, 130])
def test_triangular_systems(n: int, m: int, order: Any) -> None:
    lower = np.array(lower_factor(positive_definite(n)), order=order)
    rows = np.array(np.random.default_rng(m).standard_normal((m, n)), order=order)
    before = rows.copy()
    forward, back = solve_triangle(lower, rows), solve_triangle(lower, rows, transposed=True)
    np.testing.assert_array_equal(rows, before)
    np.testing.assert_allclose(forward @ lower.T, rows, rtol=0, atol=1e-10)
    np.testing.assert_allclose(back @ lower, rows, rtol=0, atol=1e-10)


@pytest.mark.parametrize("n", [1, 5, 200])
def test_inverse_and_determinant(n: int) -> None:
    matrix = positive_definite(n)
    log_determinant, inverse = inverse_of(matrix)
    np.testing.assert_allclose(inverse @ matrix, np.eye(n), rtol=0, atol=1e-8)
    np.testing.assert_array_equal(inverse, inverse.T)
    assert log_determinant == pytest.approx(np.linalg.slogdet(matrix)[1], rel=1e-10, abs=1e-10)


def test_an_indefinite_matrix_has_no_factor_before_its_shift() -> None:
    matrix = np.diag([1.0, -0.5, 2.0])
    with pytest.raises(LinAlgError, match="order 2"):
        lower_factor(matrix)
    assert first_factor(matrix, [0.0, 0.1]) is None
    factor, shift = first_factor(matrix, [0.1, 1.0, 3.0]) or (None, 0.0)
    assert shift == 1.0
    np.testing.assert_allclose(factor, np.diag(np.sqrt([2.0, 0.5, 3.0])))
