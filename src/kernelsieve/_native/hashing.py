"""Keyed hashes of row and column numbers: one splitmix64 for all."""

from __future__ import annotations

import numpy as np

from kernelsieve._native._options import inlined, native


@inlined
def splitmix64(number, word):
    """Hash a number >= 0 to 64 bits; another word gives an independent hash."""
    z = (np.uint64(number) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + word
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@native
def hash_numbers(numbers, word, out):
    """out[i] = splitmix64(numbers[i], word)."""
    for i in range(len(numbers)):
        out[i] = splitmix64(numbers[i], word)


@native
def rows_below(n_rows, word, bound, rows, hashes):
    """Write the rows whose hash is at most ``bound``, with their hashes, and return their count.

    Only as many as ``rows`` has places for are written; no array has the data's length.
    """
    found = 0
    for row in range(n_rows):
        z = splitmix64(row, word)
        if z <= bound:
            if found < len(rows):
                rows[found] = row
                hashes[found] = z
            found += 1
    return found


@native
def coordinate_word(i):
    """A pseudo-random 64-bit word for coordinate i."""
    return splitmix64(i, np.uint64(0))


@native
def coordinate_words(count):
    """The words of the coordinates 0, 1, ..."""
    words = np.empty(count, dtype=np.uint64)
    for i in range(count):
        words[i] = coordinate_word(i)
    return words
