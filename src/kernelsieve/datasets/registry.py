"""The registry of datasets."""

from __future__ import annotations

import difflib

from kernelsieve.datasets import origins, readers
from kernelsieve.datasets.entry import DatasetError, Entry
from kernelsieve.datasets.generators import make_friedman, make_onehot, make_product

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
_CALIFORNIA = "MedInc HouseAge AveRooms AveBedrms Population AveOccup Latitude Longitude"
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
        read=readers.bundled("load_diabetes"), feature_names=tuple(_DIABETES.split()),
    ),
    Entry(
        name="digits", n_rows=1797, n_features=64, target_name="digit", licence=_BUNDLED,
        description="8 x 8 images of handwritten digits", task="classification",
        read=readers.bundled("load_digits"),
        feature_names=tuple(f"pixel_{i}_{j}" for i in range(8) for j in range(8)),
    ),
    Entry(
        name="breast_cancer", n_rows=569, n_features=30, target_name="benign", licence=_BUNDLED,
        description="benign or malignant, from shapes of cell nuclei", task="classification",
        read=readers.bundled("load_breast_cancer"), label_counts={0: 212, 1: 357},
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
        read=readers.npz("wine.npz"), files=("wine.npz",), feature_names=tuple(_WINE.split()),
        label_counts={3: 30, 4: 216, 5: 2138, 6: 2836, 7: 1079, 8: 193, 9: 5},
        checksum="3d792db3f027307f51a107f5b8f0df8a", origin=origins.WINE,
    ),
    Entry(
        name="insurance", n_rows=9822, n_features=85, target_name="caravan", n_train=5822,
        licence=f"{_UCI}; contest notice: non-commercial research and education",
        description="who holds a caravan policy (0/1), from customer data",
        read=readers.npz("insurance.npz"), files=("insurance.npz",),
        feature_names=tuple(_INSURANCE.split()), label_counts={0: 9236, 1: 586},
        checksum="79e8480eca0e9ce8329f99448463ad74", origin=origins.INSURANCE,
    ),
    Entry(
        name="ct", n_rows=53_500, n_features=384, target_name="location", licence=_UCI,
        description="height of a CT slice in the body, 0..180, from histograms of the image",
        read=readers.npz("ct.npz"), files=("ct.npz",), origin=origins.CT,
        feature_names=_numbered("value", 384, start=0),
        target_range=(1.7387, 97.4892), target_mean=47.028039,
    ),
    Entry(
        name="forest", n_rows=581_012, n_features=54, target_name="cover_type", licence=_UCI,
        description="forest cover type 1..7 as a number, from maps; first 15,120 rows balanced",
        read=readers.npz("forest.npz"), files=("forest.npz",), n_train=11_340,
        feature_names=(
            *_FOREST.split(), *_numbered("wilderness_area_", 4), *_numbered("soil_type_", 40),
        ),
        label_counts={1: 211840, 2: 283301, 3: 35754, 4: 2747, 5: 9493, 6: 17367, 7: 20510},
        checksum="7e09413c68ecc5b7d901a2fa3c329ed8", origin=origins.FOREST,
    ),
    Entry(
        name="uji", n_rows=21_048, n_features=520, target_name="longitude", licence=_UCI,
        description="position in metres from Wi-Fi signals in dBm; -105 is not seen",
        read=readers.uji, files=("uji.npz",), n_train=19_937,
        feature_names=_numbered("WAP", 520, width=3), target_range=(-7695.94, -7299.78),
        checksum="11f95a8a7843bff878ed919079311640", origin=origins.UJI,
    ),
    Entry(
        name="imdb", n_rows=50_000, n_features=74_849, target_name="rating",
        licence="research use (Stanford)", description="film ratings from sparse word counts",
        read=readers.sparse("imdb"), files=("imdb.npz", "imdb_y.npy"), n_train=25_000,
        feature_names=_numbered("word_", 74_849, start=0, width=5),
        label_counts={
            1: 10122, 2: 4586, 3: 4961, 4: 5331, 7: 4803, 8: 5859, 9: 4607, 10: 9731,
        },
        checksum="5972b916cca1e1ef7d7c90affd16894a",
    ),
    Entry(
        name="california", n_rows=20_640, n_features=8, target_name="MedHouseVal",
        licence="public (US census 1990)",
        description="median house values of districts, in $100,000",
        read=readers.npz("california.npz"), files=("california.npz",), origin=origins.CALIFORNIA,
        feature_names=tuple(_CALIFORNIA.split()), target_range=(0.1499, 5.0001),
        target_mean=2.068558,
    ),
    Entry(
        name="year", n_rows=515_345, n_features=90, target_name="year", licence=_UCI,
        description="year of a song, 1922..2011, from its timbre",
        read=readers.npz("year.npz"), files=("year.npz",), origin=origins.YEAR, n_train=463_715,
        feature_names=(*_numbered("timbre_mean_", 12), *_numbered("timbre_covariance_", 78)),
        target_range=(1922.0, 2011.0),
    ),
    Entry(
        name="news20", n_rows=18_846, n_features=130_107, target_name="group",
        licence="research use", description="which of 20 newsgroups, from sparse word counts",
        task="classification", read=readers.sparse("news20"), n_train=11_314,
        files=("news20.npz", "news20_y.npy"), origin=origins.NEWS20,
        feature_names=_numbered("word_", 130_107, start=0, width=6), target_range=(0.0, 19.0),
    ),
)  # fmt: skip
_REGISTRY = {entry.name: entry for entry in _ENTRIES}


def names() -> list[str]:
    """List the names that ``load`` knows; built-in ones come first.

    Returns
    -------
    list of str

    Examples
    --------
    >>> names()[:3]
    ['diabetes', 'digits', 'breast_cancer']
    """
    return list(_REGISTRY)


def describe(name: str) -> Entry:
    """Describe a dataset without loading it.

    Parameters
    ----------
    name : str
        One of :func:`names`.

    Returns
    -------
    Entry

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
