"""Bad and awkward input for every estimator: the right answer, or an error that says what to do."""

from __future__ import annotations

import re
from typing import Any

import battery
import numpy as np
import pytest
import scipy.sparse as sp
from hardening import (
    CLASSIFIERS,
    DENSE_FORMS,
    ESTIMATORS,
    MAPS,
    MODELS,
    RIDGES,
    SPARSE_FORMS,
    answers,
    dense,
    quietly,
    target,
)
from sklearn.exceptions import NotFittedError

N, D = 24, 4


def data(n: int = N, d: int = D) -> Any:
    return battery.points(n, d, seed=3)


def fitted(name: str, X: Any, y: Any = "suitable", **options: Any) -> Any:
    """The estimator fitted to X, without a warning."""
    y = target(name, X) if isinstance(y, str) else y
    return quietly(ESTIMATORS[name](**options).fit, X, y)


def assert_same(found: dict[str, Any], expected: dict[str, Any], rtol: float, what: str) -> None:
    assert found.keys() == expected.keys()
    for method, value in found.items():
        wanted = dense(expected[method])
        if wanted.dtype.kind != "f":
            np.testing.assert_array_equal(dense(value), wanted, err_msg=f"{method}: {what}")
            continue
        scale = float(np.abs(wanted).max(initial=1.0))
        np.testing.assert_allclose(
            dense(value), wanted, rtol=0, atol=rtol * scale, err_msg=f"{method}: {what}"
        )


# --- the same numbers in other containers --------------------------------------------------------


@pytest.mark.parametrize("name", ESTIMATORS)
def test_layout_in_memory_does_not_matter(name: str) -> None:
    X = data()
    expected = answers(fitted(name, X), X)
    for form, change in DENSE_FORMS.items():
        other = change(X)
        assert_same(answers(fitted(name, other), other), expected, 1e-9, form)


@pytest.mark.parametrize("name", list(MODELS))
def test_sparse_containers_do_not_matter(name: str) -> None:
    X = battery.sparse_points(N, 6)
    features = MAPS["RowNormFeatures"](center=False)
    A = sp.csr_matrix(X)
    expected = answers(fitted(name, A, features=features), A)
    for form, change in SPARSE_FORMS.items():
        other = change(X)
        assert_same(answers(fitted(name, other, features=features), other), expected, 1e-9, form)


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.uint16, bool, object, np.longdouble])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_other_numbers_become_float64(name: str, dtype: Any) -> None:
    X = np.abs(np.round(4 * data()))
    if dtype is bool:
        X = (X > 1).astype(float)
    expected = answers(fitted(name, X), X)
    other = X.astype(dtype)
    found = answers(fitted(name, other), other)
    assert_same(found, expected, 0.0, f"{np.dtype(dtype).name} is not what float64 is")


@pytest.mark.parametrize("name", ["RowNormFeatures", "NystromFeatures", *MODELS])
def test_data_frames(name: str) -> None:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    X = np.round(8 * data())
    expected = answers(fitted(name, X), X)
    columns = {
        "a": X[:, 0],
        "b": X[:, 1].astype(np.int64),
        "c": X[:, 2].astype(np.float32),
        "d": X[:, 3].astype(np.int8),
    }
    for frame in (
        pd.DataFrame(columns),
        pd.DataFrame(columns).convert_dtypes(),  # pandas' own integers, that may be missing
        pd.DataFrame(columns).astype({"d": object}),
        pl.DataFrame(columns),
    ):
        estimator = fitted(name, frame)
        assert list(estimator.feature_names_in_) == list("abcd")
        assert_same(answers(estimator, frame), expected, 1e-9, type(frame).__module__)
    method = "transform" if hasattr(estimator, "transform") else "predict"
    frame = pd.DataFrame(columns)
    with pytest.raises(ValueError, match="feature names should match"):
        getattr(estimator, method)(frame.rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match="feature names should match"):
        getattr(estimator, method)(frame[["b", "a", "c", "d"]])


def bad_frames() -> dict[str, tuple[Any, str]]:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    numbers = pd.DataFrame({"a": np.arange(6.0), "b": np.arange(6.0)})
    times = pd.date_range("2024-01-01", periods=6, tz="Europe/Amsterdam")
    missing = pd.array([1, 2, None, 4, 5, 6], dtype="Int64")
    return {
        "time zones": (numbers.assign(b=times), "DatetimeArray|Timestamp|datetime|DTypePromotion"),
        "times": (numbers.assign(b=times.tz_localize(None)), "datetime|Timestamp|DTypePromotion"),
        "strings": (numbers.assign(b=list("uvwxyz")), "could not convert string"),
        "categories": (numbers.assign(b=pd.Categorical(list("uvwxyz"))), "could not convert"),
        "missing": (numbers.assign(b=missing), "NaN"),
        "polars strings": (pl.DataFrame({"a": [1.0, 2.0], "b": ["u", "v"]}), "could not convert"),
        "polars missing": (pl.DataFrame({"a": [1.0, 2.0], "b": [1.0, None]}), "NaN"),
    }


@pytest.mark.parametrize("kind", ["time zones", "times", "strings", "categories", "missing",
                                  "polars strings", "polars missing"])  # fmt: skip
@pytest.mark.parametrize("name", ["RowNormFeatures", *MODELS])
def test_frames_that_are_no_numbers(name: str, kind: str) -> None:
    frame, words = bad_frames()[kind]
    with pytest.raises((ValueError, TypeError), match=words):
        fitted(name, frame)


# --- no matrix of finite numbers -----------------------------------------------------------------


def spoilt(value: float) -> Any:
    X = data()
    X[2, 3] = value
    return X


BAD_ROWS: dict[str, tuple[Any, str]] = {
    "NaN": (spoilt(np.nan), "NaN"),
    "infinity": (spoilt(np.inf), "infinity"),
    "-infinity": (spoilt(-np.inf), "infinity"),
    "sparse NaN": (sp.csr_array(spoilt(np.nan)), "NaN"),
    "sparse infinity": (sp.csc_matrix(spoilt(np.inf)), "infinity"),
    "no rows": (np.empty((0, D)), "0 sample"),
    "no columns": (np.empty((N, 0)), "0 feature"),
    "1-d": (np.ones(N), "2D array|inconsistent"),
    "3-d": (np.ones((N, 2, 2)), r"dim(ension)?"),
    "complex": (data() + 1j, "[Cc]omplex"),
    "strings": (np.full((N, D), "red"), "could not convert|numeric"),
    "objects": (np.full((N, D), "red", dtype=object), "could not convert string"),
    "lists": ([[1.0, 2.0], [3.0]], "inhomogeneous|setting an array element"),
    "times": (np.full((N, D), np.datetime64("2024-01-01")), "DType|dtype|datetime"),
}


@pytest.mark.parametrize("kind", BAD_ROWS)
@pytest.mark.parametrize("name", MODELS)
def test_models_refuse_what_is_no_matrix_of_numbers(name: str, kind: str) -> None:
    X, words = BAD_ROWS[kind]
    y = target(name, data())
    with pytest.raises((ValueError, TypeError), match=words):
        fitted(name, X, y)
    if kind not in ("no columns", "lists"):
        estimator = fitted(name, data())
        with pytest.raises((ValueError, TypeError), match=words):
            answers(estimator, X)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_before_fit_and_after_another_fit(name: str) -> None:
    for method in ("transform", "predict", "predict_proba", "decision_function"):
        if hasattr(ESTIMATORS[name](), method):
            with pytest.raises(NotFittedError, match="not fitted"):
                getattr(ESTIMATORS[name](), method)(data())
    estimator = fitted(name, data())
    for columns in (D - 1, D + 1):
        with pytest.raises(ValueError, match=f"X has {columns} features, but .* expecting {D}"):
            answers(estimator, data(d=columns))


# --- targets and weights -------------------------------------------------------------------------

BAD_TARGETS: dict[str, tuple[Any, str]] = {
    "too short": (np.zeros(N - 1), "inconsistent|rows"),
    "too long": (np.zeros(N + 1), "inconsistent|rows"),
    "NaN": (np.where(np.arange(N) == 3, np.nan, 1.0), "NaN"),
    "infinity": (np.where(np.arange(N) == 3, np.inf, 1.0), "infinity"),
    "3-d": (np.zeros((N, 2, 2)), "dim|shape"),
    "complex": (np.zeros(N) + 1j, "[Cc]omplex"),
    "None": (None, "requires y|y is None|cannot be None"),
}


@pytest.mark.parametrize("kind", BAD_TARGETS)
@pytest.mark.parametrize("name", [*RIDGES, *CLASSIFIERS, "KernelCCA"])
def test_bad_targets(name: str, kind: str) -> None:
    y, words = BAD_TARGETS[kind]
    with pytest.raises((ValueError, TypeError), match=words):
        fitted(name, data(), y)


@pytest.mark.parametrize("name", RIDGES)
def test_targets_that_are_no_numbers(name: str) -> None:
    with pytest.raises(ValueError, match="could not convert string"):
        fitted(name, data(), np.array(["red", "blue"] * (N // 2)))
    for dtype, reach in ((np.float32, 1e31), (np.float64, 1e151)):
        with pytest.raises(ValueError, match=rf"y reaches {reach:.3g}.*{np.dtype(dtype)}.*scale y"):
            fitted(name, data().astype(dtype), np.full(N, reach))


@pytest.mark.parametrize("name", RIDGES)
def test_a_constant_target_is_predicted(name: str) -> None:
    X = data()
    features = MAPS["FourierFeatures"]()
    if "no intercept" not in name:
        found = fitted(name, X, np.full(N, 7.5), features=features).predict(X)
        np.testing.assert_allclose(found, 7.5, rtol=1e-6)
    assert fitted(name, X, np.zeros(N), features=features).predict(X).tolist() == [0.0] * N


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_labels(name: str) -> None:
    X = data()
    for y in (np.zeros(N), np.array(["red"] * N)):
        with pytest.raises(ValueError, match=r"of class .*: a classifier needs at least 2 classes"):
            fitted(name, X, y)
    with pytest.raises(ValueError, match="Unknown label type"):
        fitted(name, X, np.linspace(0.0, 1.0, N))
    with pytest.raises(ValueError, match=r"NaN|missing"):
        fitted(name, X, np.array(["red", None] * (N // 2), dtype=object))
    halves = np.arange(N) < N // 2
    expected = fitted(name, X, halves.astype(int)).predict(X) == 1
    for y in (halves, np.where(halves, "yes", "no"), np.where(halves, 1e300, -1e300)):
        assert ((fitted(name, X, y).predict(X) == y[0]) == expected).all()


WEIGHTED = [*RIDGES, *CLASSIFIERS, "KernelKMeans", "KernelKMeans passes"]
BAD_WEIGHTS: dict[str, tuple[Any, str]] = {
    "negative": (np.where(np.arange(N) == 2, -1.0, 1.0), "[Nn]egative|>= 0"),
    "NaN": (np.where(np.arange(N) == 2, np.nan, 1.0), "NaN|finite"),
    "infinite": (np.where(np.arange(N) == 2, np.inf, 1.0), "infinity|finite"),
    "all zero": (np.zeros(N), "zero"),
    "too short": (np.ones(N - 1), r"\(23,\)|23"),
    "2-d": (np.ones((N, 1)), "1D array|dim|shape"),
    "strings": (np.full(N, "heavy"), "could not convert|heavy"),
}


@pytest.mark.parametrize("kind", BAD_WEIGHTS)
@pytest.mark.parametrize("name", WEIGHTED)
def test_bad_weights(name: str, kind: str) -> None:
    weights, words = BAD_WEIGHTS[kind]
    X = data()
    with pytest.raises(ValueError, match=words):
        quietly(ESTIMATORS[name]().fit, X, target(name, X), sample_weight=weights)


# --- parameters ----------------------------------------------------------------------------------

POSITIVE = [0, -1, -0.5, np.nan, np.inf, "1", None, True, [1.0]]
COUNT = [0, -1, 2.5, np.nan, "2", True, [2]]


def bad_parameters() -> list[Any]:
    cases = []

    def add(name: str, parameter: str, values: list[Any]) -> None:
        cases.extend(
            pytest.param(name, parameter, value, id=f"{name}-{parameter}={value!r}")
            for value in values
        )

    for name in MAPS:
        known = MAPS[name]().get_params()
        add(name, "n_components", [v for v in COUNT if "auto" not in name or v != "auto"])
        add(name, "gamma", [v for v in POSITIVE if v is not None])
        if "alpha" in known and not re.search("Fourier(?!.*modified)", name):
            add(name, "alpha", [v for v in POSITIVE if v is not None])
        if "eps" in known:
            add(name, "eps", POSITIVE)
        add(name, "n_jobs", [0])
        add(name, "kernel", ["gauss", None, 3, "sigmoid", "precomputed"])
    add("TensorSketchFeatures", "degree", COUNT)
    add("TensorSketchFeatures", "coef0", [-1.0, np.nan, np.inf])
    for name in MODELS:
        known = MODELS[name]().get_params(deep=False)
        if "alpha" in known and name != "KernelPCA":
            add(name, "alpha", POSITIVE)
        add(name, "block_rows", COUNT)
        for parameter in ("n_components", "n_clusters"):
            if parameter in known:
                add(name, parameter, COUNT)
    add("KernelSVC", "C", POSITIVE)
    add("KernelRidge", "solver", ["qr", None, 1])
    add("KernelRidge cg", "tol", POSITIVE)
    add("KernelRidge cg", "max_iter", COUNT)
    add("KernelKMeans passes", "batch_rows", [0, -1, 2.5, "2"])
    add("KernelRidgeCV", "alphas", [[1.0, -1.0], [np.nan], [0.0], ["a"], []])
    add("KernelRidgeCV", "gammas", [[1.0, -1.0], [np.nan], [0.0], ["a"], []])
    add("KernelRidgeClassifier", "class_weight", ["heavy", 3])
    add("KernelSVC", "class_weight", ["heavy", 3])
    for sampled in ("RowNormFeatures", "AdaptiveFeatures"):
        for parameter in ("sampler", "basis", "rotate", "center"):
            add(sampled, parameter, ["other", None, 3])
    add("AdaptiveFeatures", "target_share", [-0.1, 1.1, np.nan, "half"])
    add("FourierFeatures", "variant", ["sin", None])
    add("FourierFeatures", "frequencies", ["other", None])
    add("NystromFeatures", "landmarks", ["best", ""])
    add("ObliviousFeatures", "compress", ["zip", None])
    return cases


@pytest.mark.parametrize(("name", "parameter", "value"), bad_parameters())
def test_bad_parameters(name: str, parameter: str, value: Any) -> None:
    """The error names the parameter and its value."""
    X = data()
    with pytest.raises((ValueError, TypeError), match=rf"\b{parameter}\b|kernel") as error:
        fitted(name, X, target(name, X), **{parameter: value})
    words = str(error.value)
    shown = (
        value[-1]
        if isinstance(value, list) and parameter in ("alphas", "gammas") and value
        else value
    )
    assert repr(shown) in words or str(shown) in words, words


@pytest.mark.parametrize("degree", [0, -1, 1.5, "2", True])
def test_bad_degrees(degree: Any) -> None:
    for name in ("RowNormFeatures", "NystromFeatures", "ObliviousFeatures", "MaclaurinFeatures"):
        with pytest.raises((ValueError, TypeError), match=rf"degree={degree!r}"):
            fitted(name, data(), kernel="poly", degree=degree)
