"""Sums of products of one-column functions: variances of their parts, and Shapley values."""

from __future__ import annotations

import numpy as np

from kernelsieve._native._options import native, reduction

TILE = 128  # products at once: what a part of the tree needs of them stays in the cache


@native
def gathered(table, members, means, out):
    """out[j] = table[members[j]] - means[j]: a column's functions around their means."""
    for j in range(len(members)):
        out[j] = table[members[j]] - means[j]


@reduction
def add_variances(covariances, left, right, depths, columns, out):
    """out[n] += sum_jl left[n, j] right[n, m] prod of the covariances of node n's columns.

    Nodes stand in the order of a walk through the tree of subsets: ``columns[n]`` joins the columns
    of the last node before n whose depth is smaller. ``covariances`` are of shape (d, B, s),
    ``left`` and ``right`` of shape (nodes, B, outputs) and (nodes, s, outputs).
    """
    deepest = 0
    for n in range(len(depths)):
        deepest = max(deepest, depths[n])
    stack = np.empty((deepest + 1, TILE))
    size, outputs = right.shape[1], right.shape[2]
    for start in range(0, size, TILE):
        width = min(TILE, size - start)
        for j in range(covariances.shape[1]):
            for n in range(len(depths)):
                depth, column = depths[n], columns[n]
                if depth == 1:
                    for m in range(width):
                        stack[1, m] = covariances[column, j, start + m]
                else:
                    for m in range(width):
                        stack[depth, m] = stack[depth - 1, m] * covariances[column, j, start + m]
                for o in range(outputs):
                    total = 0.0
                    for m in range(width):
                        total += stack[depth, m] * right[n, start + m, o]
                    out[n] += total * left[n, j, o]


@reduction
def add_totals(covariances, left_means, right_means, left, right, orders, totals):
    """Add variances by order (1, 2, ...), and of all parts with each column.

    ``covariances`` are of shape (d, B, s), means of shape (d, B) and (d, s), ``left`` and ``right``
    (the weights) of shape (B, outputs) and (s, outputs), ``orders`` of shape (highest + 2,) with
    the sum of all orders last, ``totals`` of shape (d,).
    """
    d, block, size = covariances.shape
    outputs, highest = right.shape[1], len(orders) - 2
    before, after = np.empty((d + 1, TILE)), np.empty((d + 1, TILE))
    by_order = np.empty((highest + 1, TILE))
    both = np.empty(TILE)
    for start in range(0, size, TILE):
        width = min(TILE, size - start)
        for j in range(block):
            for m in range(width):
                total = 0.0
                for o in range(outputs):
                    total += left[j, o] * right[start + m, o]
                both[m] = total
                before[0, m] = after[d, m] = 1.0
                by_order[0, m] = 1.0
                for p in range(1, highest + 1):
                    by_order[p, m] = 0.0
            for i in range(d):
                mean = left_means[i, j]
                for m in range(width):
                    covariance = covariances[i, j, start + m]
                    constant = mean * right_means[i, start + m]
                    before[i + 1, m] = before[i, m] * (constant + covariance)
                    for p in range(highest, 0, -1):
                        by_order[p, m] = by_order[p, m] * constant + by_order[p - 1, m] * covariance
                    by_order[0, m] *= constant
            for i in range(d - 1, -1, -1):
                mean, total = left_means[i, j], 0.0
                for m in range(width):
                    covariance = covariances[i, j, start + m]
                    total += both[m] * covariance * before[i, m] * after[i + 1, m]
                    constant = mean * right_means[i, start + m]
                    after[i, m] = after[i + 1, m] * (constant + covariance)
                totals[i] += total
            for p in range(1, highest + 1):
                total = 0.0
                for m in range(width):
                    total += both[m] * by_order[p, m]
                orders[p] += total
            total = 0.0
            for m in range(width):
                total += both[m] * (before[d, m] - by_order[0, m])
            orders[highest + 1] += total


@reduction
def shapley_values(parts, means, weights, nodes, node_weights, out):
    """out[i, o] = sum_j w_jo t_ji int_0^1 prod_(k != i) (c_jk + q t_jk) dq, for one row.

    ``parts`` (t) and ``means`` (c) are of shape (d, s), ``weights`` of shape (s, outputs); nodes
    and their weights integrate a polynomial of degree d - 1 exactly.
    """
    d, size = parts.shape
    before, after = np.empty((d + 1, TILE)), np.empty(TILE)
    integral = np.empty((d, TILE))
    for start in range(0, size, TILE):
        width = min(TILE, size - start)
        integral[:] = 0.0
        for g in range(len(nodes)):
            q = nodes[g]
            for m in range(width):
                before[0, m] = 1.0
                after[m] = node_weights[g]
            for i in range(d):
                for m in range(width):
                    before[i + 1, m] = before[i, m] * (
                        means[i, start + m] + q * parts[i, start + m]
                    )
            for i in range(d - 1, -1, -1):
                for m in range(width):
                    integral[i, m] += before[i, m] * after[m]
                    after[m] *= means[i, start + m] + q * parts[i, start + m]
        for i in range(d):
            for o in range(weights.shape[1]):
                total = 0.0
                for m in range(width):
                    total += integral[i, m] * parts[i, start + m] * weights[start + m, o]
                out[i, o] += total


@reduction
def shapley_interactions(parts, means, weights, nodes, node_weights, out):
    """out[i, k, o] for i < k: the same with t_ji t_jk, and the integral over all other columns."""
    d, size = parts.shape
    after, middle = np.empty((d + 1, TILE)), np.empty(TILE)
    before = np.empty(TILE)
    for start in range(0, size, TILE):
        width = min(TILE, size - start)
        for g in range(len(nodes)):
            q = nodes[g]
            for m in range(width):
                after[d, m] = 1.0
                before[m] = node_weights[g]
            for i in range(d - 1, -1, -1):
                for m in range(width):
                    after[i, m] = after[i + 1, m] * (means[i, start + m] + q * parts[i, start + m])
            for i in range(d - 1):
                for m in range(width):
                    middle[m] = before[m] * parts[i, start + m]
                for k in range(i + 1, d):
                    for o in range(weights.shape[1]):
                        total = 0.0
                        for m in range(width):
                            total += (
                                middle[m]
                                * parts[k, start + m]
                                * after[k + 1, m]
                                * weights[start + m, o]
                            )
                        out[i, k, o] += total
                    for m in range(width):
                        middle[m] *= means[k, start + m] + q * parts[k, start + m]
                for m in range(width):
                    before[m] *= means[i, start + m] + q * parts[i, start + m]
