"""Random grids with hashed and weighted cells: locality-sensitive hashing.

After Rahimi and Recht (2007) and Kapralov, Nouri, Razenshteyn, Velingker and Zandieh (2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._random import stream
from kernelsieve._state import MOST_COLUMNS, array, table, whole, wrong
from kernelsieve._validation import check_count, check_matrix
from kernelsieve.features.base import FeatureMap
from kernelsieve.kernels import Kernel, Laplacian, Product, SmoothLaplacian
from kernelsieve.kernels.smooth import bump
from kernelsieve.sources.base import Source

LARGEST_CELL = 2.0**62
LOW = np.uint64(2**32 - 1)
SMALLEST_WEIGHT = 1e-300  # at the very end of a cell
Hashed = tuple[NDArray[np.uint64], NDArray[np.float64] | None]


class BinningFeatures(FeatureMap):
    """Which cell of each of many random grids a row is in, for Laplacian kernels and smoother ones.

    A grid has random widths and shifts along every column; two rows share a cell with probability
    k(x, y), the Laplacian kernel. Every cell is hashed to one column of its grid, with a random
    sign: a row has one entry of size 1 / sqrt(n_grids) for each grid, E[Z Z^T] = K, and k(x, x) = 1
    is exact. Nothing is learned from the data. Sparse rows take time O(nnz n_grids) and give sparse
    features.

    For `kernels.SmoothLaplacian` an entry is also weighted by where in its cell the row is. Use
    that for few columns: the variance of k(x, x) grows like 1.8^d for two pieces, 2.3^d for three.

    Parameters
    ----------
    n_components : int, default 1000
        Number of features.
    kernel : Laplacian, SmoothLaplacian, Product or str, default "laplacian"
        The Laplacian kernel, a product kernel whose columns are all of family "laplacian", or
        "smooth_laplacian".
    gamma : "scale", "auto" or float, default "scale"
        Of a kernel given by name: "scale" is 1 / (d var(X)), and "auto" is 1 / d.
    columns_per_grid : int, default 4
        Columns that the cells of one grid are hashed to. With 1 all entries are signs, and the
        error at equal ``n_components`` is the lowest; with more the features are sparser, and as
        many grids cost less.
    random_state : int, RandomState, Generator or None, default None
        Seed of all random choices; None draws a new one for every fit.
    n_jobs : int, optional
        Number of threads; None uses all cores.

    Attributes
    ----------
    n_grids_ : int
        The number of grids: entries of a row that are not 0.
    n_components_ : int
        Number of features.
    kernel_ : Kernel
        The kernel in use.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if X had names.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import BinningFeatures
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> Z = BinningFeatures(64, random_state=0).fit_transform(X)
    >>> Z.shape, int(np.count_nonzero(Z[0]))
    ((100, 64), 16)
    """

    unbiased: ClassVar[bool] = True

    _state_fields: ClassVar = {
        "n_components_": whole(1, MOST_COLUMNS, size="size"),
        "n_grids_": whole(1, size="grids"),
        "_drawn": table(
            {
                "widths": array("d", "grids"),
                "shifts": array("d", "grids"),
                "multipliers": array(None, "grids", dtype=(np.uint64,)),
            }
        ),
    }
    _not_stored: ClassVar = {"_grids": "in _drawn"}

    @property
    def _drawn(self) -> dict[str, NDArray[Any]]:
        return {name: getattr(self._grids, name) for name in ("widths", "shifts", "multipliers")}

    def _restore(self, values: dict[str, Any]) -> None:
        drawn = values.pop("_drawn")
        super()._restore(values)
        try:
            _check_kernel(self.kernel_, self.n_features_in_)
        except ValueError as error:
            wrong("kernel_:", str(error))
        if self.n_grids_ > self.n_components_:
            wrong("n_grids_", f"are {self.n_grids_}, more than {self.n_components_} columns")
        if not (drawn["widths"] > 0).all():
            wrong("widths", "are not all positive")
        if len(drawn["multipliers"]) != self.n_features_in_ + 1:
            wrong("multipliers", f"are for {len(drawn['multipliers']) - 1} columns")
        self._grids = Grids.of(**drawn, size=self.n_components_, pieces=self._pieces)

    def __init__(
        self,
        n_components: int = 1000,
        *,
        kernel: Any = "laplacian",
        gamma: Any = "scale",
        columns_per_grid: int = 4,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.columns_per_grid = columns_per_grid
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit_rows(self, rows: Source, seed: int) -> None:
        each = check_count(self.columns_per_grid, "columns_per_grid", "cells are hashed to them")
        _check_kernel(self.kernel_, rows.shape[1])
        self.n_components_ = int(self.n_components)
        self.n_grids_ = max(1, self.n_components_ // each)
        self._grids = Grids.draw(
            self.n_features_in_, self.n_grids_, self.n_components_, seed, self._pieces
        )

    @property
    def _pieces(self) -> int:
        return self.kernel_.pieces if isinstance(self.kernel_, SmoothLaplacian) else 1

    def _fill(self, X: Any, out: NDArray[Any]) -> None:
        columns, values = self._entries(X)
        out[...] = 0.0
        np.put_along_axis(out, columns, values.astype(out.dtype), axis=1)

    def _csr(self, X: Any) -> sp.csr_array:
        columns, values = self._entries(X)
        n, m = columns.shape
        starts = np.arange(0, n * m + 1, m)
        return sp.csr_array(
            (values.astype(X.dtype).ravel(), columns.astype(np.int32).ravel(), starts),
            shape=(n, self.n_components_),
        )

    def _entries(self, X: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The columns of a row's entries, one for each grid, and their values."""
        columns, values = self._grids.cells(self._coordinates(X))
        return columns, values / np.sqrt(self.n_grids_)

    def _coordinates(self, X: Any) -> Any:
        """Rows in which the kernel has rate 1 along every column."""
        if isinstance(self.kernel_, Product):
            points = self.kernel_.points(X)
        else:
            assert isinstance(self.kernel_, Laplacian | SmoothLaplacian)
            with np.errstate(over="ignore"):  # cells far away are all alike
                points = X.astype(np.float64) * self.kernel_.gamma
        if np.isnan(points.data if sp.issparse(points) else points).any():
            raise ValueError("X contains NaN: BinningFeatures take no missing values; impute them")
        return points


def _check_kernel(kernel: Kernel, d: int) -> None:
    if isinstance(kernel, Laplacian | SmoothLaplacian):
        return
    if not isinstance(kernel, Product) or set(kernel.families_for(d)) != {"laplacian"}:
        raise ValueError(
            f"kernel={kernel!r} is not Laplacian along every column: use kernel='laplacian' or "
            "'smooth_laplacian', or NystromFeatures"
        )


@dataclass(frozen=True, eq=False)
class Grids:
    """Random grids, the hash of their cells, and the weights of places in them.

    Attributes
    ----------
    widths, shifts : ndarray of shape (d, n_grids)
        Of the cells along every column. The density w exp(-w) of the widths makes the probability
        of sharing a cell E[max(0, 1 - t / w)] = exp(-t) at distance t. With several pieces it is
        that of docs/binning.md.
    multipliers : ndarray of shape (d + 1, n_grids), uint64
        The upper half of their sum over the cell's numbers is a strongly universal hash.
    first, counts : ndarray of shape (n_grids,)
        The columns of each grid.
    pieces : int
        Of the bump that weights the places in a cell; 1 is a box, without weights.
    """

    widths: NDArray[np.float64]
    shifts: NDArray[np.float64]
    multipliers: NDArray[np.uint64]
    first: NDArray[np.int64]
    counts: NDArray[np.int64]
    pieces: int = 1

    @classmethod
    def draw(cls, d: int, n_grids: int, size: int, seed: int, pieces: int = 1) -> Grids:
        """Grids for rows of d columns, with ``size`` columns in all."""
        check_matrix(
            3 * d, n_grids, np.float64, f"{n_grids:,} grids in {d:,} columns", "lower n_components"
        )
        rng = stream(seed, "grids")
        widths = rng.standard_gamma(2.0 * pieces, size=(d, n_grids))
        shifts = rng.random((d, n_grids)) * widths
        multipliers = rng.integers(0, 2**64, size=(d + 1, n_grids), dtype=np.uint64)
        return cls.of(widths, shifts, multipliers, size, pieces)

    @classmethod
    def of(
        cls,
        widths: NDArray[np.float64],
        shifts: NDArray[np.float64],
        multipliers: NDArray[np.uint64],
        size: int,
        pieces: int,
    ) -> Grids:
        """Grids with these cells, and ``size`` columns in all."""
        n_grids = widths.shape[1]
        counts = np.full(n_grids, size // n_grids)
        counts[: size % n_grids] += 1
        return cls(widths, shifts, multipliers, np.cumsum(counts) - counts, counts, pieces)

    def cells(self, points: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The column and the value of each row's cell in each grid, both of shape (n, n_grids).

        The value is a sign, times the weight of the place in the cell.
        """
        hashes, weights = self._of_sparse(points) if sp.issparse(points) else self._of_dense(points)
        high = hashes >> np.uint64(32)
        signs = np.where(high & np.uint64(1), 1.0, -1.0)
        places = ((high >> np.uint64(1)) * self.counts.astype(np.uint64)) >> np.uint64(31)
        if weights is not None:
            signs *= weights
        return self.first + places.astype(np.int64), signs

    def _of_dense(self, points: NDArray[Any]) -> Hashed:
        hashes = np.tile(self.multipliers[-1], (len(points), 1))
        weights = np.ones(hashes.shape) if self.pieces > 1 else None
        for i in range(points.shape[1]):
            cells, factors = self._numbers(points[:, i, None], self.widths[i], self.shifts[i])
            hashes += self.multipliers[i] * cells
            if weights is not None and factors is not None:
                weights *= factors
        return hashes, weights

    def _of_sparse(self, points: Any) -> Hashed:
        """The hash and the weight of the zero row, changed by what the entries change."""
        zero, zero_factors = self._numbers(np.zeros((1, 1)), self.widths, self.shifts)
        hashes = np.tile(
            self.multipliers[-1] + (self.multipliers[:-1] * zero).sum(axis=0, dtype=np.uint64),
            (points.shape[0], 1),
        )
        columns = points.indices
        entries, widths, shifts = points.data[:, None], self.widths[columns], self.shifts[columns]
        cells, factors = self._numbers(entries, widths, shifts)
        changes = self.multipliers[columns] * (cells - zero[columns])
        owners = np.repeat(np.arange(points.shape[0]), np.diff(points.indptr))
        np.add.at(hashes, owners, changes)
        if factors is None:
            return hashes, None
        # In logarithms, because the product of all columns' weights may underflow on the way.
        logarithms = np.tile(_log(zero_factors).sum(axis=0), (points.shape[0], 1))
        np.add.at(logarithms, owners, _log(factors) - _log(zero_factors)[columns])
        return hashes, np.exp(logarithms)

    def _numbers(
        self, values: NDArray[Any], widths: NDArray[np.float64], shifts: NDArray[np.float64]
    ) -> Hashed:
        """The number of the cell along a column, in 32 bits, and the weight of the place in it."""
        with np.errstate(over="ignore"):
            places = (values.astype(np.float64) + shifts) / widths
        cells = np.floor(places)
        numbers = np.clip(cells, -LARGEST_CELL, LARGEST_CELL).astype(np.int64).view(np.uint64) & LOW
        if self.pieces == 1:
            return numbers, None
        with np.errstate(invalid="ignore"):  # far away every place is the middle of a cell
            inside = np.where(np.isfinite(places), places - cells - 0.5, 0.0)
        return numbers, bump(inside, self.pieces)


def _log(factors: NDArray[np.float64] | None) -> NDArray[np.float64]:
    assert factors is not None
    return np.log(np.maximum(factors, SMALLEST_WEIGHT))
