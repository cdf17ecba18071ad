"""What a comparison leaves behind: plain records, and their means over seeds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Result:
    """One fit of one method.

    Attributes
    ----------
    dataset, method : str
    n_components : int or None
        s; None for methods without features.
    seed : int
    error : float
        On the test rows, by ``metric``.
    metric : str
    fit_seconds, predict_seconds : float
        Wall time of all training (features and regression), and of predicting the test rows.
    n_train, n_test, n_inputs : int
    gamma, alpha : float
    n_threads : int
    """

    dataset: str
    method: str
    n_components: int | None
    seed: int
    error: float
    metric: str
    fit_seconds: float
    predict_seconds: float
    n_train: int
    n_test: int
    n_inputs: int
    gamma: float
    alpha: float
    n_threads: int

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Result:
        """The record that ``to_json`` wrote."""
        return cls(**json.loads(line))


@dataclass(frozen=True)
class Summary:
    """The mean of one method at one s over the seeds; ``spread`` is the standard deviation."""

    dataset: str
    method: str
    n_components: int | None
    error: float
    spread: float
    fit_seconds: float
    n_seeds: int
    runs: tuple[Result, ...]


def summarise(results: Iterable[Result], methods: Sequence[str] = ()) -> list[Summary]:
    """Means over seeds, by dataset, method and s.

    Methods come in the order of ``methods``, then of their first result. The time is the median:
    one interruption by the machine should not move it.
    """
    order = {name: rank for rank, name in enumerate(methods)}
    datasets: dict[str, int] = {}
    groups: dict[tuple[int, int, int], list[Result]] = {}
    for result in results:
        dataset = datasets.setdefault(result.dataset, len(datasets))
        method = order.setdefault(result.method, len(order))
        groups.setdefault((dataset, method, result.n_components or 0), []).append(result)
    return [_summary(groups[key]) for key in sorted(groups)]


def _summary(runs: list[Result]) -> Summary:
    errors = [run.error for run in runs]
    return Summary(
        dataset=runs[0].dataset,
        method=runs[0].method,
        n_components=runs[0].n_components,
        error=statistics.fmean(errors),
        spread=statistics.stdev(errors) if len(errors) > 1 else 0.0,
        fit_seconds=statistics.median(run.fit_seconds for run in runs),
        n_seeds=len(runs),
        runs=tuple(runs),
    )
