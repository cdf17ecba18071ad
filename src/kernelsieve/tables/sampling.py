"""A random sample of a table that need not fit in memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._random import stream
from kernelsieve.tables.readers import read_batches
from kernelsieve.tables.sizes import BYTES_PER_BYTE, memory, table_bytes
from kernelsieve.tables.table import Table, TableError

LARGE_FILE = 2**28  # bytes


def too_large(path: str | os.PathLike[str]) -> bool:
    """Whether a file should be read in batches: it is large, or takes half of the memory.

    A compressed file is judged by what it expands to.
    """
    most = min(LARGE_FILE, memory() // (2 * BYTES_PER_BYTE))
    return table_bytes(path, most) > most


def sampled(
    path: str | os.PathLike[str],
    n_rows: int,
    seed: int,
    progress: Callable[[str], None],
    text: dict[str, Any],
) -> tuple[Table, int]:
    """Read a file once, keep up to ``n_rows`` random rows, and count all of them.

    Every row gets a random key, and those with the smallest keys are kept.
    """
    kept: Table | None = None
    keys = np.empty(0)
    total = 0
    for number, table in enumerate(read_batches(path, **text)):
        total += table.n_rows
        progress(f"reading: {total:,} rows")
        new = stream(seed, "sample of rows", number).random(table.n_rows)
        few = np.sort(np.argsort(new, kind="stable")[:n_rows])
        kept = table.take(few) if kept is None else joined(kept, table.take(few))
        keys = np.append(keys, new[few])
        best = np.sort(np.argsort(keys, kind="stable")[:n_rows])
        kept, keys = kept.take(best), keys[best]
    if kept is None:
        raise TableError(f"{path} has no rows")
    return kept, total


def joined(first: Table, second: Table) -> Table:
    """The rows of two tables with the same columns."""
    columns = {name: _joined(values, second.column(name)) for name, values in first.columns.items()}
    matrix = None if first.matrix is None else sp.vstack([first.matrix, second.matrix], "csr")
    return Table(first.where, columns, matrix, first.readings)


def _joined(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    if first.dtype.kind != second.dtype.kind:  # one of them is empty, or holds texts and numbers
        first, second = (_as_texts(values) for values in (first, second))
    return np.concatenate([first, second])


def _as_texts(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind != "f":
        return values
    return np.array([None if np.isnan(v) else f"{v:g}" for v in values.tolist()], dtype=object)
