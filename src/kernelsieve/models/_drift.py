"""Have the rows moved away from those that a model was fitted to?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kernelsieve._validation import valid_rows
from kernelsieve.linalg.operators import dense
from kernelsieve.models.kernel_ridge import KernelRidge
from kernelsieve.models.ridge_solve import unseen_part
from kernelsieve.sources.marginals import Marginals


@dataclass(frozen=True)
class Drift:
    """How far some rows are from those of the fit.

    Attributes
    ----------
    outside : float
        The share of the trace of the kernel, sum k(x, x), that is of rows with a value outside the
        range of its column in training. For kernels with k(x, x) = 1 it is the share of such rows.
    columns : ndarray of shape (d,)
        The share of the rows whose value in each column is outside of its range in training.
    missing : ndarray of shape (d,)
        The share of missing values in each column, less that in training.
    unseen : float
        The share of the trace that the features leave out: ``k(x, x) - |z(x)|^2``, at least 0.
    n_rows : int

    Notes
    -----
    The range of a column is that of the values that ``marginals_`` keeps: all of them if there are
    at most 256, else medians of 256 groups. So about 1 in 256 of the rows like those of the fit is
    outside in each column.
    """

    outside: float
    columns: NDArray[np.float64]
    missing: NDArray[np.float64]
    unseen: float
    n_rows: int

    def __str__(self) -> str:
        worst = int(np.argmax(self.columns))
        return (
            f"{self.n_rows:,} rows: {self.outside:.1%} of the trace outside the training range, "
            f"most in column {worst} ({self.columns[worst]:.1%} of the rows); the features leave "
            f"out {self.unseen:.1%}"
        )


def drift(model: KernelRidge, X: Any) -> Drift:
    """Report how far rows are from those of the fit.

    Parameters
    ----------
    model : KernelRidge
        Fitted.
    X : {array-like, sparse matrix} of shape (n, d)

    Returns
    -------
    Drift

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import AdaptiveFeatures, KernelRidge, drift
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = KernelRidge(AdaptiveFeatures(50, random_state=0)).fit(X, X[:, 0])
    >>> drift(model, X + 10.0).outside
    1.0
    """
    check_is_fitted(model)
    X = valid_rows(model, X, reset=False)
    if model.marginals_ is None:
        raise ValueError(
            f"the model knows no ranges of its {model.n_features_in_:,} columns: they are kept "
            "for at most 4,096"
        )
    outside, missing = outside_range(X, model.marginals_)
    kernel = model.kernel_
    trace = kernel.diag(X).astype(np.float64)
    unseen = model.passes.map(lambda Z, block: unseen_part(kernel, block.X, Z), X)
    return Drift(
        float(trace[outside.any(axis=1)].sum() / trace.sum()),
        outside.mean(axis=0),
        missing,
        float(np.concatenate(unseen).sum() / trace.sum()),
        len(trace),
    )


def outside_range(X: Any, marginals: Marginals) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Which values are outside the range of their columns, and how many more are missing.

    Parameters
    ----------
    X : {ndarray, CSR} of shape (n, d)
    marginals : Marginals

    Returns
    -------
    outside : ndarray of bool of shape (n, d)
    missing : ndarray of shape (d,)
    """
    rows = np.asarray(dense(X), dtype=np.float64)
    outside, missing = np.zeros(rows.shape, dtype=bool), np.isnan(rows).mean(axis=0)
    for i in range(rows.shape[1]):
        values, weights = marginals.column(i)
        known = ~np.isnan(values)
        missing[i] -= weights[~known].sum()
        if known.any():
            low, high = values[known].min(), values[known].max()
            outside[:, i] = (rows[:, i] < low) | (rows[:, i] > high)
    return outside, missing
