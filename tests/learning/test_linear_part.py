"""A linear part beside the kernel: what it is, and when it is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.learning import source

from kernelsieve.kernels import Product
from kernelsieve.learning import LearnOptions
from kernelsieve.learning.linear_part import LinearPart, try_linear
from kernelsieve.sources.base import Block

OPTIONS, NARROW = LearnOptions(), Product(2.0, "laplacian")


def block(n: int, seed: int, line: bool, weights: Any = None) -> Block:
    rng = np.random.default_rng(seed)
    X, noise = rng.normal(size=(n, 4)), rng.normal(size=n)
    y = X @ np.array([1.0, -2.0, 0.0, 0.5]) + 0.1 * noise if line else noise
    return Block(X, y[:, None], weights)


@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_a_linear_target_is_given_a_line(seed: int, free: bool) -> None:
    known, apart = block(300, seed, True), block(200, seed + 50, True)
    trial = try_linear(known, apart, NARROW, 0.1, OPTIONS, free)
    assert trial.pays
    assert trial.ratio < 0.5
    assert trial.alpha == 0.1 or free


def test_noise_is_not_given_a_line() -> None:
    """A mean gain above its standard error, and above one per cent: seldom by chance."""
    trials = [
        try_linear(
            block(300, seed, False), block(200, seed + 500, False), NARROW, 3.0, OPTIONS, False
        )
        for seed in range(40)
    ]
    # A gain of pure chance exceeds its standard error with probability 0.16, and is as often a
    # loss: 40 trials with more than 13 of them are 3 deviations off.
    assert sum(trial.pays for trial in trials) <= 13


def test_few_rows_for_each_coefficient_get_no_line() -> None:
    known, apart = block(49, 0, True), block(100, 1, True)
    assert not try_linear(known, apart, NARROW, 0.1, OPTIONS, True).pays
    assert try_linear(block(60, 0, True), apart, NARROW, 0.1, OPTIONS, True).pays
    weights = np.arange(60) % 2 * 1.0  # 30 of them count
    assert not try_linear(block(60, 0, True, weights), apart, NARROW, 0.1, OPTIONS, True).pays


def test_it_is_the_line() -> None:
    X = np.random.default_rng(0).normal(size=(200, 3))
    y = X @ np.array([[1.0, 0.0], [0.0, -2.0], [3.0, 1.0]]) + np.array([5.0, -7.0])
    line = LinearPart.fit(Block(X, y))
    assert line.n_columns == 3
    np.testing.assert_allclose(line(X), y, atol=1e-3)


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_targets_of_any_size(size: float) -> None:
    X = np.random.default_rng(0).normal(size=(50, 2))
    y = size * (X[:, :1] + 2.0)
    np.testing.assert_allclose(LinearPart.fit(Block(X, y))(X), y, rtol=0.05, atol=1e-2 * size)


def test_constant_columns_and_missing_values_add_nothing() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=100), np.full(100, 0.1), np.full(100, np.nan)])
    line = LinearPart.fit(Block(X, X[:, :1]))
    assert (line.coefficients[1:] == 0.0).all()
    strange = np.array([[np.nan, 1e9, 1e9]])
    np.testing.assert_allclose(line(strange), line.intercepts[None])  # the mean of the column
    constant = LinearPart.fit(Block(np.ones((5, 2)), np.full((5, 1), 3.0)))
    np.testing.assert_allclose(constant(np.zeros((1, 2))), 3.0)


def test_weights_are_repetitions_and_rows_without_one_do_not_count() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.normal(size=(60, 1))
    weights = (np.arange(60) % 3).astype(float)
    y[weights == 0.0] = 1e9
    X[weights == 0.0] += 1e3
    kept = weights > 0.0
    few, weighted = (
        LinearPart.fit(Block(X[kept], y[kept], weights[kept])),
        LinearPart.fit(Block(X, y, weights)),
    )
    np.testing.assert_array_equal(few.coefficients, weighted.coefficients)
    assert np.abs(few.intercepts).max() < 10.0


def test_what_it_leaves_is_for_the_kernel() -> None:
    rng = np.random.default_rng(0)
    X, y, weights = rng.normal(size=(30, 2)), rng.normal(size=30), rng.uniform(1, 2, 30)
    line = LinearPart.of(source(X, y, weights), 0)
    left = line.beside(source(X, y, weights)).take(np.arange(30))
    np.testing.assert_allclose(left.y + line(X), y[:, None])
    np.testing.assert_array_equal(left.weights, weights)
