"""Products of one-dimensional kernels over all pairs of rows, one tile at a time.

Points come scaled: a column's kernel is a function of t = |u - v|. Categorical columns hold codes
instead, and their own rate. Left points have a row for each point, right points a row for each
column, so that the inner loops run over consecutive memory.
"""

from __future__ import annotations

import math

from kernelsieve._native._options import native, reduction

GAUSSIAN, LAPLACIAN, MATERN32, MATERN52, CATEGORICAL = range(5)
ROOT3, ROOT5 = math.sqrt(3.0), math.sqrt(5.0)


@native
def multiply_exponentials(left, right, families, rates, one, exponent):
    """exponent[i, j] -= t^2, t or the rate of a category, for families without a polynomial.

    ``one`` is 1 in the float type of the arrays, so that no constant widens the arithmetic.
    """
    root3, root5 = ROOT3 * one, ROOT5 * one
    for i in range(left.shape[0]):
        row = exponent[i]
        for c in range(left.shape[1]):
            u, values, family = left[i, c], right[c], families[c]
            if family == GAUSSIAN:
                for j in range(len(row)):
                    row[j] -= (u - values[j]) * (u - values[j])
            elif family == CATEGORICAL:
                rate = rates[c]
                for j in range(len(row)):
                    row[j] -= rate if u != values[j] else one - one
            else:
                scale = root3 if family == MATERN32 else root5 if family == MATERN52 else one
                for j in range(len(row)):
                    row[j] -= scale * abs(u - values[j])


@native
def multiply_polynomials(left, right, families, one, factor):
    """factor[i, j] *= the polynomials of Matern's kernels; other families have none."""
    root3, root5, third = ROOT3 * one, ROOT5 * one, one / 3
    for i in range(left.shape[0]):
        row = factor[i]
        for c in range(left.shape[1]):
            u, values = left[i, c], right[c]
            if families[c] == MATERN32:
                for j in range(len(row)):
                    row[j] *= one + root3 * abs(u - values[j])
            elif families[c] == MATERN52:
                for j in range(len(row)):
                    s = root5 * abs(u - values[j])
                    row[j] *= one + s + third * s * s


@reduction
def add_slopes(left, right, families, rates, weights, last, one, sums):
    """sums[c] += sum of weights[i, j] dlog k_c / dlog rate_c over j < last[i].

    ``sums`` is float64; a row is summed in the float type of the arrays.
    """
    root3, root5, third = ROOT3 * one, ROOT5 * one, one / 3
    for i in range(left.shape[0]):
        row = weights[i, : last[i]]
        for c in range(left.shape[1]):
            u, values, family = left[i, c], right[c], families[c]
            total = one - one
            if family == GAUSSIAN:
                for j in range(len(row)):
                    total += row[j] * (u - values[j]) * (u - values[j])
                total *= 2
            elif family == LAPLACIAN:
                for j in range(len(row)):
                    total += row[j] * abs(u - values[j])
            elif family == CATEGORICAL:
                for j in range(len(row)):
                    total += row[j] if u != values[j] else one - one
                total *= rates[c]
            elif family == MATERN32:
                for j in range(len(row)):
                    s = root3 * abs(u - values[j])
                    total += row[j] * s * s / (one + s)
            else:
                for j in range(len(row)):
                    s = root5 * abs(u - values[j])
                    total += row[j] * third * s * s * (one + s) / (one + s + third * s * s)
            sums[c] -= total
