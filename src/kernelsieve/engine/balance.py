"""Balanced thinning: which features are kept, so that their kernel is right where it is heavy.

A fixed number of features is kept with given probabilities, whatever else is asked of them. So one
may ask that u_i^T Z Z^T u_j is that of the whole pool, u_1, u_2, ... being the heaviest directions
of the kernel matrix: that is where most of the error is (docs/why-the-engine.md, "Balance").
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from kernelsieve._native.balance import walk

# Of the features that chance decides on, each sum that is balanced takes one for itself.
SHARE = 1 / 3
SMALLEST_PART = 1e-6  # of the largest: what is left of a sum that others imply
UNITS_AT_ONCE = 512  # before the inverse is computed anew
WORST_CONDITION = 1e10  # of a basis; beyond, the rest is left to chance
DECIDED = 1e-7


def heaviest_directions(
    gram: NDArray[np.float64], count: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """About the first ``count`` eigenvectors of ``gram``, of shape (n, <= count)."""
    count = min(count, len(gram))
    largest = np.abs(gram).max(initial=0.0)
    gram = gram / largest if largest > 0 else gram  # squares of huge values would overflow
    block = rng.standard_normal((len(gram), min(len(gram), count + 8)))
    for _ in range(2):
        block = np.linalg.qr(gram @ block)[0]
    _, vectors = np.linalg.eigh(block.T @ (gram @ block))
    return block @ vectors[:, : -count - 1 : -1]


def balanced_probabilities(
    keep: NDArray[np.float64],
    directions: NDArray[np.float64],
    most: int,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Probabilities with expectation ``keep`` that are 0 or 1 for all but a few features.

    Parameters
    ----------
    keep : ndarray of shape (pool,)
    directions : ndarray of shape (pool, k)
        The product of every feature, in its final weight, with every direction.
    most : int
        Products of two directions to balance, at most; the heaviest pairs come first.
    rng : Generator

    Returns
    -------
    ndarray of shape (pool,)
        Their sum is that of ``keep``, and so are the sums of products, nearly.
    """
    uncertain = rng.permutation(np.flatnonzero((keep > 0.0) & (keep < 1.0)))
    count = min(most, int(SHARE * keep[uncertain].sum()))
    if count < 1 or directions.shape[1] == 0:
        return keep
    sums = _balanced_sums(directions, keep, uncertain, count)
    probabilities, uniforms = keep[uncertain], rng.random(len(uncertain))
    n_sums = sums.shape[1]
    # Those that span the sums best go first: the walk needs an invertible basis.
    first = qr(sums.T, mode="r", pivoting=True)[1][:n_sums]
    order = np.concatenate([first, np.setdiff1d(np.arange(len(uncertain)), first)])
    sums, probabilities = sums[order], probabilities[order]
    basis = np.arange(n_sums)
    for start in range(n_sums, len(order), UNITS_AT_ONCE):
        if not np.linalg.cond(sums[basis]) < WORST_CONDITION:
            break
        inverse = np.linalg.inv(sums[basis].T)
        stop = min(start + UNITS_AT_ONCE, len(order))
        walk(sums, probabilities, uniforms, basis, inverse, start, stop)
    probabilities[probabilities < DECIDED] = 0.0
    probabilities[probabilities > 1.0 - DECIDED] = 1.0
    result = keep.copy()
    result[uncertain[order]] = probabilities
    return result


def _balanced_sums(
    directions: NDArray[np.float64],
    keep: NDArray[np.float64],
    uncertain: NDArray[np.int64],
    count: int,
) -> NDArray[np.float64]:
    """A column of ones and independent combinations of the heaviest products of two directions."""
    largest = np.abs(directions).max(initial=0.0)
    directions = directions / largest if largest > 0 else directions
    heaviness = keep @ np.square(directions)
    left, right = np.triu_indices(directions.shape[1])
    pairs = np.argsort(-heaviness[left] * heaviness[right], kind="stable")[:count]
    some = directions[uncertain]
    products = some[:, left[pairs]] * some[:, right[pairs]]
    products -= products.mean(axis=0)
    lengths = np.linalg.norm(products, axis=0)
    products = products[:, lengths > 0] / lengths[lengths > 0]
    parts, combinations = np.linalg.eigh(products.T @ products)
    sound = parts > SMALLEST_PART * parts.max(initial=0.0)
    columns = products @ (combinations[:, sound] / np.sqrt(parts[sound]))
    return np.column_stack([np.full(len(some), len(some) ** -0.5), columns])
