"""Sources made of another one: folds of its rows, and functions of them."""

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
    """Some consecutive rows of another source, or all others.

    Parameters
    ----------
    base : Source
    start, stop : int
    inside : bool
        Whether these are the rows from ``start`` to ``stop``, or the rest.
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
    """The rows of a block that are in a part, numbered as they are there."""

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
        """The numbers that rows of the part have among all."""
        if self.inside:
            return rows + self.start
        return np.where(rows < self.start, rows, rows + self.stop - self.start)


@dataclass(frozen=True)
class _OfSelected:
    """A function of what is selected of a block; None where that is nothing."""

    select: _Select
    function: Callable[[Block], Any]

    def __call__(self, block: Block) -> Any:
        selected = self.select(block)
        return None if selected is None else self.function(selected)


def folds(source: Source, count: int) -> Iterator[tuple[Source, Source]]:
    """For each of ``count`` folds of consecutive rows: the others, and the fold."""
    sizes = np.full(count, source.shape[0] // count)
    sizes[: source.shape[0] % count] += 1
    for stop, size in zip(np.cumsum(sizes).tolist(), sizes.tolist(), strict=True):
        yield Part(source, stop - size, stop, False), Part(source, stop - size, stop, True)


class Mapped(Source):
    """A function of the rows of another source, made block by block when it is asked for.

    Parameters
    ----------
    base : Source
    function : callable
        From a block of rows to as many others.
    n_features : int
        How many columns they have.
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
