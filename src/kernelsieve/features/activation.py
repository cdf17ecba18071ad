"""One random layer for a whole network: the activation whose kernel is that of the network.

On the sphere in R^d let Q_l = sqrt(a_l) P_l be the Gegenbauer polynomials with E[Q_l(<x, w>)^2] = 1
over uniform directions w. For g = sum_l b_l Q_l, E[g(<x, w>) g(<w, y>)] = sum_l b_l^2 P_l(<x, y>).
So every kernel of the angle, sum_l c_l P_l, is that of one layer whose activation has the
coefficients +-sqrt(c_l). Low degrees are left out of g, and added as products of coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial import Polynomial as Powers
from numpy.typing import NDArray
from scipy.special import gammaln

from kernelsieve._native.zonal import add_polynomials
from kernelsieve.features.gegenbauer import log_harmonics
from kernelsieve.features.sphere import polar
from kernelsieve.kernels import ArcCosine, NeuralTangent
from kernelsieve.kernels.zonal import LONGEST_SERIES, SERIES_SHARE
from kernelsieve.products.degrees import Monomials
from kernelsieve.products.multisets import count_of_degree

MOST_EXACT = 4  # the highest degree whose products are listed
ROUNDING = 1e-12  # a share of the kernel that is nothing


@dataclass(frozen=True, eq=False)
class ActivationLayer:
    """One layer of random units with a derived activation, beside all products of low degrees.

    Attributes
    ----------
    kernel : ArcCosine or NeuralTangent
    directions : ndarray of shape (d, n_units)
    order : int or None
        The units are powers of ReLUs, from which low degrees are subtracted; None for a sum of
        polynomials.
    coefficients : ndarray of shape (degree + 1,)
        Of the orthonormal polynomials that are added to the units.
    exact : dict of int to float
        The roots of the coefficients of <x, y>^k, by the degree k of the products that are listed.
    """

    kernel: ArcCosine | NeuralTangent
    directions: NDArray[np.float64]
    order: int | None
    coefficients: NDArray[np.float64]
    exact: dict[int, float]
    monomials: dict[int, Monomials]

    @classmethod
    def draw(
        cls, kernel: Any, d: int, size: int, directions: Callable[[int, int], NDArray[np.float64]]
    ) -> ActivationLayer:
        """A layer for rows of d columns, with at most ``size`` features.

        ``directions`` gives so many in so many columns.
        """
        order = kernel.order if isinstance(kernel, ArcCosine) else None
        if order is None:
            activation = tangent_activation(kernel, d)
        else:
            activation = unit_activation(order, d, last_degree(MOST_EXACT, d))
        below, exact = exact_degrees(activation, kernel.total(), d, size)
        coefficients = activation.copy()
        if order is None:
            coefficients[:below] = 0.0
        else:
            coefficients = -coefficients[:below]
        n_listed = sum(count_of_degree(d, k) for k in exact)
        nothing = np.sum(activation[:below] ** 2) >= (1.0 - ROUNDING) * kernel.total()
        n_units = 0 if nothing else size - n_listed
        return cls(
            kernel,
            directions(d, n_units) if n_units else np.empty((d, 0)),
            order,
            coefficients,
            {k: float(np.sqrt(a)) for k, a in exact.items()},
            {k: Monomials.of(d, k) for k in exact},
        )

    @property
    def size(self) -> int:
        """The number of features."""
        return self.directions.shape[1] + sum(len(m.weights) for m in self.monomials.values())

    def arrays(self) -> list[NDArray[Any]]:
        """What was drawn."""
        return [self.directions] if self.directions.size else []

    def fill(self, X: Any, out: NDArray[Any]) -> None:
        """Write the features of rows into ``out``."""
        unit, amplitudes = polar(self.kernel, X)
        assert amplitudes is not None
        stop = 0
        for k, monomials in self.monomials.items():
            start, stop = stop, stop + len(monomials.weights)
            monomials.fill(unit, out[:, start:stop])
            out[:, start:stop] *= X.dtype.type(self.exact[k])
        if stop < out.shape[1]:
            out[:, stop:] = self._units(unit @ self.directions.astype(X.dtype))
        out *= amplitudes[:, None]

    def _units(self, cosines: NDArray[Any]) -> NDArray[Any]:
        """The activations, over the root of their number."""
        (d, n_units), dtype = self.directions.shape, cosines.dtype
        np.clip(cosines, -1.0, 1.0, out=cosines)
        values = np.zeros_like(cosines)
        if self.order is not None:
            values += units(cosines, self.order)
            values *= dtype.type(np.sqrt(unit_scale(self.order, d)))
        slopes, drops = recurrence(len(self.coefficients) - 1, d)
        coefficients = self.coefficients.astype(dtype)
        add_polynomials(cosines, coefficients, slopes.astype(dtype), drops.astype(dtype), values)
        values *= dtype.type(n_units**-0.5)
        return values


def units(a: NDArray[Any], order: int) -> NDArray[Any]:
    """a^order where a > 0, else 0."""
    if order == 0:
        return (a > 0).astype(a.dtype)
    a = np.maximum(a, a.dtype.type(0.0))
    return a if order == 1 else a * a


def unit_scale(order: int, d: int) -> float:
    """2 E |w|^(2 order) over normal w: directions and lengths of such a w are independent."""
    return 2.0 * float(np.prod([d + 2.0 * i for i in range(order)]))


def last_degree(degree: int, d: int) -> int:
    """The last degree that there is on the sphere: in one dimension it has two points."""
    return min(degree, 1) if d == 1 else degree


def recurrence(degree: int, d: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The factors of the orthonormal polynomials: Q_(l+1) = slopes t Q_l - drops Q_(l-1)."""
    w = np.arange(max(degree, 0.0))
    roots = np.array([0.5 * log_harmonics(k, d) for k in range(degree + 1)])
    with np.errstate(invalid="ignore", divide="ignore"):
        top = w + d - 2.0
        slopes = np.where(w == 0, 1.0, (2.0 * w + d - 2.0) / top) * np.exp(np.diff(roots))
        ratios = np.exp(roots[1:] - np.concatenate([[0.0], roots[:-2]])[: len(w)])
        drops = np.where(w == 0, 0.0, w / top * ratios)
    return slopes, drops


def polynomials(degree: int, d: int) -> list[Powers]:
    """Q_0, ..., Q_degree as polynomials of sqrt(d) t, which is close to normal."""
    slopes, drops = recurrence(degree, d)
    found = [Powers([1.0])]
    before, variable = Powers([0.0]), Powers([0.0, d**-0.5])
    for slope, drop in zip(slopes, drops, strict=True):
        after = slope * variable * found[-1] - drop * before
        before = found[-1]
        found.append(after)
    return found


def unit_activation(order: int, d: int, degree: int) -> NDArray[np.float64]:
    """The coefficients E[s(t) Q_l(t)] of the scaled units of the arc-cosine kernel.

    The moments of t where it is positive are halves of Beta functions.
    """
    n = order + np.arange(degree + 1.0)
    log_moments = gammaln((n + 1) / 2) + gammaln(d / 2) - gammaln(0.5) - gammaln((n + d) / 2)
    moments = 0.5 * np.exp(log_moments + 0.5 * np.arange(degree + 1.0) * np.log(d))
    inner = [float(p.coef @ moments[: len(p.coef)]) for p in polynomials(degree, d)]
    return np.sqrt(unit_scale(order, d)) * np.array(inner)


def tangent_activation(kernel: NeuralTangent, d: int) -> NDArray[np.float64]:
    """Coefficients whose squares are those of the kernel, with the signs of steps and ReLUs.

    The signs are free. Those of steps (odd degrees) and ReLUs (even ones) give a function with
    a jump at 0 and no peak at x = w: the fourth moment of a peak would be large.
    """
    taylor = kernel.folded(SERIES_SHARE * kernel.total(), LONGEST_SERIES)
    found = np.sqrt(zonal_coefficients(taylor, d))
    w = np.arange(len(found))
    return found * np.where((w + 1) // 2 % 2 == 1, 1.0, -1.0) ** (w > 0)


def zonal_coefficients(taylor: NDArray[np.float64], d: int) -> NDArray[np.float64]:
    """Coefficients of P_l in sum_j taylor[j] t^j: a_l E[t^j P_l(t)] for j = l, l + 2, ....

    They are sums of positive terms, unlike a quadrature, which loses all digits for large d and l.
    """
    degree = len(taylor) - 1
    found = np.zeros(last_degree(degree, d) + 1)
    for w in range(len(found)):
        i = np.arange((degree - w) // 2 + 1.0)
        j = w + 2.0 * i
        log_mean = gammaln(j + 1.0) + gammaln(d / 2) - j * np.log(2.0)
        log_mean -= gammaln(i + 1.0) + gammaln(i + w + d / 2)
        found[w] = taylor[w::2] @ np.exp(log_harmonics(w, d) + log_mean)
    return found


def exact_degrees(
    activation: NDArray[np.float64], total: float, d: int, size: int
) -> tuple[int, dict[int, float]]:
    """How many degrees to leave to products, and the coefficients of <x, y>^k that they make.

    The squared error is about R^2 / m for m units and what is left of k(x, x), R.
    """
    best = total**2 / size
    choice: tuple[int, dict[int, float]] = (0, {})
    low = polynomials(min(MOST_EXACT, len(activation) - 1), d)
    powers = np.zeros(len(low))
    left, n_listed = total, 0
    for k, polynomial in enumerate(low):
        # c_l P_l(t) = b_l^2 Q_l / sqrt(a_l), in powers of t.
        scale = activation[k] ** 2 * np.exp(-0.5 * log_harmonics(k, d))
        places = np.arange(len(polynomial.coef))
        powers[places] += scale * polynomial.coef * d ** (0.5 * places)
        left = left - activation[k] ** 2
        listed = {j: float(a) for j, a in enumerate(powers) if abs(a) > ROUNDING * total}
        n_listed = sum(count_of_degree(d, j) for j in listed)
        complete = left <= ROUNDING * total
        if n_listed > size or (n_listed == size and not complete):
            break
        error = 0.0 if complete else left**2 / (size - n_listed)
        if error < best and min(listed.values(), default=1.0) > 0:
            best, choice = error, (k + 1, listed)
    return choice
