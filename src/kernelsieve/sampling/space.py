"""Where features are drawn: a frame, a basis, and the rows that the draws come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._native.supports import list_nonzero
from kernelsieve._series import Series
from kernelsieve.sampling.distinct import Proposal, draw_distinct
from kernelsieve.sampling.frame import Frame
from kernelsieve.sampling.keyed import keyed_rows
from kernelsieve.sampling.mercer_basis import MercerBasis
from kernelsieve.sampling.mercer_proposal import MercerProposal
from kernelsieve.sampling.monomial_basis import MonomialBasis
from kernelsieve.sampling.multisets import Multisets, all_of_degrees, count_of_degree
from kernelsieve.sampling.product_features import ProductFeatures
from kernelsieve.sampling.rank_conditioning import inclusion_probabilities
from kernelsieve.sampling.row_norm import RowNormProposal

PROPOSAL_ROWS = 16384  # dense rows that draws come from; sparse ones use them all
PROPOSAL_ENTRIES = 2**22  # of the Mercer proposal's tables
MAX_LISTED = 10**8  # multisets looked at when sparse rows are searched for all nonzero ones
MAX_WHOLE_ORDER = 12  # of the Mercer basis; higher orders are drawn
SPREAD_SHARE = 0.02  # of the draws, for what hardly shows on the proposal rows


class Space(ABC):
    """A frame and a basis for given data, and the row-norm distribution in them."""

    frame: Frame
    sparse: bool

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

    def draw(
        self, n_components: int, horizon: float, seed: int, n_jobs: int | None, budget: int
    ) -> tuple[ProductFeatures, NDArray[np.float64]]:
        """Distinct features with their inclusion probabilities, low degrees whole.

        ``budget`` bounds how many of them the whole degrees may take.
        """
        everything = self.all_features(n_components)
        if everything is not None:
            ones = np.ones(len(everything))
            return self.features(everything, ones), ones
        whole, lowest = self.whole_degrees(budget)
        proposal = self.proposal(lowest)
        drawn, tau = draw_distinct(proposal, n_components - len(whole), horizon, seed, n_jobs)
        features = self.features(
            Multisets.concatenate(whole, drawn), np.ones(len(whole) + len(drawn))
        )
        inclusion = inclusion_probabilities(proposal.probabilities(features, n_jobs), tau)
        inclusion[features.multisets.degrees() < lowest] = 1.0
        return features, inclusion

    def captured_trace(self, n_components: int, seed: int, n_jobs: int | None) -> float:
        """The share of the kernel's trace that the first distinct row-norm draws hold."""
        proposal = self.proposal(0)
        drawn, _ = draw_distinct(proposal, n_components, 40.0 * n_components, seed, n_jobs)
        features = self.features(drawn, np.ones(len(drawn)))
        return float(proposal.probabilities(features, n_jobs).sum())


class MonomialSpace(Space):
    """Monomials of a kernel's Taylor series."""

    def __init__(self, series: Series, frame: Frame, X: Any, seed: int) -> None:
        self.series, self.frame = series, frame
        self.sparse = sp.issparse(X)
        self.n_rows = X.shape[0]
        chosen = keyed_rows(X.shape[0], PROPOSAL_ROWS, seed, "proposal")
        self.rows = X if self.sparse or len(chosen) == X.shape[0] else X[chosen]
        assert frame.spread is not None
        self.live = np.flatnonzero(frame.spread > 0)  # a coordinate that is 0 makes no feature

    def features(self, multisets: Multisets, weights: NDArray[np.float64]) -> ProductFeatures:
        basis = MonomialBasis(self.series)
        return ProductFeatures(self.frame, basis, multisets, weights, sparse=self.sparse)

    def proposal(self, lowest: int) -> RowNormProposal:
        if self.rows.shape[0] == self.n_rows:
            return RowNormProposal(self.series, self.frame, self.rows, lowest)
        return RowNormProposal(
            self.series, self.frame, self.rows, lowest, self.frame.spread, SPREAD_SHARE
        )

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
        if each > budget or each * self.n_rows > MAX_LISTED:
            return None
        constant = int(wanted[0])
        limit = budget - constant
        table = np.zeros(1 << int(np.ceil(np.log2(4 * budget + 16))), dtype=np.uint64)
        ends = np.empty(limit, dtype=np.int64)
        coordinates = np.empty(limit * len(wanted), dtype=np.int64)
        orders = np.empty_like(coordinates)
        found = list_nonzero(
            self.rows.indptr, self.rows.indices, wanted, limit, table, ends, coordinates, orders
        )
        if found < 0:
            return None
        atoms = int(ends[found - 1]) if found else 0
        listed = Multisets(ends[:found], coordinates[:atoms], orders[:atoms])
        return Multisets.concatenate(Multisets.from_tuples([()] * constant), listed)


class MercerSpace(Space):
    """Products of adapted one-dimensional bases of the Gaussian kernel."""

    sparse = False

    def __init__(self, frame: Frame, X: NDArray[Any], tol: float, seed: int) -> None:
        self.frame = frame
        self.n_rows = X.shape[0]
        chosen = keyed_rows(X.shape[0], PROPOSAL_ROWS, seed, "proposal")
        points = frame.points(X[chosen])
        low, high = _ranges(frame, X, points)
        self.basis = MercerBasis.adapted(points, low, high, tol)
        n_orders = int(self.basis.n_orders.sum())
        size = max(1024, PROPOSAL_ENTRIES // n_orders)
        self.rows = X[keyed_rows(X.shape[0], min(size, PROPOSAL_ROWS), seed, "proposal")]

    def features(self, multisets: Multisets, weights: NDArray[np.float64]) -> ProductFeatures:
        basis = self.basis.restricted(multisets)
        return ProductFeatures(self.frame, basis, multisets, weights, sparse=False)

    def proposal(self, lowest: int) -> MercerProposal:
        share = 0.0 if len(self.rows) == self.n_rows else SPREAD_SHARE
        return MercerProposal(self.basis, self.frame, self.rows, lowest, share)

    def all_features(self, budget: int) -> Multisets | None:
        return None  # the orders never end

    def whole_degrees(self, budget: int) -> tuple[Multisets, int]:
        d = len(self.basis.bases)
        lowest = 0
        while lowest < MAX_WHOLE_ORDER:
            budget -= count_of_degree(d, lowest)
            if budget < 0:
                break
            lowest += 1
        whole = all_of_degrees(np.arange(d), range(lowest))
        kept = np.ones(len(whole), dtype=bool)
        kept[whole.owners[whole.orders >= self.basis.n_orders[whole.coordinates]]] = False
        return whole.take(np.flatnonzero(kept)), lowest


def _ranges(
    frame: Frame, X: NDArray[Any], points: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The interval of every coordinate: over all rows, or in a rotated frame over some, widened."""
    if frame.rotation is None:
        center = 0.0 if frame.center is None else frame.center
        return frame.scale * (X.min(axis=0) - center), frame.scale * (X.max(axis=0) - center)
    low, high = points.min(axis=0).astype(np.float64), points.max(axis=0).astype(np.float64)
    return low - 0.1 * (high - low), high + 0.1 * (high - low)


__all__ = ["MercerSpace", "MonomialSpace", "Proposal", "Space"]
