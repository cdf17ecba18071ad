"""Models that can be read: mains and pairs beside EBM, and the time of Shapley values.

    python benchmarks/explain.py shapley
    KERNELSIEVE_DATA=folder python benchmarks/explain.py ebm [table ...]
    KERNELSIEVE_DATA=folder python benchmarks/explain.py ours [table ...]
    KERNELSIEVE_DATA=folder python benchmarks/explain.py pairs [table ...]

The third leaves EBM out, the last fits mains and pairs alone. "concrete:3" is another split of the
rows, 0 without a number. The second needs the package interpret, and the tables in ``tables/`` of
the folder (npz files of
bike, parkinsons and concrete with X and y, diamonds.csv.gz, wine.npz). Every model is fitted with
one thread to the same rows, and its time is that of the processor, so that other work on the
machine does not count. Ours: KernelRidgeCV(max_order=2), main effects and pairs; the same with
triples; and the default, which has no limit.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from kernelsieve import AdaptiveFeatures, KernelRidge, KernelRidgeCV, explain
from kernelsieve.kernels import Product

TABLES = ("bike", "parkinsons", "concrete", "diamonds", "wine")
MOST_ROWS, MOST_TEST_ROWS = 5000, 3000


def main() -> None:
    what, *names = sys.argv[1:] or ["shapley"]
    if what == "shapley":
        shapley()
        return
    print("table       rows  cols |  EBM rmse   CPU s terms | pairs rmse  CPU s terms "
          "| triples rmse  CPU s | no limit rmse  CPU s", flush=True)  # fmt: skip
    for name in names or TABLES:
        table, _, split = name.partition(":")
        compare(table, int(split or 0), what)


def shapley() -> None:
    """1,000 rows, 30 columns, 1,000 products."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 30))
    y = X[:, 0] * X[:, 1] + np.sin(X[:, 2]) + rng.normal(size=len(X))
    features = AdaptiveFeatures(1000, kernel=Product(0.2, "laplacian"), random_state=0)
    model = KernelRidge(features, alpha=1.0).fit(X, y)
    found = explain(model)
    found.shapley(X[:2])  # compiled
    start, cpu = time.perf_counter(), time.process_time()
    values = found.shapley(X[:1000])
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    error = np.abs(values.values.sum(axis=1) + values.base - model.predict(X[:1000])).max()
    print(f"1,000 rows x 30 columns x {model.features_.n_components_:,} products: {seconds:.2f} s "
          f"({cpu:.2f} s of the processor), sums off by {error:.1e}")  # fmt: skip


def compare(name: str, split: int, what: str) -> None:
    frame, X, y = load(name)
    order = np.random.default_rng(split).permutation(len(y))
    test = order[: min(MOST_TEST_ROWS, len(y) // 5)]
    train = order[len(test) :][:MOST_ROWS]

    def rmse(model: Any, rows: Any) -> float:
        return float(np.sqrt(np.mean((model.predict(rows[test]) - y[test]) ** 2)))

    line = f"{f'{name} {split}':<10} {len(train):>5} {X.shape[1]:>5} | "
    if what == "ebm":
        from interpret.glassbox import ExplainableBoostingRegressor

        start = time.process_time()
        ebm = ExplainableBoostingRegressor(n_jobs=1, random_state=0).fit(frame[train], y[train])
        line += f"{rmse(ebm, frame):>9.4f} {time.process_time() - start:>7.1f} "
        line += f"{len(ebm.term_names_):>5} |"
    else:
        line += f"{'-':>9} {'-':>7} {'-':>5} |"
    for max_order in (2,) if what == "pairs" else (2, 3):
        start = time.process_time()
        model = KernelRidgeCV(max_order=max_order, random_state=0, n_jobs=1).fit(X[train], y[train])
        seconds = time.process_time() - start
        line += f" {rmse(model, X):>10.4f} {seconds:>6.1f} "
        if max_order == 2:
            found = explain(model)
            line += f"{sum(part.share > 1e-3 for part in found.parts):>5} |"
    if what == "pairs":
        print(line, flush=True)
        return
    start = time.process_time()
    default = KernelRidgeCV(random_state=0, n_jobs=1).fit(X[train], y[train])
    line += f"| {rmse(default, X):>12.4f} {time.process_time() - start:>6.1f}"
    print(line, flush=True)


def load(name: str) -> tuple[Any, Any, Any]:
    """Rows as EBM takes them (categories as texts), as a matrix, and the targets."""
    folder = Path(os.environ["KERNELSIEVE_DATA"])
    if name == "diamonds":
        from kernelsieve.tables.encoder import TableEncoder
        from kernelsieve.tables.readers import read_table

        table = read_table(folder / "tables" / "diamonds.csv.gz")
        encoder = TableEncoder(["price"]).fit(table)
        y = np.log(table.columns["price"].astype(float))
        columns = {n: v for n, v in table.columns.items() if n != "price"}
        return np.array(list(columns.values()), dtype=object).T, encoder.transform(table), y
    path = folder / "tables" / f"{name}.npz"
    data = np.load(path if path.exists() else folder / f"{name}.npz")
    X, y = data["X"].astype(float), data["y"].astype(float).ravel()
    return X, X, y


if __name__ == "__main__":
    main()
