"""Claims on the full kernel: iterations, time, memory, and what it is worth.

iterations: 20,000 rows of forest, gamma and alpha tuned, the default map: at most 15. time: 50,000
rows of forest to a residual of 1e-3 in at most 300 s, with the peak of memory. tables FOLDER: test
RMSE of the learned default with and without the full kernel, on .npz files with X, y and test_mask.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from _common import Report, high_water, parser, standardised, subsample, tuned

from kernelsieve import AdaptiveFeatures, KernelRidge, KernelRidgeCV
from kernelsieve.tuning import learned

TABLES = ("bike", "pumadyn32nm", "keggdirected", "tamielectric")
NO_REFINEMENT = learned.LearnOptions(full_work=0.0)


def iterations(report: Report, n_rows: int, size: int) -> None:
    X, y = standardised("forest")
    X, y = subsample(X, n_rows, 0), subsample(y, n_rows, 0)
    gamma, alpha = tuned(X, y, report.threads)
    report.set("iterations, forest", gamma=gamma, alpha=alpha, n=len(y), s=size)
    features = AdaptiveFeatures(size, gamma=gamma, random_state=0, n_jobs=report.threads)
    model = KernelRidge(features, alpha=alpha, refine=True, random_state=0)
    began = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - began
    report.record(part="iterations", seconds=seconds, iterations=model.n_iter_)
    report.table("iterations", ("iterations", "fit s"), [(model.n_iter_, seconds)])
    report.check("forest, default map: iterations", model.n_iter_, 15)


def large(report: Report, n_rows: int) -> None:
    X, y = standardised("forest")
    X, y = subsample(X, n_rows, 0), subsample(y, n_rows, 0)
    gamma, alpha = tuned(X, y, report.threads)
    report.set("time, forest", gamma=gamma, alpha=alpha, n=len(y))
    features = AdaptiveFeatures(1000, gamma=gamma, random_state=0, n_jobs=report.threads)
    model = KernelRidge(features, alpha=alpha, refine=True, tol=1e-3, random_state=0)
    began = time.perf_counter()
    model.fit(X, y)
    seconds, peak = time.perf_counter() - began, high_water() / 2**30
    report.record(part="time", seconds=seconds, residual=model.residual_, gib=peak)
    rows = [(model.n_iter_, model.residual_, seconds, peak)]
    report.table("time", ("iterations", "residual", "fit s", "peak GiB"), rows)
    report.check(f"forest, {len(y):,} rows: seconds", seconds, 300.0)


def tables(report: Report, folder: Path, splits: int) -> None:
    rows = []
    for name in TABLES:
        data = np.load(folder / f"{name}.npz")
        X, y = data["X"].astype(np.float64), data["y"].astype(np.float64).ravel()
        for split in range(splits):
            test = data["test_mask"][:, split].astype(bool)
            found: dict[str, Any] = {}
            for label in ("features", "auto"):
                options = NO_REFINEMENT if label == "features" else learned.LearnOptions()
                began = time.perf_counter()
                with mock.patch.object(learned, "LearnOptions", lambda options=options: options):
                    model = KernelRidgeCV(random_state=split).fit(X[~test], y[~test])
                found[f"{label} s"] = time.perf_counter() - began
                errors = model.predict(X[test]) - y[test]
                found[label] = float(np.sqrt(np.mean(errors**2)))
            found["refined"] = bool(model.model_.refine)
            report.record(part="tables", table=name, split=split, **found)
            rows.append((name, split, *found.values()))
            ratio = found["auto"] / found["features"]
            report.check(f"{name}, split {split}: RMSE, auto / features", ratio, 1.01)
    heads = ("table", "split", "features s", "features", "auto s", "auto", "refined")
    report.table("test RMSE", heads, rows)


def main() -> None:
    arguments = parser(__doc__, seeds=None)
    arguments.add_argument("--parts", nargs="+", default=["iterations", "time"])
    arguments.add_argument("--folder", type=Path, help="of the tables")
    arguments.add_argument("--splits", type=int, default=1)
    args = arguments.parse_args()
    warnings.simplefilter("ignore")
    with Report("refine", args) as report:
        if "iterations" in args.parts:
            iterations(report, 800 if args.quick else 20_000, 100 if args.quick else 1000)
        if "time" in args.parts:
            large(report, 800 if args.quick else 50_000)
        if args.folder is not None:
            tables(report, args.folder, args.splits)


if __name__ == "__main__":
    main()
