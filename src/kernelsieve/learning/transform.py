"""The choice of a function of the target, by trials on some of the rows.

A kernel is learned from the target as it is and from its transforms, and the errors at other rows
are compared in units of the target. A few rows make most of the error of a skewed target, and
chance rules there: a transform must be better with them, and clearly so without them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import skew

from kernelsieve._random import keyed_rows
from kernelsieve.learning.budget import Budget
from kernelsieve.learning.candidate import Judged, ProductForm
from kernelsieve.learning.sides import Setting, Sides
from kernelsieve.learning.target_transform import NAMES, TargetTransform, extremes
from kernelsieve.learning.walk import Walk, best_of
from kernelsieve.sources.base import ArraySource

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

SKEWED, FEWEST_VALUES, FEWEST_ROWS = 1.0, 12, 100  # of a target that transforms are tried on
TRIAL_ROWS = 2500
TRIAL_FAMILIES = ("laplacian", "matern52")  # one of each kind
# The share of rows without the largest errors, and how much smaller errors have to be there.
TRIMMED, WORTH = 0.9, 0.02
# Of a time limit: what trials may take, and the least seconds that are worth it.
TRIAL_SHARE, LEAST_SECONDS = 0.4, 4.0


def is_skewed(targets: Array) -> bool:
    """Whether it is worth trying to transform targets: positive numbers with a long upper tail."""
    return bool(
        len(targets) >= FEWEST_ROWS
        and targets.min() >= 0.0
        and len(np.unique(targets[: 100 * FEWEST_VALUES])) >= FEWEST_VALUES
        and skew(targets / max(float(targets.max()), 1e-300)) > SKEWED
    )


@dataclass(frozen=True)
class TransformTrial:
    """Predictions of each transform of the target, at rows that they were not fitted to.

    Attributes
    ----------
    rows : ndarray of int of shape (n,)
        Numbers of the rows.
    targets : ndarray of shape (n,)
    weights : ndarray of shape (n,) or None
    transforms : mapping of str or None to TargetTransform or None
    predicted : mapping of str or None to ndarray of shape (n,)
        What was predicted of the transform.
    """

    rows: Rows
    targets: Array
    weights: Array | None
    transforms: Mapping[str | None, TargetTransform | None]
    predicted: Mapping[str | None, Array]

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


def choose_transform(
    setting: Setting, among: Rows, wanted: str | None, budget: Budget, alphas: Array | None
) -> TransformTrial | None:
    """Try the target as it is, and its transforms.

    Parameters
    ----------
    setting : Setting
        Rows with targets of shape (n, 1).
    among : ndarray of int
        The rows that may be looked at.
    wanted : "auto", "sqrt", "log" or None
        One that is given is tried for its correction only.
    budget : Budget
    alphas : ndarray or None
        The only ridges to choose from.

    Returns
    -------
    TransformTrial or None
        None where nothing but the target itself is worth a trial.
    """
    rows, judge = setting.rows, setting.judge
    if wanted is None:
        return None
    if wanted == "auto":
        seconds = TRIAL_SHARE * budget.left()
        if not rows.resident or not judge.free or seconds < LEAST_SECONDS:
            return None
        if not is_skewed(next(iter(rows.parts(rows.shape[0]))).y[:, 0]):
            return None
    some = np.sort(among[keyed_rows(len(among), TRIAL_ROWS, judge.seed, "target transforms")])
    names = (None, *NAMES) if wanted == "auto" else (wanted,)
    transforms = {
        name: None if name is None else TargetTransform.of(name, extremes(rows)) for name in names
    }
    block = rows.take(some)
    source = ArraySource(block.X, block.y, block.weights)
    few = replace(setting, rows=source, judge=judge.among(some), verbose=0)
    trials, judged = {}, np.arange(len(some))
    with budget.step("transform"):
        for number, (name, transform) in enumerate(transforms.items()):
            shown = source if transform is None else transform.of_rows(source)
            part = budget.share(TRIAL_SHARE / (len(names) - number))
            judged, trials[name] = _predicted(replace(few, rows=shown), part, alphas)
    weights = None if block.weights is None else np.asarray(block.weights)[judged]
    targets = np.asarray(block.y, dtype=np.float64)[judged, 0]
    return TransformTrial(some[judged], targets, weights, transforms, trials)


def _predicted(setting: Setting, budget: Budget, alphas: Array | None) -> tuple[Rows, Array]:
    """Rows, and what a kernel that is learned from others predicts there."""
    sides = Sides.of(setting, np.arange(setting.rows.shape[0]))
    learner, options = sides.learner(), setting.options
    fits = learner.screen(TRIAL_FAMILIES, budget.deadline)
    few = len(sides.among) <= options.left_out_rows
    errors = setting.left_out(sides.among, sides.among) if few else sides.compare()
    walk = Walk(errors, learner, ProductForm(), alphas, options, budget.deadline, setting.n_jobs)
    best = best_of(walk.all_judged(Judged(fit, 1.0, 0.0, fit.alpha, math.inf) for fit in fits))
    kernel = walk.form.kernel(best, learner)
    residuals = errors.ridges(kernel)(np.array([best.alpha]))[0]
    judged = sides.among if few else np.sort(sides.known_and_apart()[1])
    return judged, (setting.rows.take(judged).y - residuals)[:, 0]


def trimmed_ratio(squares: Array, before: Array, weights: Array | None = None) -> float:
    """The ratio of the means of squared errors, without the rows of the largest ones."""
    larger = np.maximum(squares, before)
    kept = larger <= np.quantile(larger, TRIMMED)
    some = None if weights is None else weights[kept]
    below = float(np.average(before[kept], weights=some)) if some is None or some.any() else 0.0
    return float(np.average(squares[kept], weights=some)) / below if below > 0.0 else 1.0
