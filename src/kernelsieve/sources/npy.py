"""Rows in memory-mapped .npy files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.sources.base import Block
from kernelsieve.sources.stream import StreamSource

READ_BYTES = 2**25  # of a block that is read from the file at once


class NpySource(StreamSource):
    """The rows of a .npy file, which is memory-mapped and read on demand.

    Parameters
    ----------
    path : str or path
        File with a matrix of numbers; integers are converted to float64.
    y : str, path or array-like, optional
        Another .npy file (also memory-mapped), or numbers or labels in memory.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from kernelsieve import FourierFeatures
    >>> from kernelsieve.sources import NpySource
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/X.npy", np.random.default_rng(0).normal(size=(1000, 3)))
    ...     source = NpySource(f"{folder}/X.npy")
    ...     Z = FourierFeatures(20, random_state=0).fit(source).transform(source)
    ...     Z.save(f"{folder}/Z.npy")
    ...     np.load(f"{folder}/Z.npy").shape
    (1000, 20)
    """

    def __init__(self, path: str | os.PathLike[str], y: Any = None) -> None:
        self.where = os.fspath(path)
        self._X = mapped(path)
        if self._X.ndim != 2:
            raise ValueError(
                f"{self.where} has {self._X.ndim} dimensions: it must be a matrix of shape (n, d)"
            )
        super().__init__(*self._X.shape)
        self._y = mapped(y) if isinstance(y, str | os.PathLike) else y
        if self._y is not None:
            self._y = np.asanyarray(self._y)
            if len(self._y) != len(self._X):
                raise ValueError(f"y has {len(self._y)} rows and {self.where} has {len(self._X)}")
        self.target_shape = None if self._y is None else self._y.shape[1:]
        row_bytes = max(1, self._X.shape[1] * self._X.itemsize)
        self._block_rows = max(1, READ_BYTES // row_bytes)
        self.n_blocks = -(-len(self._X) // self._block_rows)

    @property
    def stored(self) -> Any:
        """The file's rows, unless they are of another type or order than models keep."""
        usable = self._X.dtype == self.dtype and self._X.flags.c_contiguous
        return np.asarray(self._X) if usable else None

    def raw_blocks(self) -> Iterator[tuple[Any, Any]]:
        for start in range(0, len(self._X), self._block_rows):
            rows = slice(start, start + self._block_rows)
            yield np.asarray(self._X[rows]), None if self._y is None else np.asarray(self._y[rows])

    def take(self, rows: NDArray[np.int64]) -> Block:
        y = None if self._y is None else np.asarray(self._y[rows])
        return Block(np.ascontiguousarray(self._X[rows]).astype(self.dtype, copy=False), y)

    def expect(self, rows: NDArray[np.int64]) -> None:
        """Do nothing: every row can be read directly."""


def mapped(path: str | os.PathLike[str]) -> Any:
    """Open the array of a .npy file without reading it."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:  # not a .npy file, or a shorter one than its header says
        raise ValueError(f"{os.fspath(path)} cannot be memory-mapped: {error}") from error
