"""The row-norm distribution of product Mercer features: a row, then an order per coordinate."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native.mercer import draw_mercer
from kernelsieve._native.row_norm import coordinate_words
from kernelsieve.sampling.distinct import Draws
from kernelsieve.sampling.frame import Frame
from kernelsieve.sampling.mercer_basis import MercerBasis
from kernelsieve.sampling.product_features import ProductFeatures


class MercerProposal:
    """Products in proportion to their squared norm over some rows.

    Parameters
    ----------
    basis, frame
    rows : ndarray of shape (n_rows, d)
        The proposal rows.
    share : float
        The share of the draws that takes every coordinate from its own marginal distribution,
        independently. It is positive on every feature, also on those that hardly show on the
        proposal rows.
    """

    FLOOR = 1e-4  # of a marginal, spread over all orders: keeps it positive on each of them

    def __init__(self, basis: MercerBasis, frame: Frame, rows: Any, share: float = 0.0) -> None:
        self.basis, self.rows, self.share = basis, rows, share
        points = frame.points(rows)
        n_rows, d = points.shape
        self._offsets = np.concatenate([[0], np.cumsum(basis.n_orders)])
        self._cumulative = np.empty((n_rows + 1, self._offsets[-1]))
        log_ground = np.zeros((n_rows + 1, d + 1))
        self._log_marginals = np.empty(self._offsets[-1])
        for i in range(d):
            columns = slice(self._offsets[i], self._offsets[i + 1])
            squares = basis.squares(i, np.ascontiguousarray(points[:, i]))
            marginal = self._marginal(basis.bases[i].masses, squares.shape[0])
            self._log_marginals[columns] = np.log(marginal)
            both = np.concatenate([squares, marginal[:, None]], axis=1)
            both /= both.sum(axis=0)  # what the orders not kept would have taken
            self._cumulative[:, columns] = np.cumsum(both, axis=0).T
            with np.errstate(divide="ignore"):
                log_ground[:, i + 1] = log_ground[:, i] + np.log(both[0])
        self._log_ground = log_ground
        self._words = coordinate_words(d)

    def _marginal(self, masses: NDArray[np.float64], n_orders: int) -> NDArray[np.float64]:
        marginal = masses[:n_orders] / masses[:n_orders].sum()
        return (1.0 - self.FLOOR) * marginal + self.FLOOR / n_orders

    def draw(self, size: int, rng: np.random.Generator) -> Draws:
        """``size`` draws as (hashes, ends, coordinates, orders)."""
        n_rows = self.rows.shape[0]
        rows = rng.integers(n_rows, size=size)
        rows[rng.random(size) < self.share] = n_rows
        hashes, ends = np.empty(size, dtype=np.uint64), np.empty(size, dtype=np.int64)
        atoms = 8 * size + self._log_ground.shape[1]
        state = rng.bit_generator.state
        while True:
            rng.bit_generator.state = state  # a second try must repeat the same draws
            coordinates = np.empty(atoms, dtype=np.int64)
            orders = np.empty(atoms, dtype=np.int64)
            written = draw_mercer(
                self._cumulative,
                self._offsets,
                self._log_ground,
                rows,
                self._words,
                rng,
                hashes,
                ends,
                coordinates,
                orders,
            )
            if written >= 0:
                return hashes, ends, coordinates[:written], orders[:written]
            atoms *= 2

    def probabilities(self, features: ProductFeatures, n_jobs: int | None) -> NDArray[np.float64]:
        """P_m of unweighted ``features`` under one draw, by column."""
        squares = features.squared_norms(self.rows, n_jobs)
        probabilities = squares * ((1.0 - self.share) / self.rows.shape[0])
        if self.share > 0:
            probabilities += self.share * np.exp(self._log_independent(features))
        return probabilities

    def _log_independent(self, features: ProductFeatures) -> NDArray[np.float64]:
        """log of the product of the marginals."""
        multisets = features.multisets
        ground = self._log_marginals[self._offsets[:-1]]
        excited = self._log_marginals[self._offsets[multisets.coordinates] + multisets.orders]
        change = excited - ground[multisets.coordinates]
        return ground.sum() + np.bincount(
            multisets.owners, weights=change, minlength=len(multisets)
        )
