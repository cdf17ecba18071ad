"""Gram matrices tile by tile: the function of a distance is taken while its tile is in cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._memory import check_matrix, check_square
from kernelsieve._native.sparse_product import csr_times_csc
from kernelsieve._parallel import map_row_blocks, row_blocks
from kernelsieve.sources.summaries import column_means, squared_norms

TILE_ROWS = 256
TILE_COLUMNS = 1024  # 256 x 1024 floats stay in the second-level cache
# Above this |factor| |x|^2 the float32 cancellation in |x|^2 - 2 <x, y> + |y|^2 would show.
FLOAT32_EXPONENT = 64.0
# Beyond this |factor| |x|^2 even the float64 one would: close points are then looked at one by one.
FAR = 1e5
NEGLIGIBLE = -50.0  # exponents of exp below this make no difference
PAIRS = 4096  # whose differences are taken at once
FEATURES = "take fewer rows, or a feature map, which never forms this matrix"


def empty_gram(X: Any, Y: Any, dtype: Any) -> NDArray[Any]:
    """Room for the kernel matrix of the rows of X and Y, where there is any."""
    n, m, dtype = X.shape[0], Y.shape[0], np.dtype(dtype)
    what = f"the {n:,} x {m:,} kernel matrix in {dtype}"
    if n == m:
        check_square(n, dtype.itemsize, what, f"at most {{fits}} rows would fit; {FEATURES}")
    else:
        check_matrix(n, m, dtype, what, f"at most {{fits}} columns would fit; {FEATURES}")
    return np.empty((n, m), dtype=dtype)


def fill_gram(
    X: Any,
    Y: Any,
    of_product: Callable[[NDArray[Any]], None],
    n_jobs: int | None,
    mend: Callable[[NDArray[Any], slice, slice], None] | None = None,
) -> NDArray[Any]:
    """A function of the inner products <x, y>; ``of_product`` works in place on a tile.

    ``mend`` may correct a tile of products of dense rows before, given its rows and columns.
    """
    gram = empty_gram(X, Y, np.result_type(X.dtype, Y.dtype))
    dense = not (sp.issparse(X) or sp.issparse(Y))
    products = None if dense else _sparse_products(X, Y, gram)

    def fill(rows: slice) -> None:
        if products is not None:
            products(rows)
            of_product(gram[rows])
            return
        for start in range(0, Y.shape[0], TILE_COLUMNS):
            columns = slice(start, start + TILE_COLUMNS)
            tile = gram[rows, columns]
            with np.errstate(over="ignore", invalid="ignore"):  # for the caller to look at
                np.matmul(X[rows], Y[columns].T, out=tile)
                if mend is not None:
                    mend(tile, rows, columns)
                of_product(tile)

    map_row_blocks(fill, X.shape[0], TILE_ROWS, n_jobs)
    return gram


def _sparse_products(X: Any, Y: Any, out: NDArray[Any]) -> Callable[[slice], None]:
    """What writes <x, y> for a block of rows into ``out``; X or Y is sparse, or both."""
    if sp.issparse(X) and sp.issparse(Y):
        columns = Y.tocsc()

        def write(rows: slice) -> None:
            indptr = X.indptr[rows.start : rows.stop + 1]
            csr_times_csc(
                indptr, X.indices, X.data, columns.indptr, columns.indices, columns.data, out[rows]
            )

    else:

        def write(rows: slice) -> None:
            left = X[rows].astype(out.dtype, copy=False)  # a product in the type of the result
            out[rows] = left @ Y.T

    return write


def distances(
    X: Any,
    Y: Any,
    factor: float,
    function: Callable[..., Any],
    n_jobs: int | None,
    negligible: float = NEGLIGIBLE,
) -> NDArray[Any]:
    """``function(factor |x - y|^2, out=...)`` for a factor < 0.

    ``negligible`` is where the function has come down to 0 for all that matters.
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
    """Distances between far points that are close to each other, from their differences."""

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
    """|x - y|^2 for pairs of rows that stand beside each other, from their differences."""
    if sp.issparse(X) != sp.issparse(Y):
        X, Y = sp.csr_array(X), sp.csr_array(Y)
    differences = X.astype(np.float64) - Y
    if sp.issparse(differences):
        return squared_norms(sp.csr_array(differences))
    return np.einsum("ij,ij->i", differences, differences)


def _augmented(
    X: NDArray[Any], norms: NDArray[np.float64], factor: float, dtype: Any, left: bool
) -> NDArray[Any]:
    """Two more columns, so that one product gives factor |x - y|^2 = 2 |factor| <x,y> - ... ."""
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
    """``distances`` where X or Y is sparse: the origin stays, for moving it would fill the rows."""
    left_norms, right_norms = -factor * squared_norms(X), -factor * squared_norms(Y)
    mend = None
    if max(left_norms.max(initial=0.0), right_norms.max(initial=0.0)) > FAR:
        mend = _Mended(X, Y, left_norms, right_norms, factor, negligible)
    gram = empty_gram(X, Y, np.float64)
    products = _sparse_products(X, Y.astype(np.float64), gram)  # Y is the smaller, as a rule

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
    """exp(factor |x - y|_1)."""
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
    """CSR with 32-bit indices, which scikit-learn's compiled distances ask for."""
    X = sp.csr_array(X)
    indices, indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return sp.csr_array((X.data, indices, indptr), shape=X.shape)
