"""The random partition of the coordinates and its sketches: Alg. 3 lines 8 to 11, 17 and 19."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

CHUNK_ENTRIES = 2**23  # of the products that are held at once


class Partition:
    """Coordinates in buckets; what a bucket holds is estimated before one looks inside.

    Parameters
    ----------
    directions : {ndarray, CSR} of shape (d, n)
        Row i is coordinate i of all unit vectors: the paper's X.
    n_buckets, bucket_rows : int
        s' and n'.
    rng : Generator
    """

    def __init__(
        self, directions: Any, n_buckets: int, bucket_rows: int, rng: np.random.Generator
    ) -> None:
        buckets = rng.integers(n_buckets, size=directions.shape[0])  # line 8
        # A bucket without coordinates has no mass: only the others are kept.
        used, self.bucket = np.unique(buckets, return_inverse=True)
        self.n_buckets = len(used)
        self.order = np.argsort(self.bucket, kind="stable")
        self.ends = np.cumsum(np.bincount(self.bucket, minlength=self.n_buckets))
        self.place = np.empty_like(self.order)  # of a coordinate in its bucket
        self.place[self.order] = np.arange(len(self.order)) - self._starts[self.bucket[self.order]]
        self._rows = directions[self.order]
        self._sketches: NDArray[Any] | None = None
        if self.n_buckets > 1:
            self._sketches = self._sketch(bucket_rows, rng)

    @property
    def _starts(self) -> NDArray[np.int64]:
        return np.concatenate([[0], self.ends[:-1]])

    def coordinates(self, bucket: int) -> NDArray[np.int64]:
        """h^-1(bucket)."""
        return self.order[self._starts[bucket] : self.ends[bucket]]

    def _inside(self, bucket: int) -> Any:
        return self._rows[self._starts[bucket] : self.ends[bucket]]

    def _sketch(self, bucket_rows: int, rng: np.random.Generator) -> NDArray[Any]:
        """W_r = G_r X_(h^-1(r)) for all r, one below the other (lines 10 and 11)."""
        dtype = self._rows.dtype
        sketches = np.empty((self.n_buckets, bucket_rows, self._rows.shape[1]), dtype=dtype)
        for r in range(self.n_buckets):
            inside = self._inside(r)
            G = rng.standard_normal((inside.shape[0], bucket_rows)).astype(dtype)
            sketches[r] = (inside.T @ G).T
        return sketches

    def bucket_masses(self, L: NDArray[Any], P: NDArray[Any]) -> NDArray[np.float64]:
        """|W_r diag(L_g) P^T|_F^2 (line 17), of shape (n_buckets, G), for L of shape (n, G)."""
        if self._sketches is None:
            return np.ones((1, L.shape[1]))  # one bucket: certain, whatever it holds
        flat = self._sketches.reshape(-1, self._sketches.shape[2])
        masses = _squared_rows(flat, L, P)
        return masses.reshape(self.n_buckets, -1, L.shape[1]).sum(axis=1)

    def inside_masses(self, bucket: int, L: NDArray[Any], P: NDArray[Any]) -> NDArray[np.float64]:
        """|X_i diag(L_g) P^T|^2 (line 19) for the coordinates i of a bucket: (d_r, G)."""
        return _squared_rows(self._inside(bucket), L, P)


def _squared_rows(rows: Any, L: NDArray[Any], P: NDArray[Any]) -> NDArray[np.float64]:
    """|row diag(L_g) P^T|^2 for all rows and g, a few columns of L at a time."""
    n, m = P.shape
    masses = np.empty((rows.shape[0], L.shape[1]))
    step = max(1, CHUNK_ENTRIES // (m * max(n, rows.shape[0])))
    for first in range(0, L.shape[1], step):
        part = L[:, first : first + step]
        weighted = (part[:, :, None] * P[:, None, :]).reshape(n, -1)
        products = np.asarray(rows @ weighted).reshape(rows.shape[0], part.shape[1], m)
        masses[:, first : first + step] = np.einsum(
            "rgm,rgm->rg", products, products, dtype=np.float64
        )
    return masses


def lifted_rows(points: Any, log_lengths: NDArray[np.float64]) -> tuple[Any, NDArray[Any]]:
    """Unit vectors of the points (zero ones stay zero), and the lengths of their degrees.

    The lengths are relative to the largest: |x'|^q overflows, distributions only see ratios.
    """
    squared = (
        points.multiply(points).sum(axis=1) if sp.issparse(points) else (points**2).sum(axis=1)
    )
    norms = np.sqrt(np.asarray(squared, dtype=np.float64).ravel())
    inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    inverse = inverse.astype(points.dtype)
    units = (
        sp.csr_array(sp.diags_array(inverse) @ points)
        if sp.issparse(points)
        else points * inverse[:, None]
    )
    lengths = np.exp(log_lengths - log_lengths.max(initial=-np.inf))
    return units, lengths.astype(points.dtype)
