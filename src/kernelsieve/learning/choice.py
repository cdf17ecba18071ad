"""The choice of a model: rows in, a plan out.

The default in seven steps, each of which a test can call alone: a function of the target
(``transform``), rates by likelihood and a kernel by its errors on other rows (``product_choice``,
``parts_choice``), the exact kernel or landmarks (``solver``), a linear part (``linear_part``), the
penalty of a log loss (``log_loss``), and rows that report the error (``held_out``).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._parallel import one_thread_in_blas
from kernelsieve.kernels import Anova
from kernelsieve.learning import parts_choice
from kernelsieve.learning.budget import Budget
from kernelsieve.learning.candidate import ALPHA_BOUNDS, Judged
from kernelsieve.learning.held_out import (
    candidates_of,
    held_of,
    predictions_of_folds,
    repeated,
    rows_set_apart,
)
from kernelsieve.learning.judge import Judge
from kernelsieve.learning.linear_part import try_linear
from kernelsieve.learning.log_loss import Held, choose_loss, squares_are_better
from kernelsieve.learning.options import LearnOptions
from kernelsieve.learning.plan import HeldOut, Plan, Report
from kernelsieve.learning.product_choice import (
    KernelChoice,
    again_on_fold,
    choose_product,
    smaller,
)
from kernelsieve.learning.sides import Setting, Sides
from kernelsieve.learning.solver import SolverChoice, choose_solver
from kernelsieve.learning.transform import TransformTrial, choose_transform
from kernelsieve.sources.base import Source
from kernelsieve.sources.marginals import sampled_rows

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

FEWEST_GROUPS = 3
FEW_ROWS = 200  # of fewer a best width means little, and nobody is warned of it


@dataclass(frozen=True)
class Wanted:
    """What the caller has decided already.

    Attributes
    ----------
    alphas : ndarray or None
        The only ridges to choose from.
    fit_intercept : bool
    max_order : int or None
        The columns of the largest parts of the model; None sets no limit.
    transform : "auto", "log", "sqrt" or None
        The function of the target.
    classes : bool
        Whether targets are signs of classes, for the log loss.
    options : LearnOptions or None
        The sizes of everything.
    n_jobs : int or None
    verbose : int
    """

    alphas: Array | None = None
    fit_intercept: bool = True
    max_order: int | None = None
    transform: str | None = "auto"
    classes: bool = False
    options: LearnOptions | None = None
    n_jobs: int | None = None
    verbose: int = 0

    @property
    def sizes(self) -> LearnOptions:
        """The options, or the defaults for this kind of kernel."""
        if self.options is not None:
            return self.options
        return LearnOptions() if self.max_order is None else parts_choice.OPTIONS


def choose(
    rows: Source, judge: Judge, budget: Budget | None = None, wanted: Wanted | None = None
) -> Plan:
    """Decide what to fit; nothing is fitted to all rows, and nothing is changed.

    Parameters
    ----------
    rows : Source
        Dense, with targets of shape (n, m).
    judge : Judge
        Splits the rows. Its seed is that of everything here.
    budget : Budget, optional
        The time that the choice may take; it counts the seconds of each step.
    wanted : Wanted, optional

    Returns
    -------
    Plan
    """
    budget = Budget() if budget is None else budget
    wanted = Wanted() if wanted is None else wanted
    if judge.n_groups < FEWEST_GROUPS:
        raise ValueError(
            f"groups has {judge.n_groups} different values: at least {FEWEST_GROUPS} are needed, "
            "one to choose a kernel, one to judge it and one for the error that is reported"
        )
    setting = _setting(rows, judge, wanted)
    among, unseen = rows_set_apart(rows.shape[0], judge, setting.options)
    trial = _transform(setting, among, budget, wanted)
    everywhere = np.ones(0 if trial is None else len(trial.rows), dtype=bool)
    transform = None if trial is None else trial.transform(trial.best(everywhere), everywhere)
    shown = rows if transform is None else transform.of_rows(rows)
    setting = replace(setting, rows=shown)

    sides = Sides.of(setting, among)
    choice = _kernel(sides, budget, wanted)
    _warn_at_edge(choice, setting.options, wanted)
    solved = choose_solver(choice, sides, budget, wanted.alphas)
    choice = replace(choice, best=solved.judged, tried=(*choice.tried, *solved.tried))
    linear, choice = _linear(sides, choice, budget, wanted)

    folds = []
    if not len(unseen) and solved.solver.kind == "exact":
        with budget.step("error of folds"):
            folds = repeated(setting, choice, partial(_on_fold, wanted), budget)
    final = choice
    if folds and rows.shape[0] > 4 and not budget.late():  # the choice is made: all have their say
        with budget.step("likelihood"):
            final = _again(setting, choice, wanted)
    kernel, alpha = final.form.kernel(final.best, final.learner), final.best.alpha
    loss, relative, held = "squared error", False, None
    if wanted.classes and solved.solver.kind != "iterative":
        whole = _whole(shown, among, sides, folds, choice)
        found = choose_loss(
            whole[0],
            whole[1],
            budget,
            fit_intercept=setting.fit_intercept,
            free=wanted.alphas is None,
            seed=setting.seed,
            n_jobs=setting.n_jobs,
        )
        candidates, free = candidates_of(final), wanted.alphas is None
        with budget.step("loss"):
            squares = free and squares_are_better(
                *whole,
                found,
                candidates[0],
                fit_intercept=setting.fit_intercept,
                free=judge.free,
            )
        if not squares:
            loss, relative = "log loss", free
            kernel = candidates[found.place].kernel
            alpha = found.penalty if free else candidates[found.place].alpha
        if folds and not squares:
            apart = np.sort(np.concatenate([fold.judge for fold, _ in folds]))
            held = HeldOut(apart, rows.take(apart).y, found.scores, found.scores)
    elif solved.solver.kind == "exact":
        alpha = _safe_alpha(setting, final, among, linear, budget, wanted)
        if folds:
            with budget.step("error of folds"):
                held = predictions_of_folds(setting, folds, linear, rows, trial)
    if isinstance(kernel, Anova):  # centred over all rows, which the model remembers
        kernel = kernel.with_marginals(rows[sampled_rows(rows)])
    report = _report(rows, choice, solved, len(unseen) or len(held.rows if held else ()), held)
    return Plan(
        kernel,
        float(alpha),
        solved.solver,
        transform=transform,
        linear=linear,
        loss=loss,
        alpha_is_relative=relative,
        classes=wanted.classes,
        report=replace(report, seconds=budget.seconds),
    )


def _setting(rows: Source, judge: Judge, wanted: Wanted) -> Setting:
    options = wanted.sizes
    return Setting(
        rows,
        judge,
        options,
        wanted.fit_intercept,
        wanted.max_order is not None,
        rows.shape[0] <= options.exact_rows,
        judge.seed,
        wanted.n_jobs,
        wanted.verbose,
    )


def _transform(
    setting: Setting, among: Rows, budget: Budget, wanted: Wanted
) -> TransformTrial | None:
    """The trial of functions of the target, if it is a single number."""
    if wanted.classes or (wanted.transform == "auto" and setting.rows.target_shape != (1,)):
        return None
    return choose_transform(setting, among, wanted.transform, budget, wanted.alphas)


def _kernel(sides: Sides, budget: Budget, wanted: Wanted) -> KernelChoice:
    if wanted.max_order is not None:
        return parts_choice.choose_parts(sides, budget, wanted.alphas, wanted.max_order)
    return choose_product(sides, budget, wanted.alphas, wanted.classes)


def _on_fold(
    wanted: Wanted, setting: Setting, rows: Rows, choice: KernelChoice, budget: Budget
) -> KernelChoice:
    """The choice again, by these rows."""
    silent = Budget()  # its steps are counted as one
    silent.deadline = budget.deadline
    sides = Sides.of(smaller(setting), rows)
    if wanted.max_order is not None:
        return parts_choice.choose_parts(sides, silent, wanted.alphas, wanted.max_order)
    return again_on_fold(choice, sides, silent, wanted.alphas)


def _again(setting: Setting, choice: KernelChoice, wanted: Wanted) -> KernelChoice:
    """The same choice, with rates learned from all rows."""
    learner, best = setting.learner(None), choice.best
    fit = learner.refine([best.fit])[0] if best.is_learned else learner.equal(best.fit.family)
    simple = tuple(replace(one, fit=learner.equal(one.fit.family)) for one in choice.simple)
    again = replace(choice, best=replace(best, fit=fit), learner=learner, simple=simple)
    if wanted.alphas is not None or not best.is_learned:
        return again
    # The likelihood of all rows moves alpha, by a step at most.
    likely = choice.form.likely_alpha
    change = likely(again.best, learner) / likely(best, choice.learner)
    step = setting.options.alpha_step
    alpha = best.alpha * min(max(change, 1.0 / step), step)
    return replace(again, best=replace(again.best, alpha=alpha))


def _linear(
    sides: Sides, choice: KernelChoice, budget: Budget, wanted: Wanted
) -> tuple[bool, KernelChoice]:
    """Whether a linear part pays beside the kernel, and the kernel's alpha with it."""
    setting = sides.setting
    if wanted.classes or not wanted.fit_intercept or not setting.rows.resident or budget.late():
        return False, choice
    if len(sides.among) < 4 or setting.rows.target_shape != (1,):
        return False, choice
    known, apart = sides.known_and_apart()
    known = sides.some(known, setting.options.known_rows)
    take = setting.rows.take
    with budget.step("linear part"):
        trial = try_linear(
            take(np.sort(known)),
            take(np.sort(apart)),
            choice.form.kernel(choice.best, choice.learner),
            choice.best.alpha,
            setting.options,
            wanted.alphas is None,
        )
    if not trial.pays:
        return False, choice
    return True, replace(choice, best=replace(choice.best, alpha=trial.alpha))


def _whole(
    shown: Source, among: Rows, sides: Sides, folds: list[Any], choice: KernelChoice
) -> tuple[Any, list[Held]]:
    """Rows in memory, and the splits of them that judge losses."""
    if folds:
        return shown.take(np.arange(shown.shape[0])), [held_of(*one) for one in folds]
    known, apart = (np.sort(one) for one in sides.known_and_apart())
    known = np.sort(sides.some(known, sides.setting.options.known_rows))
    together = np.union1d(known, apart)
    held = Held(
        np.searchsorted(together, known), np.searchsorted(together, apart), candidates_of(choice)
    )
    return shown.take(together), [held]


def _safe_alpha(
    setting: Setting,
    choice: KernelChoice,
    among: Rows,
    linear: bool,
    budget: Budget,
    wanted: Wanted,
) -> float:
    """The alpha, or a larger one if the leave-one-out errors of all these rows ask for it.

    Once the target has chosen the rates, the alpha of the lowest leave-one-out error is too
    small rather than too large: an even smaller one is certainly wrong. A few hundred rows that
    judge may hold none of the wild ones for which a larger one is needed. Some of many rows
    would not do: where rows have near twins, a part of them asks for too large an alpha.
    """
    options, alpha = setting.options, choice.best.alpha
    many = len(among) > options.left_out_at_last
    if many or linear or wanted.alphas is not None or wanted.max_order is not None or budget.late():
        return alpha
    judge = setting.left_out(among, among)
    step = options.alpha_step
    with budget.step("width and alpha"), one_thread_in_blas():
        ridges = judge.ridges(choice.form.kernel(choice.best, choice.learner))
        error, larger = judge.errors(ridges, np.array([alpha, alpha * step]))
        while larger <= (1.0 - options.sparing) * error:
            alpha, error = alpha * step, larger
            if alpha * step > ALPHA_BOUNDS[1] or budget.late():
                break
            larger = judge.errors(ridges, np.array([alpha * step]))[0]
    return alpha


def _warn_at_edge(choice: KernelChoice, options: LearnOptions, wanted: Wanted) -> None:
    """Warn if the best width is the last that was allowed."""
    best = choice.best
    inside = options.widest * options.step <= best.factor <= options.narrowest / options.step
    known = len(choice.learner.rows) >= FEW_ROWS and best.rmse < 0.98
    if wanted.max_order is None and known and not inside:
        warnings.warn(
            f"the best width lies at the edge of the search (rates x {best.factor:g}): the "
            "learned kernel may not suit this table; pass features= with a kernel of your own "
            "to compare",
            UserWarning,
            stacklevel=4,
        )


def _report(
    rows: Source, choice: KernelChoice, solved: SolverChoice, n_held_out: int, held: HeldOut | None
) -> Report:
    tried: tuple[Judged, ...] = choice.tried
    return Report(
        rows.shape[0],
        n_held_out,
        None,
        None,
        np.array([_named(one) for one in tried], dtype=object),
        np.array([one.alpha for one in tried]),
        choice.scale * np.array([one.rmse for one in tried]),
        held_out=held,
    )


def _named(one: Judged) -> str:
    """A kernel that was tried, in a few words."""
    rates = f"{len(one.fit.columns)} columns" if one.is_learned else "equal rates"
    mixed = f", {one.share:.0%} of their mean" if one.share else ""
    return f"{one.fit.family}, {rates} x {one.factor:g}{mixed}"
