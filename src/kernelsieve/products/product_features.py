"""What a product feature is: a frame, a basis of functions of its coordinates, and their products.

A row becomes a point in a frame, the basis makes atoms of its coordinates, and every feature is a
product of atoms. Monomials are the basis of a Taylor series; tables of local functions are in
``local_basis``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import gammaln

from kernelsieve._native.products import (
    add_squared_norms,
    atom_ranges,
    evaluate_rows,
    power_table,
)
from kernelsieve._native.sparse_trie import evaluate_csr
from kernelsieve._parallel import map_row_blocks, ordered_row_blocks, row_blocks
from kernelsieve._state import Persistent, array, flag, instance, optional, scaling, wrong
from kernelsieve.kernels.series import Series
from kernelsieve.products.basis import Basis
from kernelsieve.products.multisets import Multisets, build_trie
from kernelsieve.products.product_frame import ProductFrame
from kernelsieve.products.sparse_basis import SparseBasis
from kernelsieve.sources.given import as_source
from kernelsieve.sources.summaries import (
    column_means,
    moments,
    second_moments,
    squared_norms,
    weighted_counts,
)

BLOCK_ROWS = 512  # dense rows whose atoms are tabulated at once
SPARSE_BLOCK_ROWS = 2048
# Directions that those rows do not show may show elsewhere: they keep this share of the mean.
SPREAD_FLOOR = 1e-3
# Beyond this |x'|^2 the Gaussian's exp(-|x'|^2 / 2) underflows: the features are 0 there.
LARGEST_SQUARED_RADIUS = {np.dtype(np.float32): 170.0, np.dtype(np.float64): 1400.0}
LARGEST_LOG_SCALE = 30.0


@dataclass(frozen=True)
class Frame(Persistent):
    """The coordinates in which features are products: x' = scale (x - center) rotation.

    Attributes
    ----------
    scale : float
    center : ndarray of shape (d,) or None
    rotation : ndarray of shape (d, n_coordinates) or None
        Orthonormal columns (principal directions); None leaves the columns as they are.
    spread : ndarray of shape (n_coordinates,) or None
        Root mean squares of the coordinates of x' over all rows.
    """

    scale: float
    center: NDArray[np.float64] | None
    rotation: NDArray[np.float64] | None = None
    spread: NDArray[np.float64] | None = None

    _state_fields: ClassVar = {
        "scale": scaling,
        "center": optional(array("d")),
        "rotation": optional(array("d", "n_coordinates")),
        "spread": array("n_coordinates"),
    }

    def _complete(self) -> None:
        if self.center is not None and len(self.center) != self.n_features:
            wrong("center", f"has {len(self.center)} columns instead of {self.n_features}")

    @classmethod
    def of_series(cls, series: Series) -> Frame:
        """The frame that a kernel's series asks for."""
        return cls(series.scale, series.center)

    @classmethod
    def of_gaussian(cls, gamma: float, X: Any, center: Any) -> Frame:
        """The frame of the Gaussian on dense data, for the bases that need no Taylor series."""
        mean = None if center is False else column_means(as_source(X))
        return cls(float(np.sqrt(2.0 * gamma)), mean)

    def along_columns(self, X: Any) -> Frame:
        """The same frame with the columns of X (a source, or rows) as its coordinates."""
        return replace(self, spread=self.scale * np.sqrt(moments(X).mean_squares(self.center)))

    def rotated(self, X: Any, rows: NDArray[np.int64] | None = None) -> Frame:
        """The same frame, turned to the principal directions of X.

        ``rows`` are the numbers of the rows that show them (rising); None looks at all.
        """
        rows = np.arange(X.shape[0]) if rows is None else rows
        whole = len(rows) == X.shape[0]
        directions, values = principal_directions(as_source(X)[rows], self.center)
        floor = 1e-14 * values.max(initial=0.0) if whole else SPREAD_FLOOR * values.mean()
        values = np.where(values > floor, values, 0.0 if whole else floor)
        return replace(self, rotation=directions, spread=self.scale * np.sqrt(values))

    def rescaled(self, factor: float) -> Frame:
        """The same frame with all coordinates multiplied by ``factor``."""
        spread = None if self.spread is None else self.spread * factor
        return replace(self, scale=self.scale * factor, spread=spread)

    @property
    def n_features(self) -> int:
        """The number of columns of the rows."""
        return self.n_coordinates if self.rotation is None else len(self.rotation)

    @property
    def n_coordinates(self) -> int:
        """How many coordinates a point has."""
        assert self.spread is not None
        return len(self.spread)

    def squared_radius(self, X: Any) -> NDArray[np.float64]:
        """|x'|^2 of every row: rotations do not change it."""
        return self.scale**2 * squared_norms(X, self.center)

    def centred(self, X: NDArray[Any]) -> NDArray[Any]:
        """Dense rows minus the centre, in their own float type."""
        return X if self.center is None else X - self.center.astype(X.dtype)

    def points(self, X: Any) -> Any:
        """x' of the rows of X, in X's float type; sparse rows stay sparse."""
        points = X if sp.issparse(X) else self.centred(X)
        if self.rotation is not None:
            points = points @ self.rotation.astype(X.dtype)
        return points * X.dtype.type(self.scale)

    def projector(self, coordinates: NDArray[np.int64], dtype: Any) -> NDArray[Any] | None:
        """What turns centred rows into some coordinates of x'; None where they are columns."""
        if self.rotation is None:
            return None
        return (self.rotation[:, coordinates].T * self.scale).astype(dtype)

    def columns(
        self, centred: NDArray[Any], coordinates: NDArray[np.int64], projector: NDArray[Any] | None
    ) -> NDArray[Any]:
        """Some coordinates of x' for a block of centred rows, one line for each coordinate."""
        if projector is not None:
            return projector @ centred.T
        lines = np.ascontiguousarray(centred.T[coordinates])
        lines *= centred.dtype.type(self.scale)
        return lines


def principal_directions(
    X: NDArray[Any], center: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvectors of the second moments, largest first, and the mean squares along them."""
    values, vectors = np.linalg.eigh(second_moments(X, center))
    directions = vectors[:, ::-1]
    # The largest component of each direction is positive: the same directions everywhere.
    largest = np.abs(directions).argmax(axis=0)
    signs = np.sign(directions[largest, np.arange(directions.shape[1])])
    return directions * signs, np.clip(values[::-1], 0.0, None)


@dataclass(frozen=True)
class MonomialBasis(Persistent):
    """Atoms x_i^k / sqrt(k!), so that a feature is sqrt(a_w w!) c(x) times a product of atoms."""

    series: Series

    _state_fields: ClassVar = {"series": instance(Series)}

    def admits(self, multisets: Multisets, n_coordinates: int) -> bool:
        """Whether the series reaches the degrees of these multisets."""
        return int(multisets.degrees().max(initial=0)) <= self.series.degree

    def log_scales(self, multisets: Multisets) -> NDArray[np.float64]:
        """log sqrt(a_w w!) of each multiset; a multiset of size w has w! / prod k_i! orders."""
        degrees = multisets.degrees()
        return 0.5 * (self.series.log_coefficients[degrees] + gammaln(degrees + 1.0))

    def work_dtype(self, dtype: Any) -> Any:
        """Double where sqrt(a_w w!) is huge: the atoms that it meets are as small."""
        degrees = np.arange(self.series.degree + 1)
        largest = 0.5 * np.max(self.series.log_coefficients + gammaln(degrees + 1.0))
        return np.float64 if largest > LARGEST_LOG_SCALE else dtype

    def lines_for(self, coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
        """Only the coordinates that occur, each once."""
        return np.unique(coordinates)

    def dense_atoms(
        self,
        lines: NDArray[Any],
        squared_radius: Callable[[], NDArray[np.float64]],
        coordinates: NDArray[np.int64],
        orders: NDArray[np.int64],
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The atoms of a block of rows, (n_atoms, B), and c(x), (B,)."""
        lines = lines.astype(self.work_dtype(lines.dtype), copy=False)
        dtype, size = lines.dtype, lines.shape[1]
        if self.series.damped:
            roots, far = self._damping(squared_radius(), dtype)
            if far.any():
                lines[:, far] = 0.0  # so that no power of them overflows
        else:
            roots = np.ones(size, dtype=dtype)
        table = np.empty((len(coordinates), size), dtype=dtype)
        positions = np.searchsorted(self.lines_for(coordinates), coordinates)
        power_table(lines, positions, orders, table)
        return table, roots

    def sparse_roots(self, squared_radius: NDArray[np.float64], dtype: Any) -> NDArray[Any]:
        """c(x) of sparse rows."""
        if not self.series.damped:
            return np.ones(len(squared_radius), dtype=dtype)
        return self._damping(squared_radius, dtype)[0]

    def _damping(
        self, squared_radius: NDArray[np.float64], dtype: Any
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        far = squared_radius > LARGEST_SQUARED_RADIUS[np.dtype(dtype)]
        roots = np.exp(self.series.log_amplitude(squared_radius))
        roots[far] = 0.0
        return roots.astype(dtype), far


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
