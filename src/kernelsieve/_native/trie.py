"""Evaluation of products along a prefix tree: each node is its parent times one atom (DESIGN 4.9).

Nodes stand in depth-first order, and so do the output columns, so a stack of the current path is
all that is alive: it stays in the first-level cache.
"""

from __future__ import annotations

import numpy as np

from kernelsieve._native._options import inlined, native

TILE = 16  # columns gathered before they are written row by row: a cache line of float32
ROWS = 32  # rows evaluated at once: the paths and the tile stay in the first-level cache


@inlined
def step(stack, table, level, atom, first, size):
    """The products of a node's path: its parent's times one atom."""
    for b in range(size):
        stack[level, b] = stack[level - 1, b] * table[atom, first + b]


@native
def write_tile(tile, first, size, column, out):
    """out[first + b, column + t] = tile[t, b], four by four: the compiler makes shuffles of it."""
    whole = size - size % 4
    for b in range(0, whole, 4):
        for t in range(0, TILE, 4):
            a0, a1, a2, a3 = tile[t, b], tile[t, b + 1], tile[t, b + 2], tile[t, b + 3]
            b0, b1 = tile[t + 1, b], tile[t + 1, b + 1]
            b2, b3 = tile[t + 1, b + 2], tile[t + 1, b + 3]
            c0, c1 = tile[t + 2, b], tile[t + 2, b + 1]
            c2, c3 = tile[t + 2, b + 2], tile[t + 2, b + 3]
            d0, d1 = tile[t + 3, b], tile[t + 3, b + 1]
            d2, d3 = tile[t + 3, b + 2], tile[t + 3, b + 3]
            row, place = first + b, column + t
            out[row, place], out[row, place + 1] = a0, b0
            out[row, place + 2], out[row, place + 3] = c0, d0
            out[row + 1, place], out[row + 1, place + 1] = a1, b1
            out[row + 1, place + 2], out[row + 1, place + 3] = c1, d1
            out[row + 2, place], out[row + 2, place + 1] = a2, b2
            out[row + 2, place + 2], out[row + 2, place + 3] = c2, d2
            out[row + 3, place], out[row + 3, place + 1] = a3, b3
            out[row + 3, place + 2], out[row + 3, place + 3] = c3, d3
    for b in range(whole, size):
        for t in range(TILE):
            out[first + b, column + t] = tile[t, b]


@native
def evaluate_rows(table, root, depth, atom, columns, weight, max_depth, out):
    """Row-major features: out[b, columns[node]] = weight[node] * product of the path's atoms.

    table : (n_atoms, B); root : (B,); nodes with columns[node] < 0 are only passed through;
    columns rise with the nodes. out : (B, n_components).
    """
    stack = np.empty((max_depth + 1, ROWS), dtype=table.dtype)
    tile = np.empty((TILE, ROWS), dtype=out.dtype)
    for first in range(0, len(root), ROWS):
        size = min(ROWS, len(root) - first)
        column = 0
        gathered = 0
        stack[0, :size] = root[first : first + size]
        for node in range(len(depth)):
            level = depth[node]
            if level > 0 and columns[node] >= 0:
                for b in range(size):
                    product = stack[level - 1, b] * table[atom[node], first + b]
                    stack[level, b] = product
                    tile[gathered, b] = product * weight[node]
            elif level > 0:
                step(stack, table, level, atom[node], first, size)
            else:
                for b in range(size):
                    tile[gathered, b] = stack[0, b] * weight[node]
            if columns[node] >= 0:
                gathered += 1
                if gathered == TILE:
                    write_tile(tile, first, size, column, out)
                    column += TILE
                    gathered = 0
        for b in range(size):
            for t in range(gathered):
                out[first + b, column + t] = tile[t, b]


@native
def evaluate_columns(table, root, depth, atom, columns, weight, max_depth, out):
    """Feature-major features: out[columns[node], b]."""
    rows = len(root)
    stack = np.empty((max_depth + 1, rows), dtype=table.dtype)
    stack[0, :] = root
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
    rows = len(root)
    stack = np.empty((max_depth + 1, rows), dtype=table.dtype)
    lanes = np.empty(16, dtype=table.dtype)  # sums side by side: one chain would wait for itself
    stack[0, :] = root
    for node in range(len(depth)):
        level = depth[node]
        if level > 0:
            step(stack, table, level, atom[node], 0, rows)
        if columns[node] >= 0:
            lanes[:] = 0.0
            whole = rows - rows % 16
            for first in range(0, whole, 16):
                for b in range(16):
                    lanes[b] += stack[level, first + b] * stack[level, first + b]
            total = np.float64(0.0)
            for b in range(whole, rows):
                total += stack[level, b] * stack[level, b]
            for b in range(16):
                total += lanes[b]
            out[columns[node]] += total * weight[node] * weight[node]
