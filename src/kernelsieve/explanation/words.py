"""An explanation as text."""

from __future__ import annotations

from datetime import datetime
from math import floor, log10
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelsieve.explanation.measure import MEASURE

if TYPE_CHECKING:
    from kernelsieve.explanation.explanation import Explanation, Part

ORDERS = ("single columns", "pairs", "triples", "more")
BAR = 20  # characters of a share of 100 %
MOST_NAME = 36
SMALLEST_SHOWN = 5e-4  # share


def percent(share: float) -> str:
    """A share for people: '12.3 %'."""
    return f"{100.0 * share:.1f} %"


def number(value: Any, digits: int = 4, sign: str = "") -> str:
    """A number as people write it: '23,820', '0.0012'."""
    value = float(value)
    if not np.isfinite(value):
        return "missing" if value != value else f"{value:{sign}}"
    size = abs(value)
    if size == 0.0:
        return "0"
    if not 1e-5 <= size < 1e15:
        return f"{value:{sign}.{digits}g}"
    places = max(0, digits - 1 - floor(log10(size)))
    text = f"{value:{sign},.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def value_text(value: Any) -> str:
    """A value of a column as people write it: a number, a date, a text."""
    if value is None:
        return "missing"
    if isinstance(value, datetime):
        value = np.datetime64(value, "s")
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            return "missing"
        whole = value == value.astype("datetime64[D]")
        return str(value.astype("datetime64[D]" if whole else "datetime64[m]")).replace("T", " ")
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        return str(value)
    return number(value, 6)


def printable(text: str, width: int = 80) -> str:
    """Make a line safe for a terminal and cut it at ``width`` characters."""
    # Names may come from a stranger's file: control characters are shown, not sent.
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text if len(text) <= width else text[: width - 1] + "…"


def largest_parts(found: Explanation, top: int) -> list[Part]:
    """The parts that are worth a line."""
    return [part for part in found.parts[:top] if part.share >= SMALLEST_SHOWN]


def as_text(found: Explanation, top: int) -> str:
    """Format an explanation in lines of at most 80 characters."""
    shown = largest_parts(found, top)
    names = [printable(part.name, MOST_NAME) for part in shown]
    width = max([16, *map(len, names)])
    lines = [*wrap(heading(found), 80), ""]
    lines.append(f"{'Part':<{width}}  {'share':>7}  {'std. dev.':>9}")
    lines += [
        f"{name:<{width}}  {percent(part.share):>7}  {number(part.deviation):>9}  "
        f"{'#' * round(BAR * part.share)}".rstrip()
        for name, part in zip(names, shown, strict=True)
    ]
    rest = sum(found.order_shares) - sum(part.share for part in shown)
    if rest > 5e-4:
        lines.append(f"{'all other parts':<{width}}  {percent(rest):>7}")
    paragraphs = [
        by_order(found),
        columns(found, top),
        same(found),
        exactness(found),
        MEASURE,
        found.note,
    ]
    for paragraph in paragraphs:
        if paragraph:
            lines += ["", *wrap(paragraph, 80)]
    return "\n".join(lines)


def by_order(found: Explanation) -> str:
    """The shares of single columns, pairs, and so on: those that there are."""
    shares = zip(ORDERS, found.order_shares, strict=True)
    said = [f"{name} {percent(share)}" for name, share in shares if share >= SMALLEST_SHOWN]
    return f"By the number of columns: {', '.join(said)}." if said else ""


def columns(found: Explanation, top: int) -> str:
    """The importances of columns, with standard errors where they show."""
    errors = found.importance_errors
    said = []
    for name, share in list(found.importance.items())[:top]:
        if share >= SMALLEST_SHOWN:
            error = errors[name]
            more = f" (± {percent(error)})" if error >= SMALLEST_SHOWN else ""
            said.append(f"{printable(name, MOST_NAME)} {percent(share)}{more}")
    return f"Columns, alone and with others: {', '.join(said)}." if said else ""


def same(found: Explanation) -> str:
    """Which columns say the same."""
    groups = [
        f"{' and '.join(printable(each, MOST_NAME) for each in (name, *others))} say the same, and "
        f"are shown together as {printable(name, MOST_NAME)}."
        for name, others in found.same.items()
    ]
    return " ".join(groups)


def exactness(found: Explanation) -> str:
    """What is exact, and what is estimated."""
    if not found.n_sampled:
        return "All shares are exact."
    largest = max(found.importance_errors.values(), default=0.0)
    return (
        "Shares of single columns and pairs are exact. Those of three and more columns together "
        f"are estimated on {found.n_sampled:,} drawn rows, and so is what they add to the columns: "
        f"one standard error is at most {number(100.0 * largest, 2)} % of the variance."
    )


def heading(found: Explanation) -> str:
    """What is explained, its mean and its standard deviation."""
    deviation = f"standard deviation {number(np.sqrt(found.variance))}"
    if found.outputs and found.classes is not None:
        return (
            f"{found.title}, {len(found.outputs)} classes together. Effects are log-odds of each "
            f"class against the mean of the others: {deviation}"
        )
    if found.outputs:
        return f"{found.title}, {len(found.outputs)} outputs together: {deviation}"
    of = f" ({found.unit})" if found.unit else ""
    return f"{found.title}{of}: mean {number(found.constant)}, {deviation}"
