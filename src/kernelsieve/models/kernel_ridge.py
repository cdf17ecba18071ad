"""Kernel ridge regression on explicit features."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from kernelsieve._parallel import map_row_blocks
from kernelsieve._validation import FLOATS, canonical_rows, check_count, check_positive
from kernelsieve.features import AdaptiveFeatures, FeatureMap
from kernelsieve.models._linear import accumulate, solve_ridge


class KernelRidge(RegressorMixin, BaseEstimator):
    """Ridge regression on the features of a kernel, streamed over blocks of rows.

    Parameters
    ----------
    features : FeatureMap, default AdaptiveFeatures()
        The map that stands for the kernel.
    alpha : float, default 1.0
        Added to the diagonal of the kernel matrix, as in scikit-learn's ``KernelRidge``: the
        paper's lambda. A map with ``alpha=None`` takes this one.
    fit_intercept : bool, default True
    block_rows : int, default None
        Rows whose features are held at a time, per thread; None takes up to 4096.
    n_jobs : int, default all cores
    verbose : int, default 0
        1 shows a progress bar.

    Attributes
    ----------
    features_ : FeatureMap
        The fitted map.
    coef_ : ndarray of shape (n_components,) or (n_components, n_outputs)
    intercept_ : float or ndarray of shape (n_outputs,)

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.preprocessing import scale
    >>> from kernelsieve import AdaptiveFeatures, KernelRidge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = KernelRidge(AdaptiveFeatures(100, gamma=0.01, random_state=0), alpha=0.1)
    >>> bool(model.fit(scale(X), y).score(scale(X), y) > 0.5)
    True
    """

    def __init__(
        self,
        features: FeatureMap | None = None,
        *,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        block_rows: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.features = features
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.block_rows = block_rows
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the map and the ridge.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d)
        y : array-like of shape (n,) or (n, n_outputs)
        """
        alpha = check_positive(self.alpha, "alpha", "it is added to the kernel's diagonal")
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=FLOATS,
            order="C",
            multi_output=True,
            y_numeric=True,
        )
        y = np.asarray(y, dtype=np.float64)
        X = canonical_rows(X)
        self.features_ = self._fresh_features(alpha)
        with config_context(assume_finite=True):  # X was checked above
            self.features_.fit(X, y)
        equations = accumulate(
            self.features_,
            X,
            y.reshape(len(y), -1),
            alpha=alpha,
            block_rows=self._rows_per_block(X.shape[0]),
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )
        coefficients, intercepts = solve_ridge(equations, alpha, self.fit_intercept)
        self.coef_ = coefficients if y.ndim == 2 else coefficients[:, 0]
        self.intercept_ = intercepts if y.ndim == 2 else float(intercepts[0])
        return self

    def _fresh_features(self, alpha: float) -> FeatureMap:
        features = AdaptiveFeatures() if self.features is None else clone(self.features)
        if features.get_params(deep=False).get("alpha", alpha) is None:
            features.set_params(alpha=alpha)
        return features

    def _rows_per_block(self, n_rows: int) -> int:
        """Enough blocks for several threads; a function of the shape only, and so are the bits."""
        if self.block_rows is None:
            return int(np.clip(n_rows // 8, 256, 4096))
        return check_count(self.block_rows, "block_rows", "it is the number of rows in a block")

    def predict(self, X: Any) -> NDArray[Any]:
        """Predicted targets, of shape (n,) or (n, n_outputs)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=FLOATS, order="C")
        X = canonical_rows(X)
        coefficients = self.coef_.astype(X.dtype)

        def block(rows: slice) -> NDArray[Any]:
            return self.features_._transform_block(X[rows]) @ coefficients

        size = self._rows_per_block(X.shape[0])
        parts = map_row_blocks(block, X.shape[0], size, self.n_jobs)
        return np.concatenate(parts) + np.asarray(self.intercept_, dtype=X.dtype)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        return tags
