"""Float32 products of features: what their rounding does to a ridge, and the step that mends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._parallel import row_blocks
from kernelsieve.linalg.normal_equations import RidgeSolution
from kernelsieve.linalg.operators import dense

Array = NDArray[np.float64]

CACHED_ROWS = 256  # that are float64 at once


def residual_sums(Z: Any, y: Array, weights: Array | None, solution: RidgeSolution) -> Array:
    """Z^T W r for the residuals r of some rows, with 1^T W r as one more line.

    Parameters
    ----------
    Z : {ndarray, CSR} of shape (n, s)
    y : ndarray of shape (n, n_outputs)
    weights : ndarray of shape (n,) or None
    solution : RidgeSolution

    Returns
    -------
    ndarray of shape (s + 1, n_outputs)
    """
    total = np.zeros((Z.shape[1] + 1, y.shape[1]))
    for rows in row_blocks(len(y), len(y) if sp.issparse(Z) else CACHED_ROWS):
        some = Z if sp.issparse(Z) else Z[rows].astype(np.float64, copy=False)
        residuals = y[rows] - some @ solution.coefficients - solution.intercepts
        if weights is not None:
            residuals *= weights[rows, None]
        total += np.vstack([some.T @ residuals, residuals.sum(axis=0)])
    return total


def corrected(solution: RidgeSolution, sums: Array, alpha: float) -> RidgeSolution:
    """A step of iterative refinement: the solution less most of the rounding in its matrix.

    The gradient of the ridge at the solution, which is known exactly from ``residual_sums``, is
    solved for with the inexact factor. So only the square of the factor's relative error is left.
    """
    posterior, gradient = solution.posterior, sums[:-1] - alpha * solution.coefficients
    intercepts = solution.intercepts
    if posterior.fit_intercept:
        gradient = gradient - np.outer(posterior.feature_mean, sums[-1])
        intercepts = intercepts + sums[-1] / posterior.weight
    step = posterior.solve(gradient)
    return RidgeSolution(
        solution.coefficients + step, intercepts - posterior.feature_mean @ step, posterior
    )


@dataclass(frozen=True)
class Float32Rounding:
    """The effect of float32 products of features on the predictions of a ridge.

    The entry i, j of Z^T W Z over b rows has a rounding error of about u sqrt(b / 2) times the root
    of its summed squared terms. Over n / b blocks, which are added in float64, that makes
    e_ij = u sqrt(n b / 2) c_i c_j, where c_i^2 is the mean square of feature i. To first order,
    such independent errors move the prediction at z by the random number z^T A^-1 E w, where
    A = Z^T W Z + alpha I, of deviation u sqrt(n b / 2) ``|c A^-1 z| |c w|`` (entry by entry).

    Parameters
    ----------
    Z : {ndarray, CSR} of shape (m, s)
        Features of some rows.
    weights : ndarray of shape (m,) or None
    n_rows : int
        Number of all rows.
    block_rows : int
        Number of rows in a block.
    """

    Z: Any
    weights: Array | None
    n_rows: int
    block_rows: int

    @property
    def scales(self) -> Array:
        """c, times the root of u sqrt(n b / 2), of shape (s,): their products are e_ij."""
        squares = np.square(dense(self.Z), dtype=np.float64)
        means = np.mean(
            squares if self.weights is None else squares * self.weights[:, None], axis=0
        )
        terms = min(self.block_rows, self.n_rows) * self.n_rows / 2.0
        return np.sqrt(float(np.finfo(np.float32).eps) / 2 * np.sqrt(terms) * means)

    def bound(self, alpha: float) -> float:
        """A bound on the root mean square error, in deviations of the target, before solving.

        For features of equal size: ``|Z A^-1|`` and ``|w| / |y|`` are at most 1 / (2 sqrt(alpha)).
        """
        scales = self.scales
        return float(scales @ scales) / float(np.sqrt(len(scales))) / (4.0 * alpha)

    def error(self, solution: RidgeSolution) -> Array:
        """The error of the predictions of a ridge: three deviations, at the worst of the rows.

        Returns
        -------
        ndarray of shape (n_outputs,)
        """
        scales = self.scales[:, None]
        pulls = np.linalg.norm(scales * solution.posterior.pulls(self.Z), axis=0)
        return 3.0 * pulls.max(initial=0.0) * np.linalg.norm(scales * solution.coefficients, axis=0)
