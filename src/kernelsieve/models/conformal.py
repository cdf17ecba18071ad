"""Prediction intervals from errors on rows that chose nothing: split conformal, jackknife+."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GroupShuffleSplit
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from kernelsieve._random import root_seed
from kernelsieve._state import AbsentOr, PersistentEstimator, instance, switch, wrong
from kernelsieve._validation import check_choice, check_coverage
from kernelsieve.features import AutoFeatures
from kernelsieve.learning.judge import Judge
from kernelsieve.learning.map_search import looks_at_target
from kernelsieve.learning.target_transform import TargetTransform
from kernelsieve.linalg.operators import dense
from kernelsieve.models._base import fresh_features, is_learned
from kernelsieve.models.intervals import Intervals
from kernelsieve.models.jackknife import Jackknife
from kernelsieve.models.kernel_ridge import KernelRidge
from kernelsieve.models.kernel_ridge_cv import KernelRidgeCV
from kernelsieve.models.scores import Regressor

METHODS = ("split", "jackknife+")


class ConformalRegressor(Regressor, PersistentEstimator):
    """A regression with intervals that hold a promised share of the targets.

    Split conformal prediction sets some rows aside before anything is chosen. The model is fitted
    to the others, and its errors on the rows set aside give the width of the intervals. The promise
    holds on average over new rows like those of the fit, whatever the model; not for each part of
    the data alone. To come close to that, too, errors are measured on the scale that the model
    learns (the logarithm of a price), and from 400 rows set aside on relative to those at similar
    predictions. Bounds of a target that is learned by its logarithm or root are never negative.

    Jackknife+ (Barber et al., 2021) sets no rows aside: it uses the predictions of the ridge
    without each row, which have a closed form as long as the target did not choose the features.
    Intervals are those of a model of all rows, and tighter for few rows. Coverage is what was asked
    for in practice; proven is 1 - 2 (1 - coverage), for features that do not depend on the rows.

    Parameters
    ----------
    model : KernelRidge or KernelRidgeCV, default KernelRidgeCV()
        The regression, of a single target. Jackknife+ needs a KernelRidge whose kernel, features
        and alpha are not chosen by the target, as ``AdaptiveFeatures(target_share=0)``.
    method : "split" or "jackknife+", default "split"
        Jackknife+ keeps n_components x n numbers for n rows.
    calibration_share : float, default 0.2
        The share of the rows that is set aside by method="split".
    scaled : bool, default False
        Divide errors by the predicted standard deviation, so that intervals are wider where the
        model knows less. It needs a model with ``predict(X, return_std=True)``, and method="split".
    random_state : int, RandomState, Generator or None
        Draws the rows that are set aside.

    Attributes
    ----------
    model_ : KernelRidge or KernelRidgeCV
        Fitted to the rows that were not set aside.
    intervals_ : Intervals
        With method="split": errors on the rows set aside, and where they are larger.
    errors_ : ndarray of shape (n_calibration,)
        Absolute errors in ascending order, in the units of ``intervals_``. With jackknife+ the
        errors at all rows, each left out.
    jackknife_ : Jackknife
        With jackknife+: the ridge without each of its rows.
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
        "intervals_": AbsentOr(instance(Intervals)),
        "jackknife_": AbsentOr(instance(Jackknife)),
    }

    def _complete(self) -> None:
        jackknife = getattr(self, "jackknife_", None)
        if (jackknife is None) == (getattr(self, "intervals_", None) is None):
            wrong("intervals_", "and jackknife_ exclude each other, and one of them must be there")
        if jackknife is None:
            return
        if not isinstance(self.model_, KernelRidge):
            wrong("jackknife_", "is for a KernelRidge")
        if jackknife.n_components != self.model_.features_.n_components_:
            wrong("jackknife_", f"is for {jackknife.n_components} features")

    def __init__(
        self,
        model: KernelRidge | KernelRidgeCV | None = None,
        *,
        method: str = "split",
        calibration_share: float = 0.2,
        scaled: bool = False,
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.method = method
        self.calibration_share = calibration_share
        self.scaled = scaled
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Fit the model to some rows, and measure its errors on the others, or without each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,)
        groups : array-like of shape (n,), optional
            Rows of one group (a person, a machine, a day) are set aside together, for intervals of
            rows of new groups. Needs method="split".

        Returns
        -------
        self
        """
        check_choice(self.method, "method", METHODS)
        share = check_coverage(self.calibration_share, "calibration_share")
        y = np.asarray(y)
        if y.ndim != 1:
            raise ValueError(f"y of shape {y.shape}: intervals are for a single target")
        check_consistent_length(X, y)
        if not isinstance(self.model, KernelRidge | KernelRidgeCV | None):
            raise TypeError(
                f"model={self.model!r} is not a KernelRidge or KernelRidgeCV: pass one, or None "
                "for the default"
            )
        for name in ("jackknife_", "intervals_"):
            self.__dict__.pop(name, None)
        if self.method == "jackknife+":
            return self._fit_jackknife(X, y, groups)
        seed = root_seed(self.random_state)
        if groups is None:
            size = max(1, round(share * len(y)))
            train, apart = Judge(len(y), seed).set_apart(size)
        else:
            train, apart = _groups_apart(groups, len(y), share, seed)
        fresh = KernelRidgeCV(random_state=seed) if self.model is None else clone(self.model)
        rows = _rows_of(X)
        self.model_ = fresh.fit(rows(train), y[train])
        mean, deviations = self._predicted(rows(apart))
        self.intervals_ = Intervals.of(y[apart], mean, deviations, self._transform)
        return self

    def _fit_jackknife(self, X: Any, y: NDArray[Any], groups: Any) -> Self:
        """Fit to all rows; the errors of each without it follow from the leverages."""
        why_not = chosen_by_target(self.model)
        if self.scaled:
            why_not = "scaled=True is for method='split'"
        if groups is not None:
            why_not = "it leaves out rows one by one, not groups: use method='split'"
        if why_not is not None:
            raise ValueError(f"method='jackknife+': {why_not}")
        assert isinstance(self.model, KernelRidge)
        model = self.model_ = clone(self.model).fit(X, y)
        posterior = model.on_features.posterior
        if posterior is None:
            raise ValueError(
                f"method='jackknife+' needs the Cholesky factor that solver={model.solver_!r} does "
                "not form: use solver='cholesky'"
            )
        residuals = y.astype(np.float64) - model.predict(X)
        self.jackknife_ = Jackknife.of_ridge(posterior, self._features(X), residuals)
        return self

    def _features(self, X: Any) -> NDArray[Any]:
        """Features of rows that may have names."""
        model = self.model_
        assert isinstance(model, KernelRidge)
        return np.concatenate(model.passes.map(lambda Z, _: dense(Z), model._valid_rows(X)))

    def _predicted(self, X: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Predictions, and with ``scaled`` their deviations."""
        if not self.scaled:
            return self.model_.predict(X), None
        mean, deviations = self.model_.predict(X, return_std=True)
        return mean, deviations

    @property
    def _transform(self) -> TargetTransform | None:
        return getattr(self.model_, "target_transform_", None)

    @property
    def errors_(self) -> NDArray[np.float64]:
        """Absolute errors in ascending order."""
        check_is_fitted(self)
        if hasattr(self, "jackknife_"):
            return np.sort(np.abs(self.jackknife_.residuals))
        return self.intervals_.errors

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
        if hasattr(self, "jackknife_"):
            mean = np.asarray(self.model_.predict(X), dtype=np.float64)
            return self.jackknife_.bounds(self._features(X), mean, coverage)
        mean, deviations = self._predicted(X)
        return self.intervals_.bounds(mean, coverage, deviations, self._transform)

    @property
    def n_features_in_(self) -> int:
        """Number of columns of X."""
        check_is_fitted(self)
        return self.model_.n_features_in_


def chosen_by_target(model: Any) -> str | None:
    """Why the predictions of a model without a row do not follow from its leverages, if so.

    Parameters
    ----------
    model : KernelRidge or KernelRidgeCV, or None

    Returns
    -------
    str or None
        The reason and the way out, in words; None if they do follow.
    """
    if not isinstance(model, KernelRidge):
        name = "KernelRidgeCV" if model is None else type(model).__name__
        return f"{name} chooses its kernel and alpha by the target: pass a KernelRidge, or 'split'"
    features = fresh_features(model.features)
    if is_learned(getattr(features, "kernel", None)) or isinstance(features, AutoFeatures):
        return (
            f"the target chooses the kernel of {features!r}: give a kernel with its parameters, or "
            "use method='split'"
        )
    if looks_at_target(features):
        return (
            f"the target chooses features, as target_share={features.target_share!r} says: set "
            "target_share=0, or use method='split'"
        )
    if model.refine:
        return f"refine={model.refine!r} is not a ridge on features: set refine=False"
    return None


def _groups_apart(
    groups: Any, n_rows: int, share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to fit to, and rows of a share of the groups."""
    groups = np.asarray(groups)
    if groups.shape != (n_rows,):
        raise ValueError(
            f"groups of shape {groups.shape}: there must be one for each of {n_rows} rows"
        )
    count = len(np.unique(groups))
    if count < 2:
        raise ValueError("all rows are of one group: none can be set aside")
    size = min(count - 1, max(1, round(share * count)))
    split = GroupShuffleSplit(1, test_size=size, random_state=seed % 2**32)
    train, apart = next(split.split(groups, groups=groups))
    return train, apart


def _rows_of(X: Any) -> Any:
    """What takes some rows of an array, a sparse matrix or a data frame."""
    if hasattr(X, "iloc"):
        return lambda places: X.iloc[places]
    rows = X if hasattr(X, "shape") else np.asarray(X)
    return lambda places: rows[places]
