"""Factorisations of small Gram matrices, in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky

JITTERS = (0.0, 1e-14, 1e-12, 1e-10, 1e-8)


def regularised_cholesky(
    gram: NDArray[np.float64], alpha: float
) -> tuple[NDArray[np.float64], float]:
    """Lower factor of gram + shift I, and the shift.

    The shift is alpha, or a little more where rounding left the matrix indefinite.
    """
    scale = float(np.trace(gram)) / len(gram)
    for jitter in JITTERS:
        shift = alpha + jitter * scale
        shifted = gram.copy()
        shifted.flat[:: len(gram) + 1] += shift
        try:
            return cholesky(shifted, lower=True, overwrite_a=True, check_finite=False), shift
        except LinAlgError:
            continue
    raise LinAlgError(f"the Gram matrix is not positive definite at alpha={alpha:g}: raise alpha")
