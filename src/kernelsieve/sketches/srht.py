"""The subsampled randomised Hadamard transform."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._native.hadamard import hadamard_inplace
from kernelsieve._random import root_seed, stream
from kernelsieve._validation import check_count
from kernelsieve.sketches.base import Sketch, power_of_two


@dataclass(frozen=True)
class SRHT:
    """The distribution of S = P H D / sqrt(size): random signs, Hadamard, sampled coordinates.

    Rows are filled up with zeros to a power of two. Coordinates are sampled without replacement
    (in whole rounds where ``size`` exceeds their number), so that a full round is an isometry.

    Parameters
    ----------
    n_features, size : int
        Coordinates in and out.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.sketches import SRHT
    >>> x = np.ones((1, 4))
    >>> float(np.linalg.norm(SRHT(4, 4).sample(0).apply(x)))
    2.0
    """

    n_features: int
    size: int

    def __post_init__(self) -> None:
        check_count(self.n_features, "n_features", "it is the number of columns of the rows")
        check_count(self.size, "size", "it is the number of coordinates that are kept")

    def sample(self, random_state: Any = None) -> SampledSRHT:
        """Draw a sketch of this distribution.

        Parameters
        ----------
        random_state : int, RandomState, Generator or None, default None
            Seed of the draw; None draws a new one.

        Returns
        -------
        SampledSRHT
            Its ``apply(X)`` sketches rows.
        """
        rng = stream(root_seed(random_state), "srht")
        signs = random_signs(self.n_features, rng)
        padded = power_of_two(self.n_features)
        rounds = [rng.permutation(padded) for _ in range(-(-self.size // padded))]
        return SampledSRHT(
            self.n_features, self.size, signs, np.concatenate(rounds)[: self.size]
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class SampledSRHT(Sketch):
    """A sampled SRHT.

    Attributes
    ----------
    signs : ndarray of shape (n_features,), int8
    places : ndarray of shape (size,)
        The coordinates that are kept.
    """

    n_features: int
    size: int
    signs: NDArray[np.int8]
    places: NDArray[np.int64]

    @property
    def widest(self) -> int:
        return power_of_two(self.n_features)

    def arrays(self) -> list[NDArray[Any]]:
        """The random parts of the sketch."""
        return [self.signs, self.places]

    def fill(self, X: Any, out: NDArray[Any]) -> None:
        np.take(mixed(X, self.signs), self.places, axis=1, out=out)
        out *= out.dtype.type(1.0 / np.sqrt(self.size))


def random_signs(count: int, rng: np.random.Generator) -> NDArray[np.int8]:
    """Independent signs, +1 or -1."""
    return (1 - 2 * rng.integers(0, 2, size=count, dtype=np.int8)).astype(np.int8)


def mixed(X: Any, signs: NDArray[np.int8]) -> NDArray[Any]:
    """H D x for every row: signs, then the Hadamard transform of the row padded with zeros."""
    block = np.zeros((X.shape[0], power_of_two(X.shape[1])), dtype=X.dtype)
    head = block[:, : X.shape[1]]
    head[...] = X.toarray() if sp.issparse(X) else X
    head *= signs
    hadamard_inplace(block)
    return block
