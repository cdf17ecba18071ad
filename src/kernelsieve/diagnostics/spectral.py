"""Exact errors of Z Z^T as an approximation of a kernel matrix K that fits in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from kernelsieve.diagnostics.checks import (
    check_alpha,
    check_features,
    check_kernel_matrix,
    check_spectrum,
)
from kernelsieve.linalg.operators import outer

# Below this size all eigenvalues cost less than the overhead of Lanczos.
DENSE_ROWS = 500


@dataclass(frozen=True)
class SpectralEpsilon:
    """The spectral epsilon and its two sides; ``float(...)`` gives ``epsilon``.

    Attributes
    ----------
    epsilon : float
        The smallest eps with (1 - eps)(ZZ^T + aI) <= K + aI <= (1 + eps)(ZZ^T + aI).
    lower : float
        What the right inequality needs: by how much ZZ^T is too low in its worst direction.
    upper : float
        What the left inequality needs: by how much ZZ^T is too high. Always < 1. Negative if ZZ^T
        is too low in every direction.
    """

    epsilon: float
    lower: float
    upper: float

    def __float__(self) -> float:
        return self.epsilon


@dataclass(frozen=True)
class KernelError:
    """Errors of Z Z^T relative to K, in two norms.

    Attributes
    ----------
    frobenius : float
        ``norm(K - ZZ^T) / norm(K)``, the root mean square over all pairs of points.
    operator : float
        The same with the largest absolute eigenvalue for the norm.
    """

    frobenius: float
    operator: float


def statistical_dimension(K: ArrayLike, alpha: float) -> float:
    """Effective number of degrees of freedom, sum of l / (l + alpha) over the eigenvalues l of K.

    Parameters
    ----------
    K : array-like of shape (n, n)
        Kernel matrix.
    alpha : float
        The ridge, added to K's diagonal as it is.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.diagnostics import statistical_dimension
    >>> statistical_dimension(np.diag([1.0, 1.0, 0.0]), alpha=1.0)
    1.0
    """
    alpha = check_alpha(alpha)
    eigenvalues = check_spectrum(K)
    return float(np.sum(eigenvalues / (eigenvalues + alpha)))


def spectral_epsilon(K: ArrayLike, Z: Any, alpha: float) -> SpectralEpsilon:
    """The smallest eps for which Z Z^T is an (eps, alpha)-spectral approximation of K.

    The paper's equation (1) means nothing for eps >= 1; this is its equivalent without fractions,

        (1 - eps)(ZZ^T + aI) <= K + aI <= (1 + eps)(ZZ^T + aI),

    so with mu the eigenvalues of (K + aI, ZZ^T + aI), eps = max(mu_max - 1, 1 - mu_min).

    Parameters
    ----------
    K : array-like of shape (n, n)
        Kernel matrix.
    Z : {array-like, CSR} of shape (n, s)
        Features of the same points.
    alpha : float
        The ridge, added to K's diagonal as it is.

    Returns
    -------
    SpectralEpsilon

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.diagnostics import spectral_epsilon
    >>> K, Z = np.diag([3.0, 1.0]), np.array([[1.0], [0.0]])
    >>> spectral_epsilon(K, Z, alpha=1.0).epsilon  # 3 + 1 is twice 1 + 1
    1.0
    """
    alpha = check_alpha(alpha)
    K = check_kernel_matrix(K)
    Z = check_features(Z, K.shape[0])
    ridge = alpha * np.eye(K.shape[0])
    try:
        # LAPACK whitens with the Cholesky factor of the second matrix.
        mu = scipy.linalg.eigh(K + ridge, outer(Z, Z) + ridge, eigvals_only=True)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"alpha={alpha!r} is below the rounding error of Z Z^T, so Z Z^T + alpha I cannot be "
            "factored: use a larger alpha"
        ) from error
    return sides(lower=float(mu[-1]) - 1.0, upper=1.0 - float(mu[0]))


def sides(lower: float, upper: float) -> SpectralEpsilon:
    """Both sides, and the larger of them (0 if rounding makes it negative)."""
    return SpectralEpsilon(epsilon=max(lower, upper, 0.0), lower=lower, upper=upper)


def kernel_error(K: ArrayLike, Z: Any) -> KernelError:
    """Relative Frobenius and operator norm error of Z Z^T against K.

    Parameters
    ----------
    K : array-like of shape (n, n)
        Kernel matrix.
    Z : {array-like, CSR} of shape (n, s)
        Features of the same points.

    Returns
    -------
    KernelError

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.diagnostics import kernel_error
    >>> kernel_error(np.diag([4.0, 3.0]), np.array([[2.0], [0.0]]))
    KernelError(frobenius=0.6, operator=0.75)
    """
    K = check_kernel_matrix(K)
    Z = check_features(Z, K.shape[0])
    if not K.any():
        raise ValueError("K is zero everywhere: a relative error is undefined")
    difference = K - outer(Z, Z)
    return KernelError(
        frobenius=float(np.linalg.norm(difference) / np.linalg.norm(K)),
        operator=_operator_norm(difference) / _operator_norm(K),
    )


def _operator_norm(matrix: NDArray[np.float64]) -> float:
    """Largest absolute eigenvalue of a symmetric matrix."""
    if matrix.shape[0] > DENSE_ROWS and matrix.any():
        start = np.random.default_rng(0).standard_normal(matrix.shape[0])
        try:
            largest = eigsh(matrix, k=1, which="LM", v0=start, return_eigenvectors=False)
            return float(abs(largest[0]))
        except ArpackNoConvergence:
            pass  # a flat spectrum: take the slow road
    return float(np.abs(scipy.linalg.eigvalsh(matrix)).max())
