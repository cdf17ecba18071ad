"""The models against exact kernel methods, and scikit-learn's contract."""

from __future__ import annotations

import warnings
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import eigh
from sklearn import config_context
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import make_circles, make_moons
from sklearn.decomposition import KernelPCA as ExactPCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge as ExactRidge
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from kernelsieve import (
    AdaptiveFeatures,
    FourierFeatures,
    KernelCCA,
    KernelKMeans,
    KernelPCA,
    KernelRidge,
    KernelRidgeClassifier,
    KernelRidgeCV,
    KernelSVC,
    RowNormFeatures,
)
from kernelsieve.kernels import Gaussian, Polynomial
from kernelsieve.linalg import eigenvalues, posterior
from kernelsieve.linalg.normal_equations import NormalEquations, solve_ridge
from kernelsieve.linalg.rounding import corrected, residual_sums
from kernelsieve.linalg.solvers import conjugate_gradients
from kernelsieve.models import ridge_solve

KERNEL = Polynomial(degree=3, gamma=0.3, coef0=1.0)
ALL = RowNormFeatures(100, kernel=KERNEL, rotate=False)  # 4 columns: all 35 monomials
FOURIER = FourierFeatures(60, gamma=0.1, random_state=0)


def regression(n: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    return X, X[:, 0] * X[:, 1] + np.sin(X[:, 2]) + 0.1 * rng.standard_normal(n)


WEIGHTS = "starts and solvers see rows, not their weights"


def expected_failures(model: object) -> dict[str, str]:
    kinds = ("dense", "sparse")
    failures = {}
    if isinstance(model, KernelKMeans | KernelSVC):
        for kind in kinds:
            failures[f"check_sample_weight_equivalence_on_{kind}_data"] = WEIGHTS
    return failures


@parametrize_with_checks(
    [
        KernelRidgeCV(FOURIER, alphas=[1e-3, 1e-2]),
        KernelRidgeClassifier(FourierFeatures(100, gamma=0.1, random_state=0), alpha=1e-2),
        KernelSVC(FourierFeatures(100, gamma=0.1, random_state=0), random_state=0),
        KernelPCA(1, FOURIER),
        KernelKMeans(3, FOURIER, random_state=0),
        KernelCCA(1, FOURIER, FourierFeatures(20, gamma=0.5, random_state=1)),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_all_monomials_make_the_exact_ridge():
    X, y = regression()
    exact = ExactRidge(alpha=0.5, kernel="poly", degree=3, gamma=0.3, coef0=1).fit(X, y)
    model = KernelRidge(ALL, alpha=0.5, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(model.predict(X), exact.predict(X), atol=1e-6)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("solver", ["cholesky", "cg", "dual"])
def test_weights_are_repetitions(monkeypatch, solver, fit_intercept):
    X, y = regression()
    if solver == "dual":
        monkeypatch.setattr(ridge_solve, "LARGEST_CHOLESKY", 50)
        features = FourierFeatures(900, gamma=0.1, random_state=0)
    else:
        features = FOURIER
    model = KernelRidge(
        features,
        alpha=0.2,
        fit_intercept=fit_intercept,
        solver="auto" if solver == "dual" else solver,
        tol=1e-12,
        random_state=0,
    )
    times = np.random.default_rng(1).integers(0, 4, size=len(y))
    weighted = clone(model).fit(X, y, sample_weight=times)
    repeated = clone(model).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert weighted.solver_ == repeated.solver_ == solver
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-8)


def test_every_solver_finds_the_same_ridge(monkeypatch):
    X, y = regression()
    Y = np.stack([y, X[:, 3] ** 2], axis=1)
    direct = KernelRidge(FOURIER, alpha=0.1).fit(X, Y)
    monkeypatch.setattr("kernelsieve.linalg.iterative_ridge.SKETCH_SIZE", 10)  # of 60 features
    iterated = KernelRidge(FOURIER, alpha=0.1, solver="cg", tol=1e-12, random_state=0).fit(X, Y)
    np.testing.assert_allclose(iterated.predict(X), direct.predict(X), atol=1e-8)
    assert iterated.n_iter_ > 1
    monkeypatch.setattr("kernelsieve.features.blocks.KEPT_BYTES", 0)  # made again every pass
    again = KernelRidge(FOURIER, alpha=0.1, solver="cg", tol=1e-12, random_state=0).fit(X, Y)
    np.testing.assert_array_equal(again.coef_, iterated.coef_)


def test_gradients_that_stop_early_say_so(monkeypatch):
    monkeypatch.setattr("kernelsieve.models.full_kernel.LARGEST_KERNEL_MATRIX", 0)
    X, y = regression()
    model = KernelRidge(
        FourierFeatures(500, gamma=0.3, random_state=0), alpha=1e-8, refine=True, max_iter=1
    )
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        model.fit(X, y)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_refinement_is_the_exact_ridge(fit_intercept):
    X, y = regression()
    kernel, alpha = Gaussian(0.1), 0.05
    model = KernelRidge(FOURIER, alpha=alpha, refine=True, fit_intercept=fit_intercept, tol=1e-12)
    new = regression(50, seed=1)[0]
    K, ones = kernel(X), np.ones((len(y), 1))
    if fit_intercept:
        system = np.block([[K + alpha * np.eye(len(y)), ones], [ones.T, np.zeros((1, 1))]])
        solution = np.linalg.solve(system, np.append(y, 0.0))
        expected = kernel(new, X) @ solution[:-1] + solution[-1]
    else:
        expected = kernel(new, X) @ np.linalg.solve(K + alpha * np.eye(len(y)), y)
    np.testing.assert_allclose(model.fit(X, y).predict(new), expected, atol=1e-8)


def test_refinement_with_weights_repeats_rows():
    X, y = regression(120)
    times = np.random.default_rng(1).integers(1, 4, size=len(y))
    model = KernelRidge(FOURIER, alpha=0.05, refine=True, tol=1e-12)
    weighted = clone(model).fit(X, y, sample_weight=times)
    repeated = clone(model).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-8)


def test_partial_fit_adds_up_to_fit():
    X, y = regression()
    fitted = clone(FOURIER).fit(X)
    model = KernelRidge(fitted, alpha=0.1)
    for first in range(0, 200, 50):
        rows = slice(first, first + 50)
        model.partial_fit(X[rows], y[rows])
    whole = KernelRidge(FOURIER, alpha=0.1).fit(X, y)
    assert model.features_ is fitted
    np.testing.assert_allclose(model.predict(X), whole.predict(X), atol=1e-10)
    with pytest.raises(ValueError, match="2 outputs, but earlier rows had 1"):
        model.partial_fit(X, np.stack([y, y], axis=1))


def test_predictive_intervals_cover():
    """Data from the model itself: weights from the prior, noise with the variance alpha implies."""
    inside = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, new = rng.standard_normal((300, 3)), rng.standard_normal((300, 3))
        features = FourierFeatures(40, gamma=0.2, random_state=seed).fit(X)
        noise, prior = 0.3, 1.0
        weights = prior * rng.standard_normal(40)
        y = features.transform(X) @ weights + noise * rng.standard_normal(300)
        there = features.transform(new) @ weights + noise * rng.standard_normal(300)
        model = KernelRidge(features, alpha=(noise / prior) ** 2, fit_intercept=False).fit(X, y)
        mean, deviation = model.predict(new, return_std=True)
        inside.append(np.mean(np.abs(there - mean) < 1.645 * deviation))
    # 6,000 correlated cases: their share has a standard error of about 0.006.
    assert 0.87 <= np.mean(inside) <= 0.93
    assert min(inside) > 0.8


def test_deviation_needs_a_factor():
    X, y = regression()
    model = KernelRidge(FOURIER, solver="cg", random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="use solver='cholesky'"):
        model.predict(X, return_std=True)


def test_risk_bound_bounds_the_risk_of_its_own_predictions():
    X, y = regression()
    model = KernelRidge(ALL, alpha=0.5, fit_intercept=False).fit(X, y)
    bound = model.risk_bound(X, noise_variance=0.01)
    K, values = KERNEL(X), model.predict(X)
    smoother = K @ np.linalg.inv(K + 0.5 * np.eye(len(y)))
    bias = np.mean((smoother @ values - values) ** 2)
    variance = 0.01 * np.sum(smoother**2) / len(y)
    assert bias <= bound.bias * (1 + 1e-6)
    assert variance <= bound.variance * (1 + 1e-6)


@pytest.mark.parametrize("n_rows", [200, 30])  # more rows than features, and fewer
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_leave_one_out_is_brute_force(fit_intercept, n_rows):
    X, y = regression(n_rows)
    alphas = [0.01, 1.0]
    model = KernelRidgeCV(FOURIER, alphas=alphas, fit_intercept=fit_intercept).fit(X, y)
    for alpha, rmse in zip(alphas, model.cv_results_["rmse"], strict=True):
        ridge = KernelRidge(FOURIER, alpha=alpha, fit_intercept=fit_intercept)
        left_out = []
        for i in range(len(y)):
            rest = np.arange(len(y)) != i
            left_out.append(y[i] - ridge.fit(X[rest], y[rest]).predict(X[[i]])[0])
        assert abs(np.sqrt(np.mean(np.square(left_out))) - rmse) < 1e-8


def test_cross_validation_refits_maps_that_look_at_the_target():
    X, y = regression()
    features = AdaptiveFeatures(20, gamma=0.1, random_state=0)
    model = KernelRidgeCV(features, alphas=[0.1, 1.0], cv=4).fit(X, y)
    for alpha, rmse in zip([0.1, 1.0], model.cv_results_["rmse"], strict=True):
        inner = clone(features).set_params(alpha=np.sqrt(0.1))
        from sklearn.model_selection import KFold

        predicted = cross_val_predict(KernelRidge(inner, alpha=alpha), X, y, cv=KFold(4))
        assert abs(np.sqrt(np.mean((predicted - y) ** 2)) - rmse) < 1e-8


def test_the_best_bandwidth_is_kept():
    X, y = regression()
    gammas = [1e-4, 0.1, 10.0]
    model = KernelRidgeCV(FOURIER, gammas=gammas, alphas=np.logspace(-3, 1, 5)).fit(X, y)
    assert model.gamma_ == 0.1
    assert model.features_.gamma == 0.1
    assert model.best_rmse_ == model.cv_results_["rmse"].min()
    assert len(model.cv_results_["rmse"]) == 15
    expected = KernelRidge(clone(FOURIER).set_params(gamma=0.1), alpha=model.alpha_).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), expected.predict(X))


def test_classifier_of_strings():
    X, y = make_moons(300, noise=0.15, random_state=0)
    names = np.array(["down", "up"])[y]
    features = RowNormFeatures(60, gamma=2.0, random_state=0)
    model = KernelRidgeClassifier(features, alpha=0.05).fit(X[:200], names[:200])
    assert model.score(X[200:], names[200:]) > 0.93
    assert model.decision_function(X).shape == (300,)
    three = np.where(X[:, 0] > 1.2, "right", names)
    model.fit(X[:200], three[:200])
    assert model.decision_function(X).shape == (300, 3)
    assert model.score(X[200:], three[200:]) > 0.9


def test_probabilities_are_calibrated():
    """Of rows given a probability near p a share near p is of the class."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6000, 2))
    truth = 1 / (1 + np.exp(-2 * X[:, 0] * X[:, 1]))
    y = rng.random(6000) < truth
    features = RowNormFeatures(30, gamma=0.2, random_state=0)
    model = KernelRidgeClassifier(features, alpha=1.0).fit(X[:3000], y[:3000])
    p = model.predict_proba(X[3000:])[:, 1]
    assert np.mean(np.abs(p - truth[3000:])) < 0.06
    for low in (0.1, 0.3, 0.5, 0.7):
        here = (p >= low) & (p < low + 0.2)
        share, size = y[3000:][here].mean(), here.sum()
        assert abs(share - p[here].mean()) < 0.03 + 3 * np.sqrt(0.25 / size)


def test_class_weights_are_sample_weights():
    X, y = make_moons(200, noise=0.3, random_state=0)
    weighted = KernelRidgeClassifier(FOURIER, class_weight={0: 1.0, 1: 5.0}).fit(X, y)
    by_hand = KernelRidgeClassifier(FOURIER).fit(X, y, sample_weight=np.where(y == 1, 5.0, 1.0))
    np.testing.assert_allclose(weighted.ridge_.coef_, by_hand.ridge_.coef_, atol=1e-10)
    assert weighted.predict(X).mean() > KernelRidgeClassifier(FOURIER).fit(X, y).predict(X).mean()


def test_one_class_is_refused():
    X, _ = regression()
    with pytest.raises(ValueError, match="at least 2 classes"):
        KernelRidgeClassifier(FOURIER).fit(X, np.zeros(len(X)))


def test_svm_separates_circles():
    X, y = make_circles(300, noise=0.05, factor=0.5, random_state=0)
    features = RowNormFeatures(30, gamma=1.0, random_state=0)
    model = KernelSVC(features, random_state=0).fit(X[:200], y[:200])
    assert model.score(X[200:], y[200:]) == 1.0


def test_all_monomials_make_the_exact_pca():
    X, _ = regression()
    exact = ExactPCA(5, kernel="poly", degree=3, gamma=0.3, coef0=1).fit(X)
    model = KernelPCA(5, ALL).fit(X)
    np.testing.assert_allclose(model.eigenvalues_, exact.eigenvalues_, rtol=1e-8)
    ours, theirs = model.transform(X[:50]), exact.transform(X[:50])
    signs = np.sign((ours * theirs).sum(axis=0))
    np.testing.assert_allclose(ours * signs, theirs, atol=1e-6)
    centred = KERNEL(X) - KERNEL(X).mean(axis=0)
    trace = np.trace(centred - centred.mean(axis=1, keepdims=True))
    np.testing.assert_allclose(
        model.explained_variance_ratio_, model.eigenvalues_ / trace, rtol=1e-8
    )


def test_lanczos_finds_the_same_components(monkeypatch):
    X, _ = regression()
    dense = KernelPCA(3, FOURIER).fit(X)
    monkeypatch.setattr(eigenvalues, "LARGEST_DENSE_EIGEN", 10)
    np.testing.assert_allclose(
        KernelPCA(3, FOURIER).fit(X).transform(X), dense.transform(X), atol=1e-8
    )


def test_pca_goes_back():
    t = np.random.default_rng(0).uniform(-1, 1, size=400)
    X = np.column_stack([t, t**2])
    model = KernelPCA(
        4, RowNormFeatures(40, gamma=1.0, random_state=0), fit_inverse_transform=True, alpha=1e-3
    ).fit(X)
    back = model.inverse_transform(model.transform(X))
    assert np.sqrt(np.mean((back - X) ** 2)) < 0.05
    with pytest.raises(ValueError, match="fit_inverse_transform=True"):
        KernelPCA(2, FOURIER).fit(X).inverse_transform(np.zeros((1, 2)))
    model.set_params(fit_inverse_transform=False).fit(X)
    with pytest.raises(ValueError, match="fit_inverse_transform=True"):  # of the fit before
        model.inverse_transform(np.zeros((1, 4)))


def test_k_means_is_that_of_the_kernel():
    """Lloyd's algorithm on the exact kernel matrix, from the labels found, changes nothing."""
    X, _ = make_circles(200, noise=0.03, factor=0.3, random_state=0)
    features = RowNormFeatures(100, kernel=Polynomial(2, gamma=1.0, coef0=0.0), rotate=False)
    model = KernelKMeans(2, features, n_init=10, random_state=0).fit(X)
    K = Polynomial(2, gamma=1.0, coef0=0.0)(X)
    members = np.eye(2)[model.labels_]
    share = members / members.sum(axis=0)
    squared = np.diag(K)[:, None] - 2 * K @ share + np.einsum("ik,ij,jk->k", share, K, share)
    np.testing.assert_array_equal(squared.argmin(axis=1), model.labels_)
    inertia = squared[np.arange(len(X)), model.labels_].sum()
    assert abs(model.inertia_ - inertia) < 1e-6 * inertia
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_allclose(model.transform(X) ** 2, squared, atol=1e-6)


def test_mini_batches_come_close():
    X, _ = regression(2000)
    whole = KernelKMeans(5, FOURIER, random_state=0).fit(X)
    batches = KernelKMeans(5, FOURIER, batch_rows=256, random_state=0).fit(X)
    reference = KMeans(5, n_init=3, random_state=0).fit(FOURIER.fit_transform(X))
    assert abs(whole.inertia_ / reference.inertia_ - 1) < 1e-3
    assert batches.inertia_ < 1.1 * whole.inertia_


def test_all_features_make_the_exact_cca():
    """max a^T K_x K_y b subject to a^T K_x (K_x + alpha) a = 1, and so for b, centred."""
    rng = np.random.default_rng(0)
    t = rng.standard_normal((120, 2))
    X = np.hstack([t, rng.standard_normal((120, 1))])
    Y = np.column_stack([t[:, 0] * t[:, 1], rng.standard_normal(120)])
    kernels = Polynomial(2, gamma=0.5, coef0=1.0), Polynomial(3, gamma=0.5, coef0=1.0)
    maps = [RowNormFeatures(100, kernel=kernel, rotate=False) for kernel in kernels]
    model = KernelCCA(2, *maps, alpha=2.0).fit(X, Y)
    centre = np.eye(120) - 1 / 120
    Kx, Ky = centre @ kernels[0](X) @ centre, centre @ kernels[1](Y) @ centre
    Ax = np.linalg.solve(Kx + 2.0 * np.eye(120), Kx)  # K (K + alpha)^-1: the regularised projector
    Ay = np.linalg.solve(Ky + 2.0 * np.eye(120), Ky)
    root = np.linalg.cholesky(Ay + 1e-13 * np.eye(120))
    squared = eigh(root.T @ Ax @ root, eigvals_only=True)[::-1][:2]
    np.testing.assert_allclose(model.correlations_, np.sqrt(squared), atol=1e-6)
    left, right = model.transform(X), model.transform_y(Y)
    np.testing.assert_allclose((left * right).sum(axis=0), model.correlations_, atol=1e-6)
    assert model.correlations_[0] > 0.8


def test_the_second_view_keeps_its_columns():
    """Compiled code would look beyond the end of shorter rows."""
    X = np.random.default_rng(0).standard_normal((60, 3))
    model = KernelCCA(1, RowNormFeatures(20, random_state=0)).fit(X, X[:, :2])
    for width in (1, 3):
        with pytest.raises(ValueError, match=f"y has {width} columns, but .* fitted with 2"):
            model.transform_y(X[:, :width])


def test_columns_of_wild_scales_are_named():
    pandas = pytest.importorskip("pandas")
    X, y = regression()
    frame = pandas.DataFrame(X, columns=["a", "b", "c", "income"])
    frame["income"] *= 1e5
    with pytest.warns(UserWarning, match=r"'income' .*StandardScaler"):
        KernelRidge(FOURIER).fit(frame, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_pipeline(StandardScaler(), KernelRidge(FOURIER)).fit(frame.to_numpy(), y)
        KernelRidge(FOURIER).fit(sp.csr_array(frame.to_numpy()), y)


def test_grid_search_over_model_and_map():
    X, y = regression()
    search = GridSearchCV(
        KernelRidge(RowNormFeatures(30, random_state=0)),
        {"alpha": [0.01, 1.0], "features__gamma": [0.01, 0.1]},
        cv=3,
    ).fit(X, y)
    assert search.best_params_["features__gamma"] == 0.1


def test_sparse_blocks_make_the_same_sums():
    rng = np.random.default_rng(0)
    Z, y = rng.random((50, 6)) * (rng.random((50, 6)) < 0.4), rng.random((50, 2))
    weights = rng.random(50)
    for w in (None, weights):
        dense, sparse = (NormalEquations.of_block(block, y, w) for block in (Z, sp.csr_array(Z)))
        for name in ("gram", "moment", "feature_sum", "target_sum", "target_squares"):
            np.testing.assert_allclose(getattr(dense, name), getattr(sparse, name), atol=1e-12)
        assert dense.weight == sparse.weight


SPARSE = RowNormFeatures(60, kernel=KERNEL, center=False, rotate=False, random_state=0)


@pytest.mark.parametrize(
    ("model", "method"),
    [
        (KernelRidge(SPARSE, alpha=0.1), "predict"),
        (KernelRidge(SPARSE, alpha=0.1, solver="cg", tol=1e-12), "predict"),
        (KernelRidgeCV(SPARSE, alphas=[0.1, 1.0]), "predict"),
        (KernelRidgeClassifier(SPARSE, alpha=0.1), "decision_function"),
        (KernelSVC(SPARSE, random_state=0), "decision_function"),
        (KernelPCA(3, SPARSE), "transform"),
        (KernelKMeans(4, SPARSE, random_state=0), "transform"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
def test_sparse_rows_make_the_same_model(model, method):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 12)) * (rng.random((300, 12)) < 0.3)
    y = X[:, 0] * X[:, 1] + X[:, 2]
    if isinstance(model, KernelRidgeClassifier | KernelSVC):
        y = y > 0.1
    dense = getattr(clone(model).fit(X, y), method)(X)
    rows = sp.csr_array(X)
    sparse = getattr(clone(model).fit(rows, y), method)(rows)
    # liblinear stops at a tolerance of its own, which sees the rounding of its input; a distance of
    # 0 is the root of a rounding.
    atol = {KernelSVC: 1e-3, KernelKMeans: 1e-6}.get(type(model), 1e-8)
    np.testing.assert_allclose(sparse, dense, atol=atol)


def test_sparse_cca():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 8)) * (rng.random((300, 8)) < 0.4)
    Y = np.roll(X, 1, axis=1) + 0.1
    Y[rng.random(Y.shape) < 0.3] = 0.0
    model = KernelCCA(2, SPARSE, SPARSE, alpha=1.0)
    dense = clone(model).fit(X, Y)
    sparse = clone(model).fit(sp.csr_array(X), sp.csr_array(Y))
    np.testing.assert_allclose(sparse.correlations_, dense.correlations_, atol=1e-8)


@pytest.mark.parametrize("model", [KernelRidge, KernelRidgeCV, KernelRidgeClassifier, KernelSVC])
def test_weights_are_routed(model):
    """A search hands rows' weights to the model that asks for them."""
    X, y = regression(120)
    y = y > 0 if model in (KernelRidgeClassifier, KernelSVC) else y
    times = np.random.default_rng(0).integers(0, 3, size=len(y)).astype(float)
    with config_context(enable_metadata_routing=True):
        asks = model(FOURIER).set_fit_request(sample_weight=True)
        grid = {"features__gamma": [0.1]}
        routed = GridSearchCV(asks, grid, cv=2, scoring=_nothing)
        routed.fit(X, y, sample_weight=times)
    weighted, plain = model(FOURIER).fit(X, y, sample_weight=times), model(FOURIER).fit(X, y)
    method = "decision_function" if hasattr(plain, "decision_function") else "predict"
    found, expected, other = (getattr(m, method)(X) for m in (routed, weighted, plain))
    np.testing.assert_allclose(found, expected)
    assert np.abs(found - other).max() > 1e-3


def _nothing(estimator, X, y):
    return 0.0


@pytest.mark.parametrize(
    "model", [KernelRidge(FOURIER, solver="cholesky"), KernelRidgeClassifier(FOURIER)]
)
def test_too_many_features_for_a_cholesky_factor(monkeypatch, model):
    monkeypatch.setattr(ridge_solve, "HIGHEST_CHOLESKY", 50)
    X, y = regression(80)
    with pytest.raises(ValueError, match=r"60 features are too many .*at most 50.*KernelSVC"):
        clone(model).fit(X, y > 0)


# --- fitted state, not parameters ----------------------------------------------------------------


def test_prediction_is_that_of_the_fit_whatever_the_parameters_say_now():
    X, y = regression()
    plain = KernelRidge(FOURIER, alpha=0.1).fit(X, y)
    expected = plain.predict(X)
    np.testing.assert_array_equal(plain.set_params(refine=True).predict(X), expected)
    refined = KernelRidge(FOURIER, alpha=0.1, refine=True).fit(X, y)
    expected = refined.predict(X)
    np.testing.assert_array_equal(refined.set_params(refine=False).predict(X), expected)


@pytest.mark.parametrize("again", ["fit", "partial_fit"])
def test_a_refit_forgets_the_exact_solution(again):
    X, y = regression()
    model = KernelRidge(FOURIER, alpha=0.1, refine=True).fit(X, y).set_params(refine=False)
    getattr(model, again)(X, y)
    assert not hasattr(model, "dual_coef_")
    assert not hasattr(model, "X_fit_")
    np.testing.assert_array_equal(
        model.predict(X), KernelRidge(FOURIER, alpha=0.1).fit(X, y).predict(X)
    )


def test_noise_variance_inverts_once(monkeypatch):
    X, y = regression()
    model = KernelRidge(FOURIER).fit(X, y)
    calls = []
    inverse = posterior.inverse_of_lower
    monkeypatch.setattr(
        posterior, "inverse_of_lower", lambda lower: calls.append(1) or inverse(lower)
    )
    assert model.noise_variance_ == model.noise_variance_ > 0
    assert len(calls) == 1


# --- what deviations make of weights -------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_deviations_take_integer_weights_for_repetitions(fit_intercept):
    X, y = regression()
    times = np.random.default_rng(1).integers(0, 4, size=len(y))
    model = KernelRidge(FOURIER, alpha=0.2, fit_intercept=fit_intercept)
    weighted = clone(model).fit(X, y, sample_weight=times)
    repeated = clone(model).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert weighted.noise_variance_ == pytest.approx(repeated.noise_variance_, rel=1e-10)
    _, found = weighted.predict(X, return_std=True)
    _, expected = repeated.predict(X, return_std=True)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("factor", [0.1, 1 / 200, 1e-6])  # 1 / 200: they sum to 1
def test_deviations_do_not_depend_on_the_scale_of_weights_below_one(factor, fit_intercept):
    X, y = regression()
    relative = np.random.default_rng(1).uniform(0.2, 1.0, size=len(y))
    whole = KernelRidge(FOURIER, alpha=0.2, fit_intercept=fit_intercept)
    scaled = KernelRidge(FOURIER, alpha=0.2 * factor, fit_intercept=fit_intercept)
    _, expected = whole.fit(X, y, sample_weight=relative).predict(X, return_std=True)
    _, found = scaled.fit(X, y, sample_weight=factor * relative).predict(X, return_std=True)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    # The reference: weights of mean 1 are in between both readings, and so are equal ones.
    _, mean_one = (
        KernelRidge(FOURIER, alpha=0.2 / relative.mean(), fit_intercept=fit_intercept)
        .fit(X, y, sample_weight=relative / relative.mean())
        .predict(X, return_std=True)
    )
    np.testing.assert_allclose(expected, mean_one, rtol=1e-6)


def test_deviations_with_equal_small_weights_are_those_without_weights():
    X, y = regression()
    _, expected = KernelRidge(FOURIER, alpha=0.2).fit(X, y).predict(X, return_std=True)
    for weight in (0.1, 1 / len(y)):
        model = KernelRidge(FOURIER, alpha=0.2 * weight)
        _, found = model.fit(X, y, np.full(len(y), weight)).predict(X, return_std=True)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_noise_of_one_row_is_unknown():
    X, y = regression(1)
    model = KernelRidge(FOURIER).fit(X, y)
    assert np.isnan(model.noise_variance_)
    with pytest.raises(ValueError, match="single row"):
        model.predict(X, return_std=True)


def test_deviation_after_a_file_without_it_says_how_to_save():
    X, y = regression()
    model = KernelRidge(FOURIER).fit(X, y)
    assert model._posterior is not None
    model._posterior = replace(model._posterior, factor=None)  # as in a file without it
    assert model.predict(X).shape == (len(y),)
    with pytest.raises(ValueError, match=r"kernelsieve\.save\(model, path, variance=True\)"):
        model.predict(X, return_std=True)


# --- float32 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.2, 1.0])
def test_refinement_in_float32_is_exact(gamma):
    X, y = regression(300)
    X = X.astype(np.float32)
    kernel, alpha = Polynomial(4, gamma=gamma), 0.01
    features = RowNormFeatures(100, kernel=kernel, random_state=0)
    model = KernelRidge(features, alpha=alpha, refine=True, fit_intercept=False).fit(X, y)
    K = kernel(X.astype(np.float64))
    exact = K @ np.linalg.solve(K + alpha * np.eye(len(y)), y)
    assert model.predict(X).dtype == np.float32
    # tol=1e-6 of the residual is at most so much of the predictions; float32 holds 6e-8 of them.
    assert np.abs(model.predict(X) - exact).max() < 1e-6 * np.linalg.norm(y) + 1e-6


def test_conjugate_gradients_return_the_true_residual():
    """A matrix of condition 1e14: the recurrence claims 1e-10 where rounding allows far less."""
    rng = np.random.default_rng(0)
    basis, _ = np.linalg.qr(rng.standard_normal((60, 60)))
    A = basis * np.logspace(0, 14, 60) @ basis.T
    b = rng.standard_normal((60, 2))
    found = conjugate_gradients(lambda V: A @ V, b, lambda R: R, 1e-10, 3000)
    true = np.max(np.linalg.norm(b - A @ found.values, axis=0) / np.linalg.norm(b, axis=0))
    assert found.residual == pytest.approx(true, rel=0.05, abs=1e-12)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_float32_products_keep_predictions(offset):
    """From an alpha for which float32 products are too coarse to one for which they are not."""
    X, y = regression(20_000)
    X, y = X.astype(np.float32), y + offset
    features = FourierFeatures(300, gamma=0.1, random_state=0)
    how = []
    for alpha in (1e-4, 1e-3, 1e-2, 0.1, 1.0):
        model = KernelRidge(features, alpha=alpha, block_rows=1000)
        with (
            mock.patch.object(NormalEquations, "of_block", wraps=NormalEquations.of_block) as sums,
            mock.patch.object(ridge_solve, "corrected", wraps=ridge_solve.corrected) as second,
        ):
            single = model.fit(X, y).predict(X.astype(np.float64))
        assert sums.call_count == 20, alpha  # each block is multiplied once, whatever comes out
        how.append((sums.call_args.args[3], second.called))
        double = clone(model).fit(X.astype(np.float64), y).predict(X.astype(np.float64))
        assert np.sqrt(np.mean((single - double) ** 2)) < 1e-4 * np.std(y), alpha
        assert np.abs(single - double).max() < 2e-4, alpha
    assert how[0] == (False, False)  # not even tried
    assert (True, True) in how  # tried, and found too coarse
    assert how[-1] == (True, False)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_correction_undoes_the_rounding_of_float32_products(fit_intercept, weighted):
    rng = np.random.default_rng(0)
    Z, y = rng.standard_normal((2000, 30)).astype(np.float32), rng.standard_normal((2000, 2))
    Z[:, 1:] = 0.03 * Z[:, 1:] + Z[:, :1]  # nearly the same columns: rounding shows
    weights, alpha = rng.uniform(0.5, 2.0, size=2000) if weighted else None, 1e-3
    wide = Z.astype(np.float64)
    exact = solve_ridge(NormalEquations.of_block(wide, y, weights), alpha, fit_intercept)
    coarse = solve_ridge(NormalEquations.of_block(Z, y, weights, True), alpha, fit_intercept)
    sums = residual_sums(Z, y, weights, coarse)
    found = corrected(coarse, sums, alpha)

    def error(ridge):
        difference = Z @ (ridge.coefficients - exact.coefficients)
        return np.abs(difference + ridge.intercepts - exact.intercepts).max()

    assert error(coarse) > 1e-6
    assert error(found) < 2e-2 * error(coarse)


# --- calibration ---------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("class_weight", [None, {0: 1.0, 1: 5.0}])
def test_calibration_takes_weights_for_repetitions(classes, class_weight):
    X, y = make_moons(150, noise=0.4, random_state=0)
    y = np.where(X[:, 0] > 1.2, classes - 1, y)
    times = np.random.default_rng(1).integers(0, 4, size=len(y))
    model = KernelRidgeClassifier(FOURIER, alpha=0.1, class_weight=class_weight)
    weighted = clone(model).fit(X, y, sample_weight=times)
    repeated = clone(model).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert weighted.sharpness_ == pytest.approx(repeated.sharpness_, rel=1e-4)
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-4)


def test_cross_validation_of_one_row_is_refused():
    X, y = regression(2)
    with pytest.raises(ValueError, match="n_samples = 1"):
        KernelRidgeCV(FOURIER).fit(X[:1], y[:1])
    with pytest.raises(ValueError, match="2 rows of positive weight"):
        KernelRidgeCV(FOURIER).fit(X, y, sample_weight=[1.0, 0.0])


def test_many_classes_are_not_taken_for_numbers() -> None:
    """scikit-learn's warning of targets without repetitions was given for 21 classes and more."""
    y = np.arange(200) % 25
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = KernelRidgeClassifier(RowNormFeatures(20, random_state=0)).fit(y[:, None], y)
    assert len(model.classes_) == 25
