"""Exact kernel or landmarks, and when a smaller error is no chance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.learning import LARGE, chosen, source

from kernelsieve.learning import Budget, Judge
from kernelsieve.learning.product_choice import choose_product
from kernelsieve.learning.sides import Setting, Sides
from kernelsieve.learning.solver import choose_solver, pays


def bumps(n: int, noise: float, frequency: float) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(n, 2))
    waves = np.sin(frequency * X[:, 0]) * np.cos(frequency * X[:, 1])
    return X, waves + noise * rng.normal(size=n)


def solver(X: Any, y: Any, **changes: Any) -> Any:
    n = len(X)
    options = replace(LARGE, **changes)
    setting = Setting(source(X, y), Judge(n), options, exact=n <= options.exact_rows)
    sides = Sides.of(setting, np.arange(n))
    choice = choose_product(sides, Budget(), None)
    return choose_solver(choice, sides, Budget(), None), choice


def test_few_rows_are_solved_exactly() -> None:
    found, choice = solver(*bumps(100, 0.1, 2.0))
    assert (found.solver.kind, found.solver.size) == ("exact", 30)
    assert found.judged is choice.best


def test_many_rows_without_noise_are_solved_by_iterations_if_their_work_is_allowed() -> None:
    X, y = bumps(900, 0.01, 6.0)
    found, choice = solver(X, y)
    assert found.solver.kind == "iterative"
    assert found.judged.alpha >= 1e-4
    assert found.tried
    cheap, choice = solver(X, y, full_work=0.0)
    assert cheap.solver.kind == "landmarks"
    assert cheap.judged is choice.best
    assert not cheap.tried


def test_noise_is_left_to_landmarks() -> None:
    X, _ = bumps(900, 0.0, 1.0)
    assert chosen(X, np.random.default_rng(1).normal(size=900), LARGE).solver.kind == "landmarks"


@pytest.mark.parametrize("weights", [None, np.zeros(120), np.ones(120)])
def test_rows_without_any_weight_are_as_good_as_others(weights: Any) -> None:
    noise = np.random.default_rng(0).normal(size=(120, 1))
    assert pays(0.9 * noise, noise, weights)
    assert not pays(0.995 * noise, noise, weights)
    assert not pays(noise, 0.9 * noise, weights)


def test_the_rows_that_count_decide() -> None:
    before = np.ones((100, 1))
    after = np.where(np.arange(100) < 50, 0.5, 2.0)[:, None]
    weights = np.where(np.arange(100) < 50, 1.0, 0.0)
    assert pays(after, before, weights)
    assert not pays(after, before, 1.0 - weights)
    assert not pays(after, before)
