"""The base of the maps that sketch a Taylor series: unit vectors, and columns for each degree.

A row's part of degree w is t_w(x) u^(x)w, with u = x' / |x'| and t_w(x) = c(x) sqrt(a_w) |x'|^w,
which comes from logarithms, so that nothing overflows or underflows on the way.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._parallel import map_row_blocks
from kernelsieve._random import stream
from kernelsieve._state import (
    MOST_FACTORS,
    instance,
    list_of,
    wrong,
)
from kernelsieve._validation import check_positive
from kernelsieve.features.base import FeatureMap
from kernelsieve.features.sphere import polar
from kernelsieve.kernels import Gaussian, SeriesKernel
from kernelsieve.kernels.series import Series
from kernelsieve.products.degrees import DegreeColumns, Monomials, share_columns
from kernelsieve.products.multisets import count_of_degree
from kernelsieve.sources.summaries import squared_norms

TRUNCATION = 1e-3  # the share of its allowance that the truncation uses
MASS_ROWS = 4096
EXACT_ROWS = 256
TUPLE_BYTES = 100


class SeriesFeatures(FeatureMap):
    """Base of the maps that make random features of every degree of a kernel's Taylor series.

    Degrees with few monomials are exact, the others get random features; those that are not worth
    a column are drawn, and weighted for it. E[Z Z^T] is the truncated kernel.
    """

    unbiased: ClassVar[bool] = True

    alpha: float | None
    eps: float
    degree: int
    coef0: float
    center: Any

    truncation_degree_: int

    _state_fields: ClassVar = {
        "series_": instance(Series),
        "_blocks": list_of(instance(DegreeColumns), tuple),
    }
    _not_stored: ClassVar = dict.fromkeys(("truncation_degree_", "_monomials"), "computed")

    def _complete(self) -> None:
        super()._complete()
        d, degree, center = self.n_features_in_, self.series_.degree, self.series_.center
        if center is not None and len(center) != d:
            wrong("series_", f"is centred in {len(center)} columns instead of {d}")
        starts = [0, *(block.stop for block in self._blocks)]
        for block, start in zip(self._blocks, starts, strict=False):
            if not (block.start == start < block.stop and block.degree <= degree):
                wrong("_blocks", "do not follow each other, or are beyond the series")
            if block.exact and block.width != count_of_degree(d, block.degree):
                wrong("_blocks", f"do not have all monomials of degree {block.degree}")
            if block.degree == 0 and not block.exact:
                wrong("_blocks", "have random features of degree 0")
        if len({block.degree for block in self._blocks}) < len(self._blocks) or not self._blocks:
            wrong("_blocks", "is empty, or has a degree twice")
        factors = sum(block.width * max(1, block.degree) for block in self._blocks)
        if factors > MOST_FACTORS:
            wrong("_blocks", f"have {factors} factors, more than {MOST_FACTORS}")
        self.truncation_degree_ = degree
        self._list_monomials(d)

    def _fit(self, X: Any, y: Any, seed: int) -> None:
        alpha = 1.0 if self.alpha is None else self.alpha
        check_positive(alpha, "alpha", "it is added to the kernel's diagonal")
        check_positive(self.eps, "eps", "it is the spectral error to aim at")
        if not isinstance(self.kernel_, SeriesKernel):
            raise ValueError(
                f"kernel={self.kernel_!r} has no Taylor series to sketch: use NystromFeatures"
            )
        if not isinstance(self.kernel_, Gaussian):
            self.kernel_.diag(X)  # says so if it overflows X's float type
        X, _ = polar(self.kernel_, X)
        tolerance = 0.5 * TRUNCATION * self.eps * alpha
        self.series_ = self.kernel_.series_of(X, tolerance, self.center)
        self.truncation_degree_ = self.series_.degree
        self._blocks = share_columns(
            np.flatnonzero(self.series_.log_coefficients > -np.inf).tolist() or [0],
            self._importance(X, seed),
            X.shape[1],
            int(self.n_components),
            stream(seed, "degrees"),
        )
        self._list_monomials(X.shape[1])
        self._draw([block for block in self._blocks if not block.exact], X.shape[1], seed)

    def _list_monomials(self, n_features: int) -> None:
        """Those of the blocks that are exact."""
        self._monomials = {
            block.degree: Monomials.of(n_features, block.degree)
            for block in self._blocks
            if block.exact
        }
        self.n_components_ = self._blocks[-1].stop

    @abstractmethod
    def _importance(self, X: Any, seed: int) -> NDArray[np.float64]:
        """What the columns are shared by: the root of each degree's error in one column."""

    @abstractmethod
    def _draw(self, blocks: list[DegreeColumns], n_features: int, seed: int) -> None:
        """Draw what the features of the degrees that are not exact need, if there are any."""

    @abstractmethod
    def _fill_random(self, blocks: list[DegreeColumns], unit: Any, out: NDArray[Any]) -> None:
        """Write the features of the degrees that are not exact, up to their scales and weights."""

    def _fill(self, X: Any, out: NDArray[Any]) -> None:
        X, amplitudes = polar(self.kernel_, X)
        rows = SeriesRows.of(self.series_, X)
        unit = rows.unit()
        others = [block for block in self._blocks if not block.exact]
        if others:
            self._fill_random(others, unit, out)
        for block in self._blocks:
            columns = out[:, block.columns]
            if block.exact:
                self._monomials[block.degree].fill(unit, columns)
            columns *= rows.scales[:, block.degree, None] * out.dtype.type(block.weight)
        if amplitudes is not None:
            out *= amplitudes[:, None]


@dataclass(frozen=True)
class SeriesRows:
    """A block of rows as unit vectors times a length for each degree.

    Attributes
    ----------
    points : {ndarray, CSR} of shape (n, d)
        The centred rows, not scaled.
    inverse_lengths : ndarray of shape (n,)
        1 / |point|, 0 for the zero row.
    scales : ndarray of shape (n, degree + 1)
        c(x) sqrt(a_w) |x'|^w.
    """

    points: Any
    inverse_lengths: NDArray[Any]
    scales: NDArray[Any]

    @classmethod
    def of(cls, series: Series, X: Any) -> SeriesRows:
        """The valid rows X as the series sees them, in X's float type."""
        if series.center is not None:
            X = (X.toarray() if sp.issparse(X) else X) - series.center.astype(X.dtype)
        squares = squared_norms(X)
        lengths = np.sqrt(squares)
        inverse = np.zeros_like(lengths)
        np.divide(1.0, lengths, out=inverse, where=lengths > 1.0 / np.finfo(X.dtype).max)
        with np.errstate(over="ignore"):
            scales = np.exp(series.log_degree_scales(series.scale**2 * squares)).astype(X.dtype)
        if not np.isfinite(scales).all():
            raise ValueError(
                f"the kernel overflows {X.dtype} on a row with |x|^2 = {squares.max():.6g}: "
                "scale X, or lower gamma"
            )
        return cls(X, inverse.astype(X.dtype), scales)

    def unit(self) -> Any:
        """The rows with length 1; sparse rows stay sparse."""
        if not sp.issparse(self.points):
            return self.points * self.inverse_lengths[:, None]
        counts = np.diff(self.points.indptr)
        data = self.points.data * np.repeat(self.inverse_lengths, counts)
        return sp.csr_array(
            (data, self.points.indices, self.points.indptr), shape=self.points.shape
        )

    def __getitem__(self, rows: slice) -> SeriesRows:
        return SeriesRows(self.points[rows], self.inverse_lengths[rows], self.scales[rows])


def degree_masses(series: Series, X: Any, n_jobs: int | None) -> NDArray[np.float64]:
    """Mean over the rows of c(x)^2 a_w |x'|^(2w), of shape (degree + 1,)."""
    squared_radius = series.scale**2 * squared_norms(X, series.center)

    def block(rows: slice) -> NDArray[np.float64]:
        return np.exp(2.0 * series.log_degree_scales(squared_radius[rows])).sum(axis=0)

    return np.sum(map_row_blocks(block, X.shape[0], MASS_ROWS, n_jobs), axis=0) / X.shape[0]
