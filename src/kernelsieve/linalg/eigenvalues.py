"""Extreme eigenvalues: of matrices that can only be applied to vectors, and of dense ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import eigsh

from kernelsieve.linalg.solvers import Apply, Array

LARGEST_DENSE_EIGEN = 2048  # columns; beyond, Lanczos iterations if few vectors are wanted


class Ritz(NamedTuple):
    """An extreme eigenvalue as a subspace sees it; some eigenvalue lies within ``residual``."""

    value: float
    residual: float


def extreme_eigenvalues(
    apply: Apply,
    start: Array,
    is_precise: Callable[[Ritz, Ritz], bool],
    max_passes: int,
    approximate_inverse: Apply | None = None,
) -> tuple[Ritz, Ritz]:
    """Smallest and largest eigenvalue of a symmetric matrix.

    Block Lanczos with full reorthogonalisation, where the directions for the smallest eigenvalues
    may go through an approximate inverse (Davidson's method). One pass is one call of ``apply``.

    Parameters
    ----------
    apply : function from a block of shape (n, b) to its image
    start : ndarray of shape (n, b)
        Half of its columns are for each end.
    is_precise : function of the smallest and the largest
        When to stop.
    max_passes : int
    approximate_inverse : function, optional
    """
    each = max(1, start.shape[1] // 2)
    basis = orthonormal(start)
    image = apply(basis)
    for passes in range(1, max_passes + 1):
        projected = basis.T @ image
        values, vectors = scipy.linalg.eigh((projected + projected.T) / 2)
        low, high = vectors[:, :each], vectors[:, -each:]
        below = image @ low - (basis @ low) * values[:each]
        above = image @ high - (basis @ high) * values[-each:]
        smallest = Ritz(float(values[0]), float(np.linalg.norm(below[:, 0])))
        largest = Ritz(float(values[-1]), float(np.linalg.norm(above[:, -1])))
        if passes == max_passes or is_precise(smallest, largest):
            break
        if approximate_inverse is not None:
            below = approximate_inverse(below)
        fresh = orthonormal(np.hstack([below, above]), against=basis)
        if fresh.shape[1] == 0:  # an invariant subspace: nothing more to find
            break
        basis = np.hstack([basis, fresh])
        image = np.hstack([image, apply(fresh)])
    return smallest, largest


def orthonormal(block: Array, against: Array | None = None) -> Array:
    """An orthonormal basis of the block's columns, orthogonal to ``against``."""
    norms = np.linalg.norm(block, axis=0)
    block = block[:, norms > 0] / norms[norms > 0]
    for _ in range(2):  # twice is enough (Kahan and Parlett)
        if against is not None:
            block = block - against @ (against.T @ block)
        block, upper, _ = scipy.linalg.qr(block, mode="economic", pivoting=True)
        block = block[:, np.abs(np.diag(upper)) > 1e-10]
    return block


def leading_eigenvectors(gram: Array, count: int) -> tuple[Array, Array]:
    """The largest eigenvalues, descending, and their vectors with fixed signs."""
    size = len(gram)
    if size > LARGEST_DENSE_EIGEN and count < size // 10:
        start = np.random.default_rng(0).standard_normal(size)
        values, vectors = eigsh(gram, k=count, v0=start)
    else:
        values, vectors = scipy.linalg.eigh(gram, subset_by_index=(size - count, size - 1))
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.sign(vectors[largest, np.arange(count)])
    return values, vectors * np.where(signs == 0, 1.0, signs)
