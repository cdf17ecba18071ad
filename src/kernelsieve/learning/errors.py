"""Errors of ridges on rows that they have not seen: leave-one-out, or rows set apart."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._parallel import ordered_map
from kernelsieve._random import keyed_rows
from kernelsieve.kernels import Kernel
from kernelsieve.learning.weights import positive_weights
from kernelsieve.linalg.cholesky import (
    covariance_factor,
    inverse_of_lower,
    regularised_cholesky,
    solve_triangle,
)
from kernelsieve.linalg.shifted_systems import ShiftedSystems
from kernelsieve.sources.base import Block

Array = NDArray[np.float64]
Ridges = Callable[[Array], list[Array]]


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
        self.fit_intercept, self.n_jobs = fit_intercept, n_jobs
        self.free_intercept = free_intercept
        # In float64: rounding in float32 hides a small alpha, and K is no longer positive definite.
        self.X, self.outside = rows.X.astype(np.float64), outside
        self.weights = positive_weights(rows.weights_or_ones)
        self.mean = np.average(rows.y, axis=0, weights=self.weights) if fit_intercept else 0.0
        self.y = rows.y - self.mean
        size = np.sqrt(np.average(self.y**2, axis=0, weights=self.weights))
        self.size = np.where(size > 0, size, 1.0)  # of each target

    @abstractmethod
    def ridges(self, kernel: Kernel) -> Ridges:
        """All ridges on a kernel, which is evaluated once.

        They take alphas, and return the residuals at the rows that judge: an array of shape
        (n_outside, m) for each alpha.
        """

    def errors(self, ridges: Ridges, alphas: Array) -> Array:
        """Root mean squares of the residuals in units of the targets' sizes, for each alpha."""
        return np.array([self.rmse(residuals / self.size) for residuals in ridges(alphas)])

    def rmse(self, residuals: Array) -> float:
        """The weighted root mean square of residuals."""
        squares = np.mean(residuals**2, axis=1)
        return math.sqrt(float(np.average(squares, weights=self.weights[self.outside])))


class LeftOut(RidgeErrors):
    """Ridges on the exact kernel matrix; leave-one-out.

    With A = K + alpha I, and the rows that judge last, their block of A^-1 is L22^-T L22^-1, where
    L22 is the last block of the Cholesky factor of A: no more of the inverse is needed.
    """

    def ridges(self, kernel: Kernel) -> Ridges:
        judges = np.flatnonzero(self.outside)
        order = np.append(np.flatnonzero(~self.outside), judges)
        X, y, noises = self.X[order], self.y[order], 1.0 / self.weights[order]
        gram = kernel.between(X, X, self.n_jobs).astype(np.float64, copy=False)
        right, first = np.vstack([y.T, np.ones(len(y))]), len(y) - len(judges)

        def left_out(alpha: float) -> Array:
            shifted = gram.copy()
            shifted.flat[:: len(gram) + 1] += alpha * noises
            lower = covariance_factor(shifted)
            last = np.ascontiguousarray(lower[first:, first:])
            half = solve_triangle(lower, right)
            *solved, sums = solve_triangle(last, half[:, first:], transposed=True)
            dual, diagonal = np.transpose(solved), np.square(inverse_of_lower(last)).sum(axis=0)
            residuals: Array
            if not self.free_intercept:
                moved = self._moved_means(judges) * (sums / diagonal)[:, None]
                residuals = dual / diagonal[:, None] + moved
                return residuals
            if len(gram) == 1:  # without it nothing is known
                return y[first:]
            total = float(half[-1] @ half[-1])
            dual = dual - np.outer(sums, half[:-1] @ half[-1] / total)
            residuals = dual / (diagonal - sums**2 / total)[:, None]
            return residuals

        return lambda alphas: list(ordered_map(left_out, alphas, self.n_jobs))

    def _moved_means(self, judges: NDArray[np.int64]) -> Array:
        """How far the mean of the targets moves without each of the rows that judge."""
        others = self.weights.sum() - self.weights[judges]
        shares = np.divide(
            self.weights[judges], others, out=np.zeros(len(judges)), where=others > 0
        )
        return self.fit_intercept * shares[:, None] * self.y[judges]


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

    def ridges(self, kernel: Kernel) -> Ridges:
        known, new = self.X[~self.outside], self.X[self.outside]
        gram = kernel.between(known, known, self.n_jobs)
        cross = kernel.between(new, known, self.n_jobs)
        y, m = self.y[~self.outside], self.y.shape[1]
        right = np.hstack([y, np.ones((len(y), 1))]) if self.free_intercept else y
        systems = ShiftedSystems(gram, 1.0 / self.weights[~self.outside], right)

        def unseen(dual: Array) -> Array:
            intercepts = np.zeros(m)
            if self.free_intercept:
                intercepts = dual[:, :m].sum(axis=0) / dual[:, m].sum()
                dual = dual[:, :m] - dual[:, m:] * intercepts
            residuals: Array = self.y[self.outside] - cross @ dual - intercepts
            return residuals

        return lambda alphas: [unseen(dual) for dual in systems.solve(alphas)]


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
        self.landmarks = landmarks.astype(np.float64)

    def ridges(self, kernel: Kernel) -> Ridges:
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

        def left_out(alpha: float) -> Array:
            shrunk = 1.0 / (np.maximum(values, 0.0) + alpha)
            left = np.maximum(1.0 - squares @ shrunk - intercept, 1e-9)[:, None]
            fitted = (Z @ (shrunk[:, None] * moment)) / roots
            residuals: Array = ((self.y - fitted) / left)[self.outside]
            return residuals

        return lambda alphas: [left_out(alpha) for alpha in alphas]


class LandmarksApart(RidgeErrors):
    """Ridges on the features of landmarks among the rows that do not judge."""

    def __init__(self, exact: RidgeErrors, landmarks: NDArray[np.int64]) -> None:
        self.fit_intercept, self.n_jobs = exact.fit_intercept, exact.n_jobs
        self.free_intercept = exact.free_intercept
        self.X, self.outside, self.weights = exact.X, exact.outside, exact.weights
        self.y, self.size, self.landmarks = exact.y, exact.size, exact.X[landmarks]

    @classmethod
    def among(cls, exact: RidgeErrors, size: int, seed: int) -> LandmarksApart:
        """With landmarks drawn from the rows that are known to an exact judge."""
        known = np.flatnonzero(~exact.outside)
        return cls(exact, known[keyed_rows(len(known), size, seed, "landmarks")])

    def ridges(self, kernel: Kernel) -> Ridges:
        known, new, weights = self._features(kernel)
        gram, moment = known.T @ (weights * known), known.T @ (weights * self.y[~self.outside])

        def unseen(alpha: float) -> Array:
            factor = _shifted_factor(gram, alpha)
            solved = solve_triangle(factor, solve_triangle(factor, moment.T), transposed=True)
            residuals: Array = self.y[self.outside] - new @ solved.T
            return residuals

        return lambda alphas: [unseen(alpha) for alpha in alphas]

    def residuals_of_all(self, kernel: Kernel, alpha: float) -> Array:
        """Residuals of one ridge: leave-one-out at the rows that it is fitted to."""
        known, new, weights = self._features(kernel)
        y = self.y[~self.outside]
        factor = _shifted_factor(known.T @ (weights * known), alpha)
        half = solve_triangle(factor, known)
        solved = solve_triangle(factor, (half.T @ (weights * y)).T, transposed=True).T
        left = np.maximum(1.0 - weights[:, 0] * np.square(half).sum(axis=1), 1e-6)
        residuals = np.empty_like(self.y)
        residuals[~self.outside] = (y - known @ solved) / left[:, None]
        residuals[self.outside] = self.y[self.outside] - new @ solved
        return residuals

    def _features(self, kernel: Kernel) -> tuple[Array, Array, Array]:
        """Features of the rows that are fitted and of those that judge, and weights."""
        square = kernel.between(self.landmarks, self.landmarks, self.n_jobs).astype(np.float64)
        lower, _ = regularised_cholesky(square, 1e-10 * len(square))
        Z = kernel.between(self.X, self.landmarks, self.n_jobs).astype(np.float64)
        Z = Z @ inverse_of_lower(lower).T
        return Z[~self.outside], Z[self.outside], self.weights[~self.outside][:, None]


def _shifted_factor(gram: Array, alpha: float) -> Array:
    shifted = gram.copy()
    shifted.flat[:: len(gram) + 1] += alpha
    return regularised_cholesky(shifted, 0.0)[0]
