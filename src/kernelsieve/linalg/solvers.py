"""Factorisations and solves of symmetric systems, in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky

JITTERS = (0.0, 1e-14, 1e-12, 1e-10, 1e-8)

Array = NDArray[np.float64]


def regularised_cholesky(gram: Array, alpha: float) -> tuple[Array, float]:
    """Lower factor of gram + shift I, and the shift.

    The shift is alpha, or a little more where rounding left the matrix indefinite.
    """
    scale = float(np.trace(gram)) / len(gram)
    if not np.isfinite(scale):
        raise ValueError(
            "the products of features overflow float64: scale X, or lower gamma or the degree"
        )
    for jitter in JITTERS:
        shift = alpha + jitter * scale
        shifted = gram.copy()
        shifted.flat[:: len(gram) + 1] += shift
        try:
            return cholesky(shifted, lower=True, overwrite_a=True, check_finite=False), shift
        except LinAlgError:
            continue
    raise LinAlgError(f"the Gram matrix is not positive definite at alpha={alpha:g}: raise alpha")


@dataclass(frozen=True)
class Solution:
    """What conjugate gradients found.

    Attributes
    ----------
    values : ndarray of shape (n, k)
    iterations : int
    residual : float
        The largest |b - A x| / |b| of the k systems.
    """

    values: Array
    iterations: int
    residual: float


def conjugate_gradients(
    apply: Callable[[Array], Array],
    right: Array,
    precondition: Callable[[Array], Array],
    tol: float,
    max_iter: int,
    report: Callable[[int, float], None] = lambda iteration, residual: None,
) -> Solution:
    """Solve A x = b for several right hand sides at once, preconditioned.

    ``apply`` and ``precondition`` take and give blocks of shape (n, k), and see every system in
    every iteration: one pass over the data serves all. Stops when all residuals are below ``tol``.
    """
    norms = np.linalg.norm(right, axis=0)
    scale = np.where(norms > 0, norms, 1.0)
    solution, residual = np.zeros_like(right), right.copy()
    direction = preconditioned = precondition(residual)
    size = dots(residual, preconditioned)
    relative = float((norms / scale).max(initial=0.0))
    iterations = 0
    while relative > tol and iterations < max_iter:
        image = apply(direction)
        step = ratio(size, dots(direction, image))
        solution += step * direction
        residual -= step * image
        iterations += 1
        relative = float((np.linalg.norm(residual, axis=0) / scale).max())
        report(iterations, relative)
        preconditioned = precondition(residual)
        size, previous = dots(residual, preconditioned), size
        direction = preconditioned + ratio(size, previous) * direction
    return Solution(solution, iterations, relative)


def dots(left: Array, right: Array) -> Array:
    """Inner products of corresponding columns."""
    return np.einsum("ij,ij->j", left, right)


def ratio(numerator: Array, denominator: Array) -> Array:
    """Quotients, with 0 / 0 = 0."""
    zero = np.zeros_like(numerator)
    return np.divide(numerator, denominator, out=zero, where=denominator != 0)
