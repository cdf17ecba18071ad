"""The registry: what is built in loads, and a wrong file is refused with a reason."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression

from kernelsieve import datasets
from kernelsieve.datasets import folders
from kernelsieve.datasets.verify import checksum

BUILT_IN = [name for name in datasets.names() if datasets.describe(name).built_in]
WITH_FILES = [name for name in datasets.names() if not datasets.describe(name).built_in]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, named by the environment; the cache folder is empty too."""
    monkeypatch.setenv("KERNELSIEVE_DATA", str(tmp_path))
    monkeypatch.setattr(folders, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path


def fake_wine(folder: Path, **arrays: np.ndarray) -> None:
    """A file with wine's name and shape, its arrays replaced by those given."""
    labels = datasets.describe("wine").label_counts
    assert labels is not None
    y = np.repeat(list(labels), list(labels.values())).astype(np.uint8)
    content = {"X": np.zeros((6497, 11), dtype=np.float32), "y": y, **arrays}
    np.savez(folder / "wine.npz", **{name: a for name, a in content.items() if a is not None})


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_data_needs_no_file(name: str, folder: Path) -> None:
    data = datasets.load(name)
    entry = datasets.describe(name)
    assert data.X.shape == (entry.n_rows, entry.n_features)
    assert data.X.dtype == data.y.dtype == np.float64
    assert data.y.shape == (entry.n_rows,)
    assert len(set(data.feature_names)) == entry.n_features
    assert data.name == name


@pytest.mark.parametrize("name", WITH_FILES)
def test_real_files(name: str) -> None:
    where = datasets.data_folder()
    if "KERNELSIEVE_DATA" not in os.environ or not all(
        (where / file).is_file() for file in datasets.describe(name).files
    ):
        pytest.skip(f"KERNELSIEVE_DATA has no {name}")
    data = datasets.load(name)
    assert len(set(data.feature_names)) == data.X.shape[1]
    assert data.n_train is None or 0 < data.n_train < len(data.y)
    # Loading has checked shape and labels; these are the traps of each file.
    if name == "uji":
        assert data.X.max() <= 0
    if name == "imdb":
        assert isinstance(data.X, sp.csr_array)
    if name == "forest":
        assert np.all(data.X[:, 10:14].sum(axis=1) == 1)
        assert data.feature_names[10] == "wilderness_area_1"


def test_dataset_is_frozen() -> None:
    data = datasets.load("diabetes")
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.name = "other"  # type: ignore[misc]


def test_unknown_name_suggests_one() -> None:
    with pytest.raises(datasets.DatasetError, match=r"unknown dataset 'wien': did you mean 'wine'"):
        datasets.load("wien")


@pytest.mark.parametrize("download", [True, False])
def test_missing_file_says_which_where_and_what_to_do(folder: Path, download: bool) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        datasets.load("imdb", download=download)
    message = str(caught.value)
    assert "imdb.npz" in message
    assert str(folder) in message
    assert "KERNELSIEVE_DATA" in message


def test_origin_of_a_missing_file_is_told(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"ct\.npz \(made from https://archive\.ics\.uci"):
        datasets.load("ct", download=False)


def test_folder_argument_comes_before_the_environment_and_the_cache_last(
    folder: Path, tmp_path: Path
) -> None:
    wine, other = datasets.describe("wine"), tmp_path / "other"
    assert datasets.find_files(wine) is None
    for place in (tmp_path / "cache", folder, other):
        place.mkdir(exist_ok=True)
        (place / "wine.npz").touch()
        given = other if place == other else None
        assert datasets.find_files(wine, given) == place


def test_default_folder_is_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELSIEVE_DATA", raising=False)
    assert datasets.data_folder() == datasets.cache_folder()
    assert datasets.data_folder().name == "kernelsieve"
    assert Path.home() in datasets.data_folder().parents


WINE_X = np.zeros((6497, 11))
WRONG = {
    "shape of X": ({"X": np.zeros((6497, 12))}, r"X has shape \(6497, 12\), expected \(6497, 11\)"),
    "shape of y": ({"y": np.zeros(3)}, r"y has shape \(3,\)"),
    "no y": ({"y": None}, "it has no array y"),
    "nan": ({"X": np.where(np.arange(11) == 3, np.nan, WINE_X)}, "X has 6497 values that are not"),
    "labels": ({"y": np.full(6497, 5)}, r"label counts \{5: 6497\}, expected \{3: 30, 4: 216"),
    "text": ({"X": np.full((6497, 11), "?")}, "could not convert string"),
    "checksum": ({}, "the checksum of its values is .*: some of them were changed"),
}


@pytest.mark.parametrize(("arrays", "reason"), WRONG.values(), ids=WRONG)
def test_wrong_content_is_refused(folder: Path, arrays: dict, reason: str) -> None:
    fake_wine(folder, **arrays)
    with pytest.raises(datasets.DatasetError, match=reason) as caught:
        datasets.load("wine")
    assert str(folder / "wine.npz") in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04cut off"])
def test_damaged_file_is_refused(folder: Path, content: bytes) -> None:
    (folder / "wine.npz").write_bytes(content)
    with pytest.raises(datasets.DatasetError, match="is not the dataset 'wine'"):
        datasets.load("wine")


def test_uji_target_range_is_checked(folder: Path) -> None:
    np.savez(folder / "uji.npz", X=np.zeros((21_048, 520), np.int8), y=np.zeros(21_048))
    with pytest.raises(datasets.DatasetError, match="expected -7695"):
        datasets.load("uji")


def test_checksum_sees_one_changed_value_but_not_the_storage() -> None:
    X, y = datasets.make_onehot(50)
    dense = X.toarray()
    assert checksum(dense.astype(np.float32), y) == checksum(np.asfortranarray(dense), y)
    assert checksum(X, y) == checksum(X.astype(np.int8), y)
    changed = dense.copy()
    changed[7, 3] += 1e-3
    assert checksum(changed, y) != checksum(dense, y)
    assert checksum(dense, y + 1e-3) != checksum(dense, y)


def test_product_hides_from_linear_models() -> None:
    X, y = datasets.make_product(4000, seed=1)
    assert LinearRegression().fit(X[:3000], y[:3000]).score(X[3000:], y[3000:]) < 0.05
    signal = np.var(y) - 0.3**2
    assert signal > 20 * 0.3**2  # and there is something to find


def test_onehot_is_about_pairs() -> None:
    X, y = datasets.make_onehot(3000, seed=1)
    assert np.all(X.data == 1)
    linear = LinearRegression().fit(X[:2000], y[:2000]).score(X[2000:], y[2000:])
    trees = RandomForestRegressor(30, random_state=0).fit(X[:2000], y[:2000])
    assert trees.score(X[2000:], y[2000:]) > linear + 0.1


@pytest.mark.parametrize(
    "make", [datasets.make_friedman, datasets.make_product, datasets.make_onehot]
)
def test_generators_follow_their_seed(make) -> None:
    first, again, other = make(50, seed=3), make(50, seed=3), make(50, seed=4)
    np.testing.assert_array_equal(first[1], again[1])
    assert not np.array_equal(first[1], other[1])
