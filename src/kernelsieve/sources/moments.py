"""Sums over rows in blocks, threaded: the same for any threads, and for any chunks to rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._native.moments import (
    add_column_squares,
    add_csr_column_squares,
    csr_squared_norms,
    squared_row_norms,
)
from kernelsieve._parallel import map_row_blocks
from kernelsieve.sources.base import BLOCK_ROWS, ArraySource, Block, Source, as_source
from kernelsieve.sources.targets import TargetSummary

SPARSE_BLOCK_ROWS = 16 * BLOCK_ROWS  # each makes a sum for every column, of which there are many
TARGET_ROWS = 2**20


@dataclass
class Moments:
    """Summaries of rows that add up, in any order and any blocks.

    Attributes
    ----------
    count : int
        Of the rows.
    sums, low, high : ndarray of shape (d,), or None for sparse rows
    squares : ndarray of shape (d,)
        Of the columns about their means; of sparse rows about 0.
    n_entries : int
        Those that are stored.
    total, total_squares : float
        Of all entries together, and their squares about their mean.
    """

    count: int
    sums: Any
    squares: NDArray[np.float64]
    low: Any
    high: Any
    n_entries: int
    total: float
    total_squares: float

    @classmethod
    def of_rows(cls, X: Any) -> Moments:
        """Those of a block of rows."""
        n, d = X.shape
        squares = np.zeros(d)
        if sp.issparse(X):
            add_csr_column_squares(X.data, X.indices, X.indptr, squares)
            total = float(X.data.sum(dtype=np.float64))
            mean = total / (n * d)
            apart = float(np.sum(np.square(X.data - mean, dtype=np.float64)))
            apart += (n * d - X.nnz) * mean**2
            return cls(n, None, squares, None, None, X.nnz, total, apart)
        sums = X.sum(axis=0, dtype=np.float64)
        add_column_squares(X, sums / n, squares)
        return cls(n, sums, squares, X.min(axis=0), X.max(axis=0), n * d, 0.0, 0.0)

    def __iadd__(self, other: Moments) -> Moments:
        """Sums about two means make one about their common mean (Chan, Golub, LeVeque)."""
        share = self.count * other.count / (self.count + other.count)
        if self.sums is None:
            d = len(self.squares)
            apart = self.total / (self.count * d) - other.total / (other.count * d)
            self.total_squares += other.total_squares + share * d * apart**2
            self.total += other.total
            self.squares += other.squares
        else:
            between = self.sums / self.count - other.sums / other.count
            self.squares += other.squares + share * between**2
            self.sums += other.sums
            np.minimum(self.low, other.low, out=self.low)
            np.maximum(self.high, other.high, out=self.high)
        self.count += other.count
        self.n_entries += other.n_entries
        return self

    @property
    def means(self) -> NDArray[np.float64]:
        """Of the columns of dense rows; exactly the value of a constant one."""
        return np.where(self.low == self.high, self.low, self.sums / self.count)

    def mean_squares(self, center: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Mean squares of the columns about a centre."""
        if self.sums is None:
            return self.squares / self.count
        origin = np.zeros_like(self.sums) if center is None else center
        # A constant column has no rounding of a sum, however the rows come.
        inside = np.where(self.low == self.high, 0.0, self.squares / self.count)
        return inside + np.square(self.means - origin)

    @property
    def variance(self) -> float:
        """Of all entries together."""
        size = self.count * len(self.squares)
        if self.sums is None:
            mean, variance = self.total / size, self.total_squares / size
        else:
            mean = float(self.means.mean())
            variance = float(self.mean_squares(np.full(len(self.squares), mean)).mean())
        # Of a constant the rounding of its mean is left, which is no variance.
        return variance if variance > (8.0 * np.finfo(np.float64).eps * mean) ** 2 else 0.0


@dataclass
class _Summary:
    """What the first pass over a stream adds up: rows and targets at once."""

    moments: Moments
    targets: TargetSummary | None

    @classmethod
    def of_block(cls, block: Block) -> _Summary:
        targets = None if block.y is None else _target_block(block)
        return cls(Moments.of_rows(block.X), targets)

    def __iadd__(self, other: _Summary) -> _Summary:
        self.moments += other.moments
        if self.targets is not None and other.targets is not None:
            self.targets += other.targets
        return self


def moments(X: Any) -> Moments:
    """The moments of the rows of a source (kept with it) or of an array."""
    source = as_source(X)
    if "moments" not in source.rows_cache:
        _summarise(source, with_targets=not isinstance(source, ArraySource))
    return source.rows_cache["moments"]


def target_summary(source: Source) -> TargetSummary | None:
    """The summary of its targets, kept with it; None where it has none."""
    if source.target_shape is None:
        return None
    if "targets" not in source.target_cache:
        source.target_cache["targets"] = source.reduce(_target_block, TARGET_ROWS)
    return source.target_cache["targets"]


def _target_block(block: Block) -> TargetSummary:
    try:
        return TargetSummary.of_rows(block.y)
    except ValueError as error:
        raise ValueError(f"{error} (among the {block.name})") from error


def _summarise(source: Source, with_targets: bool) -> None:
    size = SPARSE_BLOCK_ROWS if source.sparse else BLOCK_ROWS
    if not with_targets:
        source.rows_cache["moments"] = source.reduce(_moments_of_block, size)
        return
    summary = source.reduce(_Summary.of_block, size)
    source.rows_cache["moments"] = summary.moments
    if summary.targets is not None:
        source.target_cache["targets"] = summary.targets


def _moments_of_block(block: Block) -> Moments:
    return Moments.of_rows(block.X)


def column_means(X: Any) -> NDArray[np.float64]:
    """Means of the columns of dense rows, in float64."""
    if isinstance(X, Source):
        return moments(X).means
    sums = map_row_blocks(lambda rows: X[rows].sum(axis=0, dtype=np.float64), len(X), BLOCK_ROWS)
    return np.sum(sums, axis=0) / len(X)


def squared_norms(X: Any, center: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """|x - center|^2 of every row, in float64."""
    norms = np.empty(X.shape[0])
    origin = _origin(X, center)

    def block(rows: slice) -> None:
        if sp.issparse(X):
            csr_squared_norms(X.data, _pointers(X, rows), norms[rows])
        else:
            squared_row_norms(X[rows], origin, norms[rows])

    map_row_blocks(block, X.shape[0], BLOCK_ROWS)
    return norms


def second_moments(X: NDArray[Any], center: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Mean of (x - center)(x - center)^T, of shape (d, d)."""
    origin = _origin(X, center)

    def block(rows: slice) -> NDArray[np.float64]:
        part = (X[rows] - origin).astype(np.float64, copy=False)
        return part.T @ part

    return np.sum(map_row_blocks(block, len(X), BLOCK_ROWS), axis=0) / len(X)


def weighted_counts(
    places: NDArray[Any], weights: NDArray[Any], length: int
) -> NDArray[np.float64]:
    """Sum of the weights that fall on each place."""
    return np.bincount(places, weights=weights, minlength=length).astype(np.float64, copy=False)


def _pointers(X: Any, rows: slice) -> NDArray[Any]:
    """Where the entries of these rows begin and end: a slice of CSR rows would be copied."""
    return X.indptr[rows.start : rows.stop + 1]


def _origin(X: Any, center: NDArray[np.float64] | None) -> NDArray[Any]:
    """The point that is subtracted, in X's float type."""
    return np.zeros(X.shape[1], dtype=X.dtype) if center is None else center.astype(X.dtype)
