"""Risk of kernel ridge regression at fixed design points, and the bound for approximate kernels."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from kernelsieve.diagnostics.checks import (
    check_alpha,
    check_decomposition,
    check_features,
    check_variance,
    check_vector,
)
from kernelsieve.diagnostics.spectral import SpectralEpsilon
from kernelsieve.linalg.operators import gram


@dataclass(frozen=True)
class Risk:
    """Mean squared error at the training points and its two parts; ``float(...)`` is the total.

    Attributes
    ----------
    bias : float
        What the ridge takes away from the true function.
    variance : float
        What the noise adds.
    """

    bias: float
    variance: float

    @property
    def total(self) -> float:
        """Bias plus variance."""
        return self.bias + self.variance

    def __float__(self) -> float:
        return self.total


def krr_risk(
    K: Any, f: ArrayLike, alpha: float, noise_variance: float, *, factored: bool = False
) -> Risk:
    """Exact risk of kernel ridge regression when y = f + noise at the training points.

        bias = alpha^2 f^T (K + aI)^-2 f / n,    variance = noise_variance tr(K^2 (K + aI)^-2) / n

    The estimator fitted on features Z is the one with K = Z Z^T: pass that, or Z itself with
    ``factored=True``, which costs O(n s^2) and no n x n matrix.

    Parameters
    ----------
    K : array-like of shape (n, n), or {array-like, CSR} of shape (n, s) if factored
        Kernel matrix that the estimator uses, or its factor Z.
    f : array-like of shape (n,)
        True values at the training points, without noise.
    alpha : float
        The ridge, added to K's diagonal as it is.
    noise_variance : float
        Variance of the noise in y.
    factored : bool, default False
        Whether ``K`` is Z.

    Returns
    -------
    Risk

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.diagnostics import krr_risk
    >>> krr_risk(np.eye(2), [1.0, 1.0], alpha=1.0, noise_variance=0.4)
    Risk(bias=0.25, variance=0.1)
    >>> krr_risk([[1.0], [0.0]], [1.0, 1.0], alpha=1.0, noise_variance=0.4, factored=True)
    Risk(bias=0.625, variance=0.05)
    """
    alpha = check_alpha(alpha)
    noise_variance = check_variance(noise_variance)
    shrunk = _factored_fit if factored else _dense_fit
    residual, shrinkage = shrunk(K, f, alpha)
    n_rows = residual.shape[0]
    return Risk(
        bias=float(residual @ residual) / n_rows,
        variance=noise_variance * float(shrinkage @ shrinkage) / n_rows,
    )


def _dense_fit(
    K: ArrayLike, f: ArrayLike, alpha: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """alpha (K + aI)^-1 f in K's eigenbasis, and the eigenvalues of K (K + aI)^-1."""
    eigenvalues, vectors = check_decomposition(K)
    coordinates = vectors.T @ check_vector(f, eigenvalues.shape[0])
    return alpha / (eigenvalues + alpha) * coordinates, eigenvalues / (eigenvalues + alpha)


def _factored_fit(
    Z: Any, f: ArrayLike, alpha: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The same for K = Z Z^T: alpha (ZZ^T + aI)^-1 f is what ridge regression of f on Z leaves."""
    Z = check_features(Z)
    values = check_vector(f, Z.shape[0])
    eigenvalues, vectors = scipy.linalg.eigh(gram(Z))
    eigenvalues = np.maximum(eigenvalues, 0.0)
    weights = vectors @ ((vectors.T @ (Z.T @ values)) / (eigenvalues + alpha))
    return values - Z @ weights, eigenvalues / (eigenvalues + alpha)


def krr_risk_bound(
    K: ArrayLike,
    f: ArrayLike,
    alpha: float,
    noise_variance: float,
    epsilon: SpectralEpsilon | float,
    rank: int,
) -> Risk:
    r"""Upper bound on the risk of ridge regression with any kernel matrix near K.

    For every approximation ~K of the given rank whose `spectral_epsilon` has these sides,

        bias(~K) <= (1 + lower) bias,    variance(~K) <= variance + max(upper, 0) rank/n sigma^2

    with bias = alpha f^T (K + aI)^-1 f / n and variance = sigma^2 s_alpha(K) / n, which bound those
    of K itself.

    Parameters
    ----------
    K : array-like of shape (n, n)
        The exact kernel matrix.
    f : array-like of shape (n,)
        True values at the training points, without noise.
    alpha : float
        The ridge, added to K's diagonal as it is.
    noise_variance : float
        Variance of the noise in y (sigma^2).
    epsilon : SpectralEpsilon or float
        How near the approximation is; a float stands for both sides.
    rank : int
        Rank of the approximation, at most the number of features.

    Returns
    -------
    Risk
        A bound on each part, hence on the total.

    Notes
    -----
    Let k_i and ~k_i be the eigenvalues of K and ~K, in descending order.

    Bias: K + aI <= (1 + lower)(~K + aI) inverts to (~K + aI)^-1 <= (1 + lower)(K + aI)^-1, and
    alpha^2 (~K + aI)^-2 <= alpha (~K + aI)^-1 since ~K >= 0. Only ``lower`` is used.

    Variance: (1 - upper)(~K + aI) <= K + aI gives a/(~k_i + a) >= (1 - upper) a/(k_i + a), so that

        s_alpha(~K) = sum_{i <= rank} 1 - a/(~k_i + a)
                   <= sum_{i <= rank} 1 - a/(k_i + a)  +  upper sum_{i <= rank} a/(k_i + a)
                   <= s_alpha(K) + max(upper, 0) rank,

    and tr ~K^2 (~K + aI)^-2 <= s_alpha(~K). Only ``upper`` is used. The paper's lemma has
    eps/(1 + eps) in place of upper. That would follow from a/(~k_i + a) >= a/(k_i + a) / (1 + eps),
    which is not what its equation (1) says, and it fails: K = I, ~K + aI = (K + aI)/(1 - 0.65)
    and a large alpha violate it.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.diagnostics import krr_risk_bound
    >>> krr_risk_bound(np.eye(2), [1.0, 1.0], 1.0, 0.5, epsilon=0.5, rank=1)
    Risk(bias=0.75, variance=0.375)
    """
    alpha = check_alpha(alpha)
    noise_variance = check_variance(noise_variance)
    eigenvalues, vectors = check_decomposition(K)
    n_rows = eigenvalues.shape[0]
    rank = _check_rank(rank, n_rows)
    lower, upper = _check_sides(epsilon)
    coordinates = vectors.T @ check_vector(f, n_rows)
    bias = float(np.sum(alpha / (eigenvalues + alpha) * coordinates**2)) / n_rows
    degrees = float(np.sum(eigenvalues / (eigenvalues + alpha)))
    return Risk(
        bias=(1.0 + lower) * bias,
        variance=noise_variance * (degrees + max(upper, 0.0) * rank) / n_rows,
    )


def _check_rank(rank: Any, n_rows: int) -> int:
    """An integer between 0 and n."""
    if not isinstance(rank, numbers.Integral) or isinstance(rank, bool):
        raise TypeError(f"rank={rank!r} must be an integer: the rank of the approximation")
    number = int(rank)
    if not 0 <= number <= n_rows:
        raise ValueError(
            f"rank={rank} must lie between 0 and n={n_rows}: for n x s features pass min(n, s)"
        )
    return number


def _check_sides(epsilon: Any) -> tuple[float, float]:
    """The two one-sided epsilons."""
    if isinstance(epsilon, SpectralEpsilon):
        lower, upper = epsilon.lower, epsilon.upper
    elif isinstance(epsilon, numbers.Real) and not isinstance(epsilon, bool):
        lower = upper = float(epsilon)
        if lower < 0:
            raise ValueError(f"epsilon={epsilon!r} must be >= 0: it bounds both sides")
    else:
        raise TypeError(f"epsilon={epsilon!r} must be a SpectralEpsilon or a number")
    if not (math.isfinite(lower) and math.isfinite(upper) and lower > -1.0):
        raise ValueError(f"epsilon={epsilon!r} must be finite, with lower > -1")
    return lower, upper
