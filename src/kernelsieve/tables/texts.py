"""Columns of texts, as files hold them, into numbers, times and categories.

A `Reading` says how the texts of a column are understood. It is inferred from the training table
and applied again to later ones, which may be too short to infer anything from.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelsieve import _state
from kernelsieve._state import Persistent, Sizes, choice, instance

# Texts that mean "no value" in any column, in lower case.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "nat", "?", "#n/a", "n.a.", "<na>"})
LONGEST_MISSING = max(map(len, MISSING))
# Further ones that mean it where the other values are numbers or times.
NO_NUMBER = frozenset(
    {"-", "--", "---", ".", "..", "...", "missing", "unknown", "not available", "#na", "n.d.", "nd"}
)
MOSTLY = 0.9  # share of the values that must be numbers, or times, before the others are missing
FEW = 20  # texts that decide which formats of times are tried at all
LOOKED_AT = 2_000  # distinct texts that decide whether a column may be numbers or times
SHOWN = 4  # odd texts that a message lists

NUMBERS = {  # by the decimal sign: what a number looks like, with groups of three digits or without
    ".": re.compile(r"[+-]?(\d{1,3}([,' \u00a0\u202f]\d{3})+|\d+)?(\.\d*)?([eE][+-]?\d+)?"),
    ",": re.compile(r"[+-]?(\d{1,3}([.' \u00a0\u202f]\d{3})+|\d+)?(,\d*)?([eE][+-]?\d+)?"),
}
UNITS = "$€£¥%"
DATES = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d.%m.%y",
         "%m/%d/%y", "%d/%m/%y")  # fmt: skip
TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")


@dataclass(frozen=True)
class Reading(Persistent):
    """How the texts of a column are understood.

    Attributes
    ----------
    kind : "number", "time" or "text"
    decimal : "." or ","
        The decimal sign of numbers.
    unit : str
        A currency sign or "%" that is removed from numbers.
    date_format : str
        The format of times, as in ``datetime.strptime``; "" is ISO 8601.
    """

    kind: str = "text"
    decimal: str = "."
    unit: str = ""
    date_format: str = ""

    _state_fields: ClassVar = {
        "kind": choice("number", "time", "text"),
        "decimal": choice(".", ","),
        "unit": choice("", *UNITS),
        "date_format": _state.text,
    }

    def value(self, text: str) -> Any:
        """Convert one text: to a number, to a time in ISO 8601, or None if that is impossible."""
        if self.kind == "number":
            return number(text, self.decimal, self.unit)
        if self.kind == "time":
            return iso_time(text, self.date_format)
        return text


def readings(value: Any, where: str, sizes: Sizes) -> dict[str, Reading]:
    """The rule of a dict of readings by column."""
    instance(dict)(value, where, sizes)
    return {name: instance(Reading)(each, where, sizes) for name, each in value.items()}


PLAIN_NUMBER, TEXT = Reading("number"), Reading("text")


@dataclass(frozen=True)
class Column:
    """A column that was understood.

    Attributes
    ----------
    values : ndarray of shape (n_rows,)
        float64 with NaN, or texts with None.
    reading : Reading
    odd : dict of str to int
        Texts that could not be converted, and how often each occurs; they became missing values.
    example : str or None
        A text whose meaning is not obvious.
    swappable : bool
        Whether the dates would also make sense with day and month swapped.
    """

    values: NDArray[Any]
    reading: Reading
    odd: dict[str, int] = field(default_factory=dict)
    example: str | None = None
    swappable: bool = False


def is_missing_text(text: str) -> bool:
    """Whether a text means "no value" in any column."""
    return len(text) <= LONGEST_MISSING and text.lower() in MISSING


def number(text: str, decimal: str = ".", unit: str = "") -> float | None:
    """Convert a text to a number, or return None.

    Examples
    --------
    >>> number("1.234,5", decimal=","), number("$100,000", unit="$"), number("7 rooms")
    (1234.5, 100000.0, None)
    """
    if unit:
        text = text.replace(unit, "", 1).strip()
    if decimal == "." and "," not in text and "_" not in text:
        try:
            return float(text)
        except ValueError:
            pass
    match = NUMBERS[decimal].fullmatch(text)
    if match is None or not any(character.isdigit() for character in text):
        return None
    digits = "".join(c for c in text if c.isascii() and (c.isalnum() or c in "+-" + decimal))
    return float(digits.replace(",", "."))


def iso_time(text: str, date_format: str) -> str | None:
    """Convert a time to ISO 8601, or return None.

    Examples
    --------
    >>> iso_time("25.03.2021", "%d.%m.%Y")
    '2021-03-25'
    """
    try:
        moment = datetime.strptime(text, date_format)
    except ValueError:
        return None
    return (
        moment.date().isoformat()
        if "%H" not in date_format and "%I" not in date_format
        else (moment.isoformat())
    )


def understood(
    texts: Any, reading: Reading | None = None, decimal: str = ".", date_format: str | None = None
) -> Column:
    """Convert a column of texts.

    Parameters
    ----------
    texts : pyarrow ChunkedArray of strings, without spaces around them
    reading : Reading, optional
        As in an earlier table; None infers it.
    decimal : "." or ","
        The decimal sign of the file.
    date_format : str, optional
        The format of all times in the file.

    Returns
    -------
    Column
    """
    quick = _quick_numbers(texts) if reading in (None, PLAIN_NUMBER) and decimal == "." else None
    if quick is not None:
        return Column(quick, PLAIN_NUMBER)
    encoded = texts.combine_chunks().dictionary_encode()
    distinct: list[str] = encoded.dictionary.to_pylist()
    places = encoded.indices.to_numpy(zero_copy_only=False)
    counts = np.bincount(places, minlength=len(distinct))
    if reading is None:
        reading = _inferred(distinct, counts, decimal, date_format)
    values = [None if is_missing_text(text) else reading.value(text) for text in distinct]
    odd = {
        text: int(count)
        for text, value, count in zip(distinct, values, counts, strict=True)
        if value is None and not is_missing_text(text)
    }
    if reading.kind == "number":
        table = np.array([np.nan if value is None else value for value in values])
    else:
        table = np.array(values, dtype=object)
    column = table[places] if len(table) else np.empty(0)
    if reading.kind == "text":
        return Column(column, reading)
    pairs = zip(distinct, values, strict=True)
    example = next((t for t, v in pairs if v is not None and not _obvious(t, reading)), None)
    swappable = date_format is None and _swappable(reading, distinct)
    return Column(column, reading, odd, example, swappable)


def _obvious(text: str, reading: Reading) -> bool:
    """Whether a text is the same number to anybody."""
    digits = text.lstrip("+-")
    return digits.isdigit() or (reading == PLAIN_NUMBER and digits.replace(".", "", 1).isdigit())


def _quick_numbers(texts: Any) -> NDArray[np.float64] | None:
    """All texts as numbers if pyarrow understands them; empty ones are missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        cast = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts).cast("float64")
    except pa.ArrowInvalid:
        return None
    return np.asarray(cast.to_numpy(), dtype=np.float64)


def decimal_sign(columns: Iterable[list[str]], separator: str) -> str:
    """The decimal sign of a file, from some texts of each column.

    Examples
    --------
    >>> decimal_sign([["1,5", "2,25"], ["1.000", "2.000"]], ";")
    ','
    """
    votes = {".": 0, ",": 0}
    for texts in columns:
        counted = [(text, 1) for text in texts if not is_missing_text(text)]
        right = {
            sign: max(_share(reading, counted) for reading in _numbers(counted, sign)) >= MOSTLY
            for sign in votes
        }
        for sign in votes:
            votes[sign] += right[sign] and sum(right.values()) == 1
    if votes["."] != votes[","]:
        return max(votes, key=votes.__getitem__)
    return "," if separator == ";" and not votes["."] else "."


def _inferred(
    distinct: list[str], counts: NDArray[np.int64], decimal: str, date_format: str | None
) -> Reading:
    """The reading that understands most of the values, if it is nearly all of them."""
    pairs = zip(distinct, counts.tolist(), strict=True)
    known = ((text, count) for text, count in pairs if not is_missing_text(text))
    sample = list(itertools.islice(known, LOOKED_AT))
    if not sample:
        return PLAIN_NUMBER  # an empty column
    other = "," if decimal == "." else "."
    candidates = [*_numbers(sample, decimal), *_numbers(sample, other)]
    candidates += _times(sample, date_format)
    shares = {reading: _share(reading, sample) for reading in candidates}
    best = max(shares, key=shares.__getitem__)
    if shares[best] < MOSTLY or _share(best, itertools.chain(sample, known)) < MOSTLY:
        return TEXT
    return best


def _numbers(sample: list[tuple[str, int]], decimal: str) -> list[Reading]:
    units = ["", *(unit for unit in UNITS if any(unit in text for text, _ in sample))]
    return [Reading("number", decimal, unit) for unit in units]


def _times(sample: list[tuple[str, int]], date_format: str | None) -> list[Reading]:
    """Formats of times that understand half of the first values; ISO 8601 needs none."""
    if date_format is not None:
        return [Reading("time", date_format=date_format)]
    first = [pair for pair in sample if len(pair[0]) >= 6 and pair[0][0].isdigit()][:FEW]
    formats = [day + time for time in TIMES for day in DATES]
    readings = [Reading("time", date_format=form) for form in formats]
    return [reading for reading in readings if _share(reading, first) >= 0.5]


def _swappable(reading: Reading, distinct: list[str]) -> bool:
    """Whether the other order of day and month would understand the dates as well."""
    form = reading.date_format
    if reading.kind != "time" or form.startswith("%Y"):
        return False
    swapped = form.replace("%d", "%x").replace("%m", "%d").replace("%x", "%m")
    known = [(text, 1) for text in distinct if not is_missing_text(text)]
    return _share(Reading("time", date_format=swapped), known) == 1.0


def _share(reading: Reading, texts: Iterable[tuple[str, int]]) -> float:
    """Which share of the values a reading understands; texts for "no value" do not count."""
    right = total = 0
    for text, count in texts:
        if reading.value(text) is not None:
            right += count
            total += count
        elif text.lower() not in NO_NUMBER:
            total += count
    return right / total if total else 0.0
