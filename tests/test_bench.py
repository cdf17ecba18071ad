"""The comparison: the protocol is kept, and a killed run ends as an undisturbed one would."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge

from kernelsieve import FourierFeatures, datasets
from kernelsieve.bench import (
    METHODS,
    PAPER_METHODS,
    Comparison,
    Plan,
    Settings,
    Store,
    machine,
    problem,
    quality,
    run,
    runner,
)
from kernelsieve.bench.methods import Method, transformer_of
from kernelsieve.bench.own_files import read_dataset
from kernelsieve.bench.records import RecordError, Result, Setup, from_json, to_json
from kernelsieve.diagnostics import spectral_epsilon, statistical_dimension
from kernelsieve.kernels import Gaussian

SMALL = Plan(("diabetes",), tuple(METHODS), n_components=(30, 60), n_seeds=2, n_threads=1)


@pytest.fixture(scope="module", autouse=True)
def _quick_tuning() -> Iterator[None]:
    """One gamma and alpha for all: choosing them takes seconds, and has its own tests."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runner, "choose_gamma_alpha", lambda *_: (0.02, 0.1))
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


# --- the protocol -------------------------------------------------------------------------------


def test_every_method_runs_at_every_s_and_seed(results: list[Result]) -> None:
    done = Counter((r.method, r.n_components, r.seed) for r in results)
    expected = {
        (m.name, s, seed)
        for m in METHODS.values()
        for s in ((30, 60) if m.has_features else (None,))
        for seed in (0, 1)
    }
    assert done == Counter(expected)
    assert all(np.isfinite(r.error) and r.fit_seconds > 0 for r in results)


def test_all_methods_get_the_same_conditions(store: Store, results: list[Result]) -> None:
    assert len({(r.gamma, r.alpha, r.n_threads, r.conditions) for r in results}) == 1
    (setup,) = (record for record in store.records if isinstance(record, Setup))
    assert (setup.n_train, setup.n_test, setup.n_inputs) == (332, 110, 10)
    assert setup.conditions == results[0].conditions


def test_records_tell_versions_machine_and_quality(results: list[Result]) -> None:
    for result in results:
        assert result.environment["numpy"] == np.__version__
        assert result.environment["cores"] >= 1
        knows_epsilon = METHODS[result.method].has_features and METHODS[result.method].gaussian
        assert (result.epsilon is not None) == knows_epsilon


def test_methods_and_seeds_take_turns_in_shuffled_order(store: Store, empty: Store) -> None:
    race = runner.Race(dataclasses.replace(SMALL, n_seeds=5), datasets.load("diabetes"), empty)
    first, second = (race.cells(PAPER_METHODS, s, first=True) for s in (125, 250))
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

    spy = Method("spy", "Spy", "counts", lambda settings: Spy(), has_features=False)
    monkeypatch.setitem(METHODS, "spy", spy)
    run(dataclasses.replace(SMALL, methods=("spy",), n_seeds=3), empty)
    assert fits == [runner.WARM_UP_ROWS, 332, 332, 332]
    assert len([r for r in empty.records if isinstance(r, Result)]) == 3


def test_scaling_and_tuning_never_see_the_test_rows() -> None:
    data = datasets.load("diabetes")
    honest = problem.prepare(data)
    assert np.allclose(honest.X_train.mean(axis=0), 0, atol=1e-12)
    is_test = ~np.isin(data.y, honest.y_train)
    spoilt = dataclasses.replace(
        data,
        X=np.where(is_test[:, None], 1e6, data.X),
        y=np.where(is_test, -1e6, data.y),
    )
    tampered = problem.prepare(spoilt)
    np.testing.assert_array_equal(tampered.X_train, honest.X_train)
    np.testing.assert_array_equal(tampered.y_train, honest.y_train)
    assert np.abs(tampered.X_test).max() == problem.CLIP


def test_scaling_keeps_sparse_data_sparse() -> None:
    onehot, _ = datasets.make_onehot(200)
    assert abs(problem.scaler_for(onehot).fit_transform(onehot) - onehot).sum() == 0
    counts = sp.csr_array(np.random.default_rng(0).poisson(0.3, size=(100, 40)).astype(float))
    scaled = problem.scaler_for(counts).fit_transform(counts)
    assert scaled.nnz == counts.nnz
    assert np.allclose(np.sqrt(scaled.multiply(scaled).sum(axis=1)), 1)


def test_large_data_are_float32_for_everybody() -> None:
    X, y = datasets.make_friedman(4 * problem.FLOAT32_ROWS // 3 + 4)
    data = dataclasses.replace(datasets.load("friedman"), X=X, y=y)
    assert problem.prepare(data).X_train.dtype == np.float32
    assert problem.prepare(datasets.load("friedman")).X_train.dtype == np.float64


def test_chosen_gamma_is_near_the_best_for_the_exact_kernel() -> None:
    """The choice is made on Fourier features of a subsample: it has to serve the kernel itself."""
    ready = problem.prepare(datasets.load("friedman"))
    gamma, alpha = problem.choose_gamma_alpha(ready.X_train, ready.y_train, 1)

    def exact_error(gamma: float) -> float:
        model = METHODS["exact"].build(Settings(0, gamma, alpha))
        predicted = model.fit(ready.X_train, ready.y_train).predict(ready.X_test)
        return float(np.sqrt(np.mean((predicted - ready.y_test) ** 2)))

    assert exact_error(gamma) < min(exact_error(gamma / 8), exact_error(gamma * 8))


@pytest.mark.parametrize(
    "methods", [PAPER_METHODS, pytest.param(tuple(METHODS), marks=pytest.mark.slow)]
)
def test_sparse_data_go_through_every_method(empty: Store, methods: tuple[str, ...]) -> None:
    plan = Plan(("onehot",), methods, n_components=(20,), n_seeds=1, n_threads=1)
    (comparison,) = run(plan, empty)
    assert comparison.methods == list(methods)


def test_own_files_are_compared_like_the_others(tmp_path: Path, empty: Store) -> None:
    X, y = datasets.make_friedman(200)
    rows = (",".join(map(str, (*x, v))) for x, v in zip(X, y, strict=True))
    header = ",".join([*(f"x{i}" for i in range(10)), "y"])
    path = tmp_path / "mine.csv"
    path.write_text("\n".join([header, *rows]))
    plan = Plan((str(path),), ("linear", "fourier"), (40,), n_seeds=1, n_threads=1, target="y")
    (comparison,) = run(plan, empty)
    assert comparison.setup.dataset == "mine"
    assert (comparison.setup.n_train, comparison.setup.n_inputs) == (150, 10)


# --- growing s ----------------------------------------------------------------------------------


def shaped(errors: dict[int, float]) -> Any:
    """A method whose test error on friedman at s is given."""
    truth = problem.prepare(datasets.load("friedman")).y_test

    class Shaped(Ridge):
        def __init__(self, n_components: int = 0) -> None:
            super().__init__()
            self.n_components = n_components

        def fit(self, X: Any, y: Any) -> Any:
            return self

        def predict(self, X: Any) -> Any:
            return truth[: X.shape[0]] + errors.get(self.n_components, 0.0)

    return lambda settings: Shaped(settings.n_components)


def grown(empty: Store, monkeypatch: pytest.MonkeyPatch, errors: list[float]) -> Comparison:
    """The comparison of a method with these errors at s = 125, 250, ..."""
    table = dict(zip(runner.LADDER, errors, strict=False))
    monkeypatch.setitem(METHODS, "fake", Method("fake", "Fake", "given errors", shaped(table)))
    plan = Plan(("friedman",), ("fake",), n_seeds=1, n_threads=1)
    (comparison,) = run(plan, empty)
    return comparison


@pytest.mark.parametrize(
    ("errors", "last", "chosen", "reason"),
    [
        ([5.0, 4.99, 4.98, 1.0], 500, 125, "no gain"),  # two doublings for less than 1 %
        ([5.0, 5.1, 4.0, 3.0], 1000, 1000, "limit"),  # one bad step is forgiven
        ([5.0, 4.0, 3.99, 3.98], 1000, 250, "limit"),
        ([5.0, 4.0, 3.0, 2.0], 1000, 1000, "limit"),  # s never exceeds the rows
    ],
)
def test_s_grows_until_the_error_stops_improving(
    empty: Store,
    monkeypatch: pytest.MonkeyPatch,
    errors: list[float],
    last: int,
    chosen: int,
    reason: str,
) -> None:
    comparison = grown(empty, monkeypatch, errors)
    assert comparison.rows[-1].n_components == last
    assert comparison.stops[0].reason == reason
    row = comparison.chosen("fake")
    assert row is not None
    assert row.n_components == chosen
    assert comparison.cut_short("fake") == (chosen == last)


def test_budget_drops_the_slowest_and_a_resumed_run_does_the_same(
    empty: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = shaped({s: 1000.0 / s for s in runner.LADDER})
    for name in ("quick", "slow"):
        monkeypatch.setitem(METHODS, name, Method(name, name, "given errors", build))
    original = runner.Race._measure

    def measured(self: runner.Race, cell: runner.Cell) -> Result:
        result = original(self, cell)
        if cell.method != "slow":
            return result
        slow = dataclasses.replace(result, fit_seconds=10.0, seconds=10.0)
        self.store.records[-1] = slow
        return slow

    monkeypatch.setattr(runner.Race, "_measure", measured)
    plan = Plan(("friedman",), ("quick", "slow"), n_seeds=2, n_threads=1, budget_minutes=1.0)
    (comparison,) = run(plan, empty)
    reasons = {stop.method: (stop.n_components, stop.reason) for stop in comparison.stops}
    # 20 s at s = 125; 80 s expected at 250 are more than the 40 s left.
    assert reasons == {"quick": (1000, "limit"), "slow": (125, "budget")}
    assert comparison.cut_short("quick")
    assert comparison.cut_short("slow")
    (again,) = run(plan, empty)
    assert again == comparison


# --- killed and restarted -----------------------------------------------------------------------


def errors_of(comparison: Comparison) -> list[tuple[Any, ...]]:
    return [(r.method, r.n_components, r.error, r.spread) for r in comparison.rows]


KILLED = Plan(("diabetes",), ("fourier", "row-norm"), n_seeds=3, n_threads=1)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    (comparison,) = run(KILLED, Store(tmp_path_factory.mktemp("whole") / "results.jsonl"))
    return comparison


@pytest.mark.parametrize("stop_after", [0, 1, 8, 17])
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
    (resumed,) = run(plan, Store(path))
    assert errors_of(resumed) == errors_of(undisturbed)
    records = [r for r in Store(path).records if isinstance(r, Result)]
    assert len(records) == len({(r.method, r.n_components, r.seed) for r in records}) == 12
    assert kept == min(stop_after, 13)


def test_nothing_is_measured_twice(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner.Race, "_measure", lambda *_: pytest.fail("measured again"))
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
    (comparison,) = run(plan, other)
    assert len(other.records) == len(store.records) + 2  # a set-up and a fit
    assert comparison.rows[0].n_seeds == 1


def test_more_seeds_add_to_what_is_there(store: Store, tmp_path: Path) -> None:
    copy = tmp_path / "results.jsonl"
    copy.write_bytes(store.path.read_bytes())
    plan = dataclasses.replace(SMALL, methods=("fourier",), n_seeds=3)
    (comparison,) = run(plan, Store(copy))
    assert [row.n_seeds for row in comparison.rows] == [3, 3]
    assert len(Store(copy).records) == len(store.records) + 2
    # And fewer seeds use only theirs.
    (one,) = run(dataclasses.replace(plan, n_seeds=1), Store(copy))
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
    X = problem.prepare(datasets.load("diabetes")).X_train
    sample = quality.take_sample(X, 0.05, 0.5)
    assert sample.K.shape == (332, 332)  # all of them
    features = FourierFeatures(50, gamma=0.05, random_state=0).fit(X)
    K = Gaussian(0.05)(sample.rows)
    assert sample.epsilon(features) == pytest.approx(
        float(spectral_epsilon(K, features.transform(sample.rows), 0.5))
    )
    found = quality.spectrum_of(X, 0.05, 0.5)
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
    assert quality.spectrum_of(X, 1e-6, 3.0).values[0] == pytest.approx(3000, rel=0.01)


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


def test_exact_is_left_out_where_it_is_too_large(empty: Store) -> None:
    plan = Plan(("diabetes", "wine", "insurance"), ("linear", "exact"))
    assert runner.skipped(plan) == [
        "exact is left out on insurance: 7,366 training rows, its limit is 5,000"
    ]


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
    with pytest.raises(runner.PlanError, match=reason):
        Plan(**changes)


def test_missing_files_are_noticed_before_any_work(
    tmp_path: Path, empty: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KERNELSIEVE_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"imdb\.npz"):
        run(Plan(("diabetes", "imdb"), folder=tmp_path), empty)
    assert not empty.path.exists()


def test_progress_counts_fits_of_each_dataset(empty: Store) -> None:
    steps: list[tuple[str, int, int]] = []
    plan = dataclasses.replace(SMALL, methods=("linear", "fourier"), n_seeds=1)
    run(plan, empty, lambda *step: steps.append(step))
    assert steps[0] == ("diabetes: choosing gamma and alpha", 0, 3)
    assert [step[1:] for step in steps[1:]] == [(0, 3), (1, 3), (2, 3)]
    assert "diabetes: fourier, s=60, seed 0" in [step[0] for step in steps]


def test_results_are_plain_json(store: Store) -> None:
    for line in store.path.read_text().splitlines():
        assert json.loads(line)["kind"] in {"setup", "run"}


# --- files of one's own ---------------------------------------------------------------------------

ROWS = [f"{i},{'Ulm' if i % 3 else 'Bonn'},{2 * i + 1}" for i in range(24)]


def write(path: Path, *lines: str, header: str = "size,town,price") -> Path:
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("name", ["flats.csv", "flats.csv.gz"])
def test_csv(tmp_path: Path, delimiter: str, name: str) -> None:
    text = "\n".join(["size,town,price", *ROWS]).replace(",", delimiter)
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    data = read_dataset(path, target="price")
    assert data.name == "flats"
    assert data.feature_names == ("size", "town=Bonn", "town=Ulm")
    np.testing.assert_array_equal(data.X[:2], [[0, 1, 0], [1, 0, 1]])
    np.testing.assert_array_equal(data.y, 2 * np.arange(24) + 1)


def test_csv_columns_can_be_dropped(tmp_path: Path) -> None:
    data = read_dataset(write(tmp_path / "a.csv", *ROWS), "price", drop=["town"])
    assert data.feature_names == ("size",)


NAMES = [f"1,name {i},{i}" for i in range(60)]
SEVENS = [f"{i},Ulm,7" for i in range(24)]
WRONG_CSV = {
    "no target": (ROWS, None, "which column to predict with --target, one of size, town, price"),
    "missing column": (ROWS, "prize", "has no column 'prize': it has size, town, price"),
    "text target": (ROWS, "town", "the target 'town' is text .'Bonn' in row 1"),
    "nan": ([*ROWS, "nan,Ulm,3"], "price", "'size' has no value in 1 of 25 rows, first in row 25"),
    "empty target": ([*ROWS, "3,Ulm,"], "price", "column 'price' has no value in 1 of 25 rows"),
    "infinite": ([*ROWS, "inf,Ulm,3"], "price", "column 'size' is inf in row 25"),
    "ragged": ([*ROWS, "3,Ulm"], "price", "line 26: 2 values for the 3 columns"),
    "few rows": (ROWS[:5], "price", "has 5 rows, at least 20"),
    "constant": (SEVENS, "price", "the target 'price' is 7 everywhere"),
    "names": (NAMES, "price", "column 'town' has 60 different texts.*--drop town"),
}


@pytest.mark.parametrize(("rows", "target", "reason"), WRONG_CSV.values(), ids=WRONG_CSV)
def test_wrong_csv_is_refused_with_the_place(
    tmp_path: Path, rows: list[str], target: str, reason: str
) -> None:
    path = write(tmp_path / "flats.csv", *rows)
    with pytest.raises(datasets.DatasetError, match=reason) as caught:
        read_dataset(path, target)
    assert str(path) in str(caught.value)


def test_csv_with_equal_names_or_without_inputs_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", *ROWS, header="x,x,price")
    with pytest.raises(datasets.DatasetError, match="two columns 'x'"):
        read_dataset(path, "price")
    with pytest.raises(datasets.DatasetError, match="no column besides the target"):
        read_dataset(write(tmp_path / "b.csv", *ROWS), "price", drop=["size", "town"])


def test_binary_files_are_no_tables(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xff\xfe\x00\x01" * 50)
    with pytest.raises(datasets.DatasetError, match="is no table in UTF-8 text"):
        read_dataset(path, "y")
