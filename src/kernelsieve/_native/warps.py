"""Warps of columns: (x - center) / scale, its logarithm, or lines between knots."""

from __future__ import annotations

import numpy as np

from kernelsieve._native._options import native

RAW, IDENTITY, LOG, KNOTS = range(4)  # what is done to a column; RAW leaves it as it is


@native
def between_knots(x, slope, knots, values):
    """The piecewise linear function through the knots; ``slope`` is that beyond the last ones."""
    last = len(knots) - 1
    if x <= knots[0]:
        return values[0] + slope * (x - knots[0])
    if x >= knots[last]:
        return values[last] + slope * (x - knots[last])
    low, high = 0, last
    while high - low > 1:
        middle = (low + high) // 2
        if knots[middle] <= x:
            low = middle
        else:
            high = middle
    step = (values[low + 1] - values[low]) / (knots[low + 1] - knots[low])
    return values[low] + step * (x - knots[low])


@native
def warp_columns(X, columns, kinds, settings, starts, knots, values, out):
    """out[b, j] = rate * warp(X[b, columns[j]]); NaN stays NaN.

    ``settings`` has a row (center, scale, slope, rate) for each column of X, and ``starts`` says
    where its knots are.
    """
    for b in range(X.shape[0]):
        for j in range(len(columns)):
            i = columns[j]
            x = np.float64(X[b, i])
            kind = kinds[i]
            if kind == RAW or np.isnan(x):
                out[b, j] = x
                continue
            center, scale, slope, rate = settings[i]
            if kind == KNOTS:
                here = slice(starts[i], starts[i + 1])
                x = between_knots(x, slope, knots[here], values[here])
            else:
                x = (x - center) / scale
                if kind == LOG:
                    x = np.copysign(np.log1p(abs(x)), x)
            out[b, j] = rate * x
