"""Accelerated block coordinate descent: for systems whose matrix takes too long to multiply with.

A step takes a few thousand columns of the matrix, solves for their coordinates by a Nystrom sketch
of the block, and multiplies with these columns alone: sketch-and-project with Nesterov's momentum,
ASkotch (Rathore, Frangella, Yang, Derezinski and Udell 2025), with two differences:

- Residuals are updated in place of gradients: r - A[:, B] d costs what A[B, :] z does, and the
  residual of all rows is known after every step.
- Every sweep takes each row once, in a new random order.

The sketch is damped by its smallest eigenvalue. So the first sweeps solve for the smooth part of
the target; blocks solved by a Cholesky factor fit the noise of their rows first, and predict worse
for some sweeps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kernelsieve._parallel import one_thread_in_blas
from kernelsieve.linalg.operators import NystromSketch
from kernelsieve.linalg.solvers import Apply, Solution, dots

MOMENTUM = 0.1  # strong convexity that is assumed, in units of that of equal eigenvalues
LARGEST_BLOCK = 4096  # rows: the matrix of a block takes 128 MiB
RANK_SHARE = 0.25  # of the rows of a block: the rank of its sketch
SKETCH_SHARE = 0.25  # of the time of a step that its sketch may take
# A sketch of that rank takes about the cube of its rows in multiplications, so many of them in the
# time of a difference of coordinates.
SKETCH_SPEED = 2.0
POWER_STEPS = 8  # for the largest eigenvalue that a sketch leaves
SAFETY = 1.1  # of that, which power steps find from below
ENERGY_ROUNDING = 1e-13  # relative
CHECKS = 4  # of the momentum in each sweep

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]


class ColumnMatrix(Protocol):
    """A symmetric positive definite matrix of which some columns are computed at a time."""

    def product(self, block: Numbers, V: Array) -> Array:
        """A[:, block] V."""

    def square(self, block: Numbers) -> Array:
        """A[block, block] - alpha I in float64."""

    @property
    def alpha(self) -> float:
        """What the diagonal holds beside a positive semidefinite matrix."""

    @property
    def rounding(self) -> float:
        """The relative rounding error of an entry in a product."""


@dataclass(frozen=True)
class StepLimits:
    """When steps end, and who is told.

    Attributes
    ----------
    tol : float
        Relative residual.
    sweeps : int
        Most sweeps over all rows.
    deadline : float
        The value of ``time.monotonic()`` after which no step begins.
    report : callable
        Gets the number of the sweep and the residual after every step.
    """

    tol: float
    sweeps: int
    deadline: float = math.inf
    report: Callable[[int, float], None] = lambda sweep, residual: None


def block_size(n_rows: int, entry_work: float) -> int:
    """Rows of a block: as many as keep the sketch to a fraction of the step.

    Parameters
    ----------
    n_rows : int
    entry_work : float
        Differences of coordinates that an entry of the matrix takes, or as much other work.
    """
    largest = math.sqrt(SKETCH_SHARE * SKETCH_SPEED * n_rows * entry_work)
    return max(1, min(n_rows, LARGEST_BLOCK, int(largest)))


def descend(
    A: ColumnMatrix,
    right: Array,
    apply: Apply,
    size: int,
    rng: np.random.Generator,
    limits: StepLimits,
    start: Array | None = None,
) -> tuple[Solution, Array]:
    """Solve A x = b for several right hand sides until every relative residual is below ``tol``.

    Returns the iterate with the lowest energy x^T A x / 2 - b^T x since the start of each system,
    and its residuals b - A x. Residuals are updated; what rounding may have added to them is
    counted in ``Solution.residual``. Where it matters beside ``tol``, ``apply`` computes them anew.

    Parameters
    ----------
    A : ColumnMatrix
    right : ndarray of shape (n, k)
    apply : callable
        From a block of shape (n, k) to A times the block in float64: a pass over all of A, for
        residuals below what rounding allows.
    size : int
        Rows of a block.
    rng : Generator
        Deals the blocks.
    limits : StepLimits
    start : ndarray of shape (n, k), optional
        A first guess. Rows that are not zero cost what a step does.
    """
    descent = _Descent(A, right, size, rng, start)
    steps = 0
    while not descent.solved(limits.tol) and time.monotonic() < limits.deadline:
        if descent.rounded(limits.tol):
            if not descent.renew(apply):
                break
            continue
        if steps >= limits.sweeps * descent.sweep_steps:
            break
        descent.step(A)
        steps += 1
        limits.report(1 + (steps - 1) // descent.sweep_steps, descent.residual)
    sweeps = -(-steps // descent.sweep_steps)
    return Solution(descent.best, sweeps, descent.residual + descent.drift), descent.best_rest


def _solve_roughly(square: Array, alpha: float, right: Array, rng: np.random.Generator) -> Array:
    """(square + alpha I)^-1 right, damped; never further than lowers the energy."""
    rank = max(1, int(RANK_SHARE * len(square)))
    test, _ = np.linalg.qr(rng.standard_normal((len(square), rank)))
    sketch = NystromSketch(square, test)
    damping = alpha + (float(sketch.eigenvalues[-1]) if len(sketch.eigenvalues) else 0.0)
    vector = rng.standard_normal((len(square), 1))
    largest = 1.0
    for _ in range(POWER_STEPS):
        image = sketch.solve(square @ vector + alpha * vector, damping)
        largest = float(np.linalg.norm(image) / np.linalg.norm(vector))
        vector = image / np.linalg.norm(image)
    return sketch.solve(right, damping) / max(1.0, SAFETY * largest)


class _Descent:
    """Where the descent is: x, its momentum, their residuals, and the best so far."""

    def __init__(
        self,
        A: ColumnMatrix,
        right: Array,
        size: int,
        rng: np.random.Generator,
        start: Array | None,
    ) -> None:
        self.right, self.size, self.rng = right, size, rng
        norms = np.linalg.norm(right, axis=0)
        self.scale = np.where(norms > 0, norms, 1.0)
        self.best, self.best_rest = np.zeros_like(right), right.copy()
        self.drift, self._squares = 0.0, 0.0
        self.rounding = A.rounding * math.sqrt(len(right))
        if start is not None and np.isfinite(start).all():
            self._begin(A, start)
        self.lowest = self._energies(self.best, self.best_rest)
        self.order = np.empty(0, dtype=np.int64)
        self.sweep_steps = -(-len(right) // size)
        self.taken, self.improved = 0, False
        share = size / len(right)
        strong, smooth = MOMENTUM * share, 1.0 / share
        self.decay = 1.0 - math.sqrt(strong / smooth)
        self.stride = 1.0 / math.sqrt(strong * smooth)
        self.mix = 1.0 / (1.0 + self.stride * smooth)
        self._rest()

    def _begin(self, A: ColumnMatrix, start: Array) -> None:
        """Take a guess for the systems where its residual is smaller than that of zero.

        The energy does not tell: that of a good ridge on landmarks may be above that of zero.
        """
        used = np.flatnonzero(start.any(axis=1))
        rest = self.right - A.product(used, start[used])
        better = np.linalg.norm(rest, axis=0) < np.linalg.norm(self.right, axis=0)
        self.best[:, better], self.best_rest[:, better] = start[:, better], rest[:, better]
        self._add_drift(self.best[used])

    def _rest(self) -> None:
        """Forget the momentum."""
        self.ahead, self.ahead_rest = self.best.copy(), self.best_rest.copy()
        self.look, self.look_rest = self.best.copy(), self.best_rest.copy()
        self.improved = False

    def _energies(self, values: Array, rest: Array) -> Array:
        return -0.5 * dots(values, self.right + rest)

    @property
    def residual(self) -> float:
        """The largest relative residual of the best iterates, as the updates know it."""
        return float((np.linalg.norm(self.best_rest, axis=0) / self.scale).max(initial=0.0))

    def solved(self, tol: float) -> bool:
        return self.residual + self.drift <= tol

    def rounded(self, tol: float) -> bool:
        """Whether more steps would not lower what is known of the residual."""
        return self.residual <= max(tol, self.drift)

    def renew(self, apply: Apply) -> bool:
        """Compute the residual anew; whether it is lower than what had been known before."""
        before = self.residual + self.drift
        self.best_rest = self.right - apply(self.best)
        self.drift = self._squares = 0.0
        self.lowest = self._energies(self.best, self.best_rest)
        self._rest()
        return self.residual < before

    def step(self, A: ColumnMatrix) -> None:
        """Solve for the coordinates of a block, and let the momentum carry on."""
        block = self._next_block()
        square = A.square(block)
        with one_thread_in_blas():  # for the same bits with any threads of BLAS
            change = _solve_roughly(square, A.alpha, self.look_rest[block], self.rng)
        image = A.product(block, change)
        self._add_drift(self.stride * change)
        values, rest = self.look.copy(), self.look_rest - image
        values[block] += change
        # ASkotch, lines 9 to 11: v = beta v + (1 - beta) z - gamma d, z = alpha v + (1 - alpha) w.
        self.ahead = self.decay * self.ahead + (1.0 - self.decay) * self.look
        self.ahead[block] += self.stride * change
        self.ahead_rest = self.decay * self.ahead_rest + (1.0 - self.decay) * self.look_rest
        self.ahead_rest -= self.stride * image
        self.look = self.mix * self.ahead + (1.0 - self.mix) * values
        self.look_rest = self.mix * self.ahead_rest + (1.0 - self.mix) * rest
        self._keep(values, rest)
        self.taken += 1
        if self.taken % max(1, self.sweep_steps // CHECKS) == 0:
            if not self.improved:  # the momentum leads nowhere
                self._rest()
            self.improved = False

    def _keep(self, values: Array, rest: Array) -> None:
        """Keep what has less energy; or a smaller residual where energies differ by rounding."""
        energies = self._energies(values, rest)
        close = np.abs(energies - self.lowest) <= ENERGY_ROUNDING * np.abs(self.lowest)
        smaller = np.linalg.norm(rest, axis=0) < np.linalg.norm(self.best_rest, axis=0)
        better = np.where(close, smaller, energies < self.lowest)
        self.best[:, better], self.best_rest[:, better] = values[:, better], rest[:, better]
        self.lowest[better] = energies[better]
        self.improved = self.improved or bool(better.any())

    def _next_block(self) -> Numbers:
        if not len(self.order):
            self.order = self.rng.permutation(len(self.right))
        block, self.order = np.sort(self.order[: self.size]), self.order[self.size :]
        return block

    def _add_drift(self, change: Array) -> None:
        """Count the rounding of a product; those of different steps are independent."""
        moved = float((np.linalg.norm(change, axis=0) / self.scale).max(initial=0.0))
        self._squares += (self.rounding * moved) ** 2
        self.drift = math.sqrt(self._squares)
