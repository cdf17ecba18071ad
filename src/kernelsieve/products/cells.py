"""The values of a column as counted cells, and the points that stand for them.

Cells are intervals of equal width 2^level. They start so narrow that a few thousand distinct values
each have their own, and grow only when there are too many of them. Only occupied cells are stored,
so an outlier at any distance costs one cell. Cells add up over blocks of rows. Points, which a
column's kernel is anchored at, are all its values, a grid near them, or the heaviest.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native.moments import fill_cells

FINEST_LEVEL = -24  # cells of width 2^-24 at first
MOST_CELLS = 4096
TABLE_SIZE = 4 * MOST_CELLS  # slots of the hash table that counts a block's cells
LARGEST = 1e300  # values beyond count as this: products with the finest scale stay finite
MOST_POINTS = 1024  # of a column
FEW_VALUES = 64  # distinct ones: they need no grid
# Of grids to try, times the family's; those after the first have no margin.
SPACINGS = (1.0, 1.0, 1.4, 2.0, 3.0, 4.0)
MOST_KNOTS = 128  # of the Laplacian, whose tents hold the rest
KNOT_LOSS = 1e-5  # mean loss of a column at which the Laplacian needs no further knot


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
        if table.fill(some, level) < 0:
            level = _likely_level(some)
            while table.fill(some, level) < 0:
                level += 1
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
        self.__dict__.update(both.reduced(MOST_CELLS).__dict__)
        return self

    def at_level(self, level: int) -> Cells:
        """The same values in cells of width 2^level, sorted and each once; not narrower ones."""
        numbers = np.floor(np.ldexp(self.numbers, self.level - level))
        low, high, counts = self.low, self.high, self.counts
        if not len(numbers):
            return Cells(level, numbers, low, high, counts, self.n_missing)
        if (numbers[1:] < numbers[:-1]).any():  # two summaries, one after the other
            order = np.argsort(numbers, kind="stable")
            numbers, low, high, counts = numbers[order], low[order], high[order], counts[order]
        starts = np.concatenate([[0], np.flatnonzero(numbers[1:] != numbers[:-1]) + 1])
        return Cells(
            level,
            numbers[starts],
            np.minimum.reduceat(low, starts),
            np.maximum.reduceat(high, starts),
            np.add.reduceat(counts, starts),
            self.n_missing,
        )

    def reduced(self, most: int) -> Cells:
        """The same values in at most so many cells."""
        level, numbers = self.level, self.numbers
        while np.count_nonzero(numbers[1:] != numbers[:-1]) >= most:
            level, numbers = level + 1, np.floor(0.5 * numbers)
        return self if level == self.level else self.at_level(level)

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


def _likely_level(values: NDArray[np.float64]) -> int:
    """About the level at which the cells between the outer deciles are ``MOST_CELLS``."""
    known = np.sort(values[:512])
    known = known[~np.isnan(known)]
    spread = float(known[-1 - len(known) // 10] - known[len(known) // 10]) if len(known) else 0.0
    return max(FINEST_LEVEL, int(np.ceil(np.log2(2.0 * spread / MOST_CELLS)))) if spread else -9


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


def anchor_points(cells: Cells, spacing: float, margin: float) -> NDArray[np.float64]:
    """Rising points near which all (or, above the limit, most) values of the column lie.

    Distinct values where they are few, or fewer than grid points. Else a grid that reaches
    ``margin`` beyond the values and leaves out where there are none; a coarser one where that needs
    more than ``MOST_POINTS``. Where even that does, the values that most rows have.
    """
    if cells.distinct and len(cells) <= FEW_VALUES:
        return cells.middles
    for number, factor in enumerate(SPACINGS):
        grid = grid_points(cells, factor * spacing, margin if number == 0 else 0.0)
        if cells.distinct and len(cells) <= min(MOST_POINTS, len(grid)):
            return cells.middles
        if len(grid) <= MOST_POINTS:
            return grid
    return heaviest_points(cells, spacing)


def grid_points(cells: Cells, spacing: float, margin: float) -> NDArray[np.float64]:
    """Equal steps within each stretch of the line that is within ``margin`` of some value.

    At most one more than ``MOST_POINTS`` of them are made.
    """
    low, high = cells.low - margin, cells.high + margin
    first = np.concatenate([[True], low[1:] > high[:-1] + spacing])
    last = np.concatenate([first[1:], [True]])
    starts, stops = low[first], high[last]
    with np.errstate(over="ignore"):
        counts = np.ceil((stops - starts) / spacing) + 1.0
    if counts.sum() > MOST_POINTS:
        return np.empty(MOST_POINTS + 1)
    stretches = [
        np.linspace(start, stop, int(count))
        for start, stop, count in zip(starts, stops, counts, strict=True)
    ]
    return np.unique(np.concatenate(stretches))


def heaviest_points(cells: Cells, spacing: float) -> NDArray[np.float64]:
    """The ``MOST_POINTS`` cells with the most values, once they are about a grid cell wide."""
    wide = cells.at_level(max(cells.level, int(np.floor(np.log2(spacing)))))
    heaviest = np.argsort(-wide.counts, kind="stable")[:MOST_POINTS]
    return np.sort(wide.middles[heaviest])


def markov_knots(cells: Cells, most: int = MOST_KNOTS) -> NDArray[np.float64]:
    """Knots of the Laplacian: the interval that loses most is split at its median, again and again.

    Between knots a and b the kernel loses 2 sinh(u - a) sinh(b - u) / sinh(b - a) of k(u, u).
    """
    values, weights = cells.middles, cells.weights
    knots = {0, len(values) - 1}
    queue: list[tuple[float, int, int]] = []
    total = 0.0

    def push(left: int, right: int) -> float:
        inside = slice(left + 1, right)
        loss = float(weights[inside] @ bridge_variance(values[inside], values[left], values[right]))
        if loss > 0.0:
            heapq.heappush(queue, (-loss, left, right))
        return loss

    total = push(0, len(values) - 1)
    while queue and len(knots) < most and total > KNOT_LOSS:
        negative, left, right = heapq.heappop(queue)
        running = np.cumsum(weights[left + 1 : right])
        middle = left + 1 + int(np.searchsorted(running, 0.5 * running[-1]))
        middle = min(middle, right - 1)
        knots.add(middle)
        total += negative + push(left, middle) + push(middle, right)
    return np.unique(values[sorted(knots)])


def bridge_variance(u: NDArray[np.float64], a: Any, b: Any) -> NDArray[np.float64]:
    """2 sinh(u - a) sinh(b - u) / sinh(b - a) for a <= u <= b, without overflow."""
    left, right = np.expm1(-2.0 * (u - a)), np.expm1(-2.0 * (b - u))
    whole = np.where(b > a, -np.expm1(-2.0 * (b - a)), 1.0)
    return left * right / whole
