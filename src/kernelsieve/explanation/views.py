"""How a model's user sees its rows: names, units and distributions of columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from kernelsieve._validation import canonical_rows, check_sparse
from kernelsieve.explanation.sums import Input
from kernelsieve.learning.target_transform import target_label
from kernelsieve.models import KernelRidge, KernelRidgeClassifier
from kernelsieve.sources.given import given_source
from kernelsieve.sources.marginals import Marginals, sampled_rows
from kernelsieve.tables.categories import Category
from kernelsieve.tables.model import TableModel
from kernelsieve.tables.table import as_table

Groups = list[tuple[str, tuple[int, ...]]]  # names of the user's columns, and their places

# Transformers of scikit-learn that change every column by itself.
COLUMN_WISE = (
    "MaxAbsScaler",
    "MinMaxScaler",
    "PowerTransformer",
    "QuantileTransformer",
    "RobustScaler",
    "StandardScaler",
)


class View:
    """A model with the columns that its user knows.

    Attributes
    ----------
    model : estimator
        Whose rows are numbers.
    read, show : callable
        From what the user calls rows to the rows of ``model``, and to values that are shown.
    inputs : callable
        Gives the columns with their distributions.
    reason : str
        Why columns of ``model`` are not columns of the user, if so.
    title, target : str
    groups : list of (str, tuple of int)
        The names of the user's columns, and their places in the rows of ``model``.
    """

    def __init__(
        self,
        model: Any,
        read: Callable[[Any], NDArray[np.float64]],
        show: Callable[[Any], NDArray[Any]],
        inputs: Callable[[], list[Input]],
        *,
        title: str,
        target: str = "",
        reason: str = "",
        groups: Groups,
    ) -> None:
        self.model, self.read, self.show, self.inputs = model, read, show, inputs
        self.title, self.target, self.reason, self.groups = title, target, reason, groups


def view_of(model: Any, X: Any, names: Sequence[str] | None) -> View:
    """How a model's user sees its rows."""
    if isinstance(model, TableModel):
        return table_view(model, X)
    if isinstance(model, Pipeline):
        return _pipeline_view(model, X, names)
    return _plain_view(model, X, names)


def _plain_view(model: Any, X: Any, names: Sequence[str] | None) -> View:
    d = int(model.n_features_in_)
    known = _names(model, names, d)

    def inputs() -> list[Input]:
        marginals = _marginals(model, X)
        return [_number(known[i], i, *marginals.column(i)) for i in range(d)]

    groups: Groups = [(name, (i,)) for i, name in enumerate(known)]
    read = _rows_for(d)
    return View(model, read, read, inputs, **_headings(model), groups=groups)


def _pipeline_view(model: Pipeline, X: Any, names: Sequence[str] | None) -> View:
    before, last = model[:-1], model[-1]
    strangers = [
        type(step).__name__ for _, step in before.steps if type(step).__name__ not in COLUMN_WISE
    ]
    d = int(model.n_features_in_)
    known = _names(model, names, d)
    rows = _rows_for(d)

    def read(given: Any) -> NDArray[np.float64]:
        return np.asarray(before.transform(rows(given)), dtype=np.float64)

    def inputs() -> list[Input]:
        marginals = _marginals(last, None if X is None else read(_sample(X)))
        columns = [marginals.column(i) for i in range(d)]
        padded = np.zeros((max(len(values) for values, _ in columns), d))
        for i, (values, _) in enumerate(columns):
            padded[: len(values), i] = values
        shown = np.asarray(before.inverse_transform(padded))
        return [
            _number(known[i], i, values, weights, shown[: len(values), i])
            for i, (values, weights) in enumerate(columns)
        ]

    reason = f"the pipeline mixes columns ({strangers[0]})" if strangers else ""
    groups: Groups = [(name, (i,)) for i, name in enumerate(known)]
    if strangers:
        return View(model, rows, rows, inputs, **_headings(last), reason=reason, groups=groups)
    return View(last, read, rows, inputs, **_headings(last), groups=groups)


def _headings(model: Any) -> dict[str, str]:
    """The title of a model, and the name of what is explained."""
    target = target_label(model)
    return {"title": f"{type(model).__name__}{' of ' * bool(target)}{target}", "target": target}


def _number(
    name: str,
    column: int,
    values: NDArray[np.float64],
    weights: NDArray[np.float64],
    shown: NDArray[Any] | None = None,
) -> Input:
    return Input(name, (column,), values[:, None], weights, values if shown is None else shown)


def _names(model: Any, names: Sequence[str] | None, d: int) -> list[str]:
    if names is None:
        names = getattr(model, "feature_names_in_", [f"x{i}" for i in range(d)])
    if len(names) != d:
        raise ValueError(f"names has {len(names)} entries, and the model has {d} columns")
    return [str(name) for name in names]


def _rows_for(d: int) -> Callable[[Any], NDArray[np.float64]]:
    def rows(given: Any) -> NDArray[np.float64]:
        given = check_sparse(given).toarray() if sp.issparse(given) else given
        X = np.atleast_2d(np.asarray(given, dtype=np.float64))
        if X.ndim != 2 or X.shape[1] != d:
            raise ValueError(f"rows of shape {X.shape} for a model of {d} columns")
        return X

    return rows


def _sample(X: Any) -> Any:
    """Some rows of X, in memory."""
    source = given_source(X)
    if source is not None:
        return source[sampled_rows(source)]
    if sp.issparse(X):
        return canonical_rows(check_sparse(X).tocsr())
    return np.asarray(X, dtype=np.float64)


def _marginals(model: Any, X: Any) -> Marginals:
    """The distributions of the columns: those of X, or those that the model remembers."""
    if X is not None:
        return Marginals.of_rows(_sample(X))
    ridge = model
    while hasattr(ridge, "model_"):  # a search, or a linear part beside the kernel
        ridge = ridge.model_
    if isinstance(ridge, KernelRidgeClassifier):
        ridge = ridge.ridge_
    known = getattr(ridge, "marginals_", None) if isinstance(ridge, KernelRidge) else None
    if known is None:
        raise ValueError(
            f"{type(model).__name__} does not remember the distributions of its columns: pass the "
            "training rows (or a sample of them) as X"
        )
    return known


# --- tables --------------------------------------------------------------------------------------


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
        marginals = _marginals(model.model_, None if X is None else read(X))
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
    # A few digits more than float32 holds are rounding.
    shown = np.array([float(f"{x:.9g}") for x in column.mean + column.scale * rows[:, 0]])
    if rows.shape[1] > 1:
        shown[rows[:, 1] == 1.0] = np.nan
    return shown


def _share_of(value: float, values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    return float(weights[np.abs(values - value) < 1e-9].sum())
