"""Text files of columns: find the separator, the names and the encoding, and read the cells."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from kernelsieve._files import UNPACKING_ERRORS, is_packed, open_bytes
from kernelsieve._validation import check_choice
from kernelsieve.tables.sizes import refuse_beyond_memory
from kernelsieve.tables.table import Table, TableError, column_names, listed, notice
from kernelsieve.tables.texts import SHOWN, Column, Reading, decimal_sign, number, understood

LARGEST_CELL = 2**24  # characters; also of a row
SNIFFED_ROWS = 300  # of each column, to find the decimal sign
SEPARATORS = ",;\t|"
SEP_LINE = re.compile(r"(?i)\"?sep=(.)\"?[,;]*")
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
NUL = "\0"
# One comma or point, before three digits: it may be a decimal sign, or separate thousands.
MAYBE_GROUPED = re.compile(r"(?:^|[^\d.,])[1-9]\d{0,2}([.,])\d{3}(?:[^\d.,]|$)")
# How other files begin that are called .csv by mistake, and how they should be called.
OTHER_FILES = {
    b"PK\3\4": ".xlsx (or .zip: unpack it)",
    b"\x1f\x8b": ".csv.gz",
    b"BZh": ".csv.bz2",
    b"\xfd7zXZ": ".csv.xz",
    b"PAR1": ".parquet",
    b"ARROW1": ".arrow",
}
LINES_ABOVE = 50  # lines among which the names of the columns are looked for
ROWS_COUNTED = 20  # whose values are counted, to find names of rows


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


def csv_batches(path: Path, options: TextOptions) -> Iterator[Table]:
    """The table of a text file in batches of about 16 MB."""
    with _text_errors(path, options):
        header, separator, lines = _header(path, options)
        header = unique_names(header)
        for columns in _text_columns(path, header, separator, lines, options, whole=False):
            # The notes on the first batch are those on the file.
            table = from_texts(path, header, columns, separator, options, options.readings is None)
            options = replace(options, readings=table.readings)
            yield table


def read_csv(path: Path, options: TextOptions) -> Table:
    """The table of a text file."""
    with _text_errors(path, options):
        header, separator, lines = _header(path, options)
        (columns,) = _text_columns(path, header, separator, lines, options)
    used = [i for i, name in enumerate(header) if name or not _is_empty(columns[i])]
    names = unique_names(header)
    return from_texts(
        path, [names[i] for i in used], [columns[i] for i in used], separator, options
    )


def unique_names(header: list[str]) -> list[str]:
    """Names of all columns, each once; where one is missing or repeated, the name of pandas."""
    taken = set(header)
    names: list[str] = []
    renamed: list[str] = []
    for place, given in enumerate(header):
        name = given or f"Unnamed: {place}"
        if name in names:
            count = 1
            while f"{name}.{count}" in taken:
                count += 1
            name = f"{name}.{count}"
            taken.add(name)
            renamed.append(f"{given!r} to {name!r}")
        names.append(name)
    if renamed:
        notice(f"the header repeats names of columns; renamed {listed(renamed)}")
    return names


def _is_empty(texts: Any) -> bool:
    import pyarrow.compute as pc

    return not pc.any(pc.not_equal(texts, "")).as_py()


@contextmanager
def _text_errors(path: Path, options: TextOptions) -> Iterator[None]:
    try:
        yield
    except (UnicodeError, LookupError) as error:
        raise TableError(_encoding_message(path, options, error)) from error
    except UNPACKING_ERRORS as error:
        raise TableError(f"{path} is not a text table: {error}") from error


def from_texts(
    path: Path,
    header: list[str],
    columns: list[Any],
    separator: str,
    options: TextOptions,
    notes: bool = True,
) -> Table:
    """Understand columns of texts; ``notes`` tells which of them count as missing."""
    import pyarrow.compute as pc

    decimal = options.decimal or decimal_sign(
        (column.slice(0, SNIFFED_ROWS).unique().to_pylist() for column in columns), separator
    )
    found = {
        name: understood(
            texts, (options.readings or {}).get(name), decimal, options.date_format or None, name
        )
        for name, texts in zip(header, columns, strict=True)
    }
    for name, texts in zip(header, columns, strict=True):
        may_hold_it = found[name].values.dtype.kind == "O" or found[name].odd
        if may_hold_it and pc.any(pc.match_substring(texts, NUL)).as_py():
            raise TableError(_nul_message(path, options))
    if options.readings is None:
        note_readings(found)
    for name, column in found.items() if notes else ():
        note_odd(name, column)
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


def note_readings(found: dict[str, Column]) -> None:
    """Tell how unusual numbers and times were understood: one note for each kind of reading."""
    alike: dict[tuple[Reading, bool], list[str]] = {}
    for name, column in found.items():
        if column.example is not None:
            alike.setdefault((column.reading, column.swappable), []).append(name)
    for (reading, swappable), names in alike.items():
        example = found[names[0]].example or ""
        value = reading.value(example)
        shown = f"the {'time' if 'T' in str(value) else 'date'} {value}"
        if reading.kind == "number":
            shown = f"the number {value:.12g}"
        elif reading.kind == "text":
            shown = "a code, not as a number"
        way_out = "; if day and month are swapped, pass date_format='%d/%m/%Y'" if swappable else ""
        if reading.kind == "number" and (match := MAYBE_GROUPED.search(example)):
            other = "." if reading.decimal == "," else ","
            decimal_is_mark = match[1] == reading.decimal
            right = (
                f"'{match[1]}' separates thousands"
                if decimal_is_mark
                else (f"'{match[1]}' is the decimal sign")
            )
            way_out = f"; if {right}, pass decimal={other!r}"
        notice(f"{column_names(names)}: {example!r} is read as {shown}{way_out}")
        bare = next((b for name in names if (b := found[name].bare) is not None), None)
        if bare is not None:
            notice(
                f"{column_names(names)}: some values have a {reading.unit} sign and others have "
                f"none; {bare!r} is read as {reading.value(bare):g}, not multiplied by 100"
            )


def note_odd(name: str, column: Column) -> None:
    """Tell which texts of a column of numbers or times count as missing."""
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
    with _open(path, options) as file, _long_cells():
        top = list(itertools.islice(_lines(file), LINES_ABOVE))
        above, declared = _lines_above(top, options.sep)
        rest = itertools.chain(top[above:], _lines(file))
        first = next(rest, "")
        separator = options.sep or declared or _separator(first)
        if separator not in first and _are_decimals(top[above + 1 :]):
            separator = ";"
        reader = csv.reader(itertools.chain([first], rest), delimiter=separator)
        try:
            header = [name.strip() for name in next(reader, [])]
            lines = above + reader.line_num
            rows = list(itertools.islice((row for row in reader if any(row)), ROWS_COUNTED))
        except csv.Error as error:
            raise TableError(f"{path} has no header line with column names: {error}") from error
    if not any(header):
        raise TableError(f"{path} has no header line with column names")
    _refuse_nul(path, options, header)
    return _with_row_names(header, rows), separator, lines


@contextmanager
def _long_cells() -> Iterator[None]:
    """Let Python's reader have cells as long as those that pyarrow reads."""
    before = csv.field_size_limit(LARGEST_CELL)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _are_decimals(lines: list[str]) -> bool:
    """Whether lines hold one number each, with a decimal comma."""
    filled = [line.strip() for line in lines if line.strip()]
    return bool(filled) and all(DECIMAL_COMMA.fullmatch(line) for line in filled)


def _refuse_nul(path: Path, options: TextOptions, names: list[str]) -> None:
    if any(NUL in name for name in names):
        raise TableError(_nul_message(path, options))


def _nul_message(path: Path, options: TextOptions) -> str:
    line = _line_number(path, options, lambda text: NUL in text)
    return (
        f"{path}, line {line}: a NUL byte in a text: remove it, or pass encoding='utf-16-le' if "
        "the file is UTF-16"
    )


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
    # One line with "#" and as many values may be the names themselves.
    only = _next_filled(top, first + 1) == place
    commented = only and top[first].startswith("#") and len(_cells(top[first], sep)) == len(names)
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
    comments: list[str] = []

    def judge(row: Any) -> str:
        if not row.text.replace(separator, "").strip():
            return "skip"
        if row.text.startswith("#"):
            comments.append(row.text)
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
            columns = [pa.array([], pa.string())]
            for table in [found] if whole else map(_table_of_batch, found):
                columns = [pc.utf8_trim_whitespace(table.column(name)) for name in names]
                yield columns
            _refuse_open_quote(path, options, columns[-1])
            if comments:
                count = "1 line" if len(comments) == 1 else f"{len(comments):,} lines"
                notice(f"comments ignored: {count} from {comments[0].strip()[:40]!r} on")
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
            if "straddling" in str(error):
                raise TableError(
                    f"{path} is not a text table: a row has more than {LARGEST_CELL:,} characters; "
                    "is a quote left open?"
                ) from error
            raise TableError(f"{path} is not a text table: {error}") from error


def _refuse_open_quote(path: Path, options: TextOptions, last: Any) -> None:
    """Raise if the last cell holds the rest of the file, because its quote is not closed."""
    cell = last[-1].as_py() if len(last) else ""
    if "\n" not in cell and "\r" not in cell:
        return
    with _open(path, options) as file:
        end = ""
        while part := file.read(LARGEST_CELL):
            end = part.rstrip()[-1:] or end
    if end != '"':
        start = cell.splitlines()[0]
        line = _line_number(path, options, lambda text: text.strip().endswith(f'"{start}'))
        raise TableError(f"{path}, line {line}: a quote is opened and never closed")


def _arrow_source(path: Path, options: TextOptions, whole: bool) -> tuple[Any, str]:
    """The bytes of a file for pyarrow, and their encoding.

    Threads of pyarrow that still call Python when the process ends abort it, so that they get no
    file and no decoder of Python's unless a file in batches needs one.
    """
    import pyarrow as pa

    encoding = _encoding(path, options)
    encoding = "utf8" if encoding in ("utf-8", "utf-8-sig") else encoding
    if encoding == "utf8" and not is_packed(path):
        if whole:
            refuse_beyond_memory(path, path.stat().st_size)
        return pa.OSFile(str(path)), encoding
    if not whole:
        return open_bytes(path), encoding
    memory = pa.BufferOutputStream()  # pyarrow's own: its threads would release bytes of Python's
    decoder = codecs.getincrementaldecoder(encoding)()
    with open_bytes(path) as file:
        while part := file.read(LARGEST_CELL):
            memory.write(part if encoding == "utf8" else decoder.decode(part).encode())
            refuse_beyond_memory(path, memory.tell())
    decoder.decode(b"", final=True)
    return pa.BufferReader(memory.getvalue()), "utf8"


def _table_of_batch(batch: Any) -> Any:
    import pyarrow as pa

    return pa.Table.from_batches([batch])


def _ragged_message(path: Path, row: Any, width: int, separator: str, options: TextOptions) -> str:
    """Which line has too many values, or too few."""
    start = row.text.splitlines()[0].strip()
    line = _line_number(path, options, lambda text: text.strip() == start)
    values = "1 value" if row.actual_columns == 1 else f"{row.actual_columns} values"
    columns = "1 column" if width == 1 else f"{width} columns"
    found = f"{path}, line {line}: {values} for the {columns} of the header"
    if row.actual_columns > width:
        found += f" (a value that contains {separator!r} must be in quotes)"
    return found


def _line_number(path: Path, options: TextOptions, wanted: Callable[[str], bool]) -> int:
    """The first line that is so, counted from 1."""
    with _open(path, options) as file:
        return next((i for i, text in enumerate(_lines(file), 1) if wanted(text)), 0)


def _encoding(path: Path, options: TextOptions) -> str:
    """The encoding that was asked for, UTF-16 or UTF-32 if the file says so, or UTF-8."""
    if options.encoding:
        return codecs.lookup(options.encoding).name
    with open_bytes(path) as file:
        start = file.read(4)
    if start in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE):
        return "utf-32"
    return "utf-16" if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8"


def _encoding_message(path: Path, options: TextOptions, error: Exception) -> str:
    with open_bytes(path) as file:
        start = file.read(1_000)
    other = next((right for mark, right in OTHER_FILES.items() if start.startswith(mark)), None)
    if other is not None:
        return f"{path} is not a text file; its name should end with {other}"
    if options.encoding:
        return f"{path} cannot be read with the encoding {options.encoding}: {error}"
    if 3 * start.count(0) > len(start):  # every other byte of UTF-16 in European languages
        return f"{path} is not valid UTF-8: pass encoding='utf-16-le', or save it as UTF-8"
    return (
        f"{path} is not valid UTF-8: pass encoding='cp1252' (files of Windows programs) or another "
        "encoding, or save it as UTF-8"
    )


def _open(path: Path, options: TextOptions) -> TextIO:
    encoding = _encoding(path, options)
    encoding = "utf-8-sig" if encoding.lower().replace("-", "") == "utf8" else encoding
    return io.TextIOWrapper(open_bytes(path), encoding=encoding, newline="")
