"""The linear algebra that the models share: accumulate over blocks, then solve."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cho_solve
from scipy.linalg.blas import dsyrk, ssyrk

from kernelsieve._linalg import regularised_cholesky
from kernelsieve._parallel import ordered_row_blocks, row_blocks
from kernelsieve._progress import track
from kernelsieve.features._base import FeatureMap


@dataclass
class NormalEquations:
    """Sums over rows, in float64: all that a ridge needs to know of the data.

    Attributes
    ----------
    upper : ndarray of shape (s, s), the upper triangle of Z^T Z
    moment : ndarray of shape (s, n_outputs), Z^T y
    feature_sum : ndarray of shape (s,)
    target_sum : ndarray of shape (n_outputs,)
    n_rows : int
    """

    upper: NDArray[np.float64]
    moment: NDArray[np.float64]
    feature_sum: NDArray[np.float64]
    target_sum: NDArray[np.float64]
    n_rows: int

    @classmethod
    def zero(cls, n_components: int, n_outputs: int) -> NormalEquations:
        """The sums over no rows."""
        return cls(
            np.zeros((n_components, n_components)),
            np.zeros((n_components, n_outputs)),
            np.zeros(n_components),
            np.zeros(n_outputs),
            0,
        )

    def __iadd__(self, other: NormalEquations) -> NormalEquations:
        self.upper += other.upper
        self.moment += other.moment
        self.feature_sum += other.feature_sum
        self.target_sum += other.target_sum
        self.n_rows += other.n_rows
        return self

    def gram(self) -> NDArray[np.float64]:
        """Z^T Z, both triangles."""
        return self.upper + np.triu(self.upper, 1).T

    def centred(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Gram and moment of the centred features and targets (of the intercept's problem)."""
        mean = self.feature_sum / self.n_rows
        gram = self.gram() - np.outer(mean, self.feature_sum)
        return gram, self.moment - np.outer(mean, self.target_sum)


def accumulate(
    features: FeatureMap,
    X: Any,
    y: NDArray[np.float64],
    *,
    alpha: float,
    block_rows: int,
    n_jobs: int | None,
    verbose: int,
) -> NormalEquations:
    """The normal equations of ``y`` on the features of X; never more than a few blocks of Z."""
    single = X.dtype == np.float32 and _float32_products_suffice(features, X, alpha)

    def block_sums(rows: slice) -> NormalEquations:
        return _block_sums(features._transform_block(X[rows]), y[rows], single)

    total = NormalEquations.zero(features.n_components_, y.shape[1])
    sums: Iterator[NormalEquations] = ordered_row_blocks(block_sums, X.shape[0], block_rows, n_jobs)
    for part in track(sums, len(row_blocks(X.shape[0], block_rows)), "Features", verbose):
        total += part
    return total


def _block_sums(Z: Any, y: NDArray[np.float64], single: bool) -> NormalEquations:
    if sp.issparse(Z):
        upper = np.triu((Z.T @ Z).toarray()).astype(np.float64)
        feature_sum = np.asarray(Z.sum(axis=0, dtype=np.float64)).ravel()
        return NormalEquations(upper, Z.T @ y, feature_sum, y.sum(axis=0), len(y))
    feature_sum = Z.sum(axis=0, dtype=np.float64)
    # The symmetric product is half the work; the transpose of a C array needs no copy.
    if single:
        upper, moment = ssyrk(1.0, Z.T), Z.T @ y.astype(np.float32)
    else:
        Z = Z.astype(np.float64, copy=False)
        upper, moment = dsyrk(1.0, Z.T), Z.T @ y
    return NormalEquations(upper, moment, feature_sum, y.sum(axis=0), len(y))


def _float32_products_suffice(features: FeatureMap, X: Any, alpha: float) -> bool:
    """Whether rounding in float32 block products stays far below alpha.

    The error of a sum of n products of float32 numbers grows like eps sqrt(n) times their size,
    and alpha is what keeps the solve from seeing it.
    """
    Z = features._transform_block(X[:256])
    squares = Z.multiply(Z).sum() if sp.issparse(Z) else np.sum(np.square(Z, dtype=np.float64))
    rounding = np.finfo(np.float32).eps * np.sqrt(X.shape[0]) * float(squares) / Z.shape[0]
    return bool(alpha >= 50.0 * rounding)


def solve_ridge(
    equations: NormalEquations, alpha: float, fit_intercept: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coefficients (s, n_outputs) and intercepts (n_outputs,) of the ridge on the features.

    (Pi Phi Phi^T Pi^T + alpha I) w = Pi Phi y: the paper's estimator, centred for an intercept.
    """
    if fit_intercept:
        gram, moment = equations.centred()
    else:
        gram, moment = equations.gram(), equations.moment
    factor, _ = regularised_cholesky(gram, alpha)
    coefficients = cho_solve((factor, True), moment)
    if not fit_intercept:
        return coefficients, np.zeros(moment.shape[1])
    mean_target = equations.target_sum / equations.n_rows
    mean_feature = equations.feature_sum / equations.n_rows
    return coefficients, mean_target - mean_feature @ coefficients
