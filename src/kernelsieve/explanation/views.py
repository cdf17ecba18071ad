"""How a model's user sees its rows: names, units and distributions of columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from kernelsieve._validation import canonical_rows, check_sparse
from kernelsieve.explanation.sums import Input, innermost
from kernelsieve.learning.target_transform import target_label
from kernelsieve.sources.given import given_source
from kernelsieve.sources.marginals import Marginals, sampled_rows

Groups = list[tuple[str, tuple[int, ...]]]  # names of the user's columns, and their places

SOME_ROWS = 1000  # of sparse ones that are made dense

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
    classes : ndarray or None
        The labels of a classifier.
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
        classes: Any = None,
        groups: Groups,
    ) -> None:
        self.model, self.read, self.show, self.inputs = model, read, show, inputs
        self.title, self.target, self.reason, self.groups = title, target, reason, groups
        self.classes = None if classes is None else np.asarray(classes)

    def some_rows(self, X: Any) -> NDArray[np.float64]:
        """Rows of ``model``, a sample of many."""
        source = given_source(X)
        if source is not None:
            return self.read(source[sampled_rows(source)])
        return self.read(X[:SOME_ROWS] if sp.issparse(X) else X)


def view_of(model: Any, X: Any, names: Sequence[str] | None) -> View:
    """How a model's user sees its rows."""
    if hasattr(model, "explanation_view"):
        return model.explanation_view(X)
    if isinstance(model, Pipeline):
        return _pipeline_view(model, X, names)
    return _plain_view(model, X, names)


def _plain_view(model: Any, X: Any, names: Sequence[str] | None) -> View:
    d = int(model.n_features_in_)
    known = _names(model, names, d)

    def inputs() -> list[Input]:
        marginals = marginals_of(model, X)
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
        marginals = marginals_of(last, None if X is None else read(_sample(X)))
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


def _headings(model: Any) -> dict[str, Any]:
    """The title of a model, the name of what is explained, and the classes if there are any."""
    target, name = target_label(model), type(model).__name__
    title = f"{name} of {target}" if target else name
    return {"title": title, "target": target, "classes": getattr(model, "classes_", None)}


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


def marginals_of(model: Any, X: Any) -> Marginals:
    """The distributions of the columns: those of X, or those that the model remembers."""
    if X is not None:
        return Marginals.of_rows(_sample(X))
    known = getattr(innermost(model), "marginals_", None)
    if known is None:
        raise ValueError(
            f"{type(model).__name__} does not remember the distributions of its columns: pass the "
            "training rows (or a sample of them) as X"
        )
    return known
