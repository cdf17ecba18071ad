"""A linear support vector machine on explicit features."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted

from kernelsieve._state import FLOATS, array, table, whole, wrong
from kernelsieve._validation import check_positive
from kernelsieve.features import FeatureMap
from kernelsieve.models.classifier import FeatureClassifier, Signs
from kernelsieve.sources.base import lazy_on_dask, recoded

LARGEST_SQUARE = 1e120  # of a feature times C: liblinear squares the gradients once more


class KernelSVC(FeatureClassifier):
    """A linear support vector machine on the features, by scikit-learn's LinearSVC.

    All features must fit in memory: n x n_components numbers.

    Parameters
    ----------
    features : FeatureMap, default AdaptiveFeatures()
        The map that stands for the kernel.
    C : float, default 1.0
        Weight of the errors against the margin.
    class_weight : dict, "balanced" or None
        Weight of the rows of each class; "balanced" gives all classes the same total weight.
    max_iter : int, default 2000
        Maximum number of iterations of liblinear.
    random_state : int, RandomState or None
        For liblinear; the map has its own.
    block_rows : int, default None
        Rows whose features each thread holds at a time; None takes up to 4096.
    n_jobs : int, default all cores
        Number of threads.
    verbose : int, default 0
        1 shows progress.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, in ascending order.
    features_ : FeatureMap
        The fitted map.
    svc_ : LinearSVC
        The fitted machine.
    n_iter_ : int
        Iterations of liblinear.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if X had names.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import KernelSVC, RowNormFeatures
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = (X**2).sum(axis=1) > 1.4
    >>> KernelSVC(RowNormFeatures(30, gamma=0.5, random_state=0)).fit(X, y).score(X, y) > 0.9
    True
    """

    _state_fields: ClassVar = {
        "n_iter_": whole(),
        "_planes": table(
            {"coef": array("lines", "s", dtype=FLOATS), "intercept": array("lines", dtype=FLOATS)}
        ),
    }
    _not_stored: ClassVar = {"svc_": "in _planes"}

    @property
    def _planes(self) -> dict[str, NDArray[Any]]:
        """The arrays of scikit-learn's object, which changes from version to version."""
        return {"coef": self.svc_.coef_, "intercept": np.atleast_1d(self.svc_.intercept_)}

    def _restore(self, values: dict[str, Any]) -> None:
        planes = values.pop("_planes")
        super()._restore(values)
        n_classes = len(self.classes_)
        if len(planes["coef"]) != (1 if n_classes == 2 else n_classes):
            wrong("_planes", f"are {len(planes['coef'])} for {n_classes} classes")
        self.svc_ = self._machine()
        self.svc_.coef_, self.svc_.intercept_ = planes["coef"], planes["intercept"]
        self.svc_.classes_, self.svc_.n_iter_ = self.classes_, self.n_iter_
        self.svc_.n_features_in_ = planes["coef"].shape[1]

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
        """Fit the map and the machine.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d), or Source
        y : array-like of shape (n,), optional
            Labels; None takes those of a source.
        sample_weight : array-like of shape (n,), optional
            Multiplies C. The map does not see it.

        Returns
        -------
        self
        """
        check_positive(self.C, "C", "it weighs the errors against the margin")
        rows, _ = self._labelled(X, y, sample_weight)
        X, y = rows.in_memory("KernelSVC"), rows.take(np.arange(rows.shape[0])).y
        self._fit_features(recoded(rows, Signs(self.classes_, None), ()), alpha=1.0 / self.C)
        Z = self._moderate(self.features_.transform(X))
        self.svc_ = self._machine().fit(Z, y, sample_weight)
        self.n_iter_ = self.svc_.n_iter_
        return self

    def _machine(self) -> LinearSVC:
        return LinearSVC(
            C=self.C,
            class_weight=self.class_weight,
            max_iter=self.max_iter,
            random_state=self.random_state,
        )

    def _moderate(self, Z: Any) -> Any:
        """The features, unless they are so large that liblinear would not terminate."""
        largest = float(abs(Z).max())
        if max(self.C, 1.0) * largest**2 > LARGEST_SQUARE:
            raise ValueError(
                f"features reach {largest:.3g}, too large for liblinear to converge at C={self.C:g}"
                ": scale X, or lower gamma, the degree or C"
            )
        return Z

    @lazy_on_dask
    def decision_function(self, X: Any) -> NDArray[Any]:
        """Signed distances to the separating hyperplanes in feature space, up to a factor.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d), or Source

        Returns
        -------
        ndarray of shape (n,) for two classes, (n, n_classes) for more
        """
        check_is_fitted(self)
        X = self._valid_rows(X)
        parts = self._map_blocks(lambda Z, _: self.svc_.decision_function(Z), X)
        return np.concatenate(parts).astype(X.dtype, copy=False)
