"""What .ci/house.py counts: planted uses are found, and what looks like them is not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

import kernelsieve

HOUSE = Path(__file__).parents[1] / ".ci" / "house.py"


@pytest.fixture(scope="module")
def house() -> ModuleType:
    if not HOUSE.exists():
        pytest.skip("the tools of the repository are not in an installed package")
    spec = importlib.util.spec_from_file_location("house", HOUSE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["house"] = module
    spec.loader.exec_module(module)
    return module


def plant(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_private_attributes_of_other_rooms(house: ModuleType, tmp_path: Path) -> None:
    source = plant(
        tmp_path,
        {
            "kernels/base.py": (
                "class Kernel:\n    _scale = 1\n    def _gram(self): self._kept = 2\n"
            ),
            "models/ridge.py": (
                "class Ridge:\n"
                "    def _own(self, other): return other._own, self._scale, super()._gram\n"
                "def look(kernel, array): return kernel._scale, array._mgr, kernel.__class__\n"
                "def ask(kernel): return getattr(kernel, '_kept', None)\n"
            ),
        },
    )
    assert house.private_attributes(house.modules(source)) == [
        "models/ridge.py:3: _scale",
        "models/ridge.py:4: _kept",
    ]


def test_no_part_uses_private_attributes_of_another(house: ModuleType) -> None:
    found = house.private_attributes(house.modules(Path(kernelsieve.__file__).parent))
    known = [place for place in found if place.endswith(": _posterior")]  # explanation of a ridge
    assert not set(found) - set(known), "give them public names:\n" + "\n".join(found)


def test_type_switches_outside_their_rooms(house: ModuleType, tmp_path: Path) -> None:
    source = plant(
        tmp_path,
        {
            "kernels/base.py": "class Kernel: ...\nclass Gaussian(Kernel): ...\n"
            "def f(k): return isinstance(k, Gaussian)\n",  # at home
            "features/base.py": "class FeatureMap: ...\nclass Fourier(FeatureMap): ...\n",
            "models/ridge.py": (
                "SMOOTH = (Gaussian, int)\n"
                "def f(k, Z):\n"
                "    isinstance(k, Kernel), isinstance(k, float | kernels.Gaussian)\n"
                "    isinstance(k, SMOOTH), type(Z) is Fourier\n"
                "    match Z:\n"
                "        case Fourier(): ...\n"
            ),
        },
    )
    found = house.type_switches(house.modules(source))
    assert sorted(place.split(": ")[0] for place in found) == [
        "models/ridge.py:3",
        "models/ridge.py:4",
        "models/ridge.py:4",
        "models/ridge.py:6",
    ]


def test_numbers_names_and_annotations(house: ModuleType, tmp_path: Path) -> None:
    source = plant(
        tmp_path,
        {
            "a.py": "ROWS = 2**10\nGRID: tuple[float, ...] = (1, -2.5)\nNAME = 'x'\nON = True\n"
            "class View: ...\n",
            "b.py": (
                "ROWS = 5\n"
                "class _View: ...\n"
                "def f(X: Any, Z: NDArray[Any], y: dict[str, Any]) -> None: ...\n"
                "def _g(X: Any): ...\n"
                "x = f(1)  # type: ignore\n"
            ),
        },
    )
    known = house.modules(source)
    constants = house.numeric_constants(known)
    assert len(constants) == 3
    assert house.repeated_constants(constants) == ["ROWS: a.py, b.py"]
    assert house.repeated_classes(known) == ["View: a.py, b.py"]
    assert house.untyped(known) == ["b.py:3: f(X)", "b.py:3: f(y)"]
    assert house.ignored_types(known) == ["b.py:5"]
