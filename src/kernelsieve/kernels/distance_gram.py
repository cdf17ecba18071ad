"""Functions of the distances between rows, tile by tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._parallel import map_row_blocks, row_blocks
from kernelsieve.kernels.gram import TILE_ROWS, empty_gram, fill_gram, sparse_products
from kernelsieve.sources.summaries import column_means, squared_norms

# Above this |factor| |x|^2 the float32 cancellation in |x|^2 - 2 <x, y> + |y|^2 would show.
FLOAT32_EXPONENT = 64.0
# Beyond this |factor| |x|^2 even the float64 one would: close points are then looked at one by one.
FAR = 1e5
NEGLIGIBLE = -50.0  # exponents of exp below this make no difference
PAIRS = 4096  # whose differences are taken at once


def distances(
    X: Any,
    Y: Any,
    factor: float,
    function: Callable[..., Any],
    n_jobs: int | None,
    negligible: float = NEGLIGIBLE,
) -> NDArray[Any]:
    """Compute ``function(factor |x - y|^2, out=...)`` for a factor < 0.

    Below ``negligible`` the function is as good as 0.
    """
    dtype = np.result_type(X.dtype, Y.dtype)
    if sp.issparse(X) or sp.issparse(Y):
        gram = _sparse_distances(X, Y, factor, function, n_jobs, negligible)
        return gram.astype(dtype, copy=False)
    # The distance does not see the origin, rounding does: move it to the middle of the data.
    with np.errstate(over="ignore", invalid="ignore"):
        middle = column_means(X)
    middle = np.where(np.isfinite(middle), middle, 0.0)
    X, Y, same = X - middle, (None if Y is X else Y - middle), Y is X
    left_norms = -factor * squared_norms(X)
    right_norms = left_norms if same else -factor * squared_norms(Y)
    largest = max(left_norms.max(initial=0.0), right_norms.max(initial=0.0))
    work = np.dtype(np.float64) if largest > FLOAT32_EXPONENT else dtype
    left = _augmented(X, left_norms, factor, work, left=True)
    right = _augmented(X if same else Y, right_norms, factor, work, left=False)

    def of_exponent(tile: NDArray[Any]) -> None:
        np.minimum(tile, 0.0, out=tile)  # rounding must not make a distance negative
        function(tile, out=tile)

    mend = None
    if largest > FAR:
        mend = _Mended(X, X if same else Y, left_norms, right_norms, factor, negligible)
    return fill_gram(left, right, of_exponent, n_jobs, mend).astype(dtype, copy=False)


class _Mended:
    """Recompute small distances between points far from the origin, from their differences."""

    def __init__(
        self,
        X: Any,
        Y: Any,
        left_norms: NDArray[np.float64],
        right_norms: NDArray[np.float64],
        factor: float,
        negligible: float,
    ) -> None:
        self.X, self.Y, self.factor, self.negligible = X, Y, factor, negligible
        self.left_norms, self.right_norms = left_norms, right_norms

    def __call__(self, tile: NDArray[Any], rows: slice, columns: slice) -> None:
        X, Y = self.X[rows], self.Y[columns]
        lengths = self.left_norms[rows, None] + self.right_norms[columns]
        rounding = np.finfo(np.float64).eps * lengths
        # Not "above": where squares overflow the exponent may not be a number.
        i, j = np.nonzero((lengths > FAR) & ~(tile <= self.negligible - 8.0 * rounding))
        for some in row_blocks(len(i), PAIRS):
            tile[i[some], j[some]] = self.factor * _squared_distances(X[i[some]], Y[j[some]])


def _squared_distances(X: Any, Y: Any) -> NDArray[np.float64]:
    """Compute |x - y|^2 for corresponding rows of X and Y, from their differences."""
    if sp.issparse(X) != sp.issparse(Y):
        X, Y = sp.csr_array(X), sp.csr_array(Y)
    differences = X.astype(np.float64) - Y
    if sp.issparse(differences):
        return squared_norms(sp.csr_array(differences))
    return np.einsum("ij,ij->i", differences, differences)


def _augmented(
    X: NDArray[Any], norms: NDArray[np.float64], factor: float, dtype: Any, left: bool
) -> NDArray[Any]:
    """Append two columns, so that one product gives factor |x - y|^2 = 2 |factor| <x, y> - ..."""
    augmented = np.empty((X.shape[0], X.shape[1] + 2), dtype=dtype)
    with np.errstate(over="ignore"):
        np.multiply(X, np.sqrt(-2.0 * factor), out=augmented[:, :-2], casting="same_kind")
    augmented[:, -2] = -norms if left else 1.0
    augmented[:, -1] = 1.0 if left else -norms
    return augmented


def _sparse_distances(
    X: Any,
    Y: Any,
    factor: float,
    function: Callable[..., Any],
    n_jobs: int | None,
    negligible: float,
) -> NDArray[np.float64]:
    """``distances`` for sparse X or Y; moving the origin would make them dense."""
    left_norms, right_norms = -factor * squared_norms(X), -factor * squared_norms(Y)
    mend = None
    if max(left_norms.max(initial=0.0), right_norms.max(initial=0.0)) > FAR:
        mend = _Mended(X, Y, left_norms, right_norms, factor, negligible)
    gram = empty_gram(X, Y, np.float64)
    products = sparse_products(X, Y.astype(np.float64), gram)  # Y is the smaller, as a rule

    def fill(rows: slice) -> None:
        products(rows)
        tile = gram[rows]
        tile *= -2.0 * factor
        tile -= left_norms[rows, None]
        tile -= right_norms
        if mend is not None:
            mend(tile, rows, slice(None))
        np.minimum(tile, 0.0, out=tile)  # rounding must not make a distance negative
        function(tile, out=tile)

    map_row_blocks(fill, X.shape[0], TILE_ROWS, n_jobs)
    return gram


def manhattan(X: Any, Y: Any, factor: float, n_jobs: int | None) -> NDArray[Any]:
    """Compute exp(factor |x - y|_1)."""
    from sklearn.metrics.pairwise import manhattan_distances

    dtype = np.result_type(X.dtype, Y.dtype)
    gram = empty_gram(X, Y, dtype)
    if sp.issparse(X) or sp.issparse(Y):
        X, Y = _short_indices(X), _short_indices(Y)

    def fill(rows: slice) -> None:
        gram[rows] = np.exp(factor * manhattan_distances(X[rows], Y))

    map_row_blocks(fill, X.shape[0], TILE_ROWS, n_jobs)
    return gram


def _short_indices(X: Any) -> sp.csr_array:
    """Convert to CSR with 32-bit indices, which scikit-learn's compiled distances need."""
    X = sp.csr_array(X)
    indices, indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return sp.csr_array((X.data, indices, indptr), shape=X.shape)


def gaussian_against(
    scaled: Callable[[Any], Any], points: NDArray[np.float64]
) -> Callable[[Any], NDArray[np.float64]]:
    """exp(-|u - v|^2) of the scaled row and scaled points, by one product around their middle."""
    middle = points.mean(axis=0)
    centred = points - middle
    double, norms = np.ascontiguousarray(2.0 * centred.T), np.square(centred).sum(axis=1)

    def kernel(row: NDArray[np.float64]) -> NDArray[np.float64]:
        u = scaled(row) - middle
        exponents = u @ double
        exponents -= norms
        exponents -= np.square(u).sum()
        np.minimum(exponents, 0.0, out=exponents)
        return np.exp(exponents, out=exponents)

    return kernel
