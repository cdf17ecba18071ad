"""How the features of valid rows are computed: block by block, from what a subclass fills in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._parallel import map_row_blocks, row_blocks
from kernelsieve._validation import check_matrix
from kernelsieve.kernels import Kernel

OUTPUT_BYTES = 2**21  # of output per block: what a core's second-level cache holds
SMALLER_OUTPUT = (
    "at most {fits} features would fit; lower n_components, pass float32, or transform a source of "
    "kernelsieve.sources, which goes block by block"
)


class Evaluation(ABC):
    """The features of rows that are known to be valid, for maps that implement ``_fill``."""

    _rows_at_once: ClassVar[int | None] = None  # rows of a block; None lets the output decide

    n_jobs: int | None

    kernel_: Kernel
    n_components_: int
    n_features_in_: int

    @abstractmethod
    def _fill(self, X: Any, out: NDArray[Any]) -> None:
        """Write the features of the validated rows X into ``out``."""

    def _transform(self, X: Any) -> Any:
        """``transform`` of validated rows."""
        if sp.issparse(X) and self._csr(X[:1]) is not None:
            size = self._block_rows(X.dtype)
            blocks = map_row_blocks(
                lambda rows: self.transform_block(X[rows]), X.shape[0], size, self.n_jobs
            )
            return sp.vstack(blocks, format="csr")
        Z = self._empty(X.shape[0], X.dtype)
        map_row_blocks(
            lambda rows: self._fill_finite(X[rows], Z[rows]),
            X.shape[0],
            self._block_rows(X.dtype),
            self.n_jobs,
        )
        return Z

    def _empty(self, n_rows: int, dtype: Any) -> NDArray[Any]:
        """Allocate the features of ``n_rows`` rows, unless they would not fit in memory."""
        s, dtype = self.n_components_, np.dtype(dtype)
        what = f"transform of {n_rows:,} rows to {s:,} features in {dtype}"
        check_matrix(n_rows, s, dtype, what, SMALLER_OUTPUT)
        return np.empty((n_rows, s), dtype=dtype)

    def transform_block(self, X: Any) -> Any:
        """Compute the features of a block of rows that are known to be valid, in this thread.

        Parameters
        ----------
        X : {ndarray, CSR} of shape (n, d)

        Returns
        -------
        ndarray or CSR of shape (n, n_components), in the float type of X
        """
        if sp.issparse(X):
            self.kernel_.check_domain(X)
            sparse = self._csr(X)
            if sparse is not None:
                return sparse
        Z = np.empty((X.shape[0], self.n_components_), dtype=X.dtype)
        for rows in row_blocks(X.shape[0], self._block_rows(X.dtype)):
            self._fill_finite(X[rows], Z[rows])
        return Z

    def _csr(self, X: Any) -> sp.csr_array | None:
        """The features of CSR rows as CSR, for the maps that keep them sparse; else None."""
        return None

    def _fill_finite(self, X: Any, out: NDArray[Any]) -> None:
        """``_fill``, with an error for rows on which the kernel overflows."""
        if not self.kernel_.bounded:  # those are defined everywhere
            self.kernel_.check_domain(X)
        with np.errstate(over="ignore", invalid="ignore"):
            self._fill(self._spelled_out(X), out)
        self._check_finite(out, X)

    def _spelled_out(self, X: Any) -> Any:
        """The block, dense if the kernel has warps or categories."""
        dense = sp.issparse(X) and self.kernel_.needs_dense_rows(X.shape[1])
        return X.toarray() if dense else X

    def _check_finite(self, values: NDArray[Any], X: Any) -> None:
        if self.kernel_.bounded:  # no row is too long for these
            return
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(values.sum()) or np.isfinite(values).all():
                return
        raise ValueError(
            f"{self.kernel_!r} overflows {values.dtype} on a row whose largest entry is "
            f"{abs(X).max():.6g}: scale X, or lower gamma"
        )

    def raw_block(self, X: Any) -> Any:
        """Compute what ``mixing`` turns into features, for callers that can skip that product.

        Parameters
        ----------
        X : {ndarray, CSR} of shape (n, d)
            Rows that are known to be valid.

        Returns
        -------
        ndarray or CSR with n rows: the features themselves for maps without a mixing
        """
        return self.transform_block(X)

    def times(self, weights: NDArray[np.float64]) -> Callable[[NDArray[Any]], NDArray[Any]]:
        """Prepare features times weights for few rows at a time, as quickly as possible.

        Parameters
        ----------
        weights : ndarray of shape (n_components, m)

        Returns
        -------
        callable
            Takes valid rows of shape (n, d) in float64 and returns an array of shape (n, m).
        """
        self.transform_block(np.zeros((1, self.n_features_in_)))  # prepares and compiles
        return lambda rows: self.transform_block(rows) @ weights

    @property
    def mixing(self) -> NDArray[Any] | None:
        """T with features = raw block times T; None for the maps without such a matrix."""
        return None

    def _block_rows(self, dtype: Any) -> int:
        if self._rows_at_once is not None:
            return self._rows_at_once
        row_bytes = max(1, self.n_components_) * np.dtype(dtype).itemsize
        return int(np.clip(OUTPUT_BYTES // row_bytes, 32, 8192))
