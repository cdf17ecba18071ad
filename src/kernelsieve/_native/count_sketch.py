"""Signed sums of coordinates that fall into the same bucket, and products of sampled entries.

A code is a bucket and a sign in one word: the bucket itself, or its complement for a minus.
"""

from __future__ import annotations

import numpy as np

from kernelsieve._native._options import inlined, native


@inlined
def add_signed(value, code, line):
    """line[bucket] += sign * value, without a branch that half of the time goes the other way."""
    minus = code >> 31  # 0 or -1
    line[np.uint32(code ^ minus)] += -value if minus else value  # unsigned: never from the end


@native
def count_sketch_dense(X, codes, scale, constant, out):
    """out[r, bucket(i, b)] = the sum of sign(i, b) scale X[r, i], over coordinates i, copies b.

    A constant that is not zero is one coordinate more, which has the last code and no scale.
    """
    for r in range(X.shape[0]):
        out[r] = 0.0
        for i in range(X.shape[1]):
            for b in range(codes.shape[1]):
                add_signed(X[r, i], codes[i, b], out[r])
        scale_and_shift(scale, constant, codes[-1], out[r])


@native
def count_sketch_csr(data, indices, indptr, codes, scale, constant, out):
    """The same for rows in CSR form: only what is stored is looked at."""
    for r in range(len(indptr) - 1):
        out[r] = 0.0
        for k in range(indptr[r], indptr[r + 1]):
            for b in range(codes.shape[1]):
                add_signed(data[k], codes[indices[k], b], out[r])
        scale_and_shift(scale, constant, codes[-1], out[r])


@inlined
def scale_and_shift(scale, constant, codes, line):
    """line <- scale * line, and the constant to the buckets of its codes."""
    if scale != 1.0:
        for j in range(len(line)):
            line[j] *= scale
    if constant != 0.0:
        for b in range(len(codes)):
            add_signed(constant, codes[b], line)


@native
def multiply_spectra(spectra):
    """spectra[0] <- the entrywise product of them all."""
    product = spectra[0]
    for k in range(1, len(spectra)):
        for r in range(product.shape[0]):
            for j in range(product.shape[1]):
                product[r, j] *= spectra[k, r, j]


@native
def multiply_sampled(left, right, left_places, right_places, scale, out):
    """out[r, k] = scale * left[r, left_places[k]] * right[r, right_places[k]].

    A factor with one row is the same for all rows.
    """
    for r in range(out.shape[0]):
        one, other = left[r if len(left) > 1 else 0], right[r if len(right) > 1 else 0]
        for k in range(out.shape[1]):
            out[r, k] = scale * one[left_places[k]] * other[right_places[k]]
