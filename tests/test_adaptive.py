"""AdaptiveFeatures: what every sampled map passes, targets, anchors, and the second phase."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from support.adaptive_maps import targets
from support.engine_options import set_options
from support.sampled_maps import (
    LONELY_COLUMN,
    LONELY_ROW,
    QUICK_SEEDS,
    SLOW_SEEDS,
    UNBIASED,
    DotProductVariant,
    ExponentialVariant,
    GaussianAuto,
    GaussianMercer,
    GaussianMonomials,
    GaussianRotated,
    InversePolynomialVariant,
    PaperVariant,
    PolynomialVariant,
    SampledBattery,
    SampledContract,
    assert_unbiased,
    check_every_monomial,
    check_unbiased,
    data,
    few_proposal_rows,
    gram_of,
    lonely_points,
    make_small,
    other_seeds,
)

from kernelsieve import AdaptiveFeatures, KernelRidge, RowNormFeatures
from kernelsieve._random import keyed_rows
from kernelsieve.engine.options import DEFAULTS
from kernelsieve.kernels import Gaussian, Polynomial
from kernelsieve.testing.data import as_dense

Array = Any


class AdaptiveBattery(SampledBattery):
    map_class: ClassVar = AdaptiveFeatures


class TestAdaptivePolynomial(PolynomialVariant, AdaptiveBattery):
    pass


@pytest.mark.slow
class TestAdaptiveMonomials(GaussianMonomials, AdaptiveBattery):
    pass


@pytest.mark.slow
class TestAdaptiveRotated(GaussianRotated, AdaptiveBattery):
    pass


@pytest.mark.slow
class TestAdaptiveMercer(GaussianMercer, AdaptiveBattery):
    pass


@pytest.mark.slow
class TestAdaptiveAuto(GaussianAuto, AdaptiveBattery):
    pass


@pytest.mark.slow
class TestAdaptivePaper(PaperVariant, AdaptiveBattery):
    pass


@pytest.mark.slow
class TestAdaptiveLeverage(GaussianMonomials, AdaptiveBattery):
    parameters: ClassVar = {**GaussianMonomials.parameters, "sampler": "leverage"}


@pytest.mark.slow
class TestAdaptiveExponential(ExponentialVariant, AdaptiveBattery):
    pass


@pytest.mark.slow
class TestAdaptiveInversePolynomial(InversePolynomialVariant, AdaptiveBattery):
    pass


@pytest.mark.slow
class TestAdaptiveDotProduct(DotProductVariant, AdaptiveBattery):
    pass


class TestAdaptiveContract(SampledContract):
    map_class: ClassVar = AdaptiveFeatures


# --- unbiasedness, with and without a target -----------------------------------------------------


#: The pool (twelve times as many) must leave features out too, so few are asked for.
SIZE = 6

QUICK = [
    ("gaussian", None),
    ("gaussian", "regression"),
    ("mercer", "outputs"),
    ("polynomial", "classes"),
    ("exponential csr", "regression"),
    ("gaussian csr", "names"),
]
KINDS = [None, "regression", "outputs", "classes", "names"]
MANY = [(name, KINDS[i % 5]) for i, name in enumerate(UNBIASED)] + [
    ("gaussian", None),
    ("gaussian", "names"),
    ("mercer", "regression"),
    ("polynomial csr", "outputs"),
]


@pytest.mark.parametrize(("name", "kind"), QUICK)
def test_unbiased_quickly(name: str, kind: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch, max_draws=3000)
    check_unbiased(AdaptiveFeatures, name, range(QUICK_SEEDS), targets(kind), n_components=2 * SIZE)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), MANY)
def test_unbiased_over_many_seeds(
    name: str, kind: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch, max_draws=3000)
    check_unbiased(AdaptiveFeatures, name, range(SLOW_SEEDS), targets(kind), n_components=SIZE)


@pytest.mark.parametrize("name", ["polynomial", "gaussian"])
def test_unbiased_from_few_proposal_rows_quickly(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_proposal_rows(monkeypatch)
    check_unbiased(AdaptiveFeatures, name, other_seeds(QUICK_SEEDS), n_components=2 * SIZE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gaussian", "mercer", "mercer rotated", "polynomial"])
def test_unbiased_from_few_proposal_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few_proposal_rows(monkeypatch)
    y = targets("regression")
    check_unbiased(AdaptiveFeatures, name, other_seeds(SLOW_SEEDS), y, n_components=2 * SIZE)


@pytest.mark.parametrize(("name", "kind"), [("gaussian", "regression"), ("mercer", None)])
def test_unbiased_when_the_draws_are_cut_short(
    name: str, kind: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """About 60 draws for a pool of 144."""
    make_small(monkeypatch, max_draws=60)
    check_unbiased(AdaptiveFeatures, name, range(QUICK_SEEDS), targets(kind), n_components=2 * SIZE)


@pytest.mark.parametrize(("name", "kind"), [("gaussian", "regression"), ("mercer", None)])
def test_unbiased_from_a_small_pool(
    name: str, kind: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice as many as are kept: the first phase leaves out as much as the second."""
    make_small(monkeypatch)
    set_options(monkeypatch, pool_factor=2)
    check_unbiased(AdaptiveFeatures, name, range(QUICK_SEEDS), targets(kind), n_components=SIZE)


def anchors_without_the_lonely_row(count: int) -> list[int]:
    def without(seed: int) -> bool:
        return all(
            LONELY_ROW not in keyed_rows(12, 6, seed, "anchors", skip=skip) for skip in (0, 6)
        ) or LONELY_ROW not in keyed_rows(12, 6, seed, "anchors", skip=DEFAULTS.held_out_rows)

    return [seed for seed in range(20 * count) if without(seed)][:count]


@pytest.mark.parametrize("kind", [None, "regression"])
def test_unbiased_where_no_anchor_shows_a_feature(
    kind: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six anchors of twelve rows, and the lonely column is zero on all of them."""
    make_small(monkeypatch)
    set_options(monkeypatch, n_anchors=(6, 6))
    seeds = anchors_without_the_lonely_row(QUICK_SEEDS)
    check_unbiased(AdaptiveFeatures, "polynomial", seeds, targets(kind), n_components=2 * SIZE)


@pytest.mark.parametrize("kind", [None, "regression"])
def test_every_monomial_counts_once(kind: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
    check_every_monomial(AdaptiveFeatures, range(300), targets(kind), n_components=16)


def test_every_monomial_counts_once_where_no_anchor_shows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_small(monkeypatch)
    set_options(monkeypatch, n_anchors=(6, 6))
    seeds = anchors_without_the_lonely_row(300)
    check_every_monomial(AdaptiveFeatures, seeds, n_components=20)


def test_a_rare_column_of_sparse_data_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    """One-hot columns that no anchor has: in expectation their features have their weight."""
    make_small(monkeypatch)
    set_options(monkeypatch, n_anchors=(20, 20))
    X = np.zeros((60, 6))
    X[np.arange(60), np.arange(60) % 4] = 1.0
    X[7, 4] = X[33, 5] = 1.0
    kernel = Polynomial(3, 0.5, 1.0)
    diagonal = []
    for seed in range(200):
        fitted = AdaptiveFeatures(10, kernel=kernel, random_state=seed, n_jobs=1)
        Z = as_dense(fitted.fit(sp.csr_array(X)).transform(sp.csr_array(X[[7, 33]])))
        diagonal.append((Z**2).sum(axis=1))
    mean, error = np.mean(diagonal, axis=0), np.std(diagonal, axis=0) / np.sqrt(200)
    exact = np.diag(gram_of(kernel, X[[7, 33]]))
    assert (np.abs(mean - exact) < 5 * error).all(), (mean, exact, error)


def test_a_target_alone_decides_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """target_share = 1 with a target that many features are orthogonal to: still E = K."""
    make_small(monkeypatch)
    half = data(6, 2, seed=4) / 2
    X = np.concatenate([half, -half])
    y = np.concatenate([half[:, 0] ** 2] * 2)  # even: orthogonal to every odd feature
    kernel = Polynomial(3, 1.0, 1.0)
    assert_unbiased(
        lambda seed: AdaptiveFeatures(
            7, kernel=kernel, rotate=False, target_share=1.0, random_state=seed, n_jobs=1
        ),
        X,
        gram_of(kernel, X),
        range(QUICK_SEEDS),
        y,
    )


# --- the use of the target -----------------------------------------------------------------------


def chosen(pair: tuple[int, ...], y: Any, seeds: range, **parameters: Any) -> int:
    """How often the monomial is among the features."""
    X = data(300, 8, seed=2)
    fits = (
        AdaptiveFeatures(
            15,
            kernel=Gaussian(0.02),
            basis="monomial",
            rotate=False,
            random_state=seed,
            n_jobs=1,
            **parameters,
        ).fit(X, y)
        for seed in seeds
    )
    return sum(pair in fitted.monomials_ for fitted in fits)


def test_a_product_in_the_target_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """y = x_2 x_5 + noise: its monomial, one of 36 of its degree, is chosen because of y."""
    make_small(monkeypatch)
    X = data(300, 8, seed=2)
    y = X[:, 2] * X[:, 5] + 0.1 * np.random.default_rng(0).normal(size=300)
    seeds = range(20)
    with_target = chosen((2, 5), y, seeds)
    without = chosen((2, 5), y, seeds, target_share=0.0)
    assert with_target >= 18
    assert without <= 10
    assert without == chosen((2, 5), None, seeds), "a share of zero is no target at all"


@pytest.mark.parametrize("labels", ["strings", "integers", "booleans", "objects"])
def test_a_product_in_the_classes_is_found(labels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
    X = data(300, 8, seed=2)
    sign = X[:, 2] * X[:, 5] > 0
    y = {
        "strings": np.where(sign, "good", "bad"),
        "integers": sign.astype(int),
        "booleans": sign,
        "objects": np.where(sign, "good", "bad").astype(object),
    }[labels]
    assert chosen((2, 5), y, range(10)) >= 9


def test_one_of_several_outputs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
    X = data(300, 8, seed=2)
    y = np.stack([X[:, 0], X[:, 2] * X[:, 5], X[:, 1] + X[:, 3]], axis=1)
    assert chosen((2, 5), y, range(20)) > 2 * chosen((2, 5), y[:, [0, 2]], range(20))


def test_pandas_targets() -> None:
    pd = pytest.importorskip("pandas")
    X = data()
    expected = AdaptiveFeatures(20, random_state=0).fit(X, X[:, 0]).transform(X)
    for y in (pd.Series(X[:, 0], index=range(100, 160)), pd.DataFrame({"y": X[:, 0]})):
        Z = AdaptiveFeatures(20, random_state=0).fit(X, y).transform(X)
        np.testing.assert_array_equal(Z, expected)
    categories = pd.Series(np.where(X[:, 0] > 0, "a", "b"), dtype="category")
    assert AdaptiveFeatures(20, random_state=0).fit(X, categories).n_components_ == 20


@pytest.mark.parametrize("y", [np.full(60, 0.1), np.full(60, "same"), np.full((60, 2), 3.0)])
def test_a_constant_target_changes_nothing(y: Any) -> None:
    X = data()
    without = AdaptiveFeatures(20, random_state=0).fit(X)
    with_y = AdaptiveFeatures(20, random_state=0).fit(X, y)
    assert with_y.monomials_ == without.monomials_
    np.testing.assert_array_equal(with_y.weights_, without.weights_)


def test_the_scale_of_the_target_changes_nothing() -> None:
    X = data()
    y = X[:, 0] * X[:, 1]
    first = AdaptiveFeatures(20, random_state=0).fit(X, y)
    for scaled in (1e-100 * y, 1e100 * y + 1e100):
        again = AdaptiveFeatures(20, random_state=0).fit(X, scaled)
        assert again.monomials_ == first.monomials_


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.zeros(59), "60.*59"),
        (np.zeros((61, 2)), "60.*61"),
        (np.where(np.arange(60) == 4, np.nan, 1.0), "y contains NaN"),
        (np.where(np.arange(60) == 4, np.inf, 1.0), "y contains NaN or infinity"),
        (1.0, "y"),
    ],
    ids=["too short", "too long", "NaN", "infinity", "a number"],
)
def test_bad_targets(y: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        AdaptiveFeatures(20).fit(data(), y)


@pytest.mark.parametrize("share", [-0.1, 1.1, np.nan])
def test_bad_target_share(share: float) -> None:
    with pytest.raises(ValueError, match=f"target_share={share!r}"):
        AdaptiveFeatures(20, target_share=share).fit(data(), np.arange(60.0))


def test_a_target_share_that_is_no_number() -> None:
    with pytest.raises((TypeError, ValueError), match="target_share='half'"):
        AdaptiveFeatures(20, target_share="half").fit(data(), np.arange(60.0))


# --- the two phases ------------------------------------------------------------------------------


def test_the_size_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
    for seed in range(6):
        for size in (1, 7, 40):
            fitted = AdaptiveFeatures(size, kernel=Gaussian(0.3), rotate=False, random_state=seed)
            assert fitted.fit(data(), data()[:, 0]).n_components_ == size
            assert len(set(fitted.monomials_)) == size


def test_leverage_lowers_the_spectral_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mean over 6 seeds at s about 8 s_alpha: no worse than row norm, and below 1/2."""
    make_small(monkeypatch)
    X = data(200, 4, seed=6)
    kernel, alpha, size = Gaussian(0.1), 1.0, 160
    assert oracles.statistical_dimension(gram_of(kernel, X), alpha) < size / 5

    def epsilon(map_class: Any, seed: int) -> float:
        fitted = map_class(size, kernel=kernel, alpha=alpha, random_state=seed).fit(X)
        return float(fitted.spectral_epsilon_)

    adaptive_, row_norm_ = (
        np.mean([epsilon(map_class, seed) for seed in range(6)])
        for map_class in (AdaptiveFeatures, RowNormFeatures)
    )
    assert adaptive_ < 0.5
    assert adaptive_ < 1.3 * row_norm_


def test_missed_leverage_is_a_share_that_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
    X = data(200, 6)
    missed = [
        AdaptiveFeatures(
            size, kernel=Gaussian(0.3), alpha=1e-2, basis="monomial", rotate=False, random_state=0
        )
        .fit(X)
        .missed_leverage_
        for size in (2, 100)
    ]
    assert 0 <= missed[1] < missed[0] <= 1
    everything = AdaptiveFeatures(50, kernel=Polynomial(2), rotate=False, random_state=0).fit(X)
    assert everything.missed_leverage_ == pytest.approx(0.0, abs=1e-6)


def test_the_lonely_column_is_where_it_is_thought_to_be() -> None:
    X = lonely_points()
    assert np.flatnonzero(X[:, LONELY_COLUMN]).tolist() == [LONELY_ROW]
    assert (X**2).sum(axis=1).max() < 1.4


# --- target_share="auto" -------------------------------------------------------------------------


def test_auto_share_follows_a_signal_and_ignores_noise() -> None:
    """As good as the better of no share and a large one, where either is far better."""
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(1200, 10)), rng.normal(size=(800, 10))

    def error(share: Any, y: Any, truth: Any) -> float:
        squares = []
        for seed in range(4):
            features = AdaptiveFeatures(60, gamma=0.1, target_share=share, random_state=seed)
            model = KernelRidge(features, alpha=1.0).fit(X, y)
            squares.append(np.mean((model.predict(new) - truth) ** 2))
        return float(np.mean(squares))

    signal = X[:, 0] * X[:, 1]
    by_target, blind, auto = (
        error(share, signal, new[:, 0] * new[:, 1]) for share in (0.8, 0.0, "auto")
    )
    assert by_target < 0.8 * blind
    assert auto < 1.1 * by_target
    noise = rng.normal(size=1200)
    by_target, blind, auto = (error(share, noise, 0.0) for share in (0.8, 0.0, "auto"))
    assert auto < 1.1 * min(by_target, blind)


@pytest.mark.parametrize("share", ["much", -0.1, 2.0])
def test_share_that_is_none(share: Any) -> None:
    with pytest.raises(ValueError, match="'auto'"):
        AdaptiveFeatures(10, target_share=share).fit(np.ones((20, 2)), np.arange(20.0))
