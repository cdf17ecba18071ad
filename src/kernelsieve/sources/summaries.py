"""Summaries of rows and targets: sums over all blocks.

They are the same for any number of threads, and for any chunks up to rounding.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._parallel import map_row_blocks, row_blocks
from kernelsieve.sources.base import BLOCK_ROWS, ArraySource, Block, Source, added
from kernelsieve.sources.given import as_source

SPARSE_BLOCK_ROWS = 16 * BLOCK_ROWS  # each makes a sum for every column, of which there are many
TARGET_ROWS = 2**20
CACHED_ENTRIES = 2**18  # of dense rows that are summed at once
MAX_CLASSES = 64


@dataclass
class Moments:
    """Summaries of rows that add up, in any order and any blocks.

    Attributes
    ----------
    count : int
        Number of rows.
    sums, low, high : ndarray of shape (d,), or None for sparse rows
        Sum, minimum and maximum of every column.
    squares : ndarray of shape (d,)
        Sums of squares of the columns, about their means; about 0 for sparse rows.
    n_entries : int
        Number of stored entries.
    total, total_squares : float
        Sum of all entries, and sum of their squares about their mean.
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
        """Summarise a block of rows."""
        n, d = X.shape
        if sp.issparse(X):
            squares = weighted_counts(X.indices, _squares(X.data), d)
            total = float(X.data.sum(dtype=np.float64))
            mean = total / (n * d)
            apart = float(np.sum(np.square(X.data - mean, dtype=np.float64)))
            apart += (n * d - X.nnz) * mean**2
            return cls(n, None, squares, None, None, X.nnz, total, apart)
        blocks = row_blocks(n, max(1, CACHED_ENTRIES // max(1, d)))
        summed: Moments = added(cls._of_few_rows(X[rows]) for rows in blocks)
        return summed

    @classmethod
    def _of_few_rows(cls, X: NDArray[Any]) -> Moments:
        n, d = X.shape
        around = X.astype(np.float64)
        sums = around.sum(axis=0)
        around -= sums / n
        squares = np.einsum("ij,ij->j", around, around)
        return cls(n, sums, squares, X.min(axis=0), X.max(axis=0), n * d, 0.0, 0.0)

    def __iadd__(self, other: Moments) -> Moments:
        """Combine sums about two means into one about their common mean (Chan et al., 1983)."""
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
        """Means of the columns of dense rows; exact for constant columns."""
        return np.where(self.low == self.high, self.low, self.sums / self.count)

    def mean_squares(self, center: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Mean squares of the columns about a centre, of shape (d,)."""
        if self.sums is None:
            return self.squares / self.count
        origin = np.zeros_like(self.sums) if center is None else center
        # A constant column has no rounding of a sum, however the rows come.
        inside = np.where(self.low == self.high, 0.0, self.squares / self.count)
        return inside + np.square(self.means - origin)

    @property
    def variance(self) -> float:
        """Variance of all entries together."""
        size = self.count * len(self.squares)
        if self.sums is None:
            mean, variance = self.total / size, self.total_squares / size
        else:
            mean = float(self.means.mean())
            variance = float(self.mean_squares(np.full(len(self.squares), mean)).mean())
        # For constant data only the rounding error of the mean is left, which is no variance.
        return variance if variance > (8.0 * np.finfo(np.float64).eps * mean) ** 2 else 0.0


@dataclass
class TargetSummary:
    """What is needed of all targets to turn some of them into standardised columns.

    Floats are regression targets. A single column of anything else (integers, booleans, strings)
    holds class labels, unless there are more than 64 different integers.

    Attributes
    ----------
    count : int
        Number of rows.
    labels : Counter or None
        Frequency of each label; None for regression targets.
    sums, squares, low, high : ndarray of shape (n_outputs,) or None
        Sum, sum of squares about the mean, minimum and maximum of every column; None for labels
        that are not numbers.
    """

    count: int
    labels: Counter[Any] | None
    sums: Any
    squares: Any
    low: Any
    high: Any

    @classmethod
    def of_rows(cls, y: Any) -> TargetSummary:
        """Summarise a block of targets, of shape (n,) or (n, n_outputs)."""
        labels = None
        if y.dtype.kind != "f" and not (y.ndim == 2 and y.shape[1] > 1):
            if y.dtype.kind == "O" and any(v is None or v != v for v in y.ravel()):
                raise ValueError("y contains NaN or missing labels: drop or label those rows")
            values, counts = np.unique(y.ravel(), return_counts=True)
            labels = Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))
            if y.dtype.kind not in "iub":
                return cls(len(y), labels, None, None, None, None)
            labels = labels if len(labels) <= MAX_CLASSES else None
        columns = y.reshape(len(y), -1).astype(np.float64)
        if not np.isfinite(columns).all():
            raise ValueError("y contains NaN or infinity: drop those rows, or impute the values")
        sums = columns.sum(axis=0)
        squares = np.square(columns - sums / len(y)).sum(axis=0)
        return cls(len(y), labels, sums, squares, columns.min(axis=0), columns.max(axis=0))

    def __iadd__(self, other: TargetSummary) -> TargetSummary:
        if self.sums is not None and other.sums is not None:
            share = self.count * other.count / (self.count + other.count)
            apart = self.sums / self.count - other.sums / other.count
            self.squares += other.squares + share * apart**2
            self.sums += other.sums
            self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        if self.labels is not None:
            together = None if other.labels is None else self.labels + other.labels
            many = together is not None and len(together) > MAX_CLASSES and self.sums is not None
            self.labels = None if many else together
        self.count += other.count
        return self

    def columns(self, y: Any) -> NDArray[np.float64]:
        """Convert some targets to columns that have mean 0 and variance 1 over all rows.

        Every label makes one column; columns that are constant over all rows are left out.
        """
        if self.labels is None:
            values = y.reshape(len(y), -1).astype(np.float64)
            means, spread = self.sums / self.count, np.sqrt(self.squares / self.count)
            spread = np.where(self.low == self.high, 0.0, spread)
        else:
            names = sorted(self.labels)
            known = np.array(names, dtype=y.dtype)
            values = (y.reshape(-1, 1) == known).astype(np.float64)
            means = np.array([self.labels[name] for name in names]) / self.count
            spread = np.sqrt(means * (1.0 - means))
        return (values[:, spread > 0] - means[spread > 0]) / spread[spread > 0]


@dataclass
class _FirstPass:
    """Summaries of rows and targets, both from the first pass over a stream."""

    moments: Moments
    targets: TargetSummary | None

    @classmethod
    def of_block(cls, block: Block) -> _FirstPass:
        targets = None if block.y is None else _target_block(block)
        return cls(Moments.of_rows(block.X), targets)

    def __iadd__(self, other: _FirstPass) -> _FirstPass:
        self.moments += other.moments
        if self.targets is not None and other.targets is not None:
            self.targets += other.targets
        return self


def moments(X: Any) -> Moments:
    """Return the moments of the rows of an array, or of a source, which keeps them."""
    source = as_source(X)
    if source.known_moments is None:
        _summarise(source, with_targets=not isinstance(source, ArraySource))
    assert source.known_moments is not None
    return source.known_moments


def target_summary(source: Source) -> TargetSummary | None:
    """Return the summary of the targets of a source, which keeps it; None without targets."""
    if source.target_shape is None:
        return None
    if source.known_targets is None:
        source.known_targets = source.reduce(_target_block, TARGET_ROWS)
    return source.known_targets


def target_columns(y: Any, n_rows: int) -> NDArray[np.float64]:
    """Standardised target columns, of shape (n_rows, n_outputs).

    Floats are regression targets; anything else (integers, booleans, strings) is taken as class
    labels, with one column per class. There is no column if y is None.
    """
    if y is None:
        return np.empty((n_rows, 0))
    y = checked_targets(y, n_rows)
    return TargetSummary.of_rows(y).columns(y)


def checked_targets(y: Any, n_rows: int) -> NDArray[Any]:
    """Convert y to an array with as many rows as X."""
    y = np.asarray(y)
    if y.ndim not in (1, 2):
        raise ValueError(f"y has {y.ndim} dimensions: it must be of shape (n,) or (n, n_outputs)")
    if y.shape[0] != n_rows:
        raise ValueError(f"y has {y.shape[0]} rows and X has {n_rows}")
    return y


def _target_block(block: Block) -> TargetSummary:
    try:
        return TargetSummary.of_rows(block.y)
    except ValueError as error:
        raise ValueError(f"{error} (among the {block.name})") from error


def _summarise(source: Source, with_targets: bool) -> None:
    size = SPARSE_BLOCK_ROWS if source.sparse else BLOCK_ROWS
    if not with_targets:
        source.known_moments = source.reduce(_moments_of_block, size)
        return
    summary = source.reduce(_FirstPass.of_block, size)
    source.known_moments = summary.moments
    if summary.targets is not None:
        source.known_targets = summary.targets


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
    norms = np.zeros(X.shape[0])
    origin = _origin(X, center)

    def block(rows: slice) -> None:
        if sp.issparse(X):
            ends = X.indptr[rows.start : rows.stop + 1]  # scipy would copy a slice
            squares = _squares(X.data[ends[0] : ends[-1]])
            filled = np.flatnonzero(np.diff(ends))  # a sum over no entries is not empty to numpy
            norms[rows][filled] = np.add.reduceat(squares, ends[filled] - ends[0])
        else:
            part = (X[rows] - origin).astype(np.float64, copy=False)
            np.einsum("ij,ij->i", part, part, out=norms[rows])

    map_row_blocks(block, X.shape[0], BLOCK_ROWS)
    return norms


def _squares(values: NDArray[Any]) -> NDArray[np.float64]:
    """In float64; infinite where they overflow, which callers look for."""
    with np.errstate(over="ignore"):
        return np.square(values, dtype=np.float64)


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
    """Sum the weights that fall on each place."""
    return np.bincount(places, weights=weights, minlength=length).astype(np.float64, copy=False)


def _origin(X: Any, center: NDArray[np.float64] | None) -> NDArray[Any]:
    """Return the point to subtract, in X's float type."""
    return np.zeros(X.shape[1], dtype=X.dtype) if center is None else center.astype(X.dtype)
