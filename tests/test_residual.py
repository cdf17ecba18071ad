"""Landmarks and random features of the rest: the battery, the algebra, and lower errors."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import oracles
import pytest
import scipy.sparse as sp

from kernelsieve import (
    FourierFeatures,
    KernelRidge,
    NystromFeatures,
    ObliviousFeatures,
    ResidualFeatures,
)
from kernelsieve.kernels import (
    ArcCosine,
    Exponential,
    Gaussian,
    Laplacian,
    Matern,
    NeuralTangent,
    Pairwise,
    Polynomial,
    Product,
    SmoothLaplacian,
)
from kernelsieve.testing import FeatureMapBattery
from kernelsieve.testing.bias import bias_report, critical_value
from kernelsieve.testing.data import points, sparse_points


class TestGaussian(FeatureMapBattery):
    # Two of four features are random: more would leave nothing of six rows to chance.
    unbiased_parameters: ClassVar = {"n_components": 4, "oversample": 1}

    def build(self, **overrides: Any) -> ResidualFeatures:
        return ResidualFeatures(**{"n_components": 16, "random_state": 0, **overrides})

    def gram(self, X: Any) -> Any:
        return oracles.gram(functools.partial(oracles.gaussian, gamma=self.gamma), X)


KERNELS = [
    Gaussian(0.3),
    Laplacian(0.3),
    Matern(1.5, 1.5),
    Product([0.2, 0.5, 0.1, 0.3], "matern32"),
    SmoothLaplacian(0.2),
    Polynomial(4, 0.5, 1.0),
    Exponential(0.4),
    ArcCosine(1),
]


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: type(k).__name__)
def test_unbiased_on_rows_that_were_not_seen(kernel: Any, container: Any) -> None:
    """E[Z Z^T] = K on other rows than those of the fit, where Nystrom features fall short."""
    if container is sp.csr_array and isinstance(kernel, Product):
        pytest.skip("product kernels on sparse rows have no Fourier features")
    X, new = container(points(40, 4)), container(points(7, 4, seed=5))
    samples = []
    for seed in range(300):
        features = ResidualFeatures(8, kernel=kernel, oversample=2, random_state=seed, n_jobs=1)
        Z = features.fit(X).transform(new)
        samples.append(Z @ Z.T)
    report = bias_report(np.stack(samples), kernel(new), 1e-4)
    worst = max(report, key=lambda which: abs(report[which][1]))
    assert abs(report[worst][1]) <= critical_value(len(report)), (worst, report[worst])


@pytest.mark.parametrize("kernel", [ArcCosine(1), NeuralTangent(1), NeuralTangent(3)], ids=repr)
def test_says_whether_the_expectation_is_the_kernel(kernel: Any) -> None:
    """In the plane the expectation is a mean over the circle, which many directions give."""
    X, new = points(20, 2), points(7, 2, seed=5)
    features = ResidualFeatures(8, kernel=kernel, oversample=1, random_state=0).fit(X)
    network = features.random_map_.network_
    angles = (np.arange(2**14) + 0.5) * (2.0 * np.pi / 2**14)
    circle = replace(network, directions=np.stack([np.cos(angles), np.sin(angles)]))

    def random(rows: Any) -> Any:
        values = np.empty((len(rows), network.size - network.directions.shape[1] + 2**14))
        circle.fill(rows, values)
        return values

    nystrom = features.landmark_map_
    listed = nystrom.transform(new)
    rest = random(new) - listed @ nystrom.whitening_.T @ random(nystrom.landmarks_)
    K = kernel(new)
    exact = np.abs(listed @ listed.T + rest @ rest.T - K).max() < 1e-4 * K.max()
    assert features.unbiased_ == exact
    assert exact == isinstance(kernel, ArcCosine)


def test_the_random_part_is_orthogonal_to_the_landmarks() -> None:
    """A random feature of the rest has product 0 with every function of the landmarks."""
    X = points(50, 3)
    features = ResidualFeatures(20, gamma=0.4, oversample=1, random_state=0).fit(X)
    nystrom = features.landmark_map_
    Z = features.transform(nystrom.landmarks_)
    rest = Z[:, nystrom.n_components_ :]
    np.testing.assert_allclose(rest, 0.0, atol=1e-5)  # the landmarks leave nothing of themselves


@pytest.mark.parametrize(
    ("kernel", "other"),
    [(Polynomial(6, 0.1, 1.0), ObliviousFeatures), (Gaussian(0.05), FourierFeatures)],
    ids=["poly", "gaussian"],
)
def test_closer_than_random_features_alone(kernel: Any, other: Any) -> None:
    """On rows of a decaying spectrum, over six seeds: half the error on unseen rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 12)) / np.arange(1, 13)
    new, X = X[:100], X[100:]
    K = kernel(new)

    def error(cls: Any, seed: int) -> float:
        Z = cls(100, kernel=kernel, random_state=seed).fit(X).transform(new)
        return float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))

    ours, theirs = (
        np.mean([error(cls, seed) for seed in range(6)]) for cls in (ResidualFeatures, other)
    )
    assert ours < 0.5 * theirs


def test_all_monomials_make_it_exact() -> None:
    X, new = points(30, 3), points(10, 3, seed=2)
    kernel = Polynomial(2, 0.5, 1.0)
    Z = ResidualFeatures(40, kernel=kernel, random_state=0).fit(X).transform(new)
    np.testing.assert_allclose(Z @ Z.T, kernel(new), rtol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_shares(share: float) -> None:
    features = ResidualFeatures(10, landmark_share=share, random_state=0).fit(points(50, 3))
    listed = 0 if features.landmark_map_ is None else features.landmark_map_.n_components_
    assert listed == min(9, round(10 * share))
    assert features.n_components_ == 10
    assert ResidualFeatures(1, random_state=0).fit(points()).landmark_map_ is None


def test_sparse_rows_have_the_features_of_dense_ones() -> None:
    X = sparse_points(40, 6)
    features = ResidualFeatures(20, kernel="poly", random_state=0).fit(X)
    np.testing.assert_allclose(features.transform(sp.csr_array(X)), features.transform(X))


def test_a_ridge_on_them_is_close_to_the_kernel_ridge() -> None:
    X, new = points(300, 4), points(60, 4, seed=3)
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    kernel = Gaussian(0.1)
    exact = kernel(new, X) @ np.linalg.solve(kernel(X) + np.eye(300), y)
    model = KernelRidge(ResidualFeatures(150, kernel=kernel, random_state=0), alpha=1.0)
    found = model.set_params(fit_intercept=False).fit(X, y).predict(new)
    assert np.linalg.norm(found - exact) < 0.05 * np.linalg.norm(exact)


def test_depth_of_networks_does_not_matter() -> None:
    X = points(100, 5)
    kernel = NeuralTangent(3)
    errors = []
    for cls in (ResidualFeatures, NystromFeatures):
        Z = cls(60, kernel=kernel, random_state=0).fit(X[:60]).transform(X[60:])
        errors.append(abs((Z**2).sum() / np.trace(kernel(X[60:])) - 1.0))
    assert errors[0] < 0.5 * errors[1]  # the trace, which Nystrom features are below


def test_kernels_without_random_features_are_refused() -> None:
    with pytest.raises(ValueError, match="no unbiased random features"):
        ResidualFeatures(5, kernel=Pairwise("cosine")).fit(points())


def test_a_share_above_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"landmark_share=1\.5"):
        ResidualFeatures(5, landmark_share=1.5).fit(points())
