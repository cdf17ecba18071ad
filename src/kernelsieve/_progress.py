"""How long work takes: steps, bars and lines that show them, and durations in words."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

Item = TypeVar("Item")
Report = Callable[[int, float], None]  # of an iteration's number and residual

TOO_EARLY = 0.02  # of the work: the time for the rest cannot be told before
LINE_SECONDS = 10.0


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


@dataclass(frozen=True)
class State:
    """How far work has come.

    Attributes
    ----------
    step : str
        What is being done.
    share : float
        Of all the work, between 0 and 1.
    left : float
        Seconds until the end, if the rest goes on as before; infinite if nobody knows.
    """

    step: str
    share: float = 0.0
    left: float = math.inf

    def __str__(self) -> str:
        return ", ".join(filter(None, (f"{self.step}: {self.share:.0%} done", self.rest)))

    @property
    def rest(self) -> str:
        """The time that is left, in words."""
        return f"about {duration(self.left)} left" if math.isfinite(self.left) else ""


class Progress:
    """The step that work is in, the share that is done, and the time that is left.

    A step within a step is a share of the outer one. Whoever works says so; ``show`` decides what
    becomes of it.

    Parameters
    ----------
    show : callable
        Called with a ``State`` at every change.
    clock : callable
        The time in seconds.

    Examples
    --------
    >>> progress = Progress(print, clock=iter([0.0, 0.0, 3.0, 3.0, 9.0, 15.0]).__next__)
    >>> with progress.step("reading", share=0.2):
    ...     pass
    reading: 0% done
    reading: 20% done, about 12 s left
    >>> with progress.step("likelihood", share=0.8):
    ...     progress.advance(0.5)
    likelihood: 20% done, about 12 s left
    likelihood: 60% done, about 6.00 s left
    likelihood: 100% done, about < 1 ms left
    """

    def __init__(
        self,
        show: Callable[[State], None] = lambda state: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._show, self._clock = show, clock
        self._began = clock()
        self._name = ""
        self._done = 0.0
        self._span = (0.0, 1.0)  # where the present step begins and ends

    @contextmanager
    def step(self, name: str, share: float = 1.0) -> Iterator[Progress]:
        """Name what is done inside, and its share of what surrounds it."""
        outer, outer_name = self._span, self._name
        end = min(self._done + share * (outer[1] - outer[0]), outer[1])
        self._span = (self._done, end)
        self.at(name, 0.0)
        yield self
        self.advance(1.0)
        self._span, self._name = outer, outer_name

    def advance(self, share: float) -> None:
        """Say how much of the present step is done."""
        self.at(self._name, share)

    def at(self, name: str, share: float) -> None:
        """The same, and what is being done now."""
        start, end = self._span
        self._name, self._done = name, start + share * (end - start)
        spent, left = self._clock() - self._began, math.inf
        if self._done >= TOO_EARLY:
            left = max(0.0, spent * (1.0 - self._done) / self._done)
        self._show(State(name, self._done, left))


class Lines:
    """Writes the latest state at most every ten seconds: for logs.

    Parameters
    ----------
    write : callable
        Called with a line of text.
    clock : callable
        The time in seconds.
    seconds : float
        Between two lines.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        seconds: float = LINE_SECONDS,
    ) -> None:
        self._write, self._clock, self._seconds = write, clock, seconds
        self._last = clock()
        self._state: State | None = None
        self._lock = threading.Lock()

    def show(self, state: State) -> None:
        """Take note of a state, and write it if it is time."""
        self._state = state
        self.tick()

    def tick(self) -> None:
        """Write the latest state if it is time."""
        with self._lock:
            now = self._clock()
            if self._state is not None and now - self._last >= self._seconds:
                self._last = now
                self._write(str(self._state))


@contextmanager
def shown(quiet: bool = False, seconds: float = LINE_SECONDS) -> Iterator[Progress]:
    """A Progress that is shown on stderr: by a bar on a terminal, by lines elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)  # keeps NO_COLOR
    if quiet:
        yield Progress()
        return
    with _bar(console) if console.is_terminal else _lines(seconds) as progress:
        yield progress


@contextmanager
def _bar(console: Any) -> Iterator[Progress]:
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description:<44}"),
        BarColumn(bar_width=12),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[rest]}"),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        task = bars.add_task("", total=1.0, rest="")
        yield Progress(
            lambda state: bars.update(
                task, completed=state.share, description=state.step, rest=state.rest
            )
        )


@contextmanager
def _lines(seconds: float) -> Iterator[Progress]:
    """Lines come from a thread: a step may say nothing for minutes."""
    lines = Lines(lambda line: print(line, file=sys.stderr, flush=True), seconds=seconds)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(min(1.0, seconds)):
            lines.tick()

    watcher = threading.Thread(target=watch, name="kernelsieve-progress", daemon=True)
    watcher.start()
    try:
        yield Progress(lines.show)
    finally:
        ended.set()
        watcher.join()
