"""The methods that ``kernelsieve bench`` can compare: one row of ``METHODS`` each.

To add one, write a function from :class:`Settings` to an unfitted scikit-learn regressor and give
it a row. Only ``fit`` is timed, and it has to do all the work: features and regression.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.kernel_approximation import Nystroem, PolynomialCountSketch, RBFSampler
from sklearn.kernel_ridge import KernelRidge as SklearnKernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import KernelCenterer

from kernelsieve.models import KernelRidge
from kernelsieve.tuning import methods as maps

EXACT_MAX_ROWS = 5_000
POLYNOMIAL_DEGREE = 3
# (2 gamma <x, y> / p + 1)^p tends to exp(2 gamma <x, y>), the Gaussian's inner part.
TAYLOR = 2.0 / POLYNOMIAL_DEGREE


@dataclass(frozen=True)
class Settings:
    """What a method is told: the same for all of them.

    Attributes
    ----------
    n_components : int
        The number of features s; methods without features ignore it.
    gamma, alpha : float
        Kernel exp(-gamma ‖x - y‖^2), and what is added to its diagonal.
    seed : int
    n_threads : int
        Threads to use; those of BLAS and OpenMP are set by the runner.
    """

    n_components: int
    gamma: float
    alpha: float
    seed: int = 0
    n_threads: int = 1


@dataclass(frozen=True)
class Method:
    """A row of the comparison.

    Attributes
    ----------
    name : str
        What it is called on the command line.
    label : str
        What it is called in tables.
    description : str
    build : callable
        Settings -> unfitted regressor.
    has_features : bool
        Whether the result depends on s; if not, the method runs at one s only.
    max_rows : int or None
        Training rows above which it is left out.
    gaussian : bool
        Whether its features stand for the Gaussian kernel, so that their epsilon can be told.
    """

    name: str
    label: str
    description: str
    build: Callable[[Settings], Any]
    has_features: bool = True
    max_rows: int | None = None
    gaussian: bool = True


class ExactKernelRidge(RegressorMixin, BaseEstimator):
    """Exact kernel ridge regression with an intercept: the limit of the others as s grows.

    The intercept of a ridge on features centres the features; on the kernel matrix the same is
    done by ``KernelCenterer``.
    """

    def __init__(self, gamma: float = 1.0, alpha: float = 1.0) -> None:
        self.gamma = gamma
        self.alpha = alpha

    def fit(self, X: Any, y: NDArray[Any]) -> Self:
        """Solve (K + alpha I) dual = y - mean(y), K centred."""
        self.points_, self.mean_ = X, float(np.mean(y))
        self.centerer_ = KernelCenterer()
        K = self.centerer_.fit_transform(rbf_kernel(X, gamma=self.gamma))
        self.ridge_ = SklearnKernelRidge(alpha=self.alpha, kernel="precomputed")
        self.ridge_.fit(K, y - self.mean_)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predicted targets."""
        K = rbf_kernel(X, self.points_, gamma=self.gamma)
        return self.ridge_.predict(self.centerer_.transform(K)) + self.mean_


def transformer_of(model: Any) -> Any:
    """The fitted feature map of a model, ours or a scikit-learn pipeline; None without one."""
    if hasattr(model, "features_"):
        return model.features_
    return model[0] if isinstance(model, Pipeline) else None


def _linear(settings: Settings) -> Any:
    return Ridge(alpha=settings.alpha)


def _exact(settings: Settings) -> Any:
    return ExactKernelRidge(gamma=settings.gamma, alpha=settings.alpha)


def _ours(name: str, gamma_factor: float = 1.0, **options: Any) -> Method:
    """Kernel ridge regression on one of our maps, by its name in the registry."""
    known = maps.find_method(name)

    def build(settings: Settings) -> Any:
        fresh = known.build(
            n_components=settings.n_components,
            gamma=gamma_factor * settings.gamma,
            random_state=settings.seed,
            n_jobs=settings.n_threads,
            **options,
        )
        return KernelRidge(fresh, alpha=settings.alpha, n_jobs=settings.n_threads)

    return Method(name, known.label, known.description, build, gaussian=known.gaussian)


def _sklearn(transformer: type, **options: Any) -> Callable[[Settings], Any]:
    """scikit-learn's map and its Ridge."""

    def build(settings: Settings) -> Any:
        features = transformer(
            gamma=settings.gamma,
            n_components=settings.n_components,
            random_state=settings.seed,
            **options,
        )
        return make_pipeline(features, Ridge(alpha=settings.alpha))

    return build


def _count_sketch(settings: Settings) -> Any:
    build = _sklearn(PolynomialCountSketch, degree=POLYNOMIAL_DEGREE, coef0=1)
    return build(replace(settings, gamma=TAYLOR * settings.gamma))


_ROWS = (
    *(_ours(name) for name in maps.METHODS if name not in ("auto", "tensor-sketch")),
    _ours("tensor-sketch", TAYLOR, degree=POLYNOMIAL_DEGREE),
    Method(
        "sklearn-rbfsampler", "RBFSampler", "scikit-learn's Fourier features", _sklearn(RBFSampler)
    ),
    Method("sklearn-nystroem", "Nystroem", "scikit-learn's uniform landmarks", _sklearn(Nystroem)),
    Method(
        "sklearn-polynomialcountsketch",
        "CountSketch",
        "scikit-learn's sketch of a polynomial kernel",
        _count_sketch,
        gaussian=False,
    ),
    Method("linear", "Linear", "ridge on the inputs, no kernel", _linear, has_features=False),
    Method(
        "exact",
        "Exact",
        f"exact kernel ridge, up to {EXACT_MAX_ROWS:,} training rows",
        _exact,
        has_features=False,
        max_rows=EXACT_MAX_ROWS,
    ),
)
METHODS = {method.name: method for method in _ROWS}
PAPER_METHODS = ("fourier", "nystrom", "oblivious", "row-norm", "adaptive")


def find_method(name: str) -> Method:
    """The method of that name.

    Examples
    --------
    >>> find_method("fourier").description
    'random Fourier features'
    """
    if name not in METHODS:
        raise ValueError(maps.unknown_method(name, METHODS))
    return METHODS[name]
