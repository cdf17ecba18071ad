"""The column to predict: the rows that have it, and whether it is numbers or labels."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.tables.table import Table, TableError, TableNotice, is_missing, listed

TASKS = ("auto", "regression", "classification")
MIN_ROWS = 20
MOST_CLASSES = 100
LARGEST_TARGET, LARGEST_LABEL = 1e100, 2.0**53


def rows_with_target(
    table: Table, target: str | None, drop: Sequence[str], strict: bool
) -> tuple[Table, str]:
    """The rows whose target is known, and its name."""
    if target is None:
        raise TableError(
            f"{table.where}: say which column to predict (--target), one of {listed(table.columns)}"
        )
    known = ~is_missing(table.column(target))
    if target in drop:
        raise TableError(f"{target!r} is the target: it cannot be dropped too")
    missing = int(table.n_rows - known.sum())
    if missing and strict:
        raise TableError(
            f"{table.where}: the target {target!r} is missing in {missing:,} rows, first in row "
            f"{int(np.argmin(known)) + 1} (refused by strict)"
        )
    if missing:
        notice = f"{missing:,} rows without {target!r} were left out"
        warnings.warn(notice, TableNotice, stacklevel=3)
        table = table.take(np.flatnonzero(known))
    if table.n_rows < MIN_ROWS:
        raise TableError(
            f"{table.where} has {table.n_rows} rows with a target, at least {MIN_ROWS} are needed"
        )
    return table, target


def task_and_targets(table: Table, name: str, task: str) -> tuple[str, NDArray[Any]]:
    """Regression and its numbers, or classification and its labels."""
    values = table.column(name)
    numeric = values.dtype.kind == "f"
    if numeric and not np.isfinite(values).all():
        where = int(np.argmin(np.isfinite(values)))
        raise TableError(f"{table.where}: the target {name!r} is {values[where]} in a row")
    levels = np.unique(values if numeric else values.astype(str))
    if len(levels) < 2:
        raise TableError(f"{table.where}: the target {name!r} is {levels[0]} everywhere")
    if numeric and np.abs(levels).max() > LARGEST_TARGET:
        raise TableError(
            f"{table.where}: the target {name!r} reaches {np.abs(levels).max():.3g}, and squares "
            "of errors would leave the float range: use other units"
        )
    are_labels = not numeric or bool((levels == np.round(levels)).all())
    if task == "auto":
        few = not numeric or len(levels) == 2
        task = "classification" if few and are_labels else "regression"
    if task == "regression":
        if not numeric:
            raise TableError(
                f"{table.where}: the target {name!r} is text ({str(levels[0])!r}), and a "
                "regression needs numbers"
            )
        return task, values
    if not are_labels or (numeric and np.abs(levels).max() > LARGEST_LABEL):
        raise TableError(
            f"{table.where}: the target {name!r} has values such as "
            f"{levels[np.abs(levels).argmax()]:g}, and classes are texts or whole numbers: use "
            "regression, or write them as texts"
        )
    if len(levels) > MOST_CLASSES:
        raise TableError(
            f"{table.where}: the target {name!r} has {len(levels):,} different values, and at most "
            f"{MOST_CLASSES} classes can be told apart: {listed(map(str, levels))}"
        )
    return task, values if numeric else values.astype(str)


def ridge_targets(y: NDArray[Any], task: str) -> NDArray[np.float64]:
    """What a ridge is fitted to: numbers, or a column of 0 and 1 for every class."""
    if task == "regression":
        return y
    return (y[:, None] == np.unique(y)).astype(np.float64)
