"""A scoreboard over many tables: every method with its defaults, one process for each fit.

Kernel methods choose gamma and alpha as a part of their fit. All methods are fitted to the same
rows and judged on the same test rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, studentized_range

from kernelsieve import __version__, datasets
from kernelsieve._parallel import thread_count
from kernelsieve._random import stream
from kernelsieve.bench.isolated import Limits, isolated
from kernelsieve.bench.machine import environment
from kernelsieve.bench.methods import (
    DEFAULT_COMPONENTS,
    METHODS,
    Method,
    SelfTuned,
    Settings,
    find_method,
)
from kernelsieve.bench.metrics import metric_of
from kernelsieve.bench.problem import TEST_SHARE, Problem, from_table, table_name
from kernelsieve.bench.records import Result, Setup, Store
from kernelsieve.bench.schedule import PlanError, is_file_name
from kernelsieve.learning import Judge
from kernelsieve.tables.readers import read_table
from kernelsieve.tables.table import Table, as_table

PROTOCOL = 1
CONFIDENCE = 0.95
SMALLEST = 1e-12  # errors below this are equal

Report = Callable[[str, int, int], None]


@dataclass(frozen=True)
class TableSpec:
    """A table of the scoreboard.

    Attributes
    ----------
    name : str
    source : str
        A file, or the name of a dataset.
    target : str or None
        The column to predict; None for arrays X and y.
    drop : tuple of str
        Columns to leave out.
    """

    name: str
    source: str
    target: str | None = None
    drop: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScoreboardPlan:
    """What to put on the scoreboard.

    Attributes
    ----------
    tables : tuple of TableSpec
    methods : tuple of str
    n_splits : int
        Splits into training and test rows: those of a file's ``test_mask``, else random ones.
    max_rows : int
        Tables with more rows are cut to so many, drawn at random.
    n_threads : int or None
        For every fit; None takes all cores.
    limits : Limits
        Of one fit.
    folder : Path or None
        Where data files are looked for first.
    """

    tables: tuple[TableSpec, ...]
    methods: tuple[str, ...]
    n_splits: int = 1
    max_rows: int = 50_000
    n_threads: int | None = None
    limits: Limits = field(default_factory=Limits)
    folder: Path | None = None

    def __post_init__(self) -> None:
        if not self.tables or not self.methods:
            raise PlanError("nothing to compare: name a folder with tables, and methods")
        for name in self.methods:
            try:
                find_method(name)
            except ValueError as error:
                raise PlanError(str(error)) from error


def find_tables(
    places: Sequence[str], targets: Mapping[str, str], drop: Sequence[str] = ()
) -> tuple[list[TableSpec], list[str]]:
    """The tables in folders, files and datasets.

    Parameters
    ----------
    places : sequence of str
        Folders, files, and names of datasets.
    targets : mapping of str to str
        The column to predict, by the name of the table; "*" stands for all others.
    drop : sequence of str
        Columns to leave out wherever they occur.

    Returns
    -------
    specs : list of TableSpec
    notes : list of str
        Sentences on files that were left out.
    """
    specs, notes = [], []
    for place in places:
        path = Path(place)
        if not path.is_dir() and not is_file_name(place):
            datasets.describe(place)
            specs.append(TableSpec(place, place))
            continue
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in files:
            if not is_file_name(file.name):
                continue
            name = table_name(file)
            target = targets.get(name, targets.get("*"))
            if target is None and not _has_arrays(file):
                notes.append(
                    f"{file.name} is left out: say what to predict, --target {name}=COLUMN."
                )
                continue
            specs.append(TableSpec(name, str(file), target, tuple(drop)))
    return specs, notes


def _has_arrays(path: Path) -> bool:
    """Whether a file holds X and y."""
    if path.suffix != ".npz":
        return False
    with np.load(path) as arrays:
        return {"X", "y"} <= set(arrays.files)


def load_table(spec: TableSpec, plan: ScoreboardPlan, split: int) -> Problem:
    """Read, cut to the allowed number of rows, split, and encode on the training rows."""
    table, target, mask = _read(spec, plan.folder)
    rows = np.arange(table.n_rows)
    if table.n_rows > plan.max_rows:
        rows = np.sort(stream(0, "scoreboard rows").permutation(table.n_rows)[: plan.max_rows])
        table = table.take(rows)
    if mask is not None:
        if split >= mask.shape[1]:
            raise PlanError(f"{spec.name} has {mask.shape[1]} splits: split {split} is not there")
        test = np.flatnonzero(mask[rows, split])
        train = np.flatnonzero(~mask[rows, split])
    else:
        train, test = Judge(table.n_rows, split).set_apart(round(TEST_SHARE * table.n_rows))
    drop = [name for name in spec.drop if name in table.columns and name != target]
    none = np.arange(0)
    return from_table(spec.name, table, target, drop, parts=[train, none, test])


def _read(spec: TableSpec, folder: Path | None) -> tuple[Table, str, NDArray[np.bool_] | None]:
    """The table, the column to predict and the given splits, where there are any."""
    if not is_file_name(spec.source):
        data = datasets.load(spec.source, folder=folder)
        return _from_arrays(data.X, data.y, data.feature_names), "y", None
    path = Path(spec.source)
    if spec.target is None:
        with np.load(path) as arrays:
            X, y = arrays["X"], arrays["y"]
            mask = arrays["test_mask"].astype(bool) if "test_mask" in arrays.files else None
        return _from_arrays(X, y, [f"x{i + 1}" for i in range(X.shape[1])]), "y", mask
    table = read_table(path)
    known = [value is not None and value == value for value in table.column(spec.target).tolist()]
    return table.take(np.flatnonzero(known)), spec.target, None


def _from_arrays(X: Any, y: Any, names: Sequence[str]) -> Table:
    if hasattr(X, "toarray"):
        raise PlanError("the scoreboard is for tables: sparse matrices are not")
    columns = {f"c_{name}": np.asarray(X[:, i], dtype=np.float64) for i, name in enumerate(names)}
    return as_table({**columns, "y": np.asarray(y, dtype=np.float64)})


@dataclass(frozen=True)
class Line:
    """What a scoreboard says of one method.

    Attributes
    ----------
    method : str
    rank : float
        The mean rank over the tables, 1 is best; methods that failed share the last places.
    normalised : float
        The mean of (error - lowest) / (median - lowest), cut at 1; 0 is best.
    wins : float
        The share of tables on which it has the lowest error.
    behind_trees : float or None
        exp(mean(log(error / error of the best tree model))) - 1 where it has a result.
    seconds : float
        Processor time of all fits.
    failures : int
    """

    method: str
    rank: float
    normalised: float
    wins: float
    behind_trees: float | None
    seconds: float
    failures: int


@dataclass(frozen=True)
class Scoreboard:
    """Errors of methods on tables, and what follows from them.

    Attributes
    ----------
    setups : list of Setup
        One for each table.
    methods : list of str
    results : list of Result
        ``seed`` is the number of the split.
    """

    setups: list[Setup]
    methods: list[str]
    results: list[Result]

    @property
    def tables(self) -> list[str]:
        """Names of the tables."""
        return [setup.dataset for setup in self.setups]

    def of(self, table: str, method: str) -> list[Result]:
        """The results of a method on a table."""
        return [r for r in self.results if (r.dataset, r.method) == (table, method)]

    def error(self, table: str, method: str) -> float | None:
        """The mean error over the splits; None if one of them failed."""
        errors = [r.error for r in self.of(table, method)]
        known = [error for error in errors if error is not None]
        return float(np.mean(known)) if known and len(known) == len(errors) else None

    def seconds(self, table: str, method: str) -> float:
        """The mean processor time of a fit."""
        times = [r.processor_seconds for r in self.of(table, method) if r.processor_seconds]
        return float(np.mean(times)) if times else 0.0

    def failure(self, table: str, method: str) -> str | None:
        """Why there is no result."""
        return next((r.failure for r in self.of(table, method) if r.failure), None)

    def matrix(self) -> NDArray[np.float64]:
        """Errors of shape (n_tables, n_methods); infinity where a method failed."""
        return np.array(
            [
                [
                    np.inf if (e := self.error(t, m)) is None else max(e, SMALLEST)
                    for m in self.methods
                ]
                for t in self.tables
            ]
        )

    def ranks(self) -> NDArray[np.float64]:
        """Ranks of shape (n_tables, n_methods); equal errors share a rank."""
        return np.array([rankdata(row) for row in self.matrix()])

    def lines(self) -> list[Line]:
        """The methods by their mean rank, best first."""
        errors, ranks = self.matrix(), self.ranks()
        lowest = errors.min(axis=1, keepdims=True)
        middle = np.array([np.median(row[np.isfinite(row)]) for row in errors])[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(errors <= lowest, 0.0, (errors - lowest) / (middle - lowest))
        normalised = np.clip(np.nan_to_num(share, nan=1.0, posinf=1.0), 0.0, 1.0).mean(axis=0)
        trees = [i for i, m in enumerate(self.methods) if m in METHODS and METHODS[m].tree]
        best_tree = errors[:, trees].min(axis=1) if trees else np.full(len(errors), np.nan)
        found = [
            Line(
                method,
                float(ranks[:, i].mean()),
                float(normalised[i]),
                float(np.mean(errors[:, i] <= lowest[:, 0])),
                _behind(errors[:, i], best_tree),
                sum(self.seconds(table, method) for table in self.tables),
                int(np.isinf(errors[:, i]).sum()),
            )
            for i, method in enumerate(self.methods)
        ]
        return sorted(found, key=lambda line: line.rank)

    @property
    def critical_difference(self) -> float:
        """Mean ranks closer than this cannot be told apart (Nemenyi's test at 95 %)."""
        k, n = len(self.methods), len(self.tables)
        if k < 2:
            return 0.0
        quantile = float(studentized_range.ppf(CONFIDENCE, k, np.inf)) / np.sqrt(2.0)
        return quantile * float(np.sqrt(k * (k + 1) / (6.0 * n)))


def _behind(errors: NDArray[np.float64], best: NDArray[np.float64]) -> float | None:
    known = np.isfinite(errors) & np.isfinite(best)
    if not known.any():
        return None
    return float(np.exp(np.mean(np.log(errors[known] / best[known]))) - 1.0)


def run_scoreboard(
    plan: ScoreboardPlan, store: Store, report: Report = lambda step, done, total: None
) -> Scoreboard:
    """Fit every method to every table, except for what is in the store already.

    Parameters
    ----------
    plan : ScoreboardPlan
    store : Store
        Results are written to it one by one: an interrupted run resumes.
    report : callable, optional
        Called before every fit with a line of text, the number of fits done and that of all.

    Returns
    -------
    Scoreboard
    """
    total = len(plan.tables) * plan.n_splits * len(plan.methods)
    done = 0
    setups: list[Setup] = []
    results: list[Result] = []
    with isolated(plan.limits, thread_count(plan.n_threads)) as place:
        for spec, split in product(plan.tables, range(plan.n_splits)):
            report(f"{spec.name}: reading", done, total)
            problem = load_table(spec, plan, split)
            place.load(problem)
            key = _key(problem, plan)
            if split == 0:
                setups.append(_setup(problem, key, plan, store))
            known = {r.method: r for r in store.select(Result, key) if r.seed == split}
            for name in plan.methods:
                report(f"{spec.name}: {name}", done, total)
                if name not in known:
                    method = find_method(name)
                    settings = _settings(method, problem, split, plan)
                    facts = _excuse(method, problem) or place.run(_complete(method), settings)
                    known[name] = Result(
                        spec.name, key, name, settings.n_components or None, split, **facts
                    )
                    if method.installed:  # it may be, the next time
                        store.add(known[name])
                results.append(known[name])
                done += 1
    return Scoreboard(setups, list(plan.methods), results)


def _complete(method: Method) -> Method:
    """A method that needs nothing chosen for it."""
    return replace(method, build=SelfTuned(method.build)) if method.needs_gamma else method


def _excuse(method: Method, problem: Problem) -> dict[str, Any] | None:
    if method.max_rows is not None and len(problem.train) > method.max_rows:
        return {
            "failure": f"{len(problem.train):,} training rows, its limit is {method.max_rows:,}"
        }
    return None


def _settings(method: Method, problem: Problem, split: int, plan: ScoreboardPlan) -> Settings:
    s = DEFAULT_COMPONENTS if method.has_features else 0
    threads = thread_count(plan.n_threads)
    return Settings(s, 1.0, 1.0, split, threads, problem.task, problem.categorical)


def _key(problem: Problem, plan: ScoreboardPlan) -> str:
    threads = thread_count(plan.n_threads)
    parts = (PROTOCOL, __version__, problem.name, problem.key, problem.task, threads)
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def _setup(problem: Problem, key: str, plan: ScoreboardPlan, store: Store) -> Setup:
    known = store.select(Setup, key)
    if known:
        return known[-1]
    setup = Setup(
        dataset=problem.name,
        conditions=key,
        task=problem.task,
        metric=metric_of(problem.n_classes),
        n_train=len(problem.train),
        n_validation=0,
        n_test=len(problem.test),
        n_inputs=problem.train.columns.shape[1],
        gamma=0.0,
        alpha=0.0,
        float_type=str(problem.train.X.dtype),
        n_threads=thread_count(plan.n_threads),
        statistical_dimension=0.0,
        spectrum_places=[],
        spectrum_values=[],
        seconds=0.0,
        environment=environment(),
    )
    store.add(setup)
    return setup
