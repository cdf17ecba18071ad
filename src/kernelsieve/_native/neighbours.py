"""Nearest points of a query, by absolute or squared differences, and kriging from them."""

from __future__ import annotations

import math

import numpy as np

from kernelsieve._native._options import native, reduction

STRIDE = 8  # coordinates before the first look at whether a point is too far; then twice as many
SAFETY = 1.0 - 1e-5  # of distances from boxes, which are rounded in another order


@reduction
def partial_distance(point, query, first, last, squared):
    """The sum of absolute or squared differences over some coordinates, in the arrays' type."""
    # Slices, because an index that counts from 0 cannot be negative: then vectors are made.
    some, other = point[first:last], query[first:last]
    total = some[0] - some[0]
    if squared:
        for c in range(len(some)):
            difference = some[c] - other[c]
            total += difference * difference
        return total
    for c in range(len(some)):
        total += abs(some[c] - other[c])
    return total


@native
def distance_below(point, query, limit, squared):
    """The distance of two points, or a part of it that exceeds ``limit`` already."""
    d, last, stride = len(query), min(STRIDE, len(query)), STRIDE
    total = partial_distance(point, query, 0, last, squared)
    while last < d and total <= limit:
        stride *= 2
        first, last = last, min(last + stride, d)
        total += partial_distance(point, query, first, last, squared)
    return total


@reduction
def distance_to_box(low, high, query, squared):
    """The sum of the coordinates' distances from a box, or of their squares."""
    total = 0.0
    for c in range(len(query)):
        outside = max(low[c] - query[c], query[c] - high[c], 0.0)
        total += outside * outside if squared else outside
    return total


@native
def nearest_points(
    points, starts, low, high, queries, left_out, squared, places, distances, looked_at
):
    """The nearest points of each query, nearest first; of equally far ones those that come first.

    Points ``starts[l]`` to ``starts[l + 1]`` lie in the box from ``low[l]`` to ``high[l]``; boxes
    are looked at from the nearest on, until they are farther than what was found.
    ``left_out[i]`` is the number of a point that query i must not find, or -1. Distances are sums
    of absolute differences, or if ``squared`` of squares, whose roots are returned.
    ``places`` and ``distances`` have the shape (n_queries, k), and there are more than k points.
    ``looked_at[i]`` counts the boxes and points whose distances from query i were needed.
    """
    k = places.shape[1]
    bounds = np.empty(len(low))
    for i in range(queries.shape[0]):
        query, found, near = queries[i], places[i], distances[i]
        near[:] = np.inf
        looked_at[i] = len(low)
        for box in range(len(low)):
            bounds[box] = distance_to_box(low[box], high[box], query, squared)
        for box in np.argsort(bounds):
            if SAFETY * bounds[box] > near[k - 1]:
                break
            looked_at[i] += starts[box + 1] - starts[box]
            for j in range(starts[box], starts[box + 1]):
                if j == left_out[i]:
                    continue
                distance = distance_below(points[j], query, near[k - 1], squared)
                last = near[k - 1]
                if distance > last or (distance == last and j > found[k - 1]):
                    continue
                slot = k - 1
                while slot > 0 and (
                    near[slot - 1] > distance
                    or (near[slot - 1] == distance and found[slot - 1] > j)
                ):
                    near[slot], found[slot] = near[slot - 1], found[slot - 1]
                    slot -= 1
                near[slot], found[slot] = distance, j
        if squared:
            for slot in range(k):
                near[slot] = math.sqrt(near[slot])


@native
def pair_distances(points, places, squared, out):
    """out[i, a, b] = the distance of points places[i, a] and places[i, b], for b <= a."""
    for i in range(places.shape[0]):
        for a in range(places.shape[1]):
            for b in range(a):
                first, second = points[places[i, a]], points[places[i, b]]
                total = partial_distance(first, second, 0, len(first), squared)
                out[i, a, b] = math.sqrt(total) if squared else total
            out[i, a, a] = 0.0


@native
def krige(between, near, diagonal, rate, values, means, totals, explained):
    """The mean at each query given values at its neighbours, and the part of the variance known.

    The covariance of two points is exp(-rate * distance), and ``diagonal`` (n, k) is added for the
    neighbours. ``values`` has the shape (n, k, m), ``means`` (n, m); ``totals`` are the sums of the
    neighbours' weights, of shape (n,) as ``explained``.
    """
    n, k = near.shape
    factor, weights = np.empty((k, k)), np.empty(k)
    for i in range(n):
        for a in range(k):
            for b in range(a + 1):
                total = math.exp(-rate * between[i, a, b])
                if a == b:
                    total += diagonal[i, a]
                for c in range(b):
                    total -= factor[a, c] * factor[b, c]
                factor[a, b] = total / factor[b, b] if b < a else math.sqrt(max(total, 1e-12))
        known = 0.0
        for a in range(k):
            total = math.exp(-rate * near[i, a])
            for c in range(a):
                total -= factor[a, c] * weights[c]
            weights[a] = total / factor[a, a]
            known += weights[a] * weights[a]
        explained[i] = known
        for back in range(k):
            a = k - 1 - back
            total = weights[a]
            for c in range(a + 1, k):
                total -= factor[c, a] * weights[c]
            weights[a] = total / factor[a, a]
        totals[i] = weights.sum()
        for output in range(values.shape[2]):
            total = 0.0
            for a in range(k):
                total += weights[a] * values[i, a, output]
            means[i, output] = total
