"""The local bases of all columns: what features are drawn from, and how they are evaluated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native import products as native
from kernelsieve._native.draws import draw_tents
from kernelsieve._state import INT64, Persistent, array, choice, list_of, wrong
from kernelsieve.products.adapted_basis import (
    MOST_POINTS,
    ColumnCells,
    Reference,
    column_basis,
    interval_masses,
)
from kernelsieve.products.column_basis import (
    FAMILIES,
    GRID_STEP,
    MOST_TABLE_ENTRIES,
    ColumnBasis,
    Patches,
    column_arrays,
)
from kernelsieve.products.multisets import Multisets
from kernelsieve.products.tents import (
    FIRST_TENT,
    MOST_LEVELS,
    log_wandering_probabilities,
    n_tents,
)
from kernelsieve.sources.base import Block, Source

NO_INTERVALS = np.empty(0)
LISTED_MASS = 1e-4  # of k(u, u) = 1
BLOCK_ROWS = 65536  # whose cells are counted at once
MOST_ENTRIES = 2**24  # of all columns together
SMALLEST_GROUND_STATE = 1e-12
SMALLEST_ROOT = 1e-290
ORDER_BITS = 40


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
        references: Sequence[Reference] | None = None,
    ) -> LocalBasis:
        """Bases adapted to columns with these values, up to a loss of ``tol`` in each.

        A column with rate 0 has the constant alone. Other rates matter to categories only: scaled
        coordinates hold those of all other families. ``references`` say what missing values of each
        column stand for.
        """
        columns = list(zip(families, rates, cells.columns, strict=True))
        standing = [None] * len(columns) if references is None else references
        bases = [
            column_basis(f, cell, rate=float(rate), tol=tol, align=align, reference=reference)
            for (f, rate, cell), reference in zip(columns, standing, strict=True)
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
        references: Sequence[Reference] | None = None,
    ) -> LocalBasis:
        """Bases adapted to the points of a source in a frame, up to a loss of ``tol``."""

        def summary(block: Block) -> ColumnCells:
            return ColumnCells.of_rows(block.X, frame.points)

        cells = source.reduce(summary, BLOCK_ROWS)
        return cls.adapted(families, rates, cells, tol, references=references)

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
        squares = np.empty((len(line), int(self.n_orders[coordinate])))
        self.write_squares(coordinate, line, 0, squares)
        return np.ascontiguousarray(squares.T)

    def write_squares(
        self, coordinate: int, line: NDArray[Any], first: int, out: NDArray[np.float64]
    ) -> None:
        """Write e_k^2 of one column into ``out[b, first + k]``, with one order for all tents."""
        basis = self.bases[coordinate]
        squares = np.square(self._tables.values(coordinate, line))
        last = first + len(squares)
        out[:, first:last] = squares.T
        if basis.tents:  # they hold the rest between the knots; a missing value has none
            between = (basis.points[0] < line) & (line < basis.points[-1])
            left = np.subtract.reduce([np.ones(len(line)), *squares])
            out[:, last] = np.where(between, np.maximum(left, 0.0), 0.0)

    def loss(self, coordinate: int, line: NDArray[Any]) -> NDArray[np.float64]:
        """The part of k(u, u) = 1 that the functions of one column do not hold: shape (B,)."""
        return np.clip(1.0 - self.squares(coordinate, line).sum(axis=0), 0.0, 1.0)

    def restricted(self, multisets: Multisets) -> LocalTables:
        """Tables to evaluate the orders that ``multisets`` use."""
        return LocalTables.of_bases(self.bases, multisets, self._tables.patches)

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


class LocalTables(Persistent):
    """Local functions of all columns, for the orders in use, laid out for compiled code.

    Parameters
    ----------
    bases : sequence of ColumnBasis
        With the functions in use only.
    orders : sequence of ndarray
        The orders in use of each column, rising from 0; those from ``FIRST_TENT`` on are tents.
    patches : sequence of Patches or None, optional
        Those of the same columns, where they are known.
    """

    # What the tables are made of; no index of them comes from a file.
    _state_fields: ClassVar = {
        "families": list_of(choice("constant", "categorical", *FAMILIES)),
        "n_points": array("n", dtype=INT64, low=1, high=MOST_POINTS + 1),
        "n_functions": array("n", dtype=INT64, low=1, high=FIRST_TENT),
        "n_orders": array("n", dtype=INT64, low=1),
        "capped": array("n", dtype=INT64, low=0, high=1),
        "points": array(None),
        "matrices": array(None),
        "missing": array(None),
        "orders": array(None, dtype=INT64, low=0, high=2**ORDER_BITS - 1),
    }

    def __init__(
        self,
        bases: Sequence[ColumnBasis],
        orders: Sequence[NDArray[np.int64]],
        patches: Sequence[Patches | None] | None = None,
    ) -> None:
        self.bases, self.orders = list(bases), list(orders)
        self.patches = [Patches.of_basis(b) for b in bases] if patches is None else patches
        room = min(MOST_TABLE_ENTRIES, MOST_ENTRIES // len(bases))
        columns = [
            column_arrays(*column, room) for column in zip(bases, orders, self.patches, strict=True)
        ]
        self._arrays = {
            name: np.concatenate([np.atleast_1d(column[name]) for column in columns])
            for name in columns[0]
        }
        coordinates = np.repeat(np.arange(len(bases)), [len(each) for each in orders])
        self._keys = _keys(coordinates, np.concatenate(orders))
        self._layout = self._layout_of(self._arrays)
        kinds = self._layout[:, native.KIND]
        self._live = np.flatnonzero(kinds != native.CONSTANT)
        # None where all columns with a table are Gaussian: less is compiled for them then.
        others = (kinds[self._live] != native.GAUSSIAN).any()
        self._settings = self._arrays["settings"] if others else None
        counts = np.array([len(each) for each in orders])
        self._first_slots, self._most_orders = np.cumsum(counts) - counts, int(counts.max())

    @staticmethod
    def _layout_of(arrays: dict[str, NDArray[Any]]) -> NDArray[np.int64]:
        """Where compiled code finds the parts of each column: shape (d, 11)."""
        ends = np.cumsum(arrays["sizes"], axis=0)
        starts = ends - arrays["sizes"]
        layout = np.empty((len(ends), 11), dtype=np.int64)
        layout[:, native.KIND] = arrays["kinds"]
        layout[:, native.WIDTH] = arrays["n_functions"]
        layout[:, native.MISSING] = arrays["missing_rows"]
        layout[:, [native.PLACES, native.TABLE, native.CENTRES, native.MATRIX, native.TENTS]] = (
            starts
        )
        layout[:, [native.PLACES_END, native.CENTRES_END, native.TENTS_END]] = ends[:, [0, 2, 4]]
        return layout

    @classmethod
    def of_bases(
        cls,
        bases: Sequence[ColumnBasis],
        multisets: Multisets,
        patches: Sequence[Patches | None] | None = None,
    ) -> LocalTables:
        """Tables of the orders that ``multisets`` use, and of order 0 of every column."""
        every = np.arange(len(bases), dtype=np.int64)
        keys = np.union1d(_keys(multisets.coordinates, multisets.orders), _keys(every, 0 * every))
        ends = np.searchsorted(keys >> ORDER_BITS, every, side="right")
        orders = np.split(keys & ((1 << ORDER_BITS) - 1), ends[:-1])
        used = [b.only(k[k < FIRST_TENT]) for b, k in zip(bases, orders, strict=True)]
        return cls(used, orders, patches)

    def _state_values(self) -> dict[str, Any]:
        return {
            "families": [basis.family for basis in self.bases],
            "n_points": np.array([len(basis.points) for basis in self.bases]),
            "n_functions": np.array([basis.n_functions for basis in self.bases]),
            "n_orders": np.array([len(orders) for orders in self.orders]),
            "capped": np.array([int(basis.capped) for basis in self.bases]),
            "points": np.concatenate([basis.points for basis in self.bases]),
            "matrices": np.concatenate([basis.matrix.ravel() for basis in self.bases]),
            "missing": np.concatenate([basis.missing for basis in self.bases]),
            "orders": np.concatenate(self.orders),
        }

    @classmethod
    def _restored(cls, values: dict[str, Any]) -> Self:
        families, points, functions = values["families"], values["n_points"], values["n_functions"]
        if len(families) != len(points) or not families:
            wrong("families", f"are {len(families)} for {len(points)} columns")
        rows = points + np.array([family == "categorical" for family in families])
        split = {}
        for name, sizes in (
            ("points", points),
            ("matrices", rows * functions),
            ("missing", functions),
            ("orders", values["n_orders"]),
        ):
            if len(values[name]) != sum(sizes.tolist()):
                wrong(name, f"have {len(values[name])} entries, which their sizes do not add up to")
            split[name] = np.split(values[name], np.cumsum(sizes)[:-1])
        bases = [
            ColumnBasis(
                family,
                g,
                matrix.reshape(-1, len(missing)),
                missing,
                np.zeros(len(missing)),
                capped=bool(capped),
            )
            for family, g, matrix, missing, capped in zip(
                families,
                split["points"],
                split["matrices"],
                split["missing"],
                values["capped"].tolist(),
                strict=True,
            )
        ]
        for basis, orders in zip(bases, split["orders"], strict=True):
            _check_column(basis, orders)
        return cls(bases, split["orders"])

    @property
    def capped(self) -> NDArray[np.int64]:
        """The columns with more values than points: their training rows lose something."""
        return np.flatnonzero([basis.capped for basis in self.bases])

    def admits(self, multisets: Multisets, n_coordinates: int) -> bool:
        """Whether there are tables for all atoms of these multisets."""
        atoms = _keys(multisets.coordinates, multisets.orders)
        return len(self.bases) == n_coordinates and bool(np.isin(atoms, self._keys).all())

    def log_scales(self, multisets: Multisets) -> NDArray[np.float64]:
        """Products of basis functions need no constant."""
        return np.zeros(len(multisets))

    def work_dtype(self, dtype: Any) -> Any:
        """Double: the root and the ratios balance each other over many orders of magnitude."""
        return np.float64

    def lines_for(self, coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
        """All coordinates that take part: each has its e_0 in every product."""
        return self._live

    def dense_atoms(
        self,
        lines: NDArray[Any],
        squared_radius: Callable[[], NDArray[np.float64]],
        coordinates: NDArray[np.int64],
        orders: NDArray[np.int64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Ratios e_k / e_0 of the atoms, (n_atoms, B), and the root prod_i e_0(x_i), (B,)."""
        slots = np.searchsorted(self._keys, _keys(coordinates, orders))
        slots -= self._first_slots[coordinates]
        size = lines.shape[1]
        table, roots = np.empty((len(coordinates), size)), np.empty(size)
        arguments = (
            *self._functions,
            self._arrays["tents"],
            coordinates,
            slots,
            SMALLEST_GROUND_STATE,
            SMALLEST_ROOT,
            np.zeros((len(self.bases), 2), dtype=np.int64),
            np.empty((self._most_orders, size)),
            table,
            roots,
        )
        native.local_atoms(lines, self._live, *arguments)
        return table, roots

    def values(self, coordinate: int, line: NDArray[Any]) -> NDArray[np.float64]:
        """The functions in use of one column, tents last: shape (n_orders, B)."""
        out = np.empty((len(self.orders[coordinate]), len(line)))
        layout, settings, parts = self._functions
        setting = None if settings is None else settings[coordinate]
        native.write_values(line, layout[coordinate], setting, parts, self._arrays["tents"], out)
        return out

    @property
    def _functions(self) -> tuple[Any, ...]:
        """What compiled code needs to read the tables."""
        names = ("places", "first_rows", "n_rows", "tables", "points", "matrices")
        parts = (GRID_STEP, FAMILIES["gaussian"].reach, *(self._arrays[name] for name in names))
        return self._layout, self._settings, parts

    def sparse_roots(self, squared_radius: NDArray[np.float64], dtype: Any) -> NDArray[Any]:
        raise TypeError("local bases are for dense data: use basis='monomial'")


def _check_column(basis: ColumnBasis, orders: NDArray[np.int64]) -> None:
    """Refuse a column of a model file that compiled code could not read."""
    points, tents = basis.points, orders[orders >= FIRST_TENT] - FIRST_TENT
    if (np.diff(points) <= 0).any() or not np.isfinite(points[-1] - points[0]):
        wrong("points", "do not rise")
    if orders[0] != 0 or (np.diff(orders) <= 0).any():
        wrong("orders", "do not rise from 0")
    if len(orders) - len(tents) != basis.n_functions:
        wrong("orders", f"are not those of {basis.n_functions} functions")
    if len(tents) and (basis.family != "laplacian" or tents[-1] >= n_tents(len(points))):
        wrong("orders", "have a tent that the column does not have")


def _keys(coordinates: NDArray[np.int64], orders: NDArray[np.int64]) -> NDArray[np.int64]:
    """One number for each pair of coordinate and order, in their order."""
    return (np.asarray(coordinates) << ORDER_BITS) + orders
