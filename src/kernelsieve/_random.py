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

BLOCK = 2**15  # rows that are hashed at once: they stay in the cache


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


def splitmix64(numbers: NDArray[np.uint64], word: np.uint64) -> NDArray[np.uint64]:
    """Hash numbers to 64 bits; another word gives independent hashes."""
    z = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + word
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def coordinate_words(count: int) -> NDArray[np.uint64]:
    """A fixed 64-bit word for each of the coordinates 0, 1, ..."""
    return splitmix64(np.arange(count, dtype=np.uint64), np.uint64(0))


def row_hashes(rows: NDArray[Any], seed: int, key: str) -> NDArray[np.uint64]:
    """Hash row numbers to 64 bits, independently for each seed and key."""
    return splitmix64(rows.astype(np.uint64), np.uint64(key_word(f"{key}/{seed}")))


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
    share = (count + 8.0 * np.sqrt(count) + 16.0) / n_rows  # rarely too small
    while True:
        bound = np.uint64(2**64 - 1) if share >= 1.0 else np.uint64(share * 2.0**64)
        rows, hashes = _rows_below(n_rows, seed, key, bound)
        if len(rows) >= count:
            return np.sort(rows[np.argsort(hashes)[skip:count]])
        share *= 1.5


def _rows_below(
    n_rows: int, seed: int, key: str, bound: np.uint64
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """The rows whose hash is at most ``bound``, and their hashes; a block at a time."""
    found = []
    for start in range(0, n_rows, BLOCK):
        rows = np.arange(start, min(start + BLOCK, n_rows))
        hashes = row_hashes(rows, seed, key)
        low = hashes <= bound
        found.append((rows[low], hashes[low]))
    rows, hashes = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return rows, hashes
