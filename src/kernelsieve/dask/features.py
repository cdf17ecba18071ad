"""Feature maps on Dask collections."""

from __future__ import annotations

from typing import Any, Self

from kernelsieve import features
from kernelsieve.dask._lazy import OnDask
from kernelsieve.sources.dask import is_dask


class _DaskMap(OnDask):
    """A feature map whose ``fit`` reduces chunks and whose ``transform`` is lazy."""

    n_components_: int

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the map from the rows of X, a Dask array or data frame (or what the map takes)."""
        X, y, _ = self._collected(X, y)
        return super().fit(X, y)  # type: ignore[misc]

    def transform(self, X: Any) -> Any:
        """The features: of a Dask collection a lazy Dask array of shape (n, n_components)."""
        if is_dask(X):
            return self._lazily("transform", X, self.n_components_)
        return super().transform(X)  # type: ignore[misc]


class AdaptiveFeatures(_DaskMap, features.AdaptiveFeatures):
    """``kernelsieve.AdaptiveFeatures`` on Dask arrays and data frames.

    Parameters and results are the same, for any chunks and any number of workers;
    sampler="paper" is not available.

    Examples
    --------
    >>> import dask.array as da
    >>> from kernelsieve.dask import AdaptiveFeatures
    >>> X = da.random.default_rng(0).normal(size=(1000, 4), chunks=(300, 4))
    >>> Z = AdaptiveFeatures(50, random_state=0).fit(X, X[:, 0] * X[:, 1]).transform(X)
    >>> Z.shape, Z.chunks[0]
    ((1000, 50), (300, 300, 300, 100))
    """


class RowNormFeatures(_DaskMap, features.RowNormFeatures):
    """``kernelsieve.RowNormFeatures`` on Dask arrays and data frames; no sampler="paper".

    Examples
    --------
    >>> import dask.array as da
    >>> from kernelsieve.dask import RowNormFeatures
    >>> X = da.random.default_rng(0).normal(size=(1000, 4), chunks=(300, 4))
    >>> RowNormFeatures(50, random_state=0).fit(X).transform(X).shape
    (1000, 50)
    """


class FourierFeatures(_DaskMap, features.FourierFeatures):
    """``kernelsieve.FourierFeatures`` on Dask arrays and data frames.

    Examples
    --------
    >>> import dask.array as da
    >>> from kernelsieve.dask import FourierFeatures
    >>> X = da.random.default_rng(0).normal(size=(1000, 4), chunks=(300, 4))
    >>> FourierFeatures(50, random_state=0).fit(X).transform(X).shape
    (1000, 50)
    """


class NystromFeatures(_DaskMap, features.NystromFeatures):
    """``kernelsieve.NystromFeatures`` on Dask arrays and data frames, with uniform landmarks.

    Examples
    --------
    >>> import dask.array as da
    >>> from kernelsieve.dask import NystromFeatures
    >>> X = da.random.default_rng(0).normal(size=(1000, 4), chunks=(300, 4))
    >>> NystromFeatures(50, random_state=0).fit(X).transform(X).shape
    (1000, 50)
    """
