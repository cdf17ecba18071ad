"""Kernels of the distance between two points, and their Gram matrices tile by tile."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import gammainc, gammaln, kve

from kernelsieve._native.product_gram import GAUSSIAN, LAPLACIAN
from kernelsieve._state import number, positive
from kernelsieve._validation import check_points, check_positive
from kernelsieve.kernels.base import Kernel, SeriesKernel
from kernelsieve.kernels.distance_gram import distances, gaussian_against, manhattan
from kernelsieve.kernels.families import HIGHEST_FREQUENCY
from kernelsieve.kernels.product import Product
from kernelsieve.kernels.tiles import Tiles, scaled_tiles
from kernelsieve.sources.base import Source
from kernelsieve.sources.summaries import column_means


@dataclass(frozen=True)
class Gaussian(SeriesKernel):
    """k(x, y) = exp(-gamma ‖x - y‖^2); the paper's kernel has gamma = 1/2.

    Parameters
    ----------
    gamma : float, default 1.0
        Inverse squared length scale.
    """

    gamma: float = 1.0

    of_inner_products: ClassVar[bool] = False  # bounded, whatever its series
    bounded: ClassVar[bool] = True
    radial: ClassVar[bool] = True
    has_frequencies: ClassVar[bool] = True
    _state_fields: ClassVar = {"gamma": positive}

    def __post_init__(self) -> None:
        check_positive(self.gamma, "gamma", "it divides squared distances by a length scale")

    def frequencies(
        self, n_columns: int, count: int, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        return rng.standard_normal((n_columns, count)) * self.frequency_scales(count, rng)

    def frequency_scales(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        return np.full(count, math.sqrt(2.0 * self.gamma))

    def product_factors(self) -> Product:
        return Product(math.sqrt(self.gamma), "gaussian")

    def against(self, points: NDArray[Any]) -> Callable[[NDArray[Any]], NDArray[Any]]:
        root = float(np.sqrt(self.gamma))
        return gaussian_against(lambda rows: root * rows, root * points)

    def tiles(self, X: Any, Y: Any, dtype: Any) -> Tiles:
        if sp.issparse(X) or sp.issparse(Y):
            return super().tiles(X, Y, dtype)
        return scaled_tiles(X, Y, math.sqrt(self.gamma), GAUSSIAN, dtype)

    def _gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]:
        gram = distances(X, Y, -self.gamma, np.exp, n_jobs)
        if symmetric:
            np.fill_diagonal(gram, 1.0)
        return gram

    def diag(self, X: Any) -> NDArray[Any]:
        X = check_points(X)
        return np.ones(X.shape[0], dtype=X.dtype)

    @property
    def scale(self) -> float:
        return math.sqrt(2.0 * self.gamma)

    @property
    def _damped(self) -> bool:
        return True

    def _mean_point(self, X: Source, center: Any) -> NDArray[Any] | None:
        if X.sparse:
            if center is True:
                raise ValueError(
                    "center=True would make a sparse X dense: pass a dense X, or center='auto'"
                )
            return None
        return None if center is False else column_means(X)

    def _log_coefficients(self, degree: int) -> NDArray[np.float64]:
        return -gammaln(np.arange(degree + 1) + 1.0)

    def _log_tail(self, squared_radius: NDArray[np.float64], q: int) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return np.log(gammainc(q + 1.0, squared_radius))  # P(Poisson(|x'|^2) > q)


@dataclass(frozen=True)
class Laplacian(Kernel):
    """k(x, y) = exp(-gamma ‖x - y‖_1), which has no Taylor series in <x, y>.

    Parameters
    ----------
    gamma : float, default 1.0
        Inverse length scale.
    """

    gamma: float = 1.0

    bounded: ClassVar[bool] = True
    has_frequencies: ClassVar[bool] = True
    _state_fields: ClassVar = {"gamma": positive}

    def __post_init__(self) -> None:
        check_positive(self.gamma, "gamma", "it divides distances by a length scale")

    def frequencies(
        self, n_columns: int, count: int, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        return self.gamma * rng.standard_cauchy((n_columns, count))

    def product_factors(self) -> Product:
        return Product(self.gamma, "laplacian")

    def tiles(self, X: Any, Y: Any, dtype: Any) -> Tiles:
        if sp.issparse(X) or sp.issparse(Y):
            return super().tiles(X, Y, dtype)
        return scaled_tiles(X, Y, self.gamma, LAPLACIAN, dtype)

    def _gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]:
        return manhattan(X, Y, -self.gamma, n_jobs)

    def diag(self, X: Any) -> NDArray[Any]:
        X = check_points(X)
        return np.ones(X.shape[0], dtype=X.dtype)


@dataclass(frozen=True)
class Matern(Kernel):
    """The Matern kernel of ‖x - y‖, which has no Taylor series in <x, y>.

    Parameters
    ----------
    length_scale : float, default 1.0
        Distances are divided by it.
    nu : float, default 1.5
        Smoothness; 0.5, 1.5 and 2.5 are the quickest.
    """

    length_scale: float = 1.0
    nu: float = 1.5

    bounded: ClassVar[bool] = True
    radial: ClassVar[bool] = True
    has_frequencies: ClassVar[bool] = True
    # The length scale is squared, and Bessel functions of huge orders take for ever.
    _state_fields: ClassVar = {"length_scale": number(1e-153, 1e153), "nu": number(1e-6, 1e6)}

    _closed_forms: ClassVar = {
        0.5: lambda t: np.exp(-t),
        1.5: lambda t: (1.0 + t) * np.exp(-t),
        2.5: lambda t: (1.0 + t + t * t / 3.0) * np.exp(-t),
    }

    def __post_init__(self) -> None:
        check_positive(self.length_scale, "length_scale", "distances are divided by it")
        check_positive(self.nu, "nu", "it is the smoothness of the kernel")

    def frequencies(
        self, n_columns: int, count: int, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        return rng.standard_normal((n_columns, count)) * self.frequency_scales(count, rng)

    def frequency_scales(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            stretch = np.sqrt(2.0 * self.nu / rng.chisquare(2.0 * self.nu, size=count))
        return np.minimum(stretch, HIGHEST_FREQUENCY) / self.length_scale

    def tiles(self, X: Any, Y: Any, dtype: Any) -> Tiles:
        if sp.issparse(X) or sp.issparse(Y):
            return super().tiles(X, Y, dtype)
        scale = math.sqrt(2.0 * self.nu) / self.length_scale
        return scaled_tiles(X, Y, scale, GAUSSIAN, dtype, self._of_negative_square)

    def _gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]:
        factor = 2.0 * self.nu / self.length_scale**2
        gram = distances(X, Y, -factor, self._of_negative_square, n_jobs, -(50.0**2))
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
