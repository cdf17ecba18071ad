"""Search, judgement and registry: the parts that fit, bench and the estimators share."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge

from kernelsieve import AdaptiveFeatures, FourierFeatures, KernelRidgeCV, NystromFeatures
from kernelsieve.features.registry import METHODS, feature_map, find_method
from kernelsieve.learning import Judge, SearchOptions, SearchResult, choose_gamma_alpha, search
from kernelsieve.learning.judge import mean_by_regression
from kernelsieve.sources.base import ArraySource

N_ROWS = 120


def data(n: int = N_ROWS, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=n)


# --- judge ----------------------------------------------------------------------------------------

RULES: dict[str, dict[str, Any]] = {
    "plain": {},
    "labels": {"labels": np.arange(N_ROWS) % 3},
    "groups": {"groups": np.arange(N_ROWS) // 7},
    "order": {"order": np.random.default_rng(0).permutation(N_ROWS)},
}


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@pytest.mark.parametrize("seed", range(3))
def test_every_row_is_on_one_side(rules: dict[str, Any], seed: int) -> None:
    judge = Judge(N_ROWS, seed, **rules)
    first = judge.set_apart(30)
    assert sorted([*first.choose, *first.judge]) == list(range(N_ROWS))
    second = judge.set_apart(20, among=first.choose)
    assert sorted([*second.choose, *second.judge]) == sorted(first.choose)
    again = Judge(N_ROWS, seed, **rules).set_apart(30)
    np.testing.assert_array_equal(again.judge, first.judge)
    for choose, judged in judge.folds(4, among=first.choose):
        assert not set(choose) & set(judged)
        assert {*choose, *judged} <= set(first.choose)


def test_groups_stay_together() -> None:
    groups = np.random.default_rng(0).integers(0, 12, N_ROWS)
    judge = Judge(N_ROWS, groups=groups)
    for choose, judged in [judge.set_apart(25), *judge.folds(3)]:
        assert not set(groups[choose]) & set(groups[judged])
    assert len(judge.set_apart(25).judge) >= 25


def test_later_rows_judge_earlier_ones() -> None:
    order = np.random.default_rng(0).integers(0, 15, N_ROWS)  # with equal times
    judge = Judge(N_ROWS, order=order)
    choose, judged = judge.set_apart(25)
    assert order[choose].max() < order[judged].min()
    for choose, judged in Judge(N_ROWS, order=np.arange(N_ROWS)[::-1]).folds(3):
        assert choose.min() > judged.max()  # row numbers fall as time goes on


def test_classes_keep_their_shares() -> None:
    labels = np.repeat(["a", "b"], [100, 20])
    judged = Judge(N_ROWS, labels=labels).set_apart(24).judge
    assert np.sum(labels[judged] == "b") == 4
    lonely = np.where(np.arange(N_ROWS) == 5, "b", "a")  # a class of one row
    assert len(Judge(N_ROWS, labels=lonely).set_apart(24).judge) == 24


@pytest.mark.parametrize(
    ("rules", "size", "reason"),
    [
        ({}, 0, "both sides need rows"),
        ({}, N_ROWS, "both sides need rows"),
        ({"groups": np.zeros(N_ROWS)}, 5, "at least 2 are needed"),
        ({"order": np.zeros(N_ROWS)}, 5, "no row is later"),
        ({"order": np.zeros(3)}, 5, "3 values for 120 rows"),
        ({"order": np.zeros(N_ROWS), "groups": np.zeros(N_ROWS)}, 5, "not both"),
    ],
)
def test_splits_that_cannot_be_made(rules: dict[str, Any], size: int, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Judge(N_ROWS, **rules).set_apart(size)


# --- search ---------------------------------------------------------------------------------------


def left_out(features: Any, X: Any, y: Any, alpha: float) -> float:
    """The leave-one-out error of a ridge on fixed features, one fit a row."""
    Z = clone(features).fit(X).transform(X)
    errors = []
    for i in range(len(y)):
        others = np.arange(len(y)) != i
        model = Ridge(alpha=alpha).fit(Z[others], y[others])
        errors.append(y[i] - model.predict(Z[i : i + 1])[0])
    return float(np.sqrt(np.mean(np.square(errors))))


def test_search_gives_the_error_of_leaving_rows_out() -> None:
    X, y = data(60)
    features = FourierFeatures(20, random_state=0)
    found = search(features, ArraySource(X, y[:, None], None), [1.0, 0.1], [0.05, 0.5])
    for i, gamma in enumerate([0.05, 0.5]):
        for j, alpha in enumerate([0.1, 1.0]):  # sorted
            expected = left_out(features.set_params(gamma=gamma), X, y, alpha)
            np.testing.assert_allclose(found.rmse[i, j], expected, rtol=1e-6)


def test_the_estimator_uses_the_same_search() -> None:
    X, y = data()
    features, gammas, alphas = FourierFeatures(30, random_state=0), [0.05, 0.5], [0.01, 0.1, 1.0]
    model = KernelRidgeCV(features, alphas=alphas, gammas=gammas).fit(X, y)
    found = search(features, ArraySource(X, y[:, None], None), alphas, gammas)
    assert (found.gamma, found.alpha) == (model.gamma_, model.alpha_)
    np.testing.assert_allclose(model.cv_results_["rmse"], found.rmse.ravel(), rtol=1e-8)


def test_a_bounded_search_looks_at_so_many_rows() -> None:
    X, y = data(400)
    options = SearchOptions(n_rows=100, gamma_factors=(0.5, 1.0), alphas=(0.1, 1.0))
    honest = choose_gamma_alpha(NystromFeatures(20), X, y, options)
    changed = []
    for row in range(0, 400, 10):
        spoilt = y.copy()
        spoilt[row] += 1.0
        found = choose_gamma_alpha(NystromFeatures(20), X, spoilt, options)
        changed.append(not np.array_equal(found.rmse, honest.rmse))
    assert 2 <= sum(changed) <= 20  # about a quarter of 40


def test_a_bounded_search_averages_its_draws() -> None:
    X, y = data()
    one = SearchOptions(alphas=(0.1, 1.0))
    first = choose_gamma_alpha(FourierFeatures(20), X, y, one)
    second = search(
        FourierFeatures(20, random_state=1), ArraySource(X, y[:, None], None), one.alphas,
        first.gammas,
    )  # fmt: skip
    both = choose_gamma_alpha(
        FourierFeatures(20), X, y, SearchOptions(alphas=(0.1, 1.0), n_draws=2)
    )
    np.testing.assert_allclose(both.rmse, (first.rmse + second.rmse) / 2)


def smooth_data(n: int = 200) -> tuple[Any, Any]:
    """Without noise, so that the best alpha is tiny."""
    X = np.random.default_rng(0).normal(size=(n, 2))
    return X, np.sin(2.0 * X[:, 0]) * X[:, 1]


def test_the_default_alphas_go_on_where_the_best_lies_at_their_end() -> None:
    X, y = smooth_data()
    features = NystromFeatures(100, gamma=0.5, random_state=0)
    short = KernelRidgeCV(features, alphas=np.logspace(-3, 3, 13))
    with pytest.warns(UserWarning, match="the best alpha, 0.001, is the smallest that was tried"):
        short.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = KernelRidgeCV(features).fit(X, y)
    assert model.alpha_ < 1e-4
    assert model.best_rmse_ < 0.9 * short.best_rmse_
    tried = model.cv_results_["alpha"]
    assert (np.diff(np.log(tried)) > 0.0).all()
    whole = search(features, ArraySource(X, y[:, None], None), tried)  # as if asked for at once
    np.testing.assert_allclose(model.cv_results_["rmse"], whole.rmse[0], rtol=1e-6)


def test_a_bounded_search_goes_on_in_gamma_and_keeps_what_is_given() -> None:
    X, y = data(300)
    narrow = SearchOptions(gamma_factors=(1e-4, 2e-4, 4e-4), alphas=(0.01, 0.1, 1.0))
    features = NystromFeatures(60)
    found = choose_gamma_alpha(features, X, y, narrow)
    fixed = choose_gamma_alpha(features, X, y, replace(narrow, continued=False))
    assert found.gamma > max(fixed.gammas)
    assert found.rmse.shape == (len(found.gammas), len(found.alphas))
    assert found.rmse.min() < 0.9 * fixed.rmse.min()
    np.testing.assert_array_equal(found.rmse[:3, -3:], fixed.rmse)
    assert (len(fixed.gammas), len(fixed.alphas)) == (3, 3)
    given = choose_gamma_alpha(features, X, y, narrow, gammas=[0.1], alphas=[0.1])
    assert (given.gammas, given.alphas.tolist()) == ([0.1], [0.1])


@pytest.mark.parametrize(
    ("errors", "ends"),
    [
        ([3.0, 2.0, 1.0], [("alpha", 10.0)]),
        ([1.0, 2.0, 3.0], [("alpha", 1e-1)]),
        ([2.0, 1.0, 2.0], []),
        ([1.0, 1.0005, 1.2], []),  # the last step to the end hardly matters
        ([2.0, 1.0], []),  # of two values one is best
    ],
)
def test_ends_of_a_grid(errors: list[float], ends: list[tuple[str, float]]) -> None:
    alphas = np.logspace(-1, 1, 3)[: len(errors)]
    found = SearchResult([None], alphas, np.array([errors]), np.array([100.0]))
    assert [(end.name, pytest.approx(end.value)) for end in found.ends] == ends


def test_alphas_end_where_rounding_begins() -> None:
    alphas, errors = np.array([1e-8, 1e-7, 1e-6]), np.array([[1.0, 2.0, 3.0]])
    assert not SearchResult([None], alphas, errors, np.array([100.0])).ends
    assert SearchResult([None], alphas, errors, np.array([1.0])).ends
    assert not SearchResult([None], alphas, errors[:, ::-1], np.array([1e-7])).ends


def test_noise_asks_for_no_larger_alphas() -> None:
    X, _ = data(300)
    noise = np.random.default_rng(1).normal(size=300)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = KernelRidgeCV(NystromFeatures(60, gamma=0.5, random_state=0)).fit(X, noise)
    assert len(model.cv_results_["alpha"]) <= 20


def test_folds_that_can_be_read_once_only() -> None:
    X, y = smooth_data()
    halves = [(np.arange(100), np.arange(100, 200)), (np.arange(100, 200), np.arange(100))]
    features = NystromFeatures(60, gamma=0.5, random_state=0)
    first = KernelRidgeCV(features, cv=iter(halves)).fit(X, y)
    second = KernelRidgeCV(features, cv=halves).fit(X, y)
    assert first.alpha_ == second.alpha_ < 1e-3


def test_one_row_has_no_error_of_rows_left_out() -> None:
    """It was reported as 0."""
    X, y = data(1)
    with pytest.raises(ValueError, match=r"n_samples = 1.*at least 2 rows"):
        KernelRidgeCV(FourierFeatures(4)).fit(X, y)


# --- registry -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_every_method_builds_its_map(name: str) -> None:
    options = {"n_components": 8, "gamma": 0.5, "degree": 2, "random_state": 0}
    X, y = data(60)
    assert METHODS[name].build(**options).fit(X, y).transform(X).shape[0] == 60


def test_readable_methods_do_not_rotate() -> None:
    assert feature_map("row-norm", readable=True, n_components=5).rotate is False
    with pytest.raises(
        ValueError, match=r"'fourier' has no readable features.*row-norm or adaptive"
    ):
        feature_map("fourier", readable=True)


def test_unknown_methods_are_guessed() -> None:
    with pytest.raises(ValueError, match="unknown method 'adaptiv': did you mean 'adaptive'"):
        find_method("adaptiv")


def test_sorted_rows_are_judged_as_shuffled_ones():
    """Consecutive folds would ask the map to predict where it has seen nothing."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-3.0, 3.0, size=(300, 1)), axis=0)
    y = np.sin(4.0 * X[:, 0]) + 0.1 * rng.normal(size=300)
    model = KernelRidgeCV(AdaptiveFeatures(30, gamma=4.0, random_state=0)).fit(X, y)
    assert model.best_rmse_ < 0.2


def test_a_mean_by_regression_varies_less_and_is_not_shifted() -> None:
    # n values, of which m are known; c is known of all. By theory the variance of the plain mean
    # is that of the values / m, that of the estimate (1 - r^2) of it, plus r^2 of it times m / n.
    n, m, seeds, r = 2000, 400, 600, 0.8
    plain, estimates = [], []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        beside, own = rng.standard_exponential((2, n))
        found = r * beside + np.sqrt(1 - r**2) * own
        few = rng.permutation(n)[:m]
        plain.append(found[few].mean())
        estimates.append(mean_by_regression(found[few], beside[few], float(beside.mean())))
    expected = r + np.sqrt(1 - r**2)
    variance = (1 - r**2) / m + r**2 / n
    assert np.var(plain) == pytest.approx(1 / m, rel=5 * np.sqrt(8 / seeds))
    assert np.var(estimates) == pytest.approx(variance, rel=5 * np.sqrt(8 / seeds))
    assert abs(np.mean(estimates) - expected) < 5 * np.sqrt(variance / seeds) + 2 / m**1.5


def test_a_mean_by_regression_ignores_what_tells_nothing() -> None:
    found = np.array([1.0, 3.0, 1.0, 3.0])
    assert mean_by_regression(found, np.ones(4), 7.0) == 2.0
    opposite = np.array([3.0, 1.0, 3.0, 1.0])  # a slope below 0 is chance
    assert mean_by_regression(found, opposite, 7.0) == 2.0
    weights = np.array([1.0, 0.0, 1.0, 0.0])
    assert mean_by_regression(found, found, 7.0, weights) == 1.0
    assert mean_by_regression(found, found, 0.0) == 1.0  # never below half of what was seen


def test_the_reported_error_of_noise_is_that_of_all_rows() -> None:
    # 250 of 1,250 rows tell: by themselves their error would be off by 4.5 % (one deviation).
    offs = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(1250, 3)), rng.normal(size=1250)
        model = KernelRidgeCV(random_state=seed).fit(X, y)
        offs.append(np.log(model.best_rmse_ / y.std()))
    assert np.max(np.abs(offs)) < 0.02
