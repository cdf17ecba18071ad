"""Sources of rows that are expensive to read one by one."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from kernelsieve.sources.base import Block, Source


class Fetching(Source):
    """Rows that are expensive to read one by one: expected rows are fetched together."""

    _expected: NDArray[np.int64] = np.empty(0, dtype=np.int64)
    _taken: tuple[NDArray[np.int64], Block] | None = None

    @abstractmethod
    def fetch(self, rows: NDArray[np.int64]) -> Block:
        """Read some rows into memory: ``take`` calls it for rows that it does not hold yet.

        Parameters
        ----------
        rows : ndarray of int of shape (m,)
            Their numbers, in ascending order.

        Returns
        -------
        Block
        """

    def expect(self, rows: NDArray[np.int64]) -> None:
        if not self._has(rows):
            self._expected = np.union1d(self._expected, rows)

    def take(self, rows: NDArray[np.int64]) -> Block:
        if len(rows) == 0:
            return self.head(1).take(rows)
        if not self._has(rows):
            self.expect(rows)
            self.keep(self._expected, self.fetch(self._expected))
        assert self._taken is not None
        return self._taken[1].take(np.searchsorted(self._taken[0], rows))

    def keep(self, rows: NDArray[np.int64], block: Block) -> None:
        """Keep rows that were expected, for later calls of ``take``.

        Parameters
        ----------
        rows : ndarray of int of shape (m,)
            Their numbers, in ascending order.
        block : Block
            The rows.
        """
        self._taken, self._expected = (rows, block), np.empty(0, dtype=np.int64)

    def _has(self, rows: NDArray[np.int64]) -> bool:
        return self._taken is not None and bool(np.isin(rows, self._taken[0]).all())
