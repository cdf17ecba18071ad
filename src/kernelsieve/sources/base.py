"""Rows that come in blocks: one interface for data in memory, in files and on other machines.

Every fit reads its rows through a ``Source``: in passes that add up small summaries of blocks
(``reduce``), and by taking some rows by their numbers (``take``).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._files import replacing
from kernelsieve._parallel import ordered_map, row_blocks
from kernelsieve._progress import track_rows

if TYPE_CHECKING:
    from kernelsieve.sources.summaries import Moments, TargetSummary

BLOCK_ROWS = 4096  # rows in the block that one summary covers


@dataclass(frozen=True)
class Block:
    """Consecutive rows.

    Attributes
    ----------
    X : {ndarray, CSR} of shape (n, d)
    y : ndarray of shape (n,) or (n, n_outputs), or None
    weights : ndarray of shape (n,) or None
    start : int
        The number of the first row of the block among all rows.
    """

    X: Any
    y: Any = None
    weights: Any = None
    start: int = 0

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @property
    def rows(self) -> slice:
        """The place of the block among all rows."""
        return slice(self.start, self.start + len(self))

    @property
    def name(self) -> str:
        """The rows of the block, in words for messages."""
        return f"rows {self.start} to {self.start + len(self) - 1}"

    @property
    def weights_or_ones(self) -> NDArray[np.float64]:
        """The weights of the rows, 1 each where none were given."""
        if self.weights is None:
            return np.ones(len(self))
        return np.asarray(self.weights, dtype=np.float64)

    def part(self, start: int, stop: int) -> Block:
        """Rows from ``start`` to ``stop`` of this block, without a copy."""
        return Block(
            rows_between(self.X, start, stop),
            None if self.y is None else self.y[start:stop],
            None if self.weights is None else self.weights[start:stop],
            self.start + start,
        )

    def take(self, rows: NDArray[np.int64]) -> Block:
        """Rows by their numbers within this block."""
        return Block(
            self.X[rows],
            None if self.y is None else self.y[rows],
            None if self.weights is None else self.weights[rows],
        )


def rows_between(X: Any, start: int, stop: int) -> Any:
    """Return consecutive rows as a view; scipy would copy a slice of CSR rows."""
    if not sp.issparse(X):
        return X[start:stop]
    first, last = X.indptr[start], X.indptr[stop]
    view = type(X)((stop - start, X.shape[1]), dtype=X.dtype)
    view.data, view.indices = X.data[first:last], X.indices[first:last]
    view.indptr = X.indptr[start : stop + 1] - first
    return view


class Source(ABC):
    """Rows of a table that need not be in memory, with their target if there is one.

    Attributes
    ----------
    shape : tuple of int
        Number of rows and columns.
    dtype : numpy.dtype
        Float type of the rows: float32 or float64.
    sparse : bool
        Whether blocks are CSR.
    names : list of str or None
        Column names; None if the columns have none.
    target_shape : tuple of int or None
        () for one number or label per row, (n_outputs,) for several; None without a target.
    """

    dtype: np.dtype[Any]
    sparse: bool
    names: list[str] | None = None
    target_shape: tuple[int, ...] | None
    known_moments: Moments | None = None  # of the rows, kept once a pass has found them
    known_targets: TargetSummary | None = None  # the same of the targets

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]: ...

    @property
    def resident(self) -> bool:
        """Whether all rows are in memory already."""
        return False

    @property
    def stored(self) -> Any:
        """All rows as a matrix that is mapped from a file; None if there is none."""
        return None

    @property
    def size(self) -> int:
        """Number of rows times number of columns."""
        return self.shape[0] * self.shape[1]

    @abstractmethod
    def parts(self, size: int) -> Iterator[Block]:
        """Iterate over all rows in blocks.

        Parameters
        ----------
        size : int
            Number of rows in a block; the last block may be shorter.

        Yields
        ------
        Block
        """

    @abstractmethod
    def take(self, rows: NDArray[np.int64]) -> Block:
        """Read some rows into memory.

        Parameters
        ----------
        rows : ndarray of int of shape (m,)
            Their numbers, in ascending order.

        Returns
        -------
        Block
        """

    def expect(self, rows: NDArray[np.int64]) -> None:  # noqa: B027 (most have nothing to do)
        """Announce rows that will be taken, so that the next pass can collect them.

        Parameters
        ----------
        rows : ndarray of int of shape (m,)
            Their numbers, in ascending order.
        """

    def head(self, count: int) -> Block:
        """Read the first rows into memory.

        Parameters
        ----------
        count : int
            Number of rows; all of them if there are fewer.

        Returns
        -------
        Block
        """
        return self.take(np.arange(min(count, self.shape[0])))

    def __getitem__(self, rows: NDArray[np.int64]) -> Any:
        return self.take(rows).X

    def map(
        self, function: Callable[[Block], Any], size: int = BLOCK_ROWS, n_jobs: int | None = None
    ) -> Iterator[Any]:
        """Apply a function to all blocks.

        Parameters
        ----------
        function : callable
            Takes a `Block`. It runs where the blocks are, so it must not hold the source.
        size : int, default 4096
            Number of rows in a block; the last block may be shorter.
        n_jobs : int, optional
            Number of threads; None uses all cores.

        Yields
        ------
        object
            The results, in the order of the rows.
        """
        return ordered_map(function, self.parts(size), n_jobs)

    def reduce(
        self,
        function: Callable[[Block], Any],
        size: int = BLOCK_ROWS,
        n_jobs: int | None = None,
        description: str = "Rows",
        verbose: int = 0,
    ) -> Any:
        """Sum a function over all blocks, with ``+=``.

        Parameters
        ----------
        function : callable
            Takes a `Block`. It runs where the blocks are, so it must not hold the source.
        size : int, default 4096
            Number of rows in a block; the last block may be shorter.
        n_jobs : int, optional
            Number of threads; None uses all cores.
        description : str
            What a progress bar is called.
        verbose : int, default 0
            1 shows a progress bar.

        Returns
        -------
        object
            The sum; its bits do not depend on the number of threads.
        """
        if not verbose:
            return added(self.map(function, size, n_jobs))
        counted = self.map(lambda block: (len(block), function(block)), size, n_jobs)
        return added(track_rows(counted, self.shape[0], description, verbose))

    def in_memory(self, who: str) -> Any:
        """Return all rows as one matrix, if they are in memory.

        Parameters
        ----------
        who : str
            What needs them, for the error message.

        Returns
        -------
        {ndarray, CSR} of shape (n, d)

        Raises
        ------
        ValueError
            If the rows come block by block.
        """
        raise ValueError(
            f"{who} looks at all rows at once, but a {type(self).__name__} yields them block by "
            "block: pass an array, or use a method that streams (AdaptiveFeatures and "
            "RowNormFeatures with their default samplers, FourierFeatures, or NystromFeatures with "
            "landmarks='uniform')"
        )

    def blocks(self, size: int = BLOCK_ROWS) -> Iterator[Any]:
        """Iterate over the rows, ``size`` at a time.

        Parameters
        ----------
        size : int, default 4096
            Number of rows in a block; the last block may be shorter.

        Yields
        ------
        X : {ndarray, CSR} of shape (size, d)

        Examples
        --------
        >>> import numpy as np
        >>> from kernelsieve.sources import BlockSource
        >>> source = BlockSource([np.zeros((3, 2)), np.ones((4, 2))])
        >>> [X.shape for X in source.blocks(5)]
        [(5, 2), (2, 2)]
        """
        return (block.X for block in self.parts(size))

    def save(self, path: str | os.PathLike[str], verbose: int = 0) -> None:
        """Write all rows, which must be dense, to a .npy file.

        The file appears only when it is complete: after an error an existing file is unchanged.

        Parameters
        ----------
        path : str or path
        verbose : int, default 0
            1 shows a progress bar.
        """
        if self.sparse:
            raise ValueError(
                "a .npy file holds dense rows, and these are sparse: write the blocks of blocks()"
            )
        target = Path(path)
        with replacing(target) as file:
            header = {"descr": self.dtype.str, "fortran_order": False, "shape": self.shape}
            np.lib.format.write_array_header_2_0(file, header)
            counted = ((len(block), block.X) for block in self.parts(BLOCK_ROWS))
            for X in track_rows(counted, self.shape[0], f"Writing {target.name}", verbose):
                file.write(np.ascontiguousarray(X).data)

    def with_targets(self, y: Any, weights: Any = None) -> Source:
        """Return the same rows with other targets and weights.

        Parameters
        ----------
        y : array-like of shape (n,) or (n, n_outputs), or None
            Targets, in memory or memory-mapped; None keeps those of this source.
        weights : array-like of shape (n,), optional
            Sample weights; None keeps those of this source.

        Returns
        -------
        Source
        """
        n_rows = self.shape[0]
        for values, name in ((y, "y"), (weights, "sample_weight")):
            if values is not None and len(values) != n_rows:
                raise ValueError(f"{name} has {len(values)} rows and X has {n_rows}")
        shape = self.target_shape if y is None else np.shape(y)[1:]
        from kernelsieve.sources.changed import with_numbered_targets

        return with_numbered_targets(self, y, weights, shape)


def added(parts: Iterable[Any]) -> Any:
    """Add summaries to the first with ``+=``; None stands for no rows."""
    total: Any = None
    for part in parts:
        if total is None:
            total = part
        elif part is not None:
            total += part
    return total


class ArraySource(Source):
    """Rows in memory that are valid already."""

    def __init__(self, X: Any, y: Any = None, weights: Any = None) -> None:
        self.block = Block(X, y, weights)
        self.sparse, self.dtype = sp.issparse(X), X.dtype
        self.target_shape = None if y is None else np.shape(y)[1:]

    @property
    def shape(self) -> tuple[int, int]:
        return self.block.X.shape

    def parts(self, size: int) -> Iterator[Block]:
        return (self.block.part(rows.start, rows.stop) for rows in row_blocks(self.shape[0], size))

    def take(self, rows: NDArray[np.int64]) -> Block:
        if len(rows) == self.shape[0]:  # rising, and so all of them
            return self.block
        return self.block.take(rows)

    @property
    def resident(self) -> bool:
        return True

    def in_memory(self, who: str) -> Any:
        return self.block.X
