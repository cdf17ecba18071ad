"""Sums of products over subsets of columns, for all entries of a tile of kernel values.

Subsets stand in the order of a walk through the tree of their prefixes: ``columns[n]`` joins the
columns of the last node before n whose depth is smaller. A product is then one multiplication.
"""

from __future__ import annotations

import numpy as np

from kernelsieve._native._options import native, reduction

TILE = 256  # entries at once: the products of a branch stay in the cache


@native
def centre(left, right, scale, tile):
    """tile[i, j] = scale (tile[i, j] - left[i] right[j]): a kernel without its mean."""
    for i in range(tile.shape[0]):
        u, row = left[i], tile[i]
        for j in range(len(row)):
            row[j] = scale * (row[j] - u * right[j])


@native
def look_up(table, left, right, tile):
    """tile[i, j] = table[left[i], right[j]]: a kernel of columns with few values."""
    for i in range(tile.shape[0]):
        values, row = table[left[i]], tile[i]
        for j in range(len(row)):
            row[j] = values[right[j]]


@native
def add_subsets(factors, depths, columns, weights, out):
    """out[i, j] += sum_n weights[n] prod of the factors of node n's columns.

    ``factors`` are of shape (d, rows, m), ``out`` of shape (rows, m).
    """
    deepest = 0
    for n in range(len(depths)):
        deepest = max(deepest, depths[n])
    stack = np.empty((deepest + 1, TILE))
    for i in range(out.shape[0]):
        for start in range(0, out.shape[1], TILE):
            width = min(TILE, out.shape[1] - start)
            total = out[i, start : start + width]
            for n in range(len(depths)):
                depth, weight = depths[n], weights[n]
                factor = factors[columns[n], i, start : start + width]
                before, product = stack[depth - 1], stack[depth]
                if depth == 1:
                    for j in range(width):
                        product[j] = factor[j]
                        total[j] += weight * factor[j]
                elif n + 1 < len(depths) and depths[n + 1] > depth:
                    for j in range(width):
                        product[j] = before[j] * factor[j]
                        total[j] += weight * product[j]
                else:  # a leaf, whose product nobody needs
                    for j in range(width):
                        total[j] += weight * (before[j] * factor[j])


@reduction
def add_pulls(factors, depths, columns, first, second, out):
    """out[0, n] += <first, P_n> and out[1, n] += <second, P_n>, P_n the products of node n.

    ``factors`` are of shape (d, rows, m), ``first`` and ``second`` of shape (rows, m).
    """
    deepest = 0
    for n in range(len(depths)):
        deepest = max(deepest, depths[n])
    stack = np.empty((deepest + 1, TILE))
    for i in range(first.shape[0]):
        for start in range(0, first.shape[1], TILE):
            width = min(TILE, first.shape[1] - start)
            one, other = first[i, start : start + width], second[i, start : start + width]
            for n in range(len(depths)):
                depth = depths[n]
                factor = factors[columns[n], i, start : start + width]
                before, product = stack[depth - 1], stack[depth]
                a, b = 0.0, 0.0
                if depth == 1:
                    for j in range(width):
                        product[j] = factor[j]
                        a += one[j] * factor[j]
                        b += other[j] * factor[j]
                else:
                    for j in range(width):
                        value = before[j] * factor[j]
                        product[j] = value
                        a += one[j] * value
                        b += other[j] * value
                out[0, n] += a
                out[1, n] += b
