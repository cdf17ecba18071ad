"""Claim: a LIBSVM file of 10^6 rows x 10^6 columns is embedded and fitted in bounded memory.

50 nonzeros in each row, columns by a power law, values near 1. The text is written to a temporary
folder and parsed once by `SvmlightSource`; then `RowNormFeatures` and `AdaptiveFeatures`
(polynomial of degree 2) and their ridges are fitted. Anonymous memory is measured as in
`out_of_core.py`; twice the rows must not take more, up to 20 %.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from _common import OURS, Report, in_new_process, parser
from out_of_core import highest_memory

from kernelsieve import KernelRidge, RowNormFeatures
from kernelsieve.kernels import Polynomial
from kernelsieve.sources.svmlight import SvmlightSource

PER_ROW = 50
BLOCK_ROWS = 10_000
MEMORY = 1.5e9
SAME = 1.2


def write(path: Path, n_rows: int, n_columns: int) -> None:
    """The text, block by block: columns by a power law, labels of a few common columns."""
    with open(path, "w") as file:
        for number, start in enumerate(range(0, n_rows, BLOCK_ROWS)):
            rng = np.random.default_rng(number)
            count = min(BLOCK_ROWS, n_rows - start)
            draws = rng.random((count, PER_ROW))
            # Column c with density 1 / c: as common words and rare ones.
            columns = np.sort(np.floor(n_columns**draws).astype(np.int64), axis=1)
            values = rng.uniform(0.5, 1.5, size=columns.shape).round(3)
            for line, amounts in zip(columns.tolist(), values.tolist(), strict=True):
                row = dict(zip(line, amounts, strict=True))  # a column once
                y = row.get(2, 0.0) + row.get(3, 0.0) * row.get(5, 0.0) - row.get(7, 0.0)
                file.write(f"{y:.4f} " + " ".join(f"{c}:{v}" for c, v in row.items()) + "\n")


def work(path: Path, n_columns: int, s: int, threads: int) -> list[dict[str, Any]]:
    """Parse, and fit with every map; seconds and memory."""
    kernel = Polynomial(2, gamma=1.0 / PER_ROW, coef0=1.0)
    warm = path.with_suffix(".few")
    with open(path) as text:
        warm.write_text("".join(next(text) for _ in range(1000)))
    few = SvmlightSource(warm, n_features=n_columns + 1)
    KernelRidge(RowNormFeatures(20, kernel=kernel, random_state=0)).fit(few)
    del few
    results = []
    with highest_memory() as highest:
        start = time.perf_counter()
        source = SvmlightSource(path, n_features=n_columns + 1, dtype=np.float32)
        parsed = time.perf_counter() - start
        results.append({"what": "parse", "seconds": parsed, "memory": highest()})
        for name, map_class in OURS.items():
            features = map_class(s, kernel=kernel, random_state=0, n_jobs=threads)
            start = time.perf_counter()
            fitted = KernelRidge(features, alpha=1.0, n_jobs=threads).fit(source)
            seconds = time.perf_counter() - start
            rows = source.head(20_000)
            error = np.sqrt(np.mean((fitted.predict(rows.X) - rows.y) ** 2)) / rows.y.std()
            results.append(
                {"what": name, "seconds": seconds, "memory": highest(), "error": float(error)}
            )
    return [{**result, "rows": source.shape[0]} for result in results]


def main() -> None:
    arguments = parser(__doc__, seeds=None)
    arguments.add_argument("--folder", type=Path, help="for the temporary files")
    arguments.add_argument("--rows", type=int, help="default 10^6")
    args = arguments.parse_args()
    n_rows, n_columns, s = (20_000, 20_000, 100) if args.quick else (10**6, 10**6, 1_000)
    n_rows = args.rows or n_rows
    with Report("sparse_out_of_core", args) as report:
        report.set("size", rows=n_rows, columns=n_columns, per_row=PER_ROW, s=s)
        for count in (n_rows // 2, n_rows):
            with tempfile.TemporaryDirectory(dir=args.folder) as folder:
                path = Path(folder) / "rows.svm"
                write(path, count, n_columns)
                size = path.stat().st_size
                for result in in_new_process(work, path, n_columns, s, report.threads):
                    report.record(text_bytes=size, **result)
        rows = [
            (
                f"{r['what']}, {r['rows']:,} rows",
                r["text_bytes"] / 1e6,
                r["seconds"],
                r["rows"] / r["seconds"],
                r["memory"] / 1e6,
                r.get("error", np.nan),
            )
            for r in report.records
        ]
        columns = ("step", "text MB", "s", "rows/s", "memory MB", "RMSE / std")
        report.table("from text to a ridge", columns, rows)
        memory = [max(r["memory"] for r in report.select(rows=n)) for n in (n_rows // 2, n_rows)]
        report.check("anonymous memory, bytes", memory[1], MEMORY)
        report.check("memory against that of half the rows", memory[1] / memory[0], SAME)


if __name__ == "__main__":
    main()
