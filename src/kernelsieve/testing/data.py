"""Points for tests of feature maps, dense and in every form of sparse storage."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array = NDArray[Any]


def points(n: int = 40, d: int = 5, seed: int = 0) -> Array:
    """Dense points of radius about 1."""
    return np.random.default_rng(seed).normal(size=(n, d)) / np.sqrt(d)


def sparse_points(n: int = 40, d: int = 12, seed: int = 1) -> Array:
    """A dense array, three quarters zero, with an empty row, an empty column and a repeated row."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.25)
    X[3] = 0.0
    X[:, 4] = 0.0
    X[7] = X[6]
    return X


def _unsorted(X: Array) -> sp.csr_matrix:
    canonical = sp.csr_matrix(X)
    rows = itertools.pairwise(canonical.indptr)
    order = np.concatenate([np.arange(start, stop)[::-1] for start, stop in rows]).astype(int)
    return sp.csr_matrix(
        (canonical.data[order], canonical.indices[order], canonical.indptr), shape=X.shape
    )


def _duplicated(X: Array) -> sp.csr_matrix:
    """Every entry v stored twice, as 2 v and -v: only their (exact) sum means anything."""
    canonical = sp.csr_matrix(X)
    data = np.stack([2.0 * canonical.data, -canonical.data], axis=1).ravel()
    return sp.csr_matrix(
        (data, np.repeat(canonical.indices, 2), 2 * canonical.indptr), shape=X.shape
    )


def _explicit_zeros(X: Array) -> sp.csr_matrix:
    """Every entry stored, zeros too."""
    n, d = X.shape
    return sp.csr_matrix(
        (X.ravel().copy(), np.tile(np.arange(d), n), np.arange(0, n * d + 1, d)), shape=X.shape
    )


def _int64_indices(X: Array) -> sp.csr_array:
    A = sp.csr_array(X)
    A.indices = A.indices.astype(np.int64)
    A.indptr = A.indptr.astype(np.int64)
    return A


SPARSE_FORMS: dict[str, Callable[[Array], Any]] = {
    "csr_matrix": sp.csr_matrix,
    "csr_array": sp.csr_array,
    "csc_matrix": sp.csc_matrix,
    "csc_array": sp.csc_array,
    "coo_matrix": sp.coo_matrix,
    "coo_array": sp.coo_array,
    "int64 indices": _int64_indices,
    "unsorted indices": _unsorted,
    "duplicate entries": _duplicated,
    "explicit zeros": _explicit_zeros,
}


def as_dense(Z: Any) -> Array:
    """Z as an ndarray, whatever container the map answered with."""
    return Z.toarray() if sp.issparse(Z) else np.asarray(Z)


def stored_arrays(X: Any) -> list[Array]:
    """Copies of the arrays behind a dense or sparse X, to see whether anybody wrote to them."""
    names = ("data", "indices", "indptr", "row", "col")
    arrays = [getattr(X, name) for name in names if hasattr(X, name)] if sp.issparse(X) else [X]
    return [np.array(array) for array in arrays]
