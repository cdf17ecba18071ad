"""Systems with many shifts against a dense solver; how many factors they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernelsieve.kernels import Product
from kernelsieve.linalg.shifted_systems import COLUMN, STEP, ShiftedSystems


def systems(
    n: int, m: int = 1, family: str = "laplacian", seed: int = 0
) -> tuple[ShiftedSystems, Any, Any, Any]:
    rng = np.random.default_rng(seed)
    gram = Product(0.7, family)(rng.normal(size=(n, 3)))
    diagonal, right = rng.uniform(0.2, 5.0, n), rng.normal(size=(n, m))
    return ShiftedSystems(gram, diagonal, right), gram, diagonal, right


@pytest.mark.parametrize("family", ["laplacian", "gaussian"])
@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("n", [1, 2, 30, 400])
def test_solutions_for_many_shifts(n: int, m: int, family: str) -> None:
    solver, gram, diagonal, right = systems(n, m, family)
    for shifts in ([0.1], [0.05, 0.1, 0.2], [1e3, 1e-3, 1.0, 1e-3], [0.003]):
        for shift, found in zip(shifts, solver.solve(shifts), strict=True):
            expected = np.linalg.solve(gram + shift * np.diag(diagonal), right)
            assert found.shape == (n, m)
            np.testing.assert_allclose(found, expected, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("seed", range(5))
def test_near_shifts_share_a_factor_and_far_ones_do_not(seed: int) -> None:
    solver = systems(1500, seed=seed)[0]
    solver.solve([0.025, 0.1, 0.4])
    solver.solve([0.0125])
    assert solver.n_factors == 1
    few_steps = systems(150, seed=seed)[0]
    few_steps.solve([0.1, 1e-4])
    assert few_steps.n_factors == 2


def test_with_many_right_sides_each_shift_has_its_factor() -> None:
    """Steps would take longer than factors."""
    n = 60
    m = n // COLUMN
    assert n < STEP + COLUMN * m
    solver = systems(n, m)[0]
    solver.solve([0.1, 0.2, 0.4])
    assert solver.n_factors == 3


def test_a_target_of_zeros_and_one_that_few_vectors_span() -> None:
    gram, diagonal = np.eye(300), np.ones(300)
    right = np.stack([np.zeros(300), np.ones(300)], axis=1)
    found = ShiftedSystems(gram, diagonal, right).solve([1.0, 2.0, 3.0])
    for shift, solution in zip([1.0, 2.0, 3.0], found, strict=True):
        np.testing.assert_allclose(solution, right / (1.0 + shift), atol=1e-12)


def test_where_rounding_makes_the_matrix_indefinite() -> None:
    """A space around a larger shift must not be asked for one at which only rounding is left."""
    rng = np.random.default_rng(0)
    gram = Product(0.01, "gaussian")(rng.normal(size=(400, 2)))
    gram -= 1e-9 * np.eye(400)
    right = rng.normal(size=(400, 1))
    solver = ShiftedSystems(gram, np.ones(400), right)
    large, small = solver.solve([4e-9, 1e-9])
    assert np.isfinite(large).all()
    assert np.isfinite(small).all()
    again = ShiftedSystems(gram, np.ones(400), right).solve([1e-9])[0]
    np.testing.assert_allclose(small, again, rtol=1e-6)
