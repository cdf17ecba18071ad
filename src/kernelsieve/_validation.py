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


def check_points(X: Any, name: str = "X", *, missing: bool = False) -> Any:
    """Convert X to finite float32 or float64 rows: a C-ordered array or canonical CSR.

    With ``missing``, NaN is accepted.
    """
    refuse_dates(X, name)
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
    refuse_dates(X)
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


def check_range(X: Any) -> None:
    """Refuse entries whose squares overflow; float32 is squared in float64."""
    values = X.data if sp.issparse(X) else X
    if values.dtype != np.float64 or values.size == 0:
        return
    largest = float(max(np.fmax.reduce(values, axis=None), -np.fmin.reduce(values, axis=None)))
    if largest > LARGEST_ENTRY:
        raise ValueError(
            f"X has an entry of size {largest:.3g}, whose square exceeds what float64 can hold: "
            "scale X"
        )


def canonical_rows(X: Any) -> Any:
    """Make CSR indices sorted and unique, in a copy if need be; dense X is returned as it is."""
    if sp.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


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
    known = [size for size in (_free_by_system(), *_free_by_cgroup()) if size is not None]
    return min(known, default=None)


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
