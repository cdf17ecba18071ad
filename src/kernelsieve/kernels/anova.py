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

from kernelsieve._native.subsets import add_subsets, centre
from kernelsieve._parallel import map_row_blocks
from kernelsieve._state import instance, list_of, number, whole
from kernelsieve._validation import check_count, check_points
from kernelsieve.kernels.anova_tiles import FACTOR_COLUMNS, FACTOR_ROWS, AnovaTiles, CentredFactor
from kernelsieve.kernels.base import Kernel
from kernelsieve.kernels.gram import empty_gram
from kernelsieve.kernels.product import Product
from kernelsieve.kernels.subsets import Subset, SubsetTree
from kernelsieve.kernels.tiles import Tiles
from kernelsieve.sources.marginals import Marginals

Array = NDArray[np.float64]

HIGHEST_ORDER = 8  # columns of a subset
SHOWN = 6  # subsets in a repr


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
    has_rates: ClassVar[bool] = True
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

    def against(self, points: NDArray[Any]) -> Callable[[NDArray[Any]], Array]:
        Y = self._check_rows(points).astype(np.float64)
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
            for start in range(rows.start if symmetric else 0, m, FACTOR_COLUMNS):
                columns = slice(start, min(start + FACTOR_COLUMNS, m))
                tile = np.empty((rows.stop - rows.start, columns.stop - start))
                tiles(rows, columns, tile)
                gram[rows, columns] = tile
                if symmetric:
                    gram[columns, rows] = tile.T

        map_row_blocks(fill, len(gram), FACTOR_ROWS, n_jobs)
        return gram


def all_subsets(columns: Sequence[int], max_order: int) -> list[Subset]:
    """All subsets of at most so many columns."""
    orders = range(1, min(max_order, len(columns), HIGHEST_ORDER) + 1)
    return [subset for order in orders for subset in combinations(sorted(columns), order)]


def _dense(X: Any) -> Any:
    if sp.issparse(X):
        raise ValueError("an Anova kernel centres columns and needs dense rows: pass X.toarray()")
    return X
