"""A linear support vector machine on explicit features."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted

from kernelsieve._validation import check_positive
from kernelsieve.features import FeatureMap
from kernelsieve.models.classifier import FeatureClassifier, Signs
from kernelsieve.sources.base import lazy_on_dask, recoded

LARGEST_SQUARE = 1e120  # of a feature times C: liblinear squares the gradients once more


class KernelSVC(FeatureClassifier):
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
        self._fit_features(recoded(rows, Signs(self.classes_, None), ()), alpha=1.0 / self.C)
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

    @lazy_on_dask
    def decision_function(self, X: Any) -> NDArray[Any]:
        """Distances to the separating plane in feature space."""
        check_is_fitted(self)
        X = self._valid_rows(X)
        parts = self._map_blocks(lambda Z, _: self.svc_.decision_function(Z), X)
        return np.concatenate(parts).astype(X.dtype, copy=False)
