"""Kernels of the inner product of two points: f(<x, y>) with non-negative coefficients."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaln, logsumexp

from kernelsieve._state import list_of, number, positive, whole
from kernelsieve._validation import check_count, check_points, check_positive
from kernelsieve.kernels.base import SeriesKernel
from kernelsieve.kernels.gram import fill_gram
from kernelsieve.sources.summaries import squared_norms

LARGEST_POWER = 1000  # in model files: the power is as many products
SMALLEST_FACTOR = 1e-15  # of inner products in float32


class _DotProductKernel(SeriesKernel):
    """A function of <x, y>: one matrix product, then the function in place."""

    @abstractmethod
    def _of_product(self, product: NDArray[Any]) -> None:
        """Replace <x, y> by k(x, y), in place."""

    def _gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]:
        for points in (X,) if X is Y else (X, Y):
            self.check_domain(points)
        dtype = np.result_type(X.dtype, Y.dtype)
        if dtype == np.float32 and not self._suits_float32:
            X, Y = X.astype(np.float64), Y.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            gram = fill_gram(X, Y, self._of_product, n_jobs).astype(dtype, copy=False)
        return self._check_finite(gram)

    def diag(self, X: Any) -> NDArray[Any]:
        X = check_points(X)
        self.check_domain(X)
        values = squared_norms(X)
        with np.errstate(over="ignore"):
            self._of_product(values)
            values = values.astype(X.dtype)
        if not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values)))
            raise ValueError(
                f"row {row} has |x|^2 = {squared_norms(X)[row]:.6g}, where {self!r} overflows "
                f"{values.dtype}: scale X, or lower gamma"
            )
        return values

    @property
    def _suits_float32(self) -> bool:
        """Whether float32 holds the factors; a huge one is infinite there, and inf * 0 is NaN."""
        return SMALLEST_FACTOR <= self.scale**2 <= 1 / SMALLEST_FACTOR

    def _check_finite(self, values: NDArray[Any]) -> NDArray[Any]:
        if values.size and not np.isfinite([values.max(), values.min()]).all():
            raise ValueError(
                f"{self!r} overflows {values.dtype} on this data: scale X, or lower gamma"
            )
        return values


@dataclass(frozen=True)
class Polynomial(_DotProductKernel):
    """k(x, y) = (gamma <x, y> + coef0)^degree; homogeneous if coef0 = 0.

    Parameters
    ----------
    degree : int, default 3
    gamma : float, default 1.0
        Factor of the inner product.
    coef0 : float, default 1.0
        Constant >= 0.
    """

    degree: int = 3
    gamma: float = 1.0
    coef0: float = 1.0

    _state_fields: ClassVar = {
        "degree": whole(1, LARGEST_POWER),
        "gamma": positive,
        "coef0": number(0.0, 1e300),
    }

    def __post_init__(self) -> None:
        check_count(self.degree, "degree", "it is the power of the polynomial kernel")
        check_positive(self.gamma, "gamma", "it scales the inner product")
        if not (math.isfinite(self.coef0) and self.coef0 >= 0):
            raise ValueError(
                f"coef0={self.coef0!r} must be finite and >= 0: otherwise the kernel is not "
                "positive definite"
            )

    def _of_product(self, product: NDArray[Any]) -> None:
        product *= product.dtype.type(self.gamma)
        product += product.dtype.type(self.coef0)
        base = product.copy()
        for _ in range(self.degree - 1):  # repeated products: numpy's integer power is slow
            product *= base

    @property
    def scale(self) -> float:
        return math.sqrt(self.gamma)

    @property
    def _last_degree(self) -> int:
        return self.degree

    def _log_coefficients(self, degree: int) -> NDArray[np.float64]:
        w = np.arange(degree + 1)
        p = float(self.degree)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_powers = np.where(w == self.degree, 0.0, (p - w) * np.log(self.coef0))
        return gammaln(p + 1) - gammaln(w + 1.0) - gammaln(p - w + 1.0) + log_powers

    def _log_tail(self, squared_radius: NDArray[np.float64], q: int) -> NDArray[np.float64]:
        return _finite_log_tail(self._log_coefficients(self.degree), squared_radius, q)


@dataclass(frozen=True)
class Exponential(_DotProductKernel):
    """k(x, y) = exp(gamma <x, y>).

    Parameters
    ----------
    gamma : float, default 1.0
        Factor of the inner product.
    """

    gamma: float = 1.0

    _state_fields: ClassVar = {"gamma": positive}

    def __post_init__(self) -> None:
        check_positive(self.gamma, "gamma", "it scales the inner product")

    def _of_product(self, product: NDArray[Any]) -> None:
        product *= product.dtype.type(self.gamma)
        np.exp(product, out=product)

    @property
    def scale(self) -> float:
        return math.sqrt(self.gamma)

    def _log_coefficients(self, degree: int) -> NDArray[np.float64]:
        return -gammaln(np.arange(degree + 1) + 1.0)

    def _log_tail(self, squared_radius: NDArray[np.float64], q: int) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return squared_radius + np.log(gammainc(q + 1.0, squared_radius))


@dataclass(frozen=True)
class InversePolynomial(_DotProductKernel):
    """k(x, y) = 1 / (shift - <x, y>), for points with ‖x‖^2 < shift (the paper's example).

    Parameters
    ----------
    shift : float, default 2.0
        Rows with ‖x‖^2 >= shift are refused, by the kernel and by feature maps.
    """

    shift: float = 2.0

    _state_fields: ClassVar = {"shift": positive}

    def __post_init__(self) -> None:
        check_positive(self.shift, "shift", "the kernel is 1 / (shift - <x, y>)")

    def _of_product(self, product: NDArray[Any]) -> None:
        np.subtract(product.dtype.type(self.shift), product, out=product)
        np.reciprocal(product, out=product)

    def check_domain(self, X: Any, start: int = 0) -> None:
        if X.shape[0] == 0:
            return
        radii = squared_norms(X)
        row = int(np.argmax(radii))
        if radii[row] >= self.shift:
            raise ValueError(
                f"row {start + row} has |x|^2 = {radii[row]:.6g}, which is not below "
                f"shift={self.shift!r}: the kernel is not defined there; scale X or raise shift"
            )

    @property
    def scale(self) -> float:
        return 1.0

    def _log_coefficients(self, degree: int) -> NDArray[np.float64]:
        return np.arange(-1, -degree - 2, -1) * np.float64(math.log(self.shift))

    def _log_tail(self, squared_radius: NDArray[np.float64], q: int) -> NDArray[np.float64]:
        return (q + 1.0) * np.log(squared_radius / self.shift) - np.log(self.shift - squared_radius)


@dataclass(frozen=True)
class DotProduct(_DotProductKernel):
    """k(x, y) = sum_w coefficients[w] <x, y>^w.

    Parameters
    ----------
    coefficients : sequence of float
        Coefficients >= 0 of the powers 0, 1, ..., at least one of them positive.

    Examples
    --------
    >>> DotProduct([1.0, 0.0, 0.5])([[1.0, 2.0]])
    array([[13.5]])
    """

    coefficients: tuple[float, ...]

    _state_fields: ClassVar = {"coefficients": list_of(number(), tuple)}

    def __post_init__(self) -> None:
        coefficients = tuple(float(a) for a in self.coefficients)
        object.__setattr__(self, "coefficients", coefficients)
        if not any(coefficients):
            raise ValueError("coefficients are all zero: the kernel would be zero everywhere")
        for w, a in enumerate(coefficients):
            if not (math.isfinite(a) and a >= 0):
                raise ValueError(
                    f"coefficients[{w}]={a!r} must be finite and >= 0: with a negative coefficient "
                    "the kernel is not positive definite (Schoenberg)"
                )

    def _of_product(self, product: NDArray[Any]) -> None:
        inner = product.copy()
        product.fill(self.coefficients[-1])
        for a in self.coefficients[-2::-1]:  # Horner
            product *= inner
            product += product.dtype.type(a)

    @property
    def scale(self) -> float:
        return 1.0

    @property
    def _suits_float32(self) -> bool:
        return max(self.coefficients) <= 1 / SMALLEST_FACTOR

    @property
    def _last_degree(self) -> int:
        return max(w for w, a in enumerate(self.coefficients) if a > 0)

    def _log_coefficients(self, degree: int) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return np.log(np.array(self.coefficients[: degree + 1]))

    def _log_tail(self, squared_radius: NDArray[np.float64], q: int) -> NDArray[np.float64]:
        return _finite_log_tail(self._log_coefficients(self._last_degree), squared_radius, q)


def _finite_log_tail(
    log_coefficients: NDArray[np.float64], squared_radius: NDArray[np.float64], q: int
) -> NDArray[np.float64]:
    if q + 1 >= len(log_coefficients):
        return np.full(squared_radius.shape, -np.inf)
    w = np.arange(q + 1, len(log_coefficients))
    return np.asarray(logsumexp(log_coefficients[w] + w * np.log(squared_radius)[:, None], axis=1))
