"""The default model, which learns its kernel, against trees and other kernels.

    python benchmarks/learned.py tables FOLDER    # test RMSE; products or landmarks
    python benchmarks/learned.py xgpr FOLDER      # xGPR on the same tables, if it ends in time
    python benchmarks/learned.py exact FOLDER     # exact Gaussian processes, if GPyTorch is there
    python benchmarks/learned.py classes FOLDER   # log loss and accuracy
    python benchmarks/learned.py noise            # noise as target, noise columns
    python benchmarks/learned.py rules FOLDER     # likelihood, leave-one-out, fixed point
    python benchmarks/learned.py times            # seconds, beside LightGBM if it is installed
    python benchmarks/learned.py limits           # seconds with a time limit
    python benchmarks/learned.py show             # the stored errors of tables as Markdown

FOLDER holds .npz files with X, y and test_mask (a column for each split), and CSV files. wine,
forest, uji and insurance come from the datasets module. Interrupted runs resume.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _gpytorch import FAMILIES, exact_mean
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from kernelsieve import (
    AdaptiveFeatures,
    AutoFeatures,
    KernelRidgeClassifier,
    KernelRidgeCV,
    NystromFeatures,
    RowNormFeatures,
    datasets,
)
from kernelsieve.bench.methods import Settings
from kernelsieve.bench.peers import XGPR
from kernelsieve.features import FeatureMap
from kernelsieve.kernels import Product, learn
from kernelsieve.learning.candidate import adjusted

NUMERIC = (
    "airfoil,concrete,skillcraft,gas,sml,parkinsons,pumadyn32nm,bike,keggdirected,tamielectric,"
    "diamonds,wine,uji,forest"
)
PARTS = ("tables", "xgpr", "exact", "classes", "noise", "rules", "times", "limits", "show")
FEWER = 435_000
FOREST = f"forest {FEWER}"
SIZES = ("5000 x 20", "15000 x 30", "50000 x 250", "forest", FOREST)
LIMITS = (5.0, 10.0, 20.0, 40.0)
CLASSES = "insurance,titanic,penguins,forest"
TREES = ("boosting", "boosting 500", "extra trees", "LightGBM")
ALONE = ("learned", "isotropic", "boosting", "extra trees", "LightGBM", "xGPR")
PLAIN = ("adaptive 1000", "row norm 1000", "Nystrom 1000")
MAPS: dict[str, type[FeatureMap]] = dict(
    zip(
        (*PLAIN, "auto 1000"),
        (AdaptiveFeatures, RowNormFeatures, NystromFeatures, AutoFeatures),
        strict=True,
    )
)
ALPHAS = np.logspace(-7, 2, 19)
Split = tuple[Any, Any, Any, Any]


def rmse(model: Any, X: Any, y: Any) -> float:
    """Root mean square error of predictions."""
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


def table(folder: Path, name: str, split: int, rows: int) -> Split:
    """Training rows, their targets, test rows, their targets."""
    if (folder / f"{name}.npz").exists():
        data = np.load(folder / f"{name}.npz")
        X, y = data["X"].astype(np.float64), data["y"].astype(np.float64).ravel()
        test = data["test_mask"][:, split].astype(bool)
        return X[~test], y[~test], X[test], y[test]
    if name == "diamonds":
        frame = pd.read_csv(folder / "diamonds.csv.gz")
        y = frame.pop("price").to_numpy(float)
        X = pd.get_dummies(frame, dtype=float).to_numpy()
    else:
        data = datasets.load(name)
        X, y = np.asarray(data.X, dtype=np.float64), np.asarray(data.y, dtype=np.float64)
    order = np.random.default_rng(split).permutation(len(y))
    test, train = order[: len(y) // 10], order[len(y) // 10 :][:rows]
    return X[train], y[train], X[test], y[test]


def isotropic(seed: int) -> Any:
    """One width for all columns, tuned."""
    features = NystromFeatures(1000, random_state=seed)
    search = KernelRidgeCV(features, alphas=ALPHAS, gammas=np.logspace(-3, 0, 7))
    return make_pipeline(StandardScaler(), search)


def regressors(seed: int) -> dict[str, Callable[[], Any]]:
    """All models of the table that do not need the learned kernel of another; those installed."""
    found: dict[str, Callable[[], Any]] = {
        "learned": lambda: KernelRidgeCV(random_state=seed),
        "isotropic": lambda: isotropic(seed),
        "boosting": lambda: HistGradientBoostingRegressor(random_state=seed),
        "boosting 500": lambda: HistGradientBoostingRegressor(max_iter=500, random_state=seed),
        "extra trees": lambda: ExtraTreesRegressor(random_state=seed, n_jobs=-1),
    }
    if find_spec("lightgbm"):
        from lightgbm import LGBMRegressor

        found["LightGBM"] = lambda: LGBMRegressor(random_state=seed, verbose=-1)
    return found


def on_map(kind: type[FeatureMap], kernel: Any, seed: int) -> Any:
    """A ridge on 1,000 features of a kernel, alpha tuned."""
    return KernelRidgeCV(kind(1000, kernel=kernel, random_state=seed), alphas=ALPHAS)


def tables(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Test RMSE of the default model and of the others, on every split."""
    for name in args.tables or NUMERIC.split(","):
        for split in range(args.splits):
            key = {"what": "tables", "table": name, "split": split}
            models = regressors(split)
            wanted = [
                method
                for method in args.methods or [*models, *MAPS]
                if not args.done({**key, "method": method})
            ]
            if wanted:
                data = table(args.folder, name, split, args.rows)
                yield from ({**key, **one} for one in each_method(data, wanted, models, split))


def each_method(
    data: Split, wanted: list[str], models: dict[str, Callable[[], Any]], seed: int
) -> Iterator[dict[str, Any]]:
    """The error and the time of some methods; maps take the kernel that the default learns."""
    X, y, X_test, y_test = data
    learned: Any = None
    first = ["learned"] if "learned" in wanted or any(kind in MAPS for kind in wanted) else []
    for method in [*first, *(method for method in wanted if method != "learned")]:
        model = on_map(MAPS[method], learned.kernel_, seed) if method in MAPS else models[method]()
        began = time.perf_counter(), time.process_time()
        model.fit(X, y)
        found = {
            "method": method,
            "n": len(y),
            "d": X.shape[1],
            "s": time.perf_counter() - began[0],
            "cpu": time.process_time() - began[1],
            "rmse": rmse(model, X_test, y_test),
        }
        if method == "learned":
            learned = model
            found["reported"] = learned.best_rmse_
            found["kernel"] = str(learned.kernel_.families)
            found["relevances"] = strongest(learned.kernel_shares_)
        if method == "auto 1000":
            found["reason"] = model.features_.reason_
        if method in wanted:
            yield found


def strongest(relevances: NDArray[np.float64]) -> dict[str, float]:
    """The columns that matter most, and how much."""
    order = np.argsort(-relevances)[:8]
    return {str(column): round(float(relevances[column]), 4) for column in order}


def xgpr(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Test RMSE of xGPR, on every split, where it ends in time."""
    for name in args.tables or NUMERIC.split(","):
        for split in range(args.splits):
            key = {"what": "xgpr", "table": name, "split": split}
            if args.done(key):
                continue
            said, says = Pipe(duplex=False)
            began = time.perf_counter()
            child = Process(target=one_xgpr, args=(args, name, split, says))
            child.start()
            says.close()
            error = said.recv() if said.poll(args.seconds) else None
            child.kill()
            yield {**key, "xGPR": error, "xGPR s": time.perf_counter() - began}


def one_xgpr(args: argparse.Namespace, name: str, split: int, says: Connection) -> None:
    """Fit xGPR in a process of its own, which can be stopped."""
    X, y, X_test, y_test = table(args.folder, name, split, args.rows)
    model = make_pipeline(StandardScaler(), XGPR(Settings(1000, 1.0, 1.0, split)))
    says.send(rmse(model.fit(X, y), X_test, y_test))


def exact(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Exact Gaussian processes with one rate for each column, by gradients of the likelihood."""
    for name in args.tables or ["pumadyn32nm", "parkinsons"]:
        for split in range(args.splits):
            key = {"what": "exact", "table": name, "split": split}
            if args.done(key):
                continue
            X, y, X_test, y_test = table(args.folder, name, split, args.rows)
            found: dict[str, Any] = {}
            for family in FAMILIES:
                began = time.perf_counter()
                mean = exact_mean(family, X, y, X_test, split, args.steps)
                found[family] = float(np.sqrt(np.mean((mean - y_test) ** 2)))
                found[f"{family} s"] = time.perf_counter() - began
            yield {**key, **found}


def classified(folder: Path, name: str, seed: int) -> tuple[Any, Any]:
    """Rows as numbers, texts one-hot for all methods, and labels."""
    if name in ("titanic", "penguins"):
        frame = pd.read_csv(folder / f"{name}.csv").drop(columns="alive", errors="ignore")
        y = frame.pop("survived" if name == "titanic" else "species").to_numpy()
        texts = [c for c in frame if frame[c].dtype.kind not in "fiu"]
        numbers = frame.drop(columns=texts)
        frame[numbers.columns] = numbers.fillna(numbers.median())
        encoder = make_column_transformer(
            (OneHotEncoder(sparse_output=False), texts), remainder="passthrough"
        )
        return encoder.fit_transform(frame.fillna(dict.fromkeys(texts, "?"))).astype(float), y
    data = datasets.load(name)
    order = np.random.default_rng(seed).permutation(len(data.y))[:50_000]
    X = np.asarray(data.X, dtype=np.float64)
    return X[order], np.asarray(data.y)[order].astype(int)


def classes(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Log loss and accuracy of the default classifier, boosting and logistic regression."""
    for name in args.tables or CLASSES.split(","):
        for split in range(args.splits):
            key = {"what": "classes", "table": name, "split": split}
            if args.done(key):
                continue
            X, y = classified(args.folder, name, split)
            order = np.random.default_rng(split).permutation(len(y))
            test, train = order[: len(y) // 5], order[len(y) // 5 :]
            found: dict[str, Any] = {}
            for method, model in {
                "learned": KernelRidgeClassifier(random_state=split),
                "boosting": HistGradientBoostingClassifier(random_state=split),
                "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
            }.items():
                began = time.perf_counter()
                model.fit(X[train], y[train])
                found[f"{method} s"] = time.perf_counter() - began
                chance = model.predict_proba(X[test])
                found[f"{method} log loss"] = float(
                    log_loss(y[test], chance, labels=model.classes_)
                )
                found[f"{method} accuracy"] = float(model.score(X[test], y[test]))
            yield {**key, **found}


def noise(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Noise as target; and noise columns beside those that matter."""
    for n, d in ((2000, 10), (2000, 200), (20_000, 10), (20_000, 200)):
        for seed in range(args.splits):
            key = {"what": "noise", "n": n, "d": d, "seed": seed}
            if args.done(key):
                continue
            rng = np.random.default_rng(seed)
            X, y = rng.normal(size=(n + 10_000, d)), rng.normal(size=n + 10_000)
            model = KernelRidgeCV(random_state=seed).fit(X[:n], y[:n])
            test = rmse(model, X[n:], y[n:])
            constant = float(np.sqrt(np.mean((y[n:] - y[:n].mean()) ** 2)))
            # What n rows tell of the noise themselves: the best that an error can be known.
            known = float(y[:n].std())
            yield {
                **key,
                "test": test,
                "reported": model.best_rmse_,
                "constant": constant,
                "known": known,
            }
    if args.folder is None:
        return
    for split in range(args.splits):
        key = {"what": "noise columns", "split": split}
        if args.done(key):
            continue
        X, y, X_test, y_test = table(args.folder, "concrete", split, args.rows)
        rng = np.random.default_rng(split)
        wide = np.hstack([X, rng.normal(size=(len(X), 200))])
        wide_test = np.hstack([X_test, rng.normal(size=(len(X_test), 200))])
        model = KernelRidgeCV(random_state=split).fit(wide, y)
        one = isotropic(split).fit(wide, y)
        yield {
            **key,
            "learned": rmse(model, wide_test, y_test),
            "isotropic": rmse(one, wide_test, y_test),
            "relevance of noise": float(model.kernel_shares_[X.shape[1] :].sum()),
        }


def gradient_fixed_point(X: Any, y: Any, rounds: int = 6) -> Product:
    """Rates by the fixed point on gradients: r_i^2 is the mean squared slope of f along column i.

    As in recursive feature machines, with their diagonal: a Laplacian ridge with the alpha of the
    lowest leave-one-out error gives f, its mean squared slopes the next rates, whose size is kept.
    """
    scaler = StandardScaler().fit(X)
    rows, target = scaler.transform(X), y - y.mean()
    rates = np.full(rows.shape[1], 1.0 / rows.shape[1])
    for _ in range(rounds):
        gram = Product(tuple(rates), "laplacian")(rows)
        values, vectors = np.linalg.eigh(gram)
        along = vectors.T @ target
        left_out = []
        for alpha in ALPHAS:
            inverse = (vectors**2) @ (1.0 / (values + alpha))
            left_out.append(np.mean((vectors @ (along / (values + alpha)) / inverse) ** 2))
        dual = vectors @ (along / (values + ALPHAS[int(np.argmin(left_out))]))
        slopes = [
            np.mean(((gram * np.sign(column[:, None] - column)) @ dual) ** 2) * rate**2
            for column, rate in zip(rows.T, rates, strict=True)
        ]
        rates = np.sqrt(slopes) / np.sqrt(slopes).sum()
    return Product(tuple(rates / np.maximum(scaler.scale_, 1e-300)), "laplacian")


def rules(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Landmarks on kernels learned by each rule from the same rows, width and alpha by the error.

    Leave-one-out on all rows chooses the common factor of the rates for each rule.
    """
    for name in args.tables or ["airfoil", "concrete", "skillcraft", "sml", "parkinsons", "gas"]:
        for split in range(args.splits):
            key = {"what": "rules", "table": name, "split": split}
            if args.done(key):
                continue
            X, y, X_test, y_test = table(args.folder, name, split, 3000)
            found: dict[str, Any] = {}
            some = np.random.default_rng(split).permutation(len(y))[:1000]
            for rule in ("likelihood", "leave-one-out", "fixed point"):
                began = time.process_time()
                if rule == "fixed point":
                    kernel = gradient_fixed_point(X[some], y[some])
                else:
                    kernel = learn(
                        X[some], y[some], rule=rule, n_rows=1000, random_state=split
                    ).kernel
                found[f"{rule} cpu"] = time.process_time() - began
                widths = [adjusted(kernel, factor, 0.0) for factor in (0.25, 0.5, 1.0, 2.0, 4.0)]
                models = [
                    KernelRidgeCV(
                        NystromFeatures(1000, kernel=width, random_state=split), alphas=ALPHAS
                    ).fit(X, y)
                    for width in widths
                ]
                best = min(models, key=lambda model: model.best_rmse_)
                found[rule] = rmse(best, X_test, y_test)
            yield {**key, **found}


def compiled() -> None:
    """Fit an exact kernel and features once, so that nothing is compiled later."""
    rng = np.random.default_rng(0)
    for n in (400, 6100):
        X = rng.normal(size=(n, 3)).astype(np.float32)
        KernelRidgeCV(random_state=0).fit(X, np.sin(2 * X[:, 0]))


def sized(name: str) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Rows and targets: made up in a size such as "5000 x 20", or forest."""
    if name.startswith("forest"):
        data = datasets.load("forest")
        n = FEWER if name == FOREST else len(data.y)
        return np.asarray(data.X[:n], dtype=np.float32), np.asarray(data.y[:n], dtype=np.float64)
    n, d = (int(part) for part in name.split(" x "))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + X[:, 2] ** 2 + 0.3 * rng.normal(size=n)


def times(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Seconds of the default fit, everything compiled."""
    compiled()
    for name in args.tables or SIZES:
        key = {"what": "times", "table": name}
        if args.done(key):
            continue
        X, y = sized(name)
        found: dict[str, Any] = {"n": len(y), "d": X.shape[1]}
        models: dict[str, Any] = {"learned": KernelRidgeCV(random_state=0)}
        if find_spec("lightgbm"):
            from lightgbm import LGBMRegressor

            models["LightGBM"] = LGBMRegressor(random_state=0, verbose=-1)
        for method, model in models.items():
            began = time.perf_counter(), time.process_time()
            model.fit(X, y)
            found[f"{method} s"] = time.perf_counter() - began[0]
            found[f"{method} cpu"] = time.process_time() - began[1]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        yield {**key, **found, "peak GiB": peak}


def limits(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Seconds of the default fit with a time limit, over the limit."""
    compiled()
    for name in args.tables or SIZES:
        for limit in LIMITS:
            key = {"what": "limits", "table": name, "limit": limit}
            if args.done(key):
                continue
            X, y = sized(name)
            began = time.perf_counter()
            model = KernelRidgeCV(time_limit=limit, random_state=0).fit(X, y)
            seconds = time.perf_counter() - began
            reported = model.best_rmse_ / float(y.std())
            yield {**key, "s": seconds, "of the limit": seconds / limit, "reported": reported}


def show(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Print the table of errors as the documentation has it: means over the splits of a method."""
    found: dict[tuple[str, str], list[float]] = {}
    rows: dict[str, int] = {}
    for record in args.known:
        if record["what"] == "tables":
            found.setdefault((record["table"], record["method"]), []).append(record["rmse"])
            rows.setdefault(record["table"], record["n"])
        if record["what"] == "xgpr" and record["xGPR"] is not None:
            found.setdefault((record["table"], "xGPR"), []).append(record["xGPR"])
    columns: dict[str, tuple[str, ...]] = {
        "learned": ("learned",),
        "1,000 features: products / landmarks / automatic": (
            "adaptive 1000",
            "Nystrom 1000",
            "auto 1000",
        ),
        "one width": ("isotropic",),
        "boosting, 100 / 500 iterations": ("boosting", "boosting 500"),
        "extremely randomised trees": ("extra trees",),
        "LightGBM": ("LightGBM",),
        "xGPR": ("xGPR",),
    }
    print("| table | rows | splits | " + " | ".join(columns) + " |")
    print("| --- | ---: | ---: |" + " ---: |" * len(columns))
    for name in NUMERIC.split(","):
        splits = max(len(found.get((name, m), [])) for m in ("learned", "LightGBM"))
        cells = [name, f"{rows[name]:,}", str(splits)]
        means = {m: float(np.mean(found[name, m])) for m in ALONE if (name, m) in found}
        for methods in columns.values():
            cells.append(" / ".join(cell(found.get((name, m), []), splits) for m in methods))
            if methods[0] == min(means, key=lambda m: means[m]):
                cells[-1] = f"**{cells[-1]}**"
        print("| " + " | ".join(cells) + " |")
    yield from ()


def cell(errors: list[float], splits: int) -> str:
    """The mean, with the number of splits if they are fewer."""
    if not errors:
        return "-"
    mean = np.format_float_positional(np.mean(errors), 4, fractional=False, trim="-")
    return mean.removeprefix("0") + (f" ({len(errors)})" if len(errors) < splits else "")


def main() -> None:
    """Print a line for every result, and store it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=PARTS)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--tables", type=lambda text: text.split(","))
    parser.add_argument("--methods", type=lambda text: text.split(","), help="of tables")
    parser.add_argument("--again", action="store_true", help="forget the records asked for")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--steps", type=int, default=10, help="of Adam on all rows")
    parser.add_argument("--seconds", type=float, default=600.0, help="for one fit of xGPR")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/learned.jsonl"))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    lines = args.out.read_text().splitlines() if args.out.exists() else []
    known = [json.loads(line) for line in lines]
    if args.again:
        known = [record for record in known if not asked_for(record, args)]
        args.out.write_text("".join(json.dumps(record) + "\n" for record in known))
    args.known = known
    args.done = lambda key: any(key.items() <= record.items() for record in known)
    for record in globals()[args.what](args):
        known.append(record)
        with args.out.open("a") as out:
            out.write(json.dumps(record) + "\n")
        shown = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in record.items())
        print(", ".join(shown), flush=True)
    records = [record for record in known if record["what"] == args.what]
    (compare_methods if args.what == "tables" else summarise)(records)


def asked_for(record: dict[str, Any], args: argparse.Namespace) -> bool:
    """Whether this run is about a record."""
    return (
        record["what"] == args.what
        and (not args.tables or record.get("table") in args.tables)
        and (not args.methods or record.get("method") in args.methods)
    )


def compare_methods(records: list[dict[str, Any]]) -> None:
    """Mean errors over the splits that all methods of a table have, and ratios over tables."""
    ratios = []
    for name in NUMERIC.split(","):
        errors: dict[str, dict[int, float]] = {}
        for record in records:
            if record["table"] == name:
                errors.setdefault(record["method"], {})[record["split"]] = record["rmse"]
        splits = sorted(set.intersection(*(set(one) for one in errors.values()))) if errors else []
        if not splits:
            continue
        means = {method: np.mean([one[k] for k in splits]) for method, one in errors.items()}
        line = ", ".join(f"{method} {mean:.4g}" for method, mean in means.items())
        if set(TREES) & set(errors) and "learned" in errors:
            trees = [errors[tree] for tree in TREES if tree in errors]
            ratio = np.mean(
                [np.log(errors["learned"][k] / min(tree[k] for tree in trees)) for k in splits]
            )
            ratios.append(ratio)
            line += f"; log(learned / best trees) {ratio:+.3f}"
        if set(MAPS) <= set(errors):
            # Of means, where one split of few rows is less of chance.
            best = min(means[kind] for kind in PLAIN)
            line += f"; automatic / best map {means['auto 1000'] / best:.3f}"
        print(f"{name} ({len(splits)} splits): {line}")
    if ratios:
        print(
            f"log(RMSE / best trees) over {len(ratios)} tables: mean {np.mean(ratios):+.3f}, "
            f"median {np.median(ratios):+.3f}"
        )


def summarise(records: list[dict[str, Any]]) -> None:
    """Means over splits."""
    names = sorted({record.get("table", "") for record in records})
    for name in names:
        group = [record for record in records if record.get("table", "") == name]
        means = {
            field: np.mean([record[field] for record in group])
            for field, value in group[0].items()
            if isinstance(value, float) and all(field in record for record in group)
        }
        print(f"{name} ({len(group)}): " + ", ".join(f"{k} {v:.4g}" for k, v in means.items()))


if __name__ == "__main__":
    main()
