"""Fixed-size sampling without replacement with given inclusion probabilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def capped_proportional(scores: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Probabilities proportional to ``scores``, at most 1, that sum to ``size``.

    Examples
    --------
    >>> capped_proportional(np.array([8.0, 1.0, 1.0]), 2)
    array([1. , 0.5, 0.5])
    """
    if size >= len(scores):
        return np.ones(len(scores))
    descending = np.sort(scores)[::-1]
    remaining = np.cumsum(descending[::-1])[::-1]  # sum of the scores from each place on
    # The k largest are capped for the first k at which the next one no longer exceeds 1.
    room = size - np.arange(size)
    capped = int(np.argmax(descending[:size] * room <= remaining[:size]))
    if remaining[capped] <= 0:
        return np.ones(len(scores)) * (scores > 0)
    return np.minimum(scores * (room[capped] / remaining[capped]), 1.0)


def systematic_sample(
    probabilities: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Numbers of the chosen items: each with its own probability, as many as their sum.

    Systematic sampling in random order: one uniform start, then a step of 1 along the running sum.
    """
    certain = np.flatnonzero(probabilities >= 1.0)
    uncertain = rng.permutation(np.flatnonzero((probabilities > 0.0) & (probabilities < 1.0)))
    running = np.cumsum(probabilities[uncertain])
    count = round(float(running[-1])) if len(running) else 0
    if count == 0:
        return certain
    running *= count / running[-1]  # rounding must not change the number of items
    start = rng.random()
    chosen = np.diff(np.ceil(running - start), prepend=np.ceil(-start)) > 0
    return np.sort(np.concatenate([certain, uncertain[chosen]]))
