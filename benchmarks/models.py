"""Claims on the models: speed on the full forest, conjugate gradients, exact refinement.

forest (float32 for everybody, three quarters for training): KernelRidge(RowNormFeatures(1000)) in
at most 0.85 of RBFSampler(1000) + Ridge at no higher RMSE; KernelRidge(AdaptiveFeatures) reaches
the RMSE of RBFSampler(2000) + Ridge in at most half of its time; a fused Nystrom(1000) ridge in at
most 0.6 of Nystroem(1000) + Ridge. gradients: 20,000 features on 60,000 rows. refine: the exact
ridge on wine and on 20,000 rows of forest in at most 30 iterations with at most 4,000 features.
memory: what fit and predict need beyond X and y at 10^5 and at 10^6 rows, in processes of their
own; a number for each row (the predictions) may grow, blocks of features may not.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
from _common import (
    Array,
    Report,
    high_water,
    in_new_process,
    parser,
    peak_memory,
    standardised,
    subsample,
    tuned,
)
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import Ridge
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from kernelsieve import (
    AdaptiveFeatures,
    KernelKMeans,
    KernelPCA,
    KernelRidge,
    KernelRidgeCV,
    NystromFeatures,
    RowNormFeatures,
)

GAMMA, ALPHA = 0.0056, 0.01  # of forest, as in docs/why-the-engine.md
PARTS = ["forest", "gradients", "refine", "memory"]
BYTES_PER_ROW = 100.0  # targets, weights, predictions and labels: a dozen numbers


def fit_and_judge(model: Any, parts: list[Array]) -> tuple[float, float]:
    """Seconds to fit, and test RMSE."""
    X_train, X_test, y_train, y_test = parts
    start = time.perf_counter()
    model.fit(X_train, y_train)
    spent = time.perf_counter() - start
    return spent, float(root_mean_squared_error(y_test, model.predict(X_test)))


def forest(report: Report, n_rows: int | None, sizes: tuple[int, int], seed: int) -> None:
    X, y = standardised("forest")
    parts = train_test_split(
        X[:n_rows].astype(np.float32), y[:n_rows], test_size=0.25, random_state=seed
    )
    small, large = sizes
    report.set("forest", gamma=GAMMA, alpha=ALPHA, n_train=len(parts[2]))
    ours = {"gamma": GAMMA, "random_state": seed, "n_jobs": report.threads}
    theirs = {"gamma": GAMMA, "random_state": seed}
    models = {
        f"row norm {small}": KernelRidge(RowNormFeatures(small, **ours), alpha=ALPHA),
        **{
            f"adaptive {s}": KernelRidge(AdaptiveFeatures(s, **ours), alpha=ALPHA)
            for s in (small, small * 3 // 2, large * 9 // 10, large)
        },
        f"fused Nystrom {small}": KernelRidge(NystromFeatures(small, **ours), alpha=ALPHA),
        f"RBFSampler {small}": _pipeline(RBFSampler(n_components=small, **theirs)),
        f"RBFSampler {large}": _pipeline(RBFSampler(n_components=large, **theirs)),
        f"Nystroem {small}": _pipeline(Nystroem(n_components=small, **theirs)),
    }
    found = {}
    for name, model in models.items():
        found[name] = fit_and_judge(model, parts)
        report.record(part="forest", model=name, seconds=found[name][0], rmse=found[name][1])
    report.table("forest", ("", "fit s", "RMSE"), [(n, *v) for n, v in found.items()])
    base, ours_small = found[f"RBFSampler {small}"], found[f"row norm {small}"]
    report.check("time: row norm / RBFSampler", ours_small[0] / base[0], 0.85)
    report.check("RMSE: row norm / RBFSampler", ours_small[1] / base[1], 1.0)
    goal = found[f"RBFSampler {large}"]
    reached = [v for n, v in found.items() if n.startswith("adaptive") and v[1] <= goal[1]]
    fastest = min((v[0] for v in reached), default=float("inf"))
    report.check(f"time: adaptive at RBFSampler {large}'s RMSE", fastest / goal[0], 0.5)
    nystrom = found[f"fused Nystrom {small}"][0] / found[f"Nystroem {small}"][0]
    report.check("time: fused Nystrom / Nystroem + Ridge", nystrom, 0.6)


def _pipeline(features: Any) -> Any:
    return make_pipeline(features, Ridge(alpha=ALPHA, copy_X=False))


def gradients(report: Report, n_rows: int, size: int, seed: int) -> None:
    """In a process of its own, whose peak is nobody else's."""
    spent, peak, iterations = in_new_process(_gradients, n_rows, size, seed, report.threads)
    report.record(part="gradients", seconds=spent, peak_gib=peak, iterations=iterations)
    report.print(
        f"gradients: {size:,} features on {n_rows:,} rows in {spent:.1f} s, "
        f"{iterations} iterations, {peak:.1f} GiB at the peak, all told"
    )
    report.check("gradients: peak in GiB", peak, 8.0)


def _gradients(n_rows: int, size: int, seed: int, threads: int) -> tuple[float, float, int]:
    X, y = standardised("forest")
    X, y = subsample(X, n_rows, seed).astype(np.float32), subsample(y, n_rows, seed)
    features = RowNormFeatures(size, gamma=GAMMA, random_state=seed, n_jobs=threads)
    model = KernelRidge(features, alpha=1.0, random_state=seed, solver="cg", tol=1e-5)
    start = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - start, high_water() / 2**30, model.n_iter_


def refine(report: Report, n_rows: int, size: int, seed: int) -> None:
    rows = []
    for name in ("wine", "forest"):
        X, y = standardised(name)
        X, y = subsample(X, n_rows, seed), subsample(y, n_rows, seed)
        gamma, alpha = tuned(X, y, report.threads)
        report.set(f"refine, {name}", gamma=gamma, alpha=alpha, n=len(y), s=size)
        common = {"gamma": gamma, "random_state": seed, "n_jobs": report.threads}
        maps = {
            "pivoted Nystrom": NystromFeatures(size, landmarks="rpcholesky", **common),
            "adaptive": AdaptiveFeatures(size, **common),
        }
        for label, features in maps.items():
            model = KernelRidge(features, alpha=alpha, refine=True, max_iter=100)
            start = time.perf_counter()
            model.fit(X, y)
            spent = time.perf_counter() - start
            rows.append((name, label, model.n_iter_, spent))
            report.record(
                part="refine", data=name, map=label, seconds=spent, iterations=model.n_iter_
            )
            report.check(f"refine, {name}, {label}: iterations", model.n_iter_, 30)
    report.table("refine: exact ridges", ("data", "map", "iterations", "fit s"), rows)


def memory(report: Report, counts: tuple[int, int], size: int) -> None:
    models = {
        "KernelRidge": KernelRidge,
        "KernelRidgeCV": KernelRidgeCV,
        "KernelPCA": partial(KernelPCA, 5),
        "KernelKMeans": partial(KernelKMeans, 8, n_init=1, max_iter=3, random_state=0),
    }
    rows = []
    for name, model in models.items():
        work = partial(_fit_and_use, model, size, report.threads)
        peaks = [peak_memory(partial(_rows, n), work) for n in counts]
        per_row = (peaks[1] - peaks[0]) / (counts[1] - counts[0])
        rows.append((name, *(peak / 1e6 for peak in peaks), per_row))
        report.record(part="memory", model=name, rows=counts, bytes=peaks)
        report.check(f"memory, {name}: bytes for a row more", per_row, BYTES_PER_ROW)
    heads = ("model", *(f"MB at {n:,}" for n in counts), "bytes for a row more")
    report.table(
        f"memory beyond X and y, s = {size:,}: {4 * size:,} bytes in a row of Z", heads, rows
    )


def _rows(n: int) -> Array:
    return np.random.default_rng(0).standard_normal((n, 20), dtype=np.float32)


def _fit_and_use(model: Any, size: int, threads: int, X: Array) -> None:
    fitted = model(features=RowNormFeatures(size, random_state=0, n_jobs=threads), n_jobs=threads)
    fitted.fit(X, X[:, 0])
    (fitted.predict if hasattr(fitted, "predict") else fitted.transform)(X)


def main() -> None:
    arguments = parser(__doc__, seeds=None)
    arguments.add_argument(
        "--parts", nargs="+", default=["forest", "gradients", "refine", "memory"]
    )
    args = arguments.parse_args()
    quick = args.quick
    with Report("models", args) as report:
        if "forest" in args.parts:
            forest(report, 3_000 if quick else None, (60, 120) if quick else (1000, 2000), 0)
        if "gradients" in args.parts:
            gradients(report, 2_000 if quick else 60_000, 500 if quick else 20_000, 0)
        if "refine" in args.parts:
            refine(report, 800 if quick else 20_000, 200 if quick else 4_000, 0)
        if "memory" in args.parts:
            memory(report, (2_000, 20_000) if quick else (100_000, 1_000_000), 500)


if __name__ == "__main__":
    main()
