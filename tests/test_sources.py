"""Sources of row blocks: what they give, and what they say when something is wrong."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.datasets import dump_svmlight_file

from kernelsieve import FourierFeatures, KernelRidge, RowNormFeatures
from kernelsieve.kernels.series import Radii
from kernelsieve.sources import arrow, npy, svmlight
from kernelsieve.sources.arrow import ArrowSource
from kernelsieve.sources.base import ArraySource, Source
from kernelsieve.sources.npy import NpySource
from kernelsieve.sources.stream import BlockSource
from kernelsieve.sources.summaries import Moments, TargetSummary, moments
from kernelsieve.sources.svmlight import SvmlightSource
from kernelsieve.sources.views import Selected, dealt_folds, dealt_rows, folds

Array = NDArray[Any]


def rows_of(source: Source, size: int = 10) -> Any:
    """All rows, put together."""
    blocks = list(source.blocks(size))
    return sp.vstack(blocks).toarray() if sp.issparse(blocks[0]) else np.concatenate(blocks)


def cut(X: Any, lengths: list[int]) -> list[Any]:
    bounds = np.cumsum([0, *lengths])
    return [X[a:b] for a, b in itertools.pairwise(bounds)]


# --- the rows are all there, in order ------------------------------------------------------------


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(1, 50), st.booleans())
def test_blocks_of_any_length(lengths: list[int], size: int, sparse: bool) -> None:
    n = sum(lengths)
    X = np.arange(3.0 * n).reshape(n, 3)
    pieces = cut(sp.csr_array(X) if sparse else X, lengths)
    source = BlockSource(list(zip(pieces, cut(np.arange(n), lengths), strict=True)))
    if n == 0:
        assert source.shape == (0, 3)
        return
    parts = list(source.parts(size))
    assert all(len(part) == size for part in parts[:-1])
    assert [part.start for part in parts] == list(range(0, n, size))
    np.testing.assert_array_equal(rows_of(source, size), X)
    np.testing.assert_array_equal(np.concatenate([part.y for part in parts]), np.arange(n))
    few = np.flatnonzero(np.random.default_rng(n).random(n) < 0.3)
    taken = source.take(few)
    np.testing.assert_array_equal(taken.y, few)
    np.testing.assert_array_equal(taken.X.toarray() if sparse else taken.X, X[few])


def test_expected_rows_come_along_with_a_pass() -> None:
    passes = []

    def blocks() -> Iterator[Array]:
        passes.append(1)
        yield from cut(np.arange(300.0).reshape(100, 3), [30, 30, 40])

    source = BlockSource(blocks)
    assert source.shape == (100, 3)
    before = len(passes)
    source.expect(np.array([3, 50]))
    source.expect(np.array([50, 99]))
    assert source.reduce(len, 7) == 100
    np.testing.assert_array_equal(source[np.array([3, 99])][:, 0], [9, 297])
    np.testing.assert_array_equal(source[np.array([50])][:, 0], [150])
    assert len(passes) == before + 1
    np.testing.assert_array_equal(source[np.array([50, 60])][:, 0], [150, 180])
    assert len(passes) == before + 2, "row 60 was not expected"


def test_the_number_of_passes_is_bounded() -> None:
    """Counting, moments, radii with all chosen rows, histograms, the normal equations."""
    passes = []
    X = np.random.default_rng(0).normal(size=(20_000, 3))

    def blocks() -> Iterator[tuple[Array, Array]]:
        passes.append(1)
        yield from zip(cut(X, [10_000] * 2), cut(X[:, 0], [10_000] * 2), strict=True)

    KernelRidge(RowNormFeatures(30, random_state=0)).fit(BlockSource(blocks))
    assert len(passes) <= 5


def test_npy_files_of_any_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npy, "READ_BYTES", 100)
    X = np.arange(60).reshape(20, 3)
    for dtype, expected in ((np.int16, np.float64), (np.float32, np.float32)):
        for order in "CF":
            np.save(tmp_path / "X.npy", np.asarray(X, dtype=dtype, order=order))
            source = NpySource(tmp_path / "X.npy", np.arange(20))
            assert source.dtype == expected
            np.testing.assert_array_equal(rows_of(source), X)
            taken = source.take(np.array([2, 19]))
            assert taken.X.dtype == expected
            np.testing.assert_array_equal(taken.X, X[[2, 19]])
            np.testing.assert_array_equal(taken.y, [2, 19])


def test_parquet_and_feather(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BATCH_ROWS", 20)
    frame = pd.DataFrame({"a": np.arange(50.0), "b": np.arange(50), "t": list("xy") * 25})
    frame.iloc[:30].to_parquet(tmp_path / "1.parquet", row_group_size=7)
    frame.iloc[30:].to_parquet(tmp_path / "2.parquet")
    pa.feather.write_feather(pa.Table.from_pandas(frame), tmp_path / "t.arrow")
    both = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    for source in (
        ArrowSource(both, target="t"),
        ArrowSource(tmp_path / "t.arrow", target="t", format="feather"),
    ):
        assert source.shape == (50, 2)
        assert source.names == ["a", "b"]
        np.testing.assert_array_equal(rows_of(source), frame[["a", "b"]])
        np.testing.assert_array_equal(source.take(np.array([3, 40])).y, ["y", "x"])
        assert source.n_blocks == (6 if source.where == "2 files" else 3)
    several = ArrowSource(both, target=["a", "b"], columns=["b"])
    assert several.target_shape == (2,)
    np.testing.assert_array_equal(several.take(np.array([3])).y, [[3.0, 3.0]])
    single = pa.table({"a": np.ones(3, dtype=np.float32)})
    pq.write_table(single, tmp_path / "single.parquet")
    assert ArrowSource(tmp_path / "single.parquet").dtype == np.float32
    with pytest.raises(ValueError, match="column 'c' is not in"):
        ArrowSource(both, target="c")


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"a": np.ones(3)}, "it has no column 'b'"),
        ({"a": np.ones(3), "b": ["x", "y", "z"]}, "column 'b' holds string"),
        ({"a": np.ones(3), "b": [1.0, None, 2.0]}, "NaN in its row 1, column 'b'"),
    ],
    ids=["a column is missing", "another type", "a missing value"],
)
def test_parquet_files_that_are_not_alike(other: Any, words: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": np.ones(5), "b": np.ones(5)}), tmp_path / "1.parquet")
    pq.write_table(pa.table(other), tmp_path / "2.parquet")
    source = ArrowSource(tmp_path)
    with pytest.raises(
        (ValueError, TypeError), match=rf"block 1 of 2 .*\(from row 5 on\): .*{words}"
    ):
        FourierFeatures(10).fit(source)


@pytest.mark.parametrize("zero_based", [True, False])
@pytest.mark.parametrize("dense", [True, False])
def test_svmlight_files(
    dense: bool, zero_based: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(svmlight, "TEXT_BYTES", 500)
    monkeypatch.setattr(svmlight, "PARSED_ENTRIES", 40)
    X = sp.random(200, 30, 0.1, format="csr", random_state=0).toarray()
    X[:, 0], X[7] = 1.0, 0.0
    y = np.arange(200.0)
    dump_svmlight_file(X, y, str(tmp_path / "t.svm"), zero_based=zero_based)
    folder = tmp_path / "here"
    folder.mkdir()
    source = SvmlightSource(tmp_path / "t.svm", dense=dense, folder=folder)
    assert source.sparse == (not dense)
    np.testing.assert_allclose(rows_of(source), X, rtol=1e-12)
    few = np.array([0, 7, 50, 199])
    taken = source.take(few)
    np.testing.assert_allclose(taken.X if dense else taken.X.toarray(), X[few], rtol=1e-12)
    np.testing.assert_array_equal(taken.y, y[few])
    wider = SvmlightSource(tmp_path / "t.svm", n_features=40, dtype=np.float32, folder=folder)
    assert wider.shape == (200, 40)
    assert wider.dtype == np.float32
    del source, wider, taken
    gc.collect()
    assert not list(folder.iterdir()), "what was parsed is gone with its source"


# --- errors name the block -----------------------------------------------------------------------


def test_a_nan_in_block_17_of_40() -> None:
    blocks = [np.ones((10, 3)) * i for i in range(40)]
    blocks[17][4, 2] = np.nan
    with pytest.raises(ValueError, match=r"block 17 of 40 .*from row 170 on\): NaN in its row 4"):
        FourierFeatures(10).fit(BlockSource(blocks))
    blocks[17][4, 2] = np.inf
    with pytest.raises(ValueError, match=r"block 17 of 40 .*infinity in its row 4, column 'c'"):
        FourierFeatures(10).fit(BlockSource(blocks, names=["a", "b", "c"]))
    with pytest.raises(ValueError, match=r"block 2 .*NaN in its row 0, column 1"):
        FourierFeatures(10).fit(
            BlockSource([*[sp.csr_array(np.eye(3))] * 2, sp.csr_array([[0.0, np.nan, 0.0]])])
        )


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (np.ones((5, 2)), "it has 2 columns, but other blocks have 3"),
        (
            np.ones((5, 3), dtype=np.float32),
            "its values are float32, but those of other blocks are float64",
        ),
        (np.array([["a", "b", "c"]]), "its entries are of type <U1: they must be numbers"),
        (np.ones(3), "it has 1 dimensions"),
        (sp.csr_array(np.ones((5, 3))), "it is sparse, but other blocks are dense"),
        (
            (np.ones((5, 3)), np.ones(5)),
            r"its target is \(n, \*\(\)\), but that of other blocks is none",
        ),
        ((np.ones((5, 3)), np.ones(4)), r"its target has shape \(4,\), but X has 5 rows"),
        (pd.DataFrame(np.ones((5, 3)), columns=list("xyz")), r"its columns are \['x', 'y', 'z'\]"),
    ],
)
def test_a_block_that_is_not_like_the_others(block: Any, words: str) -> None:
    blocks = [np.ones((10, 3)), np.ones((10, 3)), block]
    source = BlockSource(blocks, names=list("abc"))
    with pytest.raises((ValueError, TypeError), match=f"block 2 of 3 .*: {words}"):
        FourierFeatures(10).fit(source)


def test_a_source_that_changes_between_passes() -> None:
    lengths = iter([10, 9, 9, 9, 9])

    def blocks() -> Iterator[Array]:
        yield np.ones((next(lengths), 3))

    with pytest.raises(
        ValueError, match=r"has 9 rows in this pass, but 10 were expected: every pass"
    ):
        FourierFeatures(10).fit(BlockSource(blocks))


def test_what_can_be_gone_through_once_is_refused() -> None:
    with pytest.raises(TypeError, match="only once"):
        BlockSource(np.ones((3, 3)) for _ in range(4))
    with pytest.raises(ValueError, match="no blocks"):
        FourierFeatures(10).fit(BlockSource([]))


def test_a_nan_among_targets_names_its_rows() -> None:
    y = np.ones(100)
    y[64] = np.nan
    source = BlockSource(list(zip([np.eye(3)[[0, 1] * 5]] * 10, cut(y, [10] * 10), strict=True)))
    with pytest.raises(ValueError, match="y contains NaN"):
        KernelRidge(FourierFeatures(10)).fit(source)


def test_truncated_files(tmp_path: Path) -> None:
    """A file without its end is refused; one whose middle is damaged names the block."""
    table = pa.table({"a": np.random.default_rng(0).normal(size=4000)})
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, row_group_size=100, compression="zstd")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"t\.parquet cannot be read as parquet"):
        ArrowSource(path)
    path.write_bytes(whole)
    place = pq.ParquetFile(path).metadata.row_group(17).column(0).data_page_offset
    damaged = bytearray(whole)
    damaged[place : place + 200] = bytes(200)
    path.write_bytes(bytes(damaged))
    with pytest.raises(ValueError, match=r"block 17 of 40 of .*t\.parquet \(from row 1700 on\)"):
        FourierFeatures(10).fit(ArrowSource(path))
    np.save(tmp_path / "X.npy", np.ones((100, 3)))
    (tmp_path / "X.npy").write_bytes((tmp_path / "X.npy").read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"X\.npy cannot be memory-mapped"):
        NpySource(tmp_path / "X.npy")


def test_bad_text_names_its_block_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(svmlight, "TEXT_BYTES", 60)
    lines = ["1 1:0.5 2:3\n"] * 30
    lines[20] = "1 1:0.5 2:nan\n"
    (tmp_path / "t.svm").write_text("".join(lines))
    folder = tmp_path / "here"
    folder.mkdir()
    with pytest.raises(ValueError, match=r"block 4 of 7 of .*t\.svm \(from row 20 on\): NaN"):
        SvmlightSource(tmp_path / "t.svm", folder=folder)
    lines[20] = "1 1:0.5 2:x\n"
    (tmp_path / "t.svm").write_text("".join(lines))
    with pytest.raises(ValueError, match=r"block 4 of 6 .*could not convert"):
        SvmlightSource(tmp_path / "t.svm", folder=folder)
    assert not list(folder.iterdir())


def test_saving_leaves_all_or_nothing(tmp_path: Path) -> None:
    good, bad = [np.ones((10, 3))] * 3, [np.ones((10, 3)), np.full((10, 3), np.nan)]
    features = FourierFeatures(8, random_state=0).fit(BlockSource(good))
    path = tmp_path / "Z.npy"
    with pytest.raises(ValueError, match="block 1 of 2"):
        features.transform(BlockSource(bad)).save(path)
    assert not list(tmp_path.iterdir())
    features.transform(BlockSource(good)).save(path)
    Z = np.load(path)
    np.testing.assert_allclose(Z, features.transform(np.concatenate(good)))
    with pytest.raises(ValueError, match="block 1 of 2"):
        features.transform(BlockSource(bad)).save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["Z.npy"], "the old file stays"
    np.testing.assert_array_equal(np.load(path), Z)


# --- summaries add up ----------------------------------------------------------------------------

FLOATS = st.floats(-1e6, 1e6, allow_subnormal=False)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.floats(-1e4, 1e4), st.booleans())
def test_moments_of_blocks_are_those_of_all(lengths: list[int], shift: float, sparse: bool) -> None:
    rng = np.random.default_rng(len(lengths))
    X = rng.normal(size=(sum(lengths), 4)) + shift
    X[:, 3] = 0.1
    if sparse:
        X *= rng.random(X.shape) < 0.3
    pieces = cut(sp.csr_array(X) if sparse else X, lengths)
    total = Moments.of_rows(pieces[0])
    for piece in pieces[1:]:
        total += Moments.of_rows(piece)
    scale = 1e-12 * (1.0 + shift**2)
    np.testing.assert_allclose(total.variance, X.var(), rtol=1e-9, atol=scale)
    np.testing.assert_allclose(total.mean_squares(None), (X**2).mean(axis=0), rtol=1e-9)
    if not sparse:
        np.testing.assert_allclose(total.means, X.mean(axis=0), rtol=1e-12, atol=1e-9)
        center = X.mean(axis=0)
        np.testing.assert_allclose(total.mean_squares(center), X.var(axis=0), atol=scale)
        assert total.mean_squares(total.means)[3] == 0.0, "constant, however it is cut"


def test_moments_are_kept_with_their_source() -> None:
    source = ArraySource(np.random.default_rng(0).normal(size=(50, 3)), np.arange(50.0))
    assert moments(source) is moments(source)
    again = source.with_targets(np.ones(50))
    assert moments(again) is moments(source), "the rows are the same"


@given(st.lists(st.lists(st.floats(0.0, 1e6), min_size=1), min_size=1, max_size=8))
def test_radii_of_blocks_are_those_of_all(blocks: list[list[float]]) -> None:
    whole = Radii.of_rows(np.concatenate(blocks))
    start, total = 0, None
    for block in blocks:
        part = Radii.of_rows(np.array(block), start)
        start += len(block)
        if total is None:
            total = part
        else:
            total += part
    for first, second in zip(whole.counted(), total.counted(), strict=True):
        np.testing.assert_array_equal(first, second)
    assert (whole.largest, whole.row) == (total.largest, total.row)


@pytest.mark.parametrize(
    "y",
    [
        np.random.default_rng(0).normal(5.0, 2.0, size=60),
        np.random.default_rng(0).normal(5.0, 2.0, size=(60, 2)),
        np.random.default_rng(0).integers(5, size=60),
        np.random.default_rng(0).integers(500, size=60) * 1000 + np.arange(60),
        np.arange(100),
        np.array(list("abc") * 20),
        np.array(list("abc") * 20, dtype=object),
    ],
    ids=["one output", "two outputs", "labels", "few integers", "many integers", "str", "object"],
)
def test_targets_of_blocks_are_those_of_all(y: Array) -> None:
    whole = TargetSummary.of_rows(y)
    total = TargetSummary.of_rows(y[:7])
    total += TargetSummary.of_rows(y[7:41])
    total += TargetSummary.of_rows(y[41:])
    expected = whole.columns(y)
    np.testing.assert_allclose(total.columns(y[30:50]), expected[30:50], rtol=1e-10)
    np.testing.assert_allclose(expected.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(expected.std(axis=0), 1.0)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_folds_are_those_of_scikit_learn(count: int) -> None:
    from sklearn.model_selection import KFold

    X = np.arange(50.0).reshape(25, 2)
    source = BlockSource([(block, block[:, 0]) for block in cut(X, [4, 1, 9, 11])])
    for (others, fold), (train, test) in zip(
        folds(source, count), KFold(count).split(X), strict=True
    ):
        for part, numbers in ((others, train), (fold, test)):
            assert isinstance(part, Selected)
            assert part.shape == (len(numbers), 2)
            np.testing.assert_array_equal(rows_of(part, 3), X[numbers])
            found = part.map(lambda block: (block.start, block.X[0, 0], len(block)), 3, 1)
            for start, first, length in found:
                assert X[numbers[start], 0] == first
                assert start + length <= len(numbers)
            few = np.array([0, len(numbers) - 1])
            np.testing.assert_array_equal(part.take(few).y, X[numbers[few], 0])


@pytest.mark.parametrize("n", [5, 23, 1000])
def test_rows_are_dealt_once_and_evenly(n):
    hands = []
    for train, test in dealt_rows(n, 5):
        assert sorted([*train, *test]) == list(range(n))
        assert (np.diff(train) > 0).all()
        assert (np.diff(test) > 0).all()
        hands.append(test)
    assert sorted(np.concatenate(hands)) == list(range(n))
    assert max(map(len, hands)) - min(map(len, hands)) <= 1
    assert len({tuple(hand % 5) for hand in hands}) == 5
    assert n < 1000 or all(len(set(hand % 5)) == 5 for hand in hands)  # not every fifth row


def test_dealt_folds_are_the_rows_that_they_name():
    X = np.arange(46.0).reshape(23, 2)
    source = BlockSource([X[:4], X[4:5], X[5:19], X[19:]])
    for (train, test), numbers in zip(dealt_folds(source, 5), dealt_rows(23, 5), strict=True):
        for part, rows in zip((train, test), numbers, strict=True):
            assert part.shape == (len(rows), 2)
            blocks = list(part.parts(3))
            np.testing.assert_array_equal(np.vstack([block.X for block in blocks]), X[rows])
            assert [block.start for block in blocks] == list(range(0, len(rows), 3))
            np.testing.assert_array_equal(part.take(np.arange(2)).X, X[rows[:2]])
