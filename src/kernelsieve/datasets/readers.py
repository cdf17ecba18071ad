"""Readers of local files: from the folder of a dataset to X and y."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelsieve.datasets.entry import Arrays, DatasetError

NOT_SEEN = 100  # uji: the access point was not seen


def npz(file: str) -> Callable[[Path], Arrays]:
    """A reader of ``file``, an .npz that holds X and y."""

    def read(folder: Path) -> Arrays:
        with np.load(folder / file, allow_pickle=False) as archive:
            missing = {"X", "y"} - set(archive.files)
            if missing:
                raise DatasetError(f"it has no array {' and '.join(sorted(missing))}")
            return archive["X"], archive["y"]

    return read


def uji(folder: Path) -> Arrays:
    """Signals in dBm; -105, just below the weakest, puts "not seen" where it belongs."""
    signal, longitude = npz("uji.npz")(folder)
    return np.where(signal == NOT_SEEN, -105, signal), longitude


def sparse(name: str) -> Callable[[Path], Arrays]:
    """A reader of ``name.npz``, a sparse matrix of scipy's, and ``name_y.npy``."""

    def read(folder: Path) -> Arrays:
        X: Any = sp.load_npz(folder / f"{name}.npz")
        return X, np.load(folder / f"{name}_y.npy", allow_pickle=False)

    return read


def bundled(loader: str) -> Callable[[Path], Arrays]:
    """A reader of one of the datasets that come with scikit-learn."""

    def read(_: Path) -> Arrays:
        from sklearn import datasets

        X, y = getattr(datasets, loader)(return_X_y=True)
        return X, y

    return read
