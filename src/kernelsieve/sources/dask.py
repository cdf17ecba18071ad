"""Dask collections as sources: summaries are made where the chunks are, and results are lazy."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kernelsieve._parallel import one_thread, row_blocks
from kernelsieve.sources.base import BLOCK_ROWS, Block, added
from kernelsieve.sources.blocks import aligned, joined
from kernelsieve.sources.fetching import Fetching
from kernelsieve.sources.given import check_columns, is_dask
from kernelsieve.sources.stream import check_finite, valid_block

FAN_IN = 8  # summaries that are added by one task
SMALL_FUNCTION = 2**19  # bytes: far less than the chunk that it is sent for


class DaskSource(Fetching):
    """The rows of a Dask array or data frame.

    Parameters
    ----------
    X : dask array of shape (n, d) or dask data frame
        Chunks are dense or CSR. Chunks of unknown length, as in data frames, are counted first.
    y : dask array, dask series or array-like of shape (n,) or (n, n_outputs), optional
        Targets.
    weights : dask array, dask series or array-like of shape (n,), optional
        Sample weights.

    Examples
    --------
    >>> import dask.array as da
    >>> from kernelsieve.dask import DaskSource
    >>> X = da.random.default_rng(0).normal(size=(1000, 3), chunks=(300, 3))
    >>> DaskSource(X).shape
    (1000, 3)
    """

    def __init__(self, X: Any, y: Any = None, weights: Any = None) -> None:
        self.names = column_names(X)
        rows = as_array(X)
        if rows.ndim != 2:
            raise ValueError(f"X has {rows.ndim} dimensions: it must be of shape (n, d)")
        if any(np.isnan(length) for length in rows.chunks[0]):
            rows = with_lengths(rows)
        lengths = rows.chunks[0]
        self._shape = int(rows.shape[0]), int(rows.shape[1])
        self.sparse = sp.issparse(rows._meta)
        self.dtype = np.dtype(np.float32 if rows.dtype == np.float32 else np.float64)
        targets = self._along(y, "y", lengths)
        of_rows = self._along(weights, "sample_weight", lengths)
        self.target_shape = None if targets is None else targets.shape[1:]
        columns = _delayed([rows, targets, of_rows], len(lengths))
        form = self._shape[1], self.sparse, self.dtype, self.names
        starts = (np.cumsum(lengths) - lengths).astype(int).tolist()
        # Arguments of `_Chunk`, which every task makes for itself: of a value of its own Dask would
        # not know how large it is.
        self.chunks = [
            (*parts, starts[i], i, len(lengths), form)
            for i, parts in enumerate(zip(*columns, strict=True))
            if lengths[i] > 0
        ]
        self.starts = [start for start, length in zip(starts, lengths, strict=True) if length > 0]
        self._checked = False

    def _along(self, values: Any, name: str, lengths: tuple[int, ...]) -> Any:
        """Rechunk targets or weights as the rows are."""
        import dask.array as da

        if values is None:
            return None
        array = as_array(values) if is_dask(values) else da.from_array(np.asarray(values))
        if any(np.isnan(length) for length in array.chunks[0]):
            array = with_lengths(array)
        if array.shape[0] != self._shape[0]:
            raise ValueError(f"{name} has {array.shape[0]} rows and X has {self._shape[0]}")
        return array.rechunk({0: lengths, **({1: -1} if array.ndim == 2 else {})})

    @property
    def shape(self) -> tuple[int, int]:
        return self._shape

    def parts(self, size: int) -> Iterator[Block]:
        return aligned((self._compute(_whole, *chunk) for chunk in self.chunks), size)

    def fetch(self, rows: NDArray[np.int64]) -> Block:
        from dask.base import compute

        return joined(list(compute(*self._picked(rows))))

    def _picked(self, rows: NDArray[np.int64]) -> list[Any]:
        """Delayed blocks of some rows, of the chunks that have any."""
        from dask.delayed import delayed

        bounds = np.searchsorted(rows, [*self.starts, self.shape[0]])
        return [
            delayed(_pick, pure=False)(rows[first:last], *chunk)
            for chunk, first, last in zip(self.chunks, bounds[:-1], bounds[1:], strict=True)
            if first < last
        ]

    def head(self, count: int) -> Block:
        return self.fetch(np.arange(min(count, self.shape[0])))

    def map(
        self, function: Callable[[Block], Any], size: int = BLOCK_ROWS, n_jobs: int | None = None
    ) -> Iterator[Any]:
        """Return ``function(block)`` for all blocks, in order; the results come to this process."""
        from dask.base import compute
        from dask.delayed import delayed

        shared = self._shared(function)
        results = compute(
            *(
                delayed(_mapped, pure=False)(shared, size, not self._checked, *chunk)
                for chunk in self.chunks
            )
        )
        self._checked = True
        return (result for results_of_chunk in results for result in results_of_chunk)

    def reduce(
        self,
        function: Callable[[Block], Any],
        size: int = BLOCK_ROWS,
        n_jobs: int | None = None,
        description: str = "Rows",
        verbose: int = 0,
    ) -> Any:
        """Sum ``function(block)`` over all blocks, in a tree; brings the expected rows along."""
        from dask.base import compute
        from dask.delayed import delayed

        shared = self._shared(function)
        level = [
            delayed(_summed, pure=False)(shared, size, not self._checked, *chunk)
            for chunk in self.chunks
        ]
        while len(level) > 1:
            level = [
                delayed(_merged, pure=False)(level[place : place + FAN_IN])
                for place in range(0, len(level), FAN_IN)
            ]
        wanted = self._expected
        total, *blocks = compute(delayed(_same, pure=False)(level[0]), *self._picked(wanted))
        if blocks:
            self.keep(wanted, joined(blocks))
        self._checked = True
        return total

    def _shared(self, function: Callable[[Block], Any]) -> Any:
        """Wrap a function: a small one for every task, a large one for every worker, once.

        A node of the graph that all workers hold makes all of them candidates for every task, also
        those that do not have its chunk.
        """
        import cloudpickle
        from dask.delayed import delayed

        opaque = _Function(function)
        if len(cloudpickle.dumps(function)) <= SMALL_FUNCTION:
            return opaque
        return delayed(opaque, pure=False, traverse=False)

    def _compute(self, function: Callable[..., Any], *arguments: Any) -> Any:
        from dask.delayed import delayed

        return delayed(function, pure=False)(*arguments).compute()


class _Function:
    """A function as an opaque value, which Dask does not inspect."""

    def __init__(self, function: Callable[[Block], Any]) -> None:
        self.function = function


class _Chunk:
    """A chunk on its worker, with its place among the rows and its expected form."""

    def __init__(
        self, X: Any, y: Any, weights: Any, start: int, number: int, count: int, form: Any
    ) -> None:
        self.X, self.y, self.weights = X, y, weights
        self.start, self.number, self.count, self.form = start, number, count, form

    def block(self, check: bool) -> Block:
        """Return valid rows; an error names the chunk."""
        n_features, sparse, dtype, names = self.form
        try:
            X = valid_block(self.X, sparse, names)
            if X.shape[1] != n_features:
                raise ValueError(f"it has {X.shape[1]} columns, but other chunks have {n_features}")
            if X.dtype != dtype:
                raise ValueError(f"its values are {X.dtype}, but those of other chunks are {dtype}")
            if check:
                check_finite(X, names)
        except (ValueError, TypeError) as error:
            raise type(error)(
                f"chunk {self.number} of {self.count} (from row {self.start} on): {error}"
            ) from error
        y = None if self.y is None else np.asarray(self.y)
        weights = None if self.weights is None else np.asarray(self.weights, dtype=np.float64)
        return Block(X, y, weights, self.start)


def _parts(chunk: tuple[Any, ...], size: int, check: bool) -> Iterator[Block]:
    block = _Chunk(*chunk).block(check)
    return (block.part(rows.start, rows.stop) for rows in row_blocks(len(block), size))


def _summed(shared: _Function, size: int, check: bool, *chunk: Any) -> Any:
    with one_thread():
        return added(map(shared.function, _parts(chunk, size, check)))


def _mapped(shared: _Function, size: int, check: bool, *chunk: Any) -> list[Any]:
    with one_thread():
        return [shared.function(part) for part in _parts(chunk, size, check)]


def _merged(parts: list[Any]) -> Any:
    """Add summaries; the first is copied, because a task may run again on the same inputs."""
    present = [part for part in parts if part is not None]
    return added([copy.deepcopy(present[0]), *present[1:]]) if present else None


def _pick(rows: NDArray[np.int64], *chunk: Any) -> Block:
    block = _Chunk(*chunk).block(check=False)
    return block.take(rows - block.start)


def _whole(*chunk: Any) -> Block:
    return _Chunk(*chunk).block(check=True)


def _same(value: Any) -> Any:
    return value


def column_names(X: Any) -> list[str] | None:
    """Names of the columns of a data frame; None for an array."""
    return [str(name) for name in X.columns] if hasattr(X, "columns") else None


def as_array(X: Any) -> Any:
    """Convert to a Dask array whose chunks have all columns, lazily."""
    array = X.to_dask_array() if hasattr(X, "to_dask_array") else X
    if array.ndim == 2 and len(array.chunks[1]) > 1:
        array = array.rechunk({1: -1})
    return array


def with_lengths(array: Any) -> Any:
    """Count the rows of all chunks of an array."""
    return array.copy().compute_chunk_sizes()


def _delayed(arrays: list[Any], count: int) -> list[list[Any]]:
    """Return the chunks of arrays, of which some may be None, as delayed values.

    They are optimised together: what rows and targets are made of is then made once for both, on
    one worker. Alone, Dask would fuse it into each of them, and bring the results together.
    """
    from dask.base import optimize

    given = iter(optimize(*(array for array in arrays if array is not None)))
    return [
        [None] * count
        if array is None
        else next(given).to_delayed(optimize_graph=False).ravel().tolist()
        for array in arrays
    ]


def apply_lazily(estimator: Any, method: str, X: Any, *arguments: Any, **options: Any) -> Any:
    """Apply a method of a fitted estimator to every chunk of a Dask collection, lazily.

    Parameters
    ----------
    estimator : estimator
    method : str
    X : dask array of shape (n, d) or dask data frame
    *arguments, **options
        Passed on to the method.

    Returns
    -------
    dask array of shape (n,) or (n, n_columns), or a tuple of them
        In the chunks of X; as many as the method returns arrays.
    """
    check_is_fitted(estimator)
    rows, names = as_array(X), column_names(X)
    check_columns(estimator, rows.shape[1], names)
    call = partial(_of_chunk, estimator, method, names, arguments, options)
    floats = np.dtype(np.float32 if rows.dtype == np.float32 else np.float64)
    example = call(None, _example(rows._meta, rows.shape[1], floats))
    if isinstance(example, tuple):
        return tuple(_mapped_rows(rows, partial(call, i), part) for i, part in enumerate(example))
    return _mapped_rows(rows, partial(call, None), example)


def _mapped_rows(rows: Any, call: Callable[[Any], Any], example: Any) -> Any:
    """Map the chunks of an array, given what ``call`` makes of one row."""
    meta = example[:0]
    if example.ndim == 1:
        return rows.map_blocks(call, dtype=meta.dtype, drop_axis=1, meta=meta)
    chunks = (rows.chunks[0], (example.shape[1],))
    return rows.map_blocks(call, dtype=meta.dtype, chunks=chunks, meta=meta)


def _of_chunk(
    estimator: Any,
    method: str,
    names: list[str] | None,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    place: int | None,
    X: Any,
) -> Any:
    """Apply a method to a chunk; ``place`` picks one array of a tuple."""
    if names is not None:  # a partition again, as scikit-learn asks after a fit with names
        import pandas as pd

        X = pd.DataFrame(X, columns=names)
    with one_thread():
        result = getattr(estimator, method)(X, *arguments, **options)
    return result if place is None else result[place]


def _example(meta: Any, n_features: int, dtype: Any) -> Any:
    """A row of zeros of the same kind as the chunks."""
    zeros = np.zeros((1, n_features), dtype=dtype)
    return type(meta)(zeros) if hasattr(meta, "tocsr") else zeros
