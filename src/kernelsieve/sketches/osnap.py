"""OSNAP (Nelson and Nguyen, 2013); with one nonzero for each coordinate it is CountSketch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._native.count_sketch import count_sketch_csr, count_sketch_dense
from kernelsieve._random import root_seed, stream
from kernelsieve._state import Persistent, array, whole, wrong
from kernelsieve._validation import check_count
from kernelsieve.sketches.base import Sketch


@dataclass(frozen=True)
class OSNAP:
    """The distribution of sparse embeddings: every coordinate goes to ``sparsity`` buckets.

    Parameters
    ----------
    n_features, size : int
        Coordinates in and out.
    sparsity : int, default 1
        Nonzeros in a column of the matrix, each +-1/sqrt(sparsity), one in each of as many ranges
        of buckets. E‖Sx‖^2 = ‖x‖^2 and Var‖Sx‖^2 <= 2 ‖x‖^4 / size where the ranges are equal.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.sketches import OSNAP
    >>> OSNAP(1000, 64, sparsity=4).sample(0).apply(np.eye(2, 1000)).shape
    (2, 64)
    """

    n_features: int
    size: int
    sparsity: int = 1

    def __post_init__(self) -> None:
        check_count(self.n_features, "n_features", "it is the number of columns of the rows")
        check_count(self.size, "size", "it is the number of buckets")
        check_count(self.sparsity, "sparsity", "it is the number of buckets of one coordinate")
        if self.sparsity > self.size:
            raise ValueError(
                f"sparsity={self.sparsity} is above size={self.size}: "
                "a coordinate cannot go to more buckets than there are"
            )

    def sample(self, random_state: Any = None) -> SampledOSNAP:
        """Draw a sketch of this distribution.

        Parameters
        ----------
        random_state : int, RandomState, Generator or None, default None
            Seed of the draw; None draws a new one.

        Returns
        -------
        SampledOSNAP
            Its ``apply(X)`` sketches rows.
        """
        rng = stream(root_seed(random_state), "osnap")
        edges = np.linspace(0, self.size, self.sparsity + 1).astype(np.int64)
        shape = (self.n_features, self.sparsity)
        codes = rng.integers(edges[:-1], edges[1:], size=shape, dtype=np.int32)
        minus = rng.integers(0, 2, size=shape, dtype=bool)
        np.invert(codes, out=codes, where=minus)  # in place: there may be millions of coordinates
        return SampledOSNAP(self.n_features, self.size, codes)


@dataclass(frozen=True, eq=False)
class SampledOSNAP(Sketch, Persistent):
    """A sampled OSNAP.

    Attributes
    ----------
    codes : ndarray of shape (n_features, sparsity), int32
        A bucket and a sign in one word: the bucket, or its complement for a minus.
    """

    n_features: int
    size: int
    codes: NDArray[np.int32]

    _state_fields: ClassVar = {
        "n_features": whole(1, size="n"),
        "size": whole(1),
        "codes": array("n", "sparsity", dtype=(np.int32,), order="C"),
    }

    def _complete(self) -> None:
        codes = self.codes
        if not (codes.size and codes.max() < self.size and ~codes.min() < self.size):
            wrong("codes", f"are missing or name a bucket beyond {self.size}")

    def fill(self, X: Any, out: NDArray[Any]) -> None:
        self.fill_with(X, 1.0, 0.0, out)

    def fill_with(self, X: Any, scale: float, constant: float, out: NDArray[Any]) -> None:
        """Write the sketch of (scale x, constant); without a constant, of scale x."""
        number = out.dtype.type
        copies = math.sqrt(self.codes.shape[1])
        rest = self.codes, number(scale / copies), number(constant / copies), out
        if sp.issparse(X):
            count_sketch_csr(X.data, X.indices, X.indptr, *rest)
        else:
            count_sketch_dense(X, *rest)
