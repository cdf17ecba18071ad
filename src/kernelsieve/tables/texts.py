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

# By the decimal sign: what a number looks like, with groups of three digits or without.
_GROUPED = r"(?=[{mark}]?\d)([1-9]\d{{0,2}}([{groups}' \u00a0\u202f]\d{{3}})+|\d+)?({mark}\d*)?"
NUMBERS = {
    mark: re.compile(r"[+-]?" + _GROUPED.format(mark=rf"\{mark}", groups=rf"\{groups}")
                     + r"([eE][+-]?\d+)?")
    for mark, groups in ((".", ","), (",", "."))
}  # fmt: skip
SIGNS = "$€£¥%"
CODES = ("USD", "EUR", "GBP", "CHF", "JPY", "CNY", "CAD", "AUD", "NZD", "SEK", "NOK", "DKK", "PLN",
         "CZK", "HUF", "INR", "BRL", "MXN", "ZAR", "US$", "R$", "Rs.", "Rs", "kr")  # fmt: skip
CLOCK = ":"  # as a unit: 9:45 is the number 9.75
MAGNITUDES = {"k": 1e3, "K": 1e3, "M": 1e6, "mn": 1e6, "Mio": 1e6, "B": 1e9, "bn": 1e9, "Mrd": 1e9}
MAGNITUDE = "kM"  # as a unit, alone or before a currency: 13.5k is the number 13,500
WITH_MAGNITUDE = re.compile(rf"(.*\d) ?({'|'.join(MAGNITUDES)})")
LONGEST_UNIT = 16
# A number, and the word behind it that every value of a column may have, as in "36 months".
WITH_WORD = re.compile(rf"[+-]?\d[\d.,']* ?([^\W\d_][^\d,;]{{0,{LONGEST_UNIT - 1}}}[23²³]?)")
CLOCK_TIME = re.compile(r"(\d{1,3}):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?(?: ?([AaPp])\.?[Mm]\.?)?")
NUMERIC_DATES = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d.%m.%y",
                 "%m/%d/%y", "%d/%m/%y")  # fmt: skip
NAMED_DATES = ("%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %d %Y", "%B %d %Y",
               "%d-%b-%Y", "%d-%b-%y", "%d %b %y")  # fmt: skip
TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
# What must be found in a text before the formats are tried: trying them takes long.
LIKE_DATES = {
    re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{2,4}"): NUMERIC_DATES,
    re.compile(r"(?i)\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b"): NAMED_DATES,
}
COMPACT_DATE = "%Y%m%d"
FIRST_COMPACT, LAST_COMPACT = 1900_00_00, 2100_00_00  # whole numbers that may be such dates
CODE_LENGTH = 5  # digits: with a zero in front they are a code, as of a town, and not a number
# What looks like a number and may be a code: a zero in front, a phone number, a product 5E10, and
# more digits than a number holds.
MAY_BE_CODE = rf"^0\d{{{CODE_LENGTH - 1},}}$|^\+\d{{8,}}$|^\d+[eE]\d+$|^\d{{16,}}$"
INTERNATIONAL = re.compile(r"\+\d[\d ]{7,}")
LIKE_EXPONENT = re.compile(r"\d+[eE]\d+")
LONG_DIGITS = re.compile(r"\d{16,}")
# Three groups of digits and more, all of one length: phone numbers and addresses, not amounts.
GROUPS_OF_CODES = re.compile(r"\d{3}([. ])\d{3}\1\d{3,4}(\1\d{3,4})*")
FEW_CODES = 5  # distinct groups of digits that may be amounts of one length by chance
# Names of columns whose digits are codes.
NAME_OF_CODES = re.compile(
    r"(?i)(.*[^a-z])?(zip|zip.?code|post.?code|postal.?code|plz|phone|phone.?(number|no)|telephone"
    r"|mobile|fax|ssn|iban|isbn)"
)


@dataclass(frozen=True)
class Reading(Persistent):
    """How the texts of a column are understood.

    Attributes
    ----------
    kind : "number", "time" or "text"
    decimal : "." or ","
        The decimal sign of numbers.
    unit : str
        What is removed from numbers: a currency, "%", or a word behind them ("36 months"). With
        ":", times of the day and durations such as 9:45 are numbers of hours, 9.75. With "kM",
        also before a currency, 13.5k is 13,500.
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
        "unit": _state.text,
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
    bare : str or None
        A number without "%" where others have it.
    """

    values: NDArray[Any]
    reading: Reading
    odd: dict[str, int] = field(default_factory=dict)
    example: str | None = None
    swappable: bool = False
    bare: str | None = None


def is_missing_text(text: str) -> bool:
    """Whether a text means "no value" in any column."""
    return len(text) <= LONGEST_MISSING and text.lower() in MISSING


def number(text: str, decimal: str = ".", unit: str = "") -> float | None:
    """Convert a text to a number, or return None.

    Examples
    --------
    >>> number("1.234,5", decimal=","), number("$100,000", unit="$"), number("7 rooms")
    (1234.5, 100000.0, None)
    >>> number("13.5k", unit="kM"), number("$1.2M", unit="kM$"), number("$900", unit="kM$")
    (13500.0, 1200000.0, 900.0)
    >>> number("(20.50)"), number("36 months", unit="months"), number("9:45", unit=":")
    (-20.5, 36.0, 9.75)
    """
    if unit == CLOCK:
        return _hours(text)
    if unit.startswith(MAGNITUDE):
        return _with_magnitude(text, decimal, unit.removeprefix(MAGNITUDE))
    if unit:
        found = next((u for u in (unit, unit.removesuffix("s")) if u and u in text), None)
        if found is None and unit not in SIGNS:  # "3.6k" is not 3.6 among plain numbers
            return None
        text = text.replace(found or unit, "", 1).strip()
    text = text.replace("\u2212", "-")  # a typographic minus sign
    if text[:1] == "(" and text[-1:] == ")":  # a loss, as accountants write it
        value = number(text[1:-1].strip(), decimal)
        return None if value is None else -value
    if decimal == "." and "," not in text and "_" not in text:
        try:
            return float(text)
        except ValueError:
            pass
    if NUMBERS[decimal].fullmatch(text) is None:
        return None
    digits = "".join(c for c in text if c.isascii() and (c.isalnum() or c in "+-" + decimal))
    return float(digits.replace(",", "."))


def _with_magnitude(text: str, decimal: str, currency: str) -> float | None:
    """A number with or without a magnitude behind it."""
    text = (text.replace(currency, "", 1) if currency else text).strip()
    if text[:1] == "(" and text[-1:] == ")":
        value = _with_magnitude(text[1:-1], decimal, "")
        return None if value is None else -value
    match = WITH_MAGNITUDE.fullmatch(text)
    if match is None:
        return number(text, decimal)
    value = number(match[1], decimal)
    return None if value is None else round(value * MAGNITUDES[match[2]], 6)


def _hours(text: str) -> float | None:
    """A time of the day, or a duration, in hours."""
    match = CLOCK_TIME.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds, half = match.groups()
    whole = int(hours)
    if half:
        if not 1 <= whole <= 12:
            return None
        whole = whole % 12 + 12 * (half in "pP")
    return whole + int(minutes) / 60 + float(seconds or 0) / 3600


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
    texts: Any,
    reading: Reading | None = None,
    decimal: str = ".",
    date_format: str | None = None,
    name: str = "",
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
    name : str
        The name of the column, which may say that it holds codes.

    Returns
    -------
    Column
    """
    by_name = reading is None and NAME_OF_CODES.fullmatch(name) is not None
    quick = None
    if reading in (None, PLAIN_NUMBER) and decimal == "." and not by_name:
        quick = _quick_numbers(texts)
    if quick is not None and (reading is not None or not _disguised(texts, quick)):
        return Column(quick, PLAIN_NUMBER)
    encoded = texts.combine_chunks().dictionary_encode()
    distinct: list[str] = encoded.dictionary.to_pylist()
    places = encoded.indices.to_numpy(zero_copy_only=False)
    counts = np.bincount(places, minlength=len(distinct))
    known = [text for text in distinct if not is_missing_text(text)]
    codes = bool(known) and (_are_codes(known) or (by_name and all(map(str.isdigit, known))))
    if reading is None:
        reading = TEXT if codes else _inferred(distinct, counts, decimal, date_format)
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
        zeros = (text for text in known if text[0] == "0")
        example = next(zeros, known[0]) if codes else None
        return Column(column, reading, example=example)
    pairs = zip(distinct, values, strict=True)
    odd_ones = [t for t, v in pairs if v is not None and not _obvious(t, reading)]
    example = odd_ones[0] if odd_ones else None
    if reading.unit.startswith(MAGNITUDE):
        example = next((t for t in odd_ones if WITH_MAGNITUDE.fullmatch(t)), example)
    swappable = date_format is None and _swappable(reading, distinct)
    bare = None
    if reading.unit == "%":
        bare = next((t for t in known if "%" not in t and reading.value(t)), None)
    return Column(column, reading, odd, example, swappable, bare)


def _obvious(text: str, reading: Reading) -> bool:
    """Whether a text is the same number to anybody."""
    digits = text.lstrip("+-")
    if reading.kind == "number" and reading.decimal == ".":
        return digits.replace(".", "", 1).isdigit()
    return reading.kind == "number" and digits.isdigit()


def _quick_numbers(texts: Any) -> NDArray[np.float64] | None:
    """All texts as numbers if pyarrow understands them; empty ones are missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        cast = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts).cast("float64")
    except pa.ArrowInvalid:
        return None
    return np.asarray(cast.to_numpy(), dtype=np.float64)


def _disguised(texts: Any, numbers: NDArray[np.float64]) -> bool:
    """Whether whole numbers may be dates such as 20210325, or codes such as 01067."""
    import pyarrow.compute as pc

    present = numbers[~np.isnan(numbers)]
    if len(present) == 0 or (present != np.round(present)).any():
        return False
    if present.min() > FIRST_COMPACT and present.max() < LAST_COMPACT:
        return True
    return bool(pc.any(pc.match_substring_regex(texts, MAY_BE_CODE)).as_py())


def _are_codes(texts: list[str]) -> bool:
    """Whether texts are made of digits, but are codes and no numbers."""
    return (
        _have_zeros_in_front(texts)
        or (
            all(text.isdigit() for text in texts)
            and any(LONG_DIGITS.fullmatch(text) for text in texts)
        )
        or all(INTERNATIONAL.fullmatch(text) for text in texts)
        or all(LIKE_EXPONENT.fullmatch(text) for text in texts)
        or (
            len(texts) >= FEW_CODES
            and len(set(map(len, texts))) == 1
            and all(GROUPS_OF_CODES.fullmatch(text) for text in texts)
        )
    )


def _have_zeros_in_front(texts: list[str]) -> bool:
    """Whether texts are digits of one length, some with a zero in front: no number begins so."""
    return (
        all(text.isdigit() for text in texts)
        and len(set(map(len, texts))) == 1
        and len(texts[0]) >= CODE_LENGTH
        and any(text[0] == "0" for text in texts)
    )


def _are_compact_dates(texts: list[str]) -> bool:
    return (
        len(texts) > 1
        and all(len(text) == 8 and text.isdigit() for text in texts)
        and all(FIRST_COMPACT < int(text) < LAST_COMPACT for text in texts)
        and all(iso_time(text, COMPACT_DATE) is not None for text in texts)
    )


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
    sampled = [text for text, _ in sample]
    if date_format is None and _are_compact_dates(sampled):
        return Reading("time", date_format=COMPACT_DATE)
    other = "," if decimal == "." else "."
    candidates = [*_numbers(sample, decimal), *_numbers(sample, other)]
    candidates += _times(sample, date_format)
    shares = {reading: _share(reading, sample) for reading in candidates}
    best = max(shares, key=shares.__getitem__)
    if shares[best] < MOSTLY or _share(best, itertools.chain(sample, known)) < MOSTLY:
        return TEXT
    return best


def _numbers(sample: list[tuple[str, int]], decimal: str) -> list[Reading]:
    """Readings as numbers: plain ones, and those with a unit that occurs."""
    signs = [unit for unit in (*SIGNS, *CODES) if any(unit in text for text, _ in sample)]
    first = [text for text, _ in sample[:FEW]]
    units = ["", *signs]
    if _have_magnitudes([text for text, _ in sample]):
        units = [f"{MAGNITUDE}{sign}" for sign in signs or [""]]
    if 2 * sum(CLOCK_TIME.fullmatch(text) is not None for text in first) >= len(first) > 0:
        units.append(CLOCK)
    words = [match[1].strip() for text in first if (match := WITH_WORD.fullmatch(text))]
    if 2 * len(words) >= len(first) > 0:
        # The longest: "1 month" is understood among months, but not the other way round.
        units += sorted(set(words), key=len, reverse=True)[:2]
    return [Reading("number", decimal, unit) for unit in units]


def _have_magnitudes(texts: list[str]) -> bool:
    """Whether numbers have magnitudes behind them, such as 13.5k; 12B alone may be a flat."""
    found = [(text, match[2]) for text in texts if (match := WITH_MAGNITUDE.fullmatch(text))]
    telling = any(
        letters in "kK" or re.search(r"[.,]", text) or text[0] in SIGNS for text, letters in found
    )
    return telling or len({letters for _, letters in found}) > 1


def _times(sample: list[tuple[str, int]], date_format: str | None) -> list[Reading]:
    """Formats of times that understand half of the first values; ISO 8601 needs none."""
    if date_format is not None:
        return [Reading("time", date_format=date_format)]
    first = [pair for pair in sample if len(pair[0]) >= 6][:FEW]
    formats = [
        day + time
        for pattern, days in LIKE_DATES.items()
        if 2 * sum(pattern.search(text) is not None for text, _ in first) >= len(first) > 0
        for time in TIMES
        for day in days
    ]
    readings = [Reading("time", date_format=form) for form in formats]
    return [reading for reading in readings if _share(reading, first) >= 0.5]


def may_be_dates(texts: list[str]) -> bool:
    """Whether nearly all of some texts look like dates, in whatever formats."""
    alike = sum(any(pattern.search(text) for pattern in LIKE_DATES) for text in texts)
    return alike >= MOSTLY * len(texts) > 0


def _swappable(reading: Reading, distinct: list[str]) -> bool:
    """Whether the other order of day and month would understand the dates as well."""
    form = reading.date_format
    if reading.kind != "time" or form.startswith("%Y") or "%m" not in form:
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
