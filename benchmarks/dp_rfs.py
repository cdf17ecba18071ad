"""Claim: lower kernel errors than dp-rfs publishes for Covertype at 320 features.

github.com/joneswack/dp-rfs ("Improved Random Features for Dot Product Kernels", Wacker, Kanagawa
and Filippone, 2022) keeps its measurements in its folder csv; ours are made by the same protocol.
Nine tenths of the 581,012 rows are for training, which give the means and deviations of the
columns; maps look at 5,000 of them. The relative Frobenius error is that on 5,000 test rows. For
the polynomials ((1 - 2 / a^2) + 2 / a^2 <x, y>)^p rows are then scaled to length 1; the Gaussian's
width is the median distance of the training rows. Each seed has its own split.

The published figures are the lowest of its methods. For degrees 3 and 10 these are the optimised
Maclaurin features: they leave high degrees out, so they are not unbiased, and a complex one counts
as one feature. Ours are real. Nystrom features look at the rows, and are not unbiased either; the
other maps of the table are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from _common import Array, Report, frobenius_error, median_gamma, parser

from kernelsieve import (
    AdaptiveFeatures,
    MaclaurinFeatures,
    NystromFeatures,
    ObliviousFeatures,
    ResidualFeatures,
    RowNormFeatures,
    datasets,
)
from kernelsieve.kernels import Gaussian, Polynomial

SIZE = 320
MAPS: dict[str, tuple[Any, dict[str, Any]]] = {
    "adaptive": (AdaptiveFeatures, {}),
    "residual": (ResidualFeatures, {}),
    "row norm": (RowNormFeatures, {}),
    "obliv.": (ObliviousFeatures, {}),
    "Maclaur.": (MaclaurinFeatures, {}),
    "Nystrom": (NystromFeatures, {"landmarks": "rpcholesky"}),
}
UNBIASED = ("adaptive", "residual", "row norm", "obliv.", "Maclaur.")
# By name: the degree and a of a polynomial, and the published error.
POLYNOMIALS = {"poly 3": (3, 2.0, 0.130), "poly 10": (10, 2.0, 0.522), "poly 20": (20, 4.0, 0.201)}
GAUSSIAN = 0.0104


def split(X: Array, n_rows: int, seed: int) -> tuple[Array, Array]:
    """Training and test rows, standardised as all training rows are."""
    order = np.random.default_rng(seed).permutation(len(X))
    n_train = int(0.9 * len(X))
    train = X[order[:n_train]]
    deviations = train.std(axis=0, ddof=1)
    deviations[deviations == 0] = 1.0
    some = (train[:n_rows], X[order[n_train : n_train + n_rows]])
    chosen, test = ((rows - train.mean(axis=0)) / deviations for rows in some)
    return chosen, test


def problems(train: Array, test: Array) -> dict[str, tuple[Any, Array, Array, float]]:
    """Kernel, training rows, test rows and published error, by name."""
    unit_train, unit_test = (
        rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (train, test)
    )
    result: dict[str, tuple[Any, Array, Array, float]] = {}
    for name, (degree, a, published) in POLYNOMIALS.items():
        kernel = Polynomial(degree, gamma=2.0 / a**2, coef0=1.0 - 2.0 / a**2)
        result[name] = kernel, unit_train, unit_test, published
    return result | {"gaussian": (Gaussian(median_gamma(train)), train, test, GAUSSIAN)}


def measure(report: Report, train: Array, test: Array, seed: int) -> None:
    """The errors of all maps on one split."""
    for name, (kernel, rows, unseen, published) in problems(train, test).items():
        K = kernel(unseen)
        for method, (cls, options) in MAPS.items():
            features = cls(SIZE, kernel=kernel, random_state=seed, n_jobs=report.threads, **options)
            error = frobenius_error(K, features.fit(rows).transform(unseen))
            report.record(kernel=name, method=method, seed=seed, error=error, published=published)


def main() -> None:
    args = parser(__doc__, seeds=3).parse_args()
    n_rows = 500 if args.quick else 5_000
    with Report("dp_rfs", args) as report:
        X = np.asarray(datasets.load("forest").X, dtype=np.float64)
        report.set("forest", n=len(X), d=X.shape[1], s=SIZE, rows=n_rows)
        for seed in range(args.seeds):
            measure(report, *split(X, n_rows, seed), seed)
        table = []
        for name in (*POLYNOMIALS, "gaussian"):
            means = {m: report.mean("error", kernel=name, method=m) for m in MAPS}
            published = report.select(kernel=name)[0]["published"]
            table.append([name, published, *means.values()])
            report.check(f"{name}: best map / dp-rfs", min(means.values()) / published, 1.0)
            unbiased = min(means[method] for method in UNBIASED)
            report.check(f"{name}: best unbiased map / dp-rfs", unbiased / published, 1.0)
        report.table(
            f"Covertype, {SIZE} features: relative error, mean of {args.seeds} seeds",
            ("kernel", "dp-rfs", *MAPS),
            table,
        )


if __name__ == "__main__":
    main()
