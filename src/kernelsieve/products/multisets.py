"""Multisets of coordinates: the names of the features, whatever the basis.

A multiset is kept as atoms, (coordinate, order) pairs with rising coordinates and orders >= 1. In
the monomial basis the atom (i, k) stands for x_i^k, in the Mercer basis for the k-th basis function
of coordinate i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, groupby, pairwise
from math import comb
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelsieve._memory import check_memory
from kernelsieve._native.hashing import coordinate_words
from kernelsieve._state import INT64, Persistent, array, wrong

TUPLE_BYTES, ATOM_BYTES = 150, 200  # of Python's tuples and lists while multisets are listed

LARGEST_ORDER = 2**40  # in model files
# The prefix tree is built from a table with a line for each multiset, as wide as the longest one:
# in a model file it may have this many entries, and this many for each atom.
TABLE_ENTRIES, TABLE_FACTOR = 2**22, 64


@dataclass(frozen=True)
class Multisets(Persistent):
    """Many multisets in flat arrays.

    Attributes
    ----------
    ends : ndarray of shape (n,)
        The atoms of multiset m are those from ends[m - 1] (0 for the first) to ends[m].
    coordinates, orders : ndarray of shape (n_atoms,)
    """

    ends: NDArray[np.int64]
    coordinates: NDArray[np.int64]
    orders: NDArray[np.int64]

    _state_fields: ClassVar = {
        "ends": array(None, dtype=INT64, low=0),
        "coordinates": array("n_atoms", dtype=INT64, low=0),
        "orders": array("n_atoms", dtype=INT64, low=1, high=LARGEST_ORDER),
    }

    def _complete(self) -> None:
        n_atoms = len(self.coordinates)
        if (np.diff(self.ends) < 0).any() or (int(self.ends[-1]) if len(self) else 0) != n_atoms:
            wrong("ends", "do not rise to the number of atoms")
        longest = int((self.ends - self.starts).max(initial=0))
        if len(self) * longest > TABLE_ENTRIES + TABLE_FACTOR * n_atoms:
            wrong("ends", f"give one multiset {longest} atoms, far more than the others")
        if (np.diff(self.coordinates)[np.diff(self.owners) == 0] <= 0).any():
            wrong("coordinates", "do not rise within a multiset")
        highest = int(self.orders.max(initial=0)) + 1
        if (int(self.coordinates.max(initial=0)) + 1) * highest > 2**62:  # a number for each atom
            wrong("orders", f"of up to {highest - 1} are too high for as many coordinates")

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where the atoms of each multiset begin."""
        return np.concatenate([[0], self.ends[:-1]]).astype(np.int64)

    @property
    def owners(self) -> NDArray[np.int64]:
        """The multiset that each atom belongs to."""
        return np.repeat(np.arange(len(self)), self.ends - self.starts)

    def degrees(self) -> NDArray[np.int64]:
        """The sizes of the multisets, counted with multiplicity."""
        return np.bincount(self.owners, weights=self.orders, minlength=len(self)).astype(np.int64)

    def hashes(self) -> NDArray[np.uint64]:
        """A 64-bit word for each multiset, the same wherever and however it was drawn."""
        n_coordinates = int(self.coordinates.max(initial=-1)) + 1
        words = coordinate_words(n_coordinates)[self.coordinates]
        hashes = np.zeros(len(self), dtype=np.uint64)
        np.add.at(hashes, self.owners, words * self.orders.astype(np.uint64))
        return hashes

    def take(self, chosen: NDArray[np.int64]) -> Multisets:
        """The multisets with these numbers, in this order."""
        starts, lengths = self.starts[chosen], (self.ends - self.starts)[chosen]
        ends = np.cumsum(lengths)
        atoms = np.arange(lengths.sum()) + np.repeat(starts - (ends - lengths), lengths)
        return Multisets(ends, self.coordinates[atoms], self.orders[atoms])

    def tuples(self) -> list[tuple[int, ...]]:
        """Each multiset as a sorted tuple of coordinates: (0, 0, 3) is x_0^2 x_3."""
        repeated = np.repeat(self.coordinates, self.orders).tolist()
        bounds = np.concatenate([[0], np.cumsum(self.degrees())]).tolist()
        return [tuple(repeated[a:b]) for a, b in pairwise(bounds)]

    @classmethod
    def from_tuples(cls, tuples: Sequence[Sequence[int]]) -> Multisets:
        """The inverse of ``tuples``."""
        atoms = [
            [(i, len(list(run))) for i, run in groupby(sorted(multiset))] for multiset in tuples
        ]
        flat = np.array([atom for multiset in atoms for atom in multiset], dtype=np.int64)
        flat = flat.reshape(-1, 2)
        ends = np.cumsum([len(multiset) for multiset in atoms], dtype=np.int64)
        return cls(ends, flat[:, 0].copy(), flat[:, 1].copy())

    @classmethod
    def from_table(cls, orders: NDArray[np.int64]) -> Multisets:
        """From a table of orders, one row for a multiset and one column for a coordinate."""
        owners, coordinates = np.nonzero(orders)
        ends = np.cumsum(np.bincount(owners, minlength=len(orders)))
        return cls(ends, coordinates, orders[owners, coordinates])

    @classmethod
    def concatenate(cls, first: Multisets, second: Multisets) -> Multisets:
        """The multisets of both, one after the other."""
        shift = first.ends[-1] if len(first) else 0
        return cls(
            np.concatenate([first.ends, second.ends + shift]),
            np.concatenate([first.coordinates, second.coordinates]),
            np.concatenate([first.orders, second.orders]),
        )


def count_of_degree(n_coordinates: int, degree: int) -> int:
    """How many multisets of this size there are."""
    if n_coordinates == 0:
        return int(degree == 0)
    return comb(n_coordinates + degree - 1, degree)


def all_of_degrees(coordinates: NDArray[np.int64], degrees: Sequence[int]) -> Multisets:
    """Every multiset over ``coordinates`` whose size is one of ``degrees``."""
    count = sum(count_of_degree(len(coordinates), degree) for degree in degrees)
    check_memory(
        count * (TUPLE_BYTES + ATOM_BYTES * max(degrees, default=0)),
        f"a list of all {count:,} products of up to {max(degrees, default=0)} of "
        f"{len(coordinates):,} columns",
        "lower n_components",
    )
    sorted_coordinates = np.sort(coordinates).tolist()
    return Multisets.from_tuples(
        [
            multiset
            for degree in degrees
            for multiset in combinations_with_replacement(sorted_coordinates, degree)
        ]
    )
