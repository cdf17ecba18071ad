"""The predictions of features, corrected by the nearest rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._validation import check_points
from kernelsieve.kernels import Product
from kernelsieve.learning.neighbour_search import (
    CorrectionTrial,
    choose_correction,
    correction_with,
)
from kernelsieve.learning.neighbours import LocalCorrection
from kernelsieve.learning.plan import Correction
from kernelsieve.linalg.operators import dense
from kernelsieve.models.passes import finite
from kernelsieve.models.ridge_solve import FeatureRidge, left_out_residuals, predicted
from kernelsieve.sources.base import ArraySource, Block, Source
from kernelsieve.sources.given import as_source

LEVERAGE_WORK = 5e11  # multiplications up to which all rows get leave-one-out residuals
LOCAL_ROWS = 1024  # corrected at a time

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


def why_not_local(ridge: FeatureRidge, rows: Source) -> str | None:
    """Why predictions cannot be corrected by the neighbours among these rows."""
    if rows.sparse:
        return "dense rows: pass X.toarray()"
    if not rows.resident:
        return "all rows in memory: pass an array"
    if rows.shape[0] < 3:
        return "at least 3 rows"
    if ridge.posterior is None:
        return "solver='cholesky', which leave-one-out residuals come from"
    kernel = ridge.kernel
    families = kernel.families_for(rows.shape[1]) if isinstance(kernel, Product) else ()
    if "categorical" in families:
        return "a kernel without categorical columns, whose codes have no distances"
    return None


def try_correction(
    ridge: FeatureRidge,
    rows: Source,
    apart: Rows,
    decide: NDArray[np.bool_],
    deadline: float = math.inf,
) -> CorrectionTrial | None:
    """A correction by neighbours; some of the rows apart choose its distance and rate.

    None if there is no time for it before the deadline.
    """
    why_not = why_not_local(ridge, rows)
    if why_not is not None:
        raise ValueError(f"refine='local' needs {why_not}")
    whole = rows.take(np.arange(rows.shape[0]))
    residuals = _residuals_of_all(ridge, whole, apart)
    n_jobs = ridge.passes.n_jobs
    return choose_correction(ridge.kernel, whole, residuals, apart, decide, n_jobs, deadline)


def correction_by(ridge: FeatureRidge, rows: Source, settings: Correction) -> LocalCorrection:
    """A correction whose distance, rate and noise are known."""
    whole = rows.take(np.arange(rows.shape[0]))
    residuals = _residuals_of_all(ridge, whole, np.arange(0))
    return correction_with(ridge.kernel, whole, residuals, settings, ridge.passes.n_jobs)


def _residuals_of_all(ridge: FeatureRidge, rows: Block, apart: Rows) -> Array:
    """Leave-one-out residuals; of very many rows those of the fit, but for the rows apart."""
    if len(rows) * ridge.passes.features.n_components_**2 <= LEVERAGE_WORK:
        return left_out_residuals(ridge, rows)
    # Leverages are small with so many rows to a feature.
    residuals = rows.y - predicted(ridge, ArraySource(rows.X)).reshape(rows.y.shape)
    residuals[apart] = left_out_residuals(ridge, rows.take(apart))
    return residuals


def corrected_mean(
    ridge: FeatureRidge, local: LocalCorrection, X: Any, mean: NDArray[Any]
) -> tuple[NDArray[Any], Array]:
    """Predictions with what neighbours add, and variances relative to their process."""
    kernel, size = ridge.kernel, ridge.passes.rows_per_block(X.shape[0])
    before = mean.astype(np.float64).reshape(len(mean), -1)

    def values(block: Block) -> tuple[Array, Array]:
        rows = dense(check_points(block.X, missing=kernel.allows_missing))
        return local.at(kernel, rows, before[block.rows])

    parts = list(as_source(X).map(values, min(LOCAL_ROWS, size), ridge.passes.n_jobs))
    added, relative = (np.concatenate(some) for some in zip(*parts, strict=True))
    return finite(mean + added.reshape(mean.shape).astype(X.dtype), "the predictions"), relative
