"""Rows that report the error: apart, or in folds that repeat the choice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.learning import chosen, source

from kernelsieve.learning import Budget, Judge, LearnOptions
from kernelsieve.learning.held_out import (
    predictions_of_folds,
    repeated,
    reported_error,
    rows_set_apart,
)
from kernelsieve.learning.plan import HeldOut
from kernelsieve.learning.product_choice import again_on_fold, choose_product, smaller
from kernelsieve.learning.sides import Setting, Sides


def table(n: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=n)


@pytest.mark.parametrize(
    ("n", "size"), [(2, 0), (999, 0), (1000, 200), (20_000, 4000), (100_000, 4000), (10**6, 40_000)]
)
def test_a_fifth_is_set_apart_of_enough_rows(n: int, size: int) -> None:
    choose, judge = rows_set_apart(n, Judge(n))
    assert len(judge) == size
    assert len(choose) == n - size
    assert not set(choose[:100]) & set(judge)


def again(setting: Setting, some: Any, choice: Any, budget: Budget) -> Any:
    return again_on_fold(choice, Sides.of(smaller(setting), some), budget, None)


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("free", [True, False])
def test_folds_predict_rows_by_what_was_chosen_without_them(free: bool, linear: bool) -> None:
    """The targets of a fold move neither its kernel nor its predictions from the others."""
    n = 90
    X, y = table(n)
    judge = Judge(n) if free else Judge(n, groups=np.arange(n) // 3)

    def setting(y: Any) -> Setting:
        return Setting(source(X, y), judge, LearnOptions())

    choice = choose_product(Sides.of(setting(y), np.arange(n)), Budget(), None)
    folds = repeated(setting(y), choice, again, Budget())
    held = predictions_of_folds(setting(y), folds, linear, source(X, y), None)
    assert held.rows.tolist() == list(range(n))
    np.testing.assert_array_equal(held.targets[:, 0], y)
    assert np.std(held.apart[:, 0] - y) < 0.8 * y.std()
    for fold, chosen_there in folds:
        assert not set(fold.choose) & set(fold.judge)
        assert not set(chosen_there.learner.rows) & set(fold.judge)
    apart = folds[0][0].judge
    spoiled = y.copy()
    spoiled[apart] += 100.0
    moved = repeated(setting(spoiled), choice, again, Budget())
    first, second = (one[0][1] for one in (folds, moved))
    assert first.best.alpha == second.best.alpha
    assert first.form.kernel(first.best, first.learner) == second.form.kernel(
        second.best, second.learner
    )
    after = predictions_of_folds(setting(spoiled), moved, linear, source(X, spoiled), None)
    np.testing.assert_allclose(after.apart[apart], held.apart[apart], atol=1e-8)


def test_folds_for_which_there_is_no_time_keep_the_choice() -> None:
    n = 60
    setting = Setting(source(*table(n)), Judge(n), LearnOptions())
    choice = choose_product(Sides.of(setting, np.arange(n)), Budget(), None)
    found = repeated(setting, choice, lambda *_: pytest.fail("no time"), Budget(0.0))
    assert len(found) == 4
    assert all(kept is choice for _, kept in found)


def test_the_reported_error_is_weighted_and_seen_among_all_rows() -> None:
    rng = np.random.default_rng(0)
    X, y, weights = rng.normal(size=(200, 2)), rng.normal(size=200), rng.uniform(0.0, 2.0, 200)
    rows = np.arange(0, 200, 4)
    held = HeldOut(rows, y[rows, None], np.zeros((50, 1)), np.zeros((50, 1)))
    grouped = Judge(200, groups=np.arange(200))
    plain = np.sqrt(np.average(y[rows] ** 2, weights=weights[rows]))
    assert reported_error(held, source(X, y, weights), grouped) == pytest.approx(plain)
    # Errors of a constant are known at all rows.
    mean = np.average(y, weights=weights)
    held = HeldOut(rows, y[rows, None], np.full((50, 1), mean), np.full((50, 1), mean))
    of_all = np.sqrt(np.average((y - mean) ** 2, weights=weights))
    assert reported_error(held, source(X, y, weights), Judge(200)) == pytest.approx(of_all)


@pytest.mark.parametrize("free", [True, False])
def test_held_out_rows_without_any_weight_report_an_error(free: bool) -> None:
    X, y = table(50)
    weights = np.ones(50)
    weights[:10] = 0.0
    judge = Judge(50) if free else Judge(50, groups=np.arange(50))
    held = HeldOut(np.arange(10), y[:10, None], y[:10, None] + 1.0, y[:10, None] + 1.0)
    assert 0.5 < reported_error(held, source(X, y, weights), judge) < 1.5


def test_a_plan_of_few_rows_holds_the_predictions_of_its_folds() -> None:
    X, y = table(120)
    held = chosen(X, y, transform=None).report.held_out
    assert held.rows.tolist() == list(range(120))
    np.testing.assert_array_equal(held.targets[:, 0], y)
    signs = np.where(y > 0.0, 1.0, -1.0)
    order = Judge(120, order=np.arange(120)[::-1])  # the first in time never judge
    held = chosen(X, signs, judge=order, classes=True).report.held_out
    if held is not None:
        assert len(held.rows) == len(held.predicted) < 120
        np.testing.assert_array_equal(held.targets[:, 0], signs[held.rows])
