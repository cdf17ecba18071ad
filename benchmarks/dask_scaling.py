"""Claim: twice the rows on two Dask workers take hardly longer than the rows on one: >= 80 %.

Worker processes of one thread each on this machine. Every worker gets as many rows (x 20 columns),
which it makes and keeps; then `kernelsieve.dask.KernelRidge` on `RowNormFeatures` is fitted. What
does not scale is told apart: passes over the chunks, and what this process decides between them
(choosing the features, solving the ridge), which takes as long for any number of rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask
import dask.array as da
import numpy as np
from _common import Report, parser
from distributed import Client, LocalCluster, wait

from kernelsieve.dask import DaskSource, KernelRidge, RowNormFeatures

COLUMNS = 20
CHUNK_ROWS = 50_000
EFFICIENCY = 0.8


@contextmanager
def timed_passes() -> Iterator[list[float]]:
    """Seconds of every pass over the chunks inside."""
    seconds: list[float] = []
    reduce, fetch = DaskSource.reduce, DaskSource.fetch

    def timed(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                seconds.append(time.perf_counter() - start)

        return call

    DaskSource.reduce, DaskSource.fetch = timed(reduce), timed(fetch)  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        DaskSource.reduce, DaskSource.fetch = reduce, fetch  # type: ignore[method-assign]


def rows_on(workers: int, rows_each: int) -> tuple[Any, Any]:
    """X and y, made on the workers and kept there."""
    n_rows = workers * rows_each
    X = da.random.default_rng(0).standard_normal((n_rows, COLUMNS), chunks=(CHUNK_ROWS, COLUMNS))
    y = X[:, 0] * X[:, 1] + da.sin(X[:, 2])
    X, y = dask.persist(X, y)
    wait([X, y])
    return X, y


def measure(workers: int, rows_each: int, s: int, repetitions: int) -> dict[str, float]:
    """The quickest of several fits."""
    model = KernelRidge(RowNormFeatures(s, gamma=0.5 / COLUMNS, random_state=0), alpha=1.0)
    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        Client(cluster),
    ):
        few = rows_on(workers, CHUNK_ROWS)
        model.fit(*few)  # compiles, on every worker
        X, y = rows_on(workers, rows_each)
        found = []
        for _ in range(repetitions):
            with timed_passes() as passes:
                start = time.perf_counter()
                model.fit(X, y)
                total = time.perf_counter() - start
            found.append({"seconds": total, "passes": sum(passes), "between": total - sum(passes)})
        return min(found, key=lambda times: times["seconds"])


def main() -> None:
    arguments = parser(__doc__, seeds=None)
    arguments.add_argument("--repetitions", type=int, default=3)
    arguments.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    args = arguments.parse_args()
    rows_each, s = (100_000, 50) if args.quick else (1_000_000, 256)
    with Report("dask_scaling", args) as report:
        report.set("size", rows_each=rows_each, columns=COLUMNS, s=s, chunk=CHUNK_ROWS)
        for workers in args.workers:
            times = measure(workers, rows_each, s, args.repetitions)
            report.record(workers=workers, **times)
        one = report.records[0]
        rows = [
            (
                f"{r['workers']}",
                r["seconds"],
                r["passes"],
                r["between"],
                r["workers"] * rows_each / r["seconds"],
                one["seconds"] / r["seconds"],
            )
            for r in report.records
        ]
        columns = ("workers", "fit s", "passes s", "between s", "rows/s", "efficiency")
        report.table("weak scaling", columns, rows)
        report.print(
            "The rest: the time between passes is this process's own and the same for any number "
            "of rows; inside the passes it is what the scheduler and the sums that travel take,"
            " and where workers share a processor with this process and its scheduler, those too."
        )
        for r in report.records[1:]:
            reached = r["seconds"] / one["seconds"]
            report.check(f"time on {r['workers']} workers against 1", reached, 1 / EFFICIENCY)
        spread = np.ptp([r["between"] for r in report.records])
        report.print(f"between passes: {spread:.2f} s apart")


if __name__ == "__main__":
    main()
