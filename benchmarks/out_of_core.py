"""Claim: 20 million rows x 20 columns from a file with < 1 GB of memory, at half the speed or more.

A file of 3.2 GB (float64) is written to a temporary folder, block by block. `KernelRidge` on
`AdaptiveFeatures` is fitted to it and predicts all its rows, through `NpySource` and from memory,
each in a process of its own. Anonymous memory is what a process asked for itself, sampled 50 times
a second: pages of the mapped file are the system's, which takes them back when it needs them. It is
counted from what imports and compiled code take.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from _common import Array, Report, in_new_process, parser

from kernelsieve import AdaptiveFeatures, KernelRidge
from kernelsieve.sources.npy import NpySource

COLUMNS = 20
BLOCK_ROWS = 2**18
MEMORY = 1e9
RATE = 0.5
WARM_UP_ROWS = 20_000


def target(X: Array, rng: np.random.Generator) -> Array:
    """Products of two columns and a wave, with noise."""
    signal = X[:, 0] * X[:, 1] + np.sin(X[:, 2]) + 0.5 * X[:, 3] * X[:, 4]
    return signal + 0.1 * rng.standard_normal(len(X))


def write(folder: Path, n_rows: int) -> None:
    """X.npy and y.npy, never more than a block of them in memory."""
    X = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float64, (n_rows, COLUMNS))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", np.float64, (n_rows,))
    for number, start in enumerate(range(0, n_rows, BLOCK_ROWS)):
        rng = np.random.default_rng(number)
        rows = slice(start, min(start + BLOCK_ROWS, n_rows))
        X[rows] = rng.standard_normal((rows.stop - start, COLUMNS))
        y[rows] = target(X[rows], rng)


def anonymous_memory() -> int:
    """Bytes of this process that no file stands behind."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return 1024 * int(line.split()[1])
    raise OSError("this system does not tell anonymous memory: run it on Linux")


@contextmanager
def highest_memory() -> Iterator[Callable[[], int]]:
    """The most anonymous memory inside, above that at the start."""
    start, done = anonymous_memory(), threading.Event()
    highest = [start]

    def watch() -> None:
        while not done.wait(0.02):
            highest[0] = max(highest[0], anonymous_memory())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lambda: highest[0] - start
    finally:
        done.set()
        thread.join()


def model(s: int, threads: int, verbose: int) -> KernelRidge:
    features = AdaptiveFeatures(s, gamma=0.5 / COLUMNS, random_state=0, n_jobs=threads)
    return KernelRidge(features, alpha=1.0, n_jobs=threads, verbose=verbose)


def work(folder: Path, kind: str, s: int, threads: int) -> dict[str, Any]:
    """Fit and predict; seconds, memory, and some predictions."""
    few = np.load(folder / "X.npy", mmap_mode="r")[:WARM_UP_ROWS]
    model(s, threads, 0).fit(few, few[:, 0]).predict(few)
    del few
    with highest_memory() as highest:
        X: Any
        y: Any
        if kind == "file":
            X, y = NpySource(folder / "X.npy", folder / "y.npy"), None
        else:
            X, y = np.load(folder / "X.npy"), np.load(folder / "y.npy")
        start = time.perf_counter()
        fitted = model(s, threads, int(kind == "file")).fit(X, y)
        middle = time.perf_counter()
        predicted = fitted.predict(X)
        end = time.perf_counter()
        memory = highest()
    y = np.load(folder / "y.npy", mmap_mode="r")[:WARM_UP_ROWS]
    return {
        "fit": middle - start,
        "predict": end - middle,
        "memory": memory,
        "rmse": float(np.sqrt(np.mean((y - predicted[:WARM_UP_ROWS]) ** 2))),
        "predicted": predicted[:: max(1, len(predicted) // 1000)],
        "monomials": fitted.features_.monomials_,
    }


def main() -> None:
    arguments = parser(__doc__, seeds=None)
    arguments.add_argument("--rows", type=int, help="default 20 million")
    arguments.add_argument("--features", type=int, help="default 200")
    arguments.add_argument(
        "--folder", type=Path, help="for the temporary file; default the system's"
    )
    args = arguments.parse_args()
    n_rows = args.rows or (200_000 if args.quick else 20_000_000)
    s = args.features or (50 if args.quick else 200)
    with (
        Report("out_of_core", args) as report,
        tempfile.TemporaryDirectory(dir=args.folder) as name,
    ):
        folder = Path(name)
        report.set("size", rows=n_rows, columns=COLUMNS, s=s)
        start = time.perf_counter()
        write(folder, n_rows)
        size = os.path.getsize(folder / "X.npy")
        report.print(f"{size / 1e9:.2f} GB written in {time.perf_counter() - start:.0f} s")
        found = {}
        for kind in ("memory", "file"):
            found[kind] = in_new_process(work, folder, kind, s, report.threads)
        for kind, result in found.items():
            numbers = {k: v for k, v in result.items() if k not in ("predicted", "monomials")}
            report.record(kind=kind, **numbers)
        rows = [
            (kind, r["fit"], n_rows / r["fit"], n_rows / r["predict"], r["memory"] / 1e6, r["rmse"])
            for kind, r in found.items()
        ]
        columns = ("rows from", "fit s", "rows/s", "predict rows/s", "memory MB", "RMSE")
        report.table("fit and predict", columns, rows)
        slower = {step: found["file"][step] / found["memory"][step] for step in ("fit", "predict")}
        apart = float(np.abs(found["file"]["predicted"] - found["memory"]["predicted"]).max())
        same = found["file"]["monomials"] == found["memory"]["monomials"]
        report.check("anonymous memory, bytes", found["file"]["memory"], MEMORY)
        report.check("time of fit against memory", slower["fit"], 1 / RATE)
        report.check("time of predict against memory", slower["predict"], 1 / RATE)
        report.check("difference of predictions", apart, 1e-6)
        report.check("other monomials", float(not same), 0.0)


if __name__ == "__main__":
    main()
