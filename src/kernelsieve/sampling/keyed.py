"""Rows chosen by keyed hashes of their global index: the same rows however the data is chunked."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelsieve._random import key_word

CHUNK = 2**20


def keyed_rows(n_rows: int, size: int, seed: int, key: str, skip: int = 0) -> NDArray[np.int64]:
    """``size`` rows without replacement: those with the smallest keyed hashes, in rising order.

    ``skip`` passes over as many before them (if there are so many), so that two choices under one
    key have no row in common.
    """
    if size >= n_rows:
        return np.arange(n_rows)
    skip = min(skip, n_rows - size)
    count = skip + size
    rows, hashes = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64)
    for start in range(0, n_rows, CHUNK):  # so that no array has the length of the data
        more = np.arange(start, min(start + CHUNK, n_rows))
        rows = np.concatenate([rows, more])
        hashes = np.concatenate([hashes, row_hashes(more.astype(np.uint64), seed, key)])
        if len(rows) > count:
            smallest = np.argpartition(hashes, count - 1)[:count]
            rows, hashes = rows[smallest], hashes[smallest]
    return np.sort(rows[np.argsort(hashes)][skip:])


def row_hashes(rows: NDArray[np.uint64], seed: int, key: str) -> NDArray[np.uint64]:
    """A 64-bit hash of every global row index (splitmix64), independent for each seed and key."""
    word = np.uint64(key_word(f"{key}/{seed}"))
    with np.errstate(over="ignore"):
        z = (rows + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + word
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
