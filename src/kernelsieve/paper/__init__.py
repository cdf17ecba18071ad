"""The paper's algorithms, as published.

``RowSampler`` is Algorithms 2 and 3, ``recursive_leverage_sampling`` is Algorithm 1.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "RowSampler": "row_sampler",
    "SamplerParameters": "parameters",
    "recursive_leverage_sampling": "recursion",
    "sample_size": "parameters",
}

__all__ = ["RowSampler", "SamplerParameters", "recursive_leverage_sampling", "sample_size"]

if TYPE_CHECKING:
    from kernelsieve.paper.parameters import SamplerParameters, sample_size
    from kernelsieve.paper.recursion import recursive_leverage_sampling
    from kernelsieve.paper.row_sampler import RowSampler


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"kernelsieve.paper.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
