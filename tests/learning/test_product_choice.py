"""The choice of a product kernel, and its decisive steps again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.learning import LARGE, source

from kernelsieve.learning import Budget, Judge, LearnOptions
from kernelsieve.learning.product_choice import again_on_fold, choose_product, smaller
from kernelsieve.learning.sides import Setting, Sides


def sides(n: int, options: LearnOptions | None = None, y: Any = None) -> Sides:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6))
    y = np.sin(3.0 * X[:, 2]) + 0.1 * rng.normal(size=n) if y is None else y
    options = LearnOptions() if options is None else options
    setting = Setting(source(X, y), Judge(n), options, exact=n <= options.exact_rows)
    return Sides.of(setting, np.arange(n))


def test_the_best_is_the_best_that_was_tried() -> None:
    found = choose_product(sides(250), Budget(), None, simpler=True)
    assert found.best.is_learned
    kernel = found.form.kernel(found.best, found.learner)
    assert np.argmax(kernel.relevances()) == 2
    least = min(one.rmse for one in found.tried)
    # Learned rates may be worse than equal ones, and kernels of fewer columns than others.
    assert found.best.rmse <= (1.0 + 0.003) * (1.0 + 0.03) * least
    names = [(one.fit.family, one.is_learned) for one in found.simple]
    assert names == [("gaussian", False), ("gaussian", False), ("laplacian", False)]
    assert found.scale == pytest.approx(0.5**0.5, rel=0.2)  # of a sine of a wide angle


def test_the_kernel_for_landmarks_comes_with_that_of_the_exact_ridge() -> None:
    found = choose_product(sides(900, replace(LARGE, landmarks=50)), Budget(), None)
    assert found.exact is not None
    assert found.best.factor <= found.exact.factor
    assert choose_product(sides(150), Budget(), None).exact is None


def test_only_given_alphas_are_tried() -> None:
    found = choose_product(sides(150), Budget(), np.array([0.3, 3.0]))
    assert {one.alpha for one in found.tried} <= {0.3, 3.0}


def test_a_fold_keeps_the_family_and_learns_the_rest() -> None:
    whole = sides(200)
    choice = choose_product(whole, Budget(), None, simpler=True)
    some = np.arange(0, 200, 2)
    found = again_on_fold(choice, Sides.of(smaller(whole.setting), some), Budget(), None)
    assert found.best.fit.family == choice.best.fit.family
    assert set(found.learner.rows) <= set(some)
    assert len(found.simple) == len(choice.simple)
    assert found.form is choice.form
    assert found.best.fit is not choice.best.fit


def test_nothing_is_learned_where_time_is_over() -> None:
    found = choose_product(sides(300), Budget(0.0), None)
    assert np.isfinite(found.best.rmse)
    assert np.isfinite(found.best.alpha)
