"""The one-dimensional kernels of a product, as functions of a scaled distance, and their grids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ROOT2, ROOT3, ROOT5 = np.sqrt([2.0, 3.0, 5.0])


@dataclass(frozen=True)
class Family:
    """A kernel k(t) of the distance t = |u - v| between scaled coordinates.

    Attributes
    ----------
    kernel : callable
        k of an array of distances.
    spacing : float
        Of grid points: what lies between them loses about 1e-14 of k(u, u) = 1 for the Gaussian,
        at most 3e-5 for Matern 3/2 and 2e-6 for Matern 5/2.
    margin : float
        How far the grid reaches beyond the values that it is for.
    reach : float
        Points further from each other than this have a kernel of (almost) 0.
    decay : float
        c where k(t) is exp(-c t) times a polynomial; 0 for the Gaussian.
    polynomial : tuple of float
        The coefficients of that polynomial of c t.
    """

    kernel: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    spacing: float
    margin: float
    reach: float
    decay: float = 0.0
    polynomial: tuple[float, ...] = ()


def _matern32(t: NDArray[np.float64]) -> NDArray[np.float64]:
    return (1.0 + ROOT3 * t) * np.exp(-ROOT3 * t)


def _matern52(t: NDArray[np.float64]) -> NDArray[np.float64]:
    return (1.0 + ROOT5 * t + 5.0 / 3.0 * t * t) * np.exp(-ROOT5 * t)


# The Gaussian's lengths in units of its standard deviation are 0.35, 3 and 9; here it is exp(-t^2).
FAMILIES = {
    "gaussian": Family(lambda t: np.exp(-t * t), 0.35 / ROOT2, 3.0 / ROOT2, 9.0 / ROOT2),
    "laplacian": Family(lambda t: np.exp(-t), 0.0, 0.0, 40.0, 1.0, (1.0,)),
    "matern32": Family(_matern32, 0.05, 0.0, 40.0 / ROOT3, float(ROOT3), (1.0, 1.0)),
    "matern52": Family(_matern52, 0.1, 0.0, 40.0 / ROOT5, float(ROOT5), (1.0, 1.0, 1.0 / 3.0)),
}
