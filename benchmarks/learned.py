"""Learned kernels against trees on tables with official splits.

    python benchmarks/learned.py --folder data/tables --tables airfoil,concrete --splits 0,1

Every table is an .npz file with X, y and test_mask (one column for each split). Prints test RMSE of
the default model (learned kernel), of landmarks on its kernel, of one isotropic width, of boosting
with 100 and 500 iterations and of extremely randomised trees; the error that the default model
reports; and the mean logarithm of the ratio to the best trees.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelsieve import KernelRidgeCV, NystromFeatures

TREES = ("boosting", "boosting 500", "extra trees")


def rmse(model: Any, X: Any, y: Any) -> float:
    """Root mean square error of predictions."""
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


def isotropic(seed: int) -> Any:
    """One width for all columns, tuned."""
    features = NystromFeatures(1000, random_state=seed)
    gammas = np.logspace(-3, 0, 7)
    search = KernelRidgeCV(features, alphas=np.logspace(-5, 2, 15), gammas=gammas)
    return make_pipeline(StandardScaler(), search)


def run(X: Any, y: Any, test: Any, seed: int, slow: bool) -> dict[str, float]:
    """All methods on one split."""
    train, result = ~test, {}
    models: dict[str, Any] = {
        "learned": KernelRidgeCV(random_state=seed),
        "boosting": HistGradientBoostingRegressor(random_state=seed),
        "boosting 500": HistGradientBoostingRegressor(max_iter=500, random_state=seed),
        "extra trees": ExtraTreesRegressor(random_state=seed, n_jobs=-1),
    }
    if slow:
        models["isotropic"] = isotropic(seed)
    for name, model in models.items():
        began = time.perf_counter()
        model.fit(X[train], y[train])
        result[f"{name} s"] = time.perf_counter() - began
        result[name] = rmse(model, X[test], y[test])
    learned = models["learned"]
    result["reported"] = learned.best_rmse_
    if slow:
        features = NystromFeatures(1000, kernel=learned.kernel_, random_state=seed)
        landmarks = KernelRidgeCV(features, alphas=np.logspace(-7, 2, 19)).fit(X[train], y[train])
        result["landmarks"] = rmse(landmarks, X[test], y[test])
    return result


def main() -> None:
    """Print a line for every table and split."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--tables", default="airfoil,concrete,skillcraft,parkinsons,sml,gas")
    parser.add_argument("--splits", default="0")
    parser.add_argument("--all", action="store_true", help="isotropic width and landmarks, too")
    arguments = parser.parse_args()
    ratios = []
    warnings.simplefilter("ignore")
    for table in arguments.tables.split(","):
        data = np.load(arguments.folder / f"{table}.npz")
        X, y = data["X"].astype(np.float64), data["y"].astype(np.float64).ravel()
        for split in map(int, arguments.splits.split(",")):
            found = run(X, y, data["test_mask"][:, split].astype(bool), split, arguments.all)
            ratios.append(np.log(found["learned"] / min(found[name] for name in TREES)))
            numbers = ", ".join(f"{name} {value:.4g}" for name, value in found.items())
            print(f"{table} split {split}: {numbers}; log ratio {ratios[-1]:+.3f}", flush=True)
    print(f"mean log(RMSE / best trees) over {len(ratios)}: {np.mean(ratios):+.3f}")


if __name__ == "__main__":
    main()
