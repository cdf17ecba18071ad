"""Steps of scikit-learn that model files hold: pipelines, scalers, encoders, imputers.

Their state is their parameters and what they have learned in public attributes. Scalers get these
back; encoders and column transformers are fitted again, to one row that teaches them exactly this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

from kernelsieve._state import (
    AbsentOr,
    Rule,
    array,
    checked,
    flag,
    instance,
    is_fitted,
    list_of,
    names,
    optional,
    plain,
    table,
    text,
    whole,
    wrong,
)

MOST_COLUMNS = 2**20
COMMON: Mapping[str, Rule] = {
    "n_features_in_": whole(1, MOST_COLUMNS, size="d"),
    "feature_names_in_": AbsentOr(names("d")),
}
NUMBERS = array("d", finite=False)


def _set(estimator: Any, fitted: dict[str, Any]) -> Any:
    for name, value in fitted.items():
        setattr(estimator, name, value)
    return estimator


def _refit_encoder(estimator: Any, fitted: dict[str, Any]) -> Any:
    """Fit an encoder to one row, with the categories given."""
    categories = estimator.categories
    estimator.set_params(categories=fitted["categories_"])
    estimator.fit(_first_row(fitted["categories_"], fitted["feature_names_in_"]))
    return estimator.set_params(categories=categories)


def _refit_imputer(estimator: Any, fitted: dict[str, Any]) -> Any:
    """The mean, the median and the mode of one value are that value."""
    values = fitted["statistics_"]
    return estimator.fit(_first_row([values[i : i + 1] for i in range(len(values))],
                                    fitted["feature_names_in_"]))  # fmt: skip


def _first_row(columns: list[Any], given: Any) -> Any:
    """A row of the first value of each column."""
    if given is not None:
        return _frame(dict(zip(given, (column[:1] for column in columns), strict=True)))
    same = len({column.dtype for column in columns}) == 1
    return np.array([[c[0] for c in columns]], dtype=columns[0].dtype if same else object)


def _frame(columns: dict[str, Any]) -> Any:
    import pandas as pd

    return pd.DataFrame(columns)


@dataclass(frozen=True)
class Step:
    """A class of scikit-learn that a file may hold.

    Attributes
    ----------
    cls : type
    fitted : mapping of str to rule
        Public attributes that ``fit`` sets.
    restore : callable
        (unfitted estimator, fitted attributes) -> fitted estimator.
    left_out : mapping of str to object
        Parameters that are not stored, and must have these values.
    """

    cls: type
    fitted: Mapping[str, Rule]
    restore: Callable[[Any, dict[str, Any]], Any] = _set
    left_out: Mapping[str, Any] = field(default_factory=dict)

    def get_state(self, estimator: Any) -> dict[str, Any]:
        """The parameters, and what was learned."""
        parameters = estimator.get_params(deep=False)
        for name, value in self.left_out.items():
            if parameters.pop(name) is not value:
                wrong(name, f"is {getattr(estimator, name)!r}: a file holds the default only")
        if not is_fitted(estimator):
            return {"parameters": parameters, "fitted": None}
        values = {
            name: getattr(estimator, name, None)
            if isinstance(rule, AbsentOr)
            else getattr(estimator, name)
            for name, rule in self._rules().items()
        }
        return {"parameters": parameters, "fitted": checked(values, self._rules(), "fitted")}

    def from_state(self, state: Any) -> Any:
        """An estimator with this state."""
        known = self.cls().get_params(deep=False).keys() - self.left_out.keys()
        rules = {"parameters": table(dict.fromkeys(known, plain())),
                 "fitted": optional(table(self._rules()))}  # fmt: skip
        values = checked(state, rules)
        estimator = self.cls(**values["parameters"])
        estimator._validate_params()
        if values["fitted"] is None:
            return estimator
        restored = self.restore(estimator, values["fitted"])
        if getattr(restored, "feature_names_in_", 0) is None:
            del restored.feature_names_in_
        return restored

    def _rules(self) -> dict[str, Rule]:
        return {**COMMON, **self.fitted}


class PipelineStep:
    """Pipelines of known steps."""

    cls = Pipeline

    def get_state(self, pipeline: Any) -> dict[str, Any]:
        """The steps by name; a memory for them is not part of what was fitted."""
        return {"steps": [[name, step] for name, step in pipeline.steps]}

    def from_state(self, state: Any) -> Any:
        """A pipeline of these steps."""
        steps = checked(state, {"steps": list_of(_named(2))})["steps"]
        return Pipeline([(name, step) for name, step in steps])


class ColumnsStep:
    """Column transformers of known steps."""

    cls = ColumnTransformer

    def get_state(self, estimator: Any) -> dict[str, Any]:
        """The steps, fitted if the whole is, with their columns."""
        is_ready = is_fitted(estimator)
        steps = estimator.transformers_ if is_ready else estimator.transformers
        kept = [
            [name, step, _columns(columns)]
            for name, step, columns in steps
            if not (is_ready and name == "remainder")
        ]
        if not isinstance(estimator.remainder, str):
            wrong("remainder", "is an estimator: a file holds 'drop' and 'passthrough' only")
        return {
            "steps": kept,
            "remainder": estimator.remainder,
            "sparse_threshold": float(estimator.sparse_threshold),
            "verbose_feature_names_out": bool(estimator.verbose_feature_names_out),
            "sparse_output": bool(estimator.sparse_output_) if is_ready else None,
            "n_features": int(estimator.n_features_in_) if is_ready else None,
            "names": getattr(estimator, "feature_names_in_", None),
        }

    def from_state(self, state: Any) -> Any:
        """A column transformer of these steps."""
        found = checked(
            state,
            {
                "steps": list_of(_named(3)),
                "remainder": text,
                "sparse_threshold": plain(float, int),
                "verbose_feature_names_out": flag,
                "sparse_output": optional(flag),
                "n_features": optional(whole(1, MOST_COLUMNS, size="d")),
                "names": optional(names("d")),
            },
        )
        options = {name: found[name] for name in ("remainder", "sparse_threshold",
                                                  "verbose_feature_names_out")}  # fmt: skip
        steps = [(name, step, columns) for name, step, columns in found["steps"]]
        fresh = [(n, s if isinstance(s, str) else clone(s), c) for n, s, c in steps]
        estimator = ColumnTransformer(fresh, **options)
        estimator._validate_params()
        if found["n_features"] is None:
            return estimator
        return self._fitted(estimator, steps, found)

    def _fitted(self, estimator: Any, steps: list[Any], found: dict[str, Any]) -> Any:
        frozen = [(n, s if isinstance(s, str) else FrozenEstimator(s), c) for n, s, c in steps]
        original = estimator.transformers
        d, given = found["n_features"], found["names"]
        row: dict[Any, Any] = dict.fromkeys(range(d) if given is None else given, 0.0)
        labels = list(row)
        for _, step, columns in steps:
            values = getattr(step, "categories_", None)
            for i, column in enumerate([columns] if isinstance(columns, str) else columns):
                place = labels[column] if isinstance(column, int) else column
                if values is not None:
                    row[place] = values[i][0]
        cells = np.array([list(row.values())], dtype=object if _texts(row) else np.float64)
        X = cells if given is None else _frame({name: [value] for name, value in row.items()})
        estimator.set_params(transformers=frozen).fit(X)
        estimator.transformers_ = [
            (n, getattr(s, "estimator", s) if isinstance(s, FrozenEstimator) else s, c)
            for n, s, c in estimator.transformers_
        ]
        estimator.sparse_output_ = found["sparse_output"]
        return estimator.set_params(transformers=original)


def _texts(row: dict[Any, Any]) -> bool:
    return any(isinstance(value, str) for value in row.values())


def _columns(columns: Any) -> Any:
    if isinstance(columns, str):
        return columns
    if isinstance(columns, list | tuple | np.ndarray) and len(columns):
        found = [c.item() if isinstance(c, np.generic) else c for c in columns]
        if all(type(c) is int for c in found) or all(type(c) is str for c in found):
            return found
    wrong("columns", f"are {columns!r}: a file holds names, or numbers of columns")


def _named(length: int) -> Rule:
    """A step with its name (and its columns); whether its class is known is checked elsewhere."""

    def rule(value: Any, where: str, sizes: Any) -> Any:
        if not isinstance(value, list) or len(value) != length or not isinstance(value[0], str):
            wrong(where, "is not a named step")
        if not (hasattr(value[1], "get_params") or value[1] in ("passthrough", "drop")):
            wrong(where, "has no estimator")
        if length == 3:
            _columns(value[2])
        return value

    return rule


_SEEN = {"n_samples_seen_": instance(int, float)}
STEPS: dict[str, Any] = {
    step.cls.__name__: step
    for step in (
        Step(StandardScaler, {"mean_": optional(NUMBERS), "var_": optional(NUMBERS),
                              "scale_": optional(NUMBERS), **_SEEN}),
        Step(MinMaxScaler, {**dict.fromkeys(("min_", "scale_", "data_min_", "data_max_",
                                             "data_range_"), NUMBERS), **_SEEN}),
        Step(MaxAbsScaler, {"scale_": NUMBERS, "max_abs_": NUMBERS, **_SEEN}),
        Step(RobustScaler, {"center_": optional(NUMBERS), "scale_": optional(NUMBERS)}),
        Step(SimpleImputer, {"statistics_": array("d")}, _refit_imputer,
             {"add_indicator": False}),
        Step(OneHotEncoder, {"categories_": list_of(plain(np.ndarray))}, _refit_encoder,
             {"dtype": np.float64, "feature_name_combiner": "concat", "min_frequency": None,
              "max_categories": None}),
        Step(OrdinalEncoder, {"categories_": list_of(plain(np.ndarray))}, _refit_encoder,
             {"dtype": np.float64, "min_frequency": None, "max_categories": None}),
        PipelineStep(),
        ColumnsStep(),
    )
}  # fmt: skip


def step_of(thing: Any) -> Any:
    """How a file holds an object of scikit-learn, or None if it does not."""
    found = STEPS.get(type(thing).__name__)
    return found if found is not None and found.cls is type(thing) else None
