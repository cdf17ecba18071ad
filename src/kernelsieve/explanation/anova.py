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
from kernelsieve.explanation.sampling import Rest, n_drawn
from kernelsieve.explanation.sums import Input, SumOfProducts, factors_of
from kernelsieve.kernels.subsets import Subset, SubsetTree

Array = NDArray[np.float64]

BLOCK_ENTRIES = 2**22  # of products times rows at once
COVARIANCE_ENTRIES = 2**21  # of columns times products times products at once
PAIRED_INPUTS = 40  # whose pairs are listed: those with the most interactions
SMALLEST_BEYOND = 1e-5  # share of an input's interactions, for its pairs to be listed
ALL_SUBSETS = 10  # up to so many columns, parts of all orders are listed
HIGHEST_ORDER = 3  # beyond, up to this order
MOST_COVARIANCES = 2**30  # columns times products times products; beyond, rows are drawn
# Rounding error that sums of covariances may have, as a bound on the share of the largest part.
ROUNDING = 1e-4
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
    n_drawn : int
        The rows on which parts were estimated: those of three and more inputs, and pairs that are
        not listed. 0 if all is exact.
    total_errors : ndarray of shape (n_inputs,)
        Standard errors of ``totals / total``.
    part_errors : dict of subset to float
        Standard errors of the shares of estimated parts.
    """

    total: float
    parts: dict[Subset, float]
    first: Array
    totals: Array
    by_order: Array
    n_drawn: int
    total_errors: Array
    part_errors: dict[Subset, float]


class Decomposition:
    """A sum of products, taken apart by the inputs' distributions.

    Parameters
    ----------
    model : SumOfProducts
    inputs : sequence of Input
    n_jobs : int or None
    most_covariances : int
        Of columns times products times products whose sums are exact; with more, rows are drawn.
    """

    def __init__(
        self,
        model: SumOfProducts,
        inputs: Sequence[Input],
        n_jobs: int | None = None,
        most_covariances: int = MOST_COVARIANCES,
    ) -> None:
        self.model, self.inputs, self.n_jobs = model, list(inputs), n_jobs
        self.most_covariances = most_covariances
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
        mains: dict[Subset, Array] = {(i,): self.grid((i,)) for i in self.active}
        parts: dict[Subset, float] = {s: self._variance(s, grid) for s, grid in mains.items()}
        first = np.zeros(n)
        first[self.active] = list(parts.values())
        if d > 2 and not self._can_be_summed(max(parts.values())):
            return self._estimated(mains, parts, first)
        totals = np.zeros(n)
        higher, sums = self._totals()
        totals[self.active] = np.maximum(sums, first[self.active])
        pairs = self._paired(totals - first, float(first.sum()))
        parts |= {s: self._variance(s, self.grid(s)) for s in pairs}
        if len(pairs) == d * (d - 1) // 2:
            higher[0] = sum(parts[s] for s in pairs)
        by_order = np.maximum(np.concatenate([[first.sum()], higher]), 0.0)
        total = float(by_order.sum())
        subsets = self._higher_subsets(total, parts, first, totals, d)
        parts |= dict(zip(subsets, self._tree_variances(subsets).tolist(), strict=True))
        return Variances(total, parts, first, totals, by_order, 0, np.zeros(n), {})

    def _estimated(
        self, mains: dict[Subset, Array], parts: dict[Subset, float], first: Array
    ) -> Variances:
        """The same where only parts of one and two inputs are exact, and rows show the rest."""
        n, d = len(self.inputs), len(self.active)
        rest = self._at_drawn_rows()
        for subset, grid in mains.items():
            self._subtract(rest, subset, grid)
        beyond, totals = np.zeros(n), first.copy()
        beyond[self.active] = rest.column_squares().mean(axis=1)
        by_order = np.zeros(4)
        by_order[0] = first.sum()
        parts = dict(parts)
        pairs = self._paired(beyond, float(first.sum()))
        for subset in pairs:
            grid = self.grid(subset)
            parts[subset] = self._variance(subset, grid)
            totals[list(subset)] += parts[subset]
            by_order[1] += parts[subset]
            self._subtract(rest, subset, grid)
        if len(pairs) == d * (d - 1) // 2:
            rest.orders[0] = 0.0  # all of them are known
        squares = rest.column_squares()
        totals[self.active] += squares.mean(axis=1)
        by_order[1:] += rest.order_squares().mean(axis=1)
        total = float(by_order.sum())
        errors = np.zeros(n)
        errors[self.active] = rest.share_errors(
            squares, totals[self.active] / (total or 1.0), total
        )
        subsets = self._higher_subsets(total, parts, first, totals, d)
        part_errors = {}
        for subset in subsets:
            values = np.square(self._at_drawn(subset)).sum(axis=-1)
            parts[subset] = float(values.mean())
            share = np.array([parts[subset] / (total or 1.0)])
            error = rest.share_errors(values[None], share, total)[0]
            part_errors[subset] = float(error)
        return Variances(total, parts, first, totals, by_order, rest.n_rows, errors, part_errors)

    def _can_be_summed(self, largest: float) -> bool:
        """Whether sums over all pairs of products are cheap and exact enough."""
        entries = len(self.active) * self.n_products**2
        return entries <= self.most_covariances and self._rounding() <= ROUNDING * largest

    def _paired(self, beyond: Array, scale: float) -> list[Subset]:
        """Pairs of the inputs that have the most beyond their own parts; all of few inputs."""
        largest = sorted(self.active, key=lambda i: -beyond[i])[:PAIRED_INPUTS]
        if len(self.active) > ALL_SUBSETS:
            scale = max(scale, float(beyond.max()))
            largest = [i for i in largest if beyond[i] > SMALLEST_BEYOND * scale]
        return list(combinations(sorted(largest), 2))

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

    def _variance(self, subset: Subset, grid: Array) -> float:
        squares = np.square(grid).sum(axis=-1)
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

    # --- drawn rows ------------------------------------------------------------------------------

    @cached_property
    def _drawn(self) -> dict[int, NDArray[np.int64]]:
        """Rows from the product of the distributions: the numbers of each input's values."""
        rng = np.random.default_rng(0)
        size = n_drawn(self.n_products, len(self.active))
        weights = {number: self.inputs[number].weights for number in self.active}
        return {i: rng.choice(len(w), size, p=w / w.sum()) for i, w in weights.items()}

    def _centred_drawn(self, number: int, rows: slice) -> Array:
        """t of one input at drawn rows: shape (s, B)."""
        place = self.places[number]
        return self._own(place)[:, self._drawn[number][rows]][self.members[place]]

    def _subtract(self, rest: Rest, subset: Subset, grid: Array) -> None:
        """Take a part, given at all combinations of values, out of what drawn rows show."""
        values = grid[tuple(self._drawn[i] for i in subset)]
        rest.subtract([self.places[i] for i in subset], values)

    def _at_drawn(self, subset: Subset) -> Array:
        """A part at the drawn rows: shape (n_drawn, outputs)."""
        coefficients = self._coefficients(subset)[:, None]

        def block(rows: slice) -> Array:
            vectors = coefficients
            for number in subset:
                vectors = vectors * self._centred_drawn(number, rows)
            return vectors.T @ self.model.weights

        size = max(1, BLOCK_ENTRIES // self.n_products)
        count = len(self._drawn[self.active[0]])
        return np.concatenate(map_row_blocks(block, count, size, self.n_jobs))

    def _at_drawn_rows(self) -> Rest:
        """Sums of parts at the drawn rows, by column and by order."""
        d, weights = len(self.active), self.model.weights

        def block(rows: slice) -> Rest:
            size = rows.stop - rows.start
            parts = [self._centred_drawn(i, rows) for i in self.active]
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
            before, with_column = np.ones((self.n_products, size)), []
            for place, part in enumerate(parts):
                with_column.append((before * part * after[d - 1 - place]).T @ weights)
                before = before * (part + self.means[place][:, None])
            by_order.append(before - sum(by_order))
            orders = [one.T @ weights for one in by_order[2:]]
            return Rest(np.array(with_column), np.array(orders))

        size = max(1, BLOCK_ENTRIES // (self.n_products * (d + 4)))
        count = len(self._drawn[self.active[0]])
        found = map_row_blocks(block, count, size, self.n_jobs)
        return Rest(
            np.concatenate([one.with_column for one in found], axis=1),
            np.concatenate([one.orders for one in found], axis=1),
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
