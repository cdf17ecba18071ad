"""Landmarks: leverage scores, randomly pivoted Cholesky and whitening against the dense truth."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from scipy import stats
from scipy.linalg import solve_triangular
from scipy.optimize import brentq

from kernelsieve._random import stream
from kernelsieve.engine.scores import capped_proportional, systematic_sample
from kernelsieve.features import landmarks
from kernelsieve.features.recursive_leverage import (
    WeightedRows,
    leverage_scores,
    recursive_leverage_scores,
    spanning,
)
from kernelsieve.features.rpcholesky import accept, rpcholesky_pivots
from kernelsieve.kernels import DotProduct, Gaussian, Pairwise, Polynomial
from kernelsieve.linalg import whitening
from kernelsieve.testing.data import points, sparse_points


def uneven(n: int = 1000, d: int = 4, seed: int = 0) -> Any:
    """A dense bulk, a thin halo and a few lonely points: scores of very different size."""
    rng = np.random.default_rng(seed)
    scale = np.where(rng.random(n) < 0.05, 1.5, 0.3)
    scale[:5] = 8.0
    return rng.standard_normal((n, d)) * scale[:, None]


def left(K: Any, rows: Any) -> float:
    """The trace that landmarks do not explain."""
    factor = np.linalg.cholesky(K[np.ix_(rows, rows)] + 1e-10 * np.eye(len(rows)))
    return float(np.trace(K) - np.square(solve_triangular(factor, K[rows], lower=True)).sum())


def lambda_at(K: Any, dimension: float) -> float:
    """The lambda at which K has this statistical dimension."""
    values = np.linalg.eigvalsh(K).clip(min=0.0)
    return float(brentq(lambda a: np.sum(values / (values + a)) - dimension, 1e-9, values.sum()))


# --- leverage scores -----------------------------------------------------------------------------


@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("lambda_", [1e-3, 1.0, 100.0])
def test_scores_of_few_rows_are_exact(lambda_: float, container: Any) -> None:
    X = sparse_points(60)
    K = Gaussian(0.5)(X)
    scores = recursive_leverage_scores(Gaussian(0.5), container(X), lambda_, 60, seed=0)
    np.testing.assert_allclose(scores, oracles.row_leverage_scores(K, lambda_), rtol=1e-9)


def test_scores_from_a_weighted_sample_are_the_formula() -> None:
    """(K - K S (S^T K S + lambda I)^-1 S^T K)_ii / lambda, with the matrix S written out."""
    X, rng, lambda_ = points(30), np.random.default_rng(3), 0.7
    kernel = Polynomial(2)
    sample = WeightedRows(np.array([2, 5, 11, 28]), rng.uniform(0.2, 1.0, size=4))
    S = np.zeros((30, 4))
    S[sample.rows, range(4)] = 1.0 / np.sqrt(sample.probabilities)
    K = kernel(X)
    inverse = np.linalg.inv(S.T @ K @ S + lambda_ * np.eye(4))
    expected = np.diag(K - K @ S @ inverse @ S.T @ K) / lambda_
    scores = leverage_scores(kernel, X, np.arange(30), sample, lambda_, n_jobs=1)
    np.testing.assert_allclose(scores, np.minimum(expected, 1.0), rtol=1e-9)


def weighted_sample(rows: int, seed: int) -> WeightedRows:
    """Of 1,000 rows, with probabilities that span a factor of ten."""
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.permutation(1000)[:rows])
    return WeightedRows(chosen, rng.uniform(0.1, 1.0, size=rows))


@pytest.mark.parametrize("lambda_", [0.3, 3.0, 1000.0])
@pytest.mark.parametrize("gamma", [0.1, 0.5])
def test_few_rows_of_a_sample_give_its_scores(gamma: float, lambda_: float) -> None:
    """Within a factor 2, whatever the rows, from at most half of the sample."""
    X, sample, kernel = uneven(), weighted_sample(500, 1), Gaussian(gamma)
    roots = np.sqrt(sample.probabilities)
    C = kernel(X[sample.rows]) / np.outer(roots, roots)
    kept, triangle = spanning(C, lambda_)
    assert len(kept) <= 250
    np.testing.assert_array_equal(np.tril(triangle, -1), 0.0)
    rest = C - oracles.nystrom(C, kept.tolist())
    assert np.linalg.norm(rest, 2) < 0.55 * lambda_
    rows = np.arange(1000)
    whole, few = (
        leverage_scores(kernel, X, rows, sample, lambda_, 1, exact_rows=exact_rows)
        for exact_rows in (500, 0)
    )
    assert (few / whole).min() > 0.5
    assert (few / whole).max() < 2.0


def test_scores_of_few_rows_are_those_of_the_projected_sample() -> None:
    """phi^T (P A P + lambda)^-1 phi, with a kernel whose phi are the columns."""
    X, sample, lambda_ = uneven(), weighted_sample(60, 2), 20.0
    X = np.hstack([X, X**2, X[:, :2] ** 3])
    kernel = DotProduct([0.0, 1.0])
    roots = np.sqrt(sample.probabilities)
    kept, _ = spanning(kernel(X[sample.rows]) / np.outer(roots, roots), lambda_)
    P = np.linalg.pinv(X[sample.rows[kept]]) @ X[sample.rows[kept]]
    A = X[sample.rows].T @ (X[sample.rows] / sample.probabilities[:, None])
    expected = np.einsum("ij,ij->i", X @ np.linalg.inv(P @ A @ P + lambda_ * np.eye(10)), X)
    scores = leverage_scores(kernel, X, np.arange(1000), sample, lambda_, 1, exact_rows=0)
    np.testing.assert_allclose(scores, expected.clip(max=1.0), rtol=1e-6)


def test_rows_without_directions_in_common_are_all_needed() -> None:
    assert spanning(np.eye(60), 0.1) is None


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_recursive_scores_are_right_up_to_a_constant(dtype: type) -> None:
    """Samples of ten times the statistical dimension: a factor 3 for 99 % of the rows, 6 seeds."""
    X = uneven()
    K = Gaussian(0.3)(X)
    lambda_ = lambda_at(K, 20.0)
    exact = oracles.row_leverage_scores(K, lambda_)
    assert exact.max() > 30 * np.median(exact), "the data are too even to show anything"
    for seed in range(6):
        scores = recursive_leverage_scores(Gaussian(0.3), X.astype(dtype), lambda_, 200, seed, 1)
        ratio = scores / exact
        within = float(np.mean((ratio > 1 / 3) & (ratio < 3)))
        assert within >= 0.99, f"seed {seed}: only {within:.1%} within a factor 3"


def test_leverage_landmarks_have_the_probabilities_of_their_scores() -> None:
    """Tenths of the rows, by score: each is chosen as often as its exact scores say, over seeds."""
    X, size, alpha, n_seeds = uneven(300), 40, 30.0, 100
    scores = oracles.row_leverage_scores(Gaussian(0.3)(X), alpha)
    chosen = np.zeros(300)
    for seed in range(n_seeds):
        rows = landmarks.leverage_landmarks(Gaussian(0.3), X, size, alpha, seed, 1)
        assert len(np.unique(rows)) == len(rows) == size
        chosen[rows] += 1 / n_seeds
    tenths = np.argsort(scores).reshape(10, 30)
    expected = capped_proportional(scores, size)[tenths].mean(axis=1)
    assert expected[-1] > 2 * expected[0]
    # Scores are right up to a constant only: a tenth beside five standard errors of the draws.
    allowed = 0.1 * expected + 5 * np.sqrt(expected / (30 * n_seeds))
    assert (np.abs(chosen[tenths].mean(axis=1) - expected) < allowed).all()


def test_a_larger_alpha_spreads_the_landmarks() -> None:
    """At a large ridge all scores are k(x, x) / lambda: the halo is no longer preferred."""
    X = uneven(300)
    far = np.linalg.norm(X, axis=1) > 1.5
    small, large = (
        np.mean(
            [
                far[landmarks.leverage_landmarks(Gaussian(0.3), X, 30, alpha, seed, 1)].mean()
                for seed in range(20)
            ]
        )
        for alpha in (1.0, 1e6)
    )
    assert abs(large - far.mean()) < 5 * np.sqrt(far.mean() / 600)
    assert small > 2 * large


@pytest.mark.parametrize("n", [500, 3000])
def test_lambda_gives_as_many_directions_as_landmarks(n: int) -> None:
    X = points(n, 3)
    lambda_ = landmarks.lambda_for_landmarks(Gaussian(1.0), X, 60, seed=0, n_jobs=1)
    few = X[:: n // 500]
    dimension = oracles.statistical_dimension(Gaussian(1.0)(few), lambda_ * len(few) / n)
    assert 45 < dimension < 90


def clusters(n: int = 900, rare: int = 24, members: int = 5) -> Any:
    """One large cluster, and many rare ones far from it and from each other."""
    rng = np.random.default_rng(0)
    centres = np.repeat(4.0 * rng.standard_normal((rare, 8)), members, axis=0)
    X = 0.1 * rng.standard_normal((n, 8))
    X[: len(centres)] += centres
    return X


@pytest.mark.parametrize(
    "alpha",
    [0.01, 0.1, 1.0, *(pytest.param(a, marks=pytest.mark.slow) for a in (1e-4, 10.0, 100.0))],
)
def test_leverage_landmarks_are_as_good_as_exact_scores(alpha: float) -> None:
    """The trace that is left, mean of 30 seeds: at most 1.2 times that of exact scores at alpha."""
    X, kernel, size, seeds = clusters(), Gaussian(0.25), 60, range(30)
    K = kernel(X)
    exact = capped_proportional(oracles.row_leverage_scores(K, alpha), size)
    ours = [left(K, landmarks.leverage_landmarks(kernel, X, size, alpha, s, 1)) for s in seeds]
    best = [left(K, systematic_sample(exact, stream(s, "exact"))) for s in seeds]
    error = np.hypot(np.std(ours), np.std(best)) / np.sqrt(len(seeds))
    assert np.mean(ours) < 1.2 * np.mean(best) + error


def test_the_ridge_changes_the_landmarks() -> None:
    X, kernel = clusters(), Gaussian(0.25)
    few, many = (landmarks.leverage_landmarks(kernel, X, 60, alpha, 0, 1) for alpha in (1.0, 30.0))
    assert set(few.tolist()) != set(many.tolist())


# --- randomly pivoted Cholesky -------------------------------------------------------------------


def test_blocked_pivots_have_the_distribution_of_single_draws() -> None:
    """All ordered pairs of five rows, with probabilities written out: a chi-square test."""
    X = np.array([[0.2, 0.1], [1.0, 0.3], [1.1, 0.2], [-0.7, 1.5], [0.0, -0.9]])
    kernel = Polynomial(2)
    K, n_seeds = kernel(X), 3000
    expected = {}
    for first, second in itertools.permutations(range(5), 2):
        rest = K - np.outer(K[:, first], K[:, first]) / K[first, first]
        share = rest[second, second] / np.trace(rest)
        expected[first, second] = n_seeds * share * K[first, first] / np.trace(K)
    counts = Counter(
        tuple(rpcholesky_pivots(kernel, X, 2, seed, 1, proposals=4).tolist())
        for seed in range(n_seeds)
    )
    assert set(counts) <= set(expected)
    # Cells too rare for the chi-square approximation are put together.
    often = [pair for pair in expected if expected[pair] >= 5]
    seen = [counts[pair] for pair in often]
    wanted = [expected[pair] for pair in often]
    seen.append(n_seeds - sum(seen))
    wanted.append(n_seeds - sum(wanted))
    assert stats.chisquare(seen, wanted).pvalue > 1e-4


def test_the_error_is_that_of_the_unblocked_version() -> None:
    X, size = uneven(400), 40
    kernel = Gaussian(0.3)
    K = kernel(X)

    def left(pivots: Any) -> float:
        return float(np.trace(K - oracles.nystrom(K, list(pivots))))

    blocked, simple = [], []
    for seed in range(20):
        blocked.append(left(rpcholesky_pivots(kernel, X, size, seed, 1, proposals=20)))
        rng = np.random.default_rng(seed)
        simple.append(left(oracles.randomly_pivoted_cholesky(K, size, rng)))
    assert np.mean(blocked) <= 1.1 * np.mean(simple)
    assert np.mean(simple) <= 1.1 * np.mean(blocked)


def test_pivots_beat_uniform_rows() -> None:
    X = uneven(400)
    kernel = Gaussian(0.3)
    K = kernel(X)
    for seed in range(5):
        pivots = rpcholesky_pivots(kernel, X, 40, seed, 1)
        uniform = landmarks.uniform_landmarks(kernel, X, 40, 1.0, seed, 1)
        errors = [np.trace(K - oracles.nystrom(K, list(rows))) for rows in (pivots, uniform)]
        assert errors[0] < 0.5 * errors[1]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_pivots_stop_where_nothing_is_left(dtype: type, container: Any) -> None:
    X = container(points(80, 5).astype(dtype))
    for seed in range(5):
        pivots = rpcholesky_pivots(DotProduct([0.0, 1.0]), X, 60, seed)
        assert len(np.unique(pivots)) == len(pivots) == 5, "a linear kernel has rank d"


def test_accepted_proposals_carry_their_cholesky_factor() -> None:
    """A proposal that the earlier ones span is never kept; the others are factored in order."""
    Z = np.random.default_rng(0).standard_normal((6, 4))
    Z[3] = Z[1]
    accepted, root = accept(Z @ Z.T, 6, np.random.default_rng(1))
    assert {1, 3} - set(accepted.tolist())
    assert 1 <= len(accepted) <= 4
    np.testing.assert_allclose(root @ root.T, (Z @ Z.T)[np.ix_(accepted, accepted)], atol=1e-12)
    assert len(accept(Z @ Z.T, 1, np.random.default_rng(1))[0]) == 1


# --- k-means -------------------------------------------------------------------------------------


def test_centres_are_nearer_to_the_rows_than_random_rows() -> None:
    X = uneven(600)
    centres = landmarks.kmeans_centres(X, 30, seed=0)
    rows = X[landmarks.uniform_landmarks(Gaussian(), X, 30, 1.0, 0, 1)]
    nearest = [np.square(X[:, None] - c).sum(axis=2).min(axis=1).mean() for c in (centres, rows)]
    assert centres.shape == (30, 4)
    assert nearest[0] < 0.8 * nearest[1]


def test_kmeans_says_that_it_needs_dense_rows() -> None:
    with pytest.raises(ValueError, match=r"kmeans.*dense.*'uniform'"):
        landmarks.kmeans_centres(sp.csr_array(sparse_points()), 5, seed=0)


# --- whitening -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(7, 1), (50, 256), (33, 700)])
def test_half_a_product_is_the_product(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    C, T = rng.standard_normal(shape), np.triu(rng.standard_normal((shape[1], shape[1])))
    out = np.empty_like(C)
    whitening.times_upper(C, T, out)
    np.testing.assert_allclose(out, C @ T, atol=1e-11)


def test_whitening_is_an_inverse_root() -> None:
    gram = Gaussian(1.0)(points(50))
    T = whitening.whitening_of(gram, np.float64)
    assert np.array_equal(T, np.triu(T))
    np.testing.assert_allclose(T @ T.T, np.linalg.inv(gram), rtol=1e-7, atol=1e-7)


def test_independent_landmarks_leave_out_repeated_points() -> None:
    X = points(30)
    X[7], X[20], X[21] = X[3], X[3], X[0]
    kept = whitening.independent_landmarks(Gaussian(1.0)(X))
    assert kept.tolist() == [i for i in range(30) if i not in (7, 20, 21)]


def test_independent_landmarks_find_the_rank() -> None:
    gram = Polynomial(2)(points(60, 3))
    kept = whitening.independent_landmarks(gram)
    assert len(kept) == 10  # monomials of degree at most 2 in 3 variables
    np.testing.assert_allclose(oracles.nystrom(gram, kept.tolist()), gram, atol=1e-9)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_kernel_that_is_not_positive_is_refused(sign: float) -> None:
    kernel = Pairwise(lambda x, y: sign * float(np.abs(x - y).sum()))
    with pytest.raises(ValueError, match="not positive semi-definite"):
        whitening.independent_landmarks(kernel(points(20)))
