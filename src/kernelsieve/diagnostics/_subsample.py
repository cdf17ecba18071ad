"""Estimates from a few thousand rows: exact values on subsamples, extrapolated to n rows.

A subsample of m of n rows takes the ridge alpha m / n, since the eigenvalues of its kernel matrix
are about m / n times those of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from kernelsieve._random import stream
from kernelsieve.diagnostics import spectral
from kernelsieve.diagnostics._kernel_data import (
    CONFIDENCE,
    Features,
    KernelData,
    Measured,
    between,
)
from kernelsieve.linalg.cholesky import inverse_of_lower, regularised_cholesky
from kernelsieve.linalg.operators import Array, diagonal, evaluate, outer


def statistical_dimension(data: KernelData, alpha: float, m: int, n_repeats: int) -> Measured:
    """Bracket it between a quantity that is too small on average and one that is too large.

    Let C be the mean of phi(x) phi(x)^T over all rows, C_S that over a subsample, g = alpha / n.
    C_S has the mean C. The statistical dimension of the subsample, tr C_S (C_S + g)^-1, is concave
    in C_S, so in the mean it is too small. tr C (C_S + g)^-1, where rows outside the subsample are
    held against it, is convex in C_S, so in the mean it is too large (Jensen's inequality, twice).
    The eigenvalues of K have the mean t = tr(K) / n, so n t / (t + alpha) is an upper bound, too.
    """
    n_rows = data.n_rows
    draws = draw_rows(n_rows, 2 * m, n_repeats, data.seed)
    measured = [_inside_and_crossed(data, alpha, rows[:m], rows[m:]) for rows in draws]
    inside, crossed, diagonals = (np.array(values) for values in zip(*measured, strict=True))
    mean = float(diagonals.mean()) + margin(diagonals)
    low = float(inside.mean()) - margin(inside)
    high = min(float(crossed.mean()) + margin(crossed), n_rows * mean / (mean + alpha))
    return between(max(low, 0.0), max(high, low))


def _inside_and_crossed(
    data: KernelData, alpha: float, seen: Any, unseen: Any
) -> tuple[float, float, float]:
    """The two sums of `statistical_dimension` for one subsample, and the mean of k(x, x)."""
    m, n_rows = len(seen), data.n_rows
    ridge = alpha * m / n_rows
    factor, shift = regularised_cholesky(data.gram(seen), ridge)
    inverse = inverse_of_lower(factor)
    inside = m - shift * float(np.sum(inverse**2))
    own = diagonal(data.kernel, data.points[unseen])
    across = evaluate(data.kernel, data.points[seen], data.points[unseen])
    # Rounding can make a row outside look better explained than perfectly.
    left = np.maximum(own - np.sum((inverse @ across) ** 2, axis=0), 0.0) / alpha
    crossed = m / n_rows * inside + (n_rows - m) * float(left.mean())
    return inside, crossed, float(own.mean())


def epsilon_sides(
    data: KernelData, features: Features, alpha: float, m: int, n_repeats: int
) -> tuple[Measured, Measured]:
    """Both sides of the spectral epsilon, by their trend from m/2 to m rows."""

    def both(rows: Any) -> tuple[float, float]:
        ridge = alpha * len(rows) / data.n_rows
        exact = spectral.spectral_epsilon(data.gram(rows), features.of_rows(rows), ridge)
        return exact.lower, exact.upper

    whole, halves = [], []
    for rows in draw_rows(data.n_rows, m, n_repeats, data.seed):
        whole.append(both(rows))
        halves.append(np.mean([both(rows[: m // 2]), both(rows[m // 2 :])], axis=0))
    doublings = float(np.log2(data.n_rows / m))
    lower, upper = (
        trend(values, half_values, doublings)
        for values, half_values in zip(np.transpose(whole), np.transpose(halves), strict=True)
    )
    low, high = upper.value - upper.error, upper.value + upper.error
    return lower, between(low, min(high, 1.0))  # nothing is more than all too high


def kernel_errors(
    data: KernelData, features: Features, m: int, n_repeats: int
) -> tuple[Measured, Measured]:
    """Relative Frobenius error from sums over pairs, operator norm error by its trend."""
    sums, whole, halves = [], [], []
    for rows in draw_rows(data.n_rows, m, n_repeats, data.seed):
        K, Z = data.gram(rows), features.of_rows(rows)
        sums.append((*squares(K - outer(Z, Z)), *squares(K)))
        whole.append(spectral.kernel_error(K, Z).operator)
        pieces = (slice(m // 2), slice(m // 2, m))
        halves.append(np.mean([spectral.kernel_error(K[p, p], Z[p]).operator for p in pieces]))
    operator = trend(np.array(whole), np.array(halves), float(np.log2(data.n_rows / m)))
    return frobenius(np.array(sums), data.n_rows, m), operator


def draw_rows(n_rows: int, size: int, n_repeats: int, seed: int) -> Iterator[NDArray[np.intp]]:
    """Rows drawn without replacement, in random order, once for each repeat."""
    for repeat in range(n_repeats):
        rng = stream(seed, "diagnostics", "subsample", repeat)
        yield rng.choice(n_rows, size=min(size, n_rows), replace=False).astype(np.intp)


def margin(values: Array) -> float:
    """Half-width of Student's interval for the mean of independent values."""
    quantile = student.ppf((1 + CONFIDENCE) / 2, values.size - 1)
    return float(quantile * np.std(values, ddof=1) / np.sqrt(values.size))


def trend(whole: Array, halves: Array, doublings: float) -> Measured:
    """Where a quantity lies for all n rows, from its values on m rows and on halves of them.

    It changes by D in the mean from m/2 to m rows. If it changes by no more than that in each of
    the log2(n/m) doublings that lead to n, it ends between no change and log2(n/m) D. The noise of
    both is added.

    Parameters
    ----------
    whole : ndarray of shape (n_repeats,)
        Values on m rows.
    halves : ndarray of shape (n_repeats,)
        Means of the values on the two halves of the same rows.
    doublings : float
        log2(n / m).
    """
    steps = whole - halves
    reach = doublings * float(steps.mean())
    noise = margin(whole) + doublings * margin(steps)
    center = float(whole.mean())
    return between(center + min(reach, 0.0) - noise, center + max(reach, 0.0) + noise)


def frobenius(sums: Array, n_rows: int, m: int) -> Measured:
    """norm(D) / norm(K) from squares summed over m rows.

    Parameters
    ----------
    sums : ndarray of shape (n_repeats, 4)
        Squares of D off and on the diagonal, then those of K. They are weighted apart: a pair of
        rows is in the subsample with another probability than a single row.
    """
    pairs, singles = n_rows * (n_rows - 1) / (m * (m - 1)), n_rows / m
    error = pairs * sums[:, 0] + singles * sums[:, 1]
    total = pairs * sums[:, 2] + singles * sums[:, 3]
    if total.sum() == 0.0:
        raise ValueError("the kernel is zero for all pairs of rows: a relative error is undefined")
    # Jackknife: a root of a ratio of means has no simple variance.
    n_repeats = error.size
    left_out = np.sqrt((error.sum() - error) / (total.sum() - total))
    pseudo = n_repeats * np.sqrt(error.sum() / total.sum()) - (n_repeats - 1) * left_out
    center, noise = float(pseudo.mean()), margin(pseudo)
    return between(max(center - noise, 0.0), center + noise)


def squares(matrix: Array) -> tuple[float, float]:
    """Sums of squares off and on the diagonal."""
    on = float(np.sum(matrix.diagonal() ** 2))
    return float(np.sum(matrix**2)) - on, on
