"""One-row predictions are those of predict, also from many threads at once."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from kernelsieve import (
    AdaptiveFeatures,
    AutoFeatures,
    FourierFeatures,
    KernelRidge,
    KernelRidgeClassifier,
    KernelRidgeCV,
    KernelSVC,
    NystromFeatures,
    TableModel,
)
from kernelsieve.kernels import Product, Warp
from kernelsieve.tables.table import TableError, TableNotice


def rows(n: int = 150, missing: bool = False) -> Any:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    return X


def target(X: Any) -> Any:
    X = np.nan_to_num(X)
    return X[:, 0] * X[:, 1] + np.sin(2.0 * X[:, 2])


def product(*families: str) -> Product:
    kinds = ("identity", "log", "rank", "rank")
    warps = [Warp.fit(rows()[:, i], kind) for i, kind in enumerate(kinds)]
    return Product([0.5, 0.4, 0.7, 0.0], families * (4 // len(families)), warps)


MODELS = {
    "products": KernelRidge(AdaptiveFeatures(40, random_state=0)),
    "fourier": KernelRidge(FourierFeatures(41, random_state=0)),
    "auto": KernelRidge(AutoFeatures(30, random_state=0)),
    "landmarks": KernelRidge(NystromFeatures(30, random_state=0)),
    "landmarks of a product": KernelRidge(NystromFeatures(30, kernel=product("gaussian"))),
    "polynomial landmarks": KernelRidge(NystromFeatures(20, kernel="poly", gamma=0.1)),
    "exact": KernelRidge(
        NystromFeatures(20, kernel=product("gaussian", "laplacian")), alpha=0.1, refine=True
    ),
    "learned": KernelRidgeCV(random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_row_is_predicted_as_in_a_table(name: str) -> None:
    X = rows()
    model = MODELS[name].fit(X, target(X))
    predict = model.predictor()
    found = [predict(row) for row in X[:20]]
    np.testing.assert_allclose(found, model.predict(X[:20]), rtol=1e-8, atol=1e-9)
    assert isinstance(found[0], float)


def test_several_outputs_and_missing_values() -> None:
    X = rows(missing=True)
    features = AdaptiveFeatures(40, kernel=product("gaussian", "laplacian"), random_state=0)
    model = KernelRidge(features).fit(X, np.column_stack([target(X), X[:, 0] > 0]))
    found = [model.predictor()(row) for row in X[:20]]
    np.testing.assert_allclose(found, model.predict(X[:20]), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", [KernelRidgeClassifier, KernelSVC])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_and_probabilities(kind: Any, n_classes: int) -> None:
    X = rows()
    edges = np.quantile(target(X), np.linspace(0, 1, n_classes + 1)[1:-1])
    y = np.array(["low", "middle", "high"])[np.searchsorted(edges, target(X))]
    model = kind(AdaptiveFeatures(40, random_state=0)).fit(X, y)
    predict = model.predictor()
    assert [predict(row) for row in X[:20]] == model.predict(X[:20]).tolist()
    chances = [predict.probabilities(row) for row in X[:20]]
    np.testing.assert_allclose(chances, model.predict_proba(X[:20]), rtol=1e-8, atol=1e-12)


def test_threads_may_share_a_predictor() -> None:
    X = rows()
    predict = KernelRidge(AdaptiveFeatures(40, random_state=0)).fit(X, target(X)).predictor()
    alone = [predict(row) for row in X]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert list(pool.map(predict, X)) == alone


def test_a_model_of_sparse_rows_takes_dense_ones() -> None:
    X = rows()
    sparse = sp.csr_array(np.where(X > 0, X, 0.0))
    model = KernelRidge(NystromFeatures(20, gamma=0.2, random_state=0), alpha=0.1, refine=True)
    for refined in (True, False):
        model.set_params(refine=refined).fit(sparse, target(X))
        predict = model.predictor()
        found = [predict(row) for row in sparse.toarray()[:5]]
        np.testing.assert_allclose(found, model.predict(sparse[:5]), rtol=1e-9)


def test_rows_that_the_model_does_not_take() -> None:
    X = rows()
    predict = KernelRidge(AdaptiveFeatures(20, random_state=0)).fit(X, target(X)).predictor()
    with pytest.raises(ValueError, match=r"a row of shape \(2, 4\)"):
        predict(X[:2])
    with pytest.raises(ValueError, match="NaN or infinity"):
        predict([0.0, np.nan, 0.0, 0.0])
    with pytest.raises(AttributeError, match="no probabilities"):
        predict.probabilities(X[0])
    missing = KernelRidge(AdaptiveFeatures(20, kernel=product("gaussian"))).fit(X, target(X))
    with pytest.raises(ValueError, match="contains infinity"):
        missing.predictor()([0.0, np.inf, 0.0, 0.0])


def test_warps_of_columns_are_the_warps_themselves() -> None:
    kernel, X = product("gaussian", "categorical"), rows(200, missing=True) * 3.0
    found = kernel.columns(X, np.array([0, 1, 2]))
    expected = [0.5 * kernel.warps[0](X[:, 0]), X[:, 1], 0.7 * kernel.warps[2](X[:, 2])]
    np.testing.assert_allclose(found, np.column_stack(expected), rtol=1e-14, atol=1e-14)


def test_svc_probabilities_are_calibrated() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    truth = 1.0 / (1.0 + np.exp(-3.0 * X[:, 0] * X[:, 1] - X[:, 2]))
    y = (rng.random(3000) < truth).astype(int)
    model = KernelSVC(AdaptiveFeatures(60, random_state=0), random_state=0).fit(X[:1500], y[:1500])
    chances = model.predict_proba(X[1500:])[:, 1]
    groups = np.digitize(chances, [0.2, 0.4, 0.6, 0.8])
    for group in range(5):
        here = groups == group
        error = y[1500:][here].mean() - chances[here].mean()
        assert abs(error) < 0.05 + 3.0 * 0.5 / np.sqrt(here.sum())  # three deviations, and bias


# --- tables --------------------------------------------------------------------------------------


def flats(n: int = 120) -> dict[str, list[Any]]:
    """Numbers, texts with a unit, categories of few and of many levels, times, missing values."""
    rng = np.random.default_rng(0)
    size = rng.uniform(30.0, 120.0, n).round(1)
    town = rng.choice(["Ulm", "Bonn", "Kiel"], n)
    street = rng.choice([f"street {i}" for i in range(30)], n)
    floor = rng.integers(0, 6, n).astype(float)
    days = np.datetime64("2024-01-01") + rng.integers(0, 300, n)
    hours = rng.integers(0, 24, n)
    rent = 9.0 * size + 80.0 * (town == "Ulm") + 2.0 * hours + 5.0 * rng.normal(size=n)
    absent = rng.random(n) < 0.15
    return {
        "size": size.tolist(),
        "fee": [f"{value:.0f} EUR" for value in rng.uniform(50, 90, n)],
        "town": [None if i % 17 == 0 else str(value) for i, value in enumerate(town)],
        "street": street.tolist(),
        "floor": [None if gone else value for gone, value in zip(absent, floor, strict=True)],
        "seen": [f"{day}T{hour:02d}:30:00" for day, hour in zip(days, hours, strict=True)],
        "let": [str(day + 3) for day in days],
        "rent": rent.tolist(),
    }


@pytest.fixture(scope="module")
def rents() -> TableModel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableNotice)
        return TableModel("rent", n_components=60, gamma=0.02, alpha=0.1).fit(flats())


def row_of(table: dict[str, list[Any]], i: int) -> dict[str, Any]:
    return {name: values[i] for name, values in table.items() if name != "rent"}


def in_a_table(model: TableModel, row: dict[str, Any]) -> Any:
    """The oracle: ``predict`` on a table of one row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableNotice)
        return model.predict({name: [value] for name, value in row.items()})[0]


CHANGES: dict[str, dict[str, Any]] = {
    "as it was": {},
    "a missing number": {"size": None},
    "a missing number that has a column": {"floor": float("nan")},
    "a missing text": {"town": "n/a"},
    "a new town": {"town": "Rome"},
    "a new street": {"street": "Broadway"},
    "a missing street": {"street": None},
    "a number as text": {"size": "61.5"},
    "a whole number": {"size": 61, "floor": np.int32(2)},
    "a decimal": {"size": Decimal("61.5")},
    "another unit": {"fee": "70 USD"},
    "a fee in numbers": {"fee": 70.0},
    "a fee in decimals": {"fee": Decimal("70.5")},
    "a missing time": {"seen": None},
    "a time as datetime": {"seen": datetime(2024, 5, 4, 7, 30)},
    "a time of numpy": {"seen": np.datetime64("2024-05-04T07:30")},
    "no time of numpy": {"seen": np.datetime64("NaT")},
    "a time with a zone": {"seen": datetime(2024, 5, 4, 7, 30, tzinfo=UTC)},
    "a date": {"let": date(2024, 5, 7)},
    "far away": {"size": 1e9},
    "bytes": {"town": b"Bonn"},
    "a number for a town": {"town": 7.0},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_row_of_a_table(rents: TableModel, change: str) -> None:
    row = row_of(flats(), 3) | CHANGES[change]
    found = rents.predictor()(row)
    assert isinstance(found, float)
    assert found == pytest.approx(in_a_table(rents, row), rel=1e-9)


def test_values_of_other_types_in_a_row(tmp_path: Path) -> None:
    """Dates as a file writes them, and categories that are neither texts nor plain numbers."""
    lines = [f"{1 + i % 28:02d}.03.2024;{'uvw'[i % 3]};{i % 28 + 5 * (i % 3)}" for i in range(60)]
    (tmp_path / "a.csv").write_text("\n".join(["day;code;y", *lines]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableNotice)
        model = TableModel("y", n_components=30, gamma=0.1, alpha=0.01, baselines=False)
        model.fit(tmp_path / "a.csv")
    predict = model.predictor()
    for row in (
        {"day": "09.03.2024", "code": "u"},
        {"day": date(2024, 3, 9), "code": "v"},
        {"day": "n/a", "code": "v"},
        {"day": "09.03.2024", "code": Decimal("7")},
        {"day": "09.03.2024", "code": date(2024, 3, 9)},
        {"day": "09.03.2024", "code": Decimal("NaN")},
    ):
        assert predict(row) == pytest.approx(in_a_table(model, row), rel=1e-9)
    late, early = (predict({"day": f"{day}.03.2024", "code": "u"}) for day in ("25", "02"))
    assert late - early == pytest.approx(23.0, abs=3.0)


def test_all_rows_of_a_table_and_rows_without_names(rents: TableModel) -> None:
    table, predict = flats(), rents.predictor()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableNotice)
        expected = rents.predict(table)
    np.testing.assert_allclose([predict(row_of(table, i)) for i in range(120)], expected, rtol=1e-9)
    row = row_of(table, 5)
    assert predict([row[name] for name in predict.columns]) == predict(row)


def test_a_learned_table_and_its_linear_part() -> None:
    table = {name: values for name, values in flats().items() if name in ("size", "town", "rent")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableNotice)
        model = TableModel("rent").fit(table)
    assert np.abs(model.model_.coef_).max() > 1.0, "there is no linear part"
    for i in range(5):
        row = row_of(table, i)
        assert model.predictor()(row) == pytest.approx(in_a_table(model, row), rel=1e-8)


def test_labels_of_a_table() -> None:
    table = flats()
    dear = np.where(np.array(table.pop("rent")) > 700, "dear", "cheap").tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableNotice)
        model = TableModel("price", n_components=40, gamma=0.02, alpha=0.1)
        model.fit(table | {"price": dear})
        expected = model.predict_proba(table)
    predict = model.predictor()
    rows = [row_of(table, i) for i in range(20)]
    np.testing.assert_allclose([predict.probabilities(r) for r in rows], expected[:20], atol=1e-9)
    assert [predict(r) for r in rows] == model.classes_[expected[:20].argmax(axis=1)].tolist()


def test_threads_share_a_predictor_of_a_table(rents: TableModel) -> None:
    table, predict = flats(), rents.predictor()
    rows = [row_of(table, i) for i in range(120)] * 3
    alone = [predict(row) for row in rows]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(predict, rows)) == alone


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": "large"}, "column 'size' is 'large', and in training it held numbers"),
        ({"size": float("inf")}, "column 'size' is inf"),
        ({"seen": "yesterday"}, "column 'seen' is 'yesterday', and in training it held times"),
        ({"fee": date(2024, 5, 7)}, "column 'fee' is '2024-05-07', and in training it held num"),
        ({"seen": 17.0}, "column 'seen' is 17.0, and in training it held times"),
        ({"town": [1]}, "column 'town' holds list values"),
    ],
)
def test_what_a_row_of_a_table_must_be(
    rents: TableModel, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(TableError, match=message):
        rents.predictor()(row_of(flats(), 3) | change)


def test_columns_that_a_row_lacks(rents: TableModel) -> None:
    predict = rents.predictor()
    row = row_of(flats(), 3)
    del row["town"], row["seen"]
    with pytest.raises(TableError, match=r"the row lacks .*town.*seen"):
        predict(row)
    with pytest.raises(TableError, match="the row has 2 values, and the model uses 7 columns"):
        predict([1.0, 2.0])


def test_strict_tables_and_sparse_ones() -> None:
    table = {name: flats()[name] for name in ("size", "street", "rent")}
    model = TableModel("rent", n_components=30, gamma=0.02, alpha=0.1, strict=True).fit(table)
    predict = model.predictor()
    row = row_of(table, 0)
    assert predict(row) == pytest.approx(in_a_table(model, row), rel=1e-9)
    with pytest.raises(TableError, match=r"column 'size' is missing \(strict mode\)"):
        predict(row | {"size": None})
    with pytest.raises(TableError, match="column 'street' is missing"):
        predict(row | {"street": None})
    with pytest.raises(TableError, match="'Broadway' was not in training"):
        predict(row | {"street": "Broadway"})
    words = sp.random(80, 50, density=0.1, format="csr", random_state=0)
    sparse = TableModel("y", n_components=10, gamma=0.1, alpha=1.0).fit(words, np.arange(80.0))
    with pytest.raises(TableError, match="is for dense columns"):
        sparse.predictor()
