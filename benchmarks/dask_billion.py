"""Claim: the time of a fit on Dask is a formula of rows, chunks and workers, good to 20 %.

    python benchmarks/dask_billion.py --rows 2000000 20000000    # measure, and fit the constants
    python benchmarks/dask_billion.py --rows 200000000           # measure, beside what they predict
    python benchmarks/dask_billion.py --faults                   # spilling, and a killed worker

Rows of 20 float32 columns and a target of eight of them are generated in the workers, chunk by
chunk in every pass, and stored nowhere. ``KernelRidge(AdaptiveFeatures(500, kernel="learned"))`` is
fitted: the kernel is learned from rows that are drawn by key, in one pass. Seconds and bytes on the
loopback interface, which all processes share, are measured for every pass; so are the bytes that
the workers sent each other, and the peak memory of each. Sizes of earlier runs are kept in the
file. The formula, for n rows in m chunks on w workers, is

    seconds = base + sum over passes (a + (c n + e m) / w + d m),

base: what this process decides between the passes; a, c: of each pass, from two sizes; e and d: of
a chunk in a worker and in the scheduler, from chunks of hardly any rows: d is the processor time of
this process, which is the scheduler's too, and e the rest. Here workers and scheduler share two
cores, so that d m is added; a scheduler with a core of its own hides it behind the work.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask
import dask.array as da
import numpy as np
import psutil
from _common import Report, high_water, parser
from distributed import Client, LocalCluster, wait

from kernelsieve.dask import AdaptiveFeatures, DaskSource, KernelRidge

COLUMNS = 20
CHUNK_ROWS = 250_000
FEW_ROWS, MANY_CHUNKS = 500, (100, 600)  # of a chunk that costs nothing but its tasks
ERROR = 0.2  # of the predicted time
FAR = ((10**9, 100), (10**10, 100))
# The passes of this fit, in order.
PASSES = (
    "mean and variance of the target",
    "rows to learn the kernel from",
    "missing values",
    "diagonal of the kernel; rows to choose features on",
    "occupied cells of the columns",
    "the first rows, for the rounding of float32",
    "normal equations",
)
ONE_CHUNK = PASSES.index("the first rows, for the rounding of float32")  # reads no other chunk
# Without stealing, which can move chunks to idle workers.
# Dask's workers give every array back to the system at once, and get it back page by page.
CLUSTER = {
    "distributed.scheduler.work-stealing": False,
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**28,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**28,
}


def target(X: Any) -> Any:
    """Products, waves and a kink of eight columns."""
    smooth = X[:, 0] * X[:, 1] + np.sin(2.0 * X[:, 2]) + 0.5 * np.cos(X[:, 5] + X[:, 6])
    return smooth + np.abs(X[:, 3]) * X[:, 4] + 0.5 * X[:, 7]


def rows_of(n: int, chunk: int) -> tuple[Any, Any]:
    """X and y that are made anew, in the workers, whenever a pass asks for them."""
    rng = da.random.default_rng(0)
    X = rng.standard_normal((n, COLUMNS), dtype=np.float32, chunks=(chunk, COLUMNS))
    return X, X.map_blocks(target, drop_axis=1, dtype=np.float32)


def regression(s: int) -> KernelRidge:
    return KernelRidge(AdaptiveFeatures(s, kernel="learned", random_state=0), alpha=1.0)


def loopback() -> int:
    """Bytes that went over the loopback interface since the system started."""
    return int(psutil.net_io_counters(pernic=True)["lo"].bytes_sent)


def peak(dask_worker: Any) -> float:
    """The largest resident size of a worker so far, in MB."""
    return high_water() / 1e6


def sent(dask_worker: Any) -> int:
    """Bytes that a worker sent to other workers and to this process."""
    return int(dask_worker.transfer_outgoing_bytes_total)


@contextmanager
def watched() -> Iterator[list[tuple[float, int, float]]]:
    """Seconds, bytes on the loopback interface and processor time here of every pass inside."""
    found: list[tuple[float, int, float]] = []
    reduce, fetch = DaskSource.reduce, DaskSource.fetch

    def watch(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            before, start, busy = loopback(), time.perf_counter(), time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                seconds = time.perf_counter() - start
                found.append((seconds, loopback() - before, time.process_time() - busy))

        return call

    DaskSource.reduce, DaskSource.fetch = watch(reduce), watch(fetch)  # type: ignore[method-assign]
    try:
        yield found
    finally:
        DaskSource.reduce, DaskSource.fetch = reduce, fetch  # type: ignore[method-assign]


@contextmanager
def cluster_of(workers: int, **options: Any) -> Iterator[Client]:
    """Worker processes of one thread each."""
    with (
        dask.config.set(CLUSTER),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            **options,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def measure(n: int, workers: int, s: int, chunk: int) -> dict[str, Any]:
    """One fit: seconds and bytes of each pass, memory of each worker."""
    with cluster_of(workers) as client, watched() as passes:
        regression(s).fit(*rows_of(workers * chunk, chunk))  # compiles in every process
        passes.clear()
        gc.collect()
        before = sum(client.run(sent).values())
        start = time.perf_counter()
        model = regression(s).fit(*rows_of(n, chunk))
        seconds = time.perf_counter() - start
        between = sum(client.run(sent).values()) - before
        peaks = sorted(client.run(peak).values())
    in_passes = [each for each, _, _ in passes]
    return {
        "rows": n,
        "chunks": -(-n // chunk),
        "workers": workers,
        "features": model.features_.n_components_,
        "seconds": seconds,
        "passes": in_passes,
        "between": seconds - sum(in_passes),
        "peak MB": peaks,
        "processor seconds here": [busy for _, _, busy in passes],
        "loopback bytes a row": [count / n for _, count, _ in passes],
        "worker bytes a row": between / n,
    }


def cost_of_chunks(workers: int) -> dict[str, float]:
    """Seconds of a chunk of hardly any rows in one pass: in all, and in the scheduler."""

    def pass_over(count: int) -> Any:
        source = DaskSource(*rows_of(count * FEW_ROWS, FEW_ROWS))
        source.reduce(rows_in)
        start, busy = time.perf_counter(), time.process_time()
        source.reduce(rows_in)
        return np.array([time.perf_counter() - start, time.process_time() - busy])

    with cluster_of(workers):
        few, many = (pass_over(count) for count in MANY_CHUNKS)
    wall, here = (many - few) / (MANY_CHUNKS[1] - MANY_CHUNKS[0])
    return {"seconds": float(wall), "scheduler": float(here)}


def rows_in(block: Any) -> int:
    return len(block)


# --- the formula ---------------------------------------------------------------------------------


def constants(small: dict[str, Any], large: dict[str, Any], chunk: Any) -> dict[str, Any]:
    """Base seconds; of each pass seconds that it always takes, and seconds of a row."""
    each_chunk = chunk["seconds"]
    base = 0.5 * (small["between"] + large["between"])
    fixed, rows = [], []
    for i, (first, second) in enumerate(zip(small["passes"], large["passes"], strict=True)):
        if i == ONE_CHUNK:
            rows.append(0.0)
            fixed.append(0.5 * (first + second))
            continue
        first, second = first - each_chunk * small["chunks"], second - each_chunk * large["chunks"]
        slope = (second - first) / (large["rows"] / large["workers"] - _share(small))
        rows.append(slope)
        fixed.append(max(0.0, first - slope * _share(small)))
    scheduler = min(chunk["scheduler"], each_chunk)
    in_worker = large["workers"] * (each_chunk - scheduler)
    return {"base": base, "fixed": fixed, "row": rows, "d": scheduler, "e": in_worker}


def _share(line: dict[str, Any]) -> float:
    return line["rows"] / line["workers"]


def predicted(known: dict[str, Any], n: int, workers: int, chunk: int) -> list[float]:
    """Seconds of each pass by the formula, and between the passes last."""
    chunks = -(-n // chunk)
    passes = zip(known["fixed"], known["row"], strict=True)
    of_chunks = known["e"] * chunks / workers + known["d"] * chunks
    of_passes = [a + c * n / workers + of_chunks for a, c in passes]
    of_passes[ONE_CHUNK] -= of_chunks
    return [*of_passes, known["base"]]


# --- faults --------------------------------------------------------------------------------------


def spilled(dask_worker: Any) -> tuple[int, int]:
    """Values on disk, and their bytes there."""
    data = dask_worker.data
    return len(data.slow), int(data.spilled_total.disk)


def faults(report: Report, n: int, chunk: int, s: int) -> None:
    """Persisted rows that have to spill, and a worker that is killed in the middle of a pass."""
    with cluster_of(2) as client:
        X, y = dask.persist(*rows_of(n, chunk))
        wait([X, y])
        start = time.perf_counter()
        expected = regression(s).fit(X, y)
        undisturbed = time.perf_counter() - start
        start = time.perf_counter()
        killed, restarted = _with_a_kill(client, X, y, s, after=0.5 * undisturbed)
        killed_seconds = time.perf_counter() - start
    # A worker may keep a quarter of its rows in memory; the others have to wait on disk.
    memory, kept = 2e9, 0.25 * n * (COLUMNS + 1) * 4 / 2
    levels = {"target": kept / memory, "spill": False, "pause": False, "terminate": False}
    settings = {f"distributed.worker.memory.{name}": level for name, level in levels.items()}
    with dask.config.set(settings), cluster_of(2, memory_limit=int(memory)) as client:
        X, y = dask.persist(*rows_of(n, chunk))
        wait([X, y])
        on_disk = client.run(spilled)
        start = time.perf_counter()
        spilling = regression(s).fit(X, y)
        spilling_seconds = time.perf_counter() - start
    for name, model, seconds, more in (
        ("undisturbed", expected, undisturbed, {}),
        ("a worker killed", killed, killed_seconds, {"workers restarted": restarted}),
        ("spilling", spilling, spilling_seconds,
         {"MB in memory": 2 * kept / 1e6, "MB on disk": sum(b for _, b in on_disk.values()) / 1e6}),
    ):  # fmt: skip
        apart = float(np.abs(model.coef_ - expected.coef_).max())
        report.record(part="faults", run=name, rows=n, seconds=seconds, apart=apart, **more)
        report.print(f"{name}: {seconds:.1f} s, coefficients apart by {apart:.1e} {more or ''}")
        report.check(f"{name}: coefficients apart", apart, 0.0)
    report.check("values on disk, negative", -sum(count for count, _ in on_disk.values()), -1)
    report.check("workers restarted, negative", -restarted, -1)


def _with_a_kill(client: Client, X: Any, y: Any, s: int, after: float) -> tuple[Any, int]:
    """Fit while one worker process gets SIGKILL; its nanny starts another one."""
    from threading import Timer

    pids = client.run(os.getpid)
    timer = Timer(after, os.kill, (next(iter(pids.values())), signal.SIGKILL))
    timer.start()
    try:
        model = regression(s).fit(X, y)
    finally:
        timer.cancel()
    client.wait_for_workers(2, timeout=60)
    return model, len(set(client.run(os.getpid).values()) - set(pids.values()))


def main() -> None:
    arguments = parser(__doc__, seeds=None)
    arguments.add_argument("--rows", type=int, nargs="*", default=[])
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--features", type=int, default=500)
    arguments.add_argument("--faults", action="store_true")
    args = arguments.parse_args()
    sizes = [200_000, 400_000, 800_000] if args.quick else sorted(args.rows)
    s, chunk = (50, 50_000) if args.quick else (args.features, CHUNK_ROWS)
    with Report("dask_billion", args) as report:
        kept = [r for r in report.earlier_records() if not args.quick]
        if args.faults or args.quick:
            faults(report, *((200_000, 20_000) if args.quick else (2_000_000, 100_000)), s)
        else:
            report.records += [r for r in kept if r["part"] == "faults"]
        earlier = {r["rows"]: r for r in kept if r["part"] == "fit"}
        found = earlier | {n: measure(n, args.workers, s, chunk) for n in sizes}
        known = [r for r in kept if r["part"] == "chunk" and "scheduler" in r]
        each_chunk = known[0] if known else {"part": "chunk", **cost_of_chunks(args.workers)}
        report.record(**each_chunk)
        for n in sorted(found):
            report.record(**{"part": "fit", **found[n]})
        if found:
            show(report, [found[n] for n in sorted(found)], each_chunk, chunk)


def show(report: Report, lines: list[dict[str, Any]], each_chunk: Any, chunk: int) -> None:
    """The table of passes; from the two smallest sizes the constants, and what they predict."""
    title = f"{lines[0]['workers']} workers, {lines[0]['features']} features, seconds"
    heads = ("", *(f"{line['rows']:,}" for line in lines))
    table: list[tuple[Any, ...]] = [
        (name, *(line["passes"][i] for line in lines)) for i, name in enumerate(PASSES)
    ]
    table.append(("between the passes", *(line["between"] for line in lines)))
    table.append(("all", *(line["seconds"] for line in lines)))
    table.append(("memory of the largest worker, MB", *(max(line["peak MB"]) for line in lines)))
    loop = [sum(line["loopback bytes a row"]) for line in lines]
    table.append(("bytes a row, all of loopback", *loop))
    table.append(("bytes a row, between workers", *(line["worker bytes a row"] for line in lines)))
    report.table(title, heads, table)
    if len(lines) < 2:
        return
    known = constants(lines[0], lines[1], each_chunk)
    micro = [1e6 * c for c in known["row"]]
    report.set("constants", base=known["base"], microseconds_a_row=sum(micro),
               fixed=sum(known["fixed"]), milliseconds_a_chunk_in_a_worker=1e3 * known["e"],
               milliseconds_a_chunk_in_the_scheduler=1e3 * known["d"])  # fmt: skip
    report.settings["constants"]["passes"] = [
        {"name": name, "fixed": a, "microseconds a row": c}
        for name, a, c in zip(PASSES, known["fixed"], micro, strict=True)
    ]
    for line in lines[2:]:
        expected = sum(predicted(known, line["rows"], line["workers"], chunk))
        report.print(f"{line['rows']:,} rows: {expected:.0f} s by the formula, "
                     f"{line['seconds']:.0f} s measured")  # fmt: skip
        report.check(f"{line['rows']:,} rows: relative error of the formula",
                     abs(expected - line["seconds"]) / line["seconds"], ERROR)  # fmt: skip
    for n, workers in FAR:
        seconds = predicted(known, n, workers, chunk)
        scheduler = (len(PASSES) - 1) * known["d"] * -(-n // chunk)
        report.set(f"{n:,} rows on {workers} workers", minutes=sum(seconds) / 60,
                   of_them_scheduler=scheduler / 60)  # fmt: skip


if __name__ == "__main__":
    main()
