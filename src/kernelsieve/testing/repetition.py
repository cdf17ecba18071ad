"""Tests of what must not change: features of the same seed, and the rows of the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelsieve.testing.data import (
    SPARSE_FORMS,
    Array,
    as_dense,
    points,
    sparse_points,
    stored_arrays,
)
from kernelsieve.testing.expectations import cases
from kernelsieve.testing.hooks import Hooks


class RandomnessTests(Hooks):
    """Seeds and threads."""

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


class InputTests(Hooks):
    """What is done to the input."""

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
