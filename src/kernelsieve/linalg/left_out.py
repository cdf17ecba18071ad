"""The exact kernel ridge by one Cholesky factor, with what it leaves at rows it leaves out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelsieve.linalg.cholesky import covariance_factor, inverse_of_lower, solve_triangle

Array = NDArray[np.float64]


@dataclass(frozen=True)
class JudgedRidge:
    """A ridge of all rows, and residuals of ridges without some of them.

    Attributes
    ----------
    dual : ndarray of shape (n, m)
        Coefficients of the rows.
    intercepts : ndarray of shape (m,)
    left_out : ndarray of shape (n_judges, m)
        Residuals at the judges, each of the ridge of all other rows.
    apart : ndarray of shape (n_judges, m)
        Residuals at the judges, all of the ridge of the other rows alone; if there are no other
        rows, those that are left out one by one.
    """

    dual: Array
    intercepts: Array
    left_out: Array
    apart: Array


def solve_judged(
    gram: Array,
    y: Array,
    weights: Array | None,
    alpha: float,
    fit_intercept: bool,
    judges: NDArray[np.int64],
) -> JudgedRidge:
    """Solve for all rows; one factor serves the residuals without some of them, too.

    With A = S K S + alpha I, where S holds the roots of the weights, an intercept that is not
    penalised leaves P = A^-1 - A^-1 s s^T A^-1 / (s^T A^-1 s) for s = S 1. The residuals of the
    judges J are P_JJ^-1 (P S y)_J where all of J are left out, and those of its diagonal where each
    is left out alone. With J last, the block of A^-1 is L22^-T L22^-1 for the last block L22 of the
    Cholesky factor.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        The kernel matrix, in the order of the rows.
    y : ndarray of shape (n, m)
    weights : ndarray of shape (n,) or None
    alpha : float
    fit_intercept : bool
    judges : ndarray of int

    Returns
    -------
    JudgedRidge
    """
    n, m = y.shape
    order = np.append(np.setdiff1d(np.arange(n), judges), judges)
    first = n - len(judges)
    roots = np.ones(n)
    if weights is not None:  # a row without a weight is predicted, not fitted
        roots = np.sqrt(np.maximum(weights, 1e-12 * weights.max()))[order]
    shifted = gram[np.ix_(order, order)].astype(np.float64, copy=False)
    shifted *= roots[:, None]
    shifted *= roots
    shifted.flat[:: n + 1] += alpha
    lower = covariance_factor(shifted)
    right = np.vstack([(roots[:, None] * y[order]).T, roots])
    half = solve_triangle(lower, right)
    solved = solve_triangle(lower, half, transposed=True)
    intercepts, total, constant = np.zeros(m), np.inf, np.zeros(n)
    if fit_intercept:
        constant, total = solved[-1], float(half[-1] @ half[-1])
        intercepts = half[:-1] @ half[-1] / total
    scaled = solved[:-1].T - np.outer(constant, intercepts)
    dual = np.empty_like(scaled)
    dual[order] = roots[:, None] * scaled
    if not len(judges) or n == 1:  # without its only row nothing is known
        return JudgedRidge(dual, intercepts, y[judges], y[judges])
    last = np.ascontiguousarray(lower[first:, first:])
    here, c, of_judges = scaled[first:], constant[first:], roots[first:, None]
    diagonal = np.square(inverse_of_lower(last)).sum(axis=0) - c**2 / total
    left_out = here / diagonal[:, None] / of_judges
    if not first:  # there are no other rows
        return JudgedRidge(dual, intercepts, left_out, left_out)
    x, w = last @ (last.T @ here), last @ (last.T @ c)
    if fit_intercept:
        x = x + np.outer(w, c @ x) / (total - c @ w)
    return JudgedRidge(dual, intercepts, left_out, x / of_judges)
