"""Load a dataset from local files or a download, and check its content."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kernelsieve.datasets.download import install
from kernelsieve.datasets.entry import DAMAGE, Dataset, DatasetError, Entry
from kernelsieve.datasets.folders import cache_folder, data_folder, find_files
from kernelsieve.datasets.registry import describe
from kernelsieve.datasets.verify import checked


def load(
    name: str,
    *,
    folder: str | os.PathLike[str] | None = None,
    download: bool = True,
    progress: bool = False,
) -> Dataset:
    """Load a dataset by name and check that it is what its name says.

    Built-in data need no file. Other files are searched in ``folder`` (by default the one that the
    environment variable ``KERNELSIEVE_DATA`` names) and in the user's cache folder, and downloaded
    to the cache folder if they are missing.

    Parameters
    ----------
    name : str
        One of :func:`names`.
    folder : path, optional
        The folder to search first.
    download : bool, default True
        Whether to download missing files.
    progress : bool, default False
        Show a progress bar while downloading.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> data = load("product")
    >>> data.X.shape, data.feature_names[:2], data.n_train
    ((2000, 15), ('x1', 'x2'), None)
    """
    entry = describe(name)
    where = _ensure(entry, folder, download, progress)
    try:
        X, y = checked(entry, *entry.read(where))
    except DAMAGE as error:
        files = ", ".join(str(where / file) for file in entry.files) or "the generator"
        raise DatasetError(f"{files} is not the dataset {name!r}: {error}") from error
    return Dataset(
        name=entry.name,
        X=X,
        y=y,
        feature_names=entry.feature_names,
        target_name=entry.target_name,
        task=entry.task,
        description=entry.description,
        licence=entry.licence,
        n_train=entry.n_train,
    )


def ensure_files(
    names: Iterable[str],
    *,
    folder: str | os.PathLike[str] | None = None,
    download: bool = True,
    progress: bool = False,
) -> None:
    """Make sure that the files of datasets exist; download missing ones.

    Parameters
    ----------
    names : iterable of str
    folder : path, optional
        The folder to search first.
    download : bool, default True
        Whether to download missing files.
    progress : bool, default False
        Show a progress bar while downloading.

    Raises
    ------
    FileNotFoundError
        If a file is missing and cannot or must not be downloaded; the message says what to do.
    DatasetError
        If a download fails.
    """
    for name in names:
        _ensure(describe(name), folder, download, progress)


def _ensure(
    entry: Entry, folder: str | os.PathLike[str] | None, download: bool, progress: bool
) -> Path:
    """The folder with the entry's files."""
    where = find_files(entry, folder)
    if where is not None:
        return where
    if download and entry.origin is not None:
        install(entry, entry.origin, cache_folder(), progress)
        return cache_folder()
    raise FileNotFoundError(f"dataset {entry.name!r} {what_to_do(entry, data_folder(folder))}")


def what_to_do(entry: Entry, folder: Path) -> str:
    """Explain how to get a missing dataset by hand."""
    files = " and ".join(entry.files)
    made = f" (made from {entry.origin.address})" if entry.origin is not None else ""
    return (
        f"needs {files}{made}, looked for in {folder}: put it there, or set KERNELSIEVE_DATA to "
        "the folder that has it"
    )
