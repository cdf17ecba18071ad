"""The Python and the commands in the pages run as they are printed."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import kernelsieve
from kernelsieve.cli import main

ROOT = Path(__file__).parents[1]
NEEDS_NETWORK = ("python3 -m venv", ". .venv", "pip install")  # run by .ci/newcomer


PAGES = [
    "README.md",
    "docs/getting-started.md",
    "docs/model-files.md",
    "docs/models.md",
    "docs/sparse-data.md",
]


@pytest.mark.filterwarnings("default::kernelsieve.tables.TableNotice")
@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_as_printed(
    page: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```(python|shell)\n(.*?)```", text, flags=re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    for kind, block in blocks:
        if kind == "python":
            exec(compile(block, page, "exec"), names)
        else:
            for line in block.splitlines():
                run_command(line)
    printed = capsys.readouterr().out.splitlines()
    for expected in re.findall(r"^print\(.*\)  # (.*)$", text, flags=re.MULTILINE):
        assert expected in printed


def run_command(line: str) -> None:
    """A line of a shell block: ours is run here, those that need the network are not."""
    if line.startswith(NEEDS_NETWORK):
        return
    program, *arguments = shlex.split(line)
    assert program == "kernelsieve", line
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0, line


@pytest.mark.parametrize(
    "page", ["README.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
)
def test_links_lead_to_files(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("http://", "https://")):
            assert ((ROOT / page).parent / target).exists(), target


def test_contributing_names_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w./]+(?:/|\.py|\.md|\.toml))`", text)
    assert len(named) > 20
    places = (ROOT, ROOT / "src" / "kernelsieve")
    assert not [name for name in named if not any((place / name).exists() for place in places)]


MODULES = (
    "bench",
    "dask",
    "datasets",
    "diagnostics",
    "explanation",
    "features",
    "kernels",
    "learning",
    "models",
    "persistence",
    "plots",
    "paper",
    "sketches",
    "sources",
    "tables",
    "testing",
)
CONSTANTS = {"__version__", "METHODS", "PAPER_METHODS", "PEERS", "ANY", "DATA", "FORMAT"}


def test_the_reference_has_all_public_names() -> None:
    """Each once: a name of the front door without its module."""
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^   ([A-Za-z][\w.]*)$", text, flags=re.MULTILINE)
    front = set(kernelsieve.__all__) - CONSTANTS
    homes = {getattr(kernelsieve, name) for name in front}
    names = set(front)
    for module in MODULES:
        home = importlib.import_module(f"kernelsieve.{module}")
        public = getattr(home, "__all__", None) or [n for n in vars(home) if n.startswith("plot_")]
        names |= {
            f"{module}.{name}"
            for name in set(public) - CONSTANTS
            if getattr(home, name) not in homes
        }
    assert sorted(listed) == sorted(names)


def test_the_check_of_built_pages_finds_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text('<h1 id="there">Other</h1>')
    (tmp_path / "index.html").write_text(
        '<a href="other.html#there">good</a> <a href="https://example.org/">elsewhere</a>'
        '<a href="gone.html">a</a> <a href="other.html#gone">b</a> <a href="#gone">c</a>'
        '<script src="https://example.org/x.js"></script><img src="gone.png">'
    )
    checked = subprocess.run(
        [sys.executable, ROOT / "docs" / "check_links.py", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 1
    assert checked.stdout.splitlines() == [
        "index.html: loads https://example.org/x.js from the network",
        "index.html: gone.html leads to no file",
        "index.html: other.html#gone leads to no place in its page",
        "index.html: #gone leads to no place in its page",
        "index.html: gone.png leads to no file",
    ]
