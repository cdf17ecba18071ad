"""ONNX files say what the models say, and what cannot be exported is refused with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
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
from kernelsieve.export import ExportError, export_onnx
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
    "auto": AutoFeatures(40, random_state=0),
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
    import scipy.sparse as sp

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
