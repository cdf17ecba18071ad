"""Tiles of kernels of main effects and interactions, from the centred kernels of single columns."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native.subsets import add_subsets, centre, look_up
from kernelsieve.kernels.product import Product
from kernelsieve.kernels.tiles import Tiles

if TYPE_CHECKING:
    from kernelsieve.kernels.anova import Anova

Array = NDArray[np.float64]

FACTOR_ROWS = 64
FACTOR_COLUMNS = 512  # 64 x 512 kernels of every column are held at a time
FEW_VALUES = 64  # of a column: its kernel is looked up
TILE_ENTRIES = 2**18  # of the factors of all columns at once: two megabytes
CONSTANT = 1e-14  # mean square of a centred kernel below which its column says nothing


@dataclass(frozen=True)
class CentredFactor:
    """A one-dimensional kernel without its mean over a distribution.

    Attributes
    ----------
    kernel : Product
        Of one column.
    values : ndarray of shape (m, 1)
        The distribution ...
    weights : ndarray of shape (m,)
        ... and what each value counts in ``means``: its share over sqrt(M).
    scale : float
        1 / s; 0 for a column that is constant.
    """

    kernel: Product
    values: Array
    weights: Array
    scale: float

    @classmethod
    def of(cls, kernel: Product, values: Array, weights: Array) -> CentredFactor:
        """Centre a kernel over values with weights."""
        line = values[:, None]
        shares = weights / weights.sum()
        means = kernel.between(line, line, 1) @ shares
        total = float(means @ shares)
        left = 1.0 - float(means**2 @ shares) / total
        return cls(kernel, line, shares / math.sqrt(total), 1.0 / left if left > CONSTANT else 0.0)

    def means(self, column: NDArray[Any]) -> Array:
        """m(u) / sqrt(M) at values of shape (n, 1)."""
        return self.kernel.between(column.astype(np.float64), self.values, 1) @ self.weights


@dataclass(frozen=True)
class CentredTiles:
    """Tiles of the centred kernel of one column.

    Attributes
    ----------
    tiles : Tiles
        Of the kernel that is not centred.
    left, right : ndarray of shape (n,) and (m,)
        Its means.
    scale : float
    """

    tiles: Tiles
    left: Array
    right: Array
    scale: float

    @classmethod
    def of(cls, factor: CentredFactor, u: NDArray[Any], v: NDArray[Any]) -> CentredTiles:
        """The tiles of values u and v of shape (n, 1) and (m, 1), which may be the same."""
        left = factor.means(u)
        right = left if v is u else factor.means(v)
        return cls(factor.kernel.tiles(u, v, np.float64), left, right, factor.scale)

    def __call__(self, rows: slice, columns: slice, out: Array) -> None:
        self.tiles(rows, columns, out)
        centre(self.left[rows], self.right[columns], self.scale, out)

    def take(self, columns: NDArray[np.int64]) -> CentredTiles:
        return replace(self, tiles=self.tiles.take(columns), right=self.right[columns])


@dataclass(frozen=True)
class LookedUpTiles:
    """The same for a column of few values: each pair of values is computed once.

    Attributes
    ----------
    table : ndarray of shape (k, l)
        The centred kernel of the values.
    left, right : ndarray of int, of shape (n,) and (m,)
        The value of each row.
    """

    table: Array
    left: NDArray[np.int64]
    right: NDArray[np.int64]

    def __call__(self, rows: slice, columns: slice, out: Array) -> None:
        look_up(self.table, self.left[rows], self.right[columns], out)

    def take(self, columns: NDArray[np.int64]) -> LookedUpTiles:
        return replace(self, right=np.ascontiguousarray(self.right[columns]))


def column_tiles(
    factor: CentredFactor, u: NDArray[Any], v: NDArray[Any]
) -> CentredTiles | LookedUpTiles:
    """The tiles of one column of shape (n, 1) beside another of shape (m, 1)."""
    some, left = np.unique(u, return_inverse=True)
    others, right = (some, left) if v is u else np.unique(v, return_inverse=True)
    if max(len(some), len(others)) > FEW_VALUES:
        return CentredTiles.of(factor, u, v)
    table = np.empty((len(some), len(others)))
    values = CentredTiles.of(factor, some[:, None], others[:, None])
    values(slice(0, len(some)), slice(0, len(others)), table)
    return LookedUpTiles(table, left.ravel(), right.ravel())


@dataclass(frozen=True)
class AnovaTiles:
    """Tiles of the kernel, from those of its columns; in float64, for what is centred cancels.

    Attributes
    ----------
    kernel : Anova
    columns : list of CentredTiles or LookedUpTiles
        Of the one-dimensional kernels in use.
    """

    kernel: Anova
    columns: list[CentredTiles | LookedUpTiles]

    @classmethod
    def of(cls, kernel: Anova, X: Any, Y: Any) -> AnovaTiles:
        """The tiles of rows X and Y, which may be the same."""
        tiles = []
        for i, factor in kernel.factors.items():
            u = X[:, [i]]
            tiles.append(column_tiles(factor, u, u if Y is X else Y[:, [i]]))
        return cls(kernel, tiles)

    def factors(self, rows: slice, columns: slice) -> Array:
        """The centred kernels of the columns in use: shape (d_used, rows, columns)."""
        shape = rows.stop - rows.start, columns.stop - columns.start
        out = np.empty((len(self.columns), *shape))
        for tile, column in zip(out, self.columns, strict=True):
            column(rows, columns, tile)
        return out

    def parts(self, rows: slice, columns: slice) -> Iterable[tuple[slice, slice]]:
        """Tiles whose factors stay in the cache."""
        height = max(4, TILE_ENTRIES // (FACTOR_COLUMNS * max(1, len(self.columns))))
        for top in range(rows.start, rows.stop, height):
            for start in range(columns.start, columns.stop, FACTOR_COLUMNS):
                stop = min(start + FACTOR_COLUMNS, columns.stop)
                yield slice(top, min(top + height, rows.stop)), slice(start, stop)

    def __call__(self, rows: slice, columns: slice, out: NDArray[Any]) -> None:
        tree = self.kernel.tree
        for some, others in self.parts(rows, columns):
            tile = np.zeros((some.stop - some.start, others.stop - others.start))
            factors = self.factors(some, others)
            add_subsets(factors, tree.depths, tree.columns, self.kernel._weights, tile)
            own = slice(some.start - rows.start, some.stop - rows.start)
            out[own, others.start - columns.start : others.stop - columns.start] = tile

    def take(self, columns: NDArray[np.int64]) -> AnovaTiles:
        return AnovaTiles(self.kernel, [column.take(columns) for column in self.columns])
