"""Downloads that are complete and checked, or do not exist."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from kernelsieve.datasets.entry import DAMAGE, DatasetError, Entry, Origin
from kernelsieve.datasets.verify import checked

TIMEOUT_SECONDS = 30
STALE_SECONDS = 24 * 3600


def install(entry: Entry, origin: Origin, folder: Path, progress: bool) -> None:
    """Download a dataset, check it, and move its files into ``folder``.

    All work is done in a scratch folder that is always removed. A file appears under its own name
    only when it is complete and its content is right.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        with tempfile.TemporaryDirectory(dir=folder, prefix=f".partial-{entry.name}-") as scratch:
            here = Path(scratch)
            X, y = origin.fetch(here, progress)
            write_files(entry, X, y, here)
            checked(entry, *entry.read(here))
            for file in entry.files:
                os.replace(here / file, folder / file)
    except DAMAGE as error:  # requests' errors are OSErrors
        raise DatasetError(
            f"dataset {entry.name!r} could not be downloaded from {origin.address}: "
            f"{' '.join(str(error).split()) or type(error).__name__}. Put "
            f"{' and '.join(entry.files)} into a folder and set KERNELSIEVE_DATA to it"
        ) from error


def write_files(entry: Entry, X: Any, y: Any, folder: Path) -> None:
    """Write the files of an entry in the form that its reader expects."""
    if sp.issparse(X):
        sp.save_npz(folder / entry.files[0], sp.csr_matrix(X))
        np.save(folder / entry.files[1], y)
    else:
        np.savez_compressed(folder / entry.files[0], X=X, y=y)


def _sweep(folder: Path) -> None:
    """Remove scratch folders that a killed process left at least a day ago."""
    for left in folder.glob(".partial-*"):
        if time.time() - left.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(left, ignore_errors=True)


def retrieve(url: str, folder: Path, progress: bool, sha256: str | None = None) -> Path:
    """Download ``url`` into ``folder``; with ``sha256`` also compare the file's checksum."""
    import pooch

    pooch.get_logger().setLevel("WARNING")
    name = url.rsplit("/", 1)[-1]
    with _Bar(name, progress) as bar:
        downloader = pooch.HTTPDownloader(progressbar=bar, timeout=TIMEOUT_SECONDS)
        path = pooch.retrieve(
            url, known_hash=sha256, fname=name, path=folder, downloader=downloader
        )
    return Path(path)


class _Bar:
    """A progress bar that pooch can drive: it sets ``total`` and calls ``update``."""

    def __init__(self, description: str, visible: bool) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TransferSpeedColumn,
        )

        columns = (
            TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        )  # fmt: skip
        console = Console(stderr=True)
        self.progress = Progress(
            *columns, console=console, transient=True, disable=not (visible and console.is_terminal)
        )
        self.task = self.progress.add_task(description, total=None)
        self.total = 0

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.stop()

    def update(self, n_bytes: int) -> None:
        """Count more bytes."""
        self.progress.update(self.task, total=self.total or None, advance=n_bytes)

    def reset(self) -> None:
        """Pooch resets the bar at the end and fills it again."""
        self.progress.reset(self.task)

    def close(self) -> None:
        """Called by pooch; the bar ends with the ``with`` block."""
