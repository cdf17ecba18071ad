"""Vectors with covariance (B^T B + lambda I)^-1: Alg. 2 and 3, lines 1 and 2.

Both functions take Z = B^T, of shape (n, m), or None for B = 0, and give M, of shape (n, count).
They are equal in distribution: only the covariance of (B^T B + lambda I)^(-1/2) H is used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular

from kernelsieve._parallel import row_blocks
from kernelsieve.linalg.cholesky import regularised_cholesky

CONVERTED_ROWS = 4096  # of Z that are converted to float64 at once


def inverse_root_vectors(
    Z: NDArray[Any] | None, n: int, lambda_: float, count: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Vectors with covariance (B^T B + lambda)^-1, from one Cholesky factor of the smaller side.

    No root of an n x n matrix is needed (docs/why-the-engine.md, "Inverse roots").

    M = (B^T B + lambda)^-1 (B^T G_2 + sqrt(lambda) G_1) has the right covariance; by Woodbury's
    identity it is G_1 / sqrt(lambda) + B^T (B B^T + lambda)^-1 (G_2 - B G_1 / sqrt(lambda)), which
    keeps its digits where lambda is small. With m >= n, where B B^T is singular, M = L^-T G_1 with
    L L^T = B^T B + lambda. Everything in float64: lambda is lost beside a float32 Gram matrix.
    """
    vectors = rng.standard_normal((n, count))
    if Z is not None and Z.shape[1] >= n:
        wide = Z.astype(np.float64)
        factor, _ = regularised_cholesky(wide @ wide.T, lambda_)
        return solve_triangular(factor, vectors, lower=True, trans="T", check_finite=False)
    vectors /= np.sqrt(lambda_)
    if Z is None or Z.shape[1] == 0:
        return vectors
    gram = np.zeros((Z.shape[1], Z.shape[1]))
    inner = rng.standard_normal((Z.shape[1], count))
    for rows in row_blocks(n, CONVERTED_ROWS):
        block = Z[rows].astype(np.float64)
        gram += block.T @ block
        inner -= block.T @ vectors[rows]
    factor, _ = regularised_cholesky(gram, lambda_)
    inner = cho_solve((factor, True), inner, check_finite=False)
    for rows in row_blocks(n, CONVERTED_ROWS):
        vectors[rows] += Z[rows] @ inner
    return vectors


def explicit_inverse_root_vectors(
    Z: NDArray[Any] | None, n: int, lambda_: float, count: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """(B^T B + lambda I)^(-1/2) H, as it is printed, by singular vectors: for small n."""
    H = rng.standard_normal((n, count))
    if Z is None:
        return H / np.sqrt(lambda_)
    vectors, singular, _ = np.linalg.svd(Z.astype(np.float64), full_matrices=Z.shape[1] < n)
    squares = np.zeros(n)
    squares[: len(singular)] = singular**2
    return vectors @ ((vectors.T @ H) / np.sqrt(squares + lambda_)[:, None])
