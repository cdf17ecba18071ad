"""What a fit of many rows takes: constants measured on this machine, and the table made of them.

One thread. Seconds a row of the passes that choose features (moments, radii, ranges, histograms)
and of the pass that adds up the normal equations, seconds of what is done once (choosing features,
solving), and bytes that a worker holds. The table of `docs/out-of-core.md` is printed by this
script; nothing of it was run at 10^9 rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from _common import Report, in_new_process, parser
from out_of_core import anonymous_memory

from kernelsieve import AdaptiveFeatures, KernelRidge
from kernelsieve.sources.base import ArraySource

COLUMNS = 20
ITEM = 8  # bytes of float64
PART_ROWS = 4096
CHUNK_ROWS = 250_000
PLANS = (  # rows, workers of one core each
    (10**6, 1),
    (10**7, 2),
    (10**8, 16),
    (10**9, 64),
    (10**9, 256),
)


@contextmanager
def timed_passes() -> Iterator[list[float]]:
    """Seconds of every pass inside over more rows than any subsample has."""
    seconds: list[float] = []
    reduce = ArraySource.reduce

    def timed(self: ArraySource, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return reduce(self, *args, **kwargs)
        finally:
            if self.shape[0] > 10_000:
                seconds.append(time.perf_counter() - start)

    ArraySource.reduce = timed  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        ArraySource.reduce = reduce  # type: ignore[method-assign]


def constants(n_rows: int, s: int) -> dict[str, float]:
    """Seconds: a row of the choosing passes, a row of the last pass, and once."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, COLUMNS))
    y = X[:, 0] * X[:, 1]
    features = AdaptiveFeatures(s, gamma=0.5 / COLUMNS, random_state=0, n_jobs=1)
    model = KernelRidge(features, alpha=1.0, solver="cholesky", n_jobs=1)
    model.fit(X[:12_000], y[:12_000])
    with timed_passes() as passes:
        start = time.perf_counter()
        model.fit(X, y)
        total = time.perf_counter() - start
    return {
        "passes": len(passes),
        "choosing": sum(passes[:-1]) / n_rows,
        "adding": passes[-1] / n_rows,
        "once": total - sum(passes),
    }


def worker_bytes(s: int) -> float:
    """A chunk, its features part by part, the sums of a chunk and those that it is added to."""
    return ITEM * (CHUNK_ROWS * (COLUMNS + 1) + 2 * PART_ROWS * s + 3 * s**2)


def interpreter_bytes() -> int:
    """What Python and the libraries take in a worker that has not seen rows yet."""
    return in_new_process(anonymous_memory)


def main() -> None:
    args = parser(__doc__, seeds=None).parse_args()
    sizes = (50, 100) if args.quick else (500, 1000, 4000)
    args.threads = 1
    with Report("sizing", args) as report:
        empty = interpreter_bytes()
        report.set("memory of a worker without rows", MB=empty / 1e6)
        for s in sizes:
            report.record(s=s, **constants(20_000 if args.quick else 10**8 // s, s))
        report.table(
            "constants",
            ("features", "passes", "choosing us/row", "adding us/row", "once s"),
            [
                (f"{r['s']}", r["passes"], 1e6 * r["choosing"], 1e6 * r["adding"], r["once"])
                for r in report.records
            ],
        )
        lines = ["| rows | workers | features | passes | memory of a worker | time |"]
        lines.append("| ---: | ---: | ---: | ---: | ---: | ---: |")
        for rows, workers in PLANS:
            for r in report.records:
                each = rows / workers * (r["choosing"] + r["adding"])
                lines.append(
                    f"| 10^{int(np.log10(rows))} | {workers} | {r['s']:,} | {r['passes']} | "
                    f"{(empty + worker_bytes(r['s'])) / 1e6:,.0f} MB | {_time(each + r['once'])} |"
                )
        report.print("\n".join(lines))


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


if __name__ == "__main__":
    main()
