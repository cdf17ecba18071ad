"""A ridge on a learned kernel: the default of regression and of classification."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kernelsieve.features import AutoFeatures, NystromFeatures
from kernelsieve.kernels import Anova, Kernel
from kernelsieve.models._refinement import (
    AUTO_SHARE,
    LARGEST_TOL,
    LOCAL_WORTH,
    Stop,
    judge_tol,
    mean_square,
    pays,
    pivots,
    trials,
)
from kernelsieve.models.kernel_ridge import KernelRidge
from kernelsieve.models.local_search import least_seconds
from kernelsieve.sources.base import Source
from kernelsieve.tuning.judge import Judge, mean_by_regression
from kernelsieve.tuning.learn_options import LearnOptions
from kernelsieve.tuning.learned import Chosen, choose_learned
from kernelsieve.tuning.parts import choose_parts

# From the largest on, which is the quickest to solve for. The alpha of a few thousand rows without
# noise may be too small to solve for with all.
ALPHA_STEPS = (64.0, 16.0, 4.0, 1.0)
TIMED_ROWS, TIMED_FEATURES = 2048, 1000
FEWEST_FEATURES = 100
# Of a time limit: what is kept for the ridge, at least and at most.
LEAST_KEPT, MOST_KEPT = 0.4, 0.8
# The kernel matrices and Cholesky factors of n rows that follow take as long as the products of so
# many times n^3 numbers.
EXACT_WORK = 2.0
# The race of the maps takes about as long as so many blocks of rows. It must not take more than
# this share of the time that is left.
RACE_BLOCKS, RACE_SHARE = 25, 0.3


@dataclass(frozen=True)
class LearnedRidge:
    """A fitted ridge, and what is known about it.

    Attributes
    ----------
    model : KernelRidge
    chosen : Chosen
        The choice of the kernel.
    unseen : ndarray of int
        Rows that had no part in that choice.
    residuals : ndarray of shape (len(unseen), n_outputs)
        There, of a ridge that was fitted without them.
    """

    model: KernelRidge
    chosen: Chosen
    unseen: NDArray[np.int64]
    residuals: NDArray[np.float64]

    def rmse(self, rows: Source, judge: Judge) -> float:
        """The error to report: that at the unseen rows, seen among all rows.

        Where any row could have been set apart, and targets are in memory, the distance of all
        targets from their mean corrects for what the unseen rows happen to be.
        """
        unseen = rows.take(self.unseen)
        squares = np.mean(self.residuals**2, axis=1)
        if not (rows.resident and judge.free):
            return math.sqrt(float(np.average(squares, weights=unseen.weights)))
        whole = next(iter(rows.parts(rows.shape[0])))  # where they are, not a copy
        mean = np.average(whole.y, axis=0, weights=whole.weights)
        of_all = mean_square(whole.y - mean, whole.weights)
        beside = np.mean((unseen.y - mean) ** 2, axis=1)
        return math.sqrt(mean_by_regression(squares, beside, of_all, unseen.weights))

    @property
    def decide(self) -> NDArray[np.bool_]:
        """Which of the unseen rows decide; the others tell the error of what was decided."""
        return np.isin(self.unseen, self.chosen.unseen[::2])

    def told(self) -> LearnedRidge:
        """The same, with the errors at rows that had no part in the choice of a correction."""
        if not hasattr(self.model, "local_"):
            return self
        tell = ~self.decide
        return replace(self, unseen=self.unseen[tell], residuals=self.residuals[tell])


def fit_learned(
    given: Source,
    rows: Source,
    ridge: KernelRidge,
    *,
    alphas: NDArray[np.float64] | None,
    judge: Judge,
    local: bool,
    time_limit: float | None,
    verbose: int,
    simpler: bool = False,
    max_order: int | None = None,
    chosen: Chosen | None = None,
) -> LearnedRidge:
    """Learn a kernel and fit a ridge on it to all rows.

    Parameters
    ----------
    given : Source
        Rows with targets as the ridge takes them.
    rows : Source
        The same rows with columns of targets.
    ridge : KernelRidge
        What is set in it stays; features, alpha and refine are chosen.
    alphas : ndarray or None
        The only ridges to choose from.
    judge : Judge
        Splits the rows. Its seed is that of everything here.
    local : bool
        Whether a correction by neighbours is tried.
    simpler : bool, default False
        Whether ``chosen`` names simpler kernels, too.
    max_order : int, optional
        The columns of the largest parts of the model; None sets no limit.
    chosen : Chosen, optional
        The choice of the kernel, if it was made already.
    """
    began = time.monotonic()
    if chosen is None:
        kept = 0.0 if time_limit is None else _kept(rows.shape[0], time_limit)
        chosen = kernel_choice(ridge, alphas, judge.seed, max_order)(
            rows,
            judge=judge,
            simpler=simpler,
            time_limit=None if time_limit is None else time_limit - kept,
            verbose=verbose,
        )
    options: dict[str, Any] = {"random_state": judge.seed, "n_jobs": ridge.n_jobs}
    parts = isinstance(chosen.kernel, Anova)
    kind = NystromFeatures if chosen.exact or parts else AutoFeatures
    size = chosen.n_components
    if time_limit is not None:
        block = block_seconds(size, chosen.kernel, rows.shape[1])
        left = began + time_limit - time.monotonic()
        if kind is AutoFeatures and RACE_BLOCKS * block > RACE_SHARE * left:
            kind = NystromFeatures
        elif kind is AutoFeatures:
            left -= RACE_BLOCKS * block
        size = affordable_size(given.shape[0], size, left, block)
    features = kind(size, kernel=chosen.kernel, alpha=chosen.alpha, **options)
    model = ridge.set_params(features=features, alpha=chosen.alpha, refine=chosen.exact).fit(given)
    unseen, residuals = chosen.unseen, chosen.residuals
    if residuals is not None:
        return LearnedRidge(model, chosen, unseen, residuals)
    residuals = model._left_out_residuals(given.take(unseen)).reshape(len(unseen), -1)
    learned = LearnedRidge(model, chosen, unseen, residuals)
    deadline = math.inf if time_limit is None else began + time_limit
    if len(unseen) < 2 or time.monotonic() > deadline:
        return learned
    nearest = learned
    in_time = least_seconds(rows.shape[0]) <= deadline - time.monotonic()
    if local and in_time and max_order is None and model._why_not_local(rows) is None:
        nearest = _corrected(learned, rows, deadline)
    if chosen.full is None or time.monotonic() > deadline:
        return nearest.told()
    stop = Stop(LARGEST_TOL, 1, deadline, quiet=True)
    return _refined(learned, nearest, given, rows, alphas is None, judge.seed, stop)


def kernel_choice(
    ridge: KernelRidge, alphas: NDArray[np.float64] | None, seed: int, max_order: int | None
) -> Callable[..., Chosen]:
    """How the kernel of a ridge is chosen."""
    choose = choose_learned if max_order is None else partial(choose_parts, max_order=max_order)
    return partial(
        choose, alphas=alphas, fit_intercept=ridge.fit_intercept, seed=seed, n_jobs=ridge.n_jobs
    )


def _kept(n_rows: int, time_limit: float) -> float:
    """The seconds of a time limit that are kept for what follows the choice of the kernel."""
    kept = LEAST_KEPT * time_limit
    if n_rows <= LearnOptions.exact_rows:
        products = TIMED_ROWS * TIMED_FEATURES**2 / products_seconds(TIMED_FEATURES)
        kept = max(kept, EXACT_WORK * n_rows**3 / products)
    return min(kept, MOST_KEPT * time_limit)


def products_seconds(size: int) -> float:
    """How long the products of a block of features take on this machine."""
    block = np.ones((TIMED_ROWS, size))
    began = time.perf_counter()
    block.T @ block
    return time.perf_counter() - began


def block_seconds(size: int, kernel: Kernel, n_columns: int) -> float:
    """How long a ridge on landmarks takes for a block of rows: their kernel, and its products."""
    points = np.random.default_rng(0).normal(size=(TIMED_ROWS, n_columns)).astype(np.float32)
    few = min(size, FEWEST_FEATURES)
    kernel.between(points[:1], points[:1])  # whatever is prepared once
    began = time.perf_counter()
    kernel.between(points, points[:few])
    return (time.perf_counter() - began) * size / few + 2.0 * products_seconds(size)


def affordable_size(n_rows: int, size: int, seconds: float, block: float) -> int:
    """As many features, up to ``size``, as a ridge on them is fitted to ``n_rows`` in some seconds.

    ``block`` is `block_seconds` of that size.
    """
    needed = block * max(1.0, n_rows / TIMED_ROWS)
    if needed <= seconds:
        return size
    return max(min(size, FEWEST_FEATURES), int(size * math.sqrt(max(seconds, 0.0) / needed)))


def _corrected(learned: LearnedRidge, rows: Source, deadline: float) -> LearnedRidge:
    """The ridge with a correction by neighbours if that pays at half of the unseen rows."""
    trial = learned.model._try_correction(rows, learned.unseen, learned.decide, deadline)
    if trial is None:
        return learned
    unseen, before = learned.unseen[trial.judged], learned.residuals[trial.judged]
    nearest = LearnedRidge(learned.model, learned.chosen, unseen, trial.residuals)
    weights = rows.take(unseen[nearest.decide]).weights
    if not pays(trial.residuals[nearest.decide], before[nearest.decide], weights, LOCAL_WORTH):
        return learned
    nearest.model.local_ = trial.correction
    nearest.model.set_params(refine="local")
    return nearest


def _decisive_error(learned: LearnedRidge, rows: Source) -> float:
    """The mean squared error at the unseen rows that decide."""
    weights = rows.take(learned.unseen[learned.decide]).weights
    return mean_square(learned.residuals[learned.decide], weights)


def _refined(
    learned: LearnedRidge,
    nearest: LearnedRidge,
    given: Source,
    rows: Source,
    free: bool,
    seed: int,
    stop: Stop,
) -> LearnedRidge:
    """The ridge on all of the kernel if that is best, else the one with its nearest rows, if any.

    Half of the unseen rows decide, and alpha is chosen by them if it is ``free``; the other half
    tell the error.
    """
    assert learned.chosen.full is not None
    model, n, unseen = learned.model, rows.shape[0], learned.unseen
    kernel, alpha = learned.chosen.full
    landmarks = pivots(kernel, n, seed, model.n_jobs)
    numbers = np.setdiff1d(np.arange(n), unseen)
    known, apart = rows.take(numbers), rows.take(unseen)
    fitted = clone(landmarks).fit(known.X)
    full = replace(model._full_kernel(alpha, n), kernel=fitted.kernel_, features=fitted)
    decide, tell = learned.decide, ~learned.decide
    judges = None if apart.weights is None else apart.weights[decide]
    alphas = [step * alpha for step in ALPHA_STEPS] if free else [alpha]
    tol = judge_tol(learned.residuals, apart.y)
    stop = replace(stop, tol=tol, max_iter=full.most_iterations(known))
    tried = trials(full, known, apart, alphas, stop, decide)
    best = min(tried, key=lambda trial: mean_square(trial.residuals[decide], judges))
    # Beside the features it must pay, for its predictions take longer; beside a correction by
    # neighbours, which takes as long, it must be better.
    error = mean_square(best.residuals[decide], judges)
    better = nearest is learned or error < _decisive_error(nearest, rows)
    if not better or not pays(best.residuals[decide], learned.residuals[decide], judges):
        return nearest.told()
    start = np.zeros((n, best.dual.shape[1]))
    start[numbers] = best.dual
    refined = clone(model).set_params(features=landmarks, alpha=best.alpha, refine=False)
    refined.fit(given)
    refined._refine(rows, best.alpha, replace(stop, tol=AUTO_SHARE * tol), start)
    if refined.residual_ > max(tol, best.unsolved):
        # Rounding stops iterations where alpha is tiny. Some rows, solved, are worth more than all
        # of them unsolved, and their error is the one that is told.
        refined.X_fit_, refined.residual_ = known.X, best.unsolved
        refined._set_dual(best.dual, best.intercepts)
    return LearnedRidge(
        refined.set_params(refine=True), learned.chosen, unseen[tell], best.residuals[tell]
    )
