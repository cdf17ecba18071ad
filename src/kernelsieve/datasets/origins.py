"""Where datasets come from: archives of the UCI repository, and downloads by scikit-learn."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from kernelsieve.datasets.download import retrieve
from kernelsieve.datasets.entry import Arrays

Open = Callable[[str], BinaryIO]
UCI = "https://archive.ics.uci.edu/static/public"


@dataclass(frozen=True)
class Archive:
    """A zip file on the web; ``parse`` opens members by name and returns X and y."""

    url: str
    parse: Callable[[Open], Arrays]
    sha256: str | None = None

    @property
    def address(self) -> str:
        """The URL."""
        return self.url

    def fetch(self, scratch: Path, progress: bool) -> Arrays:
        """Download and parse."""
        path = retrieve(self.url, scratch, progress, self.sha256)
        with zipfile.ZipFile(path) as archive:
            return self.parse(lambda name: open_member(archive, name))


@dataclass(frozen=True)
class Sklearn:
    """A dataset that scikit-learn downloads and checks."""

    loader: str
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def address(self) -> str:
        """The function that downloads."""
        return f"sklearn.datasets.{self.loader}"

    def fetch(self, scratch: Path, progress: bool) -> Arrays:
        """Download; scikit-learn shows no progress."""
        from sklearn import datasets

        fetch = getattr(datasets, self.loader)
        X, y = fetch(data_home=scratch, return_X_y=True, **dict(self.options))
        return X, y


def open_member(archive: zipfile.ZipFile, name: str) -> BinaryIO:
    """Open a member by its file name, in any folder, also inside inner zip files and gzipped."""
    for member in archive.namelist():
        last = member.rsplit("/", 1)[-1].lower()
        if last == name.lower():
            return io.BytesIO(archive.read(member))
        if last == f"{name.lower()}.gz":
            return io.BytesIO(gzip.decompress(archive.read(member)))
    for member in archive.namelist():
        if member.lower().endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(archive.read(member))) as inner:
                try:
                    return open_member(inner, name)
                except KeyError:
                    continue
    raise KeyError(f"the archive has no file {name}, only {', '.join(archive.namelist()[:8])}")


def table(
    file: BinaryIO, delimiter: str | None = ",", header: bool = True, n_columns: int | None = None
) -> NDArray[np.float64]:
    """Read rows of numbers; ``n_columns`` keeps only the first columns."""
    used = range(n_columns) if n_columns is not None else None
    return np.loadtxt(file, delimiter=delimiter, skiprows=int(header), usecols=used, ndmin=2)


def _wine(open_: Open) -> Arrays:
    red, white = (table(open_(f"winequality-{colour}.csv"), ";") for colour in ("red", "white"))
    rows = np.vstack([red, white])
    return rows[:, :-1].astype(np.float32), rows[:, -1].astype(np.uint8)


def _insurance(open_: Open) -> Arrays:
    train = table(open_("ticdata2000.txt"), None, header=False)
    inputs = table(open_("ticeval2000.txt"), None, header=False)
    targets = table(open_("tictgts2000.txt"), None, header=False)
    rows = np.vstack([train, np.hstack([inputs, targets])]).astype(np.uint8)
    return rows[:, :-1], rows[:, -1]


def _ct(open_: Open) -> Arrays:
    rows = table(open_("slice_localization_data.csv"))
    return rows[:, 1:-1], rows[:, -1]  # the first column is the patient


def _forest(open_: Open) -> Arrays:
    rows = table(open_("covtype.data"), header=False).astype(np.int16)
    return rows[:, :-1], rows[:, -1].astype(np.uint8)


def _uji(open_: Open) -> Arrays:
    files = ("trainingData.csv", "validationData.csv")
    rows = np.vstack([table(open_(file), n_columns=521) for file in files])
    return rows[:, :520].astype(np.int8), rows[:, 520]


def _year(open_: Open) -> Arrays:
    rows = table(open_("YearPredictionMSD.txt"), header=False)
    return rows[:, 1:].astype(np.float32), rows[:, 0].astype(np.int16)


WINE = Archive(f"{UCI}/186/wine+quality.zip", _wine)
INSURANCE = Archive(f"{UCI}/125/insurance+company+benchmark+coil+2000.zip", _insurance)
CT = Archive(f"{UCI}/206/relative+location+of+ct+slices+on+axial+axis.zip", _ct)
FOREST = Archive(f"{UCI}/31/covertype.zip", _forest)
UJI = Archive(f"{UCI}/310/ujiindoorloc.zip", _uji)
YEAR = Archive(f"{UCI}/203/yearpredictionmsd.zip", _year)
CALIFORNIA = Sklearn("fetch_california_housing")
NEWS20 = Sklearn("fetch_20newsgroups_vectorized", (("subset", "all"), ("normalize", False)))
