"""The choice as a whole: a value, the same for the same seed, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.learning import LARGE, chosen, source

from kernelsieve.kernels import Anova, Product
from kernelsieve.learning import Budget, Judge, Plan, Wanted, choose


def table(n: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.normal(size=n)


@pytest.mark.parametrize("n", [120, 1100])
@pytest.mark.parametrize("classes", [False, True])
def test_it_is_a_plan_and_changes_nothing(n: int, classes: bool) -> None:
    X, y = table(n)
    y = np.where(y > 0.0, 1.0, -1.0) if classes else y
    weights = np.random.default_rng(1).uniform(0.5, 2.0, n)
    rows, judge = source(X, y, weights), Judge(n, 3)
    for values in (X, y, weights):
        values.setflags(write=False)
    wanted = Wanted(classes=classes, transform=None)
    plan = choose(rows, judge, Budget(), wanted)
    assert isinstance(plan, Plan)
    assert plan.classes == classes
    assert plan.report.error is None  # nothing was fitted
    assert len(plan.report.candidates) == len(plan.report.alphas) == len(plan.report.errors)
    again = choose(rows, judge, Budget(), replace(wanted, n_jobs=3))
    assert (again.kernel, again.alpha) == (plan.kernel, plan.alpha)
    assert (again.solver, again.loss, again.linear) == (plan.solver, plan.loss, plan.linear)


def test_landmarks_are_chosen_the_same_for_any_threads() -> None:
    X, y = table(1100)
    one, two = (chosen(X, y, LARGE, n_jobs=n) for n in (1, 2))
    assert (one.kernel, one.alpha, one.solver) == (two.kernel, two.alpha, two.solver)


def test_what_the_caller_has_decided_stays() -> None:
    X, y = table(150)
    assert chosen(X, y, alphas=np.array([0.7])).alpha == 0.7
    assert chosen(X, np.exp(y), transform=None).transform is None
    assert chosen(X, np.exp(y), transform="sqrt").transform.name == "sqrt"
    assert not chosen(X, y, fit_intercept=False).linear
    pairs = chosen(X, y, max_order=2).kernel
    assert isinstance(pairs, Anova)
    assert max(map(len, pairs.subsets)) <= 2
    signs = np.where(y > 0.0, 1.0, -1.0)
    assert chosen(X, signs, classes=True, alphas=np.array([0.7])).alpha == 0.7


@pytest.mark.parametrize("n", [2, 3, 4, 7, 13, 30])
@pytest.mark.parametrize("classes", [False, True])
def test_few_rows(n: int, classes: bool) -> None:
    X, y = table(n)
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0) if classes else y
    plan = chosen(X, y, classes=classes, transform=None)
    assert plan.solver.kind == "exact"
    assert plan.alpha > 0.0


@pytest.mark.parametrize("n", [40, 300])
def test_constant_targets_and_columns(n: int) -> None:
    X, y = table(n)
    for columns, targets in ((X, np.full(n, 3.0)), (np.ones((n, 2)), y), (X[:, :1], y)):
        plan = chosen(columns, targets)
        assert isinstance(plan.kernel, Product)
        assert np.isfinite(plan.alpha)
    assert not chosen(X, np.full(n, 3.0)).linear


@pytest.mark.parametrize("n", [60, 300])
@pytest.mark.parametrize("n_weighted", [1, 2, 9])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_most_rows_without_a_weight(n: int, n_weighted: int) -> None:
    X, y = table(n)
    weights = np.zeros(n)
    weights[:n_weighted] = 1.0
    for classes in (False, True):
        targets = np.where(np.arange(n) % 2 == 0, 1.0, -1.0) if classes else y
        plan = chosen(X, targets, weights=weights, classes=classes, transform=None)
        assert np.isfinite(plan.alpha)


def test_a_late_choice_is_a_plan() -> None:
    X, y = table(1100)
    plan = choose(source(X, y), Judge(1100, 0), Budget(0.0))
    assert np.isfinite(plan.alpha)
    assert not plan.linear


def test_too_few_groups() -> None:
    X, y = table(60)
    with pytest.raises(ValueError, match="groups has 2 different values: at least 3 are needed"):
        chosen(X, y, judge=Judge(60, groups=np.arange(60) % 2))
