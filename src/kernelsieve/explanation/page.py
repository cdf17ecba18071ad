"""An explanation as HTML: a table for notebooks, and a self-contained page."""

from __future__ import annotations

import hashlib
import io
import re
from html import escape
from typing import TYPE_CHECKING, Any

from kernelsieve.explanation.measure import MEASURE
from kernelsieve.explanation.words import ORDERS, heading, largest_parts, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kernelsieve.explanation.explanation import Explanation

MOST_ROWS = 50  # that are explained one by one
SMALLEST_DRAWN = 0.001  # share of a part
STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
       background: Canvas; color: CanvasText; }
h1 { font-size: 1.5rem; margin-bottom: 0.2rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { padding: 0.15rem 0.8rem 0.15rem 0; text-align: left; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.bar { display: inline-block; height: 0.7em; background: #2a6f97; border-radius: 2px; }
.bar.more { background: #c1121f; }
figure { display: inline-block; margin: 0 1rem 1rem 0; vertical-align: top; max-width: 100%; }
figure svg { max-width: 100%; height: auto; }
p.note { opacity: 0.75; max-width: 46rem; }
"""
INK = "#010203"  # stands for the colour of text, which depends on light or dark


def share_table(found: Explanation, top: int = 12) -> str:
    """The heading, a table of the largest parts with bars, and what shares mean."""
    shown = largest_parts(found, top)
    rows = "".join(
        f"<tr><td>{escape(part.name)}</td><td class='n'>{percent(part.share)}</td>"
        f"<td class='n'>{part.deviation:.4g}</td>"
        f"<td><span class='bar{' more' if part.order > 1 else ''}' "
        f"style='display:inline-block;height:0.7em;"
        f"background:{'#c1121f' if part.order > 1 else '#2a6f97'};"
        f"width:{10 * max(0.0, part.share):.2f}em'></span></td></tr>"
        for part in shown
    )
    rest = sum(found.order_shares) - sum(part.share for part in shown)
    if rest > 5e-4:
        rows += f"<tr><td>all other parts</td><td class='n'>{percent(rest)}</td><td></td></tr>"
    orders = ", ".join(
        f"{name} {percent(share)}" for name, share in zip(ORDERS, found.order_shares, strict=True)
    )
    return (
        f"<p><b>{escape(heading(found))}</b></p>"
        "<table><tr><th>part</th><th class='n'>share</th><th class='n'>standard deviation</th>"
        f"<th></th></tr>{rows}</table>"
        f"<p>By order: {orders}.</p><p class='note'>{escape(MEASURE)}</p>"
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
    from kernelsieve.explanation.drawing import curve, surface

    parts = [p for p in found.parts[:top] if p.order <= 2 and p.share >= SMALLEST_DRAWN]
    singles = [p for p in parts if p.order == 1]
    pairs = [p for p in parts if p.order == 2]
    body = [f"<h1>What the model says: {escape(found.title)}</h1>", share_table(found, top)]
    if facts:
        body.append(f"<h2>The model</h2><pre>{escape(facts)}</pre>")
    if singles:
        body.append("<h2>Effects of single columns</h2>")
        body += [_figure(lambda ax, p=p: curve(found, p.columns, ax)) for p in singles]
        body.append(
            "<p class='note'>Each curve has mean 0 over the rows; ticks at the bottom show where "
            "the rows are. Bands are two posterior standard deviations, where the model knows "
            "them.</p>"
        )
    if pairs:
        body.append("<h2>What pairs of columns do together</h2>")
        body += [_figure(lambda ax, p=p: surface(found, p.columns, ax)) for p in pairs]
        body.append("<p class='note'>Beyond the effects of the two columns by themselves.</p>")
    if rows is not None:
        body += _rows(found, rows)
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{escape(found.title)}</title><style>{STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def _rows(found: Explanation, rows: Any) -> list[str]:
    """A waterfall for each of the first rows."""
    from kernelsieve.explanation.drawing import waterfall

    values = found.shapley(rows)
    if values.values.ndim == 3:
        return ["<p>Rows are explained for one output at a time.</p>"]
    count = min(len(values.values), MOST_ROWS)
    more = f" (the first {count} of {len(values.values)})" if count < len(values.values) else ""
    body = [f"<h2>Row by row{more}</h2>"]
    for row in range(count):
        figure = _figure(lambda ax, row=row: waterfall(values, row, 10, ax))
        body.append(figure.replace("<figure>", f"<figure><figcaption>Row {row + 1}</figcaption>"))
    body.append(
        "<p class='note'>Shapley values: each column's share of the difference between the "
        "prediction and the mean.</p>"
    )
    return body


def _figure(draw: Any) -> str:
    """A plot as SVG whose text has the colour of the page's text."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    colours = dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
    )
    # The same bytes every time: ids by content, no date.
    settings: Any = {**colours, "svg.fonttype": "none", "svg.hashsalt": "kernelsieve"}
    with rc_context(settings):
        figure = Figure(figsize=(5.0, 3.4), layout="constrained")
        figure.patch.set_alpha(0.0)
        ax = figure.subplots()
        ax.patch.set_alpha(0.0)
        draw(ax)
        return f"<figure>{_svg(figure)}</figure>"


def _svg(figure: Figure) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None}, dpi=110)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    # Ids are unique within one picture only: the picture's own hash makes them so in a page.
    salt = f"k{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}-"
    text = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{salt}", text)
    return text.replace(INK, "currentColor")
