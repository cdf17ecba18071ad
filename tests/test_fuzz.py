"""A few cases of the fuzz commands; CONTRIBUTING.md has the lines that run many more."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from support import command_line_cases, onnx_cases


def test_random_use_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        counts = command_line_cases.run(60, 1, seed=11, keep=tmp_path)
    assert counts["WRONG"] == 0, capsys.readouterr().out
    assert counts["fit: done"] > 2
    assert counts["predict: done"] > 2


def test_random_tables_as_onnx_files(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    counts = onnx_cases.run(12, seed=5)
    assert counts["WRONG"] == 0, capsys.readouterr().out
    assert counts["compared"] >= 8
