"""What a kernel is: an exact Gram matrix, and for most of them a Taylor series."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._validation import check_choice, check_points
from kernelsieve.kernels.series import Radii, Series, truncation_degree
from kernelsieve.sources.base import Source, as_source
from kernelsieve.sources.moments import squared_norms

MAX_DEGREE = 256


class Kernel(ABC):
    """A positive definite function of two points; calling it gives the exact Gram matrix."""

    def __call__(self, X: Any, Y: Any = None, *, n_jobs: int | None = None) -> NDArray[Any]:
        """Exact Gram matrix k(x, y) for the rows of X and Y.

        Parameters
        ----------
        X : {array-like, CSR} of shape (n, d)
        Y : {array-like, CSR} of shape (m, d), default X
        n_jobs : int, default all cores

        Returns
        -------
        ndarray of shape (n, m), float32 if both X and Y are, else float64
        """
        X = check_points(X)
        if Y is not None:
            Y = check_points(Y, "Y")
            if X.shape[1] != Y.shape[1]:
                raise ValueError(f"X has {X.shape[1]} columns and Y has {Y.shape[1]}")
        return self._gram(X, X if Y is None else Y, Y is None, n_jobs)

    def between(self, X: Any, Y: Any, n_jobs: int | None = None) -> NDArray[Any]:
        """Exact Gram matrix of rows that are known to be valid; X itself may stand for Y."""
        return self._gram(X, Y, Y is X, n_jobs)

    @abstractmethod
    def _gram(self, X: Any, Y: Any, symmetric: bool, n_jobs: int | None) -> NDArray[Any]: ...

    @abstractmethod
    def diag(self, X: Any) -> NDArray[Any]:
        """k(x, x) for every row of X, without the Gram matrix."""

    def series(
        self, X: Any, tol: float = 1e-6, *, center: Any = "auto", max_degree: int = MAX_DEGREE
    ) -> Series:
        """The Taylor series in <x, y>, for the kernels that have one."""
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
        """The degree of a polynomial kernel; None where the series goes on for ever."""
        return None

    @abstractmethod
    def _log_coefficients(self, degree: int) -> NDArray[np.float64]: ...

    @abstractmethod
    def _log_tail(self, squared_radius: NDArray[np.float64], q: int) -> NDArray[np.float64]: ...

    def series(
        self, X: Any, tol: float = 1e-6, *, center: Any = "auto", max_degree: int = MAX_DEGREE
    ) -> Series:
        """The Taylor series of this kernel, truncated for the rows of X.

        Parameters
        ----------
        X : {array-like, CSR} of shape (n, d)
        tol : float
            What the truncation may cost: the trace of the part of K that is cut off, hence also
            any entry and the operator norm of K - K_q.
        center : "auto", True or False
            Whether to subtract the column means, which the Gaussian kernel does not notice but its
            series does. "auto" does so for the Gaussian on dense data.
        max_degree : int
            The largest degree allowed.

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
        """``series`` of a source, or of rows that are known to be valid."""
        check_choice(center, "center", ("auto", True, False))
        if not (isinstance(tol, int | float | np.number) and tol >= 0):
            raise ValueError(f"tol={tol!r} must be >= 0: it is the trace that truncation may cost")
        source = as_source(X)
        mu = self._mean_point(source, center)
        last = self._last_degree
        if last is not None and last > max_degree:
            raise ValueError(f"degree={last} is above max_degree={max_degree}: raise max_degree")
        radii = source.reduce(
            lambda block: Radii.of_rows(self._squared_radius(block.X, mu, block.start), block.start)
        )
        degree, tail = truncation_degree(
            radii, self._log_tail, tol, max_degree if last is None else last
        )
        return Series(self._scale, mu, self._damped, self._log_coefficients(degree), tail)

    def _mean_point(self, X: Source, center: Any) -> NDArray[Any] | None:
        if center is True:
            raise ValueError(f"{self!r} depends on the origin: only the Gaussian can be centred")
        return None

    def _squared_radius(
        self, X: Any, mu: NDArray[Any] | None, start: int = 0
    ) -> NDArray[np.float64]:
        """|x'|^2 of rows that begin with number ``start``."""
        return self._scale**2 * squared_norms(X, mu)
