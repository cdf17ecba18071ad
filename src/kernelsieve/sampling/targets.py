"""Targets as columns of numbers, for the scores that look at them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def target_columns(y: Any, n_rows: int) -> NDArray[np.float64]:
    """Centred target columns of unit variance, of shape (n_rows, n_outputs).

    Floats are regression targets; anything else (integers, booleans, strings) is taken as class
    labels, one column a class. No y gives no column.
    """
    if y is None:
        return np.empty((n_rows, 0))
    y = np.asarray(y)
    if y.ndim not in (1, 2):
        raise ValueError(f"y has {y.ndim} dimensions: it must be of shape (n,) or (n, n_outputs)")
    if y.shape[0] != n_rows:
        raise ValueError(f"y has {y.shape[0]} rows and X has {n_rows}")
    if y.dtype.kind == "O" and any(label is None or label != label for label in y.ravel()):
        raise ValueError("y contains NaN or missing labels: drop those rows or give them a label")
    columns = y.reshape(n_rows, -1) if y.dtype.kind == "f" else _one_hot(y)
    columns = columns.astype(np.float64)
    if not np.isfinite(columns).all():
        raise ValueError("y contains NaN or infinity: drop those rows or fill them")
    columns = columns - columns.mean(axis=0)
    spread = columns.std(axis=0)
    return columns[:, spread > 0] / spread[spread > 0]


def _one_hot(y: NDArray[Any]) -> NDArray[Any]:
    if y.ndim == 2 and y.shape[1] > 1:  # several outputs of counts or indicators
        return y
    labels, codes = np.unique(y.ravel(), return_inverse=True)
    if len(labels) > MAX_CLASSES and y.dtype.kind in "iub":
        return y.reshape(len(codes), 1)  # many different integers are numbers, not labels
    return np.eye(len(labels))[codes]


MAX_CLASSES = 64
