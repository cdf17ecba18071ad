"""Rows in Parquet and Arrow files, read by pyarrow."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.sources.stream import StreamSource

BATCH_ROWS = 2**16


class ArrowSource(StreamSource):
    """The rows of one or several Parquet or Arrow (Feather) files.

    Parameters
    ----------
    path : str, path or list of such
        A file, a folder of files, or several files.
    target : str or list of str, optional
        Target column or columns.
    columns : list of str, optional
        Columns of X; None takes all columns but the target.
    format : str, default "parquet"
        "parquet" or "feather".

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> import pyarrow.parquet as pq
    >>> from kernelsieve import KernelRidge, RowNormFeatures
    >>> from kernelsieve.sources import ArrowSource
    >>> a, b = np.random.default_rng(0).normal(size=(2, 1000))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"a": a, "b": b, "price": a * b}), f"{folder}/t.parquet")
    ...     source = ArrowSource(f"{folder}/t.parquet", target="price")
    ...     model = KernelRidge(RowNormFeatures(30, random_state=0), alpha=1e-3).fit(source)
    >>> model.feature_names_in_.tolist()
    ['a', 'b']
    """

    def __init__(
        self,
        path: Any,
        *,
        target: str | Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        format: str = "parquet",
    ) -> None:
        import pyarrow.dataset as ds

        several = isinstance(path, list | tuple)
        paths = [os.fspath(p) for p in path] if several else os.fspath(path)
        self.where = f"{len(paths)} files" if several else str(paths)
        try:
            dataset = ds.dataset(paths, format=format)
            self._pieces = [piece for file in dataset.get_fragments() for piece in _pieces(file)]
            n_rows = sum(file.count_rows() for file in dataset.get_fragments())
        except (OSError, ValueError) as error:
            raise ValueError(f"{self.where} cannot be read as {format}: {error}") from error
        known = dataset.schema.names
        self._targets = [target] if isinstance(target, str) else list(target or [])
        self._names = [n for n in known if n not in self._targets]
        self._names = self._names if columns is None else list(columns)
        for name in [*self._names, *self._targets]:
            if name not in known:
                raise ValueError(
                    f"column {name!r} is not in {self.where}, whose columns are {known}"
                )
        super().__init__(n_rows, len(self._names))
        self._one = isinstance(target, str)
        self._type = _common_type([dataset.schema.field(name).type for name in self._names])
        self.n_blocks = len(self._pieces) if format == "parquet" else None
        self.target_shape = (() if self._one else (len(self._targets),)) if self._targets else None
        self.names, self.dtype, self.sparse = self._names, self._type, False

    def raw_blocks(self) -> Iterator[tuple[Any, Any]]:
        wanted = list(dict.fromkeys([*self._names, *self._targets]))
        for piece in self._pieces:
            there = piece.physical_schema.names
            for name in wanted:
                if name not in there:
                    raise ValueError(f"it has no column {name!r}; its columns are {there}")
            for table in _tables(piece, wanted):
                yield self._rows(table), self._values(table)

    def _rows(self, table: Any) -> NDArray[Any]:
        X = np.empty((table.num_rows, len(self._names)), dtype=self._type)
        for i, name in enumerate(self._names):
            X[:, i] = _numbers(table.column(name), name)
        return X

    def _values(self, table: Any) -> Any:
        columns = [table.column(name).to_numpy() for name in self._targets]
        if not columns:
            return None
        return columns[0] if self._one else np.column_stack(columns)


def _pieces(file: Any) -> list[Any]:
    """Split a Parquet file into row groups; other files are one piece."""
    return file.split_by_row_group() if hasattr(file, "split_by_row_group") else [file]


def _tables(piece: Any, columns: list[str]) -> Iterator[Any]:
    """Read a row group whole, and other files in batches, a few in memory at a time."""
    import pyarrow as pa

    if hasattr(piece, "row_groups"):
        yield piece.to_table(columns=columns)
        return
    for batch in piece.to_batches(
        columns=columns, batch_size=BATCH_ROWS, batch_readahead=1, fragment_readahead=1
    ):
        yield pa.Table.from_batches([batch])


def _common_type(types: list[Any]) -> np.dtype[Any]:
    """float32 if all columns are, else float64."""
    single = all(str(kind) in ("float", "halffloat") for kind in types)
    return np.dtype(np.float32 if single else np.float64)


def _numbers(column: Any, name: str) -> NDArray[Any]:
    values = column.to_numpy()  # missing values become NaN
    if values.dtype.kind not in "fiub":
        raise TypeError(f"column {name!r} holds {column.type}: encode it as numbers")
    return values
