"""The choice of a kernel of main effects and interactions.

As for product kernels, what the likelihood cannot know is judged on rows outside of those that the
kernel was learned from: the family, one common factor of all rates, and alpha. The variances of the
parts are learned anew for each of these rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kernelsieve.kernels import Anova
from kernelsieve.kernels.likelihood.learner import SCREENED_ROWS, Learner, best_of_families
from kernelsieve.kernels.likelihood.parts import PartsFit, learn_parts
from kernelsieve.kernels.likelihood.rates import Fit
from kernelsieve.learning.budget import Budget
from kernelsieve.learning.candidate import Judged
from kernelsieve.learning.options import LearnOptions
from kernelsieve.learning.product_choice import REFINED_BY, SCREENED_BY, KernelChoice
from kernelsieve.learning.sides import Sides
from kernelsieve.learning.walk import Walk, best_of

FAMILIES = ("laplacian", "matern32", "gaussian")
FIRST_FACTOR = 2.0  # of rates that were learned for a product of all columns
FACTOR_STEP = 4.0
OPTIONS = LearnOptions(
    step=FACTOR_STEP,
    narrowest=FIRST_FACTOR * FACTOR_STEP,
    widest=FIRST_FACTOR / FACTOR_STEP,
    alpha_step=2.0,
    alpha_sides=2,
    known_rows=1200,
    final_rows=4000,
    handicap=0.01,
)


@dataclass
class PartsForm:
    """The kernel of parts whose variances were learned for these rates.

    Attributes
    ----------
    max_order : int
        Columns of the largest part.
    sparing : float
        An alpha that is worse by so much is as good.
    deadline : float
    learned : dict
        Variances that are known, by the rates, their factor and the rows.
    """

    max_order: int
    sparing: float
    deadline: float = math.inf
    learned: dict[tuple[Fit, float, Learner], PartsFit] = field(default_factory=dict)

    def kernel(self, judged: Judged, learner: Learner) -> Anova:
        """The kernel that was judged."""
        return self.parts(judged.fit, judged.factor, learner).kernel

    def start(self, judged: Judged, learner: Learner) -> float:
        """The alpha of the likelihood."""
        return self.likely_alpha(judged, learner)

    def likely_alpha(self, judged: Judged, learner: Learner) -> float:
        """That of these variances."""
        return self.parts(judged.fit, judged.factor, learner).alpha

    def pick(self, alphas: list[float], errors: list[float], likely: float, spare: float) -> int:
        """The alpha next to that of the likelihood among those that are about as good.

        The rows that judge are predicted from fewer rows than there will be, which asks for a
        larger alpha.
        """
        limit = (1.0 + self.sparing) * min(errors)
        good = [place for place, error in enumerate(errors) if error <= limit]
        return min(good, key=lambda place: abs(math.log(alphas[place] / likely)))

    def parts(self, fit: Fit, factor: float, learner: Learner) -> PartsFit:
        """The variances of all parts for these rates, learned once."""
        key = fit, factor, learner
        if key not in self.learned:
            n_rows = SCREENED_ROWS if fit.n_rows <= SCREENED_ROWS else None
            self.learned[key] = learn_parts(
                learner, fit, factor, self.max_order, n_rows, self.deadline
            )
        return self.learned[key]


def choose_parts(
    sides: Sides, budget: Budget, alphas: NDArray[np.float64] | None, max_order: int
) -> KernelChoice:
    """Choose a kernel of parts of at most ``max_order`` columns."""
    setting, learner = sides.setting, sides.learner()
    options = setting.options
    form = PartsForm(max_order, options.sparing, budget.deadline)
    walk = Walk(sides.compare(), learner, form, alphas, options, budget.deadline, setting.n_jobs)
    with budget.step("likelihood"):
        screened = learner.screen(FAMILIES, budget.after(SCREENED_BY), setting.verbose)
    # The best of the smooth families, and the rough one.
    fits = best_of_families(screened)[:2]
    with budget.step("judging kernels"):
        tried = walk.all_judged(Judged(fit, FIRST_FACTOR, 0.0, 1.0, math.inf) for fit in fits)
    best = min(tried, key=lambda one: _with_handicap(one, options.handicap))
    if not budget.late():
        fit = best.fit
        if learner.n_rows > SCREENED_ROWS:
            with budget.step("likelihood"):
                fit = learner.refine([fit], budget.after(REFINED_BY), setting.verbose)[0]
        with budget.step("judging kernels"):
            climbed = walk.climb(walk.judged(replace(best, fit=fit)))
        tried = [*tried, *climbed]
        # What more rows have learned may seem worse at some rows by chance.
        if best_of(climbed).rmse < (1.0 + options.handicap) * best.rmse:
            best = best_of(climbed)
    final = None if budget.late() else sides.settle()
    if final is not None:
        with budget.step("width and alpha"):
            best = replace(walk, errors=final).judged(best)
        tried = [*tried, best]
    scale = math.sqrt(float(np.mean(walk.errors.size**2)))
    return KernelChoice(best, learner, form, tuple(tried), scale)


def _with_handicap(one: Judged, handicap: float) -> float:
    """The error, larger for smooth families: with more rows the rough one gains more."""
    return one.rmse * (1.0 if one.fit.family == "laplacian" else 1.0 + handicap)
