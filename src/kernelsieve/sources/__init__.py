"""Rows that need not fit in memory: what every streaming estimator takes in place of X.

A source is read in a few passes, block by block; see ``docs/out-of-core.md``.
"""

from kernelsieve.sources.arrow import ArrowSource
from kernelsieve.sources.base import Source
from kernelsieve.sources.npy import NpySource
from kernelsieve.sources.stream import BlockSource
from kernelsieve.sources.svmlight import SvmlightSource

__all__ = ["ArrowSource", "BlockSource", "NpySource", "Source", "SvmlightSource"]
