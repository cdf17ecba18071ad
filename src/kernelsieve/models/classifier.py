"""Classification by kernel ridge regression on the classes, and a linear SVM on the features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.svm import LinearSVC
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from kernelsieve._validation import check_choice, check_positive
from kernelsieve.features import FeatureMap
from kernelsieve.models._base import FeatureModel
from kernelsieve.models.kernel_ridge import KernelRidge
from kernelsieve.sources.base import ArraySource, Block, Source, as_source, recoded

CALIBRATION_ROWS = 20_000
LARGEST_SQUARE = 1e120  # of a feature times C: gradients of liblinear are squared once more


@dataclass
class Labels:
    """The labels of some rows, rising, and how many rows have each."""

    values: NDArray[Any]
    counts: NDArray[np.int64]

    @classmethod
    def of_block(cls, block: Block) -> Labels:
        """Those of a block of rows."""
        y = column_or_1d(block.y)
        if y.dtype.kind == "O":
            if any(label is None or label != label for label in y):
                raise ValueError("y contains NaN or missing labels: drop or label those rows")
            kinds = sorted({type(label).__name__ for label in y})
            if len(kinds) > 1:
                raise ValueError(f"y has labels of the types {', '.join(kinds)}: use one of them")
        return cls(*np.unique(y, return_counts=True))

    def __iadd__(self, other: Labels) -> Labels:
        together, places = np.unique(
            np.concatenate([self.values, other.values]), return_inverse=True
        )
        counts = np.zeros(len(together), dtype=np.int64)
        np.add.at(counts, places, np.concatenate([self.counts, other.counts]))
        self.values, self.counts = together, counts
        return self

    def weights(self, class_weight: Any) -> NDArray[np.float64]:
        """What every row of a class counts."""
        if class_weight is None:
            return np.ones(len(self.values))
        if isinstance(class_weight, dict):
            return np.array([float(class_weight.get(label, 1.0)) for label in self.values.tolist()])
        check_choice(class_weight, "class_weight", ("balanced",))
        return self.counts.sum() / (len(self.values) * self.counts)


@dataclass(frozen=True)
class _Signs:
    """Targets +-1 of labels: one column a class, and a single one for two classes."""

    classes: NDArray[Any]
    class_weights: NDArray[np.float64] | None

    def __call__(self, y: Any, weights: Any) -> tuple[NDArray[np.float64], Any]:
        places = np.searchsorted(self.classes, column_or_1d(y))
        signs = np.where(places[:, None] == np.arange(len(self.classes)), 1.0, -1.0)
        if self.class_weights is not None:
            by_class = self.class_weights[places]
            weights = by_class if weights is None else by_class * weights
        return signs[:, 1] if len(self.classes) == 2 else signs, weights


class _FeatureClassifier(ClassifierMixin, FeatureModel):
    """What the classifiers share: labels in, labels out."""

    classes_: NDArray[Any]

    def _labelled(self, X: Any, y: Any, sample_weight: Any = None) -> tuple[Source, Labels]:
        """Valid rows with their labels, and how often each label occurs."""
        rows = self._valid_rows_and_targets(X, y, sample_weight)
        labels: Labels = rows.reduce(Labels.of_block)
        check_classification_targets(labels.values)
        self.classes_ = labels.values
        if len(self.classes_) < 2:
            raise ValueError(
                f"all n_samples = {rows.shape[0]} rows are of class {self.classes_[0]!r}: "
                "a classifier needs at least 2 classes"
            )
        return rows, labels

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

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the map, the ridge and the calibration of probabilities."""
        rows, labels = self._labelled(X, y, sample_weight)
        n_classes = len(self.classes_)
        weights = None if self.class_weight is None else labels.weights(self.class_weight)
        signs = _Signs(self.classes_, weights)
        targets = recoded(rows, signs, () if n_classes == 2 else (n_classes,))
        few = np.linspace(0, rows.shape[0] - 1, min(rows.shape[0], CALIBRATION_ROWS)).astype(int)
        rows.expect(few)
        self.ridge_ = KernelRidge(
            self.features,
            alpha=self.alpha,
            fit_intercept=self.fit_intercept,
            solver="cholesky",
            block_rows=self.block_rows,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        ).fit(targets)
        self.features_ = self.ridge_.features_
        self._calibrate(rows.take(few), targets.take(few))
        return self

    def _calibrate(self, rows: Block, signs: Block) -> None:
        """How much scores say: fitted to leave-one-out scores, those of the fit are too sure.

        One positive factor for all scores, so that the likeliest class is the predicted one.
        """
        ridge, count = self.ridge_, len(rows)
        leverages = np.concatenate(
            ridge._map_blocks(lambda Z, _: ridge._posterior().leverages(Z), rows.X)
        )
        share = np.ones(count) if signs.weights is None else signs.weights
        if self.fit_intercept:
            leverages = leverages + 1.0 / ridge._posterior().weight
        left = np.maximum(1.0 - share * leverages, 1e-6)
        targets = signs.y
        residuals = (targets - ridge.predict(ArraySource(rows.X))).reshape(count, -1) / left[
            :, None
        ]
        scores = _both_classes((targets.reshape(count, -1) - residuals).reshape(targets.shape))
        places = np.searchsorted(self.classes_, column_or_1d(rows.y))

        def loss(log_sharpness: float) -> float:
            logs = log_softmax(np.exp(log_sharpness) * scores, axis=1)
            return -float(share @ logs[np.arange(count), places])

        found = minimize_scalar(loss, bounds=(-5.0, 7.0), method="bounded")
        self.sharpness_ = float(np.exp(found.x))

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Scores: (n,) for two classes, (n, n_classes) for more; the larger, the likelier."""
        check_is_fitted(self)
        return self.ridge_.predict(as_source(self._valid_rows(X)))

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

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the map and the machine."""
        check_positive(self.C, "C", "it weighs the errors against the margin")
        rows, _ = self._labelled(X, y, sample_weight)
        X, y = rows.in_memory("KernelSVC"), rows.take(np.arange(rows.shape[0])).y
        self._fit_features(recoded(rows, _Signs(self.classes_, None), ()), alpha=1.0 / self.C)
        self.svc_ = LinearSVC(
            C=self.C,
            class_weight=self.class_weight,
            max_iter=self.max_iter,
            random_state=self.random_state,
        ).fit(self._moderate(self.features_.transform(X)), y, sample_weight)
        self.n_iter_ = self.svc_.n_iter_
        return self

    def _moderate(self, Z: Any) -> Any:
        """The features, unless liblinear would never come back from them."""
        largest = float(abs(Z).max())
        if max(self.C, 1.0) * largest**2 > LARGEST_SQUARE:
            raise ValueError(
                f"features reach {largest:.3g} at C={self.C:g}, where the solver does not end: "
                "scale X, or lower gamma, the degree or C"
            )
        return Z

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Distances to the separating plane in feature space."""
        check_is_fitted(self)
        X = self._valid_rows(X)
        parts = self._map_blocks(lambda Z, _: self.svc_.decision_function(Z), X)
        return np.concatenate(parts).astype(X.dtype, copy=False)
