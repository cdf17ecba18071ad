"""Steps of width and alpha, by a judge whose errors are known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.learning import source

from kernelsieve.kernels.likelihood.learner import Learner
from kernelsieve.learning import LearnOptions
from kernelsieve.learning.candidate import Judged, ProductForm
from kernelsieve.learning.errors import LeftOut, RidgeErrors
from kernelsieve.learning.walk import Walk, best_of

OPTIONS = LearnOptions()


class Bowl(RidgeErrors):
    """The least error is at one width and one alpha."""

    def __init__(self, rate: float, alpha: float) -> None:
        self.rate, self.alpha = rate, alpha

    def ridges(self, kernel: Any) -> Any:
        return lambda alphas: [(kernel, alpha) for alpha in alphas]

    def errors(self, ridges: Any, alphas: Any) -> Any:
        found = []
        for kernel, alpha in ridges(alphas):
            away = np.log([np.max(kernel.rates) / self.rate, alpha / self.alpha])
            found.append(1.0 + float(away @ away))
        return np.array(found)


@pytest.fixture(scope="module")
def learner() -> Learner:
    X = np.random.default_rng(0).normal(size=(60, 2))
    return Learner.on(source(X, X[:, 0]), 60, seed=0)


def walk(learner: Learner, errors: Any, **changes: Any) -> tuple[Walk, Judged]:
    fit = learner.equal("gaussian")
    made = Walk(errors, learner, ProductForm(), None, replace(OPTIONS, **changes))
    return made, Judged(fit, 1.0, 0.0, fit.alpha, math.inf)


@pytest.mark.parametrize("steps", [-3, -1, 0, 2, 4])
def test_a_climb_ends_at_the_least_error(learner: Learner, steps: int) -> None:
    rate = float(np.max(learner.equal("gaussian").kernel(learner.columns).rates))
    made, start = walk(learner, Bowl(rate * 2.0**steps, 0.05 * 4.0**2))
    found = made.climb(made.judged(start))
    assert best_of(found).factor == pytest.approx(2.0**steps)
    assert best_of(found).alpha == pytest.approx(0.05 * 4.0**2)
    assert best_of(found).rmse == pytest.approx(1.0)


def test_it_does_not_go_beyond_its_bounds(learner: Learner) -> None:
    made, start = walk(learner, Bowl(1e9, 1.0), narrowest=4.0)
    found = made.climb(made.judged(start))
    assert max(one.factor for one in found) == 4.0


def test_only_the_alphas_that_are_given(learner: Learner) -> None:
    made, start = walk(learner, Bowl(1.0, 1e-3))
    given = replace(made, alphas=np.array([0.5, 7.0])).judged(start)
    assert given.alpha == 0.5


def test_a_late_walk_tries_no_other_width(learner: Learner) -> None:
    made, start = walk(learner, Bowl(1e3, 1.0))
    late = replace(made, deadline=0.0)
    assert len(late.climb(late.judged(start))) == 1


def test_the_judged_error_is_that_of_the_judge(learner: Learner) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    judge = LeftOut(source(X, y).take(np.arange(60)), np.arange(60) % 2 == 0, True)
    made, start = walk(learner, judge)
    found = made.judged(start)
    kernel = made.form.kernel(found, learner)
    assert judge.errors(judge.ridges(kernel), np.array([found.alpha]))[0] == found.rmse
