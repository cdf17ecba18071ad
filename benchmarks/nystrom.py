"""Claims: landmarks by importance, whitened fast and stably, for any kernel.

1. Recursive leverage scores are within a factor 3 of the exact ones for 99 % of the rows: 3,000
   rows of wine, insurance, forest, uji and a mixture, lambda at a statistical dimension of s / 10.
   With rare clusters the spectral epsilon of "leverage" is at most 1/5 of uniform's.
2. Blocked randomly pivoted Cholesky: trace error at most 1.1 x that of single draws over 20 seeds,
   and at most 1/5 of their time (n = 50,000, s = 1,000).
3. Against scikit-learn's Nystroem: the same kernel for the same landmarks, at most 1/2 of the time
   (50,000 x 54 float32 and 10,000 rows of tf-idf, s = 2,000), and a float32 ridge on wine whose
   error does not rise from s = 1,000 to 2,000.
4. The best rank: ``oversample=4`` has at most 0.7 of pivoted Cholesky's relative kernel error at
   equal s on digits, uji and a smooth manifold (2,000 rows at most, s = 100), beside the floor that
   no s columns can pass (Eckart and Young); the ridge's RMSE is no higher.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from _common import (
    Array,
    Report,
    alpha_for_dimension,
    best_rank_error,
    frobenius_error,
    median_gamma,
    mixture,
    parser,
    race,
    standardised,
    subsample,
    tfidf,
)
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split

from kernelsieve import KernelRidge, NystromFeatures
from kernelsieve.diagnostics import spectral_epsilon, statistical_dimension
from kernelsieve.features.recursive_leverage import recursive_leverage_scores
from kernelsieve.features.rpcholesky import rpcholesky_pivots
from kernelsieve.kernels import Gaussian

PARTS = ("scores", "rare", "pivots", "kernel", "speed", "wine", "rank")
DATA = ("wine", "insurance", "forest", "uji", "mixture")
CHOICES = ("uniform", "leverage", "rpcholesky", "kmeans")
FACTOR, OUTSIDE = 3.0, 0.01
RARE = 1 / 5
TRACE, TRACE_SEEDS, PIVOT_TIME = 1.1, 20, 1 / 5
SAME_KERNEL, PEER_TIME = 1e-8, 1 / 2
RANK_DATA, RANK, RANK_RMSE = ("digits", "uji", "manifold"), 0.7, 1.0
RANK_MAPS: dict[str, dict[str, Any]] = {
    "pivots": {"landmarks": "rpcholesky"},
    "uniform": {},
    "oversample": {"oversample": 4},
    "and target": {"oversample": 4, "target_directions": True},
}
WINE_GAMMA, WINE_ALPHA = 0.09, 1.0


def scores(report: Report) -> None:
    """Recursive against exact ridge leverage scores."""
    n, s = (500, 100) if report.args.quick else (3_000, 300)
    rows = []
    for data in DATA:
        X = mixture(n) if data == "mixture" else subsample(standardised(data)[0], n)
        kernel = Gaussian(median_gamma(X))
        K = kernel(X)
        lambda_ = alpha_for_dimension(K, s / 10)
        exact = np.diag(np.linalg.solve(K + lambda_ * np.eye(n), K))
        for seed in range(report.args.seeds):
            found = recursive_leverage_scores(kernel, X, lambda_, s, seed, report.threads)
            ratio = found / exact
            report.record(
                part="scores",
                data=data,
                seed=seed,
                outside=float(np.mean((ratio > FACTOR) | (ratio < 1 / FACTOR))),
                lowest=float(ratio.min()),
                highest=float(ratio.max()),
            )
        found = report.select(part="scores", data=data)
        outside = max(r["outside"] for r in found)
        extremes = min(r["lowest"] for r in found), max(r["highest"] for r in found)
        rows.append((data, lambda_, exact.max() / np.median(exact), *extremes, outside))
        report.check(f"{data}: share of scores beyond a factor 3", outside, OUTSIDE)
    columns = ("data", "lambda", "max/median", "lowest ratio", "highest", "beyond 3")
    report.table(f"Leverage scores / exact, {n:,} rows, s = {s}, worst seed", columns, rows)


def rare_clusters(n: int, clusters: int = 5, members: int = 5, seed: int = 0) -> Array:
    """Nearly all rows in one place, and a few small groups far from it."""
    rng = np.random.default_rng(seed)
    centres = np.repeat(3.0 * rng.standard_normal((clusters, 8)), members, axis=0)
    X = 0.2 * rng.standard_normal((n, 8))
    X[: len(centres)] += centres
    return X


def rare(report: Report) -> None:
    """Spectral epsilon where a few rows matter."""
    n = 500 if report.args.quick else 2_000
    X, kernel, alpha = rare_clusters(n), Gaussian(0.25), 1.0
    K = kernel(X)
    dimension = statistical_dimension(K, alpha)
    s = round(10 * dimension)
    report.set("rare clusters", n=n, alpha=alpha, dimension=dimension, s=s)
    for choice in CHOICES:
        for seed in range(report.args.seeds):
            nystrom = NystromFeatures(
                s, kernel=kernel, landmarks=choice, alpha=alpha, random_state=seed
            )
            epsilon = spectral_epsilon(K, nystrom.fit_transform(X), alpha).epsilon
            report.record(part="rare", landmarks=choice, seed=seed, epsilon=epsilon)
    mean = {c: report.mean("epsilon", part="rare", landmarks=c) for c in CHOICES}
    rows = [(c, mean[c], mean[c] / mean["uniform"]) for c in CHOICES]
    report.table("Rare clusters: spectral epsilon", ("landmarks", "epsilon", "x uniform"), rows)
    report.check("rare clusters: leverage / uniform", mean["leverage"] / mean["uniform"], RARE)


def single_pivots(gamma: float, X: Array, size: int, seed: int) -> Array:
    """Randomly pivoted Cholesky of a Gaussian kernel, one pivot at a time."""
    rng = np.random.default_rng(seed)
    norms = np.square(X).sum(axis=1)
    factor = np.empty((size, len(X)), dtype=X.dtype)  # a line for each pivot: read as they lie
    residuals = np.ones(len(X))
    pivots = np.empty(size, dtype=np.int64)
    for i in range(size):
        running = np.cumsum(residuals)
        pivot = np.searchsorted(running, running[-1] * rng.random(), side="right")
        squares = np.maximum(norms + norms[pivot] - 2 * (X @ X[pivot]), 0)
        column = np.exp(-gamma * squares) - factor[:i, pivot] @ factor[:i]
        factor[i] = column / np.sqrt(max(column[pivot], np.finfo(X.dtype).tiny))
        residuals = np.maximum(residuals - np.square(factor[i]), 0)
        residuals[pivot] = 0
        pivots[i] = pivot
    return pivots


def pivots(report: Report) -> None:
    """Blocked against single draws."""
    everything = standardised("forest")[0]
    gamma = 1.0 / everything.shape[1]
    n, s = (500, 50) if report.args.quick else (3_000, 200)
    X, kernel = subsample(everything, n), Gaussian(gamma)
    for seed in range(TRACE_SEEDS):
        chosen = {
            "blocked": rpcholesky_pivots(kernel, X, s, seed, report.threads),
            "single": single_pivots(gamma, X, s, seed),
        }
        for method, rows in chosen.items():
            Z = NystromFeatures(kernel=kernel, landmarks=X[rows]).fit_transform(X)
            report.record(part="pivots", method=method, seed=seed, left=1 - (Z**2).sum() / n)
    left = {m: report.mean("left", part="pivots", method=m) for m in ("blocked", "single")}
    n, s = (2_000, 50) if report.args.quick else (50_000, 1_000)
    X = subsample(everything, n).astype(np.float32)
    times = race(
        {
            "blocked": lambda X: rpcholesky_pivots(kernel, X, s, 0, report.threads),
            "single": lambda X: single_pivots(gamma, X, min(s, len(X)), 0),
        },
        X,
        report.args.repetitions,
    )
    report.record(part="pivot time", n=n, s=s, **times)
    rows = [(m, left[m], times[m]) for m in times]
    report.table("Randomly pivoted Cholesky", ("", "share of the trace left", "seconds"), rows)
    report.check("pivots: trace error, blocked / single", left["blocked"] / left["single"], TRACE)
    report.check("pivots: time, blocked / single", times["blocked"] / times["single"], PIVOT_TIME)


def kernel(report: Report) -> None:
    """The same landmarks give scikit-learn's kernel, in float64."""
    n, s = (300, 50) if report.args.quick else (2_000, 300)
    inputs = {"forest": subsample(standardised("forest")[0], n), "imdb": tfidf(n).astype(float)}
    for data, X in inputs.items():
        gamma = 1.0 if data == "imdb" else 1.0 / X.shape[1]
        theirs = Nystroem(gamma=gamma, n_components=s, random_state=0).fit(X)
        ours = NystromFeatures(gamma=gamma, landmarks=theirs.components_).fit(X)
        A, B = ours.transform(X), theirs.transform(X)
        difference = float(np.abs(A @ A.T - B @ B.T).max())
        report.record(part="kernel", data=data, difference=difference)
        report.check(f"{data}: largest difference of Z Z^T", difference, SAME_KERNEL)


def speed(report: Report) -> None:
    """fit_transform against scikit-learn's, float32."""
    n, s = (2_000, 200) if report.args.quick else (50_000, 2_000)
    forest = subsample(standardised("forest")[0], n).astype(np.float32)
    inputs = {"forest": (forest, 1.0 / forest.shape[1]), "imdb": (tfidf(n // 5), 1.0)}
    rows = []
    for data, (X, gamma) in inputs.items():
        maps: dict[str, Any] = {
            choice: NystromFeatures(
                s, gamma=gamma, landmarks=choice, random_state=0, n_jobs=report.threads
            )
            for choice in ("uniform", "leverage", "rpcholesky")
        }
        maps["Nystroem"] = Nystroem(gamma=gamma, n_components=s, random_state=0)
        # Warmed up on the first rows, where scikit-learn warns that there are fewer than s.
        times = race({m: f.fit_transform for m, f in maps.items()}, X, report.args.repetitions)
        report.record(part="speed", data=data, n=X.shape[0], d=X.shape[1], s=s, **times)
        peer = times["Nystroem"]
        rows += [(f"{data}, {m}", seconds, seconds / peer) for m, seconds in times.items()]
        report.check(f"{data}: time, uniform / Nystroem", times["uniform"] / peer, PEER_TIME)
    report.table(f"fit_transform, s = {s:,}", ("", "seconds", "x Nystroem"), rows)


def wine(report: Report) -> None:
    """Ridge on float32 features as the landmarks become dependent."""
    X, y = standardised("wine")
    X = X.astype(np.float32)
    sizes = (100, 200) if report.args.quick else (500, 1_000, 2_000)
    for seed in range(report.args.seeds):
        X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=seed)
        for s in sizes:
            ours = NystromFeatures(s, gamma=WINE_GAMMA, random_state=seed)
            theirs = Nystroem(gamma=WINE_GAMMA, n_components=s, random_state=seed).fit(X_train)
            model = KernelRidge(ours, alpha=WINE_ALPHA).fit(X_train, y_train)
            peer = Ridge(alpha=WINE_ALPHA).fit(theirs.transform(X_train), y_train)
            predictions = {
                "NystromFeatures": model.predict(X_test),
                "Nystroem": peer.predict(theirs.transform(X_test)),
            }
            for method, predicted in predictions.items():
                rmse = float(np.sqrt(np.mean((predicted - y_test) ** 2)))
                report.record(part="wine", method=method, s=s, seed=seed, rmse=rmse)
    methods = ("NystromFeatures", "Nystroem")
    rmse = {(m, s): report.mean("rmse", part="wine", method=m, s=s) for m in methods for s in sizes}
    rows = [(m, *(f"{rmse[m, s]:.4f}" for s in sizes)) for m in methods]
    columns = ("float32", *(f"s = {s:,}" for s in sizes))
    report.table(f"wine: RMSE, gamma = {WINE_GAMMA}, alpha = {WINE_ALPHA}", columns, rows)
    half, full = (rmse["NystromFeatures", s] for s in sizes[-2:])
    report.check(f"wine: RMSE at s = {sizes[-1]:,} / at {sizes[-2]:,}", full / half, 1.0)


def manifold(n: int, seed: int = 0) -> tuple[Array, Array]:
    """Images of a smooth map of three hidden coordinates into 64 columns, and a target."""
    rng = np.random.default_rng(seed)
    hidden = rng.uniform(-1.0, 1.0, size=(n, 3))
    waves = hidden @ rng.standard_normal((3, 64)) + rng.uniform(0.0, 2.0 * np.pi, 64)
    X = np.sin(waves) + 0.01 * rng.standard_normal((n, 64))
    return X, np.sin(3.0 * hidden[:, 0]) * hidden[:, 1] + 0.1 * rng.standard_normal(n)


def rank_data(name: str, n: int) -> tuple[Array, Array]:
    """Standardised rows and targets."""
    if name == "manifold":
        X, y = manifold(n)
    elif name == "digits":
        X, y = load_digits(return_X_y=True)
    else:
        X, y = standardised(name)
    rows = np.random.default_rng(0).permutation(len(X))[:n]
    X, y = X[rows].astype(np.float64), np.asarray(y[rows], dtype=np.float64)
    return (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12), (y - y.mean()) / y.std()


def rank(report: Report) -> None:
    """Kernel error and RMSE at equal s, against the best that s columns can do."""
    n, s = (400, 30) if report.args.quick else (2_000, 100)
    rows = []
    for data in RANK_DATA:
        X, y = rank_data(data, n)
        kernel = Gaussian(median_gamma(X))
        K, floor = kernel(X), best_rank_error(kernel(X), s)
        for seed in range(report.args.seeds):
            split = train_test_split(X, y, random_state=seed)
            for method, options in RANK_MAPS.items():
                features = NystromFeatures(s, kernel=kernel, alpha=0.1, random_state=seed)
                features.set_params(**options, n_jobs=report.threads)
                error = frobenius_error(K, features.fit(X, y).transform(X))
                model = KernelRidge(features, alpha=0.1).fit(split[0], split[2])
                rmse = float(np.sqrt(np.mean((model.predict(split[1]) - split[3]) ** 2)))
                report.record(
                    part="rank", data=data, method=method, seed=seed, error=error, rmse=rmse
                )
        report.set(f"rank, {data}", n=len(X), s=s, floor=floor, gamma=kernel.gamma)
        where = {"part": "rank", "data": data}
        errors = {m: report.mean("error", method=m, **where) for m in RANK_MAPS}
        rmses = {m: report.mean("rmse", method=m, **where) for m in RANK_MAPS}
        rows += [(data, m, errors[m], errors[m] / floor, f"{rmses[m]:.4f}") for m in RANK_MAPS]
        ratio = errors["oversample"] / errors["pivots"]
        report.check(f"{data}: kernel error, oversample=4 / pivots", ratio, RANK)
        ratio = rmses["oversample"] / rmses["pivots"]
        report.check(f"{data}: RMSE, oversample=4 / pivots", ratio, RANK_RMSE)
    columns = ("data", "landmarks", "kernel error", "x floor", "RMSE")
    report.table(f"At equal s = {s}: the floor is the best rank (Eckart and Young)", columns, rows)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--repetitions", type=int, default=3)
    arguments.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    args = arguments.parse_args()
    with Report("nystrom", args) as report:
        for part in args.parts:
            globals()[part](report)


if __name__ == "__main__":
    main()
