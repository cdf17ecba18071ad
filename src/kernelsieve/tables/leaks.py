"""Columns that give the target away: copies of it, and what is known only after it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from kernelsieve.tables.table import Table, is_missing, notice

NEARLY = 0.999  # of the ranks' correlation, of the rows, or of the variance
LEAST_ROWS = 20  # in which a column is present
MOST_ROWS = 20_000  # that are looked at
ROWS_PER_LEVEL = 5  # at least, on average: each of a few rows is explained by its own category


def note_leaks(table: Table, target: str, y: NDArray[Any], task: str, used: list[str]) -> None:
    """Warn about columns that alone nearly determine the target.

    Parameters
    ----------
    table : Table
    target : str
    y : ndarray of shape (n_rows,)
        The numbers or the labels.
    task : "regression" or "classification"
    used : list of str
        The columns that a model learns from; a single one is not called a leak.
    """
    rows = np.unique(np.linspace(0, len(y) - 1, min(len(y), MOST_ROWS)).astype(np.int64))
    for name in used if len(used) > 1 else []:
        if determines(table.column(name)[rows], y[rows], task):
            notice(
                f"possible leakage: column {name!r} alone nearly determines the target {target!r}; "
                f"if it is not known at prediction time, use drop=[{name!r}]"
            )


def determines(values: NDArray[Any], y: NDArray[Any], task: str) -> bool:
    """Whether a column, or where it is missing, nearly determines a target.

    Examples
    --------
    >>> x = np.arange(1.0, 31.0)
    >>> determines(x, np.log(x), "regression"), determines(x, x % 7, "regression")
    (True, False)
    """
    missing = is_missing(values)
    if 0 < missing.sum() < len(values) and _by_levels(missing, y, task):
        return True
    if values.dtype.kind == "f":
        present = ~missing
        if present.sum() < max(LEAST_ROWS, len(y) / 2):
            return False
        if task == "regression":
            return _by_order(values[present], y[present])
        classes = np.unique(y)
        if len(classes) == 2 and _separates(values[present], y[present] == classes[1]):
            return True
    texts = np.where(missing, "", values.astype(str))
    return _by_levels(texts, y, task)


def _by_order(values: NDArray[np.float64], y: NDArray[np.float64]) -> bool:
    """Whether the target rises, or falls, with the column."""
    if len(np.unique(values)) < LEAST_ROWS or len(np.unique(y)) < LEAST_ROWS:
        return False
    return bool(abs(np.corrcoef(rankdata(values), rankdata(y))[0, 1]) >= NEARLY)


def _separates(values: NDArray[np.float64], second: NDArray[np.bool_]) -> bool:
    """Whether nearly all rows of one class have larger values than those of the other."""
    m, n = int(second.sum()), int((~second).sum())
    if min(m, n) < 2:
        return False
    area = (rankdata(values)[second].sum() - m * (m + 1) / 2) / (m * n)
    return bool(max(area, 1 - area) >= NEARLY)


def _by_levels(levels: NDArray[Any], y: NDArray[Any], task: str) -> bool:
    """Whether the target hardly varies within the categories."""
    names, places = np.unique(levels, return_inverse=True)
    if ROWS_PER_LEVEL * len(names) > len(y):
        return False
    if task == "regression":
        counts = np.bincount(places)
        centred = y - y.mean()
        between = np.square(np.bincount(places, centred)) / counts
        return bool(between.sum() >= NEARLY * np.square(centred).sum())
    classes, labels = np.unique(y, return_inverse=True)
    table = np.zeros((len(names), len(classes)), dtype=np.int64)
    np.add.at(table, (places, labels), 1)
    wrong = len(y) - table.max(axis=1).sum()
    others = len(y) - table.sum(axis=0).max()
    return bool(wrong <= (1 - NEARLY) * len(y) and wrong <= others / 20)
