"""Whitening by landmarks: C = k(X, landmarks) times the inverse root of k(landmarks, landmarks)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf

from kernelsieve.linalg.cholesky import inverse_of_lower, regularised_cholesky

PANEL = 256  # columns of a product at a time: below them the triangle's zeros are not multiplied
# Residuals of a positive semi-definite matrix are negative by rounding only, far below this: by
# n eps |x|^2 for x = (gram + shift I)^-1 c, and |x|^2 <= 1 / shift.
NEGATIVE_SHARE = 1e-6
DEFINITE_SHIFT = 1e-8  # of the norm; it makes residuals larger, so that nothing is refused wrongly
SHIFT = 0.1  # of the rounding at the largest eigenvalue: more is biased, less is noisy


def independent_landmarks(gram: NDArray[np.float64]) -> NDArray[np.int64]:
    """Landmarks that span all others up to rounding, in ascending order; at least one.

    Pivoted Cholesky takes the landmark that the chosen ones explain least, and stops when the rest
    is rounding. Repeated points and kernels of low rank leave fewer landmarks than there were.
    """
    tolerance = len(gram) * np.finfo(np.float64).eps * float(np.diag(gram).max())
    # Rounding must not decide between equals: the earlier one is preferred by a little.
    preference = np.linspace(1.0, 1.0 - 1e-3, len(gram))
    preferred = gram * preference * preference[:, None]
    _, pivots, rank, _ = dpstrf(preferred, lower=1, tol=tolerance, overwrite_a=1)
    kept = np.sort(pivots[: max(1, rank)] - 1).astype(np.int64)
    if len(kept) < len(gram):
        _refuse_indefinite(gram, kept)
    return kept


def _refuse_indefinite(gram: NDArray[np.float64], kept: NDArray[np.int64]) -> None:
    """Refuse a kernel for which the kept landmarks explain more than all of another one."""
    rest = np.setdiff1d(np.arange(len(gram)), kept)
    shift = max(DEFINITE_SHIFT * _norm(gram), float(np.finfo(np.float64).tiny))
    factor, _ = regularised_cholesky(gram[np.ix_(kept, kept)], shift)
    inverse_root = inverse_of_lower(factor).T
    with np.errstate(over="ignore"):  # a landmark of length 0 that is not orthogonal to others
        explained = np.square(gram[np.ix_(rest, kept)] @ inverse_root).sum(axis=1)
    left = gram[rest, rest] - explained
    if left.min() < -NEGATIVE_SHARE * np.abs(gram).max():
        raise ValueError(
            "the kernel is not positive semi-definite: on the landmarks its matrix has a negative "
            f"Schur complement ({left.min():.3g}); use another kernel"
        )


def whitening_of(gram: NDArray[np.float64], dtype: Any) -> NDArray[Any]:
    """Upper triangular T with T T^T = (gram + shift I)^-1, in ``dtype``.

    The shift is of the order of ``dtype``'s rounding at the largest eigenvalue (at its bound, the
    Frobenius norm). C has errors of that size, which T would otherwise magnify until Z is noise.
    """
    info = np.finfo(dtype)
    shift = max(SHIFT * float(info.eps) * _norm(gram), float(info.tiny))
    factor, _ = regularised_cholesky(gram, shift)
    return np.ascontiguousarray(inverse_of_lower(factor).T, dtype=dtype)


def _norm(gram: NDArray[np.float64]) -> float:
    """The Frobenius norm, without squares that overflow."""
    largest = float(np.abs(gram).max())
    return largest * float(np.linalg.norm(gram / largest)) if largest > 0 else 0.0


def times_upper(C: NDArray[Any], triangle: NDArray[Any], out: NDArray[Any]) -> None:
    """``out = C @ triangle`` for an upper triangle, in half the multiplications.

    In products of numpy, which let other threads run; scipy's ``trmm`` and ``trsm`` do not.
    """
    for start in range(0, triangle.shape[1], PANEL):
        panel = slice(start, start + PANEL)
        used = min(panel.stop, len(triangle))
        np.matmul(C[:, :used], triangle[:used, panel], out=out[:, panel])
