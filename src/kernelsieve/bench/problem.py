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

from kernelsieve import FourierFeatures, KernelRidgeCV
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
    """The pair with the smallest leave-one-out error of Fourier features on a bounded subsample.

    The mean error of several draws of them, because one can favour a gamma by luck.
    """
    rows = stream(SPLIT_SEED, "tuning rows").permutation(len(y))[:TUNING_ROWS]
    X, y = X[rows].astype(np.float64), y[rows]
    scale = cast(Gaussian, resolve_kernel("gaussian", X, "scale")).gamma
    gammas = [factor * scale for factor in GAMMA_FACTORS]
    with threadpool_limits(n_threads):
        results = [
            KernelRidgeCV(
                FourierFeatures(TUNING_COMPONENTS, random_state=seed, n_jobs=n_threads),
                alphas=ALPHAS,
                gammas=gammas,
                n_jobs=n_threads,
            )
            .fit(X, y)
            .cv_results_
            for seed in range(TUNING_DRAWS)
        ]
    best = int(np.mean([result["rmse"] for result in results], axis=0).argmin())
    return float(results[0]["gamma"][best]), float(results[0]["alpha"][best])
