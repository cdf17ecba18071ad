"""The default regression of a table: a learned kernel beside a linear part."""

from __future__ import annotations

import time
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.linear_model import RidgeCV
from sklearn.utils.validation import check_is_fitted

from kernelsieve._state import PersistentEstimator, array, instance, number, plain
from kernelsieve.features import FeatureMap
from kernelsieve.learning.target_transform import TargetTransform
from kernelsieve.models import KernelRidge, KernelRidgeCV
from kernelsieve.models.predictor import Predictor

LINEAR_ALPHAS = np.logspace(-3.0, 4.0, 15)
FEWEST_ROWS = 10  # for each coefficient of a linear part


class LearnedRidge(RegressorMixin, PersistentEstimator):
    """Kernel ridge regression with a learned kernel on what a linear ridge leaves of the target.

    A kernel fades to the mean where training rows are rare; a linear part does not.

    Parameters
    ----------
    alphas : array-like of float, optional
        As in KernelRidgeCV.
    max_order : int, optional
        As in KernelRidgeCV; the linear part belongs to the single columns.
    target_transform : "auto", "log", "sqrt" or None, default "auto"
        As in KernelRidgeCV; the linear part is of the transformed target, too.
    random_state : int, default 0
    time_limit : float, optional
        As in KernelRidgeCV.
    n_jobs : int, default all cores

    Attributes
    ----------
    target_transform_ : TargetTransform or None
        What both parts are fitted to; None is the target as it is.
    model_ : KernelRidgeCV, or KernelRidge for a file in batches
        Fitted to the residuals of the linear part.
    coef_ : ndarray of shape (d,)
        Of the linear part; zeros if there are fewer than 10 rows for each column.
    intercept_ : float

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = LearnedRidge().fit(X, 5 * X[:, 0] + np.sin(3 * X[:, 1]))
    >>> bool(abs(model.predict(np.array([[6.0, 0.0]]))[0] - 30) < 3)
    True
    """

    _state_parameters: ClassVar = {"alphas": plain(list, np.ndarray, None)}
    _state_fields: ClassVar = {
        "model_": instance(KernelRidgeCV, KernelRidge, fitted=True, d="n_features_in_"),
        "coef_": array("d"),
        "intercept_": number(-1e300, 1e300),
        "target_transform_": instance(TargetTransform, None),
    }

    def __init__(
        self,
        alphas: Any = None,
        random_state: Any = 0,
        time_limit: float | None = None,
        n_jobs: int | None = None,
        max_order: int | None = None,
        target_transform: str | None = "auto",
    ) -> None:
        self.alphas = alphas
        self.max_order = max_order
        self.target_transform = target_transform
        self.random_state = random_state
        self.time_limit = time_limit
        self.n_jobs = n_jobs

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Self:
        """Fit the linear part, and learn the kernel on its residuals.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        y : ndarray of shape (n,)

        Returns
        -------
        self
        """
        n, d = X.shape
        began, limit = time.monotonic(), self.time_limit
        kernel = self._kernel_ridge(limit)
        self.target_transform_ = kernel.choose_transform(X, y)
        y = self.transformed(y)
        self.coef_, self.intercept_ = np.zeros(d), 0.0
        if n > FEWEST_ROWS * (d + 1):
            scale = max(float(np.abs(y).max()), 1e-300)  # or squares could overflow
            linear = RidgeCV(LINEAR_ALPHAS).fit(X, y / scale)
            self.coef_ = scale * linear.coef_.astype(np.float64)
            self.intercept_ = scale * float(linear.intercept_)
        left = None if limit is None else max(limit - time.monotonic() + began, 0.1)
        self.model_ = self._kernel_ridge(left).set_params(target_transform=None)
        self.model_.fit(X, y - self.linear(X))
        return self

    def _kernel_ridge(self, time_limit: float | None) -> KernelRidgeCV:
        return KernelRidgeCV(
            alphas=self.alphas,
            max_order=self.max_order,
            target_transform=self.target_transform,
            random_state=self.random_state,
            time_limit=time_limit,
            n_jobs=self.n_jobs,
        )

    def transformed(self, y: NDArray[Any]) -> NDArray[Any]:
        """Targets as both parts are fitted to them."""
        return y if self.target_transform_ is None else self.target_transform_(y)

    def linear(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """The linear part of the predictions, of shape (n,)."""
        return X @ self.coef_ + self.intercept_

    def predict(self, X: NDArray[Any], return_std: bool = False) -> Any:
        """Predict the targets of rows.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        return_std : bool, default False
            Whether to return the standard deviation of a new observation, too.

        Returns
        -------
        mean : ndarray of shape (n,)
        deviation : ndarray of shape (n,), if return_std
        """
        check_is_fitted(self)
        linear, transform = self.linear(X), self.target_transform_
        if return_std:
            mean, deviation = self.model_.predict(X, return_std=True)
            predicted: Any = linear + mean, deviation
        else:
            predicted = linear + self.model_.predict(X)
        return predicted if transform is None else transform.back(predicted, return_std)

    def predictor(self) -> Predictor:
        """Return a function of one row that predicts as quickly as possible, for servers.

        Returns
        -------
        Predictor
        """
        check_is_fitted(self)
        predictor, transform = self.model_.predictor().plus(self.linear), self.target_transform_
        return predictor if transform is None else predictor.then(transform.mean)

    @property
    def features_(self) -> FeatureMap:
        """The fitted map of the kernel."""
        check_is_fitted(self)
        return self.model_.features_

    @property
    def alpha(self) -> float:
        """The ridge that was chosen."""
        model = self.model_
        return float(model.alpha_ if isinstance(model, KernelRidgeCV) else model.alpha)

    @property
    def n_features_in_(self) -> int:
        """Number of columns of X."""
        return self.model_.n_features_in_
