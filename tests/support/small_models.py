"""Small fitted estimators of every class and kind, and what their methods say about some rows.

For what is to hold for all of them: that a model file gives them back, and that a damaged one does
no harm.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve import (
    AdaptiveFeatures,
    AutoFeatures,
    BinningFeatures,
    ConformalRegressor,
    FourierFeatures,
    GegenbauerFeatures,
    KernelCCA,
    KernelKMeans,
    KernelPCA,
    KernelQuantileRegressor,
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
from kernelsieve.kernels import (
    Anova,
    ArcCosine,
    DotProduct,
    Exponential,
    InversePolynomial,
    Laplacian,
    Matern,
    NeuralTangent,
    Pairwise,
    Polynomial,
    Product,
    SmoothLaplacian,
    Zonal,
)
from kernelsieve.kernels.warps import Warp
from kernelsieve.learning.plan import Plan, Solver

N_ROWS, N_COLUMNS = 60, 4


def rows(seed: int = 0, n: int = N_ROWS) -> NDArray[np.float64]:
    """Dense rows, well inside of the unit ball of columns."""
    return np.random.default_rng(seed).normal(size=(n, N_COLUMNS)) / 4.0


def sparse_rows(seed: int = 0, n: int = N_ROWS) -> sp.csr_array:
    """The same rows, half of them zeros."""
    X = rows(seed, n)
    return sp.csr_array(X * (np.random.default_rng(seed + 1).random(X.shape) < 0.5))


def target(X: Any) -> NDArray[np.float64]:
    """Something to learn."""
    dense = X.toarray() if sp.issparse(X) else X
    return np.asarray(dense[:, 0] * dense[:, 1] + np.sin(3.0 * dense[:, 2]))


def labels(X: Any, count: int = 2) -> NDArray[Any]:
    """As many classes, with names."""
    edges = np.quantile(target(X), np.linspace(0, 1, count + 1)[1:-1])
    return np.array(["low", "middle", "high", "top"])[np.searchsorted(edges, target(X))]


# --- fitted maps ---------------------------------------------------------------------------------

Build = Callable[[], Any]


def _fit(estimator: Any, *, sparse: bool = False, y: Any = None, dtype: Any = np.float64) -> Any:
    X = sparse_rows() if sparse else rows()
    return estimator.fit(X.astype(dtype), *(() if y is None else (y(X),)))


def _named(estimator: Any) -> Any:
    import pandas as pd

    names = ["length", "width", "höhe", "x y"]
    return estimator.fit(pd.DataFrame(rows(), columns=names), target(rows()))


def _continued() -> KernelRidge:
    features = RowNormFeatures(12, random_state=0).fit(rows())
    model = KernelRidge(features, alpha=0.1).partial_fit(rows(), target(rows()))
    return model.partial_fit(rows(5), target(rows(5)))


def _plan(**options: Any) -> Plan:
    return Plan(Product([1.0, 0.5, 2.0, 0.0]), 0.1, Solver("landmarks", 12), **options)


def _two_views(**options: Any) -> KernelCCA:
    return KernelCCA(2, RowNormFeatures(10, gamma=0.5, random_state=0), **options).fit(
        rows(), rows()[:, :2] ** 2
    )


def _product() -> Product:
    families = ("gaussian", "laplacian", "matern32", "matern52")
    warps = [Warp.fit(rows()[:, 0], kind) for kind in ("identity", "log", "rank", "identity")]
    return Product([1.0, 0.5, 2.0, 0.0], families, warps)


def _parts() -> Anova:
    return Anova.of(_product(), rows(), subsets=[(0,), (1,), (0, 2)], variances=[0.5, 0.3, 0.2])


def _table(X: Any, wide: bool = False) -> dict[str, Any]:
    """Rows as a table of numbers, texts and times; of more than 32 columns if it is wide."""
    X = X.toarray() if sp.issparse(X) else X
    towns = np.array(["Ulm", "Bonn", "Köln"])[np.abs(np.rint(9.0 * X[:, 3])).astype(int) % 3]
    days = np.abs(np.rint(99.0 * X[:, 2])).astype(int) % 28 + 1
    more = {f"{name} {i}": X[:, i % 4] for i in range(40 * wide) for name in ("a", "b")}
    more |= {f"town {i}": towns.tolist() for i in range(40 * wide)}
    return more | {
        "size": X[:, 0].astype(np.float64),
        "town": towns.tolist(),
        "built": [f"2020-01-{day:02d}" for day in days],
    }


def _table_model(
    target_of: Callable[[Any], Any], *, wide: bool = False, **options: Any
) -> TableModel:
    settings = {"n_components": 12, "gamma": 0.1, "alpha": 0.1, **options}
    table = _table(rows(), wide)
    return TableModel("y", **settings).fit({**table, "y": target_of(rows()).tolist()})


MAPS: dict[str, Build] = {
    "adaptive, monomials": lambda: _fit(
        AdaptiveFeatures(15, basis="monomial", rotate=False, random_state=0), y=target
    ),
    "adaptive, rotated": lambda: _fit(
        AdaptiveFeatures(15, basis="monomial", rotate=True, random_state=0)
    ),
    "adaptive, Mercer": lambda: _fit(
        AdaptiveFeatures(15, basis="mercer", rotate=False, random_state=0)
    ),
    "adaptive, Mercer, rotated": lambda: _fit(
        AdaptiveFeatures(15, basis="mercer", rotate=True, random_state=0)
    ),
    "adaptive, not centred": lambda: _fit(
        AdaptiveFeatures(15, center=False, basis="monomial", random_state=0)
    ),
    "adaptive, sparse": lambda: _fit(AdaptiveFeatures(15, random_state=0), sparse=True, y=target),
    "adaptive, leverage": lambda: _fit(
        AdaptiveFeatures(15, sampler="leverage", random_state=0)
    ),
    "adaptive, paper": lambda: _fit(AdaptiveFeatures(15, sampler="paper", random_state=0)),
    "adaptive, float32": lambda: _fit(AdaptiveFeatures(15, random_state=0), dtype=np.float32),
    "adaptive, auto size": lambda: _fit(
        AdaptiveFeatures("auto", alpha=0.5, eps=0.9, random_state=0)
    ),
    "adaptive, dot product": lambda: _fit(
        AdaptiveFeatures(15, kernel=DotProduct((0.5, 1.0, 0.0, 0.25)), random_state=0)
    ),
    "row norm": lambda: _fit(RowNormFeatures(12, random_state=0)),
    "row norm, all features": lambda: _fit(
        RowNormFeatures(100, kernel="poly", degree=2, random_state=0)
    ),
    "row norm, paper": lambda: _fit(RowNormFeatures(12, sampler="paper", random_state=0)),
    "row norm, inverse polynomial": lambda: _fit(
        RowNormFeatures(12, kernel=InversePolynomial(40.0), random_state=0), sparse=True
    ),
    **{
        f"Fourier, {kind}, {variant}": partial(
            _fit, FourierFeatures(size, frequencies=kind, variant=variant, random_state=0)
        )
        for kind in ("plain", "orthogonal", "structured", "modified")
        for variant, size in (("cos+sin", 13), ("phase", 7))
    },
    "Fourier, structured, float32": lambda: _fit(
        FourierFeatures(70, kernel="matern", frequencies="structured", random_state=0),
        dtype=np.float32,
    ),
    "Fourier, Laplacian": lambda: _fit(
        FourierFeatures(12, kernel=Laplacian(0.5), random_state=0)
    ),
    "Nystrom": lambda: _fit(NystromFeatures(10, random_state=0)),
    "Nystrom, sparse": lambda: _fit(NystromFeatures(10, random_state=0), sparse=True),
    "Nystrom, float32": lambda: _fit(NystromFeatures(10, random_state=0), dtype=np.float32),
    "Nystrom, k-means": lambda: _fit(NystromFeatures(6, landmarks="kmeans", random_state=0)),
    "Nystrom, leverage": lambda: _fit(
        NystromFeatures(6, kernel=Matern(1.5, nu=2.2), landmarks="leverage", random_state=0)
    ),
    "row norm, arc-cosine": lambda: _fit(
        RowNormFeatures(12, kernel=ArcCosine(1), random_state=0), sparse=True
    ),
    "oblivious, neural tangent": lambda: _fit(
        ObliviousFeatures(12, kernel=NeuralTangent(2), random_state=0)
    ),
    "residual": lambda: _fit(
        ResidualFeatures(12, kernel="poly", oversample=2, random_state=0), sparse=True
    ),
    "residual, whole": lambda: _fit(
        ResidualFeatures(30, kernel="linear", landmark_share=0.0, random_state=0)
    ),
    "binning, smooth": lambda: _fit(
        BinningFeatures(12, kernel=SmoothLaplacian(0.5, pieces=3), random_state=0)
    ),
    "binning": lambda: _fit(BinningFeatures(12, random_state=0), sparse=True),
    "Gegenbauer": lambda: _fit(GegenbauerFeatures(12, random_state=0)),
    "Gegenbauer, zonal, float32": lambda: _fit(
        GegenbauerFeatures(12, kernel=Zonal([0.5, 1.0, 0.25], 1.0), random_state=0),
        dtype=np.float32,
    ),
    "network, layer": lambda: _fit(NetworkFeatures(12, kernel=ArcCosine(2), random_state=0)),
    "network, sketched": lambda: _fit(
        NetworkFeatures(12, kernel=NeuralTangent(2), layers="sketched", random_state=0)
    ),
    "network, tangents": lambda: _fit(
        NetworkFeatures(12, kernel=NeuralTangent(2), random_state=0), sparse=True
    ),
    "Nystrom, oversampled": lambda: _fit(NystromFeatures(6, oversample=3, random_state=0)),
    "Nystrom, target directions": lambda: _fit(
        NystromFeatures(6, oversample=3, target_directions=True, random_state=0), y=target
    ),
    "Nystrom, given points": lambda: _fit(NystromFeatures(6, landmarks=rows(3, 6))),
    "Nystrom, given sparse points": lambda: _fit(
        NystromFeatures(6, landmarks=sparse_rows(3, 6)), sparse=True
    ),
    "Nystrom, Laplacian": lambda: _fit(NystromFeatures(6, kernel="laplacian", random_state=0)),
    "Nystrom, cosine": lambda: _fit(NystromFeatures(4, kernel="cosine", random_state=0)),
    "Nystrom, scikit-learn": lambda: _fit(
        NystromFeatures(
            4, kernel=Pairwise("poly", {"degree": 2, "gamma": 0.5, "coef0": 1}), random_state=0
        )
    ),
    "Nystrom, exponential": lambda: _fit(
        NystromFeatures(4, kernel=Exponential(0.5), random_state=0)
    ),
    "Nystrom, product": lambda: _fit(NystromFeatures(6, kernel=_product(), random_state=0)),
    "Fourier, product": lambda: _fit(
        FourierFeatures(9, kernel=Product(0.5, "laplacian"), random_state=0)
    ),
    "oblivious": lambda: _fit(ObliviousFeatures(40, random_state=0)),
    "oblivious, narrow": lambda: _fit(
        ObliviousFeatures(3, kernel=Polynomial(5, 1.0, 0.0), random_state=0), sparse=True
    ),
    "oblivious, one column": lambda: _fit(
        ObliviousFeatures(1, kernel=Polynomial(2, 1.0, 0.0), random_state=0)
    ),
    "oblivious, Gaussian matrix": lambda: _fit(
        ObliviousFeatures(24, kernel="poly", degree=4, compress="gaussian", random_state=0)
    ),
    "oblivious, exact": lambda: _fit(ObliviousFeatures(100, kernel="poly", degree=2)),
    "tensor sketch": lambda: _fit(TensorSketchFeatures(16, degree=3, random_state=0)),
    "tensor sketch, degree 9": lambda: _fit(TensorSketchFeatures(8, degree=9, random_state=0)),
    "tensor sketch, homogeneous": lambda: _fit(
        TensorSketchFeatures(16, degree=1, coef0=0.0, random_state=0), sparse=True
    ),
    "Maclaurin": lambda: _fit(MaclaurinFeatures(40, random_state=0)),
    "Maclaurin, exponential": lambda: _fit(
        MaclaurinFeatures(20, kernel="exponential", random_state=0), sparse=True
    ),
    "auto": lambda: _fit(AutoFeatures(12, random_state=0), y=target),
    "auto, Laplacian": lambda: _fit(AutoFeatures(12, kernel="laplacian", random_state=0)),
}  # fmt: skip

MODELS: dict[str, Build] = {
    "ridge": lambda: _fit(KernelRidge(RowNormFeatures(12, random_state=0), alpha=0.1), y=target),
    "ridge, default map": lambda: _fit(KernelRidge(AdaptiveFeatures(30, random_state=0)), y=target),
    "ridge, two outputs": lambda: _fit(
        KernelRidge(RowNormFeatures(12, random_state=0)),
        y=lambda X: np.stack([target(X), X[:, 1]], axis=1),
    ),
    "ridge, names": lambda: _named(KernelRidge(RowNormFeatures(12, random_state=0))),
    "ridge, float32": lambda: _fit(
        KernelRidge(RowNormFeatures(12, random_state=0)), y=target, dtype=np.float32
    ),
    "ridge, fused Nystrom": lambda: _fit(
        KernelRidge(NystromFeatures(12, random_state=0)), y=target, dtype=np.float32
    ),
    "ridge, sparse": lambda: _fit(
        KernelRidge(AdaptiveFeatures(12, random_state=0), fit_intercept=False),
        y=target,
        sparse=True,
    ),
    "ridge, gradients": lambda: _fit(
        KernelRidge(RowNormFeatures(12, random_state=0), solver="cg", random_state=0), y=target
    ),
    "ridge, refined": lambda: _fit(
        KernelRidge(RowNormFeatures(12, random_state=0), refine=True, alpha=0.1), y=target
    ),
    "ridge, corrected by neighbours": lambda: _fit(
        KernelRidge(
            NystromFeatures(12, kernel=Product(0.7), random_state=0),
            refine="local",
            random_state=0,
        ),
        y=target,
    ),
    "ridge, parts": lambda: _fit(
        KernelRidge(NystromFeatures(12, kernel=_parts(), random_state=0), alpha=0.1), y=target
    ),
    "ridge, refined, parts": lambda: _fit(
        KernelRidge(NystromFeatures(12, kernel=_parts(), random_state=0), refine=True), y=target
    ),
    "ridge, refined, sparse, two outputs": lambda: _fit(
        KernelRidge(RowNormFeatures(12, random_state=0), refine=True),
        sparse=True,
        y=lambda X: np.stack([target(X), 2.0 * target(X)], axis=1),
    ),
    "ridge, continued": _continued,
    "ridge, auto": lambda: _fit(KernelRidge(AutoFeatures(12, gamma=0.2, random_state=0)), y=target),
    "ridge cv": lambda: _fit(
        KernelRidgeCV(RowNormFeatures(12, random_state=0), alphas=[0.1, 1.0]), y=target
    ),
    "ridge cv, gammas": lambda: _fit(
        KernelRidgeCV(
            FourierFeatures(12, random_state=0),
            alphas=np.logspace(-2, 1, 3),
            gammas=(0.1, 1.0),
            cv=3,
        ),
        y=target,
    ),
    "ridge cv, learned": lambda: _fit(KernelRidgeCV(random_state=0), y=target),
    "ridge cv, learned, beside a linear part": lambda: _fit(
        KernelRidgeCV(plan=_plan(linear=True), random_state=0), y=lambda X: np.exp(target(X))
    ),
    "classifier, learned": lambda: _fit(
        KernelRidgeClassifier(random_state=0), y=partial(labels, count=3)
    ),
    "intervals": lambda: _fit(
        ConformalRegressor(KernelRidge(RowNormFeatures(12, random_state=0)), random_state=0),
        y=target,
    ),
    "intervals, jackknife": lambda: _fit(
        ConformalRegressor(
            KernelRidge(FourierFeatures(12, gamma=0.2, random_state=0)), method="jackknife+"
        ),
        y=target,
    ),
    "quantiles": lambda: _fit(
        KernelQuantileRegressor((0.2, 0.8), RowNormFeatures(12, random_state=0), alpha=0.1),
        y=target,
    ),
    "classifier, two": lambda: _fit(
        KernelRidgeClassifier(RowNormFeatures(12, random_state=0)), y=labels
    ),
    "classifier, three": lambda: _fit(
        KernelRidgeClassifier(
            FourierFeatures(12, random_state=0), class_weight={"low": 2.0, "high": 1}
        ),
        y=partial(labels, count=3),
    ),
    "classifier, objects": lambda: _fit(
        KernelRidgeClassifier(RowNormFeatures(12, random_state=0), class_weight="balanced"),
        y=lambda X: labels(X, 3).astype(object),
    ),
    "classifier, integers": lambda: _fit(
        KernelRidgeClassifier(RowNormFeatures(12, random_state=0), class_weight={3: 2.0, -7: 1.0}),
        y=lambda X: np.where(target(X) > 0, 3, -7),
    ),
    "svc, two": lambda: _fit(KernelSVC(RowNormFeatures(12, random_state=0)), y=labels),
    "svc, three": lambda: _fit(
        KernelSVC(FourierFeatures(12, random_state=0), random_state=0),
        y=partial(labels, count=3),
        dtype=np.float32,
    ),
    "svc, truth values": lambda: _fit(
        KernelSVC(RowNormFeatures(12, random_state=0)), y=lambda X: target(X) > 0
    ),
    "pca": lambda: _fit(KernelPCA(2, RowNormFeatures(12, random_state=0))),
    "pca, inverse": lambda: _fit(
        KernelPCA(2, RowNormFeatures(12, random_state=0), fit_inverse_transform=True)
    ),
    "k-means": lambda: _fit(KernelKMeans(3, RowNormFeatures(12, random_state=0), random_state=0)),
    "k-means, passes, float32": lambda: _fit(
        KernelKMeans(3, FourierFeatures(12, random_state=0), batch_rows=20, random_state=0),
        dtype=np.float32,
    ),
    "table": partial(_table_model, target, method="row-norm"),
    "table, wide": partial(_table_model, target, wide=True, method="row-norm"),
    "table, classes": partial(_table_model, labels, method="adaptive", drop=["built"]),
    "table, learned": partial(
        _table_model, target, n_components=None, gamma="cv", alpha="cv"
    ),
    "cca": _two_views,
    "cca, two maps": partial(_two_views, features_y=NystromFeatures(6, random_state=0)),
}  # fmt: skip

ALL: dict[str, Build] = {**MAPS, **MODELS}


def build(name: str) -> Any:
    """A fitted estimator by its name here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence and of few rows: it is not the point
        return ALL[name]()


# --- what they say -------------------------------------------------------------------------------


def answers(estimator: Any, X: Any) -> dict[str, Any]:
    """What every method of a fitted estimator says about rows."""
    if isinstance(estimator, TableModel):
        return _table_answers(estimator, X)
    found: dict[str, Any] = {}
    for method in ("transform", "predict", "predict_proba", "decision_function"):
        if hasattr(estimator, method):
            found[method] = getattr(estimator, method)(X)
    ridge = getattr(estimator, "model_", estimator)
    if getattr(ridge, "_posterior", None) is not None:
        found["mean"], found["deviation"] = ridge.predict(X, return_std=True)
        found["noise"] = np.asarray(ridge.noise_variance_)
    if getattr(estimator, "fit_inverse_transform", False):
        found["inverse"] = estimator.inverse_transform(found["transform"])
    if hasattr(estimator, "predict_interval"):
        found["low"], found["high"] = estimator.predict_interval(X, 0.5)
    if hasattr(estimator, "transform_y"):
        second = X[:, :2]
        found["second view"] = estimator.transform_y(second)
    if hasattr(estimator, "get_feature_names_out"):
        found["names"] = estimator.get_feature_names_out()
    return found


def _table_answers(estimator: TableModel, X: Any) -> dict[str, Any]:
    table = _table(X, "a 0" in estimator.encoder_.get_feature_names_out())
    found = {
        "transform": estimator.transform(table),
        "predict": estimator.predict(table),
        "names": estimator.get_feature_names_out(),
        "text": np.array([estimator.summary()]),
    }
    if estimator.task_ == "classification":
        found["chances"] = estimator.predict_proba(table)
    else:
        found["mean"], found["deviation"] = estimator.predict_std(table)
    return found


def takes_sparse(estimator: Any) -> bool:
    """Whether scikit-learn's tags say so; warps and kernels of parts are for dense rows."""
    from sklearn.utils import get_tags

    kernel = getattr(getattr(estimator, "features_", estimator), "kernel_", None)
    dense = isinstance(kernel, Anova) or getattr(kernel, "warps", None) is not None
    return bool(get_tags(estimator).input_tags.sparse) and not dense


def as_bits(value: Any) -> Any:
    """Something that is equal only if all bits are."""
    if sp.issparse(value):
        return (value.shape, *(as_bits(getattr(value, p)) for p in ("indptr", "indices", "data")))
    array = np.asarray(value)
    content = array.tolist() if array.dtype.kind in "OU" else array.tobytes()
    return array.dtype.str, array.shape, content
