"""Random Fourier features: the battery on every variant, and what is special about them."""

from __future__ import annotations

import tracemalloc
from typing import Any, ClassVar

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from battery import FeatureMapBattery, points
from scipy import stats

from kernelsieve import FourierFeatures
from kernelsieve.kernels import Gaussian, Laplacian


class FourierBattery(FeatureMapBattery):
    """The battery for one variant, named by the class attributes."""

    parameters: ClassVar[dict[str, Any]] = {}

    def build(self, **overrides: Any) -> FourierFeatures:
        defaults = {"n_components": 32, "random_state": 0}
        return FourierFeatures(**{**defaults, **self.parameters, **overrides})

    def test_says_that_it_is_unbiased(self) -> None:
        assert FourierFeatures.unbiased


class TestCosineAndSine(FourierBattery):
    parameters: ClassVar = {"variant": "cos+sin"}


class TestPhase(FourierBattery):
    parameters: ClassVar = {"variant": "phase"}


class TestOrthogonalCosineAndSine(FourierBattery):
    parameters: ClassVar = {"variant": "cos+sin", "orthogonal": True}


class TestOrthogonalPhase(FourierBattery):
    parameters: ClassVar = {"variant": "phase", "orthogonal": True}


class TestOddCosineAndSine(FourierBattery):
    """The last frequency is without its sine: still unbiased."""

    parameters: ClassVar = {"variant": "cos+sin", "n_components": 9}


@pytest.mark.parametrize("orthogonal", [False, True])
@pytest.mark.parametrize("n_components", [2, 10, 64])
def test_cosine_and_sine_have_unit_norm(n_components: int, orthogonal: bool) -> None:
    X = 3.0 * points(50, 4)
    Z = FourierFeatures(n_components, orthogonal=orthogonal, random_state=0).fit_transform(X)
    np.testing.assert_allclose((Z**2).sum(axis=1), 1.0, rtol=1e-13)


@pytest.mark.parametrize("variant", ["cos+sin", "phase"])
@pytest.mark.parametrize("n_components", [1, 3, 15])
def test_odd_numbers_are_honoured(n_components: int, variant: str) -> None:
    X = points(20, 4)
    fourier = FourierFeatures(n_components, variant=variant, random_state=0).fit(X)
    assert fourier.n_components_ == n_components
    assert fourier.transform(X).shape == (20, n_components)


def squared_error(X: Any, K: Any, seed: int, **parameters: Any) -> float:
    Z = FourierFeatures(random_state=seed, gamma=0.5, **parameters).fit_transform(X)
    return float(((Z @ Z.T - K) ** 2).mean())


@pytest.mark.parametrize("variant", ["cos+sin", "phase"])
def test_orthogonal_frequencies_lower_the_error(variant: str) -> None:
    """Mean over 20 seeds, d frequencies: a third of the error in pairs, 0.73 of it with phases."""
    X = points(40, 16)
    K = oracles.gram(oracles.gaussian, X, gamma=0.5)
    size = 32 if variant == "cos+sin" else 16
    mean = {
        orthogonal: np.mean(
            [
                squared_error(X, K, seed, n_components=size, variant=variant, orthogonal=orthogonal)
                for seed in range(20)
            ]
        )
        for orthogonal in (False, True)
    }
    assert mean[True] < (0.5 if variant == "cos+sin" else 0.9) * mean[False]


def test_cosine_and_sine_beat_the_phase() -> None:
    X = points(40, 16)
    K = oracles.gram(oracles.gaussian, X, gamma=0.5)
    pairs, phase = (
        np.mean([squared_error(X, K, seed, n_components=32, variant=v) for seed in range(20)])
        for v in ("cos+sin", "phase")
    )
    assert pairs < phase


def test_the_error_falls_with_the_number_of_components() -> None:
    """Variance is 1/s: sixteen times the components, a sixteenth of the squared error."""
    X = points(40, 5)
    K = oracles.gram(oracles.gaussian, X, gamma=0.5)
    small, large = (
        np.mean([squared_error(X, K, seed, n_components=s) for seed in range(30)])
        for s in (64, 1024)
    )
    assert 10 < small / large < 25


def test_the_variance_is_that_of_the_formula() -> None:
    """Var of a cos+sin entry is (1 + k(2 delta))/2 - k^2 over s/2, by cos^2 = (1 + cos 2)/2."""
    X = points(2, 3, seed=3)
    k = oracles.gaussian(*X.tolist(), gamma=0.5)
    doubled = oracles.gaussian(*(2 * X).tolist(), gamma=0.5)
    values = []
    for seed in range(2000):
        Z = FourierFeatures(8, gamma=0.5, random_state=seed).fit_transform(X)
        values.append(float(Z[0] @ Z[1]))
    expected = ((1 + doubled) / 2 - k**2) / 4
    # The variance of 2000 nearly normal values is known to 3 %: five times that.
    assert np.var(values) == pytest.approx(expected, rel=0.16)


@pytest.mark.parametrize("variant", ["cos+sin", "phase"])
@pytest.mark.parametrize("n_components", [6, 12, 29])
def test_blocks_of_orthogonal_frequencies_are_orthogonal(n_components: int, variant: str) -> None:
    d = 6
    fourier = FourierFeatures(n_components, variant=variant, orthogonal=True, random_state=0)
    W = fourier.fit(points(20, d)).frequencies_
    assert W.shape[0] == d
    unit = W / np.linalg.norm(W, axis=0)
    for start in range(0, W.shape[1], d):
        block = unit[:, start : start + d]
        np.testing.assert_allclose(block.T @ block, np.eye(block.shape[1]), atol=1e-12)


@pytest.mark.parametrize("orthogonal", [False, True])
def test_the_lengths_of_the_frequencies(orthogonal: bool) -> None:
    """|w|^2 / (2 gamma) is chi-square with d degrees of freedom, in blocks or not."""
    d, gamma = 8, 0.3
    fourier = FourierFeatures(
        40_000, variant="phase", gamma=gamma, orthogonal=orthogonal, random_state=0
    )
    W = fourier.fit(points(20, d)).frequencies_
    assert W.shape == (d, 40_000)
    squared = (W**2).sum(axis=0) / (2 * gamma)
    assert stats.kstest(squared, stats.chi2(d).cdf).pvalue > 1e-4
    # Every coordinate has the same share, and none has a mean.
    np.testing.assert_allclose((W**2).mean(axis=1) / (2 * gamma), 1.0, atol=5 * np.sqrt(2 / 40_000))
    np.testing.assert_allclose(W.mean(axis=1), 0.0, atol=5 * np.sqrt(2 * gamma / 40_000))


@pytest.mark.parametrize("variant", ["cos+sin", "phase"])
@pytest.mark.parametrize("orthogonal", [False, True])
def test_wide_sparse_input_is_not_densified(variant: str, orthogonal: bool) -> None:
    """50 x 200,000 would be 80 MB dense; the 4 or 8 frequencies are 13 MB at the most."""
    X = sp.random(50, 200_000, density=1e-4, format="csr", random_state=0)
    fourier = FourierFeatures(8, variant=variant, orthogonal=orthogonal, random_state=0)
    fourier.fit(X[:5])  # imports and caches are not what is measured
    tracemalloc.start()
    Z = fourier.fit(X).transform(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert Z.shape == (50, 8)
    assert peak < 75e6, f"peak of {peak / 1e6:.0f} MB: X was made dense"


def test_gamma_of_the_kernel_object() -> None:
    X = points()
    by_name = FourierFeatures(16, gamma=0.7, random_state=0).fit_transform(X)
    by_object = FourierFeatures(16, kernel=Gaussian(0.7), random_state=0).fit_transform(X)
    np.testing.assert_array_equal(by_name, by_object)


def test_default_gamma_is_scale() -> None:
    X = 7.0 * points() + 2.0
    fourier = FourierFeatures(16, random_state=0).fit(X)
    assert fourier.kernel_.gamma == pytest.approx(1 / (X.shape[1] * X.var()))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"variant": "sine"}, "variant='sine'.*cos\\+sin"),
        ({"kernel": "poly"}, "Gaussian"),
        ({"kernel": Laplacian()}, "Gaussian"),
        ({"kernel": "gausian"}, "gausian.*gaussian"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_errors_name_the_value_and_the_way_out(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        FourierFeatures(16, **parameters).fit_transform(points())


def test_float32_far_from_the_origin() -> None:
    """The kernel does not see a common offset: float32 features may not lose digits to it."""
    X = (points(30, 4) + 1e4).astype(np.float32)
    K = oracles.gram(oracles.gaussian, X, gamma=0.5)
    Z32 = FourierFeatures(256, gamma=0.5, random_state=0).fit_transform(X)
    Z64 = FourierFeatures(256, gamma=0.5, random_state=0).fit_transform(X.astype(np.float64))
    error = np.abs(Z32 @ Z32.T - Z64 @ Z64.T).max()
    assert np.abs(Z64 @ Z64.T - K).max() < 0.5
    assert error < 1e-3, f"float32 features give a kernel that is off by {error:.1e} at offset 1e4"
