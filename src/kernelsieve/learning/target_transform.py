"""Functions of a skewed target: what a model is fitted to in place of it, and the way back.

Prices, incomes and counts have a few large values, and their noise grows with their size. The
square root and the logarithm even that out. Predictions are means of the target itself: what the
function bends is made up for by the spread of the errors, as Duan's smearing estimate does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kurtosis, skew

from kernelsieve._state import Persistent, choice, number, wrong
from kernelsieve.sources.base import Source
from kernelsieve.sources.changed import recoded

NAMES = ("sqrt", "log")
LARGEST = 1e300
BLOCK_ROWS = 65_536
# Errors that skewness and kurtosis are judged by, at least, and how many of their standard errors
# they may differ from those of a normal distribution.
FEWEST_ERRORS, NORMAL_ERRORS = 200, 3.0

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TargetTransform(Persistent):
    """A function of the target that a model is fitted to.

    Attributes
    ----------
    name : "sqrt" or "log"
    low, high : float
        The range of the targets of the fit. Predictions stay in it.
    shift : float
        Added to the target before the logarithm; 0 if no target is 0.
    correction : float
        What turns a prediction back into a mean: a variance that is added to the square, or the
        factor of the exponential.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.array([0.0, 1.0, 3.0, 120.0])
    >>> transform = TargetTransform.of("log", counts)
    >>> transform.label("visits")
    'log(visits + 1)'
    >>> transform.mean(transform(counts)).round(6).tolist()
    [0.0, 1.0, 3.0, 120.0]
    """

    name: str
    low: float
    high: float
    shift: float
    correction: float

    _state_fields: ClassVar = {
        "name": choice(*NAMES),
        "low": number(0.0, LARGEST),
        "high": number(0.0, LARGEST),
        "shift": number(0.0, LARGEST),
        "correction": number(0.0, LARGEST),
    }

    def _complete(self) -> None:
        if self.high < self.low:
            wrong("high", f"is {self.high}, below low={self.low}")
        if self.name == "log" and self.low + self.shift <= 0.0:
            wrong("shift", f"is {self.shift}: the smallest target has no logarithm")

    @classmethod
    def of(cls, name: str, targets: NDArray[Any]) -> TargetTransform:
        """The function for these targets, without a correction.

        Parameters
        ----------
        name : "sqrt" or "log"
        targets : ndarray
            At least 0.

        Returns
        -------
        TargetTransform
        """
        low, high = float(targets.min()), float(targets.max())
        if low < 0.0:
            raise ValueError(
                f"target_transform={name!r}: y reaches {low:.6g}, and must be at least 0; pass "
                "target_transform=None, or shift y"
            )
        shift, correction = 0.0, 0.0
        if name == "log":
            positive = targets[targets > 0.0]
            shift = float(positive.min()) if low == 0.0 and len(positive) else float(low == 0.0)
            correction = 1.0
        return cls(name, low, high, shift, correction)

    def covering(self, rows: Source) -> TargetTransform:
        """The same function with the range of these targets, of shape (n, 1)."""
        found = TargetTransform.of(self.name, extremes(rows))
        shift = self.shift if found.low + self.shift > 0.0 else found.shift
        return replace(found, shift=shift, correction=self.correction)

    def __call__(self, targets: NDArray[Any]) -> Array:
        """Transform targets; those below the range are taken for its lower end."""
        targets = np.maximum(np.asarray(targets, dtype=np.float64), self.low)
        return np.log(targets + self.shift) if self.name == "log" else np.sqrt(targets)

    def of_rows(self, rows: Source) -> Source:
        """Rows with transformed targets."""
        return recoded(rows, partial(_transformed, self), rows.target_shape)

    def mean(self, predicted: NDArray[Any]) -> Array:
        """The mean of the target where this was predicted of its transform."""
        predicted = np.asarray(predicted, dtype=np.float64)
        with np.errstate(over="ignore"):
            if self.name == "log":
                found = self.correction * np.exp(predicted) - self.shift
            else:
                found = np.maximum(predicted, 0.0) ** 2 + self.correction
        return np.clip(found, self.low, self.high)

    def before(self, mean: NDArray[Any]) -> Array:
        """What was predicted of the transform where this is the mean of the target."""
        mean = np.asarray(mean, dtype=np.float64)
        if self.name == "log":
            return np.log(np.maximum(mean + self.shift, 1e-300) / max(self.correction, 1e-300))
        return np.sqrt(np.maximum(mean - self.correction, 0.0))

    def deviation_before(self, mean: NDArray[Any], deviation: NDArray[Any]) -> Array:
        """The deviation of the transform where these are the mean and deviation of the target."""
        square = np.square(np.asarray(deviation, dtype=np.float64))
        if self.name == "log":
            return np.sqrt(np.log1p(square / np.maximum(mean + self.shift, 1e-300) ** 2))
        # The root of 4 m v + 2 v^2 = d^2, written so that nothing cancels.
        root = np.sqrt(np.square(mean) + 0.5 * square)
        return np.sqrt(0.5 * square / np.maximum(root + mean, 1e-300))

    def target(self, transformed: NDArray[Any]) -> Array:
        """The target that has this transform, at least 0; without the correction of means."""
        with np.errstate(over="ignore"):
            if self.name == "log":
                return np.maximum(np.exp(transformed) - self.shift, 0.0)
            return np.maximum(transformed, 0.0) ** 2

    def back(self, predicted: Any, with_deviation: bool) -> Any:
        """Means of the target, or means and deviations, in the float type of what was predicted."""
        if not with_deviation:
            return self.mean(predicted).astype(predicted.dtype)
        mean, deviation = predicted
        spread = self.deviation(mean, deviation)
        return self.mean(mean).astype(mean.dtype), spread.astype(deviation.dtype)

    def deviation(self, predicted: NDArray[Any], deviation: NDArray[Any]) -> Array:
        """The standard deviation of the target where its transform is normal with these moments.

        It is at most the range of the targets.
        """
        with np.errstate(over="ignore"):
            variance = np.square(np.asarray(deviation, dtype=np.float64))
            mean = self.mean(predicted)
            if self.name == "log":  # of a lognormal variable
                found = (mean + self.shift) * np.sqrt(np.expm1(np.minimum(variance, 100.0)))
            else:  # of the square of a normal variable
                found = np.sqrt(4.0 * mean * variance + 2.0 * variance**2)
        return np.minimum(found, self.high - self.low)

    def corrected(
        self, targets: Array, predicted: Array, weights: Array | None = None
    ) -> TargetTransform:
        """The same with the correction that rows ask for whose transforms were predicted.

        Parameters
        ----------
        targets, predicted : ndarray of shape (n,)
            Targets, and what was predicted of their transforms without them.
        weights : ndarray of shape (n,), optional

        Returns
        -------
        TargetTransform
        """
        errors = self(targets) - predicted
        with np.errstate(over="ignore"):
            each = np.exp(errors) if self.name == "log" else errors**2
        found = float(np.average(each, weights=weights))
        return replace(self, correction=min(found, LARGEST))

    def expected_square(
        self, targets: Array, predicted: Array, weights: Array | None = None
    ) -> float | None:
        """The mean squared error of predicted means, where errors of logarithms look normal.

        A few rows make most of the squared error of a skewed target, and most samples lack them:
        their mean square is too low, by half for logarithms with a deviation of 2. Of normal errors
        a deviation tells the rest.

        Parameters
        ----------
        targets, predicted : ndarray of shape (n,)
            Targets, and what was predicted of their transforms without them.
        weights : ndarray of shape (n,), optional

        Returns
        -------
        float or None
            None where errors do not look normal, and for square roots: the mean square of the
            errors is right there, or nothing better is known.
        """
        errors = self(targets) - predicted
        if self.name != "log" or not looks_normal(errors):
            return None
        middle = float(np.average(errors, weights=weights))
        variance = float(np.average((errors - middle) ** 2, weights=weights))
        with np.errstate(over="ignore", invalid="ignore"):
            first = np.exp(predicted + middle + 0.5 * variance)  # moments of target + shift
            second = np.exp(2.0 * (predicted + middle + variance))
            mean = self.mean(predicted) + self.shift
            found = np.average(second - 2.0 * mean * first + mean**2, weights=weights)
        return float(found) if np.isfinite(found) else None

    def label(self, target: str = "") -> str:
        """What the model is fitted to, in words: "log(price)"."""
        plus = f" + {self.shift:g}" if self.shift else ""
        return f"{self.name}({target or 'y'}{plus})"


def looks_normal(errors: Array) -> bool:
    """Whether skewness and kurtosis are within three standard errors of a normal sample's.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> looks_normal(rng.normal(size=1000)), looks_normal(rng.exponential(size=1000))
    (True, False)
    """
    n = len(errors)
    if n < FEWEST_ERRORS or np.ptp(errors) == 0.0:
        return False
    skewed, heavy = abs(float(skew(errors))), abs(float(kurtosis(errors)))
    return skewed < NORMAL_ERRORS * (6.0 / n) ** 0.5 and heavy < NORMAL_ERRORS * (24.0 / n) ** 0.5


def target_label(model: Any, target: str = "") -> str:
    """What a fitted model predicts before it turns it back: the target, or "log(price)"."""
    transform = getattr(model, "target_transform_", None)
    return target if transform is None else transform.label(target)


def extremes(rows: Source) -> Array:
    """The smallest targets, the smallest positive ones and the largest, of blocks of rows."""
    return np.concatenate(list(rows.map(_extremes_of_block, BLOCK_ROWS, None)))


def _extremes_of_block(block: Any) -> Array:
    y = np.asarray(block.y, dtype=np.float64)
    positive = y[y > 0.0]
    return np.array([y.min(), positive.min() if len(positive) else y.max(), y.max()])


def _transformed(transform: TargetTransform, y: Any, weights: Any) -> tuple[Array, Any]:
    return transform(y), weights
