"""Kernels to choose from: the likelihood's, and what can be made of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from kernelsieve.kernels import Anova, Product
from kernelsieve.kernels.families import log_distances
from kernelsieve.kernels.likelihood.learner import Learner
from kernelsieve.kernels.likelihood.rates import Fit

ALPHA_BOUNDS = (1e-7, 1e6)


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

    @property
    def is_learned(self) -> bool:
        """Whether its rates were learned, not equal for all columns."""
        return bool(self.fit.iterations)


@dataclass(frozen=True)
class Candidate:
    """A kernel, and the alpha of its ridge."""

    kernel: Product | Anova
    alpha: float


class Form(Protocol):
    """What kernel stands for the rates of a search."""

    def kernel(self, judged: Judged, learner: Learner) -> Product | Anova:
        """The kernel that was judged."""
        ...

    def start(self, judged: Judged, learner: Learner) -> float:
        """The alpha from which on others are tried."""
        ...

    def likely_alpha(self, judged: Judged, learner: Learner) -> float:
        """The alpha of the likelihood."""
        ...

    def pick(self, alphas: list[float], errors: list[float], likely: float, spare: float) -> int:
        """The place of the alpha to take; one of a few that are worse by a share may be better."""
        ...


@dataclass(frozen=True)
class ProductForm:
    """The product kernel with these rates."""

    def kernel(self, judged: Judged, learner: Learner) -> Product:
        """The kernel that was judged."""
        return adjusted(judged.fit.kernel(learner.columns), judged.factor, judged.share)

    def start(self, judged: Judged, learner: Learner) -> float:
        """Where the last one ended."""
        return judged.alpha

    def likely_alpha(self, judged: Judged, learner: Learner) -> float:
        """That of the search for these rates."""
        return judged.fit.alpha

    def pick(self, alphas: list[float], errors: list[float], likely: float, spare: float) -> int:
        """The largest one that is about as good as the best."""
        near = np.flatnonzero(np.array(errors) <= (1.0 + spare) * min(errors))
        return int(max(near, key=lambda place: alphas[place]))


def adjusted(kernel: Product, factor: float, share: float) -> Product:
    """The same kernel with rates that are mixed with their mean and multiplied by a factor."""
    rates = np.asarray(kernel.rates)
    mixed = factor * ((1.0 - share) * rates + share * rates.mean())
    return replace(kernel, rates=tuple(mixed.tolist()))


def shorter(fit: Fit, tails: tuple[float, ...]) -> list[Fit]:
    """The same rates without the weakest columns, a few and then more of them."""
    rates = fit.rates.sum(axis=0)
    effects = log_distances(rates, [fit.family] * len(rates))
    order = np.argsort(effects, kind="stable")
    tail = np.cumsum(effects[order]) / effects.sum()
    counts = sorted({int((tail <= share).sum()) for share in tails} - {0})
    return [fit.restricted(np.sort(order[count:])) for count in counts]
