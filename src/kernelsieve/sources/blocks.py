"""A source of blocks that somebody else makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

from kernelsieve.sources.stream import StreamSource


class BlockSource(StreamSource):
    """Blocks of rows from a list, or from a function that starts them anew for every pass.

    Parameters
    ----------
    blocks : iterable of blocks, or function that returns one
        A block is X, or a pair (X, y). X is of shape (n, d), an array, a data frame or CSR, with
        the same columns and float type in all blocks. What can be gone through only once (a
        generator) is refused: pass the function that makes it.
    names : list of str, optional
        Of the columns.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import KernelRidge, RowNormFeatures
    >>> from kernelsieve.sources import BlockSource
    >>> def blocks():
    ...     for seed in range(10):
    ...         X = np.random.default_rng(seed).normal(size=(100, 3))
    ...         yield X, X[:, 0] * X[:, 1]
    >>> model = KernelRidge(RowNormFeatures(50, random_state=0), alpha=1e-3)
    >>> model.fit(BlockSource(blocks)).coef_.shape
    (50,)
    """

    where = "the blocks"

    def __init__(
        self, blocks: Iterable[Any] | Callable[[], Iterable[Any]], *, names: Any = None
    ) -> None:
        super().__init__(None, None)
        if not callable(blocks) and iter(blocks) is blocks:
            raise TypeError(
                f"blocks={blocks!r} can be gone through only once, and a fit needs several passes: "
                "pass the function that makes it"
            )
        self._make: Callable[[], Iterable[Any]]
        self._make = blocks if callable(blocks) else lambda: blocks
        self.names = None if names is None else [str(name) for name in names]
        if isinstance(blocks, Sized):
            self.n_blocks = len(blocks)

    def raw_blocks(self) -> Iterator[tuple[Any, Any]]:
        for block in self._make():
            X, y = block if isinstance(block, tuple) else (block, None)
            if self.names is None and hasattr(X, "columns"):
                self.names = [str(name) for name in X.columns]
            yield X, y
