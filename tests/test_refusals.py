"""Errors beside the estimators: files, sources, sketches, generators, threads, linear algebra."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import LinAlgError

import kernelsieve as ks
from kernelsieve import kernels
from kernelsieve._parallel import _available_cores, thread_count
from kernelsieve._progress import track
from kernelsieve.datasets import describe
from kernelsieve.datasets.download import write_files
from kernelsieve.datasets.generators import make_onehot, make_product
from kernelsieve.diagnostics import krr_risk_bound
from kernelsieve.kernels.missing import Reference
from kernelsieve.kernels.smooth import bump
from kernelsieve.kernels.zonal import MOST_LAYERS
from kernelsieve.linalg.cholesky import inverse_of, regularised_cholesky
from kernelsieve.products import sparse_basis
from kernelsieve.sketches import TensorSketch
from kernelsieve.sources import marginals
from kernelsieve.sources.npy import NpySource
from kernelsieve.sources.stream import BlockSource
from kernelsieve.sources.svmlight import SvmlightSource


def points(n: int = 20, d: int = 3) -> Any:
    return np.random.default_rng(0).standard_normal((n, d))


# --- files and sources ---------------------------------------------------------------------------


def test_npy_files(tmp_path: Path) -> None:
    cube, rows = tmp_path / "cube.npy", tmp_path / "rows.npy"
    np.save(cube, np.zeros((2, 2, 2)))
    np.save(rows, points())
    with pytest.raises(ValueError, match=r"cube\.npy has 3 dimensions: it must be a matrix"):
        NpySource(cube)
    with pytest.raises(ValueError, match=r"y has 19 rows and .*rows\.npy has 20"):
        NpySource(rows, np.zeros(19))


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("1 0:1.0\n", {"zero_based": False}, "has a column 0: pass zero_based=True"),
        ("1 1:1.0 7:2.0\n", {"n_features": 3}, r"has 7 columns, more than n_features=3"),
        ("nan 1:1.0\n", {}, r"block 0 of 1 .*NaN or infinity among its labels"),
        ("1 1:inf\n", {}, r"infinity in its row 0, column"),
        ("", {}, "has no rows"),
        ("1 1:1.0 broken\n", {}, "block 0 of 1"),
    ],
)
def test_svmlight_files(tmp_path: Path, text: str, options: Any, words: str) -> None:
    path = tmp_path / "rows.svm"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        SvmlightSource(path, **options)


def test_a_last_line_without_its_end(tmp_path: Path) -> None:
    path = tmp_path / "rows.svm"
    path.write_text("1 1:1.0\n2 1:2.0")
    assert SvmlightSource(path).shape == (2, 1)


def test_blocks_that_do_not_fit_each_other() -> None:
    pd = pytest.importorskip("pandas")
    frames = [pd.DataFrame({"a": [1.0], "b": [2.0]}), pd.DataFrame({"b": [1.0], "a": [2.0]})]
    source = BlockSource(frames)
    with pytest.raises(
        ValueError, match=r"columns are \['b', 'a'\], but those of other blocks are \['a', 'b'\]"
    ):
        list(source.blocks())
    with pytest.raises(ValueError, match=r"block 0 .*1e\+200, whose square exceeds"):
        list(BlockSource([np.full((2, 2), 1e200)]).blocks())
    with pytest.raises(IndexError, match=r"row 9 of .* does not exist"):
        BlockSource([points()[:4]]).take(np.array([1, 9]))
    with pytest.raises(AttributeError, match="colour"):
        _ = BlockSource([points()]).colour


def test_columns_of_a_source_are_those_of_the_fit() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(points(), columns=list("abc"))
    features = ks.FourierFeatures(4, random_state=0).fit(BlockSource([frame]))
    other = BlockSource([frame.rename(columns={"a": "z"})])
    other.shape  # noqa: B018 (the first pass finds the names)
    with pytest.raises(ValueError, match=r"X has the columns \['z', 'b', 'c'\], but fit had"):
        features.transform(other)


def test_sparse_rows_are_no_npy_file(tmp_path: Path) -> None:
    source = BlockSource([sp.csr_array(points())])
    with pytest.raises(ValueError, match="holds dense rows, and these are sparse"):
        source.save(tmp_path / "rows.npy")
    assert list(tmp_path.iterdir()) == []


# --- numbers -------------------------------------------------------------------------------------


def test_factorisations_say_why_they_fail() -> None:
    with pytest.raises(LinAlgError, match=r"not positive definite at alpha=0.1: raise alpha"):
        regularised_cholesky(np.array([[1.0, 3.0], [3.0, 1.0]]), 0.1)
    with pytest.raises(ValueError, match="products of features overflow float64: scale X"):
        regularised_cholesky(np.array([[np.inf, 0.0], [0.0, 1.0]]), 0.1)
    huge = np.full((2, 1), 1e200)
    features = ks.RowNormFeatures(4, kernel=kernels.DotProduct((0.0, 1.0)), random_state=0)
    with pytest.raises(ValueError, match="1e\\+200, whose square exceeds"):
        ks.KernelRidge(features).fit(huge, [0.0, 1.0])


@pytest.mark.parametrize("n_jobs", [0, 1.5, "2", True])
def test_counts_of_threads(n_jobs: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=f"n_jobs={n_jobs!r}"):
        thread_count(n_jobs)


def test_threads_below_all() -> None:
    assert thread_count(-1) == thread_count(None)
    assert thread_count(-1000) == 1


@pytest.mark.parametrize("name", ["scale", "constant"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_sketches_of_no_numbers(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name}={value!r} is not a finite number"):
        TensorSketch(3, 8, 2, **{name: value})


def test_too_few_columns_for_a_target() -> None:
    with pytest.raises(ValueError, match="n_features=9 must be >= 10"):
        make_product(5, n_features=9)
    with pytest.raises(ValueError, match="n_columns=3 must be >= 4"):
        make_onehot(5, n_columns=3)


def test_risk_of_values_that_do_not_fit() -> None:
    K = np.eye(3)
    with pytest.raises(ValueError, match=r"f has shape \(2,\) and must have shape \(3,\)"):
        krr_risk_bound(K, np.zeros(2), 1.0, 1.0, 0.5, 3)


def test_a_bar_shows_all_items(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(track(iter("abc"), 3, "letters", verbose=1)) == list("abc")
    assert "letters" in capsys.readouterr().out


# --- models --------------------------------------------------------------------------------------


def test_models_and_their_sources() -> None:
    X, y = points(40), points(40)[:, 0]
    with pytest.raises(ValueError, match="the source has no target: pass y, or name its target"):
        ks.KernelRidge(ks.FourierFeatures(4)).fit(BlockSource([X]))
    with pytest.raises(ValueError, match="refine=True needs all rows at once: use fit"):
        ks.KernelRidge(ks.FourierFeatures(4), refine=True).partial_fit(X, y)
    model = ks.KernelRidge(ks.FourierFeatures(4, random_state=0)).partial_fit(X, y)
    with pytest.raises(ValueError, match="y has 2 outputs, but earlier rows had 1"):
        model.partial_fit(X, np.stack([y, y], axis=1))
    with pytest.raises(ValueError, match="sample_weight must be finite and >= 0"):
        ks.KernelRidge(ks.FourierFeatures(4)).fit(BlockSource([X]), y, -np.ones(40))
    both = ks.KernelRidge(ks.FourierFeatures(4, random_state=0)).fit(X, np.stack([y, -y], axis=1))
    with pytest.raises(ValueError, match="risk_bound works with a single output"):
        both.risk_bound(X)
    with pytest.raises(ValueError, match="KernelCCA requires y to be passed"):
        ks.KernelCCA(1, ks.FourierFeatures(4)).fit(X, None)
    with pytest.raises(ValueError, match=r"labels of several types \(int, str\): use one type"):
        ks.KernelRidgeClassifier(ks.FourierFeatures(4)).fit(
            BlockSource([X]), np.array([1, "a"] * 20, dtype=object)
        )


def test_predictions_that_float32_cannot_hold() -> None:
    X = points(40)
    model = ks.KernelRidge(ks.FourierFeatures(4, random_state=0)).fit(X, 1e60 * X[:, 0])
    assert np.isfinite(model.predict(X)).all()
    with pytest.raises(ValueError, match=r"the predictions overflow float32"):
        model.predict(X.astype(np.float32))


# --- kernels -------------------------------------------------------------------------------------

WARP = kernels.Warp
BAD_KERNELS: dict[str, tuple[Any, type[Exception], str]] = {
    "a scale of 0": (lambda: WARP("identity", 0.0, 0.0), ValueError, r"scale=0\.0 > 0: a column"),
    "a centre at infinity": (
        lambda: WARP("identity", float("inf"), 1.0),
        ValueError,
        "center=inf must be finite",
    ),
    "a knot at infinity": (
        lambda: WARP("knots", 0.0, 1.0, (0.0, float("inf")), (0.0, 1.0)),
        ValueError,
        "knots and values must be finite",
    ),
    "a falling slope": (
        lambda: WARP("knots", 0.0, 1.0, (0.0, 1.0), (0.0, 1.0), -1.0),
        ValueError,
        r"slope=-1\.0 >= 0",
    ),
    "a bump of no pieces": (
        lambda: kernels.SmoothLaplacian(1.0, pieces=0),
        ValueError,
        "pieces=0 must be 1, 2 or 3",
    ),
    "a value without a weight": (
        lambda: Reference((1.0, 2.0), (0.5,)),
        ValueError,
        r"2 values with 1 weights that sum to 0\.5: each value needs a weight",
    ),
    "a name for a warp": (
        lambda: kernels.Product([1.0, 2.0], warps=["log", "log"]),
        TypeError,
        r"warps=\('log', 'log'\) must hold a Warp for each column",
    ),
    "rows for marginals": (
        lambda: kernels.Anova(kernels.Product(1.0), ((0,),), (1.0,), points()),
        TypeError,
        "must be Marginals: see Anova.of",
    ),
    "too deep a network": (
        lambda: kernels.NeuralTangent(MOST_LAYERS + 1),
        ValueError,
        f"depth={MOST_LAYERS + 1} must be at most {MOST_LAYERS}",
    ),
    "no families": (
        lambda: kernels.learn(points(), points()[:, 0], families=[]),
        ValueError,
        r"families=\(\) is empty: name at least one",
    ),
}


@pytest.mark.parametrize("case", BAD_KERNELS)
def test_kernels_that_cannot_be(case: str) -> None:
    make, kind, words = BAD_KERNELS[case]
    with pytest.raises(kind, match=words):
        make()


def test_kernels_of_the_angle_that_overflow() -> None:
    X = np.full((2, 3), 1e200)
    X[0] = 1.0
    with pytest.raises(ValueError, match="overflows float64 on this data: scale X"):
        kernels.ArcCosine(1)(X)
    with pytest.raises(ValueError, match=r"row 1 has \|x\|\^2 = .* overflows float64: scale X"):
        kernels.ArcCosine(1).diag(X)


def test_a_bump_of_one_piece_is_flat() -> None:
    u = np.linspace(-0.5, 0.5, 7)
    np.testing.assert_array_equal(bump(u, 1), np.ones(7))
    middle = (np.arange(1000) + 0.5) / 1000 - 0.5
    for pieces in (1, 2, 3):  # the integral of the square is 1
        assert np.square(bump(middle, pieces)).mean() == pytest.approx(1.0, abs=1e-4)


# --- maps and models -----------------------------------------------------------------------------


def test_maps_of_what_they_do_not_take() -> None:
    X = points()
    X[3, 1] = np.nan
    references = [Reference.of(X[:, i], 5) for i in range(3)]
    laplacian = kernels.Product(0.5, "laplacian", references=references)
    with pytest.raises(ValueError, match="BinningFeatures take no missing values; impute them"):
        ks.BinningFeatures(5, kernel=laplacian, random_state=0).fit(X).transform(X)
    with pytest.raises(ValueError, match="samples products of columns: use basis='monomial'"):
        ks.AdaptiveFeatures(5, sampler="paper", basis="mercer").fit(points())
    with pytest.raises(ValueError, match=r"multiplies rows by .* which float32 cannot hold"):
        ks.RowNormFeatures(5, gamma=1e-90).fit(points().astype(np.float32))


def test_neighbours_need_rows_in_memory() -> None:
    X = points(60)
    model = ks.KernelRidge(ks.RowNormFeatures(5, random_state=0), refine="local")
    with pytest.raises(ValueError, match="refine='local' needs all rows in memory: pass an array"):
        model.fit(BlockSource([(X[:30], X[:30, 0]), (X[30:], X[30:, 0])]))


def test_drift_needs_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marginals, "MOST_ENTRIES", 2 * marginals.FEWEST_VALUES)
    X = points()
    model = ks.KernelRidge(ks.RowNormFeatures(5, random_state=0)).fit(X, X[:, 0])
    assert model.marginals_ is None
    with pytest.raises(ValueError, match="the model knows no ranges of its 3 columns"):
        ks.drift(model, X)


def test_drift_of_a_column_that_was_always_missing() -> None:
    X = points()
    X[:, 1] = np.nan
    references = [Reference.of(X[:, i], 20) for i in range(3)]
    features = ks.NystromFeatures(5, kernel=kernels.Product(0.5, references=references))
    model = ks.KernelRidge(features).fit(X, X[:, 0])
    far = np.where(np.arange(3) == 1, 5.0, X)
    far[:, 2] = 99.0
    found = ks.drift(model, far)
    assert found.columns.tolist() == [0.0, 0.0, 1.0]  # no range, so nothing is outside of it
    assert found.missing[1] == -1.0


def test_a_prediction_that_overflows() -> None:
    X = points()
    features = ks.NystromFeatures(3, kernel="linear", random_state=0)
    predict = ks.KernelRidge(features).fit(X, 1e30 * X[:, 0]).predictor()
    assert predict([1e200, 1e200, 1e200]) > 1e229
    with (
        np.errstate(over="ignore", invalid="ignore"),
        pytest.raises(ValueError, match="the prediction overflows float64: scale the row"),
    ):
        predict([1e300, 1e300, 1e300])


def test_folds_need_rows() -> None:
    X = points(4)
    with pytest.raises(ValueError, match=r"n_samples = 4: .* judged by 5 folds.*pass cv="):
        ks.KernelRidgeCV(ks.AdaptiveFeatures(3, random_state=0), alphas=[1.0]).fit(X, X[:, 0])


def test_covariances_that_are_not_positive() -> None:
    with pytest.raises(LinAlgError, match="not positive definite at any jitter: X holds huge"):
        inverse_of(np.array([[1.0, 5.0], [5.0, 1.0]]))


# --- other systems, and data at the edge ---------------------------------------------------------


def test_systems_that_do_not_say_which_cores_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert _available_cores.__wrapped__() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert _available_cores.__wrapped__() == 1


def test_the_package_runs_as_a_module(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kernelsieve", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("kernelsieve", run_name="__main__")
    assert ended.value.code == 0
    assert ks.__version__ in capsys.readouterr().out
    runpy.run_module("kernelsieve.__main__", run_name="imported")  # runs nothing
    assert capsys.readouterr().out == ""


def test_rows_without_nonzeros_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "rows.svm").write_text("1\n2\n0\n")
    source = SvmlightSource(tmp_path / "rows.svm", n_features=3)
    assert source.shape == (3, 3)
    assert source[np.arange(3)].nnz == 0


def test_marginals_of_few_values() -> None:
    X = np.arange(100.0)[:, None]
    values, weights = marginals.Marginals.of_rows(X, most=4).column(0)
    assert values.tolist() == [12.0, 37.0, 62.0, 87.0]
    np.testing.assert_allclose(weights, 0.25)


def test_iterations_of_clusters_may_end_early() -> None:
    X = points(200)
    features = ks.RowNormFeatures(5, random_state=0)
    short, long = (
        ks.KernelKMeans(5, features, max_iter=m, batch_rows=20, random_state=0).fit(X)
        for m in (1, 50)
    )
    assert short.n_iter_ == 1 < long.n_iter_
    assert long.inertia_ < short.inertia_


def test_functions_of_sparse_columns_do_not_depend_on_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X = sp.random_array((90, 6), density=0.3, random_state=0, format="csr")
    features = ks.RowNormFeatures(40, kernel=kernels.Product(0.7), random_state=0)
    expected = features.fit(X).transform(X).toarray()
    monkeypatch.setattr(sparse_basis, "BLOCK_ROWS", 20)
    np.testing.assert_allclose(features.fit(X).transform(X).toarray(), expected, atol=1e-9)


def test_files_of_sparse_datasets_are_what_their_reader_takes(tmp_path: Path) -> None:
    entry = describe("imdb")
    X, y = sp.random_array((9, 5), density=0.4, random_state=0, format="coo"), np.arange(9)
    write_files(entry, X, y, tmp_path)
    found, labels = (tmp_path / name for name in entry.files)
    np.testing.assert_array_equal(sp.load_npz(found).toarray(), X.toarray())
    np.testing.assert_array_equal(np.load(labels), y)
