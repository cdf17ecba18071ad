"""Where a column's kernel is anchored: all its values, a grid near them, or the heaviest."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.products.cells import Cells
from kernelsieve.products.families import Family

MOST_POINTS = 1024  # of a column
FEW_VALUES = 64  # distinct ones: they need no grid
# Of grids to try, times the family's; those after the first have no margin.
SPACINGS = (1.0, 1.0, 1.4, 2.0, 3.0, 4.0)
MOST_KNOTS = 128  # of the Laplacian, whose tents hold the rest
KNOT_LOSS = 1e-5  # mean loss of a column at which the Laplacian needs no further knot


def anchor_points(cells: Cells, family: Family) -> NDArray[np.float64]:
    """Rising points near which all (or, above the limit, most) values of the column lie.

    Distinct values where they are few, or fewer than grid points. Else a grid that reaches
    ``margin`` beyond the values and leaves out where there are none; a coarser one where that needs
    more than ``MOST_POINTS``. Where even that does, the values that most rows have.
    """
    if cells.distinct and len(cells) <= FEW_VALUES:
        return cells.middles
    for number, factor in enumerate(SPACINGS):
        margin = family.margin if number == 0 else 0.0
        grid = grid_points(cells, factor * family.spacing, margin)
        if cells.distinct and len(cells) <= min(MOST_POINTS, len(grid)):
            return cells.middles
        if len(grid) <= MOST_POINTS:
            return grid
    return heaviest_points(cells, family.spacing)


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
