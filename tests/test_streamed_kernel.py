"""The full kernel on rows that come in blocks: the solution is that of the rows in memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from support.limits import time_limit

from kernelsieve import (
    AdaptiveFeatures,
    FourierFeatures,
    KernelRidge,
    NystromFeatures,
    _validation,
    load,
    save,
)
from kernelsieve.kernels import Gaussian, Kernel, Laplacian, Polynomial, Product
from kernelsieve.models import _streamed_kernel as streamed_kernel
from kernelsieve.models import full_kernel
from kernelsieve.models._streamed_kernel import StreamedKernelMatrix
from kernelsieve.models.ridge_refine import check_room
from kernelsieve.sources.npy import NpySource
from kernelsieve.sources.stream import BlockSource

SIZES = (1, 130, 7, 300, 62)  # of blocks: 500 rows
N = sum(SIZES)


def rows(n: int = N, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 4))


def targets(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two outputs with noise, and weights."""
    rng = np.random.default_rng(1)
    Y = np.column_stack([np.sin(X[:, 0]) + X[:, 1], 3.0 + X[:, 2] ** 2])
    return Y + 0.1 * rng.normal(size=Y.shape), rng.uniform(0.5, 2.0, len(X))


def blocks_of(X: Any, y: Any = None) -> BlockSource:
    bounds = np.cumsum([0, *SIZES])
    parts = list(pairwise(bounds))
    return BlockSource([X[a:b] if y is None else (X[a:b], y[a:b]) for a, b in parts])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that do not fit into each other, and no solve at once."""
    monkeypatch.setattr(streamed_kernel, "HELD_ROWS", 120)
    monkeypatch.setattr(streamed_kernel, "MET_ROWS", 50)
    monkeypatch.setattr(full_kernel, "LARGEST_KERNEL_MATRIX", 0)
    monkeypatch.setattr(full_kernel, "PIVOT_ROWS", 200)
    monkeypatch.setattr("kernelsieve.models.ridge_refine.FITTED_ROWS", 90)


# --- products ------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [1, 50, 120, 499, 500, 1000])
@pytest.mark.parametrize("kernel", [Gaussian(0.2), Product([0.3, 0.0, 1.0, 0.2]), Polynomial(2)])
def test_products_are_those_of_the_gram_matrix(
    kernel: Kernel, held: int, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed_kernel, "HELD_ROWS", held)
    X, V = rows(), np.random.default_rng(2).normal(size=(N, 3)) * [1.0, 1e-20, 1e20]
    expected = kernel(X) @ V
    product = StreamedKernelMatrix(kernel, blocks_of(X), np.float64, None) @ V
    np.testing.assert_allclose(product / [1.0, 1e-20, 1e20], expected / [1.0, 1e-20, 1e20],
                               atol=1e-11 * np.abs(kernel(X)).max() * N)  # fmt: skip
    coarse = StreamedKernelMatrix(kernel, blocks_of(X), np.float32, None) @ V
    error = np.linalg.norm(coarse - expected, axis=0) / np.linalg.norm(expected, axis=0)
    assert (error < 1e-5).all()


def test_sparse_rows() -> None:
    X, v = rows(), np.ones((N, 1))
    X[np.abs(X) < 0.7] = 0.0
    product = StreamedKernelMatrix(Laplacian(0.3), blocks_of(sp.csr_array(X)), np.float64, None) @ v
    np.testing.assert_allclose(product, Laplacian(0.3)(X) @ v, rtol=1e-10)


def test_pairs_are_computed_once(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the held rows among themselves: 500 rows in 5 held blocks."""
    computed = 0

    class Counted(streamed_kernel.KernelMatrix):
        def __init__(self, kernel: Kernel, X: Any, Y: Any, **options: Any) -> None:
            super().__init__(kernel, X, Y, **options)
            nonlocal computed
            computed += X.shape[0] * Y.shape[0]

    monkeypatch.setattr(streamed_kernel, "KernelMatrix", Counted)
    StreamedKernelMatrix(Gaussian(), blocks_of(rows()), np.float32, 1) @ np.ones((N, 1))
    assert computed == (N**2 + 4 * 120**2 + 20**2) // 2


def test_threads_change_no_bit(small: None) -> None:
    X, V = rows(), np.random.default_rng(0).normal(size=(N, 2))
    one, three = (
        StreamedKernelMatrix(Gaussian(0.3), blocks_of(X), np.float32, jobs) @ V for jobs in (1, 3)
    )
    np.testing.assert_array_equal(one, three)


# --- the ridge -----------------------------------------------------------------------------------


def ridge(kernel: Kernel, **options: Any) -> KernelRidge:
    features = NystromFeatures(50, kernel=kernel, random_state=0)
    settings = {"alpha": 0.05, "refine": True, "tol": 1e-9, "random_state": 0}
    return KernelRidge(features, **(settings | options))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kernel", [Gaussian(0.2), Product(0.3, "laplacian")])
def test_the_solution_is_that_of_rows_in_memory(
    kernel: Kernel, intercept: bool, small: None
) -> None:
    """With weights and two outputs."""
    X, new = rows(), rows(60, seed=5)
    Y, weights = targets(X)
    expected = ridge(kernel, fit_intercept=intercept).fit(X, Y, weights)
    model = ridge(kernel, fit_intercept=intercept).fit(blocks_of(X, Y), None, weights)
    assert model.residual_ <= 1e-9
    np.testing.assert_allclose(model.dual_coef_, expected.dual_coef_, atol=1e-6)
    np.testing.assert_allclose(model.predict(new), expected.predict(new), atol=1e-6)
    np.testing.assert_array_equal(model.X_fit_, X)


def test_the_default_map_and_others_that_stream(small: None) -> None:
    X = rows()
    y = targets(X)[0][:, 0]
    for features in (
        AdaptiveFeatures(40, gamma=0.2, random_state=0),
        FourierFeatures(40, gamma=0.2, random_state=0),
    ):
        options: dict[str, Any] = {"alpha": 0.1, "refine": True, "tol": 1e-8, "random_state": 0}
        expected = KernelRidge(features, **options).fit(X, y)
        model = KernelRidge(features, **options).fit(blocks_of(X, y))
        np.testing.assert_allclose(model.predict(X), expected.predict(X), atol=1e-6)


def test_float32_rows_are_kept_in_float32(small: None) -> None:
    X = rows().astype(np.float32)
    y = targets(X)[0][:, 0]
    model = ridge(Gaussian(0.2)).fit(blocks_of(X, y))
    assert model.X_fit_.dtype == np.float32
    expected = ridge(Gaussian(0.2)).fit(X.astype(np.float64), y).predict(X.astype(np.float64))
    np.testing.assert_allclose(model.predict(X), expected, atol=1e-5)


def test_sparse_rows_are_solved_and_kept(small: None) -> None:
    X = rows()
    X[np.abs(X) < 0.7] = 0.0
    y = targets(X)[0][:, 0]
    model = ridge(Gaussian(0.2)).fit(blocks_of(sp.csr_array(X), y))
    assert sp.issparse(model.X_fit_)
    expected = ridge(Gaussian(0.2)).fit(X, y).predict(X)
    np.testing.assert_allclose(model.predict(sp.csr_array(X)), expected, atol=1e-6)


def test_a_time_limit_returns_what_there_is(small: None) -> None:
    X = rows()
    model = ridge(Gaussian(0.2), time_limit=1e-3, tol=1e-14)
    with pytest.warns(ConvergenceWarning, match="raise time_limit"):
        model.fit(blocks_of(X, X[:, 0]))
    assert np.isfinite(model.predict(X)).all()


def test_rows_of_a_file_stay_there(small: None, tmp_path: Any) -> None:
    X = rows()
    y = targets(X)[0][:, 0]
    np.save(tmp_path / "X.npy", X)
    model = ridge(Gaussian(0.2)).fit(NpySource(tmp_path / "X.npy", y))
    assert isinstance(model.X_fit_.base, np.memmap)
    expected = model.predict(X)
    np.testing.assert_allclose(ridge(Gaussian(0.2)).fit(X, y).predict(X), expected, atol=1e-6)
    save(model, tmp_path / "model.ks")
    (tmp_path / "X.npy").unlink()  # the model file has its own
    np.testing.assert_array_equal(load(tmp_path / "model.ks").predict(X), expected)


def test_rows_that_cannot_be_kept_are_refused_before_the_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """500 rows of 4 columns are 16,000 bytes."""
    X = rows()
    y = targets(X)[0][:, 0]
    np.save(tmp_path / "X.npy", X)
    monkeypatch.setattr(_validation, "UNCHECKED", 1000)
    monkeypatch.setattr(_validation, "available", lambda: 15_000)
    words = r"the 500 rows of 4 columns.* NpySource\('rows.npy', y\).* refine=False"
    with pytest.raises(MemoryError, match=words):
        ridge(Gaussian(0.2)).fit(blocks_of(X, y))
    check_room(NpySource(tmp_path / "X.npy", y))
    monkeypatch.setattr(_validation, "available", lambda: 17_000)
    check_room(blocks_of(X, y))


def test_neither_rows_nor_features_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 rows more have 12 MB of features in float32; the rows that the model keeps, 0.6 MB."""
    monkeypatch.setattr(full_kernel, "PIVOT_ROWS", 1000)
    monkeypatch.setattr(full_kernel, "LANDMARKS", 300)
    monkeypatch.setattr(full_kernel, "TRIAL_ROWS", 200)
    monkeypatch.setattr(streamed_kernel, "HELD_ROWS", 2000)

    def drawn(count: int) -> Iterator[Any]:
        for seed in range(count):
            X = np.random.default_rng(seed).normal(size=(1000, 16)).astype(np.float32)
            yield X, np.sin(X[:, 0])

    def peak(count: int) -> int:
        features = NystromFeatures(300, kernel=Gaussian(0.05), random_state=0)
        options: dict[str, Any] = {"tol": 0.03, "block_rows": 256, "n_jobs": 2, "random_state": 0}
        model = KernelRidge(features, alpha=10.0, refine=True, **options)
        tracemalloc.start()
        model.fit(BlockSource(partial(drawn, count)))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert model.residual_ <= 0.03
        return found

    assert peak(20) - peak(10) < 6e6


def test_chunks_on_dask(small: None) -> None:
    da = pytest.importorskip("dask.array")
    X, new = rows(), rows(60, seed=5)
    Y, weights = targets(X)
    chunks = [da.from_array(part, chunks=(SIZES, *part.shape[1:])) for part in (X, Y, weights)]
    model = ridge(Gaussian(0.2)).fit(*chunks)
    expected = ridge(Gaussian(0.2)).fit(X, Y, weights)
    np.testing.assert_allclose(model.predict(new), expected.predict(new), atol=1e-6)
    lazy = model.predict(da.from_array(new, chunks=(20, 4)))
    np.testing.assert_allclose(lazy.compute(), expected.predict(new), atol=1e-6)


def test_chunks_on_processes(small: None) -> None:
    """What travels to the workers can be pickled, and is not the source."""
    distributed = pytest.importorskip("distributed")
    da = pytest.importorskip("dask.array")
    X = rows()
    y = targets(X)[0][:, 0]
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    )
    with cluster, distributed.Client(cluster), time_limit(120):
        model = ridge(Gaussian(0.2)).fit(
            da.from_array(X, chunks=(125, 4)), da.from_array(y, chunks=125)
        )
    np.testing.assert_allclose(
        model.predict(X), ridge(Gaussian(0.2)).fit(X, y).predict(X), atol=1e-6
    )
