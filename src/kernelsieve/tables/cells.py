"""One cell of a table: what a text and a number say, to readers, encoders and exported files."""

from __future__ import annotations

from kernelsieve.tables.texts import MISSING

# What `str.strip` and pyarrow remove around a text.
SPACES = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
LARGEST_WHOLE = 1e16  # whole numbers from here on are written with an exponent
TRUTH = {"true": 1.0, "false": 0.0}


def known_text(text: str) -> str | None:
    """A text without the spaces around it, or None if it means "no value".

    Case, accents and spaces inside are kept: they tell categories apart.

    Examples
    --------
    >>> known_text(" WD "), known_text("wd"), known_text(" N/A ")
    ('WD', 'wd', None)
    """
    if not text.isascii():  # halves of a character, which no file can hold
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = text.strip(SPACES)
    return None if text.lower() in MISSING else text


def number_text(value: float) -> str:
    """A number as a text, whole ones without a point.

    Examples
    --------
    >>> number_text(1.0), number_text(0.5), number_text(1234567.0), number_text(-0.0)
    ('1', '0.5', '1234567', '0')
    """
    whole = value == round(value) if abs(value) < LARGEST_WHOLE else False
    return f"{value + 0.0:.0f}" if whole else repr(value)


def is_number(text: str) -> bool:
    """Whether a text is a number; "1_000" is one to Python only."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def number_of(text: str) -> float | None:
    """The number that a category stands for, if it is one: its own, or 1 and 0 for a truth value.

    Examples
    --------
    >>> number_of("1.0"), number_of("01067"), number_of("True"), number_of("one")
    (1.0, 1067.0, 1.0, None)
    """
    return float(text) if is_number(text) else TRUTH.get(text.lower())
