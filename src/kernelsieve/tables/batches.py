"""Predictions for a file that need not fit in memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.tables.facts import label_text, scores
from kernelsieve.tables.model import TableModel
from kernelsieve.tables.predictions import Predictions
from kernelsieve.tables.table import Table, TableError, TableNotice, is_missing


def predict_batches(
    model: TableModel,
    batches: Iterable[Table],
    *,
    proba: bool = False,
    std: bool = False,
    interval: float | None = None,
    keep: Sequence[str] | None = (),
    progress: Callable[[str], None] = lambda step: None,
) -> Predictions:
    """Predict as ``TableModel.predict_table`` does, with a batch of the rows in memory at a time.

    Notices are those on the first batch.
    """
    classifies = model.task_ == "classification"
    parts: list[Predictions] = []
    targets: list[NDArray[Any]] = []
    done = 0
    with warnings.catch_warnings():
        for table in batches:
            # The scores of a classifier need the probabilities.
            parts.append(
                model.predict_table(
                    table, proba=proba or classifies, std=std, interval=interval, keep=keep
                )
            )
            targets.append(_targets(model, table))
            done += table.n_rows
            progress(f"predicting: {done:,} rows")
            warnings.simplefilter("ignore", TableNotice)
    if not parts:
        raise TableError("the table has no rows")
    columns = {name: np.concatenate([part.columns[name] for part in parts])
               for name in parts[0].columns}  # fmt: skip
    judged = _scores(model, columns, np.concatenate(targets))
    if classifies and not proba:
        columns = {name: values for name, values in columns.items() if name not in _chances(model)}
    return Predictions(done, columns, judged)


def _targets(model: TableModel, table: Table) -> NDArray[Any]:
    """The targets that the table holds: NaN, or None, where they are missing or of another kind."""
    values = table.columns.get(model.target_)
    if model.task_ == "regression":
        if values is None or values.dtype.kind != "f":
            return np.full(table.n_rows, np.nan)
        return values
    if values is None:
        return np.full(table.n_rows, None, dtype=object)
    missing = is_missing(values)
    if values.dtype.kind != model.classes_.dtype.kind:
        values = values.astype(str)
    found = values.astype(object)
    found[missing] = None
    return found


def _scores(
    model: TableModel, columns: dict[str, NDArray[Any]], targets: NDArray[Any]
) -> dict[str, float] | None:
    known = np.flatnonzero(~is_missing(targets))
    if not len(known):
        return None
    predicted = columns[model.target_][known]
    if model.task_ == "regression":
        return scores(targets[known], predicted)
    y = np.array(targets[known].tolist())
    chances = np.column_stack([columns[name][known] for name in _chances(model)])
    return scores(y, predicted, model.classes_, chances)


def _chances(model: TableModel) -> list[str]:
    return [f"{model.target_}={label_text(label)}" for label in model.classes_]
