"""Claim: product kernels of every family work on any table, raw or standardised.

Three parts, each with its own option; all tables of KERNELSIEVE_DATA/tables, wine, insurance, uji
and forest:

--sweep   fit and predict, standardised and raw, gamma in {scale, 1/d, 0.01, 0.1, 0.3, 1, 10}, all
          families: no refusal, no warning, no number that is not finite
--std     predictive standard deviations against the exact Gaussian process
default   the Laplacian at s = 1,000 on five splits: kernel error and test error of
          AdaptiveFeatures, RowNormFeatures, FourierFeatures and NystromFeatures
"""

from __future__ import annotations

import os
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _common import Array, Report, frobenius_error, parser, subsample
from scipy.linalg import cho_factor, cho_solve
from sklearn.preprocessing import StandardScaler

from kernelsieve import (
    AdaptiveFeatures,
    FourierFeatures,
    KernelRidge,
    KernelRidgeCV,
    NystromFeatures,
    RowNormFeatures,
)
from kernelsieve.kernels import Gaussian, Laplacian, Product

FAMILIES = ("gaussian", "laplacian", "matern32", "matern52")
GAMMAS: tuple[Any, ...] = ("scale", "auto", 0.01, 0.1, 0.3, 1.0, 10.0)
MAPS = {
    "adaptive": AdaptiveFeatures,
    "row norm": RowNormFeatures,
    "Fourier": FourierFeatures,
    "Nystrom": NystromFeatures,
}
LAPLACIAN_TABLES = ("wine", "bike", "parkinsons", "pumadyn32nm", "skillcraft")
WIDTHS = (1.0, 2.0, 5.0, 20.0)  # distances from the data
STD_TOLERANCE = 0.05


def folder() -> Path:
    return Path(os.environ["KERNELSIEVE_DATA"])


def load(name: str) -> tuple[Array, Array, Array | None]:
    """Rows, target and test masks of a table."""
    path = folder() / "tables" / f"{name}.npz"
    found = np.load(path if path.exists() else folder() / f"{name}.npz")
    masks = found.get("test_mask", None)
    return found["X"].astype(np.float64), np.ravel(found["y"]).astype(np.float64), masks


def names() -> list[str]:
    tables = sorted(path.stem for path in (folder() / "tables").glob("*.npz"))
    return [*tables, "wine", "insurance", "uji", "forest"]


# --- sweep ---------------------------------------------------------------------------------------


def kernels(family: str, gamma: float, d: int) -> Iterator[tuple[str, Any]]:
    """The product kernel of a family, and the isotropic one where it is the same."""
    rate = np.sqrt(gamma) if family == "gaussian" else gamma
    yield "product", Product(np.full(d, rate), family)
    if family == "gaussian":
        yield "isotropic", Gaussian(gamma)


def resolved(gamma: Any, X: Array) -> float:
    if gamma == "scale":
        return 1.0 / (X.shape[1] * X.var()) if X.var() > 0 else 1.0
    return 1.0 / X.shape[1] if gamma == "auto" else gamma


def sweep(report: Report, quick: bool) -> None:
    n_rows, s = (200, 40) if quick else (400, 100)
    failures, runs = [], 0
    for name in names():
        X, y, _ = load(name)
        X, y = subsample(X, n_rows + 50), subsample(y, n_rows + 50)
        start = time.perf_counter()
        for scaling in ("standardised", "raw"):
            rows = StandardScaler().fit_transform(X) if scaling == "standardised" else X
            for gamma in GAMMAS:
                for family in FAMILIES:
                    for kind, kernel in kernels(family, resolved(gamma, rows), X.shape[1]):
                        problem = attempt(kernel, rows[:n_rows], y[:n_rows], rows[n_rows:], s)
                        runs += 1
                        where = f"{name}, {scaling}, gamma = {gamma}, {family}, {kind}"
                        report.record(what="sweep", where=where, problem=problem)
                        if problem:
                            failures.append(f"{where}: {problem}")
        report.print(f"{name}: {time.perf_counter() - start:.0f} s, {len(failures)} failures")
    for failure in failures:
        report.print(failure)
    report.check(f"failures in {runs:,} fits and predictions", len(failures), 0)


def attempt(kernel: Any, X: Array, y: Array, new: Array, s: int) -> str:
    """What went wrong in a fit and a prediction; empty if nothing did."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "the columns have very different scales")  # for users
        try:
            features = AdaptiveFeatures(s, kernel=kernel, random_state=0)
            model = KernelRidge(alpha=1.0, features=features).fit(X, y)
            predictions = model.predict(np.vstack([X, new, 10.0 * new]))
        except Exception as error:  # any error is what is looked for
            place = traceback.extract_tb(error.__traceback__)[-1]
            return f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
    return "" if np.isfinite(predictions).all() else "a prediction is not finite"


# --- Laplacian -----------------------------------------------------------------------------------


def laplacian(report: Report, quick: bool) -> None:
    s, n_error = (50, 300) if quick else (1_000, 2_000)
    rows = []
    for name in LAPLACIAN_TABLES[:1] if quick else LAPLACIAN_TABLES:
        X, y, masks = load(name)
        for split in range(report.args.seeds):
            if masks is None:
                test = np.random.default_rng(split).random(len(y)) < 0.1
            else:
                test = masks[:, split].astype(bool)
            one_split(report, name, X, y, test, split, s, n_error)
        for value in ("error", "rmse"):
            figures = [report.mean(value, data=name, method=method) for method in MAPS]
            rows.append([f"{name}, {value}", *figures])
    report.table(
        f"Laplacian (L1), gamma = 1/d, standardised columns, s = {s:,}, {report.args.seeds} splits",
        ("table", *MAPS),
        rows,
    )


def one_split(
    report: Report, name: str, X: Array, y: Array, test: Array, split: int, s: int, n_error: int
) -> None:
    scaler = StandardScaler().fit(X[~test])
    train, held = scaler.transform(X[~test]), scaler.transform(X[test])
    kernel = Laplacian(1.0 / X.shape[1])
    few = subsample(train, n_error)
    K = kernel(few)
    for method, cls in MAPS.items():
        features = cls(s, kernel=kernel, random_state=split, n_jobs=report.threads)
        error = frobenius_error(K, features.fit(few).transform(few))
        model = KernelRidgeCV(features).fit(train, y[~test])  # alpha by leave-one-out
        rmse = float(np.sqrt(np.mean((model.predict(held) - y[test]) ** 2)))
        report.record(data=name, method=method, split=split, error=error, rmse=rmse)


# --- predictive standard deviation ---------------------------------------------------------------


def exact_std(kernel: Any, X: Array, new: Array, alpha: float, noise: float) -> Array:
    """Of the exact Gaussian process, for the noise variance that the model found."""
    factor = cho_factor(kernel(X) + alpha * np.eye(len(X)))
    cross = kernel(X, new)
    seen = np.sum(cross * cho_solve(factor, cross), axis=0)
    # The prior variance is noise / alpha times the kernel.
    return np.sqrt(noise * (1.0 + np.maximum(0.0, 1.0 - seen) / alpha))


def standard_deviations(report: Report, quick: bool) -> None:
    rng = np.random.default_rng(0)
    n, alpha = 50, 0.1  # so few rows that all products of two columns are features
    X = rng.normal(size=(n, 2))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=n)
    rows = []
    for family in FAMILIES[:2] if quick else FAMILIES:
        kernel = Product([1.0, 0.7], family)
        for method in ("adaptive", "row norm", "Nystrom", "Fourier"):
            s = {"Nystrom": n, "Fourier": 6_000}.get(method, 4_000)
            features = MAPS[method](s, kernel=kernel, random_state=0)
            model = KernelRidge(features, alpha=alpha, fit_intercept=False, solver="cholesky").fit(
                X, y
            )
            places = {"training rows": X, "between": 0.7 * rng.normal(size=(100, 2))}
            for width in WIDTHS:
                places[f"{width:g} widths away"] = np.array([[X[:, 0].max() + width, 0.0]])
            worst = []
            for place, new in places.items():
                std = model.predict(new, return_std=True)[1]
                exact = exact_std(kernel, X, new, alpha, model.noise_variance_)
                worst.append(float(np.abs(std / exact - 1.0).max()))
                report.check(f"{family}, {method}: std, {place}", worst[-1], STD_TOLERANCE)
            rows.append([f"{family}, {method}", *worst])
    report.table("Largest |std / exact std - 1|", ("map", *places), rows)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--sweep", action="store_true")
    arguments.add_argument("--std", action="store_true")
    args = arguments.parse_args()
    kind = "sweep" if args.sweep else "std" if args.std else "laplacian"
    part = {"sweep": sweep, "std": standard_deviations, "laplacian": laplacian}[kind]
    with Report(f"product_kernels_{kind}", args) as report:
        part(report, args.quick)


if __name__ == "__main__":
    main()
