"""Kernels of the angle: networks of infinite width, their series, and the maps that sample them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from scipy.special import comb

from kernelsieve import (
    AdaptiveFeatures,
    KernelRidge,
    NystromFeatures,
    ObliviousFeatures,
    RowNormFeatures,
)
from kernelsieve.explanation.sums import NotProductsError, products_of
from kernelsieve.export.features import features_graph
from kernelsieve.export.graph import ExportError, Graph
from kernelsieve.kernels import ArcCosine, NeuralTangent, Zonal, resolve_kernel
from kernelsieve.kernels.zonal import gegenbauer_coefficients, unit_rows
from kernelsieve.testing.data import points, sparse_points

NETWORKS = [ArcCosine(0), ArcCosine(1), ArcCosine(2), NeuralTangent(1), NeuralTangent(4)]
names = pytest.mark.parametrize("kernel", NETWORKS, ids=repr)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_is_a_wide_random_layer(order: int) -> None:
    """Means over independent units, within five standard errors."""
    X = points(12, 4)
    units = X @ np.random.default_rng(0).standard_normal((4, 200_000))
    layer = np.where(units > 0, np.maximum(units, 0.0) ** order, 0.0)
    K = ArcCosine(order)(X)
    for i, j in ((0, 0), (0, 1), (2, 5), (3, 11)):
        products = 2.0 * layer[i] * layer[j]
        assert abs(products.mean() - K[i, j]) < 5 * products.std() / math.sqrt(len(products))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_neural_tangent_is_the_gradient_of_a_wide_network(depth: int) -> None:
    """The error of one network falls like width^-1/2; the mean of several is within 3 %."""
    X = points(8, 3)
    rng = np.random.default_rng(0)
    K = NeuralTangent(depth)(X)
    found = np.mean([oracles.network_tangent(X, depth, 1500, rng) for _ in range(6)], axis=0)
    assert np.linalg.norm(found - K) < 0.03 * np.linalg.norm(K)


def test_taylor_coefficients_of_the_step_are_those_of_the_arc_sine() -> None:
    """1/2 + arcsin(t) / pi, and each order integrates the one before."""
    step = np.zeros(101)
    step[0] = 0.5
    for k in range(50):
        step[2 * k + 1] = comb(2 * k, k, exact=False) / 4.0**k / (2 * k + 1) / math.pi
    np.testing.assert_allclose(ArcCosine(0).taylor(100), step, atol=1e-14)
    degrees = np.arange(1, 101)
    relu = np.concatenate([[1 / math.pi], step[:-1] / degrees])
    np.testing.assert_allclose(ArcCosine(1).taylor(100), relu, atol=1e-14)
    square = np.concatenate([[0.5], 4 * relu[:-1] / degrees])
    np.testing.assert_allclose(ArcCosine(2).taylor(100), square, atol=1e-14)


@names
def test_taylor_series_is_the_function(kernel: Any) -> None:
    t = np.linspace(-0.9, 0.9, 19)
    series = np.polynomial.polynomial.polyval(t, kernel.taylor(256))
    np.testing.assert_allclose(series, kernel.of_cosine(t, 3), atol=1e-10)
    assert (kernel.taylor(256) >= 0).all()


@names
def test_series_on_unit_rows(kernel: Any) -> None:
    """Exact for equal and opposite rows; elsewhere what is beyond its degree bounds the error."""
    X = unit_rows(points(20, 4))
    X = np.vstack([X, -X[:5]])
    series = kernel.series(X, 1e-6)
    K, found = kernel(X), series(X)
    np.testing.assert_allclose(np.diag(found), np.diag(K), rtol=1e-10)
    np.testing.assert_allclose(np.diag(found[20:, :5]), np.diag(K[20:, :5]), atol=1e-6)
    beyond = kernel.diag(X)[0] - kernel.taylor(series.degree).sum()
    assert np.abs(found - K).max() <= beyond + 1e-6


def test_series_of_other_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="of length 1"):
        ArcCosine(1).series(points(5))


@pytest.mark.parametrize("d", [1, 2, 3, 7])
@names
def test_gegenbauer_coefficients_make_the_kernel(kernel: Any, d: int) -> None:
    X = points(15, d)
    coefficients = gegenbauer_coefficients(kernel, 120, d)
    top = kernel.of_cosine(np.ones(1), d)[0]
    assert coefficients.sum() <= top * (1 + 1e-9)
    K = kernel(X)
    found = Zonal(coefficients, kernel.length_power)(X)
    rest = top - coefficients.sum()
    lengths = np.sqrt(np.diag(K)) / math.sqrt(top)
    assert np.abs((found - K) / np.outer(lengths, lengths)).max() <= rest + 1e-7


@names
@pytest.mark.parametrize("features", [AdaptiveFeatures, RowNormFeatures, ObliviousFeatures])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_maps_that_sample_a_series_take_rows_of_any_length(
    kernel: Any, features: Any, container: Any
) -> None:
    """The relative error falls with the number of features, on rows of very different lengths."""
    X = sparse_points(60) * np.geomspace(0.1, 10.0, 60)[:, None]
    K, A = kernel(X), container(X)

    def error(size: int) -> float:
        Z = features(size, kernel=kernel, random_state=0).fit(A).transform(A)
        Z = Z.toarray() if sp.issparse(Z) else Z
        return float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))

    assert error(2000) < min(0.5 * error(20), 0.35)


@pytest.mark.parametrize("kernel", [NeuralTangent(2), Zonal([0.1, 0.5, 0.4])], ids=repr)
def test_landmarks_for_kernels_of_the_angle(kernel: Any) -> None:
    X = points(40)
    Z = NystromFeatures(40, kernel=kernel).fit_transform(X)
    np.testing.assert_allclose(Z @ Z.T, kernel(X), atol=1e-7)


def test_a_zero_row_has_no_direction() -> None:
    X = np.array([[0.0, 0.0], [1.0, 2.0]])
    for kernel in (ArcCosine(0), NeuralTangent(1), Zonal([1.0, 1.0])):
        assert kernel(X)[0].tolist() == [0.0, 0.0]
        assert kernel.diag(X)[0] == 0.0


@pytest.mark.parametrize(("name", "kernel"), [("arccos2", ArcCosine(2)), ("ntk", NeuralTangent(1))])
def test_names(name: str, kernel: Any) -> None:
    assert resolve_kernel(name, points(5)) == kernel


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ArcCosine(3), "order=3"),
        (lambda: NeuralTangent(0), "depth=0"),
        (lambda: Zonal([0.0]), "at least one"),
        (lambda: Zonal([1.0, -1.0]), "Schoenberg"),
        (lambda: Zonal([1.0], power=-1.0), "power=-1"),
    ],
)
def test_wrong_parameters_are_refused(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_products_of_directions_are_not_explained_as_products_of_columns() -> None:
    X = points(60)
    features = RowNormFeatures(20, kernel=ArcCosine(1), random_state=0)
    model = KernelRidge(features).fit(X, X[:, 0])
    with pytest.raises(NotProductsError, match="not products of columns"):
        products_of(model)


def test_products_of_directions_are_not_exported_as_products_of_columns() -> None:
    X = points(60)
    features = RowNormFeatures(20, kernel=ArcCosine(1), random_state=0).fit(X)
    with pytest.raises(ExportError, match="divided by their lengths"):
        features_graph(Graph(np.float64), features, "X")
