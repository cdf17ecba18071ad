"""Settings of a correction by the nearest rows, found on some rows and used on others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernelsieve.kernels import Product
from kernelsieve.learning.neighbour_search import choose_correction, correction_with
from kernelsieve.sources.base import Block

KERNEL = Product([0.5, 0.5, 0.0])


def block(n: int, seed: int, weighted: bool = False) -> tuple[Block, Any]:
    """Rows whose residuals neighbours share."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(n, 3))
    bumps = np.sign(np.sin(4.0 * X[:, :1]) * np.sin(4.0 * X[:, 1:2]))
    y = X[:, :1] + bumps + 0.1 * rng.normal(size=(n, 1))
    weights = rng.uniform(0.5, 2.0, n) if weighted else None
    return Block(X, y, weights), y - X[:, :1]


@pytest.mark.parametrize("weighted", [False, True])
def test_settings_of_some_rows_correct_others_as_well(weighted: bool) -> None:
    (rows, residuals), (other, left), (new, truth) = (block(1500, s, weighted) for s in range(3))
    judges = np.arange(0, 1500, 5)
    trial = choose_correction(KERNEL, rows, residuals, judges, np.ones(len(judges), dtype=bool), 1)
    assert trial is not None
    assert np.mean(trial.residuals**2) < 0.7 * np.mean(residuals[judges] ** 2)
    errors = []
    for one in (trial.correction, correction_with(KERNEL, other, left, trial.settings, 1)):
        added = one.at(KERNEL, new.X, new.y - truth)[0]
        errors.append(np.mean((truth - added) ** 2))
    assert errors[0] == pytest.approx(errors[1], rel=0.15)
    assert errors[1] < 0.7 * np.mean(truth**2)


def test_settings_on_the_same_rows_are_the_same_correction() -> None:
    rows, residuals = block(400, 0)
    judges = np.arange(400)
    trial = choose_correction(KERNEL, rows, residuals, judges, np.ones(400, dtype=bool), 1)
    again = correction_with(KERNEL, rows, residuals, trial.settings, 1)
    assert again.rate == pytest.approx(trial.correction.rate, rel=0.05)
    assert again.noise == trial.correction.noise
    assert again.metric.euclidean == trial.correction.metric.euclidean
    assert (again.levels is None) == (trial.correction.levels is None)
    np.testing.assert_array_equal(again.metric.columns, trial.correction.metric.columns)
