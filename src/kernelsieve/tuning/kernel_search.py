"""The search for a learned kernel: rates on some rows; family, width and alpha on others.

The rates come from the likelihood of rows A (``kernels.learn``). What the likelihood cannot know is
judged on rows outside A, by the error of ridges: which family, which columns, one common factor of
all rates, how far they should go back to their mean, and alpha. The kernel with equal rates takes
part, so that nothing is learned where learning does not pay.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelsieve._parallel import one_thread_in_blas, ordered_map
from kernelsieve._random import keyed_rows
from kernelsieve.kernels import Anova, Product
from kernelsieve.kernels.families import log_distances
from kernelsieve.kernels.learning.learner import (
    LEARNABLE,
    SCREENED_ROWS,
    Learner,
    best_of_families,
)
from kernelsieve.kernels.learning.rates import Fit
from kernelsieve.kernels.matrix import product_work
from kernelsieve.sources.base import Source
from kernelsieve.tuning.judge import Judge
from kernelsieve.tuning.learn_options import LearnOptions
from kernelsieve.tuning.ridge_errors import LeftOut, OnLandmarks, RidgeErrors, SetApart

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

FEW_ROWS = 200  # of fewer a best width means little, and nobody is warned of it
SCREENED_BY, REFINED_BY = 0.5, 0.8  # of the time: families are searched, rates are refined
ALPHA_BOUNDS = (1e-7, 1e6)
LINEAR_FAMILY = "gaussian"  # x.y is the limit of wide ones


@dataclass(frozen=True)
class Judged:
    """One kernel on the rows that judge.

    Attributes
    ----------
    fit : Fit
        Where its rates come from.
    factor : float
        Of its rates.
    share : float
        Of their mean in each of them.
    alpha : float
        The best one.
    rmse : float
        In units of the target's standard deviation.
    """

    fit: Fit
    factor: float
    share: float
    alpha: float
    rmse: float


@dataclass(frozen=True)
class Candidate:
    """A kernel, and the alpha of its ridge."""

    kernel: Product | Anova
    alpha: float


@dataclass(frozen=True)
class Held:
    """Kernels that were chosen without some rows.

    Attributes
    ----------
    known, apart : ndarray of int
        The rows that had a part in the choice, and those that had none.
    candidates : tuple of Candidate
        The chosen kernel, and simpler ones.
    """

    known: Rows
    apart: Rows
    candidates: tuple[Candidate, ...]


def adjusted(kernel: Product, factor: float, share: float) -> Product:
    """The same kernel with rates that are mixed with their mean and multiplied by a factor."""
    rates = np.asarray(kernel.rates)
    mixed = factor * ((1.0 - share) * rates + share * rates.mean())
    return replace(kernel, rates=tuple(mixed.tolist()))


@dataclass
class KernelSearch:
    """The choice of a kernel among some of the rows."""

    zero_means: ClassVar[bool] = False  # of the kernel's functions: only an intercept has a mean

    rows: Source
    judge: Judge
    alphas: Array | None
    fit_intercept: bool
    options: LearnOptions
    deadline: float
    seed: int
    n_jobs: int | None
    verbose: int
    exact: bool
    simpler: bool = False
    left_out: bool = True
    tried: list[Judged] = field(default_factory=list)
    simple: list[Judged] = field(default_factory=list)
    scale: float = 1.0

    def run(self, among: Rows) -> tuple[Judged, Learner, Judged | None]:
        """Choose a kernel by some of the rows; and one for the exact kernel beside landmarks."""
        options = self.options
        learners, others = self._divided(among)
        learner = self._learner(learners)
        compare = self._compare(among, learners, others)
        self.scale = math.sqrt(float(np.mean(compare.size**2)))
        screened, refined = self._after(SCREENED_BY), self._after(REFINED_BY)
        fits = best_of_families(learner.screen(LEARNABLE, screened, self.verbose))
        fits = [*fits[: options.families], *(learner.equal(family) for family in options.equal)]
        found = self._climb_all(compare, learner, fits)
        if self.simpler:
            self.simple = self._simple(compare, learner, found)
        best = min(
            found,
            key=lambda one: one.rmse * (1.0 if one.fit.iterations else 1.0 + options.handicap),
        )
        if best.fit.iterations and not self._late():
            rival, sides = self._other_kind(best, found), (among, learners, others)
            best = self._improved(compare, learner, best, refined)
            if rival is not None and self._gains_more(rival, best, learner, sides):
                best = self._improved(compare, learner, rival, refined)
        full = None
        if not self.exact and self._is_affordable(best, learner):
            full = self._settled(self._apart(among, learners, others), learner, best)
        final = self._apart if self.exact else self._on_landmarks
        return self._settled(final(among, learners, others), learner, best), learner, full

    def _improved(
        self, compare: RidgeErrors, learner: Learner, best: Judged, limit: float
    ) -> Judged:
        """The same family with rates that all rows of the learner have refined."""
        best = self._varied(compare, learner, best)
        if learner.n_rows <= SCREENED_ROWS or self._late():
            return best
        fits = [best.fit, *learner.widened(best.fit)]
        refined = learner.refine(fits, limit, self.verbose)
        again = self._best(self._climb_all(compare, learner, refined))
        return self._best([best, self._varied(compare, learner, again)])

    def _other_kind(self, best: Judged, found: list[Judged]) -> Judged | None:
        """The best learned kernel that is rough if this one is smooth, if it is not far behind."""
        rough = best.fit.family == "laplacian"
        others = (o for o in found if o.fit.iterations and (o.fit.family == "laplacian") != rough)
        rival = min(others, key=lambda one: one.rmse, default=None)
        close = rival is not None and rival.rmse < (1.0 + self.options.rivals) * best.rmse
        return rival if close else None

    def _gains_more(
        self, rival: Judged, best: Judged, learner: Learner, sides: tuple[Rows, Rows, Rows]
    ) -> bool:
        """Whether a kernel of the other kind will be better with all rows.

        Learning curves of rough and smooth kernels cross: where rows have near twins, a rough one
        gains far more from the rows that are still to come. Both are judged with some rows and with
        half of them, and their errors are continued as powers of the number of rows.
        """
        options, many = self.options, len(sides[0]) > self.options.left_out_rows
        if not (self.exact and self.judge.free and many) or self._late():
            return False
        known, apart = self._known_and_apart(*sides)
        size = min(options.final_rows, len(known))
        doublings = min(math.log2(len(known) / size), options.foresight)
        judges = [self._set_apart(self._some(known, rows), apart) for rows in (size // 2, size)]
        pairs = [(judge, one) for judge in judges for one in (rival, best)]
        judged = ordered_map(
            lambda pair: self._judged(pair[0], learner, pair[1]), pairs, self.n_jobs
        )
        half, whole = np.log([one.rmse for one in judged]).reshape(2, 2)
        foreseen = whole + doublings * np.minimum(whole - half, 0.0)
        return bool(foreseen[0] < foreseen[1])

    def _settled(self, final: RidgeErrors | None, learner: Learner, best: Judged) -> Judged:
        """The width and alpha of a kernel as it will be used."""
        if final is None or self._late():
            return best
        settled = self._climb(final, learner, best)
        self.tried += settled
        limit = (1.0 + self._spare(final)) * self._best(settled).rmse
        return max((one for one in settled if one.rmse <= limit), key=lambda one: one.factor)

    def _spare(self, judge: RidgeErrors) -> float:
        return self.options.spare_digits if isinstance(judge, OnLandmarks) else 0.0

    def _is_affordable(self, best: Judged, learner: Learner) -> bool:
        work = product_work(self.kernel(best, learner), *self.rows.shape)
        return self.rows.resident and work <= self.options.full_work and not self._late()

    def repeated(self, best: Judged, learner: Learner) -> tuple[list[Held], Array]:
        """A smaller search that is repeated without each fold, and its residuals at the folds."""
        n = self.rows.shape[0]
        options = replace(self.options, learn_rows=SCREENED_ROWS, families=1)
        smaller = replace(self, options=options, tried=[], verbose=0)
        held, residuals = [], []
        splits = self.judge.folds(min(self.options.folds, n)) if n > 1 else []
        for choose, apart in (map(np.sort, split) for split in splits):
            if not self._late():
                best, learner, _ = smaller.run(choose)
            found = self.residuals(self.kernel(best, learner), best.alpha, choose, apart)
            held.append(Held(choose, apart, smaller.candidates(best, learner)))
            residuals.append(found)
        return held, np.concatenate(residuals)

    def candidates(self, best: Judged, learner: Learner) -> tuple[Candidate, ...]:
        """The chosen kernel, and the simpler ones on the learner's columns."""
        simple = [replace(one, fit=learner.equal(one.fit.family)) for one in self.simple]
        return tuple(
            Candidate(self.kernel(one, learner), one.alpha)
            for one in ([best, *simple] if self.simpler else [])
        )

    def _simple(self, compare: RidgeErrors, learner: Learner, found: list[Judged]) -> list[Judged]:
        """A kernel that is almost linear, and the best of each family with equal rates."""
        start = learner.equal(LINEAR_FAMILY)
        linear = Judged(start, self.options.linear, 0.0, start.alpha, math.inf)
        equal = [
            self._best(one for one in found if one.fit.family == family and not one.fit.iterations)
            for family in self.options.equal
        ]
        return [self._judged(compare, learner, linear), *equal]

    def kernel(self, judged: Judged, learner: Learner) -> Product | Anova:
        """The kernel that was judged."""
        return adjusted(judged.fit.kernel(learner.columns), judged.factor, judged.share)

    def residuals(self, kernel: Product | Anova, alpha: float, known: Rows, apart: Rows) -> Array:
        """Residuals at rows that had no part in a choice, of ridges as all rows will have them.

        Each row is predicted from all others: they had no part in the choice either, and a ridge
        without a part of the rows would be worse than the one that is fitted. Where rows belong
        together or follow each other, or by request, from the rows that chose alone.
        """
        judge = self._left_out if self.left_out and self.judge.free else self._set_apart
        with one_thread_in_blas():
            return judge(known, apart).ridges(kernel)(np.array([alpha]))[0]

    def again(self, best: Judged) -> tuple[Judged, Learner]:
        """The same choice, with rates learned from all rows."""
        learner = self._learner(None)
        alpha, step = best.alpha, self.options.alpha_step
        if best.fit.iterations:
            fit = learner.refine([best.fit], self.deadline, self.verbose)[0]
            alpha *= min(max(fit.alpha / best.fit.alpha, 1.0 / step), step)
        else:
            fit = learner.equal(best.fit.family)
        again = replace(best, fit=fit, alpha=alpha if self.alphas is None else best.alpha)
        return self.with_safe_alpha(again, learner, np.arange(self.rows.shape[0])), learner

    def with_safe_alpha(self, judged: Judged, learner: Learner, among: Rows) -> Judged:
        """The same, with a larger alpha if the leave-one-out errors of these rows ask for it.

        Once the target has chosen the rates, the alpha of the lowest leave-one-out error is too
        small rather than too large: an even smaller one is certainly wrong. A few hundred rows that
        judge may hold none of the wild ones for which a larger one is needed. Some of many rows
        would not do: where rows have near twins, a part of them asks for too large an alpha.
        """
        many = len(among) > self.options.left_out_at_last
        if many or self.alphas is not None or self._late():
            return judged
        rows = self.rows.take(among)
        judge = LeftOut(rows, np.ones(len(rows.y), dtype=bool), *self._ridge())
        kernel, step, alpha = self.kernel(judged, learner), self.options.alpha_step, judged.alpha
        with one_thread_in_blas():
            ridges = judge.ridges(kernel)
            error, larger = judge.errors(ridges, np.array([alpha, alpha * step]))
            while larger <= (1.0 - self.options.sparing) * error:
                alpha, error = alpha * step, larger
                if alpha * step > ALPHA_BOUNDS[1] or self._late():
                    break
                larger = judge.errors(ridges, np.array([alpha * step]))[0]
        return replace(judged, alpha=alpha)

    def finished(self, kernel: Product | Anova) -> Product | Anova:
        """The kernel for the model of all rows."""
        return kernel

    # --- rows that judge -------------------------------------------------------------------------

    def _divided(self, among: Rows) -> tuple[Rows, Rows]:
        """Rows to learn from, and rows that judge what was learned."""
        n, options = len(among), self.options
        if n <= 3:
            return among, among
        size = max(n // 4, min(options.judged_rows, n - 2 * options.learn_rows))
        return self.judge.set_apart(size, among)

    def _learner(self, among: Rows | None) -> Learner:
        return Learner.on(
            self.rows, self.options.learn_rows, among=among, seed=self.seed, n_jobs=self.n_jobs
        )

    def _compare(self, among: Rows, learners: Rows, others: Rows) -> RidgeErrors:
        """Rows that compare kernels: quick, with the exact kernel of some rows."""
        options = self.options
        if self.judge.free and len(among) <= options.left_out_rows:
            return self._left_out(among, others)
        known, apart = self._known_and_apart(among, learners, others)
        return self._set_apart(self._some(known, options.known_rows), apart)

    def _known_and_apart(self, among: Rows, learners: Rows, others: Rows) -> tuple[Rows, Rows]:
        """Rows that judge, and all rows that they may be predicted from: these come first."""
        apart = others[keyed_rows(len(others), self.options.apart_rows, self.seed, "judge")]
        return (np.setdiff1d(among, apart) if self.judge.free else learners), apart

    def _some(self, known: Rows, n_rows: int) -> Rows:
        return known[keyed_rows(len(known), n_rows, self.seed, "known")]

    def _on_landmarks(self, among: Rows, learners: Rows, others: Rows) -> RidgeErrors:
        """Rows that settle width and alpha of landmarks."""
        options = self.options
        chosen = others[keyed_rows(len(others), options.judged_rows, self.seed, "judge")]
        landmarks = keyed_rows(len(learners), options.judged_landmarks, self.seed, "landmarks")
        return OnLandmarks(
            self.rows.take(chosen),
            np.ones(len(chosen), dtype=bool),
            self.fit_intercept,
            self.rows.take(learners[landmarks]).X,
            self.n_jobs,
        )

    def _apart(self, among: Rows, learners: Rows, others: Rows) -> RidgeErrors | None:
        """Rows that settle those of the exact kernel; None if they did that already."""
        options = self.options
        known, apart = self._known_and_apart(among, learners, others)
        known = self._some(known, options.final_rows)
        if len(known) < 1.3 * options.known_rows:
            return None
        return self._set_apart(known, apart)

    def _set_apart(self, known: Rows, apart: Rows) -> RidgeErrors:
        return self._judges(SetApart, known, apart)

    def _left_out(self, known: Rows, apart: Rows) -> RidgeErrors:
        return self._judges(LeftOut, known, apart)

    def _judges(
        self, kind: type[LeftOut] | type[SetApart], known: Rows, apart: Rows
    ) -> RidgeErrors:
        """Rows that judge, and those that they are predicted from."""
        together = np.union1d(known, apart)
        judges = np.isin(together, apart)
        return kind(self.rows.take(together), judges, *self._ridge())

    def _ridge(self) -> tuple[bool, int | None, bool]:
        """How a judge solves for its ridges."""
        return self.fit_intercept, self.n_jobs, self.fit_intercept and self.zero_means

    # --- the search ------------------------------------------------------------------------------

    def _after(self, share: float) -> float:
        """When a share of the time from now to the deadline will be over."""
        now = time.monotonic()
        return now + share * (self.deadline - now)

    def _late(self) -> bool:
        return time.monotonic() > self.deadline

    def _best(self, tried: Iterable[Judged]) -> Judged:
        return min(tried, key=lambda judged: judged.rmse)

    def _climb_all(self, judge: RidgeErrors, learner: Learner, fits: list[Fit]) -> list[Judged]:
        starts = [Judged(fit, 1.0, 0.0, fit.alpha, math.inf) for fit in fits]
        climbs = ordered_map(lambda start: self._climb(judge, learner, start), starts, self.n_jobs)
        found = [judged for climb in climbs for judged in climb]
        self.tried += found
        return found

    def _climb(self, judge: RidgeErrors, learner: Learner, start: Judged) -> list[Judged]:
        """Factors from that of the start on, in the direction in which the error falls."""
        options = self.options
        first = best = self._judged(judge, learner, start)
        found = [first]
        steps = (1.0 / options.step, options.step)
        for step, next_one in zip(steps, self._neighbours(judge, learner, first), strict=True):
            while next_one is not None:
                found.append(next_one)
                gain = best.rmse - next_one.rmse
                best = self._best([best, next_one])
                if gain < options.worth * next_one.rmse:
                    break
                next_one = self._at(judge, learner, replace(best, factor=next_one.factor * step))
            if best is not first:
                break
        return found

    def _neighbours(
        self, judge: RidgeErrors, learner: Learner, first: Judged
    ) -> Iterable[Judged | None]:
        """The factor below and the one above: at once where a thread is idle, else when asked."""
        step = self.options.step
        around = [replace(first, factor=first.factor * change) for change in (1.0 / step, step)]
        return ordered_map(lambda one: self._at(judge, learner, one), around, self.n_jobs)

    def _at(self, judge: RidgeErrors, learner: Learner, one: Judged) -> Judged | None:
        """One more factor, if it is within bounds and there is time."""
        within = self.options.widest <= one.factor <= self.options.narrowest
        return self._judged(judge, learner, one) if within and not self._late() else None

    def _varied(self, judge: RidgeErrors, learner: Learner, best: Judged) -> Judged:
        """The same kernel with fewer columns, or with rates nearer to their mean."""
        shared = [replace(best, share=share) for share in self.options.shares]
        fewer = [replace(best, fit=fit) for fit in self._shorter(best.fit)]
        tried = list(
            ordered_map(
                lambda one: self._judged(judge, learner, one), [*shared, *fewer], self.n_jobs
            )
        )
        self.tried += tried
        best = self._best([best, *tried])
        limit = (1.0 + self.options.sparing) * best.rmse
        for one in reversed(tried[len(shared) :]):  # the shortest first
            if one.rmse <= limit:
                return one
        return best

    def _shorter(self, fit: Fit) -> list[Fit]:
        """The same without its weakest columns, a few and then more of them."""
        rates = fit.rates.sum(axis=0)
        effects = log_distances(rates, [fit.family] * len(rates))
        order = np.argsort(effects, kind="stable")
        tail = np.cumsum(effects[order]) / effects.sum()
        counts = sorted({int((tail <= share).sum()) for share in self.options.tails} - {0})
        return [fit.restricted(np.sort(order[count:])) for count in counts]

    def _judged(self, judge: RidgeErrors, learner: Learner, start: Judged) -> Judged:
        """The best alpha of a kernel: from that of the start on, as long as the error falls."""
        options, step = self.options, self.options.alpha_step
        with one_thread_in_blas():
            ridges = judge.ridges(self.kernel(start, learner))

            def errors_at(*alphas: float) -> list[float]:
                return list(judge.errors(ridges, np.array(alphas)))

            if self.alphas is not None:
                alphas = list(self.alphas)
                errors = errors_at(*alphas)
            elif isinstance(judge, OnLandmarks):  # one eigendecomposition serves all
                alphas = list(np.logspace(-8.0, 4.0, 25))
                errors = errors_at(*alphas)
            else:
                middle = min(max(start.alpha, ALPHA_BOUNDS[0] * step), ALPHA_BOUNDS[1] / step)
                sides = range(-options.alpha_sides, options.alpha_sides + 1)
                alphas = [middle * step**power for power in sides]
                errors = errors_at(*alphas)
                while np.argmin(errors) == 0 and alphas[0] > ALPHA_BOUNDS[0]:
                    alphas.insert(0, alphas[0] / step)
                    errors = [*errors_at(alphas[0]), *errors]
                while np.argmin(errors) == len(errors) - 1 and alphas[-1] < ALPHA_BOUNDS[1]:
                    alphas.append(alphas[-1] * step)
                    errors += errors_at(alphas[-1])
        best = self._pick(alphas, errors, judge, start, learner)
        return replace(start, alpha=float(alphas[best]), rmse=float(errors[best]))

    def _pick(
        self,
        alphas: list[float],
        errors: list[float],
        judge: RidgeErrors,
        start: Judged,
        learner: Learner,
    ) -> int:
        """The place of the alpha to take."""
        near = np.flatnonzero(np.array(errors) <= (1.0 + self._spare(judge)) * min(errors))
        return int(max(near, key=lambda number: alphas[number]))

    def warn_at_edge(self, best: Judged, n_rows: int) -> None:
        """Warn if the best width is the last that was allowed."""
        options = self.options
        inside = options.widest * options.step <= best.factor <= options.narrowest / options.step
        if not inside and n_rows >= FEW_ROWS and best.rmse < 0.98:
            warnings.warn(
                f"the best width lies at the edge of the search (rates x {best.factor:g}): the "
                "learned kernel may not suit this table; pass features= with a kernel of your own "
                "to compare",
                UserWarning,
                stacklevel=5,
            )
