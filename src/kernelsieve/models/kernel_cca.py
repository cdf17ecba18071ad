"""Canonical correlations of two views, each with a feature map of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import solve_triangular, svd
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from kernelsieve._state import array, instance
from kernelsieve._validation import check_count, check_points, check_positive, check_range
from kernelsieve.features import FeatureMap
from kernelsieve.linalg.cholesky import regularised_cholesky
from kernelsieve.linalg.normal_equations import NormalEquations
from kernelsieve.linalg.operators import dense
from kernelsieve.models._base import FeatureModel, fresh_features, learns_kernel
from kernelsieve.models.passes import check_gram
from kernelsieve.sources.base import ArraySource, Block
from kernelsieve.sources.given import given_source


class KernelCCA(TransformerMixin, FeatureModel):
    """Regularised kernel canonical correlation analysis of two views of the same rows.

    Finds directions a and b in the two feature spaces whose scores have the largest covariance
    under ``|scores of a|^2 + alpha |a|^2 = 1``, and the same for b.

    Parameters
    ----------
    n_components : int, default 2
        Number of pairs of directions.
    features : FeatureMap, default AdaptiveFeatures()
        The map of the first view.
    features_y : FeatureMap, default a copy of ``features``
        The map of the second view.
    alpha : float, default 1.0
        The regularisation of both views.
    block_rows : int, default None
        Rows whose features each thread holds at a time; None takes up to 4096.
    n_jobs : int, default all cores
        Number of threads.
    verbose : int, default 0
        1 shows progress.

    Attributes
    ----------
    correlations_ : ndarray of shape (n_components,)
        The regularised canonical correlations, descending.
    x_weights_ : ndarray of shape (n_map_features, n_components)
        Directions of the first view, in columns.
    y_weights_ : ndarray of shape (n_map_features_y, n_components)
        Directions of the second view.
    x_mean_ : ndarray of shape (n_map_features,)
        Mean of the features of the first view.
    y_mean_ : ndarray of shape (n_map_features_y,)
        Mean of the features of the second view.
    features_ : FeatureMap
        The fitted map of the first view.
    features_y_ : FeatureMap
        The fitted map of the second view.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if X had names.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import KernelCCA, RowNormFeatures
    >>> rng = np.random.default_rng(0)
    >>> t = rng.uniform(-1, 1, size=(300, 1))
    >>> views = t**2 + 0.01 * rng.normal(size=(300, 1)), t
    >>> cca = KernelCCA(1, RowNormFeatures(20, gamma=1.0, random_state=0), alpha=0.1)
    >>> bool(cca.fit(*views).correlations_[0] > 0.9)
    True
    """

    _state_parameters: ClassVar = {"features_y": instance(FeatureMap, None)}
    _state_fields: ClassVar = {
        "features_y_": instance(FeatureMap, fitted=True, s_y="n_components_"),
        "correlations_": array("k"),
        "x_mean_": array("s"),
        "y_mean_": array("s_y"),
        "x_weights_": array("s", "k"),
        "y_weights_": array("s_y", "k"),
    }

    def __init__(
        self,
        n_components: int = 2,
        features: FeatureMap | None = None,
        features_y: FeatureMap | None = None,
        *,
        alpha: float = 1.0,
        block_rows: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.features = features
        self.features_y = features_y
        self.alpha = alpha
        self.block_rows = block_rows
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Fit both maps and the directions.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d)
            The first view.
        y : {array-like, sparse matrix} of shape (n,) or (n, d_y)
            The second view of the same rows.

        Returns
        -------
        self
        """
        alpha = check_positive(self.alpha, "alpha", "it regularises both views")
        wanted = check_count(self.n_components, "n_components", "it is the number of directions")
        source = given_source(X)
        X = X if source is None else source.in_memory("KernelCCA")
        X, Y = self._valid_rows(X, reset=True), _second_view(y)
        if X.shape[0] != Y.shape[0]:
            raise ValueError(
                f"X has {X.shape[0]} rows and y has {Y.shape[0]}: pass two views of the same rows"
            )
        rows = ArraySource(X)
        second = self.features if self.features_y is None else self.features_y
        self._fit_features(_shown(X, Y, self.features), alpha=alpha)
        self.features_y_ = fresh_features(second, alpha=alpha).fit(_shown(Y, X, second))

        # The first view's features, with the second's as its targets: all moments in one pass.
        def block(Z: Any, block: Block) -> _Views:
            W = dense(self.features_y_.transform_block(Y[block.rows])).astype(np.float64)
            return _Views(
                NormalEquations.of_block(Z, W),
                NormalEquations.of_block(W, np.empty((len(W), 0))),
            )

        check_gram(self.features_.n_components_ + self.features_y_.n_components_, self.n_jobs)
        views = self.passes.reduce(block, rows)
        left, right = views.cross.centred(True), views.other.centred(True)
        left_factor, _ = regularised_cholesky(left.gram, alpha)
        right_factor, _ = regularised_cholesky(right.gram, alpha)
        half = solve_triangular(left_factor, left.moment, lower=True)
        core = solve_triangular(right_factor, half.T, lower=True).T
        u, values, vt = svd(core, full_matrices=False)
        u, v = u[:, :wanted], vt[:wanted].T
        self.correlations_ = np.clip(values[:wanted], 0.0, 1.0)
        self.x_mean_, self.y_mean_ = left.feature_mean, left.target_mean
        self.x_weights_ = solve_triangular(left_factor, u, lower=True, trans="T")
        self.y_weights_ = solve_triangular(right_factor, v, lower=True, trans="T")
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """Project rows of the first view on their directions.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d)

        Returns
        -------
        ndarray of shape (n, n_components)
        """
        check_is_fitted(self)
        X = self._valid_rows(X)
        return self._scores(self.features_, X, self.x_mean_, self.x_weights_, "the scores")

    def transform_y(self, y: Any) -> NDArray[Any]:
        """Project rows of the second view on their directions.

        Parameters
        ----------
        y : {array-like, sparse matrix} of shape (n,) or (n, d_y)

        Returns
        -------
        ndarray of shape (n, n_components)
        """
        check_is_fitted(self)
        Y = _second_view(y)
        if Y.shape[1] != self.features_y_.n_features_in_:
            raise ValueError(
                f"y has {Y.shape[1]} columns, but KernelCCA was fitted with "
                f"{self.features_y_.n_features_in_}"
            )
        return self._scores(self.features_y_, Y, self.y_mean_, self.y_weights_, "the scores")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _shown(view: Any, other: Any, features: FeatureMap | None) -> ArraySource:
    """A view; with the other one as its target if the kernel is to be learned."""
    if not learns_kernel(features):
        return ArraySource(view)
    if sp.issparse(other):
        raise ValueError(
            "kernel='learned' learns the kernel of a view from the other one, which must be dense: "
            "pass its toarray(), or choose a kernel"
        )
    return ArraySource(view, other)


def _second_view(y: Any) -> Any:
    if y is None:
        raise ValueError("KernelCCA requires y to be passed, but the target y is None")
    array = y if hasattr(y, "tocsr") else np.asarray(y)
    Y = check_points(array.reshape(-1, 1) if array.ndim == 1 else array, "y")
    check_range(Y, "y")
    return Y


@dataclass
class _Views:
    """The sums of the first view with the second as its target, and those of the second."""

    cross: NormalEquations
    other: NormalEquations

    def __iadd__(self, more: _Views) -> _Views:
        self.cross += more.cross
        self.other += more.other
        return self
