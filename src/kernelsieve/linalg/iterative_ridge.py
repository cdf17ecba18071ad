"""Ridge regression by conjugate gradients: on many features, and on the exact kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from kernelsieve.linalg.block_descent import StepLimits, descend
from kernelsieve.linalg.cholesky import regularised_cholesky
from kernelsieve.linalg.normal_equations import NormalEquations, solve_ridge
from kernelsieve.linalg.operators import Multiplies, NystromSketch, multiplied
from kernelsieve.linalg.solvers import Solution, conjugate_gradients

SKETCH_SIZE = 256  # test vectors of the preconditioner for many features

Array = NDArray[np.float64]


class Targets(Protocol):
    """Rows with targets of shape (n, n_outputs), and their weights."""

    @property
    def X(self) -> Any: ...

    @property
    def y(self) -> Any: ...

    @property
    def weights(self) -> Any: ...

    def __len__(self) -> int: ...

    @property
    def rows(self) -> slice:
        """Their numbers among all rows."""

    @property
    def weights_or_ones(self) -> Array:
        """The weights, 1 each where none were given."""


class BlockMatrix(Protocol):
    """A matrix Z with a row of features for each of many rows, which is read block by block."""

    @property
    def n_rows(self) -> int: ...

    def times(self, V: Array) -> Array:
        """Z V."""

    def transposed_times(self, R: Array) -> Array:
        """Z^T R."""

    def gram_times(self, V: Array) -> Array:
        """Z^T W Z V."""

    def reduce(self, function: Callable[[Any, Any], Any]) -> Any:
        """The sum of ``function(Z, targets)`` over all blocks."""

    def targets(self) -> Targets:
        """The targets and weights of all rows."""


class _CentredGram:
    """(Z - mean)^T W (Z - mean), applied to blocks of vectors."""

    def __init__(self, blocks: BlockMatrix, mean: Array, weight: float):
        self.blocks, self.mean, self.weight = blocks, mean, weight
        self.n_rows = len(mean)  # as NystromSketch calls the size of a square matrix

    def __matmul__(self, V: Array) -> Array:
        return self.blocks.gram_times(V) - self.weight * np.outer(self.mean, self.mean @ V)


def _sums(Z: Any, block: Targets) -> Array:
    """Z^T W [1, y], and 1^T W [1, y] as one more row."""
    weights = block.weights_or_ones
    right = np.column_stack([weights, block.y * weights[:, None]])
    return np.vstack([multiplied(Z.T, right), right.sum(axis=0)])


def solve_by_gradients(
    blocks: BlockMatrix,
    alpha: float,
    fit_intercept: bool,
    tol: float,
    max_iter: int,
    rng: np.random.Generator,
    report: Callable[[int, float], None],
) -> tuple[Solution, Array]:
    """The ridge on the features without their Gram matrix: (solution, intercepts).

    Preconditioned by a randomised Nystrom sketch of the Gram matrix (Frangella, Tropp and Udell).
    """
    sums = blocks.reduce(_sums)
    weight = float(sums[-1, 0])
    moment, feature_mean, target_mean = sums[:-1, 1:], sums[:-1, 0] / weight, sums[-1, 1:] / weight
    if fit_intercept:
        moment = moment - np.outer(feature_mean, weight * target_mean)
    else:
        feature_mean, target_mean = np.zeros_like(feature_mean), np.zeros_like(target_mean)
    gram = _CentredGram(blocks, feature_mean, weight)
    size = min(SKETCH_SIZE, gram.n_rows)
    test, _ = np.linalg.qr(rng.standard_normal((gram.n_rows, size)))
    sketch = NystromSketch(gram, test)
    solution = conjugate_gradients(
        lambda V: gram @ V + alpha * V,
        moment,
        lambda R: sketch.solve(R, alpha),
        tol,
        max_iter,
        report,
    )
    return solution, target_mean - feature_mean @ solution.values


def solve_exact(
    K: Multiplies,
    blocks: BlockMatrix,
    alpha: float,
    fit_intercept: bool,
    tol: float,
    max_iter: int,
    report: Callable[[int, float], None],
    *,
    coarse: Multiplies | None = None,
    start: Array | None = None,
    deadline: float = math.inf,
) -> tuple[Solution, Array]:
    """The exact kernel ridge, preconditioned by the features (Avron, Clarkson, Woodruff 2017).

    With S = W^(1/2) solves (S K S + alpha I) u = S [y, 1]; returns (dual coefficients, intercepts).
    The inverse of S Z Z^T S + alpha I is (I - S Z (Z^T W Z + alpha I)^-1 Z^T S) / alpha.

    Parameters
    ----------
    K : matrix
        The kernel matrix in float64.
    blocks : BlockMatrix
        Z, with the targets.
    alpha : float
    fit_intercept : bool
    tol, max_iter, report, deadline
        See `conjugate_gradients`.
    coarse : matrix, optional
        K up to the rounding of float32.
    start : ndarray of shape (n, m), optional
        A guess of the dual coefficients.
    """
    rows = blocks.targets()
    roots, right = _weighted_targets(rows, fit_intercept)
    total = blocks.reduce(
        lambda Z, block: NormalEquations.of_block(
            Z, np.empty((len(block), 0)), roots[block.rows, 0] ** 2
        )
    )
    factor, shift = regularised_cholesky(total.centred(False).gram, alpha)

    def precondition(R: Array) -> Array:
        inner = cho_solve((factor, True), blocks.transposed_times(roots * R))
        return (R - roots * blocks.times(inner)) / shift

    def regularised(matrix: Multiplies) -> Callable[[Array], Array]:
        return lambda V: roots * (matrix @ (roots * V)) + alpha * V

    solution = conjugate_gradients(
        regularised(K),
        right,
        precondition,
        tol,
        max_iter,
        report,
        coarse=None if coarse is None else regularised(coarse),
        start=None if start is None else _guess(start, roots, right.shape),
        deadline=deadline,
    )
    return _with_intercept(solution, roots, rows, fit_intercept)


class Selects(Protocol):
    """A square matrix of which some columns can be had."""

    dtype: np.dtype[Any]

    def columns(self, numbers: NDArray[np.int64]) -> Multiplies:
        """The matrix of these columns."""


@dataclass(frozen=True)
class _RidgeColumns:
    """Columns of S K S + alpha I; ``kernel_square`` gives K of some rows in float64."""

    K: Selects
    kernel_square: Callable[[NDArray[np.int64]], Array]
    roots: Array
    alpha: float

    def product(self, block: NDArray[np.int64], V: Array) -> Array:
        image = self.roots * (self.K.columns(block) @ (self.roots[block] * V))
        image[block] += self.alpha * V
        return image

    def square(self, block: NDArray[np.int64]) -> Array:
        return self.roots[block] * self.kernel_square(block) * self.roots[block].T

    @property
    def rounding(self) -> float:
        return float(np.finfo(self.K.dtype).eps) / 2


def solve_exact_by_blocks(
    K: Selects,
    kernel_square: Callable[[NDArray[np.int64]], Array],
    rows: Targets,
    alpha: float,
    fit_intercept: bool,
    size: int,
    rng: np.random.Generator,
    limits: StepLimits,
    exact: Callable[[], Multiplies],
    start: Array | None = None,
) -> tuple[Solution, Array]:
    """The exact kernel ridge by block coordinate descent, where a pass over K takes too long.

    Returns the same as ``solve_exact``.

    Parameters
    ----------
    K : matrix
        The kernel matrix, in float32 if that is exact enough beside alpha.
    kernel_square : callable
        From row numbers to the kernel matrix of these rows in float64.
    rows : Targets
    alpha : float
    fit_intercept : bool
    size, rng, limits
        See `descend`.
    exact : callable
        Makes K in float64; only called where rounding matters beside ``limits.tol``.
    start : ndarray of shape (n, m) or (n, m + 1), optional
        Dual coefficients of y to begin with, and of a constant.
    """
    roots, right = _weighted_targets(rows, fit_intercept)
    A = _RidgeColumns(K, kernel_square, roots, alpha)
    guess = None if start is None else _guess(start, roots, right.shape)

    def apply(V: Array) -> Array:
        return roots * (exact() @ (roots * V)) + alpha * V

    solution, rest = descend(A, right, apply, size, rng, limits, guess)
    return _with_intercept(solution, roots, rows, fit_intercept, rest)


def landmark_guess(
    blocks: BlockMatrix,
    whitening: NDArray[Any],
    numbers: NDArray[np.int64],
    alpha: float,
    fit_intercept: bool,
) -> Array:
    """Dual coefficients of the ridge on landmarks, for y and for a constant: zero elsewhere.

    Parameters
    ----------
    blocks : BlockMatrix
        Features k(rows, landmarks) T, with the targets.
    whitening : ndarray of shape (n_landmarks, s)
        T.
    numbers : ndarray of shape (n_landmarks,)
        Which rows the landmarks are.
    """

    def equations(Z: Any, block: Targets) -> NormalEquations:
        ones = np.ones((len(block), int(fit_intercept)))
        return NormalEquations.of_block(Z, np.column_stack([block.y, ones]), block.weights)

    found = solve_ridge(blocks.reduce(equations), alpha, False)
    guess = np.zeros((blocks.n_rows, found.coefficients.shape[1]))
    guess[numbers] = whitening.astype(np.float64) @ found.coefficients
    return guess


def _guess(dual: Array, roots: Array, shape: tuple[int, ...]) -> Array:
    """Dual coefficients as u; what the intercept adds to them is left to the iterations."""
    guess = np.zeros(shape)
    np.divide(dual, roots, out=guess[:, : dual.shape[1]], where=roots > 0)
    return guess


def solve_exact_at_once(
    kernel: Any, rows: Targets, alpha: float, fit_intercept: bool, n_jobs: int | None
) -> tuple[Solution, Array]:
    """The exact kernel ridge by one Cholesky factor of the kernel matrix, for a few thousand rows.

    Returns the same as ``solve_exact``.
    """
    roots, right = _weighted_targets(rows, fit_intercept)
    gram = kernel.between(rows.X, rows.X, n_jobs).astype(np.float64, copy=False)
    gram *= roots
    gram *= roots.T
    factor, _ = regularised_cholesky(gram, alpha)
    solution = Solution(cho_solve((factor, True), right), 1, 0.0)
    return _with_intercept(solution, roots, rows, fit_intercept)


def _weighted_targets(rows: Targets, fit_intercept: bool) -> tuple[Array, Array]:
    """S = W^(1/2) as a column, and S [y, 1], or S y without an intercept."""
    y, weights = rows.y, rows.weights
    roots = np.ones((len(y), 1)) if weights is None else np.sqrt(weights)[:, None]
    return roots, roots * (np.column_stack([y, np.ones(len(y))]) if fit_intercept else y)


def _with_intercept(
    solution: Solution, roots: Array, rows: Targets, fit_intercept: bool, rest: Array | None = None
) -> tuple[Solution, Array]:
    """Dual coefficients and intercepts from the solutions for y and for a constant.

    ``rest`` is what is unsolved of both. With it the errors of the intercepts are products of those
    of the two solutions.
    """
    u = roots * solution.values
    if not fit_intercept:
        return Solution(u, solution.iterations, solution.residual), np.zeros(rows.y.shape[1])
    # The dual coefficients of an unpenalised intercept sum to zero.
    sums = u.sum(axis=0)
    if rest is not None:
        sums = sums + solution.values[:, -1] @ rest
    total = float(sums[-1])
    if total > 0:
        intercepts = sums[:-1] / total
    else:  # alpha is lost in the rounding of K: no step was possible, as the warning says
        intercepts = np.average(rows.y, axis=0, weights=rows.weights)
    dual = u[:, :-1] - np.outer(u[:, -1], intercepts)
    return Solution(dual, solution.iterations, solution.residual), intercepts
