"""Sources whose rows are read again in every pass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._parallel import read_ahead
from kernelsieve._validation import FLOATS, canonical_rows, check_range, check_sparse
from kernelsieve.sources.base import Block
from kernelsieve.sources.blocks import aligned, joined
from kernelsieve.sources.fetching import Fetching


class StreamSource(Fetching):
    """Rows that are read again in every pass, and checked as they arrive.

    A subclass implements ``raw_blocks``, which yields its blocks in order as pairs (X, y).
    """

    where: str = "the source"
    n_blocks: int | None = None

    def __init__(self, n_rows: int | None, n_features: int | None) -> None:
        self._n_rows, self._n_features = n_rows, n_features
        self._checked = False

    @abstractmethod
    def raw_blocks(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over the blocks as they are stored; every pass must yield the same rows.

        Yields
        ------
        X : {array-like, CSR} of shape (m, d)
        y : array-like of shape (m,) or (m, n_outputs), or None
        """

    @property
    def shape(self) -> tuple[int, int]:
        if self._n_rows is None or self._n_features is None:
            for _ in self._blocks():  # one pass, only to count
                pass
        assert self._n_rows is not None
        assert self._n_features is not None
        return self._n_rows, self._n_features

    def parts(self, size: int) -> Iterator[Block]:
        return aligned(self._collected(read_ahead(self._blocks())), size)

    def _blocks(self) -> Iterator[Block]:
        """Yield valid blocks as they arrive; an error names the block."""
        start = number = 0
        blocks = self.raw_blocks()
        while True:
            with self._naming(number, start):
                raw = next(blocks, None)
                if raw is None:
                    break
                X, y = self._valid(*raw)
            if X.shape[0]:
                yield Block(X, y, None, start)
            start, number = start + X.shape[0], number + 1
        if number == 0:
            raise ValueError(f"{self.where} has no blocks: at least one row is needed")
        if self._n_rows not in (None, start):
            raise ValueError(
                f"{self.where} has {start} rows in this pass, but {self._n_rows} were expected: "
                "every pass must yield the same rows"
            )
        self._n_rows, self.n_blocks, self._checked = start, number, True

    @contextmanager
    def _naming(self, number: int, start: int) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError, OSError, NotImplementedError, KeyError) as error:
            of = "" if self.n_blocks is None else f" of {self.n_blocks}"
            kind = type(error) if type(error) in (ValueError, TypeError) else ValueError
            raise kind(
                f"block {number}{of} of {self.where} (from row {start} on): {error}"
            ) from error

    def _valid(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Convert a block to float rows; check shape and type, and in the first pass the values."""
        X = valid_block(X, self._first("sparse", sp.issparse(X)), self.names)
        self._n_features = X.shape[1] if self._n_features is None else self._n_features
        if X.shape[1] != self._n_features:
            raise ValueError(
                f"it has {X.shape[1]} columns, but other blocks have {self._n_features}"
            )
        if X.dtype != self._first("dtype", X.dtype):
            raise ValueError(
                f"its values are {X.dtype}, but those of other blocks are {self.dtype}"
            )
        if not self._checked:
            check_finite(X, self.names)
            check_range(X)
        if y is not None:
            y = np.asarray(y)
            if y.ndim == 0 or len(y) != X.shape[0]:
                raise ValueError(f"its target has shape {y.shape}, but X has {X.shape[0]} rows")
        shape = None if y is None else y.shape[1:]
        if shape != self._first("target_shape", shape):
            targets = ["none" if s is None else f"(n, *{s})" for s in (shape, self.target_shape)]
            raise ValueError(
                f"its target is {targets[0]}, but that of other blocks is {targets[1]}"
            )
        return X, y

    def _first(self, name: str, value: Any) -> Any:
        """Return an attribute that the first block determines for all."""
        if name not in self.__dict__:
            setattr(self, name, value)
        return getattr(self, name)

    def __getattr__(self, name: str) -> Any:
        if name in ("dtype", "sparse", "target_shape") and "_checked" in self.__dict__:
            next(self._blocks(), None)  # the first block knows
            if name in self.__dict__:
                return self.__dict__[name]
        raise AttributeError(name)

    def fetch(self, rows: NDArray[np.int64]) -> Block:
        for _ in self._collected(self._blocks()):
            pass
        assert self._taken is not None
        return self._taken[1]

    def head(self, count: int) -> Block:
        return next(aligned(self._blocks(), count))

    def _collected(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Pass blocks on, and keep the expected rows of them when all have passed."""
        wanted, found = self._expected, []
        for block in blocks:
            first, last = np.searchsorted(wanted, [block.start, block.start + len(block)])
            if first < last:
                found.append(block.take(wanted[first:last] - block.start))
            yield block
        if found:
            if sum(map(len, found)) < len(wanted):
                raise IndexError(
                    f"row {wanted[-1]} of {self.where} does not exist: it has fewer rows"
                )
            self.keep(wanted, joined(found))


class BlockSource(StreamSource):
    """Blocks of rows from a list, or from a function that is called for every pass.

    Parameters
    ----------
    blocks : iterable of blocks, or function that returns one
        A block is X or a pair (X, y), where X is an array, a data frame or CSR of shape (n, d),
        with the same columns and float type in all blocks. An iterator that can be consumed only
        once, such as a generator, is refused: pass the function that returns it.
    names : list of str, optional
        Names of the columns.

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

    def __init__(
        self, blocks: Iterable[Any] | Callable[[], Iterable[Any]], *, names: Any = None
    ) -> None:
        super().__init__(None, None)
        if not callable(blocks) and iter(blocks) is blocks:
            raise TypeError(
                f"blocks={blocks!r} can be iterated only once, but a fit needs several passes: "
                "pass the function that returns it"
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


def valid_block(X: Any, sparse: bool, names: list[str] | None) -> Any:
    """Convert a block to a C-ordered float array or canonical CSR."""
    if sp.issparse(X) != sparse:
        kinds = ("dense", "sparse")
        raise ValueError(f"it is {kinds[sp.issparse(X)]}, but other blocks are {kinds[sparse]}")
    if sparse:
        X = canonical_rows(check_sparse(X).tocsr())
    elif not isinstance(X, np.ndarray):
        found = getattr(X, "columns", None)
        if names is not None and found is not None and list(found) != names:
            raise ValueError(
                f"its columns are {list(found)}, but those of other blocks are {names}"
            )
        X = np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"it has {X.ndim} dimensions: a block must have shape (n, d)")
    if X.dtype.kind not in "fiub":
        raise TypeError(f"its entries are of type {X.dtype}: they must be numbers")
    if X.dtype not in FLOATS:
        X = X.astype(np.float64)
    return X if sparse else np.ascontiguousarray(X)


def check_finite(X: Any, names: list[str] | None) -> None:
    """Refuse NaN and infinity, and say where the first one is."""
    values = X.data if sp.issparse(X) else X
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum(dtype=np.float64)) or np.isfinite(values).all():
            return
    if sp.issparse(X):
        place = int(np.argmin(np.isfinite(values)))
        row, column = int(np.searchsorted(X.indptr, place, "right")) - 1, int(X.indices[place])
    else:
        row, column = map(int, np.argwhere(~np.isfinite(values))[0])
        place = (row, column)  # type: ignore[assignment]
    what = "NaN" if np.isnan(values[place]) else "infinity"
    name = column if names is None else repr(names[column])
    raise ValueError(
        f"{what} in its row {row}, column {name}: drop such rows, or impute the values"
    )
