"""Sketches of the tensor powers of a unit vector, for all requested degrees from one tree.

Every degree is halved on the way down, so u^(x)k passes through about log2 k sketches. Padding with
e_1^(x)(q-k), as the paper's P_j need it, would send all degrees through a tree of depth log2 q.
Nodes are exact as long as the products of their children's coordinates fit into the width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._native.count_sketch import multiply_sampled
from kernelsieve._random import stream
from kernelsieve._state import INT64, Rule, array, wrong
from kernelsieve.sketches import OSNAP
from kernelsieve.sketches.base import power_of_two
from kernelsieve.sketches.osnap import SampledOSNAP
from kernelsieve.sketches.srht import mixed, random_signs

LEAF_SPARSITY = 4


@dataclass(frozen=True, eq=False)
class PowerTree:
    """A sampled tree: unbiased sketches of u^(x)k for the requested degrees k.

    Attributes
    ----------
    root : PowerLeaf or PowerNode
    dense_leaves : bool
        Whether the leaves use the rows without a sketch.
    """

    root: PowerLeaf | PowerNode
    dense_leaves: bool

    @classmethod
    def sample(cls, n_features: int, widths: Mapping[int, int], seed: int) -> PowerTree:
        """Sample a tree for rows of ``n_features``, with the widest sketch of each degree."""
        return cls.grow(n_features, widths, SeededDraws(seed))

    @classmethod
    def grow(cls, n_features: int, widths: Mapping[int, int], draws: Draws) -> PowerTree:
        """Build a tree from given draws, which depend on the first two arguments only.

        ``widths`` are powers of two by degree: the coordinates of its sketch at most. What a
        degree is made of is as wide as the widest degree that needs it.
        """
        dense = power_of_two(n_features) <= max(widths.values())
        return cls(_grow(n_features, dict(widths), draws, "root"), dense)

    def arrays(self) -> list[NDArray[Any]]:
        """All random parts of the tree, in the order in which they were drawn."""
        return list(self.root.arrays())

    @property
    def sizes(self) -> dict[int, int]:
        """The number of coordinates of each degree's sketch."""
        return self.root.sizes

    def powers(self, unit: Any) -> dict[int, NDArray[Any]]:
        """The sketches of u^(x)k of every row, by degree k."""
        if self.dense_leaves and sp.issparse(unit):
            unit = unit.toarray()
        return self.root.powers(unit)


@dataclass(frozen=True, eq=False)
class PowerLeaf:
    """u itself, or an OSNAP of it if u is longer than the tree is wide."""

    sizes: dict[int, int]
    osnap: SampledOSNAP | None

    def powers(self, unit: Any) -> dict[int, NDArray[Any]]:
        """The sketch of u."""
        if self.osnap is None:
            return {1: unit}
        out = np.empty((unit.shape[0], self.osnap.size), dtype=unit.dtype)
        self.osnap.fill(unit, out)
        return {1: out}

    def arrays(self) -> Iterator[NDArray[Any]]:
        """Random parts of this leaf."""
        if self.osnap is not None:
            yield self.osnap.codes


@dataclass(frozen=True, eq=False)
class PowerNode:
    """u^(x)k from sketches of u^(x)ceil(k/2) on the left and u^(x)floor(k/2) on the right.

    A TensorSRHT whose pairs of mixed coordinates are all different, and each coordinate is in
    equally many: half the variance of independent pairs at equal rows, none if all pairs are there.

    Attributes
    ----------
    left_signs, right_signs : dict of ndarray
        By the degree of the child's sketch.
    places : dict of (ndarray, ndarray)
        The pairs, by k.
    """

    sizes: dict[int, int]
    left: PowerLeaf | PowerNode
    right: PowerLeaf | PowerNode
    left_signs: dict[int, NDArray[np.int8]]
    right_signs: dict[int, NDArray[np.int8]]
    places: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]]

    def powers(self, unit: Any) -> dict[int, NDArray[Any]]:
        """The sketches of the requested degrees."""
        lefts, rights = self.left.powers(unit), self.right.powers(unit)
        result = {1: lefts[1]} if 1 in self.sizes else {}
        lefts = {j: mixed(lefts[j], signs) for j, signs in self.left_signs.items()}
        rights = {j: mixed(rights[j], signs) for j, signs in self.right_signs.items()}
        for k, places in self.places.items():
            left, right = lefts[_left(k)], rights[_right(k)]
            out = np.empty((len(left), self.sizes[k]), dtype=left.dtype)
            multiply_sampled(left, right, *places, out.dtype.type(self.sizes[k] ** -0.5), out)
            result[k] = out
        return result

    def arrays(self) -> Iterator[NDArray[Any]]:
        """Random parts of this node and of all below it."""
        yield from self.left.arrays()
        yield from self.right.arrays()
        yield from self.left_signs.values()
        yield from self.right_signs.values()
        for pair in self.places.values():
            yield from pair


def _left(k: int) -> int:
    return (k + 1) // 2


def _right(k: int) -> int:
    return k // 2


class Draws(Protocol):
    """A supplier of the random parts of a tree, each named by ``keys``."""

    def osnap(self, n_features: int, width: int, *keys: str | int) -> SampledOSNAP:
        """The sketch of a leaf."""

    def signs(self, count: int, *keys: str | int) -> NDArray[np.int8]:
        """Independent signs."""

    def pairs(
        self, n_left: int, n_right: int, size: int, *keys: str | int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """At most ``size`` pairs of coordinates."""


@dataclass(frozen=True)
class SeededDraws:
    """Draws that a seed determines."""

    seed: int

    def osnap(self, n_features: int, width: int, *keys: str | int) -> SampledOSNAP:
        osnap = OSNAP(n_features, width, min(LEAF_SPARSITY, width))
        return osnap.sample(stream(self.seed, *keys))

    def signs(self, count: int, *keys: str | int) -> NDArray[np.int8]:
        return random_signs(count, stream(self.seed, *keys))

    def pairs(
        self, n_left: int, n_right: int, size: int, *keys: str | int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return spread_pairs(n_left, n_right, size, stream(self.seed, *keys))


class StoredDraws:
    """The draws of a model file: each has the shape and the range that it would be drawn with."""

    def __init__(self, arrays: list[NDArray[Any]]) -> None:
        self._left = arrays[::-1]

    def next_is(self, dtype: Any) -> bool:
        """Whether there is another array, of this type."""
        return bool(self._left) and self._left[-1].dtype == dtype

    def next(self, rule: Rule) -> NDArray[Any]:
        """The next array, if it obeys a rule."""
        if not self._left:
            wrong("draws", "are too few")
        return rule(self._left.pop(), "draws", {})

    def close(self) -> None:
        """Refuse more draws than were asked for."""
        if self._left:
            wrong("draws", "are too many")

    def normals(self, d: int, size: int) -> NDArray[np.float64]:
        """The next array, if it holds so many vectors in d columns."""
        return self.next(array(d, size))

    def directions(self, d: int, size: int, length: float = 1.0) -> NDArray[np.float64]:
        """The same, where they are orthogonal in blocks."""
        return self.normals(d, size)

    def osnap(self, n_features: int, width: int, *keys: str | int) -> SampledOSNAP:
        shape = n_features, min(LEAF_SPARSITY, width)
        codes = self.next(array(*shape, dtype=(np.int32,), order="C"))
        return SampledOSNAP.from_state({"n_features": n_features, "size": width, "codes": codes})

    def signs(self, count: int, *keys: str | int) -> NDArray[np.int8]:
        return self.next(array(count, dtype=(np.int8,), low=-1, high=1))

    def pairs(
        self, n_left: int, n_right: int, size: int, *keys: str | int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        count = min(size, n_left * n_right)
        left = self.next(array(count, dtype=INT64, low=0, high=n_left - 1))
        return left, self.next(array(count, dtype=INT64, low=0, high=n_right - 1))


def _grow(
    n_features: int, widths: dict[int, int], draws: Draws, path: str
) -> PowerLeaf | PowerNode:
    degrees = set(widths)
    if degrees == {1}:
        if power_of_two(n_features) <= widths[1]:
            return PowerLeaf({1: n_features}, None)
        return PowerLeaf({1: widths[1]}, draws.osnap(n_features, widths[1], path))
    joined = sorted(degrees - {1})
    left, right = (
        _grow(n_features, _widest(half, which, widths), draws, f"{path} {side}")
        for half, which, side in ((_left, sorted(degrees), "left"), (_right, joined, "right"))
    )
    left_signs, right_signs = (
        {j: draws.signs(child.sizes[j], path, side, j) for j in sorted(set(map(half, joined)))}
        for child, half, side in ((left, _left, "left"), (right, _right, "right"))
    )
    places = {
        k: draws.pairs(
            power_of_two(left.sizes[_left(k)]),
            power_of_two(right.sizes[_right(k)]),
            widths[k],
            path,
            "pairs",
            k,
        )
        for k in joined
    }
    sizes = {k: len(pairs[0]) for k, pairs in places.items()}
    if 1 in degrees:
        sizes[1] = left.sizes[1]
    return PowerNode(sizes, left, right, left_signs, right_signs, places)


def _widest(
    half: Callable[[int], int], degrees: list[int], widths: dict[int, int]
) -> dict[int, int]:
    """The width of every half: that of the widest degree which it is half of."""
    found: dict[int, int] = {}
    for k in degrees:
        found[half(k)] = max(found.get(half(k), 0), widths[k])
    return found


def spread_pairs(
    n_left: int, n_right: int, size: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """At most ``size`` different pairs of two ranges, every coordinate in equally many.

    Both lengths are powers of two: k and k ^ shift run through the pairs of one round, and another
    shift gives a round of new ones. (With ``size`` below a length, in one round or none.)

    Examples
    --------
    >>> left, right = spread_pairs(4, 2, 8, np.random.default_rng(0))
    >>> sorted(zip(left.tolist(), right.tolist()))
    [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)]
    """
    if n_left < n_right:
        right, left = spread_pairs(n_right, n_left, size, rng)
        return left, right
    rounds, k = np.divmod(np.arange(min(size, n_left * n_right)), n_left)
    shifts = rng.permutation(n_right)
    return rng.permutation(n_left)[k], rng.permutation(n_right)[k % n_right ^ shifts[rounds]]
