"""The two-phase engine (DESIGN 4.11): a row-norm pool, thinned by what matters.

Phase 1 draws many distinct features by row norm. Phase 2 scores each on anchor rows by its ridge
leverage, its weight in the exact kernel ridge regression of the target, and its norm, and keeps a
fixed number without replacement. Weights 1 / (pi_1 pi_2) keep E[Z Z^T] = K.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelsieve.sampling.anchors import Anchors
from kernelsieve.sampling.product_features import ProductFeatures
from kernelsieve.sampling.thinning import capped_proportional, systematic_sample


@dataclass(frozen=True)
class PoolScores:
    """What the anchors say of every feature of a pool.

    Attributes
    ----------
    leverage, target, norm : ndarray of shape (pool,)
    missed_leverage : float
        The share of the leverage that no feature of the pool holds.
    """

    leverage: NDArray[np.float64]
    target: NDArray[np.float64]
    norm: NDArray[np.float64]
    missed_leverage: float


def score_pool(
    pool: ProductFeatures, anchors: Anchors, norms: NDArray[np.float64], n_jobs: int | None
) -> PoolScores:
    """Leverage, target weight and norm of every (unweighted) pool feature."""
    k = anchors.leverage_vectors.shape[1]
    vectors = np.hstack([anchors.leverage_vectors, anchors.target_vectors])
    products = pool.project(anchors.rows, vectors, n_jobs) ** 2
    leverage, target = products[:, :k].sum(axis=1) / k, products[:, k:].sum(axis=1)
    missed = 1.0 - leverage.sum() / anchors.total_leverage
    return PoolScores(leverage, target, norms, float(np.clip(missed, 0.0, 1.0)))


def keep_probabilities(
    scores: PoolScores, inclusion: NDArray[np.float64], size: int, target_share: float
) -> NDArray[np.float64]:
    """pi_2: proportional to the mixture of scores over pi_1, capped at 1, summing to ``size``.

    A pool feature of inclusion probability pi_1 stands for 1 / pi_1 like it.
    """
    if not scores.target.sum() > 0:
        target_share = 0.0
    rest = 0.5 * (1.0 - target_share)
    mixture = np.zeros(len(inclusion))
    for share, score in (
        (rest, scores.leverage),
        (target_share, scores.target),
        (rest, scores.norm),
    ):
        if share > 0:
            represented = score / inclusion
            mixture += share * represented / represented.sum()
    return capped_proportional(mixture, size)


def thin_pool(
    pool: ProductFeatures,
    inclusion: NDArray[np.float64],
    keep: NDArray[np.float64],
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The features kept, and their weights 1 / sqrt(pi_1 pi_2)."""
    chosen = systematic_sample(keep, rng)
    return chosen, 1.0 / np.sqrt(inclusion[chosen] * keep[chosen])
