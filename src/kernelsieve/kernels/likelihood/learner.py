"""The rows that a kernel is learned from, prepared, and the searches on them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._parallel import one_thread, one_thread_in_blas, ordered_map, thread_count
from kernelsieve._progress import track
from kernelsieve._random import keyed_rows
from kernelsieve.kernels.likelihood.rates import (
    IDLE,
    Columns,
    Fit,
    moved,
    pruned,
    search,
    start_rate,
    widened,
)
from kernelsieve.sources.base import Block, Source

LEARNABLE = ("laplacian", "matern32", "matern52", "gaussian")
SCREENED_ROWS = 500
SCREENED_ITERATIONS = 30
REFINED_ITERATIONS = 20
MOST_COLUMNS = 256  # that the search of all families begins with
FEW_COLUMNS = 32  # are never too many
FIRST_ROWS, FIRST_ITERATIONS = 300, 15  # of the search that picks them among more columns
SLOWER = 2.0  # are the smooth families than the Laplacian, which is the first
NOTHING_FOUND = 0.03  # how far below that of mere noise the objective must be to mean something
NARROWER = 6.0
FAR_BEHIND = 0.1
FEWEST_OF_CLASS = 20  # rows of a rare class
NO_RATE = -30.0  # the logarithm of a rate that stands for 0


@dataclass(frozen=True, eq=False)
class Learner:
    """Rows to learn from, in random order, so that the first ones are a sample of all.

    Attributes
    ----------
    rows : ndarray of int
        Their numbers in the source.
    X : ndarray of shape (n, d)
        The rows with a weight.
    columns : Columns
        Versions of the columns.
    parts : ndarray of shape (2, n, d)
        The rows in these versions.
    usable : ndarray of int
        Columns that are not constant.
    target : ndarray of shape (n, m)
        Centred, with mean square 1.
    noise : ndarray of shape (n,)
        1 over the weights of the rows.
    rule : "likelihood" or "leave-one-out"
    n_jobs : int or None
    """

    rows: NDArray[np.int64]
    X: NDArray[np.float64]
    columns: Columns
    parts: NDArray[np.float64]
    usable: NDArray[np.int64]
    target: NDArray[np.float64]
    noise: NDArray[np.float64]
    rule: str
    n_jobs: int | None

    @classmethod
    def on(
        cls,
        source: Source,
        n_rows: int,
        *,
        seed: int,
        among: NDArray[np.int64] | None = None,
        categorical: Sequence[int] = (),
        classification: bool = False,
        rule: str = "likelihood",
        n_jobs: int | None = None,
    ) -> Self:
        """Draw rows, from ``among`` if only some may be looked at, and prepare them."""
        among = np.arange(source.shape[0]) if among is None else among
        rows, block = _drawn(source, among, n_rows, classification, seed)
        X = block.X.toarray() if sp.issparse(block.X) else block.X
        X = np.asarray(X, dtype=np.float64)
        is_categorical = np.zeros(X.shape[1], dtype=bool)
        is_categorical[list(categorical)] = True
        columns = Columns.of(X, is_categorical)
        usable = np.flatnonzero(X.min(axis=0) < X.max(axis=0))
        usable = usable if len(usable) else np.arange(1)  # all are constant: any of them will do
        weights = block.weights_or_ones
        if not weights.any():  # of many rows these may be some without a weight
            weights = np.ones(len(weights))
        order = np.random.default_rng(0).permutation(np.flatnonzero(weights > 0))
        weights = weights[order] / weights[order].mean()
        target = _coded(np.asarray(block.y)[order], classification, weights)
        X = np.ascontiguousarray(X[order])
        parts = columns.parts(X)
        return cls(rows, X, columns, parts, usable, target, 1.0 / weights, rule, n_jobs)

    @property
    def n_rows(self) -> int:
        """The number of rows with a weight."""
        return len(self.target)

    def equal(self, family: str) -> Fit:
        """Equal rates for all columns, without a search: one width, on scaled columns."""
        d = len(self.usable)
        rates = np.full(d, np.log(start_rate(family, max(1, d))))
        parameters = np.concatenate([rates, np.full(d, NO_RATE), [0.0, np.log(0.05)]])
        return Fit(family, self.usable, parameters, np.inf, self.n_rows, 0, 0.0)

    def screen(
        self, families: Sequence[str], deadline: float = np.inf, verbose: int = 0
    ) -> list[Fit]:
        """Search all families on few rows; several searches of a family may come back."""
        kept, first = self.usable, []
        if len(kept) > MOST_COLUMNS:
            glance = self._search("laplacian", kept, FIRST_ROWS, FIRST_ITERATIONS, deadline)
            kept = glance.strongest(MOST_COLUMNS)
        if len(kept) > FEW_COLUMNS and np.isfinite(deadline):
            # One family picks the columns for which the others have time.
            first = self._tried([(families[0], kept, None, 1.0)], deadline, verbose)
            families = families[1:]
            of_column = first[0].seconds / max(1, first[0].iterations) / len(kept)
            most = self._affordable(of_column, len(families), deadline)
            kept = first[0].strongest(most)
        tries = [(family, kept, None, 1.0) for family in families]
        first += self._tried(tries, deadline, verbose)
        best = min(first, key=lambda fit: fit.value)
        nothing = self._value_of_noise() - NOTHING_FOUND
        # A narrow kernel may find what a wide one does not see, ...
        again: list[tuple[str, NDArray[np.int64], Fit | None, float]] = [
            (fit.family, kept, None, NARROWER) for fit in first if fit.value > nothing
        ]
        if best.value <= nothing:  # ... and one that ended far behind may have been stuck.
            behind = [fit.family for fit in first if fit.value > best.value + FAR_BEHIND]
            again += [(family, best.columns, moved(best, family), 1.0) for family in behind]
        return [*first, *self._tried(again, deadline, verbose)]

    def _affordable(self, of_column: float, n_families: int, deadline: float) -> int:
        """As many columns as other families can be searched with in time.

        ``of_column`` is how long an iteration took for each column.
        """
        searches = max(1.0, n_families / thread_count(self.n_jobs)) * SCREENED_ITERATIONS
        in_time = (deadline - time.monotonic()) / max(searches * SLOWER * of_column, 1e-9)
        return int(np.clip(in_time, FEW_COLUMNS, MOST_COLUMNS))

    def refine(
        self,
        fits: Sequence[Fit],
        deadline: float = np.inf,
        verbose: int = 0,
        iterations: int = REFINED_ITERATIONS,
    ) -> list[Fit]:
        """Continue searches on all rows."""
        searches = ordered_map(
            lambda fit: (
                fit
                if time.monotonic() > deadline
                else self._search(fit.family, fit.columns, self.n_rows, iterations, deadline, fit)
            ),
            list(fits),
            self.n_jobs if len(fits) > 1 else 1,  # one alone has all threads to itself
        )
        return list(track(searches, len(fits), "rates", verbose))

    def widened(self, fit: Fit) -> list[Fit]:
        """The same with columns that few rows had dropped and all rows ask for, if any."""
        with one_thread():
            found = widened(
                fit, self.usable, self.parts, self.columns, self.target, self.noise, self.rule
            )
        return [] if found is None else [found]

    def pruned(self, fit: Fit, thresholds: tuple[float, ...], n_rows: int | None = None) -> Fit:
        """The same without columns that are not worth their price in likelihood."""
        parts, target = self.parts[:, :n_rows], self.target[:n_rows]
        with one_thread():
            return pruned(
                fit, parts, self.columns, target, self.noise[:n_rows], self.rule, thresholds
            )

    def _search(
        self,
        family: str,
        kept: NDArray[np.int64],
        n_rows: int,
        max_iter: int,
        deadline: float,
        start: Fit | None = None,
        stretch: float = 1.0,
    ) -> Fit:
        """One search on the first rows; with the threads that other searches leave."""
        with one_thread_in_blas():
            fit = search(
                self.parts[:, :n_rows],
                self.columns,
                kept,
                self.target[:n_rows],
                self.noise[:n_rows],
                family,
                max_iter,
                start=start,
                stretch=stretch,
                rule=self.rule,
                deadline=deadline,
                n_jobs=self.n_jobs,
            )
        return self.pruned(fit, IDLE, n_rows)

    def _value_of_noise(self) -> float:
        """The objective on few rows for a kernel that explains nothing."""
        target, noise = self.target[:SCREENED_ROWS], self.noise[:SCREENED_ROWS]
        if self.rule != "likelihood":
            return 0.5 * float(np.mean(target**2))
        size = float(np.mean(target**2 / noise[:, None]))
        return 0.5 * (1.0 + float(np.log(max(size, 1e-300)) + np.mean(np.log(noise))))

    def _tried(
        self,
        tries: Sequence[tuple[str, NDArray[np.int64], Fit | None, float]],
        deadline: float,
        verbose: int,
    ) -> list[Fit]:
        """Searches on few rows: family, columns, where to begin and how narrow."""
        searches = ordered_map(
            lambda t: self._search(
                t[0], t[1], SCREENED_ROWS, SCREENED_ITERATIONS, deadline, t[2], t[3]
            ),
            tries,
            self.n_jobs,
        )
        return list(track(searches, len(tries), "families", verbose))


def best_of_families(fits: Sequence[Fit]) -> list[Fit]:
    """The best search of every family: the best of all, the best of the other kind, the rest.

    The Laplacian is rough and the others are smooth. Between the kinds the likelihood errs more
    than within, where the families hardly differ.
    """
    best: dict[str, Fit] = {}
    for fit in sorted(fits, key=lambda fit: fit.value):
        best.setdefault(fit.family, fit)
    ranked = list(best.values())
    rough = ranked[0].family == "laplacian"
    other = next((fit for fit in ranked if (fit.family == "laplacian") != rough), None)
    return (
        ranked if other is None else [ranked[0], other, *(f for f in ranked[1:] if f is not other)]
    )


def _drawn(
    source: Source, among: NDArray[np.int64], n_rows: int, classification: bool, seed: int
) -> tuple[NDArray[np.int64], Block]:
    """The rows to learn from; of classes more are drawn at first, for the sake of the rare."""
    rows = among[keyed_rows(len(among), n_rows * (8 if classification else 1), seed, "learn")]
    block = source.take(rows)
    if block.y is None:
        raise ValueError("the kernel is learned from a target: pass y")
    if not classification or len(rows) <= n_rows:
        return rows, block
    order = np.random.default_rng(seed).permutation(len(rows))
    labels = np.asarray(block.y)[order]
    rank_in_class = np.empty(len(rows), dtype=np.int64)
    for label in np.unique(labels):
        of_class = labels == label
        rank_in_class[of_class] = np.arange(of_class.sum())
    first = np.where(
        rank_in_class < FEWEST_OF_CLASS, rank_in_class - len(rows), np.arange(len(rows))
    )
    chosen = np.sort(order[np.argsort(first, kind="stable")[:n_rows]])
    return rows[chosen], block.take(chosen)


def _coded(
    y: NDArray[Any], classification: bool, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Targets of shape (n, m), centred and with mean square 1; constant ones stay 0."""
    if classification:
        labels = np.unique(y)
        several = labels if len(labels) > 2 else labels[:1]
        coded = np.stack([np.where(y == label, 1.0, -1.0) for label in several], axis=1)
    else:
        coded = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    coded = coded - np.average(coded, axis=0, weights=weights)
    size = np.sqrt(np.average(coded**2, axis=0, weights=weights))
    return coded / np.where(size > 0, size, 1.0)
