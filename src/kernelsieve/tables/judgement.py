"""How good a table's model is, on rows that had no part in any choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.learning.judge import Judge, Split
from kernelsieve.learning.target_transform import TargetTransform
from kernelsieve.models.intervals import Intervals
from kernelsieve.tables.encoder import TableEncoder
from kernelsieve.tables.facts import confusion, scores
from kernelsieve.tables.predictions import Answers, constant_answers, joined
from kernelsieve.tables.table import Table
from kernelsieve.tables.verdict import compared

FOLDS = 4  # that judge the other models where all rows are held out in turn


@dataclass(frozen=True)
class Held:
    """Rows that a model has not seen, and its answers there.

    Attributes
    ----------
    rows : ndarray of int of shape (n_held,)
    answers : Answers
        Each row from all others.
    apart : Answers
        All of them from the other rows, which is how other models are judged.
    seconds : float
        What the model took.
    """

    rows: NDArray[np.int64]
    answers: Answers
    apart: Answers
    seconds: float

    def splits(self, judge: Judge) -> list[Split]:
        """Rows to learn from and rows that judge, for other models."""
        n = judge.n_rows
        if len(self.rows) < n:
            return [Split(np.setdiff1d(np.arange(n), self.rows), self.rows)]
        folds = judge.folds(min(FOLDS, n))
        return [Split(np.sort(fold.choose), np.sort(fold.judge)) for fold in folds]


def judged(
    table: Table,
    X: Any,
    y: NDArray[Any],
    encoder: TableEncoder,
    held: Held,
    task: str,
    judge: Judge,
    baselines: bool,
    n_jobs: int | None,
) -> dict[str, Any]:
    """What the held-out rows tell: scores beside a constant's, and other models.

    Parameters
    ----------
    table : Table
    X : matrix of shape (n, d)
        The table as ``encoder`` has encoded it.
    y : ndarray of shape (n,)
    held : Held
    judge : Judge
        Splits the rows for other models as it did for this one.
    baselines : bool
        Whether other models are fitted without the held-out rows.
    """
    truth, answers = y[held.rows], held.answers
    labels = y if task == "classification" else None
    splits = held.splits(judge)
    order = np.argsort(np.concatenate([split.judge for split in splits]))
    parts = [constant_answers(y[split.choose], task, len(split.judge)) for split in splits]
    constant = joined(parts, None if labels is None else np.unique(y), order)
    matrix: dict[str, Any] = {"labels": [], "counts": []}
    if answers.classes is not None:
        matrix = confusion(truth, answers.predicted, answers.classes)
    verdict: dict[str, Any] = {"models": [], "interval": 0.0, "sentence": ""}
    if baselines:
        verdict = compared(
            table, X, y, encoder, splits, (held.apart, held.seconds), task, judge.seed, n_jobs
        )
    return {
        "test rows": len(held.rows),
        "scores": scores(truth, answers.predicted, answers.classes, answers.chances),
        "confusion": matrix,
        "baseline": scores(truth, constant.predicted, constant.classes, constant.chances),
        "verdict": verdict,
    }


def intervals(y: NDArray[Any], held: Held, transform: TargetTransform | None) -> Intervals:
    """The errors of a regression at the held-out rows."""
    return Intervals.of(y[held.rows], held.answers.predicted, transform=transform)
