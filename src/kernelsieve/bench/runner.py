"""The protocol of the paper's experiments, for any methods on any data.

gamma and alpha are chosen once and given to every method. The number of features s starts small
and doubles, for each method until its error stops improving. What is timed is all of training,
features and regression, with the same number of threads for everybody, after a warm-up that is not
counted. At every s the methods and seeds take turns in random order, so that a slow minute of the
machine is nobody's own.
"""

from __future__ import annotations

import hashlib
import statistics
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.metrics import root_mean_squared_error
from threadpoolctl import threadpool_limits

from kernelsieve import __version__, datasets
from kernelsieve._parallel import thread_count
from kernelsieve._random import stream
from kernelsieve._validation import check_count, check_positive
from kernelsieve.bench.machine import environment, watch_memory
from kernelsieve.bench.methods import PAPER_METHODS, Settings, find_method, transformer_of
from kernelsieve.bench.own_files import read_dataset
from kernelsieve.bench.problem import Problem, choose_gamma_alpha, prepare, test_rows
from kernelsieve.bench.quality import Sample, spectrum_of, take_sample
from kernelsieve.bench.records import (
    NEGLIGIBLE,
    Comparison,
    Result,
    Setup,
    Stop,
    Store,
    summarise,
)
from kernelsieve.datasets import Dataset
from kernelsieve.datasets.verify import checksum
from kernelsieve.tables.readers import READERS

BUILT_IN = ("diabetes", "friedman", "product", "onehot")
FILE_ENDINGS = tuple(READERS) + tuple(f"{ending}.gz" for ending in READERS)
LADDER = (125, 250, 500, 1000, 2000, 4000)
PATIENCE = 2  # doublings of s without a noticeable gain before a method stops
PROTOCOL = 1  # part of the conditions: raise it when older results are not comparable any more

WARM_UP_ROWS = 256
WARM_UP_COMPONENTS = 64

# How much longer a fit takes with twice the features; between linear and quadratic.
SLOWEST_GROWTH, FASTEST_GROWTH = 2.0, 4.0

Report = Callable[[str, int, int], None]


class PlanError(ValueError):
    """A comparison that cannot be made: an unknown name, or a number out of range."""


@dataclass(frozen=True)
class Plan:
    """What to compare.

    Attributes
    ----------
    datasets : tuple of str
        Names of :func:`kernelsieve.datasets.names`, or CSV files.
    methods : tuple of str
        Names in ``METHODS``.
    n_components : tuple of int or None
        The values of s; None doubles s from 125 on until the error stops improving.
    n_seeds : int
        Seeds 0, 1, ... of the features; the split into training and test rows is one and the same.
    n_threads : int or None
        For everybody; None takes all cores.
    budget_minutes : float or None
        About how long it may take in all: the largest s are left out where they would take longer.
    target : str or None
        The column of a CSV file that is to be predicted.
    drop : tuple of str
        Columns of a CSV file to leave out.
    folder : Path or None
        Where data files are looked for first.
    """

    datasets: tuple[str, ...] = BUILT_IN
    methods: tuple[str, ...] = PAPER_METHODS
    n_components: tuple[int, ...] | None = None
    n_seeds: int = 5
    n_threads: int | None = None
    budget_minutes: float | None = None
    target: str | None = None
    drop: tuple[str, ...] = ()
    folder: Path | None = None

    def __post_init__(self) -> None:
        try:
            for name in self.datasets:
                if not is_file_name(name):
                    datasets.describe(name)
            for name in self.methods:
                find_method(name)
            for s in self.n_components or ():
                check_count(s, "features", "it is the number of features to make")
            check_count(self.n_seeds, "seeds", "it is the number of repetitions")
            if self.n_threads is not None:
                check_count(self.n_threads, "threads", "it is the number of threads to use")
            if self.budget_minutes is not None:
                check_positive(self.budget_minutes, "budget", "it is a number of minutes")
        except (TypeError, ValueError) as error:
            raise PlanError(str(error)) from error
        if not (self.datasets and self.methods and self.n_components != ()):
            raise PlanError("nothing to compare: name a dataset, a method and a number of features")
        files = any(map(is_file_name, self.datasets))
        if not files and (self.target or self.drop):
            raise PlanError(
                "--target and --drop are for files of your own: name one, such as my.csv"
            )

    @property
    def threads(self) -> int:
        """The number of threads that everybody gets."""
        return thread_count(self.n_threads)

    def ladder(self, n_train: int) -> tuple[int, ...]:
        """The values of s, smallest first: up to the number of rows, unless they were given."""
        if self.n_components is not None:
            return tuple(sorted(set(self.n_components)))
        return tuple(s for s in LADDER if s <= n_train) or LADDER[:1]

    def load(self, name: str) -> Dataset:
        """A dataset of the plan."""
        if is_file_name(name):
            return _own_file(name, Path(name).stat().st_mtime_ns, self.target, self.drop)
        return datasets.load(name, folder=self.folder)

    def n_rows(self, name: str) -> int:
        """Its number of rows."""
        return len(self.load(name).y) if is_file_name(name) else datasets.describe(name).n_rows


@lru_cache(maxsize=8)
def _own_file(name: str, modified: int, target: str | None, drop: tuple[str, ...]) -> Dataset:
    """A file of the user's, read once for as long as it is not changed."""
    return read_dataset(name, target, drop)


def is_file_name(name: str) -> bool:
    """Whether this is a file of the user's, and not a name of ours.

    Examples
    --------
    >>> is_file_name("prices.csv"), is_file_name("wine")
    (True, False)
    """
    return name.lower().endswith(FILE_ENDINGS)


def check_data(plan: Plan, progress: bool = False) -> None:
    """Find or download all data and read the user's own: before hours of work, not after."""
    for name in plan.datasets:
        if is_file_name(name):
            plan.load(name)
        else:
            datasets.ensure_files([name], folder=plan.folder, progress=progress)


def run(
    plan: Plan, store: Store, report: Report = lambda step, done, total: None
) -> list[Comparison]:
    """Carry out a plan, except for what is in the store already.

    ``report`` is called before every step with a line of text, the number of fits done on this
    dataset and the number of those that are planned; the latter falls when a method stops early.

    Examples
    --------
    >>> import tempfile
    >>> store = Store(Path(tempfile.mkdtemp()) / "results.jsonl")
    >>> plan = Plan(("diabetes",), methods=("fourier",), n_components=(50,), n_seeds=1)
    >>> [comparison.methods for comparison in run(plan, store)]
    [['fourier']]
    """
    check_data(plan)
    left = None if plan.budget_minutes is None else 60.0 * plan.budget_minutes
    comparisons = []
    for i, name in enumerate(plan.datasets):
        race = Race(plan, plan.load(name), store, report)
        comparisons.append(race.run(None if left is None else left * _share(plan, i)))
        if left is not None:
            left = max(0.0, left - race.seconds)
    return comparisons


def _share(plan: Plan, i: int) -> float:
    """The i-th dataset's share of the time left: large data need more, but not in proportion."""
    weights = [plan.n_rows(name) ** (1 / 3) for name in plan.datasets[i:]]
    return weights[0] / sum(weights)


def skipped(plan: Plan) -> list[str]:
    """Which methods are left out where, and why: one line each."""
    lines = []
    for name in plan.datasets:
        n_rows = plan.n_rows(name)
        n_train = n_rows - test_rows(n_rows)
        for method in map(find_method, plan.methods):
            if method.max_rows is not None and n_train > method.max_rows:
                lines.append(
                    f"{method.name} is left out on {name}: "
                    f"{n_train:,} training rows, its limit is {method.max_rows:,}"
                )
    return lines


@dataclass(frozen=True)
class Cell:
    """One fit to do."""

    method: str
    n_components: int | None
    seed: int

    def __str__(self) -> str:
        size = "" if self.n_components is None else f", s={self.n_components}"
        return f"{self.method}{size}, seed {self.seed}"


class Race:
    """The comparison on one dataset."""

    def __init__(
        self,
        plan: Plan,
        data: Dataset,
        store: Store,
        report: Report = lambda step, done, total: None,
    ) -> None:
        self.plan, self.store, self.report = plan, store, report
        self.problem = prepare(data)
        self.conditions = _conditions(plan, data, self.problem)
        self.ladder = plan.ladder(len(self.problem.y_train))
        known = store.select(Result, self.conditions)
        self.known = {Cell(r.method, r.n_components, r.seed): r for r in known}
        self.results: list[Result] = []
        self.stops: dict[str, Stop] = {}
        self.warm: set[str] = set()
        self._sample: Sample | None = None

    def run(self, budget_seconds: float | None = None) -> Comparison:
        """Grow s, level by level; every method and seed runs at a level before the next."""
        self.setup = self._setup()
        active = [
            name
            for name in self.plan.methods
            if (limit := find_method(name).max_rows) is None or len(self.problem.y_train) <= limit
        ]
        for level, s in enumerate(self.ladder):
            for cell in self.cells(active, s, first=level == 0):
                self.report(f"{self.problem.name}: {cell}", len(self.results), self._total(active))
                self.results.append(self.known.get(cell) or self._measure(cell))
            active = self._survivors(active, level, budget_seconds)
        rows = summarise(self.results, self.plan.methods)
        return Comparison(self.setup, tuple(rows), tuple(self.stops.values()))

    @property
    def seconds(self) -> float:
        """What all of it took, whether now or in an earlier run."""
        return self.setup.seconds + sum(r.seconds for r in self.results)

    def cells(self, active: Sequence[str], s: int, first: bool) -> list[Cell]:
        """Every fit of a level, shuffled; methods without features run at the first only."""
        cells = [
            Cell(name, s if find_method(name).has_features else None, seed)
            for name in active
            if first or find_method(name).has_features
            for seed in range(self.plan.n_seeds)
        ]
        order = stream(s, "bench order").permutation(len(cells))
        return [cells[i] for i in order]

    def _total(self, active: Sequence[str]) -> int:
        """Fits on this dataset if nobody stops early from now on."""
        fits = 0
        for name in self.plan.methods:
            if not find_method(name).has_features:
                fits += 1
            elif name in active:
                fits += len(self.ladder)
            elif name in self.stops:
                fits += 1 + self.ladder.index(self.stops[name].n_components)
        return fits * self.plan.n_seeds

    # --- when to stop -----------------------------------------------------------------------------

    def _survivors(
        self, active: Sequence[str], level: int, budget_seconds: float | None
    ) -> list[str]:
        """Who goes on to the next s."""
        growing = self.plan.n_components is None
        reasons: dict[str, str] = {}
        for name in active:
            if not find_method(name).has_features:
                continue
            if level + 1 == len(self.ladder):
                reasons[name] = "limit"
            elif growing and level >= PATIENCE and self._gain(name, level) < NEGLIGIBLE:
                reasons[name] = "no gain"
        going = [m for m in active if find_method(m).has_features and m not in reasons]
        for name in self._too_slow(going, level, budget_seconds):
            reasons[name] = "budget"
        for name, reason in reasons.items():
            self.stops[name] = Stop(name, self.ladder[level], reason)
        return [name for name in going if name not in reasons]

    def _gain(self, name: str, level: int) -> float:
        """By which part the last doublings of s lowered the lowest mean error."""
        errors = [
            statistics.fmean(r.error for r in self._at(name, s)) for s in self.ladder[: level + 1]
        ]
        before, after = min(errors[:-PATIENCE]), min(errors[-PATIENCE:])
        return 1.0 - after / before if before > 0 else 0.0

    def _too_slow(
        self, going: Sequence[str], level: int, budget_seconds: float | None
    ) -> list[str]:
        """The slowest methods, so many that the others fit into the budget at the next level.

        All times that it looks at are in the records: a resumed run chooses the same.
        """
        if budget_seconds is None or not going:
            return []
        expected = {name: self._expected_seconds(name, level) for name in going}
        slow = []
        for name in sorted(going, key=expected.__getitem__, reverse=True):
            if sum(expected.values()) <= budget_seconds - self.seconds:
                break
            slow.append(name)
            del expected[name]
        return slow

    def _expected_seconds(self, name: str, level: int) -> float:
        """What the next level will take, from the last one or two."""
        seconds = [
            sum(r.fit_seconds + r.predict_seconds for r in self._at(name, s))
            for s in self.ladder[max(0, level - 1) : level + 1]
        ]
        growth = seconds[-1] / seconds[0] if len(seconds) > 1 else FASTEST_GROWTH
        return seconds[-1] * min(max(growth, SLOWEST_GROWTH), FASTEST_GROWTH)

    def _at(self, name: str, s: int) -> list[Result]:
        return [r for r in self.results if (r.method, r.n_components) == (name, s)]

    # --- measuring --------------------------------------------------------------------------------

    def _setup(self) -> Setup:
        """gamma, alpha and the spectrum: from the store, or found now."""
        known = self.store.select(Setup, self.conditions)
        if known:
            return known[-1]
        problem, threads = self.problem, self.plan.threads
        self.report(f"{problem.name}: choosing gamma and alpha", 0, self._total(self.plan.methods))
        start = perf_counter()
        gamma, alpha = choose_gamma_alpha(problem.X_train, problem.y_train, threads)
        with self._fair():
            spectrum = spectrum_of(problem.X_train, gamma, alpha)
        setup = Setup(
            dataset=problem.name,
            conditions=self.conditions,
            n_train=len(problem.y_train),
            n_test=len(problem.y_test),
            n_inputs=problem.X_train.shape[1],
            gamma=gamma,
            alpha=alpha,
            float_type=str(problem.X_train.dtype),
            n_threads=threads,
            statistical_dimension=spectrum.statistical_dimension,
            spectrum_places=spectrum.places,
            spectrum_values=spectrum.values,
            seconds=perf_counter() - start,
            environment=environment(),
        )
        self.store.add(setup)
        return setup

    def _measure(self, cell: Cell) -> Result:
        """Fit, predict, and write down what it took."""
        begin = perf_counter()
        self._warm_up(cell.method)
        problem, setup = self.problem, self.setup
        model = self._model(cell.method, cell.n_components or 0, cell.seed)
        with self._fair(), watch_memory() as memory:
            start = perf_counter()
            model.fit(problem.X_train, problem.y_train)
            fitted = perf_counter()
        with self._fair():
            predicting = perf_counter()
            predicted = model.predict(problem.X_test)
            end = perf_counter()
        epsilon = self._epsilon(cell.method, model)
        result = Result(
            dataset=problem.name,
            conditions=self.conditions,
            method=cell.method,
            n_components=cell.n_components,
            seed=cell.seed,
            error=float(root_mean_squared_error(problem.y_test, predicted)),
            fit_seconds=fitted - start,
            predict_seconds=end - predicting,
            seconds=perf_counter() - begin,
            peak_bytes=memory.peak_bytes,
            epsilon=epsilon,
            n_threads=setup.n_threads,
            gamma=setup.gamma,
            alpha=setup.alpha,
            environment=environment(),
        )
        self.store.add(result)
        return result

    def _warm_up(self, name: str) -> None:
        """A small fit before a method's first: compilation and imports are not training time."""
        if name in self.warm:
            return
        X, y = self.problem.X_train[:WARM_UP_ROWS], self.problem.y_train[:WARM_UP_ROWS]
        with self._fair():
            self._model(name, WARM_UP_COMPONENTS, 0).fit(X, y).predict(X)
        self.warm.add(name)

    def _model(self, name: str, n_components: int, seed: int) -> Any:
        settings = Settings(
            n_components, self.setup.gamma, self.setup.alpha, seed, self.setup.n_threads
        )
        return find_method(name).build(settings)

    def _epsilon(self, name: str, model: Any) -> float | None:
        transformer = transformer_of(model)
        if transformer is None or not find_method(name).gaussian:
            return None
        if self._sample is None:
            self._sample = take_sample(self.problem.X_train, self.setup.gamma, self.setup.alpha)
        with self._fair():
            return self._sample.epsilon(transformer)

    def _fair(self) -> _Fair:
        return _Fair(self.plan.threads)


class _Fair:
    """The same number of threads for everybody, and no remarks of Nystroem's that s exceeds n."""

    def __init__(self, n_threads: int) -> None:
        self.limits = threadpool_limits(n_threads)
        self.warnings = warnings.catch_warnings()

    def __enter__(self) -> None:
        self.warnings.__enter__()
        warnings.filterwarnings("ignore", message="n_components > n_samples")

    def __exit__(self, *error: Any) -> None:
        self.warnings.__exit__(*error)
        self.limits.restore_original_limits()


def _conditions(plan: Plan, data: Dataset, problem: Problem) -> str:
    """A key of all that must be equal for results to belong to one table."""
    parts = (
        PROTOCOL,
        __version__,
        data.name,
        checksum(data.X, data.y),
        str(problem.X_train.dtype),
        plan.threads,
        np.__version__,
    )
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()
