"""Where features are drawn: a frame, a basis, and the rows that the draws come from."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native.supports import list_nonzero
from kernelsieve._random import coordinate_words, keyed_rows
from kernelsieve.engine.draws import (
    RowNormProposal,
    SparseTableProposal,
    TableProposal,
    draw_distinct,
    inclusion_probabilities,
)
from kernelsieve.engine.options import DEFAULTS, EngineOptions
from kernelsieve.kernels.series import Series
from kernelsieve.products.adapted_basis import ColumnCells
from kernelsieve.products.centred import CentredTables, centred_basis, heaviest_products
from kernelsieve.products.local_basis import BLOCK_ROWS, LocalBasis, LocalTables
from kernelsieve.products.multisets import Multisets, all_of_degrees, count_of_degree
from kernelsieve.products.product_features import Frame, MonomialBasis, ProductFeatures
from kernelsieve.products.product_frame import ProductFrame
from kernelsieve.products.sparse_basis import SparseBasis
from kernelsieve.sources.base import Source
from kernelsieve.sources.given import as_source
from kernelsieve.sources.summaries import moments


@dataclass(frozen=True)
class RowPlan:
    """Numbers of rows for every purpose, by keyed hashes: the same however the rows are chunked.

    Attributes
    ----------
    n_rows : int
    n_proposal : int
        Rows that monomials are drawn from.
    seed : int
    options : EngineOptions
    """

    n_rows: int
    n_proposal: int
    seed: int
    options: EngineOptions

    @classmethod
    def of(cls, X: Any, seed: int, options: EngineOptions = DEFAULTS) -> RowPlan:
        """The plan for a source, or rows; of sparse rows the entries decide how many."""
        source = as_source(X)
        n_rows = source.shape[0]
        n_proposal = options.proposal_rows
        if source.sparse:
            share = min(1.0, options.sparse_proposal_entries / max(1, moments(source).n_entries))
            n_proposal = int(np.ceil(share * n_rows))
        return cls(n_rows, n_proposal, seed, options)

    def _rows(self, size: int, key: str, skip: int = 0) -> NDArray[np.int64]:
        return keyed_rows(self.n_rows, size, self.seed, key, skip=skip)

    def held_out(self) -> NDArray[np.int64]:
        """Rows to judge the choice on."""
        return self._rows(self.options.held_out_rows, "anchors")

    def anchors(self, count: int) -> NDArray[np.int64]:
        """Rows to score features on: no held-out ones, where there are enough others."""
        return self._rows(count, "anchors", self.options.held_out_rows)

    def trial(self) -> NDArray[np.int64]:
        """Rows to compare spaces on."""
        return self._rows(self.options.trial_rows, "trial")

    def rotation(self) -> NDArray[np.int64]:
        """Rows that show the principal directions."""
        return self._rows(self.options.rotation_rows, "rotation")

    def proposal(self) -> NDArray[np.int64]:
        """Rows that monomials are drawn from."""
        return self._rows(self.n_proposal, "proposal")

    def table_proposal(self, n_orders: int) -> NDArray[np.int64]:
        """Rows that products of ``n_orders`` one-dimensional functions are drawn from."""
        entries = self.options.table_proposal_entries // n_orders
        size = max(self.options.fewest_table_rows, entries)
        return self._rows(min(size, self.options.proposal_rows), "proposal")

    def n_anchors(self, n_components: int) -> int:
        """All of few rows, where the scores are then exact; of more as many as cost little."""
        least, most = self.options.n_anchors
        cost = self.options.anchor_cost * self.n_rows * float(n_components) ** 2
        return self.n_rows if self.n_rows <= most else int(np.clip(cost ** (1 / 3), least, most))

    def everything(self, *, anchors: bool) -> NDArray[np.int64]:
        """All of them, so that one pass over a source can bring them."""
        # As many anchors as there can be: the number of features may not be known yet.
        scored = [self.anchors(self.options.n_anchors[1])] if anchors else []
        rows = [self.held_out(), self.trial(), self.rotation(), self.proposal(), *scored]
        return np.unique(np.concatenate(rows))


@dataclass(frozen=True)
class Pool:
    """Distinct unweighted features, as drawn.

    Attributes
    ----------
    features : ProductFeatures
    inclusion : ndarray of shape (pool,)
        The probability that each was drawn, or the inverse of a random weight of expectation 1.
    norms : ndarray of shape (pool,)
        Its squared norm on the data, up to a common factor: positive for every feature.
    complete : bool
        Whether these are all the features there are.
    """

    features: ProductFeatures
    inclusion: NDArray[np.float64]
    norms: NDArray[np.float64]
    complete: bool


class Space(ABC):
    """A frame and a basis for given data, and the row-norm distribution in them."""

    frame: Frame | ProductFrame
    sparse: bool
    options: EngineOptions

    @abstractmethod
    def features(self, multisets: Multisets, weights: NDArray[np.float64]) -> ProductFeatures:
        """The product features with these names and weights."""

    @abstractmethod
    def proposal(self, lowest: int) -> Any:
        """The row-norm distribution of the features of degree >= lowest."""

    @abstractmethod
    def all_features(self, budget: int) -> Multisets | None:
        """Every feature that is not zero, if they are at most ``budget``."""

    @abstractmethod
    def whole_degrees(self, budget: int) -> tuple[Multisets, int]:
        """The low degrees that fit the budget, and the first degree left to draw."""

    def draw(self, n_components: int, seed: int, n_jobs: int | None, budget: int) -> Pool:
        """Distinct features with their inclusion probabilities, low degrees whole.

        ``budget`` bounds how many of them the whole degrees may take.
        """
        everything = self.all_features(n_components)
        if everything is not None:
            return self.whole_pool(everything, n_jobs)
        whole, lowest = self.whole_degrees(budget)
        proposal = self.proposal(lowest)
        if proposal.is_empty:
            return self.whole_pool(whole, n_jobs)
        horizon, batch = self.options.max_draws, self.options.batch
        room = n_components - len(whole)
        drawn, tau = draw_distinct(proposal, room, horizon, seed, n_jobs, batch)
        features = self.features(
            Multisets.concatenate(whole, drawn), np.ones(len(whole) + len(drawn))
        )
        probabilities = proposal.probabilities(features, n_jobs)
        inclusion = inclusion_probabilities(probabilities, tau)
        inclusion[self.degrees(features.multisets) < lowest] = 1.0
        with np.errstate(divide="ignore", over="ignore"):  # 1 / a chance that vanishes
            return self.without_vanished(features, 1.0 / inclusion, probabilities)

    def degrees(self, multisets: Multisets) -> NDArray[np.int64]:
        """The degrees that ``whole_degrees`` counts by."""
        return multisets.degrees()

    def whole_pool(self, multisets: Multisets, n_jobs: int | None) -> Pool:
        """All of these features, each with certainty."""
        ones = np.ones(len(multisets))
        features, proposal = self.features(multisets, ones), self.proposal(0)
        norms = ones if proposal.is_empty else proposal.probabilities(features, n_jobs)
        return Pool(features, ones, norms, complete=True)

    def without_vanished(
        self,
        features: ProductFeatures,
        weights: NDArray[np.float64],
        norms: NDArray[np.float64],
    ) -> Pool:
        """A pool of the features that do not underflow to 0 on all rows.

        Those of an outlier in many columns do. ``weights`` are the inverse inclusion probabilities.
        """
        kept = np.flatnonzero((weights > 0) & np.isfinite(weights) & (norms > 0))
        if len(kept) < len(features):
            features = self.features(features.multisets.take(kept), np.ones(len(kept)))
            kept = kept[features.trie.order]
        return Pool(features, 1.0 / weights[kept], norms[kept], complete=False)

    def captured_trace(self, n_components: int, seed: int, n_jobs: int | None) -> float:
        """The share of the kernel's trace that the first distinct row-norm draws hold."""
        proposal = self.proposal(0)
        if proposal.is_empty:
            return 0.0
        horizon = self.options.trial_draws * n_components
        drawn, _ = draw_distinct(proposal, n_components, horizon, seed, n_jobs, self.options.batch)
        features = self.features(drawn, np.ones(len(drawn)))
        return float(proposal.probabilities(features, n_jobs).sum())


class MonomialSpace(Space):
    """Monomials of a kernel's Taylor series.

    Parameters
    ----------
    series : Series
        The kernel's series.
    frame : Frame
        The coordinates.
    X : Source, or rows
        All rows.
    plan : RowPlan
        Which of them the draws come from.
    """

    frame: Frame

    def __init__(self, series: Series, frame: Frame, X: Any, plan: RowPlan) -> None:
        self.series, self.frame, self.options = series, frame, plan.options
        source = as_source(X)
        self.sparse = source.sparse
        self.n_rows = source.shape[0]
        self.rows = source[plan.proposal()]
        assert frame.spread is not None
        self.live = np.flatnonzero(frame.spread > 0)  # a coordinate that is 0 makes no feature

    def features(self, multisets: Multisets, weights: NDArray[np.float64]) -> ProductFeatures:
        basis = MonomialBasis(self.series)
        return ProductFeatures(self.frame, basis, multisets, weights, sparse=self.sparse)

    def proposal(self, lowest: int) -> RowNormProposal:
        if self.rows.shape[0] == self.n_rows:
            return RowNormProposal(self.series, self.frame, self.rows, lowest)
        spread, share = self.frame.spread, self.options.spread_share
        return RowNormProposal(self.series, self.frame, self.rows, lowest, spread, share)

    def all_features(self, budget: int) -> Multisets | None:
        degrees = self._degrees()
        if sum(count_of_degree(len(self.live), w) for w in degrees) <= budget:
            return all_of_degrees(self.live, degrees)
        return self._all_nonzero(budget) if self.sparse else None

    def whole_degrees(self, budget: int) -> tuple[Multisets, int]:
        fitting = []
        for degree in self._degrees():
            budget -= count_of_degree(len(self.live), degree)
            if budget < 0:
                break
            fitting.append(degree)
        return all_of_degrees(self.live, fitting), self._degrees()[len(fitting)]

    def _degrees(self) -> list[int]:
        """The degrees that the series has."""
        return [int(w) for w in np.flatnonzero(self.series.log_coefficients > -np.inf)]

    def _all_nonzero(self, budget: int) -> Multisets | None:
        """The same, looking at the rows: on sparse ones most products are zero."""
        wanted = self.series.log_coefficients > -np.inf
        widest = int(np.diff(self.rows.indptr).max(initial=0))
        each = sum(count_of_degree(widest, int(w)) for w in np.flatnonzero(wanted))
        whole = self.rows.shape[0] == self.n_rows
        if not whole or each > budget or each * self.n_rows > self.options.max_listed:
            return None
        constant = int(wanted[0])
        limit = min(budget - constant, each * self.n_rows)
        table = np.zeros(1 << int(np.ceil(np.log2(4 * limit + 16))), dtype=np.uint64)
        ends = np.empty(limit, dtype=np.int64)
        coordinates = np.empty(limit * len(wanted), dtype=np.int64)
        orders = np.empty_like(coordinates)
        found = list_nonzero(
            self.rows.indptr,
            self.rows.indices,
            coordinate_words(self.rows.shape[1]),
            wanted,
            limit,
            table,
            ends,
            coordinates,
            orders,
        )
        if found < 0:
            return None
        atoms = int(ends[found - 1]) if found else 0
        listed = Multisets(ends[:found], coordinates[:atoms], orders[:atoms])
        return Multisets.concatenate(Multisets.from_tuples([()] * constant), listed)


class TableSpace(Space):
    """Products of one-dimensional functions, one family for each coordinate.

    Parameters
    ----------
    frame : Frame
        The coordinates.
    basis : LocalBasis
        Their functions.
    X : Source, or rows
        All rows.
    plan : RowPlan
        Which of them the draws come from.
    """

    sparse = False

    def __init__(
        self, frame: Frame | ProductFrame, basis: LocalBasis, X: Any, plan: RowPlan
    ) -> None:
        self.frame, self.basis, self.options = frame, basis, plan.options
        source = as_source(X)
        self.n_rows = source.shape[0]
        self.rows = source[plan.table_proposal(int(basis.n_orders.sum()))]

    def features(self, multisets: Multisets, weights: NDArray[np.float64]) -> ProductFeatures:
        basis = self.basis.restricted(multisets)
        return ProductFeatures(self.frame, basis, multisets, weights, sparse=False)

    def proposal(self, lowest: int) -> TableProposal:
        # No row may show a tent that a new row has: the marginals show all of them.
        everything = len(self.rows) == self.n_rows and not self.basis.has_tents
        share = 0.0 if everything else self.options.spread_share
        return TableProposal(self.basis, self.frame, self.rows, lowest, share)

    def all_features(self, budget: int) -> Multisets | None:
        """All products of the orders that are kept: the rest is below the tolerance."""
        if self.basis.has_tents or np.sum(np.log(self.basis.n_orders)) > np.log(budget):
            return None
        live = np.flatnonzero(self.basis.n_orders > 1)
        numbers = self.basis.n_orders[live].tolist()
        orders = np.zeros((math.prod(numbers), len(self.basis.n_orders)), dtype=np.int64)
        orders[:, live] = np.indices(numbers).reshape(len(live), len(orders)).T
        return Multisets.from_table(orders)

    def whole_degrees(self, budget: int) -> tuple[Multisets, int]:
        listed = self.basis.n_listed
        live = np.flatnonzero(listed > 1)
        # Something must be left to draw.
        finite = (listed == self.basis.n_orders).all()
        highest = int(np.sum(listed - 1)) if finite else self.options.max_whole_order
        lowest = 0
        while lowest < min(highest, self.options.max_whole_order):
            budget -= count_of_degree(len(live), lowest)
            if budget < 0:
                break
            lowest += 1
        whole = all_of_degrees(live, range(lowest))
        kept = np.ones(len(whole), dtype=bool)
        kept[whole.owners[whole.orders >= listed[whole.coordinates]]] = False
        return whole.take(np.flatnonzero(kept)), lowest

    def degrees(self, multisets: Multisets) -> NDArray[np.int64]:
        """Sums of orders, where those that are not listed count as more than any degree."""
        listed = multisets.orders < self.basis.n_listed[multisets.coordinates]
        orders = np.where(listed, multisets.orders, self.options.max_whole_order)
        return Multisets(multisets.ends, multisets.coordinates, orders).degrees()


class SparseTableSpace(Space):
    """Products of local functions of sparse rows.

    Parameters
    ----------
    frame : ProductFrame
        The coordinates.
    basis : SparseBasis
        Their functions.
    X : Source
        All rows.
    plan : RowPlan
        Which of them the draws come from.
    """

    sparse = True
    frame: ProductFrame

    def __init__(self, frame: ProductFrame, basis: SparseBasis, X: Any, plan: RowPlan) -> None:
        self.frame, self.basis, self.options = frame, basis, plan.options
        self.rows = as_source(X)[plan.proposal()]

    def features(self, multisets: Multisets, weights: NDArray[np.float64]) -> ProductFeatures:
        return ProductFeatures(self.frame, self.basis, multisets, weights, sparse=True)

    def proposal(self, lowest: int) -> SparseTableProposal:
        return SparseTableProposal(self.basis, self.frame, self.rows)

    def all_features(self, budget: int) -> Multisets | None:
        return None  # what there is shows in the draws alone

    def whole_degrees(self, budget: int) -> tuple[Multisets, int]:
        return Multisets.from_tuples([]), 0


class CentredSpace:
    """Products of few functions with mean 0: as many as are asked for, the heaviest first.

    Parameters
    ----------
    frame : Frame or ProductFrame
        The coordinates.
    families : sequence of str
    rates : ndarray of shape (d,)
    rows : Source
        All rows.
    tol : float
        What the functions of a column may lose.
    max_order : int
        The most functions of a product.
    options : EngineOptions
    """

    def __init__(
        self,
        frame: Frame | ProductFrame,
        families: Sequence[str],
        rates: NDArray[np.float64],
        rows: Source,
        tol: float,
        max_order: int,
        options: EngineOptions,
    ) -> None:
        self.frame, self.max_order, self.options = frame, max_order, options
        cells = rows.reduce(lambda block: ColumnCells.of_rows(block.X, frame.points), BLOCK_ROWS)
        self.bases = [
            centred_basis(family, column, float(rate), tol)
            for family, rate, column in zip(families, rates, cells.columns, strict=True)
        ]

    def features(self, multisets: Multisets, weights: NDArray[np.float64]) -> ProductFeatures:
        """The product features with these names and weights."""
        basis = CentredTables(LocalTables.of_bases(self.bases, multisets))
        return ProductFeatures(self.frame, basis, multisets, weights, sparse=False)

    def draw(self, n_components: int, seed: int, n_jobs: int | None, budget: int) -> Pool:
        """The heaviest products, each with certainty."""
        multisets = heaviest_products(self.bases, self.max_order, n_components)
        features = self.features(multisets, np.ones(len(multisets)))
        atoms, norms = features.multisets, np.ones(len(multisets))
        pairs = zip(atoms.coordinates, atoms.orders, strict=True)
        np.multiply.at(norms, atoms.owners, [self.bases[i].masses[k] for i, k in pairs])
        return Pool(features, np.ones(len(norms)), np.maximum(norms, 1e-300), complete=True)
