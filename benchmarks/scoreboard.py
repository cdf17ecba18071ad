"""The scoreboard: the default model beside trees, kernel machines and a linear model, many tables.

Every method has its own defaults and the same splits; one process for each fit, one thread, a limit
of time and memory. Peers that are not installed are lines in the table. Interrupted runs resume.

    python benchmarks/scoreboard.py FOLDER        # npz files with X, y and test_mask, CSV files
    python benchmarks/scoreboard.py FOLDER --methods default ebm --keep    # the others as they were
"""

from __future__ import annotations

import argparse
import json
import os
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter

from kernelsieve._files import write_text
from kernelsieve.bench import PEERS, Store
from kernelsieve.bench import scoreboard_report as report
from kernelsieve.bench.isolated import Limits
from kernelsieve.bench.methods import DEFAULT_METHODS
from kernelsieve.bench.records import Result
from kernelsieve.bench.scoreboard import (
    Scoreboard,
    ScoreboardPlan,
    find_tables,
    run_scoreboard,
)

TARGETS = {
    "diamonds": "price",
    "taxis": "fare",
    "titanic": "survived",
    "penguins": "species",
    "mpg": "mpg",
}
DROP = ("tip", "tolls", "total", "alive")  # they tell the target
PACKAGES = (
    "kernelsieve",
    "numpy",
    "scipy",
    "scikit-learn",
    "numba",
    "lightgbm",
    "interpret",
    "interpret-core",
    "xrfm",
    "xGPR",
)
DATASETS = ("wine", "insurance", "forest", "uji")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--data", nargs="*", default=list(DATASETS))
    parser.add_argument("--methods", nargs="*", default=[*DEFAULT_METHODS, *PEERS])
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for one fit")
    parser.add_argument("--memory", type=float, default=6.0, help="GiB for one fit")
    parser.add_argument("--records", type=Path, default=Path("bench-results/scoreboard.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--keep", action="store_true", help="methods of the last run stay")
    args = parser.parse_args()
    began = perf_counter()
    places = ([args.folder] if args.folder else []) + args.data
    tables, notes = find_tables(places, TARGETS, DROP)
    for note in notes:
        print(note)
    plan = ScoreboardPlan(
        tuple(tables),
        tuple(args.methods),
        n_splits=args.splits,
        max_rows=args.rows,
        n_threads=args.threads,
        limits=Limits(args.limit, int(args.memory * 2**30)),
    )
    args.records.parent.mkdir(parents=True, exist_ok=True)
    board = run_scoreboard(
        plan,
        Store(args.records),
        lambda step, done, total: print(f"{done}/{total} {step}", flush=True),
    )
    if args.keep:
        board = with_earlier(board, args.out)
    write(board, args, perf_counter() - began)


def with_earlier(board: Scoreboard, out: Path) -> Scoreboard:
    """The same with the methods of the last run that were not run now, on the same tables."""
    last = json.loads((out / "scoreboard.json").read_text())
    sizes = {t["table"]: (t["n_train"], t["n_test"], t["n_columns"]) for t in last["tables"]}
    if sizes != {s.dataset: (s.n_train, s.n_test, s.n_inputs) for s in board.setups}:
        raise SystemExit("--keep: the last run had other tables, or other rows of them")
    kept = [
        Result(r.pop("table"), "", n_components=None, seed=r.pop("split"), **r)
        for r in last["records"]
        if r["method"] not in board.methods
    ]
    methods = [*board.methods, *dict.fromkeys(r.method for r in kept)]
    return Scoreboard(board.setups, methods, [*board.results, *kept])


def versions() -> dict[str, str]:
    """Of the packages that are installed."""
    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def write(board: Scoreboard, args: argparse.Namespace, seconds: float) -> None:
    """Every number as JSON, the scoreboard as Markdown and HTML."""
    content = {
        "benchmark": "scoreboard",
        "arguments": {"splits": args.splits, "rows": args.rows, "threads": args.threads,
                      "limit": args.limit, "memory": args.memory},
        "machine": {"cores": os.cpu_count(), "threads": args.threads, "load": os.getloadavg(),
                    **board.setups[0].environment},
        "versions": versions(),
        "seconds": seconds,
        "markdown": report.markdown(board, heading="###"),
        "critical_difference": board.critical_difference,
        "lines": [asdict(line) for line in board.lines()],
        "tables": [
            {"table": s.dataset, "metric": s.metric, "n_train": s.n_train, "n_test": s.n_test,
             "n_columns": s.n_inputs}
            for s in board.setups
        ],
        "records": [
            {"table": r.dataset, "method": r.method, "split": r.seed, "failure": r.failure,
             "error": r.error, "scores": r.scores, "fit_seconds": r.fit_seconds,
             "processor_seconds": r.processor_seconds, "peak_bytes": r.peak_bytes}
            for r in board.results
        ],
    }  # fmt: skip
    args.out.mkdir(parents=True, exist_ok=True)
    write_text(args.out / "scoreboard.json", json.dumps(content, indent=1) + "\n")
    print(report.markdown(board))


if __name__ == "__main__":
    main()
