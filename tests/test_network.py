"""Random features of networks: the battery, and the kernels of wide ones."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import oracles
import pytest

from kernelsieve import KernelRidge, NetworkFeatures
from kernelsieve.features.activation import polynomials, unit_activation, zonal_coefficients
from kernelsieve.kernels import ArcCosine, NeuralTangent
from kernelsieve.kernels.zonal import gegenbauer, gegenbauer_coefficients
from kernelsieve.testing import FeatureMapBattery
from kernelsieve.testing.bias import bias_report, critical_value
from kernelsieve.testing.data import points


class NetworkBattery(FeatureMapBattery):
    kernel: ClassVar[Any] = "ntk"
    truth: ClassVar[Any] = functools.partial(oracles.neural_tangent, depth=1)

    def build(self, **overrides: Any) -> NetworkFeatures:
        return NetworkFeatures(
            **{"n_components": 32, "random_state": 0, "kernel": self.kernel, **overrides}
        )

    def gram(self, X: Any) -> Any:
        return oracles.gram(type(self).truth, X)


class TestTangents(NetworkBattery):
    """The derived activation: unbiased."""


@pytest.mark.slow
class TestSketchedTangents(NetworkBattery):
    """The published map, for one hidden layer: unbiased."""

    def build(self, **overrides: Any) -> NetworkFeatures:
        return super().build(**{"layers": "sketched", **overrides})


@pytest.mark.slow
class TestLayer(NetworkBattery):
    kernel: ClassVar = ArcCosine(1)
    truth: ClassVar = functools.partial(oracles.arc_cosine, order=1)


KERNELS = [ArcCosine(0), ArcCosine(1), ArcCosine(2), NeuralTangent(1), NeuralTangent(3)]


def error_of(X: Any, kernel: Any, size: int, seed: int = 0, layers: str = "one") -> float:
    features = NetworkFeatures(size, kernel=kernel, layers=layers, random_state=seed)
    Z, K = features.fit_transform(X), kernel(X)
    return float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))


@pytest.mark.parametrize("layers", ["one", "sketched"])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_the_error_falls_with_the_number_of_features(kernel: Any, layers: str) -> None:
    X = points(60, 6)
    small, large = (error_of(X, kernel, size, layers=layers) for size in (50, 2000))
    assert large < min(0.12, 0.4 * small)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_one_layer_is_closer_than_the_published_map(kernel: Any) -> None:
    """Over six seeds, at 200 features of 20 columns: less than half the error."""
    X = points(60, 20)
    ours, published = (
        np.mean([error_of(X, kernel, 200, seed, layers) for seed in range(6)])
        for layers in ("one", "sketched")
    )
    assert ours < 0.5 * published


@pytest.mark.parametrize("d", [2, 3, 6])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_unbiased_at_any_depth(kernel: Any, d: int) -> None:
    X = points(8, d)
    X[2], X[3] = 0.0, -2.0 * X[4]
    options: dict[str, Any] = {"kernel": kernel, "n_jobs": 1}
    samples = []
    for seed in range(400):
        Z = NetworkFeatures(3, random_state=seed, **options).fit_transform(X)
        samples.append(Z @ Z.T)
    # The series of the tangent kernel ends at half a per cent of k(x, x).
    allowed = 0.0 if isinstance(kernel, ArcCosine) else 5e-3
    report = bias_report(np.stack(samples), kernel(X), max(allowed, 1e-5))
    worst = max(report, key=lambda which: abs(report[which][1]))
    assert abs(report[worst][1]) <= critical_value(len(report)), (worst, report[worst])


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_says_whether_the_expectation_is_the_kernel(kernel: Any) -> None:
    """In the plane the expectation is a mean over the circle, which many directions give."""
    X = points(8, 2)
    features = NetworkFeatures(3, kernel=kernel, random_state=0).fit(X)
    angles = (np.arange(2**16) + 0.5) * (2.0 * np.pi / 2**16)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    Z = np.empty((8, features.n_components_ - features.network_.directions.shape[1] + 2**16))
    replace(features.network_, directions=circle).fill(X, Z)
    K = kernel(X)
    exact = np.abs(Z @ Z.T - K).max() < 1e-4 * K.max()
    assert features.unbiased_ == exact
    assert exact == isinstance(kernel, ArcCosine)


@pytest.mark.parametrize("d", [1, 2, 3, 7, 100])
def test_polynomials_are_orthonormal(d: int) -> None:
    """Over the first coordinate of a uniform direction, whose even moments are known."""
    degree = 1 if d == 1 else 5
    found = polynomials(degree, d)
    i = np.arange(degree)
    moments = np.zeros(2 * degree + 1)
    moments[::2] = np.cumprod(np.concatenate([[1.0], (2 * i + 1) * d / (d + 2.0 * i)]))
    for k, p in enumerate(found):
        for j, q in enumerate(found):
            product = (p * q).coef
            assert product @ moments[: len(product)] == pytest.approx(float(k == j), abs=1e-9)


@pytest.mark.parametrize("d", [2, 3, 6])
def test_coefficients_are_those_of_the_quadrature(d: int) -> None:
    for order in (0, 1, 2):
        expected = gegenbauer_coefficients(ArcCosine(order), 4, d)
        np.testing.assert_allclose(unit_activation(order, d, 4) ** 2, expected, atol=1e-6)
    t, taylor = np.linspace(-1.0, 1.0, 9), np.array([0.5, 0.0, 0.25, 0.125, 2.0])
    values = zonal_coefficients(taylor, d) @ np.array(list(gegenbauer(t, 4, d)))
    np.testing.assert_allclose(values, np.polyval(taylor[::-1], t), atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_low_degrees_are_exact(kernel: Any) -> None:
    """On two opposite directions degrees 0 and 1 are all there is, in any dimension."""
    features = NetworkFeatures(40, kernel=kernel, random_state=0)
    one = np.array([[1.0], [-2.0], [0.5], [0.0]])
    np.testing.assert_allclose(*_grams(features, one), atol=1e-9)
    assert features.n_components_ <= 2


def test_the_products_that_are_listed_are_in_every_draw() -> None:
    X, options = points(30, 5), {"kernel": NeuralTangent(2)}
    first, second = (
        NetworkFeatures(60, random_state=seed, **options).fit(X).transform(X) for seed in (0, 1)
    )
    listed = 1 + 5 + 15
    np.testing.assert_array_equal(first[:, :listed], second[:, :listed])
    assert np.abs(first[:, listed:] - second[:, listed:]).max() > 0


def _grams(features: Any, X: Any) -> Any:
    Z = features.fit_transform(X)
    return Z @ Z.T, features.kernel_(X)


def test_a_ridge_on_tangents_is_the_kernel_ridge() -> None:
    """Predictions as those of the exact kernel, up to the error of the features."""
    X, new = points(120, 4), points(40, 4, seed=3)
    y = np.maximum(X[:, 0], 0.0) - np.abs(X[:, 1])
    kernel = NeuralTangent(1)
    exact = kernel(new, X) @ np.linalg.solve(kernel(X) + np.eye(120), y)
    features = NetworkFeatures(4000, kernel=kernel, random_state=0)
    found = KernelRidge(features, alpha=1.0, fit_intercept=False).fit(X, y).predict(new)
    assert np.linalg.norm(found - exact) < 0.15 * np.linalg.norm(exact)


def test_other_kernels_are_refused() -> None:
    with pytest.raises(ValueError, match="not that of a network"):
        NetworkFeatures(5, kernel="laplacian").fit(points())


def test_unknown_layers_are_refused() -> None:
    with pytest.raises(ValueError, match="layers='two'"):
        NetworkFeatures(5, layers="two").fit(points())
