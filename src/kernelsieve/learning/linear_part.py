"""A linear part beside the kernel: where training rows are rare a kernel fades, a line does not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import RidgeCV

from kernelsieve._random import keyed_rows
from kernelsieve._state import Persistent, array
from kernelsieve.learning.errors import SetApart
from kernelsieve.learning.options import LearnOptions
from kernelsieve.learning.weights import with_weight
from kernelsieve.sources.base import ArraySource, Block, Source

ALPHAS = np.logspace(-3.0, 4.0, 15)  # of ridges on standardised columns
MOST_ROWS = 100_000  # that tell the coefficients

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LinearPart(Persistent):
    """A linear function of the columns; a missing value counts as the column's mean.

    Attributes
    ----------
    centers : ndarray of shape (d,)
    coefficients : ndarray of shape (d, m)
    intercepts : ndarray of shape (m,)
    """

    centers: Array
    coefficients: Array
    intercepts: Array

    _state_fields: ClassVar = {
        "centers": array("d"),
        "coefficients": array("d", "m"),
        "intercepts": array("m"),
    }

    @property
    def n_columns(self) -> int:
        """The number of columns."""
        return len(self.centers)

    @classmethod
    def fit(cls, rows: Block) -> Self:
        """The ridge on standardised columns whose leave-one-out error is lowest."""
        rows = with_weight(rows)
        X = np.asarray(rows.X, dtype=np.float64)
        known = ~np.isnan(X)
        counts = np.maximum(known.sum(axis=0), 1)
        centers = np.where(known, X, 0.0).sum(axis=0) / counts
        centred = np.where(known, X - centers, 0.0)
        spreads = np.sqrt(np.square(centred).sum(axis=0) / counts)
        spreads = np.where(spreads > 1e-12 * np.maximum(np.abs(centers), 1e-300), spreads, np.inf)
        scale = max(float(np.abs(rows.y).max()), 1e-300)  # or squares could overflow
        ridge = RidgeCV(ALPHAS).fit(centred / spreads, rows.y / scale, rows.weights)
        coefficients = scale * np.atleast_2d(ridge.coef_) / spreads
        return cls(centers, coefficients.T.astype(np.float64), scale * np.ravel(ridge.intercept_))

    @classmethod
    def of(cls, rows: Source, seed: int) -> Self:
        """Fitted to as many rows as tell its coefficients."""
        some = keyed_rows(rows.shape[0], MOST_ROWS, seed, "linear part")
        return cls.fit(rows.take(np.sort(some)))

    @property
    def slopes(self) -> Array:
        """The coefficients of a single target, of shape (d,)."""
        return self.coefficients[:, 0]

    @property
    def constant(self) -> float:
        """The value of a single target where all columns are 0."""
        return float(self.intercepts[0] - self.centers @ self.slopes)

    def __call__(self, X: Any) -> Array:
        """The values at rows, of shape (n, m)."""
        centred = np.asarray(X, dtype=np.float64) - self.centers
        return np.nan_to_num(centred, copy=False) @ self.coefficients + self.intercepts

    def beside(self, rows: Source) -> Source:
        """Rows in memory with what the linear part leaves of their columns of targets."""
        whole = rows.take(np.arange(rows.shape[0]))
        return ArraySource(whole.X, whole.y - self(whole.X), whole.weights)


@dataclass(frozen=True)
class LinearTrial:
    """Whether a linear part beside a kernel predicts other rows better.

    Attributes
    ----------
    pays : bool
    alpha : float
        The ridge of the kernel beside the linear part.
    ratio : float
        The mean squared error with it over that without it.
    """

    pays: bool
    alpha: float
    ratio: float


def try_linear(
    known: Block, apart: Block, kernel: Any, alpha: float, options: LearnOptions, free: bool
) -> LinearTrial:
    """Compare a kernel alone with the same kernel beside a linear part, on rows set apart.

    Parameters
    ----------
    known, apart : Block
        Dense, with columns of targets: rows that are fitted, and rows that judge.
    kernel : Kernel
    alpha : float
        The ridge of the kernel alone.
    options : LearnOptions
    free : bool
        Whether the kernel may have another ridge beside the linear part.
    """
    d, m = known.X.shape[1], known.y.shape[1]
    if np.count_nonzero(known.weights_or_ones) < options.linear_rows * (d + 1):
        return LinearTrial(False, alpha, 1.0)
    linear = LinearPart.fit(known)
    columns = [np.hstack([rows.y, rows.y - linear(rows.X)]) for rows in (known, apart)]
    weights = None
    if known.weights is not None:
        weights = np.concatenate([known.weights_or_ones, apart.weights_or_ones])
    both = Block(np.vstack([known.X, apart.X]), np.vstack(columns), weights)
    outside = np.arange(len(both.y)) >= len(known)
    judge = SetApart(both, outside, True)
    steps = options.alpha_step ** np.arange(-1.0, 4.0) if free else np.ones(1)
    residuals = judge.ridges(kernel)(alpha * steps)
    shares = judge.weights[outside] / judge.weights[outside].sum()
    alone = min(
        (np.mean(r[:, :m] ** 2, axis=1) for r in residuals), key=lambda sq: float(shares @ sq)
    )
    beside = [np.mean(r[:, m:] ** 2, axis=1) for r in residuals]
    best = int(np.argmin([float(shares @ squares) for squares in beside]))
    gain = alone - beside[best]
    mean, before = float(shares @ gain), float(shares @ alone)
    error = math.sqrt(float(shares**2 @ (gain - mean) ** 2))
    pays = mean > error and mean > options.linear_worth * before
    ratio = float(shares @ beside[best]) / before if before > 0.0 else 1.0
    return LinearTrial(bool(pays), float(alpha * steps[best]), ratio)
