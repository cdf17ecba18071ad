"""The log loss on a given kernel or on given features, with the scores of rows left out."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._parallel import one_thread_in_blas, ordered_map
from kernelsieve.learning.judge import Judge, Split
from kernelsieve.learning.log_loss import left_out_scores, matrix, spread
from kernelsieve.learning.plan import HeldOut, Plan
from kernelsieve.learning.weights import shares
from kernelsieve.linalg.logistic import LossSums, OnFeatures, OnKernel, minimise
from kernelsieve.models.kernel_ridge import KernelRidge
from kernelsieve.models.ridge_refine import ExactRidge
from kernelsieve.sources.base import Block, Source

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

ITERATIONS, TOL = 100, 1e-6
FEATURE_TOL = 1e-4
LEAST_BEND = 1e-3
FOLDS = 4  # that tell the scores of few rows
LARGEST_HELD = 2**27  # features of all rows that are held between passes
HELD_PASSES, READ_PASSES = 15, 6  # over features that are held, and that are computed anew


def log_loss_on_kernel(
    model: KernelRidge, plan: Plan, rows: Source, unseen: Rows, judge: Judge
) -> tuple[HeldOut, HeldOut]:
    """Give a model the dual coefficients of the log loss; also scores of rows left out.

    Returns
    -------
    held : HeldOut
        The unseen rows; without any, the rows of a few folds.
    calibration : HeldOut
        What to calibrate with: the same rows; without unseen ones, each row from all others if any
        row may judge any other, since scores of folds are not as sharp as those of all rows.
    """
    n = rows.shape[0]
    block = rows.take(np.arange(n))
    kernel = model.features_.kernel_
    K = matrix(kernel, block.X, block.X, model.n_jobs)
    weighted = np.flatnonzero(block.weights_or_ones)
    alpha = plan.alpha * (spread(K[np.ix_(weighted, weighted)]) if plan.alpha_is_relative else 1.0)
    values = np.zeros((n + 1, block.y.shape[1]))
    scores = np.zeros_like(block.y)

    def solved(known: Rows, start: Array) -> Array:
        """Coefficients of all rows, 0 for those that are not known, and intercepts."""
        known = known[block.weights_or_ones[known] > 0.0]
        weights = block.weights_or_ones[known]
        problem = OnKernel(
            K[np.ix_(known, known)], block.y[known], weights, alpha, model.fit_intercept
        )
        found = minimise(problem, start[np.append(known, n)], ITERATIONS, TOL).at.values
        whole = np.zeros_like(start)
        whole[np.append(known, n)] = found
        return whole

    every = np.arange(n)
    splits = _folds(judge, n)
    if len(unseen):
        splits = [Split(np.setdiff1d(every, unseen), unseen)]
    with one_thread_in_blas():
        start = values if len(unseen) else solved(every, values)
        for known, apart in splits:
            values = solved(np.sort(known), start)
            scores[apart] = K[apart] @ values[:-1] + values[-1]
        values = solved(every, values) if len(unseen) else start
    model.adopt_exact(ExactRidge(block.X, values[:-1], values[-1]))
    judges = np.sort(np.concatenate([apart for _, apart in splits])) if splits else every
    held = HeldOut(judges, block.y[judges], scores[judges], scores[judges])
    if len(unseen) or not judge.free:
        return held, held
    some = Block(None, block.y[weighted], block.weights_or_ones[weighted])
    near = left_out_scores(K[np.ix_(weighted, weighted)], some, values[weighted], values[-1], alpha)
    return held, HeldOut(weighted, some.y, near, near)


def log_loss_on_features(
    model: KernelRidge, rows: Source, unseen: Rows, penalty: float, judge: Judge
) -> tuple[KernelRidge, HeldOut]:
    """A model with the features of a ridge and the coefficients of the log loss.

    The unseen rows are left out first; without any, the rows of each fold. What that finds is where
    the fit to all rows begins.
    """
    n = rows.shape[0]
    apart = [unseen] if len(unseen) else [fold.judge for fold in _folds(judge, n)]
    judges = np.sort(np.concatenate(apart)) if apart else np.arange(n)
    posterior, truth = model.on_features.posterior, rows.take(judges)
    assert posterior is not None  # solver="cholesky" has one
    passes = _Passes(model, rows)
    most = HELD_PASSES if passes.held is not None else READ_PASSES
    outputs = truth.y.shape[1]
    bend = bend_at(truth)
    values = np.zeros((posterior.shape[0] + 1, outputs))
    scores = np.zeros(truth.y.shape)
    with one_thread_in_blas():
        for some in apart:
            part = np.sort(some)
            few = OnFeatures(passes.without(part), posterior, penalty, outputs, bend)
            values = minimise(few, values, most, FEATURE_TOL).at.values
            here = np.searchsorted(judges, part)
            found = _with(model, *few.plain(values)).predict(truth.X[here])
            scores[here] = found.reshape(len(here), outputs)
        every = OnFeatures(passes.without(None), posterior, penalty, outputs, bend)
        values = minimise(every, values, most, FEATURE_TOL).at.values
    return _with(model, *every.plain(values)), HeldOut(judges, truth.y, scores, scores)


def _folds(judge: Judge, n: int) -> list[Split]:
    """Few folds of few rows."""
    return list(judge.folds(min(FOLDS, n))) if n > 1 else []


def bend_at(rows: Block) -> float:
    """The curvature of the log loss where every row has the base rate, over the largest there is.

    For several classes it is that of the most frequent one.
    """
    rates = shares(rows) @ (rows.y > 0)
    return max(float(np.max(4.0 * rates * (1.0 - rates))), LEAST_BEND)


def _with(model: KernelRidge, coefficients: Array, intercepts: Array) -> KernelRidge:
    """The same features with other coefficients."""
    other = copy.copy(model)
    other.adopt(coefficients, intercepts)
    return other


class _Passes:
    """Passes over the features of all rows, which are held where they fit in memory."""

    def __init__(self, model: KernelRidge, rows: Source) -> None:
        self.model, self.rows = model, rows
        self.mixing = model.passes.mixing(rows.dtype)
        raw = self.mixing is not None
        self.held: list[tuple[Any, Block]] | None = None
        if rows.resident and rows.shape[0] * model.features_.n_components_ <= LARGEST_HELD:
            self.held = model.passes.map(
                lambda Z, block: (Z, Block(None, block.y, block.weights, block.start)),
                rows,
                raw=raw,
            )

    def without(self, unseen: Rows | None) -> Callable[[Array, Array], LossSums]:
        """The sums over all rows but these."""
        return partial(self._sums, unseen)

    def _sums(self, unseen: Rows | None, coefficients: Array, intercepts: Array) -> LossSums:
        mixing = None if self.mixing is None else self.mixing.astype(np.float64)
        inner = coefficients if mixing is None else mixing @ coefficients

        def of_block(Z: Any, block: Block) -> LossSums:
            weights = _without(block, len(block.y), unseen)
            # Coefficients of raw features are large and cancel: in float64.
            Z = Z if mixing is None else Z.astype(np.float64)
            return LossSums.of_block(Z, block.y, weights, inner, intercepts)

        if self.held is None:
            total: LossSums = self.model.passes.reduce(of_block, self.rows, raw=mixing is not None)
        else:
            parts = ordered_map(lambda one: of_block(*one), self.held, self.model.n_jobs)
            total = LossSums(0.0, np.zeros_like(inner), np.zeros_like(intercepts))
            for part in parts:
                total += part
        if mixing is not None:
            total.pulls = mixing.T @ total.pulls
        return total


def _without(block: Block, size: int, unseen: Rows | None) -> Array | None:
    """The weights of a block, with 0 for rows that are left out."""
    weights: Array | None = block.weights
    if unseen is None:
        return weights
    here = unseen[np.searchsorted(unseen, block.start) :]
    here = here[: np.searchsorted(here, block.start + size)] - block.start
    left = np.ones(size) if weights is None else np.array(weights, dtype=np.float64)
    left[here] = 0.0
    return left
