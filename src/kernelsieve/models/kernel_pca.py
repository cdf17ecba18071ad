"""Kernel principal component analysis on explicit features."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from kernelsieve._state import AbsentOr, array, instance, switch, wrong
from kernelsieve._validation import check_count, check_positive
from kernelsieve.features import AdaptiveFeatures, FeatureMap
from kernelsieve.linalg.eigenvalues import leading_eigenvectors
from kernelsieve.linalg.normal_equations import NormalEquations
from kernelsieve.linalg.operators import dense
from kernelsieve.models._base import FeatureModel
from kernelsieve.models.kernel_ridge import KernelRidge
from kernelsieve.models.passes import check_gram
from kernelsieve.sources.base import Source
from kernelsieve.sources.given import lazy_on_dask
from kernelsieve.sources.views import Mapped


class KernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, FeatureModel):
    """Principal component analysis in feature space.

    Parameters
    ----------
    n_components : int, default 2
        Number of principal components.
    features : FeatureMap, default AdaptiveFeatures()
        The map that stands for the kernel.
    fit_inverse_transform : bool, default False
        Whether to learn ``inverse_transform``, by kernel ridge regression of rows on components.
    alpha : float, default 0.1
        Regularisation of that regression.
    block_rows : int, default None
        Rows whose features each thread holds at a time; None takes up to 4096.
    n_jobs : int, default all cores
        Number of threads.
    verbose : int, default 0
        1 shows progress.

    Attributes
    ----------
    eigenvalues_ : ndarray of shape (n_components,)
        Largest eigenvalues of the centred kernel matrix, descending.
    components_ : ndarray of shape (n_map_features, n_components)
        Directions in feature space, in columns.
    mean_ : ndarray of shape (n_map_features,)
        Mean of the features.
    explained_variance_ : ndarray of shape (n_components,)
        The eigenvalues over the number of rows.
    explained_variance_ratio_ : ndarray of shape (n_components,)
        The eigenvalues over the sum of all of them.
    features_ : FeatureMap
        The fitted map.
    inverse_ : KernelRidge
        With ``fit_inverse_transform=True``: the regression of rows on components.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if X had names.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import KernelPCA, RowNormFeatures
    >>> X = np.random.default_rng(0).normal(size=(100, 4))
    >>> KernelPCA(3, RowNormFeatures(50, random_state=0)).fit_transform(X).shape
    (100, 3)
    """

    _state_parameters: ClassVar = {"fit_inverse_transform": switch}
    _state_fields: ClassVar = {
        "mean_": array("s"),
        "components_": array("s", "k"),
        "eigenvalues_": array("k"),
        "explained_variance_": array("k"),
        "explained_variance_ratio_": array("k"),
        "inverse_": AbsentOr(instance(KernelRidge, fitted=True, k="n_features_in_")),
    }

    def _complete(self) -> None:
        if self.fit_inverse_transform and not hasattr(self, "inverse_"):
            wrong("inverse_", "is missing, although fit_inverse_transform is set")

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
        """Fit the map and find the components.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d), or Source
        y : array-like of shape (n,) or (n, n_outputs), optional
            For a map with kernel="learned" only: what the kernel is learned from.

        Returns
        -------
        self
        """
        wanted = check_count(self.n_components, "n_components", "it is the number of components")
        rows = self._rows_for_map(X, y)
        self.__dict__.pop("inverse_", None)
        self._fit_features(rows)
        check_gram(self.features_.n_components_, self.n_jobs)
        problem = self.passes.reduce(
            lambda Z, block: NormalEquations.of_block(Z, np.empty((len(block), 0))), rows
        ).centred(True)
        values, vectors = leading_eigenvectors(problem.gram, min(wanted, len(problem.gram)))
        self.mean_ = problem.feature_mean
        self.eigenvalues_, self.components_ = values, vectors
        self.explained_variance_ = values / rows.shape[0]
        trace = float(np.trace(problem.gram))
        self.explained_variance_ratio_ = values / trace if trace > 0 else np.zeros_like(values)
        if self.fit_inverse_transform:
            check_positive(self.alpha, "alpha", "it is the ridge of the inverse transform")
            X = rows.in_memory("fit_inverse_transform=True")
            # With the seed of the map: the same fit gives the same inverse.
            features = AdaptiveFeatures(random_state=self.features_.random_state)
            self.inverse_ = KernelRidge(features, alpha=self.alpha, n_jobs=self.n_jobs)
            self.inverse_.fit(self._project(X), dense(X))
        return self

    @lazy_on_dask
    def transform(self, X: Any) -> Any:
        """Project rows on the principal components.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d), or Source

        Returns
        -------
        ndarray of shape (n, n_components), or Source if X is one
        """
        check_is_fitted(self)
        X = self._valid_rows(X)
        if isinstance(X, Source):
            return Mapped(X, self._project, self._n_features_out)
        return self._project(X)

    def _project(self, X: Any) -> NDArray[Any]:
        return self._scores(self.features_, X, self.mean_, self.components_, "the components")

    def inverse_transform(self, T: Any) -> NDArray[Any]:
        """Find rows whose components are approximately T.

        Parameters
        ----------
        T : array-like of shape (n, n_components)

        Returns
        -------
        ndarray of shape (n, d)
        """
        check_is_fitted(self)
        if not hasattr(self, "inverse_"):
            raise ValueError(
                "inverse_transform was not learned: fit the model with fit_inverse_transform=True"
            )
        return self.inverse_.predict(T)

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
