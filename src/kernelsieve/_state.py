"""What a class keeps in a model file: a table of fields, each with the rule that its value obeys.

A class names its fields once, in ``_state_fields``; `Persistent` makes ``get_state`` and a checking
``from_state`` of them. A rule is a function of a value, its name in errors and the sizes that are
known so far; it returns the value or raises InvalidStateError. The length of an axis may be a name:
the first array (or object) that has it sets the size, and all others must agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

Sizes = dict[str, int]
Rule = Callable[[Any, str, Sizes], Any]

FLOAT64, INT64 = (np.float64,), (np.int64,)
FLOATS = (np.float64, np.float32)
LARGEST = 2**53  # of whole numbers: exact in float64
MOST_JOBS = 1024  # or a file could ask for any number of threads
LABEL_KINDS = "biuf"
# Of maps that are given by few numbers: columns, and columns times factors. A file is not longer
# for more of them, so that they are bounded.
MOST_COLUMNS, MOST_FACTORS = 2**20, 2**22
PLAIN = (bool, int, float, str, np.ndarray, np.generic)


class InvalidStateError(ValueError):
    """A state that no object of the class can have."""


def wrong(where: str, what: str) -> NoReturn:
    """Refuse a state: ``where`` names the field, ``what`` says what is wrong with it."""
    raise InvalidStateError(f"{where} {what}")


def shortened(value: Any) -> str:
    """At most 40 characters of a value, for a message."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


# --- rules ---------------------------------------------------------------------------------------


def number(low: float = -math.inf, high: float = math.inf) -> Rule:
    """A float between two bounds, which are included; infinite or NaN only without bounds."""

    def rule(value: Any, where: str, sizes: Sizes) -> float:
        is_number = isinstance(value, float) or (type(value) is int and abs(value) <= LARGEST)
        unbounded = math.isinf(low) and math.isinf(high)
        if not is_number or not (unbounded or low <= value <= high):
            wrong(where, f"is {shortened(value)}, not a number from {low:g} to {high:g}")
        return float(value)

    return rule


# What kernels multiply by, and what rows are scaled by, which is the root of the former. Beyond,
# Python raises OverflowError where numpy would give infinity.
positive = number(5e-324, 1e300)
scaling = number(1e-165, 1e153)


def whole(low: int = 0, high: int = LARGEST, size: str | None = None) -> Rule:
    """A whole number between two bounds, which are included; it may set a size."""

    def rule(value: Any, where: str, sizes: Sizes) -> int:
        if type(value) is not int or not low <= value <= high:
            wrong(where, f"is {shortened(value)}, not a whole number from {low} to {high}")
        if size is not None:
            _agree(size, value, where, sizes)
        return value

    return rule


def _agree(name: str, length: int, where: str, sizes: Sizes) -> None:
    if sizes.setdefault(name, length) != length:
        wrong(where, f"is for size {length} instead of {sizes[name]}")


def flag(value: Any, where: str, sizes: Sizes) -> bool:
    """A truth value."""
    if type(value) is not bool:
        wrong(where, f"is {shortened(value)}, not true or false")
    return value


def text(value: Any, where: str, sizes: Sizes) -> str:
    """A string."""
    if not isinstance(value, str):
        wrong(where, f"is {shortened(value)}, not a string")
    return value


def choice(*choices: str) -> Rule:
    """One of some strings."""

    def rule(value: Any, where: str, sizes: Sizes) -> str:
        if not isinstance(value, str) or value not in choices:
            wrong(where, f"is {shortened(value)}, not one of {', '.join(choices)}")
        return value

    return rule


def instance(*classes: type | None, fitted: bool = False, **attributes: str) -> Rule:
    """An object of one of these classes (None for None), with the sizes that its attributes give.

    Examples
    --------
    >>> instance(str, None)(None, "name", {}) is None
    True
    """
    kinds = tuple(type(None) if each is None else each for each in classes)

    def rule(value: Any, where: str, sizes: Sizes) -> Any:
        if not isinstance(value, kinds):
            names = " or ".join("None" if each is None else each.__name__ for each in classes)
            wrong(where, f"is a {type(value).__name__}, not {names}")
        if fitted and not is_fitted(value):
            wrong(where, "is not fitted")
        for size, attribute in attributes.items() if value is not None else ():
            _agree(size, getattr(value, attribute), where, sizes)
        return value

    return rule


def plain(*classes: type | None) -> Rule:
    """Data without objects: None, numbers, strings, arrays, and lists, tuples and dicts of them."""

    def rule(value: Any, where: str, sizes: Sizes) -> Any:
        if classes:
            instance(*classes)(value, where, sizes)
        if isinstance(value, dict | list | tuple):
            for each in value.values() if isinstance(value, dict) else value:
                anything(each, where, sizes)
        elif not (isinstance(value, PLAIN) or value is None or sp.issparse(value)):
            wrong(where, f"holds a {type(value).__name__}, not plain data")
        return value

    anything = rule if not classes else plain()
    return rule


scalar = instance(bool, int, float, str, None)


def optional(rule: Rule) -> Rule:
    """None, or what a rule demands."""
    return lambda value, where, sizes: None if value is None else rule(value, where, sizes)


@dataclass(frozen=True)
class AbsentOr:
    """The rule of an attribute that an object may lack."""

    rule: Rule

    def __call__(self, value: Any, where: str, sizes: Sizes) -> Any:
        return None if value is None else self.rule(value, where, sizes)


def list_of(rule: Rule, kind: type[list[Any]] | type[tuple[Any, ...]] = list) -> Rule:
    """A list (or tuple) whose items obey a rule."""

    def check(value: Any, where: str, sizes: Sizes) -> Any:
        if type(value) is not kind:
            wrong(where, f"is a {type(value).__name__}, not a {kind.__name__}")
        return kind(rule(each, f"{where}[{i}]", sizes) for i, each in enumerate(value))

    return check


def texts(value: Any, where: str, sizes: Sizes) -> Any:
    """A list or tuple of strings."""
    return list_of(text, tuple if isinstance(value, tuple) else list)(value, where, sizes)


def table(fields: Mapping[str, Rule]) -> Rule:
    """A dict with these keys."""

    def check(value: Any, where: str, sizes: Sizes) -> dict[str, Any]:
        if not isinstance(value, dict):
            wrong(where, f"is a {type(value).__name__}, not a dict")
        return checked(value, fields, where, sizes)

    return check


def array(
    *shape: int | str | None,
    dtype: tuple[type[np.generic], ...] = FLOAT64,
    finite: bool = True,
    low: int | None = None,
    high: int | None = None,
    below: str | None = None,
    order: str | None = None,
) -> Rule:
    """An array of one of these types. A length is a number, the name of a size, or None for any.

    Numbers may be bounded (``below`` by a size); floats are finite unless said otherwise; an
    ``order`` in memory is demanded where compiled code relies on it.
    """

    def rule(value: Any, where: str, sizes: Sizes) -> Any:
        if not isinstance(value, np.ndarray):
            wrong(where, f"is a {type(value).__name__}, not an array")
        if value.dtype.type not in dtype:
            wrong(where, f"has the type {value.dtype}")
        if value.ndim == len(shape):
            for name, length in zip(shape, value.shape, strict=True):
                if isinstance(name, str):
                    sizes.setdefault(name, length)
        expected = [sizes.get(each) if isinstance(each, str) else each for each in shape]
        if value.ndim != len(shape) or any(
            wanted not in (None, length)
            for wanted, length in zip(expected, value.shape, strict=True)
        ):
            shown = ", ".join("?" if each is None else str(each) for each in expected)
            wrong(where, f"has the shape {value.shape} instead of ({shown})")
        if order == "C" and not value.flags.c_contiguous:
            wrong(where, "is not in C order")
        if value.dtype.kind == "f" and finite and not np.isfinite(value).all():
            wrong(where, "has a value that is not finite")
        check_range(value, where, low, high if below is None else sizes[below] - 1)
        return value

    return rule


def check_range(value: Any, where: str, low: int | None, high: int | None) -> None:
    """Refuse an array with values beyond two bounds, which are included."""
    if value.size and low is not None and value.min() < low:
        wrong(where, f"has a value {value.min()} below {low}")
    if value.size and high is not None and value.max() > high:
        wrong(where, f"has a value {value.max()} above {high}")


def array_or(of_array: Rule, other: Rule) -> Rule:
    """An array that obeys the first rule, or something else that obeys the second."""

    def rule(value: Any, where: str, sizes: Sizes) -> Any:
        return (of_array if isinstance(value, np.ndarray) else other)(value, where, sizes)

    return rule


def row_matrix(n_rows: str | None, n_columns: str) -> Rule:
    """At least one row of finite numbers or NaN, dense or CSR (in canonical form in a file)."""
    dense = array(n_rows, n_columns, dtype=FLOATS, order="C", finite=False)

    def rule(value: Any, where: str, sizes: Sizes) -> Any:
        if sp.issparse(value):
            for name, length in ((n_rows, value.shape[0]), (n_columns, value.shape[1])):
                if name is not None:
                    _agree(name, length, where, sizes)
        else:
            dense(value, where, sizes)
            if np.isinf(value).any():
                wrong(where, "has an infinite value")
        if value.shape[0] == 0:
            wrong(where, "has no rows")
        return value

    return rule


def names(size: str) -> Rule:
    """An array of strings."""

    def rule(value: Any, where: str, sizes: Sizes) -> Any:
        strings = isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "OU"
        if not strings or not all(isinstance(each, str) for each in value):
            wrong(where, "is not an array of strings")
        _agree(size, len(value), where, sizes)
        return value.astype(object)

    return rule


def classes(value: Any, where: str, sizes: Sizes) -> Any:
    """At least two different labels, numbers or strings; ``n_classes`` is their size."""
    if not (isinstance(value, np.ndarray) and value.ndim == 1):
        wrong(where, "is not an array of labels")
    if value.dtype.kind not in LABEL_KINDS:
        names("n_classes")(value, where, sizes)
    _agree("n_classes", len(value), where, sizes)
    if len(value) < 2 or len(set(value.tolist())) < len(value):
        wrong(where, "has fewer than two classes, or one of them twice")
    return value


# --- classes -------------------------------------------------------------------------------------


def checked(
    values: Mapping[str, Any], fields: Mapping[str, Rule], prefix: str = "", sizes: Any = None
) -> dict[str, Any]:
    """The values of all fields, in their order, if each obeys its rule and none is left over."""
    sizes = {} if sizes is None else sizes
    for name in sorted(values.keys() ^ fields.keys(), key=str):
        what = "is missing" if name in fields else "is not a field that this version knows"
        wrong(f"{prefix}{'.' * bool(prefix)}{str(name)[:40]}", what)
    found = {}
    for name, rule in fields.items():
        value = values[name]
        value = value.item() if isinstance(value, np.generic) else value
        found[name] = rule(value, f"{prefix}.{name}" if prefix else name, sizes)
    return found


def merged(cls: type, attribute: str) -> dict[str, Any]:
    """The tables of this name of a class and all its bases; None removes what a base has."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        found |= vars(base).get(attribute, {})
    return {name: rule for name, rule in found.items() if rule is not None}


class Persistent:
    """A class whose objects model files hold; see `kernelsieve.persistence`.

    ``_state_fields`` says what is stored: attributes that are also parameters of the constructor.
    ``_complete`` checks what a field alone does not show.
    """

    _state_fields: ClassVar[Mapping[str, Rule | None]] = {}
    _for_variance: ClassVar[tuple[str, ...]] = ()  # None in files that are saved without it

    def get_state(self) -> dict[str, Any]:
        """Return what a model file stores of this object.

        Returns
        -------
        dict
            Numbers, strings, arrays, lists, dicts and other persistent objects by field.
        """
        return checked(self._state_values(), merged(type(self), "_state_fields"))

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Make an object with this state.

        Parameters
        ----------
        state : dict
            As ``get_state`` returns it.

        Returns
        -------
        object of this class

        Raises
        ------
        ValueError
            If no object of this class can have this state.
        """
        made = cls._restored(checked(state, merged(cls, "_state_fields")))
        made._complete()
        return made

    def _state_values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in merged(type(self), "_state_fields")}

    @classmethod
    def _restored(cls, values: dict[str, Any]) -> Self:
        return cls(**values)

    def _complete(self) -> None:
        """Check the fields together, and compute what is not stored; ValueError if they clash."""


def switch(value: Any, where: str, sizes: Sizes) -> Any:
    """A parameter that is true, false, or a level such as verbose=2."""
    if type(value) not in (bool, int) or abs(value) > LARGEST:
        wrong(where, f"is {shortened(value)}, not true, false or a whole number")
    return value


OUTPUT = "_sklearn_output_config"
# Of all estimators that take rows: "d" is the number of their columns.
COLUMN_FIELDS: dict[str, Rule | None] = {
    "n_features_in_": whole(1, size="d"),
    "feature_names_in_": AbsentOr(names("d")),
    OUTPUT: AbsentOr(table({"transform": choice("default", "pandas", "polars")})),
}


class PersistentEstimator(Persistent, BaseEstimator):
    """An estimator that model files hold: its parameters, and if it is fitted what it learned.

    ``_state_fields`` are attributes that ``fit`` sets, ``_state_parameters`` the rules of the
    parameters that are not a single number or string, and ``_not_stored`` the attributes that are
    left out, or that ``_complete`` computes from others.
    """

    _state_parameters: ClassVar[Mapping[str, Rule]] = {
        "block_rows": optional(whole(1)),
        "fit_intercept": switch,
        "n_jobs": optional(whole(-MOST_JOBS, MOST_JOBS)),
        "verbose": switch,
    }
    # Which methods get which metadata in a meta-estimator is not part of what was fitted.
    _not_stored: ClassVar[Mapping[str, str]] = {"_metadata_request": "scikit-learn's"}

    def get_state(self) -> dict[str, Any]:
        """Return what a model file stores of this estimator.

        Returns
        -------
        dict
            "parameters" by name, and "fitted": the learned attributes by name, or None before a
            fit.
        """
        fields = merged(type(self), "_state_fields")
        known = {*self._get_param_names(), *fields, *merged(type(self), "_not_stored")}
        for name in sorted(vars(self).keys() - known):
            wrong(
                f"attribute {name!r}",
                "has no place in a model file: delete it, or pass its value as part of about",
            )
        fitted = None
        if is_fitted(self):
            try:
                fitted = checked(self._state_values(), fields, "fitted")
            except AttributeError as error:
                raise InvalidStateError(f"is not completely fitted ({error}): fit it") from error
        return {"parameters": self._parameter_values(), "fitted": fitted}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Make an estimator with this state.

        Parameters
        ----------
        state : dict
            As ``get_state`` returns it.

        Returns
        -------
        estimator of this class, fitted if the state is

        Raises
        ------
        ValueError
            If no estimator of this class can have this state.
        """
        rules = merged(cls, "_state_parameters")
        parameters = {name: rules.get(name, scalar) for name in cls._get_param_names()}
        fitted = optional(table(merged(cls, "_state_fields")))
        values = checked(state, {"parameters": table(parameters), "fitted": fitted})
        estimator = cls(**values["parameters"])
        if values["fitted"] is not None:
            estimator._restore(values["fitted"])
        return estimator

    def _parameter_values(self) -> dict[str, Any]:
        """The parameters; an estimator among them as it was given, without what it learned."""
        values = self.get_params(deep=False)
        rules = merged(type(self), "_state_parameters")
        for name, value in values.items():
            if isinstance(value, PersistentEstimator):
                values[name] = clone(value)
            elif rules.get(name) is texts and not isinstance(value, list | tuple):
                values[name] = list(value)
        return values

    def _state_values(self) -> dict[str, Any]:
        return {
            name: getattr(self, name, None) if isinstance(rule, AbsentOr) else getattr(self, name)
            for name, rule in merged(type(self), "_state_fields").items()
        }

    def _restore(self, values: dict[str, Any]) -> None:
        fields = merged(type(self), "_state_fields")
        for name, value in values.items():
            if value is not None or not isinstance(fields[name], AbsentOr):
                setattr(self, name, value)
        self._complete()


def is_fitted(estimator: Any) -> bool:
    """Whether ``fit`` was called."""
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True
