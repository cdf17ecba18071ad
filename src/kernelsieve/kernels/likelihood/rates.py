"""Rates by likelihood: the search for one family of kernels on given rows."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from kernelsieve._native.product_gram import CATEGORICAL
from kernelsieve.kernels.families import family_codes
from kernelsieve.kernels.likelihood.objective import Objective
from kernelsieve.kernels.product import Product
from kernelsieve.kernels.warps import Warp, combined

Array = NDArray[np.float64]

# Logarithms of the smallest and largest values that the search may reach.
RATE_BOUNDS = (-12.0, 4.0)
AMPLITUDE_BOUNDS = (-5.0, 7.0)
NOISE_BOUNDS = (-13.0, 2.0)
AMPLITUDE_DEVIATION = 3.0  # of the prior on log a
RATE_DEVIATION = 2.0  # of the prior on log rates, whose mean is where searches begin
CORRECTIONS = 15  # of L-BFGS
WEAKEST = (2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 1e-3)  # rates, relative to their mean
IDLE = (0.02, 0.01, 1e-3)  # the same after a search on few rows, which does not know better
# What a column must be worth, in log likelihood. A high price costs columns with a weak effect; a
# low one keeps noise, of which there is more among many columns.
PRICE, PRICE_OF_CHOICE = 0.3, 0.01  # and so much more for each column to choose from

PROBE_RATE = 1e-3  # of columns that may come back: so small that all together change little
PROBE_TOGETHER = 4.0  # and a rate that is so much less than where a search of all would begin
IDLE_RATE = 2.0  # times that rate: a column below it may as well be missing
MOST_ADDED = 8  # columns that come back at a time, by either rate


@dataclass(frozen=True)
class Columns:
    """The columns that may take part, each in its versions.

    Attributes
    ----------
    identity, rank : tuple of Warp
        Two monotone versions of each column. The search weighs them against each other.
    categorical : ndarray of bool, of shape (d,)
        Columns of codes, whose kernel looks at equality only.
    """

    identity: tuple[Warp, ...]
    rank: tuple[Warp, ...]
    categorical: NDArray[np.bool_]

    @classmethod
    def of(cls, X: NDArray[np.float64], categorical: NDArray[np.bool_]) -> Columns:
        """Fit the versions to the rows of X."""
        warps = [tuple(Warp.fit(c, kind) for c in X.T) for kind in ("identity", "rank")]
        return cls(warps[0], warps[1], categorical)

    def __len__(self) -> int:
        return len(self.identity)

    def parts(self, X: NDArray[np.float64]) -> Array:
        """Both versions of the columns of X, of shape (2, n, d); codes are in the first."""
        parts = np.zeros((2, *X.shape))
        for i, column in enumerate(X.T):
            if self.categorical[i]:
                parts[0, :, i] = column
            else:
                parts[0, :, i], parts[1, :, i] = self.identity[i](column), self.rank[i](column)
        return parts

    def subset(self, kept: NDArray[np.int64]) -> Columns:
        """Some of the columns."""
        pick = [tuple(warps[i] for i in kept) for warps in (self.identity, self.rank)]
        return Columns(pick[0], pick[1], self.categorical[kept])


@dataclass(frozen=True, eq=False)  # a search is equal to itself only
class Fit:
    """The end of one search.

    Attributes
    ----------
    family : str
    columns : ndarray of int
        The columns that took part; all others have rate 0.
    parameters : ndarray
        What ``Objective`` takes.
    value : float
        The objective there, per row and output.
    n_rows, iterations : int
    seconds : float
    """

    family: str
    columns: NDArray[np.int64]
    parameters: Array
    value: float
    n_rows: int
    iterations: int
    seconds: float

    @property
    def rates(self) -> Array:
        """Of the two versions of each column that took part, of shape (2, len(columns))."""
        return np.exp(self.parameters[: 2 * len(self.columns)]).reshape(2, len(self.columns))

    @property
    def alpha(self) -> float:
        """The ridge that goes with the kernel: lambda / a."""
        amplitude, noise = self.parameters[2 * len(self.columns) :][:2]
        return float(np.exp(noise - amplitude))

    def strongest(self, count: int) -> NDArray[np.int64]:
        """So many columns with the largest rates."""
        order = np.argsort(-self.rates.sum(axis=0), kind="stable")
        return np.sort(self.columns[order[:count]])

    def restricted(self, places: NDArray[np.int64]) -> Fit:
        """The same with some of its columns."""
        rates = np.log(self.rates[:, places]).ravel()
        tail = self.parameters[2 * len(self.columns) :]
        return replace(self, columns=self.columns[places], parameters=np.append(rates, tail))

    def kernel(self, columns: Columns) -> Product:
        """The kernel of all columns."""
        rates, warps = np.zeros(len(columns)), list(columns.rank)
        families = ["categorical" if c else self.family for c in columns.categorical]
        for i, (linear, rank) in zip(self.columns, self.rates.T, strict=True):
            if columns.categorical[i]:
                rates[i] = linear
                continue
            rates[i] = linear + rank
            weights = (linear / rates[i], rank / rates[i])
            warps[i] = combined(columns.identity[i], columns.rank[i], weights)
        same = len(set(families)) == 1
        return Product(rates, families[0] if same else families, warps)


def start_rate(family: str, n_columns: int) -> float:
    """A rate at which all columns together make the kernel of a typical pair about 1/2."""
    power = {"gaussian": 0.5, "matern52": 0.6, "matern32": 0.75, "laplacian": 1.0}[family]
    return 0.5 / n_columns**power


def search(
    parts: Array,
    columns: Columns,
    kept: NDArray[np.int64],
    target: Array,
    noise: Array,
    family: str,
    max_iter: int,
    *,
    start: Fit | None = None,
    stretch: float = 1.0,
    rule: str = "likelihood",
    deadline: float = np.inf,
    n_jobs: int | None = None,
) -> Fit:
    """Minimise the objective over all rates, the amplitude and the noise.

    Parameters
    ----------
    parts : ndarray of shape (2, n, d)
        Of all columns.
    kept : ndarray of int
        The columns that take part.
    target : ndarray of shape (n, m)
    noise : ndarray of shape (n,)
    family : str
        Of the columns that are not categorical.
    start : Fit, optional
        Where to begin, with the columns ``kept``.
    stretch : float
        What the rates to begin with are multiplied by, where there is no start.
    deadline : float
        The ``time.monotonic()`` at which to stop with what there is.
    """
    began = time.monotonic()
    objective = _objective(parts, columns, kept, target, noise, family, rule, n_jobs)
    n, m = len(target), 2 * len(kept)
    center = np.zeros(m + 2)
    center[:m] = np.log(start_rate(family, max(1, len(kept))) / 2.0)
    deviations = np.full(m + 2, RATE_DEVIATION)
    deviations[m:] = AMPLITUDE_DEVIATION, np.inf
    if start is None:
        parameters = center.copy()
        parameters[:m] += np.log(stretch)
        parameters[m + 1] = np.log(0.2)
    else:
        parameters = start.parameters

    best: tuple[float, Array] = (np.inf, parameters)

    def penalised(theta: Array) -> tuple[float, Array]:
        nonlocal best
        value, gradient = objective(theta)
        scores = (theta - center) / deviations
        gradient += scores / deviations / n
        value += 0.5 * float(scores @ scores) / n
        if value < best[0]:
            best = (value, theta.copy())
        if time.monotonic() > deadline:
            raise StopIteration
        return value, gradient

    bounds = [RATE_BOUNDS] * m + [AMPLITUDE_BOUNDS, NOISE_BOUNDS]
    iterations = 0
    try:
        found = minimize(
            penalised,
            np.clip(parameters, *np.transpose(bounds)),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": max_iter, "maxcor": CORRECTIONS, "ftol": 1e-5, "gtol": 1e-4},
        )
        iterations = int(found.nit)
    except StopIteration:
        pass
    value, parameters = best
    seconds = time.monotonic() - began
    return Fit(family, kept, parameters, value, n, iterations, seconds)


def pruned(
    fit: Fit,
    parts: Array,
    columns: Columns,
    target: Array,
    noise: Array,
    rule: str,
    thresholds: tuple[float, ...],
) -> Fit:
    """The same without columns that are not worth their price.

    The weakest columns are taken out together, as many as the objective allows: each may cost it
    a price, in units of log likelihood of all rows.
    """

    def value_of(other: Fit) -> float:
        kept = other.columns
        objective = _objective(parts, columns, kept, target, noise, fit.family, rule, 1)
        return objective(other.parameters)[0]

    shares = fit.rates.sum(axis=0) / fit.rates.sum()
    price = PRICE + PRICE_OF_CHOICE * len(columns)
    before = None
    for weakest in thresholds:
        stays = shares > weakest / len(shares)
        dropped = len(stays) - int(stays.sum())
        if not dropped or not stays.any():
            continue
        before = value_of(fit) if before is None else before
        fewer = fit.restricted(np.flatnonzero(stays))
        increase = value_of(fewer) - before
        if increase * target.size <= price * dropped:
            return replace(fewer, value=fit.value + increase)
    return fit


def widened(
    fit: Fit,
    usable: NDArray[np.int64],
    parts: Array,
    columns: Columns,
    target: Array,
    noise: Array,
    rule: str,
) -> Fit | None:
    """The same with columns that it lacks and that the objective asks for; None without any.

    A search on few rows drops columns whose effect is below the noise that it sees, or leaves them
    at a rate that means nothing. The slope of the objective, on more rows and with the other
    columns in place, tells them apart: at a tiny rate those that matter alone, at a larger one
    those that matter together.
    """
    missing = np.setdiff1d(usable, fit.columns)
    together = start_rate(fit.family, len(usable)) / PROBE_TOGETHER
    idle = fit.columns[fit.rates.sum(axis=0) < IDLE_RATE * together]

    def asked_for(among: NDArray[np.int64], rate: float) -> NDArray[np.int64]:
        if not len(among):
            return among
        probed = _with_columns(fit, among, np.log(rate))
        objective = _objective(parts, columns, probed.columns, target, noise, fit.family, rule, 1)
        slopes = objective(probed.parameters)[1][: 2 * len(probed.columns)].reshape(2, -1)
        wanted = slopes.sum(axis=0)[np.searchsorted(probed.columns, among)]
        order = np.argsort(wanted, kind="stable")[:MOST_ADDED]
        return among[order[wanted[order] < 0]]

    added = np.union1d(
        asked_for(missing, PROBE_RATE), asked_for(np.union1d(missing, idle), together)
    )
    if not len(added):
        return None
    rate = start_rate(fit.family, len(np.union1d(fit.columns, added))) / 2.0
    return _with_columns(fit, added, np.log(rate))


def _with_columns(fit: Fit, added: NDArray[np.int64], log_rate: float) -> Fit:
    """The same with these columns at one rate, whether it had them or not."""
    kept = np.union1d(fit.columns, added)
    rates = np.full((2, len(kept)), log_rate)
    own, places = ~np.isin(fit.columns, added), np.searchsorted(kept, fit.columns)
    before = fit.parameters[: 2 * len(fit.columns)].reshape(2, -1)
    rates[:, places[own]] = before[:, own]
    tail = fit.parameters[2 * len(fit.columns) :]
    return replace(fit, columns=kept, parameters=np.append(rates.ravel(), tail))


def moved(fit: Fit, family: str) -> Fit:
    """Where a search for another family may begin: the same columns and proportions."""
    parameters, m = fit.parameters.copy(), 2 * len(fit.columns)
    n_columns = max(1, len(fit.columns))
    ratio = start_rate(family, n_columns) / start_rate(fit.family, n_columns)
    parameters[:m] += np.log(ratio)
    return replace(fit, family=family, parameters=parameters)


def _objective(
    parts: Array,
    columns: Columns,
    kept: NDArray[np.int64],
    target: Array,
    noise: Array,
    family: str,
    rule: str,
    n_jobs: int | None,
) -> Objective:
    codes = family_codes([family] * len(kept))
    codes[columns.categorical[kept]] = CATEGORICAL
    mine = np.ascontiguousarray(parts[:, :, kept])
    return Objective(mine, codes, target, noise, np.empty((0, 0)), rule, n_jobs)
