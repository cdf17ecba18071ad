"""Random use of the command line: ``python tests/fuzz_command_line.py --cases 10000``.

Every case is a command with random options on a random, often damaged file. It must end with exit
code 0, or with 2 and one line that starts with "Error:"; without a traceback, a RuntimeWarning or a
hang, and without harm to a model that was there before. A case that does not is kept in a folder.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import itertools
import lzma
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import scipy.sparse as sp

from kernelsieve import cli

SECONDS = 300  # a case may take
GIGABYTES = 12  # of addresses; threads and compiled code reserve some
NASTY = ["", "nan", "inf", "-inf", "1e300", "-1e308", "1e-300", "0", "-0.0", "1_000", "0x10", "é",
         "a,b", 'q"uote', "line\nbreak", "\x00", "NaN", "None", "2024-02-30", "2024-01-01",
         "9999-12-31T23:59:59+14:00", "١٢", "  ", "=1+1", "🙂", "a" * 300, "b" * 140_000, '"open',
         "# note", "13.5k", "($2M)", "030 123 456", "+4930123456", "1e", "--5", "€"]  # fmt: skip
ODD = [
    "-",
    ".",
    "missing",
    "n.a.",
    "#N/A",
    "--",
    "unknown",
    "NA",
    "?",
    "NULL",
    "-99",
    "n/a",
    "#REF!",
]
NAMES = ["a", "b", "size", "größe", "$x$", "[red]", "", "a b", "x0", "target", "y"]
SUFFIXES = [".csv", ".tsv", ".txt", ".csv.gz", ".csv.xz", ".parquet", ".arrow", ".npz", ".svm",
            ".svm.gz", ".xlsx"]  # fmt: skip
KERNELS = ["gaussian", "poly", "exponential", "linear", "laplacian", "inverse_polynomial", "what"]
METHODS = ["auto", "adaptive", "row-norm", "nystrom", "fourier", "oblivious", "tensor-sketch",
           "maclaurin", "what"]  # fmt: skip
TASKS = ["auto", "regression", "classification", "what"]
NUMBERS = ["0.1", "1", "cv", "scale", "auto", "0", "-1", "nan", "inf", "1e300", "1e-300", "x", ""]
COUNTS = ["1", "3", "10", "25", "0", "-5", "x"]


class TooSlowError(Exception):
    """A case that does not come to an end."""


# --- files ----------------------------------------------------------------------------------------


def column(rng: random.Random, n: int) -> list[str]:
    """Cells of one kind, sometimes with nasty ones among them."""
    kinds: dict[str, Callable[[], object]] = {
        "number": lambda: repr(rng.gauss(0, 1)),
        "whole": lambda: str(rng.randrange(5)),
        "large": lambda: repr(rng.gauss(0, 1) * 10.0 ** rng.choice([-300, -20, 20, 150, 300])),
        "two": lambda: rng.choice(["yes", "no"]),
        "text": lambda: rng.choice(["Ulm", "Bonn", "Kiel", "Köln"]),
        "name": lambda: f"n{rng.randrange(10**9)}",
        "time": lambda: f"20{rng.randrange(10, 30)}-0{rng.randrange(1, 10)}-1{rng.randrange(10)}",
        "same": lambda: "7",
        "comma": lambda: f"{rng.gauss(0, 1000):.2f}".replace(".", ","),
        "thousands": lambda: f"{rng.gauss(0, 1e6):,.2f}",
        "magnitude": lambda: f"{rng.choice(['', '$'])}{rng.random() * 99:.1f}{rng.choice(' kMB')}",
        "phone": lambda: f"+49 30 {rng.randrange(10**6, 10**7)}",
        "long": lambda: str(rng.randrange(10**18, 10**20)),
        "account": lambda: f"({rng.randrange(10**6):,})",
        "german": lambda: f"{rng.gauss(0, 1e6):,.2f}".translate(str.maketrans(",.", ".,")),
        "money": lambda: f"{rng.choice('$€£')}{rng.randrange(10**6):,}",
        "percent": lambda: f"{rng.randrange(100)}%",
        "day": lambda: (
            rng.choice(["%02d.%02d.2021", "%02d/%02d/2021"])
            % (rng.randrange(1, 13), rng.randrange(1, 29))
        ),
        "english day": lambda: rng.choice(["Mar 5, 2021", "5 March 2021", "2021-03-05", "3/5/21"]),
        "euro": lambda: (
            f"{rng.gauss(0, 1e5):,.2f}".translate(str.maketrans(",.", ".,"))
            + rng.choice(" €")
            + "€"
        ),
        "word": lambda: rng.choice(["TRUE", "FALSE", "T", "F", "ja", "nein"]),
        "empty": lambda: "",
        "moment": lambda: f"{rng.randrange(1, 29)}.3.2021 {rng.randrange(24):02d}:15",
        "street": lambda: f"street {rng.randrange(30)}",
        "counter": itertools.count(rng.randrange(1000)).__next__,
        "nasty": lambda: rng.choice(NASTY),
    }
    make = kinds[rng.choice(list(kinds))]
    share = rng.choice([0.0, 0.0, 0.0, 0.05, 0.5])
    odd = rng.choice([NASTY, ODD])
    return [rng.choice(odd) if rng.random() < share else str(make()) for _ in range(n)]


def table(rng: random.Random, tame: bool) -> dict[str, list[str]]:
    n = rng.choice([25, 40, 60] if tame else [0, 1, 2, 19, 20, 60])
    names = rng.sample(NAMES, rng.randrange(1, 6))
    return {name: column(rng, n) for name in names}


def numbers(cells: list[str]) -> list[float | None] | list[str]:
    """As a frame would hold them."""
    try:
        return [float(cell) if cell else None for cell in cells]
    except ValueError:
        return cells


def write(path: Path, columns: dict[str, list[str]], rng: random.Random) -> None:
    suffix = "".join(path.suffixes)
    if suffix in (".parquet", ".arrow"):
        found = pa.table({name: numbers(cells) for name, cells in columns.items()})
        (pq.write_table if suffix == ".parquet" else feather.write_feather)(found, str(path))
    elif suffix == ".npz":
        n = len(next(iter(columns.values())))
        X = np.random.default_rng(rng.randrange(10**6)).normal(size=(n, 3))
        if rng.random() < 0.5:
            A = sp.csr_matrix(X * (X > 0))
            if rng.random() < 0.3:
                damage_indices(A, rng)
            sp.save_npz(path, A)
        else:
            np.savez(path, X=X, **({"y": X.sum(axis=1)} if rng.random() < 0.8 else {}))
    elif suffix == ".xlsx":
        write_book(path, columns)
    elif suffix.startswith(".svm"):
        lines = [
            f"{rng.choice(['1', '-1', '0.5', '3', 'x'] if rng.random() < 0.02 else ['1', '-1'])} "
            + " ".join(f"{j}:{rng.gauss(0, 1):.3f}" for j in sorted(rng.sample(range(1, 9), 3)))
            for _ in range(len(next(iter(columns.values()))))
        ]
        if lines and rng.random() < 0.1:
            lines[0] = rng.choice(["1 2147483646:1", "1 3:1 2:1", "1 2:1 2:1", "1 -3:1", "1 2:nan"])
        path.write_bytes(packed("\n".join(lines).encode(), suffix))
    else:
        file = io.StringIO()
        mark = rng.choice([",", ",", ";", "\t", "|"])
        rows = [list(columns), *map(list, zip(*columns.values(), strict=True))]
        if rng.random() < 0.1:
            untidy(rows, rng)
        for row in rows:
            cells = [f'"{c}"' if rng.random() < 0.1 or mark in c or "\n" in c else c for c in row]
            file.write(mark.join(cells) + "\n")
        encoding = rng.choice(["utf-8"] * 7 + ["utf-8-sig", "utf-16", "cp1252", "latin-1"])
        content = file.getvalue().encode(encoding, "replace")
        path.write_bytes(packed(content, suffix))


def packed(content: bytes, suffix: str) -> bytes:
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(suffix[-3:], bytes)
    return pack(content)


def write_book(path: Path, columns: dict[str, list[str]]) -> None:
    """A workbook, or a file that is none where openpyxl is missing."""
    try:
        from openpyxl import Workbook
        from openpyxl.utils.exceptions import IllegalCharacterError
    except ImportError:
        path.write_bytes(b"PK")
        return
    book = Workbook()
    for row in [list(columns), *zip(*columns.values(), strict=True)]:
        with contextlib.suppress(IllegalCharacterError):
            book.active.append([cell[:30_000] for cell in row])
    book.save(path)


def damage_indices(A: sp.csr_matrix, rng: random.Random) -> None:
    """An entry, or the start of a row, that is nowhere; scipy writes and reads it unseen."""
    part = rng.choice([A.indices, A.indptr[1:-1]])
    if len(part):
        part[rng.randrange(len(part))] = rng.choice([-1, 3, 10**4, 10**8, -(10**8), 2**31 - 1])


def untidy(rows: list[list[str]], rng: random.Random) -> None:
    """What people do to a table: titles, blank lines, trailing separators, names that repeat."""
    action = rng.randrange(8)
    if action == 0:
        rows.insert(0, ["Report of 2021"])
    elif action == 1:
        rows.insert(1, ["unit"] * len(rows[0]))
    elif action == 2:
        for place in sorted(rng.sample(range(len(rows) + 1), min(3, len(rows))), reverse=True):
            rows.insert(place, [rng.choice(["", "  "])])
    elif action == 3:
        for row in rows[rng.choice([0, 1]) :]:
            row.append("")
    elif action == 4:
        rows[0][-1] = rows[0][0]
    elif action == 5:
        rows.insert(rng.randrange(1, len(rows) + 1), ["# a comment"])
    elif action == 6:
        rows[0] = [rows[0][0]] * len(rows[0])
    else:
        rows.append(["total", *[""] * (len(rows[0]) - 1)])


def damage(path: Path, rng: random.Random) -> None:
    """Flip, cut, repeat or insert bytes."""
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 3, 20])):
        if not content:
            break
        place = rng.randrange(len(content))
        action = rng.randrange(4)
        if action == 0:
            content[place] ^= 1 << rng.randrange(8)
        elif action == 1:
            del content[place:]
        elif action == 2:
            content[place:place] = rng.randbytes(rng.randrange(1, 9))
        else:
            content[place:place] = content[place : place + rng.randrange(1, 99)]
    path.write_bytes(bytes(content))


# --- commands -------------------------------------------------------------------------------------


def options(rng: random.Random, choices: dict[str, list[str]], share: float) -> list[str]:
    found = []
    for name, values in choices.items():
        if rng.random() < share:
            found += [name] if not values else [name, rng.choice(values)]
    return found


def case(rng: random.Random, folder: Path) -> list[str]:
    """A command; its files are in the folder, among them good.ks, a model."""
    tame = rng.random() < 0.6  # much is right, so that the depth is reached too
    columns = table(rng, tame)
    data = folder / f"data{rng.choice(SUFFIXES)}"
    write(data, columns, rng)
    if not tame and rng.random() < 0.6:
        damage(data, rng)
    names = [*columns, "target", "y", "x0", "none"]
    shared = {
        "--kernel": KERNELS, "--method": METHODS, "--degree": ["1", "2", "5", "0", "x"],
        "--drop": [rng.choice(names), ",".join(rng.sample(names, 2))], "--readable": [],
        "--strict": [], "--seed": ["0", "3", "-1", "x"], "--threads": ["1", "0", "x"],
        "--json": [], "--quiet": [],
    }  # fmt: skip
    text = {
        "--sep": [",", ";", "|", "\t", "ab", ""], "--decimal": [".", ",", "x"],
        "--encoding": ["utf-8", "utf-16", "cp1252", "what", ""],
        "--date-format": ["%d.%m.%Y", "%m/%d/%Y", "%", "%Q", ""],
    }  # fmt: skip
    keep = {"--keep": [rng.choice(names), ",".join(rng.sample(names, 2))]}
    command = rng.choice(["fit", "fit", "predict", "predict", "predict", "embed", "explain",
                          "inspect"])  # fmt: skip
    if command == "inspect":
        more = {**text, **keep, "--target": names, "--task": TASKS, "--json": [], "--quiet": [],
                "--drop": names, "--html": ["page.html", "page.doc", "no/page.html"]}  # fmt: skip
        return ["inspect", str(data), *options(rng, more, 0.1 if tame else 0.3)]
    if command == "fit":
        places = {".svm": ["target"], ".svm.gz": ["target"], ".npz": ["y", "x0"]}.get(
            "".join(data.suffixes), [*columns]
        )
        target = rng.choice(places if tame else NASTY + names)
        out = rng.choice(["good.ks", "new.ks"] if tame else ["new.ks", "a.pkl", "no/new.ks", "."])
        learned = rng.random() < 0.02  # the default takes seconds
        sizes = ["--features", rng.choice(COUNTS[: 4 if tame else None])]
        more = {**text, **keep, "--class-weight": ["balanced", "what"], "--std": [],
                "--sample-rows": ["30", "0", "x"]}  # fmt: skip
        return [
            "fit", str(data), "--target", target, "-o", out,
            *([] if learned else sizes),
            *([] if rng.random() < 0.1 else ["--no-baselines"]),
            *options(rng, more, 0.02 if tame else 0.1),
            "--alpha", rng.choice(NUMBERS[: 3 if tame else None]),
            *([] if learned else ["--gamma", rng.choice(NUMBERS[: 5 if tame else None])]),
            *options(rng, {**shared, "--task": TASKS}, 0.05 if tame else 0.2),
        ]  # fmt: skip
    if command == "embed":
        more = {"--model": ["good.ks", "data.csv", "none.ks"], "--target": names}
        out = f"z{rng.choice(['.csv', '.parquet', '.npz', '.svm'] if tame else ['.doc', ''])}"
        return ["embed", str(data), "-o", out, "--features", rng.choice(COUNTS[:4]),
                *options(rng, {**shared, **more, **text}, 0.05 if tame else 0.2)]  # fmt: skip
    model = folder / rng.choice(["good.ks", "classes.ks"] if tame else ["bad.ks", "none.ks"])
    if model.name == "bad.ks":
        shutil.copy(folder / "good.ks", model)
        damage(model, rng)
    if command == "explain":
        more = {"--top": COUNTS, "--json": [], "--picture": ["p.png", "p.doc"]}
        return ["explain", str(model), *options(rng, more, 0.4)]
    if rng.random() < 0.7:  # rows that the model knows
        data = folder / rng.choice(["data.csv", "data.parquet"])
        known = {name: [repr(rng.gauss(0, 1)) for _ in range(30)] for name in "ab"}
        write(data, {**known, rng.choice(["a", "b", "c", "kind", "extra"]): column(rng, 30)}, rng)
    outs = ["out.csv", "out.parquet", "out.npz", *([] if tame else ["out.doc", "good.ks"])]
    more = {"-o": outs, "--proba": [], "--std": [], "--strict": [], "--json": [], "--quiet": [],
            "--interval": ["0.9", "0.5", "0", "2", "nan", "x"],
            "--keep-columns": ["all", "a", "a,b", "kind", "none", ","]}  # fmt: skip
    if data.suffix in (".csv", ".tsv", ".txt", ".gz") and rng.random() < 0.2:
        more |= text
    return ["predict", str(model), str(data), *options(rng, more, 0.2)]


def prepare(folder: Path) -> None:
    """Two models of columns a and b."""
    rng = random.Random(0)
    columns = {name: [repr(rng.gauss(0, 1)) for _ in range(60)] for name in "abc"}
    columns["kind"] = [rng.choice(["x", "y", "z"]) for _ in range(60)]
    write(folder / "first.csv", columns, random.Random(1))
    common = ["--features", "10", "--alpha", "0.1", "--gamma", "0.1", "--quiet", "--threads", "1"]
    for target, name, drop in (("c", "good.ks", "kind"), ("kind", "classes.ks", "c")):
        arguments = ["fit", "first.csv", "--target", target, "-o", name, "--drop", drop, *common]
        code, error = outcome(arguments, folder)
        assert code == 0, error


def outcome(arguments: list[str], folder: Path) -> tuple[int | str, str]:
    """Exit code and stderr in this process; the traceback where there is one."""
    before = os.getcwd()
    out, error = io.StringIO(), io.StringIO()
    os.chdir(folder)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            cli.main(arguments)
    except SystemExit as exit_:
        return int(exit_.code or 0), error.getvalue()
    except BaseException:
        return "exception", traceback.format_exc()
    finally:
        signal.alarm(0)
        os.chdir(before)
    return "no exit", ""


def in_new_process(arguments: list[str], folder: Path) -> tuple[int | str, str]:
    command = [sys.executable, "-m", "kernelsieve", *arguments]
    if any("\x00" in argument for argument in arguments):
        return 2, "Error: not even the system takes this\n"
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, timeout=SECONDS, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return "hang", ""
    return done.returncode, done.stderr.decode("utf-8", "replace")


def complaint(code: int | str, error: str) -> str | None:
    """What is wrong with an outcome."""
    if code not in (0, 2):
        return f"{code}: {error}"
    if "Traceback" in error:
        return error
    notes = ("Note: ", "kernelsieve: compiling")
    lines = [line for line in error.splitlines() if not line.startswith(notes)]
    if code == 2 and not (len(lines) == 1 and lines[0].startswith("Error: ")):
        return f"not one line of error: {error}"
    return None


def run(cases: int, subprocesses: int, seed: int, keep: Path) -> Counter[str]:
    """All cases; what fails is kept."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        good = (folder / "good.ks").read_bytes()
        for number in range(cases + subprocesses):
            rng = random.Random(f"{seed} {number}")
            arguments = case(rng, folder)
            execute = outcome if number < cases else in_new_process
            code, error = execute(arguments, folder)
            wrong = complaint(code, error)
            after = (folder / "good.ks").read_bytes()
            if code != 0 and after != good:
                wrong = "a failed command changed the model"
            if after != good:
                (folder / "good.ks").write_bytes(good)
            counts[f"{arguments[0]}: {'done' if code == 0 else 'refused'}"] += 1
            if wrong is not None:
                counts["WRONG"] += 1
                shutil.copytree(folder, keep / f"case{number}", dirs_exist_ok=True)
                (keep / f"case{number}" / "what.txt").write_text(f"{arguments}\n\n{wrong}")
                print(f"case {number}: {arguments}\n{wrong[-1500:]}", flush=True)
            for path in folder.iterdir():
                if path.name not in ("good.ks", "classes.ks"):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
    return counts


def too_slow(*_: object) -> None:
    raise TooSlowError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="in this process")
    parser.add_argument("--subprocesses", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"))
    arguments = parser.parse_args()
    signal.signal(signal.SIGALRM, too_slow)
    resource.setrlimit(resource.RLIMIT_AS, (GIGABYTES * 2**30,) * 2)
    warnings.simplefilter("error", RuntimeWarning)
    start = time.perf_counter()
    counts = run(arguments.cases, arguments.subprocesses, arguments.seed, arguments.keep)
    for name, count in sorted(counts.items()):
        print(f"{name:<20} {count:7,}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{sum(counts.values()) - counts['WRONG']:,} cases in {time.perf_counter() - start:.0f} s"
          f", {counts['WRONG']} wrong, {peak:.1f} GiB at the peak")  # fmt: skip
    sys.exit(counts["WRONG"] > 0)
