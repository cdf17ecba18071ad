"""What a user is told about the values of a table: what is missing, and what is new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from kernelsieve.tables.categories import Category
from kernelsieve.tables.columns import ABSENT, Number, Time
from kernelsieve.tables.table import is_missing, listed
from kernelsieve.tables.typed import shown

MOST_NOTES = 3  # on missing values; more columns share one

Column = Number | Time | Category


def notices(
    columns: Sequence[Column], given: Sequence[NDArray[Any]], strict: bool
) -> Iterator[str]:
    """Where values are missing, and where categories were not seen in training."""
    filled: list[tuple[Number, int]] = []
    for column, values in zip(columns, given, strict=True):
        n_missing = int(is_missing(values).sum())
        if isinstance(column, Category):
            yield from _of_categories(column, values, n_missing, strict)
        elif n_missing and column.is_whole:
            filled.append((column, n_missing))
    if len(filled) > MOST_NOTES and not strict:
        counts = listed(f"{column.name!r} ({count:,})" for column, count in filled)
        yield f"missing values replaced by the median in {len(filled)} columns: {counts}"
        return
    for number, count in filled:
        missing = plural(count, "missing value")
        yield f"column {number.name!r}: {missing} replaced by the median, {number.fill_text}"


def _of_categories(
    column: Category, values: NDArray[Any], n_missing: int, strict: bool
) -> Iterator[str]:
    missing = plural(n_missing, "missing value")
    if n_missing and column.fill != ABSENT:
        yield (
            f"column {column.name!r}: {missing} replaced by the most frequent category, "
            f"{shown(column.fill)}; there were none in training"
        )
    elif n_missing and strict:
        yield f"column {column.name!r}: {missing}"
    unseen = column.unseen(values)
    if unseen:
        yield (
            f"column {column.name!r}: {plural(len(unseen), 'row')} with categories not seen in "
            f"training, for example {shown(unseen[0])}"
        )


def plural(count: int, what: str) -> str:
    """A count and a noun, for messages."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
