"""A set of product features in a frame and a basis: evaluate them, their norms, projections."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._native.products import add_squared_norms, atom_ranges, evaluate_rows
from kernelsieve._native.sparse_trie import evaluate_csr
from kernelsieve._parallel import map_row_blocks, ordered_row_blocks, row_blocks
from kernelsieve._state import Persistent, array, flag, instance, wrong
from kernelsieve.products.basis import Basis
from kernelsieve.products.frame import Frame, ProductFrame
from kernelsieve.products.monomial_basis import MonomialBasis
from kernelsieve.products.multisets import Multisets, build_trie
from kernelsieve.products.sparse_basis import SparseBasis
from kernelsieve.sources.summaries import squared_norms, weighted_counts

BLOCK_ROWS = 512  # dense rows whose atoms are tabulated at once
SPARSE_BLOCK_ROWS = 2048


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
        "frame": instance(Frame, ProductFrame),
        "basis": instance(Basis),
        "multisets": instance(Multisets),
        "weights": array(None),
        "sparse": flag,
    }

    def __init__(
        self,
        frame: Frame | ProductFrame,
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
        self._expansion = 4.0  # entries of the features for each entry of sparse rows

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
        copy.__dict__.pop("_largest", None)
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

    @property
    def keeps_sparse(self) -> bool:
        """Whether zeros of a row stay zeros, so that the features of CSR rows are sparse."""
        frame = self.frame
        anchored = isinstance(self.basis, MonomialBasis | SparseBasis)
        return anchored and frame.center is None and frame.rotation is None

    def overflows(self, X: Any, dtype: Any) -> bool:
        """Whether a feature of these rows might exceed ``dtype``: cheap, and never wrongly False.

        A look at the rows, which are fewer numbers than their features.
        """
        entries = X.data if sp.issparse(X) else X
        largest = float(max(entries.max(initial=0.0), -entries.min(initial=0.0)))
        radius = max(1.0, self.frame.scale * np.sqrt(X.shape[1]) * largest)
        log_scale, degree = self._largest
        log_bound = max(0.0, log_scale) + degree * np.log(radius)
        return not log_bound < np.log(np.finfo(dtype).max) - 1.0

    @cached_property
    def _largest(self) -> tuple[float, int]:
        """The logarithm of the largest constant in front of a product, and the highest degree."""
        scales = self.basis.log_scales(self.multisets)
        log_scale = float(scales.max() + np.log(self.weights.max(initial=1.0)))
        return log_scale, int(self.multisets.degrees().max())

    def fill(self, X: Any, out: NDArray[Any]) -> None:
        """Write the features of rows, which may be sparse, into ``out`` of shape (n, s)."""
        if isinstance(self.basis, SparseBasis):
            out[...] = self.csr(sp.csr_array(X)).toarray()
            return
        for rows in row_blocks(X.shape[0], BLOCK_ROWS):
            block = X[rows].toarray() if sp.issparse(X) else X[rows]
            self._dense(evaluate_rows, block, out[rows])

    def values(self, X: Any, n_jobs: int | None) -> NDArray[Any]:
        """The features of rows as a dense array of shape (n, s)."""
        Z = np.empty((X.shape[0], len(self)), dtype=X.dtype)

        def block(rows: slice) -> None:
            if sp.issparse(X) and self.keeps_sparse:
                Z[rows] = self.csr(X[rows]).toarray()
            else:
                self.fill(X[rows], Z[rows])

        map_row_blocks(block, X.shape[0], SPARSE_BLOCK_ROWS, n_jobs)
        return Z

    def csr(self, X: Any) -> sp.csr_array:
        """Features of CSR rows, as CSR."""
        trie, dtype = self.trie, np.dtype(self.basis.work_dtype(X.dtype))
        child_start, child_node, child_atom = trie.children
        if isinstance(self.basis, SparseBasis):
            points = self.frame.points(X)
            ratios, roots = self.basis.csr_atoms(points)
        else:
            assert isinstance(self.frame, Frame)
            ratios = np.empty((0, 1))
            roots = self.basis.sparse_roots(self.frame.squared_radius(X), dtype)
        weights, _ = self._prepare(X.dtype)
        ranges = np.zeros((X.shape[1], 2), dtype=np.int64)
        atom_ranges(trie.atom_coordinates, ranges)
        indptr = np.empty(X.shape[0] + 1, dtype=np.int64)
        capacity = max(1024, int(self._expansion * X.nnz))
        while True:
            data, indices = np.empty(capacity, dtype=dtype), np.empty(capacity, dtype=np.int32)
            written = evaluate_csr(
                X.data.astype(dtype, copy=False),
                X.indices,
                X.indptr,
                dtype.type(self.frame.scale),
                ratios,
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
            self._expansion = max(self._expansion, capacity / max(1, X.nnz))  # for the next block
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
            features = np.empty((X[rows].shape[0], len(self)), dtype=X.dtype)
            self._dense(evaluate_rows, X[rows], features)
            return (features.T @ vectors[rows].astype(X.dtype)).astype(np.float64)

        total = np.zeros((len(self), vectors.shape[1]))
        for part in ordered_row_blocks(block, X.shape[0], BLOCK_ROWS, n_jobs):
            total += part
        return total
