"""The one-dimensional kernels that product kernels are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

# A rough Matern kernel draws frequencies without bound: beyond this all are noise alike.
HIGHEST_FREQUENCY = 1e18
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


def family_frequencies(
    families: Sequence[str], rates: NDArray[np.float64], count: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Independent frequencies of scaled columns, of shape (n_columns, count).

    Each column has the frequencies of its own one-dimensional kernel, none for a rate of 0. Those
    of a category are 0, or uniform on the circle, where the mean of cos(w (u - v)) is 0 for
    different integers.
    """
    frequencies = np.zeros((len(families), count))
    for column in np.flatnonzero(rates > 0).tolist():
        if families[column] == "categorical":
            other = rng.random(count) >= math.exp(-rates[column])
            frequencies[column] = np.where(other, rng.uniform(-math.pi, math.pi, count), 0.0)
        elif families[column] == "laplacian":
            frequencies[column] = rng.standard_cauchy(count)
        elif families[column] == "gaussian":
            frequencies[column] = math.sqrt(2.0) * rng.standard_normal(count)
        else:  # Student's t, with 2 nu degrees of freedom
            frequencies[column] = rng.standard_t(3 if families[column] == "matern32" else 5, count)
    return frequencies
