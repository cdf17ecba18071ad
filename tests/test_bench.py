"""The comparison: the protocol is kept, and a killed run ends as an undisturbed one would."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import platform
import signal
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge
from sklearn.metrics import log_loss, roc_auc_score

from kernelsieve import FourierFeatures, datasets
from kernelsieve.bench import (
    METHODS,
    PAPER_METHODS,
    PEERS,
    Comparison,
    Plan,
    Settings,
    Store,
    machine,
    metrics,
    problem,
    quality,
    run,
    runner,
    scoreboard,
    worker,
)
from kernelsieve.bench import isolated as isolated_runs
from kernelsieve.bench import table as tables
from kernelsieve.bench.isolated import Limits, isolated
from kernelsieve.bench.methods import DEFAULT_METHODS, Method, find_method, transformer_of
from kernelsieve.bench.records import RecordError, Result, Setup, from_json, to_json
from kernelsieve.bench.schedule import BUILT_IN, LADDER, PlanError, schedule
from kernelsieve.bench.scoreboard import (
    Scoreboard,
    ScoreboardPlan,
    TableSpec,
    find_tables,
    load_table,
    run_scoreboard,
)
from kernelsieve.diagnostics import spectral_epsilon, statistical_dimension
from kernelsieve.kernels import Gaussian
from kernelsieve.tables.table import TableError, as_table

IN_PROCESS = tuple(name for name, method in METHODS.items() if method.requires is None)
SMALL = Plan(
    ("diabetes",), tuple(m for m in IN_PROCESS if m != "default"), n_components=(30, 60),
    n_seeds=2, n_threads=1,
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _quick_tuning() -> Iterator[None]:
    """One gamma and alpha for all: choosing them takes seconds, and has its own tests."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runner, "tuned", lambda *_: (0.02, 0.1))
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The results of SMALL."""
    results = Store(tmp_path_factory.mktemp("bench") / "results.jsonl")
    run(SMALL, results)
    return results


@pytest.fixture(scope="module")
def results(store: Store) -> list[Result]:
    return [record for record in store.records if isinstance(record, Result)]


@pytest.fixture
def empty(tmp_path: Path) -> Store:
    return Store(tmp_path / "results.jsonl")


def only(plan: Plan, store: Store) -> Comparison:
    (comparison,) = run(plan, store).comparisons
    return comparison


# --- the protocol -------------------------------------------------------------------------------


def test_every_method_runs_at_every_s_and_seed(results: list[Result]) -> None:
    done = Counter((r.method, r.n_components, r.seed) for r in results)
    expected = {
        (m, s, seed)
        for m in SMALL.methods
        for s in ((30, 60) if METHODS[m].has_features else (None,))
        for seed in ((0, 1) if METHODS[m].seeded else (0,))
    }
    assert done == Counter(expected)
    assert all(r.error is not None and np.isfinite(r.error) and r.failure is None for r in results)


def test_all_methods_get_the_same_rows_and_gamma(store: Store, results: list[Result]) -> None:
    assert len({r.conditions for r in results}) == 1
    (setup,) = (record for record in store.records if isinstance(record, Setup))
    assert (setup.n_train, setup.n_validation, setup.n_test, setup.n_inputs) == (266, 66, 110, 10)
    assert (setup.gamma, setup.alpha, setup.conditions) == (0.02, 0.1, results[0].conditions)
    assert setup.environment["numpy"] == np.__version__


def test_epsilon_and_memory_are_measured_at_the_first_seed_alone(results: list[Result]) -> None:
    for result in results:
        method = METHODS[result.method]
        assert (result.epsilon is not None) == (method.gaussian and result.seed == 0)
        if result.seed > 0:
            assert result.peak_bytes is None


def test_methods_and_seeds_take_turns_in_shuffled_order() -> None:
    plan = dataclasses.replace(SMALL, methods=PAPER_METHODS, n_components=(125, 250), n_seeds=5)
    cells = runner.shuffled(schedule(plan).cells["diabetes"])
    first, second = cells[:25], cells[25:]
    assert {cell.n_components for cell in first} == {125}
    assert len(set(first)) == 25
    methods = [cell.method for cell in first]
    assert [cell.method for cell in second] != methods
    # Neither all of a method nor all of a seed comes in one piece.
    assert sum(a != b for a, b in pairwise(methods)) > 10
    seeds = [cell.seed for cell in first]
    assert sum(a != b for a, b in pairwise(seeds)) > 10


def test_warm_up_comes_before_the_first_fit_and_is_not_counted(
    empty: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits: list[int] = []

    class Spy(Ridge):
        def fit(self, X: Any, y: Any) -> Any:
            fits.append(len(y))
            return super().fit(X, y)

    spy = Method("spy", "Spy", "counts", lambda settings: Spy(), lambda n, d, s: 0.0, seeded=True)
    monkeypatch.setitem(METHODS, "spy", spy)
    run(dataclasses.replace(SMALL, methods=("spy",), n_seeds=3), empty)
    assert fits == [worker.WARM_UP_ROWS, 266, 266, 266]
    assert len([r for r in empty.records if isinstance(r, Result)]) == 3


def test_scaling_never_sees_the_test_rows() -> None:
    data = datasets.load("diabetes")
    honest = problem.from_dataset(data)
    assert np.allclose(honest.train.X.mean(axis=0), 0, atol=1e-12)
    is_test = np.isin(data.y, honest.test.y) & ~np.isin(data.y, honest.train.y)
    spoilt = dataclasses.replace(
        data,
        X=np.where(is_test[:, None], 1e6, data.X),
        y=np.where(is_test, -1e6, data.y),
    )
    tampered = problem.from_dataset(spoilt)
    np.testing.assert_array_equal(tampered.train.X, honest.train.X)
    np.testing.assert_array_equal(tampered.train.y, honest.train.y)
    assert np.abs(tampered.test.X).max() == problem.CLIP


def test_scaling_keeps_sparse_data_sparse() -> None:
    onehot, _ = datasets.make_onehot(200)
    assert abs(problem.scaler_for(onehot).fit_transform(onehot) - onehot).sum() == 0
    counts = sp.csr_array(np.random.default_rng(0).poisson(0.3, size=(100, 40)).astype(float))
    scaled = problem.scaler_for(counts).fit_transform(counts)
    assert scaled.nnz == counts.nnz
    assert np.allclose(np.sqrt(scaled.multiply(scaled).sum(axis=1)), 1)


def test_large_data_are_float32_for_everybody() -> None:
    X, y = datasets.make_friedman(5 * problem.FLOAT32_ROWS // 3 + 4)
    data = dataclasses.replace(datasets.load("friedman"), X=X, y=y)
    assert problem.from_dataset(data).train.X.dtype == np.float32
    assert problem.from_dataset(datasets.load("friedman")).train.X.dtype == np.float64


def test_chosen_gamma_is_near_the_best_for_the_exact_kernel() -> None:
    """The choice is made on landmarks: it has to serve the kernel itself."""
    ready = problem.from_dataset(datasets.load("friedman"))
    gamma, alpha = problem.tuned(ready.train.X, ready.train.y, "regression", 1)

    def exact_error(gamma: float) -> float:
        model = METHODS["exact"].build(Settings(0, gamma, alpha))
        predicted = model.fit(ready.train.X, ready.train.y).predict(ready.test.X)
        return float(np.sqrt(np.mean((predicted - ready.test.y) ** 2)))

    assert exact_error(gamma) < min(exact_error(gamma / 8), exact_error(gamma * 8))


@pytest.mark.parametrize(
    "methods", [DEFAULT_METHODS, pytest.param(SMALL.methods, marks=pytest.mark.slow)]
)
def test_sparse_data_go_through_every_method(empty: Store, methods: tuple[str, ...]) -> None:
    plan = Plan(("onehot",), methods, n_components=(20,), n_seeds=1, n_threads=1)
    assert only(plan, empty).methods == list(methods)


def test_classes_go_through_every_default_method(empty: Store) -> None:
    plan = Plan(("breast_cancer",), DEFAULT_METHODS, (40,), n_seeds=1, n_threads=1)
    comparison = only(plan, empty)
    assert comparison.methods == list(DEFAULT_METHODS)
    assert comparison.setup.metric == "auc_loss"
    for row in comparison.rows:
        assert row.scores["accuracy"] > 0.85
        assert row.error == pytest.approx(row.scores["auc_loss"])


def test_two_runs_give_the_same_errors_to_the_last_digit(store: Store, empty: Store) -> None:
    run(dataclasses.replace(SMALL, methods=PAPER_METHODS), empty)
    first = {(r.method, r.n_components, r.seed): r.error for r in store.select(Result, key(store))}
    again = [r for r in empty.records if isinstance(r, Result)]
    assert len(again) == 20
    assert all(first[r.method, r.n_components, r.seed] == r.error for r in again)


def key(store: Store) -> str:
    return store.records[0].conditions


def test_a_method_that_raises_is_a_line_and_the_rest_completes(
    empty: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(settings: Settings) -> Any:
        raise ValueError(f"s={settings.n_components} is not for me")

    broken = Method("broken", "Broken", "raises", refuse, lambda n, d, s: 0.0, has_features=True)
    monkeypatch.setitem(METHODS, "broken", broken)
    comparison = only(dataclasses.replace(SMALL, methods=("broken", "linear")), empty)
    assert comparison.methods == ["linear"]
    assert {f.failure for f in comparison.failures} == {
        "ValueError: s=30 is not for me", "ValueError: s=60 is not for me",
    }  # fmt: skip


# --- which fits: the ladder and the budget --------------------------------------------------------


def test_the_first_command_has_the_whole_ladder_for_every_method() -> None:
    planned = schedule(Plan(budget_minutes=1.0))
    assert not planned.left_out
    assert tuple(planned.cells) == BUILT_IN
    for cells in planned.cells.values():
        for method in DEFAULT_METHODS:
            sizes = {c.n_components for c in cells if c.method == method}
            ladder = {125, 250, 500, 1000} if METHODS[method].has_features else {None}
            assert sizes == ladder


def test_a_budget_leaves_out_the_dearest_sizes_then_datasets_and_says_so() -> None:
    plan = Plan(("wine", "year"), ("fourier", "adaptive"), n_seeds=3)
    free, half, little = (
        schedule(dataclasses.replace(plan, budget_minutes=b)) for b in (None, 20.0, 0.05)
    )
    assert not free.left_out
    assert {c.n_components for c in free.cells["year"]} == set(LADDER)
    assert half.seconds <= 20 * 60 < free.seconds
    assert {c.n_components for c in half.cells["wine"]} == {s for s in LADDER if s <= 3898}
    assert max(c.n_components or 0 for c in half.cells["year"]) < 4000
    assert "Left out to stay within 20 min: s = " in half.left_out[0]
    assert list(little.cells) == ["wine"]
    assert "year" in little.left_out[0]


def test_exact_is_left_out_where_it_is_too_large() -> None:
    plan = Plan(("diabetes", "wine", "insurance"), ("linear", "exact"))
    assert schedule(plan).left_out == [
        "Exact is left out on insurance: 5,893 training rows, and its limit is 5,000."
    ]


def shaped(errors: dict[int, tuple[float, float]]) -> Any:
    """A method whose validation and test errors on friedman at s are given."""
    rows = problem.from_dataset(datasets.load("friedman"))

    class Shaped(Ridge):
        def __init__(self, n_components: int = 0) -> None:
            super().__init__()
            self.n_components = n_components

        def fit(self, X: Any, y: Any) -> Any:
            return self

        def predict(self, X: Any) -> Any:
            part = rows.validation if len(X) == len(rows.validation) else rows.test
            validation, test = errors.get(self.n_components, (0.0, 0.0))
            return part.y[: len(X)] + (validation if part is rows.validation else test)

    return lambda settings: Shaped(settings.n_components)


@pytest.mark.parametrize(
    ("validation", "chosen"),
    [([5.0, 4.99, 4.98, 4.97], 125), ([5.0, 4.0, 3.99, 3.98], 250), ([5.0, 4.0, 3.0, 2.0], 1000)],
)
def test_s_is_chosen_on_validation_rows_and_judged_on_test_rows(
    empty: Store, monkeypatch: pytest.MonkeyPatch, validation: list[float], chosen: int
) -> None:
    test = [1.0, 9.0, 9.0, 9.0] if chosen != 125 else [9.0, 1.0, 1.0, 1.0]
    table = dict(zip(LADDER, zip(validation, test, strict=True), strict=False))
    fake = Method("fake", "Fake", "given errors", shaped(table), lambda n, d, s: 0.0, True)
    monkeypatch.setitem(METHODS, "fake", fake)
    comparison = only(Plan(("friedman",), ("fake",), n_seeds=1, n_threads=1), empty)
    row = comparison.chosen("fake")
    assert row is not None
    assert (row.n_components, row.error) == (chosen, pytest.approx(9.0))
    assert comparison.still_falling("fake") == (chosen == 1000)


# --- killed and restarted -----------------------------------------------------------------------


def errors_of(comparison: Comparison) -> list[tuple[Any, ...]]:
    return [(r.method, r.n_components, r.error, r.spread) for r in comparison.rows]


KILLED = Plan(
    ("diabetes",), ("fourier", "row-norm"), n_components=(125, 250), n_seeds=3, n_threads=1
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return only(KILLED, Store(tmp_path_factory.mktemp("whole") / "results.jsonl"))


@pytest.mark.parametrize("stop_after", [0, 3, 8, 17])
def test_killed_and_restarted_gives_the_same_table(
    tmp_path: Path, undisturbed: Comparison, stop_after: int
) -> None:
    plan = KILLED

    class Killed(BaseException):
        pass

    steps = 0

    def kill(step: str, done: int, total: int) -> None:
        nonlocal steps
        steps += 1
        if steps > stop_after:
            raise Killed

    path = tmp_path / "results.jsonl"
    try:
        run(plan, Store(path), kill)
    except Killed:
        with path.open("a") as file:  # it was writing a line when the power went
            file.write('{"kind": "run", "data')
    kept = len(Store(path).records)
    resumed = only(plan, Store(path))
    assert errors_of(resumed) == errors_of(undisturbed)
    records = [r for r in Store(path).records if isinstance(r, Result)]
    assert len(records) == len({(r.method, r.n_components, r.seed) for r in records}) == 12
    assert kept == max(0, min(stop_after - 2, 13))  # two steps of warming up


def test_nothing_is_measured_twice(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner._Race, "_measure", lambda *_: pytest.fail("measured again"))
    before = len(store.records)
    run(SMALL, store)
    assert len(store.records) == before


@pytest.mark.parametrize("changes", [{"n_threads": 2}, {"datasets": ("breast_cancer",)}])
def test_other_conditions_are_measured_anew(
    store: Store, tmp_path: Path, changes: dict[str, Any]
) -> None:
    copy = tmp_path / "results.jsonl"
    copy.write_bytes(store.path.read_bytes())
    other = Store(copy)
    plan = dataclasses.replace(SMALL, methods=("linear",), n_seeds=1, **changes)
    comparison = only(plan, other)
    assert len(other.records) == len(store.records) + 2  # a set-up and a fit
    assert comparison.rows[0].n_seeds == 1


def test_more_seeds_add_to_what_is_there(store: Store, tmp_path: Path) -> None:
    copy = tmp_path / "results.jsonl"
    copy.write_bytes(store.path.read_bytes())
    plan = dataclasses.replace(SMALL, methods=("fourier",), n_seeds=3)
    comparison = only(plan, Store(copy))
    assert [row.n_seeds for row in comparison.rows] == [3, 3]
    assert len(Store(copy).records) == len(store.records) + 2
    # And fewer seeds use only theirs.
    one = only(dataclasses.replace(plan, n_seeds=1), Store(copy))
    assert [row.n_seeds for row in one.rows] == [1, 1]


def test_records_survive_json(store: Store) -> None:
    for record in store.records:
        assert from_json(to_json(record)) == record
        assert "\n" not in to_json(record)


@pytest.mark.parametrize("line", ["{}", "nonsense", '{"kind": "run"}', "[1]"])
def test_a_foreign_file_is_refused_with_its_line(tmp_path: Path, store: Store, line: str) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(to_json(store.records[0]) + "\n" + line + "\n")
    with pytest.raises(RecordError, match=r"results\.jsonl, line 2 .*--fresh"):
        Store(path)


# --- quality and machine --------------------------------------------------------------------------


def test_epsilon_and_spectrum_are_those_of_the_diagnostics() -> None:
    X = problem.from_dataset(datasets.load("diabetes")).train.X
    sample = quality.take_sample(X, 0.05, 0.5)
    assert sample.K.shape == (266, 266)  # all of them
    features = FourierFeatures(50, gamma=0.05, random_state=0).fit(X)
    K = Gaussian(0.05)(sample.rows)
    assert sample.epsilon(features) == pytest.approx(
        float(spectral_epsilon(K, features.transform(sample.rows), 0.5))
    )
    found = sample.spectrum()
    assert found.statistical_dimension == pytest.approx(
        statistical_dimension(Gaussian(0.05)(X), 0.5)
    )
    assert found.places[0] == 1
    assert found.values[0] == pytest.approx(np.linalg.eigvalsh(K)[-1], rel=1e-3)


def test_alpha_is_scaled_to_the_sample() -> None:
    X, _ = datasets.make_friedman(3000)
    sample = quality.take_sample(X, 0.05, 3.0)
    assert (sample.alpha, sample.share) == pytest.approx((0.6, 0.2))
    # Eigenvalues are those of all rows: their sum is the trace, n.
    assert quality.take_sample(X, 1e-6, 3.0).spectrum().values[0] == pytest.approx(3000, rel=0.01)


def test_peak_memory_is_that_of_the_block() -> None:
    with machine.watch_memory() as memory:
        block = np.ones(40_000_000)
        block[0] = 2.0
        del block
    if memory.peak_bytes is None:
        pytest.skip("this system does not tell")
    assert 0.9 * 320e6 < memory.peak_bytes < 1.3 * 320e6
    with machine.watch_memory() as little:
        np.ones(1000)
    assert little.peak_bytes is not None
    assert little.peak_bytes < 20e6


# --- methods and plans ----------------------------------------------------------------------------


def test_exact_is_the_limit_of_the_methods_with_features() -> None:
    """With every training point a landmark, Nystroem is the exact kernel: same predictions."""
    X, y = datasets.make_friedman(120, seed=2)
    X, y, X_test = X[:90], y[:90] + 50.0, X[90:]
    settings = Settings(n_components=90, gamma=0.5, alpha=0.1)
    exact = METHODS["exact"].build(settings).fit(X, y).predict(X_test)
    nystroem = METHODS["sklearn-nystroem"].build(settings).fit(X, y).predict(X_test)
    np.testing.assert_allclose(exact, nystroem, rtol=1e-6)
    fourier = METHODS["fourier"].build(dataclasses.replace(settings, n_components=2_000))
    difference = exact - fourier.fit(X, y).predict(X_test)
    assert np.std(difference) < 0.1 * np.std(exact)


def test_polynomial_sketches_stand_for_the_same_kernel() -> None:
    """TensorSketch, ours and scikit-learn's: (2 gamma <x, y> / 3 + 1)^3."""
    X, y = datasets.make_friedman(60)
    settings = Settings(n_components=20_000, gamma=0.1, alpha=1.0)
    exact = (2 * 0.1 / 3 * (X @ X.T) + 1) ** 3
    for name in ("tensor-sketch", "sklearn-polynomialcountsketch"):
        model = METHODS[name].build(settings).fit(X, y)
        Z = transformer_of(model).transform(X)
        # Standard deviation of an entry is below 3 |k(x, x)| / sqrt(s) for degree 3.
        assert np.abs(Z @ Z.T - exact).max() < 5 * 3 * exact.max() / math.sqrt(20_000)


def test_every_method_has_a_short_label_and_a_description() -> None:
    assert len({method.label for method in METHODS.values()}) == len(METHODS)
    for name, method in METHODS.items():
        assert method.name == name
        assert method.description
        assert len(method.label) <= 12  # four datasets beside it fit 80 columns


def test_errors_of_classes_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    for n_classes in (2, 3):
        y = rng.integers(n_classes, size=200)
        chances = rng.dirichlet(np.ones(n_classes), size=200).round(1) + 1e-3
        chances /= chances.sum(axis=1, keepdims=True)
        found = metrics.errors(chances, y, n_classes)
        assert found["log_loss"] == pytest.approx(log_loss(y, chances))
        areas = [roc_auc_score(y == c, chances[:, c]) for c in range(n_classes)]
        assert found["auc_loss"] == pytest.approx(1 - np.mean(areas))
        assert found["accuracy"] == np.mean(chances.argmax(axis=1) == y)
    with pytest.raises(ValueError, match="not finite"):
        metrics.errors(np.array([1.0, np.nan]), np.array([1.0, 2.0]), 0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"datasets": ("nowhere",)}, "unknown dataset 'nowhere'"),
        ({"methods": ("forier",)}, "did you mean 'fourier'"),
        ({"n_components": (0,)}, "features=0 must be >= 1"),
        ({"n_seeds": 0}, "seeds=0 must be >= 1"),
        ({"n_threads": 0}, "threads=0 must be >= 1"),
        ({"budget_minutes": -1.0}, "budget=-1.0 must be finite and > 0"),
        ({"methods": ()}, "nothing to compare"),
        ({"target": "price"}, "--target and --drop are for files of your own"),
    ],
)
def test_bad_plans_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        Plan(**changes)


def test_missing_files_are_noticed_before_any_work(
    tmp_path: Path, empty: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KERNELSIEVE_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"imdb\.npz"):
        run(Plan(("diabetes", "imdb"), folder=tmp_path), empty)
    assert not empty.path.exists()


def test_progress_counts_all_fits(empty: Store) -> None:
    steps: list[tuple[str, int, int]] = []
    plan = dataclasses.replace(SMALL, methods=("linear", "fourier"), n_seeds=1)
    run(plan, empty, lambda *step: steps.append(step))
    assert ("diabetes: choosing gamma and alpha", 0, 3) in steps
    assert [step[1:] for step in steps[-3:]] == [(0, 3), (1, 3), (2, 3)]
    assert "diabetes: fourier, s=60, seed 0" in [step[0] for step in steps]


def test_the_times_of_a_run_add_up(empty: Store) -> None:
    found = run(dataclasses.replace(SMALL, methods=("fourier",)), empty)
    fits = [r for r in empty.records if isinstance(r, Result)]
    assert found.fit_seconds == pytest.approx(
        sum((r.fit_seconds or 0) + (r.predict_seconds or 0) for r in fits)
    )
    assert found.fit_seconds < found.seconds


def test_results_are_plain_json(store: Store) -> None:
    for line in store.path.read_text().splitlines():
        assert json.loads(line)["kind"] in {"setup", "run"}


# --- files of one's own ---------------------------------------------------------------------------

TEXT = "\n".join(
    ["size,town,sold,price"]
    + [
        f"{i if i % 7 else ''},{('Ulm', 'Bonn', '')[i % 3]},201{i % 9}-01-0{1 + i % 9},{2 * i}"
        for i in range(60)
    ]
)


@pytest.fixture
def flats(tmp_path: Path) -> Path:
    path = tmp_path / "flats.csv"
    path.write_text(TEXT + "\n")
    return path


def test_own_tables_have_texts_dates_and_missing_values(flats: Path, empty: Store) -> None:
    plan = Plan(
        (str(flats),), ("linear", "boosting", "fourier"), (40,), n_seeds=1, n_threads=1,
        target="price",
    )  # fmt: skip
    comparison = only(plan, empty)
    assert comparison.methods == ["linear", "boosting", "fourier"]
    assert (comparison.setup.dataset, comparison.setup.n_train) == ("flats", 36)


def test_trees_get_columns_as_they_come(flats: Path) -> None:
    ready = problem.from_file(flats, "price", drop=["sold"])
    assert ready.categorical == (1,)
    size, town = ready.train.columns.T
    assert np.isnan(size).sum() + np.isnan(ready.test.columns[:, 0]).sum() > 0
    assert set(town[~np.isnan(town)]) == {0.0, 1.0}
    assert np.isfinite(ready.train.X).all()


def test_a_text_target_makes_classes(flats: Path) -> None:
    ready = problem.from_file(flats, "town")
    assert (ready.task, ready.n_classes) == ("classification", 2)
    assert set(np.concatenate([ready.train.y, ready.test.y])) == {0, 1}


@pytest.mark.parametrize(
    ("target", "reason"), [(None, "name the column to predict"), ("prize", "no column 'prize'")]
)
def test_wrong_targets_are_refused(flats: Path, target: str | None, reason: str) -> None:
    with pytest.raises(TableError, match=reason):
        problem.from_file(flats, target)


# --- peers: in processes of their own -------------------------------------------------------------

FAKES = """
import os, signal, time
from sklearn.linear_model import Ridge

class Raises(Ridge):
    def fit(self, X, y):
        raise RuntimeError("no luck today")

class Killed(Ridge):
    def fit(self, X, y):
        os.kill(os.getpid(), signal.SIGKILL)

class Sleeps(Ridge):
    def fit(self, X, y):
        time.sleep(600)

class Spins(Ridge):
    def fit(self, X, y):
        while True: pass

class Greedy(Ridge):
    def fit(self, X, y):
        self.hoard = bytearray(2**30)
        self.hoard[::4096] = bytes(len(self.hoard[::4096]))
        time.sleep(600)

def build(kind):
    return lambda settings: kind()

def raises(settings): return Raises()
def killed(settings): return Killed()
def sleeps(settings): return Sleeps()
def spins(settings): return Spins()
def greedy(settings): return Greedy()
def fine(settings): return Ridge()
"""
OUTCOMES = {
    "raises": "RuntimeError: no luck today",
    "killed": "killed by SIGKILL, perhaps by the system for lack of memory",
    "sleeps": "stopped: it did nothing for 2 s",
    "missing": "not installed: pip install no_such_package",
}


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of peers that misbehave, and their methods."""
    (tmp_path / "fake_peers.py").write_text(FAKES)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("fake_peers")
    importlib.reload(module)
    for name in ("raises", "killed", "sleeps", "spins", "greedy", "fine", "missing"):
        build = getattr(module, name, module.fine)
        requires = "no_such_package" if name == "missing" else "fake_peers"
        row = Method(name, name.title(), "a fake", build, lambda n, d, s: 0.0, requires=requires)
        monkeypatch.setitem(METHODS, name, row)
    return module


def test_peers_that_misbehave_are_lines_and_the_rest_completes(fakes: Any, empty: Store) -> None:
    names = (*OUTCOMES, "fine", "linear")
    plan = Plan(("diabetes",), names, n_threads=1, limits=Limits(seconds=2.0))
    comparison = only(plan, empty)
    assert comparison.methods == ["fine", "linear"]
    assert {f.method: f.failure for f in comparison.failures} == OUTCOMES
    text = tables.markdown([comparison])
    for label in ("Raises", "Killed", "Sleeps"):
        assert f"| **{label}** | failed |" in text
    assert "| **Missing** | not installed |" in text
    kept = {record.method for record in empty.records if isinstance(record, Result)}
    assert kept == {*names} - {"missing"}  # it is tried again when it is installed
    fine, linear = comparison.rows
    assert fine.error == pytest.approx(linear.error, rel=1e-9)


def test_time_and_memory_of_a_peer_are_limited(fakes: Any) -> None:
    ready = problem.from_dataset(datasets.load("diabetes"))
    settings = Settings(0, 1.0, 1.0)
    with isolated(Limits(seconds=2.0, n_bytes=2**62), 1) as place:
        place.load(ready)
        assert place.run(METHODS["spins"], settings) == {"failure": "stopped after 2 s"}
    with isolated(Limits(seconds=60.0, n_bytes=2**30), 1) as place:
        place.load(ready)
        assert place.run(METHODS["greedy"], settings) == {"failure": "stopped at 1 GiB of memory"}
        assert "error" in place.run(METHODS["fine"], settings)
        folder = place.folder
    assert not folder.exists()


def test_the_limit_counts_neither_imports_nor_earlier_fits(fakes: Any) -> None:
    with isolated(Limits(seconds=0.8), 1) as place:  # imports alone take longer
        place.load(problem.from_dataset(datasets.load("diabetes")))
        first, again = (place.run(METHODS["fine"], Settings(0, 1.0, 1.0)) for _ in range(2))
        assert again["error"] == first["error"]


# --- the scoreboard -------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two tables of arrays with given splits, one of texts, and something else."""
    place = tmp_path / "tables"
    place.mkdir()
    rng = np.random.default_rng(0)
    for name, noise in (("quiet", 0.01), ("noisy", 1.0)):
        X = rng.standard_normal((120, 3))
        mask = np.zeros((120, 2), dtype=bool)
        mask[:20, 0] = mask[20:40, 1] = True
        np.savez(place / f"{name}.npz", X=X, y=X[:, 0] + noise * X[:, 1] ** 2, test_mask=mask)
    (place / "flats.csv").write_text(TEXT + "\n")
    (place / "README.md").write_text("not a table")
    return place


def test_tables_are_found_and_those_without_a_target_are_named(folder: Path) -> None:
    specs, notes = find_tables([str(folder), "wine"], {})
    assert [spec.name for spec in specs] == ["noisy", "quiet", "wine"]
    assert notes == ["flats.csv is left out: say what to predict, --target flats=COLUMN."]
    specs, notes = find_tables([str(folder)], {"flats": "price"}, ["sold"])
    assert (len(specs), notes) == (3, [])


def test_the_scoreboard_uses_the_given_splits(folder: Path) -> None:
    specs, _ = find_tables([str(folder / "quiet.npz")], {})
    plan = ScoreboardPlan(tuple(specs), ("linear",), n_threads=1)
    with np.load(folder / "quiet.npz") as arrays:
        for split, rows in enumerate((slice(0, 20), slice(20, 40))):
            ready = load_table(specs[0], plan, split)
            np.testing.assert_array_equal(ready.test.y, arrays["y"][rows])
            assert len(ready.train) == 100
    with pytest.raises(PlanError, match="2 splits"):
        load_table(specs[0], plan, 2)
    few = load_table(specs[0], dataclasses.replace(plan, max_rows=60), 0)
    assert few.n_rows == 60


def test_a_scoreboard_survives_its_peers_and_resumes(
    fakes: Any, folder: Path, empty: Store
) -> None:
    specs, _ = find_tables([str(folder)], {"flats": "price"})
    plan = ScoreboardPlan(tuple(specs), ("linear", "raises", "missing", "boosting"), n_threads=1)
    board = run_scoreboard(plan, empty)
    assert board.tables == ["flats", "noisy", "quiet"]
    assert board.failure("quiet", "raises") == OUTCOMES["raises"]
    assert board.failure("quiet", "missing") == OUTCOMES["missing"]
    lines = {line.method: line for line in board.lines()}
    assert (lines["raises"].rank, lines["raises"].failures, lines["raises"].wins) == (3.5, 3, 0.0)
    assert lines["linear"].rank + lines["boosting"].rank == 3.0
    written = len(empty.records)
    steps: list[str] = []
    again = run_scoreboard(plan, Store(empty.path), lambda step, *_: steps.append(step))
    assert again.lines() == board.lines()
    assert len(Store(empty.path).records) == written


def board_of(errors: dict[str, list[float | None]]) -> Scoreboard:
    """A scoreboard with the given errors on tables 0, 1, ..."""
    n_tables = len(next(iter(errors.values())))
    setups = [
        Setup(f"t{i}", "c", "regression", "rmse", 1, 0, 1, 1, 0, 0, "f", 1, 0, [], [], 0, {})
        for i in range(n_tables)
    ]
    results = [
        Result(f"t{i}", "c", m, None, 0, None if e else "broke", e, processor_seconds=2.0)
        for m, row in errors.items()
        for i, e in enumerate(row)
    ]
    return Scoreboard(setups, list(errors), results)


def test_ranks_wins_and_normalised_errors_by_hand() -> None:
    board = board_of(
        {"linear": [4.0, 2.0], "boosting": [2.0, 2.0], "fourier": [1.0, None], "exact": [3.0, 1.0]}
    )
    np.testing.assert_array_equal(board.ranks(), [[4, 2, 1, 3], [2.5, 2.5, 4, 1]])
    best, *_ = lines = board.lines()
    found = {line.method: line for line in lines}
    assert best.method == "exact"
    assert (found["exact"].rank, found["exact"].wins, found["exact"].failures) == (2.0, 0.5, 0)
    # Medians of the known errors: 2.5 and 2. fourier: 0 and 1; boosting: 1 / 1.5 and 1.
    assert found["fourier"].normalised == pytest.approx(0.5)
    assert found["boosting"].normalised == pytest.approx((1 / 1.5 + 1) / 2)
    assert found["boosting"].behind_trees == pytest.approx(0.0)
    assert found["fourier"].behind_trees == pytest.approx(0.5 - 1)  # the table that it has
    assert found["linear"].behind_trees == pytest.approx(math.sqrt(2.0) - 1)
    assert found["linear"].seconds == 4.0
    # Demsar (2006), Table 5: q = 2.569 for four methods.
    assert board.critical_difference == pytest.approx(2.569 * math.sqrt(4 * 5 / 12), rel=1e-3)


def test_peers_are_known_by_their_package() -> None:
    packages = {METHODS[name].requires for name in PEERS} - {None}
    assert packages == {"lightgbm", "interpret", "xrfm", "xGPR"}


# --- what systems and datasets do not tell -------------------------------------------------------


def test_one_class_alone_has_half_the_area() -> None:
    scores = np.array([0.1, 0.4, 0.8])
    assert metrics.area_under_curve(scores, np.ones(3, dtype=bool)) == 0.5
    assert metrics.area_under_curve(scores, np.zeros(3, dtype=bool)) == 0.5


def test_a_system_that_does_not_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("VmRSS:  12 kB\n")
    monkeypatch.setattr(machine, "STATUS", status)
    assert machine._status("VmRSS") == 12 * 1024
    with pytest.raises(OSError, match="status does not tell VmHWM"):
        machine._status("VmHWM")
    monkeypatch.setattr(machine, "Path", lambda name: status)  # a processor without a name
    assert machine.processor() in (platform.processor(), platform.machine())


def test_why_a_process_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Traceback\n  ...\nMemoryError: too much\n\n")
    assert isolated_runs._why(1, log) == "ended with code 1: MemoryError: too much"
    log.write_text("")
    assert isolated_runs._why(3, log) == "ended with code 3: no message"
    assert "lack of memory" in isolated_runs._why(-signal.SIGKILL, log)
    monkeypatch.setattr(isolated_runs, "PROC", tmp_path)
    assert isolated_runs._usage(1) is None


def test_a_scoreboard_needs_dense_tables_and_methods() -> None:
    with pytest.raises(PlanError, match="nothing to compare: name a folder with tables, and meth"):
        ScoreboardPlan((), ("linear",))
    spec = TableSpec("diabetes", "diabetes")
    plan = ScoreboardPlan((spec,), ("linear",))
    loaded = load_table(spec, plan, 0)
    assert len(loaded.train) + len(loaded.test) == 442
    method = dataclasses.replace(find_method("linear"), max_rows=100)
    (why,) = scoreboard._excuse(method, loaded).values()
    assert why == f"{len(loaded.train):,} training rows, its limit is 100"
    assert scoreboard._excuse(find_method("linear"), loaded) is None
    with pytest.raises(PlanError, match="the scoreboard is for tables: sparse matrices are not"):
        scoreboard._from_arrays(sp.csr_array(np.eye(3)), np.ones(3), ["a", "b", "c"])


def test_texts_of_many_kinds_and_sparse_columns_as_they_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(problem, "MOST_CODES", 3)
    texts = {"few": [*"abab"], "many": [*"pqrs"]}
    table = as_table({name: np.array(values, dtype=object) for name, values in texts.items()})
    X, categorical = problem._as_they_come(table, ["few", "many"], np.arange(4))
    assert categorical == (0,)
    np.testing.assert_array_equal(X, [[0, 0], [1, 1], [0, 2], [1, 3]])
    sparse = dataclasses.replace(table, matrix=sp.csr_array(np.eye(4)))
    X, _ = problem._as_they_come(sparse, ["few"], np.arange(4))
    np.testing.assert_array_equal(X, np.column_stack([[0, 1, 0, 1], np.eye(4)]))


def test_one_size_of_one_dataset_is_measured_whatever_it_takes() -> None:
    found = schedule(Plan(("year",), ("fourier",), n_components=(4000,), budget_minutes=1e-6))
    assert {cell.n_components for cell in found.cells["year"]} == {4000}
    assert found.left_out == []
