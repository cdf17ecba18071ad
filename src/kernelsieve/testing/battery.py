"""One battery that every feature map passes, given only how to build it.

For pytest, subclass `FeatureMapBattery` under a name that begins with "Test":

    class TestFourier(FeatureMapBattery):
        def build(self, **overrides):
            return FourierFeatures(**{"n_components": 32, "random_state": 0, **overrides})

and pytest collects every test for it, scikit-learn's own estimator checks included. Class
attributes say what differs between maps; see their comments in `Hooks`.
``check_feature_map`` runs the same tests by a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.utils.estimator_checks import estimator_checks_generator

from kernelsieve.testing.bad_input import AwkwardInputTests, BadInputTests
from kernelsieve.testing.copies import CopyTests
from kernelsieve.testing.expectations import cases_of
from kernelsieve.testing.kernel_tests import KernelTests
from kernelsieve.testing.repetition import InputTests, RandomnessTests
from kernelsieve.testing.shapes import FloatTypeTests, ShapeTests


class FeatureMapBattery(
    ShapeTests,
    FloatTypeTests,
    RandomnessTests,
    InputTests,
    KernelTests,
    CopyTests,
    BadInputTests,
    AwkwardInputTests,
):
    """Subclass it, implement `build`, and set the attributes that differ."""

    def pytest_generate_tests(self, metafunc: Any) -> None:
        for case in cases_of(metafunc.function):
            metafunc.parametrize(",".join(case.names), case.values, ids=case.ids)
        if "check" not in metafunc.fixturenames:
            return
        import pytest

        parameters = []
        for estimator, check in estimator_checks_generator(self.build()):
            name = check.func.__name__
            options = [f"{key}={value}" for key, value in check.keywords.items()]
            reason = self.expected_failed_checks.get(name)
            # Strict: a check that begins to pass must leave the list.
            marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
            parameters.append(
                pytest.param(estimator, check, marks=marks, id="-".join([name, *options]))
            )
        metafunc.parametrize("estimator, check", parameters)

    def test_scikit_learn(self, estimator: Any, check: Callable[[Any], None]) -> None:
        check(estimator)
