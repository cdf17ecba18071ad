"""What a missing value of a column is compared by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelsieve._parallel import map_row_blocks
from kernelsieve._state import Persistent, list_of, number
from kernelsieve.kernels.gram import TILE_ROWS
from kernelsieve.kernels.tiles import product_gram

MOST_VALUES = 64  # that missing values of a numeric column are compared by
MOST_LEVELS = 1024  # the same for a categorical column


@dataclass(frozen=True)
class Reference(Persistent):
    """Some values of a column, and the share of the rows that each stands for."""

    values: tuple[float, ...]
    weights: tuple[float, ...]

    _state_fields: ClassVar = {
        "values": list_of(number(), tuple),
        "weights": list_of(number(0.0, 1.0), tuple),
    }

    def __post_init__(self) -> None:
        total = sum(self.weights)
        if len(self.values) != len(self.weights) or not (total <= 1.0 + 1e-6):
            raise ValueError(
                f"{len(self.values)} values with {len(self.weights)} weights that sum to {total}: "
                "each value needs a weight, and they sum to 1"
            )

    @classmethod
    def of(cls, column: NDArray[Any], most: int) -> Reference:
        """The distinct values of a column if they are at most ``most``; else quantiles."""
        known = np.sort(column[~np.isnan(column)].astype(np.float64))
        values, counts = np.unique(known, return_counts=True)
        if len(values) > most:
            values = known[((np.arange(most) + 0.5) / most * len(known)).astype(np.int64)]
            values, counts = np.unique(values, return_counts=True)
        weights = counts / max(1, counts.sum())
        return cls(tuple(values.tolist()), tuple(weights.tolist()))


def multiply_missing(
    gram: NDArray[Any],
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    code: NDArray[np.int64],
    rate: NDArray[np.float64],
    points: NDArray[np.float64],
    weights: NDArray[np.float64],
    n_jobs: int | None,
) -> None:
    """Multiply the kernel of a column with missing values into the kernels of the others.

    Parameters
    ----------
    gram : ndarray of shape (n, m)
        Changed in place.
    left, right : ndarray of shape (n,) and (m,)
        Scaled coordinates of the column.
    code, rate : ndarray of shape (1,)
        Its family and its rate.
    points, weights : ndarray of shape (k,)
        What missing values are compared by.
    n_jobs : int or None
    """
    if not len(points):
        return  # a column without any values: nothing can be compared

    def kernel(u: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[Any]:
        pair = np.nan_to_num(u)[:, None], np.nan_to_num(v)[:, None]
        return product_gram(*pair, code, rate, gram.dtype, 1)

    absent, to_left = np.isnan(right), kernel(right, points) @ weights

    def multiply(rows: slice) -> None:
        factor, missing = kernel(left[rows], right), np.isnan(left[rows])
        factor[:, absent] = (kernel(left[rows], points) @ weights)[:, None]
        factor[missing] = np.where(absent, 1.0, to_left)
        gram[rows] *= factor

    map_row_blocks(multiply, len(left), TILE_ROWS, n_jobs)
