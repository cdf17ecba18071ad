"""Kernel methods on any feature map."""

from kernelsieve.models.classifier import KernelRidgeClassifier, KernelSVC
from kernelsieve.models.explain import Explanation, explain
from kernelsieve.models.kernel_cca import KernelCCA
from kernelsieve.models.kernel_ridge import KernelRidge
from kernelsieve.models.kernel_ridge_cv import KernelRidgeCV
from kernelsieve.models.unsupervised import KernelKMeans, KernelPCA

__all__ = [
    "Explanation",
    "KernelCCA",
    "KernelKMeans",
    "KernelPCA",
    "KernelRidge",
    "KernelRidgeCV",
    "KernelRidgeClassifier",
    "KernelSVC",
    "explain",
]
