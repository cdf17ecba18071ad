"""Targets as columns of numbers, from a summary that adds up over blocks of rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_CLASSES = 64


@dataclass
class TargetSummary:
    """What has to be known of all targets to make columns of some of them.

    Floats are regression targets; one column of anything else (integers, booleans, strings) holds
    class labels, unless they are more than 64 different integers.

    Attributes
    ----------
    count : int
    labels : Counter or None
        How often each label occurs; None for numbers.
    sums, squares, low, high : ndarray of shape (n_outputs,) or None
        Of the columns, squares about their means; None for labels that are no numbers.
    """

    count: int
    labels: Counter[Any] | None
    sums: Any
    squares: Any
    low: Any
    high: Any

    @classmethod
    def of_rows(cls, y: Any) -> TargetSummary:
        """Those of a block of targets, of shape (n,) or (n, n_outputs)."""
        labels = None
        if y.dtype.kind != "f" and not (y.ndim == 2 and y.shape[1] > 1):
            if y.dtype.kind == "O" and any(v is None or v != v for v in y.ravel()):
                raise ValueError("y contains NaN or missing labels: drop or label those rows")
            values, counts = np.unique(y.ravel(), return_counts=True)
            labels = Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))
            if y.dtype.kind not in "iub":
                return cls(len(y), labels, None, None, None, None)
            labels = labels if len(labels) <= MAX_CLASSES else None
        columns = y.reshape(len(y), -1).astype(np.float64)
        if not np.isfinite(columns).all():
            raise ValueError("y contains NaN or infinity: drop those rows or fill them")
        sums = columns.sum(axis=0)
        squares = np.square(columns - sums / len(y)).sum(axis=0)
        return cls(len(y), labels, sums, squares, columns.min(axis=0), columns.max(axis=0))

    def __iadd__(self, other: TargetSummary) -> TargetSummary:
        if self.sums is not None and other.sums is not None:
            share = self.count * other.count / (self.count + other.count)
            apart = self.sums / self.count - other.sums / other.count
            self.squares += other.squares + share * apart**2
            self.sums += other.sums
            self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        if self.labels is not None:
            together = None if other.labels is None else self.labels + other.labels
            many = together is not None and len(together) > MAX_CLASSES and self.sums is not None
            self.labels = None if many else together
        self.count += other.count
        return self

    def columns(self, y: Any) -> NDArray[np.float64]:
        """Some targets as columns that are centred and of unit variance over all of them.

        Labels make one column each; a column that is constant over all rows is left out.
        """
        if self.labels is None:
            values = y.reshape(len(y), -1).astype(np.float64)
            means, spread = self.sums / self.count, np.sqrt(self.squares / self.count)
            spread = np.where(self.low == self.high, 0.0, spread)
        else:
            names = sorted(self.labels)
            known = np.array(names, dtype=y.dtype)
            values = (y.reshape(-1, 1) == known).astype(np.float64)
            means = np.array([self.labels[name] for name in names]) / self.count
            spread = np.sqrt(means * (1.0 - means))
        return (values[:, spread > 0] - means[spread > 0]) / spread[spread > 0]
