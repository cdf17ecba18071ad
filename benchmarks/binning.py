"""Claim: hashed grids come close to Laplacian kernels and smoother ones, oblivious of the data.

s = 1,000, three quarters of at most 2,000 rows for training, columns standardised, gamma = 1 / d.
The relative Frobenius error against the exact kernel, and the test error of a ridge (alpha = 0.1,
in standard deviations of the target) beside that of the exact kernel. Laplacian kernel: grids,
Fourier, adaptive and Nystrom features. Smooth Laplacian of two and three pieces: grids and Nystrom
features, on tables of few columns and, to show the limit, on wine. No target: the tables are for
the reader.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from _common import Array, Report, frobenius_error, parser, scaled_split

from kernelsieve import (
    AdaptiveFeatures,
    BinningFeatures,
    FourierFeatures,
    KernelRidge,
    NystromFeatures,
)
from kernelsieve.kernels import Laplacian, SmoothLaplacian

SIZE, ALPHA = 1_000, 0.1
DATA = ("tamielectric", "airfoil", "wine")
GRIDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "grids, 1 column": (BinningFeatures, {"columns_per_grid": 1}),
    "grids, 4 columns": (BinningFeatures, {"columns_per_grid": 4}),
    "Nystrom": (NystromFeatures, {}),
}
LAPLACIAN_MAPS = GRIDS | {"Fourier": (FourierFeatures, {}), "adaptive": (AdaptiveFeatures, {})}


def load(name: str, n_rows: int, seed: int) -> list[Array]:
    """X_train, X_test, y_train, y_test of a table of the development data."""
    folder = Path(os.environ["KERNELSIEVE_DATA"])
    path = folder / "tables" / f"{name}.npz"
    found = np.load(path if path.exists() else folder / f"{name}.npz")
    X, y = found["X"].astype(np.float64), np.ravel(found["y"]).astype(np.float64)
    rows = np.random.default_rng(seed).permutation(len(y))[:n_rows]
    return scaled_split(X[rows], (y[rows] - y.mean()) / y.std(), seed)


def measure(report: Report, name: str, n_rows: int, size: int, seed: int) -> None:
    """All kernels and maps on one split."""
    X, X_test, y, y_test = load(name, n_rows, seed)
    gamma, mean = 1.0 / X.shape[1], y.mean()
    kernels: dict[str, Any] = {"laplacian": Laplacian(gamma)}
    kernels |= {f"smooth, {n} pieces": SmoothLaplacian(gamma, n) for n in (2, 3)}
    for which, kernel in kernels.items():
        K = kernel(X)
        dual = np.linalg.solve(K + ALPHA * np.eye(len(X)), y - mean)
        predicted = kernel(X_test, X) @ dual + mean
        where = {"data": name, "d": X.shape[1], "kernel": which, "seed": seed}
        rmse = float(np.sqrt(np.mean((predicted - y_test) ** 2)))
        report.record(**where, method="exact", error=0.0, rmse=rmse, seconds=0.0)
        for method, (cls, options) in (LAPLACIAN_MAPS if which == "laplacian" else GRIDS).items():
            features = cls(size, kernel=kernel, random_state=seed, n_jobs=report.threads, **options)
            start = time.process_time()
            Z = features.fit(X).transform(X)
            used = time.process_time() - start
            model = KernelRidge(features, alpha=ALPHA).fit(X, y)
            rmse = float(np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)))
            error = frobenius_error(K, Z)
            report.record(**where, method=method, error=error, rmse=rmse, seconds=used)


def main() -> None:
    args = parser(__doc__, seeds=3).parse_args()
    n_rows, size = (300, 100) if args.quick else (2_000, SIZE)
    with Report("binning", args) as report:
        for name in DATA[:1] if args.quick else DATA:
            for seed in range(args.seeds):
                measure(report, name, n_rows, size, seed)
            rows = []
            for kernel in ("laplacian", "smooth, 2 pieces", "smooth, 3 pieces"):
                for method in ("exact", *LAPLACIAN_MAPS):
                    where = {"data": name, "kernel": kernel, "method": method}
                    if report.select(**where):
                        means = [report.mean(v, **where) for v in ("error", "rmse", "seconds")]
                        rows.append((kernel, method, *means))
            d = report.select(data=name)[0]["d"]
            report.table(
                f"{name}, {d} columns, s = {size:,}, mean of {args.seeds} splits",
                ("kernel", "map", "kernel error", "RMSE", "CPU s"),
                rows,
            )


if __name__ == "__main__":
    main()
