"""The classes that a model file may name: nothing else is ever looked up, imported or called."""

from __future__ import annotations

from typing import Any, TypeVar

from kernelsieve import features, kernels, models
from kernelsieve._state import InvalidStateError, Sizes, shortened, wrong
from kernelsieve.diagnostics import Estimate
from kernelsieve.features.auto import MapTrial
from kernelsieve.features.frequencies import StructuredFrequencies
from kernelsieve.kernels.missing import Reference
from kernelsieve.kernels.series import Series
from kernelsieve.kernels.warps import Warp
from kernelsieve.learning.linear_part import LinearPart
from kernelsieve.learning.neighbours import LocalCorrection, LocalMetric
from kernelsieve.learning.plan import Correction, Plan, Report, Solver
from kernelsieve.learning.target_transform import TargetTransform
from kernelsieve.linalg.normal_equations import NormalEquations
from kernelsieve.linalg.posterior import Posterior
from kernelsieve.models.intervals import Intervals
from kernelsieve.models.jackknife import Jackknife
from kernelsieve.persistence._container import ModelFileError
from kernelsieve.persistence._sklearn import STEPS, step_of
from kernelsieve.products.centred import CentredTables
from kernelsieve.products.degrees import DegreeColumns
from kernelsieve.products.local_basis import LocalTables
from kernelsieve.products.multisets import Multisets
from kernelsieve.products.product_features import Frame, MonomialBasis, ProductFeatures
from kernelsieve.products.product_frame import ProductFrame
from kernelsieve.products.sparse_basis import SparseBasis
from kernelsieve.sketches.osnap import SampledOSNAP
from kernelsieve.sketches.tensor_sketch import SampledTensorSketch
from kernelsieve.sources.marginals import Marginals
from kernelsieve.tables.categories import Category
from kernelsieve.tables.columns import Number, Time
from kernelsieve.tables.encoder import TableEncoder
from kernelsieve.tables.model import TableModel
from kernelsieve.tables.texts import Reading

_CLASSES: dict[str, Any] = {}

Class = TypeVar("Class", bound=type)


def register(cls: Class) -> Class:
    """Let model files hold objects of a further class; also a decorator.

    Parameters
    ----------
    cls : type
        Known by its ``__name__`` in files. It has a method ``get_state()``, which returns a dict
        with strings as keys (values are None, truth values, numbers, strings, arrays, objects of
        registered classes, and lists, tuples and dicts of them), and a class method
        ``from_state(state)``, which returns the object. It must check the state and raise
        ValueError where it is wrong: whoever made the file may have put in any values.

    Returns
    -------
    type
        The class itself.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from kernelsieve import persistence
    >>> @persistence.register
    ... class Units:
    ...     def __init__(self, names):
    ...         self.names = names
    ...
    ...     def get_state(self):
    ...         return {"names": self.names}
    ...
    ...     @classmethod
    ...     def from_state(cls, state):
    ...         if not all(isinstance(name, str) for name in state["names"]):
    ...             raise ValueError("names are strings")
    ...         return cls(state["names"])
    >>> path = Path(tempfile.mkdtemp()) / "units.ks"
    >>> persistence.save(Units(["m", "kg"]), path)
    >>> persistence.load(path).names
    ['m', 'kg']
    """
    if not (hasattr(cls, "get_state") and hasattr(cls, "from_state")):
        raise TypeError(f"{cls.__name__} has no get_state and from_state: a model file needs both")
    if _CLASSES.get(cls.__name__, cls) is not cls:
        raise ValueError(f"{_CLASSES[cls.__name__]!r} is registered as {cls.__name__!r} already")
    _CLASSES[cls.__name__] = cls
    return cls


for _class in (
    DegreeColumns,
    Estimate,
    Frame,
    LinearPart,
    Plan,
    Solver,
    Correction,
    Report,
    Intervals,
    Jackknife,
    Category,
    Number,
    Time,
    LocalCorrection,
    LocalMetric,
    TargetTransform,
    CentredTables,
    LocalTables,
    SparseBasis,
    ProductFrame,
    MonomialBasis,
    Multisets,
    Marginals,
    NormalEquations,
    Posterior,
    ProductFeatures,
    Reading,
    SampledOSNAP,
    SampledTensorSketch,
    Series,
    StructuredFrequencies,
    TableEncoder,
    TableModel,
    MapTrial,
    Reference,
    Warp,
    features.AdaptiveFeatures,
    features.AutoFeatures,
    features.BinningFeatures,
    features.FourierFeatures,
    features.GegenbauerFeatures,
    features.MaclaurinFeatures,
    features.NetworkFeatures,
    features.NystromFeatures,
    features.ObliviousFeatures,
    features.ResidualFeatures,
    features.RowNormFeatures,
    features.TensorSketchFeatures,
    kernels.Anova,
    kernels.ArcCosine,
    kernels.DotProduct,
    kernels.Exponential,
    kernels.Gaussian,
    kernels.InversePolynomial,
    kernels.Laplacian,
    kernels.Matern,
    kernels.NeuralTangent,
    kernels.Pairwise,
    kernels.Polynomial,
    kernels.Product,
    kernels.SmoothLaplacian,
    kernels.Zonal,
    models.ConformalRegressor,
    models.KernelCCA,
    models.KernelKMeans,
    models.KernelPCA,
    models.KernelQuantileRegressor,
    models.KernelRidge,
    models.KernelRidgeCV,
    models.KernelRidgeClassifier,
    models.KernelSVC,
):
    register(_class)


def registered(value: Any, where: str, sizes: Sizes) -> Any:
    """The rule of an object of a registered class."""
    if _CLASSES.get(type(value).__name__) is not type(value) and step_of(value) is None:
        wrong(where, f"is a {type(value).__name__}, not an object of a registered class")
    return value


def pack(thing: Any, where: str, variance: bool) -> tuple[str, dict[str, Any]]:
    """The name and the state of an object of a registered class.

    Without ``variance`` the fields that only predictive variances need are None.
    """
    cls, step = type(thing), step_of(thing)
    if step is None and _CLASSES.get(cls.__name__) is not cls:
        raise ModelFileError(
            f"{where} is a {cls.__module__}.{cls.__qualname__}, which a model file does not hold"
            f"{_way_out(thing, where)}"
        )
    left_out = () if variance else getattr(cls, "_for_variance", ())
    try:
        if step is not None:
            return cls.__name__, step.get_state(thing)
        return cls.__name__, thing.get_state() | dict.fromkeys(left_out)
    except InvalidStateError as error:
        raise ModelFileError(f"{where} ({cls.__name__}): {error}") from error


def _way_out(thing: Any, where: str) -> str:
    attribute = where.rpartition(".")[2]
    if attribute == "random_state":
        return ": use set_params(random_state=0), which changes nothing that was fitted"
    if attribute == "cv":
        return ": use set_params(cv=None), which changes nothing that was fitted"
    if callable(thing):
        return ": a function is code; use a kernel of kernelsieve.kernels"
    return ""


def unpack(name: Any, state: dict[str, Any], where: str) -> Any:
    """The object of a class with this state."""
    if not isinstance(name, str) or name not in {**_CLASSES, **STEPS}:
        wrong(where, f"is of class {shortened(name)}, which this version does not know")
    try:
        return (STEPS.get(name) or _CLASSES[name]).from_state(state)
    except (ValueError, TypeError, KeyError) as error:
        wrong(f"{where} ({name}):", str(error) or repr(error))
