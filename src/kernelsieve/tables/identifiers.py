"""Columns that name rows, and say nothing about the rows to come."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from kernelsieve.tables.texts import may_be_dates

FEW_LEVELS = 50  # up to so many distinct texts are categories, however few rows there are
DATES_LOOKED_AT = 200
# Names of columns that number the rows of a table, or of another one.
IDENTIFIER = re.compile(
    r"(row[ _.]?(names?|id|no|nr|num|number)|index|unnamed: \d+|id|uuid|guid|key"
    r"|.*[ _.-](id|uuid|guid|key))", re.IGNORECASE
)  # fmt: skip
MOSTLY_DISTINCT = 0.9


def numbers_that_identify(name: str, values: NDArray[np.float64]) -> str | None:
    """Why a column of numbers looks like an identifier, or None."""
    if counts_rows(values):
        return "unique whole numbers that count the rows"
    if named_as_identifier(name, values[~np.isnan(values)]):
        return "its name, and whole numbers that nearly all differ"
    return None


def texts_that_identify(levels: list[str], n_present: int, n_rows: int) -> str | None:
    """Why a column with these distinct texts looks like an identifier, or None."""
    if len(levels) <= max(FEW_LEVELS, n_present // 2):
        return None
    why = "every value is unique"
    if len(levels) < n_rows:
        why = f"{len(levels):,} distinct values in {n_rows:,} rows"
    if may_be_dates(levels[:DATES_LOOKED_AT]):
        why += "; are these dates, in several formats?"
    return why


def counts_rows(values: NDArray[np.float64]) -> bool:
    """Whether numbers look like the numbers of rows: whole, unique, and rising or close together.

    Examples
    --------
    >>> counts_rows(np.arange(100.0)), counts_rows(np.arange(100.0) ** 0.5)
    (True, False)
    """
    if len(values) <= FEW_LEVELS or np.isnan(values).any() or (values != np.round(values)).any():
        return False
    steps = np.diff(values)
    if (steps > 0).all():
        return True
    close = values.max() - values.min() <= 3 * len(values)
    return bool(close and len(np.unique(values)) == len(values))


def named_as_identifier(name: str, present: NDArray[np.float64]) -> bool:
    """Whether a name says that numbers are identifiers, and they are whole and nearly all differ.

    Examples
    --------
    >>> numbers = np.arange(100.0) ** 2
    >>> named_as_identifier("customer_id", numbers), named_as_identifier("population", numbers)
    (True, False)
    """
    if IDENTIFIER.fullmatch(name) is None and re.search("[a-z0-9]I[Dd]$", name) is None:
        return False
    whole = len(present) > FEW_LEVELS and bool((present == np.round(present)).all())
    return whole and len(np.unique(present)) >= MOSTLY_DISTINCT * len(present)
