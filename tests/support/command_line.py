"""The command line as a user meets it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kernelsieve import cli

HEAVY = ("numpy", "scipy", "sklearn", "numba", "matplotlib", "pyarrow", "pandas")


def failing(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What `kernelsieve <arguments>` complains of: one line on stderr, exit code 2, no more."""
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    assert exit_.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def heavy_imports(arguments: list[str]) -> list[str]:
    """Which slow packages a command imports in a process of its own."""
    code = (
        f"import sys\nfrom kernelsieve.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    pass\n"
        f"print('imported', *(m for m in {HEAVY!r} if m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.splitlines()[-1].split()[1:]
