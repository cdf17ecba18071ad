"""The Mercer basis: complete, orthonormal, tabulated exactly, drawn by its row norms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import oracles
import pytest
from scipy import stats
from support.drawing import DRAWS, assert_drawn_from, multisets_of

from kernelsieve import RowNormFeatures
from kernelsieve._native.products import count_cells, damped_powers
from kernelsieve._random import keyed_rows
from kernelsieve.engine.options import DEFAULTS, EngineOptions
from kernelsieve.engine.plan import RowPlan
from kernelsieve.engine.proposals import TableProposal
from kernelsieve.engine.space import TableSpace
from kernelsieve.kernels import Gaussian
from kernelsieve.products.frame import Frame
from kernelsieve.products.mercer_basis import (
    MOMENT_CELLS,
    CoordinateBasis,
    MercerBasis,
    adapted_basis,
)
from kernelsieve.products.multisets import Multisets
from kernelsieve.products.product_features import ProductFeatures
from kernelsieve.sources.base import ArraySource

Array = Any

LINES: dict[str, Callable[[np.random.Generator], Array]] = {
    "normal": lambda rng: rng.normal(size=500),
    "narrow": lambda rng: 0.01 * rng.normal(size=500),
    "wide": lambda rng: 3.0 * rng.normal(size=500),
    "uniform": lambda rng: rng.uniform(-4, 1, size=500),
    "heavy tails": lambda rng: np.clip(rng.standard_t(2, size=500), -12, 12),
    "skew": lambda rng: rng.exponential(size=500),
    "two values": lambda rng: rng.choice([-1.0, 2.0], size=500),
    "one value": lambda rng: np.full(500, 0.7),
    "zero": lambda rng: np.zeros(500),
    "one outlier": lambda rng: np.append(0.2 * rng.normal(size=499), 15.0),
}


def cells(points: Array, low: Array, high: Array) -> Array:
    counts = np.zeros((points.shape[1], MOMENT_CELLS), dtype=np.int64)
    count_cells(np.ascontiguousarray(points), low, high, counts)
    return counts


def adapted_to(points: Array, low: Array, high: Array, tol: float) -> MercerBasis:
    """The bases of the columns of these points."""
    return MercerBasis.adapted(cells(points, low, high), low, high, tol)


def basis_for(line: Array) -> CoordinateBasis:
    """The basis of a coordinate with these values."""
    low, high = np.array([line.min()]), np.array([line.max()])
    return adapted_basis(cells(line[:, None], low, high)[0], float(low[0]), float(high[0]))


def line_and_basis(name: str) -> tuple[Array, CoordinateBasis]:
    line = LINES[name](np.random.default_rng(0))
    return line, basis_for(line)


def enough_orders(u: Array, basis: CoordinateBasis) -> int:
    """All that are mixed, and beyond them until the powers of u are below 1e-15 (Poisson)."""
    largest = float(np.abs(u).max())
    return max(len(basis.rotation), math.ceil(largest**2 + 9.0 * largest + 40.0))


# --- one coordinate ------------------------------------------------------------------------------


@pytest.mark.parametrize("u", [0.0, 0.3, -2.0, 12.0, -34.9, 35.1, -40.0])
def test_damped_powers(u: float) -> None:
    """exp(-u^2 / 2) u^j / sqrt(j!) from logarithms, on both sides of the underflow at 35."""
    damped_powers(u, out := np.empty(2200))
    j = np.arange(2200)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = j * np.log(abs(u)) - 0.5 * np.array([math.lgamma(k + 1) for k in j]) - 0.5 * u * u
    expected = np.exp(np.where(j == 0, -0.5 * u * u, logs)) * np.where(u < 0, (-1.0) ** j, 1.0)
    np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-15)
    assert (out**2).sum() == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize("name", LINES)
def test_squares_sum_to_one(name: str) -> None:
    """On the values that the basis was made for, on new ones, and at 12 standard deviations."""
    line, basis = line_and_basis(name)
    new = np.random.default_rng(1).uniform(line.min() - 1, line.max() + 1, size=50)
    far = line.mean() + line.std() * np.array([-12.0, 12.0])
    for u in (line[:100], new, far, np.array([-40.0, 38.0])):
        squares = basis.values(u, enough_orders(u, basis)) ** 2
        np.testing.assert_allclose(squares.sum(axis=0), 1.0, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", LINES)
def test_products_sum_to_the_kernel(name: str) -> None:
    """sum_k e_k(u) e_k(v) = exp(-(u - v)^2 / 2) for any real u and v."""
    line, basis = line_and_basis(name)
    u = np.concatenate([line[:20], [-14.0, -3.0, 0.0, 5.0, 13.0]])
    values = basis.values(u, enough_orders(u, basis))
    K = np.exp(-0.5 * (u[:, None] - u) ** 2)
    np.testing.assert_allclose(values.T @ values, K, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", LINES)
def test_the_rotation_is_orthogonal_and_diagonalises(name: str) -> None:
    line, basis = line_and_basis(name)
    U = basis.rotation
    np.testing.assert_allclose(U.T @ U, np.eye(len(U)), atol=1e-12)
    assert (np.diff(basis.masses) <= 1e-15).all(), "heaviest first"
    assert basis.masses.sum() == pytest.approx(1.0, abs=1e-10)
    # Means over the line itself, which the basis knows as a histogram of 256 cells, with a ten
    # thousandth of the weight all over the range: half a cell and as much are the difference.
    values = basis.values(line, 8)
    moments = values @ values.T / len(line)
    half_cell = (line.max() - line.min()) / 512
    np.testing.assert_allclose(moments, np.diag(basis.masses[:8]), atol=half_cell + 2e-4)


@pytest.mark.parametrize("name", ["normal", "wide", "uniform", "skew"])
def test_the_adapted_basis_is_more_concentrated_than_powers(name: str) -> None:
    """Of all orthonormal bases the first k eigenfunctions hold most of the trace."""
    line, basis = line_and_basis(name)
    powers = np.empty((len(line), 60))
    for u, row in zip(line, powers, strict=True):
        damped_powers(u, row)
    heaviest = np.sort((powers**2).mean(axis=0))[::-1]
    assert (np.cumsum(basis.masses[:10]) >= np.cumsum(heaviest[:10]) - 0.01).all()
    assert basis.masses[0] > heaviest[0]


@pytest.mark.parametrize("name", LINES)
def test_the_ground_state_is_positive_where_the_data_is(name: str) -> None:
    line, basis = line_and_basis(name)
    near = line[np.abs(line - np.median(line)) <= 3 * line.std() + 1e-9]
    assert (basis.values(near, 1)[0] > 0).all()


def test_signs_are_fixed() -> None:
    line, basis = line_and_basis("normal")
    shuffled = np.random.default_rng(5).permutation(line)
    again = basis_for(shuffled)
    # Eigenvectors of the first, well separated masses: the same, not their negatives.
    np.testing.assert_allclose(again.rotation[:, :5], basis.rotation[:, :5], atol=1e-8)


def test_too_far_for_the_basis() -> None:
    with pytest.raises(ValueError, match=r"reaches 100\b.*gamma"):
        basis_for(np.array([0.0, 100.0]))


# --- tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", LINES)
def test_the_table_equals_the_exact_values(name: str, dtype: type) -> None:
    """Inside the grid by interpolation, outside of it by the formula, without a seam."""
    line, basis = line_and_basis(name)
    low, high = line.min(), line.max()
    tables = adapted_to(line[:, None], np.array([low]), np.array([high]), 1e-9)
    u = np.concatenate(
        [
            line,
            np.linspace(low - 1.0, high + 1.0, 301),
            low + np.array([-0.26, -0.25, -0.24, -0.22, 0.0]),
            high + np.array([0.0, 0.24, 0.25, 0.26, 0.34, 0.36]),
            [-30.0, 30.0],
        ]
    ).astype(dtype)
    squares = tables.squares(0, u)
    exact = basis.values(u.astype(np.float64), int(tables.n_orders[0])) ** 2
    np.testing.assert_allclose(squares, exact, rtol=0, atol=1e-8)


def test_what_is_not_a_number_has_no_place_in_a_table() -> None:
    """Rows of 1e308 may be inf - inf in a rotated frame."""
    line = np.random.default_rng(0).normal(size=500)
    tables = adapted_to(line[:, None], line.min(keepdims=True), line.max(keepdims=True), 1e-9)
    squares = tables.squares(0, np.array([0.0, np.nan, np.inf, -np.inf]))
    assert (squares[:, 0] > 0.0).any()
    assert (squares[:, 1:] == 0.0).all()  # as all that is far away


@pytest.mark.parametrize("tol", [1e-2, 1e-6, 1e-12])
@pytest.mark.parametrize("name", LINES)
def test_orders_are_kept_until_the_share_is_left(name: str, tol: float) -> None:
    line, basis = line_and_basis(name)
    bounds = np.array([line.min()]), np.array([line.max()])
    k = int(adapted_to(line[:, None], *bounds, tol).n_orders[0])
    between = basis.values(np.linspace(line.min(), line.max(), 65), len(basis.masses)) ** 2

    def enough(orders: int) -> bool:
        left = 1 - basis.masses[:orders].sum()
        return left <= max(tol, 1e-13) and (1 - between[:orders].sum(axis=0)).max() <= 1e-6

    assert enough(k)
    assert k == 1 or not enough(k - 1)
    everywhere = np.linspace(line.min(), line.max(), 1001)  # also between the points looked at
    loss = 1 - (basis.values(everywhere, k) ** 2).sum(axis=0)
    assert loss.max() <= 2e-6


@pytest.mark.parametrize("name", ["narrow", "one value", "zero"])
def test_few_orders_for_a_narrow_coordinate(name: str) -> None:
    line, _ = line_and_basis(name)
    bounds = np.array([line.min()]), np.array([line.max()])
    assert adapted_to(line[:, None], *bounds, 1e-9).n_orders[0] <= 4


# --- products ------------------------------------------------------------------------------------


def all_products(n_orders: Array) -> Multisets:
    """Every product of the orders in use, as a multiset."""
    orders = itertools.product(*(range(k) for k in n_orders))
    return Multisets.from_tuples(
        [tuple(i for i, k in enumerate(m) for _ in range(k)) for m in orders]
    )


def evaluated(features: ProductFeatures, X: Array) -> Array:
    features.fill(X, out := np.empty((len(X), len(features)), dtype=X.dtype))
    return out


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("center", [False, True])
def test_all_products_reproduce_the_kernel(center: bool, rotate: bool) -> None:
    """In two dimensions, with every order: on the data, and on new points within its range."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)) @ np.array([[1.0, 0.7], [0.0, 0.5]]) + 0.5
    frame = Frame.of_gaussian(0.6, X, center).along_columns(X)
    frame = frame.rotated(X) if rotate else frame
    points = frame.points(X)
    basis = adapted_to(points, points.min(axis=0), points.max(axis=0), 0.0)
    full = MercerBasis(basis.bases, np.array([len(b.rotation) for b in basis.bases]))
    products = all_products(full.n_orders)
    features = ProductFeatures(frame, full, products, np.ones(len(products)), sparse=False)
    weights = rng.dirichlet(np.ones(40), size=30)
    for rows in (X, weights @ X):  # convex combinations stay within the range
        Z = evaluated(features, rows)
        K = oracles.gram(oracles.gaussian, rows, gamma=0.6)
        np.testing.assert_allclose(Z @ Z.T, K, atol=1e-8)


def test_products_are_products_of_the_values() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(37, 3))
    frame = Frame.of_gaussian(0.4, X, True).along_columns(X)
    points = frame.points(X)
    basis = adapted_to(points, points.min(axis=0), points.max(axis=0), 1e-6)
    tuples = [(), (0,), (0, 0, 1), (1, 1, 1, 2), (2, 2), (0, 1, 2)]
    features = ProductFeatures(
        frame, basis, Multisets.from_tuples(tuples), np.ones(6), sparse=False
    )
    lines = [basis.bases[i].values(points[:, i], 4) for i in range(3)]
    expected = [math.prod(lines[i][m.count(i)] for i in range(3)) for m in tuples]
    expected = np.array(expected)[features.trie.order].T
    np.testing.assert_allclose(evaluated(features, X), expected, atol=1e-9)
    np.testing.assert_allclose(features.squared_norms(X, 1), (expected**2).sum(axis=0), atol=1e-8)
    np.testing.assert_allclose(features.project(X, np.eye(37), 1), expected.T, atol=1e-9)


# --- draws ---------------------------------------------------------------------------------------


def small_basis(tol: float = 1e-9) -> tuple[Array, Frame, MercerBasis]:
    X = np.array([[0.2, -0.4, 1.0], [0.9, 0.1, 0.3], [-1.2, 0.5, 0.0], [0.0, 0.0, -0.8]])
    frame = Frame.of_gaussian(0.5, X, False).along_columns(X)
    points = frame.points(X)
    return X, frame, adapted_to(points, points.min(axis=0), points.max(axis=0), tol)


def exact_distribution(
    basis: MercerBasis, points: Array, lowest: int, share: float
) -> dict[tuple[int, ...], float]:
    """By enumeration: a row by its mass above the lowest order, then independent orders."""
    laws = []
    for x in points:
        law = [basis.bases[i].values(x[i : i + 1], basis.n_orders[i])[:, 0] ** 2 for i in range(3)]
        laws.append([p / p.sum() for p in law])
    floor = TableProposal.FLOOR
    marginal = [
        b.masses[:k] / b.masses[:k].sum() for b, k in zip(basis.bases, basis.n_orders, strict=True)
    ]
    marginal = [(1 - floor) * p + floor / len(p) for p in marginal]
    orders = [m for m in itertools.product(*map(range, basis.n_orders)) if sum(m) >= lowest]

    def product(law: list[Array]) -> Array:
        return np.array([math.prod(law[i][k] for i, k in enumerate(m)) for m in orders])

    of_rows, of_marginals = sum(product(law) for law in laws), product(marginal)
    P = (1 - share) * of_rows / of_rows.sum() + share * of_marginals / of_marginals.sum()
    names = [tuple(i for i, k in enumerate(m) for _ in range(k)) for m in orders]
    return dict(zip(names, P.tolist(), strict=True))


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("lowest", [0, 1, 3])
def test_draws_follow_the_row_norm(lowest: int, share: float) -> None:
    X, frame, basis = small_basis()
    P = exact_distribution(basis, frame.points(X), lowest, share)
    proposal = TableProposal(basis, frame, X, lowest, share)
    draws = proposal.draw(DRAWS, np.random.default_rng(0))
    assert_drawn_from(multisets_of(draws), P)
    pairs = set(zip(draws[0].tolist(), multisets_of(draws), strict=True))
    assert len(pairs) == len({h for h, _ in pairs}) == len({m for _, m in pairs})


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("lowest", [0, 1, 3])
def test_probabilities_are_those_of_the_draws(lowest: int, share: float) -> None:
    X, frame, basis = small_basis()
    P = exact_distribution(basis, frame.points(X), lowest, share)
    features = ProductFeatures(
        frame, basis, Multisets.from_tuples(list(P)), np.ones(len(P)), sparse=False
    )
    computed = TableProposal(basis, frame, X, lowest, share).probabilities(features, 1)
    expected = np.array(list(P.values()))[features.trie.order]
    np.testing.assert_allclose(computed, expected, rtol=1e-5, atol=1e-9)
    assert computed.sum() == pytest.approx(1.0, abs=1e-5)  # the basis knows cells, not points


def test_draws_over_many_columns() -> None:
    """200 columns: about 50 atoms a draw, where room is made for 8; orders by coordinate."""
    X = np.random.default_rng(0).normal(size=(1, 200))
    X = np.concatenate([X, -X])
    frame = Frame.of_gaussian(0.3, X, False).along_columns(X)
    points = frame.points(X)
    basis = adapted_to(points, points.min(axis=0), points.max(axis=0), 1e-6)
    draws = TableProposal(basis, frame, X, 0).draw(3000, np.random.default_rng(0))
    assert len(draws[2]) > 8 * 3000
    multisets = Multisets(*draws[1:])
    drawn = np.zeros((3000, 200), dtype=int)
    drawn[multisets.owners, multisets.coordinates] = multisets.orders
    excited = (drawn > 0).mean(axis=0)
    # Both rows have the same squares: e_k is even or odd on a symmetric pair.
    p = np.array([1 - basis.squares(i, points[:1, i].copy())[0, 0] for i in range(200)])
    z = (excited - p) / np.sqrt(p * (1 - p) / 3000 + 1e-12)
    assert np.abs(z).max() < 5
    assert stats.kstest(z, stats.norm.cdf).pvalue > 1e-5


# --- spaces and maps -----------------------------------------------------------------------------


def held_share(mercer: TableSpace, X: Array) -> Array:
    """prod_i sum_k e_k(x_i)^2 over the orders kept: what all product features say of k(x, x)."""
    points = np.ascontiguousarray(mercer.frame.points(X).T)
    shares = [mercer.basis.squares(i, line).sum(axis=0) for i, line in enumerate(points)]
    return np.prod(shares, axis=0)


def assert_held(mercer: TableSpace, X: Array, share: float) -> None:
    shares = held_share(mercer, X)
    worst = int(shares.argmin())
    assert shares[worst] > share, (
        f"row {worst}, at {X[worst]}, keeps {shares[worst]:.2e} of its k(x, x) = 1"
    )


def mercer_space(X: Array, rotate: bool, options: EngineOptions = DEFAULTS) -> TableSpace:
    frame = Frame.of_gaussian(0.5, X, True).along_columns(X)
    frame = frame.rotated(X) if rotate else frame
    basis = MercerBasis.of_rows(frame, ArraySource(X), 1e-9)
    return TableSpace(frame, basis, X, RowPlan.of(X, 0, options))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("name", LINES)
def test_the_orders_kept_serve_every_proposal_row(name: str, rotate: bool, dtype: type) -> None:
    line = LINES[name](np.random.default_rng(0))[-100:]
    X = np.stack([line, np.random.default_rng(1).permutation(line)], axis=1).astype(dtype)
    assert_held(mercer_space(X, rotate), X, 1 - 1e-5)


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("outliers", [[(9.0, 7.0)], [(12.0, -12.0), (6.0, -6.5)]])
def test_the_orders_kept_serve_the_other_rows(
    outliers: list[tuple[float, float]], rotate: bool
) -> None:
    """Outliers that are not among the proposal rows; the second is not at an end either."""
    X = np.random.default_rng(0).normal(size=(1100, 2))
    others = np.setdiff1d(np.arange(1100), keyed_rows(1100, 1000, 0, "proposal"))
    X[others[: len(outliers)]] = outliers
    few = EngineOptions(proposal_rows=1000)
    assert_held(mercer_space(X, rotate, few), X, 1 - 1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rotate", [False, True])
def test_far_outside_the_training_range(rotate: bool, dtype: type) -> None:
    """|phi_m(x)| <= 1 for every x, so no feature may exceed its weight."""
    X = np.random.default_rng(0).normal(size=(100, 3)).astype(dtype)
    features = RowNormFeatures(60, basis="mercer", rotate=rotate, random_state=0).fit(X)
    near = np.random.default_rng(1).normal(size=(20, 3))
    for scale in (1.0, 12.0, 40.0, 1e3, 1e6, 1e15):
        Z = features.transform((scale * near).astype(dtype))
        assert np.isfinite(Z).all(), f"not finite at {scale:g} standard deviations"
        assert (np.abs(Z) <= features.weights_ * (1 + 1e-5)).all()
        assert ((Z**2).sum(axis=1) <= (features.weights_**2).max() * (1 + 1e-5)).all()
    assert np.abs(features.transform((1e6 * near).astype(dtype))).max() < 1e-20


def test_outliers_within_reach_are_fitted() -> None:
    """No Taylor series, so |x'|^2 = 300 in one row is no error, and its diagonal is kept."""
    X = np.random.default_rng(0).normal(size=(100, 2))
    X[7] = [12.0, 12.5]
    features = RowNormFeatures(
        400, kernel=Gaussian(0.5), basis="mercer", rotate=False, random_state=0
    )
    Z = features.fit_transform(X)
    np.testing.assert_allclose((Z**2).sum(axis=1), 1.0, atol=0.05)


def test_an_outlier_in_many_columns() -> None:
    """The product of 60 ground states underflows in row 3; no weight may become infinite."""
    X = 0.5 * np.random.default_rng(0).normal(size=(20, 60))
    X[3] = 6.0
    features = RowNormFeatures(
        200, kernel=Gaussian(0.5), basis="mercer", rotate=False, random_state=0
    )
    Z = features.fit_transform(X)
    assert np.isfinite(features.weights_).all()
    assert np.isfinite(Z).all()


@pytest.mark.parametrize(
    "X",
    [
        np.linspace(-1, 1, 30)[:, None],
        1e-4 * np.random.default_rng(0).normal(size=(30, 3)),
        np.full((10, 3), 2.5),
        np.repeat([[0.0, 1.0], [1.0, 0.0]], 5, axis=0),
    ],
    ids=["one column", "a tiny radius", "constant", "two points"],
)
def test_fewer_products_than_asked_for(X: Array) -> None:
    """When the orders kept are few, all products are there, each once, and K is exact."""
    features = RowNormFeatures(300, kernel=Gaussian(0.5), basis="mercer", rotate=False)
    Z = features.set_params(random_state=0).fit_transform(X)
    assert len(set(features.monomials_)) == features.n_components_ <= 300
    K = oracles.gram(oracles.gaussian, X, gamma=0.5)
    np.testing.assert_allclose(Z @ Z.T, K, atol=2e-3)


# --- a basis with a loss -------------------------------------------------------------------------


class Lossy:
    """Two functions a coordinate that hold a share of k(x, x) = 1 which varies with x."""

    n_orders = np.array([2, 2])

    def masses(self, coordinate: int) -> Array:
        return np.array([0.6, 0.2])

    def squares(self, coordinate: int, line: Array) -> Array:
        return np.stack([0.7 / (1.0 + line**2), 0.3 * line**2 / (1.0 + line**2)])

    def features(self, X: Array) -> tuple[list[tuple[int, ...]], Array]:
        """All products of total order >= 1, and their squares on the rows."""
        first, second = (self.squares(i, X[:, i]) for i in range(2))
        orders = [(0, 1), (1, 0), (1, 1)]
        names = [tuple(i for i in range(2) if m[i]) for m in orders]
        return names, np.array([first[a] * second[b] for a, b in orders])


def test_draws_are_exact_for_a_basis_with_a_loss() -> None:
    """Rows are drawn by what the functions hold of them, not all alike."""
    X, basis = np.array([[0.1, 2.0], [3.0, 0.5], [1.0, 1.0]]), Lossy()
    proposal = TableProposal(basis, Frame(1.0, None).along_columns(X), X, 1)  # type: ignore[arg-type]
    names, squares = basis.features(X)
    P = squares.sum(axis=1) / squares.sum()
    draws = proposal.draw(DRAWS, np.random.default_rng(0))
    assert_drawn_from(multisets_of(draws), dict(zip(names, P.tolist(), strict=True)))


@pytest.mark.parametrize("name", ["normal", "heavy tails", "one value"])
def test_the_loss_is_what_the_orders_kept_do_not_hold(name: str) -> None:
    line, _ = line_and_basis(name)
    tables = adapted_to(line[:, None], line.min(keepdims=True), line.max(keepdims=True), 1e-9)
    loss = tables.loss(0, line)
    assert ((loss >= 0.0) & (loss <= 2e-6)).all()
    assert tables.loss(0, np.array([line.max() + 30.0]))[0] > 0.5
    assert len(tables.masses(0)) == tables.n_orders[0]
