"""The folders that are searched for data files, and the folder for downloads."""

from __future__ import annotations

import os
from pathlib import Path

from kernelsieve.datasets.entry import Entry


def cache_folder() -> Path:
    """Find the user's cache folder for downloads (``~/.cache/kernelsieve`` on Linux).

    Returns
    -------
    Path
    """
    import platformdirs

    return Path(platformdirs.user_cache_dir("kernelsieve", appauthor=False))


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Find the folder that is searched first for data files.

    Parameters
    ----------
    folder : path, optional
        None takes the environment variable ``KERNELSIEVE_DATA``, or else the cache folder.

    Returns
    -------
    Path
    """
    chosen = folder or os.environ.get("KERNELSIEVE_DATA")
    return Path(chosen).expanduser() if chosen else cache_folder()


def find_files(entry: Entry, folder: str | os.PathLike[str] | None = None) -> Path | None:
    """Find the folder that holds all files of a dataset.

    Parameters
    ----------
    entry : Entry
        As `describe` returns it.
    folder : path, optional
        The folder to search before the cache folder; see `data_folder`.

    Returns
    -------
    Path or None
    """
    for candidate in (data_folder(folder), cache_folder()):
        if all((candidate / file).is_file() for file in entry.files):
            return candidate
    return None
