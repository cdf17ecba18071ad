"""Products of local functions: evaluated as such, drawn by their row norms, for any rows."""

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
from kernelsieve._random import keyed_rows
from kernelsieve.engine.draws import TableProposal
from kernelsieve.engine.options import DEFAULTS, EngineOptions
from kernelsieve.engine.space import RowPlan, TableSpace
from kernelsieve.kernels import Gaussian
from kernelsieve.products.local_basis import LocalBasis
from kernelsieve.products.multisets import Multisets
from kernelsieve.products.product_features import Frame, ProductFeatures
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


def gaussian_frame(gamma: float, X: Array, center: bool) -> Frame:
    return Frame.of_gaussian(gamma, X, center).along_columns(X).rescaled(math.sqrt(0.5))


def adapted_to(frame: Frame, X: Array, tol: float) -> LocalBasis:
    """The bases of the coordinates of these rows."""
    d = frame.n_coordinates
    return LocalBasis.of_rows(("gaussian",) * d, np.ones(d), frame, ArraySource(X), tol)


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
    frame = gaussian_frame(0.6, X, center)
    frame = frame.rotated(X) if rotate else frame
    basis = adapted_to(frame, X, 0.0)
    products = all_products(basis.n_orders)
    tables = basis.restricted(products)
    features = ProductFeatures(frame, tables, products, np.ones(len(products)), sparse=False)
    weights = rng.dirichlet(np.ones(40), size=30)
    for rows in (X, weights @ X):  # convex combinations stay within the range
        Z = evaluated(features, rows)
        K = oracles.gram(oracles.gaussian, rows, gamma=0.6)
        np.testing.assert_allclose(Z @ Z.T, K, atol=1e-6)


def test_products_are_products_of_the_values() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(37, 3))
    frame = gaussian_frame(0.4, X, True)
    points, basis = frame.points(X), adapted_to(frame, X, 1e-6)
    tuples = [(), (0,), (0, 0, 1), (1, 1, 1, 2), (2, 2), (0, 1, 2)]
    multisets = Multisets.from_tuples(tuples)
    tables = basis.restricted(multisets)
    features = ProductFeatures(frame, tables, multisets, np.ones(6), sparse=False)
    lines = [basis.bases[i].values(points[:, i]) for i in range(3)]
    expected = [math.prod(lines[i][m.count(i)] for i in range(3)) for m in tuples]
    expected = np.array(expected)[features.trie.order].T
    np.testing.assert_allclose(evaluated(features, X), expected, atol=1e-9)
    np.testing.assert_allclose(features.squared_norms(X, 1), (expected**2).sum(axis=0), atol=1e-8)
    np.testing.assert_allclose(features.project(X, np.eye(37), 1), expected.T, atol=1e-9)


# --- draws ---------------------------------------------------------------------------------------


def small_basis(tol: float = 1e-9) -> tuple[Array, Frame, LocalBasis]:
    X = np.array([[0.2, -0.4, 1.0], [0.9, 0.1, 0.3], [-1.2, 0.5, 0.0], [0.0, 0.0, -0.8]])
    frame = gaussian_frame(0.5, X, False)
    return X, frame, adapted_to(frame, X, tol)


def exact_distribution(
    basis: LocalBasis, points: Array, lowest: int, share: float
) -> dict[tuple[int, ...], float]:
    """By enumeration: a row by its mass above the lowest order, then independent orders."""
    laws = []
    for x in points:
        law = [basis.squares(i, x[i : i + 1])[:, 0] for i in range(3)]
        laws.append([p / p.sum() for p in law])
    floor = TableProposal.FLOOR
    marginal = [basis.masses(i) / basis.masses(i).sum() for i in range(3)]
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
    multisets = Multisets.from_tuples(list(P))
    tables = basis.restricted(multisets)
    features = ProductFeatures(frame, tables, multisets, np.ones(len(P)), sparse=False)
    computed = TableProposal(basis, frame, X, lowest, share).probabilities(features, 1)
    expected = np.array(list(P.values()))[features.trie.order]
    np.testing.assert_allclose(computed, expected, rtol=1e-5, atol=1e-9)
    assert computed.sum() == pytest.approx(1.0, abs=1e-5)  # the basis knows cells, not points


def test_draws_over_many_columns() -> None:
    """200 columns: about 50 atoms a draw, where room is made for 8; orders by coordinate."""
    X = np.random.default_rng(0).normal(size=(1, 200))
    X = np.concatenate([X, -X])
    frame = gaussian_frame(0.3, X, False)
    points, basis = frame.points(X), adapted_to(frame, X, 1e-6)
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
    frame = gaussian_frame(0.5, X, True)
    frame = frame.rotated(X) if rotate else frame
    return TableSpace(frame, adapted_to(frame, X, 1e-9), X, RowPlan.of(X, 0, options))


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

    n_orders = n_listed = np.array([2, 2])

    def name_tents(self, *draws: Any) -> None:
        """It has none."""

    def masses(self, coordinate: int) -> Array:
        return np.array([0.6, 0.2])

    def squares(self, coordinate: int, line: Array) -> Array:
        return np.stack([0.7 / (1.0 + line**2), 0.3 * line**2 / (1.0 + line**2)])

    def write_squares(self, coordinate: int, line: Array, first: int, out: Array) -> None:
        out[: len(line), first : first + 2] = self.squares(coordinate, line).T

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
    line = LINES[name](np.random.default_rng(0))
    frame = gaussian_frame(0.5, line[:, None], False)
    tables, line = adapted_to(frame, line[:, None], 1e-9), frame.points(line[:, None])[:, 0]
    loss = tables.loss(0, line)
    assert ((loss >= 0.0) & (loss <= 2e-6)).all()
    assert tables.loss(0, np.array([line.max() + 30.0]))[0] > 0.5
    assert len(tables.masses(0)) == tables.n_orders[0]
