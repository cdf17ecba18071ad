"""Model files of scikit-learn's pipelines of known steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

import kernelsieve
from kernelsieve import KernelRidge, KernelRidgeClassifier, RowNormFeatures
from kernelsieve._state import InvalidStateError
from kernelsieve.persistence import ModelFileError
from kernelsieve.persistence._registry import registered
from kernelsieve.persistence._sklearn import STEPS

X = np.random.default_rng(0).normal(3.0, 2.0, size=(80, 3))


def ridge() -> KernelRidge:
    return KernelRidge(RowNormFeatures(20, random_state=0), alpha=0.1)


def again(model: Any, path: Path) -> Any:
    kernelsieve.save(model, path / "m.ks")
    return kernelsieve.load(path / "m.ks")


@pytest.mark.parametrize(
    "step",
    [StandardScaler(), StandardScaler(with_mean=False), MinMaxScaler((-1, 1)), MaxAbsScaler(),
     RobustScaler(quantile_range=(10.0, 90.0)), SimpleImputer(strategy="median"), "passthrough"],
    ids=str,
)  # fmt: skip
def test_scalers_come_back(step: Any, tmp_path: Path) -> None:
    model = make_pipeline(step, ridge())
    assert str(again(model, tmp_path)) == str(model)
    model.fit(X, X[:, 0] * X[:, 1])
    loaded = again(model, tmp_path)
    assert str(loaded) == str(model)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    gaps = np.where(np.arange(3) == 1, np.nan, X[:4])
    if isinstance(step, SimpleImputer):
        np.testing.assert_array_equal(loaded.predict(gaps), model.predict(gaps))


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "size": X[:, 0],
            "town": rng.choice(["Ulm", "Bonn", "Köln"], 80),
            "floor": rng.integers(0, 4, 80),
            "grade": rng.choice(["low", "mid", "high"], 80),
            "rest": X[:, 1],
        }
    )


def columns(remainder: str = "drop") -> ColumnTransformer:
    return ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["size"]),
            ("town", OneHotEncoder(handle_unknown="ignore"), ["town", "floor"]),
            ("grade", OrdinalEncoder(categories=[["low", "mid", "high"]]), ["grade"]),
        ],
        remainder=remainder,
    )


@pytest.mark.parametrize("remainder", ["drop", "passthrough"])
def test_column_transformers_come_back(remainder: str, tmp_path: Path) -> None:
    table = frame()
    y = np.where(table["size"] > 3, "large", "small")
    features = RowNormFeatures(20, random_state=0)
    model = make_pipeline(columns(remainder), KernelRidgeClassifier(features)).fit(table, y)
    loaded = again(model, tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba(table), model.predict_proba(table))
    assert loaded[0].get_feature_names_out().tolist() == model[0].get_feature_names_out().tolist()
    new = table.assign(town="Kiel")
    np.testing.assert_array_equal(loaded.predict_proba(new), model.predict_proba(new))
    assert loaded.fit(table, y).score(table, y) == model.score(table, y)  # as it was before a fit


def test_other_steps_are_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="PCA, which a model file does not hold"):
        kernelsieve.save(make_pipeline(PCA(2), ridge()), tmp_path / "m.ks")
    with pytest.raises(ModelFileError, match="dtype"):
        kernelsieve.save(OneHotEncoder(dtype=np.float32), tmp_path / "m.ks")
    assert not list(tmp_path.iterdir())


def test_what_a_column_transformer_of_a_file_cannot_have(tmp_path: Path) -> None:
    for transformer, reason in (
        (ColumnTransformer([("a", StandardScaler(), [0])], remainder=MinMaxScaler()),
         "remainder is an estimator: a file holds 'drop' and 'passthrough' only"),
        (ColumnTransformer([("a", StandardScaler(), slice(0, 2))]), "columns are slice"),
        (ColumnTransformer([("a", StandardScaler(), [0, True])]), "columns are .0, True.: a"),
    ):  # fmt: skip
        with pytest.raises(ModelFileError, match=reason):
            kernelsieve.save(make_pipeline(transformer, ridge()), tmp_path / "m.ks")
    assert not list(tmp_path.iterdir())


def test_a_column_by_its_name_and_a_transformer_that_was_not_fitted(tmp_path: Path) -> None:
    fresh = ColumnTransformer([("a", StandardScaler(), [0, 1])], remainder="passthrough")
    assert str(again(fresh, tmp_path)) == str(fresh)
    np.testing.assert_array_equal(again(fresh, tmp_path).fit_transform(X), fresh.fit_transform(X))
    named = ColumnTransformer([("a", "passthrough", "size"), ("b", "drop", ["rest"])])
    assert str(again(named, tmp_path)) == str(named)


def test_steps_that_are_none_are_refused() -> None:
    pipeline, transformer = STEPS["Pipeline"], STEPS["ColumnTransformer"]
    for step, reason in (
        ([1, StandardScaler()], r"steps\[0\] is not a named step"),
        (["a"], r"steps\[0\] is not a named step"),
        (["a", "eval"], r"steps\[0\] has no estimator"),
    ):
        with pytest.raises(InvalidStateError, match=reason):
            pipeline.from_state({"steps": [step]})
    state = transformer.get_state(ColumnTransformer([("a", "drop", [0])]))
    with pytest.raises(InvalidStateError, match=r"columns are \[\]: a file holds names"):
        transformer.from_state({**state, "steps": [["a", "drop", []]]})


def test_only_registered_objects_are_models() -> None:
    with pytest.raises(InvalidStateError, match="model is a dict, not an object of a registered"):
        registered({}, "model", {})
