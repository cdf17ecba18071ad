"""How well a product kernel explains a target, and the derivatives of that in all parameters.

With K the kernel on n rows, L the linear kernel of the same columns and D the inverse weights of
the rows, the target is a Gaussian process with covariance C = a K + b L + lambda D. Parameters are
the logarithms of the rates, of a, of b and of lambda. Everything here is float64; memory is a few
n x n matrices, whatever the number of columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native.product_gram import CATEGORICAL, add_slopes
from kernelsieve._parallel import map_row_blocks
from kernelsieve.kernels.gram import TILE_COLUMNS, TILE_ROWS
from kernelsieve.kernels.tiles import product_gram
from kernelsieve.linalg.cholesky import inverse_of

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Objective:
    """The rows, and the rule that judges a kernel on them.

    Attributes
    ----------
    parts : ndarray of shape (p, n, d)
        Each column in p monotone versions, whose weighted sum is the warped column. Categories
        have their codes in the first.
    codes : ndarray of shape (d,)
        Families, as ``family_codes`` names them.
    target : ndarray of shape (n, m)
        Centred, with mean square 1.
    noise : ndarray of shape (n,)
        D: 1 over the weights.
    linear : ndarray of shape (n, n)
        L, with mean diagonal 1; or of shape (0, 0) to leave it out.
    rule : "likelihood" or "leave-one-out"
    n_jobs : int or None
    """

    parts: Array
    codes: NDArray[np.int64]
    target: Array
    noise: Array
    linear: Array
    rule: str = "likelihood"
    n_jobs: int | None = None

    @property
    def n_columns(self) -> int:
        """The number of columns."""
        return int(self.parts.shape[2])

    @property
    def n_rates(self) -> int:
        """The number of rates: one for each part of each column."""
        return int(self.parts.shape[0] * self.parts.shape[2])

    def __call__(self, parameters: Array) -> tuple[float, Array]:
        """The objective, per row and output, and its gradient.

        Parameters
        ----------
        parameters : ndarray of shape (p d + 2,) or (p d + 3,)
            Logarithms of the rates, of a, of lambda, and of b where there is a linear part.
        """
        d = self.n_rates
        rates = np.exp(parameters[:d]).reshape(-1, self.n_columns)
        a, noise = np.exp(parameters[d : d + 2])
        scaled = self._scaled_parts(rates)
        points = scaled.sum(axis=0)
        gram = product_gram(points, points, self.codes, rates[0], np.float64, self.n_jobs)
        covariance = a * gram
        covariance.flat[:: len(gram) + 1] += noise * self.noise
        if self.linear.size:
            covariance += np.exp(parameters[d + 2]) * self.linear
        log_determinant, inverse = inverse_of(covariance)
        value, slope = self._judge(log_determinant, inverse)
        gradient = np.empty(len(parameters))
        gradient[d + 1] = noise * (np.diag(slope) @ self.noise)
        if self.linear.size:
            gradient[d + 2] = np.exp(parameters[d + 2]) * np.vdot(slope, self.linear)
        gram *= slope
        gram *= a
        gradient[d] = gram.sum()
        gradient[:d] = self._slopes(gram, rates, scaled, points).ravel()
        scale = 1.0 / self.target.size
        return float(value) * scale, gradient * scale

    def _scaled_parts(self, rates: Array) -> Array:
        scaled = self.parts * rates[:, None, :]
        categories = self.codes == CATEGORICAL
        scaled[:, :, categories] = 0.0
        scaled[0][:, categories] = self.parts[0][:, categories]
        return scaled

    def _judge(self, log_determinant: float, inverse: Array) -> tuple[float, Array]:
        """The objective, and its derivative in the covariance."""
        weights = inverse @ self.target
        outputs = self.target.shape[1]
        if self.rule == "likelihood":
            value = 0.5 * (np.vdot(self.target, weights) + outputs * log_determinant)
            slope = outputs * inverse
            slope -= weights @ weights.T
            slope *= 0.5
            return value, slope
        # Half the squared leave-one-out residuals weights / diag(inverse).
        diagonal = np.diag(inverse)[:, None]
        residuals = weights / diagonal
        moved = inverse @ (residuals / diagonal)
        slope = inverse @ ((residuals**2 / diagonal).sum(axis=1)[:, None] * inverse)
        slope -= 0.5 * (weights @ moved.T + moved @ weights.T)
        return 0.5 * float((residuals**2).sum()), slope

    def _slopes(self, weights: Array, rates: Array, scaled: Array, points: Array) -> Array:
        """sum_ij weights_ij dlog k_c / dlog r_pc, for all p and c and symmetric weights."""
        transposed = np.ascontiguousarray(points.T)
        parts = np.ascontiguousarray(scaled.transpose(0, 2, 1))

        def add(rows: slice) -> Array:
            sums = np.zeros(rates.shape)
            for start in range(0, rows.stop, TILE_COLUMNS):
                stop = min(start + TILE_COLUMNS, rows.stop)
                last = np.clip(np.arange(rows.start, rows.stop) - start, 0, stop - start)
                add_slopes(
                    points[rows],
                    np.ascontiguousarray(transposed[:, start:stop]),
                    self.codes,
                    rates[0],
                    np.ascontiguousarray(scaled[:, rows]),
                    np.ascontiguousarray(parts[:, :, start:stop]),
                    np.ascontiguousarray(weights[rows, start:stop]),
                    last,
                    1.0,
                    sums,
                )
            return sums

        # Half of the pairs, since a pair is as good as its mirror; the diagonal adds nothing.
        return 2.0 * np.sum(map_row_blocks(add, len(points), TILE_ROWS, self.n_jobs), axis=0)


def without_constants(inverse: Array) -> Array:
    """P = A^-1 - A^-1 1 1^T A^-1 / (1^T A^-1 1): what an intercept without a penalty leaves."""
    sums = inverse.sum(axis=1)
    return inverse - np.outer(sums, sums) / sums.sum()
