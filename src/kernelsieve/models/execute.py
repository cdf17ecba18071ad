"""From a plan to a fitted ridge: each solver runs once, on all rows."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kernelsieve._random import keyed_rows
from kernelsieve.features import AdaptiveFeatures, FeatureMap, FourierFeatures, NystromFeatures
from kernelsieve.kernels import Anova, Kernel, Product
from kernelsieve.learning.budget import Budget
from kernelsieve.learning.held_out import reported_error, rows_set_apart
from kernelsieve.learning.judge import Judge
from kernelsieve.learning.linear_part import LinearPart
from kernelsieve.learning.log_loss import JUDGED_ROWS, matrix, spread
from kernelsieve.learning.neighbour_search import least_seconds
from kernelsieve.learning.neighbours import LocalCorrection
from kernelsieve.learning.options import LearnOptions
from kernelsieve.learning.plan import Correction, HeldOut, Plan, Report, Solver
from kernelsieve.learning.solver import pays
from kernelsieve.learning.target_transform import TargetTransform
from kernelsieve.linalg.left_out import solve_judged
from kernelsieve.models._base import like
from kernelsieve.models._log_loss import log_loss_on_features, log_loss_on_kernel
from kernelsieve.models.full_kernel import FullKernel, Stop, pivots
from kernelsieve.models.kernel_ridge import KernelRidge
from kernelsieve.models.ridge_local import correction_by, try_correction, why_not_local
from kernelsieve.models.ridge_refine import (
    AUTO_SHARE,
    LOCAL_WORTH,
    ExactRidge,
    judge_tol,
    solve_exactly,
    trials,
)
from kernelsieve.models.ridge_solve import left_out_residuals
from kernelsieve.sources.base import Block, Source
from kernelsieve.sources.changed import recoded

EXACT_FEATURES = 1000  # of an exact ridge: what its predictive variance comes from
# From the largest on, which is the quickest to solve for, to that of the plan. The alpha of a few
# thousand rows without noise may be too small to solve for with all.
ALPHA_STEPS = (16.0, 1.0)
FEWEST_FEATURES = 100
TIMED_ROWS, TIMED_FEATURES = 2048, 1000
MAPS: dict[str, type[FeatureMap]] = {
    "exact": NystromFeatures,
    "landmarks": NystromFeatures,
    "products": AdaptiveFeatures,
    "Fourier": FourierFeatures,
}

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Executed:
    """A fitted plan.

    Attributes
    ----------
    model : KernelRidge
        Of the transformed target, less the linear part.
    linear : LinearPart or None
    plan : Plan
        With what its execution has measured.
    held : HeldOut
        Rows that had no part in any choice, in units of the target; scores of classes.
    calibration : HeldOut
        Rows whose scores tell how sharp those of the model are.
    """

    model: KernelRidge
    linear: LinearPart | None
    plan: Plan
    held: HeldOut
    calibration: HeldOut


def execute(
    plan: Plan,
    rows: Source,
    ridge: KernelRidge,
    judge: Judge,
    budget: Budget,
    *,
    single: bool,
    correct: bool = False,
    options: LearnOptions | None = None,
) -> Executed:
    """Fit what a plan says to all rows.

    Parameters
    ----------
    plan : Plan
        It may have been made for other rows with the same columns.
    rows : Source
        Dense, with targets of shape (n, m); signs for a log loss.
    ridge : KernelRidge
        Not fitted; what is set in it stays, but for features, alpha and refine.
    judge : Judge
        Sets rows apart that report the error. Its seed is that of everything here.
    budget : Budget
        It counts the seconds of each step, and ends iterations.
    single : bool
        Whether there is a single target, which predictions have no axis for.
    correct : bool
        Whether a correction by the nearest rows is tried, and decided by held-out rows.

    Returns
    -------
    Executed
    """
    options = LearnOptions() if options is None else options
    n, d = rows.shape
    transform = None if plan.transform is None else plan.transform.covering(rows)
    shown = rows if transform is None else transform.of_rows(rows)
    linear = None
    if plan.linear and rows.resident:
        with budget.step("linear part"):
            linear = LinearPart.of(shown, judge.seed)
            shown = linear.beside(shown)
    solver = plan.solver.for_rows(plan.kernel, n, d, options)
    plan = replace(plan, solver=solver, transform=transform, linear=linear is not None)
    unseen = rows_set_apart(n, judge, options).judge
    run = _Run(plan, shown, clone(ridge), judge.seed, unseen, budget, single, judge, options)
    found = run.log_loss() if plan.loss == "log loss" else run.squares(correct)
    plan = replace(plan, correction=found.correction, solver=found.solver or solver)
    held = _in_units(found.held, rows, linear, transform)
    known = plan.report.held_out if plan.report is not None else None
    if known is not None:  # folds that repeated the choice
        held = known
    report = _report(plan, rows, held, judge, budget)
    plan = replace(plan, alpha=found.alpha, report=report)
    return Executed(found.model, linear, plan, held, found.calibration or found.held)


@dataclass(frozen=True)
class _Found:
    """A fitted ridge, and what it leaves at the held-out rows."""

    model: KernelRidge
    held: HeldOut
    alpha: float
    correction: Correction | None = None
    solver: Solver | None = None
    calibration: HeldOut | None = None


@dataclass(frozen=True)
class _Run:
    """One plan on rows whose targets are as the ridge takes them, in columns."""

    plan: Plan
    rows: Source
    ridge: KernelRidge
    seed: int
    unseen: Rows
    budget: Budget
    single: bool
    judge: Judge
    options: LearnOptions

    def squares(self, correct: bool) -> _Found:
        """The ridge, by the solver of the plan."""
        if self.plan.solver.kind == "exact":
            return self._exact()
        if self.plan.solver.kind == "iterative" and len(self.unseen):  # they end the iterations
            return self._iterative(correct)
        return self._on_features(correct)

    # --- squared errors ----------------------------------------------------------------------

    def _features(self, kind: str, alpha: float) -> FeatureMap:
        size, shared = (
            self.plan.solver.size,
            {"random_state": self.seed, "n_jobs": self.ridge.n_jobs},
        )
        size = min(size, EXACT_FEATURES) if kind == "exact" else size
        return MAPS[kind](size, kernel=self.plan.kernel, alpha=alpha, **shared)

    def _prepared(self, features: FeatureMap, alpha: float, refine: bool | str) -> KernelRidge:
        """The ridge on features; an exact solution takes its place."""
        model = clone(self.ridge).set_params(features=features, alpha=alpha, refine=refine)
        return model.fit_features(self._given(), new=True)

    def _given(self) -> Source:
        return recoded(self.rows, _first, ()) if self.single else self.rows

    def _exact(self) -> _Found:
        """One Cholesky factor of the kernel matrix, for all rows and for the held-out ones."""
        alpha = self.plan.alpha
        model = self._prepared(self._features("exact", alpha), alpha, True)
        n = self.rows.shape[0]
        judges = self.unseen if len(self.unseen) else np.arange(n)
        with self.budget.step("exact solve"):
            whole = self.rows.take(np.arange(n))
            X = whole.X.astype(np.float64, copy=False)
            gram = model.features_.kernel_.between(X, X, self.ridge.n_jobs)
            solved = solve_judged(
                gram, whole.y, whole.weights, alpha, self.ridge.fit_intercept, judges
            )
        model.adopt_exact(ExactRidge(whole.X, solved.dual, solved.intercepts))
        if not len(self.unseen) and not self.judge.free:  # a neighbour would tell too much
            return _Found(model, self._held_by_folds(gram, whole), alpha)
        targets = whole.y[judges]
        held = HeldOut(judges, targets, targets - solved.left_out, targets - solved.apart)
        return _Found(model, held, alpha)

    def _held_by_folds(self, gram: Array, whole: Block) -> HeldOut:
        """Rows of folds that the groups or the times allow, predicted from those that choose."""
        nobody = np.empty(0, dtype=np.int64)
        kept, found = [nobody], [np.empty((0, whole.y.shape[1]))]
        for known, apart in self.judge.folds(min(self.options.folds, len(whole))):
            some = whole.take(known)
            solved = solve_judged(
                gram[np.ix_(known, known)],
                some.y,
                some.weights,
                self.plan.alpha,
                self.ridge.fit_intercept,
                nobody,
            )
            kept.append(apart)
            found.append(gram[np.ix_(apart, known)] @ solved.dual + solved.intercepts)
        rows, predicted = np.concatenate(kept), np.concatenate(found)
        order = np.argsort(rows)
        rows, predicted = rows[order], predicted[order]
        return HeldOut(rows, whole.y[rows], predicted, predicted)

    def _iterative(self, correct: bool) -> _Found:
        """Conjugate gradients on all rows but the held-out ones, and on from there on all."""
        n, alpha, unseen = self.rows.shape[0], self.plan.alpha, self.unseen
        landmarks = pivots(self.plan.kernel, n, self.seed, self.ridge.n_jobs)
        with self.budget.step("landmarks"):
            model = self._prepared(landmarks, alpha, True)
        known = np.setdiff1d(np.arange(n), unseen)
        apart = self.rows.take(unseen)
        with self.budget.step("iterations"):
            passes, intercept = model.passes, self.ridge.fit_intercept
            full = FullKernel.of(passes, n, alpha, intercept, self.seed)
            some = self.rows.take(known)
            most = full.most_iterations(some)
            tol = judge_tol(apart.y - apart.y.mean(axis=0), apart.y)
            stop = Stop(tol, most, self.budget.deadline, quiet=True)
            falling = [alpha * step for step in ALPHA_STEPS]
            solved = trials(full, some, apart, falling, stop)
        trial = next((one for one in reversed(solved) if one.unsolved <= tol), None)
        if trial is None:  # rounding, or the time, has stopped the iterations
            solver = Solver("landmarks", self.plan.solver.size)
            return replace(self, plan=replace(self.plan, solver=solver))._on_features(correct)
        with self.budget.step("iterations"):
            alpha = trial.alpha
            start = np.zeros((n, trial.dual.shape[1]))
            start[known] = trial.dual
            tol = judge_tol(trial.residuals, apart.y)
            stop = Stop(AUTO_SHARE * tol, most, self.budget.deadline, quiet=True)
            model.adopt_exact(solve_exactly(replace(full, alpha=alpha), self.rows, stop, start))
        predicted = apart.y - trial.residuals
        return _Found(model, HeldOut(unseen, apart.y, predicted, predicted), alpha)

    def _on_features(self, correct: bool) -> _Found:
        """The normal equations of features; corrected by the nearest rows where that pays."""
        plan, solver = self.plan, self.plan.solver
        size = solver.size
        if math.isfinite(self.budget.deadline):
            size = _affordable_size(self.rows.shape, size, self.budget.left(), plan.kernel)
        run = replace(self, plan=replace(plan, solver=Solver(solver.kind, size)))
        with self.budget.step("features and solve"):
            model = run._prepared(run._features(solver.kind, plan.alpha), plan.alpha, False)
        judges = self.unseen if len(self.unseen) else np.arange(self.rows.shape[0])
        truth = self.rows.take(judges)
        with self.budget.step("error"):
            residuals = left_out_residuals(model.on_features, truth)
        held = HeldOut(judges, truth.y, truth.y - residuals, truth.y - residuals)
        near = why_not_local(model.on_features, self.rows) is None
        if plan.correction is not None and near:
            with self.budget.step("nearest rows"):
                local = correction_by(model.on_features, self.rows, plan.correction)
            return _Found(
                _corrected_by(model, local), held, plan.alpha, plan.correction, run.plan.solver
            )
        in_time = least_seconds(self.rows.shape[0]) <= self.budget.left()
        if correct and in_time and len(judges) > 1 and near:
            with self.budget.step("nearest rows"):
                return replace(self._corrected(model, held), solver=run.plan.solver)
        return _Found(model, held, plan.alpha, None, run.plan.solver)

    def _corrected(self, model: KernelRidge, held: HeldOut) -> _Found:
        """The ridge with a correction, if that pays at half of the held-out rows."""
        decide = np.arange(len(held.rows)) % 2 == 0
        alpha = self.plan.alpha
        trial = try_correction(
            model.on_features, self.rows, held.rows, decide, self.budget.deadline
        )
        if trial is None:
            return _Found(model, held, alpha)
        rows = held.rows[trial.judged]
        before = (held.targets - held.predicted)[trial.judged]
        say = decide[trial.judged]
        weights = self.rows.take(rows[say]).weights
        if not pays(trial.residuals[say], before[say], weights, LOCAL_WORTH):
            return _Found(model, held, alpha)
        tell = ~say
        targets = held.targets[trial.judged][tell]
        predicted = targets - trial.residuals[tell]
        told = HeldOut(rows[tell], targets, predicted, predicted)
        return _Found(_corrected_by(model, trial.correction), told, alpha, trial.settings)

    # --- log loss ----------------------------------------------------------------------------

    def log_loss(self) -> _Found:
        """Coefficients that minimise the penalised log loss."""
        plan, kind = self.plan, self.plan.solver.kind
        free = plan.alpha_is_relative
        if kind == "exact":
            ridge_alpha = 1.0 if free else plan.alpha
            model = self._prepared(self._features("exact", ridge_alpha), ridge_alpha, True)
            with self.budget.step("log loss"):
                held, near = log_loss_on_kernel(model, plan, self.rows, self.unseen, self.judge)
            return _Found(model, held, plan.alpha, calibration=near)
        if kind == "iterative":
            run = replace(self, plan=replace(plan, solver=Solver("landmarks", plan.solver.size)))
            return run.log_loss()
        with self.budget.step("log loss"):
            penalty = plan.alpha
            if free:
                penalty *= _spread(plan.kernel, self.rows, self.seed)
            model = self._prepared(self._features(kind, penalty), penalty, False)
            model, held = log_loss_on_features(model, self.rows, self.unseen, penalty, self.judge)
        return _Found(model, held, plan.alpha, solver=plan.solver)


def _corrected_by(model: KernelRidge, correction: LocalCorrection) -> KernelRidge:
    """The same ridge, corrected by the nearest rows."""
    return like(model, {"refine": "local"}, local_=correction)


def check_plan(plan: Plan, rows: Source, given: dict[str, Any], *, classes: bool) -> None:
    """Refuse a plan for another task, for other columns, or beside what it decides."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} is decided by the plan: leave out {name} or plan")
    kernel = plan.kernel.base if isinstance(plan.kernel, Anova) else plan.kernel
    columns = np.size(kernel.rates)
    if columns not in (1, rows.shape[1]):
        raise ValueError(
            f"the plan is for rows of {columns} columns, and X has {rows.shape[1]}: fit without "
            "plan= to learn a new one"
        )
    if rows.sparse:
        raise ValueError("a plan is for dense rows: pass X.toarray()")
    if plan.classes != classes:
        model = "KernelRidgeClassifier" if plan.classes else "KernelRidgeCV"
        raise ValueError(f"the plan was made by a {model}: pass it to one")
    if plan.transform is not None and rows.target_shape != (1,):
        raise ValueError(
            f"the plan learns {plan.transform.label()}, a single target, and y has "
            f"{rows.target_shape[0]} columns: fit without plan= to learn a new one"
        )


def _first(y: Any, weights: Any) -> tuple[Array, Any]:
    """Targets of one column without their axis."""
    return y[:, 0], weights


def _spread(kernel: Kernel, rows: Source, seed: int) -> float:
    """The variance of scores in the space of a kernel, on some rows."""
    some = np.sort(keyed_rows(rows.shape[0], JUDGED_ROWS, seed, "log loss"))
    X = rows.take(some).X
    return spread(matrix(kernel, X, X))


def _in_units(
    held: HeldOut, rows: Source, linear: LinearPart | None, transform: TargetTransform | None
) -> HeldOut:
    """Predictions of the target itself at the held-out rows."""
    if linear is None and transform is None:
        return held
    block = rows.take(held.rows)
    more = 0.0 if linear is None else linear(block.X)
    back = [values + more for values in (held.predicted, held.apart)]
    if transform is not None:
        back = [transform.mean(values) for values in back]
    return HeldOut(held.rows, block.y, *back)


def _report(plan: Plan, rows: Source, held: HeldOut, judge: Judge, budget: Budget) -> Report:
    """The plan's report with the error of what was fitted."""
    before = plan.report
    if before is None:
        nothing = np.empty(0)
        before = Report(1, 0, None, None, nothing.astype(object), nothing, nothing)
    error = spread = None
    if not plan.classes:
        error = reported_error(held, rows, judge)
        spread = math.sqrt(float(np.mean(np.var(held.targets, axis=0))))
    return replace(
        before,
        n_rows=rows.shape[0],
        n_held_out=len(held.rows),
        error=error,
        spread=spread,
        seconds=dict(budget.seconds),
        held_out=held,
    )


def _affordable_size(
    shape: tuple[int, int], size: int, seconds: float, kernel: Product | Anova
) -> int:
    """As many features, up to ``size``, as a ridge on them is fitted in some seconds."""
    n_rows, n_columns = shape
    points = np.random.default_rng(0).normal(size=(TIMED_ROWS, n_columns)).astype(np.float32)
    few, block = min(size, FEWEST_FEATURES), np.ones((TIMED_ROWS, min(size, TIMED_FEATURES)))
    kernel.between(points[:1], points[:1])  # whatever is prepared once
    began = time.perf_counter()
    kernel.between(points, points[:few])
    of_kernel = (time.perf_counter() - began) * size / few
    began = time.perf_counter()
    block.T @ block
    of_products = (time.perf_counter() - began) * (size / block.shape[1]) ** 2
    needed = (of_kernel + 2.0 * of_products) * max(1.0, n_rows / TIMED_ROWS)
    if needed <= seconds:
        return size
    return max(min(size, FEWEST_FEATURES), int(size * math.sqrt(max(seconds, 0.0) / needed)))
