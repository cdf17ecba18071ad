"""The folders that are searched for data files, and the folder for downloads."""

from __future__ import annotations

import os
from pathlib import Path

from kernelsieve.datasets.entry import Entry


def cache_folder() -> Path:
    """The user's cache folder for downloads (``~/.cache/kernelsieve`` on Linux)."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("kernelsieve", appauthor=False))


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder that is searched first.

    This is ``folder`` if given, else the environment variable ``KERNELSIEVE_DATA``, else the cache
    folder.
    """
    chosen = folder or os.environ.get("KERNELSIEVE_DATA")
    return Path(chosen).expanduser() if chosen else cache_folder()


def find_files(entry: Entry, folder: str | os.PathLike[str] | None = None) -> Path | None:
    """Find the folder with all files of a dataset: the data folder, the cache folder, or None."""
    for candidate in (data_folder(folder), cache_folder()):
        if all((candidate / file).is_file() for file in entry.files):
            return candidate
    return None
