"""The monomial basis: phi_m(x) = c(x) sqrt(a_w mult(m)) prod_i x_i^(k_i)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from kernelsieve._native.products import power_table
from kernelsieve._state import Persistent, instance
from kernelsieve.kernels.base import Series
from kernelsieve.products.multisets import Multisets

# Beyond this |x'|^2 the Gaussian's exp(-|x'|^2 / 2) underflows: the features are 0 there.
LARGEST_SQUARED_RADIUS = {np.dtype(np.float32): 170.0, np.dtype(np.float64): 1400.0}


LARGEST_LOG_SCALE = 30.0


@dataclass(frozen=True)
class MonomialBasis(Persistent):
    """Atoms x_i^k / sqrt(k!), so that a feature is sqrt(a_w w!) c(x) times a product of atoms."""

    series: Series

    _state_fields: ClassVar = {"series": instance(Series)}

    def admits(self, multisets: Multisets, n_coordinates: int) -> bool:
        """Whether the series reaches the degrees of these multisets."""
        return int(multisets.degrees().max(initial=0)) <= self.series.degree

    def log_scales(self, multisets: Multisets) -> NDArray[np.float64]:
        """log sqrt(a_w w!) of each multiset; a multiset of size w has w! / prod k_i! orders."""
        degrees = multisets.degrees()
        return 0.5 * (self.series.log_coefficients[degrees] + gammaln(degrees + 1.0))

    def work_dtype(self, dtype: Any) -> Any:
        """Double where sqrt(a_w w!) is huge: the atoms that it meets are as small."""
        degrees = np.arange(self.series.degree + 1)
        largest = 0.5 * np.max(self.series.log_coefficients + gammaln(degrees + 1.0))
        return np.float64 if largest > LARGEST_LOG_SCALE else dtype

    def lines_for(self, coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
        """Only the coordinates that occur, each once."""
        return np.unique(coordinates)

    def dense_atoms(
        self,
        lines: NDArray[Any],
        squared_radius: Callable[[], NDArray[np.float64]],
        coordinates: NDArray[np.int64],
        orders: NDArray[np.int64],
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The atoms of a block of rows, (n_atoms, B), and c(x), (B,)."""
        lines = lines.astype(self.work_dtype(lines.dtype), copy=False)
        dtype, size = lines.dtype, lines.shape[1]
        if self.series.damped:
            roots, far = self._damping(squared_radius(), dtype)
            if far.any():
                lines[:, far] = 0.0  # so that no power of them overflows
        else:
            roots = np.ones(size, dtype=dtype)
        table = np.empty((len(coordinates), size), dtype=dtype)
        positions = np.searchsorted(self.lines_for(coordinates), coordinates)
        power_table(lines, positions, orders, table)
        return table, roots

    def sparse_roots(self, squared_radius: NDArray[np.float64], dtype: Any) -> NDArray[Any]:
        """c(x) of sparse rows."""
        if not self.series.damped:
            return np.ones(len(squared_radius), dtype=dtype)
        return self._damping(squared_radius, dtype)[0]

    def _damping(
        self, squared_radius: NDArray[np.float64], dtype: Any
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        far = squared_radius > LARGEST_SQUARED_RADIUS[np.dtype(dtype)]
        roots = np.exp(self.series.log_amplitude(squared_radius))
        roots[far] = 0.0
        return roots.astype(dtype), far
