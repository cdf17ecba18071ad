"""The distribution of each column, in some hundred values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._random import keyed_rows
from kernelsieve._state import INT64, Persistent, array, wrong
from kernelsieve.sources.base import Source

MOST_VALUES = 256  # of a column
FEWEST_VALUES = 16  # with less room than this for each column, nothing is kept
MOST_ENTRIES = 2**16  # of all columns: half a megabyte for each of values and weights
SAMPLED_ROWS = 10_000


@dataclass(frozen=True)
class Marginals(Persistent):
    """A few values of each column with their shares of the rows.

    A column with few distinct values has all of them; of others, the medians of groups of equally
    many rows are kept. A missing value (NaN) comes last.

    Attributes
    ----------
    values, weights : ndarray of shape (n_entries,)
        Column after column; the weights of each column sum to 1.
    ends : ndarray of shape (d,)
        Where the entries of each column end.

    Examples
    --------
    >>> import numpy as np
    >>> Marginals.of_rows(np.array([[1.0, 5.0], [3.0, 5.0], [3.0, 5.0]])).column(0)
    (array([1., 3.]), array([0.33333333, 0.66666667]))
    """

    values: NDArray[np.float64]
    weights: NDArray[np.float64]
    ends: NDArray[np.int64]

    _state_fields: ClassVar = {
        "values": array("entries", finite=False),
        "weights": array("entries"),
        "ends": array("d", dtype=INT64, low=1),
    }

    def _complete(self) -> None:
        if (np.diff(self.ends, prepend=0) < 1).any() or self.ends[-1:].sum() != len(self.values):
            wrong("ends", "do not divide the values into columns")
        if (self.weights <= 0).any() or np.isinf(self.values).any():
            wrong("weights", "are not positive, or a value is infinite")

    @classmethod
    def of_rows(cls, X: Any, most: int | None = None) -> Marginals:
        """The marginals of the rows of X.

        Parameters
        ----------
        X : {ndarray, CSR} of shape (n, d)
        most : int, optional
            The most values of a column; None takes up to 256, fewer for many columns.
        """
        if most is None:
            most = min(MOST_VALUES, max(FEWEST_VALUES, MOST_ENTRIES // max(1, X.shape[1])))
        X = sp.csc_array(X) if sp.issparse(X) else X
        columns = [_few_values(_column(X, i), most) for i in range(X.shape[1])]
        return cls(
            np.concatenate([values for values, _ in columns]),
            np.concatenate([weights for _, weights in columns]),
            np.cumsum([len(values) for values, _ in columns]),
        )

    def column(self, i: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Values and weights of column i."""
        start = 0 if i == 0 else self.ends[i - 1]
        return self.values[start : self.ends[i]], self.weights[start : self.ends[i]]

    @property
    def n_columns(self) -> int:
        """The number of columns."""
        return len(self.ends)


def sampled_rows(source: Source) -> NDArray[np.int64]:
    """The numbers of the rows that stand for a source's distribution; none for too many columns."""
    n_rows, n_columns = source.shape
    if n_columns > MOST_ENTRIES // FEWEST_VALUES:
        return np.empty(0, dtype=np.int64)
    return keyed_rows(n_rows, SAMPLED_ROWS, 0, "marginals")


def _column(X: Any, i: int) -> NDArray[Any]:
    return X[:, [i]].toarray()[:, 0] if sp.issparse(X) else X[:, i]


def _few_values(column: NDArray[Any], most: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """At most ``most`` values of a column (one more for a missing one), and their shares."""
    known = np.sort(column[~np.isnan(column)])
    starts = np.flatnonzero(np.append(True, known[1:] != known[:-1])[: len(known)])
    values, counts = known[starts], np.diff(starts, append=len(known))
    if len(values) > most:
        bounds = np.linspace(0, len(known), most + 1).astype(np.int64)
        middles = known[(bounds[:-1] + bounds[1:] - 1) // 2]
        values, places = np.unique(middles, return_inverse=True)
        counts = np.bincount(places, weights=np.diff(bounds))
    if len(known) < len(column):
        values = np.append(values, np.nan)
        counts = np.append(counts, len(column) - len(known))
    return values.astype(np.float64), counts / len(column)
