"""What all estimators have in a model file: parameters, columns, and what they learned."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from kernelsieve.features import FeatureMap
from kernelsieve.kernels import Kernel
from kernelsieve.persistence._errors import ModelFileError
from kernelsieve.persistence._nodes import LARGEST, Fields, wrong
from kernelsieve.persistence._registry import Form, add

MOST_JOBS = 1024  # or a file could ask for any number of threads
# Which methods get which metadata in a meta-estimator: not part of what was fitted.
REQUESTS = "_metadata_request"
OUTPUT = "_sklearn_output_config"
CONTAINERS = ("default", "pandas", "polars")
COLUMNS = ("n_features_in_", "feature_names_in_", OUTPUT, REQUESTS)


# --- parameters ----------------------------------------------------------------------------------


def _scalar(read: Fields, name: str) -> Any:
    value = read.data(name)
    if not (value is None or isinstance(value, bool | int | float | str)):
        wrong(read.where, f"has {name} that is no number or text")
    return value


def _whole(low: int, high: int) -> Callable[[Fields, str], int | None]:
    def rule(read: Fields, name: str) -> int | None:
        return read.integer(name, low, high) if read.given(name) else None

    return rule


def _switch(read: Fields, name: str) -> Any:
    value = read.data(name)
    if type(value) not in (bool, int) or not -LARGEST <= value <= LARGEST:
        wrong(read.where, f"has {name} that is no switch")
    return value


def _kernel(read: Fields, name: str) -> Any:
    value = read.data(name, objects=True)
    if not isinstance(value, str | Kernel):
        wrong(read.where, f"has {name} that is no kernel")
    return value


def _map(read: Fields, name: str) -> Any:
    return read.thing(name, FeatureMap) if read.given(name) else None


def _numbers(read: Fields, name: str) -> Any:
    """One number or many, in whatever holds them."""
    value = read.data(name)
    listed = value if isinstance(value, list | tuple) else [value]
    if isinstance(value, np.ndarray):
        if value.ndim > 1 or value.dtype.kind not in "iuf":
            wrong(read.where, f"has {name} that are no numbers")
    elif value is not None and not all(type(each) in (int, float) for each in listed):
        wrong(read.where, f"has {name} that are no numbers")
    return value


def _landmarks(read: Fields, name: str) -> Any:
    """The name of a method, or points."""
    value = read.data(name)
    if not isinstance(value, str | list | tuple | np.ndarray) and not hasattr(value, "tocsr"):
        wrong(read.where, f"has {name} that are no points")
    return value


def _class_weight(read: Fields, name: str) -> Any:
    value = read.data(name)
    if not (value is None or isinstance(value, str | dict)):
        wrong(read.where, f"has {name} that are no weights")
    return value


# Those that methods of a fitted estimator look at, and those that are no single number or text.
PARAMETERS: dict[str, Callable[[Fields, str], Any]] = {
    "alphas": _numbers,
    "gammas": _numbers,
    "block_rows": _whole(1, LARGEST),
    "class_weight": _class_weight,
    "features": _map,
    "features_y": _map,
    "fit_intercept": _switch,
    "fit_inverse_transform": _switch,
    "kernel": _kernel,
    "landmarks": _landmarks,
    "n_jobs": _whole(-MOST_JOBS, MOST_JOBS),
    "refine": _switch,
    "verbose": _switch,
}


def parameter_names(cls: type) -> list[str]:
    """As the constructor has them."""
    names = [name for name in inspect.signature(cls).parameters if name != "self"]
    return sorted(names)


def pack_parameters(estimator: Any) -> dict[str, Any]:
    """The parameters; a map among them is stored as it was given, without what it learned."""
    return {
        name: clone(value) if isinstance(value, FeatureMap) else value
        for name, value in estimator.get_params(deep=False).items()
    }


# --- estimators ----------------------------------------------------------------------------------


class Estimator:
    """The form of an estimator: subclasses say what it learned.

    Attributes
    ----------
    cls : type
    attributes : tuple of str
        What ``fit`` leaves in an object, and ``state`` stores or ``restore`` makes again.
    left_out : tuple of str
        What it leaves and a file does not hold.
    """

    cls: type
    attributes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def state(self, estimator: Any, where: str) -> dict[str, Any]:
        """What was learned, as fields."""
        raise NotImplementedError

    def restore(self, estimator: Any, read: Fields) -> None:
        """Set it again, after it was checked."""
        raise NotImplementedError

    def register(self) -> None:
        """Let model files hold this class."""
        add(Form(self.cls, self.pack, self.unpack))

    def pack(self, estimator: Any, where: str) -> dict[str, Any]:
        """Parameters, and all that was learned if it was fitted."""
        self._check_attributes(estimator, where)
        return {
            "parameters": pack_parameters(estimator),
            "fitted": self._fitted(estimator, where) if is_fitted(estimator) else None,
        }

    def _check_attributes(self, estimator: Any, where: str) -> None:
        known = {*parameter_names(self.cls), *COLUMNS, *self.attributes, *self.left_out}
        for name in sorted(vars(estimator).keys() - known):
            raise ModelFileError(
                f"{where} ({self.cls.__name__}) has an attribute {name!r} that a model file does "
                "not hold: delete it, or pass its value as part of about"
            )

    def _fitted(self, estimator: Any, where: str) -> dict[str, Any]:
        try:
            return {**_columns(estimator), **self.state(estimator, where)}
        except AttributeError as error:
            raise ModelFileError(
                f"{where} ({self.cls.__name__}) is not completely fitted ({error}): fit it"
            ) from error

    def unpack(self, read: Fields) -> Any:
        """An estimator with these parameters, fitted if the file says so."""
        estimator = self.cls(**self._parameters(read.part("parameters")))
        if read.given("fitted"):
            learned = read.part("fitted")
            _restore_columns(estimator, learned)
            self.restore(estimator, learned)
            learned.close()
        return estimator

    def _parameters(self, read: Fields) -> dict[str, Any]:
        names = parameter_names(self.cls)
        parameters = {name: PARAMETERS.get(name, _scalar)(read, name) for name in names}
        read.close()
        return parameters


def is_fitted(estimator: Any) -> bool:
    """Whether ``fit`` was called."""
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


def _columns(estimator: Any) -> dict[str, Any]:
    names = getattr(estimator, "feature_names_in_", None)
    config = getattr(estimator, OUTPUT, None)
    return {
        "n_features_in": int(estimator.n_features_in_),
        "feature_names_in": None if names is None else np.asarray(names, dtype=object),
        "output": None if config is None else config.get("transform"),
    }


def _restore_columns(estimator: Any, read: Fields) -> None:
    estimator.n_features_in_ = read.integer("n_features_in", 1)
    if read.given("feature_names_in"):
        names = read.names("feature_names_in")
        if len(names) != estimator.n_features_in_:
            wrong(read.where, f"has {len(names)} names for {estimator.n_features_in_} columns")
        estimator.feature_names_in_ = names
    if read.given("output"):
        setattr(estimator, OUTPUT, {"transform": read.choice("output", CONTAINERS)})


def same_columns(estimator: Any, inner: Any, read: Fields) -> None:
    """Rows are checked once, by the outer one: the inner one must expect the same columns."""
    if inner.n_features_in_ != estimator.n_features_in_:
        wrong(
            read.where,
            f"takes {estimator.n_features_in_} columns and what it holds {inner.n_features_in_}",
        )


def fitted(read: Fields, name: str, *classes: type) -> Any:
    """An estimator of one of these classes that was fitted."""
    thing = read.thing(name, *classes)
    if not is_fitted(thing):
        wrong(read.where, f"has {name} that was not fitted")
    return thing
