"""Tables of the atoms x_i^k / sqrt(k!) of a block of points."""

from __future__ import annotations

import numpy as np

from kernelsieve._native._options import native


@native
def power_table(lines, coordinate, order, out):
    """out[a, b] = lines[coordinate[a], b]^order[a] / sqrt(order[a]!).

    Atoms of one coordinate stand together with rising orders, so each starts from the last.
    """
    size = lines.shape[1]
    for a in range(len(coordinate)):
        i = coordinate[a]
        line, source = out[a], lines[i]
        if a > 0 and coordinate[a - 1] == i:
            done = order[a - 1]
            for b in range(size):
                line[b] = out[a - 1, b]
        else:
            done = 1
            for b in range(size):
                line[b] = source[b]
        for k in range(done + 1, order[a] + 1):
            factor = out.dtype.type(1.0 / np.sqrt(k))
            for b in range(size):
                line[b] *= source[b] * factor
