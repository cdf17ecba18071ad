"""Penalised logistic regression: one quasi-Newton method, on a kernel matrix or on features.

Scores are the columns of a softmax; a single column f stands for the two scores -f and f. Targets
are +-1, as those of a ridge. The squared loss of such targets bounds the curvature of the log loss
(Boehning 1992), so the factor of the ridge preconditions every step here, and the first step from
zero is that ridge up to a factor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve
from scipy.special import log_softmax

from kernelsieve.linalg.cholesky import regularised_cholesky
from kernelsieve.linalg.posterior import Posterior

Array = NDArray[np.float64]

MEMORY = 10  # pairs of steps and changes of the gradient
SUFFICIENT = 1e-4  # share of the decrease that the slope promises
HALVINGS = 20  # of a step that does not decrease the objective


def row_losses(scores: Array, signs: Array) -> Array:
    """The log loss of each row, of shape (n,), from scores and targets +-1 of shape (n, m)."""
    if signs.shape[1] == 1:
        return np.logaddexp(0.0, -2.0 * signs[:, 0] * scores[:, 0])
    return -log_softmax(scores, axis=1)[np.arange(len(signs)), signs.argmax(axis=1)]


def slopes(scores: Array, signs: Array) -> Array:
    """The derivatives of the log loss of each row by its scores."""
    if signs.shape[1] == 1:
        return -signs * (1.0 - np.tanh(signs * scores))
    return np.exp(log_softmax(scores, axis=1)) - (signs > 0)


def second_derivatives(scores: Array, column: int) -> Array:
    """Of the log loss of each row by one of its scores."""
    if scores.shape[1] == 1:
        return 1.0 - np.tanh(scores[:, 0]) ** 2
    share = np.exp(log_softmax(scores, axis=1))[:, column]
    return share * (1.0 - share)


def curvature(n_outputs: int) -> float:
    """The largest eigenvalue of the second derivatives of the log loss of a row."""
    return 1.0 if n_outputs == 1 else 0.5


@dataclass(frozen=True)
class Vector:
    """Parameters and their image: the product with them is the inner product with a gradient."""

    values: Array
    image: Array

    def plus(self, factor: float, other: Vector) -> Vector:
        """The sum with a multiple of another vector."""
        if self.image is self.values:
            values = self.values + factor * other.values
            return Vector(values, values)
        return Vector(self.values + factor * other.values, self.image + factor * other.image)


class LogLoss(ABC):
    """A penalised log loss as a function of parameters; the last line of them is the intercept."""

    @abstractmethod
    def vector(self, values: Array) -> Vector:
        """The parameters with their image."""

    @abstractmethod
    def evaluate(self, at: Vector) -> tuple[float, Array]:
        """The objective and its gradient."""

    @abstractmethod
    def precondition(self, gradient: Array) -> Vector:
        """The step that a bound on the curvature gives for a gradient."""


class OnKernel(LogLoss):
    """The parameters are dual coefficients a and intercepts b; the scores are K a + b.

    Gradients are those in the space of the kernel, as coefficients of the rows, so that the inner
    product of a gradient g with a step d is g^T K d.

    Parameters
    ----------
    K : ndarray of shape (n, n)
    signs : ndarray of shape (n, m)
    weights : ndarray of shape (n,)
        Positive.
    alpha : float
    fit_intercept : bool
    """

    def __init__(
        self, K: Array, signs: Array, weights: Array, alpha: float, fit_intercept: bool
    ) -> None:
        self.K, self.signs, self.alpha = K, signs, alpha
        self.weights, self.roots = weights[:, None], np.sqrt(weights)[:, None]
        self.fit_intercept = fit_intercept
        self.bound = curvature(signs.shape[1])
        scaled = self.bound * K
        scaled *= self.roots
        scaled *= self.roots.T
        self.factor = regularised_cholesky(scaled, alpha)[0]
        self.constant = self._solve(self.weights)
        self.total = self.bound * float(self.constant.sum())

    def _solve(self, right: Array) -> Array:
        """(c W K + alpha I)^-1 times columns."""
        solved = cho_solve((self.factor, True), right / self.roots, check_finite=False)
        return self.roots * solved

    def vector(self, values: Array) -> Vector:
        """The parameters with K a."""
        return Vector(values, np.vstack([self.K @ values[:-1], values[-1:]]))

    def evaluate(self, at: Vector) -> tuple[float, Array]:
        """The objective and its gradient."""
        scores = at.image[:-1] + at.image[-1]
        losses = float(self.weights[:, 0] @ row_losses(scores, self.signs))
        pulls = self.weights * slopes(scores, self.signs)
        dual = at.values[:-1]
        penalty = 0.5 * self.alpha * float(np.vdot(dual, at.image[:-1]))
        total = pulls.sum(axis=0) if self.fit_intercept else np.zeros(pulls.shape[1])
        return losses + penalty, np.vstack([pulls + self.alpha * dual, total])

    def precondition(self, gradient: Array) -> Vector:
        """Solve c W (K d + b) + alpha d = g with the intercept's line, sum c W (K d + b) = h."""
        alone, intercepts = self._solve(gradient[:-1]), np.zeros(gradient.shape[1])
        if self.fit_intercept and self.total > 0:
            wanted = (gradient[:-1].sum(axis=0) - gradient[-1]) / self.alpha  # the sum of d
            intercepts = (alone.sum(axis=0) - wanted) / self.total
        return self.vector(np.vstack([alone - self.bound * self.constant * intercepts, intercepts]))


@dataclass
class LossSums:
    """Sums over rows: the log loss, and what the rows pull at coefficients and intercepts.

    Attributes
    ----------
    loss : float
    pulls : ndarray of shape (s, m), Z^T W r for the derivatives r by the scores
    total : ndarray of shape (m,), 1^T W r
    """

    loss: float
    pulls: Array
    total: Array

    @classmethod
    def of_block(
        cls, Z: Any, signs: Array, weights: Array | None, coefficients: Array, intercepts: Array
    ) -> LossSums:
        """The sums over a block of features; products are in the float type of the features."""
        scores = (Z @ coefficients.astype(Z.dtype)).astype(np.float64) + intercepts
        losses, pulls = row_losses(scores, signs), slopes(scores, signs)
        if weights is not None:
            losses, pulls = weights * losses, weights[:, None] * pulls
        sums = (Z.T @ pulls.astype(Z.dtype)).astype(np.float64)
        return cls(float(losses.sum()), sums, pulls.sum(axis=0))

    def __iadd__(self, other: LossSums) -> LossSums:
        self.loss += other.loss
        self.pulls += other.pulls
        self.total += other.total
        return self


class OnFeatures(LogLoss):
    """The parameters are coefficients of centred features, and intercepts at their means.

    Parameters
    ----------
    sums : callable
        From coefficients of the features and intercepts to LossSums of all rows: one pass.
    posterior : Posterior
        Of a ridge on the same features, or on more rows of them.
    alpha : float
    n_outputs : int
    bend : float, default 1
        The share of the largest curvature that rows of the base rate have: little, if it is near 0
        or 1.
    """

    def __init__(
        self,
        sums: Callable[[Array, Array], LossSums],
        posterior: Posterior,
        alpha: float,
        n_outputs: int,
        bend: float = 1.0,
    ) -> None:
        self.sums, self.posterior, self.alpha = sums, posterior, alpha
        self.bound = bend * curvature(n_outputs)
        self.factor = posterior.with_shift(alpha / self.bound)

    def vector(self, values: Array) -> Vector:
        """The parameters are their own image."""
        return Vector(values, values)

    def plain(self, values: Array) -> tuple[Array, Array]:
        """Coefficients of features that are not centred, and intercepts."""
        mean = self.posterior.feature_mean if self.posterior.fit_intercept else 0.0
        return values[:-1], values[-1] - np.dot(mean, values[:-1])

    def evaluate(self, at: Vector) -> tuple[float, Array]:
        """The objective and its gradient."""
        coefficients = at.values[:-1]
        sums = self.sums(*self.plain(at.values))
        slope, total = sums.pulls + self.alpha * coefficients, np.zeros_like(sums.total)
        if self.posterior.fit_intercept:
            slope -= np.outer(self.posterior.feature_mean, sums.total)
            total = sums.total
        penalty = 0.5 * self.alpha * float(np.vdot(coefficients, coefficients))
        return sums.loss + penalty, np.vstack([slope, total])

    def precondition(self, gradient: Array) -> Vector:
        """The step of the ridge, whose intercept does not depend on the rest."""
        step = cho_solve((self.factor, True), gradient[:-1], check_finite=False)
        return self.vector(np.vstack([step, gradient[-1] / self.posterior.weight]) / self.bound)


@dataclass(frozen=True)
class Minimum:
    """Where the iterations ended.

    Attributes
    ----------
    at : Vector
    iterations : int
    decrease : float
        What the next step promised, relative to the objective.
    """

    at: Vector
    iterations: int
    decrease: float


def minimise(problem: LogLoss, start: Array, max_iter: int, tol: float) -> Minimum:
    """Limited-memory BFGS (Nocedal 1980) with the bound on the curvature for a first guess.

    Parameters
    ----------
    problem : LogLoss
    start : ndarray of shape (s + 1, m)
    max_iter : int
    tol : float
        Iterations end when the next promises a smaller decrease, relative to the objective.
    """
    at = problem.vector(start)
    value, gradient = problem.evaluate(at)
    pairs: list[tuple[Vector, Array, float]] = []
    iterations, decrease = 0, np.inf
    while iterations < max_iter:
        direction = _direction(problem, gradient, pairs)
        slope = float(np.vdot(gradient, direction.image))
        decrease = slope / max(abs(value), 1e-300)
        if not decrease > tol:
            break
        step, lower, changed = 1.0, np.inf, gradient
        for _ in range(HALVINGS):
            tried = at.plus(-step, direction)
            lower, changed = problem.evaluate(tried)
            if lower <= value - SUFFICIENT * step * slope:
                break
            step *= 0.5
        else:  # as low as rounding allows
            break
        moved = Vector(-step * direction.values, -step * direction.image)
        bend = changed - gradient
        curved = float(np.vdot(bend, moved.image))
        if curved > 0.0:
            pairs = [*pairs, (moved, bend, curved)][-MEMORY:]
        at, value, gradient = tried, lower, changed
        iterations += 1
    return Minimum(at, iterations, decrease)


def _direction(
    problem: LogLoss, gradient: Array, pairs: list[tuple[Vector, Array, float]]
) -> Vector:
    """The inverse of the curvature that the steps so far have shown, times the gradient."""
    rest, shares = gradient, []
    for moved, bend, curved in reversed(pairs):
        shares.append(float(np.vdot(rest, moved.image)) / curved)
        rest = rest - shares[-1] * bend
    direction = problem.precondition(rest)
    for (moved, bend, curved), share in zip(pairs, reversed(shares), strict=True):
        direction = direction.plus(share - float(np.vdot(bend, direction.image)) / curved, moved)
    return direction
