"""The values of a column as counted cells: a summary that adds up over blocks of rows.

Cells are intervals of equal width 2^level. They start so narrow that a few thousand distinct values
each have their own, and grow only when there are too many of them. Only occupied cells are stored,
so an outlier at any distance costs one cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native.local import fill_cells

FINEST_LEVEL = -24  # cells of width 2^-24 at first
MOST_CELLS = 4096
LEVELS_AT_ONCE = 4  # when the width is looked for
TABLE_SIZE = 4 * MOST_CELLS  # slots of the hash table that counts a block's cells
LARGEST = 1e300  # values beyond count as this: products with the finest scale stay finite


class _Table:
    """A hash table of cells."""

    def __init__(self) -> None:
        self.numbers, self.low, self.high = (np.empty(TABLE_SIZE) for _ in range(3))
        self.counts = np.empty(TABLE_SIZE, dtype=np.int64)

    def fill(self, values: NDArray[np.float64], level: int) -> int:
        """Count values in cells of width 2^level; the missing ones, or -1 for too many cells."""
        self.counts[:] = 0
        inverse = 2.0**-level
        return int(
            fill_cells(values, inverse, MOST_CELLS, self.numbers, self.low, self.high, self.counts)
        )

    def sorted(self) -> tuple[Any, ...]:
        """Numbers, low, high and counts of the occupied cells."""
        used = np.flatnonzero(self.counts)
        used = used[np.argsort(self.numbers[used])]
        return self.numbers[used], self.low[used], self.high[used], self.counts[used]


@dataclass
class Cells:
    """The occupied cells of one column.

    The same rows give the same cells, in whatever blocks and order they come.

    Attributes
    ----------
    level : int
        The width of a cell is 2^level.
    numbers : ndarray of shape (n_cells,)
        floor(value / width), rising.
    low, high : ndarray of shape (n_cells,)
        The smallest and the largest value in each cell.
    counts : ndarray of shape (n_cells,)
    n_missing : int
        Values that are NaN.
    """

    level: int
    numbers: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    counts: NDArray[np.int64]
    n_missing: int = 0

    @classmethod
    def of_values(cls, values: NDArray[Any]) -> Cells:
        """The cells of some values.

        Parameters
        ----------
        values : ndarray of shape (n,)
            NaN stands for a missing value.
        """
        values = np.clip(np.asarray(values, dtype=np.float64), -LARGEST, LARGEST)
        table = _Table()
        # The first values need no wider cells than all of them, and show where to start.
        some, level = values[: 2 * MOST_CELLS], FINEST_LEVEL
        while table.fill(some, level) < 0:
            level += LEVELS_AT_ONCE
        while level > FINEST_LEVEL and table.fill(some, level - 1) >= 0:
            level -= 1
        while (n_missing := table.fill(values, level)) < 0:
            level += 1
        numbers, low, high, counts = table.sorted()
        return cls(level, numbers, low, high, counts, n_missing)

    def __iadd__(self, other: Cells) -> Cells:
        level = max(self.level, other.level)
        first, second = self.at_level(level), other.at_level(level)
        both = Cells(
            level,
            np.concatenate([first.numbers, second.numbers]),
            np.concatenate([first.low, second.low]),
            np.concatenate([first.high, second.high]),
            np.concatenate([first.counts, second.counts]),
            self.n_missing + other.n_missing,
        ).at_level(level)
        while len(both.numbers) > MOST_CELLS:
            both = both.at_level(both.level + 1)
        self.__dict__.update(both.__dict__)
        return self

    def at_level(self, level: int) -> Cells:
        """The same values in cells of width 2^level, sorted and each once; not narrower ones."""
        numbers = np.floor(np.ldexp(self.numbers, self.level - level))
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        if not len(numbers):
            return Cells(level, numbers, self.low, self.high, self.counts, self.n_missing)
        starts = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
        return Cells(
            level,
            numbers[starts],
            np.minimum.reduceat(self.low[order], starts),
            np.maximum.reduceat(self.high[order], starts),
            np.add.reduceat(self.counts[order], starts),
            self.n_missing,
        )

    def reduced(self, most: int) -> Cells:
        """The same values in at most so many cells."""
        cells = self
        while len(cells) > most:
            cells = cells.at_level(cells.level + 1)
        return cells

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def distinct(self) -> bool:
        """Whether each cell holds one value only, so that all distinct values are known."""
        return bool((self.low == self.high).all())

    @property
    def middles(self) -> NDArray[np.float64]:
        """One value for each cell: its own where it holds only one."""
        return 0.5 * self.low + 0.5 * self.high

    @property
    def weights(self) -> NDArray[np.float64]:
        """The share of the values that are not missing in each cell."""
        return self.counts / max(1, self.counts.sum())

    @property
    def missing_share(self) -> float:
        """The share of all values that is missing."""
        return self.n_missing / max(1, self.n_missing + int(self.counts.sum()))


@dataclass
class ColumnCells:
    """The cells of all columns of some points."""

    columns: list[Cells]

    @classmethod
    def of_points(cls, points: NDArray[np.floating]) -> ColumnCells:
        """Those of the columns of ``points`` (n, d)."""
        return cls([Cells.of_values(np.ascontiguousarray(line)) for line in points.T])

    def __iadd__(self, other: ColumnCells) -> ColumnCells:
        for cells, more in zip(self.columns, other.columns, strict=True):
            cells += more
        return self
