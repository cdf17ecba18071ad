"""Named random streams: one seed in, one independent generator per purpose.

A stream is keyed by what it is for (and by a block or feature index), never by the order in which
streams are asked for, so results do not depend on threads, chunks or workers.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from kernelsieve._native.hashing import hash_numbers, rows_below


def root_seed(random_state: Any) -> int:
    """Return the integer from which all streams of a fit derive."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def key_word(key: str | int) -> int:
    """Hash a key to 64 bits, the same in every process (unlike ``hash``)."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def stream(seed: int, *keys: str | int) -> np.random.Generator:
    """Return the generator that ``keys`` name under ``seed``.

    Examples
    --------
    >>> a, b = stream(0, "anchors"), stream(0, "anchors")
    >>> bool(a.random() == b.random())
    True
    """
    words = [key_word(key) for key in keys]
    spawn_key = [half for word in words for half in (word & 0xFFFFFFFF, word >> 32)]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=spawn_key)))


def keyed_rows(n_rows: int, size: int, seed: int, key: str, skip: int = 0) -> NDArray[np.int64]:
    """Draw ``size`` rows without replacement: those with the smallest keyed hashes.

    The same rows come out however the data is chunked. ``skip`` leaves out the first rows in the
    order of their hashes, as far as there are enough, so that two draws under one key have no row
    in common. Row numbers are in ascending order.
    """
    if size >= n_rows:
        return np.arange(n_rows)
    skip = min(skip, n_rows - size)
    count = skip + size
    word = np.uint64(key_word(f"{key}/{seed}"))
    share = (count + 8.0 * np.sqrt(count) + 16.0) / n_rows  # rarely too small
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
    """Hash row numbers to 64 bits, independently for each seed and key."""
    hashes = np.empty(len(rows), dtype=np.uint64)
    hash_numbers(rows, np.uint64(key_word(f"{key}/{seed}")), hashes)
    return hashes
