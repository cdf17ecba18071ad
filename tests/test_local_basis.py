"""Local bases: exact on training values, a known loss elsewhere, whatever the column holds."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import oracles
import pytest

from kernelsieve import AdaptiveFeatures
from kernelsieve._native.draws import descend, wander
from kernelsieve._native.products import tent
from kernelsieve.kernels import Product
from kernelsieve.products.adapted_basis import (
    FINEST_LEVEL,
    MOST_CELLS,
    MOST_POINTS,
    Cells,
    ColumnCells,
    column_basis,
)
from kernelsieve.products.column_basis import FAMILIES, ColumnBasis
from kernelsieve.products.local_basis import LocalBasis
from kernelsieve.products.multisets import Multisets
from kernelsieve.products.tents import (
    MOST_LEVELS,
    bridge_variance,
    log_wandering_probabilities,
    tent_bounds,
)

Array = Any
FAMILY_NAMES = ("gaussian", "laplacian", "matern32", "matern52", "categorical")
SMOOTH = ("gaussian", "matern32", "matern52")
# What a grid loses of k(u, u) at training values.
GRID_LOSS = {"gaussian": 1e-8, "matern32": 4e-5, "matern52": 3e-6}
RATE = 1.3  # of categories


def line(name: str) -> Array:
    rng = np.random.default_rng(0)
    normal = rng.normal(size=600)
    return {
        "normal": normal,
        "narrow": 1e-4 * normal,
        "wide": 12.0 * normal,
        "heavy tails": rng.standard_t(1.5, size=600),
        "offset": 1e6 + normal,
        "integers": rng.integers(0, 40, size=600).astype(float),
        "two values": rng.choice([-1.0, 2.0], size=600),
        "one value": np.full(600, 0.7),
        "outliers": np.concatenate([normal, [1e6, -3e9, 1e17]]),
    }[name]


LINES = (
    "normal",
    "narrow",
    "wide",
    "heavy tails",
    "offset",
    "integers",
    "two values",
    "one value",
    "outliers",
)


def basis_of(values: Array, family: str = "gaussian", **options: Any) -> ColumnBasis:
    return column_basis(family, Cells.of_values(values), rate=RATE, **options)


def kernel(family: str, u: Array, v: Array) -> Array:
    """The oracle's one-dimensional kernel of all pairs."""
    return np.array([[oracles.column_kernel(family, a, b, RATE) for b in v] for a in u])


def some(values: Array, count: int = 60) -> Array:
    """Some training values, the last ones among them."""
    return np.concatenate([values[:count], values[-3:]])


def new_values(values: Array) -> Array:
    """Values between, beside and far from those of training."""
    return np.concatenate([some(values, 20) + 0.31, [values.min() - 1.0, values.max() + 2.5, 77.7]])


# --- cells ---------------------------------------------------------------------------------------


def same(first: Cells, second: Cells) -> bool:
    return (
        first.level == second.level
        and first.n_missing == second.n_missing
        and all(
            np.array_equal(getattr(first, name), getattr(second, name))
            for name in ("numbers", "low", "high", "counts")
        )
    )


@pytest.mark.parametrize("name", [*LINES, "many", "missing", "huge"])
def test_cells_are_the_same_for_any_blocks(name: str) -> None:
    rng = np.random.default_rng(1)
    if name == "many":
        values = rng.normal(size=30_000) * 10.0 ** rng.integers(-3, 9, size=30_000)
    elif name == "missing":
        values = np.where(rng.random(500) < 0.2, np.nan, rng.normal(size=500))
    elif name == "huge":
        values = np.array([1e308, -1e308, 0.0, -0.0, 5e-324] * 10)
    else:
        values = line(name)
    whole = Cells.of_values(values)
    assert len(whole) <= MOST_CELLS
    assert whole.counts.sum() + whole.n_missing == len(values)
    assert (np.diff(whole.numbers) > 0).all()
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(values))
        blocks = np.array_split(values[order], 7)
        sum_ = Cells.of_values(blocks[0])
        for block in blocks[1:]:
            sum_ += Cells.of_values(block)
        assert same(sum_, whole)


def test_few_distinct_values_are_known_exactly() -> None:
    values = np.random.default_rng(0).choice([0.1, 0.1 + 1e-6, 7.0, -1e9], size=100)
    cells = Cells.of_values(values)
    assert cells.distinct
    assert cells.level == FINEST_LEVEL
    np.testing.assert_array_equal(cells.middles, np.unique(values))


# --- one column ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_exact_with_training_values_and_bounded_everywhere(name: str, family: str) -> None:
    """|e(u).e(v) - k(u, v)| <= sqrt(loss(u) loss(v)), and training values lose next to nothing."""
    values = line(name)
    basis = basis_of(values, family)
    train, new = some(values), new_values(values)
    e, f = basis.values(train), basis.values(new)
    loss = basis.loss(train)
    for first, second, u, v in ((e, e, train, train), (f, e, new, train), (f, f, new, new)):
        bound = np.sqrt(np.outer(basis.loss(u), basis.loss(v)))
        # A grid's smallest eigenvalues are rounded off at 1e-13.
        error = np.abs(first.T @ second - kernel(family, u, v))
        assert (error <= bound + 1e-6).all()
    if basis.tents or family == "categorical":
        return  # tents hold what knots do not; more than 600 categories are few enough
    assert loss.max() <= GRID_LOSS.get(family, 1e-9)
    np.testing.assert_allclose(e.T @ e, kernel(family, train, train), atol=5e-5)


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_few_values_are_exact_to_rounding(family: str) -> None:
    values = line("integers")
    basis = basis_of(values, family)
    assert not basis.tents
    assert not basis.capped
    train = np.unique(values)
    e = basis.values(train)
    np.testing.assert_allclose(e.T @ e, kernel(family, train, train), atol=1e-10)
    f = basis.values(new_values(values))
    np.testing.assert_allclose(f.T @ e, kernel(family, new_values(values), train), atol=1e-10)


@pytest.mark.parametrize("family", SMOOTH)
def test_outliers_cost_a_handful_of_points(family: str) -> None:
    plain, outliers = basis_of(line("normal"), family), basis_of(line("outliers"), family)
    assert len(outliers.points) <= len(plain.points) + 3 * 26
    assert outliers.loss(np.array([1e6, -3e9, 1e17])).max() <= 1e-6


def test_a_narrow_column_has_few_functions() -> None:
    """Columns with tiny rates cost next to nothing."""
    for family in SMOOTH:
        assert basis_of(line("narrow"), family, tol=1e-9).n_functions <= 3
    assert basis_of(line("narrow"), "laplacian").n_functions <= 32


@pytest.mark.parametrize("family", ["gaussian", "matern32", "matern52", "categorical"])
def test_too_many_values_are_capped_and_said(family: str) -> None:
    values = 1e4 * np.random.default_rng(0).normal(size=6000)
    basis = basis_of(values, family)
    assert basis.capped
    assert len(basis.points) <= MOST_POINTS
    assert np.isfinite(basis.values(values)).all()
    assert basis.loss(values).max() <= 1.0


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_functions_are_ordered_by_their_mass(name: str, family: str) -> None:
    values = line(name)
    basis = basis_of(values, family)
    assert basis.values(values)[0].mean() > 0
    assert (np.diff(basis.masses) <= 1e-6).all()
    if len(values) == 600 and (family, name) != ("categorical", "narrow"):  # codes are apart
        squares = np.square(basis.values(values)).mean(axis=1)
        np.testing.assert_allclose(basis.masses, squares, atol=1e-3)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_mean_alignment(family: str, missing: bool) -> None:
    """All functions but the first have mean 0, and the kernel is the same."""
    values = line("integers")
    if missing:
        values[::7] = np.nan
    aligned, plain = basis_of(values, family, align="mean"), basis_of(values, family)
    means = aligned.values(values).mean(axis=1)
    assert means[0] > 0
    np.testing.assert_allclose(means[1:], 0.0, atol=1e-10)
    e, f = aligned.values(values[:50]), plain.values(values[:50])
    np.testing.assert_allclose(e.T @ e, f.T @ f, atol=1e-9)


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_zero_alignment(family: str) -> None:
    """e_0(u) = k(u, 0), and every other function is 0 at 0: zeros of sparse rows stay zeros."""
    values = line("normal") + 3.0
    if family == "categorical":
        values = np.round(values)
    basis = basis_of(values, family, align="zero")
    u = some(values)
    np.testing.assert_allclose(basis.values(u)[0], kernel(family, u, np.zeros(1))[:, 0], atol=1e-7)
    np.testing.assert_allclose(basis.values(np.zeros(1))[1:], 0.0, atol=1e-7)


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_missing_values(family: str) -> None:
    """A missing value is the mean of the others plus a function of its own; k(x, x) = 1."""
    values = line("integers")
    values[::5] = np.nan
    basis = basis_of(values, family)
    known = values[~np.isnan(values)]
    u = np.unique(known)
    e, missing = basis.values(u), basis.values(np.array([np.nan]))[:, 0]
    assert missing @ missing == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_allclose(missing @ e, kernel(family, known, u).mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(e.T @ e, kernel(family, u, u), atol=1e-9)
    # A column without missing values in training has no function for them.
    plain = basis_of(line("integers"), family)
    alone = plain.values(np.array([np.nan]))[:, 0]
    assert alone @ alone < 1.0


def test_categories() -> None:
    values = np.repeat([3.0, 1.0, 8.0], [50, 30, 20])
    basis, rho = basis_of(values, "categorical"), math.exp(-RATE)
    e = basis.values(np.array([1.0, 3.0, 8.0, 5.0, -2.0]))
    expected = rho + (1 - rho) * np.eye(5)
    # Levels not seen in training have the constant alone, as far as training rows have it.
    expected[3:, 3:] = 3 * rho**2 / (1 + 2 * rho)
    np.testing.assert_allclose(e.T @ e, expected, atol=1e-12)
    lost = 1.0 - expected[3, 3]
    np.testing.assert_allclose(basis.loss(np.array([3.0, 5.0])), [0.0, lost], atol=1e-12)


# --- tents ---------------------------------------------------------------------------------------


def test_tents_sum_to_what_knots_leave() -> None:
    """sum of tents(u) tents(v) = the Laplacian given the knots, and nothing for values apart."""
    knots = np.array([-1.0, 0.5, 0.8, 3.0])
    u = np.array([-0.9, -0.3, 0.2, 0.55, 0.6, 1.0, 2.2, 2.9])
    numbers = np.arange(3 * (2**10 - 1))
    left, right = tent_bounds(numbers, knots)
    tents = np.array([[tent(v, a, b) for a, b in zip(left, right, strict=True)] for v in u])
    K = kernel("laplacian", u, u)
    k = kernel("laplacian", u, knots)
    rest = K - k @ np.linalg.solve(kernel("laplacian", knots, knots), k.T)
    np.testing.assert_allclose(tents @ tents.T, rest, atol=2e-3)
    intervals = np.searchsorted(knots, u) - 1
    variance = bridge_variance(u, knots[intervals], knots[intervals + 1])
    np.testing.assert_allclose(np.diag(rest), variance, atol=1e-12)
    assert tent(400.0, 0.0, 2000.0) < 1e-200  # no overflow on long intervals


def test_descent_draws_tents_by_their_squares() -> None:
    knots, u, draws = np.array([0.0, 0.7, 1.5]), 0.9, 20_000
    rng = np.random.default_rng(0)
    counts: dict[int, int] = {}
    for _ in range(draws):
        number = descend(u, knots, MOST_LEVELS, rng)
        counts[number] = counts.get(number, 0) + 1
    numbers = np.array(sorted(counts))
    left, right = tent_bounds(numbers, knots)
    squares = np.array([tent(u, a, b) ** 2 for a, b in zip(left, right, strict=True)])
    expected = squares / bridge_variance(np.array([u]), 0.7, 1.5)
    seen = np.array([counts[number] for number in numbers]) / draws
    assert (np.abs(seen - expected) <= 5 * np.sqrt(expected / draws) + 1e-4).all()
    assert expected.sum() == pytest.approx(1.0, abs=1e-3)
    assert descend(-0.1, knots, MOST_LEVELS, rng) == -1
    assert descend(1.6, knots, MOST_LEVELS, rng) == -1


def test_wandering_draws_tents_by_their_known_chances() -> None:
    masses, draws = np.array([0.3, 0.1, 0.6]), 20_000
    rng = np.random.default_rng(0)
    cumulative = np.cumsum(masses)
    drawn = np.array([wander(cumulative, 4, rng) for _ in range(draws)])
    numbers = np.arange(3 * (2**3 - 1))
    chances = np.exp(log_wandering_probabilities(numbers, masses))
    seen = np.bincount(drawn, minlength=numbers[-1] + 1)[: len(numbers)] / draws
    assert (np.abs(seen - chances) <= 5 * np.sqrt(chances / draws)).all()
    every = np.arange(3 * (2**MOST_LEVELS - 1))
    assert np.exp(log_wandering_probabilities(every, masses)).sum() == pytest.approx(1.0)


# --- tables --------------------------------------------------------------------------------------


def mixed_points(n: int = 400) -> tuple[Array, tuple[str, ...], Array]:
    """A column of each family, an outlier, missing values, and a column of rate 0."""
    rng = np.random.default_rng(3)
    points = rng.normal(size=(n, 7))
    points[:, 4] = rng.integers(0, 5, size=n)
    points[-1, 5] = 1e6
    points[::50, 0] = np.nan
    points[::70, 1] = np.nan
    families = (*FAMILY_NAMES, "gaussian", "laplacian")
    return points, families, np.array([1.0] * 6 + [0.0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tables_hold_the_functions(dtype: Any) -> None:
    """Where there are tables, beyond them, for missing values and for levels never seen."""
    points, families, rates = mixed_points()
    basis = LocalBasis.adapted(families, rates, ColumnCells.of_rows(points), 1e-9)
    rng = np.random.default_rng(4)
    new = np.vstack([points, points + 3.0 * rng.normal(size=points.shape)]).astype(dtype)
    new[:400, 4] = points[:, 4]
    for i, column in enumerate(basis.bases):
        orders = np.arange(1, min(column.n_functions, 40))
        multisets = Multisets(np.arange(1, len(orders) + 1), np.full(len(orders), i), orders)
        tables = basis.restricted(multisets)
        lines = np.ascontiguousarray(new[:, tables.lines_for(multisets.coordinates)].T)
        ratios, roots = tables.dense_atoms(lines, lambda: None, multisets.coordinates, orders)
        exact = np.array([basis.bases[j].values(new[:, j])[0] for j in range(7)])
        exact = np.where(np.abs(exact) < 1e-12, 1e-12, exact)
        np.testing.assert_allclose(roots, exact.prod(axis=0), rtol=1e-5, atol=1e-13)
        values = column.values(new[:, i])[orders]
        np.testing.assert_allclose(ratios * exact[i], values, atol=2e-8)


def test_used_tents_are_evaluated() -> None:
    values = line("normal")
    basis = LocalBasis.adapted(
        ("laplacian",), np.ones(1), ColumnCells.of_rows(values[:, None]), 1e-9
    )
    draws = np.array([0], np.uint64), np.array([1]), np.array([0]), basis.n_orders - 1
    words = np.ones(1, dtype=np.uint64)
    rng = np.random.default_rng(0)
    basis.name_tents(values[:, None], np.array([7]), draws, words, rng)
    multisets = Multisets(draws[1], draws[2], draws[3])
    assert draws[3][0] >= 4096
    assert int(draws[0][0]) == draws[3][0] - (basis.n_orders[0] - 1)
    tables = basis.restricted(multisets)
    ratios, roots = tables.dense_atoms(values[None], lambda: None, draws[2], draws[3])
    found = ratios[0] * roots
    assert found[7] > 0
    assert (found != 0).mean() < 0.05, "a tent is local"
    bounds = tent_bounds(draws[3] - 4096, basis.bases[0].points)
    np.testing.assert_allclose(found, [tent(u, bounds[0][0], bounds[1][0]) for u in values])


def test_families_are_those_of_the_product_kernel() -> None:
    t = np.linspace(0.0, 3.0, 7)
    for name, family in FAMILIES.items():
        np.testing.assert_allclose(family.kernel(t), kernel(name, t, np.zeros(1))[:, 0])


def test_chances_that_vanish_are_no_warning():
    """Products of a hundred narrow columns have chances whose inverse overflows."""
    X = 1e3 * np.random.default_rng(2).normal(size=(400, 100))
    kernel = Product(np.full(100, 10.0), "laplacian")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        features = AdaptiveFeatures(50, kernel=kernel, random_state=2).fit(X)
    assert np.isfinite(features.transform(X)).all()
