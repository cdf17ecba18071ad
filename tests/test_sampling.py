"""The pieces of the sampled maps: names, evaluation, draws, weights, thinning, scores."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats
from support.drawing import DRAWS, LEVEL, Index, assert_drawn_from, multisets_of
from support.limits import time_limit

from kernelsieve._random import coordinate_words, keyed_rows, row_hashes
from kernelsieve.engine.draws import (
    RowNormProposal,
    draw_distinct,
    inclusion_probabilities,
    stopping_time,
)
from kernelsieve.engine.options import DEFAULTS, EngineOptions
from kernelsieve.engine.scores import (
    PoolScores,
    capped_proportional,
    keep_probabilities,
    lambda_for_dimension,
    make_anchors,
    score_pool,
    systematic_sample,
)
from kernelsieve.engine.space import MonomialSpace, Pool, RowPlan
from kernelsieve.kernels import DotProduct, Exponential, Gaussian, InversePolynomial, Polynomial
from kernelsieve.kernels.series import Series
from kernelsieve.linalg.cholesky import regularised_cholesky
from kernelsieve.products import product_features
from kernelsieve.products.multisets import (
    Multisets,
    Trie,
    all_of_degrees,
    build_trie,
    count_of_degree,
)
from kernelsieve.products.product_features import (
    Frame,
    MonomialBasis,
    ProductFeatures,
    principal_directions,
)
from kernelsieve.sources.summaries import MAX_CLASSES, target_columns

Array = Any

# --- multisets -----------------------------------------------------------------------------------

multiset = st.lists(st.integers(0, 5), max_size=6).map(lambda m: tuple(sorted(m)))
some_multisets = st.lists(multiset, max_size=30)
distinct_multisets = st.lists(multiset, max_size=30, unique=True)


@given(some_multisets)
@example([])
@example([()])
@example([(), (3,), ()])
def test_multisets_round_trip(tuples: list[Index]) -> None:
    multisets = Multisets.from_tuples(tuples)
    assert multisets.tuples() == tuples
    assert len(multisets) == len(tuples)
    assert multisets.degrees().tolist() == [len(m) for m in tuples]
    assert (multisets.orders >= 1).all()
    names = [(i, k) for m in tuples for i, k in sorted(Counter(m).items())]
    assert list(zip(multisets.coordinates, multisets.orders, strict=True)) == names
    assert multisets.owners.tolist() == [n for n, m in enumerate(tuples) for _ in set(m)]


def test_multisets_sort_what_they_are_given() -> None:
    assert Multisets.from_tuples([(2, 0, 2), (1,)]).tuples() == [(0, 2, 2), (1,)]


@given(some_multisets, st.data())
def test_take_is_a_list_index(tuples: list[Index], data: st.DataObject) -> None:
    numbers = st.integers(0, max(0, len(tuples) - 1))
    chosen = data.draw(st.lists(numbers, max_size=40 if tuples else 0))
    taken = Multisets.from_tuples(tuples).take(np.array(chosen, dtype=np.int64))
    assert taken.tuples() == [tuples[c] for c in chosen]


@given(some_multisets, some_multisets)
def test_concatenate_is_a_list_sum(first: list[Index], second: list[Index]) -> None:
    both = Multisets.concatenate(Multisets.from_tuples(first), Multisets.from_tuples(second))
    assert both.tuples() == first + second


@pytest.mark.parametrize(("d", "degree"), [(0, 0), (0, 2), (1, 4), (3, 0), (3, 4), (5, 2)])
def test_all_multisets_of_a_degree(d: int, degree: int) -> None:
    expected = [m for m in oracles.multisets(d, degree) if len(m) == degree]
    assert count_of_degree(d, degree) == len(expected)
    assert all_of_degrees(np.arange(d), [degree]).tuples() == expected


def test_all_multisets_over_some_coordinates() -> None:
    listed = all_of_degrees(np.array([7, 2]), [0, 2]).tuples()
    assert listed == [(), (2, 2), (2, 7), (7, 7)]


# --- the prefix tree -----------------------------------------------------------------------------


def paths_of(trie: Trie) -> dict[int, Counter[int]]:
    """Column -> the multiset that the tree spells for it, by walking the nodes one by one."""
    spelled, path = {}, []
    for node, (depth, atom, column) in enumerate(
        zip(trie.depth, trie.atom, trie.columns, strict=True)
    ):
        assert (depth == 0) == (node == 0)
        del path[max(depth - 1, 0) :]
        if node:
            assert len(path) == depth - 1, "a node stands deeper than one below the last"
            path.append(atom)
        if column >= 0:
            spelled[int(column)] = Counter(
                {int(trie.atom_coordinates[a]): int(trie.atom_orders[a]) for a in path}
            )
    return spelled


@given(distinct_multisets, st.booleans())
@example([()], True)
@example([], False)
def test_the_tree_spells_every_multiset_once(tuples: list[Index], frequent_first: bool) -> None:
    trie = build_trie(Multisets.from_tuples(tuples), frequent_first=frequent_first)
    spelled = paths_of(trie)
    assert sorted(trie.order.tolist()) == list(range(len(tuples)))
    assert spelled == {c: Counter(tuples[m]) for c, m in enumerate(trie.order.tolist())}
    columns = trie.columns[trie.columns >= 0]
    assert (np.diff(columns) > 0).all(), "columns must rise with the nodes"


@given(distinct_multisets)
def test_the_tree_shares_prefixes_and_lists_children(tuples: list[Index]) -> None:
    trie = build_trie(Multisets.from_tuples(tuples), frequent_first=True)
    starts, nodes, atoms = trie.children
    seen = []
    for parent in range(len(trie.depth)):
        children = nodes[starts[parent] : starts[parent + 1]]
        assert (trie.depth[children] == trie.depth[parent] + 1).all()
        assert (children > parent).all()
        rising = atoms[starts[parent] : starts[parent + 1]]
        assert (np.diff(rising) > 0).all(), "two children with the same atom share a prefix"
        seen += children.tolist()
    assert sorted(seen) == list(range(1, len(trie.depth)))


# --- evaluation: every path equals the explicit product ------------------------------------------


def data(n: int = 70, d: int = 6, density: float = 0.6, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < density)
    X[min(3, n - 1)] = 0.0
    return X


def explicit(series: Series, points: Array, tuples: Sequence[Index]) -> Array:
    """Z by definition: one column per multiset, in the oracle's arithmetic."""
    points = np.asarray(points, dtype=float)
    squared = (points**2).sum(axis=1)
    amplitude = np.exp(-0.5 * squared) if series.damped else np.ones(len(points))
    Phi = oracles.lift(points, amplitude, np.exp(series.log_coefficients), tuples)
    return Phi.T * np.sqrt([oracles.multiplicity(m) for m in tuples])


KERNELS = {
    "gaussian": Gaussian(0.4),
    "exponential": Exponential(0.5),
    "polynomial": Polynomial(6, 0.5, 1.0),
    "inverse": InversePolynomial(60.0),
}
CONTAINERS: dict[str, Callable[[Array], Any]] = {"dense": np.asarray, "csr": sp.csr_array}


def series_of(kernel: Any, X: Array, degree: int = 6) -> Series:
    """A series that has all degrees up to ``degree``."""
    series = kernel.series(X, 1e-12, center=False)
    coefficients = kernel._log_coefficients(max(degree, series.degree))
    return Series(series.scale, series.center, series.damped, coefficients, series.tail)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=15)
@given(tuples=distinct_multisets)
@example(tuples=[()])
@example(tuples=[(0, 0, 0, 0, 0, 0)])
@example(tuples=list(oracles.multisets(6, 3)))
def test_features_are_explicit_products(
    name: str, container: str, dtype: type, tuples: list[Index]
) -> None:
    X = data().astype(dtype)
    series = series_of(KERNELS[name], X)
    weights = np.linspace(0.5, 2.0, len(tuples))
    frame = Frame.of_series(series).along_columns(X)
    features = ProductFeatures(
        frame,
        MonomialBasis(series),
        Multisets.from_tuples(tuples),
        weights,
        sparse=container == "csr",
    )
    order = features.trie.order
    Z = explicit(series, frame.points(X), tuples)[:, order] * weights[order]
    A = CONTAINERS[container](X)
    if container == "csr":
        out = features.csr(A)
        assert out.has_canonical_format, "columns of a row must rise"
        computed = out.toarray()
    else:
        computed = np.empty((len(X), len(tuples)), dtype=dtype)
        features.fill(A, computed)
    assert computed.dtype == dtype
    close = {"rtol": 1e-10, "atol": 1e-12} if dtype == np.float64 else {"rtol": 3e-5, "atol": 1e-5}
    np.testing.assert_allclose(computed, Z, **close)
    np.testing.assert_allclose(features.squared_norms(A, 1), (Z**2).sum(axis=0), **close)
    vectors = np.random.default_rng(1).normal(size=(len(X), 3))
    scale = 1 + np.abs(Z).sum(axis=0, initial=0.0)[:, None]
    np.testing.assert_allclose(
        features.project(A, vectors, 1) / scale, Z.T @ vectors / scale, **close
    )
    everything = features.project(A, np.eye(len(X)), 1)  # the feature-major values themselves
    np.testing.assert_allclose(everything, Z.T, **close)
    names = [tuples[m] for m in order]
    assert features.multisets.tuples() == names, "names and columns must stand in the same order"


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("n", [1, 15, 16, 31, 32, 33, 512, 513, 1100])
def test_rows_at_the_edges_of_blocks(n: int, container: str) -> None:
    X = data(n)
    tuples = [(), (0,), (0, 1), (1, 1, 2), (5,)] + [(i, j, 5) for i in range(4) for j in range(4)]
    tuples = sorted({tuple(sorted(m)) for m in tuples})
    series = series_of(Gaussian(0.4), X)
    frame = Frame.of_series(series).along_columns(X)
    features = ProductFeatures(
        frame,
        MonomialBasis(series),
        Multisets.from_tuples(tuples),
        np.ones(len(tuples)),
        sparse=container == "csr",
    )
    Z = explicit(series, frame.points(X), tuples)[:, features.trie.order]
    A = CONTAINERS[container](X)
    if container == "csr":
        computed = features.csr(A).toarray()
    else:
        features.fill(A, computed := np.full(Z.shape, np.nan))
    np.testing.assert_allclose(computed, Z, rtol=1e-10, atol=1e-13)
    for n_jobs in (1, 2):
        np.testing.assert_allclose(features.squared_norms(A, n_jobs), (Z**2).sum(axis=0))
        np.testing.assert_allclose(
            features.project(A, np.ones((n, 1)), n_jobs)[:, 0], Z.sum(axis=0)
        )


def test_threads_and_blocks_do_not_change_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_features, "BLOCK_ROWS", 32)
    X = data(300)
    series = series_of(Exponential(0.5), X)
    frame = Frame.of_series(series).along_columns(X)
    multisets = all_of_degrees(np.arange(6), [0, 1, 2, 3])
    weights = np.ones(len(multisets))
    for container, sparse in ((np.asarray, False), (sp.csr_array, True)):
        A = container(X)
        features = ProductFeatures(frame, MonomialBasis(series), multisets, weights, sparse=sparse)
        vectors = np.random.default_rng(0).normal(size=(300, 4))
        first = features.squared_norms(A, 1), features.project(A, vectors, 1)
        for n_jobs in (2, 4):
            np.testing.assert_array_equal(features.squared_norms(A, n_jobs), first[0])
            np.testing.assert_array_equal(features.project(A, vectors, n_jobs), first[1])


def test_a_wide_tree_on_short_and_long_rows() -> None:
    """Both ways of finding the next child: few active atoms among many children, and many."""
    rng = np.random.default_rng(0)
    d = 60
    X = np.zeros((4, d))
    X[0, [3, 50]] = rng.normal(size=2)
    X[1, ::2] = rng.normal(size=30)
    X[2] = rng.normal(size=d)
    tuples = [(), *((i,) for i in range(d)), *((i, j) for i in range(d) for j in range(i, d))]
    tuples += [(i, i + 1, i + 2) for i in range(d - 2)]
    series = series_of(Exponential(0.5), X)
    frame = Frame.of_series(series).along_columns(X)
    features = ProductFeatures(
        frame,
        MonomialBasis(series),
        Multisets.from_tuples(tuples),
        np.ones(len(tuples)),
        sparse=True,
    )
    Z = features.csr(sp.csr_array(X))  # 2,000 entries: more than the first guess of the memory
    expected = explicit(series, frame.points(X), tuples)[:, features.trie.order]
    np.testing.assert_allclose(Z.toarray(), expected, rtol=1e-12, atol=1e-14)
    assert Z.nnz == np.count_nonzero(expected), "a feature that is zero is not stored"


def test_reweighted_keeps_the_features() -> None:
    X = data()
    series = series_of(Gaussian(0.4), X)
    frame = Frame.of_series(series).along_columns(X)
    multisets = all_of_degrees(np.arange(6), [1, 2])
    features = ProductFeatures(
        frame, MonomialBasis(series), multisets, np.ones(len(multisets)), sparse=False
    )
    weights = np.random.default_rng(0).random(len(multisets))
    features.fill(X, before := np.empty((len(X), len(multisets))))
    features.reweighted(weights).fill(X, after := np.empty_like(before))
    np.testing.assert_allclose(after, before * weights, rtol=1e-13)
    np.testing.assert_array_equal(features.weights, 1.0)


# --- the frame -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("center", [False, True])
def test_points_columns_and_radius_of_a_frame(center: bool, rotate: bool, dtype: type) -> None:
    X = (data(50, 4, density=1.0) + 0.7).astype(dtype)
    frame = Frame.of_gaussian(0.8, X, center).along_columns(X)
    frame = frame.rotated(X) if rotate else frame
    wide = X.astype(np.float64)
    expected = math.sqrt(1.6) * (wide - (wide.mean(axis=0) if center else 0.0))
    if rotate:
        expected = expected @ frame.rotation
    close = {"rtol": 1e-12, "atol": 1e-12} if dtype == np.float64 else {"rtol": 1e-5, "atol": 1e-5}
    points = frame.points(X)
    assert points.dtype == dtype
    np.testing.assert_allclose(points, expected, **close)
    chosen = np.array([3, 1])
    columns = frame.columns(frame.centred(X), chosen, frame.projector(chosen, dtype))
    np.testing.assert_allclose(columns, expected[:, chosen].T, **close)
    np.testing.assert_allclose(frame.squared_radius(X), (expected**2).sum(axis=1), **close)
    np.testing.assert_allclose(frame.spread, np.sqrt((expected**2).mean(axis=0)), **close)
    assert frame.n_coordinates == 4


def test_sparse_points_stay_sparse() -> None:
    X = data()
    series = Gaussian(0.8).series(sp.csr_array(X), 1e-6)
    frame = Frame.of_series(series).along_columns(sp.csr_array(X))
    points = frame.points(sp.csr_array(X))
    assert sp.issparse(points)
    np.testing.assert_allclose(points.toarray(), math.sqrt(1.6) * X)
    np.testing.assert_allclose(frame.spread, math.sqrt(1.6) * np.sqrt((X**2).mean(axis=0)))


@pytest.mark.parametrize("center", [False, True])
def test_principal_directions(center: bool) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5)) @ rng.normal(size=(5, 5)) + 1.0
    mean = X.mean(axis=0) if center else None
    directions, mean_squares = principal_directions(X, mean)
    np.testing.assert_allclose(directions.T @ directions, np.eye(5), atol=1e-12)
    points = (X - (0.0 if mean is None else mean)) @ directions
    np.testing.assert_allclose(points.T @ points / len(X), np.diag(mean_squares), atol=1e-10)
    assert (np.diff(mean_squares) <= 0).all(), "largest first"


def test_principal_directions_have_fixed_signs() -> None:
    """The largest component is positive, and neither row order nor blocks nor LAPACK decide it."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        X = rng.normal(size=(300, 6)) * np.arange(1, 7)
        directions, _ = principal_directions(X, None)
        largest = np.abs(directions).argmax(axis=0)
        assert (directions[largest, np.arange(6)] > 0).all()
        again, _ = principal_directions(rng.permutation(X), None)
        mirrored, _ = principal_directions(-X, None)
        np.testing.assert_allclose(again, directions, atol=1e-9)
        np.testing.assert_allclose(mirrored, directions, atol=1e-12)


# --- draws follow the row-norm distribution ------------------------------------------------------


ROWS = np.array(
    [
        [0.9, -0.4, 0.0],
        [0.0, 0.0, 0.0],
        [0.3, 0.8, 0.0],
        [-1.1, 0.0, 0.0],
        [0.0, 0.2, 1.3],
    ]
)
DRAW_KERNELS = {
    "gaussian": Gaussian(0.5),
    "polynomial": Polynomial(4, 1.0, 0.7),
    "homogeneous": Polynomial(3, 1.0, 0.0),
    "gaps": DotProduct([0.5, 0.0, 1.0, 0.0, 0.3]),
    "inverse": InversePolynomial(3.0),
}


def exact_row_norm_distribution(
    series: Series, points: Array, lowest: int
) -> tuple[list[Index], Array]:
    """Multisets of degree >= lowest and |phi_m|^2 over the points, over the total."""
    tuples = [m for m in oracles.multisets(points.shape[1], series.degree) if len(m) >= lowest]
    squares = (explicit(series, points, tuples) ** 2).sum(axis=0)
    return tuples, squares / squares.sum()


def assert_row_norm_draws(kernel: Any, X: Array, container: str, lowest: int) -> None:
    series = kernel.series(X, 1e-3, center=False)
    frame = Frame.of_series(series).along_columns(X)
    tuples, P = exact_row_norm_distribution(series, frame.points(X), lowest)
    proposal = RowNormProposal(series, frame, CONTAINERS[container](X), lowest)
    draws = proposal.draw(DRAWS, np.random.default_rng(0))
    assert_drawn_from(multisets_of(draws), dict(zip(tuples, P, strict=True)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("lowest", [0, 2])
@pytest.mark.parametrize("name", DRAW_KERNELS)
def test_draws_follow_the_row_norm(name: str, lowest: int, container: str, dtype: type) -> None:
    assert_row_norm_draws(DRAW_KERNELS[name], ROWS[[0, 2, 3, 4]].astype(dtype), container, lowest)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("lowest", [0, 1])
@pytest.mark.parametrize("name", DRAW_KERNELS)
def test_a_zero_row_draws_nothing_but_the_constant(name: str, lowest: int, container: str) -> None:
    """0^0 = 1: c(0)^2 a_0 is the mass of a row of zeros, and all of it is the constant's."""
    assert_row_norm_draws(DRAW_KERNELS[name], ROWS, container, lowest)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", DRAW_KERNELS)
@pytest.mark.parametrize("lowest", [0, 2])
def test_probabilities_are_those_of_the_draws(name: str, lowest: int, container: str) -> None:
    series = DRAW_KERNELS[name].series(ROWS, 1e-3, center=False)
    frame = Frame.of_series(series).along_columns(ROWS)
    tuples, P = exact_row_norm_distribution(series, frame.points(ROWS), lowest)
    A = CONTAINERS[container](ROWS)
    features = ProductFeatures(
        frame,
        MonomialBasis(series),
        Multisets.from_tuples(tuples),
        np.ones(len(tuples)),
        sparse=container == "csr",
    )
    computed = RowNormProposal(series, frame, A, lowest).probabilities(features, 1)
    np.testing.assert_allclose(computed, P[features.trie.order], rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("lowest", [0, 2])
@pytest.mark.parametrize("share", [0.02, 0.5])
@pytest.mark.parametrize("name", DRAW_KERNELS)
def test_the_added_row_has_its_share(name: str, share: float, lowest: int, container: str) -> None:
    """Proposal rows 0 and 2 only: column 2, nonzero in row 4, is drawn through the added row."""
    series = DRAW_KERNELS[name].series(ROWS, 1e-3, center=False)
    frame = Frame.of_series(series).along_columns(ROWS)
    chosen = ROWS[[0, 2]]
    spread = frame.scale * np.sqrt((ROWS**2).mean(axis=0))
    tuples, of_rows = exact_row_norm_distribution(series, frame.points(chosen), lowest)
    _, of_spread = exact_row_norm_distribution(series, spread[None], lowest)
    P = (1 - share) * of_rows + share * of_spread
    rows = CONTAINERS[container](chosen)
    proposal = RowNormProposal(series, frame, rows, lowest, frame.spread, share)
    draws = multisets_of(proposal.draw(DRAWS, np.random.default_rng(1)))
    assert_drawn_from(draws, dict(zip(tuples, P, strict=True)))
    assert any(2 in m for m in draws), "the column that the proposal rows do not have is lost"
    features = ProductFeatures(
        frame,
        MonomialBasis(series),
        Multisets.from_tuples(tuples),
        np.ones(len(tuples)),
        sparse=container == "csr",
    )
    np.testing.assert_allclose(proposal.probabilities(features, 1), P[features.trie.order])


def test_hashes_name_the_multisets() -> None:
    X = np.random.default_rng(0).normal(size=(30, 8))
    series = Exponential(0.3).series(X, 1e-3)
    for A in (X, sp.csr_array(X)):
        draws = RowNormProposal(series, Frame.of_series(series).along_columns(X), A, 0).draw(
            20_000, np.random.default_rng(0)
        )
        pairs = set(zip(draws[0].tolist(), multisets_of(draws), strict=True))
        assert len(pairs) == len({h for h, _ in pairs}) == len({m for _, m in pairs})
        atoms = Multisets(*draws[1:])
        rising = np.diff(atoms.coordinates) > 0
        inside = atoms.owners[1:] == atoms.owners[:-1]
        assert rising[inside].all(), "atoms of a multiset rise by coordinate, each coordinate once"


@pytest.mark.parametrize("container", CONTAINERS)
def test_draws_with_more_atoms_than_there_was_room_for(container: str) -> None:
    """|x'|^2 = 40 over 60 columns: about 30 atoms a draw, where room is made for 8."""
    x = np.random.default_rng(0).normal(size=(1, 60))
    x *= math.sqrt(40.0) / np.linalg.norm(x)
    series = Exponential(1.0).series(x, 1e-6)
    proposal = RowNormProposal(
        series, Frame.of_series(series).along_columns(x), CONTAINERS[container](x), 0
    )
    draws = multisets_of(proposal.draw(20_000, np.random.default_rng(0)))
    poisson = stats.poisson(40.0).pmf(np.arange(series.degree + 1))
    assert_drawn_from([len(m) for m in draws], dict(enumerate(poisson / poisson.sum())))
    coordinates = [i for m in draws[:4000] for i in m]
    assert_drawn_from(coordinates, dict(enumerate((x[0] ** 2 / 40.0).tolist())))


# --- distinct draws and their weights ------------------------------------------------------------


class TinyPopulation:
    """Feature m is the multiset {m} (the empty one for m = 0), of probability P[m]."""

    def __init__(self, P: Sequence[float]) -> None:
        self.cumulative = np.cumsum(P)
        self.words = np.concatenate([[0], coordinate_words(len(P))[1:]]).astype(np.uint64)

    def draw(self, size: int, rng: np.random.Generator) -> Any:
        m = np.searchsorted(self.cumulative, rng.random(size) * self.cumulative[-1], side="right")
        ends = np.cumsum(m > 0)
        coordinates = m[m > 0].astype(np.int64)
        return self.words[m], ends.astype(np.int64), coordinates, np.ones_like(coordinates)


def drawn_numbers(multisets: Multisets) -> list[int]:
    return [m[0] if m else 0 for m in multisets.tuples()]


P_TINY = np.array([0.45, 0.25, 0.15, 0.1, 0.04, 0.01])


def by_brute_force(rng: np.random.Generator, limit: int, horizon: float) -> tuple[list[int], float]:
    """Arrival times one by one: independent exponentials of rate P_m."""
    arrivals = rng.exponential(1.0 / P_TINY)
    order = np.argsort(arrivals)
    tau = min(horizon, arrivals[order[limit]] if limit < len(order) else np.inf)
    return [int(m) for m in order[:limit] if arrivals[m] < tau], float(tau)


@pytest.mark.parametrize(("limit", "horizon"), [(2, 200.0), (2, 2.0), (4, 15.0), (6, 30.0)])
def test_rank_conditioned_draws_are_those_of_brute_force(limit: int, horizon: float) -> None:
    """First arrivals, the stopping time, and E[1 / pi_m; m kept] = 1 for every feature."""
    population, runs = TinyPopulation(P_TINY), 2500
    kept, weights = np.zeros((runs, 6)), np.zeros((runs, 6))
    taus, brute_taus, brute = np.zeros(runs), np.zeros(runs), np.zeros((runs, 6))
    rng = np.random.default_rng(0)
    for seed in range(runs):
        multisets, taus[seed] = draw_distinct(population, limit, horizon, seed, 1)
        chosen = drawn_numbers(multisets)
        assert len(set(chosen)) == len(chosen) <= limit
        kept[seed, chosen] = 1.0
        weights[seed, chosen] = 1.0 / inclusion_probabilities(P_TINY, taus[seed])[chosen]
        chosen, brute_taus[seed] = by_brute_force(rng, limit, horizon)
        brute[seed, chosen] = 1.0
    difference = kept.mean(axis=0) - brute.mean(axis=0)
    error = np.sqrt((kept.var(axis=0) + brute.var(axis=0)) / runs) + 1e-12
    assert np.abs(difference / error).max() < 4.5, (kept.mean(axis=0), brute.mean(axis=0))
    assert stats.ks_2samp(taus, brute_taus).pvalue > LEVEL
    # Given tau a weight has variance 1 / pi - 1, also where a feature was never missed.
    pi = inclusion_probabilities(P_TINY, taus[:, None])
    error = np.sqrt(np.maximum(weights.var(axis=0), (1 / pi - 1).mean(axis=0)) / runs)
    bias = (weights.mean(axis=0) - 1.0) / error
    assert np.abs(bias).max() < 4.5, f"E[weight] is {weights.mean(axis=0)}, not 1"


def test_distinct_draws_come_in_order_of_arrival() -> None:
    """A fixed stream: 3 1 3 0 2 ...: the first three, and a time before the fourth's end."""

    class Stream:
        def draw(self, size: int, rng: np.random.Generator) -> Any:
            m = np.resize([3, 1, 3, 0, 2, 4], size)
            words = TinyPopulation(P_TINY).words
            coordinates = m[m > 0].astype(np.int64)
            return words[m], np.cumsum(m > 0), coordinates, np.ones_like(coordinates)

    taus = []
    for seed in range(300):
        multisets, tau = draw_distinct(Stream(), 3, 100.0, seed, 1)
        assert drawn_numbers(multisets) == [3, 1, 0]
        taus.append(tau)
    # The fourth distinct one is the fifth draw, at a Gamma(5) time.
    assert stats.kstest(taus, stats.gamma(5).cdf).pvalue > LEVEL


@pytest.mark.parametrize("limit", [6, 7, 50])
def test_more_room_than_features(limit: int) -> None:
    multisets, tau = draw_distinct(TinyPopulation(P_TINY), limit, 5000.0, 0, 1)
    assert sorted(drawn_numbers(multisets)) == list(range(6))
    assert tau == 5000.0


def test_no_room_and_no_time() -> None:
    multisets, _ = draw_distinct(TinyPopulation(P_TINY), 0, 100.0, 0, 1)
    assert len(multisets) == 0
    multisets, tau = draw_distinct(TinyPopulation(P_TINY), 3, 1e-9, 0, 1)
    assert (len(multisets), tau) == (0, 1e-9)


@pytest.mark.parametrize("batch", [7, 64])
def test_threads_do_not_change_the_draws(batch: int) -> None:
    X = np.random.default_rng(0).normal(size=(30, 5))
    series = Exponential(0.3).series(X, 1e-3)
    proposal = RowNormProposal(series, Frame.of_series(series).along_columns(X), X, 0)
    first, tau = draw_distinct(proposal, 100, 1e4, 0, 1, batch)
    for n_jobs in (2, 4):
        again, time = draw_distinct(proposal, 100, 1e4, 0, n_jobs, batch)
        assert again.tuples() == first.tuples()
        assert time == tau


@pytest.mark.parametrize(("k", "n"), [(1, 1), (1, 9), (4, 9), (9, 9)])
def test_stopping_time_is_an_order_statistic(k: int, n: int) -> None:
    rng = np.random.default_rng(0)
    times = [stopping_time(k, n, 5.0, rng) for _ in range(3000)]
    brute = np.sort(5.0 * rng.random((3000, n)), axis=1)[:, k - 1]
    assert stats.ks_2samp(times, brute).pvalue > LEVEL
    assert min(times) > 0.0
    assert max(times) < 5.0


def test_the_kth_arrival_of_a_poisson_process_is_gamma() -> None:
    """Over the number of arrivals as well, before a horizon that hardly ever binds."""
    rng = np.random.default_rng(1)
    times = [stopping_time(3, int(rng.poisson(40.0)), 40.0, rng) for _ in range(3000)]
    assert stats.kstest(times, stats.gamma(3).cdf).pvalue > LEVEL


def test_inclusion_probabilities_keep_their_digits() -> None:
    P = np.array([0.0, 1e-300, 1e-20, 1e-9, 0.5, 1.0])
    expected = [float(-math.expm1(-p * 3.0)) for p in P]
    np.testing.assert_allclose(inclusion_probabilities(P, 3.0), expected, rtol=1e-14)


# --- fixed-size sampling -------------------------------------------------------------------------

positive = st.floats(1e-6, 1e6)


@given(st.lists(positive, min_size=1, max_size=40), st.integers(1, 45))
def test_capped_proportional(scores: list[float], size: int) -> None:
    p = capped_proportional(np.array(scores), size)
    assert ((p > 0) & (p <= 1)).all()
    assert p.sum() == pytest.approx(min(size, len(scores)), rel=1e-9)
    free = p < 1 - 1e-12
    ratios = p[free] / np.array(scores)[free]
    if free.any():
        np.testing.assert_allclose(ratios, ratios[0], rtol=1e-9)
        assert (np.array(scores)[~free] * ratios[0] >= 1 - 1e-9).all(), "capped without need"


@pytest.mark.parametrize(
    ("scores", "size", "expected"),
    [
        ([1.0, 1.0, 1.0, 1.0], 2, [0.5, 0.5, 0.5, 0.5]),
        ([100.0, 1.0, 1.0], 1, [100 / 102, 1 / 102, 1 / 102]),
        ([100.0, 1.0, 3.0], 2, [1.0, 0.25, 0.75]),
        ([0.0, 5.0, 0.0], 2, [0.0, 1.0, 0.0]),
        ([0.0, 5.0, 5.0], 1, [0.0, 0.5, 0.5]),
        ([2.0, 2.0], 2, [1.0, 1.0]),
        ([1e-300, 3e-300], 1, [0.25, 0.75]),
        ([1e200, 1.0, 1.0], 2, [1.0, 0.5, 0.5]),
    ],
)
def test_capped_proportional_by_hand(scores: list[float], size: int, expected: list[float]) -> None:
    np.testing.assert_allclose(capped_proportional(np.array(scores), size), expected, rtol=1e-12)


@given(st.lists(positive, min_size=1, max_size=40), st.integers(1, 45), st.integers(0, 10**6))
def test_systematic_samples_have_the_right_size(scores: list[float], size: int, seed: int) -> None:
    p = capped_proportional(np.array(scores), size)
    chosen = systematic_sample(p, np.random.default_rng(seed))
    assert len(set(chosen.tolist())) == len(chosen) == min(size, len(scores))
    assert set(np.flatnonzero(p >= 1.0)) <= set(chosen.tolist())


@pytest.mark.parametrize(
    "p",
    [
        np.full(10, 0.1),
        np.full(7, 3 / 7),
        np.array([1.0, 0.9, 0.05, 0.05, 1.0, 0.6, 0.4]),
        capped_proportional(np.geomspace(1e-4, 1.0, 30), 9),
        np.array([0.5, 0.5, 0.0]),
    ],
    ids=["tenths", "sevenths", "with ones", "geometric", "with a zero"],
)
def test_systematic_inclusion_probabilities(p: Array) -> None:
    rng, runs = np.random.default_rng(0), 4000
    counts = np.zeros(len(p))
    for _ in range(runs):
        counts[systematic_sample(p, rng)] += 1
    error = np.sqrt(p * (1 - p) / runs)
    sure = error == 0
    np.testing.assert_array_equal(counts[sure] / runs, p[sure])
    z = (counts[~sure] / runs - p[~sure]) / error[~sure]
    assert np.abs(z).max() < 4.5
    np.testing.assert_array_equal(systematic_sample(np.ones(3), rng), [0, 1, 2])
    assert len(systematic_sample(np.empty(0), rng)) == 0


def test_systematic_samples_pair_items_in_random_order() -> None:
    """In a fixed order neighbours would never come together; every pair must be possible."""
    rng = np.random.default_rng(0)
    p = np.full(6, 0.5)
    pairs = Counter()
    for _ in range(2000):
        pairs.update(itertools.combinations(systematic_sample(p, rng).tolist(), 2))
    assert len(pairs) == 15
    assert_drawn_from(list(pairs.elements())[::1], dict.fromkeys(pairs, 1 / 15))


# --- keep probabilities of the two phases --------------------------------------------------------


def test_keep_probabilities_mix_the_scores_over_pi_1() -> None:
    rng = np.random.default_rng(0)
    leverage, target, norm, inclusion = rng.uniform(0.4, 1.0, size=(4, 50))
    pool = Pool(None, inclusion, norm, complete=False)
    keep = keep_probabilities(PoolScores(leverage, target, 0.0), pool, 10, 0.5)
    shares = [v / inclusion / (v / inclusion).sum() for v in (leverage, target, norm)]
    np.testing.assert_allclose(keep, 10 * (0.25 * shares[0] + 0.5 * shares[1] + 0.25 * shares[2]))
    assert keep.sum() == pytest.approx(10)


def test_keep_probabilities_without_a_target() -> None:
    pool = Pool(None, np.ones(2), np.array([1.0, 3.0]), complete=False)
    keep = keep_probabilities(PoolScores(np.ones(2), np.zeros(2), 0.0), pool, 1, 1 / 3)
    np.testing.assert_allclose(keep, [0.25 * 0.5 + 0.75 * 0.25, 0.25 * 0.5 + 0.75 * 0.75])


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_every_feature_of_the_pool_can_be_kept(share: float) -> None:
    """Neither leverage nor target, as of a feature that is zero on all anchors: still its norm."""
    scores = PoolScores(np.array([0.0, 2.0, 1.0]), np.array([0.0, 0.0, 5.0]), 0.0)
    pool = Pool(None, np.ones(3), np.array([1.0, 1.0, 2.0]), complete=False)
    keep = keep_probabilities(scores, pool, 1, share)
    assert (keep > 1e-3).all()
    assert keep.sum() == pytest.approx(1.0)


# --- anchor rows ---------------------------------------------------------------------------------


def test_keyed_rows_are_uniform() -> None:
    n, size, seeds = 20, 5, 4000
    counts = np.zeros(n)
    together = np.zeros((n, n))
    for seed in range(seeds):
        rows = keyed_rows(n, size, seed, "anchors")
        assert len(set(rows.tolist())) == size
        assert (np.diff(rows) > 0).all()
        counts[rows] += 1
        together[np.ix_(rows, rows)] += 1
    p = size / n
    # Counts without replacement have covariance p (1 - p) (n / (n - 1)) (I - 1 1^T / n).
    statistic = ((counts - seeds * p) ** 2).sum() / (seeds * p * (1 - p)) * (n - 1) / n
    assert stats.chi2(n - 1).sf(statistic) > LEVEL
    pair = size * (size - 1) / (n * (n - 1))
    z = (together[np.triu_indices(n, 1)] / seeds - pair) / math.sqrt(pair * (1 - pair) / seeds)
    assert np.abs(z).max() < 5, "two rows come together too often or too rarely"


def test_keys_and_seeds_give_independent_rows() -> None:
    n, size = 100, 20
    for other in (lambda s: keyed_rows(n, size, s, "b"), lambda s: keyed_rows(n, size, s + 1, "a")):
        overlap = [len(np.intersect1d(keyed_rows(n, size, s, "a"), other(s))) for s in range(500)]
        law = stats.hypergeom(n, size, size)
        assert abs(np.mean(overlap) - law.mean()) < 4.5 * law.std() / math.sqrt(500)


def test_keyed_rows_do_not_depend_on_chunks() -> None:
    """The smallest hashes of the smallest hashes of the chunks are the smallest hashes."""
    n, size = 5000, 300
    whole = row_hashes(np.arange(n, dtype=np.uint64), 3, "anchors")
    chosen = keyed_rows(n, size, 3, "anchors")
    assert len(set(whole.tolist())) == n
    merged = []
    for chunk in np.array_split(np.arange(n, dtype=np.uint64), 7):
        hashes = row_hashes(chunk, 3, "anchors")
        np.testing.assert_array_equal(hashes, whole[chunk])
        merged += chunk[np.argsort(hashes)[:size]].tolist()
    merged.sort(key=lambda row: whole[row])
    assert sorted(merged[:size]) == chosen.tolist()


def test_two_choices_under_one_key_have_no_row_in_common() -> None:
    for seed in range(20):
        first = keyed_rows(100, 30, seed, "a")
        second = keyed_rows(100, 50, seed, "a", skip=30)
        assert len(np.intersect1d(first, second)) == 0
        assert len(keyed_rows(100, 80, seed, "a", skip=30)) == 80, "not so many are left to skip"


@given(st.integers(1, 400), st.integers(1, 400), st.integers(0, 300), st.integers(0, 9))
def test_keyed_rows_have_the_smallest_hashes(n: int, size: int, skip: int, seed: int) -> None:
    """Also where the first bound on the hashes lets too few or too many rows pass."""
    size = min(size, n)
    skip = min(skip, n - size)
    order = np.argsort(row_hashes(np.arange(n, dtype=np.uint64), seed, "a"))
    expected = np.sort(order[skip : skip + size])
    np.testing.assert_array_equal(keyed_rows(n, size, seed, "a", skip=skip), expected)


@pytest.mark.parametrize("size", [10, 11, 10**6])
def test_all_rows_when_there_are_few(size: int) -> None:
    np.testing.assert_array_equal(keyed_rows(10, size, 0, "anchors"), np.arange(10))


def test_hashes_fill_all_bits() -> None:
    hashes = row_hashes(np.arange(20_000, dtype=np.uint64), 0, "anchors")
    bits = (hashes[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / math.sqrt(20_000)


@pytest.fixture(scope="module")
def small_gram() -> tuple[Array, Array]:
    X = np.random.default_rng(0).normal(size=(40, 3))
    return X, Gaussian(0.3)(X)


@pytest.mark.parametrize("dimension", [1.5, 4.0, 9.0])
def test_lambda_for_a_dimension(dimension: float, small_gram: tuple[Array, Array]) -> None:
    """The bracket ends within a factor 1.5; 16 probes of the trace add about as much."""
    _, K = small_gram
    found = [lambda_for_dimension(K, dimension, np.random.default_rng(s)) for s in range(20)]
    reached = np.array([oracles.statistical_dimension(K, lambda_) for lambda_ in found])
    assert (np.abs(np.log(reached / dimension)) < math.log(1.5)).all(), reached
    assert abs(np.log(reached / dimension).mean()) < math.log(1.15)


def test_lambda_is_held_to_what_the_rows_can_show(small_gram: tuple[Array, Array]) -> None:
    _, K = small_gram
    many, quarter = (
        lambda_for_dimension(K, dimension, np.random.default_rng(0)) for dimension in (100.0, 10.0)
    )
    assert many == quarter


@pytest.mark.parametrize("scale", [1e-250, 1e-100, 1e100, 1e250])
def test_lambda_of_tiny_and_huge_kernels(scale: float, small_gram: tuple[Array, Array]) -> None:
    """The search is on a logarithmic scale: its bounds may not over- or underflow in a product."""
    _, K = small_gram
    with time_limit(120):
        found = lambda_for_dimension(scale * K, 4.0, np.random.default_rng(0))
    expected = lambda_for_dimension(K, 4.0, np.random.default_rng(0))
    assert found == pytest.approx(scale * expected, rel=1e-6)


def test_lambda_of_a_kernel_that_is_zero() -> None:
    assert lambda_for_dimension(np.zeros((5, 5)), 2.0, np.random.default_rng(0)) > 0


def test_anchors_score_leverage_and_targets(small_gram: tuple[Array, Array]) -> None:
    X, K = small_gram
    alpha, k = 0.2, 20_000
    y = np.random.default_rng(1).normal(size=(40, 2))
    anchors = make_anchors(Gaussian(0.3), X, y, alpha, k, np.random.default_rng(2), 1)
    inverse = np.linalg.inv(K + alpha * np.eye(40))
    np.testing.assert_allclose(anchors.target_vectors, inverse @ y, atol=1e-8)
    # A chi-square with k degrees of freedom: relative deviation sqrt(2 / k).
    bound = 5 * math.sqrt(2 / k)
    covariance = anchors.leverage_vectors @ anchors.leverage_vectors.T / k
    scale = np.sqrt(np.outer(np.diag(inverse), np.diag(inverse)))
    assert np.abs((covariance - inverse) / scale).max() < bound
    dimension = oracles.statistical_dimension(K, alpha)
    assert anchors.total_leverage == pytest.approx(dimension, rel=bound)
    # And the scores of pool features, against the oracle's leverage of the explicit lifting.
    series = Gaussian(0.3).series(X, 1e-9)
    frame = Frame.of_series(series).along_columns(X)
    pool = list(oracles.multisets(3, 2))
    features = ProductFeatures(
        frame, MonomialBasis(series), Multisets.from_tuples(pool), np.ones(len(pool)), sparse=False
    )
    pool_ = Pool(features, np.ones(len(pool)), np.ones(len(pool)), complete=False)
    scores = score_pool(pool_, anchors, 1)
    Phi = explicit(series, frame.points(X), pool).T[features.trie.order]
    exact = np.array([phi @ inverse @ phi for phi in Phi])
    np.testing.assert_allclose(scores.leverage, exact, rtol=bound)
    np.testing.assert_allclose(scores.target, ((Phi @ inverse @ y) ** 2).sum(axis=1), rtol=1e-6)
    assert scores.missed_leverage == pytest.approx(1 - exact.sum() / dimension, abs=2 * bound)


def test_a_singular_matrix_is_factored_with_jitter() -> None:
    K = np.ones((30, 30))
    factor, shift = regularised_cholesky(K, 0.0)
    assert 0 < shift < 1e-6
    np.testing.assert_allclose(factor @ factor.T, K + shift * np.eye(30), atol=1e-12)


# --- targets -------------------------------------------------------------------------------------


def test_regression_targets_are_standardised() -> None:
    y = np.random.default_rng(0).normal(3.0, 5.0, size=(50, 2))
    for given_, columns in ((y, 2), (y[:, 0], 1), (y.astype(np.float32), 2), (y.tolist(), 2)):
        targets = target_columns(given_, 50)
        assert targets.shape == (50, columns)
        np.testing.assert_allclose(targets.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(targets.std(axis=0), 1.0)
    np.testing.assert_allclose(np.corrcoef(target_columns(y, 50)[:, 1], y[:, 1])[0, 1], 1.0)


@pytest.mark.parametrize(
    "y",
    [
        np.array(["red", "green", "blue", "red", "red"]),
        np.array(["red", "green", "blue", "red", "red"], dtype=object),
        np.array([7, 3, 5, 7, 7]),
        np.array([[7], [3], [5], [7], [7]], dtype=np.uint8),
    ],
    ids=["strings", "objects", "integers", "a column of integers"],
)
def test_class_labels_make_a_column_each(y: Array) -> None:
    targets = target_columns(y, 5)
    assert targets.shape == (5, 3)
    labels = np.asarray(y).ravel()
    for column in targets.T:
        above = column > 0
        assert len(set(labels[above])) == 1, "a column is positive on one class only"
        assert set(labels[~above]).isdisjoint(labels[above])


def test_booleans_and_counts() -> None:
    assert target_columns(np.array([True, False, True]), 3).shape == (3, 2)
    several = np.arange(12).reshape(4, 3)
    np.testing.assert_allclose(np.abs(target_columns(several, 4)).sum(axis=0), 4 * 2 / math.sqrt(5))
    many = np.arange(MAX_CLASSES + 1)
    assert target_columns(many, len(many)).shape == (len(many), 1), "counts are numbers"


@pytest.mark.parametrize(
    "y", [None, np.full(7, 2.5), np.full(7, 0.1), np.full(7, 3), np.full(7, "a")]
)
def test_a_target_without_information_has_no_column(y: Any) -> None:
    assert target_columns(y, 7).shape == (7, 0)


def test_a_constant_output_among_others_is_dropped() -> None:
    y = np.stack([np.arange(7.0), np.full(7, 2.0)], axis=1)
    assert target_columns(y, 7).shape == (7, 1)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.arange(5.0), "5.*7"),
        (np.array([1.0, np.nan, 0, 0, 0, 0, 0]), "NaN"),
        (np.array([1.0, np.inf, 0, 0, 0, 0, 0]), "NaN or infinity"),
        (np.array([1.0, np.nan, 0, 0, 0, 0, 0], dtype=object), "NaN"),
        (3.0, "y"),
        ([], "0.*7"),
    ],
    ids=["too short", "NaN", "infinity", "an object that is NaN", "a number", "empty"],
)
def test_bad_targets(y: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        target_columns(y, 7)


# --- spaces --------------------------------------------------------------------------------------


def monomial_space(kernel: Any, A: Any, options: EngineOptions = DEFAULTS) -> MonomialSpace:
    series = kernel.series(A, 1e-6, center=False)
    frame = Frame.of_series(series).along_columns(A)
    return MonomialSpace(series, frame, A, RowPlan.of(A, 0, options))


@pytest.mark.parametrize(
    ("budget", "degrees", "lowest"), [(0, [], 0), (1, [0], 2), (6, [0], 2), (7, [0, 2], 4)]
)
def test_whole_degrees_fit_the_budget(budget: int, degrees: list[int], lowest: int) -> None:
    """Degrees 0, 2 and 4 over three columns have 1, 6 and 15 monomials."""
    X = np.random.default_rng(0).normal(size=(10, 3))
    gaps = monomial_space(DRAW_KERNELS["gaps"], X)
    whole, first = gaps.whole_degrees(budget)
    assert sorted(whole.tuples()) == sorted(m for m in oracles.multisets(3, 4) if len(m) in degrees)
    assert first == lowest
    assert gaps.all_features(21) is None
    assert len(gaps.all_features(22)) == 22


def test_a_column_of_zeros_makes_no_feature() -> None:
    X = np.random.default_rng(0).normal(size=(10, 3))
    X[:, 1] = 0.0
    listed = monomial_space(Polynomial(3), X).all_features(10)
    assert sorted(listed.tuples()) == sorted(m for m in oracles.multisets(3, 3) if 1 not in m)


@pytest.mark.parametrize("name", ["polynomial", "gaps", "homogeneous"])
def test_all_nonzero_features_of_sparse_rows(name: str) -> None:
    """One-hot pairs: of the 35 or more monomials over 8 columns few are ever nonzero."""
    rng = np.random.default_rng(0)
    X = np.zeros((12, 8))
    X[np.arange(12), rng.integers(4, size=12)] = 1.5
    X[np.arange(12), 4 + rng.integers(3, size=12)] = -0.5
    X[2] = 0.0
    kernel = DRAW_KERNELS[name]
    tuples = list(oracles.multisets(8, 4))
    coefficients = np.exp(kernel._log_coefficients(kernel.series(X, 1e-6).degree))
    nonzero = [
        m
        for m in tuples
        if len(m) < len(coefficients)
        and coefficients[len(m)] > 0
        and any(all(row[i] != 0 for i in m) for row in X)
    ]
    sparse = monomial_space(kernel, sp.csr_array(X))
    assert sorted(sparse.all_features(len(nonzero)).tuples()) == sorted(nonzero)
    assert sparse.all_features(len(nonzero) - 1) is None


def test_captured_trace_is_a_share() -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    monomials = monomial_space(Exponential(0.2), X)
    shares = [monomials.captured_trace(s, 0, 1) for s in (1, 10, 100)]
    assert 0 < shares[0] < shares[1] < shares[2] <= 1 + 1e-12


@pytest.mark.parametrize("n_components", [4, 12, 25, 35, 100])
def test_a_pool_from_a_space(n_components: int) -> None:
    """Low degrees whole with probability 1, the rest below, nothing twice; norms as they are."""
    X = np.random.default_rng(0).normal(size=(20, 3))
    polynomial = monomial_space(Polynomial(4, 0.5), X)
    pool = polynomial.draw(n_components, 0, 1, n_components // 2)
    names = pool.features.multisets.tuples()
    assert len(set(names)) == len(names) == min(n_components, 35)
    assert pool.complete == (n_components >= 35)
    whole = [m for w, room in ((0, 2), (1, 8), (2, 20)) if n_components >= room
             for m in oracles.multisets(3, w) if len(m) == w]  # fmt: skip
    assert set(whole) <= set(names)
    assert (pool.inclusion > 0).all()
    assert (pool.inclusion <= 1).all()
    assert {m for m, pi in zip(names, pool.inclusion, strict=True) if pi == 1} >= set(whole)
    squares = (explicit(polynomial.series, polynomial.frame.points(X), names) ** 2).sum(axis=0)
    np.testing.assert_allclose(pool.norms / pool.norms.sum(), squares / squares.sum())


def test_proposal_rows_are_a_subset_of_many_rows() -> None:
    """Of dense rows by their number, of sparse ones by their nonzeros."""
    few, fewer = EngineOptions(proposal_rows=4), EngineOptions(sparse_proposal_entries=15)
    X = np.random.default_rng(0).normal(size=(20, 3))
    assert monomial_space(Polynomial(3), X, few).rows.shape == (4, 3)
    assert monomial_space(Polynomial(3), sp.csr_array(X), few).rows.shape == (20, 3)
    assert monomial_space(Polynomial(3), sp.csr_array(X), fewer).rows.shape == (5, 3)
