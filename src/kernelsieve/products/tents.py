"""Tents between the knots of the Laplacian: the rest of its kernel, infinitely fine.

The Laplacian is Markov: given the knots a < b, what is left of the kernel lives on (a, b) alone.
The tent of (a, b) peaks at the middle and is zero at both ends; given the middle, too, the rest
lives on the two halves, and so on. The squares of all tents at u sum to the bridge's variance
2 sinh(u - a) sinh(b - u) / sinh(b - a). Tents are numbered by their interval and their place in its
binary tree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FIRST_TENT = 2**12  # orders from here on are tents; a column has fewer functions
MOST_LEVELS = 20  # deeper tents hold a millionth of what the first ones hold


def tent_bounds(
    tents: NDArray[np.int64], knots: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ends of the intervals of tents with these numbers."""
    interval, level, place = _address(tents, len(knots) - 1)
    start, length = knots[interval], knots[interval + 1] - knots[interval]
    width = np.ldexp(length, -level)
    return start + place * width, start + (place + 1) * width


def n_tents(n_knots: int) -> int:
    """The number of tents of a column with so many knots."""
    return max(0, n_knots - 1) * (2**MOST_LEVELS - 1)


def bridge_variance(u: NDArray[np.float64], a: Any, b: Any) -> NDArray[np.float64]:
    """2 sinh(u - a) sinh(b - u) / sinh(b - a) for a <= u <= b, without overflow."""
    left, right = np.expm1(-2.0 * (u - a)), np.expm1(-2.0 * (b - u))
    whole = np.where(b > a, -np.expm1(-2.0 * (b - a)), 1.0)
    return left * right / whole


def log_wandering_probabilities(
    tents: NDArray[np.int64], masses: NDArray[np.float64]
) -> NDArray[np.float64]:
    """log of the chance of each tent if an interval is drawn by its mass, then levels by halves."""
    interval, level, _ = _address(tents, len(masses))
    stops = np.minimum(level + 1, MOST_LEVELS - 1)  # the last level takes all that is left
    return np.log(masses[interval] / masses.sum()) - (stops + level) * np.log(2.0)


def _address(
    tents: NDArray[np.int64], n_intervals: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Interval, level and place of tents: nodes 1; 2, 3; 4 to 7; ... of a binary tree."""
    interval, node = tents % n_intervals, tents // n_intervals + 1
    level = np.frexp(node)[1].astype(np.int64) - 1
    return interval, level, node - (1 << level)
