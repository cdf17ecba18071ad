"""How large a table in a file is, and whether it may be read whole."""

from __future__ import annotations

import os
from pathlib import Path

from kernelsieve._files import UNPACKING_ERRORS, expanded_bytes
from kernelsieve.tables.table import TableError

BYTES_PER_BYTE = 6  # of memory, to read a text file whole
UNKNOWN_MEMORY = 2**43  # where the system does not say how much there is: nothing is refused


def memory() -> int:
    """The memory of this machine, in bytes."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError):
        return UNKNOWN_MEMORY


def table_bytes(path: str | os.PathLike[str], most: int) -> int:
    """The size of the table in a file, not compressed; counting ends soon after ``most``.

    A file that cannot be read has size 0: who reads it says what is wrong with it.
    """
    path = Path(path)
    try:
        if path.suffix.lower() == ".parquet":
            return _parquet_bytes(path)
        return expanded_bytes(path, most)
    except (OSError, ValueError, *UNPACKING_ERRORS):
        return 0


def _parquet_bytes(path: Path) -> int:
    """At least eight bytes for each value: repeated values take no space in the file."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        found = parquet.read_metadata(path)
    except pa.ArrowException:
        return 0
    return max(path.stat().st_size, 8 * found.num_rows * found.num_columns)


def refuse_beyond_memory(path: Path, size: int, available: int | None = None) -> None:
    """Raise if a text of this size cannot be read whole."""
    available = memory() if available is None else available
    if BYTES_PER_BYTE * size > available:
        raise TableError(out_of_memory(path))


def out_of_memory(path: Path) -> str:
    """What to say of a file that does not fit in memory."""
    return (
        f"{path} does not fit in memory: use fewer rows or columns, or fit with "
        "sample_rows=100000, which reads a file in batches"
    )
