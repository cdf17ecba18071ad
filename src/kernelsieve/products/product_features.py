"""A set of product features in a frame and a basis: evaluate them, their norms, projections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._native.sparse_trie import evaluate_csr
from kernelsieve._native.trie import add_squared_norms, evaluate_columns, evaluate_rows
from kernelsieve._parallel import ordered_row_blocks, row_blocks
from kernelsieve._state import Persistent, array, flag, instance, wrong
from kernelsieve.products.frame import Frame
from kernelsieve.products.multisets import Multisets
from kernelsieve.products.trie import atom_ranges, build_trie
from kernelsieve.sources.summaries import squared_norms, weighted_counts

BLOCK_ROWS = 512  # dense rows whose atoms are tabulated at once
SPARSE_BLOCK_ROWS = 2048


@runtime_checkable
class Basis(Protocol):
    """What a family of one-dimensional functions offers to products of them."""

    def admits(self, multisets: Multisets, n_coordinates: int) -> bool:
        """Whether it has all atoms of these multisets, and that many coordinates."""

    def log_scales(self, multisets: Multisets) -> NDArray[np.float64]:
        """The logarithm of the constant in front of each product."""

    def work_dtype(self, dtype: Any) -> Any:
        """The float type in which products of atoms neither overflow nor underflow."""

    def lines_for(self, coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
        """The coordinates whose values it needs to make atoms of ``coordinates``."""

    def dense_atoms(
        self,
        lines: NDArray[Any],
        squared_radius: Callable[[], NDArray[np.float64]],
        coordinates: NDArray[np.int64],
        orders: NDArray[np.int64],
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The atoms of a block of rows, (n_atoms, B), and the root values, (B,)."""

    def sparse_roots(self, squared_radius: NDArray[np.float64], dtype: Any) -> NDArray[Any]:
        """The root values of sparse rows."""


class ProductFeatures(Persistent):
    """Features phi_m times given weights; columns stand in the order of the prefix tree.

    Parameters
    ----------
    frame, basis
        How rows become points, and what an atom is.
    multisets : Multisets
        Distinct ones.
    weights : ndarray of shape (n_multisets,)
    sparse : bool
        Whether rows come as CSR (and features go out as CSR).
    """

    _state_fields: ClassVar = {
        "frame": instance(Frame),
        "basis": instance(Basis),
        "multisets": instance(Multisets),
        "weights": array(None),
        "sparse": flag,
    }

    def __init__(
        self,
        frame: Frame,
        basis: Basis,
        multisets: Multisets,
        weights: NDArray[np.float64],
        *,
        sparse: bool,
    ) -> None:
        self.frame = frame
        self.basis = basis
        self.sparse = sparse
        self.trie = build_trie(multisets, frequent_first=not sparse)
        self.multisets = multisets.take(self.trie.order)
        self.weights = weights[self.trie.order]
        self._lines = basis.lines_for(self.trie.atom_coordinates)
        self._prepared: dict[Any, tuple[NDArray[Any], NDArray[Any] | None]] = {}

    @classmethod
    def _restored(cls, values: dict[str, Any]) -> Self:
        frame, basis, multisets, weights = (
            values[name] for name in ("frame", "basis", "multisets", "weights")
        )
        if multisets.coordinates.max(initial=-1) >= frame.n_coordinates:
            wrong("multisets", f"have a coordinate beyond the {frame.n_coordinates} of the frame")
        if not basis.admits(multisets, frame.n_coordinates):
            wrong("multisets", "have an order or a degree that the basis does not have")
        if len(weights) != len(multisets) or not len(weights):
            wrong("weights", f"are {len(weights)} for {len(multisets)} multisets")
        return super()._restored(values)

    def _complete(self) -> None:
        in_order = np.array_equal(self.trie.order, np.arange(len(self)))
        if not in_order or np.count_nonzero(self.trie.columns >= 0) != len(self):
            wrong("multisets", "are repeated, or not in the order of the prefix tree")

    def __len__(self) -> int:
        return len(self.weights)

    def reweighted(self, weights: NDArray[np.float64]) -> ProductFeatures:
        """The same features (weights by column) without building the tree again."""
        copy = object.__new__(ProductFeatures)
        copy.__dict__ = {**self.__dict__, "weights": weights, "_prepared": {}}
        return copy

    def _prepare(self, dtype: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Node weights and projector in a float type, made once."""
        if dtype not in self._prepared:
            scales = np.exp(self.basis.log_scales(self.multisets)) * self.weights
            weights = self.trie.node_weights(scales, self.basis.work_dtype(dtype))
            self._prepared[dtype] = weights, self.frame.projector(self._lines, dtype)
        return self._prepared[dtype]

    def _dense(self, evaluator: Any, X: NDArray[Any], out: Any) -> None:
        trie = self.trie
        weights, projector = self._prepare(X.dtype)
        centred = self.frame.centred(X)
        table, roots = self.basis.dense_atoms(
            self.frame.columns(centred, self._lines, projector),
            lambda: self.frame.scale**2 * squared_norms(centred),
            trie.atom_coordinates,
            trie.atom_orders,
        )
        evaluator(table, roots, trie.depth, trie.atom, trie.columns, weights, trie.max_depth, out)

    def fill(self, X: NDArray[Any], out: NDArray[Any]) -> None:
        """Features of dense rows, row-major, into ``out`` (n, s)."""
        for rows in row_blocks(X.shape[0], BLOCK_ROWS):
            self._dense(evaluate_rows, X[rows], out[rows])

    def csr(self, X: Any) -> sp.csr_array:
        """Features of CSR rows, as CSR."""
        trie, dtype = self.trie, np.dtype(self.basis.work_dtype(X.dtype))
        child_start, child_node, child_atom = trie.children
        roots = self.basis.sparse_roots(self.frame.squared_radius(X), dtype)
        weights, _ = self._prepare(X.dtype)
        ranges = atom_ranges(trie.atom_coordinates, X.shape[1])
        indptr = np.empty(X.shape[0] + 1, dtype=np.int64)
        capacity = max(1024, 4 * X.nnz)
        while True:
            data, indices = np.empty(capacity, dtype=dtype), np.empty(capacity, dtype=np.int32)
            written = evaluate_csr(
                X.data.astype(dtype, copy=False),
                X.indices,
                X.indptr,
                dtype.type(self.frame.scale),
                roots,
                ranges,
                trie.atom_orders,
                trie.root_child,
                child_start,
                child_node,
                child_atom,
                trie.columns,
                weights,
                trie.max_depth,
                data,
                indices,
                indptr,
            )
            if written >= 0:
                break
            capacity *= 2
        shape = (X.shape[0], len(self))
        values = data[:written].astype(X.dtype)
        if written <= np.iinfo(np.int32).max:
            indptr = indptr.astype(np.int32)  # with 64-bit ones liblinear refuses the matrix
        return sp.csr_array((values, indices[:written].copy(), indptr), shape=shape)

    def squared_norms(self, X: Any, n_jobs: int | None) -> NDArray[np.float64]:
        """Sum over the rows of each squared feature."""

        def block(rows: slice) -> NDArray[np.float64]:
            if self.sparse:
                Z = self.csr(X[rows])
                squares = np.square(Z.data, dtype=np.float64)
                return weighted_counts(Z.indices, squares, len(self))
            sums = np.zeros(len(self))
            self._dense(add_squared_norms, X[rows], sums)
            return sums

        total = np.zeros(len(self))
        size = SPARSE_BLOCK_ROWS if self.sparse else BLOCK_ROWS
        for part in ordered_row_blocks(block, X.shape[0], size, n_jobs):
            total += part
        return total

    def project(
        self, X: Any, vectors: NDArray[np.float64], n_jobs: int | None
    ) -> NDArray[np.float64]:
        """phi_m . v for every feature and every column v of ``vectors`` (n, k): shape (s, k)."""

        def block(rows: slice) -> NDArray[np.float64]:
            if self.sparse:
                return self.csr(X[rows]).T @ vectors[rows]
            features = np.empty((len(self), X[rows].shape[0]), dtype=X.dtype)
            self._dense(evaluate_columns, X[rows], features)
            return (features @ vectors[rows].astype(X.dtype)).astype(np.float64)

        total = np.zeros((len(self), vectors.shape[1]))
        for part in ordered_row_blocks(block, X.shape[0], BLOCK_ROWS, n_jobs):
            total += part
        return total
