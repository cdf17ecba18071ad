"""Rows as directions and lengths, for the maps that sample the series of a kernel of the angle."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.kernels import Kernel
from kernelsieve.kernels.zonal import SphericalKernel, unit_rows
from kernelsieve.sources.base import ArraySource, Source
from kernelsieve.sources.views import Mapped


def directions(rows: Source) -> Source:
    """The same rows with length 1: what the series of a kernel of the angle is sampled on."""
    if isinstance(rows, ArraySource):
        return ArraySource(unit_rows(rows.block.X), rows.block.y, rows.block.weights)
    return Mapped(rows, unit_rows, rows.shape[1])


def polar(kernel: Kernel, X: Any) -> tuple[Any, NDArray[Any] | None]:
    """Rows, and what their features are to be multiplied by.

    The directions and a power of the lengths for a kernel of the angle; else X itself and None.
    """
    if not isinstance(kernel, SphericalKernel):
        return X, None
    with np.errstate(over="ignore"):
        return unit_rows(X), kernel.amplitudes(X).astype(X.dtype)
