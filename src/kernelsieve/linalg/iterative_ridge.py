"""Ridge regression by conjugate gradients: on many features, and on the exact kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from kernelsieve.linalg.block_descent import StepLimits, descend
from kernelsieve.linalg.cholesky import regularised_cholesky
from kernelsieve.linalg.normal_equations import NormalEquations, solve_ridge
from kernelsieve.linalg.operators import Multiplies, NystromSketch
from kernelsieve.linalg.solvers import Solution, conjugate_gradients
from kernelsieve.sources.base import Block, Source

SKETCH_SIZE = 256  # test vectors of the preconditioner for many features
KEPT_BYTES = 2**31  # features are kept up to this size, and computed again in every pass beyond

Array = NDArray[np.float64]


class FeatureBlocks:
    """The features of all rows as a matrix Z that is applied block by block.

    Blocks of features are kept while there is room for them, and computed again for every pass
    otherwise.

    Parameters
    ----------
    evaluate : callable
        From a block of rows to its features, dense or CSR.
    rows : Source
        With targets of shape (n, n_outputs).
    block_rows : int
    n_jobs : int or None
    """

    def __init__(
        self,
        evaluate: Callable[[Any], Any],
        rows: Source,
        block_rows: int,
        n_jobs: int | None,
    ) -> None:
        self.evaluate, self.rows = evaluate, rows
        self.block_rows, self.n_jobs = block_rows, n_jobs
        self._kept: dict[int, Any] = {}
        self._room = KEPT_BYTES

    def _features(self, block: Block) -> Any:
        Z = self._kept.get(block.start)
        if Z is None:
            Z = self.evaluate(block.X)
            size = Z.data.nbytes + Z.indices.nbytes if sp.issparse(Z) else Z.nbytes
            if size <= self._room:  # threads may overshoot by a block each
                self._room -= size
                self._kept[block.start] = Z
        return Z

    def _of_block(self, function: Callable[[Any, Block], Any]) -> Callable[[Block], Any]:
        # Rows that are not in memory may be far away: what travels there is the map alone.
        if self.rows.resident:
            return lambda block: function(self._features(block), block)
        evaluate = self.evaluate
        return lambda block: function(evaluate(block.X), block)

    def map(self, function: Callable[[Any, Block], Any]) -> Iterator[Any]:
        """``function(Z, block)`` of every block, in order."""
        return self.rows.map(self._of_block(function), self.block_rows, self.n_jobs)

    def reduce(self, function: Callable[[Any, Block], Any]) -> Any:
        """The sum of ``function(Z, block)`` over all blocks."""
        return self.rows.reduce(self._of_block(function), self.block_rows, self.n_jobs)

    def times(self, V: Array) -> Array:
        """Z V."""
        return np.concatenate(list(self.map(lambda Z, _: _product(Z, V))))

    def transposed_times(self, R: Array) -> Array:
        """Z^T R."""
        return self.reduce(lambda Z, block: _product(Z.T, R[block.rows]))

    def gram_times(self, V: Array) -> Array:
        """Z^T W Z V in one pass."""

        def summary(Z: Any, block: Block) -> Array:
            image = _product(Z, V)
            weights = block.weights
            return _product(Z.T, image if weights is None else image * weights[:, None])

        return self.reduce(summary)


def _product(Z: Any, V: Array) -> Array:
    """Z V, multiplied in Z's float type and returned in float64."""
    with np.errstate(over="ignore", invalid="ignore"):  # reported where it is solved
        return (Z @ V.astype(Z.dtype, copy=False)).astype(np.float64, copy=False)


class _CentredGram:
    """(Z - mean)^T W (Z - mean), applied to blocks of vectors."""

    def __init__(self, blocks: FeatureBlocks, mean: Array, weight: float):
        self.blocks, self.mean, self.weight = blocks, mean, weight
        self.n_rows = len(mean)  # as NystromSketch calls the size of a square matrix

    def __matmul__(self, V: Array) -> Array:
        return self.blocks.gram_times(V) - self.weight * np.outer(self.mean, self.mean @ V)


def _sums(Z: Any, block: Block) -> Array:
    """Z^T W [1, y], and 1^T W [1, y] as one more row."""
    weights = block.weights_or_ones
    right = np.column_stack([weights, block.y * weights[:, None]])
    return np.vstack([_product(Z.T, right), right.sum(axis=0)])


def solve_by_gradients(
    blocks: FeatureBlocks,
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
    blocks: FeatureBlocks,
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
    blocks : FeatureBlocks
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
    rows = targets_of(blocks.rows)
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
    rows: Block,
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
    rows : Block
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
    blocks: FeatureBlocks,
    whitening: NDArray[Any],
    numbers: NDArray[np.int64],
    alpha: float,
    fit_intercept: bool,
) -> Array:
    """Dual coefficients of the ridge on landmarks, for y and for a constant: zero elsewhere.

    Parameters
    ----------
    blocks : FeatureBlocks
        Features k(rows, landmarks) T, with the targets.
    whitening : ndarray of shape (n_landmarks, s)
        T.
    numbers : ndarray of shape (n_landmarks,)
        Which rows the landmarks are.
    """

    def equations(Z: Any, block: Block) -> NormalEquations:
        ones = np.ones((len(block), int(fit_intercept)))
        return NormalEquations.of_block(Z, np.column_stack([block.y, ones]), block.weights)

    found = solve_ridge(blocks.reduce(equations), alpha, False)
    guess = np.zeros((blocks.rows.shape[0], found.coefficients.shape[1]))
    guess[numbers] = whitening.astype(np.float64) @ found.coefficients
    return guess


def _guess(dual: Array, roots: Array, shape: tuple[int, ...]) -> Array:
    """Dual coefficients as u; what the intercept adds to them is left to the iterations."""
    guess = np.zeros(shape)
    np.divide(dual, roots, out=guess[:, : dual.shape[1]], where=roots > 0)
    return guess


def solve_exact_at_once(
    kernel: Any, rows: Block, alpha: float, fit_intercept: bool, n_jobs: int | None
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


def targets_of(rows: Source) -> Block:
    """The targets and weights of all rows; the block has no columns if rows are not in memory."""
    if rows.resident:
        return rows.take(np.arange(rows.shape[0]))
    parts = list(rows.map(_targets_of_block))
    y = np.concatenate([part[0] for part in parts])
    weights = None if parts[0][1] is None else np.concatenate([part[1] for part in parts])
    return Block(np.empty((len(y), 0)), y, weights)


def _targets_of_block(block: Block) -> tuple[Any, Any]:
    return block.y, block.weights


def _weighted_targets(rows: Block, fit_intercept: bool) -> tuple[Array, Array]:
    """S = W^(1/2) as a column, and S [y, 1], or S y without an intercept."""
    y, weights = rows.y, rows.weights
    roots = np.ones((len(y), 1)) if weights is None else np.sqrt(weights)[:, None]
    return roots, roots * (np.column_stack([y, np.ones(len(y))]) if fit_intercept else y)


def _with_intercept(
    solution: Solution, roots: Array, rows: Block, fit_intercept: bool, rest: Array | None = None
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
