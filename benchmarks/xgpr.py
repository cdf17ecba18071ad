"""Beside xGPR: test RMSE and time of fits at equal numbers of features, on processors alone.

xGPR (pip install xGPR) is a Gaussian process on structured Fourier features, built for graphics
cards; without CuPy it runs on the processor. Its two hyperparameters are chosen for it on a tenth
of the training rows, which is not timed, as our gamma and alpha are not; timed is the exact fit
at these. No target: for the reader.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
from _common import Array, Report, parser, split_of_some, tuned
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split

from kernelsieve import AdaptiveFeatures, FourierFeatures, KernelRidge

try:
    from xGPR import build_regression_dataset, xGPRegression
except ModuleNotFoundError as error:
    raise SystemExit(f"{error.name} is missing: pip install xGPR (no compiler is needed)") from None

DATA = ("wine", "insurance", "uji", "forest")
SIZES = (512, 1024, 2048)
NOISES = (0.03, 0.1, 0.3, 1.0)
SCALES = (0.5, 1.0, 2.0)  # times sqrt(2 gamma), which is its inverse length scale
MAX_ROWS = 40_000


def xgpr(X: Array, y: Array, s: int, logs: Array, seed: int) -> Any:
    dataset = build_regression_dataset(X, y.astype(np.float64), chunk_size=2000)
    model = xGPRegression(
        num_rffs=s, variance_rffs=12, kernel_choice="RBF", verbose=False, random_seed=seed + 1
    )
    model.set_hyperparams(logs, dataset)
    model.fit(dataset, mode="exact", suppress_var=True)
    return model


def hyperparameters(X: Array, y: Array, s: int, gamma: float) -> Array:
    """The logarithms of noise and inverse length scale with the lowest error on a tenth."""
    X_fit, X_left, y_fit, y_left = train_test_split(X, y, test_size=0.1, random_state=0)

    def error(logs: Array) -> float:
        predicted = xgpr(X_fit, y_fit, s, logs, 0).predict(X_left)
        return float(root_mean_squared_error(y_left, predicted))

    grid = itertools.product(NOISES, (scale * np.sqrt(2.0 * gamma) for scale in SCALES))
    return min((np.log(np.array(pair)) for pair in grid), key=error)


def measure(report: Report, name: str, seed: int, sizes: list[int], n_rows: int) -> None:
    X_train, X_test, y_train, y_test = split_of_some(name, seed, n_rows)
    if seed == 0:
        gamma, alpha = tuned(X_train, y_train, report.threads)
        logs = hyperparameters(X_train, y_train, min(sizes), gamma)
        report.set(name, gamma=gamma, alpha=alpha, xgpr=logs.tolist(), n_train=len(y_train))
    setting = report.settings[name]
    gamma, alpha = setting["gamma"], setting["alpha"]
    for s in sizes:
        options = {"gamma": gamma, "random_state": seed, "n_jobs": report.threads}
        fits = {
            "xGPR": lambda s=s: xgpr(X_train, y_train, s, np.array(setting["xgpr"]), seed),
            "adaptive": lambda s=s, o=options: KernelRidge(
                AdaptiveFeatures(s, **o), alpha=alpha
            ).fit(X_train, y_train),
            "Fourier": lambda s=s, o=options: KernelRidge(FourierFeatures(s, **o), alpha=alpha).fit(
                X_train, y_train
            ),
        }
        for method, fit in fits.items():
            start = time.perf_counter()
            model = fit()
            spent = time.perf_counter() - start
            error = float(root_mean_squared_error(y_test, model.predict(X_test)))
            report.record(data=name, s=s, method=method, seed=seed, rmse=error, fit_seconds=spent)


def show(report: Report, name: str, sizes: list[int]) -> None:
    rows = [
        (
            method,
            *(
                f"{report.mean('rmse', data=name, s=s, method=method):.4g} "
                f"({report.mean('fit_seconds', data=name, s=s, method=method):.2g} s)"
                for s in sizes
            ),
        )
        for method in ("xGPR", "adaptive", "Fourier")
    ]
    report.table(f"{name}: test RMSE (fit)", ("", *(f"s = {s:,}" for s in sizes)), rows)


def main() -> None:
    arguments = parser(__doc__, seeds=3)
    arguments.add_argument("--data", nargs="+", default=list(DATA))
    args = arguments.parse_args()
    sizes, n_rows = ([32, 64], 600) if args.quick else (list(SIZES), MAX_ROWS)
    with Report("xgpr", args) as report:
        for name in args.data:
            warm = split_of_some(name, 0, 1000)
            KernelRidge(AdaptiveFeatures(32)).fit(warm[0], warm[2])  # compiles
            for seed in range(1 if args.quick else args.seeds):
                measure(report, name, seed, sizes, n_rows)
            show(report, name, sizes)


if __name__ == "__main__":
    main()
