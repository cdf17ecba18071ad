"""Numbers as people write them."""

from __future__ import annotations

import math

DIGITS = 4
LARGEST, SMALLEST = 1e15, 1e-4  # beyond, an exponent is easier to read


def figure(value: float, digits: int = DIGITS) -> str:
    """Round a number to some digits, or to a whole number if it has more.

    Examples
    --------
    >>> figure(23820.4), figure(590.61), figure(0.99541), figure(2.0), figure(3.1e-9)
    ('23,820', '590.6', '0.9954', '2', '3.1e-09')
    """
    size = abs(value)
    if not math.isfinite(value) or (value and not SMALLEST <= size < LARGEST):
        return f"{value:.{digits}g}"
    places = max(0, digits - 1 - math.floor(math.log10(size))) if value else 0
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
