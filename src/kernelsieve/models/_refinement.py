"""The ridge of the full kernel: which preconditioner, which float type, and whether it pays."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._random import keyed_rows
from kernelsieve.diagnostics import KernelSample
from kernelsieve.features import FeatureMap, NystromFeatures
from kernelsieve.kernels import Kernel
from kernelsieve.kernels.matrix import KernelMatrix, product_work
from kernelsieve.linalg.iterative_ridge import FeatureBlocks, solve_exact, solve_exact_at_once
from kernelsieve.linalg.solvers import Solution
from kernelsieve.sources.base import ArraySource, Block

LARGEST_KERNEL_MATRIX = 6000  # rows of an exact solve at once; beyond, conjugate gradients
TRIAL_ROWS = 1000  # whose kernel matrix compares preconditioners
LANDMARKS = 1000  # of the preconditioner that is tried beside the features
# alpha below so many times the rounding of a kernel matrix in float32 needs float64.
SAFE_ALPHA = 8.0
# `product_work` up to which refine="auto" tries the kernel: about a second on one core.
MOST_WORK = 1e10
SOLVE_WORK, ITERATIONS = 6e10, (4, 40)  # of one solve in the learned default
FLOAT64_COST = 3.0  # of a product in float64, in products in float32
JUDGES = 2000  # rows at which the features are compared with the kernel
# Residuals at which predictions hardly change any more: relative to the error of the features, in
# deviations of the target, and at most; after the trial they fall to a third.
UNSOLVED, LARGEST_TOL, AUTO_SHARE = 0.03, 3e-3, 1.0 / 3.0
CLEAR = 0.2  # relative gain that needs no test
WORTH = 0.01  # relative gain there that is worth n kernel values for each prediction
LOCAL_WORTH = 0.02  # and one that is worth a search for neighbours among all rows
# Standard errors between no gain and the mean gain, or the share of rows that gain.
MEAN_ERRORS, SIGN_ERRORS = 2.0, 4.0

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Stop:
    """When iterations end.

    Attributes
    ----------
    tol : float
        Relative residual.
    max_iter : int
    deadline : float
        The value of ``time.monotonic()`` after which none begins.
    quiet : bool
        Whether nobody is warned of a residual above ``tol``.
    """

    tol: float
    max_iter: int
    deadline: float = math.inf
    quiet: bool = False


@dataclass(frozen=True)
class FullKernel:
    """How the ridge of a kernel is solved on all rows.

    Attributes
    ----------
    kernel : Kernel
    features : FeatureMap
        Fitted: the preconditioner, unless landmarks do better.
    alpha : float
    fit_intercept : bool
    block_rows : int
        Rows whose features a thread holds at a time.
    seed : int
    n_jobs : int or None
    report : callable
        Gets the number of each iteration, and the residual.
    """

    kernel: Kernel
    features: FeatureMap
    alpha: float
    fit_intercept: bool
    block_rows: int
    seed: int
    n_jobs: int | None
    report: Callable[[int, float], None]

    def solve(self, rows: Block, stop: Stop, start: Array | None = None) -> tuple[Solution, Array]:
        """Dual coefficients of the rows, of shape (n, m), and intercepts.

        ``start`` is a guess of the dual coefficients.
        """
        exact = Block(rows.X.astype(np.float64, copy=False), rows.y, rows.weights)
        if len(rows) <= LARGEST_KERNEL_MATRIX:
            return solve_exact_at_once(
                self.kernel, exact, self.alpha, self.fit_intercept, self.n_jobs
            )
        source = ArraySource(exact.X, exact.y, exact.weights)
        evaluate = self.preconditioner(rows)._transform_block
        blocks = FeatureBlocks(evaluate, source, self.block_rows, self.n_jobs)
        K = KernelMatrix(self.kernel, exact.X, dtype=np.float64, n_jobs=self.n_jobs)
        coarse = None
        if self._coarse(exact):
            coarse = KernelMatrix(self.kernel, exact.X, n_jobs=self.n_jobs)
        return solve_exact(
            K,
            blocks,
            self.alpha,
            self.fit_intercept,
            stop.tol,
            stop.max_iter,
            self.report,
            coarse=coarse,
            start=start,
            deadline=stop.deadline,
        )

    def _coarse(self, rows: Block) -> bool:
        """Whether K + alpha I keeps its meaning if K is rounded to float32."""
        rounding = float(np.finfo(np.float32).eps) / 2 * math.sqrt(len(rows))
        largest = 1.0 if rows.weights is None else float(np.max(rows.weights))
        bounded = bool((self.kernel.diag(rows.X[:TRIAL_ROWS]) <= 1.0 + 1e-9).all())
        return bounded and self.alpha > SAFE_ALPHA * rounding * largest

    def preconditioner(self, rows: Block) -> FeatureMap:
        """The features, or landmarks of the same kernel if those leave fewer iterations."""
        features, n = self.features, len(rows)
        if _are_pivots(features):
            return features
        landmarks = pivots(self.kernel, n, self.seed, self.n_jobs).fit(rows.X)
        some = rows.X[np.sort(keyed_rows(n, min(n, TRIAL_ROWS), self.seed, "preconditioner"))]
        sample = KernelSample(self.kernel, some, self.alpha, n, self.n_jobs)
        return min((landmarks, features), key=lambda map_: _condition(sample, map_))

    def affordable(self, n_rows: int, n_columns: int) -> bool:
        """Whether some tens of iterations take seconds rather than minutes."""
        return product_work(self.kernel, n_rows, n_columns) <= MOST_WORK

    def most_iterations(self, rows: Block) -> int:
        """How many iterations the learned default may take in each solve."""
        work = product_work(self.kernel, *rows.X.shape)
        slow = 1.0 if self._coarse(rows) else FLOAT64_COST
        return int(np.clip(SOLVE_WORK / (slow * work), *ITERATIONS))


@dataclass(frozen=True)
class Trial:
    """The full kernel on some of the rows, judged at the others.

    Attributes
    ----------
    alpha : float
    dual : ndarray of shape (n_known, m)
        Coefficients of the rows that are known.
    residuals : ndarray of shape (n_apart, m)
        At the other rows.
    """

    alpha: float
    dual: Array
    residuals: Array


def trials(
    full: FullKernel,
    known: Block,
    apart: Block,
    alphas: Sequence[float],
    stop: Stop,
    judges: NDArray[np.bool_] | None = None,
) -> list[Trial]:
    """Solve for the kernel on some of the rows with falling alphas; the next starts from the last.

    No smaller one is tried after a residual above ``stop.tol``, or after a larger error at the
    ``judges`` among the rows apart.
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
        found.append(Trial(alpha, solution.values, residuals))
        errors = [float(np.mean(one.residuals[judges] ** 2)) for one in found[-2:]]
        unsolved = solution.residual > stop.tol or time.monotonic() > stop.deadline
        if unsolved or errors[-1] > errors[0]:
            break
    return found


def narrowed(dual: Array, targets: Array, tol: float) -> NDArray[Any]:
    """Dual coefficients in float32 if they and kernel values may be rounded to it.

    Roundings are independent, so those of a prediction add up to about the rounding of 1 times the
    length of the coefficients. A tenth of tol is allowed, in deviations of the target.
    """
    rounding = float(np.finfo(np.float32).eps) * np.linalg.norm(dual, axis=0)
    harmless = (rounding <= 0.1 * tol * targets.std(axis=0)).all()
    return dual.astype(np.float32) if harmless and len(dual) > LARGEST_KERNEL_MATRIX else dual


def judge_tol(residuals: Array, targets: Array) -> float:
    """The residual to solve for, so that what is unsolved is little beside the errors."""
    spread = float(np.mean(np.var(targets, axis=0)))
    error = math.sqrt(float(np.mean(residuals**2)) / spread) if spread > 0 else 1.0
    return float(np.clip(UNSOLVED * error, 1e-9, LARGEST_TOL))


def mean_square(residuals: Array, weights: Array | None) -> float:
    """The weighted mean of squared residuals over rows and outputs."""
    return float(np.average(np.mean(residuals**2, axis=1), weights=weights))


def pays(refined: Array, features: Array, weights: Array | None, worth: float = WORTH) -> bool:
    """Whether residuals are smaller than others at the same rows: by enough, and not by chance.

    Not by chance is a mean gain above its standard error, or a gain at most of the rows, or one of
    a fifth: where a few large residuals are all of the error, they cannot be told from chance.
    """
    weights = np.ones(len(refined)) if weights is None else np.asarray(weights, dtype=np.float64)
    share = weights / weights.sum()
    before, after = np.mean(features**2, axis=1), np.mean(refined**2, axis=1)
    gain = float(share @ (before - after))
    if gain <= (1.0 - (1.0 - worth) ** 2) * float(share @ before):
        return False
    if gain > (1.0 - (1.0 - CLEAR) ** 2) * float(share @ before):
        return True
    chance = math.sqrt(float(share**2 @ (before - after - gain) ** 2))
    won = 2.0 * float(share @ (after < before)) - 1.0
    return gain > MEAN_ERRORS * chance or won > SIGN_ERRORS * math.sqrt(float(share @ share))


def pivots(kernel: Kernel, n_rows: int, seed: int, n_jobs: int | None) -> NystromFeatures:
    """Landmarks by pivoted Cholesky, not fitted yet: the best preconditioner that is known here."""
    return NystromFeatures(
        min(n_rows, LANDMARKS),
        kernel=kernel,
        landmarks="rpcholesky",
        random_state=seed,
        n_jobs=n_jobs,
    )


def _are_pivots(features: FeatureMap) -> bool:
    return isinstance(features, NystromFeatures) and _is_text(features.landmarks, "rpcholesky")


def _is_text(value: Any, text: str) -> bool:
    return isinstance(value, str) and value == text


def _condition(sample: KernelSample, features: FeatureMap) -> float:
    """The condition number that features leave as a preconditioner, on a sample."""
    sides = sample.sides(features._transform_block(sample.rows))
    return (1.0 + max(sides.lower, 0.0)) / max(1.0 - sides.upper, 1e-12)
