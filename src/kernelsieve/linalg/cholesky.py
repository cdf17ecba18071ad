"""Cholesky factors and inverses of positive definite matrices, in float64.

By LAPACK through ctypes, which gives up the interpreter's lock: other threads run meanwhile. They
would wait for the same routines of scipy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
from numba.extending import get_cython_function_address
from numpy.typing import NDArray
from scipy.linalg import LinAlgError

Array = NDArray[np.float64]

# Of the mean diagonal entry, tried in turn; the last ones for sums of products in float32.
GRAM_JITTERS = (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6, 1e-5)
TRIANGLE_ROWS = 64  # of a matrix whose upper triangle is cleared at a time
COVARIANCE_JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4)


def lower_factor(matrix: Array) -> Array:
    """The lower factor of a positive definite matrix; LinAlgError if it is not."""
    factor = _lower_triangle(matrix)
    minor = _apply("dpotrf", factor)
    if minor:
        raise LinAlgError(f"the leading minor of order {minor} is not positive definite")
    return factor


def inverse_of_lower(lower: Array) -> Array:
    """The inverse of a lower triangle."""
    inverse = _lower_triangle(lower)
    _apply("dtrtri", inverse, b"N")
    return inverse


def solve_triangle(lower: Array, rows: Array, transposed: bool = False) -> Array:
    """Solve L x = y for every row y, or L^T x = y if it is ``transposed``; returns the rows x."""
    lower = np.ascontiguousarray(lower, dtype=np.float64)
    solved = np.array(rows, dtype=np.float64, order="C")
    m, n = (ctypes.byref(ctypes.c_int(size)) for size in solved.shape)
    matrix, right = lower.ctypes.data, solved.ctypes.data
    how = b"N" if transposed else b"T"  # of LAPACK's upper triangle
    if len(solved) == 1:  # about twice as quick
        one = ctypes.byref(ctypes.c_int(1))
        _routine("blas", "dtrsv", 8)(b"U", how, b"N", n, matrix, n, right, one)
    else:
        scale = ctypes.byref(ctypes.c_double(1.0))
        _routine("blas", "dtrsm", 11)(b"L", b"U", how, b"N", n, m, scale, matrix, n, right, n)
    return solved


def _lower_triangle(matrix: Array) -> Array:
    """A copy that LAPACK may write into: by rows, with zeros above the diagonal."""
    triangle = np.array(matrix, dtype=np.float64, order="C")
    for start in range(0, len(triangle), TRIANGLE_ROWS):  # a fraction of the time of np.tril
        stop = start + TRIANGLE_ROWS
        triangle[start:stop, stop:] = 0.0
        triangle[start:stop, start:stop] = np.tril(triangle[start:stop, start:stop])
    return triangle


def _apply(routine: str, triangle: Array, *options: bytes) -> int:
    """Let a routine of LAPACK work on a lower triangle, in place; returns what it reports."""
    n, info = ctypes.byref(ctypes.c_int(len(triangle))), ctypes.c_int(0)
    # LAPACK reads by columns what numpy writes by rows: our lower triangle is its upper one.
    call = _routine("lapack", routine, 5 + len(options))
    call(b"U", *options, n, triangle.ctypes.data, n, ctypes.byref(info))
    return info.value


@cache
def _routine(library: str, name: str, n_arguments: int) -> Any:
    """A routine of scipy's BLAS or LAPACK, all of whose arguments are pointers."""
    address = get_cython_function_address(f"scipy.linalg.cython_{library}", name)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)(address)


def first_factor(matrix: Array, shifts: Iterable[float]) -> tuple[Array, float] | None:
    """The lower factor of matrix + shift I, and the shift: the first that makes it definite."""
    for shift in shifts:
        shifted = matrix
        if shift:
            shifted = matrix.copy()
            shifted.flat[:: len(matrix) + 1] += shift
        try:
            return lower_factor(shifted), shift
        except LinAlgError:
            continue
    return None


def regularised_cholesky(gram: Array, alpha: float) -> tuple[Array, float]:
    """Factor gram + shift I, where the shift is alpha, or slightly more if rounding requires it.

    Parameters
    ----------
    gram : ndarray of shape (s, s)
        Symmetric and positive semidefinite up to rounding; it is not changed.
    alpha : float

    Returns
    -------
    factor : ndarray of shape (s, s)
        The lower Cholesky factor.
    shift : float
    """
    scale = float(np.trace(gram)) / len(gram)
    if not np.isfinite(scale):
        raise ValueError(
            "the products of features overflow float64: scale X, or lower gamma or the degree"
        )
    found = first_factor(gram, [alpha + jitter * scale for jitter in GRAM_JITTERS])
    if found is None:
        raise LinAlgError(
            f"the Gram matrix is not positive definite at alpha={alpha:g}: raise alpha"
        )
    return found


def covariance_factor(matrix: Array) -> Array:
    """The lower factor of a positive definite matrix; a little is added where rounding asks."""
    size = float(np.trace(matrix)) / len(matrix)
    found = first_factor(matrix, [jitter * size for jitter in COVARIANCE_JITTERS])
    if found is None:
        raise LinAlgError(
            "the covariance is not positive definite at any jitter: X holds huge values"
        )
    return found[0]


def inverse_of(matrix: Array) -> tuple[float, Array]:
    """log det and inverse of a positive definite matrix, as `covariance_factor` factors it."""
    inverse = covariance_factor(matrix)
    log_determinant = 2.0 * float(np.log(np.diag(inverse)).sum())
    _apply("dpotri", inverse)
    inverse += np.tril(inverse, -1).T
    return log_determinant, inverse
