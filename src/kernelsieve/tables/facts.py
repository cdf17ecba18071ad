"""Facts about a fitted table model: scores, permutation importances, monomials, diagnostics.

They are plain numbers and texts, so that a model file can hold them.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from textwrap import wrap
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.metrics import log_loss, roc_auc_score

from kernelsieve._random import stream
from kernelsieve._state import Sizes, plain
from kernelsieve.diagnostics import KernelSample
from kernelsieve.explanation.sums import innermost
from kernelsieve.features import AutoFeatures, FeatureMap
from kernelsieve.features.adaptive import SampledFeatures
from kernelsieve.features.series import degree_masses
from kernelsieve.features.sphere import polar
from kernelsieve.kernels import SeriesKernel
from kernelsieve.kernels.series import SeriesTooLongError
from kernelsieve.models.scores import unit_of
from kernelsieve.tables.encoder import TableEncoder
from kernelsieve.tables.figures import figure
from kernelsieve.tables.monomials import ranked_monomials
from kernelsieve.tables.verdict import check_verdict, verdict_lines

DIAGNOSTIC_ROWS = 1_000
PERMUTED_ROWS, PERMUTATIONS = 500, 2
MOST_PERMUTED = 200  # columns of the table
RANKED_ROWS = 4_000
MONOMIALS = 50  # that are kept in the facts
MOST_CONFUSED = 10  # classes that a confusion matrix is shown for
SMALLEST_SHOWN = 5e-4  # of an importance: less is 0.000
MASS_TOLERANCE = 1e-6


def scores(
    y: NDArray[Any],
    predicted: NDArray[Any],
    classes: NDArray[Any] | None = None,
    chances: NDArray[Any] | None = None,
) -> dict[str, float]:
    """Compute RMSE and R2, or log loss, accuracy, mean recall and (for two classes) AUC.

    Parameters
    ----------
    y, predicted : ndarray of shape (n,)
    classes : ndarray of shape (n_classes,), optional
        The labels that the model knows; None for a regression.
    chances : ndarray of shape (n, n_classes), optional
        Their probabilities.

    Returns
    -------
    dict of str to float
    """
    if classes is None or chances is None:
        unit = unit_of(y, predicted)  # a table to predict may hold any number there
        y, predicted = y / unit, predicted.astype(np.float64) / unit
        error, spread = float(np.sqrt(np.mean(np.square(predicted - y)))), float(np.std(y))
        r2 = 1.0 - (error / spread) ** 2 if 0 < spread < np.inf else float("nan")
        return {"RMSE": unit * error, "R2": r2}
    found = {}
    known = np.isin(y, classes)
    if known.any():
        found["log loss"] = float(log_loss(y[known], chances[known], labels=classes))
    found["accuracy"] = float(np.mean(predicted == y))
    found["mean recall"] = float(np.mean([np.mean(predicted[y == c] == c) for c in np.unique(y)]))
    if len(classes) == 2 and len(np.unique(y)) == 2:
        found["AUC"] = float(roc_auc_score(y == classes[1], chances[:, 1]))
    return found


def confusion(y: NDArray[Any], predicted: NDArray[Any], classes: NDArray[Any]) -> dict[str, Any]:
    """Count the rows of each true and predicted class, for up to `MOST_CONFUSED` classes."""
    if len(classes) > MOST_CONFUSED:
        return {"labels": [], "counts": []}
    counts = [[int(np.sum((y == a) & (predicted == b))) for b in classes] for a in classes]
    return {"labels": [label_text(label) for label in classes], "counts": counts}


def label_text(label: Any) -> str:
    """A class as a text."""
    return f"{label:g}" if isinstance(label, float) else str(label)


def explanation_facts(
    model: Any, X: Any, names: NDArray[np.object_], seed: int, learned: bool
) -> dict[str, Any]:
    """Describe a fitted model: its parts, and how well its features approximate the kernel."""
    features, alpha = model.features_, float(innermost(model).alpha)
    rows = np.sort(stream(seed, "diagnostics").permutation(X.shape[0])[:DIAGNOSTIC_ROWS])
    facts: dict[str, Any] = {
        "method": _method(features),
        "reason": getattr(features, "reason_", None),
        "kernel": repr(features.kernel_),
        "alpha": alpha,
        "features": int(features.n_components_),
        "monomials": monomial_facts(model, X, names, seed),
    }
    if learned:  # the kernel itself is solved for, or nearly so
        nothing = {"diagnostic rows": 0, "statistical dimension": 0.0, "spectral epsilon": 0.0}
        return facts | nothing | {"degree mass": []}
    sample = KernelSample(features.kernel_, X[rows], alpha, X.shape[0])
    return facts | diagnostic_facts(features, sample)


def _method(features: FeatureMap) -> str:
    return type(_chosen(features)).__name__


def _chosen(features: FeatureMap) -> FeatureMap:
    return features.map_ if isinstance(features, AutoFeatures) else features


def diagnostic_facts(features: FeatureMap, sample: KernelSample) -> dict[str, Any]:
    """Compute statistical dimension, spectral epsilon and the mass of each degree on a sample."""
    series, (points, _) = None, polar(features.kernel_, sample.rows)
    if isinstance(features.kernel_, SeriesKernel):
        with suppress(SeriesTooLongError):  # the data reach too far for a Taylor series
            series = features.kernel_.series(points, MASS_TOLERANCE)
    masses = np.zeros(0) if series is None else degree_masses(series, points, None)
    epsilon = math.inf
    with suppress(ValueError):  # alpha is below the rounding of the products: it cannot be told
        epsilon = float(sample.spectral_epsilon(features.transform(sample.rows)))
    return {
        "diagnostic rows": len(sample),
        "statistical dimension": float(sample.statistical_dimension()),
        "spectral epsilon": epsilon,
        "degree mass": (masses / max(masses.sum(), 1e-300)).tolist(),
    }


def column_importances(
    model: Any, X: Any, y: NDArray[Any], encoder: TableEncoder, seed: int
) -> list[tuple[str, float]]:
    """Compute the permutation importance of each column of the table for a model, on some rows.

    Returns
    -------
    list of (str, float)
        The increase in RMSE in standard deviations of the target, or in the log loss, when the
        values of the column are shuffled; the largest first.
    """
    rows = np.sort(stream(seed, "importances").permutation(X.shape[0])[:PERMUTED_ROWS])
    X, y = X[rows], y[rows]
    if sp.issparse(X):
        X = sp.csc_array(X)
    before = _loss(model, X, y)
    found, start = [], 0
    for column in encoder.columns_[:MOST_PERMUTED]:
        places = slice(start, start + len(column.labels))
        start = places.stop
        losses = []
        for repeat in range(PERMUTATIONS):
            order = stream(seed, "shuffle", column.title, repeat).permutation(len(y))
            losses.append(_loss(model, _shuffled(X, places, order), y))
        found.append((column.title, float(np.mean(losses) - before)))
    return sorted(found, key=lambda item: -item[1])


def _shuffled(X: Any, places: slice, order: NDArray[np.int64]) -> Any:
    if not sp.issparse(X):
        X = X.copy()
        X[:, places] = X[order, places]
        return X
    parts = [X[:, : places.start], X[:, places][order], X[:, places.stop :]]
    return sp.csr_array(sp.hstack([part for part in parts if part.shape[1]], format="csr"))


def _loss(model: Any, X: Any, y: NDArray[Any]) -> float:
    X = sp.csr_array(X) if sp.issparse(X) else X
    if hasattr(model, "classes_"):
        known = np.isin(y, model.classes_)
        chances = model.predict_proba(X)[known]
        return float(log_loss(y[known], chances, labels=model.classes_)) if known.any() else 0.0
    predicted = model.predict(X)
    return float(np.sqrt(np.mean(np.square(predicted - y))) / max(np.std(y), 1e-300))


def monomial_facts(model: Any, X: Any, names: NDArray[np.object_], seed: int) -> dict[str, Any]:
    """List the most important monomials of a model of products of columns; nothing of others."""
    rows = np.sort(stream(seed, "monomials").permutation(X.shape[0])[:RANKED_ROWS])
    features = _chosen(model.features_)
    if not isinstance(features, SampledFeatures) or features.rotate_:
        return {"names": [], "coefficients": [], "importances": [], "note": ""}
    found = ranked_monomials(getattr(model, "ridge_", model), X[rows], names)
    return {
        "names": [str(name) for name in found.names[:MONOMIALS]],
        "coefficients": found.coefficients[:MONOMIALS].tolist(),
        "importances": found.importances[:MONOMIALS].tolist(),
        "note": found.note,
    }


def stored_facts(value: Any, where: str, sizes: Sizes) -> dict[str, Any]:
    """The rule of facts in a model file: the same fit gives the same file, so without times."""
    facts: dict[str, Any] = plain(dict)(value, where, sizes)
    return {name: _without_times(fact) for name, fact in facts.items() if name != "seconds"}


def _without_times(fact: Any) -> Any:
    if not isinstance(fact, dict) or not isinstance(fact.get("models"), list):
        return fact
    models = [
        {name: value for name, value in model.items() if name != "seconds"}
        if isinstance(model, dict)
        else model
        for model in fact["models"]
    ]
    return fact | {"models": models}


def check_facts(facts: Any) -> None:
    """Raise unless facts from a file can be printed and drawn."""
    numbers = ("rows", "inputs", "test rows", "alpha", "features", "diagnostic rows",
               "statistical dimension", "spectral epsilon")  # fmt: skip
    texts = ("target", "learned target", "task", "method", "kernel")
    for name in numbers:
        _check(isinstance(facts[name], int | float), name)
    for name in texts:
        _check(isinstance(facts[name], str), name)
    for name in ("scores", "baseline"):
        _check(isinstance(facts[name], dict) and _are_numbers(facts[name].values()), name)
    _check(facts["scores"].keys() == facts["baseline"].keys(), "scores")
    _check(isinstance(facts["degree mass"], list) and _are_numbers(facts["degree mass"]), "mass")
    _check(
        isinstance(facts["columns"], list)
        and all(isinstance(c, list | tuple) and len(c) == 2 for c in facts["columns"])
        and all(isinstance(n, str) and _are_numbers([v]) for n, v in facts["columns"]),
        "columns",
    )
    labels, counts = facts["confusion"]["labels"], facts["confusion"]["counts"]
    _check(isinstance(labels, list) and all(isinstance(label, str) for label in labels), "labels")
    _check(isinstance(counts, list) and len(counts) == len(labels), "counts")
    for row in counts:
        _check(isinstance(row, list) and len(row) == len(labels) and _are_numbers(row), "counts")
    check_verdict(facts["verdict"])
    found = facts["monomials"]
    lists = [found[name] for name in ("names", "coefficients", "importances")]
    _check(all(isinstance(part, list) and len(part) == len(lists[0]) for part in lists), "length")
    _check(all(isinstance(name, str) for name in lists[0]), "names")
    _check(_are_numbers([*lists[1], *lists[2]]), "coefficients")
    _check(isinstance(found["note"], str), "note")


def _check(right: bool, name: str) -> None:
    if not right:
        raise ValueError(f"{name} has the wrong type or length")


def _are_numbers(values: Any) -> bool:
    return all(isinstance(value, int | float) for value in values)


# --- words ---------------------------------------------------------------------------------------


def as_text(facts: dict[str, Any], top: int = 10, width: int = 80) -> str:
    """Format facts in lines of at most ``width`` characters.

    Parameters
    ----------
    facts : dict
        The ``facts_`` of a TableModel.
    top : int, default 10
        How many columns and monomials to list.
    width : int, default 80

    Returns
    -------
    str
    """
    parts = [summary_lines(facts), verdict_lines(facts), confusion_lines(facts)]
    parts += [column_lines(facts, top)]
    parts = [part for part in [*parts, monomial_lines(facts, top)] if part]
    return "\n\n".join("\n".join(printable(line, width) for line in part) for part in parts)


def summary_lines(facts: dict[str, Any]) -> list[str]:
    """Format what was learned, and its scores on held-out rows."""
    transformed = facts["learned target"] != facts["target"]
    lines = {
        "Model": f"{facts['task']} of {facts['target']!r}, {facts['rows']:,} rows, "
        f"{facts['inputs']:,} inputs",
        **({"Learned as": facts["learned target"]} if transformed else {}),
    }
    found = [f"{name + ':':<12}{text}".strip() for name, text in lines.items()]
    found.append(f"Scores on {facts['test rows']:,} held-out rows:")
    width = max(map(len, facts["scores"]))
    for name, value in facts["scores"].items():
        line = f"  {name:<{width}}  {figure(value):>8}"
        if name != "R2":  # that of a constant is about 0
            line += f"  (constant: {figure(facts['baseline'][name])})"
        found.append(line)
    return found


def detail_lines(facts: dict[str, Any]) -> list[str]:
    """Format what a specialist asks: the kernel, its features, and how well they approximate it."""
    lines = {
        "Kernel": _rounded(facts["kernel"]),
        "Ridge (alpha)": figure(facts["alpha"]),
        "Features": f"{facts['features']:,} ({facts['method']})",
    }
    if facts["diagnostic rows"]:
        freedom, epsilon = facts["statistical dimension"], facts["spectral epsilon"]
        on = f"estimated on {facts['diagnostic rows']:,} rows"
        lines["Effective dimension"] = f"{freedom:.0f} degrees of freedom"
        lines["Spectral error"] = f"{epsilon:.2g} (epsilon, {on})"
    if facts["degree mass"]:
        lines["Degree shares"] = _mass_text(facts["degree mass"])
    return [
        part
        for name, text in lines.items()
        for part in wrap(f"{name + ':':<21}{text}", 80, subsequent_indent=" " * 21)
    ]


def _rounded(text: str) -> str:
    """Round the numbers in a text to four digits."""
    return re.sub(r"\d+\.\d{4,}(e[-+]?\d+)?", lambda found: f"{float(found[0]):.4g}", text)


def _mass_text(masses: list[float]) -> str:
    shown = [f"{degree}: {mass:.0%}" for degree, mass in enumerate(masses) if mass >= 0.005]
    return ", ".join(shown[:6]) + (", ..." if len(shown) > 6 else "")


def column_lines(facts: dict[str, Any], top: int) -> list[str]:
    """Format the permutation importances."""
    what = "increase in RMSE, in standard deviations of the target"
    if facts["task"] == "classification":
        what = "increase in log loss"
    columns = facts["columns"]
    large = [column for column in columns if column[1] >= SMALLEST_SHOWN] or columns[:1]
    shown = [(printable(name, 40), value) for name, value in large[:top]]
    width = max([6, *(len(name) for name, _ in shown)])
    heads = [f"Permutation importance ({what})"]
    lines = [f"  {name:<{width}}  {value:8.3f}" for name, value in shown]
    if len(shown) < len(columns):
        rest = max(value for _, value in columns[len(shown) :])
        few = "less than 0.001" if rest < SMALLEST_SHOWN else f"{rest:.3f} or less each"
        lines.append(f"  ({len(columns) - len(shown):,} more: {few})")
    return heads + lines


def confusion_lines(facts: dict[str, Any]) -> list[str]:
    """Format the confusion matrix of a classifier of few classes; nothing otherwise."""
    labels = [printable(label, 12) for label in facts["confusion"]["labels"]]
    if not labels or len(labels) > 5:
        return []
    width = max(6, *map(len, labels))
    rows = [("", labels), *zip(labels, facts["confusion"]["counts"], strict=True)]
    lines = ["Confusion matrix (rows: true class, columns: predicted class)"]
    return lines + [
        f"  {label:<{width}}" + "".join(f"  {cell:>{width}}" for cell in cells)
        for label, cells in rows
    ]


def monomial_lines(facts: dict[str, Any], top: int) -> list[str]:
    """Format the monomials, with a line that says which model they belong to."""
    found = facts["monomials"]
    if not found["names"]:
        return []
    names = [printable(name, 48) for name in found["names"][:top]]
    rows = list(zip(names, found["coefficients"], found["importances"], strict=False))
    width = max([22, *map(len, names)])
    lines = [f"{'Most important monomials':<{width + 2}}  coefficient  importance"]
    lines += [f"  {name:<{width}}  {c:>11.4g}  {size:>10.4g}" for name, c, size in rows]
    lines += [
        f"({line}" if i == 0 else f" {line}" for i, line in enumerate(wrap(found["note"], 78))
    ]
    lines[-1] += ")"
    return lines


def printable(text: str, width: int = 80) -> str:
    """Make a line safe for a terminal and cut it at ``width`` characters."""
    # Names may come from a stranger's file: control characters are shown, not sent.
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text if len(text) <= width else text[: width - 1] + "…"
