"""Exact kernels between the rows that come in and rows that the model holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.export.graph import ExportError, Graph, entry_of
from kernelsieve.kernels import (
    DotProduct,
    Exponential,
    Gaussian,
    InversePolynomial,
    Kernel,
    Laplacian,
    Matern,
    Pairwise,
    Polynomial,
    Product,
    Warp,
)
from kernelsieve.kernels.families import family_codes
from kernelsieve.kernels.tiles import POLYNOMIAL_COLUMNS, product_gram

LARGEST_STEP = 750.0  # exp(-750) is 0: larger distances only make polynomials overflow
ROOTS = {"laplacian": 1.0, "matern32": float(np.sqrt(3.0)), "matern52": float(np.sqrt(5.0))}
MATERN = {0.5: "laplacian", 1.5: "matern32", 2.5: "matern52"}


Array = NDArray[np.float64]


def kernel_matrix(graph: Graph, kernel: Kernel, rows: str, points: Any) -> str:
    """k(x, y) for the rows (n, d) that come in and the points (m, d): (n, m)."""
    if not isinstance(points, np.ndarray):
        raise ExportError(
            "the model holds sparse rows, which ONNX would hold as dense ones: fit it to dense rows"
        )
    formula = entry_of(KERNELS, kernel)
    if formula is None:
        raise _no_formula(kernel)
    return formula(graph, kernel, rows, points.astype(np.float64))


def _no_formula(kernel: Kernel) -> ExportError:
    return ExportError(
        f"{kernel!r} has no formula in ONNX's operators: use a kernel of kernelsieve.kernels other "
        "than Anova and Pairwise (cosine can be exported)"
    )


# --- of distances --------------------------------------------------------------------------------


def _gaussian(graph: Graph, kernel: Gaussian, rows: str, points: Array) -> str:
    squares = _squared_distances(graph, rows, points, kernel.gamma)
    return graph.op("Exp", graph.op("Neg", squares))


def _laplacian(graph: Graph, kernel: Laplacian, rows: str, points: Array) -> str:
    scaled = graph.op("Mul", rows, kernel.gamma)
    differences = _differences(graph, scaled, points * kernel.gamma)
    steps = [graph.op("Abs", part) for part in differences]
    return graph.op("Exp", graph.op("Neg", _sum(graph, steps)))


def _matern(graph: Graph, kernel: Matern, rows: str, points: NDArray[np.float64]) -> str:
    if kernel.nu not in MATERN:
        raise ExportError(
            f"{kernel!r} needs Bessel functions, which ONNX does not have: use nu=0.5, 1.5 or 2.5"
        )
    scale = 1.0 / kernel.length_scale
    scaled = graph.op("Mul", rows, scale)
    squares = [graph.op("Mul", part, part) for part in _differences(graph, scaled, points * scale)]
    distance = graph.op("Sqrt", _sum(graph, squares))
    step = graph.op("Mul", distance, ROOTS[MATERN[kernel.nu]])
    decay = graph.op("Exp", graph.op("Neg", step))
    polynomial = _polynomial(graph, MATERN[kernel.nu], step)
    return decay if polynomial is None else graph.op("Mul", decay, polynomial)


def _squared_distances(graph: Graph, rows: str, points: NDArray[np.float64], factor: float) -> str:
    """factor |x - y|^2, at least 0, by one matrix product around the middle of the points."""
    middle = points.mean(axis=0) if len(points) else np.zeros(points.shape[1])
    root = np.sqrt(factor)
    centred = graph.op("Mul", graph.op("Sub", rows, middle), root)
    moved = (points - middle) * root
    norms = graph.row_sum(graph.op("Mul", centred, centred))
    norms = graph.op("Add", norms, np.square(moved).sum(axis=1)[None])
    product = graph.op("MatMul", centred, 2.0 * moved.T)
    return graph.op("Max", graph.op("Sub", norms, product), 0.0)


def _differences(graph: Graph, rows: str, points: NDArray[np.float64]) -> list[str]:
    """x_i - y_i for each column: (n, m) each. All at once they would take d times the memory."""
    return [
        graph.op("Sub", graph.columns(rows, [i]), points[:, i][None])
        for i in range(points.shape[1])
    ]


def _sum(graph: Graph, parts: list[str]) -> str:
    total = parts[0]
    for part in parts[1:]:
        total = graph.op("Add", total, part)
    return total


def _polynomial(graph: Graph, family: str, step: str) -> str | None:
    """What exp(-step) is multiplied by: 1 + t, or 1 + t + t^2 / 3."""
    if family == "laplacian":
        return None
    first = graph.op("Add", step, 1.0)
    if family == "matern32":
        return first
    return graph.op("Add", first, graph.op("Mul", graph.op("Mul", step, step), 1.0 / 3.0))


# --- of inner products ---------------------------------------------------------------------------


def _power(graph: Graph, kernel: Polynomial, rows: str, points: Array) -> str:
    product = graph.op("MatMul", rows, points.T)
    inner = graph.op("Add", graph.op("Mul", product, kernel.gamma), kernel.coef0)
    return graph.op("Pow", inner, float(kernel.degree))


def _exponential(graph: Graph, kernel: Exponential, rows: str, points: Array) -> str:
    product = graph.op("MatMul", rows, points.T)
    return graph.op("Exp", graph.op("Mul", product, kernel.gamma))


def _inverse_polynomial(graph: Graph, kernel: InversePolynomial, rows: str, points: Array) -> str:
    product = graph.op("MatMul", rows, points.T)
    return graph.op("Reciprocal", graph.op("Sub", kernel.shift, product))


def _dot_product(graph: Graph, kernel: DotProduct, rows: str, points: Array) -> str:
    product = graph.op("MatMul", rows, points.T)
    total = graph.op("Add", graph.op("Mul", product, 0.0), kernel.coefficients[-1])
    for coefficient in kernel.coefficients[-2::-1]:
        total = graph.op("Add", graph.op("Mul", total, product), coefficient)
    return total


def _cosine(graph: Graph, kernel: Pairwise, rows: str, points: Array) -> str:
    if kernel.metric != "cosine":
        raise _no_formula(kernel)
    lengths = np.sqrt(np.square(points).sum(axis=1, keepdims=True))
    unit = points / np.where(lengths > 0, lengths, 1.0)
    squares = graph.row_sum(graph.op("Mul", rows, rows))
    divisor = graph.op("Max", graph.op("Sqrt", squares), 1e-300)
    return graph.op("MatMul", graph.op("Div", rows, divisor), unit.T)


# --- products of one-dimensional kernels ---------------------------------------------------------


def fourier_points(
    graph: Graph, kernel: Any, rows: str, n_columns: int
) -> tuple[NDArray[np.int64], str]:
    """What random frequencies multiply: the columns that count, and their coordinates."""
    if entry_of(KERNELS, kernel) is not _product:
        return np.arange(n_columns), rows
    active = kernel.active(n_columns)
    return active, product_points(graph, kernel, rows, n_columns, active)


def product_points(graph: Graph, kernel: Product, rows: str, n_columns: int, columns: Any) -> str:
    """Scaled coordinates u_i = r_i w_i(x_i) of some columns of the rows: (n, k)."""
    rates, families = kernel.rates_for(n_columns), kernel.families_for(n_columns)
    points = graph.columns(rows, columns)
    numeric = np.array([families[i] != "categorical" for i in columns])
    if kernel.warps is not None and numeric.any():
        warps = [kernel.warps[i] if n else Warp() for i, n in zip(columns, numeric, strict=True)]
        points = _warped(graph, warps, points)
    return graph.op("Mul", points, np.where(numeric, rates[columns], 1.0)[None])


def _warped(graph: Graph, warps: list[Warp], columns: str) -> str:
    """Each column (n, k) through its warp."""
    kinds = np.array([warp.kind for warp in warps])
    parts, order = [], []
    smooth = np.flatnonzero(kinds != "knots")
    if len(smooth):
        some = graph.columns(columns, smooth)
        shift = np.array([warps[i].center for i in smooth])
        scale = np.array([warps[i].scale for i in smooth])
        z = graph.op("Div", graph.op("Sub", some, shift[None]), scale[None])
        logs = kinds[smooth] == "log"
        if logs.any():
            size = graph.op("Log", graph.op("Add", graph.op("Abs", z), 1.0))
            z = graph.op("Where", logs[None], graph.op("Mul", graph.op("Sign", z), size), z)
        parts.append(z)
        order.append(smooth)
    bent = np.flatnonzero(kinds == "knots")
    if len(bent):
        parts.append(_interpolated(graph, [warps[i] for i in bent], graph.columns(columns, bent)))
        order.append(bent)
    return graph.columns(graph.join(parts), np.argsort(np.concatenate(order)))


def _interpolated(graph: Graph, warps: list[Warp], columns: str) -> str:
    """Piecewise linear functions: the sum over the steps between knots of how far x is in each.

    No term is negative, so nothing cancels, however steep a step is.
    """
    width = max(len(warp.knots) for warp in warps)
    starts, inverse, rises = (np.zeros((len(warps), 1, width)) for _ in range(3))
    first, last, base, slopes = (np.zeros(len(warps)) for _ in range(4))
    for i, warp in enumerate(warps):
        knots, values = np.array(warp.knots), np.array(warp.values)
        count = len(knots) - 1
        starts[i, 0, :count], rises[i, 0, :count] = knots[:-1], np.diff(values)
        inverse[i, 0, :count] = 1.0 / np.diff(knots)
        first[i], last[i], base[i], slopes[i] = knots[0], knots[-1], values[0], warp.slope
    lines = graph.op("Unsqueeze", graph.op("Transpose", columns, perm=[1, 0]), np.array([2]))
    shares = graph.op("Mul", graph.op("Sub", lines, starts), inverse)  # (k, n, width)
    shares = graph.op("Clip", shares, 0.0, 1.0)
    sums = graph.op("MatMul", shares, rises.transpose(0, 2, 1))  # (k, n, 1)
    warped = graph.op("Transpose", graph.op("Squeeze", sums, np.array([2])), perm=[1, 0])
    warped = graph.op("Add", warped, base[None])
    if slopes.any():
        inside = graph.op("Min", graph.op("Max", columns, first[None]), last[None])
        beyond = graph.op("Mul", graph.op("Sub", columns, inside), slopes[None])
        warped = graph.op("Add", warped, beyond)
    return warped


def _product(graph: Graph, kernel: Product, rows: str, points: NDArray[np.float64]) -> str:
    d = points.shape[1]
    active = kernel.active(d)
    if not len(active):
        return graph.ones(rows, len(points))
    left, right = product_points(graph, kernel, rows, d, active), kernel.columns(points, active)
    families = np.array(kernel.families_for(d))[active]
    rates = kernel.rates_for(d)[active]
    if kernel.references is not None:
        return _with_missing(graph, kernel, d, left, right, active)
    factors = []
    smooth = np.flatnonzero(families == "gaussian")
    if len(smooth):
        squares = _squared_distances(graph, graph.columns(left, smooth), right[:, smooth], 1.0)
        factors.append(graph.op("Exp", graph.op("Neg", squares)))
    others = np.flatnonzero(families != "gaussian")
    for start in range(0, len(others), POLYNOMIAL_COLUMNS):
        exponents, polynomials = [], []
        for i in others[start : start + POLYNOMIAL_COLUMNS]:
            step, polynomial = _column_step(
                graph, families[i], rates[i], graph.columns(left, [i]), right[:, i][None]
            )
            exponents.append(step)
            polynomials += [] if polynomial is None else [polynomial]
        factors += [graph.op("Exp", graph.op("Neg", _sum(graph, exponents))), *polynomials]
    return _multiplied(graph, factors)


def _multiplied(graph: Graph, factors: list[str]) -> str:
    total = factors[0]
    for factor in factors[1:]:
        total = graph.op("Mul", total, factor)
    return total


def _column_step(
    graph: Graph, family: str, rate: float, left: str, right: Any
) -> tuple[str, str | None]:
    """-log of the exponential in the kernel of a column, (n, m), and the polynomial beside it."""
    if family == "categorical":
        same = graph.flags(graph.op("Equal", left, right))
        return graph.op("Mul", graph.op("Sub", 1.0, same), rate), None
    difference = graph.op("Sub", left, right)
    if family == "gaussian":
        return graph.op("Mul", difference, difference), None
    distance = graph.op("Mul", graph.op("Abs", difference), ROOTS[family])
    # A polynomial of a chunk of columns must not overflow where its exponential is 0.
    distance = graph.op("Min", distance, LARGEST_STEP)
    return distance, _polynomial(graph, family, distance)


def _with_missing(
    graph: Graph,
    kernel: Product,
    d: int,
    left: str,
    right: NDArray[np.float64],
    active: NDArray[np.int64],
) -> str:
    """The product kernel where values may be missing on either side, column by column."""
    factors = []
    for place, column in enumerate(active):
        family, rate = kernel.families_for(d)[column], kernel.rates_for(d)[column]
        points, weights = kernel.reference(int(column), d)
        if not len(points):
            continue  # a column without any values: nothing can be compared
        u, v = graph.columns(left, [place]), right[:, place]
        missing, absent = graph.op("IsNaN", u), np.isnan(v)
        known = graph.op("Where", missing, 0.0, u)

        def values(others: NDArray[np.float64], f: str = family, r: float = rate,
                   known: str = known) -> str:  # fmt: skip
            step, polynomial = _column_step(graph, f, r, known, others[None])
            decay = graph.op("Exp", graph.op("Neg", step))
            return decay if polynomial is None else graph.op("Mul", decay, polynomial)

        factor = values(np.where(absent, 0.0, v))
        if absent.any():
            mean = graph.op("MatMul", values(points), weights[:, None])
            factor = graph.op("Where", absent[None], mean, factor)
        code, rates = family_codes([family]), np.array([rate])
        seen = product_gram(
            np.where(absent, 0.0, v)[:, None], points[:, None], code, rates, np.float64, 1
        )
        beside = np.where(absent, 1.0, seen @ weights)[None]
        factors.append(graph.op("Where", missing, beside, factor))
    return _multiplied(graph, factors) if factors else graph.ones(left, len(right))


KERNELS: dict[type, Callable[[Graph, Any, str, Array], str]] = {
    Product: _product,
    Gaussian: _gaussian,
    Laplacian: _laplacian,
    Matern: _matern,
    Polynomial: _power,
    Exponential: _exponential,
    InversePolynomial: _inverse_polynomial,
    DotProduct: _dot_product,
    Pairwise: _cosine,
}
