"""Rows that report the error: set apart, or where rows are few folds that repeat the choice."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.learning.budget import Budget
from kernelsieve.learning.candidate import Candidate
from kernelsieve.learning.judge import Judge, Split, mean_by_regression
from kernelsieve.learning.linear_part import LinearPart
from kernelsieve.learning.log_loss import Held
from kernelsieve.learning.options import LearnOptions
from kernelsieve.learning.plan import HeldOut
from kernelsieve.learning.product_choice import KernelChoice
from kernelsieve.learning.sides import Setting
from kernelsieve.learning.transform import TransformTrial
from kernelsieve.learning.weights import shares
from kernelsieve.sources.base import Source

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


def rows_set_apart(n: int, judge: Judge, options: LearnOptions | None = None) -> Split:
    """Rows that choose a kernel, and those for the reported error: none if the choice is repeated.

    They are a fifth, up to so many that they tell within a per cent. Where few rows make most of
    the error they do not; beyond 100,000 rows there are more to spare.
    """
    least = (LearnOptions() if options is None else options).reported_rows
    if n // 5 < least:
        return Split(np.arange(n), np.empty(0, dtype=np.int64))
    return judge.set_apart(min(n // 5, max(20 * least, n // 25)))


Repeat = Callable[[Setting, Rows, KernelChoice, Budget], KernelChoice]


def repeated(
    setting: Setting, choice: KernelChoice, repeat: Repeat, budget: Budget
) -> list[tuple[Split, KernelChoice]]:
    """The decisive steps again without each fold; the last choice where there is no time."""
    n = setting.rows.shape[0]
    splits = setting.judge.folds(min(setting.options.folds, n)) if n > 1 else []
    found: list[tuple[Split, KernelChoice]] = []
    for split in splits:
        fold = Split(np.sort(split.choose), np.sort(split.judge))
        last = found[-1][1] if found else choice
        chosen = last if budget.late() else repeat(setting, fold.choose, choice, budget)
        found.append((fold, chosen))
    return found


def held_of(fold: Split, choice: KernelChoice) -> Held:
    """A fold, with the kernels that were chosen without it."""
    return Held(fold.choose, fold.judge, candidates_of(choice))


def candidates_of(choice: KernelChoice) -> tuple[Candidate, ...]:
    """The chosen kernel, and the simpler ones."""
    return tuple(
        Candidate(choice.form.kernel(one, choice.learner), one.alpha)
        for one in (choice.best, *choice.simple)
    )


def predictions_of_folds(
    setting: Setting,
    folds: list[tuple[Split, KernelChoice]],
    linear: bool,
    given: Source,
    trial: TransformTrial | None,
) -> HeldOut:
    """Every row of every fold, predicted by what was chosen without the fold.

    Parameters
    ----------
    setting : Setting
        With the targets that are learned.
    linear : bool
        Whether there is a linear part, which is fitted without the fold, too.
    given : Source
        The same rows with their targets as they are.
    trial : TransformTrial or None
        Of the function of the target; each fold has the one that the others choose.
    """
    kept: list[Rows] = []
    from_all: list[Array] = []
    from_others: list[Array] = []
    for fold, choice in folds:
        rows = setting.rows
        values: Any = 0.0
        if linear:
            part = LinearPart.fit(rows.take(fold.choose))
            values, rows = part(rows.take(fold.judge).X), part.beside(rows)
        here = replace(setting, rows=rows)
        kernel, alpha = (
            choice.form.kernel(choice.best, choice.learner),
            np.array([choice.best.alpha]),
        )
        targets = rows.take(fold.judge).y
        kinds = (here.left_out if setting.judge.free else here.set_apart, here.set_apart)
        for kind, found in zip(kinds, (from_all, from_others), strict=True):
            residuals = kind(fold.choose, fold.judge).ridges(kernel)(alpha)[0]
            predicted = targets - residuals + values
            found.append(predicted if trial is None else _means(trial, fold, predicted))
        kept.append(fold.judge)
    rows_kept = np.concatenate(kept)
    order = np.argsort(rows_kept)
    return HeldOut(
        rows_kept[order],
        given.take(rows_kept[order]).y,
        np.concatenate(from_all)[order],
        np.concatenate(from_others)[order],
    )


def _means(trial: TransformTrial, fold: Split, predicted: Array) -> Array:
    """Predictions of the target, by the transform that the other folds choose."""
    others = ~np.isin(trial.rows, fold.judge)
    everywhere = np.ones(len(trial.rows), dtype=bool)
    name = trial.best(others)
    if name != trial.best(everywhere):
        return trial.means(name, others)[~others][:, None]
    transform = trial.transform(name, others)
    return predicted if transform is None else transform.mean(predicted)


def reported_error(held: HeldOut, rows: Source, judge: Judge) -> float:
    """The root mean square error at the held-out rows, seen among all rows.

    Where any row could have been set apart, and targets are in memory, the distance of all
    targets from their mean corrects for what the held-out rows happen to be.
    """
    squares = np.mean((held.targets - held.predicted) ** 2, axis=1)
    weights = shares(rows.take(held.rows))
    if not (rows.resident and judge.free):
        return math.sqrt(float(np.average(squares, weights=weights)))
    whole = next(iter(rows.parts(rows.shape[0])))  # where they are, not a copy
    mean = np.average(whole.y, axis=0, weights=whole.weights)
    of_all = float(np.average(np.mean((whole.y - mean) ** 2, axis=1), weights=whole.weights))
    beside = np.mean((held.targets - mean) ** 2, axis=1)
    return math.sqrt(mean_by_regression(squares, beside, of_all, weights))
