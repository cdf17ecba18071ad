"""The oracles themselves: each identity that a reader would check by hand."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import oracles
import pytest
from scipy import special, stats

X = np.array([[0.3, -0.2, 0.1], [0.0, 0.5, 0.2], [-0.4, 0.1, 0.3], [0.0, 0.0, 0.0]])
Y = np.array([[0.1, 0.2, -0.3], [0.6, 0.0, 0.1]])

SERIES = {
    "gaussian": (oracles.gaussian_series(X, 14, gamma=0.8), oracles.gaussian, {"gamma": 0.8}),
    "gaussian, centred": (
        oracles.gaussian_series(X, 14, gamma=0.8, center=X.mean(axis=0)),
        oracles.gaussian,
        {"gamma": 0.8},
    ),
    "exponential": (
        oracles.exponential_series(X, 14, gamma=0.7),
        oracles.exponential,
        {"gamma": 0.7},
    ),
    "polynomial": (
        oracles.polynomial_series(X, 4, gamma=0.5, coef0=2.0),
        oracles.polynomial,
        {"degree": 4, "gamma": 0.5, "coef0": 2.0},
    ),
    "homogeneous polynomial": (
        oracles.polynomial_series(X, 3, gamma=0.5, coef0=0.0),
        oracles.polynomial,
        {"degree": 3, "gamma": 0.5, "coef0": 0.0},
    ),
    "inverse polynomial": (
        oracles.inverse_polynomial_series(X, 14, shift=2.0),
        oracles.inverse_polynomial,
        {"shift": 2.0},
    ),
    "dot product": (
        (X, np.ones(len(X)), np.array([1.0, 0.0, 0.5, 2.0])),
        oracles.dot_product,
        {"coefficients": [1.0, 0.0, 0.5, 2.0]},
    ),
}


@pytest.mark.parametrize("name", SERIES)
def test_the_gram_of_the_lifting_is_the_kernel(name: str) -> None:
    series, kernel, parameters = SERIES[name]
    Phi, _ = oracles.lift_multisets(*series)
    np.testing.assert_allclose(Phi.T @ Phi, oracles.gram(kernel, X, **parameters), atol=1e-9)


@pytest.mark.parametrize("name", SERIES)
def test_sequences_and_multisets_have_the_same_gram(name: str) -> None:
    points, amplitude, coefficients = SERIES[name][0]
    by_sequence, _ = oracles.lift_sequences(points, amplitude, coefficients[:6])
    by_multiset, _ = oracles.lift_multisets(points, amplitude, coefficients[:6])
    np.testing.assert_allclose(by_sequence.T @ by_sequence, by_multiset.T @ by_multiset, atol=1e-14)


def test_the_gram_of_a_lifting_does_not_depend_on_the_centre() -> None:
    near, _ = oracles.lift_multisets(*oracles.gaussian_series(X, 14, 0.8))
    far, _ = oracles.lift_multisets(*oracles.gaussian_series(X, 14, 0.8, [0.2, -0.1, 0.05]))
    assert not np.allclose(near, far)
    np.testing.assert_allclose(near.T @ near, far.T @ far, atol=1e-9)


@pytest.mark.parametrize(("d", "q"), [(1, 5), (2, 4), (3, 3), (5, 2), (4, 0)])
def test_the_number_of_features(d: int, q: int) -> None:
    assert len(list(oracles.multisets(d, q))) == math.comb(d + q, q)
    assert len(list(oracles.sequences(d, q))) == sum(d**w for w in range(q + 1))
    for w in range(q + 1):
        of_degree_w = [m for m in oracles.multisets(d, q) if len(m) == w]
        assert sum(oracles.multiplicity(m) for m in of_degree_w) == d**w


@pytest.mark.parametrize(("d", "q"), [(1, 4), (2, 3), (3, 3)])
def test_the_order_of_sequences_is_the_papers(d: int, q: int) -> None:
    positions = [oracles.paper_index(i, d) for i in oracles.sequences(d, q)]
    assert positions == list(range(len(positions)))


def test_a_block_of_the_lifting_is_the_tensor_power() -> None:
    Phi, _ = oracles.lift_sequences(X, np.ones(len(X)), np.array([0.0, 0.0, 0.0, 1.0]))
    powers = np.stack([np.kron(np.kron(x, x), x) for x in X], axis=1)
    np.testing.assert_allclose(Phi[-27:], powers, atol=1e-16)
    assert not Phi[:-27].any()


def test_a_multiset_merges_the_equal_rows_of_its_sequences() -> None:
    series = oracles.gaussian_series(X, 3, gamma=0.8)
    by_sequence, sequences = oracles.lift_sequences(*series)
    by_multiset, multisets = oracles.lift_multisets(*series)
    for phi, multiset in zip(by_multiset, multisets, strict=True):
        orders = [r for r, i in enumerate(sequences) if tuple(sorted(i)) == multiset]
        assert len(orders) == oracles.multiplicity(multiset)
        np.testing.assert_allclose(phi**2, (by_sequence[orders] ** 2).sum(axis=0), atol=1e-16)


@pytest.mark.parametrize("alpha", [1e-3, 0.1, 10.0])
def test_leverage_scores_sum_to_the_statistical_dimension(alpha: float) -> None:
    Phi, _ = oracles.lift_multisets(*oracles.gaussian_series(X, 8, gamma=0.8))
    scores = oracles.leverage_scores(Phi, alpha)
    assert scores.min() >= 0
    assert scores.max() < 1
    assert scores.sum() == pytest.approx(oracles.statistical_dimension(Phi.T @ Phi, alpha))


def test_leverage_scores_by_another_formula() -> None:
    """diag(Phi Phi^T (Phi Phi^T + alpha I)^-1): the same scores on the side of the features."""
    Phi, _ = oracles.lift_multisets(*oracles.gaussian_series(X, 5, gamma=0.8))
    S = Phi @ Phi.T
    other = np.diag(S @ np.linalg.inv(S + 0.1 * np.eye(len(S))))
    np.testing.assert_allclose(oracles.leverage_scores(Phi, 0.1), other, atol=1e-13)


def test_leverage_tends_to_the_row_norm_for_a_large_ridge() -> None:
    Phi, _ = oracles.lift_multisets(*oracles.gaussian_series(X, 5, gamma=0.8))
    np.testing.assert_allclose(
        1e9 * oracles.leverage_scores(Phi, 1e9), oracles.squared_row_norms(Phi), atol=1e-7
    )


def test_row_norms_sum_to_the_trace() -> None:
    Phi, _ = oracles.lift_multisets(*oracles.gaussian_series(X, 14, gamma=0.8))
    norms = oracles.squared_row_norms(Phi)
    np.testing.assert_allclose(norms, (Phi**2).sum(axis=1))
    assert norms.sum() == pytest.approx(len(X), abs=1e-9)


def test_the_iid_estimator_is_unbiased() -> None:
    """Its mean over every possible single draw is K, exactly; and s draws average s single ones."""
    Phi, features = oracles.lift_multisets(*oracles.gaussian_series(X, 4, gamma=0.8))
    p = oracles.squared_row_norms(Phi) / oracles.squared_row_norms(Phi).sum()

    class Fixed:
        def __init__(self, draws: list[int]) -> None:
            self.draws = draws

        def choice(self, n: int, size: int, replace: bool, p: np.ndarray) -> list[int]:
            assert (n, size, replace) == (len(features), len(self.draws), True)
            return self.draws

    expectation = np.zeros((len(X), len(X)))
    for m in range(len(features)):
        Z = oracles.iid_estimator(Phi, p, 1, Fixed([m]))  # type: ignore[arg-type]
        expectation += p[m] * Z @ Z.T
    np.testing.assert_allclose(expectation, Phi.T @ Phi, atol=1e-14)

    pair = oracles.iid_estimator(Phi, p, 2, Fixed([1, 3]))  # type: ignore[arg-type]
    one = oracles.iid_estimator(Phi, p, 1, Fixed([1]))  # type: ignore[arg-type]
    three = oracles.iid_estimator(Phi, p, 1, Fixed([3]))  # type: ignore[arg-type]
    np.testing.assert_allclose(pair @ pair.T, (one @ one.T + three @ three.T) / 2)


def test_the_iid_estimator_draws_with_the_given_probabilities() -> None:
    Phi = np.eye(4)
    p = np.array([0.1, 0.2, 0.3, 0.4])
    Z = oracles.iid_estimator(Phi, p, 4000, np.random.default_rng(0))
    assert Z.shape == (4, 4000)
    counts = (Z != 0).sum(axis=1)
    assert stats.chisquare(counts, 4000 * p).pvalue > 1e-4


@pytest.mark.parametrize("nu", [0.3, 0.5, 1.0, 1.5, 2.5, 4.2])
@pytest.mark.parametrize("z", [0.01, 0.5, 1.0, 3.0, 20.0])
def test_the_bessel_function(nu: float, z: float) -> None:
    assert oracles.bessel_k(nu, z) == pytest.approx(special.kv(nu, z), rel=1e-10)


def test_matern_closed_forms() -> None:
    for x in X.tolist():
        for y in Y.tolist():
            r = math.dist(x, y) / 0.7
            assert oracles.matern(x, y, 0.7, 0.5) == pytest.approx(math.exp(-r), rel=1e-9)
            z = math.sqrt(3) * r
            assert oracles.matern(x, y, 0.7, 1.5) == pytest.approx((1 + z) * math.exp(-z), rel=1e-9)
            z = math.sqrt(5) * r
            closed = (1 + z + z * z / 3) * math.exp(-z)
            assert oracles.matern(x, y, 0.7, 2.5) == pytest.approx(closed, rel=1e-9)
            limit = oracles.gaussian(x, y, gamma=1 / (2 * 0.7**2))
            assert oracles.matern(x, y, 0.7, math.inf) == pytest.approx(limit, rel=1e-12)


def test_kernels_by_hand() -> None:
    x, y = [1.0, 2.0], [3.0, -1.0]  # <x, y> = 1, |x - y|^2 = 13, |x - y|_1 = 5
    assert oracles.gaussian(x, y, 0.5) == math.exp(-6.5)
    assert oracles.polynomial(x, y, 3, 2.0, 1.0) == 27.0
    assert oracles.exponential(x, y, 2.0) == math.exp(2.0)
    assert oracles.inverse_polynomial(x, y, 3.0) == 0.5
    assert oracles.dot_product(x, y, [1.0, 2.0, 4.0]) == 7.0
    assert oracles.laplacian(x, y, 0.1) == math.exp(-0.5)
    assert oracles.gram(oracles.gaussian, [x, y], [x, y, x], gamma=0.5).shape == (2, 3)


def poisson_tail(norms: list[float], q: int) -> float:
    """The Gaussian's truncation trace: sum over rows of P(Poisson(|x'|^2) > q)."""
    return oracles.truncation_trace(
        norms, q, lambda w: Decimal(1) / math.factorial(w), lambda norm: -norm
    )


@pytest.mark.parametrize("q", [0, 3, 40, 200])
def test_the_truncation_trace_of_the_gaussian_is_a_poisson_tail(q: int) -> None:
    norms = [0.0, 0.1, 1.0, 30.0, 100.0]
    expected = math.fsum(stats.poisson.sf(q, norms).tolist())
    assert poisson_tail(norms, q) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("q", [0, 5, 30])
def test_the_truncation_trace_of_the_inverse_polynomial_is_geometric(q: int) -> None:
    norms = [0.0, 0.5, 1.9]
    trace = oracles.truncation_trace(norms, q, lambda w: Decimal(2) ** (-w - 1))
    closed = math.fsum((r / 2) ** (q + 1) / (2 - r) for r in norms)
    assert trace == pytest.approx(closed, rel=1e-9)


def test_the_truncation_trace_of_coefficients_with_gaps() -> None:
    a = [1.0, 0.0, 0.5, 0.0, 0.0, 2.0]
    trace = oracles.truncation_trace([0.01, 3.0], 2, lambda w: Decimal(a[w]), last=5)
    assert trace == pytest.approx(2 * (0.01**5 + 3.0**5), rel=1e-12)
    assert oracles.truncation_trace([0.01, 3.0], 5, lambda w: Decimal(a[w]), last=5) == 0.0


def test_the_truncation_trace_is_the_trace_that_the_lifting_misses() -> None:
    points, amplitude, coefficients = oracles.gaussian_series(X, 3, gamma=0.8)
    Phi, _ = oracles.lift_multisets(points, amplitude, coefficients)
    missing = len(X) - np.trace(Phi.T @ Phi)
    assert poisson_tail((points**2).sum(axis=1).tolist(), 3) == pytest.approx(missing, rel=1e-9)
