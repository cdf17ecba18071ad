"""Scores of a pool of features on anchor rows, and the thinning by them.

The scores only have to be right up to a constant, so a few thousand anchors stand for all rows,
with alpha scaled by their share (docs/why-the-engine.md, "Anchors"). Each feature of the pool is
scored by its ridge leverage, its weight in the exact kernel ridge regression of the target, and its
norm; a fixed number is kept without replacement ("Two phases"). A ``Selector`` is a way to choose
features as a value: the engine has two, and the published samplers come as others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from kernelsieve._random import keyed_rows, stream
from kernelsieve.engine.balance import balanced_probabilities, heaviest_directions
from kernelsieve.engine.space import Pool, RowPlan, Space
from kernelsieve.kernels import Kernel
from kernelsieve.linalg.cholesky import regularised_cholesky
from kernelsieve.products.product_features import ProductFeatures
from kernelsieve.sources.base import Block, Source
from kernelsieve.sources.summaries import target_summary

N_PROBES = 16
BISECTION_PRECISION = 0.4  # of log lambda
SMALLEST_NORM_SHARE = 0.01
# The norm's share of what the target leaves. Without a target it is larger: kernel errors of
# polynomials are up to a quarter lower than with a half (docs/why-the-engine.md).
NORM_SHARE, NORM_SHARE_ALONE = 0.5, 0.75
PILOT_FEATURES = 1000  # of all pilots of a share together, about
MOST_PILOTS = 8
SHARES = (0.0, 1 / 3, 0.8)  # of the target, that are judged against each other


@dataclass(frozen=True)
class Anchors:
    """Anchor rows and the vectors that score features on them.

    Attributes
    ----------
    rows : {ndarray, CSR} of shape (n_0, d)
    leverage_vectors : ndarray of shape (n_0, k)
        M with covariance (K_0 + lambda I)^-1: |phi . M|^2 / k estimates the ridge leverage.
    target_vectors : ndarray of shape (n_0, n_outputs)
        (K_0 + lambda I)^-1 y, whose products with the features are their exact KRR weights.
    directions : ndarray of shape (n_0, n_directions)
        The heaviest directions of K_0, for which the choice is balanced.
    total_leverage : float
        tr(M^T K_0 M) / k: the leverage of all features together.
    """

    rows: Any
    leverage_vectors: NDArray[np.float64]
    target_vectors: NDArray[np.float64]
    directions: NDArray[np.float64]
    total_leverage: float


def make_anchors(
    kernel: Kernel,
    rows: Any,
    targets: NDArray[np.float64],
    lambda_: float,
    n_vectors: int,
    rng: np.random.Generator,
    n_jobs: int | None,
    n_directions: int = 0,
) -> Anchors:
    """Factor K_0 + lambda I once, and solve for the scoring vectors."""
    gram = kernel(rows.astype(np.float64), n_jobs=n_jobs)
    factor, _ = regularised_cholesky(gram, lambda_)
    # L^-T G has covariance (L L^T)^-1: Alg. 3 line 2 without an inverse root.
    normals = rng.standard_normal((len(gram), n_vectors))
    leverage_vectors = solve_triangular(factor, normals, lower=True, trans="T", check_finite=False)
    half = solve_triangular(factor, targets, lower=True, check_finite=False)
    target_vectors = solve_triangular(factor, half, lower=True, trans="T", check_finite=False)
    total = float(np.sum(leverage_vectors * (gram @ leverage_vectors))) / n_vectors
    directions = np.empty((len(gram), 0))
    if n_directions:
        directions = heaviest_directions(gram, n_directions, rng)
    return Anchors(rows, leverage_vectors, target_vectors, directions, total)


def lambda_for_dimension(
    gram: NDArray[np.float64], dimension: float, rng: np.random.Generator
) -> float:
    """The lambda at which the statistical dimension is about ``dimension`` (bisection).

    So few rows cannot show a dimension near their number: it is held to a quarter of it.
    """
    trace = float(np.trace(gram))
    if not trace > 0:
        return 1.0
    dimension = min(dimension, len(gram) / 4)
    probes = rng.choice([-1.0, 1.0], size=(len(gram), N_PROBES))
    # s_lambda <= tr(K) / lambda; in logarithms, because traces may be huge.
    low, high = np.log(1e-12) + np.log(trace), np.log(trace) - np.log(dimension)
    while high - low > BISECTION_PRECISION:
        middle = 0.5 * (low + high)
        if _estimated_dimension(gram, float(np.exp(middle)), probes) > dimension:
            low = middle
        else:
            high = middle
    return float(np.exp(0.5 * (low + high)))


def _estimated_dimension(
    gram: NDArray[np.float64], lambda_: float, probes: NDArray[np.float64]
) -> float:
    """n - lambda tr (K + lambda I)^-1, the trace by Hutchinson's estimator."""
    factor, shift = regularised_cholesky(gram, lambda_)
    halves = solve_triangular(factor, probes, lower=True, check_finite=False)
    return len(gram) - shift * float(np.sum(halves**2)) / probes.shape[1]


# --- scores ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PoolScores:
    """What the anchors say of every feature of a pool.

    Attributes
    ----------
    leverage, target : ndarray of shape (pool,)
    missed_leverage : float
        The share of the leverage that no feature of the pool holds.
    directions : ndarray of shape (pool, n_directions) or None
        Products with the heaviest directions; None leaves the choice to chance alone.
    """

    leverage: NDArray[np.float64]
    target: NDArray[np.float64]
    missed_leverage: float
    directions: NDArray[np.float64] | None = None


def score_pool(pool: Pool, anchors: Anchors, n_jobs: int | None) -> PoolScores:
    """Leverage and target weight of every pool feature."""
    parts = (anchors.leverage_vectors, anchors.target_vectors, anchors.directions)
    n_leverage, n_targets, n_directions = (part.shape[1] for part in parts)
    products = pool.features.project(anchors.rows, np.hstack(parts), n_jobs)
    leverage, target, directions = np.split(products, [n_leverage, n_leverage + n_targets], axis=1)
    scores = (np.square(leverage).sum(axis=1) / n_leverage, np.square(target).sum(axis=1))
    held = scores[0].sum() / anchors.total_leverage if anchors.total_leverage > 0 else 1.0
    missed = float(np.clip(1.0 - held, 0.0, 1.0))
    return PoolScores(*scores, missed, directions if n_directions else None)


def keep_probabilities(
    scores: PoolScores, pool: Pool, size: int, target_share: float
) -> NDArray[np.float64]:
    """pi_2: proportional to the mixture of scores over pi_1, capped at 1, summing to ``size``.

    A pool feature of inclusion probability pi_1 stands for 1 / pi_1 like it. The norm is positive
    for every feature and always has its share: a feature that no anchor shows can be kept too.
    """
    rest, norm = 1.0, NORM_SHARE_ALONE
    if scores.target.any() and target_share > 0:
        rest, norm = 1.0 - target_share, NORM_SHARE
    mixture = np.zeros(len(pool.inclusion))
    for share, score in (
        (1.0 - rest, scores.target),
        ((1.0 - norm) * rest, scores.leverage),
        (max(norm * rest, SMALLEST_NORM_SHARE), pool.norms),
    ):
        represented = score / pool.inclusion
        if represented.any():
            mixture += share * represented / represented.sum()
    return capped_proportional(mixture, size)


def thin_pool(
    pool: Pool,
    keep: NDArray[np.float64],
    rng: np.random.Generator,
    directions: NDArray[np.float64] | None = None,
    n_balanced: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The features kept, and their weights 1 / sqrt(pi_1 pi_2).

    With products of the features with directions, the choice is balanced for pairs of these.
    """
    # In an order of the names, which dense and sparse rows share, not in that of the columns.
    columns = np.argsort(pool.features.multisets.hashes())
    probabilities = keep[columns]
    if directions is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            weighted = directions / np.sqrt(pool.inclusion * keep)[:, None]
        weighted[keep <= 0.0] = 0.0
        probabilities = balanced_probabilities(probabilities, weighted[columns], n_balanced, rng)
    chosen = columns[systematic_sample(probabilities, rng)]
    return chosen, 1.0 / np.sqrt(pool.inclusion[chosen] * keep[chosen])


# --- sampling without replacement -----------------------------------------------------------------


def capped_proportional(scores: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Probabilities proportional to ``scores``, at most 1, that sum to ``size``.

    Examples
    --------
    >>> capped_proportional(np.array([8.0, 1.0, 1.0]), 2)
    array([1. , 0.5, 0.5])
    """
    if size >= len(scores):
        return np.ones(len(scores))
    descending = np.sort(scores)[::-1]
    remaining = np.cumsum(descending[::-1])[::-1]  # sum of the scores from each place on
    # The k largest are capped for the first k at which the next one no longer exceeds 1.
    room = size - np.arange(size)
    capped = int(np.argmax(descending[:size] * room <= remaining[:size]))
    if remaining[capped] <= 0:
        return np.ones(len(scores)) * (scores > 0)
    return np.minimum(scores * (room[capped] / remaining[capped]), 1.0)


def systematic_sample(
    probabilities: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Numbers of the chosen items: each with its own probability, as many as their sum.

    Systematic sampling in random order: one uniform start, then a step of 1 along the running sum.
    """
    certain = np.flatnonzero(probabilities >= 1.0)
    uncertain = rng.permutation(np.flatnonzero((probabilities > 0.0) & (probabilities < 1.0)))
    running = np.cumsum(probabilities[uncertain])
    count = round(float(running[-1])) if len(running) else 0
    if count == 0:
        return certain
    running *= count / running[-1]  # rounding must not change the number of items
    start = rng.random()
    chosen = np.diff(np.ceil(running - start), prepend=np.ceil(-start)) > 0
    return np.sort(np.concatenate([certain, uncertain[chosen]]))


# --- selectors -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Selection:
    """Weighted features of a space.

    Attributes
    ----------
    features : ProductFeatures
    missed_leverage : float
        The share of the kernel's ridge leverage that the pool did not hold; NaN if not measured.
    """

    features: ProductFeatures
    missed_leverage: float = float("nan")


@dataclass(frozen=True)
class Selector:
    """A way to choose features of a space.

    Attributes
    ----------
    select : callable
        From (space, n_components, seed) to a Selection.
    name : str
        For messages.
    monomials_only : bool
        Whether it can only choose among monomials.
    may_rotate : bool
        Whether rotate="auto" considers a rotation.
    uses_anchors : bool
        Whether it looks at the anchor rows.
    """

    select: Callable[[Any, int, int], Selection]
    name: str
    monomials_only: bool = False
    may_rotate: bool = True
    uses_anchors: bool = False


def row_norm_selector(name: str, n_jobs: int | None) -> Selector:
    """Distinct features in proportion to their squared norms."""

    def select(space: Space, size: int, seed: int) -> Selection:
        pool = space.draw(size, seed, n_jobs, size // 2)
        return Selection(pool.features.reweighted(1.0 / np.sqrt(pool.inclusion)))

    return Selector(select, name)


def row_norm_pool(
    space: Space, anchors: Callable[[], Anchors], size: int, seed: int, n_jobs: int | None
) -> Pool:
    """A pool of distinct features by row norm, which needs no anchors."""
    return space.draw(size, seed, n_jobs, size // 4)


def two_phase_selector(
    name: str,
    rows: Source,
    kernel: Kernel,
    alpha: float,
    target_share: float | None,
    n_jobs: int | None,
    *,
    draw_pool: Callable[..., Pool] = row_norm_pool,
    monomials_only: bool = False,
) -> Selector:
    """A large pool, thinned by leverage, use for the target, and norm.

    Parameters
    ----------
    name : str
        For messages.
    rows : Source
        All rows, and their targets if there are any.
    kernel : Kernel
    alpha : float
    target_share : float or None
        How much the target decides; 0 ignores it, and None judges shares on held-out rows.
    n_jobs : int or None
    draw_pool : callable
        From (space, anchors, size, seed, n_jobs) to a Pool; ``anchors()`` makes the anchors.
    monomials_only : bool
        Whether that pool can only hold monomials.
    """

    def select(space: Space, size: int, seed: int) -> Selection:
        plan = RowPlan.of(rows, seed, space.options)
        share = 1.0 if target_share is None else target_share

        @cache
        def anchors() -> Anchors:
            chosen = rows.take(plan.anchors(plan.n_anchors(size)))
            return _anchors(rows, chosen, kernel, alpha, share, size, plan, n_jobs)

        pool = draw_pool(space, anchors, space.options.pool_factor * size, seed, n_jobs)
        if pool.complete and len(pool.features) <= size:
            return Selection(pool.features, 0.0)
        scores = score_pool(pool, anchors(), n_jobs)
        if target_share is None:
            judge = partial(_share_error, rows, kernel, alpha, space, pool, size, plan, n_jobs)
            share = _best_share(rows, plan, judge) if scores.target.any() else 0.0
        keep = keep_probabilities(scores, pool, size, share)
        rng, options = stream(seed, "thinning"), space.options
        chosen, weights = thin_pool(pool, keep, rng, scores.directions, options.n_balanced)
        features = space.features(pool.features.multisets.take(chosen), weights)
        return Selection(features, scores.missed_leverage)

    return Selector(select, name, monomials_only, uses_anchors=True)


def _best_share(
    rows: Source, plan: RowPlan, errors: Callable[[Block, Block], list[float]]
) -> float:
    """The share of the target with the lowest error on rows that chose nothing."""
    n_judged = min(plan.options.held_out_rows, rows.shape[0] // 3)
    n_chosen = min(plan.options.n_anchors[1], rows.shape[0] - n_judged)
    order = keyed_rows(rows.shape[0], n_judged + n_chosen, plan.seed, "share")
    mixed = stream(plan.seed, "share").permutation(order)
    chosen, judged = np.sort(mixed[n_judged:]), np.sort(mixed[:n_judged])
    found = errors(rows.take(chosen), rows.take(judged))
    return SHARES[int(np.argmin(found))]


def _share_error(
    rows: Source,
    kernel: Kernel,
    alpha: float,
    space: Space,
    pool: Pool,
    size: int,
    plan: RowPlan,
    n_jobs: int | None,
    chosen: Block,
    judged: Block,
) -> list[float]:
    """Squared errors on the judged rows of ridges on the chosen ones, one for each share."""
    anchors = _anchors(rows, chosen, kernel, alpha, 1.0, size, plan, n_jobs)
    scores = score_pool(pool, anchors, n_jobs)
    y, truth = _targets(rows, chosen, 1.0), _targets(rows, judged, 1.0)
    n_pilots = int(np.clip(PILOT_FEATURES // size, 1, MOST_PILOTS))  # of few features each is luck
    errors = []
    for share in SHARES:
        keep, squares = keep_probabilities(scores, pool, size, share), 0.0
        for pilot in range(n_pilots):
            # With draws of its own: a draw that was judged must not be drawn again.
            some, weights = thin_pool(pool, keep, stream(plan.seed, "pilot thinning", pilot))
            features = space.features(pool.features.multisets.take(some), weights)
            Z, Z_judged = (
                features.values(block.X, n_jobs).astype(np.float64) for block in (chosen, judged)
            )
            mean, middle = Z.mean(axis=0), y.mean(axis=0)
            Z -= mean
            factor, _ = regularised_cholesky(Z.T @ Z, alpha * len(chosen) / rows.shape[0])
            half = solve_triangular(factor, Z.T @ (y - middle), lower=True, check_finite=False)
            beta = solve_triangular(factor, half, lower=True, trans="T", check_finite=False)
            squares += float(np.square((Z_judged - mean) @ beta + middle - truth).sum())
        errors.append(squares)
    return errors


def _anchors(
    rows: Source,
    chosen: Block,
    kernel: Kernel,
    alpha: float,
    target_share: float,
    n_components: int,
    plan: RowPlan,
    n_jobs: int | None,
) -> Anchors:
    """Anchor rows with lambda' = (n_0 / n) max(alpha, the value where s_lambda ~ s / 4)."""
    n, seed, options = rows.shape[0], plan.seed, plan.options
    few = chosen.X[keyed_rows(len(chosen), options.dimension_rows, seed, "dimension")]
    gram = kernel(few.astype(np.float64), n_jobs=n_jobs)
    shrink = few.shape[0] / n
    smallest = lambda_for_dimension(gram, n_components / 4, stream(seed, "probes")) / shrink
    return make_anchors(
        kernel,
        chosen.X,
        _targets(rows, chosen, target_share),
        len(chosen) / n * max(alpha, smallest),
        options.n_vectors,
        stream(seed, "leverage"),
        n_jobs,
        # Lengths of rows give the kernels of inner products few heavy directions. The others have
        # small errors without a balance.
        options.n_directions if kernel.of_inner_products else 0,
    )


def _targets(rows: Source, chosen: Block, target_share: float) -> NDArray[np.float64]:
    """The targets of the anchors as columns that are standardised over all rows."""
    summary = target_summary(rows) if target_share > 0 else None
    return np.empty((len(chosen), 0)) if summary is None else summary.columns(chosen.y)
