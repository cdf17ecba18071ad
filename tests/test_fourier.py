"""Random Fourier features: the battery on every variant, and what is special about them."""

from __future__ import annotations

import tracemalloc
from typing import Any, ClassVar

import numpy as np
import oracles
import pytest
import scipy.sparse as sp

from kernelsieve import FourierFeatures, KernelRidge
from kernelsieve._native.fourier import LARGEST_32, LARGEST_64, write_pairs, write_waves
from kernelsieve.diagnostics import spectral_epsilon
from kernelsieve.features import fourier as module
from kernelsieve.kernels import Gaussian, Laplacian, Matern
from kernelsieve.testing import FeatureMapBattery
from kernelsieve.testing.data import points

ALL_FREQUENCIES = ("plain", "orthogonal", "structured", "modified")
VARIANTS = ("cos+sin", "phase")


class FourierBattery(FeatureMapBattery):
    """The battery for one variant, named by the class attributes."""

    parameters: ClassVar[dict[str, Any]] = {}

    def build(self, **overrides: Any) -> FourierFeatures:
        defaults = {"n_components": 32, "random_state": 0}
        return FourierFeatures(**{**defaults, **self.parameters, **overrides})

    def gram(self, X: Any) -> Any:
        kernel = self.parameters.get("kernel", "gaussian")
        if kernel == "matern":
            length_scale = 1.0 / np.sqrt(2.0 * self.gamma)
            return oracles.gram(oracles.matern, X, length_scale=length_scale, nu=1.5)
        return oracles.gram(getattr(oracles, kernel), X, gamma=self.gamma)

    def test_says_that_it_is_unbiased(self) -> None:
        assert FourierFeatures.unbiased


class TestCosineAndSine(FourierBattery):
    parameters: ClassVar = {"variant": "cos+sin"}


class TestPhase(FourierBattery):
    parameters: ClassVar = {"variant": "phase"}


class TestOddCosineAndSine(FourierBattery):
    """The last frequency is without its sine: still unbiased."""

    parameters: ClassVar = {"variant": "cos+sin", "n_components": 9}


class TestOrthogonal(FourierBattery):
    parameters: ClassVar = {"frequencies": "orthogonal"}


class TestStructured(FourierBattery):
    parameters: ClassVar = {"frequencies": "structured", "n_components": 33}


class TestModified(FourierBattery):
    # At this alpha six rows have a ball of frequencies, and weights that differ: more variance.
    parameters: ClassVar = {"frequencies": "modified", "alpha": 0.1}
    unbiased_parameters: ClassVar = {"n_components": 400}


class TestLaplacian(FourierBattery):
    parameters: ClassVar = {"kernel": "laplacian"}


class TestLaplacianPhase(FourierBattery):
    parameters: ClassVar = {"kernel": "laplacian", "variant": "phase"}


class TestMatern(FourierBattery):
    parameters: ClassVar = {"kernel": "matern"}


class TestMaternOrthogonalPhase(FourierBattery):
    parameters: ClassVar = {"kernel": "matern", "frequencies": "orthogonal", "variant": "phase"}


class TestMaternStructuredPhase(FourierBattery):
    parameters: ClassVar = {"kernel": "matern", "frequencies": "structured", "variant": "phase"}


class TestMaternModifiedPhase(FourierBattery):
    parameters: ClassVar = {
        "kernel": "matern",
        "frequencies": "modified",
        "variant": "phase",
        "alpha": 0.1,
    }
    unbiased_parameters: ClassVar = {"n_components": 400}


# --- cosines and sines ---------------------------------------------------------------------------


def awkward_angles(largest: float, dtype: Any) -> Any:
    """Random angles of all sizes up to the largest, multiples of pi / 2 and their neighbours."""
    rng = np.random.default_rng(0)
    sizes = np.concatenate([rng.uniform(0, size, 20_001) for size in (1e-6, 1, 10, 1e3, largest)])
    multiples = (np.arange(0, largest, np.pi / 2)[:20_000]).astype(dtype)
    near = [np.nextafter(multiples, np.inf), np.nextafter(multiples, -np.inf)]
    special = [0.0, -0.0, np.finfo(dtype).tiny, np.finfo(dtype).smallest_subnormal, largest]
    angles = np.concatenate([sizes.astype(dtype), multiples, *near, special]).astype(dtype)
    angles = angles[np.abs(angles) <= largest]
    return np.concatenate([angles, -angles])[None]


@pytest.mark.parametrize(
    ("dtype", "largest", "tolerance"),
    [(np.float32, LARGEST_32, 2e-7), (np.float64, LARGEST_64, 1e-15)],
)
def test_cosines_and_sines(dtype: Any, largest: float, tolerance: float) -> None:
    """Against numpy in extended precision, where the machine has it; a third of an ulp or so."""
    angles = awkward_angles(largest, dtype)
    count = angles.shape[1]
    out = np.full((1, 2 * count), np.nan, dtype)
    assert write_pairs(angles, np.ones(count, dtype), out, 0, count) == -1
    wide = angles[0].astype(np.longdouble)
    assert np.abs(out[0, :count] - np.cos(wide)).max() < tolerance
    assert np.abs(out[0, count:] - np.sin(wide)).max() < tolerance


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 7, 8, 33])
def test_large_angles_are_exact_too(count: int, dtype: Any) -> None:
    """Beyond the largest angle of the polynomials; rows with such an angle and rows without."""
    rng = np.random.default_rng(count)
    angles = rng.uniform(-3, 3, (6, count)).astype(dtype)
    angles[1, 0], angles[3, count // 2], angles[4] = 3e4, -1e30, 2e9
    weights = rng.uniform(0.5, 2, count).astype(dtype)
    phases = rng.uniform(0, 6, count).astype(dtype)
    out = np.empty((6, 3 * count), dtype)
    assert write_pairs(angles, weights, out, 0, count) == -1
    assert write_waves(angles, 0, phases, weights, out, 2 * count) == -1
    expected = [np.cos(angles), np.sin(angles), np.cos(angles + phases)]
    expected = np.hstack([weights * values for values in expected])
    np.testing.assert_allclose(out, expected, rtol=0, atol=8 * np.finfo(dtype).eps)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_angles_that_are_not_finite_are_told(dtype: Any, value: float) -> None:
    angles = np.zeros((5, 20), dtype)
    angles[3, 11] = value
    ones, out = np.ones(20, dtype), np.empty((5, 40), dtype)
    assert write_pairs(angles, ones, out, 0, 20) == 3
    assert write_waves(angles, 0, ones, ones, out, 0) == 3


def test_overflow_names_the_value() -> None:
    X = points().astype(np.float32)
    fourier = FourierFeatures(16, gamma=1e4, random_state=0).fit(X)
    X[7, 2] = 3e38
    for data in (X, sp.csr_matrix(X)):
        with pytest.raises(ValueError, match=r"3\.0e\+38.*float32.*scale X"):
            fourier.transform(data)


# --- features ------------------------------------------------------------------------------------


def naive_features(fourier: FourierFeatures, X: Any) -> Any:
    """cos and sin of numpy, from the fitted frequencies, weights and phases."""
    W = fourier.frequencies_
    angles = X @ W if isinstance(W, np.ndarray) else W.angles(X)[:, : W.count]
    pairs = len(fourier.weights_) - len(fourier.phases_)
    singles = np.cos(angles[:, pairs:] + fourier.phases_) * fourier.weights_[pairs:]
    angles = angles[:, :pairs]
    Z = [f(angles) * fourier.weights_[:pairs] for f in (np.cos, np.sin)]
    return np.hstack([*Z, singles]) * np.sqrt(2.0 / fourier.n_components_)


@pytest.mark.parametrize("frequencies", ALL_FREQUENCIES)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n_components", [1, 31, 140])
def test_features(
    n_components: int, variant: str, frequencies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In panels and chunks that end in the middle of everything."""
    monkeypatch.setattr(module, "PANEL", 17)
    monkeypatch.setattr(module, "ANGLES", 17 * 5)
    X = points(33, 3)
    fourier = FourierFeatures(
        n_components, variant=variant, frequencies=frequencies, alpha=1e-2, random_state=0
    ).fit(X)
    expected = naive_features(fourier, X)
    for data in (X, sp.csr_matrix(X)):
        np.testing.assert_allclose(fourier.transform(data), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("frequencies", ["plain", "orthogonal", "structured"])
@pytest.mark.parametrize("kernel", ["gaussian", "matern"])
@pytest.mark.parametrize("n_components", [2, 10, 64])
def test_cosine_and_sine_have_unit_norm(n_components: int, kernel: str, frequencies: str) -> None:
    X = 3.0 * points(50, 4)
    fourier = FourierFeatures(n_components, kernel=kernel, frequencies=frequencies, random_state=0)
    np.testing.assert_allclose((fourier.fit_transform(X) ** 2).sum(axis=1), 1.0, rtol=1e-13)


@pytest.mark.parametrize("variant", ["cos+sin", "phase"])
@pytest.mark.parametrize("n_components", [1, 3, 15])
def test_odd_numbers_are_honoured(n_components: int, variant: str) -> None:
    X = points(20, 4)
    fourier = FourierFeatures(n_components, variant=variant, random_state=0).fit(X)
    assert fourier.n_components_ == n_components
    assert fourier.transform(X).shape == (20, n_components)


@pytest.mark.parametrize("frequencies", ALL_FREQUENCIES)
def test_fitted_to_one_float_type_and_used_on_the_other(frequencies: str) -> None:
    X = points(20, 3)
    Z = FourierFeatures(40, frequencies=frequencies, random_state=0).fit(X).transform(X)
    single = FourierFeatures(40, frequencies=frequencies, random_state=0).fit(X.astype(np.float32))
    if frequencies != "structured":
        assert single.frequencies_.dtype == np.float32
    for data in (X, X.astype(np.float32)):
        np.testing.assert_allclose(single.transform(data), Z, atol=1e-5)


# --- error ---------------------------------------------------------------------------------------


def squared_error(X: Any, K: Any, seed: int, **parameters: Any) -> float:
    Z = FourierFeatures(random_state=seed, gamma=0.5, **parameters).fit_transform(X)
    return float(((Z @ Z.T - K) ** 2).mean())


@pytest.mark.parametrize("frequencies", ["orthogonal", "structured"])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("d", [2, 16])
def test_orthogonal_frequencies_lower_the_error(d: int, variant: str, frequencies: str) -> None:
    """Mean over 20 seeds of one block: a third of the error in pairs, 0.8 of it with phases."""
    X = points(40, d)
    K = oracles.gram(oracles.gaussian, X, gamma=0.5)
    size = 128 if variant == "cos+sin" else 64
    plain, ours = (
        np.mean(
            [
                squared_error(X, K, seed, n_components=size, variant=variant, frequencies=kind)
                for seed in range(20)
            ]
        )
        for kind in ("plain", frequencies)
    )
    assert ours < (0.5 if variant == "cos+sin" else 0.95) * plain


def epsilon(X: Any, frequencies: str, seed: int, s: int, gamma: float, alpha: float) -> float:
    fourier = FourierFeatures(
        s, gamma=gamma, alpha=alpha, frequencies=frequencies, random_state=seed
    )
    return float(spectral_epsilon(Gaussian(gamma)(X), fourier.fit_transform(X), alpha))


@pytest.mark.parametrize(("d", "gamma", "s"), [(1, 50.0, 150), (2, 4.0, 400)])
def test_modified_frequencies_lower_the_spectral_error(d: int, gamma: float, s: int) -> None:
    """Points spread evenly over a box and a small alpha, as in Avron et al. (2017)."""
    X = np.random.default_rng(0).uniform(size=(300, d))
    plain, modified = (
        np.mean([epsilon(X, kind, seed, s, gamma, 1e-3) for seed in range(5)])
        for kind in ("plain", "modified")
    )
    assert modified < 0.5 * plain


def test_modified_frequencies_take_the_models_alpha() -> None:
    X = np.random.default_rng(0).uniform(size=(200, 1))
    y = np.sin(9 * X[:, 0])
    fourier = FourierFeatures(50, gamma=20.0, frequencies="modified", random_state=0)
    model = KernelRidge(fourier, alpha=1e-4).fit(X, y)
    expected = FourierFeatures(
        50, gamma=20.0, frequencies="modified", alpha=1e-4, random_state=0
    ).fit(X)
    np.testing.assert_array_equal(model.features_.weights_, expected.weights_)
    assert (model.features_.weights_ != fourier.fit(X).weights_).any()


@pytest.mark.parametrize("d", [3, 12])
def test_modified_frequencies_do_no_harm_where_they_cannot_help(d: int) -> None:
    """Too few frequencies for this alpha: nearly plain ones, no worse beyond chance."""
    X = points(200, d) * np.sqrt(d)
    plain, modified = (
        np.log([epsilon(X, kind, seed, 100, 1 / d, 1e-2) for seed in range(20)])
        for kind in ("plain", "modified")
    )
    error = np.sqrt((np.var(plain) + np.var(modified)) / 19)
    assert np.mean(modified) <= np.mean(plain) + 4 * error


def test_cosine_and_sine_beat_the_phase() -> None:
    X = points(40, 16)
    K = oracles.gram(oracles.gaussian, X, gamma=0.5)
    pairs, phase = (
        np.mean([squared_error(X, K, seed, n_components=32, variant=v) for seed in range(20)])
        for v in ("cos+sin", "phase")
    )
    assert pairs < phase


def test_the_error_falls_with_the_number_of_components() -> None:
    """Variance is 1/s: sixteen times the components, a sixteenth of the squared error."""
    X = points(40, 5)
    K = oracles.gram(oracles.gaussian, X, gamma=0.5)
    small, large = (
        np.mean([squared_error(X, K, seed, n_components=s) for seed in range(30)])
        for s in (64, 1024)
    )
    assert 10 < small / large < 25


def test_the_variance_is_that_of_the_formula() -> None:
    """Var of a cos+sin entry is (1 + k(2 delta))/2 - k^2 over s/2, by cos^2 = (1 + cos 2)/2."""
    X = points(2, 3, seed=3)
    k = oracles.gaussian(*X.tolist(), gamma=0.5)
    doubled = oracles.gaussian(*(2 * X).tolist(), gamma=0.5)
    values = []
    for seed in range(2000):
        Z = FourierFeatures(8, gamma=0.5, random_state=seed).fit_transform(X)
        values.append(float(Z[0] @ Z[1]))
    expected = ((1 + doubled) / 2 - k**2) / 4
    # The variance of 2000 nearly normal values is known to 3 %: five times that.
    assert np.var(values) == pytest.approx(expected, rel=0.16)


# --- parameters and input ------------------------------------------------------------------------


@pytest.mark.parametrize("frequencies", ALL_FREQUENCIES)
def test_wide_sparse_input_is_not_densified(frequencies: str) -> None:
    """50 x 200,000 would be 80 MB dense; 4 frequencies are 7 MB, a block of structured 21 MB."""
    X = sp.random(50, 200_000, density=1e-4, format="csr", random_state=0)
    fourier = FourierFeatures(8, frequencies=frequencies, random_state=0)
    fourier.fit(X[:5]).transform(X[:5])  # imports and caches are not what is measured
    tracemalloc.start()
    Z = fourier.fit(X).transform(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert Z.shape == (50, 8)
    assert peak < 75e6, f"peak of {peak / 1e6:.0f} MB: X was made dense"


def test_gamma_of_the_kernel_object() -> None:
    X = points()
    by_name = FourierFeatures(16, gamma=0.7, random_state=0).fit_transform(X)
    by_object = FourierFeatures(16, kernel=Gaussian(0.7), random_state=0).fit_transform(X)
    np.testing.assert_array_equal(by_name, by_object)


@pytest.mark.parametrize("kernel", [Matern(0.8, 0.5), Matern(2.0, 2.5), Matern(1.0, 0.9)], ids=str)
@pytest.mark.parametrize("frequencies", ["plain", "orthogonal", "structured"])
def test_matern_objects(frequencies: str, kernel: Matern) -> None:
    """Any smoothness: the mean over 40 seeds within 5 standard errors of the kernel."""
    X = points(6, 3, seed=2)
    fourier = FourierFeatures(400, kernel=kernel, frequencies=frequencies)
    grams = []
    for seed in range(40):
        Z = fourier.set_params(random_state=seed).fit_transform(X)
        grams.append(Z @ Z.T)
    error = np.std(grams, axis=0) / np.sqrt(40)
    assert (np.abs(np.mean(grams, axis=0) - kernel(X)) <= 5 * error + 1e-12).all()


def test_default_gamma_is_scale() -> None:
    X = 7.0 * points() + 2.0
    fourier = FourierFeatures(16, random_state=0).fit(X)
    assert fourier.kernel_.gamma == pytest.approx(1 / (X.shape[1] * X.var()))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"variant": "sine"}, "variant='sine'.*cos\\+sin"),
        ({"frequencies": "random"}, "frequencies='random'.*structured"),
        ({"kernel": "poly"}, "Polynomial.*Gaussian, Laplacian, Matern or Product"),
        ({"kernel": "exponential", "frequencies": "orthogonal"}, "Exponential.*Gaussian"),
        ({"kernel": Laplacian(), "frequencies": "orthogonal"}, "'orthogonal'.*'plain'.*Matern"),
        ({"kernel": Laplacian(), "frequencies": "structured"}, "'structured'.*'plain'.*Matern"),
        ({"kernel": Laplacian(), "frequencies": "modified"}, "'modified'.*'plain'.*Matern"),
        ({"frequencies": "modified", "alpha": -1.0}, "alpha=-1.0 must be finite and > 0"),
        ({"kernel": "gausian"}, "gausian.*gaussian"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_errors_name_the_value_and_the_way_out(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        FourierFeatures(16, **parameters).fit_transform(points())


def test_float32_far_from_the_origin() -> None:
    """The kernel does not see a common offset: float32 features may not lose digits to it."""
    X = (points(30, 4) + 1e4).astype(np.float32)
    K = oracles.gram(oracles.gaussian, X, gamma=0.5)
    Z32 = FourierFeatures(256, gamma=0.5, random_state=0).fit_transform(X)
    Z64 = FourierFeatures(256, gamma=0.5, random_state=0).fit_transform(X.astype(np.float64))
    error = np.abs(Z32 @ Z32.T - Z64 @ Z64.T).max()
    assert np.abs(Z64 @ Z64.T - K).max() < 0.5
    assert error < 1e-3, f"float32 features give a kernel that is off by {error:.1e} at offset 1e4"
