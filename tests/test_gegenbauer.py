"""Random Gegenbauer features: the battery, the identities behind them, and few dimensions."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from support.sampled_maps import gram_of
from support.series_maps import ExponentialVariant, PolynomialVariant, SeriesBattery

from kernelsieve import GegenbauerFeatures
from kernelsieve.features.gegenbauer import log_harmonics, series_weights, unit_directions
from kernelsieve.kernels import ArcCosine, Gaussian, Laplacian, NeuralTangent, Polynomial, Zonal
from kernelsieve.kernels.zonal import gegenbauer
from kernelsieve.testing.bias import bias_report, critical_value
from kernelsieve.testing.data import points


class GegenbauerBattery(SeriesBattery):
    map_class: ClassVar = GegenbauerFeatures


class TestGaussian(GegenbauerBattery):
    pass


@pytest.mark.slow
class TestPolynomial(PolynomialVariant, GegenbauerBattery):
    unbiased_parameters: ClassVar = {"n_components": 48}


@pytest.mark.slow
class TestExponential(ExponentialVariant, GegenbauerBattery):
    pass


@pytest.mark.slow
class TestZonal(GegenbauerBattery):
    parameters: ClassVar = {"kernel": Zonal([0.5, 1.0, 0.5, 0.25], power=1.0)}
    unbiased_parameters: ClassVar = {"gamma": "scale"}

    def gram(self, X: Any) -> Any:
        return oracles.gram(
            functools.partial(oracles.zonal, coefficients=[0.5, 1.0, 0.5, 0.25], power=1.0), X
        )


@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_powers_are_sums_of_gegenbauer_polynomials(d: int) -> None:
    """t^j = sum of weights^2 / harmonics P_l(t), on the whole interval (its ends if d = 1)."""
    t = np.array([-1.0, 1.0]) if d == 1 else np.linspace(-1.0, 1.0, 11)
    degree = 9
    weights, found = series_weights(degree, d), np.zeros((degree + 1, len(t)))
    for w, polynomial in enumerate(gegenbauer(t, len(weights) - 1, d)):
        for i, weight in enumerate(weights[w]):
            found[w + 2 * i] += weight**2 / np.exp(log_harmonics(w, d)) * polynomial
    np.testing.assert_allclose(found, t ** np.arange(degree + 1)[:, None], atol=1e-12)


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_directions_are_uniform_and_orthogonal_in_blocks(d: int) -> None:
    W = unit_directions(d, 4 * d + 1, np.random.default_rng(0))
    np.testing.assert_allclose(W[:, :d].T @ W[:, :d], np.eye(d), atol=1e-12)
    many = unit_directions(d, 6000, np.random.default_rng(1))
    np.testing.assert_allclose(many @ many.T / 6000, np.eye(d) / d, atol=1e-12 + 1e-3 * (6000 % d))
    assert np.abs(many.mean(axis=1)).max() < 5 / np.sqrt(6000)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(
    "kernel", [Gaussian(0.4), Polynomial(3, 0.5), Zonal([0.3, 0.5, 0.0, 0.2], 1.0)], ids=repr
)
def test_unbiased_on_rows_of_any_length(kernel: Any, container: Any) -> None:
    X = points(8, 3)
    X[2] = 0.0
    options = {"n_components": 20, "kernel": kernel, "alpha": 1e-4, "n_jobs": 1}
    samples = []
    for seed in range(200):
        Z = GegenbauerFeatures(random_state=seed, **options).fit_transform(container(X))
        samples.append(Z @ Z.T)
    K = kernel(X) if isinstance(kernel, Zonal) else gram_of(kernel, X)
    report = bias_report(np.stack(samples), K, 1e-5)
    worst = max(report, key=lambda which: abs(report[which][1]))
    assert abs(report[worst][1]) <= critical_value(len(report)), (worst, report[worst])


@pytest.mark.parametrize("kernel", [ArcCosine(1), NeuralTangent(2)], ids=repr)
def test_kernels_of_networks(kernel: Any) -> None:
    """The error falls like s^-1/2 to what the last degrees leave."""
    X = points(80, 3)
    K = kernel(X)

    def error(size: int) -> float:
        Z = GegenbauerFeatures(size, kernel=kernel, random_state=0).fit_transform(X)
        return float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))

    assert error(4000) < min(0.06, 0.3 * error(40))


def test_other_kernels_are_refused() -> None:
    with pytest.raises(ValueError, match="neither a function of the angle"):
        GegenbauerFeatures(5, kernel=Laplacian(1.0)).fit(points())
