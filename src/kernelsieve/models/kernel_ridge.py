"""Kernel ridge regression on explicit features."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.validation import check_is_fitted

from kernelsieve._memory import check_matrix
from kernelsieve._parallel import one_thread
from kernelsieve._random import root_seed, stream
from kernelsieve._validation import check_choice, check_count, check_positive
from kernelsieve.diagnostics import KernelSample, Risk, krr_risk_bound
from kernelsieve.features import FeatureMap
from kernelsieve.linalg.iterative_ridge import FeatureBlocks, solve_by_gradients, solve_exact
from kernelsieve.linalg.normal_equations import (
    NormalEquations,
    RidgeSolution,
    solve_dual_ridge,
    solve_ridge,
)
from kernelsieve.linalg.operators import dense, times
from kernelsieve.models._base import (
    FeatureModel,
    columns_of,
    finite,
    float32_products_suffice,
    mixing_of,
)
from kernelsieve.sources.base import ArraySource, Source, as_source, lazy_on_dask

LARGEST_CHOLESKY = 8192  # features; beyond, conjugate gradients
HIGHEST_CHOLESKY = 16_384  # on request: LAPACK crashed at 20,000
LARGEST_DUAL = 2**27  # entries of Z that are held when there are fewer rows than features
RISK_ROWS = 2000


class KernelRidge(RegressorMixin, FeatureModel):
    """Ridge regression on the features of a kernel, streamed over blocks of rows.

    Parameters
    ----------
    features : FeatureMap, default AdaptiveFeatures()
        The map that stands for the kernel.
    alpha : float, default 1.0
        Added to the diagonal of the kernel matrix, as in scikit-learn's ``KernelRidge``: the
        paper's lambda. A map with ``alpha=None`` takes this one.
    fit_intercept : bool, default True
    solver : "auto", "cholesky" or "cg"
        The normal equations at once, or conjugate gradients that never form them. "auto" changes
        over at 8,192 features, and solves on the side of the rows where they are fewer.
    refine : bool, default False
        Solve the *exact* kernel ridge regression, with the features as a preconditioner, which are
        then chosen without y. Every iteration evaluates the kernel at all pairs of rows: for up to
        about 50,000 of them. ``NystromFeatures(landmarks="rpcholesky")`` needs fewest iterations.
    tol : float, default 1e-6
        Relative residual at which conjugate gradients stop.
    max_iter : int, default 500
    block_rows : int, default None
        Rows whose features are held at a time, per thread; None takes up to 4096.
    random_state : int, RandomState, Generator or None
        Of the preconditioner of solver="cg"; the map has its own.
    n_jobs : int, default all cores
    verbose : int, default 0
        1 shows progress.

    Attributes
    ----------
    features_ : FeatureMap
        The fitted map.
    coef_ : ndarray of shape (n_components,) or (n_components, n_outputs)
    intercept_ : float or ndarray of shape (n_outputs,)
    n_iter_ : int
        Iterations of conjugate gradients; 1 for a direct solve.
    dual_coef_, X_fit_ : ndarray
        With ``refine=True``: the exact solution and the rows that it belongs to.

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
    _solution: RidgeSolution | None = None

    def __init__(
        self,
        features: FeatureMap | None = None,
        *,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        solver: str = "auto",
        refine: bool = False,
        tol: float = 1e-6,
        max_iter: int = 500,
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
        self.block_rows = block_rows
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the map and the ridge.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d), or Source
        y : array-like of shape (n,) or (n, n_outputs)
            None takes that of a source.
        sample_weight : array-like of shape (n,), optional
            Multiplies the squared errors; the map does not see it.
        """
        alpha = self._checked_alpha()
        given = self._numeric(X, y, sample_weight)
        self._single_output = given.target_shape == ()
        rows = columns_of(given)
        # A preconditioner is chosen for the kernel alone: features for the target would be wasted.
        seen = ArraySource(rows.in_memory("refine=True")) if self.refine else rows
        self._fit_features(seen, alpha=alpha)
        self._equations = None
        self.solver_ = self._choose_solver(rows.shape[0])
        self.n_iter_, self._solution = 1, None
        if self.solver_ == "cholesky":
            self._adopt(solve_ridge(self._accumulate(rows), alpha, self.fit_intercept))
        elif self.solver_ == "dual":
            Z = np.concatenate(self._map_blocks(lambda Z, _: dense(Z), rows))
            whole = rows.take(np.arange(rows.shape[0]))
            self._set(*solve_dual_ridge(Z, whole.y, whole.weights, alpha, self.fit_intercept))
        else:
            rng = stream(root_seed(self.random_state), "preconditioner")
            options = (self.fit_intercept, self.tol, self._checked_max_iter(), rng, self._report)
            solution, intercepts = solve_by_gradients(self._feature_blocks(rows), alpha, *options)
            self._warn_unless_converged(solution.residual, solution.iterations)
            self.n_iter_ = solution.iterations
            self._set(solution.values, intercepts)
        if self.refine:
            self._refine(rows, alpha)
        return self

    def _feature_blocks(self, rows: Source) -> FeatureBlocks:
        size = self._rows_per_block(rows.shape[0])
        return FeatureBlocks(self.features_._transform_block, rows, size, self.n_jobs)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add rows to the ridge; the map stays as it is.

        The first call takes ``features`` as they are when they are fitted, and fits them to its
        rows when not.
        """
        alpha = self._checked_alpha()
        if self.refine:
            raise ValueError("refine=True needs all rows at once: use fit")
        given = self._numeric(X, y, sample_weight, reset=self._equations is None)
        rows = columns_of(given)
        assert rows.target_shape is not None
        outputs = rows.target_shape[0]
        if self._equations is None:
            self._single_output = given.target_shape == ()
            self._start_partial(rows, alpha)
            self._equations = NormalEquations.zero(self.features_.n_components_, outputs)
        known = len(self._equations.target_sum)
        if outputs != known:
            raise ValueError(f"y has {outputs} outputs, earlier rows had {known}")
        self._equations += self._accumulate(rows)
        self._adopt(solve_ridge(self._equations, alpha, self.fit_intercept))
        return self

    def _start_partial(self, rows: Source, alpha: float) -> None:
        """The map: a fitted one is taken as it is."""
        if self.features is not None and _is_fitted(self.features):
            self.features_ = self.features
        else:
            self._fit_features(rows, alpha=alpha)
        self.solver_, self.n_iter_ = "cholesky", 1

    def _accumulate(self, rows: Source) -> NormalEquations:
        """The normal equations of the targets on the features; never more than a few blocks."""
        self._check_gram(self.features_.n_components_, "use KernelRidge(solver='cg'), or ")
        mixing = mixing_of(self.features_, rows.dtype)
        single = mixing is None and float32_products_suffice(self.features_, rows, self.alpha)
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
        self._solution = solution
        self._set(solution.coefficients, solution.intercepts)

    def _set(self, coefficients: NDArray[np.float64], intercepts: NDArray[np.float64]) -> None:
        one = self._single_output
        finite(coefficients, "the coefficients")
        self.coef_ = coefficients[:, 0] if one else coefficients
        self.intercept_ = float(intercepts[0]) if one else intercepts

    def _refine(self, rows: Source, alpha: float) -> None:
        X = rows.in_memory("refine=True")
        n = rows.shape[0]
        size = min(n, self._rows_per_block(n))
        # A block of the kernel matrix, and what its exponents were computed in.
        check_matrix(
            2 * size,
            n,
            np.float64,
            f"refine=True, with {size:,} of {n:,} rows of the kernel matrix at a time,",
            "{fits} rows would fit: lower block_rows, or leave refine=False",
        )
        solution, intercepts = solve_exact(
            self.features_.kernel_,
            self._feature_blocks(rows),
            alpha,
            self.fit_intercept,
            self.tol,
            self._checked_max_iter(),
            self._report,
        )
        self._warn_unless_converged(solution.residual, solution.iterations)
        self.X_fit_, self.n_iter_ = X, solution.iterations
        self.dual_coef_ = solution.values[:, 0] if self._single_output else solution.values
        self.intercept_ = float(intercepts[0]) if self._single_output else intercepts

    def _report(self, iteration: int, residual: float) -> None:
        if self.verbose:
            print(f"iteration {iteration}: residual {residual:.2e}", flush=True)

    def _warn_unless_converged(self, residual: float, iterations: int) -> None:
        if residual > self.tol:
            warnings.warn(
                f"conjugate gradients stopped after {iterations} iterations at a residual of "
                f"{residual:.2g}, above tol={self.tol:g}: raise max_iter, alpha or the number of "
                "features",
                ConvergenceWarning,
                stacklevel=3,
            )

    @lazy_on_dask
    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predicted targets of rows or of a source, of shape (n,) or (n, n_outputs).

        With ``return_std`` also the standard deviation of a new observation there: that of the
        Bayesian linear model on the features with this alpha, whose noise is estimated from the
        residuals. It knows nothing of what the features leave out of the kernel.
        """
        check_is_fitted(self)
        X = self._valid_rows(X)
        mean = self._predict_exact(X) if self.refine else self._predict_mean(X)
        if not return_std:
            return mean
        leverages = np.concatenate(self._map_blocks(lambda Z, _: self._posterior().leverages(Z), X))
        if self.fit_intercept:
            leverages += 1.0 / self._posterior().weight
        with np.errstate(over="ignore"):
            deviations = np.sqrt(np.multiply.outer(1.0 + leverages, self.noise_variance_))
            return mean, finite(deviations.astype(X.dtype), "the deviations")

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

    def _with_intercept(self, parts: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.concatenate(parts).astype(dtype, copy=False)
            mean = mean + np.asarray(self.intercept_, dtype=dtype)
        return finite(mean, "the predictions")

    def _predict_exact(self, X: Any) -> NDArray[Any]:
        kernel = self.features_.kernel_
        dual = self.dual_coef_
        size = max(1, min(self._rows_per_block(X.shape[0]), 2**24 // self.X_fit_.shape[0]))
        X_fit = self.X_fit_
        parts = as_source(X).map(
            lambda block: times(kernel(block.X, X_fit, n_jobs=1), dual), size, self.n_jobs
        )
        return self._with_intercept(list(parts), X.dtype)

    def _posterior(self) -> RidgeSolution:
        if self._solution is None:
            raise ValueError(
                f"return_std needs the Cholesky factor that solver={self.solver_!r} does not form: "
                "use solver='cholesky'"
            )
        return self._solution

    @property
    def noise_variance_(self) -> Any:
        """Squared residuals over what the degrees of freedom leave of the rows."""
        check_is_fitted(self)
        solution = self._posterior()
        left = solution.weight - solution.degrees_of_freedom() - self.fit_intercept
        variance = solution.residual_squares / max(left, 1e-12 * solution.weight)
        return float(variance[0]) if self._single_output else variance

    def risk_bound(self, X: Any, noise_variance: float | None = None) -> Risk:
        """The paper's bound on the risk of this ridge, on (at most 2,000 of) the rows of X.

        The true values are not known: the model's own predictions stand for them. alpha is scaled
        to the number of rows that are looked at.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d)
            Rows of the training data.
        noise_variance : float, default the estimate ``noise_variance_``
        """
        check_is_fitted(self)
        X = self._valid_rows(X)
        if not self._single_output:
            raise ValueError("risk_bound is for a single output: fit one target at a time")
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
        check_positive(self.tol, "tol", "it is the residual at which to stop")
        return check_count(self.max_iter, "max_iter", "it bounds the iterations")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _is_fitted(features: FeatureMap) -> bool:
    try:
        check_is_fitted(features)
    except NotFittedError:
        return False
    return True
