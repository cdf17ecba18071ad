"""Kernel matrices in memory, filled tile by tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._native.sparse_product import csr_times_csc
from kernelsieve._parallel import map_row_blocks
from kernelsieve._validation import check_matrix, check_square

TILE_ROWS = 256
TILE_COLUMNS = 1024  # 256 x 1024 floats stay in the second-level cache
FEATURES = "use fewer rows, or a feature map, which never forms this matrix"


def empty_gram(X: Any, Y: Any, dtype: Any) -> NDArray[Any]:
    """Allocate the kernel matrix of the rows of X and Y, if it fits in memory."""
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
    """Compute a function of the inner products <x, y>, tile by tile while they are in cache.

    ``of_product`` works on a tile in place. ``mend`` may correct a tile of products of dense rows
    before that, given its rows and columns.
    """
    gram = empty_gram(X, Y, np.result_type(X.dtype, Y.dtype))
    dense = not (sp.issparse(X) or sp.issparse(Y))
    products = None if dense else sparse_products(X, Y, gram)

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


def sparse_products(X: Any, Y: Any, out: NDArray[Any]) -> Callable[[slice], None]:
    """Return what writes <x, y> for a block of rows into ``out``; X or Y, or both, are sparse."""
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
