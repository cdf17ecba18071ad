"""Sheets of Excel workbooks."""

from __future__ import annotations

import sys
import warnings
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command_line import failing

from kernelsieve.tables.readers import read_batches, read_table
from kernelsieve.tables.table import Table, TableError, TableNotice

HEADER = ["size", "town", "built", "sold", "took", "price", "ok"]
ROWS = [
    [
        50,
        "Ulm",
        date(2021, 3, 25),
        datetime(2022, 1, 2, 10, 30),
        timedelta(hours=2),
        "$1,200",
        True,
    ],
    [60.5, None, date(2020, 12, 1), datetime(2022, 1, 3), timedelta(hours=1.5), "$900", False],
]


def noted(path: Path, **options: Any) -> tuple[Table, str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = read_table(path, **options)
    return table, "\n".join(str(w.message) for w in caught if w.category is TableNotice)


def test_openpyxl_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    (tmp_path / "a.xlsx").write_bytes(b"x")
    with pytest.raises(TableError, match=r"needs openpyxl: pip install 'kernelsieve\[excel\]'"):
        read_table(tmp_path / "a.xlsx")


@pytest.fixture
def book(tmp_path: Path) -> Any:
    openpyxl = pytest.importorskip("openpyxl")

    def write(sheets: dict[str, list[list[Any]]]) -> Path:
        found = openpyxl.Workbook()
        found.remove(found.active)
        for name, rows in sheets.items():
            sheet = found.create_sheet(name)
            for row in rows:
                sheet.append(row)
        path: Path = tmp_path / "a.xlsx"
        found.save(path)
        return path

    return write


def test_cells_are_read_like_those_of_text_files(book: Any) -> None:
    table, said = noted(book({"A": [HEADER, *ROWS]}))
    found = {name: values.tolist() for name, values in table.columns.items()}
    assert found == {
        "size": [50.0, 60.5],
        "town": ["Ulm", None],
        "built": ["2021-03-25", "2020-12-01"],
        "sold": ["2022-01-02T10:30:00", "2022-01-03"],
        "took": [2.0, 1.5],
        "price": [1200.0, 900.0],
        "ok": ["True", "False"],
    }
    assert "'$1,200' is read as the number 1200" in said
    (batch,) = read_batches(book({"A": [HEADER, *ROWS]}), readings=table.readings)
    np.testing.assert_array_equal(batch.columns["price"], table.columns["price"])


def test_sheets_are_named_behind_the_file(book: Any) -> None:
    path = book({"A": [["x"], [1]], "B b": [["y"], [2]]})
    table, said = noted(path)
    assert list(table.columns) == ["x"]
    assert "read the first sheet, 'A'; for another one (B b) write a.xlsx#B b" in said
    table, said = noted(Path(f"{path}#B b"))
    assert table.columns["y"].tolist() == [2.0]
    assert said == ""
    with pytest.raises(TableError, match="has no sheet 'C': it has A, B b"):
        read_table(f"{path}#C")


def test_titles_empty_rows_and_names_that_repeat(book: Any) -> None:
    rows = [["Flats"], [], ["size", None, "size"], [50, None, 51], [], [60, None, 61], [None]]
    table, said = noted(book({"A": rows}))
    assert {name: values.tolist() for name, values in table.columns.items()} == {
        "size": [50.0, 60.0], "size.1": [51.0, 61.0]
    }  # fmt: skip
    assert "rows above the names of the columns ignored, the first is 'Flats'" in said
    assert "renamed 'size' to 'size.1'" in said
    with pytest.raises(TableError, match="has an empty sheet"):
        read_table(book({"A": []}))


def test_formulas_without_a_stored_value_are_noted(book: Any) -> None:
    """openpyxl stores none, and they would be missing without a word."""
    table, said = noted(book({"A": [["a", "b"], [1, "=A2*2"], [2, "=A3*2"]]}))
    assert np.isnan(table.columns["b"]).all()
    assert "2 formulas without a stored value count as missing" in said


def test_errors_of_cells_are_missing_values(book: Any) -> None:
    cells = [[float(i)] for i in range(30)] + [["#DIV/0!"]]
    table, said = noted(book({"A": [["a"], *cells]}))
    assert np.isnan(table.columns["a"][-1])
    assert "1 other value counts as missing: '#DIV/0!'" in said


def test_clock_times_are_hours(book: Any) -> None:
    table, _ = noted(book({"A": [["t"], [time(9, 45)], [time(13, 30)]]}))
    assert table.columns["t"].tolist() == [9.75, 13.5]


def test_what_is_no_workbook_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openpyxl")
    monkeypatch.chdir(tmp_path)
    Path("a.xlsx").write_bytes(b"PK no workbook")
    assert "a.xlsx is not an .xlsx file" in failing(["inspect", "a.xlsx"], capsys)
    assert "b.xlsx does not exist" in failing(["inspect", "b.xlsx#A"], capsys)
