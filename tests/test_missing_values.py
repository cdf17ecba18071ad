"""Missing values and categories in product kernels: one kernel, exact or in features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from kernelsieve import (
    AdaptiveFeatures,
    FourierFeatures,
    KernelRidge,
    NystromFeatures,
    RowNormFeatures,
    persistence,
)
from kernelsieve.kernels import Product

Array = NDArray[Any]
NUMERIC = ("gaussian", "laplacian", "matern32", "matern52")


def table(n: int = 120, missing: float = 0.15, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [rng.normal(size=n), rng.exponential(size=n), rng.integers(0, 4, n).astype(float)]
    )
    X[rng.random(X.shape) < missing] = np.nan
    return X


def kernel(family: str) -> Product:
    return Product([0.5, 0.3, 0.7], [family, family, "categorical"])


def one(family: str, rate: float, u: float, v: float) -> float:
    """The kernel of a column at two known values."""
    t = rate * abs(u - v)
    r3, r5 = np.sqrt(3.0) * t, np.sqrt(5.0) * t
    return {
        "gaussian": np.exp(-(t**2)),
        "laplacian": np.exp(-t),
        "matern32": (1 + r3) * np.exp(-r3),
        "matern52": (1 + r5 + r5**2 / 3) * np.exp(-r5),
        "categorical": 1.0 if u == v else np.exp(-rate),
    }[family]


def slow_gram(k: Product, X: Array, Y: Array) -> Array:
    """By the definition: a missing value is the mean of the references; two of them have k = 1."""
    out = np.ones((len(X), len(Y)))
    for i, x in enumerate(X):
        for j, y in enumerate(Y):
            for c, (u, v) in enumerate(zip(x, y, strict=True)):
                rate, family, known = k.rates[c], k.families[c], k.references[c]
                mean = lambda w: sum(  # noqa: E731
                    p * one(family, rate, value, w)  # noqa: B023
                    for value, p in zip(known.values, known.weights, strict=True)  # noqa: B023
                )
                if np.isnan(u) and np.isnan(v):
                    continue
                out[i, j] *= (
                    mean(v) if np.isnan(u) else mean(u) if np.isnan(v) else one(family, rate, u, v)
                )
    return out


@pytest.mark.parametrize("family", NUMERIC)
def test_gram_of_missing_values_is_that_of_the_definition(family: str) -> None:
    X, Y = table(25), table(20, seed=1)
    k = kernel(family).with_references(X)
    np.testing.assert_allclose(k(X, Y), slow_gram(k, X, Y), atol=1e-12)
    np.testing.assert_allclose(k(X), slow_gram(k, X, X), atol=1e-12)
    assert np.linalg.eigvalsh(k(X)).min() > -1e-10
    np.testing.assert_allclose(k(X.astype(np.float32), Y.astype(np.float32)), k(X, Y), atol=1e-5)


@pytest.mark.parametrize("family", NUMERIC)
def test_all_features_hold_the_kernel_of_missing_values(family: str) -> None:
    X, new = table(), table(40, seed=1)
    features = RowNormFeatures(60_000, kernel=kernel(family), random_state=0).fit(X)
    Z, Z_new = features.transform(X), features.transform(new)
    tolerance = 1e-3 if family == "laplacian" else 1e-4
    np.testing.assert_allclose(Z @ Z.T, features.kernel_(X), atol=tolerance)
    np.testing.assert_allclose(Z_new @ Z.T, features.kernel_(new, X), atol=tolerance)


@pytest.mark.parametrize("family", NUMERIC)
def test_few_features_are_unbiased_for_missing_values(family: str) -> None:
    X = table(60)
    k = kernel(family).with_references(X)
    grams = []
    for seed in range(120):
        Z = RowNormFeatures(40, kernel=k, random_state=seed).fit(X).transform(X)
        grams.append(Z @ Z.T)
    error = np.mean(grams, axis=0) - k(X)
    deviation = np.std(grams, axis=0) / np.sqrt(len(grams))
    z = error / np.maximum(deviation, 1e-3)
    assert np.abs(z).mean() < 1.3
    assert np.quantile(np.abs(z), 0.99) < 4.5


@pytest.mark.parametrize("kind", [AdaptiveFeatures, RowNormFeatures, NystromFeatures])
def test_models_accept_missing_values(kind: Any, tmp_path: Any) -> None:
    X = table(300)
    y = np.nan_to_num(X[:, 0]) + np.where(X[:, 2] == 1.0, 2.0, 0.0)
    model = KernelRidge(kind(120, kernel=kernel("gaussian"), random_state=0), alpha=0.1).fit(X, y)
    assert model.score(X, y) > 0.97
    persistence.save(model, tmp_path / "model.ks")
    again = persistence.load(tmp_path / "model.ks")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert model.__sklearn_tags__().input_tags.allow_nan


def test_exact_ridge_has_the_kernel_of_missing_values() -> None:
    X = table(200)
    y = np.nan_to_num(X[:, 0])
    features = AdaptiveFeatures(80, kernel=kernel("gaussian"), random_state=0)
    model = KernelRidge(features, alpha=0.1, refine=True, tol=1e-10).fit(X, y)
    K = kernel("gaussian").with_references(X)(X)
    exact = K @ np.linalg.solve(K + 0.1 * np.eye(len(X)), y - y.mean()) + y.mean()
    assert np.abs(model.predict(X) - exact).max() < 0.05


def test_missing_values_only_in_new_rows() -> None:
    """Sampled maps compare them by the training values; the exact kernel asks for references."""
    X, new = table(missing=0.0), table(30, missing=0.3, seed=1)
    k = kernel("gaussian")
    features = RowNormFeatures(5_000, kernel=k, random_state=0).fit(X)
    exact = k.with_references(X)(new, X)
    np.testing.assert_allclose(features.transform(new) @ features.transform(X).T, exact, atol=0.01)
    with pytest.raises(ValueError, match="with_references"):
        k(new)


@pytest.mark.parametrize("features", [AdaptiveFeatures(20), FourierFeatures(20, kernel=Product(1))])
def test_other_kernels_refuse_missing_values(features: Any) -> None:
    assert not features.__sklearn_tags__().input_tags.allow_nan
    with pytest.raises(ValueError, match="NaN"):
        features.fit(table())


def test_a_column_without_values_does_not_take_part() -> None:
    X = table()
    X[:, 1] = np.nan
    features = RowNormFeatures(2_000, kernel=kernel("gaussian"), random_state=0).fit(X)
    Z = features.transform(X)
    np.testing.assert_allclose(Z @ Z.T, features.kernel_(X), atol=1e-5)


# --- categorical_features ------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [[2], ["level"], [False, False, True]])
def test_categorical_features_by_number_name_or_mask(columns: Any) -> None:
    X = pd.DataFrame(table(missing=0.0), columns=["a", "b", "level"])
    k = Product([0.5, 0.3, 0.7])
    features = RowNormFeatures(50, kernel=k, categorical_features=columns, random_state=0).fit(X)
    assert features.kernel_.families == ("gaussian", "gaussian", "categorical")


@pytest.mark.parametrize(("name", "typical"), [("gaussian", 2.0), ("laplacian", 1.1284)])
def test_named_kernels_with_categories(name: str, typical: float) -> None:
    X = table(missing=0.0)
    X[:, 2] *= 1e6  # codes have no scale
    features = AdaptiveFeatures(50, kernel=name, categorical_features=[2], random_state=0).fit(X)
    numeric = X[:, :2]
    gamma = 1.0 / (3 * numeric.var())
    k = features.kernel_
    assert k.families == (name, name, "categorical")
    expected = [np.sqrt(gamma) if name == "gaussian" else gamma] * 2 + [gamma * typical]
    np.testing.assert_allclose(k.rates, expected, rtol=1e-4)


@pytest.mark.parametrize("columns", [[3], ["nobody"], [True], [-1]])
def test_categorical_features_that_are_not_there(columns: Any) -> None:
    with pytest.raises(ValueError, match="columns"):
        RowNormFeatures(10, categorical_features=columns).fit(table(missing=0.0))


def test_kernels_that_are_no_products_have_no_categories() -> None:
    with pytest.raises(ValueError, match="not a product"):
        RowNormFeatures(10, kernel="poly", categorical_features=[2]).fit(table(missing=0.0))
