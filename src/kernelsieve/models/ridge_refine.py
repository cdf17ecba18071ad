"""The ridge of the kernel itself in place of that of features: whether it pays; its solution."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._random import keyed_rows
from kernelsieve._validation import check_memory, check_points
from kernelsieve.kernels.matrix import KernelMatrix
from kernelsieve.learning.neighbour_search import CorrectionTrial
from kernelsieve.learning.neighbours import LocalCorrection
from kernelsieve.learning.solver import pays
from kernelsieve.models.full_kernel import FullKernel, Stop, narrowed
from kernelsieve.models.passes import LARGEST_BLOCK
from kernelsieve.models.ridge_local import try_correction, why_not_local
from kernelsieve.models.ridge_solve import (
    FeatureRidge,
    left_out_residuals,
    warn_if_unsolved,
    with_intercept,
)
from kernelsieve.sources.base import ArraySource, Block, Source
from kernelsieve.sources.blocks import joined
from kernelsieve.sources.given import as_source

JUDGES = 2000  # rows at which the features are compared with the kernel
# Residuals at which predictions hardly change any more: relative to the error of the features, in
# deviations of the target, and at most; after the trial they fall to a third.
UNSOLVED, LARGEST_TOL, AUTO_SHARE = 0.03, 3e-3, 1.0 / 3.0
LOCAL_WORTH = 0.02  # and one that is worth a search for neighbours among all rows
FITTED_ROWS = 65_536  # of a refined model that a prediction converts to float64 at a time

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class ExactRidge:
    """The ridge of a kernel.

    Attributes
    ----------
    rows : {ndarray, CSR} of shape (n, d)
    dual : ndarray of shape (n, m)
        Coefficients of k(x, row).
    intercepts : ndarray of shape (m,)
    residual : float
        Of the linear systems; 0 for a direct solver.
    iterations : int
    """

    rows: Any
    dual: NDArray[Any]
    intercepts: Array
    residual: float = 0.0
    iterations: int = 1


@dataclass(frozen=True)
class Refined:
    """What is put in place of the predictions of features, or added to them: one or neither."""

    exact: ExactRidge | None = None
    local: LocalCorrection | None = None


@dataclass(frozen=True)
class Trial:
    """The full kernel on some of the rows, judged at the others.

    Attributes
    ----------
    alpha : float
    dual : ndarray of shape (n_known, m)
        Coefficients of the rows that are known.
    intercepts : ndarray of shape (m,)
    unsolved : float
        The relative residual of the linear system.
    residuals : ndarray of shape (n_apart, m)
        At the other rows.
    """

    alpha: float
    dual: Array
    intercepts: Array
    unsolved: float
    residuals: Array


def refine(
    wanted: bool | str, features: FeatureRidge, full: FullKernel, rows: Source, stop: Stop
) -> Refined:
    """What ``refine`` asks for, after the ridge on features.

    Parameters
    ----------
    wanted : bool, "auto" or "local"
    features : FeatureRidge
    full : FullKernel
    rows : Source
        All rows of the fit, with targets of shape (n, m).
    stop : Stop
    """
    if wanted == "auto":
        return _what_pays(features, full, rows, stop)
    if wanted == "local":
        apart = _judges(rows.shape[0], full.seed)
        trial = try_correction(features, rows, apart, np.ones(len(apart), dtype=bool))
        assert trial is not None  # there is no limit to its time
        return Refined(local=trial.correction)
    return Refined(exact=solve_exactly(full, rows, stop)) if wanted else Refined()


def solve_exactly(
    full: FullKernel, rows: Source, stop: Stop, start: Array | None = None
) -> ExactRidge:
    """Solve for the kernel itself, from a guess of the dual coefficients if there is one."""
    if rows.resident or full.at_once(rows.shape[0]):
        whole = rows.take(np.arange(rows.shape[0]))
        solution, intercepts = full.solve(whole, stop, start)
        kept, targets = whole.X, whole.y
    else:
        solution, intercepts, targets = full.solve_streamed(rows, stop)
        kept = kept_rows(rows)
    warn_if_unsolved(solution, stop)
    dual = narrowed(solution.values, targets, stop.tol)
    return ExactRidge(kept, dual, intercepts, solution.residual, solution.iterations)


def trials(
    full: FullKernel,
    known: Block,
    apart: Block,
    alphas: Sequence[float],
    stop: Stop,
) -> list[Trial]:
    """Solve for the kernel on some of the rows with falling alphas; the next starts from the last.

    No smaller one is tried after a residual above ``stop.tol``.
    """
    found: list[Trial] = []
    matrix = KernelMatrix(
        full.kernel,
        apart.X.astype(np.float64),
        known.X.astype(np.float64),
        dtype=np.float64,
        n_jobs=full.n_jobs,
    )
    shared = replace(full, features=full.preconditioner(known))
    for alpha in alphas:
        start = found[-1].dual if found else None
        solution, intercepts = replace(shared, alpha=alpha).solve(known, stop, start)
        residuals = apart.y - (matrix @ solution.values + intercepts)
        found.append(Trial(alpha, solution.values, intercepts, solution.residual, residuals))
        if solution.residual > stop.tol or time.monotonic() > stop.deadline:
            break
    return found


def judge_tol(residuals: Array, targets: Array) -> float:
    """The residual to solve for, so that what is unsolved is little beside the errors."""
    spread = float(np.mean(np.var(targets, axis=0)))
    error = math.sqrt(float(np.mean(residuals**2)) / spread) if spread > 0 else 1.0
    return float(np.clip(UNSOLVED * error, 1e-9, LARGEST_TOL))


# --- whether it pays -----------------------------------------------------------------------------


def _what_pays(features: FeatureRidge, full: FullKernel, rows: Source, stop: Stop) -> Refined:
    """The kernel, or a correction by neighbours, if that lowers the error on rows set apart."""
    n = rows.shape[0]
    if full.at_once(n):
        return Refined(exact=solve_exactly(full, rows, stop))
    if features.posterior is None or not rows.resident:
        return Refined()
    apart = _judges(n, full.seed)
    judges = rows.take(apart)
    left_out = left_out_residuals(features, judges)
    local, to_beat = None, math.inf
    if why_not_local(features, rows) is None:
        tell = np.arange(len(apart)) % 2 == 1  # the others choose the distance and the rate
        trial = try_correction(features, rows, apart, ~tell, stop.deadline)
        if trial is not None and _correction_pays(trial, judges, left_out, tell):
            weights = None if judges.weights is None else judges.weights[trial.judged]
            local, to_beat = trial.correction, _mean_square(trial.residuals, weights)
    if full.affordable(*rows.shape):
        exact = _exact_if_it_pays(full, rows, apart, left_out, to_beat, stop)
        if exact is not None:
            return Refined(exact=exact)
    return Refined(local=local)


def _correction_pays(
    trial: CorrectionTrial, judges: Block, left_out: Array, tell: NDArray[np.bool_]
) -> bool:
    """Whether a correction lowers the error at those of its judges that tell."""
    places = trial.judged
    telling = None if judges.weights is None else judges.weights[places][tell[places]]
    after, before = trial.residuals[tell[places]], left_out[places][tell[places]]
    return pays(after, before, telling, LOCAL_WORTH)


def _exact_if_it_pays(
    full: FullKernel, rows: Source, apart: Rows, left_out: Array, to_beat: float, stop: Stop
) -> ExactRidge | None:
    """Solve for all rows, from the solution of a trial, if that has a lower error."""
    n, judges = rows.shape[0], rows.take(apart)
    known = np.setdiff1d(np.arange(n), apart)
    quick = replace(stop, tol=max(stop.tol, judge_tol(left_out, judges.y)))
    (trial,) = trials(full, rows.take(known), judges, [full.alpha], quick)
    better = _mean_square(trial.residuals, judges.weights) < to_beat
    if not (better and pays(trial.residuals, left_out, judges.weights)):
        return None
    start = np.zeros((n, judges.y.shape[1]))
    start[known] = trial.dual
    return solve_exactly(
        full, rows, replace(stop, tol=max(stop.tol, AUTO_SHARE * quick.tol)), start
    )


def _judges(n_rows: int, seed: int) -> Rows:
    """Rows at which ways to refine are compared."""
    return np.sort(keyed_rows(n_rows, min(JUDGES, max(1, n_rows // 10)), seed, "apart"))


def _mean_square(residuals: Array, weights: Array | None) -> float:
    """The weighted mean of squared residuals over rows and outputs."""
    return float(np.average(np.mean(residuals**2, axis=1), weights=weights))


# --- the rows of a refined model -----------------------------------------------------------------


def check_room(rows: Source) -> None:
    """Refuse rows that a refined model has to keep in memory, and that do not fit."""
    if rows.resident or rows.sparse or rows.stored is not None:
        return
    n, d = rows.shape
    check_memory(
        float(n) * d * rows.dtype.itemsize,
        f"keeping the {n:,} rows of {d:,} columns, which predictions with refine=True need,",
        "write them to a file with the source's save('rows.npy') and fit NpySource('rows.npy', y), "
        "whose rows stay there; or use refine=False, which keeps no rows",
    )


def kept_rows(rows: Source) -> Any:
    """All rows, in a file if they are in one, or in memory in the float type that they have."""
    if rows.stored is not None:
        return rows.stored
    if rows.sparse:
        return joined([Block(X) for X in rows.blocks()]).X
    kept = np.empty(rows.shape, dtype=rows.dtype)
    for block in rows.parts(LARGEST_BLOCK):
        kept[block.rows] = block.X
    return kept


def predicted_exactly(ridge: FeatureRidge, fitted: Any, dual: NDArray[Any], X: Any) -> NDArray[Any]:
    """n kernel values for every row of X, in the float type that the coefficients need."""
    kernel, passes = ridge.kernel, ridge.passes
    columns = dual.reshape(len(dual), -1)
    rows_of_fit = ArraySource(fitted, columns)

    def values(block: Block) -> NDArray[Any]:
        rows = check_points(block.X, missing=kernel.allows_missing).astype(np.float64)
        total = np.zeros((len(block), columns.shape[1]))
        for known in rows_of_fit.parts(FITTED_ROWS):  # which may be in a file
            points = known.X.astype(np.float64, copy=False)
            total += KernelMatrix(kernel, rows, points, dtype=dual.dtype, n_jobs=1) @ known.y
        return total.reshape(len(block), *dual.shape[1:])

    size = passes.rows_per_block(X.shape[0])
    return with_intercept(
        list(as_source(X).map(values, size, passes.n_jobs)), ridge.intercept, X.dtype
    )
