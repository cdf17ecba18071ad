"""Sheets of Excel workbooks (.xlsx), by openpyxl."""

from __future__ import annotations

import zipfile
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from kernelsieve._files import split_sheet
from kernelsieve.tables.sizes import refuse_beyond_memory
from kernelsieve.tables.table import Table, TableError, listed, notice, plural
from kernelsieve.tables.text_files import TextOptions, from_texts, unique_names

NEEDED = "needs openpyxl: pip install 'kernelsieve[excel]', or save the sheet as CSV"


def read_sheet(path: Path, options: TextOptions) -> Table:
    """The table in a sheet, which ``book.xlsx#Sheet`` names; otherwise the first.

    Cells are understood as in a text file. Of a formula, the value that was stored with it is read.
    """
    import pyarrow as pa

    if not split_sheet(path)[0].exists():
        raise FileNotFoundError(path)
    rows = [[_text(cell) for cell in row] for row in _rows(path, options, values=True)]
    start = _first_row(path, rows)
    header, rows = rows[start], [row for row in rows[start + 1 :] if any(row)]
    _note_formulas(path, options, rows)
    used = [i for i, name in enumerate(header) if name or any(row[i] for row in rows)]
    names = unique_names(header)
    columns = [pa.chunked_array([pa.array([row[i] for row in rows], pa.string())]) for i in used]
    return from_texts(Path(path), [names[i] for i in used], columns, ",", options)


def _rows(path: Path, options: TextOptions, values: bool) -> list[list[Any]]:
    """The cells of a sheet, all rows of one length: stored values, or formulas."""
    try:
        import openpyxl
        from openpyxl.utils.exceptions import InvalidFileException
    except ImportError as error:
        raise TableError(f"{path}: reading .xlsx {NEEDED}") from error
    file, sheet = split_sheet(path)
    try:
        with zipfile.ZipFile(file) as archive:
            refuse_beyond_memory(file, sum(part.file_size for part in archive.infolist()))
        book = openpyxl.load_workbook(file, read_only=True, data_only=values)
    except (InvalidFileException, zipfile.BadZipFile, KeyError, EOFError) as error:
        raise TableError(f"{file} is not an .xlsx file: {error}") from error
    try:
        names = [each.title for each in book.worksheets]
        if sheet is not None and sheet not in names:
            raise TableError(f"{file} has no sheet {sheet!r}: it has {listed(names)}")
        if sheet is None and len(names) > 1 and values and options.readings is None:
            notice(
                f"read the first sheet, {names[0]!r}; for another one ({listed(names[1:])}) write "
                f"{file.name}#{names[1]}"
            )
        found = [list(row) for row in book[sheet or names[0]].iter_rows(values_only=True)]
    except (zipfile.BadZipFile, KeyError, SyntaxError, TypeError) as error:
        raise TableError(f"{file} is a damaged .xlsx file: {error!r}") from error
    finally:
        book.close()
    width = max(map(len, found), default=0)
    return [row + [None] * (width - len(row)) for row in found]


def _first_row(path: Path, rows: list[list[str]]) -> int:
    """The place of the names of the columns: below empty rows, and titles of one cell."""
    filled = [i for i, row in enumerate(rows) if any(row)]
    if not filled:
        raise TableError(f"{path} has an empty sheet")
    several = next((i for i in filled if sum(map(bool, rows[i])) > 1), filled[0])
    if several > filled[0]:
        title = next(filter(None, rows[filled[0]]))
        notice(f"rows above the names of the columns ignored, the first is {title[:40]!r}")
    return several


def _note_formulas(path: Path, options: TextOptions, rows: list[list[str]]) -> None:
    """Tell of formulas without a stored value: they would silently count as missing."""
    if all(all(row) for row in rows):
        return
    empty = sum(
        str(formula).startswith("=") and value is None
        for formulas, values in zip(
            _rows(path, options, values=False), _rows(path, options, values=True), strict=True
        )
        for formula, value in zip(formulas, values, strict=True)
    )
    if empty:
        notice(
            f"{plural(empty, 'formula')} without a stored value count as missing: open the file "
            "in a spreadsheet program and save it"
        )


def _text(cell: Any) -> str:
    """A cell as a text file would hold it: times in ISO 8601, durations in hours."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell)
    if isinstance(cell, datetime):
        midnight = cell.time() == time()
        return cell.date().isoformat() if midnight else cell.isoformat(timespec="seconds")
    if isinstance(cell, date | time):
        return cell.isoformat()
    if isinstance(cell, timedelta):
        return repr(cell.total_seconds() / 3600)
    return str(cell).strip()
