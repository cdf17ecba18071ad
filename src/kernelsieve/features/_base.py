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
from kernelsieve._validation import FLOATS, canonical_rows, check_count, sparse_output
from kernelsieve.kernels import Kernel, resolve_kernel

BLOCK_BYTES = 2**21  # of output per block: what a core's second-level cache holds


class FeatureMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """Base of the feature maps: ``transform`` returns Z with Z Z^T close to K.

    A map implements ``_fit`` (what it learns from validated data) and ``_fill`` (the features of a
    block of rows). ``unbiased`` says whether E[Z Z^T] = K exactly.
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
        X : {array-like, sparse matrix} of shape (n, d)
        y : array-like of shape (n,) or (n, n_outputs), optional
            Used by the maps that look at the target; others ignore it.
        """
        X = self._validated(X, reset=True)
        self._check_n_components()
        self.kernel_ = self._resolve_kernel(X)
        self._fit(X, y, root_seed(self.random_state))
        return self

    def transform(self, X: Any) -> Any:
        """The features of the rows of X, of shape (n, n_components_)."""
        check_is_fitted(self)
        Z = self._transform(self._validated(X, reset=False))
        return Z if isinstance(Z, np.ndarray) else sparse_output(Z)

    @abstractmethod
    def _fit(self, X: Any, y: Any, seed: int) -> None: ...

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

    def _resolve_kernel(self, X: Any) -> Kernel:
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
