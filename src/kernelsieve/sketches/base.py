"""What sketches share: a distribution is sampled into an operator, which is applied to rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._parallel import map_row_blocks
from kernelsieve._validation import check_points

BLOCK_BYTES = 2**20  # of the widest array that a block of rows needs
FEWEST_ROWS = 16  # in a block, however wide


class Sketch(ABC):
    """A sampled sketch: a linear map that was drawn, of a row or of its tensor power.

    Attributes
    ----------
    n_features : int
        Columns of the rows that it takes.
    size : int
        Columns of what it gives.
    """

    n_features: int
    size: int

    def apply(self, X: Any, *, n_jobs: int | None = None) -> NDArray[Any]:
        """The sketch of every row of X.

        Parameters
        ----------
        X : {array-like, CSR} of shape (n, n_features)
        n_jobs : int, default all cores

        Returns
        -------
        ndarray of shape (n, size), in the float type of X
        """
        X = self._checked(X)
        out = np.empty((X.shape[0], self.size), dtype=X.dtype)
        map_row_blocks(
            lambda rows: self.fill(X[rows], out[rows]),
            X.shape[0],
            self.block_rows(X.dtype),
            n_jobs,
        )
        return out

    @abstractmethod
    def fill(self, X: Any, out: NDArray[Any]) -> None:
        """Write the sketch of the valid rows X into ``out``, in this thread."""

    def block_rows(self, dtype: Any) -> int:
        """Rows at a time that stay in the cache."""
        row_bytes = max(self.widest, 1) * np.dtype(dtype).itemsize
        return int(np.clip(BLOCK_BYTES // row_bytes, FEWEST_ROWS, 1024))

    @property
    def widest(self) -> int:
        """Entries that one row needs while it is sketched."""
        return self.size

    def _checked(self, X: Any) -> Any:
        X = check_points(X)
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"X has {X.shape[1]} columns, and this sketch was sampled for {self.n_features}"
            )
        return X


class TensorPowerSketch(Sketch):
    """A sketch of x_1 (x) ... (x) x_degree, which is never formed."""

    degree: int

    def apply_product(self, factors: Any, *, n_jobs: int | None = None) -> NDArray[Any]:
        """The sketch of the tensor products of corresponding rows of ``degree`` matrices."""
        factors = [self._checked(X) for X in factors]
        if len(factors) != self.degree:
            raise ValueError(f"{len(factors)} factors for a sketch of degree {self.degree}")
        n = factors[0].shape[0]
        if any(X.shape[0] != n for X in factors):
            raise ValueError("the factors have different numbers of rows")
        dtype = np.result_type(*factors)
        out = np.empty((n, self.size), dtype=dtype)
        map_row_blocks(
            lambda rows: self.fill_product([X[rows] for X in factors], out[rows]),
            n,
            self.block_rows(dtype),
            n_jobs,
        )
        return out

    def fill(self, X: Any, out: NDArray[Any]) -> None:
        self.fill_product([X] * self.degree, out)

    @abstractmethod
    def fill_product(self, factors: list[Any], out: NDArray[Any]) -> None:
        """Write the sketch of the products of valid rows into ``out``, in this thread."""


def power_of_two(size: int) -> int:
    """The smallest power of two that is not below ``size``."""
    return 1 << max(0, int(size - 1).bit_length())
