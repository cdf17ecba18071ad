"""What the battery asks of a test runner, so that it runs with pytest and without."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple, TypeVar
from unittest import SkipTest

Test = TypeVar("Test", bound=Callable[..., Any])


class Refused:
    """Holds the ``error`` that was raised."""

    error: BaseException


@contextmanager
def refused(kinds: Any, words: str = "") -> Iterator[Refused]:
    """Assert that the block raises an error of these kinds, whose text has these words.

    Parameters
    ----------
    kinds : type or tuple of types
    words : str
        A regular expression.
    """
    found = Refused()
    try:
        yield found
    except kinds as error:
        found.error = error
    assert hasattr(found, "error"), f"no {kinds} was raised"
    text = str(found.error)
    assert re.search(words, text), f"the error does not say {words!r}: {text}"


class Case(NamedTuple):
    """Arguments of a test, the values that they take together, and what those are called."""

    names: list[str]
    values: list[Any]
    ids: list[str] | None


def cases(names: str, values: Any, ids: list[str] | None = None) -> Callable[[Test], Test]:
    """Run a test once for every value of its arguments ``names``, separated by commas."""
    case = Case([name.strip() for name in names.split(",")], list(values), ids)

    def mark(test: Test) -> Test:
        test.cases = [*cases_of(test), case]  # type: ignore[attr-defined]
        return test

    return mark


def cases_of(test: Any) -> list[Case]:
    """What ``cases`` noted."""
    return getattr(test, "cases", [])


def needed(module: str) -> Any:
    """Import a module, or skip the test."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise SkipTest(f"{module} is not installed") from None
