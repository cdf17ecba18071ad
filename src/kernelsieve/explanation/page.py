"""An explanation as HTML: a table for notebooks, and a self-contained page."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelsieve.explanation import svg
from kernelsieve.explanation.measure import MEASURE
from kernelsieve.explanation.words import (
    by_order,
    columns,
    exactness,
    heading,
    largest_parts,
    number,
    percent,
    same,
    value_text,
)

if TYPE_CHECKING:
    from kernelsieve.explanation.explanation import Explanation, ShapleyValues

MOST_ROWS = 50  # that are explained one by one
MOST_STEPS = 10  # columns of a row that are named
SMALLEST_DRAWN = 0.001  # share of a part
CURVE_POINTS, SURFACE_POINTS = 96, 24
BAND = 2.0  # standard deviations
STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 1.5rem auto; padding: 0 1rem;
       background: Canvas; color: CanvasText; }
h1 { font-size: 1.4rem; margin-bottom: 0.2rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
h1, p, figcaption, td { overflow-wrap: anywhere; }
table { border-collapse: collapse; } td, th { padding: 0.1rem 0.7rem 0.1rem 0; text-align: left; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bar { display: inline-block; height: 0.7em; background: var(--c0); border-radius: 2px; }
.bar.more { background: var(--c1); }
.plots { display: grid; gap: 1rem;
         grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr)); }
figure { margin: 0; min-width: 0; } figcaption { font-weight: 600; }
svg { width: 100%; height: auto; overflow: visible; }
figure table { width: 100%; table-layout: fixed; font-size: .85rem; } figure td.n { width: 5.5em; }
figure td.steps { width: 35%; }
.legend span { margin-right: 1em; } .legend { margin: 0; font-size: .85rem; }
.legend i { display: inline-block; width: .8em; height: .8em; margin-right: .3em; }
p.note { opacity: 0.75; max-width: 46rem; } pre { overflow-x: auto; }
"""


def share_table(found: Explanation, top: int = 12) -> str:
    """The heading, a table of the largest parts with bars, and what shares mean."""
    shown = largest_parts(found, top)
    rows = "".join(
        f"<tr><td>{escape(part.name)}</td><td class='n'>{percent(part.share)}</td>"
        f"<td class='n'>{number(part.deviation)}</td>"
        f"<td><span class='bar{' more' if part.order > 1 else ''}' "
        f"style='display:inline-block;height:0.7em;"
        f"background:{'#c1121f' if part.order > 1 else '#2a6f97'};"
        f"width:{8 * max(0.0, part.share):.2f}em'></span></td></tr>"
        for part in shown
    )
    rest = sum(found.order_shares) - sum(part.share for part in shown)
    if rest > 5e-4:
        rows += f"<tr><td>all other parts</td><td class='n'>{percent(rest)}</td><td></td></tr>"
    said = [by_order(found), columns(found, top), same(found)]
    return (
        f"<p><b>{escape(heading(found))}</b></p>"
        "<table><tr><th>part</th><th class='n'>share</th><th class='n'>std. dev.</th>"
        f"<th></th></tr>{rows}</table>"
        + "".join(f"<p>{escape(text)}</p>" for text in said if text)
        + f"<p class='note'>{escape(' '.join([exactness(found), MEASURE, found.note]).strip())}</p>"
    )


def page(found: Explanation, rows: Any = None, top: int = 12, facts: str = "") -> str:
    """A page with the table, the plots of the largest parts and explanations of rows.

    Parameters
    ----------
    found : Explanation
    rows : rows, as the model takes them, optional
    top : int
    facts : str
        More lines about the model, as plain text.
    """
    parts = [p for p in found.parts[:top] if p.order <= 2 and p.share >= SMALLEST_DRAWN]
    singles = [_curve(found, p.columns[0], p.share) for p in parts if p.order == 1]
    pairs = [_surface(found, p.columns, p.share) for p in parts if p.order == 2]
    body = [f"<h1>Explaining the model: {escape(found.title)}</h1>", share_table(found, top)]
    if facts:
        body.append(f"<h2>The model</h2><pre>{escape(facts)}</pre>")
    if singles:
        body.append("<h2>Effects of single columns</h2>")
        body.append(f"<div class='plots'>{''.join(singles)}</div>")
        body.append(f"<p class='note'>{_about_curves(found)}</p>")
    if pairs:
        body.append("<h2>What pairs of columns do together</h2>")
        body.append(f"<div class='plots'>{''.join(pairs)}</div>")
        body.append(
            "<p class='note'>Beyond the effects of the two columns by themselves: red raises, blue "
            "lowers. Point at a cell, or use the arrow keys, to read its value.</p>"
        )
    if rows is not None:
        body += _rows(found, rows)
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(found.title)}</title><style>{STYLE}{svg.STYLE}</style></head>"
        f"<body>{''.join(body)}<script>{svg.SCRIPT}</script></body></html>\n"
    )


def _about_curves(found: Explanation) -> str:
    where = (
        "Ticks at the bottom show where the rows are. Point at a curve, or use the arrow keys, to "
        "read its values."
    )
    if found.classes is not None and found.classes.chosen is None:
        return f"Probabilities where only this column differs from the mean of the rows. {where}"
    return (
        f"Each curve has mean 0 over the rows. {where} Bands are two posterior standard "
        "deviations, where the model knows them."
    )


def _signed(value: float) -> str:
    return number(value, 3, "+") if value else "0"


def _chance(probability: float) -> str:
    return f"{number(100.0 * probability, 3)} %"


def _curve(found: Explanation, column: str, share: float) -> str:
    """The effect of a column: probabilities of classes, or units of the target."""
    title = f"{column} ({percent(share)})"
    write: Callable[[float], str] = _signed
    if found.classes is not None and found.classes.chosen is None:
        effect = found.partial_dependence(column, points=CURVE_POINTS)
        lines, write = _chances(found, effect.probabilities), _chance
    else:
        effect = found.effect(column, points=CURVE_POINTS)
        heights = effect.effect.reshape(len(effect.values[0]), -1).T
        spreads = [None] * len(heights)
        if effect.deviation is not None:
            spreads = list(BAND * effect.deviation.reshape(len(effect.values[0]), -1).T)
        names = found.outputs or [""]
        lines = [svg.Line(*one) for one in zip(names, heights, spreads, strict=True)]
        lines = _most_moving(lines)
    plot = svg.curve(f"Effect of {title}", effect.values[0], effect.weights[0], lines, write)
    return _figure(title, plot)


def _chances(found: Explanation, probabilities: Any) -> list[svg.Line]:
    """The probabilities of the classes that a column moves most; of two classes, the second."""
    assert found.classes is not None
    names = found.classes.names
    lines = [svg.Line(name, p) for name, p in zip(names, probabilities.T, strict=True)]
    return lines[1:] if len(lines) == 2 else _most_moving(lines)


def _most_moving(lines: list[svg.Line]) -> list[svg.Line]:
    """As many lines as there are colours: those that move most, in their order."""
    spans = [float(np.ptp(line.heights)) for line in lines]
    chosen = np.sort(np.argsort(-np.array(spans), kind="stable")[: svg.COLOURS])
    return [lines[k] for k in chosen]


def _surface(found: Explanation, pair: tuple[str, ...], share: float) -> str:
    """What two columns do together; of several classes, for the one that they move most."""
    effect = found.effect(*pair, points=SURFACE_POINTS)
    heights, title = effect.effect, f"{' × '.join(pair)} ({percent(share)})"
    if found.outputs:
        k = int(np.square(heights).sum(axis=(0, 1)).argmax())
        heights, title = heights[..., k], f"{title}: {found.outputs[k]}"
    across, up = effect.values
    plot = svg.heat_map(f"Effect of {title}", across, up, heights, _signed)
    return _figure(title, plot, f"Across: {pair[0]}. Up: {pair[1]}.")


def _figure(title: str, plot: str, note: str = "") -> str:
    said = f"<div class='legend'>{escape(note)}</div>" if note else ""
    return f"<figure><figcaption>{escape(title)}</figcaption>{plot}{said}<output></output></figure>"


# --- rows ----------------------------------------------------------------------------------------


def _rows(found: Explanation, rows: Any) -> list[str]:
    """A table of steps for each of the first rows."""
    values = found.shapley(rows)
    if values.values.ndim == 3 and values.probabilities is None:
        return ["<p>Rows are explained for one output at a time.</p>"]
    count = min(len(values.values), MOST_ROWS)
    more = f" (the first {count} of {len(values.values)})" if count < len(values.values) else ""
    figures = [_row(values, row) for row in range(count)]
    return [
        f"<h2>Row by row{more}</h2>",
        f"<div class='plots'>{''.join(figures)}</div>",
        "<p class='note'>Shapley values: each column's share of the difference between the "
        f"prediction and the mean{', in log-odds' if found.classes else ''}.</p>",
    ]


def _row(values: ShapleyValues, row: int) -> str:
    """The steps of one row from the mean to the prediction, the largest first."""
    title = f"Row {row + 1}"
    if values.probabilities is not None:
        assert values.classes is not None
        chances = values.probabilities[row]
        if values.classes.chosen is None:
            values = values.of_class(int(chances.argmax()))
        assert values.classes is not None
        explained = values.classes.explained_place
        title += f": {values.classes.names[explained]}, probability {percent(chances[explained])}"
    phi, start = values.values[row], float(values.base)
    order = np.argsort(-np.abs(phi), kind="stable")
    steps = [(_cell(values, row, i), float(phi[i])) for i in order[:MOST_STEPS]]
    if len(order) > MOST_STEPS:
        steps.append(
            (f"{len(order) - MOST_STEPS} other columns", float(phi[order[MOST_STEPS:]].sum()))
        )
    levels = start + np.cumsum([0.0, *(step for _, step in steps)])
    low, span = float(levels.min()), float(np.ptp(levels)) or 1.0
    place: Callable[[float], float] = lambda level: 100.0 * (level - low) / span  # noqa: E731
    lines = [f"<tr><td>mean</td><td class='steps'></td><td class='n'>{number(start)}</td></tr>"]
    for (name, step), before in zip(steps, levels, strict=False):
        left, wide = place(min(before, before + step)), 100.0 * abs(step) / span
        lines.append(
            f"<tr><td>{escape(name)}</td><td class='steps'>"
            f"<span class='bar{' more' if step > 0 else ''}' "
            f"style='margin-left:{left:.1f}%;width:{wide:.1f}%'></span></td>"
            f"<td class='n'>{_signed(step)}</td></tr>"
        )
    lines.append(
        "<tr><td><b>prediction</b></td><td class='steps'></td>"
        f"<td class='n'><b>{number(float(levels[-1]))}</b></td></tr>"
    )
    return (
        f"<figure><figcaption>{escape(title)}</figcaption><table>{''.join(lines)}</table></figure>"
    )


def _cell(values: ShapleyValues, row: int, column: Any) -> str:
    return f"{values.names[column]} = {value_text(values.data[row, column])}"
