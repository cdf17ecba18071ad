"""Kernel ridge regression with alpha and the bandwidth chosen by cross-validation."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.base import RegressorMixin, clone
from sklearn.model_selection import check_cv
from sklearn.utils.validation import check_is_fitted

from kernelsieve._progress import track
from kernelsieve._validation import check_positive
from kernelsieve.features import FeatureMap
from kernelsieve.models._base import FeatureModel
from kernelsieve.models._linear import Centred
from kernelsieve.models.kernel_ridge import KernelRidge

Weights = NDArray[np.float64] | None


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
        Folds; None is leave-one-out where it has a closed form, else 5.
    fit_intercept : bool, default True
    block_rows : int, optional
    n_jobs : int, default all cores
    verbose : int, default 0

    Attributes
    ----------
    alpha_, gamma_ : float
        The best ones; gamma_ is None where no gammas were given.
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Try all combinations, and fit the best to all rows."""
        alphas = self._checked_alphas()
        X, y = self._valid_rows_and_targets(X, y, multi_output=True, y_numeric=True)
        columns = np.asarray(y, dtype=np.float64).reshape(X.shape[0], -1)
        base = self._fresh_features(alpha=float(np.sqrt(alphas[0] * alphas[-1])))
        gammas = [None] if self.gammas is None else [float(g) for g in self.gammas]
        weights = KernelRidge()._checked_weights(sample_weight, X)
        errors = []
        for gamma in track(gammas, len(gammas), "bandwidths", self.verbose):
            features = clone(base) if gamma is None else clone(base).set_params(gamma=gamma)
            errors.append(self._errors(features, X, columns, weights, alphas))
        rmse = np.sqrt(np.array(errors))
        best_gamma, best_alpha = np.unravel_index(int(np.argmin(rmse)), rmse.shape)
        self.gamma_, self.alpha_ = gammas[best_gamma], float(alphas[best_alpha])
        self.best_rmse_ = float(rmse.min())
        self.cv_results_ = {
            "gamma": np.repeat(np.array(gammas, dtype=object), len(alphas)),
            "alpha": np.tile(alphas, len(gammas)),
            "rmse": rmse.ravel(),
        }
        best = self._fresh_features()
        if self.gamma_ is not None:
            best.set_params(gamma=self.gamma_)
        self.model_ = self._ridge(best, self.alpha_).fit(X, y, sample_weight)
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

    def _errors(
        self, features: FeatureMap, X: Any, y: NDArray[Any], weights: Weights, alphas: Any
    ) -> NDArray[np.float64]:
        """The mean squared error of every alpha."""
        looks_at_target = getattr(features, "target_share", 0.0) > 0
        if self.cv is None and not looks_at_target:
            return self._leave_one_out(features, X, y, weights, alphas)
        splitter = check_cv(5 if self.cv is None else self.cv)
        total, weight = np.zeros(len(alphas)), 0.0
        for train, test in splitter.split(X, y):
            problem, model = self._problem(
                clone(features), X[train], y[train], None if weights is None else weights[train]
            )
            path = _Path(problem, alphas)
            share = np.ones(len(test)) if weights is None else weights[test]
            for part in model._map_blocks(
                lambda Z, rows, path=path, y=y[test], share=share: np.einsum(  # type: ignore[misc]
                    "r,rao->a", share[rows], (y[rows][:, None] - path.predict(Z)) ** 2
                ),
                X[test],
            ):
                total += part
            weight += float(share.sum())
        return total / (weight * y.shape[1])

    def _leave_one_out(
        self, features: FeatureMap, X: Any, y: NDArray[Any], weights: Weights, alphas: Any
    ) -> NDArray[np.float64]:
        """The residual without a row is its residual over 1 - its leverage."""
        problem, model = self._problem(features, X, y, weights)
        path = _Path(problem, alphas)
        share = np.ones(len(y)) if weights is None else weights

        def block(Z: Any, rows: slice) -> NDArray[np.float64]:
            leverages = share[rows, None] * path.leverages(Z, self.fit_intercept)
            left = np.maximum(1.0 - leverages, 1e-12)[:, :, None]
            residuals = (y[rows][:, None] - path.predict(Z)) / left
            return np.einsum("r,rao->a", share[rows], residuals**2)

        return np.sum(model._map_blocks(block, X), axis=0) / (share.sum() * y.shape[1])

    def _problem(
        self, features: FeatureMap, X: Any, y: NDArray[Any], weights: Weights
    ) -> tuple[Centred, KernelRidge]:
        model = self._ridge(features, alpha=float(np.min(self._checked_alphas())))
        model._fit_features(X, y)
        equations = model._accumulate(X, y, weights)
        return equations.centred(self.fit_intercept), model

    def _checked_alphas(self) -> NDArray[np.float64]:
        alphas = np.logspace(-3, 3, 13) if self.alphas is None else np.atleast_1d(self.alphas)
        for alpha in alphas:
            check_positive(float(alpha), "alphas", "each is added to the kernel's diagonal")
        return np.sort(alphas.astype(np.float64))

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """As KernelRidge.predict."""
        check_is_fitted(self)
        return self.model_.predict(self._valid_rows(X), return_std=return_std)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class _Path:
    """The ridges of all alphas, from one eigendecomposition of the centred Gram matrix."""

    def __init__(self, problem: Centred, alphas: NDArray[np.float64]) -> None:
        values, self.vectors = eigh(problem.gram)
        self.problem = problem
        self.shrunk = 1.0 / (np.maximum(values, 0.0)[:, None] + alphas)  # (s, n_alphas)
        moment = self.vectors.T @ problem.moment
        self.coefficients = self.shrunk[:, :, None] * moment[:, None, :]

    def _coordinates(self, Z: Any) -> NDArray[np.float64]:
        dense = Z.toarray() if hasattr(Z, "toarray") else Z
        return (dense - self.problem.feature_mean) @ self.vectors

    def predict(self, Z: Any) -> NDArray[np.float64]:
        """(rows, n_alphas, n_outputs)."""
        return np.tensordot(self._coordinates(Z), self.coefficients, 1) + self.problem.target_mean

    def leverages(self, Z: Any, fit_intercept: bool) -> NDArray[np.float64]:
        """(rows, n_alphas), for a row of weight 1."""
        leverages = self._coordinates(Z) ** 2 @ self.shrunk
        return leverages + 1.0 / self.problem.weight if fit_intercept else leverages
