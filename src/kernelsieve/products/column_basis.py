"""The functions of one column: sums of its kernel at points, and the tables they are read from.

Points g carry the functions e(u) = k(g, u) A (``adapted_basis`` chooses both). A Gaussian column is
tabulated in equal steps around its points; those of exponential kernels have a few coefficients
between any two knots, which are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native import products as native
from kernelsieve.products.tents import FIRST_TENT, tent_bounds

ROOT2, ROOT3, ROOT5 = np.sqrt([2.0, 3.0, 5.0])
# Of the Gaussian's tables: six-point polynomials are exact to 1e-13 then.
GRID_STEP = float(1.0 / (128.0 * np.sqrt(2.0)))
TABLE_MARGIN = float(1.0 / np.sqrt(2.0))  # beyond points with mass; further out: exact sums
MOST_TABLE_ENTRIES = 2**22  # of a column; beyond, all its values are exact sums
KINDS = {"constant": native.CONSTANT, "gaussian": native.GAUSSIAN, "categorical": native.LEVELS}


@dataclass(frozen=True)
class Family:
    """A kernel k(t) of the distance t = |u - v| between scaled coordinates.

    Attributes
    ----------
    kernel : callable
        k of an array of distances.
    spacing : float
        Of grid points: what lies between them loses about 1e-14 of k(u, u) = 1 for the Gaussian,
        at most 3e-5 for Matern 3/2 and 2e-6 for Matern 5/2.
    margin : float
        How far the grid reaches beyond the values that it is for.
    reach : float
        Points further from each other than this have a kernel of (almost) 0.
    decay : float
        c where k(t) is exp(-c t) times a polynomial; 0 for the Gaussian.
    polynomial : tuple of float
        The coefficients of that polynomial of c t.
    """

    kernel: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    spacing: float
    margin: float
    reach: float
    decay: float = 0.0
    polynomial: tuple[float, ...] = ()


def _matern32(t: NDArray[np.float64]) -> NDArray[np.float64]:
    return (1.0 + ROOT3 * t) * np.exp(-ROOT3 * t)


def _matern52(t: NDArray[np.float64]) -> NDArray[np.float64]:
    return (1.0 + ROOT5 * t + 5.0 / 3.0 * t * t) * np.exp(-ROOT5 * t)


# The Gaussian's lengths in units of its standard deviation are 0.35, 3 and 9; here it is exp(-t^2).
FAMILIES = {
    "gaussian": Family(lambda t: np.exp(-t * t), 0.35 / ROOT2, 3.0 / ROOT2, 9.0 / ROOT2),
    "laplacian": Family(lambda t: np.exp(-t), 0.0, 0.0, 40.0, 1.0, (1.0,)),
    "matern32": Family(_matern32, 0.05, 0.0, 40.0 / ROOT3, float(ROOT3), (1.0, 1.0)),
    "matern52": Family(_matern52, 0.1, 0.0, 40.0 / ROOT5, float(ROOT5), (1.0, 1.0, 1.0 / 3.0)),
}


@dataclass(frozen=True)
class ColumnBasis:
    """The basis of one column, as functions of its scaled coordinate.

    Attributes
    ----------
    family : str
        "constant" for a column that does not take part.
    points : ndarray of shape (n_points,)
        Rising; for a categorical column the codes of its levels.
    matrix : ndarray of shape (n_points, n_functions)
        e(u) = k(points, u) @ matrix. For a categorical column, of shape (n_points + 1,
        n_functions): the functions at each level, and at a level that is none of them.
    missing : ndarray of shape (n_functions,)
        The functions at a missing value.
    masses : ndarray of shape (n_functions,)
        Mean squares over the training values.
    tents : bool
        Whether the rest of the kernel is held by tents between the points (Laplacian).
    capped : bool
        Whether there were more points than the limit, so that training values lose something.
    """

    family: str
    points: NDArray[np.float64]
    matrix: NDArray[np.float64]
    missing: NDArray[np.float64]
    masses: NDArray[np.float64]
    tents: bool = False
    capped: bool = False

    @property
    def n_functions(self) -> int:
        return len(self.masses)

    def values(self, u: NDArray[np.floating]) -> NDArray[np.float64]:
        """e(u) of each value, NaN standing for a missing one: shape (n_functions, len(u))."""
        u = np.asarray(u, dtype=np.float64)
        known = ~np.isnan(u)
        out = np.empty((len(u), self.n_functions))
        out[~known] = self.missing
        out[known] = self.at_known(u[known])
        return np.ascontiguousarray(out.T)

    def at_known(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """e(u) of values that are not missing: shape (len(u), n_functions)."""
        if self.family == "constant":
            return np.ones((len(u), 1))
        if self.family == "categorical":
            return self.matrix[level_numbers(u, self.points)]
        return kernel_values(self.family, u, self.points) @ self.matrix

    def loss(self, u: NDArray[np.floating]) -> NDArray[np.float64]:
        """1 - |e(u)|^2: the part of k(u, u) = 1 that the functions do not hold."""
        return np.clip(1.0 - np.square(self.values(u)).sum(axis=0), 0.0, 1.0)

    def only(self, functions: NDArray[np.int64]) -> ColumnBasis:
        """The same basis with these functions only."""
        return replace(
            self,
            matrix=np.ascontiguousarray(self.matrix[:, functions]),
            missing=self.missing[functions],
            masses=self.masses[functions],
        )


CONSTANT = ColumnBasis("constant", np.zeros(1), np.ones((1, 1)), np.ones(1), np.ones(1))


def kernel_values(
    family: str, u: NDArray[np.float64], points: NDArray[np.float64]
) -> NDArray[np.float64]:
    """k(u, g) for all values and points: shape (len(u), len(points))."""
    with np.errstate(over="ignore"):
        return FAMILIES[family].kernel(np.abs(u[:, None] - points))


def level_numbers(u: NDArray[np.float64], levels: NDArray[np.float64]) -> NDArray[np.int64]:
    """The place of each value in the sorted levels; their number where it is none of them."""
    places = np.searchsorted(levels, u)
    found = levels[np.minimum(places, len(levels) - 1)] == u
    return np.where(found, places, len(levels))


# --- tables for compiled code --------------------------------------------------------------------


def column_arrays(
    basis: ColumnBasis, orders: NDArray[np.int64], patches: Patches | None, room: int
) -> dict[str, Any]:
    """The parts of one column, by name."""
    tents, matrix, missing = orders[orders >= FIRST_TENT] - FIRST_TENT, basis.matrix, basis.missing
    decay, degree = 0.0, 0
    places, first_rows, n_rows = basis.points, np.zeros(0, np.int64), np.zeros(0, np.int64)
    points, exact = np.zeros(0), np.zeros((0, basis.n_functions))
    left = right = np.zeros(0)
    if basis.family == "constant":
        table = np.ones((1, 1))
    elif basis.family == "categorical":
        table = np.vstack([matrix, missing])
    elif basis.family == "gaussian":
        points, exact, table, places = basis.points, matrix, exact, np.zeros(0)
        if patches is not None and len(patches.steps) * basis.n_functions <= room:
            places, n_rows, table = patches.firsts, patches.counts, patches.values(basis)
        first_rows = np.cumsum(n_rows) - n_rows
        table = _with_missing(table, missing, native.POINTS)
    else:
        family = FAMILIES[basis.family]
        decay, degree = family.decay, len(family.polynomial) - 1
        table = _exponential_table(basis.points, matrix, decay, family.polynomial)
        table = _with_missing(table, missing, 2 * (degree + 1))
        left, right = tent_bounds(tents, basis.points) if len(tents) else (left, right)
    nothing = np.zeros(len(places) - len(first_rows), np.int64)
    return {
        "kinds": np.int64(KINDS.get(basis.family, native.EXPONENTIAL)),
        "n_functions": np.int64(basis.n_functions),
        "settings": np.array([[decay, degree]], dtype=np.float64),
        "places": places,
        "first_rows": np.concatenate([first_rows, nothing]),
        "n_rows": np.concatenate([n_rows, nothing]),
        "tables": table.ravel(),
        "missing_rows": np.int64(_missing_row(basis, table, degree)),
        "points": points,
        "matrices": exact.ravel(),
        "tents": np.column_stack([left, right]),
        "sizes": np.array([[len(places), table.size, len(points), exact.size, len(left)]]),
    }


def _missing_row(basis: ColumnBasis, table: NDArray[np.float64], degree: int) -> int:
    if basis.family in ("constant", "categorical"):
        return len(table) - 1
    return len(table) - (native.POINTS if basis.family == "gaussian" else 2 * (degree + 1))


def _with_missing(
    table: NDArray[np.float64], missing: NDArray[np.float64], width: int
) -> NDArray[np.float64]:
    """The table, and as many rows as are read at once, of which the first is for missing values."""
    return np.vstack([table, missing[None], np.zeros((width - 1, table.shape[1]))])


@dataclass(frozen=True)
class Patches:
    """Where the functions of a Gaussian column are tabulated: equal steps around runs of points.

    Attributes
    ----------
    firsts : ndarray of shape (n_runs,)
        Where each patch begins.
    counts : ndarray of shape (n_runs,)
        The number of steps in each.
    steps : ndarray of shape (sum of counts,)
    points : ndarray of shape (n_points,)
    """

    firsts: NDArray[np.float64]
    counts: NDArray[np.int64]
    steps: NDArray[np.float64]
    points: NDArray[np.float64]

    @classmethod
    def of_basis(cls, basis: ColumnBasis) -> Patches | None:
        """The patches of a column; None where it is not a Gaussian one, or spreads too far."""
        if basis.family != "gaussian":
            return None
        apart = np.flatnonzero(np.diff(basis.points) > 2.0 * TABLE_MARGIN) + 1
        runs = np.split(basis.points, apart)
        lengths = [run[-1] - run[0] + 2.0 * TABLE_MARGIN for run in runs]
        if sum(lengths) / GRID_STEP > MOST_TABLE_ENTRIES:
            return None
        counts = [int(np.ceil(length / GRID_STEP)) + 6 for length in lengths]
        firsts = [run[0] - TABLE_MARGIN - 2.0 * GRID_STEP for run in runs]
        steps = [f + GRID_STEP * np.arange(count) for f, count in zip(firsts, counts, strict=True)]
        numbers = np.array(counts, dtype=np.int64)
        return cls(np.array(firsts), numbers, np.concatenate(steps), basis.points)

    @cached_property
    def _kernel(self) -> NDArray[np.float64]:
        """The kernel at the steps, which any functions of these points share."""
        return kernel_values("gaussian", self.steps, self.points)

    def values(self, basis: ColumnBasis) -> NDArray[np.float64]:
        """The functions of a basis of these points at the steps."""
        if len(self.steps) * len(self.points) <= MOST_TABLE_ENTRIES:
            return self._kernel @ basis.matrix
        table = np.empty((len(self.steps), basis.n_functions))
        native.exact_gaussians(
            self.steps, FAMILIES["gaussian"].reach, self.points, basis.matrix, table
        )
        return table


def _exponential_table(
    knots: NDArray[np.float64],
    matrix: NDArray[np.float64],
    decay: float,
    polynomial: tuple[float, ...],
) -> NDArray[np.float64]:
    """Rows of exp(-c t) t^p and exp(-c s) s^p, t and s the distances from the knots around a value.

    A kernel exp(-c r) sum_q a_q (c r)^q with r = t + r_0 is exp(-c t) times a polynomial of t whose
    coefficients depend on r_0 alone. So the sum over all points on one side of a value has few
    coefficients, and those at a knot follow from those at the knot before it.
    """
    width, n = len(polynomial), len(knots)
    table = np.zeros((n + 1, 2 * width, matrix.shape[1]))
    factors = np.array([[a * decay**q] for q, a in enumerate(polynomial)])
    for j in range(n):
        table[j + 1, :width] = factors * matrix[j]
        if j > 0:
            table[j + 1, :width] += _moved(table[j, :width], knots[j] - knots[j - 1], decay)
    for j in range(n - 1, -1, -1):
        table[j, width:] = factors * matrix[j]
        if j < n - 1:
            table[j, width:] += _moved(table[j + 1, width:], knots[j + 1] - knots[j], decay)
    return table.reshape(-1, matrix.shape[1])


def _moved(rows: NDArray[np.float64], step: float, decay: float) -> NDArray[np.float64]:
    """Coefficients of exp(-c t) t^p for the same functions, with t + ``step`` written as t."""
    damping = np.exp(-decay * step)
    if damping == 0.0:
        return np.zeros_like(rows)
    width = len(rows)
    shift = [[comb(q, p) * step ** max(q - p, 0) for q in range(width)] for p in range(width)]
    return damping * (np.array(shift) @ rows)
