"""Products with the kernel matrix of rows that come in blocks: from files, or on other machines.

A block of rows is held at a time and meets all others where they are, so one product takes as many
passes over the rows as there are blocks to hold. Each pair of rows is computed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.kernels.base import Kernel
from kernelsieve.kernels.matrix import KernelMatrix
from kernelsieve.sources.base import Block, Source, rows_between

# Rows that are held: reading a row then costs little beside so many kernel values with it.
HELD_ROWS = 16_384
HELD_BYTES = 2**28  # and at most so many bytes of them in float64
MET_ROWS = 4096  # rows of a block that they meet

Array = NDArray[np.float64]


class StreamedKernelMatrix:
    """The symmetric kernel matrix of the rows of a source, to multiply with.

    Parameters
    ----------
    kernel : Kernel
    rows : Source
    dtype : float32 or float64
        Of the tiles, as for `KernelMatrix`.
    n_jobs : int or None
        Number of threads, where the source does not decide that itself.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.kernels import Gaussian
    >>> from kernelsieve.models._streamed_kernel import StreamedKernelMatrix
    >>> from kernelsieve.sources import BlockSource
    >>> X, v = np.random.default_rng(0).normal(size=(300, 3)), np.ones((300, 1))
    >>> K = StreamedKernelMatrix(Gaussian(), BlockSource([X[:200], X[200:]]), np.float64, None)
    >>> bool(np.allclose(K @ v, Gaussian()(X) @ v))
    True
    """

    def __init__(self, kernel: Kernel, rows: Source, dtype: Any, n_jobs: int | None) -> None:
        n, d = rows.shape
        self.kernel, self.rows = kernel, rows
        self.shape = n, n
        self.dtype, self.n_jobs = np.dtype(dtype), n_jobs
        self.held_rows = max(1, min(HELD_ROWS, HELD_BYTES // (8 * max(1, d))))

    def __matmul__(self, V: Array) -> Array:
        """K V for V of shape (n, k), in float64."""
        product = np.zeros(V.shape)
        for held in self.rows.parts(self.held_rows):
            meet = _Meet(self.kernel, held.X, held.start, V[held.start :], self.dtype)
            for met in self.rows.map(meet, MET_ROWS, self.n_jobs):
                if met is not None:
                    product[met.rows] += met.own
                    product[held.rows] += met.held
        return product


@dataclass(frozen=True)
class _Met:
    """What a block and the held rows add to each other's products."""

    rows: slice
    own: Array
    held: Array | float


@dataclass(frozen=True)
class _Meet:
    """Held rows, which are sent to where the others are.

    ``V`` begins with their own part: what comes before them is done already.
    """

    kernel: Kernel
    X: Any
    start: int
    V: Array
    dtype: Any

    def __call__(self, block: Block) -> _Met | None:
        stop = self.start + self.X.shape[0]
        first, end = block.start, block.start + len(block)
        if end <= self.start:
            return None
        first = max(first, self.start)
        middle = min(max(first, stop), end)  # up to here they are held rows themselves
        own = np.empty((end - first, self.V.shape[1]))
        held: Array | float = 0.0
        V = self.V[: stop - self.start]
        if first < middle:
            own[: middle - first] = self._matrix(block, first, middle) @ V
        if middle < end:
            others = self.V[middle - self.start : end - self.start]
            own[middle - first :], held = self._matrix(block, middle, end).both(V, others)
        return _Met(slice(first, end), own, held)

    def _matrix(self, block: Block, first: int, end: int) -> KernelMatrix:
        rows = rows_between(block.X, first - block.start, end - block.start)
        exact = (points.astype(np.float64, copy=False) for points in (rows, self.X))
        return KernelMatrix(self.kernel, *exact, dtype=self.dtype, n_jobs=1)
