"""The ridge of the full kernel: which preconditioner, which float type, which iterations."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._progress import converging
from kernelsieve._random import keyed_rows, stream
from kernelsieve.diagnostics import KernelSample
from kernelsieve.features import FeatureMap, NystromFeatures
from kernelsieve.features.blocks import KEPT_BYTES, FeatureBlocks
from kernelsieve.kernels import Kernel
from kernelsieve.kernels.matrix import KernelMatrix, product_work
from kernelsieve.linalg.block_descent import StepLimits, block_size
from kernelsieve.linalg.iterative_ridge import (
    landmark_guess,
    solve_exact,
    solve_exact_at_once,
    solve_exact_by_blocks,
)
from kernelsieve.linalg.solvers import Solution
from kernelsieve.models._streamed_kernel import StreamedKernelMatrix
from kernelsieve.models.passes import FeaturePasses
from kernelsieve.sources.base import ArraySource, Block, Source
from kernelsieve.sources.blocks import targets_of

LARGEST_KERNEL_MATRIX = 6000  # rows of an exact solve at once; beyond, conjugate gradients
TRIAL_ROWS = 1000  # whose kernel matrix compares preconditioners
LANDMARKS = 1000  # of the preconditioner that is tried beside the features
# More of them if the condition number on some rows is above this: so many as cost about as much as
# these products with K.
WELL_CONDITIONED, LANDMARK_PRODUCTS = 4.0, 6.0
PIVOT_ROWS = 20_000  # that landmarks are chosen among if not all rows are in memory
# alpha below so many times the rounding of a kernel matrix in float32 needs float64.
SAFE_ALPHA = 8.0
# `product_work` up to which refine="auto" tries the kernel: about a second on one core.
MOST_WORK = 1e10
SOLVE_WORK, ITERATIONS = 6e10, (4, 40)  # of one solve in the learned default
# Products with K in the time that is left; block descent is the better one with fewer. And columns
# of K whose product tells how long they take.
FEWEST_PASSES, TIMED_COLUMNS = 16, 256
FLOAT64_COST = 3.0  # of a product in float64, in products in float32

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
    time_limit : float, optional
        The seconds that a user has set, to tell when they are over.
    """

    tol: float
    max_iter: int
    deadline: float = math.inf
    quiet: bool = False
    time_limit: float | None = None


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
    verbose : int
        1 shows the residual and the expected end.
    """

    kernel: Kernel
    features: FeatureMap
    alpha: float
    fit_intercept: bool
    block_rows: int
    seed: int
    n_jobs: int | None
    verbose: int

    @classmethod
    def of(
        cls, passes: FeaturePasses, n_rows: int, alpha: float, fit_intercept: bool, seed: int
    ) -> FullKernel:
        """That of the kernel of a fitted map, for so many rows."""
        features, size = passes.features, passes.rows_per_block(n_rows)
        options = (alpha, fit_intercept, size, seed, passes.n_jobs, passes.verbose)
        return cls(features.kernel_, features, *options)

    def solve(self, rows: Block, stop: Stop, start: Array | None = None) -> tuple[Solution, Array]:
        """Dual coefficients of the rows, of shape (n, m), and intercepts.

        ``start`` is a guess of the dual coefficients.
        """
        exact = Block(rows.X.astype(np.float64, copy=False), rows.y, rows.weights)
        if self.at_once(len(rows)):
            return solve_exact_at_once(
                self.kernel, exact, self.alpha, self.fit_intercept, self.n_jobs
            )
        coarse = self._coarse(exact.X, exact)
        quick = self._matrix(exact, np.float32 if coarse else np.float64)
        if _too_slow(quick, exact.y.shape[1] + 1, stop.deadline):
            return self._solve_by_blocks(rows, exact, quick, stop, start)
        blocks = self._blocks(self.preconditioner(rows), exact)
        fine = self._matrix(exact, np.float64) if coarse else quick
        return self._by_gradients(fine, quick if coarse else None, blocks, stop, start)

    def solve_streamed(self, rows: Source, stop: Stop) -> tuple[Solution, Array, Array]:
        """Dual coefficients, intercepts and targets of rows that are not in memory.

        Neither the rows nor their features are kept: both are read or computed anew in every pass.
        """
        n = rows.shape[0]
        some = rows[np.sort(keyed_rows(n, min(n, PIVOT_ROWS), self.seed, "pivots"))]
        some = some.astype(np.float64, copy=False)
        targets = targets_of(rows)
        coarse = self._coarse(some, targets)
        exact = StreamedKernelMatrix(self.kernel, rows, np.float64, self.n_jobs)
        quick = StreamedKernelMatrix(self.kernel, rows, np.float32, self.n_jobs)
        evaluate = _InFloat64(self.preconditioner(Block(some), n))
        blocks = FeatureBlocks(evaluate, rows, self.block_rows, self.n_jobs)
        solution, intercepts = self._by_gradients(exact, quick if coarse else None, blocks, stop)
        return solution, intercepts, targets.y

    def _by_gradients(
        self, K: Any, coarse: Any, blocks: FeatureBlocks, stop: Stop, start: Array | None = None
    ) -> tuple[Solution, Array]:
        """Conjugate gradients, with the features of the blocks as preconditioner."""
        with converging("conjugate gradients", stop.tol, stop.deadline, self.verbose) as report:
            return solve_exact(
                K,
                blocks,
                self.alpha,
                self.fit_intercept,
                stop.tol,
                stop.max_iter,
                report,
                coarse=coarse,
                start=start,
                deadline=stop.deadline,
            )

    def _solve_by_blocks(
        self, rows: Block, exact: Block, quick: KernelMatrix, stop: Stop, start: Array | None
    ) -> tuple[Solution, Array]:
        """Block coordinate descent, from the ridge on landmarks if there is no better guess."""
        if start is None:
            landmarks, numbers = self._landmarks_among(rows)
            start = landmark_guess(
                self._blocks(landmarks, exact),
                landmarks.whitening_,
                numbers,
                self.alpha,
                self.fit_intercept,
            )

        def square(numbers: NDArray[np.int64]) -> Array:
            some = exact.X[numbers]
            return self.kernel.between(some, some, self.n_jobs).astype(np.float64, copy=False)

        n = len(rows)
        entry_work = product_work(self.kernel, *exact.X.shape) / (n**2 / 2)
        with converging("block descent", stop.tol, stop.deadline, self.verbose) as report:
            return solve_exact_by_blocks(
                quick,
                square,
                exact,
                self.alpha,
                self.fit_intercept,
                block_size(n, entry_work),
                stream(self.seed, "blocks"),
                StepLimits(stop.tol, stop.max_iter, stop.deadline, report),
                lambda: self._matrix(exact, np.float64),
                start,
            )

    def _matrix(self, rows: Block, dtype: Any) -> KernelMatrix:
        return KernelMatrix(self.kernel, rows.X, dtype=dtype, n_jobs=self.n_jobs)

    def _blocks(self, features: FeatureMap, rows: Block) -> FeatureBlocks:
        source = ArraySource(rows.X, rows.y, rows.weights)
        return FeatureBlocks(features.transform_block, source, self.block_rows, self.n_jobs)

    def _landmarks_among(self, rows: Block) -> tuple[NystromFeatures, NDArray[np.int64]]:
        """The features if they are landmarks among these rows, else random ones; their numbers."""
        features, n = self.features, len(rows)
        if isinstance(features, NystromFeatures) and features.landmark_indices_ is not None:
            numbers = features.landmark_indices_
            if numbers.max() < n and _equal(rows.X[numbers], features.landmarks_):
                return features, numbers
        options: dict[str, Any] = {"random_state": self.seed, "n_jobs": self.n_jobs}
        found = NystromFeatures(min(n, LANDMARKS), kernel=self.kernel, **options).fit(rows.X)
        assert found.landmark_indices_ is not None  # they are rows
        return found, found.landmark_indices_

    def _coarse(self, X: Any, targets: Block) -> bool:
        """Whether K + alpha I keeps its meaning if K is rounded to float32; X are some rows."""
        rounding = float(np.finfo(np.float32).eps) / 2 * math.sqrt(len(targets))
        largest = 1.0 if targets.weights is None else float(np.max(targets.weights))
        bounded = bool((self.kernel.diag(X[:TRIAL_ROWS]) <= 1.0 + 1e-9).all())
        return bounded and self.alpha > SAFE_ALPHA * rounding * largest

    def preconditioner(self, rows: Block, n_rows: int | None = None) -> FeatureMap:
        """The features, or landmarks of the same kernel if those leave fewer iterations.

        ``n_rows`` is the number of all rows if these are some of them.
        """
        features, n = self.features, len(rows)
        if _are_pivots(features):
            return features
        landmarks = pivots(self.kernel, n, self.seed, self.n_jobs).fit(rows.X)
        some = rows.X[np.sort(keyed_rows(n, min(n, TRIAL_ROWS), self.seed, "preconditioner"))]
        sample = KernelSample(self.kernel, some, self.alpha, n_rows or n, self.n_jobs)
        left = {_condition(sample, map_): map_ for map_ in (features, landmarks)}
        most = self._most_landmarks(*rows.X.shape)
        if min(left) > WELL_CONDITIONED and most > LANDMARKS:
            more = pivots(self.kernel, n, self.seed, self.n_jobs, most).fit(rows.X)
            left[_condition(sample, more)] = more
        return left[min(left)]

    def _most_landmarks(self, n_rows: int, n_columns: int) -> int:
        """Landmarks whose features cost what some products with K do, and can be kept."""
        work = LANDMARK_PRODUCTS * product_work(self.kernel, n_rows, n_columns)
        return int(min(math.sqrt(work / n_rows), KEPT_BYTES / (8 * n_rows)))

    def at_once(self, n_rows: int) -> bool:
        """Whether one Cholesky factor of the kernel matrix solves it."""
        return n_rows <= LARGEST_KERNEL_MATRIX

    def affordable(self, n_rows: int, n_columns: int) -> bool:
        """Whether some tens of iterations take seconds rather than minutes."""
        return product_work(self.kernel, n_rows, n_columns) <= MOST_WORK

    def most_iterations(self, rows: Block) -> int:
        """How many iterations the learned default may take in each solve."""
        work = product_work(self.kernel, *rows.X.shape)
        slow = 1.0 if self._coarse(rows.X, rows) else FLOAT64_COST
        return int(np.clip(SOLVE_WORK / (slow * work), *ITERATIONS))


@dataclass(frozen=True)
class _InFloat64:
    """The features of blocks in float64, wherever the blocks are."""

    features: FeatureMap

    def __call__(self, X: Any) -> Any:
        return self.features.transform_block(X.astype(np.float64, copy=False))


def narrowed(dual: Array, targets: Array, tol: float) -> NDArray[Any]:
    """Dual coefficients in float32 if they and kernel values may be rounded to it.

    Roundings are independent, so those of a prediction add up to about the rounding of 1 times the
    length of the coefficients. A tenth of tol is allowed, in deviations of the target.
    """
    rounding = float(np.finfo(np.float32).eps) * np.linalg.norm(dual, axis=0)
    harmless = (rounding <= 0.1 * tol * targets.std(axis=0)).all()
    return dual.astype(np.float32) if harmless and len(dual) > LARGEST_KERNEL_MATRIX else dual


def pivots(
    kernel: Kernel, n_rows: int, seed: int, n_jobs: int | None, most: int | None = None
) -> NystromFeatures:
    """Landmarks by pivoted Cholesky, not fitted yet: the best preconditioner that is known here."""
    return NystromFeatures(
        min(n_rows, most or LANDMARKS),
        kernel=kernel,
        landmarks="rpcholesky",
        random_state=seed,
        n_jobs=n_jobs,
    )


def _too_slow(K: KernelMatrix, n_vectors: int, deadline: float) -> bool:
    """Whether conjugate gradients would see too few products with K before a deadline."""
    if not math.isfinite(deadline):
        return False
    n = K.shape[0]
    size = min(n, TIMED_COLUMNS)
    some, V = K.columns(np.arange(size)), np.ones((size, n_vectors))
    times = []
    for _ in range(2):  # the first one may compile
        began = time.monotonic()
        some @ V
        times.append(time.monotonic() - began)
    # A product with all of K computes each pair of rows once.
    return FEWEST_PASSES * min(times) * n / size / 2 > deadline - time.monotonic()


def _equal(some: Any, others: Any) -> bool:
    """Whether rows, dense or sparse, are the same."""
    different = some != others
    return different.nnz == 0 if sp.issparse(different) else not bool(np.any(different))


def _are_pivots(features: FeatureMap) -> bool:
    return isinstance(features, NystromFeatures) and _is_text(features.landmarks, "rpcholesky")


def _is_text(value: Any, text: str) -> bool:
    return isinstance(value, str) and value == text


def _condition(sample: KernelSample, features: FeatureMap) -> float:
    """The condition number that features leave as a preconditioner, on a sample."""
    sides = sample.sides(features.transform_block(sample.rows))
    return (1.0 + max(sides.lower, 0.0)) / max(1.0 - sides.upper, 1e-12)
