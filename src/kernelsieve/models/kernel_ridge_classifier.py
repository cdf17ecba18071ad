"""Classification by kernel ridge regression on +-1 targets, with calibrated probabilities."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, column_or_1d

from kernelsieve._random import root_seed
from kernelsieve._state import instance, wrong
from kernelsieve._validation import check_positive
from kernelsieve.features import FeatureMap
from kernelsieve.learning.budget import Budget
from kernelsieve.learning.choice import Wanted, choose
from kernelsieve.learning.judge import Judge
from kernelsieve.learning.plan import Plan
from kernelsieve.models._base import checked_order, columns_of
from kernelsieve.models.calibration import Calibration
from kernelsieve.models.classifier import FeatureClassifier, Signs
from kernelsieve.models.execute import check_plan, execute
from kernelsieve.models.kernel_ridge import KernelRidge
from kernelsieve.models.predictor import Scores, ridge_scores
from kernelsieve.models.ridge_solve import left_out_residuals
from kernelsieve.sources.base import Block, Source
from kernelsieve.sources.changed import recoded
from kernelsieve.sources.given import as_source, lazy_on_dask

CALIBRATION_ROWS = 20_000


class KernelRidgeClassifier(FeatureClassifier):
    """Classification by kernel ridge regression on +-1 targets, a column for each class.

    With a learned kernel the coefficients minimise the penalised log loss of the softmax, unless
    squared errors give clearly better probabilities at rows that were left out: by two standard
    errors of the difference.

    Parameters
    ----------
    features : FeatureMap, optional
        The map that stands for the kernel. None learns the kernel, as KernelRidgeCV does; for
        sparse rows it is AdaptiveFeatures().
    alpha : float, optional
        Added to the diagonal of the kernel matrix. None is chosen with the learned kernel, and 1
        for other kernels.
    max_order : int, optional
        Learn scores of parts of at most so many columns: 2 for main effects and pairs, which
        ``explain`` shows exactly. Only for a learned kernel, which is then an ``Anova``.
    plan : Plan, optional
        The ``plan_`` of an earlier fit: it is executed without a search, for other rows with the
        same columns.
    class_weight : dict, "balanced" or None
        Weight of the rows of each class; "balanced" gives all classes the same total weight.
    fit_intercept : bool, default True
        Whether to fit an intercept, which is not penalised.
    block_rows : int, default None
        Rows whose features each thread holds at a time; None takes up to 4096.
    time_limit : float, optional
        Seconds for learning the kernel and the fit that follows; None sets no limit.
    random_state : int, RandomState, Generator or None
        Draws the rows that the kernel is learned from, and the landmarks. A map that is given has
        its own.
    n_jobs : int, default all cores
        Number of threads.
    verbose : int, default 0
        1 shows progress.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, in ascending order.
    ridge_ : KernelRidge
        The scores. By squared errors they are a regression on the targets.
    plan_ : Plan or None
        Everything that was decided for a learned kernel, in words if it is printed.
    features_ : FeatureMap
        The fitted map.
    kernel_ : Kernel
        The kernel of ``features_``.
    kernel_shares_ : ndarray of shape (d,)
        The share of each column in the logarithm of the kernel of two rows that are a deviation
        apart in every column, for product kernels. All columns have the same where a kernel with
        equal rates predicts as well as the learned one.
    sharpness_ : float
        Factor of the scores inside the softmax that turns them into probabilities. It is fitted to
        rows that were left out, and so are shifts of the intercepts.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if X had names.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import KernelRidgeClassifier, RowNormFeatures
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = np.where((X**2).sum(axis=1) > 1.4, "far", "near")
    >>> model = KernelRidgeClassifier(RowNormFeatures(30, gamma=0.5, random_state=0), alpha=0.1)
    >>> model.fit(X, y).predict([[0.0, 0.0], [2.0, 2.0]]).tolist()
    ['near', 'far']
    >>> learned = KernelRidgeClassifier(random_state=0).fit(X, y)
    >>> learned.predict([[0.0, 0.0], [2.0, 2.0]]).tolist()
    ['near', 'far']
    """

    _state_parameters: ClassVar = {"plan": instance(Plan, None)}
    _state_fields: ClassVar = {
        "features_": None,
        "plan_": instance(Plan, None),
        "ridge_": instance(KernelRidge, fitted=True, d="n_features_in_"),
    }
    _not_stored: ClassVar = {"features_": "of ridge_"}

    def _complete(self) -> None:
        n_classes = len(self.classes_)
        if self.ridge_.coef_.shape[1:] != (() if n_classes == 2 else (n_classes,)):
            wrong("ridge_", f"does not have {n_classes} classes")
        self.features_ = self.ridge_.features_

    def __init__(
        self,
        features: FeatureMap | None = None,
        *,
        alpha: float | None = None,
        max_order: int | None = None,
        plan: Plan | None = None,
        class_weight: Any = None,
        fit_intercept: bool = True,
        time_limit: float | None = None,
        block_rows: int | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.features = features
        self.alpha = alpha
        self.max_order = max_order
        self.plan = plan
        self.class_weight = class_weight
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
        """Fit the map, the ridge and the calibration of probabilities.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d), or Source
        y : array-like of shape (n,), optional
            Labels; None takes those of a source.
        sample_weight : array-like of shape (n,), optional
            Multiplies the losses. A map that is given does not see it.
        groups : array-like of shape (n,), optional
            While the kernel is learned, rows of one group (a patient, a customer) are never split
            between those that choose and those that judge.
        order : array-like of shape (n,), optional
            Times: while the kernel is learned, rows that judge are later than rows that choose.

        Returns
        -------
        self
        """
        rows, labels = self._labelled(X, y, sample_weight)
        n_classes = len(self.classes_)
        weights = None if self.class_weight is None else labels.weights(self.class_weight)
        signs = Signs(self.classes_, weights)
        targets = recoded(rows, signs, () if n_classes == 2 else (n_classes,))
        ridge = KernelRidge(
            self.features,
            alpha=1.0 if self.alpha is None else self.alpha,
            fit_intercept=self.fit_intercept,
            solver="cholesky",
            block_rows=self.block_rows,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )
        self.plan_: Plan | None = None
        max_order = checked_order(self.max_order, self.features is None, rows)
        if self.plan is not None or (self.features is None and not rows.sparse):
            self._fit_plan(rows, targets, ridge, max_order, groups, order)
        elif groups is not None or order is not None:
            raise ValueError(
                "groups and order are for a learned kernel of dense rows: leave out features"
            )
        else:
            n = rows.shape[0]
            few = np.linspace(0, n - 1, min(n, CALIBRATION_ROWS)).astype(int)
            rows.expect(few)
            self.ridge_ = ridge.fit(targets)
            seen, signs_seen = rows.take(few), targets.take(few)
            residuals = left_out_residuals(self.ridge_.on_features, signs_seen, seen.weights)
            self._take(self._left_out_calibration(seen, signs_seen, residuals))
        self.features_ = self.ridge_.features_
        return self

    def _fit_plan(
        self,
        rows: Source,
        targets: Source,
        ridge: KernelRidge,
        max_order: int | None,
        groups: Any,
        order: Any,
    ) -> None:
        """Choose what to fit, fit it to all rows, and calibrate on rows that were left out."""
        n = rows.shape[0]
        labels = column_or_1d(rows.take(np.arange(n)).y) if rows.resident else None
        belongs, times = (None if one is None else np.asarray(one) for one in (groups, order))
        judge = Judge(n, root_seed(self.random_state), labels, belongs, times)
        budget, plan, columns = Budget(self.time_limit), self.plan, columns_of(targets)
        if plan is None:
            plan = choose(columns, judge, budget.for_choice(n), self._wanted(max_order))
        else:
            self._check_plan(plan, columns)
            plan = plan.for_other_rows()
        single = targets.target_shape == ()
        found = execute(plan, columns, ridge, judge, budget, single=single)
        self.plan_, self.ridge_ = found.plan, found.model
        held, outputs = found.calibration, targets.target_shape or ()
        seen, shape = rows.take(held.rows), (len(held.rows), *outputs)
        weights = targets.take(held.rows).weights
        calibration = self._calibration(seen.y, held.predicted.reshape(shape), weights)
        self._take(calibration)
        self.plan_ = found.plan.shifted(calibration.shifts)

    def _check_plan(self, plan: Plan, rows: Source) -> None:
        """Refuse a plan for another task or for other columns."""
        given = {"features": self.features, "alpha": self.alpha, "max_order": self.max_order}
        check_plan(plan, rows, given, classes=True)

    def _wanted(self, max_order: int | None) -> Wanted:
        alphas = None
        if self.alpha is not None:
            why = "it is added to the kernel's diagonal"
            alphas = np.array([check_positive(self.alpha, "alpha", why)])
        return Wanted(
            alphas=alphas,
            fit_intercept=self.fit_intercept,
            max_order=max_order,
            transform=None,
            classes=True,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )

    def _left_out_calibration(
        self, rows: Block, signs: Block, residuals: NDArray[np.float64]
    ) -> Calibration:
        """Calibrate with the scores that these residuals of the targets +-1 leave."""
        scores = signs.y - residuals.reshape(signs.y.shape)
        return self._calibration(rows.y, scores, signs.weights)

    def _take(self, calibration: Calibration) -> None:
        """The shifts become part of the intercepts, so that scores above 0 mean above 1/2."""
        self.sharpness_ = calibration.slope
        intercept = self.ridge_.intercept_ + calibration.shifts
        self.ridge_.intercept_ = float(intercept[0]) if len(self.classes_) == 2 else intercept

    @lazy_on_dask
    def decision_function(self, X: Any) -> NDArray[Any]:
        """Score the classes of rows: the larger the score, the likelier the class.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, d), or Source

        Returns
        -------
        ndarray of shape (n,) for two classes, (n, n_classes) for more
        """
        check_is_fitted(self)
        return self.ridge_.predict(as_source(self._valid_rows(X)))

    def _row_scores(self) -> Scores:
        return ridge_scores(self.ridge_)
