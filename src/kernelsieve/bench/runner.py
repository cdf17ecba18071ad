"""The protocol of the paper's experiments, for any methods on any data.

Inputs are standardised on the training rows, and cut at 8 standard deviations. gamma and alpha are
chosen once, by cross-validation on Fourier features, and given to every method. What is timed is
all of training, features and regression, with the same number of threads for everybody, after a
warm-up that is not counted. Within a seed the methods run in random order, so that a slow minute
of the machine is nobody's own.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from threadpoolctl import threadpool_limits

from kernelsieve import FourierFeatures, datasets
from kernelsieve._random import stream
from kernelsieve._validation import check_count
from kernelsieve.bench.methods import METHODS, Settings, find_method
from kernelsieve.bench.records import Result
from kernelsieve.kernels import Gaussian, resolve_kernel

BUILT_IN = ("diabetes", "friedman", "product")

SPLIT_SEED = 0
TEST_SHARE = 0.25
CLIP = 8.0

# The search for gamma (in units of "scale", 1 / (d var)) and alpha: bounded, whatever n is.
TUNING_ROWS = 4_000
TUNING_COMPONENTS = 1_000
GAMMA_FACTORS = tuple(2.0**power for power in range(-5, 3))
ALPHAS = np.logspace(-5, 2, 15)

WARM_UP_ROWS = 256
WARM_UP_COMPONENTS = 64

Report = Callable[[str], None]


class PlanError(ValueError):
    """A comparison that cannot be made: an unknown name, or a number out of range."""


@dataclass(frozen=True)
class Plan:
    """What to compare.

    Attributes
    ----------
    datasets, methods : tuple of str
    n_components : tuple of int
        The values of s.
    n_seeds : int
        Seeds 0, 1, ... of the features; the split into training and test rows is one and the same.
    n_threads : int
        For everybody. One is the default: its times depend least on what else the machine does.
    folder : path or None
        Where data files are, see :func:`kernelsieve.datasets.data_folder`.
    """

    datasets: tuple[str, ...] = BUILT_IN
    methods: tuple[str, ...] = tuple(METHODS)
    n_components: tuple[int, ...] = (250, 500, 1000)
    n_seeds: int = 3
    n_threads: int = 1
    folder: str | os.PathLike[str] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        try:
            for name in self.datasets:
                datasets.describe(name)
            for name in self.methods:
                find_method(name)
            for s in self.n_components:
                check_count(s, "features", "it is the number of features to make")
            check_count(self.n_seeds, "seeds", "it is the number of repetitions")
            check_count(self.n_threads, "threads", "it is the number of threads to use")
        except (TypeError, ValueError) as error:
            raise PlanError(str(error)) from error
        if not (self.datasets and self.methods and self.n_components):
            raise PlanError("nothing to compare: name a dataset, a method and a number of features")


@dataclass(frozen=True)
class Job:
    """One fit to do."""

    method: str
    n_components: int | None
    seed: int

    def __str__(self) -> str:
        return self.method if self.n_components is None else f"{self.method}, s={self.n_components}"


@dataclass(frozen=True)
class Problem:
    """A dataset, split and scaled, with its gamma and alpha."""

    name: str
    X_train: Any
    X_test: Any
    y_train: NDArray[np.float64]
    y_test: NDArray[np.float64]
    gamma: float
    alpha: float


def run(plan: Plan, report: Report = lambda message: None) -> Iterator[Result]:
    """Carry out a plan; each result comes as soon as it is there.

    ``report`` is called with a line of text before every step, :func:`count_steps` times in all.

    Examples
    --------
    >>> plan = Plan(("diabetes",), methods=("fourier",), n_components=(50,), n_seeds=1)
    >>> [result.method for result in run(plan)]
    ['fourier']
    """
    check_files(plan)  # before hours of work, not after
    for name in plan.datasets:
        report(f"{name}: choosing gamma and alpha")
        problem = prepare(datasets.load(name, folder=plan.folder), plan.n_threads)
        warm_up(problem, plan)
        for job in jobs(plan, len(problem.y_train)):
            report(f"{name}: {job}")
            yield measure(problem, job, plan.n_threads)


def check_files(plan: Plan) -> None:
    """Raise FileNotFoundError if a file of one of the datasets is missing."""
    for name in plan.datasets:
        datasets.require_files(name, folder=plan.folder)


def count_steps(plan: Plan) -> int:
    """How often :func:`run` will report."""
    rows = (datasets.describe(name).n_rows for name in plan.datasets)
    return sum(1 + len(jobs(plan, n - _test_rows(n))) for n in rows)


def skipped(plan: Plan) -> list[str]:
    """Which methods are left out where, and why: one line each."""
    lines = []
    for name, method in itertools.product(plan.datasets, map(find_method, plan.methods)):
        n = datasets.describe(name).n_rows
        if method.max_rows is not None and n - _test_rows(n) > method.max_rows:
            lines.append(
                f"{method.name} is left out on {name}: "
                f"{n - _test_rows(n):,} training rows, its limit is {method.max_rows:,}"
            )
    return lines


def jobs(plan: Plan, n_train: int) -> list[Job]:
    """Every fit of the plan on ``n_train`` rows: seed by seed, shuffled within each."""
    methods = [find_method(name) for name in plan.methods]
    methods = [m for m in methods if m.max_rows is None or n_train <= m.max_rows]
    planned = []
    for seed in range(plan.n_seeds):
        round_ = [
            Job(method.name, s, seed)
            for method in methods
            for s in (plan.n_components if method.has_features else (None,))
        ]
        stream(seed, "bench order").shuffle(round_)
        planned += round_
    return planned


def prepare(data: datasets.Dataset, n_threads: int = 1) -> Problem:
    """Split, scale on the training rows, and choose gamma and alpha on them."""
    train, test = train_test_split(
        np.arange(len(data.y)), test_size=_test_rows(len(data.y)), random_state=SPLIT_SEED
    )
    scaler = scaler_for(data.X)
    X_train, X_test = scaler.fit_transform(data.X[train]), scaler.transform(data.X[test])
    y_train, y_test = data.y[train], data.y[test]
    with threadpool_limits(n_threads):
        gamma, alpha = choose_gamma_alpha(X_train, y_train, n_threads)
    return Problem(data.name, X_train, X_test, y_train, y_test, gamma, alpha)


def scaler_for(X: Any) -> Any:
    """How to scale X: dense columns are standardised, 0/1 sparse ones kept, counts get tf-idf.

    Standardised values are cut at CLIP standard deviations: a column that is nearly always the
    same makes outliers that no kernel is meant for, and every method suffers from them.
    """
    if not sp.issparse(X):
        clip = FunctionTransformer(np.clip, kw_args={"a_min": -CLIP, "a_max": CLIP})
        return make_pipeline(StandardScaler(), clip)
    if np.all(X.data == 1.0):
        return FunctionTransformer(accept_sparse=True)
    return TfidfTransformer(sublinear_tf=True)


def choose_gamma_alpha(X: Any, y: NDArray[np.float64], n_threads: int) -> tuple[float, float]:
    """The pair with the smallest leave-one-out error of Fourier features on a bounded subsample."""
    rows = stream(SPLIT_SEED, "tuning rows").permutation(len(y))[:TUNING_ROWS]
    X, y = X[rows], y[rows]
    scale = cast(Gaussian, resolve_kernel("gaussian", X, "scale")).gamma
    best = (np.inf, scale, 1.0)
    for factor in GAMMA_FACTORS:
        features = FourierFeatures(
            TUNING_COMPONENTS, gamma=factor * scale, random_state=SPLIT_SEED, n_jobs=n_threads
        )
        errors = leave_one_out_errors(features.fit_transform(X), y, ALPHAS)
        best = min(best, (errors.min(), factor * scale, ALPHAS[errors.argmin()]))
    return float(best[1]), float(best[2])


def leave_one_out_errors(
    Z: NDArray[np.float64], y: NDArray[np.float64], alphas: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Leave-one-out RMSE of a ridge of y on Z, with intercept, for each of ``alphas``.

    One eigendecomposition serves them all: the error without row i is residual_i / (1 - H_ii), for
    the hat matrix H.
    """
    Z, y = Z - Z.mean(axis=0), y - y.mean()
    wide = Z.shape[0] < Z.shape[1]
    eigenvalues, vectors = np.linalg.eigh(Z @ Z.T if wide else Z.T @ Z)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    U = vectors * np.sqrt(eigenvalues) if wide else Z @ vectors  # Z, rotated to its main axes
    shrinkage = 1.0 / (eigenvalues[:, None] + alphas)
    residuals = y[:, None] - U @ (shrinkage * (U.T @ y)[:, None])
    leverages = np.square(U) @ shrinkage + 1.0 / len(y)
    return np.sqrt(np.mean(np.square(residuals / (1.0 - leverages)), axis=0))


def warm_up(problem: Problem, plan: Plan) -> None:
    """A small fit of every method: compilation and first imports are nobody's training time."""
    X, y = problem.X_train[:WARM_UP_ROWS], problem.y_train[:WARM_UP_ROWS]
    settings = Settings(WARM_UP_COMPONENTS, problem.gamma, problem.alpha, 0, plan.n_threads)
    with threadpool_limits(plan.n_threads):
        for name in plan.methods:
            find_method(name).build(settings).fit(X, y).predict(X)


def measure(problem: Problem, job: Job, n_threads: int) -> Result:
    """Fit, predict, and write down what it took."""
    settings = Settings(job.n_components or 0, problem.gamma, problem.alpha, job.seed, n_threads)
    model = find_method(job.method).build(settings)
    with threadpool_limits(n_threads), warnings.catch_warnings():
        # Nystroem's remark that s is larger than n: the table shows s and n already.
        warnings.filterwarnings("ignore", message="n_components > n_samples")
        start = perf_counter()
        model.fit(problem.X_train, problem.y_train)
        fitted = perf_counter()
        predicted = model.predict(problem.X_test)
        end = perf_counter()
    return Result(
        dataset=problem.name,
        method=job.method,
        n_components=job.n_components,
        seed=job.seed,
        error=float(root_mean_squared_error(problem.y_test, predicted)),
        metric="RMSE",
        fit_seconds=fitted - start,
        predict_seconds=end - fitted,
        n_train=len(problem.y_train),
        n_test=len(problem.y_test),
        n_inputs=problem.X_train.shape[1],
        gamma=problem.gamma,
        alpha=problem.alpha,
        n_threads=n_threads,
    )


def _test_rows(n_rows: int) -> int:
    return max(1, round(TEST_SHARE * n_rows))
