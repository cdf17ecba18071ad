"""Random Maclaurin features: the battery, their variance, and the shares of the degrees."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any, ClassVar

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from support.sampled_maps import gram_of
from support.series_maps import (
    KERNELS,
    DotProductVariant,
    ExponentialVariant,
    InversePolynomialVariant,
    PolynomialVariant,
    SeriesBattery,
    assert_unbiased,
    small_rows,
)

from kernelsieve import MaclaurinFeatures
from kernelsieve.features import maclaurin
from kernelsieve.features.maclaurin import sign_matrix, squared_errors
from kernelsieve.features.series import SeriesRows
from kernelsieve.kernels import DotProduct, Gaussian, Polynomial
from kernelsieve.testing.data import points, sparse_points


class MaclaurinBattery(SeriesBattery):
    map_class: ClassVar = MaclaurinFeatures


class TestGaussian(MaclaurinBattery):
    pass


@pytest.mark.slow
class TestPolynomial(PolynomialVariant, MaclaurinBattery):
    unbiased_parameters: ClassVar = {"n_components": 48}


@pytest.mark.slow
class TestExponential(ExponentialVariant, MaclaurinBattery):
    pass


@pytest.mark.slow
class TestInversePolynomial(InversePolynomialVariant, MaclaurinBattery):
    pass


@pytest.mark.slow
class TestDotProduct(DotProductVariant, MaclaurinBattery):
    unbiased_parameters: ClassVar = {"gamma": "scale", "n_components": 48}


@pytest.mark.parametrize("name", ["gaussian", "polynomial csr"])
def test_unbiased_quickly(name: str) -> None:
    assert_unbiased(MaclaurinFeatures, name, 150)


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("n_components", [1, 7, 25])
def test_unbiased_over_many_seeds(name: str, n_components: int) -> None:
    assert_unbiased(MaclaurinFeatures, name, 2000, n_components=n_components)


def all_projections(x: Any, y: Any) -> Any:
    """<r, x> <r, y> for every vector of signs."""
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=len(x))))
    return (signs @ x) * (signs @ y)


def brute_force_errors(kernel: Any, X: Any) -> Any:
    """Variance of one feature of each degree, meaned over all pairs, from all sign vectors."""
    series = kernel.series(X, 1e-6)
    P = series.points(X)
    scales = np.exp(0.5 * series.log_coefficients)
    amplitude = np.exp(series.log_amplitude(np.sum(P**2, axis=1)))
    errors = np.zeros(series.degree + 1)
    for (i, x), (j, y) in itertools.product(enumerate(P), repeat=2):
        products = all_projections(x, y)
        for w in range(series.degree + 1):
            # Independent factors: the mean of a product is the product of the means.
            variance = np.mean(products**2) ** w - np.mean(products) ** (2 * w)
            errors[w] += (amplitude[i] * amplitude[j] * scales[w] ** 2) ** 2 * variance
    return errors / len(X) ** 2


@pytest.mark.parametrize("kernel", [Gaussian(0.6), Polynomial(4, 0.5, 1.0)])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_expected_errors_against_all_signs(kernel: Any, container: Any) -> None:
    X = sparse_points(14, 6)
    series = kernel.series(container(X), 1e-6, center="auto")
    errors = squared_errors(SeriesRows.of(series, container(X)), len(X), 1.0)
    if series.center is None and isinstance(kernel, Gaussian):
        return  # centred or not, the brute force below follows the dense series
    np.testing.assert_allclose(errors, brute_force_errors(kernel, X), rtol=1e-9, atol=1e-15)


def test_a_subsample_of_the_pairs_is_weighted_for_all() -> None:
    """The diagonal is 1/n of all pairs, and much more of the pairs of a few rows."""
    X = points(400, 4)
    series = Gaussian(0.5).series(X, 1e-6)
    whole = squared_errors(SeriesRows.of(series, X), 400, 1.0)
    parts = [
        squared_errors(SeriesRows.of(series, X[i : i + 20]), 400, 1.0) for i in range(0, 400, 20)
    ]
    mean, error = np.mean(parts, axis=0), np.std(parts, axis=0) / np.sqrt(20)
    assert np.all(np.abs(mean - whole)[1:5] < 4.0 * error[1:5])


@pytest.mark.parametrize(("degree", "d"), [(1, 5000), (2, 100), (3, 40)])
def test_the_variance_is_that_of_the_formula(degree: int, d: int) -> None:
    """Columns are independent of each other: 4,000 of them give mean and variance of one."""
    size = 4000  # less than the monomials: the degree is not exact
    X = np.hstack([points(2, 8, seed=3), np.zeros((2, d - 8))])
    kernel = DotProduct([0.0] * degree + [1.0])
    products = all_projections(*X[:, :8])
    mean, square = np.mean(products) ** degree, np.mean(products**2) ** degree
    Z = MaclaurinFeatures(size, kernel=kernel, random_state=0).fit_transform(sp.csr_array(X))
    values = size * Z[0] * Z[1]
    assert values.mean() == pytest.approx(mean, abs=4 * values.std() / np.sqrt(size))
    deviations = (values - mean) ** 2
    expected = square - mean**2
    assert deviations.mean() == pytest.approx(expected, abs=4 * deviations.std() / np.sqrt(size))


def test_columns_go_where_the_error_is() -> None:
    """m_w in proportion to the root of the error: no worse than by mass, or in equal parts."""
    X = points(200, 20) + 0.2
    kernel = Polynomial(5, 1.0, 1.0)
    features = MaclaurinFeatures(300, kernel=kernel, random_state=0).fit(X)
    errors = squared_errors(SeriesRows.of(kernel.series(X), X), len(X), 1.0)
    widths = {b.degree: b.width for b in features._blocks if not b.exact}
    exact = {b.degree for b in features._blocks if b.exact}
    assert exact == {0}
    assert sum(widths.values()) == 299

    def expected_error(columns: Any) -> float:
        return float(sum(errors[w] / columns[w] for w in widths))

    ours = expected_error(widths)
    roots = np.sqrt(errors[1:])
    best = roots.sum() ** 2 / 299
    assert ours < 1.02 * best
    assert ours < 0.9 * expected_error(dict.fromkeys(widths, 299 / 5))


def test_one_coordinate_is_exact() -> None:
    """Signs of one coordinate square to one: no error, whatever is drawn."""
    X = points(30, 1)
    K = oracles.gram(oracles.polynomial, X, degree=4, gamma=1.0, coef0=1.0)
    Z = MaclaurinFeatures(40, kernel=Polynomial(4, 1.0, 1.0), random_state=0).fit_transform(X)
    np.testing.assert_allclose(Z @ Z.T, K, rtol=1e-10, atol=1e-13)


def test_signs_are_fair_and_independent() -> None:
    signs = sign_matrix(300, 64, np.random.default_rng(0), np.float32)
    assert signs.dtype == np.float32
    assert set(np.unique(signs)) == {-1.0, 1.0}
    # Every entry of S^T S / d off the diagonal is a mean of 300 signs.
    gram = signs.T @ signs / 300 - np.eye(64)
    assert np.abs(gram).max() < 5.5 / np.sqrt(300)
    assert abs(signs.mean()) < 5 / np.sqrt(signs.size)


def test_signs_are_never_held_together() -> None:
    """200,000 x 512 signs would be 410 MB in float32; 64 features' are 51 MB."""
    X = sp.random(50, 200_000, density=1e-4, format="csr", dtype=np.float32, random_state=0)
    features = MaclaurinFeatures(512, kernel="poly", degree=2, gamma=1.0, random_state=0)
    features.fit(X[:5])
    tracemalloc.start()
    Z = features.fit(X).transform(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert Z.shape == (50, 512)
    assert peak < 200e6, f"peak of {peak / 1e6:.0f} MB"


def test_blocks_of_rows_see_the_same_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    X = points(100, 6)
    features = MaclaurinFeatures(50, gamma=0.5, random_state=0).fit(X)
    whole = features.transform(X)
    monkeypatch.setattr(maclaurin, "SIGNED_ROWS", 33)
    np.testing.assert_allclose(features.transform(X), whole, rtol=1e-10, atol=1e-13)
    monkeypatch.setattr(maclaurin, "DENSE_ENTRIES", 1)
    monkeypatch.setattr(maclaurin, "PAIR_ROWS", 7)
    np.testing.assert_allclose(features.transform(X), whole, rtol=1e-10, atol=1e-13)


def test_seeds_differ_in_the_signs_and_not_in_the_kernel() -> None:
    X, kernel = small_rows(), Polynomial(3, 1.0, 1.0)
    K = gram_of(kernel, X)
    Z = [MaclaurinFeatures(15, kernel=kernel, random_state=s).fit_transform(X) for s in (0, 1)]
    assert not np.allclose(Z[0] @ Z[0].T, Z[1] @ Z[1].T)
    assert all(np.linalg.norm(z @ z.T - K) < 2 * np.linalg.norm(K) for z in Z)
