"""A ridge on a learned kernel: the default of regression and of classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.features import AutoFeatures, NystromFeatures
from kernelsieve.models.kernel_ridge import KernelRidge
from kernelsieve.sources.base import Source
from kernelsieve.tuning.judge import Judge
from kernelsieve.tuning.learned import Chosen, choose_learned


@dataclass(frozen=True)
class LearnedRidge:
    """A fitted ridge, and what is known about it.

    Attributes
    ----------
    model : KernelRidge
    chosen : Chosen
        The choice of the kernel.
    unseen : ndarray of int
        Rows that had no part in that choice.
    residuals : ndarray of shape (len(unseen), n_outputs)
        There, of a ridge that was fitted without them.
    """

    model: KernelRidge
    chosen: Chosen
    unseen: NDArray[np.int64]
    residuals: NDArray[np.float64]


def fit_learned(
    given: Source,
    rows: Source,
    ridge: KernelRidge,
    *,
    alphas: NDArray[np.float64] | None,
    judge: Judge,
    time_limit: float | None,
    verbose: int,
) -> LearnedRidge:
    """Learn a kernel and fit a ridge on it to all rows.

    Parameters
    ----------
    given : Source
        Rows with targets as the ridge takes them.
    rows : Source
        The same rows with columns of targets.
    ridge : KernelRidge
        What is set in it stays; features, alpha and refine are chosen.
    alphas : ndarray or None
        The only ridges to choose from.
    judge : Judge
        Splits the rows. Its seed is that of everything here.
    """
    chosen = choose_learned(
        rows,
        alphas=alphas,
        fit_intercept=ridge.fit_intercept,
        judge=judge,
        time_limit=time_limit,
        seed=judge.seed,
        n_jobs=ridge.n_jobs,
        verbose=verbose,
    )
    options: dict[str, Any] = {"random_state": judge.seed, "n_jobs": ridge.n_jobs}
    kind = NystromFeatures if chosen.exact else AutoFeatures
    features = kind(chosen.n_components, kernel=chosen.kernel, alpha=chosen.alpha, **options)
    model = ridge.set_params(features=features, alpha=chosen.alpha, refine=chosen.exact).fit(given)
    unseen, residuals = chosen.unseen, chosen.residuals
    if residuals is None:
        residuals = model._left_out_residuals(given.take(unseen)).reshape(len(unseen), -1)
    return LearnedRidge(model, chosen, unseen, residuals)
