"""The comparison: the protocol is kept, and what is printed is what was measured."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from rich.console import Console
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneOut, cross_val_predict

from kernelsieve import datasets
from kernelsieve.bench import METHODS, Plan, Result, Settings, plots, run, runner, summarise, table
from kernelsieve.bench.methods import Method

SMALL = Plan(("diabetes",), n_components=(30, 60), n_seeds=2)


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return list(run(SMALL))


def result(method: str = "fourier", s: int | None = 100, **changes: Any) -> Result:
    """A record, as if measured."""
    values = {
        "dataset": "wine", "method": method, "n_components": s, "seed": 0, "error": 0.7,
        "metric": "RMSE", "fit_seconds": 0.5, "predict_seconds": 0.1, "n_train": 4873,
        "n_test": 1624, "n_inputs": 11, "gamma": 0.09, "alpha": 1.0, "n_threads": 2,
    }  # fmt: skip
    return Result(**{**values, **changes})


# --- the protocol -------------------------------------------------------------------------------


def test_every_method_runs_at_every_s_and_seed(results: list[Result]) -> None:
    done = Counter((r.method, r.n_components, r.seed) for r in results)
    expected = {
        (m.name, s, seed)
        for m in METHODS.values()
        for s in (SMALL.n_components if m.has_features else (None,))
        for seed in (0, 1)
    }
    assert done == Counter(expected)
    assert all(np.isfinite(r.error) and r.fit_seconds > 0 for r in results)


def test_all_methods_get_the_same_conditions(results: list[Result]) -> None:
    same = {(r.gamma, r.alpha, r.n_threads, r.n_train, r.n_test) for r in results}
    assert len(same) == 1
    assert (results[0].n_train, results[0].n_test) == (332, 110)


def test_errors_are_reproducible_and_change_with_the_seed(results: list[Result]) -> None:
    plan = dataclasses.replace(SMALL, methods=("fourier",), n_components=(30,))
    again = {r.seed: r.error for r in run(plan)}
    before = {r.seed: r.error for r in results if (r.method, r.n_components) == ("fourier", 30)}
    assert again == before
    assert before[0] != before[1]


def test_order_is_shuffled_within_a_seed_and_seeds_follow_each_other() -> None:
    planned = runner.jobs(Plan(n_seeds=3), n_train=1000)
    assert [job.seed for job in planned] == sorted(job.seed for job in planned)
    rounds = [[(j.method, j.n_components) for j in planned if j.seed == k] for k in range(3)]
    assert rounds[0] != rounds[1]
    assert Counter(rounds[0]) == Counter(rounds[1]) == Counter(rounds[2])


def test_scaling_and_tuning_never_see_the_test_rows() -> None:
    data = datasets.load("diabetes")
    honest = runner.prepare(data)
    assert np.allclose(honest.X_train.mean(axis=0), 0, atol=1e-12)
    is_test = ~np.isin(data.y, honest.y_train)
    spoilt = dataclasses.replace(
        data,
        X=np.where(is_test[:, None], 1e6, data.X),
        y=np.where(is_test, -1e6, data.y),
    )
    tampered = runner.prepare(spoilt)
    np.testing.assert_array_equal(tampered.X_train, honest.X_train)
    assert (tampered.gamma, tampered.alpha) == (honest.gamma, honest.alpha)
    assert np.abs(tampered.X_test).max() == runner.CLIP


def test_scaling_keeps_sparse_data_sparse() -> None:
    onehot, _ = datasets.make_onehot(200)
    assert abs(runner.scaler_for(onehot).fit_transform(onehot) - onehot).sum() == 0
    counts = sp.csr_array(np.random.default_rng(0).poisson(0.3, size=(100, 40)).astype(float))
    scaled = runner.scaler_for(counts).fit_transform(counts)
    assert scaled.nnz == counts.nnz
    norms = np.sqrt(scaled.multiply(scaled).sum(axis=1))
    assert np.allclose(norms, 1)


@pytest.mark.parametrize("n_columns", [10, 60])
def test_leave_one_out_is_what_it_says(n_columns: int) -> None:
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((40, n_columns)) + 1.0  # not centred
    y = Z[:, 0] + rng.standard_normal(40) + 5.0
    for alpha, error in zip(
        (0.1, 10.0), runner.leave_one_out_errors(Z, y, np.array([0.1, 10.0])), strict=True
    ):
        predicted = cross_val_predict(Ridge(alpha=alpha), Z, y, cv=LeaveOneOut())
        assert error == pytest.approx(np.sqrt(np.mean((y - predicted) ** 2)), rel=1e-8)


def test_chosen_gamma_is_near_the_best_for_the_exact_kernel() -> None:
    """The choice is made on Fourier features of a subsample: it has to serve the kernel itself."""
    problem = runner.prepare(datasets.load("friedman"))

    def exact_error(gamma: float) -> float:
        model = METHODS["exact"].build(Settings(0, gamma, problem.alpha))
        predicted = model.fit(problem.X_train, problem.y_train).predict(problem.X_test)
        return float(np.sqrt(np.mean((predicted - problem.y_test) ** 2)))

    others = [exact_error(problem.gamma * factor) for factor in (1 / 8, 8.0)]
    assert exact_error(problem.gamma) < min(others)


def test_sparse_data_goes_through_every_method() -> None:
    plan = Plan(("onehot",), n_components=(20,), n_seeds=1)
    assert {r.method for r in run(plan)} == set(METHODS)


# --- methods ------------------------------------------------------------------------------------


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


def test_every_method_has_a_description_and_its_own_name() -> None:
    for name, method in METHODS.items():
        assert method.name == name
        assert method.description


def test_adding_a_method_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def mean_only(settings: Settings) -> Any:
        return Ridge(alpha=1e12)

    monkeypatch.setitem(METHODS, "mean", Method("mean", "the mean", mean_only, has_features=False))
    plan = dataclasses.replace(SMALL, methods=("mean",), n_seeds=1)
    (only,) = run(plan)
    data = datasets.load("diabetes")
    assert only.error == pytest.approx(np.std(data.y), rel=0.15)


def test_exact_is_left_out_where_it_is_too_large() -> None:
    plan = Plan(("diabetes", "wine", "insurance"))
    assert any(job.method == "exact" for job in runner.jobs(plan, 5000))
    assert not any(job.method == "exact" for job in runner.jobs(plan, 5001))
    assert runner.skipped(plan) == [
        "exact is left out on insurance: 7,366 training rows, its limit is 5,000"
    ]


def test_steps_are_counted_right(results: list[Result]) -> None:
    messages: list[str] = []
    plan = dataclasses.replace(SMALL, methods=("linear", "fourier"), n_seeds=1)
    list(run(plan, messages.append))
    assert len(messages) == runner.count_steps(plan) == 4
    assert messages[0] == "diabetes: choosing gamma and alpha"
    assert "diabetes: fourier, s=60" in messages


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"datasets": ("nowhere",)}, "unknown dataset 'nowhere'"),
        ({"methods": ("forier",)}, "did you mean 'fourier'"),
        ({"n_components": (0,)}, "features=0 must be >= 1"),
        ({"n_seeds": 0}, "seeds=0 must be >= 1"),
        ({"n_threads": 0}, "threads=0 must be >= 1"),
        ({"methods": ()}, "nothing to compare"),
    ],
)
def test_bad_plans_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(runner.PlanError, match=reason):
        Plan(**changes)


def test_missing_files_are_noticed_before_any_work(tmp_path: Path) -> None:
    messages: list[str] = []
    with pytest.raises(FileNotFoundError, match=r"wine\.npz"):
        list(run(Plan(("diabetes", "wine"), folder=tmp_path), messages.append))
    assert messages == []


# --- records and tables -------------------------------------------------------------------------


def test_records_survive_json() -> None:
    for record in (result(), result("linear", None)):
        assert Result.from_json(record.to_json()) == record


def test_summaries_average_over_seeds() -> None:
    runs = [
        result("b", 200, error=3.0),
        result("a", 100, seed=0, error=1.0, fit_seconds=1.0),
        result("a", 100, seed=1, error=2.0, fit_seconds=1.2),
        result("a", 100, seed=2, error=3.0, fit_seconds=9.0),
        result("a", 50, error=4.0),
    ]
    first, second, third = summarise(runs, methods=("a", "b"))
    assert [(r.method, r.n_components) for r in (first, second, third)] == [
        ("a", 50), ("a", 100), ("b", 200),
    ]  # fmt: skip
    assert (second.error, second.spread, second.fit_seconds, second.n_seeds) == (2.0, 1.0, 1.2, 3)
    assert first.spread == 0.0


def rendered(summaries: list[Any], width: int = 80, encoding: str = "utf-8") -> list[str]:
    """The terminal's lines."""
    console = Console(width=width, color_system=None, force_terminal=False)
    console_options = console.options.update(width=width)
    console_options.encoding = encoding
    lines = console.render_lines(table.Report(summaries), console_options, pad=False)
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


def test_terminal_table_fits_80_columns() -> None:
    runs = [
        result("linear", None, error=0.75),
        *(result("sklearn-rbfsampler", s, seed=k, error=0.7 + 0.01 * k)
          for s in (250, 10_000) for k in range(3)),
    ]  # fmt: skip
    lines = rendered(summarise(runs))
    assert max(map(len, lines)) <= 80
    assert lines[0] == "wine: 4,873 training rows, 1,624 test rows, 11 inputs"
    assert lines[1] == "gamma 0.09, alpha 1, 2 threads, 3 seeds"
    assert "0.7100 ± 0.0100" in lines[4]
    assert lines[5].split()[0] == "10000"  # the method's name is not repeated


def test_dots_stand_where_the_errors_are() -> None:
    runs = [result("a", 10, error=1.0), result("a", 20, error=2.0), result("a", 30, error=3.0)]
    lines = rendered(summarise(runs))
    places = [line.index("●") for line in lines if "●" in line]
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=1)
    axis = lines[2]
    assert axis.endswith("3.000")
    assert axis.index("1.000") == places[0]
    assert len(axis) == places[2] + 1


def test_plain_terminals_get_plain_characters() -> None:
    lines = rendered(summarise([result(seed=0), result(seed=1, error=0.8)]), encoding="ascii")
    assert "\n".join(lines).isascii()
    assert any("0.7500 +- 0.0707" in line for line in lines)


def test_markdown_table() -> None:
    runs = [result("linear", None, error=0.9), result(seed=0), result(seed=1, error=0.71)]
    text = table.markdown(summarise(runs))
    assert "| linear | - | 0.9000 | 0.50 s |" in text
    assert "| fourier | 100 | **0.7050 ± 0.0071** | 0.50 s |" in text
    assert "\nGamma 0.09, alpha 1, 2 threads, 2 seeds.\n" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1e-5, "< 1 ms"),
        (0.0994, "99 ms"),
        (0.1, "0.10 s"),
        (9.999, "10.0 s"),
        (59.96, "1 min 00 s"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert table.duration(seconds) == text


@pytest.mark.parametrize(("error", "decimals"), [(56.6, 2), (0.231, 4), (1234.5, 0), (0.0, 3)])
def test_four_digits(error: float, decimals: int) -> None:
    assert table.error_decimals([SimpleNamespace(error=error)]) == decimals  # type: ignore[list-item]


# --- the picture --------------------------------------------------------------------------------


def test_picture_has_a_labelled_panel_for_each_dataset(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    runs = [
        result(method, s, dataset=dataset, error=0.7 + (s or 0) / 1e4)
        for dataset in ("wine", "forest")
        for method in ("fourier", "linear")
        for s in ((100, 200) if method == "fourier" else (None,))
    ]
    figure = plots.draw(summarise(runs))
    assert [panel.get_xlabel() for panel in figure.axes] == [
        "number of features s", "training time in seconds",
    ] * 2  # fmt: skip
    assert all(panel.get_ylabel() == "test RMSE" for panel in figure.axes[::2])
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["linear", "fourier"]
    plots.save(summarise(runs), tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_styles_tell_many_methods_apart() -> None:
    rows = summarise([result(f"method {i}") for i in range(12)] + [result("exact", None)])
    styles = plots.line_styles(rows)
    assert len({tuple(sorted(style.items())) for style in styles.values()}) == 13
