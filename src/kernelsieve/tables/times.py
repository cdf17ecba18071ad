"""Times as seconds since 1970, and what else a time says: its hour, its weekday, its day."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIRST_SECOND, LAST_SECOND = -62135596800, 253402300799  # of the years 1 and 9999
DAY = 86_400.0  # seconds
# What a time also says, and how many days a column must span before it does.
PARTS = {"hour": 2.0, "weekday": 7.0, "day of year": 730.0}
SINCE = "since"  # the hours since another time
MOST_TIMES = 4  # columns of times whose differences are used

Times = Mapping[str, NDArray[np.float64]]


def parts_of(times: Times) -> list[tuple[str, str, str]]:
    """What else columns of times may say: (column, part, other column)."""
    found = []
    for name, seconds in times.items():
        days = (np.nanmax(seconds) - np.nanmin(seconds)) / DAY
        found += [(name, part, "") for part, least in PARTS.items() if days >= least]
    names = list(times)[:MOST_TIMES]
    return found + [(b, SINCE, a) for i, a in enumerate(names) for b in names[i + 1 :]]


def time_part(seconds: Any, part: str, other: Any = None) -> Any:
    """A part of times, or of one time; NaN stays NaN."""
    if part == SINCE:
        return (seconds - other) / 3600.0
    if part == "hour":
        return seconds % DAY / 3600.0
    if part == "weekday":
        return (seconds // DAY + 3.0) % 7.0  # 1970 began on a Thursday
    if part == "day of year":
        days = np.where(np.isnan(seconds), 0.0, seconds // DAY).astype("datetime64[D]")
        since = (days - days.astype("datetime64[Y]")).astype(np.float64)
        return np.where(np.isnan(seconds), np.nan, since)
    return seconds


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
