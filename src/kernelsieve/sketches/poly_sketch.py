"""The paper's sketch Q^q of tensor powers (Lemma 2 and Appendix D): a tree, then a Gaussian.

The leaves are OSNAPs of the factors, the inner nodes TensorSRHTs of their children. Any number of
leaves will do: a node has half of its leaves on each side, the odd one on the left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._parallel import map_row_blocks
from kernelsieve._random import root_seed, stream
from kernelsieve._validation import check_count
from kernelsieve.sketches.base import TensorPowerSketch, power_of_two
from kernelsieve.sketches.osnap import OSNAP, SampledOSNAP
from kernelsieve.sketches.tensor_srht import SampledTensorSRHT, TensorSRHT

WIDENING = 4  # of the tree against what comes out
SPARSITY = 4


@dataclass(frozen=True)
class PolySketch:
    """The distribution of Q^q = G S^q on vectors of n_features^degree entries.

    Parameters
    ----------
    n_features, degree : int
        Number of columns of the rows, and of factors of the tensor product.
    size : int or None
        Rows of the Gaussian G; None leaves the tree S^q as it is.
    width : int, optional
        Coordinates of every node of the tree, made a power of two; by default four times ``size``.
        The paper asks for order q / eps^2 log^3(1/delta).
    sparsity : int, default 4
        Buckets for each coordinate in the leaves, which are OSNAPs.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.sketches import PolySketch
    >>> sketch = PolySketch(10, 64, degree=3).sample(0)
    >>> X = np.ones((2, 10))
    >>> sketch.apply(X).shape, sketch.apply_all(X).shape
    ((2, 64), (4, 2, 64))
    """

    n_features: int
    size: int | None
    degree: int
    width: int | None = None
    sparsity: int = SPARSITY

    def __post_init__(self) -> None:
        check_count(self.degree, "degree", "it is the number of factors")
        check_count(self.sparsity, "sparsity", "it is the number of buckets of one coordinate")
        if self.size is None and self.width is None:
            raise ValueError("size=None needs a width: it is the number of coordinates out")
        for name in ("size", "width"):
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name, "it is a number of coordinates")
        OSNAP(self.n_features, self._tree_width, self._leaf_sparsity)  # checks the rest

    @property
    def _tree_width(self) -> int:
        return power_of_two(self.width or WIDENING * (self.size or 1))

    @property
    def _leaf_sparsity(self) -> int:
        return min(self.sparsity, self._tree_width)

    def sample(self, random_state: Any = None) -> SampledPolySketch:
        """Draw a sketch of this distribution.

        Parameters
        ----------
        random_state : int, RandomState, Generator or None, default None
            Seed of the draw; None draws a new one.

        Returns
        -------
        SampledPolySketch
            Its ``apply(X)`` sketches rows.
        """
        seed, width = root_seed(random_state), self._tree_width
        leaf, node = (
            OSNAP(self.n_features, width, self._leaf_sparsity),
            TensorSRHT(width, width, width),
        )

        def grow(first: int, last: int) -> _Tree:
            if last - first == 1:
                return _Leaf(leaf.sample(stream(seed, "leaf", first)))
            middle = (first + last + 1) // 2
            join = node.sample(stream(seed, "node", first, last))
            return _Node(grow(first, middle), grow(middle, last), join)

        gaussian = None
        if self.size is not None:
            normal = stream(seed, "gaussian").standard_normal((width, self.size))
            gaussian = normal / np.sqrt(self.size)
        return SampledPolySketch(
            self.n_features,
            width if self.size is None else self.size,
            self.degree,
            grow(0, self.degree),
            width,
            gaussian,
        )


class _Tree(ABC):
    """A sketch of the tensor product of consecutive factors."""

    count: int  # factors

    @abstractmethod
    def value(self, factors: list[Any]) -> NDArray[Any]:
        """The sketch of the products of corresponding rows."""

    @abstractmethod
    def values(self, X: Any) -> list[NDArray[Any]]:
        """The sketches of x^(x)(count-k) (x) e_1^(x)k for k = 0..count; the last has one row."""


@dataclass(frozen=True, eq=False)
class _Leaf(_Tree):
    osnap: SampledOSNAP

    count = 1

    def value(self, factors: list[Any]) -> NDArray[Any]:
        (X,) = factors
        out = np.empty((X.shape[0], self.osnap.size), dtype=X.dtype)
        self.osnap.fill(X, out)
        return out

    def values(self, X: Any) -> list[NDArray[Any]]:
        return [self.value([X]), self.value([first_unit_vector(self.osnap.n_features, X.dtype)])]


@dataclass(frozen=True, eq=False)
class _Node(_Tree):
    left: _Tree
    right: _Tree
    join: SampledTensorSRHT

    @cached_property
    def count(self) -> int:  # type: ignore[override]
        return self.left.count + self.right.count

    def value(self, factors: list[Any]) -> NDArray[Any]:
        here, there = factors[: self.left.count], factors[self.left.count :]
        left = self.join.mix_left(self.left.value(here))
        return self.join.combine(left, self.join.mix_right(self.right.value(there)))

    def values(self, X: Any) -> list[NDArray[Any]]:
        # Only one side changes at a time: the other keeps its mixed value, none or all replaced.
        left = [self.join.mix_left(value) for value in self.left.values(X)]
        right = [self.join.mix_right(value) for value in self.right.values(X)]
        return [self.join.combine(left[0], other) for other in right] + [
            self.join.combine(one, right[-1]) for one in left[1:]
        ]


@dataclass(frozen=True, eq=False)
class SampledPolySketch(TensorPowerSketch):
    """A sampled PolySketch."""

    n_features: int
    size: int
    degree: int
    tree: _Tree
    width: int
    gaussian: NDArray[np.float64] | None

    @property
    def widest(self) -> int:
        return self.width * (self.degree + 1)

    def fill_product(self, factors: list[Any], out: NDArray[Any]) -> None:
        self._compress(self.tree.value(factors), out)

    def apply_all(self, X: Any, *, n_jobs: int | None = None) -> NDArray[Any]:
        """All P_j = Q^q(x^(x)(q-j) (x) e_1^(x)j), j = 0..q, from one tree.

        Parameters
        ----------
        X : {array-like, CSR} of shape (n, n_features)
        n_jobs : int, optional
            Number of threads; None uses all cores.

        Returns
        -------
        ndarray of shape (degree + 1, n, size), in the float type of X
        """
        X = self._checked(X)
        out = np.empty((self.degree + 1, X.shape[0], self.size), dtype=X.dtype)
        map_row_blocks(
            lambda rows: self.fill_all(X[rows], out[:, rows]),
            X.shape[0],
            self.block_rows(X.dtype),
            n_jobs,
        )
        return out

    def fill_all(self, X: Any, out: NDArray[Any]) -> None:
        """Write all P_j of the valid rows X into ``out``, in this thread."""
        for value, target in zip(self.tree.values(X), out, strict=True):
            self._compress(value, target)

    def _compress(self, value: NDArray[Any], out: NDArray[Any]) -> None:
        out[...] = value if self.gaussian is None else value @ self._gaussian(value.dtype)

    def _gaussian(self, dtype: Any) -> NDArray[Any]:
        """G in a float type, converted once."""
        converted: dict[Any, NDArray[Any]] = self.__dict__.setdefault("_converted", {})
        if dtype not in converted:
            assert self.gaussian is not None
            converted[dtype] = self.gaussian.astype(dtype, copy=False)
        return converted[dtype]


def first_unit_vector(n_features: int, dtype: Any) -> Any:
    """e_1 as one row with one entry, however many columns there are."""
    return sp.csr_array((np.ones(1, dtype=dtype), ([0], [0])), shape=(1, n_features))
