"""The target column: the rows that have it, and whether it is learned as numbers or classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.tables.table import (
    Table,
    TableError,
    as_column,
    is_missing,
    listed,
    notice,
    plural,
)
from kernelsieve.tables.texts import number
from kernelsieve.tables.times import as_times

TASKS = ("auto", "regression", "classification")
MIN_ROWS = 20
MOST_CLASSES = 100
MANY_CLASSES = 20  # so many texts may be numbers that were not understood
LARGEST_TARGET, LARGEST_LABEL = 1e100, 2.0**53


def with_target(table: Table, target: str | None, y: Any) -> tuple[Table, str | None]:
    """Add a target that is not a column of the table; also return its name."""
    if y is None:
        return table, target
    name = target if target is not None else str(getattr(y, "name", None) or "target")
    values = as_column("y", name, y)
    if len(values) != table.n_rows:
        raise TableError(f"y has {len(values)} values for {table.n_rows} rows")
    return replace(table, columns={**table.columns, name: values}), name


def rows_with_target(
    table: Table, target: str | None, drop: Sequence[str], strict: bool
) -> tuple[Table, str]:
    """Select the rows whose target is known; also return its name."""
    if target is None:
        raise TableError(
            f"{table.where}: name the column to predict (target=), one of {listed(table.columns)}"
        )
    known = ~is_missing(table.column(target))
    if target in drop:
        raise TableError(f"{target!r} is the target, so it cannot be dropped")
    missing = int(table.n_rows - known.sum())
    if missing and strict:
        raise TableError(
            f"{table.where}: the target {target!r} is missing in {missing:,} rows, first in row "
            f"{int(np.argmin(known)) + 1} (strict mode)"
        )
    if missing:
        notice(f"{plural(missing, 'row')} without a target ({target!r}) ignored")
        table = table.take(np.flatnonzero(known))
    if table.n_rows < MIN_ROWS:
        raise TableError(
            f"{table.where} has only {plural(table.n_rows, 'row')} with a target; at least "
            f"{MIN_ROWS} are required"
        )
    return table, target


def task_and_targets(table: Table, name: str, task: str) -> tuple[str, NDArray[Any]]:
    """Decide between regression and classification; also return the numbers or the labels."""
    values = table.column(name)
    numeric = values.dtype.kind == "f"
    if numeric and not np.isfinite(values).all():
        where = int(np.argmin(np.isfinite(values)))
        raise TableError(
            f"{table.where}: the target {name!r} is {values[where]} in row {where + 1}"
        )
    levels = np.unique(values if numeric else values.astype(str))
    if len(levels) < 2:
        raise TableError(f"{table.where}: the target {name!r} is {levels[0]} in every row")
    if numeric and np.abs(levels).max() > LARGEST_TARGET:
        raise TableError(
            f"{table.where}: the target {name!r} reaches {np.abs(levels).max():.3g}, so squared "
            "errors overflow: use other units"
        )
    are_labels = not numeric or bool((levels == np.round(levels)).all())
    if task == "auto":
        few = not numeric or len(levels) == 2
        task = "classification" if few and are_labels else "regression"
        if numeric:
            _note_decision(name, task, levels, table.n_rows)
    if task == "regression":
        if not numeric:
            raise TableError(
                f"{table.where}: the target {name!r} holds texts ({str(levels[0])!r}), and a "
                "regression needs numbers"
            )
        return task, values
    if not are_labels or (numeric and np.abs(levels).max() > LARGEST_LABEL):
        raise TableError(
            f"{table.where}: the target {name!r} has values such as "
            f"{levels[np.abs(levels).argmax()]:g}, and classes are texts or whole numbers: use "
            "regression, or convert them to texts"
        )
    if not numeric and len(levels) > MANY_CLASSES:
        _refuse_numbers(table, name, values.tolist())
    if len(levels) > MOST_CLASSES:
        raise TableError(
            f"{table.where}: the target {name!r} has {len(levels):,} distinct values, and at most "
            f"{MOST_CLASSES} classes are supported: {listed(map(str, levels))}"
        )
    if 2 * len(levels) > table.n_rows:
        raise TableError(
            f"{table.where}: the target {name!r} has {len(levels):,} distinct values in "
            f"{table.n_rows:,} rows, and a class needs several rows: {listed(map(str, levels))}"
        )
    return task, values if numeric else values.astype(str)


def _refuse_numbers(table: Table, name: str, texts: list[str]) -> None:
    """Raise if many of the texts are numbers: these are no classes."""
    others = [text for text in texts if number(text) is None]
    if 2 * len(others) < len(texts):
        shown = listed([repr(text) for text in dict.fromkeys(others)])
        raise TableError(
            f"{table.where}: the target {name!r} holds numbers, and texts in {len(others):,} of "
            f"{len(texts):,} rows: {shown}. Replace these by numbers, or leave them empty"
        )


def _note_decision(name: str, task: str, levels: NDArray[np.float64], n_rows: int) -> None:
    """Say what was decided about whole numbers that may be numbers or classes."""
    if task == "classification":
        first, second = (f"{level:g}" for level in levels)
        notice(
            f"the target {name!r} is {first} or {second}: learned as two classes. Use "
            "task='regression' to learn numbers"
        )
    elif bool((levels == np.round(levels)).all()) and len(levels) <= min(MOST_CLASSES, n_rows // 5):
        notice(
            f"the target {name!r} has {len(levels)} distinct whole numbers ({levels[0]:g} to "
            f"{levels[-1]:g}): learned as numbers. Use task='classification' if they are classes"
        )


def ridge_targets(y: NDArray[Any], task: str) -> NDArray[np.float64]:
    """The targets of a ridge: the numbers, or a 0/1 column for each class."""
    if task == "regression":
        return y
    return (y[:, None] == np.unique(y)).astype(np.float64)


def codes(values: NDArray[Any]) -> NDArray[np.int64]:
    """A number for each different value of a column; missing values are a group of their own."""
    known = np.where(is_missing(values), "", values.astype(str))
    return np.unique(known, return_inverse=True)[1]


def places_in_time(table: Table, name: str) -> NDArray[np.float64]:
    """The values of a column of times or numbers, by which rows are ordered."""
    values = table.column(name)
    times = values if values.dtype.kind == "f" else as_times(values)
    if times is None:
        raise TableError(f"{table.where}: order={name!r} is neither a time nor a number")
    if np.isnan(times).any():
        raise TableError(f"{table.where}: order={name!r} has missing values: fill or drop them")
    return np.asarray(times, dtype=np.float64)
