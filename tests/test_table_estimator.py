"""TableModel as an estimator, its verdict, and what the encoder makes of columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone, is_classifier
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from support.command_line import failing
from support.tables import flats, written
from threadpoolctl import threadpool_info, threadpool_limits
from typer.testing import CliRunner

import kernelsieve
from kernelsieve import TableModel, cli
from kernelsieve.learning.judge import Split
from kernelsieve.tables.categories import MEANS_ABOVE, Category
from kernelsieve.tables.encoder import TableEncoder
from kernelsieve.tables.inspection import inspected
from kernelsieve.tables.predictions import Answers
from kernelsieve.tables.readers import read_table
from kernelsieve.tables.table import TableError, TableNotice
from kernelsieve.tables.verdict import _on_splits, row_losses, summary, verdict_lines

QUICK: dict[str, Any] = {"n_components": 40, "gamma": 0.05, "alpha": 0.01}


def xy(n: int = 120) -> tuple[pd.DataFrame, pd.Series]:
    frame = pd.DataFrame(flats(n))
    return frame.drop(columns="rent"), frame["rent"]


def run(*arguments: str) -> Any:
    outcome = CliRunner().invoke(cli.app, list(arguments), catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome


# --- an estimator ---------------------------------------------------------------------------------


def test_x_and_y_are_the_whole_table() -> None:
    """fit(X, y) ignored y."""
    X, y = xy()
    whole = TableModel("rent", **QUICK).fit(X.assign(rent=y))
    apart = TableModel(**QUICK).fit(X, y)
    assert apart.target_ == "rent"
    np.testing.assert_array_equal(apart.predict(X), whole.predict(X))
    assert apart.score(X, y) == whole.score(X.assign(rent=y)) > 0.9
    assert TableModel(**QUICK).fit(X, y.to_numpy()).target_ == "target"
    with pytest.raises(TableError, match="y has 3 values for 120 rows"):
        TableModel(**QUICK).fit(X, [1.0, 2.0, 3.0])


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_cross_validation_and_searches(frame: Any) -> None:
    X, y = xy(100)
    X = frame(X.to_dict("list"))
    assert cross_val_score(TableModel(**QUICK), X, y.to_numpy(), cv=2).min() > 0.6
    search = GridSearchCV(TableModel(**QUICK), {"alpha": [1e-2, 1e4]}, cv=2).fit(X, y.to_numpy())
    assert search.best_params_ == {"alpha": 1e-2}


def test_clones_and_labels() -> None:
    X, _ = xy(90)
    model = clone(TableModel(task="classification", drop=["built"], **QUICK))
    assert is_classifier(model)
    assert not is_classifier(TableModel())
    y = np.where(X["size"] > 80, "large", "small")
    with pytest.warns(TableNotice, match="'size' alone nearly determines"):
        model.fit(X, y)
    assert model.score(X, y) > 0.8
    assert model.classes_.tolist() == ["large", "small"]


def test_the_default_learns_its_kernel(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 3))
    y = 3 * x[:, 1] + np.sin(4 * x[:, 0])
    table = {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y}
    model = TableModel("y").fit(table)
    assert model.gamma_ is None
    assert model.facts_["scores"]["R2"] > 0.9
    kernelsieve.save(model, tmp_path / "m.ks", variance=True)
    loaded = kernelsieve.load(tmp_path / "m.ks")
    np.testing.assert_array_equal(loaded.predict(table), model.predict(table))
    np.testing.assert_array_equal(loaded.predict_std(table), model.predict_std(table))
    labels = {**table, "y": np.where(x[:, 0] > 0, "up", "down")}
    with pytest.warns(TableNotice, match="'a' alone nearly determines"):
        classes = TableModel("y").fit(labels)
    assert classes.gamma_ is None
    assert classes.facts_["scores"]["accuracy"] > 0.85
    kernelsieve.save(classes, tmp_path / "m.ks")
    chances = kernelsieve.load(tmp_path / "m.ks").predict_proba(labels)
    np.testing.assert_array_equal(chances, classes.predict_proba(labels))


# --- columns --------------------------------------------------------------------------------------


def test_many_categories_become_means_of_the_target_in_other_rows() -> None:
    rng = np.random.default_rng(0)
    zone = rng.integers(0, 3 * MEANS_ABOVE, 2000)
    effect = rng.normal(size=3 * MEANS_ABOVE)
    table, y = {"zone": [f"z{z}" for z in zone]}, effect[zone] + rng.normal(size=2000)
    encoder = TableEncoder()
    X = encoder.fit_transform(table, y)
    assert X.shape == (2000, 1)
    assert np.corrcoef(X[:, 0], effect[zone])[0, 1] > 0.9
    noise = rng.normal(size=2000)  # means of a row's own target would correlate with it by 0.17
    assert abs(np.corrcoef(TableEncoder().fit_transform(table, noise)[:, 0], noise)[0, 1]) < 0.08
    with pytest.warns(UserWarning, match="not seen in training"):
        assert encoder.transform({"zone": ["new"]}).tolist() == [[0.0]]
    assert TableEncoder().fit(table).width == 3 * MEANS_ABOVE  # without a target: 0/1 columns


def test_rare_categories_are_drawn_to_the_mean() -> None:
    rng = np.random.default_rng(0)
    zones = [f"z{i % 30}" for i in range(900)] + ["once"]
    encoder = TableEncoder().fit({"zone": zones}, np.append(rng.normal(size=900), 5.0))
    (column,) = encoder.columns_
    assert isinstance(column, Category)
    assert 0 < column.means[column.levels.index("once")][0] < 0.5


def test_times_say_hours_weekdays_and_durations() -> None:
    starts = pd.date_range("2024-01-01", periods=400, freq="7h")  # a Monday
    waits = np.random.default_rng(0).uniform(1, 60, 400).round()
    ends = starts + pd.to_timedelta(waits, unit="min")
    table = {"start": starts.astype(str), "end": ends.astype(str)}
    encoder = TableEncoder().fit(table)
    titles = [column.title for column in encoder.columns_]
    assert titles == ["start", "end", "start hour", "start weekday", "end hour", "end weekday",
                      "end - start"]  # fmt: skip
    X, is_category = encoder.typed(table)
    np.testing.assert_allclose(X[:, 2], starts.hour)
    np.testing.assert_allclose(X[:, 3], starts.day_of_week)
    np.testing.assert_allclose(60 * X[:, 6], waits, atol=1e-4)
    assert not is_category.any()


def test_missing_numbers_have_a_column_that_says_so() -> None:
    table = {"a": [1.0, None, 3.0, 5.0] * 10}
    encoder = TableEncoder().fit(table)
    assert encoder.get_feature_names_out().tolist() == ["a", "a=(missing)"]
    with pytest.warns(UserWarning, match="missing value"):
        assert encoder.transform(table)[:4, 1].tolist() == [0, 1, 0, 0]


def test_few_missing_numbers_have_none_for_nothing_could_be_learned_from_it() -> None:
    table = {"a": [1.0, None, 3.0, 5.0, *range(996)]}
    assert TableEncoder().fit(table).get_feature_names_out().tolist() == ["a"]
    scarce = {"a": [None] * 9 + [1.0, 2.0]}
    assert TableEncoder().fit(scarce).get_feature_names_out().tolist() == ["a"]


# --- the verdict ----------------------------------------------------------------------------------


def errors(scale: float, n: int = 400, seed: int = 0) -> np.ndarray:
    return np.square(scale * np.random.default_rng(seed).normal(size=n))


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        (errors(0.5), "This model has a 50% smaller error than gradient boosting"),
        (errors(2.0), "Gradient boosting is 50% better on this table (50% to 50%): use it, unless"),
        (errors(1.02, seed=1), "within the noise of these rows|cannot be told apart"),
        (errors(5.0), "Gradient boosting is 80% better"),
    ],
)
def test_the_sentence_is_honest(ours: np.ndarray, said: str) -> None:
    losses = {"constant": errors(10.0), "linear": errors(3.0), "gradient boosting": errors(1.0)}
    found = summary({**losses, "this model": ours}, dict.fromkeys([*losses, "this model"], 0.1),
                    "regression", 0)  # fmt: skip
    assert any(each in found["sentence"] for each in said.split("|"))
    for model in found["models"]:
        assert model["low"] < model["error"] < model["high"]


def test_nothing_better_than_a_constant_is_said() -> None:
    names = ["constant", "linear", "gradient boosting", "this model"]
    losses = {name: errors(1.0, seed=i) for i, name in enumerate(names)}
    found = summary(losses, dict.fromkeys(names, 0.1), "regression", 0)
    assert "No model is clearly better than a constant" in found["sentence"]


@pytest.mark.parametrize(("loss", "said"), [(0.92, "an 8%"), (0.93, "a 7%"), (0.82, "an 18%")])
def test_percentages_have_their_article(loss: float, said: str) -> None:
    noise = np.random.default_rng(0).exponential(size=200)
    losses = {"constant": 2 * noise, "linear": noise, "this model": loss * noise}
    sentence = summary(losses, dict.fromkeys(losses, 1.0), "classification", 0)["sentence"]
    assert sentence.startswith(f"This model has {said} smaller error")


def test_worse_than_a_constant_is_said() -> None:
    """It was hidden behind "no model is clearly better than a constant"."""
    noise = np.random.default_rng(0).exponential(size=200)
    losses = {"constant": noise, "linear": 1.01 * noise, "this model": 1.4 * noise}
    sentence = summary(losses, dict.fromkeys(losses, 1.0), "regression", 0)["sentence"]
    assert sentence.startswith("A constant is 15% better than this model (")
    assert "no model is clearly better than a constant" in sentence


def test_losses_of_classes_not_known_to_a_model() -> None:
    answers = Answers.of_chances(np.array(["a", "c"]), np.array([[0.25, 0.75]] * 3))
    found = row_losses(answers, np.array(["a", "b", "c"]))
    np.testing.assert_allclose(found[[0, 2]], -np.log([0.25, 0.75]))
    assert found[1] > 30


class Noted:
    """What a model and its clones note."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def __sklearn_clone__(self) -> Noted:
        return self


class Counting(Ridge):
    """Notes how many threads the libraries would use while it is fitted."""

    def __init__(self, noted: Noted | None = None) -> None:
        super().__init__()
        self.noted = noted

    def fit(self, X: Any, y: Any) -> Counting:
        assert self.noted is not None
        self.noted.threads = {pool["num_threads"] for pool in threadpool_info()}
        return super().fit(X, y)


def test_the_other_models_keep_to_the_threads() -> None:
    X, y = np.eye(4), np.arange(4.0)
    rows, noted = np.arange(4), Noted()
    with threadpool_limits(2):
        for n_jobs in (1, 2):
            _on_splits(Counting(noted), X, y, [Split(rows, rows)], "regression", n_jobs)
            assert noted.threads == {min(n_jobs, 2)}


@pytest.mark.parametrize("target", ["rent", "town"])
def test_a_fit_ends_with_a_verdict(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "flats.csv", flats(120))
    quick = ["--features", "40", "--gamma", "0.05", "--alpha", "0.01"]
    said = run("fit", "flats.csv", "--target", target, *quick).stdout
    assert max(map(len, said.splitlines())) <= 80
    for name in ("constant", "linear", "gradient boosting", "this model", "90% interval"):
        assert name in said
    model = kernelsieve.load("model.ks")
    ours = model.facts_["verdict"]["models"][-1]["error"]
    score = model.facts_["scores"]["RMSE" if target == "rent" else "log loss"]
    assert ours == pytest.approx(score, rel=1e-6)
    assert all(line in said for line in verdict_lines(model.facts_))
    said = run("fit", "flats.csv", "--target", target, *quick, "--no-baselines").stdout
    assert "gradient boosting" not in said


def test_classes_that_are_as_good_as_known_are_said_to_be() -> None:
    """A log loss of 0.00001 was "100 % better" than one of 0.003."""
    losses = {"constant": 0.4, "linear": 0.001, "gradient boosting": 1e-5, "this model": 0.003}
    arrays = {name: np.full(100, loss) for name, loss in losses.items()}
    seconds = dict.fromkeys(losses, 1.0)
    sentence = summary(arrays, seconds, "classification", 0)["sentence"]
    assert "both predict the classes almost without error" in sentence
    arrays["this model"] = np.full(100, 0.1)
    assert "is 100% better" in summary(arrays, seconds, "classification", 0)["sentence"]


def test_a_difference_that_rounds_to_nothing_is_none() -> None:
    """It was said to be "0% better here, but within the noise"."""
    noise = np.random.default_rng(0).normal(scale=0.1, size=200)
    losses = {"constant": np.full(200, 1.0), "linear": np.full(200, 0.5)}
    losses["this model"] = 0.501 + noise - noise.mean()
    sentence = summary(losses, dict.fromkeys(losses, 1.0), "classification", 0)["sentence"]
    assert sentence.startswith("This model and a linear model cannot be told apart")


# --- predict and inspect --------------------------------------------------------------------------


def test_columns_are_passed_on_and_intervals_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.normal(size=700)
    y = np.sin(x) + 0.3 * rng.normal(size=700)
    table = {"id": np.arange(700) + 5, "x": x, "note": ["a", "b"] * 350, "y": y}
    written(tmp_path / "a.csv", {name: values[:400] for name, values in table.items()})
    written(tmp_path / "new.csv", {name: values[400:] for name, values in table.items()})
    run("fit", "a.csv", "--target", "y", "--features", "30", "--gamma", "0.3", "--alpha", "0.1",
        "--no-baselines")  # fmt: skip
    run("predict", "model.ks", "new.csv", "--keep-columns", "id,note", "--interval", "0.9",
        "-o", "out.csv")  # fmt: skip
    assert Path("out.csv").read_text().splitlines()[1].startswith("405,a,")
    columns = read_table("out.csv").columns
    assert list(columns) == ["id", "note", "y", "y low", "y high"]
    inside = np.mean((columns["y low"] <= y[400:]) & (y[400:] <= columns["y high"]))
    assert 0.82 <= inside <= 0.97  # 80 rows calibrate and 300 test: 3 deviations of both
    run("predict", "model.ks", "new.csv", "--keep-columns", "all", "-o", "out.csv")
    assert list(read_table("out.csv").columns) == ["id", "x", "note", "y (given)", "y"]
    said = failing(["predict", "model.ks", "new.csv", "--interval", "2"], capsys)
    assert "interval=2 must be between 0 and 1" in said
    assert "no column 'no'" in failing(
        ["predict", "model.ks", "new.csv", "--keep-columns", "no"], capsys
    )


def test_intervals_are_for_numbers() -> None:
    model = TableModel("town", **QUICK).fit(flats(60))
    with pytest.raises(TableError, match="no intervals"):
        model.predict_table(flats(5), interval=0.9)


def test_inspection_has_a_line_for_every_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = {**flats(120), "id": np.arange(120), "void": [None] * 120, "<b>": ["x", "y"] * 60}
    table["size"][3] = np.nan
    table["street"] = [f"s{i % 30}" for i in range(120)]
    written(tmp_path / "flats.csv", table)
    found = {column.name: column for column in inspected("flats.csv", "rent")}
    assert list(found) == list(table)
    assert (found["size"].kind, found["size"].missing) == ("number", 1)
    assert "missing: median" in found["size"].used_as
    assert found["town"].used_as == "3 columns of 0/1"
    assert found["built"].used_as == "standardised; weekday; day of year"
    assert found["rent"].used_as == "target: regression"
    assert found["id"].used_as.startswith("ignored: looks like an identifier")
    assert found["void"].used_as == "ignored: is empty"
    assert found["street"].used_as == "mean target by category"
    said = run("inspect", "flats.csv", "--target", "rent", "--html", "page.html").stdout
    lines = said.splitlines()
    assert [line.split()[0] for line in lines[1:-1] if line[0] != " "] == list(table)
    assert max(map(len, lines)) <= 80
    assert "…" not in said  # what becomes of a column is told whole
    assert "ignored: looks like an identifier (unique whole numbers that count the rows)" in (
        " ".join(said.split())
    )
    page = Path("page.html").read_text()
    assert "&lt;b&gt;" in page
    assert "<b>" not in page


@pytest.mark.parametrize("task", ["auto", "classification"])
def test_scorers_of_classes_see_a_classifier(task: str) -> None:
    """``roc_auc`` was nan where the task was found in the target."""
    x = np.random.default_rng(0).normal(size=(120, 2))
    y = np.where(x[:, 0] + 0.5 * x[:, 1] ** 2 > 0.2, "yes", "no")
    found = cross_val_score(TableModel(task=task), x, y, scoring="roc_auc", cv=2)
    assert found.min() > 0.8
