"""An explanation as text."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from kernelsieve.explanation.measure import MEASURE
from kernelsieve.tables.facts import printable

if TYPE_CHECKING:
    from kernelsieve.explanation.explanation import Explanation, Part

ORDERS = ("single columns", "pairs", "triples", "more")
BAR = 20  # characters of a share of 100 %
MOST_NAME = 36
SMALLEST_SHOWN = 5e-4  # share


def percent(share: float) -> str:
    """A share for people: '12.3 %'."""
    return f"{100.0 * share:.1f} %"


def largest_parts(found: Explanation, top: int) -> list[Part]:
    """The parts that are worth a line."""
    return [part for part in found.parts[:top] if part.share >= SMALLEST_SHOWN]


def as_text(found: Explanation, top: int) -> str:
    """Format an explanation in lines of at most 80 characters."""
    shown = largest_parts(found, top)
    names = [printable(part.name, MOST_NAME) for part in shown]
    width = max([16, *map(len, names)])
    lines = [heading(found), ""]
    lines.append(f"{'Part':<{width}}  {'share':>7}  {'std. dev.':>9}")
    lines += [
        f"{name:<{width}}  {percent(part.share):>7}  {part.deviation:>9.4g}  "
        f"{'#' * round(BAR * part.share)}".rstrip()
        for name, part in zip(names, shown, strict=True)
    ]
    rest = sum(found.order_shares) - sum(part.share for part in shown)
    if rest > 5e-4:
        lines.append(f"{'all other parts':<{width}}  {percent(rest):>7}")
    orders = ", ".join(
        f"{name} {percent(share)}" for name, share in zip(ORDERS, found.order_shares, strict=True)
    )
    totals = [
        f"{printable(name, MOST_NAME)} {percent(share)}"
        for name, share in list(found.importance.items())[:top]
        if share >= SMALLEST_SHOWN
    ]
    columns = f"Columns, with all parts they take part in: {', '.join(totals)}."
    return "\n".join(
        [*lines, "", *wrap(f"By order: {orders}.", 80), *wrap(columns, 80), *wrap(MEASURE, 80)]
    )


def heading(found: Explanation) -> str:
    """What is explained, its mean and its standard deviation."""
    deviation = f"standard deviation {np.sqrt(found.variance):.4g}"
    if found.outputs:
        return f"{found.title}, {len(found.outputs)} outputs together: {deviation}"
    return f"{found.title}: mean {found.constant:.4g}, {deviation}"
