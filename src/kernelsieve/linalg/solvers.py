"""Solve symmetric positive definite systems in float64 by conjugate gradients."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COARSE = float(np.finfo(np.float32).eps) / 2  # rounding of an entry of a coarse matrix
DIVERGED = 100.0  # growth of a residual at which coarse iterations are given up

Array = NDArray[np.float64]
Apply = Callable[[Array], Array]


@dataclass(frozen=True)
class Solution:
    """The result of conjugate gradients.

    Attributes
    ----------
    values : ndarray of shape (n, k)
    iterations : int
    residual : float
        The largest ``|b - A x| / |b|`` of the k systems.
    """

    values: Array
    iterations: int
    residual: float


@dataclass(frozen=True)
class Iteration:
    """One iteration of conjugate gradients on k systems.

    Attributes
    ----------
    values, residual : ndarray of shape (n, k)
        The solution so far, and what the recurrence takes for b - A x. Both are overwritten by
        the next step.
    energy : ndarray of shape (k,)
        r^T P^-1 r for the residual r and the preconditioner P.
    stretch : float
        The largest ``|A d| / |d|`` over this step's directions d: at most the norm of A.
    moved : ndarray of shape (k,)
        The length of this step.
    curvature : ndarray of shape (k,)
        d^T A d for this step's directions d: not negative, unless A is not what it should be.
    """

    values: Array
    residual: Array
    energy: Array
    stretch: float
    moved: Array
    curvature: Array


def conjugate_gradient_steps(
    apply: Apply, right: Array, precondition: Apply
) -> Iterator[Iteration]:
    """Preconditioned conjugate gradients from zero, without end: the caller decides when to stop.

    Parameters
    ----------
    apply, precondition : callable
        From a block of shape (n, k) to A times the block, and to an approximate A^-1 times it, each
        as a new array. Each sees every system in every iteration, so one pass over the data serves
        all.
    right : ndarray of shape (n, k)
    """
    values, residual = np.zeros_like(right), right.copy()
    direction = preconditioned = precondition(residual)
    energy = dots(residual, preconditioned)
    while True:
        image = apply(direction)
        length = np.linalg.norm(direction, axis=0)
        stretch = ratio(np.linalg.norm(image, axis=0), length)
        curvature = dots(direction, image)
        step = ratio(energy, curvature)
        values += step * direction
        residual -= step * image
        preconditioned = precondition(residual)
        energy, previous = dots(residual, preconditioned), energy
        moved = np.abs(step) * length
        longest = float(stretch.max(initial=0.0))
        yield Iteration(values, residual, energy, longest, moved, curvature)
        direction = preconditioned + ratio(energy, previous) * direction


def conjugate_gradients(
    apply: Apply,
    right: Array,
    precondition: Apply,
    tol: float,
    max_iter: int,
    report: Callable[[int, float], None] = lambda iteration, residual: None,
    *,
    coarse: Apply | None = None,
    start: Array | None = None,
    deadline: float = math.inf,
) -> Solution:
    """Solve A x = b for several right hand sides until every relative residual is below ``tol``.

    The residual of the recurrence drifts from b - A x by about eps ``|A| |x|`` in every iteration
    (Greenbaum 1997). Where that may matter beside ``tol``, the residual is computed anew, and the
    iteration starts again from it: what is returned is solved to ``tol``, or says that it is not.

    With ``coarse`` the iterations multiply in float32, and only the residuals that are computed
    anew in float64: each round solves for what the rounds before have left.

    Parameters
    ----------
    apply, precondition, right
        As for `conjugate_gradient_steps`.
    tol : float
    max_iter : int
        Iterations in all.
    report : callable, optional
        Gets the number of the iteration and the residual.
    coarse : callable, optional
        The same as ``apply``, up to the rounding of float32 in every entry of A.
    start : ndarray of shape (n, k), optional
        A first guess; None starts from zero.
    deadline : float, optional
        The value of ``time.monotonic()`` after which no iteration begins.
    """
    norms = np.linalg.norm(right, axis=0)
    scale = np.where(norms > 0, norms, 1.0)

    def relative(residual: Array) -> float:
        return float((np.linalg.norm(residual, axis=0) / scale).max(initial=0.0))

    def late() -> bool:
        return time.monotonic() >= deadline

    values, residual = np.zeros_like(right), right
    if start is not None and np.isfinite(start).all():
        rest = right - apply(start)
        if relative(rest) < 1.0:  # otherwise zero is the better guess
            values, residual = start, rest
    size, iterations = relative(residual), 0
    while size > tol and iterations < max_iter and not late():
        before, drift = size, 0.0
        for step in conjugate_gradient_steps(
            apply if coarse is None else coarse, residual, precondition
        ):
            iterations += 1
            size = relative(step.residual)
            report(iterations, size)
            if coarse is None:
                drift += np.finfo(np.float64).eps * step.stretch * relative(step.values)
            else:  # the roundings of the entries of a row are independent
                drift += COARSE * np.sqrt(len(right)) * float((step.moved / scale).max(initial=0.0))
            lost = coarse is not None and (
                size < drift or size > DIVERGED * before or bool((step.curvature < 0).any())
            )
            if size <= tol or lost or iterations >= max_iter or late():
                break
        if size + drift <= tol:
            return Solution(values + step.values, iterations, size)
        tried = values + step.values
        if late():
            if lost and size > before:  # coarse iterations went astray
                return Solution(values, iterations, before)
            return Solution(tried, iterations, size + drift)
        residual_now = right - apply(tried)
        size = relative(residual_now)
        if size < before:
            values, residual = tried, residual_now
        if size > 0.5 * before:
            if coarse is None:  # as exact as float64 allows
                return Solution(values, iterations, min(size, before))
            coarse, size = None, min(size, before)
    return Solution(values, iterations, size)


def dots(left: Array, right: Array) -> Array:
    """Inner products of corresponding columns."""
    return np.einsum("ij,ij->j", left, right)


def ratio(numerator: Array, denominator: Array) -> Array:
    """Quotients, with 0 / 0 = 0."""
    zero = np.zeros_like(numerator)
    return np.divide(numerator, denominator, out=zero, where=denominator != 0)
