"""The kernel family: exact Gram matrices, and the Taylor series that the samplers work on.

Examples
--------
>>> import numpy as np
>>> from kernelsieve.kernels import Gaussian
>>> X = np.array([[0.0, 0.0], [1.0, 0.0]])
>>> Gaussian(gamma=0.5)(X).round(4)
array([[1.    , 0.6065],
       [0.6065, 1.    ]])
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import gammainc, gammaln, kve, logsumexp

from kernelsieve._gram import distances, fill_gram, manhattan
from kernelsieve._moments import column_means, squared_norms
from kernelsieve._series import Series, truncation_degree
from kernelsieve._validation import (
    check_choice,
    check_count,
    check_points,
    check_positive,
)

__all__ = [
    "DotProduct",
    "Exponential",
    "Gaussian",
    "InversePolynomial",
    "Kernel",
    "Laplacian",
    "Matern",
    "Polynomial",
    "SeriesKernel",
    "resolve_kernel",
]

MAX_DEGREE = 256


class Kernel(ABC):
    """A positive definite function of two points; calling it gives the exact Gram matrix."""

    def __call__(self, X: Any, Y: Any = None, *, n_jobs: int | None = None) -> NDArray[Any]:
        """Exact Gram matrix k(x, y) for the rows of X and Y.

        Parameters
        ----------
        X : {array-like, CSR} of shape (n, d)
        Y : {array-like, CSR} of shape (m, d), default X
        n_jobs : int, default all cores

        Returns
        -------
        ndarray of shape (n, m), float32 if both X and Y are, else float64
        """
        X = check_points(X)
        if Y is not None:
            Y = check_points(Y, "Y")
            if X.shape[1] != Y.shape[1]:
                raise ValueError(f"X has {X.shape[1]} columns and Y has {Y.shape[1]}")
        return self._gram(X, X if Y is None else Y, Y is None, n_jobs)

    @abstractmethod
    def _gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]: ...

    @abstractmethod
    def diag(self, X: Any) -> NDArray[Any]:
        """k(x, x) for every row of X, without the Gram matrix."""

    def series(
        self, X: Any, tol: float = 1e-6, *, center: Any = "auto", max_degree: int = MAX_DEGREE
    ) -> Series:
        """The Taylor series in <x, y>, for the kernels that have one."""
        raise TypeError(
            f"{self!r} has no Taylor series in <x, y>: use NystromFeatures or FourierFeatures"
        )


class SeriesKernel(Kernel):
    """A kernel with a weighted Taylor series of non-negative coefficients."""

    @property
    @abstractmethod
    def _scale(self) -> float: ...

    @property
    def _damped(self) -> bool:
        return False

    @property
    def _last_degree(self) -> int | None:
        """The degree of a polynomial kernel; None where the series goes on for ever."""
        return None

    @abstractmethod
    def _log_coefficients(self, degree: int) -> NDArray[np.float64]: ...

    @abstractmethod
    def _log_tail(self, squared_radius: NDArray[np.float64], q: int) -> NDArray[np.float64]: ...

    def series(
        self, X: Any, tol: float = 1e-6, *, center: Any = "auto", max_degree: int = MAX_DEGREE
    ) -> Series:
        """The Taylor series of this kernel, truncated for the rows of X.

        Parameters
        ----------
        X : {array-like, CSR} of shape (n, d)
        tol : float
            What the truncation may cost: the trace of the part of K that is cut off, hence also
            any entry and the operator norm of K - K_q.
        center : "auto", True or False
            Whether to subtract the column means, which the Gaussian kernel does not notice but its
            series does. "auto" does so for the Gaussian on dense data.
        max_degree : int
            The largest degree allowed.

        Examples
        --------
        >>> import numpy as np
        >>> X = np.array([[0.0], [0.5], [2.0]])
        >>> Gaussian(gamma=1.0).series(X, tol=1e-6).degree
        14
        """
        X = check_points(X)
        check_choice(center, "center", ("auto", True, False))
        if not (isinstance(tol, int | float | np.number) and tol >= 0):
            raise ValueError(f"tol={tol!r} must be >= 0: it is the trace that truncation may cost")
        mu = self._mean_point(X, center)
        squared_radius = self._squared_radius(X, mu)
        last = self._last_degree
        if last is not None and last > max_degree:
            raise ValueError(f"degree={last} is above max_degree={max_degree}: raise max_degree")
        degree, tail = truncation_degree(
            squared_radius, self._log_tail, tol, max_degree if last is None else last
        )
        return Series(self._scale, mu, self._damped, self._log_coefficients(degree), tail)

    def _mean_point(self, X: Any, center: Any) -> NDArray[Any] | None:
        if center is True:
            raise ValueError(f"{self!r} depends on the origin: only the Gaussian can be centred")
        return None

    def _squared_radius(self, X: Any, mu: NDArray[Any] | None) -> NDArray[np.float64]:
        return self._scale**2 * squared_norms(X, mu)


@dataclass(frozen=True)
class Gaussian(SeriesKernel):
    """k(x, y) = exp(-gamma |x - y|^2); the paper's kernel is gamma = 1/2."""

    gamma: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self.gamma, "gamma", "it divides squared distances by a length scale")

    def _gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]:
        gram = distances(X, Y, -self.gamma, np.exp, n_jobs)
        if symmetric:
            np.fill_diagonal(gram, 1.0)
        return gram

    def diag(self, X: Any) -> NDArray[Any]:
        X = check_points(X)
        return np.ones(X.shape[0], dtype=X.dtype)

    @property
    def _scale(self) -> float:
        return math.sqrt(2.0 * self.gamma)

    @property
    def _damped(self) -> bool:
        return True

    def _mean_point(self, X: Any, center: Any) -> NDArray[Any] | None:
        if sp.issparse(X):
            if center is True:
                raise ValueError("center=True would fill a sparse X: densify it or use 'auto'")
            return None
        return None if center is False else column_means(X)

    def _log_coefficients(self, degree: int) -> NDArray[np.float64]:
        return -gammaln(np.arange(degree + 1) + 1.0)

    def _log_tail(self, squared_radius: NDArray[np.float64], q: int) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return np.log(gammainc(q + 1.0, squared_radius))  # P(Poisson(|x'|^2) > q)


class _DotProductKernel(SeriesKernel):
    """A function of <x, y>: one matrix product, then the function in place."""

    @abstractmethod
    def _of_product(self, product: NDArray[Any]) -> None:
        """Replace <x, y> by k(x, y), in place."""

    def _gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]:
        self._check_radius(X, Y)
        with np.errstate(over="ignore", invalid="ignore"):
            gram = fill_gram(X, Y, self._of_product, n_jobs)
        return self._check_finite(gram)

    def diag(self, X: Any) -> NDArray[Any]:
        X = check_points(X)
        self._check_radius(X, X)
        values = squared_norms(X)
        with np.errstate(over="ignore"):
            self._of_product(values)
        return self._check_finite(values.astype(X.dtype))

    def _check_radius(self, X: Any, Y: Any) -> None:
        """Refuse points where the kernel is not defined."""

    def _check_finite(self, values: NDArray[Any]) -> NDArray[Any]:
        if values.size and not np.isfinite([values.max(), values.min()]).all():
            raise ValueError(
                f"{self!r} overflows {values.dtype} on this data: scale X, or lower gamma"
            )
        return values


@dataclass(frozen=True)
class Polynomial(_DotProductKernel):
    """k(x, y) = (gamma <x, y> + coef0)^degree; homogeneous when coef0 = 0."""

    degree: int = 3
    gamma: float = 1.0
    coef0: float = 1.0

    def __post_init__(self) -> None:
        check_count(self.degree, "degree", "it is the power of the polynomial kernel")
        check_positive(self.gamma, "gamma", "it scales the inner product")
        if not (math.isfinite(self.coef0) and self.coef0 >= 0):
            raise ValueError(
                f"coef0={self.coef0!r} must be >= 0: otherwise the kernel is not positive definite"
            )

    def _of_product(self, product: NDArray[Any]) -> None:
        product *= product.dtype.type(self.gamma)
        product += product.dtype.type(self.coef0)
        base = product.copy()
        for _ in range(self.degree - 1):  # repeated products: numpy's integer power is slow
            product *= base

    @property
    def _scale(self) -> float:
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
    """k(x, y) = exp(gamma <x, y>)."""

    gamma: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self.gamma, "gamma", "it scales the inner product")

    def _of_product(self, product: NDArray[Any]) -> None:
        product *= product.dtype.type(self.gamma)
        np.exp(product, out=product)

    @property
    def _scale(self) -> float:
        return math.sqrt(self.gamma)

    def _log_coefficients(self, degree: int) -> NDArray[np.float64]:
        return -gammaln(np.arange(degree + 1) + 1.0)

    def _log_tail(self, squared_radius: NDArray[np.float64], q: int) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return squared_radius + np.log(gammainc(q + 1.0, squared_radius))


@dataclass(frozen=True)
class InversePolynomial(_DotProductKernel):
    """k(x, y) = 1 / (shift - <x, y>), for points with |x|^2 < shift (the paper's example)."""

    shift: float = 2.0

    def __post_init__(self) -> None:
        check_positive(self.shift, "shift", "the kernel is 1 / (shift - <x, y>)")

    def _of_product(self, product: NDArray[Any]) -> None:
        np.subtract(product.dtype.type(self.shift), product, out=product)
        np.reciprocal(product, out=product)

    def _check_radius(self, X: Any, Y: Any) -> None:
        for points in (X,) if X is Y else (X, Y):
            self._squared_radius(points, None)

    def _squared_radius(self, X: Any, mu: NDArray[Any] | None) -> NDArray[np.float64]:
        radii = squared_norms(X)
        row = int(np.argmax(radii))
        if radii[row] >= self.shift:
            raise ValueError(
                f"row {row} has |x|^2 = {radii[row]:.6g}, not below shift={self.shift!r}: the "
                "series does not converge there; scale X or raise shift"
            )
        return radii

    @property
    def _scale(self) -> float:
        return 1.0

    def _log_coefficients(self, degree: int) -> NDArray[np.float64]:
        return np.arange(-1, -degree - 2, -1) * np.float64(math.log(self.shift))

    def _log_tail(self, squared_radius: NDArray[np.float64], q: int) -> NDArray[np.float64]:
        return (q + 1.0) * np.log(squared_radius / self.shift) - np.log(self.shift - squared_radius)


@dataclass(frozen=True)
class DotProduct(_DotProductKernel):
    """k(x, y) = sum_w coefficients[w] <x, y>^w.

    Examples
    --------
    >>> DotProduct([1.0, 0.0, 0.5])([[1.0, 2.0]])
    array([[13.5]])
    """

    coefficients: tuple[float, ...]

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
    def _scale(self) -> float:
        return 1.0

    @property
    def _last_degree(self) -> int:
        return max(w for w, a in enumerate(self.coefficients) if a > 0)

    def _log_coefficients(self, degree: int) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return np.log(np.array(self.coefficients[: degree + 1]))

    def _log_tail(self, squared_radius: NDArray[np.float64], q: int) -> NDArray[np.float64]:
        return _finite_log_tail(self._log_coefficients(self._last_degree), squared_radius, q)


@dataclass(frozen=True)
class Laplacian(Kernel):
    """k(x, y) = exp(-gamma |x - y|_1). Exact only: it has no Taylor series in <x, y>."""

    gamma: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self.gamma, "gamma", "it divides distances by a length scale")

    def _gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]:
        return manhattan(X, Y, -self.gamma, n_jobs)

    def diag(self, X: Any) -> NDArray[Any]:
        X = check_points(X)
        return np.ones(X.shape[0], dtype=X.dtype)


@dataclass(frozen=True)
class Matern(Kernel):
    """The Matern kernel of smoothness ``nu`` at distance |x - y| / length_scale. Exact only."""

    length_scale: float = 1.0
    nu: float = 1.5

    _closed_forms: ClassVar = {
        0.5: lambda t: np.exp(-t),
        1.5: lambda t: (1.0 + t) * np.exp(-t),
        2.5: lambda t: (1.0 + t + t * t / 3.0) * np.exp(-t),
    }

    def __post_init__(self) -> None:
        check_positive(self.length_scale, "length_scale", "distances are divided by it")
        check_positive(self.nu, "nu", "it is the smoothness of the kernel")

    def _gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]:
        factor = 2.0 * self.nu / self.length_scale**2
        gram = distances(X, Y, -factor, self._of_negative_square, n_jobs)
        if symmetric:
            np.fill_diagonal(gram, 1.0)
        return gram

    def _of_negative_square(self, negative: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
        t = np.sqrt(-negative)
        closed = self._closed_forms.get(self.nu)
        out[...] = self._bessel_form(t) if closed is None else closed(t)
        return out

    def _bessel_form(self, t: NDArray[Any]) -> NDArray[Any]:
        # In logarithms and float64: t^nu underflows where K_nu(t) overflows.
        t = t.astype(np.float64)
        log_factor = (1.0 - self.nu) * math.log(2.0) - math.lgamma(self.nu)
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.exp(log_factor + self.nu * np.log(t) + np.log(kve(self.nu, t)) - t)
        return np.where(np.isfinite(values), values, 1.0)  # kve overflows only next to t = 0

    def diag(self, X: Any) -> NDArray[Any]:
        X = check_points(X)
        return np.ones(X.shape[0], dtype=X.dtype)


def _finite_log_tail(
    log_coefficients: NDArray[np.float64], squared_radius: NDArray[np.float64], q: int
) -> NDArray[np.float64]:
    if q + 1 >= len(log_coefficients):
        return np.full(squared_radius.shape, -np.inf)
    w = np.arange(q + 1, len(log_coefficients))
    return np.asarray(logsumexp(log_coefficients[w] + w * np.log(squared_radius)[:, None], axis=1))


NAMES = {
    "gaussian": lambda gamma, degree, coef0: Gaussian(gamma),
    "rbf": lambda gamma, degree, coef0: Gaussian(gamma),
    "poly": lambda gamma, degree, coef0: Polynomial(degree, gamma, coef0),
    "polynomial": lambda gamma, degree, coef0: Polynomial(degree, gamma, coef0),
    "exponential": lambda gamma, degree, coef0: Exponential(gamma),
    "inverse_polynomial": lambda gamma, degree, coef0: InversePolynomial(),
    "linear": lambda gamma, degree, coef0: DotProduct((0.0, 1.0)),
    "laplacian": lambda gamma, degree, coef0: Laplacian(gamma),
    "matern": lambda gamma, degree, coef0: Matern(1.0 / math.sqrt(2.0 * gamma)),
}


def resolve_kernel(
    kernel: Any, X: Any, gamma: Any = "scale", degree: int = 3, coef0: float = 1.0
) -> Kernel:
    """The kernel object that a user's ``kernel``, ``gamma``, ``degree`` and ``coef0`` mean.

    Parameters
    ----------
    kernel : Kernel or str
        An object of this module, or "gaussian" / "rbf", "poly" / "polynomial", "exponential",
        "inverse_polynomial", "linear", "laplacian", "matern".
    X : {array-like, CSR} of shape (n, d)
        The data, which gamma="scale" looks at.
    gamma : "scale", "auto" or float
        "scale" is 1 / (d var(X)), "auto" is 1 / d, as in scikit-learn.

    Examples
    --------
    >>> resolve_kernel("rbf", [[0.0, 2.0]], gamma="scale")
    Gaussian(gamma=0.5)
    """
    if isinstance(kernel, Kernel):
        if gamma != "scale":
            raise ValueError(f"gamma={gamma!r} is given beside {kernel!r}: set it in the kernel")
        return kernel
    if not isinstance(kernel, str) or kernel not in NAMES:
        raise ValueError(
            f"kernel={kernel!r} is unknown: use one of {', '.join(sorted(NAMES))}, or an object "
            "of kernelsieve.kernels"
        )
    return NAMES[kernel](_resolve_gamma(gamma, X), degree, coef0)


def _resolve_gamma(gamma: Any, X: Any) -> float:
    if isinstance(gamma, str):
        check_choice(gamma, "gamma", ("scale", "auto"))
        X = check_points(X)
        variance = _variance(X) if gamma == "scale" else 1.0
        scale = 1.0 / (X.shape[1] * variance) if variance > 0 else np.inf
        return scale if math.isfinite(scale) else 1.0
    if gamma is None:
        return _resolve_gamma("auto", X)
    return check_positive(gamma, "gamma", "it is the inverse square of a length; or use 'scale'")


def _variance(X: Any) -> float:
    size = X.shape[0] * X.shape[1]
    mean = float(X.sum(dtype=np.float64)) / size
    if sp.issparse(X):
        squares = float(np.sum((X.data - mean) ** 2, dtype=np.float64))
        variance = (squares + (size - X.nnz) * mean**2) / size
    else:
        variance = float(X.var(dtype=np.float64))
    # Of a constant the rounding of its mean is left, which is no variance.
    return variance if variance > (8.0 * np.finfo(np.float64).eps * mean) ** 2 else 0.0
