"""Small, readable kernel features chosen by importance sampling, and the methods that run on them.

Public names are imported when first used, so that ``import kernelsieve`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "AdaptiveFeatures": "kernelsieve.features",
    "AutoFeatures": "kernelsieve.features",
    "BinningFeatures": "kernelsieve.features",
    "FourierFeatures": "kernelsieve.features",
    "GegenbauerFeatures": "kernelsieve.features",
    "MaclaurinFeatures": "kernelsieve.features",
    "NetworkFeatures": "kernelsieve.features",
    "NystromFeatures": "kernelsieve.features",
    "ObliviousFeatures": "kernelsieve.features",
    "ResidualFeatures": "kernelsieve.features",
    "RowNormFeatures": "kernelsieve.features",
    "TensorSketchFeatures": "kernelsieve.features",
    "ConformalRegressor": "kernelsieve.models",
    "KernelCCA": "kernelsieve.models",
    "KernelKMeans": "kernelsieve.models",
    "KernelPCA": "kernelsieve.models",
    "KernelQuantileRegressor": "kernelsieve.models",
    "KernelRidge": "kernelsieve.models",
    "KernelRidgeCV": "kernelsieve.models",
    "KernelRidgeClassifier": "kernelsieve.models",
    "KernelSVC": "kernelsieve.models",
    "drift": "kernelsieve.models",
    "prune": "kernelsieve.models",
    "TableModel": "kernelsieve.tables",
    "explain": "kernelsieve.explanation",
    "export_onnx": "kernelsieve.export",
    "load": "kernelsieve.persistence",
    "save": "kernelsieve.persistence",
}
_MODULES = (
    "datasets",
    "diagnostics",
    "explanation",
    "export",
    "features",
    "kernels",
    "models",
    "persistence",
    "plots",
    "sources",
    "tables",
    "testing",
    "dask",
)

__all__ = [
    "AdaptiveFeatures",
    "AutoFeatures",
    "BinningFeatures",
    "ConformalRegressor",
    "FourierFeatures",
    "GegenbauerFeatures",
    "KernelCCA",
    "KernelKMeans",
    "KernelPCA",
    "KernelQuantileRegressor",
    "KernelRidge",
    "KernelRidgeCV",
    "KernelRidgeClassifier",
    "KernelSVC",
    "MaclaurinFeatures",
    "NetworkFeatures",
    "NystromFeatures",
    "ObliviousFeatures",
    "ResidualFeatures",
    "RowNormFeatures",
    "TableModel",
    "TensorSketchFeatures",
    "__version__",
    "drift",
    "explain",
    "export_onnx",
    "load",
    "prune",
    "save",
]

if TYPE_CHECKING:
    from kernelsieve.explanation import explain
    from kernelsieve.export import export_onnx
    from kernelsieve.features import (
        AdaptiveFeatures,
        AutoFeatures,
        BinningFeatures,
        FourierFeatures,
        GegenbauerFeatures,
        MaclaurinFeatures,
        NetworkFeatures,
        NystromFeatures,
        ObliviousFeatures,
        ResidualFeatures,
        RowNormFeatures,
        TensorSketchFeatures,
    )
    from kernelsieve.models import (
        ConformalRegressor,
        KernelCCA,
        KernelKMeans,
        KernelPCA,
        KernelQuantileRegressor,
        KernelRidge,
        KernelRidgeClassifier,
        KernelRidgeCV,
        KernelSVC,
        drift,
        prune,
    )
    from kernelsieve.persistence import load, save
    from kernelsieve.tables.model import TableModel


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _MODULES:
        return import_module(f"kernelsieve.{name}")
    raise AttributeError(f"module 'kernelsieve' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
