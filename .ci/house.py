"""Measure how the package is built: rooms, imports, and the files that one row walks through.

    python .ci/house.py              # the package of this checkout, as a table
    python .ci/house.py --src DIR    # that of another checkout, e.g. an older one
    python .ci/house.py --json       # the same as JSON, with the files by name

A code line is a line that holds a token that is neither a comment nor a docstring. A file is on the
path of a fit (of a prediction) if one of its Python functions runs during it, imports apart.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import subprocess
import sys
import tokenize
from pathlib import Path

PACKAGE = "kernelsieve"
PATHS = """
import json, sys
import numpy as np
root = sys.argv[1]
from {package} import AdaptiveFeatures, KernelRidge
X = np.random.default_rng(0).normal(size=(6000, 8)); y = X[:, 0] * X[:, 1]
model = KernelRidge(AdaptiveFeatures(500, random_state=0, n_jobs=1), n_jobs=1)
model.fit(X[:600], y[:600]).predict(X[:600])  # whatever is imported late is imported now
from {package} import _parallel
_parallel._pool.cache_clear()  # workers that start from now on are watched, too
def walk(call):
    seen = set()
    def look(frame, event, argument):
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(root) and frame.f_code.co_name != "<module>":
            seen.add(name[len(root) + 1:])
    import threading
    threading.setprofile_all_threads(look) if hasattr(threading, "setprofile_all_threads") else None
    threading.setprofile(look); sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None); threading.setprofile(None)
    return sorted(seen)
print(json.dumps([walk(lambda: model.fit(X, y)), walk(lambda: model.predict(X))]))
"""


def modules(source: Path) -> dict[str, Path]:
    """Dotted names of all modules below ``source``."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = [PACKAGE, *path.relative_to(source).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: dict[str, Path]) -> set[tuple[str, str]]:
    """(module of ours, imported name) of every import in a file, those for types alone left out."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[tuple[str, str]] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.update((alias.name, "") for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) + 1 - node.level]
            origin = ".".join([*(base if node.level else []), *filter(None, [node.module])])
            for alias in node.names:
                inner = f"{origin}.{alias.name}"
                if inner in known:
                    found.add((inner, ""))
                elif origin in known:
                    found.add((origin, alias.name))
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return found


def room(module: str) -> str:
    """The package or module directly below ours that a module belongs to."""
    return module.split(".")[1] if "." in module else "__init__"


def private_imports(graph: dict[str, set[tuple[str, str]]]) -> list[str]:
    """Imports of a private module or name of another room (shared helpers at the top apart)."""
    found = []
    for name, used in graph.items():
        for module, what in used:
            inside = module.split(".")[2:]
            private = any(part.startswith("_") for part in inside) or (
                what.startswith("_") and not what.startswith("__")
            )
            if room(module) != room(name) and private and room(module) != "_native":
                found.append(f"{name} -> {module}{'.' + what if what else ''}")
    return sorted(found)


def longest_chain(graph: dict[str, set[tuple[str, str]]]) -> list[str]:
    """The longest chain of imports, each module once."""
    best: dict[str, list[str]] = {}

    def chain(name: str, above: tuple[str, ...]) -> list[str]:
        if name not in best:
            below = [m for m, _ in graph[name] if m not in above and m != name]
            tails = [chain(m, (*above, name)) for m in below if room(m) != "__init__"]
            best[name] = [name, *max(tails, key=len, default=[])]
        return best[name]

    return max((chain(name, ()) for name in graph if room(name) != "__init__"), key=len)


def code_lines(path: Path) -> int:
    """Lines that hold code: no blank lines, comments or docstrings."""
    text = path.read_text(encoding="utf-8")
    lines: set[int] = set()
    skipped = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and body:
            first = body[0]
            value = first.value if isinstance(first, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def methods_of(known: dict[str, Path], class_name: str) -> int:
    """How many methods and properties a class defines itself."""
    for path in known.values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name == class_name:
                return sum(isinstance(item, ast.FunctionDef) for item in node.body)
    return 0


def walked(source: Path) -> tuple[list[str], list[str]]:
    """The files that a fit, and a prediction, walk through."""
    code = f"import sys; sys.path.insert(0, {str(source.parent)!r})" + PATHS.format(package=PACKAGE)
    done = subprocess.run(
        [sys.executable, "-c", code, str(source)], capture_output=True, text=True, check=True
    )
    fit, predict = json.loads(done.stdout)
    return fit, predict


def measure(source: Path) -> dict[str, object]:
    known = modules(source)
    graph = {name: imports(name, path, known) for name, path in known.items()}
    edges = {(room(n), room(m)) for n, used in graph.items() for m, _ in used} - {
        (room(n), room(n)) for n in graph
    }
    fit, predict = walked(source)
    return {
        "modules": len(known),
        "rooms": len({room(name) for name in known}),
        "edges between rooms": len(edges),
        "private imports across rooms": private_imports(graph),
        "files on the path of a fit": fit,
        "files on the path of a prediction": predict,
        "longest chain of imports": longest_chain(graph),
        "code lines": sum(map(code_lines, known.values())),
        "methods of SampledFeatures": methods_of(known, "SampledFeatures"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--src", type=Path, default=Path(__file__).parents[1] / "src")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure((options.src / PACKAGE).resolve())
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for what, value in found.items():
        print(f"{what:34} {len(value) if isinstance(value, list) else value:>6}")


if __name__ == "__main__":
    main()
