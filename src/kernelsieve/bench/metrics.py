"""How wrong predictions are: one number to compare by, and those that people know."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

NAMES = {"rmse": "RMSE", "log_loss": "log loss", "auc_loss": "1 - AUC"}


def metric_of(n_classes: int) -> str:
    """What methods are compared by: RMSE, 1 - AUC for two classes, log loss for more.

    Examples
    --------
    >>> [metric_of(n) for n in (0, 2, 3)]
    ['rmse', 'auc_loss', 'log_loss']
    """
    return "rmse" if n_classes == 0 else "auc_loss" if n_classes == 2 else "log_loss"


def predictions(model: Any, X: Any, n_classes: int) -> NDArray[np.float64]:
    """Predicted numbers, or the probability of every class in a column of its own."""
    if n_classes == 0:
        return np.asarray(model.predict(X), dtype=np.float64).ravel()
    found = np.asarray(model.predict_proba(X), dtype=np.float64)
    chances = np.zeros((X.shape[0], n_classes))
    # A class without training rows has no column in the model.
    classes = np.asarray(getattr(model, "classes_", np.arange(n_classes)), dtype=np.int64)
    chances[:, classes] = found
    return chances


def errors(predicted: NDArray[np.float64], y: NDArray[Any], n_classes: int) -> dict[str, float]:
    """RMSE and R2 of numbers; accuracy, log loss and 1 - AUC (one class against the rest) of
    classes.

    Raises
    ------
    ValueError
        If predictions are not finite.
    """
    if not np.isfinite(predicted).all():
        raise ValueError("predictions are not finite")
    if n_classes == 0:
        error = float(np.sqrt(np.mean((predicted - y) ** 2)))
        spread = float(np.std(y))
        return {"rmse": error, "r2": 1.0 - (error / spread) ** 2 if spread > 0 else 0.0}
    chances = np.clip(predicted, 1e-12, None)
    chances /= chances.sum(axis=1, keepdims=True)
    present = np.unique(y)
    areas = [area_under_curve(predicted[:, label], y == label) for label in present]
    return {
        "accuracy": float(np.mean(predicted.argmax(axis=1) == y)),
        "log_loss": float(-np.mean(np.log(chances[np.arange(len(y)), y]))),
        "auc_loss": 1.0 - float(np.mean(areas)) if len(present) > 1 else 0.5,
    }


def area_under_curve(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """The chance that a positive row has a higher score than another one; a tie counts half.

    Examples
    --------
    >>> area_under_curve(np.array([0.1, 0.4, 0.4, 0.8]), np.array([False, False, True, True]))
    0.875
    """
    count = int(positive.sum())
    others = len(positive) - count
    if not count or not others:
        return 0.5
    ranks = float(rankdata(scores)[positive].sum())
    return (ranks - count * (count + 1) / 2) / (count * others)
