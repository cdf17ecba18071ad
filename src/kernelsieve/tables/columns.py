"""What the encoder makes of a column: a standardised number, a part of a time, or categories."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelsieve._state import Persistent, choice, flag, list_of, number, text, wrong

MOST_LEVELS = 1_000  # categories of a column that are told apart; the others share one
LARGEST_NUMBER = float(np.finfo(np.float64).max)
LARGEST_MEAN = 1e6  # standard deviations of the target
FIRST_SECOND, LAST_SECOND = -62135596800, 253402300799  # of the years 1 and 9999
DAY = 86_400.0  # seconds
# What a time also says, and how many days a column must span before it does.
PARTS = {"hour": 2.0, "weekday": 7.0, "day of year": 730.0}
MOST_TIMES = 4  # columns of times whose differences are used
OTHER = "(other)"
ABSENT = "(missing)"


@dataclass(frozen=True)
class Scaled(Persistent):
    """A standardised column of numbers, or of times in seconds since 1970 (UTC).

    Attributes
    ----------
    name : str
    is_time : bool
    fill : float
        Replaces missing values: the median.
    mean, scale : float
        The mean and the standard deviation.
    missing : bool
        Whether a 0/1 column says where values were missing: if they are ten or more, and 1 %.
    part : str
        What of a time: "" is the time itself, else "hour", "weekday" or "day of year" (UTC), or
        "since" for the hours since ``other``.
    other : str
        Another column of times.
    """

    name: str
    is_time: bool
    fill: float
    mean: float
    scale: float
    missing: bool = False
    part: str = ""
    other: str = ""

    _state_fields: ClassVar = {
        "name": text,
        "is_time": flag,
        "fill": number(-LARGEST_NUMBER, LARGEST_NUMBER),
        "mean": number(-LARGEST_NUMBER, LARGEST_NUMBER),
        "scale": number(5e-324, LARGEST_NUMBER),
        "missing": flag,
        "part": choice("", "since", *PARTS),
        "other": text,
    }

    def _complete(self) -> None:
        if self.part and not self.is_time:
            wrong("part", "belongs to a column of numbers")
        if self.is_time and not self.part and not FIRST_SECOND <= self.fill <= LAST_SECOND:
            wrong("fill", f"is {self.fill:g} seconds since 1970, beyond the calendar")

    @property
    def title(self) -> str:
        """What is used of the column."""
        if self.part == "since":
            return f"{self.name} - {self.other}"
        return f"{self.name} {self.part}".rstrip()

    @property
    def sources(self) -> list[str]:
        """Columns of the table that it is made of."""
        return [self.name, *([self.other] if self.part == "since" else [])]

    @property
    def labels(self) -> list[str]:
        """Names of the columns of the matrix."""
        return [self.title, *([f"{self.title}={ABSENT}"] if self.missing else [])]


@dataclass(frozen=True)
class Levels(Persistent):
    """A column of categories, with a 0/1 column for each.

    Attributes
    ----------
    name : str
    levels : tuple of str
        The categories, "(other)" for the rare ones and "(missing)" where needed.
    fill : str
        Replaces missing values: "(missing)" if there were some in training, else the most frequent
        category.
    means : tuple of tuple of float
        If not empty, numbers that stand for each category, in place of the 0/1 columns: the mean
        of each output in it, drawn towards the mean of all rows, and standardised.
    """

    name: str
    levels: tuple[str, ...]
    fill: str
    means: tuple[tuple[float, ...], ...] = ()

    _state_fields: ClassVar = {
        "name": text,
        "levels": list_of(text, tuple),
        "fill": text,
        "means": list_of(list_of(number(-LARGEST_MEAN, LARGEST_MEAN), tuple), tuple),
    }

    def _complete(self) -> None:
        if len(self.levels) > MOST_LEVELS + 2:
            wrong("levels", f"are {len(self.levels):,}, more than {MOST_LEVELS + 2:,}")
        if self.fill not in self.levels:
            wrong("fill", "is not one of the levels")
        if self.means and len(self.means) != len(self.levels):
            wrong("means", f"are {len(self.means):,} for {len(self.levels):,} levels")
        if len({len(row) for row in self.means}) > 1 or () in self.means:
            wrong("means", "have different lengths, or none")

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
        if not self.means:
            return [f"{self.name}={level}" for level in self.levels]
        if len(self.means[0]) == 1:
            return [f"{self.name} (mean target)"]
        return [f"{self.name} (mean target {i})" for i in range(len(self.means[0]))]


def scaled(
    name: str,
    present: NDArray[np.float64],
    is_time: bool,
    missing: bool = False,
    part: str = "",
    other: str = "",
) -> Scaled:
    """How to standardise a column with these values, which are not all the same."""
    # Divide by a power of two near the largest value: squares of raw values could overflow.
    peak = float(2.0 ** (np.frexp(np.abs(present).max())[1] - 1))
    mean, scale = peak * float(np.mean(present / peak)), peak * float(np.std(present / peak))
    return Scaled(name, is_time, float(np.median(present)), mean, scale, missing, part, other)


def time_parts(times: dict[str, NDArray[np.float64]]) -> list[Scaled]:
    """What else times say: hours, weekdays, and how long one is after another."""
    wanted = []
    for name, seconds in times.items():
        days = (np.nanmax(seconds) - np.nanmin(seconds)) / DAY
        wanted += [(name, part, "") for part, least in PARTS.items() if days >= least]
    names = list(times)[:MOST_TIMES]
    wanted += [(b, "since", a) for i, a in enumerate(names) for b in names[i + 1 :]]
    found = []
    for name, part, other in wanted:
        values = time_part(times, Scaled(name, True, 0.0, 0.0, 1.0, False, part, other))
        present = values[~np.isnan(values)]
        if len(present) and present.min() < present.max():
            found.append(scaled(name, present, True, False, part, other))
    return found


def time_part(times: dict[str, NDArray[np.float64]], column: Scaled) -> NDArray[np.float64]:
    """The part of a time that a column holds."""
    seconds = times[column.name]
    if column.part == "since":
        return (seconds - times[column.other]) / 3600.0
    if column.part == "hour":
        return seconds % DAY / 3600.0
    if column.part == "weekday":
        return (seconds // DAY + 3.0) % 7.0  # 1970 began on a Thursday
    if column.part == "day of year":
        days = np.where(np.isnan(seconds), 0.0, seconds // DAY).astype("datetime64[D]")
        since = (days - days.astype("datetime64[Y]")).astype(np.float64)
        return np.where(np.isnan(seconds), np.nan, since)
    return seconds


def standardised(y: Any, n_rows: int) -> NDArray[np.float64]:
    """Targets as columns of mean 0 and variance 1."""
    outputs = np.asarray(y, dtype=np.float64).reshape(n_rows, -1)
    centred = outputs - outputs.mean(axis=0)
    peak = np.maximum(np.abs(centred).max(axis=0), 1e-300)
    centred = centred / peak
    return centred / np.maximum(centred.std(axis=0), 1e-12)


def level_means(
    places: NDArray[np.int64], outputs: NDArray[np.float64], n_levels: int
) -> NDArray[np.float64]:
    """The mean of each standardised output in each category, drawn towards the mean of all rows.

    The last row, at place -1, is for categories that are not known: the mean of all rows, 0. The
    fewer rows a category has, and the less the outputs depend on it, the more it is drawn to 0.
    """
    counts = np.bincount(places, minlength=n_levels)[:, None]
    sums = np.column_stack([np.bincount(places, w, n_levels) for w in outputs.T])
    means = sums / np.maximum(counts, 1)
    # The variance of the outputs is 1. Analysis of variance: what lies within the categories, and
    # what lies between them beyond the noise of their means.
    n, known = len(places), int(np.count_nonzero(counts))
    explained = (counts * means**2).sum(axis=0) / n
    within = np.clip((1.0 - explained) * n / max(n - known, 1), 0.05, 1.0)
    between = np.maximum(explained - within * (known - 1) / n, 0.01)
    return np.vstack([sums / (counts + within / between), np.zeros((1, outputs.shape[1]))])


def means_of(column: Levels) -> NDArray[np.float64]:
    """The numbers that stand for the categories, and zeros at place -1."""
    return np.vstack([np.array(column.means), np.zeros((1, len(column.means[0])))])


def as_times(values: NDArray[Any]) -> NDArray[np.float64] | None:
    """Convert texts to seconds since 1970, or return None unless all are ISO 8601 times."""
    seconds = [seconds_of(value) for value in values.tolist()]
    known = [s for s, value in zip(seconds, values.tolist(), strict=True) if value is not None]
    if not known or any(s is None for s in known):
        return None
    return np.array([np.nan if s is None else s for s in seconds])


def seconds_of(text: str | None) -> float | None:
    """Convert an ISO 8601 time to seconds since 1970, or return None."""
    if text is None or len(text) < 8 or not text[0].isdigit() or "-" not in text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def time_text(seconds: float) -> str:
    """A time in ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(" ", "seconds").removesuffix("+00:00")
