"""Kernels of main effects and interactions: which subsets of columns, with which variances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from kernelsieve.kernels.anova import HIGHEST_ORDER, Anova
from kernelsieve.kernels.likelihood.components import Components, VarianceComponents
from kernelsieve.kernels.likelihood.learner import SCREENED_ROWS, Learner
from kernelsieve.kernels.likelihood.rates import Fit
from kernelsieve.kernels.product import Product
from kernelsieve.kernels.subsets import Subset

MOST_SUBSETS = 300  # of each order above 1: those of the strongest columns
# Of the sum of all variances, and of the noise: what falls below both is dropped, on few rows and
# at the end. Without noise a small part is all that is left to explain.
DROPPED, NEGLIGIBLE = (1e-5, 1e-3), (1e-4, 1e-2)
# Steps with one common variance for all subsets of a size, then with one for each subset, on few
# rows and on all. The last are few on purpose: with a hundred variances for some hundred rows the
# likelihood goes on to rise where the error on new rows does not fall, and to stop early keeps the
# variances near the common ones.
COMMON_STEPS, FIRST_STEPS, STEPS = 6, 2, 2
# A search stops when a step gains less than so much in log likelihood, of all rows together: what
# could be gained beyond is what chance has put into these rows.
WORTH = 1.0
# Rates that explain a product of all columns are low for a sum of parts.
FACTORS = (1.0, 4.0)


@dataclass(frozen=True)
class PartsFit:
    """A kernel of parts that was learned.

    Attributes
    ----------
    rates : Fit
        Where the rates come from.
    factor : float
        Of these rates.
    kernel : Anova
        With variances that sum to 1.
    alpha : float
        The ridge that goes with it: noise over the sum of the variances.
    components : Components
        The search on all rows.
    """

    rates: Fit
    factor: float
    kernel: Anova
    alpha: float
    components: Components

    @property
    def value(self) -> float:
        """Negative log likelihood per row and output."""
        return -self.components.evidence[-1]


def subsets_to_try(base: Product, n_columns: int, max_order: int) -> list[Subset]:
    """All columns with a rate, and the subsets of the strongest of them."""
    active = base.active(n_columns)
    relevances = np.broadcast_to(base.relevances(), n_columns)[active]
    strongest = active[np.argsort(-relevances, kind="stable")].tolist()
    subsets: list[Subset] = [(int(i),) for i in active]
    for order in range(2, min(max_order, HIGHEST_ORDER, len(strongest)) + 1):
        count = order
        while count < len(strongest) and math.comb(count + 1, order) <= MOST_SUBSETS:
            count += 1
        subsets += combinations(sorted(strongest[:count]), order)
    return subsets


def learn_parts(
    learner: Learner,
    fit: Fit,
    factor: float,
    max_order: int,
    n_rows: int | None = None,
    deadline: float = math.inf,
) -> PartsFit:
    """Variances of all subsets that are worth trying, for given rates.

    All subsets of a size begin with the same variance, the likeliest one. Many fall to nothing on
    few rows; the others are learned on ``n_rows``, or on all.
    """
    base = fit.kernel(learner.columns).scaled(factor)
    X, n = learner.X, learner.n_rows if n_rows is None else min(n_rows, learner.n_rows)
    subsets = subsets_to_try(base, X.shape[1], max_order)
    kernel = Anova.of(base, X, subsets=subsets)
    few = _components(learner, kernel, min(n, SCREENED_ROWS))
    worth = WORTH / few.target.size
    common = few.search(COMMON_STEPS, worth=worth, deadline=deadline, together=True)
    found = few.search(FIRST_STEPS, common, worth=worth, deadline=deadline)
    if n > SCREENED_ROWS:
        kept = found.variances >= _smallest(found, DROPPED) * found.variances.sum()
        kernel = kernel.with_variances(np.where(kept, 1.0, 0.0))
        start = Components(found.variances[kept], found.noise, (), 0.0)
        more = _components(learner, kernel, n)
        found = more.search(STEPS, start, worth=WORTH / more.target.size, deadline=deadline)
    learned = found.kernel(kernel, _smallest(found, NEGLIGIBLE))
    return PartsFit(fit, factor, learned, found.alpha, found)


def _smallest(found: Components, limits: tuple[float, float]) -> float:
    """The share of the variances below which a subset is dropped."""
    return min(limits[0], limits[1] * found.alpha)


def best_parts(
    learner: Learner, fits: Sequence[Fit], max_order: int, deadline: float
) -> list[PartsFit]:
    """Kernels of parts with the rates of product kernels, the likeliest first."""
    found = [
        learn_parts(learner, fit, factor, max_order, deadline=deadline)
        for fit in fits
        for factor in FACTORS
    ]
    return sorted(found, key=lambda one: one.value)


def _components(learner: Learner, kernel: Anova, n: int) -> VarianceComponents:
    """The first n rows, to learn variances from."""
    X, target, noise = learner.X[:n], learner.target[:n], learner.noise[:n]
    return VarianceComponents(kernel, X, target, noise, learner.n_jobs)
