"""Calibration of scores: one slope and one intercept for each class turn them into logits.

The slope and the intercepts minimise the log loss at rows that the scores have not seen. Because of
the intercepts the mean probability of each class is its share of these rows, however rare it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from kernelsieve.models._base import both_classes

Array = NDArray[np.float64]

# What is believed of the slope before any row is seen. It is near 1 for balanced targets +-1, and
# larger for rare classes; this decides only where scores say nothing.
SLOPE, SLOPE_DEVIATION = 1.0, 10.0
# Of the biases of scores that minimise a log loss, which matter where hardly any row is in doubt: a
# few of them would say too much. Nothing is believed of those of other scores: a rare class needs
# a large one.
BIAS_DEVIATION = 0.5
SMALLEST_SLOPE = 1e-3  # so that the order of the scores stays, whatever a few rows say
MAX_ITER, TOL, HALVINGS = 200, 1e-13, 40


@dataclass(frozen=True)
class Calibration:
    """Logits are slope * (scores + shifts).

    Attributes
    ----------
    slope : float
    shifts : ndarray of shape (n_outputs,)
        One for each column of scores; a single one for two classes.
    loss : float
        The weighted sum of the log losses that are left.
    """

    slope: float
    shifts: Array
    loss: float


def calibrate(
    scores: Array,
    places: NDArray[np.int64],
    weights: Array | None = None,
    fit_intercept: bool = True,
    logits: bool = False,
) -> Calibration:
    """Fit slope and intercepts to scores of rows that had no part in them.

    Parameters
    ----------
    scores : ndarray of shape (n,) for two classes, (n, n_classes) for more
    places : ndarray of int of shape (n,)
        The class of each row.
    weights : ndarray of shape (n,), optional
        How often each row occurred.
    fit_intercept : bool, default True
        False fits the slope only.
    logits : bool, default False
        Whether the scores minimise a log loss, so that biases should be near 0.

    Returns
    -------
    Calibration

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.array([-1.2, -0.8, -1.0, -0.9, -0.7])
    >>> found = calibrate(scores, np.array([0, 0, 0, 0, 1]))
    >>> logits = 2.0 * found.slope * (scores + found.shifts)
    >>> round(float(np.mean(1.0 / (1.0 + np.exp(-logits)))), 6)
    0.2
    """
    columns = both_classes(np.asarray(scores, dtype=np.float64))
    n, n_classes = columns.shape
    share = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    # Weights whose mean is below 1 are relative: no row is less than one observation.
    seen = share * max(1.0, np.count_nonzero(share) / float(share.sum()))
    target = _targets(np.bincount(places, seen, n_classes).astype(np.float64))
    problem = _Problem(columns, target[places], seen, fit_intercept, logits)
    parameters = problem.minimum()
    slope, biases = float(parameters[0]), parameters[1:]
    losses = -log_softmax(slope * columns + biases, axis=1)[np.arange(n), places]
    shifts = (biases[1:] - biases[:1]) / 2.0 if n_classes == 2 else biases
    return Calibration(slope, shifts / slope, float(share @ losses))


def _targets(rows: Array) -> Array:
    """The probabilities that rows of each class (a line) are fitted to, of shape (k, k).

    m rows of a class show no error rate below 1 / (m + 2) (Laplace); of k classes each gives a k-th
    of that to the others. What a class gives to another it gets back, so the shares of the classes
    stay; only a class without rows gets a part of what a single row would be, and gives nothing.
    """
    doubt = rows / (rows + 2.0)
    given = np.minimum.outer(doubt, doubt)
    given[:, rows == 0.0] = (rows / (rows.sum() + 2.0))[:, None]
    np.fill_diagonal(given, 0.0)
    # All classes together give what one row is, however many they are.
    given /= len(rows) * (len(rows) - 1) * np.maximum(rows, 1e-300)[:, None]
    return given + np.diag(1.0 - given.sum(axis=1))


class _Problem:
    """The penalised log loss as a convex function of the slope and the biases of the classes."""

    def __init__(
        self, columns: Array, targets: Array, weights: Array, fit_intercept: bool, logits: bool
    ) -> None:
        self.columns, self.targets, self.weights = columns, targets, weights
        self.fit_intercept = fit_intercept
        self.holding = 1.0 / BIAS_DEVIATION**2 if logits else 0.0

    def value(self, at: Array) -> float:
        logits = at[0] * self.columns + at[1:]
        losses = -np.einsum("ij,ij->i", self.targets, log_softmax(logits, axis=1))
        believed = ((at[0] - SLOPE) / SLOPE_DEVIATION) ** 2 + self.holding * (at[1:] @ at[1:])
        return float(self.weights @ losses) + 0.5 * float(believed)

    def step(self, at: Array) -> tuple[Array, float]:
        """The step of Newton's method, and the decrease that it promises."""
        F, w = self.columns, self.weights[:, None]
        P = np.exp(log_softmax(at[0] * F + at[1:], axis=1))
        left = w * (P - self.targets)
        gradient = np.append(np.vdot(left, F), left.sum(axis=0))
        gradient[0] += (at[0] - SLOPE) / SLOPE_DEVIATION**2
        gradient[1:] += self.holding * at[1:]
        mean = np.einsum("ij,ij->i", P, F)[:, None]
        pulled = w * P * (F - mean)
        curved = np.empty((len(at), len(at)))
        curved[0, 0] = np.vdot(pulled, F) + 1.0 / SLOPE_DEVIATION**2
        curved[0, 1:] = curved[1:, 0] = pulled.sum(axis=0)
        curved[1:, 1:] = np.diag((w * P).sum(axis=0) + self.holding) - P.T @ (w * P)
        # The same bias for all classes changes no loss: any curvature will do there.
        curved[1:, 1:] += float(w.mean())
        free = np.ones(len(at), dtype=bool)
        free[1:] = self.fit_intercept
        free[0] = at[0] > SMALLEST_SLOPE or gradient[0] < 0.0
        step = np.zeros(len(at))
        inner = curved[np.ix_(free, free)]
        inner.flat[:: len(inner) + 1] *= 1.0 + 1e-12
        if free.any():
            step[free] = -np.linalg.solve(inner, gradient[free])
        return step, -float(gradient @ step)

    def minimum(self) -> Array:
        """The slope and the biases."""
        at = np.append(SLOPE, np.zeros(self.columns.shape[1]))
        value = self.value(at)
        for _ in range(MAX_ITER):
            step, decrease = self.step(at)
            if decrease <= TOL * max(value, 1e-300):
                break
            length = 1.0
            for _ in range(HALVINGS):
                tried = at + length * step
                tried[0] = max(tried[0], SMALLEST_SLOPE)
                found = self.value(tried)
                if found < value:
                    break
                length *= 0.5
            else:  # as low as rounding allows
                break
            at, value = tried, found
        at[1:] -= at[1:].mean()
        return at
