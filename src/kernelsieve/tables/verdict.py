"""The verdict on a model: simple and usual models on the same rows set aside."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV

from kernelsieve._progress import duration
from kernelsieve._random import stream
from kernelsieve.tables.encoder import TableEncoder
from kernelsieve.tables.figures import figure
from kernelsieve.tables.learned import LINEAR_ALPHAS
from kernelsieve.tables.table import Table

BOOTSTRAPS = 1_000
NO_ERROR = 0.01  # share of a constant's log loss: below, the classes are as good as known
INTERVAL = 0.9
MOST_CATEGORIES = 254  # that gradient boosting can hold; the rarest of more count as missing
SMALLEST_CHANCE = 1e-15
ONE_PER_CENT = 0.01  # smaller differences within the noise are not worth a number


def constant_losses(y_train: NDArray[Any], y_test: NDArray[Any], task: str) -> NDArray[np.float64]:
    """The losses of the mean, or of the shares of the classes."""
    if task == "regression":
        return row_losses(np.full(len(y_test), y_train.mean()), None, y_test)
    classes, counts = np.unique(y_train, return_counts=True)
    chances = np.tile(counts / counts.sum(), (len(y_test), 1))
    return row_losses(chances, classes, y_test)


def row_losses(
    answers: NDArray[Any], classes: NDArray[Any] | None, y: NDArray[Any]
) -> NDArray[np.float64]:
    """Squared errors, or minus the logarithms of the probabilities of the true classes."""
    if classes is None:
        return np.square(np.asarray(answers, dtype=np.float64) - y)
    places = np.searchsorted(classes, y).clip(0, len(classes) - 1)
    chance = np.where(classes[places] == y, answers[np.arange(len(y)), places], 0.0)
    return -np.log(np.maximum(chance, SMALLEST_CHANCE))


def compared(
    table: Table,
    y: NDArray[Any],
    split: tuple[NDArray[np.int64], NDArray[np.int64]],
    encoder: TableEncoder,
    matrices: tuple[Any, Any],
    ours: tuple[NDArray[np.float64], float],
    task: str,
    seed: int,
) -> dict[str, Any]:
    """Compare the losses of a model with those of a constant, a linear model and boosted trees.

    Parameters
    ----------
    table : Table
    y : ndarray of shape (n,)
    split : pair of ndarray of int
        Rows to learn from, and rows that judge.
    encoder : TableEncoder
        Fitted to the rows to learn from.
    matrices : pair of matrices
        Both parts of the table, encoded: the inputs of the linear model.
    ours : (ndarray of shape (n_test,), float)
        Losses of the model on the rows that judge, and the seconds it took.
    task : "regression" or "classification"
    seed : int

    Returns
    -------
    dict
        "models": name, error, low, high and seconds of each; "interval": the probability of the
        intervals; "sentence": the verdict in words.
    """
    train, test = split
    losses = {"constant": (constant_losses(y[train], y[test], task), 0.0)}
    linear: Any = RidgeCV(LINEAR_ALPHAS)
    trees: Any = HistGradientBoostingRegressor(random_state=seed % 2**32)
    if task == "classification":
        linear = LogisticRegression(max_iter=1_000)
        trees = HistGradientBoostingClassifier(random_state=seed % 2**32)
    losses["linear"] = _timed(linear, *matrices, y[train], y[test])
    if encoder.matrix_columns_ == 0:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # notes on the table were given already
            typed, is_category = encoder.typed(table)
        _limit_categories(typed, is_category, train)
        trees.set_params(categorical_features=is_category)
        losses["gradient boosting"] = _timed(trees, typed[train], typed[test], y[train], y[test])
    losses["this model"] = ours
    return summary({n: v for n, (v, _) in losses.items()}, {n: s for n, (_, s) in losses.items()},
                   task, seed)  # fmt: skip


def _timed(
    model: Any, X_train: Any, X_test: Any, y_train: NDArray[Any], y_test: NDArray[Any]
) -> tuple[NDArray[np.float64], float]:
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a baseline that does not converge is one
        model.fit(X_train, y_train)
    classes = getattr(model, "classes_", None)
    answers = model.predict(X_test) if classes is None else model.predict_proba(X_test)
    return row_losses(answers, classes, y_test), time.perf_counter() - start


def _limit_categories(
    X: NDArray[np.float64], is_category: NDArray[np.bool_], train: NDArray[np.int64]
) -> None:
    for i in np.flatnonzero(is_category):
        known = X[train, i]
        levels, counts = np.unique(known[~np.isnan(known)], return_counts=True)
        kept = np.sort(levels[np.argsort(-counts, kind="stable")[:MOST_CATEGORIES]])
        places = np.searchsorted(kept, X[:, i]).clip(0, len(kept) - 1)
        X[:, i] = np.where(kept[places] == X[:, i], places, np.nan)


def summary(
    losses: dict[str, NDArray[np.float64]], seconds: dict[str, float], task: str, seed: int
) -> dict[str, Any]:
    """Errors with bootstrap intervals, and a sentence; the last of the models is ours."""
    error: Callable[[Any], Any] = np.sqrt if task == "regression" else np.asarray
    n = len(losses["constant"])
    # The same draws for all models: differences are then compared on the same rows.
    draws = stream(seed, "bootstrap").multinomial(n, np.full(n, 1.0 / n), size=BOOTSTRAPS) / n
    sampled = {name: error(draws @ values) for name, values in losses.items()}
    tails = [50.0 * (1.0 - INTERVAL), 50.0 * (1.0 + INTERVAL)]
    models: list[dict[str, Any]] = []
    for name, values in losses.items():
        low, high = np.percentile(sampled[name], tails)
        models.append({"name": name, "error": float(error(values.mean())), "low": float(low),
                       "high": float(high), "seconds": float(seconds[name])})  # fmt: skip
    ours, others = models[-1], models[1:-1]
    best = min(others, key=lambda model: model["error"])
    sentence = _sentence(ours, best, models[0], sampled, tails)
    if (
        task == "classification"
        and max(ours["error"], best["error"]) < NO_ERROR * models[0]["error"]
    ):
        sentence = (
            f"This model and {_article(best['name'])} both predict the classes almost without "
            "error: check whether a column gives the target away."
        )
    return {"models": models, "interval": INTERVAL, "sentence": sentence}


def _sentence(
    ours: dict[str, Any],
    best: dict[str, Any],
    constant: dict[str, Any],
    sampled: dict[str, NDArray[np.float64]],
    tails: list[float],
) -> str:
    def gain(better: dict[str, Any], worse: dict[str, Any]) -> tuple[float, float, float]:
        """By what share the error of one is smaller, with an interval."""
        ratios = 1.0 - sampled[better["name"]] / np.maximum(sampled[worse["name"]], 1e-300)
        low, high = np.percentile(ratios, tails)
        return 1.0 - better["error"] / max(worse["error"], 1e-300), float(low), float(high)

    winner = min(ours, best, key=lambda model: model["error"])
    if gain(winner, constant)[1] <= 0.0:
        share, low, high = gain(constant, ours)
        little = "these columns say little about the target."
        if low > 0.0:
            return (
                f"A constant is {share:.0%} better than this model ({low:.0%} to {high:.0%}), and "
                f"no model is clearly better than a constant: {little}"
            )
        return f"No model is clearly better than a constant: {little}"
    alike = (
        f"This model and {_article(best['name'])} cannot be told apart on these rows: take "
        "whichever you prefer."
    )
    if ours["error"] <= best["error"]:
        share, low, high = gain(ours, best)
        if low <= 0.0:
            return alike
        return (
            f"This model has {_a(share)} {share:.0%} smaller error than {_article(best['name'])} "
            f"({low:.0%} to {high:.0%})."
        )
    share, low, high = gain(best, ours)
    name = _article(best["name"])
    if low <= 0.0 and share < ONE_PER_CENT:
        return alike
    if low <= 0.0:
        return (
            f"{name[0].upper()}{name[1:]} is {share:.0%} better here, but the difference is within "
            "the noise of these rows."
        )
    return (
        f"{name[0].upper()}{name[1:]} is {share:.0%} better on this table ({low:.0%} to "
        f"{high:.0%}): use it, unless you need what only this model has (standard deviations, an "
        "exact explanation)."
    )


def _a(share: float) -> str:
    """The article of a percentage: an 8%, an 11%, an 18%."""
    text = f"{share:.0%}"
    return "an" if text[0] == "8" or text in ("11%", "18%") else "a"


def _article(name: str) -> str:
    return "a linear model" if name == "linear" else name


def check_verdict(found: Any) -> None:
    """Raise unless a verdict from a file can be printed."""
    right = isinstance(found["sentence"], str) and isinstance(found["interval"], float)
    for model in found["models"]:
        numbers = [model[name] for name in ("error", "low", "high", "seconds")]
        right = right and isinstance(model["name"], str)
        right = right and all(isinstance(value, int | float) for value in numbers)
    if not right:
        raise ValueError("verdict has the wrong type")


def verdict_lines(facts: dict[str, Any]) -> list[str]:
    """Format a verdict in lines of at most 80 characters; nothing if there is none."""
    found = facts["verdict"]
    if not found["models"]:
        return []
    what = "RMSE" if facts["task"] == "regression" else "Log loss"
    heading = f"{what} on {facts['test rows']:,} held-out rows"
    share = f"{found['interval']:.0%} interval"
    lines = [f"{heading:<34}{'error':>10}  {share:<22}{'time':>8}"]
    for model in found["models"]:
        interval = f"{figure(model['low'])} to {figure(model['high'])}"
        took = duration(model["seconds"])
        lines.append(f"  {model['name']:<32}{figure(model['error']):>10}  {interval:<22}{took:>8}")
    return [*lines, *wrap(found["sentence"], 80)]
