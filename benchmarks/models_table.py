"""Every model on every feature map, with linear models beside: error and time, one table per set.

Regression (KernelRidge; wine, insurance, forest, uji): test RMSE. Classification
(KernelRidgeClassifier, KernelSVC; insurance, IMDB sentiment): accuracy and area under the ROC
curve; insurance's ridge shows that area beside its RMSE too. Without targets: KernelPCA (share of
the kernel's variance that ten components hold, and principal component regression), KernelKMeans
(inertia over the trace), KernelCCA (first correlation of two halves of the columns on unseen rows).
Gamma and alpha are tuned on Fourier features, the same for all; times are those of fit. No targets:
for the reader. Methods that do not take a set (the whole of forest, sparse rows) say so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from _common import WARM_UP_ROWS, Array, Report, parser, standardised, subsample, tuned
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge, RidgeClassifier
from sklearn.metrics import accuracy_score, roc_auc_score, root_mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from kernelsieve import (
    AdaptiveFeatures,
    AutoFeatures,
    FourierFeatures,
    KernelCCA,
    KernelKMeans,
    KernelPCA,
    KernelRidge,
    KernelRidgeClassifier,
    KernelSVC,
    MaclaurinFeatures,
    NystromFeatures,
    ObliviousFeatures,
    RowNormFeatures,
    TensorSketchFeatures,
)
from kernelsieve.kernels import Gaussian, Polynomial

MAPS: dict[str, Any] = {
    "adaptive": AdaptiveFeatures,
    "row norm": RowNormFeatures,
    "auto": AutoFeatures,
    "Fourier": FourierFeatures,
    "Nystrom": NystromFeatures,
    "oblivious": ObliviousFeatures,
    "Maclaurin": MaclaurinFeatures,
    "TensorSketch (poly 2)": TensorSketchFeatures,
}
MAX_ROWS = 40_000
LARGEST_RIDGE = 8_192  # features beyond which classes are left to KernelSVC


def maps(gamma: float, s: int, seed: int, threads: int, only: Any = None) -> Iterator[Any]:
    """Names and unfitted maps of the Gaussian kernel; TensorSketch has a polynomial."""
    for name, cls in MAPS.items():
        if only is not None and name not in only:
            continue
        kernel = Polynomial(2, gamma, 1.0) if cls is TensorSketchFeatures else Gaussian(gamma)
        if cls is AutoFeatures:
            yield name, cls(s, gamma=gamma, random_state=seed, n_jobs=threads)
        else:
            yield name, cls(s, kernel=kernel, random_state=seed, n_jobs=threads)


def judge(
    report: Report,
    rows: list[Any],
    names: tuple[str, str, str],
    model: Any,
    parts: list[Any],
    measures: dict[str, Callable[..., float]],
) -> None:
    """Fit, measure, keep. ``names`` are those of the set, the model and the map."""
    X_train, X_test, y_train, y_test = parts
    clone(model).fit(X_train[:WARM_UP_ROWS], y_train[:WARM_UP_ROWS])  # compilation
    start = time.perf_counter()
    model.fit(X_train, y_train)
    spent = time.perf_counter() - start
    found = {name: measure(model, X_test, y_test) for name, measure in measures.items()}
    rows.append((names[1], names[2], *found.values(), spent))
    report.record(data=names[0], model=names[1], map=names[2], seconds=spent, **found)


def rmse(model: Any, X: Any, y: Array) -> float:
    return float(root_mean_squared_error(y, model.predict(X)))


def auc(model: Any, X: Any, y: Array) -> float:
    """Of the decision function, or of a regression's predictions."""
    score = getattr(model, "decision_function", model.predict)(X)
    return float(roc_auc_score(y, np.ravel(score)))


def accuracy(model: Any, X: Any, y: Array) -> float:
    return float(accuracy_score(y, model.predict(X)))


def regression(report: Report, name: str, s: int, n_rows: int) -> None:
    X, y = standardised(name)
    X, y = subsample(X, n_rows).astype(np.float32), subsample(y, n_rows)
    gamma, alpha = tuned(X, y, report.threads)
    report.set(name, n=len(y), d=X.shape[1], s=s, gamma=gamma, alpha=alpha)
    parts = train_test_split(X, y, test_size=0.25, random_state=0)
    measures: dict[str, Any] = {"rmse": rmse}
    if len(np.unique(y)) == 2:
        measures["auc"] = auc
    rows: list[Any] = []
    judge(report, rows, (name, "Ridge", "linear"), Ridge(), parts, measures)
    for label, features in maps(gamma, s, 0, report.threads):
        model = KernelRidge(features, alpha=alpha)
        judge(report, rows, (name, "KernelRidge", label), model, parts, measures)
    report.table(name, ("model", "map", *measures, "fit s"), rows)


def classification(report: Report, name: str, parts: list[Any], setting: dict[str, Any]) -> None:
    measures = {"accuracy": accuracy, "auc": auc}
    rows: list[Any] = []
    alpha, sizes = setting.pop("alpha"), setting.pop("sizes")
    judge(report, rows, (name, "RidgeClassifier", "linear"), RidgeClassifier(), parts, measures)
    judge(report, rows, (name, "LinearSVC", "linear"), LinearSVC(), parts, measures)
    for s, only in sizes.items():
        for label, features in maps(s=s, seed=0, threads=report.threads, only=only, **setting):
            models = [KernelSVC(features)]
            if s <= LARGEST_RIDGE:
                models.insert(0, KernelRidgeClassifier(features, alpha=alpha))
            for model in models:
                names = (name, type(model).__name__, f"{label} {s}")
                judge(report, rows, names, model, parts, measures)
    report.table(f"{name}, classes", ("model", "map", *measures, "fit s"), rows)


def insurance_classes(report: Report, s: int) -> None:
    X, y = standardised("insurance")
    parts = train_test_split(X.astype(np.float32), y, test_size=0.25, random_state=0, stratify=y)
    gamma, alpha = tuned(X, y, report.threads)
    classification(report, "insurance", parts, {"gamma": gamma, "alpha": alpha, "sizes": {s: None}})


def sentiment(report: Report, s: int, large: int, n_rows: int) -> None:
    """The official halves; rows have length 1, so gamma = 1 is a wide range of distances."""
    X, y = standardised("imdb")
    X, y = X.astype(np.float32), (y > 5).astype(int)
    half = X.shape[0] // 2
    train = np.random.default_rng(0).permutation(half)[:n_rows]
    test = half + np.random.default_rng(1).permutation(half)[:n_rows]
    parts = [X[train], X[test], y[train], y[test]]
    report.set("imdb", n_train=len(train), d=X.shape[1], nnz=parts[0].nnz, gamma=1.0, alpha=0.3)
    few = ("adaptive", "row norm", "Fourier", "Nystrom", "oblivious", "TensorSketch (poly 2)")
    sizes = {s: few, large: ("adaptive", "row norm")}
    classification(report, "imdb", parts, {"gamma": 1.0, "alpha": 0.3, "sizes": sizes})


def without_targets(report: Report, name: str, s: int, n_rows: int) -> None:
    X, y = standardised(name)
    X, y = subsample(X, n_rows).astype(np.float32), subsample(y, n_rows)
    gamma, alpha = tuned(X, y, report.threads)
    train, test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=0)
    half = X.shape[1] // 2
    rows = []
    for label, features in maps(gamma, s, 0, report.threads):
        start = time.perf_counter()
        pca = KernelPCA(10, features=features).fit(train)
        held = float(pca.explained_variance_ratio_.sum())
        pcr = make_pipeline(KernelPCA(50, features=features), LinearRegression())
        error = rmse(pcr.fit(train, y_train), test, y_test)
        means = KernelKMeans(8, features=features, random_state=0).fit(train)
        trace = len(train) if label != "TensorSketch (poly 2)" else np.nan
        correlations = KernelCCA(1, features, features, alpha=max(alpha, 1.0))
        correlations.fit(train[:, :half], train[:, half:])
        left, right = (
            correlations.transform(test[:, :half]),
            correlations.transform_y(test[:, half:]),
        )
        correlation = float(np.corrcoef(left[:, 0], right[:, 0])[0, 1])
        spent = time.perf_counter() - start
        rows.append((label, held, error, means.inertia_ / trace, correlation, spent))
        report.record(
            data=name, map=label, pca=held, pcr=error, inertia=means.inertia_, cca=correlation
        )
    columns = ("map", "PCA(10)", "PCR(50)", "k-means", "CCA", "seconds")
    report.table(f"{name}, without targets", columns, rows)


def main() -> None:
    arguments = parser(__doc__, seeds=None)
    arguments.add_argument("--data", nargs="+", default=["wine", "insurance", "forest", "uji"])
    arguments.add_argument("--skip-imdb", action="store_true")
    args = arguments.parse_args()
    quick = args.quick
    s, n_rows = (60, 800) if quick else (1_000, MAX_ROWS)
    with Report("models_table", args) as report:
        for name in args.data:
            regression(report, name, s, n_rows)
        if "insurance" in args.data:
            insurance_classes(report, s)
        if not args.skip_imdb:
            sentiment(report, s, 5 * s if quick else 20_000, n_rows if quick else 25_000)
        without_targets(report, args.data[0], s, min(n_rows, 10_000))


if __name__ == "__main__":
    main()
