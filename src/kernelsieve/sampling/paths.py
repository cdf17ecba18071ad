"""Paths of coordinates, drawn one step at a time: the inner loops of Algorithms 2 and 3.

A draw is a column j of M, a degree w and coordinates i_1 .. i_w. Given j, conditional
probabilities need no normalisation of M_j, so vectors are rescaled at every step: nothing
underflows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve.sampling.partition import Partition

GROUP_COLUMNS = 64  # prefixes that are looked at together


@dataclass(frozen=True)
class PathDraws:
    """Draws of a PathSampler.

    Attributes
    ----------
    columns, degrees : ndarray of shape (size,)
    paths : ndarray of shape (size, q)
        The coordinates, filled up with -1 beyond the degree.
    probabilities : ndarray of shape (size,)
        Of the column, the degree and the path together.
    """

    columns: NDArray[np.int64]
    degrees: NDArray[np.int64]
    paths: NDArray[np.int64]
    probabilities: NDArray[np.float64]


class PathSampler:
    """The distribution of (j, w, i_1 .. i_w) for given M, P_0 .. P_q and partition.

    Parameters
    ----------
    directions : {ndarray, CSR} of shape (d, n)
        Row i is coordinate i of all unit vectors.
    lengths : ndarray of shape (n, q + 1)
        c(x) sqrt(a_w) |x'|^w, up to a common factor.
    M : ndarray of shape (n, d')
    P : ndarray of shape (q + 1, n, m')
        The sketches of u^(x)(q-j) (x) e_1^(x)j.
    partition : Partition
    """

    def __init__(
        self,
        directions: Any,
        lengths: NDArray[Any],
        M: NDArray[Any],
        P: NDArray[Any],
        partition: Partition,
    ) -> None:
        self.directions, self.lengths, self.P, self.partition = directions, lengths, P, partition
        self.M = M.astype(lengths.dtype)
        self.degree = len(P) - 1
        # Alg. 3 line 5: Z is never stacked, only its blocks' column norms are needed.
        masses = np.stack(
            [self._degree_masses(lengths[:, w], P[self.degree - w]) for w in range(len(P))]
        )
        totals = masses.sum(axis=0)
        self.is_empty = not totals.sum() > 0
        self.column_probabilities = _normalised(totals)  # line 6
        self.degree_probabilities = _normalised(masses)  # line 13

    def _degree_masses(self, length: NDArray[Any], P: NDArray[Any]) -> NDArray[np.float64]:
        products = P.T @ (length[:, None] * self.M)
        return np.einsum("mj,mj->j", products, products, dtype=np.float64)

    def _sketch(self, degree: int, step: int) -> NDArray[Any]:
        """P_(a+q-w) of line 17, for the step a = 1, 2, ..."""
        return self.P[step + self.degree - degree]

    def _start(self, degree: int, columns: Any) -> NDArray[Any]:
        """D^(0): the degree's lengths times columns of M."""
        return _rescaled(self.lengths[:, degree][:, None] * self.M[:, columns])

    def _line(self, coordinate: int) -> NDArray[Any]:
        """One coordinate of all rows."""
        line = self.directions[[coordinate]]
        return (line.toarray() if sp.issparse(line) else line)[0]

    def draw(self, size: int, rng: np.random.Generator) -> PathDraws:
        """``size`` independent draws; those that share a prefix share its scores."""
        columns, column_probability = _choose(
            self.column_probabilities[:, None], np.zeros(size, dtype=np.int64), rng
        )  # line 7
        degrees, degree_probability = _choose(self.degree_probabilities, columns, rng)  # line 14
        probabilities = column_probability * degree_probability
        paths = np.full((size, self.degree), -1, dtype=np.int64)
        for step in range(1, int(degrees.max(initial=0)) + 1):  # line 16
            for degree in range(step, self.degree + 1):
                draws = np.flatnonzero(degrees == degree)
                keys = np.column_stack([columns[draws], paths[draws, : step - 1]])
                prefixes, group = np.unique(keys, axis=0, return_inverse=True)
                group = group.reshape(-1)
                for first in range(0, len(prefixes), GROUP_COLUMNS):
                    some = prefixes[first : first + GROUP_COLUMNS]
                    here = (group >= first) & (group < first + len(some))
                    chosen, conditional = self._step(degree, step, some, group[here] - first, rng)
                    paths[draws[here], step - 1] = chosen
                    probabilities[draws[here]] *= conditional
        return PathDraws(columns, degrees, paths, probabilities)

    def _step(
        self,
        degree: int,
        step: int,
        prefixes: NDArray[np.int64],
        group: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Lines 17 to 20: a bucket, then a coordinate inside it, and their probability."""
        D = self._start(degree, prefixes[:, 0])
        for place in range(1, step):
            lines = {i: self._line(i) for i in np.unique(prefixes[:, place]).tolist()}
            D = _rescaled(D * np.column_stack([lines[i] for i in prefixes[:, place].tolist()]))
        P = self._sketch(degree, step)
        buckets, probabilities = _choose(self.partition.bucket_masses(D, P), group, rng)
        chosen = np.empty(len(group), dtype=np.int64)
        for bucket in np.unique(buckets):
            there = np.flatnonzero(buckets == bucket)
            used, columns = np.unique(group[there], return_inverse=True)
            masses = self.partition.inside_masses(bucket, D[:, used], P)
            places, conditional = _choose(masses, columns.reshape(-1), rng)
            chosen[there] = self.partition.coordinates(bucket)[places]
            probabilities[there] *= conditional
        return chosen, probabilities

    def path_probabilities(
        self, degrees: NDArray[np.int64], paths: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """The probability of every (w, path), summed over the columns of M: the paper's beta / s.

        Lines 22 to 32; the columns go side by side, and paths that share a prefix share its scores.
        """
        result = np.empty(len(degrees))
        for degree in np.unique(degrees).tolist():
            here = np.flatnonzero(degrees == degree)
            distinct, inverse = np.unique(paths[here, :degree], axis=0, return_inverse=True)
            given_column = np.empty((len(distinct), self.M.shape[1]))
            start = self._start(degree, slice(None))
            self._walk(degree, 0, distinct, start, np.ones(self.M.shape[1]), given_column)
            weights = self.column_probabilities * self.degree_probabilities[degree]
            result[here] = (given_column @ weights)[inverse.reshape(-1)]
        return result

    def _walk(
        self,
        degree: int,
        step: int,
        paths: NDArray[np.int64],
        L: NDArray[Any],
        probability: NDArray[np.float64],
        out: NDArray[np.float64],
    ) -> None:
        """Paths that agree in their first ``step`` coordinates, sorted; ``out`` is one row each."""
        if step == degree:
            out[:] = probability
            return
        P = self._sketch(degree, step + 1)
        over_buckets = _normalised(self.partition.bucket_masses(L, P))  # line 26
        coordinates, firsts = np.unique(paths[:, step], return_index=True)
        lasts = np.append(firsts[1:], len(paths))
        inside: dict[int, NDArray[np.float64]] = {}
        for i, first, last in zip(coordinates.tolist(), firsts, lasts, strict=True):
            bucket = int(self.partition.bucket[i])
            if bucket not in inside:
                inside[bucket] = _normalised(self.partition.inside_masses(bucket, L, P))  # line 27
            conditional = over_buckets[bucket] * inside[bucket][self.partition.place[i]]
            deeper = _rescaled(L * self._line(i)[:, None])
            rest = slice(first, last)
            self._walk(degree, step + 1, paths[rest], deeper, probability * conditional, out[rest])


def _rescaled(D: NDArray[Any]) -> NDArray[Any]:
    """Columns divided by their largest entries; zero columns stay zero."""
    largest = np.abs(D).max(axis=0, initial=0.0)
    return D / np.where(largest > 0, largest, 1.0).astype(D.dtype)


def _normalised(masses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Columns that sum to 1; where there is no mass, all are alike (0/0 is never drawn)."""
    totals = masses.sum(axis=0)
    alike = np.full_like(masses, 1.0 / len(masses))
    return np.divide(masses, totals, out=alike, where=totals > 0)


def _choose(
    masses: NDArray[np.float64], columns: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """For every draw a row of ``masses``, in proportion to its column, and the probability."""
    shares = _normalised(masses)
    cumulative = np.cumsum(shares, axis=0)
    uniform = rng.random(len(columns))
    chosen = np.empty(len(columns), dtype=np.int64)
    for column in np.unique(columns):
        here = columns == column
        steps = cumulative[:, column]
        chosen[here] = np.searchsorted(steps, uniform[here] * steps[-1], side="right")
    # Rounding may step past the last one: back to the last that has any mass.
    last = len(shares) - 1 - np.argmax(shares[::-1] > 0, axis=0)
    chosen = np.minimum(chosen, last[columns])
    return chosen, shares[chosen, columns]
