"""Tests of bad input, and of awkward input that is legal."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from kernelsieve.testing.data import Array, as_dense, points
from kernelsieve.testing.expectations import cases, refused
from kernelsieve.testing.hooks import Hooks


class BadInputTests(Hooks):
    """What is refused, and in which words."""

    @cases("container", [np.asarray, sp.csr_matrix])
    @cases("value, word", [(np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "inf")])
    def test_nan_and_infinity(
        self, container: Callable[[Array], Any], value: float, word: str
    ) -> None:
        X = points()
        estimator = self.build().fit(X)
        X[2, 3] = value
        for call in (self.build().fit, estimator.transform):
            with refused(ValueError, words=word):
                call(container(X))

    @cases(
        "X, words",
        [
            (np.empty((0, 5)), "0 sample"),
            (np.empty((5, 0)), "0 feature"),
            (np.ones(5), "2D array"),
            (np.ones((2, 3, 4)), "[Dd]im"),
            (points() + 1j, "[Cc]omplex"),
            (np.array([["red", "1"], ["blue", "2"]], dtype=object), "could not convert|string"),
            (np.array([["red", "1"], ["blue", "2"]]), "could not convert|string|numeric"),
        ],
        ids=["no rows", "no columns", "1-d", "3-d", "complex", "object strings", "strings"],
    )
    def test_not_a_matrix_of_numbers(self, X: Array, words: str) -> None:
        with refused(ValueError, words=words):
            self.build().fit(X)

    def test_no_rows_at_transform(self) -> None:
        with refused(ValueError, words="0 sample"):
            self.build().fit(points()).transform(np.empty((0, 5)))

    def test_wrong_number_of_columns(self) -> None:
        estimator = self.build().fit(points())
        for X in (points(d=4), points(d=6), sp.csr_array(points(d=6))):
            with refused(ValueError, words=r"X has \d features.*expecting 5"):
                estimator.transform(X)

    def test_unfitted(self) -> None:
        with refused(NotFittedError):
            self.build().transform(points())
        with refused(NotFittedError):
            self.build().get_feature_names_out()

    @cases("value", [0, -3, 2.5, "many", None, np.nan])
    def test_bad_n_components(self, value: Any) -> None:
        self.require("n_components")
        with refused((ValueError, TypeError), words="n_components") as refusal:
            self.build(n_components=value).fit(points())
        assert repr(value) in str(refusal.error), "the error does not name the value"

    @cases("value", [-1.0, np.nan, np.inf, "wide"])
    def test_bad_gamma(self, value: Any) -> None:
        self.require("gamma")
        with refused((ValueError, TypeError), words="gamma") as refusal:
            self.build(gamma=value).fit(points())
        assert str(value) in str(refusal.error), "the error does not name the value"


class AwkwardInputTests(Hooks):
    """What is awkward, but legal."""

    def finite(self, X: Any, **overrides: Any) -> Array:
        """The features of X, which must come without a warning and be finite."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            Z = self.build(**overrides).fit_transform(X)
        assert Z.shape[0] == X.shape[0]
        assert np.isfinite(as_dense(Z)).all(), "features are not finite"
        return as_dense(Z)

    @cases("container", [np.asarray, sp.csr_matrix])
    @cases("dtype", [np.float64, np.float32])
    @cases(
        "X",
        [
            np.where(np.arange(5) == 2, 3.0, points()),
            np.full((10, 4), 2.5),
            np.zeros((10, 4)),
            np.where(np.arange(40)[:, None] % 3 == 0, 0.0, points()),
            points(1, 5),
            points(30, 1),
            np.ones((1, 1)),
            np.zeros((1, 1)),
            np.repeat(points(2, 4), 10, axis=0),
            1e-30 * points(),
        ],
        ids=[
            "a constant column",
            "constant",
            "all zero",
            "zero rows",
            "one row",
            "one column",
            "one number",
            "one zero",
            "repeated rows",
            "tiny values",
        ],
    )
    def test_awkward_data(self, X: Array, dtype: type, container: Callable[[Array], Any]) -> None:
        self.finite(container(X.astype(dtype)))

    def test_equal_rows_have_equal_features(self) -> None:
        X = points()
        X[9] = X[2]
        Z = as_dense(self.build().fit_transform(X))
        np.testing.assert_allclose(Z[9], Z[2], rtol=1e-10, atol=1e-12)

    @cases("container", [np.asarray, sp.csr_matrix])
    @cases("gamma", ["scale", 0.5])
    def test_huge_values(self, container: Callable[[Array], Any], gamma: Any) -> None:
        """Finite features, or an error that tells the user which value is to blame."""
        X = points()
        X[5, 1] = 1e30
        overrides = {"gamma": gamma} if "gamma" in self.build().get_params() else {}
        try:
            self.finite(container(X), **overrides)
        except ValueError as error:
            if not re.search(r"e\+\d\d|\brow\b", str(error)):
                raise AssertionError("the error for 1e30 does not name the value or row") from error
