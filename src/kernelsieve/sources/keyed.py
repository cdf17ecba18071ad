"""Rows chosen by keyed hashes of their global index: the same rows however the data is chunked."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native.keyed import rows_below
from kernelsieve._random import key_word


def keyed_rows(n_rows: int, size: int, seed: int, key: str, skip: int = 0) -> NDArray[np.int64]:
    """``size`` rows without replacement: those with the smallest keyed hashes, in rising order.

    ``skip`` passes over as many before them (if there are so many), so that two choices under one
    key have no row in common.
    """
    if size >= n_rows:
        return np.arange(n_rows)
    skip = min(skip, n_rows - size)
    count = skip + size
    word = np.uint64(key_word(f"{key}/{seed}"))
    share = (count + 8.0 * np.sqrt(count) + 16.0) / n_rows  # hardly ever too small
    while True:
        bound = np.uint64(2**64 - 1) if share >= 1.0 else np.uint64(share * 2.0**64)
        places = min(n_rows, int(1.1 * share * n_rows) + 64)
        rows, hashes = np.empty(places, dtype=np.int64), np.empty(places, dtype=np.uint64)
        found = rows_below(n_rows, word, bound, rows, hashes)
        if count <= found <= places:
            break
        share *= 1.5 if found < count else 0.9
    smallest = np.argsort(hashes[:found])[skip:count]
    return np.sort(rows[smallest])


def row_hashes(rows: NDArray[np.uint64], seed: int, key: str) -> NDArray[np.uint64]:
    """A 64-bit hash of every global row index (splitmix64), independent for each seed and key."""
    word = np.uint64(key_word(f"{key}/{seed}"))
    with np.errstate(over="ignore"):
        z = (rows + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + word
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
