"""Readers of table files, by the suffix of the name: CSV, Parquet, Arrow, LIBSVM and npz."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import scipy.sparse as sp

from kernelsieve._validation import check_choice
from kernelsieve.tables.table import (
    Table,
    TableError,
    as_column,
    column_names,
    from_arrow,
    from_columns,
    from_matrix,
    listed,
    notice,
    refuse_twice,
)
from kernelsieve.tables.texts import (
    SHOWN,
    Column,
    Reading,
    decimal_sign,
    understood,
)

LARGEST_CELL = 2**24  # characters; also of a row
SNIFFED_ROWS = 300  # of each column, to find the decimal sign
PARQUET_ROWS = 2**16  # in a batch
TEXT_SUFFIXES = (".csv", ".tsv", ".txt")


@dataclass(frozen=True)
class TextOptions:
    """How a text file is written; None detects it.

    Attributes
    ----------
    sep : str or None
        What separates the columns.
    decimal : "." or "," or None
    encoding : str or None
    date_format : str or None
        The format of times, as in ``datetime.strptime``.
    readings : mapping of str to Reading, or None
        How columns of an earlier table were understood.
    """

    sep: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    date_format: str | None = None
    readings: Mapping[str, Reading] | None = None

    def __post_init__(self) -> None:
        if self.sep is not None and len(self.sep) != 1:
            raise TableError(f"sep={self.sep!r} must be one character, for example ';'")
        if self.decimal is not None:
            check_choice(self.decimal, "decimal", (".", ","))


def read_table(
    path: str | os.PathLike[str],
    *,
    sep: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    date_format: str | None = None,
    readings: Mapping[str, Reading] | None = None,
) -> Table:
    """Read a table from a file.

    What a text file holds is detected, and a TableNotice says what was understood: the separator,
    decimal commas, currencies, percentages, dates, and texts in columns of numbers.

    Parameters
    ----------
    path : path
        ``.csv``, ``.tsv`` or ``.txt`` with a header line, also with ``.gz``; ``.parquet``,
        ``.arrow`` or ``.feather``; ``.npz`` with an array X (and optionally names of its columns,
        and y) or a sparse matrix of scipy; ``.svm``, ``.libsvm`` or ``.svmlight``.
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
    options = TextOptions(sep, decimal, encoding, date_format, readings)
    last = _kind(path)
    if last not in READERS:
        raise TableError(f"{path}: cannot read {last or 'a file without a suffix'}: {kinds()}")
    if path.is_dir():
        raise TableError(f"{path} is a folder: name a file in it")
    try:
        return _read_csv(path, options) if last in TEXT_SUFFIXES else READERS[last](path)
    except FileNotFoundError:
        raise TableError(f"{path} does not exist") from None
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}") from error


def _kind(path: Path) -> str:
    """The suffix that says what a file holds."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"] and len(suffixes) > 1
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
) -> Iterator[Table]:
    """Read a table in batches, so that it need not fit in memory.

    What a text file holds is detected from its first batch.

    Parameters
    ----------
    path : path
        Text, Parquet and Arrow files come in batches of about 16 MB; other files whole.
    sep, decimal, encoding, date_format : str, optional
        As in `read_table`.

    Yields
    ------
    Table

    Raises
    ------
    TableError
        As in `read_table`.
    """
    path, options = Path(path), TextOptions(sep, decimal, encoding, date_format)
    kind = _kind(path)
    if kind not in (*TEXT_SUFFIXES, ".parquet") or not path.exists():
        yield read_table(path, sep=sep, decimal=decimal, encoding=encoding, date_format=date_format)
    elif kind == ".parquet":
        yield from _parquet_batches(path)
    else:
        with _text_errors(path, options):
            yield from _csv_batches(path, options)


def _parquet_batches(path: Path) -> Iterator[Table]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        for batch in parquet.ParquetFile(path).iter_batches(PARQUET_ROWS):
            yield from_arrow(str(path), pa.Table.from_batches([batch]))
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"{path} is not a {path.suffix} file: {error}") from error


def _csv_batches(path: Path, options: TextOptions) -> Iterator[Table]:
    header, separator, lines = _header(path, options)
    refuse_twice(str(path), header)
    for columns in _text_columns(path, header, separator, lines, options, whole=False):
        # The notes on the first batch are those on the file.
        table = _from_texts(path, header, columns, separator, options, options.readings is None)
        options = replace(options, readings=table.readings)
        yield table


def _read_csv(path: Path, options: TextOptions) -> Table:
    with _text_errors(path, options):
        header, separator, lines = _header(path, options)
        (columns,) = _text_columns(path, header, separator, lines, options)
    refuse_twice(str(path), header)
    return _from_texts(path, header, columns, separator, options)


@contextmanager
def _text_errors(path: Path, options: TextOptions) -> Iterator[None]:
    try:
        yield
    except (UnicodeError, LookupError) as error:
        raise TableError(_encoding_message(path, options, error)) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TableError(f"{path} is not a text table: {error}") from error


def _from_texts(
    path: Path,
    header: list[str],
    columns: list[Any],
    separator: str,
    options: TextOptions,
    notes: bool = True,
) -> Table:
    decimal = options.decimal or decimal_sign(
        (column.slice(0, SNIFFED_ROWS).unique().to_pylist() for column in columns), separator
    )
    found = {
        name: understood(
            texts, (options.readings or {}).get(name), decimal, options.date_format or None
        )
        for name, texts in zip(header, columns, strict=True)
    }
    if options.readings is None:
        _note_readings(found)
    for name, column in found.items() if notes else ():
        _note_odd(name, column)
    return Table(
        str(path),
        {name: column.values for name, column in found.items()},
        readings={name: column.reading for name, column in found.items()},
    )


def _note_readings(found: dict[str, Column]) -> None:
    """Tell how unusual numbers and times were understood: one note for each kind of reading."""
    alike: dict[tuple[Reading, bool], list[str]] = {}
    for name, column in found.items():
        if column.example is not None:
            alike.setdefault((column.reading, column.swappable), []).append(name)
    for (reading, swappable), names in alike.items():
        example = found[names[0]].example or ""
        value = reading.value(example)
        shown = f"the number {value:g}" if reading.kind == "number" else f"the time {value}"
        way_out = "; if day and month are swapped, pass --date-format" if swappable else ""
        notice(f"{column_names(names)}: {example!r} is read as {shown}{way_out}")


def _note_odd(name: str, column: Column) -> None:
    if column.odd:
        tokens = sorted(column.odd, key=lambda text: -column.odd[text])
        shown = ", ".join(repr(token[:20]) for token in tokens[:SHOWN])
        more = ", ..." if len(tokens) > SHOWN else ""
        count = sum(column.odd.values())
        notice(
            f"column {name!r} is read as {column.reading.kind}s; {count:,} other "
            f"{'values count' if count > 1 else 'value counts'} as missing: {shown}{more}"
        )


def _header(path: Path, options: TextOptions) -> tuple[list[str], str, int]:
    """The names of the columns, the separator, and how many lines the header takes."""
    with _open(path, options) as file:
        first = file.readline(LARGEST_CELL)
        separator = options.sep or max(",;\t|", key=first.count)
        reader = csv.reader(itertools.chain([first], file), delimiter=separator)
        try:
            header = [name.strip() for name in next(reader, [])]
        except csv.Error as error:
            raise TableError(f"{path} has no header line with column names: {error}") from error
        if not any(header):
            raise TableError(f"{path} has no header line with column names")
        return header, separator, reader.line_num


def _text_columns(
    path: Path,
    header: list[str],
    separator: str,
    lines: int,
    options: TextOptions,
    whole: bool = True,
) -> Iterator[list[Any]]:
    """All cells as texts, a pyarrow array for each column: of the whole file, or batch by batch."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow_csv

    names = [str(i) for i in range(len(header))]
    wrong: list[Any] = []

    def judge(row: Any) -> str:
        if not row.text.replace(separator, "").strip():
            return "skip"
        wrong.append(row)
        return "error"

    read_options = arrow_csv.ReadOptions(
        column_names=names,
        skip_rows=lines,
        block_size=LARGEST_CELL,
        encoding=_encoding(path, options),
    )
    parse_options = arrow_csv.ParseOptions(
        delimiter=separator, newlines_in_values=True, invalid_row_handler=judge
    )
    convert_options = arrow_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
    )
    with _open_bytes(path) as file:
        try:
            read = arrow_csv.read_csv if whole else arrow_csv.open_csv
            found = read(file, read_options, parse_options, convert_options)
            for table in [found] if whole else map(_table_of_batch, found):
                yield [pc.utf8_trim_whitespace(table.column(name)) for name in names]
        except pa.ArrowInvalid as error:
            if any(words in str(error) for words in ("Empty CSV file", "Could not skip initial")):
                yield [pa.chunked_array([pa.array([], pa.string())]) for _ in header]
                return
            if wrong:
                raise TableError(_ragged_message(path, wrong[0], len(header), options)) from error
            if "UTF8" in str(error):
                raise UnicodeError("invalid bytes") from error
            raise TableError(f"{path} is not a text table: {error}") from error


def _table_of_batch(batch: Any) -> Any:
    import pyarrow as pa

    return pa.Table.from_batches([batch])


def _ragged_message(path: Path, row: Any, width: int, options: TextOptions) -> str:
    """Which line has too many values, or too few."""
    start = row.text.split("\n")[0].strip()
    with _open(path, options) as file:
        line = next((i for i, text in enumerate(file, 1) if text.strip().startswith(start)), 0)
    return f"{path}, line {line}: {row.actual_columns} values for the {width} columns of the header"


def _encoding(path: Path, options: TextOptions) -> str:
    """The encoding that was asked for, UTF-16 if the file says so, or UTF-8."""
    if options.encoding:
        return codecs.lookup(options.encoding).name
    with _open_bytes(path) as file:
        return "utf-16" if file.read(2) in (b"\xff\xfe", b"\xfe\xff") else "utf-8"


def _encoding_message(path: Path, options: TextOptions, error: Exception) -> str:
    if options.encoding:
        return f"{path} cannot be read with the encoding {options.encoding}: {error}"
    return (
        f"{path} is not valid UTF-8: pass --encoding (cp1252 for files of Windows programs), or "
        "save it as UTF-8"
    )


def _open(path: Path, options: TextOptions) -> TextIO:
    encoding = _encoding(path, options)
    encoding = "utf-8-sig" if encoding.lower().replace("-", "") == "utf8" else encoding
    return io.TextIOWrapper(_open_bytes(path), encoding=encoding, newline="")


def _open_bytes(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")


def _read_arrow(path: Path) -> Table:
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


def read_arrays(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the arrays of a .npz file, or the sparse matrix in it as "matrix"; never pickles.

    Parameters
    ----------
    path : path

    Returns
    -------
    dict of str to ndarray, or to a CSR array

    Raises
    ------
    TableError
        If it is not a .npz file of plain arrays.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if "format" in arrays:
                return {"matrix": sp.csr_array(sp.load_npz(path))}
            return {name: arrays[name] for name in arrays.files}
    except (ValueError, zipfile.BadZipFile, EOFError, KeyError, zlib.error) as error:
        raise TableError(f"{path} is not a .npz file of plain arrays: {error}") from error


def _read_npz(path: Path) -> Table:
    arrays = read_arrays(path)
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
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        X, y = load_svmlight_file(io.BytesIO(content))
    except (ValueError, OverflowError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TableError(f"{path} is not a LIBSVM file: {error}") from error
    return Table(str(path), {"target": np.asarray(y, dtype=np.float64)}, sp.csr_array(X))


READERS: dict[str, Callable[[Path], Table]] = {
    **dict.fromkeys(TEXT_SUFFIXES, lambda path: _read_csv(path, TextOptions())),
    ".parquet": _read_arrow,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
    ".npz": _read_npz,
    ".svm": _read_svmlight,
    ".libsvm": _read_svmlight,
    ".svmlight": _read_svmlight,
}
