"""Results as text: a table with a dot plot for the terminal, and the same in Markdown."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from kernelsieve.bench.records import Summary

MIN_DOT_WIDTH, MAX_DOT_WIDTH = 14, 40
GAP = 2


class Report:
    """The tables of a comparison, one per dataset, fitted to the terminal's width."""

    def __init__(self, summaries: Iterable[Summary]) -> None:
        self.summaries = list(summaries)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for rows in by_dataset(self.summaries):
            yield Text(heading(rows), style="bold")
            yield Text(conditions(rows), style="dim")
            yield terminal_table(rows, options.max_width, options.ascii_only)
            yield Text()


def terminal_table(rows: Sequence[Summary], width: int, ascii_only: bool = False) -> Table:
    """One dataset's rows, with each error as a number and as a dot on a common axis."""
    decimals, best = error_decimals(rows), lowest(rows)
    low, high = error_range(rows)
    plus_minus = "+-" if ascii_only else "±"
    header = ("method", "s", rows[0].runs[0].metric, "training")
    cells = [
        (
            row.method,
            components(row, none=""),
            error_text(row, decimals, plus_minus),
            duration(row.fit_seconds),
        )
        for row in rows
    ]
    used = sum(max(map(len, column)) + GAP for column in zip(header, *cells, strict=True))
    dot_width = min(max(width - used, MIN_DOT_WIDTH), MAX_DOT_WIDTH)
    ends = f"{low:.{decimals}f}", f"{high:.{decimals}f}"
    axis = ends[0] + " " * (dot_width - len(ends[0]) - len(ends[1])) + ends[1]

    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    for title, justify in zip(header, ("left", "right", "right", "right"), strict=True):
        table.add_column(title, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column(axis, no_wrap=True)
    shown = ""
    for row, (method, *numbers) in zip(rows, cells, strict=True):
        style = "bold green" if row is best else ("dim" if row.n_components is None else "")
        dot = dots(row, low, high, dot_width, ascii_only)
        table.add_row("" if method == shown else method, *numbers, dot, style=style)
        shown = method
    return table


def markdown(summaries: Iterable[Summary]) -> str:
    """All tables in Markdown."""
    return "\n".join(line for rows in by_dataset(summaries) for line in _markdown_table(rows))


def _markdown_table(rows: Sequence[Summary]) -> Iterator[str]:
    decimals, best = error_decimals(rows), lowest(rows)
    yield f"## {heading(rows)}\n"
    yield f"| method | s | {rows[0].runs[0].metric} | training time |"
    yield "| --- | ---: | ---: | ---: |"
    for row in rows:
        error = error_text(row, decimals)
        error = f"**{error}**" if row is best else error
        yield f"| {row.method} | {components(row)} | {error} | {duration(row.fit_seconds)} |"
    yield f"\n{conditions(rows)[0].upper()}{conditions(rows)[1:]}.\n"


def by_dataset(summaries: Iterable[Summary]) -> Iterator[list[Summary]]:
    """Runs of rows of the same dataset."""
    for _, rows in itertools.groupby(summaries, key=lambda row: row.dataset):
        yield list(rows)


def heading(rows: Sequence[Summary]) -> str:
    """The dataset and its sizes."""
    run = rows[0].runs[0]
    return (
        f"{run.dataset}: {run.n_train:,} training rows, {run.n_test:,} test rows, "
        f"{run.n_inputs:,} inputs"
    )


def conditions(rows: Sequence[Summary]) -> str:
    """What all methods of a table had in common."""
    run, n_seeds = rows[0].runs[0], max(row.n_seeds for row in rows)
    return (
        f"gamma {run.gamma:.2g}, alpha {run.alpha:.2g}, {_plural(run.n_threads, 'thread')}, "
        f"{_plural(n_seeds, 'seed')}"
    )


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def lowest(rows: Sequence[Summary]) -> Summary | None:
    """The row with the lowest error among the methods with features."""
    candidates = [row for row in rows if row.n_components is not None]
    return min(candidates, key=lambda row: row.error, default=None)


def error_range(rows: Sequence[Summary]) -> tuple[float, float]:
    """The axis of the dot plot: all errors with their spread."""
    return (
        min(row.error - row.spread for row in rows),
        max(row.error + row.spread for row in rows),
    )


def error_decimals(rows: Sequence[Summary]) -> int:
    """Decimals that show four digits of the smallest error.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> error_decimals([SimpleNamespace(error=0.23117), SimpleNamespace(error=1.5)])
    4
    """
    smallest = min(row.error for row in rows)
    return max(0, 3 - math.floor(math.log10(smallest))) if smallest > 0 else 3


def error_text(row: Summary, decimals: int, plus_minus: str = "±") -> str:
    """Mean and spread; no spread where the seed changes nothing or there is only one."""
    mean = f"{row.error:.{decimals}f}"
    varies = row.n_components is not None and row.n_seeds > 1
    return f"{mean} {plus_minus} {row.spread:.{decimals}f}" if varies else mean


def components(row: Summary, none: str = "-") -> str:
    """The number of features, or ``none``."""
    return none if row.n_components is None else str(row.n_components)


def duration(seconds: float) -> str:
    """A time for people.

    Examples
    --------
    >>> duration(0.0123), duration(1.234), duration(75.0)
    ('12 ms', '1.23 s', '1 min 15 s')
    """
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms" if seconds >= 0.00095 else "< 1 ms"
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def dots(row: Summary, low: float, high: float, width: int, ascii_only: bool = False) -> str:
    """The error as a dot between ``low`` and ``high``, with its spread as whiskers.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> dots(SimpleNamespace(error=0.5, spread=0.2), 0.0, 1.0, 11)
    '   ──●──'
    """
    dot, whisker = ("o", "-") if ascii_only else ("●", "─")
    scale = (width - 1) / (high - low) if high > low else 0.0
    left, middle, right = (
        round((value - low) * scale)
        for value in (row.error - row.spread, row.error, row.error + row.spread)
    )
    return " " * left + whisker * (middle - left) + dot + whisker * (right - middle)
