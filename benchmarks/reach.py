"""Claim: fewer features and less time to reach the test error of Fourier and Nystrom features.

KernelRidge on our maps, and scikit-learn's RBFSampler and Nystroem with Ridge, at s = 125, 250, ...
on all rows of wine, insurance, forest and uji; gamma and alpha by cross-validation on Fourier
features, the same for all; a seed changes split and features. Many rows are float32, for everybody.
``benchmarks/page.py`` makes of it the rows on RMSE at equal s, and on s and time to reach an error.
With ``--data`` and ``--methods`` all other numbers stay those of their last run.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from _common import Array, Report, parser, scaled_split, tuned
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import Ridge
from sklearn.metrics import root_mean_squared_error
from sklearn.pipeline import make_pipeline

from kernelsieve import (
    AdaptiveFeatures,
    AutoFeatures,
    FourierFeatures,
    KernelRidge,
    NystromFeatures,
    ObliviousFeatures,
    RowNormFeatures,
    datasets,
)

MAPS: dict[str, Any] = {
    "adaptive": AdaptiveFeatures,
    "row norm": RowNormFeatures,
    "auto": AutoFeatures,
    "Fourier": FourierFeatures,
    "Nystrom": NystromFeatures,
    "oblivious": ObliviousFeatures,
}
PEERS: dict[str, Any] = {"RBFSampler": RBFSampler, "Nystroem": Nystroem}
DATA = ("wine", "insurance", "forest", "uji")
SIZES = (125, 250, 500, 1000, 2000, 4000)
LARGEST = {"Nystroem": 1000, "oblivious": 2000}  # the largest to be compared with: they are slow
BETWEEN = (750, 1250, 1500, 1750)  # of our own, too: which is the first that reaches?
OURS = ("adaptive", "row norm")
LARGE_ROWS, LARGEST_OF_LARGE = 100_000, 2000  # of many rows not the largest s: hours, and 14 GB


def split(name: str, seed: int, n_rows: int | None) -> list[Array]:
    data = datasets.load(name)
    X_train, X_test, y_train, y_test = scaled_split(data.X[:n_rows], data.y[:n_rows], seed)
    if len(y_train) > LARGE_ROWS:
        X_train, X_test = X_train.astype(np.float32), X_test.astype(np.float32)
    return [X_train, X_test, y_train, y_test]


def models(s: int, gamma: float, alpha: float, seed: int, threads: int) -> dict[str, Any]:
    """Unfitted regressors by name."""
    ours = {
        name: KernelRidge(
            cls(s, gamma=gamma, random_state=seed, n_jobs=threads), alpha=alpha, n_jobs=threads
        )
        for name, cls in MAPS.items()
    }
    return ours | {
        name: make_pipeline(
            cls(gamma=gamma, n_components=s, random_state=seed), Ridge(alpha=alpha, copy_X=False)
        )
        for name, cls in PEERS.items()
    }


def measure(report: Report, name: str, seed: int, sizes: list[int], n_rows: int | None) -> None:
    X_train, X_test, y_train, y_test = split(name, seed, n_rows)
    if seed == 0:
        gamma, alpha = tuned(X_train, y_train, report.threads)
        report.set(name, gamma=gamma, alpha=alpha, n_train=len(y_train))
    setting = report.settings[name]
    for s in sizes:
        if len(y_train) > LARGE_ROWS and s > LARGEST_OF_LARGE:
            continue
        regressors = models(s, setting["gamma"], setting["alpha"], seed, report.threads)
        for method in report.args.methods:
            model = regressors[method]
            if s > LARGEST.get(method, s) or (s in BETWEEN and method not in OURS):
                continue
            start = time.perf_counter()
            model.fit(X_train, y_train)
            spent = time.perf_counter() - start
            error = float(root_mean_squared_error(y_test, model.predict(X_test)))
            report.record(data=name, s=s, method=method, seed=seed, rmse=error, fit_seconds=spent)


def show(report: Report, name: str) -> None:
    sizes = sorted({r["s"] for r in report.select(data=name)})
    for what, field in (("test RMSE", "rmse"), ("seconds to fit", "fit_seconds")):
        rows = [
            (method, *(mean(report, field, data=name, s=s, method=method) for s in sizes))
            for method in (*MAPS, *PEERS)
        ]
        report.table(f"{name}: {what}", ("s =", *(str(s) for s in sizes)), rows)


def mean(report: Report, field: str, **where: Any) -> str:
    """Three digits, or a dash where there is nothing."""
    return f"{report.mean(field, **where):.3g}" if report.select(**where) else "-"


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    every = [*MAPS, *PEERS]
    arguments.add_argument("--methods", nargs="+", default=every, choices=every)
    arguments.add_argument("--sizes", nargs="+", type=int, default=sorted(SIZES + BETWEEN))
    args = arguments.parse_args()
    sizes, n_rows = ([25, 50], 500) if args.quick else (args.sizes, None)
    with Report("reach", args) as report:
        report.records += [
            record
            for record in report.earlier_records()
            if record["data"] not in args.data or record["method"] not in args.methods
        ]
        for name in args.data:
            warm = split(name, 0, 2000)
            for model in models(min(sizes), 0.01, 1.0, 0, report.threads).values():
                model.fit(warm[0], warm[2])  # compiles
            for seed in range(1 if args.quick else args.seeds):
                measure(report, name, seed, sizes, n_rows)
            show(report, name)


if __name__ == "__main__":
    main()
