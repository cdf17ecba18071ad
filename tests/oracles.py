"""Slow, dense truth: what the library computes fast, written so that a reader believes it at sight.

Everything here is a loop over pairs, or an explicit list of every feature. `Phi` has one row per
feature and one column per data point, as in the paper, so that K = Phi.T @ Phi.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import eval_gegenbauer

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


def smooth_laplacian(
    x: Sequence[float], y: Sequence[float], gamma: float = 1.0, pieces: int = 2
) -> float:
    """prod_i E[int f(u) f(u + t_i / w) du] over random widths w, by nested quadratures.

    f is a bump on [-1/2, 1/2]: a box, a tent, or the convolution of three boxes of width 1/3.
    """
    value = 1.0
    for a, b in zip(x, y, strict=True):
        value *= _cell_kernel(round(gamma * abs(a - b), 12), pieces)
    return value


@functools.cache
def _cell_kernel(t: float, pieces: int) -> float:
    knots = np.linspace(-0.5, 0.5, pieces + 1)
    norm = math.sqrt(_segments(lambda u: _bump(u, pieces) ** 2, knots, 6))

    def autocorrelation(shift: float) -> float:
        ends = np.unique(np.clip(np.concatenate([knots, knots - shift]), -0.5, 0.5 - shift))
        return _segments(lambda u: _bump(u, pieces) * _bump(u + shift, pieces), ends, 6) / norm**2

    def integrand(w: Array) -> Array:
        density = w ** (2 * pieces - 1) * np.exp(-w) / math.factorial(2 * pieces - 1)
        return density * np.array([autocorrelation(t / width) for width in w])

    # Shorter intervals than t do not hold both points; the autocorrelation has knots at j / pieces.
    ends = [t * pieces / j for j in range(pieces, 0, -1)]
    return _segments(integrand, np.array([*ends, ends[-1] + 20.0, ends[-1] + 70.0]), 50)


def _bump(u: Array, pieces: int) -> Array:
    """1, 1 - 2 |u|, and the parabolas of the quadratic B-spline, on [-1/2, 1/2]."""
    v = np.abs(u)
    if pieces == 3:
        return np.where(v < 1 / 6, 0.75 - (3 * v) ** 2, 0.5 * (1.5 - 3 * v) ** 2)
    return np.ones_like(v) if pieces == 1 else 1 - 2 * v


def _segments(function: Callable[[Array], Array], ends: Array, n_nodes: int) -> float:
    """The integral by Gauss and Legendre's rule on each segment."""
    nodes, weights = np.polynomial.legendre.leggauss(n_nodes)
    total = 0.0
    for low, high in itertools.pairwise(ends):
        if low == high:
            continue
        half = 0.5 * (high - low)
        total += half * float(weights @ function(low + half * (nodes + 1.0)))
    return total


def product(
    x: Sequence[float], y: Sequence[float], rates: Sequence[float], families: Sequence[str]
) -> float:
    """prod_i k_i(r_i |x_i - y_i|)."""
    value = 1.0
    for a, b, rate, family in zip(x, y, rates, families, strict=True):
        t = rate * abs(a - b)
        if family == "gaussian":
            value *= math.exp(-t * t)
        elif family == "laplacian":
            value *= math.exp(-t)
        elif family == "matern32":
            value *= (1.0 + math.sqrt(3.0) * t) * math.exp(-math.sqrt(3.0) * t)
        elif family == "matern52":
            value *= (1.0 + math.sqrt(5.0) * t + 5.0 * t * t / 3.0) * math.exp(-math.sqrt(5.0) * t)
        elif a != b:  # categorical
            value *= math.exp(-rate)
    return value


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


def cosine(x: Sequence[float], y: Sequence[float]) -> float:
    """The cosine of the angle, within [-1, 1]."""
    lengths = math.sqrt(dot(x, x)) * math.sqrt(dot(y, y))
    return max(-1.0, min(1.0, dot(x, y) / lengths))


def arc_cosine(x: Sequence[float], y: Sequence[float], order: int = 1) -> float:
    """|x|^n |y|^n J_n(theta) / pi, after Cho and Saul (2009); 0 for a zero point."""
    if not any(x) or not any(y):
        return 0.0
    theta = math.acos(cosine(x, y))
    left, c = math.pi - theta, math.cos(theta)
    J = {
        0: left,
        1: math.sin(theta) + left * c,
        2: 3.0 * math.sin(theta) * c + left * (1.0 + 2.0 * c * c),
    }[order]
    return (dot(x, x) * dot(y, y)) ** (order / 2) * J / math.pi


def neural_tangent(x: Sequence[float], y: Sequence[float], depth: int = 1) -> float:
    """The recursion of Jacot et al. (2018) for ReLU networks without biases; 0 for a zero point."""
    if not any(x) or not any(y):
        return 0.0
    t = cosine(x, y)
    tangent = t
    for _ in range(depth):
        theta = math.acos(max(-1.0, min(1.0, t)))
        slope = (math.pi - theta) / math.pi
        t = (math.sin(theta) + (math.pi - theta) * math.cos(theta)) / math.pi
        tangent = tangent * slope + t
    return math.sqrt(dot(x, x) * dot(y, y)) * tangent


def zonal(
    x: Sequence[float], y: Sequence[float], coefficients: Sequence[float], power: float = 0.0
) -> float:
    """|x|^p |y|^p sum_l c_l P_l(t): scipy's Gegenbauer polynomials, with P_l(1) = 1."""
    if not any(x) or not any(y):
        return 0.0
    half, t = (len(x) - 2) / 2, cosine(x, y)

    def polynomial(w: int) -> float:
        if len(x) == 1:
            return t ** (w % 2)
        if len(x) == 2:
            return math.cos(w * math.acos(t))
        return float(eval_gegenbauer(w, half, t) / eval_gegenbauer(w, half, 1.0))

    total = math.fsum(c * polynomial(w) for w, c in enumerate(coefficients))
    return (dot(x, x) * dot(y, y)) ** (power / 2) * total


def network_tangent(X: Array, depth: int, width: int, rng: np.random.Generator) -> Array:
    """The Gram matrix of the gradients of one random ReLU network, by back propagation.

    Weights are N(0, 2 / width); the gradient along the weights of a layer is the outer product of
    its inputs and of the derivatives of the output along its units.
    """
    layers, slopes, weights = [X], [], []
    for _ in range(depth):
        W = rng.standard_normal((layers[-1].shape[1], width))
        scale = math.sqrt(2.0 / width)
        units = layers[-1] @ W
        weights.append(W * scale)
        slopes.append((units > 0) * 1.0)
        layers.append(np.maximum(units, 0.0) * scale)
    tangent = layers[-1] @ layers[-1].T
    back = np.broadcast_to(rng.standard_normal(width), (len(X), width))
    for layer, slope, W in zip(layers[-2::-1], slopes[::-1], weights[::-1], strict=True):
        back = back * slope
        tangent = tangent + (back @ back.T) * (2.0 / width) * (layer @ layer.T)
        back = back @ W.T
    return tangent


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


def weighted_gram(Q: Array, probabilities: Array) -> Array:
    """Sum over the rows q of Q of p q q^T."""
    total = np.zeros((Q.shape[1], Q.shape[1]))
    for q, p in zip(Q, probabilities, strict=True):
        total += p * np.outer(q, q)
    return total


def statistical_dimension(K: Array, alpha: float) -> float:
    """Trace of K (K + alpha I)^-1, from the eigenvalues."""
    return math.fsum(e / (e + alpha) for e in np.linalg.eigvalsh(K).clip(min=0.0).tolist())


def iid_estimator(Phi: Array, probabilities: ArrayLike, s: int, rng: np.random.Generator) -> Array:
    """The paper's estimator: s i.i.d. indices, columns phi_m / sqrt(s p_m). Shape (n, s)."""
    p = np.asarray(probabilities, dtype=float)
    drawn = rng.choice(len(p), size=s, replace=True, p=p)
    return np.stack([Phi[m] / math.sqrt(s * p[m]) for m in drawn], axis=1)


# --- sketches: explicit matrices and exact variances ---------------------------------------------


def tensor_product(factors: Sequence[ArrayLike]) -> Array:
    """x_1 (x) ... (x) x_q as one vector, the last index fastest."""
    product = np.ones(1)
    for factor in factors:
        product = np.multiply.outer(product, np.asarray(factor, dtype=float)).ravel()
    return product


def sketch_matrix(
    apply_product: Callable[[list[Array]], ArrayLike], n_features: int, degree: int
) -> Array:
    """The matrix of a sketch, one column for each e_i1 (x) ... (x) e_iq; shape (size, d^q)."""
    indices = itertools.product(range(n_features), repeat=degree)
    factors = np.eye(n_features)[np.array(list(indices))]
    return np.asarray(apply_product([factors[:, b] for b in range(degree)])).T


def count_sketch_matrix(codes: ArrayLike, size: int) -> Array:
    """Columns with +-1/sqrt(sparsity) in the rows that the codes name: ~bucket for a minus."""
    rows = np.asarray(codes).tolist()
    matrix = np.zeros((size, len(rows)))
    for column, row in enumerate(rows):
        for code in row:
            bucket, sign = (code, 1.0) if code >= 0 else (-1 - code, -1.0)
            matrix[bucket, column] += sign / math.sqrt(len(row))
    return matrix


def tensor_sketch_matrix(codes: Sequence[ArrayLike], size: int) -> Array:
    """CountSketch of d^q coordinates: buckets add up modulo size, signs multiply."""
    tables = [np.asarray(table).ravel().tolist() for table in codes]
    columns = []
    for chosen in itertools.product(*tables):
        buckets = [code if code >= 0 else -1 - code for code in chosen]
        column = np.zeros(size)
        column[sum(buckets) % size] = math.prod(1.0 if code >= 0 else -1.0 for code in chosen)
        columns.append(column)
    return np.stack(columns, axis=1)


def hadamard_entry(row: int, column: int) -> float:
    """(-1)^(number of bits that both indices have)."""
    return -1.0 if (row & column).bit_count() % 2 else 1.0


def srht_matrix(signs: ArrayLike, places: ArrayLike) -> Array:
    """P H D / sqrt(size)."""
    signs, places = np.asarray(signs, dtype=float), np.asarray(places).tolist()
    rows = [
        [hadamard_entry(place, i) * s for i, s in enumerate(signs.tolist())] for place in places
    ]
    return np.array(rows) / math.sqrt(len(places))


def tensor_srht_matrix(
    left_signs: ArrayLike, right_signs: ArrayLike, left_places: ArrayLike, right_places: ArrayLike
) -> Array:
    """P (H D_1 (x) H D_2) / sqrt(size): each row a tensor product of two rows of H D."""
    left, right = srht_matrix(left_signs, left_places), srht_matrix(right_signs, right_places)
    return math.sqrt(len(left)) * np.array(
        [np.kron(a, b) for a, b in zip(left, right, strict=True)]
    )


def spread(x: ArrayLike) -> float:
    """1 - sum_i x_i^4 / |x|^4: 0 on one coordinate, 1 - 1/d if all d are equal."""
    squares = np.square(np.asarray(x, dtype=float))
    return 1.0 - float(np.square(squares).sum() / squares.sum() ** 2)


def osnap_variance(x: ArrayLike, size: int) -> float:
    """Var |Sx|^2 / |x|^4 with equal ranges of buckets, exactly: 2 spread / size.

    |Sx|^2 - |x|^2 is 1/s times the sum over ranges b and i != j of sign_i sign_j x_i x_j [i and j
    meet in b]. The terms are uncorrelated but for (i, j) = (j, i), and meet with probability
    s / size in each of s ranges: 2 (1/s^2) s (s / size) sum_{i != j} x_i^2 x_j^2.
    """
    return 2.0 * spread(x) / size


def srht_variance(x: ArrayLike, size: int) -> float:
    """Var |Sx|^2 / |x|^4 exactly: (2 spread / size) (N - size) / (N - 1), at most N of N places.

    One place: (HDx)_k^2 has variance 2 spread (fourth moment of a sum of signs). Two different
    places: their covariances sum to -2 spread over the N - 1 others, for all N places sum to the
    constant N |x|^2. Whole rounds of N places add that constant and no variance.
    """
    n = 1 << max(0, np.size(x) - 1).bit_length()
    rest = size % n
    return 0.0 if rest == 0 else 2.0 * spread(x) * (n - rest) / (n - 1) * rest / size**2


def tensor_srht_variance(x: ArrayLike, y: ArrayLike, size: int) -> float:
    """Var |T(x (x) y)|^2 / (|x| |y|)^4 exactly: ((1 + 2 spread_x)(1 + 2 spread_y) - 1) / size.

    Given the signs, the places are i.i.d. and the mean over them is |x|^2 |y|^2 (Parseval): only
    the variance of one place counts, over size. Its square is the product of two sums of signs,
    whose fourth moments are 3 |x|^4 - 2 sum x_i^4 = 1 + 2 spread.
    """
    return ((1.0 + 2.0 * spread(x)) * (1.0 + 2.0 * spread(y)) - 1.0) / size


def tensor_sketch_variance(factors: Sequence[ArrayLike], size: int) -> float:
    """Var |S y|^2 / |y|^4 of y = x_1 (x) ... (x) x_q, exactly.

    E (|Sy|^2 - |y|^2)^2 sums y_I y_J y_K y_L over I != J, K != L whose signs cancel in every mode:
    there i = j, k = l (weight 1), or i = k, j = l, or i = l, j = k (i != j: weight spread each).
    With modes of the second kind only, or of the third only, both collisions are one event, of
    probability 1/size; with both kinds a + b = a - b = 0 modulo size, of probability
    gcd(2, size) / size^2.
    """
    one = math.prod(1.0 + spread(x) for x in factors)
    two = math.prod(1.0 + 2.0 * spread(x) for x in factors)
    return 2.0 * (one - 1.0) / size + (two - 2.0 * one + 1.0) * math.gcd(2, size) / size**2


# --- RowSampler: Algorithms 2 and 3 as they are printed, with their slips mended -----------------


def inverse_root(B: Array | None, n: int, alpha: float) -> Array:
    """(B^T B + alpha I)^(-1/2), of shape (n, n)."""
    gram = np.zeros((n, n)) if B is None else B.T @ B
    values, vectors = np.linalg.eigh(gram)
    return (vectors / np.sqrt(values.clip(min=0.0) + alpha)) @ vectors.T


def row_distribution(Phi: Array, B: Array | None, alpha: float) -> Array:
    """Squared row norms of Phi (B^T B + alpha I)^(-1/2), which sum to 1."""
    norms = squared_row_norms(Phi @ inverse_root(B, Phi.shape[1], alpha))
    return norms / math.fsum(norms)


def sketched_powers(Q: Array, points: Array, degree: int) -> list[Array]:
    """P_j = Q (X^(x)(q-j) (x) E_1^(x)j) for j = 0..q, each of shape (m', n); line 4."""
    first = np.eye(points.shape[1])[0]
    return [
        np.stack([Q @ tensor_product([x] * (degree - j) + [first] * j) for x in points], axis=1)
        for j in range(degree + 1)
    ]


def share(part: float, whole: float) -> float:
    """part / whole, where 0/0 is 0."""
    return part / whole if whole > 0.0 else 0.0


def printed_row_sampler(
    points: Array,
    amplitude: Array,
    coefficients: Array,
    M: Array,
    P: Sequence[Array],
    bucket: ArrayLike,
    G: Callable[[int], Array],
) -> dict[Index, float]:
    """beta / s for every index tuple, by lines 2, 5, 6, 11 and 23 to 33 of Algorithm 3.

    M (n, d') is line 2 without the amplitudes, P line 4, bucket[i] = h(i), and G(r) is G_r, of
    shape (n', d_r) with the coordinates of a bucket in rising order.
    """
    X, q = points.T, len(P) - 1
    M = amplitude[:, None] * M
    n_columns, hashed = M.shape[1], np.asarray(bucket)
    members = {r: np.flatnonzero(hashed == r) for r in np.unique(hashed).tolist()}
    W = {r: G(r) @ X[inside] for r, inside in members.items()}  # line 11
    Z = [[coefficients[w] * np.sum((P[q - w] @ M[:, j]) ** 2) for j in range(n_columns)]
         for w in range(q + 1)]  # line 5, squared and summed by blocks  # fmt: skip
    column_mass = [math.fsum(block[j] for block in Z) for j in range(n_columns)]
    p = [share(mass, math.fsum(column_mass)) for mass in column_mass]  # line 6
    beta = dict.fromkeys(sequences(len(X), q), 0.0)  # line 23

    def walk(j: int, w: int, prefix: Index, L: Array, probability: float) -> None:
        if len(prefix) == w:
            beta[prefix] += p[j] * share(Z[w][j], column_mass[j]) * probability  # lines 25 and 32
            return
        sketch = P[len(prefix) + 1 + q - w]
        masses = {r: np.sum((W[r] @ L @ sketch.T) ** 2) for r in W}
        for r, inside in members.items():
            p_star = share(masses[r], math.fsum(masses.values()))  # line 28
            squares = [np.sum((X[i] @ L @ sketch.T) ** 2) for i in inside]
            for i, square in zip(inside.tolist(), squares, strict=True):
                q_star = share(square, math.fsum(squares))  # line 29
                deeper = L @ np.diag(X[i])  # line 30
                walk(j, w, (*prefix, i), deeper, probability * p_star * q_star)

    for j in range(n_columns):  # line 24
        for w in range(q + 1):
            walk(j, w, (), np.diag(M[:, j]), 1.0)  # line 26
    return beta


# --- ridges -------------------------------------------------------------------------------------


def weighted_ridge(
    Z: Array, y: Array, weights: Array, alpha: float, fit_intercept: bool
) -> tuple[Array, Array]:
    """Minimise sum_i w_i |y_i - z_i^T c - b|^2 + alpha |c|^2 as least squares of more rows."""
    d, roots = Z.shape[1], np.sqrt(weights)[:, None]
    ones = np.ones((len(Z), 1)) if fit_intercept else np.zeros((len(Z), 1))
    rows = np.vstack([roots * np.hstack([Z, ones]), math.sqrt(alpha) * np.eye(d, d + 1)])
    right = np.vstack([roots * y, np.zeros((d, y.shape[1]))])
    solution = np.linalg.lstsq(rows, right, rcond=None)[0]
    return solution[:-1], solution[-1]


def left_out(Z: Array, y: Array, weights: Array, alpha: float, fit_intercept: bool) -> Array:
    """The residual of every row at the ridge of all others."""
    residuals = np.empty_like(y)
    for i in range(len(Z)):
        others = np.arange(len(Z)) != i
        coefficients, intercept = weighted_ridge(
            Z[others], y[others], weights[others], alpha, fit_intercept
        )
        residuals[i] = y[i] - Z[i] @ coefficients - intercept
    return residuals


def kernel_ridge(
    K: Array, y: Array, weights: Array, alpha: float, known: Array, intercept: str
) -> Array:
    """Predictions at all rows from the known ones: no intercept, their mean, or a free one."""
    noise = alpha * np.diag(1.0 / weights[known])
    inverse = np.linalg.inv(K[np.ix_(known, known)] + noise)
    b = np.zeros(y.shape[1])
    if intercept == "mean":
        b = np.average(y[known], axis=0, weights=weights[known])
    if intercept == "free":
        b = inverse.sum(axis=0) @ y[known] / inverse.sum()
    return K[:, known] @ inverse @ (y[known] - b) + b


# --- landmarks -----------------------------------------------------------------------------------


def row_leverage_scores(K: Array, alpha: float) -> Array:
    """Ridge leverage of every row: the diagonal of K (K + alpha I)^-1."""
    return np.diag(K @ np.linalg.inv(K + alpha * np.eye(len(K))))


def nystrom(K: Array, landmarks: Sequence[int]) -> Array:
    """C W^+ C^T with C the landmarks' columns of K, and W their rows of C."""
    C = K[:, landmarks]
    return C @ np.linalg.pinv(C[landmarks], rcond=1e-13, hermitian=True) @ C.T


def randomly_pivoted_cholesky(K: Array, size: int, rng: np.random.Generator) -> list[int]:
    """Pivots drawn one at a time in proportion to the diagonal of what is left of K."""
    rest, pivots = K.copy(), []
    for _ in range(size):
        diagonal = np.diag(rest).clip(min=0.0)
        pivot = int(rng.choice(len(K), p=diagonal / diagonal.sum()))
        pivots.append(pivot)
        rest -= np.outer(rest[:, pivot], rest[:, pivot]) / rest[pivot, pivot]
    return pivots


def column_kernel(family: str, u: float, v: float, rate: float = 1.0) -> float:
    """One factor of a product kernel at scaled coordinates u and v; ``rate`` is for categories."""
    if family == "categorical":
        return 1.0 if u == v else math.exp(-rate)
    t = abs(u - v)
    if family == "gaussian":
        return math.exp(-t * t)
    if family == "laplacian":
        return math.exp(-t)
    if family == "matern32":
        return (1.0 + math.sqrt(3.0) * t) * math.exp(-math.sqrt(3.0) * t)
    if family == "matern52":
        return (1.0 + math.sqrt(5.0) * t + 5.0 / 3.0 * t * t) * math.exp(-math.sqrt(5.0) * t)
    raise ValueError(family)


def anova_kernel(
    x: Sequence[float],
    y: Sequence[float],
    factors: Sequence[Callable[[float, float], float]],
    columns: Sequence[tuple[Sequence[float], Sequence[float]]],
    variances: dict[Index, float],
) -> float:
    """sum_S v_S prod_(i in S) c_i(x_i, y_i), centred over (values, weights) and of mean size 1."""

    def centred(i: int, u: float, v: float) -> float:
        k, values, weights = factors[i], *columns[i]

        def mean(t: float) -> float:
            return math.fsum(w * k(t, z) for z, w in zip(values, weights, strict=True))

        def raw(a: float, b: float) -> float:
            total = math.fsum(w * mean(z) for z, w in zip(values, weights, strict=True))
            return k(a, b) - mean(a) * mean(b) / total

        size = math.fsum(w * raw(z, z) for z, w in zip(values, weights, strict=True))
        return raw(u, v) / size

    return math.fsum(v * math.prod(centred(i, x[i], y[i]) for i in S) for S, v in variances.items())


# --- what a model says ---------------------------------------------------------------------------


def marginal_means(
    predict: Callable[[Array], Array], columns: Sequence[tuple[Array, Array]], x: Array
) -> dict[Index, float]:
    """v(S) = E f(x_S, X_rest) for all subsets S, with independent columns of (values, weights)."""
    d = len(columns)
    found = {}
    for chosen in itertools.chain.from_iterable(
        itertools.combinations(range(d), k) for k in range(d + 1)
    ):
        choices = [
            [(x[i], 1.0)] if i in chosen else list(zip(*columns[i], strict=True)) for i in range(d)
        ]
        combined = list(itertools.product(*choices))
        rows = np.array([[value for value, _ in row] for row in combined])
        weights = np.array([math.prod(weight for _, weight in row) for row in combined])
        found[chosen] = float(weights @ predict(rows))
    return found


def anova_parts(means: dict[Index, float]) -> dict[Index, float]:
    """f_S(x) = sum over T in S of (-1)^(|S| - |T|) v(T)."""
    return {
        S: math.fsum(
            (-1) ** (len(S) - len(T)) * value for T, value in means.items() if set(T) <= set(S)
        )
        for S in means
    }


def total_shares(predict, columns):
    """Total Sobol indices by definition: the mean variance along a column, the others fixed.

    ``columns`` are values and weights of each; all their combinations are predicted.
    """
    grid = np.stack(np.meshgrid(*[values for values, _ in columns], indexing="ij"), axis=-1)
    weights = [weights / weights.sum() for _, weights in columns]
    f = predict(grid.reshape(-1, len(columns))).reshape(grid.shape[:-1])

    def mean(values):
        for share in weights:
            values = np.tensordot(share, values, axes=(0, 0))
        return float(values)

    total = mean((f - mean(f)) ** 2)
    shares = []
    for i, share in enumerate(weights):
        along = np.expand_dims(np.tensordot(share, f, axes=(0, i)), i)
        shares.append(mean((f - along) ** 2) / total)
    return shares


def shapley_by_subsets(means: dict[Index, float], d: int) -> Array:
    """Shapley's formula, over all subsets without i."""
    phi = np.zeros(d)
    for i in range(d):
        for S, value in means.items():
            if i not in S:
                with_i = means[tuple(sorted((*S, i)))]
                weight = math.factorial(len(S)) * math.factorial(d - len(S) - 1)
                phi[i] += weight / math.factorial(d) * (with_i - value)
    return phi


def shapley_interaction_by_subsets(means: dict[Index, float], d: int, i: int, j: int) -> float:
    """The Shapley interaction index of a pair, over all subsets without both."""
    total = 0.0
    for S, value in means.items():
        if i not in S and j not in S:
            both, one, other = (means[tuple(sorted((*S, *more)))] for more in ((i, j), (i,), (j,)))
            weight = math.factorial(len(S)) * math.factorial(d - len(S) - 2)
            total += weight / math.factorial(d - 1) * (both - one - other + value)
    return total


# --- logistic regression --------------------------------------------------------------------------


def logistic_scores(
    Z: Array, signs: Array, weights: Array, alpha: float, fit_intercept: bool
) -> Array:
    """Scores of penalised logistic regression: Newton's method with the whole Hessian.

    Two classes have one column of targets +-1 and the probabilities softmax(-f, f); more classes
    have a column each.
    """
    n, m = signs.shape
    Z = np.hstack([Z, np.ones((n, 1))]) if fit_intercept else Z
    penalty = np.full(Z.shape[1], alpha)
    if fit_intercept:
        penalty[-1] = 1e-12  # the same for all classes adds nothing
    B = np.zeros((Z.shape[1], m))

    def objective(B: Array) -> float:
        scores = np.hstack([-Z @ B, Z @ B]) if m == 1 else Z @ B
        true = (signs[:, 0] > 0).astype(int) if m == 1 else signs.argmax(axis=1)
        losses = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(n), true]
        return float(weights @ losses + 0.5 * (penalty @ B**2).sum())

    for _ in range(200):
        gradient, hessian = penalty[:, None] * B, np.kron(np.eye(m), np.diag(penalty))
        for z, sign, weight in zip(Z, signs, weights, strict=True):
            if m == 1:
                p = 1.0 / (1.0 + np.exp(-2.0 * z @ B))
                slope, bend = 2.0 * (p - (sign > 0)), 4.0 * p[:, None] * (1.0 - p)
            else:
                p = np.exp(z @ B) / np.exp(z @ B).sum()
                slope, bend = p - (sign > 0), np.diag(p) - np.outer(p, p)
            gradient = gradient + weight * np.outer(z, slope)
            hessian += weight * np.kron(bend, np.outer(z, z))
        step = np.linalg.solve(hessian, gradient.T.ravel()).reshape(m, -1).T
        size = 1.0
        while objective(B - size * step) > objective(B) and size > 1e-6:
            size /= 2.0
        B = B - size * step
        if np.abs(step).max() < 1e-10:
            break
    return Z @ B


def local_correction(
    points: np.ndarray,
    values: np.ndarray,
    query: np.ndarray,
    n_neighbours: int,
    rate: float,
    noises: np.ndarray,
    *,
    mean: np.ndarray | float = 0.0,
    euclidean: bool = False,
) -> tuple[np.ndarray, float]:
    """Kriging from the nearest points: what it adds to the mean of the process, and the variance.

    The distance is the sum of absolute differences, or the Euclidean one, the covariance
    exp(-rate * distance), the variance relative to that of the process.
    """
    order_of_norm = 2 if euclidean else 1
    distances = np.linalg.norm(points - query, order_of_norm, axis=1)
    order = np.argsort(distances, kind="stable")[:n_neighbours]
    near = points[order]
    between = np.linalg.norm(near[:, None] - near[None], order_of_norm, axis=2)
    K = np.exp(-rate * between) + np.diag(noises[order])
    k = np.exp(-rate * distances[order])
    weights = np.linalg.solve(K, k)
    return weights @ (values[order] - mean), float(1.0 - weights @ k)
