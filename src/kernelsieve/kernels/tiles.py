"""Tiles of kernel matrices, from the differences of scaled points while they are in the cache."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native.product_gram import (
    CATEGORICAL,
    LAPLACIAN,
    multiply_exponentials,
    multiply_materns,
)
from kernelsieve._parallel import map_row_blocks
from kernelsieve.kernels.gram import TILE_COLUMNS, TILE_ROWS, empty_gram

if TYPE_CHECKING:
    from kernelsieve.kernels.base import Kernel

# Matern's polynomials are at most the inverse of their exponentials, so that neither overflows
# float32 above this exponent. With so many columns at a time what lies below is less than 1e-16.
POLYNOMIAL_COLUMNS = 32
LOWEST_EXPONENT = -87.0
MIDDLE_ROWS = 101


class Tiles(Protocol):
    """Tiles of the kernel matrix of X and Y."""

    def __call__(self, rows: slice, columns: slice, out: NDArray[Any]) -> None:
        """Write k(X[rows], Y[columns]) into a contiguous array."""

    def take(self, columns: NDArray[np.int64]) -> Tiles:
        """The tiles of X and some rows of Y; X is shared."""


@dataclass(frozen=True)
class GramTiles:
    """Tiles of any kernel, each from the Gram matrix of its rows."""

    kernel: Kernel
    X: Any
    Y: Any

    def __call__(self, rows: slice, columns: slice, out: NDArray[Any]) -> None:
        out[...] = self.kernel.between(self.X[rows], self.Y[columns], 1)

    def take(self, columns: NDArray[np.int64]) -> GramTiles:
        return GramTiles(self.kernel, self.X, self.Y[columns])


@dataclass(frozen=True)
class _Chunk:
    """Scaled points of some columns, whose kernels are multiplied together in one loop.

    Attributes
    ----------
    points : ndarray of shape (n, k)
    lines : ndarray of shape (k, m)
    codes, rates : ndarray of shape (k,)
    polynomial : bool
        Whether the families have a polynomial beside the exponential.
    """

    points: NDArray[Any]
    lines: NDArray[Any]
    codes: NDArray[np.int64]
    rates: NDArray[Any]
    polynomial: bool


class PointTiles:
    """Tiles of a product of one-dimensional kernels.

    Differences are taken before they are squared or added up, so nothing cancels in float32.

    Parameters
    ----------
    left : ndarray of shape (n, d)
        Scaled points: a column's kernel is a function of ``|u - v|``.
    right : ndarray of shape (m, d)
    codes : ndarray of shape (d,)
        Of the families.
    rates : ndarray of shape (d,)
        Those of categorical columns are used; others are in the points already.
    dtype : float32 or float64
        Of the arithmetic and of the values.
    function : callable, optional
        Of minus the squared distance, in place of exp, with ``out``.
    """

    def __init__(
        self,
        left: NDArray[np.float64],
        right: NDArray[np.float64],
        codes: NDArray[np.int64],
        rates: NDArray[np.float64],
        dtype: Any,
        function: Callable[..., Any] = np.exp,
    ) -> None:
        self.shape, self.dtype, self.function = (len(left), len(right)), np.dtype(dtype), function
        middle = np.where(codes == CATEGORICAL, 0.0, _middle(right))
        self.chunks: list[_Chunk] = []
        for columns, polynomial in _chunks(codes):
            own = left[:, columns] - middle[columns]
            other = own if right is left else right[:, columns] - middle[columns]
            points = np.ascontiguousarray(own, dtype=dtype)
            lines = np.ascontiguousarray(other.T, dtype=dtype)
            some = codes[columns], rates[columns].astype(dtype)
            self.chunks.append(_Chunk(points, lines, *some, polynomial))

    def __call__(self, rows: slice, columns: slice, out: NDArray[Any]) -> None:
        """Write the kernel of some rows and columns into a contiguous array."""
        if not self.chunks:
            out[...] = 1
        for place, chunk in enumerate(self.chunks):
            part = out if place == 0 else np.empty_like(out)
            part[...] = 0
            one = self.dtype.type(1)
            # Compiled loops are vectors where rows are contiguous only.
            pair = chunk.points[rows], np.ascontiguousarray(chunk.lines[:, columns]), chunk.codes
            if chunk.polynomial:
                factor = np.ones_like(part)
                multiply_materns(*pair, one, self.dtype.type(LOWEST_EXPONENT), part, factor)
            else:
                multiply_exponentials(*pair, chunk.rates, one, part)
            self.function(part, out=part)
            if chunk.polynomial:
                part *= factor
            if place:
                out *= part

    def take(self, columns: NDArray[np.int64]) -> PointTiles:
        """The tiles of the same left points and some of the right ones."""
        some = copy.copy(self)
        some.shape = self.shape[0], len(columns)
        some.chunks = [
            replace(chunk, lines=np.ascontiguousarray(chunk.lines[:, columns]))
            for chunk in self.chunks
        ]
        return some


def scaled_tiles(
    X: NDArray[Any],
    Y: NDArray[Any],
    scale: float,
    code: int,
    dtype: Any,
    function: Callable[..., Any] = np.exp,
) -> PointTiles:
    """Tiles of a kernel of one family with one scale for all columns."""
    left = X.astype(np.float64) * scale
    right = left if Y is X else Y.astype(np.float64) * scale
    codes = np.full(X.shape[1], code, dtype=np.int64)
    return PointTiles(left, right, codes, np.ones(len(codes)), dtype, function)


def product_gram(
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    codes: NDArray[np.int64],
    rates: NDArray[np.float64],
    dtype: Any,
    n_jobs: int | None = None,
) -> NDArray[Any]:
    """The exact kernel of all pairs of scaled points; see `PointTiles`.

    Returns
    -------
    ndarray of shape (n, m)
    """
    tiles = PointTiles(left, right, codes, rates, dtype)
    gram = empty_gram(left, right, dtype)

    def fill(rows: slice) -> None:
        for start in range(0, gram.shape[1], TILE_COLUMNS):
            columns = slice(start, min(start + TILE_COLUMNS, gram.shape[1]))
            part = np.empty((rows.stop - rows.start, columns.stop - start), dtype=gram.dtype)
            tiles(rows, columns, part)
            gram[rows, columns] = part

    map_row_blocks(fill, len(left), TILE_ROWS, n_jobs)
    return gram


def _middle(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """A point amid most others: differences do not see the origin, rounding does."""
    some = points[:: max(1, len(points) // MIDDLE_ROWS)]
    return np.median(some, axis=0) if len(some) else np.zeros(points.shape[1])


def _chunks(codes: NDArray[np.int64]) -> Iterable[tuple[NDArray[np.int64], bool]]:
    """Columns to take together, sorted by family, and whether they have polynomials."""
    order = np.argsort(codes, kind="stable")
    plain = (codes[order] <= LAPLACIAN) | (codes[order] == CATEGORICAL)
    if plain.any():
        yield order[plain], False
    others = order[~plain]
    for start in range(0, len(others), POLYNOMIAL_COLUMNS):
        yield others[start : start + POLYNOMIAL_COLUMNS], True
