"""The log loss on a learned kernel: which kernel, which penalty, and whether it beats the ridge."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kernelsieve._parallel import one_thread_in_blas, ordered_map
from kernelsieve._random import keyed_rows
from kernelsieve.linalg.logistic import (
    LossSums,
    OnFeatures,
    OnKernel,
    minimise,
    row_losses,
)
from kernelsieve.models._base import mixing_of
from kernelsieve.models._learned import LearnedRidge
from kernelsieve.models.kernel_ridge import KernelRidge
from kernelsieve.sources.base import Block, Source
from kernelsieve.tuning.kernel_search import Candidate, Held

Array = NDArray[np.float64]

# Of the variance of the kernel's scores, from the largest on. The alpha of the ridge tells little
# about them: it is the smaller, the better squared errors can be fitted.
PENALTIES = tuple(4.0**power for power in range(3, -12, -1))
# Of the alpha of the ridge. The losses agree where all classes are likely; the more certain they
# are, the flatter is the log loss and the smaller the penalty that goes with it.
SHARES = tuple(16.0**power for power in range(0, -5, -1))
LEAST_BEND = 1e-3
WORSE = 1e-3  # share of the loss by which a penalty is worse than a larger one
JUDGED_ROWS = 1500  # that scores are learned from while kernels and penalties are compared
TRIAL_ITERATIONS, TRIAL_TOL = 40, 1e-4
ITERATIONS, TOL = 100, 1e-6
LARGEST_HELD = 2**27  # features of all rows that are held between passes
# Passes for the first penalty, and for each that follows: over features that are held, and over
# those that are computed anew.
HELD_PASSES, READ_PASSES = (15, 6), (6, 3)
# The candidates, from the simplest on: almost linear, equal rates of both families, learned.
BY_SIMPLICITY = (1, 3, 2, 0)
# Standard errors by which a simpler kernel, or a larger penalty, may be worse.
KERNEL_ERRORS, PENALTY_ERRORS = 1.0, 0.5


@dataclass(frozen=True)
class Scores:
    """A model of the log loss, judged at rows that it has not seen.

    Attributes
    ----------
    model : KernelRidge
        Fitted to all rows; its coefficients minimise the log loss.
    values : ndarray of shape (len(unseen), m)
        The scores at the unseen rows, of models without them.
    """

    model: KernelRidge
    values: Array


@dataclass(frozen=True)
class _Judged:
    """A candidate with its best penalty: the scores and the losses at the unseen rows."""

    place: int
    penalty: float
    scores: Array
    losses: Array


class _Trial:
    """Models on some rows, for falling penalties; each begins where the last has ended."""

    def __init__(
        self,
        candidate: Candidate,
        known: Block,
        apart: Block,
        numbers: NDArray[np.int64],
        fit_intercept: bool,
        free: bool,
    ) -> None:
        known, self.apart = with_weight(known), numbers
        self.K, self.fit_intercept = matrix(candidate.kernel, known.X, known.X), fit_intercept
        self.alpha = spread(self.K) if free else candidate.alpha
        self.cross = matrix(candidate.kernel, apart.X, known.X)
        self.signs, self.weights = known.y, np.asarray(known.weights)
        self.values = np.zeros((len(known) + 1, known.y.shape[1]))

    def scores(self, penalty: float) -> Array:
        """The scores of the other rows."""
        self.values = dual_of(
            self.K, self.signs, self.weights, penalty * self.alpha, self.fit_intercept,
            self.values, TRIAL_ITERATIONS, TRIAL_TOL,
        )  # fmt: skip
        return self.cross @ self.values[:-1] + self.values[-1]


def fit_log_loss(
    learned: LearnedRidge, given: Source, rows: Source, free: bool, deadline: float
) -> Scores | None:
    """Fit the log loss, with what is chosen for it judged at the unseen rows.

    Parameters
    ----------
    learned : LearnedRidge
    given, rows : Source
        Targets +-1 as the ridge takes them, and as columns.
    free : bool
        Whether the penalty may be another than the alpha of the ridge.
    deadline : float
        The value of ``time.monotonic()`` after which nothing more is tried.

    Returns
    -------
    Scores or None
        None where there is no time, or nothing to judge by; or where the exact kernel of so many
        rows was worth iterations, which would have to begin again.
    """
    truth = with_weight(rows.take(learned.unseen))
    if not len(truth) or time.monotonic() > deadline:
        return None
    with one_thread_in_blas():
        if learned.chosen.candidates:
            return _on_kernel(learned, given, rows, free, deadline)
        if hasattr(learned.model, "dual_coef_"):
            return None
        return _on_features(learned, rows, SHARES if free else SHARES[:1], deadline)


# --- on the exact kernel -------------------------------------------------------------------------


def _on_kernel(
    learned: LearnedRidge,
    given: Source,
    rows: Source,
    free: bool,
    deadline: float,
) -> Scores:
    """The best of the kernels that were learned without the unseen rows."""
    chosen, model = learned.chosen, learned.model
    features: Any = model.features
    seed, fit_intercept = features.random_state, model.fit_intercept
    block = rows.take(np.arange(rows.shape[0]))
    truth = block.take(learned.unseen)
    weights = truth.weights_or_ones

    def judged(place: int) -> _Judged | None:
        if place and time.monotonic() > deadline:
            return None
        trials = [
            _trial(block, held, place, fit_intercept, JUDGED_ROWS, seed, free)
            for held in chosen.held
        ]
        return _walk(place, trials, truth.y, weights, PENALTIES if free else (1.0,))

    tried = ordered_map(judged, range(len(chosen.candidates)), model.n_jobs)
    best = simplest([one for one in tried if one is not None], weights)
    values = best.scores
    if any(len(held.known) > JUDGED_ROWS for held in chosen.held):
        whole = [
            _trial(block, held, best.place, fit_intercept, None, seed, free) for held in chosen.held
        ]
        values = _in_order(whole, best.penalty)
    return Scores(_fitted(model, chosen.candidates[best.place], best, given, block, free), values)


def _trial(
    rows: Block,
    held: Held,
    place: int,
    fit_intercept: bool,
    most: int | None,
    seed: int,
    free: bool,
) -> _Trial:
    known = held.known
    if most is not None:
        known = known[np.sort(keyed_rows(len(known), most, seed, "log loss"))]
    return _Trial(
        held.candidates[place],
        rows.take(known),
        rows.take(held.apart),
        held.apart,
        fit_intercept,
        free,
    )


def _walk(
    place: int,
    trials: Sequence[_Trial],
    signs: Array,
    weights: Array,
    penalties: Sequence[float],
) -> _Judged:
    """The largest penalty that is not worse than the best at the unseen rows by more than chance.

    Where few rows are wrong, or none, the best penalty is a matter of chance, and a small one makes
    the next wrong row expensive.
    """
    tried: list[_Judged] = []
    share = weights / weights.sum()
    for penalty in penalties:
        scores = _in_order(trials, penalty)
        losses = row_losses(scores, signs)
        tried.append(_Judged(place, penalty, scores, losses))
        best = min(tried, key=lambda one: float(share @ one.losses))
        if penalty < best.penalty / 4.0:
            break
    return next(one for one in tried if not is_worse(one, best, share, PENALTY_ERRORS))


def _in_order(trials: Sequence[_Trial], penalty: float) -> Array:
    """The scores of the rows that were left out, in the order of their numbers."""
    scores = np.concatenate([trial.scores(penalty) for trial in trials])
    return scores[np.argsort(np.concatenate([trial.apart for trial in trials]))]


def simplest(judged: Sequence[_Judged], weights: Array) -> _Judged:
    """The simplest kernel that is not worse than the best by more than chance."""
    share = weights / weights.sum()
    best = min(judged, key=lambda one: float(share @ one.losses))
    in_order = sorted(judged, key=lambda one: BY_SIMPLICITY.index(one.place))
    return next(one for one in in_order if not is_worse(one, best, share, KERNEL_ERRORS))


def is_worse(one: _Judged, best: _Judged, share: Array, errors: float) -> bool:
    """Whether losses exceed the lowest ones by so many standard errors of the difference."""
    more = one.losses - best.losses
    mean = float(share @ more)
    return mean > errors * math.sqrt(float(share**2 @ (more - mean) ** 2))


def _fitted(
    ridge: KernelRidge,
    candidate: Candidate,
    judged: _Judged,
    given: Source,
    rows: Block,
    free: bool,
) -> KernelRidge:
    """The coefficients of all rows, in the ridge of that kernel."""
    model = copy.copy(ridge)
    if judged.place:
        assert ridge.features is not None
        options = {"kernel": candidate.kernel, "alpha": candidate.alpha}
        landmarks = clone(ridge.features).set_params(**options)
        model = clone(ridge).set_params(features=landmarks, alpha=candidate.alpha).fit(given)
    known = with_weight(rows)
    K = matrix(candidate.kernel, known.X, known.X)
    values = dual_of(
        K,
        known.y,
        np.asarray(known.weights),
        judged.penalty * (spread(K) if free else candidate.alpha),
        ridge.fit_intercept,
        np.zeros((len(known) + 1, known.y.shape[1])),
        ITERATIONS,
        TOL,
    )
    dual = np.zeros((len(rows), known.y.shape[1]))
    dual[np.flatnonzero(rows.weights_or_ones)] = values[:-1]
    model._set_dual(dual, values[-1])
    return model


# --- on features ---------------------------------------------------------------------------------


def _on_features(
    learned: LearnedRidge, rows: Source, penalties: Sequence[float], deadline: float
) -> Scores:
    """The features of the ridge; the unseen rows are left out until the penalty is chosen."""
    model, unseen = learned.model, np.sort(learned.unseen)
    posterior, outputs = model._known_posterior(), learned.residuals.shape[1]
    passes = _Passes(model, rows, unseen)
    truth = rows.take(learned.unseen)
    weights = truth.weights_or_ones
    first, later = HELD_PASSES if passes.held is not None else READ_PASSES
    best: tuple[float, float, Array, Array] | None = None
    start, most, bend = (
        np.zeros((model.coef_.shape[0] + 1, outputs)),
        first,
        bend_at(truth, weights),
    )
    for penalty in penalties:
        problem = OnFeatures(passes.without, posterior, penalty * model.alpha, outputs, bend)
        start = minimise(problem, start, most, TRIAL_TOL).at.values
        scores = _with(model, *problem.plain(start)).predict(truth.X).reshape(truth.y.shape)
        losses = row_losses(scores, truth.y)
        loss = float(np.average(losses, weights=weights))
        # Where a rare class makes the ridge choose an extreme alpha, the first penalties leave the
        # base rate, all the same: that is no reason to stop.
        if best is not None and loss > (1.0 + WORSE) * best[0]:
            break
        most = later
        if best is None or loss < best[0]:
            best = (loss, penalty, start, scores)
        if passes.held is None or time.monotonic() > deadline:
            break
    assert best is not None
    problem = OnFeatures(passes.all, posterior, best[1] * model.alpha, outputs, bend)
    values = minimise(problem, best[2], later, TRIAL_TOL).at.values
    return Scores(_with(model, *problem.plain(values)), best[3])


def bend_at(rows: Block, weights: Array) -> float:
    """The curvature of the log loss where every row has the base rate, over the largest there is.

    For several classes it is that of the most frequent one.
    """
    rates = np.average(rows.y > 0, axis=0, weights=weights)
    return max(float(np.max(4.0 * rates * (1.0 - rates))), LEAST_BEND)


def _with(model: KernelRidge, coefficients: Array, intercepts: Array) -> KernelRidge:
    """The same features with other coefficients."""
    other = copy.copy(model)
    other._set(coefficients, intercepts)
    return other


class _Passes:
    """Passes over the features of all rows, which are held where they fit in memory."""

    def __init__(self, model: KernelRidge, rows: Source, unseen: NDArray[np.int64]) -> None:
        self.model, self.rows, self.unseen = model, rows, unseen
        self.mixing = mixing_of(model.features_, rows.dtype)
        raw = self.mixing is not None
        self.held: list[tuple[Any, Block]] | None = None
        if rows.resident and rows.shape[0] * model.features_.n_components_ <= LARGEST_HELD:
            self.held = model._map_blocks(
                lambda Z, block: (Z, Block(None, block.y, block.weights, block.start)),
                rows,
                raw=raw,
            )

    def all(self, coefficients: Array, intercepts: Array) -> LossSums:
        """The sums over all rows."""
        return self._sums(coefficients, intercepts, None)

    def without(self, coefficients: Array, intercepts: Array) -> LossSums:
        """The sums over all rows but the unseen ones."""
        return self._sums(coefficients, intercepts, self.unseen)

    def _sums(
        self, coefficients: Array, intercepts: Array, unseen: NDArray[np.int64] | None
    ) -> LossSums:
        mixing = None if self.mixing is None else self.mixing.astype(np.float64)
        inner = coefficients if mixing is None else mixing @ coefficients

        def of_block(Z: Any, block: Block) -> LossSums:
            weights = _without(block, len(block.y), unseen)
            # Coefficients of raw features are large and cancel: in float64.
            Z = Z if mixing is None else Z.astype(np.float64)
            return LossSums.of_block(Z, block.y, weights, inner, intercepts)

        if self.held is None:
            total: LossSums = self.model._reduce(of_block, self.rows, raw=mixing is not None)
        else:
            parts = ordered_map(lambda one: of_block(*one), self.held, self.model.n_jobs)
            total = LossSums(0.0, np.zeros_like(inner), np.zeros_like(intercepts))
            for part in parts:
                total += part
        if mixing is not None:
            total.pulls = mixing.T @ total.pulls
        return total


def _without(block: Block, size: int, unseen: NDArray[np.int64] | None) -> Array | None:
    """The weights of a block, with 0 for rows that are left out."""
    weights: Array | None = block.weights
    if unseen is None:
        return weights
    here = unseen[np.searchsorted(unseen, block.start) :]
    here = here[: np.searchsorted(here, block.start + size)] - block.start
    left = np.ones(size) if weights is None else np.array(weights, dtype=np.float64)
    left[here] = 0.0
    return left


# --- one solve -----------------------------------------------------------------------------------


def dual_of(
    K: Array,
    signs: Array,
    weights: Array,
    alpha: float,
    fit_intercept: bool,
    start: Array,
    max_iter: int,
    tol: float,
) -> Array:
    """Dual coefficients that minimise the log loss, with the intercepts as one more line."""
    problem = OnKernel(K, signs, weights, alpha, fit_intercept)
    return minimise(problem, start, max_iter, tol).at.values


def matrix(kernel: Any, X: Any, Y: Any) -> Array:
    """Kernel values in float64."""
    values = kernel.between(X.astype(np.float64), Y.astype(np.float64), 1)
    return np.asarray(values, dtype=np.float64)


def spread(K: Array) -> float:
    """The mean squared distance of rows from their mean, in the space of the kernel."""
    return max(float(np.mean(np.diag(K)) - np.mean(K)), 1e-12 * float(np.mean(np.diag(K))))


def with_weight(rows: Block) -> Block:
    """The rows whose weight is positive, with their weights."""
    weights = rows.weights_or_ones
    kept = np.flatnonzero(weights)
    return Block(rows.X[kept], rows.y[kept], weights[kept])
