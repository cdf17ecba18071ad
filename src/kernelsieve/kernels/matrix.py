"""Products with kernel matrices that are never stored: a tile at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._parallel import ordered_map, row_blocks
from kernelsieve.kernels.base import Kernel
from kernelsieve.kernels.product import Product

STRIP_ROWS = 128
STRIP_COLUMNS = 1024  # 128 x 1024 are half a megabyte of float32
FEWEST_PANELS = 32
LARGEST_PANEL = 1024  # rows

EXP_COLUMNS = 10  # that take as long as exp

Array = NDArray[np.float64]


def product_work(kernel: Kernel, n_rows: int, n_columns: int) -> float:
    """Differences of coordinates in a product with the kernel matrix of n rows.

    About 1e10 of them take a second on one core.
    """
    active = len(kernel.active(n_columns)) if isinstance(kernel, Product) else n_columns
    return n_rows**2 / 2 * (active + EXP_COLUMNS)


class KernelMatrix:
    """The kernel matrix of two sets of rows, to multiply with.

    A tile of it exists at a time. Of a symmetric matrix each tile is computed once and serves both
    halves. The product is the same for any number of threads: rows are split by their number alone,
    and sums over tiles are taken in order, in float64.

    Parameters
    ----------
    kernel : Kernel
    X : {ndarray, CSR} of shape (n, d)
        Valid rows.
    Y : {ndarray, CSR} of shape (m, d), optional
        None takes the rows of X.
    dtype : float32 or float64, default float32
        Of the tiles. Values have the rounding error of this type, relative to 1.
    n_jobs : int, optional
        Number of threads; None uses all cores.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.kernels import Gaussian
    >>> from kernelsieve.kernels.matrix import KernelMatrix
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> v = np.ones((300, 1))
    >>> bool(np.allclose(KernelMatrix(Gaussian(), X) @ v, Gaussian()(X) @ v, atol=1e-4))
    True
    """

    def __init__(
        self,
        kernel: Kernel,
        X: Any,
        Y: Any = None,
        *,
        dtype: Any = np.float32,
        n_jobs: int | None = None,
    ) -> None:
        self.symmetric = Y is None or Y is X
        self.shape: tuple[int, int] = X.shape[0], X.shape[0] if Y is None else Y.shape[0]
        self.dtype, self.n_jobs = np.dtype(dtype), n_jobs
        self._tiles = kernel.tiles(X, X if self.symmetric else Y, self.dtype)

    def __matmul__(self, V: NDArray[Any]) -> Array:
        """K V for V of shape (m, k), in float64."""
        narrow, scale = self._narrow(V)
        product = np.zeros((self.shape[0], V.shape[1]))
        for rows, part in self._panels(lambda rows: self._panel(rows, narrow)):
            product[rows.start : rows.start + len(part)] += part
        return product * scale

    def both(self, V: NDArray[Any], W: NDArray[Any]) -> tuple[Array, Array]:
        """K V and K^T W for V of shape (m, k) and W of shape (n, k), from the same tiles.

        For a matrix that is not symmetric: a block beside the diagonal of one that is.
        """
        right, right_scale = self._narrow(V)
        left, left_scale = self._narrow(W)
        product, transposed = np.zeros(W.shape), np.zeros(V.shape)
        for rows, (own, below) in self._panels(lambda rows: self._both_panel(rows, right, left)):
            product[rows.start : rows.start + len(own)] = own
            transposed += below
        return product * right_scale, transposed * left_scale

    def columns(self, numbers: NDArray[np.int64]) -> KernelMatrix:
        """The same rows and some of the columns; what is stored of the rows is shared."""
        some = copy.copy(self)
        some.symmetric, some.shape = False, (self.shape[0], len(numbers))
        some._tiles = self._tiles.take(numbers)
        return some

    def _panel_rows(self) -> int:
        """Rows of a panel: enough panels for all threads, by the number of rows alone."""
        wanted = -(-self.shape[0] // FEWEST_PANELS)
        return min(LARGEST_PANEL, STRIP_ROWS * max(1, -(-wanted // STRIP_ROWS)))

    def _narrow(self, V: NDArray[Any]) -> tuple[NDArray[Any], Array]:
        """Columns of size 1 in the float type of the tiles, and their sizes."""
        scale = np.abs(V).max(axis=0, initial=0.0)
        scale = np.where((scale > 0) & np.isfinite(scale), scale, 1.0)
        return np.ascontiguousarray(V / scale, dtype=self.dtype), scale

    def _panels(self, function: Callable[[slice], Any]) -> Iterator[tuple[slice, Any]]:
        """Panels of rows in order, with what a function makes of each."""
        panels = row_blocks(self.shape[0], self._panel_rows())
        return zip(panels, ordered_map(function, panels, self.n_jobs), strict=True)

    def _panel(self, panel: slice, V: NDArray[Any]) -> Array:
        """What some rows of K add to the product: for a symmetric K to all rows from theirs on."""
        stop = min(panel.stop, self.shape[0])
        last = self.shape[0] if self.symmetric else stop
        total = np.zeros((last - panel.start, V.shape[1]))
        for rows, columns, tile in self._tiles_of(panel):
            total[rows.start - panel.start : rows.stop - panel.start] += tile @ V[columns]
            right = max(columns.start, stop)
            if self.symmetric and right < columns.stop:
                below = tile[:, right - columns.start :].T @ V[rows]
                total[right - panel.start : columns.stop - panel.start] += below
        return total

    def _both_panel(self, panel: slice, V: NDArray[Any], W: NDArray[Any]) -> tuple[Array, Array]:
        """Some rows of K V, and what they add to K^T W."""
        own = np.zeros((min(panel.stop, self.shape[0]) - panel.start, V.shape[1]))
        below = np.zeros(V.shape)
        for rows, columns, tile in self._tiles_of(panel):
            own[rows.start - panel.start : rows.stop - panel.start] += tile @ V[columns]
            below[columns] += tile.T @ W[rows]
        return own, below

    def _tiles_of(self, panel: slice) -> Iterator[tuple[slice, slice, NDArray[Any]]]:
        """Rows, columns and values of the tiles of a panel; the next one takes the same memory.

        Left of the diagonal block of a symmetric matrix all was done by the panels above.
        """
        n, m = self.shape
        buffer = np.empty(STRIP_ROWS * STRIP_COLUMNS, dtype=self.dtype)
        stop = min(panel.stop, n)
        for start in range(panel.start if self.symmetric else 0, m, STRIP_COLUMNS):
            columns = slice(start, min(start + STRIP_COLUMNS, m))
            for top in range(panel.start, stop, STRIP_ROWS):
                rows = slice(top, min(top + STRIP_ROWS, stop))
                shape = rows.stop - rows.start, columns.stop - columns.start
                tile = buffer[: shape[0] * shape[1]].reshape(shape)
                self._tiles(rows, columns, tile)
                yield rows, columns, tile
