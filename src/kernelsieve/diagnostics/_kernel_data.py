"""The inputs of every estimate: a kernel, rows, their features and a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing

from kernelsieve._random import root_seed
from kernelsieve._validation import check_points
from kernelsieve.diagnostics.checks import check_features
from kernelsieve.kernels.resolve import own_kernel
from kernelsieve.linalg.operators import Array, KernelFunction, evaluate

CONFIDENCE = 0.99  # of the part of an error bar that is due to random draws
ROUNDING = 1e-7  # relative; the least error bar


class Measured(NamedTuple):
    """A value and the half-width of the interval that should contain the truth."""

    value: float
    error: float


def between(low: float, high: float) -> Measured:
    """The interval from low to high."""
    value = (low + high) / 2
    return Measured(value, max((high - low) / 2, ROUNDING * abs(value)))


@dataclass(frozen=True)
class KernelData:
    """A kernel and the rows of X, as given and in float64."""

    kernel: KernelFunction
    X: Any
    points: Any
    seed: int

    @property
    def n_rows(self) -> int:
        """Number of data points."""
        return int(self.points.shape[0])

    def gram(self, rows: Any) -> Array:
        """The kernel matrix of a few rows."""
        K = evaluate(self.kernel, self.points[rows], self.points[rows])
        return (K + K.T) / 2


def check_kernel_data(kernel: Any, X: Any, random_state: Any) -> KernelData:
    """Check a kernel, which must be callable, and rows, which must be finite."""
    kernel = own_kernel(kernel)
    if not callable(kernel):
        raise TypeError(
            f"kernel={kernel!r} must be callable: pass a kernel object such as "
            f"kernelsieve.kernels.Gaussian(gamma=1.0), or a function of X and Y"
        )
    points = check_points(X).astype(np.float64, copy=False)
    X = X if hasattr(X, "shape") else points
    return KernelData(kernel, X, points, root_seed(random_state))


class Features:
    """Features of the rows of X: given as a matrix, or computed on demand.

    A transformer gets the rows as the user passed them, so that it sees their names and types.
    """

    def __init__(self, Z: Any, data: KernelData) -> None:
        self.data = data
        self.transform = getattr(Z, "transform", Z if callable(Z) else None)
        self.matrix: Any = None if self.transform else check_features(Z, data.n_rows)

    def all_rows(self) -> Any:
        """Z, dense or CSR."""
        if self.transform is None:
            return self.matrix
        return check_features(self.transform(self.data.X), self.data.n_rows)

    def of_rows(self, rows: Any) -> Any:
        """The features of a few rows."""
        if self.transform is None:
            return self.matrix[rows]
        return check_features(self.transform(_safe_indexing(self.data.X, rows)), len(rows))

    @property
    def n_components(self) -> int:
        """Number of columns of Z."""
        some = self.matrix if self.transform is None else self.of_rows(np.arange(1))
        return int(some.shape[1])
