"""A progress bar on long work, when asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def track(items: Iterable[Item], total: int, description: str, verbose: int) -> Iterator[Item]:
    """``items``, with a bar on the terminal when ``verbose`` is not 0."""
    if not verbose:
        yield from items
        return
    from rich.progress import track as rich_track

    yield from rich_track(items, description=description, total=total)
