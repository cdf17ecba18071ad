"""Files: compressed ones are opened like others, and a written one appears only when complete."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import re
import secrets
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

PACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
UNPACKING_ERRORS = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)
PART = 2**22  # bytes that are expanded at once


def is_packed(path: Path) -> bool:
    """Whether the name says that a file is compressed."""
    return path.suffix.lower() in PACKED


def split_sheet(path: str | os.PathLike[str]) -> tuple[Path, str | None]:
    """The workbook and the sheet that a path names.

    Examples
    --------
    >>> split_sheet("flats.xlsx#Rents")[1], split_sheet("flats.xlsx")[1]
    ('Rents', None)
    """
    match = re.fullmatch(r"(?is)(.*\.xlsx)#(.+)", os.fspath(path))
    return (Path(match[1]), match[2]) if match else (Path(path), None)


def open_bytes(path: Path) -> Any:
    """Open a file, which may be compressed, to read its bytes."""
    return PACKED.get(path.suffix.lower(), open)(path, "rb")


def expanded_bytes(path: Path, most: int) -> int:
    """The size of a file, a compressed one expanded; counting ends soon after ``most``."""
    if not is_packed(path):
        return path.stat().st_size
    count = 0
    with open_bytes(path) as file:
        while count <= most and (part := file.read(PART)):
            count += len(part)
    return count


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
