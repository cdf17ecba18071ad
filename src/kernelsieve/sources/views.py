"""Sources derived from another source: folds of its rows, and functions of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._parallel import ordered_map
from kernelsieve.sources.base import BLOCK_ROWS, Block, Changed, Source, aligned, joined


class Part(Changed):
    """A range of rows of another source, or all rows outside it.

    Parameters
    ----------
    base : Source
    start, stop : int
    inside : bool
        Whether to take the rows from ``start`` to ``stop``, or all others.
    """

    def __init__(self, base: Source, start: int, stop: int, inside: bool) -> None:
        super().__init__(base, base.target_shape)
        self.select = _Select(start, stop, inside)

    @property
    def shape(self) -> tuple[int, int]:
        n_rows, n_features = self.base.shape
        within = self.select.stop - self.select.start
        return within if self.select.inside else n_rows - within, n_features

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
class _Select:
    """Select the rows of a block that belong to a part, with their numbers in that part."""

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


@dataclass(frozen=True)
class _OfSelected:
    """A function of the selected rows of a block; None if there are none."""

    select: _Select
    function: Callable[[Block], Any]

    def __call__(self, block: Block) -> Any:
        selected = self.select(block)
        return None if selected is None else self.function(selected)


def folds(source: Source, count: int) -> Iterator[tuple[Source, Source]]:
    """Yield (training rows, test rows) for ``count`` folds of consecutive rows."""
    sizes = np.full(count, source.shape[0] // count)
    sizes[: source.shape[0] % count] += 1
    for stop, size in zip(np.cumsum(sizes).tolist(), sizes.tolist(), strict=True):
        yield Part(source, stop - size, stop, False), Part(source, stop - size, stop, True)


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
