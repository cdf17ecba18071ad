"""What the encoder makes of a column of numbers or times: a standardised one.

A column is fitted to the values that it has in training. It takes values of later rows from typed
columns (or a typed row), and writes its columns of the matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._state import Persistent, choice, flag, number, text, wrong
from kernelsieve.tables.times import (
    FIRST_SECOND,
    LAST_SECOND,
    PARTS,
    SINCE,
    Times,
    time_part,
    time_text,
)

CLIP = 8.0  # standard deviations
FEWEST_ABSENT, ABSENT_SHARE = 10, 0.01  # missing values from which on a column says where they are
LARGEST_NUMBER = float(np.finfo(np.float64).max)
ABSENT = "(missing)"

Array = NDArray[np.float64]


class Cells(Protocol):
    """The values of a table, or of one row of it, by the type that a column needs."""

    def numbers(self, name: str) -> Any:
        """Numbers, NaN where they are missing."""

    def seconds(self, name: str) -> Any:
        """Times in seconds since 1970, NaN where they are missing."""

    def categories(self, name: str) -> Any:
        """Texts or numbers that stand for categories, None or NaN where they are missing."""


@dataclass(frozen=True)
class Number(Persistent):
    """A standardised column of numbers.

    Attributes
    ----------
    name : str
    fill : float
        Replaces missing values: the median.
    mean, scale : float
        The mean and the standard deviation.
    missing : bool
        Whether a 0/1 column says where values were missing: if they are ten or more, and 1 %.
    """

    name: str
    fill: float
    mean: float
    scale: float
    missing: bool = False

    kind: ClassVar = "number"
    _state_fields: ClassVar = {
        "name": text,
        "fill": number(-LARGEST_NUMBER, LARGEST_NUMBER),
        "mean": number(-LARGEST_NUMBER, LARGEST_NUMBER),
        "scale": number(5e-324, LARGEST_NUMBER),
        "missing": flag,
    }

    @classmethod
    def fit(cls, name: str, values: Array) -> Self:
        """Standardise a column with these values, which are not all the same."""
        present = values[~np.isnan(values)]
        absent = len(values) - len(present)
        # Divide by a power of two near the largest value: squares of raw values could overflow.
        peak = float(2.0 ** (np.frexp(np.abs(present).max())[1] - 1))
        mean, scale = peak * float(np.mean(present / peak)), peak * float(np.std(present / peak))
        told = absent >= max(FEWEST_ABSENT, ABSENT_SHARE * len(values))
        return cls(name, float(np.median(present)), mean, scale, told)

    @property
    def is_whole(self) -> bool:
        """Whether it is the column itself, and not a part of it."""
        return True

    @property
    def title(self) -> str:
        """What is used of the column."""
        return self.name

    @property
    def sources(self) -> list[str]:
        """Columns of the table that it is made of."""
        return [self.name]

    @property
    def labels(self) -> list[str]:
        """Names of the columns of the matrix."""
        return [self.title, *([f"{self.title}={ABSENT}"] if self.missing else [])]

    @property
    def fill_text(self) -> str:
        """What stands for a missing value."""
        return f"{self.fill:g}"

    def used_as(self, missing: bool) -> str:
        """What becomes of the column; ``missing``: whether values are missing in a table."""
        if not missing:
            return "standardised"
        median = f"median {self.fill_text}"
        return f"standardised; missing: {median}{', 0/1' if self.missing else ''}"

    def read(self, cells: Cells) -> Any:
        """The values of rows, NaN where they are missing."""
        return cells.numbers(self.name)

    def codes(self, values: Array) -> Array:
        """The values as numbers for methods that know missing values."""
        return values

    def encode(self, values: Array, out: Array) -> None:
        """Write the columns of the matrix, ``out`` of shape (n_rows, n_labels)."""
        missing = np.isnan(values)
        known = np.where(missing, self.fill, values) if missing.any() else values
        with np.errstate(over="ignore"):
            out[:, 0] = np.clip((known - self.mean) / self.scale, -CLIP, CLIP)
        if self.missing:
            out[:, 1] = missing

    def encode_one(self, value: float, out: Array) -> None:
        """Write a row of the matrix, ``out`` of shape (n_labels,)."""
        missing = math.isnan(value)
        if missing and self.missing:
            out[1] = 1.0
        known = self.fill if missing else value
        out[0] = min(max((known - self.mean) / self.scale, -CLIP), CLIP)

    def encoded_sparse(self, values: Array) -> sp.csr_array:
        """The columns of the matrix."""
        out = np.empty((len(values), len(self.labels)))
        self.encode(values, out)
        return sp.csr_array(out)

    def doubt(self, value: float) -> str | None:
        """What is wrong with the value of a row, where nothing may be missing."""
        return f"column {self.name!r} is missing" if self.is_whole and math.isnan(value) else None


@dataclass(frozen=True)
class Time(Number):
    """A standardised column of times in seconds since 1970 (UTC), or of a part of them.

    Attributes
    ----------
    part : str
        What of a time: "" is the time itself, else "hour", "weekday" or "day of year" (UTC), or
        "since" for the hours since ``other``.
    other : str
        Another column of times.
    """

    part: str = ""
    other: str = ""

    kind: ClassVar = "time"
    _state_fields: ClassVar = {"part": choice("", SINCE, *PARTS), "other": text}

    def _complete(self) -> None:
        if not self.part and not FIRST_SECOND <= self.fill <= LAST_SECOND:
            wrong("fill", f"is {self.fill:g} seconds since 1970, beyond the calendar")
        if (self.part == SINCE) != bool(self.other):
            wrong("other", f"is {self.other!r} for the part {self.part!r}")

    @classmethod
    def parts(cls, times: Times, wanted: list[tuple[str, str, str]]) -> list[Self]:
        """The wanted parts of times that vary."""
        found = []
        for name, part, other in wanted:
            values = time_part(times[name], part, times.get(other))
            if np.nanmin(values, initial=np.inf) < np.nanmax(values, initial=-np.inf):
                whole = cls.fit(name, values)
                found.append(replace(whole, missing=False, part=part, other=other))
        return found

    @property
    def is_whole(self) -> bool:
        """Whether it is the column itself, and not a part of it."""
        return not self.part

    @property
    def title(self) -> str:
        """What is used of the column."""
        return f"{self.name} - {self.other}" if self.other else f"{self.name} {self.part}".rstrip()

    @property
    def sources(self) -> list[str]:
        """Columns of the table that it is made of."""
        return [self.name, *([self.other] if self.other else [])]

    @property
    def fill_text(self) -> str:
        """What stands for a missing value."""
        return time_text(self.fill)

    def used_as(self, missing: bool) -> str:
        """What becomes of the column; ``missing``: whether values are missing in a table."""
        if self.part:
            return f"since {self.other}" if self.other else self.part
        flagged = ", 0/1" if self.missing else ""
        return f"standardised; missing: the median{flagged}" if missing else "standardised"

    def read(self, cells: Cells) -> Any:
        """The values of rows, NaN where they are missing."""
        other = cells.seconds(self.other) if self.other else None
        return time_part(cells.seconds(self.name), self.part, other)
