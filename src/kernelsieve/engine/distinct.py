"""Distinct features with exactly unbiased weights (docs/why-the-engine.md, "Distinct features").

Draws arrive as a rate-1 Poisson process, so feature m first arrives at an Exp(P_m) time. Keep the
first s distinct ones; given the time tau of the next, each was there with probability
1 - exp(-P_m tau).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native.draws import keep_new
from kernelsieve._parallel import ordered_row_blocks
from kernelsieve._random import stream
from kernelsieve.engine.options import DEFAULTS
from kernelsieve.products.multisets import Multisets

Draws = tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


class Proposal(Protocol):
    """A distribution over multisets that can be drawn from."""

    def draw(self, size: int, rng: np.random.Generator) -> Draws:
        """``size`` draws as (hashes, ends, coordinates, orders)."""


def write_draws(
    size: int, rng: np.random.Generator, write: Callable[..., int], longest: int
) -> Draws:
    """The draws that ``write(rng, hashes, ends, coordinates, orders)`` makes.

    A native kernel returns the atoms written, or a negative number where its arrays were too small
    for ``size`` draws of at most ``longest`` atoms: then it gets larger ones.
    """
    hashes, ends = np.empty(size, dtype=np.uint64), np.empty(size, dtype=np.int64)
    atoms = 8 * size + longest
    state = rng.bit_generator.state
    while True:
        rng.bit_generator.state = state  # a second try must repeat the same draws
        coordinates, orders = np.empty(atoms, dtype=np.int64), np.empty(atoms, dtype=np.int64)
        written = write(rng, hashes, ends, coordinates, orders)
        if written >= 0:
            return hashes, ends, coordinates[:written], orders[:written]
        atoms *= 2


@dataclass
class _Kept:
    """The distinct multisets so far, in arrays that grow."""

    limit: int

    def __post_init__(self) -> None:
        size = 1 << max(10, int(np.ceil(np.log2(4 * self.limit + 4))))
        self.table = np.zeros(size, dtype=np.uint64)
        self.ends = np.zeros(self.limit, dtype=np.int64)
        self.coordinates = np.zeros(4 * self.limit, dtype=np.int64)
        self.orders = np.zeros(4 * self.limit, dtype=np.int64)
        self.found = 0
        self.atoms = 0

    def add(self, draws: Draws) -> int:
        """Add a batch; returns how many of its draws were looked at."""
        hashes, ends, coordinates, orders = draws
        needed = self.atoms + len(coordinates)
        if needed > len(self.coordinates):
            grow = 2 * needed - len(self.coordinates)
            self.coordinates = np.concatenate([self.coordinates, np.zeros(grow, dtype=np.int64)])
            self.orders = np.concatenate([self.orders, np.zeros(grow, dtype=np.int64)])
        looked_at, self.found, self.atoms = keep_new(
            hashes,
            ends,
            coordinates,
            orders,
            self.table,
            self.limit,
            self.found,
            self.ends,
            self.coordinates,
            self.orders,
            self.atoms,
        )
        return int(looked_at)

    def multisets(self) -> Multisets:
        count = min(self.found, self.limit)
        return Multisets(
            self.ends[:count].copy(),
            self.coordinates[: self.atoms].copy(),
            self.orders[: self.atoms].copy(),
        )


def draw_distinct(
    proposal: Proposal,
    limit: int,
    horizon: float,
    seed: int,
    n_jobs: int | None,
    batch: int = DEFAULTS.batch,
) -> tuple[Multisets, float]:
    """The first ``limit`` distinct multisets that arrive before ``horizon``, and tau.

    tau is the arrival time of the next distinct multiset, or the horizon if none came before it.
    ``batch`` draws are made by one random stream.
    """
    if limit == 0:
        return Multisets.from_tuples([]), 0.0
    rng = stream(seed, "arrivals")
    n_draws = int(rng.poisson(horizon))
    kept = _Kept(min(limit, n_draws))  # there are no more draws than that to keep

    def make(draws: slice) -> Draws:
        return proposal.draw(draws.stop - draws.start, stream(seed, "draws", draws.start // batch))

    seen = 0
    for draws in ordered_row_blocks(make, n_draws, batch, n_jobs):
        seen += kept.add(draws)
        if kept.found > limit:
            return kept.multisets(), stopping_time(seen, n_draws, horizon, rng)
    return kept.multisets(), horizon


def stopping_time(draws: int, limit: int, horizon: float, rng: np.random.Generator) -> float:
    """The time of draw number ``draws`` among ``limit`` that fall in [0, horizon].

    Given their number, Poisson arrivals are uniform, so the k-th of N is horizon * Beta(k, N-k+1).
    """
    return horizon * float(rng.beta(draws, limit - draws + 1))


def inclusion_probabilities(probabilities: NDArray[np.float64], tau: float) -> NDArray[np.float64]:
    """1 - exp(-P_m tau): the chance that a feature of probability P_m arrived before tau."""
    return -np.expm1(-probabilities * tau)
