"""Check that a dataset is what its name says: shape, values and target."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve.datasets.entry import DatasetError, Entry

MEAN_TOLERANCE = 1e-4


def checked(entry: Entry, X: Any, y: Any) -> tuple[Any, NDArray[np.float64]]:
    """Convert X and y to float64, or raise a DatasetError that says what is wrong with them."""
    expected = (entry.n_rows, entry.n_features)
    if X.shape != expected:
        raise DatasetError(f"X has shape {X.shape}, expected {expected}")
    if y.shape != expected[:1]:
        raise DatasetError(f"y has shape {y.shape}, expected {expected[:1]}")
    X = sp.csr_array(X, dtype=np.float64) if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    y = np.asarray(y, dtype=np.float64)
    for name, values in (("X", X.data if sp.issparse(X) else X), ("y", y)):
        bad = values.size - np.count_nonzero(np.isfinite(values))
        if bad:
            raise DatasetError(f"{name} has {bad} values that are not finite")
    _check_target(entry, y)
    if entry.checksum is not None and checksum(X, y) != entry.checksum:
        raise DatasetError(
            f"the checksum of its values is {checksum(X, y)}, expected {entry.checksum}: "
            "some of them were changed"
        )
    return X, y


def checksum(X: Any, y: Any) -> str:
    """Compute a checksum of the values as float32, independent of their type and file.

    Examples
    --------
    >>> checksum(np.eye(2), np.zeros(2)) == checksum(np.eye(2, dtype=np.int8), np.zeros(2))
    True
    """
    parts = (X.indptr, X.indices, X.data) if sp.issparse(X) else (X,)
    digest = hashlib.blake2b(digest_size=16)
    for part in (*parts, y):
        is_index = sp.issparse(X) and (part is X.indptr or part is X.indices)
        digest.update(np.ascontiguousarray(part, dtype="<i8" if is_index else "<f4").data)
    return digest.hexdigest()


def _check_target(entry: Entry, y: NDArray[np.float64]) -> None:
    if entry.label_counts is not None:
        labels, counts = np.unique(y, return_counts=True)
        found = dict(zip(labels.tolist(), counts.tolist(), strict=True))
        if found != entry.label_counts:
            raise DatasetError(
                f"y has the label counts {_short(found)}, expected {_short(entry.label_counts)}"
            )
    if entry.target_range is not None:
        low, high = entry.target_range
        if y.min() < low or y.max() > high:
            raise DatasetError(f"y is in {y.min():g} .. {y.max():g}, expected {low:g} .. {high:g}")
    if entry.target_mean is not None and abs(y.mean() - entry.target_mean) > MEAN_TOLERANCE:
        raise DatasetError(f"y has the mean {y.mean():.6g}, expected {entry.target_mean:.6g}")


def _short(counts: Mapping[Any, int], most: int = 8) -> str:
    """Format counts in one line, at most ``most`` labels."""
    shown = ", ".join(f"{label:g}: {count}" for label, count in list(counts.items())[:most])
    return "{" + shown + (", ..." if len(counts) > most else "") + "}"
