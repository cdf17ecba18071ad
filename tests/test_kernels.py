"""The kernel family against plain loops: exact Gram matrices, and the Taylor series."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.gaussian_process import kernels as gaussian_process_kernels
from sklearn.metrics import pairwise

from kernelsieve.kernels import (
    ArcCosine,
    DotProduct,
    Exponential,
    Gaussian,
    InversePolynomial,
    Laplacian,
    Matern,
    NeuralTangent,
    Polynomial,
    SmoothLaplacian,
    Zonal,
    resolve_kernel,
    series,
)
from kernelsieve.kernels.series import Radii
from kernelsieve.testing.data import SPARSE_FORMS, stored_arrays

Truth = Callable[[list[float], list[float]], float]

# Every kernel with its plain loop.
KERNELS: dict[str, tuple[Any, Truth]] = {
    "gaussian": (Gaussian(0.7), functools.partial(oracles.gaussian, gamma=0.7)),
    "polynomial": (
        Polynomial(degree=4, gamma=0.5, coef0=2.0),
        functools.partial(oracles.polynomial, degree=4, gamma=0.5, coef0=2.0),
    ),
    "homogeneous": (
        Polynomial(degree=3, gamma=0.5, coef0=0.0),
        functools.partial(oracles.polynomial, degree=3, gamma=0.5, coef0=0.0),
    ),
    "degree one": (
        Polynomial(degree=1, gamma=2.0, coef0=0.5),
        functools.partial(oracles.polynomial, degree=1, gamma=2.0, coef0=0.5),
    ),
    "exponential": (Exponential(0.7), functools.partial(oracles.exponential, gamma=0.7)),
    "inverse polynomial": (
        InversePolynomial(30.0),
        functools.partial(oracles.inverse_polynomial, shift=30.0),
    ),
    "dot product": (
        DotProduct([0.5, 0.0, 1.0, 0.25]),
        functools.partial(oracles.dot_product, coefficients=[0.5, 0.0, 1.0, 0.25]),
    ),
    "constant": (DotProduct([3.0]), functools.partial(oracles.dot_product, coefficients=[3.0])),
    "laplacian": (Laplacian(0.3), functools.partial(oracles.laplacian, gamma=0.3)),
    **{
        f"smooth laplacian {pieces}": (
            SmoothLaplacian(0.3, pieces),
            functools.partial(oracles.smooth_laplacian, gamma=0.3, pieces=pieces),
        )
        for pieces in (1, 2, 3)
    },
    **{
        f"matern {nu}": (
            Matern(1.3, nu),
            functools.partial(oracles.matern, length_scale=1.3, nu=nu),
        )
        for nu in (0.5, 0.8, 1.5, 2.5, 4.0)
    },
    **{
        f"arc-cosine {order}": (
            ArcCosine(order),
            functools.partial(oracles.arc_cosine, order=order),
        )
        for order in (0, 1, 2)
    },
    "neural tangent": (NeuralTangent(3), functools.partial(oracles.neural_tangent, depth=3)),
    "zonal": (
        Zonal([0.5, 0.0, 1.0, 0.25], power=1.5),
        functools.partial(oracles.zonal, coefficients=[0.5, 0.0, 1.0, 0.25], power=1.5),
    ),
}
SERIES = [
    "gaussian",
    "polynomial",
    "homogeneous",
    "exponential",
    "inverse polynomial",
    "dot product",
]
UNIT_DIAGONAL = [
    "gaussian",
    "laplacian",
    *(name for name in KERNELS if name.startswith(("matern", "smooth"))),
]


def data(n: int = 12, d: int = 4, seed: int = 0) -> Any:
    """Points with zeros in them, a zero row and a repeated row."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    if n > 4:
        X[1] = 0.0
        X[4] = X[3]
    return X


def relative_error(values: Any, truth: Any) -> float:
    return float(np.abs(values - truth).max() / np.abs(truth).max())


# --- exact Gram matrices -------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("left", ["dense", "csr_matrix", "csr_array"])
@pytest.mark.parametrize("right", ["dense", "csr_matrix"])
def test_gram_is_the_plain_loop(name: str, left: str, right: str) -> None:
    kernel, truth = KERNELS[name]
    forms = {"dense": np.asarray, **SPARSE_FORMS}
    X, Y = data(), data(7, seed=1)
    G = kernel(forms[left](X), forms[right](Y))
    assert isinstance(G, np.ndarray)
    assert G.dtype == np.float64
    # Equal points at distance 0 come out at 1e-8: where the kernel has a kink, that shows.
    assert relative_error(G, oracles.gram(truth, X, Y)) < 1e-7


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("form", SPARSE_FORMS)
def test_every_sparse_form_is_understood(name: str, form: str) -> None:
    kernel, truth = KERNELS[name]
    X = data()
    A = SPARSE_FORMS[form](X)
    before = stored_arrays(A)
    assert relative_error(kernel(A), oracles.gram(truth, X)) < 1e-7
    for kept, now in zip(before, stored_arrays(A), strict=True):
        np.testing.assert_array_equal(now, kept, err_msg="the caller's matrix was written to")


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
def test_float32(name: str, container: Callable[[Any], Any]) -> None:
    kernel, truth = KERNELS[name]
    X, Y = data().astype(np.float32), data(7, seed=1).astype(np.float32)
    G = kernel(container(X), container(Y))
    assert G.dtype == np.float32
    # A kernel with a kink at distance 0 sees the square root of the rounding error.
    assert relative_error(G, oracles.gram(truth, X, Y)) < (2e-3 if "matern 0" in name else 1e-5)
    assert kernel.diag(container(X)).dtype == np.float32
    assert kernel(container(X), Y.astype(np.float64)).dtype == np.float64


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_symmetric_gram(name: str, container: Callable[[Any], Any], dtype: type) -> None:
    kernel, _ = KERNELS[name]
    X = container(data().astype(dtype))
    tolerance = 1e-7 if dtype is np.float64 else 2e-3
    G = kernel(X)
    scale = np.abs(G).max()
    np.testing.assert_allclose(G, G.T, rtol=0, atol=1e-6 * scale)
    np.testing.assert_allclose(G, kernel(X, X), rtol=0, atol=tolerance * scale)
    np.testing.assert_allclose(G, kernel(X, X.copy()), rtol=0, atol=tolerance * scale)
    np.testing.assert_allclose(np.diag(G), kernel.diag(X), rtol=1e-5)
    assert np.linalg.eigvalsh(G.astype(np.float64)).min() > -1e-5 * scale
    if name in UNIT_DIAGONAL:
        np.testing.assert_array_equal(np.diag(G), 1.0)
        np.testing.assert_array_equal(kernel.diag(X), 1.0)
        assert G.max() <= 1.0


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
def test_more_rows_than_a_block(name: str, container: Callable[[Any], Any]) -> None:
    """Tiles meet without a seam: the whole is what small pieces give, and pieces are the loop's."""
    kernel, truth = KERNELS[name]
    X, Y = 0.5 * data(600, 3, seed=2), 0.5 * data(2100, 3, seed=3)
    whole = kernel(container(X), container(Y))
    pieces = np.block(
        [
            [kernel(container(X[i : i + 90]), container(Y[j : j + 90])) for j in range(0, 2100, 90)]
            for i in range(0, 600, 90)
        ]
    )
    # 90 does not divide any likely size of a tile, so seams would not coincide.
    np.testing.assert_allclose(whole, pieces, rtol=1e-7, atol=1e-9)
    rows, columns = np.arange(0, 600, 7), np.random.default_rng(0).integers(2100, size=86)
    expected = [truth(X[i].tolist(), Y[j].tolist()) for i, j in zip(rows, columns, strict=True)]
    np.testing.assert_allclose(whole[rows, columns], expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", KERNELS)
def test_threads_do_not_change_the_bits(name: str) -> None:
    kernel, _ = KERNELS[name]
    X = 0.5 * data(1100, 3, seed=2)
    first = kernel(X, n_jobs=1)
    for n_jobs in (2, 4):
        np.testing.assert_array_equal(kernel(X, n_jobs=n_jobs), first)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("name", KERNELS)
def test_few_rows(name: str, n: int) -> None:
    kernel, truth = KERNELS[name]
    X = data(2, 1)[:n]
    np.testing.assert_allclose(kernel(X), oracles.gram(truth, X), rtol=1e-7, atol=1e-14)
    Y = data(3, 1)
    np.testing.assert_allclose(kernel(X, Y), oracles.gram(truth, X, Y), rtol=1e-7, atol=1e-14)


@pytest.mark.parametrize("offset", [1e2, 1e4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gaussian_far_from_the_origin(offset: float, dtype: type) -> None:
    """Only differences matter: a float32 Gram matrix must be right to float32 at any offset."""
    X, Y = (data() + offset).astype(dtype), (data(7, seed=1) + offset).astype(dtype)
    tolerance = 2e-6 if dtype is np.float32 else 1e-9
    np.testing.assert_allclose(
        Gaussian(0.7)(X, Y), oracles.gram(oracles.gaussian, X, Y, gamma=0.7), atol=tolerance
    )
    np.testing.assert_allclose(
        Gaussian(0.7)(X), oracles.gram(oracles.gaussian, X, gamma=0.7), atol=tolerance
    )


@pytest.mark.parametrize("offset", [1e2, 1e4])
def test_gaussian_of_offset_sparse_data(offset: float) -> None:
    """The same on CSR, where nothing may be centred: float32 is then worked in float64."""
    X = (data() + offset).astype(np.float32)
    G = Gaussian(0.7)(sp.csr_matrix(X))
    np.testing.assert_allclose(G, oracles.gram(oracles.gaussian, X, gamma=0.7), atol=2e-6)


def test_gaussian_of_two_far_clusters() -> None:
    """No single centre helps here: float32 must notice and work in more digits."""
    X = data(20).astype(np.float32)
    X[10:] += np.float32(1000.0)
    G = Gaussian(0.7)(X)
    np.testing.assert_allclose(G, oracles.gram(oracles.gaussian, X, gamma=0.7), atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("kernel", [Gaussian(), Laplacian(), Matern()])
def test_huge_distances_are_zero_not_nan(
    kernel: Any, container: Callable[[Any], Any], dtype: type
) -> None:
    X = np.array([[0.0, 1.0], [1e30, 0.0], [0.0, -1e30]], dtype=dtype)
    np.testing.assert_allclose(kernel(container(X)), np.eye(3), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("nu", [0.8, 4.0, 10.0, 30.0])
@pytest.mark.parametrize("distance", [1e-12, 1e-6, 1e-4, 1e-2])
def test_matern_of_near_neighbours_is_near_one(nu: float, distance: float, dtype: type) -> None:
    """K_nu overflows near 0 where its product with z^nu tends to a constant."""
    X = np.array([[0.0], [distance]], dtype=dtype)
    expected = oracles.matern(*X.astype(float).tolist(), nu=nu) if distance > 1e-3 else 1.0
    assert Matern(1.0, nu)(X)[0, 1] == pytest.approx(expected, abs=1e-3)


# --- what a kernel object is ---------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_values(name: str) -> None:
    kernel, _ = KERNELS[name]
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    assert copy.deepcopy(kernel) == kernel
    assert hash(copy.deepcopy(kernel)) == hash(kernel)
    assert eval(repr(kernel)) == kernel, "repr does not say how to make the kernel again"
    field = dataclasses.fields(kernel)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(kernel, field, 5)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (Gaussian, "gamma"),
        (Exponential, "gamma"),
        (Laplacian, "gamma"),
        (SmoothLaplacian, "gamma"),
        (lambda value: Polynomial(3, value), "gamma"),
        (InversePolynomial, "shift"),
        (Matern, "length_scale"),
        (lambda value: Matern(1.0, value), "nu"),
    ],
)
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, "wide", None])
def test_bad_parameters_are_named(make: Callable[[Any], Any], name: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=name) as error:
        make(value)
    assert str(value) in str(error.value), "the error does not name the value"


@pytest.mark.parametrize("degree", [0, -2, 2.5, "three"])
def test_bad_degree(degree: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="degree"):
        Polynomial(degree)


@pytest.mark.parametrize("coef0", [-1.0, math.nan, math.inf])
def test_bad_coef0(coef0: float) -> None:
    with pytest.raises(ValueError, match="coef0"):
        Polynomial(3, 1.0, coef0)


@pytest.mark.parametrize(
    ("coefficients", "words"),
    [
        ([1.0, -0.5, 2.0], r"coefficients\[1\]=-0\.5.*positive definite"),
        ([1.0, math.nan], r"coefficients\[1\]=nan"),
        ([0.0, 0.0], "zero"),
        ([], "coefficients"),
    ],
)
def test_bad_coefficients_are_refused_with_the_reason(coefficients: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DotProduct(coefficients)


@pytest.mark.parametrize("name", KERNELS)
def test_bad_points(name: str) -> None:
    kernel, _ = KERNELS[name]
    X = data()

    def with_value(value: float) -> Any:
        bad = X.copy()
        bad[2, 2] = value
        return bad

    with pytest.raises(ValueError, match=r"4.*3"):
        kernel(X, data(5, 3))
    with pytest.raises(ValueError, match="NaN"):
        kernel(with_value(np.nan))
    with pytest.raises(ValueError, match=r"Y.*inf|inf.*Y"):
        kernel(X, with_value(np.inf))
    with pytest.raises(ValueError, match="2D"):
        kernel(X[0])


def test_overflow_is_an_error_not_infinity() -> None:
    X = np.full((2, 2), 30.0)
    with pytest.raises(ValueError, match="overflow"):
        Exponential(1.0)(X)
    with pytest.raises(ValueError, match="overflow"):
        Exponential(1.0).diag(X)
    with pytest.raises(ValueError, match="overflow"):
        Exponential(0.1)(X.astype(np.float32))
    with pytest.raises(ValueError, match="overflow"):
        Polynomial(40)(1e5 * X)


def test_outside_the_radius_of_convergence() -> None:
    X = data()
    X[6] = [1.0, 1.0, 0.5, 0.0]  # |x|^2 = 2.25
    X[:6] *= 0.1
    X[7:] *= 0.1
    kernel = InversePolynomial(2.0)
    for call in (kernel, kernel.diag, kernel.series, lambda Z: kernel(0.1 * Z, Z)):
        with pytest.raises(ValueError, match=r"row 6.*2\.25.*shift=2\.0"):
            call(X)


# --- names and scikit-learn's parameters ---------------------------------------------------------


@pytest.mark.parametrize("gamma", ["scale", "auto", None, 0.3])
@pytest.mark.parametrize(
    ("names", "peer"),
    [
        (("gaussian", "rbf"), pairwise.rbf_kernel),
        (("laplacian",), pairwise.laplacian_kernel),
        (("poly", "polynomial"), pairwise.polynomial_kernel),
    ],
)
def test_names_mean_what_scikit_learn_means(names: Any, peer: Any, gamma: Any) -> None:
    X = 3.0 * data() + 1.0
    d = X.shape[1]
    value = {"scale": 1 / (d * X.var()), "auto": 1 / d, None: 1 / d}.get(gamma, gamma)
    extra = {"degree": 2, "coef0": 0.5} if "poly" in names else {}
    for name in names:
        kernel = resolve_kernel(name, X, gamma=gamma, **extra)
        np.testing.assert_allclose(kernel(X), peer(X, gamma=value, **extra), rtol=1e-10)


def test_linear() -> None:
    X = data()
    np.testing.assert_allclose(resolve_kernel("linear", X)(X), X @ X.T, atol=1e-13)


@pytest.mark.parametrize("nu", [0.5, 0.8, 1.5, 2.5, 3.7])
def test_matern_is_scikit_learns(nu: float) -> None:
    X, Y = data(), data(7, seed=1)
    peer = gaussian_process_kernels.Matern(length_scale=1.3, nu=nu)
    np.testing.assert_allclose(Matern(1.3, nu)(X, Y), peer(X, Y), rtol=1e-6)


def test_scikit_learns_defaults() -> None:
    X = data()
    poly = resolve_kernel("poly", X, gamma=None)
    np.testing.assert_allclose(poly(X), pairwise.polynomial_kernel(X), rtol=1e-12)


@pytest.mark.parametrize("name", ["exponential", "inverse_polynomial", "matern"])
def test_other_names_resolve(name: str) -> None:
    X = 0.3 * data()
    types = {
        "exponential": Exponential,
        "inverse_polynomial": InversePolynomial,
        "matern": Matern,
    }
    assert isinstance(resolve_kernel(name, X), types[name])


def test_an_object_is_itself() -> None:
    kernel = Gaussian(0.123)
    assert resolve_kernel(kernel, data()) is kernel


@pytest.mark.parametrize("form", SPARSE_FORMS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_scale_of_sparse_data_is_that_of_dense_data(form: str, dtype: type) -> None:
    X = (data() + 2.0 * (data() != 0)).astype(dtype)
    sparse, dense = (resolve_kernel("rbf", A).gamma for A in (SPARSE_FORMS[form](X), X))
    assert sparse == pytest.approx(dense, rel=1e-6)
    assert dense == pytest.approx(1 / (4 * X.astype(float).var()), rel=1e-6)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("value", [0.0, 2.5, 0.1, 1e4 / 3])
def test_scale_of_constant_data_is_one(value: float, container: Callable[[Any], Any]) -> None:
    """There is no scale to find; rounding of the mean is not a variance."""
    X = container(np.full((10, 3), value))
    assert resolve_kernel("rbf", X, gamma="scale").gamma == 1.0


@pytest.mark.parametrize("exponent", [-30, -100, -157, -170])
def test_scale_of_tiny_data_is_finite(exponent: int) -> None:
    assert 0 < resolve_kernel("rbf", data() * 10.0**exponent).gamma < np.inf


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="gausian") as error:
        resolve_kernel("gausian", data())
    known = ("gaussian", "rbf", "poly", "polynomial", "exponential", "inverse_polynomial")
    for name in (*known, "linear", "laplacian", "matern"):
        assert name in str(error.value)
    with pytest.raises((ValueError, TypeError), match="kernel"):
        resolve_kernel(3, data())


@pytest.mark.parametrize("gamma", [-1.0, 0.0, math.nan, math.inf, "wide", [1.0]])
def test_bad_gamma(gamma: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="gamma") as error:
        resolve_kernel("gaussian", data(), gamma=gamma)
    assert str(gamma) in str(error.value)


# --- the Taylor series ---------------------------------------------------------------------------


def scaled_to(X: Any, squared_radius: float) -> Any:
    """X times a number that makes the largest |x|^2 equal to squared_radius."""
    largest = np.abs(X).max()
    if largest == 0:
        return X
    X = X / largest  # whose square would underflow for tiny points
    return X * math.sqrt(squared_radius / (X**2).sum(axis=1).max())


@st.composite
def clouds(draw: st.DrawFn) -> Any:
    """Small data sets with what breaks series: zero, tiny, opposite and repeated rows."""
    d = draw(st.integers(1, 4))
    value = st.one_of(
        st.floats(-1.0, 1.0, allow_subnormal=False),
        st.sampled_from([0.0, 1.0, -1.0, 1e-30, 1e-160, -1e-8]),
    )
    row = st.lists(value, min_size=d, max_size=d)
    rows = draw(st.lists(row, min_size=1, max_size=5))
    kind = draw(st.sampled_from(["plain", "repeated", "opposite", "zero row"]))
    extra = {
        "plain": [],
        "repeated": [rows[0]] * 3,
        "opposite": [[-v for v in rows[0]]],
        "zero row": [[0.0] * d],
    }
    return np.array(rows + extra[kind])


def kernel_at(name: str, squared_radius: float) -> tuple[Any, Truth]:
    """A kernel of the family for points with |x|^2 <= squared_radius, and its plain loop."""
    if name == "gaussian":  # |x'|^2 = 2 gamma |x|^2
        return Gaussian(0.5), functools.partial(oracles.gaussian, gamma=0.5)
    if name == "exponential":
        return Exponential(1.0), functools.partial(oracles.exponential, gamma=1.0)
    if name == "inverse polynomial":
        shift = 1.25 * squared_radius
        return InversePolynomial(shift), functools.partial(oracles.inverse_polynomial, shift=shift)
    return KERNELS[name]


@pytest.mark.parametrize("squared_radius", [0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("name", SERIES)
@given(X=clouds(), tol=st.sampled_from([1e-2, 1e-6, 1e-10]))
@example(X=np.zeros((3, 2)), tol=1e-6)
@example(X=np.ones((1, 1)), tol=1e-6)
@example(X=np.array([[1.0], [1e-170]]), tol=1e-6)
def test_series_reproduces_the_kernel(name: str, squared_radius: float, X: Any, tol: float) -> None:
    """max |k_q - k| <= tol, which is relative to the largest value where that is not 1."""
    X = scaled_to(X, squared_radius)
    kernel, truth = kernel_at(name, squared_radius * (1 + 1e-12))
    K = oracles.gram(truth, X)
    scale = float(np.abs(K).max())
    series = kernel.series(X, tol * scale, **({"center": False} if name == "gaussian" else {}))
    error = float(np.abs(series(X) - K).max())
    assert error <= (tol + 1e-12) * scale, f"degree {series.degree} is off by {error:.1e}"
    assert 0 <= series.tail <= tol * scale
    assert series.degree <= 256
    assert series.log_coefficients.shape == (series.degree + 1,)


@pytest.mark.parametrize("squared_radius", [0.1, 1.0, 10.0])
@given(X=clouds(), tol=st.sampled_from([1e-2, 1e-6, 1e-10]))
def test_centred_series_reproduces_the_gaussian(squared_radius: float, X: Any, tol: float) -> None:
    X = scaled_to(X, squared_radius)
    X += 5.0
    series = Gaussian(0.5).series(X, tol)
    np.testing.assert_allclose(series.center, X.mean(axis=0), rtol=1e-12)
    K = oracles.gram(oracles.gaussian, X, gamma=0.5)
    assert np.abs(series(X) - K).max() <= tol + 1e-12


@pytest.mark.parametrize("name", SERIES)
def test_series_of_other_points(name: str) -> None:
    kernel, truth = KERNELS[name]
    X, Y = data(), data(7, seed=1)
    scale = np.abs(oracles.gram(truth, np.vstack([X, Y]))).max()
    series = kernel.series(np.vstack([X, Y]), 1e-9 * scale)
    np.testing.assert_allclose(series(X, Y), oracles.gram(truth, X, Y), atol=2e-9 * scale)
    np.testing.assert_allclose(series(X, X), series(X), atol=1e-12 * scale)


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_lifting_of_the_series_is_the_series(
    name: str, container: Callable[[Any], Any], dtype: type
) -> None:
    """Points, amplitudes and coefficients mean what the table says: lift them and multiply."""
    kernel, truth = KERNELS[name]
    X = 0.4 * data(6, 2).astype(dtype)
    K = oracles.gram(truth, X)
    series = kernel.series(container(X), 1e-6 * np.abs(K).max())
    moved = series.points(container(X))
    assert moved.dtype == dtype
    assert sp.issparse(moved) == (container is sp.csr_matrix)
    moved = np.asarray(moved.toarray() if sp.issparse(moved) else moved, dtype=float)
    norms = (moved**2).sum(axis=1)
    amplitude, coefficients = np.exp(series.log_amplitude(norms)), np.exp(series.log_coefficients)
    Phi, _ = oracles.lift_multisets(moved, amplitude, coefficients)
    np.testing.assert_allclose(series(container(X)), Phi.T @ Phi, atol=1e-9)
    np.testing.assert_allclose(Phi.T @ Phi, K, atol=3e-6 * np.abs(K).max())


def test_the_triple_of_the_gaussian() -> None:
    X = data()
    series = Gaussian(0.7).series(X, center=False)
    points, amplitude, coefficients = oracles.gaussian_series(X, series.degree, gamma=0.7)
    assert series.scale == pytest.approx(math.sqrt(1.4))
    np.testing.assert_allclose(series.points(X), points)
    np.testing.assert_allclose(np.exp(series.log_amplitude((points**2).sum(axis=1))), amplitude)
    np.testing.assert_allclose(np.exp(series.log_coefficients), coefficients)


def test_the_triple_of_the_polynomial() -> None:
    X = data()
    series = Polynomial(4, 0.5, 2.0).series(X, 0.0)
    points, _, coefficients = oracles.polynomial_series(X, 4, gamma=0.5, coef0=2.0)
    np.testing.assert_allclose(series.points(X), points)
    np.testing.assert_allclose(np.exp(series.log_coefficients), coefficients)
    np.testing.assert_array_equal(series.log_amplitude(np.array([0.0, 9.0])), 0.0)


def test_only_the_top_degree_of_a_homogeneous_polynomial() -> None:
    series = Polynomial(3, 0.5, 0.0).series(data())
    np.testing.assert_array_equal(np.exp(series.log_coefficients), [0.0, 0.0, 0.0, 1.0])


# --- how far the series goes ---------------------------------------------------------------------


def inverse_factorial(w: int) -> Decimal:
    return Decimal(1) / Decimal(math.factorial(w))


def undamped(norm: Decimal) -> Decimal:
    return Decimal(0)


GAPS = [1.0, 0.0, 0.5, 0.0, 0.0, 1e-6]

# name -> (kernel, factor of |x|^2, a_w, 2 log c, last degree)
TRUNCATED: dict[str, Any] = {
    "gaussian": (Gaussian(0.5), 1.0, inverse_factorial, lambda norm: -norm, 2000),
    "exponential": (Exponential(0.5), 0.5, inverse_factorial, undamped, 2000),
    "inverse polynomial": (
        InversePolynomial(15.0),
        1.0,
        lambda w: Decimal(15) ** (-w - 1),
        undamped,
        2000,
    ),
    "polynomial": (
        Polynomial(9, 0.5, 2.0),
        0.5,
        lambda w: Decimal(math.comb(9, w) * 2 ** (9 - w)),
        undamped,
        9,
    ),
    "dot product": (DotProduct(GAPS), 1.0, lambda w: Decimal(GAPS[w]), undamped, 5),
}


@pytest.mark.parametrize("name", TRUNCATED)
@pytest.mark.parametrize("squared_radius", [0.0, 0.01, 1.0, 10.0])
@pytest.mark.parametrize("tol", [1.0, 1e-3, 1e-8])
@pytest.mark.parametrize("n", [1, 60])
def test_the_degree_is_the_smallest_that_keeps_the_trace(
    name: str, squared_radius: float, tol: float, n: int
) -> None:
    """Or at most one more: sum_x c^2 sum_{w > q} a_w |x'|^(2 w) <= tol, by brute force."""
    kernel, factor, coefficient, log_squared_amplitude, last = TRUNCATED[name]
    X = scaled_to(np.random.default_rng(n).normal(size=(n, 3)), squared_radius)
    series = kernel.series(X, tol, **({"center": False} if name == "gaussian" else {}))
    norms = (factor * (X**2).sum(axis=1)).tolist()

    def trace(q: int) -> float:
        return oracles.truncation_trace(norms, q, coefficient, log_squared_amplitude, last)

    assert trace(series.degree) <= tol * (1 + 1e-9), "the series is cut off too early"
    if series.degree >= 2:
        assert trace(series.degree - 2) > tol, "the series is longer than it needs to be"
    assert trace(series.degree) * (1 - 1e-9) <= series.tail <= tol


def test_the_trace_is_a_sum_over_rows() -> None:
    """A thousand copies of a row need more degrees than one, so that K - K_q stays small."""
    X = np.ones((1, 1))
    one = Gaussian(0.5).series(X, 1e-6, center=False).degree
    assert Gaussian(0.5).series(np.repeat(X, 1000, axis=0), 1e-6, center=False).degree > one


@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("kernel", [Gaussian(0.5), Exponential(1.0)])
def test_beyond_the_largest_degree(kernel: Any, container: Callable[[Any], Any]) -> None:
    X = data(20)
    X[13] = [20.0, 0.0, 0.0, 0.0]  # |x'|^2 = 400 (a little less when centred)
    with pytest.raises(ValueError, match=r"row 13\b") as error:
        kernel.series(container(X), 1e-6)
    message = str(error.value)
    for words in ("256", "Nystrom", "Mercer", "gamma"):
        assert words in message, f"the error does not mention {words}"
    if container is sp.csr_matrix:
        assert "400" in message, "the error does not name the value"


def test_the_largest_degree_can_be_chosen() -> None:
    X = scaled_to(data(), 10.0)
    series = Gaussian(0.5).series(X, 1e-6, center=False)
    same = Gaussian(0.5).series(X, 1e-6, center=False, max_degree=series.degree)
    assert same.degree == series.degree
    with pytest.raises(ValueError, match=f"max_degree={series.degree - 1}"):
        Gaussian(0.5).series(X, 1e-6, center=False, max_degree=series.degree - 1)
    with pytest.raises(ValueError, match=r"degree=300.*max_degree=256"):
        Polynomial(300).series(0.1 * X)


@pytest.mark.parametrize("tol", [-1.0, math.nan, "small"])
def test_bad_tolerance(tol: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="tol"):
        Gaussian().series(data(), tol)


@pytest.mark.parametrize("kernel", [Laplacian(), Matern()])
def test_kernels_without_a_series_say_so(kernel: Any) -> None:
    with pytest.raises(TypeError, match=type(kernel).__name__):
        kernel.series(data())


# --- centring ------------------------------------------------------------------------------------


def test_dense_data_is_centred() -> None:
    X = data()
    near, far = Gaussian(0.7).series(X), Gaussian(0.7).series(X + 50.0)
    np.testing.assert_allclose(far.center, (X + 50.0).mean(axis=0))
    np.testing.assert_allclose(far.points(X + 50.0).mean(axis=0), 0.0, atol=1e-12)
    assert near.degree == far.degree, "a common offset must not cost degrees"
    assert Gaussian(0.7).series(X, center=True).degree == near.degree
    with pytest.raises(ValueError, match=r"row \d"):
        Gaussian(0.7).series(X + 50.0, center=False)


def test_float32_offset_data_is_centred_without_loss() -> None:
    X = (data() + 1e4).astype(np.float32)
    series = Gaussian(0.7).series(X)
    np.testing.assert_allclose(
        series(X), oracles.gram(oracles.gaussian, X, gamma=0.7), rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("form", SPARSE_FORMS)
def test_sparse_data_is_not_centred(form: str) -> None:
    A = SPARSE_FORMS[form](data())
    series = Gaussian(0.7).series(A)
    assert series.center is None
    assert sp.issparse(series.points(A))
    with pytest.raises(ValueError, match="center=True"):
        Gaussian(0.7).series(A, center=True)
    same = Gaussian(0.7).series(data(), center=False)
    assert same.center is None
    assert same.degree == series.degree


@pytest.mark.parametrize("name", [name for name in SERIES if name != "gaussian"])
def test_dot_product_kernels_are_not_centred(name: str) -> None:
    kernel, _ = KERNELS[name]
    assert kernel.series(data()).center is None
    with pytest.raises(ValueError, match="centr"):
        kernel.series(data(), center=True)


def test_bad_center() -> None:
    with pytest.raises((ValueError, TypeError), match="center='middle'"):
        Gaussian().series(data(), center="middle")


def test_a_centred_series_refuses_to_fill_sparse_points() -> None:
    series = Gaussian(0.7).series(data() + 3.0)
    with pytest.raises((ValueError, TypeError), match="centred"):
        series.points(sp.csr_matrix(data()))


@pytest.mark.parametrize("kernel", [Gaussian(0.5), Matern(2.0, 0.5), Matern(2.0, 1.5)])
@pytest.mark.parametrize("offset", [1e4, 1e9])
def test_sparse_distances_far_from_the_origin(kernel: Any, offset: float) -> None:
    """|x|^2 - 2 <x, y> + |y|^2 has lost all digits there: close pairs go by their differences."""
    near = np.round(np.random.default_rng(0).normal(size=(60, 4)), 3)  # exact beside 1e9
    far = np.round(near + offset, 3)
    expected = kernel(far)  # dense rows move the origin
    X = sp.csr_array(far)
    for gram in (kernel(X), kernel(X, far), kernel(far, X), kernel(X, X[:20])):
        np.testing.assert_allclose(gram, expected[:, : gram.shape[1]], rtol=1e-10, atol=1e-12)
    single = kernel(sp.csr_array(far.astype(np.float32)))
    np.testing.assert_allclose(single, kernel(far.astype(np.float32)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kernel", "size"),
    [
        (Polynomial(2, 1e39, 0.0), 1e-19),
        (Polynomial(3, 1e60, 1.0), 1e-30),
        (DotProduct([1.0, 0.0, 1e39]), 1e-10),
    ],
)
def test_float32_with_factors_beyond_its_range(kernel: Any, size: float) -> None:
    """A factor that is infinite in float32 would make NaN of every inner product of 0."""
    X = np.float32(size) * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.5, 2.0]], np.float32)
    with np.errstate(all="raise", under="ignore"):
        gram = kernel(X)
        diagonal = kernel.diag(X)
    exact = kernel(X.astype(np.float64))
    assert gram.dtype == np.float32
    np.testing.assert_allclose(gram, exact, rtol=1e-5)
    np.testing.assert_allclose(diagonal, np.diag(exact), rtol=1e-5)


def test_summaries_of_many_blocks_are_sorted_into_one(monkeypatch: pytest.MonkeyPatch) -> None:
    radii = np.random.default_rng(0).exponential(size=(9, 50))
    whole = Radii.of_rows(radii.ravel())
    monkeypatch.setattr(series, "MAX_PIECES", 3)
    together = Radii.of_rows(radii[0])
    for number, block in enumerate(radii[1:], start=1):
        together += Radii.of_rows(block, 50 * number)
    assert len(together.steps) < 3
    assert (together.largest, together.row) == (whole.largest, whole.row)
    for found, expected in zip(together.counted(), whole.counted(), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian(0.3),
        Laplacian(0.3),
        Matern(1.0, 1.5),
        Polynomial(3),
        Exponential(0.1),
        ArcCosine(1),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_kernels_of_inner_products_grow_with_the_rows(kernel: Any) -> None:
    X = np.array([[0.5, 1.0], [1.0, 2.0]])
    short, long = kernel.diag(X)
    assert kernel.of_inner_products == (long > short)
