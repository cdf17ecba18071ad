"""Claim: TensorSketch features at least 5 x (dense) and 50 x (CSR) as fast as scikit-learn's.

TensorSketchFeatures.fit_transform against PolynomialCountSketch, the same kernel and number of
features: dense 10,000 x 500 float64, degree 3, 1,000 features; IMDB's tf-idf (float32),
20,000 rows, degree 2, 2,000 features.

Then the time of TensorSketch itself against the nonzeros of X at a fixed number of rows: the FFTs
cost the same for every X, so that time is a straight line a + b nnz. a is measured on a matrix
without nonzeros; the rest should have a log-log slope of at most 1.05, and the line should leave at
most a hundredth of the variance unexplained.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from _common import Array, Report, frobenius_error, parser, race, tfidf
from sklearn.kernel_approximation import PolynomialCountSketch

from kernelsieve import TensorSketchFeatures
from kernelsieve.kernels import Polynomial
from kernelsieve.sketches import TensorSketch

DENSE = 1 / 5
SPARSE = 1 / 50
SLOPE = 1.05
UNEXPLAINED = 0.01
ERROR = 1.1  # the same sketch with other draws
ERROR_ROWS = 1_000
COLUMNS = 100_000
OURS, PEER = "TensorSketchFeatures", "PolynomialCountSketch"


def maps(s: int, degree: int, gamma: float, threads: int) -> dict[str, Any]:
    """Both maps of (gamma <x, y> + 1)^degree."""
    kernel = {"degree": degree, "gamma": gamma, "coef0": 1.0, "random_state": 0}
    return {
        OURS: TensorSketchFeatures(s, kernel="poly", n_jobs=threads, **kernel),
        PEER: PolynomialCountSketch(n_components=s, **kernel),
    }


def compare(report: Report, kind: str, X: Any, s: int, degree: int, target: float) -> None:
    """fit_transform of both maps, in time and in error."""
    gamma = 1.0 if kind == "CSR" else 1.0 / X.shape[1]
    report.set(kind, n=X.shape[0], d=X.shape[1], s=s, degree=degree, dtype=str(X.dtype))
    both = maps(s, degree, gamma, report.threads)
    calls = {name: features.fit_transform for name, features in both.items()}
    if kind == "CSR" and not report.args.quick:
        # The peer takes minutes: it runs once, against which the machine's noise is small.
        times = race({OURS: calls[OURS]}, X, report.args.repetitions)
        times |= race({PEER: calls[PEER]}, X, 1)
    else:
        times = race(calls, X, 5 * report.args.repetitions)
    rows = X[:ERROR_ROWS]
    K = Polynomial(degree, gamma=gamma, coef0=1.0)(rows.astype(np.float64))
    errors = {name: frobenius_error(K, features.transform(rows)) for name, features in both.items()}
    for name in both:
        report.record(kind=kind, method=name, seconds=times[name], error=errors[name])
    columns = ("", "seconds", "ours / this", f"kernel error, {len(K):,} rows")
    table = [(name, times[name], times[OURS] / times[name], errors[name]) for name in both]
    report.table(f"{kind}: fit_transform", columns, table)
    report.check(f"{kind}: time, ours / {PEER}", times[OURS] / times[PEER], target)
    report.check(f"{kind}: kernel error, ours / {PEER}", errors[OURS] / errors[PEER], ERROR)


def rows_with(per_row: int, n_rows: int) -> Any:
    """CSR rows with so many nonzeros each, in random columns."""
    rng = np.random.default_rng(per_row)
    nnz = n_rows * per_row
    columns = np.sort(rng.integers(COLUMNS, size=(n_rows, per_row), dtype=np.int32), axis=1)
    values = rng.standard_normal(nnz, dtype=np.float32)
    starts = np.arange(0, nnz + 1, per_row or 1, dtype=np.int32)
    if per_row == 0:
        starts = np.zeros(n_rows + 1, dtype=np.int32)
    X = sp.csr_array((values, columns.ravel(), starts), shape=(n_rows, COLUMNS))
    X.sum_duplicates()
    return X


def line(x: Array, y: Array) -> tuple[float, float, float]:
    """Intercept, slope and unexplained share of the variance of a straight line through y(x)."""
    slope, intercept = np.polyfit(x, y, 1)
    rest = y - intercept - slope * x
    return float(intercept), float(slope), float(rest.var() / y.var())


def nonzeros(report: Report, n_rows: int, per_row: list[int], s: int) -> None:
    """Time of one sampled sketch of degree 2 against the nonzeros."""
    sketch = TensorSketch(COLUMNS, s, 2).sample(0)
    data = {k: rows_with(k, n_rows) for k in [0, *per_row]}
    calls = {
        k: partial(lambda X, _: sketch.apply(X, n_jobs=report.threads), X) for k, X in data.items()
    }
    times = race(calls, None, 5 * report.args.repetitions, warm_up=False)
    nnz = np.array([data[k].nnz for k in per_row], dtype=float)
    time = np.array([times[k] for k in per_row])
    for k in data:
        report.record(kind="nonzeros", n=n_rows, nnz=data[k].nnz, seconds=times[k])
    rest = time - times[0]
    table = [
        (f"{int(count):,}", t, r, 1e9 * r / (2 * count))
        for count, t, r in zip(nnz, time, rest, strict=True)
    ]
    report.table(
        f"TensorSketch({s:,}, degree 2) of {n_rows:,} rows; without nonzeros {times[0]:.3g} s",
        ("nonzeros", "seconds", "minus the FFTs", "ns each, of 2 per nonzero"),
        table,
    )
    slope = float(np.polyfit(np.log(nnz), np.log(np.maximum(rest, 1e-9)), 1)[0])
    intercept, per_nonzero, unexplained = line(nnz, time)
    report.set(
        "line",
        intercept=intercept,
        measured=times[0],
        ns=1e9 * per_nonzero,
        one_minus_R2=unexplained,
    )
    report.check("log-log slope of (time - FFTs) against nonzeros", slope, SLOPE)
    report.check("1 - R^2 of time = a + b nnz", unexplained, UNEXPLAINED)


def main() -> None:
    arguments = parser(__doc__, seeds=None)
    arguments.add_argument("--repetitions", type=int, default=5)
    args = arguments.parse_args()
    quick = args.quick
    dense = np.random.default_rng(0).standard_normal((500, 40) if quick else (10_000, 500))
    with Report("tensor_sketch_speed", args) as report:
        compare(report, "dense", dense, 100 if quick else 1_000, 3, DENSE)
        text = tfidf(1_000, 2_000) if quick else tfidf(20_000)
        compare(report, "CSR", text, 100 if quick else 2_000, 2, SPARSE)
        per_row = [20, 40, 80] if quick else [200, 400, 800, 1_600, 3_200]
        nonzeros(report, 500 if quick else 10_000, per_row, 100 if quick else 1_000)


if __name__ == "__main__":
    main()
