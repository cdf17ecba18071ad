"""The search of gamma and alpha: every alpha of a path from one eigendecomposition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kernelsieve._progress import track
from kernelsieve._random import stream
from kernelsieve._validation import check_positive
from kernelsieve.features import FeatureMap
from kernelsieve.kernels import resolve_kernel
from kernelsieve.learning.grid import SearchResult, search_on
from kernelsieve.learning.judge import source_folds
from kernelsieve.linalg.normal_equations import NormalEquations
from kernelsieve.linalg.operators import dense
from kernelsieve.linalg.ridge_path import RidgePath
from kernelsieve.sources.base import BLOCK_ROWS, ArraySource, Block, Source

# Fits a map to rows; also gives the normal equations of the targets on its features.
Fit = Callable[[FeatureMap, Source], tuple[FeatureMap, NormalEquations]]


@dataclass(frozen=True)
class SearchOptions:
    """What a bounded search tries, and on how many rows.

    Attributes
    ----------
    n_rows : int
        Rows that the search looks at, however many there are.
    gamma_factors : tuple of float
        Values of gamma to try, in units of gamma="scale", 1 / (n_features * variance).
    alphas : tuple of float
    n_draws : int
        Maps whose errors are averaged: a single random map can favour a gamma by luck.
    continued : bool
        Whether the grids go on where the best value lies at their end.
    """

    n_rows: int = 6_000
    gamma_factors: tuple[float, ...] = tuple(2.0**power for power in range(-5, 2))
    alphas: tuple[float, ...] = tuple(np.logspace(-4, 2, 13).tolist())
    n_draws: int = 1
    continued: bool = True


DEFAULT = SearchOptions()


def search(
    features: FeatureMap,
    rows: Source,
    alphas: Any,
    gammas: Sequence[Any] = (None,),
    *,
    cv: Any = None,
    fit_intercept: bool = True,
    fit: Fit | None = None,
    block_rows: int = BLOCK_ROWS,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> SearchResult:
    """Compute the error of kernel ridge regression for every gamma and alpha.

    For maps that do not look at the target this is the exact leave-one-out error in closed form.
    Maps that do are fitted again for every fold, so that they never see what they are judged on.

    Parameters
    ----------
    features : FeatureMap
        Not fitted; it is copied for every gamma.
    rows : Source
        With targets of shape (n, n_outputs).
    alphas : array-like of float
    gammas : sequence of float or None
        None keeps the map's own gamma.
    cv : int, splitter or None
        Folds; None is leave-one-out where it has a closed form, else 5 of rows drawn at random.
    fit_intercept : bool, default True
    fit : callable, optional
        Fits a map to rows and returns it with its normal equations; a model may have its own way.
    block_rows : int
        Rows of a block.
    n_jobs : int, default all cores
    verbose : int, default 0

    Returns
    -------
    SearchResult

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import FourierFeatures
    >>> from kernelsieve.sources.base import ArraySource
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> rows = ArraySource(X, np.sin(X[:, :1]), None)
    >>> search(FourierFeatures(50, random_state=0), rows, [0.01, 100.0], [0.1, 10.0]).gamma
    0.1
    """
    alphas = np.sort(np.asarray(alphas, dtype=np.float64))
    fit = fit or (lambda fresh, part: _fitted(fresh, part, block_rows, n_jobs))

    def path_of(fresh: FeatureMap, part: Source) -> tuple[FeatureMap, RidgePath]:
        fitted, equations = fit(fresh, part)
        return fitted, RidgePath(equations.centred(fit_intercept), alphas)

    def total(judged: _HeldOut, part: Source) -> NDArray[np.float64]:
        return part.reduce(judged, block_rows, n_jobs, "Errors")

    found, largest = [], []
    for gamma in track(gammas, len(gammas), "bandwidths", verbose):
        fresh = clone(features) if gamma is None else clone(features).set_params(gamma=gamma)
        if cv is None and not looks_at_target(fresh):
            fitted, path = path_of(fresh, rows)
            if path.problem.n_rows < 2:
                raise ValueError(
                    "n_samples = 1: leaving one row out needs at least 2 rows of positive weight"
                )
            sums = total(_LeaveOneOut(fitted, path, fit_intercept), rows)
        else:
            sums = np.zeros(len(alphas) + 1)
            for train, test in source_folds(rows, cv):
                fitted, path = path_of(clone(fresh), train)
                sums += total(_HeldOut(fitted, path), test)
        found.append(sums[:-1] / sums[-1])
        largest.append(path.largest)
    return SearchResult(list(gammas), alphas, np.sqrt(np.array(found)), np.array(largest))


def choose_gamma_alpha(
    features: FeatureMap,
    X: Any,
    y: NDArray[np.float64],
    options: SearchOptions = DEFAULT,
    *,
    gammas: Sequence[Any] | None = None,
    alphas: Sequence[float] | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
) -> SearchResult:
    """Search gamma and alpha on a bounded number of rows.

    Parameters
    ----------
    features : FeatureMap
        The map to search with; it gets the seeds ``seed``, ``seed + 1``, ...
    X : ndarray or CSR array of shape (n, d)
    y : ndarray of shape (n,) or (n, n_outputs)
    options : SearchOptions
    gammas, alphas : sequence of float, optional
        The only ones to try, in place of those of the options.
    seed : int, default 0
    n_jobs : int, default all cores

    Returns
    -------
    SearchResult
        With errors averaged over ``options.n_draws`` maps.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import NystromFeatures
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> found = choose_gamma_alpha(NystromFeatures(50), X, np.sin(X[:, 0]))
    >>> bool(found.alpha < 1e-4)
    True
    """
    chosen = np.sort(stream(seed, "tuning").permutation(len(y))[: options.n_rows])
    X = X[chosen].astype(np.float64)  # few rows: small alphas need not suffer from rounding
    y = np.asarray(y[chosen], dtype=np.float64).reshape(len(chosen), -1)
    free = [name for name, given in (("gamma", gammas), ("alpha", alphas)) if given is None]
    if gammas is None:
        scale = getattr(resolve_kernel("gaussian", X, "scale"), "gamma", 1.0)
        gammas = [factor * scale for factor in options.gamma_factors]

    def errors(some_alphas: Any, some_gammas: Sequence[Any]) -> SearchResult:
        draws = [
            search(
                clone(features).set_params(random_state=seed + draw),
                ArraySource(X, y, None),
                some_alphas,
                some_gammas,
                n_jobs=n_jobs,
            )
            for draw in range(options.n_draws)
        ]
        rmse = np.mean([draw.rmse for draw in draws], axis=0)
        return replace(draws[0], rmse=rmse)

    first = options.alphas if alphas is None else alphas
    return search_on(errors, first, gammas, free if options.continued else ())


def looks_at_target(features: FeatureMap) -> bool:
    """Whether a map chooses its features by the target, so that leave-one-out would flatter it."""
    share = getattr(features, "target_share", 0.0)
    return isinstance(share, str) or bool(share > 0)  # "auto" is a share yet to be chosen


def positive_numbers(values: Any, name: str, why: str) -> NDArray[np.float64]:
    """One number > 0, or several."""
    given = np.atleast_1d(values)
    if given.size == 0:
        raise ValueError(f"{name}={values!r} is empty: pass at least one number, or None")
    return np.array([check_positive(value, name, why) for value in given.tolist()])


def _fitted(
    features: FeatureMap, rows: Source, block_rows: int, n_jobs: int | None
) -> tuple[FeatureMap, NormalEquations]:
    features.fit(rows)

    def of_block(block: Block) -> NormalEquations:
        return NormalEquations.of_block(features.transform_block(block.X), block.y, block.weights)

    total: NormalEquations = rows.reduce(of_block, block_rows, n_jobs)
    return features, total


@dataclass(frozen=True)
class _HeldOut:
    """Sums of squared errors of all alphas on rows that the path did not see, then their weight."""

    features: FeatureMap
    path: RidgePath

    def __call__(self, block: Block) -> NDArray[np.float64]:
        coordinates = self._coordinates(block)
        return self._summed(block.y[:, None] - self.path.predict(coordinates), block)

    def _coordinates(self, block: Block) -> NDArray[np.float64]:
        return self.path.coordinates(dense(self.features.transform_block(block.X)))

    def _summed(self, residuals: NDArray[np.float64], block: Block) -> NDArray[np.float64]:
        share = block.weights_or_ones
        with np.errstate(over="ignore"):  # the worst of all alphas
            total = np.einsum("r,rao->a", share, residuals**2)
        return np.append(total, share.sum() * residuals.shape[2])


@dataclass(frozen=True)
class _LeaveOneOut(_HeldOut):
    """The same on the rows of the fit: a residual grows by 1 / (1 - leverage) without its row."""

    fit_intercept: bool

    def __call__(self, block: Block) -> NDArray[np.float64]:
        coordinates = self._coordinates(block)
        leverages = self.path.leverages(coordinates, self.fit_intercept)
        if block.weights is not None:
            leverages = block.weights[:, None] * leverages
        left = np.maximum(1.0 - leverages, 1e-12)[:, :, None]
        return self._summed((block.y[:, None] - self.path.predict(coordinates)) / left, block)
