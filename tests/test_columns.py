"""Columns of every type that frames have: the right encoding, or an error that says what to do."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from kernelsieve.tables.categories import Category
from kernelsieve.tables.cells import SPACES, known_text, number_text
from kernelsieve.tables.columns import Number, Time
from kernelsieve.tables.encoder import TableEncoder
from kernelsieve.tables.row import TablePredictor
from kernelsieve.tables.table import TableError

pytestmark = pytest.mark.filterwarnings("ignore::kernelsieve.tables.TableNotice")

N = 40
TWICE = ["lo", "hi", None] * N


def of_pandas(values: Any, dtype: Any = None) -> Callable[[], Any]:
    return lambda: pd.DataFrame({"c": pd.Series(values, dtype=dtype)})


def of_polars(values: Any, dtype: Any = None) -> Callable[[], Any]:
    return lambda: pl.DataFrame({"c": pl.Series(values, dtype=dtype)})


LEVELS = ["lo", "mid", "hi", "unused"]
CATEGORIES: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "unused categories": (
        lambda: pd.DataFrame({"c": pd.Categorical(TWICE, LEVELS)}),
        ("hi", "lo", "(missing)"),
    ),
    "ordered categories": (
        lambda: pd.DataFrame({"c": pd.Categorical(TWICE, LEVELS, ordered=True)}),
        ("hi", "lo", "(missing)"),
    ),
    "pandas strings": (of_pandas(TWICE, "string"), ("hi", "lo", "(missing)")),
    "polars Enum": (of_polars(TWICE, pl.Enum(LEVELS)), ("hi", "lo", "(missing)")),
    "polars Categorical": (of_polars(TWICE, pl.Categorical), ("hi", "lo", "(missing)")),
    "polars Binary": (of_polars([b"lo", b"hi"] * N), ("hi", "lo")),
    "numbers and texts": (of_pandas([1, "a", 1.0, 2.5, "1"] * N, object), ("1", "2.5", "a")),
    "dates and texts": (of_pandas([date(2020, 1, 1), "a"] * N, object), ("2020-01-01", "a")),
    "truth and texts": (of_pandas([True, "a", False] * N, object), ("0", "1", "a")),
}
NUMBERS: dict[str, Callable[[], Any]] = {
    "categories of numbers": lambda: pd.DataFrame({"c": pd.Categorical([1, 2, None] * N)}),
    "nullable whole numbers": of_pandas([1, 2, None] * N, "Int64"),
    "nullable numbers": of_pandas([1, 2, None] * N, "Float64"),
    "nullable truth values": of_pandas([False, True, None] * N, "boolean"),
    "whole numbers of Arrow": of_pandas([1, 2, None] * N, "int64[pyarrow]"),
    "polars": of_polars([1, 2, None] * N),
    "polars truth values": of_polars([False, True, None] * N),
    "polars Decimal": of_polars([Decimal("1.5"), Decimal("2.5"), None] * N),
    "decimals": lambda: {"c": [Decimal("1.5"), Decimal("2.5"), None] * N},
    "half floats": lambda: {"c": np.array([1.0, 2.0, np.nan] * N, dtype=np.float16)},
}
MOMENTS = [datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 5, 1, tzinfo=UTC)]
TIMES: dict[str, Callable[[], Any]] = {
    "categories of times": lambda: pd.DataFrame({"c": pd.Categorical(MOMENTS * N)}),
    "pandas": of_pandas(MOMENTS * N),
    "polars": of_polars(MOMENTS * N),
    "polars dates": of_polars([date(2020, 1, 1), date(2021, 5, 1)] * N),
}
REFUSED: dict[str, Callable[[], Any]] = {
    "timedelta64": lambda: pd.DataFrame({"c": pd.to_timedelta([1, 2, None] * N, unit="h")}),
    "timedelta": lambda: {"c": [timedelta(hours=1), timedelta(hours=2)] * N},
    "Interval": lambda: pd.DataFrame({"c": pd.cut(np.arange(2.0 * N), 4)}),
    "Period": lambda: pd.DataFrame({"c": pd.period_range("2020-01", periods=N, freq="M")}),
    "list": lambda: {"c": [[1], "a"] * N},
    "ndarray": of_polars([[1, 2], [3, 4]] * N),
    "complex128": lambda: {"c": np.array([1.0 + 2.0j, 2.0] * N)},
    "UUID": lambda: {"c": [uuid.UUID(int=i % 3) for i in range(N)]},
    "Colour": lambda: {"c": list(enum.Enum("Colour", "RED BLUE")) * N},
}


@pytest.mark.parametrize("case", CATEGORIES)
def test_categories_of_frames(case: str) -> None:
    make, levels = CATEGORIES[case]
    encoder = TableEncoder().fit(make())
    assert [type(column) for column in encoder.columns_] == [Category]
    assert encoder.columns_[0].levels == levels
    X = encoder.transform(make())
    np.testing.assert_array_equal(X.sum(axis=1), 1.0)
    assert (X.sum(axis=0) > 0).all()


@pytest.mark.parametrize("case", NUMBERS)
def test_numbers_of_frames(case: str) -> None:
    encoder = TableEncoder().fit(NUMBERS[case]())
    (column,) = encoder.columns_
    assert (type(column), column.missing) == (Number, True)
    X = encoder.transform(NUMBERS[case]())
    np.testing.assert_allclose(X[:3, 0], [-1.0, 1.0, 0.0], atol=1e-12)
    np.testing.assert_array_equal(X[:3, 1], [0.0, 0.0, 1.0])


@pytest.mark.parametrize("case", TIMES)
def test_times_of_frames(case: str) -> None:
    encoder = TableEncoder().fit(TIMES[case]())
    assert type(encoder.columns_[0]) is Time
    found = encoder.columns_[0].mean - encoder.columns_[0].scale
    assert found == pytest.approx(datetime(2020, 1, 1, tzinfo=UTC).timestamp())


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_number_text_or_time_is_refused(case: str) -> None:
    said = rf"'c' holds {case}.* values; .*To ignore it, use drop=\['c'\]"
    with pytest.raises(TableError, match=said):
        TableEncoder().fit(REFUSED[case]())


# A category in training, and what is the same one later.
SAME: dict[str, tuple[Any, ...]] = {
    "WD ": ("WD", " WD", "\tWD\u00a0", b"WD"),
    "1": (1, 1.0, "1.0", np.int64(1), True, Decimal(1)),
    "1.0": ("1", 1, 1.0),
    "1234567": (1234567, 1234567.0, "1234567.0"),
    "01067": (1067, "1067", "1067.0"),
    "0.1": (0.1, np.float64(0.1), Decimal("0.1")),
    "True": (True, np.True_, 1),
    "false": (False, 0.0),
}
OTHERS = {"WD ": ("wd", "W D", "WDx"), "1": ("01", "1e0", 2, "one"), "0.1": ("0.10", 0.2)}


@pytest.mark.parametrize("known", SAME)
def test_spellings_of_a_category(known: str) -> None:
    encoder = TableEncoder().fit({"c": [known, "another"] * N})
    expected = encoder.transform({"c": [known]})
    predictor = TablePredictor(encoder, {}, None)  # type: ignore[arg-type]
    for given in SAME[known]:
        column = np.array([given, None], dtype=object)  # as a frame holds it
        np.testing.assert_array_equal(encoder.transform({"c": column})[:1], expected, str(given))
        np.testing.assert_array_equal(predictor.encode({"c": given}), expected[0], str(given))
        mixed = np.array([given, "another"], dtype=object)
        np.testing.assert_array_equal(encoder.transform({"c": mixed})[:1], expected, str(given))
    for given in OTHERS.get(known, ()):
        assert not encoder.transform({"c": np.array([given, None], dtype=object)})[0].any(), given
        assert not predictor.encode({"c": given}).any(), given


def test_a_category_of_its_own_is_not_another_spelling() -> None:
    encoder = TableEncoder().fit({"c": ["1", "1.0", "01"] * N})
    found = encoder.transform({"c": np.array(["1", "1.0", "01", 1.0, "x"], dtype=object)})
    levels = encoder.columns_[0].levels
    assert [levels[i] for i in found.argmax(axis=1)[:4]] == ["1", "1.0", "01", "1"]
    assert not found[4].any()


def test_texts_are_stripped_as_pyarrow_does_it() -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    characters = [chr(i) for i in range(0x10000) if not 0xD800 <= i < 0xE000]
    stripped = pc.utf8_trim_whitespace(pa.array(characters)).to_pylist()
    removed = {c for c, rest in zip(characters, stripped, strict=True) if rest == ""}
    assert removed == set(SPACES) == {c for c in characters if not c.strip()}


def test_half_a_character_is_replaced() -> None:
    assert known_text("a\ud800") == "a\ufffd"
    assert known_text("\ud83c\udfe0") == "🏠"


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -3.0, 0.1, 1e15, 1e16, 1e300, 5e-324, 123456.75])
def test_numbers_as_texts_are_the_same_numbers(value: float) -> None:
    text = number_text(value)
    assert float(text) == value
    assert ("." not in text) or value != round(value)
