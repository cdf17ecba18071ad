"""Sums of squares of rows and columns of dense data: read once, added in float64."""

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
