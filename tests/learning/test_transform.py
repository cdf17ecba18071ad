"""What trials of functions of the target say."""

from __future__ import annotations

import numpy as np
import pytest

from kernelsieve.learning.target_transform import TargetTransform
from kernelsieve.learning.transform import TransformTrial, trimmed_ratio


def trial(log_is_right: bool, weights: np.ndarray | None = None) -> TransformTrial:
    """Predictions whose noise multiplies, or is added."""
    rng = np.random.default_rng(0)
    middle, noise = rng.uniform(1.0, 3.0, 1000), 0.3 * rng.normal(size=1000)
    y = np.exp(middle + noise) if log_is_right else np.exp(middle) + 0.3 * noise
    y = np.maximum(y, 0.0)
    transforms = {name: TargetTransform.of(name, y) for name in ("sqrt", "log")}
    off = np.where(np.arange(1000) % 2 == 0, 0.4, -0.4)
    worse = off * np.exp(middle)  # what a model of the wrong target errs by
    predicted = {
        None: np.exp(middle) + (worse if log_is_right else 0.0),
        "log": middle if log_is_right else middle + off,
        "sqrt": np.sqrt(np.exp(middle)) * (1.0 + off / 4.0),
    }
    return TransformTrial(np.arange(1000), y, weights, {None: None, **transforms}, predicted)


@pytest.mark.parametrize("log_is_right", [True, False])
def test_the_function_with_the_least_errors_is_taken(log_is_right: bool) -> None:
    found = trial(log_is_right)
    assert found.best(np.ones(1000, dtype=bool)) == ("log" if log_is_right else None)
    some = np.arange(1000) < 300
    assert found.best(some) == ("log" if log_is_right else None)


def test_means_of_a_transform_have_the_correction_that_some_rows_ask_for() -> None:
    found = trial(True)
    everywhere = np.ones(1000, dtype=bool)
    left = found.targets - found.means("log", everywhere)
    assert abs(left.mean()) < 4.0 * left.std() / np.sqrt(1000)
    np.testing.assert_array_equal(found.means(None, everywhere), found.predicted[None])


def test_rows_that_have_no_weight_at_all_are_as_good_as_others() -> None:
    nothing = trial(True, np.zeros(1000))
    everywhere = np.ones(1000, dtype=bool)
    assert nothing.best(everywhere) == "log"
    np.testing.assert_array_equal(
        nothing.means("log", everywhere), trial(True).means("log", everywhere)
    )


def test_a_constant_is_no_ratio() -> None:
    assert trimmed_ratio(np.ones(10), np.zeros(10)) == 1.0
