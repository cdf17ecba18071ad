"""Draws of features: row-norm distributions, and the first distinct draws with exact weights.

P_m is proportional to the squared norm of feature m over the proposal rows. For monomials: pick a
row by its mass, a degree, then coordinates one by one. For products of one-dimensional functions:
pick a row, then an order for each coordinate. Draws arrive as a rate-1 Poisson process, so feature
m first arrives at an Exp(P_m) time. Keep the first s distinct ones; given the time tau of the next,
each was there with probability 1 - exp(-P_m tau). See docs/why-the-engine.md, "Row norm without a
sketch" and "Distinct features".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from kernelsieve._native.draws import (
    chances_of_more,
    draw_monomials,
    draw_orders,
    draw_sparse_orders,
    keep_new,
    normalise_orders,
)
from kernelsieve._parallel import ordered_row_blocks
from kernelsieve._random import coordinate_words, stream
from kernelsieve.engine.options import DEFAULTS
from kernelsieve.kernels.series import Series
from kernelsieve.products.local_basis import LocalBasis
from kernelsieve.products.multisets import Multisets
from kernelsieve.products.product_features import Frame, ProductFeatures
from kernelsieve.products.product_frame import ProductFrame
from kernelsieve.products.sparse_basis import SparseBasis
from kernelsieve.sources.summaries import squared_norms, weighted_counts

Draws = tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
SMALLEST_CHANCE = 1e-300


class Proposal(Protocol):
    """A distribution over multisets that can be drawn from."""

    def draw(self, size: int, rng: np.random.Generator) -> Draws:
        """``size`` draws as (hashes, ends, coordinates, orders)."""


def write_draws(
    size: int, rng: np.random.Generator, write: Callable[..., int], longest: int
) -> Draws:
    """The draws that ``write(rng, hashes, ends, coordinates, orders)`` makes.

    A native kernel returns the atoms written, or a negative number where its arrays were too small
    for ``size`` draws of at most ``longest`` atoms: then it gets larger ones.
    """
    hashes, ends = np.empty(size, dtype=np.uint64), np.empty(size, dtype=np.int64)
    atoms = 8 * size + longest
    state = rng.bit_generator.state
    while True:
        rng.bit_generator.state = state  # a second try must repeat the same draws
        coordinates, orders = np.empty(atoms, dtype=np.int64), np.empty(atoms, dtype=np.int64)
        written = write(rng, hashes, ends, coordinates, orders)
        if written >= 0:
            return hashes, ends, coordinates[:written], orders[:written]
        atoms *= 2


@dataclass
class _Kept:
    """The distinct multisets so far, in arrays that grow."""

    limit: int

    def __post_init__(self) -> None:
        size = 1 << max(10, int(np.ceil(np.log2(4 * self.limit + 4))))
        self.table = np.zeros(size, dtype=np.uint64)
        self.ends = np.zeros(self.limit, dtype=np.int64)
        self.coordinates = np.zeros(4 * self.limit, dtype=np.int64)
        self.orders = np.zeros(4 * self.limit, dtype=np.int64)
        self.found = 0
        self.atoms = 0

    def add(self, draws: Draws) -> int:
        """Add a batch; returns how many of its draws were looked at."""
        hashes, ends, coordinates, orders = draws
        needed = self.atoms + len(coordinates)
        if needed > len(self.coordinates):
            grow = 2 * needed - len(self.coordinates)
            self.coordinates = np.concatenate([self.coordinates, np.zeros(grow, dtype=np.int64)])
            self.orders = np.concatenate([self.orders, np.zeros(grow, dtype=np.int64)])
        looked_at, self.found, self.atoms = keep_new(
            hashes,
            ends,
            coordinates,
            orders,
            self.table,
            self.limit,
            self.found,
            self.ends,
            self.coordinates,
            self.orders,
            self.atoms,
        )
        return int(looked_at)

    def multisets(self) -> Multisets:
        count = min(self.found, self.limit)
        return Multisets(
            self.ends[:count].copy(),
            self.coordinates[: self.atoms].copy(),
            self.orders[: self.atoms].copy(),
        )


def draw_distinct(
    proposal: Proposal,
    limit: int,
    horizon: float,
    seed: int,
    n_jobs: int | None,
    batch: int = DEFAULTS.batch,
) -> tuple[Multisets, float]:
    """The first ``limit`` distinct multisets that arrive before ``horizon``, and tau.

    tau is the arrival time of the next distinct multiset, or the horizon if none came before it.
    ``batch`` draws are made by one random stream.
    """
    if limit == 0:
        return Multisets.from_tuples([]), 0.0
    rng = stream(seed, "arrivals")
    n_draws = int(rng.poisson(horizon))
    kept = _Kept(min(limit, n_draws))  # there are no more draws than that to keep

    def make(draws: slice) -> Draws:
        return proposal.draw(draws.stop - draws.start, stream(seed, "draws", draws.start // batch))

    seen = 0
    for draws in ordered_row_blocks(make, n_draws, batch, n_jobs):
        seen += kept.add(draws)
        if kept.found > limit:
            return kept.multisets(), stopping_time(seen, n_draws, horizon, rng)
    return kept.multisets(), horizon


def stopping_time(draws: int, limit: int, horizon: float, rng: np.random.Generator) -> float:
    """The time of draw number ``draws`` among ``limit`` that fall in [0, horizon].

    Given their number, Poisson arrivals are uniform, so the k-th of N is horizon * Beta(k, N-k+1).
    """
    return horizon * float(rng.beta(draws, limit - draws + 1))


def inclusion_probabilities(probabilities: NDArray[np.float64], tau: float) -> NDArray[np.float64]:
    """1 - exp(-P_m tau): the chance that a feature of probability P_m arrived before tau."""
    return -np.expm1(-probabilities * tau)


class RowNormProposal:
    """Monomials of degree >= ``lowest``, in proportion to their squared norm over some rows.

    Parameters
    ----------
    series, frame
        The kernel's series and the coordinates of its points.
    rows : {ndarray, CSR} of shape (n_rows, d)
        The proposal rows.
    lowest : int
        Smaller degrees are taken whole by the caller.
    spread : ndarray of shape (n_coordinates,) or None
        Root mean squares of the coordinates over *all* rows. They make one more row, with a share
        of the draws, so that features which vanish on the proposal rows are still drawn.
    share : float
        That share.
    """

    def __init__(
        self,
        series: Series,
        frame: Frame,
        rows: Any,
        lowest: int,
        spread: NDArray[np.float64] | None = None,
        share: float = 0.0,
    ) -> None:
        self.series, self.rows, self.lowest = series, rows, lowest
        self.spread = spread
        self._store(rows, frame)
        self._words = coordinate_words(frame.n_coordinates)
        squared = self._squared_radius(frame)
        with np.errstate(divide="ignore"):
            self.log_radius = np.log(squared)
        self.log_amplitude = series.log_amplitude(squared)
        scales = 2.0 * series.log_degree_scales(squared)[:, lowest:]
        self.log_mass = logsumexp(scales, axis=1)
        self.log_weight = np.zeros(len(squared))
        rows_total = float(logsumexp(self.log_mass[: rows.shape[0]]))
        self.log_total = rows_total
        if spread is not None and rows_total == -np.inf:
            self.log_total = float(self.log_mass[-1])  # only the added row has anything to draw
        elif spread is not None and self.log_mass[-1] > -np.inf:
            # The added row weighs so much that it receives its share of the draws.
            log_odds = np.log(share) - np.log1p(-share)
            self.log_weight[-1] = log_odds + rows_total - self.log_mass[-1]
            self.log_total = rows_total - float(np.log1p(-share))
        if self.is_empty:
            return
        probabilities = np.exp(self.log_mass + self.log_weight - self.log_total)
        self._cumulative = np.cumsum(probabilities)

    @property
    def is_empty(self) -> bool:
        """Whether no feature is left to draw."""
        return self.log_total == -np.inf

    def _store(self, rows: Any, frame: Frame) -> None:
        """Points as the native arrays of CSR rows; dense ones have no indices and no pointer."""
        self._running: NDArray[np.float64] | None = None
        if sp.issparse(rows):  # as they are: a copy only to scale them would double the memory
            self._data, self._indices, self._indptr = rows.data, rows.indices, rows.indptr
            self._scale = frame.scale
            if self.spread is not None:
                self._add_sparse_row(self.spread)
            return
        points = frame.points(rows)
        if self.spread is not None:
            points = np.vstack([points, self.spread[None].astype(points.dtype)])
        self._data = np.ascontiguousarray(points).ravel()
        self._indices = self._indptr = None
        self._scale = 1.0

    def _add_sparse_row(self, spread: NDArray[np.float64]) -> None:
        columns = np.flatnonzero(spread > 0)
        values = (spread[columns] / self._scale).astype(self._data.dtype)
        self._data = np.concatenate([self._data, values])
        self._indices = np.concatenate([self._indices, columns.astype(self._indices.dtype)])
        self._indptr = np.append(self._indptr, self._indptr.dtype.type(len(self._data)))
        self._running = np.cumsum(spread[columns] ** 2)

    def _squared_radius(self, frame: Frame) -> NDArray[np.float64]:
        """|x'|^2 of the proposal rows, and of the added one."""
        if sp.issparse(self.rows):
            radii = frame.squared_radius(self.rows)
            return radii if self.spread is None else np.append(radii, np.sum(self.spread**2))
        return squared_norms(self._data.reshape(-1, frame.n_coordinates))

    def draw(self, size: int, rng: np.random.Generator) -> Draws:
        """``size`` draws as (hashes, ends, coordinates, orders)."""
        cumulative = self._cumulative
        rows = np.searchsorted(cumulative, rng.random(size) * cumulative[-1], side="right")
        rows = np.minimum(rows, len(cumulative) - 1)
        write = partial(
            draw_monomials,
            self._data,
            self._indices,
            self._indptr,
            self._scale,
            self._words,
            self._running,
            rows,
            self.log_radius,
            self.log_mass,
            self.log_amplitude,
            self.series.log_coefficients,
            self.lowest,
        )
        return write_draws(size, rng, write, self.series.degree)

    def probabilities(self, features: ProductFeatures, n_jobs: int | None) -> NDArray[np.float64]:
        """P_m of unweighted ``features`` under one draw, by column."""
        squares = features.squared_norms(self.rows, n_jobs)
        with np.errstate(divide="ignore"):  # features and their total may both be next to 0
            probabilities = np.exp(np.log(squares) - self.log_total)
        if self.spread is not None:
            log_added = self._log_square_at_spread(features.multisets)
            probabilities += np.exp(log_added + self.log_weight[-1] - self.log_total)
        return probabilities

    def _log_square_at_spread(self, multisets: Multisets) -> NDArray[np.float64]:
        """log phi_m^2 at the added row."""
        assert self.spread is not None
        with np.errstate(divide="ignore"):
            log_spread = np.log(self.spread)
        k = multisets.orders
        atoms = 2.0 * k * log_spread[multisets.coordinates] - gammaln(k + 1.0)
        products = np.bincount(multisets.owners, weights=atoms, minlength=len(multisets))
        degrees = multisets.degrees()
        scales = self.series.log_coefficients[degrees] + gammaln(degrees + 1.0)
        return products + scales + 2.0 * self.log_amplitude[-1]


class TableProposal:
    """Products of total order >= ``lowest``, in proportion to their squared norm over some rows.

    Parameters
    ----------
    basis : LocalBasis
        The one-dimensional functions.
    frame : Frame
        The coordinates of the points.
    rows : ndarray of shape (n_rows, d)
        The proposal rows.
    lowest : int
        Smaller total orders are taken whole by the caller.
    share : float
        The share of the draws that takes every coordinate from its own marginal distribution,
        independently. It is positive on every feature, also on those that hardly show on the
        proposal rows.
    """

    FLOOR = 1e-4  # of a marginal, spread over all orders: keeps it positive on each of them

    def __init__(
        self,
        basis: LocalBasis,
        frame: Frame | ProductFrame,
        rows: Any,
        lowest: int,
        share: float = 0.0,
    ) -> None:
        self.rows, self.share, self.basis = rows, share, basis
        points = frame.points(rows)
        n_rows, d = points.shape
        self._offsets = np.concatenate([[0], np.cumsum(basis.n_orders)])
        # The last row is not one of the data: it holds the marginals.
        self._squares = np.empty((n_rows + 1, self._offsets[-1]))
        self._log_ground = np.empty((n_rows + 1, d + 1))
        for i in range(d):
            line, first = np.ascontiguousarray(points[:, i]), int(self._offsets[i])
            basis.write_squares(i, line, first, self._squares[:-1])
            marginal = self._marginal(basis.masses(i))
            self._squares[-1, first : first + len(marginal)] = marginal
        held = np.empty(n_rows + 1)  # what the orders kept have of k(x, x)
        normalise_orders(self._squares, self._offsets, SMALLEST_CHANCE, held, self._log_ground)
        self._chances = np.empty((n_rows + 1, d + 1, lowest + 1))
        chances_of_more(self._squares, self._offsets, basis.n_listed, self._chances)
        self._cumulative = np.cumsum(held[:-1] * self._chances[:-1, 0, lowest])
        self._words = coordinate_words(d)
        self._points = np.ascontiguousarray(points, dtype=np.float64)

    @property
    def is_empty(self) -> bool:
        """Whether no feature is left to draw."""
        return not self._cumulative[-1] > 0

    def _marginal(self, masses: NDArray[np.float64]) -> NDArray[np.float64]:
        return (1.0 - self.FLOOR) * masses / masses.sum() + self.FLOOR / len(masses)

    def draw(self, size: int, rng: np.random.Generator) -> Draws:
        """``size`` draws as (hashes, ends, coordinates, orders)."""
        n_rows, cumulative = self.rows.shape[0], self._cumulative
        rows = np.searchsorted(cumulative, rng.random(size) * cumulative[-1], side="right")
        rows = np.minimum(rows, n_rows - 1)
        rows[rng.random(size) < self.share] = n_rows
        write = partial(
            draw_orders,
            self._squares,
            self._offsets,
            self.basis.n_listed,
            self._log_ground,
            self._chances,
            rows,
            self._words,
        )
        draws = write_draws(size, rng, write, self._log_ground.shape[1])
        self.basis.name_tents(self._points, rows, draws, self._words, rng)
        return draws

    def probabilities(self, features: ProductFeatures, n_jobs: int | None) -> NDArray[np.float64]:
        """P_m of unweighted ``features`` under one draw, by column."""
        squares = features.squared_norms(self.rows, n_jobs)
        probabilities = squares * ((1.0 - self.share) / self._cumulative[-1])
        if self.share > 0:
            mass = self._chances[-1, 0, -1]
            probabilities += self.share / mass * np.exp(self._log_independent(features))
        return probabilities

    def _log_independent(self, features: ProductFeatures) -> NDArray[np.float64]:
        """log of the product of the marginals."""
        multisets = features.multisets
        with np.errstate(divide="ignore"):
            log_marginals = np.log(self._squares[-1])
        ground = log_marginals[self._offsets[:-1]]
        orders = self.basis.drawn_orders(multisets)
        excited = log_marginals[self._offsets[multisets.coordinates] + orders]
        excited += self.basis.log_tent_probabilities(multisets)
        change = excited - ground[multisets.coordinates]
        return ground.sum() + weighted_counts(multisets.owners, change, len(multisets))


class SparseTableProposal:
    """Products of local functions of sparse rows, in proportion to their squared norm over them.

    Parameters
    ----------
    basis : SparseBasis
    frame : ProductFrame
    rows : CSR of shape (n_rows, d)
        The proposal rows. A product that is 0 on all of them is not drawn.
    """

    def __init__(self, basis: SparseBasis, frame: ProductFrame, rows: Any) -> None:
        self.rows = rows
        points = frame.points(rows)
        self._squares = np.square(basis.values(points))
        self._totals = self._squares.sum(axis=1)
        self._indices, self._indptr = points.indices, points.indptr
        with np.errstate(divide="ignore"):
            owners = np.repeat(np.arange(rows.shape[0]), np.diff(points.indptr))
            held = np.exp(weighted_counts(owners, np.log(self._totals), rows.shape[0]))
        self._cumulative = np.cumsum(held)
        self._words = coordinate_words(rows.shape[1])
        self._longest = int(np.diff(points.indptr).max(initial=0))

    @property
    def is_empty(self) -> bool:
        """Whether no feature is left to draw."""
        return not self._cumulative[-1] > 0

    def draw(self, size: int, rng: np.random.Generator) -> Draws:
        """``size`` draws as (hashes, ends, coordinates, orders)."""
        cumulative = self._cumulative
        rows = np.searchsorted(cumulative, rng.random(size) * cumulative[-1], side="right")
        rows = np.minimum(rows, len(cumulative) - 1)
        write = partial(
            draw_sparse_orders,
            self._squares,
            self._totals,
            self._indices,
            self._indptr,
            rows,
            self._words,
        )
        return write_draws(size, rng, write, self._longest)

    def probabilities(self, features: ProductFeatures, n_jobs: int | None) -> NDArray[np.float64]:
        """P_m of unweighted ``features`` under one draw, by column."""
        return features.squared_norms(self.rows, n_jobs) / self._cumulative[-1]
