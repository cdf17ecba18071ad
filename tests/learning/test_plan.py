"""Plans in words, for other rows, and in files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernelsieve import load, save
from kernelsieve.kernels import Product
from kernelsieve.learning import Budget, LearnOptions, Plan
from kernelsieve.learning.plan import Correction, HeldOut, Report, Solver
from kernelsieve.learning.target_transform import TargetTransform

NOTHING = np.empty(0)
HELD = HeldOut(np.arange(2), np.zeros((2, 1)), np.ones((2, 1)), np.ones((2, 1)))
REPORT = Report(
    7000, 1400, 0.25, 1.0, np.array(["gaussian"], dtype=object), np.ones(1), np.ones(1),
    {"likelihood": 1.25, "features and solve": 2.0, "error": 0.01}, HELD,
)  # fmt: skip
PLAN = Plan(
    Product([1.0, 0.0, 2.0], "gaussian"),
    0.1,
    Solver("landmarks", 2000),
    TargetTransform("log", 0.0, 9.0, 1.0, 1.1),
    True,
    correction=Correction("learned rates", False, False, 1.0, 0.1),
    report=REPORT,
)


def test_it_is_told_in_words() -> None:
    text = str(PLAN)
    for part in (
        "log(target + 1)",
        "linear part",
        "Gaussian kernel on 2 of 3 columns",
        "2,000 landmarks on 7,000 rows",
        "corrected by the residuals of the nearest rows",
        "0.25",
        "1,400 held-out rows",
        "3.3 s (features and solve 2.0, likelihood 1.2)",
    ):
        assert part in text
    assert repr(PLAN) == f"<Plan: {PLAN}>"
    assert "log loss" in str(replace(PLAN, classes=True, loss="log loss"))
    assert "exact" in str(replace(PLAN, solver=Solver("exact", 5), report=None))


def test_for_other_rows_it_holds_no_predictions() -> None:
    other = PLAN.for_other_rows()
    assert other.report.held_out is None
    assert PLAN.report.held_out is HELD
    assert (other.kernel, other.alpha, other.solver) == (PLAN.kernel, PLAN.alpha, PLAN.solver)
    assert replace(PLAN, report=None).for_other_rows().report is None


def test_it_is_the_same_from_a_file(tmp_path: Any) -> None:
    save(PLAN, tmp_path / "plan.ks")
    again = load(tmp_path / "plan.ks")
    for name in ("kernel", "alpha", "solver", "transform", "linear", "loss", "correction"):
        assert getattr(again, name) == getattr(PLAN, name)
    assert again.report.error == 0.25
    assert again.report.held_out is None  # rows are not stored


@pytest.mark.parametrize(
    ("n", "work", "solver"),
    [
        (5, 1e10, Solver("exact", 5)),
        (6000, 1e10, Solver("exact", 2000)),
        (6001, 1e30, Solver("iterative", 2000)),
        (6001, 1.0, Solver("landmarks", 2000)),
    ],
)
def test_the_solver_of_an_exact_plan_depends_on_the_rows(
    n: int, work: float, solver: Solver
) -> None:
    options = LearnOptions(full_work=work)
    for kind in ("exact", "iterative"):
        assert Solver(kind, 3).for_rows(PLAN.kernel, n, 3, options) == solver
    assert Solver("products", 700).for_rows(PLAN.kernel, n, 3, options).size == min(n, 700)


def test_a_choice_leaves_time_for_the_fit() -> None:
    assert Budget().for_choice(10**6).left() == np.inf
    assert Budget(10.0).for_choice(1000).left() == pytest.approx(6.0, abs=0.05)
    assert 2.0 < Budget(10.0).for_choice(6000).left() < 6.0  # a Cholesky factor of all rows
    assert Budget(1.0).for_choice(6000).left() == pytest.approx(0.2, abs=0.05)
