"""Sketches: their matrices, norms and variances over seeds, all P_j at once, and the contract."""

from __future__ import annotations

import itertools
import math
import pickle
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from scipy.linalg import eigh
from scipy.stats import chisquare, norm

from kernelsieve.sketches import OSNAP, SRHT, PolySketch, TensorSketch, TensorSRHT
from kernelsieve.sketches.poly_sketch import WIDENING
from kernelsieve.testing.data import SPARSE_FORMS, sparse_points, stored_arrays

Array = Any
D = 12  # columns, where it does not matter
Terms = list[tuple[float, list[Array]]]  # a vector of R^(d^q) as a sum of rank-one tensors

# --- the matrices --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "sparsity"), [(1, 1), (8, 1), (7, 1), (8, 4), (10, 4), (7, 7), (13, 12)]
)
def test_osnap_is_its_matrix(size: int, sparsity: int) -> None:
    sketch = OSNAP(30, size, sparsity).sample(0)
    matrix = oracles.sketch_matrix(lambda factors: sketch.apply(*factors), 30, 1)
    np.testing.assert_array_equal(matrix, oracles.count_sketch_matrix(sketch.codes, size))
    np.testing.assert_array_equal((matrix != 0).sum(axis=0), sparsity)
    # One nonzero in each of as many ranges, whose lengths differ by at most one.
    edges = [k * size // sparsity for k in range(sparsity + 1)]
    for first, last in itertools.pairwise(edges):
        np.testing.assert_array_equal((matrix[first:last] != 0).sum(axis=0), 1)


@pytest.mark.parametrize(("n_features", "size"), [(1, 1), (1, 3), (8, 8), (5, 3), (9, 40), (16, 1)])
def test_srht_is_its_matrix(n_features: int, size: int) -> None:
    sketch = SRHT(n_features, size).sample(0)
    matrix = oracles.sketch_matrix(lambda factors: sketch.apply(*factors), n_features, 1)
    expected = oracles.srht_matrix(sketch.signs, sketch.places)
    np.testing.assert_allclose(matrix, expected, rtol=1e-15)


@pytest.mark.parametrize(("n_features", "rounds"), [(1, 5), (8, 1), (5, 2), (9, 3)])
def test_a_full_srht_is_an_isometry(n_features: int, rounds: int) -> None:
    size = rounds * 2 ** math.ceil(math.log2(n_features))
    matrix = SRHT(n_features, size).sample(0).apply(np.eye(n_features))
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(n_features), atol=1e-15)


def test_no_place_of_an_srht_is_kept_twice_before_all_are_kept_once() -> None:
    places = SRHT(16, 40).sample(0).places
    np.testing.assert_array_equal(np.sort(places[:16]), np.arange(16))
    np.testing.assert_array_equal(np.sort(places[16:32]), np.arange(16))
    assert len(set(places[32:].tolist())) == 8


@pytest.mark.parametrize(("n_left", "n_right"), [(1, 1), (4, 4), (5, 3), (2, 9)])
def test_tensor_srht_is_its_matrix(n_left: int, n_right: int) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((6, n_left)), rng.standard_normal((6, n_right))
    sketch = TensorSRHT(n_left, n_right, 11).sample(0)
    matrix = oracles.tensor_srht_matrix(
        sketch.left_signs, sketch.right_signs, sketch.left_places, sketch.right_places
    )
    products = np.array([oracles.tensor_product(pair) for pair in zip(X, Y, strict=True)])
    np.testing.assert_allclose(sketch.apply(X, Y), products @ matrix.T, rtol=0, atol=1e-13)


@pytest.mark.parametrize("size", [1, 2, 7, 16])
@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_tensor_sketch_is_its_matrix(degree: int, size: int) -> None:
    sketch = TensorSketch(4, size, degree).sample(0)
    matrix = oracles.sketch_matrix(sketch.apply_product, 4, degree)
    expected = oracles.tensor_sketch_matrix([leaf.codes for leaf in sketch.leaves], size)
    np.testing.assert_allclose(matrix, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array], ids=["dense", "CSR"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_tensor_sketch_of_scaled_rows_with_a_constant(
    degree: int, dtype: Any, container: Callable[[Array], Any]
) -> None:
    """(scale x, constant) is never formed, and sketched as if it were."""
    X = sparse_points(d=D).astype(dtype)
    extended = np.hstack([0.5 * X, np.full((len(X), 1), -1.5)]).astype(dtype)
    atol = 20 * float(np.finfo(dtype).eps)
    for seed in range(5):  # the constant's sign and bucket differ
        sketch = TensorSketch(D, 10, degree, scale=0.5, constant=-1.5).sample(seed)
        plain = TensorSketch(D + 1, 10, degree).sample(seed)
        Z = sketch.apply(container(X))
        assert Z.dtype == dtype
        np.testing.assert_allclose(Z, plain.apply(extended), rtol=0, atol=atol * np.abs(Z).max())
    with pytest.raises(ValueError, match=rf"{D + 1} columns.* {D}\b"):
        sketch.apply(container(extended))


def tree_matrix(tree: Any) -> Array:
    """S = T (S_left (x) S_right), from the parts of a sampled tree."""
    if tree.count == 1:
        return oracles.count_sketch_matrix(tree.osnap.codes, tree.osnap.size)
    join = oracles.tensor_srht_matrix(
        tree.join.left_signs, tree.join.right_signs, tree.join.left_places, tree.join.right_places
    )
    return join @ np.kron(tree_matrix(tree.left), tree_matrix(tree.right))


@pytest.mark.parametrize("size", [None, 5])
@pytest.mark.parametrize("degree", [1, 2, 3, 4, 5])
def test_poly_sketch_is_its_matrix(degree: int, size: int | None) -> None:
    sketch = PolySketch(3, size, degree, width=8, sparsity=2).sample(0)
    matrix = oracles.sketch_matrix(sketch.apply_product, 3, degree)
    expected = tree_matrix(sketch.tree)
    if size is not None:
        expected = sketch.gaussian.T @ expected
    np.testing.assert_allclose(matrix, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("degree", [1, 2, 3, 5, 8])
def test_the_parts_of_a_sketch_are_independent(degree: int) -> None:
    """No two leaves, and no two nodes, draw the same numbers."""
    leaves = [leaf.codes for leaf in TensorSketch(40, 32, degree).sample(3).leaves]
    parts: list[Array] = []

    def collect(tree: Any) -> None:
        if tree.count == 1:
            leaves.append(tree.osnap.codes[:, :1])
        else:
            parts.extend([tree.join.left_places, tree.join.right_places])
            collect(tree.left)
            collect(tree.right)

    collect(PolySketch(40, None, degree, width=32, sparsity=1).sample(3).tree)
    # 32 numbers out of 32 or 64 agree by chance in about one place, in more than 14 never.
    for arrays in (leaves, parts):
        for i, one in enumerate(arrays):
            assert all((one == other).sum() < 14 for other in arrays[:i])


@pytest.mark.parametrize(("size", "sparsity"), [(8, 1), (8, 4), (10, 4)])
def test_buckets_and_signs_of_osnap_are_uniform(size: int, sparsity: int) -> None:
    """A code is one of 2 size, each with the same chance within its range of buckets."""
    n = 40_000
    codes = OSNAP(n, size, sparsity).sample(0).codes
    edges = [k * size // sparsity for k in range(sparsity + 1)]
    for copy, (first, last) in zip(codes.T, itertools.pairwise(edges), strict=True):
        check_uniform(np.where(copy < 0, ~copy, copy + size), [*range(first, last)], size)


def check_uniform(values: Array, buckets: list[int], size: int) -> None:
    """A chi-square test: every bucket with a minus (as it is) and with a plus (size more)."""
    allowed = [*buckets, *(bucket + size for bucket in buckets)]
    counts = np.bincount(values, minlength=2 * size)
    assert counts[allowed].sum() == len(values)
    assert chisquare(counts[allowed]).pvalue > 2 * norm.sf(4.0)


def test_signs_and_places_of_hadamard_sketches_are_uniform() -> None:
    one, two = SRHT(32_768, 8).sample(0), TensorSRHT(32_768, 16, 40_000).sample(0)
    for signs in (one.signs, two.left_signs):
        assert set(signs.tolist()) == {-1, 1}
        assert abs(signs.sum(dtype=int)) < 4 * math.sqrt(len(signs))
    assert chisquare(np.bincount(two.right_places, minlength=16)).pvalue > 2 * norm.sf(4.0)
    pairs = 16 * (two.left_places // 2048) + two.right_places  # 16 x 16 cells
    assert chisquare(np.bincount(pairs, minlength=256)).pvalue > 2 * norm.sf(4.0)


def test_the_gaussian_has_variance_one_over_size() -> None:
    entries = PolySketch(D, 2, 2, width=2**14).sample(0).gaussian
    assert entries.shape == (2**14, 2)
    assert 2 * np.square(entries).mean() == pytest.approx(1.0, abs=4 * math.sqrt(2 / entries.size))


def test_trees_are_balanced() -> None:
    def depth(tree: Any) -> int:
        return 0 if tree.count == 1 else 1 + max(depth(tree.left), depth(tree.right))

    for degree in range(1, 18):
        tree = PolySketch(3, None, degree, width=4).sample(0).tree
        assert depth(tree) == math.ceil(math.log2(degree))


# --- norms and variances over seeds --------------------------------------------------------------

SEEDS = 200
COLUMNS = {1: 50, 2: 20, 3: 8, 5: 5}


def vectors(degree: int) -> dict[str, Terms]:
    """Vectors of R^(d^q), each a sum of rank-one tensors."""
    d = COLUMNS[degree]
    rng = np.random.default_rng(degree)
    unit, flat, alternating = np.eye(d), np.ones(d), (-1.0) ** np.arange(d)

    def random_factors(density: float = 1.0) -> list[Array]:
        factors = [rng.standard_normal(d) * (rng.random(d) < density) for _ in range(degree)]
        return [np.where(f.any(), f, unit[0]) for f in factors]

    found: dict[str, Terms] = {
        "one coordinate": [(2.0, [unit[d - 1]] * degree)],
        "equal coordinates": [(1.0, [flat] * degree)],
        "a power": [(1.0, [rng.standard_normal(d)] * degree)],
        "a product": [(1.0, random_factors())],
        "a sparse product": [(1.0, random_factors(0.2))],
        "a few coordinates": [(c, [unit[i] for i in rng.integers(d, size=degree)]) for c in (1, 3)],
        "the diagonal": [(1.0, [unit[i]] * degree) for i in range(d)],
        "a general tensor": [(rng.standard_normal(), random_factors()) for _ in range(6)],
    }
    if degree > 1:
        one, other = [flat, alternating] * degree, [alternating, flat] * degree
        found["antisymmetric"] = [(1.0, one[:degree]), (-1.0, other[:degree])]
    return found


# Rank-one tensors without a part of rare events: two nonzeros that hardly ever meet in 200 seeds
# leave a sample variance of zero.
EXACT = ("one coordinate", "equal coordinates", "a power", "a product")


def ratios(apply: Callable[[int, list[Array]], Array], degree: int, seeds: range) -> Array:
    """|Sy|^2 / |y|^2 for all vectors y and seeds: shape (seeds, vectors)."""
    every = list(vectors(degree).values())
    rows = [factors for terms in every for _, factors in terms]
    factors = [np.array([row[b] for row in rows]) for b in range(degree)]
    sums = np.zeros((len(every), len(rows)))
    place = 0
    for v, terms in enumerate(every):
        for coefficient, _ in terms:
            sums[v, place] = coefficient
            place += 1
    gram = math.prod(factor @ factor.T for factor in factors)
    exact = np.einsum("vt,tu,vu->v", sums, gram, sums)
    return np.array([np.square(sums @ apply(s, factors)).sum(axis=1) / exact for s in seeds])


@dataclass(frozen=True)
class Case:
    """A sketch: how to apply it, and what its theorem says of Var |Sy|^2 / |y|^4 for any y."""

    degree: int
    apply: Callable[[int, list[Array]], Array]
    bound: float
    exact: Callable[[list[Array]], float] | None = None  # for one rank-one tensor


def apply_rows(distribution: Any, seed: int, factors: list[Array]) -> Array:
    return distribution.sample(seed).apply(*factors)


def apply_tensor(distribution: Any, seed: int, factors: list[Array]) -> Array:
    return distribution.sample(seed).apply_product(factors)


def osnap_case(size: int, sparsity: int) -> Case:
    """2 |x|^4 / size with equal ranges; else 2 |x|^4 (1/s^2) sum_b 1 / (buckets of range b)."""
    edges = np.array([k * size // sparsity for k in range(sparsity + 1)])
    scale = float(size * np.sum(1.0 / np.diff(edges)) / sparsity**2)  # 1 if they are equal
    apply = partial(apply_rows, OSNAP(COLUMNS[1], size, sparsity))
    return Case(
        1, apply, 2.0 * scale / size, lambda xs: scale * oracles.osnap_variance(*xs, size=size)
    )


def srht_case(size: int) -> Case:
    """2 |x|^4 / size with replacement; less without (oracles.srht_variance derives both)."""
    exact = partial(oracles.srht_variance, size=size)
    apply = partial(apply_rows, SRHT(COLUMNS[1], size))
    return Case(1, apply, 2.0 / size, lambda xs: exact(*xs))


def tensor_srht_case(size: int) -> Case:
    """(3^2 - 1) |y|^4 / size.

    Given the signs, the places are i.i.d. with mean |y|^2 (Parseval), so that Var is that of one
    squared entry over size. An entry is linear in each of two vectors of signs, so its fourth
    moment is at most 3^2 times its squared second (Khintchine, once for each vector).
    """
    exact = partial(oracles.tensor_srht_variance, size=size)
    apply = partial(apply_rows, TensorSRHT(COLUMNS[2], COLUMNS[2], size))
    return Case(2, apply, 8.0 / size, lambda xs: exact(*xs))


def tensor_sketch_case(degree: int, size: int) -> Case:
    """(3^q - 1) |y|^4 / size.

    E (|Sy|^2 - |y|^2)^2 sums y_I y_J y_K y_L over I != J and K != L, each with the mean of its
    signs (0 or 1) times the chance that I meets J and K meets L, which is at most 1/size. Without
    that chance, and with absolute values, all I, J, K, L together give the fourth moment of
    sum_I sign_I |y_I|, linear in each of q vectors of signs: at most 3^q |y|^4. The terms with
    I = J and K = L are |y|^4 of it.
    """
    exact = partial(oracles.tensor_sketch_variance, size=size)
    apply = partial(apply_tensor, TensorSketch(COLUMNS[degree], size, degree))
    return Case(degree, apply, (3.0**degree - 1.0) / size, exact)


def poly_sketch_bound(degree: int, size: int | None, width: int) -> float:
    """(1 + 2/w)^q (1 + 8/w)^(q-1) (1 + 2/size) - 1, without the last factor if there is no G.

    E |Sz|^4 <= (1 + v) |z|^4 with v = 2/w for a leaf and 8/w for a node, and the same for
    I (x) S (x) I: |.|^2 adds up over blocks, and so do square roots of E |.|^4 at most. The tree is
    a product of q leaves and q - 1 nodes of this form, and of G with E |Gz|^4 = (1 + 2/size) |z|^4.
    """
    fourth = (1.0 + 2.0 / width) ** degree * (1.0 + 8.0 / width) ** (degree - 1)
    return fourth * (1.0 if size is None else 1.0 + 2.0 / size) - 1.0


def poly_sketch_case(degree: int, size: int | None, width: int) -> Case:
    distribution = PolySketch(COLUMNS[degree], size, degree, width=width)
    bound = poly_sketch_bound(degree, size, width)
    return Case(degree, partial(apply_tensor, distribution), bound)


CASES = {
    "OSNAP, 1": osnap_case(64, 1),
    "OSNAP, 4": osnap_case(64, 4),
    "OSNAP, 4, ranges that differ": osnap_case(30, 4),
    "SRHT": srht_case(24),
    "SRHT, odd": srht_case(7),
    "SRHT, more than one round": srht_case(100),
    "TensorSRHT": tensor_srht_case(128),
    **{f"TensorSketch, {q}": tensor_sketch_case(q, 128 * 2**q) for q in COLUMNS},
    "TensorSketch, 3, odd": tensor_sketch_case(3, 501),
    **{f"PolySketch, {q}, no Gaussian": poly_sketch_case(q, None, 128) for q in COLUMNS},
    **{f"PolySketch, {q}": poly_sketch_case(q, 48, 128) for q in COLUMNS},
}
NAMES = [(case, vector) for case in CASES for vector in vectors(CASES[case].degree)]
# Three standard deviations for the family of all comparisons: a mean and a variance for each case
# and vector share the chance of 0.0027 that a right sketch would fail.
CRITICAL = float(norm.isf(norm.sf(3.0) / (2 * len(NAMES))))


def variance_and_error(values: Array) -> tuple[Array, Array]:
    """Sample variances of columns, and their standard errors from the fourth moments."""
    centred = values - values.mean(axis=0)
    variance = np.square(centred).mean(axis=0)
    fourth = (centred**4).mean(axis=0)
    return variance, np.sqrt((fourth - variance**2).clip(min=0.0) / len(values))


def check_norms(name: str, seeds: range, critical: float) -> None:
    """Mean 1, variance within the bound, and the exact variance where it is known."""
    case = CASES[name]
    names = list(vectors(case.degree))
    values = ratios(case.apply, case.degree, seeds)
    error = values.std(axis=0, ddof=1) / math.sqrt(len(seeds))
    bias = values.mean(axis=0) - 1.0
    variance, its_error = variance_and_error(values)
    for v, vector in enumerate(names):
        label = f"{name}, {vector}"
        assert abs(bias[v]) <= critical * error[v] + 1e-12, f"{label}: bias {bias[v]:.3g}"
        slack = critical * its_error[v] + 1e-12
        assert variance[v] <= case.bound + slack, f"{label}: variance {variance[v]:.3g}"
        if case.exact is not None and vector in EXACT:
            exact = case.exact(vectors(case.degree)[vector][0][1])
            assert abs(variance[v] - exact) <= slack, f"{label}: {variance[v]:.3g}, not {exact:.3g}"


@pytest.mark.parametrize("name", CASES)
def test_norms_are_kept(name: str) -> None:
    check_norms(name, range(SEEDS), CRITICAL)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_norms_are_kept_over_many_seeds(name: str) -> None:
    """The same with a quarter of the error."""
    check_norms(name, range(SEEDS, 17 * SEEDS), CRITICAL)


@pytest.mark.parametrize("sparsity", [1, 4])
def test_a_single_coordinate_keeps_its_norm_exactly(sparsity: int) -> None:
    x = 3.0 * np.eye(1, 20, 7)
    for seed in range(20):
        for distribution in (OSNAP(20, 16, sparsity), SRHT(20, 5), TensorSketch(20, 16, 3)):
            norms = np.linalg.norm(distribution.sample(seed).apply(x))
            assert norms == pytest.approx(27.0 if "Tensor" in repr(distribution) else 3.0)


def test_growth_with_the_degree() -> None:
    """Mean squares at 128 coordinates: PolySketch's are 2.5 q / 128, TensorSketch's exponential."""
    d, size, degrees = 20, 128, (2, 12)
    X = np.stack([np.ones(d), np.random.default_rng(0).standard_normal(d)])
    X /= np.linalg.norm(X, axis=1, keepdims=True)

    def mean_squares(distribution: Any) -> Array:
        errors = [np.square(distribution.sample(s).apply(X)).sum(axis=1) - 1 for s in range(100)]
        return np.mean(np.square(errors), axis=0)

    low, high = (mean_squares(PolySketch(d, size, q)) for q in degrees)
    bounds = [poly_sketch_bound(q, size, WIDENING * size) for q in degrees]
    # The mean of 100 squares of nearly normal errors has a relative error of sqrt(2 / 100).
    assert (low <= 1.5 * bounds[0]).all()
    assert (high <= 1.5 * bounds[1]).all()
    assert (mean_squares(TensorSketch(d, size, degrees[1])) > 10 * high).all()


# --- all P_j from one tree -----------------------------------------------------------------------

EPSILON = {np.float32: 2e-5, np.float64: 1e-13}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array], ids=["dense", "CSR"])
@pytest.mark.parametrize("size", [None, 10])
@pytest.mark.parametrize("degree", range(1, 10))
def test_apply_all_is_separate_products(
    degree: int, size: int | None, container: Callable[[Array], Any], dtype: Any
) -> None:
    X = container(sparse_points(d=12).astype(dtype))
    E = container(np.eye(1, 12, dtype=dtype).repeat(X.shape[0], axis=0))
    sketch = PolySketch(12, size, degree, width=32).sample(degree)
    together = sketch.apply_all(X)
    assert together.shape == (degree + 1, X.shape[0], sketch.size)
    assert together.dtype == dtype
    for j, P in enumerate(together):
        expected = sketch.apply_product([X] * (degree - j) + [E] * j)
        atol = EPSILON[dtype] * np.abs(expected).max()
        np.testing.assert_allclose(P, expected, rtol=0, atol=atol, err_msg=f"j = {j}")
    np.testing.assert_allclose(together[0], sketch.apply(X), rtol=0, atol=EPSILON[dtype])


def test_apply_all_keeps_the_norms_of_every_power() -> None:
    """E |P_j x|^2 = |x|^(2 (q - j)), within the bound that holds for every vector."""
    X = np.random.default_rng(0).standard_normal((3, 6))
    degree, size, width = 4, 24, 96
    powers = np.linalg.norm(X, axis=1) ** (2.0 * np.arange(degree, -1, -1)[:, None])
    distribution = PolySketch(6, size, degree, width=width)
    values = [np.square(distribution.sample(s).apply_all(X)).sum(axis=2) for s in range(SEEDS)]
    bias = np.mean(values, axis=0) / powers - 1.0
    bound = poly_sketch_bound(degree, size, 64)  # 96 becomes 128: this has room
    assert np.abs(bias).max() <= norm.isf(norm.sf(3.0) / bias.size) * math.sqrt(bound / SEEDS)


# --- the contract --------------------------------------------------------------------------------

DISTRIBUTIONS: dict[str, Any] = {
    "OSNAP": OSNAP(D, 10),
    "OSNAP, 3": OSNAP(D, 10, sparsity=3),
    "SRHT": SRHT(D, 10),
    "TensorSRHT": TensorSRHT(D, D, 10),
    "TensorSketch": TensorSketch(D, 10, 3),
    "PolySketch": PolySketch(D, 10, 3),
    "PolySketch, no Gaussian": PolySketch(D, None, 3, width=16),
}
every_sketch = pytest.mark.parametrize("name", DISTRIBUTIONS)


def apply(sketch: Any, X: Any, **options: Any) -> Array:
    """The sketch of every row, or of its square."""
    pair = type(sketch).__name__ == "SampledTensorSRHT"
    return sketch.apply(X, X, **options) if pair else sketch.apply(X, **options)


def sketched(name: str, X: Any, seed: Any = 0) -> Array:
    return apply(DISTRIBUTIONS[name].sample(seed), X)


@every_sketch
@pytest.mark.parametrize("form", SPARSE_FORMS)
def test_sparse_is_dense(name: str, form: str) -> None:
    X = sparse_points(d=D)
    A = SPARSE_FORMS[form](X)
    before = stored_arrays(A)
    np.testing.assert_allclose(sketched(name, A), sketched(name, X), rtol=0, atol=1e-14)
    for kept, now in zip(before, stored_arrays(A), strict=True):
        np.testing.assert_array_equal(now, kept)


@every_sketch
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array], ids=["dense", "CSR"])
def test_float32_stays_float32(name: str, container: Callable[[Array], Any]) -> None:
    X = sparse_points(d=D)
    wide, narrow = sketched(name, X), sketched(name, container(X.astype(np.float32)))
    assert (wide.dtype, narrow.dtype) == (np.float64, np.float32)
    np.testing.assert_allclose(narrow, wide, rtol=0, atol=1e-5 * np.abs(wide).max())


@every_sketch
def test_integers_and_lists_are_numbers(name: str) -> None:
    X = np.arange(2 * D).reshape(2, D)
    expected = sketched(name, X.astype(np.float64))
    np.testing.assert_array_equal(sketched(name, X), expected)
    np.testing.assert_array_equal(sketched(name, X.tolist()), expected)


@every_sketch
def test_same_seed_same_operator(name: str) -> None:
    X = sparse_points(d=D)
    expected = sketched(name, X)
    np.testing.assert_array_equal(sketched(name, X, 0), expected)
    np.testing.assert_array_equal(sketched(name, X, np.int64(0)), expected)
    assert np.abs(sketched(name, X, 1) - expected).max() > 0.01
    for make in (np.random.default_rng, np.random.RandomState):
        one, other = sketched(name, X, make(5)), sketched(name, X, make(5))
        np.testing.assert_array_equal(one, other)
        state = make(5)
        assert np.abs(sketched(name, X, state) - sketched(name, X, state)).max() > 0.01


@every_sketch
def test_a_copy_sketches_alike(name: str) -> None:
    X = sparse_points(d=D)
    sketch = DISTRIBUTIONS[name].sample(0)
    expected = apply(sketch, X.astype(np.float32))  # an operator that was used pickles too
    again = pickle.loads(pickle.dumps(sketch))
    np.testing.assert_array_equal(apply(again, X.astype(np.float32)), expected)
    np.testing.assert_array_equal(apply(again, X), apply(sketch, X))


@every_sketch
def test_operators_can_be_keys(name: str) -> None:
    """Each is itself only: their arrays are not compared."""
    one, other = DISTRIBUTIONS[name].sample(0), DISTRIBUTIONS[name].sample(0)
    assert len({one, other, one}) == 2


WIDE = {
    "OSNAP": OSNAP(D, 9000),
    "OSNAP, 3": OSNAP(D, 9000, sparsity=3),
    "SRHT": SRHT(5000, 100),
    "TensorSRHT": TensorSRHT(5000, 5000, 100),
    "TensorSketch": TensorSketch(D, 9000, 3),
    "PolySketch": PolySketch(D, 64, 3, width=4096),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array], ids=["dense", "CSR"])
@pytest.mark.parametrize("name", WIDE)
def test_threads_do_not_change_the_bits(
    name: str, container: Callable[[Array], Any], dtype: Any
) -> None:
    """Wide enough for blocks of a few rows."""
    distribution = WIDE[name]
    d = getattr(distribution, "n_features", 5000)
    X = container(sparse_points(n=70, d=d).astype(dtype))
    one, *others = (apply(distribution.sample(0), X, n_jobs=n) for n in (1, 2, 3, -1, None))
    for other in others:
        np.testing.assert_array_equal(other, one)
    if name == "PolySketch":
        sketch = distribution.sample(0)
        np.testing.assert_array_equal(sketch.apply_all(X, n_jobs=3), sketch.apply_all(X, n_jobs=1))


@every_sketch
def test_rows_do_not_depend_on_each_other(name: str) -> None:
    X = sparse_points(n=70, d=D)
    np.testing.assert_allclose(sketched(name, X)[20:25], sketched(name, X[20:25]), atol=1e-14)


@every_sketch
def test_read_only_and_fortran_arrays(name: str) -> None:
    X = sparse_points(d=D)
    expected = sketched(name, X)
    X.setflags(write=False)
    np.testing.assert_array_equal(sketched(name, X), expected)
    np.testing.assert_array_equal(sketched(name, np.asfortranarray(X)), expected)
    np.testing.assert_array_equal(sketched(name, X.repeat(2, axis=1)[:, ::2]), expected)
    rows = sp.csr_array(X)
    for part in (rows.data, rows.indices, rows.indptr):
        part.setflags(write=False)
    np.testing.assert_allclose(sketched(name, rows), expected, rtol=0, atol=1e-14)


@every_sketch
def test_zero_rows_have_zero_sketches(name: str) -> None:
    X = sparse_points(d=D)
    empty = ~X.any(axis=1)
    assert empty.any()
    for rows in (X, sp.csr_array(X)):
        np.testing.assert_array_equal(sketched(name, rows)[empty], 0.0)
    np.testing.assert_array_equal(sketched(name, sp.csr_array((3, D))), 0.0)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array], ids=["dense", "CSR"])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_one_column_and_few_coordinates(size: int, container: Callable[[Array], Any]) -> None:
    """On one column every vector is one coordinate: |S x|^2 = x^2, for the tree in the mean."""
    x = np.array([[0.0], [1.0], [-3.0]])
    X = container(x)
    for distribution in (OSNAP(1, size), OSNAP(1, size, sparsity=size), SRHT(1, size)):
        Z = distribution.sample(0).apply(X)
        np.testing.assert_allclose(np.square(Z).sum(axis=1), np.square(x[:, 0]), rtol=1e-14)
    Z = TensorSketch(1, size, 3).sample(0).apply(X)
    np.testing.assert_allclose(np.square(Z).sum(axis=1), x[:, 0] ** 6, rtol=1e-13, atol=1e-25)
    Z = TensorSRHT(1, 1, size).sample(0).apply(X, X)
    np.testing.assert_allclose(np.square(Z).sum(axis=1), x[:, 0] ** 4, rtol=1e-14)
    Z = PolySketch(1, size, 3).sample(0).apply(X)
    assert Z.shape == (3, size)
    np.testing.assert_allclose(Z[2], -27.0 * Z[1], rtol=1e-13)
    assert PolySketch(1, None, 3, width=1).sample(0).apply_all(X).shape == (4, 3, 1)


def test_wide_trees_are_powers_of_two() -> None:
    assert PolySketch(D, None, 2, width=17).sample(0).size == 32
    assert PolySketch(D, 17, 2).sample(0).size == 17
    assert PolySketch(D, 17, 2).sample(0).width == 128


@pytest.mark.parametrize("name", ["TensorSketch", "PolySketch"])
def test_products_of_different_factors(name: str) -> None:
    """float32 and float64, dense and CSR, may be mixed; each factor has its own place."""
    sketch = DISTRIBUTIONS[name].sample(0)
    A, B, C = (sparse_points(d=D, seed=seed) for seed in (1, 2, 3))
    expected = sketch.apply_product([A, B, C])
    assert np.abs(sketch.apply_product([B, A, C]) - expected).max() > 0.1
    mixed = sketch.apply_product([A.astype(np.float32), sp.csr_array(B), sp.csc_array(C)])
    assert mixed.dtype == np.float64
    np.testing.assert_allclose(mixed, expected, rtol=0, atol=1e-5)
    narrow = sketch.apply_product([sp.csr_array(M.astype(np.float32)) for M in (A, B, C)])
    assert narrow.dtype == np.float32
    np.testing.assert_array_equal(sketch.apply_product([A, A, A]), sketch.apply(A))


# --- very many columns ---------------------------------------------------------------------------

MANY = 10_000_000
HUGE = {
    "OSNAP": (OSNAP(MANY, 64), 1),
    "TensorSketch": (TensorSketch(MANY, 64, 2), 2),
    "PolySketch": (PolySketch(MANY, 16, 1, sparsity=2), 2),
}


def memory_of(call: Callable[[], Any]) -> tuple[Any, int]:
    """What a call returns, and the bytes that it needed at most."""
    tracemalloc.start()
    try:
        result = call()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", HUGE)
def test_ten_million_columns(name: str) -> None:
    """A table of one int32 for each copy of a coordinate, and nothing as long beside it."""
    distribution, copies = HUGE[name]
    rng = np.random.default_rng(0)
    columns = np.concatenate([[0, MANY - 1], rng.integers(MANY, size=58)])
    X = sp.csr_array((rng.standard_normal(60), (np.arange(60) % 4, columns)), shape=(4, MANY))
    sketch, drawing = memory_of(lambda: distribution.sample(0))
    assert drawing < 5.1 * MANY * copies  # the signs, one byte each, are gone at the end
    apply(sketch, X)  # loading the compiled code is not counted
    Z, applying = memory_of(lambda: apply(sketch, X))
    assert applying < 1_000_000
    # The same operator on the columns that occur, from its own table.
    occurring = np.unique(X.indices)
    if name == "OSNAP":
        matrix = oracles.count_sketch_matrix(sketch.codes[occurring], 64)
        np.testing.assert_allclose(Z, X[:, occurring].toarray() @ matrix.T, rtol=0, atol=1e-14)
    if name == "PolySketch":
        P, applying = memory_of(lambda: sketch.apply_all(X))
        assert applying < 1_000_000
        np.testing.assert_array_equal(P[0], Z)


# --- errors --------------------------------------------------------------------------------------


@every_sketch
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array], ids=["dense", "CSR"])
def test_wrong_widths_and_missing_values(name: str, container: Callable[[Array], Any]) -> None:
    for width in (1, D - 1, D + 1):
        with pytest.raises(ValueError, match=rf"{width}\b.* {D}\b"):
            sketched(name, container(np.ones((2, width))))
    for bad in (np.nan, np.inf):
        X = np.ones((2, D))
        X[1, 1] = bad
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            sketched(name, container(X))


@every_sketch
def test_not_a_matrix(name: str) -> None:
    for X in (np.ones(D), np.ones((0, D)), np.ones((2, 2, D))):
        with pytest.raises(ValueError, match=r"Expected 2D array|minimum of 1|dim 3"):
            sketched(name, X)


@pytest.mark.parametrize("name", ["TensorSketch", "PolySketch"])
def test_wrong_factors(name: str) -> None:
    sketch = DISTRIBUTIONS[name].sample(0)
    X = np.ones((2, D))
    for count in (0, 2, 4):
        with pytest.raises(
            ValueError, match=f"there are {count} factors, but the degree of this sketch is 3"
        ):
            sketch.apply_product([X] * count)
    with pytest.raises(ValueError, match="different numbers of rows"):
        sketch.apply_product([X, X, X[:1]])
    with pytest.raises(ValueError, match=r"11 columns.* 12"):
        sketch.apply_product([X, X[:, 1:], X])


def test_tensor_srht_needs_pairs() -> None:
    sketch = TensorSRHT(3, 5, 4).sample(0)
    with pytest.raises(ValueError, match=r"\(2, 5\) and \(2, 3\).* 3 and 5"):
        sketch.apply(np.ones((2, 5)), np.ones((2, 3)))
    with pytest.raises(ValueError, match="as many rows"):
        sketch.apply(np.ones((2, 3)), np.ones((1, 5)))


NUMBERS: dict[str, tuple[Callable[..., Any], dict[str, int]]] = {
    "OSNAP": (OSNAP, {"n_features": 5, "size": 4, "sparsity": 1}),
    "SRHT": (SRHT, {"n_features": 5, "size": 4}),
    "TensorSRHT": (TensorSRHT, {"n_left": 5, "n_right": 5, "size": 4}),
    "TensorSketch": (TensorSketch, {"n_features": 5, "size": 4, "degree": 2}),
    "PolySketch": (
        PolySketch,
        {"n_features": 5, "size": 4, "degree": 2, "width": 8, "sparsity": 1},
    ),
}


@pytest.mark.parametrize("bad", [0, -1, 2.5, True, "3"])
@pytest.mark.parametrize(("name", "number"), [(n, k) for n, (_, v) in NUMBERS.items() for k in v])
def test_bad_numbers_are_named(name: str, number: str, bad: Any) -> None:
    distribution, numbers = NUMBERS[name]
    with pytest.raises((TypeError, ValueError), match=rf"{number}=.*must be"):
        distribution(**{**numbers, number: bad})


def test_impossible_sparsity_and_width() -> None:
    with pytest.raises(ValueError, match="sparsity=5 is above size=4"):
        OSNAP(10, 4, sparsity=5)
    with pytest.raises(ValueError, match="size=None needs a width"):
        PolySketch(10, None, 2)


# --- one sketch for all factors (docs/one-leaf-for-all-factors.md) --------------------------------


def spectral_bounds(A: Array, B: Array, ridge: float) -> tuple[float, float]:
    """The smallest and the largest eigenvalue of A + ridge I relative to B + ridge I."""
    identity = ridge * np.eye(len(A))
    values = eigh(A + identity, B + identity, eigvals_only=True)
    return float(values[0]), float(values[-1])


@pytest.mark.parametrize("q", [2, 3, 6])
def test_a_shared_leaf_keeps_the_kernel_where_it_keeps_the_inner_products(q: int) -> None:
    """eta = eps / (4 q) for the linear kernel gives eps for its power, by Schur's theorem."""
    rng, ridge, checked = np.random.default_rng(q), 0.05, 0
    X = rng.normal(size=(40, 4)) @ rng.normal(size=(4, 3000))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X[::3] *= 0.5  # shorter rows, too
    G = X @ X.T
    for seed in range(4):
        Y = OSNAP(3000, 2**15, 4).sample(seed).apply(X)
        low, high = spectral_bounds(Y @ Y.T, G, ridge)
        eps = 4 * q * max(1.0 - low, high - 1.0)
        if eps <= 1.0:
            bottom, top = spectral_bounds((Y @ Y.T) ** q, G**q, ridge)
            assert 1.0 - eps <= bottom <= top <= 1.0 + eps
            checked += 1
    assert checked >= 2


def test_a_shared_leaf_adds_a_trace_to_norms() -> None:
    """E |C V C^T|^2 = |V|^2 + (tr(V)^2 + |V|^2 - 2 sum V_ii^2) / m."""
    d, m = 12, 6
    V = np.diag(np.arange(1.0, d + 1)) + 1.0
    values = []
    for seed in range(4000):
        C = oracles.count_sketch_matrix(OSNAP(d, m, 1).sample(seed).codes, m)
        values.append(np.square(C @ V @ C.T).sum())
    norm_squared, diagonal = np.square(V).sum(), np.diag(V)
    extra = (np.trace(V) ** 2 + norm_squared - 2 * np.square(diagonal).sum()) / m
    error = np.std(values) / np.sqrt(len(values))
    assert np.mean(values) == pytest.approx(norm_squared + extra, abs=5 * error)
    assert np.mean(values) > 1.5 * norm_squared
