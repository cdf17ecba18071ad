"""Keyed hashes of row numbers (splitmix64), one after the other: no array has the data's length."""

from __future__ import annotations

import numpy as np

from kernelsieve._native._options import native


@native
def rows_below(n_rows, word, bound, rows, hashes):
    """The rows whose hash is at most ``bound``, with their hashes; returns how many there are.

    Only as many as ``rows`` has places for are written.
    """
    found = 0
    for row in range(n_rows):
        z = (np.uint64(row) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + word
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
        if z <= bound:
            if found < len(rows):
                rows[found] = row
                hashes[found] = z
            found += 1
    return found
