"""Slow, dense truth: what the library computes fast, written so that a reader believes it at sight.

Everything here is a loop over pairs, or an explicit list of every feature. `Phi` has one row per
feature and one column per data point, as in the paper, so that K = Phi.T @ Phi.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Index = tuple[int, ...]

# --- kernels of one pair of points, with math.* only --------------------------------------------


def dot(x: Sequence[float], y: Sequence[float]) -> float:
    """Inner product, rounded once."""
    return math.fsum(a * b for a, b in zip(x, y, strict=True))


def gaussian(x: Sequence[float], y: Sequence[float], gamma: float = 1.0) -> float:
    """exp(-gamma |x - y|^2)."""
    return math.exp(-gamma * math.fsum((a - b) ** 2 for a, b in zip(x, y, strict=True)))


def polynomial(
    x: Sequence[float],
    y: Sequence[float],
    degree: int = 3,
    gamma: float = 1.0,
    coef0: float = 1.0,
) -> float:
    """(gamma <x, y> + coef0)^degree."""
    return (gamma * dot(x, y) + coef0) ** degree


def exponential(x: Sequence[float], y: Sequence[float], gamma: float = 1.0) -> float:
    """exp(gamma <x, y>)."""
    return math.exp(gamma * dot(x, y))


def inverse_polynomial(x: Sequence[float], y: Sequence[float], shift: float = 2.0) -> float:
    """1 / (shift - <x, y>)."""
    return 1.0 / (shift - dot(x, y))


def dot_product(x: Sequence[float], y: Sequence[float], coefficients: Sequence[float]) -> float:
    """sum_w coefficients[w] <x, y>^w."""
    return math.fsum(a * dot(x, y) ** w for w, a in enumerate(coefficients))


def laplacian(x: Sequence[float], y: Sequence[float], gamma: float = 1.0) -> float:
    """exp(-gamma |x - y|_1)."""
    return math.exp(-gamma * math.fsum(abs(a - b) for a, b in zip(x, y, strict=True)))


def matern(
    x: Sequence[float], y: Sequence[float], length_scale: float = 1.0, nu: float = 1.5
) -> float:
    """Matern kernel 2^(1-nu)/Gamma(nu) z^nu K_nu(z), z = sqrt(2 nu) |x - y| / length_scale."""
    distance = math.dist(x, y) / length_scale
    if distance == 0.0:
        return 1.0
    if math.isinf(nu):
        return math.exp(-(distance**2) / 2.0)
    z = math.sqrt(2.0 * nu) * distance
    return 2.0 ** (1.0 - nu) / math.gamma(nu) * z**nu * bessel_k(nu, z)


def bessel_k(nu: float, z: float) -> float:
    """Modified Bessel function of the second kind: int_0^inf exp(-z cosh t) cosh(nu t) dt.

    The integrand is even and falls off doubly exponentially, where the trapezoidal rule is exact
    to rounding.
    """
    step = 1.0 / 64.0
    total = 0.5 * math.exp(-z)
    for i in itertools.count(1):
        t = i * step
        term = math.exp(-z * math.cosh(t) + math.log(math.cosh(nu * t)))
        total += term
        if term < 1e-20 * total:
            return step * total
    raise AssertionError("unreachable")


def gram(
    kernel: Callable[..., float], X: ArrayLike, Y: ArrayLike | None = None, **parameters: object
) -> Array:
    """Gram matrix of a pairwise kernel, one Python call per entry."""
    rows = np.asarray(X, dtype=float).tolist()
    columns = rows if Y is None else np.asarray(Y, dtype=float).tolist()
    return np.array([[kernel(x, y, **parameters) for y in columns] for x in rows])


# --- the weighted Taylor series: k(x, y) = c(x) c(y) sum_w a_w <x', y'>^w ------------------------


def gaussian_series(
    X: ArrayLike, degree: int, gamma: float = 1.0, center: ArrayLike | float = 0.0
) -> tuple[Array, Array, Array]:
    """Points x', amplitudes c(x) and coefficients a_0..a_degree of the Gaussian kernel."""
    points = math.sqrt(2.0 * gamma) * (np.asarray(X, dtype=float) - np.asarray(center))
    amplitude = np.array([math.exp(-dot(x, x) / 2.0) for x in points.tolist()])
    return points, amplitude, np.array([1.0 / math.factorial(w) for w in range(degree + 1)])


def exponential_series(X: ArrayLike, degree: int, gamma: float = 1.0) -> tuple[Array, Array, Array]:
    """Points, amplitudes and coefficients of exp(gamma <x, y>)."""
    points = math.sqrt(gamma) * np.asarray(X, dtype=float)
    coefficients = np.array([1.0 / math.factorial(w) for w in range(degree + 1)])
    return points, np.ones(len(points)), coefficients


def polynomial_series(
    X: ArrayLike, degree: int, gamma: float = 1.0, coef0: float = 1.0
) -> tuple[Array, Array, Array]:
    """Points, amplitudes and coefficients of (gamma <x, y> + coef0)^degree: no truncation."""
    points = math.sqrt(gamma) * np.asarray(X, dtype=float)
    coefficients = [math.comb(degree, w) * coef0 ** (degree - w) for w in range(degree + 1)]
    return points, np.ones(len(points)), np.array(coefficients, dtype=float)


def inverse_polynomial_series(
    X: ArrayLike, degree: int, shift: float = 2.0
) -> tuple[Array, Array, Array]:
    """Points, amplitudes and coefficients of 1 / (shift - <x, y>); needs |x|^2 < shift."""
    points = np.asarray(X, dtype=float)
    return points, np.ones(len(points)), np.array([shift ** (-w - 1) for w in range(degree + 1)])


def truncation_trace(
    squared_norms: Sequence[float],
    degree: int,
    coefficient: Callable[[int], Decimal],
    log_squared_amplitude: Callable[[Decimal], Decimal] = lambda norm: Decimal(0),
    last: int = 2000,
) -> float:
    """sum_x c(x)^2 sum_{degree < w <= last} a_w |x'|^(2 w), in 60 decimal digits.

    `squared_norms` holds |x'|^2 for every row; `coefficient(w)` is a_w, up to the kernel's `last`
    degree, and `log_squared_amplitude(|x'|^2)` is 2 log c(x).
    """
    with localcontext() as context:
        context.prec = 60
        total = Decimal(0)
        for norm in map(Decimal, map(float, squared_norms)):
            amplitude = log_squared_amplitude(norm).exp()
            for w in range(degree + 1, last + 1):
                term = amplitude * coefficient(w) * norm**w
                total += term
                # Past the peak the terms shrink geometrically: the rest cannot matter. (A zero
                # term says nothing about the next: coefficients may have gaps.)
                small = Decimal("1e-40") * max(total, Decimal("1e-30"))
                if norm == 0 or (w > 2 * norm + 2 and 0 < term < small):
                    break
        return float(total)


# --- explicit liftings ---------------------------------------------------------------------------


def sequences(n_columns: int, degree: int) -> Iterator[Index]:
    """Every sequence (i_1, ..., i_w), w = 0..degree, in the paper's order."""
    for w in range(degree + 1):
        yield from itertools.product(range(n_columns), repeat=w)


def multisets(n_columns: int, degree: int) -> Iterator[Index]:
    """Every multiset of at most `degree` columns, as a sorted tuple."""
    for w in range(degree + 1):
        yield from itertools.combinations_with_replacement(range(n_columns), w)


def multiplicity(multiset: Index) -> int:
    """Number of distinct orders of a multiset: the multinomial coefficient."""
    repeats = math.prod(math.factorial(count) for count in Counter(multiset).values())
    return math.factorial(len(multiset)) // repeats


def paper_index(sequence: Index, n_columns: int) -> int:
    """Row of a sequence in the paper's lifting: block w starts at (d^w - 1)/(d - 1)."""
    start = sum(n_columns**w for w in range(len(sequence)))
    return start + sum(i * n_columns**b for b, i in enumerate(reversed(sequence)))


def lift(points: Array, amplitude: Array, coefficients: Array, features: Sequence[Index]) -> Array:
    """Rows phi_m(x) = c(x) sqrt(a_w) x'_{i_1} ... x'_{i_w}, without any multiplicity."""
    Phi = np.empty((len(features), len(points)))
    for row, feature in enumerate(features):
        for column, x in enumerate(points):
            product = math.prod(float(x[i]) for i in feature)
            Phi[row, column] = amplitude[column] * math.sqrt(coefficients[len(feature)]) * product
    return Phi


def lift_sequences(
    points: Array, amplitude: Array, coefficients: Array
) -> tuple[Array, list[Index]]:
    """The paper's lifting: one feature per sequence, so a permutation repeats a row."""
    features = list(sequences(points.shape[1], len(coefficients) - 1))
    return lift(points, amplitude, coefficients, features), features


def lift_multisets(
    points: Array, amplitude: Array, coefficients: Array
) -> tuple[Array, list[Index]]:
    """One feature per multiset m, times sqrt(multiplicity(m)): the same Gram, no repeats."""
    features = list(multisets(points.shape[1], len(coefficients) - 1))
    weights = np.sqrt([multiplicity(m) for m in features])
    return weights[:, None] * lift(points, amplitude, coefficients, features), features


# --- importance of features ----------------------------------------------------------------------


def squared_row_norms(Phi: Array) -> Array:
    """|phi_m|^2 for every feature m."""
    return np.array([math.fsum(v * v for v in row) for row in Phi.tolist()])


def leverage_scores(Phi: Array, alpha: float) -> Array:
    """Ridge leverage of every feature: l_m = phi_m^T (Phi^T Phi + alpha I)^-1 phi_m."""
    inverse = np.linalg.inv(Phi.T @ Phi + alpha * np.eye(Phi.shape[1]))
    return np.array([phi @ inverse @ phi for phi in Phi])


def statistical_dimension(K: Array, alpha: float) -> float:
    """Trace of K (K + alpha I)^-1, from the eigenvalues."""
    return math.fsum(e / (e + alpha) for e in np.linalg.eigvalsh(K).clip(min=0.0).tolist())


def iid_estimator(Phi: Array, probabilities: ArrayLike, s: int, rng: np.random.Generator) -> Array:
    """The paper's estimator: s i.i.d. indices, columns phi_m / sqrt(s p_m). Shape (n, s)."""
    p = np.asarray(probabilities, dtype=float)
    drawn = rng.choice(len(p), size=s, replace=True, p=p)
    return np.stack([Phi[m] / math.sqrt(s * p[m]) for m in drawn], axis=1)
