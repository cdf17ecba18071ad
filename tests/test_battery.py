"""A test of the tests: right maps pass the battery, and each broken one fails where it should."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from kernelsieve.testing import FeatureMapBattery, bias, check, check_feature_map
from kernelsieve.testing import data as shapes

# --- right maps, plainly written -----------------------------------------------------------------


class PlainMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What the plain maps share: parameters, validation, and threads that do nothing."""

    def __init__(
        self, n_components: Any = 16, gamma: Any = "scale", random_state: Any = None, n_jobs=None
    ) -> None:
        self.n_components = n_components
        self.gamma = gamma
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None) -> PlainMap:
        X = self._checked(X, reset=True)
        if not isinstance(self.n_components, int | np.integer):
            raise TypeError(f"n_components={self.n_components!r} is not an integer")
        if self.n_components < 1:
            raise ValueError(f"n_components={self.n_components!r} must be >= 1")
        self.n_components_ = int(self.n_components)
        self.gamma_ = self._gamma(X)
        self._draw(X, check_random_state(self.random_state))
        return self

    def _gamma(self, X: Any) -> float:
        if self.gamma == "scale":
            variance = X.multiply(X).mean() - X.mean() ** 2 if sp.issparse(X) else X.var()
            return 1.0 / (X.shape[1] * float(variance)) if variance > 1e-20 else 1.0
        if isinstance(self.gamma, str) or not 0 < self.gamma < np.inf:
            raise ValueError(f"gamma={self.gamma!r} must be 'scale' or a number > 0")
        return float(self.gamma)

    def _checked(self, X: Any, reset: bool) -> Any:
        X = validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], order="C"
        )
        if sp.issparse(X) and not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        return X

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class PlainFourier(PlainMap):
    """Random Fourier features: cosines and sines of one random projection."""

    def _draw(self, X: Any, rng: np.random.RandomState) -> None:
        self.pairs_ = max(1, self.n_components_ // 2)
        self.n_components_ = 2 * self.pairs_
        self.frequencies_ = np.sqrt(2 * self.gamma_) * rng.normal(size=(X.shape[1], self.pairs_))

    def transform(self, X: Any) -> Any:
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        angles = X @ self.frequencies_.astype(X.dtype)
        return np.hstack([np.cos(angles), np.sin(angles)]) / X.dtype.type(np.sqrt(self.pairs_))


class PlainNystrom(PlainMap):
    """Nystrom features: exact on the landmarks, so biased below full size."""

    def _draw(self, X: Any, rng: np.random.RandomState) -> None:
        X = shapes.as_dense(X).astype(np.float64)
        rows = rng.permutation(len(X))[: self.n_components_]
        self.n_components_ = len(rows)
        self.landmarks_ = X[rows]
        values, vectors = np.linalg.eigh(self._kernel(self.landmarks_, self.landmarks_))
        self.whitening_ = vectors / np.sqrt(np.maximum(values, 1e-12))

    def _kernel(self, X: Any, Y: Any) -> Any:
        return np.exp(-self.gamma_ * ((X[:, None, :] - Y[None, :, :]) ** 2).sum(axis=2))

    def transform(self, X: Any) -> Any:
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        Z = self._kernel(shapes.as_dense(X).astype(np.float64), self.landmarks_) @ self.whitening_
        return Z.astype(X.dtype)


@functools.cache
def lifting(data: bytes, shape: tuple[int, int], gamma: float) -> Any:
    """The oracle's lifting, computed once for all seeds."""
    X = np.frombuffer(data).reshape(shape)
    return oracles.lift_multisets(*oracles.gaussian_series(X, 10, gamma=gamma))[0]


class PlainRowNorm(PlainMap):
    """The paper's estimator on an explicit lifting of degree 10, i.i.d. by row norm."""

    def _draw(self, X: Any, rng: np.random.RandomState) -> None:
        self.rng_ = np.random.default_rng(rng.randint(2**31))
        self.Phi_ = lifting(X.tobytes(), X.shape, self.gamma_)

    def transform(self, X: Any) -> Any:
        norms = oracles.squared_row_norms(self.Phi_)
        return oracles.iid_estimator(self.Phi_, norms / norms.sum(), self.n_components_, self.rng_)


class PlainBattery(FeatureMapBattery):
    """The battery, without any of the library."""

    map_class: type[PlainMap] = PlainFourier

    def build(self, **overrides: Any) -> Any:
        return self.map_class(**{"n_components": 32, "random_state": 0, **overrides})

    def model(self, features: Any) -> Any:
        return Pipeline([("features", features), ("ridge", Ridge(alpha=1e-3))])


class TestPlainFourier(PlainBattery):
    """A right map passes everything."""

    unbiased_parameters = {"n_components": 64}  # noqa: RUF012


class TestPlainNystrom(PlainBattery):
    """So does one that is exact at full size only."""

    map_class = PlainNystrom
    unbiased = False
    # Whitening divides by the root of small eigenvalues: rounding grows with it.
    float32_tolerance = 1e-2

    def build_exact(self, X: Any) -> Any:
        return self.build(n_components=len(X), gamma=self.gamma)


class RowNormBattery(PlainBattery):
    map_class = PlainRowNorm
    unbiased_parameters = {"n_components": 400}  # noqa: RUF012


def test_an_importance_sampler_is_unbiased() -> None:
    """The test holds its level where the summands have heavy tails, not only for cosines."""
    RowNormBattery().test_unbiased()


# --- broken maps ---------------------------------------------------------------------------------


def broken(map_class: type[PlainMap], base: type[PlainBattery] = PlainBattery) -> PlainBattery:
    battery_class = type(f"Battery{map_class.__name__}", (base,), {"map_class": map_class})
    return battery_class()


def assert_fails(test: Any, *arguments: Any, match: str | None = None) -> None:
    """The battery's test must fail, with a message that says what a user would notice."""
    with pytest.raises((AssertionError, pytest.fail.Exception), match=match):
        test(*arguments)


class Biased(PlainFourier):
    """Z Z^T is 1.05 K."""

    def transform(self, X: Any) -> Any:
        Z = super().transform(X)
        return Z * Z.dtype.type(np.sqrt(1.05))


class BiasedPhase(PlainFourier):
    """One cosine with a phase: no functional of Z Z^T is exact. And Z Z^T is 0.95 K."""

    scale = 0.95

    def _draw(self, X: Any, rng: np.random.RandomState) -> None:
        shape = (X.shape[1], self.n_components_)
        self.frequencies_ = np.sqrt(2 * self.gamma_) * rng.normal(size=shape)
        self.phases_ = rng.uniform(0, 2 * np.pi, size=self.n_components_)

    def transform(self, X: Any) -> Any:
        Z = np.cos(X @ self.frequencies_ + self.phases_)
        return Z * np.sqrt(self.scale * 2 / self.n_components_)


class UnbiasedPhase(BiasedPhase):
    scale = 1.0


class BiasedOffDiagonal(PlainFourier):
    """The diagonal is right, the rest 5 % too small: the frequencies are a little too wide."""

    def _draw(self, X: Any, rng: np.random.RandomState) -> None:
        super()._draw(X, rng)
        self.frequencies_ *= 1.05


class BiasedRowNorm(PlainRowNorm):
    """Forgets the least important twentieth of the kernel's trace."""

    def _draw(self, X: Any, rng: np.random.RandomState) -> None:
        super()._draw(X, rng)
        norms = oracles.squared_row_norms(self.Phi_)
        order = np.argsort(-norms)
        self.Phi_ = self.Phi_[order[np.cumsum(norms[order]) <= 0.95 * norms.sum()]]


@pytest.mark.parametrize(
    ("map_class", "base"),
    [
        (Biased, PlainBattery),
        (BiasedPhase, PlainBattery),
        (BiasedOffDiagonal, PlainBattery),
        (BiasedRowNorm, RowNormBattery),
    ],
)
def test_a_bias_is_found(map_class: type[PlainMap], base: type[PlainBattery]) -> None:
    assert_fails(broken(map_class, base).test_unbiased, match="Z Z\\^T is biased")


def test_the_phase_variant_is_unbiased_without_the_scale() -> None:
    broken(UnbiasedPhase).test_unbiased()


def test_too_few_components_for_the_power_is_an_error_not_a_pass() -> None:
    weak = broken(UnbiasedPhase)
    weak.unbiased_parameters = {"n_components": 1}  # type: ignore[misc]
    assert_fails(weak.test_unbiased, match="raise n_components")


def test_power_and_level_of_the_unbiasedness_test() -> None:
    """Repeated 100 times on fresh seeds: never a false alarm, never a miss at 5 % either way."""
    X = shapes.points(6, 3, seed=11)
    K = oracles.gram(oracles.gaussian, X, gamma=0.5)
    rng = np.random.default_rng(0)
    s = 16

    def samples(count: int) -> Any:
        W = rng.normal(size=(count, 3, s))
        Z = np.cos(X @ W + rng.uniform(0, 2 * np.pi, size=(count, 1, s))) * np.sqrt(2 / s)
        return Z @ Z.transpose(0, 2, 1)

    directions = bias.bias_directions(K)
    critical = bias.critical_value(len(directions))

    def called_biased(G: Any) -> bool:
        return max(abs(z) for _, z in bias.bias_report(G, K).values()) > critical

    pilot = np.tensordot(samples(bias.PILOT_SEEDS), directions["overall scale"], axes=2)
    n_seeds = bias.seeds_needed(pilot.std(ddof=1), len(directions))
    assert n_seeds > bias.MINIMUM_SEEDS  # s is small enough for the rule to decide
    alarms = misses = 0
    for _ in range(100):
        G = samples(n_seeds)
        alarms += called_biased(G)
        misses += (not called_biased(1.05 * G)) + (not called_biased(0.95 * G))
    assert (alarms, misses) == (0, 0)


class InexactNystrom(PlainNystrom):
    def transform(self, X: Any) -> Any:
        return super().transform(X) * 1.001


def test_an_inexact_full_size_is_found() -> None:
    assert_fails(
        broken(InexactNystrom, TestPlainNystrom).test_exact_at_full_size, match="at full size"
    )


def test_a_biased_map_must_say_when_it_is_exact() -> None:
    claims_nothing = type("ClaimsNothing", (PlainBattery,), {"unbiased": False})()
    with pytest.raises(NotImplementedError, match="build_exact"):
        claims_nothing.test_exact_at_full_size()


class LosesFloat32(PlainFourier):
    def transform(self, X: Any) -> Any:
        return super().transform(X).astype(np.float64)


def test_a_lost_dtype_is_found() -> None:
    assert_fails(
        broken(LosesFloat32).test_float32_stays_float32, np.asarray, match="twice the memory"
    )
    assert_fails(broken(LosesFloat32).test_transform_follows_its_own_input_type)


class SloppyFloat32(PlainFourier):
    """Rounds its frequencies to half precision for float32 data."""

    def transform(self, X: Any) -> Any:
        if getattr(X, "dtype", None) == np.float32:
            self.frequencies_ = self.frequencies_.astype(np.float16).astype(float)
        return super().transform(X)


def test_sloppy_float32_is_found() -> None:
    assert_fails(broken(SloppyFloat32).test_float32_agrees_with_float64, match="float32 features")


class IntegersBecomeFloat32(PlainFourier):
    def transform(self, X: Any) -> Any:
        Z = super().transform(X)
        return Z.astype(np.float32) if np.asarray(X).dtype.kind in "iub" else Z


def test_integers_as_float32_are_found() -> None:
    assert_fails(
        broken(IntegersBecomeFloat32).test_integers_become_float64, np.int64, match="int64 input"
    )


class IgnoresTheSeed(PlainFourier):
    def _draw(self, X: Any, rng: np.random.RandomState) -> None:
        super()._draw(X, np.random.RandomState(0))


class DrawsFromNowhere(PlainFourier):
    def _draw(self, X: Any, rng: np.random.RandomState) -> None:
        super()._draw(X, np.random.RandomState())


class DrawsGlobally(PlainFourier):
    def _draw(self, X: Any, rng: np.random.RandomState) -> None:
        np.random.normal()  # noqa: NPY002
        super()._draw(X, rng)


class DrawsAtTransform(PlainFourier):
    def transform(self, X: Any) -> Any:
        Z = super().transform(X)
        self.frequencies_ = self.frequencies_[:, ::-1].copy()
        return Z


def test_a_wrong_use_of_the_seed_is_found() -> None:
    assert_fails(broken(IgnoresTheSeed).test_different_seeds_differ, match="has no effect")
    assert_fails(broken(DrawsFromNowhere).test_same_seed_same_features, match="a rerun gives")
    assert_fails(broken(DrawsAtTransform).test_same_seed_same_features, match="second transform")
    assert_fails(broken(DrawsGlobally).test_the_global_generator_is_left_alone, match="global")


class DependsOnThreads(PlainFourier):
    """One stream of random numbers per thread."""

    def _draw(self, X: Any, rng: np.random.RandomState) -> None:
        for _ in range(self.n_jobs or 1):
            super()._draw(X, rng)


class RoundsByThreads(PlainFourier):
    """Right to fifteen digits, but rows are split by the number of threads."""

    def transform(self, X: Any) -> Any:
        Z = super().transform(X)
        return Z * (1 + np.finfo(float).eps * ((self.n_jobs or 1) - 1))


def test_a_dependence_on_n_jobs_is_found() -> None:
    for map_class in (DependsOnThreads, RoundsByThreads):
        test = broken(map_class).test_threads_do_not_change_the_bits
        assert_fails(test, np.asarray, match="n_jobs=2 gives other bits")


class WritesToItsInput(PlainFourier):
    def transform(self, X: Any) -> Any:
        if isinstance(X, np.ndarray):
            X -= 1.0
        return super().transform(X)


class SumsDuplicatesInPlace(PlainFourier):
    def _checked(self, X: Any, reset: bool) -> Any:
        if sp.issparse(X) and X.format == "csr":
            X.sum_duplicates()
        return super()._checked(X, reset)


def test_a_modified_input_is_found() -> None:
    assert_fails(broken(WritesToItsInput).test_input_is_not_modified, "array", match="written to")
    with pytest.raises(ValueError, match="read-only"):
        broken(WritesToItsInput).test_read_only_input()
    for form in ("unsorted indices", "duplicate entries"):
        # A shorter array, or the same one in another order.
        assert_fails(broken(SumsDuplicatesInPlace).test_input_is_not_modified, form)


class DensifiesWrongly(PlainFourier):
    """Reads the stored values of a sparse row as its first columns."""

    def _checked(self, X: Any, reset: bool) -> Any:
        checked = super()._checked(X, reset)
        if not sp.issparse(checked):
            return checked
        wrong = np.zeros(checked.shape, dtype=checked.dtype)
        for i in range(checked.shape[0]):
            row = checked.data[checked.indptr[i] : checked.indptr[i + 1]]
            wrong[i, : len(row)] = row
        return wrong


class TrustsItsIndices(PlainNystrom):
    """Right for canonical CSR, wrong where an entry is stored in two parts."""

    def _checked(self, X: Any, reset: bool) -> Any:
        X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32])
        if sp.issparse(X):
            dense = np.zeros(X.shape, dtype=X.dtype)
            rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
            dense[rows, X.indices] = X.data
            X = dense
        return X


def test_sparse_unlike_dense_is_found() -> None:
    for form in ("csr_matrix", "csc_array", "coo_matrix"):
        assert_fails(
            broken(DensifiesWrongly).test_sparse_equals_dense,
            form,
            match=f"other features as {form}",
        )
    broken(TrustsItsIndices, TestPlainNystrom).test_sparse_equals_dense("csr_matrix")
    assert_fails(
        broken(TrustsItsIndices, TestPlainNystrom).test_sparse_equals_dense, "duplicate entries"
    )


def test_an_undeclared_container_is_found() -> None:
    declares = type("Declares", (PlainBattery,), {"sparse_output": True})()
    assert_fails(declares.test_sparse_output_is_as_declared, match="sparse_output = True")


class SilentOnNonsense(PlainFourier):
    """Takes any n_components and gamma, and any missing value."""

    def fit(self, X: Any, y: Any = None) -> PlainMap:
        X = np.nan_to_num(np.atleast_2d(np.asarray(X, dtype=float)))
        rng = np.random.RandomState(0)
        self.n_components_, self.gamma_, self.n_features_in_ = 8, 1.0, X.shape[1]
        self._draw(X, rng)
        return self


def test_silence_on_bad_input_is_found() -> None:
    silent = broken(SilentOnNonsense)
    assert_fails(silent.test_bad_n_components, -3, match="was raised")
    assert_fails(silent.test_bad_gamma, -1.0, match="was raised")
    assert_fails(silent.test_nan_and_infinity, np.asarray, np.nan, "NaN", match="was raised")
    assert_fails(silent.test_not_a_matrix_of_numbers, np.ones(5), "2D", match="was raised")


class DividesByTheVariance(PlainFourier):
    def _gamma(self, X: Any) -> float:
        return float(1.0 / np.asarray(shapes.as_dense(X)).var())


def test_division_by_zero_variance_is_found() -> None:
    with pytest.raises(RuntimeWarning, match="divide by zero"):
        broken(DividesByTheVariance).test_awkward_data(np.zeros((10, 4)), np.float64, np.asarray)


class Overflows(PlainFourier):
    def transform(self, X: Any) -> Any:
        Z = super().transform(X)
        return Z if np.abs(shapes.as_dense(X)).max() < 1e20 else Z * np.inf


class ComplainsVaguely(PlainFourier):
    def fit(self, X: Any, y: Any = None) -> PlainMap:
        if np.abs(shapes.as_dense(X)).max() > 1e20:
            raise ValueError("something is wrong")
        return super().fit(X)


def test_overflow_is_found() -> None:
    assert_fails(broken(Overflows).test_huge_values, np.asarray, 0.5, match="not finite")
    assert_fails(
        broken(ComplainsVaguely).test_huge_values, np.asarray, 0.5, match="does not name the value"
    )


class SameNames(PlainFourier):
    def get_feature_names_out(self, input_features: Any = None) -> Any:
        check_is_fitted(self)
        return np.array(["feature"] * self.n_components_, dtype=object)


class RemembersTheFirstFit(PlainFourier):
    def fit(self, X: Any, y: Any = None) -> PlainMap:
        kept = getattr(self, "gamma_", None)
        super().fit(X)
        if kept is not None:
            self.gamma_ = kept
            self._draw(self._checked(X, reset=True), check_random_state(self.random_state))
        return self


class IgnoresGamma(PlainFourier):
    """Takes a gamma, and then a kernel of another width."""

    def _gamma(self, X: Any) -> float:
        return 1e6


def test_other_broken_promises_are_found() -> None:
    assert_fails(broken(SameNames).test_feature_names_out, match="the same name")
    assert_fails(broken(RemembersTheFirstFit).test_refit_forgets_the_first_fit, match="remembers")
    assert_fails(broken(IgnoresGamma).test_grid_search_over_gamma, match="chose|assert")


# --- the battery by a call -----------------------------------------------------------------------

QUICK = ("test_unbiased", "test_threads_do_not_change_the_bits", "test_scikit_learn")


def plain_fourier(**overrides: Any) -> PlainFourier:
    return PlainFourier(**{"n_components": 16, "random_state": 0, **overrides})


def test_a_right_map_passes_by_a_call() -> None:
    names = check_feature_map(plain_fourier, leave_out=QUICK)
    assert "test_sparse_equals_dense['coo_array']" in names
    assert "scikit-learn: check_estimators_dtypes" in names
    assert not any(name.startswith(QUICK) for name in names)


def test_a_wrong_map_fails_by_a_call_and_says_where() -> None:
    class Wide(PlainFourier):
        def transform(self, X: Any) -> Any:
            return super().transform(X).astype(np.float64)  # float32 in, float64 out

    def make(**overrides: Any) -> Wide:
        return Wide(**{"n_components": 16, "random_state": 0, **overrides})

    with pytest.raises(AssertionError, match=r"test_float32_stays_float32\[asarray\]"):
        check_feature_map(make, leave_out=QUICK)


def test_hooks_of_a_call_reach_the_battery() -> None:
    battery = check._battery(plain_fourier, False, lambda X: "exact", lambda X: "kernel")
    made = battery()
    assert (made.unbiased, made.build_exact(None), made.gram(None)) == (False, "exact", "kernel")
    every = {name for name, _ in check._scikit_learn(battery)}
    battery.expected_failed_checks = {"check_estimators_dtypes": "as a test"}
    assert every - {name for name, _ in check._scikit_learn(battery)} == {
        "scikit-learn: check_estimators_dtypes"
    }
