"""TensorSketch features: the battery, the variance, and the constant of the kernel."""

from __future__ import annotations

import tracemalloc
from typing import Any, ClassVar

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from sklearn.kernel_approximation import PolynomialCountSketch
from sklearn.model_selection import GridSearchCV

from kernelsieve import TensorSketchFeatures
from kernelsieve.kernels import DotProduct, Exponential, Gaussian, Laplacian, Polynomial
from kernelsieve.sketches import TensorSketch
from kernelsieve.testing import FeatureMapBattery
from kernelsieve.testing.bias import bias_report, critical_value
from kernelsieve.testing.data import points, sparse_points


class TensorSketchBattery(FeatureMapBattery):
    """The battery for one polynomial kernel, named by the class attributes."""

    degree: ClassVar[int]
    coef0: ClassVar[float]
    unbiased_parameters: ClassVar[dict[str, Any]] = {"n_components": 512}

    def build(self, **overrides: Any) -> TensorSketchFeatures:
        defaults = {"n_components": 32, "degree": self.degree, "coef0": self.coef0}
        return TensorSketchFeatures(**{**defaults, "random_state": 0, **overrides})

    def gram(self, X: Any) -> Any:
        kernel = {"degree": self.degree, "gamma": self.gamma, "coef0": self.coef0}
        return oracles.gram(oracles.polynomial, X, **kernel)

    def test_grid_search_over_gamma(self) -> None:
        """gamma = 1e-9 makes all points alike, or with coef0 = 0 all features zero."""
        X = points(120, 3, seed=4)
        y = (X[:, 0] + 0.5 * X[:, 1]) ** min(2, self.degree)
        model = self.model(self.build(n_components=512))
        grid = {"features__gamma": [1e-9, 0.5]}
        search = GridSearchCV(model, grid, cv=3, error_score="raise").fit(X, y)
        assert search.best_params_ == {"features__gamma": 0.5}
        assert search.best_score_ > 0.5

    def test_says_that_it_is_unbiased(self) -> None:
        assert TensorSketchFeatures.unbiased


class TestCubic(TensorSketchBattery):
    degree: ClassVar = 3
    coef0: ClassVar = 1.0


@pytest.mark.slow
class TestSquare(TensorSketchBattery):
    """Homogeneous, and an odd number of features: the FFT has no middle frequency."""

    degree: ClassVar = 2
    coef0: ClassVar = 0.0

    def build(self, **overrides: Any) -> TensorSketchFeatures:
        return super().build(**{"n_components": 31, **overrides})


@pytest.mark.slow
class TestLinear(TensorSketchBattery):
    """One CountSketch, no convolution."""

    degree: ClassVar = 1
    coef0: ClassVar = 0.5


@pytest.mark.slow
class TestSextic(TensorSketchBattery):
    degree: ClassVar = 6
    coef0: ClassVar = 2.0
    unbiased_parameters: ClassVar = {"n_components": 4096}


def samples(X: Any, n_seeds: int, **parameters: Any) -> Any:
    """Z Z^T for every seed."""
    Z = (
        TensorSketchFeatures(random_state=seed, n_jobs=1, **parameters).fit_transform(X)
        for seed in range(n_seeds)
    )
    return np.stack([z @ z.T for z in Z])


KERNELS = [Polynomial(1, 0.5, 0.0), Polynomial(2, 0.7, 1.5), Polynomial(4, 1.0, 0.0)]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [*KERNELS, Polynomial(7, 0.4, 0.3)])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_unbiased_over_many_seeds(kernel: Polynomial, container: Any) -> None:
    X = sparse_points(12, 6)
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    K = oracles.gram(
        oracles.polynomial, X, degree=kernel.degree, gamma=kernel.gamma, coef0=kernel.coef0
    )
    report = bias_report(samples(container(X), 2000, n_components=24, kernel=kernel), K)
    worst = max(report, key=lambda name: abs(report[name][1]))
    assert abs(report[worst][1]) <= critical_value(len(report)), (worst, report[worst])


@pytest.mark.parametrize("coef0", [0.0, 0.7])
def test_the_variance_is_that_of_the_formula(coef0: float) -> None:
    """Degree 2, an odd number s of buckets, x extended by sqrt(coef0).

    Four tuples of coordinates count if they are equal in pairs in each factor: (12)(34) with sum
    P, (13)(24) with sum B, or (14)(23) with sum C. The two collisions of a factor B and a factor C
    are independent, 1 / s^2; otherwise they are the same, 1 / s.
    """
    X = points(2, 4, seed=3) + 0.3
    x, y = (np.append(row, np.sqrt(coef0)) for row in X)
    same = np.sum(x**2 * y**2)
    P, B, C = (x @ y) ** 2, (x @ x) * (y @ y) - same, (x @ y) ** 2 - same
    expected = (2 * P * (B + C) + B**2 + C**2) / 15 + 2 * B * C / 15**2
    values = samples(X, 600, n_components=15, kernel=Polynomial(2, 1.0, coef0))[:, 0, 1]
    deviations = (values - P) ** 2
    assert deviations.mean() == pytest.approx(expected, abs=4 * deviations.std() / np.sqrt(600))


@pytest.mark.parametrize("degree", [2, 3])
def test_as_accurate_as_scikit_learn(degree: int) -> None:
    """The same sketch with other draws: mean squared errors over 40 seeds within 25 %."""
    X = points(60, 10)
    K = Polynomial(degree, 1.0, 1.0)(X)
    parameters = {"degree": degree, "gamma": 1.0, "coef0": 1.0, "n_components": 128}
    ours = samples(X, 40, **parameters)
    theirs = np.stack(
        [
            Z @ Z.T
            for seed in range(40)
            for Z in [PolynomialCountSketch(random_state=seed, **parameters).fit_transform(X)]
        ]
    )
    ratio = np.mean((ours - K) ** 2) / np.mean((theirs - K) ** 2)
    assert 0.75 < ratio < 1.33


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_scale_and_constant_are_those_of_longer_rows(container: Any) -> None:
    """The sketch of (scale x, constant), made without it, equals the sketch of the long rows."""
    X = sparse_points()
    sketch = TensorSketch(X.shape[1], 16, 3, scale=0.4, constant=1.3).sample(0)
    longer = TensorSketch(X.shape[1] + 1, 16, 3).sample(0)
    long_rows = np.hstack([0.4 * X, np.full((len(X), 1), 1.3)])
    np.testing.assert_allclose(
        sketch.apply(container(X)), longer.apply(long_rows), rtol=1e-10, atol=1e-12
    )


def test_small_gamma_and_high_degree_do_not_overflow_float32() -> None:
    """coef0 / gamma is 1e9 and its power 1e45, where the kernel is about 1."""
    X = points(30, 4).astype(np.float32)
    features = TensorSketchFeatures(64, degree=10, gamma=1e-9, random_state=0)
    Z = features.fit_transform(X)
    np.testing.assert_allclose(np.sum(Z**2, axis=1), 1.0, rtol=1e-3)


def test_one_component() -> None:
    X = points(10, 3)
    Z = TensorSketchFeatures(1, degree=2, random_state=0).fit_transform(X)
    assert Z.shape == (10, 1)
    assert np.ptp(Z) > 0


def test_wide_sparse_input_is_not_densified() -> None:
    """50 x 200,000 would be 80 MB dense; the codes are 2.4 MB."""
    X = sp.random(50, 200_000, density=1e-4, format="csr", random_state=0)
    features = TensorSketchFeatures(32, gamma=1.0, random_state=0).fit(X[:5])
    tracemalloc.start()
    features.fit(X).transform(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40e6, f"peak of {peak / 1e6:.0f} MB: X was made dense"


@pytest.mark.parametrize(
    "kernel",
    ["gaussian", "exponential", "linear", Gaussian(1.0), Exponential(1.0), DotProduct([0.0, 1.0])],
)
def test_other_kernels_are_sent_to_oblivious_features(kernel: Any) -> None:
    with pytest.raises(ValueError, match=r"not a polynomial kernel: use ObliviousFeatures"):
        TensorSketchFeatures(8, kernel=kernel).fit(points())


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"kernel": Laplacian()}, "not a polynomial kernel"),
        ({"degree": 0}, "degree=0"),
        ({"degree": 2.5}, r"degree=2\.5"),
        ({"coef0": -1.0}, r"coef0=-1\.0 must be finite and >= 0"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_errors_name_the_value(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        TensorSketchFeatures(8, **parameters).fit_transform(points())


def test_overflow_at_transform_is_an_error() -> None:
    X = points(20, 4).astype(np.float32)
    features = TensorSketchFeatures(16, degree=5, gamma=1.0, random_state=0).fit(X)
    with pytest.raises(ValueError, match=r"overflows float32.*1e\+12.*lower gamma"):
        features.transform(np.full((1, 4), 1e12, dtype=np.float32))
    with pytest.raises(ValueError, match="overflows float32"):
        features.fit(np.full((1, 4), 1e12, dtype=np.float32))
