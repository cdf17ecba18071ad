"""A dataset made ready: split, scaled, with the gamma and alpha that serve every method.

Inputs are standardised on the training rows, and cut at 8 standard deviations. gamma and alpha are
chosen by cross-validation on Fourier features, as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from threadpoolctl import threadpool_limits

from kernelsieve import FourierFeatures
from kernelsieve._random import stream
from kernelsieve.datasets import Dataset
from kernelsieve.kernels import Gaussian, resolve_kernel

SPLIT_SEED = 0
TEST_SHARE = 0.25
CLIP = 8.0
FLOAT32_ROWS = 100_000  # from here on everybody gets float32: half the memory and time

# The search for gamma (in units of "scale", 1 / (d var)) and alpha: bounded, whatever n is.
TUNING_ROWS = 16_000
TUNING_COMPONENTS = 1_000
TUNING_DRAWS = 2
GAMMA_FACTORS = tuple(2.0**power for power in range(-5, 3))
ALPHAS = np.logspace(-5, 2, 15)


@dataclass(frozen=True)
class Problem:
    """Training and test rows, scaled, in the float type that all methods get."""

    name: str
    X_train: Any
    X_test: Any
    y_train: NDArray[np.float64]
    y_test: NDArray[np.float64]


def prepare(data: Dataset) -> Problem:
    """Split, and scale on the training rows."""
    train, test = train_test_split(
        np.arange(len(data.y)), test_size=test_rows(len(data.y)), random_state=SPLIT_SEED
    )
    scaler = scaler_for(data.X)
    X_train, X_test = scaler.fit_transform(data.X[train]), scaler.transform(data.X[test])
    if len(train) >= FLOAT32_ROWS:
        X_train, X_test = X_train.astype(np.float32), X_test.astype(np.float32)
    return Problem(data.name, X_train, X_test, data.y[train], data.y[test])


def test_rows(n_rows: int) -> int:
    """How many rows are for testing."""
    return max(1, round(TEST_SHARE * n_rows))


def scaler_for(X: Any) -> Any:
    """How to scale X: dense columns are standardised, 0/1 sparse ones kept, counts get tf-idf.

    Standardised values are cut at CLIP standard deviations: a column that is nearly always the
    same makes outliers that no kernel is meant for, and every method suffers from them.
    """
    if not sp.issparse(X):
        clip = FunctionTransformer(np.clip, kw_args={"a_min": -CLIP, "a_max": CLIP})
        return make_pipeline(StandardScaler(), clip)
    if np.all(X.data == 1.0):
        return FunctionTransformer(accept_sparse=True)
    return TfidfTransformer(sublinear_tf=True)


def choose_gamma_alpha(X: Any, y: NDArray[np.float64], n_threads: int) -> tuple[float, float]:
    """The pair with the smallest leave-one-out error of Fourier features on a bounded subsample."""
    rows = stream(SPLIT_SEED, "tuning rows").permutation(len(y))[:TUNING_ROWS]
    X, y = X[rows].astype(np.float64), y[rows]
    scale = cast(Gaussian, resolve_kernel("gaussian", X, "scale")).gamma
    best = (np.inf, scale, 1.0)
    with threadpool_limits(n_threads):
        for factor in GAMMA_FACTORS:
            errors = _tuning_errors(X, y, factor * scale, n_threads)
            best = min(best, (errors.min(), factor * scale, ALPHAS[errors.argmin()]))
    return float(best[1]), float(best[2])


def _tuning_errors(
    X: Any, y: NDArray[np.float64], gamma: float, n_threads: int
) -> NDArray[np.float64]:
    """Errors for all ALPHAS; the mean of several draws, because one can favour a gamma by luck."""
    draws = (
        FourierFeatures(TUNING_COMPONENTS, gamma=gamma, random_state=seed, n_jobs=n_threads)
        for seed in range(TUNING_DRAWS)
    )
    errors = [leave_one_out_errors(features.fit_transform(X), y, ALPHAS) for features in draws]
    return np.mean(errors, axis=0)


def leave_one_out_errors(
    Z: NDArray[np.float64], y: NDArray[np.float64], alphas: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Leave-one-out RMSE of a ridge of y on Z, with intercept, for each of ``alphas``.

    One eigendecomposition serves them all: the error without row i is residual_i / (1 - H_ii), for
    the hat matrix H.
    """
    Z, y = Z - Z.mean(axis=0), y - y.mean()
    wide = Z.shape[0] < Z.shape[1]
    eigenvalues, vectors = np.linalg.eigh(Z @ Z.T if wide else Z.T @ Z)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    U = vectors * np.sqrt(eigenvalues) if wide else Z @ vectors  # Z, rotated to its main axes
    shrinkage = 1.0 / (eigenvalues[:, None] + alphas)
    residuals = y[:, None] - U @ (shrinkage * (U.T @ y)[:, None])
    leverages = np.square(U) @ shrinkage + 1.0 / len(y)
    return np.sqrt(np.mean(np.square(residuals / (1.0 - leverages)), axis=0))
