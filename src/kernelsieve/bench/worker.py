"""A fit in a process of its own: ``work(folder)``.

Started by :mod:`kernelsieve.bench.isolated`. The job is a pickle that the parent wrote a moment ago
to a folder of its own; the outcome is JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from threadpoolctl import threadpool_limits

from kernelsieve.bench.machine import watch_memory
from kernelsieve.bench.methods import Build, Settings
from kernelsieve.bench.metrics import errors, metric_of, predictions
from kernelsieve.bench.problem import Problem, Rows

WARM_UP_ROWS = 256
WARM_UP_COMPONENTS = 64


@dataclass(frozen=True)
class Job:
    """What to fit.

    Attributes
    ----------
    build : callable
        Settings -> estimator; pickled by its name.
    settings : Settings
    columns : bool
        Whether the method takes columns as they come.
    """

    build: Build
    settings: Settings
    columns: bool


def measure(
    build: Build, settings: Settings, columns: bool, problem: Problem, memory: bool = True
) -> tuple[Any, dict[str, Any]]:
    """Fit and predict.

    Returns
    -------
    model : the fitted estimator
    facts : dict
        ``error`` on the test rows and ``validation`` error, ``scores``, times, ``peak_bytes``.
    """

    def given(rows: Rows) -> Any:
        return rows.columns if columns else rows.X

    metric = metric_of(problem.n_classes)
    model = build(settings)
    with watch_memory(memory) as watched:
        start, started = perf_counter(), _processor_seconds()
        model.fit(given(problem.train), problem.train.y)
        fitted, spent = perf_counter(), _processor_seconds()
    predicted = predictions(model, given(problem.test), problem.n_classes)
    predict_seconds = perf_counter() - fitted
    scores = errors(predicted, problem.test.y, problem.n_classes)
    validation = None
    if len(problem.validation):
        predicted = predictions(model, given(problem.validation), problem.n_classes)
        validation = errors(predicted, problem.validation.y, problem.n_classes)[metric]
    return model, {
        "error": scores[metric],
        "validation": validation,
        "scores": scores,
        "fit_seconds": fitted - start,
        "processor_seconds": spent - started,
        "predict_seconds": predict_seconds,
        "peak_bytes": watched.peak_bytes,
    }


def warm_up(build: Build, settings: Settings, columns: bool, problem: Problem) -> None:
    """A small fit first: compilation and imports are not training time."""
    few = problem.train.take(slice(WARM_UP_ROWS))
    X = few.columns if columns else few.X
    small = replace(settings, n_components=min(settings.n_components, WARM_UP_COMPONENTS))
    with contextlib.suppress(Exception):  # if it matters, the fit itself will say so
        predictions(build(small).fit(X, few.y), X[:8], problem.n_classes)


@contextlib.contextmanager
def quietly() -> Any:
    """Without remarks about iterations, sizes and feature names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def failure_text(error: BaseException) -> str:
    """One line on what went wrong."""
    first = " ".join(str(error).split())
    text = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return text if len(text) <= 200 else f"{text[:197]}..."


def _processor_seconds() -> float:
    """Time of all threads, and of the children that have ended where the system tells it."""
    children = os.times()
    return process_time() + children.children_user + children.children_system


def work(name: str) -> None:
    """Do the job in a folder and write its outcome."""
    folder = Path(name)
    _write(folder / "started", process_time())  # imports do not count
    job: Job = pickle.loads((folder / "job").read_bytes())
    try:
        problem: Problem = pickle.loads((folder / "problem").read_bytes())
        with quietly(), threadpool_limits(job.settings.n_threads):
            warm_up(job.build, job.settings, job.columns, problem)
            _, outcome = measure(job.build, job.settings, job.columns, problem)
    except Exception as error:
        outcome = {"failure": failure_text(error)}
    _write(folder / "outcome", outcome)


def _write(path: Path, content: Any) -> None:
    """Write JSON; the file appears when it is complete."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content), encoding="utf-8")
    os.replace(part, path)
