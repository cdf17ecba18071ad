"""Plans are executed: on the rows that made them, and on others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from support.learning import LARGE, chosen, executed

from kernelsieve import KernelRidgeClassifier, KernelRidgeCV, NystromFeatures, load, save
from kernelsieve.learning import Budget, Judge
from kernelsieve.learning.plan import Solver
from kernelsieve.sources.stream import BlockSource


def table(n: int, seed: int = 0, d: int = 4) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=n)


def labels(y: Any) -> Any:
    return np.array(["low", "middle", "high"])[np.digitize(y, [-0.7, 0.7])]


def rmse(model: Any, X: Any, y: Any) -> float:
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


@pytest.fixture(scope="module")
def regression() -> KernelRidgeCV:
    return KernelRidgeCV(random_state=0).fit(*table(500))


@pytest.fixture(scope="module")
def classes() -> KernelRidgeClassifier:
    X, y = table(500)
    return KernelRidgeClassifier(random_state=0).fit(X, labels(y))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["plain", "line", "skewed", "two targets", "float32", "order"])
def test_the_same_rows_give_the_same_predictions(kind: str, weighted: bool) -> None:
    X, y = table(260)
    weights = np.random.default_rng(1).uniform(0.0, 2.0, 260) if weighted else None
    order = np.arange(260) if kind == "order" else None
    if kind == "line":
        y = y + 5.0 * X[:, 3]
    if kind == "skewed":
        y = np.exp(1.5 * y)
    if kind == "two targets":
        y = np.column_stack([y, X[:, 3]])
    if kind == "float32":
        X, y = X.astype(np.float32), y.astype(np.float32)
    first = KernelRidgeCV(random_state=0).fit(X, y, weights, order=order)
    again = KernelRidgeCV(random_state=0, plan=first.plan_).fit(X, y, weights, order=order)
    np.testing.assert_array_equal(again.predict(X), first.predict(X))
    assert again.predict(X).dtype == X.dtype
    assert again.plan_.kernel == first.plan_.kernel
    assert (first.linear_ is None) == (again.linear_ is None)
    assert again.target_transform_ == first.target_transform_
    assert kind != "skewed" or first.target_transform_ is not None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_same_rows_give_the_same_probabilities(n_classes: int, weighted: bool) -> None:
    X, y = table(260)
    y = np.digitize(y, [-0.7, 0.7][: n_classes - 1])
    weights = np.random.default_rng(1).uniform(0.0, 2.0, 260) if weighted else None
    first = KernelRidgeClassifier(random_state=0).fit(X, y, weights)
    again = KernelRidgeClassifier(random_state=0, plan=first.plan_).fit(X, y, weights)
    np.testing.assert_array_equal(again.predict_proba(X), first.predict_proba(X))


@pytest.mark.parametrize("n", [1, 2, 60, 1200])
def test_other_rows_report_their_own_error(regression: KernelRidgeCV, n: int) -> None:
    """Not that of the rows which made the plan, and none of its numbers of rows."""
    X, y = table(n, seed=5)
    y = 100.0 * y + 1e4
    model = KernelRidgeCV(plan=regression.plan_, random_state=0).fit(X, y)
    held = model.plan_.report.held_out
    assert held.rows.max() < n
    np.testing.assert_array_equal(held.targets[:, 0], y[held.rows])
    assert model.plan_.report.n_rows == n
    if n >= 60:
        new = table(2000, seed=6)
        error = rmse(model, new[0], 100.0 * new[1] + 1e4)
        assert model.best_rmse_ == pytest.approx(error, rel=0.4)


def test_a_plan_of_few_rows_takes_the_solver_of_many(regression: KernelRidgeCV) -> None:
    assert regression.plan_.solver == Solver("exact", 500)
    new = table(2000, seed=9)
    errors = []
    for n, kind in ((500, "exact"), (1500, "exact"), (2500, "iterative")):
        options = replace(LARGE, exact_rows=2000, landmarks=300)
        X, y = table(n, seed=3)
        found = executed(regression.plan_.for_other_rows(), X, y, options)
        assert found.plan.solver.kind == kind
        errors.append(rmse(found.model, *new))
        assert found.plan.report.error == pytest.approx(errors[-1], rel=0.15)
    assert errors[2] < errors[1] < errors[0]
    few = replace(LARGE, exact_rows=2000, landmarks=300, full_work=0.0)
    found = executed(regression.plan_.for_other_rows(), X, y, few)
    assert found.plan.solver == Solver("landmarks", 300)
    assert found.model.features_.n_components_ <= 300


@pytest.mark.slow
@pytest.mark.parametrize(("n", "kinds"), [(5000, {"exact"}), (7000, {"iterative", "landmarks"})])
def test_a_plan_of_500_rows_fits_thousands(
    regression: KernelRidgeCV, n: int, kinds: set[str]
) -> None:
    model = KernelRidgeCV(plan=regression.plan_, random_state=0).fit(*table(n, seed=3))
    assert model.plan_.solver.kind in kinds
    assert model.best_rmse_ == pytest.approx(rmse(model, *table(2000, seed=9)), rel=0.15)


def test_a_plan_for_landmarks_fits_few_rows() -> None:
    X, y = table(1300)
    signs = np.where(y > 0.0, 1.0, -1.0)
    options = replace(LARGE, full_work=0.0)
    plan = chosen(X, signs, options, classes=True, transform=None)
    assert (plan.solver.kind, plan.loss) == ("landmarks", "log loss")
    few = KernelRidgeClassifier(plan=plan, random_state=0).fit(X[:300], y[:300] > 0.0)
    held = few.plan_.report.held_out
    assert held.rows.tolist() == list(range(300))
    # Scores of rows that were left out: they know the classes, but not as the fitted ones do.
    right = np.mean((held.predicted[:, 0] > 0.0) == (y[:300] > 0.0))
    assert 0.6 < right <= few.score(X[:300], y[:300] > 0.0)
    new = table(1000, seed=1)
    chances = few.predict_proba(new[0])[np.arange(1000), (new[1] > 0.0).astype(int)]
    assert -np.log(chances).mean() < np.log(2.0)


def test_a_plan_of_few_classes_says_how_many_are_solved() -> None:
    """The log loss has no conjugate gradients: landmarks are what is fitted, and told."""
    X, y = table(400)
    signs = np.where(y > 0.0, 1.0, -1.0)
    plan = chosen(X, signs, classes=True, transform=None)
    assert (plan.solver.kind, plan.loss) == ("exact", "log loss")
    X, y = table(1200, seed=1)
    found = executed(plan.for_other_rows(), X, np.where(y > 0.0, 1.0, -1.0), LARGE)
    assert found.plan.solver.kind == "landmarks"
    assert not hasattr(found.model, "dual_coef_")


def test_what_a_plan_is_not_for(regression: Any, classes: Any) -> None:
    X, y = table(80)
    plan, other = regression.plan_, classes.plan_
    with pytest.raises(ValueError, match="for rows of 4 columns, and X has 3"):
        KernelRidgeCV(plan=plan).fit(X[:, :3], y)
    with pytest.raises(ValueError, match="for rows of 4 columns, and X has 5"):
        KernelRidgeClassifier(plan=other).fit(table(80, d=5)[0], labels(y))
    with pytest.raises(ValueError, match="made by a KernelRidgeClassifier: pass it to one"):
        KernelRidgeCV(plan=other).fit(X, y)
    with pytest.raises(ValueError, match="made by a KernelRidgeCV: pass it to one"):
        KernelRidgeClassifier(plan=plan).fit(X, labels(y))
    with pytest.raises(ValueError, match="for dense rows"):
        KernelRidgeCV(plan=plan).fit(sp.csr_array(X), y)
    with pytest.raises(ValueError, match="for dense rows"):
        KernelRidgeClassifier(plan=other).fit(sp.csr_array(X), labels(y))
    for name, value in {
        "features": NystromFeatures(5),
        "alphas": [1.0],
        "gammas": [1.0],
        "cv": 3,
        "target_transform": "log",
    }.items():
        with pytest.raises(ValueError, match=f"{name} is decided by the plan"):
            KernelRidgeCV(plan=plan, **{name: value}).fit(X, np.exp(y))
    for name, value in {"features": NystromFeatures(5), "alpha": 1.0, "max_order": 2}.items():
        with pytest.raises(ValueError, match=f"{name} is decided by the plan"):
            KernelRidgeClassifier(plan=other, **{name: value}).fit(X, labels(y))


def test_a_plan_with_a_transform_is_for_one_target_that_has_it() -> None:
    X, y = table(200)
    plan = KernelRidgeCV(random_state=0, target_transform="log").fit(X, np.exp(y)).plan_
    higher = KernelRidgeCV(plan=plan, random_state=0).fit(X, 10.0 * np.exp(y))
    assert higher.target_transform_.high == pytest.approx(10.0 * np.exp(y).max())
    with pytest.raises(ValueError, match=r"learns log\(y\), a single target, and y has 2 columns"):
        KernelRidgeCV(plan=plan).fit(X, np.exp(np.column_stack([y, y])))
    with pytest.raises(ValueError, match=r"y reaches -.*must be at least 0"):
        KernelRidgeCV(plan=plan).fit(X, y)


@pytest.mark.parametrize("rule", ["groups", "order"])
def test_groups_and_times_of_few_rows_tell_nothing_to_each_other(rule: str) -> None:
    """Rows that come in equal pairs, or in a drift: each would predict its neighbours."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(100, 3)), 2, axis=0)
    y = np.repeat(rng.normal(size=100), 2)
    numbers = np.arange(200) // 2
    plan = KernelRidgeCV(random_state=0).fit(X, y).plan_
    alone = KernelRidgeCV(plan=plan, random_state=0).fit(X, y)
    kept = KernelRidgeCV(plan=plan, random_state=0).fit(X, y, **{rule: numbers})
    assert alone.best_rmse_ < 0.3
    assert kept.best_rmse_ > 0.8
    held = kept.plan_.report.held_out
    assert (np.diff(held.rows) > 0).all()
    np.testing.assert_array_equal(held.targets[:, 0], y[held.rows])


@pytest.mark.parametrize("rule", ["groups", "order"])
def test_groups_and_times_of_classes(rule: str) -> None:
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(100, 3)), 2, axis=0)
    y = np.repeat(rng.integers(2, size=100), 2)
    alone = KernelRidgeClassifier(random_state=0).fit(X, y)
    kept = KernelRidgeClassifier(random_state=0).fit(X, y, **{rule: np.arange(200) // 2})
    certain = [np.abs(model.predict_proba(X)[:, 1] - 0.5).mean() for model in (alone, kept)]
    assert certain[1] < 0.5 * certain[0]  # nothing can be known of other groups
    held = kept.plan_.report.held_out
    signs = np.where(y[held.rows] == 1, 1.0, -1.0)
    np.testing.assert_array_equal(held.targets[:, 0], signs)


def test_held_out_rows_have_no_part_in_their_predictions() -> None:
    X, y = table(1200)
    for options in (None, LARGE, replace(LARGE, full_work=0.0)):
        plan = chosen(X, y, options)
        before = executed(plan, X, y, options, correct=False).held
        assert len(before.rows) == 240
        spoiled = y.copy()
        spoiled[before.rows] += 50.0
        after = executed(plan, X, spoiled, options, correct=False).held
        # "apart" knows none of them; for exact solves "predicted" knows the others.
        if plan.solver.kind != "landmarks":
            np.testing.assert_allclose(after.apart, before.apart, atol=0.05)


def test_streams_are_fitted_as_arrays() -> None:
    X, y = table(400)

    def stream() -> BlockSource:
        return BlockSource([(X[:150], y[:150]), (X[150:], y[150:])])

    plan = replace(chosen(X, y), linear=True)
    model = KernelRidgeCV(plan=plan, random_state=0).fit(stream())
    assert (
        not model.plan_.linear
    )  # a line is for rows in memory, and is not told if it is not there
    assert model.linear_ is None
    again = KernelRidgeCV(plan=replace(plan, linear=False), random_state=0).fit(X, y)
    np.testing.assert_allclose(model.predict(X), again.predict(X), rtol=1e-6, atol=1e-8)
    learned = KernelRidgeCV(random_state=0).fit(stream())
    assert learned.best_rmse_ < 0.6 * y.std()
    counted = BlockSource([(X[:150], labels(y)[:150]), (X[150:], labels(y)[150:])])
    found = KernelRidgeClassifier(random_state=0).fit(counted)
    assert found.score(X, labels(y)) > 0.8


def test_a_plan_in_a_file_predicts_the_same(regression: Any, classes: Any, tmp_path: Any) -> None:
    X, y = table(200, seed=3)
    for model, targets in ((regression, y), (classes, labels(y))):
        save(model, tmp_path / "model.ks")
        known = load(tmp_path / "model.ks")
        np.testing.assert_array_equal(known.predict(X), model.predict(X))
        assert known.plan_.kernel == model.plan_.kernel
        assert str(known.plan_).split(";")[:2] == str(model.plan_).split(";")[:2]
        save(model.plan_, tmp_path / "plan.ks")
        plan = load(tmp_path / "plan.ks")
        kind = type(model)
        first, second = (
            kind(plan=each, random_state=0).fit(X, targets) for each in (model.plan_, plan)
        )
        np.testing.assert_array_equal(first.predict(X), second.predict(X))


def test_a_plan_with_a_line_in_a_file(tmp_path: Any) -> None:
    X, y = table(300)
    plan = replace(chosen(X, y), linear=True)
    model = KernelRidgeCV(plan=plan, random_state=0).fit(X, y)
    assert model.linear_ is not None
    assert str(model.plan_).startswith("linear part; ")
    assert model.best_rmse_ == pytest.approx(rmse(model, *table(1000, seed=1)), rel=0.3)
    save(model, tmp_path / "model.ks")
    known = load(tmp_path / "model.ks")
    np.testing.assert_array_equal(known.predict(X), model.predict(X))
    np.testing.assert_allclose(model.predictor()(X[0]), model.predict(X[:1])[0], rtol=1e-8)


def test_a_time_limit_fits_fewer_landmarks() -> None:
    X, y = table(1200)
    options = replace(LARGE, landmarks=400, full_work=0.0)
    plan = chosen(X, y, options)
    assert plan.solver == Solver("landmarks", 400)
    found = executed(plan, X, y, options, budget=Budget(1e-6))
    assert found.plan.solver.size == 100
    assert found.model.features_.n_components_ <= 100
    assert found.plan.correction is None
    assert np.isfinite(found.model.predict(X)).all()


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_any_number_of_threads(regression: Any, n_jobs: int) -> None:
    X, y = table(700, seed=3)
    one, many = (
        KernelRidgeCV(plan=regression.plan_, random_state=0, n_jobs=k).fit(X, y)
        for k in (1, n_jobs)
    )
    np.testing.assert_array_equal(one.predict(X), many.predict(X))


def test_a_correction_is_executed_on_other_rows() -> None:
    def bumps(n: int, seed: int) -> tuple[Any, Any]:
        X = np.random.default_rng(seed).uniform(-2.0, 2.0, size=(n, 2))
        return X, np.cos(X[:, 0]) + np.sign(np.sin(9.0 * X[:, 0]) * np.sin(9.0 * X[:, 1]))

    X, y = bumps(3000, 0)
    options = replace(LARGE, full_work=0.0)
    plan = chosen(X, y, options)
    first = executed(plan, X, y, options).plan
    assert first.correction is not None
    assert "nearest rows" in str(first)
    new, (other, targets) = bumps(1000, 7), bumps(3000, 1)
    kept, without = (
        executed(each.for_other_rows(), other, targets, options, correct=False).model
        for each in (first, replace(first, correction=None))
    )
    assert hasattr(kept, "local_")
    assert rmse(kept, *new) < 0.8 * rmse(without, *new)


def test_groups_of_a_judge_are_never_split_by_execution() -> None:
    X, y = table(1200)
    groups = np.arange(1200) // 10
    found = executed(chosen(X, y), X, y, judge=Judge(1200, 0, groups=groups))
    inside = set(groups[found.held.rows])
    assert not inside & set(groups[np.setdiff1d(np.arange(1200), found.held.rows)])
