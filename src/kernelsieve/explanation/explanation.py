"""What a model says, as an object: parts, curves, Shapley values, text, pages and plots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.explanation.anova import Array, Decomposition
from kernelsieve.explanation.classes import ClassScale
from kernelsieve.explanation.parts import PartsDecomposition
from kernelsieve.kernels.subsets import Subset

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CURVE_POINTS = 256
SHOWN_PARTS = 12


@dataclass(frozen=True)
class Part:
    """A part of a model: what some columns do together, beyond what fewer of them do.

    Attributes
    ----------
    columns : tuple of str
    variance : float
        Its variance, in squared units of the target.
    share : float
        Its share of the variance of the model.
    error : float
        The standard error of the share; 0 where it is exact, as it is for one and two columns.
    """

    columns: tuple[str, ...]
    variance: float
    share: float
    error: float = 0.0

    @property
    def name(self) -> str:
        """The names of its columns."""
        return " × ".join(self.columns)

    @property
    def order(self) -> int:
        """The number of its columns."""
        return len(self.columns)

    @property
    def deviation(self) -> float:
        """Its standard deviation: by how much it moves predictions, in units of the target."""
        return float(np.sqrt(self.variance))


@dataclass(frozen=True)
class Effect:
    """The values of a part of a model: a curve, or a surface.

    Attributes
    ----------
    columns : tuple of str
    values : tuple of ndarray
        The values of each column, in its own units.
    effect : ndarray of shape (n_1,) or (n_1, n_2), with an axis more for several outputs
        In units of the target; log-odds of a classifier (see ``explain``).
    deviation : ndarray of the same shape, or None
        Posterior standard deviation; None where the model does not know it.
    weights : tuple of ndarray
        The share of rows at each value.
    probabilities : ndarray with an axis more, or None
        Of the classes of a classifier, where only these columns differ from the mean.
    """

    columns: tuple[str, ...]
    values: tuple[NDArray[Any], ...]
    effect: Array
    deviation: Array | None
    weights: tuple[Array, ...]
    probabilities: Array | None = None


@dataclass(frozen=True)
class ShapleyValues:
    """Shapley values of rows; ``to_shap`` makes an object of the package shap of them.

    Attributes
    ----------
    values : ndarray of shape (n, d), with an axis more for several outputs
        Each row sums to its prediction minus ``base``. For interactions of shape (n, d, d).
    base : float, or ndarray of shape (n_outputs,)
        The mean of the model.
    data : ndarray of shape (n, d)
        The rows, as the user gave them.
    names : tuple of str
    classes : ClassScale or None
        Of a classifier, whose values are log-odds.
    probabilities : ndarray of shape (n, n_classes) or None
        What a classifier predicts for the rows.
    """

    values: Array
    base: Any
    data: NDArray[Any]
    names: tuple[str, ...]
    classes: ClassScale | None = None
    probabilities: Array | None = None

    def of_class(self, k: int) -> ShapleyValues:
        """The values of one class, where there are those of all classes."""
        assert self.classes is not None
        classes = replace(self.classes, chosen=k)
        if self.values.ndim == 2:
            return replace(self, classes=classes)
        return replace(self, values=self.values[..., k], base=self.base[k], classes=classes)

    def to_shap(self) -> Any:
        """Return a ``shap.Explanation``, for the plots of shap.

        Returns
        -------
        shap.Explanation
        """
        try:
            import shap
        except ImportError as error:
            raise ImportError("to_shap needs the package shap: pip install shap") from error
        base = np.broadcast_to(self.base, (len(self.values), *np.shape(self.base)))
        return shap.Explanation(self.values, base.copy(), self.data, feature_names=list(self.names))


class Explanation:
    """A model taken apart: f = constant + curves + surfaces + ..., exactly.

    The parts have mean 0 along each of their columns, and are orthogonal if columns are independent
    with their distributions in training. For columns that depend on each other the sum is as exact,
    but shares describe rows whose columns were shuffled independently, some of which may not occur.

    Attributes
    ----------
    names : tuple of str
        The columns.
    same : dict of str to tuple of str
        Columns that say the same as another one, by its name: they are explained together, under
        that name, which stands for all of them in ``effect``, too.
    constant : float, or ndarray of shape (n_outputs,)
        The mean of the model.
    variance : float
        The variance of the model, of all outputs together.
    parts : list of Part
        All that are listed, the largest first.
    effects, interactions : list of Part
        Those of one column, and those of several.
    importance : dict of str to float
        The share of all parts that a column takes part in (its total Sobol index), largest first:
        its parts alone and in pairs, exactly, and those of more columns, exactly or estimated.
    importance_errors : dict of str to float
        Standard errors of the importances; 0 where they are exact.
    n_sampled : int
        The rows on which parts of three and more columns were estimated; 0 if all is exact.
    order_shares : tuple of float
        The shares of single columns, pairs, triples, and more.
    remainder : float
        The share of the parts that are not listed.
    outputs : list of str
        Names of the outputs (classes), if there are several.
    note : str
        What the model does that has no parts; empty for most models.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import KernelRidgeCV, explain
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(300, 3))
    >>> found = explain(KernelRidgeCV(random_state=0).fit(X, X[:, 0] ** 2 + X[:, 1]))
    >>> [part.name for part in found.effects[:2]]
    ['x1', 'x0']
    >>> found.shapley(X[:5]).values.shape
    (5, 3)
    """

    def __init__(
        self,
        decomposition: Decomposition | PartsDecomposition,
        read: Callable[[Any], Array],
        show: Callable[[Any], NDArray[Any]],
        *,
        title: str,
        target: str = "",
        outputs: Sequence[str] = (),
        classes: ClassScale | None = None,
        note: str = "",
        same: dict[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.same = same or {}
        self._decomposition, self._read, self._show = decomposition, read, show
        self.classes, self.note = classes, note
        self.title, self.target, self.outputs = title, target, list(outputs)
        self.names = tuple(one.name for one in decomposition.inputs)

    # --- parts -----------------------------------------------------------------------------------

    @cached_property
    def constant(self) -> Any:
        """The mean of the model."""
        return self._squeezed(self._decomposition.constant)

    @property
    def variance(self) -> float:
        """The variance of the model, of all outputs together."""
        return self._decomposition.variances.total

    @cached_property
    def parts(self) -> list[Part]:
        """All parts that are listed, the largest first."""
        found = self._decomposition.variances
        scale = found.total if found.total > 0 else 1.0
        parts = [
            Part(
                tuple(self.names[i] for i in subset),
                variance,
                variance / scale,
                found.part_errors.get(subset, 0.0),
            )
            for subset, variance in found.parts.items()
        ]
        return sorted(parts, key=lambda part: -part.variance)

    @property
    def effects(self) -> list[Part]:
        """The parts of one column, the largest first."""
        return [part for part in self.parts if part.order == 1]

    @property
    def interactions(self) -> list[Part]:
        """The parts of several columns, the largest first."""
        return [part for part in self.parts if part.order > 1]

    @cached_property
    def importance(self) -> dict[str, float]:
        """The share of all parts that a column takes part in, the largest first."""
        totals = self._decomposition.variances.totals / (self.variance or 1.0)
        order = np.argsort(-totals, kind="stable")
        return {self.names[i]: float(totals[i]) for i in order}

    @property
    def importance_errors(self) -> dict[str, float]:
        """The standard errors of the importances; 0 where they are exact."""
        errors = dict(zip(self.names, self._decomposition.variances.total_errors, strict=True))
        return {name: float(errors[name]) for name in self.importance}

    @property
    def n_sampled(self) -> int:
        """The rows on which parts of three and more columns were estimated; 0 if all is exact."""
        return self._decomposition.variances.n_drawn

    @property
    def order_shares(self) -> tuple[float, ...]:
        """The shares of single columns, pairs, triples, and more."""
        return tuple((self._decomposition.variances.by_order / (self.variance or 1.0)).tolist())

    @property
    def remainder(self) -> float:
        """The share of the parts that are not listed."""
        return max(0.0, sum(self.order_shares) - sum(part.share for part in self.parts))

    def effect(self, *columns: str, points: int = MOST_CURVE_POINTS) -> Effect:
        """The values of one part.

        Parameters
        ----------
        *columns : str
            One or two columns.
        points : int, default 256
            The most values of a column.

        Returns
        -------
        Effect
            Of mean 0 along each column. Where ``columns`` are two, it is what they do together
            beyond their own curves; ``partial_dependence`` adds these.
        """
        subset = self._subset(columns)
        chosen = [self._grid_points(i, points) for i in subset]
        rows = _combinations(
            [self._decomposition.inputs[i].values[c] for i, c in zip(subset, chosen, strict=True)]
        )
        shape = tuple(len(c) for c in chosen)
        effect = self._decomposition.part(subset, rows)
        deviation = self._decomposition.deviation(subset, rows)
        return Effect(
            tuple(columns),
            tuple(
                self._decomposition.inputs[i].shown[c] for i, c in zip(subset, chosen, strict=True)
            ),
            self._squeezed(effect.reshape(*shape, -1)),
            None if deviation is None else self._squeezed(deviation.reshape(*shape, -1)),
            tuple(
                self._decomposition.inputs[i].weights[c]
                for i, c in zip(subset, chosen, strict=True)
            ),
        )

    def partial_dependence(self, *columns: str, points: int = MOST_CURVE_POINTS) -> Effect:
        """The mean of the model for given values of one or two columns.

        The mean is over independent values of all other columns. It is the constant plus all parts
        of these columns.

        Parameters
        ----------
        *columns : str
            One or two columns.
        points : int, default 256
            The most values of a column.

        Returns
        -------
        Effect
            With the probabilities of a classifier.
        """
        whole = self.effect(*columns, points=points)
        total = whole.effect + self.constant
        if len(columns) == 2:
            first, second = (self.effect(c, points=points).effect for c in columns)
            total = total + first[:, None] + second[None, :]
        chances = self._probabilities(total)
        return Effect(whole.columns, whole.values, total, None, whole.weights, chances)

    def part_values(self, columns: Sequence[str], X: Any) -> Array:
        """The values of a part of any number of columns at rows.

        Parameters
        ----------
        columns : sequence of str
        X : rows, as the model takes them

        Returns
        -------
        ndarray of shape (n,), or (n, n_outputs)
        """
        subset = self._subset(columns, most=len(self.names))
        X = self._read(X)
        rows = [X[:, list(self._decomposition.inputs[i].columns)] for i in subset]
        return self._squeezed(self._decomposition.part(subset, rows))

    # --- rows ------------------------------------------------------------------------------------

    def shapley(self, X: Any, interactions: bool = False) -> ShapleyValues:
        """Shapley values of rows: exact, for columns that vary independently in the mean.

        A part of k columns is shared equally by them, so that the values of a row sum to its
        prediction minus the constant.

        Parameters
        ----------
        X : rows, as the model takes them
        interactions : bool, default False
            Whether to return a matrix for each row: half of the interaction value of each pair on
            both sides of the diagonal, what is left of each column's value on it.

        Returns
        -------
        ShapleyValues
        """
        rows = self._read(X)
        found = self._decomposition
        values = found.interactions(rows) if interactions else found.shapley(rows)
        chances = None if self.classes is None else np.asarray(self.classes.predict(rows))
        return ShapleyValues(
            self._squeezed(values), self.constant, self._show(X), self.names, self.classes, chances
        )

    # --- words -----------------------------------------------------------------------------------

    def to_frame(self, what: str = "parts") -> Any:
        """The parts or the columns as a pandas DataFrame.

        Parameters
        ----------
        what : "parts" or "columns"

        Returns
        -------
        pandas.DataFrame
            Of parts: name, order, share, its standard error (0 where it is exact), standard
            deviation. Of columns: the share of the column alone and of all parts with it.
        """
        from pandas import DataFrame

        if what == "columns":
            alone = {part.columns[0]: part.share for part in self.effects}
            return DataFrame(
                {
                    "column": list(self.importance),
                    "alone": [alone.get(name, 0.0) for name in self.importance],
                    "total": list(self.importance.values()),
                    "error": list(self.importance_errors.values()),
                }
            )
        if what != "parts":
            raise ValueError(f"what={what!r} is neither 'parts' nor 'columns'")
        return DataFrame(
            {
                "part": [part.name for part in self.parts],
                "order": [part.order for part in self.parts],
                "share": [part.share for part in self.parts],
                "error": [part.error for part in self.parts],
                "deviation": [part.deviation for part in self.parts],
            }
        )

    def text(self, top: int = SHOWN_PARTS) -> str:
        """Describe the model in lines of at most 80 characters.

        Parameters
        ----------
        top : int, default 12
            How many parts to list.

        Returns
        -------
        str
        """
        from kernelsieve.explanation.words import as_text

        return as_text(self, top)

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        from kernelsieve.explanation.page import share_table

        return share_table(self)

    def to_html(self, rows: Any = None, top: int = SHOWN_PARTS) -> str:
        """A self-contained page whose plots show values where you point; it needs no network.

        Parameters
        ----------
        rows : rows, as the model takes them, optional
            Rows to explain one by one, at most 50.
        top : int, default 12
            How many parts to list and to draw.

        Returns
        -------
        str
        """
        from kernelsieve.explanation.page import page

        return page(self, rows, top)

    # --- plots -----------------------------------------------------------------------------------

    def plot(self, top: int = 6) -> Figure:
        """Draw the shares and the largest curves and surfaces in one figure.

        Parameters
        ----------
        top : int, default 6
            How many parts to draw.

        Returns
        -------
        matplotlib Figure
        """
        from kernelsieve.explanation.drawing import overview

        return overview(self, top)

    def plot_effect(self, *columns: str, ax: Axes | None = None) -> Axes:
        """Draw a curve with its band and the data below it, or the surface of a pair.

        Parameters
        ----------
        *columns : str
            One or two columns.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        from kernelsieve.explanation.drawing import curve, surface

        return (curve if len(columns) == 1 else surface)(self, columns, ax)

    def plot_shares(self, top: int = SHOWN_PARTS, ax: Axes | None = None) -> Axes:
        """Draw the shares of the largest parts as bars.

        Parameters
        ----------
        top : int, default 12
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        from kernelsieve.explanation.drawing import shares

        return shares(self, top, ax)

    def plot_waterfall(self, row: Any, top: int = 10, ax: Axes | None = None) -> Axes:
        """Draw how the columns of one row lead from the mean to its prediction.

        Parameters
        ----------
        row : a row, as the model takes it
        top : int, default 10
            How many columns to show.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        from kernelsieve.explanation.drawing import waterfall

        return waterfall(self.shapley(row), 0, top, ax)

    def plot_importance(self, top: int = SHOWN_PARTS, ax: Axes | None = None) -> Axes:
        """Draw the importance of columns as bars, with two standard errors where it is estimated.

        Parameters
        ----------
        top : int, default 12
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        from kernelsieve.explanation.drawing import importances

        return importances(self, top, ax)

    # --- helpers ---------------------------------------------------------------------------------

    def _probabilities(self, margins: Any) -> Array | None:
        """Of the classes, for margins without the last axis where there is one output."""
        if self.classes is None:
            return None
        return self.classes.probabilities(
            margins if self.outputs else np.asarray(margins)[..., None]
        )

    @property
    def unit(self) -> str:
        """What effects are measured in: "log-odds of yes", or the target's units ("")."""
        if self.classes is None:
            return ""
        if self.outputs:
            return "log-odds"
        return f"log-odds of {self.classes.explained}"

    def _squeezed(self, values: Array) -> Any:
        """Without the last axis where there is one output."""
        if values.shape[-1] > 1:
            return values
        return float(values[0]) if values.ndim == 1 else values[..., 0]

    def _subset(self, columns: Sequence[str], most: int = 2) -> Subset:
        first = {other: name for name, others in self.same.items() for other in others}
        columns = [first.get(name, name) for name in columns]
        unknown = [name for name in columns if name not in self.names]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not a column: {', '.join(self.names[:20])}")
        if not 1 <= len(set(columns)) == len(columns) <= most:
            raise ValueError(f"columns={tuple(columns)!r}: pass 1 to {most} different names")
        return tuple(self.names.index(name) for name in columns)

    def _grid_points(self, number: int, points: int) -> NDArray[np.int64]:
        size = len(self._decomposition.inputs[number].weights)
        return np.unique(np.linspace(0, size - 1, min(size, points)).astype(np.int64))


def _combinations(values: list[Array]) -> list[Array]:
    """All combinations of rows of one or two inputs: one array for each."""
    if len(values) == 1:
        return values
    first, second = values
    return [np.repeat(first, len(second), axis=0), np.tile(second, (len(first), 1))]
