"""Matrices that are applied and never stored: the kernel matrix, its sketch, and (ZZ^T + aI)^p."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._parallel import row_blocks

Array = NDArray[np.float64]
KernelFunction = Callable[[Any, Any], Any]


class GramOperator:
    """The kernel matrix of the rows of X, evaluated a block of rows at a time.

    One product ``K @ V`` is one pass: every pair of points is evaluated once (K is symmetric), and
    no more than ``block_rows`` rows of K exist at a time.
    """

    def __init__(self, kernel: KernelFunction, X: Any, block_rows: int) -> None:
        self.kernel = kernel
        self.X = X
        self.n_rows: int = X.shape[0]
        self.block_rows = block_rows

    def trailing_blocks(self) -> Iterator[tuple[slice, Array]]:
        """Rows r.start:r.stop of K, from the column r.start on."""
        for rows in row_blocks(self.n_rows, self.block_rows):
            yield rows, evaluate(self.kernel, self.X[rows], self.X[rows.start :])

    def __matmul__(self, V: Array) -> Array:
        product = np.zeros_like(V)
        for rows, block in self.trailing_blocks():
            size = rows.stop - rows.start
            product[rows] += block @ V[rows.start :]
            product[rows.stop :] += block[:, size:].T @ V[rows]
        return product


def evaluate(kernel: KernelFunction, X: Any, Y: Any) -> Array:
    """kernel(X, Y) as a finite float64 array of the right shape."""
    block = np.asarray(kernel(X, Y), dtype=np.float64)
    if block.shape != (X.shape[0], Y.shape[0]):
        raise ValueError(
            f"kernel(X, Y) gave shape {block.shape} for {X.shape[0]} and {Y.shape[0]} rows: pass a "
            f"function that returns the matrix of k(x, y)"
        )
    if not np.isfinite(block).all():
        raise ValueError("kernel(X, Y) gave NaN or infinity: check the kernel and scale X")
    return block


def diagonal(kernel: KernelFunction, X: Any) -> Array:
    """k(x, x) for every row of X."""
    small = row_blocks(X.shape[0], 64)
    return np.concatenate([evaluate(kernel, X[rows], X[rows]).diagonal() for rows in small])


class Multiplies(Protocol):
    """A square matrix that is known by its products."""

    def __matmul__(self, V: Array, /) -> Array: ...


class NystromSketch:
    """Low-rank U diag(l) U^T <= K from one pass over K with an orthonormal test matrix."""

    def __init__(self, K: Multiplies, test: Array) -> None:
        self.test = test
        self.image = K @ test
        core = test.T @ self.image
        weights, directions = scipy.linalg.eigh((core + core.T) / 2)
        # Directions lost in rounding are left out: the sketch of fewer test vectors is still <= K.
        kept = weights > 10 * np.sqrt(len(test)) * np.finfo(float).eps * max(weights[-1], 0.0)
        half = (self.image @ directions[:, kept]) / np.sqrt(weights[kept])
        self.vectors, singular, _ = np.linalg.svd(half, full_matrices=False)
        self.eigenvalues = singular**2

    def solve(self, R: Array, alpha: float) -> Array:
        """(U diag(l) U^T + alpha I)^-1 R."""
        coordinates = self.vectors.T @ R
        scale = (self.eigenvalues / (self.eigenvalues + alpha))[:, None]
        return (R - self.vectors @ (scale * coordinates)) / alpha

    def statistical_dimension(self, alpha: float) -> float:
        """Degrees of freedom of the sketch."""
        return float(np.sum(self.eigenvalues / (self.eigenvalues + alpha)))


class Whitening:
    """(Z Z^T + alpha I)^(1/2) and its inverse, in O(n s) a vector from the s x s matrix Z^T Z.

    With Z^T Z = V diag(t) V^T the power p is alpha^p I + Z V diag(g) V^T Z^T, where
    g = ((t + alpha)^p - alpha^p) / t, written below without the cancellation.
    """

    def __init__(self, Z: Any, alpha: float) -> None:
        self.Z = Z
        self.alpha = alpha
        t, self.vectors = scipy.linalg.eigh(gram(Z))
        root, high = np.sqrt(alpha), np.sqrt(np.maximum(t, 0.0) + alpha)
        self.root_core = 1.0 / (high + root)
        self.inverse_root_core = -1.0 / (root * high * (high + root))

    def root(self, Y: Array) -> Array:
        """(ZZ^T + aI)^(1/2) Y."""
        return np.sqrt(self.alpha) * Y + self._core(self.root_core, Y)

    def inverse_root(self, Y: Array) -> Array:
        """(ZZ^T + aI)^(-1/2) Y."""
        return Y / np.sqrt(self.alpha) + self._core(self.inverse_root_core, Y)

    def _core(self, weights: Array, Y: Array) -> Array:
        coordinates = self.vectors.T @ (self.Z.T @ Y)
        return np.asarray(self.Z @ (self.vectors @ (weights[:, None] * coordinates)))


def dense(Z: Any) -> NDArray[Any]:
    """Z as an array, whether it is one or sparse."""
    return Z.toarray() if sp.issparse(Z) else Z


def outer(Z: Any, Y: Any) -> NDArray[np.float64]:
    """Z Y^T as a dense matrix."""
    return np.asarray(dense(Z @ Y.T))


def gram(Z: Any) -> NDArray[np.float64]:
    """Z^T Z as a dense matrix."""
    return np.asarray(dense(Z.T @ Z))


def multiplied(Z: Any, V: Array) -> Array:
    """Z V, multiplied in Z's float type and returned in float64."""
    with np.errstate(over="ignore", invalid="ignore"):  # reported where it is solved
        return (Z @ V.astype(Z.dtype, copy=False)).astype(np.float64, copy=False)
