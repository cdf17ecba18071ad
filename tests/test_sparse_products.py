"""Product kernels on sparse rows: sparse in, sparse out, and the same kernel as on dense rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from kernelsieve import AdaptiveFeatures, KernelRidge, RowNormFeatures, persistence
from kernelsieve.kernels import Gaussian, Product
from kernelsieve.products.sparse_basis import SparseBasis

KERNELS = {
    "gaussian": Product(0.7),
    "laplacian": Product(0.5, "laplacian"),
    "rates": Product(np.geomspace(1e-3, 1.0, 8)),
}


def one_hot(n: int, seed: int = 0) -> Any:
    """Two one-hot columns of three levels, and two numeric ones."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(n, 2)) * (rng.random((n, 2)) < 0.7)
    levels = [np.eye(3)[rng.integers(0, 3, n)] for _ in range(2)]
    return sp.csr_matrix(np.hstack([*levels, numbers]))


@pytest.mark.parametrize("name", KERNELS)
def test_all_features_hold_the_kernel(name: str) -> None:
    X, new, kernel = one_hot(100), one_hot(40, seed=1), KERNELS[name]
    features = RowNormFeatures(30_000, kernel=kernel, random_state=0).fit(X)
    Z, Z_new = features.transform(X), features.transform(new)
    assert sp.issparse(Z)
    assert isinstance(features.features_.basis, SparseBasis)
    tolerance = 1e-2 if name == "laplacian" else 4e-3  # rare products were not drawn
    np.testing.assert_allclose((Z @ Z.T).toarray(), kernel(X), atol=tolerance)
    np.testing.assert_allclose((Z_new @ Z.T).toarray(), kernel(new, X), atol=tolerance)
    np.testing.assert_allclose(features.transform(X.toarray()), Z.toarray(), atol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_few_features_are_unbiased(name: str) -> None:
    X, kernel = one_hot(40), KERNELS[name]
    grams = []
    for seed in range(150):
        Z = RowNormFeatures(30, kernel=kernel, random_state=seed).fit(X).transform(X)
        grams.append((Z @ Z.T).toarray())
    error = np.mean(grams, axis=0) - kernel(X)
    deviation = np.maximum(np.std(grams, axis=0) / np.sqrt(len(grams)), 2e-3)
    z = np.abs(error / deviation)
    assert z.mean() < 1.3
    assert np.quantile(z, 0.99) < 4.5


@pytest.mark.parametrize("gamma", [30.0, 1e4])
def test_sparse_gaussian_needs_no_short_series(gamma: float) -> None:
    X = one_hot(200)
    X.data *= 20.0
    features = RowNormFeatures(200, kernel=Gaussian(gamma), random_state=0).fit(X)
    Z = features.transform(X)
    assert np.isfinite(Z.data).all()
    assert features.basis_ == "mercer"


def test_ridge_on_sparse_rows_and_its_file(tmp_path: Any) -> None:
    X = one_hot(400)
    dense = X.toarray()
    y = dense[:, 0] * dense[:, 6] + dense[:, 4]
    model = KernelRidge(AdaptiveFeatures(150, kernel=Product(0.4), random_state=0), alpha=0.01)
    model.fit(X, y)
    assert model.score(X, y) > 0.97
    persistence.save(model, tmp_path / "model.ks")
    np.testing.assert_array_equal(
        persistence.load(tmp_path / "model.ks").predict(X), model.predict(X)
    )


def test_explicit_zeros_change_nothing() -> None:
    X = one_hot(60)
    features = RowNormFeatures(300, kernel=Product(0.7), random_state=0).fit(X)
    padded = X.copy().tolil()
    padded[0, 7] = 1.0
    padded = sp.csr_matrix(padded)
    X_zero = padded.copy()
    X_zero[0, 7] = 0.0
    plain = X_zero.copy()
    plain.eliminate_zeros()
    np.testing.assert_allclose(
        features.transform(X_zero).toarray(), features.transform(plain).toarray(), atol=1e-15
    )


def test_families_that_sparse_rows_do_not_have() -> None:
    with pytest.raises(ValueError, match="dense rows"):
        AdaptiveFeatures(20, kernel=Product(1.0, "categorical")).fit(one_hot(50))
