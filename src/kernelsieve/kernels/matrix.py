"""Products with kernel matrices that are never stored: a tile at a time."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._parallel import ordered_map, row_blocks
from kernelsieve.kernels.base import Kernel
from kernelsieve.kernels.product import Product

TILE_ROWS, TILE_COLUMNS = 128, 1024  # half a megabyte of float32
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
        scale = np.abs(V).max(axis=0, initial=0.0)
        scale = np.where((scale > 0) & np.isfinite(scale), scale, 1.0)
        narrow = np.ascontiguousarray(V / scale, dtype=self.dtype)
        n = self.shape[0]
        product = np.zeros((n, V.shape[1]))
        panels = row_blocks(n, self._panel_rows())
        for rows, part in zip(
            panels, ordered_map(lambda rows: self._panel(rows, narrow), panels, self.n_jobs),
            strict=True,
        ):  # fmt: skip
            product[rows.start : rows.start + len(part)] += part
        return product * scale

    def columns(self, numbers: NDArray[np.int64]) -> KernelMatrix:
        """The same rows and some of the columns; what is stored of the rows is shared."""
        some = copy.copy(self)
        some.symmetric, some.shape = False, (self.shape[0], len(numbers))
        some._tiles = self._tiles.take(numbers)
        return some

    def _panel_rows(self) -> int:
        """Rows of a panel: enough panels for all threads, by the number of rows alone."""
        wanted = -(-self.shape[0] // FEWEST_PANELS)
        return min(LARGEST_PANEL, TILE_ROWS * max(1, -(-wanted // TILE_ROWS)))

    def _panel(self, panel: slice, V: NDArray[Any]) -> Array:
        """What some rows of K add to the product: for a symmetric K to all rows from theirs on."""
        n, m = self.shape
        first = panel.start if self.symmetric else 0
        last = n if self.symmetric else panel.stop
        total = np.zeros((last - panel.start, V.shape[1]))
        buffer = np.empty(TILE_ROWS * TILE_COLUMNS, dtype=self.dtype)
        own = slice(panel.start, min(panel.stop, n))
        for start in range(first, m, TILE_COLUMNS):
            columns = slice(start, min(start + TILE_COLUMNS, m))
            for top in range(own.start, own.stop, TILE_ROWS):
                rows = slice(top, min(top + TILE_ROWS, own.stop))
                # Left of the diagonal block of this panel all was done by the panels above.
                shape = rows.stop - rows.start, columns.stop - columns.start
                tile = buffer[: shape[0] * shape[1]].reshape(shape)
                self._tiles(rows, columns, tile)
                total[rows.start - own.start : rows.stop - own.start] += tile @ V[columns]
                right = max(columns.start, own.stop)
                if self.symmetric and right < columns.stop:
                    below = tile[:, right - columns.start :].T @ V[rows]
                    total[right - own.start : columns.stop - own.start] += below
        return total
