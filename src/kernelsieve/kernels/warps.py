"""Monotone transformations of single columns, so that heavy tails do not decide a distance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native.warps import IDENTITY, KNOTS, LOG, RAW, warp_columns
from kernelsieve._state import Persistent, choice, list_of, number, positive
from kernelsieve._validation import check_choice

CODES = {"identity": IDENTITY, "log": LOG, "knots": KNOTS}  # what compiled code knows them by
KINDS = ("identity", "log", "knots")
FITTED = ("identity", "log", "rank")
MOST_KNOTS = 129
INTERQUARTILE = 1.349  # of a standard normal variable


@dataclass(frozen=True)
class Warp(Persistent):
    """A non-decreasing function of one column.

    Parameters
    ----------
    kind : "identity", "log" or "knots"
        With z = (x - center) / scale: z itself, ``sign(z) log(1 + |z|)``, or the piecewise linear
        function of x through ``knots`` and ``values``.
    center, scale : float
        Of the first two kinds.
    knots, values : tuple of float
        Of "knots": rising knots, and the values there.
    slope : float
        Of "knots": the slope beyond the outermost knots. 0 keeps the function constant there.

    Examples
    --------
    >>> import numpy as np
    >>> Warp("log", center=1.0, scale=2.0)(np.array([1.0, 5.0])).round(3)
    array([0.   , 1.099])
    """

    kind: str = "identity"
    center: float = 0.0
    scale: float = 1.0
    knots: tuple[float, ...] = field(default=(), repr=False)
    values: tuple[float, ...] = field(default=(), repr=False)
    slope: float = 0.0

    _state_fields: ClassVar = {
        "kind": choice(*KINDS),
        "center": number(-1e300, 1e300),
        "scale": positive,
        "knots": list_of(number(), tuple),
        "values": list_of(number(), tuple),
        "slope": number(0.0, 1e300),
    }

    def __post_init__(self) -> None:
        check_choice(self.kind, "kind", KINDS)
        if not (math.isfinite(self.center) and math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(
                f"center={self.center!r} must be finite and scale={self.scale!r} > 0: a column is "
                "shifted by the one and divided by the other"
            )
        knots, values = np.array(self.knots, dtype=float), np.array(self.values, dtype=float)
        needs_knots = self.kind == "knots"
        if knots.ndim != 1 or knots.shape != values.shape or needs_knots != (knots.size > 0):
            raise ValueError(
                f"kind={self.kind!r} comes with {knots.size} knots and {values.size} values: "
                "'knots' needs one value for each knot, the other kinds have none"
            )
        if not (np.isfinite(knots).all() and np.isfinite(values).all() and self.slope >= 0):
            raise ValueError(f"knots and values must be finite, and slope={self.slope!r} >= 0")
        if (np.diff(knots) <= 0).any() or (np.diff(values) < 0).any():
            raise ValueError("knots must rise and values must not fall: a warp keeps the order")

    def __call__(self, column: NDArray[Any]) -> NDArray[np.float64]:
        """The transformed values, in float64."""
        column = np.asarray(column, dtype=np.float64)
        if self.kind == "knots":
            warped = np.interp(column, self.knots, self.values)
            if self.slope:
                warped += self.slope * (column - np.clip(column, self.knots[0], self.knots[-1]))
            return warped
        z = (column - self.center) / self.scale
        return z if self.kind == "identity" else np.copysign(np.log1p(np.abs(z)), z)

    @classmethod
    def fit(cls, column: NDArray[Any], kind: str) -> Self:
        """The warp of this kind that brings a column to mean 0 and standard deviation about 1.

        "log" is centred at the median and measured in quartile distances, so that a few large
        values do not change it. "rank" makes the values of the column uniformly distributed, by
        knots at its quantiles.

        Parameters
        ----------
        column : array-like of shape (n,)
        kind : "identity", "log" or "rank"

        Returns
        -------
        Warp
        """
        check_choice(kind, "kind", FITTED)
        column = np.asarray(column, dtype=np.float64)
        if kind == "identity":
            return cls("identity", float(column.mean()), _positive(float(column.std())))
        if kind == "rank":
            knots, values = quantile_knots(column)
            return cls("knots", knots=knots, values=values)
        low, middle, high = np.quantile(column, [0.25, 0.5, 0.75])
        spread = _positive(float(high - low) / INTERQUARTILE, float(column.std()))
        return cls("log", float(middle), spread)


def combined(identity: Warp, rank: Warp, weights: tuple[float, float]) -> Warp:
    """The weighted sum of a column's "identity" and "rank" warps, as one warp."""
    knots = np.array(rank.knots)
    values = weights[0] * identity(knots) + weights[1] * rank(knots)
    slope = weights[0] / identity.scale
    return Warp("knots", knots=tuple(knots.tolist()), values=tuple(values.tolist()), slope=slope)


def _positive(*sizes: float) -> float:
    """The first usable size of a column; 1 for constant ones."""
    return next((size for size in sizes if np.isfinite(size) and size > 0), 1.0)


def quantile_knots(column: NDArray[np.float64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Knots at quantiles, and mid-ranks there scaled to variance 1.

    Repeated values are one knot, at the middle of the ranks that they take.
    """
    distinct, counts = np.unique(column, return_counts=True)
    ranks = (np.cumsum(counts) - 0.5 * counts) / len(column)
    if len(distinct) > MOST_KNOTS:
        wanted = np.searchsorted(ranks, np.linspace(0.0, 1.0, MOST_KNOTS))
        chosen = np.unique(np.clip(wanted, 0, len(distinct) - 1))
        distinct, ranks = distinct[chosen], ranks[chosen]
    values = (ranks - 0.5) * math.sqrt(12.0)
    return tuple(distinct.tolist()), tuple(values.tolist())


@dataclass(frozen=True)
class CompiledWarps:
    """The warps and rates of all columns as compiled code reads them.

    Attributes
    ----------
    kinds : ndarray of shape (d,)
    settings : ndarray of shape (d, 4)
        Centre, scale, slope and rate of each column.
    starts : ndarray of shape (d + 1,)
        Where the knots of each column start, and where the last ones end.
    knots, values : ndarray of shape (n_knots,)
    """

    kinds: NDArray[np.int64]
    settings: NDArray[np.float64]
    starts: NDArray[np.int64]
    knots: NDArray[np.float64]
    values: NDArray[np.float64]

    @classmethod
    def of(
        cls, warps: Sequence[Warp] | None, families: Sequence[str], rates: NDArray[np.float64]
    ) -> Self:
        """Those of columns of some families; categorical ones are read as they are."""
        warps = [Warp()] * len(families) if warps is None else warps
        kinds = [
            RAW if family == "categorical" else CODES[warp.kind]
            for family, warp in zip(families, warps, strict=True)
        ]
        settings = [(w.center, w.scale, w.slope, r) for w, r in zip(warps, rates, strict=True)]
        sizes = [len(warp.knots) for warp in warps]
        return cls(
            np.array(kinds, dtype=np.int64),
            np.array(settings, dtype=np.float64),
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.array([knot for warp in warps for knot in warp.knots], dtype=np.float64),
            np.array([value for warp in warps for value in warp.values], dtype=np.float64),
        )

    def points(self, X: NDArray[Any], columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Warped values times rates, of some columns of rows: shape (n, k)."""
        points = np.empty((X.shape[0], len(columns)))
        tables = self.kinds, self.settings, self.starts, self.knots, self.values
        warp_columns(X, np.asarray(columns, dtype=np.int64), *tables, points)
        return points
