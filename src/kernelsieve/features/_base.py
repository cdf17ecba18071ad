"""What every feature map is: a scikit-learn transformer that fills blocks of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from kernelsieve._parallel import map_row_blocks, row_blocks
from kernelsieve._random import root_seed
from kernelsieve._source import ArraySource, Mapped, Source, check_source
from kernelsieve._validation import FLOATS, canonical_rows, check_count, sparse_output
from kernelsieve.kernels import Kernel, resolve_kernel

BLOCK_BYTES = 2**21  # of output per block: what a core's second-level cache holds


class FeatureMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """Base of the feature maps: ``transform`` returns Z with Z Z^T close to K.

    A map implements ``_fit_rows`` (what it learns from a source of rows) or ``_fit`` (from rows
    that are all in memory), and ``_fill`` (the features of a block of rows). ``unbiased`` says
    whether E[Z Z^T] = K exactly.
    """

    unbiased: ClassVar[bool] = False

    n_components: Any
    kernel: Any
    gamma: Any
    random_state: Any
    n_jobs: int | None

    kernel_: Kernel
    n_components_: int

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the map from the rows of X.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d), or Source
        y : array-like of shape (n,) or (n, n_outputs), optional
            Used by the maps that look at the target; others ignore it. None takes that of a
            source.
        """
        rows = self._source(X, y)
        self._check_n_components()
        self.kernel_ = self._resolve_kernel(rows)
        self._fit_rows(rows, root_seed(self.random_state))
        return self

    def transform(self, X: Any) -> Any:
        """The features of the rows of X, of shape (n, n_components); of a source another one."""
        check_is_fitted(self)
        if isinstance(X, Source):
            check_source(self, X, reset=False)
            return Mapped(X, self._transform_block, self.n_components_)
        Z = self._transform(self._validated(X, reset=False))
        return Z if isinstance(Z, np.ndarray) else sparse_output(Z)

    def _source(self, X: Any, y: Any) -> Source:
        """The valid rows to fit to, and their targets as they were given."""
        if isinstance(X, Source):
            check_source(self, X, reset=True)
            return X if y is None else X.with_targets(np.asarray(y))
        return ArraySource(self._validated(X, reset=True), None if y is None else np.asarray(y))

    def _fit_rows(self, rows: Source, seed: int) -> None:
        """Learn from a source; maps that do not stream get all its rows, and their targets."""
        X = rows.in_memory(type(self).__name__)
        self._fit(X, rows.take(np.arange(rows.shape[0])).y, seed)

    def _fit(self, X: Any, y: Any, seed: int) -> None:
        """Learn from valid rows, for maps that need them all at once."""
        raise NotImplementedError

    @abstractmethod
    def _fill(self, X: Any, out: NDArray[Any]) -> None:
        """Write the features of the validated rows X into ``out``."""

    def _transform(self, X: Any) -> Any:
        """``transform`` of validated rows."""
        Z = np.empty((X.shape[0], self.n_components_), dtype=X.dtype)
        map_row_blocks(
            lambda rows: self._fill(X[rows], Z[rows]),
            X.shape[0],
            self._block_rows(X.dtype),
            self.n_jobs,
        )
        return Z

    def _transform_block(self, X: Any) -> Any:
        """``transform`` of a block of validated rows in this thread, for those who stream."""
        Z = np.empty((X.shape[0], self.n_components_), dtype=X.dtype)
        for rows in row_blocks(X.shape[0], self._block_rows(X.dtype)):
            self._fill(X[rows], Z[rows])
        return Z

    def _raw_block(self, X: Any) -> Any:
        """What ``_mixing`` makes features of, for those who can save themselves that product."""
        return self._transform_block(X)

    @property
    def _mixing(self) -> NDArray[Any] | None:
        """T with features = raw block times T; None where there is no such thing."""
        return None

    def _validated(self, X: Any, reset: bool) -> Any:
        X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=FLOATS, order="C")
        return canonical_rows(X)

    def _check_n_components(self) -> None:
        check_count(self.n_components, "n_components", "it is the number of features to make")

    def _resolve_kernel(self, X: Source) -> Kernel:
        degree, coef0 = getattr(self, "degree", 3), getattr(self, "coef0", 1.0)
        return resolve_kernel(self.kernel, X, self.gamma, degree, coef0)

    def _block_rows(self, dtype: Any) -> int:
        row_bytes = max(1, self.n_components_) * np.dtype(dtype).itemsize
        return int(np.clip(BLOCK_BYTES // row_bytes, 32, 8192))

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
