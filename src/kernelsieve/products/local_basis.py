"""The local bases of all columns: what features are drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native.local import draw_tents
from kernelsieve.products.cells import ColumnCells
from kernelsieve.products.column_basis import ColumnBasis, column_basis
from kernelsieve.products.local_tables import LocalTables
from kernelsieve.products.multisets import Multisets
from kernelsieve.products.tents import (
    FIRST_TENT,
    MOST_LEVELS,
    interval_masses,
    log_wandering_probabilities,
)
from kernelsieve.sources.base import Block, Source

NO_INTERVALS = np.empty(0)
LISTED_MASS = 1e-4  # of k(u, u) = 1
BLOCK_ROWS = 65536  # whose cells are counted at once


class LocalBasis:
    """Products of local one-dimensional functions.

    Parameters
    ----------
    bases : sequence of ColumnBasis
    masses : sequence of ndarray
        For each column with tents, the mean square of all tents of each interval between its knots;
        empty for others.
    """

    def __init__(
        self, bases: Sequence[ColumnBasis], tent_masses: Sequence[NDArray[np.float64]]
    ) -> None:
        self.bases, self.tent_masses = list(bases), list(tent_masses)
        # The last order of a column with tents stands for all of them, in draws.
        self.n_orders = np.array([b.n_functions + b.tents for b in bases], dtype=np.int64)
        # Products of only the first, heavy functions may be taken whole; of others few would count.
        light = [np.flatnonzero(b.masses[1:] < LISTED_MASS) for b in bases]
        self.n_listed = np.array(
            [1 + x[0] if len(x) else b.n_functions for b, x in zip(bases, light, strict=True)]
        )

    @classmethod
    def adapted(
        cls,
        families: Sequence[str],
        rates: NDArray[np.float64],
        cells: ColumnCells,
        tol: float,
        align: str = "variance",
    ) -> LocalBasis:
        """Bases adapted to columns with these values, up to a loss of ``tol`` in each.

        A column with rate 0 has the constant alone. Other rates matter to categories only: scaled
        coordinates hold those of all other families.
        """
        columns = list(zip(families, rates, cells.columns, strict=True))
        bases = [
            column_basis(family, cell, rate=float(rate), tol=tol, align=align)
            for family, rate, cell in columns
        ]
        masses = [
            interval_masses(cell, basis.points) if basis.tents else NO_INTERVALS
            for basis, (_, _, cell) in zip(bases, columns, strict=True)
        ]
        return cls(bases, masses)

    @classmethod
    def of_rows(
        cls,
        families: Sequence[str],
        rates: NDArray[np.float64],
        frame: Any,
        source: Source,
        tol: float,
    ) -> LocalBasis:
        """Bases adapted to the points of a source in a frame, up to a loss of ``tol``."""

        def summary(block: Block) -> ColumnCells:
            return ColumnCells.of_points(frame.points(block.X))

        return cls.adapted(families, rates, source.reduce(summary, BLOCK_ROWS), tol)

    @property
    def has_tents(self) -> bool:
        """Whether there are more functions than could ever be listed."""
        return any(basis.tents for basis in self.bases)

    @property
    def capped(self) -> NDArray[np.int64]:
        """The columns that needed more points than they may have: training rows lose something."""
        return np.flatnonzero([basis.capped for basis in self.bases])

    def masses(self, coordinate: int) -> NDArray[np.float64]:
        """Mean squares of the orders of a column over the training rows: shape (n_orders,)."""
        basis, tents = self.bases[coordinate], self.tent_masses[coordinate]
        return np.append(basis.masses, tents.sum()) if basis.tents else basis.masses

    def squares(self, coordinate: int, line: NDArray[Any]) -> NDArray[np.float64]:
        """e_k^2 of one column for its orders: shape (n_orders, B)."""
        basis = self.bases[coordinate]
        values = self._tables.values(coordinate, line)
        np.square(values, out=values)
        if not basis.tents:
            return values
        rest = np.clip(1.0 - values.sum(axis=0), 0.0, None)
        # Tents end with the knots, and a missing value has none.
        rest[~((line > basis.points[0]) & (line < basis.points[-1]))] = 0.0
        return np.vstack([values, rest])

    def loss(self, coordinate: int, line: NDArray[Any]) -> NDArray[np.float64]:
        """The part of k(u, u) = 1 that the functions of one column do not hold: shape (B,)."""
        return np.clip(1.0 - self.squares(coordinate, line).sum(axis=0), 0.0, 1.0)

    def restricted(self, multisets: Multisets) -> LocalTables:
        """Tables to evaluate the orders that ``multisets`` use."""
        return LocalTables.of_bases(self.bases, multisets)

    @cached_property
    def _tables(self) -> LocalTables:
        """Tables of all functions, from which many values come cheaper than from the points."""
        return LocalTables(self.bases, [np.arange(basis.n_functions) for basis in self.bases])

    # --- tents -----------------------------------------------------------------------------------

    def name_tents(
        self,
        points: NDArray[np.float64],
        rows: NDArray[np.int64],
        draws: tuple[Any, ...],
        words: NDArray[np.uint64],
        rng: np.random.Generator,
    ) -> None:
        """Replace orders that stand for all tents of a column by those of tents, in place.

        Parameters
        ----------
        points : ndarray of shape (n_rows, d)
        rows : ndarray of shape (size,)
            The row that each draw comes from; n_rows stands for the marginal distributions.
        draws : (hashes, ends, coordinates, orders)
        """
        if not self.has_tents:
            return
        hashes, ends, coordinates, orders = draws
        knots = [b.points if b.tents else NO_INTERVALS for b in self.bases]
        cumulative = [np.append(np.cumsum(m), 0.0) if len(m) else m for m in self.tent_masses]
        draw_tents(
            rows,
            points,
            ends,
            coordinates,
            orders,
            self.n_orders - 1,
            np.concatenate(knots),
            np.concatenate([[0], np.cumsum([len(k) for k in knots])]),
            np.concatenate(cumulative),
            FIRST_TENT,
            MOST_LEVELS,
            words,
            rng,
            hashes,
        )

    def drawn_orders(self, multisets: Multisets) -> NDArray[np.int64]:
        """The orders of atoms as draws know them: that of all tents for a tent."""
        tents = multisets.orders >= FIRST_TENT
        return np.where(tents, self.n_orders[multisets.coordinates] - 1, multisets.orders)

    def log_tent_probabilities(self, multisets: Multisets) -> NDArray[np.float64]:
        """For each atom: log of the chance that a draw from the marginals has just this tent."""
        logs = np.zeros(len(multisets.orders))
        tents = np.flatnonzero(multisets.orders >= FIRST_TENT)
        for i in np.unique(multisets.coordinates[tents]):
            here = tents[multisets.coordinates[tents] == i]
            numbers = multisets.orders[here] - FIRST_TENT
            logs[here] = log_wandering_probabilities(numbers, self.tent_masses[i])
        return logs
