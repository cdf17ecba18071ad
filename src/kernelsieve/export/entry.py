"""``export_onnx``: the inputs, the model and the outputs of a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from kernelsieve import __version__
from kernelsieve._files import replacing
from kernelsieve._validation import check_choice
from kernelsieve.export.check import check_file
from kernelsieve.export.features import features_graph
from kernelsieve.export.graph import ExportError, Graph, entry_of
from kernelsieve.export.kernels import kernel_matrix
from kernelsieve.export.steps import (
    Columns,
    Rows,
    numbers,
    passes_through,
    step_graph,
    text_columns,
)
from kernelsieve.export.tables import encoder_graph
from kernelsieve.features import FeatureMap
from kernelsieve.learning.target_transform import TargetTransform
from kernelsieve.models import (
    KernelKMeans,
    KernelPCA,
    KernelRidge,
    KernelRidgeClassifier,
    KernelRidgeCV,
    KernelSVC,
)
from kernelsieve.tables.model import TableModel

DTYPES = ("float32", "float64")


def export_onnx(
    model: Any, path: str | os.PathLike[str], *, dtype: str = "float64", check: Any = True
) -> None:
    """Write a fitted model as an ONNX file, which runs without Python.

    The file has standard operators only, and takes any number of rows. Its outputs are
    "prediction" of a regression, "label" and "probabilities" of a classification, "transformed" of
    a feature map or KernelPCA, and "label" of KernelKMeans. Its input is "X" of shape (n, d). If
    the model starts with columns of texts, there is one input for each column instead: (n, 1) for
    a scikit-learn pipeline, (n,) for a TableModel, by the column's name.

    Parameters
    ----------
    model : estimator
        A fitted feature map, KernelRidge, KernelRidgeCV, KernelRidgeClassifier, KernelSVC,
        KernelPCA, KernelKMeans or TableModel, or a scikit-learn Pipeline of scalers, imputers,
        encoders and column transformers that ends with one of them.
    path : path
    dtype : "float64" or "float32"
        The type of the numbers that go in and come out. Inside, everything is float64: the
        coefficients of a kernel model cancel, and float32 would lose digits. With "float32" the
        rows are rounded before the model sees them, which shows where a column's values are large
        beside its deviation: years, coordinates, prices.
    check : bool, or what ``predict`` takes
        Rows on which the file must say what the model says, to 1e-5 of the deviation of the
        predictions; this needs onnxruntime. By default a TableModel is compared on made rows, with
        its categories in odd spellings, missing values and new categories, if onnxruntime is
        there.

    Raises
    ------
    ExportError
        For what has no counterpart among ONNX's operators, with the reason, and if the file differs
        from the model.

    Warns
    -----
    ExportNotice
        If rounding the rows of the check to float32 changes predictions.

    Notes
    -----
    A text is compared as in a table: spaces around it are removed, and a text for "no value" ("",
    "NA", ...) is missing. Numbers that stand for categories go in as texts, such as "1".

    The file does not check its input. Where the model refuses a row (infinite numbers, missing
    values that it cannot compare, categories that an encoder does not know), the file returns NaN,
    or what the formula gives.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import AdaptiveFeatures, KernelRidge, export_onnx
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = KernelRidge(AdaptiveFeatures(50, random_state=0)).fit(X, X[:, 0] * X[:, 1])
    >>> export_onnx(model, "model.onnx")  # doctest: +SKIP
    """
    check_choice(dtype, "dtype", DTYPES)
    _require_onnx()
    check_is_fitted(model)
    graph = Graph(dtype)
    rows, last = _inputs(graph, model)
    _outputs(graph, last, rows)
    file = graph.model(f"{type(last).__name__}, exported by kernelsieve {__version__}", __version__)
    content = file.SerializeToString()
    check_file(content, model, check, dtype)
    with replacing(path) as stream:
        stream.write(content)


def _require_onnx() -> None:
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise ImportError("export_onnx needs onnx: pip install 'kernelsieve[onnx]'") from None


def _inputs(graph: Graph, model: Any) -> tuple[str, Any]:
    """The rows as the last estimator takes them, and that estimator."""
    if isinstance(model, TableModel):
        return encoder_graph(graph, model.encoder_), model.model_
    if not isinstance(model, Pipeline):
        return graph.input("X", ["n", int(model.n_features_in_)]), model
    rows = _given_rows(graph, model)
    for _, step in model.steps[:-1]:
        rows = step_graph(graph, step, rows)
    return numbers(graph, rows), model.steps[-1][1]


def _given_rows(graph: Graph, pipeline: Pipeline) -> Rows:
    """A matrix, or a column of its own for each, where some of them hold texts."""
    first = next(step for _, step in pipeline.steps if not passes_through(step))
    width = int(first.n_features_in_)
    texts = text_columns(first, width)
    if not texts.any():
        return graph.input("X", ["n", width])
    names = getattr(first, "feature_names_in_", [f"x{i}" for i in range(width)])
    given = zip(names, texts, strict=True)
    inputs = [graph.input(str(n), ["n", 1], "text" if t else "number") for n, t in given]
    return Columns(inputs, texts)


def _outputs(graph: Graph, model: Any, rows: str) -> None:
    made = entry_of(MODELS, model)
    if made is None:
        raise ExportError(
            f"{type(model).__name__} cannot be exported: feature maps, KernelRidge, KernelRidgeCV, "
            "KernelRidgeClassifier, KernelSVC, KernelPCA, KernelKMeans and TableModel can, alone "
            "or as the last step of a Pipeline"
        )
    made(graph, model, rows)


def _features(graph: Graph, model: FeatureMap, rows: str) -> None:
    Z = features_graph(graph, model, rows)
    graph.output(Z, "transformed", ["n", model.n_components_])


def _components(graph: Graph, model: KernelPCA, rows: str) -> None:
    Z = features_graph(graph, model.features_, rows)
    centred = graph.op("Sub", Z, model.mean_[None])
    scores = graph.op("MatMul", centred, model.components_)
    graph.output(scores, "transformed", ["n", model.components_.shape[1]])


# --- regressions ---------------------------------------------------------------------------------

Values = tuple[str, int | None]  # predictions (n, outputs), and how many; None is a single target


def _predict(graph: Graph, model: Any, rows: str) -> None:
    values, outputs = REGRESSIONS[type(model)](graph, model, rows)
    shape: list[Any] = ["n"] if outputs is None else ["n", outputs]
    graph.output(graph.vector(values) if outputs is None else values, "prediction", shape)


def _tuned(graph: Graph, model: KernelRidgeCV, rows: str) -> Values:
    values, outputs = REGRESSIONS[type(model.model_)](graph, model.model_, rows)
    if model.linear_ is not None:
        slopes = graph.op("MatMul", rows, model.linear_.coefficients)
        line = graph.op("Add", slopes, model.linear_.constant)
        values = graph.op("Add", values, line)
    return _target(graph, model.target_transform_, values), outputs


def _ridge(graph: Graph, model: KernelRidge, rows: str) -> Values:
    if hasattr(model, "local_"):
        raise ExportError(
            "the correction by the nearest rows (local_) cannot be exported, a graph has no search "
            "for them: fit KernelRidge(model.features, alpha=model.alpha, refine=False)"
        )
    dual = getattr(model, "dual_coef_", None)
    if dual is None:
        values = features_graph(graph, model.features_, rows)
        coefficients = model.coef_
    else:
        values = kernel_matrix(graph, model.features_.kernel_, rows, model.X_fit_)
        coefficients = dual
    outputs = None if coefficients.ndim == 1 else int(coefficients.shape[1])
    product = graph.op("MatMul", values, coefficients.reshape(len(coefficients), -1))
    return graph.op("Add", product, np.atleast_1d(model.intercept_)[None]), outputs


def _target(graph: Graph, transform: TargetTransform | None, values: str) -> str:
    """Predictions of a transformed target turned back."""
    if transform is None:
        return values
    if transform.name == "log":
        scaled = graph.op("Mul", graph.op("Exp", values), transform.correction)
        means = graph.op("Sub", scaled, transform.shift)
    else:
        root = graph.op("Max", values, 0.0)
        means = graph.op("Add", graph.op("Mul", root, root), transform.correction)
    return graph.op("Min", graph.op("Max", means, transform.low), transform.high)


# --- classifiers ---------------------------------------------------------------------------------


def _classify_by_ridge(graph: Graph, model: KernelRidgeClassifier, rows: str) -> None:
    scores, _ = REGRESSIONS[type(model.ridge_)](graph, model.ridge_, rows)
    _classes(graph, model, scores)


def _classify_by_margin(graph: Graph, model: KernelSVC, rows: str) -> None:
    Z = features_graph(graph, model.features_, rows)
    product = graph.op("MatMul", Z, np.atleast_2d(model.svc_.coef_).T)
    _classes(graph, model, graph.op("Add", product, np.atleast_1d(model.svc_.intercept_)[None]))


def _classes(graph: Graph, model: Any, scores: str) -> None:
    """The outputs of a classifier with these scores."""
    if len(model.classes_) == 2:
        scores = graph.join([graph.op("Neg", scores), scores])
    chances = graph.op("Softmax", graph.op("Mul", scores, model.sharpness_), axis=1)
    best = graph.op("ArgMax", scores, axis=1, keepdims=0)
    labels = _labels(model.classes_)
    graph.output(graph.op("Gather", labels, best), "label", ["n"], labels.dtype)
    graph.output(chances, "probabilities", ["n", len(model.classes_)])


def _labels(classes: NDArray[Any]) -> NDArray[Any]:
    """Classes in a type that a tensor has."""
    if classes.dtype.kind in "OUS":
        if not all(isinstance(label, str) for label in classes.tolist()):
            raise ExportError(f"classes {classes.tolist()[:5]} are not texts or numbers")
        return classes.astype(object)
    kinds = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}
    return classes.astype(kinds[classes.dtype.kind])


def _nearest(graph: Graph, model: KernelKMeans, rows: str) -> None:
    Z = features_graph(graph, model.features_, rows)
    centres = np.asarray(model.cluster_centers_, dtype=np.float64)
    product = graph.op("MatMul", Z, 2.0 * centres.T)
    squares = graph.op("Sub", np.square(centres).sum(axis=1)[None], product)  # less |z|^2
    graph.output(graph.op("ArgMin", squares, axis=1, keepdims=0), "label", ["n"], np.int64)


REGRESSIONS: dict[type, Callable[[Graph, Any, str], Values]] = {
    KernelRidge: _ridge,
    KernelRidgeCV: _tuned,
}
MODELS: dict[type, Callable[[Graph, Any, str], None]] = {
    **dict.fromkeys(REGRESSIONS, _predict),
    KernelRidgeClassifier: _classify_by_ridge,
    KernelSVC: _classify_by_margin,
    KernelPCA: _components,
    KernelKMeans: _nearest,
    FeatureMap: _features,
}
