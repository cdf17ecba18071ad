"""Rank the features of a fitted model, named after the columns of the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kernelsieve._random import keyed_rows
from kernelsieve.features.adaptive import SampledFeatures
from kernelsieve.kernels import Gaussian
from kernelsieve.kernels.zonal import SphericalKernel
from kernelsieve.linalg.operators import dense
from kernelsieve.sources.given import given_source

SOURCE_ROWS = 20_000


@dataclass(frozen=True)
class Ranking:
    """The features of a model, most important first; ``plots.plot_table_model`` draws them.

    Attributes
    ----------
    names : ndarray of str of shape (n_features,)
    coefficients : ndarray of shape (n_features,)
        Of several outputs, the coefficient of the largest size.
    importances : ndarray of shape (n_features,)
        The size of the coefficient (its norm over all outputs) times the standard deviation of the
        feature: by how much it moves predictions.
    note : str
        What the factors of the products are: scaled, centred, rotated.
    """

    names: NDArray[np.object_]
    coefficients: NDArray[np.float64]
    importances: NDArray[np.float64]
    note: str

    def text(self, top: int = 10) -> str:
        """Format the first features as a table.

        Parameters
        ----------
        top : int, default 10
            How many features to show.

        Returns
        -------
        str
        """
        shown = range(min(top, len(self.names)))
        width = max([len("feature"), *(len(str(self.names[i])) for i in shown)])
        lines = [f"{'feature':<{width}}  coefficient  importance"]
        lines += [
            f"{self.names[i]:<{width}}  {self.coefficients[i]:>11.4g}  {self.importances[i]:>10.4g}"
            for i in shown
        ]
        return "\n".join([*lines, self.note])

    def __str__(self) -> str:
        return self.text()


def ranked_monomials(model: Any, X: Any, input_features: Any = None) -> Ranking:
    """Rank the features of a fitted model.

    Parameters
    ----------
    model : KernelRidge or KernelRidgeCV
        With AdaptiveFeatures or RowNormFeatures, whose features have names.
    X : {array-like, sparse matrix} of shape (n, d), or Source
        Rows on which to measure the spread of the features: the training rows, or some of them.
        20,000 rows of a source are used.
    input_features : array-like of str, optional
        Names of the columns, by default those that the model was fitted with.

    Returns
    -------
    Ranking

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import KernelRidge, RowNormFeatures
    >>> X = np.random.default_rng(0).normal(size=(300, 4))
    >>> features = RowNormFeatures(15, kernel="poly", degree=2, rotate=False, random_state=0)
    >>> model = KernelRidge(features, alpha=1e-3).fit(X, X[:, 1] * X[:, 3])
    >>> str(ranked_monomials(model, X).names[0])
    'x1 x3'
    """
    check_is_fitted(model)
    features = getattr(model.features_, "map_", model.features_)  # what AutoFeatures chose
    if not isinstance(features, SampledFeatures):
        raise TypeError(
            f"{type(features).__name__} has no features with names: use AdaptiveFeatures or "
            "RowNormFeatures"
        )
    outputs = np.asarray(model.coef_).reshape(len(model.coef_), -1)
    largest = np.abs(outputs).argmax(axis=1)
    coefficients = outputs[np.arange(len(outputs)), largest]
    source = given_source(X)
    if source is not None:
        X = source[keyed_rows(source.shape[0], SOURCE_ROWS, 0, "explain")]
    spread = np.std(dense(features.transform(X)), axis=0, dtype=np.float64)
    importances = np.linalg.norm(outputs, axis=1) * spread
    order = np.argsort(-importances, kind="stable")
    if input_features is None:
        input_features = getattr(model, "feature_names_in_", None)
    names = features.get_feature_names_out(input_features)
    return Ranking(names[order], coefficients[order], importances[order], _note(features))


def _note(features: SampledFeatures) -> str:
    words = ["products of scaled"]
    if features.features_.frame.center is not None:
        words.append(", centred")
    words.append(" principal components" if features.rotate_ else " columns")
    if features.basis_ == "mercer":
        words.append("; x(k) is the k-th adapted function of column x")
    elif isinstance(features.kernel_, Gaussian):
        words.append(", times exp(-|x'|^2 / 2)")
    elif isinstance(features.kernel_, SphericalKernel):
        words.append(" of rows divided by their lengths")
    return "".join(words)
