"""AutoFeatures: what it may choose, that it chooses well, and that it says why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from kernelsieve import AutoFeatures, FourierFeatures, KernelRidge, NystromFeatures
from kernelsieve.features import auto
from kernelsieve.features.auto import MAPS, _behind
from kernelsieve.testing import FeatureMapBattery


class TestAuto(FeatureMapBattery):
    sparse_output = True
    # Sparse rows get a map that keeps them sparse, which is not the one that dense rows get.
    test_sparse_equals_dense = None

    def build(self, **overrides: Any) -> AutoFeatures:
        return AutoFeatures(**{"n_components": 32, "random_state": 0, **overrides})


def test_sparse_rows_stay_sparse():
    X = sp.random_array((300, 40), density=0.1, random_state=0, format="csr")
    features = AutoFeatures(50, gamma=0.5, random_state=0)
    assert sp.issparse(features.fit_transform(X))
    assert [trial.name for trial in features.trials_] == ["row norm", "adaptive"]


def test_a_kernel_without_series_goes_to_nystrom():
    X = np.random.default_rng(0).normal(size=(100, 3))
    features = AutoFeatures(20, kernel="matern", random_state=0).fit(X)
    assert isinstance(features.map_, NystromFeatures)
    assert "no Taylor series" in features.reason_


def test_as_many_features_as_rows_are_exact():
    X = np.random.default_rng(0).normal(size=(60, 3))
    features = AutoFeatures(60, gamma=0.3, random_state=0)
    Z = features.fit_transform(X)
    np.testing.assert_allclose(Z @ Z.T, features.kernel_(X), atol=1e-6)
    assert "exact" in features.reason_


def test_the_choice_is_the_best_of_the_trials_up_to_a_tie():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 6))
    for y in (None, X[:, 0] * X[:, 1], np.sin(3 * X).sum(axis=1)):
        features = AutoFeatures(200, gamma=0.2, random_state=0).fit(X, y)
        best = min(trial.error for trial in features.trials_)
        chosen = features.reason_.split(":")[0]
        assert isinstance(features.map_, MAPS[chosen])
        error = next(trial.error for trial in features.trials_ if trial.name == chosen)
        assert error <= 1.02 * best
        assert ("target" if y is not None else "kernel") in features.reason_


def test_the_map_is_the_one_that_a_user_would_build():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4))
    y = np.sin(2 * X[:, 0])
    features = AutoFeatures(60, gamma=0.2, alpha=0.1, random_state=3).fit(X, y)
    kind = MAPS[features.reason_.split(":")[0]]
    options = {} if kind is FourierFeatures else {"alpha": 0.1}
    alone = kind(60, kernel=features.kernel_, random_state=3, **options).fit(X, y)
    np.testing.assert_array_equal(features.transform(X), alone.transform(X))


def test_a_map_leaves_the_race_only_if_it_is_far_behind_for_certain():
    rng = np.random.default_rng(0)
    best = rng.chisquare(1, size=1000)
    assert not _behind(1.15 * best, best)  # 7 % of the error
    assert _behind(1.3 * best, best)
    wild = best.copy()
    wild[3] += 1000.0  # one row alone says nothing
    assert not _behind(wild, best)
    assert not _behind(best, best)


def test_maps_that_are_close_are_judged_by_all_rows(monkeypatch):
    judged: list[tuple[str, int]] = []
    predict = auto._Runner.predict

    def counted(runner, X, targets, apart, alphas):
        judged.append((runner.name, int(np.flatnonzero(apart)[0])))
        return predict(runner, X, targets, apart, alphas)

    monkeypatch.setattr(auto._Runner, "predict", counted)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 4))
    noise = rng.normal(size=1000)  # where nothing can be learned all are close
    AutoFeatures(40, gamma=0.2, random_state=0).fit(X, noise)
    assert sorted(judged) == sorted((name, k) for name in MAPS for k in range(4))
    judged.clear()
    X = rng.normal(size=(4000, 2))  # frequencies are far behind here
    features = AutoFeatures(200, gamma=0.5, alpha=1e-3, random_state=0)
    features.fit(X, np.sin(4 * X[:, 0]) * X[:, 1])
    assert ("Fourier", 1) in judged
    assert ("Fourier", 3) not in judged
    assert "Fourier" in [trial.name for trial in features.trials_]


@pytest.mark.parametrize(
    ("n", "adaptive", "expected"),
    [(700, 1.004, "row norm"), (800, 1.004, "adaptive"), (800, 1.006, "row norm")],
)
def test_adaptive_is_preferred_where_many_more_rows_come(monkeypatch, n, adaptive, expected):
    """A trial on few rows does not show what the targets of all rows are worth to it."""
    for name in ("HEAT_ROWS", "TRIAL_ROWS"):
        monkeypatch.setattr(auto, name, 200)
    errors = {"row norm": 1.0, "adaptive": adaptive, "Fourier": 1.2, "Nystrom": 1.1}

    def race(runners, X, targets, alphas):
        for runner in runners:
            runner.error, runner.n_rows = errors[runner.name], len(X)
        return runners, runners

    monkeypatch.setattr(auto, "_race", race)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    features = AutoFeatures(20, gamma=0.1, random_state=0).fit(X, X[:, 0])
    assert features.reason_.startswith(f"{expected}: ")
    assert ("asks the target of all" in features.reason_) == (expected == "adaptive")


def test_with_many_rows_a_heat_comes_first(monkeypatch):
    """Those that are not far behind then run with all rows, until enough rows have judged."""
    for name, value in (("HEAT_ROWS", 500), ("TRIAL_ROWS", 2000), ("ENOUGH", 900), ("JUDGES", 100)):
        monkeypatch.setattr(auto, name, value)
    runs: list[tuple[str, int]] = []
    predict = auto._Runner.predict

    def counted(runner, X, targets, apart, alphas):
        runs.append((runner.name, len(X)))
        return predict(runner, X, targets, apart, alphas)

    monkeypatch.setattr(auto._Runner, "predict", counted)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 2))
    y = np.sin(4 * X[:, 0]) * X[:, 1]  # frequencies are far behind here
    features = AutoFeatures(100, gamma=0.5, alpha=1e-3, random_state=0).fit(X, y)
    assert runs[: len(MAPS)] == [(name, 500) for name in MAPS]
    later = runs[len(MAPS) :]
    assert {n_rows for _, n_rows in later} == {2000}
    assert "Fourier" not in dict(later)
    assert max(later.count(run) for run in later) <= 2  # quarters of 500 rows: 900 are enough
    assert " on 2000 rows; " in features.reason_
    assert features.reason_.endswith(" on 500 rows")
    assert [trial.name for trial in features.trials_] == list(MAPS)
    runs.clear()
    wide = rng.normal(size=(2500, 30))
    monkeypatch.setattr(auto, "TRIAL_VALUES", 30 * 1200)
    AutoFeatures(20, gamma=0.1, random_state=0).fit(wide, rng.normal(size=2500))  # all are close
    assert {n_rows for _, n_rows in runs} == {600, 1200}


def test_a_small_alpha_does_not_spoil_the_trial_of_noisy_targets():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    features = AutoFeatures(200, gamma=0.5, alpha=1e-4, random_state=0)
    for trial in features.fit(X, X[:, 0] + 3.0 * rng.normal(size=600)).trials_:
        assert trial.error < 1.02, trial  # that of a constant is 1


def test_few_rows_judge_all():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = np.where(np.arange(400) % 4 == 1, X[:, 0], 0.0)  # one quarter alone would see zeros
    for trial in AutoFeatures(60, gamma=0.2, random_state=0).fit(X, y).trials_:
        assert 0.9 < trial.error < 1.3, trial  # nothing tells where the zeros are


def test_points_that_reach_far_are_left_to_the_others():
    X = 30.0 * np.random.default_rng(0).normal(size=(300, 5))
    features = AutoFeatures(50, gamma=1.0, random_state=0).fit(X)
    assert features.transform(X).shape == (300, features.n_components_)


def test_a_ridge_on_it_inherits_alpha_and_fuses():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4)).astype(np.float32)
    y = X[:, 0] * X[:, 1]
    model = KernelRidge(AutoFeatures(50, kernel="matern", random_state=0), alpha=0.1).fit(X, y)
    assert model.features_.alpha == 0.1
    Z = model.features_.transform(X).astype(np.float64)
    Zc, yc = Z - Z.mean(axis=0), y - y.mean()
    weights = np.linalg.solve(Zc.T @ Zc + 0.1 * np.eye(Z.shape[1]), Zc.T @ yc)
    expected = Zc @ weights + y.mean()
    np.testing.assert_allclose(model.predict(X), expected, atol=2e-3)


@pytest.mark.parametrize("alpha", [0.0, -1.0])
def test_bad_alpha(alpha):
    with pytest.raises(ValueError, match="alpha"):
        AutoFeatures(10, alpha=alpha).fit(np.eye(30))
