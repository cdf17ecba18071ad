"""The methods that ``kernelsieve bench`` can compare: one row of ``METHODS`` each.

To add one, write a function from :class:`Settings` to an unfitted scikit-learn estimator and give
it a row. Only ``fit`` is timed, and it has to do all the work: features and regression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.kernel_approximation import Nystroem, PolynomialCountSketch, RBFSampler
from sklearn.kernel_ridge import KernelRidge as SklearnKernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import KernelCenterer

from kernelsieve import (
    KernelRidge,
    KernelRidgeClassifier,
    KernelRidgeCV,
    NystromFeatures,
)
from kernelsieve.bench import peers
from kernelsieve.bench.problem import tuned
from kernelsieve.features.registry import METHODS as MAPS
from kernelsieve.features.registry import unknown_method

EXACT_MAX_ROWS = 5_000
POLYNOMIAL_DEGREE = 3
DEFAULT_COMPONENTS = 1_000  # of maps where nobody asks for a number


@dataclass(frozen=True)
class Settings:
    """What a method is told: the same for all of them.

    Attributes
    ----------
    n_components : int
        The number of features s; methods without features ignore it.
    gamma, alpha : float
        Kernel ``exp(-gamma |x - y|^2)``, and what is added to its diagonal.
    seed : int
    n_threads : int
        Threads to use; those of BLAS and OpenMP are set by the runner.
    task : "regression" or "classification"
    categorical : tuple of int
        For methods that take columns as they come: which of them hold codes.
    """

    n_components: int
    gamma: float
    alpha: float
    seed: int = 0
    n_threads: int = 1
    task: str = "regression"
    categorical: tuple[int, ...] = ()

    @property
    def classes(self) -> bool:
        """Whether the target is a class."""
        return self.task == "classification"


Build = Callable[[Settings], Any]
Seconds = Callable[[int, int, int], float]  # of n rows, d columns and s features; a rough guess


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
        Settings -> unfitted estimator. For a method that runs in a process of its own it must be
        a function or a class that can be imported there, or a dataclass of such.
    seconds : callable
        (n, d, s) -> about how long a fit takes on two cores: a budget is kept by leaving out what
        would take too long by this guess, so that every machine shows the same rows.
    has_features : bool
        Whether the result depends on s; if not, the method runs at one s only.
    seeded : bool
        Whether the result depends on the seed; if not, it runs once.
    needs_gamma : bool
        Whether somebody has to choose gamma and alpha for it.
    max_rows : int or None
        Training rows above which it is left out.
    gaussian : bool
        Whether its features approximate the Gaussian kernel, so that their epsilon means something.
    columns : bool
        Whether it takes columns as they come (trees do) or the scaled matrix.
    tree : bool
        Whether it is an ensemble of trees.
    ours : bool
        Whether it is of this library.
    requires : str or None
        The package that it needs, if that is none of ours.
    """

    name: str
    label: str
    description: str
    build: Build
    seconds: Seconds
    has_features: bool = False
    seeded: bool = False
    needs_gamma: bool = False
    max_rows: int | None = None
    gaussian: bool = False
    columns: bool = False
    tree: bool = False
    ours: bool = False
    requires: str | None = None

    @property
    def installed(self) -> bool:
        """Whether its package is there."""
        return self.requires is None or find_spec(self.requires) is not None


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


class Tuned(peers.Wrapped):
    """A kernel method that first chooses gamma and alpha by itself: what a fit takes in all.

    Parameters
    ----------
    build : callable
        Settings -> estimator.
    settings : Settings
        gamma and alpha are replaced.
    """

    def __init__(self, build: Build, settings: Settings) -> None:
        self.build = build
        self.settings = settings

    def fit(self, X: Any, y: NDArray[Any]) -> Self:
        """Choose gamma and alpha on these rows, then fit."""
        gamma, alpha = tuned(X, y, self.settings.task, self.settings.n_threads)
        model = self.build(replace(self.settings, gamma=gamma, alpha=alpha))
        self.model_ = model.fit(X, y)
        if self.settings.classes:
            self.classes_ = self.model_.classes_
        return self


def transformer_of(model: Any) -> Any:
    """The fitted feature map of a model, ours or a scikit-learn pipeline; None without one."""
    if hasattr(model, "features_"):
        return model.features_
    return model[0] if isinstance(model, Pipeline) else None


# --- builders: dataclasses and functions of the module, so that another process can have them -----


@dataclass(frozen=True)
class OnMap:
    """Kernel ridge regression or classification on one of our maps."""

    name: str
    gamma_factor: float = 1.0

    def __call__(self, settings: Settings) -> Any:
        features = MAPS[self.name].build(
            n_components=settings.n_components,
            gamma=self.gamma_factor * settings.gamma,
            degree=POLYNOMIAL_DEGREE,
            random_state=settings.seed,
            n_jobs=settings.n_threads,
        )
        kind = KernelRidgeClassifier if settings.classes else KernelRidge
        return kind(features, alpha=settings.alpha, n_jobs=settings.n_threads)


# (2 gamma <x, y> / p + 1)^p tends to exp(2 gamma <x, y>), the Gaussian's inner part.
TAYLOR = 2.0 / POLYNOMIAL_DEGREE


@dataclass(frozen=True)
class OnSklearnMap:
    """scikit-learn's map with its own ridge, or with logistic regression."""

    transformer: type
    gamma_factor: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, settings: Settings) -> Any:
        features = self.transformer(
            gamma=self.gamma_factor * settings.gamma,
            n_components=settings.n_components,
            random_state=settings.seed,
            **self.options,
        )
        return make_pipeline(features, linear(settings))


@dataclass(frozen=True)
class Sklearn:
    """An estimator of scikit-learn with its own defaults.

    ``options`` are the names of those of its parameters that get a setting.
    """

    regressor: type
    classifier: type
    options: tuple[str, ...] = ()

    def __call__(self, settings: Settings) -> Any:
        values = {
            "random_state": settings.seed,
            "n_jobs": settings.n_threads,
            "categorical_features": list(settings.categorical) or None,
        }
        kind = self.classifier if settings.classes else self.regressor
        return kind(**{name: values[name] for name in self.options})


@dataclass(frozen=True)
class SelfTuned:
    """A method that chooses gamma and alpha as a part of its fit."""

    build: Build

    def __call__(self, settings: Settings) -> Any:
        return Tuned(self.build, settings)


def linear(settings: Settings) -> Any:
    """Ridge regression, or logistic regression."""
    if settings.classes:
        return LogisticRegression(max_iter=1_000)
    return Ridge(alpha=settings.alpha)


def plain_linear(settings: Settings) -> Any:
    """The same with the ridge that scikit-learn has by default."""
    return linear(replace(settings, alpha=1.0))


def exact(settings: Settings) -> Any:
    """Exact kernel ridge; classes by taking every training row for a landmark."""
    if settings.classes:
        landmarks = NystromFeatures(EXACT_MAX_ROWS, gamma=settings.gamma, n_jobs=settings.n_threads)
        return KernelRidgeClassifier(landmarks, alpha=settings.alpha, n_jobs=settings.n_threads)
    return ExactKernelRidge(gamma=settings.gamma, alpha=settings.alpha)


def default(settings: Settings) -> Any:
    """What a user gets who sets nothing."""
    if settings.classes:
        return KernelRidgeClassifier(random_state=settings.seed, n_jobs=settings.n_threads)
    return KernelRidgeCV(random_state=settings.seed, n_jobs=settings.n_threads)


# --- the rows -------------------------------------------------------------------------------------


def _cost(fixed: float, per: float) -> Seconds:
    """Seconds: a constant, and so many for every 10^9 products in n rows of s features."""
    return lambda n, d, s: fixed + per * n * s * s / 1e9 + 5e-10 * n * d * s


# Costs of a fit on two cores; maps that are not listed cost as much as the dearest.
_COSTS = {
    "fourier": (0.005, 0.05),
    "nystrom": (0.03, 0.15),
    "oblivious": (0.02, 0.08),
    "row-norm": (0.05, 0.06),
    "adaptive": (0.4, 0.1),
}


def _on_map(name: str) -> Method:
    row = MAPS[name]
    return Method(
        name,
        row.label,
        row.description,
        OnMap(name, 1.0 if row.gaussian else TAYLOR),
        _cost(*_COSTS.get(name, (0.35, 0.25))),
        has_features=True,
        seeded=True,
        needs_gamma=True,
        gaussian=row.gaussian,
        ours=True,
    )


def _sklearn_map(name: str, label: str, description: str, build: Build, gaussian: bool) -> Method:
    return Method(
        name, label, description, build, _cost(0.02, 0.25), has_features=True, seeded=True,
        needs_gamma=True, gaussian=gaussian,
    )  # fmt: skip


_ROWS = (
    Method(
        "linear", "Linear", "ridge or logistic regression on the inputs, no kernel",
        plain_linear, lambda n, d, s: 0.01 + 2e-9 * n * d * d,
    ),
    Method(
        "boosting", "Boosting", "scikit-learn's gradient boosted trees, 100 of them",
        Sklearn(HistGradientBoostingRegressor, HistGradientBoostingClassifier,
                ("random_state", "categorical_features")),
        lambda n, d, s: 0.5 + 4e-7 * n * d, columns=True, tree=True,
    ),
    Method(
        "exact", "Exact", f"exact kernel ridge, up to {EXACT_MAX_ROWS:,} training rows",
        exact, lambda n, d, s: 0.02 + 8e-11 * n**3, max_rows=EXACT_MAX_ROWS,
        needs_gamma=True, ours=True,
    ),
    *(_on_map(name) for name in MAPS if name != "auto"),
    Method(
        "default", "Default", "KernelRidgeCV() as it is: the kernel is learned", default,
        lambda n, d, s: min(60.0, 0.5 + 5e-3 * n), ours=True,
    ),
    _sklearn_map("sklearn-rbfsampler", "RBFSampler", "scikit-learn's Fourier features",
                 OnSklearnMap(RBFSampler), True),
    _sklearn_map("sklearn-nystroem", "Nystroem", "scikit-learn's uniform landmarks",
                 OnSklearnMap(Nystroem), True),
    _sklearn_map(
        "sklearn-polynomialcountsketch", "CountSketch",
        "scikit-learn's sketch of a polynomial kernel of degree 3",
        OnSklearnMap(PolynomialCountSketch, TAYLOR, {"degree": POLYNOMIAL_DEGREE, "coef0": 1}),
        False,
    ),
    Method(
        "neighbours", "Neighbours", "scikit-learn's five nearest neighbours",
        Sklearn(KNeighborsRegressor, KNeighborsClassifier, ("n_jobs",)),
        lambda n, d, s: 0.1 + 1e-9 * n * n * d,
    ),
    Method(
        "extra-trees", "ExtraTrees", "scikit-learn's extremely randomised trees, 100 of them",
        Sklearn(ExtraTreesRegressor, ExtraTreesClassifier, ("random_state", "n_jobs")),
        lambda n, d, s: 0.3 + 1e-6 * n * d, columns=True, tree=True,
    ),
    Method(
        "lightgbm", "LightGBM", "gradient boosted trees of the package lightgbm",
        peers.LightGBM, lambda n, d, s: 3.0, columns=True, tree=True, requires="lightgbm",
    ),
    Method(
        "ebm", "EBM", "explainable boosting machine of the package interpret",
        peers.ebm, lambda n, d, s: 30.0, columns=True, tree=True, requires="interpret",
    ),
    Method(
        "xrfm", "xRFM", "trees of recursive feature machines of the package xrfm",
        peers.XRFM, lambda n, d, s: 20.0, requires="xrfm",
    ),
    Method(
        "xgpr", "xGPR", "Gaussian process on Fourier features of the package xGPR",
        peers.XGPR, lambda n, d, s: 20.0, requires="xGPR",
    ),
)  # fmt: skip
METHODS = {method.name: method for method in _ROWS}
PAPER_METHODS = ("fourier", "nystrom", "oblivious", "row-norm", "adaptive")
DEFAULT_METHODS = (
    "linear", "boosting", "exact", "fourier", "nystrom", "row-norm", "adaptive", "default",
)  # fmt: skip
PEERS = (
    "lightgbm", "ebm", "xrfm", "xgpr", "extra-trees", "neighbours", "sklearn-rbfsampler",
    "sklearn-nystroem",
)  # fmt: skip


def find_method(name: str) -> Method:
    """The method of that name.

    Examples
    --------
    >>> find_method("fourier").description
    'random Fourier features'
    """
    if name not in METHODS:
        raise ValueError(unknown_method(name, METHODS))
    return METHODS[name]
