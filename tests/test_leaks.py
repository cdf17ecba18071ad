"""Columns that give the target away."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from kernelsieve.tables.inspection import inspected
from kernelsieve.tables.leaks import determines
from kernelsieve.tables.table import TableNotice


def said(table: dict[str, Any], target: str = "y", **options: Any) -> list[str]:
    """The columns that are said to determine the target."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TableNotice)
        inspected(table, target, **options)
    notes = [str(w.message) for w in caught]
    return [note.split("'")[1] for note in notes if "alone nearly determines the target" in note]


def measured(n: int = 300, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, n))
    return {"a": a, "b": b, "y": a + 0.1 * rng.normal(size=n)}


LEAKS = {
    "copy": lambda y: 2 * y + 5,
    "logarithm": lambda y: np.log(y + 10),
    "falling": lambda y: 24 - y,
    "rounded": lambda y: np.round(y, 3),
}


@pytest.mark.parametrize("leak", LEAKS.values(), ids=LEAKS)
def test_what_rises_with_the_target_is_noted(leak: Any) -> None:
    table = measured()
    assert said(table) == []  # a column that explains 99 % of the variance is a good column
    assert said({**table, "leak": leak(table["y"])}) == ["leak"]
    assert said({**table, "leak": leak(table["y"])}, drop=["leak"]) == []


def test_classes_are_given_away_by_copies_thresholds_and_missing_values() -> None:
    table = measured()
    y = np.where(table["y"] > 1, "yes", "no")
    outcome = np.where(y == "yes", np.where(table["b"] > 0, "paid", "late"), "none of these")
    later = [None if label == "no" else 3.0 + x for label, x in zip(y, table["b"], strict=True)]
    leaks = {"y": y, "code": outcome, "amount": later, "points": table["y"]}
    assert said({**table, **leaks}) == ["code", "amount", "points"]
    assert said({**table, "y": y}) == []


@pytest.mark.parametrize("seed", range(5))
def test_chance_gives_nothing_away(seed: int) -> None:
    """Neither do many categories, rare classes, or a column that is nearly always missing."""
    rng = np.random.default_rng(seed)
    n = 200
    table: dict[str, Any] = {
        "many": rng.choice([f"c{i}" for i in range(150)], n),
        "few": rng.choice(["u", "v"], n),
        "empty": [None] * (n - 3) + [1.0, 2.0, 3.0],
    }
    for y in (rng.normal(size=n), np.where(rng.permutation(n) < 1, "rare", "usual")):
        assert said({**table, "y": y}, keep=["many"]) == []


def test_a_single_column_is_no_leak() -> None:
    """There is nothing else to learn from."""
    x = np.linspace(0.0, 1.0, 50)
    assert determines(x, x**2, "regression")
    assert said({"x": x, "y": x**2}) == []


def test_one_row_of_a_class_gives_nothing_away() -> None:
    table = measured(60)
    score = np.where(np.arange(60) == 7, 9.0, table["b"])
    y = np.where(np.arange(60) == 7, "yes", "no")
    assert not determines(score, y, "classification")
    y[8], score[8] = "yes", 9.5
    assert determines(score, y, "classification")
