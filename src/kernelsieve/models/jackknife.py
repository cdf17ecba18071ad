"""Jackknife+ intervals of a ridge: from its predictions without each of its rows, in closed form.

Without row i a ridge predicts f(x) - h(x, i) r_i / (1 - h(i, i)), where r_i is its residual at the
row and h(x, i) = (z(x) - mean)^T (G + alpha I)^-1 (z_i - mean) + 1 / n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from kernelsieve._state import Persistent, array, number, wrong
from kernelsieve._validation import check_coverage
from kernelsieve.linalg.operators import dense
from kernelsieve.linalg.posterior import Posterior

Array = NDArray[np.float64]

BLOCK_NUMBERS = 2**22  # of predictions without each row that are held at a time
LARGEST_LEVERAGE = 1.0 - 1e-9


@dataclass(frozen=True)
class Jackknife(Persistent):
    """A ridge without each of its rows.

    Attributes
    ----------
    residuals : ndarray of shape (n,)
        Of each row, by the ridge without it.
    pulls : ndarray of shape (s, n)
        (G + alpha I)^-1 (z_i - mean) for each row i.
    feature_mean : ndarray of shape (s,)
    intercept : float
        1 / n for a ridge with an intercept, and 0 without.
    """

    residuals: Array
    pulls: Array
    feature_mean: Array
    intercept: float

    _state_fields: ClassVar = {
        "residuals": array("n"),
        "pulls": array("s", "n"),
        "feature_mean": array("s"),
        "intercept": number(0.0, 1.0),
    }

    def _complete(self) -> None:
        if len(self.residuals) == 0:
            wrong("residuals", "are of no rows")

    @property
    def n_components(self) -> int:
        """The number of features."""
        return len(self.feature_mean)

    @classmethod
    def of_ridge(cls, posterior: Posterior, Z: Any, residuals: Array) -> Self:
        """From the features of all rows of the fit, and the residuals there."""
        Z = dense(Z).astype(np.float64, copy=False)
        pulls = posterior.pulls(Z)
        intercept = posterior.fit_intercept / posterior.weight
        leverages = np.einsum("is,si->i", Z - posterior.feature_mean, pulls) + intercept
        left = residuals / (1.0 - np.minimum(leverages, LARGEST_LEVERAGE))
        return cls(left, pulls, posterior.feature_mean, float(intercept))

    def bounds(self, Z: Any, mean: Array, coverage: float) -> tuple[Array, Array]:
        """Intervals of new rows (Barber, Candes, Ramdas and Tibshirani, 2021).

        Parameters
        ----------
        Z : ndarray of shape (m, s)
            Their features.
        mean : ndarray of shape (m,)
            Their predictions by the ridge of all rows.
        coverage : float

        Returns
        -------
        low, high : ndarray of shape (m,)
            Infinite if there are too few rows for this coverage.
        """
        check_coverage(coverage)
        n = len(self.residuals)
        rank = int(np.ceil(coverage * (n + 1)))
        if rank > n:
            return np.full(len(mean), -np.inf), np.full(len(mean), np.inf)
        low, high = np.empty(len(mean)), np.empty(len(mean))
        widths = np.abs(self.residuals)
        step = max(1, BLOCK_NUMBERS // n)
        for start in range(0, len(mean), step):
            some = slice(start, start + step)
            centred = dense(Z[some]).astype(np.float64, copy=False) - self.feature_mean
            without = (centred @ self.pulls + self.intercept) * -self.residuals
            without += mean[some, None]
            high[some] = np.partition(without + widths, rank - 1, axis=1)[:, rank - 1]
            low[some] = np.partition(without - widths, n - rank, axis=1)[:, n - rank]
        return low, high
