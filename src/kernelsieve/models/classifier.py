"""Classification by kernel ridge regression on the classes, and a linear SVM on the features."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.preprocessing import LabelBinarizer
from sklearn.svm import LinearSVC
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from kernelsieve._validation import check_positive
from kernelsieve.features import FeatureMap
from kernelsieve.models._base import FeatureModel
from kernelsieve.models.kernel_ridge import KernelRidge

CALIBRATION_ROWS = 20_000


class _FeatureClassifier(ClassifierMixin, FeatureModel):
    """What the classifiers share: labels in, labels out."""

    classes_: NDArray[Any]

    def _labelled(self, X: Any, y: Any) -> tuple[Any, Any]:
        X, y = self._valid_rows_and_targets(X, y)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(
                f"all n_samples = {X.shape[0]} rows are of class {self.classes_[0]!r}: "
                "a classifier needs at least 2 classes"
            )
        return X, y

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Scores: (n,) for two classes, (n, n_classes) for more; the larger, the likelier."""
        raise NotImplementedError

    def predict(self, X: Any) -> NDArray[Any]:
        """Predicted labels."""
        check_is_fitted(self)
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return self.classes_[(scores > 0).astype(int)]
        return self.classes_[scores.argmax(axis=1)]


class KernelRidgeClassifier(_FeatureClassifier):
    """Kernel ridge regression on +-1 targets, one for each class.

    Parameters
    ----------
    features : FeatureMap, default AdaptiveFeatures()
    alpha : float, default 1.0
    class_weight : dict, "balanced" or None
    fit_intercept : bool, default True
    block_rows : int, optional
    n_jobs : int, default all cores
    verbose : int, default 0

    Attributes
    ----------
    classes_ : ndarray
    ridge_ : KernelRidge
    sharpness_ : float
        What scores are multiplied by before they become probabilities.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import KernelRidgeClassifier, RowNormFeatures
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = np.where((X**2).sum(axis=1) > 1.4, "far", "near")
    >>> model = KernelRidgeClassifier(RowNormFeatures(30, gamma=0.5, random_state=0), alpha=0.1)
    >>> model.fit(X, y).predict([[0.0, 0.0], [2.0, 2.0]]).tolist()
    ['near', 'far']
    """

    def __init__(
        self,
        features: FeatureMap | None = None,
        *,
        alpha: float = 1.0,
        class_weight: Any = None,
        fit_intercept: bool = True,
        block_rows: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.features = features
        self.alpha = alpha
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.block_rows = block_rows
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the map, the ridge and the calibration of probabilities."""
        X, y = self._labelled(X, y)
        targets = LabelBinarizer(neg_label=-1, pos_label=1).fit_transform(y).astype(np.float64)
        targets = targets[:, 0] if len(self.classes_) == 2 else targets
        weights = sample_weight
        if self.class_weight is not None:
            by_class = compute_sample_weight(self.class_weight, y)
            weights = by_class if weights is None else by_class * np.asarray(weights)
        self.ridge_ = KernelRidge(
            self.features,
            alpha=self.alpha,
            fit_intercept=self.fit_intercept,
            solver="cholesky",
            block_rows=self.block_rows,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        ).fit(X, targets, weights)
        self.features_ = self.ridge_.features_
        self._calibrate(X, y, targets, weights)
        return self

    def _calibrate(self, X: Any, y: Any, targets: NDArray[Any], weights: Any) -> None:
        """How much scores say: fitted to leave-one-out scores, those of the fit are too sure.

        One positive factor for all scores, so that the likeliest class is the predicted one.
        """
        count = min(X.shape[0], CALIBRATION_ROWS)
        rows = np.linspace(0, X.shape[0] - 1, count).astype(int)
        ridge = self.ridge_
        leverages = np.concatenate(
            ridge._map_blocks(lambda Z, _: ridge._posterior().leverages(Z), X[rows])
        )
        share = np.ones(count) if weights is None else np.asarray(weights, dtype=float)[rows]
        if self.fit_intercept:
            leverages = leverages + 1.0 / ridge._posterior().weight
        left = np.maximum(1.0 - share * leverages, 1e-6)
        residuals = (targets[rows] - ridge.predict(X[rows])).reshape(count, -1) / left[:, None]
        scores = _both_classes(
            (targets[rows].reshape(count, -1) - residuals).reshape(targets[rows].shape)
        )
        places = np.searchsorted(self.classes_, y[rows])

        def loss(log_sharpness: float) -> float:
            logs = log_softmax(np.exp(log_sharpness) * scores, axis=1)
            return -float(share @ logs[np.arange(count), places])

        found = minimize_scalar(loss, bounds=(-5.0, 7.0), method="bounded")
        self.sharpness_ = float(np.exp(found.x))

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Scores: (n,) for two classes, (n, n_classes) for more; the larger, the likelier."""
        check_is_fitted(self)
        return self.ridge_.predict(self._valid_rows(X))

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Probabilities of the classes, calibrated on leave-one-out scores."""
        check_is_fitted(self)
        return softmax(self.sharpness_ * _both_classes(self.decision_function(X)), axis=1)


def _both_classes(scores: NDArray[Any]) -> NDArray[Any]:
    """A column for each class, also where there are two."""
    return np.stack([-scores, scores], axis=1) if scores.ndim == 1 else scores


class KernelSVC(_FeatureClassifier):
    """A linear support vector machine on the features, by scikit-learn's LinearSVC.

    It needs all features at once: n x n_components numbers in memory.

    Parameters
    ----------
    features : FeatureMap, default AdaptiveFeatures()
    C : float, default 1.0
    class_weight : dict, "balanced" or None
    max_iter : int, default 2000
    random_state : int, RandomState or None
    block_rows : int, optional
    n_jobs : int, default all cores
    verbose : int, default 0

    Attributes
    ----------
    classes_ : ndarray
    svc_ : LinearSVC

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import KernelSVC, RowNormFeatures
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = (X**2).sum(axis=1) > 1.4
    >>> KernelSVC(RowNormFeatures(30, gamma=0.5, random_state=0)).fit(X, y).score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        features: FeatureMap | None = None,
        *,
        C: float = 1.0,
        class_weight: Any = None,
        max_iter: int = 2000,
        random_state: Any = None,
        block_rows: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.features = features
        self.C = C
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.random_state = random_state
        self.block_rows = block_rows
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the map and the machine."""
        check_positive(self.C, "C", "it weighs the errors against the margin")
        X, y = self._labelled(X, y)
        targets = LabelBinarizer(neg_label=-1, pos_label=1).fit_transform(y).astype(np.float64)
        self._fit_features(X, targets, alpha=1.0 / self.C)
        self.svc_ = LinearSVC(
            C=self.C,
            class_weight=self.class_weight,
            max_iter=self.max_iter,
            random_state=self.random_state,
        ).fit(self.features_.transform(X), y, sample_weight)
        self.n_iter_ = self.svc_.n_iter_
        return self

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Distances to the separating plane in feature space."""
        check_is_fitted(self)
        parts = self._map_blocks(lambda Z, _: self.svc_.decision_function(Z), self._valid_rows(X))
        return np.concatenate(parts)
