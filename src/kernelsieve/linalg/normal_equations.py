"""Ridge regression from sums over rows: accumulate over blocks, then solve."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular

from kernelsieve._state import Persistent, array, flag, number, optional, whole, wrong
from kernelsieve.linalg.cholesky import inverse_of_lower, regularised_cholesky
from kernelsieve.linalg.operators import dense

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
class Posterior(Persistent):
    """The part of a ridge solution that determines its uncertainty.

    Weights count observations: an integer weight is a row that occurs so many times. But no row is
    less than one observation, so weights whose mean is below 1 cannot be counts. They are relative,
    and their scale means nothing: the uncertainty is that of weights and alpha divided by the mean
    weight, where rows and observations are as many.

    Attributes
    ----------
    factor : ndarray of shape (s, s) or None
        The lower Cholesky factor of G + shift I, where G = Z^T W Z of centred features.
    shift : float
        alpha, or slightly more if rounding required it.
    feature_mean : ndarray of shape (s,)
    residual_squares : ndarray of shape (n_outputs,)
        The weighted sum of squared residuals.
    weight : float
        The sum of the weights.
    n_rows : int
        The number of rows whose weight is positive.
    fit_intercept : bool
    """

    factor: Array | None
    shift: float
    feature_mean: Array
    residual_squares: Array
    weight: float
    n_rows: int
    fit_intercept: bool

    _state_fields: ClassVar = {
        "factor": optional(array(None)),  # the lower triangle, line by line
        "by_columns": optional(flag),  # its order in memory, which decides the last bits
        "shift": number(0.0, 1e300),
        "feature_mean": array("s"),
        "residual_squares": array("outputs"),
        "weight": number(1e-300, 1e300),
        "n_rows": whole(1),
        "fit_intercept": flag,
        "degrees_of_freedom": number(-1e300, 1e300),
    }
    _for_variance: ClassVar = ("factor", "by_columns")

    def _state_values(self) -> dict[str, Any]:
        values = {name: getattr(self, name, None) for name in self._state_fields}
        if self.factor is None:
            return values
        lines = [line[: i + 1] for i, line in enumerate(self.factor)]
        by_columns = self.factor.flags.f_contiguous
        return values | {"factor": np.concatenate(lines), "by_columns": by_columns}

    @classmethod
    def _restored(cls, values: dict[str, Any]) -> Self:
        packed, by_columns = values.pop("factor"), values.pop("by_columns")
        freedom, size = values.pop("degrees_of_freedom"), len(values["feature_mean"])
        factor = None
        if packed is not None:
            if len(packed) != size * (size + 1) // 2:
                wrong("factor", f"has {len(packed)} entries, not a triangle of {size} lines")
            factor = np.zeros((size, size), order="F" if by_columns else "C")
            for i in range(size):
                factor[i, : i + 1] = packed[i * (i + 1) // 2 :][: i + 1]
        posterior = cls(factor=factor, **values)
        posterior.__dict__["degrees_of_freedom"] = freedom
        return posterior

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of features and of outputs."""
        return len(self.feature_mean), len(self.residual_squares)

    def _known_factor(self) -> Array:
        if self.factor is None:
            raise ValueError(
                "this model was saved without the Cholesky factor that return_std needs: fit it "
                "again and save it with kernelsieve.save(model, path, variance=True), or use "
                "kernelsieve fit --std"
            )
        return self.factor

    @cached_property
    def degrees_of_freedom(self) -> float:
        """tr G (G + shift I)^-1, and 1 for the intercept."""
        root = inverse_of_lower(self._known_factor())
        trace = float(np.vdot(root, root))  # of the inverse root^T root
        return len(root) - self.shift * trace + self.fit_intercept

    @cached_property
    def noise_variance(self) -> Array:
        """The variance of an observation (of mean weight), of shape (n_outputs,).

        The mean squared residual times m / (m - degrees of freedom) for m observations; NaN where
        a single row leaves nothing to estimate it from.
        """
        if self.n_rows <= self.fit_intercept:
            return np.full_like(self.residual_squares, np.nan)
        observations = max(self.weight, float(self.n_rows))
        free = max(observations - self.degrees_of_freedom, 1e-12 * observations)
        return self.residual_squares / self.weight * (observations / free)

    def leverages(self, Z: Any) -> Array:
        """Leverages of rows of weight 1.

        (z - mean)^T (G + shift I)^-1 (z - mean), and 1 / weight for the intercept.

        Parameters
        ----------
        Z : {ndarray, CSR} of shape (n, s)

        Returns
        -------
        ndarray of shape (n,)
        """
        centred = (dense(Z) - self.feature_mean).T
        halves = solve_triangular(self._known_factor(), centred, lower=True, check_finite=False)
        return np.einsum("ij,ij->j", halves, halves) + self.fit_intercept / self.weight

    def coefficient_variances(self, vectors: Array) -> Array:
        """a^T (G + shift I)^-1 a for each column a: variances of a . coef, over that of the noise.

        Parameters
        ----------
        vectors : ndarray of shape (s, m)

        Returns
        -------
        ndarray of shape (m,)
        """
        halves = solve_triangular(self._known_factor(), vectors, lower=True, check_finite=False)
        return min(1.0, self.weight / self.n_rows) * np.einsum("ij,ij->j", halves, halves)

    def solve(self, right: Array) -> Array:
        """(G + shift I)^-1 times columns, of shape (s, m)."""
        return cho_solve((self._known_factor(), True), right, check_finite=False)

    def pulls(self, Z: Any) -> Array:
        """(G + shift I)^-1 (z - mean), of shape (s, n): derivatives of predictions by Z^T W y."""
        return self.solve((dense(Z) - self.feature_mean).T)

    def relative_variances(self, Z: Any, unseen: Array | float = 0.0) -> Array:
        """The variance of a new observation, in units of the noise variance, of shape (n,).

        ``unseen`` is the part of k(x, x) that the features leave out. It keeps its prior variance,
        because no row says anything about it.
        """
        uncertain = self.leverages(Z) + unseen / self.shift
        return 1.0 + min(1.0, self.weight / self.n_rows) * uncertain


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


def residual_sums(Z: Any, y: Array, weights: Array | None, solution: RidgeSolution) -> Array:
    """Z^T W r for the residuals r of some rows, with 1^T W r as one more line.

    Parameters
    ----------
    Z : {ndarray, CSR} of shape (n, s)
    y : ndarray of shape (n, n_outputs)
    weights : ndarray of shape (n,) or None
    solution : RidgeSolution

    Returns
    -------
    ndarray of shape (s + 1, n_outputs)
    """
    Z = Z if sp.issparse(Z) else Z.astype(np.float64, copy=False)
    residuals = y - Z @ solution.coefficients - solution.intercepts
    if weights is not None:
        residuals *= weights[:, None]
    return np.vstack([Z.T @ residuals, residuals.sum(axis=0)])


def corrected(solution: RidgeSolution, sums: Array, alpha: float) -> RidgeSolution:
    """A step of iterative refinement: the solution less most of the rounding in its matrix.

    The gradient of the ridge at the solution, which is known exactly from ``residual_sums``, is
    solved for with the inexact factor. So only the square of the factor's relative error is left.
    """
    posterior, gradient = solution.posterior, sums[:-1] - alpha * solution.coefficients
    intercepts = solution.intercepts
    if posterior.fit_intercept:
        gradient = gradient - np.outer(posterior.feature_mean, sums[-1])
        intercepts = intercepts + sums[-1] / posterior.weight
    step = posterior.solve(gradient)
    return RidgeSolution(
        solution.coefficients + step, intercepts - posterior.feature_mean @ step, posterior
    )


@dataclass(frozen=True)
class Float32Rounding:
    """The effect of float32 products of features on the predictions of a ridge.

    The entry i, j of Z^T W Z over b rows has a rounding error of about u sqrt(b / 2) times the root
    of its summed squared terms. Over n / b blocks, which are added in float64, that makes
    e_ij = u sqrt(n b / 2) c_i c_j, where c_i^2 is the mean square of feature i. To first order,
    such independent errors move the prediction at z by the random number z^T A^-1 E w, where
    A = Z^T W Z + alpha I, of deviation u sqrt(n b / 2) ``|c A^-1 z| |c w|`` (entry by entry).

    Parameters
    ----------
    Z : {ndarray, CSR} of shape (m, s)
        Features of some rows.
    weights : ndarray of shape (m,) or None
    n_rows : int
        Number of all rows.
    block_rows : int
        Number of rows in a block.
    """

    Z: Any
    weights: Array | None
    n_rows: int
    block_rows: int

    @property
    def scales(self) -> Array:
        """c, times the root of u sqrt(n b / 2), of shape (s,): their products are e_ij."""
        squares = np.square(dense(self.Z), dtype=np.float64)
        means = np.mean(
            squares if self.weights is None else squares * self.weights[:, None], axis=0
        )
        terms = min(self.block_rows, self.n_rows) * self.n_rows / 2.0
        return np.sqrt(float(np.finfo(np.float32).eps) / 2 * np.sqrt(terms) * means)

    def bound(self, alpha: float) -> float:
        """A bound on the root mean square error, in deviations of the target, before solving.

        For features of equal size: ``|Z A^-1|`` and ``|w| / |y|`` are at most 1 / (2 sqrt(alpha)).
        """
        scales = self.scales
        return float(scales @ scales) / float(np.sqrt(len(scales))) / (4.0 * alpha)

    def error(self, solution: RidgeSolution) -> Array:
        """The error of the predictions of a ridge: three deviations, at the worst of the rows.

        Returns
        -------
        ndarray of shape (n_outputs,)
        """
        scales = self.scales[:, None]
        pulls = np.linalg.norm(scales * solution.posterior.pulls(self.Z), axis=0)
        return 3.0 * pulls.max(initial=0.0) * np.linalg.norm(scales * solution.coefficients, axis=0)


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
