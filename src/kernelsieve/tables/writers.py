"""Write predictions and features to files, which appear only when they are complete."""

from __future__ import annotations

import csv
import io
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._files import replacing
from kernelsieve.tables.table import TableError

ROWS_AT_ONCE = 2**16  # of a CSV file


def write_columns(path: str | os.PathLike[str], columns: Mapping[str, NDArray[Any]]) -> None:
    """Write named columns as .csv, .parquet, .arrow or .npz.

    Parameters
    ----------
    path : path
    columns : mapping of str to ndarray of shape (n,)
    """
    path = Path(path)
    _writer(path, COLUMN_WRITERS)(path, columns)


def write_features(
    path: str | os.PathLike[str], Z: Any, names: NDArray[Any], target: NDArray[Any] | None
) -> None:
    """Write a matrix of features as .npz, .parquet, .arrow, .csv or LIBSVM text.

    Parameters
    ----------
    path : path
    Z : ndarray or CSR array of shape (n, s)
    names : ndarray of shape (s,)
    target : ndarray of shape (n,) or None
        Written as another column.
    """
    path = Path(path)
    writer = _writer(path, {**dict.fromkeys(COLUMN_WRITERS), **MATRIX_WRITERS})
    if writer is not None:
        writer(path, Z, names, target)
        return
    dense = Z.toarray() if sp.issparse(Z) else Z
    columns = {str(name): dense[:, i] for i, name in enumerate(names)}
    if target is not None:
        columns = {**columns, "target": target}
    write_columns(path, columns)


def check_writable(path: str | os.PathLike[str], kinds: tuple[str, ...]) -> None:
    """Raise for a path that cannot be written, before the work starts."""
    path = Path(path)
    if path.suffix.lower() not in kinds:
        raise TableError(f"{path}: cannot write {path.suffix or 'a file without a suffix'}: the "
                         f"name must end with {', '.join(kinds)}")  # fmt: skip
    if path.is_dir():
        raise TableError(f"{path} is a folder: name a file in it")
    if not path.absolute().parent.is_dir():
        raise TableError(f"{path}: the folder {path.parent} does not exist")


def csv_parts(columns: Mapping[str, NDArray[Any]], n_rows: int = ROWS_AT_ONCE) -> Iterator[str]:
    """Format columns as CSV, in parts of ``n_rows`` rows."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    count = max((len(values) for values in columns.values()), default=0)
    for start in range(0, count, n_rows):
        part = [values[start : start + n_rows].tolist() for values in columns.values()]
        writer.writerows(zip(*part, strict=True))
        yield file.getvalue()
        file.seek(0)
        file.truncate()
    yield file.getvalue()


def csv_text(columns: Mapping[str, NDArray[Any]]) -> str:
    """Format columns as CSV."""
    return "".join(csv_parts(columns))


def _writer(path: Path, writers: Mapping[str, Any]) -> Any:
    check_writable(path, tuple(writers))
    return writers[path.suffix.lower()]


def _write_csv(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    with replacing(path) as file:
        for part in csv_parts(columns):
            file.write(part.encode())


def _write_arrow(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    import pyarrow as pa
    from pyarrow import feather, parquet

    table = pa.table({name: values.tolist() if values.dtype.kind == "O" else values
                      for name, values in columns.items()})  # fmt: skip
    write = parquet.write_table if path.suffix.lower() == ".parquet" else feather.write_feather
    with replacing(path) as file:
        write(table, file)


def _write_npz(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    # np.savez takes columns as keyword arguments, so none could be called "file".
    with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, values in columns.items():
            plain = values.astype(str) if values.dtype.kind == "O" else values
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, plain, allow_pickle=False)


def _write_matrix_npz(path: Path, Z: Any, names: NDArray[Any], target: Any) -> None:
    """Write arrays X, names and y, or a sparse matrix for scipy.sparse.load_npz."""
    with replacing(path) as file:
        if sp.issparse(Z):
            sp.save_npz(file, sp.csr_matrix(Z))
        else:
            others = {} if target is None else {"y": target}
            np.savez(file, X=Z, names=names.astype(str), **others)


def _write_svmlight(path: Path, Z: Any, names: NDArray[Any], target: Any) -> None:
    from sklearn.datasets import dump_svmlight_file

    labels = np.zeros(Z.shape[0]) if target is None else target
    with replacing(path) as file:
        dump_svmlight_file(sp.csr_matrix(Z), labels, file, zero_based=False)


COLUMN_WRITERS: dict[str, Callable[..., None]] = {
    ".csv": _write_csv,
    ".parquet": _write_arrow,
    ".arrow": _write_arrow,
    ".feather": _write_arrow,
    ".npz": _write_npz,
}
MATRIX_WRITERS: dict[str, Callable[..., None]] = {
    ".npz": _write_matrix_npz,
    ".svm": _write_svmlight,
    ".libsvm": _write_svmlight,
    ".svmlight": _write_svmlight,
}
MATRIX_KINDS = tuple({**COLUMN_WRITERS, **MATRIX_WRITERS})
