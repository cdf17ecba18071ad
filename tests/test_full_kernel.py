"""The full kernel: products that never store it, and the ridge that they solve."""

from __future__ import annotations

import time

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from support.learning import LARGE, chosen, executed

from kernelsieve import (
    AdaptiveFeatures,
    FourierFeatures,
    KernelRidge,
    NystromFeatures,
    load,
    save,
)
from kernelsieve.kernels import (
    ArcCosine,
    DotProduct,
    Exponential,
    Gaussian,
    InversePolynomial,
    Laplacian,
    Matern,
    NeuralTangent,
    Pairwise,
    Polynomial,
    Product,
    Warp,
    Zonal,
)
from kernelsieve.kernels.matrix import KernelMatrix
from kernelsieve.learning import Budget
from kernelsieve.learning.solver import pays
from kernelsieve.linalg.solvers import conjugate_gradients
from kernelsieve.models import full_kernel, prune

MIXED = Product(
    [0.3, 0.0, 1.0, 0.2, 0.1, 0.5, 0.3],
    ["gaussian", "laplacian", "laplacian", "matern32", "matern32", "matern52", "categorical"],
)
KERNELS = {
    "Gaussian": Gaussian(0.2),
    "Laplacian": Laplacian(0.2),
    "Matern 1/2": Matern(2.0, 0.5),
    "Matern 5/2": Matern(2.0, 2.5),
    "Matern 2.2": Matern(2.0, 2.2),
    "product": MIXED,
    "many columns of one family": Product(np.linspace(0.1, 0.4, 7), "laplacian"),
    "warps": Product(0.3, "matern52", [Warp("log", 0.1, 2.0)] * 7),
    "no column": Product(0.0),
}
# And those that have no fused products.
ALL_KERNELS = KERNELS | {
    "polynomial": Polynomial(3, gamma=0.1, coef0=1.0),
    "exponential": Exponential(0.1),
    "inverse polynomial": InversePolynomial(60.0),
    "dot product": DotProduct([1.0, 0.5, 0.2]),
    "scikit-learn's": Pairwise("cosine"),
    "arc cosine": ArcCosine(1),
    "neural tangent": NeuralTangent(2),
    "zonal": Zonal([0.5, 0.0, 1.0, 0.25], power=0.5),
}


def rows(n: int, seed: int = 0) -> np.ndarray:
    X = np.random.default_rng(seed).normal(size=(n, 7))
    X[:, -1] = np.random.default_rng(seed + 1).integers(3, size=n)
    return X


@pytest.mark.parametrize("name", KERNELS)
def test_products_are_those_of_the_gram_matrix(name):
    """n = 1,200 has two columns of tiles, the last of which is short."""
    kernel, X, Y = KERNELS[name], rows(1200), rows(150, seed=3)
    V = np.random.default_rng(2).normal(size=(len(X), 3)) * [1.0, 1e-30, 1e30]
    for matrix, other in ((kernel(X), None), (kernel(Y, X), X)):
        left = X if other is None else Y
        exact = KernelMatrix(kernel, left, other, dtype=np.float64) @ V
        # Sums of 1,200 values: each is right up to rounding.
        bound = 1200 * np.finfo(np.float64).eps * np.abs(V).max(axis=0)
        assert (np.abs(exact - matrix @ V) < 4 * bound).all()
        coarse = KernelMatrix(kernel, left, other) @ V
        spread = np.finfo(np.float32).eps * np.linalg.norm(V, axis=0)
        assert (np.abs(coarse - exact) < 16 * spread).all()


@pytest.mark.parametrize("name", KERNELS)
def test_products_with_both_sides_of_a_block(name):
    kernel, X, Y = KERNELS[name], rows(1200), rows(300, seed=3)
    rng = np.random.default_rng(2)
    V, W = rng.normal(size=(1200, 2)) * [1.0, 1e-30], rng.normal(size=(300, 2)) * [1.0, 1e30]
    right, left = KernelMatrix(kernel, Y, X, dtype=np.float64).both(V, W)
    bound = 4 * 1200 * np.finfo(np.float64).eps
    assert (np.abs(right - kernel(Y, X) @ V) < bound * np.abs(V).max(axis=0)).all()
    assert (np.abs(left - kernel(X, Y) @ W) < bound * np.abs(W).max(axis=0)).all()
    one, three = (KernelMatrix(kernel, Y, X, n_jobs=jobs).both(V, W) for jobs in (1, 3))
    np.testing.assert_array_equal(np.vstack(one), np.vstack(three))


def test_products_against_pairs_of_points():
    X, v = rows(140), np.linspace(-1.0, 1.0, 140)[:, None]
    rates, families = list(MIXED.rates), list(MIXED.families)
    K = np.array([[oracles.product(x, y, rates, families) for y in X] for x in X])
    np.testing.assert_allclose(KernelMatrix(MIXED, X, dtype=np.float64) @ v, K @ v, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_change_no_bit(dtype):
    X, V = rows(700), np.random.default_rng(0).normal(size=(700, 2))
    one, three = (KernelMatrix(MIXED, X, dtype=dtype, n_jobs=jobs) @ V for jobs in (1, 3))
    np.testing.assert_array_equal(one, three)


def test_sparse_rows_missing_values_and_other_kernels_take_the_general_way():
    X = rows(200)
    S = sp.csr_array(np.where(np.abs(X) > 1, X, 0.0))
    v = np.ones((200, 1))
    for kernel, points in (
        (Gaussian(0.3), S),
        (Laplacian(0.3), S),
        (Matern(), S),
        (Product(0.3, "laplacian"), S),
        (Polynomial(2), X),
    ):
        product = KernelMatrix(kernel, points, dtype=np.float64) @ v
        np.testing.assert_allclose(product, kernel(points) @ v, rtol=1e-10)
    X[::7, 2] = np.nan
    kernel = MIXED.with_references(X)
    product = KernelMatrix(kernel, X, dtype=np.float64) @ v
    np.testing.assert_allclose(product, kernel(X) @ v, rtol=1e-10)


# --- conjugate gradients in float32 --------------------------------------------------------------


def system(n: int = 400, alpha: float = 1e-2) -> tuple[np.ndarray, np.ndarray]:
    A = Laplacian(0.1)(rows(n)) + alpha * np.eye(n)
    return A, np.random.default_rng(1).normal(size=(n, 2))


def test_coarse_products_reach_the_accuracy_of_float64():
    A, right = system()
    coarse = A.astype(np.float32).astype(np.float64)
    solution = conjugate_gradients(
        lambda V: A @ V, right, np.copy, 1e-10, 5000, coarse=lambda V: coarse @ V
    )
    assert solution.residual <= 1e-10
    expected = np.linalg.solve(A, right)
    assert np.abs(solution.values - expected).max() < 1e-6 * np.abs(expected).max()


def test_coarse_products_that_are_useless_are_given_up():
    A, right = system(alpha=1e-2)
    noise = np.random.default_rng(0).normal(size=A.shape)
    solution = conjugate_gradients(
        lambda V: A @ V, right, np.copy, 1e-8, 5000, coarse=lambda V: (A - noise @ noise.T) @ V
    )
    assert solution.residual <= 1e-8


def test_a_good_start_saves_iterations_and_a_bad_one_does_no_harm():
    A, right = system()
    cold = conjugate_gradients(lambda V: A @ V, right, np.copy, 1e-8, 5000)
    near = cold.values * (1 + 1e-5)
    warm = conjugate_gradients(lambda V: A @ V, right, np.copy, 1e-8, 5000, start=near)
    assert warm.iterations < cold.iterations
    assert warm.residual <= 1e-8
    bad = conjugate_gradients(lambda V: A @ V, right, np.copy, 1e-8, 5000, start=1e9 * right)
    assert bad.iterations == cold.iterations


# --- the ridge -----------------------------------------------------------------------------------


@pytest.fixture
def by_gradients(monkeypatch):
    """Conjugate gradients for small tables, too."""
    monkeypatch.setattr(full_kernel, "LARGEST_KERNEL_MATRIX", 0)


def dense_ridge(kernel, X, Y, weights, alpha, new):
    """Predictions of the exact ridge with an intercept."""
    n = len(X)
    system = np.block(
        [[kernel(X) + alpha * np.diag(1 / weights), np.ones((n, 1))], [np.ones((1, n)), 0.0]]
    )
    solution = np.linalg.solve(system, np.vstack([Y, np.zeros((1, Y.shape[1]))]))
    return kernel(new, X) @ solution[:-1] + solution[-1]


def several_targets(X: np.ndarray, noise: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Two outputs, and weights."""
    rng = np.random.default_rng(2)
    Y = np.column_stack([np.sin(X[:, 0]) + X[:, 2], 5.0 + X[:, 1] ** 2])
    weights = rng.uniform(0.5, 2.0, len(X))
    return Y + noise * rng.normal(size=Y.shape), weights


def refined_ridge(kernel, size: int, alpha: float, **options) -> KernelRidge:
    features = NystromFeatures(size, kernel=kernel, random_state=0)
    return KernelRidge(features, alpha=alpha, refine=True, tol=1e-9, random_state=0, **options)


@pytest.mark.parametrize("name", ALL_KERNELS)
def test_refinement_is_the_dense_solution(name, by_gradients):
    """With weights and two outputs; alpha is small enough for float32 to need corrections."""
    X, new, kernel = rows(500), rows(60, seed=5), ALL_KERNELS[name]
    Y, weights = several_targets(X)
    alpha = 1e-3 * float(np.mean(kernel.diag(X)))
    model = refined_ridge(kernel, 50, alpha)
    if name == "Gaussian":  # features that are not rows
        model.set_params(features=FourierFeatures(50, gamma=0.2, random_state=0))
    model.fit(X, Y, weights)
    expected = dense_ridge(model.features_.kernel_, X, Y, weights, alpha, new)
    assert model.residual_ <= 1e-9
    np.testing.assert_allclose(model.predict(new), expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL_KERNELS)
def test_refinement_of_5000_rows_is_the_dense_solution(name, by_gradients):
    """Of many tiles; the test above has the small alpha, Bessel functions make each step slow."""
    X, new, kernel = rows(5000), rows(200, seed=5), ALL_KERNELS[name]
    Y, weights = several_targets(X, noise=0.1)
    alpha = 1e-1 * float(np.mean(kernel.diag(X)))
    model = refined_ridge(kernel, 500, alpha).fit(X, Y, weights)
    expected = dense_ridge(model.features_.kernel_, X, Y, weights, alpha, new)
    assert model.residual_ <= 1e-9
    np.testing.assert_allclose(model.predict(new), expected, atol=1e-6)


@pytest.mark.parametrize("name", ["Gaussian", "product", "neural tangent"])
def test_threads_change_no_bit_of_a_refined_ridge(name, by_gradients):
    """Of the solution with weights and two outputs, and of predictions."""
    X, new = rows(700), rows(300, seed=5)
    Y, weights = several_targets(X)
    alpha = 1e-2 * float(np.mean(ALL_KERNELS[name].diag(X)))
    one, three = (
        refined_ridge(ALL_KERNELS[name], 40, alpha, n_jobs=jobs).fit(X, Y, weights)
        for jobs in (1, 3)
    )
    np.testing.assert_array_equal(one.dual_coef_, three.dual_coef_)
    np.testing.assert_array_equal(one.predict(new), three.predict(new))


def test_landmarks_precondition_where_they_do_better(by_gradients):
    """Few Fourier features leave hundreds of iterations, the landmarks a handful."""
    X = rows(800)
    y = np.sin(X[:, 0]) + X[:, 2]
    features = FourierFeatures(30, gamma=0.2, random_state=0)
    model = KernelRidge(features, alpha=1e-3, refine=True, random_state=0).fit(X, y)
    assert model.n_iter_ <= 8


def test_more_landmarks_where_the_first_are_too_few(by_gradients, monkeypatch):
    """164 of them cost as much as four products with the kernel matrix of 800 rows."""
    X = rows(800)
    y = np.sin(X[:, 0]) + X[:, 2]
    features = FourierFeatures(30, gamma=0.05, random_state=0)
    model = KernelRidge(features, alpha=1e-2, refine=True, random_state=0)
    monkeypatch.setattr(full_kernel, "LANDMARKS", 20)
    more = model.fit(X, y).n_iter_
    monkeypatch.setattr(full_kernel, "LANDMARK_PRODUCTS", 0.0)
    assert 2 * more < model.fit(X, y).n_iter_
    monkeypatch.setattr(full_kernel, "LANDMARK_PRODUCTS", 4.0)
    monkeypatch.setattr(full_kernel, "KEPT_BYTES", 8 * 800 * 20)  # no room for more
    assert 2 * more < model.fit(X, y).n_iter_


def test_a_time_limit_returns_what_there_is(by_gradients):
    X = rows(500)
    model = KernelRidge(
        NystromFeatures(5, kernel=MIXED, landmarks="rpcholesky", random_state=0),
        alpha=1e-4,
        refine=True,
        tol=1e-14,
        time_limit=1e-3,
    )
    began = time.monotonic()
    with pytest.warns(ConvergenceWarning, match=r"raise time_limit=0\.001 or alpha"):
        model.fit(X, np.sin(X[:, 0]))
    assert time.monotonic() - began < 20.0
    assert 1e-14 < model.residual_ <= 1.5
    assert np.isfinite(model.predict(X)).all()


def test_a_time_limit_returns_the_best_iterate_if_coarse_products_are_useless(monkeypatch):
    """The clock jumps after the first iteration, which made the residual larger."""
    A, right = system()
    noise = np.random.default_rng(0).normal(size=A.shape)
    clock = iter([0.0, 0.0])
    monkeypatch.setattr("kernelsieve.linalg.solvers.time.monotonic", lambda: next(clock, 2.0))
    solution = conjugate_gradients(
        lambda V: A @ V,
        right,
        np.copy,
        1e-8,
        5000,
        coarse=lambda V: (A - noise @ noise.T) @ V,
        deadline=1.0,
    )
    rest = right - A @ solution.values
    actual = (np.linalg.norm(rest, axis=0) / np.linalg.norm(right, axis=0)).max()
    assert actual == pytest.approx(solution.residual)
    assert actual <= 1.0


def test_a_bar_shows_the_residual_and_the_expected_end(by_gradients, capsys):
    X = rows(300)
    features = NystromFeatures(30, kernel=MIXED, landmarks="rpcholesky", random_state=0)
    KernelRidge(features, alpha=1e-2, refine=True, verbose=1).fit(X, np.sin(X[:, 0]))
    shown = capsys.readouterr().out
    assert "conjugate gradients" in shown
    assert "residual" in shown


@pytest.mark.parametrize("smooth", [True, False])
def test_auto_refines_where_it_pays(smooth, by_gradients):
    """A wiggly function without noise needs more than 20 features; noise does not."""
    X = rows(1500)[:, :3]
    y = np.sin(2 * X[:, 0]) * X[:, 1] if smooth else np.random.default_rng(0).normal(size=1500)
    features = NystromFeatures(20, kernel=Gaussian(0.3), random_state=0)
    alpha = 1e-3 if smooth else 1e3
    model = KernelRidge(features, alpha=alpha, refine="auto", random_state=0).fit(X, y)
    assert hasattr(model, "dual_coef_") == smooth
    if smooth:
        assert model.residual_ <= 1e-3
        plain = KernelRidge(features, alpha=alpha).fit(X, y)
        assert model.score(X, y) > plain.score(X, y)


def test_a_gain_by_chance_does_not_pay():
    """Two models that differ by noise: fewer than 1 in 44 may look better by 2 deviations."""
    rng = np.random.default_rng(0)
    paid = 0
    for _ in range(300):
        noise = rng.normal(size=(120, 1))
        paid += pays(noise + 0.1 * rng.normal(size=(120, 1)), noise, None)
    assert paid <= 15
    assert pays(0.9 * noise, noise, np.ones(120))
    assert not pays(0.995 * noise, noise, None)  # for certain, but too little
    outlier = np.where(np.arange(120)[:, None] == 7, 100.0, noise)
    assert pays(1.1 * noise, outlier, None)  # one row is all of the error


def test_auto_leaves_large_tables_to_the_features(by_gradients, monkeypatch):
    monkeypatch.setattr(full_kernel, "MOST_WORK", 1e3)
    X = rows(300)
    model = KernelRidge(AdaptiveFeatures(20, random_state=0), refine="auto").fit(X, X[:, 0])
    assert not hasattr(model, "dual_coef_")


def test_coefficients_are_narrow_where_that_is_harmless(by_gradients, tmp_path):
    X = rows(600)
    y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=600)
    features = NystromFeatures(50, kernel=MIXED, landmarks="rpcholesky", random_state=0)
    wide = KernelRidge(features, alpha=1.0, refine=True).fit(X, y)
    assert wide.dual_coef_.dtype == np.float64
    narrow = KernelRidge(features, alpha=1.0, refine=True, tol=1e-2).fit(X, y)
    assert narrow.dual_coef_.dtype == np.float32
    exact = KernelMatrix(MIXED, X, dtype=np.float64) @ narrow.dual_coef_[:, None].astype(float)
    np.testing.assert_allclose(narrow.predict(X), exact[:, 0] + narrow.intercept_, atol=1e-4)
    save(narrow, tmp_path / "model.ks")
    again = load(tmp_path / "model.ks")
    np.testing.assert_array_equal(again.predict(X), narrow.predict(X))


@pytest.mark.parametrize("kernel", [MIXED, Polynomial(3, gamma=0.1)])
@pytest.mark.parametrize("error", [1e-3, 0.1, 1e9])
def test_pruning_keeps_its_bound(kernel, error, tmp_path):
    """Of two outputs; the bound is in units of sqrt(k(x, x))."""
    X, new = rows(400), rows(200, seed=5)
    Y, weights = several_targets(X)
    model = KernelRidge(NystromFeatures(50, kernel=kernel, random_state=0), refine=True)
    before = model.fit(X, Y, weights).predict(new)
    small = prune(model, error)
    assert len(small.dual_coef_) == len(small.X_fit_)
    assert len(small.dual_coef_) < 400 or error < 0.1
    change = np.abs(small.predict(new) - before) / np.sqrt(kernel.diag(new))[:, None]
    assert change.max() <= error * (1 + 1e-9)
    np.testing.assert_array_equal(model.predict(new), before)
    save(small, tmp_path / "model.ks")
    np.testing.assert_array_equal(load(tmp_path / "model.ks").predict(new), small.predict(new))


def test_pruning_needs_coefficients_of_rows():
    X = rows(50)
    model = KernelRidge(FourierFeatures(20, random_state=0)).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="fit refine=True"):
        prune(model, 0.1)
    with pytest.raises(ValueError, match="error=0"):
        prune(model, 0)


# --- the learned default -------------------------------------------------------------------------


def wiggly(n: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(n, 3))
    return X, np.sin(4 * X[:, 0]) * np.cos(3 * X[:, 1]) + noise * rng.normal(size=n)


def test_the_learned_default_refines_where_it_pays(by_gradients):
    X, y = wiggly(1700, 0.05)
    plan = chosen(X[:1200], y[:1200], LARGE)
    assert plan.solver.kind == "iterative"
    found = executed(plan, X[:1200], y[:1200], LARGE)
    assert found.plan.solver.kind == "iterative"
    assert found.plan.alpha == found.model.alpha
    assert found.model.residual_ <= 1e-3
    error = np.sqrt(np.mean((found.model.predict(X[1200:]) - y[1200:]) ** 2))
    assert error < 0.1  # 30 landmarks: 0.4
    assert found.plan.report.error == pytest.approx(error, rel=0.3)
    mean, deviation = found.model.predict(X[1200:], return_std=True)
    assert mean.shape == deviation.shape


def test_landmarks_take_the_place_of_a_kernel_that_cannot_be_solved_in_time(by_gradients):
    X, y = wiggly(1200, 0.05)
    plan = chosen(X, y, LARGE)
    assert plan.solver.kind == "iterative"
    found = executed(plan, X, y, LARGE, budget=Budget(1e-3))
    assert found.plan.solver.kind == "landmarks"
    assert not hasattr(found.model, "dual_coef_")
    assert "landmarks" in str(found.plan)


def test_the_learned_default_keeps_features_where_noise_is_all(by_gradients):
    X, _ = wiggly(1200, 0.0)
    y = np.random.default_rng(1).normal(size=1200)
    assert chosen(X, y, LARGE).solver.kind == "landmarks"


def test_classes_are_refined_and_calibrated(by_gradients):
    X, y = wiggly(1700, 0.05)
    labels = np.digitize(y, [-0.3, 0.3])
    signs = np.where(labels[:, None] == np.arange(3), 1.0, -1.0)
    plan = chosen(X[:1200], signs[:1200], LARGE, classes=True, transform=None)
    assert plan.solver.kind == "iterative"
    found = executed(plan, X[:1200], signs[:1200], LARGE).model
    assert np.mean(found.predict(X[1200:]).argmax(axis=1) == labels[1200:]) > 0.9


def definite(n=60):
    """A badly conditioned matrix, and a right hand side."""
    values = np.geomspace(1e-3, 1.0, n)
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(n, n)))[0]
    return (Q * values) @ Q.T, np.random.default_rng(1).normal(size=(n, 1))


@pytest.mark.parametrize("astray", [False, True])
def test_a_deadline_ends_iterations_with_the_best_guess(astray, monkeypatch):
    A, b = definite()
    clock = [0.0]
    monkeypatch.setattr("kernelsieve.linalg.solvers.time.monotonic", lambda: clock[0])

    def product(V):
        clock[0] += 1.0
        return A @ V

    def wrong(V):
        clock[0] += 10.0
        return -1e-3 * (A @ V)  # no rounding of float32 makes that of it

    found = conjugate_gradients(
        product, b, lambda R: R, 1e-9, 500, coarse=wrong if astray else None, deadline=5.0
    )
    residual = np.linalg.norm(b - A @ found.values) / np.linalg.norm(b)
    if astray:
        assert not found.values.any()
        assert found.residual == residual == 1.0
    else:
        assert found.iterations == 5
        assert found.residual == pytest.approx(residual, rel=1e-6)
