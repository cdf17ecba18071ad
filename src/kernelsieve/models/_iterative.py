"""Ridges by conjugate gradients: on many features, and on the exact kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from kernelsieve._linalg import Solution, conjugate_gradients, regularised_cholesky
from kernelsieve._parallel import ordered_row_blocks, row_blocks
from kernelsieve.diagnostics._operators import GramOperator, NystromSketch
from kernelsieve.features import FeatureMap
from kernelsieve.models._linear import NormalEquations

SKETCH_SIZE = 256  # test vectors of the preconditioner for many features
KEPT_BYTES = 2**31  # features are kept when they fit, and made again for every pass when not

Array = NDArray[np.float64]


class FeatureBlocks:
    """The features of all rows, block by block: kept, or made again for every pass.

    Parameters
    ----------
    features : FeatureMap
    X : {ndarray, CSR} of shape (n, d)
    block_rows : int
    n_jobs : int or None
    """

    def __init__(self, features: FeatureMap, X: Any, block_rows: int, n_jobs: int | None) -> None:
        self.features, self.X, self.block_rows, self.n_jobs = features, X, block_rows, n_jobs
        self.blocks = row_blocks(X.shape[0], block_rows)
        self._kept: dict[int, Any] = {}
        self._room = KEPT_BYTES

    def _block(self, rows: slice) -> Any:
        Z = self._kept.get(rows.start)
        if Z is None:
            Z = self.features._transform_block(self.X[rows])
            size = Z.data.nbytes + Z.indices.nbytes if sp.issparse(Z) else Z.nbytes
            if size <= self._room:  # threads may overshoot by a block each
                self._room -= size
                self._kept[rows.start] = Z
        return Z

    def map(self, function: Callable[[Any, slice], Any]) -> Iterator[Any]:
        """``function(Z, rows)`` of every block, in order."""
        return ordered_row_blocks(
            lambda rows: function(self._block(rows), rows),
            self.X.shape[0],
            self.block_rows,
            self.n_jobs,
        )

    def times(self, V: Array) -> Array:
        """Z V."""
        return np.concatenate(list(self.map(lambda Z, rows: _product(Z, V))))

    def transposed_times(self, R: Array) -> Array:
        """Z^T R."""
        parts = self.map(lambda Z, rows: _product(Z.T, R[rows]))
        total = np.zeros((self.features.n_components_, R.shape[1]))
        for part in parts:
            total += part
        return total

    def gram_times(self, V: Array, weights: Array | None) -> Array:
        """Z^T W Z V in one pass."""

        def block(Z: Any, rows: slice) -> Array:
            image = _product(Z, V)
            return _product(Z.T, image if weights is None else image * weights[rows, None])

        total = np.zeros_like(V)
        for part in self.map(block):
            total += part
        return total


def _product(Z: Any, V: Array) -> Array:
    """Z V in Z's float type, as float64."""
    return np.asarray(Z @ V.astype(Z.dtype, copy=False), dtype=np.float64)


class _CentredGram:
    """(Z - mean)^T W (Z - mean), applied to blocks of vectors."""

    def __init__(self, blocks: FeatureBlocks, weights: Array | None, mean: Array, weight: float):
        self.blocks, self.weights, self.mean, self.weight = blocks, weights, mean, weight
        self.n_rows = len(mean)  # as NystromSketch calls the size of a square matrix

    def __matmul__(self, V: Array) -> Array:
        return self.blocks.gram_times(V, self.weights) - self.weight * np.outer(
            self.mean, self.mean @ V
        )


def solve_by_gradients(
    blocks: FeatureBlocks,
    y: Array,
    weights: Array | None,
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
    ones = np.ones(len(y)) if weights is None else weights
    weight = float(ones.sum())
    sums = blocks.transposed_times(np.column_stack([ones, y * ones[:, None]]))
    moment, feature_mean, target_mean = sums[:, 1:], sums[:, 0] / weight, ones @ y / weight
    if fit_intercept:
        moment = moment - np.outer(feature_mean, weight * target_mean)
    else:
        feature_mean, target_mean = np.zeros_like(feature_mean), np.zeros_like(target_mean)
    gram = _CentredGram(blocks, weights, feature_mean, weight)
    size = min(SKETCH_SIZE, gram.n_rows)
    test, _ = np.linalg.qr(rng.standard_normal((gram.n_rows, size)))
    sketch = NystromSketch(gram, test)  # type: ignore[arg-type]
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
    kernel: Any,
    blocks: FeatureBlocks,
    y: Array,
    weights: Array | None,
    alpha: float,
    fit_intercept: bool,
    tol: float,
    max_iter: int,
    report: Callable[[int, float], None],
) -> tuple[Solution, Array]:
    """The exact kernel ridge, preconditioned by the features (Avron, Clarkson, Woodruff 2017).

    With S = W^(1/2) solves (S K S + alpha I) u = S [y, 1]; returns (dual coefficients, intercepts).
    The inverse of S Z Z^T S + alpha I is (I - S Z (Z^T W Z + alpha I)^-1 Z^T S) / alpha.
    """
    roots = np.ones((len(y), 1)) if weights is None else np.sqrt(weights)[:, None]
    total = NormalEquations.zero(blocks.features.n_components_, 0)
    for part in blocks.map(
        lambda Z, rows: NormalEquations.of_block(Z, np.empty((Z.shape[0], 0)), roots[rows, 0] ** 2)
    ):
        total += part
    factor, shift = regularised_cholesky(total.centred(False).gram, alpha)
    K = GramOperator(kernel, blocks.X, blocks.block_rows)

    def precondition(R: Array) -> Array:
        inner = cho_solve((factor, True), blocks.transposed_times(roots * R))
        return (R - roots * blocks.times(inner)) / shift

    right = roots * (np.column_stack([y, np.ones(len(y))]) if fit_intercept else y)
    solution = conjugate_gradients(
        lambda V: roots * (K @ (roots * V)) + alpha * V, right, precondition, tol, max_iter, report
    )
    u = roots * solution.values
    if not fit_intercept:
        return Solution(u, solution.iterations, solution.residual), np.zeros(y.shape[1])
    # The dual coefficients of an unpenalised intercept sum to zero.
    intercepts = u[:, :-1].sum(axis=0) / u[:, -1].sum()
    dual = u[:, :-1] - np.outer(u[:, -1], intercepts)
    return Solution(dual, solution.iterations, solution.residual), intercepts
