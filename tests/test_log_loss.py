"""The log loss on kernels and on features, and the probabilities of the default classifier."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import logistic_scores
from support.learning import chosen

from kernelsieve import KernelRidge, KernelRidgeClassifier, NystromFeatures
from kernelsieve.learning.options import LearnOptions
from kernelsieve.linalg.logistic import LossSums, OnFeatures, OnKernel, minimise, row_losses
from kernelsieve.linalg.normal_equations import NormalEquations, solve_ridge
from kernelsieve.models import _log_loss


def problem(outputs: int, n: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A kernel matrix, targets +-1 and weights."""
    rng = np.random.default_rng(outputs)
    X = rng.normal(size=(n, 2))
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2))
    places = np.digitize(
        X[:, 0] + 0.7 * rng.normal(size=n), np.linspace(-1, 1, max(outputs, 2) - 1)
    )
    signs = np.where(places[:, None] == np.arange(max(outputs, 2)), 1.0, -1.0)
    return K, signs[:, 1:] if outputs == 1 else signs, rng.uniform(0.5, 2.0, n)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("outputs", [1, 3])
def test_both_ways_find_the_minimum_of_newtons_method(outputs: int, fit_intercept: bool) -> None:
    K, signs, weights = problem(outputs)
    Z = np.linalg.cholesky(K + 1e-12 * np.eye(len(K)))
    start = np.zeros((len(K) + 1, outputs))
    ridge = solve_ridge(NormalEquations.of_block(Z, signs, weights), 0.1, fit_intercept)
    for alpha in (1.0, 0.1, 0.02):
        truth = logistic_scores(Z, signs, weights, alpha, fit_intercept)
        exact = minimise(OnKernel(K, signs, weights, alpha, fit_intercept), start, 300, 1e-12)
        found = exact.at.image[:-1] + exact.at.values[-1]
        np.testing.assert_allclose(found - _level(found), truth - _level(truth), atol=1e-4)
        loss = OnFeatures(
            lambda c, b: LossSums.of_block(Z, signs, weights, c, b), ridge.posterior, alpha, outputs
        )
        coefficients, intercepts = loss.plain(minimise(loss, start, 300, 1e-12).at.values)
        found = Z @ coefficients + intercepts
        np.testing.assert_allclose(found - _level(found), truth - _level(truth), atol=1e-4)


def _level(scores: np.ndarray) -> np.ndarray:
    """What is the same for all classes of a row, and means nothing."""
    return scores.mean(axis=1, keepdims=True) if scores.shape[1] > 1 else np.zeros((1, 1))


@pytest.mark.parametrize("outputs", [1, 3])
def test_weights_are_repetitions(outputs: int) -> None:
    K, signs, _ = problem(outputs)
    weights = np.arange(len(K)) % 3 + 1
    again = np.repeat(np.arange(len(K)), weights)
    few = minimise(
        OnKernel(K, signs, weights.astype(float), 0.1, True),
        np.zeros((len(K) + 1, outputs)), 300, 1e-12,
    )  # fmt: skip
    many = minimise(
        OnKernel(K[np.ix_(again, again)], signs[again], np.ones(len(again)), 0.1, True),
        np.zeros((len(again) + 1, outputs)), 300, 1e-12,
    )  # fmt: skip
    np.testing.assert_allclose(few.at.image[again], many.at.image[:-1], atol=1e-4)


def test_separable_classes_do_not_diverge() -> None:
    K, _, weights = problem(1)
    signs = np.where(np.arange(len(K)) % 2 == 0, 1.0, -1.0)[:, None]
    for alpha in (1e-3, 1e-9):
        found = minimise(OnKernel(K, signs, weights, alpha, True), np.zeros((41, 1)), 100, 1e-6)
        assert np.isfinite(found.at.values).all()
        scores = found.at.image[:-1] + found.at.values[-1]
        assert row_losses(scores, signs).mean() < np.log(2.0)


def test_certain_classes_get_certain_probabilities() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 8))
    y = X[:, :4].sum(axis=1) + 0.2 * rng.normal(size=600) > 0
    model = KernelRidgeClassifier(random_state=0).fit(X[:300], y[:300])
    right = model.predict_proba(X[300:])[np.arange(300), y[300:].astype(int)]
    assert -np.log(right).mean() < 0.2
    direct = model.predictor()
    np.testing.assert_allclose(direct.probabilities(X[300]), model.predict_proba(X[300:301])[0])


def test_labels_without_a_pattern_get_the_base_rate() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 5)), rng.uniform(size=300) < 0.2
    chances = KernelRidgeClassifier(random_state=0).fit(X, y).predict_proba(X)[:, 1]
    assert abs(chances.mean() - y.mean()) < 0.05
    assert chances.std() < 0.12


def test_one_row_of_each_class() -> None:
    X = np.eye(3)
    model = KernelRidgeClassifier(random_state=0).fit(X, ["a", "b", "c"])
    chances = model.predict_proba(X)
    assert np.isfinite(chances).all()
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_of_many_rows(monkeypatch: pytest.MonkeyPatch, held: bool, dtype: type) -> None:
    """The same from features in memory and from passes, for any number of threads."""
    if not held:
        monkeypatch.setattr(_log_loss, "LARGEST_HELD", 0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1600, 3)).astype(dtype)
    y = np.digitize(X[:, 0] + X[:, 1] ** 2, [0.0, 1.0])
    signs = np.where(y[:, None] == np.arange(3), 1.0, -1.0)
    options = LearnOptions(exact_rows=100, landmarks=60, judged_landmarks=60, learn_rows=200,
                           full_work=0.0)  # fmt: skip
    plan = chosen(X[:1200], signs[:1200], options, classes=True, transform=None)
    assert (plan.loss, plan.solver.kind) == ("log loss", "landmarks")
    one, two = (
        KernelRidgeClassifier(plan=plan, random_state=0, n_jobs=k).fit(X[:1200], y[:1200])
        for k in (1, 2)
    )
    assert not hasattr(one.ridge_, "dual_coef_")
    np.testing.assert_array_equal(one.ridge_.coef_, two.ridge_.coef_)
    right = one.predict_proba(X[1200:])[np.arange(400), y[1200:]]
    ridge = KernelRidge(
        NystromFeatures(60, kernel=one.kernel_, random_state=0), alpha=one.ridge_.alpha
    )
    scores = ridge.fit(X[:1200], signs[:1200]).predict(X[1200:])
    best = min(row_losses(s * scores, signs[1200:]).mean() for s in np.logspace(-1, 2, 60))
    assert -np.log(right).mean() < best
