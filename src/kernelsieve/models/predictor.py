"""Predictions of one row at a time, for servers: no thread pool, no checks beyond what is needed.

All that does not depend on the row is computed once. A predictor has no state that a call changes,
so threads may share it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from kernelsieve.features import FeatureMap
from kernelsieve.kernels import Kernel
from kernelsieve.learning.neighbours import LocalCorrection
from kernelsieve.models._base import both_classes

Scores = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Predictor:
    """What ``model.predictor()`` returns: call it with a row.

    Parameters
    ----------
    scores : callable
        Takes a row of shape (1, d) in float64, and returns outputs of shape (n_outputs,).
    n_features : int
        Number of columns of a row.
    missing : bool
        Whether NaN may stand for a missing value.
    single : bool
        Whether there is one output, which is returned as a float.
    classes : ndarray of shape (n_classes,), optional
        The labels of a classifier, whose scores these are.
    sharpness : float
        Of a classifier: the factor of the scores inside the softmax.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import AdaptiveFeatures, KernelRidge
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> model = KernelRidge(AdaptiveFeatures(30, random_state=0)).fit(X, X[:, 0])
    >>> predict = model.predictor()
    >>> bool(np.isclose(predict(X[0]), model.predict(X[:1])[0]))
    True
    """

    def __init__(
        self,
        scores: Scores,
        n_features: int,
        *,
        missing: bool,
        single: bool,
        classes: NDArray[Any] | None = None,
        sharpness: float = 1.0,
    ) -> None:
        self._scores = scores
        self._n_features = n_features
        self._missing = missing
        self._single = single
        self._classes = classes
        self._sharpness = sharpness

    def __call__(self, row: Any) -> Any:
        """Predict one row.

        Parameters
        ----------
        row : array-like of shape (d,)

        Returns
        -------
        float, ndarray of shape (n_outputs,), or the label of a class
        """
        scores = self._checked_scores(row)
        if self._classes is None:
            return float(scores[0]) if self._single else scores
        place = int(scores[0] > 0) if len(scores) == 1 else int(scores.argmax())
        return self._classes[place]

    def probabilities(self, row: Any) -> NDArray[np.float64]:
        """Predict the probabilities of the classes of one row; for classifiers only.

        Parameters
        ----------
        row : array-like of shape (d,)

        Returns
        -------
        ndarray of shape (n_classes,)
        """
        if self._classes is None:
            raise AttributeError("a regression has no probabilities: call the predictor itself")
        scores = self._checked_scores(row)
        scores = scores if len(self._classes) == 2 else scores[None]
        return softmax(self._sharpness * both_classes(scores), axis=1)[0]

    def plus(self, more: Scores) -> Predictor:
        """Return a predictor whose scores are the sum of these and others.

        Parameters
        ----------
        more : callable
            Takes a row of shape (1, d), and returns outputs of shape (n_outputs,).

        Returns
        -------
        Predictor
        """
        scores, other = self._scores, copy.copy(self)
        other._scores = lambda row: scores(row) + more(row)
        return other

    def then(self, function: Scores) -> Predictor:
        """Return a predictor whose outputs are a function of these.

        Parameters
        ----------
        function : callable
            Takes and returns outputs of shape (n_outputs,).

        Returns
        -------
        Predictor
        """
        scores, other = self._scores, copy.copy(self)
        other._scores = lambda row: function(scores(row))
        return other

    def _checked_scores(self, row: Any) -> NDArray[np.float64]:
        values = np.asarray(row, dtype=np.float64)
        if values.shape != (self._n_features,):
            raise ValueError(
                f"a row of shape {values.shape}: the model takes one row of {self._n_features} "
                "numbers at a time; use predict for several"
            )
        known = values[~np.isnan(values)] if self._missing else values
        if not np.isfinite(known).all():
            what = "infinity" if self._missing else "NaN or infinity"
            raise ValueError(f"the row contains {what}, which the model does not take: {values}")
        scores = self._scores(values[None])
        if not np.isfinite(scores).all():
            raise ValueError("the prediction overflows float64: scale the row")
        return scores


def ridge_scores(model: Any) -> Scores:
    """The outputs of a fitted KernelRidge for one row, as quickly as possible."""
    dual = getattr(model, "dual_coef_", None)
    intercept = np.atleast_1d(np.asarray(model.intercept_, dtype=np.float64))
    if dual is None:
        scores = linear_scores(model.features_, model.coef_, intercept)
        local, kernel = getattr(model, "local_", None), model.features_.kernel_
        return scores if local is None else corrected_scores(scores, local, kernel)
    kernel = row_kernel(model.features_.kernel_, model.X_fit_)
    weights = dual.reshape(len(dual), -1)
    return lambda row: (kernel(row) @ weights)[0] + intercept


def corrected_scores(scores: Scores, local: LocalCorrection, kernel: Kernel) -> Scores:
    """The same, corrected by the nearest rows."""

    def corrected(row: NDArray[np.float64]) -> NDArray[np.float64]:
        predicted = scores(row)
        return predicted + local.at(kernel, row, predicted[None])[0][0]

    return corrected


def linear_scores(features: FeatureMap, coefficients: Any, intercept: Any) -> Scores:
    """Features of a row times coefficients (s,) or (s, n_outputs), plus intercepts."""
    weights = np.asarray(coefficients, dtype=np.float64).reshape(len(coefficients), -1)
    outputs = features.times(weights)
    return lambda row: outputs(row)[0] + intercept


def row_kernel(kernel: Kernel, points: Any) -> Scores:
    """k(x, y) of one row x (1, d) and all points y (m, d): (1, m)."""
    if not isinstance(points, np.ndarray):
        return lambda row: kernel.between(row, points, 1)
    return kernel.against(points.astype(np.float64))
