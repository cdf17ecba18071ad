"""Datasets, and the entries that describe them before they are loaded."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Task = Literal["regression", "classification"]
Arrays = tuple[Any, Any]

# Raised by readers for a truncated file or another format.
DAMAGE = (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile, zlib.error)


class DatasetError(ValueError):
    """A dataset that is unknown, unavailable, or not what its name says."""


@dataclass(frozen=True)
class Dataset:
    """Inputs, targets, and a description of them.

    Attributes
    ----------
    name : str
    X : ndarray or CSR array of shape (n, d)
        float64, neither standardised nor shuffled.
    y : ndarray of shape (n,)
        float64; class labels are numbers too.
    feature_names : tuple of str, of length d
    target_name : str
    task : "regression" or "classification"
    description : str
        One line.
    licence : str
    n_train : int or None
        The first ``n_train`` rows are the official training set; None if there is no such split.
    """

    name: str
    X: Any
    y: NDArray[np.float64]
    feature_names: tuple[str, ...]
    target_name: str
    task: Task
    description: str
    licence: str
    n_train: int | None = None


class Origin(Protocol):
    """Where a dataset can be downloaded."""

    @property
    def address(self) -> str:
        """The address, for messages."""

    def fetch(self, scratch: Path, progress: bool) -> Arrays:
        """Download to the folder ``scratch`` and return X and y."""


@dataclass(frozen=True)
class Entry:
    """A row of the registry.

    ``read`` makes X and y from the folder that holds ``files``. A file is known by its content:
    ``checksum`` (of the values, however they are stored), the counts of the labels, or the range
    and the mean of the target.
    """

    name: str
    n_rows: int
    n_features: int
    description: str
    target_name: str
    licence: str
    read: Callable[[Path], Arrays]
    feature_names: tuple[str, ...]
    task: Task = "regression"
    n_train: int | None = None
    files: tuple[str, ...] = ()
    origin: Origin | None = None
    checksum: str | None = None
    label_counts: Mapping[int, int] | None = None
    target_range: tuple[float, float] | None = None
    target_mean: float | None = None

    @property
    def built_in(self) -> bool:
        """Whether no file is needed."""
        return not self.files
