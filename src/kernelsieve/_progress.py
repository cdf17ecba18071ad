"""How long work takes: progress bars when asked for, and durations in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")


def track(items: Iterable[Item], total: int, description: str, verbose: int) -> Iterator[Item]:
    """Iterate over ``items``, with a progress bar if ``verbose`` is not 0."""
    if not verbose:
        yield from items
        return
    from rich.progress import track as rich_track

    yield from rich_track(items, description=description, total=total)


def track_rows(
    items: Iterable[tuple[int, Item]], total: int, description: str, verbose: int
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
