"""Prediction intervals by split conformal prediction, wider where errors are larger.

Errors of a skewed target grow with its size. They are measured on the scale that the model learns
(its logarithm, say), in units of the predicted deviation if there is one, and of the spread of
errors at similar predictions. There they are alike, and one width suits all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from kernelsieve._state import Persistent, array, wrong
from kernelsieve._validation import check_coverage
from kernelsieve.learning.target_transform import TargetTransform

Array = NDArray[np.float64]

# Every fourth row tells where errors are large, if each of at least two groups of similar
# predictions has so many of them. The others give the width, so that its promise is exact.
EVERY, GROUP_ROWS, MOST_GROUPS = 4, 50, 8


def conformal_width(errors: NDArray[np.float64], coverage: float) -> float:
    """The width that holds a share ``coverage`` of new errors, if they are like these.

    It is the smallest of the sorted errors that at least ``coverage (n + 1)`` of them do not
    exceed. With rows that are exchangeable, a new error is at most as large with at least this
    probability (Vovk et al., 2005), whatever the model.

    Parameters
    ----------
    errors : ndarray of shape (n,)
        Absolute errors in ascending order, of rows that had no part in the model.
    coverage : float
        Between 0 and 1.

    Returns
    -------
    float
        Infinite if there are too few errors for this coverage.

    Examples
    --------
    >>> import numpy as np
    >>> conformal_width(np.arange(1.0, 100.0), 0.9), conformal_width(np.ones(5), 0.9)
    (90.0, inf)
    """
    check_coverage(coverage)
    rank = int(np.ceil(coverage * (len(errors) + 1)))
    return float(errors[rank - 1]) if rank <= len(errors) else float("inf")


@dataclass(frozen=True)
class Intervals(Persistent):
    """Errors of rows that had no part in a model, and where they are larger.

    Attributes
    ----------
    errors : ndarray of shape (n,)
        Absolute errors in ascending order, over the spread at their predictions.
    knots : ndarray of shape (k,)
        Predictions in ascending order, on the scale that is learned; empty if all have one spread.
    spreads : ndarray of shape (k,)
        The mean absolute error near these predictions.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> predicted = rng.uniform(1.0, 10.0, 1000)
    >>> y = predicted * (1.0 + 0.1 * rng.normal(size=1000))
    >>> intervals = Intervals.of(y, predicted)
    >>> low, high = intervals.bounds(np.array([2.0, 8.0]), 0.9)
    >>> bool((high - low)[1] > 2.0 * (high - low)[0])
    True
    """

    errors: Array
    knots: Array
    spreads: Array

    _state_fields: ClassVar = {
        "errors": array(None, low=0),
        "knots": array("k"),
        "spreads": array("k", low=0),
    }

    def _complete(self) -> None:
        if (np.diff(self.knots) <= 0.0).any():
            wrong("knots", "do not rise")

    @classmethod
    def of(
        cls,
        y: NDArray[Any],
        predicted: NDArray[Any],
        deviations: NDArray[Any] | None = None,
        transform: TargetTransform | None = None,
    ) -> Self:
        """Measure the errors of predictions of rows that the model has not seen.

        Parameters
        ----------
        y, predicted : ndarray of shape (n,)
        deviations : ndarray of shape (n,), optional
            The predicted standard deviations, if bounds are to be in units of them.
        transform : TargetTransform, optional
            What the model learns in place of the target.

        Returns
        -------
        Intervals
        """
        middle, unit = _learned_scale(predicted, deviations, transform)
        y = np.asarray(y, dtype=np.float64)
        errors = np.abs((y if transform is None else transform(y)) - middle) / unit
        knots, spreads = _spreads(errors[::EVERY], middle[::EVERY])
        if not len(knots):
            return cls(np.sort(errors), knots, spreads)
        others = np.arange(len(y)) % EVERY != 0
        alike = errors[others] / _spread_at(middle[others], knots, spreads)
        return cls(np.sort(alike), knots, spreads)

    def bounds(
        self,
        predicted: NDArray[Any],
        coverage: float,
        deviations: NDArray[Any] | None = None,
        transform: TargetTransform | None = None,
    ) -> tuple[Array, Array]:
        """Bounds that hold a share of the targets of new rows.

        Parameters
        ----------
        predicted : ndarray of shape (n,)
        coverage : float
            The share of targets inside of their intervals.
        deviations, transform
            As for the rows whose errors these are.

        Returns
        -------
        low, high : ndarray of shape (n,)
            Infinite if there are too few errors for this coverage. Of a transformed target the
            lower bound is at least 0.
        """
        middle, unit = _learned_scale(predicted, deviations, transform)
        width = conformal_width(self.errors, coverage) * unit
        if len(self.knots):
            width = width * _spread_at(middle, self.knots, self.spreads)
        low, high = middle - width, middle + width
        return (low, high) if transform is None else (transform.target(low), transform.target(high))


def _learned_scale(
    predicted: NDArray[Any], deviations: NDArray[Any] | None, transform: TargetTransform | None
) -> tuple[Array, Any]:
    """Predictions on the scale that is learned, and the units of their errors."""
    middle = np.asarray(predicted, dtype=np.float64)
    if transform is not None:
        middle = transform.before(middle)
    if deviations is None:
        return middle, 1.0
    unit = np.asarray(deviations, dtype=np.float64)
    if transform is not None:
        unit = transform.deviation_before(np.asarray(predicted, dtype=np.float64), unit)
    return middle, np.maximum(unit, 1e-300)


def _spreads(errors: Array, middle: Array) -> tuple[Array, Array]:
    """The mean absolute errors in groups of similar predictions; nothing of few rows."""
    count = min(MOST_GROUPS, len(errors) // GROUP_ROWS)
    if count < 2:
        return np.empty(0), np.empty(0)
    groups = np.array_split(np.argsort(middle, kind="stable"), count)
    knots, places = np.unique([np.median(middle[rows]) for rows in groups], return_inverse=True)
    means = np.array([errors[rows].mean() for rows in groups])
    spreads = np.bincount(places, means) / np.bincount(places)
    # No spread is 0: a group without errors promises nothing about the next row.
    return knots, np.maximum(spreads, max(1e-3 * float(spreads.max()), 1e-300))


def _spread_at(middle: Array, knots: Array, spreads: Array) -> Array:
    return np.exp(np.interp(middle, knots, np.log(spreads)))


def coverage_by_quartile(
    y: Any, low: Any, high: Any, predicted: Any, parts: int = 4
) -> NDArray[np.float64]:
    """The shares of targets inside of their intervals, by the size of the prediction.

    Parameters
    ----------
    y, low, high, predicted : array-like of shape (n,)
    parts : int, default 4
        Equally many rows are in each part; 4 are quartiles.

    Returns
    -------
    ndarray of shape (parts,)
        From the rows with the smallest predictions to those with the largest.

    Examples
    --------
    >>> coverage_by_quartile([1, 2, 3, 9], [0, 0, 0, 0], [5, 5, 5, 5], [1, 2, 3, 4]).tolist()
    [1.0, 1.0, 1.0, 0.0]
    """
    y = np.asarray(y)
    inside = (np.asarray(low) <= y) & (y <= np.asarray(high))
    groups = np.array_split(np.argsort(np.asarray(predicted), kind="stable"), parts)
    return np.array([inside[rows].mean() if len(rows) else np.nan for rows in groups])
