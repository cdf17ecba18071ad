"""Models as sums of products of one-column functions (docs/explanations.md).

A model on product features is f(x) = b + sum_j w_j prod_i g_ji(x_i), where g_ji is one of a few
functions of column i. So is a model on a product kernel, exact or on landmarks: its product j is
the kernel with training row (or landmark) j, and w_j the dual coefficient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import gammaln

from kernelsieve.features import FeatureMap
from kernelsieve.kernels import Anova, Product
from kernelsieve.linalg.posterior import Posterior
from kernelsieve.products.centred import CentredTables
from kernelsieve.products.local_basis import LocalTables
from kernelsieve.products.product_features import MonomialBasis, ProductFeatures
from kernelsieve.products.product_frame import ProductFrame

Array = NDArray[np.float64]
ColumnFunction = Callable[[Array], Array]  # from values (B,) to all functions of a column (K, B)

MOST_COLUMNS = 2048  # that take part; sparse data may have many more


class NotProductsError(ValueError):
    """A model that is not a sum of products of one-column functions."""


@dataclass(frozen=True)
class SumOfProducts:
    """f(x) = offset + sum_j weights_j prod_i functions_i(x_i)[members_ij].

    Attributes
    ----------
    columns : ndarray of shape (d_active,)
        The columns that take part, of those of X.
    functions : tuple of callable
        For each of them, from values (B,) to the values of its functions (K_i, B).
    members : ndarray of shape (d_active, s)
        The function of each column that is a factor of each product.
    weights : ndarray of shape (s, n_outputs)
    offset : ndarray of shape (n_outputs,)
    uncertainty : Uncertainty or None
        The posterior of the weights, where it is known.
    rows : {ndarray, CSR} or None
        Training rows (or landmarks) that the products belong to, if they do.
    """

    columns: NDArray[np.int64]
    functions: tuple[ColumnFunction, ...]
    members: NDArray[np.int64]
    weights: Array
    offset: Array
    uncertainty: Uncertainty | None = None
    rows: Any = None


@dataclass(frozen=True)
class SumOfParts:
    """f(x) = offset + <linear, x> + sum_l weights_l kernel(x, centres_l), on a kernel of parts.

    Attributes
    ----------
    kernel : Anova
    centres : ndarray of shape (s, d)
        Training rows, or landmarks.
    weights : ndarray of shape (s, n_outputs)
    offset : ndarray of shape (n_outputs,)
    linear : ndarray of shape (d,) or None
        Slopes of the columns, for a model of one output.
    uncertainty : Uncertainty or None
        The posterior of the weights, where it is known.
    """

    kernel: Anova
    centres: Array
    weights: Array
    offset: Array
    linear: Array | None = None
    uncertainty: Uncertainty | None = None

    @property
    def rows(self) -> Array:
        """The centres."""
        return self.centres

    @property
    def columns(self) -> NDArray[np.int64]:
        """The columns that take part."""
        used = {column for subset in self.kernel.subsets for column in subset}
        lines = [] if self.linear is None else np.flatnonzero(self.linear).tolist()
        return np.array(sorted(used.union(lines)), dtype=np.int64)


Sum = SumOfProducts | SumOfParts


@dataclass(frozen=True)
class Uncertainty:
    """The posterior of a ridge's coefficients, seen from products.

    Attributes
    ----------
    products : SumOfProducts or SumOfParts
        The products (or centres) that the features of the ridge are made of.
    mixing : ndarray of shape (s,) or (s, n_features)
        Features are products times these scales, or this matrix.
    posterior : Posterior
    """

    products: Sum
    mixing: Array
    posterior: Posterior

    def deviations(self, vectors: Array) -> Array:
        """Standard deviations of sums of the products with these coefficients, of shape (s, m).

        Returns
        -------
        ndarray of shape (m, n_outputs)
        """
        scales = self.mixing.ndim == 1
        mixed = self.mixing[:, None] * vectors if scales else self.mixing.T @ vectors
        relative = self.posterior.coefficient_variances(mixed)
        return np.sqrt(np.multiply.outer(relative, self.posterior.noise_variance))


def products_of(model: Any) -> Sum:
    """A fitted model as a sum of products, or of the parts of a kernel of parts.

    Parameters
    ----------
    model : estimator
        A ridge or a machine on a feature map, or an estimator that holds one as ``model_`` or
        ``ridge_``, with a linear part beside it or not.

    Raises
    ------
    NotProductsError
        If it is none; the message says why.
    """
    linear = getattr(model, "linear_", None)
    if linear is not None:
        products = products_of(model.model_)
        if isinstance(products, SumOfParts):
            offset = products.offset + linear.constant
            return replace(products, linear=linear.slopes, offset=offset)
        return _plus_linear(products, linear.slopes, linear.constant)
    model = innermost(model)
    features = getattr(model, "features_", None)
    if features is None or (not hasattr(model, "intercept_") and not hasattr(model, "svc_")):
        raise NotProductsError(f"{type(model).__name__} is not a model on product features")
    if hasattr(model, "svc_"):
        planes = model.svc_.coef_.T.astype(np.float64)
        return _on_features(features, planes, np.atleast_1d(model.svc_.intercept_), None)
    offset = np.atleast_1d(np.asarray(model.intercept_, dtype=np.float64))
    posterior = model.posterior_
    if not hasattr(model, "dual_coef_"):
        return _on_features(features, _columns(model.coef_), offset, posterior)
    exact = _on_kernel(features.kernel_, model.X_fit_, _columns(model.dual_coef_), offset)
    try:
        spread = _on_features(features, _columns(model.coef_), offset, posterior).uncertainty
    except NotProductsError:
        spread = None
    return replace(exact, uncertainty=spread)


def recombined(products: Sum, mixture: Array) -> Sum:
    """The sum whose outputs are combinations of the outputs of another.

    Parameters
    ----------
    products : SumOfProducts or SumOfParts
    mixture : ndarray of shape (n_outputs, n_new)
    """
    weights, offset = products.weights @ mixture, products.offset @ mixture
    turned: Sum = replace(products, weights=weights, offset=offset)
    if isinstance(turned, SumOfParts) and turned.linear is not None:
        turned = replace(turned, linear=float(mixture[0, 0]) * turned.linear)
    known = products.uncertainty
    if known is None:
        return turned
    # Outputs share the features, and have errors of their own.
    squares = known.posterior.residual_squares @ mixture**2
    posterior = replace(known.posterior, residual_squares=squares)
    return replace(turned, uncertainty=replace(known, posterior=posterior))


def innermost(model: Any) -> Any:
    """The ridge (or machine) that predicts, inside a search, a classifier or a linear part."""
    for name in ("model_", "ridge_"):
        if hasattr(model, name):
            return innermost(getattr(model, name))
    return model


def _plus_linear(products: SumOfProducts, coefficients: Array, intercept: float) -> SumOfProducts:
    """The sum of products plus a linear function: a product of one factor for each column."""
    old = {int(column): place for place, column in enumerate(products.columns)}
    columns = np.union1d(products.columns, np.flatnonzero(coefficients)).astype(np.int64)
    s, d = len(products.weights), len(columns)
    functions: list[ColumnFunction] = []
    members = np.empty((d, s + d), dtype=np.int64)
    for place, column in enumerate(columns):
        known = old.get(int(column))
        function = None if known is None else products.functions[known]
        functions.append(partial(_with_line, function))
        # The last two functions of a column are the constant 1 and the line.
        members[place, :s] = -2 if known is None else products.members[known]
        members[place, s:] = -2
        members[place, s + place] = -1
        total = (0 if function is None else len(function(np.zeros(1)))) + 2
        members[place] = np.where(members[place] < 0, members[place] + total, members[place])
    weights = np.concatenate([products.weights, coefficients[columns][:, None]])
    return SumOfProducts(
        columns,
        tuple(functions),
        members,
        weights,
        products.offset + intercept,
        products.uncertainty,
        products.rows,
    )


def _with_line(function: ColumnFunction | None, values: Array) -> Array:
    line = np.stack([np.ones(len(values)), values])
    return line if function is None else np.concatenate([function(values), line])


def _columns(values: Any) -> Array:
    return np.asarray(values, dtype=np.float64).reshape(len(values), -1)


def _on_features(
    features: FeatureMap, coefficients: Array, offset: Array, posterior: Posterior | None
) -> Sum:
    plain, mixing = _mixed_products(features, coefficients, offset)
    if posterior is None:
        return plain
    return replace(plain, uncertainty=Uncertainty(plain, mixing, posterior))


def _mixed_products(features: FeatureMap, coefficients: Array, offset: Array) -> tuple[Sum, Array]:
    """The sum, and what its products are multiplied by to become the features."""
    products, landmarks = features.as_products(), features.as_landmarks()
    if landmarks is not None:
        rows, mixing = landmarks[0], landmarks[1].astype(np.float64)
        return _on_kernel(features.kernel_, rows, mixing @ coefficients, offset), mixing
    if products is None:
        raise NotProductsError(
            f"{type(features).__name__} of {features.kernel_!r} are not products of columns"
        )
    columns, functions, members, scales = _product_features(products)
    weights = scales[:, None] * coefficients
    return SumOfProducts(columns, functions, members, weights, offset), scales


def _on_kernel(kernel: Any, rows: Any, dual: Array, offset: Array) -> Sum:
    if kernel.is_sum_of_parts:
        return SumOfParts(kernel, np.asarray(rows, dtype=np.float64), dual, offset)
    product = kernel.product_factors()
    if product is None:
        raise NotProductsError(f"{kernel!r} is not a product over columns")
    columns, functions, members = _kernel_factors(product, rows)
    return SumOfProducts(columns, functions, members, dual, offset, rows=rows)


# --- product kernels -----------------------------------------------------------------------------


def _kernel_factors(
    kernel: Product, rows: Any
) -> tuple[NDArray[np.int64], tuple[ColumnFunction, ...], NDArray[np.int64]]:
    """k_i(., z_ji) for all columns and centres: the distinct ones, and which belongs to each."""
    columns = _few(kernel.active(rows.shape[1]))
    some = rows[:, columns]
    some = (some.toarray() if sp.issparse(some) else some).astype(np.float64)
    functions: list[ColumnFunction] = []
    members = np.empty((len(columns), len(some)), dtype=np.int64)
    for place, column in enumerate(columns):
        centres, members[place] = np.unique(some[:, place], return_inverse=True)
        alone = kernel.of_column(int(column), rows.shape[1])
        functions.append(partial(_kernel_values, alone, centres[:, None]))
    return columns, tuple(functions), members


def _kernel_values(kernel: Product, centres: Array, values: Array) -> Array:
    return kernel(centres, values[:, None], n_jobs=1)


def _coordinate(kernel: Product, column: int, n_columns: int) -> Callable[[Array], Array]:
    """u(x) = rate * warp(x) of one column; categories are left as they are."""
    if kernel.families_for(n_columns)[column] == "categorical":
        return lambda values: values
    rate = float(kernel.rates_for(n_columns)[column])
    if kernel.warps is None:
        return lambda values: rate * values
    warp = kernel.warps[column]
    return lambda values: rate * warp(values)


def _few(columns: NDArray[np.int64]) -> NDArray[np.int64]:
    if len(columns) > MOST_COLUMNS:
        raise NotProductsError(
            f"{len(columns):,} columns take part, too many to take the model apart "
            f"(at most {MOST_COLUMNS:,})"
        )
    return columns


# --- product features ----------------------------------------------------------------------------


def _product_features(
    features: ProductFeatures,
) -> tuple[NDArray[np.int64], tuple[ColumnFunction, ...], NDArray[np.int64], Array]:
    """Columns, functions and members of product features, and what each product is scaled by."""
    frame, basis, multisets = features.frame, features.basis, features.multisets
    if frame.rotation is not None:
        raise NotProductsError(
            "the features are products of principal components, not of columns "
            "(rotate=False keeps columns)"
        )
    if isinstance(basis, LocalTables | CentredTables):
        live = basis.lines_for(multisets.coordinates)
        orders = [basis.orders[i] for i in live]
        table: Callable[[int, NDArray[np.int64], Array], Array] = lambda i, _, u: basis.values(i, u)  # noqa: E731
    elif not isinstance(basis, MonomialBasis):
        raise NotProductsError("the features are those of sparse rows")
    else:
        damped = basis.series.damped
        used = np.arange(frame.n_coordinates) if damped else np.unique(multisets.coordinates)
        live = used.astype(np.int64)
        orders = [
            np.union1d([0], multisets.orders[multisets.coordinates == i]).astype(np.int64)
            for i in live
        ]
        table = partial(_powers, damped)
    _few(live)
    functions = tuple(
        partial(_on_coordinate, frame, int(i), partial(table, int(i), k))
        for i, k in zip(live, orders, strict=True)
    )
    members = np.zeros((len(live), len(features)), dtype=np.int64)
    owners = multisets.owners
    for place, (i, k) in enumerate(zip(live, orders, strict=True)):
        here = multisets.coordinates == i
        members[place, owners[here]] = np.searchsorted(k, multisets.orders[here])
    scales = np.exp(basis.log_scales(multisets)) * features.weights
    return live, functions, members, scales


def _powers(damped: bool, i: int, orders: NDArray[np.int64], u: Array) -> Array:
    """u^k / sqrt(k!) for the orders in use, times exp(-u^2 / 2) for a damped series."""
    exponents = orders[:, None]
    values = u**exponents * np.exp(-0.5 * gammaln(exponents + 1.0))
    return values * np.exp(-0.5 * u * u) if damped else values


def _on_coordinate(
    frame: Any, column: int, table: Callable[[Array], Array], values: Array
) -> Array:
    """The functions of a column at values in the units of its rows."""
    if isinstance(frame, ProductFrame):
        return table(_coordinate(frame.kernel, column, frame.n_coordinates)(values))
    center = 0.0 if frame.center is None else frame.center[column]
    return table(frame.scale * (values - center))


# --- columns of the user -------------------------------------------------------------------------


@dataclass(frozen=True)
class Input:
    """A column as the user knows it: one column of the model's rows, or several.

    Attributes
    ----------
    name : str
    columns : tuple of int
        Of the rows that the model sees: one, or the 0/1 columns of a category.
    values : ndarray of shape (m, len(columns))
        Its distribution: rows of these columns ...
    weights : ndarray of shape (m,)
        ... and their shares, which sum to 1.
    shown : ndarray of shape (m,)
        The same values as the user knows them: rising numbers, or texts.
    """

    name: str
    columns: tuple[int, ...]
    values: Array
    weights: Array
    shown: NDArray[Any]

    @property
    def is_text(self) -> bool:
        """Whether its values are texts, not numbers or times."""
        return self.shown.dtype.kind not in "fiuM"


def factors_of(
    model: SumOfProducts, inputs: Sequence[Input]
) -> tuple[list[int], list[Callable[[Array], Array]], NDArray[np.int64]]:
    """The factors of the products by input: which inputs take part, functions and members.

    The function of an input is one of rows of its columns, (B, len(columns)) to (K, B).
    """
    places = {int(column): place for place, column in enumerate(model.columns)}
    active: list[int] = []
    functions: list[Callable[[Array], Array]] = []
    members = []
    for number, one in enumerate(inputs):
        here = [(k, places[c]) for k, c in enumerate(one.columns) if c in places]
        if not here:
            continue
        combined = model.members[[place for _, place in here]]
        distinct, member = np.unique(combined, axis=1, return_inverse=True)
        parts = [(k, model.functions[p], distinct[n]) for n, (k, p) in enumerate(here)]
        active.append(number)
        functions.append(partial(_product_of, parts))
        members.append(member.reshape(-1))
    shape = (len(active), len(model.weights))
    return active, functions, np.array(members, dtype=np.int64).reshape(shape)


def _product_of(parts: list[tuple[int, ColumnFunction, NDArray[np.int64]]], rows: Array) -> Array:
    """The product over an input's columns of their functions at some rows."""
    product: Array | None = None
    for k, function, chosen in parts:
        values = function(np.ascontiguousarray(rows[:, k]))[chosen]
        product = values if product is None else product * values
    assert product is not None
    return product
