"""What a model says of a table, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Predictions:
    """What a model says of a table.

    Attributes
    ----------
    n_rows : int
    columns : dict of str to ndarray of shape (n_rows,)
        Columns that are passed on ("name (given)" for those that have the name of a prediction);
        the prediction under the target's name; then "name std", "name=class", "name low" and
        "name high" where asked for.
    scores : dict of str to float, or None
        Where the table holds the target, how far the predictions are from it.
    """

    n_rows: int
    columns: dict[str, NDArray[Any]]
    scores: dict[str, float] | None


@dataclass(frozen=True)
class Answers:
    """Predictions; for classes also the labels and their probabilities.

    Attributes
    ----------
    predicted : ndarray of shape (n,)
    classes : ndarray of shape (n_classes,) or None
    chances : ndarray of shape (n, n_classes) or None
    """

    predicted: NDArray[Any]
    classes: NDArray[Any] | None = None
    chances: NDArray[np.float64] | None = None

    @classmethod
    def of_chances(cls, classes: NDArray[Any], chances: NDArray[np.float64]) -> Answers:
        """The likeliest classes."""
        return cls(classes[chances.argmax(axis=1)], classes, chances)

    @classmethod
    def of_model(cls, model: Any, X: Any) -> Answers:
        """What a fitted model says of rows."""
        if not hasattr(model, "predict_proba"):
            return cls(model.predict(X))
        return cls.of_chances(model.classes_, model.predict_proba(X))


def constant_answers(y: NDArray[Any], task: str, n_rows: int) -> Answers:
    """The mean, or the shares of the classes: what any model must beat."""
    if task == "regression":
        return Answers(np.full(n_rows, y.mean()))
    classes, counts = np.unique(y, return_counts=True)
    return Answers.of_chances(classes, np.tile(counts / counts.sum(), (n_rows, 1)))


def joined(parts: Sequence[Answers], classes: NDArray[Any] | None, order: NDArray[Any]) -> Answers:
    """Answers of several models, each for its own rows, in another order; of all these classes."""
    if classes is None:
        return Answers(np.concatenate([part.predicted for part in parts])[order])
    wide = []
    for part in parts:
        assert part.classes is not None
        assert part.chances is not None
        chances = np.zeros((len(part.chances), len(classes)))
        chances[:, np.searchsorted(classes, part.classes)] = part.chances
        wide.append(chances)
    return Answers.of_chances(classes, np.concatenate(wide)[order])


def as_given(values: NDArray[Any]) -> NDArray[Any]:
    """A column as it was in the table: whole numbers without a point, nothing where it is missing.

    Examples
    --------
    >>> as_given(np.array([1.0, np.nan])).tolist()
    [1, None]
    """
    if values.dtype.kind != "f":
        return values
    missing = np.isnan(values)
    whole = np.abs(values) < 2.0**53
    if (whole & (np.round(values) == values) | missing).all():
        values = np.where(missing, 0.0, values).astype(np.int64)
    if missing.any():
        values = values.astype(object)
        values[missing] = None
    return values
