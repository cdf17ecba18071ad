"""Taylor series of kernels, truncated for the rows at hand.

    k(x, y) = c(x) c(y) sum_{w=0..q} a_w <x', y'>^w

Everything in a series is kept in logarithms: |x'|^(2w) overflows and exp(-|x'|^2 / 2) underflows
long before their product does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import logsumexp

from kernelsieve._state import Persistent, array, flag, number, optional, scaling, wrong
from kernelsieve._validation import check_points
from kernelsieve.sources.summaries import squared_norms

MAX_DEGREE = 256
# Norms are rounded up to this fraction of an octave before tails are summed: a mergeable summary
# of any number of rows, at the price of at most one degree too many.
STEPS_PER_OCTAVE = 1024
MAX_PIECES = 64  # summaries of blocks that wait before they are sorted into one


@dataclass(frozen=True)
class Series(Persistent):
    """The Taylor series of a kernel, truncated for a given data set.

    Attributes
    ----------
    scale : float
        x' = scale * (x - center).
    center : ndarray of shape (n_features,) or None
        Point that is subtracted from the rows; None for sparse data and dot-product kernels.
    damped : bool
        Whether c(x) = exp(-|x'|^2 / 2) (the Gaussian kernel); otherwise c(x) = 1.
    log_coefficients : ndarray of shape (degree + 1,)
        log a_w, -inf where a_w = 0.
    tail : float
        Trace that was cut off: the sum over the rows of c(x)^2 sum_{w > degree} a_w |x'|^(2w).
    """

    scale: float
    center: NDArray[Any] | None
    damped: bool
    log_coefficients: NDArray[np.float64]
    tail: float

    _state_fields: ClassVar = {
        "scale": scaling,
        "center": optional(array(None)),
        "damped": flag,
        "log_coefficients": array(None, finite=False),
        "tail": number(),
    }

    def _complete(self) -> None:
        if not 0 <= self.degree <= MAX_DEGREE or not (self.log_coefficients < np.inf).all():
            wrong("log_coefficients", "are too many or not numbers below infinity")

    @property
    def degree(self) -> int:
        """The truncation degree q."""
        return len(self.log_coefficients) - 1

    def points(self, X: Any) -> Any:
        """Return the scaled and centred points x', in the float type of X."""
        X = check_points(X)
        if self.center is not None:
            if sp.issparse(X):
                raise TypeError("this series is centred: densify X, or fit with center=False")
            X = X - self.center.astype(X.dtype)
        return X * X.dtype.type(self.scale)

    def log_amplitude(self, squared_radius: NDArray[np.float64]) -> NDArray[np.float64]:
        """log c(x) for points with |x'|^2 = ``squared_radius``."""
        if self.damped:
            return -0.5 * squared_radius
        return np.zeros_like(squared_radius)

    def log_degree_scales(self, squared_radius: NDArray[np.float64]) -> NDArray[np.float64]:
        """log of c(x) sqrt(a_w) |x'|^w, the length of each degree's part: (n, degree + 1)."""
        degrees = np.arange(self.degree + 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            powers = 0.5 * degrees * np.log(squared_radius)[:, None]
        powers[:, 0] = 0.0  # |x'|^0 = 1, also for the zero row
        return self.log_amplitude(squared_radius)[:, None] + 0.5 * self.log_coefficients + powers

    def __call__(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Gram matrix of the truncated kernel, in float64."""
        left = self.points(X).astype(np.float64)
        right = left if Y is None else self.points(Y).astype(np.float64)
        left_radius, right_radius = squared_norms(left), squared_norms(right)
        product = left @ right.T
        product = product.toarray() if sp.issparse(product) else product
        lengths = np.sqrt(np.outer(left_radius, right_radius))
        cosine = np.divide(product, lengths, out=np.zeros_like(product), where=lengths > 0)
        left_scale = np.exp(self.log_degree_scales(left_radius))
        right_scale = np.exp(self.log_degree_scales(right_radius))
        gram = np.zeros_like(product)
        for w in range(self.degree, -1, -1):  # small terms first
            gram += np.outer(left_scale[:, w], right_scale[:, w]) * cosine**w
        return gram


class SeriesTooLongError(ValueError):
    """The data reaches too far from the centre for a Taylor series of the largest degree."""


@dataclass
class Radii:
    """A histogram of squared radii, rounded up, which adds up over blocks.

    Attributes
    ----------
    steps : list of ndarray
        Logarithms of squared radii above 0, in units of 1 / STEPS_PER_OCTAVE.
    counts : list of ndarray
        Number of rows with each of them.
    largest : float
        The largest squared radius, not rounded.
    row : int
        The number of that row.
    """

    steps: list[NDArray[np.float64]]
    counts: list[NDArray[np.int64]]
    largest: float
    row: int

    @classmethod
    def of_rows(cls, squared_radius: NDArray[np.float64], start: int = 0) -> Radii:
        """Summarise rows that are numbered from ``start``."""
        row = int(np.argmax(squared_radius))
        positive = squared_radius[squared_radius > 0]
        steps, counts = np.unique(np.ceil(STEPS_PER_OCTAVE * np.log2(positive)), return_counts=True)
        return cls([steps], [counts], float(squared_radius[row]), start + row)

    def __iadd__(self, other: Radii) -> Radii:
        self.steps += other.steps
        self.counts += other.counts
        if other.largest > self.largest:
            self.largest, self.row = other.largest, other.row
        if len(self.steps) >= MAX_PIECES:
            steps, counts = self._together()
            self.steps, self.counts = [steps], [counts]
        return self

    def _together(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        steps, places = np.unique(np.concatenate(self.steps), return_inverse=True)
        counts = np.zeros(len(steps), dtype=np.int64)
        np.add.at(counts, places, np.concatenate(self.counts))
        return steps, counts

    def counted(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return squared radii, and the number of rows with each."""
        steps, counts = self._together()
        return np.minimum(np.exp2(steps / STEPS_PER_OCTAVE), self.largest), counts


def truncation_degree(
    found: Radii,
    log_tail: Callable[[NDArray[np.float64], int], NDArray[np.float64]],
    tol: float,
    max_degree: int,
) -> tuple[int, float]:
    """The smallest q whose trace tail is at most ``tol``, and that tail.

    The trace bounds the operator norm of what is cut off (the paper's claim on the lifting).
    ``log_tail(squared_radius, q)`` is log(c(x)^2 sum_{w > q} a_w |x'|^(2w)).
    """
    radii, counts = found.counted()

    def tail(q: int) -> float:
        return float(np.exp(logsumexp(log_tail(radii, q), b=counts))) if len(radii) else 0.0

    if tail(max_degree) > tol:
        raise SeriesTooLongError(
            f"row {found.row} has |x'|^2 = {found.largest:.6g}, which needs a Taylor series of "
            f"degree > max_degree={max_degree} to keep the truncation below {tol:.3g}. "
            "Use a smaller gamma or scaled data, or a method without a Taylor series: "
            "NystromFeatures, or the Mercer basis (basis='mercer') for the Gaussian kernel."
        )
    low, high = 0, max_degree
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if tail(middle) <= tol else (middle + 1, high)
    return low, tail(low)
