"""Other people's packages under scikit-learn's interface, each with its own defaults.

They are imported when they are used: none of them is a dependency.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split

if TYPE_CHECKING:
    from kernelsieve.bench.methods import Settings

XGPR_FEATURES = 1_024


class Wrapped(BaseEstimator):
    """An estimator whose ``fit`` makes another one, ``model_``, which predicts."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the targets of rows, of shape (n,)."""
        return self.model_.predict(X)

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Predict the probabilities of the classes, of shape (n, n_classes)."""
        return self.model_.predict_proba(X)


class LightGBM(Wrapped):
    """LightGBM; texts are categories to it."""

    def fit(self, X: Any, y: NDArray[Any]) -> Self:
        """Fit with the categorical columns named, which lightgbm takes in ``fit`` only."""
        from lightgbm import LGBMClassifier, LGBMRegressor

        kind = LGBMClassifier if self.settings.classes else LGBMRegressor
        self.model_ = kind(
            n_jobs=self.settings.n_threads, random_state=self.settings.seed, verbose=-1
        )
        self.model_.fit(X, y, categorical_feature=list(self.settings.categorical) or "auto")
        if self.settings.classes:
            self.classes_ = self.model_.classes_
        return self


def ebm(settings: Settings) -> Any:
    """The explainable boosting machine; texts are nominal to it, and it takes missing values."""
    from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

    kind = ExplainableBoostingClassifier if settings.classes else ExplainableBoostingRegressor
    return kind(n_jobs=settings.n_threads, random_state=settings.seed)


class XRFM(Wrapped):
    """xRFM, which wants validation rows: a fifth of the training rows, at most 5,000."""

    def fit(self, X: Any, y: NDArray[Any]) -> Self:
        """Fit on four fifths, stop by the rest."""
        from xrfm import xRFM

        X = _dense32(X)
        classes = self.settings.classes
        y = y.astype(np.int64) if classes else y.astype(np.float32)[:, None]
        self.centre_ = 0.0 if classes else float(y.mean())
        self.scale_ = 1.0 if classes else float(y.std()) or 1.0
        if not classes:
            y = (y - self.centre_) / self.scale_
        size = min(5_000, max(1, len(y) // 5))
        X_fit, X_stop, y_fit, y_stop = train_test_split(
            X, y, test_size=size, random_state=self.settings.seed
        )
        self.model_ = xRFM(
            device="cpu", n_threads=self.settings.n_threads, random_state=self.settings.seed,
            verbose=False,
        )  # fmt: skip
        self.model_.fit(X_fit, y_fit, X_stop, y_stop)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predicted numbers."""
        return np.asarray(self.model_.predict(_dense32(X))).ravel() * self.scale_ + self.centre_

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Probabilities of the classes."""
        return np.asarray(self.model_.predict_proba(_dense32(X)))


class XGPR(Wrapped):
    """xGPR: its Gaussian kernel, its own search of the two hyperparameters, an exact fit."""

    def fit(self, X: Any, y: NDArray[Any]) -> Self:
        """Tune and fit."""
        import xGPR

        X = np.ascontiguousarray(_dense32(X), dtype=np.float64)
        options = {
            "num_rffs": XGPR_FEATURES,
            "verbose": False,
            "random_seed": self.settings.seed + 1,
        }
        if self.settings.classes:
            dataset = xGPR.build_classification_dataset(X, y.astype(np.int64))
            self.model_ = xGPR.xGPDiscriminant(**options)
            X_fit, X_left, y_fit, y_left = train_test_split(
                X, y.astype(np.int64), test_size=0.2, random_state=0
            )
            xGPR.tune_classifier_powell(
                xGPR.build_classification_dataset(X_fit, y_fit),
                xGPR.build_classification_dataset(X_left, y_left),
                self.model_,
                fit_mode="exact",
            )
            self.model_.fit(dataset, mode="exact")
            self.classes_ = np.unique(y)
            return self
        dataset = xGPR.build_regression_dataset(X, y.astype(np.float64))
        self.model_ = xGPR.xGPRegression(variance_rffs=16, **options)
        self.model_.tune_hyperparams_crude(dataset)
        self.model_.fit(dataset, mode="exact", suppress_var=True)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predicted numbers."""
        return self.model_.predict(np.ascontiguousarray(_dense32(X), dtype=np.float64))

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Probabilities of the classes."""
        found = np.asarray(self.model_.predict(_dense32(X).astype(np.float64)))
        if found.ndim == 1 or found.shape[1] == 1:
            found = np.column_stack([1.0 - found.ravel(), found.ravel()])
        return found


def _dense32(X: Any) -> NDArray[np.float32]:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float32)
