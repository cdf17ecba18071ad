"""Vectors with covariance (B^T B + lambda I)^-1: Alg. 3 line 2.

Both functions take Z = B^T, of shape (n, m), or None for B = 0, and give M, of shape (n, count).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from kernelsieve._linalg import regularised_cholesky


def inverse_root_vectors(
    Z: NDArray[Any] | None, n: int, lambda_: float, count: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """The same distribution without an n x n root (DESIGN 4.6): one m x m Cholesky.

    M = (B^T B + lambda)^-1 (B^T G_2 + sqrt(lambda) G_1) has the right covariance; by Woodbury's
    identity it is G_1 / sqrt(lambda) + B^T (B B^T + lambda)^-1 (G_2 - B G_1 / sqrt(lambda)), which
    keeps its digits where lambda is small.
    """
    vectors = rng.standard_normal((n, count)) / np.sqrt(lambda_)
    if Z is None:
        return vectors
    factor, _ = regularised_cholesky((Z.T @ Z).astype(np.float64), lambda_)
    inner = rng.standard_normal((Z.shape[1], count)) - Z.T @ vectors
    return vectors + Z @ cho_solve((factor, True), inner)


def explicit_inverse_root_vectors(
    Z: NDArray[Any] | None, n: int, lambda_: float, count: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """(B^T B + lambda I)^(-1/2) H by eigenvectors, as it is printed: for small n."""
    H = rng.standard_normal((n, count))
    if Z is None:
        return H / np.sqrt(lambda_)
    values, vectors = np.linalg.eigh(Z @ Z.T)
    roots = 1.0 / np.sqrt(np.maximum(values, 0.0) + lambda_)
    return vectors @ (roots[:, None] * (vectors.T @ H))
