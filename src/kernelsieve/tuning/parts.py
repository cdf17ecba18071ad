"""A learned kernel of main effects and interactions for a ridge.

As for product kernels (``learned``), what the likelihood cannot know is judged on rows outside of
those that the kernel was learned from: the family, one common factor of all rates, and alpha. The
variances of the parts are learned anew for each of these rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

from kernelsieve.kernels import Anova, Product
from kernelsieve.kernels.learning.learner import SCREENED_ROWS, Learner, best_of_families
from kernelsieve.kernels.learning.parts import PartsFit, learn_parts
from kernelsieve.kernels.learning.rates import Fit
from kernelsieve.sources.base import Source
from kernelsieve.sources.marginals import sampled_rows
from kernelsieve.tuning.kernel_search import (
    REFINED_BY,
    SCREENED_BY,
    Judged,
    KernelSearch,
    Rows,
)
from kernelsieve.tuning.learn_options import LearnOptions
from kernelsieve.tuning.learned import Chosen, choose_learned
from kernelsieve.tuning.ridge_errors import RidgeErrors

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


def choose_parts(rows: Source, max_order: int, **options: Any) -> Chosen:
    """Learn a kernel of parts of at most ``max_order`` columns; the rest as `choose_learned`.

    Returns
    -------
    Chosen
    """
    searcher = partial(PartsSearch, max_order=max_order)
    return choose_learned(rows, searcher=searcher, **({"options": OPTIONS} | options))


@dataclass
class PartsSearch(KernelSearch):
    """The choice of a kernel of parts among some of the rows."""

    zero_means: ClassVar[bool] = True

    max_order: int = 2
    learned: dict[tuple[int, float, int], tuple[Fit, Learner, PartsFit]] = field(
        default_factory=dict
    )

    def run(self, among: Rows) -> tuple[Judged, Learner, Judged | None]:
        learners, others = self._divided(among)
        learner = self._learner(learners)
        compare = self._compare(among, learners, others)
        self.scale = math.sqrt(float((compare.size**2).mean()))
        screened, refined = self._after(SCREENED_BY), self._after(REFINED_BY)
        # The best of the smooth families, and the rough one.
        fits = best_of_families(learner.screen(FAMILIES, screened, self.verbose))[:2]
        starts = [Judged(fit, FIRST_FACTOR, 0.0, 1.0, math.inf) for fit in fits]
        found = [self._judged(compare, learner, start) for start in starts]
        self.tried += found
        best = min(found, key=self._with_handicap)
        if not self._late():
            fit = best.fit
            if learner.n_rows > SCREENED_ROWS:
                fit = learner.refine([fit], refined, self.verbose)[0]
            climbed = self._climb(compare, learner, replace(best, fit=fit))
            self.tried += climbed
            # What more rows have learned may seem worse at some rows by chance.
            if self._best(climbed).rmse < (1.0 + self.options.handicap) * best.rmse:
                best = self._best(climbed)
        final = (self._apart if self.exact else self._on_landmarks)(among, learners, others)
        if final is not None and not self._late():
            best = self._judged(final, learner, best)
            self.tried.append(best)
        return best, learner, None

    def _with_handicap(self, one: Judged) -> float:
        """The error, larger for smooth families: with more rows the rough one gains more."""
        return one.rmse * (1.0 if one.fit.family == "laplacian" else 1.0 + self.options.handicap)

    def kernel(self, judged: Judged, learner: Learner) -> Product | Anova:
        return self._parts(judged, learner).kernel

    def finished(self, kernel: Product | Anova) -> Product | Anova:
        """Centred over all rows, as the distributions that the model remembers."""
        shown = sampled_rows(self.rows)
        return kernel.with_marginals(self.rows[shown]) if isinstance(kernel, Anova) else kernel

    def again(self, best: Judged) -> tuple[Judged, Learner]:
        learner = self._learner(None)
        before, fit = best.fit, best.fit
        if fit.iterations:
            fit = learner.refine([fit], self.deadline, self.verbose)[0]
        new = replace(best, fit=fit)
        if self.alphas is not None:
            return new, learner
        known = next(one for _, _, one in self.learned.values() if one.rates is before)
        change = self._parts(new, learner).alpha / known.alpha
        step = self.options.alpha_step
        return replace(new, alpha=best.alpha * min(max(change, 1.0 / step), step)), learner

    def with_safe_alpha(self, judged: Judged, learner: Learner, among: Rows) -> Judged:
        """The same: `_pick` stays next to the likelihood's alpha, which is not too small."""
        return judged

    def warn_at_edge(self, best: Judged, n_rows: int) -> None:
        """Nothing to warn of: there are three factors, and variances make up for the others."""

    def _judged(self, judge: RidgeErrors, learner: Learner, start: Judged) -> Judged:
        likely = self._parts(start, learner).alpha
        return super()._judged(judge, learner, replace(start, alpha=likely))

    def _pick(
        self,
        alphas: list[float],
        errors: list[float],
        judge: RidgeErrors,
        start: Judged,
        learner: Learner,
    ) -> int:
        """The alpha next to that of the likelihood among those that are about as good.

        The rows that judge are predicted from fewer rows than there will be, which asks for a
        larger alpha.
        """
        likely = math.log(self._parts(start, learner).alpha)
        limit = (1.0 + self.options.sparing) * min(errors)
        good = [place for place, error in enumerate(errors) if error <= limit]
        return min(good, key=lambda place: abs(math.log(alphas[place]) - likely))

    def _parts(self, judged: Judged, learner: Learner) -> PartsFit:
        """The variances of all parts for these rates, learned once."""
        key = id(judged.fit), judged.factor, id(learner)
        if key not in self.learned:
            n_rows = SCREENED_ROWS if judged.fit.n_rows <= SCREENED_ROWS else None
            parts = learn_parts(
                learner, judged.fit, judged.factor, self.max_order, n_rows, self.deadline
            )
            # What is named by its id has to live on.
            self.learned[key] = judged.fit, learner, parts
        return self.learned[key][2]
