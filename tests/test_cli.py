"""The command line, as a user meets it, and the commands that the README promises."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support.command_line import failing, heavy_imports
from typer.testing import CliRunner

import kernelsieve
from kernelsieve import cli, datasets
from kernelsieve.bench import Store, plots, runner, scoreboard
from kernelsieve.bench.records import Result
from kernelsieve.bench.scoreboard import Scoreboard, ScoreboardPlan
from kernelsieve.datasets import Entry, folders, loading

ROOT = Path(__file__).parent.parent
QUICK = [
    "bench", "diabetes", "--methods", "linear,fourier", "--features", "20,40", "--seeds", "2",
    "--threads", "1",
]  # fmt: skip
FILES = ["bench.png", "report.html", "results.jsonl", "table.md"]


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """80 columns without colours, folders of its own, no network, and no time lost in tuning."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("KERNELSIEVE_DATA", str(tmp_path / "data"))
    for module in (folders, loading):
        monkeypatch.setattr(module, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(loading, "install", no_network)
    monkeypatch.setattr(runner, "tuned", lambda *_: (0.02, 1.0))
    monkeypatch.chdir(tmp_path)


def no_network(entry: Entry, *_: object) -> None:
    raise datasets.DatasetError(f"dataset {entry.name!r} could not be downloaded")


def test_bench_prints_the_table_and_writes_the_files(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(cli.app, [*QUICK, "--out", "results"])
    assert outcome.exit_code == 0, outcome.output
    lines = outcome.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["diabetes"]
    assert lines[1].split() == ["n=442", "d=10"]
    assert [lines[2].split()[0], lines[4].split()[0]] == ["Linear", "Fourier"]
    assert "Report:  results/report.html" in [line.replace("\\", "/") for line in lines]
    assert re.fullmatch(r"Took: .* (ms|s), \d+% of it in fits and predictions", lines[-2])
    out = tmp_path / "results"
    assert sorted(file.name for file in out.iterdir()) == FILES
    records = Store(out / "results.jsonl").records
    assert sum(isinstance(record, Result) for record in records) == 1 + 2 * 2


def test_bench_goes_on_where_it_was_and_says_so(tmp_path: Path) -> None:
    CliRunner().invoke(cli.app, [*QUICK])
    before = (tmp_path / "bench-results" / "results.jsonl").read_text()
    again = CliRunner().invoke(cli.app, [*QUICK])
    assert again.stdout.splitlines()[-1].startswith("Nothing was measured: all results were there")
    assert (tmp_path / "bench-results" / "results.jsonl").read_text() == before
    fresh = CliRunner().invoke(cli.app, [*QUICK, "--fresh"])
    assert "Nothing was measured" not in fresh.stdout
    assert (tmp_path / "bench-results" / "results.jsonl").read_text() != before


def test_a_process_that_is_killed_loses_one_fit_at_most(tmp_path: Path) -> None:
    """SIGKILL in the middle, then the same command again."""
    command = [sys.executable, "-m", "kernelsieve", *QUICK, "--seeds", "20", "--out", "killed"]
    path = tmp_path / "killed" / "results.jsonl"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not path.exists() or path.read_text().count("\n") < 8:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    process.kill()
    process.wait()
    kept = path.read_text().count("\n")
    assert kept < 42
    outcome = CliRunner().invoke(cli.app, command[3:])
    assert outcome.exit_code == 0, outcome.output
    records = [r for r in Store(path).records if isinstance(r, Result)]
    cells = {(r.method, r.n_components, r.seed) for r in records}
    assert len(cells) == len(records) == 41


def test_bench_makes_a_scoreboard_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    for name in ("one", "two"):
        X, y = datasets.make_friedman(80)
        np.savez(tmp_path / "tables" / f"{name}.npz", X=X, y=y)
    arguments = ["bench", "--suite", "tables", "tables", "--methods", "linear,boosting"]
    outcome = CliRunner().invoke(cli.app, [*arguments, "--seeds", "1", "--threads", "1"])
    assert outcome.exit_code == 0, outcome.output
    first = [line.split()[0] for line in outcome.stdout.splitlines() if line.strip()]
    assert {"Boosting", "Linear"} <= set(first)
    out = tmp_path / "bench-results"
    names = ["scoreboard.html", "scoreboard.jsonl", "scoreboard.md"]
    assert sorted(file.name for file in out.iterdir()) == names


def test_bench_on_a_file_of_ones_own(tmp_path: Path) -> None:
    X, y = datasets.make_friedman(100)
    rows = (
        ",".join(map(str, (*x, "ab"[i % 2], v))) for i, (x, v) in enumerate(zip(X, y, strict=True))
    )
    header = ",".join([*(f"x{i}" for i in range(10)), "kind", "price"])
    (tmp_path / "my.csv").write_text("\n".join([header, *rows]))
    arguments = ["bench", "my.csv", "--target", "price", "--methods", "linear", "--json"]
    (found,) = json.loads(CliRunner().invoke(cli.app, arguments).stdout)
    assert found["setup"]["dataset"] == "my"
    assert found["setup"]["n_inputs"] == 12
    (found,) = json.loads(CliRunner().invoke(cli.app, [*arguments, "--drop", "kind"]).stdout)
    assert found["setup"]["n_inputs"] == 10


def test_bench_json_is_json_and_nothing_else() -> None:
    outcome = CliRunner().invoke(cli.app, [*QUICK, "--json"])
    (found,) = json.loads(outcome.stdout)
    rows = [(row["method"], row["n_components"], row["n_seeds"]) for row in found["rows"]]
    assert rows == [("linear", None, 1), ("fourier", 20, 2), ("fourier", 40, 2)]
    assert sum(row["chosen"] for row in found["rows"]) == 2


def test_bench_quiet_prints_the_tables_only() -> None:
    outcome = CliRunner().invoke(cli.app, [*QUICK, "--quiet"])
    assert "Fourier" in outcome.stdout
    assert "Report:" not in outcome.output
    assert outcome.stderr == ""


def test_bench_says_what_it_left_out_to_stay_within_the_budget() -> None:
    outcome = CliRunner().invoke(cli.app, [*QUICK, "--budget", "0.00001"])
    assert outcome.exit_code == 0, outcome.output
    assert "Left out to stay within" in outcome.stdout
    assert "s = 40 on diabetes" in outcome.stdout
    quiet = CliRunner().invoke(cli.app, [*QUICK, "--budget", "0.00001", "--quiet"])
    assert "Left out" not in quiet.output


def test_mistakes_while_drawing_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def save(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'colours'", name="colours")

    monkeypatch.setattr(plots, "save", save)
    outcome = CliRunner().invoke(cli.app, QUICK)
    assert isinstance(outcome.exception, ModuleNotFoundError)


def test_a_scoreboard_for_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tables").mkdir()
    X, y = datasets.make_friedman(80)
    np.savez(tmp_path / "tables" / "one.npz", X=X, y=y)
    (tmp_path / "tables" / "two.csv").write_text("a,b\n1,2\n")
    known: list[int] = []

    def board(plan: ScoreboardPlan, store: Store, report: object) -> Scoreboard:
        known.append(len(store.records))
        facts = {"error": 0.5, "scores": {"rmse": 0.5}, "fit_seconds": 1.0}
        results = [Result("one", "c", m, None, 0, **facts) for m in plan.methods]
        store.add(results[0])
        loaded = scoreboard.load_table(plan.tables[0], plan, 0)
        return Scoreboard(
            [scoreboard._setup(loaded, "c", plan, store)], list(plan.methods), results
        )

    monkeypatch.setattr(scoreboard, "run_scoreboard", board)
    arguments = ["bench", "--suite", "tables", "tables", "--methods", "linear,boosting"]
    outcome = CliRunner().invoke(cli.app, [*arguments, "--json"])
    assert outcome.exit_code == 0, outcome.output
    assert "Note: two.csv is left out: say what to predict, --target two=COLUMN." in outcome.stderr
    found = json.loads(outcome.stdout)
    assert "linear" in json.dumps(found)
    outcome = CliRunner().invoke(cli.app, [*arguments, "--quiet"])
    assert "Linear" in outcome.stdout
    assert "Report:" not in outcome.stdout
    outcome = CliRunner().invoke(cli.app, [*arguments, "--fresh"])
    assert "Report:" in outcome.stdout
    assert known[0] == known[2] == 0 < known[1]  # what was there is gone
    assert (tmp_path / "bench-results" / "scoreboard.html").exists()


def test_bench_without_matplotlib_says_how_to_get_the_picture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # `import matplotlib` fails
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    outcome = CliRunner().invoke(cli.app, QUICK)
    assert outcome.exit_code == 0, outcome.output
    assert "Picture: not drawn: pip install 'kernelsieve[plot]'" in outcome.stdout
    assert "kernelsieve[plot]" in Path("bench-results", "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["bench", "wien"], "unknown dataset 'wien': did you mean 'wine'?"),
        (["bench", "wine"], "dataset 'wine' could not be downloaded"),
        (["bench", "imdb"], "needs imdb.npz and imdb_y.npy, looked for in"),
        (["bench", "my.csv", "--target", "y"], "my.csv"),
        (["bench", "--target", "y"], "--target and --drop are for files of your own"),
        (["bench", "--budget", "0"], "budget=0.0 must be finite and > 0"),
        (["bench", "--methods", "forier"], "did you mean 'fourier'?"),
        (["bench", "--methods", ","], "nothing to compare"),
        (["bench", "--features", "250,many"], "--features 250,many: give whole numbers"),
        (["bench", "--features", "-5"], "features=-5 must be >= 1"),
        (["bench", "--seeds", "few"], "'--seeds'"),
        (["bench", "--seeds", "0"], "seeds=0 must be >= 1"),
        (["bench", "--threads", "0"], "threads=0 must be >= 1"),
        (["bench", "--out", __file__], "cannot create this folder"),
        (["sieve"], "No such command 'sieve'"),
        (["bench", "--bogus"], "--bogus"),
        (["bench", "--suite", "songs"], "the suites are 'paper' and 'tables'"),
        (["bench", "--suite", "tables"], "needs a folder with tables"),
    ],
)
def test_errors_of_use_are_one_line(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = failing(arguments, capsys)
    assert message.startswith("Error: ")
    assert reason in message


def test_errors_leave_earlier_results_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bench-results").mkdir()
    earlier = tmp_path / "bench-results" / "results.jsonl"
    earlier.write_text("precious")
    failing(["bench", "wine"], capsys)
    assert earlier.read_text() == "precious"


def test_a_damaged_file_is_an_error_of_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "wine.npz").write_bytes(b"nothing")
    assert "is not the dataset 'wine'" in failing(["bench", "wine", "--quiet"], capsys)


def test_our_own_mistakes_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(cli.bench, "_run", broken)
    with pytest.raises(ValueError, match="a bug"):
        cli.main(QUICK)


def test_datasets_lists_every_name_and_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "wine.npz").touch()
    outcome = CliRunner().invoke(cli.app, ["datasets"])
    rows = {line.split()[0]: line for line in outcome.stdout.splitlines() if line.strip()}
    assert set(datasets.names()) <= set(rows)
    assert "built in" in rows["diabetes"]
    assert "no file" in rows["imdb"]
    assert "download" in rows["forest"]
    assert rows["wine"].split()[3] == "file"
    assert str(tmp_path / "data") in outcome.stdout


def test_version() -> None:
    outcome = CliRunner().invoke(cli.app, ["--version"])
    assert outcome.stdout == f"kernelsieve {kernelsieve.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["bench", "--help"]])
def test_help_shows_examples_in_80_columns(arguments: list[str]) -> None:
    outcome = CliRunner().invoke(cli.app, arguments)
    assert outcome.exit_code == 0
    assert "Examples" in outcome.stdout
    assert re.search(r"^ +kernelsieve bench", outcome.stdout, re.MULTILINE)
    assert max(map(len, outcome.stdout.splitlines())) <= 80


def test_help_is_quick_because_it_imports_nothing_heavy() -> None:
    assert heavy_imports(["--help"]) == []


def test_module_and_script_are_the_same_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kernelsieve", "bench", "nowhere"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert done.returncode == 2
    assert done.stderr.startswith("Error: unknown dataset 'nowhere'")
    assert "Traceback" not in done.stderr


# --- what the README promises -------------------------------------------------------------------


def readme_commands() -> tuple[str, str]:
    """The two commands on the README's first screen: run, and test."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("python3 -m venv")]
    assert len(lines) == 2
    assert text.splitlines().index(lines[1]) < 40
    return lines[0], lines[1]


def test_ci_runs_the_readmes_test_command() -> None:
    _, test = readme_commands()
    assert test in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_readme_run_command_is_this_program() -> None:
    run, _ = readme_commands()
    assert run.endswith(".venv/bin/kernelsieve bench")


def test_readme_python_runs() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        done = subprocess.run(
            [sys.executable, "-c", block], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        # Each printed line stands in the README as a comment.
        promised = re.findall(r"print\(.*\)  # (.*)$", block, re.MULTILINE)
        assert done.stdout.splitlines() == promised
