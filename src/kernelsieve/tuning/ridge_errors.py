"""Errors of ridges on rows that they have not seen: leave-one-out, or rows set apart."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from kernelsieve._parallel import ordered_map
from kernelsieve.kernels import Kernel
from kernelsieve.kernels.learning.likelihood import without_constants
from kernelsieve.linalg.cholesky import inverse_of, inverse_of_lower, regularised_cholesky
from kernelsieve.linalg.solvers import conjugate_gradients
from kernelsieve.sources.base import Block

Array = NDArray[np.float64]


class RidgeErrors(ABC):
    """Residuals of ridges on some rows, at those of them that judge.

    Parameters
    ----------
    rows : Block
        With targets of shape (n, m).
    outside : ndarray of bool, of shape (n,)
        The rows that judge.
    fit_intercept : bool
    n_jobs : int or None
        Threads, where the caller leaves any; the ridges are the same for any number.
    free_intercept : bool, default False
        Whether intercepts are solved for, in place of the mean of the target: needed for kernels of
        functions with mean 0.
    """

    def __init__(
        self,
        rows: Block,
        outside: NDArray[np.bool_],
        fit_intercept: bool,
        n_jobs: int | None = None,
        free_intercept: bool = False,
    ) -> None:
        self.n_jobs, self.free_intercept = n_jobs, free_intercept
        # In float64: rounding in float32 hides a small alpha, and K is no longer positive definite.
        self.X, self.outside = rows.X.astype(np.float64), outside
        weights = rows.weights_or_ones
        self.weights = np.maximum(weights, 1e-12 * weights.max())
        self.mean = np.average(rows.y, axis=0, weights=self.weights) if fit_intercept else 0.0
        self.y = rows.y - self.mean
        size = np.sqrt(np.average(self.y**2, axis=0, weights=self.weights))
        self.size = np.where(size > 0, size, 1.0)  # of each target

    @abstractmethod
    def residuals(self, kernel: Kernel, alphas: Array) -> list[Array]:
        """Residuals at the rows that judge, of shape (n_outside, m), one array for each alpha."""

    def errors(self, kernel: Kernel, alphas: Array) -> Array:
        """Root mean squares of the residuals in units of the targets' sizes, for each alpha."""
        return np.array([self.rmse(r / self.size) for r in self.residuals(kernel, alphas)])

    def rmse(self, residuals: Array) -> float:
        """The weighted root mean square of residuals."""
        squares = np.mean(residuals**2, axis=1)
        return math.sqrt(float(np.average(squares, weights=self.weights[self.outside])))


class LeftOut(RidgeErrors):
    """Ridges on the exact kernel matrix; leave-one-out."""

    def residuals(self, kernel: Kernel, alphas: Array) -> list[Array]:
        gram = kernel.between(self.X, self.X, self.n_jobs).astype(np.float64, copy=False)

        def left_out(alpha: float) -> Array:
            shifted = gram.copy()
            shifted.flat[:: len(gram) + 1] += alpha / self.weights
            _, inverse = inverse_of(shifted)
            if self.free_intercept:
                inverse = without_constants(inverse)
            residuals: Array = (inverse @ self.y) / np.diag(inverse)[:, None]
            return residuals[self.outside]

        return list(ordered_map(left_out, alphas, self.n_jobs))


class SetApart(RidgeErrors):
    """Ridges on the exact kernel matrix of the rows that do not judge."""

    def __init__(
        self,
        rows: Block,
        outside: NDArray[np.bool_],
        fit_intercept: bool,
        n_jobs: int | None = None,
        free_intercept: bool = False,
    ) -> None:
        super().__init__(rows, outside, fit_intercept, n_jobs, free_intercept)
        known = self.weights[~outside]
        if fit_intercept:  # the mean of the rows that are known
            self.y = rows.y - np.average(rows.y[~outside], axis=0, weights=known)

    def residuals(self, kernel: Kernel, alphas: Array) -> list[Array]:
        known, new = self.X[~self.outside], self.X[self.outside]
        gram = kernel.between(known, known, self.n_jobs)
        cross = kernel.between(new, known, self.n_jobs)

        def unseen(alpha: float) -> Array:
            shifted = gram.copy()
            shifted.flat[:: len(gram) + 1] += alpha / self.weights[~self.outside]
            lower, _ = regularised_cholesky(shifted, 0.0)
            # As an upper factor it is in Fortran's order, and is not copied.
            y = self.y[~self.outside]
            known = np.hstack([y, np.ones((len(y), 1))]) if self.free_intercept else y
            dual = cho_solve((lower.T, False), known, check_finite=False)
            intercepts = np.zeros(y.shape[1])
            if self.free_intercept:
                intercepts = dual[:, :-1].sum(axis=0) / dual[:, -1].sum()
                dual = dual[:, :-1] - dual[:, -1:] * intercepts
            residuals: Array = self.y[self.outside] - cross @ dual - intercepts
            return residuals

        return list(ordered_map(unseen, alphas, self.n_jobs))


class SetApartAtOnce(SetApart):
    """The same, with one Cholesky factor for ridges that are not far from each other.

    The factor of K + a I is a preconditioner for K + b I with condition max(a / b, b / a), so that
    the systems of all other alphas are solved together in some ten iterations.
    """

    tol: ClassVar[float] = 1e-7
    most_iterations: ClassVar[int] = 60
    last: _Factored | None = None

    def residuals(self, kernel: Kernel, alphas: Array) -> list[Array]:
        y = self.y[~self.outside]
        right = np.hstack([y, np.ones((len(y), 1))]) if self.free_intercept else y
        last = self._factored(kernel, float(alphas[len(alphas) // 2]))
        duals = last.solve(right, alphas, self.tol, self.most_iterations)
        if duals is None:  # the alphas are too far apart
            return super().residuals(kernel, alphas)
        found = []
        for dual in duals:
            intercepts = np.zeros(y.shape[1])
            if self.free_intercept:
                intercepts = dual[:, :-1].sum(axis=0) / dual[:, -1].sum()
                dual = dual[:, :-1] - dual[:, -1:] * intercepts
            found.append(self.y[self.outside] - last.cross @ dual - intercepts)
        return found

    def _factored(self, kernel: Kernel, alpha: float) -> _Factored:
        """The factor of the last kernel, if that is asked for again."""
        if self.last is None or self.last.kernel is not kernel:
            known, new = self.X[~self.outside], self.X[self.outside]
            noise = 1.0 / self.weights[~self.outside]
            gram = kernel.between(known, known, self.n_jobs)
            shifted = gram.copy()
            shifted.flat[:: len(gram) + 1] += alpha * noise
            lower, _ = regularised_cholesky(shifted, 0.0)
            cross = kernel.between(new, known, self.n_jobs)
            self.last = _Factored(kernel, gram, cross, noise, alpha, lower)
        return self.last


@dataclass(frozen=True)
class _Factored:
    """A kernel on some rows, and the lower factor of K + alpha D."""

    kernel: Kernel
    gram: Array
    cross: Array
    noise: Array
    alpha: float
    lower: Array

    def solve(self, right: Array, alphas: Array, tol: float, max_iter: int) -> list[Array] | None:
        """(K + alpha D)^-1 right for each alpha; None if that takes too many iterations."""
        count = right.shape[1]
        ridges = np.outer(self.noise, np.repeat(alphas, count))

        def precondition(block: Array) -> Array:
            # As an upper factor it is in Fortran's order, and is not copied.
            return cho_solve((self.lower.T, False), block, check_finite=False)

        found = conjugate_gradients(
            lambda block: self.gram @ block + ridges * block,
            np.tile(right, (1, len(alphas))),
            precondition,
            tol,
            max_iter,
        )
        if found.residual > tol:
            return None
        return np.split(found.values, len(alphas), axis=1)


class OnLandmarks(RidgeErrors):
    """Ridges on the features of landmarks; leave-one-out."""

    def __init__(
        self,
        rows: Block,
        outside: NDArray[np.bool_],
        fit_intercept: bool,
        landmarks: Any,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__(rows, outside, fit_intercept, n_jobs)
        self.landmarks, self.fit_intercept = landmarks.astype(np.float64), fit_intercept

    def residuals(self, kernel: Kernel, alphas: Array) -> list[Array]:
        square = kernel.between(self.landmarks, self.landmarks, self.n_jobs).astype(np.float64)
        lower, _ = regularised_cholesky(square, 1e-10 * len(square))
        cross = kernel.between(self.X, self.landmarks, self.n_jobs)
        Z = cross.astype(np.float64) @ inverse_of_lower(lower).T
        if self.fit_intercept:
            Z -= np.average(Z, axis=0, weights=self.weights)
        roots = np.sqrt(self.weights)[:, None]
        Z *= roots
        values, vectors = np.linalg.eigh(Z.T @ Z)
        Z = Z @ vectors
        moment, squares = Z.T @ (roots * self.y), Z**2
        intercept = self.weights / self.weights.sum() if self.fit_intercept else 0.0
        found = []
        for alpha in alphas:
            shrunk = 1.0 / (np.maximum(values, 0.0) + alpha)
            left = np.maximum(1.0 - squares @ shrunk - intercept, 1e-9)[:, None]
            fitted = (Z @ (shrunk[:, None] * moment)) / roots
            found.append(((self.y - fitted) / left)[self.outside])
        return found
