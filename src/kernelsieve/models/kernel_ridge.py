"""Kernel ridge regression on explicit features."""

from __future__ import annotations

import copy
import math
import numbers
import time
import warnings
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.linalg import LinAlgError
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from kernelsieve._parallel import one_thread
from kernelsieve._progress import converging
from kernelsieve._random import keyed_rows, root_seed, stream
from kernelsieve._state import (
    FLOAT64,
    FLOATS,
    AbsentOr,
    Rule,
    Sizes,
    array,
    array_or,
    choice,
    instance,
    is_fitted,
    number,
    optional,
    row_matrix,
    switch,
    whole,
    wrong,
)
from kernelsieve._validation import (
    check_choice,
    check_count,
    check_memory,
    check_points,
    check_positive,
)
from kernelsieve.diagnostics import KernelSample, Risk, krr_risk_bound
from kernelsieve.features import FeatureMap
from kernelsieve.features.blocks import FeatureBlocks
from kernelsieve.kernels import Kernel, Product
from kernelsieve.kernels.matrix import KernelMatrix
from kernelsieve.learning.neighbour_search import (
    CorrectionTrial,
    choose_correction,
    correction_with,
)
from kernelsieve.learning.neighbours import LocalCorrection
from kernelsieve.learning.plan import Correction
from kernelsieve.learning.solver import pays
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
from kernelsieve.models._base import (
    LARGEST_BLOCK,
    FeatureModel,
    columns_of,
    finite,
    is_learned,
    mixing_of,
    times,
    without_targets,
)
from kernelsieve.models._refinement import (
    AUTO_SHARE,
    JUDGES,
    LARGEST_KERNEL_MATRIX,
    LOCAL_WORTH,
    FullKernel,
    Stop,
    judge_tol,
    mean_square,
    narrowed,
    trials,
)
from kernelsieve.models.drift import Drift, outside_range
from kernelsieve.models.predictor import Predictor, ridge_scores
from kernelsieve.models.scores import Regressor
from kernelsieve.sources.base import ArraySource, Block, Source
from kernelsieve.sources.blocks import joined
from kernelsieve.sources.given import as_source, lazy_on_dask
from kernelsieve.sources.marginals import Marginals, sampled_rows
from kernelsieve.sources.summaries import squared_norms

LARGEST_CHOLESKY = 8192  # features; beyond, conjugate gradients
HIGHEST_CHOLESKY = 16_384  # on request: LAPACK crashed at 20,000
LARGEST_DUAL = 2**27  # entries of Z that are held when there are fewer rows than features
RISK_ROWS = 2000
# Error of predictions, in deviations of the target, that float32 products of blocks may cause; and
# the largest bound on it at which it is worth trying them.
FLOAT32_ERROR, FLOAT32_BOUND = 1e-4, 3e-3
ROUNDING_ROWS = 512  # on which the error is estimated
LEVERAGE_WORK = 5e11  # multiplications up to which all rows get leave-one-out residuals
LOCAL_ROWS = 1024  # corrected at a time
FITTED_ROWS = 65_536  # of a refined model that a prediction converts to float64 at a time


def by_output(size: str, dtype: tuple[type[np.generic], ...] = FLOAT64) -> Rule:
    """Coefficients of one output, or a column for each of several."""
    one, several = array(size, dtype=dtype), array(size, "outputs", dtype=dtype)

    def rule(value: Any, where: str, sizes: Sizes) -> Any:
        return (several if np.ndim(value) == 2 else one)(value, where, sizes)

    return rule


def refinement(value: Any, where: str, sizes: Sizes) -> Any:
    """The rule of ``refine``: a switch, "auto" or "local"."""
    named = choice("auto", "local") if isinstance(value, str) else switch
    return named(value, where, sizes)


class KernelRidge(Regressor, FeatureModel):
    """Ridge regression on the features of a kernel, streamed over blocks of rows.

    Parameters
    ----------
    features : FeatureMap, default AdaptiveFeatures()
        The map that stands for the kernel.
    alpha : float, default 1.0
        Added to the diagonal of the kernel matrix, as in scikit-learn's ``KernelRidge``: the
        paper's lambda. A map with ``alpha=None`` takes this one.
    fit_intercept : bool, default True
        Whether to fit an intercept, which is not penalised.
    solver : "auto", "cholesky" or "cg"
        "cholesky" solves the normal equations; "cg" runs conjugate gradients, which never form
        them. "auto" switches to "cg" above 8,192 features, and solves an n x n system where there
        are fewer rows than features.
    refine : bool, "auto" or "local", default False
        Solve the *exact* kernel ridge regression. Up to 6,000 rows by one Cholesky factor; beyond,
        by conjugate gradients on products with the kernel matrix that never store it. The features,
        or pivoted-Cholesky landmarks if those do better, are the preconditioner, and are chosen
        without y. "auto" does it up to 6,000 rows, and for more rows where an iteration takes a
        second or less and the error on rows set apart falls by 1 % or more; it stops at a residual
        of 1e-3 or less. Every prediction then takes n kernel values. "local" keeps the features and
        corrects their predictions by kriging from the 32 nearest rows; "auto" tries that, too,
        for more than 6,000 dense rows, and takes it where the error falls by 2 % or more.
    tol : float, default 1e-6
        Relative residual at which conjugate gradients stop.
    max_iter : int, default 500
        Maximum number of iterations of conjugate gradients.
    time_limit : float, optional
        Seconds after which ``refine`` begins no iteration; ``residual_`` says how far it came. If
        fewer than 16 products with the kernel matrix fit into it, block coordinate descent takes
        the place of conjugate gradients.
    block_rows : int, default None
        Rows whose features each thread holds at a time; None takes up to 4096.
    random_state : int, RandomState, Generator or None
        For the preconditioner of solver="cg", and the rows that ``refine`` is judged on; the map
        has its own.
    n_jobs : int, default all cores
        Number of threads.
    verbose : int, default 0
        1 shows progress: rows, or the residual of iterations, and the expected end.

    Attributes
    ----------
    features_ : FeatureMap
        The fitted map.
    coef_ : ndarray of shape (n_components,) or (n_components, n_outputs)
        Coefficients of the features.
    intercept_ : float or ndarray of shape (n_outputs,)
        Added to the features times the coefficients.
    solver_ : str
        "cholesky", "dual" (an n x n system) or "cg".
    n_iter_ : int
        Iterations of conjugate gradients, or sweeps of block coordinate descent; 1 for a direct
        solver.
    noise_variance_ : float or ndarray of shape (n_outputs,)
        Estimated variance of an observation around the regression function.
    dual_coef_ : ndarray of shape (n,) or (n, n_outputs)
        After a fit with ``refine=True``: the exact solution, coefficients of k(x, row). In float32
        after conjugate gradients if that changes predictions by less than a tenth of ``tol``, in
        deviations of the target; predictions then take half the time.
    X_fit_ : {ndarray, CSR} of shape (n, d)
        After a fit with ``refine=True``: the rows that ``dual_coef_`` belongs to. Those of a
        ``NpySource`` stay in its file, which must not change while the model is used.
    residual_ : float
        After a fit with ``refine=True``: the largest relative residual of the linear systems; 0 for
        a direct solver.
    local_ : LocalCorrection
        After a fit with ``refine="local"``: what is added to the predictions of the features.
    marginals_ : Marginals or None
        The distribution of each column, of at most 10,000 rows, for ``kernelsieve.explain``. None
        with more than 4,096 columns.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if X had names.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.preprocessing import scale
    >>> from kernelsieve import AdaptiveFeatures, KernelRidge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = KernelRidge(AdaptiveFeatures(100, gamma=0.01, random_state=0), alpha=0.1)
    >>> bool(model.fit(scale(X), y).score(scale(X), y) > 0.5)
    True
    """

    _equations: NormalEquations | None = None  # kept for more rows by partial_fit only
    _posterior: Posterior | None = None

    _state_parameters: ClassVar = {"refine": refinement}
    _state_fields: ClassVar = {
        "coef_": by_output("s"),
        "intercept_": array_or(array("outputs"), number(-1.7e308, 1.7e308)),
        "solver_": choice("cholesky", "dual", "cg"),
        "n_iter_": whole(),
        "X_fit_": AbsentOr(row_matrix("n", "d")),
        "dual_coef_": AbsentOr(by_output("n", FLOATS)),
        "residual_": AbsentOr(number(0.0)),
        "local_": AbsentOr(instance(LocalCorrection)),
        "marginals_": optional(instance(Marginals, d="n_columns")),
        "_posterior": optional(instance(Posterior)),
        "_equations": optional(instance(NormalEquations)),
    }
    _not_stored: ClassVar = {"_single_output": "computed"}

    def _complete(self) -> None:
        dual, ndim = getattr(self, "dual_coef_", None), self.coef_.ndim
        if (dual is None) == hasattr(self, "X_fit_"):
            wrong("dual_coef_", "and X_fit_ must be given together")
        if dual is not None:
            self.features_.check_stored_rows(self.X_fit_, "X_fit_")
        if np.ndim(self.intercept_) + 1 != ndim or (dual is not None and dual.ndim != ndim):
            wrong("coef_", "has another number of outputs than the other coefficients")
        local = getattr(self, "local_", None)
        if local is not None:
            self._check_local(local, dual is not None)
        self._single_output = ndim == 1
        shape = self.coef_.shape if ndim == 2 else (len(self.coef_), 1)
        for name, part in (("_posterior", self._posterior), ("_equations", self._equations)):
            if part is not None and part.shape != shape:
                wrong(name, f"is for (features, outputs) = {part.shape} instead of {shape}")

    def _check_local(self, local: LocalCorrection, exact: bool) -> None:
        """Refuse a correction of a file that predictions could not use."""
        if exact:
            wrong("local_", "and dual_coef_ exclude each other")
        local.check_columns(self.features_.kernel_, self.n_features_in_)
        if local.values.shape[1] != (1 if self.coef_.ndim == 1 else self.coef_.shape[1]):
            wrong("local_", "has another number of outputs than coef_")

    def __init__(
        self,
        features: FeatureMap | None = None,
        *,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        solver: str = "auto",
        refine: bool | str = False,
        tol: float = 1e-6,
        max_iter: int = 500,
        time_limit: float | None = None,
        block_rows: int | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.features = features
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.refine = refine
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.block_rows = block_rows
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the map and the ridge.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d), or Source
        y : array-like of shape (n,) or (n, n_outputs), optional
            Targets; None takes those of a source.
        sample_weight : array-like of shape (n,), optional
            Multiplies the squared errors. The map does not see it.

        Returns
        -------
        self
        """
        began = time.monotonic()
        given = self._numeric(X, y, sample_weight)
        self.fit_features(given)
        alpha, refine, rows = self._checked_alpha(), self.refine, self._with_columns(given)
        if refine == "auto":
            self._refine_if_it_pays(rows, alpha, began)
        elif refine == "local":
            apart = self._judges(rows.shape[0])
            everybody = np.ones(len(apart), dtype=bool)
            trial = self.try_correction(rows, apart, everybody)
            assert trial is not None  # there is no limit to its time
            self.local_ = trial.correction
        elif refine:
            self.refine_from(rows, alpha, self._stop(began))
        return self

    def fit_features(self, given: Source, new: bool = False) -> Self:
        """Fit the map and the ridge on its features; what ``refine`` asks for is left to do.

        Rows that are ``new`` to the model tell it the number of their columns.
        """
        given = self._numeric(given, None) if new else given
        alpha = self._checked_alpha()
        refine = check_choice(self.refine, "refine", (True, False, "auto", "local"))
        rows = self._with_columns(given)
        self._forget()
        if refine is True:
            check_room(rows)
        # A preconditioner is chosen for the kernel alone: features for the target would be wasted.
        blind = refine is True and not is_learned(self._fresh_features().kernel)
        seen = without_targets(rows) if blind else rows
        self._fit_features(seen, alpha=alpha)
        shown = sampled_rows(rows)
        rows.expect(shown)  # after the map took its own rows: the next pass collects these
        self.solver_ = self._choose_solver(rows.shape[0])
        if self.solver_ == "cholesky":
            self._solve_directly(rows, alpha)
        elif self.solver_ == "dual":
            Z = np.concatenate(self._map_blocks(lambda Z, _: dense(Z), rows))
            whole = rows.take(np.arange(rows.shape[0]))
            self.adopt(*solve_dual_ridge(Z, whole.y, whole.weights, alpha, self.fit_intercept))
        else:
            self._solve_by_gradients(rows, alpha)
        self.marginals_ = Marginals.of_rows(rows[shown]) if len(shown) else None
        return self

    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, forget: float = 0.0
    ) -> Self:
        """Add rows to the ridge; the map stays as it is.

        The first call uses ``features`` if they are fitted already, and fits them to its rows
        otherwise.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d), or Source
        y : array-like of shape (n,) or (n, n_outputs), optional
            Targets; None takes those of a source.
        sample_weight : array-like of shape (n,), optional
            Multiplies the squared errors.
        forget : float, default 0.0
            The share of what was learned before that is forgotten first, from 0 to below 1: the
            weights of all earlier rows are multiplied by ``1 - forget``. With calls of n rows each,
            the model remembers about ``n / forget`` of them.

        Returns
        -------
        self
        """
        alpha = self._checked_alpha()
        if not (isinstance(forget, numbers.Real) and 0.0 <= float(forget) < 1.0):
            raise ValueError(
                f"forget={forget!r} must be at least 0 and below 1: it is the share of earlier "
                "rows to forget"
            )
        if self.refine:
            raise ValueError(f"refine={self.refine!r} needs all rows at once: use fit")
        first = self._equations is None
        given = self._numeric(X, y, sample_weight, reset=first)
        rows = self._with_columns(given) if first else columns_of(given)
        assert rows.target_shape is not None
        outputs = rows.target_shape[0]
        if first:
            self._forget()
            if self.features is not None and is_fitted(self.features):
                self.features_ = self.features
            else:
                self._fit_features(rows, alpha=alpha)
            self.solver_ = "cholesky"
            shown = sampled_rows(rows)
            self.marginals_ = Marginals.of_rows(rows[shown]) if len(shown) else None
            self._equations = NormalEquations.zero(self.features_.n_components_, outputs)
        assert self._equations is not None
        known = len(self._equations.target_sum)
        if outputs != known:
            raise ValueError(f"y has {outputs} outputs, but earlier rows had {known}")
        if forget and not first:
            self._equations = self._equations.faded(1.0 - float(forget))
        # Not from raw values: later rows cannot repair what their rounding did to earlier ones.
        self._equations += self._accumulate(rows, raw=False)
        self._adopt(solve_ridge(self._equations, alpha, self.fit_intercept))
        return self

    def _with_columns(self, given: Source) -> Source:
        """The rows with targets of shape (n, n_outputs), whatever shape they were given in."""
        self._single_output = given.target_shape == ()
        return columns_of(given)

    def _forget(self) -> None:
        """Drop what an earlier fit left behind."""
        self._equations = self._posterior = None
        self.n_iter_ = 1
        for name in ("dual_coef_", "X_fit_", "residual_", "local_"):
            self.__dict__.pop(name, None)

    def _solve_directly(self, rows: Source, alpha: float) -> None:
        """Solve the normal equations, from float32 products where their rounding is harmless."""
        rounding = self._rounding(rows)
        single = rounding is not None and rounding.bound(alpha) <= FLOAT32_BOUND
        equations = self._accumulate(rows, single)
        solution = self._stable(equations, rows, alpha)
        if single and rounding is not None:
            allowed = FLOAT32_ERROR * equations.target_deviations()
            if (rounding.error(solution) > allowed).any():
                solution = self._corrected(solution, rows, alpha)
        self._adopt(solution)

    def _stable(self, equations: NormalEquations, rows: Source, alpha: float) -> RidgeSolution:
        """Solve; again from features in place of their raw values if rounding asked for a shift.

        Mixing the products of raw values is quick, but where the kernel is almost constant it
        magnifies their rounding beyond a small alpha.
        """
        mixed = mixing_of(self.features_, rows.dtype) is not None
        try:
            solution = solve_ridge(equations, alpha, self.fit_intercept)
            if not mixed or solution.posterior.shift <= 2.0 * alpha:
                return solution
        except LinAlgError:
            if not mixed:
                raise
        return solve_ridge(self._accumulate(rows, raw=False), alpha, self.fit_intercept)

    def _corrected(self, solution: RidgeSolution, rows: Source, alpha: float) -> RidgeSolution:
        """Undo the rounding of float32 products in another pass, far cheaper than the first."""
        sums = self._reduce(
            lambda Z, block: residual_sums(Z, block.y, block.weights, solution), rows
        )
        return corrected(solution, sums, alpha)

    def _rounding(self, rows: Source) -> Float32Rounding | None:
        """None where products are in float64 anyway."""
        if rows.dtype != np.float32 or mixing_of(self.features_, rows.dtype) is not None:
            return None
        block, n = rows.head(ROUNDING_ROWS), rows.shape[0]
        Z = self.features_.transform_block(block.X)
        return Float32Rounding(Z, block.weights, n, self._rows_per_block(n))

    def _accumulate(self, rows: Source, single: bool = False, raw: bool = True) -> NormalEquations:
        """The normal equations of the targets on the features, from a few blocks at a time."""
        self._check_gram(self.features_.n_components_, "use KernelRidge(solver='cg'), or ")
        mixing = mixing_of(self.features_, rows.dtype) if raw else None
        total: NormalEquations = self._reduce(
            lambda Z, block: NormalEquations.of_block(Z, block.y, block.weights, single),
            rows,
            raw=mixing is not None,
        )
        return total if mixing is None else total.mixed(mixing)

    def _choose_solver(self, n_rows: int) -> str:
        check_choice(self.solver, "solver", ("auto", "cholesky", "cg"))
        size = self.features_.n_components_
        if self.solver == "cholesky" and size > HIGHEST_CHOLESKY:
            raise ValueError(
                f"{size:,} features are too many for the Cholesky factor that solver='cholesky' "
                f"and KernelRidgeClassifier need (at most {HIGHEST_CHOLESKY:,}): lower "
                "n_components, or use solver='cg' or KernelSVC"
            )
        if self.solver != "auto":
            return self.solver
        if size > n_rows and size > LARGEST_CHOLESKY // 2 and size * n_rows <= LARGEST_DUAL:
            return "dual"
        return "cholesky" if size <= LARGEST_CHOLESKY else "cg"

    def _adopt(self, solution: RidgeSolution) -> None:
        self._posterior = solution.posterior
        self.adopt(solution.coefficients, solution.intercepts)

    def adopt(self, coefficients: NDArray[np.float64], intercepts: NDArray[np.float64]) -> None:
        finite(coefficients, "the coefficients")
        self.coef_, self.intercept_ = self._shaped(coefficients), self._shaped(intercepts)

    def _shaped(self, by_output: NDArray[np.float64]) -> Any:
        """Values by output (the last axis), in the shape of a single target where it was one."""
        if not self._single_output:
            return by_output
        return float(by_output[0]) if by_output.ndim == 1 else by_output[:, 0]

    def _solve_by_gradients(self, rows: Source, alpha: float) -> None:
        rng = stream(root_seed(self.random_state), "preconditioner")
        blocks = self._feature_blocks(rows)
        stop = self._stop()
        with converging("conjugate gradients", stop.tol, stop.deadline, self.verbose) as report:
            options = (self.fit_intercept, stop.tol, stop.max_iter, rng, report)
            solution, intercepts = solve_by_gradients(blocks, alpha, *options)
        self.adopt(self._converged(solution, stop), intercepts)

    def refine_from(
        self, rows: Source, alpha: float, stop: Stop, start: NDArray[np.float64] | None = None
    ) -> None:
        """Solve for the kernel itself, from a guess of the dual coefficients if there is one."""
        n = rows.shape[0]
        full = self.full_kernel(alpha, n)
        if rows.resident or n <= LARGEST_KERNEL_MATRIX:
            whole = rows.take(np.arange(n))
            solution, intercepts = full.solve(whole, stop, start)
            kept, targets = whole.X, whole.y
        else:
            solution, intercepts, targets = full.solve_streamed(rows, stop)
            kept = kept_rows(rows)
        dual = narrowed(self._converged(solution, stop), targets, stop.tol)
        self.adopt_exact(kept, dual, intercepts, solution.residual)

    def adopt_exact(
        self, rows: Any, dual: NDArray[Any], intercepts: NDArray[np.float64], residual: float
    ) -> None:
        """Predict by these coefficients of rows from now on."""
        finite(dual, "the coefficients")
        self.X_fit_, self.residual_ = rows, residual
        self.dual_coef_, self.intercept_ = self._shaped(dual), self._shaped(intercepts)

    def with_correction(self, correction: LocalCorrection) -> KernelRidge:
        """The same model with its predictions corrected by the nearest rows."""
        corrected = copy.copy(self)
        corrected.local_ = correction
        return corrected.set_params(refine="local")

    def corrected_by(self, rows: Source, settings: Correction) -> KernelRidge:
        """The same model with a correction whose distance, rate and noise are known."""
        whole = rows.take(np.arange(rows.shape[0]))
        residuals = self._residuals_of_all(whole, np.arange(0))
        kernel = self.features_.kernel_
        found = correction_with(kernel, whole, residuals, settings, self.n_jobs)
        return self.with_correction(found)

    def _refine_if_it_pays(self, rows: Source, alpha: float, began: float) -> None:
        """Solve for the kernel if that lowers the error on rows set apart."""
        n, limit = rows.shape[0], self._stop(began)
        full = self.full_kernel(alpha, n)
        if n <= LARGEST_KERNEL_MATRIX:
            self.refine_from(rows, alpha, limit)
            return
        if self._posterior is None or not rows.resident:
            return
        apart = self._judges(rows.shape[0])
        judges = rows.take(apart)
        left_out = self.left_out_residuals(judges)
        to_beat = math.inf
        if self.why_not_local(rows) is None:
            tell = np.arange(len(apart)) % 2 == 1  # the others choose the distance and the rate
            corrected = self.try_correction(rows, apart, ~tell, limit.deadline)
            if corrected is not None:
                to_beat = self._take_if_it_pays(corrected, judges, left_out, tell)
        if full.affordable(*rows.shape):
            known = np.setdiff1d(np.arange(n), apart)
            stop = replace(limit, tol=max(self.tol, judge_tol(left_out, judges.y)))
            (trial,) = trials(full, rows.take(known), judges, [alpha], stop)
            better = mean_square(trial.residuals, judges.weights) < to_beat
            if better and pays(trial.residuals, left_out, judges.weights):
                start = np.zeros((n, judges.y.shape[1]))
                start[known] = trial.dual
                stop = replace(stop, tol=max(self.tol, AUTO_SHARE * stop.tol))
                self.__dict__.pop("local_", None)
                self.refine_from(rows, alpha, stop, start)

    def _take_if_it_pays(
        self,
        corrected: CorrectionTrial,
        judges: Block,
        left_out: NDArray[np.float64],
        tell: NDArray[np.bool_],
    ) -> float:
        """Correct predictions if that lowers the error at rows that tell; the error to beat."""
        places = corrected.judged
        weights = None if judges.weights is None else judges.weights[places]
        telling = None if weights is None else weights[tell[places]]
        after, before = corrected.residuals[tell[places]], left_out[places][tell[places]]
        if not pays(after, before, telling, LOCAL_WORTH):
            return math.inf
        self.local_ = corrected.correction
        return mean_square(corrected.residuals, weights)

    def _judges(self, n: int) -> NDArray[np.int64]:
        """Rows at which ways to refine are compared."""
        seed = root_seed(self.random_state)
        size = min(JUDGES, max(1, n // 10))
        return np.sort(keyed_rows(n, size, seed, "apart"))

    def why_not_local(self, rows: Source) -> str | None:
        """Why these rows cannot be corrected by their neighbours."""
        if rows.sparse:
            return "dense rows: pass X.toarray()"
        if not rows.resident:
            return "all rows in memory: pass an array"
        if rows.shape[0] < 3:
            return "at least 3 rows"
        if self._posterior is None:
            return "solver='cholesky', which leave-one-out residuals come from"
        kernel = self.features_.kernel_
        families = kernel.families_for(rows.shape[1]) if isinstance(kernel, Product) else ()
        if "categorical" in families:
            return "a kernel without categorical columns, whose codes have no distances"
        return None

    def try_correction(
        self,
        rows: Source,
        apart: NDArray[np.int64],
        decide: NDArray[np.bool_],
        deadline: float = math.inf,
    ) -> CorrectionTrial | None:
        """A correction by neighbours; some of the rows apart choose its distance and rate.

        None if there is no time for it before the deadline.
        """
        why_not = self.why_not_local(rows)
        if why_not is not None:
            raise ValueError(f"refine='local' needs {why_not}")
        whole = rows.take(np.arange(rows.shape[0]))
        residuals = self._residuals_of_all(whole, apart)
        kernel = self.features_.kernel_
        return choose_correction(kernel, whole, residuals, apart, decide, self.n_jobs, deadline)

    def _residuals_of_all(self, rows: Block, apart: NDArray[np.int64]) -> NDArray[np.float64]:
        """Leave-one-out residuals; of very many rows those of the fit, but for the rows apart."""
        if len(rows) * self.features_.n_components_**2 <= LEVERAGE_WORK:
            return self.left_out_residuals(rows)
        # Leverages are small with so many rows to a feature.
        residuals = rows.y - self.predict(ArraySource(rows.X)).reshape(rows.y.shape)
        residuals[apart] = self.left_out_residuals(rows.take(apart))
        return residuals

    def full_kernel(self, alpha: float, n_rows: int) -> FullKernel:
        return FullKernel(
            self.features_.kernel_,
            self.features_,
            alpha,
            self.fit_intercept,
            self._rows_per_block(n_rows),
            root_seed(self.random_state),
            self.n_jobs,
            self.verbose,
        )

    def _stop(self, began: float | None = None) -> Stop:
        """When iterations end; those of ``refine`` have a time limit, too."""
        limit = math.inf
        if self.time_limit is not None and began is not None:
            why = "it is the number of seconds after which iterations end"
            limit = began + check_positive(self.time_limit, "time_limit", why)
        return Stop(self.tol, self._checked_max_iter(), limit)

    def _feature_blocks(self, rows: Source) -> FeatureBlocks:
        size = self._rows_per_block(rows.shape[0])
        return FeatureBlocks(self.features_.transform_block, rows, size, self.n_jobs)

    def _converged(self, solution: Solution, stop: Stop) -> NDArray[np.float64]:
        """The solution, with a warning if it did not converge."""
        self.n_iter_ = solution.iterations
        if solution.residual > stop.tol and not stop.quiet:
            what = "raise max_iter, alpha or the number of features"
            if time.monotonic() > stop.deadline:
                what = f"raise time_limit={self.time_limit:g} or alpha"
            warnings.warn(
                f"the solver stopped after {solution.iterations} iterations at a residual "
                f"of {solution.residual:.2g}, above tol={stop.tol:g}: {what}",
                ConvergenceWarning,
                stacklevel=4,
            )
        return solution.values

    @lazy_on_dask
    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the targets of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d), or Source
        return_std : bool, default False
            Whether to return the standard deviation of a new observation, too.

        Returns
        -------
        mean : ndarray of shape (n,) or (n, n_outputs)
        deviation : ndarray of the same shape, if return_std
            Of the Gaussian process with this kernel and alpha, as far as the features show it: the
            noise, estimated from the residuals, the uncertainty of the coefficients, and the prior
            variance of what the features leave out, ``k(x, x) - |z(x)|^2``. So it does not shrink
            far from the training rows. After a local correction, that of the local process or, if
            it is larger, that of the features without the noise.

        Notes
        -----
        Sample weights count observations, so an integer weight is a row that occurs so many times.
        Weights whose mean is below 1 cannot be counts and are relative: the deviation is that of
        weights and alpha divided by the mean weight, so multiplying both by a constant does not
        change it. For relative weights on another scale, divide weights and alpha by the mean
        weight before the fit. A new observation is of mean weight.
        """
        check_is_fitted(self)
        X = self._valid_rows(X)
        mean = self._predict_exact(X) if hasattr(self, "dual_coef_") else self._predict_mean(X)
        relative = None
        if hasattr(self, "local_"):
            correction, relative = self._correction(X, mean)
            mean = finite(mean + correction.reshape(mean.shape).astype(X.dtype), "the predictions")
        if not return_std:
            return mean
        posterior = self.posterior()
        if np.isnan(posterior.noise_variance).any():
            raise ValueError(
                "the noise is unknown, because the model was fitted to a single row: "
                "return_std needs at least two"
            )
        kernel = self.features_.kernel_
        variances = self._map_blocks(
            lambda Z, block: posterior.relative_variances(Z, unseen_part(kernel, block.X, Z)), X
        )
        with np.errstate(over="ignore"):
            noise = np.asarray(self.noise_variance_)
            spread = np.multiply.outer(np.concatenate(variances), noise)
            if relative is not None:
                # Far from all rows what the features do not know is more than their residuals.
                unknown = spread - noise
                known = np.multiply.outer(relative, self._shaped(self.local_.variances))
                spread = np.maximum(known, unknown)
            deviations = np.sqrt(spread)
            return mean, finite(deviations.astype(X.dtype), "the deviations")

    def drift(self, X: Any) -> Drift:
        """Report how far rows are from those of the fit.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d)

        Returns
        -------
        Drift
        """
        check_is_fitted(self)
        X = self._valid_rows(X)
        if self.marginals_ is None:
            raise ValueError(
                f"the model knows no ranges of its {self.n_features_in_:,} columns: they are kept "
                "for at most 4,096"
            )
        outside, missing = outside_range(X, self.marginals_)
        kernel = self.features_.kernel_
        trace = kernel.diag(X).astype(np.float64)
        unseen = np.concatenate(
            self._map_blocks(lambda Z, block: unseen_part(kernel, block.X, Z), X)
        )
        return Drift(
            float(trace[outside.any(axis=1)].sum() / trace.sum()),
            outside.mean(axis=0),
            missing,
            float(unseen.sum() / trace.sum()),
            len(trace),
        )

    def pruned(self, error: float) -> Self:
        """Leave out rows with small coefficients from a refined model, for quicker predictions.

        Parameters
        ----------
        error : float
            Predictions of every output change by at most this much, times sqrt(k(x, x)), which is 1
            for the Gaussian, Laplacian, Matern and product kernels: the coefficients a_i of the
            rows that are left out have ``sum |a_i| sqrt(k(x_i, x_i)) <= error``.

        Returns
        -------
        KernelRidge
            A copy with fewer rows in ``X_fit_`` and ``dual_coef_``; this model is not changed.

        Examples
        --------
        >>> import numpy as np
        >>> from kernelsieve import KernelRidge, NystromFeatures
        >>> X = np.linspace(0, 10, 500)[:, None]
        >>> model = KernelRidge(NystromFeatures(50), alpha=0.1, refine=True).fit(X, np.sin(X[:, 0]))
        >>> small = model.pruned(1e-3)
        >>> len(small.dual_coef_) < 500
        True
        >>> bool(np.abs(small.predict(X) - model.predict(X)).max() <= 1e-3)
        True
        """
        check_is_fitted(self)
        why = "it is the largest change of a prediction"
        error = check_positive(error, "error", why)
        if not hasattr(self, "dual_coef_"):
            raise ValueError("this model has no coefficients of rows to prune: fit refine=True")
        smaller = copy.copy(self)
        kept = _needed_rows(self.dual_coef_, self.features_.kernel_.diag(self.X_fit_), error)
        smaller.X_fit_, smaller.dual_coef_ = self.X_fit_[kept], self.dual_coef_[kept]
        return smaller

    def predictor(self) -> Predictor:
        """Return a function of one row that predicts as quickly as possible, for servers.

        It computes in float64, and threads may share it.

        Returns
        -------
        Predictor
        """
        check_is_fitted(self)
        missing = self.features_.kernel_.allows_missing
        return Predictor(
            ridge_scores(self), self.n_features_in_, missing=missing, single=self._single_output
        )

    def _predict_mean(self, X: Any) -> NDArray[Any]:
        mixing = mixing_of(self.features_, X.dtype)
        if mixing is None:
            coefficients = self.coef_
            parts = self._map_blocks(lambda Z, _: times(Z, coefficients), X)
        else:  # large coefficients that cancel: in float64
            with one_thread():  # for the same bits with any threads of BLAS
                fused = mixing.astype(np.float64) @ self.coef_
            parts = self._map_blocks(lambda C, _: C @ fused, X, raw=True)
        return self._with_intercept(parts, X.dtype)

    def _predict_exact(self, X: Any) -> NDArray[Any]:
        """n kernel values for every row, in the float type that the coefficients need."""
        kernel, dual = self.features_.kernel_, self.dual_coef_
        columns = dual.reshape(len(dual), -1)
        fitted = ArraySource(self.X_fit_, columns)

        def values(block: Block) -> NDArray[Any]:
            rows = check_points(block.X, missing=kernel.allows_missing).astype(np.float64)
            total = np.zeros((len(block), columns.shape[1]))
            for known in fitted.parts(FITTED_ROWS):  # which may be in a file
                X = known.X.astype(np.float64, copy=False)
                total += KernelMatrix(kernel, rows, X, dtype=dual.dtype, n_jobs=1) @ known.y
            return total.reshape(len(block), *dual.shape[1:])

        size = self._rows_per_block(X.shape[0])
        return self._with_intercept(list(as_source(X).map(values, size, self.n_jobs)), X.dtype)

    def _correction(
        self, X: Any, mean: NDArray[Any]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What neighbours add to the predictions, and variances relative to their process."""
        local, kernel = self.local_, self.features_.kernel_
        predicted = mean.astype(np.float64).reshape(len(mean), -1)

        def values(block: Block) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            rows = dense(check_points(block.X, missing=kernel.allows_missing))
            return local.at(kernel, rows, predicted[block.rows])

        size = min(LOCAL_ROWS, self._rows_per_block(X.shape[0]))
        parts = list(as_source(X).map(values, size, self.n_jobs))
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def _with_intercept(self, parts: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.concatenate(parts).astype(dtype, copy=False)
            mean = mean + np.asarray(self.intercept_, dtype=dtype)
        return finite(mean, "the predictions")

    def left_out_residuals(self, rows: Block, repetitions: Any = None) -> NDArray[np.float64]:
        """Leave-one-out residuals at some of the rows that the model was fitted to.

        ``repetitions`` are the parts of the weights that repeat a row: one of the repetitions is
        left out, with the rest of its weight.
        """
        posterior = self.posterior()
        leverages = np.concatenate(self._map_blocks(lambda Z, _: posterior.leverages(Z), rows.X))
        weights = rows.weights_or_ones
        repeated = 1.0 if repetitions is None else np.maximum(repetitions, 1.0)
        left = np.maximum(1.0 - weights / repeated * leverages, 1e-6)
        predicted = self.predict(ArraySource(rows.X))
        residuals = np.asarray(rows.y, dtype=np.float64).reshape(len(left), -1)
        residuals = residuals - predicted.reshape(residuals.shape)
        return residuals / left[:, None]

    @property
    def posterior_(self) -> Posterior | None:
        """The posterior of the coefficients; None if the solver or the file left it out."""
        known = self._posterior
        return None if known is None or known.factor is None else known

    def posterior(self) -> Posterior:
        if self._posterior is None:
            raise ValueError(
                f"return_std needs the Cholesky factor that solver={self.solver_!r} does not form: "
                "use solver='cholesky'"
            )
        return self._posterior

    @property
    def noise_variance_(self) -> Any:
        """Estimated variance of an observation around the regression function.

        The squared residuals over the observations that the degrees of freedom leave; a float for
        a single target, an ndarray of shape (n_outputs,) otherwise. NaN after a fit to one row.
        """
        check_is_fitted(self)
        return self._shaped(self.posterior().noise_variance)

    def risk_bound(self, X: Any, noise_variance: float | None = None) -> Risk:
        """The paper's bound on the risk of this ridge, on (at most 2,000 of) the rows of X.

        The true values are not known, so the predictions of the model stand for them. alpha is
        scaled to the number of rows used.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d)
            Rows of the training data.
        noise_variance : float, default the estimate ``noise_variance_``

        Returns
        -------
        Risk
        """
        check_is_fitted(self)
        X = self._valid_rows(X)
        if not self._single_output:
            raise ValueError("risk_bound works with a single output: fit one target at a time")
        rows = X[np.linspace(0, X.shape[0] - 1, min(X.shape[0], RISK_ROWS)).astype(int)]
        sample = KernelSample(self.features_.kernel_, rows, self.alpha, X.shape[0], self.n_jobs)
        Z = self.features_.transform(rows)
        variance = self.noise_variance_ if noise_variance is None else noise_variance
        return krr_risk_bound(
            sample.K, self.predict(rows), sample.alpha, variance, sample.sides(Z), min(Z.shape)
        )

    def _checked_alpha(self) -> float:
        return check_positive(self.alpha, "alpha", "it is added to the kernel's diagonal")

    def _checked_max_iter(self) -> int:
        check_positive(self.tol, "tol", "it is the residual at which iterations stop")
        return check_count(self.max_iter, "max_iter", "it is the largest number of iterations")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def check_room(rows: Source) -> None:
    """Refuse rows that a refined model has to keep in memory, and that do not fit."""
    if rows.resident or rows.sparse or rows.stored is not None:
        return
    n, d = rows.shape
    check_memory(
        float(n) * d * rows.dtype.itemsize,
        f"keeping the {n:,} rows of {d:,} columns, which predictions with refine=True need,",
        "write them to a file with the source's save('rows.npy') and fit NpySource('rows.npy', y), "
        "whose rows stay there; or use refine=False, which keeps no rows",
    )


def kept_rows(rows: Source) -> Any:
    """All rows, in a file if they are in one, or in memory in the float type that they have."""
    if rows.stored is not None:
        return rows.stored
    if rows.sparse:
        return joined([Block(X) for X in rows.blocks()]).X
    kept = np.empty(rows.shape, dtype=rows.dtype)
    for block in rows.parts(LARGEST_BLOCK):
        kept[block.rows] = block.X
    return kept


def _needed_rows(dual: NDArray[Any], diagonal: NDArray[Any], error: float) -> NDArray[np.int64]:
    """All rows but the smallest ones that add up to at most ``error`` in every output."""
    roots = np.sqrt(diagonal.astype(np.float64))[:, None]
    sizes = np.abs(dual.reshape(len(dual), -1).astype(np.float64)) * roots
    order = np.argsort(sizes.max(axis=1), kind="stable")
    sums = np.cumsum(sizes[order], axis=0).max(axis=1)
    dropped = int(np.searchsorted(sums, error, side="right"))
    return np.sort(order[min(dropped, len(order) - 1) :])  # a model has at least one row


def unseen_part(kernel: Kernel, X: Any, Z: Any) -> NDArray[np.float64]:
    """k(x, x) - |z(x)|^2: the part of the kernel that a map leaves out; at least 0."""
    return np.maximum(0.0, kernel.diag(X).astype(np.float64) - squared_norms(Z))
