"""What the estimators on Dask collections share: fits on sources, and lazy results."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from kernelsieve._parallel import one_thread
from kernelsieve.sources.dask import DaskSource, as_array, column_names, is_dask


class OnDask:
    """An estimator that takes Dask collections, and leaves all else to its next base class."""

    def _collected(self, X: Any, y: Any = None, weights: Any = None) -> tuple[Any, Any, Any]:
        """X as a source, with its targets; what is no Dask collection stays."""
        if is_dask(X):
            return DaskSource(X, y, weights), None, None
        return X, y, weights

    def _lazily(self, method: str, X: Any, columns: int | None, dtype: Any = None) -> Any:
        """``method`` of every chunk: ``columns`` of them, or one number or label a row."""
        check_is_fitted(self)
        rows = as_array(X)
        names = column_names(X)
        known = getattr(self, "feature_names_in_", None)
        if names is not None and known is not None and list(known) != names:
            raise ValueError(f"X has the columns {names}, fit had {list(known)}")
        if rows.shape[1] != self.n_features_in_:  # type: ignore[attr-defined]
            raise ValueError(
                f"X has {rows.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"  # type: ignore[attr-defined]
            )
        call = partial(_of_chunk, self, method, names)
        floats = np.dtype(np.float32 if rows.dtype == np.float32 else np.float64)
        meta = call(_example(rows._meta, rows.shape[1], floats))[:0]
        if columns is None:
            return rows.map_blocks(call, dtype=meta.dtype, drop_axis=1, meta=meta)
        chunks = (rows.chunks[0], (columns,))
        return rows.map_blocks(call, dtype=meta.dtype, chunks=chunks, meta=meta)


def _of_chunk(estimator: Any, method: str, names: list[str] | None, X: Any) -> Any:
    if names is not None:  # a partition again, as scikit-learn asks after a fit with names
        import pandas as pd

        X = pd.DataFrame(X, columns=names)
    with one_thread():
        return getattr(estimator, method)(X)


def _example(meta: Any, n_features: int, dtype: Any) -> Any:
    """A row of zeros of the kind that the chunks have."""
    zeros = np.zeros((1, n_features), dtype=dtype)
    return type(meta)(zeros) if hasattr(meta, "tocsr") else zeros
