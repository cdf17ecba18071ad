"""Claim: quick to import, seconds to the first result after installation, and quick ever after.

Fresh processes, each measured from inside. Import: ``import kernelsieve`` after
``import sklearn.base, scipy.sparse``, and beside it the first estimator, which brings numba. First
call: a default KernelRidge on 2,000 x 10, with an empty folder for compiled code (what a new
installation has), and again in another process that finds it filled. The other maps are in the
table for the reader.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _common import Report, parser

IMPORT = """
import json, time
start = time.perf_counter()
import sklearn.base, scipy.sparse
base = time.perf_counter()
import kernelsieve
bare = time.perf_counter()
from kernelsieve import AdaptiveFeatures, KernelRidge
names = time.perf_counter()
print(json.dumps({"base": base - start, "kernelsieve": bare - base, "estimators": names - bare}))
"""
CALL = """
import json, resource, sys, time
import numpy as np
import scipy.sparse as sp
import kernelsieve
from kernelsieve import *
rng = np.random.default_rng(0)
X = rng.standard_normal((2000, 10))
y = X[:, 0] * X[:, 1] + X[:, 2]
if "sparse" in sys.argv:
    X = sp.csr_array(X * (rng.random(X.shape) < 0.3))
used = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
start, cpu = time.perf_counter(), used()
model = eval(sys.argv[1])
model.fit(X, y).predict(X)
seconds, cpu = time.perf_counter() - start, used() - cpu
model.fit(X, y).predict(X)
again = time.perf_counter() - start - seconds
print(json.dumps({"seconds": seconds, "cpu": cpu, "again": again}))
"""
CALLS = {
    "KernelRidge()": ["KernelRidge()"],
    "KernelRidge(), sparse rows": ["KernelRidge()", "sparse"],
    "row norm": ["KernelRidge(RowNormFeatures(500))"],
    "Nystrom": ["KernelRidge(NystromFeatures(500))"],
    "Fourier": ["KernelRidge(FourierFeatures(500))"],
    "oblivious": ["KernelRidge(ObliviousFeatures(500))"],
}
IMPORT_LIMIT, FIRST_LIMIT, LATER_LIMIT = 0.3, 15.0, 2.0


def fresh(code: str, arguments: list[str], cache: Path) -> dict[str, Any]:
    """What a new process prints; compiled code is kept in ``cache``."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"notice": done.stderr.strip()}


def measure_import(report: Report, repetitions: int, cache: Path) -> None:
    fresh(IMPORT, [], cache)  # writes bytecode, reads files from the disk
    for _ in range(repetitions):
        report.record(part="import", **fresh(IMPORT, [], cache))
    best = {
        name: min(record[name] for record in report.select(part="import"))
        for name in ("base", "kernelsieve", "estimators")
    }
    report.table("Import, best of all, in seconds", tuple(best), [tuple(best.values())])
    report.check("import kernelsieve, seconds above the base", best["kernelsieve"], IMPORT_LIMIT)


def measure_calls(report: Report, calls: dict[str, list[str]], repetitions: int) -> None:
    rows = []
    for name, arguments in calls.items():
        with tempfile.TemporaryDirectory() as folder:
            first = fresh(CALL, arguments, Path(folder))
            compiled = any(Path(folder).rglob("*.nbi"))
            later = [fresh(CALL, arguments, Path(folder)) for _ in range(repetitions)]
        best = min(later, key=lambda found: found["seconds"])
        report.record(part="call", call=name, first=first, later=later)
        rows.append(
            (name, first["seconds"], first["cpu"], best["seconds"], best["cpu"], best["again"])
        )
        if bool(first["notice"]) != compiled or best["notice"]:
            raise SystemExit(
                f"{name}: a notice belongs to the call that compiles, and to no other: "
                f"{first['notice']!r}, then {best['notice']!r}"
            )
    columns = ("", "first", "its CPU", "later", "its CPU", "second call")
    report.table("Fit and predict in a fresh process, in seconds", columns, rows)
    (_, seconds, _, later_seconds, *_), *_ = rows
    report.check("first call of KernelRidge(), seconds", seconds, FIRST_LIMIT)
    report.check("later ones, seconds", later_seconds, LATER_LIMIT)


def main() -> None:
    arguments = parser(__doc__, seeds=None)
    arguments.add_argument("--repetitions", type=int, default=3)
    args = arguments.parse_args()
    calls = {"KernelRidge()": CALLS["KernelRidge()"]} if args.quick else CALLS
    with Report("startup", args) as report, tempfile.TemporaryDirectory() as cache:
        measure_import(report, args.repetitions, Path(cache))
        measure_calls(report, calls, 1 if args.quick else args.repetitions)


if __name__ == "__main__":
    main()
