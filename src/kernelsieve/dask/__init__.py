"""The estimators on Dask arrays and data frames, on threads, processes or a cluster.

They are those of ``kernelsieve`` with the same parameters and, for the same seed, the same results;
``fit`` adds up small summaries of chunks in a tree, ``transform`` and ``predict`` are lazy.
"""

from kernelsieve.dask.features import (
    AdaptiveFeatures,
    FourierFeatures,
    NystromFeatures,
    RowNormFeatures,
)
from kernelsieve.dask.models import (
    KernelKMeans,
    KernelPCA,
    KernelRidge,
    KernelRidgeClassifier,
    KernelRidgeCV,
)
from kernelsieve.sources.dask import DaskSource

__all__ = [
    "AdaptiveFeatures",
    "DaskSource",
    "FourierFeatures",
    "KernelKMeans",
    "KernelPCA",
    "KernelRidge",
    "KernelRidgeCV",
    "KernelRidgeClassifier",
    "NystromFeatures",
    "RowNormFeatures",
]
