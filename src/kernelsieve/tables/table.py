"""A table of named columns, or a sparse matrix, from a frame in memory."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._validation import check_sparse
from kernelsieve.tables.cells import is_number, known_text, number_text
from kernelsieve.tables.texts import Reading

LISTED_NAMES = 12
MOST_COLUMNS = 20_000  # of a dense matrix without names


class TableError(ValueError):
    """A table that cannot be used; the message says where the problem is and how to solve it."""


class TableNotice(UserWarning):
    """A warning about how a table was understood or changed."""


@dataclass(frozen=True)
class Table:
    """Columns by name, all of one length.

    Attributes
    ----------
    where : str
        The file, for messages.
    columns : dict of str to ndarray of shape (n_rows,)
        Numbers are float64 with NaN for missing values; texts are objects with None for them.
    matrix : CSR array of shape (n_rows, n_sparse) or None
        Sparse inputs without names, beside the columns.
    readings : dict of str to Reading
        How the columns of a text file were understood.
    given : dict of str to ndarray of shape (n_rows,)
        The texts of columns of a text file, where they were asked for.
    n_rows : int
    """

    where: str
    columns: dict[str, NDArray[Any]]
    matrix: Any = None
    readings: dict[str, Reading] = field(default_factory=dict)
    given: dict[str, NDArray[np.object_]] = field(default_factory=dict)
    n_rows: int = field(init=False)

    def __post_init__(self) -> None:
        lengths = {len(values) for values in self.columns.values()}
        if self.matrix is not None:
            lengths.add(self.matrix.shape[0])
        if len(lengths) > 1:
            raise TableError(f"{self.where}: the columns have different lengths {sorted(lengths)}")
        object.__setattr__(self, "n_rows", lengths.pop() if lengths else 0)

    def column(self, name: str) -> NDArray[Any]:
        """Get a column by name; the error message lists those there are."""
        if name not in self.columns:
            raise TableError(
                f"{self.where} has no column {name!r}: it has {listed(self.columns)}"
                + _hint(list(self.columns), name)
            )
        return self.columns[name]

    def batches(self, n_rows: int) -> Iterator[Table]:
        """The same rows in tables of at most ``n_rows``."""
        for start in range(0, self.n_rows, n_rows):
            yield self.take(np.arange(start, min(start + n_rows, self.n_rows)))

    def take(self, rows: NDArray[np.int64]) -> Table:
        """Some of the rows."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        matrix = None if self.matrix is None else self.matrix[rows]
        given = {name: values[rows] for name, values in self.given.items()}
        return Table(self.where, columns, matrix, self.readings, given)


def _hint(names: list[str], wanted: str) -> str:
    """What may be wrong with a table that lacks a column."""
    if len(names) == 1 and wanted in names[0].split():
        return "; if spaces separate the columns, pass sep=' '"
    if any(map(is_number, names)) and not any(wanted.lower() in name.lower() for name in names):
        return "; if these are values, add a first line with the names of the columns"
    alike = [name for name in names if name.lower() == wanted.lower()]
    return f"; do you mean {alike[0]!r}?" if alike else ""


def listed(names: Iterable[str]) -> str:
    """Some names, for messages."""
    names = list(names)
    shown = ", ".join(names[:LISTED_NAMES])
    return f"{shown}, ..." if len(names) > LISTED_NAMES else shown or "none"


def column_names(names: list[str]) -> str:
    """Format the names of some columns, for messages."""
    quoted = listed([repr(name) for name in names])
    return f"column {quoted}" if len(names) == 1 else f"columns {quoted}"


def plural(count: int, what: str) -> str:
    """A number of things: "1 row", "1,200 rows"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def notice(message: str) -> None:
    """Warn about how a table was understood or changed, at the line that called this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("kernelsieve."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, TableNotice, stacklevel=level)


def as_table(data: Any, readings: Mapping[str, Reading] | None = None) -> Table:
    """Make a table of a path, a frame, a mapping of columns, or a matrix.

    Parameters
    ----------
    data : Table, path, frame (pandas, polars, Arrow), mapping of columns, ndarray or sparse matrix
    readings : mapping of str to Reading, optional
        How texts in the columns of an earlier table were understood.

    Returns
    -------
    Table
    """
    from kernelsieve.tables.readers import read_table, with_readings

    if isinstance(data, Table):
        return data
    if isinstance(data, str) or hasattr(data, "__fspath__"):
        return read_table(data, readings=readings)
    if sp.issparse(data):
        return Table("the matrix", {}, sp.csr_array(check_sparse(data, "the matrix")))
    if hasattr(data, "column_names") and hasattr(data, "to_pydict"):
        return with_readings(from_arrow("the table", data), readings)
    if isinstance(data, Mapping) or hasattr(data, "columns"):
        names = list(data.keys() if isinstance(data, Mapping) else data.columns)
        refuse_twice("the table", map(str, names))
        table = from_columns("the table", [(name, data[name]) for name in names])
        return with_readings(table, readings)
    return from_matrix("the matrix", np.asarray(data))


def from_matrix(where: str, X: NDArray[Any]) -> Table:
    """Make a table of a dense matrix, with columns x0, x1, ..."""
    if X.ndim != 2:
        raise TableError(f"{where}: X must have two dimensions, not the shape {X.shape}")
    if X.shape[1] > MOST_COLUMNS:
        raise TableError(
            f"{where} has {X.shape[1]:,} dense columns, and the limit is {MOST_COLUMNS:,}: pass a "
            "sparse matrix, or fit a model to the array in Python"
        )
    return from_columns(where, [(f"x{i}", X[:, i]) for i in range(X.shape[1])])


def from_columns(where: str, columns: Iterable[tuple[Any, Any]]) -> Table:
    """Make a table of named columns of any kind that numpy can hold."""
    pairs = [(str(name), values) for name, values in columns]
    refuse_twice(where, (name for name, _ in pairs))
    return Table(where, {name: as_column(where, name, values) for name, values in pairs})


def refuse_twice(where: str, names: Iterable[str]) -> None:
    """Raise if two columns have the same name."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise TableError(f"{where} has two columns {twice[0]!r}: rename one of them")


def from_arrow(where: str, table: Any) -> Table:
    """Make a table of a pyarrow table."""
    import pyarrow as pa

    def values(column: Any) -> Any:
        kind = column.type
        if pa.types.is_dictionary(kind):
            column, kind = column.cast(kind.value_type), kind.value_type
        plain = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        return column.to_numpy() if plain else column.to_pylist()

    pairs = zip(table.column_names, table.columns, strict=True)
    return from_columns(where, [(name, values(column)) for name, column in pairs])


def as_column(where: str, name: str, values: Any) -> NDArray[Any]:
    """Convert a column: numbers to float64, everything else to objects that are texts or None."""
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths, which are refused below
        array = np.empty(len(values), dtype=object)
        array[:] = values
    if array.ndim != 1:
        raise TableError(
            f"{where}: column {name!r} must have one dimension, not the shape {array.shape}"
        )
    if array.dtype.kind in "fiub":
        return array.astype(np.float64)
    if array.dtype.kind == "M":
        array = np.array([_naive(value) for value in array], dtype=object)
    if array.dtype.kind not in "OUST":
        raise TableError(
            f"{where}: column {name!r} holds {array.dtype} values; only numbers, texts and times "
            f"can be used. To ignore it, use drop=[{name!r}]"
        )
    texts = [cell_text(where, name, value) for value in array.tolist()]
    numbers = None if _has_text(array) else _numbers(texts)
    return np.array(texts, dtype=object) if numbers is None else numbers


def is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark the missing values of a column."""
    if values.dtype.kind == "f":
        return np.isnan(values)
    return np.array([value is None for value in values.tolist()], dtype=bool)


def _numbers(cells: list[str | None]) -> NDArray[np.float64] | None:
    """Convert cells to numbers, or return None unless all are numbers or missing."""
    if all(cell is None for cell in cells):
        return np.full(len(cells), np.nan)
    if not all(cell is None or is_number(cell) for cell in cells):
        return None
    return np.array([np.nan if cell is None else float(cell) for cell in cells])


def _has_text(array: NDArray[Any]) -> bool:
    """Whether some value is a text: a text column of a frame stays one, even if it holds digits."""
    return array.dtype.kind != "O" or any(isinstance(value, str) for value in array.tolist())


def cell_text(where: str, name: str, value: Any) -> str | None:
    """Convert a value to text; times to ISO 8601, in UTC if they have a zone."""
    if value is None or value is np.nan or (isinstance(value, float) and np.isnan(value)):
        return None
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    if isinstance(value, np.datetime64):
        value = _naive(value)
        if value is None:
            return None
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return known_text(value)
    if isinstance(value, bool | np.bool_):
        return "1" if value else "0"
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    number = hasattr(value, "__float__") and not isinstance(value, np.ndarray)  # also Decimal
    if isinstance(value, int | float) or number:
        return number_text(float(value))
    raise TableError(
        f"{where}: column {name!r} holds {type(value).__name__} values; only numbers, texts and "
        f"times can be used. To ignore it, use drop=[{name!r}]"
    )


def _naive(value: np.datetime64) -> datetime | None:
    if np.isnat(value):
        return None
    return (
        datetime.fromtimestamp(0, UTC).replace(tzinfo=None)
        + value.astype("datetime64[us]").astype("int64").item() * _MICROSECOND
    )


_MICROSECOND = datetime(1970, 1, 1, microsecond=1) - datetime(1970, 1, 1)
