"""Checks before any work is done: an error names the value, the reason and the way out.

They refuse values that make no sense, and sizes that do not fit in memory.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.utils import check_array, get_tags
from sklearn.utils.validation import validate_data

FLOATS = (np.float64, np.float32)
LARGEST_ENTRY = 1e150
UNCHECKED = 2**27  # bytes: below, looking up what is free is not worth the time
GIB = 2.0**30
PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


def refuse_dates(X: Any, name: str = "X") -> Any:
    """Return X, and refuse dates, which numpy would convert to nanoseconds since 1970."""
    columns = X.columns if hasattr(X, "columns") and hasattr(X, "dtypes") else None
    types = [getattr(X, "dtype", None)] if columns is None else list(X.dtypes)
    for i, dtype in enumerate(types):
        temporal = getattr(dtype, "is_temporal", None)  # of polars
        if getattr(dtype, "kind", None) in ("m", "M") if temporal is None else temporal():
            where = name if columns is None else f"column {str(columns[i])!r} of {name}"
            raise ValueError(
                f"{where} holds dates or times ({dtype}): convert them to numbers first, such as "
                "days since a fixed date"
            )
    return X


def check_sparse(X: Any, name: str = "X") -> Any:
    """Return X; refuse a sparse matrix whose parts do not fit each other.

    Compiled code, scipy's included, trusts them: it would read and write anywhere in memory. Dense
    X is returned as it is.
    """
    if sp.issparse(X) and X.ndim == 2 and (reason := _malformed(X)):
        raise ValueError(
            f"{name} is a malformed sparse matrix: {reason}. Make it again from the row, the "
            "column and the value of each entry, with scipy.sparse.coo_array"
        )
    return X


def _malformed(X: Any) -> str | None:
    """What is wrong with a sparse matrix of two dimensions."""
    n, d = X.shape
    if X.format in ("csr", "csc", "bsr"):
        return _malformed_lines(X)
    if X.format == "coo":
        lengths = {len(X.row), len(X.col), len(X.data)}
        return _outside(X.row, n) or _outside(X.col, d) or _unequal(lengths)
    if X.format == "lil":
        lists = list(zip(X.rows, X.data, strict=True))
        if len(lists) != n or any(len(columns) != len(values) for columns, values in lists):
            return "its rows have lists of different lengths"
        return _outside(np.array([j for columns, _ in lists for j in columns], dtype=np.int64), d)
    if X.format == "dia":
        return _unequal({len(X.offsets), len(X.data)})
    return None  # a dict of entries, which scipy checks when it makes arrays of them


def _malformed_lines(X: Any) -> str | None:
    """What is wrong with rows, columns or rows of blocks."""
    shape = X.shape[::-1] if X.format == "csc" else X.shape
    blocks = X.blocksize if X.format == "bsr" else (1, 1)
    count, length = (each // block for each, block in zip(shape, blocks, strict=True))
    starts = X.indptr
    if starts.ndim != 1 or starts.dtype.kind not in "iu" or len(starts) != count + 1:
        return f"its indptr is not {count + 1} whole numbers"
    if starts[0] != 0 or (starts[1:] < starts[:-1]).any():
        return "its indptr does not rise from 0"
    if starts[-1] > min(len(X.indices), len(X.data)):
        return f"its indptr ends at {starts[-1]}, beyond its {len(X.indices)} indices"
    if X.data.shape[1:] != (blocks if X.format == "bsr" else ()):
        return f"its data have the shape {X.data.shape}"
    return _outside(X.indices[: starts[-1]], length)


def _outside(indices: NDArray[Any], length: int) -> str | None:
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        return "its indices are not whole numbers"
    if len(indices) and not 0 <= indices.min() <= indices.max() < length:
        return f"it has the index {indices[(indices < 0) | (indices >= length)][0]} of {length}"
    return None


def _unequal(lengths: set[int]) -> str | None:
    return f"its arrays have the lengths {sorted(lengths)}" if len(lengths) > 1 else None


def check_points(X: Any, name: str = "X", *, missing: bool = False) -> Any:
    """Convert X to finite float32 or float64 rows: a C-ordered array or canonical CSR.

    With ``missing``, NaN is accepted.
    """
    check_sparse(refuse_dates(X, name), name)
    with np.errstate(invalid="ignore"):  # in a sum of huge numbers of both signs
        X = check_array(
            X,
            accept_sparse="csr",
            dtype=FLOATS,
            order="C",
            input_name=name,
            ensure_all_finite="allow-nan" if missing else True,
        )
    return canonical_rows(X)


def valid_rows(estimator: Any, X: Any, reset: bool, **options: Any) -> Any:
    """Validate X, and ``y`` among the options, by scikit-learn for an estimator.

    With ``reset``, entries are refused whose squares overflow. NaN is accepted where the tags of
    the estimator say so.
    """
    check_sparse(refuse_dates(X))
    if get_tags(estimator).input_tags.allow_nan:
        options["ensure_all_finite"] = "allow-nan"
    with np.errstate(invalid="ignore"):
        found = validate_data(
            estimator, X, reset=reset, accept_sparse="csr", dtype=FLOATS, order="C", **options
        )
    X, *y = found if isinstance(found, tuple) else (found,)
    X = canonical_rows(X)
    if reset:
        check_range(X)
    return (X, *y) if y else X


def check_range(X: Any, name: str = "X") -> None:
    """Refuse entries whose squares overflow; float32 is squared in float64."""
    values = X.data if sp.issparse(X) else X
    if values.dtype != np.float64 or values.size == 0:
        return
    largest = float(max(np.fmax.reduce(values, axis=None), -np.fmin.reduce(values, axis=None)))
    if largest > LARGEST_ENTRY:
        raise ValueError(
            f"{name} has an entry of size {largest:.3g}, whose square exceeds what float64 can "
            f"hold: scale {name}"
        )


def canonical_rows(X: Any) -> Any:
    """Make CSR indices sorted and unique, in a copy if need be; dense X is returned as it is."""
    if not sp.issparse(X):
        return X
    # Not what X remembers of itself: its indices may have been changed since.
    view = sp.csr_array((X.data, X.indices, X.indptr), shape=X.shape)
    if view.has_canonical_format and len(X.indices) == len(X.data) == view.nnz:
        return X
    rows = type(X)(view, copy=True)
    rows.sum_duplicates()
    return rows


def sparse_output(Z: Any) -> Any:
    """Convert to a CSR matrix or array, as scikit-learn's ``sparse_interface`` asks."""
    interface = get_config().get("sparse_interface", "spmatrix")  # since scikit-learn 1.9
    return sp.csr_array(Z) if interface == "sparray" else sp.csr_matrix(Z)


def column_numbers(columns: Any, n_columns: int, names: Any = None) -> list[int]:
    """The numbers of columns that are given as numbers, names or a mask."""
    given = np.asarray(columns)
    if given.dtype == bool:
        if given.shape != (n_columns,):
            raise ValueError(f"a mask of {given.size} columns is for X with {n_columns}")
        return [int(i) for i in np.flatnonzero(given)]
    known = {} if names is None else {str(name): i for i, name in enumerate(names)}
    numbers = [known.get(str(c), c) for c in given.ravel().tolist()]
    for number in numbers:
        if not (isinstance(number, int) and 0 <= number < n_columns):
            raise ValueError(
                f"categorical_features names {number!r}, which is not one of the {n_columns} "
                "columns: use numbers from 0, names of a DataFrame, or a mask"
            )
    return sorted(set(numbers))


def check_positive(value: Any, name: str, why: str) -> float:
    """Return a finite number > 0."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r} must be a number: {why}")
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name}={value!r} must be finite and > 0: {why}")
    return number


def check_count(value: Any, name: str, why: str) -> int:
    """Return an integer >= 1."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r} must be an integer: {why}")
    if value < 1:
        raise ValueError(f"{name}={value!r} must be >= 1: {why}")
    return int(value)


def check_choice(value: Any, name: str, choices: tuple[Any, ...]) -> Any:
    """One of ``choices``; a numpy boolean stands for Python's."""
    value = bool(value) if isinstance(value, np.bool_) else value
    if not any(
        value is choice or (type(value) is type(choice) and value == choice) for choice in choices
    ):
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}={value!r} is unknown: use one of {listed}")
    return value


def check_coverage(value: Any, name: str = "coverage") -> float:
    """Return a share strictly between 0 and 1."""
    if isinstance(value, numbers.Real) and 0.0 < float(value) < 1.0:
        return float(value)
    raise ValueError(f"{name}={value!r} must be between 0 and 1, for example 0.9")


def available() -> int | None:
    """Bytes that this process can still allocate; None if the system does not say."""
    found = (_free_by_system(), _free_by_limit(), *_free_by_cgroup())
    return min((size for size in found if size is not None), default=None)


def check_memory(n_bytes: float, what: str, way_out: str) -> None:
    """Raise MemoryError if ``what``, which needs ``n_bytes``, does not fit."""
    if n_bytes <= UNCHECKED:
        return
    free = available()
    if free is not None and n_bytes > free:
        raise MemoryError(
            f"{what} needs {n_bytes / GIB:,.1f} GiB, but {free / GIB:,.1f} GiB are available: "
            f"{way_out}"
        )


def check_matrix(n_rows: int, n_columns: int, dtype: Any, what: str, way_out: str) -> None:
    """Refuse a matrix that does not fit; "{fits}" in ``way_out`` is the width that would."""
    row_bytes = float(n_rows) * np.dtype(dtype).itemsize
    _check_count(n_columns, row_bytes * n_columns, 1.0 / row_bytes, 1.0, what, way_out)


def check_square(size: int, entry_bytes: int, what: str, way_out: str) -> None:
    """Refuse square matrices that do not fit; "{fits}" is the size that would.

    ``entry_bytes`` are those of all matrices together.
    """
    needed = entry_bytes * float(size) ** 2
    _check_count(size, needed, 1.0 / entry_bytes, 0.5, what, way_out)


def _check_count(
    count: int, needed: float, per_byte: float, power: float, what: str, way_out: str
) -> None:
    if needed <= UNCHECKED:
        return
    fits = min(count, int(((available() or 0) * per_byte) ** power))
    check_memory(needed, what, way_out.format(fits=f"{fits:,}"))


def _free_by_system() -> int | None:
    """Memory available without swapping; all of the machine's if the system does not say."""
    found = _number(PROC / "meminfo", "MemAvailable:")
    if found is not None:
        return 1024 * found
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on this system
        return None


def _free_by_limit() -> int | None:
    """What a limit of this process' address space leaves, as by ``ulimit -v``."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    pages = _number(PROC / "self" / "statm") or 0
    return max(0, limit - pages * resource.getpagesize())


def _free_by_cgroup() -> Iterator[int | None]:
    """What the limits of a container leave; cached files do not count as used."""
    for folder, limit, used in (
        *((group, "memory.max", "memory.current") for group in _groups()),
        (CGROUP / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        highest, now = _number(folder / limit), _number(folder / used)
        if highest is not None and now is not None:
            cached = _number(folder / "memory.stat", "inactive_file") or 0
            yield max(0, highest - now + cached)


def _groups() -> list[Path]:
    """The control group of this process and its ancestors."""
    try:
        lines = (PROC / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    names = [line.removeprefix("0::").strip("/") for line in lines if line.startswith("0::")]
    folders = [CGROUP / name for name in names]
    return [group for folder in folders for group in (folder, *folder.parents) if _inside(group)]


def _inside(group: Path) -> bool:
    return group == CGROUP or CGROUP in group.parents


def _number(path: Path, name: str = "") -> int | None:
    """Return the first number in a file, or the one after a name; None if there is none."""
    try:
        words = path.read_text(encoding="utf-8").split()
    except OSError:
        return None
    place = (words.index(name) + 1 if name in words else len(words)) if name else 0
    return int(words[place]) if place < len(words) and words[place].isdigit() else None
