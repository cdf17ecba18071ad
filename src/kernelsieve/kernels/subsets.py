"""Subsets of columns, in the order of a walk through the tree of their prefixes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Subset = tuple[int, ...]


@dataclass(frozen=True)
class SubsetTree:
    """What compiled code walks along: subsets, and the prefixes on the way to them.

    Attributes
    ----------
    nodes : list of tuple of int
        Each is the last one before it with fewer columns, and one column more.
    places : ndarray of int
        Where the subsets stand among the nodes.
    depths, columns : ndarray of int, of shape (n_nodes,)
        The size of each node, and the place of its last column among those in use.
    used : ndarray of int
        The columns in use, in ascending order.
    """

    nodes: list[Subset]
    places: NDArray[np.int64]
    depths: NDArray[np.int64]
    columns: NDArray[np.int64]
    used: NDArray[np.int64]

    @classmethod
    def of(cls, subsets: Iterable[Subset]) -> SubsetTree:
        """The tree of subsets that stand in the order of a walk through it, as sorted ones do."""
        nodes: list[Subset] = []
        places: list[int] = []
        path: Subset = ()
        for subset in subsets:
            shared = 0
            while shared < min(len(path), len(subset)) and path[shared] == subset[shared]:
                shared += 1
            nodes += [subset[:k] for k in range(shared + 1, len(subset) + 1)]
            places.append(len(nodes) - 1)
            path = subset
        used = sorted({column for node in nodes for column in node})
        return cls(
            nodes,
            np.array(places, dtype=np.int64),
            np.array([len(node) for node in nodes], dtype=np.int64),
            np.array([used.index(node[-1]) for node in nodes], dtype=np.int64),
            np.array(used, dtype=np.int64),
        )
