"""Downloads from a server on this machine: complete and checked, or not there at all."""

from __future__ import annotations

import dataclasses
import gzip
import io
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelsieve import datasets
from kernelsieve.datasets import download, folders, loading, origins, readers, registry
from kernelsieve.datasets.entry import Entry
from kernelsieve.datasets.verify import checksum

X = np.arange(60.0).reshape(20, 3)
Y = np.arange(20.0)


def archive(rows: np.ndarray, name: str = "tiny.csv") -> bytes:
    """A zip file with a table in it, as the UCI repository serves them."""
    text = "\n".join(["a,b,c,y", *(",".join(map(str, row)) for row in rows)])
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zipped:
        zipped.writestr(f"folder/{name}", text)
    return file.getvalue()


GOOD = archive(np.column_stack([X, Y]))


class Server:
    """Serves ``content``; ``claimed`` bytes are announced, so that fewer look like a cut line."""

    def __init__(self) -> None:
        self.content, self.status, self.claimed, self.requests = GOOD, 200, 0, 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests += 1
                self.send_response(outer.status)
                self.send_header("Content-Length", str(outer.claimed or len(outer.content)))
                self.end_headers()
                self.wfile.write(outer.content)

            def log_message(self, *arguments: Any) -> None:
                pass

        self.http = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/tiny.zip"
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and no proxy between us and the server."""
    place = tmp_path / "cache"
    for module in (folders, loading):
        monkeypatch.setattr(module, "cache_folder", lambda: place)
    monkeypatch.delenv("KERNELSIEVE_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return place


@pytest.fixture
def tiny(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """A dataset that the server has."""

    def parse(open_: Any) -> Any:
        rows = origins.table(open_("tiny.csv"))
        return rows[:, :-1], rows[:, -1]

    entry = Entry(
        name="tiny", n_rows=20, n_features=3, description="a table", target_name="y",
        licence="none", read=readers.npz("tiny.npz"), feature_names=("a", "b", "c"),
        files=("tiny.npz",), checksum=checksum(X, Y), origin=origins.Archive(server.url, parse),
    )  # fmt: skip
    monkeypatch.setitem(registry._REGISTRY, "tiny", entry)
    return entry


def left(cache: Path) -> list[str]:
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*"))


def test_download_is_checked_and_kept(server: Server, tiny: Entry, cache: Path) -> None:
    for _ in range(2):
        data = datasets.load("tiny")
        np.testing.assert_array_equal(data.X, X)
        np.testing.assert_array_equal(data.y, Y)
    assert server.requests == 1  # the second time it is there
    assert left(cache) == ["tiny.npz"]


def test_no_download_where_it_is_not_wanted(server: Server, tiny: Entry, cache: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"tiny\.npz"):
        datasets.load("tiny", download=False)
    assert server.requests == 0


CHANGED = archive(np.column_stack([X, Y]) + np.eye(20, 4))
BAD = {
    "not found": ({"status": 404}, "404"),
    "cut off": ({"content": GOOD[:-40], "claimed": len(GOOD)}, "IncompleteRead|broken|zip file"),
    "no archive": ({"content": b"<html>moved</html>"}, "not a zip file"),
    "other file": ({"content": archive(X, "other.csv")}, "has no file tiny.csv, only folder/other"),
    "text in it": ({"content": archive(np.full((20, 4), "?"))}, "could not convert"),
    "missing column": ({"content": archive(X)}, r"X has shape \(20, 2\), expected \(20, 3\)"),
    "missing rows": ({"content": archive(np.column_stack([X, Y])[:9])}, r"shape \(9, 3\)"),
    "nan": ({"content": archive(np.column_stack([X * np.nan, Y]))}, "60 values that are not"),
    "checksum": ({"content": CHANGED}, "the checksum of its values is"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "reason"), BAD.values(), ids=BAD)
def test_bad_downloads_leave_nothing_behind(
    server: Server, tiny: Entry, cache: Path, changes: dict[str, Any], reason: str
) -> None:
    for name, value in changes.items():
        setattr(server, name, value)
    with pytest.raises(datasets.DatasetError, match=reason) as caught:
        datasets.load("tiny")
    assert server.url in str(caught.value)
    assert "KERNELSIEVE_DATA" in str(caught.value)
    assert left(cache) == []


def test_wrong_checksum_of_the_archive_is_refused(
    server: Server, tiny: Entry, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(tiny.origin, origins.Archive)
    picky = dataclasses.replace(tiny.origin, sha256="0" * 64)
    monkeypatch.setitem(registry._REGISTRY, "tiny", dataclasses.replace(tiny, origin=picky))
    with pytest.raises(datasets.DatasetError, match=r"(?i)sha256|hash"):
        datasets.load("tiny")
    assert left(cache) == []


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupted_download_leaves_nothing_behind(
    server: Server,
    tiny: Entry,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    interrupt: type[BaseException],
) -> None:
    seen: list[list[str]] = []

    def broken_off(self: Any, n_bytes: int) -> None:
        seen.append(left(cache))
        raise interrupt

    with monkeypatch.context() as patched:
        patched.setattr(download._Bar, "update", broken_off)
        with pytest.raises(interrupt):
            datasets.load("tiny")
    assert seen[0]  # there was something under way
    assert left(cache) == []
    assert datasets.load("tiny").X.shape == (20, 3)


def test_no_server_says_what_to_do(server: Server, tiny: Entry, cache: Path) -> None:
    server.close()
    with pytest.raises(
        datasets.DatasetError, match=r"could not be downloaded .* set KERNELSIEVE_DATA"
    ):
        datasets.load("tiny")


def test_what_a_killed_process_left_is_swept_after_a_day(
    tiny: Entry, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    for name, age in ((".partial-tiny-old", 2 * 24 * 3600), (".partial-tiny-new", 60)):
        (cache / name).mkdir(parents=True)
        past = (cache / name).stat().st_mtime - age
        os.utime(cache / name, (past, past))
    datasets.load("tiny")
    assert left(cache) == [".partial-tiny-new", "tiny.npz"]


# --- the archives of the registry, in the form that the repository serves them -------------------


def zipped(**members: bytes) -> Any:
    """An opener of members of an archive; '__' stands for a dot."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive_:
        for name, content in members.items():
            archive_.writestr(name.replace("__", "."), content)
    opened = zipfile.ZipFile(file)
    return lambda name: origins.open_member(opened, name)


def test_wine_is_red_then_white() -> None:
    head = ";".join(f'"c{i}"' for i in range(12))
    colours = {
        f"winequality-{colour}__csv": f"{head}\n{row}\n".encode()
        for colour, row in (("white", ";".join(["2"] * 12)), ("red", ";".join(["1"] * 12)))
    }
    X, y = origins.WINE.parse(zipped(**colours))
    np.testing.assert_array_equal(X, [[1.0] * 11, [2.0] * 11])
    np.testing.assert_array_equal(y, [1, 2])


def test_insurance_joins_the_evaluation_set_with_its_targets() -> None:
    train, inputs = "\t".join(map(str, range(86))), "\t".join(map(str, range(85)))
    X, y = origins.INSURANCE.parse(
        zipped(
            ticdata2000__txt=f"{train}\n".encode(),
            ticeval2000__txt=f"{inputs}\n".encode(),
            tictgts2000__txt=b"1\n",
        )
    )
    np.testing.assert_array_equal(X, [np.arange(85)] * 2)
    np.testing.assert_array_equal(y, [85, 1])


def test_forest_is_gzipped_inside() -> None:
    row = ",".join(map(str, range(55))).encode()
    X, y = origins.FOREST.parse(zipped(covtype__data__gz=gzip.compress(row)))
    np.testing.assert_array_equal(X, [np.arange(54)])
    np.testing.assert_array_equal(y, [54])


def test_uji_is_a_zip_in_a_zip_with_text_columns_behind() -> None:
    head = ",".join(f"c{i}" for i in range(529))
    signal = ",".join(["100"] * 519 + ["-70"])
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive_:
        for name, longitude in (("trainingData.csv", "-7500.25"), ("validationData.csv", "-7400")):
            rest = ",".join(["x"] * 8)
            archive_.writestr(f"UJIndoorLoc/{name}", f"{head}\n{signal},{longitude},{rest}\n")
    X, y = origins.UJI.parse(zipped(UJIndoorLoc__zip=inner.getvalue()))
    assert X.shape == (2, 520)
    np.testing.assert_array_equal(X[0, -2:], [100, -70])
    np.testing.assert_array_equal(y, [-7500.25, -7400])


def test_ct_leaves_the_patient_out_and_year_has_its_target_first() -> None:
    head, row = ",".join(f"c{i}" for i in range(386)), ",".join(map(str, range(386)))
    X, y = origins.CT.parse(zipped(slice_localization_data__csv=f"{head}\n{row}\n".encode()))
    assert (X.shape, X[0, 0], y[0]) == ((1, 384), 1, 385)
    song = ",".join(["2001", *map(str, range(90))])
    X, y = origins.YEAR.parse(zipped(YearPredictionMSD__txt=f"{song}\n".encode()))
    assert (X.shape, X[0, 1], y[0]) == ((1, 90), 1, 2001)


def test_scikit_learns_own_downloads_are_stored_like_the_others(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its California data with one district changed: fetched, written, read, and found out."""
    import sklearn.datasets

    houses = np.full((20_640, 8), 1.0), np.full(20_640, 2.0)

    def fetch(*, data_home: Path, return_X_y: bool) -> Any:
        assert return_X_y
        (data_home / "cal_housing.pkz").touch()
        return houses

    monkeypatch.setattr(sklearn.datasets, "fetch_california_housing", fetch)
    with pytest.raises(datasets.DatasetError, match=r"y has the mean 2, expected 2\.06856"):
        datasets.load("california")
    assert left(cache) == []
    houses[1][:] = 2.068558
    assert datasets.load("california").X.shape == (20_640, 8)
    assert left(cache) == ["california.npz"]
