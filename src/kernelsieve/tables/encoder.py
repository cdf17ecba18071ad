"""The table encoder: columns of numbers, times and texts become a matrix.

Numbers and times are standardised and clipped at 8 standard deviations; texts become 0/1 columns,
or, if there are many categories and the target is known, the mean of the target in each.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kernelsieve._random import stream
from kernelsieve._state import (
    PersistentEstimator,
    flag,
    instance,
    list_of,
    plain,
    switch,
    texts,
    whole,
    wrong,
)
from kernelsieve.tables.columns import (
    ABSENT,
    MOST_LEVELS,
    OTHER,
    Levels,
    Scaled,
    as_times,
    level_means,
    means_of,
    scaled,
    seconds_of,
    standardised,
    time_part,
    time_parts,
    time_text,
)
from kernelsieve.tables.table import Table, TableError, TableNotice, as_table, is_number, listed
from kernelsieve.tables.texts import may_be_dates

CLIP = 8.0  # standard deviations
MEANS_ABOVE = 20  # categories: with more, the mean of the target stands for each
MOST_MEANS = 5  # outputs that means are taken of
FOLDS = 5  # of the rows: the means of a training row come from the other folds
FEW_LEVELS = 50  # up to so many distinct texts are categories, however few rows there are
MOST_SPARSE_COLUMNS = 10_000_000
SPARSE_BELOW = 0.2  # share of nonzeros below which a wide matrix is sparse
WIDE = 200  # columns of the matrix
DATES_LOOKED_AT = 200
MOST_NOTES = 3  # on missing values; more columns share one
FEWEST_ABSENT, ABSENT_SHARE = 10, 0.01  # missing values from which on a column says where they are
# Names of columns that number the rows of a table, or of another one.
IDENTIFIER = re.compile(
    r"(row[ _.]?(names?|id|no|nr|num|number)|index|unnamed: \d+|id|uuid|guid|key"
    r"|.*[ _.-](id|uuid|guid|key))", re.IGNORECASE
)  # fmt: skip
MOSTLY_DISTINCT = 0.9


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
    ignored_ : dict of str to str
        Columns that are not used (identifiers, constants and empty columns), and why.
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
        "ignored_": plain(dict),
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
        y : ndarray of shape (n_rows,) or (n_rows, n_outputs), optional
            Numbers to predict. With them, columns of more than 20 categories become means of the
            target; without them, 0/1 columns.

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
        self.ignored_: dict[str, str] = {}
        times: dict[str, NDArray[np.float64]] = {}
        outputs = None if y is None else standardised(y, table.n_rows)
        for name, values in table.columns.items():
            if name not in self.drop:
                column = self._learn(table, name, values, outputs, times)
                self.columns_ += [] if column is None else [column]
        self.columns_ += time_parts(times)
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
        filled = len(self.columns_) < SPARSE_BELOW * self.width and self.width > WIDE
        self.sparse_ = self.matrix_columns_ > 0 or filled
        return self

    def fit_transform(self, table: Any, y: Any = None, seed: int = 0) -> Any:
        """Learn how to encode a table, and encode it.

        Means of the target in the categories are those of other rows: with its own target among
        its inputs, a model would trust them too much.

        Parameters
        ----------
        table : Table, path, frame or mapping of columns
        y : ndarray of shape (n_rows,) or (n_rows, n_outputs), optional
        seed : int, default 0
            Deals the rows into five folds.

        Returns
        -------
        X : ndarray or CSR array of shape (n_rows, width)
        """
        table = as_table(table)
        X = self.fit(table, y).transform(table)
        if y is None or sp.issparse(X):
            return X
        outputs = standardised(y, table.n_rows)
        folds = stream(seed, "folds of means").permutation(table.n_rows) % FOLDS
        start = 0
        for column in self.columns_:
            if isinstance(column, Levels) and column.means:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", TableNotice)  # transform gave them
                    places = self._places(table, column)
                for fold in range(FOLDS):
                    inside, outside = folds == fold, folds != fold
                    means = level_means(places[outside], outputs[outside], len(column.levels))
                    X[inside, start : start + outputs.shape[1]] = means[places[inside]]
            start += len(column.labels)
        return X

    @property
    def width(self) -> int:
        """The number of columns of the matrix."""
        return sum(len(column.labels) for column in self.columns_) + self.matrix_columns_

    @property
    def sources(self) -> list[str]:
        """The columns of the table that are used, in its order."""
        return list(dict.fromkeys(name for column in self.columns_ for name in column.sources))

    def _learn(
        self,
        table: Table,
        name: str,
        values: NDArray[Any],
        outputs: NDArray[np.float64] | None,
        times: dict[str, NDArray[np.float64]],
    ) -> Scaled | Levels | None:
        seconds = None if values.dtype.kind == "f" else as_times(values)
        if values.dtype.kind == "f" or seconds is not None:
            column = self._scaled(
                table, name, values if seconds is None else seconds, seconds is not None
            )
            if seconds is not None and column is not None:
                times[name] = seconds
            return column
        present = [value for value in values.tolist() if value is not None]
        levels, counts = np.unique(np.array(present, dtype=str), return_counts=True)
        if len(levels) < 2 and len(present) == table.n_rows:
            self._ignore(table, name, f"is always {listed(levels.tolist())}")
            return None
        if len(levels) > max(FEW_LEVELS, len(present) // 2) and name not in self.keep:
            every = "every value is unique"
            if len(levels) < table.n_rows:
                every = f"{len(levels):,} distinct values in {table.n_rows:,} rows"
            if may_be_dates(levels[:DATES_LOOKED_AT].tolist()):
                every += "; are these dates, in several formats?"
            self._ignore_identifier(table, name, every)
            return None
        kept = levels[np.sort(np.argsort(-counts, kind="stable")[:MOST_LEVELS])].tolist()
        extra = {OTHER: len(kept) < len(levels), ABSENT: len(present) < table.n_rows}
        if extra[OTHER]:
            rare = len(levels) - len(kept)
            self._note(f"column {name!r}: the {rare:,} rarest of {len(levels):,} categories share "
                       f"one, {OTHER}", table)  # fmt: skip
        kept += [level for level, needed in extra.items() if needed and level not in kept]
        fill = ABSENT if extra[ABSENT] else str(levels[counts.argmax()])
        found = Levels(name, tuple(kept), fill)
        if outputs is None or len(kept) <= MEANS_ABOVE or outputs.shape[1] > MOST_MEANS:
            return found
        means = level_means(self._places(table, found), outputs, len(kept))
        return replace(found, means=tuple(map(tuple, means[:-1].tolist())))

    def _scaled(
        self, table: Table, name: str, values: NDArray[np.float64], is_time: bool
    ) -> Scaled | None:
        self._refuse_infinite(table, name, values)
        present = values[~np.isnan(values)]
        if len(present) == 0:
            self._ignore(table, name, "is empty")
            return None
        if not is_time and name not in self.keep and counts_rows(values):
            self._ignore_identifier(table, name, "unique whole numbers that count the rows")
            return None
        if not is_time and name not in self.keep and named_as_identifier(name, present):
            self._ignore_identifier(
                table, name, "its name, and whole numbers that nearly all differ"
            )
            return None
        if present.min() == present.max():
            self._ignore(table, name, f"is always {present[0]:g}")
            return None
        absent = len(values) - len(present)
        told = absent >= max(FEWEST_ABSENT, ABSENT_SHARE * len(values))
        return scaled(name, present, is_time, missing=told)

    def _ignore(self, table: Table, name: str, why: str) -> None:
        self.ignored_[name] = why
        self._note(f"column {name!r} {why}; ignored", table)

    def _ignore_identifier(self, table: Table, name: str, why: str) -> None:
        self.ignored_[name] = f"looks like an identifier ({why})"
        self._note(
            f"column {name!r} looks like an identifier ({why}); ignored. Use "
            f"keep=[{name!r}] to include it",
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
        X, start, times = np.zeros((table.n_rows, self.width)), 0, self._times(table)
        filled: list[tuple[Scaled, int]] = []
        for column in self.columns_:
            part = X[:, start : start + len(column.labels)]
            if isinstance(column, Scaled):
                part[:] = self._numbers(table, column, times, filled)
            elif column.means:
                part[:] = means_of(column)[self._places(table, column)]
            else:
                places = self._places(table, column)
                there = np.flatnonzero(places >= 0)
                part[there, places[there]] = 1.0
            start += len(column.labels)
        self._note_filled(table, filled)
        return X

    def _sparse(self, table: Table) -> sp.csr_array:
        parts: list[Any] = []
        times = self._times(table)
        filled: list[tuple[Scaled, int]] = []
        for column in self.columns_:
            shape = (table.n_rows, len(column.labels))
            if isinstance(column, Scaled):
                parts.append(sp.csr_array(self._numbers(table, column, times, filled)))
                continue
            places = self._places(table, column)
            if column.means:
                parts.append(sp.csr_array(means_of(column)[places]))
            else:
                there = np.flatnonzero(places >= 0)
                entries = (np.ones(len(there)), (there, places[there]))
                parts.append(sp.csr_array(entries, shape=shape))
        parts += [self._matrix(table)] if self.matrix_columns_ else []
        X = sp.csr_array(sp.hstack(parts, format="csr"))
        X.eliminate_zeros()
        self._note_filled(table, filled)
        return X

    def typed(self, table: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Encode a table for methods that know categories and missing values, such as trees.

        Parameters
        ----------
        table : Table, path, frame or mapping of columns

        Returns
        -------
        X : ndarray of shape (n_rows, n_columns)
            A column for each of ``columns_``: numbers, with NaN where they are missing, or the
            places of categories in ``levels``, with NaN for categories not seen in training.
        is_category : ndarray of shape (n_columns,)
        """
        table = as_table(table)
        times = self._times(table)
        X = np.empty((table.n_rows, len(self.columns_)))
        for i, column in enumerate(self.columns_):
            if isinstance(column, Scaled):
                X[:, i] = self._values(table, column, times)
            else:
                places = self._places(table, column)
                X[:, i] = np.where(places < 0, np.nan, places)
        return X, np.array([isinstance(column, Levels) for column in self.columns_])

    def _check_columns(self, table: Table) -> None:
        absent = [name for name in self.sources if name not in table.columns]
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

    def _times(self, table: Table) -> dict[str, NDArray[np.float64]]:
        """The columns of times, in seconds since 1970."""
        found: dict[str, NDArray[np.float64]] = {}
        for column in self.columns_:
            for name in column.sources if isinstance(column, Scaled) and column.is_time else []:
                values = table.columns[name]
                if name in found:
                    continue
                if values.dtype.kind == "f" and not np.isnan(values).all():
                    raise TableError(
                        f"{table.where}: column {name!r} holds numbers, and in training it held "
                        "times"
                    )
                found[name] = values if values.dtype.kind == "f" else _times(values, table, name)
        return found

    def _values(
        self, table: Table, column: Scaled, times: dict[str, NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """The numbers of a column, with NaN where they are missing."""
        if column.is_time:
            return time_part(times, column)
        values = table.columns[column.name]
        if values.dtype.kind == "O":
            values = self._from_texts(table, column.name, values)
        self._refuse_infinite(table, column.name, values)
        return values

    def _numbers(
        self,
        table: Table,
        column: Scaled,
        times: dict[str, NDArray[np.float64]],
        filled: list[tuple[Scaled, int]],
    ) -> NDArray[np.float64]:
        """The columns of the matrix; where values are missing, ``filled`` gets how many."""
        values = self._values(table, column, times)
        missing = np.isnan(values)
        if missing.any():
            values = np.where(missing, column.fill, values)
            filled += [] if column.part else [(column, int(missing.sum()))]
        with np.errstate(over="ignore"):
            standard = np.clip((values - column.mean) / column.scale, -CLIP, CLIP)
        return np.column_stack([standard, missing] if column.missing else [standard])

    def _note_filled(self, table: Table, filled: list[tuple[Scaled, int]]) -> None:
        """Tell where the median stands for missing values: in one note if they are many."""
        if len(filled) > MOST_NOTES and not self.strict:
            counts = listed(f"{column.name!r} ({count:,})" for column, count in filled)
            self._note(
                f"missing values replaced by the median in {len(filled)} columns: {counts}", table
            )
            return
        for column, missing in filled:
            fill = time_text(column.fill) if column.is_time else f"{column.fill:g}"
            count = _plural(missing, "missing value")
            self._note(f"column {column.name!r}: {count} replaced by the median, {fill}", table)

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


def named_as_identifier(name: str, present: NDArray[np.float64]) -> bool:
    """Whether a name says that numbers are identifiers, and they are whole and nearly all differ.

    Examples
    --------
    >>> numbers = np.arange(100.0) ** 2
    >>> named_as_identifier("customer_id", numbers), named_as_identifier("population", numbers)
    (True, False)
    """
    if IDENTIFIER.fullmatch(name) is None and re.search("[a-z0-9]I[Dd]$", name) is None:
        return False
    whole = len(present) > FEW_LEVELS and bool((present == np.round(present)).all())
    return whole and len(np.unique(present)) >= MOSTLY_DISTINCT * len(present)


def _times(values: NDArray[Any], table: Table, name: str) -> NDArray[np.float64]:
    found = as_times(values)
    if found is None:
        wrong = next(
            (i for i, v in enumerate(values) if v is not None and seconds_of(v) is None), None
        )
        if wrong is None:
            return np.full(len(values), np.nan)
        raise TableError(
            f"{table.where}: column {name!r} is {_short(values[wrong])} in row {wrong + 1}, and in "
            "training it held times"
        )
    return found


def _short(value: Any) -> str:
    text = repr(str(value))
    return text if len(text) <= 40 else f"{text[:36]}...'"


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
