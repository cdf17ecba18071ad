"""What one pass keeps of rows and columns: sums of squares, in float64, and counts of values."""

from __future__ import annotations

import numpy as np

from kernelsieve._native._options import native, reduction


@reduction
def squared_row_norms(X, center, out):
    """out[i] = |x_i - center|^2; differences are taken in X's float type."""
    for i in range(X.shape[0]):
        total = np.float64(0.0)
        for j in range(X.shape[1]):
            difference = np.float64(X[i, j] - center[j])
            total += difference * difference
        out[i] = total


@native
def add_column_squares(X, center, out):
    """out[j] += sum over the rows of (x_ij - center_j)^2."""
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            difference = np.float64(X[i, j] - center[j])
            out[j] += difference * difference


@reduction
def csr_squared_norms(data, indptr, out):
    """out[i] = |x_i|^2 of CSR rows; ``indptr`` may begin anywhere."""
    for i in range(len(indptr) - 1):
        total = np.float64(0.0)
        for k in range(indptr[i], indptr[i + 1]):
            value = np.float64(data[k])
            total += value * value
        out[i] = total


@native
def add_csr_column_squares(data, indices, indptr, out):
    """out[j] += sum over CSR rows of x_ij^2."""
    for k in range(indptr[0], indptr[-1]):
        value = np.float64(data[k])
        out[indices[k]] += value * value


@native
def fill_cells(values, inverse_width, most, numbers, low, high, counts):
    """Count values by floor(value * inverse_width) in a hash table of open addressing.

    counts is 0 where a slot is empty. Returns the number of missing values, or -1 if more than
    ``most`` cells are occupied.
    """
    mask = len(numbers) - 1
    used = 0
    missing = 0
    for value in values:
        if np.isnan(value):
            missing += 1
            continue
        number = np.floor(value * inverse_width) + 0.0  # no negative zero
        key = np.int64(number) if abs(number) < 1e18 else np.int64(number * 1e-300 * 1e9)
        slot = ((key & 0x7FFFFFFF) * 2654435761 >> 12) & mask
        while counts[slot] > 0 and numbers[slot] != number:
            slot = (slot + 1) & mask
        if counts[slot] == 0:
            if used == most:
                return -1
            used += 1
            numbers[slot] = number
            low[slot] = value
            high[slot] = value
        else:
            low[slot] = min(low[slot], value)
            high[slot] = max(high[slot], value)
        counts[slot] += 1
    return missing
