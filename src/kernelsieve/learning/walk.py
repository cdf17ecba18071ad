"""Steps of width and alpha: which kernel of a few rates predicts other rows best."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._parallel import one_thread_in_blas, ordered_map
from kernelsieve.kernels.likelihood.learner import Learner
from kernelsieve.kernels.likelihood.rates import Fit
from kernelsieve.learning.candidate import ALPHA_BOUNDS, Form, Judged, shorter
from kernelsieve.learning.errors import OnLandmarks, RidgeErrors
from kernelsieve.learning.options import LearnOptions


def best_of(tried: Iterable[Judged]) -> Judged:
    """The one with the smallest error."""
    return min(tried, key=lambda judged: judged.rmse)


@dataclass(frozen=True)
class Walk:
    """What judges kernels, and how far it looks around them.

    Attributes
    ----------
    errors : RidgeErrors
        The rows that judge.
    learner : Learner
        The rows that rates come from.
    form : Form
        What kernel stands for rates.
    alphas : ndarray or None
        The only ridges to choose from.
    options : LearnOptions
    deadline : float
        The ``time.monotonic()`` after which no other width is tried.
    n_jobs : int or None
    """

    errors: RidgeErrors
    learner: Learner
    form: Form
    alphas: NDArray[np.float64] | None
    options: LearnOptions
    deadline: float = math.inf
    n_jobs: int | None = None

    def late(self) -> bool:
        """Whether nothing more is to be tried."""
        return time.monotonic() > self.deadline

    @property
    def spare(self) -> float:
        """The share by which a narrower kernel or a larger alpha may be worse."""
        return self.options.spare_digits if isinstance(self.errors, OnLandmarks) else 0.0

    def judged(self, start: Judged) -> Judged:
        """The best alpha of a kernel: from that of the start on, as long as the error falls."""
        middle = self.form.start(start, self.learner)
        with one_thread_in_blas():
            ridges = self.errors.ridges(self.form.kernel(start, self.learner))
            alphas, errors = self._along_alphas(ridges, middle)
        place = self.form.pick(alphas, errors, middle, self.spare)
        return replace(start, alpha=float(alphas[place]), rmse=float(errors[place]))

    def _along_alphas(self, ridges: Any, middle: float) -> tuple[list[float], list[float]]:
        def errors_at(*alphas: float) -> list[float]:
            return list(self.errors.errors(ridges, np.array(alphas)))

        if self.alphas is not None:
            return list(self.alphas), errors_at(*self.alphas)
        if isinstance(self.errors, OnLandmarks):  # one eigendecomposition serves all
            many = list(np.logspace(-8.0, 4.0, 25))
            return many, errors_at(*many)
        step, sides = self.options.alpha_step, self.options.alpha_sides
        middle = min(max(middle, ALPHA_BOUNDS[0] * step), ALPHA_BOUNDS[1] / step)
        alphas = [middle * step**power for power in range(-sides, sides + 1)]
        errors = errors_at(*alphas)
        while np.argmin(errors) == 0 and alphas[0] > ALPHA_BOUNDS[0]:
            alphas.insert(0, alphas[0] / step)
            errors = [*errors_at(alphas[0]), *errors]
        while np.argmin(errors) == len(errors) - 1 and alphas[-1] < ALPHA_BOUNDS[1]:
            alphas.append(alphas[-1] * step)
            errors += errors_at(alphas[-1])
        return alphas, errors

    def all_judged(self, starts: Iterable[Judged]) -> list[Judged]:
        """Several kernels, as they are."""
        return list(ordered_map(self.judged, list(starts), self.n_jobs))

    def climb_all(self, fits: list[Fit]) -> list[Judged]:
        """The kernels of these rates, and other widths of the first and of those not far behind.

        The first one is the likelihood's own choice.
        """
        firsts = self.all_judged(Judged(fit, 1.0, 0.0, fit.alpha, math.inf) for fit in fits)
        limit = (1.0 + self.options.behind) * best_of(firsts).rmse
        near = [firsts[0], *(one for one in firsts[1:] if one.rmse <= limit)]
        climbs = ordered_map(self.climb, near, self.n_jobs)
        return [*firsts, *(one for climb in climbs for one in climb[1:])]

    def climb(self, first: Judged) -> list[Judged]:
        """A kernel that was judged, and widths on the side on which the error falls."""
        best, found = first, [first]
        for step in (1.0 / self.options.step, self.options.step):
            next_one = self._at(replace(first, factor=first.factor * step))
            while next_one is not None:
                found.append(next_one)
                gain = best.rmse - next_one.rmse
                best = best_of([best, next_one])
                if gain < self.options.worth * next_one.rmse:
                    break
                next_one = self._at(replace(best, factor=next_one.factor * step))
            if best is not first:
                break
        return found

    def settled(self, start: Judged) -> tuple[Judged, list[Judged]]:
        """The width and alpha of a kernel on more rows, and all that was tried for it."""
        found = self.climb(self.judged(start))
        limit = (1.0 + self.spare) * best_of(found).rmse
        return max((o for o in found if o.rmse <= limit), key=lambda o: o.factor), found

    def _at(self, one: Judged) -> Judged | None:
        """One more factor, if it is within bounds and there is time."""
        within = self.options.widest <= one.factor <= self.options.narrowest
        return self.judged(one) if within and not self.late() else None

    def varied(self, best: Judged) -> tuple[Judged, list[Judged]]:
        """The same kernel with fewer columns, or with rates nearer to their mean; all tried."""
        shared = [replace(best, share=share) for share in self.options.shares]
        fewer = [replace(best, fit=fit) for fit in shorter(best.fit, self.options.tails)]
        tried = self.all_judged([*shared, *fewer])
        best = best_of([best, *tried])
        limit = (1.0 + self.options.sparing) * best.rmse
        for one in reversed(tried[len(shared) :]):  # the shortest first
            if one.rmse <= limit:
                return one, tried
        return best, tried
