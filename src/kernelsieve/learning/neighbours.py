"""A local correction of a ridge on features: kriging from the nearest rows.

The features of a kernel cannot follow what happens between a few neighbours. The target is taken
for a Gaussian process around their prediction f, with the covariance ``exp(-rate * distance)`` plus
noise, and predicted from the nearest rows alone. Its mean at a neighbour x' of x is either f(x'),
so that residuals are kriged, or f(x): then near rows tell all, and f, which may be wrong in
different ways at x and x', only counts where they are far. ``local_search`` settles which of the
two, and which distance, rate and noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native.neighbours import krige, nearest_points, pair_distances
from kernelsieve._parallel import map_row_blocks, ordered_map
from kernelsieve._state import (
    INT64,
    Persistent,
    array,
    flag,
    instance,
    number,
    optional,
    whole,
    wrong,
)
from kernelsieve.kernels import Kernel

BOX_POINTS = 128  # at most, that are searched together
NEIGHBOUR_ROWS = 256  # whose neighbours a thread looks for at a time
SORTED_TOGETHER = 8  # parts of the tree of boxes, for threads to build
MOST_NOISE = 1e6

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class LocalMetric(Persistent):
    """Coordinates of rows, whose sum of absolute differences or Euclidean distance counts.

    Attributes
    ----------
    columns : ndarray of int of shape (a,)
        Those that count, the widest first: far rows are recognised by them.
    centers, scales : ndarray of shape (a,)
        A coordinate is (value - center) * scale; a missing value is at the center.
    warped : bool
        Whether the values are the scaled coordinates of the product kernel, not the columns.
    euclidean : bool, default False
        Whether the distance is Euclidean.
    """

    columns: Rows
    centers: Array
    scales: Array
    warped: bool
    euclidean: bool = False

    _state_fields: ClassVar = {
        "columns": array("a", dtype=INT64, low=0),
        "centers": array("a"),
        "scales": array("a"),
        "warped": flag,
        "euclidean": flag,
    }

    @property
    def n_coordinates(self) -> int:
        """The number of coordinates."""
        return len(self.columns)

    def coordinates(self, kernel: Kernel, X: NDArray[Any]) -> NDArray[np.float32]:
        """Coordinates of rows, of shape (n, a)."""
        points = values_of(kernel, X, self.columns, self.warped)
        # Sums of squares stay finite.
        limit = np.sqrt(np.finfo(np.float32).max / (4 * max(1, len(self.columns))))
        with np.errstate(over="ignore", invalid="ignore"):
            points -= self.centers
            points *= self.scales
            np.nan_to_num(points, copy=False, nan=0.0)
            np.clip(points, -limit, limit, out=points)
        return np.ascontiguousarray(points, dtype=np.float32)


def values_of(kernel: Kernel, X: NDArray[Any], columns: Rows, warped: bool) -> Array:
    """A new array of the columns, or of the scaled coordinates of the product kernel."""
    if not warped:
        return X[:, columns].astype(np.float64)
    return kernel.columns(X, columns)


@dataclass(frozen=True)
class LocalCorrection(Persistent):
    """What is added to the predictions of features, from the nearest rows.

    Attributes
    ----------
    metric : LocalMetric
    points : ndarray of shape (n, a) in float32
        Coordinates of the rows, in the order of ``in_boxes``.
    values : ndarray of shape (n, m) in float32
        What the features left of their targets, leave-one-out; with levels the targets less those.
    levels : ndarray of shape (m,) or None
        None corrects by residuals. Else the mean of the process around a row is what the features
        predict there, and the levels only keep the values small.
    noises : ndarray of shape (n,) or None
        One over the weights, relative to a row of mean weight; None for equal weights.
    n_neighbours : int
    rate : float
        Of the covariance exp(-rate * distance).
    noise : float
        The variance of the noise of a row of mean weight, over that of the process.
    variances : ndarray of shape (m,)
        Of the process.
    """

    metric: LocalMetric
    points: NDArray[np.float32]
    values: NDArray[np.float32]
    levels: Array | None
    noises: NDArray[np.float32] | None
    n_neighbours: int
    rate: float
    noise: float
    variances: Array

    _state_fields: ClassVar = {
        "metric": instance(LocalMetric, a="n_coordinates"),
        "points": array("n", "a", dtype=(np.float32,), order="C"),
        "values": array("n", "m", dtype=(np.float32,), order="C"),
        "levels": optional(array("m")),
        "noises": optional(array("n", dtype=(np.float32,))),
        "n_neighbours": whole(1, 1024),
        "rate": number(0.0, 1e300),
        "noise": number(1e-9, MOST_NOISE),
        "variances": array("m"),
    }

    def _complete(self) -> None:
        if self.n_neighbours >= len(self.points):
            wrong("n_neighbours", f"is {self.n_neighbours}, with {len(self.points)} rows")
        if not self.points.shape[1]:
            wrong("points", "have no coordinates")
        if self.noises is not None and (self.noises <= 0).any():
            wrong("noises", "are not all above 0")

    def check_columns(self, kernel: Kernel, n_columns: int) -> None:
        """Refuse columns that rows do not have, or coordinates that the kernel does not give."""
        columns = self.metric.columns
        if (columns >= n_columns).any():
            wrong("local_.metric", f"has a column {columns.max()} of {n_columns}")
        if self.metric.warped and not np.isin(columns, kernel.active(n_columns)).all():
            wrong("local_.metric", "needs a product kernel in which its columns count")

    def at(
        self, kernel: Kernel, X: NDArray[Any], predicted: Array, n_jobs: int | None = 1
    ) -> tuple[Array, Array]:
        """Corrections (n, m) of predictions, and each row's variance over that of the process."""
        queries = self.metric.coordinates(kernel, X)
        _ = self.boxes  # before the threads need them
        nobody = np.full(len(queries), -1)

        def block(rows: slice) -> tuple[Array, Array]:
            near = self.neighbours(queries[rows], nobody[rows])
            added, explained = self.kriged(near, predicted[rows])
            return added, np.maximum(1.0 - explained, 0.0) + self.noise

        parts = map_row_blocks(block, len(queries), NEIGHBOUR_ROWS, n_jobs)
        added = [part[0] for part in parts] or [np.empty((0, self.values.shape[1]))]
        return np.concatenate(added), np.concatenate([part[1] for part in parts] or [np.empty(0)])

    @cached_property
    def boxes(self) -> _Boxes:
        """Around the points; those in the order of ``in_boxes`` have small ones."""
        return _Boxes.around(self.points)

    def neighbours(self, queries: NDArray[np.float32], left_out: Rows) -> Near:
        """The nearest points of each query, without the point that it is itself, or -1."""
        shape = len(queries), self.n_neighbours
        places, distances = np.zeros(shape, dtype=np.int64), np.empty(shape, dtype=np.float32)
        looked_at = np.empty(len(queries), dtype=np.int64)
        boxes, squared = self.boxes, self.metric.euclidean
        nearest_points(
            self.points,
            boxes.starts,
            boxes.low,
            boxes.high,
            queries,
            left_out,
            squared,
            places,
            distances,
            looked_at,
        )
        between = np.empty((*shape, self.n_neighbours), dtype=np.float32)
        pair_distances(self.points, places, squared, between)
        return Near(places, distances, between, looked_at)

    def kriged(self, near: Near, predicted: Array) -> tuple[Array, Array]:
        """Corrections and explained shares of the variance at rows with these neighbours."""
        own = np.ones(1, dtype=np.float32) if self.noises is None else self.noises[near.places]
        diagonal = np.broadcast_to(self.noise * own.astype(np.float64), near.places.shape)
        n, m = len(near.places), self.values.shape[1]
        means, totals, explained = np.empty((n, m)), np.empty(n), np.empty(n)
        krige(
            near.between,
            near.distances,
            np.ascontiguousarray(diagonal),
            self.rate,
            self.values[near.places],
            means,
            totals,
            explained,
        )
        if self.levels is not None:
            means -= totals[:, None] * (predicted - self.levels)
        return means, explained


@dataclass(frozen=True)
class _Boxes:
    """Runs of points, and the boxes that they lie in.

    Attributes
    ----------
    starts : ndarray of int of shape (n_boxes + 1,)
    low, high : ndarray of shape (n_boxes, a)
    """

    starts: Rows
    low: NDArray[np.float32]
    high: NDArray[np.float32]

    @classmethod
    def around(cls, points: NDArray[np.float32]) -> Self:
        starts = np.array([run.start for run in _runs(len(points))])
        low, high = (f.reduceat(points, starts, axis=0) for f in (np.minimum, np.maximum))
        return cls(np.append(starts, len(points)), low, high)


def in_boxes(points: NDArray[np.float32], n_jobs: int | None = 1) -> Rows:
    """An order of the points in which runs of them are near to each other: a k-d tree's."""
    order = np.arange(len(points))

    def halve(run: slice) -> tuple[slice, ...]:
        """Sort a run along its widest coordinate."""
        if run.stop - run.start <= BOX_POINTS:
            return ()
        some = points[order[run]]
        values = some[:, np.argmax(np.ptp(some, axis=0))]
        order[run] = order[run][np.argsort(values, kind="stable")]
        return _halved(run)

    def halve_all(run: slice) -> None:
        for half in halve(run):
            halve_all(half)

    runs: tuple[slice, ...] = (slice(0, len(points)),)
    while 0 < len(runs) < SORTED_TOGETHER:
        runs = tuple(half for halves in ordered_map(halve, runs, n_jobs) for half in halves)
    list(ordered_map(halve_all, runs, n_jobs))
    return order


def _runs(n: int) -> list[slice]:
    """The runs that halving all points, their halves and so on ends with."""
    runs = [slice(0, n)]
    while runs[0].stop - runs[0].start > BOX_POINTS or runs[-1].stop - runs[-1].start > BOX_POINTS:
        runs = [
            half
            for run in runs
            for half in (_halved(run) if run.stop - run.start > BOX_POINTS else (run,))
        ]
    return runs


def _halved(run: slice) -> tuple[slice, slice]:
    middle = (run.start + run.stop) // 2
    return slice(run.start, middle), slice(middle, run.stop)


@dataclass(frozen=True)
class Near:
    """Neighbours of some rows.

    Attributes
    ----------
    places : ndarray of int of shape (n, k)
        Their numbers.
    distances, between : ndarray of shape (n, k) and (n, k, k)
        To the row, and to each other.
    looked_at : ndarray of int of shape (n,)
        How many distances it took to find them.
    """

    places: Rows
    distances: NDArray[np.float32]
    between: NDArray[np.float32]
    looked_at: Rows

    @classmethod
    def joined(cls, parts: Sequence[Near]) -> Self:
        """The neighbours of the rows of all parts."""
        return cls(
            np.concatenate([part.places for part in parts]),
            np.concatenate([part.distances for part in parts]),
            np.concatenate([part.between for part in parts]),
            np.concatenate([part.looked_at for part in parts]),
        )

    def of(self, rows: Any) -> Near:
        """The neighbours of some of the rows."""
        return Near(
            self.places[rows], self.distances[rows], self.between[rows], self.looked_at[rows]
        )
