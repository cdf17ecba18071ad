"""Text files as people have them: odd tokens, decimal commas, currencies, dates, encodings."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.csv
import pyarrow.feather as feather
import pytest
from support.command_line import failing
from support.tables import flats, written
from typer.testing import CliRunner

import kernelsieve
from kernelsieve import TableModel, cli
from kernelsieve.tables import text_files
from kernelsieve.tables.encoder import TableEncoder
from kernelsieve.tables.readers import read_batches, read_table, with_readings
from kernelsieve.tables.table import Table, TableError, TableNotice, as_table, is_missing
from kernelsieve.tables.target import task_and_targets

ODD = ["-", ".", "missing", "n.a.", "#N/A"]


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str, encoding: str = "utf-8", name: str = "a.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode(encoding))
        return path

    return write


def noted(path: Path, **options: Any) -> tuple[Table, str]:
    """A table and what is noted about it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = read_table(path, **options)
    return table, "\n".join(str(w.message) for w in caught if w.category is TableNotice)


# --- numbers --------------------------------------------------------------------------------------


def test_odd_tokens_in_a_numeric_column_are_missing_values(file: Callable[..., Path]) -> None:
    cells = [str(i / 4) for i in range(100)]
    for place, token in zip(range(0, 100, 20), ODD, strict=True):
        cells[place] = token
    table, said = noted(
        file("a,b\n" + "".join(f"{cell},x{i % 3}\n" for i, cell in enumerate(cells)))
    )
    values = table.columns["a"]
    assert values.dtype == np.float64
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(values)), range(0, 100, 20))
    assert values[41] == 41 / 4
    assert "column 'a' is read as numbers; 3 other values count as missing" in said
    assert all(repr(token) in said for token in ("-", ".", "missing"))


def test_a_model_uses_a_column_with_odd_tokens(tmp_path: Path) -> None:
    """They made the column texts that nearly all differ, so that it was dropped as names."""
    columns = flats(240)
    columns["size"] = [
        ODD[i % 5] if i % 20 == 0 else f"{v:.2f}" for i, v in enumerate(columns["size"])
    ]
    path = written(tmp_path / "a.csv", columns)
    with pytest.warns(TableNotice):
        model = TableModel("rent", n_components=60, gamma=0.05, alpha=0.1).fit(path)
    assert model.facts_["columns"][0][0] == "size"
    assert model.facts_["scores"]["R2"] > 0.7


def test_few_numbers_among_texts_stay_texts(file: Callable[..., Path]) -> None:
    table, said = noted(
        file("a\n" + "".join(f"{'12' if i % 3 == 0 else 'x' * (i % 5)}y\n" for i in range(60)))
    )
    assert table.columns["a"].dtype == object
    assert said == ""
    table, _ = noted(file("a\n" + "1\n2\nthree\n4\n" * 10))  # a quarter of them are texts
    assert table.columns["a"].tolist()[:4] == ["1", "2", "three", "4"]


SIGNS = {
    "decimal comma": ("a;b\n1,5;2\n2,25;3\n", [1.5, 2.25], "'1,5' is read as the number 1.5"),
    "points for thousands": ("a;b\n1.234,56;2\n2.000,00;3\n", [1234.56, 2000.0], "1234.56"),
    "only points": ("a;b\n1.234;2,5\n2.000;3,5\n", [1234.0, 2000.0], "'1.234' is read as"),
    "thousands": ('a,b\n"1,234",2\n"12,000",3\n', [1234.0, 12000.0], "the number 1234"),
    "both": ('a,b\n"1,234.5",2\n"12,000.25",3\n', [1234.5, 12000.25], "the number 1234.5"),
    "percent": ("a,b\n22%,1\n3.5%,2\n", [22.0, 3.5], "'22%' is read as the number 22"),
    "currency": ('a,b\n"$100,000",1\n$5.50,2\n', [100000.0, 5.5], "the number 100000"),
    "currency behind": ("a;b\n3,50 €;1\n1.200 €;2\n", [3.5, 1200.0], "the number 3.5"),
    "apostrophes": ("a;b\n1'234.5;1\n2'000.0;2\n", [1234.5, 2000.0], "the number 1234.5"),
    "exponents": ("a,b\n1e3,1\n-2.5E-1,2\n", [1000.0, -0.25], None),
    "plus": ("a,b\n+5,1\n-6,2\n", [5.0, -6.0], None),
    "losses": ("a,b\n(2.50),1\n7.25,2\n", [-2.5, 7.25], "'(2.50)' is read as the number -2.5"),
    "losses in dollars": ("a,b\n($2.50),1\n$7,2\n", [-2.5, 7.0], "the number -2.5"),
    "minus sign": ("a,b\n\u22122.5,1\n3,2\n", [-2.5, 3.0], "the number -2.5"),
    "months": (
        "a,b\n36 months,1\n1 month,2\n",
        [36.0, 1.0],
        "'36 months' is read as the number 36",
    ),
    "area": ("a;b\n37,5 m2;1\n50 m2;2\n", [37.5, 50.0], "the number 37.5"),
    "currency code": ("a,b\nUSD 3.50,1\nUSD 4,2\n", [3.5, 4.0], "the number 3.5"),
    "clock": ("a,b\n9:45,1\n13:30,2\n", [9.75, 13.5], "'9:45' is read as the number 9.75"),
    "12-hour clock": ("a,b\n9:45 PM,1\n12:30 am,2\n", [21.75, 0.5], "the number 21.75"),
    "duration": ("a,b\n1:30:00,1\n100:00:36,2\n", [1.5, 100.01], "the number 1.5"),
    "magnitudes": ("a,b\n3.6k,1\n500,2\n", [3600.0, 500.0], "'3.6k' is read as the number 3600"),
    "magnitudes and currency": (
        'a,b\n13.5k,1\n"$22,846.88",2\n$1.2M,3\n($2k),4\n',
        [13_500.0, 22_846.88, 1.2e6, -2_000.0],
        "'13.5k' is read as the number 13500",
    ),
    "magnitudes with a decimal comma": ("a;b\n13,5k;1\n2k;2\n", [13_500.0, 2_000.0], "13500"),
    "euros in front": ("a;b\n€1.234,50;1\n€7,25;2\n", [1234.5, 7.25], "the number 1234.5"),
    "accountants": ('a,b\n"(1,234)",1\n"2,000.5",2\n', [-1234.0, 2000.5], "the number -1234"),
    "spaces for thousands": ("a,b\n1 234,1\n12 500,2\n", [1234.0, 12500.0], "the number 1234"),
    "some with a per cent sign": (
        "a,b\n45%,1\n0.45,2\n",
        [45.0, 0.45],
        "'0.45' is read as 0.45, not multiplied by 100",
    ),
    "one decimal comma a line": ("a\n1,5\n2,25\n", [1.5, 2.25], "the number 1.5"),
    "a comma that may separate thousands": (
        "a;b\n1,234;1\n2,345;2\n",
        [1.234, 2.345],
        "'1,234' is read as the number 1.234; if ',' separates thousands, pass decimal='.'",
    ),
    "bars": ("a|b\n1.5|2\n2.5|3\n", [1.5, 2.5], None),
}


@pytest.mark.parametrize(("text", "values", "said"), SIGNS.values(), ids=SIGNS)
def test_numbers_as_people_write_them(
    text: str, values: list[float], said: str | None, file: Callable[..., Path]
) -> None:
    table, notes = noted(file(text))
    np.testing.assert_array_equal(table.columns["a"], values)
    assert all(values.dtype == np.float64 for values in table.columns.values())
    if said is not None:
        assert said in notes


NO_NUMBERS = {
    "grades": ["E5", "A1", "B3"],  # "E5" was an exponent without a number, and ended the fit
    "flats": ["12B", "3B", "4A", "5C"],
    "two currencies": ["$5", "€6", "$7", "€8"],
    "two units": ["3 kg", "500 g", "2 kg", "700 g"],
    "ordinals": ["1st", "2nd", "3rd"],
    "codes": ["B12", "B13", "C14"],
    "no time": ["9:75", "13:30", "x", "y"],
}


@pytest.mark.parametrize("cells", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_texts_that_are_no_numbers_stay_texts(cells: list[str], file: Callable[..., Path]) -> None:
    table, said = noted(file("a,b\n" + "".join(f"{cell},1\n" for cell in cells)))
    assert table.columns["a"].tolist() == cells
    assert said == ""


def test_codes_with_zeros_in_front_are_no_numbers(file: Callable[..., Path]) -> None:
    table, said = noted(file("zip,b\n01067,1\n89073,2\n,3\n"))
    assert table.columns["zip"].tolist() == ["01067", "89073", None]
    assert "column 'zip': '01067' is read as a code, not as a number" in said
    table, said = noted(file("hour,b\n0930,1\n1345,2\n"))  # too short for a code
    assert table.columns["hour"].tolist() == [930.0, 1345.0]
    assert said == ""


CODES = {
    "phone numbers": [f"+1555123{i:04d}" for i in range(9)],  # were 1.5e10
    "phone numbers in groups": [f"555 123 4{i}7" for i in range(10, 19)],
    "phone numbers with a zero in front": [f"030 123 4{i}" for i in range(10, 19)],
    "addresses of computers": [f"192.168.1{i}.100" for i in range(10, 19)],  # were 1.9e11
    "identifiers longer than a number": [f"1234567890123456{i}" for i in range(10, 19)],  # all one
    "products": [f"{i}E5" for i in range(1, 9)],
}


@pytest.mark.parametrize("cells", CODES.values(), ids=CODES)
def test_codes_do_not_become_numbers(cells: list[str], file: Callable[..., Path]) -> None:
    table, said = noted(file("a,b\n" + "".join(f"{cell},1\n" for cell in cells)))
    assert table.columns["a"].tolist() == cells
    assert f"column 'a': {cells[0]!r} is read as a code, not as a number" in said


def test_a_name_says_that_digits_are_codes(file: Callable[..., Path]) -> None:
    table, said = noted(file("zip_code,zipped\n10001,10001\n90210,90210\n"))
    assert table.columns["zip_code"].tolist() == ["10001", "90210"]
    assert table.columns["zipped"].tolist() == [10001.0, 90210.0]
    assert said == "column 'zip_code': '10001' is read as a code, not as a number"


def test_the_decimal_sign_can_be_given(file: Callable[..., Path]) -> None:
    path = file('a,b\n"1,234",x\n"2,000",y\n')
    np.testing.assert_array_equal(noted(path)[0].columns["a"], [1234.0, 2000.0])
    np.testing.assert_array_equal(noted(path, decimal=",")[0].columns["a"], [1.234, 2.0])


def test_the_separator_can_be_given(file: Callable[..., Path]) -> None:
    path = file("a b,c\n1 2,5\n2 3,5\n")
    assert list(noted(path)[0].columns) == ["a b", "c"]
    assert list(noted(path, sep=" ")[0].columns) == ["a", "b,c"]
    with pytest.raises(TableError, match="sep='::' must be one character"):
        read_table(path, sep="::")


# --- dates ----------------------------------------------------------------------------------------

DATES = {
    "German": ("25.03.2021", "01.12.2020", "2021-03-25"),
    "American": ("03/25/2021", "12/01/2020", "2021-03-25"),
    "British": ("25/03/2021", "01/12/2020", "2021-03-25"),
    "slashes": ("2021/03/25", "2020/12/01", "2021-03-25"),
    "with time": ("25.03.2021 10:30", "01.12.2020 09:00", "2021-03-25T10:30:00"),
    "month": ("25 Mar 2021", "1 Dec 2020", "2021-03-25"),
    "long month": ('"March 25, 2021"', '"December 1, 2020"', "2021-03-25"),
    "short year": ("25-Mar-21", "01-Dec-20", "2021-03-25"),
    "digits": ("20210325", "20201201", "2021-03-25"),
    "12 hours": ("3/25/2021 1:30 PM", "12/1/2020 9:00 AM", "2021-03-25T13:30:00"),
}


@pytest.mark.parametrize(("first", "second", "iso"), DATES.values(), ids=DATES)
def test_dates_as_people_write_them(
    first: str, second: str, iso: str, file: Callable[..., Path]
) -> None:
    table, said = noted(file(f"d,b\n{first},1\n{second},2\n,3\n"))
    assert table.columns["d"].tolist()[::2] == [iso, None]
    shown = first.strip('"')
    assert f"{shown!r} is read as the {'time' if 'T' in iso else 'date'} {iso}" in said
    assert "swapped" not in said


def test_eight_digits_that_are_no_dates_stay_numbers(file: Callable[..., Path]) -> None:
    table, said = noted(file("d,b\n20210325,1\n20211301,2\n"))
    assert table.columns["d"].tolist() == [20210325.0, 20211301.0]
    assert said == ""


def test_dates_in_several_formats_are_suspected(file: Callable[..., Path]) -> None:
    forms = ("{:02d}.03.2021", "2021-04-{:02d}", "May {}, 2021")
    rows = [f'{i % 7},"{forms[i % 3].format(i // 3 + 1)}"' for i in range(81)]
    with pytest.warns(TableNotice, match="identifier .*; are these dates, in several formats"):
        TableEncoder().fit(noted(file("x,day\n" + "\n".join(rows)))[0])


def test_ambiguous_dates_are_said_to_be(file: Callable[..., Path]) -> None:
    path = file("d,b\n03/04/2021,1\n05/06/2021,2\n")
    table, said = noted(path)
    assert table.columns["d"].tolist() == ["2021-03-04", "2021-05-06"]
    assert "if day and month are swapped, pass date_format=" in said
    table, said = noted(path, date_format="%d/%m/%Y")
    assert table.columns["d"].tolist() == ["2021-04-03", "2021-06-05"]
    assert "swapped" not in said


# --- encodings ------------------------------------------------------------------------------------


def test_encodings_are_read_or_named(file: Callable[..., Path]) -> None:
    text = "Größe;Ort\n1,5;Köln\n2,5;Ulm\n"
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32"):
        table, _ = noted(file(text, encoding))
        assert list(table.columns) == ["Größe", "Ort"]
        assert table.columns["Ort"].tolist() == ["Köln", "Ulm"]
    path = file(text, "cp1252")
    with pytest.raises(TableError, match="is not valid UTF-8: pass encoding='cp1252'"):
        read_table(path)
    assert noted(path, encoding="cp1252")[0].columns["Ort"].tolist() == ["Köln", "Ulm"]
    with pytest.raises(TableError, match="cannot be read with the encoding nonsense"):
        read_table(path, encoding="nonsense")
    with pytest.raises(TableError, match="not valid UTF-8: pass encoding='utf-16-le'"):
        read_table(file(text, "utf-16-le"))


# --- where the table begins, and how its lines are divided ----------------------------------------

ROWS = "50,Ulm\n60,Bonn\n"
BEGINNINGS = {
    "blank lines": ("\n\nsize,town\n\n" + ROWS, ""),
    "separators": (",\nsize,town\n" + ROWS, ""),
    "title": ("Flats of 2021\n\nsize,town\n" + ROWS, "the 2 lines from 'Flats of 2021' on above"),
    "spreadsheet title": ("Flats of 2021,\nsize,town\n" + ROWS, "the line 'Flats of 2021,' above"),
    "comments between the rows": (
        "size,town\n50,Ulm\n# sold\n60,Bonn\n# end\n",
        "2 lines from '# sold'",
    ),
    "comments with commas": ("# a, b\n# c\nsize,town\n" + ROWS, "the 2 lines from '# a, b' on"),
    "line ends of all kinds": ("size,town\r\n50,Ulm\n60,Bonn\r", ""),
    "blank lines at the end": ("size,town\n" + ROWS + "\n\r\n  \n", ""),
    "comments": ("# made by hand, in 2021, twice\nsize,town\n" + ROWS, "is ignored"),
    "declared": ('sep=;\nsize;town\n"50";Ulm\n60;Bonn\n', ""),
    "declared in quotes": ('"sep=;"\nsize;town\n50;Ulm\n60;Bonn\n', ""),
    "trailing separators": ("size,town,,\n50,Ulm,,\n60,Bonn,,\n", ""),
    "trailing separators of rows": ("size,town\n50,Ulm,\n60,Bonn,\n", ""),
    "carriage returns": ("size,town\r50,Ulm\r60,Bonn\r", ""),
}


@pytest.mark.parametrize(("text", "said"), BEGINNINGS.values(), ids=BEGINNINGS)
def test_the_table_in_a_file_is_found(text: str, said: str, file: Callable[..., Path]) -> None:
    table, notes = noted(file(text))
    assert {name: values.tolist() for name, values in table.columns.items()} == {
        "size": [50.0, 60.0], "town": ["Ulm", "Bonn"]
    }  # fmt: skip
    assert said in notes
    assert (said == "") == (notes == "")


NO_TITLES = {
    "a name that starts with #": ("#id,town\n1,Ulm\n2,Bonn\n", ["#id", "town"]),
    "a name of two lines": ('"size\n(m2)",town\n50,Ulm\n', ["size\n(m2)", "town"]),
    "one column": ("town\nUlm\nBonn\n", ["town"]),
    "one column in quotes": ('town\n"Ulm, old"\n"Ulm, new"\n', ["town"]),
    "a name that is missing": (",town\n1,Ulm\n2,Bonn\n", ["Unnamed: 0", "town"]),
}


@pytest.mark.parametrize(("text", "names"), NO_TITLES.values(), ids=NO_TITLES)
def test_the_first_line_is_the_header(
    text: str, names: list[str], file: Callable[..., Path]
) -> None:
    table, said = noted(file(text))
    assert list(table.columns) == names
    assert said == ""


def test_names_of_rows_without_a_header_are_those_of_r(file: Callable[..., Path]) -> None:
    """As ``write.table`` writes them; a single longer row is still refused."""
    table, said = noted(file('size,town\n"1",50,Ulm\n"2",60,Bonn\n'))
    assert list(table.columns) == ["Unnamed: 0", "size", "town"]
    assert table.columns["size"].tolist() == [50.0, 60.0]
    assert "the first one is taken for their names" in said
    with pytest.raises(
        TableError, match=r"line 3: 3 values .* that contains ',' must be in quotes"
    ):
        read_table(file("size,town\n50,Ulm\n60,Bonn,old\n70,Kiel\n"))


def test_a_short_line_is_named_though_others_start_like_it(file: Callable[..., Path]) -> None:
    with pytest.raises(TableError, match="line 4: 2 values for the 3 columns"):
        read_table(file("a,b,c\n1,2,3\n1,2,4\n1,2\n"))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("size town rent\n1 Ulm 2\n", "pass sep=' '"),
        ("37.5,Ulm,364.59\n40,Bonn,380\n", "add a first line with the names"),
        ("Size,Rent\n1,2\n", "do you mean 'Rent'?"),
    ],
)
def test_a_column_that_is_not_there_gets_a_hint(
    text: str, hint: str, file: Callable[..., Path]
) -> None:
    with pytest.raises(TableError, match=re.escape(hint)):
        noted(file(text))[0].column("rent")


def test_packed_text_files_and_spreadsheets(tmp_path: Path) -> None:
    for suffix, module in ((".gz", gzip), (".bz2", bz2), (".xz", lzma)):
        path = tmp_path / f"a.tab{suffix}"
        path.write_bytes(module.compress(b"size\ttown\n50\tUlm\n"))
        assert read_table(path).columns["size"].tolist() == [50.0]
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(TableError):
            read_table(path)
    with pytest.raises(TableError, match=r"cannot read .ods: save the sheet as .xlsx or CSV"):
        read_table(tmp_path / "a.ods")


def test_threads_of_pyarrow_never_wait_for_python(
    file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that reads from a file, or releases a function, when the process ends aborts it."""
    seen = []

    def read(source: Any, options: Any, parse: Any, *rest: Any) -> Any:
        seen.append((type(source), options.encoding))
        assert parse.invalid_row_handler is None
        return original(source, options, parse, *rest)

    original = pyarrow.csv.read_csv
    monkeypatch.setattr(pyarrow.csv, "read_csv", read)
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        noted(file("size;Ort\n1;Köln\n", encoding))
    packed = file("", name="a.csv.gz")
    packed.write_bytes(gzip.compress(b"a,b\n1,2\n"))
    noted(packed)
    assert seen == [(pyarrow.OSFile, "utf8")] * 2 + [(pyarrow.BufferReader, "utf8")] * 2


# --- the same reading in training and prediction --------------------------------------------------


def test_later_files_are_read_like_the_first(tmp_path: Path) -> None:
    """From a single row nothing could be inferred: 1.234 may be a number, 03/04/2021 two dates."""
    rng = np.random.default_rng(0)
    lines = ["size;built;rent"]
    for _ in range(80):
        size, day = rng.uniform(500, 3000), rng.integers(1, 29)
        rent = f"{3 * size + day:.1f}".replace(".", ",")
        lines.append(f"{size:,.2f};{day:02d}/03/2021;{rent}".translate(str.maketrans(",.", ".,")))
    (tmp_path / "a.csv").write_text("\n".join(line.replace(".03", "/03") for line in lines))
    with pytest.warns(TableNotice):
        model = TableModel("rent", n_components=30, gamma=0.05, alpha=0.01).fit(tmp_path / "a.csv")
    assert model.readings_["built"].date_format == "%d/%m/%Y"
    kernelsieve.save(model, tmp_path / "a.ks")
    model = kernelsieve.load(tmp_path / "a.ks")
    (tmp_path / "b.csv").write_text("size;built\n1.234;03/03/2021\n")
    plain = {"size": [1234.0], "built": ["2021-03-03"]}
    np.testing.assert_allclose(model.predict(tmp_path / "b.csv"), model.predict(plain))


def test_the_command_line_takes_the_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i},5;Köln;{i}\n" for i in range(40))
    Path("a.csv").write_bytes(f"size;Ort;rent\n{rows}".encode("cp1252"))
    quick = ["--target", "rent", "--features", "10", "--gamma", "0.1", "--alpha", "0.1"]
    assert "pass --encoding" in failing(["fit", "a.csv", *quick], capsys)
    more = ["--encoding", "cp1252", "--sep", ";", "--decimal", ","]
    outcome = CliRunner().invoke(cli.app, ["fit", "a.csv", *quick, *more, "-o", "a.ks"])
    assert outcome.exit_code == 0, outcome.output
    outcome = CliRunner().invoke(cli.app, ["predict", "a.ks", "a.csv", *more, "-o", "b.csv"])
    assert outcome.exit_code == 0, outcome.output
    assert "R2" in outcome.output


def test_frames_are_read_like_files(tmp_path: Path) -> None:
    """What pandas leaves as texts was a category in a frame and a number in a file."""
    path = tmp_path / "a.csv"
    path.write_text(
        "price,share,built,zip,size\n"
        '"$1,200.50",22%,03/25/2021,01067,5\n$900.00,3%,04/30/2021,89073,6\n'
    )
    file_, _ = noted(path)
    frame = pd.read_csv(path, dtype={"zip": str})
    with pytest.warns(TableNotice, match="'price': '.1,200.50' is read as the number 1200.5"):
        table = as_table(frame)
    for name, values in file_.columns.items():
        assert table.columns[name].tolist() == values.tolist()
    later = as_table(pd.DataFrame({"price": ["$7"], "built": ["05/06/2021"]}), file_.readings)
    assert later.columns["price"].tolist() == [7.0]
    assert later.columns["built"].tolist() == ["2021-05-06"]
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.warns(TableNotice, match="'share': '22%' is read as the number 22"):
        stored = as_table(tmp_path / "a.parquet")
    assert stored.readings == table.readings
    digits = as_table({"code": ["1", "2"], "day": ["2021-03-25", "2021-03-26"]})  # stay texts
    assert digits.columns["code"].tolist() == ["1", "2"]
    assert digits.readings == {}


def test_compact_dates_of_a_file_are_dates_in_a_frame(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("day,b\n20210325,1\n20201201,2\n")
    readings = noted(path)[0].readings
    frame = as_table(pd.DataFrame({"day": [20210401], "b": [3]}), readings)
    assert frame.columns["day"].tolist() == ["2021-04-01"]


# --- columns that are passed on -------------------------------------------------------------------


def test_columns_are_passed_on_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Identifiers lost their zeros and, beyond 2**53, their last digits: no join found them."""
    monkeypatch.chdir(tmp_path)
    rows = [
        f"{i:03d},{115846232714391552 + 3 * i},{i % 28 + 1:02d}.03.2021,$1,{i % 7}.50,{i % 5}"
        for i in range(60)
    ]
    Path("a.csv").write_text("\n".join(["id,tweet,day,fee,x,y", *rows]))
    quick = ["--target", "y", "--features", "10", "--gamma", "0.1", "--alpha", "0.1"]
    quick += ["--no-baselines", "--task", "regression"]
    runner = CliRunner()
    assert runner.invoke(cli.app, ["fit", "a.csv", *quick, "-o", "a.ks"]).exit_code == 0
    command = ["predict", "a.ks", "a.csv", "--keep-columns", "id,tweet,day,fee", "-o"]
    assert runner.invoke(cli.app, [*command, "b.csv"]).exit_code == 0
    with open("b.csv") as written_:
        lines = written_.read().splitlines()
    assert lines[1].startswith("000,115846232714391552,01.03.2021,$1,")
    assert lines[60].startswith("059,115846232714391729,04.03.2021,$1,")
    assert runner.invoke(cli.app, [*command, "b.parquet"]).exit_code == 0
    assert pd.read_parquet("b.parquet")["id"].tolist() == list(range(60))  # numbers in a frame


# --- identifiers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", ["rising", "with gaps", "shuffled"])
def test_numeric_identifiers_are_ignored_unless_kept(ids: str) -> None:
    """New rows have new numbers, which wrecked predictions (an RMSE of 1.65 became 3.93)."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=150)
    numbers = {
        "rising": np.arange(1.0, 151.0),
        "with gaps": np.cumsum(rng.integers(1, 50, 150)).astype(float),
        "shuffled": rng.permutation(150) + 1000.0,
    }[ids]
    table = {"id": numbers, "x": x, "y": np.sin(x)}
    with pytest.warns(TableNotice, match=r"column 'id' looks like an identifier \(unique whole"):
        model = TableModel("y", n_components=30, gamma=0.3, alpha=0.01).fit(table)
    assert [column.name for column in model.encoder_.columns_] == ["x"]
    assert list(model.encoder_.ignored_) == ["id"]
    new = {"id": numbers + 1e6, "x": x}
    np.testing.assert_array_equal(model.predict(new), model.predict(table))
    kept = TableModel("y", n_components=30, gamma=0.3, alpha=0.01, keep=["id"]).fit(table)
    assert [column.name for column in kept.encoder_.columns_] == ["id", "x"]


def test_measurements_are_no_identifiers() -> None:
    rng = np.random.default_rng(0)
    n = 300
    table = {
        "year": rng.integers(1950, 2020, n).astype(float),  # whole numbers, repeated
        "price": rng.integers(0, 10**6, n).astype(float),  # unique but far apart
        "size": np.sort(rng.uniform(20, 150, n)),  # rising but not whole
        "few": np.arange(n) % 40 * 1.0,
    }
    assert TableEncoder().fit(table).ignored_ == {}


@pytest.mark.parametrize(
    ("name", "ignored"),
    [("id", True), ("customer_id", True), ("rownames", True), ("Unnamed: 0", True),
     ("StoreID", True), ("population", False), ("grid", False), ("paid", False)],
)  # fmt: skip
def test_names_tell_identifiers_that_do_not_count_the_rows(name: str, ignored: bool) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.permutation(10**6)[:200].astype(float)
    table = {name: numbers, "x": rng.normal(size=200)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        encoder = TableEncoder().fit(table)
    assert list(encoder.ignored_) == ([name] if ignored else [])
    assert any(f"Use keep=[{name!r}]" in str(w.message) for w in caught) == ignored
    assert TableEncoder(keep=[name]).fit(table).ignored_ == {}
    assert TableEncoder().fit({**table, name: np.round(numbers / 1e5)}).ignored_ == {}  # groups


def test_a_text_identifier_can_be_kept() -> None:
    table = {"name": [f"person {i}" for i in range(80)], "x": np.linspace(0, 1, 80)}
    with pytest.warns(
        TableNotice, match=r"'name' looks like an identifier \(every value is unique"
    ):
        assert list(TableEncoder().fit(table).ignored_) == ["name"]
    assert TableEncoder(keep=["name"]).fit(table).width == 81


# --- missing only at prediction -------------------------------------------------------------------


def test_a_category_that_is_missing_only_at_prediction_is_replaced_with_a_note() -> None:
    """It was encoded as no category at all, without a word."""
    encoder = TableEncoder().fit({"town": ["Ulm", "Bonn", "Ulm", "Kiel"]})
    with pytest.warns(
        TableNotice, match=r"'town': 1 missing value replaced by .* 'Ulm'; there were"
    ):
        X = encoder.transform({"town": [None, "Bonn"]})
    np.testing.assert_array_equal(X, encoder.transform({"town": ["Ulm", "Bonn"]}))
    known = TableEncoder().fit({"town": ["Ulm", None, "Bonn"]})  # has a column for missing ones
    assert known.transform({"town": [None]}).tolist() == [[0.0, 0.0, 1.0]]


def test_an_empty_date_column_at_prediction_is_missing(tmp_path: Path) -> None:
    """It was refused as numbers."""
    encoder = TableEncoder().fit({"day": ["2021-03-01", "2021-03-05", "2021-03-02"]})
    (tmp_path / "new.csv").write_text("day,x\n,1\n,2\n")
    with pytest.warns(TableNotice, match="2 missing values replaced by the median, 2021-03-02"):
        X = encoder.transform(tmp_path / "new.csv")
    np.testing.assert_array_equal(X, encoder.transform({"day": ["2021-03-02"] * 2}))


def test_many_columns_with_missing_values_share_a_note() -> None:
    """A table of 20 such columns began with a page of notes."""
    columns: dict[str, Any] = {f"c{i}": [1.0, None, 3.0, None][i % 2 :] * 2 for i in range(0, 8, 2)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        TableEncoder().fit_transform(columns)
    assert [str(w.message) for w in caught] == [
        "missing values replaced by the median in 4 columns: 'c0' (4), 'c2' (4), 'c4' (4), 'c6' (4)"
    ]
    with pytest.raises(TableError, match="column 'c0': 4 missing values replaced"):
        TableEncoder(strict=True).fit_transform(columns)


# --- numbers that may be classes ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("levels", "task", "said"),
    [
        (2, "classification", "is 0 or 1: learned as two classes. Use task='regression'"),
        (
            3,
            "regression",
            "3 distinct whole numbers .0 to 2.: learned as numbers. Use task='class",
        ),
        (10, "regression", "10 distinct whole numbers .0 to 9.: learned as numbers"),
    ],
)
def test_whole_numbers_as_a_target_are_decided_with_a_note(
    levels: int, task: str, said: str
) -> None:
    rng = np.random.default_rng(0)
    table = as_table({"x": rng.normal(size=100), "y": (np.arange(100) % levels).astype(float)})
    with pytest.warns(TableNotice, match=said):
        assert task_and_targets(table, "y", "auto")[0] == task
    assert task_and_targets(table, "y", "classification")[0] == "classification"  # without a note


def test_a_target_of_numbers_and_texts_names_the_texts(file: Callable[..., Path]) -> None:
    """A sixth of them are texts: all numbers were listed as classes, and the texts were not."""
    cells = ["sold" if i % 6 == 0 else "tbd" if i == 7 else f"{i * 1.5}" for i in range(60)]
    table, _ = noted(file("x,y\n" + "".join(f"{i},{cell}\n" for i, cell in enumerate(cells))))
    with pytest.raises(TableError, match=r"numbers, and texts in 11 of 60 rows: 'sold', 'tbd'\."):
        task_and_targets(table, "y", "auto")


def test_nearly_every_row_its_own_class_is_refused() -> None:
    table = as_table({"y": [f"name {i}" for i in range(30)] * 1})
    with pytest.raises(
        TableError, match="30 distinct values in 30 rows, and a class needs several"
    ):
        task_and_targets(table, "y", "auto")


def test_measured_targets_get_no_note() -> None:
    rng = np.random.default_rng(0)
    for y in (rng.normal(size=100), rng.integers(0, 1000, 100).astype(float)):
        assert task_and_targets(as_table({"y": y}), "y", "auto")[0] == "regression"


# --- rare classes ---------------------------------------------------------------------------------


def rare(n: int = 500, seed: int = 0) -> dict[str, Any]:
    """About one row in twenty-five is of the second class, and two columns say how likely it is."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    chance = 1.0 / (1.0 + np.exp(4.5 - 1.5 * X[:, 0] - X[:, 1]))
    return {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2],
            "y": np.where(rng.random(n) < chance, "yes", "no")}  # fmt: skip


def test_rare_classes_are_judged_and_explained_by_log_loss() -> None:
    """By accuracy a constant looked better, and all importances were 0."""
    options: dict[str, Any] = {"n_components": 40, "gamma": 0.02, "alpha": 1.0}
    model = TableModel("y", **options).fit(rare())
    scores, baseline = model.facts_["scores"], model.facts_["baseline"]
    assert list(scores) == ["log loss", "accuracy", "mean recall", "AUC"]
    assert scores["log loss"] < baseline["log loss"]
    importances = dict(model.facts_["columns"])
    assert importances["a"] > 0.002
    assert importances["a"] > 3 * abs(importances["c"])
    counts = np.array(model.facts_["confusion"]["counts"])
    assert counts.sum() == model.facts_["test rows"]
    said = model.summary()
    assert "Confusion matrix" in said
    assert "Permutation importance (increase in log loss)" in said
    weighted = TableModel("y", class_weight="balanced", **options).fit(rare())
    assert weighted.facts_["scores"]["mean recall"] > scores["mean recall"] + 0.1


# --- damaged files --------------------------------------------------------------------------------


def test_an_arrow_file_with_wrong_places_of_texts_is_refused(tmp_path: Path) -> None:
    """Texts of a negative length ended the command with a traceback."""
    path = tmp_path / "a.arrow"
    feather.write_feather(pyarrow.table({"town": ["Ulm", "Bonn", "Kiel"]}), path, "uncompressed")
    content = path.read_bytes()
    places = np.array([0, 3, 7, 11], dtype="<i4")
    assert content.count(places.tobytes()) == 1
    places[1] = 9
    path.write_bytes(content.replace(np.array([0, 3, 7, 11], "<i4").tobytes(), places.tobytes()))
    with pytest.raises(TableError, match=r"a\.arrow is not a \.arrow file: .*offset"):
        read_table(path)


def test_clock_times_that_no_clock_shows_are_missing(file: Callable[..., Path]) -> None:
    cells = [f"{1 + i % 12}:30 {'ap'[i % 2]}m" for i in range(60)] + ["13:30 pm", "noon"]
    table, said = noted(file("t,b\n" + "".join(f"{cell},{i}\n" for i, cell in enumerate(cells))))
    values = table.columns["t"]
    assert values[:3].tolist() == [1.5, 14.5, 3.5]
    assert values[11] == 12.5
    assert np.isnan(values[60:]).all()
    assert "13:30 pm" in said


def test_a_column_of_no_values_is_one_of_numbers(file: Callable[..., Path]) -> None:
    table, said = noted(file("a,b\n" + "NA,1\n,2\n" * 5))
    assert np.isnan(table.columns["a"]).all()
    assert said == ""


def test_a_header_without_rows_is_a_table_without_rows(file: Callable[..., Path]) -> None:
    table = read_table(file("a,b\n"))
    assert (list(table.columns), table.n_rows) == (["a", "b"], 0)


def test_cells_may_be_long(file: Callable[..., Path]) -> None:
    """One of 131,073 characters had "no header line": Python's reader of CSV has a limit."""
    long = "x" * 131_073
    limit = csv.field_size_limit()
    for text in (f'a,b\n1,"{long}"\n2,y\n', f"a,b\n0,z\n1,{long}\n"):
        assert long in noted(file(text))[0].columns["b"]
    assert csv.field_size_limit() == limit


@pytest.mark.parametrize("text", ["a,b\n1,x\n2\0,y\n", "a,b\n1,x\n2,y\0y\n"])
def test_nul_bytes_are_named_by_their_line(text: str, file: Callable[..., Path]) -> None:
    with pytest.raises(TableError, match=r"a\.csv, line 3: a NUL byte"):
        read_table(file(text))
    with pytest.raises(TableError, match=r"a\.csv, line 1: a NUL byte"):
        read_table(file("a,b\0\n1,2\n"))


def test_notices_point_to_the_line_of_the_caller(file: Callable[..., Path]) -> None:
    """They pointed into this package."""
    with pytest.warns(TableNotice) as caught:
        read_table(file("a,a\n1,2\n"))
    assert {w.filename for w in caught} == {__file__}


def test_names_that_repeat_are_numbered(file: Callable[..., Path]) -> None:
    table, said = noted(file("price,price.1,price,price\n1,2,3,4\n"))
    assert {name: values.tolist() for name, values in table.columns.items()} == {
        "price": [1.0], "price.1": [2.0], "price.2": [3.0], "price.3": [4.0]
    }  # fmt: skip
    assert "renamed 'price' to 'price.2', 'price' to 'price.3'" in said
    with pytest.warns(TableNotice):
        assert list(next(read_batches(file("a,a\n1,2\n"))).columns) == ["a", "a.1"]


OTHERS = {
    "gzip": (gzip.compress(b"a,b\n1,2\n"), "should end with .csv.gz"),
    "zip": (b"PK\3\4\x14\0\xff", "should end with .xlsx"),
    "xz": (lzma.compress(b"a,b\n1,2\n"), "should end with .csv.xz"),
}


@pytest.mark.parametrize(("content", "said"), OTHERS.values(), ids=OTHERS)
def test_other_files_called_csv_are_named(content: bytes, said: str, tmp_path: Path) -> None:
    """They were texts in another encoding."""
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(TableError, match=f"is not a text file; its name {said}"):
        read_table(tmp_path / "a.csv")


def test_a_lack_of_memory_is_said(
    file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*arguments: Any) -> None:
        raise pyarrow.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr(pyarrow.csv, "read_csv", read)
    with pytest.raises(TableError, match=r"a\.csv does not fit in memory: use fewer rows"):
        read_table(file("a,b\n1,2\n"))


def test_a_quote_that_stays_open_is_refused(file: Callable[..., Path]) -> None:
    """The rest of the file was one cell, without a word."""
    with pytest.raises(TableError, match="line 3: a quote is opened and never closed"):
        read_table(file('a,b\n0,z\n1,"x\n2,y\n3,z\n'))
    assert noted(file('a,b\n1,"x\n2"\n\n'))[0].columns["b"].tolist() == ["x\n2"]


def test_a_cell_that_has_no_end_is_refused(
    file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "LARGEST_CELL", 256)
    lines = "".join(f"{i},{i}\n" for i in range(50))
    path = file(f'a,b\n{lines}1,"{"x" * 2_000}"\n{lines}')
    with pytest.raises(TableError, match=r"a\.csv is not a text table: .* 256 char.*is a quote"):
        read_table(path)


def test_an_empty_column_of_texts_needs_no_reading() -> None:
    columns = {"a": np.array([None, None], dtype=object), "b": np.array(["1 EUR", "2 EUR"], object)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableNotice)
        table = with_readings(Table("here", columns))
    assert table.columns["b"].tolist() == [1.0, 2.0]
    assert is_missing(table.columns["a"]).all()
