"""Columns for the degrees of a Taylor series: all monomials of a degree, or random features."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import gammaln

from kernelsieve._parallel import row_blocks
from kernelsieve._state import MOST_COLUMNS, Persistent, flag, scaling, whole
from kernelsieve._validation import check_memory
from kernelsieve.products.multisets import count_of_degree

BLOCK_ROWS = 256
TUPLE_BYTES = 100


@dataclass(frozen=True)
class DegreeColumns(Persistent):
    """The columns of one degree: all its monomials, or random features.

    Attributes
    ----------
    degree, start, stop : int
    weight : float
        What they are multiplied by: 1 / sqrt(probability) for a degree that was drawn.
    exact : bool
    """

    degree: int
    start: int
    stop: int
    weight: float
    exact: bool

    _state_fields: ClassVar = {
        "degree": whole(),
        "start": whole(),
        "stop": whole(1, MOST_COLUMNS),
        "weight": scaling,
        "exact": flag,
    }

    @property
    def columns(self) -> slice:
        """The columns of Z."""
        return slice(self.start, self.stop)

    @property
    def width(self) -> int:
        """How many there are."""
        return self.stop - self.start


def share_columns(
    degrees: list[int],
    importance: NDArray[np.float64],
    n_features: int,
    n_columns: int,
    rng: np.random.Generator,
) -> tuple[DegreeColumns, ...]:
    """Which degrees are exact, and which columns the others get.

    Shares are in proportion to ``importance``, which minimises sum_w importance_w^2 / columns_w.
    All monomials of a degree are taken where that leaves the others with a smaller error. Of the
    degrees whose share is below one column some are drawn, in proportion to it: the others need
    not be computed, and the expected error is that of the shares.
    """
    rest, left = list(degrees), n_columns
    sizes: list[tuple[int, int, float, bool]] = []
    while rest and (exact := _next_exact(rest, importance, n_features, left)):
        for w in exact:
            sizes.append((w, count_of_degree(n_features, w), 1.0, True))
            left -= sizes[-1][1]
            rest.remove(w)
    if rest:
        drawn = _random_degrees(rest, importance, left, rng)
        sizes += [(w, width, weight, w == 0) for w, width, weight in drawn]
    stops = itertools.accumulate(width for _, width, _, _ in sizes)
    return tuple(
        DegreeColumns(w, stop - width, stop, weight, exact)
        for (w, width, weight, exact), stop in zip(sizes, stops, strict=True)
    )


def _next_exact(
    degrees: list[int], importance: NDArray[np.float64], n_features: int, n_columns: int
) -> list[int]:
    """The degrees to make exact next: all if they fit, the constant, or what helps most."""
    counts = {w: count_of_degree(n_features, w) for w in degrees}
    if sum(counts.values()) <= n_columns:
        return degrees.copy()
    if 0 in degrees and n_columns > 1:
        return [0]
    shares = dict(zip(degrees, _shares(importance[degrees], 1), strict=True))
    # The squared error of the others, (sum of importances)^2 / columns, against what it is now.
    errors = {
        w: (1.0 - shares[w]) ** 2 / (1.0 - counts[w] / n_columns)
        for w in degrees
        if counts[w] < n_columns
    }
    best = min(errors, key=errors.__getitem__, default=None)
    return [best] if best is not None and errors[best] < 1.0 else []


def _random_degrees(
    degrees: list[int],
    importance: NDArray[np.float64],
    n_columns: int,
    rng: np.random.Generator,
) -> list[tuple[int, int, float]]:
    """Degree, number of columns and weight of what gets random features."""
    shares = _shares(importance[degrees], n_columns)
    order = [degrees[i] for i in np.argsort(-shares, kind="stable")]
    alone = int(np.sum(shares >= 1.0))
    if alone == len(degrees):
        heavy, light = order, []
    else:
        alone = min(alone, n_columns - 1)  # one column at least for the light ones
        heavy, light = order[:alone], sorted(order[alone:])
    weights = [importance[w] for w in heavy] + ([importance[light].sum()] if light else [])
    widths = _proportional(np.array(weights), n_columns)
    result = [(w, width, 1.0) for w, width in zip(heavy, widths, strict=False)]
    if light:
        expected = _shares(importance[light], widths[-1])
        counts = _systematic(expected, rng)
        result += [
            (w, int(count), float(np.sqrt(count / mean)))
            for w, count, mean in zip(light, counts, expected, strict=True)
            if count
        ]
    return result


def _systematic(expected: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Whole numbers with these means, each rounded up or down, that add up to the sum of them."""
    ends = np.cumsum(expected)
    ends[-1] = np.round(ends[-1])
    return np.diff(np.ceil(ends - rng.random()), prepend=0.0).astype(np.int64)


def _shares(weights: NDArray[np.float64], n_columns: int) -> NDArray[np.float64]:
    total = weights.sum()
    return (
        n_columns * weights / total
        if total > 0
        else np.full(len(weights), n_columns / len(weights))
    )


def _proportional(weights: NDArray[np.float64], n_columns: int) -> list[int]:
    """Whole numbers >= 1 in proportion to the weights that add up to ``n_columns``."""
    above = np.maximum(_shares(weights, n_columns) - 1.0, 0.0)
    shares = _shares(above, n_columns - len(weights))
    whole = np.floor(shares).astype(int)
    missing = n_columns - len(weights) - int(whole.sum())
    whole[np.argsort(whole - shares, kind="stable")[:missing]] += 1
    return (1 + whole).tolist()


@dataclass(frozen=True, eq=False)
class Monomials:
    """All monomials of one degree, with the roots of their numbers of orders.

    Attributes
    ----------
    coordinates : ndarray of shape (degree, count)
        One column for each multiset.
    weights : ndarray of shape (count,)
    """

    coordinates: NDArray[np.intp]
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, n_features: int, degree: int) -> Monomials:
        """Those of ``degree`` in ``n_features`` coordinates."""
        count = count_of_degree(n_features, degree)
        check_memory(
            count * (TUPLE_BYTES + 24.0 * degree),
            f"a list of all {count:,} products of {degree} of {n_features:,} columns",
            "lower n_components",
        )
        multisets = list(itertools.combinations_with_replacement(range(n_features), degree))
        coordinates = np.array(multisets, dtype=np.intp).reshape(len(multisets), degree).T
        log_orders = np.full(len(multisets), gammaln(degree + 1.0))
        run = np.ones(len(multisets))
        for previous, current in itertools.pairwise(coordinates):
            run = np.where(current == previous, run + 1.0, 1.0)
            log_orders -= np.log(run)  # in the end the factorials of all multiplicities
        return cls(coordinates, np.exp(0.5 * log_orders))

    def fill(self, unit: Any, out: NDArray[Any]) -> None:
        """Write the products of coordinates of the rows ``unit`` into ``out``."""
        out[...] = self.weights
        if len(self.coordinates) == 0:
            return
        for some in row_blocks(len(out), BLOCK_ROWS):
            block = unit[some].toarray() if sp.issparse(unit) else unit[some]
            for column in self.coordinates:
                out[some] *= block[:, column]
