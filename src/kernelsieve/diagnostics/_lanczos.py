"""Estimates that see all rows: a few passes over the kernel matrix, which is never stored."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
from scipy.stats import t as student

from kernelsieve._random import stream
from kernelsieve.diagnostics._kernel_data import (
    CONFIDENCE,
    ROUNDING,
    KernelData,
    Measured,
    between,
)
from kernelsieve.linalg.eigenvalues import Ritz, extreme_eigenvalues
from kernelsieve.linalg.operators import Array, GramOperator, NystromSketch, Whitening, outer
from kernelsieve.linalg.solvers import conjugate_gradient_steps, dots

SKETCH_RANK = 128  # about where multiplying with a block of K costs as much as evaluating it
BLOCK_SIZE = 8


def statistical_dimension(
    data: KernelData, alpha: float, n_probes: int, max_passes: int, block_rows: int
) -> Measured:
    """tr K (K + aI)^-1 by Hutchinson's estimator on what a Nystrom sketch leaves over.

    With P = sketch + aI <= A = K + aI the trace is that of the sketch plus the mean over probes z
    of alpha z^T (P^-1 - A^-1) z. Conjugate gradients from zero, preconditioned by P, approach
    z^T A^-1 z from below, and fall short of it by at most r^T P^-1 r for the residual r, as P <= A.
    """
    K = GramOperator(data.kernel, data.points, block_rows)
    rng = stream(data.seed, "diagnostics", "probes")
    probes = rng.choice([-1.0, 1.0], size=(K.n_rows, n_probes))
    sketch = _sketch(K, data.seed)
    known = sketch.statistical_dimension(alpha)
    of_sketch = alpha * dots(probes, sketch.solve(probes, alpha))
    quantile = float(student.ppf((1 + CONFIDENCE) / 2, n_probes - 1))
    steps = conjugate_gradient_steps(
        lambda V: K @ V + alpha * V, probes, lambda R: sketch.solve(R, alpha)
    )
    for step in islice(steps, max_passes):
        missing = of_sketch - alpha * dots(probes, step.values)
        shortfall = alpha * float(step.energy.mean())
        spread = quantile * float(np.std(missing, ddof=1) / np.sqrt(missing.size))
        if shortfall <= 0.1 * spread:
            break
    centre = known + float(missing.mean())
    # The sketch is no larger than K, so its part of the trace is certain.
    return between(max(centre - shortfall - spread, known), centre + spread)


def epsilon_sides(
    data: KernelData, Z: Any, alpha: float, tol: float, max_passes: int, block_rows: int
) -> tuple[Measured, Measured]:
    """Both sides of the spectral epsilon, from the eigenvalues of (K + aI, ZZ^T + aI).

    With W = (ZZ^T + aI)^(1/2) they are those of W^-1 (K + aI) W^-1. Most of them are near 1; the
    smallest would come last if the largest are large, so it is found with the sketch's inverse.
    """
    K = GramOperator(data.kernel, data.points, block_rows)
    sketch = _sketch(K, data.seed)
    white = Whitening(Z, alpha)

    def apply(V: Array) -> Array:
        V = white.inverse_root(V)
        return white.inverse_root(K @ V + alpha * V)

    def approximate_inverse(V: Array) -> Array:
        return white.root(sketch.solve(white.root(V), alpha))

    def is_precise(smallest: Ritz, largest: Ritz) -> bool:
        upper, lower = abs(1.0 - smallest.value), abs(largest.value - 1.0)
        least = 0.1 * min(max(lower, upper), 1.0)  # a side much smaller than the other is not used
        return smallest.residual <= tol * max(upper, least) and largest.residual <= tol * max(
            lower, least
        )

    half = min(BLOCK_SIZE, sketch.test.shape[1]) // 2 or 1
    known, other = sketch.test[:, :half], sketch.test[:, -half:]
    powered = white.inverse_root(sketch.image[:, :half] + alpha * known)
    start = np.hstack([powered, approximate_inverse(other)])
    smallest, largest = extreme_eigenvalues(
        apply, start, is_precise, max_passes, approximate_inverse
    )
    return (
        Measured(largest.value - 1.0, _error(largest)),
        Measured(1.0 - smallest.value, _error(smallest)),
    )


def kernel_errors(
    data: KernelData, Z: Any, tol: float, max_passes: int, block_rows: int
) -> tuple[Measured, Measured]:
    """Relative Frobenius error, summed over all pairs, and operator norm error."""
    K = GramOperator(data.kernel, data.points, block_rows)
    error, total = _squared_norms(K, Z)
    if total == 0.0:
        raise ValueError("the kernel is zero for all pairs of rows: a relative error is undefined")
    frobenius = float(np.sqrt(error / total))
    start = stream(data.seed, "diagnostics", "start").standard_normal(
        (K.n_rows, min(BLOCK_SIZE, K.n_rows))
    )

    def is_precise(smallest: Ritz, largest: Ritz) -> bool:
        norm = max(abs(smallest.value), abs(largest.value))
        return all(abs(end.value) + end.residual <= (1 + tol) * norm for end in (smallest, largest))

    ends = extreme_eigenvalues(lambda V: K @ V - Z @ (Z.T @ V), start, is_precise, max_passes)
    _, whole = extreme_eigenvalues(K.__matmul__, start, is_precise, max_passes)
    norm = max(abs(end.value) for end in ends)
    reach = max(abs(end.value) + end.residual for end in ends)
    least = max(norm - max(end.residual for end in ends), 0.0)
    rounding = ROUNDING * whole.value
    return (
        Measured(frobenius, ROUNDING * max(frobenius, 1.0)),
        _around(
            norm / whole.value,
            (least - rounding) / (whole.value + whole.residual),
            (reach + rounding) / max(whole.value - whole.residual, rounding),
        ),
    )


def _sketch(K: GramOperator, seed: int) -> NystromSketch:
    """A Nystrom sketch with random test vectors."""
    rng = stream(seed, "diagnostics", "sketch")
    test, _ = np.linalg.qr(rng.standard_normal((K.n_rows, min(SKETCH_RANK, K.n_rows))))
    return NystromSketch(K, test)


def _error(ritz: Ritz) -> float:
    """Residual, and what rounding may add."""
    return ritz.residual + ROUNDING * max(abs(ritz.value), 1.0)


def _around(value: float, low: float, high: float) -> Measured:
    """A value, with the larger of its distances to the ends of an interval around it."""
    return Measured(value, max(value - low, high - value))


def _squared_norms(K: GramOperator, Z: Any) -> tuple[float, float]:
    """Squared Frobenius norms of K - ZZ^T and of K, in one pass."""
    error = total = 0.0
    for rows, block in K.trailing_blocks():
        difference = block - outer(Z[rows], Z[rows.start :])
        error += _mirrored_squares(difference)
        total += _mirrored_squares(block)
    return error, total


def _mirrored_squares(block: Array) -> float:
    """Sum of squares of a block and of its mirror image; the diagonal square counts once."""
    size = block.shape[0]
    return float(2.0 * np.sum(block**2) - np.sum(block[:, :size] ** 2))
