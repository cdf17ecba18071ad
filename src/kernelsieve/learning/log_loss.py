"""The log loss on exact kernels: which kernel, and which penalty, judged on other rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from kernelsieve._parallel import one_thread_in_blas, ordered_map
from kernelsieve._random import keyed_rows
from kernelsieve.learning.budget import Budget
from kernelsieve.learning.candidate import Candidate
from kernelsieve.learning.weights import shares, with_weight
from kernelsieve.linalg.cholesky import covariance_factor, inverse_of_lower
from kernelsieve.linalg.left_out import solve_judged
from kernelsieve.linalg.logistic import OnKernel, minimise, row_losses, second_derivatives
from kernelsieve.sources.base import Block

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

# Of the variance of the kernel's scores, from the largest on. The alpha of the ridge tells little
# about them: it is the smaller, the better squared errors can be fitted.
PENALTIES = tuple(16.0**power for power in range(1, -7, -1))
FINER = 4.0  # and these beside the best one
JUDGED_ROWS = 1500  # that scores are learned from while kernels and penalties are compared
TRIAL_ITERATIONS, TRIAL_TOL = 40, 1e-4
ITERATIONS, TOL = 100, 1e-6
FLATTEST = 1e-8  # second derivative of the loss of a row that is certain
SHARPNESS = (-5.0, 7.0)  # logarithms
# Standard errors by which a simpler kernel, or a larger penalty, may be worse.
KERNEL_ERRORS, PENALTY_ERRORS = 1.0, 0.5
SQUARES_ERRORS = 2.0  # by which the ridge must be better than the log loss


@dataclass(frozen=True)
class Held:
    """Kernels that were chosen without some rows.

    Attributes
    ----------
    known, apart : ndarray of int
        The rows that had a part in the choice, and those that had none.
    candidates : tuple of Candidate
        The chosen kernel first, then simpler ones, from the roughest of them to an almost linear
        one.
    """

    known: Rows
    apart: Rows
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class LossChoice:
    """A kernel with its best penalty.

    Attributes
    ----------
    place : int
        Of the kernel among the candidates.
    penalty : float
        In units of the variance of the kernel's scores; of alpha where that is given.
    scores, losses : ndarray of shape (n_apart, m) and (n_apart,)
        At the rows apart, in the order of their numbers.
    """

    place: int
    penalty: float
    scores: Array
    losses: Array

    def loss(self, share: Array) -> float:
        """The mean loss."""
        return float(share @ self.losses)


class _Trial:
    """Models on some rows, for falling penalties; each begins where the last has ended."""

    def __init__(
        self, candidate: Candidate, known: Block, apart: Block, fit_intercept: bool, free: bool
    ) -> None:
        known = with_weight(known)
        self.K, self.fit_intercept = matrix(candidate.kernel, known.X, known.X), fit_intercept
        self.alpha = spread(self.K) if free else candidate.alpha
        self.cross = matrix(candidate.kernel, apart.X, known.X)
        self.signs, self.weights = known.y, np.asarray(known.weights)
        self.values = np.zeros((len(known) + 1, known.y.shape[1]))

    def scores(self, penalty: float) -> Array:
        """The scores of the other rows."""
        problem = OnKernel(
            self.K, self.signs, self.weights, penalty * self.alpha, self.fit_intercept
        )
        self.values = minimise(problem, self.values, TRIAL_ITERATIONS, TRIAL_TOL).at.values
        return self.cross @ self.values[:-1] + self.values[-1]


def choose_loss(
    rows: Block,
    held: Sequence[Held],
    budget: Budget,
    *,
    fit_intercept: bool,
    free: bool,
    seed: int,
    n_jobs: int | None,
) -> LossChoice:
    """The simplest kernel, and its largest penalty, that are not worse by more than chance.

    Parameters
    ----------
    rows : Block
        All rows, with columns of signs.
    held : sequence of Held
        Splits of them, each with the same number of candidates.
    free : bool
        Whether the penalty may be another than the alpha of the ridge.
    """
    apart = np.concatenate([one.apart for one in held])
    order = np.argsort(apart)
    truth = rows.take(apart[order])
    share = shares(truth)

    def judged(place: int) -> LossChoice | None:
        if place and budget.late():
            return None
        trials = [_trial(rows, one, place, fit_intercept, seed, free) for one in held]
        return _walk(place, trials, order, truth.y, share, free)

    with budget.step("loss"), one_thread_in_blas():
        tried = list(ordered_map(judged, range(len(held[0].candidates)), n_jobs))
    return _simplest([one for one in tried if one is not None], share)


def _trial(
    rows: Block, held: Held, place: int, fit_intercept: bool, seed: int, free: bool
) -> _Trial:
    known = held.known
    known = known[np.sort(keyed_rows(len(known), JUDGED_ROWS, seed, "log loss"))]
    return _Trial(
        held.candidates[place], rows.take(known), rows.take(held.apart), fit_intercept, free
    )


def _walk(
    place: int,
    trials: Sequence[_Trial],
    order: Rows,
    signs: Array,
    share: Array,
    free: bool,
) -> LossChoice:
    """The largest penalty that is not worse than the best at the rows apart by more than chance.

    Where few rows are wrong, or none, the best penalty is a matter of chance, and a small one makes
    the next wrong row expensive.
    """

    def tried(penalty: float) -> LossChoice:
        scores = np.concatenate([trial.scores(penalty) for trial in trials])[order]
        return LossChoice(place, penalty, scores, row_losses(scores, signs))

    if not free:
        return tried(1.0)
    found: list[LossChoice] = []
    for penalty in PENALTIES:
        found.append(tried(penalty))
        best = min(found, key=lambda one: one.loss(share))
        if penalty < best.penalty:
            break
    found += [tried(best.penalty * step) for step in (FINER, 1.0 / FINER)]
    best = min(found, key=lambda one: one.loss(share))
    falling = sorted(found, key=lambda one: -one.penalty)
    return next(
        one for one in falling if not is_worse(one.losses, best.losses, share, PENALTY_ERRORS)
    )


def _simplest(judged: Sequence[LossChoice], share: Array) -> LossChoice:
    """The simplest kernel that is not worse than the best by more than chance.

    Candidates begin with the learned kernel; the others go from the simplest on.
    """
    best = min(judged, key=lambda one: one.loss(share))
    from_simple = sorted(judged, key=lambda one: (one.place == 0, one.place))
    return next(
        one for one in from_simple if not is_worse(one.losses, best.losses, share, KERNEL_ERRORS)
    )


def is_worse(losses: Array, lowest: Array, share: Array, errors: float) -> bool:
    """Whether losses exceed the lowest ones by so many standard errors of the difference."""
    more = losses - lowest
    mean = float(share @ more)
    return mean > errors * math.sqrt(float(share**2 @ (more - mean) ** 2))


def left_out_scores(K: Array, rows: Block, dual: Array, intercepts: Array, alpha: float) -> Array:
    """The scores of each row without it, by one Newton step from the scores of all rows.

    For one column of scores with second derivatives W of the loss, B = I + W^1/2 K W^1/2 / alpha
    holds the leverages: without row i its score falls by a_i alpha / W_i (1 / (B^-1)_ii - 1). The
    columns of several classes are taken one by one.
    """
    scores = K @ dual + intercepts
    found = np.empty_like(scores)
    for column in range(scores.shape[1]):
        curved = second_derivatives(scores, column) * rows.weights_or_ones
        roots = np.sqrt(np.maximum(curved, FLATTEST))
        scaled = roots[:, None] * K * (roots / alpha)
        scaled.flat[:: len(K) + 1] += 1.0
        kept = np.square(inverse_of_lower(covariance_factor(scaled))).sum(axis=0)
        found[:, column] = scores[:, column] - dual[:, column] * alpha / roots**2 * (
            1.0 / kept - 1.0
        )
    return found


def squares_are_better(
    rows: Block,
    held: Sequence[Held],
    chosen: LossChoice,
    ridge: Candidate,
    *,
    fit_intercept: bool,
    free: bool,
) -> bool:
    """Whether a ridge on the signs predicts classes better than the log loss, once calibrated.

    Of a single split both are fitted to some of its rows. Where folds cover all rows and any row
    may judge any other (``free``), each row is predicted from all others: folds without a quarter
    of few rows would ask for a wider kernel.
    """
    if len(held) == 1 or not free:
        apart = np.concatenate([one.apart for one in held])
        order = np.argsort(apart)
        found = [
            ridge_scores(
                one.candidates[0], rows.take(one.known), rows.take(one.apart), fit_intercept
            )
            for one in held
        ]
        return _clearly_better(np.concatenate(found)[order], chosen.scores, rows.take(apart[order]))
    known = with_weight(rows)
    candidate = held[0].candidates[chosen.place] if chosen.place else ridge
    K = matrix(candidate.kernel, known.X, known.X)
    alpha = chosen.penalty * spread(K)
    problem = OnKernel(K, known.y, known.weights_or_ones, alpha, fit_intercept)
    start = np.zeros((len(known) + 1, known.y.shape[1]))
    values = minimise(problem, start, ITERATIONS, TOL).at.values
    of_loss = left_out_scores(K, known, values[:-1], values[-1], alpha)
    K = matrix(ridge.kernel, known.X, known.X)
    every = np.arange(len(known))
    solved = solve_judged(K, known.y, known.weights, ridge.alpha, fit_intercept, every)
    return _clearly_better(known.y - solved.left_out, of_loss, known)


def _clearly_better(scores: Array, others: Array, rows: Block) -> bool:
    """Whether the losses of some scores are lower than those of others by more than chance."""
    share = shares(rows)
    return is_worse(calibrated(others, rows), calibrated(scores, rows), share, SQUARES_ERRORS)


def ridge_scores(ridge: Candidate, known: Block, apart: Block, fit_intercept: bool) -> Array:
    """Scores of rows from a ridge on the signs of others."""
    known = with_weight(known)
    K = matrix(ridge.kernel, known.X, known.X)
    nobody = np.empty(0, dtype=np.int64)
    solved = solve_judged(K, known.y, known.weights, ridge.alpha, fit_intercept, nobody)
    return matrix(ridge.kernel, apart.X, known.X) @ solved.dual + solved.intercepts


def calibrated(scores: Array, rows: Block) -> Array:
    """The log losses of scores times the factor that suits them best."""
    share = shares(rows)
    found = minimize_scalar(
        lambda sharpness: float(share @ row_losses(np.exp(sharpness) * scores, rows.y)),
        bounds=SHARPNESS,
        method="bounded",
    )
    return row_losses(np.exp(found.x) * scores, rows.y)


def matrix(kernel: Any, X: Any, Y: Any, n_jobs: int | None = 1) -> Array:
    """Kernel values in float64."""
    values = kernel.between(X.astype(np.float64), Y.astype(np.float64), n_jobs)
    return np.asarray(values, dtype=np.float64)


def spread(K: Array) -> float:
    """The mean squared distance of rows from their mean, in the space of the kernel."""
    return max(float(np.mean(np.diag(K)) - np.mean(K)), 1e-12 * float(np.mean(np.diag(K))))
