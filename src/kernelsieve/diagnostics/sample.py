"""The quality of features on a sample of the rows, with alpha scaled to its size."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.diagnostics.checks import check_alpha
from kernelsieve.diagnostics.estimates import Estimate
from kernelsieve.diagnostics.spectral import (
    KernelError,
    SpectralEpsilon,
    kernel_error,
    spectral_epsilon,
    statistical_dimension,
)
from kernelsieve.kernels import Kernel, LearnedKernel
from kernelsieve.kernels.resolve import own_kernel


class KernelSample:
    """The kernel matrix of some of n rows, to judge a feature map on.

    The eigenvalues of the kernel matrix of m of n rows are about m / n times those of the whole, so
    that a sample of m rows takes the ridge alpha m / n. The error bars are the differences between
    the whole sample and its halves: estimates, not bounds.

    Parameters
    ----------
    kernel : Kernel, or what ``kernels.learn`` returned
    rows : {ndarray, CSR} of shape (m, d)
        The sample.
    alpha : float
        The ridge on the kernel matrix of all rows.
    n_rows : int, default m
        How many rows the sample stands for.
    n_jobs : int, default all cores

    Attributes
    ----------
    rows : {ndarray, CSR} of shape (m, d)
        The sample in float64, so that a small alpha is not lost in rounding.
    alpha : float
        The ridge scaled to the sample.
    share : float
        m / n.
    K : ndarray of shape (m, m)
        The kernel matrix of the sample, computed when it is first asked for.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import NystromFeatures
    >>> from kernelsieve.diagnostics import KernelSample
    >>> X = np.random.default_rng(0).standard_normal((1000, 2))
    >>> features = NystromFeatures(50, random_state=0).fit(X)
    >>> sample = KernelSample(features.kernel_, X[::4], alpha=1.0, n_rows=len(X))
    >>> float(sample.spectral_epsilon(features.transform(sample.rows))) < 1.0
    True
    """

    def __init__(
        self,
        kernel: Kernel | LearnedKernel,
        rows: Any,
        alpha: float,
        n_rows: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.kernel, self.n_jobs = own_kernel(kernel), n_jobs
        self.rows = rows.astype(np.float64)
        self.share = 1.0 if n_rows is None else len(self) / n_rows
        self.alpha = check_alpha(alpha) * self.share

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    @cached_property
    def K(self) -> NDArray[np.float64]:
        """The kernel matrix of the sample."""
        return self.kernel(self.rows, n_jobs=self.n_jobs)

    def statistical_dimension(self) -> Estimate:
        """Estimate the statistical dimension of the kernel at alpha.

        Returns
        -------
        Estimate
        """
        return self._with_halves(
            lambda part, alpha: statistical_dimension(self.K[part, part], alpha)
        )

    def spectral_epsilon(self, Z: Any) -> Estimate:
        """Estimate the spectral epsilon of features.

        Parameters
        ----------
        Z : {ndarray, CSR} of shape (m, n_components)
            The features of the sample.

        Returns
        -------
        Estimate
        """
        return self._with_halves(
            lambda part, alpha: spectral_epsilon(self.K[part, part], Z[part], alpha).epsilon
        )

    def sides(self, Z: Any) -> SpectralEpsilon:
        """Both sides of the spectral epsilon on the sample, without an error bar.

        Parameters
        ----------
        Z : {ndarray, CSR} of shape (m, n_components)

        Returns
        -------
        SpectralEpsilon
        """
        return spectral_epsilon(self.K, Z, self.alpha)

    def kernel_error(self, Z: Any) -> KernelError:
        """Relative error of Z Z^T on the sample, without an error bar.

        Parameters
        ----------
        Z : {ndarray, CSR} of shape (m, n_components)

        Returns
        -------
        KernelError
        """
        return kernel_error(self.K, Z)

    def _with_halves(self, measure: Callable[[slice, float], float]) -> Estimate:
        """A measurement, with its largest difference from the same one on the two halves."""
        value = measure(slice(None), self.alpha)
        halves = [slice(0, None, 2), slice(1, None, 2)] if len(self) > 1 else []
        others = [measure(half, self.alpha / 2) for half in halves]
        error = max((abs(value - other) for other in others), default=0.0)
        return Estimate(value, error, "sample", len(self))
