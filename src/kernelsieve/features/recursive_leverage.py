"""Recursive ridge leverage scores of rows (Musco and Musco, 2017), without an n x n matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf

from kernelsieve._parallel import map_row_blocks
from kernelsieve._random import row_hashes, stream
from kernelsieve.engine.scores import capped_proportional, systematic_sample
from kernelsieve.kernels import Kernel
from kernelsieve.linalg.cholesky import inverse_of, inverse_of_lower, regularised_cholesky
from kernelsieve.linalg.whitening import times_upper

SCORED_ROWS = 1024  # whose kernels with the sample a thread holds at a time
# Rows of a sample for each direction above the ridge. A group of rows that a sample misses gets
# scores of 1: with 2 rows for each direction landmarks are up to three times worse, with 8 rarely.
ROWS_PER_DIRECTION = 8.0
EXACT_ROWS = 512  # of a sample whose scores cost next to nothing
# The largest diagonal entry, in ridges, where a pivoted factor ends: few rows, or a small rest.
PIVOT_SHARES = (1 / 64, 1 / 256)
POWER_VECTORS, POWER_STEPS = 4, 8  # of the norm of that rest


@dataclass(frozen=True)
class WeightedRows:
    """A weighted sample: each row represents 1 / probability rows.

    Attributes
    ----------
    rows : ndarray of int
    probabilities : ndarray of float
    """

    rows: NDArray[np.int64]
    probabilities: NDArray[np.float64]


def recursive_leverage_scores(
    kernel: Kernel,
    X: Any,
    lambda_: float,
    size: int,
    seed: int,
    n_jobs: int | None = None,
    *,
    fewest: int | None = None,
) -> NDArray[np.float64]:
    """Approximate ridge leverage scores [K (K + lambda I)^-1]_ii of all rows.

    The scores of a set of rows are computed from a weighted sample of half of it. That sample is
    drawn by the scores of the half, and so on, down to ``size`` rows, which are all used. A final
    sample of all rows gives the scores that are returned.

    With ``fewest`` a sample has no more rows than its scores call for: ROWS_PER_DIRECTION times
    their sum, which is the statistical dimension or above.

    Parameters
    ----------
    kernel : Kernel
    X : {ndarray, CSR} of shape (n, d)
    lambda_ : float
        Ridge that is added to the diagonal of K.
    size : int
        Number of rows in every sample: several times the statistical dimension at ``lambda_``.
    seed : int
    n_jobs : int, optional
        Number of threads; None uses all cores.
    fewest : int, optional
        The fewest rows of a sample; None takes ``size`` always.

    Returns
    -------
    scores : ndarray of shape (n,), in (0, 1]

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.kernels import Gaussian
    >>> X = np.array([[0.0]] * 9 + [[5.0]])  # nine rows share one direction
    >>> recursive_leverage_scores(Gaussian(), X, 1.0, size=10, seed=0)[[0, 9]].round(2)
    array([0.1, 0.5])
    """
    n = X.shape[0]
    order = np.argsort(row_hashes(np.arange(n, dtype=np.uint64), seed, "halves"))
    sizes = halves(n, size)
    smallest = np.sort(order[: sizes[-1]])
    sample = WeightedRows(smallest, np.ones(len(smallest)))
    for level, count in reversed(list(enumerate(sizes[:-1]))):
        rows = np.sort(order[:count])
        scores = leverage_scores(kernel, X, rows, sample, lambda_, n_jobs)
        wanted = size if fewest is None else _rows_for(scores, fewest, size)
        sample = _sampled(rows, scores, wanted, stream(seed, "level", level))
    return leverage_scores(kernel, X, np.arange(n), sample, lambda_, n_jobs)


def _rows_for(scores: NDArray[np.float64], fewest: int, most: int) -> int:
    """The number of rows that a sample by these scores needs."""
    return int(np.clip(np.ceil(ROWS_PER_DIRECTION * scores.sum()), fewest, max(fewest, most)))


def halves(n: int, size: int) -> list[int]:
    """Halve n repeatedly, down to the first number that is at most ``size``.

    Examples
    --------
    >>> halves(100, 30)
    [100, 50, 25]
    """
    sizes = [n]
    while sizes[-1] > size:
        sizes.append((sizes[-1] + 1) // 2)
    return sizes


def leverage_scores(
    kernel: Kernel,
    X: Any,
    rows: NDArray[np.int64],
    sample: WeightedRows,
    lambda_: float,
    n_jobs: int | None,
    *,
    exact_rows: int = EXACT_ROWS,
) -> NDArray[np.float64]:
    """(K - K S (S^T K S + lambda I)^-1 S^T K)_ii / lambda, where S picks and weights the sample.

    With all rows in the sample these are the exact scores. Of more than ``exact_rows`` rows of
    a sample only those are kept that span the directions above the ridge (see `spanning`).
    """
    points = X[sample.rows]
    exact = points.astype(np.float64)
    roots = np.sqrt(sample.probabilities)
    C = kernel.between(exact, exact, n_jobs)  # becomes S^T K S
    C /= roots
    C /= roots[:, None]
    found = spanning(C, lambda_) if len(C) > exact_rows else None
    if found is None:
        kept, triangle = np.arange(len(C)), _whitening(C, lambda_)
    else:
        kept, triangle = found
        points = points[kept]
    triangle /= roots[kept, None]
    triangle = triangle.astype(X.dtype, order="C")
    scores = np.empty(len(rows))

    def block(part: slice) -> None:
        here = X[rows[part]]
        cross = kernel.between(here, points, n_jobs=1)
        whitened = np.empty_like(cross)
        times_upper(cross, triangle, whitened)
        explained = np.einsum("ij,ij->i", whitened, whitened, dtype=np.float64)
        scores[part] = (kernel.diag(here) - explained) / lambda_

    map_row_blocks(block, len(rows), SCORED_ROWS, n_jobs)
    return np.clip(scores, np.finfo(X.dtype).eps, 1.0)


def _whitening(C: NDArray[np.float64], lambda_: float) -> NDArray[np.float64]:
    """An upper triangle T with T T^T = (C + lambda I)^-1."""
    factor, _ = regularised_cholesky(C, lambda_)
    return inverse_of_lower(factor).T


def spanning(
    C: NDArray[np.float64], lambda_: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    """Rows of a sample that span its directions above the ridge, and T for them alone.

    A sample has several rows for each direction, because they are drawn at random. A pivoted
    Cholesky factor Z of C = S^T K S needs fewer: it ends where |C - Z Z^T| <= lambda / 2. With P
    the projection on the span of its pivots and A the covariance of the sample, A + lambda and
    P A P + lambda are then within a factor 2 of each other, and so are the scores that they give.
    None if half of the rows are not enough: nothing is won.
    """
    for share in PIVOT_SHARES:
        lower, places, rank, _ = dpstrf(C.T, lower=1, tol=share * lambda_)  # C.T: LAPACK's order
        if 2 * rank > len(C):
            return None
        order = places - 1
        Z = np.empty((len(C), rank))
        Z[order] = np.tril(lower[:, :rank])
        if _norm_of_rest(C, Z) <= lambda_ / 2:
            kept = order[:rank]
            return kept, _projected_whitening(Z, kept, lambda_)
    return None


def _norm_of_rest(C: NDArray[np.float64], Z: NDArray[np.float64]) -> float:
    """The spectral norm of C - Z Z^T, by power iteration."""
    block = np.random.default_rng(0).standard_normal((len(C), POWER_VECTORS))
    norm = 0.0
    for _ in range(POWER_STEPS):
        block = np.linalg.qr(block).Q
        block = C @ block - Z @ (Z.T @ block)
        norm = float(np.linalg.norm(block, 2))
    return norm


def _projected_whitening(
    Z: NDArray[np.float64], kept: NDArray[np.int64], lambda_: float
) -> NDArray[np.float64]:
    """An upper triangle T with T T^T = L^-T G (G + lambda I)^-1 L^-1: G = Z^T Z, L = Z[kept]."""
    covariance = Z.T @ Z
    covariance.flat[:: len(covariance) + 1] += lambda_
    shrunk = -lambda_ * inverse_of(covariance)[1]
    shrunk.flat[:: len(shrunk) + 1] += 1.0
    # The factor of the reversed matrix, reversed, is an upper one, and stays so beside L^-T.
    reversed_factor, _ = regularised_cholesky(shrunk[::-1, ::-1], 0.0)
    return inverse_of_lower(Z[kept]).T @ reversed_factor[::-1, ::-1]


def _sampled(
    rows: NDArray[np.int64],
    scores: NDArray[np.float64],
    size: int,
    rng: np.random.Generator,
) -> WeightedRows:
    """Draw ``size`` rows with probabilities proportional to their scores, capped at 1."""
    probabilities = capped_proportional(scores, size)
    chosen = systematic_sample(probabilities, rng)
    return WeightedRows(rows[chosen], probabilities[chosen])
