"""Tables of numbers, categories, times and missing values: the default beside usual models.

``KERNELSIEVE_DATA=... python benchmarks/mixed_tables.py`` fits ``TableModel`` with default options
to public tables (taxis, titanic, diamonds, mpg, penguins of the seaborn collection), which it looks
for in the folder ``tables``. On the same rows set aside it prints the error (RMSE or log loss) of a
constant, a linear model on the same inputs, and HistGradientBoosting with its own categories.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path

from kernelsieve import TableModel

TABLES = {  # file, target, columns that would give it away
    "taxis": ("taxis.csv", "fare", ["tip", "tolls", "total"]),
    "titanic": ("titanic.csv", "survived", ["alive"]),
    "diamonds": ("diamonds.csv.gz", "price", []),
    "mpg": ("mpg.csv", "mpg", []),
    "penguins": ("penguins.csv", "species", []),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--seeds", type=int, default=1, help="splits of each table")
    arguments = parser.parse_args()
    folder = Path(os.environ.get("KERNELSIEVE_DATA", ".")) / "tables"
    print(f"{'table':<10}{'seed':>5}{'constant':>10}{'linear':>10}{'boosting':>10}{'ours':>10}"
          f"{'ratio':>8}{'time':>9}")  # fmt: skip
    for name in arguments.tables.split(","):
        file, target, drop = TABLES[name]
        for seed in range(arguments.seeds):
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = TableModel(target, drop=drop, baselines=True, random_state=seed)
                facts = model.fit(folder / file).facts_
            errors = [each["error"] for each in facts["verdict"]["models"]]
            took = time.perf_counter() - start
            print(f"{name:<10}{seed:>5}" + "".join(f"{error:>10.4g}" for error in errors)
                  + f"{errors[-1] / min(errors[1:-1]):>8.3f}{took:>8.0f}s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
