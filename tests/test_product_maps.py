"""Sampled maps of product kernels: unbiased for every family, on any finite table."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from kernelsieve import (
    AdaptiveFeatures,
    AutoFeatures,
    FourierFeatures,
    KernelRidge,
    NystromFeatures,
    ResidualFeatures,
    RowNormFeatures,
)
from kernelsieve.diagnostics import (
    KernelSample,
    estimate_spectral_epsilon,
    estimate_statistical_dimension,
)
from kernelsieve.engine.space import RowPlan, TableSpace
from kernelsieve.kernels import Gaussian, Laplacian, Matern, Product, learn
from kernelsieve.persistence import load, save
from kernelsieve.products.local_basis import LocalBasis
from kernelsieve.products.product_frame import ProductFrame
from kernelsieve.sources.given import as_source

Array = Any
FAMILIES = ("gaussian", "laplacian", "matern32", "matern52", "categorical")
MIXED = ("laplacian", "gaussian", "matern32", "categorical", "matern52", "laplacian")
RATES = (1.0, 0.5, 1e-4, 0.7, 0.3, 0.01)  # spanning 10^4


def table(family: str, n: int = 40) -> tuple[Array, Product]:
    """Rows with a code column and outliers at a million standard deviations, and a kernel."""
    rng = np.random.default_rng(0)
    if family == "mixed":
        X = rng.normal(size=(n, 6))
        X[:, 3] = rng.integers(0, 4, size=n)
        X[3, 1], X[4, 0], X[5, 5] = 1e6, -1e6, 1e6
        return X, Product(RATES, MIXED)
    X = rng.normal(size=(n, 3))
    if family == "categorical":
        X = np.round(X)
    else:
        X[3, 0], X[7, 2] = 1e6, -1e6
    return X, Product([0.8, 0.3, 0.001], family)


def new_rows(X: Array, kernel: Product) -> Array:
    """Between training rows, beside them, and far from all of them."""
    rng = np.random.default_rng(1)
    between = 0.5 * (X[8:14] + X[14:20])
    far = X[20:24] + 40.0 * rng.normal(size=X[20:24].shape)
    new = np.vstack([between, X[24:28] + 0.3, far])
    for i, family in enumerate(kernel.families_for(X.shape[1])):
        if family == "categorical":
            new[:, i] = np.round(new[:, i])  # some of these levels are new
    return new


def basis_of(X: Array, kernel: Product) -> LocalBasis:
    d = X.shape[1]
    frame = ProductFrame(kernel, d)
    return LocalBasis.of_rows(
        kernel.families_for(d), kernel.rates_for(d), frame, as_source(X), 1e-12
    )


def held_kernel(X: Array, kernel: Product, new: Array) -> Array:
    """The kernel among new rows minus what their columns' functions do not hold."""
    basis, points = basis_of(X, kernel), kernel.points(new)
    rates = kernel.rates_for(X.shape[1])
    held = np.ones((len(new), len(new)))
    for i, column in enumerate(basis.bases):
        u = points[:, i]
        e = column.values(u)
        factor = e.T @ e
        if column.tents:
            inside = (u > column.points[0]) & (u < column.points[-1])
            exact = [[oracles.column_kernel(column.family, a, b, rates[i]) for b in u] for a in u]
            factor = np.where(np.outer(inside, inside), exact, factor)
        held *= factor
    return held


def assert_unbiased(grams: list[Array], expected: Array, rounding: float = 1e-7) -> None:
    """For independent, unbiased G: E |mean G - K|^2 = E |G - K|^2 / n."""
    mean = np.mean(grams, axis=0)
    spread = np.sqrt(np.mean([np.sum((G - expected) ** 2) for G in grams]) / len(grams))
    assert np.linalg.norm(mean - expected) <= 1.7 * spread + rounding * np.linalg.norm(expected)


def check_unbiased(family: str, n_seeds: int) -> None:
    X, kernel = table(family)
    new = new_rows(X, kernel)
    K, cross, held = kernel(X), kernel(new, X), held_kernel(X, kernel, new)
    grams: dict[str, list[Array]] = {"training": [], "cross": [], "new": []}
    for seed in range(n_seeds):
        kind = (RowNormFeatures, AdaptiveFeatures)[seed % 2]
        features = kind(25, kernel=kernel, random_state=seed, n_jobs=1).fit(X)
        Z, Z_new = features.transform(X), features.transform(new)
        grams["training"].append(Z @ Z.T)
        grams["cross"].append(Z_new @ Z.T)
        grams["new"].append(Z_new @ Z_new.T)
    # Matern's grid loses up to 3e-5 of a training value.
    assert_unbiased(grams["training"], K, 1e-4)
    assert_unbiased(grams["cross"], cross, 1e-3)
    assert_unbiased(grams["new"], held, 1e-3)


@pytest.mark.parametrize("family", [*FAMILIES, "mixed"])
def test_unbiased(family: str) -> None:
    check_unbiased(family, 40)


@pytest.mark.slow
@pytest.mark.parametrize("family", [*FAMILIES, "mixed"])
def test_unbiased_over_many_seeds(family: str) -> None:
    check_unbiased(family, 2000)


@pytest.mark.parametrize("kind", [RowNormFeatures, AdaptiveFeatures])
@pytest.mark.parametrize("family", FAMILIES)
def test_exact_when_all_functions_fit(family: str, kind: Any) -> None:
    X = np.random.default_rng(0).integers(0, 5, size=(60, 3)).astype(float)
    kernel = Product([0.5, 0.2, 1.5], family)
    features = kind(500, kernel=kernel, random_state=0).fit(X)
    Z, Z_new = features.transform(X), features.transform(X + 0.25)
    np.testing.assert_allclose(Z @ Z.T, kernel(X), atol=1e-6)
    np.testing.assert_allclose(Z_new @ Z.T, kernel(X + 0.25, X), atol=1e-5)


@pytest.mark.parametrize("family", [*FAMILIES, "mixed"])
def test_float32(family: str) -> None:
    X, kernel = table(family)
    double = RowNormFeatures(25, kernel=kernel, random_state=0).fit(X)
    single = double.transform(X.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, double.transform(X), atol=1e-4)


def test_missing_values_are_drawn_and_evaluated() -> None:
    """Spaces take rows with missing values: k(x, x) = 1, and unbiased."""
    X, _ = table("mixed")
    kernel = Product((1.0, 0.5, 1e-4, 0.7, 0.3, 0.5), MIXED)
    X[np.random.default_rng(2).random(X.shape) < 0.1] = np.nan
    frame, basis = ProductFrame(kernel, 6), basis_of(X, kernel)
    source = as_source(X)
    held = np.ones((len(X), len(X)))
    for i, column in enumerate(basis.bases):
        e = column.values(kernel.points(X)[:, i])
        assert not column.tents
        held *= e.T @ e
    np.testing.assert_allclose(np.diag(held), 1.0, atol=1e-4)
    grams = []
    for seed in range(40):
        pool = TableSpace(frame, basis, source, RowPlan.of(source, seed)).draw(30, seed, 1, 10)
        features = pool.features.reweighted(1.0 / np.sqrt(pool.inclusion))
        Z = features.values(X, 1)
        assert np.isfinite(Z).all()
        grams.append(Z @ Z.T)
    assert_unbiased(grams, held)


# --- what a map does not see ---------------------------------------------------------------------


def exact_deviation(kernel: Any, X: Array, new: Array, alpha: float, noise: float) -> Array:
    """Of a new observation under the exact Gaussian process."""
    cross = kernel(X, new)
    seen = np.sum(cross * np.linalg.solve(kernel(X) + alpha * np.eye(len(X)), cross), axis=0)
    return np.sqrt(noise * (1.0 + (1.0 - seen) / alpha))


@pytest.mark.parametrize("family", ["gaussian", "laplacian", "matern32"])
@pytest.mark.parametrize("kind", [RowNormFeatures, NystromFeatures, FourierFeatures])
def test_deviations_are_those_of_the_gaussian_process(kind: Any, family: str) -> None:
    """On training rows, between them, and at 1, 2, 5 and 20 widths from the last of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 1))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=100)
    kernel, alpha = Product(1.0, family), 0.1
    s = {RowNormFeatures: 2000, NystromFeatures: 100, FourierFeatures: 4000}[kind]
    model = KernelRidge(
        alpha=alpha, features=kind(s, kernel=kernel, random_state=0), fit_intercept=False
    ).fit(X, y)
    edge = X.max()
    for new in (X, 0.5 * (X[1:] + X[:-1]), edge + np.array([[1.0], [2.0], [5.0], [20.0]])):
        deviation = model.predict(new, return_std=True)[1]
        exact = exact_deviation(kernel, X, new, alpha, model.noise_variance_)
        np.testing.assert_allclose(deviation, exact, rtol=0.05)


# --- any finite table ----------------------------------------------------------------------------


def awkward(name: str) -> Array:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4))
    return {
        "outliers": lambda: np.vstack([X, np.full((1, 4), 1e6), [[1e12, 0.0, -1e9, 3.0]]]),
        "heavy tails": lambda: rng.standard_t(1.0, size=(120, 4)),
        "offset": lambda: X + 1e7,
        "units": lambda: X * [1e-9, 1e9, 1.0, 1e4],
        "constant columns": lambda: X * [1.0, 0.0, 0.0, 1.0] + 5.0,
        "huge": lambda: X * 1e70,
        "few values": lambda: np.round(X),
        "one row": lambda: X[:1],
    }[name]()


NAMES = (
    "outliers",
    "heavy tails",
    "offset",
    "units",
    "constant columns",
    "huge",
    "few values",
    "one row",
)


@pytest.mark.parametrize("gamma", ["scale", "auto", 0.01, 1.0, 10.0])
@pytest.mark.parametrize("name", NAMES)
def test_no_default_fit_refuses_finite_data(name: str, gamma: Any) -> None:
    X = awkward(name)
    for kernel in ("gaussian", "laplacian"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "the columns have very different scales")
            features = AdaptiveFeatures(40, kernel=kernel, gamma=gamma, random_state=0)
            model = KernelRidge(alpha=1.0, features=features).fit(X, X[:, 0] / abs(X).max())
            assert np.isfinite(model.predict(np.vstack([X, 3.0 * X]))).all()


def test_many_columns_in_a_default_fit() -> None:
    """Beyond the columns for which both bases are tried, too, and where the series is too long."""
    X = np.random.default_rng(0).normal(size=(60, 300))
    features = RowNormFeatures(50, gamma=1.0, random_state=0).fit(X)
    assert features.basis_ == "mercer"
    assert np.isfinite(features.transform(X)).all()


def test_columns_with_tiny_rates_cost_next_to_nothing() -> None:
    X = np.random.default_rng(0).normal(size=(200, 300))
    rates = np.full(300, 1e-5)
    rates[[3, 50]] = 1.0
    rates[100:] = 0.0
    kernel = Product(rates, "gaussian")
    assert (basis_of(X, kernel).n_orders[4:50] <= 3).all()
    features = RowNormFeatures(400, kernel=kernel, random_state=0).fit(X)
    Z = features.transform(X)
    error = np.linalg.norm(Z @ Z.T - kernel(X)) / np.linalg.norm(kernel(X))
    assert error < 1e-3


def test_the_laplacian_is_a_product() -> None:
    X = np.random.default_rng(0).normal(size=(50, 3))
    maps = [
        RowNormFeatures(60, kernel=kernel, random_state=0).fit(X)
        for kernel in (Laplacian(0.3), Product(0.3, "laplacian"))
    ]
    np.testing.assert_array_equal(maps[0].transform(X), maps[1].transform(X))


def test_capped_columns_are_said() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([1e4 * rng.normal(size=3000), rng.normal(size=3000)])
    features = RowNormFeatures(50, kernel=Product([1.0, 1.0]), random_state=0).fit(X)
    assert features.capped_columns_.tolist() == [0]
    plain = RowNormFeatures(50, kernel=Gaussian(1.0), rotate=False, random_state=0).fit(X[:, 1:])
    assert plain.capped_columns_.tolist() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": Product(1.0), "rotate": True}, "mix columns"),
        ({"kernel": Product(1.0), "basis": "monomial"}, "no Taylor series"),
        ({"kernel": Matern(1.0)}, "NystromFeatures"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RowNormFeatures(10, **options).fit(np.eye(4))


def test_a_kernel_with_one_rate_can_be_cloned() -> None:
    features = RowNormFeatures(kernel=Product(0.7, "laplacian"))
    assert clone(features).kernel == features.kernel


def test_the_product_of_many_first_functions_never_vanishes() -> None:
    """Far from most rows e_0 is rounding of any sign; over many columns it could underflow."""
    X = np.random.default_rng(0).standard_t(1.5, size=(50, 128))
    features = RowNormFeatures(30, kernel=Product(3.0), random_state=0, n_jobs=1).fit(X)
    assert np.isfinite(features.transform(X)).all()


@pytest.mark.parametrize(
    "kind", [AdaptiveFeatures, RowNormFeatures, NystromFeatures, FourierFeatures]
)
def test_sparse_rows_of_a_kernel_with_warps_are_spelled_out(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4)) * (rng.random((60, 4)) < 0.5)
    kernel = learn(X, np.sin(X[:, 0]), random_state=0).kernel
    features = kind(20, kernel=kernel, random_state=0).fit(X)
    np.testing.assert_allclose(features.transform(sp.csr_array(X)), features.transform(X))


# --- what kernels.learn returns, in place of a kernel ---------------------------------------------

TAKE_PRODUCTS = {
    "adaptive": lambda kernel: AdaptiveFeatures(12, kernel=kernel, random_state=0),
    "auto": lambda kernel: AutoFeatures(12, kernel=kernel, random_state=0),
    "categories": lambda kernel: AdaptiveFeatures(
        12, kernel=kernel, categorical_features=[2], random_state=0
    ),
    "fourier": lambda kernel: FourierFeatures(12, kernel=kernel, random_state=0),
    "nystrom": lambda kernel: NystromFeatures(12, kernel=kernel, random_state=0),
    "residual": lambda kernel: ResidualFeatures(12, kernel=kernel, random_state=0),
    "row norm": lambda kernel: RowNormFeatures(12, kernel=kernel, random_state=0),
}


@functools.cache
def learned(max_order: int | None = None) -> tuple[Array, Array, Any]:
    X = np.random.default_rng(0).normal(size=(120, 3))
    X[:, 2] = np.round(X[:, 2])
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    return X, y, learn(X, y, families=["gaussian"], max_order=max_order, random_state=0)


@pytest.mark.parametrize("name", TAKE_PRODUCTS)
def test_a_learned_kernel_is_a_kernel(name: str, tmp_path: Path) -> None:
    """The same features, predictions and model file as with its ``kernel``."""
    X, y, result = learned()
    ours, plain = (TAKE_PRODUCTS[name](kernel) for kernel in (result, result.kernel))
    np.testing.assert_array_equal(ours.fit_transform(X, y), plain.fit_transform(X, y))
    assert ours.kernel is result
    assert clone(ours).kernel.kernel == result.kernel
    save(ours, tmp_path / "map")
    np.testing.assert_array_equal(load(tmp_path / "map").transform(X), plain.transform(X))
    assert ours.__sklearn_tags__() == plain.__sklearn_tags__()
    ridges = (KernelRidge(features, alpha=0.1).fit(X, y) for features in (ours, plain))
    np.testing.assert_array_equal(*(ridge.predict(X) for ridge in ridges))


def test_a_learned_kernel_of_parts_is_a_kernel() -> None:
    X, y, result = learned(max_order=2)
    for build in (TAKE_PRODUCTS["nystrom"], TAKE_PRODUCTS["auto"]):
        ours, plain = (build(kernel).fit_transform(X, y) for kernel in (result, result.kernel))
        np.testing.assert_array_equal(ours, plain)


def test_diagnostics_take_a_learned_kernel() -> None:
    X, _, result = learned()
    Z = NystromFeatures(12, kernel=result, random_state=0).fit_transform(X)
    for estimate in (
        lambda kernel: float(estimate_statistical_dimension(kernel, X, 0.1, random_state=0)),
        lambda kernel: float(estimate_spectral_epsilon(kernel, X, Z, 0.1, random_state=0)),
        lambda kernel: float(KernelSample(kernel, X, 0.1).statistical_dimension()),
    ):
        assert estimate(result) == estimate(result.kernel)
