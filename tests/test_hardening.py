"""Bad and awkward input for every estimator: the right answer, or an error that says what to do."""

from __future__ import annotations

import inspect
import re
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score
from support import hardening
from support.hardening import (
    CLASSIFIERS,
    DENSE_FORMS,
    ESTIMATORS,
    MALFORMED,
    MAPS,
    MODELS,
    RIDGES,
    SPARSE_FORMS,
    answers,
    check_answers,
    dense,
    quietly,
    takes_sparse,
    target,
)

import kernelsieve as ks
from kernelsieve import kernels
from kernelsieve.models.scores import Regressor
from kernelsieve.sources.stream import BlockSource
from kernelsieve.tables.facts import scores
from kernelsieve.tables.table import as_table
from kernelsieve.testing import data as shapes

N, D = 24, 4


def data(n: int = N, d: int = D) -> Any:
    return shapes.points(n, d, seed=3)


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
    X = shapes.sparse_points(N, 6)
    features = MAPS["RowNormFeatures"](center=False)
    A = sp.csr_matrix(X)
    expected = answers(fitted(name, A, features=features), A)
    for form, change in SPARSE_FORMS.items():
        other = change(X)
        assert_same(answers(fitted(name, other, features=features), other), expected, 1e-9, form)


@pytest.mark.parametrize("name", ["RowNormFeatures", "NystromFeatures", *MODELS])
def test_other_numbers_become_float64(name: str) -> None:
    for dtype in (np.float16, np.int8, np.uint16, bool, object, np.longdouble):
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
        "time zones": (
            numbers.assign(b=times),
            r"column 'b' of X holds dates or times \(datetime64\[.*, Europe/Amsterdam\]\): convert",
        ),
        "times": (numbers.assign(b=times.tz_localize(None)), "column 'b' of X holds dates"),
        "durations": (numbers.assign(b=times - times[0]), "column 'b' of X holds dates or times"),
        "polars dates": (
            pl.DataFrame({"a": [1.0], "b": [datetime(2024, 1, 1, tzinfo=UTC)]}),
            r"column 'b' of X holds dates or times \(Datetime.*UTC",
        ),
        "strings": (numbers.assign(b=list("uvwxyz")), "could not convert string"),
        "categories": (numbers.assign(b=pd.Categorical(list("uvwxyz"))), "could not convert"),
        "missing": (numbers.assign(b=missing), "NaN"),
        "polars strings": (pl.DataFrame({"a": [1.0, 2.0], "b": ["u", "v"]}), "could not convert"),
        "polars missing": (pl.DataFrame({"a": [1.0, 2.0], "b": [1.0, None]}), "NaN"),
    }


@pytest.mark.parametrize("name", ["RowNormFeatures", *MODELS])
def test_frames_that_are_no_numbers(name: str) -> None:
    for frame, words in bad_frames().values():
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
    "times": (np.full((N, D), np.datetime64("2024-01-01")), "X holds dates or times"),
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


WITH_LENGTHS: dict[str, Callable[[], Any]] = {
    **ESTIMATORS,
    "ConformalRegressor": lambda: ks.ConformalRegressor(MODELS["KernelRidge"]()),
    "ConformalRegressor jackknife+": lambda: ks.ConformalRegressor(
        MODELS["KernelRidge"](), method="jackknife+"
    ),
    "ConformalRegressor scaled": lambda: ks.ConformalRegressor(
        MODELS["KernelRidge"](), scaled=True
    ),
    "KernelQuantileRegressor": lambda: ks.KernelQuantileRegressor(
        features=MAPS["RowNormFeatures"]()
    ),
    "TableModel": lambda: ks.TableModel(n_components=10, gamma=0.1, alpha=0.1),
}


@pytest.mark.parametrize("length", [1, N - 1, N + 1, 2 * N])
@pytest.mark.parametrize("name", WITH_LENGTHS)
def test_targets_and_weights_of_other_rows(name: str, length: int) -> None:
    """Also of estimators that do not look at them."""
    X = data()
    words = rf"inconsistent numbers of samples: \[{N}, {length}\]|{length} (rows|values) (for|and)"
    y = np.arange(length) % 2
    with pytest.raises(ValueError, match=f"{words}|and y has {length}: pass two views"):
        WITH_LENGTHS[name]().fit(X, y)
    estimator = WITH_LENGTHS[name]()
    if "sample_weight" in inspect.signature(estimator.fit).parameters:
        with pytest.raises(ValueError, match=rf"sample_weight.shape == \({length},\)"):
            estimator.fit(X, np.arange(N) % 2, sample_weight=np.ones(length))


@pytest.mark.parametrize("features", [500, "adaptive", ks.NystromFeatures, [1.0]])
@pytest.mark.parametrize("kind", [
    ks.KernelRidge, ks.KernelRidgeCV, ks.KernelRidgeClassifier, ks.KernelSVC, ks.KernelPCA,
    ks.KernelKMeans, ks.KernelCCA, ks.KernelQuantileRegressor,
])  # fmt: skip
def test_what_is_no_map(kind: Any, features: Any) -> None:
    model = kind(features=features)
    assert repr(model)
    copies = [model] if inspect.isclass(features) else [model, clone(model)]
    for each in copies:
        with pytest.raises(TypeError, match=r"features=.* is not a feature map: pass one"):
            each.fit(data(), np.arange(N) % 2)


@pytest.mark.parametrize("method", ["split", "jackknife+"])
def test_intervals_of_what_is_no_model(method: str) -> None:
    model = clone(ks.ConformalRegressor(500, method=method))
    with pytest.raises(TypeError, match="model=500 is not a KernelRidge or KernelRidgeCV"):
        model.fit(data(), data()[:, 0])


def test_a_second_map_that_is_none() -> None:
    with pytest.raises(TypeError, match="features=500 is not a feature map"):
        ks.KernelCCA(1, MAPS["RowNormFeatures"](), features_y=500).fit(data(), data())


REGRESSORS: dict[str, Callable[[], Any]] = {
    **{name: ESTIMATORS[name] for name in RIDGES},
    **{name: build for name, build in WITH_LENGTHS.items() if "Regressor" in name},
    "KernelCCA": MODELS["KernelCCA"],
    "TableModel": WITH_LENGTHS["TableModel"],
}


@pytest.mark.parametrize("size", [1e300, 1e200, 1e151])
@pytest.mark.parametrize("name", REGRESSORS)
def test_targets_whose_squares_overflow(name: str, size: float) -> None:
    X = data()
    words = "squares overflow|squared errors overflow|whose square exceeds"
    with pytest.raises(ValueError, match=words):
        quietly(REGRESSORS[name]().fit, X, size * X[:, 0])


class Column(Regressor):
    """Predicts a column, in some unit."""

    def __init__(self, unit: float) -> None:
        self.unit = unit

    def predict(self, X: Any) -> Any:
        return self.unit * X[:, 0]


@pytest.mark.parametrize("unit", [2.0**1020, 2.0**550, 1.0, 2.0**-600, 2.0**-1000])
def test_scores_do_not_depend_on_the_unit(unit: float) -> None:
    """R2 was minus infinity or NaN for huge targets, and 1 for tiny ones."""
    X = data()
    y = X[:, 0] + 0.3 * X[:, 1]
    expected = r2_score(y, X[:, 0])
    assert quietly(Column(unit).score, X, unit * y) == expected
    found = quietly(scores, unit * y, unit * X[:, 0])
    assert found["R2"] == pytest.approx(expected)
    assert found["RMSE"] == pytest.approx(unit * 0.3 * np.sqrt(np.mean(X[:, 1] ** 2)))
    for name in RIDGES:
        assert isinstance(ESTIMATORS[name](), Regressor)
    assert issubclass(ks.ConformalRegressor, Regressor)


@pytest.mark.parametrize("unit", [2.0**480, 2.0**-700, 2.0**-900])
def test_quantiles_do_not_depend_on_the_unit(unit: float) -> None:
    X, y = data(100), data(100)[:, 0]
    features = MAPS["RowNormFeatures"]()
    model = partial(ks.KernelQuantileRegressor, features=features, random_state=0)
    expected = quietly(model().fit, X, y).predict(X)
    np.testing.assert_allclose(quietly(model().fit, X, unit * y).predict(X) / unit, expected)


@pytest.mark.parametrize("kind", MALFORMED)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_malformed_sparse_rows(name: str, kind: str) -> None:
    """Compiled code trusts indices: these ended the process, or gave an output."""
    X = data()
    if not takes_sparse(ESTIMATORS[name]()):
        pytest.skip("takes no sparse rows")
    with pytest.raises(ValueError, match="malformed sparse matrix"):
        fitted(name, MALFORMED[kind](X), target(name, X))
    estimator = fitted(name, X)
    methods = ["transform", "predict", "decision_function", "predict_proba"]
    methods += ["fit_transform", "fit_predict", "score"]
    if name != "KernelRidge refined":
        methods += ["partial_fit"]
    for method in filter(partial(hasattr, estimator), methods):
        more = [target(name, X)] if method in ("fit_transform", "partial_fit", "score") else []
        with pytest.raises(ValueError, match="malformed sparse matrix"):
            getattr(estimator, method)(MALFORMED[kind](X), *more)


WITH_POINTS: dict[str, Callable[[Any], Any]] = {
    **{f"{type(k).__name__}": k for k in (
        kernels.Gaussian(0.5), kernels.Laplacian(0.5), kernels.Matern(), kernels.Polynomial(2),
        kernels.Exponential(), kernels.InversePolynomial(), kernels.ArcCosine(1),
        kernels.NeuralTangent(), kernels.SmoothLaplacian(0.5), kernels.Product(0.5),
        kernels.Pairwise("cosine"),
    )},
    "Gaussian, second rows": lambda X: kernels.Gaussian(0.5)(data(), X),
    "Gaussian, diagonal": lambda X: kernels.Gaussian(0.5).diag(X),
    "Product, points": lambda X: kernels.Product(0.5).points(X),
    "OSNAP": lambda X: ks.sketches.OSNAP(D, 8).sample(0).apply(X),
    "SRHT": lambda X: ks.sketches.SRHT(D, 8).sample(0).apply(X),
    "TensorSketch": lambda X: ks.sketches.TensorSketch(D, 8, 2).sample(0).apply(X),
    "a stream of blocks": lambda X: MODELS["KernelRidge"]().fit(
        BlockSource([(X, np.arange(N * 1.0))])
    ),
    "estimates": lambda X: ks.diagnostics.estimate_statistical_dimension(
        kernels.Gaussian(0.5), X, 1.0
    ),
    "spectral_epsilon": lambda X: ks.diagnostics.spectral_epsilon(np.eye(N), X, alpha=1.0),
    "landmarks": lambda X: ks.NystromFeatures(5, landmarks=X).fit(data()),
    "a second view": lambda X: ks.KernelCCA(1, MAPS["RowNormFeatures"]()).fit(data(), X),
    "a table": lambda X: as_table(X),
}  # fmt: skip


@pytest.mark.parametrize("kind", MALFORMED)
@pytest.mark.parametrize("name", WITH_POINTS)
def test_malformed_sparse_points(name: str, kind: str) -> None:
    """Kernels, sketches, sources, diagnostics, landmarks, second views and tables."""
    with pytest.raises(ValueError, match="malformed sparse matrix"):
        WITH_POINTS[name](MALFORMED[kind](data()))


def test_indices_that_were_changed_are_looked_at_again() -> None:
    """A matrix remembers that its indices were sorted; spare entries are not read."""
    X = sp.csr_array(data())
    assert X.has_canonical_format
    expected = kernels.Gaussian(0.5)(X)
    X.indices[:2], X.data[:2] = X.indices[:2][::-1].copy(), X.data[:2][::-1].copy()
    np.testing.assert_array_equal(kernels.Gaussian(0.5)(X), expected)
    Y = sp.csr_array(data())
    Y.indices, Y.data = np.append(Y.indices, 10**8).astype(np.int32), np.append(Y.data, np.nan)
    with pytest.raises(ValueError, match="NaN"):
        kernels.Gaussian(0.5)(Y)
    Y.data[-1] = 1.0
    np.testing.assert_array_equal(kernels.Gaussian(0.5)(Y), expected)


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
        with pytest.raises(ValueError, match=re.escape(f"y reaches {reach:.3g}")):
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
    for y in (halves, np.where(halves, "yes", "no"), np.where(halves, 1e6, -1e6)):
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
        default = inspect.signature(type((MAPS | MODELS)[name]())).parameters[parameter].default
        cases.extend(
            pytest.param(name, parameter, value, id=f"{name}-{parameter}={value!r}")
            for value in values
            if value is not None or default is not None  # a default of None is no mistake
        )

    for name in MAPS:
        known = MAPS[name]().get_params()
        add(name, "n_components", [v for v in COUNT if "auto" not in name or v != "auto"])
        if "gamma" in known:
            add(name, "gamma", [v for v in POSITIVE if v is not None])
        if "alpha" in known and not re.search("Fourier(?!.*modified)", name):
            add(name, "alpha", POSITIVE)
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


# --- awkward but legal data ----------------------------------------------------------------------

AWKWARD: dict[str, Any] = {
    "one row": data(1),
    "one column": data(d=1),
    "one number": np.ones((1, 1)),
    "one zero": np.zeros((1, 1)),
    "two rows": data(2),
    "constant": np.full((N, D), 2.5),
    "a constant column": np.where(np.arange(D) == 2, 3.0, data()),
    "all zero": np.zeros((N, D)),
    "zero rows": np.where(np.arange(N)[:, None] % 3 == 0, 0.0, data()),
    "repeated rows": np.repeat(data(2), N // 2, axis=0),
    "repeated columns": np.repeat(data(d=1), D, axis=1),
    "more columns than rows": data(5, 40),
}
KINDS = [
    (name, kernel)
    for name in MAPS
    for kernel in ("gaussian", "linear", "poly")
    if kernel in hardening.KERNELS[name] and "paper" not in name
    if kernel != "poly" or name == "TensorSketchFeatures"
]


@pytest.mark.parametrize(("name", "kernel"), KINDS)
def test_maps_on_awkward_data(name: str, kernel: str) -> None:
    """Finite features of at least one column, whatever the kernel (the linear one may be zero)."""
    for number, (what, X) in enumerate(AWKWARD.items()):
        rows = X.astype((np.float64, np.float32)[number % 2])
        if number % 3 and takes_sparse(MAPS[name](kernel=kernel)):
            rows = sp.csr_array(rows)
        options = {"coef0": 0.0} if kernel == "poly" else {}
        estimator = fitted(name, rows, kernel=kernel, **options)
        found = quietly(answers, estimator, rows)
        assert found["transform"].shape[1] >= 1, what
        check_answers(found, rows)


def needs(name: str) -> int:
    """The fewest rows that this model can be fitted to."""
    if name == "KernelRidgeCV":
        return 2  # leaving one row out
    return 4 if name in CLASSIFIERS or "folds" in name or "KMeans" in name else 1


@pytest.mark.parametrize("features", ["RowNormFeatures", "NystromFeatures", "FourierFeatures"])
@pytest.mark.parametrize("name", MODELS)
def test_models_on_awkward_data(name: str, features: str) -> None:
    for X in AWKWARD.values():
        if len(X) < needs(name):
            continue
        kernel = "gaussian" if features == "FourierFeatures" else "linear"
        estimator = fitted(name, X, features=MAPS[features](kernel=kernel))
        check_answers(quietly(answers, estimator, X), X)


def test_too_few_rows() -> None:
    for name in CLASSIFIERS:
        with pytest.raises(ValueError, match="at least 2 classes"):
            fitted(name, data(1))
    with pytest.raises(ValueError, match=r"n_samples=1 should be >= n_clusters=2: ask for fewer"):
        fitted("KernelKMeans", data(1))
    with pytest.raises(ValueError, match=r"n_splits=2 .* n_samples=1"):
        fitted("KernelRidgeCV folds", data(1))
    with pytest.raises(ValueError, match="X has 24 rows and y has 23"):
        fitted("KernelCCA", data(), data(N - 1))


@pytest.mark.parametrize("name", [*RIDGES, "KernelPCA", "KernelCCA"])
def test_more_features_than_rows(name: str) -> None:
    """With n < s the answers are those of all features; a ridge has them at any n."""
    X = data(6)
    features = MAPS["FourierFeatures"](n_components=50)
    estimator = fitted(name, X, features=features)
    assert estimator.features_.n_components_ == 50
    check_answers(quietly(answers, estimator, X), X)


# --- large and small numbers ---------------------------------------------------------------------

FLOAT_RANGE = [
    *((np.float64, 10.0**k) for k in (-300, -160, -150, -100, 100, 149, 160, 300)),
    *((np.float32, 10.0**k) for k in (-38, -30, -20, 18, 20, 30, 38)),
]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_largest_and_smallest_numbers(name: str) -> None:
    numbers_of_size(name, [(np.float64, 1e-300), (np.float64, 1e300)], "scale")
    numbers_of_size(name, [(np.float32, 1e30), (np.float32, 1e38)], 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", ["scale", 1.0])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_numbers_of_any_size(name: str, gamma: Any) -> None:
    numbers_of_size(name, FLOAT_RANGE, gamma)


def numbers_of_size(name: str, sizes: list[tuple[Any, float]], gamma: Any) -> None:
    """Finite answers, or an error that tells the value, the row or what to scale."""
    for dtype, scale in sizes:
        with np.errstate(all="ignore"):
            X = (data() * scale).astype(dtype)
        X = X.clip(np.finfo(dtype).min, np.finfo(dtype).max)
        for rows in (X, sp.csr_array(X)):
            inner = {"gamma": gamma} if "gamma" in ESTIMATORS[name]().get_params() else {}
            if name in MODELS:
                inner = {"features": MAPS["RowNormFeatures"](gamma=gamma)}
            if sp.issparse(rows) and not takes_sparse(ESTIMATORS[name](**inner)):
                continue
            for train in (rows, data().astype(dtype)):
                try:
                    estimator = fitted(name, train, **inner)
                    check_answers(quietly(answers, estimator, rows), rows)
                except ValueError as error:
                    if not re.search(r"e[+-]\d\d|scale", str(error)):
                        raise


@pytest.mark.parametrize("scale", [1e-150, 1e-100, 1e100, 1e149])
@pytest.mark.parametrize(
    "name", ["RowNormFeatures", "RowNormFeatures mercer", "FourierFeatures", "NystromFeatures",
             "ObliviousFeatures", "MaclaurinFeatures"]
)  # fmt: skip
def test_units_do_not_matter(name: str, scale: float) -> None:
    """Metres or parsecs: gamma='scale' makes the same features of both."""
    X = data(40)
    Z = dense(fitted(name, X).transform(X))
    scaled = dense(fitted(name, scale * X).transform(scale * X))
    np.testing.assert_allclose(scaled, Z, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-18, 1e18])
def test_units_do_not_matter_in_float32(scale: float) -> None:
    X = data(40)
    for kernel in ("gaussian", "poly"):
        expected = oracles_gram(kernel, X)
        rows = (scale * X).astype(np.float32)
        for name in ("RowNormFeatures monomial", "NystromFeatures"):
            if (name, kernel) == ("RowNormFeatures monomial", "gaussian"):
                continue  # all monomials of degree 2 are few, those of the Gaussian are not
            Z = dense(fitted(name, rows, kernel=kernel, degree=2, n_components=200).transform(rows))
            np.testing.assert_allclose(Z @ Z.T, expected, atol=2e-3 * expected.max())


def oracles_gram(kernel: str, X: Any) -> Any:
    gamma = 1.0 / (X.shape[1] * X.var())
    if kernel == "gaussian":
        return oracles.gram(oracles.gaussian, X, gamma=gamma)
    return oracles.gram(oracles.polynomial, X, degree=2, gamma=gamma, coef0=1.0)


@pytest.mark.parametrize("gamma", [1e-300, 1e-40, 1e40, 1e300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_gamma_in_an_exact_kernel(dtype: Any, gamma: float) -> None:
    """The points undo gamma: (gamma <x, y> + 1)^2 is what it is at gamma = 1, or is refused."""
    X = data()
    with np.errstate(all="ignore"):
        rows = (X / np.sqrt(gamma)).astype(dtype)
    expected = oracles.gram(oracles.polynomial, X, degree=2, gamma=1.0, coef0=1.0)
    try:
        K = quietly(kernels.Polynomial(2, gamma), rows)
    except ValueError as error:
        assert dtype == np.float32, error  # noqa: PT017
        assert "infinity" in str(error)  # noqa: PT017
        return
    if rows.any() and np.abs(rows).max() > 1e4 * np.finfo(dtype).tiny:
        np.testing.assert_allclose(K, expected, rtol=1e-5)


@pytest.mark.parametrize("radius", [1e2, 1e4, 1e6])
def test_a_large_radius(radius: float) -> None:
    """Where a Taylor series is too long the error says so, and what it recommends works."""
    rng = np.random.default_rng(0)
    X = radius * rng.standard_normal((40, 3))
    X[20:] = X[:20] + 0.5 * rng.standard_normal((20, 3))
    K = oracles.gram(oracles.gaussian, X, gamma=0.5)
    for name in ("RowNormFeatures monomial", "ObliviousFeatures", "MaclaurinFeatures"):
        with pytest.raises(
            ValueError, match=r"row \d+ has .* NystromFeatures, or the Mercer basis"
        ):
            fitted(name, X, gamma=0.5)
    sampled = fitted("RowNormFeatures mercer", X, gamma=0.5, n_components=40).transform(X)
    assert np.isfinite(sampled).all()
    for name in ("NystromFeatures", "AutoFeatures"):
        Z = fitted(name, X, gamma=0.5, n_components=40).transform(X)
        np.testing.assert_allclose(Z @ Z.T, K, atol=1e-6)
    Z = fitted("FourierFeatures", X, gamma=0.5, n_components=4000).transform(X)
    assert np.abs(Z @ Z.T - K).max() < 6.0 / np.sqrt(4000 / 2)  # six deviations of a mean cosine


def test_the_mercer_basis_reaches_further_than_a_series() -> None:
    X = np.random.default_rng(0).uniform(-21.0, 21.0, size=(60, 1))
    with pytest.raises(ValueError, match="max_degree=256"):
        fitted("RowNormFeatures monomial", X, gamma=0.5)
    Z = fitted("RowNormFeatures mercer", X, gamma=0.5, n_components=400).transform(X)
    np.testing.assert_allclose(Z @ Z.T, oracles.gram(oracles.gaussian, X, gamma=0.5), atol=1e-5)


def test_a_solver_that_would_not_end() -> None:
    """liblinear's line search loops for ever once a squared gradient overflows."""
    X = np.linspace(-20.0, 20.0, 18)[:, None]
    features = MAPS["RowNormFeatures"](kernel="poly", degree=6, gamma=1e28, coef0=0.0)
    words = r"features reach .*e\+\d+, too large for liblinear to converge at C=1: scale X"
    with pytest.raises(ValueError, match=words):
        fitted("KernelSVC", X, np.arange(18) % 3, features=features)


# --- many columns --------------------------------------------------------------------------------

WIDE = 10**6


@pytest.mark.parametrize(
    "name",
    [
        *("AdaptiveFeatures", "RowNormFeatures", "FourierFeatures", "FourierFeatures structured"),
        *("NystromFeatures", "NystromFeatures leverage", "ObliviousFeatures", "AutoFeatures"),
        *("TensorSketchFeatures", "MaclaurinFeatures"),
    ],
)
def test_a_million_columns(name: str) -> None:
    """Of sparse rows, without a dense matrix of columns x features (here 512 MiB)."""
    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(40), 5)
    A = sp.csr_array((rng.random(200), (rows, rng.integers(WIDE, size=200))), shape=(40, WIDE))
    # The frequencies of plain Fourier features are that matrix: a few of them.
    options = {"n_components": 8 if name == "FourierFeatures" else 64}
    tracemalloc.start()
    try:
        estimator = fitted(name, A, **options)
        Z = dense(estimator.transform(A))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.isfinite(Z).all()
    allowed = 700 if name == "MaclaurinFeatures" else 250  # signs of 64 features at a time
    assert peak < allowed * 2**20, f"{peak / 2**20:.0f} MiB"


# --- random data ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ESTIMATORS)
def test_random_data_and_options(name: str) -> None:
    """Finite answers of the right shape and type, or a ValueError; never a warning of ours.

    `python tests/fuzz_estimators.py --cases 5000` runs many more.
    """

    @settings(max_examples=4 if "paper" in name or "leverage" in name else 8)
    @given(hardening.cases(name))
    def run(case: hardening.Case) -> None:
        assert "without a word" not in case.run()

    run()
