"""The estimators that take Dask arrays and data frames, on threads, processes or a cluster.

They are the estimators of ``kernelsieve`` themselves: a Dask collection is one more source of rows.
``fit`` adds up small summaries of the chunks in a tree, and gives the same results for the same
seed, however the rows are chunked. ``transform``, ``predict`` and their like return lazy Dask
arrays in the chunks of their input.

``KernelRidge(refine=True)`` multiplies with the kernel matrix block by block: held rows travel to
where the chunks are, and meet them there. The fitted model keeps all rows in this process.

What looks at all rows at once is not available: ``sampler="paper"``, landmarks other than
"uniform", and ``KernelPCA(fit_inverse_transform=True)``.

Examples
--------
>>> import dask.array as da
>>> from kernelsieve.dask import AdaptiveFeatures, KernelRidge
>>> X = da.random.default_rng(0).normal(size=(2000, 3), chunks=(300, 3))
>>> y = X[:, 0] * X[:, 1]
>>> model = KernelRidge(AdaptiveFeatures(60, random_state=0), alpha=1e-3).fit(X, y)
>>> predicted = model.predict(X)  # lazy
>>> predicted.shape, predicted.chunks[0][:2]
((2000,), (300, 300))
>>> bool(abs(predicted - y).mean().compute() < 0.2)
True
"""

from kernelsieve.features import (
    AdaptiveFeatures,
    FourierFeatures,
    NystromFeatures,
    RowNormFeatures,
)
from kernelsieve.models import (
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
