"""The command line, as a user meets it, and the commands that the README promises."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import kernelsieve
from kernelsieve import cli, datasets
from kernelsieve.bench import Result

ROOT = Path(__file__).parent.parent
QUICK = ["bench", "diabetes", "--methods", "linear,fourier", "--features", "20,40", "--seeds", "2"]


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """80 columns without colours, and a folder of its own."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("KERNELSIEVE_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def failing(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What `kernelsieve <arguments>` complains of: one line on stderr, exit code 2, no more."""
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    assert exit_.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_bench_prints_the_table_and_writes_the_files(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(cli.app, [*QUICK, "--out", "results"])
    assert outcome.exit_code == 0, outcome.output
    lines = outcome.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "diabetes: 332 training rows, 110 test rows, 10 inputs"
    assert [line.split()[0] for line in lines[3:6]] == ["linear", "fourier", "40"]
    assert lines[-4].replace("\\", "/") == "Picture: results/bench.png"
    assert re.fullmatch(r"Took: .* (ms|s)", lines[-1])
    out = tmp_path / "results"
    assert sorted(file.name for file in out.iterdir()) == ["bench.png", "results.jsonl", "table.md"]
    records = [Result.from_json(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert len(records) == 2 * (1 + 2)


def test_bench_json_is_json_and_nothing_else() -> None:
    outcome = CliRunner().invoke(cli.app, [*QUICK, "--json"])
    records = [Result(**record) for record in json.loads(outcome.stdout)]
    assert {record.method for record in records} == {"linear", "fourier"}


def test_bench_quiet_prints_the_table_only() -> None:
    outcome = CliRunner().invoke(cli.app, [*QUICK, "--quiet"])
    assert "fourier" in outcome.stdout
    assert "Picture" not in outcome.output
    assert outcome.stderr == ""


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


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["bench", "wien"], "unknown dataset 'wien': did you mean 'wine'?"),
        (["bench", "wine"], "needs the file wine.npz"),
        (["bench", "--methods", "forier"], "did you mean 'fourier'?"),
        (["bench", "--methods", ","], "nothing to compare"),
        (["bench", "--features", "250,many"], "--features 250,many: give whole numbers"),
        (["bench", "--features", "-5"], "features=-5 must be >= 1"),
        (["bench", "--seeds", "few"], "'--seeds'"),
        (["bench", "--seeds", "0"], "seeds=0 must be >= 1"),
        (["bench", "--threads", "0"], "threads=0 must be >= 1"),
        (["bench", "--out", __file__], "cannot make this folder"),
        (["sieve"], "No such command 'sieve'"),
        (["bench", "--bogus"], "--bogus"),
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

    monkeypatch.setattr(cli, "_run", broken)
    with pytest.raises(ValueError, match="a bug"):
        cli.main(QUICK)


def test_datasets_lists_every_name_and_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "wine.npz").touch()
    outcome = CliRunner().invoke(cli.app, ["datasets"])
    rows = {line.split()[0]: line for line in outcome.stdout.splitlines() if line.strip()}
    assert set(datasets.names()) <= set(rows)
    assert "built in" in rows["diabetes"]
    assert "no file" in rows["forest"]
    assert "no file" not in rows["wine"]
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
    code = (
        "import sys\nfrom kernelsieve.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'numba', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


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
