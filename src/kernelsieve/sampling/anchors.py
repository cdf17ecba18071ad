"""Anchor rows and what is computed on them to score features.

The scores only have to be right up to a constant, so a few thousand anchors stand for all rows,
with alpha scaled by their share (DESIGN 4.7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from kernelsieve._linalg import regularised_cholesky
from kernelsieve.kernels import Kernel


@dataclass(frozen=True)
class Anchors:
    """Anchor rows and the vectors that score features on them.

    Attributes
    ----------
    rows : {ndarray, CSR} of shape (n_0, d)
    leverage_vectors : ndarray of shape (n_0, k)
        M with covariance (K_0 + lambda I)^-1: |phi . M|^2 / k estimates the ridge leverage.
    target_vectors : ndarray of shape (n_0, n_outputs)
        (K_0 + lambda I)^-1 y, whose products with the features are their exact KRR weights.
    total_leverage : float
        tr(M^T K_0 M) / k: the leverage of all features together.
    """

    rows: Any
    leverage_vectors: NDArray[np.float64]
    target_vectors: NDArray[np.float64]
    total_leverage: float


def make_anchors(
    kernel: Kernel,
    rows: Any,
    targets: NDArray[np.float64],
    lambda_: float,
    n_vectors: int,
    rng: np.random.Generator,
    n_jobs: int | None,
) -> Anchors:
    """Factor K_0 + lambda I once, and solve for the scoring vectors."""
    gram = kernel(rows, n_jobs=n_jobs).astype(np.float64)
    factor, _ = regularised_cholesky(gram, lambda_)
    # L^-T G has covariance (L L^T)^-1: Alg. 3 line 2 without an inverse root.
    normals = rng.standard_normal((len(gram), n_vectors))
    leverage_vectors = solve_triangular(factor, normals, lower=True, trans="T", check_finite=False)
    half = solve_triangular(factor, targets, lower=True, check_finite=False)
    target_vectors = solve_triangular(factor, half, lower=True, trans="T", check_finite=False)
    total = float(np.sum(leverage_vectors * (gram @ leverage_vectors))) / n_vectors
    return Anchors(rows, leverage_vectors, target_vectors, total)


def statistical_dimension(gram: NDArray[np.float64], lambda_: float) -> float:
    """n - lambda tr (K + lambda I)^-1, by Cholesky."""
    factor, shift = regularised_cholesky(gram, lambda_)
    inverse = solve_triangular(factor, np.eye(len(gram)), lower=True, check_finite=False)
    return len(gram) - shift * float(np.sum(inverse**2))


def lambda_for_dimension(gram: NDArray[np.float64], dimension: float) -> float:
    """The lambda at which the statistical dimension is about ``dimension`` (bisection).

    So few rows cannot show a dimension near their number: it is held to a quarter of it.
    """
    trace = float(np.trace(gram))
    dimension = min(dimension, len(gram) / 4)
    if not trace > 0:
        return 1.0
    low, high = 1e-12 * trace, trace / max(dimension, 1e-3)  # s_lambda <= tr(K) / lambda
    for _ in range(12):
        middle = float(np.sqrt(low * high))
        if high / low < 1.5:
            break
        if statistical_dimension(gram, middle) > dimension:
            low = middle
        else:
            high = middle
    return float(np.sqrt(low * high))
