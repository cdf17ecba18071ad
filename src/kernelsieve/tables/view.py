"""How a table shows what a model of it says: its own columns, in their own units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve.explanation.sums import Input
from kernelsieve.explanation.views import Groups, View, marginals_of
from kernelsieve.learning.target_transform import target_label
from kernelsieve.tables.categories import Category
from kernelsieve.tables.table import as_table

if TYPE_CHECKING:
    from kernelsieve.tables.model import TableModel


def table_view(model: TableModel, X: Any) -> View:
    """The view of a table's columns, in their own units; categories are one column each."""
    encoder = model.encoder_
    groups: Groups = []
    start = 0
    for column in encoder.columns_:
        groups.append((column.title, tuple(range(start, start + len(column.labels)))))
        start += len(column.labels)
    groups += [(f"column {i}", (start + i,)) for i in range(encoder.matrix_columns_)]
    known = [*encoder.columns_, *[None] * encoder.matrix_columns_]

    def read(data: Any) -> NDArray[np.float64]:
        rows = encoder.transform(as_table(data, model.readings_))
        return np.asarray(rows.toarray() if sp.issparse(rows) else rows, dtype=np.float64)

    def show(data: Any) -> NDArray[Any]:
        rows = read(data)
        out = np.empty((len(rows), len(groups)), dtype=object)
        for place, (column, (_, places)) in enumerate(zip(known, groups, strict=True)):
            out[:, place] = _shown(column, rows[:, list(places)])
        return out

    def inputs() -> list[Input]:
        marginals = marginals_of(model.model_, None if X is None else read(X))
        found = []
        for column, (name, places) in zip(known, groups, strict=True):
            rows, weights = _distribution(column, [marginals.column(i) for i in places])
            found.append(Input(name, places, rows, weights, _shown(column, rows)))
        return found

    target = target_label(model.model_, model.target_)
    return View(
        model.model_,
        read,
        show,
        inputs,
        title=f"{model.task_} of {target!r}",
        classes=model.classes_ if model.task_ == "classification" else None,
        target=target,
        groups=groups,
    )


Marginal = tuple[NDArray[np.float64], NDArray[np.float64]]


def _distribution(column: Any, marginals: list[Marginal]) -> Marginal:
    """The rows of the matrix that a column of the table has, and their shares."""
    values, weights = marginals[0]
    if isinstance(column, Category):
        rows = _level_rows(column)
        if column.means:
            # Training rows have means of other folds: each counts for the levels next to it.
            gaps = np.abs(values[:, None] - rows[:, 0])
            nearest = gaps == gaps.min(axis=1, keepdims=True)
            shares = np.maximum((weights / nearest.sum(axis=1)) @ nearest, 1e-12)
        else:
            shares = np.array([_share_of(1.0, *marginal) for marginal in marginals])
        there = np.flatnonzero(shares > 0)
        return rows[there], shares[there] / shares.sum()
    if len(marginals) == 1:
        return values[:, None], weights
    # A number and a flag that says where it is missing, and was filled in.
    missing, filled = _share_of(1.0, *marginals[1]), (column.fill - column.mean) / column.scale
    weights = weights.copy()
    nearest = np.abs(values - filled).argmin()
    weights[nearest] = max(weights[nearest] - missing, 1e-12)
    rows = np.column_stack([np.append(values, filled), np.append(np.zeros(len(values)), 1.0)])
    weights = np.append(weights, max(missing, 1e-12))
    return rows, weights / weights.sum()


def _level_rows(column: Category) -> NDArray[np.float64]:
    """The row of each level: its 0/1 columns, or the numbers that stand for it."""
    means = column.means
    return np.array(means) if means else np.eye(len(column.levels))


def _shown(column: Any, rows: NDArray[np.float64]) -> NDArray[Any]:
    """Rows of a column's places in the matrix, as the table shows them."""
    if isinstance(column, Category):
        distances = np.square(rows[:, None, :] - _level_rows(column)).sum(axis=2)
        names = np.array([str(level) for level in column.levels], dtype=object)
        return np.where(distances.min(axis=1) < 0.5, names[distances.argmin(axis=1)], "(unseen)")
    if column is None:
        return rows[:, 0]
    values = column.mean + column.scale * rows[:, 0]
    if column.kind == "time" and column.is_whole:
        return _times(values, rows)
    # A few digits more than float32 holds are rounding.
    shown = np.array([float(f"{x:.9g}") for x in values])
    if rows.shape[1] > 1:
        shown[rows[:, 1] == 1.0] = np.nan
    return shown


def _times(seconds: NDArray[np.float64], rows: NDArray[np.float64]) -> NDArray[np.datetime64]:
    """Times to the second; columns of the matrix have seven digits of them, or more."""
    times = np.round(seconds).astype("datetime64[s]")
    if rows.shape[1] > 1:
        times[rows[:, 1] == 1.0] = np.datetime64("NaT")
    return times


def _share_of(value: float, values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    return float(weights[np.abs(values - value) < 1e-9].sum())
