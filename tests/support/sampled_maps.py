"""What tests of the sampled maps share: kernels, small data, unbiasedness."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV

from kernelsieve._random import keyed_rows
from kernelsieve.engine import space
from kernelsieve.kernels import (
    DotProduct,
    Exponential,
    Gaussian,
    InversePolynomial,
    Matern,
    Polynomial,
)
from kernelsieve.testing import FeatureMapBattery
from kernelsieve.testing.bias import bias_report, critical_value
from kernelsieve.testing.data import SPARSE_FORMS, as_dense, points, sparse_points
from support.engine_options import set_options
from support.limits import time_limit

Array = Any


def make_small(monkeypatch: pytest.MonkeyPatch, max_draws: int = 20_000) -> None:
    """Constants for small data. Every one of them may have any value without a bias."""
    sizes = {"batch": 512, "n_anchors": (300, 300), "dimension_rows": 100}
    set_options(monkeypatch, max_draws=max_draws, **sizes)


class SampledBattery(FeatureMapBattery):
    """The battery for a sampled map with one kernel, frame and basis."""

    map_class: ClassVar[Any]
    parameters: ClassVar[dict[str, Any]] = {}
    dense_only: ClassVar[bool] = False
    sparse_output: ClassVar[bool] = True
    # The truncation is bounded by alpha: with a small one it is below the negligible bias.
    unbiased_parameters: ClassVar[dict[str, Any]] = {"alpha": 1e-3}

    def build(self, **overrides: Any) -> Any:
        defaults = {"n_components": 32, "random_state": 0}
        return self.map_class(**{**defaults, **self.parameters, **overrides})

    @pytest.fixture(autouse=True)
    def small(
        self, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
    ) -> Iterator[None]:
        make_small(monkeypatch)
        given = getattr(getattr(request.node, "callspec", None), "params", {})
        sparse = given.get("container") is sp.csr_matrix or given.get("form") in SPARSE_FORMS
        sparse = sparse or request.function.__name__ == "test_read_only_sparse_input"
        if self.dense_only and sparse and "equals_dense" not in request.function.__name__:
            pytest.skip("this frame or basis is for dense data: see the bad input")
        if not isinstance(self.parameters.get("kernel", ""), str) and given.get("gamma") == 0.5:
            pytest.skip("the kernel object has no gamma")
        with time_limit(120):
            yield

    @pytest.mark.parametrize("form", SPARSE_FORMS)
    def test_sparse_equals_dense(self, form: str) -> None:
        """The same features with the same names; their order is that of each prefix tree."""
        X = sparse_points()
        A = SPARSE_FORMS[form](X)
        same = {"rotate": False, "center": False, "basis": "monomial"}
        dense_fit, sparse_fit = self.build(**same).fit(X), self.build(**same).fit(A)
        Z = as_dense(dense_fit.transform(X))
        names = list(dense_fit.get_feature_names_out())
        assert sorted(sparse_fit.get_feature_names_out()) == sorted(names)
        order = [list(sparse_fit.get_feature_names_out()).index(name) for name in names]
        close = {"rtol": 0, "atol": 1e-8 * np.abs(Z).max()}
        np.testing.assert_allclose(as_dense(dense_fit.transform(A)), Z, **close)
        np.testing.assert_allclose(as_dense(sparse_fit.transform(A))[:, order], Z, **close)
        np.testing.assert_allclose(as_dense(sparse_fit.transform(X))[:, order], Z, **close)

    def test_grid_search_over_gamma(self) -> None:
        """gamma = 1e-9 makes all points alike; 1e6 is beyond every Taylor series."""
        if not isinstance(self.parameters.get("kernel", ""), str):
            pytest.skip("the kernel object has no gamma")
        X = points(120, 3, seed=4)
        y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2
        grid = {"features__gamma": [1e-9, 0.5]}
        search = GridSearchCV(self.model(self.build()), grid, cv=3, error_score="raise").fit(X, y)
        assert search.best_params_ == {"features__gamma": 0.5}
        assert search.best_score_ > 0.5

    def test_says_that_it_is_unbiased(self) -> None:
        assert self.map_class.unbiased


class GaussianMonomials:
    parameters: ClassVar = {"rotate": False, "basis": "monomial"}


class GaussianRotated:
    parameters: ClassVar = {"rotate": True, "basis": "monomial"}
    dense_only: ClassVar = True


class GaussianMercer:
    parameters: ClassVar = {"rotate": False, "basis": "mercer"}
    dense_only: ClassVar = True


class GaussianAuto:
    """Everything as it comes by default."""


class PolynomialVariant:
    parameters: ClassVar = {"kernel": "poly", "degree": 3, "coef0": 1.0, "rotate": False}
    unbiased_parameters: ClassVar = {"n_components": 9}

    def gram(self, X: Array) -> Array:
        return oracles.gram(oracles.polynomial, X, degree=3, gamma=self.gamma, coef0=1.0)


class ExponentialVariant:
    parameters: ClassVar = {"kernel": "exponential", "rotate": False}
    expected_failed_checks: ClassVar = dict.fromkeys(
        ["check_fit_idempotent", "check_fit_check_is_fitted", "check_n_features_in"],
        "their X is 100 away from the origin, where exp(gamma |x|^2) is no float64",
    )

    def gram(self, X: Array) -> Array:
        return oracles.gram(oracles.exponential, X, gamma=self.gamma)


class InversePolynomialVariant:
    """shift = 1e5 holds whatever the battery brings; unbiasedness is tested at shift = 2.5."""

    parameters: ClassVar = {"kernel": InversePolynomial(1e5), "rotate": False}
    unbiased_parameters: ClassVar = {
        "kernel": InversePolynomial(2.5),
        "gamma": "scale",
        "alpha": 1e-3,
    }

    def gram(self, X: Array) -> Array:
        return oracles.gram(oracles.inverse_polynomial, X, shift=2.5)

    def test_different_seeds_differ(self) -> None:
        X = points()
        fits = [
            self.build(kernel=InversePolynomial(3.0), random_state=seed).fit(X) for seed in (1, 2)
        ]
        assert fits[0].monomials_ != fits[1].monomials_


class DotProductVariant:
    parameters: ClassVar = {"kernel": DotProduct([1.0, 0.5, 0.0, 0.25, 0.1]), "rotate": False}
    unbiased_parameters: ClassVar = {"gamma": "scale", "n_components": 9}

    def gram(self, X: Array) -> Array:
        return oracles.gram(oracles.dot_product, X, coefficients=[1.0, 0.5, 0.0, 0.25, 0.1])


class PaperVariant(PolynomialVariant):
    """The published samplers: independent draws need many to see all 20 monomials."""

    parameters: ClassVar = {**PolynomialVariant.parameters, "sampler": "paper"}
    unbiased_parameters: ClassVar = {"n_components": 64, "alpha": 4.0}

    def model(self, features: Any) -> Any:
        return super().model(features.set_params(n_components=256))


LONELY_ROW, LONELY_COLUMN = 5, 3


def lonely_points(n: int = 12, sparse: bool = False) -> Array:
    """Rows of squared norm below 1.4; the last column is nonzero in one row only."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 4))
    if sparse:
        X *= rng.random((n, 4)) < 0.6
        X[2] = 0.0
    X[:, LONELY_COLUMN] = 0.0
    X[LONELY_ROW] = [0.6, -0.5, 0.4, 0.7]
    return X / np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True) / 1.18)


def gram_of(kernel: Any, X: Array) -> Array:
    """The oracle's matrix, whatever the kernel."""
    match kernel:
        case Gaussian(gamma):
            return oracles.gram(oracles.gaussian, X, gamma=gamma)
        case Polynomial(degree, gamma, coef0):
            return oracles.gram(oracles.polynomial, X, degree=degree, gamma=gamma, coef0=coef0)
        case Exponential(gamma):
            return oracles.gram(oracles.exponential, X, gamma=gamma)
        case InversePolynomial(shift):
            return oracles.gram(oracles.inverse_polynomial, X, shift=shift)
        case DotProduct(coefficients):
            return oracles.gram(oracles.dot_product, X, coefficients=coefficients)
    raise AssertionError(kernel)


#: name -> (parameters, whether X is CSR). The sizes leave most features out.
UNBIASED: dict[str, tuple[dict[str, Any], bool]] = {
    "gaussian": ({"kernel": Gaussian(0.5), "basis": "monomial", "rotate": False}, False),
    "gaussian rotated": ({"kernel": Gaussian(0.5), "basis": "monomial", "rotate": True}, False),
    "mercer": ({"kernel": Gaussian(0.5), "basis": "mercer", "rotate": False}, False),
    "mercer rotated": ({"kernel": Gaussian(0.5), "basis": "mercer", "rotate": True}, False),
    "auto": ({"kernel": Gaussian(0.5)}, False),
    "polynomial": ({"kernel": Polynomial(5, 0.5, 1.0), "rotate": False}, False),
    "polynomial rotated": ({"kernel": Polynomial(5, 0.5, 1.0), "rotate": True}, False),
    "homogeneous": ({"kernel": Polynomial(4, 1.0, 0.0), "rotate": False}, False),
    "exponential": ({"kernel": Exponential(1.0), "rotate": False}, False),
    "inverse polynomial": ({"kernel": InversePolynomial(2.0), "rotate": False}, False),
    "dot product": ({"kernel": DotProduct([1.0, 0.0, 0.5, 0.3, 0.0, 0.2]), "rotate": False}, False),
    "gaussian csr": ({"kernel": Gaussian(0.5)}, True),
    "polynomial csr": ({"kernel": Polynomial(5, 0.5, 1.0)}, True),
    "exponential csr": ({"kernel": Exponential(1.0)}, True),
    "inverse polynomial csr": ({"kernel": InversePolynomial(2.0)}, True),
    "dot product csr": ({"kernel": DotProduct([1.0, 0.0, 0.5, 0.3, 0.0, 0.2])}, True),
}


QUICK_SEEDS, SLOW_SEEDS = 160, 2000


def assert_unbiased(
    build: Callable[[int], Any], X: Any, K: Array, seeds: Iterable[int], y: Any = None
) -> None:
    """Entries, scales and eigenvectors of the mean of Z Z^T, at the battery's Bonferroni level."""
    samples = []
    for seed in seeds:
        Z = as_dense(build(seed).fit(X, y).transform(X))
        assert np.isfinite(Z).all(), f"seed {seed}: features are not finite"
        samples.append(Z @ Z.T)
    report = bias_report(np.stack(samples), K, 1e-5)
    worst = max(report, key=lambda name: abs(report[name][1]))
    bias, z = report[worst]
    assert abs(z) <= critical_value(len(report)), (
        f"Z Z^T is biased: {worst} is off by {bias:+.3g}, {z:+.1f} standard errors over "
        f"{len(samples)} seeds; overall scale {1 + report['overall scale'][0]:.4f}"
    )


def check_unbiased(
    map_class: Any, name: str, seeds: Iterable[int], y: Any = None, **overrides: Any
) -> None:
    parameters, sparse = UNBIASED[name]
    X = lonely_points(sparse=sparse)
    assert_unbiased(
        lambda seed: map_class(
            **{"n_components": 14, "alpha": 1e-3, "n_jobs": 1, **parameters, **overrides},
            random_state=seed,
        ),
        sp.csr_array(X) if sparse else X,
        gram_of(parameters["kernel"], X),
        seeds,
        y,
    )


def other_seeds(count: int, rows: int = 4) -> list[int]:
    """Seeds under which the lonely row is not one of the proposal rows."""
    without = (s for s in range(10**6) if LONELY_ROW not in keyed_rows(12, rows, s, "proposal"))
    return [next(without) for _ in range(count)]


def few_proposal_rows(monkeypatch: pytest.MonkeyPatch, rows: int = 4) -> None:
    make_small(monkeypatch)
    set_options(monkeypatch, proposal_rows=rows, spread_share=0.3)


def check_every_monomial(
    map_class: Any, seeds: Iterable[int], y: Any = None, **parameters: Any
) -> None:
    """E[w_m^2; m chosen] = 1 for each of the 35 monomials of degree 3: feature by feature."""
    X, names = lonely_points(), list(oracles.multisets(4, 3))
    place = {m: i for i, m in enumerate(names)}
    squares = []
    for seed in seeds:
        fitted = map_class(
            kernel=Polynomial(3, 1.0, 0.5), rotate=False, n_jobs=1, random_state=seed, **parameters
        ).fit(X, y)
        squares.append(np.zeros(len(names)))
        squares[-1][[place[m] for m in fitted.monomials_]] = fitted.weights_**2
    squares = np.array(squares)
    mean = squares.mean(axis=0)
    # The variance is (1 - pi) / pi = w^2 - 1; a sample without any rare miss would hide it.
    variance = np.maximum(squares.var(axis=0, ddof=1), squares.max(axis=0) - 1.0)
    error = np.sqrt(variance / len(squares))
    times = (squares > 0).sum(axis=0)
    lost = [m for m in names if len(m) <= 2 and times[place[m]] == 0]
    assert not lost, f"never chosen in {len(squares)} runs: {lost}"
    # A feature that came a few times says nothing by itself.
    seen = times >= 25
    assert seen.mean() > 0.6
    z = (mean - 1.0)[seen] / np.maximum(error[seen], 1e-9)
    assert np.abs(z).max() < 5.0, {
        m: (round(a, 3), int(t)) for m, a, t in zip(names, mean, times, strict=True)
    }


def data(n: int = 60, d: int = 3, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(n, d))


def assert_exact(fitted: Any, X: Any, K: Array, tolerance: float = 1e-12) -> None:
    Z = as_dense(fitted.transform(X))
    np.testing.assert_allclose(Z @ Z.T, K, rtol=0, atol=tolerance * np.abs(K).max())


class SampledContract:
    """Subclass it with `map_class` under a name that begins with "Test"."""

    map_class: ClassVar[Any]

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        make_small(monkeypatch)
        with time_limit(120):
            yield

    def build(self, *arguments: Any, **parameters: Any) -> Any:
        return self.map_class(*arguments, **{"random_state": 0, **parameters})

    # --- exactness -------------------------------------------------------------------------------

    @pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
    @pytest.mark.parametrize("size", [20, 21, 500])
    def test_all_monomials_reproduce_the_kernel(
        self, size: int, container: Callable[[Array], Any]
    ) -> None:
        """(x . y / 2 + 1)^3 over three columns has 20 monomials."""
        X = data()
        X[4] = 0.0
        kernel = Polynomial(3, 0.5, 1.0)
        fitted = self.build(size, kernel=kernel, rotate=False).fit(container(X))
        assert fitted.n_components_ == 20
        assert sorted(fitted.monomials_) == sorted(oracles.multisets(3, 3))
        np.testing.assert_array_equal(fitted.weights_, 1.0)
        assert_exact(fitted, container(X), gram_of(kernel, X))
        new = data(seed=1)  # and on rows that were not there
        assert_exact(fitted, container(new), gram_of(kernel, new))

    @pytest.mark.parametrize(
        ("kernel", "count"),
        [
            (Polynomial(4, 1.0, 0.0), 15),
            (DotProduct([0.0, 1.0]), 3),
            (DotProduct([2.0]), 1),
            (DotProduct([1.0, 0.0, 0.5, 0.0, 0.25]), 1 + 6 + 15),
            (Polynomial(1, 1.0, 3.0), 4),
        ],
    )
    @pytest.mark.parametrize("rotate", [False, True])
    def test_all_monomials_of_other_kernels(self, kernel: Any, count: int, rotate: bool) -> None:
        X = data()
        fitted = self.build(40, kernel=kernel, rotate=rotate).fit(X)
        assert fitted.n_components_ == count
        assert_exact(fitted, X, gram_of(kernel, X))

    @pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
    def test_constant_and_zero_columns(self, container: Callable[[Array], Any]) -> None:
        """A column of zeros adds no monomial; a constant one is a column like any other."""
        X = data(d=4)
        X[:, 1], X[:, 2] = 0.0, -1.5
        kernel = Polynomial(3, 0.5, 1.0)
        fitted = self.build(200, kernel=kernel, rotate=False).fit(container(X))
        assert fitted.n_components_ == 20
        assert all(1 not in m for m in fitted.monomials_)
        assert_exact(fitted, container(X), gram_of(kernel, X))

    def test_rotated_data_of_low_rank(self) -> None:
        """Four columns of rank two: in its own frame the kernel has 10 monomials, not 35."""
        X = data(d=2) @ np.random.default_rng(1).normal(size=(2, 4))
        kernel = Polynomial(3, 0.5, 1.0)
        fitted = self.build(34, kernel=kernel, rotate=True).fit(X)
        assert fitted.n_components_ == 10
        assert_exact(fitted, X, gram_of(kernel, X), 1e-10)

    def test_sparse_rows_with_few_nonzero_products(self) -> None:
        """One-hot pairs over 40 columns: 12,341 monomials, of which the rows have about 100."""
        rng = np.random.default_rng(0)
        X = np.zeros((30, 40))
        X[np.arange(30), rng.integers(20, size=30)] = rng.normal(size=30)
        X[np.arange(30), 20 + rng.integers(20, size=30)] = 1.0
        kernel = Polynomial(3, 0.5, 1.0)
        A = sp.csr_array(X)
        fitted = self.build(400, kernel=kernel).fit(A)
        nonzero = {m for row in X for m in oracles.multisets(40, 1) if all(row[i] for i in m)}
        assert nonzero <= set(fitted.monomials_)
        assert fitted.n_components_ < 400
        assert_exact(fitted, A, gram_of(kernel, X))

    @pytest.mark.parametrize("rotate", [False, True])
    def test_all_of_a_truncated_series(self, rotate: bool) -> None:
        """exp of small inner products: the series ends early and all of it fits."""
        X = 0.3 * data(d=2)
        fitted = self.build(400, kernel=Exponential(1.0), rotate=rotate, alpha=1e-6).fit(X)
        q = fitted.truncation_degree_
        assert fitted.n_components_ == (q + 1) * (q + 2) // 2 <= 400
        assert_exact(fitted, X, gram_of(Exponential(1.0), X), 1e-8)

    @pytest.mark.parametrize("kernel", ["linear", Polynomial(2, 1.0, 0.0)])
    @pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
    def test_a_kernel_that_is_zero_everywhere(
        self, kernel: Any, container: Callable[[Array], Any]
    ) -> None:
        X = container(np.zeros((6, 3)))
        Z = as_dense(self.build(5, kernel=kernel).fit_transform(X))
        assert Z.shape[0] == 6
        np.testing.assert_array_equal(Z, 0.0)

    # --- names and the meaning of a column -------------------------------------------------------

    def test_names_of_monomials(self) -> None:
        fitted = self.build(10, kernel="poly", degree=2, rotate=False).fit(data(d=2))
        names = {"1", "x0", "x1", "x0 x1", "x0^2", "x1^2"}
        assert set(fitted.get_feature_names_out()) == names
        fitted = self.build(30, kernel="poly", degree=3, rotate=False).fit(data(d=2))
        assert "x0^2 x1" in fitted.get_feature_names_out()

    def test_names_of_pandas_columns(self) -> None:
        pd = pytest.importorskip("pandas")
        frame = pd.DataFrame(data(d=2), columns=["alcohol", "pH"])
        monomials = self.build(30, kernel="poly", rotate=False).fit(frame)
        assert "alcohol^2 pH" in monomials.get_feature_names_out()
        rotated = self.build(30, kernel="poly", rotate=True).fit(frame)
        assert "pc0^2 pc1" in rotated.get_feature_names_out()
        mercer = self.build(30, basis="mercer", rotate=False).fit(frame)
        assert {"alcohol(2)", "pH(1)", "1"} <= set(mercer.get_feature_names_out())

    @pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
    def test_a_column_is_what_its_name_says(self, container: Callable[[Array], Any]) -> None:
        """weight c(x) sqrt(a_w mult(m)) times the product of the named coordinates."""
        X = data()
        fitted = self.build(12, kernel=Gaussian(0.3), basis="monomial", rotate=False, center=False)
        Z = as_dense(fitted.fit_transform(container(X)))
        q = fitted.truncation_degree_
        x, amplitude, coefficients = oracles.gaussian_series(X, q, gamma=0.3)
        Phi = oracles.lift(x, amplitude, coefficients, fitted.monomials_)
        scale = fitted.weights_ * np.sqrt([oracles.multiplicity(m) for m in fitted.monomials_])
        np.testing.assert_allclose(Z, (scale[:, None] * Phi).T, rtol=1e-9, atol=1e-12)

    # --- determinism -----------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "parameters",
        [{}, {"basis": "monomial", "rotate": True}, {"kernel": "poly", "rotate": False}],
        ids=["auto", "rotated", "polynomial"],
    )
    def test_threads_do_not_change_the_bits(self, parameters: dict[str, Any]) -> None:
        X = data(2500, 5)
        y = X[:, 0] * X[:, 1]
        first = self.build(40, n_jobs=1, **parameters).fit(X, y)
        for n_jobs in (2, 4):
            again = self.build(40, n_jobs=n_jobs, **parameters).fit(X, y)
            assert again.monomials_ == first.monomials_
            np.testing.assert_array_equal(again.weights_, first.weights_)
            np.testing.assert_array_equal(again.transform(X), first.transform(X))

    @pytest.mark.parametrize(
        "state",
        [
            lambda: 7,
            lambda: np.int64(7),
            lambda: np.random.RandomState(7),
            lambda: np.random.default_rng(7),
        ],
        ids=["int", "numpy integer", "RandomState", "Generator"],
    )
    def test_kinds_of_random_state(self, state: Callable[[], Any]) -> None:
        X = data()
        first, second = (self.build(20, random_state=state()).fit_transform(X) for _ in range(2))
        np.testing.assert_array_equal(first, second)
        shared = state()
        if not isinstance(shared, int | np.integer):
            one, two = (self.build(20, random_state=shared).fit(X) for _ in range(2))
            assert one.monomials_ != two.monomials_, "a generator goes on from fit to fit"

    def test_no_random_state_differs_from_fit_to_fit(self) -> None:
        X = data(d=6)
        fits = [self.build(20, random_state=None).fit(X).monomials_ for _ in range(2)]
        assert fits[0] != fits[1]

    @pytest.mark.parametrize(
        "parameters", [{"basis": "mercer"}, {"basis": "monomial", "rotate": True}]
    )
    def test_a_pickled_map_goes_on(self, parameters: dict[str, Any]) -> None:
        X = data()
        fitted = self.build(20, **parameters).fit(X)
        twin = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(twin.transform(X), fitted.transform(X))
        np.testing.assert_array_equal(twin.transform(2 * X), fitted.transform(2 * X))
        assert twin.monomials_ == fitted.monomials_
        assert float(twin.spectral_epsilon_) == float(fitted.spectral_epsilon_)

    def test_the_trial_of_the_spaces_is_not_drawn_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What was looked at when the space was chosen is no longer unbiased (docs: Two phases)."""
        set_options(monkeypatch, batch=16)  # so that both read whole batches
        calls: list[list[tuple[int, ...]]] = []
        original = space.draw_distinct

        def spy(*arguments: Any) -> Any:
            multisets, tau = original(*arguments)
            calls.append(multisets.tuples())
            return multisets, tau

        monkeypatch.setattr(space, "draw_distinct", spy)
        for seed in range(3):
            calls.clear()
            self.build(40, kernel=Gaussian(0.5), basis="mercer", random_state=seed).fit(data())
            *trials, final = calls
            assert len(trials) == 2
            for trial in trials:
                # The trial draws the low orders as well, which the map takes whole.
                drawn = [m for m in trial if m in set(final)]
                same = sum(a == b for a, b in zip(drawn, final, strict=False))
                assert same <= max(5, len(drawn) / 2), "the final draws are those of the trial"

    # --- auto ------------------------------------------------------------------------------------

    def test_auto_takes_another_basis_where_the_series_is_too_long(self) -> None:
        """|x'|^2 = 280 in one row: no Taylor series of degree 256, but a Mercer basis."""
        X = data(100)
        X[7] = [17.0, 0.0, 0.0]
        fitted = self.build(50, kernel=Gaussian(0.5)).fit(X)
        assert fitted.basis_ == "mercer"
        assert np.isfinite(fitted.transform(X)).all()

    def test_auto_rotates_what_gains_by_it(self) -> None:
        mixed = data(300, 8) * np.array([2, 2, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05])
        mixed = mixed @ np.linalg.qr(data(8, 8, seed=1))[0]
        assert self.build(60, kernel=Gaussian(0.1)).fit(mixed).rotate_
        assert not self.build(60, kernel=Gaussian(0.1)).fit(sp.csr_array(mixed)).rotate_

    # --- bad input -------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("parameters", "words"),
        [
            ({"sampler": "magic"}, "sampler='magic'"),
            ({"basis": "fourier"}, "basis='fourier'.*'mercer'"),
            ({"rotate": "yes"}, "rotate='yes'.*'auto'"),
            ({"rotate": 1}, "rotate=1"),
            ({"center": "median"}, "center='median'"),
            ({"basis": "mercer", "kernel": "poly"}, "mercer.*Gaussian"),
            ({"alpha": -1.0}, r"alpha=-1\.0.*> 0"),
            ({"alpha": 0.0}, r"alpha=0\.0.*> 0"),
            ({"alpha": np.nan}, "alpha=nan"),
            ({"eps": -0.5}, r"eps=-0\.5"),
            ({"kernel": Matern()}, "Matern.*neither a product.*NystromFeatures"),
            ({"kernel": "poly", "center": True}, "origin"),
            ({"kernel": "poly", "coef0": -1.0}, r"coef0=-1\.0"),
            ({"kernel": "poly", "degree": 0}, "degree=0"),
            ({"kernel": InversePolynomial(0.5)}, r"row \d+ has .*shift=0\.5"),
            ({"n_jobs": 0}, "n_jobs=0"),
        ],
        ids=lambda value: str(value)[:40],
    )
    def test_errors_name_the_value_and_the_way_out(
        self, parameters: dict[str, Any], words: str
    ) -> None:
        with pytest.raises(ValueError, match=words):
            self.build(16, **parameters).fit(data())

    def test_alpha_must_be_a_number(self) -> None:
        with pytest.raises(TypeError, match="alpha='small'"):
            self.build(16, alpha="small").fit(data())

    @pytest.mark.parametrize(
        ("parameters", "words"),
        [
            ({"rotate": True}, "rotate=True.*sparse"),
            ({"basis": "mercer"}, "mercer.*(dense|sparse)"),
            ({"center": True}, "center=True.*sparse"),
        ],
    )
    def test_dense_options_on_sparse_data(self, parameters: dict[str, Any], words: str) -> None:
        with pytest.raises(ValueError, match=words):
            self.build(16, **parameters).fit(sp.csr_array(data()))

    @pytest.mark.parametrize("rotate", [False, "auto"])
    def test_a_radius_beyond_the_series_names_the_row(self, rotate: Any) -> None:
        X = data(3000)
        X[2999] = [30.0, 0.0, 0.0]
        features = self.build(50, kernel=Gaussian(0.5), basis="monomial", rotate=rotate)
        with pytest.raises(ValueError, match=r"row 2999 .*max_degree.*mercer"):
            features.fit(X)

    def test_no_value_is_too_far(self) -> None:
        X = data()
        X[7, 1] = 1e4
        fitted = self.build(50, kernel=Gaussian(0.5), basis="mercer", rotate=False).fit(X)
        assert np.isfinite(fitted.transform(X)).all()

    @pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
    def test_a_float32_kernel_that_overflows(self, container: Callable[[Array], Any]) -> None:
        """(1e15)^3 is no float32: an error as from the kernel itself, not infinite features."""
        X = data().astype(np.float32)
        X[5, 1] = 1e15
        features = self.build(16, kernel=Polynomial(3, 1.0, 1.0), rotate=False)
        with pytest.raises(ValueError, match="overflows float32"):
            features.fit_transform(container(X))

    # --- awkward but legal input -----------------------------------------------------------------

    @pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
    @pytest.mark.parametrize("squared_radius", [160.0, 200.0, 2000.0])
    def test_float32_rows_far_away_at_transform(
        self, squared_radius: float, container: Callable[[Array], Any]
    ) -> None:
        """exp(-|x'|^2 / 2) underflows in float32 from about 175 on: zeros, not NaN."""
        X = data(100).astype(np.float32)
        fitted = self.build(
            60, kernel=Gaussian(0.5), basis="monomial", rotate=False, center=False
        ).fit(container(X))
        far = X * np.float32(np.sqrt(squared_radius)) / np.linalg.norm(X, axis=1, keepdims=True)
        Z = as_dense(fitted.transform(container(far)))
        assert Z.dtype == np.float32
        assert np.isfinite(Z).all()
        assert np.abs(Z).max() <= fitted.weights_.max()

    @pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
    def test_float32_rows_far_away_at_fit(self, container: Callable[[Array], Any]) -> None:
        """|x'|^2 = 185 is within the series, and below the smallest float32 amplitude."""
        X = data(40)
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        X[0] *= np.sqrt(185.0)
        features = self.build(
            200, kernel=Gaussian(0.5), basis="monomial", rotate=False, center=False, alpha=10.0
        )
        Z = as_dense(features.fit_transform(container(X.astype(np.float32))))
        assert np.isfinite(features.weights_).all()
        assert np.isfinite(Z).all()

    @pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_inverse_polynomial_near_its_radius(
        self, dtype: type, container: Callable[[Array], Any]
    ) -> None:
        """Degrees beyond 58: sqrt(w!) alone is no float32, the feature is."""
        X = data(40)
        X *= np.sqrt(1.85) / np.linalg.norm(X, axis=1, keepdims=True)
        features = self.build(200, kernel=InversePolynomial(2.0), rotate=False)
        grams = []
        for seed in range(12):  # one draw is off by more than half now and then
            features.set_params(random_state=seed)
            Z = as_dense(features.fit_transform(container(X.astype(dtype))))
            assert np.isfinite(Z).all()
            grams.append(Z @ Z.T)
        K = gram_of(InversePolynomial(2.0), X)
        assert np.abs(np.mean(grams, axis=0) - K).max() < 0.5 * K.max()

    @pytest.mark.parametrize(
        "parameters",
        [
            {"basis": "monomial", "rotate": False},
            {"basis": "monomial", "rotate": True},
            {"basis": "mercer", "rotate": False},
            {"kernel": "poly", "rotate": False},
            {"kernel": "poly", "rotate": True},
        ],
        ids=["centred", "centred and rotated", "mercer", "polynomial", "rotated polynomial"],
    )
    def test_a_sparse_row_for_a_map_fitted_to_dense_data(self, parameters: dict[str, Any]) -> None:
        """The features of the row, or an error: never other numbers."""
        X = data(40) + 1.0
        fitted = self.build(20, **parameters).fit(X)
        try:
            Z = as_dense(fitted.transform(sp.csr_array(X)))
        except (TypeError, ValueError) as error:
            words = str(error)
            if "sparse" in words or "dense" in words:
                return
            raise
        np.testing.assert_allclose(Z, fitted.transform(X), atol=1e-9)

    @pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
    @pytest.mark.parametrize("size", [1, 2, 3])
    def test_few_components_on_data_with_empty_rows(
        self, size: int, container: Callable[[Array], Any]
    ) -> None:
        """Draws of any degree from rows of zeros: only the constant is nonzero there."""
        X = np.zeros((30, 5))
        X[::3, 0], X[1::9, 2] = 1.0, -0.5
        for seed in range(30):
            fitted = self.build(size, kernel=Polynomial(3, 1.0, 1.0), rotate=False)
            fitted.set_params(random_state=seed).fit(container(X))
            assert {i for m in fitted.monomials_ for i in m} <= {0, 2}
            assert np.isfinite(fitted.weights_).all()
            assert fitted.n_components_ <= size

    def test_proposal_rows_of_zeros(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The only nonzero rows are none of the proposal rows: drawn through the added row."""
        set_options(monkeypatch, proposal_rows=4)
        for seed in range(5):
            X = np.zeros((40, 3))
            others = np.setdiff1d(np.arange(40), keyed_rows(40, 4, seed, "proposal"))
            X[others[:3]] = np.eye(3) + 0.3
            fitted = self.build(3, kernel=Polynomial(8, 1.0, 1.0), rotate=False)
            Z = fitted.set_params(random_state=seed).fit_transform(X)
            assert np.isfinite(Z).all()

    def test_large_and_small_columns_together(self) -> None:
        X = data() * np.array([1e-8, 1.0, 1e8])
        for kernel in ("gaussian", "poly"):
            Z = self.build(30, kernel=kernel).fit_transform(X)
            assert np.isfinite(Z).all()

    # --- attributes ------------------------------------------------------------------------------

    def test_estimates_after_fit(self) -> None:
        X = data(200)
        fitted = self.build(60, kernel=Gaussian(0.2), alpha=0.5).fit(X)
        K = gram_of(Gaussian(0.2), X)
        exact = oracles.statistical_dimension(K, 0.5)
        assert float(fitted.statistical_dimension_) == pytest.approx(exact, rel=1e-6)
        Z = fitted.transform(X)
        shifted = [G + 0.5 * np.eye(200) for G in (Z @ Z.T, K)]
        e = np.linalg.eigvals(np.linalg.solve(shifted[1], shifted[0])).real
        epsilon = max(1 / e.min() - 1, 1 - 1 / e.max())
        assert float(fitted.spectral_epsilon_) == pytest.approx(epsilon, rel=1e-4)

    def test_a_refit_renews_the_estimates(self) -> None:
        fitted = self.build(60, alpha=0.5).fit(data(100))
        before = float(fitted.spectral_epsilon_), float(fitted.statistical_dimension_)
        fitted.set_params(gamma=5.0).fit(data(100, seed=3))
        after = float(fitted.spectral_epsilon_), float(fitted.statistical_dimension_)
        assert before[0] != after[0]
        assert before[1] != after[1]

    def test_an_automatic_size_meets_eps(self) -> None:
        X = data(150)
        reached = []
        for seed in range(5):
            fitted = self.build("auto", kernel=Gaussian(0.2), alpha=0.5, eps=0.5, random_state=seed)
            reached.append(float(fitted.fit(X).spectral_epsilon_))
        assert np.median(reached) <= 0.5, reached

    def test_more_components_lower_the_error(self) -> None:
        """Mean over 10 seeds of the relative Frobenius error, from 20 to 160 features."""
        X = data(80)
        K = gram_of(Gaussian(0.3), X)

        def error(size: int, seed: int) -> float:
            Z = self.build(size, kernel=Gaussian(0.3), random_state=seed).fit_transform(X)
            return float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))

        few, many = (np.mean([error(s, seed) for seed in range(10)]) for s in (20, 160))
        assert many < 0.3 * few
