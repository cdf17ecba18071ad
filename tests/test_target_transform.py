"""Skewed targets: the square root or logarithm is learned where that pays."""

from __future__ import annotations

import numpy as np
import pytest
from support.learning import source

from kernelsieve import (
    KernelRidgeCV,
    NystromFeatures,
    TableModel,
    explain,
    export_onnx,
    load,
    save,
)
from kernelsieve.learning import Budget, Judge, LearnOptions
from kernelsieve.learning.held_out import rows_set_apart
from kernelsieve.learning.sides import Setting
from kernelsieve.learning.target_transform import TargetTransform
from kernelsieve.learning.transform import (
    TransformTrial,
    choose_transform,
    is_skewed,
    trimmed_ratio,
)
from kernelsieve.sources.stream import BlockSource


def prices(n: int, seed: int = 0, noise: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Noise that multiplies, and effects that do."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.exp(1.5 * X[:, 0] + np.sin(2.0 * X[:, 1]) + noise * rng.normal(size=n))


@pytest.mark.parametrize("name", ["sqrt", "log"])
def test_predictions_are_means_of_the_target(name):
    rng = np.random.default_rng(0)
    predicted = rng.uniform(2.0, 3.0, size=20_000)
    errors = 0.4 * rng.normal(size=20_000)
    y = np.exp(predicted + errors) if name == "log" else (predicted + errors) ** 2
    transform = TargetTransform.of(name, y).corrected(y, predicted)
    left = y - transform.mean(predicted)
    assert abs(left.mean()) < 4.0 * y.std() / np.sqrt(len(y))
    deviations = transform.deviation(predicted, np.full(len(y), 0.4))
    squares = left**2 / deviations**2
    assert abs(squares.mean() - 1.0) < 4.0 * squares.std() / np.sqrt(len(y))


@pytest.mark.parametrize("name", ["sqrt", "log"])
def test_what_was_not_in_the_range_of_the_fit(name):
    transform = TargetTransform.of(name, np.array([0.0, 4.0, 25.0]))
    assert transform.shift == (4.0 if name == "log" else 0.0)
    np.testing.assert_allclose(transform.mean(transform(np.array([0.0, 9.0, 25.0]))), [0, 9, 25])
    assert transform(np.array([-5.0])) == transform(np.array([0.0]))
    far = np.array([-1e6, 1e6])
    assert transform.mean(far).tolist() == [0.0, 25.0]
    assert (transform.deviation(far, np.array([1e6, 1e6])) <= 25.0).all()
    with pytest.raises(ValueError, match=f"target_transform='{name}': y reaches -1, and must be"):
        TargetTransform.of(name, np.array([-1.0, 3.0]))


def test_constant_zeros_have_a_logarithm():
    transform = TargetTransform.of("log", np.zeros(3))
    assert np.isfinite(transform(np.zeros(3))).all()
    assert transform.mean(transform(np.zeros(3))).tolist() == [0.0, 0.0, 0.0]


def test_which_targets_are_worth_a_trial():
    rng = np.random.default_rng(0)
    assert is_skewed(np.exp(rng.normal(size=1000)))
    assert is_skewed(1e300 * np.exp(rng.normal(size=1000)) / 100)
    assert not is_skewed(np.exp(rng.normal(size=1000)) - 1.0)  # negative ones
    assert not is_skewed(rng.uniform(size=1000))
    assert not is_skewed(rng.poisson(0.5, size=1000).astype(float))  # few values
    assert not is_skewed(np.exp(rng.normal(size=50)))
    assert not is_skewed(np.zeros(1000))


@pytest.mark.parametrize("seed", range(2))
def test_noise_that_multiplies_asks_for_the_logarithm(seed):
    X, y = prices(300, seed)
    unseen, middle = prices(3000, seed + 100, noise=0.0)
    means = middle * np.exp(0.5**2 / 2)
    model = KernelRidgeCV(random_state=seed).fit(X, y)
    plain = KernelRidgeCV(random_state=seed, target_transform=None).fit(X, y)
    assert model.target_transform_.name == "log"
    assert plain.target_transform_ is None
    errors = [np.median(np.abs(m.predict(unseen) / means - 1.0)) for m in (model, plain)]
    assert errors[0] < 0.5 * errors[1]


def test_noise_that_does_not_multiply_leaves_the_target_alone():
    rng = np.random.default_rng(0)
    X = rng.exponential(size=(300, 2))
    y = 5.0 + X[:, 0] ** 2 + X[:, 1] + 0.5 * rng.normal(size=300)
    y = np.maximum(y, 0.0)
    assert is_skewed(y)
    assert KernelRidgeCV(random_state=0).fit(X, y).target_transform_ is None


def tried(
    X: np.ndarray, y: np.ndarray, wanted: str = "auto", seconds: float | None = None
) -> TransformTrial | None:
    """What is tried on all rows that may choose."""
    judge = Judge(len(y), 0)
    setting = Setting(source(X, y), judge, LearnOptions())
    among = rows_set_apart(len(y), judge).choose
    return choose_transform(setting, among, wanted, Budget(seconds), None)


def everywhere(trial: TransformTrial) -> np.ndarray:
    return np.ones(len(trial.rows), dtype=bool)


def test_a_log_normal_target_is_learned_by_its_logarithm_and_a_normal_one_is_not():
    for seed in range(4):
        trial = tried(*prices(400, seed))
        name = trial.best(everywhere(trial))
        assert name is not None
        share = trimmed_ratio(
            np.square(trial.means(name, everywhere(trial)) - trial.targets),
            np.square(trial.predicted[None] - trial.targets),
        )
        assert share < 0.9
    X, y = prices(400)
    assert tried(X, np.log(y) + 20.0) is None


def test_rows_that_report_the_error_choose_nothing():
    X, y = prices(1200)
    unseen = rows_set_apart(1200, Judge(1200, 0)).judge
    assert len(unseen) == 240
    before = tried(X, y)
    y[unseen] = np.random.default_rng(1).permutation(y[unseen])
    after = tried(X, y)
    assert not set(before.rows) & set(unseen)
    np.testing.assert_array_equal(before.rows, after.rows)
    for name, predicted in before.predicted.items():
        np.testing.assert_array_equal(predicted, after.predicted[name])


def test_of_few_rows_every_row_judges():
    trial = tried(*prices(300))
    assert trial.rows.tolist() == list(range(300))
    half = np.arange(300) % 2 == 0
    assert trial.transform("log", half) != trial.transform("log", ~half)  # their own correction
    assert trial.transform(None, half) is None


def test_the_reported_error_is_that_of_other_rows():
    """Over seeds: heavy tails leave much to chance in each."""
    ratios = []
    for seed in range(5):
        X, y = prices(200, seed)
        unseen, targets = prices(4000, seed + 50)
        model = KernelRidgeCV(random_state=seed, time_limit=60).fit(X, y)
        error = np.sqrt(np.mean((model.predict(unseen) - targets) ** 2))
        ratios.append(np.log(model.best_rmse_ / error))
    assert abs(np.mean(ratios)) < 4.0 * np.std(ratios) / np.sqrt(5) + 0.05


def test_the_largest_errors_have_no_say_of_their_own():
    rng = np.random.default_rng(0)
    before = rng.chisquare(1, size=1000)
    squares = 0.5 * before
    squares[:50] = 1e6
    assert trimmed_ratio(squares, before) < 0.6
    weights = np.ones(1000)
    weights[:50] = 0.0
    assert trimmed_ratio(squares, before, weights) < 0.6
    assert trimmed_ratio(squares, np.zeros(1000)) == 1.0


def test_given_transforms():
    X, y = prices(300)
    for name in ("log", "sqrt"):
        model = KernelRidgeCV(random_state=0, target_transform=name).fit(X, y)
        assert model.target_transform_.name == name
        assert np.corrcoef(model.predict(X), y)[0, 1] > 0.7
    with pytest.raises(ValueError, match="target_transform='cube' is unknown"):
        KernelRidgeCV(target_transform="cube").fit(X, y)
    with pytest.raises(ValueError, match="'log': y reaches -"):
        KernelRidgeCV(target_transform="log").fit(X, y - 1.0)
    with pytest.raises(ValueError, match="is for a single target"):
        KernelRidgeCV(target_transform="log").fit(X, np.column_stack([y, y]))
    features = NystromFeatures(20, gamma=0.1)
    with pytest.raises(ValueError, match="is for a learned kernel of dense rows"):
        KernelRidgeCV(features, target_transform="log").fit(X, y)
    assert KernelRidgeCV(features).fit(X, y).target_transform_ is None


def test_several_targets_and_sources_are_taken_as_they_are_unless_asked():
    X, y = prices(300)
    both = np.column_stack([y, y])
    assert KernelRidgeCV(random_state=0).fit(X, both).target_transform_ is None
    source = BlockSource([(X[:200], y[:200]), (X[200:], y[200:])])
    assert KernelRidgeCV(random_state=0).fit(source).target_transform_ is None
    asked = KernelRidgeCV(random_state=0, target_transform="log").fit(source)
    known = KernelRidgeCV(random_state=0, target_transform="log").fit(X, y)
    assert asked.target_transform_ == known.target_transform_
    np.testing.assert_allclose(asked.predict(X), known.predict(X), rtol=1e-6)


def test_short_limits_leave_no_time_for_trials():
    X, y = prices(300)
    assert tried(X, y, seconds=5.0) is None
    assert tried(X, y, seconds=60.0) is not None
    assert tried(X, y, "log", seconds=5.0) is not None  # asked for


@pytest.fixture(scope="module", params=["log", "sqrt"])
def fitted(request):
    X, y = prices(300)
    return KernelRidgeCV(random_state=0, target_transform=request.param).fit(X, y), X


def test_files_servers_and_graphs_predict_the_same(fitted, tmp_path):
    model, X = fitted
    save(model, tmp_path / "model.ks", variance=True)
    again = load(tmp_path / "model.ks")
    assert again.target_transform_ == model.target_transform_
    for first, second in zip(
        model.predict(X, return_std=True), again.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(model.predictor()(X[0]), model.predict(X[:1])[0], rtol=1e-9)
    runtime = pytest.importorskip("onnxruntime")
    export_onnx(model, tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    dtype = np.float64 if "double" in session.get_inputs()[0].type else np.float32
    (found,) = session.run(None, {"X": X.astype(dtype)})
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-3)


def test_explanations_are_of_what_was_learned_and_say_so(fitted):
    model, X = fitted
    name = model.target_transform_.label()
    found = explain(model)
    assert found.target == name
    assert found.title == f"KernelRidgeCV of {name}"
    values = found.shapley(X[:20])
    told = values.base + values.values.sum(axis=1)
    np.testing.assert_allclose(model.target_transform_.mean(told), model.predict(X[:20]), rtol=1e-6)


def test_float32_stays_float32():
    X, y = prices(200)
    model = KernelRidgeCV(random_state=0, target_transform="log").fit(X.astype(np.float32), y)
    assert model.predict(X.astype(np.float32)).dtype == np.float32
    mean, deviation = model.predict(X.astype(np.float32), return_std=True)
    assert mean.dtype == deviation.dtype == np.float32
    assert (deviation > 0).all()


def test_tables_learn_prices(tmp_path):
    X, y = prices(250)
    table = {"size": X[:, 0], "place": X[:, 1], "other": X[:, 2], "price": y}
    model = TableModel("price").fit(table)
    assert model.model_.target_transform_.name == "log"
    assert "Learned as: log(price)\n" in model.summary()
    assert explain(model).title == "regression of 'log(price)'"
    save(model, tmp_path / "price.ks")
    again = load(tmp_path / "price.ks")
    np.testing.assert_array_equal(again.predict(table), model.predict(table))
    row = {name: float(values[0]) for name, values in table.items() if name != "price"}
    np.testing.assert_allclose(model.predictor()(row), model.predict(table)[0], rtol=1e-6)
    plain = TableModel("price", target_transform=None).fit(table)
    assert plain.model_.target_transform_ is None
    assert "Learned as" not in plain.summary()
    with pytest.raises(ValueError, match="is for a regression with a learned"):
        TableModel("price", target_transform="log", gamma=0.1).fit(table)


# --- the error of heavy tails ---------------------------------------------------------------------


@pytest.mark.parametrize("deviation", [1.0, 1.5, 2.0])
def test_the_error_of_logarithms_with_normal_noise(deviation: float) -> None:
    """The median over samples is the true error; that of mean squares is far too low."""
    known, squares = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        middle = 0.5 * rng.normal(size=1000)
        y = np.exp(middle + deviation * rng.normal(size=1000))
        transform = TargetTransform.of("log", y).corrected(y, middle)
        known.append(transform.expected_square(y, middle) or np.nan)
        squares.append(np.mean((y - transform.mean(middle)) ** 2))
    variance = deviation**2
    true = np.exp(2.0 * 0.25 + variance) * np.expm1(variance)
    # The logarithm of the square has a deviation of about 2 sqrt(2 / n) variance + 2 / sqrt(n).
    spread = (2.0 * np.sqrt(2.0 / 1000.0) * variance + 2.0 / np.sqrt(1000.0)) * np.sqrt(np.pi / 120)
    assert abs(np.log(np.nanmedian(known) / true)) < 4.0 * spread
    assert np.isnan(known).sum() <= 3
    if deviation > 1.0:
        assert np.sqrt(np.median(squares) / true) < 0.9


def test_errors_that_are_not_normal_are_left_alone() -> None:
    """Waiting times have logarithms with a long lower tail: a normal one would be far too large."""
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        y = rng.exponential(size=1000)
        transform = TargetTransform.of("log", y)
        found.append(transform.expected_square(y, np.full(1000, np.log(y).mean())))
    assert found == [None] * 40
    y = np.exp(np.random.default_rng(0).normal(size=1000))
    assert TargetTransform.of("sqrt", y).expected_square(y, np.sqrt(y)) is None
    assert TargetTransform.of("log", y).expected_square(y[:50], np.zeros(50)) is None
