"""Plots of a page as SVG: curves, bars and heat maps that say their values where you point.

A plot carries what it says in ``data-plot``; ``SCRIPT`` shows it in the line below the plot, by
pointer, by touch and by the arrow keys. Colours are those of the page, in light and dark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.explanation.words import number, value_text

Array = NDArray[np.float64]

WIDTH, HEIGHT = 360, 218
LEFT, RIGHT, TOP, BOTTOM = 58, 350, 8, 188
MISSING = 22  # pixels for missing values, right of the numbers
MOST_LEVELS = 12  # of a category
MOST_CHARACTERS = 9  # of a label of a level
SHADES = 8  # of a heat map, on each side of 0
COLOURS = 6  # of lines: see STYLE

STYLE = """
svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
svg .axis { stroke: currentColor; opacity: .35; } svg .rug { stroke: currentColor; opacity: .3; }
svg .line { fill: none; stroke-width: 2; } svg .band { opacity: .18; stroke: none; }
svg .mark { stroke: currentColor; opacity: .6; fill: none; visibility: hidden; }
svg:focus-visible { outline: 2px solid currentColor; }
output { display: block; min-height: 3em; font-size: .85rem; font-variant-numeric: tabular-nums; }
:root { --c0: #2a6f97; --c1: #c1121f; --c2: #2a7d6f; --c3: #a86500; --c4: #7b2cbf; --c5: #5c636a; }
@media (prefers-color-scheme: dark) { :root {
  --c0: #6cb6e0; --c1: #ff7b84; --c2: #5fc7b5; --c3: #f0b45c; --c4: #c39bf0; --c5: #adb5bd; } }
"""
SCRIPT = (
    f"const LEFT = {LEFT}, RIGHT = {RIGHT}, TOP = {TOP}, BOTTOM = {BOTTOM};"
    + """
for (const svg of document.querySelectorAll('svg[data-plot]')) {
  const plot = JSON.parse(svg.dataset.plot), mark = svg.querySelector('.mark');
  const out = svg.parentNode.querySelector('output');
  const box = {l: LEFT, r: RIGHT, t: TOP, b: BOTTOM};
  const keep = (k, n) => Math.max(0, Math.min(n - 1, k));
  let i = 0, j = 0;
  const show = () => {
    mark.style.visibility = 'visible';
    if (plot.text) {
      mark.setAttribute('d', `M${plot.px[i]} ${box.t}V${box.b}`);
      out.textContent = plot.text[i];
      return;
    }
    const w = (box.r - box.l) / plot.x.length, h = (box.b - box.t) / plot.y.length;
    mark.setAttribute('d', `M${box.l + i * w} ${box.b - (j + 1) * h}h${w}v${h}h${-w}z`);
    out.textContent = `${plot.x[i]}, ${plot.y[j]}: ${plot.v[j][i]}`;
  };
  svg.addEventListener('pointermove', event => {
    const point = new DOMPoint(event.clientX, event.clientY);
    const p = point.matrixTransform(svg.getScreenCTM().inverse());
    if (plot.text) {
      const far = plot.px.map(x => Math.abs(x - p.x));
      i = far.indexOf(Math.min(...far));
    } else {
      i = keep(Math.floor((p.x - box.l) / (box.r - box.l) * plot.x.length), plot.x.length);
      j = keep(Math.floor((box.b - p.y) / (box.b - box.t) * plot.y.length), plot.y.length);
    }
    show();
  });
  svg.addEventListener('keydown', event => {
    const steps = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]};
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    i = keep(i + step[0], (plot.text || plot.x).length);
    j = keep(j + step[1], (plot.y || [0]).length);
    show();
  });
}
"""
)


@dataclass(frozen=True)
class Line:
    """One line of a plot.

    Attributes
    ----------
    name : str
        Empty for a single line.
    heights : ndarray of shape (m,)
    spread : ndarray of shape (m,) or None
        Half the width of a band around it.
    """

    name: str
    heights: Array
    spread: Array | None = None


def curve(
    label: str,
    values: NDArray[Any],
    weights: Array,
    lines: Sequence[Line],
    write: Callable[[float], str],
) -> str:
    """Lines over a column of numbers or times, or bars over the levels of a category.

    Parameters
    ----------
    label : str
        What the plot shows, for those who do not see it.
    values : ndarray of shape (m,)
        Of the column, in ascending order.
    weights : ndarray of shape (m,)
        The share of rows at each value.
    lines : sequence of Line
    write : callable
        From a height to a text.
    """
    if values.dtype.kind not in "fiuM":
        shown = np.sort(np.argsort(-weights, kind="stable")[:MOST_LEVELS])
        values, weights = values[shown], weights[shown]
        lines = [Line(one.name, one.heights[shown], _part(one.spread, shown)) for one in lines]
    y, low, high = _vertical(lines)
    texts = [_said(value_text(v), k, lines, write) for k, v in enumerate(values)]
    body = _grid(low, high, y, write)
    if values.dtype.kind in "fiuM":
        px, drawn = _over_numbers(values, weights, lines, y)
    else:
        px, drawn = _over_levels(values, lines, y)
    plot = {"px": [round(float(x), 1) for x in px], "text": texts}
    return _figure(label, plot, body + drawn) + _legend(lines)


def heat_map(
    label: str,
    across: NDArray[Any],
    up: NDArray[Any],
    heights: Array,
    write: Callable[[float], str],
) -> str:
    """Cells for all pairs of values of two columns: red above 0, blue below.

    Parameters
    ----------
    label : str
    across, up : ndarray of shape (m,) and (k,)
    heights : ndarray of shape (m, k)
    write : callable
    """
    wide, high = (RIGHT - LEFT) / len(across), (BOTTOM - TOP) / len(up)
    largest = float(np.abs(heights).max()) or 1.0
    shades = np.rint(SHADES * heights / largest).astype(int)
    cells: dict[int, list[str]] = {}
    for (i, j), shade in np.ndenumerate(shades):
        if shade:
            # A little larger than the cell: no gaps between neighbours.
            corner = f"M{LEFT + i * wide:.1f} {BOTTOM - (j + 1) * high:.1f}"
            cells.setdefault(shade, []).append(f"{corner}h{wide + 0.3:.1f}v{high + 0.3:.1f}h-9z")
    body = "".join(
        f"<path d='{''.join(paths).replace('h-9z', f'h-{wide + 0.3:.1f}z')}' "
        f"fill='var(--c{int(shade > 0)})' fill-opacity='{abs(shade) / SHADES:.2f}'/>"
        for shade, paths in sorted(cells.items())
    )
    body += f"<path class='axis' fill='none' d='M{LEFT} {TOP}V{BOTTOM}H{RIGHT}'/>"
    for k in _few_places(len(across), 4):
        x = LEFT + (k + 0.5) * wide
        body += _text(x, BOTTOM + 15, _tick(across[k]), "middle")
    for k in _few_places(len(up), 5):
        y = BOTTOM - (k + 0.5) * high + 4
        body += _text(LEFT - 5, y, _tick(up[k]), "end")
    plot = {
        "x": [value_text(v) for v in across],
        "y": [value_text(v) for v in up],
        "v": [[write(float(v)) for v in row] for row in heights.T],
    }
    return _figure(label, plot, body)


# --- parts of a plot -----------------------------------------------------------------------------


def _figure(label: str, plot: dict[str, Any], body: str) -> str:
    return (
        f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' tabindex='0' aria-label='{escape(label)}' "
        f"data-plot='{escape(json.dumps(plot, ensure_ascii=False, separators=(',', ':')))}'>{body}"
        "<path class='mark'/></svg>"
    )


def _legend(lines: Sequence[Line]) -> str:
    if len(lines) < 2:
        return ""
    return "<p class='legend'>" + "".join(
        f"<span><i style='background:var(--c{k % COLOURS})'></i>{escape(line.name)}</span>"
        for k, line in enumerate(lines)
    ) + "</p>"  # fmt: skip


def _said(value: str, k: int, lines: Sequence[Line], write: Callable[[float], str]) -> str:
    """What the plot says at one value."""
    said = []
    for line in lines:
        spread = "" if line.spread is None else f" ± {write(float(line.spread[k])).lstrip('+')}"
        name = f"{line.name} " if line.name else ""
        said.append(f"{name}{write(float(line.heights[k]))}{spread}")
    return f"{value}: {', '.join(said)}"


def _vertical(lines: Sequence[Line]) -> tuple[Callable[[Any], Any], float, float]:
    """From heights to pixels, and the range of heights."""
    ends = [line.heights for line in lines]
    for line in lines:
        if line.spread is not None:
            ends += [line.heights - line.spread, line.heights + line.spread]
    low, high = min(0.0, *(e.min() for e in ends)), max(0.0, *(e.max() for e in ends))
    high = high if high > low else low + 1.0
    return lambda v: BOTTOM - (BOTTOM - TOP) * (v - low) / (high - low), low, high


def _grid(low: float, high: float, y: Callable[[Any], Any], write: Callable[[float], str]) -> str:
    ticks = [tick for tick in nice_ticks(low, high, 5) if low <= tick <= high]
    return "".join(
        f"<path class='axis' d='M{LEFT} {y(tick):.1f}H{RIGHT}'/>"
        + _text(LEFT - 5, y(tick) + 4, write(tick), "end")
        for tick in ticks
    )


def _over_numbers(
    values: NDArray[Any], weights: Array, lines: Sequence[Line], y: Callable[[Any], Any]
) -> tuple[Array, str]:
    """Pixels of the values, and lines, bands and a rug over them; missing values come last."""
    times = values.dtype.kind == "M"
    numbers = values.astype("datetime64[s]").astype(np.int64) if times else values
    lost = np.isnat(values) if times else np.isnan(values.astype(np.float64))
    numbers = numbers.astype(np.float64)
    known = numbers[~lost]
    end = RIGHT - (MISSING if lost.any() else 0)
    low, high = (known.min(), known.max()) if len(known) else (0.0, 0.0)
    span = high - low or 1.0
    px = np.where(lost, RIGHT, LEFT + (end - LEFT) * (numbers - low) / span)
    drawn = "".join(
        f"<path class='rug' d='M{x:.1f} {BOTTOM}v-{2 + 8 * h:.1f}'/>"
        for x, h in zip(px, np.sqrt(weights / weights.max()), strict=True)
    )
    for k, line in enumerate(lines):
        colour = f"var(--c{k % COLOURS})"
        x, heights = px[~lost], line.heights[~lost]
        if line.spread is not None:
            upper, lower = heights + line.spread[~lost], heights - line.spread[~lost]
            around = [*_pixels(x, y(upper)), *_pixels(x[::-1], y(lower[::-1]))]
            drawn += f"<path class='band' fill='{colour}' d='M{'L'.join(around)}z'/>"
        if len(x):
            path = "L".join(_pixels(x, y(heights)))
            drawn += f"<path class='line' stroke='{colour}' d='M{path}'/>"
        for x_lost, height in zip(px[lost], line.heights[lost], strict=True):
            drawn += f"<circle cx='{x_lost}' cy='{y(height):.1f}' r='4' fill='{colour}'/>"
    if lost.any():
        drawn += _text(RIGHT + 8, BOTTOM + 30, "missing", "end")
    if times:
        ticks = np.linspace(low, high, 3)
        unit = "datetime64[D]" if span > 3 * 86400 else "datetime64[s]"
        names = [value_text(np.datetime64(int(t), "s").astype(unit)) for t in ticks]
    else:
        ticks = np.array([t for t in nice_ticks(low, low + span, 4) if low <= t <= high])
        ticks = ticks if len(ticks) else np.array([low])
        names = [number(tick) for tick in ticks]
    for tick, name in zip(ticks, names, strict=True):
        x = LEFT + (end - LEFT) * (tick - low) / span
        drawn += _text(x, BOTTOM + 15, name, "start" if x < LEFT + 20 else "middle")
    return px, drawn


def _over_levels(
    values: NDArray[Any], lines: Sequence[Line], y: Callable[[Any], Any]
) -> tuple[Array, str]:
    """Pixels of the levels, and bars."""
    room = (RIGHT - LEFT) / len(values)
    px: Array = LEFT + room * (np.arange(len(values), dtype=np.float64) + 0.5)
    wide = 0.8 * room / len(lines)
    drawn = ""
    for k, line in enumerate(lines):
        for x, height in zip(px + wide * (k - 0.5 * len(lines)), line.heights, strict=True):
            top, bottom = sorted([y(height), y(0.0)])
            drawn += (
                f"<rect x='{x:.1f}' y='{top:.1f}' width='{wide:.1f}' "
                f"height='{max(0.5, bottom - top):.1f}' fill='var(--c{k % COLOURS})'/>"
            )
    short = [str(v) if len(str(v)) <= MOST_CHARACTERS else f"{str(v)[:8]}…" for v in values]
    turned = max(map(len, short)) * 6.0 > room
    for x, name in zip(px, short, strict=True):
        drawn += _text(x, BOTTOM + 15, name, "end" if turned else "middle", turned)
    return px, drawn


def _tick(value: Any) -> str:
    return number(value, 3) if isinstance(value, int | float | np.number) else value_text(value)


def _text(x: float, y: float, text: str, anchor: str, turned: bool = False) -> str:
    turn = f" transform='rotate(-40 {x:.1f} {y - 6:.1f})'" if turned else ""
    short = text if len(text) <= 16 else text[:15] + "…"
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'{turn}>{escape(short)}</text>"


def _pixels(x: Array, y: Array) -> list[str]:
    return [f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True)]


def _part(values: Array | None, chosen: NDArray[np.int64]) -> Array | None:
    return None if values is None else values[chosen]


def _few_places(count: int, most: int) -> list[int]:
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(int)).tolist()


def nice_ticks(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, at most so many between two numbers."""
    rough = (high - low) / max(1, most)
    power = 10.0 ** np.floor(np.log10(rough)) if rough > 0 else 1.0
    step = next(power * m for m in (1.0, 2.0, 5.0, 10.0) if power * m >= rough)
    first = np.ceil(low / step)
    return [float(step * (first + k)) for k in range(most + 2) if step * (first + k) <= high]
