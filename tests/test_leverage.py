"""Leverage paths as a second source of features: exact weights, and what they find."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from support.adaptive_maps import targets
from support.engine_options import set_options
from support.sampled_maps import (
    LONELY_COLUMN,
    LONELY_ROW,
    check_every_monomial,
    check_unbiased,
    gram_of,
    lonely_points,
    make_small,
)

from kernelsieve import AdaptiveFeatures
from kernelsieve.engine.options import EngineOptions
from kernelsieve.engine.scores import Anchors, make_anchors
from kernelsieve.engine.space import MonomialSpace, Pool, RowPlan
from kernelsieve.kernels import Gaussian, Kernel, Polynomial
from kernelsieve.paper.leverage import leverage_pool
from kernelsieve.products.product_features import Frame
from kernelsieve.testing.data import as_dense

Array = Any

SHORT = EngineOptions(max_draws=2000)
CUBIC = Polynomial(3, 1.0, 0.5)  # 35 monomials in 4 columns


def space_of(kernel: Any, X: Any, seed: int) -> MonomialSpace:
    series = kernel.series(X, 1e-6)
    return MonomialSpace(
        series, Frame.of_series(series).along_columns(X), X, RowPlan.of(X, seed, SHORT)
    )


def anchors_of(kernel: Kernel, rows: Any, alpha: float = 0.1) -> Anchors:
    none = np.empty((rows.shape[0], 0))
    return make_anchors(kernel, rows, none, alpha, 8, np.random.default_rng(0), 1)


def pool_of(kernel: Kernel, X: Any, size: int, seed: int, rows: Any = None) -> Pool:
    anchors = anchors_of(kernel, X if rows is None else rows)
    return leverage_pool(space_of(kernel, X, seed), lambda: anchors, size, seed, 1)


def inverse_inclusions(pools: list[Pool], names: list[tuple[int, ...]]) -> Array:
    """1 / inclusion of every named feature in every pool, 0 where it is not there."""
    result = np.zeros((len(pools), len(names)))
    for row, pool in zip(result, pools, strict=True):
        for m, inclusion in zip(pool.features.multisets.tuples(), pool.inclusion, strict=True):
            row[names.index(m)] += 1.0 / inclusion
    return result


def assert_expectation_is_one(weights: Array, names: list[tuple[int, ...]]) -> None:
    """Five standard errors for each feature that was seen often enough to have one."""
    seen = (weights > 0).sum(axis=0) >= 20
    assert seen.mean() > 0.5
    error = np.maximum(weights.std(axis=0, ddof=1), 1e-9) / np.sqrt(len(weights))
    z = np.abs(weights.mean(axis=0) - 1.0) / error
    assert z[seen].max() < 5.0, {names[i]: z[i] for i in np.flatnonzero(seen & (z >= 5.0))}


# --- weights, feature by feature -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("sparse", "seeds"), [(False, 100), pytest.param(True, 1000, marks=pytest.mark.slow)]
)
def test_every_weight_is_1_in_expectation(sparse: bool, seeds: int) -> None:
    X = lonely_points(sparse=sparse)
    names = list(oracles.multisets(4, 3))
    given = sp.csr_array(X) if sparse else X
    pools = [pool_of(CUBIC, given, 16, seed) for seed in range(seeds)]
    assert not any(pool.complete for pool in pools)
    assert_expectation_is_one(inverse_inclusions(pools, names), names)


def test_a_feature_that_no_anchor_shows_comes_by_its_norm() -> None:
    """Paths never find the lonely column; its features have their weight all the same."""
    X = lonely_points()
    rows = np.delete(X, LONELY_ROW, axis=0)
    names = list(oracles.multisets(4, 3))
    pools = [pool_of(CUBIC, X, 20, seed, rows) for seed in range(120)]
    weights = inverse_inclusions(pools, names)
    assert_expectation_is_one(weights, names)
    lonely = [i for i, m in enumerate(names) if LONELY_COLUMN in m and len(m) > 1]
    assert (weights[:, lonely] > 0).any()


def test_anchors_without_any_feature() -> None:
    """All anchors are zero and the kernel is homogeneous: only norms are left."""
    X = lonely_points()
    kernel = Polynomial(3, 1.0, 0.0)
    names = [m for m in oracles.multisets(4, 3) if len(m) == 3]
    pools = [pool_of(kernel, X, 18, seed, np.zeros((3, 4))) for seed in range(150)]
    assert_expectation_is_one(inverse_inclusions(pools, names), names)


@pytest.mark.parametrize("size", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_tiny_pools(size: int) -> None:
    """Neither source is left without a draw: the trace that the weights make is that of K."""
    X = lonely_points()
    pools = [pool_of(CUBIC, X, size, seed) for seed in range(200)]
    traces = np.array(
        [
            (pool.features.squared_norms(X, 1) / pool.inclusion).sum() if len(pool.norms) else 0.0
            for pool in pools
        ]
    )
    error = traces.std() / np.sqrt(len(traces))
    assert abs(traces.mean() - np.trace(gram_of(CUBIC, X))) < 5 * error


def test_low_degrees_are_taken_whole() -> None:
    X = lonely_points()
    for seed in range(5):
        pool = pool_of(CUBIC, X, 24, seed)  # the degrees 0 and 1 fit into its quarter
        names = pool.features.multisets.tuples()
        inclusion = dict(zip(names, pool.inclusion, strict=True))
        assert all(inclusion[m] == 1.0 for m in [(), (0,), (1,), (2,), (3,)])
        assert len(set(names)) == len(names)
        assert max(map(len, names)) > 1


@pytest.mark.parametrize("sparse", [False, True])
def test_where_all_features_fit_there_is_nothing_to_draw(sparse: bool) -> None:
    X = lonely_points(sparse=sparse)
    given = sp.csr_array(X) if sparse else X
    pool = pool_of(CUBIC, given, 35, seed=0)
    assert pool.complete
    assert (pool.inclusion == 1.0).all()
    fitted = AdaptiveFeatures(35, kernel=CUBIC, sampler="leverage", rotate=False, random_state=0)
    Z = as_dense(fitted.fit_transform(given))
    np.testing.assert_allclose(Z @ Z.T, gram_of(CUBIC, X), atol=1e-12)
    assert fitted.missed_leverage_ == 0.0


def test_a_pool_of_all_features_is_thinned_without_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    """They fit into the pool (12 x 20) but not into the map: only the second phase is random."""
    make_small(monkeypatch)
    check_every_monomial(AdaptiveFeatures, range(120), n_components=20, sampler="leverage")


def test_paths_find_what_norms_miss() -> None:
    """A column of small norm that a small ridge needs: paths bring it, norms hardly ever do."""
    X = np.random.default_rng(0).normal(size=(60, 8))
    X[:, 7] *= 0.01
    kernel, size, seeds = Polynomial(2, 1.0, 0.0), 16, 12
    anchors = anchors_of(kernel, X, alpha=1e-6)
    by_paths = by_norm = 0
    for seed in range(seeds):
        space = space_of(kernel, X, seed)
        pools = (
            leverage_pool(space, lambda: anchors, size, seed, 1),
            space.draw(size, seed, 1, 0),
        )
        counts = [sum(7 in m for m in pool.features.multisets.tuples()) for pool in pools]
        by_paths, by_norm = by_paths + counts[0], by_norm + counts[1]
    assert by_paths > seeds
    assert by_norm < seeds / 4


# --- the map -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), [("gaussian", None), ("polynomial csr", "regression")])
def test_unbiased_quickly(name: str, kind: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch, max_draws=3000)
    check_unbiased(
        AdaptiveFeatures, name, range(50), targets(kind), n_components=6, sampler="leverage"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gaussian", "outputs"),
        ("gaussian rotated", None),
        ("gaussian csr", "names"),
        ("homogeneous", "classes"),
        ("exponential", None),
        ("inverse polynomial", "regression"),
        ("dot product csr", None),
        ("polynomial csr", "regression"),
    ],
)
def test_unbiased_over_many_seeds(
    name: str, kind: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch, max_draws=3000)
    check_unbiased(
        AdaptiveFeatures, name, range(2000), targets(kind), n_components=6, sampler="leverage"
    )


@pytest.mark.slow
def test_unbiased_from_few_anchors(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
    set_options(monkeypatch, n_anchors=(4, 4))
    check_unbiased(
        AdaptiveFeatures, "polynomial", range(500), None, n_components=8, sampler="leverage"
    )


def test_the_size_is_exact() -> None:
    X = lonely_points()
    for size in (1, 5, 20):
        fitted = AdaptiveFeatures(
            size, kernel=Gaussian(0.5), sampler="leverage", rotate=False, random_state=1
        ).fit(X)
        assert fitted.n_components_ == size
        assert len(set(fitted.monomials_)) == size
