"""A small program of a user passes mypy --strict: the public API has types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kernelsieve

PROGRAM = """
import numpy as np
from numpy.typing import NDArray

import kernelsieve
from kernelsieve import (
    AdaptiveFeatures,
    ConformalRegressor,
    KernelQuantileRegressor,
    KernelRidge,
    KernelRidgeClassifier,
    KernelRidgeCV,
    NystromFeatures,
    TableModel,
)
from kernelsieve.kernels import Product
from kernelsieve.models.predictor import Predictor
from kernelsieve.tables import TablePredictor


def fitted(X: NDArray[np.float64], y: NDArray[np.float64]) -> KernelRidge:
    features = AdaptiveFeatures(100, kernel=Product(0.5), random_state=0)
    return KernelRidge(features, alpha=0.1).fit(X, y)


def served(model: KernelRidge) -> Predictor:
    kernelsieve.save(model, "model.ks")
    kernelsieve.export_onnx(model, "model.onnx", dtype="float64")
    return model.partial_fit(np.ones((1, 3)), np.ones(1), forget=0.1).predictor()


rng = np.random.default_rng(0)
X, y = rng.normal(size=(50, 3)), rng.normal(size=50)
predict: Predictor = served(fitted(X, y))
chances: NDArray[np.float64] = KernelRidgeClassifier().fit(X, y > 0).predict_proba(X)
low, high = ConformalRegressor(KernelRidgeCV()).fit(X, y).predict_interval(X, coverage=0.8)
quantiles: NDArray[np.float64] = KernelQuantileRegressor((0.1, 0.9)).fit(X, y).predict(X)
table: TableModel = TableModel("y").fit({"x": X[:, 0], "y": y})
low, high = table.predict_interval({"x": X[:, 0]}, 0.9)
answer: TablePredictor = table.predictor()
left_out = ConformalRegressor(KernelRidge(), method="jackknife+")
size: int = NystromFeatures(10).fit(X).n_components_
print(kernelsieve.__version__, low - high, kernelsieve.explain(KernelRidgeCV().fit(X, y)))
print(answer({"x": 1.0}), answer.columns, left_out)
"""


@pytest.mark.slow
def test_a_program_with_strict_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    # Only what we are responsible for: other packages may have no types.
    options = ["--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "program.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(Path(kernelsieve.__file__).parents[1]), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
