"""Product kernels: against pairs of points one by one, and what they are special cases of."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.gaussian_process import kernels as gp

from kernelsieve import FourierFeatures, KernelRidge, NystromFeatures
from kernelsieve.kernels import Gaussian, Laplacian, Matern, Product, Warp, resolve_kernel

FAMILIES = ("gaussian", "laplacian", "matern32", "matern52", "categorical")


def rows(n: int, d: int = 7, seed: int = 0) -> np.ndarray:
    """Numbers, with integers in the last column."""
    X = np.random.default_rng(seed).normal(size=(n, d))
    X[:, -1] = np.random.default_rng(seed + 1).integers(3, size=n)
    return X


def truth(X: np.ndarray, Y: np.ndarray, rates: list[float], families: list[str]) -> np.ndarray:
    return np.array([[oracles.product(x, y, rates, families) for y in Y] for x in X])


@pytest.mark.parametrize("families", [*([f] * 7 for f in FAMILIES), [*FAMILIES[:4], *FAMILIES[2:]]])
def test_gram_is_the_product_over_columns(families):
    rates = [0.3, 0.0, 1.0, 2.0, 0.01, 0.5, 1.5]
    X, Y = rows(300), rows(1100, seed=5)
    kernel = Product(rates, families)
    expected = truth(X, Y[::50], rates, families)
    np.testing.assert_allclose(kernel(X, Y)[:, ::50], expected, rtol=1e-12, atol=1e-14)
    single = kernel(X.astype(np.float32), Y.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single[:, ::50], expected, atol=2e-6)
    square = kernel(X)
    np.testing.assert_allclose(square, square.T, atol=1e-15)
    assert (np.diag(square) == 1.0).all()
    assert (kernel.diag(X) == 1.0).all()
    assert (kernel(X, Y, n_jobs=1) == kernel(X, Y, n_jobs=3)).all()


def test_special_cases():
    X = rows(50)
    np.testing.assert_allclose(Product(np.sqrt(0.3))(X), Gaussian(0.3)(X), rtol=1e-10)
    np.testing.assert_allclose(Product(0.3, "laplacian")(X), Laplacian(0.3)(X), rtol=1e-10)
    one = X[:, :1]
    np.testing.assert_allclose(Product(0.5, "matern32")(one), Matern(2.0, 1.5)(one), rtol=1e-10)
    np.testing.assert_allclose(Product(0.5, "matern52")(one), Matern(2.0, 2.5)(one), rtol=1e-10)
    assert (Product(np.zeros(7))(X) == 1.0).all()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_points_are_not_nan(family, dtype):
    """Matern's polynomials overflow long before the product does."""
    d = 400
    X = np.zeros((3, d), dtype=dtype)
    X[1] = 0.3
    X[2] = 1e3 if family == "gaussian" else 1e18
    gram = Product(np.full(d, 0.5), family)(X)
    near = oracles.product(X[0], X[1], [0.5] * d, [family] * d)
    assert gram[0, 1] == pytest.approx(near, rel=1e-3, abs=1e-30)
    assert gram[0, 2] == pytest.approx(
        np.exp(-200.0) if family == "categorical" else 0.0, abs=1e-30
    )


def test_an_offset_does_not_cost_digits():
    X = rows(20) + 1e6
    families = ["laplacian", "matern32"] * 3 + ["gaussian"]
    np.testing.assert_allclose(
        Product(np.ones(7), families)(X.astype(np.float32).astype(np.float64)).astype(np.float32),
        Product(np.ones(7), families)(X.astype(np.float32)),
        atol=1e-6,
    )


def test_warps_keep_the_order_and_tame_tails():
    rng = np.random.default_rng(0)
    column = np.exp(3.0 * rng.normal(size=1000))
    grid = np.linspace(-10.0, 10.0 * column.max(), 1001)
    for kind in ("identity", "log", "rank"):
        warp = Warp.fit(column, kind)
        assert (np.diff(warp(grid)) >= 0).all()
        assert np.isfinite(warp(grid)).all()
        assert hash(warp) == hash(pickle.loads(pickle.dumps(warp)))
    assert Warp.fit(column, "rank")(column).std() == pytest.approx(1.0, rel=0.02)
    assert abs(Warp.fit(column, "rank")(grid)).max() < 2.0
    assert (
        abs(Warp.fit(column, "log")(column)).max()
        < 10.0
        < Warp.fit(column, "identity")(column).max()
    )
    constant = np.full(5, 3.0)
    for kind in ("identity", "log", "rank"):
        assert (Warp.fit(constant, kind)(constant) == 0.0).all()
    few = np.repeat([1.0, 2.0, 7.0], [2, 4, 4])
    assert Warp.fit(few, "rank").knots == (1.0, 2.0, 7.0)
    with pytest.raises(ValueError, match="knots must rise"):
        Warp("knots", knots=(1.0, 1.0), values=(0.0, 1.0))
    with pytest.raises(ValueError, match="one value for each knot"):
        Warp("knots")


def test_points_are_scaled_and_warped():
    X = rows(30, d=3)
    warp = Warp.fit(X[:, 0], "log")
    kernel = Product([2.0, 0.0, 0.7], ["laplacian", "gaussian", "categorical"], [warp] * 3)
    points = kernel.points(X)
    np.testing.assert_allclose(points[:, 0], 2.0 * warp(X[:, 0]))
    assert (points[:, 1] == 0.0).all()
    assert (points[:, 2] == X[:, 2]).all()
    expected = truth(points[:, :1], points[:, :1], [1.0], ["laplacian"])
    expected *= np.where(X[:, 2:] == X[:, 2], 1.0, np.exp(-0.7))
    np.testing.assert_allclose(kernel(X), expected, rtol=1e-12)


def test_sparse_rows():
    X = sp.random_array((40, 9), density=0.3, random_state=0, format="csr")
    for family in ("gaussian", "laplacian"):
        kernel = Product(np.linspace(0, 2, 9), family)
        np.testing.assert_allclose(kernel(X), kernel(X.toarray()), rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(kernel.points(X).toarray(), kernel.points(X.toarray()))
    with pytest.raises(ValueError, match="no Gram matrix of sparse rows"):
        Product(np.ones(9), "matern32")(X)
    with pytest.raises(ValueError, match="need dense rows"):
        Product(np.ones(9), "categorical").points(X)


def test_equality_repr_and_clone():
    kernel = Product([1, 0, 2.5], "laplacian")
    assert kernel == Product((1.0, 0.0, 2.5), "laplacian")
    assert hash(kernel) == hash(Product(np.array([1, 0, 2.5]), "laplacian"))
    assert kernel != Product([1, 0, 2.5])
    assert repr(kernel) == "Product(rates=[1, 0, 2.5], families='laplacian')"
    mixed = Product(np.arange(20.0), ["laplacian"] * 15 + ["categorical"] * 5)
    assert repr(mixed) == (
        "Product(rates=[0, 1, 2, 3, 4, 5, ... (19 of 20 columns active)], "
        "families=<15 x laplacian, 5 x categorical>)"
    )
    warped = Product([1.0], warps=[Warp("log")])
    assert repr(warped) == "Product(rates=[1], families='gaussian', warps=<1 x log>)"
    for made in (kernel, mixed, warped):
        assert clone(made) == made == Product(**made.get_params()) == copy.deepcopy(made)
    assert kernel.scaled(2.0) == Product([2, 0, 5], "laplacian")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, -1.0],), "-1.0 is not"),
        (([np.nan],), "nan is not"),
        (([],), "one for each column"),
        (([1.0], "cubic"), "'cubic' is unknown"),
        (([1.0, 2.0], ["gaussian"]), "must be equal"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ValueError, match=message):
        Product(*arguments)


def test_a_kernel_knows_its_columns():
    with pytest.raises(ValueError, match="kernel of 2 columns, but X has 7"):
        Product([1.0, 2.0])(rows(5))


def test_gaussian_process_kernels():
    X = rows(20, d=3)
    scales = np.array([0.5, 2.0, 1.0])
    for theirs in (gp.RBF(scales), gp.RBF(0.7), gp.Matern(0.7, nu=1.5), gp.Matern(2.0, nu=np.inf)):
        np.testing.assert_allclose(resolve_kernel(theirs, X)(X), theirs(X), rtol=1e-10)
    with pytest.raises(ValueError, match="not a product over the columns"):
        resolve_kernel(gp.Matern(scales), X)
    with pytest.raises(ValueError, match="constant factor divides alpha"):
        resolve_kernel(gp.ConstantKernel(2.0) * gp.RBF(scales), X)


def test_landmarks_and_ridges_take_it():
    X = rows(200)
    y = np.sin(X[:, 0]) + X[:, 3]
    kernel = Product([1.0, 0, 0, 0.5, 0, 0, 0.1], ["gaussian"] * 6 + ["categorical"])
    Z = NystromFeatures(200, kernel=kernel).fit_transform(X)
    np.testing.assert_allclose(Z @ Z.T, kernel(X), atol=1e-6)
    model = KernelRidge(NystromFeatures(100, kernel=kernel, random_state=0), alpha=1e-3).fit(X, y)
    assert model.score(X, y) > 0.999


@pytest.mark.parametrize("family", FAMILIES)
def test_fourier_features_are_unbiased(family):
    X = rows(12, d=4)
    X = np.round(2.0 * X) if family == "categorical" else X
    kernel = Product([0.5, 0.0, 1.0, 0.2], family)
    grams = []
    for seed in range(200):
        Z = FourierFeatures(64, kernel=kernel, random_state=seed).fit_transform(X)
        grams.append(Z @ Z.T)
    error = np.mean(grams, axis=0) - kernel(X)
    deviation = np.std(grams, axis=0) / np.sqrt(len(grams)) + 1e-12
    assert (np.abs(error) <= 4.5 * deviation).all()


def test_fourier_features_of_warped_and_sparse_rows():
    X = rows(30, d=4)
    warps = [Warp.fit(column, "rank") for column in X.T]
    kernel = Product(np.full(4, 0.3), "laplacian", warps)
    Z = FourierFeatures(20_000, kernel=kernel, random_state=0).fit_transform(X)
    np.testing.assert_allclose(Z @ Z.T, kernel(X), atol=0.05)
    plain = Product(np.full(4, 0.3), "matern32")
    features = FourierFeatures(30, kernel=plain, random_state=0).fit(X)
    np.testing.assert_allclose(features.transform(sp.csr_array(X)), features.transform(X))
    with pytest.raises(ValueError, match="integer codes"):
        FourierFeatures(30, kernel=Product(np.ones(4), "categorical")).fit(X)
    with pytest.raises(ValueError, match="use 'plain'"):
        FourierFeatures(30, kernel=plain, frequencies="orthogonal").fit(X)
