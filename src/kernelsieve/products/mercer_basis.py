"""The Mercer basis of the Gaussian kernel (docs/why-the-engine.md, "Adapted bases").

Each coordinate has the functions that its own distribution favours: e_k = sum_j U_jk b_j with
b_j(u) = exp(-u^2/2) u^j / sqrt(j!) and U the eigenvectors of mean(b b^T). U is orthogonal, so the
basis is complete for every real u.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native.products import (
    POINTS,
    all_damped_powers,
    atom_ranges,
    count_cells,
    mercer_atoms,
    tabulate,
)
from kernelsieve._state import INT64, Persistent, array, wrong
from kernelsieve.kernels.base import SeriesTooLongError
from kernelsieve.products.frame import Frame
from kernelsieve.products.multisets import Multisets
from kernelsieve.sources.base import Block, Source
from kernelsieve.sources.summaries import moments

GRID_STEP = 1.0 / 64.0
GRID_MARGIN = 0.25
HISTOGRAM_ROWS = 8192  # whose histograms are made at once
MOMENT_CELLS = 256  # the distribution of a coordinate, as a histogram
EVERYWHERE = 1e-7  # the weight of the whole range in a distribution: it orders what has no rows
MAX_ORDERS = 700
RANGE_POINTS = 65
LARGEST_LOSS = 1e-6  # of k(x, x) = 1 at any point in the range, by the orders that are not kept
ROUNDING = 1e-13
SMALLEST_GROUND_STATE = 1e-30  # e_0 > 0 everywhere, but rounding may deny it far away


@dataclass(frozen=True)
class CoordinateBasis:
    """The adapted basis of one coordinate.

    Attributes
    ----------
    rotation : ndarray of shape (J, J)
        U; beyond J the basis goes on with b_k itself.
    masses : ndarray of shape (J,)
        mean e_k^2 over the distribution that the basis was made for.
    low, high : float
        The interval that its tables cover.
    """

    rotation: NDArray[np.float64]
    masses: NDArray[np.float64]
    low: float
    high: float

    def values(self, u: NDArray[np.float64], n_orders: int) -> NDArray[np.float64]:
        """e_k(u) for k < n_orders, exactly: shape (n_orders, len(u))."""
        J = len(self.rotation)
        powers = _all_damped_powers(u, max(J, n_orders))
        return np.hstack([powers[:, :J] @ self.rotation, powers[:, J:]])[:, :n_orders].T

    def grid(self, n_orders: int) -> tuple[float, NDArray[np.float64]]:
        """The first point of the table and the table, of shape (n_cells, n_orders)."""
        first = self.low - GRID_MARGIN
        n_cells = int(np.ceil((self.high - self.low + 2 * GRID_MARGIN) / GRID_STEP)) + 6
        points = np.array(first + GRID_STEP * np.arange(n_cells), dtype=np.float64)
        return first, np.ascontiguousarray(self.values(points, n_orders).T)


def adapted_basis(counts: NDArray[np.int64], low: float, high: float) -> CoordinateBasis:
    """The basis adapted to a coordinate in [low, high], given as a histogram of equal cells."""
    largest = max(abs(low), abs(high))
    needed = largest * largest + 8.0 * largest + 30.0
    if needed > MAX_ORDERS:
        raise SeriesTooLongError(
            f"a scaled coordinate reaches {largest:.4g}, too far for the Mercer basis: clip "
            "outliers, use a smaller gamma, or NystromFeatures"
        )
    J = int(np.ceil(needed))
    middles = low + (high - low) * (np.arange(len(counts)) + 0.5) / len(counts)
    # A little weight everywhere: new rows, too, must find few orders enough.
    weights = (1.0 - EVERYWHERE) * counts / counts.sum() + EVERYWHERE / len(counts)
    powers = _all_damped_powers(middles, J)
    moments = (powers * weights[:, None]).T @ powers
    masses, vectors = np.linalg.eigh(moments)
    rotation = vectors[:, ::-1]
    largest_part = np.abs(rotation).argmax(axis=0)
    rotation = rotation * np.sign(rotation[largest_part, np.arange(J)])
    if (powers @ rotation[:, 0]).mean() < 0:
        rotation[:, 0] *= -1.0  # the ground state is positive
    return CoordinateBasis(rotation, np.clip(masses[::-1], 0.0, None), low, high)


def _all_damped_powers(u: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """b_j(u) for j < count, of shape (len(u), count)."""
    powers = np.empty((len(u), count))
    all_damped_powers(np.asarray(u, dtype=np.float64), powers)
    return powers


class MercerBasis(Persistent):
    """Adapted bases of all coordinates, with tables for the orders in use (a TableBasis).

    Parameters
    ----------
    bases : list of CoordinateBasis
    n_orders : ndarray of shape (n_coordinates,)
        How many orders of each coordinate are ever used (at least 1).
    """

    # All that evaluation needs, as flat arrays; an interpolation looks at POINTS cells.
    _state_fields: ClassVar = {
        "n_orders": array("n", dtype=INT64, low=1, high=MAX_ORDERS),
        "firsts": array("n"),
        "n_cells": array("n", dtype=INT64, low=POINTS, high=2**32),
        "grids": array(None),
        "rotation_sizes": array("n", dtype=INT64, low=1, high=MAX_ORDERS),
        "rotations": array(None),
    }

    def __init__(self, bases: list[CoordinateBasis], n_orders: NDArray[np.int64]) -> None:
        self.bases = bases
        self.n_orders = n_orders
        grids = [basis.grid(int(k)) for basis, k in zip(bases, n_orders, strict=True)]
        rotations = [basis.rotation[:, :k] for basis, k in zip(bases, n_orders, strict=True)]
        self._set_tables(
            np.array([first for first, _ in grids]),
            np.array([len(grid) for _, grid in grids]),
            np.concatenate([grid.ravel() for _, grid in grids]),
            np.array([len(rotation) for rotation in rotations]),
            np.concatenate([rotation.ravel() for rotation in rotations]),
        )

    def _set_tables(
        self,
        firsts: NDArray[np.float64],
        n_cells: NDArray[np.int64],
        grids: NDArray[np.float64],
        rotation_sizes: NDArray[np.int64],
        rotations: NDArray[np.float64],
    ) -> None:
        self._firsts, self._n_cells, self._rotation_sizes = firsts, n_cells, rotation_sizes
        self._grids, self._grid_starts = grids, _starts(n_cells * self.n_orders)
        self._rotations, self._rotation_starts = rotations, _starts(rotation_sizes * self.n_orders)

    def _state_values(self) -> dict[str, Any]:
        return {
            "n_orders": self.n_orders,
            "firsts": self._firsts,
            "n_cells": self._n_cells,
            "grids": self._grids,
            "rotation_sizes": self._rotation_sizes,
            "rotations": self._rotations,
        }

    @classmethod
    def _restored(cls, values: dict[str, Any]) -> Self:
        n_orders = values.pop("n_orders").tolist()
        for name, lengths in (("grids", "n_cells"), ("rotations", "rotation_sizes")):
            sizes = zip(values[lengths].tolist(), n_orders, strict=True)
            if len(values[name]) != sum(a * b for a, b in sizes):
                wrong(name, f"have {len(values[name])} entries, which their sizes do not add up to")
        basis = cls.__new__(cls)
        basis.bases, basis.n_orders = [], np.array(n_orders, dtype=np.int64)
        basis._set_tables(**values)
        return basis

    def admits(self, multisets: Multisets, n_coordinates: int) -> bool:
        """Whether there are tables for all atoms of these multisets."""
        return len(self.n_orders) == n_coordinates and bool(
            (multisets.orders < self.n_orders[multisets.coordinates]).all()
        )

    @classmethod
    def of_rows(
        cls, frame: Frame, source: Source, tol: float, block_rows: int = HISTOGRAM_ROWS
    ) -> MercerBasis:
        """Bases adapted to the points of a source, up to a loss of ``tol``."""
        low, high = _ranges(frame, source, block_rows)
        return cls.adapted(_histograms(frame, source, low, high, block_rows), low, high, tol)

    @classmethod
    def adapted(
        cls, histograms: NDArray[np.int64], low: NDArray[Any], high: NDArray[Any], tol: float
    ) -> MercerBasis:
        """Bases for coordinates that lie in [low, high], up to a loss of ``tol``."""
        bases = [
            adapted_basis(counts, float(low[i]), float(high[i]))
            for i, counts in enumerate(histograms)
        ]
        n_orders = [_orders_for(basis, tol) for basis in bases]
        return cls(bases, np.array(n_orders, dtype=np.int64))

    def restricted(self, multisets: Multisets) -> MercerBasis:
        """The same bases, with tables only for the orders that ``multisets`` use."""
        n_orders = np.ones(len(self.bases), dtype=np.int64)
        np.maximum.at(n_orders, multisets.coordinates, multisets.orders + 1)
        return MercerBasis(self.bases, n_orders)

    def log_scales(self, multisets: Multisets) -> NDArray[np.float64]:
        """Products of basis functions need no constant."""
        return np.zeros(len(multisets))

    def masses(self, coordinate: int) -> NDArray[np.float64]:
        """Mean e_k^2 of one coordinate over its distribution, for its orders in use."""
        return self.bases[coordinate].masses[: self.n_orders[coordinate]]

    def loss(self, coordinate: int, line: NDArray[Any]) -> NDArray[np.float64]:
        """1 - sum_k e_k^2 over the orders in use: shape (B,)."""
        return np.clip(1.0 - self.squares(coordinate, line).sum(axis=0), 0.0, None)

    def squares(self, coordinate: int, line: NDArray[Any]) -> NDArray[np.float64]:
        """e_k^2 of one coordinate for its orders in use: shape (n_orders, B)."""
        k, starts = int(self.n_orders[coordinate]), slice(coordinate, coordinate + 2)
        grid = self._grids[slice(*self._grid_starts[starts])].reshape(-1, k)
        rotation = self._rotations[slice(*self._rotation_starts[starts])].reshape(-1, k)
        values = np.empty((k, len(line)))
        tabulate(line, self._firsts[coordinate], GRID_STEP, grid, rotation, values)
        return np.square(values, out=values)

    def work_dtype(self, dtype: Any) -> Any:
        """Double: see ``dense_atoms``."""
        return np.float64

    def lines_for(self, coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
        """All coordinates: each has its e_0 in every product."""
        return np.arange(len(self.n_orders))

    def dense_atoms(
        self,
        lines: NDArray[Any],
        squared_radius: Callable[[], NDArray[np.float64]],
        coordinates: NDArray[np.int64],
        orders: NDArray[np.int64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Ratios e_k / e_0 of the atoms, (n_atoms, B), and the root prod_i e_0(x_i), (B,).

        In float64: the root and the ratios balance each other over many orders of magnitude.
        """
        table, roots = np.empty((len(coordinates), lines.shape[1])), np.empty(lines.shape[1])
        mercer_atoms(
            lines,
            self._firsts,
            GRID_STEP,
            self._grids,
            self._grid_starts,
            self._n_cells,
            self.n_orders,
            self._rotations,
            self._rotation_starts,
            self._rotation_sizes,
            atom_ranges(coordinates, len(self.n_orders)),
            orders,
            SMALLEST_GROUND_STATE,
            table,
            roots,
        )
        return table, roots

    def sparse_roots(self, squared_radius: NDArray[np.float64], dtype: Any) -> NDArray[Any]:
        raise TypeError("the Mercer basis is for dense data: use basis='monomial'")


def _orders_for(basis: CoordinateBasis, tol: float) -> int:
    """The first orders that leave a share ``tol`` of the mass, and little anywhere in the range."""
    J = len(basis.masses)
    between = basis.values(np.linspace(basis.low, basis.high, RANGE_POINTS), J) ** 2
    left = 1.0 - np.cumsum(basis.masses)
    left_anywhere = (1.0 - np.cumsum(between, axis=0)).max(axis=1)
    enough = (left <= max(tol, ROUNDING)) & (left_anywhere <= LARGEST_LOSS)
    return int(np.argmax(enough)) + 1 if enough.any() else J


def _starts(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of some tables begins in a flat array, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


@dataclass
class _Ranges:
    """The smallest and largest coordinates of rows."""

    low: NDArray[Any]
    high: NDArray[Any]

    def __iadd__(self, other: _Ranges) -> _Ranges:
        np.minimum(self.low, other.low, out=self.low)
        np.maximum(self.high, other.high, out=self.high)
        return self


def _ranges(frame: Frame, source: Source, block_rows: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The interval of every coordinate, over all rows."""
    if frame.rotation is None:  # the columns are known already
        known = moments(source)
        return frame.points(known.low[None])[0], frame.points(known.high[None])[0]

    def summary(block: Block) -> _Ranges:
        points = frame.points(block.X)
        return _Ranges(points.min(axis=0), points.max(axis=0))

    found = source.reduce(summary, block_rows)
    return found.low, found.high


def _histograms(
    frame: Frame, source: Source, low: NDArray[Any], high: NDArray[Any], block_rows: int
) -> NDArray[np.int64]:
    """How many rows have each coordinate in each of the cells that divide [low, high]."""

    def summary(block: Block) -> NDArray[np.int64]:
        counts = np.zeros((len(low), MOMENT_CELLS), dtype=np.int64)
        count_cells(frame.points(block.X), low, high, counts)
        return counts

    return source.reduce(summary, block_rows)
