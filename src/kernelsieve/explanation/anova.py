"""The functional ANOVA of a sum of products, and Shapley values in closed form.

Write each factor as its mean plus the rest, g_ji = c_ji + t_ji. Then f = sum_S f_S exactly, with
f_S(x) = sum_j w_j prod_(i in S) t_ji(x_i) prod_(i not in S) c_ji. These parts have mean 0 along
each of their columns, and are orthogonal under the product of the columns' distributions
(docs/explanations.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native import anova as native
from kernelsieve._parallel import map_row_blocks, ordered_row_blocks
from kernelsieve.explanation.sums import Input, SumOfProducts, factors_of
from kernelsieve.kernels.subsets import Subset, SubsetTree

Array = NDArray[np.float64]

BLOCK_ENTRIES = 2**22  # of products times rows at once
COVARIANCE_ENTRIES = 2**21  # of columns times products times products at once
PAIRED_INPUTS = 64  # whose pairs are all listed: those with the most interactions
ALL_SUBSETS = 10  # up to so many columns, parts of all orders are listed
HIGHEST_ORDER = 3  # beyond, up to this order
MOST_PRODUCTS = 2048  # whose covariances are summed; beyond, higher orders are estimated
SAMPLED_ENTRIES = 2**23  # rows times products of such estimates ...
SAMPLED_ROWS = (512, 4096)  # ... with so many rows from the product of the distributions
ROUNDING = 1e-7  # of the variance, that sums of covariances may lose
# Parts of three and more columns are looked for among columns whose interactions have this share.
SMALLEST_SHARE = 1e-4
MOST_PARTS = 1024


@dataclass(frozen=True)
class Variances:
    """The variances of the parts of a model, and of groups of them.

    Attributes
    ----------
    total : float
        The variance of the model, of all outputs together.
    parts : dict of subset to float
        Of each part that is listed, in the order of the subsets' sizes.
    first, totals : ndarray of shape (n_inputs,)
        Of each input's own part, and of all parts that it takes part in.
    by_order : ndarray of shape (4,)
        Of all parts of one input, of two, of three, and of more.
    exact : bool
        Whether those of three and more inputs are exact; else they are estimates on drawn rows.
    """

    total: float
    parts: dict[Subset, float]
    first: Array
    totals: Array
    by_order: Array
    exact: bool


class Decomposition:
    """A sum of products, taken apart by the inputs' distributions.

    Parameters
    ----------
    model : SumOfProducts
    inputs : sequence of Input
    n_jobs : int or None
    """

    def __init__(
        self, model: SumOfProducts, inputs: Sequence[Input], n_jobs: int | None = None
    ) -> None:
        self.model, self.inputs, self.n_jobs = model, list(inputs), n_jobs
        self.active, self.functions, self.members = factors_of(model, inputs)
        self.places = {number: place for place, number in enumerate(self.active)}
        # Of each active input: its functions at its values, and their means.
        self.tables = [
            function(self.inputs[number].values)
            for number, function in zip(self.active, self.functions, strict=True)
        ]
        self.table_means = [
            table @ self.inputs[number].weights
            for number, table in zip(self.active, self.tables, strict=True)
        ]
        self.means = np.empty(self.members.shape)
        for place, mean in enumerate(self.table_means):
            self.means[place] = mean[self.members[place]]

    @property
    def n_products(self) -> int:
        return len(self.model.weights)

    @cached_property
    def constant(self) -> Array:
        """f_0, the mean of the model: shape (n_outputs,)."""
        return self.model.offset + self.means.prod(axis=0) @ self.model.weights

    # --- parts -----------------------------------------------------------------------------------

    def _coefficients(self, subset: Subset) -> Array:
        """prod over the inputs that are not in a subset of the factors' means: shape (s,)."""
        rest = np.ones(len(self.active), dtype=bool)
        rest[[self.places[i] for i in subset]] = False
        return self.means[rest].prod(axis=0)

    def _centred(self, number: int, rows: Array) -> Array:
        """t of one input at some rows of its columns: shape (s, B)."""
        place = self.places[number]
        values = self.functions[place](rows) - self.table_means[place][:, None]
        return values[self.members[place]]

    def _vectors(self, subset: Subset, rows: Sequence[Array]) -> Array:
        """What the weights of the products are multiplied by in a part: shape (s, B)."""
        vectors = self._coefficients(subset)[:, None]
        for number, values in zip(subset, rows, strict=True):
            vectors = vectors * self._centred(number, values)
        return vectors

    def part(self, subset: Subset, rows: Sequence[Array]) -> Array:
        """f_S at rows, given for each input of the subset as (B, n_columns): shape (B, outputs)."""
        if any(i not in self.places for i in subset):
            return np.zeros((len(rows[0]), self.model.weights.shape[1]))
        size = max(1, BLOCK_ENTRIES // self.n_products)
        blocks = map_row_blocks(
            lambda some: self._vectors(subset, [r[some] for r in rows]).T @ self.model.weights,
            len(rows[0]),
            size,
            self.n_jobs,
        )
        return np.concatenate(blocks)

    def deviation(self, subset: Subset, rows: Sequence[Array]) -> Array | None:
        """Posterior standard deviation of f_S at rows: shape (B, outputs); None if not known."""
        if self._spread is None or any(i not in self._spread.places for i in subset):
            return None
        assert self.model.uncertainty is not None
        vectors = self._spread._vectors(subset, rows)
        return self.model.uncertainty.deviations(vectors)

    @cached_property
    def _spread(self) -> Decomposition | None:
        """The decomposition of the products that carry the posterior."""
        known = self.model.uncertainty
        if known is None or not np.isfinite(known.posterior.noise_variance).all():
            return None
        assert isinstance(known.products, SumOfProducts)
        return Decomposition(known.products, self.inputs, self.n_jobs)

    def grid(self, subset: Subset) -> Array:
        """f_S at all combinations of the values of one or two inputs: (V, [V,] outputs)."""
        if any(i not in self.places for i in subset):
            sizes = [len(self.inputs[i].weights) for i in subset]
            return np.zeros((*sizes, self.model.weights.shape[1]))
        weights = self._coefficients(subset)[:, None] * self.model.weights
        if len(subset) == 1:
            # Products with the same function of this input are one.
            place = self.places[subset[0]]
            return self._own(place).T @ _grouped(self.members[place], weights, self._own(place))
        first, second = (self.places[i] for i in subset)
        if len(self._own(first)) * len(self._own(second)) < self.n_products * MOST_PAIRED:
            return self._small_grid(first, second, weights)
        left = self._own(first)[self.members[first]]
        right = self._own(second)[self.members[second]]
        grids = [left.T @ (right * weights[:, [o]]) for o in range(weights.shape[1])]
        return np.stack(grids, axis=-1)

    def _small_grid(self, first: int, second: int, weights: Array) -> Array:
        """The same where the two inputs have few functions: their combinations are counted."""
        left, right = self._own(first), self._own(second)
        both = self.members[first] * len(right) + self.members[second]
        grids = [
            left.T
            @ np.bincount(both, w, len(left) * len(right)).reshape(len(left), len(right))
            @ right
            for w in weights.T
        ]
        return np.stack(grids, axis=-1)

    def _own(self, place: int) -> Array:
        """The functions of an input around their means, at its values: shape (K, V)."""
        return self.tables[place] - self.table_means[place][:, None]

    # --- variances -------------------------------------------------------------------------------

    @cached_property
    def variances(self) -> Variances:
        """Variances of parts under the product of the inputs' distributions.

        Parts of one input are all listed, and so are those of two, unless there are very many.
        Higher ones are listed up to the order that the number of inputs allows, among inputs with
        more than a negligible share of interactions.
        """
        n, d = len(self.inputs), len(self.active)
        parts: dict[Subset, float] = {(i,): self._grid_variance((i,)) for i in self.active}
        first, totals = np.zeros(n), np.zeros(n)
        first[self.active] = [parts[i,] for i in self.active]
        few = self.n_products <= MOST_PRODUCTS
        exact = few and self._rounding() <= ROUNDING * max(parts.values(), default=0.0)
        higher, sums = self._totals() if exact else self._sampled_totals()
        totals[self.active] = np.maximum(sums, first[self.active])
        largest = sorted(self.active, key=lambda i: first[i] - totals[i])[:PAIRED_INPUTS]
        pairs: dict[Subset, float] = {
            s: self._grid_variance(s) for s in combinations(sorted(largest), 2)
        }
        if d <= PAIRED_INPUTS:
            higher[0] = sum(pairs.values())
        by_order = np.maximum(np.concatenate([[first.sum()], higher]), 0.0)
        total = float(by_order.sum())
        parts |= pairs
        subsets = self._higher_subsets(total, parts, first, totals, d)
        found = self._tree_variances(subsets) if exact else self._sampled_variances(subsets)
        parts |= dict(zip(subsets, found.tolist(), strict=True))
        return Variances(total, parts, first, totals, by_order, exact)

    def _higher_subsets(
        self, total: float, parts: dict[Subset, float], first: Array, totals: Array, d: int
    ) -> list[Subset]:
        """Subsets of three and more inputs, in the order of a walk through their tree."""
        # A part of three inputs is bounded by what each of them has beyond its mains and pairs.
        beyond = totals - first
        for subset, variance in parts.items():
            if len(subset) == 2:
                beyond[list(subset)] -= variance
        threshold = SMALLEST_SHARE * total
        candidates = [i for i in self.active if beyond[i] > threshold]
        highest = len(candidates) if d <= ALL_SUBSETS else HIGHEST_ORDER
        while len(candidates) > 2:
            subsets = list(_walk(candidates, highest))
            if len(subsets) <= MOST_PARTS:
                return subsets
            candidates.remove(min(candidates, key=lambda i: beyond[i]))
        return []

    def _grid_variance(self, subset: Subset) -> float:
        squares = np.square(self.grid(subset)).sum(axis=-1)
        for number in subset:
            squares = self.inputs[number].weights @ squares
        return float(squares)

    def _rounding(self) -> float:
        """The rounding error of sums over pairs of products: large where weights cancel."""
        sizes = np.ones(self.n_products)
        for place, table in enumerate(self.tables):
            squares = np.square(table) @ self.inputs[self.active[place]].weights
            sizes *= np.sqrt(squares)[self.members[place]]
        largest = np.square(sizes @ np.abs(self.model.weights)).sum()
        return float(np.finfo(np.float64).eps * largest)

    @cached_property
    def _drawn(self) -> dict[int, Array]:
        """Rows from the product of the distributions, by input."""
        rng = np.random.default_rng(0)
        drawn = {}
        for number in self.active:
            one = self.inputs[number]
            chosen = rng.choice(len(one.weights), self._n_drawn, p=one.weights / one.weights.sum())
            drawn[number] = one.values[chosen]
        return drawn

    @property
    def _n_drawn(self) -> int:
        return int(np.clip(SAMPLED_ENTRIES // self.n_products, *SAMPLED_ROWS))

    def _sampled_totals(self) -> tuple[Array, Array]:
        """Estimates of what ``_totals`` computes, from values of the parts on drawn rows."""
        d, weights = len(self.active), self.model.weights

        def block(rows: slice) -> tuple[Array, Array]:
            size = rows.stop - rows.start
            parts = [self._centred(i, self._drawn[i][rows]) for i in self.active]
            by_order = [np.ones((self.n_products, size))]  # by the number of parts in a product
            for place, part in enumerate(parts):
                mean = self.means[place][:, None]
                longer = [by_order[p] * mean for p in range(len(by_order))]
                for p, before in enumerate(by_order):
                    if p + 1 < len(longer):
                        longer[p + 1] += before * part
                    elif p < HIGHEST_ORDER:
                        longer.append(before * part)
                by_order = longer
            after = [np.ones((self.n_products, size))]
            for place in range(d - 1, 0, -1):
                after.append(after[-1] * (parts[place] + self.means[place][:, None]))
            before, totals = np.ones((self.n_products, size)), np.zeros(d)
            for place, part in enumerate(parts):
                with_it = (before * part * after[d - 1 - place]).T @ weights
                totals[place] = np.square(with_it).sum()
                before = before * (part + self.means[place][:, None])
            by_order.append(before - sum(by_order))
            sums = [np.square(one.T @ weights).sum() for one in by_order[2:]]
            return np.array([*sums, *[0.0] * (3 - len(sums))]), totals

        higher, totals = np.zeros(3), np.zeros(d)
        size = max(1, BLOCK_ENTRIES // (self.n_products * (d + 4)))
        for some, more in ordered_row_blocks(block, self._n_drawn, size, self.n_jobs):
            higher += some / self._n_drawn
            totals += more / self._n_drawn
        return higher, totals

    def _sampled_variances(self, subsets: list[Subset]) -> Array:
        """Mean squares of parts on drawn rows."""
        return np.array(
            [
                np.square(self.part(subset, [self._drawn[i] for i in subset])).sum() / self._n_drawn
                for subset in subsets
            ]
        )

    def values(self, rows: dict[int, Array]) -> Array:
        """f at rows given by input: shape (B, outputs)."""
        count = len(next(iter(rows.values()))) if rows else 1

        def block(some: slice) -> Array:
            product = np.ones((self.n_products, some.stop - some.start))
            for place, number in enumerate(self.active):
                product *= self.functions[place](rows[number][some])[self.members[place]]
            return product.T @ self.model.weights + self.model.offset

        size = max(1, BLOCK_ENTRIES // max(1, self.n_products))
        return np.concatenate(map_row_blocks(block, count, size, self.n_jobs))

    def _covariances(self, places: Sequence[int], rows: slice) -> Array:
        """E[t_ji t_li] of a block of products with all, for some inputs: shape (d, B, s)."""
        out = np.empty((len(places), rows.stop - rows.start, self.n_products))
        for k, place in enumerate(places):
            own, members = self._own(place), self.members[place]
            some = own[members[rows]] * self.inputs[self.active[place]].weights
            np.take(some @ own.T, members, axis=1, out=out[k])
        return out

    def _block_rows(self, n_places: int) -> int:
        entries = max(1, n_places) * max(1, self.n_products)
        return max(1, min(self.n_products, COVARIANCE_ENTRIES // entries))

    def _totals(self) -> tuple[Array, Array]:
        """Variances of all parts of two, of three and of more inputs, and of all with each."""
        d, weights = len(self.active), self.model.weights
        places = range(d)

        def block(rows: slice) -> tuple[Array, Array]:
            orders, totals = np.zeros(HIGHEST_ORDER + 2), np.zeros(d)
            native.add_totals(
                self._covariances(places, rows),
                self.means[:, rows].copy(),
                self.means,
                weights[rows],
                weights,
                orders,
                totals,
            )
            return orders, totals

        orders, totals = np.zeros(HIGHEST_ORDER + 2), np.zeros(d)
        size = self._block_rows(d)
        for some, more in ordered_row_blocks(block, self.n_products, size, self.n_jobs):
            orders += some
            totals += more
        return np.array([*orders[2:4], orders[-1] - orders[1:-1].sum()]), totals

    def _tree_variances(self, subsets: list[Subset]) -> Array:
        """Variances of parts whose subsets stand in the order of a walk through their tree."""
        if not subsets:
            return np.empty(0)
        tree = SubsetTree.of(subsets)
        weights = np.zeros((len(tree.nodes), *self.model.weights.shape))
        for place, subset in zip(tree.places, subsets, strict=True):
            weights[place] = self._coefficients(subset)[:, None] * self.model.weights
        places = [self.places[i] for i in tree.used]

        def block(rows: slice) -> Array:
            out = np.zeros(len(tree.nodes))
            covariances = self._covariances(places, rows)
            left = np.ascontiguousarray(weights[:, rows])
            native.add_variances(covariances, left, weights, tree.depths, tree.columns, out)
            return out

        total = np.zeros(len(tree.nodes))
        size = self._block_rows(len(places))
        for some in ordered_row_blocks(block, self.n_products, size, self.n_jobs):
            total += some
        return np.maximum(total[tree.places], 0.0)

    # --- Shapley values --------------------------------------------------------------------------

    def shapley(self, X: Array) -> Array:
        """Shapley values of the rows of X: shape (n, n_inputs, outputs).

        phi_i = sum_(S with i) f_S(x) / |S|, by one integral of a polynomial for each product.
        """
        out = np.zeros((len(X), len(self.inputs), self.model.weights.shape[1]))
        nodes, weights = _gauss(max(1, (len(self.active) + 1) // 2))

        def row(parts: Array, place: int) -> None:
            values = np.zeros((len(self.active), out.shape[2]))
            native.shapley_values(parts, self.means, self.model.weights, nodes, weights, values)
            out[place, self.active] = values

        self._each_row(X, row)
        return out

    def interactions(self, X: Array) -> Array:
        """Shapley interaction values: shape (n, n_inputs, n_inputs, outputs).

        Symmetric; an interaction value is split between its two places, and each row sums to the
        Shapley value of its input, which leaves the diagonal.
        """
        n = len(self.inputs)
        out = np.zeros((len(X), n, n, self.model.weights.shape[1]))
        nodes, weights = _gauss(max(1, len(self.active) // 2))
        d, outputs = len(self.active), out.shape[3]
        both = np.ix_(self.active, self.active)

        def row(parts: Array, place: int) -> None:
            values = np.zeros((d, d, outputs))
            native.shapley_interactions(
                parts, self.means, self.model.weights, nodes, weights, values
            )
            out[place][both] = 0.5 * (values + values.transpose(1, 0, 2))

        self._each_row(X, row)
        return with_diagonal(out, self.shapley(X))

    def _each_row(self, X: Array, function: Any) -> None:
        """``function(t of the row, its number)`` for all rows."""

        def block(rows: slice) -> None:
            tables = [
                np.ascontiguousarray(
                    self.functions[place](X[rows][:, list(self.inputs[number].columns)]).T
                )
                for place, number in enumerate(self.active)
            ]
            parts = np.empty(self.means.shape)
            for r in range(rows.stop - rows.start):
                for place, table in enumerate(tables):
                    native.gathered(table[r], self.members[place], self.means[place], parts[place])
                function(parts, rows.start + r)

        widest = max([1, *(len(table) for table in self.tables)])
        size = max(1, min(64, BLOCK_ENTRIES // (widest * max(1, len(self.active)))))
        map_row_blocks(block, len(X), size, self.n_jobs)


def with_diagonal(interactions: Array, shapley: Array) -> Array:
    """Interactions, whose diagonal is 0, with what they leave of each Shapley value there."""
    places = np.arange(shapley.shape[1])
    interactions[:, places, places] = shapley - interactions.sum(axis=2)
    return interactions


MOST_PAIRED = 64


def _grouped(members: NDArray[np.int64], weights: Array, table: Array) -> Array:
    """Sums of weights by function: shape (K, outputs)."""
    return np.stack([np.bincount(members, w, len(table)) for w in weights.T], axis=-1)


def _gauss(count: int) -> tuple[Array, Array]:
    """Nodes and weights on [0, 1] that are exact up to degree 2 count - 1."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return 0.5 * (nodes + 1.0), 0.5 * weights


def _walk(numbers: Sequence[int], highest: int) -> Iterable[Subset]:
    """All subsets of three and more, in the order of a walk through the tree of prefixes."""

    def below(prefix: Subset, start: int) -> Iterable[Subset]:
        for k in range(start, len(numbers)):
            subset = (*prefix, numbers[k])
            if len(subset) > 2:
                yield subset
            if len(subset) < highest:
                yield from below(subset, k + 1)

    return below((), 0)
