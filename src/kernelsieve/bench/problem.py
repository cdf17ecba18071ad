"""A dataset or a table made ready for a comparison: split, encoded, the same for every method.

Kernel and linear methods get a matrix of scaled numbers and 0/1 columns. Trees get the columns as
they come: numbers with missing values, and codes of the texts.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from kernelsieve import NystromFeatures
from kernelsieve.datasets import Dataset
from kernelsieve.datasets.verify import checksum
from kernelsieve.learning import Judge, SearchOptions, choose_gamma_alpha
from kernelsieve.tables.encoder import TableEncoder
from kernelsieve.tables.readers import read_table
from kernelsieve.tables.table import Table, TableNotice
from kernelsieve.tables.target import ridge_targets, rows_with_target, task_and_targets
from kernelsieve.tables.times import as_times

SPLIT_SEED = 0
TEST_SHARE = 0.25
VALIDATION_SHARE = 0.15  # of all rows; they choose s
CLIP = 8.0
FLOAT32_ROWS = 100_000  # from here on everybody gets float32: half the memory and time
MOST_CODES = 250  # texts of a column that trees may treat as categories

# One search of gamma and alpha serves every method. Landmarks tell more of the kernel itself than
# as many Fourier features, whose noise asks for a larger alpha.
SEARCH = SearchOptions(
    n_rows=6_000,
    gamma_factors=tuple(2.0**power for power in range(-5, 3)),
    alphas=tuple(np.logspace(-5, 2, 15).tolist()),
    continued=False,  # the grid is part of the protocol
)
SEARCH_LANDMARKS = 600


@dataclass(frozen=True)
class Rows:
    """Some rows of a problem.

    Attributes
    ----------
    X : ndarray or CSR array of shape (n, d)
        Scaled numbers and 0/1 columns.
    columns : ndarray of shape (n, n_columns)
        The columns as they come, with NaN for missing values and codes for texts.
    y : ndarray of shape (n,)
        Numbers, or classes counted from 0.
    """

    X: Any
    columns: Any
    y: NDArray[Any]

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: Any) -> Rows:
        """Some of the rows."""
        return Rows(self.X[rows], self.columns[rows], self.y[rows])


@dataclass(frozen=True)
class Problem:
    """Training, validation and test rows, encoded on the training rows alone.

    Attributes
    ----------
    name : str
    key : str
        A digest of the data and the split.
    task : "regression" or "classification"
    train, validation, test : Rows
        There may be no validation rows.
    categorical : tuple of int
        Which of ``columns`` hold codes of texts.
    n_classes : int
        0 in a regression.
    """

    name: str
    key: str
    task: str
    train: Rows
    validation: Rows
    test: Rows
    categorical: tuple[int, ...]
    n_classes: int

    @property
    def n_rows(self) -> int:
        """The number of rows of all three parts."""
        return len(self.train) + len(self.validation) + len(self.test)


def from_dataset(data: Dataset) -> Problem:
    """Split a dataset and scale it on its training rows."""
    classes = data.task == "classification"
    y = _counted(data.y) if classes else data.y
    parts = three_parts(len(y), y if classes else None)
    scaler = scaler_for(data.X).fit(data.X[parts[0]])
    raw = data.X.toarray() if sp.issparse(data.X) and data.X.shape[1] <= 2_000 else data.X
    many = len(parts[0]) >= FLOAT32_ROWS

    def part(rows: NDArray[np.int64]) -> Rows:
        X = scaler.transform(data.X[rows]) if len(rows) else data.X[rows]
        return Rows(X.astype(np.float32) if many else X, raw[rows], y[rows])

    return Problem(
        name=data.name,
        key=checksum(data.X, data.y),
        task=data.task,
        train=part(parts[0]),
        validation=part(parts[1]),
        test=part(parts[2]),
        categorical=(),
        n_classes=_classes(y, classes),
    )


def from_table(
    name: str,
    table: Table,
    target: str | None,
    drop: Sequence[str] = (),
    task: str = "auto",
    parts: Sequence[NDArray[np.int64]] | None = None,
) -> Problem:
    """Split a table and encode it as ``kernelsieve fit`` does, on its training rows.

    Parameters
    ----------
    name : str
    table : Table
    target : str
        The column to predict.
    drop : sequence of str
        Columns to leave out.
    task : "auto", "regression" or "classification"
    parts : three arrays of row numbers, optional
        Training, validation and test rows. None splits at random.

    Returns
    -------
    Problem
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableNotice)  # `fit` says it; here it would be said twice
        table, target = rows_with_target(table, target, drop, strict=False)
        task, values = task_and_targets(table, target, task)
        classes = task == "classification"
        y = _counted(values) if classes else values
        if parts is None:
            parts = three_parts(len(y), y if classes else None)
        encoder = TableEncoder([*drop, target]).fit(table.take(parts[0]))
        kept = [column.name for column in encoder.columns_]  # the same for everybody
        raw, categorical = _as_they_come(table, kept, parts[0])

        def part(rows: NDArray[np.int64]) -> Rows:
            X = encoder.transform(table.take(rows)) if len(rows) else np.empty((0, encoder.width))
            return Rows(X, raw[rows], y[rows])

        key = hashlib.blake2b(digest_size=8)
        for piece in (raw, np.asarray(y, dtype=np.float64), *parts):
            key.update(np.ascontiguousarray(piece).tobytes())
        return Problem(
            name=name,
            key=key.hexdigest(),
            task=task,
            train=part(parts[0]),
            validation=part(parts[1]),
            test=part(parts[2]),
            categorical=categorical,
            n_classes=_classes(y, classes),
        )


def from_file(path: str | Path, target: str | None, drop: Sequence[str] = ()) -> Problem:
    """Read a table of the user's and split it."""
    path = Path(path)
    return from_table(table_name(path), read_table(path), target, drop)


def table_name(path: Path) -> str:
    """The name of a file without its endings.

    Examples
    --------
    >>> table_name(Path("data/prices.csv.gz"))
    'prices'
    """
    return path.name.removesuffix(".gz").rsplit(".", 1)[0]


def three_parts(
    n_rows: int, labels: NDArray[Any] | None = None, seed: int = SPLIT_SEED
) -> list[NDArray[np.int64]]:
    """Row numbers for training, for choosing s, and for testing."""
    judge = Judge(n_rows, seed, labels)
    rest, test = judge.set_apart(max(1, round(TEST_SHARE * n_rows)))
    train, validation = judge.set_apart(max(1, round(VALIDATION_SHARE * n_rows)), among=rest)
    return [train, validation, test]


def scaler_for(X: Any) -> Any:
    """How to scale X: dense columns are standardised, 0/1 sparse ones kept, counts get tf-idf.

    Standardised values are cut at 8 standard deviations: a column that is nearly always the same
    makes outliers that no kernel is meant for, and every method suffers from them.
    """
    if not sp.issparse(X):
        clip = FunctionTransformer(np.clip, kw_args={"a_min": -CLIP, "a_max": CLIP})
        return make_pipeline(StandardScaler(), clip)
    if np.all(X.data == 1.0):
        return FunctionTransformer(accept_sparse=True)
    return TfidfTransformer(sublinear_tf=True)


def tuned(X: Any, y: NDArray[Any], task: str, n_threads: int) -> tuple[float, float]:
    """The gamma and alpha that serve every method: the lowest leave-one-out error."""
    features = NystromFeatures(min(SEARCH_LANDMARKS, len(y)), landmarks="uniform", n_jobs=n_threads)
    found = choose_gamma_alpha(
        features, X, ridge_targets(y, task), SEARCH, seed=SPLIT_SEED, n_jobs=n_threads
    )
    return float(found.gamma), found.alpha


def _counted(labels: NDArray[Any]) -> NDArray[np.int64]:
    return np.unique(labels, return_inverse=True)[1]


def _classes(y: NDArray[Any], classes: bool) -> int:
    return int(y.max()) + 1 if classes else 0


def _as_they_come(
    table: Table, kept: Sequence[str], train: NDArray[np.int64]
) -> tuple[NDArray[np.float64], tuple[int, ...]]:
    """Numbers and times with NaN where they are missing, texts by codes known from training."""
    columns: list[NDArray[np.float64]] = []
    categorical = []
    for name in kept:
        values = table.columns[name]
        numbers = values if values.dtype.kind == "f" else as_times(values)
        if numbers is None:
            known = sorted({v for v in values[train].tolist() if v is not None})
            codes = {text: float(code) for code, text in enumerate(known)}
            numbers = np.array([codes.get(v, np.nan) for v in values.tolist()])
            if len(known) <= MOST_CODES:
                categorical.append(len(columns))
        columns.append(numbers)
    if table.matrix is not None:
        dense = table.matrix.toarray() if table.matrix.shape[1] <= 2_000 else table.matrix
        return (np.column_stack([*columns, dense]) if columns else dense), tuple(categorical)
    return np.column_stack(columns), tuple(categorical)
