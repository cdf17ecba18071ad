"""The ridge on features: normal equations, their rounding, the systems, and what rows leave."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from kernelsieve._parallel import one_thread
from kernelsieve._progress import converging
from kernelsieve._random import root_seed, stream
from kernelsieve._validation import check_choice
from kernelsieve.kernels import Kernel
from kernelsieve.linalg.iterative_ridge import solve_by_gradients
from kernelsieve.linalg.normal_equations import (
    NormalEquations,
    RidgeSolution,
    solve_dual_ridge,
    solve_ridge,
)
from kernelsieve.linalg.operators import dense
from kernelsieve.linalg.posterior import Posterior
from kernelsieve.linalg.rounding import Float32Rounding, corrected, residual_sums
from kernelsieve.linalg.solvers import Solution
from kernelsieve.models.full_kernel import Stop
from kernelsieve.models.passes import FeaturePasses, check_gram, finite, times
from kernelsieve.sources.base import ArraySource, Block, Source
from kernelsieve.sources.summaries import squared_norms

LARGEST_CHOLESKY = 8192  # features; beyond, conjugate gradients
HIGHEST_CHOLESKY = 16_384  # on request: LAPACK crashed at 20,000
LARGEST_DUAL = 2**27  # entries of Z that are held when there are fewer rows than features
# Error of predictions, in deviations of the target, that float32 products of blocks may cause; and
# the largest bound on it at which it is worth trying them.
FLOAT32_ERROR, FLOAT32_BOUND = 1e-4, 3e-3
ROUNDING_ROWS = 512  # on which the error is estimated

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Ridge:
    """What is asked of a ridge.

    Attributes
    ----------
    alpha : float
    fit_intercept : bool
    solver : str
        "auto", "cholesky" or "cg".
    stop : Stop
        When conjugate gradients end.
    random_state : int, RandomState, Generator or None
        Of their preconditioner.
    """

    alpha: float
    fit_intercept: bool
    solver: str
    stop: Stop
    random_state: Any


@dataclass(frozen=True)
class Solved:
    """The ridge on features.

    Attributes
    ----------
    solver : str
        "cholesky", "dual" or "cg".
    coefficients : ndarray of shape (s, m)
    intercepts : ndarray of shape (m,)
    posterior : Posterior or None
        Of the normal equations; the other solvers form none.
    iterations : int
    """

    solver: str
    coefficients: Array
    intercepts: Array
    posterior: Posterior | None = None
    iterations: int = 1


@dataclass(frozen=True)
class FeatureRidge:
    """The fitted ridge on features, to predict with.

    Attributes
    ----------
    passes : FeaturePasses
        Over the features.
    coefficients : ndarray of shape (s,) or (s, m)
    intercept : float or ndarray of shape (m,)
    posterior : Posterior or None
    """

    passes: FeaturePasses
    coefficients: Array
    intercept: Any
    posterior: Posterior | None

    @property
    def kernel(self) -> Kernel:
        """The kernel of the features."""
        return self.passes.features.kernel_


def solve(passes: FeaturePasses, rows: Source, ridge: Ridge) -> Solved:
    """The ridge on the features of all rows, whose targets have shape (n, m)."""
    solver = choose_solver(ridge.solver, passes.features.n_components_, rows.shape[0])
    if solver == "cg":
        return _by_gradients(passes, rows, ridge)
    if solver == "cholesky":
        return of_equations(_solve_directly(passes, rows, ridge))
    Z = np.concatenate(passes.map(lambda Z, _: dense(Z), rows))
    whole = rows.take(np.arange(rows.shape[0]))
    return Solved(
        solver, *solve_dual_ridge(Z, whole.y, whole.weights, ridge.alpha, ridge.fit_intercept)
    )


def of_equations(solution: RidgeSolution) -> Solved:
    """The solution of normal equations."""
    return Solved("cholesky", solution.coefficients, solution.intercepts, solution.posterior)


def choose_solver(solver: str, n_features: int, n_rows: int) -> str:
    """The solver that "auto" stands for, or the one that is given."""
    check_choice(solver, "solver", ("auto", "cholesky", "cg"))
    if solver == "cholesky" and n_features > HIGHEST_CHOLESKY:
        raise ValueError(
            f"{n_features:,} features are too many for the Cholesky factor that solver='cholesky' "
            f"and KernelRidgeClassifier need (at most {HIGHEST_CHOLESKY:,}): lower "
            "n_components, or use solver='cg' or KernelSVC"
        )
    if solver != "auto":
        return solver
    few_rows = n_features > n_rows and n_features * n_rows <= LARGEST_DUAL
    if few_rows and n_features > LARGEST_CHOLESKY // 2:
        return "dual"
    return "cholesky" if n_features <= LARGEST_CHOLESKY else "cg"


def accumulate(
    passes: FeaturePasses, rows: Source, single: bool = False, raw: bool = True
) -> NormalEquations:
    """The normal equations of the targets on the features, from a few blocks at a time.

    ``single`` multiplies blocks in float32; ``raw`` may mix the sums instead of every row.
    """
    size = passes.features.n_components_
    check_gram(size, passes.n_jobs, "use KernelRidge(solver='cg'), or ")
    mixing = passes.mixing(rows.dtype) if raw else None
    total: NormalEquations = passes.reduce(
        lambda Z, block: NormalEquations.of_block(Z, block.y, block.weights, single),
        rows,
        raw=mixing is not None,
    )
    return total if mixing is None else total.mixed(mixing)


def _solve_directly(passes: FeaturePasses, rows: Source, ridge: Ridge) -> RidgeSolution:
    """Solve the normal equations, from float32 products where their rounding is harmless."""
    rounding = _rounding(passes, rows)
    single = rounding is not None and rounding.bound(ridge.alpha) <= FLOAT32_BOUND
    equations = accumulate(passes, rows, single)
    solution = _stable(equations, passes, rows, ridge)
    if single and rounding is not None:
        allowed = FLOAT32_ERROR * equations.target_deviations()
        if (rounding.error(solution) > allowed).any():
            # The rounding is undone in another pass, far cheaper than the first.
            sums = passes.reduce(
                lambda Z, block: residual_sums(Z, block.y, block.weights, solution), rows
            )
            return corrected(solution, sums, ridge.alpha)
    return solution


def _stable(
    equations: NormalEquations, passes: FeaturePasses, rows: Source, ridge: Ridge
) -> RidgeSolution:
    """Solve; again from features in place of their raw values if rounding asked for a shift.

    Mixing the products of raw values is quick, but where the kernel is almost constant it
    magnifies their rounding beyond a small alpha.
    """
    mixed = passes.mixing(rows.dtype) is not None
    try:
        solution = solve_ridge(equations, ridge.alpha, ridge.fit_intercept)
        if not mixed or solution.posterior.shift <= 2.0 * ridge.alpha:
            return solution
    except LinAlgError:
        if not mixed:
            raise
    return solve_ridge(accumulate(passes, rows, raw=False), ridge.alpha, ridge.fit_intercept)


def _rounding(passes: FeaturePasses, rows: Source) -> Float32Rounding | None:
    """None where products are in float64 anyway."""
    if rows.dtype != np.float32 or passes.mixing(rows.dtype) is not None:
        return None
    block, n = rows.head(ROUNDING_ROWS), rows.shape[0]
    Z = passes.features.transform_block(block.X)
    return Float32Rounding(Z, block.weights, n, passes.rows_per_block(n))


def _by_gradients(passes: FeaturePasses, rows: Source, ridge: Ridge) -> Solved:
    rng, stop = stream(root_seed(ridge.random_state), "preconditioner"), ridge.stop
    blocks = passes.kept(rows)
    with converging("conjugate gradients", stop.tol, stop.deadline, passes.verbose) as report:
        options = (ridge.fit_intercept, stop.tol, stop.max_iter, rng, report)
        solution, intercepts = solve_by_gradients(blocks, ridge.alpha, *options)
    warn_if_unsolved(solution, stop)
    return Solved("cg", solution.values, intercepts, None, solution.iterations)


def warn_if_unsolved(solution: Solution, stop: Stop) -> None:
    """Warn if iterations did not converge."""
    if solution.residual <= stop.tol or stop.quiet:
        return
    what = "raise max_iter, alpha or the number of features"
    if time.monotonic() > stop.deadline:
        what = f"raise time_limit={stop.time_limit:g} or alpha"
    warnings.warn(
        f"the solver stopped after {solution.iterations} iterations at a residual "
        f"of {solution.residual:.2g}, above tol={stop.tol:g}: {what}",
        ConvergenceWarning,
        stacklevel=5,
    )


# --- what a fitted ridge says of rows ------------------------------------------------------------


def predicted(ridge: FeatureRidge, X: Any) -> NDArray[Any]:
    """Predictions of valid rows, of shape (n,) or (n, m), in the float type of X."""
    passes, coefficients = ridge.passes, ridge.coefficients
    mixing = passes.mixing(X.dtype)
    if mixing is None:
        parts = passes.map(lambda Z, _: times(Z, coefficients), X)
    else:  # large coefficients that cancel: in float64
        with one_thread():  # for the same bits with any threads of BLAS
            fused = mixing.astype(np.float64) @ coefficients
        parts = passes.map(lambda C, _: C @ fused, X, raw=True)
    return with_intercept(parts, ridge.intercept, X.dtype)


def with_intercept(parts: list[NDArray[Any]], intercept: Any, dtype: Any) -> NDArray[Any]:
    """The predictions of blocks, one after another, plus the intercept."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.concatenate(parts).astype(dtype, copy=False)
        mean = mean + np.asarray(intercept, dtype=dtype)
    return finite(mean, "the predictions")


def left_out_residuals(ridge: FeatureRidge, rows: Block, repetitions: Any = None) -> Array:
    """Leave-one-out residuals at some of the rows that a ridge was fitted to.

    ``repetitions`` are the parts of the weights that repeat a row: one of the repetitions is
    left out, with the rest of its weight.
    """
    posterior = ridge.posterior
    if posterior is None:
        raise ValueError("leave-one-out residuals need a Cholesky factor: use solver='cholesky'")
    leverages = np.concatenate(ridge.passes.map(lambda Z, _: posterior.leverages(Z), rows.X))
    weights = rows.weights_or_ones
    repeated = 1.0 if repetitions is None else np.maximum(repetitions, 1.0)
    left = np.maximum(1.0 - weights / repeated * leverages, 1e-6)
    residuals = np.asarray(rows.y, dtype=np.float64).reshape(len(left), -1)
    residuals = residuals - predicted(ridge, ArraySource(rows.X)).reshape(residuals.shape)
    return residuals / left[:, None]


def deviations(ridge: FeatureRidge, X: Any, noise: Any, process: Any = None) -> NDArray[Any]:
    """Standard deviations of new observations at rows, of shape (n,) or (n, m).

    Parameters
    ----------
    ridge : FeatureRidge
        With a posterior.
    X : {ndarray, CSR} or Source
    noise : float or ndarray of shape (m,)
        The variance of an observation.
    process : ndarray of shape (n,) or (n, m), optional
        Variances of the local process that corrects predictions.
    """
    if np.isnan(noise).any():
        raise ValueError(
            "the noise is unknown, because the model was fitted to a single row: "
            "return_std needs at least two"
        )
    kernel, posterior = ridge.kernel, ridge.posterior
    assert posterior is not None  # the noise comes from it
    relative = ridge.passes.map(
        lambda Z, block: posterior.relative_variances(Z, unseen_part(kernel, block.X, Z)), X
    )
    with np.errstate(over="ignore"):
        spread = np.multiply.outer(np.concatenate(relative), noise)
        if process is not None:
            # Far from all rows what the features do not know is more than their residuals.
            spread = np.maximum(process, spread - noise)
        return finite(np.sqrt(spread).astype(X.dtype), "the deviations")


def unseen_part(kernel: Kernel, X: Any, Z: Any) -> Array:
    """k(x, x) - |z(x)|^2: the part of the kernel that a map leaves out; at least 0."""
    return np.maximum(0.0, kernel.diag(X).astype(np.float64) - squared_norms(Z))


def shaped(by_output: NDArray[Any], single: bool) -> Any:
    """Values by output (the last axis), in the shape of a single target where it was one."""
    if not single:
        return by_output
    return float(by_output[0]) if by_output.ndim == 1 else by_output[:, 0]
