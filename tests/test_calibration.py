"""Probabilities: calibrated with a slope and intercepts, for rare classes and for few rows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV

from kernelsieve import FourierFeatures, KernelRidgeClassifier, KernelSVC
from kernelsieve.linalg.logistic import LossSums, OnFeatures, minimise
from kernelsieve.linalg.posterior import Posterior
from kernelsieve.models._base import both_classes
from kernelsieve.models.calibration import Calibration, calibrate

Array = NDArray[np.float64]


def chances_of(found: Calibration, scores: Array) -> Array:
    """The probabilities that a calibration gives."""
    return softmax(found.slope * both_classes(scores + found.shifts), axis=1)


def rare(n: int, seed: int) -> tuple[Array, NDArray[np.int64], Array]:
    """Rows of which about one in a hundred is positive, with their true probabilities."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    truth = 1.0 / (1.0 + np.exp(6.0 - X @ [1.3, 1.0, -0.8, 0.0]))
    return X, (rng.random(n) < truth).astype(int), truth


@pytest.mark.parametrize("counts", [(5000, 50), (300, 3), (40, 30, 20), (400, 3, 2)])
def test_mean_probabilities_are_shares_of_classes(counts: tuple[int, ...]) -> None:
    places = np.repeat(np.arange(len(counts)), counts)
    rng = np.random.default_rng(0)
    scores = 0.3 * rng.normal(size=(len(places), len(counts))) - 1.0
    scores[np.arange(len(places)), places] += 0.4
    scores = scores[:, 1] - 0.9 if len(counts) == 2 else scores
    weights = rng.uniform(0.5, 2.0, size=len(places))
    found = chances_of(calibrate(scores, places), scores)
    np.testing.assert_allclose(found.sum(axis=0), counts, rtol=1e-5)
    found = chances_of(calibrate(scores, places, weights), scores)
    np.testing.assert_allclose(weights @ found, np.bincount(places, weights), rtol=1e-5)


def test_calibration_is_the_best_slope_and_intercept() -> None:
    """Of many rows whose logits are a slope and an intercept away, both are found."""
    rng = np.random.default_rng(0)
    scores = rng.normal(-1.0, 0.2, size=200_000)
    chance = 1.0 / (1.0 + np.exp(-2.0 * 4.0 * (scores + 0.5)))
    places = (rng.random(len(scores)) < chance).astype(int)
    found = calibrate(scores, places)
    # Standard errors by the information of a logistic regression on 8 s and 8 s t.
    design = np.column_stack([2.0 * scores, np.full(len(scores), 2.0)])
    information = (design * (chance * (1.0 - chance))[:, None]).T @ design
    errors = np.sqrt(np.diag(np.linalg.inv(information)))
    assert abs(found.slope - 4.0) < 4.0 * errors[0]
    assert abs(found.slope * found.shifts[0] - 2.0) < 4.0 * errors[1]


def test_few_rows_are_not_certain() -> None:
    """Perfectly separated rows: a class of m rows gives the other half of 1 / (m + 2)."""
    for m, others in ((1, 20), (5, 5), (30, 1000)):
        places = np.repeat([0, 1], [others, m])
        found = chances_of(calibrate(np.where(places, 1.0, -1.0), places), np.array([-1.0, 1.0]))
        assert found[1, 0] == pytest.approx(0.5 / (m + 2.0), rel=0.05)
        assert found[0, 1] == pytest.approx(0.5 * m / (m + 2.0) / others, rel=0.05)


def test_few_rows_do_not_move_the_scores_of_a_log_loss() -> None:
    """Where hardly any row is in doubt, two of them would decide on all shifts."""
    places = np.repeat([0, 1], [30, 30])
    scores = np.where(places, 4.0, -4.0)
    scores[[0, 1]] = 0.5
    believed, plain = (calibrate(scores, places, logits=logits) for logits in (True, False))
    moved = [abs(found.slope * found.shifts[0]) for found in (believed, plain)]
    assert moved[0] < 0.5 * moved[1]


def test_a_class_without_rows_keeps_a_chance() -> None:
    rng = np.random.default_rng(0)
    scores, places = rng.normal(size=(100, 3)), np.repeat([0, 1], 50)
    found = chances_of(calibrate(scores, places), scores)
    assert found.sum(axis=0)[2] == pytest.approx(50.0 / 102.0 / 3.0, rel=0.01)


def test_scores_that_say_nothing_give_the_base_rate() -> None:
    places = np.repeat([0, 1], [90, 10])
    found = chances_of(calibrate(np.full(100, -0.7), places), np.array([-0.7]))
    np.testing.assert_allclose(found, [[0.9, 0.1]], atol=1e-6)


def test_rare_class_is_predicted_as_often_as_it_occurs() -> None:
    """Over seeds: the probabilities of the rows in the upper 2 % are those that are observed."""
    promised, occurred, differences = [], [], []
    for seed in range(8):
        X, y, _ = rare(24_000, seed)
        train, test = slice(0, 4_000), slice(4_000, None)
        map_ = FourierFeatures(gamma=0.02, n_components=60, random_state=seed)
        model = KernelRidgeClassifier(map_, alpha=1.0).fit(X[train], y[train])
        chance = model.predict_proba(X[test])[:, 1]
        assert np.array_equal(model.predict(X[test]), (chance > 0.5).astype(int))
        top = np.argsort(-chance)[:400]
        promised.append(chance[top].mean())
        occurred.append(y[test][top].mean())
        differences.append(chance.mean() - y[test].mean())
    spread = np.std(np.subtract(promised, occurred), ddof=1) / np.sqrt(8)
    assert abs(np.mean(np.subtract(promised, occurred))) < 3.0 * spread + 0.01
    assert abs(np.mean(differences)) < 3.0 * np.std(differences, ddof=1) / np.sqrt(8)


def log_loss(chances: Array, places: NDArray[np.int64]) -> float:
    return float(-np.mean(np.log(chances[np.arange(len(places)), places])))


@pytest.mark.slow
def test_learned_kernel_with_a_rare_class() -> None:
    """The log loss is that of logistic regression, which is the truth here, but for noise."""
    more = []
    for seed in range(3):
        X, y, _ = rare(11_500, seed)
        train, test = slice(0, 1_500), slice(1_500, None)
        model = KernelRidgeClassifier(random_state=seed).fit(X[train], y[train])
        linear = LogisticRegression(max_iter=500).fit(X[train], y[train])
        constant = log_loss(np.tile([1.0 - y[train].mean(), y[train].mean()], (10_000, 1)), y[test])
        found = [log_loss(each.predict_proba(X[test]), y[test]) for each in (model, linear)]
        more.append((found[0] - found[1]) / constant)
    # Fifteen rows are positive: choosing a kernel by them costs a part of what there is to gain.
    assert np.mean(more) < 0.05 + 2.0 * np.std(more, ddof=1) / np.sqrt(3)


def test_steps_of_a_rare_class_do_not_stop_at_the_base_rate() -> None:
    """An extreme alpha of the ridge says nothing about the penalty of the log loss."""
    X, y, _ = rare(20_000, 0)
    signs = np.where(y, 1.0, -1.0)[:, None]
    mean = X.mean(axis=0)
    gram = (X - mean).T @ (X - mean)
    alpha = 1e10
    factor = np.linalg.cholesky(gram + alpha * np.eye(4))
    posterior = Posterior(factor, alpha, mean, np.ones(1), float(len(y)), len(y), True)

    def sums(coefficients: Array, intercepts: Array) -> LossSums:
        return LossSums.of_block(X, signs, None, coefficients, intercepts)

    rates = 4.0 * y.mean() * (1.0 - y.mean())
    problem = OnFeatures(sums, posterior, 1.0, 1, rates)
    found = problem.plain(minimise(problem, np.zeros((5, 1)), 15, 1e-4).at.values)
    base = len(y) * log_loss(np.tile([1.0 - y.mean(), y.mean()], (len(y), 1)), y)
    linear = LogisticRegression(C=1.0, max_iter=500).fit(X, y)
    best = len(y) * log_loss(linear.predict_proba(X), y)
    assert base - sums(*found).loss > 0.9 * (base - best)


@pytest.mark.parametrize("model", [KernelRidgeClassifier, KernelSVC])
def test_balanced_weights_are_those_of_scikit_learn(model: type) -> None:
    X, y, _ = rare(3_000, 1)
    y = y + (X[:, 0] > 1.5)  # three classes, of very different sizes
    map_ = FourierFeatures(gamma=0.05, n_components=40, random_state=0)
    counts = np.bincount(y)
    by_hand = {k: len(y) / (len(counts) * counts[k]) for k in range(len(counts))}
    balanced = model(map_, class_weight="balanced").fit(X, y)
    given = model(map_, class_weight=by_hand).fit(X, y)
    plain = model(map_).fit(X, y)
    np.testing.assert_allclose(balanced.predict_proba(X), given.predict_proba(X), atol=1e-6)
    recall = [(each.predict(X)[y == 2] == 2).mean() for each in (balanced, plain)]
    assert recall[0] > recall[1] + 0.2


def test_thresholds_of_scikit_learn() -> None:
    X, y, _ = rare(6_000, 2)
    y = np.where(y, "late", "on time")
    map_ = FourierFeatures(gamma=0.05, n_components=40, random_state=0)
    model = KernelRidgeClassifier(map_, alpha=1.0)
    fixed = FixedThresholdClassifier(
        model, threshold=0.05, pos_label="late", response_method="predict_proba"
    ).fit(X[:3000], y[:3000])
    chance = model.fit(X[:3000], y[:3000]).predict_proba(X[3000:])[:, 0]
    np.testing.assert_array_equal(fixed.predict(X[3000:]) == "late", chance >= 0.05)
    tuned = TunedThresholdClassifierCV(model, scoring="balanced_accuracy", cv=3, random_state=0)
    tuned.fit(X[:3000], y[:3000])
    late = y[3000:] == "late"

    def balanced(predicted: NDArray[np.bool_]) -> float:
        return float((predicted[late].mean() + 1.0 - predicted[~late].mean()) / 2.0)

    assert balanced(tuned.predict(X[3000:]) == "late") > balanced(chance > 0.5) + 0.1
