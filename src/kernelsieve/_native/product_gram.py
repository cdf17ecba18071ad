"""Products of one-dimensional kernels over all pairs of rows, one tile at a time.

Points come scaled: a column's kernel is a function of t = |u - v|. Categorical columns hold codes
instead, and their own rate. Left points have a row for each point, right points a row for each
column, so that the inner loops run over consecutive memory.
"""

from __future__ import annotations

import math

import numpy as np

from kernelsieve._native._options import native, reduction

GAUSSIAN, LAPLACIAN, MATERN32, MATERN52, CATEGORICAL = range(5)
ROOT3, ROOT5 = math.sqrt(3.0), math.sqrt(5.0)
ROWS_AT_ONCE = 8  # share a column of the other side while it is in the nearest cache


@native
def subtract_four(point, right, c, squared, row):
    """row[j] -= the sum of t^2, or of t, over four columns from c on: one pass for four."""
    u, v, w, x = point[c], point[c + 1], point[c + 2], point[c + 3]
    first, second, third, fourth = right[c], right[c + 1], right[c + 2], right[c + 3]
    if squared:
        for j in range(len(row)):
            a, b, e, f = u - first[j], v - second[j], w - third[j], x - fourth[j]
            row[j] -= (a * a + b * b) + (e * e + f * f)
    else:
        for j in range(len(row)):
            row[j] -= (abs(u - first[j]) + abs(v - second[j])) + (
                abs(w - third[j]) + abs(x - fourth[j])
            )


@native
def multiply_exponentials(left, right, families, rates, one, exponent):
    """exponent[i, j] -= t^2, t or the rate of a category; columns are sorted by these families.

    ``one`` is 1 in the float type of the arrays, so that no constant widens the arithmetic.
    """
    for i in range(left.shape[0]):
        row = exponent[i]
        c = 0
        while c < left.shape[1]:
            u, values, family = left[i, c], right[c], families[c]
            if family <= LAPLACIAN and c + 4 <= len(families) and families[c + 3] == family:
                subtract_four(left[i], right, c, family == GAUSSIAN, row)
                c += 4
                continue
            c += 1
            if family == GAUSSIAN:
                for j in range(len(row)):
                    row[j] -= (u - values[j]) * (u - values[j])
            elif family == CATEGORICAL:
                rate = rates[c - 1]
                for j in range(len(row)):
                    row[j] -= rate if u != values[j] else one - one
            else:
                for j in range(len(row)):
                    row[j] -= abs(u - values[j])


@native
def multiply_materns(left, right, families, one, lowest, exponent, factor):
    """exponent[i, j] -= s and factor[i, j] *= the polynomial of Matern's kernels in s.

    Where the exponent ends below ``lowest`` the factor is 0; it may have overflowed there.
    """
    root3, root5, third = ROOT3 * one, ROOT5 * one, one / 3
    for i in range(left.shape[0]):
        row, polynomial = exponent[i], factor[i]
        c = 0
        while c < left.shape[1]:
            rough = families[c] == MATERN32
            if c + 2 <= len(families) and families[c + 1] == families[c]:
                u, v, first, second = left[i, c], left[i, c + 1], right[c], right[c + 1]
                c += 2
                if rough:
                    for j in range(len(row)):
                        s, t = root3 * abs(u - first[j]), root3 * abs(v - second[j])
                        row[j] -= s + t
                        polynomial[j] *= (one + s) * (one + t)
                else:
                    for j in range(len(row)):
                        s, t = root5 * abs(u - first[j]), root5 * abs(v - second[j])
                        row[j] -= s + t
                        polynomial[j] *= (one + s + third * s * s) * (one + t + third * t * t)
                continue
            u, values, root = left[i, c], right[c], root3 if rough else root5
            square = one - one if rough else third
            c += 1
            for j in range(len(row)):
                s = root * abs(u - values[j])
                row[j] -= s
                polynomial[j] *= one + s + square * s * s
        for j in range(len(row)):
            polynomial[j] = polynomial[j] if row[j] >= lowest else one - one


@native
def weigh_gaussian_slopes(u, values, row, weighed):
    """weighed[j] = row[j] times dlog k / dt of exp(-t^2), up to the sign."""
    for j in range(len(row)):
        t = abs(u - values[j])
        weighed[j] = row[j] * (t + t)


@native
def weigh_matern_slopes(u, values, root, square, row, one, weighed):
    """weighed[j] = row[j] times dlog k / dt of Matern's kernels, up to the sign.

    With s = root t the kernel is (1 + s + square s^2) exp(-s), with a square of 0 or 1/3. Two pairs
    share a division, which takes longest.
    """
    half, linear = len(row) // 2, square if square > 0 else one
    first, second = values[:half], values[half : 2 * half]
    row_first, row_second = row[:half], row[half : 2 * half]
    to_first, to_second = weighed[:half], weighed[half : 2 * half]
    for j in range(half):
        s, t = root * abs(u - first[j]), root * abs(u - second[j])
        a, b = one + s + square * s * s, one + t + square * t * t
        share = root / (a * b)
        to_first[j] = row_first[j] * (linear * s + square * s * s) * b * share
        to_second[j] = row_second[j] * (linear * t + square * t * t) * a * share
    if len(row) > 2 * half:
        s = root * abs(u - values[2 * half])
        share = root / (one + s + square * s * s)
        weighed[2 * half] = row[2 * half] * (linear * s + square * s * s) * share


@reduction
def add_slopes(left, right, families, rates, parts_left, parts_right, weights, last, one, sums):
    """sums[p, c] += sum over j < last[i] of weights[i, j] times the slope of log k_c in part p.

    The scaled points of a column are a sum of parts, all of which rise together: t is the sum of
    the parts' differences d_p, and the slope is dlog k / dt times d_p. ``parts_left`` has the shape
    (p, rows, c), ``parts_right`` (p, c, columns); with one part they are the points themselves.
    ``sums`` is float64; a row is summed in the float type of the arrays.
    """
    root3, root5, third, zero = ROOT3 * one, ROOT5 * one, one / 3, one - one
    scratch = np.empty(weights.shape[1], dtype=weights.dtype)
    for start in range(0, left.shape[0], ROWS_AT_ONCE):
        stop = min(start + ROWS_AT_ONCE, left.shape[0])
        for c in range(left.shape[1]):
            values, family = right[c], families[c]
            for i in range(start, stop):
                u, row = left[i, c], weights[i, : last[i]]
                if family == CATEGORICAL:
                    total = zero
                    for j in range(len(row)):
                        total += row[j] if u != values[j] else zero
                    sums[0, c] -= total * rates[c]
                    continue
                weighed = row if family == LAPLACIAN else scratch[: len(row)]
                if family == GAUSSIAN:
                    weigh_gaussian_slopes(u, values, row, weighed)
                elif family == MATERN32:
                    weigh_matern_slopes(u, values, root3, zero, row, one, weighed)
                elif family == MATERN52:
                    weigh_matern_slopes(u, values, root5, third, row, one, weighed)
                for p in range(parts_left.shape[0]):
                    mine, theirs, total = parts_left[p, i, c], parts_right[p, c], zero
                    for j in range(len(row)):
                        total += weighed[j] * abs(mine - theirs[j])
                    sums[p, c] -= total
