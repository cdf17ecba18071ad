"""A prefix tree over multisets, laid out for the native evaluators."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kernelsieve.products.multisets import Multisets


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

    @property
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
        parent = self._parents()
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

    def _parents(self) -> NDArray[np.int64]:
        parent = np.full(len(self.depth), -1, dtype=np.int64)
        nodes = np.arange(len(self.depth))
        for level in range(1, self.max_depth + 1):
            # In depth-first order the parent is the last node one level up.
            last = np.maximum.accumulate(np.where(self.depth == level - 1, nodes, -1))
            here = self.depth == level
            parent[here] = last[here]
        return parent


def atom_ranges(coordinates: NDArray[np.int64], n_coordinates: int) -> NDArray[np.int64]:
    """[first, last) atom of every coordinate, where atoms of a coordinate stand together."""
    ranges = np.zeros((n_coordinates, 2), dtype=np.int64)
    if len(coordinates):
        change = np.flatnonzero(np.diff(coordinates)) + 1
        first = np.concatenate([[0], change])
        last = np.concatenate([change, [len(coordinates)]])
        ranges[coordinates[first]] = np.stack([first, last], axis=1)
    return ranges


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
