"""Claim: the test RMSE of docs/why-the-engine.md (Two phases), beside scikit-learn's peers.

AdaptiveFeatures + KernelRidge on forest (435,759 training rows), uji and wine, gammas and alphas of
that table, at most 2 % above it. Target-aware features against row norm at s = 1,000: at least 30 %
lower on a regression on products, at least 5 % on forest. A seed changes split and features.

The products are those of kernelsieve.datasets.make_product in 30 columns, where s = 1,000 is a
fraction of the 5,456 monomials of degree <= 3; Gaussian with gamma = 1 / (2 d), and polynomial of
degree 3 with gamma = 1 / d, coef0 = 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from _common import Array, Report, parser, scaled_split, space_of
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import Ridge
from sklearn.metrics import root_mean_squared_error
from sklearn.pipeline import make_pipeline

from kernelsieve import (
    AdaptiveFeatures,
    FourierFeatures,
    KernelRidge,
    RowNormFeatures,
    datasets,
)
from kernelsieve.features import FeatureMap
from kernelsieve.kernels import Gaussian, Polynomial

PRODUCT_COLUMNS = 30
TABLE = {  # the two-phase column of that table
    ("forest", 500): 0.978,
    ("forest", 1000): 0.930,
    ("uji", 500): 17.4,
    ("uji", 2000): 12.95,
    ("wine", 1000): 0.6696,
}
ABOVE_TABLE = 1.02
TARGET_AWARE = {"product gauss": 0.70, "product poly": 0.70, "forest": 0.95}
ROW_NORM_SIZE = 1000


@dataclass(frozen=True)
class Problem:
    """Data, a kernel for them, and alpha."""

    load: Callable[[int], tuple[Array, Array]]
    kernel: Gaussian | Polynomial
    alpha: float


def file(name: str) -> Callable[[int], tuple[Array, Array]]:
    """A loader of a dataset that is the same for every seed."""

    def load(_: int) -> tuple[Array, Array]:
        data = datasets.load(name)
        return data.X, data.y

    return load


def products(seed: int) -> tuple[Array, Array]:
    """16,000 rows, 12,000 of them for training."""
    return datasets.make_product(16_000, PRODUCT_COLUMNS, seed=seed)


PROBLEMS = {
    "forest": Problem(file("forest"), Gaussian(0.0056), 0.01),
    "uji": Problem(file("uji"), Gaussian(0.002), 0.01),
    "wine": Problem(file("wine"), Gaussian(0.091), 1.0),
    "product gauss": Problem(products, Gaussian(0.5 / PRODUCT_COLUMNS), 0.1),
    "product poly": Problem(products, Polynomial(3, gamma=1 / PRODUCT_COLUMNS, coef0=1.0), 0.1),
}


def models(problem: Problem, s: int, seed: int, threads: int) -> dict[str, Any]:
    """Unfitted regressors by name."""
    kernel, alpha = problem.kernel, problem.alpha
    options: dict[str, Any] = {"kernel": kernel, "random_state": seed, "n_jobs": threads}
    maps: dict[str, FeatureMap] = {
        "adaptive": AdaptiveFeatures(s, **options),
        "adaptive, no y": AdaptiveFeatures(s, target_share=0.0, **options),
        "row norm": RowNormFeatures(s, **options),
        "row norm, mon.": RowNormFeatures(s, basis="monomial", rotate=False, **options),
    }
    if isinstance(kernel, Gaussian):
        maps["Fourier"] = FourierFeatures(s, **options)
        peers = {
            "RBFSampler": RBFSampler(gamma=kernel.gamma, n_components=s, random_state=seed),
            "Nystroem": Nystroem(gamma=kernel.gamma, n_components=s, random_state=seed),
        }
    else:
        peers = {
            "Nystroem": Nystroem(
                kernel="poly",
                degree=kernel.degree,
                gamma=kernel.gamma,
                coef0=kernel.coef0,
                n_components=s,
                random_state=seed,
            )
        }
    ours = {
        name: KernelRidge(features, alpha=alpha, n_jobs=threads) for name, features in maps.items()
    }
    # The pipeline owns Z: without copy_X=False forest would be in memory twice.
    return ours | {
        name: make_pipeline(features, Ridge(alpha=alpha, copy_X=False))
        for name, features in peers.items()
    }


def split(problem: Problem, seed: int, n_rows: int | None) -> list[Array]:
    """Three quarters for training, standardised on them and cut at 8 standard deviations."""
    X, y = problem.load(seed)
    return scaled_split(X[:n_rows], y[:n_rows], seed)


def measure(report: Report, name: str, seed: int, sizes: list[int], n_rows: int | None) -> None:
    problem = PROBLEMS[name]
    X_train, X_test, y_train, y_test = split(problem, seed, n_rows)
    for s in sizes:
        for method, model in models(problem, s, seed, report.threads).items():
            start = time.perf_counter()
            model.fit(X_train, y_train)
            fitted = time.perf_counter()
            error = root_mean_squared_error(y_test, model.predict(X_test))
            report.record(
                data=name,
                s=s,
                method=method,
                seed=seed,
                rmse=float(error),
                fit_seconds=fitted - start,
                n_train=len(y_train),
                kernel=str(problem.kernel),
                alpha=problem.alpha,
                space=space_of(getattr(model, "features_", None)),
            )


def show(report: Report, name: str, sizes: list[int]) -> None:
    methods = dict.fromkeys(record["method"] for record in report.select(data=name))
    rows = []
    for method in methods:
        cells: list[Any] = [method, report.select(data=name, method=method)[0]["space"]]
        for s in sizes:
            where = {"data": name, "s": s, "method": method}
            spread = np.std([record["rmse"] for record in report.select(**where)])
            mean, seconds = report.mean("rmse", **where), report.mean("fit_seconds", **where)
            cells += [f"{mean:.4g} ± {spread:.2g}", f"{seconds:.1f}"]
        rows.append(cells)
    columns = ["", "space", *(c for s in sizes for c in (f"s = {s:,}", "fit s"))]
    n_train = report.select(data=name)[0]["n_train"]
    report.table(f"{name}: test RMSE, {n_train:,} training rows", columns, rows)


def judge(report: Report, name: str, sizes: list[int]) -> None:
    for s in sizes:
        mean = {m: report.mean("rmse", data=name, s=s, method=m) for m in ("adaptive", "row norm")}
        if (name, s) in TABLE:
            reached = mean["adaptive"] / TABLE[name, s]
            what = f"{name}, {s}: adaptive / the docs' {TABLE[name, s]}"
            report.check(what, reached, ABOVE_TABLE)
        if name in TARGET_AWARE and s == ROW_NORM_SIZE:
            ratio = mean["adaptive"] / mean["row norm"]
            report.check(f"{name}, {s}: adaptive / row norm", ratio, TARGET_AWARE[name])


def main() -> None:
    arguments = parser(__doc__, seeds=3)
    arguments.add_argument("--sizes", nargs="+", type=int, default=[500, 1000])
    arguments.add_argument("--data", nargs="+", default=list(PROBLEMS), choices=PROBLEMS)
    args = arguments.parse_args()
    sizes = [50, 100] if args.quick else args.sizes
    with Report("rmse", args) as report:
        for name in args.data:
            kernel, alpha = PROBLEMS[name].kernel, PROBLEMS[name].alpha
            report.set(name, kernel=str(kernel), alpha=alpha)
            for seed in range(args.seeds):
                measure(report, name, seed, sizes, 2_000 if args.quick else None)
            show(report, name, sizes)
            judge(report, name, sizes)


if __name__ == "__main__":
    main()
