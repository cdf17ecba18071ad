"""Readers of table files, by the suffix of the name: CSV, Parquet, Arrow, LIBSVM and npz."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import itertools
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

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
    TEXT,
    Column,
    Reading,
    decimal_sign,
    number,
    understood,
)

LARGEST_CELL = 2**24  # characters; also of a row
SNIFFED_ROWS = 300  # of each column, to find the decimal sign
PARQUET_ROWS = 2**16  # in a batch
TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".tab")
SEPARATORS = ",;\t|"
SEP_LINE = re.compile(r"(?i)\"?sep=(.)\"?[,;]*")
LINES_ABOVE = 50  # lines among which the names of the columns are looked for
ROWS_COUNTED = 20  # whose values are counted, to find names of rows
PACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
WAYS_OUT = dict.fromkeys((".xlsx", ".xls", ".ods"), "save the sheet as CSV")


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
    given : sequence of str, or None
        Columns whose texts are kept as well; None keeps all.
    """

    sep: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    date_format: str | None = None
    readings: Mapping[str, Reading] | None = None
    given: Sequence[str] | None = ()

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
    given: Sequence[str] | None = (),
) -> Table:
    """Read a table from a file.

    What a text file holds is detected, and a TableNotice says what was understood: the separator,
    decimal commas, currencies, percentages, dates, and texts in columns of numbers.

    Parameters
    ----------
    path : path
        ``.csv``, ``.tsv``, ``.tab`` or ``.txt`` with a header line, also with ``.gz``, ``.bz2`` or
        ``.xz``; ``.parquet``, ``.arrow`` or ``.feather``; ``.npz`` with an array X (and optionally
        names of its columns, and y) or a sparse matrix of scipy; ``.svm``, ``.libsvm`` or
        ``.svmlight``.
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
            return _read_csv(path, options)
        return with_readings(READERS[last](path), readings)
    except FileNotFoundError:
        raise TableError(f"{path} does not exist") from None
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}") from error


def _kind(path: Path) -> str:
    """The suffix that says what a file holds."""
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
        readings = None
        for batch in parquet.ParquetFile(path).iter_batches(PARQUET_ROWS):
            batch.validate(full=True)
            table = from_arrow(str(path), pa.Table.from_batches([batch]))
            table = with_readings(table, readings)
            readings = table.readings
            yield table
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"{path} is not a {path.suffix} file: {error}") from error


def _csv_batches(path: Path, options: TextOptions) -> Iterator[Table]:
    header, separator, lines = _header(path, options)
    header = [_name(place, name) for place, name in enumerate(header)]
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
    used = [i for i, name in enumerate(header) if name or not _is_empty(columns[i])]
    header, columns = [_name(i, header[i]) for i in used], [columns[i] for i in used]
    refuse_twice(str(path), header)
    return _from_texts(path, header, columns, separator, options)


def _name(place: int, name: str) -> str:
    """The name of a column; one without gets the name that pandas gives it."""
    return name or f"Unnamed: {place}"


def _is_empty(texts: Any) -> bool:
    import pyarrow.compute as pc

    return not pc.any(pc.not_equal(texts, "")).as_py()


@contextmanager
def _text_errors(path: Path, options: TextOptions) -> Iterator[None]:
    try:
        yield
    except (UnicodeError, LookupError) as error:
        raise TableError(_encoding_message(path, options, error)) from error
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
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
    given = {
        name: texts.to_numpy()
        for name, texts in zip(header, columns, strict=True)
        if options.given is None or name in options.given
    }
    return Table(
        str(path),
        {name: column.values for name, column in found.items()},
        readings={name: column.reading for name, column in found.items()},
        given=given,
    )


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
        _note_readings(found)
    for name, column in found.items():
        _note_odd(name, column)
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


def _note_readings(found: dict[str, Column]) -> None:
    """Tell how unusual numbers and times were understood: one note for each kind of reading."""
    alike: dict[tuple[Reading, bool], list[str]] = {}
    for name, column in found.items():
        if column.example is not None:
            alike.setdefault((column.reading, column.swappable), []).append(name)
    for (reading, swappable), names in alike.items():
        example = found[names[0]].example or ""
        value = reading.value(example)
        shown = f"the {reading.kind} {value:g}" if reading.kind == "number" else f"the time {value}"
        shown = shown if reading.kind != "text" else "a code, not as a number"
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
    """The names of the columns, the separator, and how many lines stand above the first row."""
    with _open(path, options) as file:
        top = list(itertools.islice(_lines(file), LINES_ABOVE))
        above, declared = _lines_above(top, options.sep)
        rest = itertools.chain(top[above:], _lines(file))
        first = next(rest, "")
        separator = options.sep or declared or _separator(first)
        reader = csv.reader(itertools.chain([first], rest), delimiter=separator)
        try:
            header = [name.strip() for name in next(reader, [])]
            lines = above + reader.line_num
            rows = list(itertools.islice((row for row in reader if any(row)), ROWS_COUNTED))
        except csv.Error as error:
            raise TableError(f"{path} has no header line with column names: {error}") from error
    if not any(header):
        raise TableError(f"{path} has no header line with column names")
    return _with_row_names(header, rows), separator, lines


def _lines(file: TextIO) -> Iterator[str]:
    """The lines of a file; endless ones in parts."""
    while line := file.readline(LARGEST_CELL):
        yield line


def _separator(line: str) -> str:
    return max(SEPARATORS, key=line.count)


def _lines_above(top: list[str], sep: str | None) -> tuple[int, str | None]:
    """How many lines stand above the names of the columns, and the separator that one declares.

    These are empty lines, the line "sep=;" of spreadsheets, and titles and comments: lines of one
    value, or that start with "#", above a line of several names.
    """
    place = _next_filled(top, 0)
    declared = None
    if place < len(top) and (match := SEP_LINE.fullmatch(top[place].strip("\r\n"))):
        declared = match[1]
        place = _next_filled(top, place + 1)
    sep = sep or declared
    first = place
    while place < len(top) and _is_title(_cells(top[place], sep), top[place]):
        place = _next_filled(top, place + 1)
    if place == first or place >= len(top):
        return first, declared
    names = _cells(top[place], sep)
    below = _next_filled(top, place + 1)
    alike = below >= len(top) or len(_cells(top[below], sep)) == len(names)
    commented = top[first].startswith("#") and len(_cells(top[first], sep)) == len(names)
    if commented or not alike or any(number(name) is not None for name in names):
        return first, declared
    start, count = f"{top[first].strip()[:40]!r}", place - first
    lines = f"the line {start}" if count == 1 else f"the {count} lines from {start} on"
    notice(f"{lines} above the names of the columns {'is' if count == 1 else 'are'} ignored")
    return place, declared


def _next_filled(top: list[str], place: int) -> int:
    while place < len(top) and not top[place].strip(" \r\n" + SEPARATORS):
        place += 1
    return place


def _is_title(cells: list[str], line: str) -> bool:
    whole = line.count('"') % 2 == 0  # a name may go on in the next line
    return line.startswith("#") or (whole and sum(map(bool, cells)) == 1)


def _cells(line: str, sep: str | None) -> list[str]:
    try:
        return [
            cell.strip() for cell in next(csv.reader([line], delimiter=sep or _separator(line)))
        ]
    except csv.Error:
        return [line]


def _with_row_names(header: list[str], rows: list[list[str]]) -> list[str]:
    """The header with a place for a value that every row has beyond it.

    R writes names of rows without a name for their column; others end every row with a separator.
    """
    if not rows or {len(row) for row in rows} != {len(header) + 1}:
        return header
    if not any(row[-1].strip() for row in rows):
        return [*header, ""]
    notice("the rows have one value more than the header: the first one is taken for their names")
    return ["", *header]


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

    source, encoding = _arrow_source(path, options, whole)
    read_options = arrow_csv.ReadOptions(
        column_names=names, skip_rows=lines, block_size=LARGEST_CELL, encoding=encoding
    )
    # Threads of pyarrow that release a function of Python's when the process ends abort it: a file
    # is read without one first, and again with one if it has rows of other lengths.
    plain, judged = (
        arrow_csv.ParseOptions(
            delimiter=separator, newlines_in_values=True, invalid_row_handler=handler
        )
        for handler in (None, judge)
    )
    convert_options = arrow_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
    )
    with source as file:
        try:
            if not whole:
                found = arrow_csv.open_csv(file, read_options, judged, convert_options)
            else:
                try:
                    found = arrow_csv.read_csv(file, read_options, plain, convert_options)
                except pa.ArrowInvalid as error:
                    if "columns, got" not in str(error):
                        raise
                    file.seek(0)
                    read_options.use_threads = False
                    found = arrow_csv.read_csv(file, read_options, judged, convert_options)
            for table in [found] if whole else map(_table_of_batch, found):
                yield [pc.utf8_trim_whitespace(table.column(name)) for name in names]
        except pa.ArrowInvalid as error:
            if any(words in str(error) for words in ("Empty CSV file", "Could not skip initial")):
                yield [pa.chunked_array([pa.array([], pa.string())]) for _ in header]
                return
            if wrong:
                raise TableError(
                    _ragged_message(path, wrong[0], len(header), separator, options)
                ) from error
            if "UTF8" in str(error):
                raise UnicodeError("invalid bytes") from error
            raise TableError(f"{path} is not a text table: {error}") from error


def _arrow_source(path: Path, options: TextOptions, whole: bool) -> tuple[Any, str]:
    """The bytes of a file for pyarrow, and their encoding.

    Threads of pyarrow that still call Python when the process ends abort it, so that they get no
    file and no decoder of Python's unless a file in batches needs one.
    """
    import pyarrow as pa

    encoding, packed = _encoding(path, options), path.suffix.lower() in PACKED
    encoding = "utf8" if encoding in ("utf-8", "utf-8-sig") else encoding
    if encoding == "utf8" and not packed:
        return pa.OSFile(str(path)), encoding
    if not whole:
        return _open_bytes(path), encoding
    memory = pa.BufferOutputStream()  # pyarrow's own: its threads would release bytes of Python's
    with _open_bytes(path) as file:
        if encoding == "utf8":
            while part := file.read(LARGEST_CELL):
                memory.write(part)
        else:
            memory.write(file.read().decode(encoding).encode())
    return pa.BufferReader(memory.getvalue()), "utf8"


def _table_of_batch(batch: Any) -> Any:
    import pyarrow as pa

    return pa.Table.from_batches([batch])


def _ragged_message(path: Path, row: Any, width: int, separator: str, options: TextOptions) -> str:
    """Which line has too many values, or too few."""
    start = row.text.splitlines()[0].strip()
    with _open(path, options) as file:
        line = next((i for i, text in enumerate(file, 1) if text.strip() == start), 0)
    values = "1 value" if row.actual_columns == 1 else f"{row.actual_columns} values"
    columns = "1 column" if width == 1 else f"{width} columns"
    found = f"{path}, line {line}: {values} for the {columns} of the header"
    if row.actual_columns > width:
        found += f" (a value that contains {separator!r} must be in quotes)"
    return found


def _encoding(path: Path, options: TextOptions) -> str:
    """The encoding that was asked for, UTF-16 if the file says so, or UTF-8."""
    if options.encoding:
        return codecs.lookup(options.encoding).name
    with _open_bytes(path) as file:
        return "utf-16" if file.read(2) in (b"\xff\xfe", b"\xfe\xff") else "utf-8"


def _encoding_message(path: Path, options: TextOptions, error: Exception) -> str:
    if options.encoding:
        return f"{path} cannot be read with the encoding {options.encoding}: {error}"
    with _open_bytes(path) as file:
        start = file.read(1_000)
    if 3 * start.count(0) > len(start):  # every other byte of UTF-16 in European languages
        return f"{path} is not valid UTF-8: pass --encoding utf-16-le, or save it as UTF-8"
    return (
        f"{path} is not valid UTF-8: pass --encoding (cp1252 for files of Windows programs), or "
        "save it as UTF-8"
    )


def _open(path: Path, options: TextOptions) -> TextIO:
    encoding = _encoding(path, options)
    encoding = "utf-8-sig" if encoding.lower().replace("-", "") == "utf8" else encoding
    return io.TextIOWrapper(_open_bytes(path), encoding=encoding, newline="")


def _open_bytes(path: Path) -> Any:
    packed = PACKED.get(path.suffix.lower())
    return path.open("rb") if packed is None else packed(path, "rb")


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
        with _open_bytes(path) as file:
            content = file.read()
        X, y = load_svmlight_file(io.BytesIO(content))
    except (ValueError, OverflowError, EOFError, gzip.BadGzipFile, zlib.error,
            lzma.LZMAError) as error:  # fmt: skip
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
