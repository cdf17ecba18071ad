"""Kernel ridge regression with alpha and the bandwidth chosen by cross-validation."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from kernelsieve.features import FeatureMap
from kernelsieve.linalg.normal_equations import NormalEquations
from kernelsieve.models._base import FeatureModel, columns_of
from kernelsieve.models.kernel_ridge import KernelRidge
from kernelsieve.sources.base import Source, as_source, lazy_on_dask
from kernelsieve.tuning.search import positive_numbers, search


class KernelRidgeCV(RegressorMixin, FeatureModel):
    """KernelRidge that tries every alpha, and every gamma, and keeps the best.

    All alphas come from one eigendecomposition. For maps that do not look at the target the error
    is the exact leave-one-out one, in closed form; maps that do are fitted again for every fold, so
    that they never see what they are judged on.

    Parameters
    ----------
    features : FeatureMap, default AdaptiveFeatures()
    alphas : array-like, default 13 values from 1e-3 to 1e3
    gammas : array-like of float, optional
        Bandwidths to try; None keeps the map's.
    cv : int, splitter or None, default None
        Folds; None is leave-one-out where it has a closed form, else 5. Of a source that is not in
        memory a number of folds only, which are consecutive rows.
    fit_intercept : bool, default True
    block_rows : int, optional
    n_jobs : int, default all cores
    verbose : int, default 0

    Attributes
    ----------
    alpha_, gamma_ : float
        The best ones; ``gamma_`` is None where no gammas were given.
    best_rmse_ : float
    cv_results_ : dict of ndarray
        "gamma", "alpha" and "rmse" of every combination; ``plots.plot_ridge_path`` draws them.
    model_ : KernelRidge
        Fitted to all rows with the best ones.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import KernelRidgeCV, RowNormFeatures
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = KernelRidgeCV(RowNormFeatures(50, random_state=0), gammas=[0.01, 0.1])
    >>> float(model.fit(X, np.sin(X[:, 0])).gamma_)
    0.1
    """

    def __init__(
        self,
        features: FeatureMap | None = None,
        *,
        alphas: Any = None,
        gammas: Any = None,
        cv: Any = None,
        fit_intercept: bool = True,
        block_rows: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.features = features
        self.alphas = alphas
        self.gammas = gammas
        self.cv = cv
        self.fit_intercept = fit_intercept
        self.block_rows = block_rows
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Try all combinations, and fit the best to all rows."""
        alphas = self._checked_alphas()
        given = self._numeric(X, y, sample_weight)
        rows = columns_of(given)
        base = self._fresh_features(alpha=float(np.sqrt(alphas[0] * alphas[-1])))
        found = search(
            base,
            rows,
            alphas,
            self._checked_gammas(),
            cv=self.cv,
            fit_intercept=self.fit_intercept,
            fit=self._fit_map,
            block_rows=self._rows_per_block(rows.shape[0]),
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )
        self.gamma_, self.alpha_ = found.gamma, found.alpha
        self.best_rmse_ = float(found.rmse.min())
        self.cv_results_ = found.table()
        best = self._fresh_features()
        if self.gamma_ is not None:
            best.set_params(gamma=self.gamma_)
        self.model_ = self._ridge(best, self.alpha_).fit(given)
        self.features_ = self.model_.features_
        self.coef_, self.intercept_ = self.model_.coef_, self.model_.intercept_
        return self

    def _ridge(self, features: FeatureMap, alpha: float) -> KernelRidge:
        return KernelRidge(
            features,
            alpha=alpha,
            fit_intercept=self.fit_intercept,
            block_rows=self.block_rows,
            n_jobs=self.n_jobs,
        )

    def _fit_map(self, features: FeatureMap, rows: Source) -> tuple[FeatureMap, NormalEquations]:
        """Fit a map as the ridge does; also the normal equations of the targets on it."""
        model = self._ridge(features, alpha=float(np.min(self._checked_alphas())))
        model._fit_features(rows)
        return model.features_, model._accumulate(rows)

    def _checked_alphas(self) -> NDArray[np.float64]:
        if self.alphas is None:
            return np.logspace(-3, 3, 13)
        why = "each is added to the kernel's diagonal"
        return np.sort(positive_numbers(self.alphas, "alphas", why))

    def _checked_gammas(self) -> list[float | None]:
        if self.gammas is None:
            return [None]
        why = "each is the inverse square of a length"
        return positive_numbers(self.gammas, "gammas", why).tolist()

    @lazy_on_dask
    def predict(self, X: Any, return_std: bool = False) -> Any:
        """As KernelRidge.predict."""
        check_is_fitted(self)
        return self.model_.predict(as_source(self._valid_rows(X)), return_std=return_std)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
