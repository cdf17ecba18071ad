"""The random partition of the coordinates and its sketches: Alg. 3 lines 8 to 11, 17 and 19.

In Alg. 2 the last two are lines 15 and 17.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

CHUNK_ENTRIES = 2**20  # of the products that are held at once: about a cache

Places = NDArray[np.int64] | slice  # of data points: some of them, or all
Inside = tuple[NDArray[np.int64], NDArray[np.float64]]  # rising coordinates, and masses: (., k)


class Partition:
    """Coordinates in random buckets, with sketches that estimate the mass of each bucket.

    Parameters
    ----------
    units : {ndarray, CSR} of shape (n, d)
        The unit vectors of the points: the paper's X, transposed and normalised.
    n_buckets, bucket_rows : int
        s' and n'.
    rng : Generator

    Attributes
    ----------
    n_buckets : int
        Buckets that hold a coordinate.
    bucket : ndarray of shape (d,)
        h(i), counted among these.
    W : ndarray of shape (n, n_rows) or None
        The matrices W_r, transposed, side by side; None where there is nothing to choose.
    starts : ndarray of shape (n_buckets,)
        The first row of each W_r.
    """

    def __init__(
        self, units: Any, n_buckets: int, bucket_rows: int, rng: np.random.Generator
    ) -> None:
        buckets = rng.integers(n_buckets, size=units.shape[1])  # line 8
        # Line 9. A bucket without coordinates has no mass: only the others are kept.
        used, self.bucket = np.unique(buckets, return_inverse=True)
        self.n_buckets = len(used)
        self._order = np.argsort(self.bucket, kind="stable")
        ends = np.cumsum(np.bincount(self.bucket, minlength=self.n_buckets))
        self._bounds = np.concatenate([[0], ends])
        self._line = np.empty_like(self._order)  # of a coordinate in the order of the buckets
        self._line[self._order] = np.arange(len(self._order))
        ordered = units[:, self._order]
        self._lines = _transposed(ordered)
        self._points: Any = ordered if sp.issparse(units) else None
        rows = np.minimum(np.diff(self._bounds), bucket_rows)
        self.starts = np.cumsum(rows) - rows
        self.W = self._sketch(bucket_rows, rng) if self.n_buckets > 1 else None

    def line(self, coordinate: int) -> tuple[Places, NDArray[Any]]:
        """X_(i, *): the points where coordinate i is not zero, and what it is there."""
        line = self._line[coordinate]
        if not sp.issparse(self._lines):
            return slice(None), self._lines[line]
        stored = slice(*self._lines.indptr[line : line + 2])
        return self._lines.indices[stored], self._lines.data[stored]

    def bucket_masses(self, at: Places, D: NDArray[Any], P: NDArray[Any]) -> NDArray[np.float64]:
        """|W_r D_g P^T|_F^2 for all buckets r (line 17): (n_buckets, k).

        ``D`` (n_points, k) holds the diagonals of k matrices D_g at the points ``at``; elsewhere
        they are zero. ``P`` (n_points, m') is the sketch at these points.
        """
        if self.W is None:
            return np.ones((1, D.shape[1]))  # one bucket: certain, whatever it holds
        return np.add.reduceat(_squared_rows(self.W[at].T, D, P), self.starts, axis=0)

    def inside_masses(
        self, buckets: list[int], at: Places, D: NDArray[Any], P: NDArray[Any]
    ) -> list[Inside]:
        """|X_(i, *) D_g P^T|^2 for the coordinates i of each bucket (line 19)."""
        everywhere = self._points is None or isinstance(at, slice)
        lines = self._lines if everywhere else _transposed(self._points[at])
        inside = [_filled(lines, *self._bounds[r : r + 2]) for r in buckets]
        chosen = np.concatenate(inside)
        if len(chosen) < lines.shape[0]:
            lines = lines[chosen]
        ends = np.cumsum([len(some) for some in inside])
        masses = np.split(_squared_rows(lines, D, P), ends[:-1])
        return [(self._order[some], mass) for some, mass in zip(inside, masses, strict=True)]

    def _sketch(self, bucket_rows: int, rng: np.random.Generator) -> NDArray[Any]:
        """W_r = G_r X_(h^-1(r), *) for all r (lines 10 and 11)."""
        W = []
        for first, last in pairwise(self._bounds):
            G = shortened(rng.standard_normal((bucket_rows, last - first)))
            W.append(self._lines[first:last].T @ G.T.astype(self._lines.dtype))
        return np.concatenate(W, axis=1)


def _transposed(points: Any) -> Any:
    return points.T.tocsr() if sp.issparse(points) else np.ascontiguousarray(points.T)


def _filled(lines: Any, first: int, last: int) -> NDArray[np.int64]:
    """The nonempty lines from ``first`` to ``last``; all of them if every line is empty.

    Few points leave most lines of sparse data empty, and these have no mass.
    """
    inside = np.arange(first, last)
    if not sp.issparse(lines):
        return inside
    filled = inside[np.diff(lines.indptr[first : last + 1]) > 0]
    return filled if len(filled) else inside


def shortened(A: NDArray[Any]) -> NDArray[Any]:
    """A matrix R with |R y| = |A y| for all y, with no more rows than columns."""
    return A if A.shape[0] <= A.shape[1] else np.linalg.qr(A).R


def _squared_rows(rows: Any, D: NDArray[Any], P: NDArray[Any]) -> NDArray[np.float64]:
    """|row diag(D_g) P|^2 for all rows and all columns D_g: (n_rows, k).

    D is multiplied into the rows or into P, whichever is shorter, a few columns at a time.
    """
    (n, m), count = P.shape, rows.shape[0]
    into_rows = not sp.issparse(rows) and count < m
    largest = max(n * (count if into_rows else m), count * m, 1)
    step = max(1, CHUNK_ENTRIES // largest)
    masses = np.empty((count, D.shape[1]))
    for first in range(0, D.shape[1], step):
        some = D[:, first : first + step]
        k = some.shape[1]
        if into_rows:
            lines = rows[:, None, :] * np.ascontiguousarray(some.T)
            products = lines.reshape(count * k, n) @ P
        else:
            products = rows @ (some[:, :, None] * P[:, None, :]).reshape(n, k * m)
        products = np.asarray(products).reshape(count, k, m)
        masses[:, first : first + step] = np.einsum(
            "rgm,rgm->rg", products, products, dtype=np.float64
        )
    return masses
