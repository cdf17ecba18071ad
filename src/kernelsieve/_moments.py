"""Sums over rows in fixed blocks, threaded: the same for any threads and any chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._native.moments import (
    add_column_squares,
    add_csr_column_squares,
    csr_squared_norms,
    squared_row_norms,
)
from kernelsieve._parallel import map_row_blocks

BLOCK_ROWS = 4096


def column_means(X: NDArray[Any]) -> NDArray[np.float64]:
    """Means of the columns of a dense X, in float64."""
    sums = map_row_blocks(lambda rows: X[rows].sum(axis=0, dtype=np.float64), len(X), BLOCK_ROWS)
    return np.sum(sums, axis=0) / len(X)


def squared_norms(X: Any, center: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """|x - center|^2 of every row, in float64."""
    norms = np.empty(X.shape[0])
    origin = _origin(X, center)

    def block(rows: slice) -> None:
        if sp.issparse(X):
            csr_squared_norms(X.data, _pointers(X, rows), norms[rows])
        else:
            squared_row_norms(X[rows], origin, norms[rows])

    map_row_blocks(block, X.shape[0], BLOCK_ROWS)
    return norms


def mean_squares(X: Any, center: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Mean over the rows of each squared column of X - center, in float64."""
    origin = _origin(X, center)

    def block(rows: slice) -> NDArray[np.float64]:
        sums = np.zeros(X.shape[1])
        if sp.issparse(X):
            add_csr_column_squares(X.data, X.indices, _pointers(X, rows), sums)
        else:
            add_column_squares(X[rows], origin, sums)
        return sums

    return np.sum(map_row_blocks(block, X.shape[0], BLOCK_ROWS), axis=0) / X.shape[0]


def second_moments(X: NDArray[Any], center: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Mean of (x - center)(x - center)^T, of shape (d, d)."""
    origin = _origin(X, center)

    def block(rows: slice) -> NDArray[np.float64]:
        part = (X[rows] - origin).astype(np.float64, copy=False)
        return part.T @ part

    return np.sum(map_row_blocks(block, len(X), BLOCK_ROWS), axis=0) / len(X)


def weighted_counts(
    places: NDArray[Any], weights: NDArray[Any], length: int
) -> NDArray[np.float64]:
    """Sum of the weights that fall on each place."""
    return np.bincount(places, weights=weights, minlength=length).astype(np.float64, copy=False)


def _pointers(X: Any, rows: slice) -> NDArray[Any]:
    """Where the entries of these rows begin and end: a slice of CSR rows would be copied."""
    return X.indptr[rows.start : rows.stop + 1]


def _origin(X: Any, center: NDArray[np.float64] | None) -> NDArray[Any]:
    """The point that is subtracted, in X's float type."""
    return np.zeros(X.shape[1], dtype=X.dtype) if center is None else center.astype(X.dtype)
