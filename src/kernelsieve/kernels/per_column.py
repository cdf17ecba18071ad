"""Values that are given once for all columns, or as one for each of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelsieve._state import Rule, Sizes, list_of


def one_or_each(rule: Rule) -> Rule:
    """The rule of one value for all columns, or of a tuple of one for each."""
    each = list_of(rule, tuple)

    def check(value: Any, where: str, sizes: Sizes) -> Any:
        return (each if isinstance(value, tuple) else rule)(value, where, sizes)

    return check


def checked_rates(rates: Any) -> float | tuple[float, ...]:
    """Valid rates; those that are numbers in a tuple already are returned as they are."""
    values = np.asarray(rates, dtype=np.float64)
    if values.ndim > 1 or values.size == 0:
        raise ValueError(f"rates of shape {values.shape}: pass one number, or one for each column")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        bad = values[~(np.isfinite(values) & (values >= 0))].flat[0]
        raise ValueError(f"rates must be finite and >= 0, and {bad} is not: 0 leaves a column out")
    if values.ndim == 0:
        return rates if type(rates) is float else float(values)
    if isinstance(rates, tuple) and all(type(rate) is float for rate in rates):
        return rates
    return tuple(values.tolist())


def as_strings(values: Any) -> tuple[Any, ...]:
    return values if isinstance(values, tuple) else tuple(str(value) for value in values)
