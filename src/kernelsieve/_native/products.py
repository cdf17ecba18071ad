"""Evaluation of products: the atoms of a block of rows, then every node of a prefix tree.

Nodes stand in depth-first order, and so do the output columns, so a stack of the current path is
all that is alive: it stays in the first-level cache. See docs/why-the-engine.md,
"Evaluation".
"""

from __future__ import annotations

import numpy as np

from kernelsieve._native._options import inlined, native
from kernelsieve._native.lanes import LANES, add_lane_squares, multiply_lanes, write_transposed


@native
def power_table(lines, coordinate, order, out):
    """out[a, b] = lines[coordinate[a], b]^order[a] / sqrt(order[a]!).

    Atoms of one coordinate stand together with rising orders, so each starts from the last.
    """
    size = lines.shape[1]
    for a in range(len(coordinate)):
        i = coordinate[a]
        if a > 0 and coordinate[a - 1] == i:
            done = order[a - 1]
            for b in range(size):
                out[a, b] = out[a - 1, b]
        else:
            done = 1
            for b in range(size):
                out[a, b] = lines[i, b]
        for k in range(done + 1, order[a] + 1):
            factor = out.dtype.type(1.0 / np.sqrt(k))
            for b in range(size):
                out[a, b] *= lines[i, b] * factor


@inlined
def copy_lanes(table, root, first, size, atoms, stack):
    """The atoms and the root of ``size`` rows, and 0 in the lanes beyond them.

    In loops, which compile in a tenth of a slice's time.
    """
    for a in range(len(table)):
        for b in range(size):
            atoms[a, b] = table[a, first + b]
        for b in range(size, LANES):
            atoms[a, b] = 0.0
    for b in range(size):
        stack[0, b] = root[first + b]
    for b in range(size, LANES):
        stack[0, b] = 0.0


@native
def evaluate_rows(table, root, depth, atom, columns, weight, max_depth, out):
    """Row-major features: out[b, columns[node]] = weight[node] * product of the path's atoms.

    table : (n_atoms, B); root : (B,); nodes with columns[node] < 0 are only passed through;
    columns rise with the nodes. out : (B, n_components).
    """
    # The atoms of LANES rows side by side: a stride of B would put them all in few cache sets.
    atoms = np.empty((len(table), LANES), dtype=table.dtype)
    stack = np.empty((max_depth + 1, LANES), dtype=table.dtype)
    tile = np.empty((LANES, LANES), dtype=table.dtype)
    for first in range(0, len(root), LANES):
        size = min(LANES, len(root) - first)
        copy_lanes(table, root, first, size, atoms, stack)
        column = 0
        gathered = 0
        for node in range(len(depth)):
            if depth[node] > 0:
                multiply_lanes(stack, depth[node], atoms, atom[node], tile, gathered, weight[node])
            else:
                for b in range(LANES):
                    tile[gathered, b] = stack[0, b] * weight[node]
            if columns[node] >= 0:
                gathered += 1
            if gathered == LANES and size == LANES:
                write_transposed(tile, out, first, column)
            elif gathered == LANES or node == len(depth) - 1:
                for b in range(size):  # the last rows or columns, fewer than a tile has
                    for t in range(gathered):
                        out[first + b, column + t] = tile[t, b]
            else:
                continue
            column += gathered
            gathered = 0


@native
def add_squared_norms(table, root, depth, atom, columns, weight, max_depth, out):
    """out[columns[node]] += sum over the rows of the squared feature."""
    atoms = np.empty((len(table), LANES), dtype=table.dtype)
    stack = np.empty((max_depth + 1, LANES), dtype=table.dtype)
    sums = np.empty((len(depth), LANES), dtype=table.dtype)
    for node in range(len(depth)):
        for b in range(LANES):
            sums[node, b] = 0.0
    for first in range(0, len(root), LANES):
        size = min(LANES, len(root) - first)
        copy_lanes(table, root, first, size, atoms, stack)
        for b in range(LANES):
            sums[0, b] += stack[0, b] * stack[0, b]
        for node in range(1, len(depth)):
            add_lane_squares(stack, depth[node], atoms, atom[node], sums, node)
    for node in range(len(depth)):
        if columns[node] >= 0:
            total = np.float64(0.0)
            for b in range(LANES):
                total += sums[node, b]
            out[columns[node]] += total * weight[node] * weight[node]
