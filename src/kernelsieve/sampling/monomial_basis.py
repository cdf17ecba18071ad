"""The monomial basis: phi_m(x) = c(x) sqrt(a_w mult(m)) prod_i x_i^(k_i)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from kernelsieve._native.powers import power_table
from kernelsieve._series import Series
from kernelsieve.sampling.frame import Frame
from kernelsieve.sampling.multisets import Multisets

# Beyond this |x'|^2 the Gaussian's exp(-|x'|^2 / 2) underflows: the features are 0 there.
LARGEST_SQUARED_RADIUS = {np.dtype(np.float32): 170.0, np.dtype(np.float64): 1400.0}


@dataclass(frozen=True)
class MonomialBasis:
    """Atoms x_i^k / sqrt(k!), so that a feature is sqrt(a_w w!) c(x) times a product of atoms."""

    series: Series

    def log_scales(self, multisets: Multisets) -> NDArray[np.float64]:
        """log sqrt(a_w w!) of each multiset; a multiset of size w has w! / prod k_i! orders."""
        degrees = multisets.degrees()
        return 0.5 * (self.series.log_coefficients[degrees] + gammaln(degrees + 1.0))

    def dense_atoms(
        self,
        frame: Frame,
        X: NDArray[Any],
        coordinates: NDArray[np.int64],
        orders: NDArray[np.int64],
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The atoms of a block of rows, (n_atoms, B), and c(x), (B,)."""
        used, positions = np.unique(coordinates, return_inverse=True)
        lines = frame.columns(X, used)
        roots, far = self._roots(frame, X)
        if far.any():
            lines[:, far] = 0.0
        table = np.empty((len(coordinates), X.shape[0]), dtype=X.dtype)
        power_table(lines, positions, orders, table)
        return table, roots

    def sparse_roots(self, frame: Frame, X: Any) -> NDArray[Any]:
        """c(x) of sparse rows."""
        return self._roots(frame, X)[0]

    def _roots(self, frame: Frame, X: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        if not self.series.damped:
            return np.ones(X.shape[0], dtype=X.dtype), np.zeros(X.shape[0], dtype=bool)
        squared_radius = frame.squared_radius(X)
        far = squared_radius > LARGEST_SQUARED_RADIUS[X.dtype]
        roots = np.exp(self.series.log_amplitude(squared_radius))
        roots[far] = 0.0
        return roots.astype(X.dtype), far
