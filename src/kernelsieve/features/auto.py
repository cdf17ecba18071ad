"""The automatic choice between the maps, with its reason."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kernelsieve._random import keyed_rows
from kernelsieve._state import Persistent, instance, list_of, number, text
from kernelsieve._validation import check_positive
from kernelsieve.diagnostics import KernelSample
from kernelsieve.features.adaptive import AdaptiveFeatures
from kernelsieve.features.base import FeatureMap
from kernelsieve.features.fourier import FourierFeatures
from kernelsieve.features.nystrom import NystromFeatures
from kernelsieve.features.row_norm import RowNormFeatures
from kernelsieve.kernels import Kernel, Product, SeriesKernel, resolve_kernel
from kernelsieve.kernels.series import SeriesTooLongError
from kernelsieve.linalg.normal_equations import NormalEquations
from kernelsieve.linalg.operators import dense
from kernelsieve.linalg.ridge_path import RidgePath
from kernelsieve.products.product_features import ProductFeatures
from kernelsieve.sources.base import Source
from kernelsieve.sources.summaries import TargetSummary, checked_targets, target_summary

TRIAL_ROWS = 24_000
TRIAL_VALUES = 2**25  # of rows x columns, which may leave fewer rows, but not fewer than these:
HEAT_ROWS = 6000
TRIAL_COMPONENTS = 1000
# Quarters of the rows judge, one after the other, until so many rows have done so.
FOLDS, ENOUGH = 4, 6000
# A map is out of the race if it is behind by so much, and by so many standard errors, after at
# least so many rows: errors on few rows are chance, and so is one draw of features.
BEHIND, CERTAIN, JUDGES = 0.1, 3.0, 1500
# Of the ridge, which suits no two maps the same: up to where little more than a constant is left.
TRIAL_ALPHAS = np.logspace(-6.3, 5.4, 14)
ERROR_ROWS = 1000  # rows whose exact kernel matrix judges the maps where there is no target
# A cheaper map is preferred to a better one that is better by less than this: a draw of features
# alone may be worth more.
TIE = 0.001
# "adaptive" asks the target of all rows, "row norm" does not ask. Where there are so many times the
# rows of the trial, the former is preferred to the latter unless it is behind by so much.
MANY_MORE, NO_MATTER = 4, 0.005
MAPS: dict[str, type[FeatureMap]] = {  # from the quickest on
    "row norm": RowNormFeatures,
    "adaptive": AdaptiveFeatures,
    "Fourier": FourierFeatures,
    "Nystrom": NystromFeatures,
}


@dataclass(frozen=True)
class MapTrial(Persistent):
    """The result of trying a map on some rows.

    Attributes
    ----------
    name : str
    error : float
        Root mean squared error on rows left out, relative to the target's standard deviation;
        without a target the relative error of the kernel matrix.
    seconds : float
        Time of fit and transform; NaN in a model that was loaded: files hold no times.
    """

    name: str
    error: float
    seconds: float = math.nan

    _state_fields: ClassVar = {"name": text, "error": number()}


@dataclass(eq=False)
class _Runner:
    """A map in a race, and what is known of it.

    Attributes
    ----------
    squares : ndarray of shape (rows judged, ridges)
        Squared errors, summed over targets.
    n_rows : int
        The rows of the last round that it ran in.
    """

    name: str
    features: FeatureMap
    squares: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    n_rows: int = 0
    error: float = np.inf
    seconds: float = 0.0

    @property
    def losses(self) -> NDArray[np.float64]:
        """Squared errors at the ridge that suits the map."""
        return self.squares[:, np.argmin(self.squares.sum(axis=0))]

    def approximate(self, X: Any, judge: KernelSample) -> bool:
        """Take the error of the kernel matrix; False if the data reach too far for the map."""
        began = time.perf_counter()
        try:
            Z = self.features.fit(X).transform(X[:ERROR_ROWS])
        except SeriesTooLongError:
            return False
        self.error, self.n_rows = judge.kernel_error(Z).frobenius, X.shape[0]
        self.seconds += time.perf_counter() - began
        return True

    def predict(
        self,
        X: Any,
        targets: NDArray[np.float64],
        apart: NDArray[np.bool_],
        alphas: NDArray[np.float64],
    ) -> bool:
        """Take the errors at the rows apart; False if the data reach too far for the map."""
        began = time.perf_counter()
        try:
            Z = self.features.fit(X[~apart], targets[~apart]).transform(X[~apart])
            coordinates = dense(self.features.transform(X[apart]))
        except SeriesTooLongError:
            return False
        equations = NormalEquations.of_block(Z, targets[~apart])
        path = RidgePath(equations.centred(fit_intercept=True), alphas)
        predicted = path.predict(path.coordinates(coordinates))
        squares = ((targets[apart][:, None] - predicted) ** 2).sum(axis=2)
        self.squares = np.vstack([self.squares, squares])
        self.seconds += time.perf_counter() - began
        return True


def _race(
    runners: list[_Runner],
    X: Any,
    targets: NDArray[np.float64],
    alphas: NDArray[np.float64],
) -> tuple[list[_Runner], list[_Runner]]:
    """All maps that can run, with their errors, and those that ran to the end.

    With many rows a heat on some of them comes first, for maps that are far behind. The others run
    with all rows: one map may gain more from them than another.
    """
    able = running = runners
    stride = len(targets) // HEAT_ROWS
    for step, most_folds in ((stride, 1), (1, FOLDS)) if stride > 1 else ((1, FOLDS),):
        some = np.arange(len(targets)) // FOLDS % step == 0
        passed, ahead = _round(running, X[some], targets[some], alphas, most_folds)
        able = [r for r in able if r in passed or r not in running]
        running = ahead
        if len(running) <= 1:
            break
    return able, running


def _round(
    runners: list[_Runner],
    X: Any,
    targets: NDArray[np.float64],
    alphas: NDArray[np.float64],
    most_folds: int,
) -> tuple[list[_Runner], list[_Runner]]:
    """The maps that can run on these rows, with their errors, and those that are not behind.

    Each quarter of the rows judges the ridges of the others. After each the maps leave that are
    behind the best for certain, and the round ends when one is left or enough rows have judged.
    """
    fold = np.arange(len(targets)) % FOLDS
    for runner in runners:
        runner.squares, runner.n_rows = np.empty((0, len(alphas))), len(targets)
    able = running = runners
    for k in range(most_folds):
        passed = [r for r in running if r.predict(X, targets, fold == k, alphas)]
        able = [r for r in able if r in passed or r not in running]
        running = passed
        if not running:
            break
        judged = len(running[0].squares)
        if judged >= JUDGES:
            best = min(running, key=lambda r: float(r.losses.mean())).losses
            running = [r for r in running if not _behind(r.losses, best)]
        if len(running) == 1 or judged >= ENOUGH:
            break
    spread = max(float(targets.var(axis=0).sum()), 1e-300)
    for runner in able:
        runner.error = float(np.sqrt(runner.losses.mean() / spread))
    return able, running


def _behind(losses: NDArray[np.float64], best: NDArray[np.float64]) -> bool:
    """Whether losses at the same rows are larger by much, and not by chance."""
    more = losses - best
    chance = CERTAIN * more.std() / np.sqrt(len(more))
    return bool(losses.mean() > (1.0 + BEHIND) ** 2 * best.mean() and more.mean() > chance)


class AutoFeatures(FeatureMap):
    """The map that does best on a subsample of the rows, with the reason.

    It is what that map is with the same random_state. Sparse rows go to the maps that keep them
    sparse, kernels without a Taylor series to Nystrom. If several maps are possible, they race: by
    the error of a ridge regression on rows left out, first on 6,000 rows, and those that are not
    far behind on up to 24,000; without a target by the error of the kernel matrix on 6,000 rows.

    Parameters
    ----------
    n_components : int, default 1000
        The number of features.
    kernel : Kernel or str, optional
        Any kernel, or its name. None learns a product kernel (``kernels.learn``) from dense rows
        and a target, and is "gaussian" without a target, for sparse rows, or if gamma is given.
    gamma : "scale", "auto" or float, default "scale"
        Of a kernel given by name: "scale" is 1 / (d var(X)), and "auto" is 1 / d.
    degree : int, default 3
        The degree of kernel="poly".
    coef0 : float, default 1.0
        The constant of kernel="poly".
    alpha : float, default None
        The ridge that the features are for. None takes that of the model, or 1.
    random_state : int, RandomState, Generator or None, default None
        Seed of all random choices; None draws a new one for every fit.
    n_jobs : int, optional
        Number of threads; None uses all cores.

    Attributes
    ----------
    map_ : FeatureMap
        The chosen map, fitted to all rows.
    reason_ : str
        Why it was chosen.
    trials_ : list of MapTrial
        Results of the trials; empty if only one map was possible.
    kernel_ : Kernel
        The kernel in use.
    n_components_ : int
        Number of features.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if X had names.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import AutoFeatures
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> features = AutoFeatures(50, kernel="laplacian", random_state=0).fit(X)
    >>> features.reason_
    'Nystrom: the kernel has no Taylor series'
    """

    unbiased: ClassVar[bool] = False
    _state_parameters: ClassVar = {"kernel": instance(str, Kernel, None)}
    _state_fields: ClassVar = {
        "map_": instance(FeatureMap, fitted=True, d="n_features_in_"),
        "reason_": text,
        "trials_": list_of(instance(MapTrial)),
    }

    def _complete(self) -> None:
        super()._complete()
        self.n_components_ = self.map_.n_components_

    def __init__(
        self,
        n_components: int = 1000,
        *,
        kernel: Any = None,
        gamma: Any = "scale",
        degree: int = 3,
        coef0: float = 1.0,
        alpha: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.alpha = alpha
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _resolve_kernel(self, X: Source) -> Kernel:
        if self.kernel is not None:
            return super()._resolve_kernel(X)
        scale = isinstance(self.gamma, str) and self.gamma == "scale"
        if scale and not X.sparse and target_summary(X) is not None:
            return self._learned_kernel(X)
        return resolve_kernel("gaussian", X, self.gamma)

    def _fit_rows(self, X: Source, seed: int) -> None:
        alpha = 1.0
        if self.alpha is not None:
            alpha = check_positive(self.alpha, "alpha", "it is added to the kernel's diagonal")
        summary = target_summary(X)
        names, why = self._possible(X)
        self.trials_: list[MapTrial] = []
        if len(names) > 1:
            names, why = self._try(names, X, summary, alpha, seed)
        self.map_ = self._build(names[0], int(self.n_components), alpha, seed)
        try:
            self.map_.fit(X)
        except SeriesTooLongError as error:  # rows that were not in the trial
            names, why = ["Nystrom"], str(error)
            self.map_ = self._build("Nystrom", int(self.n_components), alpha, seed).fit(X)
        self.reason_ = f"{names[0]}: {why}"
        self.n_components_ = self.map_.n_components_

    def _source(self, X: Any, y: Any) -> Source:
        rows = super()._source(X, y)
        if y is not None:
            checked_targets(y, rows.shape[0])
        return rows

    def _possible(self, X: Source) -> tuple[list[str], str]:
        """The maps that suit the kernel and the shape of the data, and why where it is one."""
        if not isinstance(self.kernel_, SeriesKernel | Product):
            return ["Nystrom"], "the kernel has no Taylor series"
        if self.n_components >= X.shape[0]:
            return ["Nystrom"], f"all {X.shape[0]} rows as landmarks are exact"
        if X.sparse:
            return ["row norm", "adaptive"], ""
        frequencies = self.kernel_.has_frequencies
        return [name for name in MAPS if frequencies or name != "Fourier"], ""

    def _build(self, name: str, size: int, alpha: float, seed: int) -> FeatureMap:
        options: dict[str, Any] = {
            "kernel": self.kernel_,
            "random_state": seed,
            "n_jobs": self.n_jobs,
        }
        if name != "Fourier":
            options["alpha"] = alpha
        return MAPS[name](size, **options)

    def _try(
        self,
        names: list[str],
        X: Source,
        summary: TargetSummary | None,
        alpha: float,
        seed: int,
    ) -> tuple[list[str], str]:
        """The name of the best map on a subsample, and why."""
        n_rows = HEAT_ROWS
        if summary is not None:
            n_rows = max(n_rows, min(TRIAL_ROWS, TRIAL_VALUES // X.shape[1]))
        rows = X.take(keyed_rows(X.shape[0], n_rows, seed, "auto"))
        targets = np.empty((len(rows), 0)) if summary is None else summary.columns(rows.y)
        # As many features as will be used, up to one for each row that the trial learns from.
        size = int(min(self.n_components, TRIAL_COMPONENTS, max(1, 3 * len(rows) // 4)))
        race = [_Runner(name, self._build(name, size, alpha, seed)) for name in names]
        if targets.shape[1]:
            race, final = _race(race, rows.X, targets, alpha * TRIAL_ALPHAS)
        else:
            judge = KernelSample(self.kernel_, rows.X[:ERROR_ROWS], alpha)
            race = final = [runner for runner in race if runner.approximate(rows.X, judge)]
        self.trials_ = [MapTrial(runner.name, runner.error, runner.seconds) for runner in race]
        if not race:
            return ["Nystrom"], "the data reach too far for products of columns"
        best = min(runner.error for runner in final)
        chosen = next(runner for runner in final if runner.error <= (1.0 + TIE) * best)
        asking = next((runner for runner in final if runner.name == "adaptive"), chosen)
        promising = (
            targets.shape[1] > 0
            and chosen.name == "row norm"
            and X.shape[0] >= MANY_MORE * len(rows)
            and asking.error <= (1.0 + NO_MATTER) * chosen.error
        )
        chosen = asking if promising else chosen
        what = "target" if targets.shape[1] else "kernel"
        said = [
            ", ".join(f"{runner.name} {runner.error:.3g}" for runner in race if runner.n_rows == n)
            + f" on {n} rows"
            for n in sorted({runner.n_rows for runner in race}, reverse=True)
        ]
        why = f"{what} error with {size} features: {'; '.join(said)}"
        if promising:
            why += "; more rows are still to come, and adaptive asks the target of all"
        elif chosen.error > best:
            why += f"; quicker than what is at most {100 * TIE:g} % better"
        return [chosen.name], why

    def as_products(self) -> ProductFeatures | None:
        return self.map_.as_products()

    def as_landmarks(self) -> tuple[Any, NDArray[Any]] | None:
        return self.map_.as_landmarks()

    def _fill(self, X: Any, out: NDArray[Any]) -> None:
        self.map_._fill(X, out)

    def _transform(self, X: Any) -> Any:
        return self.map_._transform(X)

    def transform_block(self, X: Any) -> Any:
        return self.map_.transform_block(X)

    def raw_block(self, X: Any) -> Any:
        return self.map_.raw_block(X)

    def times(self, weights: NDArray[np.float64]) -> Callable[[NDArray[Any]], NDArray[Any]]:
        return self.map_.times(weights)

    @property
    def mixing(self) -> NDArray[Any] | None:
        return self.map_.mixing

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the features, as the chosen map gives them.

        Parameters
        ----------
        input_features : array-like of str of shape (d,), optional
            Names of the columns; None takes those seen in ``fit``, or "x0", "x1", ...

        Returns
        -------
        ndarray of str of shape (n_components,)
        """
        check_is_fitted(self)
        return self.map_.get_feature_names_out(input_features)
