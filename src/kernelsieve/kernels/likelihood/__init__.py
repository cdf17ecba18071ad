"""Learning a product kernel from a target: families, warps and rates by likelihood."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._random import root_seed
from kernelsieve._validation import check_choice, check_count, check_positive
from kernelsieve.kernels.anova import Anova
from kernelsieve.kernels.likelihood.learner import (
    LEARNABLE,
    SCREENED_ROWS,
    Learner,
    best_of_families,
)
from kernelsieve.kernels.likelihood.parts import PartsFit, best_parts
from kernelsieve.kernels.likelihood.rates import WEAKEST, Fit
from kernelsieve.kernels.product import Product
from kernelsieve.sources.given import as_source

RULES = ("likelihood", "leave-one-out")


@dataclass(frozen=True)
class LearnedKernel:
    """A kernel that was learned, and what it was learned from.

    Attributes
    ----------
    kernel : Product, or Anova with ``max_order``
    alpha : float
        The ridge that goes with it on rows of weight 1: noise over amplitude.
    relevances : ndarray of shape (d,)
        The share of each column in the logarithm of the kernel of two rows that are a deviation
        apart in every column; with ``max_order`` in the variances of the parts.
    family : str
        Of the columns that are not categorical.
    value : float
        Negative log likelihood per row and output (or half the squared leave-one-out residual).
    rows : ndarray of int
        The rows that were looked at.
    trace : tuple of Fit or PartsFit
        Everything that was tried.
    """

    kernel: Product | Anova
    alpha: float
    relevances: NDArray[np.float64]
    family: str
    value: float
    rows: NDArray[np.int64]
    trace: tuple[Fit | PartsFit, ...]

    def __repr__(self) -> str:
        active = int((self.relevances > 0).sum())
        return (
            f"LearnedKernel({self.family}, {active} of {len(self.relevances)} columns, "
            f"alpha={self.alpha:.3g}, {len(self.rows):,} rows)"
        )


def learn(
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    n_rows: int = 1500,
    families: Sequence[str] = LEARNABLE,
    categorical: Sequence[int] = (),
    classification: bool = False,
    max_order: int | None = None,
    rule: str = "likelihood",
    time_limit: float | None = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> LearnedKernel:
    """Learn a product kernel by marginal likelihood on some of the rows.

    The target is taken for a Gaussian process. All families are tried on 500 rows, and the best
    one again on ``n_rows``. Each column gets a rate and a monotone warp, both by gradients of the
    likelihood; columns that do not matter get rate 0.

    Parameters
    ----------
    X : {array-like, CSR} of shape (n, d), or Source
    y : array-like of shape (n,) or (n, n_outputs), optional
        Outputs share the rates. None takes the target of a source.
    sample_weight : array-like of shape (n,), optional
    n_rows : int, default 1500
        Rows to learn from, drawn at random.
    families : sequence of str, default all four
        "laplacian", "matern32", "matern52" and "gaussian".
    categorical : sequence of int, default none
        Columns of codes, whose kernel looks at equality only.
    classification : bool, default False
        Whether y holds labels; each class is then coded by +1 and -1, and rare ones are drawn more
        often.
    max_order : int, optional
        Learn a kernel of parts of at most so many columns in place of a product of all: 2 for main
        effects and pairs. Each subset of columns has a variance, by marginal likelihood, too, and
        most fall to 0.
    rule : "likelihood" or "leave-one-out", default "likelihood"
    time_limit : float, optional
        Seconds after which the search stops with what there is.
    random_state : int, RandomState, Generator or None
    n_jobs : int, default all cores
    verbose : int, default 0
        1 shows progress.

    Returns
    -------
    LearnedKernel

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.kernels import learn
    >>> X = np.random.default_rng(0).normal(size=(300, 5))
    >>> learned = learn(X, np.sin(2 * X[:, 1]), families=["gaussian"], random_state=0)
    >>> learned.relevances.round(1)
    array([0., 1., 0., 0., 0.])
    >>> pairs = learn(X, X[:, 1] * X[:, 2], families=["gaussian"], max_order=2, random_state=0)
    >>> max(zip(pairs.kernel.variances, pairs.kernel.subsets))[1]
    (1, 2)
    """
    began = time.monotonic()
    check_choice(rule, "rule", RULES)
    check_count(n_rows, "n_rows", "it is the number of rows to learn from")
    if max_order is not None:
        check_count(max_order, "max_order", "it is the number of columns of the largest parts")
    if not families:
        raise ValueError("families=() is empty: name at least one")
    for family in families:
        check_choice(family, "families", LEARNABLE)
    deadline = np.inf
    if time_limit is not None:
        deadline = began + check_positive(time_limit, "time_limit", "it is a number of seconds")
    source = as_source(X)
    if y is not None:
        source = source.with_targets(np.asarray(y), sample_weight)
    learner = Learner.on(
        source,
        n_rows,
        seed=root_seed(random_state),
        categorical=categorical,
        classification=classification,
        rule=rule,
        n_jobs=n_jobs,
    )
    trace: list[Fit | PartsFit] = [*learner.screen(families, deadline, verbose)]
    ranked = best_of_families([fit for fit in trace if isinstance(fit, Fit)])
    if max_order is not None:
        return _parts(learner, ranked[:2], max_order, trace, deadline, verbose)
    best = ranked[0]
    if learner.n_rows > SCREENED_ROWS:
        best = learner.refine([best], deadline, verbose)[0]
        trace = [*trace, best]
    best = learner.pruned(best, WEAKEST)
    kernel = best.kernel(learner.columns)
    return LearnedKernel(
        kernel, best.alpha, kernel.relevances(), best.family, best.value, learner.rows, tuple(trace)
    )


def _parts(
    learner: Learner,
    fits: list[Fit],
    max_order: int,
    trace: list[Fit | PartsFit],
    deadline: float,
    verbose: int,
) -> LearnedKernel:
    """The best kernel of parts on the rates of these fits."""
    if learner.n_rows > SCREENED_ROWS:
        fits = learner.refine(fits, deadline, verbose)
        trace = [*trace, *fits]
    found = best_parts(learner, fits, max_order, deadline)
    best = found[0]
    return LearnedKernel(
        best.kernel,
        best.alpha,
        best.kernel.relevances(),
        best.rates.family,
        best.value,
        learner.rows,
        (*trace, *found),
    )
