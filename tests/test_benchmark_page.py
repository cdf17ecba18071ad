"""The page of figures: what it says of results that are there, missing, or not what it needs."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PAGE = Path(__file__).parents[1] / "benchmarks" / "page.py"


@pytest.fixture(scope="module")
def page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_page", PAGE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def put(folder: Path, name: str, records: list[dict[str, Any]]) -> None:
    content = {"records": records, "versions": {}, "arguments": {}, "checks": []}
    (folder / f"{name}.json").write_text(json.dumps(content))


def dense_speed(folder: Path, ours: float) -> None:
    put(
        folder,
        "dense_speed",
        [
            {"method": "row norm", "fit_transform": ours, "transform": 0.2},
            {"method": "RBFSampler", "fit_transform": 1.0, "transform": 1.0},
        ],
    )


def row(page: ModuleType, folder: Path, what: str) -> str:
    return next(line for line in page.summary(folder).splitlines() if what in line)


def test_what_has_no_file_is_not_measured(page: ModuleType, tmp_path: Path) -> None:
    rows = page.summary(tmp_path).splitlines()[2:]
    assert len(rows) == len(page.FIGURES)
    assert all("not measured" in line for line in rows)
    assert page.misses(tmp_path) == "None.\n"


def test_a_target_that_is_met_and_one_that_is_missed(page: ModuleType, tmp_path: Path) -> None:
    dense_speed(tmp_path, ours=0.4)
    assert "| 0.4 | 1 | 0.4 | **missed** |" in row(page, tmp_path, "`fit_transform`")
    assert "| 0.2 | 1 | 0.2 | met |" in row(page, tmp_path, "`transform`")
    assert page.misses(tmp_path).count("Limited by:") == 1
    dense_speed(tmp_path, ours=0.3)
    assert page.misses(tmp_path) == "None.\n"


def test_a_file_without_what_is_needed_is_named(page: ModuleType, tmp_path: Path) -> None:
    put(tmp_path, "dense_speed", [{"method": "row norm"}])
    with pytest.raises(page.ResultError, match=r"dense_speed\.json lacks .*dense_speed\.py again"):
        page.summary(tmp_path)
    (tmp_path / "scaling.json").write_text("{")
    with pytest.raises(page.ResultError, match=r"scaling\.json: not what benchmarks/scaling\.py"):
        page.Result.read("scaling", tmp_path)


def test_features_and_time_to_reach_an_error(page: ModuleType, tmp_path: Path) -> None:
    def records(method: str, errors: list[float], seconds: float) -> list[dict[str, Any]]:
        return [
            {"data": "uji", "method": method, "s": s, "rmse": e, "fit_seconds": seconds * s}
            for s, e in zip((100, 200, 400), errors, strict=True)
        ]

    fourier = records("Fourier", [5.0, 4.0, 3.0], 1.0)
    ours = records("adaptive", [4.0, 3.0, 2.0], 0.1) + records("row norm", [9.0, 9.0, 9.0], 0.1)
    put(tmp_path, "auto", fourier + ours)
    result = page.Result.read("auto", tmp_path)
    (size,) = page.sizes_to_fourier(result)
    assert (size.ours, size.peer, size.met) == (200, 400, False)  # 1/2, not 1/5
    (time,) = page.times_to_fourier(result)
    assert (time.ours, time.peer, time.met) == (20.0, 400.0, True)
    put(tmp_path, "auto", fourier + [{**r, "rmse": 9.0} for r in ours])
    (size,) = page.sizes_to_fourier(page.Result.read("auto", tmp_path))
    assert math.isinf(size.ratio)
    assert not size.met
    assert "not reached" in row(page, tmp_path, "smallest s that reaches")


def test_the_results_of_this_repository_make_a_page(page: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "benchmarks.md").write_text(f"# Ours\n\n{page.MARKER}\n\nold")
    page.write(tmp_path)
    text = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    assert text.startswith("# Ours\n")
    assert "old" not in text.splitlines()
    for figure in page.FIGURES:
        assert figure.what in text
    assert (tmp_path / "figures" / "overview.png").stat().st_size > 10_000


def test_the_page_in_the_repository_shows_the_present_results(page: ModuleType) -> None:
    """It reads the same in the repository as in the built pages, pictures included."""
    docs = Path(page.__file__).parents[1] / "docs"
    shown = (docs / "benchmarks.md").read_text(encoding="utf-8").partition(page.MARKER)[2]
    assert shown.strip() == page.text().strip(), "run python benchmarks/page.py docs"
    for name in page.drawn():
        assert (docs / "figures" / f"{name}.png").stat().st_size > 10_000
