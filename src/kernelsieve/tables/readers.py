"""Readers of table files, by the suffix of the name: CSV, Excel, Parquet, Arrow, LIBSVM, npz."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._files import PACKED, UNPACKING_ERRORS, open_bytes, split_sheet
from kernelsieve.sources.npz import read_arrays
from kernelsieve.sources.svmlight import SvmlightSource
from kernelsieve.tables.sizes import out_of_memory
from kernelsieve.tables.spreadsheets import read_sheet
from kernelsieve.tables.table import (
    Table,
    TableError,
    as_column,
    from_arrow,
    from_columns,
    from_matrix,
    listed,
)
from kernelsieve.tables.text_files import (
    TextOptions,
    csv_batches,
    note_odd,
    note_readings,
    read_csv,
)
from kernelsieve.tables.texts import TEXT, Column, Reading, understood

PARQUET_ROWS = 2**16  # in a batch
TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".tab")
EXCEL = ".xlsx"
SVMLIGHT_SUFFIXES = (".svm", ".libsvm", ".svmlight")
WAYS_OUT = dict.fromkeys((".xls", ".ods"), "save the sheet as .xlsx or CSV")
WAYS_OUT |= dict.fromkeys((".zip", ".7z", ".zst"), "unpack it first, or compress it as .gz")


def read_table(
    path: str | os.PathLike[str],
    *,
    sep: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    date_format: str | None = None,
    readings: Mapping[str, Reading] | None = None,
    given: Sequence[str] | None = (),
) -> Table:
    """Read a table from a file.

    What a text file holds is detected, and a TableNotice says what was understood: the separator,
    decimal commas, currencies, percentages, dates, and texts in columns of numbers.

    Parameters
    ----------
    path : path
        ``.csv``, ``.tsv``, ``.tab`` or ``.txt`` with a header line; ``.xlsx``
        (``book.xlsx#Sheet`` names a sheet; needs openpyxl); ``.parquet``, ``.arrow`` or
        ``.feather``; ``.npz`` with an array X (and optionally names of its columns, and y) or a
        sparse matrix of scipy; ``.svm``, ``.libsvm`` or ``.svmlight``. Text and LIBSVM files may
        be compressed: ``.gz``, ``.bz2`` or ``.xz``.
    sep : str, optional
        What separates the columns of a text file: by default a comma, semicolon, tab or bar,
        whichever the header has most of.
    decimal : "." or ",", optional
        The decimal sign of a text file.
    encoding : str, optional
        By default UTF-8, or UTF-16 if the file starts with its mark.
    date_format : str, optional
        The format of times, as in ``datetime.strptime``.
    readings : mapping of str to Reading, optional
        How columns of an earlier table were understood.
    given : sequence of str, default ()
        Columns of a text file whose texts are kept as they are, in ``Table.given``; None keeps all.

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
    options = TextOptions(sep, decimal, encoding, date_format, readings, given)
    last = _kind(path)
    if last not in READERS:
        way_out = WAYS_OUT.get(last, kinds())
        raise TableError(f"{path}: cannot read {last or 'a file without a suffix'}: {way_out}")
    if path.is_dir():
        raise TableError(f"{path} is a folder: name a file in it")
    try:
        if last in TEXT_SUFFIXES:
            return read_csv(path, options)
        if last == EXCEL:
            return read_sheet(path, options)
        return with_readings(READERS[last](path), readings)
    except FileNotFoundError:
        raise TableError(f"{path} does not exist") from None
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}") from error
    except MemoryError as error:  # also that of pyarrow
        raise TableError(out_of_memory(path)) from error


def _kind(path: Path) -> str:
    """The suffix that says what a file holds."""
    path, _ = split_sheet(path)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] and suffixes[-1] in PACKED and len(suffixes) > 1
    return suffixes[-2] if packed else "".join(suffixes[-1:])


def kinds() -> str:
    """The suffixes that can be read, for messages."""
    return f"the name must end with {', '.join(READERS)}"


def read_batches(
    path: str | os.PathLike[str],
    *,
    sep: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    date_format: str | None = None,
    readings: Mapping[str, Reading] | None = None,
    given: Sequence[str] | None = (),
) -> Iterator[Table]:
    """Read a table in batches, so that it need not fit in memory.

    What a text file holds is detected from its first batch.

    Parameters
    ----------
    path : path
        Text, Parquet and LIBSVM files come in batches of about 16 MB; other files whole.
    sep, decimal, encoding, date_format, readings, given
        As in `read_table`.

    Yields
    ------
    Table

    Raises
    ------
    TableError
        As in `read_table`.
    """
    path, options = Path(path), TextOptions(sep, decimal, encoding, date_format, readings, given)
    kind = _kind(path)
    if kind in TEXT_SUFFIXES and path.is_file():
        yield from csv_batches(path, options)
    elif kind == ".parquet" and path.is_file():
        yield from _parquet_batches(path, readings)
    elif kind in SVMLIGHT_SUFFIXES and path.is_file():
        yield from _svmlight_batches(path)
    else:
        yield read_table(path, sep=sep, decimal=decimal, encoding=encoding,
                         date_format=date_format, readings=readings, given=given)  # fmt: skip


def _parquet_batches(path: Path, readings: Mapping[str, Reading] | None = None) -> Iterator[Table]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        for batch in parquet.ParquetFile(path).iter_batches(PARQUET_ROWS):
            batch.validate(full=True)
            table = from_arrow(str(path), pa.Table.from_batches([batch]))
            table = with_readings(table, readings)
            readings = table.readings
            yield table
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"{path} is not a {path.suffix} file: {error}") from error


def with_readings(table: Table, readings: Mapping[str, Reading] | None = None) -> Table:
    """Convert columns of texts of a frame that are dates, or numbers with a unit or groups.

    Digits alone stay texts there: a frame says itself which of its columns are numbers.

    Parameters
    ----------
    table : Table
    readings : mapping of str to Reading, optional
        How columns of an earlier table were understood; None infers it.

    Returns
    -------
    Table
    """
    import pyarrow as pa

    found: dict[str, Column] = {}
    for name, values in table.columns.items():
        reading = None if readings is None else readings.get(name, TEXT)
        if values.dtype.kind == "f":
            if reading is None or reading.kind != "time":
                continue
            # Dates such as 20210325, which the frame holds as numbers.
            values = np.array([None if np.isnan(v) else f"{v:.0f}" for v in values], dtype=object)
        if reading == TEXT or is_iso(values):
            continue
        texts = pa.chunked_array([pa.array(["" if v is None else v for v in values], pa.string())])
        column = understood(texts, reading)
        if column.reading.kind != "text" and (reading is not None or column.example is not None):
            found[name] = column
    if readings is None:
        note_readings(found)
    for name, column in found.items():
        note_odd(name, column)
    columns = {name: found[name].values if name in found else values
               for name, values in table.columns.items()}  # fmt: skip
    return replace(
        table,
        columns=columns,
        readings={name: column.reading for name, column in found.items()},
    )


def is_iso(values: NDArray[Any]) -> bool:
    """Whether the first text of a column is a time in ISO 8601, which needs no reading."""
    first = next((value for value in values.tolist() if value is not None), None)
    if first is None:
        return True
    try:
        datetime.fromisoformat(first)
    except ValueError:
        return False
    return "-" in first


def _read_arrow(path: Path) -> Table:
    import pyarrow as pa
    from pyarrow import feather, parquet

    if not path.exists():
        raise FileNotFoundError(path)
    read = parquet.read_table if path.suffix.lower() == ".parquet" else feather.read_table
    try:
        found = read(path)
        found.validate(full=True)  # a damaged file may point beyond its texts
        return from_arrow(str(path), found)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(f"{path} is not a {path.suffix} file: {error}") from error


def _read_npz(path: Path) -> Table:
    try:
        arrays = read_arrays(path)
    except ValueError as error:
        raise TableError(str(error)) from error
    return Table(str(path), {}, arrays["matrix"]) if "matrix" in arrays else _named(path, arrays)


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
        with open_bytes(path) as file:
            content = file.read()
        X, y = load_svmlight_file(io.BytesIO(content))
    except (ValueError, OverflowError, *UNPACKING_ERRORS) as error:
        raise TableError(f"{path} is not a LIBSVM file: {error}") from error
    return _svmlight_table(path, X, y)


def _svmlight_batches(path: Path) -> Iterator[Table]:
    """The rows in batches; the file is expanded into binary files on disk, not into memory."""
    try:
        for X, y in SvmlightSource(path).raw_blocks():
            yield _svmlight_table(path, X, y)
    except (ValueError, OverflowError, *UNPACKING_ERRORS) as error:
        raise TableError(f"{path} is not a LIBSVM file: {error}") from error


def _svmlight_table(path: Path, X: Any, y: Any) -> Table:
    return Table(str(path), {"target": np.asarray(y, dtype=np.float64)}, sp.csr_array(X))


READERS: dict[str, Callable[[Path], Table]] = {
    **dict.fromkeys(TEXT_SUFFIXES, lambda path: read_csv(path, TextOptions())),
    EXCEL: lambda path: read_sheet(path, TextOptions()),
    ".parquet": _read_arrow,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
    ".npz": _read_npz,
    **dict.fromkeys(SVMLIGHT_SUFFIXES, _read_svmlight),
}
