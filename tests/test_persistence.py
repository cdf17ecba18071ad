"""Model files: what comes back, what is refused, and that nothing else can happen."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import struct
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold
from support import model_file_mutations as fuzz
from support import small_models

import kernelsieve
from kernelsieve import (
    AdaptiveFeatures,
    FourierFeatures,
    KernelRidge,
    KernelRidgeClassifier,
    KernelRidgeCV,
    NystromFeatures,
    RowNormFeatures,
    persistence,
)
from kernelsieve.kernels import Pairwise, Polynomial, Product
from kernelsieve.kernels.product import Reference
from kernelsieve.kernels.warps import Warp
from kernelsieve.persistence import ModelFileError, _container
from kernelsieve.tables.encoder import TableEncoder

TESTS = Path(__file__).parent
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="a process that may be killed")


def run_python(code: str, *arguments: str | Path) -> str:
    """What a fresh process prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=TESTS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


# --- what comes back -----------------------------------------------------------------------------


def said(estimator: Any) -> list[Any]:
    """The bits of everything that an estimator says about dense rows, and sparse ones."""
    inputs = [small_models.rows(9, 33), small_models.rows(9, 33).astype(np.float32)]
    if small_models.takes_sparse(estimator):
        inputs.append(small_models.sparse_rows(9, 33))
    found = []
    for X in inputs:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rows without the names of the columns
            answers = small_models.answers(estimator, X)
        found.append({name: small_models.as_bits(value) for name, value in answers.items()})
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of every small model."""
    folder = tmp_path_factory.mktemp("models")
    paths = {}
    for i, name in enumerate(small_models.ALL):
        paths[name] = folder / f"{i}.ks"
        kernelsieve.save(small_models.build(name), paths[name], {"name": name}, variance=True)
    return paths


def plain(value: Any) -> Any:
    """Parameters as something that can be compared."""
    return small_models.as_bits(value) if hasattr(value, "dtype") else repr(value)


@pytest.mark.parametrize("name", small_models.ALL)
def test_a_round_trip_is_exact(name: str, files: dict[str, Path]) -> None:
    estimator, found = small_models.build(name), persistence.read(files[name])
    loaded = found.estimator
    assert type(loaded) is type(estimator)
    assert found.about == {"name": name}
    assert found.versions["kernelsieve"] == kernelsieve.__version__
    assert said(loaded) == said(estimator)
    expected, got = estimator.get_params(), loaded.get_params()
    assert {k: plain(v) for k, v in got.items()} == {k: plain(v) for k, v in expected.items()}


LEFT_OUT = {"_choice"}
REBUILT = {
    "encoder_",
    "facts_",
    "features_",
    "kernel_",
    "svc_",
    "ridge_",
    "model_",
    "map_",
    "inverse_",
    "features_y_",
}


@pytest.mark.parametrize("name", small_models.ALL)
def test_every_attribute_comes_back(name: str, files: dict[str, Path]) -> None:
    """Nothing that ``fit`` leaves is missing, but the rows that a file does not hold."""
    estimator, loaded = small_models.build(name), kernelsieve.load(files[name])
    assert vars(estimator).keys() - LEFT_OUT <= vars(loaded).keys()
    for key in vars(estimator).keys() - LEFT_OUT - REBUILT - estimator.get_params().keys():
        value, again = getattr(estimator, key), getattr(loaded, key)
        assert type(again) is type(value), key
        if isinstance(value, np.ndarray):
            assert small_models.as_bits(again) == small_models.as_bits(value), key
            assert again.flags.writeable
        elif isinstance(value, int | float | str):
            assert again == value or again != again, key


def test_a_fresh_process_says_the_same(files: dict[str, Path]) -> None:
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "import hashlib, kernelsieve, test_persistence\n"
        "for path in sys.argv[1:]:\n"
        "    said = test_persistence.said(kernelsieve.load(path))\n"
        "    print(hashlib.sha256(repr(said).encode()).hexdigest())\n"
    )
    expected = [
        hashlib.sha256(repr(said(kernelsieve.load(path))).encode()).hexdigest()
        for path in files.values()
    ]
    assert run_python(code, *files.values()).split() == expected


@pytest.mark.parametrize("name", small_models.ALL)
def test_the_same_model_makes_the_same_bytes(
    name: str, files: dict[str, Path], tmp_path: Path
) -> None:
    again = tmp_path / "again.ks"
    found = persistence.read(files[name])
    kernelsieve.save(found.estimator, again, found.about, variance=True)
    assert again.read_bytes() == files[name].read_bytes()


@pytest.mark.parametrize("name", ["adaptive, Mercer", "oblivious", "ridge", "svc, two", "cca"])
def test_what_was_loaded_can_be_fitted_again(name: str, files: dict[str, Path]) -> None:
    loaded = kernelsieve.load(files[name])
    X, second = small_models.rows(4), small_models.rows(4)[:, :2]
    y = {"svc, two": small_models.labels(X), "cca": second}.get(name, small_models.target(X))
    assert said(loaded.fit(X, y)) == said(clone(loaded).fit(X, y))


def test_partial_fit_goes_on_where_it_was(files: dict[str, Path]) -> None:
    loaded, model = (kernelsieve.load(files["ridge, continued"]) for _ in range(2))
    model = small_models.build("ridge, continued")
    X, y = small_models.rows(8), small_models.target(small_models.rows(8))
    assert said(loaded.partial_fit(X, y)) == said(model.partial_fit(X, y))


@pytest.mark.parametrize(
    "name", ["AdaptiveFeatures", "KernelRidgeCV", "KernelCCA", "TensorSketchFeatures"]
)
def test_an_estimator_that_was_not_fitted(name: str, tmp_path: Path) -> None:
    estimator = getattr(kernelsieve, name)()
    kernelsieve.save(estimator, tmp_path / "new.ks")
    loaded = kernelsieve.load(tmp_path / "new.ks")
    assert repr(loaded) == repr(estimator)
    with pytest.raises(NotFittedError):
        loaded.transform(small_models.rows()) if hasattr(loaded, "transform") else loaded.predict(
            small_models.rows()
        )


def test_estimates_are_stored_and_rows_are_not(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(300, 4))
    features = AdaptiveFeatures(20, random_state=0).fit(X)
    kernelsieve.save(features, tmp_path / "map.ks")
    loaded = kernelsieve.load(tmp_path / "map.ks")
    assert loaded.spectral_epsilon_ == features.spectral_epsilon_
    assert loaded.statistical_dimension_ == features.statistical_dimension_
    assert not hasattr(loaded, "_choice")
    data = (tmp_path / "map.ks").read_bytes()
    assert not any(row.tobytes() in data for row in features._choice.held_out.rows)


def test_a_map_among_the_parameters_is_stored_without_what_it_learned(tmp_path: Path) -> None:
    given = NystromFeatures(10, random_state=0).fit(small_models.rows())
    model = KernelRidge(given).fit(small_models.rows(), small_models.target(small_models.rows()))
    kernelsieve.save(model, tmp_path / "model.ks", variance=True)
    loaded = kernelsieve.load(tmp_path / "model.ks")
    assert said(loaded) == said(model)
    with pytest.raises(NotFittedError):
        loaded.features.transform(small_models.rows())


def test_what_an_earlier_fit_left_is_not_stored(tmp_path: Path) -> None:
    X, y = small_models.rows(), small_models.target(small_models.rows())
    model = KernelRidge(RowNormFeatures(10, random_state=0), refine=True).fit(X, y)
    model.set_params(refine=False).fit(X[:, :2], y)
    kernelsieve.save(model, tmp_path / "model.ks")
    assert not hasattr(kernelsieve.load(tmp_path / "model.ks"), "X_fit_")


def test_variances_are_stored_where_they_are_asked_for(tmp_path: Path) -> None:
    X, y = small_models.rows(), small_models.target(small_models.rows())
    model = KernelRidge(FourierFeatures(50, random_state=0)).fit(X, y)
    paths = tmp_path / "small.ks", tmp_path / "large.ks"
    for path, variance in zip(paths, (False, True), strict=True):
        kernelsieve.save(model, path, variance=variance)
    small, large = map(kernelsieve.load, paths)
    assert paths[1].stat().st_size - paths[0].stat().st_size > 8 * 50 * 51 / 2
    assert large.predict(X, return_std=True)[1].tolist() == model.predict(X, True)[1].tolist()
    assert small.predict(X).tolist() == model.predict(X).tolist()
    assert small.noise_variance_ == large.noise_variance_ == model.noise_variance_
    with pytest.raises(ValueError, match=r"save\(model, path, variance=True\)"):
        small.predict(X, return_std=True)
    again = tmp_path / "again.ks"
    kernelsieve.save(small, again, variance=True)  # what is not there cannot be stored
    assert again.read_bytes() == paths[0].read_bytes()


def test_containers_of_results_come_back(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    features = RowNormFeatures(5, random_state=0).set_output(transform="pandas")
    features.fit(small_models.rows())
    kernelsieve.save(features, tmp_path / "map.ks")
    frame = kernelsieve.load(tmp_path / "map.ks").transform(small_models.rows())
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame) == list(features.get_feature_names_out())


def test_estimators_on_dask_are_stored_as_those_in_memory(tmp_path: Path) -> None:
    pytest.importorskip("dask")
    da = pytest.importorskip("dask.array")
    from kernelsieve import dask as on_dask

    X, y = small_models.rows(), small_models.target(small_models.rows())
    model = on_dask.KernelRidge(on_dask.FourierFeatures(12, gamma=0.5, random_state=0))
    model.fit(da.from_array(X, chunks=(20, 4)), da.from_array(y, chunks=20))
    kernelsieve.save(model, tmp_path / "model.ks")
    loaded = kernelsieve.load(tmp_path / "model.ks")
    assert type(loaded) is KernelRidge
    assert np.array_equal(loaded.predict(X), model.predict(X))


def long_lists() -> dict[str, Any]:
    """Lists of more than a few items: by kind, mixed, nested and empty."""
    half = range(50)
    return {
        "floats": [0.1 * i for i in half],
        "not finite": [float("inf"), -0.0] * 50,
        "integers": [*half, 2**63 - 1, -(2**63) + 1],
        "large": [*half, 2**63, -(10**30)],
        "flags": [i % 3 == 0 for i in half],
        "texts": [f"Straße {i}" * (i % 4) for i in half],
        "nothing": [None] * 50,
        "mixed": [(1, True, 1.0, None, "x", (), [], {}, (1.0, "a"), 2**70)[i % 10] for i in half],
        "kinds": tuple({i: {f"k{j}": j for j in range(i)}} for i in half),
        "nested": [[[(i, j / 3)] * (j % 3) for j in range(i)] for i in half],
        "keys": {i if i % 2 else f"k{i}": None if i % 7 else [i] for i in half},
        "words": {f"k{i}": i for i in half},
    }


def test_long_lists_of_arrays_come_back(tmp_path: Path) -> None:
    arrays = [np.arange(i, dtype=(np.float32, np.int64)[i % 2]) for i in range(50)]
    arrays += [np.array(["x", "Köln"][: i % 3], dtype=object) for i in range(50)]
    arrays += [np.array(["yy"]), np.eye(3), np.zeros((0, 2))]
    arrays += [np.arange(9.0)[::2]]
    kernelsieve.save(KernelRidge(), tmp_path / "model.ks", about={"arrays": arrays})
    found = persistence.read(tmp_path / "model.ks").about["arrays"]
    assert [small_models.as_bits(x) for x in found] == [small_models.as_bits(x) for x in arrays]
    assert all(each.flags.writeable and each.base is None for each in found[:100])


def wide_kernel(d: int) -> Any:
    """A product of knots, logarithms and categories, with values for what is missing."""
    knots = tuple(np.linspace(-2.0, 2.0, 64).tolist())
    warps = [Warp("knots", knots=knots, values=knots), Warp("log", 0.5, 2.0), Warp()]
    reference = Reference(knots, (1 / 64,) * 64)
    every = range(d)
    return Product(
        [0.01 / (i + 1) for i in every],
        [("gaussian", "laplacian", "categorical")[i % 3] for i in every],
        [warps[i % 3] for i in every],
        [reference] * d,
    )


def header_size(path: Path) -> int:
    return int(_container.PREFIX.unpack(path.read_bytes()[: _container.PREFIX.size])[2])


def wide_map(d: int) -> Any:
    X = np.random.default_rng(0).normal(size=(20, d))
    return NystromFeatures(5, kernel=wide_kernel(d), random_state=0).fit(X)


def wide_encoder(d: int) -> Any:
    rng = np.random.default_rng(0)
    table: dict[str, Any] = {f"number {i}": rng.normal(size=150) for i in range(d)}
    for i in range(d):
        table[f"text {i}"] = [f"level {level}" for level in rng.integers(60, size=150)]
    return TableEncoder().fit(table, y=rng.normal(size=150))


@pytest.mark.parametrize("build", [wide_map, wide_encoder])
def test_a_wide_model_has_a_short_header(build: Callable[[int], Any], tmp_path: Path) -> None:
    """What is known of each column lies in arrays: the header holds 16 MiB at most."""
    sizes = []
    for d in (100, 2_000):
        estimator, path = build(d), tmp_path / f"{d}.ks"
        kernelsieve.save(estimator, path)
        sizes.append(header_size(path))
        loaded = kernelsieve.load(path)
        kernelsieve.save(loaded, tmp_path / "again.ks")
        assert path.read_bytes() == (tmp_path / "again.ks").read_bytes()
        assert repr(vars(loaded)) == repr(vars(estimator))
    assert sizes[1] < 1.1 * sizes[0]


def test_about_holds_plain_data(tmp_path: Path) -> None:
    about = {
        "target": "Preis",
        "scores": {"rmse": 0.25, "n": 3, "missing": float("inf")},
        "list": [None, True, "a\u0000b", (1, 2.0), []],
        "keys": {1: "one", None: 2},
        "array": np.arange(6.0).reshape(2, 3),
        "names": np.array(["x", "yy"]),
    }
    about |= long_lists()
    kernelsieve.save(KernelRidge(), tmp_path / "model.ks", about=about)
    found = persistence.read(tmp_path / "model.ks").about
    for key in ("array", "names"):
        expected = about.pop(key)
        assert small_models.as_bits(found.pop(key)) == small_models.as_bits(expected)
    assert found == about
    nan = {"value": float("nan")}
    kernelsieve.save(KernelRidge(), tmp_path / "model.ks", about=nan)
    assert np.isnan(persistence.read(tmp_path / "model.ks").about["value"])


# --- further classes -----------------------------------------------------------------------------


@persistence.register
class Encoder:
    """As the one of the command line: plain data."""

    def __init__(self, columns: list[Any], means: Any) -> None:
        self.columns, self.means = columns, means

    def get_state(self) -> dict[str, Any]:
        return vars(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Encoder:
        encoder = cls(state["columns"], state["means"])
        if len(encoder.columns) != len(encoder.means):
            raise ValueError("columns and means differ in number")
        return encoder


@persistence.register
class Chain:
    """As a pipeline: other objects."""

    def __init__(self, encoder: Any, model: Any) -> None:
        self.encoder, self.model = encoder, model

    def get_state(self) -> dict[str, Any]:
        return vars(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Chain:
        if not isinstance(state["encoder"], Encoder):
            raise ValueError("the first is not an Encoder")
        return cls(**state)


def test_a_registered_class(tmp_path: Path) -> None:
    model = small_models.build("svc, three")
    columns = [{"name": "a", "levels": ["x", "y"]}, {"name": "b", "levels": []}]
    path = tmp_path / "chain.ks"
    persistence.save(Chain(Encoder(columns, np.array([1.0, 2.0])), model), path)
    loaded = persistence.load(path)
    assert loaded.encoder.columns == columns
    assert loaded.encoder.means.tolist() == [1.0, 2.0]
    assert said(loaded.model) == said(model)
    for refused, message in (
        (Encoder([], [1.0]), "columns and means differ in number"),
        (Encoder(3, 4), "object of type 'int' has no len"),
        (Chain(model, model), "the first is not an Encoder"),
    ):
        with pytest.raises(ModelFileError, match=message):
            persistence.save(refused, path)
    assert said(persistence.load(path).model) == said(model)  # the refused ones left no trace


def test_one_name_is_one_class() -> None:
    other = type("Encoder", (Encoder,), {})
    with pytest.raises(ValueError, match="registered as 'Encoder' already"):
        persistence.register(other)
    with pytest.raises(TypeError, match="has no get_state and from_state"):
        persistence.register(type("Other", (), {}))


# --- what cannot be stored -----------------------------------------------------------------------


def _with_attribute() -> KernelRidge:
    model = KernelRidge()
    model.note = "mine"  # type: ignore[attr-defined]
    return model


def _half_fitted() -> KernelRidge:
    model = KernelRidge(RowNormFeatures(5), solver="cholesky", alpha=1.0)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(small_models.rows(), np.full(small_models.N_ROWS, np.nan))
    model.n_features_in_ = 4
    return model


class Mine(KernelRidge):
    """Somebody's own subclass."""


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: KernelRidge(NystromFeatures(5, kernel=lambda x, y: 1.0)),
            r"KernelRidge.parameters.features.parameters.kernel is a .*: a function is code",
        ),
        (
            lambda: FourierFeatures(random_state=np.random.default_rng(0)),
            r"random_state is a numpy.random.*Generator.*set_params\(random_state=0\)",
        ),
        (
            lambda: FourierFeatures(random_state=np.random.RandomState(0)),
            r"FourierFeatures.parameters.random_state is a .*RandomState",
        ),
        (lambda: KernelRidgeCV(cv=KFold(3)), r"cv is a .*KFold.*set_params\(cv=None\)"),
        (_with_attribute, r"KernelRidge \(KernelRidge\): attribute 'note' has no place.*about"),
        (_half_fitted, r"is not completely fitted \(.*features_.*\): fit it"),
        (Mine, r"Mine, which a model file does not hold"),
        (lambda: object(), r"builtins.object, which a model file does not hold"),
        (lambda: KernelRidge(n_jobs=10**9), r"n_jobs is 1000000000, not a whole number"),
        (
            lambda: NystromFeatures(landmarks=np.ma.masked_array([[1.0]], [[True]])),
            r"landmarks is a MaskedArray.*plain numpy array",
        ),
        (
            lambda: NystromFeatures(landmarks=sp.csc_array(np.eye(2))),
            r"landmarks is a sparse matrix in csc: use CSR",
        ),
        (
            lambda: NystromFeatures(kernel=Pairwise(lambda x, y: 1.0)),
            r"kernel.*metric is a function.*holds no code",
        ),
        (
            lambda: NystromFeatures(landmarks=np.array([[1j]])),
            r"landmarks is an array of complex128.*numbers, truth values or strings",
        ),
        (lambda: KernelRidge(solver="\ud800"), r"is not valid UTF-8: rename it"),
    ],
)
def test_what_cannot_be_stored(build: Callable[[], Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=message):
        kernelsieve.save(build(), tmp_path / "model.ks")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ([1], "about is a list: pass a dict"),
        ({"a": {1, 2}}, r"about.a is a builtins.set"),
        ({"a": np.array([None])}, "about.a is an array of objects"),
        ({"a": np.array(["2020-01-01"], dtype="M8[D]")}, r"about.a is an array of datetime64"),
    ],
)
def test_what_about_cannot_hold(about: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=message):
        kernelsieve.save(KernelRidge(), tmp_path / "model.ks", about=about)


# --- files that are not what they should be ------------------------------------------------------


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "model.ks"
    kernelsieve.save(small_models.build("ridge"), path)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        kernelsieve.load(path)
    assert str(caught.value).startswith(str(path))
    return str(caught.value)[len(str(path)) + 1 :]


def test_a_truncated_file_says_how_much_is_there(good: Path) -> None:
    data = good.read_bytes()
    for length in (1, 7, 8, 20):
        good.write_bytes(data[:length])
        assert refusal(good) == f"ends after {length} bytes, before its header: copy it again"
    for length in (24, 1000, len(data) - 1):
        good.write_bytes(data[:length])
        assert refusal(good) == f"ends after {length:,} of {len(data):,} bytes: copy it again"


def test_a_longer_file(good: Path) -> None:
    good.write_bytes(good.read_bytes() + b"12345")
    assert "5 bytes after its end" in refusal(good)


@pytest.mark.parametrize(
    "content", [b"", b"a,b\n1,2\n", b"PK\x03\x04", pickle.dumps({"a": 1}), b"\0" * 1000]
)
def test_a_foreign_file(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.ks"
    path.write_bytes(content)
    assert refusal(path) == "is not a kernelsieve model: those are written by kernelsieve.save"


def test_a_newer_file(good: Path) -> None:
    data = bytearray(good.read_bytes())
    struct.pack_into("<I", data, 8, 7)
    good.write_bytes(data)
    assert refusal(good) == (
        "has format version 7, but this kernelsieve reads version 3: pip install -U kernelsieve"
    )


def test_every_byte_is_under_the_checksum(good: Path) -> None:
    data = good.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(len(data), size=300):
        changed = bytearray(data)
        changed[place] ^= 1 << int(rng.integers(8))
        good.write_bytes(changed)
        with pytest.raises(ModelFileError):
            kernelsieve.load(good)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        kernelsieve.load(tmp_path / "none.ks")
    assert refusal(tmp_path) == "is not a regular file"
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")  # opening it would wait for ever
        assert "not a regular file" in refusal(tmp_path / "pipe")


# --- files that are made to do harm --------------------------------------------------------------


def field(header: Any, path: str) -> tuple[Any, Any]:
    """The table that holds a field of the model, and its key: "fitted.features_.weights"."""
    node: Any = header["model"]
    *way, last = path.split(".")
    for name in way:
        body, key = _body(node, name)
        node = body[key]
    return _body(node, last)


def _body(node: Any, name: str) -> tuple[Any, Any]:
    if isinstance(node, list):
        return node, int(name)
    if name in node:
        return node, name
    return next(node[key] for key in ("fields", "table", "tuple") if key in node), name


Edit = Callable[[Any, list[bytes]], None]


def put(path: str, value: Any) -> Edit:
    def edit(header: Any, arrays: list[bytes]) -> None:
        table, key = field(header, path)
        assert isinstance(table, list) or key in table, sorted(table)
        table[key] = value

    return edit


def rewrite(path: str, change: Callable[[np.ndarray], np.ndarray]) -> Edit:
    """Another content (and shape) of an array."""

    def edit(header: Any, arrays: list[bytes]) -> None:
        table, key = field(header, path)
        node = table[key]
        if "names" in node:
            node = node["names"][1]
        number = node["array"]
        layout = header["arrays"][number]
        array = np.frombuffer(arrays[number], layout["dtype"]).reshape(
            layout["shape"], order=layout["order"]
        )
        changed = change(array.copy())
        layout["shape"] = list(changed.shape)
        arrays[number] = changed.astype(layout["dtype"]).tobytes(order=layout["order"])

    return edit


def replaced(index: Any, value: Any) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array[index] = value
        return array

    return change


def csr(part: str, change: Callable[[np.ndarray], np.ndarray]) -> Edit:
    """Another content of a part of the landmarks."""

    def edit(header: Any, arrays: list[bytes]) -> None:
        table, key = field(header, "fitted.landmarks_")
        number = table[key]["csr"][part]["array"]
        layout = header["arrays"][number]
        array = change(np.frombuffer(arrays[number], layout["dtype"]).copy())
        arrays[number] = array.tobytes()

    return edit


def drawn(which: int, value: int) -> Edit:
    """Another value in an array of draws."""

    def edit(header: Any, arrays: list[bytes]) -> None:
        rewrite(f"fitted._draws.{which}", replaced(0, value))(header, arrays)

    return edit


def scikit_learn(name: str, value: Any) -> Edit:
    """Another parameter of a kernel that scikit-learn computes."""

    def edit(header: Any, arrays: list[bytes]) -> None:
        table, key = field(header, "fitted.kernel_.parameters")
        table[key]["table"][name] = value

    return edit


def more_draws(header: Any, arrays: list[bytes]) -> None:
    """One more array of draws, which is empty."""
    for of_kind in ("mixed.0", "mixed.1.0.arrays.0"):
        rewrite(f"fitted._draws.{of_kind}", lambda numbers: np.append(numbers, 0))(header, arrays)


def retyped(path: str, dtype: str) -> Edit:
    """The same bytes as numbers of another type."""

    def edit(header: Any, arrays: list[bytes]) -> None:
        table, key = field(header, path)
        header["arrays"][table[key]["array"]]["dtype"] = dtype

    return edit


def text(path: str, content: bytes) -> Edit:
    """Other bytes in place of the first ones of some texts."""

    def edit(header: Any, arrays: list[bytes]) -> None:
        table, key = field(header, path)
        number = table[key]["names"][0]["array"]
        length = min(len(content), len(arrays[number]))
        arrays[number] = content[:length] + arrays[number][length:]

    return edit


def block(name: str, value: Any) -> Edit:
    def edit(header: Any, arrays: list[bytes]) -> None:
        table, key = field(header, "fitted._blocks")
        table[key]["tuple"][-1]["fields"][name] = value

    return edit


def both(*edits: Edit) -> Edit:
    def edit(header: Any, arrays: list[bytes]) -> None:
        for each in edits:
            each(header, arrays)

    return edit


def one_long_product(header: Any, arrays: list[bytes]) -> None:
    """Ten thousand products, one of which would make a table of 10^8 entries."""
    n = 10_000
    ends = np.append(np.arange(1, n), 2 * n - 1)
    for name, values in (
        ("ends", ends),
        ("coordinates", np.zeros(2 * n - 1)),
        ("orders", np.ones(2 * n - 1)),
    ):
        rewrite(f"{MULTISETS}.{name}", lambda _, v=values: v)(header, arrays)


def unused(header: Any, arrays: list[bytes]) -> None:
    header["arrays"].append({"dtype": "<f8", "shape": [2], "order": "C"})
    arrays.append(bytes(16))


def used_twice(header: Any, arrays: list[bytes]) -> None:
    first, key = field(header, "fitted.coef_")
    put("fitted.intercept_", first[key])(header, arrays)


ADAPTIVE, MERCER = "adaptive, monomials", "adaptive, Mercer"
HUGE = 10**18
COLUMNS = "fitted.encoder_.fitted.columns_"
GAUSSIAN = {"object": "Gaussian", "fields": {"gamma": 1.0}}
MULTISETS, BASIS = "fitted.features_.multisets", "fitted.features_.basis"
CODES = "fitted.sketch_.leaves.0.codes"

HARMFUL: list[tuple[str, Edit, str]] = [
    # Indices that compiled code would follow.
    (ADAPTIVE, rewrite(f"{MULTISETS}.coordinates", replaced(0, 4)), "a coordinate beyond"),
    (ADAPTIVE, rewrite(f"{MULTISETS}.coordinates", replaced(0, -1)), "value -1 below 0"),
    (ADAPTIVE, rewrite(f"{MULTISETS}.orders", replaced(0, 0)), "value 0 below 1"),
    (ADAPTIVE, rewrite(f"{MULTISETS}.orders", replaced(0, 2**41)), f"above {2**40}"),
    (ADAPTIVE, rewrite(f"{MULTISETS}.orders", replaced(0, 600)), "degree that the basis"),
    (ADAPTIVE, rewrite(f"{MULTISETS}.ends", replaced(0, 9)), "do not rise"),
    (ADAPTIVE, rewrite(f"{MULTISETS}.ends", replaced(-1, 10**6)), "do not rise"),
    (ADAPTIVE, rewrite("fitted.features_.weights", lambda w: w[:-1]), "14 for 15"),
    (ADAPTIVE, one_long_product, "far more than the others"),
    (ADAPTIVE, rewrite(f"{BASIS}.series.log_coefficients", lambda a: a[:1]), "degree that"),
    (
        ADAPTIVE,
        rewrite(f"{BASIS}.series.log_coefficients", lambda a: np.zeros(300)),
        "are too many",
    ),
    (
        "row norm, all features",
        rewrite(f"{MULTISETS}.orders", lambda a: np.ones_like(a)),
        "are repeated",
    ),
    (MERCER, rewrite(f"{BASIS}.n_points", replaced(0, 0)), "value 0 below 1"),
    (MERCER, rewrite(f"{BASIS}.n_points", replaced(0, 700)), "do not add up"),
    (MERCER, rewrite(f"{BASIS}.n_functions", replaced(0, 700)), "do not add up"),
    (MERCER, rewrite(f"{BASIS}.n_orders", replaced(0, 700)), "do not add up"),
    (MERCER, rewrite(f"{BASIS}.points", replaced(0, 1e9)), "do not rise"),
    (MERCER, rewrite(f"{BASIS}.orders", replaced(0, 1)), "do not rise from 0"),
    (MERCER, rewrite(f"{BASIS}.orders", replaced(1, 2**30)), "orders"),
    (MERCER, rewrite(f"{MULTISETS}.orders", replaced(0, 99)), "that the basis does not"),
    (
        MERCER,
        rewrite(f"{BASIS}.points", replaced(0, np.nan)),
        "value that is not finite",
    ),
    ("tensor sketch", rewrite(CODES, replaced((0, 0), 16)), "bucket beyond 16"),
    ("tensor sketch", rewrite(CODES, replaced((0, 0), -17)), "bucket beyond 16"),
    ("tensor sketch", put("fitted.sketch_.constant", 0.0), "are not all from 4 to 16"),
    ("oblivious, narrow", drawn(-1, 10**6), "above"),
    ("oblivious, narrow", drawn(-1, -1), "value -1 below 0"),
    ("Nystrom, sparse", csr("indices", replaced(0, 4)), "is not a sparse matrix"),
    ("Nystrom, sparse", csr("indices", lambda i: i[::-1]), "columns out of order"),
    ("Nystrom, sparse", csr("indptr", replaced(1, 10**6)), "is not a sparse matrix"),
    ("Nystrom, sparse", csr("indptr", replaced(0, 1)), "is not a sparse matrix"),
    ("Nystrom, sparse", csr("data", replaced(0, np.nan)), "not finite"),
    ("Fourier, structured, cos+sin", rewrite("fitted.weights_", lambda w: np.ones(99)), "99"),
    (
        "Fourier, structured, cos+sin",
        rewrite("fitted.frequencies_.fine", lambda a: a[:, :-16]),
        "do not make",
    ),
    ("Fourier, plain, cos+sin", rewrite("fitted.phases_", lambda a: np.zeros(99)), "are 99 for 7"),
    # Rows are checked by the outer estimator only.
    ("ridge", put("fitted.n_features_in_", 5), "size 4 instead of 5"),
    ("auto", put("fitted.n_features_in_", 5), "size 4 instead of 5"),
    ("ridge", put("fitted.features_.fitted.n_features_in_", 5), "of 4 columns, not 5"),
    ("ridge", rewrite("fitted.coef_", lambda a: a[:-1]), "has the shape"),
    ("classifier, three", rewrite("fitted.classes_", lambda a: a[:-1]), "lengths do not match"),
    ("classifier, integers", rewrite("fitted.classes_", replaced(0, 3)), "one of them twice"),
    ("k-means", rewrite("fitted.labels_", replaced(0, 3)), "value 3 above 2"),
    ("pca", put("parameters.fit_inverse_transform", True), "inverse_ is missing"),
    # Numbers that would ask for any time or memory.
    ("tensor sketch", put("fitted.sketch_.size", HUGE), "not a whole number from 1 to"),
    ("tensor sketch, degree 9", put("fitted.sketch_.size", 2**20), "9 factors to 1048576"),
    ("Maclaurin", block("stop", HUGE), "not a whole number from 1 to"),
    ("Maclaurin", block("stop", 2**19), "factors"),
    ("Maclaurin", block("degree", 10**9), "beyond the series"),
    ("Maclaurin", block("exact", True), "all monomials of degree"),
    ("Maclaurin", put("fitted._first_draws", "00"), "are not what numpy"),
    ("oblivious", block("stop", 2**18), "instead of"),
    ("ridge", put("parameters.n_jobs", 10**9), "not a whole number from -1024 to 1024"),
    ("ridge", put("parameters.block_rows", 0), "not a whole number from 1"),
    ("ridge", put("parameters.verbose", "yes"), "not true, false"),
    ("row norm, all features", put("fitted.kernel_.degree", 10**9), "degree is 1000000000"),
    ("Fourier, Laplacian", put("fitted.kernel_.gamma", 1e301), "not a number from"),
    ("Nystrom, leverage", put("fitted.kernel_.length_scale", 1e-200), "not a number"),
    ("ridge", retyped("fitted.coef_", "<i8"), "has the type int64"),
    ("oblivious", more_draws, "are too many"),
    ("Nystrom, scikit-learn", put("fitted.kernel_.metric", "sigmoid"), "not one of"),
    ("Nystrom, scikit-learn", put("fitted.kernel_.metric", "cosine"), "does not take"),
    ("Nystrom, scikit-learn", scikit_learn("degree", 2**63), "does not take"),
    ("Nystrom, scikit-learn", scikit_learn("degree", None), "does not take"),
    ("Nystrom, scikit-learn", scikit_learn("n_jobs", 1), "does not take"),
    (ADAPTIVE, put("fitted.features_.frame.scale", 1e200), "not a number from"),
    # What does not belong there.
    ("ridge", put("fitted.features_", GAUSSIAN), "is a Gaussian, not FeatureMap"),
    ("ridge", put("fitted.features_", {"object": "os.system", "fields": {}}), "does not know"),
    ("ridge", put("fitted.features_", {"object": ["a"], "fields": {}}), "of class ['a']"),
    ("ridge", put("fitted.solver_", "eval"), "not one of cholesky, dual, cg"),
    ("ridge", put("fitted.features_.fitted", None), "is not fitted"),
    ("ridge", unused, "does not use all arrays"),
    ("ridge", used_twice, "in use elsewhere"),
    ("ridge", lambda header, arrays: header.update(more=1), "more is not a field"),
    ("ridge", lambda header, arrays: header.pop("model"), "model is missing"),
    ("ridge", lambda header, arrays: header.pop("arrays"), "lists no arrays"),
    ("ridge", lambda header, arrays: header.update(about=[]), "about is a list, not dict"),
    ("ridge", put("fitted.n_features_in_", True), "not a whole number"),
    ("ridge", put("fitted.n_features_in_", 4.0), "not a whole number"),
    ("adaptive, sparse", put("fitted.features_.sparse", 1), "not true or false"),
    ("ridge", put("fitted.solver_", 1), "not one of"),
    ("ridge", put("fitted._posterior", []), "not Posterior"),
    ("ridge", put("fitted.features_", 3), "not FeatureMap"),
    ("ridge", put("fitted.coef_", 3), "not an array"),
    ("ridge", put("fitted.coef_", {"array": 10**6}), "does not exist"),
    ("ridge", put("fitted.coef_", {"array": -1}), "does not exist"),
    ("ridge", put("fitted._posterior.weight", {"float": "nan"}), "not a number from"),
    ("ridge", put("fitted._posterior.weight", {"float": "x"}), "holds no valid value"),
    ("ridge", put("parameters.alpha", []), "is a list, not bool or int"),
    ("ridge, refined", rewrite("fitted.X_fit_", lambda X: X[:0]), "has no rows"),
    ("ridge cv, gammas", put("parameters.gammas", "x"), "is a str, not int"),
    ("ridge cv, gammas", put("fitted.cv_results_.gamma", []), "have 0 gammas"),
    ("ridge, names", put("fitted.feature_names_in_", ["a"]), "not an array of strings"),
    ("ridge, names", put("fitted.feature_names_in_", {"names": []}), "two arrays"),
    ("ridge, names", put("fitted.feature_names_in_", {"names": [1, 2]}), "not an array"),
    ("ridge, names", put("fitted.feature_names_in_", {"names": 1}), "not list"),
    ("ridge, names", rewrite("fitted.feature_names_in_", lambda n: np.array([18])), "size 1 inst"),
    ("ridge, names", text("fitted.feature_names_in_", b"\xff"), "not valid UTF-8"),
    ("classifier, two", text("fitted.classes_", b"\0" * 8), "ends with a zero"),
    ("classifier, two", put("fitted.classes_", 3), "not an array of labels"),
    ("classifier, integers", rewrite("fitted.classes_", lambda c: c[:, None]), "not an array"),
    ("classifier, integers", rewrite("fitted.classes_", lambda c: np.arange(3)), "3 classes"),
    ("classifier, integers", put("parameters.class_weight", 3), "not str or dict"),
    (
        "classifier, integers",
        put("parameters.class_weight", {"pairs": [[1, 1], [2, 3]]}),
        "has a key twice",
    ),
    ("classifier, integers", put("parameters.class_weight", {"pairs": 3}), "not list"),
    ("classifier, integers", put("parameters.class_weight", {"table": 3}), "not dict"),
    ("classifier, integers", put("parameters.class_weight", {"set": 3}), "holds no valid value"),
    ("k-means", rewrite("fitted.cluster_centers_", lambda c: c[:0]), "above -1"),
    ("Nystrom", put("parameters.kernel", 3), "not str or Kernel"),
    ("Nystrom", put("parameters.landmarks", 3), "not str or list"),
    ("Nystrom", rewrite("fitted.landmarks_", lambda X: X[:0]), "has no rows"),
    ("Nystrom, sparse", put("fitted.n_features_in_", 5), "size 4 instead of 5"),
    ("adaptive, dot product", put("fitted.kernel_.coefficients", [1.0]), "not a tuple"),
    ("adaptive, dot product", put("fitted.kernel_.coefficients", {"tuple": [-1.0]}), "Schoenberg"),
    ("Maclaurin", both(block("degree", 0), block("exact", False)), "random features of degree 0"),
    ("Maclaurin", put("fitted._blocks", {"tuple": []}), "is empty"),
    ("Maclaurin", put("fitted._blocks", 3), "not a tuple"),
    ("oblivious", put("fitted._draws", []), "are too few"),
    ("oblivious, one column", drawn(0, 1), "bucket beyond 1"),
    (
        "row norm, all features",
        rewrite(f"{MULTISETS}.coordinates", lambda c: np.sort(c)[::-1]),
        "do not rise",
    ),
    ("table", put("fitted.task_", "classification"), "is a KernelRidge for classification"),
    ("table", put("fitted.facts_", {"table": {}}), "facts_ cannot be shown"),
    ("table", put("fitted.gamma_", []), "gamma_ is a list"),
    ("table", put("fitted.facts_", GAUSSIAN), "is a Gaussian, not dict"),
    ("table", put("fitted.facts_.rows", GAUSSIAN), "holds a Gaussian, not plain data"),
    ("table", put("fitted.target_", None), "target_ is None, not a string"),
    ("table, classes", put("parameters.drop", 3), "is a int, not a list"),
    ("table", put("fitted.encoder_.fitted.matrix_columns_", 5), "has sparse columns"),
    ("table", put("fitted.encoder_.fitted.columns_", []), "instead of 0"),
    ("network, layer", put("fitted.n_features_in_", 2**32), "has the shape"),
    ("network, layer", put("fitted._size", 2**20), "has the shape"),
    ("network, tangents", put("fitted._size", 2**20), "has the shape"),
    ("network, sketched", put("fitted._size", 2**20), "needs too much memory"),
    ("binning", put("fitted.n_grids_", 2**20), "has the shape"),
    ("table, wide", put(COLUMNS, {"objects": "Scaled", "fields": {}}), "or none"),
    ("table, wide", put(f"{COLUMNS}.mixed.1.0.fields.name", []), "fields of different lengths"),
    ("table, wide", put(f"{COLUMNS}.mixed.1.0.objects", "eval"), "does not know"),
    ("table, wide", put(f"{COLUMNS}.mixed.1.0.fields.fill.numbers", 3), "not an array"),
    ("table, wide", put(f"{COLUMNS}.mixed.1", []), "lengths do not match"),
    ("table, wide", put(f"{COLUMNS}.mixed", [1]), "does not have the kinds"),
    ("table, wide", put(f"{COLUMNS}.mixed.1.1.fields.levels.tuples", [3]), "instead of 2"),
    ("table, wide", put(f"{COLUMNS}.mixed.1.1.fields.levels.tuples.1", [3]), "do not match"),
    ("table, wide", put(f"{COLUMNS}.mixed.1.1.fields.levels.tuples.1", "x"), "not list"),
    ("table, wide", rewrite(f"{COLUMNS}.mixed.0", lambda kinds: kinds + 1), "do not match"),
    ("auto", put("fitted.reason_", "\ud800"), "not valid UTF-8"),
    ("auto", put("parameters.kernel", "\ud800"), "not valid UTF-8"),
    (
        "classifier, integers",
        put("parameters.class_weight", {"pairs": [[k * (2**61 - 1) for k in range(9)], [1] * 9]}),
        "not a list of keys",
    ),
]  # fmt: skip


def altered(path: Path, edit: Edit) -> bytes:
    """A file with an edit and the right lengths and checksum."""
    parts = fuzz.take_apart("", path.read_bytes())
    header, arrays = json.loads(json.dumps(parts.header)), list(parts.arrays)
    edit(header, arrays)
    return fuzz.put_together(json.dumps(header).encode(), arrays)


@pytest.mark.parametrize(("name", "edit", "message"), HARMFUL)
def test_harmful_content_is_refused(
    name: str, edit: Edit, message: str, files: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "model.ks"
    path.write_bytes(altered(files[name], lambda header, arrays: None))
    kernelsieve.load(path)  # the way to write it is right
    path.write_bytes(altered(files[name], edit))
    assert message in refusal(path)


def test_an_array_by_columns_where_compiled_code_wants_rows(
    files: dict[str, Path], tmp_path: Path
) -> None:
    def edit(header: Any, arrays: list[bytes]) -> None:
        table, key = field(header, "fitted.landmarks_")
        header["arrays"][table[key]["array"]]["order"] = "F"

    path = tmp_path / "model.ks"
    path.write_bytes(altered(files["Nystrom"], edit))
    assert "is not in C order" in refusal(path)


def test_truth_values_are_0_or_1(tmp_path: Path) -> None:
    path = tmp_path / "model.ks"
    kernelsieve.save(KernelRidge(), path, about={"a": np.array([True, False])})

    def edit(header: Any, arrays: list[bytes]) -> None:
        arrays[0] = b"\x02\x00"

    path.write_bytes(altered(path, edit))
    assert "an array of truth values holds other values" in refusal(path)


@pytest.mark.parametrize(
    ("place", "form", "value", "message"),
    [
        (8, "<I", 1, "format version 1, which this kernelsieve no longer"),
        (12, "<I", 2**31, "too short for a header"),
    ],
)
def test_a_prefix_that_cannot_be(
    place: int, form: str, value: int, message: str, good: Path
) -> None:
    data = bytearray(good.read_bytes())
    struct.pack_into(form, data, place, value)
    good.write_bytes(fuzz.with_checksum(bytes(data)))
    assert message in refusal(good)


def layout(**changes: Any) -> Edit:
    return lambda header, arrays: header["arrays"][0].update(changes)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (layout(dtype="|O"), "an array has the type '|O'"),
        (layout(dtype=">f8"), "an array has the type '>f8'"),
        (layout(dtype=["<f8"]), "an array has the type"),
        (layout(shape=[HUGE]), f"an array has the shape [{HUGE}]"),
        (layout(shape=[-1]), "an array has the shape [-1]"),
        (layout(shape=[2**20, 0, HUGE]), "an array has the shape"),
        (layout(shape=[1.0]), "an array has the shape [1.0]"),
        (layout(shape=[1] * 33), "an array has the shape"),
        (layout(shape=[2**12, 2**12, 2**12]), "its arrays need 549,755,"),
        (layout(order="A"), "an array has the order 'A'"),
        (layout(more=1), "is not its dtype, shape and order"),
    ],
)
def test_harmful_layouts_are_refused(edit: Edit, message: str, good: Path) -> None:
    good.write_bytes(altered(good, edit))
    assert message in refusal(good)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[]", "its header is not a JSON object"),
        (b"", "its header cannot be read"),
        (b'{"a":1,"a":2}', "a key occurs twice in one object"),
        (b'{"a":NaN}', "NaN is not JSON"),
        (b'{"a":-Infinity}', "-Infinity is not JSON"),
        (b'{"a":1e999}', "1e999 is not a float"),
        (b'{"a":' + b"9" * 10**6 + b"}", "a number of 1000000 digits"),
        (b'{"a":"\xff"}', "its header cannot be read"),
        (b"[" * 10**5, "nested too deeply"),
        (b'{"a":' * 10**5, "nested too deeply"),
        (b"[" + b"[]," * 10**6 + b"[]]", "more than 524,288 brackets"),
    ],
)
def test_harmful_headers_are_refused(text: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.ks"
    path.write_bytes(fuzz.put_together(text, []))
    assert message in refusal(path)


def test_objects_in_objects_are_refused_when_there_are_too_many(tmp_path: Path) -> None:
    encoder = {"object": "Encoder", "fields": {"columns": [], "means": []}}
    model: Any = encoder
    for _ in range(200):
        model = {"object": "Chain", "fields": {"encoder": encoder, "model": model}}
    about = {"table": {}}
    text = json.dumps({"versions": about, "about": about, "model": model, "arrays": []})
    (tmp_path / "model.ks").write_bytes(fuzz.put_together(text.encode(), []))
    assert "is nested too deeply" in refusal(tmp_path / "model.ks")


def test_nesting_that_json_allows_is_refused(good: Path) -> None:
    nested: Any = []
    for _ in range(200):
        nested = [nested]
    good.write_bytes(altered(good, lambda header, arrays: header.update(about=nested)))
    assert "is nested too deeply" in refusal(good)


def test_a_header_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    for about, message in (
        ({"a": "x" * 2**24}, "more than 16,777,216"),
        ({"a": "[" * 2**19}, "more than 524,288 brackets"),
        ({"a": 10**40}, "a number of 41 digits"),
        ({"a": np.zeros((1, 1, 1, 1, 1))}, r"has the shape \[1, 1, 1, 1, 1\]"),
        ({2**60: 1}, "not a list of keys"),
    ):
        with pytest.raises(ModelFileError, match=f"could not be read again.*{message}"):
            kernelsieve.save(KernelRidge(), tmp_path / "model.ks", about=about)
    assert list(tmp_path.iterdir()) == []


def test_texts_are_not_padded_to_any_width(files: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "model.ks"

    def edit(header: Any, arrays: list[bytes]) -> None:
        field(header, "fitted.classes_")[0]["classes_"]["width"] = 2**40

    path.write_bytes(altered(files["classifier, three"], edit))
    assert "do not fit the width" in refusal(path)


def test_loading_runs_imports_and_opens_nothing(files: dict[str, Path]) -> None:
    """An audit hook sees every import, compilation, execution, unpickling and new process."""
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "from pathlib import Path\n"
        "from kernelsieve import persistence\n"
        "import numpy as np, warnings\n"
        "from support import model_file_mutations as fuzz\n"
        "warnings.simplefilter('ignore')\n"
        "watch, scratch = fuzz.Watch(), Path(sys.argv[1])\n"
        "paths = [Path(p) for p in sys.argv[2:]]\n"
        "parts = [fuzz.take_apart('', p.read_bytes()) for p in paths]\n"
        "loaded = 0\n"
        "for case in range(len(paths) + 500):\n"
        "    path = paths[case] if case < len(paths) else scratch\n"
        "    if path is scratch:\n"
        "        path.write_bytes(fuzz.mutate(np.random.default_rng(case), parts))\n"
        "    watch.on = True\n"
        "    try:\n"
        "        persistence.load(path)\n"
        "        loaded += 1\n"
        "    except persistence.ModelFileError:\n"
        "        pass\n"
        "    watch.on = False\n"
        "print(loaded, watch.seen)\n"
        "watch.on = True\n"
        "import pickle\n"
        "pickle.loads(pickle.dumps(Path))\n"
        "exec('pass')\n"
        "watch.on = False\n"
        "print({event.split()[0] for event in watch.seen})\n"
    )
    scratch = next(iter(files.values())).with_name("scratch.ks")
    loads, control = run_python(code, scratch, *files.values()).splitlines()
    count, seen = loads.split(maxsplit=1)
    assert int(count) > len(files)
    assert seen == "[]"
    assert "pickle.find_class" in control  # the hook does see
    assert "exec" in control


@needs_fork
def test_some_mutated_files(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "fuzz_model_files.py",
            "--cases",
            "500",
            "--keep",
            tmp_path,
        ],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=TESTS,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "500 mutated model files: 0 bad" in done.stdout


SABOTAGE = """
import sys; sys.path.insert(0, '.')
from support import model_file_mutations as fuzz
from kernelsieve import _state
from kernelsieve.sketches.osnap import SampledOSNAP

_state.check_range = lambda *arguments: None
SampledOSNAP._complete = lambda self: None
sys.argv = ["fuzz", "--cases", "4000", "--keep", sys.argv[1]]
print("code", fuzz.main())
"""


@needs_fork
@pytest.mark.slow
def test_the_fuzz_command_finds_planted_faults(tmp_path: Path) -> None:
    """Without the checks of indices some files crash, and the command says so."""
    printed = run_python(SABOTAGE, tmp_path)
    assert "'crashed'" in printed
    assert "code 1" in printed
    assert list(tmp_path.glob("*.ks"))


KILLER = """
import os, random, signal, sys, time
import numpy as np
from kernelsieve import KernelRidge, FourierFeatures, load, save
path, times = sys.argv[1], int(sys.argv[2])
models = []
for seed in (0, 1):
    X = np.random.default_rng(seed).normal(size=(50, 3))
    models.append(KernelRidge(FourierFeatures(1000, random_state=seed)).fit(X, X[:, 0]))
expected = [model.predict(X).tobytes() for model in models]
save(models[0], path)
began = time.perf_counter()
save(models[1], path)
length = time.perf_counter() - began
random.seed(0)
def unfinished():
    return len(os.listdir(os.path.dirname(path))) - 1

killed = 0
while killed < times or (unfinished() < 5 and killed < 40 * times):
    killed += 1
    child = os.fork()
    if child == 0:
        while True:
            for model in models:
                save(model, path)
    time.sleep(random.uniform(0.0, 3.0 * length))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert load(path).predict(X).tobytes() in expected
print(unfinished())
"""


@pytest.mark.slow
@needs_fork
def test_a_killed_save_leaves_a_good_file(tmp_path: Path) -> None:
    unfinished = int(run_python(KILLER, tmp_path / "model.ks", "50"))
    assert unfinished >= 5  # as many were killed while they wrote: otherwise it shows nothing


def test_a_save_that_fails_leaves_the_old_file(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = good.read_bytes()

    def full_disk(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(_container, "_places", full_disk)
    with pytest.raises(OSError, match="no space left"):
        kernelsieve.save(small_models.build("ridge, names"), good)
    assert good.read_bytes() == before
    assert [path.name for path in good.parent.iterdir()] == ["model.ks"]


def test_layouts_of_memory_come_back(tmp_path: Path) -> None:
    """BLAS multiplies in another order where an array lies in another one."""
    arrays = {
        "rows": np.arange(6.0).reshape(2, 3),
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "strided": np.asfortranarray(np.arange(24.0).reshape(4, 6))[::2, ::-2],
        "big": np.arange(6, dtype=">i4"),
        "empty": np.empty((0, 3)),
        "truth": np.array([True, False]),
        "mapped": np.memmap(tmp_path / "numbers", dtype=np.float32, mode="w+", shape=(3,)),
    }
    kernelsieve.save(KernelRidge(), tmp_path / "model.ks", about=arrays)
    found = persistence.read(tmp_path / "model.ks").about
    for name, array in arrays.items():
        assert np.array_equal(found[name], array), name
        assert found[name].dtype == array.dtype.newbyteorder("="), name
    assert found["rows"].flags.c_contiguous
    assert found["columns"].flags.f_contiguous
    assert found["strided"].flags.f_contiguous


def test_landmarks_whose_columns_are_out_of_order(tmp_path: Path) -> None:
    landmarks = sp.csr_array(
        (np.array([1.0, 2.0, 3.0]), np.array([2, 0, 1]), np.array([0, 2, 3])), shape=(2, 4)
    )
    features = NystromFeatures(landmarks=landmarks).fit(small_models.sparse_rows())
    kernelsieve.save(features, tmp_path / "map.ks")
    loaded = kernelsieve.load(tmp_path / "map.ks")
    assert np.array_equal(loaded.landmarks.toarray(), landmarks.toarray())
    assert said(loaded) == said(features)
    assert landmarks.indices.tolist() == [2, 0, 1]  # the user's own array


def test_data_without_end(tmp_path: Path) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ModelFileError, match="nested too deeply"):
        kernelsieve.save(KernelRidge(), tmp_path / "model.ks", about={"a": endless})


def test_a_kernel_with_parameters_of_its_own(tmp_path: Path) -> None:
    features = NystromFeatures(5, kernel=Polynomial(4, np.float32(0.5), 2), random_state=0)
    features.fit(small_models.rows())
    kernelsieve.save(features, tmp_path / "map.ks")
    loaded = kernelsieve.load(tmp_path / "map.ks")
    assert loaded.kernel_ == features.kernel_
    assert said(loaded) == said(features)


def test_labels_of_every_kind(tmp_path: Path) -> None:
    X = small_models.rows()
    for values in (np.array([1, 2], "u1"), np.array([0.5, 1.5]), np.array(["a", "bé"], object)):
        y = values[(small_models.target(X) > 0).astype(int)]
        if y.dtype.kind == "f":
            y = y.astype(int)
        model = KernelRidgeClassifier(RowNormFeatures(6, random_state=0)).fit(X, y)
        kernelsieve.save(model, tmp_path / "model.ks")
        loaded = kernelsieve.load(tmp_path / "model.ks")
        assert loaded.classes_.dtype == model.classes_.dtype
        assert loaded.predict(X).tolist() == model.predict(X).tolist()
