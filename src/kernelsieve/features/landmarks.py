"""Choices of landmark rows for the Nystrom method."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._random import keyed_rows, stream
from kernelsieve.engine.scores import (
    capped_proportional,
    lambda_for_dimension,
    systematic_sample,
)
from kernelsieve.features.recursive_leverage import recursive_leverage_scores
from kernelsieve.features.rpcholesky import rpcholesky_pivots
from kernelsieve.kernels import Kernel

FEWEST_DIMENSION_ROWS, MOST_DIMENSION_ROWS = 200, 1000
SMALLEST_SAMPLE = 32
LARGEST_SAMPLE = 6  # rows that scores are computed from, for each landmark


def uniform_landmarks(
    kernel: Kernel, X: Any, size: int, alpha: float, seed: int, n_jobs: int | None
) -> NDArray[np.int64]:
    """Draw rows uniformly without replacement."""
    return keyed_rows(X.shape[0], size, seed, "landmarks")


def leverage_landmarks(
    kernel: Kernel, X: Any, size: int, alpha: float, seed: int, n_jobs: int | None
) -> NDArray[np.int64]:
    """Draw rows without replacement, in proportion to their ridge leverage scores.

    The ridge is alpha, or larger if alpha asks for more directions than ``size`` landmarks can
    span: below that ridge the scores of samples are noise, and the landmarks no better.
    """
    ridge = max(alpha, lambda_for_landmarks(kernel, X, size, seed, n_jobs))
    scores = recursive_leverage_scores(
        kernel,
        X,
        ridge,
        LARGEST_SAMPLE * size,
        seed,
        n_jobs,
        fewest=max(SMALLEST_SAMPLE, size // 2),
    )
    return systematic_sample(capped_proportional(scores, size), stream(seed, "landmarks"))


def lambda_for_landmarks(kernel: Kernel, X: Any, size: int, seed: int, n_jobs: int | None) -> float:
    """Find the lambda at which the rows have a statistical dimension of about ``size``."""
    n_few = int(np.clip(4 * size, FEWEST_DIMENSION_ROWS, MOST_DIMENSION_ROWS))
    few = keyed_rows(X.shape[0], n_few, seed, "dimension")
    rows = X[few].astype(np.float64)
    smaller = lambda_for_dimension(kernel.between(rows, rows, n_jobs), size, stream(seed, "probes"))
    return smaller * X.shape[0] / len(few)


def rpcholesky_landmarks(
    kernel: Kernel, X: Any, size: int, alpha: float, seed: int, n_jobs: int | None
) -> NDArray[np.int64]:
    """Draw rows one by one, in proportion to the part of k(x, x) that is not yet explained."""
    pivots = rpcholesky_pivots(kernel, X, size, seed, n_jobs)
    return pivots if len(pivots) else np.zeros(1, dtype=np.int64)  # a kernel that is zero


def kmeans_centres(X: Any, size: int, seed: int) -> NDArray[Any]:
    """Compute the centres of mini-batch k-means, which are not rows of X."""
    if sp.issparse(X):
        raise ValueError(
            "landmarks='kmeans' needs dense rows, because its centres are dense: use 'uniform', "
            "'leverage' or 'rpcholesky' for sparse X"
        )
    from sklearn.cluster import MiniBatchKMeans

    state = int(stream(seed, "kmeans").integers(2**31))
    kmeans = MiniBatchKMeans(size, n_init=1, compute_labels=False, random_state=state)
    # Squared distances over- or underflow long before the rows do; a power of two rounds nothing.
    bound = np.finfo(X.dtype).maxexp - 2
    exponent = np.floor(np.log2(float(np.abs(X).max()) or 1.0))
    unit = X.dtype.type(2.0 ** np.clip(exponent, -bound, bound))
    centres: NDArray[Any] = kmeans.fit(X / unit).cluster_centers_
    return centres.astype(X.dtype, copy=False) * unit
