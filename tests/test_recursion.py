"""Algorithm 1: its rounds, the lemma on its spectral error, and E[Z Z^T] = K."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from scipy.optimize import brentq
from support.sampled_maps import gram_of

from kernelsieve import AdaptiveFeatures, RowNormFeatures
from kernelsieve.diagnostics import spectral_epsilon, statistical_dimension
from kernelsieve.kernels import Gaussian, InversePolynomial, Polynomial
from kernelsieve.paper import recursion
from kernelsieve.paper.parameters import SamplerParameters, sample_size
from kernelsieve.paper.recursion import RecursiveSample, halvings, recursive_leverage_sampling
from kernelsieve.paper.row_sampler import RowSample, RowSampler
from kernelsieve.products.product_features import Frame, MonomialBasis, ProductFeatures
from kernelsieve.testing.data import as_dense

Array = Any


def points(n: int, d: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(n, d)) / np.sqrt(d)


def evaluate(result: RecursiveSample, X: Array) -> Array:
    Z = np.empty((len(X), len(result.features)))
    result.features.fill(X, Z)
    return Z


# --- the rounds ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trace", "alpha", "eps", "expected"),
    [
        (8.0, 1.0, 1.0, [8.0, 4.0, 2.0]),  # lambda_3 = 1, for which the last round samples
        (9.0, 1.0, 1.0, [9.0, 4.5, 2.25, 1.125]),
        (8.0, 1.0, 0.5, [16.0, 8.0, 4.0, 2.0]),
        (1.0, 1.0, 1.0, [1.0]),
        (0.5, 7.0, 1.0, [7.0]),  # the printed T is negative: no round at all
        (0.0, 7.0, 0.1, [7.0]),
    ],
)
def test_halvings(trace: float, alpha: float, eps: float, expected: list[float]) -> None:
    assert halvings(trace, alpha, eps) == expected


def test_the_last_round_is_within_a_factor_of_two() -> None:
    rng = np.random.default_rng(0)
    for trace, alpha in rng.uniform(0.01, 100.0, size=(50, 2)):
        lambdas = halvings(trace, alpha, 1.0)
        assert lambdas[0] == max(trace, alpha)
        assert alpha <= lambdas[-1] <= 2 * alpha
        assert all(later == earlier / 2 for earlier, later in pairwise(lambdas))


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_every_round_samples_by_the_last(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """RowSampler(Phi, S_(t-1) Phi, lambda_(t-1), s): B is what the round before drew."""
    rounds: list[dict[str, Any]] = []

    class Spy(recursion.RowSampler):
        def __init__(self, points: Any, series: Any, Z: Any, lambda_: float, *rest: Any, **kw: Any):
            rounds.append({"Z": Z, "lambda": lambda_})
            super().__init__(points, series, Z, lambda_, *rest, **kw)

        def draw(self, size: int, random_state: Any = None) -> Any:
            rounds[-1]["sample"] = super().draw(size, random_state)
            return rounds[-1]["sample"]

    monkeypatch.setattr(recursion, "RowSampler", Spy)
    X = points(25, 3)
    kernel = Gaussian(0.3)
    series = kernel.series(make(X), 1e-3)
    result = recursive_leverage_sampling(make(X), series, 0.5, 40, 1 / 3, random_state=4)
    truncated = series(X)
    assert [one["lambda"] for one in rounds] == result.lambdas
    assert result.lambdas == pytest.approx(halvings(np.trace(truncated), 0.5, 1 / 3), rel=1e-12)
    assert len(rounds) == 8
    assert rounds[0]["Z"] is None
    at = series.points(X)
    amplitude = np.exp(series.log_amplitude(np.array([oracles.dot(x, x) for x in at])))
    for before, one in pairwise(rounds):
        sample = before["sample"]
        assert len(sample) == 40
        rows = oracles.lift(at, amplitude, np.exp(series.log_coefficients), sample.tuples())
        expected = (rows.T / (40 * sample.probabilities)) @ rows
        np.testing.assert_allclose(one["Z"] @ one["Z"].T, expected, rtol=1e-10, atol=1e-12)
    assert result.sample is rounds[-1]["sample"]
    rows = oracles.lift(at, amplitude, np.exp(series.log_coefficients), result.sample.tuples())
    expected = (rows.T / (40 * result.sample.probabilities)) @ rows
    Z = as_dense(result.features.csr(make(X))) if sp.issparse(make(X)) else evaluate(result, X)
    np.testing.assert_allclose(Z @ Z.T, expected, rtol=1e-10, atol=1e-12)


def test_rounds_have_draws_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same lambda twice and no B, two rounds would repeat each other's draws."""
    X = points(25, 3)
    series = Gaussian(0.3).series(X, 1e-3)
    samples = []
    draw = recursion.RowSampler.draw

    def spy(self: Any, size: int, random_state: Any = None) -> Any:
        samples.append(draw(self, size, random_state))
        return samples[-1]

    monkeypatch.setattr(recursion.RowSampler, "draw", spy)
    monkeypatch.setattr(recursion, "_evaluate", lambda *_: None)
    monkeypatch.setattr(recursion, "halvings", lambda *_: [1.0, 1.0])
    recursive_leverage_sampling(X, series, 1.0, 60, random_state=0)
    assert samples[0].tuples() != samples[1].tuples()


def test_the_same_seed_gives_the_same_sample() -> None:
    X = points(40, 3)
    series = Gaussian(0.3).series(X, 1e-3)
    first, again, other, threaded = (
        recursive_leverage_sampling(X, series, 0.5, 30, random_state=seed, n_jobs=n_jobs)
        for seed, n_jobs in ((1, 1), (1, 1), (2, 1), (1, 3))
    )
    assert first.sample.tuples() == again.sample.tuples() == threaded.sample.tuples()
    np.testing.assert_array_equal(first.features.weights, threaded.features.weights)
    assert first.sample.tuples() != other.sample.tuples()


def test_dense_and_sparse_rows_choose_alike() -> None:
    X = points(40, 6) * (np.random.default_rng(1).random((40, 6)) < 0.5)
    kernel = Polynomial(3, 1.0, 1.0)
    dense, sparse = (
        recursive_leverage_sampling(A, kernel.series(A, 1e-6), 0.5, 60, random_state=0)
        for A in (X, sp.csr_array(X))
    )
    assert sorted(dense.features.multisets.tuples()) == sorted(sparse.features.multisets.tuples())
    assert np.sort(dense.features.weights) == pytest.approx(np.sort(sparse.features.weights))


def test_float32_with_a_small_lambda() -> None:
    """The Gram matrix of float32 features is taken in float64, or lambda would be lost in it."""
    X = points(60, 3).astype(np.float32)
    kernel = Polynomial(2, 1.0, 1.0)
    result = recursive_leverage_sampling(X, kernel.series(X, 1e-6), 1e-6, 400, random_state=0)
    assert len(result.features) == 10, "all monomials of degree 2 in 3 columns have leverage 1"
    Z = np.empty((60, 10), dtype=np.float32)
    result.features.fill(X, Z)
    K = gram_of(kernel, X)
    assert np.linalg.norm(Z @ Z.T - K) < 0.5 * np.linalg.norm(K)


def test_zero_rows_only() -> None:
    X = np.zeros((5, 3))
    nothing = recursive_leverage_sampling(X, Polynomial(2, 1.0, 0.0).series(X, 1e-6), 1.0, 7)
    assert len(nothing.sample) == len(nothing.features) == 0
    constant = recursive_leverage_sampling(X, Gaussian(1.0).series(X, 1e-6), 1e-3, 7)
    assert constant.features.multisets.tuples() == [()]
    assert constant.features.weights == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"lambda_": 0.0}, "lambda_=0.0"), ({"eps": -1.0}, "eps=-1.0"), ({"n_components": 0}, "=0")],
)
def test_bad_arguments(wrong: dict[str, Any], words: str) -> None:
    X = points(5, 2)
    given = {"lambda_": 1.0, "n_components": 3, "eps": 0.3, **wrong}
    with pytest.raises(ValueError, match=words):
        recursive_leverage_sampling(X, Polynomial(2).series(X, 1e-6), **given)


# --- the lemma -----------------------------------------------------------------------------------


def with_dimension(K: Array, dimension: float) -> float:
    """The alpha at which K has this statistical dimension."""
    return float(brentq(lambda a: oracles.statistical_dimension(K, a) - dimension, 1e-9, 1e9))


def lemma_case(name: str) -> tuple[Array, Any, Callable[[int, int], SamplerParameters]]:
    """300 rows, a kernel, and how large the sampler's matrices are."""
    practical = SamplerParameters.practical
    match name:
        case "polynomial":
            return points(300, 4), Polynomial(3, 1.0, 1.0), practical
        case "polynomial, 3 buckets":
            three = SamplerParameters(24, 32, 256, n_buckets=3, bucket_rows=36)
            return points(300, 10), Polynomial(3, 1.0, 1.0), lambda d, q: three
        case "gaussian":
            return points(300, 3), Gaussian(0.4), practical
        case "inverse polynomial":
            X = points(300, 3)
            return (
                X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None],
                InversePolynomial(2.0),
                practical,
            )
    raise AssertionError(name)


def lemma_errors(name: str, C: float, seeds: range, eps: float = 1 / 3) -> Array:
    """The spectral epsilon of every run, with s from the formula and mu = s_lambda = 5."""
    X, kernel, sizes = lemma_case(name)
    alpha = with_dimension(kernel(X), 5.0)
    series = kernel.series(X, 1e-3 * eps * alpha)
    K = series(X)
    s = sample_size(statistical_dimension(K, alpha), eps, len(X), C=C)
    parameters = sizes(X.shape[1], series.degree)
    return np.array(
        [
            float(
                spectral_epsilon(
                    K,
                    evaluate(
                        recursive_leverage_sampling(
                            X,
                            series,
                            alpha,
                            s,
                            eps,
                            parameters=parameters,
                            random_state=seed,
                            n_jobs=1,
                        ),
                        X,
                    ),
                    alpha,
                )
            )
            for seed in seeds
        ]
    )


def test_the_lemma_quickly() -> None:
    """Measured: all of 100 runs have epsilon < 0.25."""
    assert (lemma_errors("polynomial", 2.0, range(8)) <= 1 / 3).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["polynomial", "polynomial, 3 buckets", "gaussian", "inverse polynomial"]
)
def test_the_lemma(name: str) -> None:
    """C = 2 is half of the default and 1/32 of what the proof's constants give."""
    errors = lemma_errors(name, 2.0, range(100))
    print(f"{name}: {(errors <= 1 / 3).sum()} of 100 runs, worst epsilon {errors.max():.3f}")
    assert (errors <= 1 / 3).sum() >= 95


def test_leverage_is_worth_more_than_norms() -> None:
    """Two clusters far from the rest of the norm: row norm hardly ever draws their feature."""
    X = points(200, 3, seed=2)
    X[:, 2] *= 0.05
    kernel, alpha, s = Polynomial(2, 1.0, 0.0), 1e-5, 150
    K = gram_of(kernel, X)
    series = kernel.series(X, 1e-6)
    by_leverage, by_norm = [], []
    for seed in range(8):
        recursive = recursive_leverage_sampling(X, series, alpha, s, 1 / 3, random_state=seed)
        by_leverage.append(float(spectral_epsilon(K, evaluate(recursive, X), alpha)))
        # Not the map, which takes all 6 features: one round of draws.
        single = recursive_leverage_sampling(X, series, 1e9, s, 1 / 3, random_state=seed)
        assert len(single.lambdas) == 1
        by_norm.append(float(spectral_epsilon(K, evaluate(single, X), alpha)))
    assert np.median(by_leverage) < 1.0
    assert np.median(by_norm) > 5 * np.median(by_leverage)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("name", ["row norm", "recursion"])
def test_all_features_where_more_are_asked_for(name: str, make: Any) -> None:
    """Independent draws would miss some: 10 monomials, each with weight 1."""
    X, kernel = points(40, 3), Polynomial(2, 1.0, 1.0)
    for size in (10, 15):
        fitted = UNBIASED[name](n_components=size, kernel=kernel, random_state=0).fit(make(X))
        assert sorted(fitted.monomials_) == sorted(oracles.multisets(3, 2))
        np.testing.assert_array_equal(fitted.weights_, 1.0)
        Z = as_dense(fitted.transform(make(X)))
        np.testing.assert_allclose(Z @ Z.T, gram_of(kernel, X), rtol=1e-10)
    fewer = UNBIASED[name](n_components=9, kernel=kernel, random_state=0).fit(make(X))
    assert fewer.n_components_ <= 9


# --- E[S^T S] = I --------------------------------------------------------------------------------

LONELY = (4, 2)  # a row and a column that only this row has


def six_points() -> Array:
    X = points(6, 3, seed=5)
    X[:, LONELY[1]] = 0.0
    X[LONELY] = 0.6
    return X


UNBIASED = {
    "row norm": lambda **options: RowNormFeatures(sampler="paper", **options),
    "recursion": lambda **options: AdaptiveFeatures(sampler="paper", **options),
    "leverage": lambda **options: AdaptiveFeatures(sampler="leverage", **options),
}
#: The pool of "leverage" is 12 times as large: it must leave features out, too.
SIZES = {"row norm": 40, "recursion": 40, "leverage": 5}
ALPHA = 1.0


def standard_errors_off(name: str, kernel: Any, seeds: int, make: Any) -> Array:
    """Deviation of the mean of Z Z^T from K, entry by entry, in standard errors.

    A mean of heavy-tailed terms looks better than it is: no sample may be a large part of an
    entry's variance, or the normal approximation of the mean says nothing.
    """
    X = six_points()
    K = gram_of(kernel, X)
    samples = []
    for seed in range(seeds):
        options = {"kernel": kernel, "alpha": ALPHA, "center": False, "rotate": False, "n_jobs": 1}
        fitted = UNBIASED[name](
            n_components=SIZES[name], basis="monomial", random_state=seed, **options
        )
        Z = as_dense(fitted.fit(make(X)).transform(make(X)))
        samples.append(Z @ Z.T)
    deviations = np.stack(samples) - K
    squares = deviations**2
    exact = squares.mean(axis=0) < 1e-20 * K.max() ** 2  # a feature that is never left out
    largest = squares.max(axis=0)[~exact] / squares.sum(axis=0)[~exact]
    assert largest.max() < max(0.2, 20 / seeds), "too heavy a tail for a normal approximation"
    errors = deviations.std(axis=0, ddof=1) / np.sqrt(seeds)
    # The truncation of the series is at most 1e-3 (eps / 2) alpha, and not what is tested here.
    bias = np.maximum(np.abs(deviations.mean(axis=0)) - 2.5e-4 * ALPHA, 0.0)
    return np.where(exact, 0.0, bias / np.where(exact, 1.0, errors))


#: With more features than are asked for: else a map takes them all.
KERNELS = {"polynomial": Polynomial(5, 0.5, 0.5), "gaussian": Gaussian(0.4)}


@pytest.mark.parametrize(
    ("name", "kernel", "make", "seeds"),
    [
        ("row norm", "polynomial", np.asarray, 100),
        ("recursion", "polynomial", sp.csr_array, 25),
        ("leverage", "gaussian", np.asarray, 100),
    ],
)
def test_unbiased_quickly(name: str, kernel: str, make: Any, seeds: int) -> None:
    """21 entries: five standard errors are one false alarm in 10^5."""
    assert standard_errors_off(name, KERNELS[kernel], seeds, make).max() < 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kernel", "make"),
    [
        ("row norm", "polynomial", np.asarray),
        ("row norm", "gaussian", sp.csr_array),
        ("recursion", "polynomial", sp.csr_array),
        ("recursion", "gaussian", np.asarray),
        ("leverage", "polynomial", sp.csr_array),
        ("leverage", "gaussian", np.asarray),
    ],
)
def test_unbiased(name: str, kernel: str, make: Any) -> None:
    off = standard_errors_off(name, KERNELS[kernel], 2000, make)
    print(f"{name}, {kernel}, {make.__name__}: at most {off.max():.1f} standard errors off")
    assert off.max() < 4


# --- the same without chance: every outcome, with its probability --------------------------------


def small_alpha_rounds(seed: int) -> tuple[Array, Any, Array, Any]:
    """Rows, their series, Phi of all tuples, and the last round's sampler at alpha = .01."""
    X = points(4, 2, seed=3)
    series = Polynomial(3, 0.7, 0.5).series(X, 1e-9)
    before = recursive_leverage_sampling(X, series, 0.02, 40, random_state=seed, n_jobs=1)
    sizes = SamplerParameters(24, 32, 256, n_buckets=2, bucket_rows=36)
    sampler = RowSampler(series.points(X), series, evaluate(before, X), 0.01, sizes, seed, n_jobs=1)
    at = series.points(X)
    amplitude = np.exp(series.log_amplitude((at**2).sum(axis=1)))
    coefficients = np.exp(series.log_coefficients)
    return X, series, oracles.lift(at, amplitude, coefficients, tuples_of(sampler)), sampler


def tuples_of(sampler: RowSampler) -> list[tuple[int, ...]]:
    return sampler.distribution().tuples()


@pytest.mark.parametrize("seed", range(3))
def test_the_exact_expectation_is_the_kernel(seed: int) -> None:
    """All 15 x 15 outcomes of two draws, as the map weights and evaluates them."""
    X, series, _, sampler = small_alpha_rounds(seed)
    listed = sampler.distribution()
    expected = np.zeros((4, 4))
    for pair in itertools.product(range(len(listed)), repeat=2):
        two = list(pair)
        sample = RowSample(listed.degrees[two], listed.paths[two], listed.probabilities[two])
        basis, frame = MonomialBasis(series), Frame.of_series(series)
        features = ProductFeatures(frame, basis, *sample.features(), sparse=False)
        Z = np.empty((4, len(features)))
        features.fill(X, Z)
        expected += np.prod(sample.probabilities) * Z @ Z.T
    K = gram_of(Polynomial(3, 0.7, 0.5), X)
    np.testing.assert_allclose(expected, K, rtol=1e-10, atol=1e-12)


def test_the_mean_is_within_bernsteins_bound_at_a_small_alpha() -> None:
    """Rare tuples have large weights there, so a sample's own deviation says too little.

    The exact variance of a draw and its largest value are known from the list of all tuples, so
    that Bernstein's inequality bounds the mean of all draws: one false alarm in 10^6.
    """
    size, seeds = 4000, 25
    mean, variance, largest = np.zeros((4, 4)), np.zeros((4, 4)), 0.0
    for seed in range(seeds):
        X, _, Phi, sampler = small_alpha_rounds(seed)
        listed = sampler.distribution().probabilities
        drawn = sampler.draw(size, random_state=seed)
        place = {one: i for i, one in enumerate(tuples_of(sampler))}
        rows = Phi[[place[one] for one in drawn.tuples()]]
        mean += (rows.T / drawn.probabilities) @ rows
        variance += size * ((Phi**2).T @ (Phi**2 / listed[:, None]) - (Phi.T @ Phi) ** 2)
        largest = max(largest, float(((Phi**2).max(axis=1) / listed).max()))
    n_draws = size * seeds
    log = np.log(2 * 16 / 1e-6)
    bound = largest * log / 3 + np.sqrt((largest * log / 3) ** 2 + 2 * variance * log)
    K = gram_of(Polynomial(3, 0.7, 0.5), X)
    assert (np.abs(mean - n_draws * K) <= bound).all()
    assert bound.max() < 0.1 * n_draws * K.max(), "the bound says little"
