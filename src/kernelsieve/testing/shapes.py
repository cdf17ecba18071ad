"""Tests of what a map takes and gives: shapes, containers, float types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelsieve.testing.data import SPARSE_FORMS, Array, as_dense, points, sparse_points
from kernelsieve.testing.expectations import cases
from kernelsieve.testing.hooks import Hooks


class ShapeTests(Hooks):
    """Shapes and containers."""

    def test_shape_and_n_components(self) -> None:
        X = points()
        estimator = self.build()
        assert estimator.fit(X) is estimator, "fit must return self, for chaining"
        Z = estimator.transform(X)
        assert Z.shape == (len(X), estimator.n_components_), (
            "n_components_ does not say how many columns transform returns"
        )
        asked = estimator.get_params().get("n_components")
        if isinstance(asked, int):
            assert estimator.n_components_ <= asked, "more columns than n_components asked for"
        assert estimator.n_features_in_ == X.shape[1]

    def test_numpy_integer_n_components(self) -> None:
        self.require("n_components")
        Z = self.build(n_components=np.int64(8)).fit_transform(points())
        assert Z.shape[1] <= 8

    def test_fit_transform_is_fit_then_transform(self) -> None:
        X = points()
        both = as_dense(self.build().fit_transform(X))
        np.testing.assert_allclose(
            both, as_dense(self.build().fit(X).transform(X)), rtol=1e-10, atol=1e-12
        )

    def test_refit_forgets_the_first_fit(self) -> None:
        X = points()
        fresh = as_dense(self.build().fit(X).transform(X))
        estimator = self.build().fit(points(30, 9, seed=5))
        again = as_dense(estimator.fit(X).transform(X))
        assert estimator.n_features_in_ == X.shape[1]
        np.testing.assert_array_equal(
            again, fresh, err_msg="a second fit remembers something of the first data"
        )

    @cases("form", SPARSE_FORMS)
    def test_sparse_equals_dense(self, form: str) -> None:
        X = sparse_points()
        A = SPARSE_FORMS[form](X)
        same = {"rotate": False, "center": False, "basis": "monomial"}
        dense_fit = self.build_with(**same).fit(X)
        sparse_fit = self.build_with(**same).fit(A)
        Z = as_dense(dense_fit.transform(X))
        tolerance = 1e-8 * np.abs(Z).max()
        message = f"the same data gives other features as {form} than as an array"
        for fitted, data in [(dense_fit, A), (sparse_fit, A), (sparse_fit, X)]:
            np.testing.assert_allclose(
                as_dense(fitted.transform(data)), Z, rtol=0, atol=tolerance, err_msg=message
            )

    def test_sparse_output_is_as_declared(self) -> None:
        A = sp.csr_array(sparse_points())
        Z = self.build_with(rotate=False, center=False, basis="monomial").fit_transform(A)
        assert sp.issparse(Z) == self.sparse_output, (
            f"sparse input gave {type(Z).__name__}, the map declares "
            f"sparse_output = {self.sparse_output}"
        )


class FloatTypeTests(Hooks):
    """Float types of rows and features."""

    @cases("container", [np.asarray, sp.csr_matrix])
    def test_float32_stays_float32(self, container: Callable[[Array], Any]) -> None:
        X = points().astype(np.float32)
        estimator = self.build().fit(container(X))
        assert estimator.transform(container(X)).dtype == np.float32, (
            "float32 input came back in another type: twice the memory that was asked for"
        )
        assert self.build().fit_transform(container(X)).dtype == np.float32

    def test_transform_follows_its_own_input_type(self) -> None:
        X = points()
        estimator = self.build().fit(X)
        assert estimator.transform(X.astype(np.float32)).dtype == np.float32
        estimator = self.build().fit(X.astype(np.float32))
        assert estimator.transform(X).dtype == np.float64

    @cases("dtype", [np.int64, np.int32, np.uint8, bool])
    def test_integers_become_float64(self, dtype: type) -> None:
        X: Any = (10 * np.abs(points())).astype(dtype)
        Z = self.build().fit_transform(X)
        assert Z.dtype == np.float64, f"{np.dtype(dtype).name} input gave {Z.dtype} features"
        np.testing.assert_allclose(
            as_dense(Z), as_dense(self.build().fit_transform(X.astype(np.float64)))
        )

    def test_float32_agrees_with_float64(self) -> None:
        X = points().astype(np.float32)
        Z64 = as_dense(self.build().fit_transform(X.astype(np.float64)))
        Z32 = as_dense(self.build().fit_transform(X))
        assert Z32.shape == Z64.shape
        error = np.abs(Z32 - Z64).max() / np.abs(Z64).max()
        assert error <= self.float32_tolerance, (
            f"float32 features differ from the float64 ones by {error:.1e} of the largest"
        )

    def test_list_of_lists(self) -> None:
        X = points()
        np.testing.assert_array_equal(
            as_dense(self.build().fit_transform(X.tolist())),
            as_dense(self.build().fit_transform(X)),
        )
