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
    task : "regression" or "classification"
    metric : str
        What methods are compared by: "rmse", "auc_loss" or "log_loss".
    n_train, n_validation, n_test, n_inputs : int
    gamma, alpha : float
        Chosen by cross-validation on the training rows; the same for every kernel method.
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
    task: str
    metric: str
    n_train: int
    n_validation: int
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
    failure : str or None
        Why there is no result; then all numbers below are None.
    error, validation : float or None
        On the test rows, and on the validation rows, which choose s.
    scores : dict
        RMSE and R2, or accuracy, log loss and 1 - AUC, on the test rows.
    fit_seconds, predict_seconds : float or None
        Wall time of all training (features and regression), and of predicting the test rows.
    processor_seconds : float or None
        Processor time of training, of all threads together.
    peak_bytes : int or None
        How much memory training took above what was held before, at the first seed.
    epsilon : float or None
        Spectral epsilon on a sample of training rows, at the first seed.
    """

    kind: ClassVar[str] = "run"
    dataset: str
    conditions: str
    method: str
    n_components: int | None
    seed: int
    failure: str | None = None
    error: float | None = None
    validation: float | None = None
    scores: dict[str, float] | None = None
    fit_seconds: float | None = None
    processor_seconds: float | None = None
    predict_seconds: float | None = None
    peak_bytes: int | None = None
    epsilon: float | None = None


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
    """The records in a file, which grows line by line: an interrupted run resumes.

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
                    f"{self.path}, line {number} is not a record of this version ({error!r}): "
                    "choose another --out, or measure again with --fresh"
                ) from error
        if cut_off:
            os.truncate(self.path, self.path.stat().st_size - len(cut_off.encode()))

    def add(self, record: Record) -> None:
        """Remember a record, and append it to the file at once.

        Parameters
        ----------
        record : Record
        """
        self.records.append(record)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(to_json(record) + "\n")

    def select(self, kind: type[Kind], conditions: str) -> list[Kind]:
        """Records of one kind that were made under the given conditions.

        Parameters
        ----------
        kind : type
        conditions : str

        Returns
        -------
        list of ``kind``
        """
        return [r for r in self.records if isinstance(r, kind) and r.conditions == conditions]


@dataclass(frozen=True)
class Summary:
    """One method at one s over the seeds.

    ``error``, ``validation`` and ``scores`` are means, ``spread`` is the standard deviation of the
    error, and ``fit_seconds`` the median: one interruption by the machine should not move it.
    """

    dataset: str
    method: str
    n_components: int | None
    error: float
    validation: float
    spread: float
    scores: dict[str, float]
    fit_seconds: float
    predict_seconds: float
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
        if result.failure is None:
            method = order.setdefault(result.method, len(order))
            groups.setdefault((method, result.n_components or 0), []).append(result)
    return [_summary(groups[key]) for key in sorted(groups)]


def _summary(runs: list[Result]) -> Summary:
    def mean(values: Iterable[float | None]) -> float:
        return statistics.fmean(value for value in values if value is not None)

    errors = [run.error for run in runs if run.error is not None]
    peaks = [run.peak_bytes for run in runs if run.peak_bytes is not None]
    epsilons = [run.epsilon for run in runs if run.epsilon is not None]
    return Summary(
        dataset=runs[0].dataset,
        method=runs[0].method,
        n_components=runs[0].n_components,
        error=mean(errors),
        validation=mean(run.validation for run in runs),
        spread=statistics.stdev(errors) if len(errors) > 1 else 0.0,
        scores={
            name: mean((r.scores or {}).get(name) for r in runs) for name in runs[0].scores or ()
        },
        fit_seconds=statistics.median(run.fit_seconds or 0.0 for run in runs),
        predict_seconds=statistics.median(run.predict_seconds or 0.0 for run in runs),
        peak_bytes=max(peaks, default=None),
        epsilon=epsilons[0] if epsilons else None,
        n_seeds=len(runs),
    )


@dataclass(frozen=True)
class Comparison:
    """All that was measured on one dataset."""

    setup: Setup
    rows: tuple[Summary, ...]
    failures: tuple[Result, ...] = ()

    @property
    def methods(self) -> list[str]:
        """Those with results, in the order of the table."""
        return list(dict.fromkeys(row.method for row in self.rows))

    def of(self, method: str) -> list[Summary]:
        """The rows of a method, by increasing s.

        Parameters
        ----------
        method : str

        Returns
        -------
        list of Summary
        """
        return [row for row in self.rows if row.method == method]

    def chosen(self, method: str) -> Summary | None:
        """The smallest s whose error on the validation rows is within 1 % of the lowest.

        The test rows have no part in it.

        Parameters
        ----------
        method : str

        Returns
        -------
        Summary or None
            None for a method without rows.
        """
        rows = self.of(method)
        if not rows:
            return None
        best = min(row.validation for row in rows)
        return next(row for row in rows if row.validation <= best * (1.0 + NEGLIGIBLE))

    def still_falling(self, method: str) -> bool:
        """Whether the validation error was still falling at the largest s.

        Parameters
        ----------
        method : str

        Returns
        -------
        bool
        """
        rows = self.of(method)
        return len(rows) > 1 and self.chosen(method) is rows[-1]

    def reaching(self, method: str, error: float) -> Summary | None:
        """The smallest s at which the mean error of a method is at most ``error``.

        Parameters
        ----------
        method : str
        error : float

        Returns
        -------
        Summary or None
            None if no s reaches it.
        """
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
        return max((row.n_seeds for row in self.rows), default=0)
