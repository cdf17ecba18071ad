"""Your own CSV files: numbers stay numbers, texts with few values become 0/1 columns."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from kernelsieve.datasets.entry import Dataset, DatasetError

MAX_LEVELS = 50  # different texts of a column that is coded as 0/1 columns
MIN_ROWS = 20
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})


def read_csv(
    path: str | os.PathLike[str], target: str | None = None, drop: Sequence[str] = ()
) -> Dataset:
    """Read a table with a header line (comma, semicolon or tab between the columns; also .gz).

    Parameters
    ----------
    path : path
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
        That says which column and line is wrong and what to do: missing or infinite values, a
        target that is text, a column that is not there, rows of different lengths.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "flats.csv"
    >>> text = "size,town,price\\n" + "50,Ulm,200\\n75,Bonn,310\\n" * 10
    >>> _ = path.write_text(text)
    >>> data = read_csv(path, target="price")
    >>> data.X.shape, data.feature_names
    ((20, 3), ('size', 'town=Bonn', 'town=Ulm'))
    """
    path = Path(path)
    header, rows = _table(path)
    names = _checked_names(path, header, target, drop)
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    assert target is not None
    y = _target(path, target, columns[target])
    parts = [_coded(path, name, columns[name]) for name in names]
    return Dataset(
        name=path.name.removesuffix(".gz").rsplit(".", 1)[0],
        X=np.column_stack([values for _, values in parts]),
        y=y,
        feature_names=tuple(label for labels, _ in parts for label in labels),
        target_name=target,
        task="regression",
        description=f"{target} of {path.name}",
        licence="yours",
    )


def _table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows of texts, all of the header's length."""
    try:
        with _open(path) as file:
            first = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t", key=first.count))
            header = [name.strip() for name in next(reader, [])]
            rows = []
            for row in reader:
                if len(row) not in (0, len(header)):
                    raise DatasetError(
                        f"{path}, line {reader.line_num}: {len(row)} values for the "
                        f"{len(header)} columns of the header"
                    )
                if row:
                    rows.append([cell.strip() for cell in row])
    except (UnicodeDecodeError, gzip.BadGzipFile, csv.Error) as error:
        raise DatasetError(f"{path} is no table in UTF-8 text: {error}") from error
    if len(rows) < MIN_ROWS:
        raise DatasetError(
            f"{path} has {len(rows)} rows below its header, at least {MIN_ROWS} are needed"
        )
    return header, rows


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _checked_names(
    path: Path, header: list[str], target: str | None, drop: Sequence[str]
) -> list[str]:
    """The input columns."""
    listed = ", ".join(header[:12]) + (", ..." if len(header) > 12 else "")
    if target is None:
        raise DatasetError(f"{path}: say which column to predict with --target, one of {listed}")
    for name in (target, *drop):
        if name not in header:
            raise DatasetError(f"{path} has no column {name!r}: it has {listed}")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise DatasetError(f"{path} has two columns {twice[0]!r}: rename one of them")
    names = [name for name in header if name != target and name not in drop]
    if not names:
        raise DatasetError(f"{path} has no column besides the target {target!r}")
    return names


def _target(path: Path, name: str, cells: Sequence[str]) -> NDArray[np.float64]:
    _refuse_missing(path, name, cells, "leave those rows out")
    values = _numbers(cells)
    if values is None:
        where = next(i for i, cell in enumerate(cells) if _numbers([cell]) is None)
        raise DatasetError(
            f"{path}: the target {name!r} is text ({cells[where]!r} in row {where + 1}), and a "
            "regression needs numbers"
        )
    _refuse_infinite(path, name, values)
    if np.ptp(values) == 0:
        raise DatasetError(f"{path}: the target {name!r} is {values[0]:g} everywhere")
    return values


def _coded(path: Path, name: str, cells: Sequence[str]) -> tuple[list[str], NDArray[np.float64]]:
    """Labels and values of the columns that a column of the file becomes."""
    _refuse_missing(path, name, cells, f"fill them in, or leave the column out with --drop {name}")
    values = _numbers(cells)
    if values is not None:
        _refuse_infinite(path, name, values)
        return [name], values[:, None]
    levels = sorted(set(cells))
    if len(levels) > MAX_LEVELS:
        raise DatasetError(
            f"{path}: column {name!r} has {len(levels):,} different texts, and at most "
            f"{MAX_LEVELS} are coded as 0/1 columns: leave it out with --drop {name}"
        )
    place = {level: i for i, level in enumerate(levels)}
    coded = np.zeros((len(cells), len(levels)))
    coded[np.arange(len(cells)), [place[cell] for cell in cells]] = 1.0
    return [f"{name}={level}" for level in levels], coded


def _numbers(cells: Sequence[str]) -> NDArray[np.float64] | None:
    try:
        return np.array([float(cell) for cell in cells])
    except ValueError:
        return None


def _refuse_missing(path: Path, name: str, cells: Sequence[str], way_out: str) -> None:
    missing = [i for i, cell in enumerate(cells) if cell.lower() in MISSING]
    if missing:
        raise DatasetError(
            f"{path}: column {name!r} has no value in {len(missing):,} of {len(cells):,} rows, "
            f"first in row {missing[0] + 1}: {way_out}"
        )


def _refuse_infinite(path: Path, name: str, values: NDArray[np.float64]) -> None:
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise DatasetError(
            f"{path}: column {name!r} is {values[bad[0]]} in row {bad[0] + 1}: only finite numbers "
            "can be used"
        )
