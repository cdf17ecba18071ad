"""Predictions of features corrected by the residuals of the nearest rows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from kernelsieve import (
    KernelRidge,
    KernelRidgeCV,
    NystromFeatures,
    explain,
    export_onnx,
    load,
    save,
)
from kernelsieve.export import ExportError
from kernelsieve.kernels import Product
from kernelsieve.learning import neighbour_search
from kernelsieve.learning.neighbours import LocalCorrection, LocalMetric, in_boxes
from kernelsieve.models import full_kernel, ridge_local
from kernelsieve.sources.base import Block
from kernelsieve.sources.stream import BlockSource


def rows(n: int, d: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-2.0, 2.0, size=(n, d))


def smooth(X: np.ndarray) -> np.ndarray:
    return np.sin(X[:, 0]) + 0.5 * X[:, 1]


def rough(X: np.ndarray) -> np.ndarray:
    """A function with as many bumps as landmarks cannot follow."""
    return smooth(X) + np.sin(12.0 * X[:, 0]) * np.sin(12.0 * X[:, 1])


def ridge(**options: object) -> KernelRidge:
    features = NystromFeatures(50, kernel=Product(0.5), random_state=0)
    return KernelRidge(features, alpha=0.1, random_state=0, **options)


def correction(n: int = 200, d: int = 11, weighted: bool = True) -> LocalCorrection:
    """More coordinates than are looked at together, two outputs."""
    rng = np.random.default_rng(1)
    return LocalCorrection(
        LocalMetric(np.arange(d), np.zeros(d), np.ones(d), False),
        rng.normal(size=(n, d)).astype(np.float32),
        rng.normal(size=(n, 2)).astype(np.float32),
        None,
        rng.uniform(0.5, 2.0, size=n).astype(np.float32) if weighted else None,
        12,
        0.2,
        0.3,
        np.array([1.0, 4.0]),
    )


def euclidean(local: LocalCorrection) -> LocalCorrection:
    return replace(local, metric=replace(local.metric, euclidean=True))


@pytest.mark.parametrize("kind", ["residuals", "targets"])
@pytest.mark.parametrize("distance", ["absolute", "euclidean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_correction_is_kriging_from_the_nearest_rows(weighted, distance, kind):
    local = correction(weighted=weighted)
    local = euclidean(local) if distance == "euclidean" else local
    targets, levels = local.values, np.array([100.0, -3.0])
    if kind == "targets":
        local = replace(local, levels=levels)
        targets = targets.astype(float) + levels
    rng = np.random.default_rng(2)
    X, predicted = rng.normal(size=(30, 11)), levels + rng.normal(size=(30, 2))
    added, variances = local.at(Product(1.0), X, predicted)
    noises = 0.3 * (np.ones(200) if local.noises is None else local.noises)
    for i, query in enumerate(X.astype(np.float32)):
        mean, variance = oracles.local_correction(
            local.points, targets, query, 12, 0.2, noises,
            mean=predicted[i] if kind == "targets" else 0.0, euclidean=distance == "euclidean",
        )  # fmt: skip
        np.testing.assert_allclose(added[i], mean, atol=1e-5)
        assert abs(variances[i] - (variance + 0.3)) < 1e-5


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("ordered", [False, True])
def test_the_search_finds_the_nearest_points_and_of_equal_ones_the_first(ordered, power):
    rng = np.random.default_rng(0)
    points = rng.integers(4, size=(1000, 11)).astype(np.float32)  # many are equally far, some equal
    if ordered:
        order = in_boxes(points)
        assert sorted(order) == list(range(len(points)))
        points = points[order]
    local = replace(correction(1000), points=points)
    local = euclidean(local) if power == 2 else local
    queries, left_out = points[:40], np.arange(40)
    near = local.neighbours(queries, left_out)
    for i, query in enumerate(queries):
        distances = (np.abs(points - query) ** power).sum(axis=1)
        distances[i] = np.inf
        np.testing.assert_array_equal(near.places[i], np.argsort(distances, kind="stable")[:12])


def test_the_search_counts_the_distances_that_it_needs():
    points = rows(4000, 2).astype(np.float32)
    anywhere = replace(correction(4000, 2), points=points)
    ordered = replace(anywhere, points=points[in_boxes(points)])
    queries, nobody = rows(50, 2, seed=1).astype(np.float32), np.full(50, -1)
    n_boxes = len(ordered.boxes.low)
    assert (anywhere.neighbours(queries, nobody).looked_at == 4000 + n_boxes).all()
    looked_at = ordered.neighbours(queries, nobody).looked_at
    assert n_boxes + 12 <= looked_at.min()
    assert looked_at.max() < 1000


@pytest.mark.parametrize(("work", "n_judged"), [(0.0, 101), (1e9, 401)])
def test_as_many_rows_judge_as_there_is_time_for(monkeypatch, work, n_judged):
    """Of both halves, those that decide and those that tell."""
    monkeypatch.setattr(neighbour_search, "SEARCH_WORK", work)
    monkeypatch.setattr(neighbour_search, "FEWEST_JUDGES", 101)
    X, judges = rows(2000, 2), np.arange(0, 1203, 3)
    block, decide = Block(X, rough(X)[:, None]), np.arange(401) % 2 == 0
    trial = neighbour_search.choose_correction(Product(1.0), block, block.y, judges, decide, 1)
    assert abs(len(trial.judged) - n_judged) <= 1
    assert abs(decide[trial.judged].mean() - 0.5) < 0.01
    every = neighbour_search.choose_correction(Product(1.0), block, block.y, judges, ~decide, 1)
    assert len(trial.residuals) == len(trial.judged) == len(every.judged)


class Clock:
    """Time that passes by some seconds for every row whose neighbours are looked for."""

    def __init__(self, monkeypatch, seconds):
        self.now, self.searched = 0.0, []
        found = neighbour_search._Search.found

        def timed(search, placed, correction, some):
            self.now += seconds * len(some)
            self.searched.append(str(placed.metric))
            return found(search, placed, correction, some)

        monkeypatch.setattr(neighbour_search._Search, "found", timed)
        monkeypatch.setattr(neighbour_search.time, "monotonic", lambda: self.now)


@pytest.mark.parametrize(
    ("limit", "n_distances", "n_judged"),
    [(math.inf, 4, 1202), (1000.0, 4, 1202), (90.0, 4, (400, 602)), (5.0, 0, None)],
)
def test_distances_and_judges_that_there_is_time_for(monkeypatch, limit, n_distances, n_judged):
    clock = Clock(monkeypatch, 0.05)
    X, judges = rows(4000, 2), np.arange(0, 3606, 3)
    block, decide = Block(X, rough(X)[:, None]), np.arange(1202) % 2 == 0
    trial = neighbour_search.choose_correction(
        Product(1.0), block, block.y, judges, decide, 1, deadline=limit
    )
    assert clock.now <= 1.05 * limit
    if n_judged is None:
        assert trial is None
        assert clock.now <= 0.05 * neighbour_search.PROBED_ROWS
        return
    assert len(set(clock.searched)) == n_distances
    low, high = n_judged if isinstance(n_judged, tuple) else (n_judged, n_judged)
    assert low <= len(trial.judged) <= high


def test_boxes_in_their_order_are_small():
    points = rows(1000).astype(np.float32)
    boxes = replace(correction(1000, 3), points=points[in_boxes(points)]).boxes
    volumes = np.prod(boxes.high - boxes.low, axis=1)
    assert len(volumes) == 8
    assert volumes.sum() < 4.0**3  # together no more than the cube that they lie in


def test_missing_values_lie_in_the_middle():
    local, X = correction(), np.random.default_rng(2).normal(size=(5, 11))
    X[:, 3] = np.nan
    middle, nothing = np.where(np.isnan(X), 0.0, X), np.zeros((5, 2))
    with_missing, filled = (local.at(Product(1.0), Z, nothing)[0] for Z in (X, middle))
    np.testing.assert_array_equal(with_missing, filled)


def test_threads_change_no_bit():
    X, unseen = rows(1200), rows(300, seed=1)
    one, three = (ridge(refine="local", n_jobs=jobs).fit(X, rough(X)) for jobs in (1, 3))
    for first, second in zip(
        one.predict(unseen, return_std=True), three.predict(unseen, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(first, second)


def test_it_follows_what_features_cannot_and_knows_how_well():
    X, unseen = rows(4000, 2), rows(500, 2, seed=1)
    noise = 0.05 * np.random.default_rng(3).normal(size=4000)
    y = rough(X) + noise
    before = ridge().fit(X, y).predict(unseen) - rough(unseen)
    mean, deviation = ridge(refine="local").fit(X, y).predict(unseen, return_std=True)
    after = mean - rough(unseen)
    assert np.std(after) < 0.5 * np.std(before)
    # Errors without the noise are at most what the deviations of observations say.
    assert 0.7 < np.sqrt(np.mean((after**2 + 0.05**2) / deviation**2)) < 1.3


def test_where_features_are_wrong_near_rows_tell_all():
    """Features that are far off, in different ways at neighbours, are not in the way."""
    X, unseen = rows(3000, 2), rows(500, 2, seed=1)
    steps = [np.sign(np.sin(7.0 * Z).prod(axis=1)) for Z in (X, unseen)]
    features = NystromFeatures(200, kernel=Product(20.0), random_state=0)  # islands
    plain = KernelRidge(features, alpha=1e-6, random_state=0)
    local = clone(plain).set_params(refine="local").fit(X, steps[0])
    assert local.local_.levels is not None
    errors = [np.std(m.predict(unseen) - steps[1]) for m in (local, plain.fit(X, steps[0]))]
    assert errors[0] < 0.65 * errors[1]


def test_levels_of_any_size_change_nothing():
    X, unseen = rows(1000, 2), rows(50, 2, seed=1)
    low, high = (ridge(refine="local").fit(X, rough(X) + shift) for shift in (0.0, 1e4))
    np.testing.assert_allclose(high.predict(unseen) - 1e4, low.predict(unseen), atol=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_the_euclidean_distance_is_taken_where_many_small_differences_hide_large_ones(seed):
    flat = rows(3000, 2)
    small = 0.015 * np.random.default_rng(1).normal(size=(3000, 100))
    features = NystromFeatures(50, kernel=Product(0.1), random_state=seed)
    model = KernelRidge(features, alpha=0.1, refine="local", random_state=seed).fit(
        np.hstack([flat, small]), rough(flat)
    )
    assert model.local_.metric.euclidean


def test_far_from_all_rows_it_leaves_the_features_alone():
    X = rows(1000)
    local, plain = ridge(refine="local").fit(X, rough(X)), ridge().fit(X, rough(X))
    far = np.full((1, 3), 1e4)
    np.testing.assert_allclose(local.predict(far), plain.predict(far))
    assert local.predict(far, return_std=True)[1] > plain.noise_variance_**0.5 / 2


def test_several_outputs_and_weights():
    X = rows(800)
    y = np.column_stack([rough(X), -2.0 * rough(X)])
    single = ridge(refine="local").fit(X, y[:, 0])
    both = ridge(refine="local").fit(X, y)
    unseen = rows(20, seed=1)
    mean, deviation = both.predict(unseen, return_std=True)
    np.testing.assert_allclose(mean[:, 1], -2.0 * mean[:, 0], atol=1e-4)
    np.testing.assert_allclose(mean[:, 0], single.predict(unseen), atol=1e-4)
    np.testing.assert_allclose(deviation[:, 1], 2.0 * deviation[:, 0], rtol=1e-4)


def test_rows_of_weight_zero_do_not_count():
    X, wrong = rows(800), rows(100, seed=5)
    together, y = np.vstack([X, wrong]), np.append(rough(X), np.full(100, 1e3))
    weights = np.append(np.ones(800), np.zeros(100))
    model = ridge(refine="local").fit(together, y, sample_weight=weights)
    assert len(model.local_.points) == 800
    assert np.abs(model.predict(wrong) - rough(wrong)).max() < 5.0


def test_what_it_cannot_correct_is_refused():
    X = rows(100)
    with pytest.raises(ValueError, match="refine='local' needs dense rows"):
        KernelRidge(NystromFeatures(10, random_state=0), refine="local").fit(
            sp.csr_array(X), smooth(X)
        )
    features = NystromFeatures(10, kernel=Product(1.0, "categorical"), random_state=0)
    with pytest.raises(ValueError, match="without categorical columns"):
        KernelRidge(features, refine="local").fit(X.round(), smooth(X))
    with pytest.raises(ValueError, match="solver='cholesky'"):
        ridge(refine="local", solver="cg").fit(X, smooth(X))
    with pytest.raises(ValueError, match="at least 3 rows"):
        ridge(refine="local").fit(X[:2], smooth(X)[:2])
    with pytest.raises(ValueError, match="refine='near'"):
        ridge(refine="near").fit(X, smooth(X))


def test_files_servers_explanations_and_exports(tmp_path):
    X = rows(300)
    model = ridge(refine="local").fit(X, rough(X))
    save(model, tmp_path / "model.ks", variance=True)
    again, unseen = load(tmp_path / "model.ks"), rows(9, seed=1)
    for first, second in zip(
        model.predict(unseen, return_std=True), again.predict(unseen, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(first, second)
    predict = model.predictor()
    np.testing.assert_allclose([predict(x) for x in unseen], model.predict(unseen), atol=1e-6)
    pytest.importorskip("onnx")
    with pytest.raises(ExportError, match="nearest rows"):
        export_onnx(model, tmp_path / "model.onnx")


def test_an_explanation_is_that_of_the_features():
    X = rows(300)
    local, plain = ridge(refine="local").fit(X, rough(X)), ridge().fit(X, rough(X))
    text = explain(local).text()
    assert text.startswith(explain(plain).text())
    assert "also corrects predictions by the errors of training rows nearby" in text


def test_auto_takes_it_where_rows_set_apart_say_so(monkeypatch):
    monkeypatch.setattr(full_kernel, "LARGEST_KERNEL_MATRIX", 0)
    monkeypatch.setattr("kernelsieve.models.full_kernel.MOST_WORK", 0.0)
    X = rows(3000, 2)
    assert hasattr(ridge(refine="auto").fit(X, rough(X)), "local_")
    noise = np.random.default_rng(0).normal(size=3000)
    assert not hasattr(ridge(refine="auto").fit(X, smooth(X) + noise), "local_")


@pytest.mark.slow
def test_the_default_takes_it_where_it_pays():
    """The error that it tells is that of rows which chose neither the kernel nor the correction."""
    X, unseen = rows(8000, 2), rows(2000, 2, seed=1)
    bumps = [np.sign(np.sin(25.0 * Z[:, 0]) * np.sin(25.0 * Z[:, 1])) for Z in (X, unseen)]
    noise = np.random.default_rng(3).normal(size=8000)
    local = KernelRidgeCV(random_state=0).fit(X, smooth(X) + bumps[0])
    assert local.model_.refine == "local"
    error = np.sqrt(np.mean((local.predict(unseen) - smooth(unseen) - bumps[1]) ** 2))
    assert 0.85 < local.best_rmse_ / error < 1.15
    plain = KernelRidgeCV(random_state=0).fit(X, smooth(X) + noise)
    assert not hasattr(plain.model_, "local_")
    grouped = KernelRidgeCV(random_state=0).fit(
        X, smooth(X) + bumps[0], groups=np.arange(8000) // 2
    )
    assert not hasattr(grouped.model_, "local_")


def test_auto_solves_small_tables_exactly():
    X = rows(120)
    auto, exact = (ridge(refine=refine).fit(X, rough(X)) for refine in ("auto", True))
    np.testing.assert_allclose(auto.predict(X), exact.predict(X), rtol=1e-9)
    assert hasattr(auto, "dual_coef_")


def test_auto_leaves_streams_and_sparse_rows_to_the_features(monkeypatch):
    monkeypatch.setattr(full_kernel, "LARGEST_KERNEL_MATRIX", 0)
    monkeypatch.setattr("kernelsieve.models.full_kernel.MOST_WORK", 0.0)
    X = rows(400)
    y = rough(X)
    for given in (BlockSource([(X[:200], y[:200]), (X[200:], y[200:])]), sp.csr_array(X)):
        targets = () if isinstance(given, BlockSource) else (y,)
        auto, plain = (ridge(refine=refine).fit(given, *targets) for refine in ("auto", False))
        assert not hasattr(auto, "local_")
        np.testing.assert_array_equal(auto.predict(X), plain.predict(X))


def test_many_rows_to_a_feature_need_few_leverages(monkeypatch):
    X, new = rows(2000, 2), rows(300, 2, seed=1)
    every = ridge(refine="local").fit(X, rough(X)).predict(new)
    monkeypatch.setattr(ridge_local, "LEVERAGE_WORK", 0)
    few = ridge(refine="local").fit(X, rough(X)).predict(new)
    truth = rough(new)
    assert np.abs(few - every).mean() < 0.1 * np.abs(truth).mean()
    assert np.mean((few - truth) ** 2) < 1.2 * np.mean((every - truth) ** 2)


def test_constant_rows_are_all_equally_near():
    X, y = np.ones((40, 2)), np.random.default_rng(0).normal(5.0, 1.0, size=40)
    model = ridge(refine="local").fit(X, y)
    np.testing.assert_allclose(model.predict(X), np.full(40, y.mean()), atol=0.3)
    assert np.ptp(model.predict(X)) < 1e-12
    assert model.local_.points.shape == (40, 1)


def test_judges_without_weight_have_a_say_if_no_other_has():
    X = rows(60, 2)
    y = rough(X)
    weight = np.zeros(60)
    weight[[3, 20, 41]] = 1.0
    model = ridge(refine="local").fit(X, y, sample_weight=weight)
    assert len(model.local_.points) == 3
    assert np.isfinite(model.predict(X)).all()
