"""Random tables of numbers, texts, dates and holes: a file must say what ``predict`` says.

``python tests/fuzz_onnx.py --cases 200`` runs many; `test_fuzz.py` a few.
"""

from __future__ import annotations

import argparse
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve import TableModel
from kernelsieve.export import ExportNotice, export_onnx
from kernelsieve.tables.table import TableError, TableNotice, as_table
from kernelsieve.tables.times import seconds_of

LIMIT = 1e-5  # of the target's deviation
N_ONE_BY_ONE = 15  # rows that the predictor of one row takes, too
METHODS = ("adaptive", "row-norm", "nystrom", "fourier", "auto")
WORDS: tuple[str, ...] = (
    "WD", "wd", "Ulm", "New York", "New  York", "Köln", "Ko\u0308ln", "ÅS", "ß", "ſ", "İzmir",
    "日本", "🏠", "a.b", "a+b*", "(x)", "[y]", "{2}", "^", "$5 a", "|", "\\d", "\\", "'", '"',
    "a,b", "a;b", "None of these", "nano", "n", "NaN-like", "-", "?!", "1", "1.0", "01", "2.50",
    "1e3", "True", "false", "(other)", "(missing)", "x\ty", "x\ny", "x\u00a0y", "\u200b",
    "a" * 300, "#", "0",
)  # fmt: skip
AROUND = ("{}", "{}", "{}", "{}", " {}", "{} ", "\t{}", "{}\n", "\u00a0{}\u3000", "{}\x1f")
NOTHING = ("", " ", "NA", "n/a", " NULL ", "nan", "?", "<NA>")
STARTS = ("1901-03-01", "1969-12-25", "1999-12-31", "2019-01-01", "2024-02-28")

Column = tuple[Any, Any]  # as a table has it, and as a file takes it


def numbers(rng: np.random.Generator, n: int, holes: float) -> Column:
    """Numbers of many sizes, as floats, whole numbers or truth values."""
    kind = rng.integers(6)
    values = rng.normal(size=n)
    if kind == 1:
        values = np.exp(3.0 * values)
    elif kind == 2:
        values = 1e6 + values
    elif kind == 3:
        values = np.round(3.0 * values)
    elif kind == 4:
        values = (values > 0).astype(float)
    elif kind == 5:
        values *= 10.0 ** rng.integers(-30, 30)
    values = np.where(rng.random(n) < holes, np.nan, values)
    if kind in (3, 4) and not np.isnan(values).any():
        return values.astype(bool if kind == 4 else np.int64), values
    if rng.random() < 0.3:
        return [None if v != v else v for v in values.tolist()], values
    return values, values


def texts(rng: np.random.Generator, n: int, holes: float, levels: list[str]) -> Column:
    """Categories with spaces around them, texts for "no value", and texts that are new."""
    words = [AROUND[rng.integers(len(AROUND))].format(levels[rng.integers(len(levels))])
             for _ in range(n)]  # fmt: skip
    given: list[Any] = [
        (None if rng.random() < 0.5 else NOTHING[rng.integers(len(NOTHING))])
        if rng.random() < holes else word for word in words
    ]  # fmt: skip
    return given, np.array(["" if v is None else v for v in given], dtype=object)


def codes(rng: np.random.Generator, n: int, holes: float, as_texts: bool) -> Column:
    """Whole numbers that are texts in training, and may be numbers later."""
    values = [None if rng.random() < holes else int(v) for v in rng.integers(0, 9, n)]
    told = ["" if v is None else str(v) for v in values]
    if as_texts:
        return [None if v is None else str(v) for v in values], np.array(told, dtype=object)
    return values, np.array(told, dtype=object)


def times(rng: np.random.Generator, n: int, holes: float, start: str, days: float) -> Column:
    """Dates, or times with microseconds and zones."""
    whole = rng.random() < 0.3
    unit = "D" if whole else "us"
    span = 2 + int(days if whole else days * 86_400e6)
    moments = np.datetime64(start, unit) + rng.integers(0, span, n).astype(f"timedelta64[{unit}]")
    zone = "" if whole or rng.random() < 0.7 else "+02:00"
    given = [None if rng.random() < holes else f"{moment}{zone}" for moment in moments]
    seconds = [np.nan if v is None else seconds_of(v) for v in given]
    return given, np.array(seconds, dtype=np.float64)


def makers(rng: np.random.Generator) -> dict[str, Callable[..., Column]]:
    """Columns by name: functions of a generator, a number of rows, and whether they are new."""
    found: dict[str, Callable[..., Column]] = {}
    for i in range(int(rng.integers(1, 6))):
        kind, holes = rng.integers(4), float(rng.choice([0.0, 0.05, 0.4]))
        words = rng.permutation(WORDS)[: rng.integers(2, len(WORDS))].tolist()
        if rng.random() < 0.1:
            words += [f"level {j}" for j in range(300)]
        start, days = str(rng.choice(STARTS)), float(rng.choice([0.5, 20.0, 3000.0]))
        every: tuple[Callable[..., Column], ...] = (
            lambda r, n, new, h=holes: numbers(r, n, h),
            lambda r, n, new, h=holes, w=words: texts(r, n, h, [*w, *WORDS] if new else w),
            lambda r, n, new, h=holes: codes(r, n, h, not new),
            lambda r, n, new, h=holes, s=start, d=days: times(r, n, h, s, d),
        )
        found[f"column {i}"] = every[kind]
    found["amount"] = lambda r, n, new: numbers(r, n, 0.0)
    return found


def fitted(rng: np.random.Generator, columns: dict[str, Any], n: int) -> tuple[TableModel, float]:
    """A small model of a table, for numbers or classes, and the deviation of its target."""
    y = rng.normal(size=n)
    target: NDArray[Any] = y * 10.0 ** rng.integers(-3, 4)
    for name in columns:
        values = as_table({name: columns[name]}).columns[name]
        if values.dtype.kind == "O":
            kept = list(dict.fromkeys(values.tolist()))
            target = target + np.array([kept.index(v) % 5 for v in values.tolist()])
    options: dict[str, Any] = {"baselines": False}
    if rng.random() < 0.8:
        method = str(rng.choice(METHODS))
        options |= {"method": method, "n_components": 15, "gamma": 0.1, "alpha": 0.1}
    deviation = float(target.std())
    if rng.random() < 0.3:
        third = np.digitize(target, np.quantile(target, [0.3, 0.7]))
        target, deviation = np.array(["low", "mid", "high"])[third], 1.0
    return TableModel("target", **options).fit({**columns, "target": target}), deviation


def difference(rng: np.random.Generator, folder: Path) -> tuple[float, str]:
    """How far a file is from its model, over the deviation of the target, and of what they are."""
    from onnxruntime import InferenceSession

    n, n_new = int(rng.integers(60, 200)), 40
    made = makers(rng)
    model, deviation = fitted(rng, {name: make(rng, n, False)[0] for name, make in made.items()}, n)
    dtype = str(rng.choice(["float32", "float64"]))
    path = folder / "model.onnx"
    export_onnx(model, path, dtype=dtype)
    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    table, inputs = {}, {}
    for name, make in made.items():
        given, taken = make(rng, n_new, True)
        kind = {each.name: each.type for each in session.get_inputs()}.get(name)
        if kind == "tensor(float)":  # both see the same numbers
            taken = np.asarray(taken, dtype=np.float32)
            given = taken.astype(np.float64)
        table[name] = given
        if kind is not None:
            inputs[name] = taken
    found = session.run(None, inputs)[-1].astype(np.float64)
    classes = model.task_ == "classification"
    expected = model.predict_proba(table) if classes else model.predict(table)
    predictor = model.predictor()
    one = predictor.probabilities if classes else predictor
    rows = [{name: values[i] for name, values in table.items()} for i in range(N_ONE_BY_ONE)]
    alone = np.array([one(row) for row in rows])
    far = max(np.abs(found - expected).max(), np.abs(alone - expected[:N_ONE_BY_ONE]).max())
    return float(far) / deviation, dtype


def run(cases: int, seed: int, first: int = 0) -> Counter[str]:
    """Run cases; prints those that are wrong."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for case in range(first, first + cases):
            rng = np.random.default_rng([seed, case])
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    for kind in (TableNotice, ExportNotice):
                        warnings.simplefilter("ignore", kind)
                    far, what = difference(rng, Path(folder))
            except TableError as error:
                counts["refused"] += 1
                print(f"case {case}: refused: {error}")
                continue
            except Exception:
                counts["WRONG"] += 1
                print(f"case {case}:\n{traceback.format_exc()}")
                continue
            counts["compared"] += 1
            if not far <= LIMIT:
                counts["WRONG"] += 1
                print(f"case {case}: {far:.2e} in {what}")
    return counts


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    counts = run(given.cases, given.seed, given.first)
    print(dict(counts))
    return 1 if counts["WRONG"] else 0
