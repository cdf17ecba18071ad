"""Checks of the inputs of the diagnostics, which are converted to float64."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array

from kernelsieve._validation import check_positive, check_sparse

# Rounding that a kernel matrix may show, relative to its largest entry or eigenvalue.
ROUNDING = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-8}


def check_alpha(alpha: Any) -> float:
    """The ridge, finite and > 0."""
    return check_positive(alpha, "alpha", "it is added to the kernel matrix's diagonal")


def check_variance(noise_variance: Any) -> float:
    """The variance of the noise, finite and >= 0."""
    if not isinstance(noise_variance, numbers.Real) or isinstance(noise_variance, bool):
        raise TypeError(f"noise_variance={noise_variance!r} must be a number: the variance of y")
    variance = float(noise_variance)
    if not (math.isfinite(variance) and variance >= 0):
        raise ValueError(
            f"noise_variance={noise_variance!r} must be finite and >= 0: it is a variance"
        )
    return variance


def check_kernel_matrix(K: ArrayLike, name: str = "K") -> NDArray[np.float64]:
    """A finite, square matrix that is symmetric up to rounding."""
    given = check_array(K, dtype=(np.float64, np.float32), input_name=name)
    n_rows, n_columns = given.shape
    if n_rows != n_columns:
        raise ValueError(
            f"{name} has shape ({n_rows}, {n_columns}) and must be square: pass kernel(X), or "
            f"Z @ Z.T for features Z"
        )
    matrix = np.asarray(given, dtype=np.float64)
    gap = float(np.abs(matrix - matrix.T).max())
    if gap > _rounding(given) * float(np.abs(matrix).max()):
        raise ValueError(
            f"{name} is not symmetric: entries differ by {gap:.3g} from their mirror image. Pass "
            f"kernel(X), or symmetrise it with ({name} + {name}.T) / 2"
        )
    return matrix


def check_spectrum(K: ArrayLike) -> NDArray[np.float64]:
    """Eigenvalues of a positive semidefinite matrix, ascending, rounding below zero cut off."""
    matrix = check_kernel_matrix(K)
    return _clipped(scipy.linalg.eigvalsh(matrix), K)


def check_decomposition(K: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvalues as in `check_spectrum`, and eigenvectors in columns."""
    eigenvalues, vectors = scipy.linalg.eigh(check_kernel_matrix(K))
    return _clipped(eigenvalues, K), vectors


def check_features(Z: Any, n_rows: int | None = None) -> Any:
    """Finite features, dense or CSR in float64, one row for each data point."""
    Z = check_array(check_sparse(Z, "Z"), accept_sparse="csr", dtype=np.float64, input_name="Z")
    if n_rows is not None and Z.shape[0] != n_rows:
        raise ValueError(
            f"Z has {Z.shape[0]} rows for {n_rows} data points: pass Z = transform(X) of the same "
            f"rows, of shape ({n_rows}, n_components)"
        )
    return Z


def check_vector(f: ArrayLike, n_rows: int) -> NDArray[np.float64]:
    """The values of the true function at the data points."""
    vector = np.asarray(check_array(f, dtype=np.float64, ensure_2d=False, input_name="f"))
    if vector.shape != (n_rows,):
        raise ValueError(
            f"f has shape {vector.shape} and must have shape ({n_rows},): one true value for each "
            f"data point"
        )
    return vector


def _clipped(eigenvalues: NDArray[np.float64], K: ArrayLike) -> NDArray[np.float64]:
    """Eigenvalues with the rounding below zero cut off; more than rounding is an error."""
    smallest, largest = float(eigenvalues[0]), float(eigenvalues[-1])
    if smallest < -_rounding(K) * max(largest, 0.0) - np.finfo(np.float64).tiny:
        raise ValueError(
            f"K has the eigenvalue {smallest:.3g}: a kernel matrix is positive semidefinite. "
            f"Check the kernel, or add the missing amount to the diagonal"
        )
    return np.maximum(eigenvalues, 0.0)


def _rounding(K: ArrayLike) -> float:
    """The relative rounding to forgive in a matrix of this type."""
    return ROUNDING.get(np.asarray(K).dtype, ROUNDING[np.dtype(np.float64)])
