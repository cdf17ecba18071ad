"""The two-phase engine (DESIGN 4.11): a row-norm pool, thinned by what matters.

Phase 1 draws many distinct features by row norm. Phase 2 scores each on anchor rows by its ridge
leverage, its weight in the exact kernel ridge regression of the target, and its norm, and keeps a
fixed number without replacement. Weights 1 / (pi_1 pi_2) keep E[Z Z^T] = K.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelsieve.engine.anchors import Anchors
from kernelsieve.engine.space import Pool
from kernelsieve.engine.thinning import capped_proportional, systematic_sample

SMALLEST_NORM_SHARE = 0.01


@dataclass(frozen=True)
class PoolScores:
    """What the anchors say of every feature of a pool.

    Attributes
    ----------
    leverage, target : ndarray of shape (pool,)
    missed_leverage : float
        The share of the leverage that no feature of the pool holds.
    """

    leverage: NDArray[np.float64]
    target: NDArray[np.float64]
    missed_leverage: float


def score_pool(pool: Pool, anchors: Anchors, n_jobs: int | None) -> PoolScores:
    """Leverage and target weight of every pool feature."""
    k = anchors.leverage_vectors.shape[1]
    vectors = np.hstack([anchors.leverage_vectors, anchors.target_vectors])
    products = pool.features.project(anchors.rows, vectors, n_jobs) ** 2
    leverage, target = products[:, :k].sum(axis=1) / k, products[:, k:].sum(axis=1)
    held = leverage.sum() / anchors.total_leverage if anchors.total_leverage > 0 else 1.0
    return PoolScores(leverage, target, float(np.clip(1.0 - held, 0.0, 1.0)))


def keep_probabilities(
    scores: PoolScores, pool: Pool, size: int, target_share: float
) -> NDArray[np.float64]:
    """pi_2: proportional to the mixture of scores over pi_1, capped at 1, summing to ``size``.

    A pool feature of inclusion probability pi_1 stands for 1 / pi_1 like it. The norm is positive
    for every feature and always has its share: a feature that no anchor shows can be kept too.
    """
    rest = 1.0 - target_share if scores.target.any() else 1.0
    mixture = np.zeros(len(pool.inclusion))
    for share, score in (
        (1.0 - rest, scores.target),
        (0.5 * rest, scores.leverage),
        (max(0.5 * rest, SMALLEST_NORM_SHARE), pool.norms),
    ):
        represented = score / pool.inclusion
        if represented.any():
            mixture += share * represented / represented.sum()
    return capped_proportional(mixture, size)


def thin_pool(
    pool: Pool, keep: NDArray[np.float64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The features kept, and their weights 1 / sqrt(pi_1 pi_2)."""
    # In an order of the names, which dense and sparse rows share, not in that of the columns.
    columns = np.argsort(pool.features.multisets.hashes())
    chosen = columns[systematic_sample(keep[columns], rng)]
    return chosen, 1.0 / np.sqrt(pool.inclusion[chosen] * keep[chosen])
