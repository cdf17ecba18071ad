"""Rows that come in blocks: one interface for data in memory, in files and on other machines.

Every fit reads its rows through a ``Source``: in passes that add up small summaries of blocks
(``reduce``), and by taking some rows by their numbers (``take``).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._files import replacing
from kernelsieve._parallel import ordered_map, row_blocks
from kernelsieve._progress import track_rows

Method = TypeVar("Method", bound=Callable[..., Any])

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


def joined(blocks: list[Block]) -> Block:
    """Join consecutive blocks into one."""
    first = blocks[0]
    if len(blocks) == 1:
        return first
    stack = partial(sp.vstack, format="csr") if sp.issparse(first.X) else np.concatenate
    return Block(
        stack([block.X for block in blocks]),
        None if first.y is None else np.concatenate([block.y for block in blocks]),
        None if first.weights is None else np.concatenate([block.weights for block in blocks]),
        first.start,
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

    @property
    def rows_cache(self) -> dict[str, Any]:
        """Summaries of the rows, kept for later use."""
        return self.__dict__.setdefault("_rows_cache", {})

    @property
    def target_cache(self) -> dict[str, Any]:
        """Summaries of the target, kept for later use."""
        return self.__dict__.setdefault("_target_cache", {})

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
        return View(self, _ByNumber(y, weights), shape)


def check_source(estimator: Any, source: Source, reset: bool) -> None:
    """Remember the columns of a source, or compare them, as scikit-learn does with arrays."""
    if not reset:
        check_columns(estimator, source.shape[1], source.names)
        return
    estimator.n_features_in_ = source.shape[1]
    estimator.__dict__.pop("feature_names_in_", None)
    if source.names is not None:
        estimator.feature_names_in_ = np.array(source.names, dtype=object)


def check_columns(estimator: Any, n_features: int, names: list[str] | None) -> None:
    """Refuse columns that are not those of the fit."""
    if n_features != estimator.n_features_in_:
        raise ValueError(
            f"X has {n_features} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input"
        )
    known = getattr(estimator, "feature_names_in_", None)
    if known is not None and names is not None and list(known) != names:
        raise ValueError(f"X has the columns {names}, but fit had {list(known)}")


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


def is_dask(X: Any) -> bool:
    """Whether X is a Dask array, data frame or series; does not import Dask to find out."""
    if not hasattr(type(X), "__dask_graph__"):
        return False
    from dask.base import is_dask_collection

    return bool(is_dask_collection(X))


def as_source(X: Any) -> Source:
    """Return a source as it is, and make one of a Dask collection or of valid rows in memory."""
    source = given_source(X)
    return ArraySource(X) if source is None else source


def given_source(X: Any, y: Any = None, weights: Any = None) -> Source | None:
    """Return the source that X is, or makes as a Dask collection, with its targets and weights.

    None if X is neither: then it has to be validated as an array first.
    """
    if is_dask(X):
        from kernelsieve.sources.dask import DaskSource

        return DaskSource(X, y, weights)
    if not isinstance(X, Source) or (y is None and weights is None):
        return X if isinstance(X, Source) else None
    return X.with_targets(None if y is None else np.asanyarray(y), weights)


def lazy_on_dask(method: Method) -> Method:
    """Make a method of an estimator return lazy Dask arrays for Dask collections.

    The method takes rows as its first argument and returns an array, or a tuple of arrays, with
    one entry for every row.
    """

    @wraps(method)
    def applied(self: Any, X: Any, *arguments: Any, **options: Any) -> Any:
        if is_dask(X):
            from kernelsieve.sources.dask import apply_lazily

            return apply_lazily(self, method.__name__, X, *arguments, **options)
        return method(self, X, *arguments, **options)

    return cast(Method, applied)


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


class View(Changed):
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
    def rows_cache(self) -> dict[str, Any]:
        return self.base.rows_cache

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
    return View(source, _Recode(function), target_shape)


def aligned(blocks: Iterable[Block], size: int) -> Iterator[Block]:
    """Cut and join blocks so that all have ``size`` rows; the last one may be shorter."""
    waiting: list[Block] = []
    room = size
    for block in blocks:
        place = 0
        while len(block) - place >= room:
            waiting.append(block.part(place, place + room))
            place += room
            yield joined(waiting)
            waiting, room = [], size
        if place < len(block):
            waiting.append(block.part(place, len(block)))
            room -= len(block) - place
    if waiting:
        yield joined(waiting)
