"""What a comparison leaves behind: one line of JSON for each fact, and means over seeds."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

NEGLIGIBLE = 0.01  # a gain in error below this part of it is no reason for more features


class RecordError(ValueError):
    """A file of results that cannot be read."""


@dataclass(frozen=True)
class Setup:
    """A dataset as it was measured on.

    Attributes
    ----------
    dataset : str
    conditions : str
        A key of what must not change when a run is resumed: data, versions, threads.
    n_train, n_test, n_inputs : int
    gamma, alpha : float
        Chosen by cross-validation; the same for every method.
    float_type : str
    n_threads : int
    statistical_dimension : float
        s_alpha, estimated on a sample of rows.
    spectrum_places, spectrum_values : list
        Some eigenvalues of the kernel matrix, the largest is at place 1.
    seconds : float
        What all this took.
    environment : dict
        Versions and machine.
    """

    kind: ClassVar[str] = "setup"
    dataset: str
    conditions: str
    n_train: int
    n_test: int
    n_inputs: int
    gamma: float
    alpha: float
    float_type: str
    n_threads: int
    statistical_dimension: float
    spectrum_places: list[int]
    spectrum_values: list[float]
    seconds: float
    environment: dict[str, Any]


@dataclass(frozen=True)
class Result:
    """One fit of one method.

    Attributes
    ----------
    dataset, conditions, method : str
    n_components : int or None
        s; None for methods without features.
    seed : int
    error : float
        RMSE on the test rows.
    fit_seconds, predict_seconds : float
        Wall time of all training (features and regression), and of predicting the test rows.
    seconds : float
        Wall time of everything: also the warm-up before a method's first fit, and epsilon.
    peak_bytes : int or None
        How much memory training took above what was held before; None if the system does not tell.
    epsilon : float or None
        Spectral epsilon on a sample of training rows; None where it means nothing.
    n_threads : int
    gamma, alpha : float
    environment : dict
        Versions and machine.
    """

    kind: ClassVar[str] = "run"
    dataset: str
    conditions: str
    method: str
    n_components: int | None
    seed: int
    error: float
    fit_seconds: float
    predict_seconds: float
    seconds: float
    peak_bytes: int | None
    epsilon: float | None
    n_threads: int
    gamma: float
    alpha: float
    environment: dict[str, Any]


Record = Setup | Result
Kind = TypeVar("Kind", Setup, Result)
_KINDS: dict[str, type[Record]] = {kind.kind: kind for kind in (Setup, Result)}


def to_json(record: Record) -> str:
    """One line."""
    return json.dumps({"kind": record.kind, **asdict(record)})


def from_json(line: str) -> Record:
    """The record that :func:`to_json` wrote."""
    values = json.loads(line)
    return _KINDS[values.pop("kind")](**values)


class Store:
    """The records in a file, which grows line by line: a killed run goes on where it stopped.

    Parameters
    ----------
    path : Path
        Made if it is not there. A last line that was cut off is dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: list[Record] = []
        if path.exists():
            self._read()

    def _read(self) -> None:
        lines = self.path.read_text(encoding="utf-8").split("\n")
        complete, cut_off = lines[:-1], lines[-1]
        for number, line in enumerate(complete, start=1):
            try:
                self.records.append(from_json(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise RecordError(
                    f"{self.path}, line {number} is no record of this version ({error!r}): choose "
                    "another --out, or measure anew with --fresh"
                ) from error
        if cut_off:
            os.truncate(self.path, self.path.stat().st_size - len(cut_off.encode()))

    def add(self, record: Record) -> None:
        """Remember, and write at once."""
        self.records.append(record)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(to_json(record) + "\n")

    def select(self, kind: type[Kind], conditions: str) -> list[Kind]:
        """Records of a kind, made under these conditions."""
        return [r for r in self.records if isinstance(r, kind) and r.conditions == conditions]


@dataclass(frozen=True)
class Summary:
    """One method at one s over the seeds.

    ``error`` and ``epsilon`` are means, ``spread`` is the standard deviation of the error, and
    ``fit_seconds`` the median: one interruption by the machine should not move it.
    """

    dataset: str
    method: str
    n_components: int | None
    error: float
    spread: float
    fit_seconds: float
    peak_bytes: int | None
    epsilon: float | None
    n_seeds: int

    @property
    def standard_error(self) -> float:
        """Of the mean error."""
        return self.spread / math.sqrt(self.n_seeds)


def summarise(results: Iterable[Result], methods: Sequence[str] = ()) -> list[Summary]:
    """Means over seeds; methods come in the order of ``methods``, then of their first result."""
    order = {name: rank for rank, name in enumerate(methods)}
    groups: dict[tuple[int, int], list[Result]] = {}
    for result in results:
        method = order.setdefault(result.method, len(order))
        groups.setdefault((method, result.n_components or 0), []).append(result)
    return [_summary(groups[key]) for key in sorted(groups)]


def _summary(runs: list[Result]) -> Summary:
    errors = [run.error for run in runs]
    peaks = [run.peak_bytes for run in runs if run.peak_bytes is not None]
    epsilons = [run.epsilon for run in runs if run.epsilon is not None]
    return Summary(
        dataset=runs[0].dataset,
        method=runs[0].method,
        n_components=runs[0].n_components,
        error=statistics.fmean(errors),
        spread=statistics.stdev(errors) if len(errors) > 1 else 0.0,
        fit_seconds=statistics.median(run.fit_seconds for run in runs),
        peak_bytes=max(peaks, default=None),
        epsilon=statistics.fmean(epsilons) if len(epsilons) == len(runs) else None,
        n_seeds=len(runs),
    )


@dataclass(frozen=True)
class Stop:
    """Why a method got no more features than ``n_components``: "no gain", "limit" or "budget"."""

    method: str
    n_components: int
    reason: str


@dataclass(frozen=True)
class Comparison:
    """All that was measured on one dataset."""

    setup: Setup
    rows: tuple[Summary, ...]
    stops: tuple[Stop, ...]

    @property
    def methods(self) -> list[str]:
        """In the order of the table."""
        return list(dict.fromkeys(row.method for row in self.rows))

    def of(self, method: str) -> list[Summary]:
        """A method's rows by growing s."""
        return [row for row in self.rows if row.method == method]

    def chosen(self, method: str) -> Summary | None:
        """The smallest s beyond which more features do not lower the error noticeably."""
        rows = self.of(method)
        if not rows:
            return None
        best = min(row.error for row in rows)
        return next(row for row in rows if row.error <= best * (1.0 + NEGLIGIBLE))

    def cut_short(self, method: str) -> bool:
        """Whether the error was still falling when the limit or the budget was reached."""
        rows = self.of(method)
        reason = next((stop.reason for stop in self.stops if stop.method == method), "")
        # At the only s that was asked for nothing is known of more.
        stopped = reason == "budget" or (reason == "limit" and len(rows) > 1)
        return stopped and self.chosen(method) is rows[-1]

    def reaching(self, method: str, error: float) -> Summary | None:
        """The smallest s at which a method's mean error is no higher than ``error``."""
        return next((row for row in self.of(method) if row.error <= error), None)

    @property
    def fourier_best(self) -> Summary | None:
        """Fourier's row of lowest error: what others are measured by."""
        return min(self.of("fourier"), key=lambda row: row.error, default=None)

    @property
    def best(self) -> Summary | None:
        """The lowest error among the chosen rows."""
        chosen = [row for row in map(self.chosen, self.methods) if row is not None]
        return min(chosen, key=lambda row: row.error, default=None)

    @property
    def n_seeds(self) -> int:
        """Of the row with most."""
        return max(row.n_seeds for row in self.rows)
