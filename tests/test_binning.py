"""Random grids with hashed cells: the battery, the Laplacian, and sparse rows."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import numpy as np
import oracles
import pytest
import scipy.sparse as sp

from kernelsieve import BinningFeatures, KernelRidge
from kernelsieve.features.binning import Grids
from kernelsieve.kernels import Laplacian, Product, SmoothLaplacian
from kernelsieve.testing import FeatureMapBattery
from kernelsieve.testing.bias import bias_report, critical_value
from kernelsieve.testing.data import points, sparse_points


class TestLaplacian(FeatureMapBattery):
    sparse_output: ClassVar = True

    def build(self, **overrides: Any) -> BinningFeatures:
        return BinningFeatures(
            **{"n_components": 64, "columns_per_grid": 1, "random_state": 0, **overrides}
        )

    def gram(self, X: Any) -> Any:
        return oracles.gram(functools.partial(oracles.laplacian, gamma=self.gamma), X)


class TestSmooth(FeatureMapBattery):
    """Weights of the places in a cell: a tent on each of them."""

    sparse_output: ClassVar = True
    unbiased_parameters: ClassVar = {"n_components": 256}

    def build(self, **overrides: Any) -> BinningFeatures:
        options = {"n_components": 64, "kernel": "smooth_laplacian", "columns_per_grid": 1}
        return BinningFeatures(**{**options, "random_state": 0, **overrides})

    def gram(self, X: Any) -> Any:
        truth = functools.partial(oracles.smooth_laplacian, gamma=self.gamma, pieces=2)
        return oracles.gram(truth, X)


@pytest.mark.parametrize("pieces", [1, 2, 3])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_weights_are_unbiased_for_every_bump(pieces: int, container: Any) -> None:
    X = points(8, 3)
    X[2], X[3, 1], X[5, :2] = 0.0, 0.0, 0.0
    kernel, samples = SmoothLaplacian(0.6, pieces), []
    for seed in range(400):
        Z = BinningFeatures(60, kernel=kernel, random_state=seed).fit_transform(container(X))
        Z = Z.toarray() if sp.issparse(Z) else Z
        samples.append(Z @ Z.T)
    truth = functools.partial(oracles.smooth_laplacian, gamma=0.6, pieces=pieces)
    report = bias_report(np.stack(samples), oracles.gram(truth, X), 1e-5)
    worst = max(report, key=lambda which: abs(report[which][1]))
    assert abs(report[worst][1]) <= critical_value(len(report)), (worst, report[worst])


def test_one_piece_is_the_laplacian() -> None:
    X = points(40, 4)
    box, plain = (
        BinningFeatures(50, kernel=kernel, random_state=0).fit_transform(X)
        for kernel in (SmoothLaplacian(0.4, 1), Laplacian(0.4))
    )
    np.testing.assert_array_equal(box, plain)


@pytest.mark.parametrize("pieces", [2, 3])
def test_features_are_continuous_where_cells_end(pieces: int) -> None:
    """A box jumps there; a tent and a spline are zero at both ends of a cell."""
    x = np.linspace(-1.0, 1.0, 4001)[:, None]
    options: dict[str, Any] = {"columns_per_grid": 1, "random_state": 0}
    jump, smooth = (
        np.abs(np.diff(BinningFeatures(8, kernel=kernel, **options).fit_transform(x), axis=0)).max()
        for kernel in (Laplacian(4.0), SmoothLaplacian(4.0, pieces))
    )
    assert smooth < 0.1 * jump


def test_the_variance_of_the_diagonal_is_that_of_the_bump() -> None:
    """k(x, x) from one grid is the product of f^2: its second moment is (9/5)^d for a tent."""
    for d in (1, 3):
        grids = Grids.draw(d, 200_000, 200_000, seed=0, pieces=2)
        _, values = grids.cells(np.zeros((1, d)))
        assert np.mean(values**2) == pytest.approx(1.0, abs=5 * 1.8 ** (d / 2) / 200_000**0.5)
        assert np.mean(values**4) == pytest.approx(1.8**d, rel=0.06)


@pytest.mark.parametrize("each", [1, 3, 16])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_unbiased_with_any_number_of_columns(each: int, container: Any) -> None:
    X = sparse_points(8, 6)
    X[2] = 0.0
    samples = []
    for seed in range(400):
        features = BinningFeatures(16, gamma=0.5, columns_per_grid=each, random_state=seed)
        Z = features.fit_transform(container(X))
        Z = Z.toarray() if sp.issparse(Z) else Z
        samples.append(Z @ Z.T)
    report = bias_report(np.stack(samples), Laplacian(0.5)(X), 1e-5)
    worst = max(report, key=lambda which: abs(report[which][1]))
    assert abs(report[worst][1]) <= critical_value(len(report)), (worst, report[worst])


def test_two_rows_share_a_cell_as_often_as_the_kernel_says() -> None:
    """Over 20,000 grids, within five standard errors."""
    grids = Grids.draw(3, 20_000, 20_000 * 1000, seed=0)
    X = np.array([[0.0, 0.0, 0.0], [0.3, -0.2, 0.1], [1.0, 0.5, -0.5]])
    columns, _ = grids.cells(X)
    for other in (1, 2):
        expected = np.exp(-np.abs(X[other]).sum())
        found = np.mean(columns[0] == columns[other])
        # A thousand columns: cells that differ meet in one of a thousand.
        bound = 5 * np.sqrt(expected * (1 - expected) / 20_000) + 1e-3
        assert abs(found - expected) < bound


def test_sparse_rows_have_the_cells_of_dense_ones() -> None:
    X = sparse_points(30, 7)
    features = BinningFeatures(40, gamma=0.7, random_state=0).fit(X)
    Z = features.transform(sp.csr_array(X))
    assert sp.issparse(Z)
    np.testing.assert_array_equal(Z.toarray(), features.transform(X))
    assert (np.diff(Z.indptr) == features.n_grids_).all()
    smooth = BinningFeatures(40, kernel=SmoothLaplacian(0.7), random_state=0).fit(X)
    found = smooth.transform(sp.csr_array(X)).toarray()
    np.testing.assert_allclose(found, smooth.transform(X), rtol=1e-10)


def test_a_product_kernel_has_a_rate_for_each_column() -> None:
    X = points(50, 3)
    kernel = Product([0.2, 0.0, 1.5], "laplacian")
    Z = BinningFeatures(20_000, kernel=kernel, columns_per_grid=1, random_state=0).fit_transform(X)
    assert np.abs(Z @ Z.T - kernel(X)).max() < 5 / np.sqrt(20_000)


def test_a_ridge_learns_from_cells() -> None:
    X = points(600, 2)
    y = np.sign(X[:, 0]) + np.abs(X[:, 1])
    model = KernelRidge(BinningFeatures(800, gamma=1.0, random_state=0), alpha=0.1)
    assert model.fit(X[:500], y[:500]).score(X[500:], y[500:]) > 0.7


def test_other_kernels_are_refused() -> None:
    with pytest.raises(ValueError, match="not Laplacian along every column"):
        BinningFeatures(5, kernel="gaussian").fit(points())
