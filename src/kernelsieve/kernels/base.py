"""What a kernel is: an exact Gram matrix, and for most of them a weighted Taylor series."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelsieve._state import Persistent
from kernelsieve._validation import check_choice, check_points
from kernelsieve.kernels.series import MAX_DEGREE, Radii, Series, truncation_degree
from kernelsieve.kernels.tiles import GramTiles, Tiles
from kernelsieve.sources.base import Block, Source
from kernelsieve.sources.given import as_source
from kernelsieve.sources.summaries import squared_norms

if TYPE_CHECKING:
    from kernelsieve.kernels.product import Product


class Kernel(Persistent, ABC):
    """A positive definite function of two points; calling it returns the exact Gram matrix."""

    # What it can do: maps, models and solvers ask for this, never for the class of a kernel.
    allows_missing: ClassVar[bool] = False  # whether rows may hold NaN
    bounded: ClassVar[bool] = False  # whether k(x, x) = 1 for every row, however long
    radial: ClassVar[bool] = False  # whether it is a function of |x - y|
    spherical: ClassVar[bool] = False  # whether it is one of the angle, and of the rows' lengths
    has_rates: ClassVar[bool] = False  # whether it knows how much each column counts
    has_series: ClassVar[bool] = False  # whether ``series_of`` can truncate a Taylor series
    has_frequencies: ClassVar[bool] = False  # whether it has Fourier features
    is_sum_of_parts: ClassVar[bool] = False  # whether it has parts for subsets of the columns
    of_inner_products: ClassVar[bool] = False  # so that long rows have large values
    # Whether the maps that expand it in degrees stop where a fixed share of k(x, x) is left.
    series_is_cut: ClassVar[bool] = False

    @property
    def n_columns(self) -> int | None:
        """The number of columns; None if the kernel takes any number of them."""
        return None

    @property
    def compares_missing(self) -> bool:
        """Whether it holds what missing values are compared by."""
        return False

    def product_factors(self) -> Product | None:
        """This kernel as a product of one-dimensional kernels.

        Returns
        -------
        Product or None
            None if it is not a product over columns.
        """
        return None

    def frequencies(
        self, n_columns: int, count: int, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Draw independent w for which the mean of cos(w . (x - y)) is the kernel.

        Those of a `Product` are for its scaled points.

        Parameters
        ----------
        n_columns, count : int
        rng : numpy.random.Generator

        Returns
        -------
        ndarray of shape (n_columns, count)
        """
        raise TypeError(f"{self!r} has no Fourier features: use NystromFeatures")

    def frequency_scales(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw what turns normal vectors into frequencies of a kernel of ``|x - y|``.

        Parameters
        ----------
        count : int
        rng : numpy.random.Generator

        Returns
        -------
        ndarray of shape (count,)
        """
        raise TypeError(f"{self!r} is not a kernel of |x - y|: use frequencies='plain'")

    def relevances(self) -> NDArray[np.float64]:
        """The share of each column, for kernels with ``has_rates``.

        Returns
        -------
        ndarray of shape (d,), or (1,) for a kernel with one rate
        """
        raise TypeError(f"{self!r} does not have a rate for each column: use a Product")

    def active(self, n_columns: int) -> NDArray[np.int64]:
        """Find the columns that have a rate above 0, and so scaled coordinates.

        Parameters
        ----------
        n_columns : int
            Number of columns of the rows.

        Returns
        -------
        ndarray of int
            None of them for kernels without rates.
        """
        return np.empty(0, dtype=np.int64)

    def columns(self, X: NDArray[Any], columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Scaled coordinates of some of the ``active`` columns.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        columns : ndarray of int of shape (k,)

        Returns
        -------
        ndarray of shape (n, k)
        """
        raise TypeError(f"{self!r} has no scaled columns: use a Product")

    def needs_dense_rows(self, n_columns: int) -> bool:
        """Whether the zeros of sparse rows have to be spelled out.

        Parameters
        ----------
        n_columns : int

        Returns
        -------
        bool
        """
        return False

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

    def against(self, points: NDArray[Any]) -> Callable[[NDArray[Any]], NDArray[Any]]:
        """Prepare k(x, y) for few rows x at a time, as quickly as possible.

        Parameters
        ----------
        points : ndarray of shape (m, d) in float64
            The rows y: what depends on them alone is computed once.

        Returns
        -------
        callable
            Takes rows of shape (n, d) in float64 and returns the kernel, of shape (n, m).
        """
        return lambda rows: self.between(rows, points, 1)

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

    def check_scale(self, dtype: Any) -> None:
        """Refuse a factor of the rows that is out of range for their float type.

        Parameters
        ----------
        dtype : float32 or float64
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

    has_series: ClassVar[bool] = True
    of_inner_products: ClassVar[bool] = True

    @property
    @abstractmethod
    def scale(self) -> float:
        """What rows are multiplied by: x' = scale * (x - center)."""

    def check_scale(self, dtype: Any) -> None:
        limits = np.finfo(dtype)
        if not float(limits.tiny) <= self.scale <= float(limits.max):
            raise ValueError(
                f"{self!r} multiplies rows by {self.scale:.3g}, which {np.dtype(dtype)} "
                "cannot hold: scale X, or pass it in float64"
            )

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
        return Series(self.scale, mu, self._damped, self._log_coefficients(degree), tail)

    def _mean_point(self, X: Source, center: Any) -> NDArray[Any] | None:
        if center is True:
            raise ValueError(
                f"center=True is not possible for {self!r}, which depends on the origin: only the "
                "Gaussian can be centred"
            )
        return None

    def _squared_radius(self, X: Any, mu: NDArray[Any] | None) -> NDArray[np.float64]:
        """|x'|^2 of every row."""
        return self.scale**2 * squared_norms(X, mu)
