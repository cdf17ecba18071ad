"""Rows that need not fit in memory: what every streaming estimator takes in place of X.

A source is read in a few passes, block by block; see ``docs/out-of-core.md``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelsieve.sources.arrow import ArrowSource
    from kernelsieve.sources.base import Source
    from kernelsieve.sources.npy import NpySource
    from kernelsieve.sources.stream import BlockSource
    from kernelsieve.sources.svmlight import SvmlightSource

__all__ = ["ArrowSource", "BlockSource", "NpySource", "Source", "SvmlightSource"]

# Imported when they are asked for: a fit to an array needs no reader of files.
_HOMES = {
    "ArrowSource": "arrow",
    "BlockSource": "stream",
    "NpySource": "npy",
    "Source": "base",
    "SvmlightSource": "svmlight",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
