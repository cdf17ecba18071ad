"""Claim: the time of a fit on Dask is a formula of rows and workers, good to 20 %.

    python benchmarks/dask_billion.py [--rows 2000000 20000000] [--workers 2] [--features 500]

Rows of 20 columns are generated in the workers, chunk by chunk in every pass, and stored nowhere.
A product kernel and a ridge on ``AdaptiveFeatures`` are fitted. Of every pass over the chunks the
seconds are kept, and the peak memory of each worker. Bytes over the network are not measured but
computed, from the size of the summaries that chunks send. From two sizes follow the constants of

    seconds = a + c n / workers,

a: what this process decides between the passes (choose, solve), c: of one row in all passes. The
middle size, which had no part in the constants, is predicted; and the times for 10^9 and 10^10 rows
on 100 workers are printed, as far as the formula goes.
"""

from __future__ import annotations

import time
from typing import Any

import dask.array as da
import numpy as np
from _common import Report, parser
from dask_scaling import timed_passes
from distributed import Client, LocalCluster

from kernelsieve.dask import AdaptiveFeatures, KernelRidge
from kernelsieve.kernels import Product

COLUMNS = 20
CHUNK_ROWS = 100_000
ERROR = 0.2  # of the predicted time
FAR = ((10**9, 100), (10**10, 100))


def rows_of(n: int) -> tuple[Any, Any]:
    """X and y that are made anew, in the workers, whenever a pass asks for them."""
    X = da.random.default_rng(0).standard_normal((n, COLUMNS), chunks=(CHUNK_ROWS, COLUMNS))
    return X, X[:, 0] * X[:, 1] + da.sin(X[:, 2])


def _peak(dask_worker: Any) -> float:
    """The largest resident size of a worker so far, in MB."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def measure(n: int, workers: int, s: int) -> dict[str, Any]:
    """One fit: seconds, passes, memory and bytes."""
    kernel = Product((0.15,) * COLUMNS)
    model = KernelRidge(AdaptiveFeatures(s, kernel=kernel, random_state=0), alpha=1.0)
    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
        timed_passes() as passes,
    ):
        X, y = rows_of(n)
        warm = rows_of(CHUNK_ROWS)
        model.fit(*warm)  # compiles in every process
        passes.clear()
        start = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - start
        peaks = client.run(_peak)
    chunks = -(-n // CHUNK_ROWS)
    # Every pass sends one summary of each worker's chunks: the largest is the normal equations.
    sent = chunks * (s * s + 3 * s) * 8 / n
    return {
        "rows": n,
        "workers": workers,
        "seconds": seconds,
        "passes": len(passes),
        "in passes": float(sum(passes)),
        "peak MB": float(max(peaks.values())),
        "bytes a row": sent,
    }


def constants(small: dict[str, Any], large: dict[str, Any]) -> tuple[float, float]:
    """Seconds that do not depend on the rows, and of one row on one worker in all passes."""
    rows = large["rows"] - small["rows"]
    each = (large["seconds"] - small["seconds"]) * small["workers"] / rows
    return small["seconds"] - each * small["rows"] / small["workers"], each


def main() -> None:
    arguments = parser(__doc__, seeds=None)
    arguments.add_argument("--rows", type=int, nargs="+", default=[2_000_000, 20_000_000])
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--features", type=int, default=500)
    args = arguments.parse_args()
    sizes = [200_000, 800_000] if args.quick else sorted(args.rows)
    s = 50 if args.quick else args.features
    with Report("dask_billion", args) as report:
        middle = int(np.sqrt(sizes[0] * sizes[-1]))
        found = {n: measure(n, args.workers, s) for n in (sizes[0], middle, sizes[-1])}
        for line in found.values():
            report.record(**line)
        columns = ("rows", "seconds", "passes", "in passes", "peak MB", "bytes a row")
        report.table(
            f"{args.workers} workers, {s} features",
            columns,
            [[f"{line['rows']:,}", *(line[c] for c in columns[1:])] for line in found.values()],
        )
        base, each = constants(found[sizes[0]], found[sizes[-1]])
        report.set("constants", base=base, microseconds_a_row=1e6 * each)
        predicted = base + each * middle / args.workers
        measured = found[middle]["seconds"]
        report.check("time of the middle size, relative error",
                     abs(predicted - measured) / measured, ERROR)  # fmt: skip
        for n, workers in FAR:
            hours = (base + each * n / workers) / 3600
            report.print(f"{n:,} rows on {workers} workers: {hours:.2f} h by the formula")


if __name__ == "__main__":
    main()
