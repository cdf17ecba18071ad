"""Base classes of sketches: sampling a distribution gives an operator on rows."""

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
    """A sampled sketch: a random linear map of a row or of its tensor power.

    Attributes
    ----------
    n_features : int
        Number of input columns.
    size : int
        Number of output columns.
    """

    n_features: int
    size: int

    def apply(self, X: Any, *, n_jobs: int | None = None) -> NDArray[Any]:
        """Sketch every row of X.

        Parameters
        ----------
        X : {array-like, CSR} of shape (n, n_features)
        n_jobs : int, optional
            Number of threads; None uses all cores.

        Returns
        -------
        sketches : ndarray of shape (n, size), in the float type of X
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
        """Number of rows in a block that stays in the cache."""
        row_bytes = max(self.widest, 1) * np.dtype(dtype).itemsize
        return int(np.clip(BLOCK_BYTES // row_bytes, FEWEST_ROWS, 1024))

    @property
    def widest(self) -> int:
        """Number of entries that one row needs while it is sketched."""
        return self.size

    def _checked(self, X: Any) -> Any:
        X = check_points(X)
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"X has {X.shape[1]} columns, but this sketch was sampled for {self.n_features}"
            )
        return X


class TensorPowerSketch(Sketch):
    """A sketch of x_1 (x) ... (x) x_degree, which is never formed."""

    degree: int

    def apply_product(self, factors: Any, *, n_jobs: int | None = None) -> NDArray[Any]:
        """Sketch the tensor products of corresponding rows of several matrices.

        Parameters
        ----------
        factors : list of ``degree`` {array-like, CSR} of shape (n, n_features)
        n_jobs : int, optional
            Number of threads; None uses all cores.

        Returns
        -------
        sketches : ndarray of shape (n, size)
        """
        factors = [self._checked(X) for X in factors]
        if len(factors) != self.degree:
            raise ValueError(
                f"there are {len(factors)} factors, but the degree of this sketch is {self.degree}"
            )
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
    """Return the smallest power of two that is at least ``size``."""
    return 1 << max(0, int(size - 1).bit_length())
