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


@inlined
def step(stack, table, level, atom, first, size):
    """The products of a node's path: its parent's times one atom."""
    for b in range(size):
        stack[level, b] = stack[level - 1, b] * table[atom, first + b]


@inlined
def copy_lanes(table, root, first, size, atoms, stack):
    """The atoms and the root of some rows; in loops, which compile in a tenth of a slice's time."""
    for a in range(len(table)):
        for b in range(size):
            atoms[a, b] = table[a, first + b]
    for b in range(size):
        stack[0, b] = root[first + b]


@native
def evaluate_rows(table, root, depth, atom, columns, weight, max_depth, out):
    """Row-major features: out[b, columns[node]] = weight[node] * product of the path's atoms.

    table : (n_atoms, B); root : (B,); nodes with columns[node] < 0 are only passed through;
    columns rise with the nodes. out : (B, n_components).
    """
    # The atoms of LANES rows side by side: a stride of B would put them all in few cache sets.
    atoms = np.zeros((len(table), LANES), dtype=table.dtype)
    stack = np.zeros((max_depth + 1, LANES), dtype=table.dtype)
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
                if gathered == LANES:
                    if size == LANES:
                        write_transposed(tile, out, first, column)
                    else:
                        write_part(tile, first, size, column, LANES, out)
                    column += LANES
                    gathered = 0
        write_part(tile, first, size, column, gathered, out)


@inlined
def write_part(tile, first, size, column, gathered, out):
    """The last rows or columns, fewer than a tile has."""
    for b in range(size):
        for t in range(gathered):
            out[first + b, column + t] = tile[t, b]


@native
def evaluate_columns(table, root, depth, atom, columns, weight, max_depth, out):
    """Feature-major features: out[columns[node], b]."""
    rows = len(root)
    stack = np.empty((max_depth + 1, rows), dtype=table.dtype)
    for b in range(rows):
        stack[0, b] = root[b]
    for node in range(len(depth)):
        level = depth[node]
        if level > 0:
            step(stack, table, level, atom[node], 0, rows)
        if columns[node] >= 0:
            for b in range(rows):
                out[columns[node], b] = stack[level, b] * weight[node]


@native
def add_squared_norms(table, root, depth, atom, columns, weight, max_depth, out):
    """out[columns[node]] += sum over the rows of the squared feature."""
    atoms = np.zeros((len(table), LANES), dtype=table.dtype)
    stack = np.zeros((max_depth + 1, LANES), dtype=table.dtype)
    sums = np.zeros((len(depth), LANES), dtype=table.dtype)
    for first in range(0, len(root), LANES):
        size = min(LANES, len(root) - first)
        stack[:] = 0.0  # the last rows may be fewer
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


@native
def atom_ranges(coordinates, n_coordinates):
    """[first, last) atom of every coordinate, where atoms of a coordinate stand together."""
    ranges = np.zeros((n_coordinates, 2), dtype=np.int64)
    for a in range(len(coordinates)):
        i = coordinates[a]
        if ranges[i, 1] == 0:
            ranges[i, 0] = a
        ranges[i, 1] = a + 1
    return ranges
