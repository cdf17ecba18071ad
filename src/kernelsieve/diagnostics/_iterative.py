"""Extreme eigenvalues and a trace of matrices that can only be applied to blocks of vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg
from scipy.stats import t as student

from kernelsieve.linalg.operators import Array, GramOperator, NystromSketch
from kernelsieve.linalg.solvers import dots, ratio

Apply = Callable[[Array], Array]


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


def degrees_of_freedom(
    K: GramOperator,
    sketch: NystromSketch,
    alpha: float,
    probes: Array,
    max_passes: int,
    confidence: float,
) -> tuple[float, float]:
    """An interval for tr K (K + aI)^-1: Hutchinson's estimator on what a Nystrom sketch leaves.

    With P = sketch + aI <= A = K + aI the trace is that of the sketch plus the mean over probes z
    of alpha z^T (P^-1 - A^-1) z. Conjugate gradients from zero, preconditioned by P, approach
    z^T A^-1 z from below, and fall short of it by at most r^T P^-1 r for the residual r, as P <= A.
    """
    known = sketch.statistical_dimension(alpha)
    quantile = student.ppf((1 + confidence) / 2, probes.shape[1] - 1)
    solution, residual = np.zeros_like(probes), probes.copy()
    direction = preconditioned = sketch.solve(residual, alpha)
    size = dots(residual, preconditioned)
    of_sketch = alpha * size
    for _ in range(max_passes):
        image = K @ direction + alpha * direction
        step = ratio(size, dots(direction, image))
        solution += step * direction
        residual -= step * image
        preconditioned = sketch.solve(residual, alpha)
        size, previous = dots(residual, preconditioned), size
        missing = of_sketch - alpha * dots(probes, solution)
        shortfall = alpha * float(size.mean())
        spread = float(quantile * np.std(missing, ddof=1) / np.sqrt(missing.size))
        if shortfall <= 0.1 * spread:
            break
        direction = preconditioned + ratio(size, previous) * direction
    center = known + float(missing.mean())
    # The sketch is no larger than K, so that its part of the trace is certain.
    return max(center - shortfall - spread, known), center + spread
