"""How good an approximation is: exact for a kernel matrix in memory, estimated for large n.

Examples
--------
>>> import numpy as np
>>> from kernelsieve.diagnostics import spectral_epsilon, statistical_dimension
>>> from kernelsieve.kernels import Polynomial
>>> X = np.array([[0.0], [1.0], [2.0]])
>>> K = Polynomial(degree=1, gamma=1.0, coef0=1.0)(X)
>>> Z = np.hstack([np.ones((3, 1)), X])
>>> float(spectral_epsilon(K, Z, alpha=0.1)) < 1e-8
True
>>> round(statistical_dimension(K, alpha=0.1), 3)
1.88
"""

from kernelsieve.diagnostics.estimates import (
    Estimate,
    KernelErrorEstimate,
    SpectralEpsilonEstimate,
    estimate_kernel_error,
    estimate_spectral_epsilon,
    estimate_statistical_dimension,
)
from kernelsieve.diagnostics.risk import Risk, krr_risk, krr_risk_bound
from kernelsieve.diagnostics.sample import KernelSample
from kernelsieve.diagnostics.spectral import (
    KernelError,
    SpectralEpsilon,
    kernel_error,
    spectral_epsilon,
    statistical_dimension,
)

__all__ = [
    "Estimate",
    "KernelError",
    "KernelErrorEstimate",
    "KernelSample",
    "Risk",
    "SpectralEpsilon",
    "SpectralEpsilonEstimate",
    "estimate_kernel_error",
    "estimate_spectral_epsilon",
    "estimate_statistical_dimension",
    "kernel_error",
    "krr_risk",
    "krr_risk_bound",
    "spectral_epsilon",
    "statistical_dimension",
]
