"""Paths of coordinates, drawn one step at a time: the inner loops of Algorithms 2 and 3.

A draw is a column j of M, a degree w and coordinates i_1 .. i_w. Line numbers are those of
Algorithm 3.

All draws take a step together, and those that share their degree and prefix share its scores. So do
the scores that beta needs: lines 28 and 29 are lines 17 and 19 for the other columns of M. Only
ratios count, so vectors are rescaled at every step and nothing underflows. On sparse data D^(a) is
zero but at the points that have all coordinates of the prefix; only these are looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._parallel import map_row_blocks
from kernelsieve.paper.partition import Inside, Partition, Places

BLOCK_PREFIXES = 4  # that a thread takes at a time


@dataclass(frozen=True)
class PathDraws:
    """Draws of a PathSampler.

    Attributes
    ----------
    columns, degrees : ndarray of shape (size,)
    paths : ndarray of shape (size, q)
        The coordinates, filled up with -1 beyond the degree.
    probabilities : ndarray of shape (size,)
        Of the column, the degree and the path together; or of the degree and the path, whatever
        the column, which is the paper's beta / s.
    """

    columns: NDArray[np.int64]
    degrees: NDArray[np.int64]
    paths: NDArray[np.int64]
    probabilities: NDArray[np.float64]


class PathSampler:
    """The distribution of (j, w, i_1 .. i_w) for given M, P_0 .. P_q and partition.

    Parameters
    ----------
    lengths : ndarray of shape (n, q + 1)
        c(x) sqrt(a_w) |x'|^w, up to a common factor.
    M : ndarray of shape (n, d')
    P : ndarray of shape (q + 1, n, m')
        The sketches of u^(x)(q-j) (x) e_1^(x)j of the unit vectors u.
    partition : Partition
        Of the coordinates of the unit vectors.
    n_jobs : int, default all cores
    """

    def __init__(
        self,
        lengths: NDArray[Any],
        M: NDArray[np.float64],
        P: NDArray[Any],
        partition: Partition,
        n_jobs: int | None = None,
    ) -> None:
        self.lengths, self.P, self.partition, self.n_jobs = lengths, P, partition, n_jobs
        # Relative to its largest entry: 1 / sqrt(lambda) may be too large for a float32.
        self.M = (M / (np.abs(M).max(initial=0.0) or 1.0)).astype(lengths.dtype)
        self.degree = len(P) - 1
        # Line 5. Z is never stacked: only the norms of its blocks' columns are needed.
        masses = np.stack([self._degree_masses(w) for w in range(len(P))])
        totals = masses.sum(axis=0)
        self.is_empty = not totals.sum() > 0
        self.column_probabilities = _normalised(totals)  # line 6
        self.degree_probabilities = _normalised(masses)  # lines 13 and 25: (q + 1, d')

    def _degree_masses(self, w: int) -> NDArray[np.float64]:
        """a_w |P_(q-w) M_j|^2 for every column j."""
        products = self.P[self.degree - w].T @ (self.lengths[:, w, None] * self.M)
        return np.einsum("mj,mj->j", products, products, dtype=np.float64)

    def draw(self, size: int, rng: np.random.Generator) -> PathDraws:
        """``size`` independent draws, with the probability of the column, the degree and the path.

        Each costs the scores of its own column only: no beta.
        """
        columns, degrees, paths, uniform = self._start(size, rng)
        probabilities = (
            self.column_probabilities[columns] * self.degree_probabilities[degrees, columns]
        )

        def extend(step: int, degree: int, prefix: list[int], draws: NDArray[np.int64]) -> None:
            used, own = np.unique(columns[draws], return_inverse=True)
            scores = self._scores(degree, prefix, used)
            paths[draws, step] = scores.draw(own, uniform[draws, step])
            conditional = scores.probabilities(paths[draws, step])
            probabilities[draws] *= conditional[np.arange(len(draws)), own]

        self._walk(degrees, paths, extend)
        return PathDraws(columns, degrees, paths, probabilities)

    def draw_with_beta(self, size: int, rng: np.random.Generator) -> PathDraws:
        """``size`` independent draws, with beta / s (lines 7 and 12 to 33)."""
        columns, degrees, paths, uniform = self._start(size, rng)
        given_column = np.ones((size, self.M.shape[1]))

        def extend(step: int, degree: int, prefix: list[int], draws: NDArray[np.int64]) -> None:
            scores = self._scores(degree, prefix)
            paths[draws, step] = scores.draw(columns[draws], uniform[draws, step])
            given_column[draws] *= scores.probabilities(paths[draws, step])

        self._walk(degrees, paths, extend)
        return PathDraws(columns, degrees, paths, self._over_columns(degrees, given_column))

    def path_probabilities(
        self, degrees: NDArray[np.int64], paths: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """beta / s of given paths (lines 23 to 33)."""
        given_column = np.ones((len(degrees), self.M.shape[1]))

        def extend(step: int, degree: int, prefix: list[int], draws: NDArray[np.int64]) -> None:
            given_column[draws] *= self._scores(degree, prefix).probabilities(paths[draws, step])

        self._walk(degrees, paths, extend)
        return self._over_columns(degrees, given_column)

    def _start(self, size: int, rng: np.random.Generator) -> tuple[NDArray[Any], ...]:
        """Columns, degrees, empty paths, and the random numbers that will fill them."""
        one = np.zeros(size, dtype=np.int64)
        columns = _choose(self.column_probabilities[:, None], one, rng.random(size))  # line 7
        degrees = _choose(self.degree_probabilities, columns, rng.random(size))  # line 14
        paths = np.full((size, self.degree), -1, dtype=np.int64)
        return columns, degrees, paths, rng.random((size, int(degrees.max(initial=0)), 2))

    def _over_columns(
        self, degrees: NDArray[np.int64], given_column: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """sum_j p_j y*_w prod_b p*_b q*_b: line 32, without the factor s."""
        return (given_column * self.degree_probabilities[degrees]) @ self.column_probabilities

    def _walk(
        self,
        degrees: NDArray[np.int64],
        paths: NDArray[np.int64],
        extend: Callable[[int, int, list[int], NDArray[np.int64]], None],
    ) -> None:
        """Lines 16 and 27: ``extend(step, degree, prefix, draws)`` for every prefix there is.

        Step by step (counted from 0), for the draws that have this degree and prefix.
        """
        for step in range(int(degrees.max(initial=0))):
            longer = np.flatnonzero(degrees > step)
            keys = np.column_stack([degrees[longer], paths[longer, :step]])
            distinct, group = np.unique(keys, axis=0, return_inverse=True)
            group = group.reshape(-1)
            ends = np.cumsum(np.bincount(group, minlength=len(distinct)))
            draws = np.split(longer[np.argsort(group, kind="stable")], ends[:-1])

            def block(
                some: slice, step: int = step, distinct: Any = distinct, draws: Any = draws
            ) -> None:
                for (degree, *prefix), here in zip(
                    distinct[some].tolist(), draws[some], strict=True
                ):
                    extend(step, degree, prefix, here)

            map_row_blocks(block, len(distinct), BLOCK_PREFIXES, self.n_jobs)

    def _scores(self, degree: int, prefix: list[int], columns: Any = slice(None)) -> _Scores:
        """The distributions of the next coordinate, for some columns of M."""
        at: Places = slice(None)
        values = self.lengths[:, degree]
        for i in prefix:  # lines 21 and 30
            at, values = _times(at, values, *self.partition.line(i))
        D = _rescaled(values[:, None] * self.M[at][:, columns])  # lines 15 and 26
        a = len(prefix) + 1
        return _Scores(self.partition, at, D, self.P[a + self.degree - degree][at])


class _Scores:
    """Given a prefix: the distributions of the next coordinate, one for every column of D."""

    def __init__(self, partition: Partition, at: Places, D: NDArray[Any], P: NDArray[Any]) -> None:
        self._partition, self._at, self._D, self._P = partition, at, D, P
        self._buckets = _normalised(partition.bucket_masses(at, D, P))  # lines 17 and 28
        self._inside: dict[int, Inside] = {}

    def _look_inside(self, buckets: NDArray[np.int64]) -> list[int]:
        """Find the shares of the coordinates of these buckets (lines 19 and 29); names them."""
        distinct: list[int] = np.unique(buckets).tolist()
        new = [bucket for bucket in distinct if bucket not in self._inside]
        if new:
            found = self._partition.inside_masses(new, self._at, self._D, self._P)
            for bucket, (coordinates, masses) in zip(new, found, strict=True):
                self._inside[bucket] = coordinates, _normalised(masses)
        return distinct

    def draw(self, columns: NDArray[np.int64], uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """A coordinate for every draw, by the distribution of its column."""
        buckets = _choose(self._buckets, columns, uniform[:, 0])  # line 18
        chosen = np.empty_like(buckets)
        for bucket in self._look_inside(buckets):
            there = np.flatnonzero(buckets == bucket)
            coordinates, shares = self._inside[bucket]
            chosen[there] = coordinates[_choose(shares, columns[there], uniform[there, 1])]  # 20
        return chosen

    def probabilities(self, wanted: NDArray[np.int64]) -> NDArray[np.float64]:
        """p*_b q*_b of the wanted coordinates, for every column: (n_wanted, k)."""
        result = np.zeros((len(wanted), self._D.shape[1]))
        buckets = self._partition.bucket[wanted]
        for bucket in self._look_inside(buckets):
            coordinates, shares = self._inside[bucket]
            there = np.flatnonzero(buckets == bucket)
            places = np.searchsorted(coordinates, wanted[there]).clip(max=len(coordinates) - 1)
            listed = coordinates[places] == wanted[there]  # the others have no mass
            result[there] = listed[:, None] * self._buckets[bucket] * shares[places]
        return result


def _times(
    at: Places, values: NDArray[Any], others: Places, line: NDArray[Any]
) -> tuple[Places, NDArray[Any]]:
    """The product of two vectors that are zero but at some points, rescaled."""
    if isinstance(at, slice):
        return others, _rescaled(values[others] * line)
    assert not isinstance(others, slice)  # lines are all sparse, or all dense
    common, here, there = np.intersect1d(at, others, assume_unique=True, return_indices=True)
    return common, _rescaled(values[here] * line[there])


def _rescaled(D: NDArray[Any]) -> NDArray[Any]:
    """Columns divided by their largest entries; zero columns stay zero."""
    largest = np.abs(D).max(axis=0, initial=0.0)
    return D / np.where(largest > 0, largest, 1.0).astype(D.dtype)


def _normalised(masses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Columns that sum to 1; where there is no mass, all are alike (0/0 is never drawn)."""
    totals = masses.sum(axis=0)
    alike = np.full_like(masses, 1.0 / max(1, len(masses)))
    return np.divide(masses, totals, out=alike, where=totals > 0)


def _choose(
    shares: NDArray[np.float64], columns: NDArray[np.int64], uniform: NDArray[np.float64]
) -> NDArray[np.int64]:
    """For every draw a row of ``shares``, by the distribution in its column."""
    used, own = np.unique(columns, return_inverse=True)
    shares = shares[:, used]
    cumulative = np.cumsum(shares, axis=0)
    # One search for all: the distribution functions of the columns stand one above the other.
    steps = (cumulative / cumulative[-1:] + np.arange(len(used))).T.ravel()
    rows = np.searchsorted(steps, uniform + own, side="right") - own * len(shares)
    # Rounding may step past the last one: back to the last that has any mass.
    last = len(shares) - 1 - np.argmax(shares[::-1] > 0, axis=0)
    return np.clip(rows, 0, last[own])
