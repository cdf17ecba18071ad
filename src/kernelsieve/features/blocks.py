"""The features of many rows as a matrix that iterative solvers apply block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve.linalg.operators import multiplied
from kernelsieve.sources.base import Block, Source
from kernelsieve.sources.blocks import targets_of

KEPT_BYTES = 2**31  # features are kept up to this size, and computed again in every pass beyond

Array = NDArray[np.float64]


class FeatureBlocks:
    """The features of all rows as a matrix Z that is applied block by block.

    Blocks of features are kept while there is room for them, and computed again for every pass
    otherwise.

    Parameters
    ----------
    evaluate : callable
        From a block of rows to its features, dense or CSR.
    rows : Source
        With targets of shape (n, n_outputs).
    block_rows : int
    n_jobs : int or None
    """

    def __init__(
        self,
        evaluate: Callable[[Any], Any],
        rows: Source,
        block_rows: int,
        n_jobs: int | None,
    ) -> None:
        self.evaluate, self.rows = evaluate, rows
        self.block_rows, self.n_jobs = block_rows, n_jobs
        self._kept: dict[int, Any] = {}
        self._room = KEPT_BYTES

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.rows.shape[0]

    def targets(self) -> Block:
        """The targets and weights of all rows."""
        return targets_of(self.rows)

    def _features(self, block: Block) -> Any:
        Z = self._kept.get(block.start)
        if Z is None:
            Z = self.evaluate(block.X)
            size = Z.data.nbytes + Z.indices.nbytes if sp.issparse(Z) else Z.nbytes
            if size <= self._room:  # threads may overshoot by a block each
                self._room -= size
                self._kept[block.start] = Z
        return Z

    def _of_block(self, function: Callable[[Any, Block], Any]) -> Callable[[Block], Any]:
        # Rows that are not in memory may be far away: what travels there is the map alone.
        if self.rows.resident:
            return lambda block: function(self._features(block), block)
        evaluate = self.evaluate
        return lambda block: function(evaluate(block.X), block)

    def map(self, function: Callable[[Any, Block], Any]) -> Iterator[Any]:
        """``function(Z, block)`` of every block, in order."""
        return self.rows.map(self._of_block(function), self.block_rows, self.n_jobs)

    def reduce(self, function: Callable[[Any, Block], Any]) -> Any:
        """The sum of ``function(Z, block)`` over all blocks."""
        return self.rows.reduce(self._of_block(function), self.block_rows, self.n_jobs)

    def times(self, V: Array) -> Array:
        """Z V."""
        return np.concatenate(list(self.map(lambda Z, _: multiplied(Z, V))))

    def transposed_times(self, R: Array) -> Array:
        """Z^T R."""
        return self.reduce(lambda Z, block: multiplied(Z.T, R[block.rows]))

    def gram_times(self, V: Array) -> Array:
        """Z^T W Z V in one pass."""

        def summary(Z: Any, block: Block) -> Array:
            image = multiplied(Z, V)
            weights = block.weights
            return multiplied(Z.T, image if weights is None else image * weights[:, None])

        return self.reduce(summary)
