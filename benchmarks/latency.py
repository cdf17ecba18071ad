"""Claim: one row of 30 columns is predicted in 0.3 ms by ``predictor()``, in 1 ms by ``predict``.

Models of 2,000 generated rows with 1,000 features each, medians over at least 300 calls after a
warm-up, on one thread; beside them scikit-learn's linear model, LightGBM and onnxruntime (float64).
"table" takes a dict of 29 numbers and a text. The last table has a predictor that four threads
share.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from _common import Report, parser
from onnx_export import models, rows, session, target
from sklearn.linear_model import Ridge

from kernelsieve import TableModel, export_onnx

NAMES = (
    "products, Gaussian",
    "products, learned form",
    "products, mixed families",
    "Fourier",
    "landmarks",
    "exact, learned",
)
CALLS = 300
PREDICTOR_LIMIT, PREDICT_LIMIT = 0.3, 1.0  # milliseconds


def quantiles(call: Callable[[], Any]) -> tuple[float, float]:
    """Milliseconds of a call: the median, and what one in a hundred exceeds."""
    for _ in range(20):
        call()
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return float(np.median(times)), float(np.quantile(times, 0.99))


def shared(predict: Any, row: Any, threads: int = 4) -> float:
    """Thousands of calls in a second, when threads share a predictor."""
    each = 200

    def work(_: int) -> None:
        for _ in range(each):
            predict(row)

    with ThreadPoolExecutor(threads) as pool:
        start = time.perf_counter()
        list(pool.map(work, range(threads)))
    return threads * each / (time.perf_counter() - start) / 1e3


def main() -> None:
    args = parser(__doc__, seeds=None).parse_args()
    n, s = (300, 60) if args.quick else (2_000, 1_000)
    X = rows(n, 0)
    y, row = target(X, 0), X[:1].copy()
    with Report("latency", args) as report, tempfile.TemporaryDirectory() as folder:
        table, rates = [], []
        everything = models(X, s)
        for name in NAMES:
            model = everything[name].fit(X, y)
            path = Path(folder) / "model.onnx"
            export_onnx(model, path, dtype="float64")
            predict, file = model.predictor(), session(path)
            found = {
                "predictor": quantiles(lambda p=predict: p(row[0])),
                "predict": quantiles(lambda m=model: m.predict(row)),
                "onnxruntime": quantiles(lambda f=file: f.run(None, {"X": row})),
            }
            report.record(model=name, **found)
            table.append((name, *(found[key][i] for key in found for i in (0, 1))))
            rates.append((name, shared(predict, row[0])))
            if name.startswith("products"):
                report.check(f"{name}: predictor, ms", found["predictor"][0], PREDICTOR_LIMIT)
                report.check(f"{name}: predict, ms", found["predict"][0], PREDICT_LIMIT)
        table.append(of_a_table(report, X, y, s))
        for name, other in peers(X, y).items():
            found = quantiles(lambda other=other: other(row))
            report.record(model=name, predict=found)
            table.append((name, "-", "-", *found, "-", "-"))
        columns = ("", "predictor", "99 %", "predict", "99 %", "onnx", "99 %")
        report.table("One row, median and 99 % in ms", columns, table)
        report.table("Thousands of rows a second, four threads", ("", "k/s"), rates)


def of_a_table(report: Report, X: Any, y: Any, s: int) -> tuple[Any, ...]:
    """A TableModel: a row is a dict, and its last column a text."""
    columns: dict[str, Any] = {f"x{i}": X[:, i] for i in range(X.shape[1] - 1)}
    columns["town"] = np.array(["Ulm", "Bonn", "Kiel", "Jena", "Trier"])[X[:, -1].astype(int)]
    model = TableModel("y", n_components=s, gamma=0.02, alpha=0.3).fit(columns | {"y": y})
    row = {name: values[0].item() for name, values in columns.items()}
    predict = model.predictor()
    found = {
        "predictor": quantiles(lambda: predict(row)),
        "predict": quantiles(lambda: model.predict({name: [v] for name, v in row.items()})),
    }
    report.record(model="table", **found)
    report.check("table: predictor, ms", found["predictor"][0], PREDICTOR_LIMIT)
    return "table", *found["predictor"], *found["predict"], "-", "-"


def peers(X: Any, y: Any) -> dict[str, Callable[[Any], Any]]:
    """Functions of one row."""
    found: dict[str, Callable[[Any], Any]] = {"Ridge (scikit-learn)": Ridge().fit(X, y).predict}
    try:
        import lightgbm
    except ImportError:
        return found
    trees = lightgbm.LGBMRegressor(n_jobs=1, verbose=-1, random_state=0).fit(X, y)
    booster = trees.booster_
    found["LightGBM"] = trees.predict
    found["LightGBM, booster"] = lambda row: booster.predict(row, num_threads=1)
    return found


if __name__ == "__main__":
    main()
