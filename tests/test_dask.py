"""The estimators on Dask collections: the same results on threads, processes and a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone
from support.limits import time_limit

import kernelsieve
from kernelsieve import dask as on_dask
from kernelsieve.dask import DaskSource

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

Array = NDArray[Any]
N = 2000
CHUNKS = {"one": (N,), "even": (250,) * 8, "uneven": (1, 999, 7, 993)}
LIMIT = 60  # seconds for anything on a cluster


def data() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 5)) / np.arange(1, 6) + 1.0
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(N)


def chunked(X: Array, y: Array, name: str = "even") -> tuple[Any, Any]:
    rows = CHUNKS[name]
    return da.from_array(X, chunks=(rows, X.shape[1])), da.from_array(y, chunks=(rows,))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two worker processes."""
    with (
        dask.config.set({"distributed.admin.system-monitor.gil.enabled": False}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as running,
    ):
        yield running


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    with distributed.Client(cluster) as connected:
        yield connected


MAPS: dict[str, Any] = {
    "AdaptiveFeatures": {},
    "RowNormFeatures": {"basis": "monomial"},
    "NystromFeatures": {},
    "FourierFeatures": {},
}


def pair(name: str, size: int = 30, **parameters: Any) -> tuple[Any, Any]:
    """A map of the library and its twin on Dask."""
    return tuple(
        getattr(home, name)(size, random_state=0, **parameters) for home in (kernelsieve, on_dask)
    )  # type: ignore[return-value]


def check_ridge(name: str, chunks: str) -> None:
    X, y = data()
    local, remote = pair(name, **MAPS[name])
    whole = kernelsieve.KernelRidge(local, alpha=0.1).fit(X, y)
    dX, dy = chunked(X, y, chunks)
    model = on_dask.KernelRidge(remote, alpha=0.1).fit(dX, dy)
    if hasattr(whole.features_, "monomials_"):
        assert model.features_.monomials_ == whole.features_.monomials_
    np.testing.assert_allclose(model.predict(dX).compute(), whole.predict(X), rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("name", MAPS)
def test_chunks_do_not_change_a_ridge(name: str, chunks: str) -> None:
    check_ridge(name, chunks)


@pytest.mark.usefixtures("few_rows")
def test_processes_do_not_change_a_ridge(client: Any) -> None:
    with time_limit(LIMIT):
        for chunks in ("even", "uneven"):
            check_ridge("AdaptiveFeatures", chunks)


@pytest.mark.slow
def test_the_number_of_workers_does_not_change_a_ridge(cluster: Any) -> None:
    for workers in (1, 4, 2):
        cluster.scale(workers)
        with distributed.Client(cluster) as client, time_limit(2 * LIMIT):
            client.wait_for_workers(workers)
            for chunks in CHUNKS:
                check_ridge("AdaptiveFeatures", chunks)


def test_transform_is_lazy_with_right_chunks_and_meta() -> None:
    X, y = data()
    dX, dy = chunked(X.astype(np.float32), y, "uneven")
    features = on_dask.AdaptiveFeatures(30, random_state=0).fit(dX, dy)

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("computed something")

    with dask.config.set(scheduler=refuse):
        Z = features.transform(dX)
    assert Z.chunks == (CHUNKS["uneven"], (features.n_components_,))
    assert Z.dtype == Z._meta.dtype == np.float32
    assert isinstance(Z._meta, np.ndarray)
    expected = kernelsieve.AdaptiveFeatures(30, random_state=0).fit(X.astype(np.float32), y)
    computed = Z.compute()
    assert computed.dtype == np.float32
    np.testing.assert_allclose(computed, expected.transform(X.astype(np.float32)), atol=1e-4)
    few = features.transform(X[:10])
    assert isinstance(few, np.ndarray)  # arrays are still arrays


def test_the_estimators_themselves_take_collections() -> None:
    """The names in kernelsieve.dask are those of kernelsieve: there are no other classes."""
    for name in set(on_dask.__all__) - {"DaskSource"}:
        assert getattr(on_dask, name) is getattr(kernelsieve, name)
    X, y = data()
    dX, dy = chunked(X, y)
    features = kernelsieve.FourierFeatures(20, random_state=0)
    svc = kernelsieve.KernelSVC(features)
    with pytest.raises(ValueError, match="KernelSVC looks at all rows at once"):
        svc.fit(dX, dy > 0)
    lazy = svc.fit(X, y > 0).predict(dX)
    np.testing.assert_array_equal(lazy.compute(), svc.predict(X))
    with pytest.raises(ValueError, match="KernelCCA looks at all rows at once"):
        kernelsieve.KernelCCA().fit(dX, dy)
    means = kernelsieve.KernelKMeans(3, features, random_state=0)
    weights = np.random.default_rng(2).random(N)
    whole = means.fit(X, sample_weight=weights).cluster_centers_
    chunks = means.fit(dX, sample_weight=da.from_array(weights, chunks=300)).cluster_centers_
    np.testing.assert_allclose(chunks, whole, atol=1e-8)


def test_plain_arrays_do_not_import_dask() -> None:
    code = (
        "import sys, numpy as np, kernelsieve as ks; X = np.eye(30);"
        "model = ks.KernelRidge(ks.RowNormFeatures(5)).fit(X, X[0]); model.predict(X);"
        "late = ('dask', 'kernelsieve.sources.dask', 'kernelsieve.sources.arrow');"
        "print([name for name in late if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array])
def test_sparse_chunks_stay_sparse(kind: Any) -> None:
    X = sp.random(N, 40, 0.1, format="csr", random_state=0)
    y = np.asarray(X[:, :3].sum(axis=1)).ravel()
    chunks = (700, 1, N - 701)
    numbers = da.from_array(np.arange(N)[:, None], chunks=(chunks, 1))
    dX = numbers.map_blocks(
        lambda rows: kind(X[rows[:, 0]]),
        dtype=X.dtype,
        chunks=(chunks, (40,)),
        meta=kind((0, 40), dtype=X.dtype),
    )
    local, remote = pair("AdaptiveFeatures")
    whole = kernelsieve.KernelRidge(local, alpha=0.1).fit(X, y)
    model = on_dask.KernelRidge(remote, alpha=0.1).fit(dX, y)
    assert model.features_.monomials_ == whole.features_.monomials_
    np.testing.assert_allclose(model.predict(dX).compute(), whole.predict(X), rtol=1e-6, atol=1e-6)
    Z = model.features_.transform(dX)
    assert sp.issparse(Z._meta)
    for block in Z.blocks:
        assert sp.issparse(block.compute())


def test_data_frames() -> None:
    """Columns keep their names; the lengths of partitions are not known at first."""
    X, y = data()
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame["label"] = np.where(y > np.median(y), "high", "low")
    table = dd.from_pandas(frame, npartitions=5)
    rows, labels = table[list("abcde")], table["label"]
    model = on_dask.KernelRidgeClassifier(on_dask.RowNormFeatures(30, random_state=0)).fit(
        rows, labels
    )
    assert model.feature_names_in_.tolist() == list("abcde")
    whole = kernelsieve.KernelRidgeClassifier(kernelsieve.RowNormFeatures(30, random_state=0))
    expected = whole.fit(X, frame["label"]).predict_proba(X)
    np.testing.assert_allclose(model.predict_proba(rows).compute(), expected, rtol=1e-6, atol=1e-8)
    assert set(model.predict(rows).compute()) == {"high", "low"}
    with pytest.raises(ValueError, match="fit had"):
        model.predict(rows.rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match=r"X has 4 features.* is expecting 5"):
        model.predict(rows.to_dask_array()[:, :4])


MODELS: dict[str, dict[str, Any]] = {
    "KernelRidgeCV": {"alphas": [0.01, 1.0], "cv": 2},
    "KernelRidgeClassifier": {"alpha": 0.1},
    "KernelPCA": {"n_components": 3},
    "KernelKMeans": {"n_clusters": 4, "random_state": 0},
}


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("name", MODELS)
def test_the_other_models(name: str) -> None:
    X, y = data()
    y = np.digitize(y, np.quantile(y, [0.3, 0.6])) if name == "KernelRidgeClassifier" else y
    local, remote = pair("AdaptiveFeatures")
    dX, dy = chunked(X, y)
    whole = getattr(kernelsieve, name)(features=local, **MODELS[name]).fit(X, y)
    model = getattr(on_dask, name)(features=remote, **MODELS[name]).fit(dX, dy)
    methods = {
        "KernelRidgeCV": ("predict",),
        "KernelRidgeClassifier": ("predict", "decision_function", "predict_proba"),
        "KernelPCA": ("transform",),
        "KernelKMeans": ("predict", "transform"),
    }[name]
    for method in methods:
        lazy = getattr(model, method)(dX)
        assert lazy.chunks[0] == CHUNKS["even"]
        expected = getattr(whole, method)(X)
        assert lazy.shape == expected.shape
        assert lazy.dtype == expected.dtype
        np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-6, atol=1e-6)


def test_deviations_and_weights() -> None:
    X, y = data()
    weights = np.random.default_rng(1).random(N)
    local, remote = pair("FourierFeatures")
    whole = kernelsieve.KernelRidge(local, alpha=0.1).fit(X, y, weights)
    dX, dy = chunked(X, y)
    model = on_dask.KernelRidge(remote, alpha=0.1).fit(dX, dy, da.from_array(weights, chunks=600))
    for lazy, expected in zip(
        model.predict(dX, return_std=True), whole.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-6)
    again = clone(model).partial_fit(dX[:1000], dy[:1000]).partial_fit(dX[1000:], dy[1000:])
    assert again.coef_.shape == (30,)


def test_workers_have_one_thread(client: Any) -> None:
    """Inside a task BLAS has one thread, and blocks are not handed to threads of our own."""
    X, y = data()
    source = DaskSource(*chunked(X, y))

    def look(block: Any) -> int:
        import threading

        from threadpoolctl import threadpool_info

        from kernelsieve._parallel import map_row_blocks

        blas = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        names = set(map_row_blocks(lambda rows: threading.current_thread().name, 10, 1, 4))
        return int(max(blas, default=1) == 1 and len(names) == 1)

    with time_limit(LIMIT):
        assert source.reduce(look, N) == len(CHUNKS["even"])


def test_a_nan_is_found_in_its_chunk() -> None:
    X, y = data()
    X[17 * 50 + 3, 2] = np.nan
    dX = da.from_array(X, chunks=(50, 5))
    with pytest.raises(ValueError, match=r"chunk 17 of 40 \(from row 850 on\): NaN in its row 3"):
        on_dask.KernelRidge(on_dask.FourierFeatures(20)).fit(dX, y)


def test_chunks_that_are_not_what_they_say() -> None:
    X, y = data()
    pieces = [X[:1000], X[1000:, :4]]
    dX = da.concatenate(
        [da.from_delayed(dask.delayed(piece), (1000, 5), X.dtype) for piece in pieces]
    )
    with pytest.raises(ValueError, match=r"chunk 1 of 2 .*has 4 columns, but other chunks have 5"):
        on_dask.KernelRidge(on_dask.FourierFeatures(20)).fit(dX, y)
    with pytest.raises(ValueError, match="y has 7 rows and X has 2000"):
        on_dask.KernelRidge(on_dask.FourierFeatures(20)).fit(da.from_array(X), y[:7])


def test_collections_that_cannot_be_fitted() -> None:
    X, y = data()
    with pytest.raises(ValueError, match=r"X has 1 dimensions: it must be of shape \(n, d\)"):
        DaskSource(da.from_array(y, chunks=500))
    promised = da.from_array(X, chunks=(500, 5)).map_blocks(
        lambda block: block.astype(np.float32), dtype=np.float64, meta=np.empty((0, 0))
    )
    model = kernelsieve.KernelRidge(kernelsieve.RowNormFeatures(5, random_state=0))
    words = r"chunk . of 4 .*: its values are float32, but those of other chunks are float64"
    with pytest.raises(ValueError, match=words):
        model.fit(promised, da.from_array(y, chunks=500))
    with pytest.raises(ValueError, match="all sample weights are zero: there is nothing to fit"):
        model.fit(*chunked(X, y), sample_weight=da.zeros(N, chunks=250))


def test_chunks_of_some_columns_are_put_together() -> None:
    X, y = data()
    model = kernelsieve.KernelRidge(kernelsieve.RowNormFeatures(5, gamma=0.2, random_state=0))
    expected = model.fit(*chunked(X, y)).predict(X)
    narrow = da.from_array(X, chunks=(250, 2))
    found = clone(model).fit(narrow, da.from_array(y, chunks=250)).predict(X)
    np.testing.assert_array_equal(found, expected)


def loaded(X: Array, load: Any) -> Any:
    """X in chunks that ``load(rows, number)`` makes on a worker."""
    pieces = [
        da.from_delayed(dask.delayed(load)(X[250 * i : 250 * (i + 1)], i), (250, 5), X.dtype)
        for i in range(8)
    ]
    return da.concatenate(pieces)


def test_expected_rows_come_along_with_a_pass() -> None:
    X, y = data()
    loads: list[int] = []

    def load(rows: Array, number: int) -> Array:
        loads.append(number)
        return rows

    wanted = np.array([3, 260, 1999])
    with dask.config.set(scheduler="threads"):
        source = DaskSource(loaded(X, load), da.from_array(y, chunks=250))
        source.expect(wanted)
        assert source.reduce(len) == N
        block = source.take(wanted)
    assert sorted(loads) == list(range(8)), "the rows were fetched in a pass of their own"
    np.testing.assert_array_equal(block.X, X[wanted])
    np.testing.assert_array_equal(block.y, y[wanted])


def test_what_rows_and_targets_share_is_made_once() -> None:
    """The target is a function of the rows: a pass must not make the rows a second time for it."""
    made: list[int] = []

    def make(block: Array, block_info: Any = None) -> Array:
        made.append(block_info[0]["chunk-location"][0])
        return block + 1.0

    X, _ = data()
    with dask.config.set(scheduler="threads"):
        rows = da.from_array(X, chunks=(250, 5)).map_blocks(make, dtype=X.dtype, meta=X[:0])
        source = DaskSource(rows, rows[:, 0] * rows[:, 1])
        total = source.reduce(lambda block: np.sum(block.y))
    assert sorted(made) == list(range(8))
    assert total == pytest.approx(np.sum((X[:, 0] + 1) * (X[:, 1] + 1)))


def test_a_killed_worker_changes_nothing(client: Any, tmp_path: Path) -> None:
    X, y = data()
    marker = str(tmp_path / "passes")

    def load(rows: Array, number: int) -> Array:
        if number == 5:
            with open(marker, "a") as file:
                file.write("x")
            if os.path.getsize(marker) == 3:  # in the third pass, for some chunks have been summed
                os.kill(os.getpid(), signal.SIGKILL)
        return rows

    local, remote = pair("AdaptiveFeatures")
    whole = kernelsieve.KernelRidge(local, alpha=0.1).fit(X, y)
    with time_limit(LIMIT):
        model = on_dask.KernelRidge(remote, alpha=0.1).fit(loaded(X, load), y)
    assert os.path.getsize(marker) > 3, "no worker was killed"
    assert model.features_.monomials_ == whole.features_.monomials_
    np.testing.assert_allclose(model.predict(X), whole.predict(X), rtol=1e-6, atol=1e-6)


def test_a_worker_that_raises_says_what(client: Any) -> None:
    X, y = data()

    def load(rows: Array, number: int) -> Array:
        if number == 5:
            raise OSError("the disk of chunk 5 is gone")
        return rows

    with time_limit(LIMIT), pytest.raises(OSError, match="the disk of chunk 5 is gone"):
        on_dask.KernelRidge(on_dask.AdaptiveFeatures(20), alpha=0.1).fit(loaded(X, load), y)
