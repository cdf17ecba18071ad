"""Columns that say the same are one column: apart, their effects could cancel in any way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.stats import rankdata

from kernelsieve.explanation.sums import Input

Array = NDArray[np.float64]

MOST_ROWS = 1000  # that are compared
FEWEST_ROWS = 30
MOST_INPUTS = 256  # each is compared with each
SAME = 0.99  # correlation of the ranks of two columns


def same_inputs(inputs: Sequence[Input], rows: Any, active: NDArray[np.int64]) -> list[list[int]]:
    """Groups of inputs that say the same, each in ascending order; of those that take part.

    Numbers say the same if the order of the rows by one is that by the other, up or down; levels if
    each level of one goes with a level of the other.

    Parameters
    ----------
    inputs : sequence of Input
    rows : {ndarray, CSR} of shape (n, d)
        Rows of the model.
    active : ndarray of int
        The columns of the model that take part.
    """
    used = set(active.tolist())
    numbers = [k for k, one in enumerate(inputs) if used.intersection(one.columns)]
    if rows is None or rows.shape[0] < FEWEST_ROWS or len(numbers) > MOST_INPUTS:
        return []
    rows = some_rows(rows)
    codes = np.stack([_code(inputs[k], rows) for k in numbers])
    centred = codes - codes.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(centred, axis=1)
    scaled = centred / np.where(lengths > 0, lengths, 1.0)[:, None]
    close = np.abs(scaled @ scaled.T) >= SAME
    groups: list[list[int]] = []
    for place, k in enumerate(numbers):
        for group in groups:
            first = group[0]
            if close[place, numbers.index(first)] and inputs[k].is_text == inputs[first].is_text:
                group.append(k)
                break
        else:
            groups.append([k])
    return [group for group in groups if len(group) > 1]


def merged(first: Input, others: Sequence[Input], rows: Any) -> Input:
    """One input of the columns of several: its values are those of the first.

    A number of another column is the one that as many rows lie below; a level is that of a row with
    the level of the first.
    """
    match = _same_level if first.is_text else _same_rank
    parts = [first.values, *(match(first, one, rows) for one in others)]
    columns = tuple(c for one in (first, *others) for c in one.columns)
    return replace(first, columns=columns, values=np.concatenate(parts, axis=1))


def _same_rank(first: Input, other: Input, rows: Any) -> Array:
    some = some_rows(rows)
    ranks = [rankdata(some[:, one.columns[0]]) for one in (first, other)]
    falling = float(np.dot(ranks[0] - ranks[0].mean(), ranks[1] - ranks[1].mean())) < 0
    below = np.cumsum(first.weights) - 0.5 * first.weights
    if falling:
        below = 1.0 - below
    places = np.searchsorted(np.cumsum(other.weights), below)
    return other.values[np.minimum(places, len(other.weights) - 1)]


def _same_level(first: Input, other: Input, rows: Any) -> Array:
    some = some_rows(rows)
    own = some[:, list(first.columns)]
    nearest = np.square(first.values[:, None, :] - own[None, :, :]).sum(axis=2).argmin(axis=1)
    return some[nearest][:, list(other.columns)]


def some_rows(rows: Any) -> Array:
    """At most a thousand of them, dense."""
    chosen = np.unique(np.linspace(0, rows.shape[0] - 1, MOST_ROWS).astype(int))
    rows = rows[chosen]
    return np.asarray(rows.toarray() if sp.issparse(rows) else rows, dtype=np.float64)


def _code(one: Input, rows: Array) -> Array:
    """A number for each row: its rank, or that of its level in the order of appearance."""
    values = rows[:, list(one.columns)]
    if not one.is_text:
        # A column with missing values is compared with nothing.
        return np.zeros(len(values)) if np.isnan(values).any() else rankdata(values[:, 0])
    _, first, places = np.unique(values, axis=0, return_index=True, return_inverse=True)
    return rankdata(first)[places.reshape(-1)]
