"""Diagnostics against dense brute force, simulation, and each other."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections import Counter

import numpy as np
import oracles
import pytest
import scipy.linalg
import scipy.sparse as sp
from sklearn.preprocessing import FunctionTransformer

from kernelsieve.diagnostics import (
    Estimate,
    KernelSample,
    Risk,
    SpectralEpsilon,
    estimate_kernel_error,
    estimate_spectral_epsilon,
    estimate_statistical_dimension,
    kernel_error,
    krr_risk,
    krr_risk_bound,
    spectral_epsilon,
    statistical_dimension,
)
from kernelsieve.kernels import Exponential, Gaussian, Laplacian, Polynomial

METHODS = ("lanczos", "subsample")


def fourier(X, gamma, s, rng):
    """Fourier features of exp(-gamma |x - y|^2), written out."""
    angles = X @ (np.sqrt(2 * gamma) * rng.standard_normal((X.shape[1], s // 2)))
    return np.hstack([np.cos(angles), np.sin(angles)]) * np.sqrt(2 / s)


def random_case(seed, n):
    """Points of one of three shapes, a kernel, a ridge and Fourier features."""
    rng = np.random.default_rng(seed)
    d = int(rng.choice([2, 5, 10, 30]))
    X = rng.standard_normal((n, d))
    shape = rng.integers(3)
    if shape == 1:  # clusters
        X = 2 * rng.standard_normal((8, d))[rng.integers(8, size=n)] + 0.5 * X
    elif shape == 2:  # heavy tails
        X = rng.standard_t(4, size=(n, d))
    gamma = float(rng.choice([0.05, 0.3, 1.0, 2.0])) / d
    alpha = float(rng.choice([0.01, 0.1, 1.0, 10.0])) * n / 2000
    s = int(rng.choice([50, 120, 250]))
    return X, Gaussian(gamma), alpha, fourier(X, gamma, s, rng)


def brute_force_epsilon(K, Z, alpha):
    """The definition, with the ridge on both sides and nothing clever."""
    ridge = alpha * np.eye(len(K))
    e = scipy.linalg.eigh(Z @ Z.T + ridge, K + ridge, eigvals_only=True)
    return 1 / e[0] - 1, 1 - 1 / e[-1]


# --- exact ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 100.0])
def test_statistical_dimension_is_the_trace_it_is_defined_by(alpha):
    X = np.random.default_rng(0).standard_normal((40, 3))
    K = Polynomial(degree=2)(X)
    assert statistical_dimension(K, alpha) == pytest.approx(oracles.statistical_dimension(K, alpha))


def test_statistical_dimension_counts_directions_above_the_ridge():
    assert statistical_dimension(np.diag([1e9, 1e9, 1e-9]), 1.0) == pytest.approx(2.0)


@pytest.mark.parametrize("seed", range(50))
def test_spectral_epsilon_is_that_of_brute_force(seed):
    X, kernel, alpha, Z = random_case(seed, n=120)
    K, alpha = kernel(X), max(alpha, 0.05)
    exact = spectral_epsilon(K, Z, alpha)
    lower, upper = brute_force_epsilon(K, Z, alpha)
    np.testing.assert_allclose([exact.lower, exact.upper], [lower, upper], rtol=1e-8, atol=1e-8)
    assert float(exact) == exact.epsilon == max(exact.lower, exact.upper)


def test_spectral_epsilon_makes_both_inequalities_tight():
    X, kernel, alpha, Z = random_case(3, n=60)
    ridge = alpha * np.eye(60)
    K, approximation = kernel(X) + ridge, Z @ Z.T + ridge
    exact = spectral_epsilon(kernel(X), Z, alpha)
    below = scipy.linalg.eigvalsh((1 + exact.lower) * approximation - K)
    above = scipy.linalg.eigvalsh(K - (1 - exact.upper) * approximation)
    scale = np.linalg.norm(K, 2)
    assert abs(below[0]) < 1e-12 * scale
    assert abs(above[0]) < 1e-12 * scale


def test_spectral_epsilon_is_zero_for_exact_features_and_one_sided_for_too_few():
    X = np.random.default_rng(0).standard_normal((50, 3))
    K, Z = Polynomial(degree=1)(X), np.hstack([np.ones((50, 1)), X])
    assert spectral_epsilon(K, Z, 0.1).epsilon < 1e-10
    too_few = spectral_epsilon(K, Z[:, :2], 0.1)
    assert too_few.lower > 1
    assert too_few.upper < 1e-10  # nothing is too high


@pytest.mark.parametrize("n", [80, 700])
def test_kernel_error_is_that_of_the_norms(n):
    X, kernel, _, Z = random_case(1, n)
    K = kernel(X)
    exact = kernel_error(K, Z)
    difference = K - Z @ Z.T
    assert exact.frobenius == pytest.approx(np.linalg.norm(difference) / np.linalg.norm(K))
    expected = np.linalg.norm(difference, 2) / np.linalg.norm(K, 2)
    assert exact.operator == pytest.approx(expected, rel=1e-8)


def test_sparse_and_single_precision_features_give_the_same():
    X, kernel, alpha, Z = random_case(2, n=90)
    Z[np.abs(Z) < 0.05] = 0
    K = kernel(X)
    for convert in (sp.csr_matrix, sp.csr_array, sp.csc_array):
        sparse, dense = spectral_epsilon(K, convert(Z), alpha), spectral_epsilon(K, Z, alpha)
        assert dataclasses.astuple(sparse) == pytest.approx(dataclasses.astuple(dense), rel=1e-10)
        assert kernel_error(K, convert(Z)).frobenius == pytest.approx(kernel_error(K, Z).frobenius)
    single = spectral_epsilon(K.astype(np.float32), Z.astype(np.float32), alpha)
    assert single.epsilon == pytest.approx(spectral_epsilon(K, Z, alpha).epsilon, rel=1e-3)
    assert statistical_dimension(K.astype(np.float32), 1.0) == pytest.approx(
        statistical_dimension(K, 1.0), rel=1e-4
    )


# --- risk ----------------------------------------------------------------------------------------


def simulated_risk(K, f, alpha, noise_variance, rng, draws=200):
    """Mean over noise draws of the squared distance of the fit to f, and its standard error."""
    noise = np.sqrt(noise_variance) * rng.standard_normal((len(f), draws))
    fit = K @ np.linalg.solve(K + alpha * np.eye(len(f)), f[:, None] + noise)
    errors = np.mean((fit - f[:, None]) ** 2, axis=0)
    return errors.mean(), errors.std(ddof=1) / np.sqrt(draws)


def risk_cases():
    """Kernel matrices, approximations of them from hopeless to good, and true functions."""
    kernels = (Gaussian(0.2), Laplacian(0.3), Polynomial(degree=2, gamma=0.5), Exponential(0.2))
    for seed in range(24):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(30, 120))
        X = rng.standard_normal((n, int(rng.integers(1, 6))))
        K = kernels[seed % 4](X)
        s = int(rng.integers(1, n))
        root = np.linalg.cholesky(K + 1e-10 * np.trace(K) / n * np.eye(n))
        mixing = rng.standard_normal((n, s)) / np.sqrt(s)
        overshoot = rng.choice([0.3, 1.0, 2.0])  # Z Z^T too low, right in the mean, too high
        alpha = float(rng.choice([0.01, 0.3, 5.0]))
        f = np.sin(X @ rng.standard_normal(X.shape[1])) + (seed % 3 == 0) * rng.standard_normal(n)
        yield K, overshoot * root @ mixing, f, alpha, float(rng.choice([0.01, 0.5])), rng


def test_risk_is_that_of_a_simulation():
    for K, Z, f, alpha, variance, rng in risk_cases():
        for matrix in (K, Z @ Z.T):
            mean, error = simulated_risk(matrix, f, alpha, variance, rng)
            assert abs(krr_risk(matrix, f, alpha, variance).total - mean) <= 5 * error + 1e-12


def test_risk_of_features_is_that_of_their_kernel_matrix():
    for _, Z, f, alpha, variance, _ in risk_cases():
        dense = krr_risk(Z @ Z.T, f, alpha, variance)
        for features in (Z, sp.csr_array(Z)):
            factored = krr_risk(features, f, alpha, variance, factored=True)
            assert factored.bias == pytest.approx(dense.bias, rel=1e-6, abs=1e-9)
            assert factored.variance == pytest.approx(dense.variance, rel=1e-6)
        assert float(dense) == dense.total == dense.bias + dense.variance


def test_risk_bound_holds_in_each_part_and_in_simulation():
    loosest = 0.0
    for K, Z, f, alpha, variance, rng in risk_cases():
        epsilon = spectral_epsilon(K, Z, alpha)
        exact = krr_risk(Z, f, alpha, variance, factored=True)
        mean, error = simulated_risk(Z @ Z.T, f, alpha, variance, rng)
        for given in (epsilon, epsilon.epsilon):
            bound = krr_risk_bound(K, f, alpha, variance, given, rank=min(Z.shape))
            assert exact.bias <= bound.bias * (1 + 1e-9)
            assert exact.variance <= bound.variance * (1 + 1e-9)
            assert mean <= bound.total + 4 * error
        loosest = max(loosest, exact.total / bound.total)
    assert loosest > 0.2  # the cases come near the bound somewhere


def test_risk_bound_needs_no_more_than_the_exact_risk_when_nothing_is_approximated():
    K, _, f, alpha, variance, _ = next(risk_cases())
    bound = krr_risk_bound(K, f, alpha, variance, 0.0, rank=len(K))
    exact = krr_risk(K, f, alpha, variance)
    assert exact.total <= bound.total
    assert bound.variance == pytest.approx(variance * statistical_dimension(K, alpha) / len(K))


def test_only_an_overshoot_adds_to_the_variance():
    K, f = np.eye(4), np.ones(4)
    one_sided = SpectralEpsilon(epsilon=3.0, lower=3.0, upper=-0.5)
    assert krr_risk_bound(K, f, 1.0, 1.0, one_sided, rank=2) == Risk(bias=2.0, variance=0.5)
    other_side = SpectralEpsilon(epsilon=0.5, lower=0.0, upper=0.5)
    assert krr_risk_bound(K, f, 1.0, 1.0, other_side, rank=2) == Risk(bias=0.5, variance=0.75)


def test_the_lemma_as_printed_is_violated_at_epsilon_0_65():
    n, eps, alpha = 10, 0.65, 1000.0
    K, f = np.eye(n), np.zeros(n)
    approximation = (K + alpha * np.eye(n)) / (1 - eps) - alpha * np.eye(n)
    exact = krr_risk(approximation, f, alpha, 1.0).total
    plain = krr_risk_bound(K, f, alpha, 1.0, 0.0, rank=n).total
    assert spectral_epsilon(K, np.linalg.cholesky(approximation), alpha).upper == pytest.approx(eps)
    assert exact > plain / (1 - eps) + eps / (1 + eps)  # the rank is n and the variance 1
    assert exact <= krr_risk_bound(K, f, alpha, 1.0, eps, rank=n).total


# --- estimates -----------------------------------------------------------------------------------


def covers(estimate, exact):
    low, high = estimate.interval
    return bool(low <= exact <= high)


@functools.cache
def exact_values(seed, n):
    """The truth, computed once for both methods."""
    X, kernel, alpha, Z = random_case(seed, n)
    K = kernel(X)
    return {
        "dimension": statistical_dimension(K, alpha),
        **dataclasses.asdict(spectral_epsilon(K, Z, alpha)),
        **dataclasses.asdict(kernel_error(K, Z)),
    }


def estimated_values(seed, n, method, subsample_rows):
    """The same quantities without the kernel matrix."""
    X, kernel, alpha, Z = random_case(seed, n)
    options = {"method": method, "subsample_rows": subsample_rows, "random_state": seed}
    epsilon = estimate_spectral_epsilon(kernel, X, Z, alpha, **options)
    error = estimate_kernel_error(kernel, X, Z, **options)
    return {
        "dimension": estimate_statistical_dimension(kernel, X, alpha, **options),
        "epsilon": epsilon.epsilon,
        "lower": epsilon.lower,
        "upper": epsilon.upper,
        "frobenius": error.frobenius,
        "operator": error.operator,
    }


def coverage(seeds, n, method, subsample_rows):
    """How often each estimate's interval holds the exact value."""
    hits = Counter()
    for seed in seeds:
        exact = exact_values(seed, n)
        for name, estimate in estimated_values(seed, n, method, subsample_rows).items():
            hits[name] += covers(estimate, exact[name])
    return hits


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_intervals_cover_the_exact_value_in_45_of_50_cases(method):
    hits = coverage(range(50), 2000, method, subsample_rows=500)
    assert min(hits.values()) >= 45, hits


@pytest.mark.parametrize("method", METHODS)
def test_intervals_cover_the_exact_value_on_small_data(method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # 250 features on 200 rows of a subsample
        hits = coverage(range(100, 110), 400, method, subsample_rows=200)
    assert min(hits.values()) >= 8, hits


def test_lanczos_is_precise():
    X, kernel, alpha, Z = random_case(7, n=600)
    exact = spectral_epsilon(kernel(X), Z, alpha)
    coarse = estimate_spectral_epsilon(kernel, X, Z, alpha, random_state=0)
    fine = estimate_spectral_epsilon(kernel, X, Z, alpha, tol=1e-6, random_state=0)
    assert coarse.epsilon.error <= 0.011 * exact.epsilon
    assert fine.epsilon.value == pytest.approx(exact.epsilon, rel=1e-6)
    error = estimate_kernel_error(kernel, X, Z, tol=1e-6, random_state=0)
    assert error.operator.value == pytest.approx(kernel_error(kernel(X), Z).operator, rel=1e-6)
    dimension = estimate_statistical_dimension(kernel, X, alpha, random_state=0)
    assert dimension.error <= 0.05 * dimension.value


def test_more_probes_make_a_shorter_bar():
    X, kernel, _, _ = random_case(4, n=500)
    few, many = (
        estimate_statistical_dimension(kernel, X, 0.1, n_probes=k, random_state=0).error
        for k in (8, 128)
    )
    assert many < 0.6 * few


def test_estimates_never_hold_the_kernel_matrix():
    X, kernel, alpha, Z = random_case(5, n=900)
    sizes = []

    def recorded(A, B):
        sizes.append((A.shape[0], B.shape[0]))
        return kernel(A, B)

    estimate_statistical_dimension(recorded, X, alpha, block_rows=64, random_state=0)
    estimate_spectral_epsilon(recorded, X, Z, alpha, block_rows=64, random_state=0)
    estimate_kernel_error(recorded, X, Z, block_rows=64, random_state=0)
    assert max(rows for rows, _ in sizes) <= 64


@pytest.mark.parametrize("method", METHODS)
def test_any_callable_kernel_any_kind_of_features_and_rows(method):
    X, _, _, _ = random_case(6, n=300)
    X = X[:, :2].copy()
    options = {"method": method, "subsample_rows": 100, "random_state": 3}

    def linear(A, B):
        product = A @ B.T + 1
        return product.toarray() if sp.issparse(product) else product

    def lift(A):
        return np.hstack([np.ones((A.shape[0], 1)), A[:, :1]])

    expected = estimate_spectral_epsilon(linear, X, lift(X), 1.0, **options)
    for features in (lift, FunctionTransformer(lift).fit(X), sp.csr_array(lift(X))):
        estimate = estimate_spectral_epsilon(linear, X, features, 1.0, **options)
        assert float(estimate) == pytest.approx(float(expected), rel=1e-6)
    kernel = Polynomial(degree=1)
    for points in (X, X.tolist(), sp.csr_array(X), sp.csr_matrix(X)):
        estimate = estimate_spectral_epsilon(kernel, points, lift(X), 1.0, **options)
        assert float(estimate) == pytest.approx(float(expected), rel=1e-6)
    single = estimate_spectral_epsilon(kernel, X.astype(np.float32), lift(X), 1.0, **options)
    assert float(single) == pytest.approx(float(expected), rel=1e-3)
    assert covers(expected.epsilon, spectral_epsilon(linear(X, X), lift(X), 1.0).epsilon)


@pytest.mark.parametrize("method", METHODS)
def test_exact_features_have_no_error(method):
    X = np.random.default_rng(0).standard_normal((300, 3))
    kernel, Z = Polynomial(degree=1), np.hstack([np.ones((300, 1)), X])
    options = {"method": method, "subsample_rows": 100, "random_state": 0}
    assert float(estimate_spectral_epsilon(kernel, X, Z, 0.1, **options)) < 1e-6
    error = estimate_kernel_error(kernel, X, Z, **options)
    assert max(float(error.frobenius), float(error.operator)) < 1e-6


@pytest.mark.parametrize("n", [1, 2, 5, 40])
@pytest.mark.parametrize("method", METHODS)
def test_few_rows_are_exact(n, method):
    X, kernel, _, Z = random_case(8, n)
    K, options = kernel(X), {"method": method, "tol": 1e-8, "random_state": 0}
    estimate = estimate_spectral_epsilon(kernel, X, Z, 1.0, **options)
    assert float(estimate) == pytest.approx(spectral_epsilon(K, Z, 1.0).epsilon, abs=1e-6)
    assert estimate.epsilon.n_rows == n
    error = estimate_kernel_error(kernel, X, Z, **options)
    assert float(error.operator) == pytest.approx(kernel_error(K, Z).operator, abs=1e-6)
    dimension = estimate_statistical_dimension(kernel, X, 1.0, method=method, random_state=0)
    assert float(dimension) == pytest.approx(statistical_dimension(K, 1.0), rel=1e-6)


def test_the_seed_decides_everything():
    X, kernel, alpha, Z = random_case(9, n=300)
    for method in METHODS:
        first, again, other = (
            estimate_spectral_epsilon(
                kernel, X, Z[:, :40], alpha, method=method, subsample_rows=100, random_state=seed
            )
            for seed in (0, 0, 1)
        )
        assert first == again
        assert first != other


def test_auto_subsamples_only_what_is_large(monkeypatch):
    X, kernel, alpha, _ = random_case(10, n=300)
    assert estimate_statistical_dimension(kernel, X, alpha).method == "lanczos"
    monkeypatch.setattr("kernelsieve.diagnostics.estimates.LANCZOS_ROWS", 299)
    large = estimate_statistical_dimension(kernel, X, alpha, subsample_rows=100)
    assert (large.method, large.n_rows) == ("subsample", 100)
    assert str(large).endswith("(subsample, 100 rows)")


def test_a_subsample_that_is_smaller_than_the_features_is_told():
    X, kernel, alpha, Z = random_case(11, n=300)
    with pytest.warns(UserWarning, match=r"subsample_rows=20 is less than twice the \d+ features"):
        estimate_spectral_epsilon(kernel, X, Z, alpha, method="subsample", subsample_rows=20)


# --- what is refused -----------------------------------------------------------------------------

K3 = np.eye(3)
NAN = np.full((3, 3), np.nan)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: statistical_dimension(K3, -1), ValueError, "alpha=-1 must be finite and > 0"),
        (lambda: statistical_dimension(K3, np.nan), ValueError, "alpha=nan must be finite"),
        (lambda: statistical_dimension(K3, "1"), TypeError, "alpha='1' must be a number"),
        (lambda: statistical_dimension(np.ones((3, 2)), 1), ValueError, "must be square"),
        (lambda: statistical_dimension(NAN, 1), ValueError, "K contains NaN"),
        (lambda: statistical_dimension(np.empty((0, 0)), 1), ValueError, "0 sample"),
        (lambda: statistical_dimension(np.triu(np.ones((3, 3))), 1), ValueError, "not symmetric"),
        (lambda: statistical_dimension(-K3, 1), ValueError, "has the eigenvalue -1"),
        (lambda: spectral_epsilon(K3, np.ones((2, 1)), 1), ValueError, "Z has 2 rows for 3"),
        (lambda: spectral_epsilon(K3, NAN, 1), ValueError, "Z contains NaN"),
        (lambda: spectral_epsilon(K3, 1e9 * np.ones((3, 1)), 1e-9), ValueError, "larger alpha"),
        (lambda: kernel_error(0 * K3, K3), ValueError, "K is zero everywhere"),
        (lambda: krr_risk(K3, [1, 2], 1, 1), ValueError, r"f has shape \(2,\)"),
        (lambda: krr_risk(K3, [1, np.inf, 0], 1, 1), ValueError, "f contains infinity"),
        (lambda: krr_risk(K3, [1, 2, 3], 1, -1), ValueError, "noise_variance=-1 must be"),
        (lambda: krr_risk(K3, [1, 2, 3], 1, None), TypeError, "noise_variance=None must be"),
        (lambda: krr_risk(K3, [1, 2], 1, 1, factored=True), ValueError, r"f has shape \(2,\)"),
        (lambda: krr_risk_bound(K3, [1, 2, 3], 1, 1, 0.1, 4), ValueError, "rank=4 must lie"),
        (lambda: krr_risk_bound(K3, [1, 2, 3], 1, 1, 0.1, 1.5), TypeError, "rank=1.5 must be"),
        (lambda: krr_risk_bound(K3, [1, 2, 3], 1, 1, -0.1, 1), ValueError, "epsilon=-0.1 must"),
        (lambda: krr_risk_bound(K3, [1, 2, 3], 1, 1, np.nan, 1), ValueError, "epsilon=nan must"),
        (lambda: krr_risk_bound(K3, [1, 2, 3], 1, 1, "a", 1), TypeError, "epsilon='a' must"),
    ],
)
def test_bad_matrices_are_refused_with_a_reason(call, error, match):
    with pytest.raises(error, match=match):
        call()


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"kernel": "rbf"}, TypeError, "kernel='rbf' must be callable"),
        ({"kernel": lambda A, B: np.ones(3)}, ValueError, r"gave shape \(3,\)"),
        ({"kernel": lambda A, B: np.nan * A @ B.T}, ValueError, "NaN or infinity"),
        ({"X": np.full((9, 2), np.nan)}, ValueError, "X contains NaN"),
        ({"X": np.empty((0, 2))}, ValueError, "0 sample"),
        ({"Z": np.ones((4, 2))}, ValueError, "Z has 4 rows for 9 data points"),
        ({"alpha": 0.0}, ValueError, "alpha=0.0 must be finite and > 0"),
        ({"method": "exact"}, ValueError, "method='exact' is unknown"),
        ({"tol": 0}, ValueError, "tol=0 must be finite and > 0"),
        ({"max_passes": 0}, ValueError, "max_passes=0 must be >= 1"),
        ({"block_rows": 2.5}, TypeError, "block_rows=2.5 must be an integer"),
        ({"method": "subsample", "subsample_rows": 1}, ValueError, "subsample_rows=1 must be >= 2"),
        ({"method": "subsample", "n_repeats": 1}, ValueError, "n_repeats=1 must be >= 2"),
    ],
)
def test_bad_estimates_are_refused_with_a_reason(options, error, match):
    X = np.random.default_rng(0).standard_normal((9, 2))
    given = {"kernel": Gaussian(1.0), "X": X, "Z": np.ones((9, 2)), "alpha": 1.0} | options
    with pytest.raises(error, match=match):
        estimate_spectral_epsilon(**given)


def test_the_other_estimates_refuse_too():
    X = np.random.default_rng(0).standard_normal((9, 2))
    with pytest.raises(ValueError, match="n_probes=1 must be >= 2"):
        estimate_statistical_dimension(Gaussian(1.0), X, 1.0, n_probes=1)
    with pytest.raises(ValueError, match="alpha=-2 must be finite and > 0"):
        estimate_statistical_dimension(Gaussian(1.0), X, -2)
    for method in METHODS:
        with pytest.raises(ValueError, match="zero"):
            estimate_kernel_error(
                lambda A, B: np.zeros((len(A), len(B))), X, X, method=method, subsample_rows=4
            )


def test_values_are_immutable():
    epsilon = spectral_epsilon(K3, K3, 1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        epsilon.lower = 0.0


# --- a sample ------------------------------------------------------------------------------------


def test_a_sample_scales_alpha_and_its_halves_are_the_error_bar() -> None:
    X = np.random.default_rng(0).standard_normal((300, 3)).astype(np.float32)
    kernel = Gaussian(gamma=0.5)
    Z = np.hstack([np.ones((100, 1)), X[:100]])
    sample = KernelSample(kernel, X[:100], alpha=3.0, n_rows=300)
    K = kernel(X[:100].astype(np.float64))
    assert (len(sample), sample.alpha) == (100, pytest.approx(1.0))
    np.testing.assert_allclose(sample.K, K)
    halves = [slice(0, None, 2), slice(1, None, 2)]

    def check(found: Estimate, whole: float, parts: list[float]) -> None:
        assert found.value == pytest.approx(whole)
        assert found.error == pytest.approx(max(abs(whole - part) for part in parts))

    check(
        sample.statistical_dimension(),
        statistical_dimension(K, 1.0),
        [statistical_dimension(K[h, h], 0.5) for h in halves],
    )
    check(
        sample.spectral_epsilon(Z),
        float(spectral_epsilon(K, Z, 1.0)),
        [float(spectral_epsilon(K[h, h], Z[h], 0.5)) for h in halves],
    )
    assert sample.sides(Z) == spectral_epsilon(K, Z, 1.0)
    assert sample.kernel_error(Z) == kernel_error(K, Z)


def test_one_pass_bounds_the_statistical_dimension():
    X = np.random.default_rng(0).standard_normal((300, 8))
    kernel = Gaussian(0.2)
    exact = statistical_dimension(kernel(X), 1e-3)
    errors = []
    for passes in (1, 40):
        found = estimate_statistical_dimension(
            kernel, X, 1e-3, method="lanczos", max_passes=passes, random_state=0
        )
        assert abs(found.value - exact) <= found.error
        errors.append(found.error)
    assert errors[0] > errors[1]  # what it does not know it says
