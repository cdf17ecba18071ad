"""The log loss on exact kernels: which kernel, and which penalty, judged on other rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._parallel import one_thread_in_blas, ordered_map
from kernelsieve._random import keyed_rows
from kernelsieve.learning.budget import Budget
from kernelsieve.learning.candidate import Candidate
from kernelsieve.linalg.logistic import OnKernel, minimise, row_losses
from kernelsieve.sources.base import Block

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

# Of the variance of the kernel's scores, from the largest on. The alpha of the ridge tells little
# about them: it is the smaller, the better squared errors can be fitted.
PENALTIES = tuple(4.0**power for power in range(3, -12, -1))
JUDGED_ROWS = 1500  # that scores are learned from while kernels and penalties are compared
TRIAL_ITERATIONS, TRIAL_TOL = 40, 1e-4
ITERATIONS, TOL = 100, 1e-6
# Standard errors by which a simpler kernel, or a larger penalty, may be worse.
KERNEL_ERRORS, PENALTY_ERRORS = 1.0, 0.5


@dataclass(frozen=True)
class Held:
    """Kernels that were chosen without some rows.

    Attributes
    ----------
    known, apart : ndarray of int
        The rows that had a part in the choice, and those that had none.
    candidates : tuple of Candidate
        The chosen kernel first, then simpler ones, from the roughest of them to an almost linear
        one: see `from_simple`.
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
    share = truth.weights_or_ones / truth.weights_or_ones.sum()

    def judged(place: int) -> LossChoice | None:
        if place and budget.late():
            return None
        trials = [_trial(rows, one, place, fit_intercept, seed, free) for one in held]
        penalties = PENALTIES if free else (1.0,)
        return _walk(place, trials, order, truth.y, share, penalties)

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
    penalties: Sequence[float],
) -> LossChoice:
    """The largest penalty that is not worse than the best at the rows apart by more than chance.

    Where few rows are wrong, or none, the best penalty is a matter of chance, and a small one makes
    the next wrong row expensive.
    """
    tried: list[LossChoice] = []
    for penalty in penalties:
        scores = np.concatenate([trial.scores(penalty) for trial in trials])[order]
        tried.append(LossChoice(place, penalty, scores, row_losses(scores, signs)))
        best = min(tried, key=lambda one: one.loss(share))
        if penalty < best.penalty / 4.0:
            break
    return next(
        one for one in tried if not is_worse(one.losses, best.losses, share, PENALTY_ERRORS)
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


def matrix(kernel: Any, X: Any, Y: Any, n_jobs: int | None = 1) -> Array:
    """Kernel values in float64."""
    values = kernel.between(X.astype(np.float64), Y.astype(np.float64), n_jobs)
    return np.asarray(values, dtype=np.float64)


def spread(K: Array) -> float:
    """The mean squared distance of rows from their mean, in the space of the kernel."""
    return max(float(np.mean(np.diag(K)) - np.mean(K)), 1e-12 * float(np.mean(np.diag(K))))


def with_weight(rows: Block) -> Block:
    """The rows whose weight is positive, with their weights."""
    weights = rows.weights_or_ones
    kept = np.flatnonzero(weights)
    return Block(rows.X[kept], rows.y[kept], weights[kept])
