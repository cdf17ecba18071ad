"""The choice of a learned kernel for a ridge, and the rows that tell its error.

A search (``kernel_search``) chooses. The error that users see comes from rows that had no part in
it: rows set apart, or where rows are few folds that repeat the search.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelsieve.kernels import Anova, Product
from kernelsieve.sources.base import Source
from kernelsieve.tuning.judge import Judge, Split
from kernelsieve.tuning.kernel_search import Candidate, Held, Judged, KernelSearch
from kernelsieve.tuning.learn_options import LearnOptions

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

FEWEST_GROUPS = 3


@dataclass(frozen=True)
class Chosen:
    """What to fit.

    Attributes
    ----------
    kernel : Product or Anova
    alpha : float
    exact : bool
        Whether to solve for the exact kernel.
    n_components : int
        Landmarks.
    unseen : ndarray of int
        Rows that had no part in the choice: of the kernel, or of one that a fold has chosen.
    residuals : ndarray of shape (len(unseen), m) or None
        Of the ridge at these rows. None for landmarks, whose leave-one-out residuals have a closed
        form once they are fitted.
    tried : tuple of Judged
    scale : float
        The target's standard deviation, in which they measure errors.
    full : tuple of Product and float, or None
        The kernel and alpha for the exact kernel, where that is an alternative to landmarks:
        narrower, as a rule.
    candidates : tuple of Candidate
        For other losses to choose from, if they were asked for and the kernel is exact: the chosen
        kernel, one that is almost linear, and the best ones with equal rates.
    held : tuple of Held
        The same without rows, which together are ``unseen``.
    """

    kernel: Product | Anova
    alpha: float
    exact: bool
    n_components: int
    unseen: Rows
    residuals: Array | None
    tried: tuple[Judged, ...]
    scale: float
    full: tuple[Product | Anova, float] | None = None
    candidates: tuple[Candidate, ...] = ()
    held: tuple[Held, ...] = ()


def choose_learned(
    rows: Source,
    *,
    alphas: Array | None = None,
    fit_intercept: bool = True,
    judge: Judge | None = None,
    options: LearnOptions | None = None,
    simpler: bool = False,
    repeat: bool | None = None,
    left_out: bool = True,
    searcher: Callable[..., KernelSearch] | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Chosen:
    """Learn a kernel, and judge it with the ridge that will use it.

    Parameters
    ----------
    rows : Source
        Dense, with targets of shape (n, m).
    alphas : ndarray, optional
        The only ones to choose from; None lets the data choose.
    fit_intercept : bool
    judge : Judge, optional
        Splits the rows. None splits at random.
    options : LearnOptions, optional
    simpler : bool, default False
        Whether to name simpler kernels, too, where the kernel is exact.
    repeat : bool, optional
        Whether folds that repeat the choice report the error, not rows set apart. None repeats it
        where rows are few.
    left_out : bool, default True
        Whether each row that tells the error is predicted from all others, as the model of all rows
        will do it. False predicts all of them from the rows that chose, for comparisons.
    searcher : callable, optional
        Makes another KernelSearch, for another kind of kernels.
    time_limit : float, optional
        Seconds after which no more is tried.
    seed : int
    n_jobs : int or None
    verbose : int

    Returns
    -------
    Chosen
    """
    options = LearnOptions() if options is None else options
    n = rows.shape[0]
    judge = Judge(n, seed) if judge is None else judge
    if judge.n_groups < FEWEST_GROUPS:
        raise ValueError(
            f"groups has {judge.n_groups} different values: at least {FEWEST_GROUPS} are needed, "
            "one to choose a kernel, one to judge it and one for the error that is reported"
        )
    exact = n <= options.exact_rows
    began = time.monotonic()
    deadline = math.inf if time_limit is None else began + time_limit
    among, unseen = rows_set_apart(n, judge, options, repeat)
    few = not len(unseen)
    search = (KernelSearch if searcher is None else searcher)(
        rows, judge, alphas, fit_intercept, options, deadline, seed, n_jobs, verbose, exact,
        simpler and exact, left_out,
    )  # fmt: skip
    best, learner, full = search.run(among)
    search.warn_at_edge(best, len(learner.rows))
    residuals, held = None, [Held(among, unseen, search.candidates(best, learner))]
    if few:
        held, residuals = search.repeated(best, learner)
        unseen = np.concatenate([one.apart for one in held])
        order = np.argsort(unseen)  # sources return rows in ascending order only
        unseen, residuals = unseen[order], residuals[order]
        if n > 4 and time.monotonic() < deadline:  # the choice is made: all rows have their say
            best, learner = search.again(best)
    kernel = search.kernel(best, learner)
    if exact and not few:
        best = search.with_safe_alpha(best, learner, among)
        residuals = search.residuals(kernel, best.alpha, among, unseen)
    size = min(n, options.judged_landmarks if exact else options.landmarks)
    tried, kernel = tuple(search.tried), search.finished(kernel)
    alternative = None if full is None else (search.kernel(full, learner), full.alpha)
    return Chosen(
        kernel,
        best.alpha,
        exact,
        size,
        unseen,
        residuals,
        tried,
        search.scale,
        alternative,
        tuple(
            Candidate(search.finished(one.kernel), one.alpha)
            for one in search.candidates(best, learner)
        ),
        tuple(held),
    )


def rows_set_apart(
    n: int, judge: Judge, options: LearnOptions | None = None, repeat: bool | None = None
) -> Split:
    """Rows that choose a kernel, and those for the reported error: none if the choice is repeated.

    They are a fifth, up to so many that they tell within a per cent. Where few rows make most of
    the error they do not; beyond 100,000 rows there are more to spare.
    """
    least = (LearnOptions() if options is None else options).reported_rows
    if n // 5 < least if repeat is None else repeat:
        return Split(np.arange(n), np.empty(0, dtype=np.int64))
    return judge.set_apart(min(n // 5, max(20 * least, n // 25)))
