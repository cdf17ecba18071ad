"""Kernel k-means on explicit features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils.validation import check_is_fitted

from kernelsieve._random import keyed_rows, root_seed
from kernelsieve._state import FLOATS, array, number, whole, wrong
from kernelsieve._validation import check_count
from kernelsieve.features import FeatureMap
from kernelsieve.linalg.operators import dense
from kernelsieve.models._base import FeatureModel, checked_weights, without_targets
from kernelsieve.models.passes import finite
from kernelsieve.sources.base import Block, Source
from kernelsieve.sources.given import lazy_on_dask

LARGEST_IN_MEMORY = 2**26  # entries of Z; beyond, k-means makes passes over the rows
START_ROWS = 2**14


class KernelKMeans(ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, FeatureModel):
    """k-means clustering in feature space.

    Parameters
    ----------
    n_clusters : int, default 8
        Number of clusters.
    features : FeatureMap, default AdaptiveFeatures()
        The map that stands for the kernel.
    n_init : int, default 3
        Number of k-means++ starts; the best result is kept.
    max_iter : int, default 300
        Maximum number of iterations of each start.
    batch_rows : int or None, default None
        Rows on which the starts are tried, before passes over all rows improve the best one. None
        keeps all features in memory up to 2^26 numbers, and takes 16,384 rows beyond.
    random_state : int, RandomState or None
        For the starts; the map has its own.
    block_rows : int, default None
        Rows whose features each thread holds at a time; None takes up to 4096.
    n_jobs : int, default all cores
        Number of threads.
    verbose : int, default 0
        1 shows progress.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_components)
        Centres in feature space.
    labels_ : ndarray of shape (n,)
        The cluster of each row.
    inertia_ : float
        Sum of the (weighted) squared distances to the nearest centre, in feature space.
    n_iter_ : int
        Iterations of the last run.
    features_ : FeatureMap
        The fitted map.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if X had names.

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

    _state_fields: ClassVar = {
        "cluster_centers_": array("k", "s", dtype=FLOATS),
        "labels_": array(None, dtype=(np.int32,), low=0, below="k"),
        "inertia_": number(),
        "n_iter_": whole(),
    }

    def _complete(self) -> None:
        if not len(self.cluster_centers_):
            wrong("cluster_centers_", "is empty")

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
        """Fit the map and the centres.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d), or Source
        y : array-like of shape (n,) or (n, n_outputs), optional
            For a map with kernel="learned" only: what the kernel is learned from.
        sample_weight : array-like of shape (n,), optional
            Multiplies the squared distances. The map does not see it.

        Returns
        -------
        self
        """
        check_count(self.n_clusters, "n_clusters", "it is the number of clusters")
        shown = self._rows_for_map(X, y)
        rows = without_targets(shown)
        if sample_weight is not None:
            sample_weight = checked_weights(sample_weight, rows)
            rows = rows.with_targets(None, sample_weight)
        n = rows.shape[0]
        if n < self.n_clusters:
            raise ValueError(
                f"n_samples={n} should be >= n_clusters={self.n_clusters}: ask for fewer clusters"
            )
        self._fit_features(shown)
        small = n * self.features_.n_components_ <= LARGEST_IN_MEMORY
        if self.batch_rows is None and small:
            Z = stacked(self.passes.map(lambda Z, _: Z, rows))
            self._start(Z, sample_weight)
        else:
            self._by_passes(rows)
        found = self.passes.map(_Nearest(self.cluster_centers_), rows)
        self.labels_ = np.concatenate([labels for labels, _ in found])
        self.inertia_ = float(sum(inertia for _, inertia in found))
        return self

    def _start(self, Z: Any, sample_weight: Any = None) -> float:
        """Run k-means on features in memory; return its tolerance for the centres' movement."""
        means = KMeans(
            n_clusters=self.n_clusters,
            n_init=self.n_init,
            max_iter=self.max_iter,
            random_state=self.random_state,
        ).fit(Z, None, sample_weight)
        self.cluster_centers_, self.n_iter_ = means.cluster_centers_, means.n_iter_
        return float(means._tol)

    def _by_passes(self, rows: Source) -> None:
        """Try the starts on some rows, then run Lloyd's iterations, one pass over all rows each."""
        size = START_ROWS if self.batch_rows is None else self.batch_rows
        check_count(size, "batch_rows", "it is the number of rows on which starts are tried")
        seed = root_seed(self.random_state)
        few = keyed_rows(rows.shape[0], max(size, self.n_clusters), seed, "starts")
        tol = self._start(self.features_.transform_block(rows[few]))
        for iteration in range(self.max_iter):
            sums = self.passes.reduce(
                _Clusters(self.cluster_centers_), rows, f"Pass {iteration + 1}"
            )
            filled = sums[:, -1] > 0  # a centre that lost all its rows stays where it is
            centres = self.cluster_centers_.copy()
            centres[filled] = sums[filled, :-1] / sums[filled, -1:]
            moved = float(np.sum(np.square(centres - self.cluster_centers_, dtype=np.float64)))
            self.cluster_centers_, self.n_iter_ = centres, iteration + 1
            if moved <= tol:
                break

    @lazy_on_dask
    def predict(self, X: Any) -> NDArray[Any]:
        """Find the nearest centre of each row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d), or Source

        Returns
        -------
        ndarray of shape (n,)
        """
        check_is_fitted(self)
        parts = self.passes.map(_Nearest(self.cluster_centers_), self._valid_rows(X))
        return np.concatenate([labels for labels, _ in parts])

    @lazy_on_dask
    def transform(self, X: Any) -> NDArray[Any]:
        """Compute distances to the centres in feature space.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d), or Source

        Returns
        -------
        ndarray of shape (n, n_clusters)
        """
        check_is_fitted(self)
        X, centres = self._valid_rows(X), self.cluster_centers_
        parts = self.passes.map(lambda Z, _: np.sqrt(_squared_distances(Z, centres)), X)
        return np.concatenate(parts).astype(X.dtype, copy=False)

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _squared_distances(Z: Any, centres: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        return finite(euclidean_distances(Z, centres, squared=True), "the squared distances")


@dataclass(frozen=True)
class _Nearest:
    """The nearest centre of every row of a block, and the sum of the squared distances."""

    centres: NDArray[Any]

    def __call__(self, Z: Any, block: Block) -> tuple[NDArray[np.int32], float]:
        squares = _squared_distances(Z, self.centres)
        labels = squares.argmin(axis=1).astype(np.int32)
        nearest = squares[np.arange(len(block)), labels].astype(np.float64)
        return labels, float(nearest.sum() if block.weights is None else block.weights @ nearest)


@dataclass(frozen=True)
class _Clusters:
    """Sums of the features of every cluster, and their weights in one more column."""

    centres: NDArray[Any]

    def __call__(self, Z: Any, block: Block) -> NDArray[np.float64]:
        labels = _squared_distances(Z, self.centres).argmin(axis=1)
        weights = block.weights_or_ones
        shape = (len(self.centres), len(block))
        members = sp.csr_array((weights, (labels, np.arange(len(block)))), shape=shape)
        sums = np.column_stack([dense(members @ Z), members.sum(axis=1)])
        return sums.astype(np.float64, copy=False)


def stacked(blocks: list[Any]) -> Any:
    """Blocks of features as one matrix."""
    return sp.vstack(blocks, format="csr") if sp.issparse(blocks[0]) else np.concatenate(blocks)
