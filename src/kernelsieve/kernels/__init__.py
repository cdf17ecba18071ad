"""Kernels: exact Gram matrices, and the Taylor series that feature maps sample from.

Examples
--------
>>> import numpy as np
>>> from kernelsieve.kernels import Gaussian
>>> X = np.array([[0.0, 0.0], [1.0, 0.0]])
>>> Gaussian(gamma=0.5)(X).round(4)
array([[1.    , 0.6065],
       [0.6065, 1.    ]])
"""

from kernelsieve.kernels.anova import Anova
from kernelsieve.kernels.base import Kernel, SeriesKernel
from kernelsieve.kernels.distance import Gaussian, Laplacian, Matern
from kernelsieve.kernels.dot_product import (
    DotProduct,
    Exponential,
    InversePolynomial,
    Polynomial,
)
from kernelsieve.kernels.likelihood import LearnedKernel, learn
from kernelsieve.kernels.pairwise import Pairwise
from kernelsieve.kernels.product import Product
from kernelsieve.kernels.resolve import resolve_kernel
from kernelsieve.kernels.smooth import SmoothLaplacian
from kernelsieve.kernels.warps import Warp
from kernelsieve.kernels.zonal import ArcCosine, NeuralTangent, Zonal

__all__ = [
    "Anova",
    "ArcCosine",
    "DotProduct",
    "Exponential",
    "Gaussian",
    "InversePolynomial",
    "Kernel",
    "Laplacian",
    "LearnedKernel",
    "Matern",
    "NeuralTangent",
    "Pairwise",
    "Polynomial",
    "Product",
    "SeriesKernel",
    "SmoothLaplacian",
    "Warp",
    "Zonal",
    "learn",
    "resolve_kernel",
]
