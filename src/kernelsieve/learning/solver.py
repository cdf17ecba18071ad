"""Exact kernel or landmarks: decided on some of the rows, before anything is fitted to all."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.kernels import Kernel
from kernelsieve.kernels.matrix import product_work
from kernelsieve.learning.budget import Budget
from kernelsieve.learning.candidate import Judged
from kernelsieve.learning.errors import LandmarksApart
from kernelsieve.learning.neighbour_search import choose_correction
from kernelsieve.learning.plan import Solver
from kernelsieve.learning.product_choice import KernelChoice
from kernelsieve.learning.sides import Setting, Sides
from kernelsieve.learning.walk import Walk
from kernelsieve.learning.weights import shares
from kernelsieve.sources.base import Block

FEWEST_LANDMARKS = 100
LEAST_ALPHA = 1e-4  # that conjugate gradients are asked to solve for: below, they hardly move
CLEAR = 0.2  # relative gain that needs no test
WORTH = 0.01  # relative gain that is worth n kernel values for each prediction
# Standard errors between no gain and the mean gain, or the share of rows that gain.
MEAN_ERRORS, SIGN_ERRORS = 2.0, 4.0

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SolverChoice:
    """How to solve, for which kernel."""

    solver: Solver
    judged: Judged
    tried: tuple[Judged, ...] = ()


def choose_solver(
    choice: KernelChoice, sides: Sides, budget: Budget, alphas: Array | None
) -> SolverChoice:
    """The exact kernel of all rows where it is foreseen to pay, else landmarks.

    Both are fitted to the same few thousand rows, with as many landmarks for each row as all rows
    would have. The exact kernel is tried where a product with its matrix takes about a second or
    less.
    """
    setting, options = sides.setting, sides.setting.options
    n, d = setting.rows.shape
    if setting.exact:
        return SolverChoice(Solver("exact", min(n, options.landmarks)), choice.best)
    landmarks = SolverChoice(Solver("landmarks", min(n, options.landmarks)), choice.best)
    if choice.exact is None or not setting.rows.resident or budget.late():
        return landmarks
    work = product_work(choice.form.kernel(choice.exact, choice.learner), n, d)
    if work > options.full_work:
        return landmarks
    known, apart = sides.known_and_apart()
    known = sides.some(known, options.solver_rows)
    with budget.step("solver"):
        judge = setting.set_apart(known, apart)
        walk = Walk(
            judge, choice.learner, choice.form, alphas, options, budget.deadline, setting.n_jobs
        )
        narrow, tried = walk.settled(choice.exact)
        narrow = replace(narrow, alpha=max(narrow.alpha, LEAST_ALPHA))
        exact = judge.ridges(walk.form.kernel(narrow, walk.learner))(np.array([narrow.alpha]))[0]
        size = max(FEWEST_LANDMARKS, options.landmarks * len(known) // n)
        fewer = LandmarksApart.among(judge, size, setting.seed)
        coarse = replace(walk, errors=fewer)
        wide = coarse.judged(choice.best)
        kernel = walk.form.kernel(wide, walk.learner)
        residuals = fewer.residuals_of_all(kernel, wide.alpha)
        nearest = _corrected(fewer, kernel, residuals, setting, budget.deadline)
    weights = judge.weights[judge.outside]
    better = nearest is None or _mean_square(exact, weights) < nearest
    if better and pays(exact, residuals[judge.outside], weights):
        return SolverChoice(Solver("iterative", min(n, options.landmarks)), narrow, tuple(tried))
    return replace(landmarks, tried=tuple(tried))


def _corrected(
    judge: LandmarksApart, kernel: Kernel, residuals: Array, setting: Setting, deadline: float
) -> float | None:
    """The mean squared error of landmarks that are corrected by the nearest rows, if they may be.

    Where rows belong together, neighbours would tell too much.
    """
    if not setting.judge.free or setting.free_intercept:
        return None
    rows = Block(judge.X, judge.y, judge.weights)
    judges = np.flatnonzero(judge.outside)
    trial = choose_correction(
        kernel, rows, residuals, judges, np.ones(len(judges), dtype=bool), setting.n_jobs, deadline
    )
    if trial is None:
        return None
    return _mean_square(trial.residuals, judge.weights[judges[trial.judged]])


def _mean_square(residuals: Array, weights: Array) -> float:
    return float(np.average(np.mean(residuals**2, axis=1), weights=weights))


def pays(refined: Array, before: Array, weights: Any = None, worth: float = WORTH) -> bool:
    """Whether residuals are smaller than others at the same rows: by enough, and not by chance.

    Not by chance is a mean gain above its standard error, or a gain at most of the rows, or one of
    a fifth: where a few large residuals are all of the error, they cannot be told from chance.
    """
    share = shares(Block(refined, None, weights))
    squares, after = np.mean(before**2, axis=1), np.mean(refined**2, axis=1)
    gain = float(share @ (squares - after))
    if gain <= (1.0 - (1.0 - worth) ** 2) * float(share @ squares):
        return False
    if gain > (1.0 - (1.0 - CLEAR) ** 2) * float(share @ squares):
        return True
    chance = math.sqrt(float(share**2 @ (squares - after - gain) ** 2))
    won = 2.0 * float(share @ (after < squares)) - 1.0
    return gain > MEAN_ERRORS * chance or won > SIGN_ERRORS * math.sqrt(float(share @ share))
