"""Kernels of the distance between two points, and their Gram matrices tile by tile."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import gammainc, gammaln, kve

from kernelsieve._native.product_gram import GAUSSIAN, LAPLACIAN
from kernelsieve._parallel import map_row_blocks, row_blocks
from kernelsieve._state import number, positive
from kernelsieve._validation import check_points, check_positive
from kernelsieve.kernels.base import (
    TILE_ROWS,
    Kernel,
    SeriesKernel,
    Tiles,
    empty_gram,
    fill_gram,
    sparse_products,
)
from kernelsieve.kernels.tiles import scaled_tiles
from kernelsieve.sources.base import Source
from kernelsieve.sources.summaries import column_means, squared_norms

if TYPE_CHECKING:
    from kernelsieve.kernels.product import Product

# Above this |factor| |x|^2 the float32 cancellation in |x|^2 - 2 <x, y> + |y|^2 would show.
FLOAT32_EXPONENT = 64.0
# Beyond this |factor| |x|^2 even the float64 one would: close points are then looked at one by one.
FAR = 1e5
NEGLIGIBLE = -50.0  # exponents of exp below this make no difference
PAIRS = 4096  # whose differences are taken at once


@dataclass(frozen=True)
class Gaussian(SeriesKernel):
    """k(x, y) = exp(-gamma ‖x - y‖^2); the paper's kernel has gamma = 1/2.

    Parameters
    ----------
    gamma : float, default 1.0
        Inverse squared length scale.
    """

    gamma: float = 1.0

    _state_fields: ClassVar = {"gamma": positive}

    def __post_init__(self) -> None:
        check_positive(self.gamma, "gamma", "it divides squared distances by a length scale")

    def as_product(self) -> Product:
        from kernelsieve.kernels.product import Product

        return Product(math.sqrt(self.gamma), "gaussian")

    def tiles(self, X: Any, Y: Any, dtype: Any) -> Tiles:
        if sp.issparse(X) or sp.issparse(Y):
            return super().tiles(X, Y, dtype)
        return scaled_tiles(X, Y, math.sqrt(self.gamma), GAUSSIAN, dtype)

    def _gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]:
        gram = distances(X, Y, -self.gamma, np.exp, n_jobs)
        if symmetric:
            np.fill_diagonal(gram, 1.0)
        return gram

    def diag(self, X: Any) -> NDArray[Any]:
        X = check_points(X)
        return np.ones(X.shape[0], dtype=X.dtype)

    @property
    def _scale(self) -> float:
        return math.sqrt(2.0 * self.gamma)

    @property
    def _damped(self) -> bool:
        return True

    def _mean_point(self, X: Source, center: Any) -> NDArray[Any] | None:
        if X.sparse:
            if center is True:
                raise ValueError(
                    "center=True would make a sparse X dense: pass a dense X, or center='auto'"
                )
            return None
        return None if center is False else column_means(X)

    def _log_coefficients(self, degree: int) -> NDArray[np.float64]:
        return -gammaln(np.arange(degree + 1) + 1.0)

    def _log_tail(self, squared_radius: NDArray[np.float64], q: int) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return np.log(gammainc(q + 1.0, squared_radius))  # P(Poisson(|x'|^2) > q)


@dataclass(frozen=True)
class Laplacian(Kernel):
    """k(x, y) = exp(-gamma ‖x - y‖_1), which has no Taylor series in <x, y>.

    Parameters
    ----------
    gamma : float, default 1.0
        Inverse length scale.
    """

    gamma: float = 1.0

    _state_fields: ClassVar = {"gamma": positive}

    def __post_init__(self) -> None:
        check_positive(self.gamma, "gamma", "it divides distances by a length scale")

    def as_product(self) -> Product:
        from kernelsieve.kernels.product import Product

        return Product(float(self.gamma), "laplacian")

    def tiles(self, X: Any, Y: Any, dtype: Any) -> Tiles:
        if sp.issparse(X) or sp.issparse(Y):
            return super().tiles(X, Y, dtype)
        return scaled_tiles(X, Y, self.gamma, LAPLACIAN, dtype)

    def _gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]:
        return manhattan(X, Y, -self.gamma, n_jobs)

    def diag(self, X: Any) -> NDArray[Any]:
        X = check_points(X)
        return np.ones(X.shape[0], dtype=X.dtype)


@dataclass(frozen=True)
class Matern(Kernel):
    """The Matern kernel of ‖x - y‖, which has no Taylor series in <x, y>.

    Parameters
    ----------
    length_scale : float, default 1.0
        Distances are divided by it.
    nu : float, default 1.5
        Smoothness; 0.5, 1.5 and 2.5 are the quickest.
    """

    length_scale: float = 1.0
    nu: float = 1.5

    # The length scale is squared, and Bessel functions of huge orders take for ever.
    _state_fields: ClassVar = {"length_scale": number(1e-153, 1e153), "nu": number(1e-6, 1e6)}

    _closed_forms: ClassVar = {
        0.5: lambda t: np.exp(-t),
        1.5: lambda t: (1.0 + t) * np.exp(-t),
        2.5: lambda t: (1.0 + t + t * t / 3.0) * np.exp(-t),
    }

    def __post_init__(self) -> None:
        check_positive(self.length_scale, "length_scale", "distances are divided by it")
        check_positive(self.nu, "nu", "it is the smoothness of the kernel")

    def tiles(self, X: Any, Y: Any, dtype: Any) -> Tiles:
        if sp.issparse(X) or sp.issparse(Y):
            return super().tiles(X, Y, dtype)
        scale = math.sqrt(2.0 * self.nu) / self.length_scale
        return scaled_tiles(X, Y, scale, GAUSSIAN, dtype, self._of_negative_square)

    def _gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]:
        factor = 2.0 * self.nu / self.length_scale**2
        gram = distances(X, Y, -factor, self._of_negative_square, n_jobs, -(50.0**2))
        if symmetric:
            np.fill_diagonal(gram, 1.0)
        return gram

    def _of_negative_square(self, negative: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
        t = np.sqrt(-negative)
        closed = self._closed_forms.get(self.nu)
        out[...] = self._bessel_form(t) if closed is None else closed(t)
        return out

    def _bessel_form(self, t: NDArray[Any]) -> NDArray[Any]:
        # In logarithms and float64: t^nu underflows where K_nu(t) overflows.
        t = t.astype(np.float64)
        log_factor = (1.0 - self.nu) * math.log(2.0) - math.lgamma(self.nu)
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.exp(log_factor + self.nu * np.log(t) + np.log(kve(self.nu, t)) - t)
        return np.where(np.isfinite(values), values, 1.0)  # kve overflows only next to t = 0

    def diag(self, X: Any) -> NDArray[Any]:
        X = check_points(X)
        return np.ones(X.shape[0], dtype=X.dtype)


def distances(
    X: Any,
    Y: Any,
    factor: float,
    function: Callable[..., Any],
    n_jobs: int | None,
    negligible: float = NEGLIGIBLE,
) -> NDArray[Any]:
    """Compute ``function(factor |x - y|^2, out=...)`` for a factor < 0.

    Below ``negligible`` the function is as good as 0.
    """
    dtype = np.result_type(X.dtype, Y.dtype)
    if sp.issparse(X) or sp.issparse(Y):
        gram = _sparse_distances(X, Y, factor, function, n_jobs, negligible)
        return gram.astype(dtype, copy=False)
    # The distance does not see the origin, rounding does: move it to the middle of the data.
    with np.errstate(over="ignore", invalid="ignore"):
        middle = column_means(X)
    middle = np.where(np.isfinite(middle), middle, 0.0)
    X, Y, same = X - middle, (None if Y is X else Y - middle), Y is X
    left_norms = -factor * squared_norms(X)
    right_norms = left_norms if same else -factor * squared_norms(Y)
    largest = max(left_norms.max(initial=0.0), right_norms.max(initial=0.0))
    work = np.dtype(np.float64) if largest > FLOAT32_EXPONENT else dtype
    left = _augmented(X, left_norms, factor, work, left=True)
    right = _augmented(X if same else Y, right_norms, factor, work, left=False)

    def of_exponent(tile: NDArray[Any]) -> None:
        np.minimum(tile, 0.0, out=tile)  # rounding must not make a distance negative
        function(tile, out=tile)

    mend = None
    if largest > FAR:
        mend = _Mended(X, X if same else Y, left_norms, right_norms, factor, negligible)
    return fill_gram(left, right, of_exponent, n_jobs, mend).astype(dtype, copy=False)


class _Mended:
    """Recompute small distances between points far from the origin, from their differences."""

    def __init__(
        self,
        X: Any,
        Y: Any,
        left_norms: NDArray[np.float64],
        right_norms: NDArray[np.float64],
        factor: float,
        negligible: float,
    ) -> None:
        self.X, self.Y, self.factor, self.negligible = X, Y, factor, negligible
        self.left_norms, self.right_norms = left_norms, right_norms

    def __call__(self, tile: NDArray[Any], rows: slice, columns: slice) -> None:
        X, Y = self.X[rows], self.Y[columns]
        lengths = self.left_norms[rows, None] + self.right_norms[columns]
        rounding = np.finfo(np.float64).eps * lengths
        # Not "above": where squares overflow the exponent may not be a number.
        i, j = np.nonzero((lengths > FAR) & ~(tile <= self.negligible - 8.0 * rounding))
        for some in row_blocks(len(i), PAIRS):
            tile[i[some], j[some]] = self.factor * _squared_distances(X[i[some]], Y[j[some]])


def _squared_distances(X: Any, Y: Any) -> NDArray[np.float64]:
    """Compute |x - y|^2 for corresponding rows of X and Y, from their differences."""
    if sp.issparse(X) != sp.issparse(Y):
        X, Y = sp.csr_array(X), sp.csr_array(Y)
    differences = X.astype(np.float64) - Y
    if sp.issparse(differences):
        return squared_norms(sp.csr_array(differences))
    return np.einsum("ij,ij->i", differences, differences)


def _augmented(
    X: NDArray[Any], norms: NDArray[np.float64], factor: float, dtype: Any, left: bool
) -> NDArray[Any]:
    """Append two columns, so that one product gives factor |x - y|^2 = 2 |factor| <x, y> - ..."""
    augmented = np.empty((X.shape[0], X.shape[1] + 2), dtype=dtype)
    with np.errstate(over="ignore"):
        np.multiply(X, np.sqrt(-2.0 * factor), out=augmented[:, :-2], casting="same_kind")
    augmented[:, -2] = -norms if left else 1.0
    augmented[:, -1] = 1.0 if left else -norms
    return augmented


def _sparse_distances(
    X: Any,
    Y: Any,
    factor: float,
    function: Callable[..., Any],
    n_jobs: int | None,
    negligible: float,
) -> NDArray[np.float64]:
    """``distances`` for sparse X or Y; moving the origin would make them dense."""
    left_norms, right_norms = -factor * squared_norms(X), -factor * squared_norms(Y)
    mend = None
    if max(left_norms.max(initial=0.0), right_norms.max(initial=0.0)) > FAR:
        mend = _Mended(X, Y, left_norms, right_norms, factor, negligible)
    gram = empty_gram(X, Y, np.float64)
    products = sparse_products(X, Y.astype(np.float64), gram)  # Y is the smaller, as a rule

    def fill(rows: slice) -> None:
        products(rows)
        tile = gram[rows]
        tile *= -2.0 * factor
        tile -= left_norms[rows, None]
        tile -= right_norms
        if mend is not None:
            mend(tile, rows, slice(None))
        np.minimum(tile, 0.0, out=tile)  # rounding must not make a distance negative
        function(tile, out=tile)

    map_row_blocks(fill, X.shape[0], TILE_ROWS, n_jobs)
    return gram


def manhattan(X: Any, Y: Any, factor: float, n_jobs: int | None) -> NDArray[Any]:
    """Compute exp(factor |x - y|_1)."""
    from sklearn.metrics.pairwise import manhattan_distances

    dtype = np.result_type(X.dtype, Y.dtype)
    gram = empty_gram(X, Y, dtype)
    if sp.issparse(X) or sp.issparse(Y):
        X, Y = _short_indices(X), _short_indices(Y)

    def fill(rows: slice) -> None:
        gram[rows] = np.exp(factor * manhattan_distances(X[rows], Y))

    map_row_blocks(fill, X.shape[0], TILE_ROWS, n_jobs)
    return gram


def _short_indices(X: Any) -> sp.csr_array:
    """Convert to CSR with 32-bit indices, which scikit-learn's compiled distances need."""
    X = sp.csr_array(X)
    indices, indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return sp.csr_array((X.data, indices, indptr), shape=X.shape)
