"""The base of the classifiers: labels become +-1 targets, scores become labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from kernelsieve._state import classes, number, plain
from kernelsieve._validation import check_choice
from kernelsieve.models._base import FeatureModel, both_classes
from kernelsieve.models.calibration import Calibration, calibrate
from kernelsieve.models.predictor import Predictor, Scores
from kernelsieve.sources.base import Block, Source
from kernelsieve.sources.given import lazy_on_dask


@dataclass
class Labels:
    """The labels of some rows in ascending order, with the number of rows of each."""

    values: NDArray[Any]
    counts: NDArray[np.int64]

    @classmethod
    def of_block(cls, block: Block) -> Labels:
        """Count the labels of a block of rows."""
        y = column_or_1d(block.y)
        if y.dtype.kind == "O":
            if any(label is None or label != label for label in y):
                raise ValueError("y contains NaN or missing labels: drop or label those rows")
            kinds = sorted({type(label).__name__ for label in y})
            if len(kinds) > 1:
                raise ValueError(
                    f"y has labels of several types ({', '.join(kinds)}): use one type"
                )
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
        """The weight of the rows of each class, of shape (n_classes,)."""
        if class_weight is None:
            return np.ones(len(self.values))
        if isinstance(class_weight, dict):
            return np.array([float(class_weight.get(label, 1.0)) for label in self.values.tolist()])
        check_choice(class_weight, "class_weight", ("balanced",))
        return self.counts.sum() / (len(self.values) * self.counts)


@dataclass(frozen=True)
class Signs:
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


class FeatureClassifier(ClassifierMixin, FeatureModel):
    """Base of the classifiers."""

    classes_: NDArray[Any]
    sharpness_: float

    _state_parameters: ClassVar = {"class_weight": plain(str, dict, None)}
    _state_fields: ClassVar = {"classes_": classes, "sharpness_": number(0.0, 1e300)}

    def _labelled(self, X: Any, y: Any, sample_weight: Any = None) -> tuple[Source, Labels]:
        """Valid rows with their labels, and how often each label occurs."""
        rows = self._valid_rows_and_targets(X, y, sample_weight)
        labels: Labels = rows.reduce(Labels.of_block)
        # Twice, or scikit-learn takes the list of many labels for a target without repetitions.
        check_classification_targets(np.repeat(labels.values, 2))
        self.classes_ = labels.values
        if len(self.classes_) < 2:
            raise ValueError(
                f"all n_samples = {rows.shape[0]} rows are of class {self.classes_[0]!r}: "
                "a classifier needs at least 2 classes"
            )
        return rows, labels

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Score the classes of rows; the larger the score, the likelier the class."""
        raise NotImplementedError

    def _row_scores(self) -> Scores:
        """What scores one row quickly, for ``predictor``."""
        raise NotImplementedError

    def predictor(self) -> Predictor:
        """Return a function of one row that predicts as quickly as possible, for servers.

        Returns
        -------
        Predictor
            It returns labels; its method ``probabilities`` returns those of the classes.
        """
        check_is_fitted(self)
        return Predictor(
            self._row_scores(),
            self.n_features_in_,
            missing=self.features_.kernel_.allows_missing,
            single=False,
            classes=self.classes_,
            sharpness=self.sharpness_,
        )

    def _calibration(
        self, labels: Any, scores: NDArray[Any], weights: Any, logits: bool = False
    ) -> Calibration:
        """The slope and shifts of scores that these rows had no part in.

        The scores of the fit itself are overconfident.
        """
        places = np.searchsorted(self.classes_, column_or_1d(labels))
        return calibrate(scores, places, weights, getattr(self, "fit_intercept", True), logits)

    @lazy_on_dask
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Probabilities of the classes, calibrated on scores of rows that were left out.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d), or Source

        Returns
        -------
        ndarray of shape (n, n_classes)
        """
        check_is_fitted(self)
        return self.probabilities(self.decision_function(X))

    def probabilities(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Turn scores, as of ``decision_function``, into probabilities of the classes.

        Parameters
        ----------
        scores : ndarray of shape (n,) for two classes, (n, n_classes) for more

        Returns
        -------
        ndarray of shape (n, n_classes)
        """
        return softmax(self.sharpness_ * both_classes(scores), axis=1)

    @lazy_on_dask
    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the labels of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d), or Source

        Returns
        -------
        ndarray of shape (n,)
        """
        check_is_fitted(self)
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return self.classes_[(scores > 0).astype(int)]
        return self.classes_[scores.argmax(axis=1)]
