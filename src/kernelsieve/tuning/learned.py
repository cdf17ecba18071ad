"""A learned kernel for a ridge: rates on some rows; family, width and alpha on others.

The rates come from the likelihood of rows A (``kernels.learn``). What the likelihood cannot know,
the map and its size, is judged on rows outside A by leave-one-out residuals of the ridge that
will be used: which family, one common factor of all rates, and alpha.
"""

from __future__ import annotations

import math
import time
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from kernelsieve._parallel import one_thread, ordered_map
from kernelsieve._random import keyed_rows
from kernelsieve.kernels import LearnedKernel, Product
from kernelsieve.kernels.learning import learn_several
from kernelsieve.kernels.learning.likelihood import inverse_of, inverse_of_lower
from kernelsieve.linalg.solvers import regularised_cholesky
from kernelsieve.sources.base import Block, Source

Array = NDArray[np.float64]

FEW_ROWS = 200  # of fewer a best width means little, and nobody is warned of it


@dataclass(frozen=True)
class LearnOptions:
    """Sizes of the search; all of them trade time for accuracy.

    Attributes
    ----------
    learn_rows : int
        Rows A. At most half of all rows while families are compared.
    exact_rows : int
        Up to so many rows the ridge is solved for the exact kernel, beyond by landmarks.
    landmarks : int
    judged_rows, judged_landmarks : int
        Of the ridge that compares kernels, where the table has more.
    left_out_rows : int
        Up to so many rows the exact kernel is judged by leave-one-out; beyond, on rows set apart.
    apart_rows, exact_judged_rows : int
        Rows set apart, and rows that they are predicted from.
    families : int
        How many go from the likelihood to the judge.
    step : float
        Between factors that are tried.
    narrowest, widest : float
        Factors beyond which the search does not go.
    shares : tuple of float
        Of the mean rate in the rates of mixed kernels, which are tried at the best factor. They
        keep columns that the likelihood has dropped too early.
    """

    learn_rows: int = 1500
    exact_rows: int = 6000
    landmarks: int = 2000
    judged_rows: int = 5000
    judged_landmarks: int = 1000
    left_out_rows: int = 1500
    apart_rows: int = 1000
    exact_judged_rows: int = 3000
    families: int = 2
    step: float = 2.0
    narrowest: float = 8.0
    widest: float = 1.0 / 32.0
    shares: tuple[float, ...] = (0.2, 0.6)


@dataclass(frozen=True)
class Judged:
    """One kernel on the rows that judge.

    Attributes
    ----------
    learned : LearnedKernel
    factor : float
        Of its rates.
    share : float
        Of their mean in each of them.
    alpha : float
        The best one.
    rmse : float
        Leave-one-out, on rows outside A.
    """

    learned: LearnedKernel
    factor: float
    share: float
    alpha: float
    rmse: float


@dataclass(frozen=True)
class Chosen:
    """What to fit.

    Attributes
    ----------
    kernel : Product
    alpha : float
    exact : bool
        Whether to solve for the exact kernel.
    n_components : int
        Landmarks.
    rmse : float
        On rows that had no part in the rates.
    relevances : ndarray of shape (d,)
    tried : tuple of Judged
    """

    kernel: Product
    alpha: float
    exact: bool
    n_components: int
    rmse: float
    relevances: Array
    tried: tuple[Judged, ...]


def adjusted(kernel: Product, factor: float, share: float) -> Product:
    """The same kernel with rates that are mixed with their mean and multiplied by a factor."""
    rates = np.asarray(kernel.rates)
    mixed = factor * ((1.0 - share) * rates + share * rates.mean())
    return replace(kernel, rates=tuple(mixed.tolist()))


class _Judge(ABC):
    """Leave-one-out errors of ridges on some rows, averaged over those outside A."""

    def __init__(self, rows: Block, outside: NDArray[np.bool_], fit_intercept: bool) -> None:
        self.X, self.outside = rows.X, outside
        weights = np.ones(len(rows)) if rows.weights is None else np.asarray(rows.weights, float)
        self.weights = np.maximum(weights, 1e-12 * weights.max())
        self.mean = np.average(rows.y, axis=0, weights=self.weights) if fit_intercept else 0.0
        self.y = rows.y - self.mean

    @abstractmethod
    def errors(self, kernel: Product, alphas: Array) -> Array:
        """Root mean squared errors, one for each alpha."""

    def _rmse(self, residuals: Array) -> float:
        weights = self.weights[self.outside]
        squares = np.mean(residuals[self.outside] ** 2, axis=1)
        return math.sqrt(float(np.average(squares, weights=weights)))


class ExactJudge(_Judge):
    """Ridges on the exact kernel matrix."""

    def errors(self, kernel: Product, alphas: Array) -> Array:
        gram = kernel.between(self.X, self.X, 1).astype(np.float64, copy=False)
        found = []
        for alpha in alphas:
            shifted = gram.copy()
            shifted.flat[:: len(gram) + 1] += alpha / self.weights
            _, inverse = inverse_of(shifted)
            found.append(self._rmse((inverse @ self.y) / np.diag(inverse)[:, None]))
        return np.array(found)


class ApartJudge(_Judge):
    """Ridges on the exact kernel matrix of some rows, judged on those outside A among others."""

    def __init__(self, rows: Block, outside: NDArray[np.bool_], fit_intercept: bool) -> None:
        super().__init__(rows, outside, fit_intercept)
        self.known = np.flatnonzero(~outside)

    def errors(self, kernel: Product, alphas: Array) -> Array:
        known, new = self.X[self.known], self.X[self.outside]
        gram = kernel.between(known, known, 1).astype(np.float64, copy=False)
        cross = kernel.between(new, known, 1).astype(np.float64, copy=False)
        found = []
        for alpha in alphas:
            shifted = gram.copy()
            shifted.flat[:: len(gram) + 1] += alpha / self.weights[self.known]
            lower, _ = regularised_cholesky(shifted, 0.0)
            residuals = np.zeros_like(self.y)
            dual = cho_solve((lower, True), self.y[self.known], check_finite=False)
            residuals[self.outside] = self.y[self.outside] - cross @ dual
            found.append(self._rmse(residuals))
        return np.array(found)


class LandmarkJudge(_Judge):
    """Ridges on the features of landmarks."""

    def __init__(
        self, rows: Block, outside: NDArray[np.bool_], fit_intercept: bool, landmarks: Any
    ) -> None:
        super().__init__(rows, outside, fit_intercept)
        self.landmarks, self.fit_intercept = landmarks, fit_intercept

    def errors(self, kernel: Product, alphas: Array) -> Array:
        square = kernel.between(self.landmarks, self.landmarks, 1).astype(np.float64)
        lower, _ = regularised_cholesky(square, 1e-10 * len(square))
        cross = kernel.between(self.X, self.landmarks, 1)
        Z = cross.astype(np.float64) @ inverse_of_lower(lower).T
        if self.fit_intercept:
            Z -= np.average(Z, axis=0, weights=self.weights)
        roots = np.sqrt(self.weights)[:, None]
        Z *= roots
        values, vectors = np.linalg.eigh(Z.T @ Z)
        Z = Z @ vectors
        moment, squares = Z.T @ (roots * self.y), Z**2
        intercept = self.weights / self.weights.sum() if self.fit_intercept else 0.0
        found = []
        for alpha in alphas:
            shrunk = 1.0 / (np.maximum(values, 0.0) + alpha)
            left = np.maximum(1.0 - squares @ shrunk - intercept, 1e-9)[:, None]
            fitted = (Z @ (shrunk[:, None] * moment)) / roots
            found.append(self._rmse((self.y - fitted) / left))
        return np.array(found)


def choose_learned(
    rows: Source,
    *,
    alphas: Array | None = None,
    fit_intercept: bool = True,
    options: LearnOptions | None = None,
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
    options : LearnOptions, optional
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
    began, n = time.monotonic(), rows.shape[0]
    few = n < 2 * options.learn_rows
    common: dict[str, Any] = {"random_state": seed, "n_jobs": n_jobs, "verbose": verbose}
    share = None if time_limit is None else 0.5 * time_limit
    candidates = learn_several(
        rows,
        keep=options.families,
        n_rows=max(1, n // 2) if few else options.learn_rows,
        time_limit=share,
        **common,
    )
    exact = n <= options.exact_rows
    deadline = math.inf if time_limit is None else began + 0.7 * time_limit
    judge = _judge_of(rows, candidates[0].rows, exact, fit_intercept, options, seed)
    tried = _search(judge, candidates, exact, alphas, options, deadline, n_jobs)
    best = min(tried, key=lambda judged: judged.rmse)
    _warn_at_edge(best, options)
    final = best.learned
    if few and n > 4 and time.monotonic() < deadline:
        # The choice is made: now all rows may have a say in the rates.
        again = learn_several(
            rows,
            keep=1,
            n_rows=options.learn_rows,
            families=[final.family],
            time_limit=None if time_limit is None else max(0.1, 0.2 * time_limit),
            **common,
        )[0]
        best = replace(
            best, alpha=best.alpha * (1.0 if alphas is not None else again.alpha / final.alpha)
        )
        final = again
    size = min(n, options.judged_landmarks if exact else options.landmarks)
    return Chosen(
        adjusted(final.kernel, best.factor, best.share),
        best.alpha,
        exact,
        size,
        best.rmse,
        final.relevances,
        tuple(tried),
    )


def _judge_of(
    rows: Source,
    learned: NDArray[np.int64],
    exact: bool,
    fit_intercept: bool,
    options: LearnOptions,
    seed: int,
) -> _Judge:
    """Rows that judge: all, or a sample in which most are outside A."""
    n = rows.shape[0]
    others = np.setdiff1d(np.arange(n), learned, assume_unique=True)
    if len(others) == 0:
        others = learned
    if exact and n > options.left_out_rows:
        size = min(options.apart_rows, max(1, len(others) // 2))
        apart = others[keyed_rows(len(others), size, seed, "judge")]
        rest = np.setdiff1d(np.arange(n), apart, assume_unique=True)
        known = rest[keyed_rows(len(rest), options.exact_judged_rows, seed, "known")]
        together = np.union1d(apart, known)
        return ApartJudge(rows.take(together), np.isin(together, apart), fit_intercept)
    if exact:
        block = rows.take(np.arange(n))
        return ExactJudge(block, np.isin(np.arange(n), others), fit_intercept)
    chosen = others[keyed_rows(len(others), options.judged_rows, seed, "judge")]
    landmarks = rows.take(keyed_rows(n, options.judged_landmarks, seed, "landmarks")).X
    everything = np.ones(len(chosen), dtype=bool)
    return LandmarkJudge(rows.take(chosen), everything, fit_intercept, landmarks)


def _search(
    judge: _Judge,
    candidates: list[LearnedKernel],
    exact: bool,
    alphas: Array | None,
    options: LearnOptions,
    deadline: float,
    n_jobs: int | None,
) -> list[Judged]:
    """Every family at several factors: from 1 on, in the direction in which the error falls."""

    def judged(
        learned: LearnedKernel, factor: float, near: float | None = None, share: float = 0.0
    ) -> Judged:
        if alphas is not None:
            tried = alphas
        elif not exact:
            tried = np.logspace(-7.0, 2.0, 19)
        elif near is None:
            tried = learned.alpha * np.array([0.25, 1.0, 4.0])
        else:
            tried = near * np.array([0.5, 2.0])
        with one_thread():
            errors = judge.errors(adjusted(learned.kernel, factor, share), tried)
        best = int(np.argmin(errors))
        return Judged(learned, factor, share, float(tried[best]), float(errors[best]))

    def climb(learned: LearnedKernel) -> list[Judged]:
        found = [judged(learned, 1.0)]
        for step in (1.0 / options.step, options.step):
            factor, best = step, found[0]
            while options.widest <= factor <= options.narrowest and time.monotonic() < deadline:
                found.append(judged(learned, factor, best.alpha))
                if found[-1].rmse >= best.rmse:
                    break
                best, factor = found[-1], factor * step
            if best.factor != 1.0:
                break
        return found

    found = [one for each in ordered_map(climb, candidates, n_jobs) for one in each]
    if time.monotonic() < deadline:
        best = min(found, key=lambda one: one.rmse)
        mixed = ordered_map(
            lambda share: judged(best.learned, best.factor, best.alpha, share),
            options.shares,
            n_jobs,
        )
        found += list(mixed)
    return found


def _warn_at_edge(best: Judged, options: LearnOptions) -> None:
    inside = options.widest * options.step <= best.factor <= options.narrowest / options.step
    if not inside and len(best.learned.rows) >= FEW_ROWS:
        warnings.warn(
            f"the best width lies at the edge of the search (rates x {best.factor:g}): the learned "
            "kernel may not suit this table; pass features= with a kernel of your own to compare",
            UserWarning,
            stacklevel=4,
        )
