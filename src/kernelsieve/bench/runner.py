"""The comparison: every method at every number of features s, on the same rows.

gamma and alpha are chosen once and given to every kernel method. What is timed is all of training,
features and regression, with the same number of threads for every method, after a warm-up that is
not counted. At every s the methods and seeds take turns in random order, so that a slow minute of
the machine hits all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from kernelsieve import __version__, datasets
from kernelsieve._random import stream
from kernelsieve.bench.isolated import Isolated, isolated
from kernelsieve.bench.machine import environment
from kernelsieve.bench.methods import Settings, find_method, transformer_of
from kernelsieve.bench.metrics import metric_of
from kernelsieve.bench.problem import Problem, tuned
from kernelsieve.bench.quality import Sample, take_sample
from kernelsieve.bench.records import Comparison, Result, Setup, Store, summarise
from kernelsieve.bench.schedule import Cell, Plan, is_file_name, schedule
from kernelsieve.bench.worker import failure_text, measure, quietly, warm_up

PROTOCOL = 2  # part of the conditions: raise it when older results are no longer comparable

Report = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Run:
    """A finished comparison and the time that it took.

    Attributes
    ----------
    comparisons : list of Comparison
    left_out : list of str
        Sentences on what was not measured, and why.
    compile_seconds : float
        Of warm-up fits; long only where loops had to be compiled.
    fit_seconds : float
        Of fits and predictions.
    seconds : float
        Of everything but the warm-up.
    """

    comparisons: list[Comparison]
    left_out: list[str]
    compile_seconds: float
    fit_seconds: float
    seconds: float


def check_data(plan: Plan, progress: bool = False) -> None:
    """Find or download all data and read the user's own: before hours of work, not after."""
    for name in plan.datasets:
        if is_file_name(name):
            plan.load(name)
        else:
            datasets.ensure_files([name], folder=plan.folder, progress=progress)


def run(plan: Plan, store: Store, report: Report = lambda step, done, total: None) -> Run:
    """Carry out a plan, except for what is in the store already.

    Parameters
    ----------
    plan : Plan
    store : Store
        Results are written to it one by one: an interrupted run resumes.
    report : callable, optional
        Called before every step with a line of text, the number of fits done and that of all.

    Returns
    -------
    Run

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> store = Store(Path(tempfile.mkdtemp()) / "results.jsonl")
    >>> plan = Plan(("diabetes",), methods=("fourier",), n_components=(50,), n_seeds=1)
    >>> [comparison.methods for comparison in run(plan, store).comparisons]
    [['fourier']]
    """
    start = perf_counter()
    check_data(plan)
    planned = schedule(plan)
    clock = _Clock(report, sum(map(len, planned.cells.values())))
    with quietly(), threadpool_limits(plan.threads):
        comparisons = [
            _Race(plan, plan.load(name), store, clock).run(cells)
            for name, cells in planned.cells.items()
        ]
    return Run(
        comparisons,
        planned.left_out,
        clock.compiling,
        clock.fitting,
        perf_counter() - start - clock.compiling,
    )


class _Clock:
    """Where the time goes, and what is shown of it."""

    def __init__(self, report: Report, total: int) -> None:
        self.report, self.total = report, total
        self.done = 0
        self.compiling = self.fitting = 0.0
        self.warm: set[Any] = set()

    def say(self, step: str) -> None:
        self.report(step, self.done, self.total)


class _Race:
    """The comparison on one dataset."""

    def __init__(self, plan: Plan, problem: Problem, store: Store, clock: _Clock) -> None:
        self.plan, self.problem, self.store, self.clock = plan, problem, store, clock
        self.conditions = conditions(plan, problem)
        known = store.select(Result, self.conditions)
        self.known = {Cell(r.method, r.n_components, r.seed): r for r in known}
        self._sample: Sample | None = None
        self._process: Isolated | None = None

    def run(self, cells: list[Cell]) -> Comparison:
        """Measure all cells; those of one s take turns in shuffled order."""
        self._warm_up([cell for cell in cells if cell not in self.known])
        self.setup = self._setup()
        results = []
        with ExitStack() as self._resources:
            for cell in shuffled(cells):
                self.clock.say(f"{self.problem.name}: {cell}")
                results.append(self.known.get(cell) or self._measure(cell))
                self.clock.done += 1
        failures = tuple(result for result in results if result.failure is not None)
        rows = summarise(results, self.plan.methods)
        return Comparison(self.setup, tuple(rows), failures)

    def _warm_up(self, cells: list[Cell]) -> None:
        """A small fit of every method that has not yet seen data of this kind."""
        start = perf_counter()
        X = self.problem.train.X
        kind = (sp.issparse(X), str(X.dtype), self.problem.task)
        for method in map(find_method, dict.fromkeys(cell.method for cell in cells)):
            if method.requires is None and (method.name, kind) not in self.clock.warm:
                self.clock.warm.add((method.name, kind))
                self.clock.say(f"{self.problem.name}: warming up, compiling if needed")
                settings = self._settings(1_000, 0, 1.0 / X.shape[1], 1.0)
                warm_up(method.build, settings, method.columns, self.problem)
        self.clock.compiling += perf_counter() - start

    def _settings(self, s: int, seed: int, gamma: float, alpha: float) -> Settings:
        problem = self.problem
        return Settings(s, gamma, alpha, seed, self.plan.threads, problem.task, problem.categorical)

    def _setup(self) -> Setup:
        """gamma, alpha and the spectrum: from the store, or found now."""
        known = self.store.select(Setup, self.conditions)
        if known:
            return known[-1]
        problem, threads = self.problem, self.plan.threads
        X = problem.train.X
        self.clock.say(f"{problem.name}: choosing gamma and alpha")
        start = perf_counter()
        gamma, alpha = tuned(X, problem.train.y, problem.task, threads)
        self._sample = take_sample(X, gamma, alpha)
        spectrum = self._sample.spectrum()
        setup = Setup(
            dataset=problem.name,
            conditions=self.conditions,
            task=problem.task,
            metric=metric_of(problem.n_classes),
            n_train=len(problem.train),
            n_validation=len(problem.validation),
            n_test=len(problem.test),
            n_inputs=X.shape[1],
            gamma=gamma,
            alpha=alpha,
            float_type=str(X.dtype),
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
        """Fit, predict, and write down what it took; a failure is a result, too."""
        method, setup = find_method(cell.method), self.setup
        settings = self._settings(cell.n_components or 0, cell.seed, setup.gamma, setup.alpha)
        model = None
        if method.requires is not None:
            facts = self._apart().run(method, settings)
        else:
            try:
                model, facts = measure(
                    method.build, settings, method.columns, self.problem, memory=cell.seed == 0
                )
            except Exception as error:
                facts = {"failure": failure_text(error)}
        self.clock.fitting += facts.get("fit_seconds", 0.0) + facts.get("predict_seconds", 0.0)
        if cell.seed == 0 and method.gaussian and model is not None:
            facts["epsilon"] = self._epsilon(model)
        result = Result(
            self.problem.name, self.conditions, cell.method, cell.n_components, cell.seed, **facts
        )
        if method.installed:  # it may be, the next time
            self.store.add(result)
        return result

    def _apart(self) -> Isolated:
        """Where peers run."""
        if self._process is None:
            place = isolated(self.plan.limits, self.plan.threads)
            self._process = self._resources.enter_context(place)
            self._process.load(self.problem)
        return self._process

    def _epsilon(self, model: Any) -> float:
        if self._sample is None:
            X = self.problem.train.X
            self._sample = take_sample(X, self.setup.gamma, self.setup.alpha)
        return self._sample.epsilon(transformer_of(model))


def shuffled(cells: list[Cell]) -> list[Cell]:
    """Smallest s first; methods and seeds of one s in random order."""
    found = []
    for s in dict.fromkeys(cell.n_components or 0 for cell in cells):
        level = [cell for cell in cells if (cell.n_components or 0) == s]
        found += [level[i] for i in stream(s, "bench order").permutation(len(level))]
    return found


def conditions(plan: Plan, problem: Problem) -> str:
    """A key of all that must be equal for results to belong to one table."""
    parts = (
        PROTOCOL,
        __version__,
        problem.name,
        problem.key,
        problem.task,
        str(problem.train.X.dtype),
        plan.threads,
        np.__version__,
    )
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()
