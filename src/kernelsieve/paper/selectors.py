"""The published samplers as ways to choose features."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernelsieve._random import stream
from kernelsieve.engine.scores import Selection, Selector
from kernelsieve.engine.space import MonomialSpace
from kernelsieve.paper.parameters import SamplerParameters
from kernelsieve.paper.recursion import recursive_leverage_sampling
from kernelsieve.paper.row_sampler import RowSampler
from kernelsieve.products.product_features import ProductFeatures
from kernelsieve.sources.base import Source

NAME = "sampler='paper'"


def single_round_selector(rows: Source, alpha: float, n_jobs: int | None) -> Selector:
    """One round of RowSampler with B = 0: the paper's row norm, with its sketch."""

    def draw(space: MonomialSpace, size: int, seed: int) -> ProductFeatures:
        points = space.frame.points(rows.in_memory(NAME))
        sampler = RowSampler(
            points,
            space.series,
            None,
            alpha,
            SamplerParameters.practical(points.shape[1], space.series.degree),
            stream(seed, "sampler"),
            n_jobs=n_jobs,
        )
        return space.features(*sampler.draw(size, stream(seed, "rows")).features())

    return _selector(draw)


def recursive_selector(
    rows: Source, alpha: float, eps: float, n_jobs: int | None, verbose: int
) -> Selector:
    """The paper's Adaptive: Algorithm 1 on all rows."""

    def draw(space: MonomialSpace, size: int, seed: int) -> ProductFeatures:
        return recursive_leverage_sampling(
            rows.in_memory(NAME),
            space.series,
            alpha,
            size,
            eps,
            frame=space.frame,
            random_state=stream(seed, "recursion"),
            n_jobs=n_jobs,
            verbose=verbose,
        ).features

    return _selector(draw)


def _selector(draw: Callable[[MonomialSpace, int, int], ProductFeatures]) -> Selector:
    """Independent draws, or all features where there are no more than asked for."""

    def select(space: MonomialSpace, size: int, seed: int) -> Selection:
        everything = space.all_features(size)
        if everything is None:
            return Selection(draw(space, size, seed))
        return Selection(space.features(everything, np.ones(len(everything))), 0.0)

    return Selector(select, NAME, monomials_only=True, may_rotate=False)
