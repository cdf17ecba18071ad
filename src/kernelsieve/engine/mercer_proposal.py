"""The row-norm distribution of product Mercer features: a row, then an order per coordinate."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native.hashing import coordinate_words
from kernelsieve._native.mercer import chances_of_more, draw_mercer
from kernelsieve.engine.distinct import Draws, write_draws
from kernelsieve.products.frame import Frame
from kernelsieve.products.mercer_basis import MercerBasis
from kernelsieve.products.product_features import ProductFeatures
from kernelsieve.sources.summaries import weighted_counts


class MercerProposal:
    """Products of total order >= ``lowest``, in proportion to their squared norm over some rows.

    Parameters
    ----------
    basis, frame
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
        self, basis: MercerBasis, frame: Frame, rows: Any, lowest: int, share: float = 0.0
    ) -> None:
        self.rows, self.share = rows, share
        points = frame.points(rows)
        n_rows, d = points.shape
        self._offsets = np.concatenate([[0], np.cumsum(basis.n_orders)])
        # The last row is not one of the data: it holds the marginals.
        self._squares = np.empty((n_rows + 1, self._offsets[-1]))
        self._log_ground = np.zeros((n_rows + 1, d + 1))
        for i in range(d):
            orders = slice(self._offsets[i], self._offsets[i + 1])
            squares = basis.squares(i, np.ascontiguousarray(points[:, i])).T
            squares /= squares.sum(axis=1, keepdims=True)  # less what the orders not kept have
            self._squares[:-1, orders] = squares
            self._squares[-1, orders] = self._marginal(basis.bases[i].masses, squares.shape[1])
            with np.errstate(divide="ignore"):
                ground = np.log(self._squares[:, self._offsets[i]])
            self._log_ground[:, i + 1] = self._log_ground[:, i] + ground
        self._chances = np.empty((n_rows + 1, d + 1, lowest + 1))
        chances_of_more(self._squares, self._offsets, self._chances)
        self._cumulative = np.cumsum(self._chances[:-1, 0, lowest])
        self._words = coordinate_words(d)

    @property
    def is_empty(self) -> bool:
        """Whether no feature is left to draw."""
        return not self._cumulative[-1] > 0

    def _marginal(self, masses: NDArray[np.float64], n_orders: int) -> NDArray[np.float64]:
        marginal = masses[:n_orders] / masses[:n_orders].sum()
        return (1.0 - self.FLOOR) * marginal + self.FLOOR / n_orders

    def draw(self, size: int, rng: np.random.Generator) -> Draws:
        """``size`` draws as (hashes, ends, coordinates, orders)."""
        n_rows, cumulative = self.rows.shape[0], self._cumulative
        rows = np.searchsorted(cumulative, rng.random(size) * cumulative[-1], side="right")
        rows = np.minimum(rows, n_rows - 1)
        rows[rng.random(size) < self.share] = n_rows
        write = partial(
            draw_mercer,
            self._squares,
            self._offsets,
            self._log_ground,
            self._chances,
            rows,
            self._words,
        )
        return write_draws(size, rng, write, self._log_ground.shape[1])

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
        excited = log_marginals[self._offsets[multisets.coordinates] + multisets.orders]
        change = excited - ground[multisets.coordinates]
        return ground.sum() + weighted_counts(multisets.owners, change, len(multisets))
