"""Estimates with error bars, for rows whose kernel matrix is never formed."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

from kernelsieve._state import Persistent, number, text, whole
from kernelsieve._validation import check_choice, check_count, check_positive
from kernelsieve.diagnostics import _lanczos, _subsample, spectral
from kernelsieve.diagnostics._kernel_data import (
    ROUNDING,
    Features,
    KernelData,
    Measured,
    check_kernel_data,
)
from kernelsieve.diagnostics.checks import check_alpha
from kernelsieve.kernels import LearnedKernel
from kernelsieve.linalg.operators import KernelFunction

METHODS = ("auto", "lanczos", "subsample")
LANCZOS_ROWS = 50_000  # above this a pass over all pairs of rows takes longer than ten seconds
SUBSAMPLE_ROWS = 1000
MAX_SUBSAMPLE_ROWS = 4000  # dense eigenvalues of larger matrices take minutes


@dataclass(frozen=True)
class Estimate(Persistent):
    """A number known up to an error bar; ``float(...)`` gives the value. It is not a bound.

    Attributes
    ----------
    value : float
    error : float
        Half-width of the interval that should contain the exact value.
    method : str
        "lanczos" or "subsample".
    n_rows : int
        Rows looked at together: all of them, or those of one subsample.
    """

    value: float
    error: float
    method: str
    n_rows: int

    _state_fields: ClassVar = {
        "value": number(),
        "error": number(),
        "method": text,
        "n_rows": whole(),
    }

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends of the error bar."""
        return self.value - self.error, self.value + self.error

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{self.value:.4g} +- {self.error:.2g} ({self.method}, {self.n_rows} rows)"


@dataclass(frozen=True)
class SpectralEpsilonEstimate:
    """An estimated `SpectralEpsilon`; ``float(...)`` gives the value of ``epsilon``."""

    epsilon: Estimate
    lower: Estimate
    upper: Estimate

    def __float__(self) -> float:
        return self.epsilon.value


@dataclass(frozen=True)
class KernelErrorEstimate:
    """An estimated `KernelError`."""

    frobenius: Estimate
    operator: Estimate


def estimate_statistical_dimension(
    kernel: KernelFunction | LearnedKernel,
    X: Any,
    alpha: float,
    *,
    method: str = "auto",
    n_probes: int = 32,
    max_passes: int = 40,
    subsample_rows: int | None = None,
    n_repeats: int = 10,
    block_rows: int = 256,
    random_state: Any = None,
) -> Estimate:
    """Statistical dimension of kernel(X, X) without forming it.

    Parameters
    ----------
    kernel : callable, or what ``kernels.learn`` returned
        ``kernel(X, Y)`` gives the matrix of k(x, y), as the kernels of `kernelsieve.kernels` do.
    X : {array-like, CSR} of shape (n, d)
    alpha : float
        The ridge, added to the kernel matrix's diagonal as it is.
    method : {"auto", "lanczos", "subsample"}, default "auto"
        "lanczos" is Hutchinson's estimator with conjugate gradients on all rows; its error bar is
        a 99 % interval over the probes, plus the possible error of the iteration. "subsample" uses
        random rows with the ridge scaled; its error bar reaches from a quantity that is too small
        on average to one that is too large, so it is wide unless a subsample has several times
        more rows than the statistical dimension. "auto" takes "lanczos" up to 50,000 rows.
    n_probes : int, default 32
        Random vectors of "lanczos".
    max_passes : int, default 40
        Most passes over all pairs of rows that "lanczos" may make.
    subsample_rows : int, optional
        Rows of a subsample, 1,000 by default.
    n_repeats : int, default 10
        Number of subsamples.
    block_rows : int, default 256
        "lanczos" holds this many rows of the kernel matrix at a time.
    random_state : int, RandomState, Generator or None

    Returns
    -------
    Estimate

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.diagnostics import estimate_statistical_dimension, statistical_dimension
    >>> from kernelsieve.kernels import Gaussian
    >>> X = np.random.default_rng(0).standard_normal((500, 3))
    >>> kernel = Gaussian(gamma=0.5)
    >>> estimate = estimate_statistical_dimension(kernel, X, alpha=0.1, random_state=0)
    >>> low, high = estimate.interval
    >>> low <= statistical_dimension(kernel(X), alpha=0.1) <= high
    True
    """
    alpha = check_alpha(alpha)
    data = check_kernel_data(kernel, X, random_state)
    method = _resolve_method(method, data.n_rows)
    if method == "lanczos":
        _check_several(n_probes, "n_probes", "the error bar comes from their spread")
        _check_passes(max_passes, block_rows)
        measured = _lanczos.statistical_dimension(data, alpha, n_probes, max_passes, block_rows)
        return _estimate(measured, method, data.n_rows)
    rows = SUBSAMPLE_ROWS if subsample_rows is None else subsample_rows
    m = _check_subsample(rows, n_repeats, data.n_rows)
    if m == data.n_rows:
        exact = spectral.statistical_dimension(data.gram(slice(None)), alpha)
        return _estimate(_exact(exact), method, m)
    return _estimate(_subsample.statistical_dimension(data, alpha, m, n_repeats), method, m)


def estimate_spectral_epsilon(
    kernel: KernelFunction | LearnedKernel,
    X: Any,
    Z: Any,
    alpha: float,
    *,
    method: str = "auto",
    tol: float = 0.01,
    max_passes: int = 40,
    subsample_rows: int | None = None,
    n_repeats: int = 10,
    block_rows: int = 256,
    random_state: Any = None,
) -> SpectralEpsilonEstimate:
    """Spectral epsilon of features against kernel(X, X) without forming it.

    Parameters
    ----------
    kernel : callable, or what ``kernels.learn`` returned
        ``kernel(X, Y)`` gives the matrix of k(x, y), as the kernels of `kernelsieve.kernels` do.
    X : {array-like, CSR} of shape (n, d)
    Z : {array-like, CSR} of shape (n, s), fitted transformer or callable
        The features of the rows of X, or a map that computes them.
    alpha : float
        The ridge, added to the kernel matrix's diagonal as it is.
    method : {"auto", "lanczos", "subsample"}, default "auto"
        "lanczos" finds the extreme eigenvalues of (K + aI, ZZ^T + aI) on all rows; its error bar is
        the residual of the eigenvalue equation. "subsample" takes the exact value on random rows
        with the ridge scaled; its error bar is a 99 % interval over the repeats and the trend from
        half the subsample to all of it, extrapolated to n rows. It assumes that the trend does not
        speed up, and needs at least twice as many rows in a subsample as there are features.
        "auto" takes "lanczos" up to 50,000 rows.
    tol : float, default 0.01
        Relative precision at which "lanczos" stops.
    max_passes : int, default 40
        Most passes over all pairs of rows that "lanczos" may make.
    subsample_rows : int, optional
        Rows of a subsample. By default twice the number of features, between 1,000 and 4,000.
    n_repeats : int, default 10
        Number of subsamples.
    block_rows : int, default 256
        "lanczos" holds this many rows of the kernel matrix at a time.
    random_state : int, RandomState, Generator or None

    Returns
    -------
    SpectralEpsilonEstimate

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.diagnostics import estimate_spectral_epsilon, spectral_epsilon
    >>> from kernelsieve.kernels import Polynomial
    >>> X = np.random.default_rng(0).standard_normal((500, 3))
    >>> kernel = Polynomial(degree=1)
    >>> Z = np.hstack([np.ones((500, 1)), X[:, :2]])  # the third column is missing
    >>> estimate = estimate_spectral_epsilon(kernel, X, Z, alpha=10.0, random_state=0)
    >>> low, high = estimate.epsilon.interval
    >>> low <= spectral_epsilon(kernel(X), Z, alpha=10.0).epsilon <= high
    True
    """
    alpha = check_alpha(alpha)
    data = check_kernel_data(kernel, X, random_state)
    features = Features(Z, data)
    method = _resolve_method(method, data.n_rows)
    if method == "lanczos":
        n_rows = data.n_rows
        tol = _check_tol(tol, max_passes, block_rows)
        lower, upper = _lanczos.epsilon_sides(
            data, features.all_rows(), alpha, tol, max_passes, block_rows
        )
    else:
        n_rows = _feature_rows(subsample_rows, features, n_repeats, data)
        if n_rows == data.n_rows:
            exact = spectral.spectral_epsilon(data.gram(slice(None)), features.all_rows(), alpha)
            lower, upper = _exact(exact.lower), _exact(exact.upper)
        else:
            lower, upper = _subsample.epsilon_sides(data, features, alpha, n_rows, n_repeats)
    return SpectralEpsilonEstimate(
        *(_estimate(side, method, n_rows) for side in (_larger(lower, upper), lower, upper))
    )


def estimate_kernel_error(
    kernel: KernelFunction | LearnedKernel,
    X: Any,
    Z: Any,
    *,
    method: str = "auto",
    tol: float = 0.01,
    max_passes: int = 40,
    subsample_rows: int | None = None,
    n_repeats: int = 10,
    block_rows: int = 256,
    random_state: Any = None,
) -> KernelErrorEstimate:
    """Relative error of features against kernel(X, X) in two norms, without forming it.

    Parameters
    ----------
    kernel : callable, or what ``kernels.learn`` returned
        ``kernel(X, Y)`` gives the matrix of k(x, y), as the kernels of `kernelsieve.kernels` do.
    X : {array-like, CSR} of shape (n, d)
    Z : {array-like, CSR} of shape (n, s), fitted transformer or callable
        The features of the rows of X, or a map that computes them.
    method : {"auto", "lanczos", "subsample"}, default "auto"
        "lanczos" sums the Frobenius norm over all pairs, exactly, and finds the extreme eigenvalues
        on all rows; their error bar is the residual of the eigenvalue equation. "subsample" uses
        random rows; the Frobenius norm has a 99 % interval over the repeats, the operator norm the
        error bar that `estimate_spectral_epsilon` has. "auto" takes "lanczos" up to 50,000 rows.
    tol : float, default 0.01
        Relative precision at which "lanczos" stops.
    max_passes : int, default 40
        Most passes over all pairs of rows that "lanczos" may make, for each of K and K - ZZ^T.
    subsample_rows : int, optional
        Rows of a subsample. By default twice the number of features, between 1,000 and 4,000.
    n_repeats : int, default 10
        Number of subsamples.
    block_rows : int, default 256
        "lanczos" holds this many rows of the kernel matrix at a time.
    random_state : int, RandomState, Generator or None

    Returns
    -------
    KernelErrorEstimate

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.diagnostics import estimate_kernel_error
    >>> from kernelsieve.kernels import Polynomial
    >>> X = np.random.default_rng(0).standard_normal((500, 3))
    >>> Z = np.hstack([np.ones((500, 1)), X[:, :2]])  # the third column is missing
    >>> estimate = estimate_kernel_error(Polynomial(degree=1), X, Z, random_state=0)
    >>> round(estimate.frobenius.value, 2)
    0.52
    """
    data = check_kernel_data(kernel, X, random_state)
    features = Features(Z, data)
    method = _resolve_method(method, data.n_rows)
    if method == "lanczos":
        n_rows = data.n_rows
        tol = _check_tol(tol, max_passes, block_rows)
        both = _lanczos.kernel_errors(data, features.all_rows(), tol, max_passes, block_rows)
    else:
        n_rows = _feature_rows(subsample_rows, features, n_repeats, data)
        if n_rows == data.n_rows:
            exact = spectral.kernel_error(data.gram(slice(None)), features.all_rows())
            both = _exact(exact.frobenius), _exact(exact.operator)
        else:
            both = _subsample.kernel_errors(data, features, n_rows, n_repeats)
    return KernelErrorEstimate(*(_estimate(error, method, n_rows) for error in both))


def _estimate(measured: Measured, method: str, n_rows: int) -> Estimate:
    return Estimate(measured.value, measured.error, method, n_rows)


def _exact(value: float) -> Measured:
    """A value that only rounding makes uncertain."""
    return Measured(value, ROUNDING * max(abs(value), 1.0))


def _larger(lower: Measured, upper: Measured) -> Measured:
    """The maximum of two intervals and zero, around the maximum of their values."""
    value = max(lower.value, upper.value, 0.0)
    low = max(lower.value - lower.error, upper.value - upper.error, 0.0)
    high = max(lower.value + lower.error, upper.value + upper.error, 0.0)
    return Measured(value, max(value - low, high - value))


def _resolve_method(method: Any, n_rows: int) -> str:
    """Lanczos where all pairs of rows are affordable."""
    check_choice(method, "method", METHODS)
    if method != "auto":
        return str(method)
    return "lanczos" if n_rows <= LANCZOS_ROWS else "subsample"


def _check_several(value: Any, name: str, why: str) -> None:
    """An integer >= 2."""
    if check_count(value, name, why) < 2:
        raise ValueError(f"{name}={value!r} must be >= 2: {why}")


def _check_passes(max_passes: Any, block_rows: Any) -> None:
    """Check the options of "lanczos" for its passes over the rows."""
    check_count(max_passes, "max_passes", "it is the number of passes over all pairs of rows")
    check_count(
        block_rows,
        "block_rows",
        "it is how many rows of K are held at a time",
    )


def _check_tol(tol: Any, max_passes: Any, block_rows: Any) -> float:
    """Check the options of "lanczos", with its tolerance."""
    _check_passes(max_passes, block_rows)
    return check_positive(tol, "tol", "it is the relative precision at which the iteration stops")


def _check_subsample(rows: Any, n_repeats: Any, n_rows: int) -> int:
    """Rows of a subsample, at most all of them."""
    _check_several(n_repeats, "n_repeats", "the error bar comes from their spread")
    _check_several(rows, "subsample_rows", "the trend is from half the rows to all of them")
    return min(int(rows), n_rows)


def _feature_rows(rows: Any, features: Features, n_repeats: Any, data: KernelData) -> int:
    """Rows of a subsample that can show what the features miss."""
    needed = 2 * features.n_components
    if rows is None:
        rows = min(max(SUBSAMPLE_ROWS, needed), MAX_SUBSAMPLE_ROWS)
    m = _check_subsample(rows, n_repeats, data.n_rows)
    if m < min(needed, data.n_rows):
        warnings.warn(
            f"subsample_rows={m} is less than twice the {needed // 2} features, so the trend may "
            f"not be visible yet and the error bar may be too short: pass subsample_rows={needed}",
            stacklevel=3,
        )
    return m
