"""What stands in front of a model: scikit-learn's scalers, imputers and encoders.

Rows are a matrix (n, d), or columns (n, 1) of numbers and of texts.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

from kernelsieve.export.graph import ExportError, Graph


@dataclass(frozen=True)
class Columns:
    """Columns (n, 1) of a table; ``texts`` says which of them hold texts."""

    names: list[str]
    texts: NDArray[np.bool_]


Rows = str | Columns


def numbers(graph: Graph, rows: Rows) -> str:
    """Rows as a matrix of numbers."""
    if isinstance(rows, str):
        return rows
    if rows.texts.any():
        raise ExportError("a column of texts reaches a step that takes numbers: encode it first")
    return graph.join(rows.names)


def taken(graph: Graph, rows: Rows, places: NDArray[np.int64]) -> Rows:
    """Some columns."""
    if isinstance(rows, str):
        return graph.columns(rows, places)
    return Columns([rows.names[i] for i in places], rows.texts[places])


def text_columns(step: Any, n_columns: int) -> NDArray[np.bool_]:
    """Which columns of the input of a step hold texts."""
    found = np.zeros(n_columns, dtype=bool)
    if isinstance(step, Pipeline):
        first = [part for _, part in step.steps if not passes_through(part)][:1]
        return text_columns(first[0], n_columns) if first else found
    if isinstance(step, FrozenEstimator):
        return text_columns(step.estimator, n_columns)
    if isinstance(step, ColumnTransformer):
        for _, part, columns in step.transformers_:
            places = column_places(step, columns)
            if not isinstance(part, str):
                found[places] |= text_columns(part, len(places))
    elif isinstance(step, OneHotEncoder | OrdinalEncoder):
        found[:] = [not _are_numbers(levels) for levels in step.categories_]
    elif isinstance(step, SimpleImputer):
        found[:] = [isinstance(fill, str) for fill in step.statistics_.tolist()]
    return found


def column_places(step: ColumnTransformer, columns: Any) -> NDArray[np.int64]:
    """The numbers of the columns that a part of a column transformer takes."""
    if isinstance(columns, slice):
        return np.arange(step.n_features_in_)[columns]
    given = np.atleast_1d(np.asarray(columns))
    if given.dtype.kind in "OU":
        names = step.feature_names_in_.tolist()
        return np.array([names.index(name) for name in given], dtype=np.int64)
    return np.flatnonzero(given) if given.dtype.kind == "b" else given.astype(np.int64)


def passes_through(step: Any) -> bool:
    """Whether a step leaves rows as they are; column transformers make a function of it."""
    same = isinstance(step, FunctionTransformer) and step.func is None
    return step is None or (isinstance(step, str) and step == "passthrough") or same


def step_graph(graph: Graph, step: Any, rows: Rows) -> Rows:
    """What a fitted step makes of rows."""
    if passes_through(step):
        return rows
    if isinstance(step, FrozenEstimator):
        return step_graph(graph, step.estimator, rows)
    if isinstance(step, Pipeline):
        for _, part in step.steps:
            rows = step_graph(graph, part, rows)
        return rows
    if isinstance(step, ColumnTransformer):
        parts = []
        for _, part, columns in step.transformers_:
            places = column_places(step, columns)
            if (isinstance(part, str) and part == "drop") or not len(places):
                continue
            parts.append(numbers(graph, step_graph(graph, part, taken(graph, rows, places))))
        return graph.join(parts)
    if isinstance(step, OneHotEncoder):
        return _one_hot(graph, step, rows)
    if isinstance(step, OrdinalEncoder):
        return _ordinal(graph, step, rows)
    matrix = numbers(graph, rows)
    if isinstance(step, SimpleImputer):
        return _imputed(graph, step, matrix)
    return _scaled(graph, step, matrix)


def _scaled(graph: Graph, step: Any, rows: str) -> str:
    if isinstance(step, StandardScaler):
        if step.with_mean:
            rows = graph.op("Sub", rows, step.mean_[None])
        return graph.op("Div", rows, step.scale_[None]) if step.with_std else rows
    if isinstance(step, RobustScaler):
        if step.with_centering:
            rows = graph.op("Sub", rows, step.center_[None])
        return graph.op("Div", rows, step.scale_[None]) if step.with_scaling else rows
    if isinstance(step, MaxAbsScaler):
        rows = graph.op("Div", rows, step.scale_[None])
        return graph.op("Clip", rows, -1.0, 1.0) if getattr(step, "clip", False) else rows
    if isinstance(step, MinMaxScaler):
        rows = graph.op("Add", graph.op("Mul", rows, step.scale_[None]), step.min_[None])
        low, high = (float(edge) for edge in step.feature_range)
        return graph.op("Clip", rows, low, high) if step.clip else rows
    raise ExportError(
        f"{type(step).__name__} cannot be exported: put one of StandardScaler, RobustScaler, "
        "MinMaxScaler, MaxAbsScaler, SimpleImputer, OneHotEncoder and OrdinalEncoder before the "
        "model"
    )


def _imputed(graph: Graph, step: SimpleImputer, rows: str) -> str:
    not_numbers = not isinstance(step.missing_values, float) or not np.isnan(step.missing_values)
    if not_numbers or step.add_indicator:
        raise ExportError(
            f"{step!r} cannot be exported: only missing_values=nan without add_indicator can"
        )
    statistics = step.statistics_.astype(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about columns that are left out
        fills = step.transform(np.full((1, len(statistics)), np.nan))[0]
    if len(fills) < len(statistics):  # columns without any value in training
        rows = graph.columns(rows, np.flatnonzero(~np.isnan(statistics)))
    return graph.op("Where", graph.op("IsNaN", rows), fills[None], rows)


def _are_numbers(levels: NDArray[Any]) -> bool:
    return all(isinstance(each, int | float | np.number) for each in levels.tolist())


def _matches(graph: Graph, rows: Rows, place: int, levels: NDArray[Any]) -> str:
    """Where a column is each of its categories: (n, n_levels), 0.0 or 1.0."""
    column = rows.names[place] if isinstance(rows, Columns) else graph.columns(rows, [place])
    if _are_numbers(levels):
        known = levels.astype(np.float64)
        same = graph.op("Equal", column, known[None])
        missing = np.isnan(known)
        if missing.any():
            absent = graph.op("And", graph.op("IsNaN", column), missing[None])
            same = graph.op("Or", same, absent)
        return graph.flags(same)
    if any(not isinstance(level, str) for level in levels.tolist()):
        raise ExportError(
            f"the categories {levels.tolist()[:5]} are not all texts, and ONNX has no missing "
            "text: replace missing values by a text such as '' before the encoder"
        )
    return graph.flags(graph.op("Equal", column, levels.astype(str)[None]))


def _one_hot(graph: Graph, step: OneHotEncoder, rows: Rows) -> str:
    infrequent = getattr(step, "infrequent_categories_", [])
    if any(each is not None for each in infrequent):
        raise ExportError(
            "a OneHotEncoder with infrequent categories cannot be exported: leave out "
            "min_frequency and max_categories"
        )
    dropped = [None] * len(step.categories_) if step.drop_idx_ is None else step.drop_idx_
    parts = []
    for place, levels in enumerate(step.categories_):
        kept = np.array([i for i in range(len(levels)) if i != dropped[place]], dtype=np.int64)
        parts.append(graph.columns(_matches(graph, rows, place, levels), kept))
    return graph.join(parts)


def _ordinal(graph: Graph, step: OrdinalEncoder, rows: Rows) -> str:
    if any(each is not None for each in getattr(step, "infrequent_categories_", [])):
        raise ExportError("an OrdinalEncoder with infrequent categories cannot be exported")
    unknown = float("nan") if step.handle_unknown == "error" else float(step.unknown_value)
    parts = []
    for place, levels in enumerate(step.categories_):
        same = _matches(graph, rows, place, levels)
        codes = np.arange(len(levels), dtype=np.float64)
        last = levels[-1]
        if isinstance(last, float | np.floating) and np.isnan(last):
            if np.isnan(step.encoded_missing_value):
                raise ExportError(
                    "an OrdinalEncoder that leaves missing values missing cannot be exported: set "
                    "encoded_missing_value to a number"
                )
            codes[-1] = step.encoded_missing_value
        code = graph.op("MatMul", same, codes[:, None])
        known = graph.op("Greater", graph.row_sum(same), 0.5)
        parts.append(graph.op("Where", known, code, unknown))
    return graph.join(parts)
