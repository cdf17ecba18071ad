"""Plots of explanations: curves with bands, surfaces, shares, waterfalls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.explanation.words import number, percent, value_text
from kernelsieve.plots import BLUE, GREY, RED, axes_for, quiet, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from kernelsieve.explanation.explanation import Explanation, ShapleyValues

BAND = 2.0  # standard deviations
MOST_LEVELS = 20  # of a category that a plot shows
SURFACE_POINTS = 60
COLOURS = (BLUE, RED, "#2a9d8f", "#e9a03b", "#7b2cbf", GREY)


def curve(found: Explanation, columns: tuple[str, ...], ax: Axes | None = None) -> Axes:
    """A main effect: its curve, a band of two posterior deviations, and a rug of the data."""
    ax = axes_for(ax)
    effect = found.effect(*columns)
    values, weights = effect.values[0], effect.weights[0]
    lines = effect.effect.reshape(len(values), -1)
    bands = None if effect.deviation is None else effect.deviation.reshape(lines.shape)
    if values.dtype.kind in "fiuM":
        _lines(ax, values, lines, bands, found.outputs)
        _rug(ax, values, weights)
    else:
        _levels(ax, values, lines, bands, weights)
    ax.axhline(0.0, color=GREY, lw=0.7, zorder=0)
    ax.set_xlabel(shortened(columns[0]))
    ax.set_ylabel(_what(found))
    share = next((part.share for part in found.effects if part.columns == columns), 0.0)
    ax.set_title(f"{shortened(columns[0])}  ({100 * share:.1f} %)", loc="left", fontsize=10)
    if found.outputs and len(found.outputs) <= len(COLOURS):
        ax.legend(frameon=False, fontsize=8)
    return quiet(ax)


def _lines(
    ax: Axes, values: NDArray[Any], lines: NDArray[Any], bands: Any, outputs: list[str]
) -> None:
    few = len(values) <= MOST_LEVELS  # values that repeat: steps of a scale, not a curve
    for o in range(lines.shape[1]):
        colour = COLOURS[o % len(COLOURS)]
        label = outputs[o] if outputs else None
        if few and bands is not None:
            ax.errorbar(
                values, lines[:, o], BAND * bands[:, o], color=colour, fmt="o-", ms=4, lw=1,
                capsize=2, label=label,
            )  # fmt: skip
            continue
        if bands is not None:
            low, high = lines[:, o] - BAND * bands[:, o], lines[:, o] + BAND * bands[:, o]
            ax.fill_between(values, low, high, color=colour, alpha=0.2, lw=0)
        ax.plot(values, lines[:, o], color=colour, lw=1.8, marker="o" if few else "", label=label)


def _rug(ax: Axes, values: NDArray[Any], weights: NDArray[Any]) -> None:
    """Where the rows are: one tick for each value, taller with more rows."""
    known = ~np.isnat(values) if values.dtype.kind == "M" else np.isfinite(values.astype(float))
    heights = 0.02 + 0.06 * (weights[known] / weights[known].max()) ** 0.5
    transform = ax.get_xaxis_transform()
    ax.vlines(values[known], 0, heights, color=GREY, lw=0.5, alpha=0.6, transform=transform)


def _levels(
    ax: Axes, values: NDArray[Any], lines: NDArray[Any], bands: Any, weights: NDArray[Any]
) -> None:
    """A bar for each of the most frequent levels of a category."""
    shown = np.sort(np.argsort(-weights, kind="stable")[:MOST_LEVELS])
    places = np.arange(len(shown))
    wide = 0.8 / lines.shape[1]
    for o in range(lines.shape[1]):
        errors = None if bands is None else BAND * bands[shown, o]
        ax.bar(
            places + (o - 0.5 * (lines.shape[1] - 1)) * wide,
            lines[shown, o],
            wide,
            color=COLOURS[o % len(COLOURS)],
            alpha=0.85,
            yerr=errors,
            ecolor=GREY,
        )
    turned = 0 if sum(len(str(values[i])) for i in shown) < 40 else 60
    ax.set_xticks(places, [shortened(str(values[i]), 16) for i in shown], rotation=turned)


def surface(found: Explanation, columns: tuple[str, ...], ax: Axes | None = None) -> Axes:
    """An interaction of two columns as a heat map: what they do beyond their own curves."""
    ax = axes_for(ax)
    effect = found.effect(*columns, points=SURFACE_POINTS)
    heights = effect.effect
    title = " × ".join(shortened(name, 18) for name in columns)
    share = next((p.share for p in found.interactions if set(p.columns) == set(columns)), 0.0)
    if found.outputs:
        largest_output = int(np.square(heights).sum(axis=(0, 1)).argmax())
        heights = heights[..., largest_output]
        title += f", {found.outputs[largest_output]}"
    largest = float(np.abs(heights).max()) or 1.0
    edges = [_edges(ax, axis, values) for axis, values in zip("xy", effect.values, strict=True)]
    mesh = ax.pcolormesh(
        *edges, heights.T, cmap="RdBu_r", vmin=-largest, vmax=largest, rasterized=True
    )
    bar = ax.figure.colorbar(mesh, ax=ax, label=_what(found))
    bar.outline.set_visible(False)
    ax.set_xlabel(shortened(columns[0]))
    ax.set_ylabel(shortened(columns[1]))
    ax.set_title(f"{title}  ({100 * share:.1f} %)", loc="left", fontsize=10)
    return quiet(ax)


def _edges(ax: Axes, axis: str, values: NDArray[Any]) -> Any:
    """Cells around values; levels get names."""
    if values.dtype.kind == "M":
        return _edges(ax, axis, values.astype(np.int64).astype(float)).astype("datetime64[s]")
    if values.dtype.kind not in "fiu":
        set_ticks = ax.set_xticks if axis == "x" else ax.set_yticks
        names = [shortened(str(value), 12) for value in values]
        set_ticks(np.arange(len(values)), names, rotation=60 if axis == "x" else 0, fontsize=7)
        values = np.arange(len(values))
    numbers = values[np.isfinite(values.astype(np.float64))].astype(np.float64)
    if len(numbers) < len(values):  # a missing value: a cell beyond the last
        numbers = np.append(numbers, 2 * numbers[-1] - numbers[-2] if len(numbers) > 1 else 1.0)
    if len(numbers) == 1:
        return np.array([numbers[0] - 0.5, numbers[0] + 0.5])
    middles = 0.5 * (numbers[1:] + numbers[:-1])
    first, last = 2 * numbers[0] - middles[0], 2 * numbers[-1] - middles[-1]
    return np.concatenate([[first], middles, [last]])


def shares(found: Explanation, top: int, ax: Axes | None = None) -> Axes:
    """The shares of the largest parts as bars; single columns are blue."""
    ax = axes_for(ax)
    parts = found.parts[:top][::-1]
    colours = [BLUE if part.order == 1 else RED for part in parts]
    places = np.arange(len(parts))
    ax.barh(places, [100 * part.share for part in parts], color=colours)
    for place, part in enumerate(parts):
        ax.text(100 * part.share, place, f" {100 * part.share:.1f}", va="center", fontsize=8)
    ax.set_yticks(places, [shortened(part.name, 34) for part in parts], fontsize=8)
    ax.set_xlabel("% of the variance (blue: one column, red: together)")
    ax.margins(x=0.12)
    return quiet(ax)


def waterfall(values: ShapleyValues, row: int, top: int, ax: Axes | None = None) -> Axes:
    """From the mean to the prediction of one row, column by column."""
    ax = axes_for(ax)
    phi, base = values.values[row], values.base
    if phi.ndim == 2 and values.probabilities is not None:  # of the likeliest class
        return waterfall(values.of_class(int(values.probabilities[row].argmax())), row, top, ax)
    if phi.ndim == 2:
        raise ValueError("a waterfall shows one output: pass output= to explain")
    order = np.argsort(-np.abs(phi), kind="stable")
    shown, rest = order[:top], order[top:]
    steps = [
        (f"{shortened(values.names[i], 20)} = {_value(values.data[row, i])}", float(phi[i]))
        for i in shown[::-1]
    ]
    if len(rest):
        steps.insert(0, (f"{len(rest)} other columns", float(phi[rest].sum())))
    start = float(base)
    for place, (_, step) in enumerate(steps):
        ax.barh(place, step, left=start, color=RED if step > 0 else BLUE, height=0.7)
        ax.plot([start + step] * 2, [place - 0.35, place + 1.35], color=GREY, lw=0.6)
        ax.text(
            max(start, start + step), place, f" {number(step, 3, '+')}", va="center", fontsize=8
        )
        start += step
    ax.axvline(float(base), color=GREY, lw=0.8, ls=":")
    ax.set_yticks(np.arange(len(steps)), [name for name, _ in steps], fontsize=8)
    ax.use_sticky_edges = False  # a bar that ends at the axis looks cut
    ax.margins(x=0.15)
    ax.set_title(waterfall_title(values, row, start), loc="left", fontsize=10)
    return quiet(ax)


def waterfall_title(values: ShapleyValues, row: int, prediction: float) -> str:
    """From where to where: numbers, and for a classifier probabilities."""
    if values.classes is None or values.probabilities is None:
        return f"mean {number(values.base)}, prediction {number(prediction)}"
    k = values.classes.explained_place
    chance = percent(float(values.probabilities[row, k]))
    return (
        f"{shortened(values.classes.explained, 20)}: probability {chance}, "
        f"log-odds {number(prediction, 3)} (mean {number(values.base, 3)})"
    )


def _value(value: Any) -> str:
    return shortened(value_text(value), 16)


def overview(found: Explanation, top: int) -> Figure:
    """The shares, then the largest curves and surfaces."""
    from matplotlib.figure import Figure

    parts = [part for part in found.parts if part.order <= 2][:top]
    lines = 1 + (len(parts) + 2) // 3
    figure = Figure(figsize=(12.0, 3.4 * lines), layout="constrained")
    grid = figure.add_gridspec(lines, 3)
    shares(found, 12, figure.add_subplot(grid[0, :]))
    for place, part in enumerate(parts):
        ax = figure.add_subplot(grid[1 + place // 3, place % 3])
        (curve if part.order == 1 else surface)(found, part.columns, ax)
    return figure


def _what(found: Explanation) -> str:
    if found.unit:
        return f"effect on {shortened(found.unit, 30)}"
    return f"effect on {shortened(found.target, 20)}" if found.target else "effect"


def importances(found: Explanation, top: int, ax: Axes | None = None) -> Axes:
    """The importances of columns as bars, with two standard errors where they are estimated."""
    ax = axes_for(ax)
    names = list(found.importance)[:top][::-1]
    places = np.arange(len(names))
    errors = [200 * found.importance_errors[name] for name in names]
    bars = [100 * found.importance[name] for name in names]
    ax.barh(places, bars, color=BLUE, xerr=errors if any(errors) else None, ecolor=GREY)
    ax.set_yticks(places, [shortened(name, 34) for name in names], fontsize=8)
    ax.set_xlabel("% of the variance, alone and with other columns")
    return quiet(ax)
