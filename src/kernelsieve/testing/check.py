"""The battery as a function: every test of it on a map of your own."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import SkipTest

from kernelsieve.testing.battery import FeatureMapBattery
from kernelsieve.testing.data import Array
from kernelsieve.testing.expectations import cases_of

Make = Callable[..., Any]


def check_feature_map(
    make: Make,
    *,
    unbiased: bool = True,
    exact: Callable[[Array], Any] | None = None,
    kernel: Callable[[Array], Array] | None = None,
    gamma: float = 0.5,
    sparse_output: bool = False,
    expected_failed_checks: dict[str, str] | None = None,
    leave_out: tuple[str, ...] = (),
) -> list[str]:
    """Run on a feature map every test that the maps of this library pass.

    The battery looks at shapes, float types, sparse input, randomness, threads, names, frames,
    copies, bad and awkward input, scikit-learn's estimator checks, and at the kernel: E[Z Z^T] = K
    over seeds, or Z Z^T = K at full size. It takes about a minute.

    Parameters
    ----------
    make : callable
        ``make(**overrides)`` returns an unfitted map with at most 64 features and a fixed
        ``random_state``; the overrides are parameters of the map.
    unbiased : bool, default True
        Whether E[Z Z^T] = K at any size. If False, pass ``exact``.
    exact : callable, optional
        ``exact(X)`` returns a map that reproduces the kernel on X, such as one with all rows as
        landmarks.
    kernel : callable, default the Gaussian kernel of ``gamma``
        ``kernel(X)`` is the kernel matrix of shape (n, n) that Z Z^T stands for.
    gamma : float, default 0.5
        Passed to maps that have such a parameter when they are compared with the kernel.
    sparse_output : bool, default False
        Whether sparse input gives sparse features.
    expected_failed_checks : dict of str to str, optional
        scikit-learn's checks that cannot hold, with the reason.
    leave_out : tuple of str, default ()
        Names of tests to leave out.

    Returns
    -------
    list of str
        The tests that were run.

    Raises
    ------
    AssertionError
        With the name and the reason of every test that failed.

    Examples
    --------
    >>> from kernelsieve import FourierFeatures
    >>> from kernelsieve.testing import check_feature_map
    >>> def make(**overrides):
    ...     return FourierFeatures(**{"n_components": 32, "random_state": 0, **overrides})
    >>> names = check_feature_map(make)  # doctest: +SKIP
    """
    battery = _battery(make, unbiased, exact, kernel)
    battery.gamma, battery.sparse_output = gamma, sparse_output
    battery.expected_failed_checks = expected_failed_checks or {}
    names, failures = [], []
    for name, call in _tests(battery):
        if name.partition("[")[0] in leave_out:
            continue
        try:
            call()
        except SkipTest:
            continue
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {error}")
        names.append(name)
    if failures:
        listed = "\n".join(failures)
        raise AssertionError(f"{len(failures)} of {len(names)} tests failed:\n{listed}")
    return names


def _battery(make: Make, unbiased: bool, exact: Any, kernel: Any) -> Any:
    """A class with the tests and the hooks that they call."""
    hooks: dict[str, Any] = {"unbiased": unbiased}
    hooks["build"] = lambda self, **overrides: make(**overrides)
    if exact is not None:
        hooks["build_exact"] = lambda self, X: exact(X)
    if kernel is not None:
        hooks["gram"] = lambda self, X: kernel(X)
    return type("CheckedMap", (FeatureMapBattery,), hooks)


def _tests(battery: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every test of the battery with every combination of its cases."""
    for name, method in inspect.getmembers(battery, inspect.isfunction):
        if name == "test_scikit_learn":
            yield from _scikit_learn(battery)
        elif name.startswith("test_"):
            for values in _combinations(method):
                label = ", ".join(_label(value) for value in values.values())
                yield (
                    f"{name}[{label}]" if label else name,
                    partial(method, battery(), **values),
                )


def _scikit_learn(battery: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    from sklearn.utils.estimator_checks import estimator_checks_generator

    for estimator, check in estimator_checks_generator(battery().build()):
        name = check.func.__name__
        if name not in battery.expected_failed_checks:
            yield f"scikit-learn: {name}", partial(check, estimator)


def _combinations(method: Any) -> Iterator[dict[str, Any]]:
    """The keyword arguments of every case of a test."""
    choices = []
    for names, values, _ in cases_of(method):
        several = len(names) > 1
        choices.append([dict(zip(names, v if several else (v,), strict=True)) for v in values])
    for combination in itertools.product(*choices):
        yield {name: value for part in combination for name, value in part.items()}


def _label(value: Any) -> str:
    named = getattr(value, "__name__", None)
    text = named if named is not None else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
