"""ONNX files say what the models say, and what cannot be exported is refused with a reason."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)

import kernelsieve
from kernelsieve import (
    AdaptiveFeatures,
    AutoFeatures,
    BinningFeatures,
    FourierFeatures,
    GegenbauerFeatures,
    KernelCCA,
    KernelKMeans,
    KernelPCA,
    KernelRidge,
    KernelRidgeClassifier,
    KernelRidgeCV,
    KernelSVC,
    MaclaurinFeatures,
    NetworkFeatures,
    NystromFeatures,
    ObliviousFeatures,
    ResidualFeatures,
    RowNormFeatures,
    TableModel,
    TensorSketchFeatures,
)
from kernelsieve.export import ExportError, ExportNotice, export_onnx, graph
from kernelsieve.kernels import (
    ArcCosine,
    DotProduct,
    Exponential,
    InversePolynomial,
    Laplacian,
    Matern,
    Product,
    Warp,
)
from kernelsieve.kernels.missing import Reference
from kernelsieve.tables.categories import MOST_LEVELS, OTHER
from kernelsieve.tables.table import TableNotice

pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

LIMITS = {"float32": 1e-5, "float64": 1e-10}  # of the predictions' standard deviation


def rows(n: int = 250, seed: int = 0, missing: bool = False) -> Any:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    X[:, 4] = rng.integers(0, 4 + seed, n)  # new rows have a category more
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    return X


def target(X: Any) -> Any:
    X = np.nan_to_num(X)
    return X[:, 0] * X[:, 1] + np.sin(2.0 * X[:, 2]) + 0.1 * X[:, 4]


def product(families: Any = None) -> Product:
    kinds = ("identity", "log", "rank", "rank", "identity")
    warps = [Warp.fit(rows()[:, i], kind) for i, kind in enumerate(kinds)]
    mixed = ("gaussian", "laplacian", "matern32", "matern52", "categorical")
    return Product([0.5, 0.4, 0.7, 0.3, 0.8], families or mixed, warps)


def run(model: Any, inputs: Any, tmp_path: Path, dtype: str = "float64") -> list[Any]:
    """What onnxruntime makes of a model."""
    path = tmp_path / "model.onnx"
    export_onnx(model, path, dtype=dtype)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def check(model: Any, X: Any, tmp_path: Path, method: str = "predict") -> None:
    """Compare a file with the model on rows, in both float types, and on a single row."""
    for dtype, limit in LIMITS.items():
        given = X.astype(dtype)
        expected = getattr(model, method)(given.astype(np.float64))
        (found,) = run(model, {"X": given}, tmp_path, dtype)
        assert found.shape == expected.shape
        assert found.dtype == np.dtype(dtype)
        assert np.abs(found - expected).max() <= limit * expected.std()
        session = ort.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
        (one,) = session.run(None, {"X": given[:1]})
        assert np.abs(one - expected[:1]).max() <= limit * expected.std()


MAPS = {
    "adaptive": AdaptiveFeatures(60, random_state=0),
    "monomials": AdaptiveFeatures(60, basis="monomial", random_state=0),
    "rotated": AdaptiveFeatures(60, basis="mercer", rotate=True, random_state=0),
    "polynomial": AdaptiveFeatures(40, kernel="poly", gamma=0.1, random_state=0),
    "row norm": RowNormFeatures(60, random_state=0),
    "constant": RowNormFeatures(1, kernel=Product(0.0), random_state=0),
    "product": AdaptiveFeatures(60, kernel=product(), random_state=0),
    "tents": AdaptiveFeatures(150, kernel=product("laplacian"), random_state=0),
    "auto": AutoFeatures(40, kernel="gaussian", random_state=0),
    "landmarks": NystromFeatures(40, random_state=0),
    "fourier": FourierFeatures(41, random_state=0),
    "fourier of a product": FourierFeatures(41, kernel=product(), random_state=0),
    "phases": FourierFeatures(30, variant="phase", random_state=0),
    "structured": FourierFeatures(40, frequencies="structured", random_state=0),
    "tensor sketch": TensorSketchFeatures(33, gamma=0.1, random_state=0),
    "residual": ResidualFeatures(40, gamma=0.1, random_state=0),
    "residual, no landmarks": ResidualFeatures(20, landmark_share=0.0, gamma=0.1, random_state=0),
    "residual, Laplacian": ResidualFeatures(30, kernel=Laplacian(0.2), random_state=0),
    "Gegenbauer, Gaussian": GegenbauerFeatures(40, gamma=0.1, random_state=0),
    "Gegenbauer, polynomial": GegenbauerFeatures(40, kernel="poly", gamma=0.1, random_state=0),
    "Gegenbauer, angle": GegenbauerFeatures(40, kernel="ntk", random_state=0),
    "Gegenbauer, arc-cosine": GegenbauerFeatures(40, kernel=ArcCosine(0), random_state=0),
    "network, tangents": NetworkFeatures(60, kernel="ntk", random_state=0),
    "network, ReLU": NetworkFeatures(60, kernel=ArcCosine(1), random_state=0),
    "network, squares": NetworkFeatures(60, kernel=ArcCosine(2), random_state=0),
    "network, sketched": NetworkFeatures(
        60, kernel=ArcCosine(1), layers="sketched", random_state=0
    ),
    "linear sketch": TensorSketchFeatures(33, degree=1, coef0=0.0, gamma=0.1, random_state=0),
}


@pytest.mark.parametrize("name", MAPS)
def test_feature_maps_and_ridges_on_them(name: str, tmp_path: Path) -> None:
    X = rows()
    model = KernelRidge(MAPS[name], alpha=0.1).fit(X, target(X))
    if name != "constant":  # predictions that do not vary have no standard deviation
        check(model, rows(100, seed=1), tmp_path)
        check(model.features_, rows(100, seed=1), tmp_path, "transform")
    (found,) = run(model, {"X": rows(3)}, tmp_path)
    np.testing.assert_allclose(found, model.predict(rows(3)), rtol=1e-10)


def test_a_ridge_on_the_automatic_map_of_a_learned_kernel(tmp_path: Path) -> None:
    X = rows()
    model = KernelRidge(AutoFeatures(40, random_state=0), alpha=0.1).fit(X, target(X))
    check(model, rows(100, seed=1), tmp_path)


KERNELS = [
    "gaussian",
    Laplacian(0.2),
    Matern(2.0, 0.5),
    Matern(2.0, 1.5),
    Matern(2.0, 2.5),
    Exponential(0.05),
    InversePolynomial(500.0),
    DotProduct((1.0, 0.0, 0.1, 0.05)),
    "poly",
    "cosine",
    product(),
    product("gaussian"),
    product("matern52"),
    Product((0.0,) * 5),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: str(kernel)[:30])
def test_exact_kernels(kernel: Any, tmp_path: Path) -> None:
    X, new = rows(80), rows(50, seed=1)
    gamma = {"gamma": 0.1} if isinstance(kernel, str) else {}
    model = NystromFeatures(8, kernel=kernel, **gamma, random_state=0).fit(X)
    (found,) = run(model, {"X": new}, tmp_path)
    np.testing.assert_allclose(found, model.transform(new), atol=1e-10)


@pytest.mark.parametrize("refine", [False, True])
def test_missing_values(refine: bool, tmp_path: Path) -> None:
    X = rows(missing=True)
    X[:, 4] = rows()[:, 4]  # missing in new rows only
    features = NystromFeatures(40, kernel=product(), random_state=0) if refine else MAPS["product"]
    model = KernelRidge(features, alpha=0.1, refine=refine).fit(X, target(X))
    check(model, rows(100, seed=1, missing=True), tmp_path)


def test_the_learned_kernel_is_exported_in_its_exact_form(tmp_path: Path) -> None:
    X = rows(150)
    noise = 0.3 * np.random.default_rng(0).normal(size=150)  # for a ridge that is not tiny
    model = KernelRidgeCV(random_state=0).fit(X, target(X) + noise)
    assert hasattr(model.model_, "dual_coef_")
    check(model, rows(100, seed=1), tmp_path)


def test_several_outputs_and_components(tmp_path: Path) -> None:
    X = rows()
    both = np.column_stack([target(X), X[:, 0] ** 2])
    check(KernelRidge(MAPS["adaptive"], alpha=0.1).fit(X, both), rows(50, seed=1), tmp_path)
    check(KernelPCA(3, MAPS["adaptive"]).fit(X), rows(50, seed=1), tmp_path, "transform")
    means = KernelKMeans(4, MAPS["adaptive"], random_state=0).fit(X)
    (found,) = run(means, {"X": rows(50, seed=1)}, tmp_path)
    np.testing.assert_array_equal(found, means.predict(rows(50, seed=1)))


@pytest.mark.parametrize("kind", [KernelRidgeClassifier, KernelSVC])
@pytest.mark.parametrize("labels", [["no", "yes"], [3, 5, 9], [False, True], [-1.0, 1.0]])
def test_classifiers(kind: Any, labels: list[Any], tmp_path: Path) -> None:
    X, new = rows(), rows(100, seed=1)
    edges = np.quantile(target(X), np.linspace(0, 1, len(labels) + 1)[1:-1])
    y = np.array(labels)[np.searchsorted(edges, target(X))]
    model = kind(MAPS["adaptive"]).fit(X, y)
    found, chances = run(model, {"X": new}, tmp_path)
    np.testing.assert_array_equal(found, model.predict(new))
    np.testing.assert_allclose(chances, model.predict_proba(new), atol=1e-10)


@pytest.mark.parametrize(
    "scaler",
    [
        StandardScaler(),
        StandardScaler(with_mean=False),
        RobustScaler(),
        MinMaxScaler((-1, 1), clip=True),
        MaxAbsScaler(),
        "passthrough",
        make_pipeline(SimpleImputer(strategy="median"), StandardScaler()),
        make_column_transformer(
            (StandardScaler(), [0, 1]),
            ("drop", [3]),
            (OneHotEncoder(handle_unknown="ignore"), [4]),
            remainder="passthrough",
        ),
        make_column_transformer(
            (OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), [4]),
            (MinMaxScaler(), slice(0, 3)),
        ),
    ],
    ids=str,
)
def test_steps_of_scikit_learn(scaler: Any, tmp_path: Path) -> None:
    X, new = rows(), rows(60, seed=1)
    if "Imputer" in str(scaler):
        X, new = rows(missing=True), rows(60, seed=1, missing=True)
    model = make_pipeline(scaler, KernelRidge(AdaptiveFeatures(50, random_state=0), alpha=0.1))
    check(model.fit(X, target(X)), new, tmp_path)


def test_columns_of_texts_are_inputs_of_their_own(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    X = rows()
    frame = pd.DataFrame(
        {"a": X[:, 0], "b": X[:, 1], "town": np.array([*"uvwx"])[X[:, 4].astype(int)]}
    )
    encoder = make_column_transformer(
        (StandardScaler(), ["a", "b"]),
        (OneHotEncoder(drop="first", handle_unknown="ignore"), ["town"]),
    )
    model = make_pipeline(encoder, KernelRidge(AdaptiveFeatures(50, random_state=0), alpha=0.1))
    model.fit(frame, target(X))
    inputs = {name: frame[[name]].to_numpy()[:20] for name in frame}
    inputs["town"] = inputs["town"].astype(object)
    (found,) = run(model, inputs, tmp_path)
    np.testing.assert_allclose(found, model.predict(frame[:20]), rtol=1e-9, atol=1e-9)


def flats(n: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    times = np.datetime64("2019-01-01T00:00:00") + rng.integers(0, 86_400 * 900, n)
    size = rng.uniform(20, 150, n)
    size[rng.random(n) < 0.1] = np.nan
    towns = rng.choice(["Ulm", "Bonn", "Köln", "Aue"][: 3 + seed], n).astype(object)
    towns[rng.random(n) < 0.1] = None
    street = np.array([f"street {i}" for i in rng.integers(0, 30, n)], dtype=object)
    return {"size": size, "town": towns, "street": street, "built": times.astype(str)}


@pytest.mark.filterwarnings("ignore::kernelsieve.tables.TableNotice")
@pytest.mark.parametrize("dtype", LIMITS)
def test_tables_with_texts_times_and_missing_values(dtype: str, tmp_path: Path) -> None:
    table = flats(400, 0)
    hours = table["built"].astype("datetime64[s]").astype(np.int64) % 86_400 / 3600
    table["rent"] = np.nan_to_num(table["size"], nan=80) + hours * (table["town"] == "Ulm")
    model = TableModel("rent", n_components=60, method="adaptive").fit(table)
    assert {column.title for column in model.encoder_.columns_} >= {"built day of year", "street"}
    new = flats(100, 1)
    expected = model.predict(new)
    seconds = new["built"].astype("datetime64[s]").astype(np.float64)
    inputs = {"size": new["size"].astype(dtype), "built": seconds}
    for name in ("town", "street"):
        inputs[name] = np.array(["" if v is None else v for v in new[name]], dtype=object)
    (found,) = run(model, inputs, tmp_path, dtype)
    assert np.abs(found - expected).max() <= LIMITS[dtype] * expected.std()


def test_a_learned_table_model_has_its_linear_part(tmp_path: Path) -> None:
    X = rows(200)
    table = {"a": X[:, 0], "b": X[:, 1], "y": 5.0 * X[:, 0] + np.sin(X[:, 1]) + 0.3 * X[:, 2]}
    model = TableModel("y").fit(table)
    (found,) = run(model, {"a": X[:9, 0], "b": X[:9, 1]}, tmp_path)
    np.testing.assert_allclose(found, model.predict({"a": X[:9, 0], "b": X[:9, 1]}), rtol=1e-8)


def test_steps_that_only_scale_or_are_frozen(tmp_path: Path) -> None:
    X, new = rows(), rows(60, seed=1)
    ridge = KernelRidge(AdaptiveFeatures(50, random_state=0), alpha=0.1)
    for step in (RobustScaler(with_centering=False), FrozenEstimator(StandardScaler().fit(X))):
        check(make_pipeline(step, ridge).fit(X, target(X)), new, tmp_path)


@pytest.mark.filterwarnings("ignore:Skipping features without any observed values")
@pytest.mark.parametrize(
    "imputer",
    [
        SimpleImputer(),
        SimpleImputer(keep_empty_features=True),
        SimpleImputer(strategy="constant", fill_value=2.5),
    ],
    ids=str,
)
def test_imputers_of_columns_that_were_empty(imputer: Any, tmp_path: Path) -> None:
    X, new = rows(missing=True), rows(60, seed=1, missing=True)
    y = target(X)
    X[:, 3] = np.nan
    model = make_pipeline(imputer, KernelRidge(MAPS["row norm"], alpha=0.1)).fit(X, y)
    check(model, new, tmp_path)
    assert model[-1].n_features_in_ == imputer.fit_transform(X).shape[1]


def coded(n: int, seed: int) -> Any:
    """Numbers that are codes, some of them missing."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 4, size=(n, 2)).astype(np.float64)
    codes[rng.random(codes.shape) < 0.2] = np.nan
    return codes


@pytest.mark.parametrize(
    "step", [OneHotEncoder(sparse_output=False), OrdinalEncoder(encoded_missing_value=-1)]
)
def test_a_missing_code_is_a_category(step: Any, tmp_path: Path) -> None:
    X, new = coded(200, 0), coded(60, 1)
    y = np.nan_to_num(X[:, 0], nan=7.0) + np.isnan(X[:, 1])
    model = make_pipeline(step, KernelRidge(MAPS["row norm"], alpha=0.01)).fit(X, y)
    check(model, new, tmp_path)


def test_frozen_encoders_of_texts(tmp_path: Path) -> None:
    towns = np.array([["Ulm"], ["Bonn"], ["Kiel"]] * 20, dtype=object)
    frozen = FrozenEstimator(OneHotEncoder(sparse_output=False).fit(towns))
    y = np.tile([1.0, 2.0, 5.0], 20)
    model = make_pipeline(frozen, KernelRidge(MAPS["row norm"], alpha=0.01)).fit(towns, y)
    (found,) = run(model, {"x0": towns[:6]}, tmp_path)
    np.testing.assert_allclose(found, model.predict(towns[:6]), rtol=1e-9)


def gappy_texts() -> Any:
    return np.array([["Ulm"], [None], ["Bonn"], ["Ulm"]] * 10, dtype=object)


REFUSED_STEPS: dict[str, tuple[Any, Any, str]] = {
    "an imputer of a number": (
        SimpleImputer(missing_values=-1.0),
        lambda: rows(40),
        "only missing_values=nan without add_indicator",
    ),
    "an imputer that tells": (
        SimpleImputer(add_indicator=True),
        lambda: rows(40, missing=True),
        "only missing_values=nan without add_indicator",
    ),
    "an imputer of texts": (
        make_pipeline(
            SimpleImputer(missing_values=None, strategy="most_frequent"),
            OneHotEncoder(sparse_output=False),
        ),
        gappy_texts,
        "a column of texts reaches a step that takes numbers: encode it first",
    ),
    "a missing text": (
        OneHotEncoder(sparse_output=False),
        gappy_texts,
        "are not all texts, and ONNX has no missing text: replace missing values",
    ),
    "rare categories": (
        OneHotEncoder(min_frequency=15, sparse_output=False),
        lambda: coded(40, 0),
        "infrequent categories cannot be exported: leave out min_frequency",
    ),
    "rare numbers": (
        OrdinalEncoder(max_categories=2, encoded_missing_value=-1),
        lambda: coded(40, 0),
        "an OrdinalEncoder with infrequent categories",
    ),
    "codes that stay missing": (
        make_pipeline(OrdinalEncoder(), SimpleImputer()),
        lambda: coded(40, 0),
        "leaves missing values missing cannot be exported: set encoded_missing_value to a number",
    ),
}


@pytest.mark.parametrize("case", REFUSED_STEPS)
def test_steps_without_a_counterpart_are_refused(case: str, tmp_path: Path) -> None:
    step, given, reason = REFUSED_STEPS[case]
    X = given()
    model = make_pipeline(step, KernelRidge(MAPS["row norm"])).fit(X, np.arange(40.0))
    with pytest.raises(ExportError, match=reason):
        export_onnx(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_maps_of_a_constant_alone(tmp_path: Path) -> None:
    X = rows()
    for basis in ("monomial", "mercer"):
        features = RowNormFeatures(1, gamma=1e-9, basis=basis, rotate=False, random_state=0).fit(X)
        (found,) = run(features, {"X": X}, tmp_path)
        np.testing.assert_allclose(found, np.ones((250, 1)), rtol=1e-6)  # the kernel is 1
        np.testing.assert_allclose(found, features.transform(X), rtol=1e-12)


def test_warps_that_are_no_more_than_scales(tmp_path: Path) -> None:
    X = rows()
    warps = [Warp.fit(X[:, i], "identity") for i in range(5)]
    features = NystromFeatures(40, kernel=Product(0.5, "matern32", warps), random_state=0).fit(X)
    (found,) = run(features, {"X": X}, tmp_path)
    np.testing.assert_allclose(found, features.transform(X), rtol=1e-8, atol=1e-10)


def test_a_column_that_was_always_missing_says_nothing(tmp_path: Path) -> None:
    X, new = rows(missing=True), rows(60, seed=1, missing=True)
    y = target(X)
    X[:, 3] = np.nan
    references = [Reference.of(X[:, i], 50) for i in range(5)]
    kernel = Product([0.5, 0.4, 0.7, 0.3, 0.8], references=references)
    model = KernelRidge(NystromFeatures(30, kernel=kernel, random_state=0), refine=True)
    check(model.fit(X, y), new, tmp_path)
    other = np.where(np.arange(5) == 3, 9.0, new)  # a value where there were none
    np.testing.assert_allclose(model.predict(other), model.predict(new), rtol=1e-9)


def test_a_file_has_2_gb_at_most(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(graph, "LARGEST_FILE", 2_000)
    model = MAPS["landmarks"].fit(rows())
    with pytest.raises(ExportError, match="at most 2 GB: fit it with fewer components"):
        export_onnx(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_tables_with_rare_categories_and_time_between(tmp_path: Path) -> None:
    table, new = flats(2_200, 0), flats(100, 1)
    table["street"] = np.array([f"street {i % (MOST_LEVELS + 30)}" for i in range(2_200)])
    for each, seed in ((table, 2), (new, 3)):
        stay = np.random.default_rng(seed).integers(3_600, 864_000, len(each["built"]))
        each["sold"] = (each["built"].astype("datetime64[s]") + stay).astype(str)
    between = [(t["sold"].astype("datetime64[s]") - t["built"].astype("datetime64[s]"))
               for t in (table, new)]  # fmt: skip
    table["rent"] = between[0].astype(np.float64) / 86_400.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableNotice)
        model = TableModel("rent", n_components=60, method="adaptive", gamma=0.1, alpha=0.1)
        expected = model.fit(table).predict(new)
    assert OTHER in model.encoder_.columns_[2].levels
    assert {column.title for column in model.encoder_.columns_} >= {"sold - built", "street"}
    texts = {name: np.array(["" if v is None else v for v in new[name]], dtype=object)
             for name in ("town", "street")}  # fmt: skip
    times = {name: new[name].astype("datetime64[s]").astype(np.float64)
             for name in ("built", "sold")}  # fmt: skip
    (found,) = run(model, {"size": new["size"], **texts, **times}, tmp_path)
    assert np.abs(found - expected).max() <= 1e-8 * expected.std()


ODD = ["WD ", " WD", "\tWD\u00a0", "wd", "Wd", "Köln", "Ko\u0308ln", "New York", "New  York",
       "a.b", "a+b", "(x|y)", "[z]", "$5", "\\d", "a\0b", "\ud800", "x" * 5_000, "1", "1.0", "01",
       "1e0", "True", "true", "NA", " n/a ", "<NA>", "", " ", "?", "never seen",
       "(other)"]  # fmt: skip


@pytest.mark.parametrize("several", [False, True])  # 0/1 columns, and means of the target
def test_texts_are_compared_as_in_tables(several: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    known = ["WD ", "New York", "Köln", "a.b", "(x|y)", "\\d", "a\0b", "x" * 5_000, "1", "True"]
    known += [f"level {i}" for i in range(30)] if several else []
    table = {"a": rng.normal(size=400), "text": rng.choice(np.array(known, dtype=object), 400)}
    y = np.array([known.index(text) for text in table["text"]]) % 7 + table["a"]
    model = TableModel("y", method="fourier", n_components=40, gamma=0.1, alpha=0.1).fit(table, y)
    assert bool(model.encoder_.columns_[1].means) == several
    texts = np.array([*known, *ODD], dtype=object)
    new = {"a": np.linspace(-1.0, 1.0, len(texts)), "text": texts}
    with pytest.warns(TableNotice):
        expected = model.predict(new)
    whole = texts != "\ud800"  # half a character, which onnxruntime does not take
    (found,) = run(model, {name: values[whole] for name, values in new.items()}, tmp_path)
    np.testing.assert_allclose(found, expected[whole], rtol=1e-10)
    one_by_one = [
        model.predictor()({name: new[name][i] for name in new}) for i in range(len(texts))
    ]
    np.testing.assert_allclose(one_by_one, expected, rtol=1e-10)
    strip = model.predict({"a": [0.0, 0.0], "text": ["WD", " WD\n"]})
    assert strip[0] == strip[1]


def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break the export of categories: texts keep their spaces."""
    from kernelsieve.export import texts

    monkeypatch.setattr(texts, "SPACES", "~")


def town_model() -> TableModel:
    rng = np.random.default_rng(0)
    table = {"year": 2e4 + rng.normal(size=200), "town": rng.choice(["Ulm", "Bonn"], 200)}
    y = table["year"] - 2e4 + 2.0 * (table["town"] == "Ulm")
    return TableModel("y", method="fourier", n_components=20, gamma=0.1, alpha=0.1).fit(table, y)


def test_a_file_that_differs_from_the_model_is_not_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model, path = town_model(), tmp_path / "model.onnx"
    good = {"year": [2e4], "town": ["Ulm"]}
    broken(monkeypatch)
    for rows in (True, {"year": [2e4, 2e4], "town": ["Ulm ", "Bonn"]}):
        with pytest.raises(ExportError, match=r"differs from the model by .* was not written"):
            export_onnx(model, path, check=rows)
        assert not path.exists()
    for rows in (False, good):
        export_onnx(model, path, check=rows)
        path.unlink()


def test_what_float32_costs_is_told(tmp_path: Path) -> None:
    model = town_model()
    with pytest.warns(ExportNotice, match="float32 can change predictions by .*e-0[345] of"):
        export_onnx(model, tmp_path / "model.onnx", dtype="float32")
    X = 1e3 + rows()
    ridge = make_pipeline(StandardScaler(), KernelRidge(MAPS["fourier"], alpha=0.1))
    ridge.fit(X, target(X - 1e3))
    with pytest.warns(ExportNotice, match="Use dtype='float64'"):
        export_onnx(ridge, tmp_path / "model.onnx", dtype="float32", check=X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        export_onnx(ridge, tmp_path / "model.onnx", check=X)


def test_tables_with_sparse_columns_are_refused(tmp_path: Path) -> None:
    X = sp.random_array((60, 30), density=0.2, random_state=0, format="csr")
    model = TableModel("y", n_components=10, gamma=0.1, alpha=0.1, baselines=False)
    model.fit(X, np.asarray(X.sum(axis=1)).ravel())
    with pytest.raises(ExportError, match="the table has sparse columns"):
        export_onnx(model, tmp_path / "model.onnx")


def test_one_column_has_two_angles(tmp_path: Path) -> None:
    X = rows()[:, :1]
    for features in (
        NetworkFeatures(12, kernel="ntk", random_state=0),
        ResidualFeatures(12, kernel="ntk", landmark_share=0.0, random_state=0),
    ):
        (found,) = run(features.fit(X), {"X": X}, tmp_path)
        np.testing.assert_allclose(found, features.transform(X), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found @ found.T, features.kernel_(X), atol=1e-7)


def test_what_cannot_be_exported_is_refused_with_the_reason(tmp_path: Path) -> None:
    X, y = rows(60), target(rows(60))
    path = tmp_path / "model.onnx"
    power = make_pipeline(PowerTransformer(), KernelRidge(MAPS["row norm"])).fit(X, y)
    cases: list[tuple[Any, str]] = [
        (ObliviousFeatures(20, random_state=0).fit(X), "fast transforms"),
        (BinningFeatures(20, kernel="laplacian", random_state=0).fit(X), "hash"),
        (NetworkFeatures(40, layers="sketched", random_state=0).fit(X), "use layers='one'"),
        (MaclaurinFeatures(20, gamma=0.1, random_state=0).fit(X), "holds no matrix"),
        (NystromFeatures(5, kernel=Matern(1.0, 2.2)).fit(X), "Bessel"),
        (NystromFeatures(5, kernel="chi2").fit(np.abs(X)), "no formula"),
        (KernelCCA(2, MAPS["row norm"]).fit(X, X[:, :2]), "KernelCCA"),
        (power, "PowerTransformer"),
    ]
    for model, reason in cases:
        with pytest.raises(ExportError, match=reason):
            export_onnx(model, path)
    assert not path.exists()
    with pytest.raises(ValueError, match="dtype='float16'"):
        export_onnx(cases[0][0], path, dtype="float16")


def test_zero_rows_of_maps_of_the_angle(tmp_path: Path) -> None:
    X = rows()
    zero = np.vstack([np.zeros((1, 5)), X[:2]])
    for features in (
        GegenbauerFeatures(20, kernel="ntk", random_state=0),
        NetworkFeatures(40, kernel=ArcCosine(0), random_state=0),
        NetworkFeatures(40, kernel="ntk", random_state=0),
        GegenbauerFeatures(20, kernel="poly", gamma=0.1, random_state=0),
    ):
        (found,) = run(features.fit(X), {"X": zero}, tmp_path)
        np.testing.assert_allclose(found, features.transform(zero), rtol=1e-9, atol=1e-12)


def test_sparse_rows_are_refused_where_zeros_are_skipped(tmp_path: Path) -> None:
    X = sp.random_array((80, 30), density=0.1, random_state=0, format="csr")
    model = AdaptiveFeatures(20, kernel=Product(0.5), random_state=0).fit(X)
    with pytest.raises(ExportError, match="sparse"):
        export_onnx(model, tmp_path / "model.onnx")
    with pytest.raises(ExportError, match="sparse"):
        export_onnx(NystromFeatures(9, random_state=0).fit(X), tmp_path / "model.onnx")


def test_the_public_name(tmp_path: Path) -> None:
    model = MAPS["row norm"]
    X = rows(60)
    kernelsieve.export_onnx(KernelRidge(model).fit(X, target(X)), tmp_path / "m.onnx")
    import onnx

    file = onnx.load(tmp_path / "m.onnx")
    assert {entry.domain for entry in file.opset_import} == {""}  # standard operators only
    assert file.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from kernelsieve.cli import main

    X = rows(60)
    kernelsieve.save(KernelRidge(MAPS["row norm"]).fit(X, target(X)), tmp_path / "m.ks")
    kernelsieve.save(ObliviousFeatures(20, random_state=0).fit(X), tmp_path / "o.ks")
    for name, code, said in (("m", 0, "Wrote:"), ("o", 2, "fast transforms")):
        with pytest.raises(SystemExit) as ended:
            main(["export", str(tmp_path / f"{name}.ks"), str(tmp_path / f"{name}.onnx")])
        assert ended.value.code == code
        output = capsys.readouterr()
        assert said in output.out + output.err
        assert (tmp_path / f"{name}.onnx").exists() == (code == 0)


def test_the_command_line_for_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from kernelsieve.cli import main

    X, out = rows(60), tmp_path / "m.onnx"
    kernelsieve.save(KernelRidge(MAPS["row norm"]).fit(X, target(X)), tmp_path / "m.ks")
    said = {}
    for option in ("--json", "--quiet"):
        with pytest.raises(SystemExit) as ended:
            main(["export", str(tmp_path / "m.ks"), str(out), option])
        assert ended.value.code == 0
        said[option] = capsys.readouterr().out
    expected = {"out": str(out), "bytes": out.stat().st_size, "notes": []}
    assert json.loads(said["--json"]) == expected
    assert said["--quiet"] == ""
