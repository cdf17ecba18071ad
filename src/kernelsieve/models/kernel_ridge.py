"""Kernel ridge regression on explicit features."""

from __future__ import annotations

import time
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kernelsieve._random import root_seed
from kernelsieve._state import (
    FLOATS,
    AbsentOr,
    array,
    array_or,
    choice,
    instance,
    is_fitted,
    number,
    optional,
    row_matrix,
    whole,
)
from kernelsieve._validation import check_choice, check_count, check_positive
from kernelsieve.diagnostics import KernelSample, Risk, krr_risk_bound
from kernelsieve.features import FeatureMap
from kernelsieve.learning.neighbours import LocalCorrection
from kernelsieve.linalg.normal_equations import NormalEquations, solve_ridge
from kernelsieve.linalg.posterior import Posterior
from kernelsieve.models._base import FeatureModel, columns_of, is_learned, without_targets
from kernelsieve.models._ridge_state import by_output, check_ridge, refinement
from kernelsieve.models.full_kernel import FullKernel, Stop
from kernelsieve.models.passes import finite
from kernelsieve.models.predictor import Predictor, ridge_scores
from kernelsieve.models.ridge_local import corrected_mean
from kernelsieve.models.ridge_online import checked_forget, with_rows
from kernelsieve.models.ridge_refine import ExactRidge, check_room, predicted_exactly, refine
from kernelsieve.models.ridge_solve import (
    FeatureRidge,
    Ridge,
    Solved,
    deviations,
    of_equations,
    predicted,
    shaped,
    solve,
)
from kernelsieve.models.scores import Regressor
from kernelsieve.sources.base import Source
from kernelsieve.sources.given import lazy_on_dask
from kernelsieve.sources.marginals import Marginals, sampled_rows

RISK_ROWS = 2000


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

    coef_: NDArray[np.float64]
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
        check_ridge(self)
        self._single_output = self.coef_.ndim == 1

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
        if self.refine:
            self._refine(columns_of(given), self._stop(began))
        return self

    def _refine(self, rows: Source, stop: Stop) -> None:
        """Solve for the kernel, or correct by neighbours, where ``refine`` asks for it."""
        ridge, n = self.on_features, rows.shape[0]
        options = (self._checked_alpha(), self.fit_intercept, root_seed(self.random_state))
        found = refine(self.refine, ridge, FullKernel.of(ridge.passes, n, *options), rows, stop)
        if found.exact is not None:
            self.adopt_exact(found.exact)
        if found.local is not None:
            self.local_ = found.local

    def fit_features(self, given: Source, new: bool = False) -> Self:
        """Fit the map and the ridge on its features; what ``refine`` asks for is left to do.

        Rows that are ``new`` to the model tell it the number of their columns.
        """
        given = self._numeric(given, None) if new else given
        alpha = self._checked_alpha()
        wanted = check_choice(self.refine, "refine", (True, False, "auto", "local"))
        rows = columns_of(given)
        self._start(given)
        if wanted is True:
            check_room(rows)
        # A preconditioner is chosen for the kernel alone: features for the target would be wasted.
        blind = wanted is True and not is_learned(self._fresh_features().kernel)
        self._fit_features(without_targets(rows) if blind else rows, alpha=alpha)
        shown = sampled_rows(rows)
        rows.expect(shown)  # after the map took its own rows: the next pass collects these
        task = Ridge(alpha, self.fit_intercept, self.solver, self._stop(), self.random_state)
        self._adopt(solve(self.passes, rows, task))
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
        alpha, share = self._checked_alpha(), checked_forget(forget)
        if self.refine:
            raise ValueError(f"refine={self.refine!r} needs all rows at once: use fit")
        first = self._equations is None
        given = self._numeric(X, y, sample_weight, reset=first)
        rows = columns_of(given)
        if first:
            self._start(given)
            if self.features is not None and is_fitted(self.features):
                self.features_ = self.features
            else:
                self._fit_features(rows, alpha=alpha)
            shown = sampled_rows(rows)
            self.marginals_ = Marginals.of_rows(rows[shown]) if len(shown) else None
        self._equations = with_rows(self._equations, self.passes, rows, share)
        self._adopt(of_equations(solve_ridge(self._equations, alpha, self.fit_intercept)))
        return self

    def _start(self, given: Source) -> None:
        """Drop what an earlier fit left behind."""
        self._single_output = given.target_shape == ()
        self._equations = self._posterior = None
        for name in ("dual_coef_", "X_fit_", "residual_", "local_"):
            self.__dict__.pop(name, None)

    def _adopt(self, solved: Solved) -> None:
        """Predict by the ridge on features."""
        self.solver_, self.n_iter_ = solved.solver, solved.iterations
        self._posterior = solved.posterior
        self.adopt(solved.coefficients, solved.intercepts)

    def adopt(self, coefficients: NDArray[np.float64], intercepts: NDArray[np.float64]) -> None:
        """Predict by these coefficients of the features, of shape (s, m), from now on."""
        finite(coefficients, "the coefficients")
        single = self._single_output
        self.coef_, self.intercept_ = shaped(coefficients, single), shaped(intercepts, single)

    def adopt_exact(self, exact: ExactRidge) -> None:
        """Predict by these coefficients of rows from now on."""
        finite(exact.dual, "the coefficients")
        single = self._single_output
        self.X_fit_, self.residual_, self.n_iter_ = exact.rows, exact.residual, exact.iterations
        self.dual_coef_ = shaped(exact.dual, single)
        self.intercept_ = shaped(exact.intercepts, single)

    @property
    def on_features(self) -> FeatureRidge:
        """The ridge on the features alone, as a value."""
        return FeatureRidge(self.passes, self.coef_, self.intercept_, self._posterior)

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
        ridge, local, process = self.on_features, getattr(self, "local_", None), None
        if hasattr(self, "dual_coef_"):
            mean = predicted_exactly(ridge, self.X_fit_, self.dual_coef_, X)
        else:
            mean = predicted(ridge, X)
        if local is not None:
            mean, relative = corrected_mean(ridge, local, X, mean)
            process = np.multiply.outer(relative, shaped(local.variances, self._single_output))
        if not return_std:
            return mean
        return mean, deviations(ridge, X, self.noise_variance_, process)

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

    @property
    def posterior_(self) -> Posterior | None:
        """The posterior of the coefficients; None if the solver or the file left it out."""
        known = self._posterior
        return None if known is None or known.factor is None else known

    @property
    def noise_variance_(self) -> Any:
        """Estimated variance of an observation around the regression function.

        The squared residuals over the observations that the degrees of freedom leave; a float for
        a single target, an ndarray of shape (n_outputs,) otherwise. NaN after a fit to one row.
        """
        check_is_fitted(self)
        if self._posterior is None:
            raise ValueError(
                f"return_std needs the Cholesky factor that solver={self.solver_!r} does not form: "
                "use solver='cholesky'"
            )
        return shaped(self._posterior.noise_variance, self._single_output)

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

    def _stop(self, began: float | None = None) -> Stop:
        """When iterations end; those of ``refine`` have a time limit, too."""
        check_positive(self.tol, "tol", "it is the residual at which iterations stop")
        most = check_count(self.max_iter, "max_iter", "it is the largest number of iterations")
        if self.time_limit is None or began is None:
            return Stop(self.tol, most)
        why = "it is the number of seconds after which iterations end"
        limit = check_positive(self.time_limit, "time_limit", why)
        return Stop(self.tol, most, began + limit, time_limit=limit)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
