"""RowNormFeatures, and the tests that every sampled map passes (AdaptiveFeatures imports them)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from support.engine_options import set_options
from support.sampled_maps import (
    QUICK_SEEDS,
    SLOW_SEEDS,
    UNBIASED,
    DotProductVariant,
    ExponentialVariant,
    GaussianAuto,
    GaussianMercer,
    GaussianMonomials,
    GaussianRotated,
    InversePolynomialVariant,
    PaperVariant,
    PolynomialVariant,
    SampledBattery,
    SampledContract,
    check_every_monomial,
    check_unbiased,
    data,
    few_proposal_rows,
    gram_of,
    make_small,
    other_seeds,
)

from kernelsieve import AdaptiveFeatures, ObliviousFeatures, RowNormFeatures
from kernelsieve.engine.options import DEFAULTS
from kernelsieve.kernels import (
    Gaussian,
    InversePolynomial,
)

# --- the battery ---------------------------------------------------------------------------------


# The variants, as mixins: (kernel, frame, basis) and the kernel matrix that belongs to them.


class RowNormBattery(SampledBattery):
    map_class: ClassVar = RowNormFeatures


class TestRowNormMonomials(GaussianMonomials, RowNormBattery):
    pass


class TestRowNormMercer(GaussianMercer, RowNormBattery):
    pass


@pytest.mark.slow
class TestRowNormRotated(GaussianRotated, RowNormBattery):
    pass


@pytest.mark.slow
class TestRowNormAuto(GaussianAuto, RowNormBattery):
    pass


@pytest.mark.slow
class TestRowNormPolynomial(PolynomialVariant, RowNormBattery):
    pass


@pytest.mark.slow
class TestRowNormPaper(PaperVariant, RowNormBattery):
    pass


@pytest.mark.slow
class TestRowNormExponential(ExponentialVariant, RowNormBattery):
    pass


@pytest.mark.slow
class TestRowNormInversePolynomial(InversePolynomialVariant, RowNormBattery):
    pass


@pytest.mark.slow
class TestRowNormDotProduct(DotProductVariant, RowNormBattery):
    pass


# --- unbiasedness over seeds, on data with a column that is nonzero in one row -------------------


QUICK = [
    "gaussian",
    "gaussian rotated",
    "mercer",
    "polynomial",
    "inverse polynomial",
    "gaussian csr",
    "dot product csr",
]


@pytest.mark.parametrize("name", QUICK)
def test_unbiased_quickly(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
    check_unbiased(RowNormFeatures, name, range(QUICK_SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased_over_many_seeds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
    check_unbiased(RowNormFeatures, name, range(SLOW_SEEDS))


#: With 4 of the 12 rows, and the lonely row not among them.
FEW_ROWS = ["gaussian", "gaussian rotated", "mercer", "mercer rotated", "polynomial"]


@pytest.mark.parametrize("name", ["polynomial", "gaussian rotated", "mercer"])
def test_unbiased_from_few_proposal_rows_quickly(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_proposal_rows(monkeypatch)
    check_unbiased(RowNormFeatures, name, other_seeds(QUICK_SEEDS), n_components=20)


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW_ROWS)
def test_unbiased_from_few_proposal_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few_proposal_rows(monkeypatch)
    check_unbiased(RowNormFeatures, name, other_seeds(SLOW_SEEDS), n_components=20)


@pytest.mark.parametrize("name", ["polynomial rotated", "mercer rotated"])
def test_unbiased_in_a_frame_from_few_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any rotation is right: three of the twelve rows, which do not even span the columns."""
    make_small(monkeypatch)
    set_options(monkeypatch, rotation_rows=3, histogram_rows=5)
    check_unbiased(RowNormFeatures, name, range(QUICK_SEEDS))


@pytest.mark.parametrize("name", ["gaussian", "mercer", "polynomial csr"])
def test_unbiased_when_the_draws_are_cut_short(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """About 25 draws for 30 features: the cap is the stopping time, and the size is random."""
    make_small(monkeypatch, max_draws=25)
    check_unbiased(RowNormFeatures, name, range(QUICK_SEEDS), n_components=30)


def test_every_monomial_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
    check_every_monomial(RowNormFeatures, range(400), n_components=16)


def test_every_monomial_counts_once_from_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    few_proposal_rows(monkeypatch)
    check_every_monomial(RowNormFeatures, other_seeds(400), n_components=24)


# --- what every sampled map does: run once for each ----------------------------------------------


class TestRowNormContract(SampledContract):
    map_class: ClassVar = RowNormFeatures


# --- the row-norm map itself ---------------------------------------------------------------------


def test_the_target_is_ignored() -> None:
    X = data()
    with_y = RowNormFeatures(20, random_state=0).fit(X, X[:, 0]).transform(X)
    np.testing.assert_array_equal(with_y, RowNormFeatures(20, random_state=0).fit_transform(X))


def test_the_heaviest_features_are_there() -> None:
    """Distinct draws in proportion to the norm: the ten heaviest monomials in every draw."""
    X = data(100) * np.array([1.0, 0.3, 0.1])
    x, amplitude, coefficients = oracles.gaussian_series(X, 6, gamma=0.3)
    Phi, names = oracles.lift_multisets(x, amplitude, coefficients)
    heaviest = [names[i] for i in np.argsort(-oracles.squared_row_norms(Phi))[:10]]
    for seed in range(5):
        fitted = RowNormFeatures(
            40,
            kernel=Gaussian(0.3),
            basis="monomial",
            rotate=False,
            center=False,
            random_state=seed,
        ).fit(X)
        assert set(heaviest) <= set(fitted.monomials_)


def test_the_default_constants_on_small_data() -> None:
    """As users have them: batches of 4,096 draws and up to two million."""
    assert RowNormFeatures._options is DEFAULTS
    assert DEFAULTS.batch == 4096
    assert DEFAULTS.max_draws == 2_000_000
    X = data(200, 4)
    for basis in ("monomial", "mercer"):
        Z = RowNormFeatures(500, kernel=Gaussian(0.1), basis=basis, random_state=0).fit_transform(X)
        K = gram_of(Gaussian(0.1), X)
        assert np.abs(Z @ Z.T - K).max() < 0.02


@pytest.mark.parametrize("map_class", [RowNormFeatures, AdaptiveFeatures])
def test_numpy_booleans_switch_like_those_of_python(map_class: Any) -> None:
    X = data(60, 3)
    for value in (True, False):
        given = {"kernel": Gaussian(0.3), "random_state": 0}
        python = map_class(20, rotate=value, center=value, **given)
        numpy = map_class(20, rotate=np.bool_(value), center=np.bool_(value), **given)
        np.testing.assert_array_equal(numpy.fit_transform(X), python.fit_transform(X))
        assert numpy.rotate_ is value
        assert numpy.__sklearn_tags__().input_tags.sparse == (not value)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("map_class", [RowNormFeatures, AdaptiveFeatures, ObliviousFeatures])
def test_rows_outside_the_domain_of_the_kernel(map_class: Any, container: Any) -> None:
    X = data(60, 3)
    X /= 1.1 * np.linalg.norm(X, axis=1).max()
    far = X.copy()
    far[4] *= 1.5 / np.linalg.norm(far[4])
    features = map_class(10, kernel=InversePolynomial(2.0), random_state=0)
    with pytest.raises(ValueError, match=r"row 4 has \|x\|\^2 = 2.25.*shift=2.0"):
        features.fit(container(far))
    features.fit(container(X)).transform(container(X))
    with pytest.raises(ValueError, match=r"row 4 has \|x\|\^2 = 2.25.*shift=2.0"):
        features.transform(container(far))
