"""The columns of a table by the type that they had in training: numbers, times or categories."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.tables.cells import is_number
from kernelsieve.tables.table import Table, TableError
from kernelsieve.tables.times import as_times, seconds_of

LONGEST_SHOWN = 40


class TypedTable:
    """Columns of a table as numbers, times or categories; a TableError if they are something else.

    Parameters
    ----------
    table : Table
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._seconds: dict[str, NDArray[np.float64]] = {}

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Finite numbers, NaN where they are missing."""
        values = self._table.columns[name]
        if values.dtype.kind == "O":
            values = self._from_texts(name, values.tolist())
        bad = np.flatnonzero(np.isinf(values))
        if bad.size:
            raise TableError(
                f"{self._table.where}: column {name!r} is {values[bad[0]]} in row {bad[0] + 1}: "
                "replace it by a finite number, or leave it empty"
            )
        return values

    def _from_texts(self, name: str, values: list[Any]) -> NDArray[np.float64]:
        """Convert numbers that are stored as texts."""
        for row, value in enumerate(values):
            if value is not None and not is_number(value):
                self._refuse(name, row, value, "numbers")
        return np.array([np.nan if value is None else float(value) for value in values])

    def seconds(self, name: str) -> NDArray[np.float64]:
        """Times in seconds since 1970, NaN where they are missing."""
        if name not in self._seconds:
            self._seconds[name] = self._times(name, self._table.columns[name])
        return self._seconds[name]

    def _times(self, name: str, values: NDArray[Any]) -> NDArray[np.float64]:
        if values.dtype.kind == "f":
            if not np.isnan(values).all():
                raise TableError(
                    f"{self._table.where}: column {name!r} holds numbers, and in training it held "
                    "times"
                )
            return values
        found = as_times(values)
        if found is not None:
            return found
        for row, value in enumerate(values.tolist()):
            if value is not None and seconds_of(value) is None:
                self._refuse(name, row, value, "times")
        return np.full(len(values), np.nan)

    def categories(self, name: str) -> NDArray[Any]:
        """Texts with None, or numbers with NaN where they are missing."""
        return self._table.columns[name]

    def _refuse(self, name: str, row: int, value: Any, held: str) -> None:
        raise TableError(
            f"{self._table.where}: column {name!r} is {shown(value)} in row {row + 1}, and in "
            f"training it held {held}"
        )


def shown(value: Any) -> str:
    """A value for messages."""
    text = repr(str(value))
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 4]}...'"
