"""Cholesky's factor without the interpreter's lock: scipy's keeps other threads waiting."""

from __future__ import annotations

import numpy as np

from kernelsieve._native._options import native


@native
def lower_factor(matrix):
    """The lower factor of a positive definite matrix; LinAlgError if it is not."""
    return np.linalg.cholesky(matrix)
