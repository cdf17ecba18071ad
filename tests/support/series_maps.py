"""What tests of the sketched maps share: kernels, batteries, unbiasedness."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV

from kernelsieve.kernels import (
    DotProduct,
    Exponential,
    Gaussian,
    InversePolynomial,
    Polynomial,
)
from kernelsieve.testing import FeatureMapBattery
from kernelsieve.testing.bias import bias_report, critical_value
from kernelsieve.testing.data import points, sparse_points
from support.sampled_maps import gram_of

Array = Any


class SeriesBattery(FeatureMapBattery):
    """The battery for a map of a Taylor series with one kernel."""

    map_class: ClassVar[Any]
    parameters: ClassVar[dict[str, Any]] = {}
    # The truncation is bounded by alpha: with a small one it is below the negligible bias.
    unbiased_parameters: ClassVar[dict[str, Any]] = {"alpha": 1e-3}

    def build(self, **overrides: Any) -> Any:
        defaults = {"n_components": 32, "random_state": 0}
        return self.map_class(**{**defaults, **self.parameters, **overrides})

    @pytest.fixture(autouse=True)
    def has_gamma(self, request: pytest.FixtureRequest) -> None:
        given = getattr(getattr(request.node, "callspec", None), "params", {})
        if not isinstance(self.parameters.get("kernel", ""), str) and given.get("gamma") == 0.5:
            pytest.skip("the kernel object has no gamma")

    def test_grid_search_over_gamma(self) -> None:
        """gamma = 1e-9 makes all points alike; 1e6 is beyond every Taylor series."""
        if not isinstance(self.parameters.get("kernel", ""), str):
            pytest.skip("the kernel object has no gamma")
        X = points(120, 3, seed=4)
        y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2
        grid = {"features__gamma": [1e-9, 0.5]}
        search = GridSearchCV(self.model(self.build()), grid, cv=3, error_score="raise").fit(X, y)
        assert search.best_params_ == {"features__gamma": 0.5}
        assert search.best_score_ > 0.5

    def test_says_that_it_is_unbiased(self) -> None:
        assert self.map_class.unbiased


class PolynomialVariant:
    parameters: ClassVar = {"kernel": "poly", "degree": 4, "coef0": 1.0}
    unbiased_parameters: ClassVar = {"n_components": 20}

    def gram(self, X: Array) -> Array:
        return oracles.gram(oracles.polynomial, X, degree=4, gamma=self.gamma, coef0=1.0)


class ExponentialVariant:
    parameters: ClassVar = {"kernel": "exponential"}
    expected_failed_checks: ClassVar = dict.fromkeys(
        ["check_fit_idempotent", "check_fit_check_is_fitted", "check_n_features_in"],
        "their X is 100 away from the origin, where exp(gamma |x|^2) is no float64",
    )

    def gram(self, X: Array) -> Array:
        return oracles.gram(oracles.exponential, X, gamma=self.gamma)


class InversePolynomialVariant:
    """shift = 1e5 holds whatever the battery brings; unbiasedness is tested at shift = 6."""

    parameters: ClassVar = {"kernel": InversePolynomial(1e5)}
    unbiased_parameters: ClassVar = {
        "kernel": InversePolynomial(6.0),
        "gamma": "scale",
        "alpha": 1e-3,
    }

    def gram(self, X: Array) -> Array:
        return oracles.gram(oracles.inverse_polynomial, X, shift=6.0)

    def test_different_seeds_differ(self) -> None:
        X = points()
        first, second = (
            self.build(kernel=InversePolynomial(3.0), random_state=seed).fit_transform(X)
            for seed in (1, 2)
        )
        assert not np.allclose(first, second)


class DotProductVariant:
    parameters: ClassVar = {"kernel": DotProduct([1.0, 0.5, 0.0, 0.25, 0.1])}
    unbiased_parameters: ClassVar = {"gamma": "scale", "n_components": 16}

    def gram(self, X: Array) -> Array:
        return oracles.gram(oracles.dot_product, X, coefficients=[1.0, 0.5, 0.0, 0.25, 0.1])


def small_rows(sparse: bool = False) -> Array:
    """Ten rows of squared norm below 1.4, one of them zero, two of them equal."""
    X = sparse_points(10, 6) if sparse else points(10, 6, seed=5)
    X[3], X[7] = 0.0, X[6]
    return X / np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True) / 1.18)


#: name -> (kernel, whether X is CSR).
KERNELS: dict[str, tuple[Any, bool]] = {
    "gaussian": (Gaussian(0.5), False),
    "polynomial": (Polynomial(5, 0.5, 1.0), False),
    "homogeneous": (Polynomial(4, 1.0, 0.0), False),
    "exponential": (Exponential(1.0), False),
    "inverse polynomial": (InversePolynomial(2.0), False),
    "dot product": (DotProduct([1.0, 0.0, 0.5, 0.3, 0.0, 0.2]), False),
    "gaussian csr": (Gaussian(0.5), True),
    "polynomial csr": (Polynomial(5, 0.5, 1.0), True),
}


def assert_unbiased(map_class: Any, name: str, n_seeds: int, **parameters: Any) -> None:
    """Entries, scales and eigenvectors of the mean of Z Z^T, at the battery's Bonferroni level."""
    kernel, sparse = KERNELS[name]
    X = small_rows(sparse)
    data = sp.csr_array(X) if sparse else X
    options = {"n_components": 14, "alpha": 1e-4, "n_jobs": 1, "kernel": kernel, **parameters}
    samples = []
    for seed in range(n_seeds):
        Z = map_class(random_state=seed, **options).fit_transform(data)
        samples.append(Z @ Z.T)
    report = bias_report(np.stack(samples), gram_of(kernel, X), 1e-5)
    worst = max(report, key=lambda which: abs(report[which][1]))
    assert abs(report[worst][1]) <= critical_value(len(report)), (worst, report[worst])
