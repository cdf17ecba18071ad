"""Memory limits: an error says what would fit, before an allocation that cannot succeed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

UNCHECKED = 2**27  # bytes: below, looking up what is free is not worth the time
GIB = 2.0**30
PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


def available() -> int | None:
    """Bytes that this process can still allocate; None if the system does not say."""
    known = [size for size in (_free_by_system(), *_free_by_cgroup()) if size is not None]
    return min(known, default=None)


def check_memory(n_bytes: float, what: str, way_out: str) -> None:
    """Raise MemoryError if ``what``, which needs ``n_bytes``, does not fit."""
    if n_bytes <= UNCHECKED:
        return
    free = available()
    if free is not None and n_bytes > free:
        raise MemoryError(
            f"{what} needs {n_bytes / GIB:,.1f} GiB, but {free / GIB:,.1f} GiB are available: "
            f"{way_out}"
        )


def check_matrix(n_rows: int, n_columns: int, dtype: Any, what: str, way_out: str) -> None:
    """Refuse a matrix that does not fit; "{fits}" in ``way_out`` is the width that would."""
    row_bytes = float(n_rows) * np.dtype(dtype).itemsize
    _check_count(n_columns, row_bytes * n_columns, 1.0 / row_bytes, 1.0, what, way_out)


def check_square(size: int, entry_bytes: int, what: str, way_out: str) -> None:
    """Refuse square matrices that do not fit; "{fits}" is the size that would.

    ``entry_bytes`` are those of all matrices together.
    """
    needed = entry_bytes * float(size) ** 2
    _check_count(size, needed, 1.0 / entry_bytes, 0.5, what, way_out)


def _check_count(
    count: int, needed: float, per_byte: float, power: float, what: str, way_out: str
) -> None:
    if needed <= UNCHECKED:
        return
    fits = min(count, int(((available() or 0) * per_byte) ** power))
    check_memory(needed, what, way_out.format(fits=f"{fits:,}"))


def _free_by_system() -> int | None:
    """Memory available without swapping; all of the machine's if the system does not say."""
    found = _number(PROC / "meminfo", "MemAvailable:")
    if found is not None:
        return 1024 * found
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on this system
        return None


def _free_by_cgroup() -> Iterator[int | None]:
    """What the limits of a container leave; cached files do not count as used."""
    for folder, limit, used in (
        *((group, "memory.max", "memory.current") for group in _groups()),
        (CGROUP / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        highest, now = _number(folder / limit), _number(folder / used)
        if highest is not None and now is not None:
            cached = _number(folder / "memory.stat", "inactive_file") or 0
            yield max(0, highest - now + cached)


def _groups() -> list[Path]:
    """The control group of this process and its ancestors."""
    try:
        lines = (PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    names = [line.removeprefix("0::").strip("/") for line in lines if line.startswith("0::")]
    folders = [CGROUP / name for name in names]
    return [group for folder in folders for group in (folder, *folder.parents) if _inside(group)]


def _inside(group: Path) -> bool:
    return group == CGROUP or CGROUP in group.parents


def _number(path: Path, name: str = "") -> int | None:
    """Return the first number in a file, or the one after a name; None if there is none."""
    try:
        words = path.read_text().split()
    except OSError:
        return None
    place = (words.index(name) + 1 if name in words else len(words)) if name else 0
    return int(words[place]) if place < len(words) and words[place].isdigit() else None
