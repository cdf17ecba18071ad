"""One-row predictions are those of predict, also from many threads at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from kernelsieve import (
    AdaptiveFeatures,
    AutoFeatures,
    FourierFeatures,
    KernelRidge,
    KernelRidgeClassifier,
    KernelRidgeCV,
    KernelSVC,
    NystromFeatures,
)
from kernelsieve.kernels import Product, Warp


def rows(n: int = 150, missing: bool = False) -> Any:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    return X


def target(X: Any) -> Any:
    X = np.nan_to_num(X)
    return X[:, 0] * X[:, 1] + np.sin(2.0 * X[:, 2])


def product(*families: str) -> Product:
    kinds = ("identity", "log", "rank", "rank")
    warps = [Warp.fit(rows()[:, i], kind) for i, kind in enumerate(kinds)]
    return Product([0.5, 0.4, 0.7, 0.0], families * (4 // len(families)), warps)


MODELS = {
    "products": KernelRidge(AdaptiveFeatures(40, random_state=0)),
    "fourier": KernelRidge(FourierFeatures(41, random_state=0)),
    "auto": KernelRidge(AutoFeatures(30, random_state=0)),
    "landmarks": KernelRidge(NystromFeatures(30, random_state=0)),
    "landmarks of a product": KernelRidge(NystromFeatures(30, kernel=product("gaussian"))),
    "polynomial landmarks": KernelRidge(NystromFeatures(20, kernel="poly", gamma=0.1)),
    "exact": KernelRidge(
        NystromFeatures(20, kernel=product("gaussian", "laplacian")), alpha=0.1, refine=True
    ),
    "learned": KernelRidgeCV(random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_row_is_predicted_as_in_a_table(name: str) -> None:
    X = rows()
    model = MODELS[name].fit(X, target(X))
    predict = model.predictor()
    found = [predict(row) for row in X[:20]]
    np.testing.assert_allclose(found, model.predict(X[:20]), rtol=1e-8, atol=1e-9)
    assert isinstance(found[0], float)


def test_several_outputs_and_missing_values() -> None:
    X = rows(missing=True)
    features = AdaptiveFeatures(40, kernel=product("gaussian", "laplacian"), random_state=0)
    model = KernelRidge(features).fit(X, np.column_stack([target(X), X[:, 0] > 0]))
    found = [model.predictor()(row) for row in X[:20]]
    np.testing.assert_allclose(found, model.predict(X[:20]), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", [KernelRidgeClassifier, KernelSVC])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_and_probabilities(kind: Any, n_classes: int) -> None:
    X = rows()
    edges = np.quantile(target(X), np.linspace(0, 1, n_classes + 1)[1:-1])
    y = np.array(["low", "middle", "high"])[np.searchsorted(edges, target(X))]
    model = kind(AdaptiveFeatures(40, random_state=0)).fit(X, y)
    predict = model.predictor()
    assert [predict(row) for row in X[:20]] == model.predict(X[:20]).tolist()
    chances = [predict.probabilities(row) for row in X[:20]]
    np.testing.assert_allclose(chances, model.predict_proba(X[:20]), rtol=1e-8, atol=1e-12)


def test_threads_may_share_a_predictor() -> None:
    X = rows()
    predict = KernelRidge(AdaptiveFeatures(40, random_state=0)).fit(X, target(X)).predictor()
    alone = [predict(row) for row in X]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert list(pool.map(predict, X)) == alone


def test_rows_that_the_model_does_not_take() -> None:
    X = rows()
    predict = KernelRidge(AdaptiveFeatures(20, random_state=0)).fit(X, target(X)).predictor()
    with pytest.raises(ValueError, match=r"a row of shape \(2, 4\)"):
        predict(X[:2])
    with pytest.raises(ValueError, match="NaN or infinity"):
        predict([0.0, np.nan, 0.0, 0.0])
    with pytest.raises(AttributeError, match="no probabilities"):
        predict.probabilities(X[0])
    missing = KernelRidge(AdaptiveFeatures(20, kernel=product("gaussian"))).fit(X, target(X))
    with pytest.raises(ValueError, match="contains infinity"):
        missing.predictor()([0.0, np.inf, 0.0, 0.0])


def test_warps_of_columns_are_the_warps_themselves() -> None:
    kernel, X = product("gaussian", "categorical"), rows(200, missing=True) * 3.0
    found = kernel.columns(X, np.array([0, 1, 2]))
    expected = [0.5 * kernel.warps[0](X[:, 0]), X[:, 1], 0.7 * kernel.warps[2](X[:, 2])]
    np.testing.assert_allclose(found, np.column_stack(expected), rtol=1e-14, atol=1e-14)


def test_svc_probabilities_are_calibrated() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    truth = 1.0 / (1.0 + np.exp(-3.0 * X[:, 0] * X[:, 1] - X[:, 2]))
    y = (rng.random(3000) < truth).astype(int)
    model = KernelSVC(AdaptiveFeatures(60, random_state=0), random_state=0).fit(X[:1500], y[:1500])
    chances = model.predict_proba(X[1500:])[:, 1]
    groups = np.digitize(chances, [0.2, 0.4, 0.6, 0.8])
    for group in range(5):
        here = groups == group
        error = y[1500:][here].mean() - chances[here].mean()
        assert abs(error) < 0.05 + 3.0 * 0.5 / np.sqrt(here.sum())  # three deviations, and bias
