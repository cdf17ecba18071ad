"""A kernel model of a table: encode, learn the kernel, fit, judge, explain."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kernelsieve._random import keyed_rows, root_seed
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
from kernelsieve.features.registry import find_method
from kernelsieve.kernels import Kernel
from kernelsieve.learning.plan import Plan
from kernelsieve.learning.target_transform import NAMES, TargetTransform, target_label
from kernelsieve.models import KernelRidge, KernelRidgeClassifier, KernelRidgeCV
from kernelsieve.models.intervals import Intervals
from kernelsieve.tables.encoder import TableEncoder
from kernelsieve.tables.facts import (
    as_text,
    check_facts,
    column_importances,
    explanation_facts,
    label_text,
    scores,
    stored_facts,
)
from kernelsieve.tables.judgement import intervals, judged
from kernelsieve.tables.large import BATCH_ROWS, LARGE_ROWS, LargeFit, in_float_type
from kernelsieve.tables.leaks import note_leaks
from kernelsieve.tables.predictions import Answers, Predictions, as_given
from kernelsieve.tables.readers import read_batches, read_table
from kernelsieve.tables.row import TablePredictor
from kernelsieve.tables.sampling import sampled, too_large
from kernelsieve.tables.table import (
    Table,
    TableError,
    as_table,
    is_missing,
    notice,
)
from kernelsieve.tables.target import (
    TASKS,
    codes,
    places_in_time,
    ridge_targets,
    rows_with_target,
    task_and_targets,
    with_target,
)
from kernelsieve.tables.texts import readings
from kernelsieve.tables.training import Rows, Wishes
from kernelsieve.tables.view import table_view

DEFAULT_SAMPLE = 100_000  # rows that a large table is learned from

Progress = Callable[[str], None]


class TableModel(PersistentEstimator):
    """A kernel model that predicts one column of a table; ``kernelsieve fit`` makes one.

    Numbers are standardised, categories become 0/1 columns (many categories: means of the target),
    and missing values are filled in with a notice. By default the kernel is learned: one search,
    and one fit to all rows. Rows that had no part in the search judge the model.

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
    plan : Plan, optional
        The ``plan_`` of an earlier fit, for another table with the same columns: it is executed
        without a search.
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
    model_ : KernelRidgeCV, KernelRidge or KernelRidgeClassifier
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
        "plan": instance(Plan, None),
        "drop": texts,
        "keep": texts,
    }
    _state_fields: ClassVar = {
        "target_": text,
        "encoder_": instance(TableEncoder, fitted=True, d="width"),
        "readings_": readings,
        "model_": instance(
            KernelRidgeCV, KernelRidge, KernelRidgeClassifier, fitted=True, d="n_features_in_"
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
        plan: Plan | None = None,
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
        self.plan = plan
        self.drop = drop
        self.keep = keep
        self.strict = strict
        self.sample_rows = sample_rows
        self.time_limit = time_limit
        self.baselines = baselines
        self.random_state = random_state
        self.n_jobs = n_jobs

    # --- fit -------------------------------------------------------------------------------------

    def fit(
        self,
        data: Any,
        y: Any = None,
        progress: Progress = lambda step: None,
        *,
        groups: str | None = None,
        order: str | None = None,
    ) -> Self:
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
        groups : str, optional
            A column (a customer, a patient) whose rows are never split between those that choose
            the model and those that judge it. It is not an input.
        order : str, optional
            A column of times or numbers: rows that judge are later than rows that choose.

        Returns
        -------
        self
        """
        if y is None and (isinstance(data, str) or hasattr(data, "__fspath__")):
            return self.fit_file(data, progress=progress, groups=groups, order=order)
        start, seed = time.perf_counter(), root_seed(self.random_state)
        self._check_choices()
        progress("reading")
        table, name = with_target(as_table(data), self.target, y)
        size = self._sample_size(table.n_rows > LARGE_ROWS)
        if size is None or table.n_rows <= size:
            return self._fit_table(table, name, seed, start, progress, groups, order)
        sample = table.take(keyed_rows(table.n_rows, size, seed, "sample of rows"))
        self._fit_table(sample, name, seed, start, progress, groups, order)
        return self._fit_more(table.batches(BATCH_ROWS), table.n_rows, seed, start, progress)

    def _sample_size(self, large: bool) -> int | None:
        """Rows to learn from, or None for all."""
        if self.sample_rows is None:
            return DEFAULT_SAMPLE if large else None
        return check_count(self.sample_rows, "sample_rows", "the model is learned from these rows")

    def _fit_table(
        self,
        table: Table,
        name: str | None,
        seed: int,
        start: float,
        progress: Progress,
        groups: str | None,
        order: str | None,
    ) -> Self:
        """Fit to all rows of a table: one search, and one fit."""
        table, self.target_ = rows_with_target(table, name, self.drop, self.strict)
        self.task_, y = task_and_targets(table, self.target_, self.task)
        self.readings_ = table.readings
        left_out = [*self.drop, self.target_, *([] if groups is None else [groups])]
        self.encoder_ = TableEncoder(left_out, self.strict, self.keep)
        X = self._fit_encoder(self.encoder_, table, y, seed)
        note_leaks(table, self.target_, y, self.task_, self.encoder_.sources)
        learns = self._learns()
        belongs = None if groups is None else codes(table.column(groups))
        times = None if order is None else places_in_time(table, order)
        rows = Rows(X, y, self.task_, seed, belongs, times)
        self._check_learned(learns)
        progress("learning" if learns else "choosing gamma and alpha, fitting, judging")
        wishes = self._wishes()
        trained = wishes.learned(rows, self.plan) if learns else wishes.given(rows)
        self.model_, self.alpha_, self.gamma_ = trained.model, trained.alpha, trained.gamma
        progress("comparing with other models" if self.baselines else "judging")
        facts = judged(
            table,
            X,
            y,
            self.encoder_,
            trained.held,
            self.task_,
            rows.judge(),
            self.baselines,
            self.n_jobs,
        )
        self.__dict__.pop("intervals_", None)
        if self.task_ == "regression":
            transform = _transform_of(self.model_)
            self.intervals_ = intervals(y, trained.held, transform)
        progress("explaining")
        names = self.encoder_.get_feature_names_out()
        self.facts_ = {
            "target": self.target_,
            "learned target": target_label(self.model_, self.target_),
            "task": self.task_,
            "rows": table.n_rows,
            "inputs": X.shape[1],
            "sparse": self.encoder_.sparse_,
            **facts,
            "columns": column_importances(self.model_, X, y, self.encoder_, seed),
            **explanation_facts(self.model_, X, names, seed, learns),
            "seconds": time.perf_counter() - start,
        }
        return self

    def fit_file(
        self,
        path: str | os.PathLike[str],
        *,
        progress: Progress = lambda step: None,
        groups: str | None = None,
        order: str | None = None,
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
        groups, order : str, optional
            Columns, as in `fit`.
        **text
            How a text file is written: sep, decimal, encoding, date_format (see ``read_table``).

        Returns
        -------
        self
        """
        size = self._sample_size(too_large(path))
        if size is None:
            table = read_table(path, **text)
            return self.fit(table, progress=progress, groups=groups, order=order)
        self._check_choices()
        start, seed = time.perf_counter(), root_seed(self.random_state)
        table, total = sampled(path, size, seed, progress, text)
        table, name = with_target(table, self.target, None)
        self._fit_table(table, name, seed, start, progress, groups, order)
        if total > table.n_rows:
            self._fit_more(read_batches(path, **text), total, seed, start, progress)
        return self

    def _fit_more(
        self, batches: Iterable[Table], total: int, seed: int, start: float, progress: Progress
    ) -> Self:
        """Fit the ridge to more rows than the sample; the encoder and the map stay as they are."""
        sample = self.facts_["rows"]
        limit = math.inf if self.time_limit is None else start + self.time_limit
        more = LargeFit(
            self.model_,
            self.encoder_,
            self.target_,
            self.alpha_,
            total,
            seed,
            limit,
            self.n_jobs,
        )
        late = time.perf_counter() > limit
        if self.task_ != "regression" or more.wanted <= sample or late:
            notice(f"learned from a sample of {sample:,} of {total:,} rows")
            return self
        self.model_, self.facts_["rows"] = more.fit(batches, progress)
        self.facts_["seconds"] = time.perf_counter() - start
        return self

    def _fit_encoder(
        self, encoder: TableEncoder, table: Table, y: NDArray[Any], seed: int
    ) -> NDArray[Any]:
        outputs = ridge_targets(y, self.task_)
        outputs = outputs[:, 1] if outputs.shape[1:] == (2,) else outputs
        return in_float_type(encoder.fit_transform(table, outputs, seed), table.n_rows)

    def _check_choices(self) -> None:
        check_choice(self.task, "task", TASKS)
        check_choice(self.target_transform, "target_transform", (None, "auto", *NAMES))
        find_method(self.method)
        if self.time_limit is not None:
            check_positive(self.time_limit, "time_limit", "it is the seconds that a fit may take")
        if self.n_components is not None:
            check_count(self.n_components, "n_components", "it is the number of features")
        self._alphas()

    def _nothing_chosen(self) -> bool:
        return (
            self.kernel is None
            and self.method == "auto"
            and self.n_components is None
            and self.gamma == "cv"
            and not self.readable
        )

    def _learns(self) -> bool:
        """Whether the kernel is learned: nothing was chosen, and the columns are dense."""
        return self._nothing_chosen() and not self.encoder_.sparse_

    def _alphas(self) -> list[float] | None:
        """The only alpha to use, or None to search."""
        if isinstance(self.alpha, str):
            check_choice(self.alpha, "alpha", ("cv",))
            return None
        return [check_positive(self.alpha, "alpha", "it is added to the kernel's diagonal")]

    def _wishes(self) -> Wishes:
        return Wishes(
            self.kernel,
            self.method,
            self.n_components,
            self.gamma,
            self._alphas(),
            self.degree,
            self.coef0,
            self.class_weight,
            self.readable,
            self.max_order,
            self.target_transform,
            self.time_limit,
            self.n_jobs,
        )

    def _check_learned(self, learns: bool) -> None:
        """Refuse what only a learned kernel can do, and say if none is learned."""
        way_out = "leave out kernel, method, n_components, gamma, readable and sparse columns"
        wanted: dict[str, Any] = {"max_order": self.max_order, "plan": self.plan}
        if self.target_transform in NAMES:
            wanted["target_transform"] = self.target_transform
        for name, value in wanted.items():
            if value is not None and not learns:
                raise ValueError(
                    f"{name}={value!r} is for a learned kernel of dense columns: {way_out}"
                )
        if self.target_transform in NAMES and self.task_ != "regression":
            raise ValueError(
                f"target_transform={self.target_transform!r} is for a regression, and "
                f"{self.target_!r} is learned by {self.task_}"
            )
        if not learns and self.encoder_.sparse_ and self._nothing_chosen():
            notice(
                f"the {self.encoder_.width:,} columns are mostly zeros, so the kernel is not "
                "learned: features of a Gaussian kernel with one width are fitted"
            )

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

    @property
    def plan_(self) -> Plan | None:
        """Everything that was decided for a learned kernel, in words if it is printed."""
        check_is_fitted(self)
        return getattr(self.model_, "plan_", None)

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
        check_is_fitted(self)
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
            answers = Answers.of_model(self.model_, X)
            predicted, classes, chances = answers.predicted, answers.classes, answers.chances
            columns = {name: predicted}
        else:
            predicted = self.model_.predict(X)
            columns = {name: predicted}
        if proba and chances is not None and classes is not None:
            columns |= {f"{name}={label_text(c)}": chances[:, i] for i, c in enumerate(classes)}
        if interval is not None:
            low, high = self._bounds(predicted, interval)
            columns |= {f"{name} low": low, f"{name} high": high}
        given = {f"{n} (given)" if n in columns else n: as_given(v) for n, v in kept.items()}
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
        check_is_fitted(self)
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
        return in_float_type(self.encoder_.transform(table), self.facts_["rows"])

    def _require(self, task: str, what: str) -> None:
        check_is_fitted(self)
        if self.task_ != task:
            raise TableError(
                f"{self.target_!r} was learned by {self.task_}, so there are no {what}"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # "auto" is decided by the target: scorers ask after the fit.
        task = getattr(self, "task_", self.task)
        kinds = {"classification": "classifier", "regression": "regressor"}
        tags.estimator_type = kinds.get(task)
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


def _transform_of(model: Any) -> TargetTransform | None:
    """What a regression learns in place of the target, if anything."""
    return getattr(model, "target_transform_", None)
