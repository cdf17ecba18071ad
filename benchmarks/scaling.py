"""Claim: fit time grows in proportion to the nonzeros of X: log-log slope at most 1.05.

Gaussian kernel at mean |x'|^2 = 1, s = 1,000, 10^7 to 10^8 nonzeros: CSR with 100 of 10,000 columns
in each row, and dense with 100 columns. Peak memory is that of fit in a process of its own, without
X; it should grow no faster than X.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from _common import OURS, Array, Report, load_stored, parser, peak_memory, race, size_of, stored

PER_ROW = 100
COLUMNS = 10_000
SLOPE = 1.05
# x' = sqrt(2 gamma) x: rows of length 1, and 100 columns of unit variance.
GAMMAS = {"sparse": 0.5, "dense": 0.5 / PER_ROW}


def make(kind: str, nnz: int) -> Any:
    """Float32 rows with 100 nonzeros each."""
    n_rows = nnz // PER_ROW
    rng = np.random.default_rng(0)
    values = rng.standard_normal((n_rows, PER_ROW), dtype=np.float32)
    if kind == "dense":
        return values
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    # One column from each of 100 strata: distinct, and in order.
    width = COLUMNS // PER_ROW
    columns = rng.integers(width, size=(n_rows, PER_ROW), dtype=np.int32)
    columns += width * np.arange(PER_ROW, dtype=np.int32)
    starts = np.arange(0, nnz + 1, PER_ROW, dtype=np.int32)
    return sp.csr_array((values.ravel(), columns.ravel(), starts), shape=(n_rows, COLUMNS))


def fit(method: str, gamma: float, s: int, threads: int, X: Any) -> Any:
    """What is measured, here and in a process of its own."""
    return OURS[method](s, gamma=gamma, random_state=0, n_jobs=threads).fit(X)


def measure(report: Report, kind: str, nnz: int, s: int) -> None:
    X = make(kind, nnz)
    calls = {method: partial(fit, method, GAMMAS[kind], s, report.threads) for method in OURS}
    times = race(calls, X, report.args.repetitions)
    with tempfile.TemporaryDirectory() as folder, stored(X, Path(folder)) as path:
        size = size_of(X)
        del X
        for method, call in calls.items():
            peak = peak_memory(partial(load_stored, path), call)
            report.record(
                kind=kind,
                nnz=nnz,
                method=method,
                seconds=times[method],
                X_bytes=size,
                peak_bytes=peak,
            )


def slope(x: Array, y: Array) -> float:
    """Of the straight line through log y against log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def judge(report: Report, kind: str, method: str) -> None:
    records = report.select(kind=kind, method=method)
    nnz = np.array([r["nnz"] for r in records], dtype=float)
    time = np.array([r["seconds"] for r in records])
    size = np.array([r["X_bytes"] for r in records])
    peak = np.array([r["peak_bytes"] for r in records])
    rows = [
        (
            f"{r['nnz']:.0e}",
            r["seconds"],
            1e9 * r["seconds"] / r["nnz"],
            r["X_bytes"] / 1e6,
            r["peak_bytes"] / 1e6,
            r["peak_bytes"] / r["X_bytes"],
        )
        for r in records
    ]
    columns = ("nonzeros", "fit s", "ns each", "X MB", "peak MB", "peak / X")
    report.table(f"{kind}, {method}", columns, rows)
    report.check(f"{kind}, {method}: slope of fit time", slope(nnz, time), SLOPE)
    report.check(f"{kind}, {method}: slope of X + peak memory", slope(nnz, size + peak), SLOPE)


def main() -> None:
    arguments = parser(__doc__, seeds=None)
    arguments.add_argument("--repetitions", type=int, default=2)
    args = arguments.parse_args()
    unit, s = (10**5, 100) if args.quick else (10**7, 1_000)
    with Report("scaling", args) as report:
        report.set("gamma", **GAMMAS, s=s)
        for kind in GAMMAS:
            for factor in (1, 2, 5, 10):
                measure(report, kind, factor * unit, s)
            for method in OURS:
                judge(report, kind, method)


if __name__ == "__main__":
    main()
