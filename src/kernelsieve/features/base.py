"""What every feature map is: a scikit-learn transformer that fills blocks of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from kernelsieve._parallel import map_row_blocks, row_blocks, thread_count
from kernelsieve._random import keyed_rows, root_seed
from kernelsieve._state import COLUMN_FIELDS, PersistentEstimator, instance, wrong
from kernelsieve._validation import check_count, check_matrix, sparse_output, valid_rows
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

OUTPUT_BYTES = 2**21  # of output per block: what a core's second-level cache holds
if TYPE_CHECKING:
    from kernelsieve.products.product_features import ProductFeatures

REFERENCE_ROWS = 8192  # that show what the values of a column are
LEARNED = "learned"  # the kernel that ``kernels.learn`` finds for the target
SMALLER_OUTPUT = (
    "at most {fits} features would fit; lower n_components, pass float32, or transform a source of "
    "kernelsieve.sources, which goes block by block"
)


class FeatureMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PersistentEstimator, ABC):
    """Base of the feature maps: ``transform`` returns Z with Z Z^T close to K.

    A map implements ``_fit_rows`` (what it learns from a source of rows) or ``_fit`` (from rows
    that are all in memory), and ``_fill`` (the features of a block of rows). ``unbiased`` says
    whether E[Z Z^T] = K for the kernels that the map holds whole, and ``unbiased_`` whether that
    is so for the kernel that was fitted.
    """

    unbiased: ClassVar[bool] = False
    sizes_itself: ClassVar[bool] = False  # whether n_components may be "auto"
    _rows_at_once: ClassVar[int | None] = None  # rows of a block; None lets the output decide

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
        self.kernel_ = self._with_references(self._resolve_kernel(rows), rows)
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

    @abstractmethod
    def _fill(self, X: Any, out: NDArray[Any]) -> None:
        """Write the features of the validated rows X into ``out``."""

    def _transform(self, X: Any) -> Any:
        """``transform`` of validated rows."""
        if sp.issparse(X) and self._csr(X[:1]) is not None:
            size = self._block_rows(X.dtype)
            blocks = map_row_blocks(
                lambda rows: self.transform_block(X[rows]), X.shape[0], size, self.n_jobs
            )
            return sp.vstack(blocks, format="csr")
        Z = self._empty(X.shape[0], X.dtype)
        map_row_blocks(
            lambda rows: self._fill_finite(X[rows], Z[rows]),
            X.shape[0],
            self._block_rows(X.dtype),
            self.n_jobs,
        )
        return Z

    def _empty(self, n_rows: int, dtype: Any) -> NDArray[Any]:
        """Allocate the features of ``n_rows`` rows, unless they would not fit in memory."""
        s, dtype = self.n_components_, np.dtype(dtype)
        what = f"transform of {n_rows:,} rows to {s:,} features in {dtype}"
        check_matrix(n_rows, s, dtype, what, SMALLER_OUTPUT)
        return np.empty((n_rows, s), dtype=dtype)

    def transform_block(self, X: Any) -> Any:
        """Compute the features of a block of rows that are known to be valid, in this thread.

        Parameters
        ----------
        X : {ndarray, CSR} of shape (n, d)

        Returns
        -------
        ndarray or CSR of shape (n, n_components), in the float type of X
        """
        if sp.issparse(X):
            self.kernel_.check_domain(X)
            sparse = self._csr(X)
            if sparse is not None:
                return sparse
        Z = np.empty((X.shape[0], self.n_components_), dtype=X.dtype)
        for rows in row_blocks(X.shape[0], self._block_rows(X.dtype)):
            self._fill_finite(X[rows], Z[rows])
        return Z

    def _csr(self, X: Any) -> sp.csr_array | None:
        """The features of CSR rows as CSR, for the maps that keep them sparse; else None."""
        return None

    def _fill_finite(self, X: Any, out: NDArray[Any]) -> None:
        """``_fill``, with an error for rows on which the kernel overflows."""
        if not self.kernel_.bounded:  # those are defined everywhere
            self.kernel_.check_domain(X)
        with np.errstate(over="ignore", invalid="ignore"):
            self._fill(self._spelled_out(X), out)
        self._check_finite(out, X)

    def _spelled_out(self, X: Any) -> Any:
        """The block, dense if the kernel has warps or categories."""
        dense = sp.issparse(X) and self.kernel_.needs_dense_rows(X.shape[1])
        return X.toarray() if dense else X

    def _check_finite(self, values: NDArray[Any], X: Any) -> None:
        if self.kernel_.bounded:  # no row is too long for these
            return
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(values.sum()) or np.isfinite(values).all():
                return
        raise ValueError(
            f"{self.kernel_!r} overflows {values.dtype} on a row whose largest entry is "
            f"{abs(X).max():.6g}: scale X, or lower gamma"
        )

    def raw_block(self, X: Any) -> Any:
        """Compute what ``mixing`` turns into features, for callers that can skip that product.

        Parameters
        ----------
        X : {ndarray, CSR} of shape (n, d)
            Rows that are known to be valid.

        Returns
        -------
        ndarray or CSR with n rows: the features themselves for maps without a mixing
        """
        return self.transform_block(X)

    def times(self, weights: NDArray[np.float64]) -> Callable[[NDArray[Any]], NDArray[Any]]:
        """Prepare features times weights for few rows at a time, as quickly as possible.

        Parameters
        ----------
        weights : ndarray of shape (n_components, m)

        Returns
        -------
        callable
            Takes valid rows of shape (n, d) in float64 and returns an array of shape (n, m).
        """
        self.transform_block(np.zeros((1, self.n_features_in_)))  # prepares and compiles
        return lambda rows: self.transform_block(rows) @ weights

    @property
    def mixing(self) -> NDArray[Any] | None:
        """T with features = raw block times T; None for the maps without such a matrix."""
        return None

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

    def _with_references(self, kernel: Kernel, rows: Source) -> Kernel:
        """A product kernel that says what missing values are compared by, if there are any."""
        if not isinstance(kernel, Product) or kernel.references is not None or rows.sparse:
            return kernel
        if not rows.reduce(lambda block: int(np.isnan(block.X).sum())):
            return kernel
        some = keyed_rows(rows.shape[0], REFERENCE_ROWS, 0, "reference")
        return kernel.with_references(rows[some])

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

    def _block_rows(self, dtype: Any) -> int:
        if self._rows_at_once is not None:
            return self._rows_at_once
        row_bytes = max(1, self.n_components_) * np.dtype(dtype).itemsize
        return int(np.clip(OUTPUT_BYTES // row_bytes, 32, 8192))

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
