"""Models on Dask collections."""

from __future__ import annotations

from typing import Any, Self

from kernelsieve import models
from kernelsieve.dask._lazy import OnDask
from kernelsieve.sources.dask import is_dask


class _DaskModel(OnDask):
    """A model with targets whose ``fit`` reduces chunks."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to the rows of X, a Dask array or data frame (or what the model takes)."""
        return super().fit(*self._collected(X, y, sample_weight))  # type: ignore[misc]


class _DaskRegressor(_DaskModel):
    coef_: Any

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predicted targets: of a Dask collection a lazy Dask array."""
        if not is_dask(X):
            return super().predict(X, return_std)  # type: ignore[misc]
        columns = None if self.coef_.ndim == 1 else self.coef_.shape[1]
        mean = self._lazily("predict", X, columns)
        return (mean, self._lazily("_deviation", X, columns)) if return_std else mean

    def _deviation(self, X: Any) -> Any:
        return self.predict(X, return_std=True)[1]


class KernelRidge(_DaskRegressor, models.KernelRidge):
    """``kernelsieve.KernelRidge`` on Dask arrays and data frames; no refine=True.

    Examples
    --------
    >>> import dask.array as da
    >>> from kernelsieve.dask import KernelRidge, RowNormFeatures
    >>> X = da.random.default_rng(0).normal(size=(2000, 3), chunks=(300, 3))
    >>> y = X[:, 0] * X[:, 1]
    >>> model = KernelRidge(RowNormFeatures(60, random_state=0), alpha=1e-3).fit(X, y)
    >>> predicted = model.predict(X)  # lazy
    >>> bool(abs(predicted - y).mean().compute() < 0.2)
    True
    """

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add rows to the ridge; the map stays as it is."""
        return super().partial_fit(*self._collected(X, y, sample_weight))


class KernelRidgeCV(_DaskRegressor, models.KernelRidgeCV):
    """``kernelsieve.KernelRidgeCV`` on Dask arrays and data frames, with consecutive folds.

    Examples
    --------
    >>> import dask.array as da
    >>> from kernelsieve.dask import KernelRidgeCV, RowNormFeatures
    >>> X = da.random.default_rng(0).normal(size=(1000, 3), chunks=(300, 3))
    >>> model = KernelRidgeCV(RowNormFeatures(60, random_state=0), alphas=[1e-4, 1.0, 1e4])
    >>> model.fit(X, X[:, 0] * X[:, 1]).alpha_
    0.0001
    """


class KernelRidgeClassifier(_DaskModel, models.KernelRidgeClassifier):
    """``kernelsieve.KernelRidgeClassifier`` on Dask arrays and data frames.

    Examples
    --------
    >>> import dask.array as da
    >>> from kernelsieve.dask import KernelRidgeClassifier, RowNormFeatures
    >>> X = da.random.default_rng(0).normal(size=(1000, 2), chunks=(300, 2))
    >>> y = (X**2).sum(axis=1) > 1.4
    >>> model = KernelRidgeClassifier(RowNormFeatures(30, random_state=0), alpha=0.1).fit(X, y)
    >>> bool((model.predict(X) == y).mean().compute() > 0.9)
    True
    """

    def predict(self, X: Any) -> Any:
        """Predicted labels, lazily."""
        return self._lazily("predict", X, None) if is_dask(X) else super().predict(X)

    def decision_function(self, X: Any) -> Any:
        """Scores, lazily."""
        if not is_dask(X):
            return super().decision_function(X)
        n_classes = len(self.classes_)
        return self._lazily("decision_function", X, None if n_classes == 2 else n_classes)

    def predict_proba(self, X: Any) -> Any:
        """Probabilities of the classes, lazily."""
        if is_dask(X):
            return self._lazily("predict_proba", X, len(self.classes_))
        return super().predict_proba(X)


class KernelPCA(OnDask, models.KernelPCA):
    """``kernelsieve.KernelPCA`` on Dask arrays and data frames; no way back.

    Examples
    --------
    >>> import dask.array as da
    >>> from kernelsieve.dask import KernelPCA, RowNormFeatures
    >>> X = da.random.default_rng(0).normal(size=(1000, 4), chunks=(300, 4))
    >>> KernelPCA(3, RowNormFeatures(50, random_state=0)).fit(X).transform(X).shape
    (1000, 3)
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the map and find the components; y is ignored."""
        return super().fit(self._collected(X)[0])

    def transform(self, X: Any) -> Any:
        """The components, lazily."""
        if is_dask(X):
            return self._lazily("transform", X, self._n_features_out)
        return super().transform(X)


class KernelKMeans(OnDask, models.KernelKMeans):
    """``kernelsieve.KernelKMeans`` on Dask arrays and data frames; ``labels_`` are in memory.

    Examples
    --------
    >>> import dask.array as da
    >>> from kernelsieve.dask import KernelKMeans, RowNormFeatures
    >>> X = da.random.default_rng(0).normal(size=(1000, 2), chunks=(300, 2))
    >>> model = KernelKMeans(3, RowNormFeatures(50, random_state=0), random_state=0).fit(X)
    >>> bool((model.predict(X) == model.labels_).all().compute())
    True
    """

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the map and the centres; y is ignored."""
        rows, _, weights = self._collected(X, None, sample_weight)
        return super().fit(rows, None, weights)

    def predict(self, X: Any) -> Any:
        """The nearest centre of every row, lazily."""
        return self._lazily("predict", X, None) if is_dask(X) else super().predict(X)

    def transform(self, X: Any) -> Any:
        """Distances to the centres, lazily."""
        return self._lazily("transform", X, self.n_clusters) if is_dask(X) else super().transform(X)
