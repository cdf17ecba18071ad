"""Models that are not sums of products: permutation importance and accumulated local effects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import log_loss

from kernelsieve._random import keyed_rows, stream
from kernelsieve.explanation.sums import NotProductsError
from kernelsieve.explanation.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from kernelsieve.explanation.explanation import Explanation
    from kernelsieve.explanation.views import View

Array = NDArray[np.float64]

MOST_ROWS = 2000  # that are shuffled and predicted
PERMUTATIONS = 5
INTERVALS = 40  # of a curve
SMALLEST_R2 = 0.9  # of a stand-in with the model that it stands for
STAND_IN_ROWS = 4000


@dataclass(frozen=True)
class Probe:
    """What predictions show of a model that cannot be taken apart.

    Attributes
    ----------
    names : tuple of str
        The columns.
    reason : str
        Why the model cannot be taken apart.
    loss : str
        "log loss" or "RMSE"; empty without y.
    importance : dict of str to float
        The increase of the loss when a column is shuffled, the largest first; empty without y.
    curves : dict of str to (values, effects)
        Accumulated local effects of columns of numbers: their values, of shape (m,), and effects of
        mean 0, of shape (m,) or (m, n_outputs).

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import FourierFeatures, KernelRidge, explain
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> y = np.sin(X[:, 1])
    >>> model = KernelRidge(FourierFeatures(100, random_state=0), alpha=0.1).fit(X, y)
    >>> next(iter(explain(model, X, y).importance))
    'x1'
    """

    names: tuple[str, ...]
    reason: str
    loss: str
    importance: dict[str, float]
    curves: dict[str, tuple[Array, Array]]
    _predict: Any
    _rows: Array

    def stand_in(self, random_state: int = 0) -> Explanation:
        """Explain a model that was fitted to the predictions of this one.

        Parameters
        ----------
        random_state : int, default 0

        Returns
        -------
        Explanation
            Of a learned product kernel. Its title says how well it follows the model.

        Raises
        ------
        ValueError
            If it follows the model with R2 < 0.9 on rows that it was not fitted to.
        """
        from kernelsieve.explanation.entry import explain
        from kernelsieve.models import KernelRidgeCV

        X, y = self._rows, self._predict(self._rows)
        order = stream(random_state, "stand-in").permutation(len(X))
        test, train = order[: len(X) // 4], order[len(X) // 4 :]
        model = KernelRidgeCV(random_state=random_state).fit(X[train], y[train])
        score = float(model.score(X[test], y[test]))
        if score < SMALLEST_R2:
            raise ValueError(
                f"a stand-in follows this model with R2 = {score:.2f} only, below {SMALLEST_R2}: "
                "its effects would not be those of the model"
            )
        found = explain(model, names=self.names)
        assert not isinstance(found, Probe)
        found.title = f"stand-in for the model (R2 = {score:.3f} with its predictions)"
        return found

    def text(self, top: int = 12) -> str:
        """Describe the model in lines of at most 80 characters.

        Parameters
        ----------
        top : int, default 12
            How many columns to list.

        Returns
        -------
        str
        """
        lines = wrap(
            f"This model cannot be taken apart: {self.reason}. Below are permutation importances "
            "and accumulated local effects of the model itself; no stand-in is used.",
            80,
        )
        if self.importance:
            width = max(len(name) for name in self.importance)
            lines += ["", f"Permutation importance (increase in {self.loss})"]
            lines += [
                f"  {name:<{width}}  {number(value):>9}"
                for name, value in list(self.importance.items())[:top]
            ]
        else:
            lines.append("Pass y for permutation importances.")
        spans = {name: float(np.ptp(effect)) for name, (_, effect) in self.curves.items()}
        width = max([6, *(len(name) for name in spans)])
        lines += ["", "Range of accumulated local effects"]
        largest = sorted(spans.items(), key=lambda item: -item[1])[:top]
        return "\n".join(
            [*lines, *(f"  {name:<{width}}  {number(span):>9}" for name, span in largest)]
        )

    def __repr__(self) -> str:
        return self.text()

    def plot_effect(self, column: str, ax: Axes | None = None) -> Axes:
        """Draw the accumulated local effect of a column.

        Parameters
        ----------
        column : str
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        from kernelsieve.plots import BLUE, axes_for, quiet, shortened

        ax = axes_for(ax)
        ax.plot(*self.curves[column], color=BLUE, lw=1.8)
        ax.set_xlabel(shortened(column))
        ax.set_ylabel("accumulated local effect")
        return quiet(ax)


def probe(view: View, X: Any, y: Any, reason: str, output: Any = None) -> Probe:
    """Look at a model through its predictions on rows."""
    if X is None:
        raise NotProductsError(
            f"{reason}; permutation importances and accumulated local effects need rows: pass X "
            "(and y)"
        )
    rows, shown = view.read(X), view.show(X)
    chosen = keyed_rows(len(rows), STAND_IN_ROWS, 0, "probe")
    rows, shown = rows[chosen], shown[chosen]
    model = view.model
    decide = getattr(model, "decision_function", None) or model.predict
    labels = np.asarray(getattr(model, "classes_", [])).tolist()
    if output is not None and labels and output not in labels:
        raise ValueError(f"output={output!r} is not one of {labels}")

    def predict(some: Array) -> Array:
        values = np.asarray(decide(some), dtype=np.float64)
        if output is None:
            return values
        if values.ndim == 1:  # one score tells two classes apart: it is that of the second
            return -values if labels and output == labels[0] else values
        return values[:, labels.index(output) if labels else output]

    importance: dict[str, float] = {}
    loss = ""
    if y is not None:
        loss = "log loss" if hasattr(model, "predict_proba") else "RMSE"
        importance = permutation_importance(model, rows, np.asarray(y)[chosen], view.groups)
    curves = {}
    for place, (name, columns) in enumerate(view.groups):
        values = _numbers_or_times(shown[:, place])
        if values is not None and np.ptp(rows[:, columns[0]]) > 0:
            curves[name] = local_effects(predict, rows, columns[0], values)
    names = tuple(name for name, _ in view.groups)
    return Probe(names, reason, loss, importance, curves, predict, rows)


def _numbers_or_times(shown: NDArray[Any]) -> NDArray[Any] | None:
    """A column as numbers or times; None for texts."""
    if isinstance(shown[0], datetime):
        return np.array(shown.tolist(), dtype="datetime64[s]")
    return shown.astype(np.float64) if isinstance(shown[0], float | int) else None


def permutation_importance(
    model: Any,
    X: Array,
    y: NDArray[Any],
    groups: Sequence[tuple[str, tuple[int, ...]]],
    seed: int = 0,
) -> dict[str, float]:
    """The increase of the log loss, or of the RMSE, when columns are shuffled together.

    Parameters
    ----------
    model : estimator
        With ``predict_proba`` for the log loss.
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)
    groups : list of (str, tuple of int)
        Names, and the columns that are shuffled together.
    seed : int

    Returns
    -------
    dict of str to float
        The largest first.
    """
    rows = keyed_rows(len(X), MOST_ROWS, seed, "importance")
    X, y = X[rows], y[rows]
    before = _loss(model, X, y)
    found = {}
    for name, columns in groups:
        losses = []
        for repeat in range(PERMUTATIONS):
            shuffled = X.copy()
            order = stream(seed, "shuffle", name, repeat).permutation(len(X))
            shuffled[:, columns] = X[order][:, columns]
            losses.append(_loss(model, shuffled, y))
        found[name] = float(np.mean(losses) - before)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _loss(model: Any, X: Array, y: NDArray[Any]) -> float:
    if hasattr(model, "predict_proba"):
        known = np.isin(y, model.classes_)
        return float(log_loss(y[known], model.predict_proba(X)[known], labels=model.classes_))
    return float(np.sqrt(np.mean(np.square(model.predict(X) - y))))


def local_effects(predict: Any, X: Array, column: int, shown: NDArray[Any]) -> tuple[Array, Array]:
    """Accumulated local effects of a column (Apley and Zhu, 2020).

    Differences of predictions over an interval of the column, for the rows within it, summed along
    the column: unlike a partial dependence, no row moves further than its interval.

    Parameters
    ----------
    predict : callable
        From rows (n, d) to predictions (n,) or (n, n_outputs).
    X : ndarray of shape (n, d)
    column : int
    shown : ndarray of shape (n,)
        The column in the units to return.

    Returns
    -------
    values : ndarray of shape (m,)
        The ends of the intervals: quantiles of the column.
    effects : ndarray of shape (m,) or (m, n_outputs)
        Of mean 0 over the rows.
    """
    values = X[:, column]
    quantiles = np.quantile(values, np.linspace(0, 1, INTERVALS + 1), method="inverted_cdf")
    edges, places = np.unique(quantiles), np.argsort(values, kind="stable")
    interval = np.clip(np.searchsorted(edges, values, side="left") - 1, 0, len(edges) - 2)
    low, high = X.copy(), X.copy()
    low[:, column], high[:, column] = edges[interval], edges[interval + 1]
    steps = predict(high) - predict(low)
    sums = np.zeros((len(edges) - 1, *steps.shape[1:]))
    np.add.at(sums, interval, steps)
    counts = np.bincount(interval, minlength=len(sums)).astype(np.float64)
    means = sums / np.maximum(counts, 1.0).reshape(-1, *[1] * (sums.ndim - 1))
    effects = np.concatenate([np.zeros((1, *sums.shape[1:])), np.cumsum(means, axis=0)])
    middles = 0.5 * (effects[1:] + effects[:-1])
    effects -= np.tensordot(counts / counts.sum(), middles, axes=1)
    order = places[np.searchsorted(values[places], edges)]
    return shown[order], effects
