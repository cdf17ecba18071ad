"""The table encoder: columns of numbers, times and texts become a matrix.

Numbers and times are standardised and clipped at 8 standard deviations; texts become 0/1 columns,
or, if there are many categories and the target is known, the mean of the target in each.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
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
from kernelsieve.tables.categories import OTHER, Category
from kernelsieve.tables.columns import Number, Time
from kernelsieve.tables.identifiers import numbers_that_identify, texts_that_identify
from kernelsieve.tables.means import level_means, standardised
from kernelsieve.tables.notices import Column, notices, plural
from kernelsieve.tables.table import Table, TableError, TableNotice, as_table, listed
from kernelsieve.tables.times import as_times, parts_of
from kernelsieve.tables.typed import TypedTable

FOLDS = 5  # of the rows: the means of a training row come from the other folds
MOST_SPARSE_COLUMNS = 10_000_000
SPARSE_BELOW = 0.2  # share of nonzeros below which a wide matrix is sparse
WIDE = 200  # columns of the matrix


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
    columns_ : list of Number, Time and Category
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
        "columns_": list_of(instance(Number, Time, Category)),
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
        self.columns_: list[Column] = []
        self.ignored_: dict[str, str] = {}
        times: dict[str, NDArray[np.float64]] = {}
        outputs = None if y is None else standardised(y, table.n_rows)
        for name, values in table.columns.items():
            if name in self.drop:
                continue
            seconds = None if values.dtype.kind == "f" else as_times(values)
            column: Column | None
            if seconds is not None:
                column = self._fitted(Time, table, name, seconds)
                times |= {} if column is None else {name: seconds}
            elif values.dtype.kind == "f":
                column = self._fitted(Number, table, name, TypedTable(table).numbers(name))
            else:
                column = self._fitted_category(table, name, values, outputs)
            self.columns_ += [] if column is None else [column]
        self.columns_ += Time.parts(times, parts_of(times))
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
        for column, part in self._parts(X):
            if isinstance(column, Category) and column.means:
                places = column.places(table.columns[column.name])
                for fold in range(FOLDS):
                    inside, outside = folds == fold, folds != fold
                    means = level_means(places[outside], outputs[outside], len(column.levels))
                    part[inside] = means[places[inside]]
        return X

    def _parts(self, X: NDArray[np.float64]) -> Iterator[tuple[Column, NDArray[np.float64]]]:
        """Each column, and its columns of the matrix."""
        start = 0
        for column in self.columns_:
            stop = start + len(column.labels)
            yield column, X[:, start:stop]
            start = stop

    @property
    def width(self) -> int:
        """The number of columns of the matrix."""
        return sum(len(column.labels) for column in self.columns_) + self.matrix_columns_

    @property
    def sources(self) -> list[str]:
        """The columns of the table that are used, in its order."""
        return list(dict.fromkeys(name for column in self.columns_ for name in column.sources))

    def _fitted(
        self, kind: type[Number], table: Table, name: str, values: NDArray[np.float64]
    ) -> Number | None:
        """A column of numbers or times, or None if it says nothing."""
        present = values[~np.isnan(values)]
        if len(present) == 0:
            self._ignore(table, name, "is empty")
            return None
        if kind is Number and name not in self.keep:
            why = numbers_that_identify(name, values)
            if why is not None:
                self._ignore_identifier(table, name, why)
                return None
        if present.min() == present.max():
            self._ignore(table, name, f"is always {present[0]:g}")
            return None
        return kind.fit(name, values)

    def _fitted_category(
        self,
        table: Table,
        name: str,
        values: NDArray[Any],
        outputs: NDArray[np.float64] | None,
    ) -> Category | None:
        """A column of texts, or None if it says nothing."""
        counts = Counter(value for value in values.tolist() if value is not None)
        levels, n_present = sorted(counts), counts.total()
        if not levels:
            self._ignore(table, name, "is empty")
            return None
        if len(levels) == 1 and n_present == table.n_rows:
            self._ignore(table, name, f"is always {levels[0]}")
            return None
        why = texts_that_identify(levels, n_present, table.n_rows)
        if why is not None and name not in self.keep:
            self._ignore_identifier(table, name, why)
            return None
        column = Category.fit(name, counts, n_present < table.n_rows)
        rare = len(levels) - len(set(column.levels) & counts.keys())
        if rare:
            self._note(f"column {name!r}: the {rare:,} rarest of {len(levels):,} categories share "
                       f"one, {OTHER}", table)  # fmt: skip
        return column.with_means(values, outputs)

    # --- notices ---------------------------------------------------------------------------------

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
        given = self._read(table)
        for notice in notices(self.columns_, given, bool(self.strict)):
            self._note(notice, table)
        return self._sparse(table, given) if self.sparse_ else self._dense(table, given)

    def _read(self, table: Table) -> list[NDArray[Any]]:
        """The values of each column, as it takes them."""
        cells = TypedTable(table)
        return [column.read(cells) for column in self.columns_]

    def _dense(self, table: Table, given: list[NDArray[Any]]) -> NDArray[np.float64]:
        X = np.zeros((table.n_rows, self.width))
        for (column, part), values in zip(self._parts(X), given, strict=True):
            column.encode(values, part)
        return X

    def _sparse(self, table: Table, given: list[NDArray[Any]]) -> sp.csr_array:
        parts: list[Any] = [
            column.encoded_sparse(values)
            for column, values in zip(self.columns_, given, strict=True)
        ]
        parts += [self._matrix(table)] if self.matrix_columns_ else []
        X = sp.csr_array(sp.hstack(parts, format="csr"))
        X.eliminate_zeros()
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
        X = np.empty((table.n_rows, len(self.columns_)))
        for i, (column, values) in enumerate(zip(self.columns_, self._read(table), strict=True)):
            X[:, i] = column.codes(values)
        return X, np.array([isinstance(column, Category) for column in self.columns_])

    def _check_columns(self, table: Table) -> None:
        absent = [name for name in self.sources if name not in table.columns]
        if absent:
            raise TableError(
                f"{table.where} lacks {plural(len(absent), 'column')} of the training table: "
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
