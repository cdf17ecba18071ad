"""The base of the models: a feature map, valid rows, and features in blocks."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
)

from kernelsieve._parallel import one_thread
from kernelsieve._random import keyed_rows
from kernelsieve._state import COLUMN_FIELDS, PersistentEstimator, instance
from kernelsieve._validation import check_count, valid_rows
from kernelsieve.features import AdaptiveFeatures, FeatureMap
from kernelsieve.features.base import LEARNED
from kernelsieve.kernels import Kernel
from kernelsieve.models.passes import FeaturePasses, finite, rows_per_block, times
from kernelsieve.sources.base import ArraySource, Source
from kernelsieve.sources.changed import recoded
from kernelsieve.sources.given import as_source, check_source, given_source
from kernelsieve.sources.summaries import Moments, moments

LARGEST_SCALE_RATIO = 1e3
SCALE_ROWS = 10_000
NAMED_COLUMNS = 5
LARGEST_TARGET = {np.dtype(np.float32): 1e30, np.dtype(np.float64): 1e150}


class FeatureModel(PersistentEstimator):
    """Base of the models that work on the features of a map, one block of rows at a time."""

    features: FeatureMap | None
    block_rows: int | None
    n_jobs: int | None
    verbose: int

    features_: FeatureMap

    _state_parameters: ClassVar = {"features": instance(FeatureMap, None)}
    _state_fields: ClassVar = COLUMN_FIELDS | {
        "features_": instance(FeatureMap, fitted=True, d="n_features_in_", s="n_components_"),
    }

    def _fresh_features(self, **inherited: Any) -> FeatureMap:
        """An unfitted copy of the map; parameters that are None there are inherited."""
        return fresh_features(self.features, **inherited)

    def _fit_features(self, rows: Source, **inherited: Any) -> None:
        """Fit the map to valid rows and their targets."""
        rows_per_block(self.block_rows, rows.shape[0])  # checks block_rows before the work begins
        self.features_ = self._fresh_features(**inherited)
        if not has_rates(self.features_.kernel):
            warn_if_scales_differ(rows, getattr(self, "feature_names_in_", None))
        self.features_.fit(rows)

    def _valid_rows(self, X: Any, reset: bool = False) -> Any:
        """Validated rows as a matrix; a source is returned as it is."""
        source = given_source(X)
        if source is None:
            return valid_rows(self, X, reset)
        check_source(self, source, reset)
        return source

    def _valid_rows_and_targets(
        self, X: Any, y: Any, sample_weight: Any = None, reset: bool = True, **options: Any
    ) -> Source:
        """Valid rows with their targets, and weights where there are any."""
        source = given_source(X, y, sample_weight)
        if source is not None:
            check_source(self, source, reset)
            if source.target_shape is None:
                raise ValueError("the source has no target: pass y, or name its target column")
            return source
        X, y = valid_rows(self, X, reset, y=y, **options)
        return ArraySource(X, y, checked_weights(sample_weight, X))

    def _rows_for_map(self, X: Any, y: Any) -> Source:
        """Valid rows; with targets only if the kernel is to be learned from them."""
        learned = learns_kernel(self.features)
        if learned and y is not None:
            return self._valid_rows_and_targets(X, y, multi_output=True)
        rows = as_source(self._valid_rows(X, reset=True))
        if rows.resident:  # a target that is not used may still be that of other rows
            check_consistent_length(rows, y)
        return rows if learned else without_targets(rows)  # a source may have its own targets

    def _numeric(self, X: Any, y: Any, sample_weight: Any = None, reset: bool = True) -> Source:
        """Valid rows with targets that are numbers; ``columns_of`` makes columns of them."""
        return self._valid_rows_and_targets(
            X, y, sample_weight, reset, multi_output=True, y_numeric=True
        )

    def _scores(
        self,
        features: FeatureMap,
        X: Any,
        mean: NDArray[np.float64],
        directions: NDArray[np.float64],
        what: str,
    ) -> NDArray[Any]:
        """Centred features times directions; ``what`` names them in the error for overflow."""
        # One thread for the same bits with any threads of BLAS; what overflows is named below.
        with one_thread(), np.errstate(over="ignore"):
            offset = (mean @ directions).astype(X.dtype)
        parts = as_source(X).map(
            lambda block: times(features.transform_block(block.X), directions) - offset,
            rows_per_block(self.block_rows, X.shape[0]),
            self.n_jobs,
        )
        return finite(np.concatenate(list(parts)), what)

    @property
    def passes(self) -> FeaturePasses:
        """Passes over the features of rows with the fitted map."""
        return FeaturePasses(self.features_, self.block_rows, self.n_jobs, self.verbose)

    @property
    def kernel_(self) -> Kernel:
        """The kernel of the fitted map."""
        check_is_fitted(self)
        return self.features_.kernel_

    @property
    def kernel_shares_(self) -> NDArray[np.float64]:
        """The share of each column in a product kernel; ``explain`` gives that in predictions."""
        check_is_fitted(self)
        return self.features_.kernel_shares_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        features = getattr(self, "features", None)
        tags.input_tags.allow_nan = (
            isinstance(features, FeatureMap) and get_tags(features).input_tags.allow_nan
        )
        return tags


Model = TypeVar("Model", bound=FeatureModel)


def like(model: Model, parameters: dict[str, Any] | None = None, **fitted: Any) -> Model:
    """A model with other parameters, which takes over what another one has fitted.

    Parameters
    ----------
    model : estimator
        Fitted; it is not changed.
    parameters : dict, optional
        Those of the constructor that differ.
    **fitted
        Fitted attributes that differ.
    """
    known = model.get_params(deep=False)
    other = type(model)(**known | (parameters or {}))
    taken = {name: value for name, value in vars(model).items() if name not in known}
    other.__dict__.update(taken | fitted)
    return other


def checked_map(features: Any) -> FeatureMap | None:
    """A map, or None for the default."""
    if features is None or isinstance(features, FeatureMap):
        return features
    raise TypeError(
        f"features={features!r} is not a feature map: pass one, for example "
        "NystromFeatures(n_components=500), or None for the default"
    )


def fresh_features(features: FeatureMap | None, **inherited: Any) -> FeatureMap:
    """An unfitted copy of a map, or of the default; what is None there is inherited."""
    given_map = checked_map(features)
    fresh = AdaptiveFeatures() if given_map is None else clone(given_map)
    given = fresh.get_params(deep=False)
    missing = {k: v for k, v in inherited.items() if k in given and given[k] is None}
    return fresh.set_params(**missing) if missing else fresh


def checked_order(max_order: Any, learned: bool, rows: Source) -> int | None:
    """A valid max_order; an error if the kernel is not learned from these rows."""
    if max_order is None:
        return None
    check_count(max_order, "max_order", "it is the number of columns of the largest parts")
    if not learned:
        raise ValueError(
            f"max_order={max_order} is for a learned kernel, and features, gammas or cv are given: "
            "leave them out, or pass AdaptiveFeatures(max_order=...) or a kernels.Anova"
        )
    if rows.sparse:
        raise ValueError(f"max_order={max_order} needs dense rows: pass X.toarray()")
    return int(max_order)


def has_rates(kernel: Any) -> bool:
    """Whether a kernel has a rate for each column."""
    return is_learned(kernel) or (isinstance(kernel, Kernel) and kernel.has_rates)


def learns_kernel(features: FeatureMap | None) -> bool:
    """Whether a map learns its kernel from the target."""
    given = checked_map(features)
    return given is not None and is_learned(given.kernel)


def is_learned(kernel: Any) -> bool:
    """Whether a kernel is yet to be learned from the target."""
    return isinstance(kernel, str) and kernel == LEARNED


def both_classes(scores: NDArray[Any]) -> NDArray[Any]:
    """A column for each class, also where there are two."""
    return np.stack([-scores, scores], axis=1) if scores.ndim == 1 else scores


def checked_weights(sample_weight: Any, X: Any) -> NDArray[np.float64] | None:
    """Weights >= 0 with a positive sum, or none."""
    if sample_weight is None:
        return None
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.sum() > 0:
        raise ValueError("all sample weights are zero: there is nothing to fit")
    return weights


def columns_of(rows: Source) -> Source:
    """The same rows with targets of shape (n, n_outputs), in float64."""
    return recoded(rows, partial(numbers_of, rows.dtype), rows.target_shape or (1,))


def numbers_of(dtype: Any, y: Any, weights: Any) -> tuple[NDArray[np.float64], Any]:
    """Targets of a block as columns of finite numbers, and its weights."""
    columns = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    if not np.isfinite(columns).all():
        raise ValueError("y contains NaN or infinity: drop those rows, or impute the values")
    largest = float(np.abs(columns).max(initial=0.0))
    if largest > LARGEST_TARGET[np.dtype(dtype)]:
        raise ValueError(
            f"y reaches {largest:.3g}, and its squares overflow {dtype}, the float type of X: "
            "scale y"
        )
    if weights is not None and not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError("sample_weight must be finite and >= 0")
    return columns, weights


def without_targets(rows: Source) -> Source:
    """The same rows for models that must not see a target."""
    return recoded(rows, lambda y, weights: (None, weights), None)


def _moments_of_some(rows: Source) -> Moments:
    """Of rows in memory some are enough, and cheap; any others take a pass that finds all."""
    return Moments.of_rows(rows.take(keyed_rows(rows.shape[0], SCALE_ROWS, 0, "scales")).X)


def warn_if_scales_differ(rows: Source, names: Any) -> None:
    """Warn about columns that dominate all distances, and about those that do not matter."""
    if rows.sparse or rows.shape[0] < 2:
        return  # one-hot and text columns are on one scale by nature
    known = _moments_of_some(rows) if rows.resident else moments(rows)
    spread = np.sqrt(known.mean_squares(known.means))
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
        "the columns have very different scales, so a few of them dominate all distances: "
        f"{listed}. Put a StandardScaler before the model, or pass scaled data.",
        UserWarning,
        stacklevel=4,
    )


def _name(names: Any, i: int) -> str:
    return f"column {i}" if names is None else repr(str(names[i]))
