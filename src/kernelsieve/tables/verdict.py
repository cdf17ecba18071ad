"""The verdict on a model: simple and usual models on the same rows set aside."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm as normal
from scipy.stats import rankdata
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from threadpoolctl import threadpool_limits

from kernelsieve._parallel import thread_count
from kernelsieve._progress import duration
from kernelsieve._random import stream
from kernelsieve.learning.judge import Split
from kernelsieve.learning.linear_part import ALPHAS
from kernelsieve.tables.encoder import TableEncoder
from kernelsieve.tables.figures import figure
from kernelsieve.tables.predictions import Answers, constant_answers, joined
from kernelsieve.tables.table import Table

BOOTSTRAPS = 1_000
NO_ERROR = 0.01  # share of a constant's log loss: below, the classes are as good as known
INTERVAL = 0.9
MOST_CATEGORIES = 254  # that gradient boosting can hold; the rarest of more count as missing
SMALLEST_CHANCE = 1e-15
SURE = 0.95  # of a verdict that columns say something, where they say nothing
LITTLE = 0.05  # share of the error of a constant: columns that surely save less say little
ONE_PER_CENT = 0.01  # smaller differences within the noise are not worth a number


def row_losses(answers: Answers, y: NDArray[Any]) -> NDArray[np.float64]:
    """Squared errors, or minus the logarithms of the probabilities of the true classes."""
    classes, chances = answers.classes, answers.chances
    if classes is None or chances is None:
        return np.square(np.asarray(answers.predicted, dtype=np.float64) - y)
    places = np.searchsorted(classes, y).clip(0, len(classes) - 1)
    chance = np.where(classes[places] == y, chances[np.arange(len(y)), places], 0.0)
    return -np.log(np.maximum(chance, SMALLEST_CHANCE))


def compared(
    table: Table,
    X: Any,
    y: NDArray[Any],
    encoder: TableEncoder,
    splits: Sequence[Split],
    ours: tuple[Answers, float],
    task: str,
    seed: int,
    n_jobs: int | None = None,
) -> dict[str, Any]:
    """Compare the losses of a model with those of a constant, a linear model and boosted trees.

    Parameters
    ----------
    table : Table
    X : matrix of shape (n, d)
        The table, encoded: the inputs of the linear model.
    y : ndarray of shape (n,)
    encoder : TableEncoder
    splits : sequence of Split
        Rows to learn from, and rows that judge; several are folds.
    ours : (Answers, float)
        Answers of the model on the rows that judge, in ascending order, and the seconds it took.
    task : "regression" or "classification"
    seed : int
    n_jobs : int, default all cores
        Threads of the other models, too.

    Returns
    -------
    dict
        "models": name, error, low, high and seconds of each; "interval": the probability of the
        intervals; "sentence": the verdict in words.
    """
    judged = np.concatenate([split.judge for split in splits])
    truth = y[np.sort(judged)]
    found = {"constant": _on_splits(None, X, y, splits, task, n_jobs)}
    found["linear"] = _on_splits(_linear(task), X, y, splits, task, n_jobs)
    if encoder.matrix_columns_ == 0:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # notes on the table were given already
            typed, is_category = encoder.typed(table)
        _limit_categories(typed, is_category, splits[0].choose)
        trees = _trees(task, seed).set_params(categorical_features=is_category)
        found["gradient boosting"] = _on_splits(trees, typed, y, splits, task, n_jobs)
    found["this model"] = ours
    losses = {name: row_losses(one, truth) for name, (one, _) in found.items()}
    seconds = {name: took for name, (_, took) in found.items()}
    classes, ranking = ours[0].classes, None
    if classes is not None and len(classes) == 2:
        chances = {
            name: one.chances[:, 1]
            for name, (one, _) in found.items()
            if one.chances is not None and name != "constant"
        }
        ranking = Ranking(truth == classes[1], chances)
    return summary(losses, seconds, task, seed, ranking)


def _linear(task: str) -> Any:
    return RidgeCV(ALPHAS) if task == "regression" else LogisticRegression(max_iter=1_000)


def _trees(task: str, seed: int) -> Any:
    kinds = {
        "regression": HistGradientBoostingRegressor,
        "classification": HistGradientBoostingClassifier,
    }
    return kinds[task](random_state=seed % 2**32)


def _on_splits(
    model: Any, X: Any, y: NDArray[Any], splits: Sequence[Split], task: str, n_jobs: int | None
) -> tuple[Answers, float]:
    """Answers on the rows that judge, in ascending order, and seconds; None is a constant."""
    start = time.perf_counter()
    parts = [_fitted_answers(model, X, y, split, task, n_jobs) for split in splits]
    order = np.argsort(np.concatenate([split.judge for split in splits]))
    answers = joined(parts, np.unique(y) if task == "classification" else None, order)
    return answers, time.perf_counter() - start if model is not None else 0.0


def _fitted_answers(
    model: Any, X: Any, y: NDArray[Any], split: Split, task: str, n_jobs: int | None
) -> Answers:
    if model is None:
        return constant_answers(y[split.choose], task, len(split.judge))
    with threadpool_limits(thread_count(n_jobs)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a baseline that does not converge is one
        fitted = clone(model).fit(X[split.choose], y[split.choose])
    return Answers.of_model(fitted, X[split.judge])


def _limit_categories(
    X: NDArray[np.float64], is_category: NDArray[np.bool_], train: NDArray[np.int64]
) -> None:
    for i in np.flatnonzero(is_category):
        known = X[train, i]
        levels, counts = np.unique(known[~np.isnan(known)], return_counts=True)
        kept = np.sort(levels[np.argsort(-counts, kind="stable")[:MOST_CATEGORIES]])
        places = np.searchsorted(kept, X[:, i]).clip(0, len(kept) - 1)
        X[:, i] = np.where(kept[places] == X[:, i], places, np.nan)


@dataclass(frozen=True)
class Ranking:
    """How models rank the rows of two classes.

    Attributes
    ----------
    positive : ndarray of bool of shape (n,)
    chances : dict of str to ndarray of shape (n,)
        The probability of the positive class by each model.
    """

    positive: NDArray[np.bool_]
    chances: Mapping[str, NDArray[np.float64]]

    def area(self, name: str) -> tuple[float, float]:
        """The area under the ROC curve of a model, and its standard error (DeLong 1988)."""
        above, below = self.chances[name][self.positive], self.chances[name][~self.positive]
        if len(above) < 2 or len(below) < 2:
            return 0.5, np.inf
        ranks = rankdata(np.concatenate([above, below]))
        won = (ranks[: len(above)] - rankdata(above)) / len(below)
        lost = (ranks[len(above) :] - rankdata(below)) / len(above)
        variance = won.var(ddof=1) / len(above) + lost.var(ddof=1) / len(below)
        # Perfect rankings of a few rows vary, too, though none of these rows shows it.
        least = 1.0 / (12.0 * len(above) * len(below))
        return float(won.mean()), float(np.sqrt(max(variance, least)))


def summary(
    losses: Mapping[str, NDArray[np.float64]],
    seconds: Mapping[str, float],
    task: str,
    seed: int,
    ranking: Ranking | None = None,
) -> dict[str, Any]:
    """Errors with bootstrap intervals, and a sentence.

    Parameters
    ----------
    losses : mapping of str to ndarray of shape (n,)
        Of a constant, of usual models and of ours, in this order, at the same rows: rows set aside,
        or all rows, each by models of folds without it (the mean over repetitions).
    seconds : mapping of str to float
    task : "regression" or "classification"
    seed : int
    ranking : Ranking, optional
        Of two classes. Ranks may be clear where probabilities are not.

    Returns
    -------
    dict
        As of `compared`.
    """
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
    gain = _Gains(sampled, tails)
    if not says_something(losses, ranking):
        sentence = _nothing(models, gain, n)
    elif task == "classification" and (
        max(ours["error"], best["error"]) < NO_ERROR * models[0]["error"]
    ):
        sentence = (
            f"This model and {_article(best['name'])} both predict the classes almost without "
            "error: check whether a column gives the target away."
        )
    else:
        sentence = _comparison(ours, best, gain)
        if min(ours["error"], best["error"]) >= models[0]["error"]:
            sentence = _ranked(ranking) + sentence
    return {"models": models, "interval": INTERVAL, "sentence": sentence}


def says_something(
    losses: Mapping[str, NDArray[np.float64]], ranking: Ranking | None = None
) -> bool:
    """Whether any model is better than a constant, by more than chance would explain.

    Differences of the losses are paired by rows, and their mean is compared with its standard
    error. Where columns say nothing about the target, the answer is yes in at most 5 % of cases,
    however many models have their try.
    """
    names = [name for name in losses if name != "constant"]
    tries = len(names) + (0 if ranking is None else len(ranking.chances))
    tail = (1.0 - SURE) / tries
    for name in names:
        less = losses["constant"] - losses[name]
        deviation = float(less.std(ddof=1)) if len(less) > 1 else np.inf
        if less.mean() * np.sqrt(len(less)) > student.isf(tail, max(len(less) - 1, 1)) * deviation:
            return True
    if ranking is None:
        return False
    areas = [ranking.area(name) for name in ranking.chances]
    return any(area - 0.5 > normal.isf(tail) * error for area, error in areas)


@dataclass(frozen=True)
class _Gains:
    """By what share the error of one model is smaller than that of another, with an interval."""

    sampled: Mapping[str, NDArray[np.float64]]
    tails: list[float]

    def __call__(self, better: dict[str, Any], worse: dict[str, Any]) -> tuple[float, float, float]:
        errors = self.sampled[better["name"]], np.maximum(self.sampled[worse["name"]], 1e-300)
        low, high = np.percentile(1.0 - errors[0] / errors[1], self.tails)
        return 1.0 - better["error"] / max(worse["error"], 1e-300), float(low), float(high)


def _nothing(models: list[dict[str, Any]], gain: _Gains, n: int) -> str:
    """What rows say that show no model to be better than a constant."""
    constant, ours = models[0], models[-1]
    best = min(models[1:], key=lambda model: model["error"])
    share, low, high = gain(best, constant)
    if high < LITTLE:
        reason = "these columns say little about the target."
    else:
        reason = (
            f"{n:,} rows are too few to tell. The error of {_article(best['name'])} is "
            f"{_change(share)} than that of a constant ({_change(low)} to {_change(high)})."
        )
    share, low, high = gain(constant, ours)
    if low > 0.0:
        return (
            f"A constant is {share:.0%} better than this model ({low:.0%} to {high:.0%}), and "
            f"no model is clearly better than a constant: {reason}"
        )
    return f"No model is clearly better than a constant: {reason}"


def _change(share: float) -> str:
    return f"{share:.0%} smaller" if share >= 0.0 else f"{-share:.0%} larger"


def _ranked(ranking: Ranking | None) -> str:
    """Said where probabilities are no better than constant ones, but ranks are."""
    if ranking is None:
        return ""
    name, (area, error) = max(
        ((name, ranking.area(name)) for name in ranking.chances), key=lambda one: one[1][0]
    )
    reach = float(normal.isf((1.0 - INTERVAL) / 2.0)) * error
    low, high = max(area - reach, 0.0), min(area + reach, 1.0)
    return (
        f"The columns do rank the rows: the AUC of {_article(name)} is {area:.2f} ({low:.2f} to "
        f"{high:.2f}). But no probabilities are better than the shares of the classes. "
    )


def _comparison(ours: dict[str, Any], best: dict[str, Any], gain: _Gains) -> str:
    """Our model beside the best of the others."""
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
        numbers = [model[name] for name in ("error", "low", "high")]
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
    timed = "seconds" in found["models"][0]  # a model file holds no times
    lines = [f"{heading:<34}{'error':>10}  {share:<22}{'time' if timed else '':>8}".rstrip()]
    for model in found["models"]:
        interval = f"{figure(model['low'])} to {figure(model['high'])}"
        took = duration(model["seconds"]) if timed else ""
        line = f"  {model['name']:<32}{figure(model['error']):>10}  {interval:<22}{took:>8}"
        lines.append(line.rstrip())
    return [*lines, *wrap(found["sentence"], 80)]
