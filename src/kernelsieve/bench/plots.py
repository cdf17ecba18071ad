"""The pictures: error against s and time for all datasets together, and four panels for each."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelsieve._files import replacing
from kernelsieve.bench import words
from kernelsieve.bench.methods import METHODS
from kernelsieve.bench.records import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind can tell apart; without yellow, too pale here.
LOOKS = {
    "default": ("#000000", "*"),
    "adaptive": ("#D55E00", "v"),
    "row-norm": ("#009E73", "^"),
    "nystrom": ("#E69F00", "s"),
    "fourier": ("#0072B2", "o"),
    "exact": ("#7A4FBF", "X"),
    "boosting": ("#9A6324", "P"),
    "linear": ("#777777", "d"),
}
COLOURS = ("#56B4E9", "#CC79A7", "#5F9E3F", "#B22222", "#2F4F8F", "#AA8800")
MARKERS = "DhpH8<>"
INK, GREY = "#1b1f24", "#666666"  # INK follows the text colour of a page
PANEL = (4.4, 3.1)  # inches
LEAST_GAP = 0.075  # between labels, as a part of the axis

Panel = tuple[str, Callable[["Axes", Comparison], None]]


def styles() -> dict[str, dict[str, Any]]:
    """Colour, marker and dashes of every method, the same in all pictures."""
    found: dict[str, dict[str, Any]] = {}
    others = 0
    for name, method in METHODS.items():
        dashes = "-" if method.has_features else "--"
        if name in LOOKS:
            colour, marker = LOOKS[name]
        else:
            colour = COLOURS[others % len(COLOURS)]
            marker = MARKERS[others % len(MARKERS)]
            others += 1
        found[name] = {"color": colour, "marker": marker, "linestyle": dashes}
    return found


# --- all datasets in one figure -------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """A method in the picture: one point for each s, or one point in all."""

    method: str
    n_components: list[int]
    errors: list[float]
    seconds: list[float]


def curves(comparisons: Sequence[Comparison]) -> list[Curve]:
    """Errors of every method and s that all datasets have, and training times.

    For several datasets the errors are those relative to the linear model (without one, to the
    best), in the geometric mean, and the times are added.
    """
    found = []
    for method in dict.fromkeys(m for c in comparisons for m in c.methods):
        rows = [{row.n_components: row for row in c.of(method)} for c in comparisons]
        sizes = [s for s in rows[0] if all(s in row for row in rows)]
        if not sizes:
            continue
        errors = [
            [
                row[s].error / base(c, len(comparisons))
                for row, c in zip(rows, comparisons, strict=True)
            ]
            for s in sizes
        ]
        found.append(
            Curve(
                method,
                [s or 0 for s in sizes],
                [float(np.exp(np.mean(np.log(e)))) for e in errors],
                [sum(row[s].fit_seconds for row in rows) for s in sizes],
            )
        )
    return found


def base(comparison: Comparison, count: int) -> float:
    """What the errors of a dataset are divided by."""
    if count == 1:
        return 1.0
    linear = comparison.of("linear")
    return linear[0].error if linear else min(row.error for row in comparison.rows)


def draw(comparisons: Sequence[Comparison]) -> Figure:
    """Error against s and error against training time, with the names of the methods between.

    Parameters
    ----------
    comparisons : sequence of Comparison

    Returns
    -------
    Figure
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"font.size": 10.5, "axes.titlesize": 11.5}):
        shown = curves(comparisons)
        growing = any(len(c.n_components) > 1 for c in shown)
        figure = Figure(figsize=(7.6, 3.7), dpi=200)
        names = "Geometric mean over " if len(comparisons) > 1 else ""
        names += ", ".join(c.setup.dataset for c in comparisons)
        if growing:
            left, right = figure.subplots(1, 2, sharey=True)
            figure.subplots_adjust(left=0.085, right=0.985, top=0.775, bottom=0.15, wspace=0.5)
            _against_features(left, shown)
            left.set_title("Error against features", loc="left")
            right.tick_params(labelleft=True)
        else:
            left = right = figure.subplots()
            figure.subplots_adjust(left=0.1, right=0.78, top=0.775, bottom=0.15)
        _against_time(right, shown, several=len(comparisons) > 1)
        right.set_title("Error against training time", loc="left")
        _names_beside(left, shown)
        figure.text(0.012, 0.935, headline(comparisons), fontsize=12.5, fontweight="bold")
        figure.text(0.012, 0.875, names, color=GREY, fontsize=9.5)
    return figure


def save(comparisons: Sequence[Comparison], path: Path) -> None:
    """Draw, and write a PNG."""
    with replacing(path) as file:
        draw(comparisons).savefig(file, format="png")


def headline(comparisons: Sequence[Comparison]) -> str:
    """What the errors in the picture are."""
    if len(comparisons) == 1:
        return f"Test {words.metric(comparisons[0].setup)}, lower is better"
    other = "a linear model" if all(c.of("linear") for c in comparisons) else "the best method"
    return f"Test error compared with {other} (= 1), lower is better"


def _against_features(ax: Axes, shown: Sequence[Curve]) -> None:
    look = styles()
    ticks = sorted({s for curve in shown for s in curve.n_components if s})
    for curve in shown:
        style = look[curve.method]
        if METHODS[curve.method].has_features:
            ax.plot(
                curve.n_components, curve.errors, markersize=6, linewidth=_width(curve), **style
            )
        else:
            line = {key: style[key] for key in ("color", "linestyle")}
            ax.axhline(curve.errors[0], linewidth=1.2, **line)
    _features_axis(ax, ticks)
    _quiet(ax)


def _against_time(ax: Axes, shown: Sequence[Curve], several: bool) -> None:
    look = styles()
    for curve in shown:
        size = 6 if len(curve.errors) > 1 else 8
        ax.plot(
            curve.seconds, curve.errors, markersize=size, linewidth=_width(curve),
            **look[curve.method],
        )  # fmt: skip
    _time_axis(ax, [second for curve in shown for second in curve.seconds])
    ax.set_xlabel("seconds, all datasets together" if several else "seconds")
    _quiet(ax)


def _width(curve: Curve) -> float:
    return 2.4 if curve.method in ("adaptive", "default") else 1.6


def _names_beside(ax: Axes, shown: Sequence[Curve]) -> None:
    """The names of the methods on the right of an axis, at their last error, without collisions."""
    look = styles()
    low, high = ax.get_ylim()
    order = sorted(shown, key=lambda curve: curve.errors[-1])
    wanted = [(curve.errors[-1] - low) / (high - low) for curve in order]
    gap = min(LEAST_GAP, 1.0 / max(len(order), 1))
    for curve, place in zip(order, spread(wanted, gap), strict=True):
        style = look[curve.method]
        ax.plot(
            [1.045], [place], transform=ax.transAxes, clip_on=False, color=style["color"],
            marker=style["marker"], markersize=6,
        )  # fmt: skip
        ax.text(
            1.085, place, words.label(curve.method), transform=ax.transAxes, va="center",
            color=style["color"], fontsize=10,
            fontweight="bold" if _width(curve) > 2 else "normal",
        )  # fmt: skip


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Places between 0 and 1 near the wanted ones (rising), at least ``gap`` apart.

    Examples
    --------
    >>> [round(place, 2) for place in spread([0.5, 0.5, 0.9], 0.1)]
    [0.45, 0.55, 0.9]
    """
    groups = [[place, 1] for place in wanted]  # the middle of neighbours that touch, their number
    i = 0
    while i + 1 < len(groups):
        (a, n), (b, m) = groups[i], groups[i + 1]
        if b - a < gap * (n + m) / 2 - 1e-12:
            middle = (a * n + b * m) / (n + m)
            groups[i : i + 2] = [[middle, n + m]]
            i = max(0, i - 1)
        else:
            i += 1
    places = []
    for middle, n in groups:
        half = gap * (n - 1) / 2
        middle = min(max(middle, half), 1.0 - half)
        places += [middle - half + gap * k for k in range(int(n))]
    return places


# --- the panels of one dataset --------------------------------------------------------------------


def error_against_features(ax: Axes, comparison: Comparison) -> None:
    """Test error of every method and s; dashed lines for methods without s."""
    look = styles()
    ticks = sorted({row.n_components for row in comparison.rows if row.n_components is not None})
    for method in comparison.methods:
        rows, style = comparison.of(method), look[method]
        if rows[0].n_components is None:
            ax.axhline(rows[0].error, linewidth=1.2, color=style["color"], linestyle="--")
        else:
            _line(ax, [row.n_components for row in rows], comparison, method)
    _features_axis(ax, ticks)
    ax.set_ylabel(f"test {words.metric(comparison.setup)}")


def error_against_time(ax: Axes, comparison: Comparison) -> None:
    """Test error against total training time."""
    for method in comparison.methods:
        _line(ax, [row.fit_seconds for row in comparison.of(method)], comparison, method)
    _time_axis(ax, [row.fit_seconds for row in comparison.rows])
    ax.set(xlabel="training time in seconds", ylabel=f"test {words.metric(comparison.setup)}")


def epsilon_against_features(ax: Axes, comparison: Comparison) -> None:
    """Spectral epsilon on a sample of rows, where it means something."""
    look = styles()
    ticks = []
    for method in comparison.methods:
        points = [
            (row.n_components, row.epsilon)
            for row in comparison.of(method)
            if row.n_components is not None and row.epsilon is not None
        ]
        if points:
            ticks += [s for s, _ in points]
            ax.plot(*zip(*points, strict=True), markersize=5, linewidth=1.5, **look[method])
    _features_axis(ax, sorted(set(ticks)))
    ax.set_yscale("log")
    ax.set_ylabel("spectral epsilon")


def spectrum(ax: Axes, comparison: Comparison) -> None:
    """Eigenvalues of the kernel matrix, with alpha and the statistical dimension."""
    setup = comparison.setup
    ax.loglog(setup.spectrum_places, setup.spectrum_values, color="#0072B2", linewidth=1.8)
    ax.axhline(setup.alpha, color="#D55E00", linewidth=1.2, linestyle="--",
               label=f"alpha = {setup.alpha:.2g}")  # fmt: skip
    ax.axvline(setup.statistical_dimension, color=GREY, linewidth=1.2, linestyle=":",
               label=f"statistical dimension = {setup.statistical_dimension:.0f}")  # fmt: skip
    ax.set(xlabel="index, largest first", ylabel="eigenvalue of K")
    ax.legend(loc="lower left", frameon=False, labelcolor=INK)


PANELS: tuple[Panel, ...] = (
    ("error against s", error_against_features),
    ("error against time", error_against_time),
    ("epsilon against s", epsilon_against_features),
    ("spectrum", spectrum),
)


def panels(comparison: Comparison) -> list[Panel]:
    """The panels that have something to show for a dataset."""
    growing = any(row.n_components is not None for row in comparison.rows)
    judged = any(row.epsilon is not None for row in comparison.rows)
    shown = {"error against s": growing, "epsilon against s": judged, "spectrum": judged}
    return [panel for panel in PANELS if shown.get(panel[0], True)]


def svg(panel: Callable[[Axes, Comparison], None], comparison: Comparison, key: str) -> str:
    """One panel as an SVG element for a page; ``key`` makes its identifiers unique there."""
    from matplotlib.figure import Figure

    with page_style(key):
        figure = Figure(figsize=PANEL)
        ax = figure.subplots()
        figure.subplots_adjust(left=0.17, right=0.97, top=0.97, bottom=0.16)
        panel(ax, comparison)
        _quiet(ax)
        return as_element(figure, key)


def page_style(key: str) -> Any:
    """Text stays text, in the page's fonts and colour; equal data give equal files."""
    import matplotlib

    ink: Any = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    return matplotlib.rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": key, "font.size": 10.5, **dict.fromkeys(ink, INK)}
    )


def as_element(figure: Figure, key: str) -> str:
    """A figure as an SVG element that scales with its column and takes the page's colour."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'\bid="', f'id="{key}-', text)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{key}-", text)


def _features_axis(ax: Axes, ticks: Sequence[int]) -> None:
    ax.set_xscale("log")
    ax.set_xticks(list(ticks), [f"{s:,}" for s in ticks])
    ax.minorticks_off()
    if len(ticks) == 1:
        ax.set_xlim(ticks[0] / 2, ticks[0] * 2)
    ax.set_xlabel("number of features s")


def _time_axis(ax: Axes, seconds: Sequence[float]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    low, high = min(seconds), max(seconds)
    ax.set_xlim(low / 1.6, high * 1.6)
    ax.xaxis.set_major_locator(LogLocator(numticks=5))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def _line(ax: Axes, x: Sequence[Any], comparison: Comparison, method: str) -> None:
    rows = comparison.of(method)
    ax.errorbar(
        x,
        [row.error for row in rows],
        yerr=[row.spread for row in rows],
        capsize=2.5,
        markersize=5,
        linewidth=1.5,
        elinewidth=1.0,
        **styles()[method],
    )


def _quiet(ax: Axes) -> None:
    """Less ink where there are no data."""
    ax.grid(alpha=0.25, color=GREY)
    ax.spines[["top", "right"]].set_visible(False)
