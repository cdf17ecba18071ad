"""The multisets that are nonzero on some sparse row, listed while they are few."""

from __future__ import annotations

import numpy as np

from kernelsieve._native._options import native


@native
def next_multiset(positions, degree, width):
    """Step to the next non-decreasing sequence of positions < width; False at the end."""
    slot = degree - 1
    while slot >= 0 and positions[slot] == width - 1:
        slot -= 1
    if slot < 0:
        return False
    value = positions[slot] + 1
    for later in range(slot, degree):
        positions[later] = value
    return True


@native
def list_nonzero(indptr, indices, words, wanted, limit, table, ends, coordinates, orders):
    """Multisets of the wanted degrees over the columns of single rows; -1 if more than ``limit``.

    ``words`` are those of the coordinates. wanted[w] says whether degree w counts; degree 0 is the
    caller's. ``table`` is a hash set in which 0 is free.
    """
    mask = np.uint64(len(table) - 1)
    positions = np.empty(len(wanted), dtype=np.int64)
    found = 0
    atoms = 0
    for row in range(len(indptr) - 1):
        start, width = indptr[row], indptr[row + 1] - indptr[row]
        if width == 0:
            continue
        for degree in range(1, len(wanted)):
            if not wanted[degree]:
                continue
            positions[:degree] = 0
            going = True
            while going:
                word = np.uint64(0)
                for b in range(degree):
                    word += words[indices[start + positions[b]]]
                place = (word ^ (word >> np.uint64(32))) & mask
                while table[place] != 0 and table[place] != word:
                    place = (place + np.uint64(1)) & mask
                if table[place] == 0:
                    if found == limit:
                        return -1
                    table[place] = word
                    for b in range(degree):
                        if b > 0 and positions[b] == positions[b - 1]:
                            orders[atoms - 1] += 1
                        else:
                            coordinates[atoms] = indices[start + positions[b]]
                            orders[atoms] = 1
                            atoms += 1
                    ends[found] = atoms
                    found += 1
                going = next_multiset(positions, degree, width)
    return found
