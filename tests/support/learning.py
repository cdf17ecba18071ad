"""The default in its two steps, on arrays and with small sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kernelsieve import KernelRidge
from kernelsieve.learning import Budget, Judge, LearnOptions, Plan, Wanted, choose
from kernelsieve.models.execute import Executed, execute
from kernelsieve.sources.base import ArraySource

# The way of large tables for small ones.
LARGE = LearnOptions(
    exact_rows=100,
    landmarks=30,
    judged_landmarks=30,
    learn_rows=200,
    apart_rows=200,
    known_rows=300,
    final_rows=500,
)
NO_LINE = LearnOptions(linear_worth=1.0)  # no line gains more than all of the error


def source(X: Any, y: Any, weights: Any = None) -> ArraySource:
    """Rows with a column for each target."""
    return ArraySource(X, np.asarray(y, dtype=np.float64).reshape(len(y), -1), weights)


def chosen(
    X: Any,
    y: Any,
    options: LearnOptions | None = None,
    *,
    weights: Any = None,
    judge: Judge | None = None,
    seed: int = 0,
    **wanted: Any,
) -> Plan:
    """What the default decides."""
    judge = Judge(len(X), seed) if judge is None else judge
    return choose(source(X, y, weights), judge, Budget(), Wanted(options=options, **wanted))


def executed(
    plan: Plan,
    X: Any,
    y: Any,
    options: LearnOptions | None = None,
    *,
    weights: Any = None,
    judge: Judge | None = None,
    seed: int = 0,
    budget: Budget | None = None,
    correct: bool = True,
) -> Executed:
    """What it fits."""
    return execute(
        plan,
        source(X, y, weights),
        KernelRidge(),
        Judge(len(X), seed) if judge is None else judge,
        Budget() if budget is None else budget,
        single=np.ndim(y) == 1,
        correct=correct,
        options=options,
    )


def with_sizes(**sizes: Any) -> LearnOptions:
    """`NO_LINE` with other sizes."""
    return replace(NO_LINE, **sizes)
