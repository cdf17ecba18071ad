"""Kernel ridge regression with the kernel learned, or alpha and the bandwidth searched for."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kernelsieve._random import root_seed
from kernelsieve._state import array, instance, list_of, number, optional, plain, table, wrong
from kernelsieve._validation import check_choice
from kernelsieve.features import FeatureMap
from kernelsieve.learning.budget import Budget
from kernelsieve.learning.choice import Wanted, choose
from kernelsieve.learning.grid import search_on, warn_of_ends
from kernelsieve.learning.judge import Judge
from kernelsieve.learning.linear_part import LinearPart
from kernelsieve.learning.map_search import positive_numbers, search
from kernelsieve.learning.plan import Plan
from kernelsieve.learning.target_transform import NAMES, TargetTransform
from kernelsieve.linalg.normal_equations import NormalEquations
from kernelsieve.models._base import (
    FeatureModel,
    checked_order,
    columns_of,
)
from kernelsieve.models.execute import check_plan, execute
from kernelsieve.models.kernel_ridge import KernelRidge
from kernelsieve.models.passes import finite, rows_per_block
from kernelsieve.models.predictor import Predictor
from kernelsieve.models.ridge_solve import accumulate
from kernelsieve.models.scores import Regressor
from kernelsieve.sources.base import Block, Source
from kernelsieve.sources.given import as_source, lazy_on_dask


class KernelRidgeCV(Regressor, FeatureModel):
    """Kernel ridge regression that learns its kernel, or searches for gamma and alpha.

    Without ``features`` the kernel is learned: one rate and one monotone warp for each column by
    marginal likelihood on some of the rows (``kernels.learn``), and the family, the width and alpha
    by the error on other rows. Columns need no scaling. Up to 6,000 rows the ridge is that of the
    exact kernel. With more rows it uses 2,000 landmarks, or the exact kernel again where its
    products take about a second and its error on other rows is lower by 1 % or more, or corrects
    the landmarks by the 32 nearest rows where that lowers it by 2 % or more
    (``KernelRidge(refine="local")``). A target that is skewed, such as a price or a count, is
    replaced by its square root or logarithm where trials on other rows say that this pays;
    predictions are means of the target itself. A linear function of the columns is fitted before
    the kernel where that lowers the squared error on other rows by 1 % or more. ``plan_`` is all of
    this as one value, which fits other rows without a search.

    With ``features`` every alpha and every gamma is tried on that map. One eigendecomposition
    serves all alphas. For maps that do not look at the target, the error is
    the exact leave-one-out error in closed form. Maps that do look are fitted again for every fold,
    so that they never see the rows they are judged on.

    Parameters
    ----------
    features : FeatureMap, optional
        The map that stands for the kernel. None learns the kernel; for sparse rows, or if
        ``gammas`` or ``cv`` are given, None is AdaptiveFeatures().
    alphas : array-like of float, optional
        Ridges to try. None is 13 values from 1e-3 to 1e3, and more of them where the best lies at
        an end, or with a learned kernel a range around the likelihood's.
    gammas : array-like of float, optional
        Bandwidths to try; None keeps that of the map.
    cv : int, splitter or None, default None
        Folds. None is leave-one-out where it has a closed form, and 5 random folds elsewhere. Of a
        source that is not in memory it may be a number of folds, which are consecutive rows.
    max_order : int, optional
        Learn a model of parts of at most so many columns: 2 for main effects and pairs, which
        ``explain`` shows exactly. Only for a learned kernel, which is then an ``Anova``.
    target_transform : "auto", "log", "sqrt" or None, default "auto"
        The function of the target that the ridge is fitted to, for a learned kernel. "auto" tries
        both on targets in memory that are at least 0 and skewed. None takes the target as it is.
    plan : Plan, optional
        The ``plan_`` of an earlier fit: it is executed without a search, for other rows with the
        same columns. The solver is the one for their number.
    fit_intercept : bool, default True
        Whether to fit an intercept, which is not penalised.
    time_limit : float, optional
        Seconds for learning the kernel and the fit that follows; None sets no limit.
    block_rows : int, default None
        Rows whose features each thread holds at a time; None takes up to 4096.
    random_state : int, RandomState, Generator or None
        Draws the rows that the kernel is learned from, and the landmarks. A map that is given has
        its own.
    n_jobs : int, default all cores
        Number of threads.
    verbose : int, default 0
        1 shows progress.

    Attributes
    ----------
    alpha_ : float
        The best ridge.
    gamma_ : float or None
        The best bandwidth; None if no gammas were given.
    best_rmse_ : float
        The cross-validated root mean square error of the best combination. With a learned kernel,
        the error on rows that had no part in any choice: a fifth of the rows, or of fewer than
        1,000 rows all, by folds that repeat the choice; with ``plan``, each from all others. The
        spread of all targets corrects for what those rows happen to be (a regression estimate),
        unless there are groups or times.
    cv_results_ : dict of ndarray
        "gamma", "alpha" and "rmse" of every combination; ``plots.plot_ridge_path`` draws them.
        With a learned kernel, every family and width that was tried, without a gamma; errors are
        in units of the transformed target. With ``plan``, those of the fit that made it.
    target_transform_ : TargetTransform or None
        What the ridge is fitted to; None is the target as it is.
    linear_ : LinearPart or None
        A linear function that is added to what the ridge predicts, where that pays.
    plan_ : Plan or None
        Everything that was decided for a learned kernel, in words if it is printed.
    model_ : KernelRidge
        The ridge with the best combination, fitted to all rows and their transformed targets.
    features_ : FeatureMap
        The fitted map of ``model_``.
    coef_ : ndarray of shape (n_components,) or (n_components, n_outputs)
        Coefficients of ``model_``.
    intercept_ : float or ndarray of shape (n_outputs,)
        Intercept of ``model_``.
    kernel_ : Kernel
        The kernel of ``features_``.
    kernel_shares_ : ndarray of shape (d,)
        The share of each column in the logarithm of the kernel of two rows that are a deviation
        apart in every column, for product kernels.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if X had names.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import KernelRidgeCV, RowNormFeatures
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = KernelRidgeCV(RowNormFeatures(50, random_state=0), gammas=[0.01, 0.1])
    >>> float(model.fit(X, np.sin(X[:, 0])).gamma_)
    0.1
    >>> learned = KernelRidgeCV(random_state=0).fit(X, np.sin(3 * X[:, 1]))
    >>> learned.kernel_shares_.round(1)
    array([0., 1., 0.])
    """

    _state_parameters: ClassVar = dict.fromkeys(
        ("alphas", "gammas"), plain(int, float, list, tuple, np.ndarray, None)
    ) | {"plan": instance(Plan, None)}
    _state_fields: ClassVar = {
        "features_": None,
        "model_": instance(KernelRidge, fitted=True, d="n_features_in_"),
        "alpha_": number(0.0),
        "gamma_": optional(number(0.0)),
        "best_rmse_": number(),
        "target_transform_": instance(TargetTransform, None),
        "linear_": optional(instance(LinearPart, d="n_columns")),
        "plan_": instance(Plan, None),
        "cv_results_": table(
            {
                "gamma": list_of(optional(number())),
                "alpha": array("trials"),
                "rmse": array("trials", finite=False),
            }
        ),
    }
    _not_stored: ClassVar = dict.fromkeys(("features_", "coef_", "intercept_"), "of model_")

    def _state_values(self) -> dict[str, Any]:
        results = {**self.cv_results_, "gamma": self.cv_results_["gamma"].tolist()}
        return super()._state_values() | {"cv_results_": results}

    def _complete(self) -> None:
        gammas = self.cv_results_["gamma"]
        if len(gammas) != len(self.cv_results_["alpha"]):
            wrong("cv_results_", f"have {len(gammas)} gammas")
        self.cv_results_["gamma"] = np.array(gammas, dtype=object)
        self.features_ = self.model_.features_
        self.coef_, self.intercept_ = self.model_.coef_, self.model_.intercept_

    def __init__(
        self,
        features: FeatureMap | None = None,
        *,
        alphas: Any = None,
        gammas: Any = None,
        cv: Any = None,
        max_order: int | None = None,
        target_transform: str | None = "auto",
        plan: Plan | None = None,
        fit_intercept: bool = True,
        time_limit: float | None = None,
        block_rows: int | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.features = features
        self.alphas = alphas
        self.gammas = gammas
        self.cv = cv
        self.max_order = max_order
        self.target_transform = target_transform
        self.plan = plan
        self.fit_intercept = fit_intercept
        self.time_limit = time_limit
        self.block_rows = block_rows
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        order: Any = None,
    ) -> Self:
        """Learn the kernel, or try all combinations, and fit the best one to all rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d), or Source
        y : array-like of shape (n,) or (n, n_outputs), optional
            Targets; None takes those of a source.
        sample_weight : array-like of shape (n,), optional
            Multiplies the squared errors, those of the validation, too.
        groups : array-like of shape (n,), optional
            While the kernel is learned, rows of one group (a patient, a customer) are never split
            between those that choose and those that judge.
        order : array-like of shape (n,), optional
            Times: while the kernel is learned, rows that judge are later than rows that choose.

        Returns
        -------
        self
        """
        alphas = self._checked_alphas()
        transform = check_choice(self.target_transform, "target_transform", (None, "auto", *NAMES))
        given = self._numeric(X, y, sample_weight)
        rows = columns_of(given)
        nothing_chosen = self.features is None and self.gammas is None and self.cv is None
        max_order = checked_order(self.max_order, nothing_chosen, rows)
        if self.plan is not None or (nothing_chosen and not rows.sparse and rows.shape[0] > 1):
            if transform in NAMES and rows.target_shape != (1,):
                raise ValueError(
                    f"target_transform={transform!r} is for a single target: transform the columns "
                    "of y before the fit"
                )
            return self._fit_plan(rows, given.target_shape == (), groups, order, max_order)
        if transform in NAMES:
            raise ValueError(
                f"target_transform={transform!r} is for a learned kernel of dense rows: leave out "
                "features, gammas and cv, or wrap the model in scikit-learn's "
                "TransformedTargetRegressor"
            )
        self.target_transform_: TargetTransform | None = None
        self.linear_: LinearPart | None = None
        self.plan_: Plan | None = None
        if groups is not None or order is not None:
            raise ValueError(
                "groups and order are for learned kernels: with features, gammas or cv given, pass "
                "cv=, for instance a list of splits of sklearn's GroupKFold or TimeSeriesSplit"
            )
        # The default map is ours, so its draws are, too.
        seed = {"random_state": root_seed(self.random_state)} if self.features is None else {}
        base = self._fresh_features(alpha=float(np.sqrt(alphas[0] * alphas[-1])), **seed)
        errors = partial(
            search,
            base,
            rows,
            cv=list(self.cv) if isinstance(self.cv, Iterator) else self.cv,
            fit_intercept=self.fit_intercept,
            fit=self._fit_map,
            block_rows=rows_per_block(self.block_rows, rows.shape[0]),
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )
        may_go_on = ["alpha"] if self.alphas is None else []
        found = search_on(errors, alphas, self._checked_gammas(), may_go_on)
        warn_of_ends(found, stacklevel=3)
        self.gamma_, self.alpha_ = found.gamma, found.alpha
        self.best_rmse_ = float(finite(found.rmse.min(keepdims=True), "the errors").item())
        self.cv_results_ = found.table()
        best = self._fresh_features(**seed)
        if self.gamma_ is not None:
            best.set_params(gamma=self.gamma_)
        self.model_ = self._ridge(best, self.alpha_).fit(given)
        self.features_ = self.model_.features_
        self.coef_, self.intercept_ = self.model_.coef_, self.model_.intercept_
        return self

    def _fit_plan(
        self, rows: Source, single: bool, groups: Any, order: Any, max_order: int | None
    ) -> Self:
        """Choose what to fit, if no plan was given, and fit it to all rows."""
        judge = Judge(
            rows.shape[0],
            root_seed(self.random_state),
            groups=None if groups is None else np.asarray(groups),
            order=None if order is None else np.asarray(order),
        )
        budget, plan = Budget(self.time_limit), self.plan
        if plan is None:
            plan = choose(rows, judge, budget.for_choice(rows.shape[0]), self._wanted(max_order))
        else:
            self._check_plan(plan, rows)
            plan = plan.for_other_rows()
        found = execute(
            plan,
            rows,
            self._ridge(None, 1.0),
            judge,
            budget,
            single=single,
            # Neighbours would tell too much where rows belong together.
            correct=self.plan is None and judge.free and max_order is None,
        )
        self.plan_, report = found.plan, found.plan.report
        assert report is not None  # execution has measured the error
        assert report.error is not None
        self.cv_results_ = {
            "gamma": np.full(len(report.alphas), None, dtype=object),
            "alpha": report.alphas,
            "rmse": report.errors,
        }
        self.best_rmse_ = report.error
        self.target_transform_, self.linear_ = found.plan.transform, found.linear
        self.gamma_, self.alpha_, self.model_ = None, found.plan.alpha, found.model
        self.features_ = self.model_.features_
        self.coef_, self.intercept_ = self.model_.coef_, self.model_.intercept_
        return self

    def _wanted(self, max_order: int | None) -> Wanted:
        return Wanted(
            alphas=None if self.alphas is None else self._checked_alphas(),
            fit_intercept=self.fit_intercept,
            max_order=max_order,
            transform=self.target_transform,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )

    def _check_plan(self, plan: Plan, rows: Source) -> None:
        """Refuse a plan for another task or for other columns."""
        transform = None if self.target_transform == "auto" else self.target_transform
        given = {
            "features": self.features,
            "alphas": self.alphas,
            "gammas": self.gammas,
            "cv": self.cv,
            "max_order": self.max_order,
            "target_transform": transform,
        }
        check_plan(plan, rows, given, classes=False)

    def _ridge(self, features: FeatureMap | None, alpha: float) -> KernelRidge:
        return KernelRidge(
            features,
            alpha=alpha,
            fit_intercept=self.fit_intercept,
            block_rows=self.block_rows,
            n_jobs=self.n_jobs,
        )

    def _fit_map(self, features: FeatureMap, rows: Source) -> tuple[FeatureMap, NormalEquations]:
        """Fit a map as the ridge does; also the normal equations of the targets on it."""
        model = self._ridge(features, alpha=float(np.min(self._checked_alphas())))
        model._fit_features(rows)
        return model.features_, accumulate(model.passes, rows)

    def _checked_alphas(self) -> NDArray[np.float64]:
        if self.alphas is None:
            return np.logspace(-3, 3, 13)
        why = "each is added to the kernel's diagonal"
        return np.sort(positive_numbers(self.alphas, "alphas", why))

    def _checked_gammas(self) -> list[float | None]:
        if self.gammas is None:
            return [None]
        why = "each is the inverse square of a length"
        return positive_numbers(self.gammas, "gammas", why).tolist()

    @lazy_on_dask
    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the targets of rows with the best model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d), or Source
        return_std : bool, default False
            Whether to return the standard deviation of a new observation, too.

        Returns
        -------
        mean : ndarray of shape (n,) or (n, n_outputs)
        deviation : ndarray of the same shape, if return_std
            See `KernelRidge.predict`.
        """
        check_is_fitted(self)
        rows, transform = as_source(self._valid_rows(X)), self.target_transform_
        predicted = self.model_.predict(rows, return_std=return_std)
        if self.linear_ is not None:
            predicted = self._plus_linear(self.linear_, rows, predicted, return_std)
        return predicted if transform is None else transform.back(predicted, return_std)

    def learned_target(self, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
        """What the ridge is fitted to: the transformed target, less the linear part.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        y : ndarray of shape (n,)

        Returns
        -------
        ndarray of shape (n,)
        """
        check_is_fitted(self)
        values = np.asarray(y, dtype=np.float64)
        values = values if self.target_transform_ is None else self.target_transform_(values)
        return values if self.linear_ is None else values - self.linear_(X)[:, 0]

    def with_ridge(self, ridge: KernelRidge) -> Self:
        """Return the same model with another fitted ridge on the same features.

        Parameters
        ----------
        ridge : KernelRidge
            Fitted to what ``learned_target`` gives.

        Returns
        -------
        KernelRidgeCV
        """
        other = copy.copy(self)
        other.model_, other.features_ = ridge, ridge.features_
        other.coef_, other.intercept_ = ridge.coef_, ridge.intercept_
        return other

    def _plus_linear(
        self, linear: LinearPart, rows: Source, predicted: Any, with_deviation: bool
    ) -> Any:
        """What the kernel predicts, and the linear part."""
        mean = predicted[0] if with_deviation else predicted
        size = rows_per_block(self.block_rows, rows.shape[0])
        parts = np.concatenate(list(rows.map(partial(_linear_block, linear), size, 1)))
        mean = mean + parts.reshape(mean.shape).astype(mean.dtype)
        return (mean, predicted[1]) if with_deviation else mean

    def predictor(self) -> Predictor:
        """Return a function of one row that predicts as quickly as possible, for servers.

        Returns
        -------
        Predictor
            See `KernelRidge.predictor`.
        """
        check_is_fitted(self)
        predictor, transform, linear = self.model_.predictor(), self.target_transform_, self.linear_
        if linear is not None:
            predictor = predictor.plus(lambda row: linear(row)[0])
        return predictor if transform is None else predictor.then(transform.mean)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _linear_block(linear: LinearPart, block: Block) -> NDArray[np.float64]:
    return linear(block.X)
