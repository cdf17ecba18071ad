"""The linear algebra that the models share: accumulate over blocks, then solve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.linalg.lapack import dpotri

from kernelsieve.linalg.solvers import regularised_cholesky


@dataclass
class NormalEquations:
    """Weighted sums over rows, in float64: all that a ridge needs to know of the data.

    Attributes
    ----------
    gram : ndarray of shape (s, s), Z^T W Z
    moment : ndarray of shape (s, n_outputs), Z^T W y
    feature_sum : ndarray of shape (s,)
    target_sum, target_squares : ndarray of shape (n_outputs,)
    weight : float
        The sum of the weights: the number of rows where there are none.
    """

    gram: NDArray[np.float64]
    moment: NDArray[np.float64]
    feature_sum: NDArray[np.float64]
    target_sum: NDArray[np.float64]
    target_squares: NDArray[np.float64]
    weight: float

    @classmethod
    def zero(cls, n_components: int, n_outputs: int) -> NormalEquations:
        """The sums over no rows."""
        return cls(
            np.zeros((n_components, n_components)),
            np.zeros((n_components, n_outputs)),
            np.zeros(n_components),
            np.zeros(n_outputs),
            np.zeros(n_outputs),
            0.0,
        )

    @classmethod
    def of_block(
        cls,
        Z: Any,
        y: NDArray[np.float64],
        weights: NDArray[np.float64] | None = None,
        single: bool = False,
    ) -> NormalEquations:
        """The sums over the rows of a block of features; ``single`` multiplies in float32."""
        with np.errstate(over="ignore", invalid="ignore"):  # told where they are solved
            return cls._of_block(Z, y, weights, single)

    @classmethod
    def _of_block(
        cls, Z: Any, y: NDArray[np.float64], weights: NDArray[np.float64] | None, single: bool
    ) -> NormalEquations:
        if weights is not None:
            roots = np.sqrt(weights)[:, None]
            Z = sp.csr_array(Z.multiply(roots)) if sp.issparse(Z) else Z * roots.astype(Z.dtype)
            y, ones, total = y * roots, roots[:, 0], float(weights.sum())
        else:
            ones, total = np.ones(len(y)), float(len(y))
        if sp.issparse(Z):
            gram = (Z.T @ Z).toarray().astype(np.float64)
            moment, feature_sum = Z.T @ y, Z.T @ ones  # float64, as y is
        else:
            if not single:
                Z = Z.astype(np.float64, copy=False)
            # numpy sees that it is symmetric, which is half the work, and lets other threads run,
            # which scipy's wrappers of the same routine do not.
            gram = (Z.T @ Z).astype(np.float64, copy=False)
            moment = (Z.T @ y.astype(Z.dtype, copy=False)).astype(np.float64, copy=False)
            feature_sum = (
                Z.sum(axis=0, dtype=np.float64) if weights is None else Z.T @ ones.astype(Z.dtype)
            ).astype(np.float64, copy=False)
        return cls(
            gram, moment, feature_sum, ones @ y, np.einsum("ij,ij->j", y, y), total
        )  # fmt: skip

    def __iadd__(self, other: NormalEquations) -> NormalEquations:
        self.gram += other.gram
        self.moment += other.moment
        self.feature_sum += other.feature_sum
        self.target_sum += other.target_sum
        self.target_squares += other.target_squares
        self.weight += other.weight
        return self

    def mixed(self, T: NDArray[Any]) -> NormalEquations:
        """The sums of the features Z T, from those of Z."""
        T = T.astype(np.float64)
        return NormalEquations(
            T.T @ self.gram @ T,
            T.T @ self.moment,
            self.feature_sum @ T,
            self.target_sum,
            self.target_squares,
            self.weight,
        )

    def centred(self, fit_intercept: bool) -> Centred:
        """The problem of the intercept: features and targets minus their means."""
        if not self.weight > 0:
            raise ValueError("all sample weights are zero: there is nothing to fit")
        gram = self.gram.copy()
        if not fit_intercept:
            zeros = np.zeros(len(gram)), np.zeros(len(self.target_sum))
            return Centred(gram, self.moment.copy(), *zeros, self.target_squares, self.weight)
        feature_mean = self.feature_sum / self.weight
        target_mean = self.target_sum / self.weight
        gram -= np.outer(feature_mean, self.feature_sum)
        moment = self.moment - np.outer(feature_mean, self.target_sum)
        squares = self.target_squares - target_mean * self.target_sum
        return Centred(gram, moment, feature_mean, target_mean, squares, self.weight)


@dataclass(frozen=True)
class Centred:
    """Normal equations after the means are taken out (or zeros in place of the means).

    Attributes
    ----------
    gram, moment, target_squares : ndarray
        Z^T W Z, Z^T W y and y^T W y of the centred features and targets.
    feature_mean, target_mean : ndarray
    weight : float
    """

    gram: NDArray[np.float64]
    moment: NDArray[np.float64]
    feature_mean: NDArray[np.float64]
    target_mean: NDArray[np.float64]
    target_squares: NDArray[np.float64]
    weight: float

    def intercepts(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """What is to be added to the features times the coefficients."""
        return self.target_mean - self.feature_mean @ coefficients

    def residual_squares(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """The weighted sum of squared residuals, by output."""
        explained = np.einsum(
            "ij,ij->j", coefficients, 2.0 * self.moment - self.gram @ coefficients
        )
        return np.maximum(self.target_squares - explained, 0.0)


@dataclass(frozen=True)
class RidgeSolution:
    """A ridge, and what its uncertainty needs.

    Attributes
    ----------
    coefficients : ndarray of shape (s, n_outputs)
    intercepts : ndarray of shape (n_outputs,)
    factor : ndarray of shape (s, s)
        The lower Cholesky factor of Z^T W Z + shift I, centred.
    shift : float
        alpha, or a little more where rounding asked for it.
    feature_mean : ndarray of shape (s,)
    residual_squares : ndarray of shape (n_outputs,)
    weight : float
    """

    coefficients: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    factor: NDArray[np.float64]
    shift: float
    feature_mean: NDArray[np.float64]
    residual_squares: NDArray[np.float64]
    weight: float

    def degrees_of_freedom(self) -> float:
        """tr G (G + shift I)^-1 of the centred Gram matrix."""
        inverse, _ = dpotri(self.factor, lower=1)
        return len(self.factor) - self.shift * float(np.trace(inverse))

    def leverages(self, Z: Any) -> NDArray[np.float64]:
        """(z - mean)^T (G + shift I)^-1 (z - mean) for the rows of a block of features."""
        dense = Z.toarray() if sp.issparse(Z) else Z
        halves = solve_triangular(
            self.factor, (dense - self.feature_mean).T, lower=True, check_finite=False
        )
        return np.einsum("ij,ij->j", halves, halves)


def solve_ridge(equations: NormalEquations, alpha: float, fit_intercept: bool) -> RidgeSolution:
    """(Pi Phi Phi^T Pi^T + alpha I) w = Pi Phi y: the paper's ridge, centred for an intercept."""
    problem = equations.centred(fit_intercept)
    factor, shift = regularised_cholesky(problem.gram, alpha)
    coefficients = cho_solve((factor, True), problem.moment)
    return RidgeSolution(
        coefficients,
        problem.intercepts(coefficients),
        factor,
        shift,
        problem.feature_mean,
        problem.residual_squares(coefficients),
        problem.weight,
    )


def solve_dual_ridge(
    Z: NDArray[Any],
    y: NDArray[np.float64],
    weights: NDArray[np.float64] | None,
    alpha: float,
    fit_intercept: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coefficients and intercepts by an n x n system, for fewer rows than features."""
    n = len(y)
    weights = np.ones(n) if weights is None else weights
    Z = Z.astype(np.float64)
    feature_mean, target_mean = np.zeros(Z.shape[1]), np.zeros(y.shape[1])
    if fit_intercept:
        feature_mean, target_mean = weights @ Z / weights.sum(), weights @ y / weights.sum()
    roots = np.sqrt(weights)[:, None]
    Z = (Z - feature_mean) * roots
    factor, _ = regularised_cholesky(Z @ Z.T, alpha)
    coefficients = Z.T @ cho_solve((factor, True), (y - target_mean) * roots)
    return coefficients, target_mean - feature_mean @ coefficients
