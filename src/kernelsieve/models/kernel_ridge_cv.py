"""Kernel ridge regression with alpha and the bandwidth chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin, clone
from sklearn.model_selection import check_cv
from sklearn.utils.validation import check_is_fitted

from kernelsieve._progress import track
from kernelsieve._validation import check_count, check_positive
from kernelsieve.features import FeatureMap
from kernelsieve.linalg.normal_equations import Centred
from kernelsieve.linalg.operators import dense
from kernelsieve.models._base import FeatureModel, columns_of
from kernelsieve.models.kernel_ridge import KernelRidge
from kernelsieve.sources.base import ArraySource, Block, Source, as_source, lazy_on_dask
from kernelsieve.sources.views import folds


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
        gammas = self._checked_gammas()
        errors = []
        for gamma in track(gammas, len(gammas), "bandwidths", self.verbose):
            features = clone(base) if gamma is None else clone(base).set_params(gamma=gamma)
            errors.append(self._errors(features, rows, alphas))
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

    def _errors(
        self, features: FeatureMap, rows: Source, alphas: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The mean squared error of every alpha."""
        looks_at_target = getattr(features, "target_share", 0.0) > 0
        if self.cv is None and not looks_at_target:
            problem, model = self._problem(features, rows)
            total = model._reduce(
                _LeaveOneOut(_Path(problem, alphas), self.fit_intercept), rows, "Errors"
            )
            return total[:-1] / total[-1]
        totals = []
        for train, test in self._splits(rows):
            problem, model = self._problem(clone(features), train)
            totals.append(model._reduce(_HeldOut(_Path(problem, alphas)), test, "Errors"))
        total = np.sum(totals, axis=0)
        return total[:-1] / total[-1]

    def _splits(self, rows: Source) -> Iterator[tuple[Source, Source]]:
        """The rows of every fold to learn from, and to be judged on."""
        cv = 5 if self.cv is None else self.cv
        if not rows.resident:
            yield from folds(rows, check_count(cv, "cv", "of a source it is a number of folds"))
            return
        block = rows.take(np.arange(rows.shape[0]))
        for train, test in check_cv(cv).split(block.X, block.y):
            yield tuple(  # type: ignore[misc]
                ArraySource(part.X, part.y, part.weights)
                for part in (block.take(train), block.take(test))
            )

    def _problem(self, features: FeatureMap, rows: Source) -> tuple[Centred, KernelRidge]:
        model = self._ridge(features, alpha=float(np.min(self._checked_alphas())))
        model._fit_features(rows)
        return model._accumulate(rows).centred(self.fit_intercept), model

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


def positive_numbers(values: Any, name: str, why: str) -> NDArray[np.float64]:
    """One number > 0, or several."""
    given = np.atleast_1d(values)
    if given.size == 0:
        raise ValueError(f"{name}={values!r} is empty: pass one number or more, or None")
    return np.array([check_positive(value, name, why) for value in given.tolist()])


class _Path:
    """The ridges of all alphas, from one eigendecomposition of the centred Gram matrix."""

    def __init__(self, problem: Centred, alphas: NDArray[np.float64]) -> None:
        values, self.vectors = np.linalg.eigh(problem.gram)
        self.problem = problem
        self.shrunk = 1.0 / (np.maximum(values, 0.0)[:, None] + alphas)  # (s, n_alphas)
        moment = self.vectors.T @ problem.moment
        self.coefficients = self.shrunk[:, :, None] * moment[:, None, :]

    def coordinates(self, Z: Any) -> NDArray[np.float64]:
        """Centred rows along the eigenvectors: (rows, s)."""
        return (dense(Z) - self.problem.feature_mean) @ self.vectors

    def predict(self, coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        """(rows, n_alphas, n_outputs)."""
        return np.tensordot(coordinates, self.coefficients, 1) + self.problem.target_mean

    def leverages(
        self, coordinates: NDArray[np.float64], fit_intercept: bool
    ) -> NDArray[np.float64]:
        """(rows, n_alphas), for a row of weight 1."""
        leverages = coordinates**2 @ self.shrunk
        return leverages + 1.0 / self.problem.weight if fit_intercept else leverages


@dataclass(frozen=True)
class _HeldOut:
    """Squared errors of all alphas on rows that the path did not see, and their weight."""

    path: _Path

    def __call__(self, Z: Any, block: Block) -> NDArray[np.float64]:
        coordinates = self.path.coordinates(Z)
        return self._summed(block.y[:, None] - self.path.predict(coordinates), block)

    def _summed(self, residuals: NDArray[np.float64], block: Block) -> NDArray[np.float64]:
        share = np.ones(len(block)) if block.weights is None else block.weights
        total = np.einsum("r,rao->a", share, residuals**2)
        return np.append(total, share.sum() * residuals.shape[2])


@dataclass(frozen=True)
class _LeaveOneOut(_HeldOut):
    """The same on its own rows: the residual without a row is its residual over 1 - leverage."""

    fit_intercept: bool

    def __call__(self, Z: Any, block: Block) -> NDArray[np.float64]:
        coordinates = self.path.coordinates(Z)
        leverages = self.path.leverages(coordinates, self.fit_intercept)
        if block.weights is not None:
            leverages = block.weights[:, None] * leverages
        left = np.maximum(1.0 - leverages, 1e-12)[:, :, None]
        return self._summed((block.y[:, None] - self.path.predict(coordinates)) / left, block)
