"""Quantile regression on explicit features: the pinball loss with a ridge."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from kernelsieve._random import root_seed
from kernelsieve._state import array, plain
from kernelsieve._validation import check_count, check_coverage, check_positive
from kernelsieve.features import AutoFeatures, FeatureMap
from kernelsieve.learning.judge import Judge
from kernelsieve.linalg.operators import dense
from kernelsieve.models._base import FeatureModel, numbers_of
from kernelsieve.models.passes import finite, times
from kernelsieve.models.scores import unit_of
from kernelsieve.sources.base import ArraySource
from kernelsieve.sources.given import lazy_on_dask

ALPHAS = np.logspace(-3.0, 2.0, 6)  # to choose from, of a target with deviation 1
JUDGING_SHARE = 0.2
BALANCED_EVERY = 25  # iterations between two looks at the step size
OVERSHOOT = 1.6  # of each step: what suits this splitting best (Eckstein, 1994)


def pinball_loss(y: Any, predicted: Any, quantile: float) -> float:
    """The mean loss whose smallest value is reached by the quantile.

    Parameters
    ----------
    y, predicted : array-like of shape (n,)
    quantile : float
        Between 0 and 1.

    Returns
    -------
    float

    Examples
    --------
    >>> pinball_loss([1.0, 3.0], [2.0, 2.0], 0.9)
    0.5
    """
    error = np.asarray(y, dtype=np.float64) - np.asarray(predicted, dtype=np.float64)
    return float(np.maximum(quantile * error, (quantile - 1.0) * error).mean())


class KernelQuantileRegressor(RegressorMixin, FeatureModel):
    """Quantiles of the target, given the columns: pinball loss on the features of a kernel.

    All features must fit in memory: n x n_components numbers.

    Parameters
    ----------
    quantiles : sequence of float, default (0.1, 0.5, 0.9)
        Between 0 and 1, rising.
    features : FeatureMap, default AutoFeatures()
        The map that stands for the kernel. The default learns the kernel from the target.
    alpha : float, optional
        Weight of half the squared coefficients beside the sum of the losses, for a target of
        deviation 1. None chooses it for each quantile by the loss on a fifth of the rows.
    tol : float, default 1e-3
        Residual at which iterations stop, in deviations of the target.
    max_iter : int, default 1000
        Maximum number of iterations.
    block_rows : int, default None
        Rows whose features each thread holds at a time; None takes up to 4096.
    random_state : int, RandomState, Generator or None
        Draws the rows that judge alpha; the map has its own.
    n_jobs : int, default all cores
        Number of threads.
    verbose : int, default 0
        1 shows progress.

    Attributes
    ----------
    features_ : FeatureMap
        The fitted map.
    alphas_ : ndarray of shape (n_quantiles,)
        The penalties that were used.
    coef_ : ndarray of shape (n_components, n_quantiles)
    intercept_ : ndarray of shape (n_quantiles,)
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if X had names.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import AdaptiveFeatures, KernelQuantileRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1.0, 1.0, size=(500, 1))
    >>> y = X[:, 0] ** 2 + (0.1 + 0.3 * (X[:, 0] > 0)) * rng.normal(size=500)
    >>> model = KernelQuantileRegressor(features=AdaptiveFeatures(30, random_state=0))
    >>> low, middle, high = model.fit(X, y).predict([[0.5]])[0]
    >>> bool(low < middle < high)
    True
    """

    _state_parameters: ClassVar = {"quantiles": plain(list, tuple, np.ndarray)}
    _state_fields: ClassVar = {
        "alphas_": array("quantiles", low=0),
        "coef_": array("s", "quantiles"),
        "intercept_": array("quantiles"),
    }

    def __init__(
        self,
        quantiles: Any = (0.1, 0.5, 0.9),
        features: FeatureMap | None = None,
        *,
        alpha: float | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        block_rows: int | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.quantiles = quantiles
        self.features = features
        self.alpha = alpha
        self.tol = tol
        self.max_iter = max_iter
        self.block_rows = block_rows
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the map, and the quantiles on its features.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d), or Source
        y : array-like of shape (n,), optional
            Targets; None takes those of a source.

        Returns
        -------
        self
        """
        levels = self._checked_quantiles()
        rows = self._numeric(X, y)
        if rows.target_shape != ():
            raise ValueError("y must have one column: fit one target at a time")
        X = rows.in_memory("KernelQuantileRegressor")
        y = np.asarray(rows.take(np.arange(rows.shape[0])).y, dtype=np.float64)
        numbers_of(np.float64, y, None)  # refuses what cannot be squared
        self._fit_features(ArraySource(X, y), alpha=1.0)
        Z = dense(self.features_.transform(X)).astype(np.float64)
        # In deviations of the target, around its median: what alpha and tol are measured in.
        unit = unit_of(y)
        middle, scale = float(np.median(y)), max(unit * float((y / unit).std()), 1e-300)
        target = (y - middle) / scale
        if self.alpha is None:
            self.alphas_ = self._chosen_alphas(Z, target, levels)
        else:
            alpha = check_positive(self.alpha, "alpha", "it is the weight of the coefficients")
            self.alphas_ = np.full(len(levels), alpha)
        self.coef_ = np.empty((Z.shape[1], len(levels)))
        self.intercept_ = np.empty(len(levels))
        for alpha in np.unique(self.alphas_):
            some = self.alphas_ == alpha
            solved = self._solve(Z, target, levels[some], float(alpha))
            self.coef_[:, some] = scale * solved[0]
            self.intercept_[some] = middle + scale * solved[1]
        finite(self.coef_, "the coefficients")
        return self

    def _fresh_features(self, **inherited: Any) -> FeatureMap:
        if self.features is None:
            return AutoFeatures(random_state=root_seed(self.random_state), n_jobs=self.n_jobs)
        return super()._fresh_features(**inherited)

    def _checked_quantiles(self) -> NDArray[np.float64]:
        levels = np.atleast_1d(np.asarray(self.quantiles, dtype=np.float64))
        for level in levels:
            check_coverage(float(level), "quantiles")
        if levels.ndim != 1 or not len(levels) or (np.diff(levels) <= 0).any():
            raise ValueError(f"quantiles={self.quantiles!r} must rise: predictions are in order")
        check_positive(self.tol, "tol", "it is the residual at which iterations stop")
        check_count(self.max_iter, "max_iter", "it is the largest number of iterations")
        return levels

    def _chosen_alphas(
        self, Z: NDArray[np.float64], y: NDArray[np.float64], levels: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The best penalty of each quantile on rows that the trial has not seen."""
        size = max(1, round(JUDGING_SHARE * len(y)))
        train, apart = Judge(len(y), root_seed(self.random_state)).set_apart(size)
        losses = np.empty((len(ALPHAS), len(levels)))
        for i, alpha in enumerate(ALPHAS):
            coefficients, intercepts = self._solve(Z[train], y[train], levels, float(alpha))
            predicted = Z[apart] @ coefficients + intercepts
            losses[i] = [
                pinball_loss(y[apart], p, q) for p, q in zip(predicted.T, levels, strict=True)
            ]
        return ALPHAS[losses.argmin(axis=0)]

    def _solve(
        self,
        Z: NDArray[np.float64],
        y: NDArray[np.float64],
        levels: NDArray[np.float64],
        alpha: float,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Minimise sum pinball(y - Z w - b) + alpha |w|^2 / 2 for all quantiles at once.

        Alternating directions: a ridge solve with one factor for all iterations, then the errors
        are drawn towards the loss.
        """
        means = Z.mean(axis=0)
        centred = Z - means  # so that intercepts are means, and do not enter the factor
        gram = centred.T @ centred
        step = 1.0
        factor = _factor(gram, alpha / step)
        errors = np.repeat((y - y.mean())[:, None], len(levels), axis=1)
        errors -= np.quantile(errors[:, 0], levels)
        dual = np.zeros_like(errors)
        size = np.sqrt(errors.size)
        for iteration in range(1, int(self.max_iter) + 1):
            wanted = y[:, None] - errors - dual
            intercepts = wanted.mean(axis=0)
            coefficients = cho_solve(factor, centred.T @ wanted)
            left = y[:, None] - centred @ coefficients - intercepts
            relaxed = OVERSHOOT * left + (1.0 - OVERSHOOT) * errors
            before = errors
            raised = relaxed - dual
            errors = np.maximum(raised - levels / step, 0.0)
            errors += np.minimum(raised + (1.0 - levels) / step, 0.0)
            dual += errors - relaxed
            primal = float(np.linalg.norm(left - errors)) / size
            moved = float(np.linalg.norm(errors - before)) / size
            if max(primal, moved) <= self.tol:
                break
            if iteration % BALANCED_EVERY == 0 and not 0.2 < primal / max(moved, 1e-300) < 5.0:
                change = 2.0 if primal > moved else 0.5
                step, dual = step * change, dual / change
                factor = _factor(gram, alpha / step)
        else:
            warnings.warn(
                f"quantiles stopped after {self.max_iter} iterations at a residual of "
                f"{max(primal, moved):.2g}, above tol={self.tol:g}: raise max_iter, tol or alpha",
                ConvergenceWarning,
                stacklevel=4,
            )
        return coefficients, intercepts - means @ coefficients

    @lazy_on_dask
    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the quantiles of rows, which never cross.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d), or Source

        Returns
        -------
        ndarray of shape (n, n_quantiles), or (n,) for a single quantile given as a number
            Each row rises: where quantiles cross, they are sorted.
        """
        check_is_fitted(self)
        X = self._valid_rows(X)
        parts = self.passes.map(lambda Z, _: times(Z, self.coef_), X)
        values = np.concatenate(parts) + self.intercept_.astype(X.dtype)
        values = np.sort(finite(values, "the predictions"), axis=1)
        return values[:, 0] if np.ndim(self.quantiles) == 0 else values

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score the quantiles: 1 minus their pinball loss over that of the target's own quantiles.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d)
        y : array-like of shape (n,)
        sample_weight : ignored

        Returns
        -------
        float
            At most 1; 0 for constant quantiles.
        """
        y, levels = np.asarray(y, dtype=np.float64), np.atleast_1d(self.quantiles)
        predicted = self.predict(X).reshape(len(y), -1)
        constant = np.quantile(y, levels)
        ours = [pinball_loss(y, p, q) for p, q in zip(predicted.T, levels, strict=True)]
        theirs = [pinball_loss(y, c, q) for c, q in zip(constant, levels, strict=True)]
        return float(1.0 - np.sum(ours) / max(np.sum(theirs), 1e-300))


def _factor(gram: NDArray[np.float64], ridge: float) -> Any:
    shifted = gram.copy()
    shifted.flat[:: len(gram) + 1] += ridge
    return cho_factor(shifted, overwrite_a=True)
