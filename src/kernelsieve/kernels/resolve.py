"""Convert names and scikit-learn parameters to kernel objects."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernelsieve._validation import check_choice, check_points, check_positive
from kernelsieve.kernels.base import Kernel
from kernelsieve.kernels.distance import Gaussian, Laplacian, Matern
from kernelsieve.kernels.dot_product import (
    DotProduct,
    Exponential,
    InversePolynomial,
    Polynomial,
)
from kernelsieve.kernels.likelihood import LearnedKernel
from kernelsieve.kernels.pairwise import INDEFINITE, Pairwise
from kernelsieve.kernels.product import Product
from kernelsieve.kernels.smooth import SmoothLaplacian
from kernelsieve.kernels.zonal import ArcCosine, NeuralTangent
from kernelsieve.sources.base import Source
from kernelsieve.sources.summaries import moments

NAMES = {
    "gaussian": lambda gamma, degree, coef0: Gaussian(gamma),
    "rbf": lambda gamma, degree, coef0: Gaussian(gamma),
    "poly": lambda gamma, degree, coef0: Polynomial(degree, gamma, coef0),
    "polynomial": lambda gamma, degree, coef0: Polynomial(degree, gamma, coef0),
    "exponential": lambda gamma, degree, coef0: Exponential(gamma),
    "inverse_polynomial": lambda gamma, degree, coef0: InversePolynomial(),
    "linear": lambda gamma, degree, coef0: DotProduct((0.0, 1.0)),
    "laplacian": lambda gamma, degree, coef0: Laplacian(gamma),
    "smooth_laplacian": lambda gamma, degree, coef0: SmoothLaplacian(gamma),
    "matern": lambda gamma, degree, coef0: Matern(1.0 / math.sqrt(2.0 * gamma)),
    "arccos0": lambda gamma, degree, coef0: ArcCosine(0),
    "arccos1": lambda gamma, degree, coef0: ArcCosine(1),
    "arccos2": lambda gamma, degree, coef0: ArcCosine(2),
    "ntk": lambda gamma, degree, coef0: NeuralTangent(),
    "cosine": lambda gamma, degree, coef0: Pairwise("cosine"),
    "chi2": lambda gamma, degree, coef0: Pairwise("chi2", {"gamma": gamma}),
}


def resolve_kernel(
    kernel: Any, X: Any, gamma: Any = "scale", degree: int = 3, coef0: float = 1.0
) -> Kernel:
    """Return the kernel object for a user's ``kernel``, ``gamma``, ``degree`` and ``coef0``.

    Parameters
    ----------
    kernel : Kernel, str or callable
        An object of this module, or "gaussian" / "rbf", "poly" / "polynomial", "exponential",
        "inverse_polynomial", "linear", "laplacian", "smooth_laplacian", "matern", "arccos0",
        "arccos1", "arccos2", "ntk", "cosine", "chi2", or a function of two rows; or what
        ``kernels.learn`` returned, without its alpha; or "rbf" and "matern" as objects of
        ``sklearn.gaussian_process.kernels``.
    X : {array-like, CSR} of shape (n, d), or Source
        The data, which gamma="scale" depends on.
    gamma : "scale", "auto" or float
        "scale" is 1 / (d var(X)), "auto" is 1 / d, as in scikit-learn; for "chi2", whose
        distance is not a squared length, "scale" is scikit-learn's 1.
    degree : int, default 3
        Degree of "poly".
    coef0 : float, default 1.0
        Constant of "poly".

    Returns
    -------
    Kernel

    Examples
    --------
    >>> resolve_kernel("rbf", [[0.0, 2.0]], gamma="scale")
    Gaussian(gamma=0.5)
    """
    kernel = own_kernel(kernel)
    if isinstance(kernel, Kernel) or (callable(kernel) and not isinstance(kernel, type)):
        if gamma != "scale":
            raise ValueError(f"gamma={gamma!r} is given beside {kernel!r}: set it in the kernel")
        return kernel if isinstance(kernel, Kernel) else Pairwise(kernel)
    if isinstance(kernel, str) and kernel in INDEFINITE:
        return Pairwise(kernel)  # raises, and says why
    if not isinstance(kernel, str) or kernel not in NAMES:
        raise ValueError(
            f"kernel={kernel!r} is unknown: use one of {', '.join(sorted(NAMES))}, an object of "
            "kernelsieve.kernels, or a function of two rows"
        )
    if kernel == "chi2" and isinstance(gamma, str) and gamma == "scale":
        gamma = 1.0
    return NAMES[kernel](_resolve_gamma(gamma, X), degree, coef0)


def with_categories(kernel: Any, gamma: Any, X: Source, columns: list[int]) -> Product:
    """A user's kernel as a product in which some columns are categorical.

    Parameters
    ----------
    kernel : Product, Gaussian, Laplacian, or the name of one of the latter
    gamma : "scale", "auto" or float
        "scale" looks at the other columns alone.
    X : Source
    columns : list of int
        Numbers of the categorical columns.
    """
    d = X.shape[1]
    kernel = own_kernel(kernel)
    if isinstance(gamma, str) and gamma == "scale" and isinstance(kernel, str):
        known, others = moments(X), np.setdiff1d(np.arange(d), columns)
        squares = known.mean_squares(known.means)[others] + known.means[others] ** 2
        variance = float(squares.mean() - known.means[others].mean() ** 2) if len(others) else 0.0
        gamma = 1.0 / (d * variance) if variance > 0 else 1.0 / d
    resolved = resolve_kernel(kernel, X, gamma)
    if isinstance(resolved, Product):
        return resolved.with_categories(columns, d)
    if not isinstance(resolved, Gaussian | Laplacian):
        raise ValueError(
            f"{resolved!r} is not a product over columns, so none can be categorical: use "
            "'gaussian', 'laplacian' or kernels.Product"
        )
    family = "gaussian" if isinstance(resolved, Gaussian) else "laplacian"
    rates = np.full(d, math.sqrt(resolved.gamma) if family == "gaussian" else resolved.gamma)
    # E (x - y)^2 = 2 and E |x - y| = 2 / sqrt(pi) for normal values of variance 1.
    typical = 2.0 if family == "gaussian" else 2.0 / math.sqrt(math.pi)
    rates[columns] = resolved.gamma * typical
    return Product(rates, family).with_categories(columns, d)


def own_kernel(kernel: Any) -> Any:
    """The kernel that was learned, or ours for one of scikit-learn's; others as they are."""
    return kernel.kernel if isinstance(kernel, LearnedKernel) else from_gaussian_process(kernel)


def from_gaussian_process(kernel: Any) -> Any:
    """The same kernel as one of ours, if it comes from ``sklearn.gaussian_process.kernels``.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from_gaussian_process(RBF([0.5, 2.0]))
    Product(rates=[1.414, 0.3536], families='gaussian')
    """
    if type(kernel).__module__ != "sklearn.gaussian_process.kernels":
        return kernel
    name, scale = type(kernel).__name__, getattr(kernel, "length_scale", 1.0)
    smoothness = getattr(kernel, "nu", math.inf)
    if name not in ("RBF", "Matern"):
        raise ValueError(
            f"kernel={kernel!r} is not supported: pass RBF or Matern alone. A constant factor "
            "divides alpha, and a white term is added to it, so put both in alpha"
        )
    if np.ndim(scale) == 0:
        if math.isinf(smoothness):
            return Gaussian(0.5 / float(scale) ** 2)
        return Matern(float(scale), float(smoothness))
    if not math.isinf(smoothness):
        raise ValueError(
            f"kernel={kernel!r} is not a product over the columns: use Product with 'matern32' or "
            "'matern52', or divide the columns of X by their length scales"
        )
    return Product(math.sqrt(0.5) / np.asarray(scale, dtype=np.float64))


def _resolve_gamma(gamma: Any, X: Any) -> float:
    if isinstance(gamma, str):
        check_choice(gamma, "gamma", ("scale", "auto"))
        X = X if isinstance(X, Source) else check_points(X)
        variance = moments(X).variance if gamma == "scale" else 1.0
        scale = 1.0 / (X.shape[1] * variance) if variance > 0 else np.inf
        return scale if math.isfinite(scale) else 1.0
    if gamma is None:
        return _resolve_gamma("auto", X)
    return check_positive(gamma, "gamma", "it is the inverse square of a length; or use 'scale'")
