"""Sums over subsets of columns of products of centred one-dimensional kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._native.subsets import add_subsets, centre, look_up
from kernelsieve._parallel import map_row_blocks
from kernelsieve._state import instance, list_of, number, whole
from kernelsieve._validation import check_count, check_points
from kernelsieve.kernels.base import Kernel, Tiles, empty_gram
from kernelsieve.kernels.product import Product
from kernelsieve.kernels.subsets import Subset, SubsetTree
from kernelsieve.sources.summaries import Marginals

Array = NDArray[np.float64]

HIGHEST_ORDER = 8  # columns of a subset
SHOWN = 6  # subsets in a repr
TILE_ROWS, TILE_COLUMNS = 64, 512
FEW_VALUES = 64  # of a column: its kernel is looked up
TILE_ENTRIES = 2**18  # of the factors of all columns at once: two megabytes
CONSTANT = 1e-14  # mean square of a centred kernel below which its column says nothing


@dataclass(frozen=True, repr=False, eq=False)
class Anova(Kernel):
    """A kernel of main effects and interactions, with a variance for each subset of columns.

    ``k(x, y) = sum_S v_S prod_(i in S) c_i(x_i, y_i)``

    where c_i is the factor of column i of a product kernel without its mean over the column's
    distribution, ``c(u, v) = (k(u, v) - m(u) m(v) / M) / s`` with m(u) the mean of k(u, .), M the
    mean of m, and s such that c(u, u) has mean 1. Functions of this kernel are sums of parts, one
    for each subset, that have mean 0 along each of their columns: exactly what ``explain`` shows.

    Parameters
    ----------
    base : Product
        The one-dimensional kernels. Columns of subsets need a rate above 0.
    subsets : sequence of tuple of int
        Columns of each part, in ascending order.
    variances : sequence of float
        v_S >= 0.
    marginals : Marginals
        The distributions of all columns, in some hundred values each. ``Anova.of`` takes them from
        rows.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.kernels import Anova, Product
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> kernel = Anova.of(Product([1.0, 0.5, 0.0]), X, max_order=2)
    >>> kernel
    Anova({x0}: 33.3 %, {x1}: 33.3 %, {x0, x1}: 33.3 % of 3 columns)
    >>> kernel(X).shape
    (100, 100)
    """

    base: Product
    subsets: Any
    variances: Any
    marginals: Marginals

    allows_missing: ClassVar[bool] = True
    is_sum_of_parts: ClassVar[bool] = True
    _state_fields: ClassVar = {
        "base": instance(Product),
        "subsets": list_of(list_of(whole(), tuple), tuple),
        "variances": list_of(number(0.0, 1e150), tuple),
        "marginals": instance(Marginals),
    }

    def __post_init__(self) -> None:
        if not isinstance(self.base, Product):
            raise TypeError(f"base={self.base!r} must be a Product: its factors are used")
        if not isinstance(self.marginals, Marginals):
            raise TypeError(f"marginals={self.marginals!r} must be Marginals: see Anova.of")
        subsets = tuple(tuple(int(i) for i in subset) for subset in self.subsets)
        variances = tuple(float(v) for v in self.variances)
        object.__setattr__(self, "subsets", subsets)
        object.__setattr__(self, "variances", variances)
        self._check_subsets(self.base.rates_for(self.marginals.n_columns) > 0)

    def _check_subsets(self, active: NDArray[np.bool_]) -> None:
        d, subsets, variances = len(active), self.subsets, self.variances
        if not subsets or len(subsets) != len(variances) or len(set(subsets)) != len(subsets):
            raise ValueError(
                f"{len(subsets)} subsets ({len(set(subsets))} different ones) with "
                f"{len(variances)} variances: pass different subsets, at least one, and a "
                "variance for each"
            )
        for subset in subsets:
            ascending = all(a < b for a, b in pairwise(subset))
            if not (1 <= len(subset) <= HIGHEST_ORDER and ascending):
                raise ValueError(
                    f"subset {subset} must hold 1 to {HIGHEST_ORDER} columns in ascending order"
                )
            if not (subset[0] >= 0 and subset[-1] < d and active[list(subset)].all()):
                raise ValueError(
                    f"subset {subset} holds a column that is not one of {d} with a rate above 0"
                )
        if not all(math.isfinite(v) and v >= 0 for v in variances):
            raise ValueError("variances must be finite and >= 0: 0 leaves a subset out")

    @classmethod
    def of(
        cls,
        base: Product,
        X: Any,
        max_order: int = 2,
        *,
        subsets: Iterable[Subset] | None = None,
        variances: Sequence[float] | None = None,
    ) -> Anova:
        """The kernel that is centred over the columns of X.

        Parameters
        ----------
        base : Product
        X : array-like of shape (n, d)
            Rows whose columns have the distributions to centre over.
        max_order : int, default 2
            The largest subsets: 2 for main effects and pairs.
        subsets : iterable of tuple of int, optional
            None takes all subsets of columns with a rate above 0.
        variances : sequence of float, optional
            None gives all subsets the same, 1 in sum.

        Returns
        -------
        Anova
        """
        X = _dense(check_points(X, missing=True))
        check_count(max_order, "max_order", "it is the size of the largest subsets")
        if subsets is None:
            subsets = all_subsets(base.active(X.shape[1]).tolist(), int(max_order))
        subsets = list(subsets)
        if variances is None:
            variances = [1.0 / max(1, len(subsets))] * len(subsets)
        if base.references is None and np.isnan(X).any():
            base = base.with_references(X)
        return cls(base, subsets, variances, Marginals.of_rows(X))

    # --- what it is ------------------------------------------------------------------------------

    def __repr__(self) -> str:
        total = sum(self.variances) or 1.0
        order = sorted(range(len(self.subsets)), key=lambda n: -self.variances[n])
        shown = [
            f"{{{', '.join(f'x{i}' for i in self.subsets[n])}}}: "
            f"{100.0 * self.variances[n] / total:.1f} %"
            for n in order[:SHOWN]
        ]
        more = len(order) - len(shown)
        rest = f", {more} more subsets" if more else ""
        return f"Anova({', '.join(shown)}{rest} of {self.n_columns} columns)"

    @property
    def n_columns(self) -> int:
        """The number of columns."""
        return self.marginals.n_columns

    @property
    def max_order(self) -> int:
        """The size of the largest subset."""
        return max(len(subset) for subset in self.subsets)

    def relevances(self) -> Array:
        """The share of each column in the variances; those of a subset are shared equally.

        Returns
        -------
        ndarray of shape (d,)
        """
        shares = np.zeros(self.n_columns)
        for subset, variance in zip(self.subsets, self.variances, strict=True):
            shares[list(subset)] += variance / len(subset)
        total = float(shares.sum())
        return shares / total if total > 0 else shares

    def with_variances(self, variances: Iterable[float]) -> Anova:
        """The same kernel with other variances; subsets whose variance is 0 are left out."""
        pairs = [(s, float(v)) for s, v in zip(self.subsets, variances, strict=True) if v > 0]
        return replace(self, subsets=[s for s, _ in pairs], variances=[v for _, v in pairs])

    def with_marginals(self, X: NDArray[Any]) -> Anova:
        """The same kernel, centred over the columns of other rows."""
        return Anova.of(self.base, X, subsets=self.subsets, variances=self.variances)

    # --- factors ---------------------------------------------------------------------------------

    @cached_property
    def tree(self) -> SubsetTree:
        """The subsets in the order of a walk through them."""
        return SubsetTree.of(sorted(self.subsets))

    @cached_property
    def _weights(self) -> Array:
        """The variances by node of the tree."""
        weights = np.zeros(len(self.tree.nodes))
        weights[self.tree.places] = [v for _, v in sorted(zip(self.subsets, self.variances))]  # noqa: B905
        return weights

    @cached_property
    def factors(self) -> dict[int, CentredFactor]:
        """The centred kernels of the columns in use."""
        return {
            int(i): CentredFactor.of(
                self.base.of_column(int(i), self.n_columns), *self.marginals.column(int(i))
            )
            for i in self.tree.used
        }

    # --- Gram matrices ---------------------------------------------------------------------------

    def _check_rows(self, X: Any) -> Any:
        if X.shape[1] != self.n_columns:
            raise ValueError(f"{self!r}, but X has {X.shape[1]} columns")
        return _dense(X)

    def diag(self, X: Any) -> NDArray[Any]:
        X = self._check_rows(check_points(X, missing=True))
        out = np.zeros((1, len(X)))
        factors = np.empty((len(self.factors), 1, len(X)))
        for place, (i, factor) in enumerate(self.factors.items()):
            factors[place, 0] = factor.scale * (1.0 - factor.means(X[:, [i]]) ** 2)
        add_subsets(factors, self.tree.depths, self.tree.columns, self._weights, out)
        return out[0].astype(X.dtype)

    def against(self, Y: NDArray[Any]) -> Callable[[NDArray[Any]], Array]:
        """k(x, y) as a function of few rows x, with what depends on the rows Y computed once."""
        Y = self._check_rows(Y).astype(np.float64)
        right = [factor.means(Y[:, [i]]) for i, factor in self.factors.items()]

        def values(X: NDArray[Any]) -> Array:
            factors, out = np.empty((len(right), len(X), len(Y))), np.zeros((len(X), len(Y)))
            for place, (i, factor) in enumerate(self.factors.items()):
                factors[place] = factor.kernel.between(X[:, [i]], Y[:, [i]], 1)
                centre(factor.means(X[:, [i]]), right[place], factor.scale, factors[place])
            add_subsets(factors, self.tree.depths, self.tree.columns, self._weights, out)
            return out

        return values

    def tiles(self, X: Any, Y: Any, dtype: Any) -> Tiles:
        left = self._check_rows(X)
        right = left if Y is X else self._check_rows(Y)
        return AnovaTiles.of(self, left, right)

    def _gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]:
        tiles = self.tiles(X, X if symmetric else Y, np.float64)
        gram = empty_gram(X, Y, np.result_type(X.dtype, Y.dtype))
        m = gram.shape[1]

        def fill(rows: slice) -> None:
            for start in range(rows.start if symmetric else 0, m, TILE_COLUMNS):
                columns = slice(start, min(start + TILE_COLUMNS, m))
                tile = np.empty((rows.stop - rows.start, columns.stop - start))
                tiles(rows, columns, tile)
                gram[rows, columns] = tile
                if symmetric:
                    gram[columns, rows] = tile.T

        map_row_blocks(fill, len(gram), TILE_ROWS, n_jobs)
        return gram


@dataclass(frozen=True)
class CentredFactor:
    """A one-dimensional kernel without its mean over a distribution.

    Attributes
    ----------
    kernel : Product
        Of one column.
    values : ndarray of shape (m, 1)
        The distribution ...
    weights : ndarray of shape (m,)
        ... and what each value counts in ``means``: its share over sqrt(M).
    scale : float
        1 / s; 0 for a column that is constant.
    """

    kernel: Product
    values: Array
    weights: Array
    scale: float

    @classmethod
    def of(cls, kernel: Product, values: Array, weights: Array) -> CentredFactor:
        """Centre a kernel over values with weights."""
        line = values[:, None]
        shares = weights / weights.sum()
        means = kernel.between(line, line, 1) @ shares
        total = float(means @ shares)
        left = 1.0 - float(means**2 @ shares) / total
        return cls(kernel, line, shares / math.sqrt(total), 1.0 / left if left > CONSTANT else 0.0)

    def means(self, column: NDArray[Any]) -> Array:
        """m(u) / sqrt(M) at values of shape (n, 1)."""
        return self.kernel.between(column.astype(np.float64), self.values, 1) @ self.weights


@dataclass(frozen=True)
class CentredTiles:
    """Tiles of the centred kernel of one column.

    Attributes
    ----------
    tiles : Tiles
        Of the kernel that is not centred.
    left, right : ndarray of shape (n,) and (m,)
        Its means.
    scale : float
    """

    tiles: Tiles
    left: Array
    right: Array
    scale: float

    @classmethod
    def of(cls, factor: CentredFactor, u: NDArray[Any], v: NDArray[Any]) -> CentredTiles:
        """The tiles of values u and v of shape (n, 1) and (m, 1), which may be the same."""
        left = factor.means(u)
        right = left if v is u else factor.means(v)
        return cls(factor.kernel.tiles(u, v, np.float64), left, right, factor.scale)

    def __call__(self, rows: slice, columns: slice, out: Array) -> None:
        self.tiles(rows, columns, out)
        centre(self.left[rows], self.right[columns], self.scale, out)

    def take(self, columns: NDArray[np.int64]) -> CentredTiles:
        return replace(self, tiles=self.tiles.take(columns), right=self.right[columns])


@dataclass(frozen=True)
class LookedUpTiles:
    """The same for a column of few values: each pair of values is computed once.

    Attributes
    ----------
    table : ndarray of shape (k, l)
        The centred kernel of the values.
    left, right : ndarray of int, of shape (n,) and (m,)
        The value of each row.
    """

    table: Array
    left: NDArray[np.int64]
    right: NDArray[np.int64]

    def __call__(self, rows: slice, columns: slice, out: Array) -> None:
        look_up(self.table, self.left[rows], self.right[columns], out)

    def take(self, columns: NDArray[np.int64]) -> LookedUpTiles:
        return replace(self, right=np.ascontiguousarray(self.right[columns]))


def column_tiles(
    factor: CentredFactor, u: NDArray[Any], v: NDArray[Any]
) -> CentredTiles | LookedUpTiles:
    """The tiles of one column of shape (n, 1) beside another of shape (m, 1)."""
    some, left = np.unique(u, return_inverse=True)
    others, right = (some, left) if v is u else np.unique(v, return_inverse=True)
    if max(len(some), len(others)) > FEW_VALUES:
        return CentredTiles.of(factor, u, v)
    table = np.empty((len(some), len(others)))
    values = CentredTiles.of(factor, some[:, None], others[:, None])
    values(slice(0, len(some)), slice(0, len(others)), table)
    return LookedUpTiles(table, left.ravel(), right.ravel())


@dataclass(frozen=True)
class AnovaTiles:
    """Tiles of the kernel, from those of its columns; in float64, for what is centred cancels.

    Attributes
    ----------
    kernel : Anova
    columns : list of CentredTiles or LookedUpTiles
        Of the one-dimensional kernels in use.
    """

    kernel: Anova
    columns: list[CentredTiles | LookedUpTiles]

    @classmethod
    def of(cls, kernel: Anova, X: Any, Y: Any) -> AnovaTiles:
        """The tiles of rows X and Y, which may be the same."""
        tiles = []
        for i, factor in kernel.factors.items():
            u = X[:, [i]]
            tiles.append(column_tiles(factor, u, u if Y is X else Y[:, [i]]))
        return cls(kernel, tiles)

    def factors(self, rows: slice, columns: slice) -> Array:
        """The centred kernels of the columns in use: shape (d_used, rows, columns)."""
        shape = rows.stop - rows.start, columns.stop - columns.start
        out = np.empty((len(self.columns), *shape))
        for tile, column in zip(out, self.columns, strict=True):
            column(rows, columns, tile)
        return out

    def parts(self, rows: slice, columns: slice) -> Iterable[tuple[slice, slice]]:
        """Tiles whose factors stay in the cache."""
        height = max(4, TILE_ENTRIES // (TILE_COLUMNS * max(1, len(self.columns))))
        for top in range(rows.start, rows.stop, height):
            for start in range(columns.start, columns.stop, TILE_COLUMNS):
                stop = min(start + TILE_COLUMNS, columns.stop)
                yield slice(top, min(top + height, rows.stop)), slice(start, stop)

    def __call__(self, rows: slice, columns: slice, out: NDArray[Any]) -> None:
        tree = self.kernel.tree
        for some, others in self.parts(rows, columns):
            tile = np.zeros((some.stop - some.start, others.stop - others.start))
            factors = self.factors(some, others)
            add_subsets(factors, tree.depths, tree.columns, self.kernel._weights, tile)
            own = slice(some.start - rows.start, some.stop - rows.start)
            out[own, others.start - columns.start : others.stop - columns.start] = tile

    def take(self, columns: NDArray[np.int64]) -> AnovaTiles:
        return AnovaTiles(self.kernel, [column.take(columns) for column in self.columns])


def all_subsets(columns: Sequence[int], max_order: int) -> list[Subset]:
    """All subsets of at most so many columns."""
    orders = range(1, min(max_order, len(columns), HIGHEST_ORDER) + 1)
    return [subset for order in orders for subset in combinations(sorted(columns), order)]


def _dense(X: Any) -> Any:
    if sp.issparse(X):
        raise ValueError("an Anova kernel centres columns and needs dense rows: pass X.toarray()")
    return X
