"""Files that appear when they are complete: an old one stays until the new one can replace it."""

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
    """A file to write to, which takes the place of ``path`` at the end.

    An error, Ctrl-C or a killed process on the way leaves ``path`` as it was; the first two also
    remove what was written so far.

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
    """As `replacing`, for writers that want a name: beside ``path``, with the same suffix."""
    target = Path(path)
    part = target.with_name(f".{target.stem}-{secrets.token_hex(4)}.part{target.suffix}")
    try:
        yield part
        os.replace(part, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()
        raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Replace a file by a text in UTF-8."""
    with replacing(path) as file:
        file.write(text.encode())
