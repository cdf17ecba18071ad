"""Claim: an ONNX file says what the model says, in both float types.

Twenty models of 2,000 generated rows of 30 columns (a few products, sines and a category), each
exported in float32 and in float64 and run by onnxruntime on 500 other rows. The difference to the
model's own prediction in float64 is relative to the standard deviation of the predictions. "own" is
how far the model's predictions of one row at a time differ from those of all rows at once: no file
can be closer to the model than the model to itself. Latencies are medians for 1, 100 and 10,000
rows, on one thread, beside our ``predict`` and LightGBM's.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _common import Report, parser
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from kernelsieve import (
    AdaptiveFeatures,
    FourierFeatures,
    KernelPCA,
    KernelRidge,
    KernelRidgeClassifier,
    KernelRidgeCV,
    KernelSVC,
    NystromFeatures,
    RowNormFeatures,
    TensorSketchFeatures,
    export_onnx,
)
from kernelsieve.kernels import Laplacian, Matern, Product, Warp

N_ROWS, N_NEW, N_COLUMNS, S = 2_000, 500, 30, 1_000
LIMITS = {"float32": 1e-5, "float64": 1e-10}
LATENCY_ROWS = (1, 100, 10_000)
SHORTEST = 0.3  # seconds of calls behind a median
SHOWN = ("products, Gaussian", "products, learned form", "Fourier", "landmarks", "exact, learned")


def rows(n: int, seed: int) -> Any:
    """Numbers, and codes of five categories in the last column."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, N_COLUMNS))
    X[:, -1] = rng.integers(0, 5, n)
    return X


def target(X: Any, seed: int) -> Any:
    noise = 0.3 * np.random.default_rng(seed).normal(size=len(X))
    return X[:, 0] * X[:, 1] + np.sin(2.0 * X[:, 2]) + 0.5 * (X[:, -1] == 2) + noise


def models(X: Any, s: int) -> dict[str, Any]:
    """The twenty models, unfitted."""
    kinds = ("identity", "log", "rank")
    warps = [Warp.fit(X[:, i], kinds[i % 3]) for i in range(N_COLUMNS)]
    names = ("gaussian", "laplacian", "matern32", "matern52")
    mixed = Product((0.15,) * N_COLUMNS, [*(names * 8)[: N_COLUMNS - 1], "categorical"], warps)
    gaussian = Product((0.15,) * N_COLUMNS, "gaussian", warps)
    columns = make_column_transformer(
        (StandardScaler(), list(range(N_COLUMNS - 1))),
        (OneHotEncoder(handle_unknown="ignore"), [N_COLUMNS - 1]),
    )

    def ridge(features: Any, **options: Any) -> KernelRidge:
        return KernelRidge(features, alpha=0.3, **options)

    def landmarks(size: int = s // 2, **options: Any) -> NystromFeatures:
        return NystromFeatures(size, random_state=0, **options)

    def adaptive(size: int = s, **options: Any) -> AdaptiveFeatures:
        return AdaptiveFeatures(size, random_state=0, **options)

    return {
        "products, Gaussian": ridge(adaptive()),
        "products, monomials": ridge(adaptive(basis="monomial", gamma=0.01)),
        "products, rotated": ridge(adaptive(rotate=True)),
        "products, polynomial": ridge(adaptive(kernel="poly", gamma=0.02)),
        "products, learned form": ridge(adaptive(kernel=gaussian)),
        "products, mixed families": ridge(adaptive(kernel=mixed)),
        "products, Laplacian": ridge(adaptive(kernel=Product(0.1, "laplacian"))),
        "products, row norm": ridge(RowNormFeatures(s, random_state=0)),
        "Fourier": ridge(FourierFeatures(s, random_state=0)),
        "Fourier, structured": ridge(FourierFeatures(s, frequencies="structured", random_state=0)),
        "landmarks": ridge(landmarks()),
        "landmarks, Matern": ridge(landmarks(kernel=Matern(8.0, 1.5))),
        "landmarks, Laplacian": ridge(landmarks(kernel=Laplacian(0.03))),
        "tensor sketch": ridge(TensorSketchFeatures(s // 2, gamma=0.02, random_state=0)),
        "exact, mixed families": ridge(landmarks(100, kernel=mixed), refine=True),
        "exact, learned": KernelRidgeCV(random_state=0),
        "pipeline": make_pipeline(columns, ridge(adaptive())),
        "classifier": KernelRidgeClassifier(adaptive(s // 2)),
        "support vectors": KernelSVC(adaptive(s // 4), random_state=0),
        "components": KernelPCA(5, adaptive(s // 2)),
    }  # fmt: skip


def answers(model: Any, X: Any) -> Any:
    """What is compared: probabilities, components or predictions."""
    for method in ("predict_proba", "transform"):
        if hasattr(model, method):
            return getattr(model, method)(X)
    return model.predict(X)


def session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def compare(report: Report, name: str, model: Any, new: Any, folder: Path) -> tuple[Any, ...]:
    """Differences in both types, and the size of the file, as a row of the table."""
    line: list[Any] = [name]
    for dtype, limit in LIMITS.items():
        path = folder / f"{dtype}.onnx"
        export_onnx(model, path, dtype=dtype)
        given = new.astype(dtype)
        expected = answers(model, given.astype(np.float64))
        found = session(path).run(None, {"X": given})[-1]
        difference = float(np.abs(found - expected).max() / expected.std())
        line.append(difference)
        report.check(f"{name}, {dtype}", difference, limit)
    few = new[:50]
    alone = np.concatenate([answers(model, few[i : i + 1]) for i in range(len(few))])
    together = answers(model, new)
    line.append(float(np.abs(alone - together[:50]).max() / together.std()))
    line.append(path.stat().st_size / 1e6)
    keys = ("model", "float32", "float64", "own", "megabytes")
    report.record(part="difference", **dict(zip(keys, line, strict=True)))
    return tuple(line)


def median(call: Callable[[], Any]) -> float:
    """Milliseconds of a call."""
    call()
    times: list[float] = []
    while sum(times) < SHORTEST or len(times) < 3:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def latencies(report: Report, fitted: dict[str, Any], X: Any, y: Any, folder: Path) -> None:
    try:
        import lightgbm
    except ImportError:
        trees = None
    else:
        trees = lightgbm.LGBMRegressor(n_jobs=1, verbose=-1, random_state=0).fit(X, y)
    rows_of = {n: np.ascontiguousarray(np.resize(X, (n, N_COLUMNS))) for n in LATENCY_ROWS}
    table = []
    for name, model in fitted.items():
        export_onnx(model, folder / "model.onnx", dtype="float64")
        file = session(folder / "model.onnx")
        for method in ("onnxruntime", "ours", "ours, predictor"):
            line: list[Any] = [f"{name}: {method}"]
            for n, new in rows_of.items():
                if method == "onnxruntime":
                    line.append(median(lambda file=file, new=new: file.run(None, {"X": new})))
                elif method == "ours":
                    line.append(median(lambda model=model, new=new: model.predict(new)))
                elif n == 1:
                    predict = model.predictor()
                    line.append(median(lambda predict=predict, new=new: predict(new[0])))
                else:
                    line.append("-")
            table.append(line)
    if trees is not None:
        booster = trees.booster_
        line = ["LightGBM (100 trees)"]
        line += [
            median(lambda new=new: booster.predict(new, num_threads=1)) for new in rows_of.values()
        ]
        table.append(line)
    for line in table:
        report.record(part="latency", method=line[0], milliseconds=line[1:])
    report.table("Median latency in ms, one thread", ("", *(f"{n:,}" for n in LATENCY_ROWS)), table)


def main() -> None:
    args = parser(__doc__, seeds=None).parse_args()
    n, s = (300, 60) if args.quick else (N_ROWS, S)
    X, new = rows(n, 0), rows(N_NEW, 1)
    y = target(X, 0)
    labels = np.digitize(y, np.quantile(y, [1 / 3, 2 / 3]))
    with Report("onnx_export", args) as report, tempfile.TemporaryDirectory() as name:
        folder, fitted, table = Path(name), {}, []
        for title, model in models(X, s).items():
            start = time.perf_counter()
            fitted[title] = model.fit(X, labels if hasattr(model, "class_weight") else y)
            report.print(f"{title}: fitted in {time.perf_counter() - start:.1f} s")
            table.append(compare(report, title, model, new, folder))
        columns = ("", "float32", "float64", "own", "MB")
        report.table("Largest difference / deviation of predictions", columns, table)
        shown = {title: fitted[title] for title in SHOWN}
        latencies(report, shown, X, y, folder)


if __name__ == "__main__":
    main()
