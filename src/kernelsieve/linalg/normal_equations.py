"""Ridge regression from sums over rows: accumulate over blocks, then solve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from kernelsieve._state import Persistent, array, number, whole
from kernelsieve.linalg.cholesky import regularised_cholesky
from kernelsieve.linalg.posterior import Posterior

Array = NDArray[np.float64]


@dataclass
class NormalEquations(Persistent):
    """Weighted sums over rows, in float64: all that a ridge needs to know of the data.

    Attributes
    ----------
    gram : ndarray of shape (s, s), Z^T W Z
    moment : ndarray of shape (s, n_outputs), Z^T W y
    feature_sum : ndarray of shape (s,)
    target_sum, target_squares : ndarray of shape (n_outputs,)
    weight : float
        The sum of the weights: the number of rows if there are none.
    n_rows : int
        The number of rows whose weight is positive.
    """

    gram: Array
    moment: Array
    feature_sum: Array
    target_sum: Array
    target_squares: Array
    weight: float
    n_rows: int

    _state_fields: ClassVar = {
        "gram": array("s", "s"),
        "moment": array("s", "outputs"),
        "feature_sum": array("s"),
        "target_sum": array("outputs"),
        "target_squares": array("outputs"),
        "weight": number(0.0, 1e300),
        "n_rows": whole(),
    }

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of features and of outputs."""
        return self.moment.shape

    @classmethod
    def zero(cls, n_components: int, n_outputs: int) -> NormalEquations:
        """The sums over no rows."""
        return cls.of_block(np.empty((0, n_components)), np.empty((0, n_outputs)))

    @classmethod
    def of_block(
        cls, Z: Any, y: Array, weights: Array | None = None, single: bool = False
    ) -> NormalEquations:
        """The sums over the rows of a block of features.

        Parameters
        ----------
        Z : {ndarray, CSR} of shape (n, s)
        y : ndarray of shape (n, n_outputs)
        weights : ndarray of shape (n,), optional
        single : bool, default False
            Multiply float32 features in float32.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # reported where they are solved
            return cls._of_block(Z, y, weights, single)

    @classmethod
    def _of_block(cls, Z: Any, y: Array, weights: Array | None, single: bool) -> NormalEquations:
        roots = np.ones(len(y)) if weights is None else np.sqrt(weights)
        if weights is not None:
            scale = roots[:, None]
            Z = sp.csr_array(Z.multiply(scale)) if sp.issparse(Z) else Z * scale.astype(Z.dtype)
        if not (single or sp.issparse(Z)):
            Z = Z.astype(np.float64, copy=False)
        # float32 holds the digits of y around the mean of the block, whatever that is.
        centre = y.mean(axis=0) if single and len(y) else np.zeros(y.shape[1])
        around = (y - centre) * roots[:, None]
        if sp.issparse(Z):
            gram = (Z.T @ Z).toarray()
            moment, feature_sum = Z.T @ around, Z.T @ roots  # float64, as y is
        else:
            # numpy sees that it is symmetric, which is half the work, and lets other threads run,
            # which scipy's wrappers of the same routine do not.
            gram = Z.T @ Z
            moment = Z.T @ around.astype(Z.dtype, copy=False)
            feature_sum = (
                Z.sum(axis=0, dtype=np.float64) if weights is None else Z.T @ roots.astype(Z.dtype)
            )
        feature_sum = feature_sum.astype(np.float64, copy=False)
        y = y * roots[:, None]
        return cls(
            gram.astype(np.float64, copy=False),
            moment.astype(np.float64, copy=False) + np.outer(feature_sum, centre),
            feature_sum,
            roots @ y,
            np.einsum("ij,ij->j", y, y),
            float(len(y) if weights is None else weights.sum()),
            int(np.count_nonzero(roots)),
        )

    def faded(self, factor: float) -> NormalEquations:
        """The same sums with all weights multiplied by a factor below 1: older rows count less.

        The number of rows shrinks with them: what is forgotten tells nothing about the noise.
        """
        return NormalEquations(
            factor * self.gram,
            factor * self.moment,
            factor * self.feature_sum,
            factor * self.target_sum,
            factor * self.target_squares,
            factor * self.weight,
            round(factor * self.n_rows),
        )

    def __iadd__(self, other: NormalEquations) -> NormalEquations:
        self.gram += other.gram
        self.moment += other.moment
        self.feature_sum += other.feature_sum
        self.target_sum += other.target_sum
        self.target_squares += other.target_squares
        self.weight += other.weight
        self.n_rows += other.n_rows
        return self

    def target_deviations(self) -> Array:
        """Standard deviations of the targets, of shape (n_outputs,)."""
        mean = self.target_sum / self.weight
        return np.sqrt(np.maximum(self.target_squares / self.weight - mean**2, 0.0))

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
            self.n_rows,
        )

    def centred(self, fit_intercept: bool) -> Centred:
        """Subtract the means of features and targets, which solves for an intercept."""
        if not self.weight > 0:
            raise ValueError("all sample weights are zero: there is nothing to fit")
        gram, moment, squares = self.gram.copy(), self.moment, self.target_squares
        feature_mean, target_mean = np.zeros(len(gram)), np.zeros(len(squares))
        if fit_intercept:
            feature_mean = self.feature_sum / self.weight
            target_mean = self.target_sum / self.weight
            gram -= np.outer(feature_mean, self.feature_sum)
            moment = moment - np.outer(feature_mean, self.target_sum)
            squares = squares - target_mean * self.target_sum
        return Centred(gram, moment, feature_mean, target_mean, squares, self.weight, self.n_rows)


@dataclass(frozen=True)
class Centred:
    """Normal equations of centred features and targets; without an intercept the means are zero.

    Attributes
    ----------
    gram, moment, target_squares : ndarray
        Z^T W Z, Z^T W y and y^T W y of the centred features and targets.
    feature_mean : ndarray of shape (s,)
    target_mean : ndarray of shape (n_outputs,)
    weight : float
    n_rows : int
    """

    gram: Array
    moment: Array
    feature_mean: Array
    target_mean: Array
    target_squares: Array
    weight: float
    n_rows: int

    def intercepts(self, coefficients: Array) -> Array:
        """Intercepts, to be added to the features times the coefficients."""
        return self.target_mean - self.feature_mean @ coefficients

    def residual_squares(self, coefficients: Array) -> Array:
        """The weighted sum of squared residuals, by output."""
        explained = np.einsum(
            "ij,ij->j", coefficients, 2.0 * self.moment - self.gram @ coefficients
        )
        return np.maximum(self.target_squares - explained, 0.0)


@dataclass(frozen=True)
class RidgeSolution:
    """A solved ridge regression.

    Attributes
    ----------
    coefficients : ndarray of shape (s, n_outputs)
    intercepts : ndarray of shape (n_outputs,)
    posterior : Posterior
    """

    coefficients: Array
    intercepts: Array
    posterior: Posterior


def solve_ridge(equations: NormalEquations, alpha: float, fit_intercept: bool) -> RidgeSolution:
    """(Pi Phi Phi^T Pi^T + alpha I) w = Pi Phi y: the paper's ridge, centred for an intercept."""
    problem = equations.centred(fit_intercept)
    factor, shift = regularised_cholesky(problem.gram, alpha)
    coefficients = cho_solve((factor, True), problem.moment)
    posterior = Posterior(
        factor,
        shift,
        problem.feature_mean,
        problem.residual_squares(coefficients),
        problem.weight,
        problem.n_rows,
        bool(fit_intercept),
    )
    return RidgeSolution(coefficients, problem.intercepts(coefficients), posterior)


def solve_dual_ridge(
    Z: NDArray[Any], y: Array, weights: Array | None, alpha: float, fit_intercept: bool
) -> tuple[Array, Array]:
    """Coefficients and intercepts by an n x n system, for fewer rows than features."""
    weights = np.ones(len(y)) if weights is None else weights
    Z = Z.astype(np.float64)
    feature_mean, target_mean = np.zeros(Z.shape[1]), np.zeros(y.shape[1])
    if fit_intercept:
        feature_mean, target_mean = weights @ Z / weights.sum(), weights @ y / weights.sum()
    roots = np.sqrt(weights)[:, None]
    Z = (Z - feature_mean) * roots
    factor, _ = regularised_cholesky(Z @ Z.T, alpha)
    coefficients = Z.T @ cho_solve((factor, True), (y - target_mean) * roots)
    return coefficients, target_mean - feature_mean @ coefficients
