"""The ridge of a table that is too large to learn from whole: the sample's choice, on more rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelsieve._random import stream
from kernelsieve.models import KernelRidge, KernelRidgeCV
from kernelsieve.sources.stream import BlockSource
from kernelsieve.tables.encoder import TableEncoder
from kernelsieve.tables.table import Table, TableError, TableNotice, is_missing, notice

LARGE_ROWS = 500_000  # of a table; beyond, more rows only make the ridge more certain
ROWS_PER_FEATURE = 500  # the ridge of a large table loses a tenth of a per cent with so many
BATCH_ROWS = 50_000
SOLVED_ROWS = 200_000  # between two solutions of the ridge
FLOAT32_ROWS = 100_000


def in_float_type(X: Any, n_rows: int) -> Any:
    """Use float32 for models of many rows: half the memory and time."""
    return X.astype(np.float32) if n_rows >= FLOAT32_ROWS else X


@dataclass(frozen=True)
class LargeFit:
    """A model of a sample, to be fitted to more rows of the same table.

    Attributes
    ----------
    model : KernelRidgeCV or KernelRidge
        Fitted to the sample; its kernel, features and alpha stay.
    encoder : TableEncoder
    target : str
    alpha : float
    total : int
        Rows of the whole table.
    seed : int
    deadline : float
        The ``time.perf_counter()`` after which no batch is begun.
    n_jobs : int or None
    """

    model: Any
    encoder: TableEncoder
    target: str
    alpha: float
    total: int
    seed: int
    deadline: float
    n_jobs: int | None

    @property
    def wanted(self) -> int:
        """Rows beyond which more would not matter."""
        return ROWS_PER_FEATURE * int(self.model.features_.n_components_)

    def fit(self, batches: Iterable[Table], progress: Callable[[str], None]) -> tuple[Any, int]:
        """The model on all rows that are wanted, and how many rows were read."""
        ridge = KernelRidge(self.model.features_, alpha=self.alpha, n_jobs=self.n_jobs)
        waiting: list[tuple[Any, Any]] = []
        done = taken = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TableNotice)  # the sample gave them already
            for number, table in enumerate(batches):
                done += table.n_rows
                some = self._wanted_rows(table, number)
                if some.n_rows:
                    waiting.append(self._encoded(some))
                    taken += some.n_rows
                progress(f"fitting: {done / self.total:.0%} of {self.total:,} rows")
                enough = sum(len(y) for _, y in waiting) >= SOLVED_ROWS
                if waiting and (done >= self.total or enough):
                    ridge.partial_fit(BlockSource(waiting))
                    waiting = []
                    if time.perf_counter() > self.deadline:
                        break
        if done < self.total:
            notice(f"time_limit ended the fit after {done:,} of {self.total:,} rows")
        elif self.wanted < self.total:
            notice(
                f"fitted to {taken:,} of {self.total:,} rows: {ROWS_PER_FEATURE} for each feature"
            )
        learned = isinstance(self.model, KernelRidgeCV)
        return (self.model.with_ridge(ridge) if learned else ridge), done

    def _wanted_rows(self, table: Table, number: int) -> Table:
        """Rows of a batch with a target, at random as many as are wanted."""
        keys = stream(self.seed, "rows of the ridge", number).random(table.n_rows)
        known = ~is_missing(table.column(self.target)) & (keys * self.total < self.wanted)
        return table.take(np.flatnonzero(known))

    def _encoded(self, table: Table) -> tuple[Any, Any]:
        """Rows and targets as the ridge takes them."""
        values = table.column(self.target)
        if values.dtype.kind != "f" or not np.isfinite(values).all():
            raise TableError(f"{table.where}: the target {self.target!r} is not always a number")
        X = self.encoder.transform(table)
        if isinstance(self.model, KernelRidgeCV):
            values = self.model.learned_target(X, values)
        return in_float_type(X, self.total), values
