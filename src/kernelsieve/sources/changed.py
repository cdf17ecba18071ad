"""Sources whose blocks are changed where they are: here, rows with another target."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.sources.base import BLOCK_ROWS, Block, Source

if TYPE_CHECKING:
    from kernelsieve.sources.summaries import Moments


class Changed(Source):
    """Transformed blocks of another source; the work is still done where its blocks are."""

    def __init__(self, base: Source, target_shape: tuple[int, ...] | None) -> None:
        self.base, self.target_shape = base, target_shape
        self.sparse, self.dtype, self.names = base.sparse, base.dtype, base.names

    @abstractmethod
    def _after_change(self, function: Callable[[Block], Any]) -> Callable[[Block], Any]:
        """Compose ``function`` with the change from a block of the base to one of ours."""

    def map(
        self, function: Callable[[Block], Any], size: int = BLOCK_ROWS, n_jobs: int | None = None
    ) -> Iterator[Any]:
        return self.base.map(self._after_change(function), size, n_jobs)

    def reduce(
        self,
        function: Callable[[Block], Any],
        size: int = BLOCK_ROWS,
        n_jobs: int | None = None,
        description: str = "Rows",
        verbose: int = 0,
    ) -> Any:
        changed = self._after_change(function)
        return self.base.reduce(changed, size, n_jobs, description, verbose)


class Retargeted(Changed):
    """The rows of another source, with another target.

    Parameters
    ----------
    base : Source
    change : callable
        Takes a block and the numbers of its rows, and returns the block with its new target. It
        is sent to where the blocks are, without the source.
    target_shape : tuple of int or None
    """

    def __init__(
        self,
        base: Source,
        change: Callable[[Block, Any], Block],
        target_shape: tuple[int, ...] | None,
    ) -> None:
        super().__init__(base, target_shape)
        self.change = change

    @property
    def shape(self) -> tuple[int, int]:
        return self.base.shape

    @property
    def resident(self) -> bool:
        return self.base.resident

    @property
    def stored(self) -> Any:
        return self.base.stored

    @property
    def known_moments(self) -> Moments | None:
        return self.base.known_moments

    @known_moments.setter
    def known_moments(self, moments: Moments | None) -> None:
        self.base.known_moments = moments

    def parts(self, size: int) -> Iterator[Block]:
        return (self.change(block, block.rows) for block in self.base.parts(size))

    def take(self, rows: NDArray[np.int64]) -> Block:
        return self.change(self.base.take(rows), rows)

    def head(self, count: int) -> Block:
        block = self.base.head(count)
        return self.change(block, block.rows)

    def expect(self, rows: NDArray[np.int64]) -> None:
        self.base.expect(rows)

    def _after_change(self, function: Callable[[Block], Any]) -> Callable[[Block], Any]:
        return _Then(self.change, function)

    def in_memory(self, who: str) -> Any:
        return self.base.in_memory(who)


@dataclass(frozen=True)
class _Then:
    """A function of blocks, applied after their targets are changed."""

    change: Callable[[Block, Any], Block]
    function: Callable[[Block], Any]

    def __call__(self, block: Block) -> Any:
        return self.function(self.change(block, block.rows))


@dataclass(frozen=True)
class _ByNumber:
    """Look up targets and weights by row number."""

    y: Any
    weights: Any

    def __call__(self, block: Block, rows: Any) -> Block:
        y = block.y if self.y is None else np.asarray(self.y[rows])
        weights = block.weights if self.weights is None else np.asarray(self.weights[rows])
        return replace(block, y=y, weights=weights)


@dataclass(frozen=True)
class _Recode:
    """A function of the targets and weights of a block."""

    function: Callable[[Any, Any], tuple[Any, Any]]

    def __call__(self, block: Block, rows: Any) -> Block:
        try:
            y, weights = self.function(block.y, block.weights)
        except ValueError as error:
            raise ValueError(f"{error} (among the {block.name})") from error
        return replace(block, y=y, weights=weights)


def recoded(
    source: Source,
    function: Callable[[Any, Any], tuple[Any, Any]],
    target_shape: tuple[int, ...] | None,
) -> Source:
    """Return the same rows with transformed targets and weights."""
    return Retargeted(source, _Recode(function), target_shape)


def with_numbered_targets(
    source: Source, y: Any, weights: Any, target_shape: tuple[int, ...] | None
) -> Source:
    """Return the same rows with targets and weights that are looked up by row number."""
    return Retargeted(source, _ByNumber(y, weights), target_shape)
