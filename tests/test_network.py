"""Random features of networks: the battery, and the kernels of wide ones."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import numpy as np
import oracles
import pytest

from kernelsieve import KernelRidge, NetworkFeatures
from kernelsieve.kernels import ArcCosine, NeuralTangent
from kernelsieve.testing import FeatureMapBattery
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
    """One hidden layer: unbiased."""


@pytest.mark.slow
class TestLayer(NetworkBattery):
    kernel: ClassVar = ArcCosine(1)
    truth: ClassVar = functools.partial(oracles.arc_cosine, order=1)


@pytest.mark.parametrize(
    "kernel",
    [ArcCosine(0), ArcCosine(1), ArcCosine(2), NeuralTangent(1), NeuralTangent(3)],
    ids=repr,
)
def test_the_error_falls_with_the_number_of_features(kernel: Any) -> None:
    X = points(60, 6)
    K = kernel(X)

    def error(size: int) -> float:
        Z = NetworkFeatures(size, kernel=kernel, random_state=0).fit_transform(X)
        return float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))

    assert error(2000) < min(0.12, 0.4 * error(50))


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
