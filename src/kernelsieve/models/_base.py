"""What the models share: their feature map, valid rows, and blocks of features."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import validate_data

from kernelsieve._moments import column_means, mean_squares
from kernelsieve._parallel import map_row_blocks, ordered_row_blocks, row_blocks
from kernelsieve._progress import track
from kernelsieve._validation import FLOATS, canonical_rows, check_count
from kernelsieve.features import AdaptiveFeatures, FeatureMap

LARGEST_SCALE_RATIO = 1e3
NAMED_COLUMNS = 5
LARGEST_BLOCK = 4096


class FeatureModel(BaseEstimator):
    """Base of the estimators that work on the features of a map, a block of rows at a time."""

    features: FeatureMap | None
    block_rows: int | None
    n_jobs: int | None
    verbose: int

    features_: FeatureMap

    def _fresh_features(self, **inherited: Any) -> FeatureMap:
        """An unfitted copy of the map; parameters that it leaves None are inherited."""
        features = AdaptiveFeatures() if self.features is None else clone(self.features)
        given = features.get_params(deep=False)
        missing = {k: v for k, v in inherited.items() if k in given and given[k] is None}
        return features.set_params(**missing) if missing else features

    def _fit_features(self, X: Any, y: Any, **inherited: Any) -> None:
        """Fit the map to valid rows."""
        warn_if_scales_differ(X, getattr(self, "feature_names_in_", None))
        self.features_ = self._fresh_features(**inherited)
        with config_context(assume_finite=True):  # X was checked already
            self.features_.fit(X, y)

    def _valid_rows(self, X: Any, reset: bool = False) -> Any:
        X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=FLOATS, order="C")
        return canonical_rows(X)

    def _valid_rows_and_targets(self, X: Any, y: Any, reset: bool = True, **options: Any) -> Any:
        X, y = validate_data(
            self, X, y, reset=reset, accept_sparse="csr", dtype=FLOATS, order="C", **options
        )
        return canonical_rows(X), y

    def _rows_per_block(self, n_rows: int) -> int:
        """Enough blocks for several threads; a function of the shape only, and so are the bits."""
        if self.block_rows is None:
            return int(np.clip(n_rows // 8, 256, LARGEST_BLOCK))
        return check_count(self.block_rows, "block_rows", "it is the number of rows in a block")

    def _map_blocks(
        self, function: Callable[[Any, slice], Any], X: Any, raw: bool = False
    ) -> list[Any]:
        """``function(Z, rows)`` for the features (or raw blocks) of all rows, in order."""
        evaluate = self.features_._raw_block if raw else self.features_._transform_block
        return map_row_blocks(
            lambda rows: function(evaluate(X[rows]), rows),
            X.shape[0],
            self._rows_per_block(X.shape[0]),
            self.n_jobs,
        )

    def _stream(
        self, function: Callable[[Any, slice], Any], X: Any, description: str, raw: bool = False
    ) -> Iterator[Any]:
        """The same one by one, with a progress bar when asked for."""
        size = self._rows_per_block(X.shape[0])
        evaluate = self.features_._raw_block if raw else self.features_._transform_block
        blocks = ordered_row_blocks(
            lambda rows: function(evaluate(X[rows]), rows),
            X.shape[0],
            size,
            self.n_jobs,
        )
        return track(blocks, len(row_blocks(X.shape[0], size)), description, self.verbose)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def warn_if_scales_differ(X: Any, names: Any) -> None:
    """Say which columns dominate all distances, and which never count."""
    if sp.issparse(X) or X.shape[0] < 2:
        return  # one-hot and text columns are on one scale by nature
    spread = np.sqrt(mean_squares(X, column_means(X)))
    live = np.flatnonzero(spread > 1e-12 * spread.max(initial=0.0))
    if len(live) < 2:
        return
    by_size = live[np.argsort(spread[live])]
    if spread[by_size[-1]] <= LARGEST_SCALE_RATIO * spread[by_size[0]]:
        return
    middle = float(np.median(spread[live]))
    wide = [i for i in by_size[::-1] if spread[i] > 30 * middle][:NAMED_COLUMNS]
    narrow = [i for i in by_size if spread[i] < middle / 30][:NAMED_COLUMNS]
    named = wide + narrow or [by_size[-1], by_size[0]]
    listed = ", ".join(f"{_name(names, i)} (standard deviation {spread[i]:.3g})" for i in named)
    warnings.warn(
        f"the columns have very different scales, so few of them decide every distance: {listed}. "
        "Put a StandardScaler before the model, or pass scaled data.",
        UserWarning,
        stacklevel=4,
    )


def _name(names: Any, i: int) -> str:
    return f"column {i}" if names is None else repr(str(names[i]))
