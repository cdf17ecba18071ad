"""Variances of the parts of an Anova kernel, by marginal likelihood.

With C_S the kernel matrix of subset S on n rows and D the inverse weights of the rows, the target
is a Gaussian process with covariance O = sum_S v_S C_S + noise D. For a = O^-1 y the step

    v_S <- v_S sqrt(a^T C_S a / tr(O^-1 C_S)),    noise <- noise sqrt(a^T D a / tr(O^-1 D))

minorises the likelihood and maximises what it minorised with, so that the likelihood never falls
(Zhou, Hu, Zhou, Lange 2019, "MM algorithms for variance components models"). Longer steps are tried
first, and kept where the likelihood rises. The parts have mean 0 and leave a constant to an
intercept without a prior: the likelihood is the restricted one, with O^-1 without constants.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native.subsets import add_pulls, add_subsets
from kernelsieve._parallel import map_row_blocks, one_thread_in_blas, ordered_row_blocks
from kernelsieve.kernels.anova import Anova
from kernelsieve.kernels.anova_tiles import AnovaTiles
from kernelsieve.kernels.likelihood.objective import without_constants
from kernelsieve.linalg.cholesky import inverse_of

Array = NDArray[np.float64]

BLOCK_ROWS = 128
KEPT_BYTES = 2**27  # factors of all columns are kept from step to step if they are no larger
SAFE, LONGEST, LONGER = 0.5, 2.0, 1.5  # exponents of steps: the monotone one, the largest, growth
LOWEST = 1e-12  # of the target's variance: what a variance or the noise does not fall below
# Where a search begins: the share of the noise, and of a subset of two columns beside one of one.
FIRST_NOISE, FIRST_PAIR = 0.2, 0.1


@dataclass(frozen=True)
class Components:
    """The end of one search.

    Attributes
    ----------
    variances : ndarray of shape (n_subsets,)
        In the order of the kernel's subsets, for a target of mean square 1.
    noise : float
    evidence : tuple of float
        The log likelihood after each step, per row and output, without its constant.
    left_out : float
        The root mean square of the leave-one-out residuals at the end, with the rows' weights.
    """

    variances: Array
    noise: float
    evidence: tuple[float, ...]
    left_out: float

    @property
    def alpha(self) -> float:
        """The ridge that goes with variances that sum to 1."""
        return self.noise / max(float(self.variances.sum()), LOWEST)

    def kernel(self, kernel: Anova, smallest: float) -> Anova:
        """The kernel with these variances as shares, without those below the smallest share."""
        shares = self.variances / max(float(self.variances.sum()), LOWEST)
        shares = np.where(shares >= min(smallest, shares.max()), shares, 0.0)
        return kernel.with_variances(shares / shares.sum())


@dataclass(frozen=True)
class _State:
    """Logarithms of the variances and the noise, the likelihood there, and the step from there."""

    at: Array
    evidence: float
    step: Array
    left_out: float


class VarianceComponents:
    """The rows that variances are learned from.

    Parameters
    ----------
    kernel : Anova
        Whose subsets are tried.
    X : ndarray of shape (n, d)
    target : ndarray of shape (n, m)
        Centred, with mean square 1.
    noise : ndarray of shape (n,)
        D: 1 over the weights.
    n_jobs : int or None
        The result is the same for any number of threads.
    """

    def __init__(
        self, kernel: Anova, X: Array, target: Array, noise: Array, n_jobs: int | None = None
    ) -> None:
        self.kernel, self.target, self.noise, self.n_jobs = kernel, target, noise, n_jobs
        self.tiles = AnovaTiles.of(kernel, X, X)
        self.tree = kernel.tree
        half = len(target) * (len(target) + BLOCK_ROWS) // 2  # of the pairs of rows, and a little
        self.keeps = 8 * len(self.tree.used) * half <= KEPT_BYTES
        self.kept: dict[tuple[int, int], Array] = {}
        numbers = {subset: n for n, subset in enumerate(kernel.subsets)}
        self.order = np.array([numbers[s] for s in sorted(kernel.subsets)], dtype=np.int64)

    def search(
        self,
        max_iter: int,
        start: Components | None = None,
        *,
        worth: float = 1e-4,
        deadline: float = math.inf,
        together: bool = False,
    ) -> Components:
        """Raise the likelihood until a step gains less than ``worth`` per row.

        ``start`` is another search with the same subsets, on fewer rows for instance. ``together``
        keeps the proportions of the variances of subsets of the same size.
        """
        with one_thread_in_blas():
            now = self._at(self._first() if start is None else self._of(start), together)
            trace, exponent = [now.evidence], 2.0 * SAFE
            for _ in range(max_iter):
                if time.monotonic() > deadline:
                    break
                new = self._at(now.at + exponent * now.step, together)
                if new.evidence < now.evidence and exponent > SAFE:
                    exponent = SAFE
                    new = self._at(now.at + exponent * now.step, together)
                else:
                    exponent = min(LONGER * exponent, LONGEST)
                if new.evidence < now.evidence:  # rounding: there is nothing left to gain
                    break
                gain, now = new.evidence - now.evidence, new
                trace.append(now.evidence)
                if gain < worth:
                    break
        values = np.exp(now.at)
        return Components(values[:-1], float(values[-1]), tuple(trace), now.left_out)

    def _first(self) -> Array:
        sizes = np.array([FIRST_PAIR ** (len(s) - 1) for s in self.kernel.subsets])
        return np.log(np.append((1.0 - FIRST_NOISE) * sizes / sizes.sum(), FIRST_NOISE))

    def _of(self, start: Components) -> Array:
        return np.log(np.maximum(np.append(start.variances, start.noise), LOWEST))

    def _at(self, logarithms: Array, together: bool = False) -> _State:
        """The likelihood at some variances, and the logarithms of the monotone step squared."""
        at = np.clip(logarithms, math.log(LOWEST), -math.log(LOWEST))
        values, (n, m) = np.exp(at), self.target.shape
        covariance = self._covariance(values[:-1])
        covariance.flat[:: n + 1] += values[-1] * self.noise
        log_determinant, inverse = inverse_of(covariance)
        log_determinant += math.log(inverse.sum())
        inverse = without_constants(inverse)
        dual = inverse @ self.target
        fit = float(np.vdot(dual, self.target))
        traces, squares = self._pulls(inverse, dual)
        if together:
            traces, squares = (self._of_sizes(values[:-1] * each) for each in (traces, squares))
        diagonal = np.diag(inverse)
        traces = np.append(traces, diagonal @ self.noise)
        squares = np.append(squares, self.noise @ (dual**2).sum(axis=1))
        tiny = np.finfo(np.float64).tiny
        step = np.log(np.maximum(squares, tiny)) - np.log(np.maximum(m * traces, tiny))
        # A single row has nothing but its own mean.
        left_out = dual / np.where(diagonal > 0.0, diagonal, 1.0)[:, None]
        residuals = np.mean(left_out**2, axis=1)
        return _State(
            at,
            -0.5 * (log_determinant / n + fit / (n * m)),
            np.clip(step, -10.0, 10.0),
            math.sqrt(float(np.average(residuals, weights=1.0 / self.noise))),
        )

    def _covariance(self, variances: Array) -> Array:
        n = len(self.target)
        weights = np.zeros(len(self.tree.nodes))
        weights[self.tree.places] = variances[self.order]
        out = np.zeros((n, n))

        def fill(rows: slice) -> None:
            for some, columns, factors in self._factors(rows):
                tile = np.zeros(factors.shape[1:])
                add_subsets(factors, self.tree.depths, self.tree.columns, weights, tile)
                out[some, columns] = tile
                out[columns, some] = tile.T

        map_row_blocks(fill, n, BLOCK_ROWS, self.n_jobs)
        return out

    def _of_sizes(self, each: Array) -> Array:
        """For each subset the sum over all subsets of its size."""
        sizes = np.array([len(subset) for subset in self.kernel.subsets])
        return np.bincount(sizes, each)[sizes]

    def _factors(self, rows: slice) -> Iterator[tuple[slice, slice, Array]]:
        """Tiles of the factors of all columns, from the diagonal block of some rows on."""
        for some, columns in self.tiles.parts(rows, slice(rows.start, len(self.target))):
            place = some.start, columns.start
            factors = self.kept.get(place)
            if factors is None:
                factors = self.tiles.factors(some, columns)
                if self.keeps:
                    self.kept[place] = factors
            yield some, columns, factors

    def _pulls(self, inverse: Array, dual: Array) -> tuple[Array, Array]:
        """tr(O^-1 C_S) and the sum over outputs of a^T C_S a, for all subsets."""
        n = len(self.target)

        def block(rows: slice) -> Array:
            sums = np.zeros((2, len(self.tree.nodes)))
            for some, columns, factors in self._factors(rows):
                # A pair of rows right of the diagonal block is as good as its mirror below.
                count = np.where(np.arange(columns.start, columns.stop) < rows.stop, 1.0, 2.0)
                first = count * inverse[some, columns]
                second = (dual[some] @ dual[columns].T) * count
                add_pulls(factors, self.tree.depths, self.tree.columns, first, second, sums)
            return sums

        total = np.zeros((2, len(self.tree.nodes)))
        for sums in ordered_row_blocks(block, n, BLOCK_ROWS, self.n_jobs):
            total += sums
        found = np.empty((2, len(self.order)))
        found[:, self.order] = total[:, self.tree.places]
        return found[0], found[1]
