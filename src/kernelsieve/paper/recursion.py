"""Recursive leverage score sampling: Algorithm 1, with RowSampler as its primitive."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._progress import track
from kernelsieve._random import root_seed, stream
from kernelsieve._validation import check_count, check_positive
from kernelsieve.kernels.series import Series
from kernelsieve.paper.parameters import SamplerParameters
from kernelsieve.paper.row_sampler import RowSample, RowSampler
from kernelsieve.products.product_features import Frame, MonomialBasis, ProductFeatures
from kernelsieve.sources.summaries import squared_norms


@dataclass(frozen=True)
class RecursiveSample:
    """The result of Algorithm 1.

    Attributes
    ----------
    sample : RowSample
        S_T: the draws of the last round.
    features : ProductFeatures
        Pi Phi as a map: repeated draws merged.
    lambdas : list of float
        lambda_(t-1) of the rounds t = 1 .. T.
    """

    sample: RowSample
    features: ProductFeatures
    lambdas: list[float]


def halvings(trace: float, lambda_: float, eps: float) -> list[float]:
    """lambda_0 .. lambda_(T-1), which the T rounds use: |Phi|_F^2 / eps, halved.

    Lines 3, 4 and 7 with two slips corrected. There is at least one round. And lambda_T, for which
    the last round samples, is max(lambda_(T-1) / 2, lambda): the printed one falls below lambda,
    where s may be too small. No round uses lambda_T itself.

    Examples
    --------
    >>> halvings(trace=10.0, lambda_=3.0, eps=1.0)
    [10.0, 5.0]
    """
    first = trace / eps
    rounds = max(1, ceil(log2(first / lambda_))) if first > lambda_ else 1
    return [max(first / 2**t, lambda_) for t in range(rounds)]


def recursive_leverage_sampling(
    X: Any,
    series: Series,
    lambda_: float,
    n_components: int,
    eps: float = 1 / 3,
    *,
    parameters: SamplerParameters | None = None,
    frame: Frame | None = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> RecursiveSample:
    """Sample ``n_components`` rows of Phi by approximate ridge leverage scores (Algorithm 1).

    Parameters
    ----------
    X : {ndarray, CSR} of shape (n, d)
    series : Series
        The kernel's Taylor series for X.
    lambda_ : float
        The ridge; the paper's lambda.
    n_components : int
        Number s of draws in every round; ``sample_size`` has the paper's formula.
    eps : float, default 1/3
        The spectral error to aim at; the proof needs at most 1/3.
    parameters : SamplerParameters, optional
        Sizes of the random matrices; None takes the practical ones.
    frame : Frame, optional
        Turns rows into points; None takes the frame of the series.
    random_state : int, RandomState, Generator or None, default None
        Seed of all random choices.
    n_jobs : int, optional
        Number of threads; None uses all cores.
    verbose : int, default 0
        1 shows a progress bar over the rounds.

    Returns
    -------
    RecursiveSample
        The last round's draws and their features.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.kernels import Gaussian
    >>> from kernelsieve.paper.recursion import recursive_leverage_sampling
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> series = Gaussian(gamma=0.1).series(X, tol=1e-3)
    >>> result = recursive_leverage_sampling(X, series, 1.0, 40, random_state=0)
    >>> len(result.sample)
    40
    """
    check_positive(lambda_, "lambda_", "it is the ridge that the features are for")
    check_positive(eps, "eps", "it is the spectral error to aim at")
    check_count(n_components, "n_components", "it is the number of draws")
    seed, frame = root_seed(random_state), frame or Frame.of_series(series)
    parameters = parameters or SamplerParameters.practical(X.shape[1], series.degree)
    basis, points = MonomialBasis(series), frame.points(X)
    Z: NDArray[Any] | None = None  # line 2: S_0 = 0
    lambdas = halvings(_trace(series, points), lambda_, eps)
    rounds = track(list(enumerate(lambdas)), len(lambdas), "leverage rounds", verbose)
    for t, current in rounds:
        sampler = RowSampler(
            points, series, Z, current, parameters, stream(seed, "round", t), n_jobs=n_jobs
        )
        sample = sampler.draw(n_components, stream(seed, "draws", t))  # line 6
        features = ProductFeatures(frame, basis, *sample.features(), sparse=sp.issparse(X))
        if t + 1 < len(lambdas):
            Z = _evaluate(features, X, n_jobs)
    return RecursiveSample(sample, features, lambdas)


def _trace(series: Series, points: Any) -> float:
    """|Phi|_F^2 = tr(K)."""
    return float(np.exp(2.0 * series.log_degree_scales(squared_norms(points))).sum())


def _evaluate(features: ProductFeatures, X: Any, n_jobs: int | None) -> NDArray[Any]:
    """S Phi transposed: the features of all rows, dense."""
    # In an order of the names, which dense and sparse rows share, not in that of the columns.
    return features.values(X, n_jobs)[:, np.argsort(features.multisets.hashes())]
