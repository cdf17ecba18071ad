"""Fewer rows in a refined model, for quicker predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kernelsieve._validation import check_positive
from kernelsieve.models._base import like
from kernelsieve.models.kernel_ridge import KernelRidge


def prune(model: KernelRidge, error: float) -> KernelRidge:
    """Leave out rows with small coefficients from a refined model, for quicker predictions.

    Parameters
    ----------
    model : KernelRidge
        Fitted with ``refine=True``; it is not changed.
    error : float
        Predictions of every output change by at most this much, times sqrt(k(x, x)), which is 1
        for the Gaussian, Laplacian, Matern and product kernels: the coefficients a_i of the
        rows that are left out have ``sum |a_i| sqrt(k(x_i, x_i)) <= error``.

    Returns
    -------
    KernelRidge
        A copy with fewer rows in ``X_fit_`` and ``dual_coef_``.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import KernelRidge, NystromFeatures, prune
    >>> X = np.linspace(0, 10, 500)[:, None]
    >>> model = KernelRidge(NystromFeatures(50), alpha=0.1, refine=True).fit(X, np.sin(X[:, 0]))
    >>> small = prune(model, 1e-3)
    >>> len(small.dual_coef_) < 500
    True
    >>> bool(np.abs(small.predict(X) - model.predict(X)).max() <= 1e-3)
    True
    """
    check_is_fitted(model)
    error = check_positive(error, "error", "it is the largest change of a prediction")
    if not hasattr(model, "dual_coef_"):
        raise ValueError("this model has no coefficients of rows to prune: fit refine=True")
    kept = _needed_rows(model.dual_coef_, model.kernel_.diag(model.X_fit_), error)
    return like(model, X_fit_=model.X_fit_[kept], dual_coef_=model.dual_coef_[kept])


def _needed_rows(dual: NDArray[Any], diagonal: NDArray[Any], error: float) -> NDArray[np.int64]:
    """All rows but the smallest ones that add up to at most ``error`` in every output."""
    roots = np.sqrt(diagonal.astype(np.float64))[:, None]
    sizes = np.abs(dual.reshape(len(dual), -1).astype(np.float64)) * roots
    order = np.argsort(sizes.max(axis=1), kind="stable")
    sums = np.cumsum(sizes[order], axis=0).max(axis=1)
    dropped = int(np.searchsorted(sums, error, side="right"))
    return np.sort(order[min(dropped, len(order) - 1) :])  # a model has at least one row
