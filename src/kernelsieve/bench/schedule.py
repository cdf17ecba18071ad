"""What a comparison consists of: which datasets, methods and sizes; fixed before the first fit.

A budget is kept by leaving out sizes and datasets that would take too long by a rough guess. The
guess depends on the sizes of the data alone, so every machine and every run shows the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from kernelsieve import datasets
from kernelsieve._parallel import thread_count
from kernelsieve._validation import check_count, check_positive
from kernelsieve.bench.isolated import Limits
from kernelsieve.bench.methods import DEFAULT_METHODS, Method, find_method
from kernelsieve.bench.problem import (
    TEST_SHARE,
    VALIDATION_SHARE,
    Problem,
    from_dataset,
    from_file,
)
from kernelsieve.tables.readers import READERS

BUILT_IN = ("diabetes", "friedman", "onehot", "breast_cancer")
PAPER_SUITE = ("wine", "insurance", "forest", "uji")  # uji in place of CT slices
FILE_ENDINGS = tuple(READERS) + tuple(f"{ending}.gz" for ending in READERS)
LADDER = (125, 250, 500, 1000, 2000, 4000)
ALWAYS = 1000  # s up to here is tried even where there are fewer rows
TUNING_SECONDS = 1.5


class PlanError(ValueError):
    """A comparison that cannot be made: an unknown name, or a number out of range."""


@dataclass(frozen=True)
class Plan:
    """What to compare.

    Attributes
    ----------
    datasets : tuple of str
        Names of :func:`kernelsieve.datasets.names`, or files.
    methods : tuple of str
        Names in ``METHODS``.
    n_components : tuple of int or None
        The values of s; None doubles s from 125 up to the number of training rows.
    n_seeds : int
        Seeds 0, 1, ... of the features; the split of the rows is one and the same.
    n_threads : int or None
        For every method; None takes all cores.
    budget_minutes : float or None
        About how long it may take in all: sizes and datasets that do not fit are left out.
    target : str or None
        The column of a file that is to be predicted.
    drop : tuple of str
        Columns of a file to leave out.
    folder : Path or None
        Where data files are looked for first.
    limits : Limits
        Of one fit of a peer, which runs in a process of its own.
    """

    datasets: tuple[str, ...] = BUILT_IN
    methods: tuple[str, ...] = DEFAULT_METHODS
    n_components: tuple[int, ...] | None = None
    n_seeds: int = 2
    n_threads: int | None = None
    budget_minutes: float | None = None
    target: str | None = None
    drop: tuple[str, ...] = ()
    folder: Path | None = None
    limits: Limits = field(default_factory=Limits)

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
        """The number of threads that every method gets."""
        return thread_count(self.n_threads)

    def load(self, name: str) -> Problem:
        """Load a dataset of the plan, split and encoded.

        Parameters
        ----------
        name : str
            Of a known dataset or of a file.

        Returns
        -------
        Problem
        """
        if is_file_name(name):
            return _own_file(name, Path(name).stat().st_mtime_ns, self.target, self.drop)
        return from_dataset(datasets.load(name, folder=self.folder))

    def shape(self, name: str) -> tuple[int, int]:
        """Number of training rows and of inputs of a dataset.

        Parameters
        ----------
        name : str

        Returns
        -------
        tuple of two int
        """
        if is_file_name(name):
            problem = self.load(name)
            return len(problem.train), problem.train.X.shape[1]
        entry = datasets.describe(name)
        return round((1 - TEST_SHARE - VALIDATION_SHARE) * entry.n_rows), entry.n_features


@lru_cache(maxsize=8)
def _own_file(name: str, modified: int, target: str | None, drop: tuple[str, ...]) -> Problem:
    """A file of the user's, read once for as long as it is not changed."""
    return from_file(name, target, drop)


def is_file_name(name: str) -> bool:
    """Whether this is a file of the user's, and not a name of ours.

    Examples
    --------
    >>> is_file_name("prices.csv"), is_file_name("wine")
    (True, False)
    """
    return name.lower().endswith(FILE_ENDINGS)


@dataclass(frozen=True)
class Cell:
    """One fit to do."""

    method: str
    n_components: int | None
    seed: int

    def __str__(self) -> str:
        size = "" if self.n_components is None else f", s={self.n_components}"
        return f"{self.method}{size}, seed {self.seed}"


@dataclass(frozen=True)
class Schedule:
    """The fits of every dataset, and what was left out.

    Attributes
    ----------
    cells : dict of str to list of Cell
    left_out : list of str
        A sentence for each thing that is not measured.
    seconds : float
        About how long it will take.
    """

    cells: dict[str, list[Cell]]
    left_out: list[str]
    seconds: float


def schedule(plan: Plan) -> Schedule:
    """Choose the fits of a plan.

    Examples
    --------
    >>> found = schedule(Plan(("wine", "year"), ("fourier",), budget_minutes=1.0))
    >>> found.left_out
    ['Left out to stay within 1 min: s = 1000, 2000, 4000 on year.']
    """
    ladders = {name: _ladder(plan, name) for name in plan.datasets}
    left_out = _too_large(plan)
    dropped: dict[str, list[int]] = {}
    budget = float("inf") if plan.budget_minutes is None else 60.0 * plan.budget_minutes
    while sum(_seconds(plan, name, ladders[name]) for name in ladders) > budget:
        longer = [name for name in ladders if len(ladders[name]) > 1]
        if not longer and len(ladders) == 1:
            break
        # The largest s of the dataset where it takes longest, then whole datasets.
        slowest = max(
            longer or ladders,
            key=lambda name: _seconds(plan, name, ladders[name][-1:] if longer else ladders[name]),
        )
        if longer:
            dropped.setdefault(slowest, []).insert(0, ladders[slowest][-1])
            ladders[slowest] = ladders[slowest][:-1]
        else:
            del ladders[slowest]
            dropped[slowest] = []
    if dropped:
        parts = [
            f"s = {', '.join(map(str, sizes))} on {name}" if sizes else name
            for name, sizes in dropped.items()
        ]
        left_out.append(f"Left out to stay within {plan.budget_minutes:g} min: {'; '.join(parts)}.")
    cells = {name: _cells(plan, name, ladder) for name, ladder in ladders.items()}
    return Schedule(cells, left_out, sum(_seconds(plan, name, ladders[name]) for name in ladders))


def _ladder(plan: Plan, name: str) -> tuple[int, ...]:
    """The values of s, smallest first."""
    if plan.n_components is not None:
        return tuple(sorted(set(plan.n_components)))
    return tuple(s for s in LADDER if s <= max(ALWAYS, plan.shape(name)[0]))


def _fits(plan: Plan, name: str) -> list[Method]:
    """The methods that take so many rows."""
    n_train = plan.shape(name)[0]
    methods = [find_method(method) for method in plan.methods]
    return [m for m in methods if m.max_rows is None or n_train <= m.max_rows]


def _too_large(plan: Plan) -> list[str]:
    lines = []
    for name in plan.datasets:
        n_train = plan.shape(name)[0]
        for method in map(find_method, plan.methods):
            if method not in _fits(plan, name):
                lines.append(
                    f"{method.label} is left out on {name}: {n_train:,} training rows, and its "
                    f"limit is {method.max_rows:,}."
                )
    return lines


def _cells(plan: Plan, name: str, ladder: tuple[int, ...]) -> list[Cell]:
    """Every fit on a dataset, smallest s first."""
    return [
        Cell(method.name, s if method.has_features else None, seed)
        for level, s in enumerate(ladder)
        for method in _fits(plan, name)
        if level == 0 or method.has_features
        for seed in range(plan.n_seeds if method.seeded else 1)
    ]


def _seconds(plan: Plan, name: str, ladder: tuple[int, ...]) -> float:
    n_train, n_inputs = plan.shape(name)
    return TUNING_SECONDS + sum(
        find_method(cell.method).seconds(n_train, n_inputs, cell.n_components or 0)
        for cell in _cells(plan, name, ladder)
    )
