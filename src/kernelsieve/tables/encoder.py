"""The table encoder: columns of numbers, times and texts become a matrix.

Numbers and times are standardised and clipped at 8 standard deviations; texts become 0/1 columns.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kernelsieve._state import (
    Persistent,
    PersistentEstimator,
    flag,
    instance,
    list_of,
    number,
    switch,
    text,
    texts,
    whole,
    wrong,
)
from kernelsieve.tables.table import Table, TableError, TableNotice, as_table, is_number, listed

CLIP = 8.0  # standard deviations
MOST_LEVELS = 1_000  # categories of a column with a 0/1 column of their own; the others share one
FEW_LEVELS = 50  # up to so many distinct texts are categories, however few rows there are
MOST_SPARSE_COLUMNS = 10_000_000
SPARSE_BELOW = 0.2  # share of nonzeros below which the matrix is sparse
OTHER = "(other)"
ABSENT = "(missing)"
LARGEST_NUMBER = float(np.finfo(np.float64).max)
FIRST_SECOND, LAST_SECOND = -62135596800, 253402300799  # of the years 1 and 9999


@dataclass(frozen=True)
class Scaled(Persistent):
    """A standardised column of numbers, or of times in seconds since 1970 (UTC).

    Attributes
    ----------
    name : str
    is_time : bool
    fill : float
        Replaces missing values: the median.
    mean, scale : float
        The mean and the standard deviation.
    """

    name: str
    is_time: bool
    fill: float
    mean: float
    scale: float

    _state_fields: ClassVar = {
        "name": text,
        "is_time": flag,
        "fill": number(-LARGEST_NUMBER, LARGEST_NUMBER),
        "mean": number(-LARGEST_NUMBER, LARGEST_NUMBER),
        "scale": number(5e-324, LARGEST_NUMBER),
    }

    def _complete(self) -> None:
        if self.is_time and not FIRST_SECOND <= self.fill <= LAST_SECOND:
            wrong("fill", f"is {self.fill:g} seconds since 1970, beyond the calendar")

    @property
    def labels(self) -> list[str]:
        """Names of the columns of the matrix."""
        return [self.name]


@dataclass(frozen=True)
class Levels(Persistent):
    """A column of categories, with a 0/1 column for each.

    Attributes
    ----------
    name : str
    levels : tuple of str
        The categories, "(other)" for the rare ones and "(missing)" where needed.
    fill : str
        Replaces missing values: "(missing)" if there were some in training, else the most frequent
        category.
    """

    name: str
    levels: tuple[str, ...]
    fill: str

    _state_fields: ClassVar = {"name": text, "levels": list_of(text, tuple), "fill": text}

    def _complete(self) -> None:
        if len(self.levels) > MOST_LEVELS + 2:
            wrong("levels", f"are {len(self.levels):,}, more than {MOST_LEVELS + 2:,}")
        if self.fill not in self.levels:
            wrong("fill", "is not one of the levels")

    @property
    def labels(self) -> list[str]:
        """Names of the columns of the matrix."""
        return [f"{self.name}={level}" for level in self.levels]


class TableEncoder(PersistentEstimator):
    """Encode a table as a matrix, and later tables with the same columns in the same way.

    A TableNotice (a warning) tells the user about missing values that were filled in, columns that
    were ignored, and categories not seen in training.

    Parameters
    ----------
    drop : sequence of str
        Columns to ignore.
    strict : bool, default False
        Raise a TableError in place of every notice.
    keep : sequence of str
        Columns to use even if they look like identifiers.

    Attributes
    ----------
    columns_ : list of Scaled and Levels
        How each column is encoded.
    ignored_ : list of str
        Columns that are not used: identifiers, constants and empty columns.
    matrix_columns_ : int
        The number of columns of a sparse matrix, which are not changed.
    sparse_ : bool
        Whether the result is a CSR array.

    Examples
    --------
    >>> flats = {"size": [50.0, 70.0, 60.0], "town": ["Ulm", "Bonn", "Ulm"]}
    >>> encoder = TableEncoder().fit(flats)
    >>> encoder.get_feature_names_out().tolist()
    ['size', 'town=Bonn', 'town=Ulm']
    >>> encoder.transform(flats).round(2).tolist()
    [[-1.22, 0.0, 1.0], [1.22, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    _state_parameters: ClassVar = {"drop": texts, "strict": switch, "keep": texts}
    _state_fields: ClassVar = {
        "columns_": list_of(instance(Scaled, Levels)),
        "ignored_": list_of(text),
        "matrix_columns_": whole(0, 2**31),
        "sparse_": flag,
    }

    def _complete(self) -> None:
        if self.matrix_columns_ and not self.sparse_:
            wrong("sparse_", "is false, and the table has sparse columns")

    def __init__(
        self, drop: Sequence[str] = (), strict: bool = False, keep: Sequence[str] = ()
    ) -> None:
        self.drop = drop
        self.strict = strict
        self.keep = keep

    def fit(self, table: Any, y: Any = None) -> Self:
        """Learn how to encode each column.

        Parameters
        ----------
        table : Table, path, frame or mapping of columns
        y : ignored

        Returns
        -------
        self
        """
        table = as_table(table)
        if table.n_rows == 0:
            raise TableError(f"{table.where} has no rows")
        for name in (*self.drop, *self.keep):
            table.column(name)
        self.columns_: list[Scaled | Levels] = []
        self.ignored_: list[str] = []
        for name, values in table.columns.items():
            if name not in self.drop:
                column = self._learn(table, name, values)
                if column is None:
                    self.ignored_.append(name)
                else:
                    self.columns_.append(column)
        self.matrix_columns_ = 0 if table.matrix is None else int(table.matrix.shape[1])
        if self.matrix_columns_ > MOST_SPARSE_COLUMNS:
            raise TableError(
                f"{table.where} has {self.matrix_columns_:,} sparse columns, and the limit is "
                f"{MOST_SPARSE_COLUMNS:,}: renumber the columns that occur, starting from 1"
            )
        if self.width == 0:
            raise TableError(
                f"{table.where} has no column to learn from: {listed(table.columns)} "
                f"{'is' if len(table.columns) == 1 else 'are'} the target or ignored"
            )
        self.sparse_ = self.matrix_columns_ > 0 or len(self.columns_) < SPARSE_BELOW * self.width
        return self

    @property
    def width(self) -> int:
        """The number of columns of the matrix."""
        return sum(len(column.labels) for column in self.columns_) + self.matrix_columns_

    def _learn(self, table: Table, name: str, values: NDArray[Any]) -> Scaled | Levels | None:
        times = None if values.dtype.kind == "f" else as_times(values)
        if values.dtype.kind == "f" or times is not None:
            return self._scaled(table, name, values if times is None else times, times is not None)
        present = [value for value in values.tolist() if value is not None]
        levels, counts = np.unique(np.array(present, dtype=str), return_counts=True)
        if len(levels) < 2 and len(present) == table.n_rows:
            self._note(f"column {name!r} is always {listed(levels.tolist())}; ignored", table)
            return None
        if len(levels) > max(FEW_LEVELS, len(present) // 2) and name not in self.keep:
            every = "every value is unique"
            if len(levels) < table.n_rows:
                every = f"{len(levels):,} distinct values in {table.n_rows:,} rows"
            self._note_identifier(table, name, every)
            return None
        kept = levels[np.sort(np.argsort(-counts, kind="stable")[:MOST_LEVELS])].tolist()
        extra = {OTHER: len(kept) < len(levels), ABSENT: len(present) < table.n_rows}
        kept += [level for level, needed in extra.items() if needed and level not in kept]
        fill = ABSENT if extra[ABSENT] else str(levels[counts.argmax()])
        return Levels(name, tuple(kept), fill)

    def _scaled(
        self, table: Table, name: str, values: NDArray[np.float64], is_time: bool
    ) -> Scaled | None:
        self._refuse_infinite(table, name, values)
        present = values[~np.isnan(values)]
        if len(present) == 0:
            self._note(f"column {name!r} is empty; ignored", table)
            return None
        if not is_time and name not in self.keep and counts_rows(values):
            self._note_identifier(table, name, "unique whole numbers that count the rows")
            return None
        # Divide by a power of two near the largest value: squares of raw values could overflow.
        peak = float(2.0 ** (np.frexp(np.abs(present).max())[1] - 1))
        if present.min() == present.max():
            self._note(f"column {name!r} is always {present[0]:g}; ignored", table)
            return None
        mean, scale = peak * float(np.mean(present / peak)), peak * float(np.std(present / peak))
        return Scaled(name, is_time, float(np.median(present)), mean, scale)

    def _note_identifier(self, table: Table, name: str, why: str) -> None:
        self._note(
            f"column {name!r} looks like an identifier ({why}); ignored. Use --keep {name} to "
            "include it",
            table,
        )

    def transform(self, table: Any) -> Any:
        """Encode a table.

        Parameters
        ----------
        table : Table, path, frame or mapping of columns
            With at least the columns of the training table; their order does not matter.

        Returns
        -------
        X : ndarray or CSR array of shape (n_rows, width)
            Sparse if most of it is zero.
        """
        check_is_fitted(self)
        table = as_table(table)
        if table.n_rows == 0:
            raise TableError(f"{table.where} has no rows")
        self._check_columns(table)
        return self._sparse(table) if self.sparse_ else self._dense(table)

    def _dense(self, table: Table) -> NDArray[np.float64]:
        X, start = np.zeros((table.n_rows, self.width)), 0
        for column in self.columns_:
            if isinstance(column, Scaled):
                X[:, start] = self._numbers(table, column)
            else:
                places = self._places(table, column)
                there = np.flatnonzero(places >= 0)
                X[there, start + places[there]] = 1.0
            start += len(column.labels)
        return X

    def _sparse(self, table: Table) -> sp.csr_array:
        parts: list[Any] = []
        for column in self.columns_:
            shape = (table.n_rows, len(column.labels))
            if isinstance(column, Scaled):
                parts.append(sp.csr_array(self._numbers(table, column)[:, None]))
            else:
                places = self._places(table, column)
                there = np.flatnonzero(places >= 0)
                entries = (np.ones(len(there)), (there, places[there]))
                parts.append(sp.csr_array(entries, shape=shape))
        parts += [self._matrix(table)] if self.matrix_columns_ else []
        X = sp.csr_array(sp.hstack(parts, format="csr"))
        X.eliminate_zeros()
        return X

    def _check_columns(self, table: Table) -> None:
        absent = [column.name for column in self.columns_ if column.name not in table.columns]
        if absent:
            raise TableError(
                f"{table.where} lacks {_plural(len(absent), 'column')} of the training table: "
                f"{listed(absent)}; it has {listed(table.columns)}"
            )
        width = 0 if table.matrix is None else table.matrix.shape[1]
        if width > self.matrix_columns_ or (self.matrix_columns_ and table.matrix is None):
            raise TableError(
                f"{table.where} has {width:,} sparse columns, and the training table had "
                f"{self.matrix_columns_:,}"
            )

    def _matrix(self, table: Table) -> Any:
        """The sparse columns, as many as in training: a LIBSVM file ends with its last nonzero."""
        if table.matrix is None or table.matrix.shape[1] == self.matrix_columns_:
            return table.matrix
        matrix = table.matrix.copy()
        matrix.resize((table.n_rows, self.matrix_columns_))
        return matrix

    def _numbers(self, table: Table, column: Scaled) -> NDArray[np.float64]:
        values = table.columns[column.name]
        if column.is_time and values.dtype.kind == "O":
            values = _times(values, table, column.name)
        elif column.is_time and not np.isnan(values).all():
            raise TableError(
                f"{table.where}: column {column.name!r} holds numbers, and in training it held "
                "times"
            )
        elif values.dtype.kind == "O":
            values = self._from_texts(table, column.name, values)
        self._refuse_infinite(table, column.name, values)
        missing = np.isnan(values)
        if missing.any():
            fill = _time_text(column.fill) if column.is_time else f"{column.fill:g}"
            count = _plural(int(missing.sum()), "missing value")
            self._note(f"column {column.name!r}: {count} replaced by the median, {fill}", table)
            values = np.where(missing, column.fill, values)
        with np.errstate(over="ignore"):
            return np.clip((values - column.mean) / column.scale, -CLIP, CLIP)

    def _from_texts(self, table: Table, name: str, values: NDArray[Any]) -> NDArray[np.float64]:
        """Convert numbers that are stored as texts."""
        for row, value in enumerate(values.tolist()):
            if value is not None and not is_number(value):
                raise TableError(
                    f"{table.where}: column {name!r} is {_short(value)} in row {row + 1}, and in "
                    "training it held numbers"
                )
        return np.array([np.nan if value is None else float(value) for value in values.tolist()])

    def _places(self, table: Table, column: Levels) -> NDArray[np.int64]:
        """The 0/1 column of every row, or -1."""
        values = table.columns[column.name]
        if values.dtype.kind == "f":  # categories that all look like numbers here
            values = np.array([None if np.isnan(v) else f"{v:g}" for v in values], dtype=object)
        known = {level: place for place, level in enumerate(column.levels)}
        other, fill = known.get(OTHER, -1), known[column.fill]
        found = np.array(
            [fill if v is None else known.get(v, other) for v in values.tolist()], dtype=np.int64
        )
        missing = sum(v is None for v in values.tolist())
        if missing and column.fill != ABSENT:
            self._note(
                f"column {column.name!r}: {_plural(missing, 'missing value')} replaced by the most "
                f"frequent category, {_short(column.fill)}; there were none in training",
                table,
            )
        elif missing and self.strict:
            self._note(f"column {column.name!r}: {_plural(missing, 'missing value')}", table)
        unseen = [v for v in values.tolist() if v is not None and v not in known]
        if unseen and other < 0:
            self._note(
                f"column {column.name!r}: {_plural(len(unseen), 'row')} with categories not seen "
                f"in training, for example {_short(unseen[0])}",
                table,
            )
        return found

    def _refuse_infinite(self, table: Table, name: str, values: NDArray[np.float64]) -> None:
        bad = np.flatnonzero(np.isinf(values))
        if bad.size:
            raise TableError(
                f"{table.where}: column {name!r} is {values[bad[0]]} in row {bad[0] + 1}: replace "
                "it by a finite number, or leave it empty"
            )

    def _note(self, notice: str, table: Table) -> None:
        """Warn, or raise if strict."""
        if self.strict:
            raise TableError(f"{table.where}: {notice} (strict mode)")
        warnings.warn(notice, TableNotice, stacklevel=3)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Name the columns of the matrix.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        names : ndarray of str, of shape (width,)
        """
        names = [label for column in self.columns_ for label in column.labels]
        names += [f"x{i + 1}" for i in range(self.matrix_columns_)]  # as LIBSVM counts
        return np.array(names, dtype=object)


def counts_rows(values: NDArray[np.float64]) -> bool:
    """Whether numbers look like the numbers of rows: whole, unique, and rising or close together.

    Examples
    --------
    >>> counts_rows(np.arange(100.0)), counts_rows(np.arange(100.0) ** 0.5)
    (True, False)
    """
    if len(values) <= FEW_LEVELS or np.isnan(values).any() or (values != np.round(values)).any():
        return False
    steps = np.diff(values)
    if (steps > 0).all():
        return True
    close = values.max() - values.min() <= 3 * len(values)
    return bool(close and len(np.unique(values)) == len(values))


def as_times(values: NDArray[Any]) -> NDArray[np.float64] | None:
    """Convert texts to seconds since 1970, or return None unless all are ISO 8601 times."""
    seconds = [_seconds(value) for value in values.tolist()]
    known = [s for s, value in zip(seconds, values.tolist(), strict=True) if value is not None]
    if not known or any(s is None for s in known):
        return None
    return np.array([np.nan if s is None else s for s in seconds])


def _times(values: NDArray[Any], table: Table, name: str) -> NDArray[np.float64]:
    found = as_times(values)
    if found is None:
        wrong = next(
            (i for i, v in enumerate(values) if v is not None and _seconds(v) is None), None
        )
        if wrong is None:
            return np.full(len(values), np.nan)
        raise TableError(
            f"{table.where}: column {name!r} is {_short(values[wrong])} in row {wrong + 1}, and in "
            "training it held times"
        )
    return found


def _seconds(text: str | None) -> float | None:
    if text is None or len(text) < 8 or not text[0].isdigit() or "-" not in text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _time_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(" ", "seconds").removesuffix("+00:00")


def _short(value: Any) -> str:
    text = repr(str(value))
    return text if len(text) <= 40 else f"{text[:36]}...'"


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
