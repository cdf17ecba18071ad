"""The search for a local correction: kind, distance, rate and noise by the error at other rows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._parallel import map_row_blocks
from kernelsieve.kernels import Kernel
from kernelsieve.learning.neighbours import (
    NEIGHBOUR_ROWS,
    LocalCorrection,
    LocalMetric,
    Near,
    in_boxes,
    values_of,
)
from kernelsieve.learning.plan import METRICS, Correction
from kernelsieve.sources.base import Block

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

NEIGHBOURS = 32
# In units of one over the median distance of the last neighbour, and of the process' variance.
RATES = (0.0625, 0.25, 1.0, 4.0)
NOISES = (0.001, 0.01, 0.1, 0.4, 1.5, 6.0)
# Coordinates of pairs of a row that judges and another row: some ten seconds on two cores; the
# fewest rows that judge, and that choose the distance; the most that choose rate and noise.
SEARCH_WORK, FEWEST_JUDGES, FEWEST_CHOOSERS, MOST_CHOOSERS = 2e10, 1000, 250, 1000
CACHED_ROWS = 1024  # whose columns stay in a cache
# Seconds on two cores, about: for a row before the first neighbours are looked for, and for a row
# at which all rates and noises are tried.
ROW_SECONDS, CHOOSER_SECONDS = 1e-5, 2e-3
# With a time limit: rows that tell how long a search takes; the shares of the time that is left for
# the choice by one distance, and for the judges; and the fewest rows that are worth a choice.
PROBED_ROWS, CHOICE_SHARE, JUDGES_SHARE, LEAST_CHOOSERS = 16, 0.12, 0.5, 60


def metrics(kernel: Kernel, X: NDArray[Any], n_jobs: int | None) -> Iterator[LocalMetric]:
    """The distances to choose from: of the learned rates, of equal columns, of columns as they are.

    Learned rates know which columns matter, but only for what could be seen on few rows.
    """
    d = X.shape[1]
    active = kernel.active(d)
    if len(active):
        yield _metric(active, *_moments(kernel, X, active, True, n_jobs), True, False)
    every = np.arange(d)
    moments = _moments(kernel, X, every, False, n_jobs)
    yield _metric(every, *moments, False, True)
    yield _metric(every, *moments, False, False)


def _moments(
    kernel: Kernel, X: NDArray[Any], columns: Rows, warped: bool, n_jobs: int | None
) -> tuple[Array, Array]:
    """Means and standard deviations of the values that are not missing."""

    def added(sums: Callable[[Array, NDArray[np.bool_]], Any]) -> Array:
        """What ``sums`` makes of the values and of which are known, added up over all rows."""

        def block(rows: slice) -> Any:
            values = values_of(kernel, X[rows], columns, warped)
            return sums(values, ~np.isnan(values))

        return np.sum(map_row_blocks(block, len(X), CACHED_ROWS, n_jobs), axis=0)

    counts, totals = added(
        lambda values, known: (known.sum(axis=0), values.sum(axis=0, where=known))
    )
    counts = np.maximum(counts, 1.0)
    centers = totals / counts
    squares = added(lambda values, known: np.square(values - centers).sum(axis=0, where=known))
    return centers, np.sqrt(squares / counts)


def _metric(
    columns: Rows, centers: Array, spreads: Array, warped: bool, equal: bool
) -> LocalMetric:
    kept = np.flatnonzero(spreads > 1e-12 * np.maximum(np.abs(centers), 1e-300))
    if not len(kept):
        kept = np.arange(1)  # constant rows: all are equally near
    scales = 1.0 / np.where(spreads > 0, spreads, 1.0) if equal else np.ones(len(columns))
    kept = kept[np.argsort(-(spreads * scales)[kept], kind="stable")]
    # The size of a distance is the rate's affair; float32 wants numbers around 1.
    typical = float((spreads * scales)[kept].sum()) or 1.0
    return LocalMetric(columns[kept], centers[kept], scales[kept] / typical, warped)


def _most_judges(looked_at: float, n_columns: int) -> int:
    """The neighbours of so many rows can be looked for in some seconds."""
    return max(FEWEST_JUDGES, int(SEARCH_WORK / (looked_at * n_columns)))


def _most_choosers(n_rows: int, n_columns: int) -> int:
    """Of so many rows for each distance, where no box can be left out."""
    return max(FEWEST_CHOOSERS, _most_judges(n_rows, n_columns) // 4)


def _thinned(places: Rows, most: int) -> Rows:
    """Every second one, every third, and so on, so that there are no more than ``most``."""
    return places[:: max(1, -(-len(places) // most))]


def least_seconds(n_rows: int) -> float:
    """How long ``choose_correction`` takes before it knows how long the rest would take."""
    return ROW_SECONDS * n_rows


@dataclass(frozen=True)
class CorrectionTrial:
    """A correction, and what it leaves at rows that it did not use for themselves.

    Attributes
    ----------
    correction : LocalCorrection
    settings : Correction
        What was chosen, for other rows.
    judged : ndarray of int
        The judges that there was time for, by their places among those that were given.
    residuals : ndarray of shape (len(judged), m)
    """

    correction: LocalCorrection
    settings: Correction
    judged: Rows
    residuals: Array


def choose_correction(
    kernel: Kernel,
    rows: Block,
    residuals: Array,
    judges: Rows,
    decide: NDArray[np.bool_],
    n_jobs: int | None,
    deadline: float = math.inf,
) -> CorrectionTrial | None:
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
    deadline : float, optional
        When the search has to be over, by the monotonic clock.

    Returns
    -------
    CorrectionTrial or None
        None if there is no time for it.
    """
    weights = None if rows.weights is None else np.asarray(rows.weights, dtype=np.float64)
    used = np.arange(len(rows)) if weights is None else np.flatnonzero(weights > 0)
    say = decide if weights is None else decide & (weights[judges] > 0)
    shares = np.ones(len(judges)) if weights is None else weights[judges]
    if not say.any():  # all that could have a say have no weight
        say, shares = np.ones(len(judges), dtype=bool), np.ones(len(judges))
    search = _Search(kernel, rows, residuals, used, n_jobs)
    some = _thinned(np.flatnonzero(say), _most_choosers(*rows.X.shape))
    few = _Choosers(judges[some], shares[some])
    best = search.best_distance(few, deadline)
    if best is None:
        return None
    # Where boxes are left out, there is time for more judges.
    most = _most_judges(best.looked_at, best.placed.metric.n_coordinates)
    most = min(most, best.affordable(JUDGES_SHARE, deadline))
    step = max(1, -(-len(judges) // most))
    judged = np.sort(np.concatenate([np.flatnonzero(half)[::step] for half in (decide, ~decide)]))
    near = search.found(best.placed, best.correction, judges[judged])
    say, shares = say[judged], shares[judged]
    some = _thinned(np.flatnonzero(say), MOST_CHOOSERS)
    if len(some) > len(few.rows) and CHOOSER_SECONDS * len(some) < deadline - time.monotonic():
        many = _Choosers(judges[judged[some]], shares[some])
        best = search.best(best.placed, many, near.of(some))
    around = search.predicted[judges[judged]]
    added, explained = _kriged_by_blocks(best.correction, near, around, n_jobs)
    left = residuals[judges[judged]] - added
    # The process' variance makes the squared errors what they are said to be in the mean.
    relative = np.maximum(1.0 - explained, 0.0) + best.correction.noise
    variances = np.average(np.square(left[say]) / relative[say, None], axis=0, weights=shares[say])
    settings = _settings(best.correction, near)
    return CorrectionTrial(replace(best.correction, variances=variances), settings, judged, left)


def correction_with(
    kernel: Kernel, rows: Block, residuals: Array, settings: Correction, n_jobs: int | None
) -> LocalCorrection:
    """A correction whose distance, rate and noise were chosen on other rows."""
    weights = None if rows.weights is None else np.asarray(rows.weights, dtype=np.float64)
    used = np.arange(len(rows)) if weights is None else np.flatnonzero(weights > 0)
    search = _Search(kernel, rows, residuals, used, n_jobs)
    wanted = (each for each in metrics(kernel, rows.X, n_jobs) if _name(each) == settings.metric)
    placed = search.placed(next(wanted))
    placed = placed.euclidean() if settings.euclidean else placed
    found = search._kinds(placed)[int(settings.of_targets)]
    some = _thinned(used, MOST_CHOOSERS)
    near = search.found(placed, found, some)
    found = replace(found, rate=settings.rate / _middle(near), noise=settings.noise)
    added, explained = _kriged_by_blocks(found, near, search.predicted[some], n_jobs)
    left = residuals[some] - added
    relative = np.maximum(1.0 - explained, 0.0) + found.noise
    return replace(found, variances=np.mean(np.square(left) / relative[:, None], axis=0))


def _middle(near: Near) -> float:
    """The median distance of the last neighbour: the unit of rates."""
    return float(np.median(near.distances[:, -1])) or 1.0


def _name(metric: LocalMetric) -> str:
    """What a plan calls a distance."""
    if metric.warped:
        return METRICS[0]
    return METRICS[1] if np.ptp(metric.scales) > 0.0 else METRICS[2]


def _settings(correction: LocalCorrection, near: Near) -> Correction:
    metric = correction.metric
    return Correction(
        _name(metric),
        metric.euclidean,
        correction.levels is not None,
        correction.rate * _middle(near),
        correction.noise,
    )


@dataclass(frozen=True)
class _Choosers:
    """Rows at which corrections are compared, and their weights."""

    rows: Rows
    shares: Array

    def thinned(self, most: int) -> _Choosers:
        """No more than so many of them."""
        kept = _thinned(np.arange(len(self.rows)), most)
        return _Choosers(self.rows[kept], self.shares[kept])


@dataclass(frozen=True)
class _Placed:
    """Points by a distance, in the order of ``in_boxes``.

    Attributes
    ----------
    metric : LocalMetric
    rows : ndarray of int of shape (n,)
        The row of each point.
    number_of : ndarray of int
        The place of each row among the points; -1 for none.
    points : ndarray of shape (n, a) in float32
    """

    metric: LocalMetric
    rows: Rows
    number_of: Rows
    points: NDArray[np.float32]

    def euclidean(self) -> _Placed:
        """The same points with their Euclidean distances."""
        return replace(self, metric=replace(self.metric, euclidean=True))


@dataclass(frozen=True)
class _Tried:
    """A correction, its error, and how many distances and seconds a row takes in the mean."""

    error: float
    correction: LocalCorrection
    placed: _Placed
    looked_at: float = 0.0
    seconds: float = 0.0

    def affordable(self, share: float, deadline: float) -> int:
        """For how many rows, at least two, a share of the time that is left is enough."""
        left = share * (deadline - time.monotonic())
        return max(2, int(min(left / max(self.seconds, 1e-9), 2**31)))


def _error(tried: _Tried) -> float:
    return tried.error


@dataclass(frozen=True)
class _Search:
    """Rows, and what features left of their targets."""

    kernel: Kernel
    rows: Block
    residuals: Array
    used: Rows
    n_jobs: int | None

    @cached_property
    def predicted(self) -> Array:
        """What the features predict at each row without it."""
        return np.asarray(self.rows.y, dtype=np.float64) - self.residuals

    def placed(self, metric: LocalMetric) -> _Placed:
        """All rows with a weight as points."""
        points = np.empty((len(self.rows), metric.n_coordinates), dtype=np.float32)

        def fill(rows: slice) -> None:
            points[rows] = metric.coordinates(self.kernel, self.rows.X[rows])

        map_row_blocks(fill, len(points), CACHED_ROWS, self.n_jobs)
        ordered = self.used[in_boxes(points[self.used], self.n_jobs)]
        number_of = np.full(len(self.rows), -1)
        number_of[ordered] = np.arange(len(ordered))
        return _Placed(metric, ordered, number_of, points[ordered])

    def best_distance(self, choosers: _Choosers, deadline: float) -> _Tried | None:
        """The best correction of those by all distances that there is time for, if any."""
        best: _Tried | None = None
        for metric in metrics(self.kernel, self.rows.X, self.n_jobs):
            began = time.monotonic()
            placed = self.placed(metric)
            fewer = self._in_time(placed, choosers, deadline)
            if fewer is None:
                return best
            choosers = fewer
            tried = self.best(placed, choosers)
            best = tried if best is None else min(best, tried, key=_error)
            now = time.monotonic()
            if now - began > 2.0 * CHOICE_SHARE * (deadline - now):
                return best
        assert best is not None  # there is always a distance
        return min(best, self.best(best.placed.euclidean(), choosers), key=_error)

    def _in_time(self, placed: _Placed, choosers: _Choosers, deadline: float) -> _Choosers | None:
        """As many choosers as there is time for; None if they are too few."""
        if math.isinf(deadline):
            return choosers
        probed = choosers.rows[:PROBED_ROWS]
        began = time.monotonic()
        self.found(placed, self._kinds(placed)[0], probed)
        seconds = (time.monotonic() - began) / len(probed) + CHOOSER_SECONDS
        most = int(CHOICE_SHARE * (deadline - time.monotonic()) / seconds)
        return choosers.thinned(most) if most >= min(LEAST_CHOOSERS, len(choosers.rows)) else None

    def _kinds(self, placed: _Placed) -> tuple[LocalCorrection, LocalCorrection]:
        """Corrections by residuals and by targets, with rates and noises that mean nothing yet."""
        ordered = placed.rows
        noises = shares = None
        if self.rows.weights is not None:
            shares = np.asarray(self.rows.weights, dtype=np.float64)[ordered]
            noises = (shares.mean() / shares).astype(np.float32)
        targets = np.asarray(self.rows.y, dtype=np.float64)[ordered]
        levels = np.average(targets, axis=0, weights=shares)
        of_residuals = LocalCorrection(
            placed.metric,
            placed.points,
            np.ascontiguousarray(self.residuals[ordered], dtype=np.float32),
            None,
            noises,
            min(NEIGHBOURS, len(ordered) - 1),
            1.0,
            1.0,
            np.ones(targets.shape[1]),
        )
        values = (targets - levels).astype(np.float32)
        return of_residuals, replace(of_residuals, values=values, levels=levels)

    def best(self, placed: _Placed, choosers: _Choosers, near: Near | None = None) -> _Tried:
        """The best correction by this distance; the choosers' neighbours may be known already."""
        kinds = self._kinds(placed)
        began = time.monotonic()
        if near is None:
            near = self.found(placed, kinds[0], choosers.rows)
        seconds = (time.monotonic() - began) / len(choosers.rows)
        tried = _Tried(np.inf, kinds[0], placed, float(near.looked_at.mean()), seconds)
        middle = _middle(near)
        # Both have the same weights: one factor serves them, with residuals at level 0.
        levels = kinds[1].levels
        assert levels is not None  # of targets
        both = replace(
            kinds[0],
            values=np.hstack([kind.values for kind in kinds]),
            levels=np.append(np.zeros_like(levels), levels),
        )
        for relative, noise in product(RATES, NOISES):
            rate = relative / middle
            errors = self._errors(replace(both, rate=rate, noise=noise), near, choosers)
            for kind, error in zip(kinds, errors, strict=True):
                if error < tried.error:
                    correction = replace(kind, rate=rate, noise=noise)
                    tried = replace(tried, error=error, correction=correction)
        return tried

    def found(self, placed: _Placed, correction: LocalCorrection, rows: Rows) -> Near:
        """The neighbours of some rows among the others."""
        queries = correction.metric.coordinates(self.kernel, self.rows.X[rows])
        left_out = placed.number_of[rows]
        _ = correction.boxes  # before the threads need them
        parts = map_row_blocks(
            lambda some: correction.neighbours(queries[some], left_out[some]),
            len(queries),
            NEIGHBOUR_ROWS,
            self.n_jobs,
        )
        return Near.joined(parts)

    def _errors(self, both: LocalCorrection, near: Near, choosers: _Choosers) -> list[float]:
        """The mean squared errors at the rows that choose, by residuals and by targets."""
        predicted, residuals = self.predicted[choosers.rows], self.residuals[choosers.rows]
        around = np.hstack([np.zeros_like(predicted), predicted])
        added = _kriged_by_blocks(both, near, around, self.n_jobs)[0]
        squares = (np.square(residuals - part).mean(axis=1) for part in np.hsplit(added, 2))
        return [float(np.average(each, weights=choosers.shares)) for each in squares]


def _kriged_by_blocks(
    correction: LocalCorrection, near: Near, predicted: Array, n_jobs: int | None
) -> tuple[Array, Array]:
    def block(rows: slice) -> tuple[Array, Array]:
        return correction.kriged(near.of(rows), predicted[rows])

    parts = map_row_blocks(block, len(near.places), NEIGHBOUR_ROWS, n_jobs)
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
