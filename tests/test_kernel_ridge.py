"""KernelRidge: the normal equations against plain linear algebra, and scikit-learn's contract."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from kernelsieve import (
    AdaptiveFeatures,
    FourierFeatures,
    KernelRidge,
    KernelRidgeCV,
    NystromFeatures,
    RowNormFeatures,
    TensorSketchFeatures,
)
from kernelsieve.kernels import Polynomial, Product


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    return X, X[:, 0] * X[:, 1] + np.sin(X[:, 2]) + 0.1 * rng.standard_normal(300)


def expected_failures(model: KernelRidge) -> dict[str, str]:
    """A map that looks at the rows looks at them without weights."""
    if isinstance(model.features, FourierFeatures):
        return {}
    reason = "the map is fitted to all rows, whatever their weights"
    kinds = ("dense", "sparse")
    return {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in kinds}


@parametrize_with_checks(
    [
        KernelRidge(FourierFeatures(100, gamma=0.1, random_state=0), alpha=1e-3),
        KernelRidge(AdaptiveFeatures(100, random_state=0), alpha=1e-3),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("outputs", [1, 3])
def test_equals_a_ridge_on_the_features(data, fit_intercept, outputs):
    X, y = data
    Y = y if outputs == 1 else np.stack([y, X[:, 0], -y], axis=1)
    model = KernelRidge(
        FourierFeatures(64, random_state=1), alpha=0.3, fit_intercept=fit_intercept, block_rows=64
    ).fit(X, Y)
    ridge = Ridge(alpha=0.3, fit_intercept=fit_intercept).fit(model.features_.transform(X), Y)
    np.testing.assert_allclose(model.coef_.T, ridge.coef_, atol=1e-8)
    np.testing.assert_allclose(model.intercept_, ridge.intercept_, atol=1e-8)
    expected = ridge.predict(model.features_.transform(X))
    np.testing.assert_allclose(model.predict(X), expected, atol=1e-8)


def test_all_monomials_give_the_exact_kernel_ridge(data):
    X, y = data
    kernel = Polynomial(degree=3, gamma=0.2)
    model = KernelRidge(RowNormFeatures(100, kernel=kernel), alpha=0.5, fit_intercept=False)
    dual = np.linalg.solve(kernel(X) + 0.5 * np.eye(len(X)), y)
    np.testing.assert_allclose(model.fit(X, y).predict(X), kernel(X) @ dual, atol=1e-8)


def test_sparse_features_give_the_same_model(data):
    X, y = data
    X = np.where(np.abs(X) > 0.7, X, 0.0)
    features = RowNormFeatures(
        40, kernel=Polynomial(degree=2), rotate=False, center=False, random_state=0
    )
    dense = KernelRidge(features, alpha=0.1).fit(X, y)
    sparse = KernelRidge(features, alpha=0.1).fit(sp.csr_array(X), y)
    np.testing.assert_allclose(sparse.predict(sp.csr_array(X)), dense.predict(X), atol=1e-8)


@pytest.mark.parametrize("alpha", [1.0, 1e-6])
def test_float32_predicts_what_float64_does(data, alpha):
    X, y = data
    model = KernelRidge(FourierFeatures(50, gamma=0.2, random_state=0), alpha=alpha)
    double = model.fit(X, y).predict(X)
    single = model.fit(X.astype(np.float32), y).predict(X.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, double, atol=2e-2 * np.std(y))


@pytest.mark.parametrize("n_jobs", [2, 4])
def test_threads_do_not_change_a_bit(data, n_jobs):
    X, y = data
    one = KernelRidge(AdaptiveFeatures(60, random_state=0, n_jobs=1), n_jobs=1).fit(X, y)
    many = KernelRidge(AdaptiveFeatures(60, random_state=0, n_jobs=n_jobs), n_jobs=n_jobs)
    np.testing.assert_array_equal(many.fit(X, y).predict(X), one.predict(X))


def test_features_without_alpha_take_the_models(data):
    X, y = data
    model = KernelRidge(AdaptiveFeatures(30, random_state=0), alpha=0.25).fit(X, y)
    assert model.features_.alpha == 0.25
    kept = KernelRidge(AdaptiveFeatures(30, alpha=2.0, random_state=0), alpha=0.25).fit(X, y)
    assert kept.features_.alpha == 2.0


def test_target_aware_features_are_not_fitted_on_held_out_rows(data):
    X, _ = data
    noise = np.random.default_rng(1).standard_normal(len(X))
    model = KernelRidge(AdaptiveFeatures(20, random_state=0), alpha=10.0)
    predicted = cross_val_predict(model, X, noise, cv=5)
    assert abs(np.corrcoef(predicted, noise)[0, 1]) < 4 / np.sqrt(len(X))


def test_grid_search_and_pipeline(data):
    X, y = data
    pipeline = make_pipeline(
        StandardScaler(), KernelRidge(RowNormFeatures(60, random_state=0), alpha=0.1)
    )
    search = GridSearchCV(
        pipeline, {"kernelridge__features__gamma": [1e-6, 0.2], "kernelridge__alpha": [0.1, 1.0]}
    ).fit(X, y)
    assert search.best_params_["kernelridge__features__gamma"] == 0.2
    assert search.best_score_ > 0.8


def test_more_rows_than_a_block_and_fewer_than_features(data):
    X, y = data
    model = KernelRidge(FourierFeatures(200, random_state=0), block_rows=7).fit(X[:50], y[:50])
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"alpha": -1}, "alpha=-1 must be finite and > 0: it is added to the kernel's diagonal"),
        ({"alpha": "big"}, "alpha='big' must be a number"),
        ({"block_rows": 0}, "block_rows=0 must be >= 1"),
        ({"n_jobs": 0}, "n_jobs=0 is not a number of threads"),
    ],
)
def test_bad_parameters_are_named(data, parameters, message):
    X, y = data
    with pytest.raises((ValueError, TypeError), match=message):
        KernelRidge(FourierFeatures(10), **parameters).fit(X, y)


def test_the_default_map_of_sparse_rows_has_the_random_state_of_the_search():
    X = sp.random(300, 40, density=0.2, random_state=0, format="csr")
    y = np.asarray(X[:, 0].todense()).ravel() + np.random.default_rng(0).normal(size=300)
    first, again = (KernelRidgeCV(random_state=3).fit(X, y).predict(X) for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_a_tiny_ridge_on_float32_rows_is_solved():
    """The products of wide kernels' features are positive definite up to rounding only."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3)).astype(np.float32)
    truth = np.sin(X[:, 0]) + X[:, 1] ** 2
    features = NystromFeatures(500, kernel=Product([0.3, 0.1, 0.2], "gaussian"), random_state=0)
    model = KernelRidge(features, alpha=1e-6).fit(X, truth + 0.3 * rng.normal(size=4000))
    assert np.sqrt(np.mean((model.predict(X) - truth) ** 2)) < 0.06


@pytest.mark.parametrize("cv", [None, 3])
def test_errors_that_overflow_for_every_alpha_are_refused(cv: int | None) -> None:
    """A kernel of 1e28^7: no alpha has an error that is a number."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 200, (30, 7)) * (rng.random((30, 7)) < 0.4)
    features = TensorSketchFeatures(100, degree=7, gamma=1e28, coef0=0.0, random_state=2)
    model = KernelRidgeCV(features, alphas=np.logspace(-3, 3, 5), cv=cv)
    with pytest.raises(ValueError, match="overflow float64: scale the data"):
        model.fit(X.astype(float), rng.normal(size=30))
