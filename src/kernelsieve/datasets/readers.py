"""Readers of local files: X and y from the folder of a dataset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from kernelsieve.datasets.entry import Arrays, DatasetError
from kernelsieve.sources.npz import read_arrays

NOT_SEEN = 100  # uji: the access point was not seen


def npz(file: str) -> Callable[[Path], Arrays]:
    """Make a reader of ``file``, a .npz with arrays X and y."""

    def read(folder: Path) -> Arrays:
        arrays = read_arrays(folder / file)
        missing = {"X", "y"} - set(arrays)
        if missing:
            raise DatasetError(f"it has no array {' and '.join(sorted(missing))}")
        return arrays["X"], arrays["y"]

    return read


def uji(folder: Path) -> Arrays:
    """Read signals in dBm; "not seen" becomes -105, just below the weakest signal."""
    signal, longitude = npz("uji.npz")(folder)
    return np.where(signal == NOT_SEEN, -105, signal), longitude


def sparse(name: str) -> Callable[[Path], Arrays]:
    """Make a reader of ``name.npz``, a sparse matrix of scipy, and ``name_y.npy``."""

    def read(folder: Path) -> Arrays:
        X = read_arrays(folder / f"{name}.npz")["matrix"]
        return X, np.load(folder / f"{name}_y.npy", allow_pickle=False)

    return read


def bundled(loader: str) -> Callable[[Path], Arrays]:
    """Make a reader of a dataset that comes with scikit-learn."""

    def read(_: Path) -> Arrays:
        from sklearn import datasets

        X, y = getattr(datasets, loader)(return_X_y=True)
        return X, y

    return read
