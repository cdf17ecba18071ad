"""Learning a product kernel from a target: families, warps and rates by likelihood."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._parallel import one_thread, ordered_map
from kernelsieve._progress import track
from kernelsieve._random import keyed_rows, root_seed
from kernelsieve._validation import check_choice, check_count, check_positive
from kernelsieve.kernels.learning.rates import IDLE, WEAKEST, Columns, Fit, moved, pruned, search
from kernelsieve.kernels.product import Product
from kernelsieve.sources.base import Block, Source, as_source

LEARNABLE = ("laplacian", "matern32", "matern52", "gaussian")
SCREENED_ROWS = 500
SCREENED_ITERATIONS = 30
REFINED_ITERATIONS = 20
MOST_COLUMNS = 256  # that the search of all families begins with
FIRST_ROWS, FIRST_ITERATIONS = 300, 15  # of the search that picks them among more columns
FEW_COLUMNS = 40  # all of which a search on few rows may keep
NOTHING_FOUND = 0.47  # the objective, which is 0.5 for a kernel that explains nothing
NARROWER = 6.0
FAR_BEHIND = 0.1
FEWEST_OF_CLASS = 20  # rows of a rare class
RULES = ("likelihood", "leave-one-out")


@dataclass(frozen=True)
class LearnedKernel:
    """A kernel that was learned, and what it was learned from.

    Attributes
    ----------
    kernel : Product
    alpha : float
        The ridge that goes with it on rows of weight 1: noise over amplitude.
    relevances : ndarray of shape (d,)
        The share of each column in the sum of the rates, which are those of columns scaled to a
        deviation of 1.
    family : str
        Of the columns that are not categorical.
    value : float
        Negative log likelihood per row and output (or half the squared leave-one-out residual).
    rows : ndarray of int
        The rows that were looked at.
    trace : tuple of Fit
        Everything that was tried.
    """

    kernel: Product
    alpha: float
    relevances: NDArray[np.float64]
    family: str
    value: float
    rows: NDArray[np.int64]
    trace: tuple[Fit, ...]

    def __repr__(self) -> str:
        active = int((self.relevances > 0).sum())
        return (
            f"LearnedKernel({self.family}, {active} of {len(self.relevances)} columns, "
            f"alpha={self.alpha:.3g}, {len(self.rows):,} rows)"
        )


def learn(X: Any, y: Any = None, **options: Any) -> LearnedKernel:
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
    """
    return learn_several(X, y, keep=1, **options)[0]


def learn_several(
    X: Any,
    y: Any = None,
    *,
    keep: int = 2,
    sample_weight: Any = None,
    n_rows: int = 1500,
    families: Sequence[str] = LEARNABLE,
    categorical: Sequence[int] = (),
    classification: bool = False,
    rule: str = "likelihood",
    time_limit: float | None = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> list[LearnedKernel]:
    """The best ``keep`` families of ``learn``, best first, for those who judge them themselves."""
    began = time.monotonic()
    check_choice(rule, "rule", RULES)
    check_count(n_rows, "n_rows", "it is the number of rows to learn from")
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
    rows, block = _drawn(source, n_rows, classification, root_seed(random_state))
    problem = _Problem.of(block, categorical, classification, rule, n_jobs)
    trace = problem.screen(families, deadline, verbose)
    best = best_of_families(trace)[:keep]
    if problem.n_rows > SCREENED_ROWS:
        best = problem.refine(best, deadline, verbose)
        trace = [*trace, *best]
    return [problem.result(fit, rows, trace) for fit in sorted(best, key=lambda fit: fit.value)]


def best_of_families(fits: Sequence[Fit]) -> list[Fit]:
    """The best search of every family: the best of all, the best of the other kind, the rest.

    The Laplacian is rough and the others are smooth. Between the kinds the likelihood errs more
    than within, where the families hardly differ.
    """
    best: dict[str, Fit] = {}
    for fit in sorted(fits, key=lambda fit: fit.value):
        best.setdefault(fit.family, fit)
    ranked = list(best.values())
    rough = ranked[0].family == "laplacian"
    other = next((fit for fit in ranked if (fit.family == "laplacian") != rough), None)
    return (
        ranked if other is None else [ranked[0], other, *(f for f in ranked[1:] if f is not other)]
    )


def _drawn(
    source: Source, n_rows: int, classification: bool, seed: int
) -> tuple[NDArray[np.int64], Block]:
    """The rows to learn from; of classes more are drawn at first, for the sake of the rare."""
    rows = keyed_rows(source.shape[0], n_rows * (8 if classification else 1), seed, "learn")
    block = source.take(rows)
    if block.y is None:
        raise ValueError("the kernel is learned from a target: pass y")
    if not classification or len(rows) <= n_rows:
        return rows, block
    order = np.random.default_rng(seed).permutation(len(rows))
    labels = np.asarray(block.y)[order]
    rank_in_class = np.empty(len(rows), dtype=np.int64)
    for label in np.unique(labels):
        of_class = labels == label
        rank_in_class[of_class] = np.arange(of_class.sum())
    first = np.where(
        rank_in_class < FEWEST_OF_CLASS, rank_in_class - len(rows), np.arange(len(rows))
    )
    chosen = np.sort(order[np.argsort(first, kind="stable")[:n_rows]])
    return rows[chosen], block.take(chosen)


@dataclass(frozen=True)
class _Problem:
    """The rows to learn from, prepared; in random order, so that the first ones are a sample."""

    columns: Columns
    parts: NDArray[np.float64]
    usable: NDArray[np.int64]
    target: NDArray[np.float64]
    noise: NDArray[np.float64]
    rule: str
    n_jobs: int | None

    @classmethod
    def of(
        cls,
        block: Block,
        categorical: Sequence[int],
        classification: bool,
        rule: str,
        n_jobs: int | None,
    ) -> _Problem:
        X = block.X.toarray() if sp.issparse(block.X) else block.X
        X = np.asarray(X, dtype=np.float64)
        is_categorical = np.zeros(X.shape[1], dtype=bool)
        is_categorical[list(categorical)] = True
        columns = Columns.of(X, is_categorical)
        usable = np.flatnonzero(X.min(axis=0) < X.max(axis=0))
        weights = np.ones(len(X)) if block.weights is None else np.asarray(block.weights, float)
        kept = weights > 0
        order = np.random.default_rng(0).permutation(np.flatnonzero(kept))
        weights = weights[order] / weights[order].mean()
        target = _coded(np.asarray(block.y)[order], classification, weights)
        parts = columns.parts(X[order])
        return cls(columns, parts, usable, target, 1.0 / weights, rule, n_jobs)

    @property
    def n_rows(self) -> int:
        return len(self.target)

    def search(
        self,
        family: str,
        kept: NDArray[np.int64],
        n_rows: int,
        max_iter: int,
        deadline: float,
        start: Fit | None = None,
        stretch: float = 1.0,
    ) -> Fit:
        """One search on the first rows; in one thread, since several may run at a time."""
        parts, target, noise = self.parts[:, :n_rows], self.target[:n_rows], self.noise[:n_rows]
        with one_thread():
            fit = search(
                parts,
                self.columns,
                kept,
                target,
                noise,
                family,
                max_iter,
                start=start,
                stretch=stretch,
                rule=self.rule,
                deadline=deadline,
                n_jobs=1,
            )
            sparing = n_rows < self.n_rows and len(kept) <= FEW_COLUMNS
            thresholds = IDLE if sparing else WEAKEST
            return pruned(fit, parts, self.columns, target, noise, self.rule, thresholds)

    def screen(self, families: Sequence[str], deadline: float, verbose: int) -> list[Fit]:
        """Every family on a few rows, on those columns that one of them finds to matter."""
        kept = self.usable
        if len(kept) > MOST_COLUMNS:
            glance = self.search("laplacian", kept, FIRST_ROWS, FIRST_ITERATIONS, deadline)
            order = np.argsort(-glance.rates.sum(axis=0), kind="stable")
            kept = np.sort(glance.columns[order[:MOST_COLUMNS]])
        first = self._tried([(family, kept, None, 1.0) for family in families], deadline, verbose)
        best = min(first, key=lambda fit: fit.value)
        again: list[tuple[str, NDArray[np.int64], Fit | None, float]] = []
        if best.value > NOTHING_FOUND:  # a narrow kernel may find what a wide one does not see
            again = [(family, kept, None, NARROWER) for family in families]
        else:  # a search that ended far behind may have been stuck
            behind = [fit.family for fit in first if fit.value > best.value + FAR_BEHIND]
            again = [(family, best.columns, moved(best, family), 1.0) for family in behind]
        return [*first, *self._tried(again, deadline, verbose)]

    def _tried(
        self,
        tries: Sequence[tuple[str, NDArray[np.int64], Fit | None, float]],
        deadline: float,
        verbose: int,
    ) -> list[Fit]:
        """Searches on few rows: family, columns, where to begin and how narrow."""
        searches = ordered_map(
            lambda t: self.search(
                t[0], t[1], SCREENED_ROWS, SCREENED_ITERATIONS, deadline, t[2], t[3]
            ),
            tries,
            self.n_jobs,
        )
        return list(track(searches, len(tries), "families", verbose))

    def refine(self, fits: Sequence[Fit], deadline: float, verbose: int) -> list[Fit]:
        """The best families on all rows."""
        searches = ordered_map(
            lambda fit: (
                fit
                if time.monotonic() > deadline
                else self.search(
                    fit.family, fit.columns, self.n_rows, REFINED_ITERATIONS, deadline, fit
                )
            ),
            list(fits),
            self.n_jobs,
        )
        return list(track(searches, len(fits), "rates", verbose))

    def result(self, fit: Fit, rows: NDArray[np.int64], trace: Sequence[Fit]) -> LearnedKernel:
        kernel = fit.kernel(self.columns)
        return LearnedKernel(
            kernel,
            fit.alpha,
            kernel.relevances(),
            fit.family,
            fit.value,
            rows,
            tuple(trace),
        )


def _coded(
    y: NDArray[Any], classification: bool, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Targets of shape (n, m), centred and with mean square 1; constant ones stay 0."""
    if classification:
        labels = np.unique(y)
        several = labels if len(labels) > 2 else labels[:1]
        coded = np.stack([np.where(y == label, 1.0, -1.0) for label in several], axis=1)
    else:
        coded = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    coded = coded - np.average(coded, axis=0, weights=weights)
    size = np.sqrt(np.average(coded**2, axis=0, weights=weights))
    return coded / np.where(size > 0, size, 1.0)
