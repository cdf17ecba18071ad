"""What the maps share that sketch a Taylor series: rows as unit vectors, columns for each degree.

A row's part of degree w is t_w(x) u^(x)w, with u = x' / |x'| and t_w(x) = c(x) sqrt(a_w) |x'|^w,
which comes from logarithms, so that nothing overflows or underflows on the way.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import gammaln

from kernelsieve._memory import check_memory
from kernelsieve._parallel import map_row_blocks, row_blocks
from kernelsieve._random import stream
from kernelsieve._state import (
    MOST_COLUMNS,
    MOST_FACTORS,
    Persistent,
    flag,
    instance,
    list_of,
    scaling,
    whole,
    wrong,
)
from kernelsieve._validation import check_positive
from kernelsieve.features.base import FeatureMap
from kernelsieve.kernels import Gaussian, SeriesKernel
from kernelsieve.kernels.base import Series
from kernelsieve.sources.summaries import squared_norms

TRUNCATION = 1e-3  # the share of its allowance that the truncation uses
MASS_ROWS = 4096
EXACT_ROWS = 256
TUPLE_BYTES = 100


@dataclass(frozen=True)
class Block(Persistent):
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


class SeriesFeatures(FeatureMap):
    """Base of the maps that make random features of every degree of a kernel's Taylor series.

    Degrees with few monomials are exact, the others get random features; those that are not worth
    a column are drawn, and weighted for it. E[Z Z^T] is the truncated kernel.
    """

    unbiased: ClassVar[bool] = True

    alpha: float | None
    eps: float
    degree: int
    coef0: float
    center: Any

    truncation_degree_: int

    _state_fields: ClassVar = {
        "_series": instance(Series),
        "_blocks": list_of(instance(Block), tuple),
    }
    _not_stored: ClassVar = dict.fromkeys(("truncation_degree_", "_monomials"), "computed")

    def _complete(self) -> None:
        super()._complete()
        d, degree, center = self.n_features_in_, self._series.degree, self._series.center
        if center is not None and len(center) != d:
            wrong("_series", f"is centred in {len(center)} columns instead of {d}")
        starts = [0, *(block.stop for block in self._blocks)]
        for block, start in zip(self._blocks, starts, strict=False):
            if not (block.start == start < block.stop and block.degree <= degree):
                wrong("_blocks", "do not follow each other, or are beyond the series")
            if block.exact and block.width != monomial_count(d, block.degree):
                wrong("_blocks", f"do not have all monomials of degree {block.degree}")
            if block.degree == 0 and not block.exact:
                wrong("_blocks", "have random features of degree 0")
        if len({block.degree for block in self._blocks}) < len(self._blocks) or not self._blocks:
            wrong("_blocks", "are none, or two of one degree")
        factors = sum(block.width * max(1, block.degree) for block in self._blocks)
        if factors > MOST_FACTORS:
            wrong("_blocks", f"have {factors} factors, more than {MOST_FACTORS}")
        self.truncation_degree_ = degree
        self._list_monomials(d)

    def _fit(self, X: Any, y: Any, seed: int) -> None:
        alpha = 1.0 if self.alpha is None else self.alpha
        check_positive(alpha, "alpha", "it is added to the kernel's diagonal")
        check_positive(self.eps, "eps", "it is the spectral error to aim at")
        if not isinstance(self.kernel_, SeriesKernel):
            raise ValueError(
                f"kernel={self.kernel_!r} has no Taylor series to sketch: use NystromFeatures"
            )
        if not isinstance(self.kernel_, Gaussian):
            self.kernel_.diag(X)  # says so if it overflows X's float type
        tolerance = 0.5 * TRUNCATION * self.eps * alpha
        self._series = self.kernel_.series_of(X, tolerance, self.center)
        self.truncation_degree_ = self._series.degree
        self._blocks = share_columns(
            np.flatnonzero(self._series.log_coefficients > -np.inf).tolist() or [0],
            self._importance(X, seed),
            X.shape[1],
            int(self.n_components),
            stream(seed, "degrees"),
        )
        self._list_monomials(X.shape[1])
        self._draw([block for block in self._blocks if not block.exact], X.shape[1], seed)

    def _list_monomials(self, n_features: int) -> None:
        """Those of the blocks that are exact."""
        self._monomials = {
            block.degree: Monomials.of(n_features, block.degree)
            for block in self._blocks
            if block.exact
        }
        self.n_components_ = self._blocks[-1].stop

    @abstractmethod
    def _importance(self, X: Any, seed: int) -> NDArray[np.float64]:
        """What the columns are shared by: the root of each degree's error in one column."""

    @abstractmethod
    def _draw(self, blocks: list[Block], n_features: int, seed: int) -> None:
        """Draw what the features of the degrees that are not exact need, if there are any."""

    @abstractmethod
    def _fill_random(self, blocks: list[Block], unit: Any, out: NDArray[Any]) -> None:
        """Write the features of the degrees that are not exact, up to their scales and weights."""

    def _fill(self, X: Any, out: NDArray[Any]) -> None:
        rows = SeriesRows.of(self._series, X)
        others = [block for block in self._blocks if not block.exact]
        if others:
            self._fill_random(others, rows.unit(), out)
        for block in self._blocks:
            columns = out[:, block.columns]
            if block.exact:
                self._monomials[block.degree].fill(rows, columns)
            columns *= rows.scales[:, block.degree, None] * out.dtype.type(block.weight)


@dataclass(frozen=True)
class SeriesRows:
    """A block of rows as unit vectors times a length for each degree.

    Attributes
    ----------
    points : {ndarray, CSR} of shape (n, d)
        The centred rows, not scaled.
    inverse_lengths : ndarray of shape (n,)
        1 / |point|, 0 for the zero row.
    scales : ndarray of shape (n, degree + 1)
        c(x) sqrt(a_w) |x'|^w.
    """

    points: Any
    inverse_lengths: NDArray[Any]
    scales: NDArray[Any]

    @classmethod
    def of(cls, series: Series, X: Any) -> SeriesRows:
        """The valid rows X as the series sees them, in X's float type."""
        if series.center is not None:
            X = (X.toarray() if sp.issparse(X) else X) - series.center.astype(X.dtype)
        squares = squared_norms(X)
        lengths = np.sqrt(squares)
        inverse = np.zeros_like(lengths)
        np.divide(1.0, lengths, out=inverse, where=lengths > 1.0 / np.finfo(X.dtype).max)
        with np.errstate(over="ignore"):
            scales = np.exp(series.log_degree_scales(series.scale**2 * squares)).astype(X.dtype)
        if not np.isfinite(scales).all():
            raise ValueError(
                f"the kernel overflows {X.dtype} on a row with |x|^2 = {squares.max():.6g}: "
                "scale X, or lower gamma"
            )
        return cls(X, inverse.astype(X.dtype), scales)

    def unit(self) -> Any:
        """The rows with length 1; sparse rows stay sparse."""
        if not sp.issparse(self.points):
            return self.points * self.inverse_lengths[:, None]
        counts = np.diff(self.points.indptr)
        data = self.points.data * np.repeat(self.inverse_lengths, counts)
        return sp.csr_array(
            (data, self.points.indices, self.points.indptr), shape=self.points.shape
        )

    def __getitem__(self, rows: slice) -> SeriesRows:
        return SeriesRows(self.points[rows], self.inverse_lengths[rows], self.scales[rows])


def degree_masses(series: Series, X: Any, n_jobs: int | None) -> NDArray[np.float64]:
    """Mean over the rows of c(x)^2 a_w |x'|^(2w), of shape (degree + 1,)."""
    squared_radius = series.scale**2 * squared_norms(X, series.center)

    def block(rows: slice) -> NDArray[np.float64]:
        return np.exp(2.0 * series.log_degree_scales(squared_radius[rows])).sum(axis=0)

    return np.sum(map_row_blocks(block, X.shape[0], MASS_ROWS, n_jobs), axis=0) / X.shape[0]


# --- columns -------------------------------------------------------------------------------------


def share_columns(
    degrees: list[int],
    importance: NDArray[np.float64],
    n_features: int,
    n_columns: int,
    rng: np.random.Generator,
) -> tuple[Block, ...]:
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
            sizes.append((w, monomial_count(n_features, w), 1.0, True))
            left -= sizes[-1][1]
            rest.remove(w)
    if rest:
        drawn = _random_degrees(rest, importance, left, rng)
        sizes += [(w, width, weight, w == 0) for w, width, weight in drawn]
    stops = itertools.accumulate(width for _, width, _, _ in sizes)
    return tuple(
        Block(w, stop - width, stop, weight, exact)
        for (w, width, weight, exact), stop in zip(sizes, stops, strict=True)
    )


def monomial_count(n_features: int, degree: int) -> int:
    """How many monomials of this degree there are."""
    return math.comb(n_features + degree - 1, degree)


def _next_exact(
    degrees: list[int], importance: NDArray[np.float64], n_features: int, n_columns: int
) -> list[int]:
    """The degrees to make exact next: all if they fit, the constant, or what helps most."""
    counts = {w: monomial_count(n_features, w) for w in degrees}
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
        count = monomial_count(n_features, degree)
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

    def fill(self, rows: SeriesRows, out: NDArray[Any]) -> None:
        """Write the products of coordinates of the unit vectors into ``out``."""
        out[...] = self.weights
        if len(self.coordinates) == 0:
            return
        for some in row_blocks(len(out), EXACT_ROWS):
            unit = rows[some].unit()
            unit = unit.toarray() if sp.issparse(unit) else unit
            for column in self.coordinates:
                out[some] *= unit[:, column]
