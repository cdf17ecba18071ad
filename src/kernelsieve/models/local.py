"""A local correction of a ridge on features: kriging of its residuals from the nearest rows.

The features of a kernel cannot follow what happens between a few neighbours. The residuals that
they leave are taken for a Gaussian process with the covariance ``exp(-rate * distance)`` plus
noise, and predicted from the nearest rows alone. Which distance, rate and noise is settled at rows
whose own residual is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native.neighbours import krige, nearest_points, pair_distances
from kernelsieve._parallel import map_row_blocks
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
from kernelsieve.kernels import Kernel, Product
from kernelsieve.sources.base import Block

NEIGHBOURS = 32
BOX_POINTS = 128  # at most, that are searched together
BLOCK_ROWS = 256  # whose neighbours a thread looks for at a time
# In units of one over the median distance of the last neighbour, and of the process' variance.
RATES = (0.0625, 0.25, 1.0, 4.0)
NOISES = (0.01, 0.1, 0.4, 1.5, 6.0)
MOST_NOISE = 1e6
# Coordinates of pairs of a row that judges and another row: some ten seconds on two cores where no
# box can be left out; the fewest rows that judge, and that choose the distance.
SEARCH_WORK, FEWEST_JUDGES, FEWEST_CHOOSERS = 2e10, 1000, 250

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class LocalMetric(Persistent):
    """Coordinates of rows, whose sum of absolute differences is the distance.

    Attributes
    ----------
    columns : ndarray of int of shape (a,)
        Those that count, the widest first: far rows are recognised by them.
    centers, scales : ndarray of shape (a,)
        A coordinate is (value - center) * scale; a missing value is at the center.
    warped : bool
        Whether the values are the scaled coordinates of the product kernel, not the columns.
    """

    columns: Rows
    centers: Array
    scales: Array
    warped: bool

    _state_fields: ClassVar = {
        "columns": array("a", dtype=INT64, low=0),
        "centers": array("a"),
        "scales": array("a"),
        "warped": flag,
    }

    @property
    def n_coordinates(self) -> int:
        """The number of coordinates."""
        return len(self.columns)

    def coordinates(self, kernel: Kernel, X: NDArray[Any]) -> NDArray[np.float32]:
        """Coordinates of rows, of shape (n, a)."""
        values = _values(kernel, X, self.columns, self.warped)
        with np.errstate(over="ignore", invalid="ignore"):
            points = np.nan_to_num((values - self.centers) * self.scales, nan=0.0)
            limit = np.finfo(np.float32).max / (2 * max(1, len(self.columns)))
            return np.ascontiguousarray(np.clip(points, -limit, limit), dtype=np.float32)


def _values(kernel: Kernel, X: NDArray[Any], columns: Rows, warped: bool) -> Array:
    if not warped:
        return X[:, columns].astype(np.float64)
    assert isinstance(kernel, Product)
    return kernel.columns(X, columns)


def metrics(kernel: Kernel, X: NDArray[Any]) -> Iterator[LocalMetric]:
    """The distances to choose from: of the learned rates, of equal columns, of columns as they are.

    Learned rates know which columns matter, but only for what could be seen on few rows.
    """
    d = X.shape[1]
    if isinstance(kernel, Product) and len(kernel.active(d)):
        yield _metric(kernel, X, kernel.active(d), True, False)
    every = np.arange(d)
    yield _metric(kernel, X, every, False, True)
    yield _metric(kernel, X, every, False, False)


def _metric(
    kernel: Kernel, X: NDArray[Any], columns: Rows, warped: bool, equal: bool
) -> LocalMetric:
    values = _values(kernel, X, columns, warped)
    known = ~np.isnan(values)
    counts = np.maximum(known.sum(axis=0), 1)
    centers = np.where(known, values, 0.0).sum(axis=0) / counts
    spreads = np.sqrt(np.square(np.where(known, values - centers, 0.0)).sum(axis=0) / counts)
    kept = np.flatnonzero(spreads > 1e-12 * np.maximum(np.abs(centers), 1e-300))
    if not len(kept):
        kept = np.arange(1)  # constant rows: all are equally near
    scales = 1.0 / np.where(spreads > 0, spreads, 1.0) if equal else np.ones(len(columns))
    kept = kept[np.argsort(-(spreads * scales)[kept], kind="stable")]
    # The size of a distance is the rate's affair; float32 wants numbers around 1.
    typical = float((spreads * scales)[kept].sum()) or 1.0
    return LocalMetric(columns[kept], centers[kept], scales[kept] / typical, warped)


@dataclass(frozen=True)
class LocalCorrection(Persistent):
    """What is added to the predictions of features, from the residuals of the nearest rows.

    Attributes
    ----------
    metric : LocalMetric
    points : ndarray of shape (n, a) in float32
        Coordinates of the rows, in the order of ``in_boxes``.
    residuals : ndarray of shape (n, m) in float32
        What the features left of their targets; leave-one-out.
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
    residuals: NDArray[np.float32]
    noises: NDArray[np.float32] | None
    n_neighbours: int
    rate: float
    noise: float
    variances: Array

    _state_fields: ClassVar = {
        "metric": instance(LocalMetric, a="n_coordinates"),
        "points": array("n", "a", dtype=(np.float32,), order="C"),
        "residuals": array("n", "m", dtype=(np.float32,), order="C"),
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
        if self.metric.warped and not (
            isinstance(kernel, Product) and np.isin(columns, kernel.active(n_columns)).all()
        ):
            wrong("local_.metric", "needs a product kernel in which its columns count")

    def at(self, kernel: Kernel, X: NDArray[Any], n_jobs: int | None = 1) -> tuple[Array, Array]:
        """Corrections of shape (n, m), and the variance at each row over that of the process."""
        queries = self.metric.coordinates(kernel, X)
        _ = self._boxes  # before the threads need them
        nobody = np.full(len(queries), -1)

        def block(rows: slice) -> tuple[Array, Array]:
            near = self._neighbours(queries[rows], nobody[rows])
            means, explained = self._kriged(near)
            return means, np.maximum(1.0 - explained, 0.0) + self.noise

        parts = map_row_blocks(block, len(queries), BLOCK_ROWS, n_jobs)
        means = [part[0] for part in parts] or [np.empty((0, self.residuals.shape[1]))]
        return np.concatenate(means), np.concatenate([part[1] for part in parts] or [np.empty(0)])

    @cached_property
    def _boxes(self) -> _Boxes:
        """Around the points; those in the order of ``in_boxes`` have small ones."""
        return _Boxes.around(self.points)

    def _neighbours(self, queries: NDArray[np.float32], left_out: Rows) -> _Near:
        shape = len(queries), self.n_neighbours
        places, distances = np.zeros(shape, dtype=np.int64), np.empty(shape, dtype=np.float32)
        boxes = self._boxes
        nearest_points(
            self.points, boxes.starts, boxes.low, boxes.high, queries, left_out, places, distances
        )
        between = np.empty((*shape, self.n_neighbours), dtype=np.float32)
        pair_distances(self.points, places, between)
        return _Near(places, distances, between)

    def _kriged(self, near: _Near) -> tuple[Array, Array]:
        """Means and explained shares of the variance at rows with these neighbours."""
        own = np.ones(1, dtype=np.float32) if self.noises is None else self.noises[near.places]
        diagonal = np.broadcast_to(self.noise * own.astype(np.float64), near.places.shape)
        means = np.empty((len(near.places), self.residuals.shape[1]))
        explained = np.empty(len(means))
        values = self.residuals[near.places]
        krige(
            near.between,
            near.distances,
            np.ascontiguousarray(diagonal),
            self.rate,
            values,
            means,
            explained,
        )
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


def in_boxes(points: NDArray[np.float32]) -> Rows:
    """An order of the points in which runs of them are near to each other: a k-d tree's."""
    order = np.arange(len(points))

    def halve(run: slice) -> None:
        if run.stop - run.start <= BOX_POINTS:
            return
        some = points[order[run]]
        values = some[:, np.argmax(np.ptp(some, axis=0))]
        order[run] = order[run][np.argsort(values, kind="stable")]
        for half in _halved(run):
            halve(half)

    halve(slice(0, len(points)))
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
class _Near:
    """Neighbours of some rows: their numbers, and distances to the row and to each other."""

    places: Rows
    distances: NDArray[np.float32]
    between: NDArray[np.float32]


def most_judges(n_rows: int, n_columns: int) -> int:
    """The neighbours of so many rows can be looked for in some seconds."""
    return max(FEWEST_JUDGES, int(SEARCH_WORK / (n_rows * n_columns)))


def _choosers(say: NDArray[np.bool_], n_rows: int, n_columns: int) -> Rows:
    """The judges that choose among distances, of which each costs a search."""
    most = max(FEWEST_CHOOSERS, most_judges(n_rows, n_columns) // 4)
    places = np.flatnonzero(say)
    return places[:: -(-len(places) // most)] if len(places) else places


@dataclass(frozen=True)
class CorrectionTrial:
    """A correction, and what it leaves at rows that it did not use for themselves.

    Attributes
    ----------
    correction : LocalCorrection
    residuals : ndarray of shape (n_judges, m)
    """

    correction: LocalCorrection
    residuals: Array


def choose_correction(
    kernel: Kernel,
    rows: Block,
    residuals: Array,
    judges: Rows,
    decide: NDArray[np.bool_],
    n_jobs: int | None,
) -> CorrectionTrial:
    """The distance, rate and noise with the least error at some of the judges.

    Parameters
    ----------
    kernel : Kernel
    rows : Block
        Dense; those of weight 0 are left out.
    residuals : ndarray of shape (n, m)
        Leave-one-out residuals of the features.
    judges : ndarray of int
        Rows at which errors are computed from the residuals of all other rows.
    decide : ndarray of bool of shape (len(judges),)
        Those that have a say.
    n_jobs : int or None

    Returns
    -------
    CorrectionTrial
    """
    weights = None if rows.weights is None else np.asarray(rows.weights, dtype=np.float64)
    used = np.arange(len(rows)) if weights is None else np.flatnonzero(weights > 0)
    own = residuals[judges]
    say = decide if weights is None else decide & (weights[judges] > 0)
    shares = np.ones(len(judges)) if weights is None else weights[judges]
    if not say.any():  # all that could have a say have no weight
        say, shares = np.ones(len(judges), dtype=bool), np.ones(len(judges))
    some = _choosers(say, *rows.X.shape)
    choosing = judges[some]
    best: tuple[float, LocalCorrection, Rows] | None = None
    for metric in metrics(kernel, rows.X):
        points = metric.coordinates(kernel, rows.X)
        ordered = used[in_boxes(points[used])]
        number_of = np.full(len(rows), -1)
        number_of[ordered] = np.arange(len(ordered))
        noises = None
        if weights is not None:
            noises = (weights[ordered].mean() / weights[ordered]).astype(np.float32)
        blank = LocalCorrection(
            metric,
            points[ordered],
            np.ascontiguousarray(residuals[ordered], dtype=np.float32),
            noises,
            min(NEIGHBOURS, len(used) - 1),
            1.0,
            1.0,
            np.ones(own.shape[1]),
        )
        near = _found(blank, points[choosing], number_of[choosing], n_jobs)
        middle = float(np.median(near.distances[:, -1])) or 1.0
        for rate in RATES:
            for noise in NOISES:
                trial = replace(blank, rate=rate / middle, noise=noise)
                left = residuals[choosing] - _kriged_by_blocks(trial, near, n_jobs)[0]
                error = float(np.average(np.square(left).mean(axis=1), weights=shares[some]))
                if best is None or error < best[0]:
                    best = error, trial, number_of
    assert best is not None
    queries = best[1].metric.coordinates(kernel, rows.X[judges])
    near = _found(best[1], queries, best[2][judges], n_jobs)
    means, explained = _kriged_by_blocks(best[1], near, n_jobs)
    left = own - means
    # The process' variance makes the squared errors what they are said to be in the mean.
    relative = np.maximum(1.0 - explained, 0.0) + best[1].noise
    variances = np.average(np.square(left[say]) / relative[say, None], axis=0, weights=shares[say])
    return CorrectionTrial(replace(best[1], variances=variances), left)


def _found(
    correction: LocalCorrection, queries: NDArray[np.float32], left_out: Rows, n_jobs: int | None
) -> _Near:
    _ = correction._boxes  # before the threads need them
    parts = map_row_blocks(
        lambda rows: correction._neighbours(queries[rows], left_out[rows]),
        len(queries),
        BLOCK_ROWS,
        n_jobs,
    )
    return _Near(
        np.concatenate([part.places for part in parts]),
        np.concatenate([part.distances for part in parts]),
        np.concatenate([part.between for part in parts]),
    )


def _kriged_by_blocks(
    correction: LocalCorrection, near: _Near, n_jobs: int | None
) -> tuple[Array, Array]:
    def block(rows: slice) -> tuple[Array, Array]:
        some = _Near(near.places[rows], near.distances[rows], near.between[rows])
        return correction._kriged(some)

    parts = map_row_blocks(block, len(near.places), BLOCK_ROWS, n_jobs)
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
