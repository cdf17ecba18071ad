"""Prediction intervals by split conformal prediction: from errors on rows that chose nothing."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from kernelsieve._random import root_seed
from kernelsieve._state import PersistentEstimator, array, instance, switch
from kernelsieve._validation import check_coverage
from kernelsieve.models.kernel_ridge import KernelRidge
from kernelsieve.models.kernel_ridge_cv import KernelRidgeCV
from kernelsieve.tuning.judge import Judge


def conformal_width(errors: NDArray[np.float64], coverage: float) -> float:
    """The width that holds a share ``coverage`` of new errors, if they are like these.

    It is the smallest of the sorted errors that at least ``coverage (n + 1)`` of them do not
    exceed. With rows that are exchangeable, a new error is at most as large with at least this
    probability (Vovk et al., 2005), whatever the model.

    Parameters
    ----------
    errors : ndarray of shape (n,)
        Absolute errors in ascending order, of rows that had no part in the model.
    coverage : float
        Between 0 and 1.

    Returns
    -------
    float
        Infinite if there are too few errors for this coverage.

    Examples
    --------
    >>> import numpy as np
    >>> conformal_width(np.arange(1.0, 100.0), 0.9), conformal_width(np.ones(5), 0.9)
    (90.0, inf)
    """
    check_coverage(coverage)
    rank = int(np.ceil(coverage * (len(errors) + 1)))
    return float(errors[rank - 1]) if rank <= len(errors) else float("inf")


class ConformalRegressor(RegressorMixin, PersistentEstimator):
    """A regression with intervals that hold a promised share of the targets.

    Some rows are set aside before anything is chosen. The model is fitted to the others, and its
    errors on the rows set aside give the width of the intervals: split conformal prediction. The
    promise holds on average over new rows like those of the fit, whatever the model; not for each
    part of the data alone.

    Parameters
    ----------
    model : KernelRidge or KernelRidgeCV, default KernelRidgeCV()
        The regression, of a single target.
    calibration_share : float, default 0.2
        The share of the rows that is set aside.
    scaled : bool, default False
        Divide errors by the predicted standard deviation, so that intervals are wider where the
        model knows less. It needs a model with ``predict(X, return_std=True)``.
    random_state : int, RandomState, Generator or None
        Draws the rows that are set aside.

    Attributes
    ----------
    model_ : KernelRidge or KernelRidgeCV
        Fitted to the rows that were not set aside.
    errors_ : ndarray of shape (n_calibration,)
        Absolute errors on the rows set aside, in ascending order; with ``scaled`` over the
        predicted deviations.
    n_features_in_ : int
        Number of columns of X.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import AdaptiveFeatures, ConformalRegressor, KernelRidge
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 2))
    >>> y = X[:, 0] * X[:, 1] + 0.1 * rng.normal(size=600)
    >>> model = ConformalRegressor(KernelRidge(AdaptiveFeatures(50)), random_state=0)
    >>> low, high = model.fit(X[:400], y[:400]).predict_interval(X[400:], coverage=0.8)
    >>> bool(np.mean((low <= y[400:]) & (y[400:] <= high)) > 0.7)
    True
    """

    _state_parameters: ClassVar = {
        "model": instance(KernelRidge, KernelRidgeCV, None),
        "scaled": switch,
    }
    _state_fields: ClassVar = {
        "model_": instance(KernelRidge, KernelRidgeCV, fitted=True, d="n_features_in_"),
        "errors_": array(None, low=0),
    }

    def __init__(
        self,
        model: KernelRidge | KernelRidgeCV | None = None,
        *,
        calibration_share: float = 0.2,
        scaled: bool = False,
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.calibration_share = calibration_share
        self.scaled = scaled
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model to some rows, and measure its errors on the others.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,)

        Returns
        -------
        self
        """
        share = check_coverage(self.calibration_share, "calibration_share")
        y = np.asarray(y)
        if y.ndim != 1:
            raise ValueError(f"y of shape {y.shape}: intervals are for a single target")
        seed = root_seed(self.random_state)
        size = max(1, round(share * len(y)))
        train, apart = Judge(len(y), seed).set_apart(size)
        fresh = KernelRidgeCV(random_state=seed) if self.model is None else clone(self.model)
        rows = _rows_of(X)
        self.model_ = fresh.fit(rows(train), y[train])
        mean, scale = self._predicted(rows(apart))
        self.errors_ = np.sort(np.abs(y[apart].astype(np.float64) - mean) / scale)
        return self

    def _predicted(self, X: Any) -> tuple[NDArray[np.float64], Any]:
        """Predictions, and what errors are measured in."""
        if not self.scaled:
            return np.asarray(self.model_.predict(X), dtype=np.float64), 1.0
        mean, deviation = self.model_.predict(X, return_std=True)
        return np.asarray(mean, dtype=np.float64), np.maximum(deviation, 1e-300)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the targets of rows.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n,)
        """
        check_is_fitted(self)
        return self.model_.predict(X)

    def predict_interval(
        self, X: Any, coverage: float = 0.9
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bounds that hold a share of the targets of new rows.

        Parameters
        ----------
        X : array-like of shape (n, d)
        coverage : float, default 0.9
            The share of targets inside of their intervals.

        Returns
        -------
        low, high : ndarray of shape (n,)
            Infinite if too few rows were set aside for this coverage.
        """
        check_is_fitted(self)
        width = conformal_width(self.errors_, coverage)
        mean, scale = self._predicted(X)
        return mean - width * scale, mean + width * scale

    @property
    def n_features_in_(self) -> int:
        """Number of columns of X."""
        check_is_fitted(self)
        return self.model_.n_features_in_


def _rows_of(X: Any) -> Any:
    """What takes some rows of an array, a sparse matrix or a data frame."""
    if hasattr(X, "iloc"):
        return lambda places: X.iloc[places]
    rows = X if hasattr(X, "shape") else np.asarray(X)
    return lambda places: rows[places]
