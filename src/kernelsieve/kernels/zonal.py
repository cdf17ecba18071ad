"""Kernels of the angle between two points: neural networks of infinite width, and any others.

    k(x, y) = |x|^p |y|^p f(t),  t = <x, y> / (|x| |y|)

A zero row has no direction: its kernel is 0 with every row, itself included.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._state import list_of, number, whole
from kernelsieve._validation import check_count, check_points
from kernelsieve.kernels.base import Kernel, SeriesKernel
from kernelsieve.kernels.gram import fill_gram
from kernelsieve.kernels.series import MAX_DEGREE, Series
from kernelsieve.sources.given import as_source
from kernelsieve.sources.summaries import squared_norms

# Taylor coefficients from values on a circle of this radius: aliases are multiplied by
# RADIUS^CIRCLE = 1e-16, and rounding errors by RADIUS^-256 < 2.
CIRCLE = 2**14
RADIUS = 1e-16 ** (1.0 / CIRCLE)
# The series of a network's kernel converges like a power of the degree. From here on the degrees
# are taken together: what they add for rows at an angle is small, and most of it is for t near 1.
LONGEST_SERIES = 48
SERIES_SHARE = 0.005  # of f(1) that may be beyond the last degree
UNIT = 1e-3  # how far a squared length may be from 1 to count as normalised
MOST_LAYERS = 100
QUADRATURE = 512  # nodes on the half circle, for functions with a kink at its ends


class SphericalKernel(Kernel):
    """A power of the lengths of two rows times a function of the cosine of their angle."""

    spherical: ClassVar[bool] = True

    @property
    @abstractmethod
    def length_power(self) -> float:
        """p: what the lengths are raised to."""

    @abstractmethod
    def of_cosine(self, t: NDArray[Any], n_columns: int) -> NDArray[Any]:
        """f(t), for rows of ``n_columns``."""

    def amplitudes(self, X: Any) -> NDArray[np.float64]:
        """The norm of every row to the power p, 0 for a zero row."""
        squares = squared_norms(X)
        with np.errstate(over="ignore", divide="ignore"):
            return np.where(squares > 0, squares ** (0.5 * self.length_power), 0.0)

    def _gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]:
        d, dtype = X.shape[1], np.result_type(X.dtype, Y.dtype)
        left = self.amplitudes(X)
        right = left if Y is X else self.amplitudes(Y)
        # In float64: an angle of rounding size is the root of the cosine's rounding.
        unit = unit_rows(X.astype(np.float64))
        other = unit if Y is X else unit_rows(Y.astype(np.float64))

        def of_product(tile: NDArray[Any]) -> None:
            np.clip(tile, -1.0, 1.0, out=tile)
            tile[...] = self.of_cosine(tile, d)

        gram = fill_gram(unit, other, of_product, n_jobs)
        if symmetric:
            np.fill_diagonal(gram, self.of_cosine(np.ones(1), d)[0])
        with np.errstate(over="ignore", invalid="ignore"):
            gram *= left[:, None]
            gram *= right
            gram = gram.astype(dtype, copy=False)
        if not np.isfinite(gram).all():
            raise ValueError(f"{self!r} overflows {dtype} on this data: scale X")
        return gram

    def diag(self, X: Any) -> NDArray[Any]:
        X = check_points(X)
        top = self.of_cosine(np.ones(1), X.shape[1])[0]
        with np.errstate(over="ignore"):
            values = (np.square(self.amplitudes(X)) * top).astype(X.dtype)
        if not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values)))
            raise ValueError(
                f"row {row} has |x|^2 = {squared_norms(X)[row]:.6g}, where {self!r} overflows "
                f"{values.dtype}: scale X"
            )
        return values


def unit_rows(X: Any) -> Any:
    """The rows of X divided by their lengths; zero rows stay, and sparse rows stay sparse."""
    entries = X.data if sp.issparse(X) else X
    largest = float(np.abs(entries).max(initial=0.0))
    if not 1e-15 < largest < 1e15:  # so that no square overflows; a power of two rounds nothing
        X = X * X.dtype.type(0.5 ** np.floor(np.log2(largest or 1.0)))
    lengths = np.sqrt(squared_norms(X))
    inverse = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    inverse = inverse.astype(X.dtype)
    if not sp.issparse(X):
        return X * inverse[:, None]
    data = X.data * np.repeat(inverse, np.diff(X.indptr))
    return sp.csr_array((data, X.indices, X.indptr), shape=X.shape)


class _NetworkKernel(SphericalKernel, SeriesKernel):
    """A kernel whose f has Taylor coefficients >= 0, so that it is one in any dimension.

    On rows of length 1 it is a series in <x, y>, which the product maps and the sketches sample.
    """

    series_is_cut: ClassVar[bool] = True  # the coefficients fall like a power of the degree

    @abstractmethod
    def _values(self, t: NDArray[Any]) -> NDArray[Any]:
        """f at points of the complex unit disk."""

    def of_cosine(self, t: NDArray[Any], n_columns: int) -> NDArray[Any]:
        return self._values(t)

    def taylor(self, degree: int) -> NDArray[np.float64]:
        """The Taylor coefficients of f, of degrees 0 to ``degree`` (at most 256).

        Examples
        --------
        >>> ArcCosine(1).taylor(3).round(4)
        array([0.3183, 0.5   , 0.1592, 0.    ])
        """
        return _taylor(self, degree)

    def series_of(
        self, X: Any, tol: float, center: Any = "auto", max_degree: int = MAX_DEGREE
    ) -> Series:
        """The series for rows of length 1, with all high degrees in the last two.

        Parameters
        ----------
        X : {ndarray, CSR} of shape (n, d), or Source
            Rows of length 1, or 0.
        tol, center, max_degree
            See `series`.

        Returns
        -------
        Series
            Exact for equal and for opposite rows; for others the coefficients beyond its degree,
            at most half a per cent of k(x, x) up to degree 48, bound the error.
        """
        source = as_source(X)
        self._mean_point(source, center)
        source.reduce(lambda block: _check_unit(block.X, block.start))
        allowed = max(tol / max(1, source.shape[0]), SERIES_SHARE * self.total())
        folded = self.folded(allowed, min(LONGEST_SERIES, max_degree))
        with np.errstate(divide="ignore"):
            return Series(1.0, None, False, np.log(folded), 0.0)

    def folded(self, allowed: float, longest: int) -> NDArray[np.float64]:
        """Taylor coefficients up to where ``allowed`` is left, with the rest in the last two."""
        coefficients = self.taylor(longest)
        totals = self._values(np.array([1.0, -1.0]))
        missing = totals[0] - np.cumsum(coefficients)
        degree = int(np.argmax(missing <= allowed)) if missing[-1] <= allowed else longest
        folded = coefficients[: max(degree, 1) + 1].copy()
        for parity, total in enumerate(((totals.sum()) / 2, (totals[0] - totals[1]) / 2)):
            places = np.arange(parity, len(folded), 2)
            folded[places[-1]] += max(0.0, float(total) - folded[places].sum())
        return folded

    def total(self) -> float:
        """f(1)."""
        return float(self._values(np.ones(1))[0])

    @property
    def scale(self) -> float:
        return 1.0

    def _log_coefficients(self, degree: int) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return np.log(self.taylor(degree))

    def _log_tail(self, squared_radius: NDArray[np.float64], q: int) -> NDArray[np.float64]:
        rest = self.total() - float(self.taylor(q).sum())
        with np.errstate(divide="ignore"):
            return np.log(max(rest, 0.0)) + (q + 1.0) * np.log(squared_radius)


@lru_cache(maxsize=32)
def _circle(kernel: _NetworkKernel) -> NDArray[np.float64]:
    points = RADIUS * np.exp(2j * np.pi * np.arange(CIRCLE) / CIRCLE)
    coefficients = np.fft.fft(kernel._values(points)).real[: MAX_DEGREE + 1] / CIRCLE
    coefficients *= RADIUS ** -np.arange(MAX_DEGREE + 1.0)
    # They are non-negative; what is of rounding size is 0.
    return np.where(coefficients > 1e-14 * coefficients.max(), coefficients, 0.0)


def _taylor(kernel: _NetworkKernel, degree: int) -> NDArray[np.float64]:
    return _circle(kernel)[: degree + 1].copy()


def _check_unit(X: Any, start: int) -> int:
    squares = squared_norms(X)
    wrong = (np.abs(squares - 1.0) > UNIT) & (squares > 0)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"row {start + row} has |x|^2 = {squares[row]:.6g}: the series is for rows of length "
            "1; divide every row by its length (feature maps do that by themselves)"
        )
    return 0


@dataclass(frozen=True)
class ArcCosine(_NetworkKernel):
    """The arc-cosine kernel (Cho and Saul, 2009): one infinitely wide layer of random units.

    k(x, y) = 2 E[s(<w, x>) s(<w, y>)] over normal w, with s(a) = a^order for a > 0, else 0.

    Parameters
    ----------
    order : 0, 1 or 2, default 1
        0 is a step, 1 is ReLU, 2 its square.

    Examples
    --------
    >>> ArcCosine(0)([[1.0, 0.0], [0.0, 2.0]])
    array([[1. , 0.5],
           [0.5, 1. ]])
    """

    order: int = 1

    _state_fields: ClassVar = {"order": whole(0, 2)}

    def __post_init__(self) -> None:
        if self.order not in (0, 1, 2):
            raise ValueError(
                f"order={self.order!r} must be 0, 1 or 2: the power of the units that are on"
            )

    @property
    def length_power(self) -> float:
        return float(self.order)

    def _values(self, t: NDArray[Any]) -> NDArray[Any]:
        if self.order == 0:
            return step_kernel(t)
        if self.order == 1:
            return relu_kernel(t)
        return 3.0 * t * _sine(t) / np.pi + step_kernel(t) * (1.0 + 2.0 * t * t)


@dataclass(frozen=True)
class NeuralTangent(_NetworkKernel):
    """The neural tangent kernel of a fully connected ReLU network (Jacot et al., 2018).

    What gradient descent on an infinitely wide network without biases does is kernel regression
    with this kernel. Weights are N(0, 2 / width), so that ``k(x, x) = (depth + 1) |x|^2``.

    Parameters
    ----------
    depth : int, default 1
        Number of hidden layers.

    Examples
    --------
    >>> NeuralTangent(depth=2)([[1.0, 0.0], [0.0, 1.0]]).round(4)
    array([[3.    , 0.6857],
           [0.6857, 3.    ]])
    """

    depth: int = 1

    _state_fields: ClassVar = {"depth": whole(1, MOST_LAYERS)}

    def __post_init__(self) -> None:
        check_count(self.depth, "depth", "it is the number of hidden layers")
        if self.depth > MOST_LAYERS:
            raise ValueError(f"depth={self.depth} must be at most {MOST_LAYERS}")

    @property
    def length_power(self) -> float:
        return 1.0

    def _values(self, t: NDArray[Any]) -> NDArray[Any]:
        tangent, cosine = t, t
        for _ in range(self.depth):
            slopes = step_kernel(cosine)
            cosine = relu_kernel(cosine)
            if not np.iscomplexobj(cosine):
                cosine = np.minimum(cosine, 1.0)
            tangent = tangent * slopes + cosine
        return tangent


def step_kernel(t: NDArray[Any]) -> NDArray[Any]:
    """1 - angle / pi: the arc-cosine kernel of order 0."""
    return 1.0 - np.arccos(t) / np.pi


def relu_kernel(t: NDArray[Any]) -> NDArray[Any]:
    """The arc-cosine kernel of order 1."""
    return _sine(t) / np.pi + t * step_kernel(t)


def _sine(t: NDArray[Any]) -> NDArray[Any]:
    return np.sqrt((1.0 - t) * (1.0 + t))


@dataclass(frozen=True)
class Zonal(SphericalKernel):
    """Any kernel of the angle, by its Gegenbauer series (Schoenberg, 1942).

    ``k(x, y) = |x|^power |y|^power sum_l coefficients[l] P_l(t)``, with the Gegenbauer
    polynomials P_l of the sphere in as many dimensions as the rows have, P_l(1) = 1. With
    coefficients >= 0 these are all the kernels of the angle in that dimension. They need not have
    a Taylor series with coefficients >= 0: ``GegenbauerFeatures`` and ``NystromFeatures`` take
    them.

    Parameters
    ----------
    coefficients : sequence of float
        Coefficients >= 0 of degrees 0, 1, ..., at least one of them positive: the part of k(x, x)
        that each degree has on rows of length 1.
    power : float, default 0.0
        What the lengths of the rows are raised to.

    Examples
    --------
    >>> Zonal([0.0, 1.0], power=1.0)([[1.0, 2.0], [3.0, 0.0]])  # the inner product
    array([[5., 3.],
           [3., 9.]])
    """

    coefficients: tuple[float, ...]
    power: float = 0.0

    _state_fields: ClassVar = {
        "coefficients": list_of(number(), tuple),
        "power": number(0.0, 100.0),
    }

    def __post_init__(self) -> None:
        coefficients = tuple(float(a) for a in self.coefficients)
        object.__setattr__(self, "coefficients", coefficients)
        if not any(coefficients) or len(coefficients) > MAX_DEGREE + 1:
            raise ValueError(
                f"coefficients are {len(coefficients)}, or all zero: pass 1 to {MAX_DEGREE + 1}, "
                "at least one of them positive"
            )
        for w, a in enumerate(coefficients):
            if not (math.isfinite(a) and a >= 0):
                raise ValueError(
                    f"coefficients[{w}]={a!r} must be finite and >= 0: with a negative coefficient "
                    "the kernel is not positive definite (Schoenberg)"
                )
        if not (math.isfinite(self.power) and 0 <= self.power <= 100):
            raise ValueError(
                f"power={self.power!r} must be from 0 to 100: lengths are raised to it"
            )

    @property
    def length_power(self) -> float:
        return float(self.power)

    def of_cosine(self, t: NDArray[Any], n_columns: int) -> NDArray[Any]:
        total = np.zeros_like(t)
        for a, polynomial in zip(
            self.coefficients, gegenbauer(t, len(self.coefficients) - 1, n_columns), strict=True
        ):
            if a:
                total += a * polynomial
        return total


def gegenbauer(t: NDArray[Any], degree: int, n_columns: int) -> Any:
    """Yield the Gegenbauer polynomials P_0(t), ..., P_degree(t) of the sphere in R^n_columns.

    P_l(1) = 1; in one dimension, where the sphere is two points, P_l(t) is t^(l mod 2), and in two
    cos(l arccos t).
    """
    if n_columns == 1:
        for w in range(degree + 1):
            yield t.copy() if w % 2 else np.ones_like(t)
        return
    before, now = np.zeros_like(t), np.ones_like(t)
    for w in range(degree + 1):
        yield now
        # (l + d - 2) P_(l+1) = (2 l + d - 2) t P_l - l P_(l-1); P_1 = t also for d = 2.
        top = w + n_columns - 2.0
        after = t.copy() if w == 0 else ((2.0 * w + n_columns - 2.0) * t * now - w * before) / top
        before, now = now, after


@lru_cache(maxsize=1)
def _quadrature() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.polynomial.legendre.leggauss(QUADRATURE)


def gegenbauer_coefficients(kernel: SphericalKernel, degree: int, n_columns: int) -> Any:
    """The coefficients of f in the Gegenbauer polynomials of the sphere in R^n_columns.

    Parameters
    ----------
    kernel : SphericalKernel
    degree : int
        The last degree.
    n_columns : int

    Returns
    -------
    ndarray of shape (degree + 1,)
        Their sum for all degrees is f(1).
    """
    if isinstance(kernel, Zonal):
        found = np.zeros(degree + 1)
        known = kernel.coefficients[: degree + 1]
        found[: len(known)] = known
        return found
    if n_columns == 1:
        ends = kernel.of_cosine(np.array([1.0, -1.0]), 1)
        found = np.zeros(degree + 1)
        found[0] = ends.sum() / 2
        found[1:2] = (ends[0] - ends[1]) / 2
        return found
    # int f(t) P_l(t) (1 - t^2)^((d - 3) / 2) dt = int f(cos a) P_l(cos a) sin(a)^(d - 2) da.
    nodes, weights = _quadrature()
    angles = 0.5 * np.pi * (nodes + 1.0)
    density = weights * np.sin(angles) ** (n_columns - 2.0)
    t = np.cos(angles)
    values = density * kernel.of_cosine(t, n_columns)
    parts = [(values @ p) / (density @ (p * p)) for p in gegenbauer(t, degree, n_columns)]
    return np.maximum(np.array(parts), 0.0)
