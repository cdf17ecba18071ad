"""Sums of orthonormal Gegenbauer polynomials."""

from __future__ import annotations

import numpy as np

from kernelsieve._native._options import native


@native
def add_polynomials(cosines, coefficients, slopes, drops, out):
    """out += the sum of coefficients[l] Q_l(cosines).

    Q_0 = 1 and Q_(l+1) = slopes[l] t Q_l - drops[l] Q_(l-1).
    """
    before = np.empty(cosines.shape[1], dtype=cosines.dtype)
    now = np.empty(cosines.shape[1], dtype=cosines.dtype)
    for r in range(cosines.shape[0]):
        before[:] = 0.0
        now[:] = 1.0
        for w in range(len(coefficients)):
            a = coefficients[w]
            if a != 0.0:
                for j in range(len(now)):
                    out[r, j] += a * now[j]
            if w + 1 < len(coefficients):
                slope, drop = slopes[w], drops[w]
                for j in range(len(now)):
                    after = slope * cosines[r, j] * now[j] - drop * before[j]
                    before[j] = now[j]
                    now[j] = after
