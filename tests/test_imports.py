"""Imports point down only, and to public names: the one place that says which part may use which.

A part is a module or package directly below ``kernelsieve``; a new one needs a row in ``MAY_USE``.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import kernelsieve

PACKAGE = "kernelsieve"
SOURCE = Path(kernelsieve.__file__).parent

# Private helpers, lowest first: each may use those before it, and every part above may use all.
HELPERS = ("_files", "_progress", "_random", "_parallel", "_validation", "_state")
# Rooms, lowest first: what a part may use of those below it. PRODUCTS is the walk of a row.
BASE = {"_native", *HELPERS}
DATA = BASE | {"sources", "linalg"}
KERNELS = DATA | {"kernels", "sketches"}
PRODUCTS = KERNELS | {"products", "engine"}
ESTIMATORS = PRODUCTS | {"paper", "diagnostics", "features"}
EVERYTHING = {"*"}

# Lowest first: a part uses rows above its own.
MAY_USE: dict[str, set[str]] = {
    "_native": set(),
    **{helper: {"_native", *HELPERS[:i]} for i, helper in enumerate(HELPERS)},
    "sources": BASE,
    "linalg": BASE,
    "kernels": DATA,
    "sketches": BASE,
    "products": DATA | {"kernels"},
    "diagnostics": DATA | {"kernels"},
    "engine": DATA | {"kernels", "products", "diagnostics"},
    "paper": PRODUCTS,
    "features": PRODUCTS | {"paper", "diagnostics"},
    "learning": ESTIMATORS,
    "models": ESTIMATORS | {"learning"},
    "plots": ESTIMATORS | {"models"},
    "explanation": ESTIMATORS | {"learning", "models", "plots"},
    "tables": ESTIMATORS | {"learning", "models", "explanation"},
    "persistence": ESTIMATORS | {"learning", "models", "tables", "__init__"},  # for the version
    "export": ESTIMATORS | {"learning", "models", "tables", "__init__"},  # for the version
    "datasets": {*HELPERS, "sources"},
    # The top: may use anything, and nobody may use them (cli alone may use bench).
    "dask": EVERYTHING,
    "bench": EVERYTHING,
    "testing": EVERYTHING,
    "cli": EVERYTHING,
    "__main__": {"cli"},
    "__init__": EVERYTHING,  # lazily: see test_import_is_light
}
USED_BY = {
    "dask": {"cli"},
    "bench": {"cli"},
    "testing": set(),
    "cli": {"__main__"},
    "__main__": set(),
}

# Imported inside functions only: each of them is optional or slow to import.
LAZY = {
    "matplotlib",
    "onnx",
    "onnxruntime",
    "openpyxl",
    "dask",
    "distributed",
    "pandas",
    "polars",
    "pooch",
    "pyarrow",
    "shap",
    "skops",
}


def violations(source: Path) -> list[str]:
    """Every import under ``source`` that breaks a rule, as ``file:line: reason``."""
    found = []
    for path in sorted(source.rglob("*.py")):
        part = path.relative_to(source).parts[0].removesuffix(".py")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        where = path.relative_to(source.parent)
        reasons = [
            *((line, misuse(part, used)) for line, used in own_imports(tree, path, source)),
            *((line, f"{name} must be imported inside a function") for line, name in lazy(tree)),
            *(
                (line, f"{name} is private to another part: give it a public name")
                for line, name in private_imports(tree, path, source)
            ),
        ]
        if part not in MAY_USE:
            reasons.append((1, f"{part} has no row in MAY_USE of tests/test_imports.py"))
        found += [f"{where}:{line}: {reason}" for line, reason in reasons if reason]
    return found


def misuse(part: str, used: str) -> str | None:
    """Why ``part`` may not import ``used``, or None if it may."""
    allowed = MAY_USE.get(part, set())
    if used == part:
        return None
    if used in USED_BY and part not in USED_BY[used]:
        return f"{part} may not use {used}: nobody below may"
    if used in allowed or allowed == EVERYTHING:
        return None
    return f"{part} may not use {used}: imports point down only"


def own_imports(tree: ast.AST, path: Path, source: Path) -> Iterator[tuple[int, str]]:
    """(line, part) of each import of ours, wherever in the file it stands."""
    for line, origin, name in imported(tree, path, source):
        dotted = f"{origin}.{name}" if origin == PACKAGE else origin
        yield line, part_of(dotted.partition(".")[2], source)


def imported(tree: ast.AST, path: Path, source: Path) -> Iterator[tuple[int, str, str]]:
    """(line, module, name) of each import of ours; the name is empty for a whole module."""
    package = [PACKAGE, *path.relative_to(source).parts[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            found = [(origin, alias.name) for alias in node.names]
        else:
            continue
        ours = (each for each in found if each[0].partition(".")[0] == PACKAGE)
        yield from ((node.lineno, *each) for each in ours)


def private_imports(tree: ast.AST, path: Path, source: Path) -> Iterator[tuple[int, str]]:
    """(line, name) of each import of a private module or name of another part.

    The helpers and the native loops belong to everybody, whatever their names.
    """
    part = path.relative_to(source).parts[0].removesuffix(".py")
    for line, origin, name in imported(tree, path, source):
        dotted = [*origin.split("."), *([name] if name else [])]
        used = part_of(".".join(dotted[1:]), source)
        inside = dotted[2:] if used in dotted[1:2] else dotted[1:]
        private = any(each.startswith("_") and not each.startswith("__") for each in inside)
        if private and used not in (part, "_native"):
            yield line, ".".join(dotted[1:])


def part_of(dotted: str, source: Path) -> str:
    """The part that ``kernelsieve.<dotted>`` lives in; names of ``__init__`` itself are its own."""
    first = dotted.partition(".")[0]
    is_module = (source / first).is_dir() or (source / f"{first}.py").is_file()
    return first if first and is_module else "__init__"


def lazy(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, package) of each optional package imported when the module itself is."""
    for node in at_import_time(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            continue
        yield from ((node.lineno, n) for n in names if n.partition(".")[0] in LAZY)


def at_import_time(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run on import: not the bodies of functions, not ``if TYPE_CHECKING``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from at_import_time(child)


def test_the_table_is_lowest_first() -> None:
    """So that its imports point down: no two parts may use each other, however indirectly."""
    parts = [part for part in MAY_USE if MAY_USE[part] != EVERYTHING and part != "__main__"]
    for i, part in enumerate(parts):
        higher = MAY_USE[part] - set(parts[:i]) - {"__init__"}
        assert not higher, f"{part} is above {sorted(higher)} in MAY_USE"


def test_imports_point_down() -> None:
    found = violations(SOURCE)
    assert not found, "\n".join(found)


def plant(tmp_path: Path, files: dict[str, str]) -> Path:
    """A small package with the given files."""
    source = tmp_path / PACKAGE
    for name, text in {"__init__.py": "", **files}.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return source


def test_check_finds_planted_violations(tmp_path: Path) -> None:
    source = plant(
        tmp_path,
        {
            "_native/__init__.py": "",
            "_native/loops.py": "from kernelsieve import kernels\n",  # up
            "_random.py": "import kernelsieve._validation\n",  # up among the helpers
            "_validation.py": "",
            "kernels.py": "import numpy\nimport matplotlib.pyplot as plt\n",  # optional, eager
            "features/__init__.py": "",
            "features/fourier.py": "def f():\n    from ..models import ridge\n",  # up, later
            "models/__init__.py": "from kernelsieve import KernelRidge\n",  # our own front door
            "models/ridge.py": "try:\n    from pandas import DataFrame\nexcept ImportError: ...\n",
            "datasets.py": "from kernelsieve.bench import runner\n",  # nobody may
            "bench/__init__.py": "",
            "surprise.py": "",  # not in the table
        },
    )
    assert violations(source) == [
        "kernelsieve/_native/loops.py:1: _native may not use kernels: imports point down only",
        "kernelsieve/_random.py:1: _random may not use _validation: imports point down only",
        "kernelsieve/datasets.py:1: datasets may not use bench: nobody below may",
        "kernelsieve/features/fourier.py:2: features may not use models: imports point down only",
        "kernelsieve/kernels.py:2: matplotlib.pyplot must be imported inside a function",
        "kernelsieve/models/__init__.py:1: models may not use __init__: imports point down only",
        "kernelsieve/models/ridge.py:2: pandas must be imported inside a function",
        "kernelsieve/surprise.py:1: surprise has no row in MAY_USE of tests/test_imports.py",
    ]


def test_check_finds_private_imports(tmp_path: Path) -> None:
    source = plant(
        tmp_path,
        {
            "kernels/__init__.py": "",
            "kernels/_tiles.py": "",
            "kernels/base.py": "from kernelsieve.kernels._tiles import tile, _inner\n",  # its own
            "features/__init__.py": "",
            "features/fourier.py": "from kernelsieve.kernels._tiles import tile\n",
            "features/nystrom.py": "from ..kernels import _tiles, base\n",
            "features/row_norm.py": "def f():\n    from ..kernels.base import Kernel, _name\n",
            "models.py": "import kernelsieve.kernels._tiles\nimport kernelsieve._random\n",
            "_random.py": "def _key(): ...\n",
            "tables.py": "from kernelsieve._random import _key, stream\n",
        },
    )
    reason = "is private to another part: give it a public name"
    assert violations(source) == [
        f"kernelsieve/features/fourier.py:1: kernels._tiles.tile {reason}",
        f"kernelsieve/features/nystrom.py:1: kernels._tiles {reason}",
        f"kernelsieve/features/row_norm.py:2: kernels.base._name {reason}",
        f"kernelsieve/models.py:1: kernels._tiles {reason}",
        f"kernelsieve/tables.py:1: _random._key {reason}",
    ]


def test_check_accepts_what_the_rules_allow(tmp_path: Path) -> None:
    source = plant(
        tmp_path,
        {
            "_native/__init__.py": "from . import loops\n",
            "_native/loops.py": "import numba\n",
            "kernels.py": "from ._native import loops\nfrom kernelsieve._native.loops import x\n",
            "features/__init__.py": "from kernelsieve.features.base import FeatureMap\n",
            "features/base.py": "from .. import kernels\n",
            "plots.py": (
                "from typing import TYPE_CHECKING\n"
                "if TYPE_CHECKING:\n    import matplotlib\n"
                "def draw():\n    import matplotlib.pyplot\n"
            ),
            "bench/__init__.py": "from kernelsieve import KernelRidge, datasets\n",
            "datasets.py": "",
            "cli.py": "from kernelsieve import __version__\nfrom kernelsieve import bench\n",
        },
    )
    assert violations(source) == []


def test_durations_do_not_import_the_benchmarks() -> None:
    code = (
        "import sys; from kernelsieve.cli import tables; tables.duration(1.0);"
        "print('kernelsieve.bench' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"


def test_import_is_light() -> None:
    """`import kernelsieve` costs next to nothing: the heavy packages wait for their first use."""
    heavy = sorted(LAZY | {"numba", "scipy", "sklearn"})
    code = f"import sys, kernelsieve; print([m for m in {heavy!r} if m in sys.modules])"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert loaded.stdout.strip() == "[]"


def test_test_modules_import_no_test_modules() -> None:
    """What tests share lives in tests/support, in kernelsieve.testing or in tests/oracles.py."""
    here = Path(__file__).parent
    modules = {path.stem for path in here.glob("*.py")} - {"oracles"}
    found = [
        f"{path.name}:{node.lineno}"
        for path in [*here.glob("*.py"), *(here / "support").glob("*.py")]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.ImportFrom) and node.module in modules)
        or (isinstance(node, ast.Import) and {alias.name for alias in node.names} & modules)
    ]
    assert not found, found
