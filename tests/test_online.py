"""Rows that come later: forgetting, and whether they have moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernelsieve import KernelRidge, RowNormFeatures, drift
from kernelsieve.kernels import Product


def rows(n: int = 200, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(n, 3))


def model() -> KernelRidge:
    return KernelRidge(RowNormFeatures(20, random_state=0).fit(rows()), alpha=0.1)


def test_forgetting_multiplies_the_weights_of_earlier_rows() -> None:
    parts = [(rows(60, seed), rows(60, seed)[:, 0] * (1.0 + seed)) for seed in range(3)]
    online = model()
    for X, y in parts:
        online.partial_fit(X, y, forget=0.3)
    weights = np.repeat([0.7**2, 0.7, 1.0], 60)
    together = model().partial_fit(
        np.concatenate([X for X, _ in parts]), np.concatenate([y for _, y in parts]), weights
    )
    np.testing.assert_allclose(online.coef_, together.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(online.intercept_, together.intercept_, rtol=1e-8)


def test_a_model_that_forgets_follows_a_change() -> None:
    keeps, forgets = model(), model()
    for step in range(30):
        X = rows(50, step)
        y = X[:, 0] * (1.0 if step < 20 else -1.0)
        keeps.partial_fit(X, y)
        forgets.partial_fit(X, y, forget=0.4)
    new = rows(100, 99)
    assert np.corrcoef(forgets.predict(new), -new[:, 0])[0, 1] > 0.9
    assert np.corrcoef(keeps.predict(new), -new[:, 0])[0, 1] < 0.0
    mean, deviation = forgets.predict(new, return_std=True)
    assert np.isfinite(mean).all()
    assert (deviation > 0).all()


@pytest.mark.parametrize("forget", [1.0, -0.1, "half", np.nan])
def test_what_can_be_forgotten(forget: Any) -> None:
    with pytest.raises(ValueError, match="forget="):
        model().partial_fit(rows(), rows()[:, 0], forget=forget)


def test_drift_of_rows_that_have_not_moved_is_small() -> None:
    fitted = KernelRidge(RowNormFeatures(20, random_state=0)).fit(rows(2000), rows(2000)[:, 0])
    same, moved = (
        drift(fitted, rows(1000, 1)),
        drift(fitted, rows(1000, 1) + np.array([0.0, 5.0, 0.0])),
    )
    assert same.outside < 0.05
    assert moved.outside > 0.9
    assert moved.columns[1] > 0.9
    assert moved.columns[[0, 2]].max() < 0.02
    assert moved.unseen > same.unseen
    assert "most in column 1" in str(moved)


def test_drift_of_missing_values() -> None:
    X = rows(300)
    X[:30, 0] = np.nan
    features = RowNormFeatures(20, kernel=Product(0.5), random_state=0)
    fitted = KernelRidge(features).fit(X, rows(300)[:, 1])
    X[:150, 0] = np.nan
    np.testing.assert_allclose(drift(fitted, X).missing, [0.4, 0.0, 0.0], atol=1e-12)
