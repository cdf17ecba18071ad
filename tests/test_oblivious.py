"""ObliviousFeatures, and what it shares with MaclaurinFeatures: columns of degrees, unit rows."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from support.sampled_maps import gram_of
from support.series_maps import (
    KERNELS,
    Array,
    DotProductVariant,
    ExponentialVariant,
    InversePolynomialVariant,
    PolynomialVariant,
    SeriesBattery,
    assert_unbiased,
    small_rows,
)

from kernelsieve import (
    MaclaurinFeatures,
    NystromFeatures,
    ObliviousFeatures,
    TensorSketchFeatures,
)
from kernelsieve._random import stream
from kernelsieve.features import power_tree
from kernelsieve.features.power_tree import PowerTree, spread_pairs
from kernelsieve.features.series import SeriesRows, degree_masses
from kernelsieve.kernels import (
    DotProduct,
    Exponential,
    Gaussian,
    InversePolynomial,
    Laplacian,
    Polynomial,
)
from kernelsieve.products.degrees import Monomials, _systematic, share_columns
from kernelsieve.products.multisets import count_of_degree
from kernelsieve.sketches import PolySketch
from kernelsieve.testing.bias import bias_report
from kernelsieve.testing.data import as_dense, points, sparse_points

BOTH = [ObliviousFeatures, MaclaurinFeatures]

# --- the battery ---------------------------------------------------------------------------------


class ObliviousBattery(SeriesBattery):
    map_class: ClassVar = ObliviousFeatures


class TestGaussian(ObliviousBattery):
    pass


class TestPolynomial(PolynomialVariant, ObliviousBattery):
    pass


@pytest.mark.slow
class TestGaussianCompression(PolynomialVariant, ObliviousBattery):
    parameters: ClassVar = {**PolynomialVariant.parameters, "compress": "gaussian"}


@pytest.mark.slow
class TestExponential(ExponentialVariant, ObliviousBattery):
    pass


@pytest.mark.slow
class TestInversePolynomial(InversePolynomialVariant, ObliviousBattery):
    pass


@pytest.mark.slow
class TestDotProduct(DotProductVariant, ObliviousBattery):
    pass


# --- unbiasedness over seeds ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gaussian", "homogeneous", "polynomial csr"])
def test_unbiased_quickly(name: str) -> None:
    assert_unbiased(ObliviousFeatures, name, 150)


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("n_components", [1, 7, 25])
def test_unbiased_over_many_seeds(name: str, n_components: int) -> None:
    """With one column the degree is drawn, at 25 many degrees are exact."""
    assert_unbiased(ObliviousFeatures, name, 2000, n_components=n_components)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gaussian", "homogeneous", "polynomial csr"])
def test_a_gaussian_compression_is_unbiased(name: str) -> None:
    assert_unbiased(ObliviousFeatures, name, 2000, compress="gaussian")


@pytest.mark.parametrize("map_class", BOTH)
def test_fewer_columns_than_degrees(map_class: Any) -> None:
    """One column and ten degrees: one of them is drawn, and the mean over seeds is the kernel."""
    X = small_rows()
    samples = []
    for seed in range(200):
        features = map_class(1, kernel=Exponential(0.5), random_state=seed, n_jobs=1)
        Z = features.fit_transform(X)
        assert Z.shape == (10, 1)
        samples.append(Z @ Z.T)
    report = bias_report(np.stack(samples), gram_of(Exponential(0.5), X), 1e-3)
    assert abs(report["overall scale"][1]) < 5.0


# --- accuracy ------------------------------------------------------------------------------------


def relative_error(features: Any, X: Array, K: Array) -> float:
    Z = features.fit_transform(X)
    return float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))


def mean_error(build: Callable[[int], Any], X: Array, K: Array, n_seeds: int = 5) -> float:
    return float(np.mean([relative_error(build(seed), X, K) for seed in range(n_seeds)]))


def close_rows(n: int = 100, d: int = 30) -> Array:
    """Unit rows with cosines of about 0.8, where products of projections have heavy tails."""
    X = points(n, d) + 2.0 / np.sqrt(d)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


@pytest.mark.parametrize("degree", [9, 12])
def test_half_the_error_of_tensor_sketch_at_high_degrees(degree: int) -> None:
    X, kernel = close_rows(), Polynomial(degree, 1.0, 0.0)
    K = kernel(X)
    ours, sketch, maclaurin = (
        mean_error(lambda seed, C=C: C(256, kernel=kernel, random_state=seed), X, K)
        for C in (ObliviousFeatures, TensorSketchFeatures, MaclaurinFeatures)
    )
    assert ours < 0.5 * sketch
    assert ours < 0.5 * maclaurin


def test_the_error_falls_with_the_number_of_components() -> None:
    """Sixteen times the columns: a quarter of the error or less."""
    X, kernel = points(60, 30), Polynomial(4, 1.0, 0.0)
    K = kernel(X)
    small, large = (
        mean_error(lambda seed, s=s: ObliviousFeatures(s, kernel=kernel, random_state=seed), X, K)
        for s in (32, 512)
    )
    assert large < 0.3 * small


def test_the_srht_compresses_better_than_a_gaussian() -> None:
    X, kernel = points(60, 30), Polynomial(4, 1.0, 0.0)
    K = kernel(X)
    errors = {
        how: mean_error(
            lambda seed, how=how: ObliviousFeatures(
                128, kernel=kernel, compress=how, random_state=seed
            ),
            X,
            K,
            20,
        )
        for how in ("srht", "gaussian")
    }
    assert errors["srht"] < 0.95 * errors["gaussian"]


@pytest.mark.parametrize("map_class", BOTH)
@pytest.mark.parametrize(
    "kernel", [Polynomial(2, 0.5, 1.0), Polynomial(3, 0.5, 0.0), DotProduct([0.0, 2.0])]
)
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_exact_when_all_monomials_fit(map_class: Any, kernel: Any, container: Any) -> None:
    X = sparse_points(20, 5)
    features = map_class(40, kernel=kernel, random_state=0).fit(container(X))
    Z = features.transform(container(X))
    counts = {2: 1 + 5 + 15, 3: 35, 1: 5}
    assert Z.shape == (20, counts[kernel._last_degree])
    np.testing.assert_allclose(Z @ Z.T, gram_of(kernel, X), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("map_class", BOTH)
def test_low_degrees_are_exact(map_class: Any) -> None:
    """Constant and linear parts of the Gaussian are the same for every seed."""
    X = points(30, 5)
    fits = [map_class(40, gamma=0.1, random_state=seed).fit(X) for seed in (0, 1)]
    exact = [[b.degree for b in fitted._blocks if b.exact] for fitted in fits]
    assert exact[0] == exact[1] == [0, 1, 2]
    first, second = (fitted.transform(X)[:, : 1 + 5 + 15] for fitted in fits)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("map_class", BOTH)
def test_float32_far_from_the_origin(map_class: Any) -> None:
    """The Gaussian does not see a common offset: rows are centred before anything is multiplied."""
    X = (points(30, 4) + 1e4).astype(np.float32)
    Z32 = map_class(64, gamma=0.5, random_state=0).fit_transform(X)
    Z64 = map_class(64, gamma=0.5, random_state=0).fit_transform(X.astype(np.float64))
    assert np.abs(Z32 @ Z32.T - Z64 @ Z64.T).max() < 1e-3


@pytest.mark.parametrize("map_class", BOTH)
def test_high_degrees_neither_overflow_nor_vanish(map_class: Any) -> None:
    """|x'|^2 = 60: powers of 60^80 and factors exp(-30), in float32."""
    X = points(200, 8).astype(np.float32)
    X *= np.sqrt(60.0) / np.linalg.norm(X, axis=1, keepdims=True)
    features = map_class(400, gamma=0.5, center=False, alpha=100.0, random_state=0)
    Z = features.fit_transform(X)
    assert features.truncation_degree_ > 60
    assert np.isfinite(Z).all()
    assert np.all(np.abs(Z).max(axis=1) > 0)
    if map_class is ObliviousFeatures:  # the others' variance is of order 3^60
        assert np.mean(np.sum(Z.astype(np.float64) ** 2, axis=1)) == pytest.approx(1.0, abs=0.5)


@pytest.mark.parametrize("map_class", BOTH)
def test_a_dense_fit_takes_sparse_rows(map_class: Any) -> None:
    X = sparse_points()
    features = map_class(32, random_state=0).fit(X)  # centred
    np.testing.assert_allclose(
        features.transform(sp.csr_array(X)), features.transform(X), rtol=1e-10, atol=1e-12
    )


def test_memory_is_bounded_at_high_degrees() -> None:
    """256 rows x 40 degrees x 4,096 coordinates would be 336 MB in float64."""
    X = np.random.default_rng(0).normal(size=(256, 40))
    features = ObliviousFeatures(512, kernel="poly", degree=40, gamma=0.02, random_state=0)
    features.fit(X)
    features.transform_block(X[:20])
    tracemalloc.start()
    features.transform_block(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6, f"peak of {peak / 1e6:.0f} MB, of which Z is 1 MB"


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("map_class", BOTH)
@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"kernel": Laplacian()}, "no Taylor series to sketch: use NystromFeatures"),
        ({"kernel": "gausian"}, "gausian.*gaussian"),
        ({"alpha": -1.0}, r"alpha=-1\.0"),
        ({"eps": 0.0}, r"eps=0\.0"),
        ({"center": "yes"}, "center='yes'"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"kernel": InversePolynomial(0.01)}, r"not below shift=0\.01"),
    ],
)
def test_errors_name_the_value_and_the_way_out(
    map_class: Any, parameters: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        map_class(16, **parameters).fit_transform(points())


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_rows_outside_the_domain_are_refused_at_fit_and_at_transform(make: Any) -> None:
    """With the words of the exact kernel, which NystromFeatures evaluates."""
    kernel = InversePolynomial(2.0)
    inside = points() / np.linalg.norm(points(), axis=1).max()
    outside = inside.copy()
    outside[7] *= 3.0 / np.linalg.norm(outside[7])
    with pytest.raises(ValueError, match=r"row 7 has \|x\|\^2 = 9, .*shift=2\.0") as exact:
        NystromFeatures(8, kernel=kernel, random_state=0).fit(inside).transform(outside)
    for map_class in BOTH:
        with pytest.raises(ValueError, match="row 7") as at_fit:
            map_class(16, kernel=kernel).fit(make(outside))
        fitted = map_class(16, kernel=kernel, random_state=0).fit(make(inside))
        with pytest.raises(ValueError, match="row 7") as at_transform:
            fitted.transform(make(outside))
        assert str(at_fit.value) == str(at_transform.value) == str(exact.value)


def test_unknown_compression() -> None:
    with pytest.raises(ValueError, match="compress='fft' is unknown: use one of 'srht'"):
        ObliviousFeatures(16, compress="fft").fit(points())


@pytest.mark.parametrize("map_class", BOTH)
def test_overflow_at_transform_is_an_error(map_class: Any) -> None:
    X = points(20, 4).astype(np.float32)
    features = map_class(16, kernel="poly", degree=5, gamma=1.0, random_state=0).fit(X)
    with pytest.raises(ValueError, match=r"overflows float32.*4e\+24.*lower gamma"):
        features.transform(np.full((1, 4), 1e12, dtype=np.float32))


# --- shares of the columns -----------------------------------------------------------------------


def shared(
    importance: list[float], n_features: int, n_columns: int, seed: int = 0
) -> tuple[Any, ...]:
    degrees = [w for w, value in enumerate(importance) if value > 0]
    return share_columns(
        degrees, np.array(importance), n_features, n_columns, np.random.default_rng(seed)
    )


def test_columns_are_shared_in_proportion() -> None:
    blocks = shared([0.0, 0.0, 3.0, 0.0, 6.0, 1.0], n_features=50, n_columns=100)
    assert [(b.degree, b.width, b.weight, b.exact) for b in blocks] == [
        (4, 60, 1.0, False),
        (2, 30, 1.0, False),
        (5, 10, 1.0, False),
    ]


@pytest.mark.parametrize("n_columns", [1, 2, 3, 7, 10, 50, 1000])
@pytest.mark.parametrize("n_features", [1, 3, 40, 10**5])
def test_all_columns_are_used_once(n_columns: int, n_features: int) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        importance = rng.exponential(size=12) ** 4
        blocks = shared(importance.tolist(), n_features, n_columns, seed)
        assert blocks[0].start == 0
        assert all(a.stop == b.start for a, b in itertools.pairwise(blocks))
        assert all(b.width >= 1 for b in blocks)
        assert len({b.degree for b in blocks}) == len(blocks)
        everything = sum(count_of_degree(n_features, w) for w in range(12))
        assert blocks[-1].stop == min(n_columns, everything)
        for b in blocks:
            assert not b.exact or b.width == count_of_degree(n_features, b.degree)
        if n_columns > 1:
            assert (blocks[0].degree, blocks[0].exact) == (0, True)


def test_exact_degrees_lower_the_expected_error() -> None:
    """With them (sum of the other importances)^2 / columns is never above what it is without."""
    rng = np.random.default_rng(1)
    helped = 0
    for _ in range(200):
        importance = np.append(0.0, rng.exponential(size=5) ** 2)
        n_features, n_columns = int(rng.integers(2, 30)), int(rng.integers(20, 300))
        blocks = shared(importance.tolist(), n_features, n_columns)
        exact = [b for b in blocks if b.exact]
        rest = importance.sum() - sum(importance[b.degree] for b in exact)
        left = n_columns - sum(b.width for b in exact)
        if rest > 1e-12:
            assert rest**2 / left <= importance.sum() ** 2 / n_columns * (1 + 1e-12)
        helped += bool(exact)
    assert helped > 50


def test_light_degrees_are_drawn_without_bias() -> None:
    """E[weight^2; drawn] = 1 for every degree; the heavy ones are always there."""
    importance = [0.0, 5.0, 4.0, 0.3, 0.2, 0.1, 0.05]
    squares = np.zeros((1500, 7))
    for seed in range(1500):
        for block in shared(importance, 10**5, 10, seed):
            squares[seed, block.degree] = block.weight**2
    mean, error = squares.mean(axis=0), squares.std(axis=0) / np.sqrt(1500)
    assert np.all(squares[:, 1:3] == 1.0)
    assert np.all(np.abs(mean[3:] - 1.0) < 5 * error[3:])
    assert np.all(error[3:] > 0)


def test_systematic_counts() -> None:
    expected = np.array([0.25, 1.5, 0.25, 2.0, 3.0])
    counts = np.array([_systematic(expected, stream(seed, "test")) for seed in range(2000)])
    assert np.all(counts.sum(axis=1) == 7)
    assert np.all(np.abs(counts - expected) < 1)
    np.testing.assert_allclose(counts.mean(axis=0), expected, atol=5 * 0.5 / np.sqrt(2000))


@pytest.mark.parametrize(("d", "degree"), [(1, 3), (3, 0), (3, 1), (3, 2), (4, 4)])
def test_monomials_are_those_of_the_lifting(d: int, degree: int) -> None:
    X = points(6, d)
    monomials = Monomials.of(d, degree)
    assert monomials.coordinates.shape == (degree, count_of_degree(d, degree))
    rows = SeriesRows.of(DotProduct([1.0] * 5).series(X), X)
    Z = np.empty((6, count_of_degree(d, degree)))
    monomials.fill(rows.unit(), Z)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(Z @ Z.T, (unit @ unit.T) ** degree, rtol=1e-12, atol=1e-14)


def test_masses_are_the_trace() -> None:
    X = points(50, 4)
    kernel = Gaussian(0.7)
    series = kernel.series(X, 1e-10)
    masses = degree_masses(series, X, 1)
    assert masses.sum() == pytest.approx(1.0, abs=1e-9)
    series = Polynomial(3, 0.5, 2.0).series(X)
    masses = degree_masses(series, X, 1)
    assert masses.sum() == pytest.approx(np.mean((0.5 * np.sum(X**2, axis=1) + 2.0) ** 3))


# --- the tree ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_left", "n_right", "size"), [(8, 8, 64), (8, 8, 16), (16, 4, 64), (4, 16, 32), (64, 64, 8)]
)
def test_pairs_are_different_and_spread(n_left: int, n_right: int, size: int) -> None:
    left, right = spread_pairs(n_left, n_right, size, np.random.default_rng(0))
    assert len(set(zip(left.tolist(), right.tolist(), strict=True))) == size
    for places, length in ((left, n_left), (right, n_right)):
        counts = np.bincount(places, minlength=length)
        assert np.ptp(counts) <= (size % length != 0)


def unit_rows(n: int, d: int) -> Array:
    X = points(n, d) + 0.5 / np.sqrt(d)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def test_small_powers_are_exact() -> None:
    """Four coordinates, width 256: degrees up to four keep all their products."""
    U = unit_rows(10, 4)
    tree = PowerTree.sample(4, dict.fromkeys((1, 2, 3, 4), 256), 0)
    for k, sketch in tree.powers(U).items():
        np.testing.assert_allclose(sketch @ sketch.T, (U @ U.T) ** k, atol=1e-13)


@pytest.mark.parametrize("d", [6, 100])
def test_the_sketches_of_all_degrees_are_unbiased(d: int) -> None:
    U = unit_rows(3, d)
    degrees = frozenset({1, 2, 3, 5, 8})
    grams: dict[int, list[Array]] = {k: [] for k in degrees}
    for seed in range(150):
        for k, sketch in PowerTree.sample(d, dict.fromkeys(degrees, 32), seed).powers(U).items():
            grams[k].append(sketch @ sketch.T)
    for k, samples in grams.items():
        mean, error = np.mean(samples, axis=0), np.std(samples, axis=0) / np.sqrt(150)
        assert np.all(np.abs(mean - (U @ U.T) ** k) < 5 * error + 1e-12), k


def test_only_the_wanted_degrees_are_made() -> None:
    """u^(x)8 alone needs seven products, and nothing of degree 3, 5, 6 or 7."""
    tree = PowerTree.sample(10, {8: 64}, 0)
    assert list(tree.sizes) == [8]
    assert list(tree.root.left.sizes) == [4]
    assert list(tree.root.left.right.sizes) == [2]


def test_halving_beats_filling_up() -> None:
    """Degree 2 from a tree of 8 factors: the paper's P_6 goes through two levels of e_1."""
    U = unit_rows(40, 100)
    exact = (U @ U.T) ** 2
    ours, padded = [], []
    for seed in range(10):
        sketch = PowerTree.sample(100, dict.fromkeys(range(1, 9), 64), seed).powers(U)[2]
        ours.append(np.mean((sketch @ sketch.T - exact) ** 2))
        sketch = PolySketch(100, None, 8, width=64).sample(seed).apply_all(U)[6]
        padded.append(np.mean((sketch @ sketch.T - exact) ** 2))
    assert np.mean(ours) < 0.5 * np.mean(padded)


def test_pairs_that_differ_beat_independent_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row with itself: half of the variance of a node goes with the spread of the pairs."""
    U = unit_rows(20, 64)

    def mean_square_error() -> float:
        errors = []
        for seed in range(60):
            sketch = PowerTree.sample(64, {2: 64}, seed).powers(U)[2]
            errors.append(np.mean((np.sum(sketch**2, axis=1) - 1.0) ** 2))
        return float(np.mean(errors))

    def independent(n_left: int, n_right: int, size: int, rng: np.random.Generator) -> Any:
        return rng.integers(n_left, size=size), rng.integers(n_right, size=size)

    spread = mean_square_error()
    monkeypatch.setattr(power_tree, "spread_pairs", independent)
    assert spread < 0.7 * mean_square_error()


def test_threads_and_blocks_do_not_change_the_features() -> None:
    X = points(700, 6)
    features = ObliviousFeatures(128, gamma=0.5, random_state=0).fit(X)
    whole = features.transform(X)
    np.testing.assert_allclose(features.transform_block(X), whole, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(as_dense(features.transform(X[5:9])), whole[5:9], rtol=1e-10)
