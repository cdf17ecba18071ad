"""fit, predict, embed and explain, as a user meets them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from support.command_line import failing, heavy_imports
from support.tables import flats, written
from typer.testing import CliRunner

import kernelsieve
from kernelsieve import cli
from kernelsieve.cli._common import complain, for_command_line, notes, print_json
from kernelsieve.tables.readers import read_table

QUICK = ["--features", "40", "--gamma", "0.05", "--alpha", "0.01"]


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "flats.csv", flats(120))


def run(*arguments: str) -> Any:
    outcome = CliRunner().invoke(cli.app, list(arguments), catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome


def fit(*more: str) -> Any:
    return run("fit", "flats.csv", "--target", "rent", *QUICK, *more)


def test_from_a_table_to_predictions_and_an_explanation() -> None:
    said = fit("-o", "rent.ks").stdout
    assert "regression of 'rent', 120 rows" in said
    assert "Saved rent.ks after" in said
    assert "\n  kernelsieve explain rent.ks\n" in said
    said = run("explain", "rent.ks").stdout
    assert "Permutation importance (increase in RMSE" in said
    assert max(map(len, said.splitlines())) <= 80
    said = run("predict", "rent.ks", "flats.csv", "-o", "out.csv").stdout
    assert "Scores: RMSE" in said
    predicted = read_table("out.csv").columns["rent"]
    model = kernelsieve.load("rent.ks")
    np.testing.assert_array_equal(predicted, model.predict("flats.csv"))


def test_details_are_for_those_who_ask() -> None:
    said = fit().stdout
    assert "Spectral" not in said
    assert "Kernel:" not in said
    said = fit("--details").stdout
    assert "Kernel:              Gaussian(gamma=0.05" in said
    assert "Spectral error:" in said
    assert max(map(len, said.splitlines())) <= 80


def test_a_plan_is_shown_where_there_is_one() -> None:
    lines = run("fit", "flats.csv", "--target", "rent", "-o", "m.ks").stdout.splitlines()
    (plan,) = (line for line in lines if line.startswith("Plan:"))
    assert "kernel on" in plan
    assert max(map(len, lines)) <= 80
    said = fit("--kernel", "gaussian", "-o", "n.ks").stdout  # nothing was decided
    assert "Plan:" not in said


def test_numbers_are_written_as_people_write_them() -> None:
    table = flats(120)
    table["rent"] = 1_000.0 * table["rent"]
    written(Path("flats.csv"), table)
    said = fit().stdout
    assert "e+0" not in said
    assert re.search(r"RMSE +\d{1,3},\d{3}", said)


@pytest.mark.parametrize("command", ["", "fit", "predict", "bench", "datasets"])
def test_help_is_short_and_tells_flags_from_values(command: str) -> None:
    short, long = (run(*command.split(), name).stdout for name in ("-h", "--help"))
    assert short == long
    assert "<bool>" not in short


def test_names_in_brackets_are_not_eaten() -> None:
    assert "kernelsieve[onnx]" in run("export", "-h").stdout


def test_colours_can_be_turned_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    complain("red")
    assert "\x1b" not in capsys.readouterr().err
    monkeypatch.delenv("NO_COLOR")
    complain("red")
    assert "\x1b[31m" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("ignored. Use keep=['a b'] to", "ignored. Use --keep 'a b' to"),
        ('use drop=["it\'s"]', "use --drop 'it'\"'\"'s'"),
        ("pass encoding='cp1252'", "pass --encoding cp1252"),
        ("fit with sample_rows=100000, which", "fit with --sample-rows 100000, which"),
        ("the column (target=), one of", "the column (--target), one of"),
        ("alpha=-1 must be > 0", "alpha=-1 must be > 0"),
    ],
)
def test_advice_is_in_the_language_of_the_caller(said: str, shown: str) -> None:
    assert for_command_line(said) == shown


def test_long_names_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["listed_until_the_end_of_month", "listed_until_the_start_of_month"]
    written(Path("a.csv"), {name: np.sqrt(np.arange(30.0)) for name in names})
    lines = run("inspect", "a.csv").stdout.splitlines()
    shown = [line.split()[0] for line in lines if line.startswith("listed")]
    assert len(set(shown)) == 2
    assert max(map(len, lines)) <= 80


def test_predictions_go_to_the_screen_without_a_file() -> None:
    fit()
    lines = run("predict", "model.ks", "flats.csv").stdout.splitlines()
    assert lines[0] == "rent"
    assert len(lines) == 121


def test_deviations_are_stored_where_they_are_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fit()
    assert "fit --std" in failing(["predict", "model.ks", "flats.csv", "--std"], capsys)


def same_file(path: str, kind: str) -> str:
    """Another name of a file."""
    if kind == "symbolic link":
        Path("link.csv").symlink_to(path)
    elif kind == "hard link":
        os.link(path, "link.csv")
    return {"same name": path, "other way": f"../{Path.cwd().name}/{path}"}.get(kind, "link.csv")


@pytest.mark.parametrize("kind", ["same name", "other way", "symbolic link", "hard link"])
def test_an_input_is_not_replaced(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    before, out = Path("flats.csv").read_bytes(), same_file("flats.csv", kind)
    fit("-o", "rent.ks")
    for arguments in (["embed", "flats.csv", "-o", out], ["predict", "rent.ks", out, "-o", out]):
        assert "would replace it" in failing(arguments, capsys)
    assert Path("flats.csv").read_bytes() == before


def test_no_command_replaces_an_input(capsys: pytest.CaptureFixture[str]) -> None:
    fit("-o", "rent.ks")
    model = Path("rent.ks").read_bytes()
    for name in ("data.ks", "page.html", "picture.png", "results.jsonl"):
        Path(name).write_bytes(Path("flats.csv").read_bytes())
    for arguments in (
        ["fit", "data.ks", "--target", "rent", "-o", "data.ks"],
        ["inspect", "page.html", "--html", "page.html"],
        ["export", "rent.ks", "rent.ks"],
        ["explain", "rent.ks", "--rows", "page.html", "--html", "page.html"],
        ["explain", "rent.ks", "--data", "picture.png", "--picture", "picture.png"],
        ["bench", "results.jsonl", "--target", "rent", "--out", "."],
    ):
        assert "would replace it" in failing(arguments, capsys), arguments
    assert Path("rent.ks").read_bytes() == model


@pytest.mark.parametrize("folder", ["missing", "file", "locked"])
def test_outputs_are_tried_before_any_work(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fit("-o", "rent.ks")
    if folder == "file":
        Path(folder).write_text("no folder")
    if folder == "locked":
        Path(folder).mkdir(mode=0o500)
        if os.access(folder, os.W_OK):
            pytest.skip("this user may write everywhere")
    monkeypatch.setattr("kernelsieve.tables.read_table", no_work)
    monkeypatch.setattr("kernelsieve.tables.TableModel.fit_file", no_work)
    monkeypatch.setattr("kernelsieve.persistence.load", no_work)
    for arguments in (
        ["fit", "flats.csv", "--target", "rent", "-o", f"{folder}/a.ks"],
        ["inspect", "flats.csv", "--html", f"{folder}/a.html"],
        ["predict", "rent.ks", "flats.csv", "-o", f"{folder}/a.csv"],
        ["embed", "flats.csv", "-o", f"{folder}/a.npz"],
        ["export", "rent.ks", f"{folder}/a.onnx"],
        ["explain", "rent.ks", "--html", f"{folder}/a.html"],
        ["explain", "rent.ks", "--picture", f"{folder}/a.png"],
    ):
        said = failing(arguments, capsys)
        assert folder in said, arguments


def no_work(*_: Any, **__: Any) -> None:
    raise AssertionError("the output was not tried first")


def test_a_folder_for_results_is_tried_before_any_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("out").mkdir()
    (Path("out") / "report.html").mkdir()
    monkeypatch.setattr("kernelsieve.bench.runner.check_data", no_work)
    assert "is a folder" in failing(["bench", "diabetes", "--out", "out"], capsys)
    Path("file").write_text("no folder")
    assert "cannot create this folder" in failing(["bench", "diabetes", "--out", "file"], capsys)


def test_the_same_fit_gives_the_same_file() -> None:
    """Also with a comparison of other models, whose times are printed and not stored."""
    said = fit("-o", "one.ks").stdout
    assert "time" in said
    fit("-o", "two.ks")
    assert Path("one.ks").read_bytes() == Path("two.ks").read_bytes()
    facts = kernelsieve.load("one.ks").facts_
    assert "seconds" not in str(facts)
    assert len(facts["verdict"]["models"]) == 4
    assert "gradient boosting" in kernelsieve.load("one.ks").summary()


@pytest.mark.parametrize(
    ("part", "value"), [("indices", 10**8), ("indices", -5), ("indptr", 10**6)]
)
@pytest.mark.parametrize("method", ["nystrom", "fourier", "adaptive"])
def test_a_malformed_sparse_file(
    part: str, value: int, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such a file ended the process, or gave an output."""
    A = sp.random(50, 9, 0.5, format="csr", random_state=0)
    getattr(A, part)[7] = value
    sp.save_npz("e.npz", A)
    said = failing(["embed", "e.npz", "--method", method, "-o", "z.npz"], capsys)
    assert "malformed sparse matrix" in said
    assert not Path("z.npz").exists()


@pytest.mark.parametrize("name", ["out.parquet", "out.arrow", "out.npz"])
def test_predictions_in_other_formats(name: str) -> None:
    fit("--std")
    run("predict", "model.ks", "flats.csv", "-o", name, "--std")
    if name == "out.npz":
        with np.load(name) as found:
            assert sorted(found.files) == ["rent", "rent std"]
    else:
        assert list(read_table(name).columns) == ["rent", "rent std"]


def test_classes_and_their_probabilities() -> None:
    run("fit", "flats.csv", "--target", "town", *QUICK)
    run("predict", "model.ks", "flats.csv", "--proba", "-o", "out.csv")
    columns = read_table("out.csv").columns
    assert list(columns) == ["town", "town=Bonn", "town=Kiel", "town=Ulm"]
    chances = np.column_stack([columns[name] for name in list(columns)[1:]])
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)


def test_json_is_for_machines() -> None:
    facts = json.loads(fit("--json").stdout)
    assert facts["task"] == "regression"
    assert facts["notes"] == []
    assert json.loads(run("explain", "model.ks", "--json").stdout)["target"] == "rent"
    found = json.loads(run("predict", "model.ks", "flats.csv", "--json").stdout)
    assert len(found["predictions"]["rent"]) == 120
    embedded = run("embed", "flats.csv", "--features", "20", "-o", "z.npz", "--json")
    assert json.loads(embedded.stdout)["features"] <= 20


def test_quiet_says_nothing() -> None:
    assert fit("--quiet").output == ""
    assert run("predict", "model.ks", "flats.csv", "-o", "o.csv", "-q").output == ""
    assert run("embed", "flats.csv", "--features", "9", "-o", "z.csv", "-q").output == ""


def test_inspection_for_machines() -> None:
    found = json.loads(run("inspect", "flats.csv", "--target", "rent", "--json").stdout)
    assert (found["rows"], found["notes"]) == (120, [])
    assert [column["name"] for column in found["columns"]] == ["size", "town", "built", "rent"]
    assert found["columns"][1] == {
        "name": "town", "kind": "category", "missing": 0, "levels": 3,
        "used_as": "3 columns of 0/1",
    }  # fmt: skip
    said = run("inspect", "flats.csv", "--target", "rent", "--html", "page.html", "--quiet")
    assert said.output == ""
    assert "3 columns of 0/1" in Path("page.html").read_text()


def test_numbers_that_json_lacks_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [float("nan"), -float("inf"), 1.5], "b": {"c": float("inf")}})
    assert json.loads(capsys.readouterr().out) == {"a": [None, None, 1.5], "b": {"c": None}}


def test_the_same_note_is_given_once(capsys: pytest.CaptureFixture[str]) -> None:
    with notes(quiet=False) as found:
        for text in ("one", "two", "one"):
            warnings.warn(text, UserWarning, stacklevel=1)
    assert found == ["one", "two"]
    assert capsys.readouterr().err.splitlines() == ["Note: one", "Note: two"]


def test_what_was_done_is_noted_and_strict_refuses_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = flats(120)
    table["size"][4] = np.nan
    written(tmp_path / "flats.csv", table)
    assert "Note: column 'size': 1 missing value replaced by the median" in fit().stderr
    notes = json.loads(fit("--json").stdout)["notes"]
    assert len(notes) == 1
    said = failing(["fit", "flats.csv", "--target", "rent", "--strict"], capsys)
    assert "1 missing value replaced" in said
    assert "strict mode" in said
    said = failing(["predict", "model.ks", "flats.csv", "--strict"], capsys)
    assert "strict mode" in said


@pytest.mark.parametrize("name", ["z.parquet", "z.npz", "z.csv", "z.svm"])
def test_embeddings(name: str) -> None:
    said = run("embed", "flats.csv", "--target", "rent", "--features", "25", "-o", name).stdout
    assert "Features: 120 x " in said
    table = read_table(name)
    assert table.n_rows == 120


def test_embedding_by_a_model_is_its_transform() -> None:
    fit()
    run("embed", "flats.csv", "--model", "model.ks", "-o", "z.npz")
    model = kernelsieve.load("model.ks")
    with np.load("z.npz") as found:
        np.testing.assert_array_equal(found["X"], model.transform("flats.csv"))
        assert found["names"].tolist() == model.get_feature_names_out().tolist()


def test_sparse_features_stay_sparse(tmp_path: Path) -> None:
    X = sp.random(60, 40, density=0.1, random_state=0, format="csr")
    sp.save_npz("x.npz", X)
    said = run("embed", "x.npz", "--kernel", "poly", "--degree", "2", "-o", "z.npz").stdout
    assert "% nonzero" in said
    assert sp.issparse(sp.load_npz("z.npz"))


WRONG = {
    "absent": (["fit", "no.csv", "--target", "a"], "no.csv does not exist"),
    "target": (["fit", "flats.csv", "--target", "a"], "has no column 'a': it has size, town"),
    "no target": (["fit", "flats.csv"], "name the column to predict (--target), one of size"),
    "alpha": (["fit", "flats.csv", "--target", "rent", "--alpha", "-1"], "--alpha -1: give a"),
    "gamma": (["fit", "flats.csv", "--target", "rent", "--gamma", "x"], "'cv', 'scale', 'auto'"),
    "method": (["fit", "flats.csv", "--target", "rent", "--method", "x"], "unknown method 'x'"),
    "kernel": (["fit", "flats.csv", "--target", "rent", "--kernel", "x"], "kernel='x' is unknown"),
    "features": (["fit", "flats.csv", "--target", "rent", "--features", "0"], "n_components=0"),
    "name": (["fit", "flats.csv", "--target", "rent", "-o", "m.pkl"], "the name must end with .ks"),
    "folder": (
        ["fit", "flats.csv", "--target", "rent", "-o", "no/m.ks"],
        "the folder no does not exist",
    ),
    "drop": (["fit", "flats.csv", "--target", "rent", "--drop", "x"], "has no column 'x'"),
    "model": (["predict", "no.ks", "flats.csv"], "no.ks"),
    "no model": (["predict", "flats.csv", "flats.csv"], "is not a kernelsieve model"),
    "top": (["explain", "flats.csv", "--top", "0"], "--top 0"),
    "picture": (["explain", "flats.csv", "--picture", "a.doc"], "must end with .png"),
    "embed": (["embed", "flats.csv", "-o", "z.doc"], "must end with .csv"),
    "embed alpha": (["embed", "flats.csv", "--alpha", "cv", "-o", "z.csv"], "--alpha cv"),
    "argument": (["fit"], "Missing argument"),
    "option": (["fit", "flats.csv", "--nothing"], "No such option"),
    "number": (["fit", "flats.csv", "--seed", "x"], "valid int"),
}


@pytest.mark.parametrize(("arguments", "reason"), WRONG.values(), ids=WRONG)
def test_wrong_use_ends_with_one_line(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reason in failing(arguments, capsys)


def test_other_models_are_told_from_tables(capsys: pytest.CaptureFixture[str]) -> None:
    kernelsieve.save(kernelsieve.KernelRidge(), "ridge.ks")
    assert "contains a KernelRidge" in failing(["predict", "ridge.ks", "flats.csv"], capsys)


def test_a_closed_pipe_is_no_error() -> None:
    fit()
    command = f"{sys.executable} -m kernelsieve predict model.ks flats.csv | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120)
    assert done.stdout == "rent\n"
    assert "Traceback" not in done.stderr


def test_ctrl_c_leaves_the_old_file(tmp_path: Path) -> None:
    fit()
    before = Path("model.ks").read_bytes()
    command = [sys.executable, "-m", "kernelsieve", "fit", "flats.csv", "--target", "rent"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A test run in the background of a shell ignores Ctrl-C, and so would its children.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode in (130, -signal.SIGINT)  # the latter while Python still imports
    assert Path("model.ks").read_bytes() == before
    assert sorted(os.listdir()) == ["flats.csv", "model.ks"]


def kill(moments: int, *command: str) -> str:
    """What tests/support/killing.py says."""
    script = Path(__file__).with_name("support") / "killing.py"
    line = [sys.executable, str(script), "--moments", str(moments), "--", *command]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(line, capture_output=True, text=True, timeout=900, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


FIT = ["fit", "flats.csv", "--target", "rent", *QUICK, "--threads", "1", "-o", "model.ks"]
BENCH = [
    "bench", "diabetes", "--methods", "linear,fourier", "--features", "20", "--seeds", "2",
    "--threads", "1", "--out", "results", "--fresh",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("command", [FIT, BENCH], ids=["fit", "bench"])
def test_50_kills_leave_whole_files(command: list[str]) -> None:
    said = kill(50, *command)
    assert int(said.split()[0]) >= 25


@pytest.mark.parametrize(
    "arguments",
    [["fit", "no.csv", "--target", "y"], ["predict", "no.ks", "flats.csv"],
     ["embed", "no.csv"], ["explain", "no.ks"]],
    ids=lambda arguments: arguments[0],
)  # fmt: skip
def test_a_missing_file_is_reported_before_anything_slow_is_imported(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert heavy_imports(arguments) == []
    assert "does not exist" in failing(arguments, capsys)


def test_a_duration_is_formatted_without_importing_bench() -> None:
    code = (
        "import sys\nfrom kernelsieve.cli import tables\n"
        "assert tables.duration(1.0) == '1.00 s'\n"
        "sys.exit('kernelsieve.bench' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
