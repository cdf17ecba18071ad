"""A linear support vector machine on explicit features."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted, column_or_1d

from kernelsieve._state import FLOATS, array, instance, optional, table, whole, wrong
from kernelsieve._validation import check_positive
from kernelsieve.features import FeatureMap
from kernelsieve.models.classifier import FeatureClassifier, Signs
from kernelsieve.models.predictor import Scores, linear_scores
from kernelsieve.sources.changed import recoded
from kernelsieve.sources.given import lazy_on_dask
from kernelsieve.sources.marginals import Marginals, sampled_rows

CALIBRATION_ROWS = 20_000
FOLDS = 4
ALL_FOLDS = 1_000  # rows up to which each of them is left out once; beyond, one fold is enough
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
    sharpness_ : float
        Factor of the scores inside the softmax that turns them into probabilities. It is fitted to
        rows that were left out, and so are shifts of the intercepts.
    n_iter_ : int
        Iterations of liblinear.
    marginals_ : Marginals or None
        The distribution of each column, for ``explain``; None for many columns.
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
        "marginals_": optional(instance(Marginals, d="n_columns")),
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
        rows, labels = self._labelled(X, y, sample_weight)
        X, y = rows.in_memory("KernelSVC"), rows.take(np.arange(rows.shape[0])).y
        shown = sampled_rows(rows)
        self.marginals_ = Marginals.of_rows(rows[shown]) if len(shown) else None
        self._fit_features(recoded(rows, Signs(self.classes_, None), ()), alpha=1.0 / self.C)
        Z = self._moderate(self.features_.transform(X))
        self.svc_ = self._machine().fit(Z, y, sample_weight)
        self.n_iter_ = self.svc_.n_iter_
        self._calibrate_folds(Z, y, sample_weight, labels.weights(self.class_weight))
        return self

    def _calibrate_folds(self, Z: Any, y: Any, sample_weight: Any, by_class: Any) -> None:
        """Calibrate with scores of rows that the machine behind them has not seen.

        The features have seen all rows. Where leaving out a fold would leave out a class, the
        scores of the fit itself stand for those of other rows.
        """
        some = np.linspace(0, len(y) - 1, min(len(y), CALIBRATION_ROWS)).astype(int)
        weights = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, float)
        Z, y, weights = Z[some], column_or_1d(y)[some], weights[some]
        places = np.searchsorted(self.classes_, y)
        folds = _folds(places)
        scores = np.asarray(self.svc_.decision_function(Z), dtype=np.float64)
        left_out = np.zeros(len(y), dtype=bool)
        for fold in range(FOLDS if len(y) <= ALL_FOLDS else 1):
            out = folds == fold
            if out.any() and len(np.unique(places[~out])) == len(self.classes_):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)  # the fit has given it
                    machine = self._machine().fit(Z[~out], y[~out], weights[~out])
                scores[out] = machine.decision_function(Z[out])
                left_out |= out
        rows = left_out if left_out.any() else ~left_out
        found = self._calibration(y[rows], scores[rows], (weights * by_class[places])[rows])
        self.sharpness_ = found.slope
        self.svc_.intercept_ = self.svc_.intercept_ + found.shifts

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
        parts = self.passes.map(lambda Z, _: self.svc_.decision_function(Z), X)
        return np.concatenate(parts).astype(X.dtype, copy=False)

    def _row_scores(self) -> Scores:
        planes = self._planes
        return linear_scores(self.features_, planes["coef"].T, planes["intercept"])


def _folds(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """The fold of each row: the rows of a class are dealt out in turn."""
    folds = np.empty(len(places), dtype=np.int64)
    for place in np.unique(places):
        here = np.flatnonzero(places == place)
        folds[here] = np.arange(len(here)) % FOLDS
    return folds
