"""Means of the target in categories, which stand for many of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def standardised(y: Any, n_rows: int) -> NDArray[np.float64]:
    """Targets as columns of mean 0 and variance 1."""
    outputs = np.asarray(y, dtype=np.float64).reshape(n_rows, -1)
    centred = outputs - outputs.mean(axis=0)
    peak = np.maximum(np.abs(centred).max(axis=0), 1e-300)
    centred = centred / peak
    return centred / np.maximum(centred.std(axis=0), 1e-12)


def level_means(
    places: NDArray[np.int64], outputs: NDArray[np.float64], n_levels: int
) -> NDArray[np.float64]:
    """The mean of each standardised output in each category, drawn towards the mean of all rows.

    The last row, at place -1, is for categories that are not known: the mean of all rows, 0. The
    fewer rows a category has, and the less the outputs depend on it, the more it is drawn to 0.
    """
    counts = np.bincount(places, minlength=n_levels)[:, None]
    sums = np.column_stack([np.bincount(places, w, n_levels) for w in outputs.T])
    means = sums / np.maximum(counts, 1)
    # The variance of the outputs is 1. Analysis of variance: what lies within the categories, and
    # what lies between them beyond the noise of their means.
    n, known = len(places), int(np.count_nonzero(counts))
    explained = (counts * means**2).sum(axis=0) / n
    within = np.clip((1.0 - explained) * n / max(n - known, 1), 0.05, 1.0)
    between = np.maximum(explained - within * (known - 1) / n, 0.01)
    return np.vstack([sums / (counts + within / between), np.zeros((1, outputs.shape[1]))])
