"""The methods that ``kernelsieve bench`` compares: one row of ``METHODS`` each.

To add one, write a function from :class:`Settings` to an unfitted scikit-learn regressor and give
it a row. Only ``fit`` is timed, and it has to do all the work: features and regression.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.kernel_ridge import KernelRidge as SklearnKernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KernelCenterer

from kernelsieve import (
    AdaptiveFeatures,
    FourierFeatures,
    KernelRidge,
    MaclaurinFeatures,
    NystromFeatures,
    ObliviousFeatures,
    RowNormFeatures,
)
from kernelsieve.features import FeatureMap

EXACT_MAX_ROWS = 5_000


@dataclass(frozen=True)
class Settings:
    """What a method is told: the same for all of them.

    Attributes
    ----------
    n_components : int
        The number of features s; methods without features ignore it.
    gamma, alpha : float
        Kernel exp(-gamma |x - y|^2), and what is added to its diagonal.
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
    name, description : str
    build : callable
        Settings -> unfitted regressor.
    has_features : bool
        Whether the result depends on s; if not, the method runs once per seed.
    max_rows : int or None
        Training rows above which it is left out.
    """

    name: str
    description: str
    build: Callable[[Settings], Any]
    has_features: bool = True
    max_rows: int | None = None


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


def _linear(settings: Settings) -> Any:
    return Ridge(alpha=settings.alpha)


def _exact(settings: Settings) -> Any:
    return ExactKernelRidge(gamma=settings.gamma, alpha=settings.alpha)


def _ours(features: type[FeatureMap], settings: Settings, **options: Any) -> Any:
    fresh = features(
        n_components=settings.n_components,
        gamma=settings.gamma,
        random_state=settings.seed,
        n_jobs=settings.n_threads,
        **options,
    )
    return KernelRidge(fresh, alpha=settings.alpha, n_jobs=settings.n_threads)


def _adaptive(settings: Settings) -> Any:
    return _ours(AdaptiveFeatures, settings)


def _row_norm(settings: Settings) -> Any:
    return _ours(RowNormFeatures, settings)


def _fourier(settings: Settings) -> Any:
    return _ours(FourierFeatures, settings)


def _fourier_orthogonal(settings: Settings) -> Any:
    return _ours(FourierFeatures, settings, frequencies="orthogonal")


def _fourier_structured(settings: Settings) -> Any:
    return _ours(FourierFeatures, settings, frequencies="structured")


def _fourier_modified(settings: Settings) -> Any:
    return _ours(FourierFeatures, settings, frequencies="modified")


def _oblivious(settings: Settings) -> Any:
    return _ours(ObliviousFeatures, settings)


def _maclaurin(settings: Settings) -> Any:
    return _ours(MaclaurinFeatures, settings)


def _nystrom(settings: Settings) -> Any:
    return _ours(NystromFeatures, settings)


def _nystrom_leverage(settings: Settings) -> Any:
    return _ours(NystromFeatures, settings, landmarks="leverage")


def _sklearn(transformer: type, settings: Settings) -> Any:
    features = transformer(
        gamma=settings.gamma, n_components=settings.n_components, random_state=settings.seed
    )
    return make_pipeline(features, Ridge(alpha=settings.alpha))


def _rbfsampler(settings: Settings) -> Any:
    return _sklearn(RBFSampler, settings)


def _nystroem(settings: Settings) -> Any:
    return _sklearn(Nystroem, settings)


_ROWS = (
    Method("linear", "ridge on the inputs, no kernel", _linear, has_features=False),
    Method(
        "exact",
        f"exact kernel ridge, up to {EXACT_MAX_ROWS:,} training rows",
        _exact,
        has_features=False,
        max_rows=EXACT_MAX_ROWS,
    ),
    Method("adaptive", "features chosen by leverage, target and norm", _adaptive),
    Method("row-norm", "features sampled by their norm", _row_norm),
    Method("fourier", "random Fourier features", _fourier),
    Method("fourier-orthogonal", "Fourier features in orthogonal blocks", _fourier_orthogonal),
    Method("fourier-structured", "the same by fast transforms", _fourier_structured),
    Method("fourier-modified", "Fourier features by a leverage bound", _fourier_modified),
    Method("oblivious", "oblivious sketch of the Taylor series", _oblivious),
    Method("maclaurin", "random Maclaurin features", _maclaurin),
    Method("nystrom", "the kernel with uniform landmarks", _nystrom),
    Method("nystrom-leverage", "landmarks by ridge leverage", _nystrom_leverage),
    Method("sklearn-rbfsampler", "scikit-learn's RBFSampler and Ridge", _rbfsampler),
    Method("sklearn-nystroem", "scikit-learn's Nystroem and Ridge", _nystroem),
)
METHODS = {method.name: method for method in _ROWS}


def find_method(name: str) -> Method:
    """The method of that name.

    Examples
    --------
    >>> find_method("fourier").description
    'random Fourier features'
    """
    try:
        return METHODS[name]
    except KeyError:
        near = difflib.get_close_matches(name, METHODS, n=1)
        guess = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(
            f"unknown method {name!r}: {guess}known are {', '.join(METHODS)}"
        ) from None
