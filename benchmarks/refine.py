"""Claims on the full kernel: iterations, time, memory, and what it is worth.

    python benchmarks/refine.py                         # iterations and large
    python benchmarks/refine.py --parts tables gain     # KERNELSIEVE_DATA/tables, wine
    python benchmarks/refine.py --parts whole           # 15 minutes and more

iterations: 20,000 rows of forest, gamma and alpha tuned, the default map: at most 15.
large: 50,000 rows of forest to a residual of 1e-3 in at most 300 s, with the peak of memory.
peers: test RMSE against time on 50,000 rows of forest, beside Falkon-style conjugate gradients
(uniform Nystrom landmarks) and, if rlaopt is installed, its PCG and ASkotch; time to equal error.
whole: 435,759 rows of forest, as far as 15 minutes go, beside 2,000 features.
tables: test RMSE of the learned default, beside the dense solve with its kernel and alpha (up to
8,000 rows), and extremely randomised trees; and on at most 2,000 training rows beside an exact
Gaussian process with one rate for each column, if GPyTorch is installed.
gain: test RMSE of the learned default with and without the full kernel and corrections.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import _rlaopt
import numpy as np
from _common import Report, high_water, parser, scaled_split, standardised, subsample, tuned
from _gpytorch import FAMILIES, exact_mean
from scipy.linalg import cho_factor, cho_solve
from sklearn.ensemble import ExtraTreesRegressor

from kernelsieve import AdaptiveFeatures, KernelRidge, KernelRidgeCV, NystromFeatures, datasets
from kernelsieve.kernels import Gaussian
from kernelsieve.kernels.matrix import KernelMatrix
from kernelsieve.learning import Wanted, choose
from kernelsieve.learning.judge import Judge
from kernelsieve.learning.options import LearnOptions
from kernelsieve.learning.plan import Plan
from kernelsieve.linalg import solvers
from kernelsieve.models import full_kernel
from kernelsieve.sources.base import ArraySource

SMALL = ("wine", "bike", "parkinsons", "pumadyn32nm", "airfoil", "concrete")
DENSE_ROWS = 8000  # of a dense solve
GP_ROWS, GP_STEPS = 2000, 40  # of the exact processes of GPyTorch, and their last steps
WINE = 0.62  # mean RMSE of the splits of wine
LIMIT = 900.0  # seconds
PEER_LIMIT, PEER_TESTS = 100.0, 10_000  # seconds for each peer of torch, and test rows
PEER_ITERATIONS = 40  # at most, of our conjugate gradients
LEVELS = (1.1, 1.05, 1.02, 1.01)  # test errors to reach, in units of the solution's
GAIN_TABLES = ("bike", "pumadyn32nm", "keggdirected", "tamielectric")
Split = tuple[Any, Any, Any, Any]
FEATURES_ALONE = LearnOptions(exact_rows=0, full_work=0.0)


def iterations(report: Report, n_rows: int, size: int) -> None:
    X, y = standardised("forest")
    X, y = subsample(X, n_rows, 0), subsample(y, n_rows, 0)
    gamma, alpha = tuned(X, y, report.threads)
    report.set("iterations, forest", gamma=gamma, alpha=alpha, n=len(y), s=size)
    features = AdaptiveFeatures(size, gamma=gamma, random_state=0, n_jobs=report.threads)
    model = KernelRidge(features, alpha=alpha, refine=True, random_state=0)
    began = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - began
    report.record(part="iterations", seconds=seconds, iterations=model.n_iter_)
    report.table("iterations", ("iterations", "fit s"), [(model.n_iter_, seconds)])
    report.check("forest, default map: iterations", model.n_iter_, 15)


def rmse(found: Any, y: Any) -> float:
    """Root mean square error."""
    return float(np.sqrt(np.mean((found - y) ** 2)))


def large(report: Report, n_rows: int) -> None:
    X, y = standardised("forest")
    X, y = subsample(X, n_rows, 0), subsample(y, n_rows, 0)
    gamma, alpha = tuned(X, y, report.threads)
    report.set("large, forest", gamma=gamma, alpha=alpha, n=len(y))
    features = AdaptiveFeatures(1000, gamma=gamma, random_state=0, n_jobs=report.threads)
    model = KernelRidge(features, alpha=alpha, refine=True, tol=1e-3, random_state=0)
    began = time.perf_counter()
    model.fit(X, y)
    seconds, peak = time.perf_counter() - began, high_water() / 2**30
    report.record(part="large", seconds=seconds, residual=model.residual_, gib=peak)
    rows = [(model.n_iter_, model.residual_, seconds, peak)]
    report.table("large", ("iterations", "residual", "fit s", "peak GiB"), rows)
    report.check(f"forest, {len(y):,} rows: seconds", seconds, 300.0)


def peers(report: Report, quick: bool) -> None:
    """Equal rows, kernel, alpha and threads; centred targets, so that nobody needs an intercept."""
    n, n_test = (1000, 300) if quick else (50_000, PEER_TESTS)
    X, y = standardised("forest")
    chosen = np.random.default_rng(0).permutation(len(y))[: n + n_test]
    X, X_test, y, y_test = X[chosen[:n]], X[chosen[n:]], y[chosen[:n]], y[chosen[n:]]
    gamma, alpha = tuned(X, y, report.threads)
    limit = 3.0 if quick else PEER_LIMIT
    report.set("peers, forest", gamma=gamma, alpha=alpha, n=n, limit=limit)
    options: dict[str, Any] = {"gamma": gamma, "random_state": 0, "n_jobs": report.threads}
    size = 50 if quick else 1000
    centred = y - y.mean()
    ours = (alpha, report.threads)
    problem = (X, centred, gamma, alpha, limit, report.threads)
    small = mock.patch.object(full_kernel, "LARGEST_KERNEL_MATRIX", 0)
    with small:  # compiles
        gradients(AdaptiveFeatures(50, **options), X[:500], centred[:500], *ours)
    with small if quick else contextlib.nullcontext():
        paths = {"ours": gradients(AdaptiveFeatures(size, **options), X, centred, *ours)}
        with mock.patch.object(full_kernel.FullKernel, "preconditioner", given_features):
            uniform = NystromFeatures(size, **options)
            paths["Falkon-style"] = gradients(uniform, X, centred, *ours)
    if find_spec("rlaopt"):
        _rlaopt.pcg(X[:500], centred[:500], gamma, alpha, 0.5, report.threads)  # imports
        paths["rlaopt PCG"] = _rlaopt.pcg(*problem)
        paths["ASkotch"] = _rlaopt.askotch(*problem)
    kernel = KernelMatrix(Gaussian(gamma), X_test, X, n_jobs=report.threads)
    curves = {}
    for name, path in paths.items():
        means = kernel @ np.column_stack([values for _, values in path]) + y.mean()
        curves[name] = [(path[i][0], rmse(means[:, i], y_test)) for i in range(len(path))]
        report.record(part="peers", method=name, curve=curves[name])
    # The solution of the system: the error to which the one that is solved to tol has come.
    solved = curves["ours"][-1][1]
    rows = []
    for name, curve in curves.items():
        times = [reached(curve, level * solved) for level in LEVELS]
        rows.append((name, *times, *curve[-1]))
        report.record(part="peers", method=name, seconds=dict(zip(LEVELS, times, strict=True)))
    heads = ("", *(f"{level:g}" for level in LEVELS), "end", "RMSE there")
    report.table(f"peers: seconds to an RMSE of {solved:.4f} times", heads, rows)
    others = [row for row in rows if row[0] in ("rlaopt PCG", "ASkotch")]
    for level, place in zip(LEVELS[-2:], (-4, -3), strict=True):
        if others:
            # One that has not come there is known to take at least its time limit.
            best = min(limit if np.isnan(row[place]) else row[place] for row in others)
            report.check(f"seconds to {level:g}, ours / rlaopt", rows[0][place] / best, 0.5)


def given_features(full: full_kernel.FullKernel, rows: Any) -> Any:
    """In place of the choice of a preconditioner."""
    return full.features


def gradients(features: Any, X: Any, y: Any, alpha: float, threads: int) -> _rlaopt.Path:
    """The coefficients after every iteration of a fit, which takes the whole time to them."""
    found: _rlaopt.Path = []
    steps = solvers.conjugate_gradient_steps

    def watched(*arguments: Any) -> Iterator[solvers.Step]:
        before = found[-1][1] if found else np.zeros(len(y))  # a round begins where the last ended
        for step in steps(*arguments):
            found.append((time.perf_counter() - began, before + step.values[:, 0]))
            yield step

    options: dict[str, Any] = {"alpha": alpha, "random_state": 0, "n_jobs": threads}
    options |= {"fit_intercept": False, "tol": 1e-3, "max_iter": PEER_ITERATIONS}
    model = KernelRidge(features, refine=True, **options)
    with mock.patch.object(solvers, "conjugate_gradient_steps", watched):
        began = time.perf_counter()
        model.fit(X, y)
    return found


def reached(curve: list[tuple[float, float]], level: float) -> float:
    """The first time at which an error is at most a level."""
    return next((seconds for seconds, error in curve if error <= level), np.nan)


def whole(report: Report, quick: bool) -> None:
    data = datasets.load("forest")
    chosen = np.random.default_rng(0).permutation(len(data.y))[: 1200 if quick else None]
    X, X_test, y, y_test = scaled_split(data.X[chosen], data.y[chosen], 0)
    gamma, alpha = tuned(X, y, report.threads)
    limit, size = (5.0, 50) if quick else (LIMIT, 2000)
    report.set("whole forest", gamma=gamma, alpha=alpha, n=len(y), limit=limit)
    options: dict[str, Any] = {"gamma": gamma, "random_state": 0, "n_jobs": report.threads}
    before = high_water()
    model = KernelRidge(
        AdaptiveFeatures(min(size, 1000), **options),
        alpha=alpha,
        refine=True,
        tol=1e-3,
        time_limit=limit,
        random_state=0,
    )
    began = time.perf_counter()
    with small_as_large() if quick else contextlib.nullcontext():
        model.fit(X, y)
    fitted = time.perf_counter() - began
    # What the claim on memory allows: twice the rows and their values at 1,000 landmarks.
    growth, allowed = high_water() - before + X.nbytes, 2 * (X.nbytes + 4 * 1000 * len(y))
    began = time.perf_counter()
    refined = rmse(model.predict(X_test), y_test)
    predicted = time.perf_counter() - began
    features = KernelRidge(AdaptiveFeatures(size, **options), alpha=alpha).fit(X, y)
    plain = rmse(features.predict(X_test), y_test)
    head = ("sweeps", "residual", "fit s", "GiB", "predict s", "RMSE", f"{size:,} features")
    gib = growth / 2**30
    row = (model.n_iter_, model.residual_, fitted, gib, predicted, refined, plain)
    report.record(part="whole", **dict(zip(head, row, strict=True)))
    report.table("whole forest", head, [row])
    report.check("forest, whole: memory / 2 (rows + landmarks)", growth / allowed, 1.0)


def small_as_large() -> Any:
    """Take the way of large tables for small ones."""
    return mock.patch.multiple(full_kernel, LARGEST_KERNEL_MATRIX=0, FEWEST_PASSES=1e12)


def split_of(folder: Path, name: str, split: int, quick: bool) -> Split:
    """Training rows, their targets, test rows, their targets; a tenth for the test."""
    if name == "wine":
        data = datasets.load(name)
        X, y = np.asarray(data.X, dtype=np.float64), np.asarray(data.y, dtype=np.float64)
        test = np.zeros(len(y), dtype=bool)
        test[np.random.default_rng(split).permutation(len(y))[: len(y) // 10]] = True
    else:
        arrays = np.load(folder / f"{name}.npz")
        X, y = arrays["X"].astype(np.float64), arrays["y"].astype(np.float64).ravel()
        test = arrays["test_mask"][:, split].astype(bool)
    train = np.flatnonzero(~test)[: 300 if quick else None]
    return X[train], y[train], X[test], y[test]


def dense_solve(kernel: Any, alpha: float, X: Any, y: Any, X_test: Any) -> Any:
    """Predictions of the exact Gaussian process with an unpenalised constant."""
    K = kernel(X)
    K.flat[:: len(K) + 1] += alpha
    solved = cho_solve(cho_factor(K, lower=True), np.column_stack([y, np.ones(len(y))]))
    constant = solved[:, 0].sum() / solved[:, 1].sum()
    return kernel(X_test, X) @ (solved[:, 0] - constant * solved[:, 1]) + constant


def exact_processes(report: Report, name: str, split: int, rows: Split) -> tuple[float, ...]:
    """RMSE of the learned default and of GPyTorch's processes on the same at most 2,000 rows."""
    X, y, X_test, y_test = rows
    some = np.random.default_rng(split).permutation(len(y))[:GP_ROWS]
    X, y = X[some], y[some]
    model = KernelRidgeCV(random_state=split, n_jobs=report.threads).fit(X, y)
    ours = rmse(model.predict(X_test), y_test)
    found = [rmse(exact_mean(f, X, y, X_test, split, GP_STEPS), y_test) for f in FAMILIES]
    report.check(f"{name}, split {split}, {len(y):,} rows: RMSE / GP", ours / min(found), 1.02)
    return ours, *found


def tables(report: Report, folder: Path, splits: int, quick: bool) -> None:
    rows, heads = [], ("table", "split", "n", "refined", "learned", "exact", "trees", "fit s")
    processes = []
    some_heads = ("table", "split", "learned", *FAMILIES)
    for name in SMALL[-2:] if quick else SMALL:
        for split in range(splits):
            X, y, X_test, y_test = split_of(folder, name, split, quick)
            began = time.perf_counter()
            model = KernelRidgeCV(random_state=split, n_jobs=report.threads).fit(X, y)
            seconds = time.perf_counter() - began
            ours, exact = rmse(model.predict(X_test), y_test), np.nan
            if len(y) <= DENSE_ROWS:
                exact = rmse(dense_solve(model.kernel_, model.alpha_, X, y, X_test), y_test)
                report.check(f"{name}, split {split}: RMSE / exact", ours / exact, 1.02)
            trees = ExtraTreesRegressor(random_state=split, n_jobs=report.threads).fit(X, y)
            tree = rmse(trees.predict(X_test), y_test)
            refined = hasattr(model.model_, "dual_coef_")
            row = (name, split, len(y), refined, ours, exact, tree, seconds)
            report.record(part="tables", **dict(zip(heads, row, strict=True)))
            rows.append(row)
            if find_spec("gpytorch"):
                found = exact_processes(report, name, split, (X, y, X_test, y_test))
                processes.append((name, split, *found))
                named = dict(zip(some_heads, processes[-1], strict=True))
                report.record(part="processes", **named)
        if name == "wine":
            mean = report.mean("learned", part="tables", table=name)
            report.check(f"wine: mean RMSE of {splits} splits", mean, WINE)
    report.table("test RMSE", heads, rows)
    if processes:
        title = f"test RMSE with {GP_ROWS:,} training rows, beside GPyTorch's exact processes"
        report.table(title, some_heads, processes)


def features_alone(X: Any, y: Any, seed: int) -> Plan:
    """What the default would decide without the exact kernel; a given plan is not corrected."""
    rows = ArraySource(X, y[:, None])
    return choose(rows, Judge(len(y), seed), wanted=Wanted(options=FEATURES_ALONE))


def gain(report: Report, folder: Path, splits: int, quick: bool) -> None:
    rows = []
    for name in GAIN_TABLES[:1] if quick else GAIN_TABLES:
        for split in range(splits):
            X, y, X_test, y_test = split_of(folder, name, split, quick)
            found: dict[str, Any] = {}
            for label in ("features", "auto"):
                began = time.perf_counter()
                plan = features_alone(X, y, split) if label == "features" else None
                model = KernelRidgeCV(plan=plan, random_state=split).fit(X, y)
                found[f"{label} s"] = time.perf_counter() - began
                found[label] = rmse(model.predict(X_test), y_test)
            found["refined"] = bool(model.model_.refine)
            report.record(part="gain", table=name, split=split, **found)
            rows.append((name, split, *found.values()))
            ratio = found["auto"] / found["features"]
            report.check(f"{name}, split {split}: RMSE, auto / features", ratio, 1.01)
    heads = ("table", "split", "features s", "features", "auto s", "auto", "refined")
    report.table("gain", heads, rows)


def main() -> None:
    arguments = parser(__doc__, seeds=None)
    parts = ("iterations", "large", "peers", "whole", "tables", "gain")
    arguments.add_argument("--parts", nargs="+", choices=parts, default=["iterations", "large"])
    arguments.add_argument("--folder", type=Path, help="of the tables")
    arguments.add_argument("--splits", type=int, default=5)
    args = arguments.parse_args()
    warnings.simplefilter("ignore")
    folder = args.folder or Path(os.environ.get("KERNELSIEVE_DATA", ".")) / "tables"
    splits = 1 if args.quick else args.splits
    with Report("refine", args) as report:
        if "iterations" in args.parts:
            iterations(report, 800 if args.quick else 20_000, 100 if args.quick else 1000)
        if "large" in args.parts:
            large(report, 800 if args.quick else 50_000)
        if "peers" in args.parts:
            peers(report, args.quick)
        if "whole" in args.parts:
            whole(report, args.quick)
        if "tables" in args.parts:
            tables(report, folder, splits, args.quick)
        if "gain" in args.parts:
            gain(report, folder, splits, args.quick)


if __name__ == "__main__":
    main()
