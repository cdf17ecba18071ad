"""One battery that every feature map passes, given only how to build it.

For pytest, subclass `FeatureMapBattery` under a name that begins with "Test":

    class TestFourier(FeatureMapBattery):
        def build(self, **overrides):
            return FourierFeatures(**{"n_components": 32, "random_state": 0, **overrides})

and pytest collects every test below for it, scikit-learn's own estimator checks included. Class
attributes say what differs between maps; see their comments. ``check_feature_map`` runs the same
tests by a call.
"""

from __future__ import annotations

import copy
import pickle
import re
import warnings
from collections.abc import Callable
from typing import Any, ClassVar
from unittest import SkipTest

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

from kernelsieve.testing.bias import (
    DETECTABLE_BIAS,
    PILOT_SEEDS,
    bias_directions,
    bias_report,
    critical_value,
    seeds_needed,
)
from kernelsieve.testing.data import (
    SPARSE_FORMS,
    Array,
    as_dense,
    points,
    sparse_points,
    stored_arrays,
)
from kernelsieve.testing.expectations import cases, cases_of, needed, refused


class FeatureMapBattery:
    """Subclass it, implement `build`, and set the attributes that differ."""

    #: E[Z Z^T] = K at any n_components. If False, implement `build_exact`.
    unbiased: ClassVar[bool] = True
    #: Sparse input gives sparse output.
    sparse_output: ClassVar[bool] = False
    #: scikit-learn checks that cannot hold, with the reason: {"check_name": "why"}.
    expected_failed_checks: ClassVar[dict[str, str]] = {}
    #: gamma of the tests that compare with the kernel.
    gamma: ClassVar[float] = 0.5
    #: Parameters of the maps in the unbiasedness test, e.g. more components for more power.
    unbiased_parameters: ClassVar[dict[str, Any]] = {}
    #: The unbiasedness test refuses to run longer than this, rather than to run without power.
    maximum_seeds: ClassVar[int] = 4000
    #: Relative bias that is none: what truncating a series may cost.
    negligible_bias: ClassVar[float] = 1e-5
    #: Error of Z Z^T allowed to `build_exact`, relative to the largest kernel value.
    exact_tolerance: ClassVar[float] = 1e-6
    #: Largest difference of float32 and float64 features, relative to the largest feature.
    float32_tolerance: ClassVar[float] = 1e-4

    # --- hooks -----------------------------------------------------------------------------------

    def build(self, **overrides: Any) -> Any:
        """A small map (n_components <= 64) with a fixed random_state; `overrides` win."""
        raise NotImplementedError

    def build_exact(self, X: Array) -> Any:
        """A map that, fitted to X, reproduces K on X (for maps with unbiased = False)."""
        raise NotImplementedError(
            "a map with unbiased = False must show when it is exact: implement build_exact(X)"
        )

    def gram(self, X: Array) -> Array:
        """The kernel matrix that Z Z^T estimates at `self.gamma`."""
        return rbf_kernel(X, gamma=self.gamma)

    def model(self, features: Any) -> Any:
        """A regressor in which ``features__gamma`` is the gamma of the map."""
        from kernelsieve import KernelRidge
        from kernelsieve.features import FeatureMap

        if isinstance(features, FeatureMap):
            return KernelRidge(features=features, alpha=1e-3)
        return Pipeline([("features", features), ("ridge", Ridge(1e-3))])

    # --- helpers ---------------------------------------------------------------------------------

    def build_with(self, **wanted: Any) -> Any:
        """`build` with those of the wanted parameters that the map has."""
        known = self.build().get_params()
        return self.build(**{name: value for name, value in wanted.items() if name in known})

    def require(self, *names: str) -> None:
        missing = set(names) - set(self.build().get_params())
        if missing:
            raise SkipTest(f"the map has no parameter {', '.join(sorted(missing))}")

    # --- scikit-learn's own checks ---------------------------------------------------------------

    def pytest_generate_tests(self, metafunc: Any) -> None:
        for case in cases_of(metafunc.function):
            metafunc.parametrize(",".join(case.names), case.values, ids=case.ids)
        if "check" not in metafunc.fixturenames:
            return
        import pytest

        parameters = []
        for estimator, check in estimator_checks_generator(self.build()):
            name = check.func.__name__
            options = [f"{key}={value}" for key, value in check.keywords.items()]
            reason = self.expected_failed_checks.get(name)
            # Strict: a check that begins to pass must leave the list.
            marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
            parameters.append(
                pytest.param(estimator, check, marks=marks, id="-".join([name, *options]))
            )
        metafunc.parametrize("estimator, check", parameters)

    def test_scikit_learn(self, estimator: Any, check: Callable[[Any], None]) -> None:
        check(estimator)

    # --- shapes and containers -------------------------------------------------------------------

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

    # --- float types -----------------------------------------------------------------------------

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

    # --- randomness ------------------------------------------------------------------------------

    def test_same_seed_same_features(self) -> None:
        X = points()
        first = as_dense(self.build(random_state=7).fit_transform(X))
        second = as_dense(self.build(random_state=7).fit_transform(X))
        np.testing.assert_array_equal(second, first, err_msg="a rerun gives other features")
        estimator = self.build(random_state=7).fit(X)
        np.testing.assert_array_equal(
            as_dense(estimator.fit(X).transform(X)), first, err_msg="a refit gives other features"
        )
        np.testing.assert_array_equal(
            as_dense(estimator.transform(X)), first, err_msg="a second transform differs"
        )

    def test_different_seeds_differ(self) -> None:
        X = points()
        first = as_dense(self.build(random_state=1).fit_transform(X))
        second = as_dense(self.build(random_state=2).fit_transform(X))
        assert first.shape != second.shape or not np.allclose(first, second), (
            "random_state has no effect"
        )

    def test_random_state_instance(self) -> None:
        X = points()
        one = self.build(random_state=np.random.RandomState(3)).fit_transform(X)
        two = self.build(random_state=np.random.RandomState(3)).fit_transform(X)
        np.testing.assert_array_equal(as_dense(one), as_dense(two))

    def test_the_global_generator_is_left_alone(self) -> None:
        before = repr(np.random.get_state(legacy=False))  # noqa: NPY002
        self.build(random_state=3).fit_transform(points())
        after = repr(np.random.get_state(legacy=False))  # noqa: NPY002
        assert after == before, "a seeded fit consumed numpy's global random numbers"

    @cases("container", [np.asarray, sp.csr_matrix])
    def test_threads_do_not_change_the_bits(self, container: Callable[[Array], Any]) -> None:
        self.require("n_jobs")
        # Enough rows for several blocks, also where a block is large, and a ragged last one.
        X = container(points(6001, 3, seed=2))
        first = as_dense(self.build_with(n_jobs=1, block_rows=512).fit_transform(X))
        for n_jobs in (2, 4):
            other = as_dense(self.build_with(n_jobs=n_jobs, block_rows=512).fit_transform(X))
            np.testing.assert_array_equal(
                other, first, err_msg=f"n_jobs={n_jobs} gives other bits than n_jobs=1"
            )

    # --- what is done to the input ---------------------------------------------------------------

    @cases("form", ["array", *SPARSE_FORMS])
    def test_input_is_not_modified(self, form: str) -> None:
        X = sparse_points() if form == "array" else SPARSE_FORMS[form](sparse_points())
        before = stored_arrays(X)
        self.build().fit(X).transform(X)
        for kept, now in zip(before, stored_arrays(X), strict=True):
            np.testing.assert_array_equal(now, kept, err_msg=f"the caller's {form} was written to")

    def test_read_only_input(self) -> None:
        X = points()
        expected = as_dense(self.build().fit_transform(X))
        X.setflags(write=False)
        np.testing.assert_array_equal(as_dense(self.build().fit(X).transform(X)), expected)

    def test_read_only_sparse_input(self) -> None:
        A = sp.csr_matrix(sparse_points())
        expected = as_dense(self.build().fit_transform(A))
        for array in (A.data, A.indices, A.indptr):
            array.setflags(write=False)
        np.testing.assert_array_equal(as_dense(self.build().fit(A).transform(A)), expected)

    def test_memory_order_does_not_matter(self) -> None:
        X = points()
        wide = np.zeros((2 * X.shape[0], 3 * X.shape[1]))
        wide[::2, ::3] = X
        expected = as_dense(self.build().fit_transform(X))
        for other in (np.asfortranarray(X), wide[::2, ::3], X[::-1][::-1]):
            np.testing.assert_allclose(
                as_dense(self.build().fit_transform(other)), expected, rtol=1e-10, atol=1e-12
            )

    # --- the kernel ------------------------------------------------------------------------------

    def gram_sample(self, X: Array, seed: int) -> Array:
        parameters = {"gamma": self.gamma, **self.unbiased_parameters, "random_state": seed}
        Z = as_dense(self.build_with(**parameters).fit_transform(X))
        return Z @ Z.T

    def test_unbiased(self) -> None:
        """E[Z Z^T] = K over seeds, with the power to see a relative bias of 5 %."""
        if not self.unbiased:
            raise SkipTest("the map is not unbiased: see test_exact_at_full_size")
        X = points(6, 3, seed=11)
        K = self.gram(X)
        # The pilot's seeds only choose how many of the others to use: no peeking.
        pilot = np.stack([self.gram_sample(X, 10**6 + seed) for seed in range(PILOT_SEEDS)])
        overall = np.tensordot(pilot, bias_directions(K)["overall scale"], axes=2)
        n_seeds = seeds_needed(float(overall.std(ddof=1)), len(bias_directions(K)))
        assert n_seeds <= self.maximum_seeds, (
            f"{n_seeds} seeds are needed to see a bias of {DETECTABLE_BIAS:.0%}: raise "
            "n_components in unbiased_parameters, or maximum_seeds"
        )
        samples = np.stack([self.gram_sample(X, seed) for seed in range(n_seeds)])
        report = bias_report(samples, K, self.negligible_bias)
        worst = max(report, key=lambda name: abs(report[name][1]))
        bias, z = report[worst]
        assert abs(z) <= critical_value(len(report)), (
            f"Z Z^T is biased: {worst} is off by {bias:+.3g}, {z:+.1f} standard errors over "
            f"{n_seeds} seeds; overall scale {1 + report['overall scale'][0]:.4f} instead of 1"
        )

    def test_exact_at_full_size(self) -> None:
        """Maps without the unbiasedness property are exact when nothing is left out."""
        if self.unbiased:
            raise SkipTest("the map is unbiased: see test_unbiased")
        X = points(12, 3, seed=11)
        K = self.gram(X)
        Z = as_dense(self.build_exact(X).fit(X).transform(X))
        error = np.abs(Z @ Z.T - K).max() / np.abs(K).max()
        assert error <= self.exact_tolerance, (
            f"at full size Z Z^T should be K, but differs by {error:.1e} of its largest entry"
        )

    # --- names, frames, copies -------------------------------------------------------------------

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

    # --- bad input -------------------------------------------------------------------------------

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

    # --- awkward but legal input -----------------------------------------------------------------

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
