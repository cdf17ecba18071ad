"""Tests of names, frames, copies and searches."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

from kernelsieve.testing.data import as_dense, points
from kernelsieve.testing.expectations import cases, needed, refused
from kernelsieve.testing.hooks import Hooks


class CopyTests(Hooks):
    """Names, frames, copies and searches."""

    def test_feature_names_out(self) -> None:
        estimator = self.build().fit(points())
        names = estimator.get_feature_names_out()
        assert len(names) == estimator.n_components_, "one name per output column"
        assert all(isinstance(name, str) for name in names), "names must be strings"
        assert len(set(names)) == len(names), "two output columns have the same name"

    def test_pandas_in(self) -> None:
        pd = needed("pandas")
        X = points()
        frame = pd.DataFrame(X, columns=list("abcde"))
        estimator = self.build().fit(frame)
        assert list(estimator.feature_names_in_) == list("abcde")
        np.testing.assert_allclose(
            as_dense(estimator.transform(frame)), as_dense(self.build().fit_transform(X))
        )
        names = estimator.get_feature_names_out()
        assert len(set(names)) == estimator.n_components_
        with refused(ValueError, words="feature names should match"):
            estimator.transform(frame[list("edcba")])

    def test_polars_in(self) -> None:
        pl = needed("polars")
        X = points()
        frame = pl.DataFrame({name: X[:, i] for i, name in enumerate("abcde")})
        np.testing.assert_allclose(
            as_dense(self.build().fit(frame).transform(frame)),
            as_dense(self.build().fit_transform(X)),
        )

    def test_set_output_pandas(self) -> None:
        pd = needed("pandas")
        X = points()
        frame = pd.DataFrame(X, columns=list("abcde"), index=np.arange(100, 100 + len(X)))
        estimator = self.build().set_output(transform="pandas").fit(frame)
        Z = estimator.transform(frame)
        assert isinstance(Z, pd.DataFrame)
        assert list(Z.columns) == list(estimator.get_feature_names_out())
        assert list(Z.index) == list(frame.index), "the rows lost their index"
        np.testing.assert_allclose(Z.to_numpy(), as_dense(self.build().fit_transform(X)))

    def test_set_output_polars(self) -> None:
        pl = needed("polars")
        X = points()
        estimator = self.build().set_output(transform="polars").fit(X)
        Z = estimator.transform(X)
        assert isinstance(Z, pl.DataFrame)
        assert Z.columns == list(estimator.get_feature_names_out())
        np.testing.assert_allclose(Z.to_numpy(), as_dense(self.build().fit_transform(X)))

    @cases("duplicate", [lambda e: pickle.loads(pickle.dumps(e)), copy.deepcopy])
    def test_a_copy_transforms_alike(self, duplicate: Callable[[Any], Any]) -> None:
        X = points()
        estimator = self.build().fit(X)
        twin = duplicate(estimator)
        np.testing.assert_array_equal(
            as_dense(twin.transform(X)),
            as_dense(estimator.transform(X)),
            err_msg="a saved and reloaded map gives other features",
        )
        assert list(twin.get_feature_names_out()) == list(estimator.get_feature_names_out())

    def test_clone_is_unfitted_and_fits_alike(self) -> None:
        X = points()
        estimator = self.build().fit(X)
        twin = clone(estimator)
        with refused(NotFittedError):
            twin.transform(X)
        np.testing.assert_array_equal(
            as_dense(twin.fit_transform(X)), as_dense(estimator.transform(X))
        )

    def test_grid_search_over_gamma(self) -> None:
        self.require("gamma")
        X = points(120, 3, seed=4)
        y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2
        # gamma = 1e6 makes every two points orthogonal: nothing can be learned from that kernel.
        search = GridSearchCV(
            self.model(self.build()), {"features__gamma": [1e6, 0.5]}, cv=3, error_score="raise"
        )
        search.fit(X, y)
        assert search.best_params_ == {"features__gamma": 0.5}, (
            f"the search over features__gamma chose {search.best_params_}: scores "
            f"{search.cv_results_['mean_test_score']}"
        )
        assert search.best_score_ > 0.5
