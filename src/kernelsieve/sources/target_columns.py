"""Targets as columns of numbers, for the scores that look at them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.sources.targets import TargetSummary


def target_columns(y: Any, n_rows: int) -> NDArray[np.float64]:
    """Centred target columns of unit variance, of shape (n_rows, n_outputs).

    Floats are regression targets; anything else (integers, booleans, strings) is taken as class
    labels, one column a class. No y gives no column.
    """
    if y is None:
        return np.empty((n_rows, 0))
    y = checked_targets(y, n_rows)
    return TargetSummary.of_rows(y).columns(y)


def checked_targets(y: Any, n_rows: int) -> NDArray[Any]:
    """y as an array with as many rows as X."""
    y = np.asarray(y)
    if y.ndim not in (1, 2):
        raise ValueError(f"y has {y.ndim} dimensions: it must be of shape (n,) or (n, n_outputs)")
    if y.shape[0] != n_rows:
        raise ValueError(f"y has {y.shape[0]} rows and X has {n_rows}")
    return y
