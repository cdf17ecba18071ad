"""Weights of rows that judge or are fitted: rows without a weight, and samples without any."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelsieve.sources.base import Block

Array = NDArray[np.float64]


def some_weight(weights: Array) -> Array:
    """The weights, or equal ones if no row has any: a sample of few weighted rows may miss them."""
    return weights if weights.any() else np.ones(len(weights))


def positive_weights(weights: Array) -> Array:
    """Weights that may be divided by: a row without one hardly counts."""
    weights = some_weight(weights)
    return np.maximum(weights, 1e-12 * weights.max())


def shares(rows: Block) -> Array:
    """What each row has of the sum of all weights."""
    weights = some_weight(rows.weights_or_ones)
    return weights / weights.sum()


def with_weight(rows: Block) -> Block:
    """The rows whose weight is positive, with their weights; all if none has any."""
    weights = some_weight(rows.weights_or_ones)
    kept = np.flatnonzero(weights)
    return Block(rows.X[kept], rows.y[kept], weights[kept])
