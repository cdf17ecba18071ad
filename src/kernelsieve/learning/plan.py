"""Everything that is decided before the final fit, as one value."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelsieve._state import (
    Persistent,
    array,
    choice,
    flag,
    instance,
    names,
    number,
    optional,
    whole,
    wrong,
)
from kernelsieve.kernels import Anova, Product
from kernelsieve.kernels.matrix import product_work
from kernelsieve.learning.options import LearnOptions
from kernelsieve.learning.target_transform import TargetTransform

KINDS = ("exact", "iterative", "landmarks", "products", "Fourier")
LOSSES = ("squared error", "log loss")
METRICS = ("learned rates", "equal columns", "columns as they are")
SHOWN_SECONDS = 4

FAMILY_NAMES = {
    "laplacian": "Laplacian",
    "matern32": "Matern 3/2",
    "matern52": "Matern 5/2",
    "gaussian": "Gaussian",
    "categorical": "categorical",
}

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Solver(Persistent):
    """How the ridge of a kernel is solved.

    Attributes
    ----------
    kind : str
        "exact": one Cholesky factor of the kernel matrix. "iterative": conjugate gradients on the
        kernel matrix. "landmarks", "products" and "Fourier": the normal equations of features.
    size : int
        The number of features; of the exact solvers, those that the variance comes from.
    """

    kind: str
    size: int

    _state_fields: ClassVar = {"kind": choice(*KINDS), "size": whole(1)}

    @property
    def is_exact(self) -> bool:
        """Whether it is the ridge of the kernel itself."""
        return self.kind in ("exact", "iterative")

    def for_rows(
        self, kernel: Product | Anova, n_rows: int, n_columns: int, options: LearnOptions
    ) -> Solver:
        """The solver for another number of rows than it was chosen for."""
        if not self.is_exact:
            return replace(self, size=min(self.size, n_rows))
        if n_rows <= options.exact_rows:
            return Solver("exact", min(options.landmarks, n_rows))
        size = min(options.landmarks, n_rows)
        if product_work(kernel, n_rows, n_columns) <= options.full_work:
            return Solver("iterative", size)
        return Solver("landmarks", size)

    def words(self, n_rows: int) -> str:
        """What is done, as a person would tell it."""
        rows = f"{n_rows:,} rows"
        if self.kind == "exact":
            return f"exact solve of {rows}"
        if self.kind == "iterative":
            return f"exact kernel of {rows}, by conjugate gradients"
        return f"{self.size:,} {self.kind} on {rows}".replace("Fourier", "Fourier features")


@dataclass(frozen=True)
class Correction(Persistent):
    """How predictions of features are corrected by the nearest rows.

    Attributes
    ----------
    metric : str
        Which distance: along the learned rates, on columns of equal spread, or as they are.
    euclidean : bool
    of_targets : bool
        Whether the targets of the nearest rows are averaged, or their residuals.
    rate : float
        In units of one over the median distance of the last neighbour.
    noise : float
        Relative to the variance of the process.
    """

    metric: str
    euclidean: bool
    of_targets: bool
    rate: float
    noise: float

    _state_fields: ClassVar = {
        "metric": choice(*METRICS),
        "euclidean": flag,
        "of_targets": flag,
        "rate": number(0.0, 1e300),
        "noise": number(1e-9, 1e6),
    }

    def words(self) -> str:
        """What is done, as a person would tell it."""
        what = "targets" if self.of_targets else "residuals"
        return f"corrected by the {what} of the nearest rows ({self.metric})"


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows that had no part in any choice, and what was predicted of them without them.

    Attributes
    ----------
    rows : ndarray of int of shape (n,)
        Their numbers, in ascending order.
    targets : ndarray of shape (n, m)
        As the model was asked for them; signs of classes.
    predicted : ndarray of shape (n, m)
        Each row from all others: predictions of the target, or scores of the classes.
    apart : ndarray of shape (n, m)
        All of them from the other rows, as other models are judged.
    """

    rows: NDArray[np.int64]
    targets: Array
    predicted: Array
    apart: Array


@dataclass(frozen=True)
class Report(Persistent):
    """What the choice was based on.

    Attributes
    ----------
    n_rows : int
        Rows that the model was fitted to.
    n_held_out : int
        Rows that had no part in any choice.
    error : float or None
        There: the root mean square error in units of the target; None for classes.
    spread : float or None
        The standard deviation of the target.
    candidates : ndarray of str
        Kernels that were tried.
    alphas, errors : ndarray
        Of these, in units of the standard deviation of what was learned.
    seconds : dict of str to float
        What each step took. It is not stored in model files.
    held_out : HeldOut or None
        It is not stored in model files.
    """

    n_rows: int
    n_held_out: int
    error: float | None
    spread: float | None
    candidates: NDArray[np.object_]
    alphas: Array
    errors: Array
    seconds: dict[str, float] = field(default_factory=dict, compare=False)
    held_out: HeldOut | None = field(default=None, compare=False)

    _state_fields: ClassVar = {
        "n_rows": whole(1),
        "n_held_out": whole(),
        "error": optional(number(0.0)),
        "spread": optional(number(0.0)),
        "candidates": names("tried"),
        "alphas": array("tried"),
        "errors": array("tried", finite=False),
    }


@dataclass(frozen=True, repr=False)
class Plan(Persistent):
    """What a default fit has decided: ``KernelRidgeCV(plan=plan)`` executes it without a search.

    Attributes
    ----------
    kernel : Product or Anova
    alpha : float
        The ridge; of the log loss its penalty in units of the variance of the scores.
    solver : Solver
    transform : TargetTransform or None
        What is learned in place of the target.
    linear : bool
        Whether a linear part comes before the kernel.
    loss : "squared error" or "log loss"
    alpha_is_relative : bool
        Whether the log loss multiplies alpha by the variance of the kernel's scores.
    correction : Correction or None
        By the nearest rows.
    classes : bool
        Whether the targets are signs of classes.
    report : Report

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import KernelRidgeCV
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> model = KernelRidgeCV(random_state=0).fit(X, np.sin(3 * X[:, 1]))
    >>> again = KernelRidgeCV(plan=model.plan_).fit(X, np.sin(3 * X[:, 1]))
    >>> bool(np.allclose(model.predict(X), again.predict(X)))
    True
    """

    kernel: Product | Anova
    alpha: float
    solver: Solver
    transform: TargetTransform | None = None
    linear: bool = False
    loss: str = "squared error"
    alpha_is_relative: bool = False
    correction: Correction | None = None
    classes: bool = False
    report: Report | None = None

    _state_fields: ClassVar = {
        "kernel": instance(Product, Anova),
        "alpha": number(0.0),
        "solver": instance(Solver),
        "transform": instance(TargetTransform, None),
        "linear": flag,
        "loss": choice(*LOSSES),
        "alpha_is_relative": flag,
        "correction": instance(Correction, None),
        "classes": flag,
        "report": instance(Report, None),
    }

    def _complete(self) -> None:
        if self.alpha <= 0.0:
            wrong("alpha", f"is {self.alpha}, not above 0")

    def for_other_rows(self) -> Plan:
        """The same decisions, without what was predicted of the rows that made them."""
        if self.report is None:
            return self
        return replace(self, report=replace(self.report, held_out=None))

    def shifted(self, shifts: Array) -> Plan:
        """The same with shifts added to the scores of held-out rows."""
        report = self.report
        if report is None or report.held_out is None:
            return self
        held = report.held_out
        moved = replace(held, predicted=held.predicted + shifts, apart=held.apart + shifts)
        return replace(self, report=replace(report, held_out=moved))

    def __str__(self) -> str:
        return self.words(error=True)

    def words(self, error: bool) -> str:
        """What was decided, as a person would tell it; with the error that is expected, if any."""
        report = self.report
        parts = [] if self.transform is None else [self.transform.label("target")]
        if self.linear:
            parts.append("linear part")
        parts.append(kernel_words(self.kernel))
        parts.append(self.solver.words(report.n_rows) if report else self.solver.kind)
        if self.classes:
            parts.append(self.loss)
        if self.correction is not None:
            parts.append(self.correction.words())
        if error and report is not None and report.error is not None:
            parts.append(f"RMSE about {report.error:.4g}, from {report.n_held_out:,} held-out rows")
        if report is not None and report.seconds:
            parts.append(seconds_words(report.seconds))
        return "; ".join(parts)

    def __repr__(self) -> str:
        return f"<Plan: {self}>"


def kernel_words(kernel: Product | Anova) -> str:
    """A learned kernel in a few words: "Matern 3/2 on 9 of 14 columns"."""
    base = kernel.base if isinstance(kernel, Anova) else kernel
    n_columns = len(base.rates)
    active = base.active(n_columns)
    families = [FAMILY_NAMES[base.families_for(n_columns)[i]] for i in active]
    named = " and ".join(dict.fromkeys(families)) or "constant"
    of = (
        f"{len(active)} of {n_columns} columns"
        if len(active) < n_columns
        else f"{n_columns} columns"
    )
    effects = ""
    if isinstance(kernel, Anova):
        n_parts = int(np.count_nonzero(np.asarray(kernel.variances)))
        effects = f"{n_parts} effects of up to {max(map(len, kernel.subsets))} columns, "
    return f"{effects}{named} kernel on {of}"


def seconds_words(seconds: dict[str, float]) -> str:
    """The time in all, and the longest steps: "3.1 s (likelihood 1.2, judging kernels 0.8)"."""
    longest = sorted(seconds.items(), key=lambda item: -item[1])[:SHOWN_SECONDS]
    steps = ", ".join(f"{name} {value:.1f}" for name, value in longest if value >= 0.05)
    total = f"{sum(seconds.values()):.1f} s"
    return f"{total} ({steps})" if steps else total
