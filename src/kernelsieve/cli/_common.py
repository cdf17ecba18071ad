"""Shared by the commands: the application, user errors, notes, output."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

app = typer.Typer(
    name="kernelsieve",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


class UserError(Exception):
    """A problem that the user can solve; shown as one line, without a traceback."""


def complain(message: str) -> int:
    """Print one red line; return the exit code of user errors."""
    line = " ".join(message.split())
    typer.secho(f"Error: {line}", fg="red", err=True)
    return 2


@contextmanager
def user_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Convert exceptions about wrong arguments or files to a UserError."""
    try:
        yield
    except kinds as error:
        raise UserError(str(error) or type(error).__name__) from error


def require_files(*paths: Path) -> None:
    """Complain about a missing file at once, before anything slow is imported."""
    for path in paths:
        if not path.exists():
            hint = ": 'kernelsieve fit' writes models" if path.suffix == ".ks" else ""
            raise UserError(f"{path} does not exist{hint}")


def check_outputs(outputs: Iterable[Path | None], inputs: Iterable[Path | None] = ()) -> None:
    """Complain, before any work, about an output that cannot be written, or that is an input."""
    from kernelsieve._files import check_place

    read = [path for path in inputs if path is not None and path.exists()]
    for out in (path for path in outputs if path is not None):
        if out.exists() and (same := [path for path in read if path.samefile(out)]):
            raise UserError(
                f"{out} is the input {same[0]}, and would replace it: name another file"
            )
        with user_errors(OSError):
            check_place(out)


def hush() -> None:
    """For --quiet and --json: do not announce that code is being compiled."""
    logging.getLogger("kernelsieve").setLevel(logging.ERROR)


@contextmanager
def notes(quiet: bool) -> Iterator[list[str]]:
    """Show warnings as notes: one dim line each on stderr, and a list for --json."""
    found: list[str] = []
    if quiet:
        hush()

    def note(message: Any, *rest: Any, **more: Any) -> None:
        text = " ".join(str(message).split())
        if text not in found:
            found.append(text)
            if not quiet:
                typer.secho(f"Note: {text}", dim=True, err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        for kind in (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", kind)
        warnings.showwarning = note
        yield found


@contextmanager
def steps(quiet: bool) -> Iterator[Any]:
    """Show the current step and its duration on a terminal."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    console.quiet = quiet or not console.is_terminal
    columns = (SpinnerColumn(), TextColumn("{task.description:<32}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda step: progress.update(task, description=step)


def print_json(content: Any) -> None:
    """Print JSON; infinite and undefined numbers become null."""
    import json

    typer.echo(json.dumps(_finite(content), indent=1, ensure_ascii=False))


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    if isinstance(content, float) and not abs(content) < float("inf"):
        return None
    return content


def words(text: str) -> list[str]:
    """Split a text at commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def integers(text: str, option: str) -> list[int]:
    """Split a text at commas into whole numbers."""
    try:
        return [int(word) for word in words(text)]
    except ValueError:
        raise UserError(
            f"{option} {text}: give whole numbers separated by commas, for example 250,500"
        ) from None


def folder(out: Path) -> Path:
    """Create a folder to write to unless it exists."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: cannot create this folder ({error.strerror})") from error
    return out
