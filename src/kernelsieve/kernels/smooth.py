"""Smoother relatives of the Laplacian kernel: products over columns of sums of exponentials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import comb

from kernelsieve._parallel import map_row_blocks
from kernelsieve._state import positive, whole
from kernelsieve._validation import check_points, check_positive
from kernelsieve.kernels.base import Kernel
from kernelsieve.kernels.gram import TILE_COLUMNS, TILE_ROWS, empty_gram

MOST_PIECES = 3


@dataclass(frozen=True)
class SmoothLaplacian(Kernel):
    """``k(x, y) = prod_i c(gamma |x_i - y_i|)``, with c a sum of exponentials that is flat at 0.

    The one-dimensional kernels are those of random intervals with a bump of B-splines on each
    (docs/binning.md): c(t) = exp(-t) for one piece, 2 exp(-t) - exp(-2t) for two, and
    (243 exp(-t) - 192 exp(-3t/2) + 15 exp(-3t)) / 66 for three. Functions of their spaces have
    ``pieces`` - 1 derivatives more than those of the Laplacian's.

    Parameters
    ----------
    gamma : float, default 1.0
        Inverse length scale.
    pieces : 1, 2 or 3, default 2
        Of the bump: 1 is a box, and the Laplacian kernel; 2 is a tent; 3 is a quadratic spline.

    Examples
    --------
    >>> SmoothLaplacian(gamma=1.0)([[0.0], [1.0]]).round(4)
    array([[1.    , 0.6004],
           [0.6004, 1.    ]])
    """

    gamma: float = 1.0
    pieces: int = 2

    bounded: ClassVar[bool] = True
    _state_fields: ClassVar = {"gamma": positive, "pieces": whole(1, MOST_PIECES)}

    def __post_init__(self) -> None:
        check_positive(self.gamma, "gamma", "it divides distances by a length scale")
        if self.pieces not in range(1, MOST_PIECES + 1):
            raise ValueError(
                f"pieces={self.pieces!r} must be 1, 2 or 3: they are the parts of the bump"
            )

    def of_distance(self, t: NDArray[Any]) -> NDArray[Any]:
        """``c(t)`` for ``t = gamma |x_i - y_i|``."""
        total = np.zeros_like(t)
        for rate, weight in zip(*exponentials(self.pieces), strict=True):
            total += t.dtype.type(weight) * np.exp(-t.dtype.type(rate) * t)
        return total

    def _gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]:
        gram = empty_gram(X, Y, np.result_type(X.dtype, Y.dtype))

        def fill(rows: slice) -> None:
            left = _dense(X[rows]).astype(np.float64)
            for start in range(0, Y.shape[0], TILE_COLUMNS):
                right = _dense(Y[start : start + TILE_COLUMNS])
                tile = np.ones((len(left), len(right)))
                for i in range(left.shape[1]):
                    with np.errstate(over="ignore"):
                        distances = self.gamma * np.abs(left[:, i, None] - right[:, i])
                    tile *= self.of_distance(distances)
                gram[rows, start : start + TILE_COLUMNS] = tile

        map_row_blocks(fill, X.shape[0], TILE_ROWS, n_jobs)
        if symmetric:
            np.fill_diagonal(gram, 1.0)
        return gram

    def diag(self, X: Any) -> NDArray[Any]:
        X = check_points(X)
        return np.ones(X.shape[0], dtype=X.dtype)


def exponentials(pieces: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The rates and the weights of c(t) = sum_j weight_j exp(-rate_j t).

    The autocorrelation of a B-spline of n pieces on an interval of width 1 is proportional to
    sum_j (-1)^j binom(2n, j) max(0, b_j - u)^(2n - 1) for u >= 0, with b_j = 1 - j / n. Its mean
    at u = t / w over widths w of density w^(2n - 1) exp(-w) / (2n - 1)! has b_j^(2n - 1)
    exp(-t / b_j) in place of the powers.
    """
    j = np.arange(pieces)
    ends = 1.0 - j / pieces
    weights = (-1.0) ** j * comb(2 * pieces, j) * ends ** (2 * pieces - 1)
    return 1.0 / ends, weights / weights.sum()


def bump(u: NDArray[Any], pieces: int) -> NDArray[Any]:
    """The B-spline of so many pieces on [-1/2, 1/2], with integral of the square 1."""
    v = np.abs(u)
    if pieces == 1:
        return np.ones_like(v)
    if pieces == 2:
        return np.sqrt(3.0) * np.maximum(0.0, 1.0 - 2.0 * v)
    inner, outer = 0.75 - 9.0 * v * v, 0.5 * np.square(np.maximum(0.0, 1.5 - 3.0 * v))
    return np.where(v < 1.0 / 6.0, inner, outer) * np.sqrt(60.0 / 11.0)


def _dense(X: Any) -> NDArray[Any]:
    return X.toarray() if sp.issparse(X) else X
