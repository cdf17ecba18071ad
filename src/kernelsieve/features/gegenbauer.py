"""Random Gegenbauer features (Han, Zandieh and Avron, 2022): zonal functions of random directions.

On the sphere in R^d, with P_l the Gegenbauer polynomial of degree l, P_l(1) = 1, and a_l the number
of spherical harmonics of degree l, E[a_l P_l(<x, w>) P_m(<w, y>)] = P_l(<x, y>) [l = m] for a
uniform direction w (docs/spherical-kernels.md).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from kernelsieve._random import stream
from kernelsieve._state import array, instance, optional, wrong
from kernelsieve._validation import check_matrix, check_positive
from kernelsieve.features.base import FeatureMap
from kernelsieve.features.series import TRUNCATION, SeriesRows
from kernelsieve.features.sphere import polar
from kernelsieve.kernels import SeriesKernel
from kernelsieve.kernels.base import Series
from kernelsieve.kernels.zonal import SphericalKernel, gegenbauer, gegenbauer_coefficients
from kernelsieve.sketches.srht import random_signs

# Kernels of the angle end at the degree that leaves this share of f(1), or here: their coefficients
# fall like a power of the degree, and the variance of a degree grows with its harmonics.
LAST_DEGREE = 32
LEFT_OUT = 1e-3


class GegenbauerFeatures(FeatureMap):
    """Zonal functions of random directions, for kernels of the angle and Taylor series.

    A feature is a sum over degrees l of a function of the length of x times a Gegenbauer polynomial
    of the cosine between x and a random direction. It holds all degrees at once, for every kernel
    of the angle and every inner-product kernel. For few columns: the variance of a degree grows
    with its number of spherical harmonics. E[Z Z^T] is the truncated kernel.

    Parameters
    ----------
    n_components : int, default 1000
        Number of features, each with a direction of its own.
    kernel : Kernel or str, default "gaussian"
        A kernel of the angle (ArcCosine, NeuralTangent, Zonal) or one with a Taylor series
        (Gaussian, Polynomial, Exponential, ...), or the name of one.
    gamma : "scale", "auto" or float, default "scale"
        Of a kernel given by name: "scale" is 1 / (d var(X)), and "auto" is 1 / d.
    degree : int, default 3
        Degree of kernel="poly".
    coef0 : float, default 1.0
        Constant of kernel="poly".
    alpha : float, default None
        Ridge that the features will be used with, which affects only the truncation of a Taylor
        series. None takes that of the model, or 1.
    eps : float, default 0.5
        The trace that the truncation of a Taylor series cuts off is at most eps alpha / 2000.
    center : "auto", True or False, default "auto"
        Whether to subtract the column means; "auto" does so for the Gaussian on dense data.
    random_state : int, RandomState, Generator or None, default None
        Seed of all random choices; None draws a new one for every fit.
    n_jobs : int, optional
        Number of threads; None uses all cores.

    Attributes
    ----------
    directions_ : ndarray of shape (d, n_components)
        Unit vectors, orthogonal in blocks of d.
    truncation_degree_ : int
        The last degree.
    n_components_ : int
        Number of features.
    kernel_ : Kernel
        The kernel in use.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if X had names.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import GegenbauerFeatures
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> GegenbauerFeatures(64, kernel="ntk", random_state=0).fit_transform(X).shape
    (100, 64)
    """

    unbiased: ClassVar[bool] = True

    _series: Series | None

    _state_fields: ClassVar = {
        "directions_": array("d", "s"),
        "_signs": array("terms", "s", dtype=(np.int8,), low=-1, high=1),
        "_series": optional(instance(Series)),
    }
    _not_stored: ClassVar = dict.fromkeys(("truncation_degree_", "_weights"), "computed")

    def _complete(self) -> None:
        super()._complete()
        series, d = self._series, self.n_features_in_
        if (series is None) != isinstance(self.kernel_, SphericalKernel):
            wrong("_series", "is there for a kernel of the angle, or missing for another one")
        if series is not None and series.center is not None and len(series.center) != d:
            wrong("_series", f"is centred in {len(series.center)} columns instead of {d}")
        self._weights = self._computed_weights(d)
        if len(self._signs) != sum(map(len, self._weights)):
            wrong("_signs", f"are for {len(self._signs)} terms")
        self.truncation_degree_ = len(self._weights) - 1 if series is None else series.degree
        self.n_components_ = self.directions_.shape[1]

    def __init__(
        self,
        n_components: int = 1000,
        *,
        kernel: Any = "gaussian",
        gamma: Any = "scale",
        degree: int = 3,
        coef0: float = 1.0,
        alpha: float | None = None,
        eps: float = 0.5,
        center: Any = "auto",
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.alpha = alpha
        self.eps = eps
        self.center = center
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit(self, X: Any, y: Any, seed: int) -> None:
        alpha = 1.0 if self.alpha is None else self.alpha
        check_positive(alpha, "alpha", "it is added to the kernel's diagonal")
        check_positive(self.eps, "eps", "it is the spectral error to aim at")
        self._series = None
        self.kernel_.diag(X)  # says so if it overflows X's float type
        if not isinstance(self.kernel_, SphericalKernel):
            if not isinstance(self.kernel_, SeriesKernel):
                raise ValueError(
                    f"kernel={self.kernel_!r} is neither a function of the angle nor a Taylor "
                    "series: use NystromFeatures or FourierFeatures"
                )
            tolerance = 0.5 * TRUNCATION * self.eps * alpha
            self._series = self.kernel_.series_of(X, tolerance, self.center)
        d, size = X.shape[1], int(self.n_components)
        self.directions_ = unit_directions(d, size, stream(seed, "directions"))
        terms = sum(map(len, self._computed_weights(d)))
        signs = random_signs(terms * size, stream(seed, "signs"))
        self._signs = signs.reshape(terms, size)
        self._complete()

    @property
    def terms(self) -> tuple[Series | None, list[NDArray[np.float64]], NDArray[np.int8]]:
        """The series of the kernel (None for one of the angle), and weights and signs of terms."""
        return self._series, self._weights, self._signs

    def _computed_weights(self, d: int) -> list[NDArray[np.float64]]:
        """What the functions of the length are multiplied by, for each degree."""
        if self._series is not None:
            return series_weights(self._series.degree, d)
        assert isinstance(self.kernel_, SphericalKernel)
        coefficients = gegenbauer_coefficients(self.kernel_, LAST_DEGREE, d)
        top = float(self.kernel_.of_cosine(np.ones(1), d)[0])
        enough = np.cumsum(coefficients) >= (1.0 - LEFT_OUT) * top
        last = int(np.argmax(enough)) if enough.any() else LAST_DEGREE
        degrees = range(min(last, 1) + 1 if d == 1 else last + 1)
        scales = [np.sqrt(coefficients[w]) * np.exp(0.5 * log_harmonics(w, d)) for w in degrees]
        return [np.array([scale]) for scale in scales]

    def _fill(self, X: Any, out: NDArray[Any]) -> None:
        if self._series is None:
            unit, amplitudes = polar(self.kernel_, X)
            assert amplitudes is not None
            scales = amplitudes[:, None]
        else:
            rows = SeriesRows.of(self._series, X)
            unit, scales = rows.unit(), rows.scales
        cosines = unit @ self.directions_.astype(X.dtype)
        np.clip(cosines, -1.0, 1.0, out=cosines)
        signs = self._signs.astype(X.dtype)
        out[...] = 0.0
        polynomials = gegenbauer(cosines, len(self._weights) - 1, self.n_features_in_)
        stop = 0
        for w, polynomial in enumerate(polynomials):
            weights = self._weights[w].astype(X.dtype)
            start, stop = stop, stop + len(weights)
            lengths = scales if self._series is None else scales[:, w::2]
            # Every term has a sign of its own. That makes the cross terms of functions of the
            # length vanish in the mean, and keeps degrees from adding up where x is close to w.
            out += ((lengths * weights) @ signs[start:stop]) * polynomial
        out *= X.dtype.type(self.n_components_**-0.5)


def unit_directions(d: int, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Uniform directions in R^d, orthogonal to each other in blocks of d: columns of (d, size)."""
    check_matrix(size, d, np.float64, f"{size:,} directions in {d:,} columns", "lower n_components")
    blocks = []
    for start in range(0, size, d):
        normal = rng.standard_normal((d, min(d, size - start)))
        block, upper = np.linalg.qr(normal)
        blocks.append(block * np.where(np.diag(upper) < 0, -1.0, 1.0))
    return np.hstack(blocks)


def log_harmonics(degree: int, d: int) -> float:
    """log of the number of independent spherical harmonics of a degree in R^d.

    Examples
    --------
    >>> [round(float(np.exp(log_harmonics(w, 3)))) for w in range(4)]
    [1, 3, 5, 7]
    """
    if degree == 0 or d == 1:
        return 0.0
    binomial = gammaln(degree + d - 1.0) - gammaln(degree + 1.0) - gammaln(d - 1.0)
    return float(np.log((2.0 * degree + d - 2.0) / (degree + d - 2.0)) + binomial)


def series_weights(degree: int, d: int) -> list[NDArray[np.float64]]:
    """For each l the root of a_l times the coefficients of P_l in t^l, t^(l+2), ....

    t^j = sum over l = j - 2 i of a_l e P_l(t), with
    e = E[t^j P_l(t)] = j! Gamma(d/2) / (2^j i! Gamma(i + l + d/2)) (Rodrigues' formula).
    """
    weights = []
    for w in range(min(degree, 1) + 1 if d == 1 else degree + 1):
        i = np.arange((degree - w) // 2 + 1.0)
        j = w + 2.0 * i
        log_mean = gammaln(j + 1.0) + gammaln(d / 2) - j * np.log(2.0)
        log_mean -= gammaln(i + 1.0) + gammaln(i + w + d / 2)
        weights.append(np.exp(log_harmonics(w, d) + 0.5 * log_mean))
    return weights
