"""The choice of a product kernel: rates by likelihood, the rest by the errors at other rows.

What the likelihood cannot know is judged on rows that the rates did not see: which family, which
columns, one common factor of all rates, how far they should go back to their mean, and alpha. The
kernel with equal rates takes part, so that nothing is learned where learning does not pay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kernelsieve.kernels.likelihood.learner import (
    LEARNABLE,
    SCREENED_ROWS,
    Learner,
    best_of_families,
)
from kernelsieve.kernels.likelihood.rates import Fit
from kernelsieve.learning.budget import Budget
from kernelsieve.learning.candidate import Form, Judged, ProductForm
from kernelsieve.learning.sides import Setting, Sides
from kernelsieve.learning.walk import Walk, best_of

SCREENED_BY, REFINED_BY = 0.5, 0.8  # of the time: families are searched, rates are refined
LINEAR_FAMILY = "gaussian"  # x.y is the limit of wide ones

Array = NDArray[np.float64]


@dataclass(frozen=True)
class KernelChoice:
    """The kernel that was chosen among some of the rows.

    Attributes
    ----------
    best : Judged
    learner : Learner
        The rows whose likelihood it comes from.
    form : Form
    tried : tuple of Judged
    scale : float
        The target's standard deviation, in which errors are measured.
    simple : tuple of Judged
        The best kernel that is almost linear, and the best one of each family with equal rates.
    exact : Judged
        The same kernel for the exact ridge, if ``best`` is for landmarks: narrower, as a rule.
    """

    best: Judged
    learner: Learner
    form: Form
    tried: tuple[Judged, ...]
    scale: float
    simple: tuple[Judged, ...] = ()
    exact: Judged | None = None


def choose_product(
    sides: Sides, budget: Budget, alphas: Array | None, simpler: bool = False
) -> KernelChoice:
    """Choose a product kernel.

    Parameters
    ----------
    sides : Sides
        Rows that learn and rows that judge.
    budget : Budget
        When to stop.
    alphas : ndarray or None
        The only ridges to choose from.
    simpler : bool
        Whether to name simpler kernels, too.
    """
    setting, form = sides.setting, ProductForm()
    options, learner = setting.options, sides.learner()
    compare = Walk(sides.compare(), learner, form, alphas, options, budget.deadline, setting.n_jobs)
    with budget.step("likelihood"):
        screened = learner.screen(LEARNABLE, budget.after(SCREENED_BY), setting.verbose)
    fits = best_of_families(screened)[: options.families]
    equal = [learner.equal(family) for family in options.equal]
    with budget.step("judging kernels"):
        tried = compare.climb_all([*fits, *equal])
        simple = _simple(compare, tried, equal) if simpler else ()
    best = min(
        tried, key=lambda one: one.rmse * (1.0 if one.is_learned else 1.0 + options.handicap)
    )
    if best.is_learned and not budget.late():
        best, more = _refined(compare, best, tried, budget, sides)
        tried = [*tried, *more]
    scale = math.sqrt(float(np.mean(compare.errors.size**2)))
    choice = KernelChoice(best, learner, form, tuple(tried), scale, simple)
    return _settled(choice, sides, compare, budget)


def again_on_fold(
    choice: KernelChoice, sides: Sides, budget: Budget, alphas: Array | None
) -> KernelChoice:
    """The decisive steps again, without some rows: rates, width and alpha of the family chosen."""
    setting, family = sides.setting, choice.best.fit.family
    learner = sides.learner()
    if choice.best.is_learned:
        fit = min(learner.screen((family,), budget.deadline), key=lambda one: one.value)
    else:
        fit = learner.equal(family)
    walk = Walk(
        sides.compare(),
        learner,
        choice.form,
        alphas,
        setting.options,
        budget.deadline,
        setting.n_jobs,
    )
    tried = walk.climb(walk.judged(replace(choice.best, fit=fit, alpha=fit.alpha)))
    simple = tuple(
        walk.judged(replace(one, fit=learner.equal(one.fit.family))) for one in choice.simple
    )
    return replace(
        choice, best=best_of(tried), learner=learner, tried=tuple(tried), simple=simple, exact=None
    )


def _refined(
    compare: Walk, best: Judged, tried: list[Judged], budget: Budget, sides: Sides
) -> tuple[Judged, list[Judged]]:
    """The best kernel with rates from more rows; of the other kind if that gains more by rows."""
    limit, rival = budget.after(REFINED_BY), _other_kind(best, tried, sides.setting.options.rivals)
    found, more = _improved(compare, best, budget, limit, sides.setting.verbose)
    if rival is None or not gains_more(rival, found, compare, sides, budget):
        return found, more
    other, others = _improved(compare, rival, budget, limit, sides.setting.verbose)
    return other, [*more, *others]


def _improved(
    compare: Walk, best: Judged, budget: Budget, limit: float, verbose: int
) -> tuple[Judged, list[Judged]]:
    """The same family with rates that all rows of the learner have refined; all that was tried."""
    learner = compare.learner
    if learner.n_rows <= SCREENED_ROWS or budget.late():
        with budget.step("judging kernels"):
            return compare.varied(best)
    with budget.step("likelihood"):
        refined = learner.refine([best.fit, *learner.widened(best.fit)], limit, verbose)
    with budget.step("judging kernels"):
        climbed = compare.climb_all(refined)
        found, tried = compare.varied(best_of([best, *climbed]))
    return found, [*climbed, *tried]


def _other_kind(best: Judged, found: list[Judged], rivals: float) -> Judged | None:
    """The best learned kernel that is rough if this one is smooth, if it is not far behind."""
    rough = best.fit.family == "laplacian"
    others = (o for o in found if o.is_learned and (o.fit.family == "laplacian") != rough)
    rival = min(others, key=lambda one: one.rmse, default=None)
    close = rival is not None and rival.rmse < (1.0 + rivals) * best.rmse
    return rival if close else None


def gains_more(rival: Judged, best: Judged, compare: Walk, sides: Sides, budget: Budget) -> bool:
    """Whether a kernel of the other kind will be better with all rows.

    Learning curves of rough and smooth kernels cross: where rows have near twins, a rough one
    gains far more from the rows that are still to come. Both are judged with some rows and with
    half of them, and their errors are continued as powers of the number of rows.
    """
    setting, options = sides.setting, sides.setting.options
    many = len(sides.among) > options.left_out_rows
    if not (setting.exact and setting.judge.free and many) or budget.late():
        return False
    known, apart = sides.known_and_apart()
    size = min(options.final_rows, len(known))
    doublings = min(math.log2(len(known) / size), options.foresight)
    with budget.step("judging kernels"):
        errors = []
        for rows in (size // 2, size):
            judge = setting.set_apart(sides.some(known, rows), apart)
            errors.append(
                [one.rmse for one in replace(compare, errors=judge).all_judged((rival, best))]
            )
    half, whole = np.log(errors)
    foreseen = whole + doublings * np.minimum(whole - half, 0.0)
    return bool(foreseen[0] < foreseen[1])


def _settled(choice: KernelChoice, sides: Sides, compare: Walk, budget: Budget) -> KernelChoice:
    """The width and alpha of the kernel as it will be used."""
    final = None if budget.late() else sides.settle()
    if final is None:
        return choice
    with budget.step("width and alpha"):
        best, tried = replace(compare, errors=final).settled(choice.best)
    return replace(choice, best=best, tried=(*choice.tried, *tried), exact=choice.best)


def _simple(compare: Walk, tried: list[Judged], equal: list[Fit]) -> tuple[Judged, ...]:
    """From the simplest on: almost linear, and the best of each family with equal rates."""
    start = compare.learner.equal(LINEAR_FAMILY)
    linear = Judged(start, compare.options.linear, 0.0, start.alpha, math.inf)
    best = (best_of(one for one in tried if one.fit is fit) for fit in reversed(equal))
    return (compare.judged(linear), *best)


def smaller(setting: Setting) -> Setting:
    """The sizes of a choice that is repeated for each fold."""
    options = replace(setting.options, learn_rows=SCREENED_ROWS, families=1)
    return replace(setting, options=options, verbose=0)
