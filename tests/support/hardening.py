"""Every public estimator, every container of numbers, and what counts as a right answer.

Shared by `test_hardening.py` and the command `fuzz_estimators.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

import kernelsieve as ks
from kernelsieve import kernels
from kernelsieve.testing import data as shapes

Array = NDArray[Any]
Build = Callable[..., Any]

# --- every estimator -----------------------------------------------------------------------------

SMALL: dict[str, Any] = {"random_state": 0, "n_jobs": 1}


def _map(kind: Any, **options: Any) -> Build:
    return partial(kind, **{"n_components": 12, **SMALL, **options})


# Every map with every option that changes what is computed.
MAPS: dict[str, Build] = {
    "AdaptiveFeatures": _map(ks.AdaptiveFeatures),
    "AdaptiveFeatures leverage": _map(ks.AdaptiveFeatures, sampler="leverage"),
    "AdaptiveFeatures paper": _map(ks.AdaptiveFeatures, sampler="paper"),
    "AdaptiveFeatures auto size": _map(ks.AdaptiveFeatures, n_components="auto"),
    "RowNormFeatures": _map(ks.RowNormFeatures),
    "RowNormFeatures monomial": _map(ks.RowNormFeatures, basis="monomial", rotate=False),
    "RowNormFeatures rotated": _map(ks.RowNormFeatures, basis="monomial", rotate=True),
    "RowNormFeatures mercer": _map(ks.RowNormFeatures, basis="mercer", rotate=False),
    "RowNormFeatures paper": _map(ks.RowNormFeatures, sampler="paper"),
    "FourierFeatures": _map(ks.FourierFeatures),
    "FourierFeatures phase": _map(ks.FourierFeatures, variant="phase"),
    "FourierFeatures orthogonal": _map(ks.FourierFeatures, frequencies="orthogonal"),
    "FourierFeatures structured": _map(ks.FourierFeatures, frequencies="structured"),
    "FourierFeatures modified": _map(ks.FourierFeatures, frequencies="modified"),
    "NystromFeatures": _map(ks.NystromFeatures),
    "NystromFeatures leverage": _map(ks.NystromFeatures, landmarks="leverage"),
    "NystromFeatures rpcholesky": _map(ks.NystromFeatures, landmarks="rpcholesky"),
    "NystromFeatures oversampled": _map(ks.NystromFeatures, oversample=3),
    "NystromFeatures kmeans": _map(ks.NystromFeatures, landmarks="kmeans"),
    "ObliviousFeatures": _map(ks.ObliviousFeatures),
    "ObliviousFeatures gaussian": _map(ks.ObliviousFeatures, compress="gaussian"),
    "TensorSketchFeatures": _map(ks.TensorSketchFeatures),
    "MaclaurinFeatures": _map(ks.MaclaurinFeatures),
    "BinningFeatures": _map(ks.BinningFeatures, kernel="laplacian"),
    "ResidualFeatures": _map(ks.ResidualFeatures),
    "GegenbauerFeatures": _map(ks.GegenbauerFeatures),
    "NetworkFeatures": _map(ks.NetworkFeatures),
    "AutoFeatures": _map(ks.AutoFeatures),
}

SERIES = ("gaussian", "poly", "exponential", "inverse_polynomial", "linear")
KERNELS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(MAPS, SERIES),
    **{name: ("gaussian", "laplacian", "matern") for name in MAPS if "Fourier" in name},
    **{name: ("gaussian", "matern") for name in MAPS if name[16:] in ("orthogonal", "structured")},
    "FourierFeatures modified": ("gaussian", "matern"),
    **{
        name: (*SERIES, "laplacian", "matern", "cosine", "chi2")
        for name in MAPS
        if "Nystrom" in name or "Auto" in name
    },
    "TensorSketchFeatures": ("poly",),
    "GegenbauerFeatures": (*SERIES, "arccos0", "arccos2", "ntk"),
    "ResidualFeatures": (*SERIES, "laplacian", "matern", "smooth_laplacian", "ntk"),
    "BinningFeatures": ("laplacian", "smooth_laplacian"),
    "NetworkFeatures": ("arccos0", "arccos1", "arccos2", "ntk"),
    "RowNormFeatures mercer": ("gaussian",),
}


def _model(kind: Any, **options: Any) -> Build:
    def build(features: Any = None, **overrides: Any) -> Any:
        features = MAPS["RowNormFeatures"]() if features is None else features
        known = kind().get_params(deep=False)
        given = {"features": features, **SMALL, **options, **overrides}
        return kind(**{name: value for name, value in given.items() if name in known})

    return build


MODELS: dict[str, Build] = {
    "KernelRidge": _model(ks.KernelRidge),
    "KernelRidge cg": _model(ks.KernelRidge, solver="cg"),
    "KernelRidge refined": _model(ks.KernelRidge, refine=True),
    "KernelRidge no intercept": _model(ks.KernelRidge, fit_intercept=False),
    "KernelRidgeCV": _model(ks.KernelRidgeCV, alphas=[1e-3, 1e3]),
    "KernelRidgeCV folds": _model(ks.KernelRidgeCV, alphas=[1e-3, 1.0], cv=2),
    "KernelRidgeClassifier": _model(ks.KernelRidgeClassifier),
    "KernelSVC": _model(ks.KernelSVC),
    "KernelPCA": _model(ks.KernelPCA),
    "KernelPCA and back": _model(ks.KernelPCA, fit_inverse_transform=True),
    "KernelKMeans": _model(ks.KernelKMeans, n_clusters=2),
    "KernelKMeans passes": _model(ks.KernelKMeans, n_clusters=2, batch_rows=4),
    "KernelCCA": _model(ks.KernelCCA),
}
ESTIMATORS = {**MAPS, **MODELS}
CLASSIFIERS = [name for name in MODELS if "Classifier" in name or "SVC" in name]
RIDGES = [name for name in MODELS if name.startswith("KernelRidge") and "Class" not in name]
WITHOUT_TARGET = [name for name in MODELS if "PCA" in name or "KMeans" in name]


def target(name: str, X: Any, seed: int = 0) -> Array | None:
    """What this estimator wants beside X: numbers, labels, a second view, or nothing."""
    n = X.shape[0]
    if name in CLASSIFIERS:
        return np.arange(n) % 2
    if name in WITHOUT_TARGET:
        return None
    return np.random.default_rng(seed).standard_normal(n)


def takes_sparse(estimator: Any) -> bool:
    """Whether the estimator (or the map in it) says that it takes sparse rows."""
    inside = getattr(estimator, "features", None)
    return bool((estimator if inside is None else inside).__sklearn_tags__().input_tags.sparse)


# --- what an estimator makes of rows -------------------------------------------------------------


def answers(estimator: Any, X: Any) -> dict[str, Any]:
    """All that a fitted estimator says of rows."""
    methods = ("transform", "predict", "decision_function", "predict_proba")
    found = {m: getattr(estimator, m)(X) for m in methods if hasattr(estimator, m)}
    ridge = isinstance(estimator, ks.KernelRidge) and estimator.solver_ == "cholesky"
    if ridge and not np.isnan(estimator.noise_variance_).any():  # one row leaves it unknown
        found["deviation"] = estimator.predict(X, return_std=True)[1]
    if getattr(estimator, "fit_inverse_transform", False):
        found["inverse_transform"] = estimator.inverse_transform(found["transform"])
    return found


def dense(Z: Any) -> Array:
    return shapes.as_dense(Z)


def check_answers(found: dict[str, Any], X: Any) -> None:
    """Finite numbers, one row for each row, in the float type of X."""
    dtype = np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64
    for method, value in found.items():
        Z = dense(value)
        assert Z.shape[0] == X.shape[0], f"{method} gave {Z.shape[0]} rows for {X.shape[0]}"
        if Z.dtype.kind == "f":
            assert np.isfinite(Z).all(), f"{method} gave values that are not finite"
            assert Z.dtype == dtype, f"{method} gave {Z.dtype} for {X.dtype}"


def quietly(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The call, in which a warning is an error, apart from those that are advice."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "the columns have very different scales", UserWarning)
        # scikit-learn's words on data that hardly suit an estimator, not on our calls of it.
        warnings.filterwarnings("ignore", "Number of distinct clusters", UserWarning)
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        return function(*arguments, **options)


# --- containers of the same numbers --------------------------------------------------------------


def _strided(X: Array) -> Array:
    wide = np.zeros((2 * X.shape[0], 3 * X.shape[1]), dtype=X.dtype)
    wide[::2, ::3] = X
    return wide[::2, ::3]


def _read_only(X: Array) -> Array:
    copy = X.copy()
    copy.setflags(write=False)
    return copy


def _swapped(X: Array) -> Array:
    return X.astype(X.dtype.newbyteorder())


def _read_only_csr(X: Array) -> Any:
    A = sp.csr_array(X)
    for part in (A.data, A.indices, A.indptr):
        part.setflags(write=False)
    return A


DENSE_FORMS: dict[str, Callable[[Array], Any]] = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "strided": _strided,
    "reversed": lambda X: X[::-1].copy()[::-1],
    "read-only": _read_only,
    "byte-swapped": _swapped,
}
SPARSE_FORMS = {
    **shapes.SPARSE_FORMS,
    "bsr": sp.bsr_array,
    "dia": sp.dia_array,
    "lil": sp.lil_matrix,
    "dok": sp.dok_array,
    "read-only csr": _read_only_csr,
}

# --- sparse matrices that are none ---------------------------------------------------------------


def _with(kind: Any, X: Array, part: str, place: Any, value: int) -> Any:
    A = kind(X)
    getattr(A, part)[place] = value
    return A


def _shrunk(X: Array) -> Any:
    A = sp.csr_array(np.hstack([X, X]))
    B = sp.csr_array(X.shape, dtype=X.dtype)
    B.indptr, B.indices, B.data = A.indptr, A.indices, A.data
    return B


# Each made a process die, or read beyond the end of an array.
MALFORMED: dict[str, Callable[[Array], Any]] = {
    "index too high": lambda X: _with(sp.csr_array, X, "indices", 3, 10**8),
    "index below 0": lambda X: _with(sp.csr_matrix, X, "indices", 3, -(10**8)),
    "starts that fall": lambda X: _with(sp.csr_array, X, "indptr", 2, 10**7),
    "starts below 0": lambda X: _with(sp.csr_array, X, "indptr", 2, -(10**7)),
    "end beyond the entries": lambda X: _with(sp.csr_array, X, "indptr", -1, 10**7),
    "too few columns": _shrunk,
    "columns, index too high": lambda X: _with(sp.csc_array, X, "indices", 3, 10**8),
    "columns, starts that fall": lambda X: _with(sp.csc_matrix, X, "indptr", 2, 10**7),
    "entries, row too high": lambda X: _with(sp.coo_array, X, "row", 3, 10**8),
    "entries, column below 0": lambda X: _with(sp.coo_array, X, "col", 3, -(10**8)),
    "blocks, index too high": lambda X: _with(sp.bsr_array, X, "indices", 0, 10**8),
    "lists, column too high": lambda X: _with(sp.lil_array, X, "rows", 1, [10**8] * X.shape[1]),
}

# --- random cases --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One estimator, the rows it is fitted to, and rows to be answered for."""

    name: str
    options: dict[str, Any]
    X: Any
    y: Any
    new: Any

    def run(self) -> str:
        """The words of a refusal, "" for finite answers; what is neither is raised."""
        build = ESTIMATORS[self.name]
        try:
            estimator = quietly(build(**self.options).fit, self.X, self.y)
            check_answers(quietly(answers, estimator, self.X), self.X)
            check_answers(quietly(answers, estimator, self.new), self.new)
        except (ValueError, MemoryError) as error:
            return str(error) or f"{type(error).__name__} without a word"
        return ""


def _values(shape: tuple[int, int], pattern: str, rng: np.random.Generator) -> Array:
    n, d = shape
    X = rng.standard_normal(shape)
    if pattern == "constant":
        X[:] = rng.standard_normal(d)
    elif pattern == "zero":
        X[:] = 0.0
    elif pattern == "zero rows":
        X[rng.random(n) < 0.5] = 0.0
    elif pattern == "zero columns":
        X[:, rng.random(d) < 0.5] = 0.0
    elif pattern == "duplicates":
        X = X[rng.integers(max(1, n // 4), size=n)]
    elif pattern == "holes":
        X *= rng.random(shape) < 0.3
    elif pattern == "one-hot":
        X = (rng.integers(d, size=(n, 1)) == np.arange(d)).astype(float)
    elif pattern == "heavy tails":
        X = rng.standard_cauchy(shape)
    elif pattern == "offset":
        X += 1e6
    elif pattern == "outlier":
        X[rng.integers(n), rng.integers(d)] *= 1e8
    return X


PATTERNS = (
    "normal", "constant", "zero", "zero rows", "zero columns", "duplicates", "holes", "one-hot",
    "heavy tails", "offset", "outlier",
)  # fmt: skip
DTYPES = ("float64", "float32", "float16", "int64", "int32", "uint8", "bool")


@st.composite
def scales(draw: Any, dtype: str) -> float:
    """Mostly 1; else anything that the float type can hold and square roots of it."""
    widest = {"float64": 150, "float32": 36, "float16": 3}.get(dtype, 0)
    return 10.0 ** draw(st.one_of(st.just(0), st.integers(-widest, widest)))


@st.composite
def matrices(draw: Any, columns: int | None = None, sparse: bool = True) -> Any:
    """Rows of some shape, pattern, scale, float type and container."""
    n = draw(st.integers(1, 30))
    d = draw(st.integers(1, 8)) if columns is None else columns
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from(DTYPES))
    X = _values((n, d), draw(st.sampled_from(PATTERNS)), rng)
    if draw(st.booleans()):
        X = X * draw(scales(dtype))
    elif draw(st.integers(0, 3)) == 0:
        X = X * np.array([draw(scales(dtype)) for _ in range(d)])
    if dtype == "uint8":
        X = np.abs(X).clip(0, 255)
    with np.errstate(all="ignore"):
        limits = np.finfo(dtype) if dtype.startswith("float") else np.iinfo(np.int32)
        X = X.clip(limits.min, limits.max).astype(dtype)
    forms = {**DENSE_FORMS, **SPARSE_FORMS} if sparse and dtype != "float16" else DENSE_FORMS
    if dtype == "bool":
        forms = {k: v for k, v in forms.items() if k != "duplicate entries"}
    form = draw(st.sampled_from(sorted(forms)))
    return forms[form](X) if form != "duplicate entries" else forms[form](X.astype(np.float64))


@st.composite
def map_options(draw: Any, name: str) -> dict[str, Any]:
    options: dict[str, Any] = {"kernel": draw(st.sampled_from(KERNELS[name]))}
    if "auto size" not in name:
        options["n_components"] = draw(st.sampled_from([1, 2, 3, 7, 12, 40, 100]))
    wild = st.integers(-30, 30).map(lambda k: 10.0**k)
    known = MAPS[name]().get_params()
    if "gamma" in known and draw(st.booleans()):
        options["gamma"] = draw(wild)
    if "alpha" in known and draw(st.integers(0, 3)) == 0:
        # Every round of the paper's recursion halves the ridge: 1e-30 would be a hundred of them.
        options["alpha"] = 10.0 ** draw(st.integers(-2, 2)) if "paper" in name else draw(wild)
    if "degree" in known:
        options["degree"] = draw(st.integers(1, 7))
        options["coef0"] = draw(st.sampled_from([0.0, 1.0, 1e-6, 1e6]))
    if options["kernel"] == "inverse_polynomial" and draw(st.booleans()):
        options["kernel"] = kernels.InversePolynomial(draw(wild))
        options.pop("gamma", None)
    options["random_state"] = draw(st.integers(0, 5))
    return options


@st.composite
def cases(draw: Any, name: str) -> Case:
    """Fit to rows, and answer for those and others."""
    inner = name
    options: dict[str, Any] = {}
    if name in MODELS:
        inner = draw(
            st.sampled_from(
                ["RowNormFeatures", "AdaptiveFeatures", "FourierFeatures", "NystromFeatures",
                 "ObliviousFeatures", "TensorSketchFeatures"]
            )
        )  # fmt: skip
        options["features"] = MAPS[inner](**draw(map_options(inner)))
        if draw(st.integers(0, 2)) == 0:
            options["alpha" if name != "KernelSVC" else "C"] = 10.0 ** draw(st.integers(-20, 20))
        if name.startswith("KernelRidgeCV"):
            options.pop("alpha", None)
    else:
        options = draw(map_options(name))
    sparse = takes_sparse(MAPS[inner]())
    X = draw(matrices(sparse=sparse))
    if name in CLASSIFIERS:
        n_classes = draw(st.integers(2, 4))
        y: Any = np.arange(X.shape[0]) % n_classes
    elif name in WITHOUT_TARGET:
        y = None
    else:
        y = target(name, X, draw(st.integers(0, 9))) * draw(scales("float64"))
        if draw(st.integers(0, 4)) == 0:
            y = np.full_like(y, y[0])
    new = X if draw(st.booleans()) else draw(matrices(columns=X.shape[1], sparse=sparse))
    return Case(name, options, X, y, new)
