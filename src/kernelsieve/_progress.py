"""How long work takes: progress bars when asked for, and durations in words."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Item = TypeVar("Item")
Report = Callable[[int, float], None]  # of an iteration's number and residual


def track(items: Iterable[Item], total: int, description: str, verbose: int) -> Iterator[Item]:
    """Iterate over ``items``, with a progress bar if ``verbose`` is not 0."""
    if not verbose:
        yield from items
        return
    from rich.progress import track as rich_track

    yield from rich_track(items, description=description, total=total)


def track_rows(
    items: Iterable[tuple[int, Item]], total: int | None, description: str, verbose: int
) -> Iterator[Item]:
    """Iterate over items given with their numbers of rows; a bar shows rows per second."""
    if not verbose:
        yield from (item for _, item in items)
        return
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class RowsPerSecond(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(f"{task.finished_speed or task.speed or 0.0:,.0f} rows/s")

    columns = (TextColumn("{task.description}"), BarColumn(), RowsPerSecond())
    with Progress(*columns, TimeRemainingColumn()) as progress:
        task = progress.add_task(description, total=total)
        for n_rows, item in items:
            progress.advance(task, n_rows)
            yield item


@contextmanager
def converging(description: str, tol: float, deadline: float, verbose: int) -> Iterator[Report]:
    """Give a function to report iterations to; a bar shows the residual and the expected end.

    Parameters
    ----------
    description : str
    tol : float
        Residual at which the iterations end.
    deadline : float
        The value of ``time.monotonic()`` at which they end in any case.
    verbose : int
        0 shows nothing.
    """
    if not verbose:
        yield lambda iteration, residual: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    first: list[tuple[float, float]] = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[end]}")) as progress:
        task, began = progress.add_task(description, total=1.0, end=""), time.monotonic()

        def report(iteration: int, residual: float) -> None:
            now = time.monotonic()
            first.append((now, residual))
            del first[1:]
            left = seconds_left(now - first[0][0], first[0][1], residual, tol)
            left = max(0.0, min(left, deadline - now))
            share = (now - began) / (now - began + left) if math.isfinite(left) else 0.0
            end = f", about {duration(left)} left" if math.isfinite(left) else ""
            text = f"iteration {iteration}, residual {residual:.1e} of {tol:.1e}{end}"
            progress.update(task, completed=share, end=text)

        yield report


def seconds_left(elapsed: float, first: float, residual: float, tol: float) -> float:
    """Seconds until a residual that falls at a constant rate reaches ``tol``.

    Examples
    --------
    >>> round(seconds_left(10.0, 1e-1, 1e-3, 1e-4), 3)
    5.0
    """
    if residual <= tol:
        return 0.0
    if elapsed <= 0.0 or residual >= first:
        return math.inf
    return elapsed * math.log(residual / tol) / math.log(first / residual)


def duration(seconds: float) -> str:
    """Format a duration in at most eight characters.

    Examples
    --------
    >>> duration(0.0123), duration(1.234), duration(75.0), duration(600.0)
    ('12 ms', '1.23 s', '75 s', '10 min')
    """
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms" if seconds >= 0.00095 else "< 1 ms"
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 9.95 else f"{minutes:.0f} min"
