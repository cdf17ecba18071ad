"""Kernels of the distance between two points."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaln, kve

from kernelsieve._state import number, positive
from kernelsieve._validation import check_points, check_positive
from kernelsieve.kernels.base import Kernel, SeriesKernel
from kernelsieve.kernels.gram import distances, manhattan
from kernelsieve.sources.base import Source
from kernelsieve.sources.summaries import column_means


@dataclass(frozen=True)
class Gaussian(SeriesKernel):
    """k(x, y) = exp(-gamma ‖x - y‖^2); the paper's kernel is gamma = 1/2."""

    gamma: float = 1.0

    _state_fields: ClassVar = {"gamma": positive}

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

    def _mean_point(self, X: Source, center: Any) -> NDArray[Any] | None:
        if X.sparse:
            if center is True:
                raise ValueError("center=True would fill a sparse X: densify it or use 'auto'")
            return None
        return None if center is False else column_means(X)

    def _log_coefficients(self, degree: int) -> NDArray[np.float64]:
        return -gammaln(np.arange(degree + 1) + 1.0)

    def _log_tail(self, squared_radius: NDArray[np.float64], q: int) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return np.log(gammainc(q + 1.0, squared_radius))  # P(Poisson(|x'|^2) > q)


@dataclass(frozen=True)
class Laplacian(Kernel):
    """k(x, y) = exp(-gamma ‖x - y‖_1). Exact only: it has no Taylor series in <x, y>."""

    gamma: float = 1.0

    _state_fields: ClassVar = {"gamma": positive}

    def __post_init__(self) -> None:
        check_positive(self.gamma, "gamma", "it divides distances by a length scale")

    def _gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]:
        return manhattan(X, Y, -self.gamma, n_jobs)

    def diag(self, X: Any) -> NDArray[Any]:
        X = check_points(X)
        return np.ones(X.shape[0], dtype=X.dtype)


@dataclass(frozen=True)
class Matern(Kernel):
    """The Matern kernel of smoothness ``nu`` at distance ‖x - y‖ / length_scale. Exact only."""

    length_scale: float = 1.0
    nu: float = 1.5

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
