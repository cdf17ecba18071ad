"""Local functions for sparse rows: a column that is 0 costs nothing.

The first function of a column is e_0(u) = k(u, 0), and all others are 0 at 0. So a product feature
is c(x) times a product over some nonzeros of e_k(x_i) / e_0(x_i), with c(x) the product of k(x_i,
0) over all nonzeros. Columns of one family share their functions, because their kernel is the same
in scaled coordinates (docs/product-features.md, "Sparse columns").
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native.products import sparse_ratios
from kernelsieve._state import INT64, Persistent, array, instance, wrong
from kernelsieve.products.adapted_basis import Cells, column_basis
from kernelsieve.products.local_basis import (
    BLOCK_ROWS,
    SMALLEST_GROUND_STATE,
    SMALLEST_ROOT,
    LocalTables,
)
from kernelsieve.products.multisets import Multisets
from kernelsieve.sources.base import Block, Source


class SparseBasis(Persistent):
    """One set of functions for all columns of a family.

    Parameters
    ----------
    tables : LocalTables
        One basis for each family; the first function of each is k(u, 0).
    groups : ndarray of shape (d,)
        The number of each column's basis.
    """

    _state_fields: ClassVar = {
        "tables": instance(LocalTables),
        "groups": array("d", dtype=INT64, low=0),
    }

    def __init__(self, tables: LocalTables, groups: NDArray[np.int64]) -> None:
        self.tables, self.groups = tables, groups

    def _complete(self) -> None:
        if not len(self.groups) or self.groups.max() >= len(self.tables.bases):
            wrong("groups", "name a basis that is not there")
        for basis, orders in zip(self.tables.bases, self.tables.orders, strict=True):
            at_zero = basis.values(np.zeros(1))[1:]
            if len(orders) != basis.n_functions or np.abs(at_zero).max(initial=0.0) > 1e-5:
                wrong("tables", "have functions that are not 0 at 0")

    @classmethod
    def of_rows(
        cls, families: tuple[str, ...], frame: Any, source: Source, tol: float
    ) -> SparseBasis:
        """Functions adapted to the nonzeros of a source in a frame, up to a loss of ``tol``."""
        names = sorted(set(families))
        groups = np.array([names.index(family) for family in families], dtype=np.int64)

        def summary(block: Block) -> _Pooled:
            points = frame.points(block.X)
            of_entry = groups[points.indices]
            values = [points.data[of_entry == g] for g in range(len(names))]
            return _Pooled([Cells.of_values(v[v != 0.0]) for v in values])

        pooled = source.reduce(summary, BLOCK_ROWS).cells
        bases = [
            column_basis(family, cells, tol=tol, align="zero")
            for family, cells in zip(names, pooled, strict=True)
        ]
        orders = [np.arange(basis.n_functions) for basis in bases]
        return cls(LocalTables(bases, orders), groups)

    @cached_property
    def n_functions(self) -> NDArray[np.int64]:
        """The number of functions of each basis."""
        return np.array([basis.n_functions for basis in self.tables.bases])

    @property
    def capped(self) -> NDArray[np.int64]:
        """The columns with more values than points: their training rows lose something."""
        return np.flatnonzero(np.isin(self.groups, self.tables.capped))

    def values(self, points: Any) -> NDArray[np.float64]:
        """All functions at the stored entries of CSR points: shape (nnz, most functions)."""
        out = np.zeros((len(points.data), int(self.n_functions.max())))
        of_entry = self.groups[points.indices]
        for g, count in enumerate(self.n_functions.tolist()):
            here = np.flatnonzero(of_entry == g)
            line = points.data[here].astype(np.float64)
            out[here, :count] = self.tables.values(g, line).T
        out[points.data == 0.0] = np.eye(1, out.shape[1])
        return out

    def csr_atoms(self, points: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Ratios e_k / e_0 of all entries, shape (nnz, most functions), and c(x), shape (n,)."""
        ratios, roots = self.values(points), np.empty(points.shape[0])
        sparse_ratios(ratios, points.indptr, SMALLEST_GROUND_STATE, SMALLEST_ROOT, roots)
        return ratios, roots

    # --- what every basis offers -----------------------------------------------------------------

    def admits(self, multisets: Multisets, n_coordinates: int) -> bool:
        """Whether it has the functions of these multisets."""
        if len(self.groups) != n_coordinates:
            return False
        counts = self.n_functions[self.groups[multisets.coordinates]]
        return bool(((multisets.orders >= 1) & (multisets.orders < counts)).all())

    def log_scales(self, multisets: Multisets) -> NDArray[np.float64]:
        """Products of basis functions need no constant."""
        return np.zeros(len(multisets))

    def work_dtype(self, dtype: Any) -> Any:
        """Double: the root and the ratios balance each other over many orders of magnitude."""
        return np.float64

    def lines_for(self, coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
        """No lines: rows are CSR."""
        return np.empty(0, dtype=np.int64)

    def dense_atoms(
        self,
        lines: NDArray[Any],
        squared_radius: Callable[[], NDArray[np.float64]],
        coordinates: NDArray[np.int64],
        orders: NDArray[np.int64],
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        raise TypeError("this basis is for sparse rows")

    def sparse_roots(self, squared_radius: NDArray[np.float64], dtype: Any) -> NDArray[Any]:
        raise TypeError("the roots of this basis are not functions of the radius")


class _Pooled:
    """The cells of several groups of columns, which add up over blocks."""

    def __init__(self, cells: list[Cells]) -> None:
        self.cells = cells

    def __iadd__(self, other: _Pooled) -> _Pooled:
        for mine, more in zip(self.cells, other.cells, strict=True):
            mine += more
        return self
