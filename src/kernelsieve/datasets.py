"""Data to try things on: bundled, generated, and local copies of well-known public sets.

>>> from kernelsieve import datasets
>>> data = datasets.load("diabetes")
>>> data.X.shape, data.task
((442, 10), 'regression')
"""

from __future__ import annotations

import difflib
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = [
    "Dataset",
    "DatasetError",
    "Entry",
    "data_folder",
    "describe",
    "load",
    "make_friedman",
    "make_onehot",
    "make_product",
    "names",
    "require_files",
]

Task = Literal["regression", "classification"]

# What numpy and scipy raise for a file that is cut off, or is something else.
_DAMAGE = (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile, zlib.error)


class DatasetError(ValueError):
    """A dataset that does not exist, or a file whose content is not what its name says."""


@dataclass(frozen=True)
class Dataset:
    """Points, targets, and what is known about them.

    Attributes
    ----------
    name : str
    X : ndarray or CSR array of shape (n, d)
        float64, neither standardised nor shuffled.
    y : ndarray of shape (n,)
        float64; class labels are numbers too.
    feature_names : tuple of str, of length d
    target_name : str
    task : "regression" or "classification"
    description : str
        One line.
    licence : str
    n_train : int or None
        The first ``n_train`` rows are the official training set; None if there is no such split.
    """

    name: str
    X: Any
    y: NDArray[np.float64]
    feature_names: tuple[str, ...]
    target_name: str
    task: Task
    description: str
    licence: str
    n_train: int | None = None


@dataclass(frozen=True)
class Entry:
    """What the registry knows of a dataset before it is loaded."""

    name: str
    n_rows: int
    n_features: int
    description: str
    target_name: str
    licence: str
    read: Callable[[Path], tuple[Any, Any]]
    feature_names: tuple[str, ...]
    task: Task = "regression"
    n_train: int | None = None
    files: tuple[str, ...] = ()
    label_counts: Mapping[int, int] | None = None
    target_range: tuple[float, float] | None = None

    @property
    def built_in(self) -> bool:
        """Whether it needs no file."""
        return not self.files


# --- where files are, and reading them ------------------------------------------------------------


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder that data files are looked up in.

    ``folder`` if given, else the environment variable ``KERNELSIEVE_DATA``, else the user's cache
    folder for kernelsieve (``~/.cache/kernelsieve`` on Linux).
    """
    chosen = folder or os.environ.get("KERNELSIEVE_DATA")
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("kernelsieve", appauthor=False))


def _read_npz(file: str) -> Callable[[Path], tuple[Any, Any]]:
    """A reader of ``file``, an .npz that holds X and y."""

    def read(folder: Path) -> tuple[Any, Any]:
        with np.load(folder / file, allow_pickle=False) as archive:
            missing = {"X", "y"} - set(archive.files)
            if missing:
                raise DatasetError(f"it has no array {' and '.join(sorted(missing))}")
            return archive["X"], archive["y"]

    return read


def _read_uji(folder: Path) -> tuple[Any, Any]:
    signal, longitude = _read_npz("uji.npz")(folder)
    # 100 stands for "not seen"; -105 dBm, just below the weakest signal, puts it where it belongs.
    return np.where(signal == 100, -105, signal), longitude


def _read_imdb(folder: Path) -> tuple[Any, Any]:
    return sp.load_npz(folder / "imdb.npz"), np.load(folder / "imdb_y.npy", allow_pickle=False)


# --- generated data -------------------------------------------------------------------------------


def make_friedman(
    n_samples: int = 2000, *, noise: float = 1.0, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Friedman's first function of 10 uniform inputs, of which 5 matter.

    y = 10 sin(pi x_1 x_2) + 20 (x_3 - 1/2)^2 + 10 x_4 + 5 x_5 + noise.

    Examples
    --------
    >>> X, y = make_friedman(100)
    >>> X.shape, y.shape
    ((100, 10), (100,))
    """
    from sklearn.datasets import make_friedman1

    X, y = make_friedman1(n_samples, n_features=10, noise=noise, random_state=seed)
    return X, y


def make_product(
    n_samples: int = 2000, n_features: int = 15, *, noise: float = 0.3, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A regression on a few products of two or three of the inputs, which are standard normal.

    y = x_1 x_2 - x_3 x_4 + x_5 x_6 x_7 + x_1 x_8 + x_2 x_9 x_10 / 2 + noise: no input matters
    by itself, so a linear model learns nothing.

    Examples
    --------
    >>> X, y = make_product(100)
    >>> X.shape, y.shape
    ((100, 15), (100,))
    """
    if n_features < 10:
        raise ValueError(f"n_features={n_features} must be >= 10: the target uses ten inputs")
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_features))
    x = X.T
    y = x[0] * x[1] - x[2] * x[3] + x[4] * x[5] * x[6] + x[0] * x[7] + 0.5 * x[1] * x[8] * x[9]
    return X, y + noise * rng.standard_normal(n_samples)


def make_onehot(
    n_samples: int = 3000,
    n_columns: int = 8,
    n_levels: int = 12,
    *,
    noise: float = 0.3,
    seed: int = 0,
) -> tuple[sp.csr_array, NDArray[np.float64]]:
    """One-hot coded categories whose effect is in pairs of columns; X is a CSR array of 0 and 1.

    Each of the ``n_columns`` categorical columns has ``n_levels`` levels, of uneven frequency. The
    target adds a random effect of every pair of levels of columns (1, 2) and (3, 4) to a small
    effect of each level.

    Examples
    --------
    >>> X, y = make_onehot(100)
    >>> X.shape, int(X.sum(axis=1).max())
    ((100, 96), 8)
    """
    if n_columns < 4:
        raise ValueError(f"n_columns={n_columns} must be >= 4: the target uses two pairs of them")
    rng = np.random.default_rng(seed)
    frequency = 1.0 / np.arange(1, n_levels + 1)
    frequency /= frequency.sum()
    level = rng.choice(n_levels, size=(n_samples, n_columns), p=frequency)
    main = 0.3 * rng.standard_normal((n_columns, n_levels))
    first, second = rng.standard_normal((2, n_levels, n_levels))
    y = main[np.arange(n_columns), level].sum(axis=1)
    y += first[level[:, 0], level[:, 1]] + second[level[:, 2], level[:, 3]]
    # 32-bit indices: some of scikit-learn takes no others.
    columns = (level + n_levels * np.arange(n_columns)).astype(np.int32)
    starts = np.arange(0, columns.size + 1, n_columns, dtype=np.int32)
    X = sp.csr_array(
        (np.ones(columns.size), columns.ravel(), starts), shape=(n_samples, n_columns * n_levels)
    )
    return X, y + noise * rng.standard_normal(n_samples)


def _bundled(loader: str) -> Callable[[Path], tuple[Any, Any]]:
    """A reader of one of the datasets that come with scikit-learn."""

    def read(_: Path) -> tuple[Any, Any]:
        from sklearn import datasets

        X, y = getattr(datasets, loader)(return_X_y=True)
        return X, y

    return read


# --- the registry ---------------------------------------------------------------------------------

_UCI = "CC BY 4.0 (UCI)"
_BUNDLED = "bundled with scikit-learn"
_GENERATED = "generated, no rights"

_WINE = (
    "fixed_acidity volatile_acidity citric_acid residual_sugar chlorides free_sulfur_dioxide "
    "total_sulfur_dioxide density pH sulphates alcohol"
)
_INSURANCE = (
    "MOSTYPE MAANTHUI MGEMOMV MGEMLEEF MOSHOOFD MGODRK MGODPR MGODOV MGODGE MRELGE MRELSA MRELOV "
    "MFALLEEN MFGEKIND MFWEKIND MOPLHOOG MOPLMIDD MOPLLAAG MBERHOOG MBERZELF MBERBOER MBERMIDD "
    "MBERARBG MBERARBO MSKA MSKB1 MSKB2 MSKC MSKD MHHUUR MHKOOP MAUT1 MAUT2 MAUT0 MZFONDS MZPART "
    "MINKM30 MINK3045 MINK4575 MINK7512 MINK123M MINKGEM MKOOPKLA PWAPART PWABEDR PWALAND PPERSAUT "
    "PBESAUT PMOTSCO PVRAAUT PAANHANG PTRACTOR PWERKT PBROM PLEVEN PPERSONG PGEZONG PWAOREG PBRAND "
    "PZEILPL PPLEZIER PFIETS PINBOED PBYSTAND AWAPART AWABEDR AWALAND APERSAUT ABESAUT AMOTSCO "
    "AVRAAUT AAANHANG ATRACTOR AWERKT ABROM ALEVEN APERSONG AGEZONG AWAOREG ABRAND AZEILPL "
    "APLEZIER AFIETS AINBOED ABYSTAND"
)
_FOREST = (
    "elevation aspect slope horizontal_distance_to_hydrology vertical_distance_to_hydrology "
    "horizontal_distance_to_roadways hillshade_9am hillshade_noon hillshade_3pm "
    "horizontal_distance_to_fire_points"
)
_DIABETES = "age sex bmi bp s1 s2 s3 s4 s5 s6"
_CANCER = (
    "radius texture perimeter area smoothness compactness concavity concave_points symmetry "
    "fractal_dimension"
)


def _numbered(prefix: str, count: int, start: int = 1, width: int = 1) -> tuple[str, ...]:
    return tuple(f"{prefix}{i:0{width}d}" for i in range(start, start + count))


_ENTRIES = (
    Entry(
        name="diabetes", n_rows=442, n_features=10, target_name="progression", licence=_BUNDLED,
        description="disease progression after one year, from ten measurements",
        read=_bundled("load_diabetes"), feature_names=tuple(_DIABETES.split()),
    ),
    Entry(
        name="digits", n_rows=1797, n_features=64, target_name="digit", licence=_BUNDLED,
        description="8 x 8 images of handwritten digits", task="classification",
        read=_bundled("load_digits"),
        feature_names=tuple(f"pixel_{i}_{j}" for i in range(8) for j in range(8)),
    ),
    Entry(
        name="breast_cancer", n_rows=569, n_features=30, target_name="benign", licence=_BUNDLED,
        description="benign or malignant, from shapes of cell nuclei", task="classification",
        read=_bundled("load_breast_cancer"), label_counts={0: 212, 1: 357},
        feature_names=tuple(f"{s}_{f}" for s in ("mean", "se", "worst") for f in _CANCER.split()),
    ),
    Entry(
        name="friedman", n_rows=2000, n_features=10, target_name="y", licence=_GENERATED,
        description="Friedman's first function: sine of a product, square, lines",
        read=lambda _: make_friedman(), feature_names=_numbered("x", 10),
    ),
    Entry(
        name="product", n_rows=2000, n_features=15, target_name="y", licence=_GENERATED,
        description="a few products of two or three inputs; linear models learn nothing",
        read=lambda _: make_product(), feature_names=_numbered("x", 15),
    ),
    Entry(
        name="onehot", n_rows=3000, n_features=96, target_name="y", licence=_GENERATED,
        description="sparse one-hot categories whose effect is in pairs",
        read=lambda _: make_onehot(),
        feature_names=tuple(f"c{c}={v}" for c in range(1, 9) for v in range(1, 13)),
    ),
    Entry(
        name="wine", n_rows=6497, n_features=11, target_name="quality", licence=_UCI,
        description="quality of wines, red rows then white, from eleven measurements",
        read=_read_npz("wine.npz"), files=("wine.npz",), feature_names=tuple(_WINE.split()),
        label_counts={3: 30, 4: 216, 5: 2138, 6: 2836, 7: 1079, 8: 193, 9: 5},
    ),
    Entry(
        name="insurance", n_rows=9822, n_features=85, target_name="caravan", n_train=5822,
        licence=f"{_UCI}; contest notice: non-commercial research and education",
        description="who holds a caravan policy (0/1), from customer data",
        read=_read_npz("insurance.npz"), files=("insurance.npz",),
        feature_names=tuple(_INSURANCE.split()), label_counts={0: 9236, 1: 586},
    ),
    Entry(
        name="forest", n_rows=581_012, n_features=54, target_name="cover_type", licence=_UCI,
        description="forest cover type 1..7 as a number, from maps; first 15,120 rows balanced",
        read=_read_npz("forest.npz"), files=("forest.npz",), n_train=11_340,
        feature_names=(
            *_FOREST.split(), *_numbered("wilderness_area_", 4), *_numbered("soil_type_", 40),
        ),
        label_counts={1: 211840, 2: 283301, 3: 35754, 4: 2747, 5: 9493, 6: 17367, 7: 20510},
    ),
    Entry(
        name="uji", n_rows=21_048, n_features=520, target_name="longitude", licence=_UCI,
        description="position in metres from Wi-Fi signals in dBm; -105 is not seen",
        read=_read_uji, files=("uji.npz",), n_train=19_937,
        feature_names=_numbered("WAP", 520, width=3), target_range=(-7695.94, -7299.78),
    ),
    Entry(
        name="imdb", n_rows=50_000, n_features=74_849, target_name="rating",
        licence="research use (Stanford)", description="film ratings from sparse word counts",
        read=_read_imdb, files=("imdb.npz", "imdb_y.npy"), n_train=25_000,
        feature_names=_numbered("word_", 74_849, start=0, width=5),
        label_counts={
            1: 10122, 2: 4586, 3: 4961, 4: 5331, 7: 4803, 8: 5859, 9: 4607, 10: 9731,
        },
    ),
)  # fmt: skip
_REGISTRY = {entry.name: entry for entry in _ENTRIES}


def names() -> list[str]:
    """The names that :func:`load` knows; those that need no file come first.

    Examples
    --------
    >>> names()[:3]
    ['diabetes', 'digits', 'breast_cancer']
    """
    return list(_REGISTRY)


def describe(name: str) -> Entry:
    """What is known of a dataset without loading it.

    Examples
    --------
    >>> describe("forest").n_rows
    581012
    """
    try:
        return _REGISTRY[name]
    except KeyError:
        near = difflib.get_close_matches(name, names(), n=1)
        guess = f"did you mean {near[0]!r}? " if near else ""
        raise DatasetError(
            f"unknown dataset {name!r}: {guess}known are {', '.join(names())}"
        ) from None


def load(name: str, *, folder: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a dataset by name and check that it is what its name says.

    Parameters
    ----------
    name : str
        One of :func:`names`.
    folder : path, optional
        Where the files of wine, insurance, forest, uji and imdb are; see :func:`data_folder` for
        the default. Bundled and generated data need no file.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> data = load("product")
    >>> data.X.shape, data.feature_names[:2], data.n_train
    ((2000, 15), ('x1', 'x2'), None)
    """
    entry = describe(name)
    where = data_folder(folder)
    require_files(name, folder=where)
    try:
        X, y = entry.read(where)
        X, y = _checked(entry, X, y)
    except _DAMAGE as error:
        _refuse(entry, where, error)
    return Dataset(
        name=entry.name,
        X=X,
        y=y,
        feature_names=entry.feature_names,
        target_name=entry.target_name,
        task=entry.task,
        description=entry.description,
        licence=entry.licence,
        n_train=entry.n_train,
    )


def require_files(name: str, *, folder: str | os.PathLike[str] | None = None) -> None:
    """Raise FileNotFoundError, with what to do about it, if a file of the dataset is not there."""
    where = data_folder(folder)
    for file in describe(name).files:
        if not (where / file).is_file():
            raise FileNotFoundError(
                f"dataset {name!r} needs the file {file}, looked for in {where}: "
                f"put it there, or set KERNELSIEVE_DATA to the folder that has it"
            )


def _refuse(entry: Entry, where: Path, error: Exception) -> NoReturn:
    source = ", ".join(str(where / file) for file in entry.files) or "the generator"
    raise DatasetError(f"{source} is not the dataset {entry.name!r}: {error}") from error


def _checked(entry: Entry, X: Any, y: Any) -> tuple[Any, NDArray[np.float64]]:
    """X and y in float64, or a DatasetError that says what is wrong with them."""
    expected = (entry.n_rows, entry.n_features)
    if X.shape != expected:
        raise DatasetError(f"X has shape {X.shape}, expected {expected}")
    if y.shape != expected[:1]:
        raise DatasetError(f"y has shape {y.shape}, expected {expected[:1]}")
    X = sp.csr_array(X, dtype=np.float64) if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    y = np.asarray(y, dtype=np.float64)
    for name, values in (("X", X.data if sp.issparse(X) else X), ("y", y)):
        bad = values.size - np.count_nonzero(np.isfinite(values))
        if bad:
            raise DatasetError(f"{name} has {bad} values that are not finite")
    _check_target(entry, y)
    return X, y


def _check_target(entry: Entry, y: NDArray[np.float64]) -> None:
    if entry.label_counts is not None:
        labels, counts = np.unique(y, return_counts=True)
        found = dict(zip(labels.tolist(), counts.tolist(), strict=True))
        if found != entry.label_counts:
            raise DatasetError(
                f"y has the label counts {_short(found)}, expected {_short(entry.label_counts)}"
            )
    if entry.target_range is not None:
        low, high = entry.target_range
        if y.min() < low or y.max() > high:
            raise DatasetError(f"y is in {y.min():g} .. {y.max():g}, expected {low:g} .. {high:g}")


def _short(counts: Mapping[Any, int], most: int = 8) -> str:
    """Counts in one line, cut after ``most`` labels."""
    shown = ", ".join(f"{label:g}: {count}" for label, count in list(counts.items())[:most])
    return "{" + shown + (", ..." if len(counts) > most else "") + "}"
