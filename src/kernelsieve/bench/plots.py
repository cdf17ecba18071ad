"""The picture of a comparison: error against s, and error against training time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelsieve.bench.records import Summary
from kernelsieve.bench.table import by_dataset

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind can tell apart; without yellow, too pale here.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = "osD^vPX*"
REFERENCE = "#555555"  # methods without s
DASHES = ("--", ":", "-.")


def draw(summaries: Iterable[Summary]) -> Figure:
    """One row of two panels for each dataset, and one legend for all of them."""
    from matplotlib.figure import Figure

    rows = list(by_dataset(summaries))
    styles = line_styles([row for dataset in rows for row in dataset])
    figure = Figure(figsize=(10.0, 3.1 * len(rows) + 0.9), layout="constrained", dpi=150)
    panels = figure.subplots(len(rows), 2, squeeze=False, sharey="row")
    for dataset, (by_components, by_time) in zip(rows, panels, strict=True):
        _error_against_components(by_components, dataset, styles)
        _error_against_time(by_time, dataset, styles)
    handles = {
        label: handle
        for panel in panels.flat
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    shown = [name for name in styles if name in handles]
    figure.legend(
        [handles[name] for name in shown], shown, loc="outside lower center", ncols=4, frameon=False
    )
    return figure


def save(summaries: Iterable[Summary], path: Path) -> None:
    """Draw, and write a PNG."""
    draw(summaries).savefig(path)


def line_styles(rows: Sequence[Summary]) -> dict[str, dict[str, Any]]:
    """Colour, marker and dashes of every method, the same in all panels."""
    featured = list(dict.fromkeys(row.method for row in rows if row.n_components is not None))
    plain = list(dict.fromkeys(row.method for row in rows if row.n_components is None))
    styles: dict[str, dict[str, Any]] = {}
    for i, method in enumerate(plain):
        styles[method] = {
            "color": REFERENCE,
            "marker": "xP"[i % 2],
            "linestyle": DASHES[i % len(DASHES)],
        }
    for i, method in enumerate(featured):
        styles[method] = {
            "color": COLOURS[i % len(COLOURS)],
            "marker": MARKERS[i % len(MARKERS)],
            "linestyle": DASHES[(i // len(COLOURS) - 1) % 3] if i >= len(COLOURS) else "-",
        }
    return styles


def _error_against_components(
    panel: Any, rows: Sequence[Summary], styles: dict[str, dict[str, Any]]
) -> None:
    run = rows[0].runs[0]
    for method, points in _by_method(rows):
        style = styles[method]
        if points[0].n_components is None:
            panel.axhline(
                points[0].error,
                color=style["color"],
                linestyle=style["linestyle"],
                linewidth=1.3,
                label=method,
            )
        else:
            _line(panel, [p.n_components for p in points], points, method, style)
    ticks = sorted({row.n_components for row in rows if row.n_components is not None})
    panel.set_xscale("log")
    panel.set_xticks(ticks, [str(s) for s in ticks])
    panel.minorticks_off()
    panel.set_xlabel("number of features s")
    panel.set_ylabel(f"test {run.metric}")
    panel.set_title(
        f"{run.dataset}  ({run.n_train:,} training rows, {run.n_inputs:,} inputs)",
        loc="left",
        fontsize="medium",
        fontweight="bold",
    )
    panel.grid(alpha=0.25)


def _error_against_time(
    panel: Any, rows: Sequence[Summary], styles: dict[str, dict[str, Any]]
) -> None:
    for method, points in _by_method(rows):
        style, seconds = styles[method], [p.fit_seconds for p in points]
        if points[0].n_components is None:
            panel.plot(seconds, [points[0].error], label=method, markersize=8.0, **style)
        else:
            _line(panel, seconds, points, method, style)
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter("{x:g}")
    panel.set_xlabel("training time in seconds")
    panel.tick_params(labelleft=True)
    panel.grid(alpha=0.25)


def _line(
    panel: Any, x: Sequence[Any], points: Sequence[Summary], label: str, style: dict[str, Any]
) -> None:
    panel.errorbar(
        x,
        [p.error for p in points],
        yerr=[p.spread for p in points],
        label=label,
        capsize=2.5,
        markersize=5.5,
        linewidth=1.5,
        elinewidth=1.0,
        **style,
    )


def _by_method(rows: Sequence[Summary]) -> list[tuple[str, list[Summary]]]:
    methods = dict.fromkeys(row.method for row in rows)
    return [(method, [row for row in rows if row.method == method]) for method in methods]
