"""What a basis of one-dimensional functions offers to the products of them.

A kernel that is a product over coordinates is lifted by any orthonormal basis of each coordinate's
own space (docs/why-the-engine.md, "Adapted bases"): phi_m(x) = prod_i e_(m_i)(x_i). ``Basis`` is
what evaluation needs, ``TableBasis`` what proposals and spaces need in addition. A new family of
one-dimensional kernels is one more class of the second kind.
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


class TableBasis(Basis, Protocol):
    """Functions e_0, e_1, ... of every coordinate, finitely many of them, held in tables.

    The functions of coordinate i satisfy sum_k e_k(u) e_k(v) = k_i(u, v) up to a small loss, and
    e_0 is positive. They are ordered: e_0 is the heaviest on the rows that the basis was made for.

    Attributes
    ----------
    n_orders : ndarray of shape (n_coordinates,)
        How many functions each coordinate has (at least 1).
    """

    n_orders: NDArray[np.int64]

    def masses(self, coordinate: int) -> NDArray[np.float64]:
        """Mean e_k^2 over the rows that the basis was made for.

        A basis from a model file evaluates products and nothing else: it need not know masses.

        Returns
        -------
        ndarray of shape (n_orders[coordinate],)
        """

    def squares(self, coordinate: int, line: NDArray[Any]) -> NDArray[np.float64]:
        """e_k(u)^2 of the values of one coordinate.

        Parameters
        ----------
        coordinate : int
        line : ndarray of shape (B,)
            Contiguous.

        Returns
        -------
        ndarray of shape (n_orders[coordinate], B)
            A new array, which the caller may overwrite.
        """

    def loss(self, coordinate: int, line: NDArray[Any]) -> NDArray[np.float64]:
        """k_i(u, u) - sum_k e_k(u)^2 >= 0: what the functions kept do not hold.

        By Cauchy and Schwarz, |sum_k e_k(u) e_k(v) - k_i(u, v)|^2 <= loss(u) loss(v).

        Returns
        -------
        ndarray of shape (B,)
        """

    def restricted(self, multisets: Multisets) -> Basis:
        """The same functions, with tables only for the orders that ``multisets`` use.

        That is what a map keeps and what a model file stores, so it is also ``Persistent``. It
        may be a leaner class that can only evaluate.
        """
