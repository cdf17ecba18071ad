"""Checks of user input: an error names the value, the reason and the way out."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import get_config
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

FLOATS = (np.float64, np.float32)
LARGEST_ENTRY = 1e150


def refuse_dates(X: Any, name: str = "X") -> Any:
    """Return X, and refuse dates, which numpy would convert to nanoseconds since 1970."""
    columns = X.columns if hasattr(X, "columns") and hasattr(X, "dtypes") else None
    types = [getattr(X, "dtype", None)] if columns is None else list(X.dtypes)
    for i, dtype in enumerate(types):
        temporal = getattr(dtype, "is_temporal", None)  # of polars
        if getattr(dtype, "kind", None) in ("m", "M") if temporal is None else temporal():
            where = name if columns is None else f"column {str(columns[i])!r} of {name}"
            raise ValueError(
                f"{where} holds dates or times ({dtype}): convert them to numbers first, such as "
                "days since a fixed date"
            )
    return X


def check_points(X: Any, name: str = "X") -> Any:
    """Convert X to finite float32 or float64 rows: a C-ordered array or canonical CSR."""
    refuse_dates(X, name)
    with np.errstate(invalid="ignore"):  # in a sum of huge numbers of both signs
        X = check_array(X, accept_sparse="csr", dtype=FLOATS, order="C", input_name=name)
    return canonical_rows(X)


def valid_rows(estimator: Any, X: Any, reset: bool, **options: Any) -> Any:
    """Validate X, and ``y`` among the options, by scikit-learn for an estimator.

    With ``reset``, entries are refused whose squares overflow.
    """
    refuse_dates(X)
    with np.errstate(invalid="ignore"):
        found = validate_data(
            estimator, X, reset=reset, accept_sparse="csr", dtype=FLOATS, order="C", **options
        )
    X, *y = found if isinstance(found, tuple) else (found,)
    X = canonical_rows(X)
    if reset:
        check_range(X)
    return (X, *y) if y else X


def check_range(X: Any) -> None:
    """Refuse entries whose squares overflow; float32 is squared in float64."""
    values = X.data if sp.issparse(X) else X
    if values.dtype != np.float64 or values.size == 0:
        return
    largest = float(max(values.max(), -values.min()))
    if largest > LARGEST_ENTRY:
        raise ValueError(
            f"X has an entry of size {largest:.3g}, whose square exceeds what float64 can hold: "
            "scale X"
        )


def canonical_rows(X: Any) -> Any:
    """Make CSR indices sorted and unique, in a copy if need be; dense X is returned as it is."""
    if sp.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def sparse_output(Z: Any) -> Any:
    """Convert to a CSR matrix or array, as scikit-learn's ``sparse_interface`` asks."""
    interface = get_config().get("sparse_interface", "spmatrix")  # since scikit-learn 1.9
    return sp.csr_array(Z) if interface == "sparray" else sp.csr_matrix(Z)


def check_positive(value: Any, name: str, why: str) -> float:
    """Return a finite number > 0."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r} must be a number: {why}")
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name}={value!r} must be finite and > 0: {why}")
    return number


def check_count(value: Any, name: str, why: str) -> int:
    """Return an integer >= 1."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r} must be an integer: {why}")
    if value < 1:
        raise ValueError(f"{name}={value!r} must be >= 1: {why}")
    return int(value)


def check_choice(value: Any, name: str, choices: tuple[Any, ...]) -> Any:
    """One of ``choices``; a numpy boolean stands for Python's."""
    value = bool(value) if isinstance(value, np.bool_) else value
    if not any(
        value is choice or (type(value) is type(choice) and value == choice) for choice in choices
    ):
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}={value!r} is unknown: use one of {listed}")
    return value
