"""Which rows choose and which rows judge: the only place that splits rows.

An error that a user sees comes from rows that took part in no choice: not of the kernel, not of the
features, not of alpha.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    StratifiedKFold,
    TimeSeriesSplit,
    check_cv,
    train_test_split,
)

from kernelsieve._random import stream
from kernelsieve._validation import check_count
from kernelsieve.sources.base import ArraySource, Source
from kernelsieve.sources.views import dealt_folds, dealt_rows, folds

FOLDS = 5  # of a map that looks at the target, where leave-one-out has no closed form


class Split(NamedTuple):
    """Row numbers: those that choose, and those that judge the choice."""

    choose: NDArray[np.int64]
    judge: NDArray[np.int64]


@dataclass(frozen=True)
class Judge:
    """Sets rows apart, by the rules that the data ask for.

    Parameters
    ----------
    n_rows : int
    seed : int, default 0
        The same seed gives the same split.
    labels : ndarray of shape (n_rows,), optional
        Class labels: every class gets its share of both sides where it has enough rows.
    groups : ndarray of shape (n_rows,), optional
        Rows of one group (a patient, a customer) stay on the same side.
    order : ndarray of shape (n_rows,), optional
        Times: the rows that judge are later than all rows that choose.

    Examples
    --------
    >>> import numpy as np
    >>> judge = Judge(6, order=np.array([3, 1, 2, 6, 5, 4]))
    >>> judge.set_apart(2).judge.tolist()
    [3, 4]
    >>> patients = Judge(6, groups=np.array(["a", "a", "b", "b", "c", "c"]))
    >>> len(patients.set_apart(1).judge)
    2
    """

    n_rows: int
    seed: int = 0
    labels: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    order: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        check_count(self.n_rows, "n_rows", "there must be rows to split")
        for name in ("labels", "groups", "order"):
            values = getattr(self, name)
            if values is not None and len(values) != self.n_rows:
                raise ValueError(f"{name} has {len(values)} values for {self.n_rows} rows")
        if self.groups is not None and self.order is not None:
            raise ValueError(
                "pass groups or order, not both: a group may lie on both sides of a time"
            )

    @property
    def free(self) -> bool:
        """Whether any rows may judge any others: there are no groups and no times."""
        return self.groups is None and self.order is None

    @property
    def n_groups(self) -> float:
        """The number of groups; without groups no number is too small."""
        return math.inf if self.groups is None else len(np.unique(self.groups))

    def among(self, rows: NDArray[np.int64]) -> Judge:
        """The judge of some of the rows alone, by their places among them."""

        def some(values: NDArray[Any] | None) -> NDArray[Any] | None:
            return None if values is None else values[rows]

        return Judge(len(rows), self.seed, some(self.labels), some(self.groups), some(self.order))

    def set_apart(self, size: int, among: NDArray[np.int64] | None = None) -> Split:
        """Set about ``size`` rows apart: exactly so many unless groups or equal times forbid it.

        Parameters
        ----------
        size : int
            The number of rows that judge.
        among : ndarray of int, optional
            The rows to split, for instance the ``choose`` half of an earlier split. None takes all.

        Returns
        -------
        Split
            Row numbers of the whole table. Together they are all rows of ``among``.
        """
        rows = np.arange(self.n_rows) if among is None else np.asarray(among)
        if not 0 < size < len(rows):
            raise ValueError(
                f"size={size} must be between 1 and {len(rows) - 1}: both sides need rows"
            )
        if self.order is not None:
            return self._later(rows, size)
        if self.groups is not None:
            return self._whole_groups(rows, size)
        choose, judge = train_test_split(
            rows,
            test_size=size,
            random_state=self.seed % 2**32,
            stratify=self._strata(rows, 2, size),
        )
        return Split(np.sort(choose), np.sort(judge))

    def folds(self, count: int, among: NDArray[np.int64] | None = None) -> Iterator[Split]:
        """Split into ``count`` folds, each of which judges once.

        In time order a fold is judged by what was learned before it, so the first rows never judge.
        There are no more folds than groups.

        Parameters
        ----------
        count : int
            The number of folds, at least 2.
        among : ndarray of int, optional
            The rows to split. None takes all.

        Yields
        ------
        Split
        """
        rows = np.arange(self.n_rows) if among is None else np.asarray(among)
        options = {"shuffle": True, "random_state": self.seed % 2**32}
        groups = None if self.groups is None else self.groups[rows]
        labels = self._strata(rows, count, count)
        splitter: Any = KFold(count, **options)
        if self.order is not None:
            rows = rows[np.argsort(self.order[rows], kind="stable")]
            splitter = TimeSeriesSplit(count)
        elif groups is not None:
            splitter = GroupKFold(min(count, len(np.unique(groups))), **options)
        elif labels is not None:
            splitter = StratifiedKFold(count, **options)
        for choose, judge in splitter.split(rows, labels, groups):
            yield Split(rows[choose], rows[judge])

    def _strata(self, rows: NDArray[np.int64], least: int, size: int) -> NDArray[Any] | None:
        """The labels, where every class has ``least`` rows and ``size`` rows hold all classes."""
        if self.labels is None:
            return None
        labels = self.labels[rows]
        counts = np.unique(labels, return_counts=True)[1]
        return (
            labels if counts.min() >= least and min(size, len(rows) - size) >= len(counts) else None
        )

    def _later(self, rows: NDArray[np.int64], size: int) -> Split:
        times = np.asarray(self.order)[rows]
        cut = np.sort(times)[-size]
        if cut == times.min():  # as many rows have the earliest time as must not
            cut = np.unique(times)[1] if len(np.unique(times)) > 1 else cut
        later = times >= cut
        if later.all():
            raise ValueError("all rows have the same time: no row is later than the others")
        return Split(rows[~later], rows[later])

    def _whole_groups(self, rows: NDArray[np.int64], size: int) -> Split:
        names, places = np.unique(np.asarray(self.groups)[rows], return_inverse=True)
        if len(names) < 2:
            raise ValueError(f"all rows belong to the group {names[0]!r}: at least 2 are needed")
        shuffled = stream(self.seed, "groups").permutation(len(names))
        reached = np.cumsum(np.bincount(places)[shuffled])
        wanted = min(1 + int(np.searchsorted(reached, size)), len(names) - 1)
        judge = np.isin(places, shuffled[:wanted])
        return Split(rows[~judge], rows[judge])


def mean_by_regression(
    found: NDArray[np.float64],
    beside: NDArray[np.float64],
    mean_beside: float,
    weights: NDArray[np.float64] | None = None,
) -> float:
    """Estimate the mean of a value over all rows from the rows where it is known.

    The regression estimate of survey sampling: ``beside`` is known at every row, and what its mean
    over the few rows differs from that over all says how unusual the few are. Squared errors of a
    model that has found little are almost those of a constant, which are known at every row.

    Parameters
    ----------
    found, beside : ndarray of shape (n_few,)
        The value, at least 0, and what is known of every row, at these rows.
    mean_beside : float
        The mean of the latter over all rows.
    weights : ndarray of shape (n_few,), optional
        Of these rows.

    Returns
    -------
    float
        The mean of ``found`` where its slope on ``beside`` is 0.

    Examples
    --------
    >>> import numpy as np
    >>> mean_by_regression(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]), 5.0)
    2.5
    """
    mean, middle = (float(np.average(values, weights=weights)) for values in (found, beside))
    spread = float(np.average((beside - middle) ** 2, weights=weights))
    if spread == 0.0 or not np.isfinite(spread):
        return mean
    product = float(np.average((found - mean) * (beside - middle), weights=weights))
    # A slope above 1 would say that more than the constant's error is left.
    slope = min(max(product / spread, 0.0), 1.0)
    return max(mean + slope * (mean_beside - middle), mean / 2)


def source_folds(rows: Source, cv: Any) -> Iterator[tuple[Source, Source]]:
    """Split a source into the rows of every fold to learn from, and those to be judged on.

    Parameters
    ----------
    rows : Source
    cv : int, splitter or None
        Of a source that is not in memory a number of folds, which are consecutive rows. None is 5
        folds of rows that are dealt at random, since rows often come sorted.

    Yields
    ------
    tuple of Source
    """
    n = rows.shape[0]
    if cv is None:
        if n < FOLDS:
            raise ValueError(
                f"n_samples = {n}: a map that looks at the target is judged by {FOLDS} folds, "
                "which need as many rows; pass cv=, or target_share=0"
            )
        if not rows.resident:
            yield from dealt_folds(rows, FOLDS)
            return
        cv = list(dealt_rows(n, FOLDS))
    if not rows.resident:
        yield from folds(rows, check_count(cv, "cv", "of a source it is a number of folds"))
        return
    block = rows.take(np.arange(n))
    for train, test in check_cv(cv).split(block.X, block.y):
        choose, judge = block.take(train), block.take(test)
        yield (
            ArraySource(choose.X, choose.y, choose.weights),
            ArraySource(judge.X, judge.y, judge.weights),
        )
