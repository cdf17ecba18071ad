"""A ridge that learns from more rows: its normal equations are kept, and added to."""

from __future__ import annotations

import numbers

from kernelsieve.linalg.normal_equations import NormalEquations
from kernelsieve.models.passes import FeaturePasses
from kernelsieve.models.ridge_solve import accumulate
from kernelsieve.sources.base import Source


def checked_forget(forget: float) -> float:
    """A valid share of earlier rows to forget."""
    if isinstance(forget, numbers.Real) and 0.0 <= float(forget) < 1.0:
        return float(forget)
    raise ValueError(
        f"forget={forget!r} must be at least 0 and below 1: it is the share of earlier "
        "rows to forget"
    )


def with_rows(
    known: NormalEquations | None, passes: FeaturePasses, rows: Source, forget: float
) -> NormalEquations:
    """The normal equations of earlier rows, which fade, and of more rows.

    Parameters
    ----------
    known : NormalEquations or None
        Of earlier rows, if there were any.
    passes : FeaturePasses
    rows : Source
        With targets of shape (n, m).
    forget : float
        The weights of earlier rows are multiplied by ``1 - forget``.

    Returns
    -------
    NormalEquations
    """
    assert rows.target_shape is not None
    outputs = rows.target_shape[0]
    if known is None:
        known = NormalEquations.zero(passes.features.n_components_, outputs)
    elif outputs != len(known.target_sum):
        raise ValueError(f"y has {outputs} outputs, but earlier rows had {len(known.target_sum)}")
    elif forget:
        known = known.faded(1.0 - forget)
    # Not from raw values: later rows cannot repair what their rounding did to earlier ones.
    known += accumulate(passes, rows, raw=False)
    return known
