"""Readers of table files, by the suffix of the name: CSV, Parquet, Arrow, LIBSVM and npz."""

from __future__ import annotations

import csv
import gzip
import io
import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import scipy.sparse as sp

from kernelsieve.tables.table import (
    Table,
    TableError,
    as_column,
    from_arrow,
    from_columns,
    from_matrix,
    listed,
    refuse_twice,
    require_pyarrow,
    text_column,
)

LARGEST_CELL = 2**24  # characters


def read_table(path: str | os.PathLike[str]) -> Table:
    """Read a table from a file.

    Parameters
    ----------
    path : path
        ``.csv``, ``.tsv`` or ``.txt`` with a header line, separated by commas, semicolons or tabs,
        also with ``.gz``; ``.parquet``, ``.arrow`` or ``.feather``; ``.npz`` with an array X (and
        optionally names of its columns, and y) or a sparse matrix of scipy; ``.svm``, ``.libsvm``
        or ``.svmlight``.

    Returns
    -------
    Table

    Raises
    ------
    TableError
        If the file is missing, damaged or of another format.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "flats.csv"
    >>> _ = path.write_text("size,town\\n50,Ulm\\n,Bonn\\n")
    >>> table = read_table(path)
    >>> table.columns["size"].tolist(), table.columns["town"].tolist()
    ([50.0, nan], ['Ulm', 'Bonn'])
    """
    path = Path(path)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    last = (
        suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else "".join(suffixes[-1:])
    )
    if last not in READERS:
        raise TableError(f"{path}: cannot read {last or 'a file without a suffix'}: {kinds()}")
    if path.is_dir():
        raise TableError(f"{path} is a folder: name a file in it")
    try:
        return READERS[last](path)
    except FileNotFoundError:
        raise TableError(f"{path} does not exist") from None
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}") from error


def kinds() -> str:
    """The suffixes that can be read, for messages."""
    return f"the name must end with {', '.join(READERS)}"


def _read_csv(path: Path) -> Table:
    csv.field_size_limit(LARGEST_CELL)
    try:
        with _open(path) as file:
            header, rows = _cells(path, file)
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error, csv.Error) as error:
        raise TableError(f"{path} is not a text table in UTF-8: {error}") from error
    refuse_twice(str(path), header)
    cells = zip(*rows, strict=True) if rows else [[]] * len(header)
    return Table(
        str(path),
        {name: text_column(list(texts)) for name, texts in zip(header, cells, strict=True)},
    )


def _cells(path: Path, file: TextIO) -> tuple[list[str], list[list[str]]]:
    """Read the header and the rows, all of the header's length."""
    first = file.readline(LARGEST_CELL)
    reader = csv.reader(_lines(first, file), delimiter=max(",;\t", key=first.count))
    header = [name.strip() for name in next(reader, [])]
    if not any(header):
        raise TableError(f"{path} has no header line with column names")
    rows = []
    for row in reader:
        if len(row) not in (0, len(header)) and any(cell.strip() for cell in row):
            raise TableError(
                f"{path}, line {reader.line_num}: {len(row)} values for the "
                f"{len(header)} columns of the header"
            )
        if len(row) == len(header):
            rows.append([cell.strip() for cell in row])
    return header, rows


def _lines(first: str, file: TextIO) -> Any:
    yield first
    yield from file


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _read_arrow(path: Path) -> Table:
    require_pyarrow(path)
    import pyarrow as pa
    from pyarrow import feather, parquet

    if not path.exists():
        raise FileNotFoundError(path)
    read = parquet.read_table if path.suffix.lower() == ".parquet" else feather.read_table
    try:
        return from_arrow(str(path), read(path))
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(f"{path} is not a {path.suffix} file: {error}") from error


def _read_npz(path: Path) -> Table:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if "format" in arrays:
                return Table(str(path), {}, sp.csr_array(sp.load_npz(path)))
            return _named(path, {name: arrays[name] for name in arrays.files})
    except (ValueError, zipfile.BadZipFile, EOFError, KeyError, zlib.error) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(f"{path} is not a .npz file of plain arrays: {error}") from error


def _named(path: Path, arrays: dict[str, Any]) -> Table:
    if "X" not in arrays:
        raise TableError(f"{path} has no array X: it has {listed(arrays)}")
    where, X, names = str(path), arrays["X"], arrays.get("names")
    table = from_matrix(where, X)
    if names is not None and names.shape == X.shape[1:] and names.dtype.kind == "U":
        table = from_columns(where, zip(names.tolist(), table.columns.values(), strict=True))
    others = {name: values for name, values in arrays.items() if name not in ("X", "names")}
    columns = {name: as_column(where, name, values) for name, values in others.items()}
    return Table(where, {**table.columns, **columns})


def _read_svmlight(path: Path) -> Table:
    from sklearn.datasets import load_svmlight_file

    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        X, y = load_svmlight_file(io.BytesIO(content))
    except (ValueError, OverflowError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TableError(f"{path} is not a LIBSVM file: {error}") from error
    return Table(str(path), {"target": np.asarray(y, dtype=np.float64)}, sp.csr_array(X))


READERS: dict[str, Callable[[Path], Table]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".txt": _read_csv,
    ".parquet": _read_arrow,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
    ".npz": _read_npz,
    ".svm": _read_svmlight,
    ".libsvm": _read_svmlight,
    ".svmlight": _read_svmlight,
}
