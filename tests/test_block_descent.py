"""Block coordinate descent on the full kernel: its limit, its residual, and when it is taken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from kernelsieve import AdaptiveFeatures, KernelRidge, NystromFeatures
from kernelsieve.kernels import Gaussian, Laplacian, NeuralTangent, Product
from kernelsieve.kernels.matrix import KernelMatrix
from kernelsieve.linalg.block_descent import StepLimits, block_size, descend
from kernelsieve.models import full_kernel

KERNELS = {
    "Gaussian": Gaussian(0.2),
    "product": Product([0.3, 0.0, 0.5, 0.2], ["gaussian", "laplacian", "laplacian", "matern52"]),
    "neural tangent": NeuralTangent(2),
}


def rows(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 4))


@dataclass(frozen=True)
class Dense:
    """A matrix K + alpha I that is all there; products are rounded to float32 if that is asked."""

    K: np.ndarray
    alpha: float
    coarse: bool = False

    @property
    def rounding(self) -> float:
        return float(np.finfo(np.float32 if self.coarse else np.float64).eps) / 2

    @property
    def all(self) -> np.ndarray:
        return self.K + self.alpha * np.eye(len(self.K))

    def product(self, block, V):
        columns = self.all[:, block]
        return (columns.astype(np.float32) if self.coarse else columns) @ V

    def square(self, block):
        return self.K[np.ix_(block, block)]


def system(n: int = 240, alpha: float = 0.1, coarse: bool = False) -> tuple[Dense, np.ndarray]:
    A = Dense(Laplacian(0.2)(rows(n)), alpha, coarse)
    return A, np.random.default_rng(1).normal(size=(n, 3))


def solved(A: Dense, right: np.ndarray, limits: StepLimits, start=None, seed: int = 0):
    rng = np.random.default_rng(seed)
    return descend(A, right, lambda V: A.all @ V, 60, rng, limits, start)


def relative(rest: np.ndarray, right: np.ndarray) -> float:
    return float((np.linalg.norm(rest, axis=0) / np.linalg.norm(right, axis=0)).max())


@pytest.mark.parametrize("coarse", [False, True])
def test_the_limit_is_the_solution(coarse):
    """With products in float32, too: residuals are computed anew where rounding matters."""
    A, right = system(coarse=coarse)
    solution, rest = solved(A, right, StepLimits(1e-9, 2000))
    assert solution.residual <= 1e-9
    expected = np.linalg.solve(A.all, right)
    assert np.abs(solution.values - expected).max() < 1e-7 * np.abs(expected).max()
    np.testing.assert_allclose(rest, right - A.all @ solution.values, atol=1e-9)


@pytest.mark.parametrize("coarse", [False, True])
def test_the_residual_of_few_sweeps_is_what_it_says(coarse):
    A, right = system(coarse=coarse)
    for seed in range(5):
        solution, rest = solved(A, right, StepLimits(1e-12, 3), seed=seed)
        actual = relative(right - A.all @ solution.values, right)
        assert actual == pytest.approx(solution.residual, rel=1e-4)
        assert relative(rest, right) < 0.9
        assert solution.iterations == 3


def test_more_sweeps_have_no_more_energy():
    A, right = system(alpha=1e-3)
    energies = []
    for sweeps in (1, 2, 4, 8, 16):
        x = solved(A, right, StepLimits(1e-12, sweeps))[0].values
        energies.append(np.einsum("ij,ij->j", x, A.all @ x / 2 - right))
    assert (np.diff(energies, axis=0) <= 0).all()
    assert (energies[0] < 0).all()


def test_a_good_start_is_kept_and_a_bad_one_is_left():
    A, right = system()
    exact = np.linalg.solve(A.all, right)
    near = solved(A, right, StepLimits(1e-3, 0), start=exact * (1 + 1e-4))[0]
    assert near.residual <= 1e-3
    bad = solved(A, right, StepLimits(1e-3, 0), start=1e6 * right)[0]
    assert not bad.values.any()


def test_a_deadline_in_the_past_returns_the_start():
    A, right = system()
    start = np.linalg.solve(A.all, right) * 0.9
    solution, _ = solved(A, right, StepLimits(1e-9, 10, deadline=0.0), start=start)
    np.testing.assert_array_equal(solution.values, start)
    assert solution.residual == pytest.approx(0.1, rel=1e-6)


def test_blocks_grow_with_the_rows_and_have_a_limit():
    assert block_size(10, 64.0) == 10
    assert block_size(50_000, 64.0) < block_size(400_000, 64.0) <= 4096
    assert block_size(10**8, 64.0) == 4096


@pytest.mark.parametrize("name", [*KERNELS, "sparse rows"])
def test_columns_of_a_kernel_matrix(name):
    """The angle of a neural tangent kernel is rounded to 1e-8 next to the diagonal."""
    kernel = KERNELS.get(name, Laplacian(0.3))
    X, V = rows(300), np.random.default_rng(2).normal(size=(40, 2))
    numbers = np.random.default_rng(3).permutation(300)[:40]
    points = sp.csr_array(X) if name == "sparse rows" else X
    product = KernelMatrix(kernel, points, dtype=np.float64).columns(numbers) @ V
    atol = 1e-6 if name == "neural tangent" else 1e-12
    np.testing.assert_allclose(product, kernel(X)[:, numbers] @ V, rtol=1e-9, atol=atol)


# --- the ridge -----------------------------------------------------------------------------------


@pytest.fixture
def by_blocks(monkeypatch):
    """Block descent for small tables, too."""
    monkeypatch.setattr(full_kernel, "LARGEST_KERNEL_MATRIX", 0)
    monkeypatch.setattr(full_kernel, "FEWEST_PASSES", 1e12)


def ridge(kernel, **options) -> KernelRidge:
    features = NystromFeatures(30, kernel=kernel, random_state=0)
    settings = {"alpha": 0.3, "refine": True, "tol": 1e-7, "max_iter": 1000, "random_state": 0}
    return KernelRidge(features, **settings | options)


def targets(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    Y = np.column_stack([np.sin(X[:, 0]) + X[:, 2], 5.0 + X[:, 1] ** 2])
    return Y, np.random.default_rng(2).uniform(0.5, 2.0, len(X))


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("name", KERNELS)
def test_the_ridge_is_that_of_conjugate_gradients(name, fit_intercept, by_blocks):
    X, new = rows(300), rows(50, seed=5)
    Y, weights = targets(X)
    options = {"fit_intercept": fit_intercept, "alpha": 0.3 * KERNELS[name].diag(X).mean()}
    blocks = ridge(KERNELS[name], time_limit=600.0, **options).fit(X, Y, weights)
    gradients = ridge(KERNELS[name], **options).fit(X, Y, weights)
    assert blocks.residual_ <= 1e-7
    assert blocks.n_iter_ != gradients.n_iter_  # another solver
    np.testing.assert_allclose(blocks.predict(new), gradients.predict(new), atol=1e-5)
    np.testing.assert_allclose(blocks.intercept_, gradients.intercept_, atol=1e-5)


def test_threads_change_no_bit(by_blocks):
    X = rows(400)
    Y, weights = targets(X)
    one, three = (
        ridge(KERNELS["product"], tol=1e-2, time_limit=600.0, n_jobs=jobs).fit(X, Y, weights)
        for jobs in (1, 3)
    )
    np.testing.assert_array_equal(one.dual_coef_, three.dual_coef_)


@pytest.mark.parametrize("features", [None, AdaptiveFeatures(30, random_state=0)])
def test_it_starts_from_landmarks(features, by_blocks, monkeypatch):
    """A limit that has passed leaves the ridge on landmarks, which is a good one here."""
    monkeypatch.setattr(full_kernel, "LANDMARKS", 30)
    X = rows(600)
    y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=600)
    options = {} if features is None else {"features": features}
    model = ridge(Gaussian(0.1)).set_params(time_limit=1e-6, **options)
    with pytest.warns(ConvergenceWarning, match="raise time_limit"):
        model.fit(X, y)
    assert model.n_iter_ == 0
    assert np.count_nonzero(model.dual_coef_) <= 30
    assert model.score(X, y) > 0.9


def test_no_time_limit_takes_conjugate_gradients(by_blocks):
    X = rows(200)
    model = ridge(Gaussian(0.1)).fit(X, X[:, 0])
    assert np.count_nonzero(model.dual_coef_) == 200
    assert model.n_iter_ < 50
