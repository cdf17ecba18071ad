"""Balanced thinning: exact probabilities, sums that do not change, lower kernel errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import oracles
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from kernelsieve import AdaptiveFeatures, MaclaurinFeatures, ObliviousFeatures, TensorSketchFeatures
from kernelsieve.engine.balance import balanced_probabilities, heaviest_directions
from kernelsieve.engine.options import DEFAULTS
from kernelsieve.engine.scores import capped_proportional, systematic_sample
from kernelsieve.kernels import Polynomial

Array = NDArray[np.float64]


def a_pool(n: int, k: int, seed: int = 0) -> tuple[Array, Array]:
    """Probabilities that sum to a quarter of the pool, and products with k directions."""
    rng = np.random.default_rng(seed)
    keep = capped_proportional(rng.exponential(size=n) ** 2, n // 4)
    return keep, rng.standard_normal((n, k)) / np.sqrt(np.maximum(keep, 1e-12))[:, None]


def test_each_feature_is_kept_with_its_probability() -> None:
    keep, directions = a_pool(40, 2)
    n_seeds = 1500
    counts = np.zeros(40)
    for seed in range(n_seeds):
        rng = np.random.default_rng(seed)
        probabilities = balanced_probabilities(keep, directions, 3, rng)
        counts[systematic_sample(probabilities, rng)] += 1
    deviations = np.sqrt(np.maximum(keep * (1 - keep), 1e-12) / n_seeds)
    assert (np.abs(counts / n_seeds - keep) <= 1e-6 + 4.5 * deviations).all()


def test_sums_over_the_kept_are_those_over_the_pool() -> None:
    keep, directions = a_pool(600, 4)
    found = balanced_probabilities(keep, directions, 10, np.random.default_rng(1))
    assert np.sum((found > 0) & (found < 1)) <= 11  # one for each sum, and their number
    assert found.sum() == pytest.approx(keep.sum(), abs=1e-6)
    whole = oracles.weighted_gram(directions, keep)
    np.testing.assert_allclose(oracles.weighted_gram(directions, found), whole, rtol=1e-6)


def test_sums_that_imply_each_other_and_pools_without_any() -> None:
    keep, directions = a_pool(200, 2)
    twice = np.column_stack([directions, directions, np.zeros(200)])
    found = balanced_probabilities(keep, twice, 15, np.random.default_rng(0))
    whole = oracles.weighted_gram(directions, keep)
    np.testing.assert_allclose(oracles.weighted_gram(directions, found), whole, rtol=1e-5)
    for nothing in (np.empty((200, 0)), np.zeros((200, 3))):
        found = balanced_probabilities(keep, nothing, 5, np.random.default_rng(0))
        assert found.sum() == pytest.approx(keep.sum())
    certain = np.ones(10)
    assert (
        balanced_probabilities(certain, directions[:10], 5, np.random.default_rng(0)) == 1
    ).all()


def test_directions_are_eigenvectors() -> None:
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((30, 30)))[0]
    gram = vectors @ np.diag(4.0 ** -np.arange(30)) @ vectors.T
    found = heaviest_directions(gram, 5, rng)
    np.testing.assert_allclose(np.abs(np.sum(found * vectors[:, :5], axis=0)), 1.0, rtol=1e-6)
    assert heaviest_directions(gram[:3, :3], 5, rng).shape == (3, 3)


def digits(n: int) -> Array:
    X = load_digits().data[:n]
    return (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)


def mean_error(K: Array, X: Array, kind: type, n_seeds: int, s: int, kernel: Polynomial) -> float:
    errors = []
    for seed in range(n_seeds):
        Z = kind(s, kernel=kernel, random_state=seed).fit_transform(X)
        errors.append(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))
    return float(np.mean(errors))


class Unbalanced(AdaptiveFeatures):
    _options = replace(DEFAULTS, n_directions=0)


@pytest.mark.parametrize("degree", [3, 5])
def test_kernel_errors_are_below_those_of_chance_and_of_sketches(degree: int) -> None:
    X = digits(300)  # of different lengths: rows of one length have no heavy directions to balance
    kernel = Polynomial(degree, gamma=1 / 64, coef0=1.0)
    K = kernel(X)
    balanced = mean_error(K, X, AdaptiveFeatures, 4, 150, kernel)
    assert balanced < 0.95 * mean_error(K, X, Unbalanced, 4, 150, kernel)
    for sketch in (ObliviousFeatures, TensorSketchFeatures, MaclaurinFeatures):
        assert balanced <= 1.05 * mean_error(K, X, sketch, 4, 150, kernel)


def test_the_map_stays_unbiased() -> None:
    X = np.random.default_rng(0).standard_normal((12, 6))
    kernel = Polynomial(4, gamma=1 / 6, coef0=1.0)
    n_seeds = 150
    found = []
    for seed in range(n_seeds):
        Z = AdaptiveFeatures(30, kernel=kernel, random_state=seed, n_jobs=1).fit_transform(X)
        found.append(Z @ Z.T)
    deviation = np.std(found, axis=0) / np.sqrt(n_seeds)
    assert np.abs((np.mean(found, axis=0) - kernel(X)) / deviation).max() < 4.5
