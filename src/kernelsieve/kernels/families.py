"""The one-dimensional kernels that product kernels are made of."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

FAMILIES = ("gaussian", "laplacian", "matern32", "matern52", "categorical")  # codes are indices


def family_codes(families: Iterable[str]) -> NDArray[np.int64]:
    """What compiled code knows the families by."""
    return np.array([FAMILIES.index(family) for family in families], dtype=np.int64)


def log_distances(rates: NDArray[np.float64], families: Iterable[str]) -> NDArray[np.float64]:
    """The logarithms of the kernels at distance 1, or of two categories, negated."""
    s, t = np.sqrt(3.0) * rates, np.sqrt(5.0) * rates
    smooth = {
        "gaussian": rates**2,
        "matern32": s - np.log1p(s),
        "matern52": t - np.log1p(t + t * t / 3.0),
    }
    return np.array([smooth.get(family, rates)[i] for i, family in enumerate(families)])
