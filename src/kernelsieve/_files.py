"""Atomic writes: a file appears only when it is complete, and replaces the old one."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces ``path`` at the end.

    After an error, Ctrl-C or a killed process ``path`` is unchanged; the first two also remove what
    was written so far.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "numbers.txt"
    >>> with replacing(path) as file:
    ...     _ = file.write(b"1 2 3")
    >>> path.read_text()
    '1 2 3'
    """
    with replacing_path(path) as part, part.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())  # or a power cut could leave the new name on an empty file


@contextmanager
def replacing_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Like `replacing`, but yield a path beside ``path``, with the same suffix."""
    target = Path(path)
    part = _part_of(target)
    try:
        yield part
        os.replace(part, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()
        raise


def _part_of(target: Path) -> Path:
    """A new name beside a path."""
    return target.with_name(f".{target.stem}-{secrets.token_hex(4)}.part{target.suffix}")


def check_place(path: str | os.PathLike[str]) -> None:
    """Raise OSError unless `replacing` can write a file here; nothing is left behind.

    Examples
    --------
    >>> check_place("no/such/folder/model.ks")
    Traceback (most recent call last):
    ...
    OSError: no/such/folder/model.ks: cannot write there (No such file or directory)
    """
    target = Path(path)
    if target.is_dir():
        raise OSError(f"{target} is a folder: name a file in it")
    part = _part_of(target)
    try:
        part.open("xb").close()
        part.unlink()
    except OSError as error:
        raise OSError(f"{target}: cannot write there ({error.strerror})") from None


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Replace a file by a text, in UTF-8."""
    with replacing(path) as file:
        file.write(text.encode())
