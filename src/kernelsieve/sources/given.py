"""What a caller passed as X: a source, a Dask collection, or rows that are to be validated."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from kernelsieve.sources.base import ArraySource, Source

Predict = TypeVar("Predict", bound=Callable[..., Any])


def is_dask(X: Any) -> bool:
    """Whether X is a Dask array, data frame or series; does not import Dask to find out."""
    if not hasattr(type(X), "__dask_graph__"):
        return False
    from dask.base import is_dask_collection

    return bool(is_dask_collection(X))


def as_source(X: Any) -> Source:
    """Return a source as it is, and make one of a Dask collection or of valid rows in memory."""
    source = given_source(X)
    return ArraySource(X) if source is None else source


def given_source(X: Any, y: Any = None, weights: Any = None) -> Source | None:
    """Return the source that X is, or makes as a Dask collection, with its targets and weights.

    None if X is neither: then it has to be validated as an array first.
    """
    if is_dask(X):
        from kernelsieve.sources.dask import DaskSource

        return DaskSource(X, y, weights)
    if not isinstance(X, Source) or (y is None and weights is None):
        return X if isinstance(X, Source) else None
    return X.with_targets(None if y is None else np.asanyarray(y), weights)


def lazy_on_dask(method: Predict) -> Predict:
    """Make a method of an estimator return lazy Dask arrays for Dask collections.

    The method takes rows as its first argument and returns an array, or a tuple of arrays, with
    one entry for every row.
    """

    @wraps(method)
    def applied(self: Any, X: Any, *arguments: Any, **options: Any) -> Any:
        if is_dask(X):
            from kernelsieve.sources.dask import apply_lazily

            return apply_lazily(self, method.__name__, X, *arguments, **options)
        return method(self, X, *arguments, **options)

    return cast(Predict, applied)


def check_source(estimator: Any, source: Source, reset: bool) -> None:
    """Remember the columns of a source, or compare them, as scikit-learn does with arrays."""
    if not reset:
        check_columns(estimator, source.shape[1], source.names)
        return
    estimator.n_features_in_ = source.shape[1]
    estimator.__dict__.pop("feature_names_in_", None)
    if source.names is not None:
        estimator.feature_names_in_ = np.array(source.names, dtype=object)


def check_columns(estimator: Any, n_features: int, names: list[str] | None) -> None:
    """Refuse columns that are not those of the fit."""
    if n_features != estimator.n_features_in_:
        raise ValueError(
            f"X has {n_features} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input"
        )
    known = getattr(estimator, "feature_names_in_", None)
    if known is not None and names is not None and list(known) != names:
        raise ValueError(f"X has the columns {names}, but fit had {list(known)}")
