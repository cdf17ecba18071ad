"""Kernel PCA and kernel k-means on explicit features."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import eigsh
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from kernelsieve._validation import check_count, check_positive
from kernelsieve.features import FeatureMap
from kernelsieve.models._base import FeatureModel
from kernelsieve.models._linear import NormalEquations
from kernelsieve.models.kernel_ridge import KernelRidge

LARGEST_DENSE_EIGEN = 2048  # features; beyond, Lanczos iterations
LARGEST_IN_MEMORY = 2**27  # entries of Z; beyond, k-means goes by mini-batches


class KernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, FeatureModel):
    """Principal components in feature space, centred there.

    Parameters
    ----------
    n_components : int, default 2
    features : FeatureMap, default AdaptiveFeatures()
    fit_inverse_transform : bool, default False
        Learn, by kernel ridge regression, to go back from components to points.
    alpha : float, default 0.1
        The ridge of the way back.
    block_rows : int, optional
    n_jobs : int, default all cores
    verbose : int, default 0

    Attributes
    ----------
    eigenvalues_ : ndarray of shape (n_components,)
        Of the centred kernel matrix.
    explained_variance_, explained_variance_ratio_ : ndarray of shape (n_components,)

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import KernelPCA, RowNormFeatures
    >>> X = np.random.default_rng(0).normal(size=(100, 4))
    >>> KernelPCA(3, RowNormFeatures(50, random_state=0)).fit_transform(X).shape
    (100, 3)
    """

    def __init__(
        self,
        n_components: int = 2,
        features: FeatureMap | None = None,
        *,
        fit_inverse_transform: bool = False,
        alpha: float = 0.1,
        block_rows: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.features = features
        self.fit_inverse_transform = fit_inverse_transform
        self.alpha = alpha
        self.block_rows = block_rows
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the map and find the components; y is ignored."""
        wanted = check_count(self.n_components, "n_components", "it is the number of components")
        X = self._valid_rows(X, reset=True)
        self._fit_features(X, None)
        nothing = np.empty((X.shape[0], 0))
        total = NormalEquations.zero(self.features_.n_components_, 0)
        for part in self._stream(
            lambda Z, rows: NormalEquations.of_block(Z, nothing[rows]), X, "Features"
        ):
            total += part
        problem = total.centred(True)
        values, vectors = _leading(problem.gram, min(wanted, len(problem.gram)))
        self.mean_ = problem.feature_mean
        self.eigenvalues_, self.components_ = values, vectors
        self.explained_variance_ = values / X.shape[0]
        trace = float(np.trace(problem.gram))
        self.explained_variance_ratio_ = values / trace if trace > 0 else np.zeros_like(values)
        if self.fit_inverse_transform:
            check_positive(self.alpha, "alpha", "it is the ridge of the way back")
            dense = X.toarray() if hasattr(X, "toarray") else X
            self.inverse_ = KernelRidge(alpha=self.alpha, n_jobs=self.n_jobs)
            self.inverse_.fit(self._project(X), dense)
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """The components of the rows of X, of shape (n, n_components)."""
        check_is_fitted(self)
        return self._project(self._valid_rows(X))

    def _project(self, X: Any) -> NDArray[Any]:
        offset = (self.mean_ @ self.components_).astype(X.dtype)
        vectors = self.components_.astype(X.dtype)
        return np.concatenate(self._map_blocks(lambda Z, _: Z @ vectors - offset, X))

    def inverse_transform(self, T: Any) -> NDArray[Any]:
        """Points whose components are about T."""
        check_is_fitted(self)
        if not self.fit_inverse_transform:
            raise ValueError("this model was not fitted to go back: fit_inverse_transform=True")
        return self.inverse_.predict(T)

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _leading(
    gram: NDArray[np.float64], count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The largest eigenvalues, descending, and their vectors with fixed signs."""
    size = len(gram)
    if size > LARGEST_DENSE_EIGEN and count < size // 10:
        start = np.random.default_rng(0).standard_normal(size)
        values, vectors = eigsh(gram, k=count, v0=start)
    else:
        values, vectors = eigh(gram, subset_by_index=(size - count, size - 1))
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.sign(vectors[largest, np.arange(count)])
    return values, vectors * np.where(signs == 0, 1.0, signs)


class KernelKMeans(ClusterMixin, TransformerMixin, FeatureModel):
    """k-means in feature space.

    Parameters
    ----------
    n_clusters : int, default 8
    features : FeatureMap, default AdaptiveFeatures()
    n_init : int, default 3
        Starts by k-means++; the best one is kept.
    max_iter : int, default 300
    batch_rows : int or None, default None
        Rows of a mini-batch. None keeps all features in memory while they are at most 2^27
        numbers, and goes by mini-batches of 4096 rows beyond.
    random_state : int, RandomState or None
    block_rows : int, optional
    n_jobs : int, default all cores
    verbose : int, default 0

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_components)
        In feature space.
    labels_ : ndarray of shape (n,)
    inertia_ : float
        Summed squared distances in feature space.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import KernelKMeans, RowNormFeatures
    >>> X = np.array([[0.0], [0.1], [5.0], [5.1]])
    >>> features = RowNormFeatures(20, gamma=0.1, random_state=0)
    >>> labels = KernelKMeans(2, features, random_state=0).fit_predict(X)
    >>> bool(labels[0] == labels[1] != labels[2] == labels[3])
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        features: FeatureMap | None = None,
        *,
        n_init: int = 3,
        max_iter: int = 300,
        batch_rows: int | None = None,
        random_state: Any = None,
        block_rows: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.features = features
        self.n_init = n_init
        self.max_iter = max_iter
        self.batch_rows = batch_rows
        self.random_state = random_state
        self.block_rows = block_rows
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the map and the centres; y is ignored."""
        check_count(self.n_clusters, "n_clusters", "it is the number of clusters")
        X = self._valid_rows(X, reset=True)
        if X.shape[0] < self.n_clusters:
            raise ValueError(
                f"n_samples={X.shape[0]} should be >= n_clusters={self.n_clusters}: ask for fewer"
            )
        self._fit_features(X, None)
        options = {
            "n_clusters": self.n_clusters,
            "n_init": self.n_init,
            "max_iter": self.max_iter,
            "random_state": self.random_state,
        }
        small = X.shape[0] * self.features_.n_components_ <= LARGEST_IN_MEMORY
        if self.batch_rows is None and small:
            means = KMeans(**options).fit(self.features_.transform(X), None, sample_weight)
        else:
            means = self._by_batches(X, options)
        self.cluster_centers_, self.n_iter_ = means.cluster_centers_, means.n_iter_
        self._means = means
        squares, labels = zip(*self._map_blocks(self._nearest, X), strict=True)
        self.labels_ = np.concatenate(labels)
        distances = np.concatenate(squares)
        weights = np.ones(len(distances)) if sample_weight is None else np.asarray(sample_weight)
        self.inertia_ = float(weights @ distances)
        return self

    def _by_batches(self, X: Any, options: dict[str, Any]) -> MiniBatchKMeans:
        """Passes over the rows in random order, a mini-batch of features at a time."""
        rng = check_random_state(self.random_state)
        size = 4096 if self.batch_rows is None else self.batch_rows
        check_count(size, "batch_rows", "it is the number of rows in a mini-batch")
        size = max(size, self.n_clusters)
        means = MiniBatchKMeans(batch_size=size, **options)
        for _ in range(3):
            order = rng.permutation(X.shape[0])
            for first in range(0, X.shape[0] - size + 1, size):
                rows = np.sort(order[first : first + size])
                means.partial_fit(self.features_._transform_block(X[rows]))
        means.n_iter_ = 3
        return means

    def _nearest(self, Z: Any, _: slice) -> tuple[NDArray[Any], NDArray[Any]]:
        distances = self._means.transform(Z)
        return distances.min(axis=1) ** 2, distances.argmin(axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        """The nearest centre of every row."""
        check_is_fitted(self)
        parts = self._map_blocks(self._nearest, self._valid_rows(X))
        return np.concatenate([labels for _, labels in parts])

    def transform(self, X: Any) -> NDArray[Any]:
        """Distances to the centres in feature space, of shape (n, n_clusters)."""
        check_is_fitted(self)
        parts = self._map_blocks(lambda Z, _: self._means.transform(Z), self._valid_rows(X))
        return np.concatenate(parts)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the distances: "kernelkmeans0", ..."""
        check_is_fitted(self)
        return np.array([f"kernelkmeans{k}" for k in range(self.n_clusters)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
