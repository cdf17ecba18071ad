"""Distinct features with exactly unbiased weights (DESIGN 4.1).

Draws arrive as a rate-1 Poisson process, so feature m first arrives at an Exp(P_m) time. Keep the
first s distinct ones; given the time tau of the next, each was there with probability
1 - exp(-P_m tau).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def stopping_time(draws: int, limit: int, horizon: float, rng: np.random.Generator) -> float:
    """The time of draw number ``draws`` among ``limit`` that fall in [0, horizon].

    Given their number, Poisson arrivals are uniform, so the k-th of N is horizon * Beta(k, N-k+1).
    """
    return horizon * float(rng.beta(draws, limit - draws + 1))


def inclusion_probabilities(probabilities: NDArray[np.float64], tau: float) -> NDArray[np.float64]:
    """1 - exp(-P_m tau): the chance that a feature of probability P_m arrived before tau."""
    return -np.expm1(-probabilities * tau)
