"""Claim: AutoFeatures is within 5 % of the best single method's RMSE at equal time.

Six sets, of which friedman and product played no part in choosing its constants. Gamma and alpha by
cross-validation on a subsample, the same for all. At the time that AutoFeatures took, all of it
(trials, fit of the map and the ridge), the best single method is the one with the lowest RMSE among
those that took no longer, at any of the sizes. Also draws error against features and against time.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from _common import Array, Report, parser, tuned
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split

from kernelsieve import (
    AdaptiveFeatures,
    AutoFeatures,
    FourierFeatures,
    KernelRidge,
    NystromFeatures,
    RowNormFeatures,
    datasets,
)
from kernelsieve.bench.problem import scaler_for

SINGLE: dict[str, Any] = {
    "adaptive": AdaptiveFeatures,
    "row norm": RowNormFeatures,
    "Fourier": FourierFeatures,
    "Nystrom": NystromFeatures,
}
DATA = ("wine", "insurance", "forest", "uji", "friedman", "product")
MAX_ROWS = 40_000
WITHIN = 1.05


def split(name: str, seed: int, n_rows: int) -> list[Array]:
    data = datasets.load(name)
    chosen = np.random.default_rng(seed).permutation(len(data.y))[:n_rows]
    parts = train_test_split(data.X[chosen], data.y[chosen], test_size=0.25, random_state=seed)
    X_train, X_test, y_train, y_test = parts
    scaler = scaler_for(X_train)
    return [scaler.fit_transform(X_train), scaler.transform(X_test), y_train, y_test]


def measure(report: Report, name: str, seed: int, sizes: list[int], n_rows: int) -> None:
    X_train, X_test, y_train, y_test = split(name, seed, n_rows)
    if seed == 0:
        gamma, alpha = tuned(X_train, y_train, report.threads)
        report.set(name, gamma=gamma, alpha=alpha, n_train=len(y_train))
    for s in sizes:
        for method, cls in {**SINGLE, "auto": AutoFeatures}.items():
            setting = report.settings[name]
            features = cls(s, gamma=setting["gamma"], random_state=seed, n_jobs=report.threads)
            model = KernelRidge(features, alpha=setting["alpha"], n_jobs=report.threads)
            start = time.perf_counter()
            model.fit(X_train, y_train)
            spent = time.perf_counter() - start
            report.record(
                data=name,
                s=s,
                method=method,
                seed=seed,
                rmse=float(root_mean_squared_error(y_test, model.predict(X_test))),
                fit_seconds=spent,
                reason=getattr(model.features_, "reason_", ""),
            )


def judge(report: Report, name: str, sizes: list[int]) -> None:
    means = {
        (method, s): (
            report.mean("rmse", data=name, s=s, method=method),
            report.mean("fit_seconds", data=name, s=s, method=method),
        )
        for method in [*SINGLE, "auto"]
        for s in sizes
    }
    rows: list[Any] = [
        (method, *(f"{means[method, s][0]:.4g} ({means[method, s][1]:.2g} s)" for s in sizes))
        for method in [*SINGLE, "auto"]
    ]
    report.table(f"{name}: test RMSE (fit)", ("", *(f"s = {s:,}" for s in sizes)), rows)
    for s in sizes:
        report.print(report.select(data=name, s=s, method="auto")[0]["reason"])
    ratios = []
    for s in sizes:
        rmse, spent = means["auto", s]
        rivals = [means[m, k][0] for m in SINGLE for k in sizes if means[m, k][1] <= spent]
        if rivals:
            ratios.append(rmse / min(rivals))
    report.check(f"{name}: auto / best at equal time, worst size", max(ratios), WITHIN)


def draw(report: Report, names: list[str], sizes: list[int], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        2, len(names), figsize=(3.0 * len(names), 5.4), sharey="col", layout="constrained"
    )
    colours = dict(zip([*SINGLE, "auto"], ("C0", "C2", "C1", "C4", "k"), strict=True))
    for column, name in enumerate(names):
        for method, colour in colours.items():
            where = [{"data": name, "s": s, "method": method} for s in sizes]
            errors = [report.mean("rmse", **w) for w in where]
            times = [report.mean("fit_seconds", **w) for w in where]
            style = {"color": colour, "marker": "o", "markersize": 3, "label": method}
            dashes = "--" if method == "auto" else "-"
            axes[0, column].plot(sizes, errors, dashes, **style)
            axes[1, column].plot(times, errors, dashes, **style)
        axes[0, column].set_title(name, fontsize=10)
        axes[0, column].set_xscale("log")
        axes[1, column].set_xscale("log")
        axes[0, column].set_xlabel("features")
        axes[1, column].set_xlabel("seconds to fit")
    axes[0, 0].set_ylabel("test RMSE")
    axes[1, 0].set_ylabel("test RMSE")
    axes[0, -1].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    arguments = parser(__doc__, seeds=3)
    arguments.add_argument("--sizes", nargs="+", type=int, default=[250, 500, 1000, 2000])
    arguments.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    arguments.add_argument("--picture", type=Path, default=None)
    args = arguments.parse_args()
    sizes = [50, 100] if args.quick else args.sizes
    with Report("auto", args) as report:
        for name in args.data:
            for seed in range(args.seeds):
                measure(report, name, seed, sizes, 1_500 if args.quick else MAX_ROWS)
            judge(report, name, sizes)
        if args.picture:
            draw(report, args.data, sizes, args.picture)


if __name__ == "__main__":
    main()
