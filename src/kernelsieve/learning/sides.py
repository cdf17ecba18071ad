"""Which rows learn rates, which judge them, and which these are predicted from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelsieve._random import keyed_rows
from kernelsieve.kernels.likelihood.learner import Learner
from kernelsieve.learning.errors import LeftOut, OnLandmarks, RidgeErrors, SetApart
from kernelsieve.learning.judge import Judge
from kernelsieve.learning.options import LearnOptions
from kernelsieve.sources.base import Source

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Setting:
    """What does not change while a kernel is chosen.

    Attributes
    ----------
    rows : Source
        Dense, with targets of shape (n, m).
    judge : Judge
        Splits the rows.
    options : LearnOptions
    fit_intercept : bool
    free_intercept : bool
        Whether judges solve for the intercept in place of centring the target: for kernels of
        functions with mean 0.
    exact : bool
        Whether the ridge will be that of the exact kernel.
    seed : int
    n_jobs : int or None
    verbose : int
    """

    rows: Source
    judge: Judge
    options: LearnOptions
    fit_intercept: bool = True
    free_intercept: bool = False
    exact: bool = True
    seed: int = 0
    n_jobs: int | None = None
    verbose: int = 0

    def learner(self, among: Rows | None) -> Learner:
        """Rows whose likelihood the rates come from; of all rows if ``among`` is None."""
        return Learner.on(
            self.rows, self.options.learn_rows, among=among, seed=self.seed, n_jobs=self.n_jobs
        )

    def set_apart(self, known: Rows, apart: Rows) -> RidgeErrors:
        """Rows apart, predicted from those that are known."""
        return self._judges(SetApart, known, apart)

    def left_out(self, known: Rows, apart: Rows) -> RidgeErrors:
        """Rows apart, each predicted from all others."""
        return self._judges(LeftOut, known, apart)

    def _judges(
        self, kind: type[LeftOut] | type[SetApart], known: Rows, apart: Rows
    ) -> RidgeErrors:
        together = np.union1d(known, apart)
        return kind(
            self.rows.take(together),
            np.isin(together, apart),
            self.fit_intercept,
            self.n_jobs,
            self.fit_intercept and self.free_intercept,
        )


@dataclass(frozen=True)
class Sides:
    """Some of the rows, divided into those that learn rates and those that judge them."""

    setting: Setting
    among: Rows
    learners: Rows
    others: Rows

    @classmethod
    def of(cls, setting: Setting, among: Rows) -> Sides:
        """Divide some of the rows."""
        n, options = len(among), setting.options
        if n <= 3:
            return cls(setting, among, among, among)
        size = max(n // 4, min(options.judged_rows, n - 2 * options.learn_rows))
        return cls(setting, among, *setting.judge.set_apart(size, among))

    def learner(self) -> Learner:
        """The rows whose likelihood counts."""
        return self.setting.learner(self.learners)

    def compare(self) -> RidgeErrors:
        """What compares kernels: quick, with the exact kernel of some rows."""
        setting, options = self.setting, self.setting.options
        if setting.judge.free and len(self.among) <= options.left_out_rows:
            return setting.left_out(self.among, self.others)
        known, apart = self.known_and_apart()
        return setting.set_apart(self.some(known, options.known_rows), apart)

    def settle(self) -> RidgeErrors | None:
        """What settles width and alpha of the winner; None if ``compare`` did that already."""
        return self._with_more() if self.setting.exact else self._on_landmarks()

    def _with_more(self) -> RidgeErrors | None:
        options = self.setting.options
        known, apart = self.known_and_apart()
        known = self.some(known, options.final_rows)
        if len(known) < 1.3 * options.known_rows:
            return None
        return self.setting.set_apart(known, apart)

    def _on_landmarks(self) -> RidgeErrors:
        setting, options = self.setting, self.setting.options
        chosen = self.others[
            keyed_rows(len(self.others), options.judged_rows, setting.seed, "judge")
        ]
        landmarks = keyed_rows(
            len(self.learners), options.judged_landmarks, setting.seed, "landmarks"
        )
        return OnLandmarks(
            setting.rows.take(chosen),
            np.ones(len(chosen), dtype=bool),
            setting.fit_intercept,
            setting.rows.take(self.learners[landmarks]).X,
            setting.n_jobs,
        )

    def known_and_apart(self) -> tuple[Rows, Rows]:
        """All rows that others may be predicted from, and the rows that judge."""
        setting = self.setting
        size = setting.options.apart_rows
        apart = self.others[keyed_rows(len(self.others), size, setting.seed, "judge")]
        return (np.setdiff1d(self.among, apart) if setting.judge.free else self.learners), apart

    def some(self, known: Rows, n_rows: int) -> Rows:
        """Some of the rows that are known."""
        return known[keyed_rows(len(known), n_rows, self.setting.seed, "known")]
