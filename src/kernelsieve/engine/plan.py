"""The rows that a fit looks at one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._random import keyed_rows
from kernelsieve.engine.options import DEFAULTS, EngineOptions
from kernelsieve.sources.base import as_source
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
