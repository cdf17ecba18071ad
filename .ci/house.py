"""Measure how the package is built: rooms, imports, and the files that one row walks through.

    python .ci/house.py              # the package of this checkout, as a table
    python .ci/house.py --src DIR    # that of another checkout, e.g. an older one
    python .ci/house.py --json       # the same as JSON, with every place by name

How things are counted:

- A code line holds a token that is neither a comment nor a docstring.
- A file is on the walk of a call if one of its Python functions runs during it, imports apart.
- A private attribute of another room is ``thing._name``, where ``thing`` is neither ``self`` nor
  ``cls``, no file of the own room defines ``_name``, and another room does.
- A type switch is a question which kernel or feature map something is (``isinstance``, ``match``,
  ``type(x) is``), outside ``kernels/`` and ``features/``. Whether it is one at all is none.
- A numeric constant is a module's name for an expression of numbers alone, or for a tuple of them.
- ``Any`` in a public signature is an annotation of a parameter or result of a public function that
  says ``Any`` other than as the numbers' type in ``NDArray[Any]``.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "kernelsieve"
ROOTS = ("Kernel", "FeatureMap")  # whose subclasses are not to be told apart by their types
HOMES = {"kernels", "features"}  # where they may be
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
WALKS = """
import contextlib, io, json, sys, tempfile, threading, traceback
from pathlib import Path
import numpy as np
from {package} import KernelRidgeCV, _parallel
from {package}.cli import app
root = sys.argv[1]
X = np.random.default_rng(0).normal(size=(600, 5))
y = X[:, 0] * X[:, 1] + X[:, 2]
model = KernelRidgeCV(random_state=0, n_jobs=1)
folder = Path(tempfile.mkdtemp())
table = folder / "table.csv"
np.savetxt(table, np.c_[X, y], delimiter=",", header="a,b,c,d,e,target", comments="")

def command():
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        arguments = ["fit", str(table), "--target", "target", "--out", str(folder / "model.ks")]
        app(arguments, standalone_mode=False)

def walk(call):
    try:
        call()  # whatever is imported late is imported now
    except Exception:
        traceback.print_exc()
        return None
    _parallel._pool.cache_clear()  # workers that start from now on are watched, too
    seen = set()
    def look(frame, event, argument):
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(root) and frame.f_code.co_name != "<module>":
            seen.add(name[len(root) + 1:])
    threading.setprofile(look)
    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return sorted(seen)

print(json.dumps({{
    "files on the walk of KernelRidgeCV().fit": walk(lambda: model.fit(X, y)),
    "files on the walk of its predict": walk(lambda: model.predict(X)),
    "files on the walk of `kernelsieve fit`": walk(command),
}}))
"""


@dataclass(frozen=True)
class Module:
    """A file of the package, read once."""

    name: str
    path: Path
    place: str  # of the file, below the package
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        return room(self.name)

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())


def modules(source: Path) -> dict[str, Module]:
    """All modules below ``source``, by their dotted names."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = [PACKAGE, *path.relative_to(source).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        found[name] = Module(name, path, str(path.relative_to(source)), text, ast.parse(text))
    return found


def room(module: str) -> str:
    """The package or module directly below ours that a module belongs to."""
    return module.split(".")[1] if "." in module else "__init__"


# --- imports -------------------------------------------------------------------------------------


def imports(module: Module, known: dict[str, Module]) -> set[tuple[str, str]]:
    """(module of ours, imported name) of every import in a file, those for types alone left out."""
    name = module.name
    package = name if module.path.name == "__init__.py" else name.rpartition(".")[0]
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

    visit(module.tree)
    return found


def private_imports(graph: dict[str, set[tuple[str, str]]]) -> list[str]:
    """Imports of a private module or name of another room (shared helpers at the top apart)."""
    found = []
    for name, used in graph.items():
        for module, what in used:
            inside = module.split(".")[2:]
            private = any(map(is_private, [*inside, what]))
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


# --- what one room knows of another --------------------------------------------------------------


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_attributes(known: dict[str, Module]) -> list[str]:
    """Uses of a private attribute that another room of ours defines, and the own one does not."""
    defined: dict[str, set[str]] = {}
    for module in known.values():
        defined.setdefault(module.room, set()).update(private_definitions(module.tree))
    found = []
    for module in known.values():
        others = set().union(*(names for home, names in defined.items() if home != module.room))
        foreign = others - defined[module.room]
        found += [
            f"{module.place}:{line}: {name}"
            for line, name in sorted(private_uses(module.tree))
            if name in foreign
        ]
    return found


def private_definitions(tree: ast.AST) -> Iterator[str]:
    """Private names of methods, of fields in class bodies, and of attributes of ``self``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, FUNCTIONS):
                    yield item.name
                elif isinstance(item, ast.Assign | ast.AnnAssign):
                    yield from map(ast.unparse, targets(item))
        elif isinstance(node, ast.Attribute) and stored_on_self(node):
            yield node.attr


def private_uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of private attributes of something other than ``self`` and ``cls``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not of_self(node.value):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"getattr", "hasattr"}:
            thing, name = node.args[:2]
            constant = isinstance(name, ast.Constant) and is_private(name.value)
            if constant and not of_self(thing):
                yield node.lineno, name.value


def of_self(node: ast.AST) -> bool:
    return ast.unparse(node) in {"self", "cls", "super()", "type(self)"}


def stored_on_self(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store) and of_self(node.value)


def targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def type_switches(known: dict[str, Module]) -> list[str]:
    """Questions about the class of a kernel or a map, outside the rooms where they live."""
    classes = subclasses(known)
    found = []
    for module in known.values():
        if module.room in HOMES:
            continue
        named = classes | names_for(module.tree, classes)
        found += [
            f"{module.place}:{node.lineno}: {ast.unparse(node).splitlines()[0]}"
            for node, asked in questions(module.tree)
            if (asked & named) - set(ROOTS)
        ]
    return found


def subclasses(known: dict[str, Module]) -> set[str]:
    """The names of the roots and of all classes below them, wherever they are defined."""
    bases = {
        node.name: {ast.unparse(base).split(".")[-1] for base in node.bases}
        for module in known.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    }
    found = set(ROOTS)
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found


def names_for(tree: ast.AST, classes: set[str]) -> set[str]:
    """Names that a module gives to some of the classes, such as a tuple or a union of them."""
    return {
        ast.unparse(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name) and class_names(node.value) & classes
    }


def questions(tree: ast.AST) -> Iterator[tuple[ast.AST, set[str]]]:
    """Each node that asks for a class, with the names of the classes that it asks for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"isinstance", "issubclass"}:
            yield node, class_names(node.args[1])
        elif isinstance(node, ast.MatchClass):
            yield node, class_names(node.cls)
        elif isinstance(node, ast.Compare) and ast.unparse(node.left).startswith("type("):
            yield node, class_names(node.comparators[0])


def class_names(node: ast.AST) -> set[str]:
    """The last parts of all names in an expression of classes: A, (A, m.B), A | B."""
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Attribute):
        return {node.attr}
    if isinstance(node, ast.Tuple | ast.BinOp):
        return set().union(*map(class_names, ast.iter_child_nodes(node)))
    return set()


# --- sizes ---------------------------------------------------------------------------------------


def code_lines(module: Module) -> int:
    """Lines that hold code: no blank lines, comments or docstrings."""
    lines: set[int] = set()
    skipped = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    for token in tokens(module):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(module.tree):
        body = getattr(node, "body", None)
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) and body:
            first = body[0]
            value = first.value if isinstance(first, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def tokens(module: Module) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(module.text).readline)


def largest_class(known: dict[str, Module]) -> tuple[int, str]:
    """The largest number of methods and properties that a class defines itself, and its name."""
    sizes = [
        (sum(isinstance(item, FUNCTIONS) for item in node.body), f"{module.place}: {node.name}")
        for module in known.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    ]
    return max(sizes)


def repeated_classes(known: dict[str, Module]) -> list[str]:
    """Names that several classes share, private ones with public ones."""
    homes: dict[str, list[str]] = {}
    for module in known.values():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name.lstrip("_"), []).append(module.place)
    return [f"{name}: {', '.join(found)}" for name, found in homes.items() if len(found) > 1]


def numeric_constants(known: dict[str, Module]) -> list[str]:
    """Names of numbers, or of tuples of numbers, at the top of modules."""
    return [
        f"{module.place}: {ast.unparse(node)}"
        for module in known.values()
        for node in module.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and is_number(node.value)
    ]


def repeated_constants(constants: list[str]) -> list[str]:
    """Names of numbers that several modules define."""
    homes: dict[str, list[str]] = {}
    for constant in constants:
        place, _, text = constant.partition(": ")
        homes.setdefault(text.split(" = ")[0].split(":")[0], []).append(place)
    return [f"{name}: {', '.join(found)}" for name, found in homes.items() if len(found) > 1]


def is_number(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    return isinstance(node, ast.Tuple) and bool(node.elts) and all(map(is_number, node.elts))


def untyped(known: dict[str, Module]) -> list[str]:
    """Parameters and results of public functions whose annotation says ``Any``."""
    return [
        f"{module.place}:{line}: {what}"
        for module in known.values()
        for function in public_functions(module.tree)
        for line, what, annotation in signature(function)
        if says_any(annotation)
    ]


def public_functions(tree: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Public functions and public methods of public classes, and what a class is called with."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node)
        elif isinstance(node, ast.FunctionDef) and not hidden(node.name):
            yield node


def hidden(name: str) -> bool:
    return name.startswith("_") and name not in {"__init__", "__call__"}


def signature(function: ast.FunctionDef) -> Iterator[tuple[int, str, ast.AST]]:
    """(line, name, annotation) of the parameters of a function, and of its result."""
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    for parameter in filter(None, every):
        if parameter.annotation:
            yield parameter.lineno, f"{function.name}({parameter.arg})", parameter.annotation
    if function.returns:
        yield function.lineno, f"{function.name} ->", function.returns


def says_any(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) in {"NDArray", "np.dtype"}:
        return False
    if isinstance(node, ast.Name):
        return node.id == "Any"
    return any(map(says_any, ast.iter_child_nodes(node)))


def ignored_types(known: dict[str, Module]) -> list[str]:
    """Comments that switch the type checker off."""
    return [
        f"{module.place}:{token.start[0]}"
        for module in known.values()
        for token in tokens(module)
        if token.type == tokenize.COMMENT and "type: ignore" in token.string
    ]


# --- the walk of a row ---------------------------------------------------------------------------


def walked(source: Path) -> dict[str, list[str] | None]:
    """The files that a default fit, its prediction and the command line walk through.

    None stands for a call that fails; the reason goes to stderr.
    """
    code = f"import sys; sys.path.insert(0, {str(source.parent)!r})" + WALKS.format(package=PACKAGE)
    done = subprocess.run(
        [sys.executable, "-c", code, str(source)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"the walk of a row failed:\n{done.stderr}")
    print(done.stderr, end="", file=sys.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(source: Path) -> dict[str, object]:
    known = modules(source)
    graph = {name: imports(module, known) for name, module in known.items()}
    edges = {(room(n), room(m)) for n, used in graph.items() for m, _ in used}
    largest = max(known.values(), key=lambda module: module.lines)
    methods, largest_name = largest_class(known)
    constants = numeric_constants(known)
    return {
        "modules": len(known),
        "rooms": len({module.room for module in known.values()}),
        "lines": sum(module.lines for module in known.values()),
        "code lines": sum(map(code_lines, known.values())),
        f"lines of the largest file ({largest.place})": largest.lines,
        f"methods of the largest class ({largest_name})": methods,
        "edges between rooms": sum(a != b for a, b in edges),
        "longest chain of imports": longest_chain(graph),
        "private imports across rooms": private_imports(graph),
        "private attributes of other rooms": private_attributes(known),
        "type switches on kernels and maps": type_switches(known),
        "numeric constants of modules": constants,
        "names of constants in several modules": repeated_constants(constants),
        "names of several classes": repeated_classes(known),
        "`Any` in public signatures": untyped(known),
        "type: ignore": ignored_types(known),
        **walked(source),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--src", type=Path, default=Path(__file__).parents[1] / "src")
    parser.add_argument("--json", action="store_true", help="every place by name, as JSON")
    options = parser.parse_args()
    found = measure((options.src / PACKAGE).resolve())
    if options.json:
        print(json.dumps(found, indent=1))
        return
    width = max(map(len, found))
    for what, value in found.items():
        print(f"{what:{width}} {shown(value):>7}")


def shown(value: object) -> str:
    """A number, or how many things there are."""
    if value is None:
        return "fails"
    return f"{len(value) if isinstance(value, list) else value:,}"


if __name__ == "__main__":
    main()
