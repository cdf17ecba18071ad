"""What every feature map is: a scikit-learn transformer that fills blocks of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from kernelsieve._parallel import thread_count
from kernelsieve._random import keyed_rows, root_seed
from kernelsieve._state import COLUMN_FIELDS, PersistentEstimator, instance, wrong
from kernelsieve._validation import check_count, sparse_output, valid_rows
from kernelsieve.features.evaluation import Evaluation
from kernelsieve.kernels import (
    Kernel,
    Product,
    learn,
    resolve_kernel,
)
from kernelsieve.kernels.resolve import own_kernel
from kernelsieve.sources.base import ArraySource, Source
from kernelsieve.sources.given import check_source, given_source, lazy_on_dask
from kernelsieve.sources.summaries import target_summary
from kernelsieve.sources.views import Mapped

if TYPE_CHECKING:
    from kernelsieve.products.product_features import ProductFeatures

REFERENCE_ROWS = 8192  # that show what the values of a column are
LEARNED = "learned"  # the kernel that ``kernels.learn`` finds for the target


class FeatureMap(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, PersistentEstimator, Evaluation
):
    """Base of the feature maps: ``transform`` returns Z with Z Z^T close to K.

    A map implements ``_fit_rows`` (what it learns from a source of rows) or ``_fit`` (from rows
    that are all in memory), and ``_fill`` (the features of a block of rows). ``unbiased`` says
    whether E[Z Z^T] = K for the kernels that the map holds whole, and ``unbiased_`` whether that
    is so for the kernel that was fitted.
    """

    unbiased: ClassVar[bool] = False
    sizes_itself: ClassVar[bool] = False  # whether n_components may be "auto"

    n_components: Any
    kernel: Any
    gamma: Any
    random_state: Any
    n_jobs: int | None

    kernel_: Kernel
    n_components_: int

    _state_parameters: ClassVar = {"kernel": instance(str, Kernel)}
    _state_fields: ClassVar = COLUMN_FIELDS | {"kernel_": instance(Kernel)}
    _not_stored: ClassVar = {"n_components_": "computed"}

    def _parameter_values(self) -> dict[str, Any]:
        values = super()._parameter_values()
        return {**values, "kernel": own_kernel(values["kernel"])}

    def _complete(self) -> None:
        """Check the state of a fitted map; subclasses also compute ``n_components_``."""
        if self.kernel_.n_columns not in (None, self.n_features_in_):
            wrong("kernel_", f"is not for {self.n_features_in_} columns")

    @property
    def unbiased_(self) -> bool:
        """Whether E[Z Z^T] = K for this kernel, up to the trace that ``eps`` lets a series lose."""
        check_is_fitted(self)
        return self.unbiased and not self.kernel_.series_is_cut

    @property
    def kernel_shares_(self) -> NDArray[np.float64]:
        """The share of each column in the logarithm of a product kernel, such as a learned one.

        It says how quickly the kernel changes along the columns, not how much predictions depend on
        them: for that see ``explain(model).importance``. Of a kernel of main effects and pairs, it
        is the share in the prior variances.
        """
        check_is_fitted(self)
        if not self.kernel_.has_rates:
            raise AttributeError(
                f"shares need a rate for each column, which {self.kernel_!r} does not have: "
                "use a Product, or kernel='learned'"
            )
        shares, d = self.kernel_.relevances(), self.n_features_in_
        return shares if len(shares) == d else np.full(d, 1.0 / d)

    def as_products(self) -> ProductFeatures | None:
        """The features as products of functions of one column each; None if they are not."""
        return None

    def as_landmarks(self) -> tuple[Any, NDArray[Any]] | None:
        """Rows and a matrix M such that the features of X are k(X, rows) M; None without them."""
        return None

    def check_stored_rows(self, rows: Any, where: str) -> None:
        """Refuse rows of a model file with missing values that the kernel cannot compare."""
        if not self.kernel_.compares_missing and not sp.issparse(rows) and np.isnan(rows).any():
            wrong(where, "has missing values, which the kernel does not compare")

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the map from the rows of X.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask collection} of shape (n, d), or Source
        y : array-like of shape (n,) or (n, n_outputs), optional
            Used by the maps that look at the target; others ignore it. None takes that of a
            source.

        Returns
        -------
        self
        """
        rows = self._source(X, y)
        self._check_n_components()
        thread_count(self.n_jobs)
        self.kernel_ = _with_references(self._resolve_kernel(rows), rows)
        self.kernel_.check_scale(rows.dtype)
        self._fit_rows(rows, root_seed(self.random_state))
        return self

    @lazy_on_dask
    def transform(self, X: Any) -> Any:
        """Compute the features of the rows of X.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask collection} of shape (n, d), or Source

        Returns
        -------
        ndarray or CSR of shape (n, n_components), in the float type of X
            A source for a source, which computes its blocks on demand, and a lazy array for a Dask
            collection.
        """
        check_is_fitted(self)
        if isinstance(X, Source):
            check_source(self, X, reset=False)
            return Mapped(X, self.transform_block, self.n_components_)
        Z = self._transform(self._validated(X, reset=False))
        return Z if isinstance(Z, np.ndarray) else sparse_output(Z)

    def _source(self, X: Any, y: Any) -> Source:
        """The validated rows to fit to, with their targets as given."""
        source = given_source(X, y)
        if source is not None:
            check_source(self, source, reset=True)
            return source
        rows = self._validated(X, reset=True)
        y = None if y is None else np.asarray(y)
        if y is not None and y.ndim == 0:
            raise ValueError(f"y={y} is a single value: pass one target for each row of X")
        check_consistent_length(rows, y)
        return ArraySource(rows, y)

    def _fit_rows(self, rows: Source, seed: int) -> None:
        """Learn from a source; maps that do not stream get all of its rows and targets."""
        X = rows.in_memory(type(self).__name__)
        self._fit(X, rows.take(np.arange(rows.shape[0])).y, seed)

    def _fit(self, X: Any, y: Any, seed: int) -> None:
        """Learn from valid rows, for maps that need them all at once."""
        raise NotImplementedError

    def _validated(self, X: Any, reset: bool) -> Any:
        return valid_rows(self, X, reset)

    def _check_n_components(self) -> None:
        if not (self.sizes_itself and self.n_components == "auto"):
            check_count(self.n_components, "n_components", "it is the number of features to make")

    def _resolve_kernel(self, X: Source) -> Kernel:
        if isinstance(self.kernel, str) and self.kernel == LEARNED:
            return self._learned_kernel(X)
        degree, coef0 = getattr(self, "degree", 3), getattr(self, "coef0", 1.0)
        return resolve_kernel(self.kernel, X, self.gamma, degree, coef0)

    def _learned_kernel(self, X: Source) -> Kernel:
        """The kernel that explains the targets (numbers or labels) best."""
        summary = target_summary(X)
        if summary is None:
            raise ValueError(
                "kernel='learned' needs a target to learn from: pass y to fit, or choose a kernel"
            )
        labels = summary.labels is not None
        options: dict[str, Any] = {
            "random_state": root_seed(self.random_state),
            "n_jobs": self.n_jobs,
        }
        return learn(X, classification=labels, **options).kernel

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        kernel = own_kernel(self.kernel)
        tags.input_tags.allow_nan = isinstance(kernel, Kernel) and kernel.allows_missing
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _with_references(kernel: Kernel, rows: Source) -> Kernel:
    """A product kernel that says what missing values are compared by, if there are any."""
    if not isinstance(kernel, Product) or kernel.references is not None or rows.sparse:
        return kernel
    if not rows.reduce(lambda block: int(np.isnan(block.X).sum())):
        return kernel
    some = keyed_rows(rows.shape[0], REFERENCE_ROWS, 0, "reference")
    return kernel.with_references(rows[some])
