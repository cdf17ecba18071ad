"""The choice of a function of the target, by trials on some of the rows.

Whole searches for a kernel are tried, with the target as it is and with its transforms, and their
errors compared in units of the target. A few rows make most of the error of a skewed target, and
chance rules there: a transform must be better with them, and clearly so without them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import skew

from kernelsieve._random import keyed_rows
from kernelsieve.models.target_transform import NAMES, TargetTransform
from kernelsieve.sources.base import ArraySource, Source
from kernelsieve.tuning.judge import Judge
from kernelsieve.tuning.learned import FEWEST_GROUPS, Chosen, rows_set_apart

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

SKEWED, FEWEST_VALUES, FEWEST_ROWS = 1.0, 12, 100  # of a target that transforms are tried on
TRIAL_ROWS = 2500
# The share of rows without the largest errors, and how much smaller errors have to be there.
TRIMMED, WORTH = 0.9, 0.02
# Of a time limit: what trials may take, and the least seconds that are worth it.
TRIAL_SHARE, LEAST_SECONDS = 0.4, 4.0


@dataclass(frozen=True)
class TransformChoice:
    """What to fit to.

    Attributes
    ----------
    transform : TargetTransform or None
        None is the target as it is.
    residuals : ndarray of shape (n_unseen, 1) or None
        In units of the target, at the rows that report the error: where trials took all rows, each
        fold by what the others choose. None leaves it to the fit, whose unseen rows had no part.
    chosen : Chosen or None
        The kernel for this transform, where trials took all rows.
    """

    transform: TargetTransform | None
    residuals: Array | None = None
    chosen: Chosen | None = None


def is_skewed(targets: Array) -> bool:
    """Whether it is worth trying to transform targets: positive numbers with a long upper tail."""
    return bool(
        len(targets) >= FEWEST_ROWS
        and targets.min() >= 0.0
        and len(np.unique(targets[: 100 * FEWEST_VALUES])) >= FEWEST_VALUES
        and skew(targets / max(float(targets.max()), 1e-300)) > SKEWED
    )


def choose_transform(
    rows: Source,
    judge: Judge,
    wanted: str,
    choose: Callable[..., Chosen],
    time_limit: float | None = None,
) -> TransformChoice:
    """Try the target as it is, and its transforms.

    Parameters
    ----------
    rows : Source
        Dense, with targets of shape (n, 1).
    judge : Judge
        Splits the rows; those that report an error have no part in the choice.
    wanted : "auto", "sqrt" or "log"
        One that is given is tried for its correction only.
    choose : callable
        Chooses a kernel, as ``tuning.learned.choose_learned``.
    time_limit : float, optional
        Seconds of the whole fit.

    Returns
    -------
    TransformChoice
    """
    seconds = math.inf if time_limit is None else TRIAL_SHARE * time_limit
    if wanted == "auto":
        if not rows.resident or seconds < LEAST_SECONDS:
            return TransformChoice(None)
        if not is_skewed(next(iter(rows.parts(rows.shape[0]))).y[:, 0]):
            return TransformChoice(None)
    among, _ = rows_set_apart(rows.shape[0], judge)
    some = np.sort(among[keyed_rows(len(among), TRIAL_ROWS, judge.seed, "target transforms")])
    if wanted == "auto" and judge.among(some).n_groups < FEWEST_GROUPS:
        return TransformChoice(None)
    names = (None, *NAMES) if wanted == "auto" else (wanted,)
    transforms = {
        name: None if name is None else TargetTransform.of(name, _range(rows)) for name in names
    }
    trial = _Trial.of(rows, some, judge, transforms, choose, seconds / len(names))
    everywhere = np.ones(len(trial.targets), dtype=bool)
    best = trial.best(everywhere)
    transform = trial.transform(best, everywhere)
    if len(some) < rows.shape[0]:
        return TransformChoice(transform)
    predicted = np.empty(len(trial.targets))
    for fold in trial.folds:
        others = ~fold
        name = trial.best(others)
        predicted[fold] = trial.means(name, others)[fold]
    for warning in trial.warned[best]:
        warnings.warn(warning, stacklevel=5)
    return TransformChoice(transform, (trial.targets - predicted)[:, None], trial.chosen[best])


def _range(rows: Source) -> Array:
    """Targets, or of a source that is not in memory only the smallest ones and the largest."""

    def extremes(block: Any) -> Array:
        y = np.asarray(block.y, dtype=np.float64)
        positive = y[y > 0.0]
        return np.array([y.min(), positive.min() if len(positive) else y.max(), y.max()])

    if rows.resident:
        return np.asarray(next(iter(rows.parts(rows.shape[0]))).y, dtype=np.float64)
    return np.concatenate(list(rows.map(extremes, 65_536, None)))


@dataclass(frozen=True)
class _Trial:
    """Predictions of each transform of the target, at rows that chose nothing.

    Attributes
    ----------
    targets : ndarray of shape (n,)
    weights : ndarray of shape (n,) or None
    transforms : mapping of str or None to TargetTransform or None
    predicted : mapping of str or None to ndarray of shape (n,)
        What was predicted of the transform.
    folds : tuple of ndarray of bool of shape (n,)
        Rows that were predicted together.
    chosen : mapping of str or None to Chosen
    warned : mapping of str or None to list of Warning
        What their searches warned of.
    """

    targets: Array
    weights: Array | None
    transforms: Mapping[str | None, TargetTransform | None]
    predicted: Mapping[str | None, Array]
    folds: tuple[NDArray[np.bool_], ...]
    chosen: Mapping[str | None, Chosen]
    warned: Mapping[str | None, list[Warning]]

    @classmethod
    def of(
        cls,
        rows: Source,
        some: Rows,
        judge: Judge,
        transforms: Mapping[str | None, TargetTransform | None],
        choose: Callable[..., Chosen],
        seconds: float,
    ) -> _Trial:
        """Choose a kernel for each transform on some of the rows."""
        block, inner = rows.take(some), judge.among(some)
        repeat = len(some) == rows.shape[0]  # there are no other rows to judge
        source = ArraySource(block.X, block.y, block.weights)
        predicted: dict[str | None, Array] = {}
        chosen: dict[str | None, Chosen] = {}
        warned: dict[str | None, list[Warning]] = {}
        for name, transform in transforms.items():
            shown = source if transform is None else transform.of_rows(source)
            limit = None if math.isinf(seconds) else seconds
            with warnings.catch_warnings(record=True) as caught:  # of one of them only
                warnings.simplefilter("always")
                found = choose(shown, judge=inner, repeat=repeat, left_out=False, time_limit=limit)
            assert found.residuals is not None  # the kernel is exact with so few rows
            predicted[name] = (shown.take(found.unseen).y - found.residuals)[:, 0]
            chosen[name] = found
            warned[name] = [each.message for each in caught if isinstance(each.message, Warning)]
        there = block.take(found.unseen)
        folds = tuple(np.isin(found.unseen, held.apart) for held in found.held)
        return cls(there.y[:, 0], there.weights, transforms, predicted, folds, chosen, warned)

    def transform(self, name: str | None, told: NDArray[np.bool_]) -> TargetTransform | None:
        """A transform, with the correction that some of the rows ask for."""
        transform = self.transforms[name]
        if transform is None:
            return None
        targets, predicted = self.targets[told], self.predicted[name][told]
        return transform.corrected(targets, predicted, self._weights(told))

    def _weights(self, told: NDArray[np.bool_]) -> Array | None:
        """Of some of the rows; None if they are all 0, too."""
        return None if self.weights is None or not self.weights[told].any() else self.weights[told]

    def means(self, name: str | None, told: NDArray[np.bool_]) -> Array:
        """Predictions of the target."""
        transform = self.transform(name, told)
        return self.predicted[name] if transform is None else transform.mean(self.predicted[name])

    def best(self, told: NDArray[np.bool_]) -> str | None:
        """What some of the rows choose."""
        if None not in self.transforms:
            return next(iter(self.transforms))
        weights = self._weights(told)
        squares = {
            name: np.square(self.means(name, told) - self.targets)[told] for name in self.transforms
        }
        best, ratio = None, (1.0 - WORTH) ** 2
        for name in NAMES:
            found = trimmed_ratio(squares[name], squares[None], weights)
            if found < ratio and np.average(squares[name] - squares[None], weights=weights) < 0.0:
                best, ratio = name, found
        return best


def trimmed_ratio(squares: Array, before: Array, weights: Array | None = None) -> float:
    """The ratio of the means of squared errors, without the rows of the largest ones."""
    larger = np.maximum(squares, before)
    kept = larger <= np.quantile(larger, TRIMMED)
    some = None if weights is None else weights[kept]
    below = float(np.average(before[kept], weights=some)) if some is None or some.any() else 0.0
    return float(np.average(squares[kept], weights=some)) / below if below > 0.0 else 1.0
