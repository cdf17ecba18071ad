"""A local correction of a ridge on features: kriging from the nearest rows.

The features of a kernel cannot follow what happens between a few neighbours. The target is taken
for a Gaussian process around their prediction f, with the covariance ``exp(-rate * distance)`` plus
noise, and predicted from the nearest rows alone. Its mean at a neighbour x' of x is either f(x'),
so that residuals are kriged, or f(x): then near rows tell all, and f, which may be wrong in
different ways at x and x', only counts where they are far. Which of the two, and which distance,
rate and noise, is settled at rows whose own target is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
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
        values = _values(kernel, X, self.columns, self.warped)
        with np.errstate(over="ignore", invalid="ignore"):
            points = np.nan_to_num((values - self.centers) * self.scales, nan=0.0)
            limit = np.finfo(np.float32).max / (4 * max(1, len(self.columns)))
            limit = np.sqrt(limit) if self.euclidean else limit  # sums of squares stay finite, too
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
        if self.metric.warped and not (
            isinstance(kernel, Product) and np.isin(columns, kernel.active(n_columns)).all()
        ):
            wrong("local_.metric", "needs a product kernel in which its columns count")

    def at(
        self, kernel: Kernel, X: NDArray[Any], predicted: Array, n_jobs: int | None = 1
    ) -> tuple[Array, Array]:
        """Corrections (n, m) of predictions, and each row's variance over that of the process."""
        queries = self.metric.coordinates(kernel, X)
        _ = self._boxes  # before the threads need them
        nobody = np.full(len(queries), -1)

        def block(rows: slice) -> tuple[Array, Array]:
            near = self._neighbours(queries[rows], nobody[rows])
            added, explained = self._kriged(near, predicted[rows])
            return added, np.maximum(1.0 - explained, 0.0) + self.noise

        parts = map_row_blocks(block, len(queries), BLOCK_ROWS, n_jobs)
        added = [part[0] for part in parts] or [np.empty((0, self.values.shape[1]))]
        return np.concatenate(added), np.concatenate([part[1] for part in parts] or [np.empty(0)])

    @cached_property
    def _boxes(self) -> _Boxes:
        """Around the points; those in the order of ``in_boxes`` have small ones."""
        return _Boxes.around(self.points)

    def _neighbours(self, queries: NDArray[np.float32], left_out: Rows) -> _Near:
        shape = len(queries), self.n_neighbours
        places, distances = np.zeros(shape, dtype=np.int64), np.empty(shape, dtype=np.float32)
        boxes, squared = self._boxes, self.metric.euclidean
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
        )
        between = np.empty((*shape, self.n_neighbours), dtype=np.float32)
        pair_distances(self.points, places, squared, between)
        return _Near(places, distances, between)

    def _kriged(self, near: _Near, predicted: Array) -> tuple[Array, Array]:
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
    """The kind, distance, rate and noise with the least error at some of the judges.

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
    say = decide if weights is None else decide & (weights[judges] > 0)
    shares = np.ones(len(judges)) if weights is None else weights[judges]
    if not say.any():  # all that could have a say have no weight
        say, shares = np.ones(len(judges), dtype=bool), np.ones(len(judges))
    some = _choosers(say, *rows.X.shape)
    search = _Search(kernel, rows, residuals, used, judges[some], shares[some], n_jobs)
    best = min((search.best(metric) for metric in metrics(kernel, rows.X)), key=_error)
    best = min(best, search.best(replace(best.correction.metric, euclidean=True)), key=_error)
    near = search.found(best, judges)
    added, explained = _kriged_by_blocks(best.correction, near, search.predicted[judges], n_jobs)
    left = residuals[judges] - added
    # The process' variance makes the squared errors what they are said to be in the mean.
    relative = np.maximum(1.0 - explained, 0.0) + best.correction.noise
    variances = np.average(np.square(left[say]) / relative[say, None], axis=0, weights=shares[say])
    return CorrectionTrial(replace(best.correction, variances=variances), left)


@dataclass(frozen=True)
class _Tried:
    """A correction, its error, and the place of each row among its points; -1 for none."""

    error: float
    correction: LocalCorrection
    number_of: Rows


def _error(tried: _Tried) -> float:
    return tried.error


@dataclass(frozen=True)
class _Search:
    """Rows, and those of them at which corrections are compared."""

    kernel: Kernel
    rows: Block
    residuals: Array
    used: Rows
    choosing: Rows
    shares: Array
    n_jobs: int | None

    @cached_property
    def predicted(self) -> Array:
        """What the features predict at each row without it."""
        return np.asarray(self.rows.y, dtype=np.float64) - self.residuals

    def best(self, metric: LocalMetric) -> _Tried:
        """The best correction by this distance."""
        points = metric.coordinates(self.kernel, self.rows.X)
        ordered = self.used[in_boxes(points[self.used])]
        number_of = np.full(len(self.rows), -1)
        number_of[ordered] = np.arange(len(ordered))
        noises = shares = None
        if self.rows.weights is not None:
            shares = np.asarray(self.rows.weights, dtype=np.float64)[ordered]
            noises = (shares.mean() / shares).astype(np.float32)
        targets = np.asarray(self.rows.y, dtype=np.float64)[ordered]
        levels = np.average(targets, axis=0, weights=shares)
        of_residuals = LocalCorrection(
            metric,
            points[ordered],
            np.ascontiguousarray(self.residuals[ordered], dtype=np.float32),
            None,
            noises,
            min(NEIGHBOURS, len(ordered) - 1),
            1.0,
            1.0,
            np.ones(targets.shape[1]),
        )
        of_targets = replace(
            of_residuals, values=(targets - levels).astype(np.float32), levels=levels
        )
        tried = _Tried(np.inf, of_residuals, number_of)
        near = self.found(tried, self.choosing)
        middle = float(np.median(near.distances[:, -1])) or 1.0
        kinds = of_residuals, of_targets
        # Both have the same weights: one factor serves them, with residuals at level 0.
        both = replace(
            of_residuals,
            values=np.hstack([kind.values for kind in kinds]),
            levels=np.append(np.zeros_like(levels), levels),
        )
        for relative, noise in product(RATES, NOISES):
            rate = relative / middle
            errors = self._errors(replace(both, rate=rate, noise=noise), near)
            for kind, error in zip(kinds, errors, strict=True):
                if error < tried.error:
                    tried = _Tried(error, replace(kind, rate=rate, noise=noise), number_of)
        return tried

    def found(self, tried: _Tried, rows: Rows) -> _Near:
        """The neighbours of some rows among the others."""
        correction = tried.correction
        queries = correction.metric.coordinates(self.kernel, self.rows.X[rows])
        left_out = tried.number_of[rows]
        _ = correction._boxes  # before the threads need them
        parts = map_row_blocks(
            lambda some: correction._neighbours(queries[some], left_out[some]),
            len(queries),
            BLOCK_ROWS,
            self.n_jobs,
        )
        return _Near(
            np.concatenate([part.places for part in parts]),
            np.concatenate([part.distances for part in parts]),
            np.concatenate([part.between for part in parts]),
        )

    def _errors(self, both: LocalCorrection, near: _Near) -> list[float]:
        """The mean squared errors at the rows that choose, by residuals and by targets."""
        predicted, residuals = self.predicted[self.choosing], self.residuals[self.choosing]
        around = np.hstack([np.zeros_like(predicted), predicted])
        added = _kriged_by_blocks(both, near, around, self.n_jobs)[0]
        squares = (np.square(residuals - part).mean(axis=1) for part in np.hsplit(added, 2))
        return [float(np.average(each, weights=self.shares)) for each in squares]


def _kriged_by_blocks(
    correction: LocalCorrection, near: _Near, predicted: Array, n_jobs: int | None
) -> tuple[Array, Array]:
    def block(rows: slice) -> tuple[Array, Array]:
        some = _Near(near.places[rows], near.distances[rows], near.between[rows])
        return correction._kriged(some, predicted[rows])

    parts = map_row_blocks(block, len(near.places), BLOCK_ROWS, n_jobs)
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
