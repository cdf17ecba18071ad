"""Your own tables: numbers stay numbers, texts with few values become 0/1 columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.datasets.entry import Dataset, DatasetError
from kernelsieve.tables import Table, TableError, read_table
from kernelsieve.tables.table import is_missing, is_number, listed

MAX_LEVELS = 50  # different texts of a column that is coded as 0/1 columns
MIN_ROWS = 20


def read_dataset(
    path: str | os.PathLike[str], target: str | None = None, drop: Sequence[str] = ()
) -> Dataset:
    """Read a table for a comparison of methods: nothing is filled in or scaled.

    Parameters
    ----------
    path : path
        What ``tables.read_table`` reads.
    target : str
        The column to predict; it must hold numbers.
    drop : sequence of str
        Columns to leave out.

    Returns
    -------
    Dataset
        Columns of texts with at most 50 different values become 0/1 columns "name=value".

    Raises
    ------
    DatasetError
        That says which column and row is wrong and what to do: missing or infinite values, a
        target that is text, a column that is not there, rows of different lengths.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "flats.csv"
    >>> text = "size,town,price\\n" + "50,Ulm,200\\n75,Bonn,310\\n" * 10
    >>> _ = path.write_text(text)
    >>> data = read_dataset(path, target="price")
    >>> data.X.shape, data.feature_names
    ((20, 3), ('size', 'town=Bonn', 'town=Ulm'))
    """
    path = Path(path)
    try:
        table = read_table(path)
    except TableError as error:
        raise DatasetError(str(error)) from error
    names = _checked_names(path, table, target, drop)
    assert target is not None
    y = _target(path, target, table.columns[target])
    parts = [_coded(path, name, table.columns[name]) for name in names]
    X: Any = np.column_stack([values for _, values in parts]) if parts else table.matrix
    return Dataset(
        name=path.name.removesuffix(".gz").rsplit(".", 1)[0],
        X=X,
        y=y,
        feature_names=tuple(label for labels, _ in parts for label in labels),
        target_name=target,
        task="regression",
        description=f"{target} of {path.name}",
        licence="yours",
    )


def _checked_names(path: Path, table: Table, target: str | None, drop: Sequence[str]) -> list[str]:
    """The input columns."""
    if target is None:
        raise DatasetError(
            f"{path}: say which column to predict with --target, one of {listed(table.columns)}"
        )
    for name in (target, *drop):
        if name not in table.columns:
            raise DatasetError(f"{path} has no column {name!r}: it has {listed(table.columns)}")
    if table.n_rows < MIN_ROWS:
        raise DatasetError(f"{path} has {table.n_rows} rows, at least {MIN_ROWS} are needed")
    names = [name for name in table.columns if name != target and name not in drop]
    if bool(names) == (table.matrix is not None):
        what = "both named columns and a sparse matrix" if names else "no column besides the target"
        raise DatasetError(f"{path} has {what} {target!r}")
    return names


def _target(path: Path, name: str, values: NDArray[Any]) -> NDArray[np.float64]:
    _refuse_missing(path, name, values, "leave those rows out")
    if values.dtype.kind != "f":
        where = next((i for i, cell in enumerate(values) if not is_number(cell)), 0)
        raise DatasetError(
            f"{path}: the target {name!r} is text ({values[where]!r} in row {where + 1}), and a "
            "regression needs numbers"
        )
    _refuse_infinite(path, name, values)
    if values.min() == values.max():
        raise DatasetError(f"{path}: the target {name!r} is {values[0]:g} everywhere")
    return values


def _coded(path: Path, name: str, values: NDArray[Any]) -> tuple[list[str], NDArray[np.float64]]:
    """Labels and values of the columns that a column of the file becomes."""
    _refuse_missing(path, name, values, f"fill them in, or leave the column out with --drop {name}")
    if values.dtype.kind == "f":
        _refuse_infinite(path, name, values)
        return [name], values[:, None]
    levels, places = np.unique(values.astype(str), return_inverse=True)
    if len(levels) > MAX_LEVELS:
        raise DatasetError(
            f"{path}: column {name!r} has {len(levels):,} different texts, and at most "
            f"{MAX_LEVELS} are coded as 0/1 columns: leave it out with --drop {name}"
        )
    return [f"{name}={level}" for level in levels], np.eye(len(levels))[places]


def _refuse_missing(path: Path, name: str, values: NDArray[Any], way_out: str) -> None:
    missing = np.flatnonzero(is_missing(values))
    if missing.size:
        raise DatasetError(
            f"{path}: column {name!r} has no value in {missing.size:,} of {len(values):,} rows, "
            f"first in row {missing[0] + 1}: {way_out}"
        )


def _refuse_infinite(path: Path, name: str, values: NDArray[np.float64]) -> None:
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise DatasetError(
            f"{path}: column {name!r} is {values[bad[0]]} in row {bad[0] + 1}: only finite numbers "
            "can be used"
        )
