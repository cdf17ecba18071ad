"""Multisets of coordinates: the names of the features, whatever the basis.

A multiset is kept as atoms, (coordinate, order) pairs with rising coordinates and orders >= 1. In
the monomial basis the atom (i, k) stands for x_i^k, in the Mercer basis for the k-th basis function
of coordinate i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement, groupby, pairwise
from math import comb
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelsieve._random import coordinate_words
from kernelsieve._state import INT64, Persistent, array, wrong
from kernelsieve._validation import check_memory

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

    def capped(self, limit: int) -> Multisets:
        """The same with order 1 for orders from ``limit`` on, which are names and no numbers."""
        orders = np.where(self.orders < limit, self.orders, 1)
        return Multisets(self.ends, self.coordinates, orders)

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


# --- the prefix tree -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Trie:
    """Nodes in depth-first order; node 0 is the empty multiset.

    Attributes
    ----------
    atom_coordinates, atom_orders : ndarray of shape (n_atoms,)
        The distinct atoms, by rank; those of a coordinate stand together with rising orders.
    depth, atom : ndarray of shape (n_nodes,)
        The number of atoms on the path, and the last of them.
    columns : ndarray of shape (n_nodes,)
        The output column of a node, or -1 where the node only leads to others.
    order : ndarray of shape (n_multisets,)
        order[c] is the multiset whose feature stands in column c.
    """

    atom_coordinates: NDArray[np.int64]
    atom_orders: NDArray[np.int64]
    depth: NDArray[np.int64]
    atom: NDArray[np.int64]
    columns: NDArray[np.int64]
    order: NDArray[np.int64]

    @cached_property
    def max_depth(self) -> int:
        """The largest number of atoms in one multiset."""
        return int(self.depth.max())

    def node_weights(self, weights: NDArray[np.float64], dtype: np.dtype) -> NDArray:
        """Weights given by column, laid out by node."""
        by_node = np.zeros(len(self.depth), dtype=dtype)
        by_node[self.columns >= 0] = weights
        return by_node

    @cached_property
    def children(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(child_start, child_node, child_atom): the children of every node, by rising atom."""
        parent = self.parents
        child_node = np.argsort(parent[1:], kind="stable") + 1
        counts = np.bincount(parent[1:], minlength=len(self.depth))
        child_start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return child_start, child_node, self.atom[child_node]

    @cached_property
    def root_child(self) -> NDArray[np.int64]:
        """The node of the path that consists of one atom, by atom; -1 where there is none."""
        nodes = np.flatnonzero(self.depth == 1)
        root_child = np.full(len(self.atom_orders), -1, dtype=np.int64)
        root_child[self.atom[nodes]] = nodes
        return root_child

    @cached_property
    def parents(self) -> NDArray[np.int64]:
        """The node above each node; -1 for the first."""
        parent = np.full(len(self.depth), -1, dtype=np.int64)
        nodes = np.arange(len(self.depth))
        for level in range(1, self.max_depth + 1):
            # In depth-first order the parent is the last node one level up.
            last = np.maximum.accumulate(np.where(self.depth == level - 1, nodes, -1))
            here = self.depth == level
            parent[here] = last[here]
        return parent


def build_trie(multisets: Multisets, *, frequent_first: bool) -> Trie:
    """The prefix tree of distinct multisets.

    With ``frequent_first`` paths begin with the atoms that occur most, which shares the most
    products (dense rows); otherwise with the rarest, which ends most walks early (sparse rows).
    """
    coordinates, orders, ranks = _ranked_atoms(multisets, frequent_first)
    paths = _padded_paths(multisets, ranks)
    order = np.lexsort(paths.T[::-1]) if paths.shape[1] else np.arange(len(multisets))
    return _depth_first(paths[order], order, coordinates, orders)


def _ranked_atoms(
    multisets: Multisets, frequent_first: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Distinct atoms by rank, and the rank of every atom of ``multisets``."""
    if len(multisets.coordinates) == 0:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, empty
    counts = np.bincount(multisets.coordinates)
    frequency = -counts if frequent_first else counts
    base = int(multisets.orders.max()) + 1
    keys, inverse = np.unique(multisets.coordinates * base + multisets.orders, return_inverse=True)
    coordinates, orders = keys // base, keys % base
    by_rank = np.lexsort((orders, coordinates, frequency[coordinates]))
    rank = np.empty(len(keys), dtype=np.int64)
    rank[by_rank] = np.arange(len(keys))
    return coordinates[by_rank], orders[by_rank], rank[inverse]


def _padded_paths(multisets: Multisets, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sorted ranks of each multiset, one row each, filled up with -1."""
    owners = multisets.owners
    by_owner = np.lexsort((ranks, owners))
    places = np.arange(len(ranks)) - multisets.starts[owners]
    width = int(places.max()) + 1 if len(ranks) else 0
    paths = np.full((len(multisets), width), -1, dtype=np.int64)
    paths[owners, places] = ranks[by_owner]
    return paths


def _depth_first(
    paths: NDArray[np.int64],
    order: NDArray[np.int64],
    coordinates: NDArray[np.int64],
    orders: NDArray[np.int64],
) -> Trie:
    """Nodes from sorted paths: a path adds one node for every atom beyond its common prefix."""
    n, width = paths.shape
    lengths = (paths >= 0).sum(axis=1)
    differs = np.ones((n, width), dtype=bool)
    if n > 1:
        differs[1:] = np.logical_or.accumulate(paths[1:] != paths[:-1], axis=1)
    new = differs & (paths >= 0)
    levels = np.broadcast_to(np.arange(1, width + 1), (n, width))
    depth = np.concatenate([[0], levels[new]]).astype(np.int64)
    atom = np.concatenate([[-1], paths[new]]).astype(np.int64)
    columns = np.full(len(depth), -1, dtype=np.int64)
    last_node = np.cumsum(new.sum(axis=1))  # node 0 is the root, so this is already shifted
    columns[np.where(lengths > 0, last_node, 0)] = np.arange(n)
    return Trie(coordinates, orders, depth, atom, columns, order)
