"""Sources derived from another source: folds of its rows, and functions of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._parallel import ordered_map
from kernelsieve._random import row_hashes
from kernelsieve.sources.base import BLOCK_ROWS, Block, Source
from kernelsieve.sources.blocks import aligned, joined
from kernelsieve.sources.changed import Changed


class Select(Protocol):
    """Selects rows by their numbers."""

    def __call__(self, block: Block) -> Block | None:
        """The selected rows of a block, with their numbers among the selected; None if none are."""

    def numbers(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert numbers among the selected rows to numbers among all rows."""

    def count(self, n_rows: int) -> int:
        """How many of the first rows are selected."""


class Selected(Changed):
    """Some rows of another source.

    Parameters
    ----------
    base : Source
    select : Select
    """

    def __init__(self, base: Source, select: Select) -> None:
        super().__init__(base, base.target_shape)
        self.select = select

    @property
    def shape(self) -> tuple[int, int]:
        n_rows, n_features = self.base.shape
        return self.select.count(n_rows), n_features

    def parts(self, size: int) -> Iterator[Block]:
        return aligned(filter(None, map(self.select, self.base.parts(size))), size)

    def take(self, rows: NDArray[np.int64]) -> Block:
        return replace(self.base.take(self.select.numbers(rows)), start=0)

    def expect(self, rows: NDArray[np.int64]) -> None:
        self.base.expect(self.select.numbers(rows))

    def map(
        self, function: Callable[[Block], Any], size: int = BLOCK_ROWS, n_jobs: int | None = None
    ) -> Iterator[Any]:
        found = super().map(function, size, n_jobs)
        return (result for result in found if result is not None)

    def _after_change(self, function: Callable[[Block], Any]) -> Callable[[Block], Any]:
        return _OfSelected(self.select, function)


@dataclass(frozen=True)
class Range:
    """The rows from ``start`` to ``stop``, or all others."""

    start: int
    stop: int
    inside: bool

    def __call__(self, block: Block) -> Block | None:
        first, last = np.clip([self.start, self.stop], block.start, block.start + len(block))
        first, last = int(first) - block.start, int(last) - block.start
        if self.inside:
            found = block.part(first, last)
            return replace(found, start=found.start - self.start) if last > first else None
        if last == first:
            shift = self.stop - self.start if block.start >= self.stop else 0
            return replace(block, start=block.start - shift)
        ends = [block.part(0, first), block.part(last, len(block))]
        ends[1] = replace(ends[1], start=self.start)
        kept = [end for end in ends if len(end)]
        return joined(kept) if kept else None

    def numbers(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert row numbers within the part to numbers among all rows."""
        if self.inside:
            return rows + self.start
        return np.where(rows < self.start, rows, rows + self.stop - self.start)

    def count(self, n_rows: int) -> int:
        """How many of the first rows are selected."""
        within = min(self.stop, n_rows) - min(self.start, n_rows)
        return within if self.inside else n_rows - within


@dataclass(frozen=True)
class Dealt:
    """One row of every ``hands`` consecutive ones, at a place that is drawn; or all others.

    Every group of so many rows gives one to each hand, so sorted rows are dealt evenly, and numbers
    can be converted without looking at other rows.
    """

    hands: int
    hand: int
    inside: bool

    def _places(self, groups: NDArray[np.int64]) -> NDArray[np.int64]:
        """The place of this hand's row in each group."""
        shifts = row_hashes(groups, 0, "dealt") % np.uint64(self.hands)
        return (shifts.astype(np.int64) + self.hand) % self.hands

    def _is_in_hand(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        groups, places = np.divmod(rows, self.hands)
        return self._places(groups) == places

    def __call__(self, block: Block) -> Block | None:
        rows = np.arange(block.start, block.start + len(block))
        kept = np.flatnonzero(self._is_in_hand(rows) == self.inside)
        if not len(kept):
            return None
        return replace(block.take(kept), start=self.count(block.start))

    def numbers(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert row numbers within the part to numbers among all rows."""
        if self.inside:
            return rows * self.hands + self._places(rows)
        groups, places = np.divmod(rows, self.hands - 1)
        return groups * self.hands + places + (places >= self._places(groups))

    def count(self, n_rows: int) -> int:
        """How many of the first rows are selected."""
        groups, left = divmod(n_rows, self.hands)
        within = groups + int(self._places(np.array([groups]))[0] < left)
        return within if self.inside else n_rows - within


@dataclass(frozen=True)
class _OfSelected:
    """A function of the selected rows of a block; None if there are none."""

    select: Select
    function: Callable[[Block], Any]

    def __call__(self, block: Block) -> Any:
        selected = self.select(block)
        return None if selected is None else self.function(selected)


def folds(source: Source, count: int) -> Iterator[tuple[Source, Source]]:
    """Yield (training rows, test rows) for ``count`` folds of consecutive rows."""
    sizes = np.full(count, source.shape[0] // count)
    sizes[: source.shape[0] % count] += 1
    for stop, size in zip(np.cumsum(sizes).tolist(), sizes.tolist(), strict=True):
        part = Range(stop - size, stop, True)
        yield Selected(source, replace(part, inside=False)), Selected(source, part)


def dealt_rows(n_rows: int, count: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The numbers of the rows that ``dealt_folds`` yields."""
    for hand in range(count):
        parts = Dealt(count, hand, False), Dealt(count, hand, True)
        train, test = (part.numbers(np.arange(part.count(n_rows))) for part in parts)
        yield train, test


def dealt_folds(source: Source, count: int) -> Iterator[tuple[Source, Source]]:
    """Yield (training rows, test rows) for ``count`` folds of rows that are dealt at random."""
    for hand in range(count):
        yield (
            Selected(source, Dealt(count, hand, False)),
            Selected(source, Dealt(count, hand, True)),
        )


class Mapped(Source):
    """A function of the rows of another source, evaluated block by block on demand.

    Parameters
    ----------
    base : Source
    function : callable
        Takes a block of rows and returns a block with as many rows.
    n_features : int
        Number of columns of the result.
    """

    def __init__(self, base: Source, function: Callable[[Any], Any], n_features: int) -> None:
        self.base, self.function, self.n_features = base, function, n_features
        self.target_shape = base.target_shape
        first = function(base.head(1).X)
        self.sparse, self.dtype = sp.issparse(first), first.dtype

    @property
    def shape(self) -> tuple[int, int]:
        return self.base.shape[0], self.n_features

    def _changed(self, block: Block) -> Block:
        return replace(block, X=self.function(block.X))

    def parts(self, size: int) -> Iterator[Block]:
        return ordered_map(self._changed, self.base.parts(size))

    def take(self, rows: NDArray[np.int64]) -> Block:
        return self._changed(self.base.take(rows))
