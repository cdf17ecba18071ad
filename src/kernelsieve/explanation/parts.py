"""The parts of a model on an Anova kernel, as they stand in it.

f(x) = b + sum_T v_T sum_l w_l prod_(i in T) c_i(x_i, z_li), with centres z_l: training rows or
landmarks. The factors have mean 0 over the distributions that the kernel was centred over, so that
each subset T of columns is a part already. Over other distributions, and for a category in several
columns, a factor is its mean plus the rest, g = m + t; multiplied out, the terms with the same
inputs are a part. Both ways the cost follows the subsets of the kernel, which are few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from kernelsieve._native.subsets import centre
from kernelsieve._parallel import map_row_blocks, ordered_row_blocks
from kernelsieve.explanation.anova import Array, Variances, with_diagonal
from kernelsieve.explanation.sums import Input, SumOfParts
from kernelsieve.kernels.anova_tiles import CentredFactor
from kernelsieve.kernels.subsets import Subset

BLOCK_ENTRIES = 2**22  # of factors at once
COVARIANCE_ROWS = 128  # centres whose covariances with all are held at once
ORDERS = 4  # variances by order: one input, two, three, and more

Factors = tuple[int, ...]  # numbers of factors, at most one of each input


class _Factor:
    """A function of one input for each centre: the product over some of its columns.

    Parameters
    ----------
    kernels : sequence of (int, CentredFactor, ndarray)
        The column's place in the input, its kernel, and the centres' values.
    one : Input
    """

    def __init__(self, kernels: Sequence[tuple[int, CentredFactor, Array]], one: Input) -> None:
        self.columns = []
        for place, kernel, values in kernels:
            # Columns repeat values, and a kernel of equal values is equal.
            centres, members = np.unique(values, return_inverse=True)
            line = centres[:, None]
            self.columns.append((place, kernel, line, kernel.means(line), members))
        self.mean = np.zeros(len(self.columns[0][-1]))
        self.table = self(one.values)
        self.mean = one.weights @ self.table
        self.table -= self.mean

    def __call__(self, rows: Array) -> Array:
        """t at rows of the input's columns, for all centres: shape (B, L)."""
        product: Array | None = None
        for place, kernel, line, means, members in self.columns:
            column = np.ascontiguousarray(rows[:, [place]], dtype=np.float64)
            values = np.ascontiguousarray(kernel.kernel.between(column, line, 1))
            centre(kernel.means(column), means, kernel.scale, values)
            taken = values[:, members]
            product = taken if product is None else product * taken
        assert product is not None
        return product - self.mean


class PartsDecomposition:
    """A sum of parts, taken apart by the inputs' distributions.

    Parameters
    ----------
    model : SumOfParts
    inputs : sequence of Input
    n_jobs : int or None
    """

    def __init__(
        self, model: SumOfParts, inputs: Sequence[Input], n_jobs: int | None = None
    ) -> None:
        self.model, self.inputs, self.n_jobs = model, list(inputs), n_jobs
        owners = {
            column: (number, place)
            for number, one in enumerate(self.inputs)
            for place, column in enumerate(one.columns)
        }
        self.factors: list[_Factor] = []
        self.owner: list[int] = []  # the input of each factor
        numbers: dict[tuple[int, Subset], int] = {}
        # By factors: what the weights of the centres are multiplied by, of shape (L,).
        self.coefficients: dict[Factors, Array] = {}
        for subset, variance in zip(model.kernel.subsets, model.kernel.variances, strict=True):
            by_input: dict[int, list[int]] = {}
            for column in subset:
                by_input.setdefault(owners[column][0], []).append(column)
            term = []
            for number, columns in sorted(by_input.items()):
                key = number, tuple(columns)
                if key not in numbers:
                    numbers[key] = len(self.factors)
                    self.factors.append(self._factor(number, columns, owners))
                    self.owner.append(number)
                term.append(numbers[key])
            self._add(tuple(term), variance)
        self.by_part: dict[Subset, list[Factors]] = {}
        for some in self.coefficients:
            self.by_part.setdefault(tuple(self.owner[f] for f in some), []).append(some)
        self.by_part.pop((), None)
        self.slopes: dict[int, Array] = {}  # by input
        for number, one in enumerate(self.inputs):
            if model.linear is not None and model.linear[list(one.columns)].any():
                self.slopes[number] = model.linear[list(one.columns)]
                self.by_part.setdefault((number,), [])

    def _factor(
        self, number: int, columns: list[int], owners: dict[int, tuple[int, int]]
    ) -> _Factor:
        kernel, centres = self.model.kernel, self.model.centres
        kernels = [(owners[c][1], kernel.factors[c], centres[:, c]) for c in columns]
        return _Factor(kernels, self.inputs[number])

    def _add(self, term: Factors, variance: float) -> None:
        """Multiply out the factors of a term, each a mean plus the rest."""
        for order in range(len(term) + 1):
            for rest in combinations(term, order):
                means = [self.factors[f].mean for f in term if f not in rest]
                product = variance * np.prod([np.ones(len(self.model.centres)), *means], axis=0)
                self.coefficients[rest] = self.coefficients.get(rest, 0.0) + product

    @cached_property
    def constant(self) -> Array:
        """f_0, the mean of the model: shape (n_outputs,)."""
        lines = sum(self._middle(number) @ slopes for number, slopes in self.slopes.items())
        return self.model.offset + lines + self.coefficients[()] @ self.model.weights

    def _middle(self, number: int) -> Array:
        """The means of an input's columns."""
        return self.inputs[number].weights @ self.inputs[number].values

    def _line(self, subset: Subset, rows: Array) -> Any:
        """What the linear part adds to a part at rows: of shape (B, 1), or 0."""
        if len(subset) != 1 or subset[0] not in self.slopes:
            return 0.0
        return ((rows - self._middle(subset[0])) @ self.slopes[subset[0]])[:, None]

    # --- parts -----------------------------------------------------------------------------------

    def _vectors(self, subset: Subset, rows: Sequence[Array]) -> Array:
        """What the weights of the centres are multiplied by in a part: shape (L, B)."""
        total = np.zeros((len(rows[0]), len(self.model.centres)))
        for some in self.by_part[subset]:
            product = self.coefficients[some]
            for factor, values in zip(some, rows, strict=True):
                product = product * self.factors[factor](values)
            total += product
        return total.T

    def part(self, subset: Subset, rows: Sequence[Array]) -> Array:
        """f_S at rows, given for each input of the subset as (B, n_columns): shape (B, outputs)."""
        subset, rows = _sorted(subset, rows)
        if subset not in self.by_part:
            return np.zeros((len(rows[0]), self.model.weights.shape[1]))
        size = max(1, BLOCK_ENTRIES // len(self.model.centres))
        blocks = map_row_blocks(
            lambda some: self._vectors(subset, [r[some] for r in rows]).T @ self.model.weights,
            len(rows[0]),
            size,
            self.n_jobs,
        )
        return np.concatenate(blocks) + self._line(subset, rows[0])

    def deviation(self, subset: Subset, rows: Sequence[Array]) -> Array | None:
        """Posterior standard deviation of f_S at rows: shape (B, outputs); None if not known."""
        subset, rows = _sorted(subset, rows)
        if self._spread is None or subset not in self._spread.by_part:
            return None
        assert self.model.uncertainty is not None
        size = max(1, BLOCK_ENTRIES // len(self._spread.model.centres))
        parts = [
            self.model.uncertainty.deviations(
                self._spread._vectors(subset, [r[start : start + size] for r in rows])
            )
            for start in range(0, len(rows[0]), size)
        ]
        return np.concatenate(parts)

    @cached_property
    def _spread(self) -> PartsDecomposition | None:
        """The decomposition of the landmarks that carry the posterior."""
        known = self.model.uncertainty
        if known is None or not np.isfinite(known.posterior.noise_variance).all():
            return None
        assert isinstance(known.products, SumOfParts)
        return PartsDecomposition(known.products, self.inputs, self.n_jobs)

    # --- variances -------------------------------------------------------------------------------

    @cached_property
    def variances(self) -> Variances:
        """Variances of all parts under the product of the inputs' distributions."""
        parts = {
            s: self._grid_variance(s) for s in sorted(self.by_part, key=_by_size) if len(s) <= 2
        }
        higher = [s for s in sorted(self.by_part, key=_by_size) if len(s) > 2]
        if higher:
            parts |= self._covariance_variances(higher)
        first, totals = np.zeros(len(self.inputs)), np.zeros(len(self.inputs))
        by_order = np.zeros(ORDERS)
        for subset, variance in parts.items():
            by_order[min(len(subset), ORDERS) - 1] += variance
            totals[list(subset)] += variance
            if len(subset) == 1:
                first[subset[0]] += variance
        errors = np.zeros(len(self.inputs))
        return Variances(float(by_order.sum()), parts, first, totals, by_order, 0, errors, {})

    def _grid_variance(self, subset: Subset) -> float:
        """The mean square of a part of one or two inputs at all combinations of their values."""
        shares = [self.inputs[i].weights for i in subset]
        total = 0.0
        for weights in self.model.weights.T:
            values: Array = np.zeros(tuple(len(s) for s in shares))
            for some in self.by_part[subset]:
                left = self.factors[some[0]].table * (self.coefficients[some] * weights)
                values += (
                    left.sum(axis=1) if len(some) == 1 else left @ self.factors[some[1]].table.T
                )
            if len(subset) == 1 and subset[0] in self.slopes:
                values += self._line(subset, self.inputs[subset[0]].values)[:, 0]
            squares = values**2
            for share in shares:
                squares = share @ squares
            total += float(squares)
        return total

    def _covariance_variances(self, subsets: list[Subset]) -> dict[Subset, float]:
        """The same of more inputs, by the covariances of all pairs of centres."""
        weighted = {
            some: self.coefficients[some][:, None] * self.model.weights
            for subset in subsets
            for some in self.by_part[subset]
        }

        def block(rows: slice) -> Array:
            known: dict[tuple[int, int], Array] = {}

            def covariances(f: int, g: int) -> Array:
                if (f, g) not in known:
                    left = self.factors[f].table[:, rows].T * self.inputs[self.owner[f]].weights
                    known[f, g] = left @ self.factors[g].table
                return known[f, g]

            sums = np.zeros(len(subsets))
            for place, subset in enumerate(subsets):
                for some in self.by_part[subset]:
                    for other in self.by_part[subset]:
                        product = covariances(some[0], other[0]).copy()
                        for f, g in zip(some[1:], other[1:], strict=True):
                            product *= covariances(f, g)
                        sums[place] += np.vdot(weighted[some][rows], product @ weighted[other])
            return sums

        total = np.zeros(len(subsets))
        n = len(self.model.centres)
        for sums in ordered_row_blocks(block, n, COVARIANCE_ROWS, self.n_jobs):
            total += sums
        return dict(zip(subsets, np.maximum(total, 0.0).tolist(), strict=True))

    # --- Shapley values --------------------------------------------------------------------------

    def shapley(self, X: Array) -> Array:
        """Shapley values of the rows of X: shape (n, n_inputs, outputs).

        phi_i = sum_(S with i) f_S(x) / |S|.
        """
        out = np.zeros((len(X), len(self.inputs), self.model.weights.shape[1]))

        def add(subset: Subset, rows: slice, values: Array) -> None:
            for i in subset:
                out[rows, i] += values / len(subset)

        self._each_part(X, add)
        return out

    def interactions(self, X: Array) -> Array:
        """Shapley interaction values: shape (n, n_inputs, n_inputs, outputs).

        Symmetric; an interaction value is split between its two places, and each row sums to the
        Shapley value of its input, which leaves the diagonal.
        """
        n = len(self.inputs)
        out = np.zeros((len(X), n, n, self.model.weights.shape[1]))
        alone = np.zeros((len(X), n, self.model.weights.shape[1]))

        def add(subset: Subset, rows: slice, values: Array) -> None:
            for i in subset:
                alone[rows, i] += values / len(subset)
            for i, j in combinations(subset, 2):
                half = 0.5 * values / (len(subset) - 1)
                out[rows, i, j] += half
                out[rows, j, i] += half

        self._each_part(X, add)
        return with_diagonal(out, alone)

    def _each_part(self, X: Array, add: Callable[[Subset, slice, Array], None]) -> None:
        """``add(subset, rows, f_S there)`` for all parts and blocks of rows."""

        def block(rows: slice) -> None:
            values = [
                factor(X[rows][:, list(self.inputs[number].columns)])
                for factor, number in zip(self.factors, self.owner, strict=True)
            ]
            for subset, terms in self.by_part.items():
                total = np.zeros((rows.stop - rows.start, self.model.weights.shape[1]))
                for some in terms:
                    product = values[some[0]]
                    for f in some[1:]:
                        product = product * values[f]
                    total += product @ (self.coefficients[some][:, None] * self.model.weights)
                own = X[rows][:, list(self.inputs[subset[0]].columns)]
                add(subset, rows, total + self._line(subset, own))

        size = max(1, BLOCK_ENTRIES // (len(self.model.centres) * max(1, len(self.factors))))
        map_row_blocks(block, len(X), size, self.n_jobs)


def _sorted(subset: Subset, rows: Sequence[Array]) -> tuple[Subset, list[Array]]:
    """Inputs in ascending order, as parts know them, and their rows."""
    order = np.argsort(subset, kind="stable")
    return tuple(subset[k] for k in order), [rows[k] for k in order]


def _by_size(subset: Subset) -> tuple[int, Subset]:
    return len(subset), subset
