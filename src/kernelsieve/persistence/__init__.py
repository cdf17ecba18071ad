"""Models in files that are safe to open: arrays and JSON, no code (docs/model-files.md)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sklearn

from kernelsieve import __version__, features, kernels
from kernelsieve._files import replacing
from kernelsieve.diagnostics import Estimate
from kernelsieve.features.auto import Trial
from kernelsieve.features.frequencies import StructuredFrequencies
from kernelsieve.kernels.base import Series
from kernelsieve.kernels.warps import Warp
from kernelsieve.persistence import _container, _registry
from kernelsieve.persistence._container import FORMAT
from kernelsieve.persistence._errors import InvalidContentError, ModelFileError
from kernelsieve.persistence._models import add_models
from kernelsieve.persistence._nodes import LARGEST, Fields, Reader, Writer, wrong
from kernelsieve.persistence._registry import ANY, DATA, add_persistent, register
from kernelsieve.persistence._tables import add_tables
from kernelsieve.products.degrees import DegreeColumns
from kernelsieve.products.frame import Frame
from kernelsieve.products.mercer_basis import MercerBasis
from kernelsieve.products.monomial_basis import MonomialBasis
from kernelsieve.products.multisets import Multisets
from kernelsieve.products.product_features import ProductFeatures
from kernelsieve.sketches.osnap import SampledOSNAP
from kernelsieve.sketches.tensor_sketch import SampledTensorSketch

__all__ = [
    "ANY",
    "DATA",
    "FORMAT",
    "ModelFile",
    "ModelFileError",
    "load",
    "read",
    "register",
    "save",
]

for _class in (
    kernels.DotProduct,
    kernels.Exponential,
    kernels.Gaussian,
    kernels.InversePolynomial,
    kernels.Laplacian,
    kernels.Matern,
    kernels.Pairwise,
    kernels.Polynomial,
    kernels.Product,
    Warp,
    Series,
    Frame,
    MonomialBasis,
    MercerBasis,
    Multisets,
    ProductFeatures,
    Estimate,
    StructuredFrequencies,
    SampledOSNAP,
    SampledTensorSketch,
    DegreeColumns,
    Trial,
    features.AdaptiveFeatures,
    features.RowNormFeatures,
    features.FourierFeatures,
    features.NystromFeatures,
    features.TensorSketchFeatures,
    features.MaclaurinFeatures,
    features.ObliviousFeatures,
    features.AutoFeatures,
):
    add_persistent(_class)
add_models()
add_tables()


@dataclass(frozen=True)
class ModelFile:
    """What a model file holds.

    Attributes
    ----------
    estimator : object
    about : dict
        What was passed to ``save`` as ``about``.
    versions : dict of str
        Of the packages that wrote the file, by their names.
    """

    estimator: Any
    about: dict[str, Any]
    versions: dict[str, str]


def save(estimator: Any, path: str | os.PathLike[str], about: dict[str, Any] | None = None) -> None:
    """Write an estimator to a file that `load` gives back exactly, and that is safe to open.

    Fitted or not. The file appears when it is complete: an error or a killed process leaves an old
    file as it was. The same model makes the same bytes.

    Parameters
    ----------
    estimator : object
        Any estimator of kernelsieve. Parameters that are code or generators (a function as kernel,
        a RandomState, a splitter) cannot be stored.
    path : path-like
        ``.ks`` is the usual suffix.
    about : dict, optional
        Data to keep with it: None, truth values, numbers, texts, arrays, lists, tuples and dicts.

    Raises
    ------
    ModelFileError
        Where something in the estimator has no place in a file; it says what.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import kernelsieve
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> model = kernelsieve.KernelRidge(kernelsieve.RowNormFeatures(20, random_state=0))
    >>> model = model.fit(X, X[:, 0] * X[:, 1])
    >>> path = Path(tempfile.mkdtemp()) / "model.ks"
    >>> kernelsieve.save(model, path)
    >>> bool((kernelsieve.load(path).predict(X) == model.predict(X)).all())
    True
    """
    try:
        text, arrays = _pack(estimator, {} if about is None else about)
    except RecursionError:
        raise ModelFileError("about or the model is nested too deeply for a file") from None
    with replacing(path) as file:
        _container.write(file, text, arrays)


def _pack(estimator: Any, about: dict[str, Any]) -> tuple[bytes, list[Any]]:
    """Header and arrays, after a look whether they can be read again."""
    if not isinstance(about, dict):
        raise ModelFileError(f"about is a {type(about).__name__}: pass a dict")
    writer = Writer(_registry.pack)
    versions = {
        "kernelsieve": __version__,
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
    }
    header = {
        "versions": writer.node(versions, "versions"),
        "about": writer.node(about, "about"),
        "model": writer.node(estimator, type(estimator).__name__),
    }
    text = _container.header_text(header, writer.arrays)
    try:
        _unpack(_container.parse(text, LARGEST)[0], writer.arrays)
    except ModelFileError as error:
        raise ModelFileError(f"such a file could not be read again: {error}") from None
    return text, writer.arrays


def read(path: str | os.PathLike[str]) -> ModelFile:
    """What a file of `save` holds: the estimator, and what was stored with it.

    The file may come from anybody. Reading it runs no code of it and takes memory in proportion to
    its size; a file that is not what `save` writes raises ModelFileError.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from kernelsieve import KernelRidge, persistence
    >>> path = Path(tempfile.mkdtemp()) / "model.ks"
    >>> persistence.save(KernelRidge(alpha=0.5), path, about={"target": "price"})
    >>> found = persistence.read(path)
    >>> found.estimator, found.about
    (KernelRidge(alpha=0.5), {'target': 'price'})
    """
    try:
        return _unpack(*_container.read(Path(path)))
    except InvalidContentError as error:
        raise ModelFileError(f"{os.fspath(path)} holds no valid model: {error}") from None
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)} {error}") from None
    except RecursionError:
        raise ModelFileError(f"{os.fspath(path)} is damaged: it is nested too deeply") from None


def _unpack(header: dict[str, Any], arrays: list[Any]) -> ModelFile:
    reader = Reader(arrays, _registry.unpack)
    fields = Fields({"table": header}, reader, "header")
    versions, about = fields.data("versions"), fields.data("about")
    estimator = fields.thing("model")
    fields.close()
    reader.close()
    if not isinstance(about, dict) or not isinstance(versions, dict):
        wrong("header", "has no tables of versions and about")
    return ModelFile(estimator, about, versions)


def load(path: str | os.PathLike[str]) -> Any:
    """The estimator of a file that `save` wrote, exact to the bit.

    The file may come from anybody: it holds arrays and JSON, and reading it runs no code of it. See
    `read` for what was stored beside the estimator.

    Parameters
    ----------
    path : path-like

    Raises
    ------
    ModelFileError
        Where the file is truncated, damaged, of a newer format, or none of ours; it says which.
    FileNotFoundError
        Where there is none.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import kernelsieve
    >>> path = Path(tempfile.mkdtemp()) / "map.ks"
    >>> kernelsieve.save(kernelsieve.FourierFeatures(64, gamma=0.5), path)
    >>> kernelsieve.load(path)
    FourierFeatures(gamma=0.5, n_components=64)
    """
    return read(path).estimator
