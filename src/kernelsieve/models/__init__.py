"""Kernel methods on any feature map."""

from kernelsieve.models._drift import Drift, drift
from kernelsieve.models._prune import prune
from kernelsieve.models.conformal import ConformalRegressor
from kernelsieve.models.kernel_cca import KernelCCA
from kernelsieve.models.kernel_kmeans import KernelKMeans
from kernelsieve.models.kernel_pca import KernelPCA
from kernelsieve.models.kernel_ridge import KernelRidge
from kernelsieve.models.kernel_ridge_classifier import KernelRidgeClassifier
from kernelsieve.models.kernel_ridge_cv import KernelRidgeCV
from kernelsieve.models.kernel_svc import KernelSVC
from kernelsieve.models.quantile_regression import KernelQuantileRegressor

__all__ = [
    "ConformalRegressor",
    "Drift",
    "KernelCCA",
    "KernelKMeans",
    "KernelPCA",
    "KernelQuantileRegressor",
    "KernelRidge",
    "KernelRidgeCV",
    "KernelRidgeClassifier",
    "KernelSVC",
    "drift",
    "prune",
]
