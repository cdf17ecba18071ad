"""Fits on sources of blocks are those on arrays, however the rows are cut."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.datasets import dump_svmlight_file
from support.engine_options import set_options

from kernelsieve import (
    AdaptiveFeatures,
    AutoFeatures,
    FourierFeatures,
    KernelKMeans,
    KernelPCA,
    KernelRidge,
    KernelRidgeClassifier,
    KernelRidgeCV,
    KernelSVC,
    NystromFeatures,
    ObliviousFeatures,
    RowNormFeatures,
    explain,
)
from kernelsieve.models import kernel_kmeans, ridge_solve
from kernelsieve.sources.arrow import ArrowSource
from kernelsieve.sources.npy import NpySource
from kernelsieve.sources.stream import BlockSource
from kernelsieve.sources.svmlight import SvmlightSource

Array = NDArray[Any]
N = 3000
CUTS = {"whole": [], "many": list(range(97, N, 97)), "uneven": [1, 2, 700, 2990]}
MAPS = {
    "adaptive": AdaptiveFeatures(40, random_state=0),
    "adaptive monomials": AdaptiveFeatures(40, basis="monomial", rotate=True, random_state=0),
    "adaptive polynomial": AdaptiveFeatures(40, kernel="poly", random_state=0),
    "mercer, rotated": RowNormFeatures(40, basis="mercer", rotate=True, random_state=0),
    "row norm": RowNormFeatures(40, basis="monomial", rotate=False, random_state=0),
    "fourier": FourierFeatures(40, random_state=0),
    "modified fourier": FourierFeatures(40, frequencies="modified", random_state=0),
    "nystrom": NystromFeatures(40, random_state=0),
    "auto": AutoFeatures(40, random_state=0),
}


def dense(seed: int = 0, dtype: Any = np.float64) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, 5)) / np.arange(1, 6) + 3.0
    return X.astype(dtype), np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(N)


def sparse(seed: int = 0) -> tuple[Any, Array]:
    X = sp.random(N, 60, 0.08, format="csr", random_state=seed)
    return X, np.asarray(X[:, :4].sum(axis=1)).ravel()


def cut(X: Any, y: Any, name: str) -> BlockSource:
    """The same rows in blocks."""
    bounds = [0, *CUTS[name], N]
    return BlockSource([(X[a:b], y[a:b]) for a, b in itertools.pairwise(bounds)])


def same_map(first: Any, second: Any) -> None:
    """The same features: the same names where there are names, and the same values."""
    if hasattr(first, "monomials_"):
        assert first.monomials_ == second.monomials_
        np.testing.assert_allclose(first.weights_, second.weights_, rtol=1e-9)


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("chunks", CUTS)
@pytest.mark.parametrize("name", MAPS)
def test_a_ridge_does_not_depend_on_blocks(name: str, chunks: str) -> None:
    X, y = dense()
    model = KernelRidge(MAPS[name], alpha=0.1)
    whole = model.fit(X, y)
    expected, features = whole.predict(X), whole.features_
    source = cut(X, y, chunks)
    streamed = model.fit(source)
    same_map(features, streamed.features_)
    np.testing.assert_allclose(streamed.predict(source), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(streamed.predict(X), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("name", ["adaptive", "row norm", "fourier", "nystrom"])
@pytest.mark.parametrize("entries", [500, 2**24])
def test_sparse_rows_do_not_depend_on_blocks(
    name: str, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they are too many to draw from all of them."""
    set_options(monkeypatch, sparse_proposal_entries=entries)
    X, y = sparse()
    features = MAPS[name] if name != "row norm" else RowNormFeatures(40, random_state=0)
    model = KernelRidge(features, alpha=0.1)
    whole = model.fit(X, y)
    expected, first = whole.predict(X), whole.features_
    for chunks in CUTS:
        streamed = model.fit(cut(X, y, chunks))
        same_map(first, streamed.features_)
        np.testing.assert_allclose(streamed.predict(X), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("few_rows")
def test_float32_stays_and_agrees() -> None:
    X, y = dense(dtype=np.float32)
    model = KernelRidge(AdaptiveFeatures(40, random_state=0), alpha=1.0)
    expected = model.fit(X, y).predict(X)
    streamed = model.fit(cut(X, y, "uneven")).predict(cut(X, y, "many"))
    assert streamed.dtype == np.float32
    np.testing.assert_allclose(streamed, expected, rtol=1e-3, atol=1e-3)


def test_weights_and_targets_beside_a_source() -> None:
    X, y = dense()
    weights = np.random.default_rng(1).random(N)
    targets = np.column_stack([y, -y])
    model = KernelRidge(FourierFeatures(30, random_state=0), alpha=0.1)
    expected = model.fit(X, targets, weights).predict(X)
    source = BlockSource([X[:1000], X[1000:]])
    streamed = model.fit(source, targets, weights).predict(X)
    np.testing.assert_allclose(streamed, expected, rtol=1e-8)
    with pytest.raises(ValueError, match="sample_weight has 5 rows and X has 3000"):
        model.fit(source, targets, np.ones(5))


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize(
    "features", [AdaptiveFeatures(30, random_state=0), FourierFeatures(30, random_state=0)]
)
def test_cross_validation_does_not_depend_on_blocks(features: Any) -> None:
    """With maps that look at the target by folds, with others in closed form."""
    X, y = dense()
    model = KernelRidgeCV(features, alphas=[0.01, 1.0, 100.0])
    whole = model.fit(X, y)
    expected, rmse = whole.predict(X), whole.cv_results_["rmse"]
    for chunks in CUTS:
        streamed = model.fit(cut(X, y, chunks))
        np.testing.assert_allclose(streamed.cv_results_["rmse"], rmse, rtol=1e-8)
        np.testing.assert_allclose(streamed.predict(X), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_classifier_does_not_depend_on_blocks(n_classes: int, class_weight: Any) -> None:
    X, y = dense()
    labels = np.array(["low", "middle", "high"])[
        np.digitize(y, np.quantile(y, [0.6] if n_classes == 2 else [0.3, 0.6]))
    ]
    model = KernelRidgeClassifier(
        AdaptiveFeatures(30, random_state=0), alpha=0.1, class_weight=class_weight
    )
    expected = model.fit(X, labels).predict_proba(X)
    for chunks in CUTS:
        streamed = model.fit(cut(X, labels, chunks))
        np.testing.assert_allclose(streamed.predict_proba(X), expected, rtol=1e-6, atol=1e-8)
    assert set(streamed.predict(cut(X, labels, "many"))) == set(labels)


@pytest.mark.usefixtures("few_rows")
def test_components_do_not_depend_on_blocks() -> None:
    X, y = dense()
    model = KernelPCA(3, AdaptiveFeatures(30, random_state=0))
    expected = model.fit_transform(X)
    streamed = model.fit(cut(X, y, "many"))
    np.testing.assert_allclose(streamed.transform(X), expected, atol=1e-8)
    blocks = list(streamed.transform(cut(X, y, "uneven")).blocks(1000))
    assert [len(block) for block in blocks] == [1000, 1000, 1000]
    np.testing.assert_allclose(np.concatenate(blocks), expected, atol=1e-8)


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("largest", [0, 2**26], ids=["passes", "in memory"])
def test_clusters_do_not_depend_on_blocks(largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_kmeans, "LARGEST_IN_MEMORY", largest)
    X, y = dense()
    model = KernelKMeans(4, RowNormFeatures(30, random_state=0), random_state=0)
    whole = model.fit(X)
    labels, inertia = whole.labels_, whole.inertia_
    streamed = model.fit(cut(X, y, "many"))
    np.testing.assert_array_equal(streamed.labels_, labels)
    np.testing.assert_allclose(streamed.inertia_, inertia, rtol=1e-9)
    np.testing.assert_array_equal(streamed.predict(cut(X, y, "uneven")), labels)


def test_many_features_by_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conjugate gradients go over the source again and again, and keep nothing of it."""
    X, y = dense()
    model = KernelRidge(
        FourierFeatures(60, random_state=0), alpha=0.1, solver="cg", tol=1e-10, random_state=0
    )
    direct = KernelRidge(FourierFeatures(60, random_state=0), alpha=0.1).fit(X, y).predict(X)
    streamed = model.fit(cut(X, y, "many"))
    assert streamed.solver_ == "cg"
    np.testing.assert_allclose(streamed.predict(X), direct, atol=1e-6)
    monkeypatch.setattr(ridge_solve, "LARGEST_CHOLESKY", 8)
    fewer_rows = BlockSource([(X[:20], y[:20]), (X[20:40], y[20:40])])
    dual = KernelRidge(FourierFeatures(60, random_state=0), alpha=0.1).fit(fewer_rows)
    assert dual.solver_ == "dual"
    expected = KernelRidge(FourierFeatures(60, random_state=0), alpha=0.1, solver="cholesky")
    np.testing.assert_allclose(dual.predict(X), expected.fit(X[:40], y[:40]).predict(X), atol=1e-8)


def test_an_exact_ridge_and_its_explanation_of_a_source() -> None:
    """What was fitted to arrays looks at sources, too."""
    X, y = dense()
    features = RowNormFeatures(30, kernel="poly", degree=2, rotate=False, random_state=0)
    exact = KernelRidge(features, alpha=0.1, refine=True).fit(X[:200], y[:200])
    source = cut(X, y, "uneven")
    np.testing.assert_allclose(exact.predict(source), exact.predict(X), rtol=1e-8, atol=1e-8)
    model = KernelRidge(features, alpha=0.1).fit(source)
    assert explain(model, source).parts[0] == explain(model, X).parts[0]


@pytest.mark.usefixtures("few_rows")
def test_files_are_what_is_in_them(tmp_path: Path) -> None:
    """The same model from arrays, .npy, Parquet, Feather and svmlight files."""
    X, y = dense()
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    names = [f"c{i}" for i in range(5)]
    table = pa.table({**dict(zip(names, X.T, strict=True)), "y": y})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=700)
    pa.feather.write_feather(table, tmp_path / "t.feather")
    dump_svmlight_file(X, y, str(tmp_path / "t.svm"), zero_based=False)
    sources = {
        "npy": NpySource(tmp_path / "X.npy", tmp_path / "y.npy"),
        "parquet": ArrowSource(tmp_path / "t.parquet", target="y"),
        "feather": ArrowSource(tmp_path / "t.feather", target="y", format="feather"),
        "svmlight": SvmlightSource(tmp_path / "t.svm", dense=True),
    }
    model = KernelRidge(AdaptiveFeatures(40, random_state=0), alpha=0.1)
    whole = model.fit(X, y)
    expected, features = whole.predict(X), whole.features_
    for name, source in sources.items():
        streamed = model.fit(source)
        same_map(features, streamed.features_)
        np.testing.assert_allclose(streamed.predict(source), expected, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("estimator", "who"),
    [
        (ObliviousFeatures(20), "ObliviousFeatures"),
        (AdaptiveFeatures(20, sampler="paper"), "sampler='paper'"),
        (RowNormFeatures(20, sampler="paper"), "sampler='paper'"),
        (NystromFeatures(20, landmarks="leverage"), "landmarks='leverage'"),
        (KernelSVC(FourierFeatures(20)), "KernelSVC"),
    ],
)
def test_what_needs_all_rows_says_so(estimator: Any, who: str) -> None:
    X, y = dense()
    source = cut(X[:200], np.sign(y[:200] - np.median(y)), "whole")
    with pytest.raises(ValueError, match=f"{who} looks at all rows at once"):
        estimator.fit(source)


def test_columns_are_compared_with_those_of_fit() -> None:
    X, y = dense()
    model = KernelRidge(FourierFeatures(20, random_state=0)).fit(cut(X, y, "many"))
    with pytest.raises(ValueError, match="X has 4 features, but KernelRidge is expecting 5"):
        model.predict(BlockSource([X[:, :4]]))
    with pytest.raises(ValueError, match="has no target"):
        model.fit(BlockSource([X]))


def test_a_bar_counts_rows(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = dense()
    KernelRidge(FourierFeatures(20, random_state=0), verbose=1).fit(cut(X, y, "many"))
    assert "rows/s" in capsys.readouterr().out
