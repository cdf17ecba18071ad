"""Leverage paths as a second source of features, corrected exactly.

Paths are proposed by the sketch on the anchors; a path's own probability is known, so nothing has
to be summed over the columns of M (docs/why-the-engine.md, "Propose and correct"). Every feature m
is split between the sources in proportion to what they are meant to sample,

    h_j(m) = |phi_m . M_j|^2 / S_m,    h_0(m) = kappa P_m / S_m,    S_m = |phi_m . M|^2 + kappa P_m,

with P_m the row-norm distribution. The shares sum to 1, so the sum of h over the inclusion
probability, over all units (j, tuple) and multisets that were drawn, has expectation 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kernelsieve._random import root_seed, stream
from kernelsieve.engine.draws import draw_distinct, inclusion_probabilities
from kernelsieve.engine.scores import Anchors
from kernelsieve.engine.space import MonomialSpace, Pool
from kernelsieve.paper.parameters import SamplerParameters
from kernelsieve.paper.paths import PathDraws
from kernelsieve.paper.row_sampler import multiplicities, path_sampler
from kernelsieve.products.multisets import Multisets


def leverage_pool(
    space: MonomialSpace,
    make_anchors: Callable[[], Anchors],
    size: int,
    seed: int,
    n_jobs: int | None,
) -> Pool:
    """About ``size`` distinct features, half by leverage paths and half by row norm.

    ``Pool.inclusion`` is the inverse of each feature's exact weight, whose expectation is 1.
    """
    everything = space.all_features(size)
    if everything is not None:
        return space.whole_pool(everything, n_jobs)
    whole, lowest = space.whole_degrees(size // 4)
    proposal = space.proposal(lowest)
    if proposal.is_empty:
        return space.whole_pool(whole, n_jobs)
    anchors, options = make_anchors(), space.options
    half = max(1, (size - len(whole)) // 2)  # neither source may be without draws
    by_norm, tau = draw_distinct(proposal, half, options.max_draws, seed, n_jobs, options.batch)
    units = _Units(*_draw_paths(space, anchors, half, lowest, seed, n_jobs))
    union, owners = _union(whole, by_norm, units.multisets)
    features = space.features(union, np.ones(len(union)))
    # The tree orders the columns anew.
    column = np.empty(len(union), dtype=np.int64)
    column[features.trie.order] = np.arange(len(union))
    of_whole, of_norm, of_units = (column[part] for part in owners)

    probabilities = proposal.probabilities(features, n_jobs)
    products = features.project(anchors.rows, anchors.leverage_vectors, n_jobs) ** 2
    # Scales the norms like the leverages; any positive number is right.
    kappa = anchors.total_leverage * products.shape[1] or 1.0
    shared = products.sum(axis=1) + kappa * probabilities
    weights = np.zeros(len(union))
    norm_inclusion = inclusion_probabilities(probabilities[of_norm], tau)
    weights[of_norm] += kappa * probabilities[of_norm] / shared[of_norm] / norm_inclusion
    share = products[of_units, units.columns] / shared[of_units]
    # A unit is one arrangement of a multiset: it stands for 1 / multiplicity of it.
    arrangements = multiplicities(features.multisets)[of_units]
    np.add.at(weights, of_units, share / arrangements / units.inclusion)
    weights[of_whole] = 1.0
    return space.without_vanished(features, weights, probabilities)


class _Units:
    """Distinct draws (j, tuple), with their inclusion probabilities."""

    def __init__(self, draws: PathDraws, tau: float) -> None:
        keys = np.column_stack([draws.columns, draws.paths])
        _, first = np.unique(keys, axis=0, return_index=True)
        self.columns = draws.columns[first]
        self.inclusion = inclusion_probabilities(draws.probabilities[first], tau)
        self.multisets = Multisets.from_tuples(
            [[i for i in path if i >= 0] for path in draws.paths[first].tolist()]
        )


def _draw_paths(
    space: MonomialSpace,
    anchors: Anchors,
    count: int,
    lowest: int,
    seed: int,
    n_jobs: int | None,
) -> tuple[PathDraws, float]:
    """Draws of degree >= lowest that arrive before a fixed time, their expected number."""
    points = space.frame.points(anchors.rows)
    parameters = SamplerParameters.practical(points.shape[1], space.series.degree)
    sampler = path_sampler(
        points,
        space.series,
        anchors.leverage_vectors,
        parameters,
        root_seed(stream(seed, "path sampler")),
        n_jobs,
        lowest,
    )
    rng = stream(seed, "paths")
    size = 0 if sampler.is_empty else int(rng.poisson(count))
    return sampler.draw(size, rng), float(count)


def _union(*parts: Multisets) -> tuple[Multisets, list[NDArray[np.int64]]]:
    """The distinct multisets of all parts, and where those of each part went."""
    together = Multisets.from_tuples([])
    for part in parts:
        together = Multisets.concatenate(together, part)
    _, first, inverse = np.unique(together.hashes(), return_index=True, return_inverse=True)
    ends = np.cumsum([len(part) for part in parts])
    places = np.split(inverse.reshape(-1), ends[:-1])
    return together.take(first), places
