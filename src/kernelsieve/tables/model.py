"""A kernel model of a table: encode, learn the kernel, fit, judge, explain."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kernelsieve._random import keyed_rows, root_seed, stream
from kernelsieve._state import (
    AbsentOr,
    PersistentEstimator,
    choice,
    instance,
    number,
    plain,
    scalar,
    text,
    texts,
    wrong,
)
from kernelsieve._validation import check_choice, check_count, check_positive
from kernelsieve.explanation import Explanation, Probe, explain
from kernelsieve.explanation.views import View
from kernelsieve.features.registry import feature_map, find_method
from kernelsieve.kernels import Kernel
from kernelsieve.learning import Judge, choose_gamma_alpha
from kernelsieve.learning.target_transform import NAMES, TargetTransform, target_label
from kernelsieve.models import KernelRidge, KernelRidgeClassifier
from kernelsieve.models.intervals import Intervals
from kernelsieve.sources.stream import BlockSource
from kernelsieve.tables.encoder import TableEncoder
from kernelsieve.tables.facts import (
    as_text,
    check_facts,
    column_importances,
    confusion,
    explanation_facts,
    label_text,
    scores,
    stored_facts,
)
from kernelsieve.tables.leaks import note_leaks
from kernelsieve.tables.learned import LearnedRidge
from kernelsieve.tables.readers import read_batches, read_table
from kernelsieve.tables.row import TablePredictor
from kernelsieve.tables.sampling import sampled, too_large
from kernelsieve.tables.table import (
    Table,
    TableError,
    TableNotice,
    as_table,
    is_missing,
    notice,
)
from kernelsieve.tables.target import (
    TASKS,
    ridge_targets,
    rows_with_target,
    task_and_targets,
    with_target,
)
from kernelsieve.tables.texts import readings
from kernelsieve.tables.verdict import compared
from kernelsieve.tables.view import table_view

TEST_SHARE, MOST_TEST_ROWS = 0.2, 20_000
FLOAT32_ROWS = 100_000
DEFAULT_FEATURES = 2_000
DEFAULT_SAMPLE = 100_000  # rows that a large table is learned from
LARGE_ROWS = 500_000  # of a table; beyond, more rows only make the ridge more certain
ROWS_PER_FEATURE = 500  # the ridge of a large table loses a tenth of a per cent with so many
BATCH_ROWS = 50_000
SOLVED_ROWS = 200_000  # between two solutions of the ridge
TUNING_LANDMARKS = 600  # uniform ones: quick, and good enough to compare gammas
WITHOUT_GAMMA = ("linear", "cosine", "inverse_polynomial")

Progress = Callable[[str], None]


class TableModel(PersistentEstimator):
    """A kernel model that predicts one column of a table; ``kernelsieve fit`` makes one.

    Numbers are standardised, categories become 0/1 columns (many categories: means of the target),
    and missing values are filled in with a notice. By default the kernel is learned. A fifth of the
    rows is set aside to judge the model, which is then fitted to all rows.

    It is an estimator of scikit-learn: pass a whole table and name the target, or pass X and y.

    Parameters
    ----------
    target : str, optional
        The column to predict. With ``fit(X, y)`` it is the name of y.
    task : "auto", "regression" or "classification"
        "auto" means classification for texts and for numbers with two distinct values.
    kernel : str or Kernel, optional
        None learns the kernel from dense columns, unless ``method``, ``n_components``, ``gamma`` or
        ``readable`` is given; it is "gaussian" otherwise.
    method : str, default "auto"
        The feature map: "auto", "adaptive", "row-norm", "nystrom", "fourier", "oblivious",
        "tensor-sketch", "maclaurin", or another name in ``kernelsieve.features.registry.METHODS``.
    n_components : int, optional
        The number of features. None is 2,000, or what suits a learned kernel.
    gamma : "cv", "scale", "auto" or float
        The kernel's width; "cv" chooses it by cross-validation.
    alpha : "cv" or float
        The ridge; "cv" chooses it by cross-validation.
    degree : int, default 3
        The degree of a polynomial kernel.
    coef0 : float, default 1.0
        The constant of a polynomial kernel.
    class_weight : dict, "balanced" or None
        Weights of the classes; "balanced" gives every class the same total weight, so that rare
        classes are predicted more often than they occur.
    readable : bool, default False
        Use products of columns, never of principal components.
    max_order : int, optional
        Learn a model of parts of at most so many columns: 2 for main effects and pairs, which
        ``explain`` shows exactly. Only where the kernel is learned.
    target_transform : "auto", "log", "sqrt" or None, default "auto"
        The function of a number that is learned in place of it, where the kernel is learned: "auto"
        tries both if the target is at least 0 and skewed, as prices are. Predictions are of the
        target itself.
    drop : sequence of str
        Columns to ignore.
    keep : sequence of str
        Columns to use even if they look like identifiers.
    strict : bool, default False
        Raise a TableError for missing values, columns that cannot be used, and categories not seen
        in training.
    sample_rows : int, optional
        Learn from a random sample of so many rows, and read files in batches; see `fit_file`. None
        takes 100,000 rows of tables with more than 500,000 and of files beyond 256 MB.
    time_limit : float, optional
        About how many seconds the model may learn, a comparison with other models apart. A learned
        kernel tries less and has fewer features then. None sets no limit.
    baselines : bool, default False
        Compare the model with a constant, a linear model and gradient boosting on the rows set
        aside.
    random_state : int, default 0
    n_jobs : int, default all cores

    Attributes
    ----------
    target_ : str
        The name of the target.
    encoder_ : TableEncoder
        Makes the matrix that the model is fitted to.
    readings_ : dict of str to Reading
        How columns of a text file were understood, so that later files are read in the same way.
    model_ : LearnedRidge, KernelRidge or KernelRidgeClassifier
        Fitted to all rows.
    task_ : "regression" or "classification"
    alpha_ : float
        The ridge that was used.
    gamma_ : float, str or None
        The width that was used; None for a learned kernel.
    intervals_ : Intervals
        Errors on the rows set aside, and where they are larger; only of a regression.
    facts_ : dict
        What `summary` prints: scores on the rows set aside, permutation importances, monomials.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import TableModel
    >>> rng = np.random.default_rng(0)
    >>> flats = {"size": rng.uniform(20, 150, 300), "town": rng.choice(["Ulm", "Bonn"], 300)}
    >>> flats["rent"] = flats["size"] * np.where(flats["town"] == "Ulm", 10.0, 15.0)
    >>> model = TableModel("rent").fit(flats)
    >>> model.facts_["scores"]["R2"] > 0.95
    True
    >>> model.predict({"town": ["Bonn"], "size": [100.0]}).round(-2).tolist()
    [1500.0]
    """

    _state_parameters: ClassVar = {
        "target": instance(str, None),
        "kernel": instance(str, Kernel, None),
        "class_weight": plain(str, dict, None),
        "drop": texts,
        "keep": texts,
    }
    _state_fields: ClassVar = {
        "target_": text,
        "encoder_": instance(TableEncoder, fitted=True, d="width"),
        "readings_": readings,
        "model_": instance(
            LearnedRidge, KernelRidge, KernelRidgeClassifier, fitted=True, d="n_features_in_"
        ),
        "task_": choice(*TASKS[1:]),
        "alpha_": number(0.0),
        "gamma_": scalar,
        "intervals_": AbsentOr(instance(Intervals)),
        "facts_": stored_facts,
    }

    def _complete(self) -> None:
        if (self.task_ == "classification") != isinstance(self.model_, KernelRidgeClassifier):
            wrong("model_", f"is a {type(self.model_).__name__} for {self.task_}")
        try:
            check_facts(self.facts_)
        except (TypeError, ValueError, KeyError) as error:
            wrong("facts_", f"cannot be shown: {error!r}")

    def __init__(
        self,
        target: str | None = None,
        *,
        task: str = "auto",
        kernel: Any = None,
        method: str = "auto",
        n_components: int | None = None,
        gamma: Any = "cv",
        alpha: Any = "cv",
        degree: int = 3,
        coef0: float = 1.0,
        class_weight: Any = None,
        readable: bool = False,
        max_order: int | None = None,
        target_transform: str | None = "auto",
        drop: Sequence[str] = (),
        keep: Sequence[str] = (),
        strict: bool = False,
        sample_rows: int | None = None,
        time_limit: float | None = None,
        baselines: bool = False,
        random_state: Any = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.target = target
        self.task = task
        self.kernel = kernel
        self.method = method
        self.n_components = n_components
        self.gamma = gamma
        self.alpha = alpha
        self.degree = degree
        self.coef0 = coef0
        self.class_weight = class_weight
        self.readable = readable
        self.max_order = max_order
        self.target_transform = target_transform
        self.drop = drop
        self.keep = keep
        self.strict = strict
        self.sample_rows = sample_rows
        self.time_limit = time_limit
        self.baselines = baselines
        self.random_state = random_state
        self.n_jobs = n_jobs

    # --- fit -------------------------------------------------------------------------------------

    def fit(self, data: Any, y: Any = None, progress: Progress = lambda step: None) -> Self:
        """Fit to a table.

        Parameters
        ----------
        data : path, frame, mapping of columns or matrix
            Frames of pandas, polars and Arrow are understood. Without ``y``, one column is the
            target.
        y : array-like of shape (n,), optional
            The target: numbers or labels.
        progress : callable, optional
            Called with the name of each step.

        Returns
        -------
        self
        """
        if y is None and (isinstance(data, str) or hasattr(data, "__fspath__")):
            return self.fit_file(data, progress=progress)
        start, seed = time.perf_counter(), root_seed(self.random_state)
        self._check_choices()
        progress("reading")
        table, name = with_target(as_table(data), self.target, y)
        size = self._sample_size(table.n_rows > LARGE_ROWS)
        if size is None or table.n_rows <= size:
            return self._fit_table(table, name, seed, start, progress)
        sample = table.take(keyed_rows(table.n_rows, size, seed, "sample of rows"))
        self._fit_table(sample, name, seed, start, progress)
        return self._fit_ridge(table.batches(BATCH_ROWS), table.n_rows, seed, start, progress)

    def _sample_size(self, large: bool) -> int | None:
        """Rows to learn from, or None for all."""
        if self.sample_rows is None:
            return DEFAULT_SAMPLE if large else None
        return check_count(self.sample_rows, "sample_rows", "the model is learned from these rows")

    def _fit_table(
        self, table: Table, name: str | None, seed: int, start: float, progress: Progress
    ) -> Self:
        """Fit to all rows of a table."""
        table, self.target_ = rows_with_target(table, name, self.drop, self.strict)
        self.task_, y = task_and_targets(table, self.target_, self.task)
        self.readings_ = table.readings
        self.encoder_ = TableEncoder([*self.drop, self.target_], self.strict, self.keep)
        X = self._fit_encoder(self.encoder_, table, y, seed)
        note_leaks(table, self.target_, y, self.task_, self.encoder_.sources)
        judged, trial = self._judged(table, y, seed, progress)
        progress("fitting to all rows")
        self.model_ = self._fitted(X, y, seed, trial)
        progress("explaining")
        self.facts_ = {
            "target": self.target_,
            "learned target": target_label(self.model_, self.target_),
            "task": self.task_,
            "rows": table.n_rows,
            "inputs": X.shape[1],
            "sparse": self.encoder_.sparse_,
            **judged,
            **explanation_facts(self.model_, X, self.encoder_.get_feature_names_out(), seed),
            "seconds": time.perf_counter() - start,
        }
        return self

    def fit_file(
        self,
        path: str | os.PathLike[str],
        *,
        progress: Progress = lambda step: None,
        **text: Any,
    ) -> Self:
        """Fit to a table in a file, which need not fit in memory.

        With ``sample_rows``, or if the file is larger than 256 MB or half of the memory, it is
        read in batches: once to draw a sample of rows, which everything is learned from and judged
        on, and, for a regression, once more to fit the ridge to up to 500 rows for each feature.

        Parameters
        ----------
        path : path
        progress : callable, optional
            Called with the name of each step.
        **text
            How a text file is written: sep, decimal, encoding, date_format (see ``read_table``).

        Returns
        -------
        self
        """
        size = self._sample_size(too_large(path))
        if size is None:
            return self.fit(read_table(path, **text), progress=progress)
        self._check_choices()
        start, seed = time.perf_counter(), root_seed(self.random_state)
        table, total = sampled(path, size, seed, progress, text)
        table, name = with_target(table, self.target, None)
        self._fit_table(table, name, seed, start, progress)
        if total > table.n_rows:
            self._fit_ridge(read_batches(path, **text), total, seed, start, progress)
        return self

    def _fit_ridge(
        self, batches: Iterable[Table], total: int, seed: int, start: float, progress: Progress
    ) -> Self:
        """Fit the ridge to more rows than the sample; the encoder and the map stay as they are."""
        sample = self.facts_["rows"]
        size = ROWS_PER_FEATURE * self.model_.features_.n_components_
        left = self._seconds_left(start)
        if self.task_ != "regression" or size <= sample or left <= 0.0:
            notice(f"learned from a sample of {sample:,} of {total:,} rows")
            return self
        learned = self.model_ if isinstance(self.model_, LearnedRidge) else None
        ridge = KernelRidge(self.model_.features_, alpha=self.alpha_, n_jobs=self.n_jobs)
        waiting: list[tuple[Any, Any]] = []
        done = taken = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TableNotice)  # the sample gave them already
            for number, table in enumerate(batches):
                done += table.n_rows
                keys = stream(seed, "rows of the ridge", number).random(table.n_rows)
                known = ~is_missing(table.column(self.target_)) & (keys * total < size)
                table = table.take(np.flatnonzero(known))
                values = table.column(self.target_)
                if values.dtype.kind != "f" or not np.isfinite(values).all():
                    raise TableError(
                        f"{table.where}: the target {self.target_!r} is not always a number"
                    )
                if table.n_rows:
                    X = self.encoder_.transform(table)
                    y = values
                    if learned is not None:
                        y = learned.transformed(values) - learned.linear(X)
                    waiting.append((_in_float_type(X, total), y))
                    taken += table.n_rows
                progress(f"fitting: {done / total:.0%} of {total:,} rows")
                if waiting and (done >= total or sum(len(y) for _, y in waiting) >= SOLVED_ROWS):
                    ridge.partial_fit(BlockSource(waiting))
                    waiting = []
                    if self._seconds_left(start) <= 0.0:
                        break
        if done < total:
            notice(f"time_limit={self.time_limit:g} ended the fit after {done:,} of {total:,} rows")
        elif size < total:
            notice(f"fitted to {taken:,} of {total:,} rows: {ROWS_PER_FEATURE} for each feature")
        if learned is None:
            self.model_ = ridge
        else:
            learned.model_ = ridge
        self.facts_["rows"] = done
        self.facts_["seconds"] = time.perf_counter() - start
        return self

    def _seconds_left(self, start: float) -> float:
        if self.time_limit is None:
            return math.inf
        return start + self.time_limit - time.perf_counter()

    def _fit_encoder(
        self, encoder: TableEncoder, table: Table, y: NDArray[Any], seed: int
    ) -> NDArray[Any]:
        outputs = ridge_targets(y, self.task_)
        outputs = outputs[:, 1] if outputs.shape[1:] == (2,) else outputs
        return _in_float_type(encoder.fit_transform(table, outputs, seed), table.n_rows)

    def _judged(
        self, table: Table, y: NDArray[Any], seed: int, progress: Progress
    ) -> tuple[dict[str, Any], Any]:
        """Score a model of some rows on rows that nothing was learned from; also that model."""
        train, test = self._split(y, seed)
        # The same columns are used: fewer rows may not show what looks like an identifier.
        used = self.encoder_.sources
        encoder = TableEncoder([n for n in table.columns if n not in used], keep=used)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TableNotice)  # the whole table gave them already
            X_train = self._fit_encoder(encoder, table.take(train), y[train], seed)
            X_test = _in_float_type(encoder.transform(table.take(test)), table.n_rows)
        start = time.perf_counter()
        if not self._learns():
            progress("choosing gamma and alpha")
            self._tune(X_train, y[train], seed)
        progress("learning from some rows" if self._learns() else "judging")
        trial = self._fitted(X_train, y[train], seed)
        answers = _answers(trial, X_test)
        took = time.perf_counter() - start
        matrix: dict[str, Any] = {"labels": [], "counts": []}
        if answers[1] is not None:
            matrix = confusion(y[test], answers[0], answers[1])
        self.__dict__.pop("intervals_", None)
        if self.task_ == "regression":
            transform = _transform_of(trial) if y.min() >= 0.0 else None
            self.intervals_ = Intervals.of(y[test], answers[0], transform=transform)
        verdict: dict[str, Any] = {"models": [], "interval": 0.0, "sentence": ""}
        if self.baselines:
            progress("comparing with other models")
            verdict = compared(table, y, (train, test), encoder, (X_train, X_test),
                               (answers, took), self.task_, seed, self.n_jobs)  # fmt: skip
        progress("explaining")
        constant = _Constant(y[train], self.task_)
        facts = {
            "test rows": len(test),
            "scores": scores(y[test], *answers),
            "confusion": matrix,
            "baseline": scores(y[test], *_answers(constant, X_test)),
            "verdict": verdict,
            "columns": column_importances(trial, X_test, y[test], encoder, seed),
        }
        return facts, trial

    def _check_choices(self) -> None:
        check_choice(self.task, "task", TASKS)
        check_choice(self.target_transform, "target_transform", (None, "auto", *NAMES))
        find_method(self.method)
        if self.time_limit is not None:
            check_positive(self.time_limit, "time_limit", "it is the seconds that a fit may take")
        if self.n_components is not None:
            check_count(self.n_components, "n_components", "it is the number of features")
        self._alphas()

    def _split(self, y: NDArray[Any], seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Split the rows into those to learn from and those that judge."""
        size = min(max(1, round(TEST_SHARE * len(y))), MOST_TEST_ROWS)
        labels = y if self.task_ == "classification" else None
        train, test = Judge(len(y), seed, labels).set_apart(size)
        if labels is not None and len(np.unique(y[train])) < 2:
            classes, counts = np.unique(y, return_counts=True)
            raise TableError(
                f"class {str(classes[counts.argmin()])!r} has too few rows to learn from: merge it "
                "with another class, or remove it"
            )
        return train, test

    def _learns(self) -> bool:
        """Whether the kernel is learned: nothing was chosen, and the columns are dense."""
        nothing_chosen = (
            self.kernel is None
            and self.method == "auto"
            and self.n_components is None
            and self.gamma == "cv"
            and not self.readable
        )
        return nothing_chosen and not self.encoder_.sparse_

    def _tune(self, X: Any, y: NDArray[Any], seed: int) -> None:
        """Choose gamma and alpha by the leave-one-out error of a Nystrom map on some rows."""
        gammas, alphas = self._gammas(), self._alphas()
        if alphas is not None and gammas is not None:
            self.alpha_, self.gamma_ = alphas[0], gammas[0]
            return
        landmarks = feature_map(
            "nystrom-uniform",
            n_components=min(TUNING_LANDMARKS, len(y)),
            **self._shape(),
        )
        targets = ridge_targets(y, self.task_)
        found = choose_gamma_alpha(
            landmarks, X, targets, gammas=gammas, alphas=alphas, seed=seed, n_jobs=self.n_jobs
        )
        self.alpha_, self.gamma_ = found.alpha, found.gamma

    def _gammas(self) -> list[Any] | None:
        """The only gamma to use, or None to search."""
        if not isinstance(self.kernel, str | None) or self.kernel in WITHOUT_GAMMA:
            return ["scale"]
        return None if self.gamma == "cv" else [self.gamma]

    def _alphas(self) -> list[float] | None:
        """The only alpha to use, or None to search."""
        if isinstance(self.alpha, str):
            check_choice(self.alpha, "alpha", ("cv",))
            return None
        return [check_positive(self.alpha, "alpha", "it is added to the kernel's diagonal")]

    def _shape(self) -> dict[str, Any]:
        kernel = "gaussian" if self.kernel is None else self.kernel
        return {
            "kernel": kernel, "degree": self.degree, "coef0": self.coef0, "n_jobs": self.n_jobs
        }  # fmt: skip

    def _fitted(self, X: Any, y: NDArray[Any], seed: int, trial: Any = None) -> Any:
        """A model of these rows; its alpha and gamma are kept.

        What it learns of the target is what the ``trial`` on some of them has chosen.
        """
        if self.max_order is not None and not self._learns():
            raise ValueError(
                f"max_order={self.max_order} is for a learned kernel of dense columns: leave out "
                "kernel, method, n_components, gamma and readable, and columns of sparse words"
            )
        if self.target_transform in NAMES and not (self._learns() and self.task_ == "regression"):
            raise ValueError(
                f"target_transform={self.target_transform!r} is for a regression with a learned "
                "kernel of dense columns: leave out kernel, method, n_components, gamma and "
                "readable, and columns of sparse words"
            )
        if self._learns():
            # One model is judged and another is kept; reading and explaining take time, too.
            seconds = None if self.time_limit is None else 0.4 * self.time_limit
            alphas = self._alphas()
            if self.task_ == "regression":
                transform = self.target_transform
                if trial is not None and transform == "auto":
                    tried = trial.target_transform_
                    transform = None if tried is None or y.min() < 0.0 else tried.name
                model = LearnedRidge(
                    alphas, seed, seconds, self.n_jobs, self.max_order, transform
                ).fit(X, y)
                self.alpha_, self.gamma_ = model.alpha, None
                return model
            classifier = KernelRidgeClassifier(
                alpha=None if alphas is None else alphas[0],
                max_order=self.max_order,
                class_weight=self.class_weight,
                time_limit=seconds,
                random_state=seed,
                n_jobs=self.n_jobs,
            ).fit(X, y)
            self.alpha_, self.gamma_ = float(classifier.ridge_.alpha), None
            return classifier
        features = feature_map(
            self.method,
            self.readable,
            n_components=DEFAULT_FEATURES if self.n_components is None else self.n_components,
            gamma=self.gamma_,
            random_state=seed,
            **self._shape(),
        )
        if self.task_ == "regression":
            return KernelRidge(features, alpha=self.alpha_, n_jobs=self.n_jobs).fit(X, y)
        return KernelRidgeClassifier(
            features, alpha=self.alpha_, class_weight=self.class_weight, n_jobs=self.n_jobs
        ).fit(X, y)

    # --- use -------------------------------------------------------------------------------------

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels of a classifier, of shape (n_classes,)."""
        check_is_fitted(self)
        if self.task_ != "classification":
            raise AttributeError(
                f"{self.target_!r} was learned by regression, so there are no classes"
            )
        return self.model_.classes_

    def predict(self, data: Any) -> NDArray[Any]:
        """Predict the target of every row.

        Parameters
        ----------
        data : path, frame or mapping of columns

        Returns
        -------
        ndarray of shape (n,)
            Numbers, or labels.
        """
        return self.model_.predict(self._encoded(data))

    def score(self, data: Any, y: Any = None) -> float:
        """Score the predictions: R2 of a regression, accuracy of a classification.

        Parameters
        ----------
        data : path, frame, mapping of columns or matrix
        y : array-like of shape (n,), optional
            The target; None takes the column of the table.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        table, _ = with_target(as_table(data, self.readings_), self.target_, y)
        table.column(self.target_)
        found = self.predict_table(table).scores
        if found is None:
            raise TableError(f"{table.where}: the target {self.target_!r} has no values to compare")
        return found["R2" if self.task_ == "regression" else "accuracy"]

    def predict_proba(self, data: Any) -> NDArray[Any]:
        """Predict the probabilities of the classes; only for a classification.

        Parameters
        ----------
        data : path, frame or mapping of columns

        Returns
        -------
        ndarray of shape (n, n_classes)
            In the order of ``classes_``.
        """
        self._require("classification", "probabilities")
        return self.model_.predict_proba(self._encoded(data))

    def predict_std(self, data: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Predict the target of every row, with standard deviations; only for a regression.

        Parameters
        ----------
        data : path, frame or mapping of columns

        Returns
        -------
        predictions, deviations : ndarray of shape (n,)
        """
        self._require("regression", "standard deviations")
        return self._with_std(self._encoded(data))

    def predictor(self) -> TablePredictor:
        """Return a function of one row that predicts as quickly as possible, for servers.

        Returns
        -------
        TablePredictor
            Takes a dict of the columns by name, and returns a number or a label; its method
            ``probabilities`` returns those of the classes. Threads may share it.

        Examples
        --------
        >>> sizes = [40.0, 55.0, 62.0, 70.0, 83.0, 91.0] * 5
        >>> model = TableModel("rent").fit({"size": sizes, "rent": [9.01 * s for s in sizes]})
        >>> bool(abs(model.predictor()({"size": 60.0}) - 540) < 30)
        True
        """
        check_is_fitted(self)
        return TablePredictor(self.encoder_, self.readings_, self.model_.predictor())

    def predict_interval(
        self, data: Any, coverage: float = 0.9
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bounds that hold a share of the targets of new rows; only for a regression.

        This is split conformal prediction with the rows set aside: for new rows like those of the
        table, at least this share of the intervals holds the target. Intervals are wider where
        errors are larger. (The final model has seen more rows than the one whose errors these are,
        so that the intervals tend to be a little wide.)

        Parameters
        ----------
        data : path, frame or mapping of columns
        coverage : float, default 0.9
            The share of targets that lie inside, between 0 and 1.

        Returns
        -------
        low, high : ndarray of shape (n,)
            Infinite if there are too few rows set aside for this share.
        """
        self._check_interval(coverage)
        return self._bounds(self.model_.predict(self._encoded(data)), coverage)

    def _check_interval(self, coverage: float) -> None:
        self._require("regression", "intervals")
        if not 0.0 < coverage < 1.0:
            raise TableError(f"interval={coverage:g} must be between 0 and 1, for example 0.9")

    def _bounds(
        self, predicted: NDArray[Any], coverage: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        transform = _transform_of(self.model_)
        return self.intervals_.bounds(predicted, coverage, transform=transform)

    def predict_table(
        self,
        data: Any,
        *,
        proba: bool = False,
        std: bool = False,
        interval: float | None = None,
        keep: Sequence[str] | None = (),
    ) -> Predictions:
        """Predict all that is asked for in one pass over a table, with scores where it can.

        Parameters
        ----------
        data : path, frame or mapping of columns
        proba : bool, default False
            Add a column of probabilities for every class; only for a classification.
        std : bool, default False
            Add a column of standard deviations; only for a regression.
        interval : float, optional
            Add columns "low" and "high" between which this share of the targets lies; only for a
            regression.
        keep : sequence of str, default ()
            Columns of the table to pass on, before the predictions; None passes all of them on.

        Returns
        -------
        Predictions

        Examples
        --------
        >>> import numpy as np
        >>> from kernelsieve import TableModel
        >>> x = np.linspace(0.0, 1.0, 50)
        >>> model = TableModel("y", n_components=20).fit({"x": x, "y": x**2})
        >>> list(model.predict_table({"x": [0.5]}, std=True).columns)
        ['y', 'y std']
        """
        if proba:
            self._require("classification", "probabilities")
        if std:
            self._require("regression", "standard deviations")
        if interval is not None:
            self._check_interval(interval)
        check_is_fitted(self)
        table = as_table(data, self.readings_)
        kept = {
            name: table.given[name] if name in table.given else table.column(name)
            for name in (table.columns if keep is None else keep)
        }
        X = self._encoded(table)
        name, classes, chances = self.target_, None, None
        rows, y = self._known_targets(table)
        if std:
            predicted, deviations = self._with_std(X)
            columns = {name: predicted, f"{name} std": deviations}
        elif self.task_ == "classification" and (proba or len(rows)):
            predicted, classes, chances = _answers(self.model_, X)
            columns = {name: predicted}
        else:
            predicted = self.model_.predict(X)
            columns = {name: predicted}
        if proba and chances is not None and classes is not None:
            columns |= {f"{name}={label_text(c)}": chances[:, i] for i, c in enumerate(classes)}
        if interval is not None:
            low, high = self._bounds(predicted, interval)
            columns |= {f"{name} low": low, f"{name} high": high}
        given = {f"{n} (given)" if n in columns else n: _as_given(v) for n, v in kept.items()}
        columns = given | columns
        judged = None
        if len(rows):
            known = None if chances is None else chances[rows]
            judged = scores(y, predicted[rows], classes, known)
        return Predictions(table.n_rows, columns, judged)

    def transform(self, data: Any) -> Any:
        """Compute the features of every row.

        Parameters
        ----------
        data : path, frame or mapping of columns

        Returns
        -------
        ndarray or CSR array of shape (n, s)
        """
        return self.model_.features_.transform(self._encoded(data))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Name the features.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        ndarray of str, of shape (s,)
        """
        check_is_fitted(self)
        names = self.encoder_.get_feature_names_out()
        return self.model_.features_.get_feature_names_out(names)

    def _known_targets(self, table: Table) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Find the rows of a table whose target can be compared; also return its values."""
        nothing = np.empty(0, dtype=np.int64)
        values = table.columns.get(self.target_)
        if values is None or (self.task_ == "regression" and values.dtype.kind != "f"):
            return nothing, nothing
        rows = np.flatnonzero(~is_missing(values))
        if self.task_ == "classification" and values.dtype.kind != self.classes_.dtype.kind:
            values = values.astype(str)
        return rows, values[rows]

    def _with_std(self, X: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        return self.model_.predict(X, return_std=True)

    def _encoded(self, data: Any) -> Any:
        check_is_fitted(self)
        table = as_table(data, self.readings_)
        return _in_float_type(self.encoder_.transform(table), self.facts_["rows"])

    def _require(self, task: str, what: str) -> None:
        check_is_fitted(self)
        if self.task_ != task:
            raise TableError(
                f"{self.target_!r} was learned by {self.task_}, so there are no {what}"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "classifier" if self.task == "classification" else "regressor"
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags

    def explain(
        self, X: Any = None, y: Any = None, *, output: Any = None, n_jobs: int | None = None
    ) -> Explanation | Probe:
        """Say what the model has learned: effects of columns and their interactions.

        Parameters
        ----------
        X : table, optional
            Rows whose columns' distributions the effects are relative to; None takes those of
            training.
        y : array-like, optional
            Targets of these rows, for models that cannot be taken apart.
        output : label, optional
            The class to explain; None explains all.
        n_jobs : int, default all cores

        Returns
        -------
        Explanation
            As ``kernelsieve.explain(model)``: or a Probe, for a model that is not a sum of
            products of columns.
        """
        return explain(self, X, y, output=output, n_jobs=n_jobs)

    def explanation_view(self, X: Any = None) -> View:
        """The columns of the table as ``explain`` shows them."""
        return table_view(self, X)

    def summary(self) -> str:
        """Describe the model as text; ``plots.plot_table_model`` draws the same facts.

        Returns
        -------
        str
        """
        check_is_fitted(self)
        return as_text(self.facts_)


@dataclass(frozen=True)
class Predictions:
    """What a model says of a table.

    Attributes
    ----------
    n_rows : int
    columns : dict of str to ndarray of shape (n_rows,)
        Columns that are passed on ("name (given)" for those that have the name of a prediction);
        the prediction under the target's name; then "name std", "name=class", "name low" and
        "name high" where asked for.
    scores : dict of str to float, or None
        Where the table holds the target, how far the predictions are from it.
    """

    n_rows: int
    columns: dict[str, NDArray[Any]]
    scores: dict[str, float] | None


def _transform_of(model: Any) -> TargetTransform | None:
    """What a regression learns in place of the target, if anything."""
    return getattr(model, "target_transform_", None)


def _answers(
    model: Any, X: Any
) -> tuple[NDArray[Any], NDArray[Any] | None, NDArray[np.float64] | None]:
    """Predictions; for a classifier also the classes and their probabilities."""
    if not hasattr(model, "predict_proba"):
        return model.predict(X), None, None
    chances = model.predict_proba(X)
    return model.classes_[chances.argmax(axis=1)], model.classes_, chances


def _as_given(values: NDArray[Any]) -> NDArray[Any]:
    """A column as it was in the table: whole numbers without a point, nothing where it is missing.

    Examples
    --------
    >>> _as_given(np.array([1.0, np.nan])).tolist()
    [1, None]
    """
    if values.dtype.kind != "f":
        return values
    missing = np.isnan(values)
    whole = np.abs(values) < 2.0**53
    if (whole & (np.round(values) == values) | missing).all():
        values = np.where(missing, 0.0, values).astype(np.int64)
    if missing.any():
        values = values.astype(object)
        values[missing] = None
    return values


def _in_float_type(X: Any, n_rows: int) -> Any:
    """Use float32 for models of many rows: half the memory and time."""
    return X.astype(np.float32) if n_rows >= FLOAT32_ROWS else X


class _Constant:
    """The mean, or the shares of the classes: what any model must beat."""

    def __init__(self, y: NDArray[Any], task: str) -> None:
        if task == "regression":
            self._mean = y.mean()
            return
        self.classes_, counts = np.unique(y, return_counts=True)
        self.predict_proba = lambda X: np.tile(counts / counts.sum(), (X.shape[0], 1))

    def predict(self, X: Any) -> NDArray[Any]:
        return np.full(X.shape[0], self._mean)
