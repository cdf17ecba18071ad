"""Claim: intervals hold the share of targets that they promise, and quantiles lose little.

    KERNELSIEVE_DATA=folder python benchmarks/coverage.py [--rows 4000] [--parts coverage]

Coverage of the intervals of ``ConformalRegressor`` at 50, 80, 90 and 95 % on built-in data and on
the tables of the folder, mean over seeds, with half of the rows (at most ``--rows``) for the fit
and at most 4,000 others to count: split conformal on a KernelRidge of 200 products, its scaled
form, and jackknife+ on 200 products that the target did not choose. Beside them the plain intervals
mean +- z deviation of ``predict(return_std=True)``. Then the pinball loss at 10, 50 and 90 %, over
that of constant quantiles, mean over seeds, beside LightGBM and scikit-learn's boosting, on the
tables bike, parkinsons and diamonds (diamonds: carat, depth, table, x, y, z).

parkinsons has about 140 rows of each of 42 people, whose number is its first column. Random splits
put rows of a person on both sides, which is easy. "parkinsons, people" leaves that column out and
keeps the rows of a person together: in the split and, for "conformal, groups", among the rows set
aside too. There the promise is for new people, of whom few are set aside: it has no limit here.
"""

from __future__ import annotations

import gzip
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from _common import Report, parser
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.preprocessing import StandardScaler

from kernelsieve import (
    AdaptiveFeatures,
    ConformalRegressor,
    KernelQuantileRegressor,
    KernelRidge,
    datasets,
)
from kernelsieve.models.quantile_regression import pinball_loss

COVERAGES = (0.5, 0.8, 0.9, 0.95)
QUANTILES = (0.1, 0.5, 0.9)
BUILT_IN = ("diabetes", "friedman")
PEOPLE = "parkinsons, people"
TABLES = ("airfoil", "bike", "concrete", "diamonds", "parkinsons", PEOPLE, "skillcraft", "sml")
LOSSES = ("bike", "parkinsons", PEOPLE, "diamonds")
PERSON = 0  # the column with the number of the person
FARTHEST = 3.5  # standard errors of the mean coverage from what theory promises
NEW_ROWS = 4_000
PARTS = ("coverage", "pinball")


def load(name: str) -> tuple[Any, Any] | None:
    """Rows and targets of a table; None where its file is not there."""
    if name in BUILT_IN:
        data = datasets.load(name)
        return np.asarray(data.X, dtype=np.float64), np.asarray(data.y, dtype=np.float64)
    folder = Path(os.environ.get("KERNELSIEVE_DATA", "."))
    if name == "diamonds":
        path = folder / "diamonds.csv.gz"
        return _diamonds(path) if path.exists() else None
    path = folder / f"{name.split(',')[0]}.npz"
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as file:
        X, y = (file[key] for key in ("X", "y"))
    return X.astype(np.float64), y.astype(np.float64).ravel()


def _diamonds(path: Path) -> tuple[Any, Any]:
    import pandas as pd

    with gzip.open(path) as file:
        frame = pd.read_csv(file)
    y = frame.pop("price").to_numpy(dtype=np.float64)
    return frame.select_dtypes("number").to_numpy(dtype=np.float64), np.log(y)


def groups_of(name: str, X: Any) -> Any:
    """The person of each row, where people are to be kept together; None elsewhere."""
    if name != PEOPLE:
        return None
    return np.unique(X[:, PERSON], return_inverse=True)[1]


def split(X: Any, y: Any, most: int, seed: int, groups: Any = None) -> tuple[Any, ...]:
    """Standardised rows to fit to and their groups, and other rows; of other groups."""
    rng = np.random.default_rng(seed)
    if groups is None:
        order = rng.permutation(len(y))
        size = min(len(y) // 2, most)
        train, test = order[:size], order[size : size + NEW_ROWS]
    else:
        people = rng.permutation(groups.max() + 1)
        first = np.isin(groups, people[: len(people) // 2])
        train = rng.permutation(np.flatnonzero(first))[:most]
        test = rng.permutation(np.flatnonzero(~first))[:NEW_ROWS]
        X = np.delete(X, PERSON, axis=1)
    scaler = StandardScaler().fit(X[train])
    kept = None if groups is None else groups[train]
    return scaler.transform(X[train]), y[train], kept, scaler.transform(X[test]), y[test]


def coverage_of(report: Report, name: str, args: Any) -> list[tuple[Any, ...]]:
    data = load(name)
    if data is None:
        report.print(f"{name}: no file, left out")
        return []
    size = 30 if args.quick else 200
    groups = groups_of(name, data[0])
    found: dict[str, list[Any]] = {}
    for seed in range(args.seeds):
        X, y, kept, new, truth = split(*data, args.rows, seed, groups)
        ridge = KernelRidge(AdaptiveFeatures(size, random_state=seed), alpha=0.3)
        blind = KernelRidge(AdaptiveFeatures(size, target_share=0, random_state=seed), alpha=0.3)
        models = {
            "conformal": ConformalRegressor(ridge, random_state=seed).fit(X, y),
            "scaled": ConformalRegressor(ridge, scaled=True, random_state=seed).fit(X, y),
            "jackknife+": ConformalRegressor(blind, method="jackknife+").fit(X, y),
        }
        if kept is not None:
            of_groups = ConformalRegressor(ridge, random_state=seed)
            models["conformal, groups"] = of_groups.fit(X, y, groups=kept)
        for kind, model in models.items():
            bounds = [model.predict_interval(new, c) for c in COVERAGES]
            found.setdefault(kind, []).append([_inside(truth, *b) for b in bounds])
        apart = len(models["conformal"].errors_)
        mean, deviation = ridge.fit(X, y).predict(new, return_std=True)
        widths = [norm.ppf(0.5 + 0.5 * c) * deviation for c in COVERAGES]
        plain = [_inside(truth, mean - w, mean + w) for w in widths]
        found.setdefault("mean +- z std", []).append(plain)
    lines = []
    for kind, shares in found.items():
        means = np.mean(shares, axis=0)
        report.record(part="coverage", table=name, kind=kind, shares=means.tolist(), splits=shares)
        lines.append((f"{name}: {kind}", *(100.0 * means)))
        if kind != "mean +- z std" and groups is None:
            errors = [_standard_error(c, apart, len(truth), args.seeds) for c in COVERAGES]
            worst = float((np.abs(means - COVERAGES) / errors).max())
            report.check(f"{name}: {kind}, standard errors", worst, FARTHEST)
    return lines


def _standard_error(coverage: float, apart: int, new: int, seeds: int) -> float:
    """Of the mean coverage over splits with so many rows set apart, and others that count.

    Given the rows set apart, coverage has a beta distribution. Splits of one table overlap, so this
    is a little too small.
    """
    rank = np.ceil(coverage * (apart + 1))
    spread = rank * (apart + 1 - rank) / ((apart + 1) ** 2 * (apart + 2))
    return float(np.sqrt((spread + coverage * (1.0 - coverage) / new) / seeds))


def _inside(truth: Any, low: Any, high: Any) -> float:
    return float(np.mean((low <= truth) & (truth <= high)))


def losses_of(report: Report, name: str, args: Any) -> list[tuple[Any, ...]]:
    data = load(name)
    if data is None:
        report.print(f"{name}: no file, left out")
        return []
    size, groups = 30 if args.quick else 500, groups_of(name, data[0])
    found: dict[str, list[Any]] = {}
    for seed in range(args.seeds):
        X, y, _, new, truth = split(*data, args.rows, seed, groups)
        constant = [pinball_loss(truth, np.quantile(y, q), q) for q in QUANTILES]
        features = AdaptiveFeatures(size, kernel="learned", random_state=seed)
        model = KernelQuantileRegressor(QUANTILES, features, random_state=seed).fit(X, y)
        answers = {"ours": model.predict(new).T, "scikit-learn": _boosted(X, y, new)}
        trees = _trees(X, y, new)
        if trees is not None:
            answers["LightGBM"] = trees
        for method, predicted in answers.items():
            each = [pinball_loss(truth, p, q) for p, q in zip(predicted, QUANTILES, strict=True)]
            found.setdefault(method, []).append(np.array(each) / constant)
    lines = []
    for method, losses in found.items():
        relative = np.mean(losses, axis=0)
        report.record(part="pinball", table=name, method=method, relative=relative.tolist(),
                      splits=[each.tolist() for each in losses])  # fmt: skip
        lines.append((f"{name}: {method}", *relative, float(relative.mean())))
    return lines


def _boosted(X: Any, y: Any, new: Any) -> list[Any]:
    return [
        HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=0)
        .fit(X, y)
        .predict(new)
        for q in QUANTILES
    ]


def _trees(X: Any, y: Any, new: Any) -> list[Any] | None:
    try:
        from lightgbm import LGBMRegressor
    except ImportError:
        return None
    options: dict[str, Any] = {"objective": "quantile", "verbose": -1, "random_state": 0}
    return [LGBMRegressor(alpha=q, n_jobs=1, **options).fit(X, y).predict(new) for q in QUANTILES]


def main() -> None:
    arguments = parser(__doc__, seeds=5)
    arguments.add_argument("--rows", type=int, default=4_000, help="of a fit; default 4000")
    arguments.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    args = arguments.parse_args()
    warnings.simplefilter("ignore")
    tables = BUILT_IN if args.quick else (*BUILT_IN, *TABLES)
    with Report("coverage", args) as report:
        for part in set(PARTS) - set(args.parts):  # stays as it was in its last run
            report.records += report.earlier_records(part=part)
        if "coverage" in args.parts:
            lines = [line for name in tables for line in coverage_of(report, name, args)]
            columns = ("", *(f"{c:.0%}" for c in COVERAGES))
            report.table("Targets inside, in %", columns, lines)
        if "pinball" in args.parts:
            names = ("friedman",) if args.quick else LOSSES
            lines = [line for name in names for line in losses_of(report, name, args)]
            columns = ("", *(f"{q:.0%}" for q in QUANTILES), "mean")
            report.table("Pinball loss over that of constant quantiles", columns, lines)


if __name__ == "__main__":
    main()
