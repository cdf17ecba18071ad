"""From an encoded table to a fitted model, and its answers on rows that it has not seen."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.features.registry import feature_map
from kernelsieve.learning import Judge, Plan, choose_gamma_alpha
from kernelsieve.models import KernelRidge, KernelRidgeClassifier, KernelRidgeCV
from kernelsieve.tables.judgement import Held
from kernelsieve.tables.predictions import Answers
from kernelsieve.tables.table import TableError
from kernelsieve.tables.target import ridge_targets

TEST_SHARE, MOST_TEST_ROWS = 0.2, 20_000
FITTED_SHARE = 0.9  # of a time limit: reading and explaining take time, too
DEFAULT_FEATURES = 2_000
TUNING_LANDMARKS = 600  # uniform ones: quick, and good enough to compare gammas
WITHOUT_GAMMA = ("linear", "cosine", "inverse_polynomial")


@dataclass(frozen=True)
class Rows:
    """An encoded table, and what its rows belong to.

    Attributes
    ----------
    X : matrix of shape (n, d)
    y : ndarray of shape (n,)
    task : "regression" or "classification"
    seed : int
    groups, order : ndarray of shape (n,) or None
    """

    X: Any
    y: NDArray[Any]
    task: str
    seed: int
    groups: NDArray[Any] | None = None
    order: NDArray[Any] | None = None

    def judge(self) -> Judge:
        """What splits the rows."""
        labels = self.y if self.task == "classification" else None
        return Judge(len(self.y), self.seed, labels, self.groups, self.order)


@dataclass(frozen=True)
class Trained:
    """A model of all rows.

    Attributes
    ----------
    model : KernelRidgeCV, KernelRidge or KernelRidgeClassifier
    alpha : float
    gamma : float, str or None
    held : Held
        Its answers where it has not learned.
    """

    model: Any
    alpha: float
    gamma: Any
    held: Held


@dataclass(frozen=True)
class Wishes:
    """What the user has chosen; see TableModel."""

    kernel: Any
    method: str
    n_components: int | None
    gamma: Any
    alphas: list[float] | None
    degree: int
    coef0: float
    class_weight: Any
    readable: bool
    max_order: int | None
    target_transform: str | None
    time_limit: float | None
    n_jobs: int | None

    def learned(self, rows: Rows, plan: Plan | None) -> Trained:
        """The default: one search, one fit, judged on the rows that the search kept apart."""
        start = time.perf_counter()
        shared: dict[str, Any] = {
            "max_order": self.max_order,
            "plan": plan,
            "time_limit": None if self.time_limit is None else FITTED_SHARE * self.time_limit,
            "random_state": rows.seed,
            "n_jobs": self.n_jobs,
        }
        model: Any
        if rows.task == "regression":
            model = KernelRidgeCV(
                alphas=self.alphas, target_transform=self.target_transform, **shared
            )
        else:
            alpha = None if self.alphas is None else self.alphas[0]
            model = KernelRidgeClassifier(alpha=alpha, class_weight=self.class_weight, **shared)
        model.fit(rows.X, rows.y, groups=rows.groups, order=rows.order)
        found = model.plan_.report.held_out
        near, apart = (_answers(model, values) for values in (found.predicted, found.apart))
        held = Held(found.rows, near, apart, time.perf_counter() - start)
        return Trained(model, float(model.plan_.alpha), None, held)

    def given(self, rows: Rows) -> Trained:
        """A model on a given map or kernel, judged by one that was fitted without some rows."""
        start = time.perf_counter()
        train, test = self._split(rows)
        alpha, gamma = self._tuned(rows.X[train], rows.y[train], rows)
        trial = self._fitted(rows.X[train], rows.y[train], alpha, gamma, rows)
        answers = Answers.of_model(trial, rows.X[test])
        held = Held(test, answers, answers, time.perf_counter() - start)
        return Trained(self._fitted(rows.X, rows.y, alpha, gamma, rows), alpha, gamma, held)

    def _split(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows to learn from, and rows that judge."""
        size = min(max(1, round(TEST_SHARE * len(rows.y))), MOST_TEST_ROWS)
        train, test = rows.judge().set_apart(size)
        if rows.task == "classification" and len(np.unique(rows.y[train])) < 2:
            classes, counts = np.unique(rows.y, return_counts=True)
            raise TableError(
                f"class {str(classes[counts.argmin()])!r} has too few rows to learn from: merge it "
                "with another class, or remove it"
            )
        return train, test

    def _tuned(self, X: Any, y: NDArray[Any], rows: Rows) -> tuple[float, Any]:
        """alpha and gamma by the leave-one-out error of a Nystrom map on some rows."""
        gammas = None if self.gamma == "cv" else [self.gamma]
        if not isinstance(self.kernel, str | None) or self.kernel in WITHOUT_GAMMA:
            gammas = ["scale"]
        if self.alphas is not None and gammas is not None:
            return self.alphas[0], gammas[0]
        size = min(TUNING_LANDMARKS, len(y))
        landmarks = feature_map("nystrom-uniform", n_components=size, **self._shape())
        found = choose_gamma_alpha(
            landmarks,
            X,
            ridge_targets(y, rows.task),
            gammas=gammas,
            alphas=self.alphas,
            seed=rows.seed,
            n_jobs=self.n_jobs,
        )
        return found.alpha, found.gamma

    def _shape(self) -> dict[str, Any]:
        kernel = "gaussian" if self.kernel is None else self.kernel
        shape = {"kernel": kernel, "degree": self.degree, "coef0": self.coef0}
        return shape | {"n_jobs": self.n_jobs}

    def _fitted(self, X: Any, y: NDArray[Any], alpha: float, gamma: Any, rows: Rows) -> Any:
        features = feature_map(
            self.method,
            self.readable,
            n_components=DEFAULT_FEATURES if self.n_components is None else self.n_components,
            gamma=gamma,
            random_state=rows.seed,
            **self._shape(),
        )
        if rows.task == "regression":
            return KernelRidge(features, alpha=alpha, n_jobs=self.n_jobs).fit(X, y)
        classifier = KernelRidgeClassifier(
            features, alpha=alpha, class_weight=self.class_weight, n_jobs=self.n_jobs
        )
        return classifier.fit(X, y)


def _answers(model: Any, values: NDArray[np.float64]) -> Answers:
    """Predictions, or probabilities from scores, at held-out rows."""
    if not hasattr(model, "classes_"):
        return Answers(values[:, 0])
    scores = values[:, 0] if len(model.classes_) == 2 else values
    return Answers.of_chances(model.classes_, model.probabilities(scores))
