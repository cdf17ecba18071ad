"""Checks on what users pass in: an error names the value, the reason and the way out."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import get_config
from sklearn.utils import check_array

FLOATS = (np.float64, np.float32)


def check_points(X: Any, name: str = "X") -> Any:
    """X as finite float32 or float64 rows: a C array, or a canonical CSR matrix or array."""
    X = check_array(X, accept_sparse="csr", dtype=FLOATS, order="C", input_name=name)
    return canonical_rows(X)


def canonical_rows(X: Any) -> Any:
    """CSR with sorted, unique indices, without touching the caller's arrays; dense X as it is."""
    if sp.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def sparse_output(Z: Any) -> Any:
    """CSR as scikit-learn's ``sparse_interface`` asks: a matrix or an array."""
    interface = get_config().get("sparse_interface", "spmatrix")  # since scikit-learn 1.9
    return sp.csr_array(Z) if interface == "sparray" else sp.csr_matrix(Z)


def check_positive(value: Any, name: str, why: str) -> float:
    """A finite number > 0."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r} must be a number: {why}")
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name}={value!r} must be finite and > 0: {why}")
    return number


def check_count(value: Any, name: str, why: str) -> int:
    """An integer >= 1."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r} must be an integer: {why}")
    if value < 1:
        raise ValueError(f"{name}={value!r} must be >= 1: {why}")
    return int(value)


def check_choice(value: Any, name: str, choices: tuple[Any, ...]) -> Any:
    """One of ``choices``."""
    if not any(
        value is choice or (type(value) is type(choice) and value == choice) for choice in choices
    ):
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}={value!r} is unknown: use one of {listed}")
    return value
