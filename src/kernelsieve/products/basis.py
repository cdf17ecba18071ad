"""What a basis of one-dimensional functions offers to the products of them.

A kernel that is a product over coordinates is lifted by any orthonormal basis of each coordinate's
own space (docs/product-features.md): phi_m(x) = prod_i e_(m_i)(x_i). ``Basis`` is what evaluation
needs: monomials are one, tables of local functions the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kernelsieve.products.multisets import Multisets


@runtime_checkable
class Basis(Protocol):
    """One-dimensional functions as the evaluation of products sees them.

    A product is root(x) * exp(log_scale) * prod over its atoms (i, k) of atom_ik(x). The root holds
    what all products share, such as exp(-|x'|^2 / 2) or prod_i e_0(x_i).
    """

    def admits(self, multisets: Multisets, n_coordinates: int) -> bool:
        """Whether it has all atoms of these multisets, and that many coordinates."""

    def log_scales(self, multisets: Multisets) -> NDArray[np.float64]:
        """Logarithms of the constants in front of the products.

        Returns
        -------
        ndarray of shape (n_multisets,)
        """

    def work_dtype(self, dtype: Any) -> Any:
        """The float type in which products of atoms of rows in ``dtype`` keep their range."""

    def lines_for(self, coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
        """The coordinates whose values ``dense_atoms`` needs for atoms of ``coordinates``.

        Returns
        -------
        ndarray of shape (n_lines,)
            Rising numbers of coordinates.
        """

    def dense_atoms(
        self,
        lines: NDArray[Any],
        squared_radius: Callable[[], NDArray[np.float64]],
        coordinates: NDArray[np.int64],
        orders: NDArray[np.int64],
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Evaluate the atoms of a block of dense rows.

        Parameters
        ----------
        lines : ndarray of shape (n_lines, B)
            Coordinates ``lines_for(coordinates)`` of the rows' points. May be overwritten.
        squared_radius : callable
            Gives |x'|^2 of the rows, of shape (B,), to a basis that needs it.
        coordinates, orders : ndarray of shape (n_atoms,)
            The atoms; those of a coordinate stand together, with rising orders >= 1.

        Returns
        -------
        atoms : ndarray of shape (n_atoms, B)
        roots : ndarray of shape (B,)
        """

    def sparse_roots(self, squared_radius: NDArray[np.float64], dtype: Any) -> NDArray[Any]:
        """Root values of sparse rows, of shape (B,); TypeError where zeros do not stay zeros."""
