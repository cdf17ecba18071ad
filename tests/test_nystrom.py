"""Nystrom features: the battery on kernels and landmark choices, and what is special about them."""

from __future__ import annotations

import functools
import tracemalloc
from typing import Any, ClassVar

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import chi2_kernel, cosine_similarity
from sklearn.utils.estimator_checks import check_estimator

from kernelsieve import KernelRidge, NystromFeatures
from kernelsieve.diagnostics import spectral_epsilon
from kernelsieve.kernels import (
    Exponential,
    Gaussian,
    Laplacian,
    Matern,
    Pairwise,
    Product,
    resolve_kernel,
)
from kernelsieve.linalg.whitening import whitening_of
from kernelsieve.sources.base import ArraySource
from kernelsieve.testing import FeatureMapBattery
from kernelsieve.testing.data import points, sparse_points

CHOICES = ("uniform", "leverage", "rpcholesky", "kmeans")


class NystromBattery(FeatureMapBattery):
    """The battery for one kernel and choice of landmarks, named by the class attributes."""

    parameters: ClassVar[dict[str, Any]] = {}
    truth: ClassVar[Any] = functools.partial(oracles.gaussian, gamma=0.5)
    unbiased: ClassVar[bool] = False

    def build(self, **overrides: Any) -> NystromFeatures:
        defaults = {"n_components": 16, "random_state": 0}
        return NystromFeatures(**{**defaults, **self.parameters, **overrides})

    def build_exact(self, X: Any) -> NystromFeatures:
        return self.build_with(n_components=len(X), gamma=self.gamma)

    def gram(self, X: Any) -> Any:
        return oracles.gram(type(self).truth, X)


class TestUniform(NystromBattery):
    pass


class TestLeverage(NystromBattery):
    parameters: ClassVar = {"kernel": "laplacian", "landmarks": "leverage"}
    truth: ClassVar = functools.partial(oracles.laplacian, gamma=0.5)


class TestRandomlyPivotedCholesky(NystromBattery):
    parameters: ClassVar = {"landmarks": "rpcholesky"}


class TestOversampled(NystromBattery):
    parameters: ClassVar = {"n_components": 8, "oversample": 3}


class TestPolynomial(NystromBattery):
    parameters: ClassVar = {"kernel": "poly", "degree": 2, "gamma": 0.5}
    truth: ClassVar = functools.partial(oracles.polynomial, degree=2, gamma=0.5, coef0=1.0)


class WithoutGamma(NystromBattery):
    """For kernels that ignore gamma."""

    def test_grid_search_over_gamma(self) -> None:
        pytest.skip("the kernel has no gamma to search for")


class TestLinear(WithoutGamma):
    """A kernel of rank d: fewer columns than asked for."""

    parameters: ClassVar = {"kernel": "linear", "landmarks": "rpcholesky"}
    truth: ClassVar = oracles.dot


class TestCosine(WithoutGamma):
    """A kernel that scikit-learn computes."""

    parameters: ClassVar = {"kernel": "cosine"}

    def gram(self, X: Any) -> Any:
        return oracles.gram(oracles.dot, X / np.linalg.norm(X, axis=1, keepdims=True))


def product(features: NystromFeatures, X: Any) -> Any:
    """Z Z^T in float64."""
    Z = features.transform(X).astype(np.float64)
    return Z @ Z.T


def overlap(x: Any, y: Any) -> float:
    """A kernel of two rows that scikit-learn has no name for."""
    return float(np.minimum(x, y).sum())


# --- the approximation ---------------------------------------------------------------------------


@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize(
    ("kernel", "peer"),
    [
        (Gaussian(0.5), {"kernel": "rbf", "gamma": 0.5}),
        (Laplacian(0.3), {"kernel": "laplacian", "gamma": 0.3}),
        ("cosine", {"kernel": "cosine"}),
        ("chi2", {"kernel": "chi2", "gamma": 1.0}),
        (overlap, {"kernel": overlap}),
    ],
    ids=["gaussian", "laplacian", "cosine", "chi2", "callable"],
)
def test_the_same_landmarks_give_scikit_learns_kernel(
    kernel: Any, peer: dict[str, Any], container: Any
) -> None:
    X = np.abs(points(60, 4))
    if container is sp.csr_matrix and kernel in ("chi2", overlap):
        pytest.skip("neither this kernel nor scikit-learn's takes sparse rows")
    A = container(X)
    theirs = Nystroem(n_components=20, random_state=0, **peer).fit(A)
    ours = NystromFeatures(kernel=kernel, landmarks=theirs.components_).fit(A)
    assert ours.landmark_indices_ is None
    Z = theirs.transform(A)
    np.testing.assert_allclose(product(ours, A), Z @ Z.T, atol=1e-9)


@pytest.mark.parametrize("kernel", [Gaussian(0.5), Laplacian(0.3), Matern(1.0, 0.5), Exponential()])
@pytest.mark.parametrize("landmarks", CHOICES)
def test_more_landmarks_than_rows_is_exact(landmarks: str, kernel: Any) -> None:
    X = points(40)
    nystrom = NystromFeatures(100, kernel=kernel, landmarks=landmarks, random_state=0).fit(X)
    assert nystrom.n_components_ == 40
    np.testing.assert_array_equal(nystrom.landmark_indices_, np.arange(40))
    np.testing.assert_allclose(product(nystrom, X), kernel(X), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("landmarks", ["uniform", "leverage", "rpcholesky"])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_landmarks_are_rows_of_the_data(landmarks: str, container: Any) -> None:
    X = container(sparse_points(60))
    nystrom = NystromFeatures(15, gamma=0.5, landmarks=landmarks, random_state=0).fit(X)
    assert sp.issparse(nystrom.landmarks_) == sp.issparse(X)
    difference = nystrom.landmarks_ - X[nystrom.landmark_indices_]
    assert abs(difference).max() == 0
    dense = X.toarray() if sp.issparse(X) else X
    K = Gaussian(0.5)(dense)
    expected = oracles.nystrom(K, nystrom.landmark_indices_.tolist())
    np.testing.assert_allclose(product(nystrom, X), expected, atol=1e-9)


@pytest.mark.parametrize("landmarks", CHOICES)
def test_never_above_the_kernel(landmarks: str) -> None:
    X = points(80, 3)
    K = Gaussian(1.0)(X)
    nystrom = NystromFeatures(20, gamma=1.0, landmarks=landmarks, random_state=0).fit(X)
    left = np.linalg.eigvalsh(K - product(nystrom, X))
    assert left.min() > -1e-10
    assert left.max() > 1e-3, "20 landmarks cannot be exact here"


def test_new_rows_have_the_kernel_of_the_landmarks_span() -> None:
    """The features of a landmark and of any row have the exact kernel as their product."""
    X, new = points(60), points(25, seed=9)
    nystrom = NystromFeatures(20, kernel="laplacian", gamma=0.4, random_state=0).fit(X)
    Z, Y = nystrom.transform(nystrom.landmarks_), nystrom.transform(new)
    expected = oracles.gram(oracles.laplacian, nystrom.landmarks_, new, gamma=0.4)
    np.testing.assert_allclose(Z @ Y.T, expected, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_repeated_landmarks_are_left_out(dtype: type) -> None:
    X = points(50).astype(dtype)
    X[20:30] = X[:10]
    nystrom = NystromFeatures(50, gamma=1.0).fit(X)
    assert nystrom.n_components_ == 40 == len(nystrom.landmarks_)
    assert not set(range(20, 30)) & set(nystrom.landmark_indices_.tolist())
    tolerance = 1e-9 if dtype is np.float64 else 1e-4
    np.testing.assert_allclose(product(nystrom, X), Gaussian(1.0)(X), atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("landmarks", ["uniform", "leverage", "rpcholesky"])
def test_a_kernel_of_low_rank_needs_no_more_landmarks(landmarks: str, dtype: type) -> None:
    """Degree 2 in 3 variables: 10 monomials, so 10 landmarks make K, on new rows too."""
    X, new = points(200, 3).astype(dtype), (2 * points(50, 3, seed=7)).astype(dtype)
    nystrom = NystromFeatures(
        60, kernel="poly", degree=2, gamma=1.0, landmarks=landmarks, random_state=0
    ).fit(X)
    assert nystrom.n_components_ == 10
    K = oracles.gram(oracles.polynomial, new, degree=2)
    tolerance = 1e-9 if dtype is np.float64 else 1e-4
    np.testing.assert_allclose(product(nystrom, new), K, atol=tolerance * K.max())


def rare_clusters(n: int = 600, clusters: int = 5, members: int = 4) -> Any:
    """Nearly all rows in one place, and a few small groups far from it."""
    rng = np.random.default_rng(0)
    centres = np.repeat(3.0 * rng.standard_normal((clusters, 6)), members, axis=0)
    X = 0.2 * rng.standard_normal((n, 6))
    X[: len(centres)] += centres
    return X


@pytest.mark.parametrize("landmarks", ["leverage", "rpcholesky"])
def test_rare_clusters_are_found(landmarks: str) -> None:
    """Spectral epsilon at alpha = 1, mean of 5 seeds: a fifth of uniform's or less."""
    X = rare_clusters()
    K = Gaussian(0.25)(X)
    mean = {
        choice: np.mean(
            [
                spectral_epsilon(
                    K,
                    NystromFeatures(
                        100, gamma=0.25, landmarks=choice, random_state=seed
                    ).fit_transform(X),
                    1.0,
                ).epsilon
                for seed in range(5)
            ]
        )
        for choice in ("uniform", landmarks)
    }
    assert mean[landmarks] < mean["uniform"] / 5


def test_the_error_falls_with_the_number_of_landmarks() -> None:
    X = points(300, 3)
    for choice in CHOICES:
        few, many = (NystromFeatures(s, landmarks=choice, random_state=0) for s in (10, 100))
        errors = [1.0 - np.square(nystrom.fit_transform(X)).sum() / 300 for nystrom in (few, many)]
        assert 0 < errors[1] < errors[0] / 5


# --- several landmarks for each feature ----------------------------------------------------------


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_with_all_rows_as_landmarks_the_rank_is_used_best(container: Any) -> None:
    """Eckart and Young: nothing of 15 columns is closer to K."""
    X = container(sparse_points(60))
    nystrom = NystromFeatures(15, gamma=0.5, oversample=4, random_state=0).fit(X)
    assert nystrom.n_components_ == 15 == nystrom.transform(X).shape[1]
    dense = X.toarray() if sp.issparse(X) else X
    values, vectors = np.linalg.eigh(Gaussian(0.5)(dense))
    best = (vectors[:, -15:] * values[-15:]) @ vectors[:, -15:].T
    np.testing.assert_allclose(product(nystrom, X), best, atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_best_rank_of_more_landmarks_is_closer_to_the_kernel(dtype: type) -> None:
    """The squares of the eigenvalues left, over 5 seeds: well below that of pivoted Cholesky."""
    X = smooth().astype(dtype)
    K, s = Gaussian(2.0)(X.astype(np.float64)), 40
    errors = {
        name: np.mean(
            [
                np.linalg.norm(
                    K - product(NystromFeatures(s, gamma=2.0, random_state=seed, **given).fit(X), X)
                )
                for seed in range(5)
            ]
        )
        for name, given in (
            ("pivots", {"landmarks": "rpcholesky"}),
            ("four", {"oversample": 4}),
        )
    }
    floor = np.sqrt(np.sort(np.linalg.eigvalsh(K) ** 2)[:-s].sum())
    assert floor < errors["four"] < 0.6 * errors["pivots"]


def test_oversampled_features_are_never_above_the_kernel() -> None:
    X = points(80, 3)
    nystrom = NystromFeatures(10, gamma=1.0, oversample=3, random_state=0).fit(X)
    assert np.linalg.eigvalsh(Gaussian(1.0)(X) - product(nystrom, X)).min() > -1e-10


@pytest.mark.parametrize("outputs", [1, 3])
def test_target_directions_predict_as_all_landmarks_do(outputs: int) -> None:
    X, new = points(150, 4), points(40, 4, seed=5)
    y = np.sin(X[:, :outputs] * 2) + X[:, [3]] ** 2
    few = NystromFeatures(12, gamma=0.5, oversample=4, target_directions=True, random_state=0)
    many = NystromFeatures(48, gamma=0.5, random_state=0)
    ours, all_ = (KernelRidge(f, alpha=0.1).fit(X, y) for f in (few, many))
    assert ours.features_.n_components_ == 12
    np.testing.assert_allclose(ours.predict(new), all_.predict(new), atol=1e-7)


def test_target_directions_need_a_target() -> None:
    with pytest.raises(ValueError, match="needs a target"):
        NystromFeatures(5, oversample=2, target_directions=True).fit(points(30))


def test_oversampling_streams_over_the_rows() -> None:
    """Blocks of a source give the features that the rows in memory give."""
    X = points(500)
    nystrom = NystromFeatures(10, gamma=0.5, oversample=4, random_state=0)
    whole = nystrom.fit(X).transform(X)
    source = ArraySource(X)
    np.testing.assert_array_equal(nystrom.fit(source).transform(X), whole)


# --- float types ---------------------------------------------------------------------------------


def smooth(n: int = 400) -> Any:
    """Rows on which a wide Gaussian has eigenvalues down to rounding."""
    return np.random.default_rng(0).uniform(-1.0, 1.0, size=(n, 3))


def test_float32_is_stable_where_the_landmarks_are_nearly_dependent() -> None:
    X, kernel = smooth(), Gaussian(0.5)
    K = kernel(X)
    nystrom = NystromFeatures(300, kernel=kernel, random_state=0).fit(X.astype(np.float32))
    assert np.abs(product(nystrom, X.astype(np.float32)) - K).max() < 1e-3
    # What a shift for float64 would have left of it.
    L = X[nystrom.landmark_indices_]
    C = kernel(X.astype(np.float32), L.astype(np.float32))
    naive = (C @ whitening_of(kernel(L), np.float64).astype(np.float32)).astype(np.float64)
    assert np.abs(naive @ naive.T - K).max() > 1e-2


def test_an_almost_constant_kernel_in_float32() -> None:
    """Mixing the products of its raw values left a matrix with eigenvalues below -alpha."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2)).astype(np.float32)
    y = np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=len(X))
    kernel = Product(0.1, "matern52")
    features = NystromFeatures(300, kernel=kernel, random_state=0)
    model = KernelRidge(features, alpha=1e-7).fit(X, y)
    error = np.sqrt(np.mean((model.predict(X) - np.sin(2.0 * X[:, 0])) ** 2))
    assert error < 0.04


def test_float32_rows_of_a_map_fitted_in_float64() -> None:
    """The columns are those of the fit: a model trained on float64 may predict on float32."""
    X = smooth()
    nystrom = NystromFeatures(300, gamma=0.5, random_state=0).fit(X)
    Z32 = nystrom.transform(X.astype(np.float32))
    exact = nystrom.transform(X.astype(np.float32).astype(np.float64))
    assert Z32.dtype == np.float32
    np.testing.assert_allclose(Z32, exact, atol=1e-6)


@pytest.mark.slow
def test_more_landmarks_do_not_raise_the_error_in_float32() -> None:
    """Ridge on smooth data: from 300 to 1200 landmarks the float32 error must not grow."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(3000, 4)).astype(np.float32)
    y = np.sin(3 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(3000)
    errors = []
    for s in (300, 600, 1200):
        features = NystromFeatures(s, gamma=0.5, random_state=0)
        model = KernelRidge(features, alpha=0.1).fit(X[:2000], y[:2000])
        errors.append(float(np.sqrt(np.mean((model.predict(X[2000:]) - y[2000:]) ** 2))))
    assert errors[2] <= 1.005 * errors[1] <= 1.01 * errors[0]


# --- landmarks that are given --------------------------------------------------------------------


@pytest.mark.parametrize("data", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("given", [np.asarray, sp.csr_array, lambda L: L.tolist()])
def test_given_landmarks(data: Any, given: Any) -> None:
    X, L = sparse_points(40), sparse_points(9, seed=5)[:3]
    nystrom = NystromFeatures(gamma=0.5, landmarks=given(L)).fit(data(X))
    assert nystrom.n_components_ == 3
    K = Gaussian(0.5)(np.vstack([X, L]))
    expected = oracles.nystrom(K, [40, 41, 42])[:40, :40]
    np.testing.assert_allclose(product(nystrom, data(X)), expected, atol=1e-10)


def test_kmeans_centres_are_not_rows() -> None:
    X = points(200, 3)
    nystrom = NystromFeatures(20, landmarks="kmeans", random_state=0).fit(X)
    assert nystrom.landmark_indices_ is None
    assert nystrom.landmarks_.shape == (20, 3)


# --- cost ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("landmarks", CHOICES)
def test_memory_is_that_of_the_features(landmarks: str) -> None:
    """20,000 x 32 features are 5 MB; an n x n matrix would be 3.2 GB."""
    X = points(20_000, 4)
    nystrom = NystromFeatures(32, landmarks=landmarks, random_state=0, n_jobs=1)
    nystrom.fit(X[:500])  # imports and caches are not what is measured
    tracemalloc.start()
    nystrom.fit(X).transform(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6, f"peak of {peak / 1e6:.0f} MB"


def test_wide_sparse_input_is_not_densified() -> None:
    """50 x 200,000 would be 80 MB dense."""
    X = sp.random(50, 200_000, density=1e-4, format="csr", random_state=0)
    for landmarks in ("uniform", "leverage", "rpcholesky"):
        nystrom = NystromFeatures(8, landmarks=landmarks, gamma=1.0, random_state=0)
        nystrom.fit(X[:5])
        tracemalloc.start()
        nystrom.fit(X).transform(X)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 40e6, f"{landmarks}: peak of {peak / 1e6:.0f} MB, X was made dense"


# --- parameters ----------------------------------------------------------------------------------


def test_the_model_tells_its_alpha() -> None:
    X = points(60)
    model = KernelRidge(NystromFeatures(10, landmarks="leverage"), alpha=3.0).fit(X, X[:, 0])
    assert model.features_.alpha == 3.0


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"landmarks": "best"}, "landmarks='best'.*'leverage'"),
        ({"landmarks": points(3, 4)}, "landmarks have 4 columns, but X has 5"),
        ({"landmarks": np.full((2, 5), np.nan)}, "NaN"),
        ({"alpha": -1.0}, "alpha=-1.0"),
        ({"kernel": "sigmoid"}, "sigmoid.*not positive semi-definite.*use"),
        ({"kernel": "additive_chi2"}, "additive_chi2.*use 'chi2'"),
        ({"kernel": lambda x, y: float(np.abs(x - y).sum())}, "not positive semi-definite"),
        ({"kernel": Gaussian}, "unknown.*function of two rows"),
        ({"kernel": overlap, "gamma": 0.5}, "gamma=0.5.*set it in the kernel"),
    ],
)
def test_errors_name_the_value_and_the_way_out(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        NystromFeatures(16, **parameters).fit(points())


# --- kernels that scikit-learn or the user computes ----------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_pairwise_is_scikit_learns(dtype: type) -> None:
    X, Y = (np.abs(points(n, seed=n)).astype(dtype) for n in (600, 7))  # more than one block
    for kernel, peer in [("cosine", cosine_similarity), ("chi2", chi2_kernel)]:
        gram = resolve_kernel(kernel, X)(X, Y)
        assert gram.dtype == dtype
        np.testing.assert_allclose(gram, peer(X, Y), rtol=1e-5)
    gram = Pairwise("chi2", {"gamma": 0.3})(X, Y)
    np.testing.assert_allclose(gram, chi2_kernel(X, Y, gamma=0.3), rtol=1e-5)
    np.testing.assert_allclose(
        resolve_kernel(overlap, X)(X[:9], Y), oracles.gram(lambda x, y: overlap(x, y), X[:9], Y),
        rtol=1e-5,
    )  # fmt: skip


@pytest.mark.parametrize("metric", ["cosine", "chi2", overlap])
def test_the_diagonal_of_pairwise(metric: Any) -> None:
    X = np.abs(points(50))
    kernel = Pairwise(metric)
    np.testing.assert_allclose(kernel.diag(X), np.diag(kernel(X)), rtol=1e-12)


@pytest.mark.parametrize("left", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("right", [np.asarray, sp.csr_matrix])
def test_pairwise_takes_sparse_rows(left: Any, right: Any) -> None:
    X, Y = sparse_points(), sparse_points(9, seed=3)
    gram = Pairwise("cosine")(left(X), right(Y))
    assert isinstance(gram, np.ndarray)
    np.testing.assert_allclose(gram, cosine_similarity(X, Y), atol=1e-12)


def test_pairwise_has_no_series() -> None:
    with pytest.raises(TypeError, match="NystromFeatures"):
        Pairwise("cosine").series(points())


def test_an_unknown_metric_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"cosin'.*cosine.*function of two rows"):
        Pairwise("cosin")


@pytest.mark.parametrize("parameters", [{"kernel": "chi2"}, {"landmarks": "kmeans"}])
def test_scikit_learns_checks_where_rows_must_be_dense(parameters: dict[str, Any]) -> None:
    results = check_estimator(NystromFeatures(8, **parameters), on_fail=None, on_skip=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert not failed
