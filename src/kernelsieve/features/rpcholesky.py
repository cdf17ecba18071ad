"""Randomly pivoted Cholesky, in blocks (Epperly, Chen, Tropp and Webber, 2024)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._parallel import map_row_blocks
from kernelsieve._random import stream
from kernelsieve._validation import check_matrix
from kernelsieve.kernels import Kernel
from kernelsieve.linalg.cholesky import inverse_of_lower

UPDATED_ROWS = 2048  # of the factor, by a thread at a time
ROUNDING = 8.0  # errors of the float type that the residuals may hold, relative to k(x, x)


def rpcholesky_pivots(
    kernel: Kernel,
    X: Any,
    size: int,
    seed: int,
    n_jobs: int | None = None,
    proposals: int | None = None,
) -> NDArray[np.int64]:
    """Draw rows one by one, in proportion to the part of k(x, x) that is not yet explained.

    Rows are proposed in blocks from the current residuals. A proposal is accepted with probability
    equal to the share of its residual that the accepted proposals before it leave. The distribution
    is that of single draws, and the work is done in matrix products.

    Parameters
    ----------
    kernel : Kernel
    X : {ndarray, CSR} of shape (n, d)
    size : int
        Number of pivots; fewer if those explain the whole kernel up to rounding.
    seed : int
    n_jobs : int, optional
        Number of threads; None uses all cores.
    proposals : int, default by size
        Rows proposed at a time.

    Returns
    -------
    pivots : ndarray of shape (n_pivots,)
        Row numbers in the order of the draws.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.kernels import Gaussian
    >>> X = np.array([[0.0], [0.0], [9.0]])
    >>> rpcholesky_pivots(Gaussian(), X, 3, seed=0).size  # the first two are the same point
    2
    """
    rng = stream(seed, "pivots")
    shape = X.shape[0], min(size, X.shape[0])
    check_matrix(
        *shape,
        X.dtype,
        f"a pivoted Cholesky factor of {shape[0]:,} rows and {shape[1]:,} landmarks",
        "at most {fits} landmarks would fit; or choose them by 'uniform' or 'leverage'",
    )
    factor = np.empty(shape, dtype=X.dtype)
    residuals = kernel.diag(X).astype(np.float64)
    rounding = ROUNDING * float(np.finfo(X.dtype).eps) * float(residuals.sum())
    pivots = np.empty(0, dtype=np.int64)
    proposals = proposals or int(np.clip(size // 8, 8, 256))
    while len(pivots) < factor.shape[1] and residuals.sum() > rounding:
        proposed = _draw(residuals, proposals, rng)
        gram = _residual_gram(kernel, X[proposed], factor[proposed, : len(pivots)])
        residuals[proposed] = np.maximum(np.diag(gram), 0.0)  # the sums drift, this is fresh
        accepted, root = accept(gram, factor.shape[1] - len(pivots), rng)
        new = proposed[accepted]
        _extend(kernel, X, factor, len(pivots), new, root, residuals, n_jobs)
        residuals[new] = 0.0
        pivots = np.concatenate([pivots, new])
    return pivots


def _draw(residuals: NDArray[np.float64], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw independent rows with probabilities proportional to the residuals."""
    running = np.cumsum(residuals)
    drawn = np.searchsorted(running, running[-1] * rng.random(size), side="right")
    return np.minimum(drawn, len(residuals) - 1)


def _residual_gram(kernel: Kernel, rows: Any, factor: NDArray[Any]) -> NDArray[np.float64]:
    """Residual kernel matrix of the proposed rows, in float64."""
    rows, factor = rows.astype(np.float64), factor.astype(np.float64)
    return kernel.between(rows, rows, n_jobs=1) - factor @ factor.T


def accept(
    gram: NDArray[np.float64], limit: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Accept at most ``limit`` proposals; return them and the Cholesky factor of their Gram matrix.

    A proposal with residual h is accepted with probability h' / h, where h' is what the accepted
    proposals before it leave of h.
    """
    rest, first = gram.copy(), np.diag(gram).copy()
    accepted: list[int] = []
    columns = []
    for j, uniform in enumerate(rng.random(len(gram))):
        if len(accepted) < limit and uniform * first[j] < rest[j, j]:
            column = rest[:, j] / np.sqrt(rest[j, j])
            rest -= np.outer(column, column)
            accepted.append(j)
            columns.append(column)
    kept = np.array(accepted, dtype=np.int64)
    return kept, np.tril(np.array(columns).T[kept]) if accepted else np.empty((0, 0))


def _extend(
    kernel: Kernel,
    X: Any,
    factor: NDArray[Any],
    rank: int,
    pivots: NDArray[np.int64],
    root: NDArray[np.float64],
    residuals: NDArray[np.float64],
    n_jobs: int | None,
) -> None:
    """Append the columns of the new pivots to the factor, and lower the residuals."""
    if len(pivots) == 0:
        return
    points, heads = X[pivots], factor[pivots, :rank].T.copy()
    whitening = inverse_of_lower(root).T.astype(factor.dtype)
    columns = slice(rank, rank + len(pivots))

    def block(rows: slice) -> None:
        part = kernel.between(X[rows], points, n_jobs=1)
        part -= factor[rows, :rank] @ heads
        np.matmul(part, whitening, out=factor[rows, columns])
        explained = np.square(factor[rows, columns], dtype=np.float64).sum(axis=1)
        np.maximum(residuals[rows] - explained, 0.0, out=residuals[rows])

    map_row_blocks(block, X.shape[0], UPDATED_ROWS, n_jobs)
