"""The pictures of a comparison: error against s and time, epsilon against s, the spectrum."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelsieve._files import replacing
from kernelsieve.bench import words
from kernelsieve.bench.methods import METHODS, PAPER_METHODS
from kernelsieve.bench.records import Comparison, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind can tell apart; without yellow, too pale here.
COLOURS = ("#0072B2", "#E69F00", "#CC79A7", "#009E73", "#D55E00", "#56B4E9")
MARKERS = "osD^vPX*"
REFERENCE = "#555555"  # methods without s
DASHES = ("--", ":", "-.")
GREY = "#666666"
PANEL = (4.4, 3.3)  # inches

Panel = tuple[str, Callable[["Axes", Comparison], None]]


def styles() -> dict[str, dict[str, Any]]:
    """Colour, marker and dashes of every method, the same in all pictures."""
    found: dict[str, dict[str, Any]] = {}
    others = [m for m in METHODS if m not in PAPER_METHODS and METHODS[m].has_features]
    for i, method in enumerate((*PAPER_METHODS, *others)):
        found[method] = {
            "color": COLOURS[i % len(COLOURS)],
            "marker": MARKERS[i % len(MARKERS)],
            "linestyle": "-" if i < len(PAPER_METHODS) else DASHES[(i // len(COLOURS)) % 3],
        }
    for i, method in enumerate(m for m in METHODS if not METHODS[m].has_features):
        found[method] = {"color": REFERENCE, "marker": "xP"[i % 2], "linestyle": DASHES[i % 3]}
    return found


def error_against_features(ax: Axes, comparison: Comparison) -> None:
    """Test error of every method and s; dashed lines for methods without s."""
    look = styles()
    for method in comparison.methods:
        rows, style = comparison.of(method), look[method]
        if rows[0].n_components is None:
            line = {key: style[key] for key in ("color", "linestyle")}
            ax.axhline(rows[0].error, linewidth=1.2, label=words.label(method), **line)
        else:
            _line(ax, [r.n_components for r in rows], rows, style)
    _features_axis(ax, comparison)
    ax.set_ylabel("test RMSE")


def error_against_time(ax: Axes, comparison: Comparison) -> None:
    """Test error against total training time."""
    look = styles()
    for method in comparison.methods:
        rows = comparison.of(method)
        _line(ax, [r.fit_seconds for r in rows], rows, look[method])
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set(xlabel="training time in seconds", ylabel="test RMSE")


def epsilon_against_features(ax: Axes, comparison: Comparison) -> None:
    """Spectral epsilon on a sample of rows, where it means something."""
    look = styles()
    for method in comparison.methods:
        points = [
            (row.n_components, row.epsilon)
            for row in comparison.of(method)
            if row.n_components is not None and row.epsilon is not None
        ]
        if points:
            style = look[method]
            ax.plot(*zip(*points, strict=True), markersize=5, linewidth=1.5, **style)
    _features_axis(ax, comparison)
    ax.set_yscale("log")
    ax.set_ylabel("spectral epsilon")


def spectrum(ax: Axes, comparison: Comparison) -> None:
    """Eigenvalues of the kernel matrix, with alpha and the statistical dimension."""
    setup = comparison.setup
    ax.loglog(setup.spectrum_places, setup.spectrum_values, color=COLOURS[0], linewidth=1.8)
    ax.axhline(setup.alpha, color="#c1121f", linewidth=1.2, linestyle="--",
               label=rf"$\alpha$ = {setup.alpha:.2g}")  # fmt: skip
    ax.axvline(setup.statistical_dimension, color=GREY, linewidth=1.2, linestyle=":",
               label=rf"$s_\alpha$ = {setup.statistical_dimension:.0f}")  # fmt: skip
    ax.set(xlabel="index, largest first", ylabel="eigenvalue of K")
    ax.legend(loc="upper right", edgecolor="none", framealpha=0.9)
    _quiet(ax)


PANELS: tuple[Panel, ...] = (
    ("error against s", error_against_features),
    ("error against time", error_against_time),
    ("epsilon against s", epsilon_against_features),
    ("spectrum", spectrum),
)


def draw(comparisons: Sequence[Comparison]) -> Figure:
    """A row of panels for each dataset, and one legend for all of them."""
    from matplotlib.figure import Figure

    n = len(comparisons)
    size = (PANEL[0] * len(PANELS) * 0.85, PANEL[1] * n * 0.85 + 0.5)
    figure = Figure(figsize=size, layout="constrained", dpi=110)
    axes = figure.subplots(n, len(PANELS), squeeze=False)
    for comparison, row in zip(comparisons, axes, strict=True):
        for ax, (title, panel) in zip(row, PANELS, strict=True):
            panel(ax, comparison)
            _quiet(ax)
            ax.set_title(f"{comparison.setup.dataset}: {title}", loc="left", fontsize="medium")
    handles = {
        label: handle
        for ax in axes[:, 0]
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center",
        ncols=min(len(handles), 9), frameon=False,
    )  # fmt: skip
    return figure


def save(comparisons: Sequence[Comparison], path: Path) -> None:
    """Draw, and write a PNG."""
    with replacing(path) as file:
        draw(comparisons).savefig(file, format="png")


def svg(panel: Callable[[Axes, Comparison], None], comparison: Comparison, key: str) -> str:
    """One panel as an SVG element for a page; ``key`` makes its identifiers unique there."""
    import matplotlib
    from matplotlib.figure import Figure

    # Text stays text, in the fonts of the page; a fixed salt, so that equal data give equal files.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": key, "font.size": 10.5}):
        figure = Figure(figsize=PANEL, layout="constrained")
        ax = figure.subplots()
        panel(ax, comparison)
        _quiet(ax)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return _embedded(file.getvalue(), key)


def _embedded(text: str, key: str) -> str:
    """Only the element, scaling with its column; identifiers and references get the key."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'\bid="', f'id="{key}-', text)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{key}-", text)


def _features_axis(ax: Axes, comparison: Comparison) -> None:
    ticks = sorted({row.n_components for row in comparison.rows if row.n_components is not None})
    ax.set_xscale("log")
    ax.set_xticks(ticks, [str(s) for s in ticks])
    ax.minorticks_off()
    ax.set_xlabel("number of features s")


def _line(ax: Axes, x: Sequence[Any], rows: Sequence[Summary], style: dict[str, Any]) -> None:
    ax.errorbar(
        x,
        [r.error for r in rows],
        yerr=[r.spread for r in rows],
        label=words.label(rows[0].method),
        capsize=2.5,
        markersize=5,
        linewidth=1.5,
        elinewidth=1.0,
        **style,
    )


def _quiet(ax: Axes) -> None:
    """Less ink where there are no data."""
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
