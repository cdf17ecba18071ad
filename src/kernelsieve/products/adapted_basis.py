"""An orthonormal basis of one column's kernel, adapted to the column's values.

The values are counted in cells of equal width 2^level. They start so narrow that a few thousand
distinct values each have their own, and grow only when there are too many of them. Only occupied
cells are stored, so an outlier at any distance costs one cell. Cells add up over blocks of rows.

Points g, which are all values of the column, a grid near them, or the heaviest, carry the functions
e(u) = K_gg^(-1/2) k(g, u), rotated so that the first ones hold most of the kernel on the training
values. For all u and v, |e(u).e(v) - k(u, v)| <= sqrt(loss(u) loss(v)) with loss(u) = 1 - |e(u)|^2.
So the kernel between a training value, which loses nothing, and any other value is exact; only
k(u, u) of a value far from the training values is lost, and known.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native.products import fill_cells
from kernelsieve._parallel import row_blocks
from kernelsieve.products.column_basis import CONSTANT, FAMILIES, ColumnBasis, kernel_values
from kernelsieve.products.tents import bridge_variance

Reference = tuple[NDArray[np.float64], NDArray[np.float64]]  # points and their weights
FINEST_LEVEL = -24  # cells of width 2^-24 at first
MOST_CELLS = 4096
CACHED_ROWS = 512  # that become columns at once
TABLE_SIZE = 4 * MOST_CELLS  # slots of the hash table that counts a block's cells
LARGEST = 1e300  # values beyond count as this: products with the finest scale stay finite
MOST_POINTS = 1024  # of a column
FEW_VALUES = 64  # distinct ones: they need no grid
# Of grids to try, times the family's; those after the first have no margin.
SPACINGS = (1.0, 1.0, 1.4, 2.0, 3.0, 4.0)
MOST_KNOTS = 128  # of the Laplacian, whose tents hold the rest
KNOT_LOSS = 1e-5  # mean loss of a column at which the Laplacian needs no further knot
SMALLEST_EIGENVALUE = 1e-13  # of the largest: rounding
EVERYWHERE = 1e-7  # weight of all points together in a distribution: it orders what has no rows
LARGEST_LOSS = 1e-6  # of k(u, u) = 1 at any training value, by the functions that are not kept
ROUNDING = 1e-13
SMALLEST_RESIDUAL = 1e-9  # mean loss below which a column of the Laplacian needs no tents
TENTS_EVERYWHERE = 0.1  # share of the tents' mass that draws spread over all intervals
CHECKED_VALUES = 128
MOMENT_CELLS = 512  # that stand for a column's distribution


# --- the values of a column ----------------------------------------------------------------------


class _Table:
    """A hash table of cells."""

    def __init__(self) -> None:
        self.numbers, self.low, self.high = (np.empty(TABLE_SIZE) for _ in range(3))
        self.counts = np.empty(TABLE_SIZE, dtype=np.int64)

    def fill(self, values: NDArray[np.float64], level: int) -> int:
        """Count values in cells of width 2^level; the missing ones, or -1 for too many cells."""
        self.counts[:] = 0
        inverse, slots = 2.0**-level, (self.numbers, self.low, self.high, self.counts)
        return int(fill_cells(values, inverse, LARGEST, MOST_CELLS, *slots))

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
        values, table = np.asarray(values, dtype=np.float64), _Table()
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
        if self.level == other.level and np.array_equal(self.numbers, other.numbers):
            self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
            self.counts = self.counts + other.counts
            self.n_missing += other.n_missing
            return self
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
        if level == self.level and (self.numbers[1:] > self.numbers[:-1]).all():
            return self
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
    known = np.sort(np.clip(values[:512], -LARGEST, LARGEST))
    known = known[~np.isnan(known)]
    spread = float(known[-1 - len(known) // 10] - known[len(known) // 10]) if len(known) else 0.0
    return max(FINEST_LEVEL, int(np.ceil(np.log2(2.0 * spread / MOST_CELLS)))) if spread else -9


@dataclass
class ColumnCells:
    """The cells of all columns of some points."""

    columns: list[Cells]

    @classmethod
    def of_rows(cls, X: Any, points: Callable[[Any], Any] = np.asarray) -> ColumnCells:
        """Those of the columns of ``points(X)``, of shape (n, d)."""
        lines = np.empty((points(X[:1]).shape[1], len(X)))
        for rows in row_blocks(len(X), CACHED_ROWS):
            lines[:, rows] = points(X[rows]).T
        return cls([Cells.of_values(line) for line in lines])

    def __iadd__(self, other: ColumnCells) -> ColumnCells:
        for cells, more in zip(self.columns, other.columns, strict=True):
            cells += more
        return self


# --- points --------------------------------------------------------------------------------------


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


# --- functions -----------------------------------------------------------------------------------


def column_basis(
    family: str,
    cells: Cells,
    *,
    rate: float = 1.0,
    tol: float = ROUNDING,
    align: str = "variance",
    reference: Reference | None = None,
) -> ColumnBasis:
    """The basis adapted to a column with these values.

    Parameters
    ----------
    family : str
        "gaussian", "laplacian", "matern32", "matern52" or "categorical".
    cells : Cells
        The scaled coordinates of all rows; codes for a categorical column.
    rate : float
        Of a categorical column, whose kernel is exp(-rate) between different levels. A column with
        rate 0 has the constant alone.
    tol : float
        The mean loss on training values up to which functions of little mass are left out.
    align : "variance", "mean" or "zero"
        What the first function is: that of the largest mean square; that along the mean of e(u), so
        that all others have mean 0; or k(u, 0), so that all others are 0 at 0 (sparse columns).
    reference : (points, weights), optional
        The distribution that a missing value stands for; None takes that of the cells.
    """
    if rate == 0.0 or not len(cells):
        return CONSTANT
    if family == "categorical":
        return category_basis(cells, float(np.exp(-rate)), tol, align, reference)
    points = _points(family, cells, align)
    if family == "laplacian" and reference is not None:  # no tent may hold a part of their mean
        points = np.union1d(points, reference[0])
    plain = ColumnBasis(family, points, _whitening(family, points), *_nothing(len(points)))
    return _kept(_adapted(plain, cells, align, reference), cells, tol)


def category_basis(
    cells: Cells,
    rho: float,
    tol: float = ROUNDING,
    align: str = "variance",
    reference: Reference | None = None,
) -> ColumnBasis:
    """k = rho + (1 - rho) [u = v]: a constant and an indicator for each of the heaviest levels.

    A level that is none of them, because it is rare among more than ``MOST_POINTS`` or because it
    was not there in training, has the constant alone. Of its square rho, the part is lost that no
    training row has: with n levels, rho (1 - rho) / (1 + (n - 1) rho).
    """
    heaviest = np.sort(np.argsort(-cells.counts, kind="stable")[:MOST_POINTS])
    levels = cells.middles[heaviest]
    matrix = np.zeros((len(levels) + 1, len(levels) + 1))
    matrix[:, 0] = np.sqrt(rho)
    np.fill_diagonal(matrix[:, 1:], np.sqrt(1.0 - rho))
    plain = ColumnBasis("categorical", levels, matrix, *_nothing(len(matrix)))
    adapted = _kept(_adapted(plain, cells, align, reference), cells, tol)
    return replace(adapted, capped=len(levels) < len(cells) or not cells.distinct)


def _points(family: str, cells: Cells, align: str) -> NDArray[np.float64]:
    shape = FAMILIES[family]
    if family == "laplacian":
        points = markov_knots(cells)
    else:
        points = anchor_points(cells, shape.spacing, shape.margin)
    return np.union1d(points, [0.0]) if align == "zero" else points


def _nothing(n_functions: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Functions at a missing value and masses, before there are any."""
    return np.zeros(n_functions), np.zeros(n_functions)


def _whitening(family: str, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """A matrix A with A A^T = K_gg^-1, one block for each run of points that see each other."""
    if family == "laplacian":
        return _markov_whitening(points)
    far = np.flatnonzero(np.diff(points) > FAMILIES[family].reach) + 1
    blocks = []
    for run in np.split(points, far):
        values, vectors = np.linalg.eigh(kernel_values(family, run, run))
        kept = values > SMALLEST_EIGENVALUE * values[-1]
        blocks.append(vectors[:, kept] / np.sqrt(values[kept]))
    whitening = np.zeros((len(points), sum(block.shape[1] for block in blocks)))
    row = column = 0
    for block in blocks:
        whitening[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return whitening


def _markov_whitening(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same for the Laplacian: what each point adds to the one before it."""
    step = np.diff(points)
    size = np.sqrt(-np.expm1(-2.0 * step))
    whitening = np.diag(np.concatenate([[1.0], 1.0 / size]))
    places = np.arange(len(step))
    whitening[places, places + 1] = -np.exp(-step) / size
    return whitening


def _adapted(
    plain: ColumnBasis, cells: Cells, align: str, reference: Reference | None
) -> ColumnBasis:
    """The same space with functions rotated to the distribution of the training values.

    A missing value is the mean of all others (or of those in ``reference``), and for the rest a
    function of its own, so that k(missing, missing) = 1.
    """
    plain = replace(plain, masses=np.zeros(plain.matrix.shape[1]))
    if plain.family in FAMILIES:  # these vary little within a cell; categories do not
        cells = cells.reduced(MOMENT_CELLS)
    values = plain.at_known(cells.middles)
    share = cells.missing_share
    # A little weight all over the range: new rows, too, must find few functions enough.
    inside = (plain.points >= cells.low[0]) & (plain.points <= cells.high[-1])
    between = plain.at_known(plain.points[inside]) if inside.any() else values
    trained = (values * cells.weights[:, None]).T @ values
    moment = (1.0 - EVERYWHERE) * trained + EVERYWHERE / len(between) * between.T @ between
    mean = cells.weights @ values
    missing = mean if reference is None else reference[1] @ plain.at_known(reference[0])
    matrix = plain.matrix
    if share > 0.0:
        own = np.sqrt(max(0.0, 1.0 - float(missing @ missing)))
        mean = np.append((1.0 - share) * mean + share * missing, share * own)
        missing = np.append(missing, own)
        own_part = share * np.outer(missing, missing)
        moment = (1.0 - share) * np.pad(moment, (0, 1)) + own_part
        trained = (1.0 - share) * np.pad(trained, (0, 1)) + own_part
        matrix = np.pad(matrix, ((0, 0), (0, 1)))
    first = None
    if align == "mean":
        first = mean
    elif align == "zero":
        first = np.zeros(len(moment))
        first[: values.shape[1]] = plain.at_known(np.zeros(1))[0]
    rotation = _rotation(moment, first, mean)
    masses = (rotation * (trained @ rotation)).sum(axis=0)
    return replace(
        plain, matrix=matrix @ rotation, missing=missing @ rotation, masses=np.clip(masses, 0, None)
    )


def _rotation(
    moment: NDArray[np.float64], first: NDArray[np.float64] | None, mean: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Eigenvectors of the moment, largest first; orthogonal to ``first`` after it, if given."""
    if first is None or not first.any():
        rotation = _descending_eigenvectors(moment)
        return rotation * np.where(
            np.arange(len(rotation)) == 0, _sign(float(mean @ rotation[:, 0])), 1.0
        )
    first = first / np.linalg.norm(first)
    # A reflection that takes the first axis to ``first``: its other columns span the rest.
    axis = first.copy()
    axis[0] += _sign(first[0])
    reflection = np.eye(len(first)) - 2.0 / (axis @ axis) * np.outer(axis, axis)
    rest = reflection[:, 1:]
    return np.column_stack([first, rest @ _descending_eigenvectors(rest.T @ moment @ rest)])


def _descending_eigenvectors(moment: NDArray[np.float64]) -> NDArray[np.float64]:
    """Eigenvectors with falling eigenvalues; the largest part of each is positive."""
    vectors = np.linalg.eigh(moment)[1][:, ::-1]
    largest = np.abs(vectors).argmax(axis=0)
    return vectors * np.sign(vectors[largest, np.arange(vectors.shape[1])])


def _sign(x: float) -> float:
    return -1.0 if x < 0 else 1.0


def _kept(basis: ColumnBasis, cells: Cells, tol: float) -> ColumnBasis:
    """The first functions that lose no more than ``tol`` in the mean and little anywhere.

    The Laplacian keeps all where tents are to hold the rest: they begin where the points end.
    """
    chosen = np.unique(np.linspace(0, len(cells) - 1, CHECKED_VALUES).astype(np.int64))
    squares = np.square(basis.values(cells.middles[chosen]))
    held = squares.sum(axis=0)
    left = basis.masses.sum() - np.cumsum(basis.masses)
    left_anywhere = (held - np.cumsum(squares, axis=0)).max(axis=1)
    mean_loss = max(0.0, 1.0 - float(basis.masses.sum()))
    if basis.family == "laplacian" and mean_loss > SMALLEST_RESIDUAL:
        return replace(basis, tents=True)
    enough = (left <= max(tol, ROUNDING)) & (left_anywhere <= LARGEST_LOSS)
    kept = int(np.argmax(enough)) + 1 if enough.any() else basis.n_functions
    capped = bool((1.0 - held).max() > 1e-3)
    return replace(basis.only(np.arange(kept)), capped=capped)


def interval_masses(cells: Cells, knots: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean square of all tents of each interval over the column's values, and a little anywhere."""
    masses = np.zeros(len(knots) - 1)
    intervals = np.clip(np.searchsorted(knots, cells.middles, side="right") - 1, 0, len(masses) - 1)
    lost = bridge_variance(cells.middles, knots[intervals], knots[intervals + 1])
    np.add.at(masses, intervals, cells.weights * lost)
    total = (1.0 - cells.missing_share) * masses.sum()
    return total * (
        (1.0 - TENTS_EVERYWHERE) * masses / masses.sum() + TENTS_EVERYWHERE / len(masses)
    )
