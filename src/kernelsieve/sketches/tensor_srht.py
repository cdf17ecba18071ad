"""The SRHT of a tensor product of two vectors, which is never formed (Ahle et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native.count_sketch import multiply_sampled
from kernelsieve._parallel import map_row_blocks
from kernelsieve._random import root_seed, stream
from kernelsieve._validation import check_count, check_points
from kernelsieve.sketches.base import BLOCK_BYTES, power_of_two
from kernelsieve.sketches.srht import mixed, random_signs


@dataclass(frozen=True)
class TensorSRHT:
    """The distribution of T = P (H D_1 (x) H D_2) / sqrt(size), applied to x (x) y.

    Parameters
    ----------
    n_left, n_right : int
        Coordinates of the two factors.
    size : int
        Coordinates out: pairs of transformed coordinates, sampled with replacement.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.sketches import TensorSRHT
    >>> TensorSRHT(5, 3, 16).sample(0).apply(np.ones((2, 5)), np.ones((2, 3))).shape
    (2, 16)
    """

    n_left: int
    n_right: int
    size: int

    def __post_init__(self) -> None:
        check_count(self.n_left, "n_left", "it is the number of columns of the left factor")
        check_count(self.n_right, "n_right", "it is the number of columns of the right factor")
        check_count(self.size, "size", "it is the number of products that are kept")

    def sample(self, random_state: Any = None) -> SampledTensorSRHT:
        """Draw a sketch of this distribution.

        Parameters
        ----------
        random_state : int, RandomState, Generator or None, default None
            Seed of the draw; None draws a new one.

        Returns
        -------
        SampledTensorSRHT
            Its ``apply(X, Y)`` sketches pairs of rows.
        """
        rng = stream(root_seed(random_state), "tensor srht")
        signs = random_signs(self.n_left, rng), random_signs(self.n_right, rng)
        places = [
            rng.integers(power_of_two(count), size=self.size)
            for count in (self.n_left, self.n_right)
        ]
        return SampledTensorSRHT(self.size, *signs, *places)


@dataclass(frozen=True, eq=False)
class SampledTensorSRHT:
    """A sampled TensorSRHT.

    Attributes
    ----------
    left_signs, right_signs : ndarray of shape (n_left,), (n_right,), int8
    left_places, right_places : ndarray of shape (size,)
        The pairs of transformed coordinates that are kept.
    """

    size: int
    left_signs: NDArray[np.int8]
    right_signs: NDArray[np.int8]
    left_places: NDArray[np.int64]
    right_places: NDArray[np.int64]

    def apply(self, X: Any, Y: Any, *, n_jobs: int | None = None) -> NDArray[Any]:
        """Sketch x (x) y for corresponding rows of X and Y.

        Parameters
        ----------
        X : {array-like, CSR} of shape (n, n_left)
        Y : {array-like, CSR} of shape (n, n_right)
        n_jobs : int, optional
            Number of threads; None uses all cores.

        Returns
        -------
        ndarray of shape (n, size)
        """
        X, Y = check_points(X), check_points(Y, "Y")
        wanted = (len(self.left_signs), len(self.right_signs))
        if (X.shape[1], Y.shape[1]) != wanted or X.shape[0] != Y.shape[0]:
            raise ValueError(
                f"X and Y have shapes {X.shape} and {Y.shape}: they need as many rows as each "
                f"other, and {wanted[0]} and {wanted[1]} columns"
            )
        dtype = np.result_type(X, Y)
        out = np.empty((X.shape[0], self.size), dtype=dtype)
        width = power_of_two(max(wanted)) * dtype.itemsize

        def block(rows: slice) -> None:
            left, right = self.mix_left(X[rows]), self.mix_right(Y[rows])
            out[rows] = self.combine(left, right)

        map_row_blocks(block, X.shape[0], int(np.clip(BLOCK_BYTES // width, 16, 1024)), n_jobs)
        return out

    def mix_left(self, X: Any) -> NDArray[Any]:
        """H D_1 x."""
        return mixed(X, self.left_signs)

    def mix_right(self, Y: Any) -> NDArray[Any]:
        """H D_2 y."""
        return mixed(Y, self.right_signs)

    def combine(self, left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
        """Products of the sampled pairs of mixed factors; one row stands for all rows."""
        rows = max(len(left), len(right))
        out = np.empty((rows, self.size), dtype=np.result_type(left, right))
        scale = out.dtype.type(1.0 / np.sqrt(self.size))
        multiply_sampled(left, right, self.left_places, self.right_places, scale, out)
        return out
