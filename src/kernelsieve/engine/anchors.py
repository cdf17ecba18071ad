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

from kernelsieve.kernels import Kernel
from kernelsieve.linalg.solvers import regularised_cholesky

N_PROBES = 16
BISECTION_PRECISION = 0.4  # of log lambda


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
    gram = kernel(rows.astype(np.float64), n_jobs=n_jobs)
    factor, _ = regularised_cholesky(gram, lambda_)
    # L^-T G has covariance (L L^T)^-1: Alg. 3 line 2 without an inverse root.
    normals = rng.standard_normal((len(gram), n_vectors))
    leverage_vectors = solve_triangular(factor, normals, lower=True, trans="T", check_finite=False)
    half = solve_triangular(factor, targets, lower=True, check_finite=False)
    target_vectors = solve_triangular(factor, half, lower=True, trans="T", check_finite=False)
    total = float(np.sum(leverage_vectors * (gram @ leverage_vectors))) / n_vectors
    return Anchors(rows, leverage_vectors, target_vectors, total)


def lambda_for_dimension(
    gram: NDArray[np.float64], dimension: float, rng: np.random.Generator
) -> float:
    """The lambda at which the statistical dimension is about ``dimension`` (bisection).

    So few rows cannot show a dimension near their number: it is held to a quarter of it.
    """
    trace = float(np.trace(gram))
    if not trace > 0:
        return 1.0
    dimension = min(dimension, len(gram) / 4)
    probes = rng.choice([-1.0, 1.0], size=(len(gram), N_PROBES))
    # s_lambda <= tr(K) / lambda; in logarithms, because traces may be huge.
    low, high = np.log(1e-12) + np.log(trace), np.log(trace) - np.log(dimension)
    while high - low > BISECTION_PRECISION:
        middle = 0.5 * (low + high)
        if _estimated_dimension(gram, float(np.exp(middle)), probes) > dimension:
            low = middle
        else:
            high = middle
    return float(np.exp(0.5 * (low + high)))


def _estimated_dimension(
    gram: NDArray[np.float64], lambda_: float, probes: NDArray[np.float64]
) -> float:
    """n - lambda tr (K + lambda I)^-1, the trace by Hutchinson's estimator."""
    factor, shift = regularised_cholesky(gram, lambda_)
    halves = solve_triangular(factor, probes, lower=True, check_finite=False)
    return len(gram) - shift * float(np.sum(halves**2)) / probes.shape[1]
