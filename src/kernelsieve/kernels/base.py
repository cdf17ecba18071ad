"""What a kernel is: an exact Gram matrix, and for most of them a weighted Taylor series.

    k(x, y) = c(x) c(y) sum_{w=0..q} a_w <x', y'>^w

Everything in a series is kept in logarithms: |x'|^(2w) overflows and exp(-|x'|^2 / 2) underflows
long before their product does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import logsumexp

from kernelsieve._native.sparse_product import csr_times_csc
from kernelsieve._parallel import map_row_blocks
from kernelsieve._state import Persistent, array, flag, number, optional, scaling, wrong
from kernelsieve._validation import check_choice, check_matrix, check_points, check_square
from kernelsieve.sources.base import Block, Source, as_source
from kernelsieve.sources.summaries import squared_norms

if TYPE_CHECKING:
    from kernelsieve.kernels.product import Product

MAX_DEGREE = 256
TILE_ROWS = 256
TILE_COLUMNS = 1024  # 256 x 1024 floats stay in the second-level cache
FEATURES = "use fewer rows, or a feature map, which never forms this matrix"
# Norms are rounded up to this fraction of an octave before tails are summed: a mergeable summary
# of any number of rows, at the price of at most one degree too many.
STEPS_PER_OCTAVE = 1024
MAX_PIECES = 64  # summaries of blocks that wait before they are sorted into one


@dataclass(frozen=True)
class Series(Persistent):
    """The Taylor series of a kernel, truncated for a given data set.

    Attributes
    ----------
    scale : float
        x' = scale * (x - center).
    center : ndarray of shape (n_features,) or None
        Point that is subtracted from the rows; None for sparse data and dot-product kernels.
    damped : bool
        Whether c(x) = exp(-|x'|^2 / 2) (the Gaussian kernel); otherwise c(x) = 1.
    log_coefficients : ndarray of shape (degree + 1,)
        log a_w, -inf where a_w = 0.
    tail : float
        Trace that was cut off: the sum over the rows of c(x)^2 sum_{w > degree} a_w |x'|^(2w).
    """

    scale: float
    center: NDArray[Any] | None
    damped: bool
    log_coefficients: NDArray[np.float64]
    tail: float

    _state_fields: ClassVar = {
        "scale": scaling,
        "center": optional(array(None)),
        "damped": flag,
        "log_coefficients": array(None, finite=False),
        "tail": number(),
    }

    def _complete(self) -> None:
        if not 0 <= self.degree <= MAX_DEGREE or not (self.log_coefficients < np.inf).all():
            wrong("log_coefficients", "are too many or not numbers below infinity")

    @property
    def degree(self) -> int:
        """The truncation degree q."""
        return len(self.log_coefficients) - 1

    def points(self, X: Any) -> Any:
        """Return the scaled and centred points x', in the float type of X."""
        X = check_points(X)
        if self.center is not None:
            if sp.issparse(X):
                raise TypeError("this series is centred: densify X, or fit with center=False")
            X = X - self.center.astype(X.dtype)
        return X * X.dtype.type(self.scale)

    def log_amplitude(self, squared_radius: NDArray[np.float64]) -> NDArray[np.float64]:
        """log c(x) for points with |x'|^2 = ``squared_radius``."""
        if self.damped:
            return -0.5 * squared_radius
        return np.zeros_like(squared_radius)

    def log_degree_scales(self, squared_radius: NDArray[np.float64]) -> NDArray[np.float64]:
        """log of c(x) sqrt(a_w) |x'|^w, the length of each degree's part: (n, degree + 1)."""
        degrees = np.arange(self.degree + 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            powers = 0.5 * degrees * np.log(squared_radius)[:, None]
        powers[:, 0] = 0.0  # |x'|^0 = 1, also for the zero row
        return self.log_amplitude(squared_radius)[:, None] + 0.5 * self.log_coefficients + powers

    def __call__(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Gram matrix of the truncated kernel, in float64."""
        left = self.points(X).astype(np.float64)
        right = left if Y is None else self.points(Y).astype(np.float64)
        left_radius, right_radius = squared_norms(left), squared_norms(right)
        product = left @ right.T
        product = product.toarray() if sp.issparse(product) else product
        lengths = np.sqrt(np.outer(left_radius, right_radius))
        cosine = np.divide(product, lengths, out=np.zeros_like(product), where=lengths > 0)
        left_scale = np.exp(self.log_degree_scales(left_radius))
        right_scale = np.exp(self.log_degree_scales(right_radius))
        gram = np.zeros_like(product)
        for w in range(self.degree, -1, -1):  # small terms first
            gram += np.outer(left_scale[:, w], right_scale[:, w]) * cosine**w
        return gram


class Tiles(Protocol):
    """Tiles of the kernel matrix of X and Y."""

    def __call__(self, rows: slice, columns: slice, out: NDArray[Any]) -> None:
        """Write k(X[rows], Y[columns]) into a contiguous array."""

    def take(self, columns: NDArray[np.int64]) -> Tiles:
        """The tiles of X and some rows of Y; X is shared."""


@dataclass(frozen=True)
class GramTiles:
    """Tiles of any kernel, each from the Gram matrix of its rows."""

    kernel: Kernel
    X: Any
    Y: Any

    def __call__(self, rows: slice, columns: slice, out: NDArray[Any]) -> None:
        out[...] = self.kernel.between(self.X[rows], self.Y[columns], 1)

    def take(self, columns: NDArray[np.int64]) -> GramTiles:
        return GramTiles(self.kernel, self.X, self.Y[columns])


class SeriesTooLongError(ValueError):
    """The data reaches too far from the centre for a Taylor series of the largest degree."""


@dataclass
class Radii:
    """A histogram of squared radii, rounded up, which adds up over blocks.

    Attributes
    ----------
    steps : list of ndarray
        Logarithms of squared radii above 0, in units of 1 / STEPS_PER_OCTAVE.
    counts : list of ndarray
        Number of rows with each of them.
    largest : float
        The largest squared radius, not rounded.
    row : int
        The number of that row.
    """

    steps: list[NDArray[np.float64]]
    counts: list[NDArray[np.int64]]
    largest: float
    row: int

    @classmethod
    def of_rows(cls, squared_radius: NDArray[np.float64], start: int = 0) -> Radii:
        """Summarise rows that are numbered from ``start``."""
        row = int(np.argmax(squared_radius))
        positive = squared_radius[squared_radius > 0]
        steps, counts = np.unique(np.ceil(STEPS_PER_OCTAVE * np.log2(positive)), return_counts=True)
        return cls([steps], [counts], float(squared_radius[row]), start + row)

    def __iadd__(self, other: Radii) -> Radii:
        self.steps += other.steps
        self.counts += other.counts
        if other.largest > self.largest:
            self.largest, self.row = other.largest, other.row
        if len(self.steps) >= MAX_PIECES:
            steps, counts = self._together()
            self.steps, self.counts = [steps], [counts]
        return self

    def _together(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        steps, places = np.unique(np.concatenate(self.steps), return_inverse=True)
        counts = np.zeros(len(steps), dtype=np.int64)
        np.add.at(counts, places, np.concatenate(self.counts))
        return steps, counts

    def counted(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return squared radii, and the number of rows with each."""
        steps, counts = self._together()
        return np.minimum(np.exp2(steps / STEPS_PER_OCTAVE), self.largest), counts


def truncation_degree(
    found: Radii,
    log_tail: Callable[[NDArray[np.float64], int], NDArray[np.float64]],
    tol: float,
    max_degree: int,
) -> tuple[int, float]:
    """The smallest q whose trace tail is at most ``tol``, and that tail.

    The trace bounds the operator norm of what is cut off (the paper's claim on the lifting).
    ``log_tail(squared_radius, q)`` is log(c(x)^2 sum_{w > q} a_w |x'|^(2w)).
    """
    radii, counts = found.counted()

    def tail(q: int) -> float:
        return float(np.exp(logsumexp(log_tail(radii, q), b=counts))) if len(radii) else 0.0

    if tail(max_degree) > tol:
        raise SeriesTooLongError(
            f"row {found.row} has |x'|^2 = {found.largest:.6g}, which needs a Taylor series of "
            f"degree > max_degree={max_degree} to keep the truncation below {tol:.3g}. "
            "Use a smaller gamma or scaled data, or a method without a Taylor series: "
            "NystromFeatures, or the Mercer basis (basis='mercer') for the Gaussian kernel."
        )
    low, high = 0, max_degree
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if tail(middle) <= tol else (middle + 1, high)
    return low, tail(low)


class Kernel(Persistent, ABC):
    """A positive definite function of two points; calling it returns the exact Gram matrix."""

    allows_missing: ClassVar[bool] = False  # whether rows may hold NaN
    is_sum_of_parts: ClassVar[bool] = False  # one for each of some subsets of columns

    def as_product(self) -> Product | None:
        """The same kernel as a product over columns; None if it is not one."""
        return None

    def __call__(self, X: Any, Y: Any = None, *, n_jobs: int | None = None) -> NDArray[Any]:
        """Compute the exact Gram matrix k(x, y) for the rows of X and Y.

        Parameters
        ----------
        X : {array-like, CSR} of shape (n, d)
        Y : {array-like, CSR} of shape (m, d), optional
            None takes the rows of X.
        n_jobs : int, optional
            Number of threads; None uses all cores.

        Returns
        -------
        K : ndarray of shape (n, m)
            float32 if both X and Y are, else float64.
        """
        X = check_points(X, missing=self.allows_missing)
        if Y is not None:
            Y = check_points(Y, "Y", missing=self.allows_missing)
            if X.shape[1] != Y.shape[1]:
                raise ValueError(f"X has {X.shape[1]} columns and Y has {Y.shape[1]}")
        return self._gram(X, X if Y is None else Y, Y is None, n_jobs)

    def between(self, X: Any, Y: Any, n_jobs: int | None = None) -> NDArray[Any]:
        """Compute the exact Gram matrix of rows that are known to be valid.

        Parameters
        ----------
        X : {ndarray, CSR} of shape (n, d)
        Y : {ndarray, CSR} of shape (m, d)
            Pass X itself for the symmetric matrix of X.
        n_jobs : int, optional
            Number of threads; None uses all cores.

        Returns
        -------
        ndarray of shape (n, m)
        """
        return self._gram(X, Y, Y is X, n_jobs)

    def tiles(self, X: Any, Y: Any, dtype: Any) -> Tiles:
        """Prepare tiles of the kernel matrix of rows that are known to be valid.

        Parameters
        ----------
        X : {ndarray, CSR} of shape (n, d)
        Y : {ndarray, CSR} of shape (m, d)
            Pass X itself for the symmetric matrix of X.
        dtype : float32 or float64
            Of the arithmetic and of the values.

        Returns
        -------
        Tiles
        """
        same, X = Y is X, X.astype(dtype, copy=False)
        return GramTiles(self, X, X if same else Y.astype(dtype, copy=False))

    @abstractmethod
    def _gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]: ...

    @abstractmethod
    def diag(self, X: Any) -> NDArray[Any]:
        """Compute k(x, x) for every row of X, without the Gram matrix.

        Parameters
        ----------
        X : {array-like, CSR} of shape (n, d)

        Returns
        -------
        values : ndarray of shape (n,), in the float type of X
        """

    def check_domain(self, X: Any, start: int = 0) -> None:
        """Refuse rows on which the kernel is not defined.

        Most kernels are defined everywhere. Feature maps call this on every block that they
        transform: their features would be finite and meaningless outside the domain.

        Parameters
        ----------
        X : {ndarray, CSR} of shape (n, d)
            Valid rows.
        start : int, default 0
            Number of the first row, for the error message.
        """

    def series(
        self, X: Any, tol: float = 1e-6, *, center: Any = "auto", max_degree: int = MAX_DEGREE
    ) -> Series:
        """Truncate the Taylor series in <x, y>; a TypeError for kernels without one.

        Parameters
        ----------
        X : {array-like, CSR} of shape (n, d)
        tol : float, default 1e-6
            Bound on the trace of the part of K that is cut off.
        center : "auto", True or False, default "auto"
            Whether to subtract the column means.
        max_degree : int, default 256
            Largest degree of the truncated series.

        Returns
        -------
        Series
        """
        raise TypeError(
            f"{self!r} has no Taylor series in <x, y>: use NystromFeatures or FourierFeatures"
        )


class SeriesKernel(Kernel):
    """A kernel with a weighted Taylor series of non-negative coefficients."""

    @property
    @abstractmethod
    def _scale(self) -> float: ...

    @property
    def _damped(self) -> bool:
        return False

    @property
    def _last_degree(self) -> int | None:
        """Degree of a polynomial kernel; None for infinite series."""
        return None

    @abstractmethod
    def _log_coefficients(self, degree: int) -> NDArray[np.float64]: ...

    @abstractmethod
    def _log_tail(self, squared_radius: NDArray[np.float64], q: int) -> NDArray[np.float64]: ...

    def series(
        self, X: Any, tol: float = 1e-6, *, center: Any = "auto", max_degree: int = MAX_DEGREE
    ) -> Series:
        """Truncate the Taylor series of this kernel for the rows of X.

        Parameters
        ----------
        X : {array-like, CSR} of shape (n, d)
        tol : float, default 1e-6
            Bound on the trace of the part of K that is cut off, which also bounds every entry and
            the operator norm of K - K_q.
        center : "auto", True or False, default "auto"
            Whether to subtract the column means. The Gaussian kernel is invariant to that, but its
            series is not. "auto" centres dense data for the Gaussian kernel.
        max_degree : int, default 256
            The largest degree allowed.

        Returns
        -------
        series : Series

        Examples
        --------
        >>> import numpy as np
        >>> from kernelsieve.kernels import Gaussian
        >>> X = np.array([[0.0], [0.5], [2.0]])
        >>> Gaussian(gamma=1.0).series(X, tol=1e-6).degree
        14
        """
        return self.series_of(check_points(X), tol, center, max_degree)

    def series_of(
        self, X: Any, tol: float, center: Any = "auto", max_degree: int = MAX_DEGREE
    ) -> Series:
        """Truncate the Taylor series for a source, or for rows that are known to be valid.

        Parameters
        ----------
        X : {ndarray, CSR} of shape (n, d), or Source
        tol, center, max_degree
            See `series`.

        Returns
        -------
        Series
        """
        center = check_choice(center, "center", ("auto", True, False))
        if not (isinstance(tol, int | float | np.number) and tol >= 0):
            raise ValueError(f"tol={tol!r} must be >= 0: it is the trace that truncation may cost")
        source = as_source(X)
        mu = self._mean_point(source, center)
        last = self._last_degree
        if last is not None and last > max_degree:
            raise ValueError(f"degree={last} is above max_degree={max_degree}: raise max_degree")

        def radii_of(block: Block) -> Radii:
            self.check_domain(block.X, block.start)
            return Radii.of_rows(self._squared_radius(block.X, mu), block.start)

        radii = source.reduce(radii_of)
        degree, tail = truncation_degree(
            radii, self._log_tail, tol, max_degree if last is None else last
        )
        return Series(self._scale, mu, self._damped, self._log_coefficients(degree), tail)

    def _mean_point(self, X: Source, center: Any) -> NDArray[Any] | None:
        if center is True:
            raise ValueError(
                f"center=True is not possible for {self!r}, which depends on the origin: only the "
                "Gaussian can be centred"
            )
        return None

    def _squared_radius(self, X: Any, mu: NDArray[Any] | None) -> NDArray[np.float64]:
        """|x'|^2 of every row."""
        return self._scale**2 * squared_norms(X, mu)


def empty_gram(X: Any, Y: Any, dtype: Any) -> NDArray[Any]:
    """Allocate the kernel matrix of the rows of X and Y, if it fits in memory."""
    n, m, dtype = X.shape[0], Y.shape[0], np.dtype(dtype)
    what = f"the {n:,} x {m:,} kernel matrix in {dtype}"
    if n == m:
        check_square(n, dtype.itemsize, what, f"at most {{fits}} rows would fit; {FEATURES}")
    else:
        check_matrix(n, m, dtype, what, f"at most {{fits}} columns would fit; {FEATURES}")
    return np.empty((n, m), dtype=dtype)


def fill_gram(
    X: Any,
    Y: Any,
    of_product: Callable[[NDArray[Any]], None],
    n_jobs: int | None,
    mend: Callable[[NDArray[Any], slice, slice], None] | None = None,
) -> NDArray[Any]:
    """Compute a function of the inner products <x, y>, tile by tile while they are in cache.

    ``of_product`` works on a tile in place. ``mend`` may correct a tile of products of dense rows
    before that, given its rows and columns.
    """
    gram = empty_gram(X, Y, np.result_type(X.dtype, Y.dtype))
    dense = not (sp.issparse(X) or sp.issparse(Y))
    products = None if dense else sparse_products(X, Y, gram)

    def fill(rows: slice) -> None:
        if products is not None:
            products(rows)
            of_product(gram[rows])
            return
        for start in range(0, Y.shape[0], TILE_COLUMNS):
            columns = slice(start, start + TILE_COLUMNS)
            tile = gram[rows, columns]
            with np.errstate(over="ignore", invalid="ignore"):  # for the caller to look at
                np.matmul(X[rows], Y[columns].T, out=tile)
                if mend is not None:
                    mend(tile, rows, columns)
                of_product(tile)

    map_row_blocks(fill, X.shape[0], TILE_ROWS, n_jobs)
    return gram


def sparse_products(X: Any, Y: Any, out: NDArray[Any]) -> Callable[[slice], None]:
    """Return what writes <x, y> for a block of rows into ``out``; X or Y, or both, are sparse."""
    if sp.issparse(X) and sp.issparse(Y):
        columns = Y.tocsc()

        def write(rows: slice) -> None:
            indptr = X.indptr[rows.start : rows.stop + 1]
            csr_times_csc(
                indptr, X.indices, X.data, columns.indptr, columns.indices, columns.data, out[rows]
            )

    else:

        def write(rows: slice) -> None:
            left = X[rows].astype(out.dtype, copy=False)  # a product in the type of the result
            out[rows] = left @ Y.T

    return write
