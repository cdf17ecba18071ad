"""The compiled loops, run as plain Python, for NUMBA_DISABLE_JIT=1.

What a compiler may hide shows there: an index beyond the end of an array, a name that is never set.
Every estimator's features must be those of the compiled loops, which another process computes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numba import config

import kernelsieve as ks
from kernelsieve._random import keyed_rows
from kernelsieve.kernels import Anova, Product, Warp
from kernelsieve.kernels.likelihood.components import VarianceComponents
from kernelsieve.testing import data as shapes

Features = Callable[[], Any]
# More columns of a family than the loops take at a time.
ALL_FAMILIES = Product(
    0.1,
    ["gaussian"] * 5 + ["laplacian"] * 5 + ["matern32"] * 2 + ["matern52"] * 3 + ["categorical"],
)


def dense(d: int = 4, scale: float = 1.0, dtype: Any = np.float64) -> Any:
    return (scale * shapes.points(30, d, seed=3)).astype(dtype)


def sparse(n: int = 30) -> Any:
    return sp.csr_array(shapes.sparse_points(n, 8))


def with_gaps() -> Any:
    X = dense(3)
    X[::4, 1] = np.nan
    return X


def warped() -> Product:
    warps = [Warp.fit(dense(3)[:, i], k) for i, k in enumerate(("identity", "log", "rank"))]
    return Product([0.7, 0.7, 0.7], "gaussian", warps)


def parts() -> Anova:
    subsets = [(0,), (0, 1), (0, 1, 2), (2, 3)]
    return Anova.of(Product(0.7, "laplacian"), dense(), subsets=subsets)


def variances_of_parts() -> Any:
    X = dense()
    target = np.sin(3.0 * X[:, :1])
    return VarianceComponents(parts(), X, target, np.ones(len(X)), 1).search(3).variances


def features(kind: Any, X: Any, n_components: int = 20, **options: Any) -> Features:
    options = {"random_state": 0, "n_jobs": 1, **options}
    return lambda: shapes.as_dense(kind(n_components, **options).fit(X).transform(X))


def corrected() -> Any:
    """A correction by neighbours, more columns than a stride; distances are in float32."""
    X = dense(11)
    model = ks.KernelRidge(
        ks.NystromFeatures(8, kernel=Product(0.2), random_state=0, n_jobs=1),
        refine="local",
        random_state=0,
    )
    return model.fit(X, np.sin(9.0 * X[:, 0])).predict(dense(11) + 0.01).astype(np.float32)


CASES: dict[str, Features] = {
    "nearest rows": corrected,
    "monomials": features(ks.RowNormFeatures, dense(), gamma=2.0, basis="monomial", rotate=False),
    "many monomials": features(ks.RowNormFeatures, dense(), 200, gamma=1.0, basis="monomial"),
    "principal components": features(ks.RowNormFeatures, dense(), gamma=2.0, rotate=True),
    "mercer": features(ks.RowNormFeatures, dense(), gamma=2.0, basis="mercer"),
    "mercer, far": features(ks.RowNormFeatures, dense(1, 5.0), 40, gamma=0.5, basis="mercer"),
    "tents": features(ks.RowNormFeatures, dense(2), 60, kernel=Product(3.0, "laplacian")),
    "missing values": features(ks.RowNormFeatures, with_gaps(), kernel=Product(0.7, "matern32")),
    "warps": features(ks.NystromFeatures, 2.0 * with_gaps(), 10, kernel=warped()),
    "categories": features(
        ks.RowNormFeatures, with_gaps().round(), kernel=Product(0.7, "categorical")
    ),
    "sparse products": features(ks.RowNormFeatures, sparse(), kernel=Product(0.7)),
    "adaptive": features(ks.AdaptiveFeatures, dense(), 8, gamma=1.0),
    "leverage": features(ks.AdaptiveFeatures, dense(2), 6, gamma=1.0, sampler="leverage"),
    "sparse": features(ks.RowNormFeatures, sparse(), gamma=1.0),
    "sparse, in float32": features(ks.RowNormFeatures, sparse().astype(np.float32), gamma=1.0),
    "all of sparse": features(ks.RowNormFeatures, sparse(), 500, kernel="poly", degree=2),
    "wide rows": features(ks.RowNormFeatures, sparse(), 60, kernel="poly", degree=3),
    "landmarks": features(ks.NystromFeatures, sparse(), 10),
    "product kernel": features(ks.NystromFeatures, dense(16).round(1), 10, kernel=ALL_FAMILIES),
    "parts": features(ks.NystromFeatures, dense(), 10, kernel=parts()),
    "variances of parts": variances_of_parts,
    "cosines": features(ks.FourierFeatures, dense(), 21),
    "cosines in float32": features(ks.FourierFeatures, dense(dtype=np.float32), 21),
    "large angles": features(ks.FourierFeatures, dense(scale=1e8), 21, gamma=1.0),
    "phases": features(ks.FourierFeatures, dense(scale=1e8), gamma=1.0, variant="phase"),
    "rotations": features(ks.FourierFeatures, dense(40), 200, frequencies="structured"),
    "tensor sketch": features(ks.TensorSketchFeatures, dense(), degree=3),
    "sparse tensor sketch": features(ks.TensorSketchFeatures, sparse(), degree=2),
    "balanced": features(ks.AdaptiveFeatures, dense(), 20, kernel="poly", degree=4),
    "oblivious": features(ks.ObliviousFeatures, dense(), 30, kernel="poly", degree=5),
    "wide oblivious": features(ks.ObliviousFeatures, dense(300), 30, kernel="poly", degree=3),
    "rows by hash": lambda: keyed_rows(10_000, 50, 0, "rows"),
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the compiled loops make of all cases."""
    where = tmp_path_factory.mktemp("compiled") / "features.npz"
    paths = [str(Path(ks.__file__).parents[1]), str(Path(__file__).parent)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "NUMBA_DISABLE_JIT": "0",
    }
    code = (
        "import numpy, sys, test_plain_loops as t;"
        "numpy.savez(sys.argv[1], **{name: case() for name, case in t.CASES.items()})"
    )
    subprocess.run([sys.executable, "-c", code, str(where)], env=environment, check=True)
    with np.load(where) as arrays:
        return dict(arrays)


@pytest.mark.skipif(not config.DISABLE_JIT, reason="for NUMBA_DISABLE_JIT=1")
@pytest.mark.parametrize("name", CASES)
def test_plain_loops_do_what_compiled_ones_do(name: str, compiled: Any) -> None:
    with np.errstate(over="ignore"):  # hashes wrap around
        found = CASES[name]()
    expected = compiled[name]
    tolerance = 1e-5 if expected.dtype == np.float32 else 1e-9
    if name in ("large angles", "phases"):
        tolerance = 1e-6  # an angle of 1e8 has few digits behind its point
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())
