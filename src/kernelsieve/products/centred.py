"""Products of few functions that have mean 0 along their columns (docs/explanations.md).

The kernel of a column is split into what its mean holds, mu(u) mu(v) / m, and the rest. In a basis
whose first function points along the mean, the other functions lift the rest: they have mean 0 over
the training values. Products of at most two of them, divided by sqrt(m), are those of the kernel
prod_i (1 + rest_i / m_i) cut after the pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelsieve._state import Persistent, instance
from kernelsieve.products.adapted_basis import Cells, column_basis
from kernelsieve.products.column_basis import ColumnBasis
from kernelsieve.products.local_basis import LocalTables
from kernelsieve.products.multisets import Multisets

SMALLEST_MEAN = 1e-6  # of the kernel between two values of a column


def centred_basis(family: str, cells: Cells, rate: float, tol: float) -> ColumnBasis:
    """The functions of one column; all but the first, which is not used, have mean 0."""
    basis = column_basis(family, cells, rate=rate, tol=tol, align="mean")
    if basis.n_functions == 1:
        return basis
    first = basis.values(cells.middles)[0] @ cells.weights
    mean = (1.0 - cells.missing_share) * first + cells.missing_share * basis.missing[0]
    scale = 1.0 / np.sqrt(max(float(mean) ** 2, SMALLEST_MEAN))
    return replace(
        basis,
        matrix=basis.matrix * scale,
        missing=basis.missing * scale,
        masses=basis.masses * scale**2,
        tents=False,
    )


@dataclass(frozen=True)
class CentredTables(Persistent):
    """The basis of products without ground states: an atom is a function, the root is 1.

    Attributes
    ----------
    tables : LocalTables
    """

    tables: LocalTables

    _state_fields: ClassVar = {"tables": instance(LocalTables)}

    @property
    def orders(self) -> list[NDArray[np.int64]]:
        """The orders in use of each column, rising from 0, which is the constant 1."""
        return self.tables.orders

    @property
    def capped(self) -> NDArray[np.int64]:
        """The columns with more values than points: their training rows lose something."""
        return self.tables.capped

    def admits(self, multisets: Multisets, n_coordinates: int) -> bool:
        """Whether there are tables for all atoms of these multisets."""
        return self.tables.admits(multisets, n_coordinates)

    def log_scales(self, multisets: Multisets) -> NDArray[np.float64]:
        """Products of basis functions need no constant."""
        return np.zeros(len(multisets))

    def work_dtype(self, dtype: Any) -> Any:
        """Double, as the tables are."""
        return np.float64

    def lines_for(self, coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
        """Only the coordinates that occur, each once."""
        return np.unique(coordinates)

    def values(self, coordinate: int, line: NDArray[Any]) -> NDArray[np.float64]:
        """The functions in use of one column, the first being 1: shape (n_orders, B)."""
        values = self.tables.values(coordinate, np.asarray(line, dtype=np.float64))
        values[0] = 1.0
        return values

    def dense_atoms(
        self,
        lines: NDArray[Any],
        squared_radius: Callable[[], NDArray[np.float64]],
        coordinates: NDArray[np.int64],
        orders: NDArray[np.int64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The functions of the atoms, (n_atoms, B), and ones, (B,)."""
        table = np.empty((len(coordinates), lines.shape[1]))
        for line, i in zip(lines, self.lines_for(coordinates), strict=True):
            here = coordinates == i
            table[here] = self.values(i, line)[np.searchsorted(self.orders[i], orders[here])]
        return table, np.ones(lines.shape[1])

    def sparse_roots(self, squared_radius: NDArray[np.float64], dtype: Any) -> NDArray[Any]:
        raise TypeError("local bases are for dense data: use basis='monomial'")


def heaviest_products(bases: list[ColumnBasis], max_order: int, most: int) -> Multisets:
    """The products of at most ``max_order`` functions with the largest mean squares.

    Mean squares are those of independent columns. At least the constant is there.
    """
    coordinates = np.concatenate([np.full(b.n_functions - 1, i) for i, b in enumerate(bases)])
    orders = np.concatenate([np.arange(1, b.n_functions) for b in bases])
    masses = np.concatenate([b.masses[1:] for b in bases])
    chosen = np.argsort(-masses, kind="stable")[:most]
    chosen = chosen[np.argsort(coordinates[chosen], kind="stable")]
    coordinates, orders, masses = (each[chosen] for each in (coordinates, orders, masses))
    tuples = np.arange(len(masses))[:, None]
    weights, found = masses, [(tuples, masses)]
    for _ in range(1, max_order):
        # A product grows by a function of a later column.
        product = weights[:, None] * masses
        product[coordinates[tuples[:, -1]][:, None] >= coordinates] = -1.0
        best = np.argpartition(-product, min(most, product.size - 1), axis=None)[:most]
        best = best[product.ravel()[best] > 0.0]
        parents, last = np.unravel_index(best, product.shape)
        tuples, weights = np.column_stack([tuples[parents], last]), product.ravel()[best]
        found.append((tuples, weights))
        if not len(tuples):
            break
    everything = np.concatenate([weights for _, weights in found])
    order = np.argsort(-everything, kind="stable")[: max(most - 1, 0)]
    kept = np.zeros(len(everything), dtype=bool)
    kept[order] = True
    table = np.zeros((1 + int(kept.sum()), len(bases)), dtype=np.int64)
    row, start = 1, 0
    for tuples, weights in found:
        here = tuples[kept[start : start + len(weights)]]
        rows = np.arange(row, row + len(here))
        for column in here.T:
            table[rows, coordinates[column]] = orders[column]
        row, start = row + len(here), start + len(weights)
    return Multisets.from_table(table)
